//! Does each crate name only what its room allows? Holds `cargo metadata` against the two tables of ARCHITECTURE.md.
//!
//! The first table (heading "Rooms") says for each crate which of ours it may name; the second ("Heavy dependencies")
//! says which crates may name a heavy one. What a table allows and nobody does, or a manifest brings and no source
//! names, is a complaint, too. Only normal and build dependencies count: tests may use what they like. No crate passes
//! a whole one of ours on: who names that would have a room that no manifest says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use cargo_metadata::{DependencyKind, MetadataCommand};
use syn::{Item, Visibility};

use crate::Complaint;
use crate::circles::leaves_of;
use crate::sources::rust_files;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// A complaint for each name that the tables do not allow, and for each that nobody uses.
pub fn check(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("read ARCHITECTURE.md")?;
    let graph = graph(root)?;
    let mut complaints = compare(&table(&page, "Rooms")?, &table(&page, "Heavy dependencies")?, &graph);
    complaints.extend(unused(root, &graph)?);
    complaints.extend(passed_on_whole(root, &graph)?);
    Ok(complaints)
}

/// The direct normal and build dependencies of every workspace crate.
fn graph(root: &Path) -> anyhow::Result<Graph> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    Ok(metadata
        .packages
        .iter()
        .map(|package| {
            let shipped = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
            (package.name.to_string(), shipped.map(|d| d.name.clone()).collect())
        })
        .collect())
}

/// The first two columns of the table under `heading`: a name, and the names that belong to it.
pub fn table(page: &str, heading: &str) -> anyhow::Result<Graph> {
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with(heading))
        .with_context(|| format!("ARCHITECTURE.md has no section \"{heading}\""))?;
    let mut rows = Graph::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (Some(name), Some(list)) = (cells.get(1), cells.get(2)) else {
            bail!("ARCHITECTURE.md: not a row: {line}")
        };
        let names =
            list.split(',').map(|n| n.trim().trim_matches('`').to_string()).filter(|n| !n.is_empty() && n != "–");
        rows.insert(name.trim_matches('`').to_string(), names.collect());
    }
    if rows.is_empty() {
        bail!("ARCHITECTURE.md: the table under \"{heading}\" is empty");
    }
    Ok(rows)
}

fn compare(rooms: &Graph, heavy: &Graph, graph: &Graph) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (name, dependencies) in graph {
        let Some(allowed) = rooms.get(name) else {
            complaints.push(format!("{name}: has no row in ARCHITECTURE.md under Rooms"));
            continue;
        };
        for dependency in dependencies.iter().filter(|d| graph.contains_key(*d) && !allowed.contains(*d)) {
            complaints
                .push(format!("{name}: names {dependency}, which its room must not know (ARCHITECTURE.md, Rooms)"));
        }
        for dependency in dependencies {
            if heavy.get(dependency).is_some_and(|owners| !owners.contains(name)) {
                complaints.push(format!(
                    "{name}: names {dependency}, which has another room (ARCHITECTURE.md, Heavy dependencies)"
                ));
            }
        }
    }
    for (table, allowed) in [("Rooms", rooms), ("Heavy dependencies", &turned(heavy))] {
        for (name, dependencies) in allowed {
            let Some(there) = graph.get(name) else { continue };
            for dependency in dependencies.difference(there) {
                complaints.push(format!("ARCHITECTURE.md, {table}: {name} may name {dependency}, and does not"));
            }
        }
    }
    for name in rooms.keys().filter(|name| !graph.contains_key(*name)) {
        complaints.push(format!("ARCHITECTURE.md: {name} has a row but is no crate"));
    }
    complaints.extend(cycle(rooms).map(|name| format!("ARCHITECTURE.md: the rooms form a cycle through {name}")));
    complaints
}

/// By who may name them instead of by what they are.
fn turned(heavy: &Graph) -> Graph {
    let mut turned = Graph::new();
    for (dependency, owners) in heavy {
        for owner in owners {
            turned.entry(owner.clone()).or_default().insert(dependency.clone());
        }
    }
    turned
}

/// Dependencies among ours that no source of the crate names.
fn unused(root: &Path, graph: &Graph) -> anyhow::Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for (name, dependencies) in graph {
        let mut text = String::new();
        for path in rust_files(&root.join("crates").join(name).join("src"))? {
            text.push_str(&std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?);
        }
        for dependency in dependencies.iter().filter(|dependency| graph.contains_key(*dependency)) {
            if !has_name(&text, &dependency.replace('-', "_")) {
                complaints.push(format!("crates/{name}/Cargo.toml: names {dependency}, and no source does"));
            }
        }
    }
    Ok(complaints)
}

