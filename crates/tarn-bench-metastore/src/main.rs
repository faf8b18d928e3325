//! How fast are the metastore's backends under one workload?
//!
//! `tarn-bench metastore` runs this program; `make bench-metastore` builds it. Progress goes to standard error;
//! `--json` prints one object: bench, parameters, machine, figures, all measurements by backend, failures. Figures are
//! reported, never asserted. What is put in and asked stands at the head of `workload.rs`; what the stores behind a
//! network get less of, at the head of `remote.rs`.

mod embedded;
mod measure;
mod naive;
mod reads;
mod remote;
mod report;
mod services;
mod workload;
mod writes;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

use crate::report::{BenchReport, Machine};
use crate::services::Service;
use crate::workload::{Extent, WorkloadSize};

/// Benches of the metastore: embedded, Cassandra and Postgres on the same generated blocks
#[derive(Debug, Parser)]
#[command(name = "tarn-bench-metastore", version, max_term_width = 110)]
struct Args {
    /// Blocks in all, 2,000 an hour
    #[arg(long, default_value_t = 50_000)]
    blocks: u64,
    /// Chunks of each filter. A probe of the embedded backend reads as much whatever their number; fewer need less disk
    #[arg(long, default_value_t = 8_192)]
    chunks: u32,
    /// 2,000 small blocks in ten hours: whether it runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
    /// Where the stores are while it runs; on the disk that is measured [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Which are measured. The ratios are to the embedded one
    #[arg(long, value_enum, value_delimiter = ',', default_value = "embedded", value_name = "NAME")]
    backend: Vec<Backend>,
    /// A server that runs already, as postgres://user@host/database [default: one is started by scripts/services]
    #[arg(long, env = "TARN_TEST_POSTGRES", value_name = "URL")]
    postgres: Option<String>,
    /// The same, as cql://host:port
    #[arg(long, env = "TARN_TEST_CQL", value_name = "URL")]
    cassandra: Option<String>,
    /// Opens the store there and asks once
    #[arg(long, hide = true)]
    cold: Option<PathBuf>,
    #[arg(long, hide = true)]
    cold_url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    Embedded,
    Cassandra,
    Postgres,
}

fn main() -> Result<()> {
    let start = Instant::now();
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let cold = match (&args.cold, &args.cold_url) {
        (Some(dir), _) => Some(runtime.block_on(embedded::cold(dir, start))?),
        (_, Some(url)) => Some(runtime.block_on(remote::cold(url, start))?),
        _ => None,
    };
    if let Some(cold) = cold {
        println!("{}", serde_json::to_string(&cold)?);
        return Ok(());
    }
    let report = runtime.block_on(measure(&args, &|what| {
        eprintln!("{:6.1} s  {what}", start.elapsed().as_secs_f64());
    }))?;
    match args.json {
        true => println!("{}", serde_json::to_string(&report)?),
        false => print!("{}", report.table()),
    }
    let failed: Vec<&str> = report.failures.keys().copied().collect();
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

async fn measure(args: &Args, say: &dyn Fn(&str)) -> Result<BenchReport> {
    let full = WorkloadSize { blocks: args.blocks, hour_blocks: 2_000, columns: 200, chunks: args.chunks };
    let quick = WorkloadSize { blocks: 2_000, hour_blocks: 200, columns: 200, chunks: 64 };
    let (size, calls, n_commits) = if args.quick { (quick, 20, 2_000) } else { (full, 200, 100_000) };
    let mut builder = tempfile::Builder::new();
    builder.prefix("tarn-bench-");
    let scratch = match &args.scratch {
        Some(folder) => builder.tempdir_in(folder)?,
        None => builder.tempdir()?,
    };
    let mut report = BenchReport {
        bench: "metastore",
        parameters: [
            ("blocks", size.blocks.into()),
            ("hours", size.hours().into()),
            ("columns", size.columns.into()),
            ("chunks", size.chunks.into()),
            ("calls", calls.into()),
            ("quick", args.quick.into()),
        ]
        .into(),
        machine: Machine::here(),
        figures: Default::default(),
        backends: Default::default(),
        failures: Default::default(),
    };
    // The embedded one first: the others are compared with it. One after the other, each with the machine for itself.
    if args.backend.contains(&Backend::Embedded) {
        enough_room(scratch.path(), embedded::needed_bytes(&size))?;
        let measured = embedded::run(scratch.path(), size, calls, n_commits, say).await?;
        report.add_embedded(&measured);
        report.backends.insert("embedded", serde_json::to_value(measured)?);
    }
    // Rows of filters as wide as whole filters would have them.
    let width = if size.chunks >= 8_192 { "?chunk_row_bytes=256" } else { "" };
    let keyspace = format!("tarn_bench_{}", std::process::id());
    for (backend, name, url) in
        [(Backend::Postgres, "postgres", &args.postgres), (Backend::Cassandra, "cassandra", &args.cassandra)]
    {
        if !args.backend.contains(&backend) {
            continue;
        }
        let measured = async {
            enough_room(scratch.path(), 6 << 30)?;
            let service = Service::start(name, url.as_deref(), scratch.path())?;
            let n_commits = if args.quick { 200 } else { 5_000 };
            let base = service.url.split('?').next().unwrap_or_default();
            let (url, others) = match backend {
                Backend::Cassandra => {
                    let host = base.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
                    (format!("{host}/{keyspace}{width}"), Extent::Slots)
                }
                _ => (format!("{base}?schema={keyspace}"), Extent::Small),
            };
            let work = remote::Work { size, others, calls: calls / 2, n_commits };
            let measured = remote::run(name, &url, service.dir.as_deref(), work, say).await?;
            let naive = match backend {
                Backend::Postgres => Some(naive::run(base, size, if args.quick { 2 } else { 5 }, say).await?),
                _ => None,
            };
            anyhow::Ok((measured, naive))
        };
        // A server that fails takes nothing with it that was measured before.
        match measured.await {
            Ok((measured, naive)) => {
                report.add_remote(name, &measured);
                report.backends.insert(name, serde_json::to_value(measured)?);
                if let Some(naive) = naive {
                    report.add_naive(&naive);
                    report.backends.insert("naive_postgres", serde_json::to_value(naive)?);
                }
            }
            Err(error) => {
                say(&format!("{name} was not measured: {error:#}"));
                report.failures.insert(name, format!("{error:#}"));
            }
        }
    }
    Ok(report)
}

fn enough_room(scratch: &Path, needed: u64) -> Result<()> {
    let free = measure::free_bytes(scratch)?;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    ensure!(
        free > needed,
        "{:.1} GiB are free in {}, {:.1} GiB are needed; --scratch names another folder, --chunks makes filters smaller",
        gib(free),
        scratch.display(),
        gib(needed)
    );
    Ok(())
}
