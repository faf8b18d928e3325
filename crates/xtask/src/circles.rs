//! Do modules of a crate import each other in circles? A reader who follows a name from file to file must come to an
//! end.
//!
//! A module is a file. It depends on another of its crate when it names it: by `crate::`, `super::` or `self::`, or as
//! a module below it. What a module passes on from those below it (`pub use`), and what its tests name, is no
//! dependency; nor is the root, which lists the modules. Whoever names a thing that a module, or the root, has from
//! elsewhere depends on where it comes from, too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, File, Item, UseTree, Visibility};

use crate::Complaint;
use crate::sources::rust_files;

/// What each module names, by their paths below the crate: `session::copy`.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The names of one module.
#[derive(Default)]
struct ModuleNames {
    /// What is imported, under its name here, whoever may see it: those below see all of it.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules of which everything is imported.
    globs: Vec<Vec<String>>,
    /// What stands in the module itself.
    own: BTreeSet<String>,
}

/// A complaint for each circle, with the files in it.
pub fn check(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    let crates = root.join("crates");
    for entry in std::fs::read_dir(&crates).with_context(|| format!("list {}", crates.display()))? {
        let folder = entry?.path();
        let sources = folder.join("src");
        let mut texts = BTreeMap::new();
        for path in rust_files(&sources)? {
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let file = syn::parse_file(&text).with_context(|| format!("parse {}", path.display()))?;
            // The root of a library before that of its binary: the first in the order of the files.
            texts.entry(module(path.strip_prefix(&sources).unwrap_or(&path))).or_insert(file);
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        complaints.extend(
            circles(&graph(&texts))
                .into_iter()
                .map(|circle| format!("crates/{name}: modules import each other in a circle: {}", circle.join(" → "))),
        );
    }
    complaints.sort();
    Ok(complaints)
}

/// `session/copy.rs` → `session::copy`, `session/mod.rs` → `session`, `lib.rs` → nothing.
fn module(path: &Path) -> String {
    let mut parts: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("mod")) || (parts.len() == 1 && is_root(&parts[0])) {
        parts.pop();
    }
    parts.join("::")
}

fn is_root(file: &str) -> bool {
    file == "lib" || file == "main"
}

fn graph(texts: &BTreeMap<String, File>) -> Graph {
    let modules: BTreeMap<&str, ModuleNames> = texts.iter().map(|(name, file)| (name.as_str(), names(file))).collect();
    let mut graph = Graph::new();
    for (name, file) in texts.iter().filter(|(name, _)| !name.is_empty()) {
        let own: Vec<String> = name.split("::").map(str::to_owned).collect();
        let below = format!("{name}::");
        let mut found = BTreeSet::new();
        for item in production(file) {
            match item {
                Item::Use(import) => {
                    let passes_on = !matches!(import.vis, Visibility::Inherited);
                    let is_below = |path: &[String]| {
                        resolve(&own, path, &modules).is_some_and(|(module, _)| module.starts_with(&below))
                    };
                    let mut paths: Vec<_> = leaves_of(&import.tree).into_iter().map(|leaf| leaf.path).collect();
                    paths.retain(|path| !(passes_on && is_below(path)));
                    found.extend(paths.iter().flat_map(|path| targets(&own, path, &modules)));
                }
                item => {
                    let mut named = Vec::new();
                    named_in(item.to_token_stream(), &mut named);
                    found.extend(named.iter().flat_map(|path| targets(&own, path, &modules)));
                }
            }
        }
        found.remove(name);
        graph.insert(name.clone(), found);
    }
    graph
}

fn names(file: &File) -> ModuleNames {
    let mut names = ModuleNames::default();
    for item in production(file) {
        match item {
            Item::Use(import) => {
                for leaf in leaves_of(&import.tree) {
                    match leaf.name {
                        Some(name) => drop(names.imports.insert(name, leaf.path)),
                        None => names.globs.push(leaf.path),
                    }
                }
            }
            item => names.own.extend(defined(item)),
        }
    }
    names
}

/// The name of what an item defines.
fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// What of a file is not for tests alone.
pub fn production(file: &File) -> impl Iterator<Item = &Item> {
    file.items.iter().filter(|item| !is_for_tests(attributes(item)))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.meta.to_token_stream().to_string().contains("test")
    })
}

