//! How much slower are queries and keyed statements than another build's?
//!
//! Both servers have the same rows, delivered and compacted, and keep no fragments; they take turns. Ratios are this build's over the
//! other's, by processor time of the server for queries (what else runs disturbs it less) and by the client's clock for keyed statements.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::options::Options;
use crate::adhoc::{Q1, Q6};
use crate::data::{CREATE_TABLE, LineItem};
use crate::load::load;
use crate::report::{Report, median, ms_since};
use crate::server::Server;

const QUERIES: [(&str, &str); 2] = [("q1", Q1), ("q6", Q6)];

/// A query is asked so often in one run: the processor's clock has hundredths of a second.
const QUERIES_PER_RUN: usize = 20;

/// Keyed statements of one run; its figure is their median.
const KEYED_PER_RUN: usize = 500;

const KEYED: [(&str, &str); 2] = [
    ("key_lookup", "SELECT * FROM lineitem WHERE l_orderkey = $1 AND l_linenumber = $2"),
    ("key_update", "UPDATE lineitem SET l_quantity = l_quantity + 1 WHERE l_orderkey = $1 AND l_linenumber = $2"),
];

pub async fn measure(options: &Options, scratch: &Path, report: &mut Report) -> Result<()> {
    let base = options.base.as_deref().context("`cost` compares with the program that --base names")?;
    let data = LineItem::make(options.sf, scratch)?;
    let mut servers = Vec::new();
    for (name, program) in [("now", options.tarn()?.as_path()), ("base", base)] {
        servers.push(loaded(program, &scratch.join(name), &data).await?);
    }
    let keys = keys(&servers[0]).await?;
    for (name, sql) in QUERIES {
        let mut runs = [Vec::new(), Vec::new()];
        for run in 0..=options.runs {
            for (side, server) in servers.iter().enumerate() {
                let before = server.cpu_s()?;
                for _ in 0..QUERIES_PER_RUN {
                    server.execute(sql).await?;
                }
                if run > 0 {
                    runs[side].push((server.cpu_s()? - before) * 1e3 / QUERIES_PER_RUN as f64);
                }
            }
        }
        tell(report, name, "cpu_ms", runs);
    }
    for (name, sql) in KEYED {
        let mut runs = [Vec::new(), Vec::new()];
        for run in 0..=options.runs {
            for (side, server) in servers.iter().enumerate() {
                let ms = keyed(server, sql, &keys, run).await?;
                if run > 0 {
                    runs[side].push(ms);
                }
            }
        }
        tell(report, name, "ms", runs);
    }
    for server in servers {
        server.stop().await?;
    }
    Ok(())
}

async fn loaded(program: &Path, folder: &Path, data: &LineItem) -> Result<Server> {
    let variables = [("TARN_CACHE_FRAGMENTS", "off")];
    let server = Server::start_with(Some(program), folder, &variables).await?;
    server.execute(CREATE_TABLE).await?;
    load(&server, data).await?;
    server.execute("CALL tarn.deliver('lineitem')").await?;
    server.execute("CALL tarn.compact('lineitem')").await?;
    Ok(server)
}

/// Keys spread over the table.
async fn keys(server: &Server) -> Result<Vec<i64>> {
    let rows = server.rows("SELECT l_orderkey FROM lineitem WHERE l_linenumber = 1 AND l_orderkey % 101 = 0").await?;
    let keys: Vec<i64> = rows.iter().filter_map(|row| row.first()?.parse().ok()).collect();
    ensure!(!keys.is_empty(), "no keys: --sf is too small");
    Ok(keys)
}

/// The median of statements by key, each prepared once; both sides take the same keys in the same order.
async fn keyed(server: &Server, sql: &str, keys: &[i64], run: usize) -> Result<f64> {
    let statement = server.client.prepare(sql).await?;
    let mut times = Vec::with_capacity(KEYED_PER_RUN);
    for idx in run * KEYED_PER_RUN..(run + 1) * KEYED_PER_RUN {
        let key = keys[idx * 7919 % keys.len()];
        let started = Instant::now();
        let n_rows = server.client.execute(&statement, &[&key, &1_i32]).await?;
        times.push(ms_since(started));
        ensure!(n_rows == 1, "key {key} has {n_rows} rows");
    }
    Ok(median(&times))
}

fn tell(report: &mut Report, name: &str, unit: &'static str, runs: [Vec<f64>; 2]) {
    let [now, base] = runs;
    let ratios = now.iter().zip(&base).map(|(now, base)| now / base).collect();
    report.figure(&format!("{name}_{unit}"), "ms", now);
    report.figure(&format!("{name}_base_{unit}"), "ms", base);
    report.figure(&format!("{name}_vs_base"), "ratio", ratios);
}
