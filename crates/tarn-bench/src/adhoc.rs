//! `tarn-bench adhoc`: five ad-hoc queries of a published comparison (docs/sources.md, 1.9), beside DuckDB on the same
//! Parquet.
//!
//! Tarn is timed over the Postgres wire, DuckDB inside its process: Tarn's figures contain the protocol. Both fetch all
//! rows. The sides alternate, after one run of each that does not count. Ratios are Tarn over DuckDB: below 1 Tarn
//! wins.
//!
//! What leaves of plans gave before is not used: else the engine would be compared with its own memory of the answer.
//! What keeping it brings is told apart, as `fragments_…`: above 1 it is faster by so much.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use std::time::Instant;

use crate::Common;
use crate::data::{CREATE_TABLE, LineItem};
use crate::keyed;
use crate::load::load;
use crate::python::PythonEngine;
use crate::report::{Report, fdatasync_ms, median, ms_since};
use crate::scratch::scratch;
use crate::server::ServerProcess;

/// Name, SQL, and whether Tarn is held to the lake, where DuckDB reads too.
const QUERIES: [(&str, &str, bool); 7] = [
    ("count", "SELECT count(*) FROM lineitem", false),
    ("partition_lookup", "SELECT * FROM lineitem WHERE l_orderkey = 1", false),
    (
        "nonkey",
        "SELECT * FROM lineitem WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-02-01' AND l_discount < 0.03 AND l_quantity < 4",
        true,
    ),
    ("projection", "SELECT l_orderkey FROM lineitem ORDER BY l_orderkey LIMIT 1", true),
    ("fullrow", "SELECT * FROM lineitem ORDER BY l_orderkey LIMIT 1", true),
    ("q1", Q1, true),
    ("q6", Q6, true),
];

/// TPC-H's first query: nearly all rows, in four groups.
pub const Q1: &str = "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)), \
    avg(l_quantity), avg(l_discount), count(*) FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus ORDER BY 1, 2";

/// TPC-H's sixth query: a fiftieth of the rows, in one sum.
pub const Q6: &str = "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' \
    AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24";

/// Rows that are recent when the union is measured.
const N_RECENT: u64 = 100_000;

/// A row by its whole key.
pub const LOOKUP: &str = "SELECT * FROM lineitem WHERE l_orderkey = $1 AND l_linenumber = $2";

/// Keys looked up in one run.
const N_LOOKUPS: usize = 500;

/// Loads lineitem, asks Tarn and DuckDB in turns, then changes rows and asks again.
pub async fn run(common: &Common) -> Result<Report> {
    let scratch = scratch(common.scratch.as_deref())?;
    let mut report = Report::new("adhoc");
    report.parameter("sf", common.sf);
    report.parameter("runs", common.runs);
    report.parameter("recent_rows", N_RECENT);
    report.parameter("lookups_per_run", N_LOOKUPS);
    eprintln!("making the data …");
    let data = LineItem::make(common.sf, scratch.path())?;
    report.parameter("rows", data.n_rows);

    let server = ServerProcess::start(common, &scratch.path().join("data")).await?;
    use_fragments(&server, false).await?;
    server.execute(CREATE_TABLE).await?;
    report.figure("load_rows_per_s", "rows/s", vec![load(&server, &data).await?]);
    report.figure("server_peak_rss_mb", "MiB", vec![server.peak_rss_mb()?]);
    report.figure("disk_fdatasync_ms", "ms", fdatasync_ms(scratch.path(), common.runs)?);
    // What was loaded is written out behind the load: keys are looked up beside nothing.
    server.execute("CALL tarn.deliver('lineitem')").await?;
    key_lookups(&server, common.runs, &mut report).await?;

    server.execute("CALL tarn.compact('lineitem')").await?;
    let files = lake_files(&server).await?;
    report.parameter("files", files.len());
    report.parameter("lake_bytes", files.iter().map(|file| file.metadata().map_or(0, |m| m.len())).sum::<u64>());
    let mut duckdb = PythonEngine::duckdb(&common.python)?;
    let list: Vec<String> =
        files.iter().map(|file| format!("'{}'", file.display().to_string().replace('\'', "''"))).collect();
    duckdb.time(&format!("CREATE VIEW lineitem AS SELECT * FROM read_parquet([{}])", list.join(", ")))?;
    report.parameter("duckdb", duckdb.version.clone());
    for (name, sql, on_lake) in QUERIES {
        compare(&server, &mut duckdb, name, sql, on_lake, common.runs, &mut report).await?;
    }
    union(&server, &data, common.runs, &mut report).await?;
    report.figure("server_peak_rss_all_mb", "MiB", vec![server.peak_rss_mb()?]);
    Ok(report)
}

/// One row by its whole key. A run's figures are the median and the worst hundredth of its lookups.
async fn key_lookups(server: &ServerProcess, runs: usize, report: &mut Report) -> Result<()> {
    let keys = keyed::keys(server).await?;
    let (mut medians, mut worst) = (Vec::new(), Vec::new());
    for run in 0..=runs {
        let lookups = keyed::times(server, LOOKUP, &keys, run, N_LOOKUPS).await?;
        // The first run warms up.
        if run > 0 {
            medians.push(median(&lookups));
            worst.push(lookups[N_LOOKUPS * 99 / 100]);
        }
    }
    report.figure("key_lookup_ms", "ms", medians);
    report.figure("key_lookup_p99_ms", "ms", worst);
    Ok(())
}

