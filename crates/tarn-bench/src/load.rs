//! `tarn-bench load`: how many rows per second does the front door take, end to end, and how much memory does that
//! cost?
//!
//! Each run has a fresh server. The clock runs from the first byte of COPY to the last acknowledgement.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::Common;
use crate::data::{CREATE_TABLE, LineItem};
use crate::report::{Report, fdatasync_ms};
use crate::scratch::scratch;
use crate::server::ServerProcess;

/// Loads on a fresh server, run after run.
pub async fn run(common: &Common) -> Result<Report> {
    let scratch = scratch(common.scratch.as_deref())?;
    let mut report = Report::new("load");
    report.parameter("sf", common.sf);
    report.parameter("runs", common.runs);
    eprintln!("making the data …");
    let data = LineItem::make(common.sf, scratch.path())?;
    report.parameter("rows", data.n_rows);
    let (mut rates, mut peaks, mut delivered) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..common.runs {
        let folder = scratch.path().join(format!("run-{run}"));
        let server = ServerProcess::start(common, &folder).await?;
        server.execute(CREATE_TABLE).await?;
        rates.push(load(&server, &data).await?);
        peaks.push(server.peak_rss_mb()?);
        let started = Instant::now();
        server.execute("CALL tarn.deliver('lineitem')").await?;
        delivered.push(started.elapsed().as_secs_f64());
        eprintln!("run {}: {:.0} rows/s", run + 1, rates[run]);
        drop(server);
        std::fs::remove_dir_all(&folder)?;
    }
    report.figure("load_rows_per_s", "rows/s", rates);
    report.figure("server_peak_rss_mb", "MiB", peaks);
    report.figure("deliver_rest_s", "s", delivered);
    report.figure("disk_fdatasync_ms", "ms", fdatasync_ms(scratch.path(), common.runs)?);
    Ok(report)
}

/// Rows per second from the first byte to the last acknowledgement.
pub async fn load(server: &ServerProcess, data: &LineItem) -> Result<f64> {
    let started = Instant::now();
    let acknowledged = server.copy("lineitem", &LineItem::schema(), data.batches()?).await?;
    ensure!(acknowledged == data.n_rows, "{acknowledged} rows acknowledged, want {}", data.n_rows);
    Ok(acknowledged as f64 / started.elapsed().as_secs_f64())
}
