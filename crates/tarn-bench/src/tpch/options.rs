//! What can be asked for?

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::queries::{QUERIES, Query};
use crate::far_store::Line;

#[derive(Args, Debug, Clone)]
pub struct TpchOptions {
    /// Scale factor of the data: 1 is 8.7 million rows in eight tables
    #[arg(long, default_value_t = 10.0)]
    pub sf: f64,
    /// Where the lake is: in an object store that is far away, or in a local folder
    #[arg(long, value_enum, default_value = "s3")]
    pub store: Store,
    /// Of the store that is far away: how long each request waits for its answer
    #[arg(long, default_value = "30ms", value_parser = latency)]
    pub latency: Duration,
    /// Of that store: what all its answers share, a second
    #[arg(long, default_value = "80MB/s", value_parser = bandwidth)]
    pub bandwidth: u64,
    /// Numbers of the queries [default: all 22]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=22))]
    pub queries: Vec<u8>,
    /// Runs of each query where something is near; the value is their median. What comes from far away whole runs once
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Compare all answers with DuckDB's on data of its own (at scale factor 1 with the benchmark's, too), measure
    /// nothing
    #[arg(long)]
    pub check: bool,
    /// Keep the loaded tables in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    pub keep: Option<PathBuf>,
    /// Tables that --keep kept: nothing is loaded
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Memory of the server's queries
    #[arg(long, default_value = "4GiB", value_name = "SIZE")]
    pub query_memory: String,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    pub json: bool,
    /// The server's program [default: tarn beside this program]
    #[arg(long, value_name = "FILE")]
    pub tarn: Option<PathBuf>,
    /// A Python that has DuckDB (make setup-tests makes one)
    #[arg(long, env = "TARN_PYTHON", default_value = "python3", value_name = "FILE")]
    pub python: PathBuf,
    /// A Python that has chdb (make bench-tpch makes one) [default: ClickHouse is left out]
    #[arg(long, env = "TARN_PYTHON_CHDB", value_name = "FILE")]
    pub python_chdb: Option<PathBuf>,
    /// Where to keep the tables while running [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    S3,
    Local,
}

impl TpchOptions {
    /// All queries, unless some are named.
    pub fn asked(&self) -> impl Iterator<Item = &'static Query> + use<'_> {
        QUERIES.iter().filter(|query| self.queries.is_empty() || self.queries.contains(&query.number))
    }

    /// The delay and the bandwidth of the far store.
    pub fn line(&self) -> Line {
        Line { latency: self.latency, bytes_per_s: self.bandwidth }
    }
}

fn latency(text: &str) -> Result<Duration, String> {
    let ms = text.trim().strip_suffix("ms").and_then(|number| number.trim().parse::<f64>().ok());
    let ms = ms.filter(|ms| (0.0..=60_000.0).contains(ms));
    ms.map(|ms| Duration::from_secs_f64(ms / 1e3)).ok_or_else(|| "want milliseconds, such as 30ms".to_owned())
}

/// In bytes a second; 0 has no limit.
fn bandwidth(text: &str) -> Result<u64, String> {
    let mb = text.trim().strip_suffix("MB/s").and_then(|number| number.trim().parse::<f64>().ok());
    let mb = mb.filter(|mb| (0.0..=1e6).contains(mb));
    mb.map(|mb| (mb * 1e6) as u64).ok_or_else(|| "want megabytes a second, such as 80MB/s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_in_its_units() {
        assert_eq!(latency("30ms"), Ok(Duration::from_millis(30)));
        assert_eq!(latency("0ms"), Ok(Duration::ZERO));
        assert_eq!(bandwidth("80MB/s"), Ok(80_000_000));
        assert_eq!(bandwidth("0.5 MB/s"), Ok(500_000));
        for wrong in ["30", "-1ms", "80", "fastMB/s", "80GB/s"] {
            assert!(latency(wrong).is_err() && bandwidth(wrong).is_err(), "{wrong}");
        }
    }
}
