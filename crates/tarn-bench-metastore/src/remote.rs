//! What do the backends behind a network do in which time?
//!
//! The newest hour is put in whole. Of the others a store gets what a search reads and little else ([`Extent`]): whole,
//! 50,000 filters are 13 GB, and twice that while Cassandra compacts. A search of 50,000 blocks then reads as many rows
//! of the same size as it would of whole ones.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use tarn_metastore::{Metastore, MetastoreExt, Probe, Remote};
use tarn_metastore_cql::Cql;
use tarn_metastore_postgres::Postgres;
use tarn_types::{FileId, ManualClock};

use crate::embedded::Cold;
use crate::measure::{self, ms};
use crate::reads::{self, ReadStats, list};
use crate::workload::{self, Extent, WorkloadSize, blocks, clauses};
use crate::writes::{Commits, Pace, tidy, write};

/// Blocks that are put in by one commit, as attaching an archive does.
const COMMIT_BLOCKS: u64 = 16;

/// All that was measured of it.
#[derive(Debug, Serialize)]
pub struct RemoteReport {
    /// What the hours before the newest are made of.
    pub other_hours: String,
    /// Rows of blocks without metadata, one a commit, 32 writers.
    pub commits: Commits,
    /// The newest hour, 16 blocks a commit, 8 writers.
    pub full_bloom_commits: Commits,
    pub full_blooms_blocks_per_s: f64,
    pub reads: ReadStats,
    /// A new process of ours; the server goes on.
    pub cold: Cold,
    /// Of the server's folder, if it is known.
    pub bytes_on_disk: Option<u64>,
    pub rss_bytes: u64,
}

/// By the scheme of the URL.
pub async fn connect(url: &str) -> Result<Arc<dyn Metastore>> {
    let remote = Remote { timeout_ms: 120_000, ..Remote::new(url) };
    let (clock, runtime) = (Arc::new(ManualClock::new(0)), tokio::runtime::Handle::current());
    match url.split(':').next() {
        Some("postgres" | "postgresql") => Ok(Arc::new(Postgres::connect(&remote, clock, &runtime).await?)),
        Some("cql") => Ok(Arc::new(Cql::connect(&remote, clock, &runtime).await?)),
        _ => bail!("no backend is for {url}: postgres://user@host/database or cql://host:port"),
    }
}

/// In a process of its own, timed from its first line.
pub async fn cold(url: &str, start: Instant) -> Result<Cold> {
    let metastore = connect(url).await?;
    let open_ms = ms(start.elapsed());
    let Some(table) = metastore.tables().await?.into_iter().find(|table| table.name == "blocks") else {
        bail!("there is no table of blocks")
    };
    let hours = list(&*metastore, table.id, reads::EVERY).await?;
    let probed = metastore.probe(table.id, Probe { hours, clauses: clauses() }).await?;
    let total_ms = ms(start.elapsed());
    Ok(Cold { open_ms, total_ms, rss_bytes: measure::memory_bytes("VmRSS")?, kept: probed.kept.len() })
}

fn cold_process(url: &str) -> Result<Cold> {
    let out = Command::new(std::env::current_exe()?).arg("--cold-url").arg(url).output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// What is asked of a server.
#[derive(Clone, Copy)]
pub struct Work {
    pub size: WorkloadSize,
    /// What hours before the newest get.
    pub others: Extent,
    /// Of each kind of read.
    pub calls: usize,
    /// Commits of one row.
    pub n_commits: u64,
}

/// `dir`: the server's, if it is known.
pub async fn run(name: &str, url: &str, dir: Option<&Path>, work: Work, say: &dyn Fn(&str)) -> Result<RemoteReport> {
    let Work { size, others, calls, n_commits } = work;
    let metastore = connect(url).await?;
    say(&format!("{name}: commits of rows"));
    let rows = metastore.create_table(workload::schema("rows")).await?.id;
    let first = metastore.allocate_files(n_commits).await?;
    let pace = Pace { writers: 32, commits: n_commits, blocks_per_commit: 1, per_s: None };
    let commits = write(&metastore, rows, first, pace, move |number, id| blocks(number, id, 1, &size, None)).await?;
    metastore.drop_table("rows").await?;

    let table = metastore.create_table(workload::schema("blocks")).await?.id;
    let first = metastore.allocate_files(size.blocks).await?;
    let whole = size.hour_blocks.min(size.blocks);
    let before = size.blocks - whole;
    say(&format!("{name}: {before} blocks with what is asked for"));
    let of = |range: Range<u64>, extent| {
        move |number: u64, id: FileId| {
            let at = range.start + number;
            blocks(at, id, COMMIT_BLOCKS.min(range.end - at), &size, Some(extent))
        }
    };
    let pace = |blocks: u64| Pace {
        writers: 8,
        commits: blocks.div_ceil(COMMIT_BLOCKS),
        blocks_per_commit: COMMIT_BLOCKS,
        per_s: None,
    };
    write(&metastore, table, first, pace(before), of(0..before, others)).await?;
    tidy(&*metastore).await?;
    say(&format!("{name}: {whole} blocks with full blooms"));
    let start = Instant::now();
    let full = of(before..size.blocks, Extent::Whole);
    let full_bloom_commits = write(&metastore, table, FileId(first.0 + before), pace(whole), full).await?;
    tidy(&*metastore).await?;
    let full_blooms_blocks_per_s = whole as f64 / start.elapsed().as_secs_f64();

    say(&format!("{name}: reads"));
    let reads = reads::reads(&*metastore, table, &size, calls).await?;
    let rss_bytes = measure::memory_bytes("VmRSS")?;
    drop(metastore);
    let cold = cold_process(url)?;
    let bytes_on_disk = dir.map(measure::bytes_on_disk).transpose()?;
    let other_hours = match others {
        Extent::Slots => "64 chunks of each filter, those asked for among them; the columns asked for",
        Extent::Small => "filters of 64 chunks; the columns asked for",
        Extent::Whole | Extent::Columns => "as the newest",
    };
    let other_hours = other_hours.to_owned();
    let report = RemoteReport {
        other_hours,
        commits,
        full_bloom_commits,
        full_blooms_blocks_per_s,
        reads,
        cold,
        bytes_on_disk,
        rss_bytes,
    };
    Ok(report)
}
