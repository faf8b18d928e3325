//! How fast? Each command starts the shipped server, drives it as any client would, and reports figures with their
//! runs.
//!
//! `--json` prints one object on stdout: bench, parameters, machine, figures. Progress goes to stderr. Figures are
//! reported, never asserted. A comparison runs both sides alternating, in the same invocation, on the same files.

mod adhoc;
mod answers;
mod archive;
mod buckets;
mod data;
mod far_store;
mod keyed;
mod load;
mod logs;
mod metastore;
mod others;
mod program;
mod python;
mod report;
mod scratch;
mod server;
mod sql;
mod tpcds;
mod tpch;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Benches of Tarn, driving the shipped binary over the wire
#[derive(Parser)]
#[command(name = "tarn-bench", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The five ad-hoc queries on TPC-H lineitem, beside DuckDB on the same Parquet; load; the union with recent rows
    Adhoc(Common),
    /// Rows per second through the front door, and the server's peak memory
    Load(Common),
    /// The metastore's backends on one generated workload, and an archive's search beside DuckDB and DataFusion
    Metastore(metastore::MetastoreOptions),
    /// One line in millions, in Parquet files of others: Tarn, DuckDB and DataFusion on a local disk and in a store
    /// that is far away
    Archive(archive::ArchiveOptions),
    /// All 22 TPC-H queries on a lake that is far away, with each cache and without, beside DuckDB and ClickHouse; and
    /// their answers
    Tpch(tpch::TpchOptions),
    /// All 99 TPC-DS queries on attached Parquet files within little memory, beside DuckDB: which end, which are right,
    /// how long they take
    Tpcds(tpcds::TpcdsOptions),
    /// How far the SQL is PostgreSQL's: its regress files, generated statements, clients, TPC-DS; and what it costs
    Sql(sql::SqlOptions),
    /// The Raft log store beside raft-engine, RocksDB and Badger; `raftlog --help` shows the arguments
    #[command(disable_help_flag = true)]
    Raftlog {
        /// For the bench's own program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// The page cache alone: its hits beside plain reads of a file, cold reads by page size; `cache --help` shows the
    /// arguments
    #[command(disable_help_flag = true)]
    Cache {
        /// For the bench's own program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Write TPC-H lineitem as one Parquet file: the data of the other benches and of tests
    Data(Data),
}

#[derive(Args, Debug, Clone)]
struct Data {
    /// Scale factor: 1 is 6 million rows
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Args, Debug, Clone)]
struct Common {
    /// Scale factor of the data: 1 is 6 million rows
    #[arg(long, default_value_t = 1.0)]
    sf: f64,
    /// Runs of each side of each figure; the value is their median
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
    /// The server's program [default: tarn beside this program]
    #[arg(long, value_name = "FILE")]
    tarn: Option<PathBuf>,
    /// A Python that has DuckDB (make setup-tests makes one)
    #[arg(long, env = "TARN_PYTHON", default_value = "python3", value_name = "FILE")]
    python: PathBuf,
    /// Where to keep the servers' folders while running [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (json, report) = match Cli::parse().bench {
            Bench::Adhoc(common) => (common.json, adhoc::run(&common).await?),
            Bench::Load(common) => (common.json, load::run(&common).await?),
            Bench::Archive(options) => (options.json, archive::run(&options).await?),
            Bench::Metastore(options) => return metastore::run(&options).await,
            Bench::Tpch(options) => (options.json, tpch::run(&options).await?),
            Bench::Tpcds(options) => (options.json, tpcds::run(&options).await?),
            Bench::Sql(options) => (options.json, sql::run(&options).await?),
            Bench::Raftlog { arguments } => return program::run("raftlog", &arguments),
            Bench::Cache { arguments } => return program::run("cache", &arguments),
            Bench::Data(data) => return data::write_parquet(data.sf, &data.out),
        };
        report.print(json)
    })
}
