//! `tarn-bench raftlog`: the log store beside raft-engine, RocksDB and Badger.
//!
//! The engines compared with have no place in this workspace, so the bench is a program of its own (`bench/raftlog`, built by
//! `make bench-raftlog`); this hands it the arguments and lets it speak.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs the program beside this one with `arguments`; its output is the bench's.
pub fn run(arguments: &[OsString]) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name("tarn-bench-raftlog");
    let status = Command::new(&program)
        .args(arguments)
        .status()
        .with_context(|| format!("start {} (make bench-raftlog builds it)", program.display()))?;
    ensure!(status.success(), "{}: {status}", program.display());
    Ok(())
}
