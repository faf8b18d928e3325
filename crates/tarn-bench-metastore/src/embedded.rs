//! What does the embedded backend do in which time?

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tarn_metastore::{Embedded, Metastore, MetastoreExt, Probe};
use tarn_types::{FileId, ManualClock};

use crate::measure::{self, Latency, ms};
use crate::reads::{self, QueryStats, ReadStats, list};
use crate::workload::{self, Extent, WorkloadSize, asked_columns, blocks, clauses};
use crate::writes::{Commits, Pace, tidy, write};

/// Commits a second that are to be kept up.
const PER_S: u64 = 10_000;

/// A commit of one block's row, in the log.
const ROW_BYTES: usize = 220;

/// What a process that finds nothing in memory says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cold {
    pub open_ms: f64,
    pub total_ms: f64,
    pub rss_bytes: u64,
    pub kept: u64,
}

/// All that was measured of it.
#[derive(Debug, Serialize)]
pub struct EmbeddedReport {
    pub fdatasync: Latency,
    /// As the paced commits, without a metastore: the least that the disk allows.
    pub fdatasync_paced: Latency,
    /// Rows of blocks without metadata: 10,000 a second, and as fast as it goes.
    pub commits_paced: Commits,
    pub commits: Commits,
    /// With the metadata of all columns, no filter.
    pub commits_with_columns: Commits,
    pub full_bloom_commits: Commits,
    /// Until maintenance has nothing to do.
    pub full_blooms_blocks_per_s: f64,
    pub reads: ReadStats,
    pub cold: Cold,
    pub crash_open_ms: f64,
    /// Ten of 20,000 columns.
    pub wide_columns: QueryStats,
    pub bytes_on_disk: u64,
    pub rss_bytes: u64,
    pub peak_rss_bytes: u64,
    pub packs: u64,
}

fn open(dir: &Path) -> Result<Arc<dyn Metastore>> {
    Ok(Arc::new(Embedded::open(dir, Arc::new(ManualClock::new(0)))?.0))
}

/// Commits of rows alone, in a store of their own: paced, free, and with columns.
async fn commits(dir: &Path, size: &WorkloadSize, n: u64) -> Result<[Commits; 3]> {
    let metastore = open(dir)?;
    let table = metastore.create_table(workload::schema("rows")).await?.id;
    let first = metastore.allocate_files(size.blocks + 4 * n).await?;
    let rows = |extent: Option<Extent>| {
        let size = *size;
        move |number: u64, id: FileId| blocks(number, id, 1, &size, extent)
    };
    let free = |writers, commits| Pace { writers, commits, blocks_per_commit: 1, per_s: None };
    // Upon as many files as there are in the end.
    let whole = size.blocks.min(50_000);
    write(&metastore, table, first, free(64, whole), rows(None)).await?;
    let first = FileId(first.0 + whole);
    let paced = Pace { per_s: Some(PER_S), ..free(32, 2 * n) };
    let paced = write(&metastore, table, first, paced, rows(None)).await?;
    let first = FileId(first.0 + 2 * n);
    let fast = write(&metastore, table, first, free(32, n), rows(None)).await?;
    let first = FileId(first.0 + n);
    let with_columns = write(&metastore, table, first, free(32, n / 4), rows(Some(Extent::Columns))).await?;
    Ok([paced, fast, with_columns])
}

/// Ten columns of blocks that have 20,000, packed.
async fn wide(dir: &Path, n_columns: u32, calls: usize) -> Result<QueryStats> {
    let size = WorkloadSize { blocks: 20, hour_blocks: 20, columns: n_columns, chunks: 64 };
    let metastore = open(dir)?;
    let table = metastore.create_table(workload::schema("wide")).await?.id;
    let first = metastore.allocate_files(size.blocks).await?;
    for number in 0..size.blocks {
        let commit = blocks(number, FileId(first.0 + number), 1, &size, Some(Extent::Columns));
        metastore.commit(table, commit).await?;
    }
    tidy(&*metastore).await?;
    let hours = list(&*metastore, table, reads::EVERY).await?;
    reads::block_metadata(&*metastore, table, &hours, &asked_columns(n_columns), true, calls).await
}

