//! Does the name of a type say which type it is? A word that stands for many things says nothing at the place where it
//! is read, and who searches for it finds all the others.
//!
//! Types are structs, enums, unions, traits and aliases that stand in a module, those of tests and of macro calls
//! (`settings! { … }`) included. What stands in a function is read where it stands, and does not count; nor do
//! associated types.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::Item;

use crate::Complaint;
use crate::sources::rust_files;

/// Where the sources of the workspace, of the benches beside it and of the fuzz targets are.
const FOLDERS: [&str; 3] = ["crates", "bench", "fuzz"];

/// For how many things a name may stand.
const MOST: usize = 3;

/// Names of which each module, or crate, has its own, as everybody who reads Rust expects: the module says which.
const EXEMPT: [&str; 21] = [
    "Column", "Engine", "Entry", "Error", "Group", "Input", "Item", "Job", "Key", "Kind", "Options", "Queue", "Reader",
    "Record", "Report", "Result", "Row", "Rows", "Session", "State", "Table",
];

/// The files that define a type of a name, as often as they do.
type Places = BTreeMap<String, Vec<String>>;

/// A complaint for each name that stands for too many types.
pub fn check(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    let mut places = Places::new();
    for folder in FOLDERS {
        for path in rust_files(&root.join(folder))? {
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let file = syn::parse_file(&text).with_context(|| format!("parse {}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            defined_in(&file.items, &name, &mut places);
        }
    }
    Ok(complaints(&places))
}

fn complaints(places: &Places) -> Vec<Complaint> {
    let too_many = places.iter().filter(|(name, files)| files.len() > MOST && !EXEMPT.contains(&name.as_str()));
    too_many
        .map(|(name, files)| {
            let n_types = files.len();
            let files = files.join(", ");
            format!(
                "{files}: {n_types} types are named {name}, {MOST} may be: name each after what it is (GLOSSARY.md)"
            )
        })
        .collect()
}

/// Adds the types of a module and of those that stand in it.
fn defined_in(items: &[Item], file: &str, places: &mut Places) {
    let mut add = |ident: &Ident| places.entry(ident.to_string()).or_default().push(file.to_owned());
    for item in items {
        match item {
            Item::Enum(item) => add(&item.ident),
            Item::Struct(item) => add(&item.ident),
            Item::Trait(item) => add(&item.ident),
            Item::TraitAlias(item) => add(&item.ident),
            Item::Type(item) => add(&item.ident),
            Item::Union(item) => add(&item.ident),
            // A macro that is defined gives its types names where it is called.
            Item::Macro(call) if call.ident.is_none() => called_with(call.mac.tokens.clone()).iter().for_each(&mut add),
            _ => {}
        }
    }
    for item in items {
        if let Item::Mod(module) = item
            && let Some((_, items)) = &module.content
        {
            defined_in(items, file, places);
        }
    }
}

/// The types that a macro is called with, at the outermost level: what is deeper may be the body of a function.
fn called_with(tokens: TokenStream) -> Vec<Ident> {
    let mut found = Vec::new();
    let mut is_type = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if is_type => {
                found.push(ident);
                is_type = false;
            }
            TokenTree::Ident(ident) => {
                is_type = ["enum", "struct", "trait", "type", "union"].iter().any(|of| ident == of)
            }
            _ => is_type = false,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<Complaint> {
        let mut places = Places::new();
        for (name, text) in files {
            defined_in(&syn::parse_file(text).unwrap().items, name, &mut places);
        }
        complaints(&places)
    }

    #[test]
    fn a_name_of_four_types_is_told_with_their_places() {
        let three = [("a.rs", "struct Known;"), ("b.rs", "pub enum Known { A }"), ("c.rs", "type Known = u8;")];
        assert_eq!(of(&three), Vec::<Complaint>::new());
        for more in [
            "pub(crate) trait Known {}",
            "#[cfg(test)] mod tests { mod deeper { struct Known; } }",
            "settings! { /// All.\n pub struct Known { a: bool = \"false\", switch, \"a\"; } }",
        ] {
            let found = of(&[&three[..], &[("d.rs", more)]].concat());
            assert!(
                found.len() == 1 && found[0].starts_with("a.rs, b.rs, c.rs, d.rs: 4 types are named Known"),
                "{more}: {found:?}"
            );
        }
        let of_one_file =
            of(&[("a.rs", "struct Part; mod a { struct Part; } mod b { struct Part; } mod c { struct Part; }")]);
        assert_eq!(of_one_file.len(), 1);
    }

    #[test]
    fn what_is_expected_everywhere_and_what_is_no_type_of_a_module_is_not_told() {
        let all = |text: &str| of(&["a.rs", "b.rs", "c.rs", "d.rs"].map(|name| (name, text)));
        assert!(all("pub enum Error {} pub type Result<T> = std::result::Result<T, Error>;").is_empty());
        assert!(
            all("fn f() { struct Found; } impl T for u8 { type Found = u8; } trait Item { type Found; }").is_empty()
        );
        assert!(all("enum Kind { Found } fn f<Found>() {} use a::Found;").is_empty());
        assert!(all("macro_rules! of { ($name:ident) => { struct $name; } }").is_empty());
        assert!(all("proptest! { fn f(a in 0..9) { struct Found; } }").is_empty());
    }
}
