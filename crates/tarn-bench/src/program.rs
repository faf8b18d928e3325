//! Benches that are programs of their own: `tarn-bench raftlog` and `tarn-bench cache`.
//!
//! What the log store is compared with has no place in this workspace, so that bench is built from one of its own by
//! its make target; the cache's has the server's allocator. This hands it the arguments and lets it speak.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs `tarn-bench-<bench>` beside this program with `arguments`; its output is the bench's.
pub fn run(bench: &str, arguments: &[OsString]) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name(format!("tarn-bench-{bench}"));
    let status = Command::new(&program)
        .args(arguments)
        .status()
        .with_context(|| format!("start {} (make bench-{bench} builds it)", program.display()))?;
    ensure!(status.success(), "{}: {status}", program.display());
    Ok(())
}
