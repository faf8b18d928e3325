//! Who decides beside the door? `tarn-node` asks whether somebody may, in each of its calls. Where what speaks for
//! clients asks by itself, or acts as the node, ARCHITECTURE.md says so and why (heading "Who may").

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::Complaint;
use crate::rooms::table;
use crate::sources::rust_files;
use crate::told::{self, OfFiles};

/// Crates that act for somebody.
const FOR_CLIENTS: [&str; 4] = ["tarn-sql", "tarn-pg", "tarn-http", "tarn"];

/// To ask what somebody may.
const ASKS: &str = "authorize";

/// To be the one who may everything.
const IS_NODE: &str = "Principal::Node";

/// A complaint for each place that the page does not have, and for each line of it that is no longer true.
pub fn check(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("read ARCHITECTURE.md")?;
    let crates = root.join("crates");
    let files = FOR_CLIENTS.iter().map(|name| rust_files(&crates.join(name).join("src")));
    let files = files.collect::<anyhow::Result<Vec<_>>>()?;
    let found = told::found_in(&crates, files.into_iter().flatten(), decided_in)?;
    Ok(compare(&table(&page, "Who may")?, &found))
}

fn compare(told: &OfFiles, found: &OfFiles) -> Vec<Complaint> {
    let untold = |name: &str, what: &str| {
        format!("crates/{name}: {what}: let the door of tarn-node ask, or say why in ARCHITECTURE.md, Who may")
    };
    told::compare(told, found, untold, |name, what| format!("ARCHITECTURE.md, Who may: {name} has no {what}"))
}

/// [`ASKS`] with arguments, and [`IS_NODE`].
fn decided_in(tokens: TokenStream, decides: &mut BTreeSet<String>) {
    let mut before = String::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let is_of_path = before.ends_with("::");
                before = if is_of_path { format!("{before}{ident}") } else { ident.to_string() };
                if before.ends_with(IS_NODE) {
                    decides.insert(IS_NODE.to_owned());
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => before.push(':'),
            TokenTree::Group(group) => {
                let is_call = group.delimiter() == Delimiter::Parenthesis;
                if is_call && before.rsplit(':').next() == Some(ASKS) {
                    decides.insert(ASKS.to_owned());
                }
                before.clear();
                decided_in(group.stream(), decides);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => before.clear(),
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
    fn who_asks_and_who_is_the_node_is_found() {
        let of = |text: &str| {
            let mut decides = BTreeSet::new();
            let file = syn::parse_file(text).unwrap();
            production(&file).for_each(|item| decided_in(item.to_token_stream(), &mut decides));
            decides.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of("fn f() { if authorize(users, who, &a).is_ok() {} }"), [ASKS]);
        assert_eq!(of("fn f() { tarn_node::auth::authorize(users, who, &a) }"), [ASKS]);
        assert_eq!(of("fn f() { vec![drop(&auth::Principal::Node)] }"), [IS_NODE]);
        assert!(of("use tarn_node::auth::authorize::may_see; fn f() { node.may_own(who) }").is_empty());
        assert!(of("fn f() { Principal::Nobody; Principal; Node; reauthorize(x) }").is_empty());
        assert!(of("#[cfg(test)] mod tests { fn f() { authorize(x) } }").is_empty());
    }

    #[test]
    fn what_is_not_told_and_what_is_not_done_are_named() {
        let of = |name: &str| BTreeMap::from([("a.rs".to_owned(), BTreeSet::from([name.to_owned()]))]);
        assert!(compare(&of(ASKS), &of(ASKS)).is_empty());
        let found = compare(&of(IS_NODE), &of(ASKS));
        assert!(found[0].contains("a.rs: authorize") && found[1].contains("no Principal::Node"), "{found:?}");
    }
}
