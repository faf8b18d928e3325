//! In which order is it done?

use anyhow::{Result, ensure};

use super::check::check;
use super::measure::measure;
use super::options::TpchOptions;
use super::rivals;
use super::summary::Summary;
use super::workspace::Workspace;
use crate::report::Report;

/// Loads the tables, unless they are kept, then checks or measures. The error of a check says which answers differ.
pub async fn run(options: &TpchOptions) -> Result<Report> {
    ensure!(options.sf >= 0.01 && options.rounds > 0, "--sf takes 0.01 and more, --rounds 1 and more");
    let mut report = Report::new("tpch");
    report.parameter("sf", options.sf);
    report.parameter("store", serde_json::to_value(options.store)?);
    let workspace = Workspace::open(options, &mut report).await?;
    report.parameter("rows", serde_json::to_value(workspace.rows())?);
    if options.check {
        check(options, &workspace, &mut report).await?;
        return Ok(report);
    }
    report.parameter("latency_ms", options.latency.as_secs_f64() * 1e3);
    report.parameter("bandwidth_bytes_per_s", options.bandwidth);
    report.parameter("rounds", options.rounds);
    report.parameter("query_memory", options.query_memory.clone());
    let mut summary = Summary::default();
    measure(options, &workspace, &mut summary, &mut report).await?;
    rivals::measure(options, &workspace, &mut summary, &mut report).await?;
    summary.report(options, &mut report)?;
    Ok(report)
}
