//! `tarn check`: is what is on disk what was written? Reads every byte, changes nothing, names each damage by file and offset.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use tarn_metastore::{At, Embedded, Metastore};

use super::client::runtime;
use super::output::grouped;

/// Read every stored byte and name what is damaged; changes nothing
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn check log ./tarn-data/log
  tarn check metastore ./tarn-data/metastore

Stop the server first: what it is writing at the moment may look torn.")]
pub struct Check {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The log: every segment, record and checksum
    Log { dir: PathBuf },
    /// The metastore: checkpoint, commit log, and that each table's state can be built from them
    Metastore { dir: PathBuf },
}

impl Check {
    pub fn run(self) -> Result<()> {
        match self.what {
            What::Log { dir } => check_log(&dir),
            What::Metastore { dir } => runtime()?.block_on(check_metastore(&dir)),
        }
    }
}

fn must_be_folder(dir: &Path) -> Result<()> {
    ensure!(dir.is_dir(), "{} is not a folder", dir.display());
    Ok(())
}

fn check_log(dir: &Path) -> Result<()> {
    must_be_folder(dir)?;
    let report = tarn_raftlog::RaftLog::verify(dir)?;
    say!(
        "{}: {} segments, {} frames, {} entries, {} bytes read",
        dir.display(),
        grouped(report.n_segments),
        grouped(report.n_batches),
        grouped(report.n_entries),
        grouped(report.bytes_read)
    )?;
    if let Some((path, offset)) = &report.torn_tail {
        say!(
            "{}: ends at byte {offset} in a write that was never acknowledged; the next start cuts it off",
            path.display()
        )?;
    }
    for damage in &report.damages {
        say!("{}, byte {}: {}", damage.path.display(), damage.offset, damage.what)?;
    }
    if !report.damages.is_empty() {
        bail!("{} damaged places", report.damages.len());
    }
    say!("sound")?;
    Ok(())
}

/// Opens a copy, because opening cuts a torn end off.
async fn check_metastore(dir: &Path) -> Result<()> {
    must_be_folder(dir)?;
    let copy = tempfile::tempdir().context("make a temporary folder")?;
    for entry in dir.read_dir()? {
        let path = entry?.path();
        if path.is_file() && path.file_name().is_some_and(|name| name != "lock") {
            std::fs::copy(&path, copy.path().join(path.file_name().unwrap_or_default()))
                .with_context(|| format!("read {}", path.display()))?;
        }
    }
    let (metastore, recovery) = Embedded::open(copy.path(), Arc::new(tarn::clock::SystemClock::default()))
        .with_context(|| dir.display().to_string())?;
    say!("{}: {} records behind the checkpoint", dir.display(), grouped(recovery.records))?;
    if recovery.torn_bytes > 0 {
        say!("the last record ({} bytes) was never acknowledged; the next start cuts it off", recovery.torn_bytes)?;
    }
    for table in metastore.tables().await? {
        let version = metastore.snapshot(table.id, At::Latest).await.with_context(|| table.name.clone())?;
        say!(
            "{}: version {}, {} files, {} live rows",
            table.name,
            version.version,
            version.files.len(),
            grouped(version.live_rows())
        )?;
    }
    say!("sound")?;
    Ok(())
}
