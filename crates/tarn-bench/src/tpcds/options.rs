//! What can be asked for?

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug, Clone)]
pub struct TpcdsOptions {
    /// Scale factor of the data: 1 is 19.6 million rows in 24 tables
    #[arg(long, default_value_t = 1.0)]
    pub sf: f64,
    /// Numbers of the queries [default: all 99]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=99))]
    pub queries: Vec<u8>,
    /// Ask each query once, and fail if an answer is wrong or missing
    #[arg(long)]
    pub check: bool,
    /// Runs of each side of each query after the first, which is judged and does not count; their median does
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// Memory of the server's queries
    #[arg(long, default_value = "512MiB", value_name = "SIZE")]
    pub query_memory: String,
    /// A query ends after so many seconds, and counts as failed
    #[arg(long, default_value_t = 600)]
    pub timeout: u64,
    /// Keep the files in this folder, and use those that are there [default: they are made anew each time]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    pub json: bool,
    /// The server's program [default: tarn beside this program]
    #[arg(long, value_name = "FILE")]
    pub tarn: Option<PathBuf>,
    /// A Python that has DuckDB (make setup-tests makes one)
    #[arg(long, env = "TARN_PYTHON", default_value = "python3", value_name = "FILE")]
    pub python: PathBuf,
    /// One whose DuckDB has its extension tpcds from PyPI, which makes files and queries (make bench-tpcds makes one)
    #[arg(long, env = "TARN_PYTHON_TPCDS", default_value = "python3", value_name = "FILE")]
    pub python_tpcds: PathBuf,
    /// Where to keep the files and the server's folder while running [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

impl TpcdsOptions {
    /// Of all queries, unless some are named.
    pub fn is_asked(&self, query: u8) -> bool {
        self.queries.is_empty() || self.queries.contains(&query)
    }
}
