//! What does the embedded backend do in which time?

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tarn_metastore::{At, Embedded, HourBlocks, Metastore, MetastoreExt, Probe, Wanted, hour_blocks};
use tarn_types::{ColumnId, FileId, ManualClock, TableId};
use tokio::task::JoinSet;

use crate::measure::{self, Latency, ms};
use crate::workload::{self, Size, append, clauses, details, file, of_hours};

const UPKEEP_BYTES: u64 = 64 << 20;

/// Commits a second that are to be kept up.
const PER_S: u64 = 10_000;

/// A commit of one block's row, in the log.
const ROW_BYTES: usize = 220;

#[derive(Debug, Serialize)]
pub struct Commits {
    pub per_s: f64,
    pub latency: Latency,
}

#[derive(Debug, Serialize)]
pub struct Asked {
    pub blocks: u64,
    pub latency: Latency,
    pub bytes_read: u64,
}

/// What a process that finds nothing in memory says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cold {
    pub open_ms: f64,
    pub total_ms: f64,
    pub rss_bytes: u64,
    pub kept: u64,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub fdatasync: Latency,
    /// As the paced commits, without a metastore.
    pub fdatasync_paced: Latency,
    /// Rows of blocks without details: as fast as it goes, and 10,000 a second.
    pub commits: Commits,
    pub commits_paced: Commits,
    /// With the metadata of all columns, no filter.
    pub commits_with_columns: Commits,
    pub full_bloom_commits: Commits,
    /// Until upkeep has nothing to do.
    pub full_blooms_blocks_per_s: f64,
    pub list_hour: Latency,
    pub list_day: Latency,
    pub probe_hour: Asked,
    pub probe_all: Asked,
    pub columns_hour: Asked,
    pub columns_all: Asked,
    pub cold: Cold,
    pub crash_open_ms: f64,
    pub bytes_on_disk: u64,
    pub rss_bytes: u64,
    pub peak_rss_bytes: u64,
    pub packs: u64,
}

fn open(dir: &Path) -> Result<Arc<Embedded>> {
    Ok(Arc::new(Embedded::open(dir, Arc::new(ManualClock::new(0)))?.0))
}