/// Crates of ours that a source passes on whole.
fn passed_on_whole(root: &Path, graph: &Graph) -> anyhow::Result<Vec<Complaint>> {
    let ours: BTreeSet<String> = graph.keys().map(|name| name.replace('-', "_")).collect();
    let mut complaints = Vec::new();
    for path in rust_files(&root.join("crates"))? {
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        // Most files pass nothing on, and need not be taken apart.
        if !text.contains("pub use ") && !text.contains("pub extern ") {
            continue;
        }
        let file = syn::parse_file(&text).with_context(|| format!("parse {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        complaints.extend(wholes(&file.items, &ours).into_iter().map(|whole| {
            format!("{name}: passes {whole} on whole: who names it there has a room that its manifest does not say; pass names on")
        }));
    }
    Ok(complaints)
}

fn wholes(items: &[Item], ours: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Use(import) if matches!(import.vis, Visibility::Public(_)) => {
                let paths = leaves_of(&import.tree).into_iter().map(|leaf| leaf.path);
                found.extend(paths.filter(|path| path.len() == 1).flatten());
            }
            Item::ExternCrate(import) if matches!(import.vis, Visibility::Public(_)) => {
                found.push(import.ident.to_string());
            }
            Item::Mod(module) => found.extend(module.content.iter().flat_map(|(_, items)| wholes(items, ours))),
            _ => {}
        }
    }
    found.retain(|name| ours.contains(name));
    found
}

/// Whether a whole word is there.
fn has_name(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word))
}

/// A crate that reaches itself, if there is one.
fn cycle(rooms: &Graph) -> Option<&String> {
    rooms.keys().find(|start| {
        let mut reached = BTreeSet::new();
        let mut todo: Vec<&String> = rooms[*start].iter().collect();
        while let Some(next) = todo.pop() {
            if reached.insert(next) {
                todo.extend(rooms.get(next).into_iter().flatten());
            }
        }
        reached.contains(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n\n## Rooms\n\n| crate | may name |\n|---|---|\n| `a` | – | x |\n| `b` | `a` | y |\n\n## Heavy dependencies\n| `big` | `b` | z |\n";

    fn graph_of(edges: &[(&str, &[&str])]) -> Graph {
        edges.iter().map(|(n, d)| (n.to_string(), d.iter().map(|d| d.to_string()).collect())).collect()
    }

    fn complaints(edges: &[(&str, &[&str])]) -> Vec<Complaint> {
        compare(&table(PAGE, "Rooms").unwrap(), &table(PAGE, "Heavy dependencies").unwrap(), &graph_of(edges))
    }

    #[test]
    fn what_the_table_allows_passes() {
        assert_eq!(complaints(&[("a", &["small"]), ("b", &["a", "big"])]), Vec::<Complaint>::new());
    }

    #[test]
    fn what_is_allowed_and_not_done_is_named() {
        let found = complaints(&[("a", &[]), ("b", &["small"])]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("b may name a") && found[1].contains("b may name big"), "{found:?}");
        assert!(has_name("use tarn_rows::X;", "tarn_rows") && !has_name("use tarn_rows_more::X;", "tarn_rows"));
    }

    #[test]
    fn a_crate_that_is_passed_on_whole_is_named() {
        let ours = BTreeSet::from(["tarn_feed".to_owned()]);
        let of = |text: &str| wholes(&syn::parse_file(text).unwrap().items, &ours);
        for text in [
            "pub use tarn_feed;",
            "pub use tarn_feed as feed;",
            "pub use tarn_feed::*;",
            "pub use tarn_feed::{self, Frozen};",
            "pub extern crate tarn_feed;",
            "mod feed { pub use tarn_feed; }",
        ] {
            assert_eq!(of(text), ["tarn_feed"], "{text}");
        }
        for text in ["pub use tarn_feed::{Frozen, Error as FeedError};", "use tarn_feed::*;", "pub use arrow;"] {
            assert!(of(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_forbidden_name_a_stolen_heavy_crate_and_a_stranger_are_named() {
        let found = complaints(&[("a", &["b", "big"]), ("b", &["a", "big"]), ("c", &[])]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("names b") && found[1].contains("names big") && found[2].starts_with("c:"));
    }

    #[test]
    fn a_cycle_of_rooms_is_found() {
        assert!(cycle(&graph_of(&[("a", &["b"]), ("b", &["a"])])).is_some());
        assert!(cycle(&graph_of(&[("a", &[]), ("b", &["a"])])).is_none());
    }
}
