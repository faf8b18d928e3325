//! Does each file keep the house rules that a compiler does not see?
//!
//! A source file opens with `//!`. Library crates start no threads, read no clock and print nothing outside their
//! tests. Comments are at most 120 characters wide, as code is (rustfmt). Unfinished work is an issue, not a macro.
//! Every page of docs/formats is named by the code that writes the bytes, and every page that code names exists. No
//! file names a person's folder.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::Complaint;

/// Crates that drive others, and so have threads and a clock: services, faces, the binary and the tools.
const DRIVERS: [&str; 10] = [
    "tarn",
    "tarn-node",
    "tarn-sql",
    "tarn-pg",
    "tarn-http",
    "tarn-net",
    "tarn-bench",
    "tarn-bench-cache",
    "tarn-bench-metastore",
    "xtask",
];

/// What a library's production code must not call, and what to do instead.
const NOT_IN_LIBRARIES: [(&str, &str); 9] = [
    ("SystemTime::now", "take a &dyn Clock"),
    ("Instant::now", "take a &dyn Clock"),
    ("Utc::now", "take a &dyn Clock"),
    ("thread::spawn", "let the caller drive"),
    ("rand::rng()", "take a seed"),
    ("thread_rng", "take a seed"),
    ("println!", "return it, or trace it in the binary"),
    ("eprintln!", "return it, or trace it in the binary"),
    ("tokio::spawn", "let the caller drive"),
];

/// How wide a line of prose may be, in characters.
const MAX_WIDTH: usize = 120;

/// What no source may contain. Split so that this file does not complain about itself.
const NOWHERE: [(&str, &str); 4] = [
    (concat!("todo", "!("), "write it, or open an issue"),
    (concat!("unimplemented", "!("), "write it, or return an error"),
    (concat!("#[", "ignore"), "a test runs or does not exist"),
    (concat!("/", "home/"), "a path of one machine"),
];

/// A complaint for each rule that a file breaks, with its place.
pub fn check(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    let mut all_sources = String::new();
    for path in rust_files(&root.join("crates"))? {
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        complaints.extend(check_file(&name, &text));
        all_sources.push_str(&text);
    }
    complaints.extend(check_formats(root, &all_sources)?);
    for page in ["README.md", "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs/sources.md"] {
        if !root.join(page).exists() {
            complaints.push(format!("{page}: is missing"));
        }
    }
    Ok(complaints)
}

fn check_file(name: &str, text: &str) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    if !text.starts_with("//!") && !is_test_file(name) {
        complaints.push(format!("{name}:1: opens without //! (say which question the file answers)"));
    }
    let library = is_driven(name);
    let mut in_tests = is_test_file(name);
    complaints
        .extend(too_wide(text).map(|line| format!("{name}:{line}: a comment is wider than {MAX_WIDTH}: wrap it")));
    for (number, line) in text.lines().enumerate() {
        in_tests |= line.trim_start().starts_with("#[cfg(test)]") || line.trim_start().starts_with("#[cfg(any(test");
        let code = line.split("//").next().unwrap_or(line);
        for (pattern, remedy) in NOWHERE {
            if code.contains(pattern) {
                complaints.push(format!("{name}:{}: {pattern}: {remedy}", number + 1));
            }
        }
        for (pattern, remedy) in NOT_IN_LIBRARIES {
            if library && !in_tests && has_word(code, pattern) {
                complaints.push(format!("{name}:{}: {pattern} in a library: {remedy}", number + 1));
            }
        }
    }
    complaints
}

/// Whether a file is production code of a store or mover, which its callers drive.
pub fn is_driven(name: &str) -> bool {
    let mut parts = name.split('/').skip(1);
    parts.next().is_some_and(|krate| !DRIVERS.contains(&krate)) && parts.next() == Some("src")
}

/// Test modules stand last in a file, or in a file of their own, or in a contract suite.
pub fn is_test_file(name: &str) -> bool {
    let stem = Path::new(name).file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let in_folder = ["/tests/", "/contract/"].iter().any(|folder| name.contains(folder));
    stem.ends_with("tests") || stem.starts_with("test") || stem.starts_with("contract") || in_folder
}

/// The lines of prose in comments that are too wide. Tables and what is fenced cannot be wrapped, nor can one word.
fn too_wide(text: &str) -> impl Iterator<Item = usize> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let comment = line.trim_start();
        let Some(prose) = comment.strip_prefix("//") else {
            is_fenced = false;
            return None;
        };
        let prose = prose.trim_start_matches(['/', '!']);
        is_fenced ^= prose.trim_start().starts_with("```");
        let is_one_word = !prose.trim().contains(' ');
        let is_drawn = is_fenced || prose.trim_start().starts_with('|') || prose.starts_with("     ") || is_one_word;
        (line.chars().count() > MAX_WIDTH && !is_drawn).then_some(number + 1)
    })
}

/// Whether `pattern` stands in `code` and is not the end of a longer word (`eprintln!` contains `println!`).
fn has_word(code: &str, pattern: &str) -> bool {
    code.match_indices(pattern).any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn check_formats(root: &Path, sources: &str) -> anyhow::Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    let folder = root.join("docs/formats");
    let pages = std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    for page in pages {
        let path = page?.path();
        let name = format!("docs/formats/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if !sources.contains(&name) {
            complaints.push(format!("{name}: no source names it (the code that writes the bytes should)"));
        }
        if !std::fs::read_to_string(&path)?.to_lowercase().contains("version") {
            complaints.push(format!("{name}: says nothing of a version byte"));
        }
    }
    for (at, start) in sources.match_indices("docs/formats/") {
        let tail = &sources[at + start.len()..];
        let Some(end) = tail.find(".md") else { continue };
        let name = &tail[..end];
        if name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
            && !folder.join(format!("{name}.md")).exists()
        {
            complaints.push(format!("docs/formats/{name}.md: a source names it, but it does not exist"));
        }
    }
    complaints.sort();
    complaints.dedup();
    Ok(complaints)
}

/// Every `.rs` file under `folder`, sorted, but for what builds leave in folders `target`.
pub fn rust_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.extend((!path.ends_with("target")).then_some(path));
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_may_not_read_the_clock_but_its_tests_and_the_binary_may() {
        let text = "//! x\nfn f() { SystemTime::now(); }\n#[cfg(test)]\nmod tests { fn g() { SystemTime::now(); } }\n";
        assert_eq!(check_file("crates/tarn-rows/src/a.rs", text).len(), 1);
        assert_eq!(check_file("crates/tarn/src/a.rs", text).len(), 0);
        assert_eq!(check_file("crates/tarn-rows/tests/a.rs", text).len(), 0);
    }

    #[test]
    fn prose_of_comments_is_as_wide_as_code() {
        let (wide, table) = ("word ".repeat(25), format!("| {}|", "cell ".repeat(25)));
        let text =
            format!("//! x\n/// {wide}\n/// {table}\n/// ```\n/// {wide}\n/// ```\nfn f() {{}} // {wide}\n// {wide}\n");
        let found: Vec<usize> = too_wide(&text).collect();
        assert_eq!(found, [2, 8]);
        assert_eq!(too_wide(&format!("// {}", "x".repeat(200))).count(), 0);
    }

    #[test]
    fn comments_and_longer_words_do_not_count() {
        assert!(
            check_file("crates/tarn-rows/src/a.rs", "//! x\n// never println!\nlet my_thread_rng = 1;\n").is_empty()
        );
    }

    #[test]
    fn a_missing_header_and_unfinished_work_are_named() {
        let found = check_file("crates/tarn/src/a.rs", concat!("fn f() { todo", "!() }\n"));
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
