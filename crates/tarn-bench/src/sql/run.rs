//! In which order is it done?
//!
//! First what is right, then what is fast: a part that cannot run ends the bench, and says what it lacks.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::options::{BenchPart, SqlOptions};
use super::{copy, cost, suites};
use crate::report::Report;
use crate::scratch::scratch;

/// Runs the parts that are asked for, one after the other.
pub async fn run(options: &SqlOptions) -> Result<Report> {
    ensure!(options.sf > 0.0 && options.runs > 0, "--sf takes more than 0, --runs 1 and more");
    let scratch = scratch(options.scratch.as_deref())?;
    let mut report = Report::new("sql");
    report.parameter("sf", options.sf);
    report.parameter("runs", options.runs);
    report.parameter("count", options.count);
    report.parameter("seed", options.seed);
    for part in [
        BenchPart::Regress,
        BenchPart::Generated,
        BenchPart::Clients,
        BenchPart::Tpcds,
        BenchPart::Copy,
        BenchPart::Cost,
    ] {
        if !options.is_asked(part) {
            continue;
        }
        let folder = scratch.path().join(format!("{part:?}").to_lowercase());
        std::fs::create_dir(&folder)?;
        match part {
            BenchPart::Regress => suites::regress(options, &folder, &mut report),
            BenchPart::Generated => suites::generated(options, &folder, &mut report),
            BenchPart::Clients => suites::clients(options, &folder, &mut report),
            BenchPart::Tpcds => tpcds(options, &folder, &mut report).await,
            BenchPart::Copy => copy::measure(options, &folder, &mut report).await,
            BenchPart::Cost => cost::measure(options, &folder, &mut report).await,
        }
        .with_context(|| format!("part {part:?}"))?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(report)
}

/// `tpcds_right` of `tpcds_asked`; `tarn-bench tpcds` says which are not, and has times worth to be quoted.
async fn tpcds(options: &SqlOptions, folder: &Path, report: &mut Report) -> Result<()> {
    let judged = crate::tpcds::run(&options.tpcds(folder)?).await?;
    for name in ["tpcds_asked", "tpcds_right"] {
        let figure = judged.figures.get(name).with_context(|| format!("no {name}"))?;
        report.figure(name, figure.unit, figure.runs.clone());
    }
    Ok(())
}
