//! Who starts tasks, and who waits? Stores and movers are driven by who calls them: where one of them spawns, sleeps,
//! or waits for a future or a while, ARCHITECTURE.md says so and why (heading "Tasks and waiting").

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

use crate::Complaint;
use crate::circles::production;
use crate::rooms::table;
use crate::sources::{is_driven, is_test_file, rust_files};

const CALLS: [&str; 15] = [
    "spawn",
    "spawn_blocking",
    "spawn_local",
    "sleep",
    "sleep_until",
    "interval",
    "park",
    "park_timeout",
    "timeout",
    "timeout_at",
    "wait_for",
    "wait_timeout",
    "wait_until",
    "wait_while",
    "recv_timeout",
];

/// A complaint for each call that the page does not have, and for each line of it that is no longer true.
pub fn check(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("read ARCHITECTURE.md")?;
    let mut found = BTreeMap::new();
    let crates = root.join("crates");
    for path in rust_files(&crates)? {
        let name = path.strip_prefix(&crates).unwrap_or(&path).display().to_string();
        if !is_driven(&format!("crates/{name}")) || is_test_file(&name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let file = syn::parse_file(&text).with_context(|| format!("parse {}", path.display()))?;
        let mut calls = BTreeSet::new();
        production(&file).for_each(|item| called_in(item.to_token_stream(), &mut calls));
        if !calls.is_empty() {
            found.insert(name, calls);
        }
    }
    Ok(compare(&table(&page, "Tasks and waiting")?, &found))
}

fn compare(told: &BTreeMap<String, BTreeSet<String>>, found: &BTreeMap<String, BTreeSet<String>>) -> Vec<Complaint> {
    let none = BTreeSet::new();
    let names: BTreeSet<&String> = told.keys().chain(found.keys()).collect();
    let mut complaints = Vec::new();
    for name in names {
        let (told, found) = (told.get(name).unwrap_or(&none), found.get(name).unwrap_or(&none));
        for call in found.difference(told) {
            complaints.push(format!(
                "crates/{name}: calls {call}: let the caller drive, or say why in ARCHITECTURE.md, Tasks and waiting"
            ));
        }
        for call in told.difference(found) {
            complaints.push(format!("ARCHITECTURE.md, Tasks and waiting: {name} does not call {call}"));
        }
    }
    complaints
}

/// Whether a name is one of [`CALLS`], or one of those on a runtime that is named: `spawn_on`, `block_on`.
fn is_call(name: &str) -> bool {
    let on = name.strip_suffix("_on");
    CALLS.contains(&name) || on.is_some_and(|call| call == "block" || CALLS.contains(&call))
}

/// The names that [`is_call`] knows, are followed by arguments, and are no definition.
fn called_in(tokens: TokenStream, calls: &mut BTreeSet<String>) {
    let mut last: Option<String> = None;
    let mut is_definition = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                is_definition = last.as_deref() == Some("fn");
                last = Some(ident.to_string());
            }
            TokenTree::Group(group) => {
                let name = last.take().filter(|name| is_call(name) && !is_definition);
                if group.delimiter() == Delimiter::Parenthesis {
                    calls.extend(name);
                }
                called_in(group.stream(), calls);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => last = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_under_any_name_and_definitions_are_none() {
        let of = |text: &str| {
            let mut calls = BTreeSet::new();
            let file = syn::parse_file(text).unwrap();
            production(&file).for_each(|item| called_in(item.to_token_stream(), &mut calls));
            calls.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of("fn f() { runtime.spawn(async {}); macro_call!(sleep(1)); }"), ["sleep", "spawn"]);
        let waits = "fn f() { runtime.block_on(set.spawn_on(timeout(at_most, work), h)); changed.wait_for(&mut seen, at_most) }";
        assert_eq!(of(waits), ["block_on", "spawn_on", "timeout", "wait_for"]);
        assert!(of("fn f() { cache.is_on(); left.join_on(right); open_on(disk) }").is_empty());
        assert!(of("fn spawn(x: u8) {} fn g() { let sleep = 1; }").is_empty());
        assert!(of("#[cfg(test)] mod tests { fn f() { tokio::spawn(x); } }").is_empty());
    }

    #[test]
    fn what_is_not_told_and_what_is_not_done_are_named() {
        let of = |name: &str| BTreeMap::from([("a.rs".to_owned(), BTreeSet::from([name.to_owned()]))]);
        assert!(compare(&of("spawn"), &of("spawn")).is_empty());
        let found = compare(&of("spawn"), &of("sleep"));
        assert!(found[0].contains("calls sleep") && found[1].contains("does not call spawn"), "{found:?}");
    }
}