/// One name of an import.
pub struct ImportedName {
    pub path: Vec<String>,
    /// What it is called here; `None`: everything that is there.
    pub name: Option<String>,
}

pub fn leaves_of(tree: &UseTree) -> Vec<ImportedName> {
    let mut found = Vec::new();
    leaves(tree, &mut Vec::new(), &mut found);
    found
}

fn leaves(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<ImportedName>) {
    let path_to = |last: String| match last.as_str() {
        "self" => before.clone(),
        _ => before.iter().cloned().chain([last]).collect(),
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|item| leaves(item, before, found)),
        UseTree::Name(name) => {
            let path: Vec<String> = path_to(name.ident.to_string());
            found.push(ImportedName { name: path.last().cloned(), path });
        }
        UseTree::Rename(name) => {
            found.push(ImportedName { path: path_to(name.ident.to_string()), name: Some(name.rename.to_string()) });
        }
        UseTree::Glob(_) => found.push(ImportedName { path: before.clone(), name: None }),
    }
}

/// The paths that begin with `crate`, `super` or `self` in any tokens, macros included.
fn named_in(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let mut open: Option<Vec<String>> = None;
    // Of a path: two colons, then a name.
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let text = ident.to_string();
                match &mut open {
                    Some(path) if colons == 2 => path.push(text),
                    _ => {
                        end(&mut open, paths);
                        open = matches!(text.as_str(), "crate" | "super" | "self").then(|| vec![text]);
                    }
                }
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && open.is_some() && colons < 2 => colons += 1,
            TokenTree::Group(group) if group.delimiter() != Delimiter::None || open.is_none() => {
                end(&mut open, paths);
                colons = 0;
                named_in(group.stream(), paths);
            }
            _ => {
                end(&mut open, paths);
                colons = 0;
            }
        }
    }
    end(&mut open, paths);
}

/// A prefix alone is none: `pub(super)`.
fn end(open: &mut Option<Vec<String>>, paths: &mut Vec<Vec<String>>) {
    paths.extend(open.take().filter(|path| path.len() > 1));
}

/// The modules that a path of `own` leads through: the one that it names, and where that has the name from. The root,
/// and other crates, are none.
fn targets(own: &[String], path: &[String], modules: &BTreeMap<&str, ModuleNames>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut todo = vec![(own.to_vec(), path.to_vec())];
    let mut done = BTreeSet::new();
    while let Some((own, path)) = todo.pop() {
        let Some((module, rest)) = resolve(&own, &path, modules) else { continue };
        let own: Vec<String> = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        // An import of a name by itself would lead here again and again.
        if let [first, behind @ ..] = rest.as_slice()
            && done.insert((module.clone(), first.clone()))
        {
            let names = &modules[module.as_str()];
            match names.imports.get(first) {
                Some(path) => todo.push((own, path.iter().chain(behind).cloned().collect())),
                None if names.own.contains(first) => {}
                None => {
                    let through = |glob: &Vec<String>| (own.clone(), glob.iter().chain(&rest).cloned().collect());
                    todo.extend(names.globs.iter().filter(|glob| has(&own, glob, first, modules)).map(through));
                }
            }
        }
        found.insert(module);
    }
    found.remove("");
    found
}

/// Whether the module that `path` of `own` names has the name in itself, or from elsewhere.
fn has(own: &[String], path: &[String], name: &str, modules: &BTreeMap<&str, ModuleNames>) -> bool {
    resolve(own, path, modules).is_some_and(|(module, rest)| {
        let names = &modules[module.as_str()];
        rest.is_empty() && (names.own.contains(name) || names.imports.contains_key(name))
    })
}

/// The module that a path of `own` names, the root being `""`, and what of the path is behind it. `None`: of another
/// crate.
fn resolve(own: &[String], path: &[String], modules: &BTreeMap<&str, ModuleNames>) -> Option<(String, Vec<String>)> {
    let (mut base, mut rest): (Vec<String>, &[String]) = match path.first().map(String::as_str)? {
        "crate" => (vec![], &path[1..]),
        "self" => (own.to_vec(), &path[1..]),
        "super" => (own[..own.len().saturating_sub(1)].to_vec(), &path[1..]),
        _ => (own.to_vec(), path),
    };
    // Without a prefix, only what is below the module is meant.
    let is_relative = !matches!(path[0].as_str(), "crate" | "self" | "super");
    while rest.first().is_some_and(|part| part == "super") {
        base.pop();
        rest = &rest[1..];
    }
    let least = if is_relative { base.len() + 1 } else { 0 };
    let full: Vec<String> = base.iter().chain(rest).cloned().collect();
    let n_parts = (least..=full.len()).rev().find(|n| modules.contains_key(full[..*n].join("::").as_str()))?;
    Some((full[..n_parts].join("::"), full[n_parts..].to_vec()))
}

