//! Is what a list of ARCHITECTURE.md tells of files what they have? Both ways: what is not told, and what is not done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use proc_macro2::TokenStream;
use quote::ToTokens;

use crate::Complaint;
use crate::circles::production;
use crate::sources::is_test_file;

/// Of files, by their names below `crates`.
pub type OfFiles = BTreeMap<String, BTreeSet<String>>;

/// What `collect` finds in each of the files that are no tests, tests within them left out. Files without any are not
/// there.
pub fn found_in(
    crates: &Path,
    files: impl IntoIterator<Item = PathBuf>,
    collect: fn(TokenStream, &mut BTreeSet<String>),
) -> anyhow::Result<OfFiles> {
    let mut all = OfFiles::new();
    for path in files {
        let name = path.strip_prefix(crates).unwrap_or(&path).display().to_string();
        if is_test_file(&name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let file = syn::parse_file(&text).with_context(|| format!("parse {}", path.display()))?;
        let mut found = BTreeSet::new();
        production(&file).for_each(|item| collect(item.to_token_stream(), &mut found));
        if !found.is_empty() {
            all.insert(name, found);
        }
    }
    Ok(all)
}

/// A complaint for each thing that a file has and nobody told, and for each that was told and is not there. Both are
/// given the file's name and the thing.
pub fn compare(
    told: &OfFiles,
    found: &OfFiles,
    untold: impl Fn(&str, &str) -> Complaint,
    gone: impl Fn(&str, &str) -> Complaint,
) -> Vec<Complaint> {
    let none = BTreeSet::new();
    let names: BTreeSet<&String> = told.keys().chain(found.keys()).collect();
    let mut complaints = Vec::new();
    for name in names {
        let (told, found) = (told.get(name).unwrap_or(&none), found.get(name).unwrap_or(&none));
        complaints.extend(found.difference(told).map(|what| untold(name, what)));
        complaints.extend(told.difference(found).map(|what| gone(name, what)));
    }
    complaints
}
