//! How much faster are rows taken as binary data than as text?
//!
//! The data are TPC-H lineitem as the server itself gives them in either format; both are in memory before a clock
//! runs. Each run fills a new table, the formats take turns, and a clock runs from the first byte to the
//! acknowledgement.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures::{SinkExt, StreamExt, TryStreamExt};

use super::options::SqlOptions;
use crate::data::{CREATE_TABLE, LineItem};
use crate::load::load;
use crate::report::Report;
use crate::server::ServerProcess;

const FORMATS: [&str; 2] = ["text", "binary"];

/// As much as clients send at once.
const MESSAGE_BYTES: usize = 64 << 10;

/// Both formats are in memory before the clock runs.
pub async fn measure(options: &SqlOptions, scratch: &Path, report: &mut Report) -> Result<()> {
    eprintln!("copy: making lineitem, scale factor {} …", options.sf);
    let data = LineItem::make(options.sf, scratch)?;
    let server = ServerProcess::start_with(Some(&options.tarn()?), &scratch.join("copy"), &[]).await?;
    eprintln!("copy: loading and delivering {} rows …", data.n_rows);
    server.execute(CREATE_TABLE).await?;
    load(&server, &data).await?;
    server.execute("CALL tarn.deliver('lineitem')").await?;
    let mut texts = Vec::new();
    for format in FORMATS {
        let sql = format!("COPY (SELECT * FROM lineitem) TO STDOUT WITH (FORMAT {format})");
        let parts: Vec<Bytes> = server.client.copy_out(&sql).await?.try_collect().await?;
        texts.push(Bytes::from(parts.concat()));
    }
    server.execute("ALTER TABLE lineitem RENAME TO original").await?;
    let mut rates = [Vec::new(), Vec::new()];
    for run in 0..=options.runs {
        for (idx, format) in FORMATS.iter().enumerate() {
            server.execute(CREATE_TABLE).await?;
            let rate = copied(&server, format, &texts[idx], data.n_rows).await?;
            server.execute("DROP TABLE lineitem").await?;
            eprintln!("copy: {format}, run {run} of {}: {rate:.0} rows/s", options.runs);
            // The first run of each warms up.
            if run > 0 {
                rates[idx].push(rate);
            }
        }
    }
    let [text, binary] = rates;
    let ratios = binary.iter().zip(&text).map(|(binary, text)| binary / text).collect();
    report.figure("copy_text_rows_per_s", "rows/s", text);
    report.figure("copy_binary_rows_per_s", "rows/s", binary);
    report.figure("copy_binary_vs_text", "ratio", ratios);
    server.stop().await
}

/// Rows a second of one COPY.
async fn copied(server: &ServerProcess, format: &str, text: &Bytes, n_rows: u64) -> Result<f64> {
    let started = Instant::now();
    let sink = server.client.copy_in::<_, Bytes>(&format!("COPY lineitem FROM STDIN WITH (FORMAT {format})")).await?;
    let mut sink = Box::pin(sink);
    let begins = (0..text.len()).step_by(MESSAGE_BYTES);
    let mut messages = futures::stream::iter(begins.map(|at| Ok(text.slice(at..text.len().min(at + MESSAGE_BYTES)))));
    sink.send_all(&mut messages.by_ref()).await?;
    let acknowledged = sink.as_mut().finish().await?;
    ensure!(acknowledged == n_rows, "{acknowledged} rows acknowledged, want {n_rows}");
    Ok(acknowledged as f64 / started.elapsed().as_secs_f64())
}