/// So many writers, each with one commit under way, with `upkeep` beside them.
async fn write(
    metastore: &Arc<Embedded>,
    writers: u64,
    first: FileId,
    n: u64,
    per_s: Option<u64>,
    table: TableId,
    make: impl Fn(u64, FileId) -> tarn_metastore::Commit + Clone + Send + 'static,
) -> Result<Commits> {
    let (next, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let upkeep = tokio::spawn({
        let (metastore, is_over) = (metastore.clone(), is_over.clone());
        async move {
            while !is_over.load(Ordering::Relaxed) {
                let done = metastore.upkeep(UPKEEP_BYTES).await?;
                if !done.more {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            anyhow::Ok(())
        }
    });
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..writers {
        let (metastore, next, make) = (metastore.clone(), next.clone(), make.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= n {
                    return anyhow::Ok(times);
                }
                let commit = make(number, FileId(first.0 + number));
                let mut begun = Instant::now();
                if let Some(per_s) = per_s {
                    let due = start + Duration::from_nanos(number * 1_000_000_000 / per_s);
                    // A stall counts for all that it holds up: who comes late began when it was due. A timer that fires late is
                    // none.
                    if begun < due {
                        tokio::time::sleep_until(due.into()).await;
                        begun = Instant::now();
                    } else {
                        begun = due;
                    }
                }
                metastore.commit(table, commit).await?;
                times.push(begun.elapsed());
            }
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    let took = start.elapsed();
    is_over.store(true, Ordering::Relaxed);
    upkeep.await??;
    Ok(Commits { per_s: n as f64 / took.as_secs_f64(), latency: Latency::of(times) })
}

async fn tidy(metastore: &Embedded) -> Result<()> {
    while metastore.upkeep(UPKEEP_BYTES).await?.more {}
    Ok(())
}

/// Commits of rows alone, in a store of their own.
async fn commits(dir: &Path, size: &Size, n: u64) -> Result<[Commits; 3]> {
    let metastore = open(dir)?;
    let table = metastore.create_table(workload::schema("rows")).await?.id;
    let make = |number, id| append(file(id, workload::FIRST_HOUR + (number / 2_000) as i64, number), None);
    let first = metastore.allocate_files(size.blocks + 4 * n).await?;
    // Upon as many files as there are in the end.
    let whole = size.blocks.min(50_000);
    write(&metastore, 64, first, whole, None, table, make).await?;
    let first = FileId(first.0 + whole);
    let paced = write(&metastore, 32, first, 2 * n, Some(PER_S), table, make).await?;
    let first = FileId(first.0 + 2 * n);
    let free = write(&metastore, 32, first, n, None, table, make).await?;
    let first = FileId(first.0 + n);
    let of_size = *size;
    let with_columns =
        move |number, id| append(file(id, workload::FIRST_HOUR, number), Some(details(number, &of_size, 0)));
    let with_columns = write(&metastore, 32, first, n / 4, None, table, with_columns).await?;
    Ok([free, paced, with_columns])
}

async fn timed<T>(calls: usize, mut call: impl AsyncFnMut() -> Result<T>) -> Result<(Latency, T)> {
    let mut last = call().await?;
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        last = call().await?;
        times.push(start.elapsed());
    }
    Ok((Latency::of(times), last))
}

/// What a search does first: the version, and of its files those of the last hours.
async fn list(metastore: &Embedded, table: TableId, hours: i64) -> Result<Vec<HourBlocks>> {
    let version = metastore.snapshot(table, At::Latest).await?;
    let newest = version.files.iter().map(|file| file.hour).max().unwrap_or(0);
    Ok(hour_blocks(version.files.iter().filter(|file| file.hour > newest - hours)))
}

async fn probe(metastore: &Embedded, table: TableId, hours: i64, asked: u64, calls: usize) -> Result<Asked> {
    let (latency, probed) = timed(calls, async || {
        let hours = list(metastore, table, hours).await?;
        Ok(metastore.probe(table, Probe { hours, clauses: clauses() }).await?)
    })
    .await?;
    ensure!(probed.kept.len() >= 3 && probed.kept.len() < asked / 20 + 10, "{} blocks kept", probed.kept.len());
    Ok(Asked { blocks: asked, latency, bytes_read: probed.bytes_read })
}

async fn columns(metastore: &Embedded, table: TableId, hours: &[HourBlocks], of: u32, calls: usize) -> Result<Asked> {
    let columns: Vec<_> = (0..10).map(|n| ColumnId(1 + n * (of / 10))).collect();
    let blocks: u64 = hours.iter().map(|of| of.blocks.len() as u64).sum();
    let (latency, found) = timed(calls, async || {
        let columns = Some(columns.clone());
        let wanted = Wanted { hours: hours.to_vec(), columns, stats: true, chunks: true, blooms: false };
        Ok(metastore.details(table, wanted).await?)
    })
    .await?;
    ensure!(found.columns.iter().all(|column| column.blocks.len() as u64 == blocks), "columns are missing");
    Ok(Asked { blocks, latency, bytes_read: found.bytes_read })
}

/// In a process of its own, timed from its first line.
pub async fn cold(dir: &Path, start: Instant) -> Result<Cold> {
    let metastore = open(dir)?;
    let open_ms = ms(start.elapsed());
    let table = metastore.tables().await?[0].id;
    let hours = list(&metastore, table, i64::MAX / 2).await?;
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

pub async fn run(dir: &Path, size: Size, calls: usize, n_commits: u64, say: &dyn Fn(&str)) -> Result<Report> {
    let fdatasync = measure::fdatasync(dir, calls * 10)?;
    let fdatasync_paced = measure::paced_fdatasync(dir, PER_S, n_commits / 2, ROW_BYTES)?;
    say(&format!("fdatasync {fdatasync:?}, paced {fdatasync_paced:?}"));
    say("commits of rows");
    let [commits, commits_paced, commits_with_columns] = commits(&dir.join("rows"), &size, n_commits).await?;
    std::fs::remove_dir_all(dir.join("rows"))?;
    say(&format!("commits {commits:?}\n paced {commits_paced:?}\n with columns {commits_with_columns:?}"));
    if std::env::var_os("ONLY").is_some() { anyhow::bail!("only") }

    say("blocks with full blooms");
    let dir = dir.join("blocks");
    let metastore = open(&dir)?;
    let table = metastore.create_table(workload::schema("blocks")).await?.id;
    let first = metastore.allocate_files(size.blocks).await?;
    let make = move |number, id| append(file(id, size.hour(number), number), Some(details(number, &size, size.chunks)));
    let start = Instant::now();
    let full_bloom_commits = write(&metastore, 8, first, size.blocks, None, table, make).await?;
    tidy(&metastore).await?;
    let full_blooms_blocks_per_s = size.blocks as f64 / start.elapsed().as_secs_f64();

    say("reads");
    let (list_hour, _) = timed(calls, async || list(&metastore, table, 1).await).await?;
    let (list_day, all) = timed(calls, async || list(&metastore, table, 24).await).await?;
    let every = i64::MAX / 2;
    let probe_hour = probe(&metastore, table, 1, size.hour_blocks, calls).await?;
    let probe_all = probe(&metastore, table, every, size.blocks, calls).await?;
    let columns_hour = columns(&metastore, table, &of_hours(&all, 1), size.columns, calls).await?;
    let whole = list(&metastore, table, every).await?;
    let columns_all = columns(&metastore, table, &whole, size.columns, calls.div_ceil(4)).await?;
    let stats = metastore.stats().await?;
    drop(metastore);
    let bytes_on_disk = measure::bytes_on_disk(&dir)?;

    say("a cold process");
    let mut colds = Vec::new();
    for _ in 0..5 {
        colds.push(cold_process(&dir)?);
    }
    colds.sort_by(|a, b| a.total_ms.total_cmp(&b.total_ms));
    let cold = colds.swap_remove(2);
    // As a process that dies leaves it: with a log behind the checkpoint.
    let metastore = open(&dir)?;
    let more = metastore.allocate_files(2_000).await?;
    let make = move |number, id| append(file(id, size.hour(size.blocks - 1), number), Some(details(number, &size, 0)));
    write(&metastore, 32, more, 200, None, table, make).await?;
    drop(metastore);
    let crash_open_ms = cold_process(&dir)?.open_ms;
    Ok(Report {
        fdatasync,
        fdatasync_paced,
        commits,
        commits_paced,
        commits_with_columns,
        full_bloom_commits,
        full_blooms_blocks_per_s,
        list_hour,
        list_day,
        probe_hour,
        probe_all,
        columns_hour,
        columns_all,
        cold,
        crash_open_ms,
        bytes_on_disk,
        rss_bytes: measure::memory_bytes("VmRSS")?,
        peak_rss_bytes: measure::memory_bytes("VmHWM")?,
        packs: stats.packs,
    })
}
