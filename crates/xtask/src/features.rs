//! Has each library the same features in what is tested as in what is built? What tests alone ask for is another
//! library to the compiler, and all that stands on it is compiled again: DataFusion and Arrow for the documentation, or
//! for the server without its tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::Complaint;

/// Libraries that crates of ours alone stand on, and that are to be other ones in tests: places where a test kills the
/// process.
const APART: [&str; 1] = ["fail"];

/// A complaint for each library that tests ask for with other features.
pub fn check(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    Ok(compare(&tree(root, "no-dev")?, &tree(root, "all")?))
}

/// Lines `name version|features` of all libraries behind these kinds of edges.
fn tree(root: &Path, edges: &str) -> anyhow::Result<BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--workspace", "--prefix", "none", "--format", "{p}|{f}", "--edges", edges])
        .current_dir(root)
        .output()
        .context("run cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok(lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

fn compare(built: &BTreeSet<String>, tested: &BTreeSet<String>) -> Vec<Complaint> {
    // Crates of ours are followed by their folders.
    let is_library = |line: &&String| !line.contains(" (");
    let name = |line: &str| line.split([' ', '|']).next().unwrap_or_default().to_owned();
    let others = built.difference(tested).filter(is_library).filter(|line| !APART.contains(&name(line).as_str()));
    others
        .map(|line| {
            format!("Cargo.toml: {line} is built with features other than those that it is tested with: name what tests ask for under \"One set of features\"")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_with_features_of_its_own_in_tests_is_told() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let built: BTreeSet<String> =
            lines(&["serde v1.0.1|std", "fail v0.5.1|", "tarn v0.1.0 (/tarn)|", "md-5 v0.10.6|std"]);
        let tested =
            lines(&["serde v1.0.1|alloc,std", "fail v0.5.1|failpoints", "tarn v0.1.0 (/tarn)|f", "md-5 v0.10.6|std"]);
        let complaints = compare(&built, &tested);
        assert!(complaints.len() == 1 && complaints[0].contains("serde v1.0.1|std"), "{complaints:?}");
        assert_eq!(compare(&built, &built), Vec::<Complaint>::new());
    }
}
