//! What can be asked for?

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};

/// Parts of the bench, in the order in which they run.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchPart {
    /// PostgreSQL's own regress files: `regress_…`
    Regress,
    /// Random expressions and queries beside PostgreSQL: `generated_…`
    Generated,
    /// Scripts of real clients: `clients_…`
    Clients,
    /// TPC-DS beside DuckDB: `tpcds_right`
    Tpcds,
    /// COPY as binary data beside COPY as text: `copy_…`
    Copy,
    /// TPC-H's Q1 and Q6 and statements by key beside another build: `…_vs_base`
    Cost,
}

#[derive(Args, Debug, Clone)]
pub struct SqlOptions {
    /// Parts [default: all; `cost` only with --base]
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<BenchPart>,
    /// Generated statements, half of them expressions, half queries
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub count: u64,
    /// Another seed generates others
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Scale factor of TPC-DS, and of TPC-H lineitem in `copy` and `cost`
    #[arg(long, default_value_t = 1.0)]
    pub sf: f64,
    /// Runs of each side of `copy` and `cost`; the value is their median
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// A server's program of before: what has become slower since?
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// The folder of the suites: `tests` of a checkout
    #[arg(long, default_value = "tests", value_name = "DIR")]
    pub tests: PathBuf,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    pub json: bool,
    /// The server's program [default: tarn beside this program]
    #[arg(long, value_name = "FILE")]
    tarn: Option<PathBuf>,
    /// A Python that has DuckDB and the clients (make setup-tests makes one)
    #[arg(long, env = "TARN_PYTHON", default_value = "python3", value_name = "FILE")]
    pub python: PathBuf,
    /// One whose DuckDB has its extension tpcds from PyPI (make bench-sql makes one)
    #[arg(long, env = "TARN_PYTHON_TPCDS", default_value = "python3", value_name = "FILE")]
    pub python_tpcds: PathBuf,
    /// Where to keep files and the servers' folders while running [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

impl SqlOptions {
    /// Of all parts, unless some are named.
    pub fn is_asked(&self, part: BenchPart) -> bool {
        match self.parts.as_slice() {
            [] => part != BenchPart::Cost || self.base.is_some(),
            parts => parts.contains(&part),
        }
    }

    /// The program under test, as a whole path.
    pub fn tarn(&self) -> Result<PathBuf> {
        Ok(std::path::absolute(crate::server::program(self.tarn.as_deref())?)?)
    }

    /// Every query twice, of which the first answer is judged; what a wrong one has instead is said on stderr.
    pub fn tpcds(&self, scratch: &Path) -> Result<crate::tpcds::TpcdsOptions> {
        Ok(crate::tpcds::TpcdsOptions {
            sf: self.sf,
            queries: Vec::new(),
            check: false,
            runs: 1,
            query_memory: "512MiB".to_owned(),
            timeout: 600,
            data: None,
            json: false,
            tarn: Some(self.tarn()?),
            python: self.python.clone(),
            python_tpcds: self.python_tpcds.clone(),
            scratch: Some(scratch.to_owned()),
        })
    }
}
