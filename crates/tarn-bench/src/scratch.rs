//! Where do files and servers' folders lie while a bench runs? In a folder of its own, which goes with it.

use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

/// A new folder in `parent`, or in the system's temporary folder.
pub fn scratch(parent: Option<&Path>) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("tarn-bench-");
    Ok(match parent {
        Some(parent) => builder.tempdir_in(parent)?,
        None => builder.tempdir()?,
    })
}
