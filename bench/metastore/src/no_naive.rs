//! This build has no client of Postgres.

use anyhow::{Result, bail};
use serde::Serialize;

use crate::workload::Size;

#[derive(Debug, Serialize)]
pub struct Report {
    pub latency: crate::measure::Latency,
    pub scaled_ms: f64,
}

pub async fn run(_url: &str, _size: Size, _calls: usize, _say: &dyn Fn(&str)) -> Result<Report> {
    bail!("this build has no client of Postgres")
}
