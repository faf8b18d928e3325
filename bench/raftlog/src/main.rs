//! How does our log store compare? tarn-raftlog, raft-engine, RocksDB and Badger on the same work, disk and minute.
//!
//! `tarn-bench raftlog` runs this program; `make bench-raftlog` builds it. Progress goes to stderr; `--json` prints one
//! object on stdout: bench, parameters, machine, figures, grid, failures. Figures are reported, never asserted. How
//! each engine is configured, and why, stands at the head of its file in `engines/` and of `bench/badger/main.go`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bench;
mod cells;
mod child;
mod disk;
mod engines;
mod flips;
mod job;
mod markdown;
mod measure;
mod payload;
mod report;
mod results;
mod tasks;
mod writers;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use crate::bench::Bench;
use crate::cells::Extent;
use crate::child::Children;
use crate::job::{EngineName, Job};
use crate::report::{HostInfo, Report};
use crate::results::Results;

/// Benches of the Raft log store, beside raft-engine, RocksDB as TiKV's raftdb, and Badger
#[derive(Parser, Debug)]
#[command(name = "tarn-bench-raftlog", version, max_term_width = 110, args_conflicts_with_subcommands = true)]
struct Cli {
    /// The cells of the named figures only, one short round: about two minutes
    #[arg(long)]
    quick: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
    /// Print the tables of docs/benchmarks-raftlog.md on stdout
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Measure nothing: print a report that was saved as JSON before; of several, their rounds count as those of one
    /// run
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Only cells whose name contains one of these, as sync/64g/16w or queries
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<String>,
    /// Only these engines
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    engines: Vec<EngineName>,
    /// Rounds; a figure is the median of its rounds [default: 3, quick 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of each commit cell, after a fifth of that to warm up [default: 2, quick 0.5]
    #[arg(long)]
    seconds: Option<f64>,
    /// The Go program with Badger [default: tarn-bench-badger beside this program, if it is there]
    #[arg(long, value_name = "FILE")]
    badger: Option<PathBuf>,
    /// Where to keep the engines' folders while running [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    #[command(subcommand)]
    child: Option<ChildCommand>,
}

#[derive(clap::Subcommand, Debug)]
enum ChildCommand {
    /// One measurement, as the bench asks its own processes
    #[command(hide = true)]
    Job { json: String },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(ChildCommand::Job { json }) = cli.child {
        return answer(&json);
    }
    let report = if cli.from.is_empty() { measure(&cli)? } else { saved(&cli.from)? };
    print(&cli, &report)
}

/// The reports of these files as one.
fn saved(files: &[PathBuf]) -> Result<Report> {
    let read = |path: &PathBuf| -> Result<Report> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
    };
    let (first, others) = files.split_first().context("no file")?;
    let mut report = read(first)?;
    for path in others {
        report.add_rounds(read(path)?);
    }
    Ok(report)
}

/// Does one job and ends the process at once, as if it were killed: nothing is closed or flushed on the way out.
fn answer(json: &str) -> Result<()> {
    let job: Job = serde_json::from_str(json)?;
    let answer = serde_json::to_string(&tasks::run(&job)?)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    out.flush()?;
    std::process::exit(0)
}

fn measure(cli: &Cli) -> Result<Report> {
    let mut extent = if cli.quick { Extent::quick() } else { Extent::full() };
    extent.rounds = cli.rounds.unwrap_or(extent.rounds);
    extent.seconds = cli.seconds.unwrap_or(extent.seconds);
    let mut builder = tempfile::Builder::new();
    builder.prefix("tarn-bench-raftlog-");
    let scratch = match &cli.scratch {
        Some(folder) => builder.tempdir_in(folder)?,
        None => builder.tempdir()?,
    };
    let badger = match &cli.badger {
        Some(program) => Some(program.clone()),
        None => Some(std::env::current_exe()?.with_file_name("tarn-bench-badger")).filter(|program| program.exists()),
    };
    let mut engines = cli.engines.clone();
    if engines.is_empty() {
        engines = <EngineName as clap::ValueEnum>::value_variants().to_vec();
    }
    let failures = leave_out_absent(&mut engines, badger.is_some());
    let machine = HostInfo::here(scratch.path());
    let children = Children::new(badger)?;
    let (results, only) = (Results::default(), cli.only.clone());
    let mut bench = Bench { extent, engines, only, children, scratch: scratch.path(), results, failures };
    bench.run()?;
    let (figures, grid) = (bench.results.figures(), bench.results.grid());
    for (name, figure) in &figures {
        eprintln!("{name:<42} {:>14.3} {}", figure.value, figure.unit);
    }
    Ok(Report {
        bench: "raftlog".into(),
        parameters: parameters(cli, &bench),
        machine,
        figures,
        grid,
        failures: bench.failures,
    })
}

/// Drops the engines this build does not have, and says so.
fn leave_out_absent(engines: &mut Vec<EngineName>, has_badger: bool) -> Vec<String> {
    let why = |engine: EngineName| match engine {
        EngineName::Badger if !has_badger => {
            Some("its program was not built; make bench-raftlog builds it where there is Go 1.24")
        }
        EngineName::Rocksdb if cfg!(not(feature = "rocksdb")) => Some("this program was built without it"),
        _ => None,
    };
    let told = engines.iter().filter_map(|&engine| Some(format!("{}: left out, {}", engine.name(), why(engine)?)));
    let told: Vec<String> = told.collect();
    engines.retain(|&engine| why(engine).is_none());
    told.iter().for_each(|line| eprintln!("{line}"));
    told
}

fn parameters(cli: &Cli, bench: &Bench<'_>) -> BTreeMap<String, serde_json::Value> {
    let engines: Vec<&str> = bench.engines.iter().map(|engine| engine.name()).collect();
    let extent = &bench.extent;
    let list: [(&str, serde_json::Value); 9] = [
        ("quick", cli.quick.into()),
        ("rounds", extent.rounds.into()),
        ("seconds", extent.seconds.into()),
        ("engines", engines.into()),
        ("only", cli.only.clone().into()),
        ("payload", "of 64 bytes 32 are random and 32 repeat".into()),
        ("live_bytes_at_most", extent.live_bytes.into()),
        ("reopen_bytes", extent.reopen_bytes.into()),
        ("flips", extent.flips.into()),
    ];
    list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn print(cli: &Cli, report: &Report) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if cli.json {
        serde_json::to_writer(&mut out, report)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", markdown::render(report)?)?;
    }
    Ok(())
}
