//! Do modules of a crate import each other in circles? A reader who follows a name from file to file must come to an end.
//!
//! A module is a file. It depends on another of its crate when it names it: by `crate::`, `super::` or `self::`, or as a module below it.
//! What a module passes on from those below it (`pub use`), and what its tests name, is no dependency; nor is the root, which lists the modules.

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
            texts.insert(module(path.strip_prefix(&sources).unwrap_or(&path)), file);
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
    let names: BTreeSet<&str> = texts.keys().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let mut graph = Graph::new();
    for (name, file) in texts.iter().filter(|(name, _)| !name.is_empty()) {
        let own: Vec<String> = name.split("::").map(str::to_owned).collect();
        let mut named = Vec::new();
        for item in production(file) {
            match item {
                Item::Use(import) => {
                    let passed_on = !matches!(import.vis, Visibility::Inherited);
                    let mut paths = Vec::new();
                    leaves(&import.tree, &mut Vec::new(), &mut paths);
                    named.extend(paths.into_iter().filter(|path| !(passed_on && is_below(&own, path, &names))));
                }
                item => named_in(item.to_token_stream(), &mut named),
            }
        }
        let found = named.iter().filter_map(|path| resolve(&own, path, &names)).filter(|found| found != name);
        graph.insert(name.clone(), found.collect());
    }
    graph
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

/// The paths that an import names.
fn leaves(tree: &UseTree, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, paths);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|item| leaves(item, before, paths)),
        UseTree::Name(name) => paths.push(before.iter().cloned().chain([name.ident.to_string()]).collect()),
        UseTree::Rename(name) => paths.push(before.iter().cloned().chain([name.ident.to_string()]).collect()),
        UseTree::Glob(_) => paths.push(before.clone()),
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

/// The module that a path of `own` names; `None`: its own, the root, or another crate.
fn resolve(own: &[String], path: &[String], names: &BTreeSet<&str>) -> Option<String> {
    let (mut base, mut rest): (Vec<String>, &[String]) = match path.first().map(String::as_str)? {
        "crate" => (vec![], &path[1..]),
        "self" => (own.to_vec(), &path[1..]),
        "super" => (own[..own.len() - 1].to_vec(), &path[1..]),
        _ => (own.to_vec(), path),
    };
    // Without a prefix, only what is below the module is meant.
    let is_relative = !matches!(path[0].as_str(), "crate" | "self" | "super");
    while rest.first().is_some_and(|part| part == "super") {
        base.pop();
        rest = &rest[1..];
    }
    let least = if is_relative { base.len() + 1 } else { 1 };
    let full: Vec<String> = base.iter().chain(rest).cloned().collect();
    (least..=full.len()).rev().map(|n| full[..n].join("::")).find(|name| names.contains(name.as_str()))
}

fn is_below(own: &[String], path: &[String], names: &BTreeSet<&str>) -> bool {
    let own = own.join("::");
    resolve(&own.split("::").map(str::to_owned).collect::<Vec<_>>(), path, names)
        .is_some_and(|found| found.starts_with(&format!("{own}::")))
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
        let named_alike = [("a.rs", "use std::b::B; pub(super) fn f() {}"), ("b.rs", "use crate::a::A;")];
        assert!(of(&named_alike).is_empty());
    }
}