/// The table's Parquet files. None may have dead rows, or the sides would read different tables.
async fn lake_files(server: &ServerProcess) -> Result<Vec<PathBuf>> {
    let dead = server.rows("SELECT coalesce(sum(dead_rows), 0) FROM tarn.files WHERE table_name = 'lineitem'").await?;
    ensure!(dead[0][0] == "0", "{} dead rows in the lake before the comparison", dead[0][0]);
    let paths = server.rows("SELECT path FROM tarn.files WHERE table_name = 'lineitem' ORDER BY path").await?;
    let files: Vec<PathBuf> =
        paths.iter().map(|row| server.data_dir.join("lake").join(row[0].trim_start_matches('/'))).collect();
    let missing = files.iter().find(|file| !file.exists());
    ensure!(missing.is_none(), "{missing:?} is not there");
    ensure!(!files.is_empty(), "nothing was delivered");
    Ok(files)
}

async fn compare(
    server: &ServerProcess,
    duckdb: &mut PythonEngine,
    name: &str,
    sql: &str,
    on_lake: bool,
    runs: usize,
    report: &mut Report,
) -> Result<()> {
    set_path(server, if on_lake { "lake" } else { "auto" }).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..=runs {
        let started = Instant::now();
        let rows = server.rows(sql).await?.len();
        let ms = ms_since(started);
        let (their_ms, their_rows) = duckdb.time(sql).with_context(|| name.to_owned())?;
        ensure!(rows == their_rows, "{name}: {rows} rows, DuckDB has {their_rows}");
        // The first run of each side warms up.
        if run > 0 {
            ours.push(ms);
            theirs.push(their_ms);
        }
    }
    let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    report.figure(&format!("{name}_ms"), "ms", ours);
    report.figure(&format!("{name}_duckdb_ms"), "ms", theirs);
    report.figure(&format!("{name}_vs_duckdb"), "ratio", ratios);
    set_path(server, "auto").await
}

async fn set_path(server: &ServerProcess, path: &str) -> Result<()> {
    server.execute(&format!("SET tarn.access_path = '{path}'")).await
}

async fn use_fragments(server: &ServerProcess, on: bool) -> Result<()> {
    server.execute(&format!("SET tarn.cache.fragments = '{}'", if on { "on" } else { "off" })).await
}

/// The lake alone, then with recent rows over it, then those delivered too: what does the exact union cost?
async fn union(server: &ServerProcess, data: &LineItem, runs: usize, report: &mut Report) -> Result<()> {
    set_path(server, "lake").await?;
    let queries = QUERIES.into_iter().filter(|(name, ..)| ["nonkey", "q1", "q6"].contains(name));
    let queries: Vec<(&str, &str)> = queries.map(|(name, sql, _)| (name, sql)).collect();
    let alone = times(server, &queries, runs).await?;
    let alone_kept = times_with_fragments(server, &queries, runs).await?;
    let changed = server.replace("lineitem", &LineItem::schema(), data.changed(N_RECENT.min(data.n_rows / 2))?).await?;
    eprintln!("{changed} rows are recent now");
    let started = Instant::now();
    server.rows(queries[0].1).await?;
    report.figure("union_first_ms", "ms", vec![ms_since(started)]);
    let union = times(server, &queries, runs).await?;
    let union_kept = times_with_fragments(server, &queries, runs).await?;
    server.execute("CALL tarn.deliver('lineitem')").await?;
    let delivered = times(server, &queries, runs).await?;
    let mut worst: Vec<f64> = Vec::new();
    for (idx, (name, _)) in queries.iter().enumerate() {
        let ratios = |base: &[f64]| -> Vec<f64> { union[idx].iter().map(|ms| ms / median(base)).collect() };
        let value = report.figure(&format!("union_over_lake_{name}"), "ratio", ratios(&alone[idx]));
        report.figure(&format!("union_over_delivered_{name}"), "ratio", ratios(&delivered[idx]));
        for (what, without, with) in [("", &alone[idx], &alone_kept[idx]), ("union_", &union[idx], &union_kept[idx])] {
            let speedups = with.iter().map(|ms| median(without) / ms).collect();
            report.figure(&format!("fragments_{what}{name}_speedup"), "times", speedups);
        }
        if worst.is_empty() || value > median(&worst) {
            worst = ratios(&alone[idx]);
        }
    }
    // The figure is the worst of the three queries.
    report.figure("union_over_lake", "ratio", worst);
    set_path(server, "auto").await
}

/// The same where what a run gave is kept for the next.
async fn times_with_fragments(server: &ServerProcess, queries: &[(&str, &str)], runs: usize) -> Result<Vec<Vec<f64>>> {
    use_fragments(server, true).await?;
    let times = times(server, queries, runs).await;
    use_fragments(server, false).await?;
    times
}

/// Milliseconds of each query, each run; the queries take turns.
async fn times(server: &ServerProcess, queries: &[(&str, &str)], runs: usize) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::new(); queries.len()];
    for run in 0..=runs {
        for (idx, (_, sql)) in queries.iter().enumerate() {
            let ms = server.time(sql).await?;
            if run > 0 {
                times[idx].push(ms);
            }
        }
    }
    Ok(times)
}
