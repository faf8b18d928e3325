//! Who starts tasks, and who waits? Stores and movers are driven by who calls them: where one of them spawns, sleeps,
//! or waits for a future or a while, ARCHITECTURE.md says so and why (heading "Tasks and waiting").

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::Complaint;
use crate::rooms::table;
use crate::sources::{is_driven, rust_files};
use crate::told::{self, OfFiles};

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
    let crates = root.join("crates");
    let is_driven = |path: &PathBuf| path.strip_prefix(root).is_ok_and(|name| is_driven(&name.display().to_string()));
    let files = rust_files(&crates)?.into_iter().filter(is_driven);
    let found = told::found_in(&crates, files, called_in)?;
    Ok(compare(&table(&page, "Tasks and waiting")?, &found))
}

fn compare(told: &OfFiles, found: &OfFiles) -> Vec<Complaint> {
    let untold = |name: &str, call: &str| {
        format!("crates/{name}: calls {call}: let the caller drive, or say why in ARCHITECTURE.md, Tasks and waiting")
    };
    let gone = |name: &str, call: &str| format!("ARCHITECTURE.md, Tasks and waiting: {name} does not call {call}");
    told::compare(told, found, untold, gone)
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
    use std::collections::BTreeMap;

    use quote::ToTokens;

    use super::*;
    use crate::circles::production;

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
