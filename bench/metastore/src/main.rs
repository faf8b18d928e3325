//! How fast are the metastore's backends under one workload? Prints one JSON object; progress goes to standard error.

mod embedded;
mod measure;
mod workload;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use serde_json::json;

use crate::workload::Size;

#[derive(Debug, Parser)]
struct Args {
    /// Blocks in all, 2,000 an hour.
    #[arg(long, default_value_t = 50_000)]
    blocks: u64,
    /// Chunks of each filter. A probe reads as much whatever their number; fewer need less disk.
    #[arg(long, default_value_t = 8_192)]
    chunks: u32,
    /// 2,000 small blocks in ten hours: whether it runs, not how fast.
    #[arg(long)]
    quick: bool,
    /// Where the stores are; on the disk that is measured.
    #[arg(long, default_value = ".")]
    scratch: PathBuf,
    /// One of: embedded.
    #[arg(long, default_value = "embedded")]
    backend: String,
    /// Opens the store there and asks once.
    #[arg(long, hide = true)]
    cold: Option<PathBuf>,
}

fn main() -> Result<()> {
    let start = Instant::now();
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(dir) = args.cold {
        let cold = runtime.block_on(embedded::cold(&dir, start))?;
        println!("{}", serde_json::to_string(&cold)?);
        return Ok(());
    }
    ensure!(args.backend == "embedded", "backend {} is not known", args.backend);
    let full = Size { blocks: args.blocks, hour_blocks: 2_000, columns: 200, chunks: args.chunks };
    let quick = Size { blocks: 2_000, hour_blocks: 200, columns: 200, chunks: 64 };
    let (size, calls, n_commits) = if args.quick { (quick, 20, 2_000) } else { (full, 200, 100_000) };
    let dir = tempfile::tempdir_in(&args.scratch)?;
    // Blooms, columns, and what is written before the old is deleted.
    let needed = size.blocks * (u64::from(size.chunks) * 32 + u64::from(size.columns) * 80) * 5 / 4 + (2 << 30);
    let free = measure::free_bytes(dir.path())?;
    ensure!(free > needed, "{} GB are free in the scratch folder, {} GB are needed", free >> 30, needed >> 30);
    let report = runtime.block_on(embedded::run(dir.path(), size, calls, n_commits, &|what| {
        eprintln!("{:6.1} s  {what}", start.elapsed().as_secs_f64());
    }))?;
    let commits = &report.commits_paced;
    let columns = &report.columns_hour.latency;
    let out = json!({
        "blocks": size.blocks,
        "hours": size.hours(),
        "chunks": size.chunks,
        "quick": args.quick,
        "bloom_50k_warm_ms": report.probe_all.latency.p50_ms,
        "bloom_50k_cold_ms": report.cold.total_ms,
        "bloom_2k_warm_ms": report.probe_hour.latency.p50_ms,
        "block_writes_per_s": report.commits.per_s,
        "block_writes_paced_per_s": commits.per_s,
        "block_writes_paced_p99_ms": commits.latency.p99_ms,
        "full_blooms_blocks_per_s": report.full_blooms_blocks_per_s,
        "column_metadata_p99_over_p50": columns.p99_ms / columns.p50_ms,
        "embedded": report,
    });
    println!("{}", serde_json::to_string_pretty(&out)?);
    Ok(())
}