/// One circle for each set of modules that reach each other, as the way around it.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for start in graph.keys() {
        if told.contains(start) {
            continue;
        }
        if let Some(circle) = way_back(graph, start) {
            told.extend(circle.iter().cloned());
            found.push(circle);
        }
    }
    found
}

/// The shortest way from a module to itself.
fn way_back(graph: &Graph, start: &str) -> Option<Vec<String>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = vec![start];
    while !next.is_empty() {
        let mut reached = Vec::new();
        for at in next {
            for to in graph.get(at).into_iter().flatten() {
                if to == start {
                    let mut way = vec![start.to_owned(), at.to_owned()];
                    let mut at = at;
                    while at != start {
                        at = came_from[at];
                        way.push(at.to_owned());
                    }
                    way.reverse();
                    return Some(way);
                }
                if !came_from.contains_key(to.as_str()) {
                    came_from.insert(to, at);
                    reached.push(to.as_str());
                }
            }
        }
        next = reached;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let texts =
            files.iter().map(|(path, text)| (module(Path::new(path)), syn::parse_file(text).unwrap())).collect();
        circles(&graph(&texts))
    }

    #[test]
    fn a_circle_is_found_wherever_it_is_named() {
        for (a, b) in [
            ("use crate::b::B;", "use super::a::A;"),
            ("use crate::{c::C, b};", "fn f() { crate::a::g() }"),
            ("fn f() { log!(\"{}\", crate::b::g(1)) }", "impl crate::a::A for B {}"),
        ] {
            let found = of(&[("lib.rs", "mod a; mod b; mod c;"), ("a.rs", a), ("b.rs", b), ("c.rs", "")]);
            assert_eq!(found, [["a", "b", "a"]], "{a} {b}");
        }
        let around = of(&[("a.rs", "use crate::b;"), ("b.rs", "use crate::c::X;"), ("c.rs", "use crate::a::Y;")]);
        assert_eq!(around, [["a", "b", "c", "a"]]);
    }

    #[test]
    fn what_is_passed_on_and_what_tests_name_is_none() {
        let below = [("a/mod.rs", "mod b; pub use b::B; pub struct A;"), ("a/b.rs", "use super::A;")];
        assert!(of(&below).is_empty());
        let used = [("a/mod.rs", "mod b; use b::B; pub struct A;"), ("a/b.rs", "use super::A;")];
        assert_eq!(of(&used), [["a", "a::b", "a"]]);
        let tested = [("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; }")];
        assert!(of(&tested).is_empty());
        let root = [("lib.rs", "mod a; mod b; pub use a::A;"), ("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B;")];
        assert!(of(&root).is_empty());
        let named_alike = [("a.rs", "use std::b::B; pub(super) fn f() {}"), ("b.rs", "use crate::a::A;")];
        assert!(of(&named_alike).is_empty());
    }

    #[test]
    fn a_circle_through_what_others_pass_on_is_found() {
        for passed_on in
            ["pub use self::b::check;", "pub(crate) use b::check;", "pub use b::*;", "pub use b::{inner as check};"]
        {
            let parent = format!("mod b; mod c; {passed_on}");
            let b = "use super::c::copy; pub fn check() {} pub fn inner() {}";
            let found = of(&[("a/mod.rs", &parent), ("a/b.rs", b), ("a/c.rs", "use super::{check, Other};")]);
            assert_eq!(found, [["a::b", "a::c", "a::b"]], "{passed_on}");
        }
        let root = [("lib.rs", "mod a; mod b; pub use a::A;"), ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::A;")];
        assert_eq!(of(&root), [["a", "b", "a"]]);
        let twice = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod inner; pub use inner::A;"),
            ("a/inner.rs", "use crate::b::B;"),
            ("b.rs", "fn f() { crate::a::A::new() }"),
        ];
        assert_eq!(of(&twice), [["a::inner", "b", "a::inner"]]);
    }
}
