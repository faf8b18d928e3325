//! Is the repository tidy? Reads ARCHITECTURE.md, the manifests and the sources, and names every place that breaks a
//! rule.
//!
//! `cargo test --workspace` runs the same checks as a test; `make tidy` prints them without building anything else.

mod circles;
mod door;
mod features;
mod rooms;
mod sources;
mod tasks;
mod told;
mod type_names;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A rule that is broken, as one line for a reader: where, what, and what to do about it.
pub type Complaint = String;

fn main() -> ExitCode {
    let complaints = match tidy(&root()) {
        Ok(complaints) => complaints,
        Err(error) => vec![format!("xtask: {error:#}")],
    };
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every complaint about the repository at `root`.
fn tidy(root: &Path) -> anyhow::Result<Vec<Complaint>> {
    let mut complaints = rooms::check(root)?;
    complaints.extend(sources::check(root)?);
    complaints.extend(circles::check(root)?);
    complaints.extend(tasks::check(root)?);
    complaints.extend(door::check(root)?);
    complaints.extend(features::check(root)?);
    complaints.extend(type_names::check(root)?);
    Ok(complaints)
}

/// The repository: two floors above this crate.
fn root() -> PathBuf {
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_else(|| PathBuf::from("crates/xtask"));
    here.ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        let complaints = super::tidy(&super::root()).unwrap();
        assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
    }
}
