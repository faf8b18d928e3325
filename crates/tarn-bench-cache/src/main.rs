//! What does the page cache bring and cost, by itself? Prints its figures; progress goes to standard error.
//!
//! - `hits`: reads that the folder or memory answers, beside sequential reads of one file of the same size in the same
//!   rounds.
//! - `cold`: the columns of TPC-H queries of lineitem, over a store that is 30 ms and 80 MB/s away, by page size.
//! - `shared`: what 64 readers of 8 objects fetch, and what a scan leaves of what was hot.

mod cold;
mod hits;
mod remote;
mod report;
mod shared;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use serde_json::json;

use crate::report::Report;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The page cache: its hit path beside plain reads of a file, cold reads by page size, and what many readers share
#[derive(Debug, Parser)]
struct Arguments {
    /// MiB that the hit path reads
    #[arg(long, default_value_t = 256)]
    hit_mb: u64,
    /// Sizes of pages that the hit path has
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,4096", value_name = "KIB,…")]
    pages_kib: Vec<u64>,
    /// Sizes of its reads
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,4096,8192", value_name = "KIB,…")]
    reads_kib: Vec<u64>,
    /// Rounds; medians are reported, with the least and the most
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Scale factor of lineitem: 1 is 6 million rows
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Time of each request to the store that is far away, before its first byte
    #[arg(long, default_value_t = 30)]
    latency_ms: u64,
    /// MB/s of all its requests together
    #[arg(long, default_value_t = 80)]
    bandwidth_mb: u64,
    /// Where the folders are; on the disk that is measured [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    /// Only these: hits, cold, shared
    #[arg(long, value_delimiter = ',', value_name = "PART,…")]
    only: Vec<String>,
    /// Small sizes: whether it runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let start = Instant::now();
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.hit_mb, arguments.rounds, arguments.sf) = (16, 1, 0.05);
        (arguments.latency_ms, arguments.bandwidth_mb) = (1, 8_000);
    }
    let progress = |what: &str| eprintln!("{:6.1} s  {what}", start.elapsed().as_secs_f64());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let scratch = match &arguments.scratch {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let wanted = |part: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == part);
    let mut report = Report::new();
    report.parameter("hit_mb", json!(arguments.hit_mb));
    report.parameter("rounds", json!(arguments.rounds));
    report.parameter("sf", json!(arguments.sf));
    report.parameter("latency_ms", json!(arguments.latency_ms));
    report.parameter("bandwidth_mb_s", json!(arguments.bandwidth_mb));
    if wanted("hits") {
        let sizes = hits::Sizes {
            bytes: arguments.hit_mb << 20,
            pages_kib: &arguments.pages_kib,
            reads_kib: &arguments.reads_kib,
            rounds: arguments.rounds,
        };
        runtime.block_on(hits::run(scratch.path(), &sizes, &mut report, &progress))?;
    }
    if wanted("cold") {
        let link = remote::Link {
            latency: Duration::from_millis(arguments.latency_ms),
            bytes_per_second: arguments.bandwidth_mb * 1_000_000,
        };
        runtime.block_on(cold::run(arguments.sf, link, arguments.rounds.min(3), &mut report, &progress))?;
    }
    if wanted("shared") {
        runtime.block_on(shared::run(&mut report, &progress))?;
    }
    let mut out = std::io::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?
    } else {
        write!(out, "{report}")?
    }
    Ok(())
}