/// In a process of its own, timed from its first line.
pub async fn cold(dir: &Path, start: Instant) -> Result<Cold> {
    let metastore = open(dir)?;
    let open_ms = ms(start.elapsed());
    let table = metastore.tables().await?[0].id;
    let hours = list(&*metastore, table, reads::EVERY).await?;
    let probed = metastore.probe(table, Probe { hours, clauses: clauses() }).await?;
    let total_ms = ms(start.elapsed());
    Ok(Cold { open_ms, total_ms, rss_bytes: measure::memory_bytes("VmRSS")?, kept: probed.kept.len() })
}

fn cold_process(dir: &Path) -> Result<Cold> {
    measure::forget_pages(dir)?;
    let out = Command::new(std::env::current_exe()?).arg("--cold").arg(dir).output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// The most that lies on the disk at once: filters and columns, the log that was not deleted yet, packs that are being
/// made one.
pub fn needed_bytes(size: &WorkloadSize) -> u64 {
    let of_block = u64::from(size.chunks) * 32 + u64::from(size.columns) * 90;
    size.blocks * of_block + 2 * size.hour_blocks * of_block + (1 << 30)
}

/// In a new folder, which is deleted by whoever made it.
pub async fn run(
    dir: &Path,
    size: WorkloadSize,
    calls: usize,
    n_commits: u64,
    say: &dyn Fn(&str),
) -> Result<EmbeddedReport> {
    say("embedded: the disk alone");
    let fdatasync = measure::fdatasync(dir, calls * 10)?;
    let fdatasync_paced = measure::paced_fdatasync(dir, PER_S, n_commits, ROW_BYTES)?;
    say("embedded: commits of rows");
    let rows = dir.join("rows");
    let [commits_paced, commits, commits_with_columns] = commits(&rows, &size, n_commits).await?;
    std::fs::remove_dir_all(&rows)?;
    let peak_rss_of_commits = measure::memory_bytes("VmHWM")?;

    say("embedded: 20,000 columns");
    let wide_columns = wide(&dir.join("wide"), if size.blocks < 50_000 { 2_000 } else { 20_000 }, calls).await?;
    std::fs::remove_dir_all(dir.join("wide"))?;

    say(&format!("embedded: {} blocks with full blooms", size.blocks));
    let dir = dir.join("blocks");
    let metastore = open(&dir)?;
    let table = metastore.create_table(workload::schema("blocks")).await?.id;
    let first = metastore.allocate_files(size.blocks).await?;
    let make = move |number, id| blocks(number, id, 1, &size, Some(Extent::Whole));
    let pace = Pace { writers: 8, commits: size.blocks, blocks_per_commit: 1, per_s: None };
    let start = Instant::now();
    let full_bloom_commits = write(&metastore, table, first, pace, make).await?;
    tidy(&*metastore).await?;
    let full_blooms_blocks_per_s = size.blocks as f64 / start.elapsed().as_secs_f64();

    say("embedded: reads");
    let reads = reads::reads(&*metastore, table, &size, calls).await?;
    let stats = metastore.stats().await?;
    let rss_bytes = measure::memory_bytes("VmRSS")?;
    drop(metastore);
    let bytes_on_disk = measure::bytes_on_disk(&dir)?;

    say("embedded: a cold process");
    let mut colds = Vec::new();
    for _ in 0..5 {
        colds.push(cold_process(&dir)?);
    }
    colds.sort_by(|a, b| a.total_ms.total_cmp(&b.total_ms));
    let cold = colds.swap_remove(2);
    // As a process that dies leaves it: with a log behind the checkpoint.
    let metastore = open(&dir)?;
    let more = metastore.allocate_files(2_000).await?;
    let make = move |number, id| blocks(size.blocks - 1 - number, id, 1, &size, Some(Extent::Columns));
    write(&metastore, table, more, Pace { writers: 32, commits: 200, ..pace }, make).await?;
    drop(metastore);
    let crash_open_ms = cold_process(&dir)?.open_ms;
    std::fs::remove_dir_all(&dir)?;
    Ok(EmbeddedReport {
        fdatasync,
        fdatasync_paced,
        commits_paced,
        commits,
        commits_with_columns,
        full_bloom_commits,
        full_blooms_blocks_per_s,
        reads,
        cold,
        crash_open_ms,
        wide_columns,
        bytes_on_disk,
        rss_bytes,
        peak_rss_bytes: peak_rss_of_commits,
        packs: stats.packs,
    })
}
