//! In which order is it done?
//!
//! Tarn is timed over the Postgres wire, DuckDB inside its process; both fetch all rows, and take turns. The meaning is
//! PostgreSQL's: DuckDB is told to divide integers as integers and to take NULL for the greatest value.

use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::data::{Data, quoted};
use super::options::TpcdsOptions;
use super::summary::{Query, Summary};
use super::verdict::judge;
use crate::python::PythonEngine;
use crate::report::{Report, ms_since};
use crate::scratch::scratch;
use crate::server::ServerProcess;

/// Nothing else runs while a query is timed, and what is measured is the engine, not what it has kept.
const MEASURING: [(&str, &str); 2] = [("TARN_BACKGROUND", "false"), ("TARN_CACHE_FRAGMENTS", "off")];

const AS_POSTGRES: [&str; 2] =
    ["SET integer_division = true", "SET default_null_order = 'nulls_last_on_asc_first_on_desc'"];

/// The error of a check says which answers are wrong or missing, and why.
pub async fn run(options: &TpcdsOptions) -> Result<Report> {
    ensure!(options.sf > 0.0 && options.runs > 0, "--sf takes more than 0, --runs 1 and more");
    let scratch = scratch(options.scratch.as_deref())?;
    let mut report = Report::new("tpcds");
    report.parameter("sf", options.sf);
    report.parameter("query_memory", options.query_memory.clone());
    report.parameter("runs", if options.check { 1 } else { options.runs });
    let folder = options.data.clone().unwrap_or_else(|| scratch.path().join("files"));
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let data = Data::open(options, &folder)?;
    report.parameter("rows", serde_json::to_value(data.rows())?);
    report.parameter("made_by_duckdb", data.made_by());

    let mut duckdb = PythonEngine::duckdb(&options.python)?;
    report.parameter("duckdb", duckdb.version.clone());
    for setting in AS_POSTGRES {
        duckdb.time(setting)?;
    }
    let memory = ("TARN_QUERY_MEMORY_BYTES", options.query_memory.as_str());
    let variables = [&MEASURING[..], &[memory]].concat();
    let server = ServerProcess::start_with(options.tarn.as_deref(), &scratch.path().join("data"), &variables).await?;
    server.execute(&format!("SET statement_timeout = '{}s'", options.timeout)).await?;
    for (table, folder) in data.tables() {
        let files = quoted(&folder.join("*.parquet"));
        duckdb.time(&format!("CREATE VIEW {table} AS SELECT * FROM read_parquet({files})"))?;
        server.execute(&format!("ATTACH {} AS {table}", quoted(&folder))).await?;
    }

    let mut summary = Summary::default();
    for (number, sql) in data.queries().filter(|(number, _)| options.is_asked(*number)) {
        summary.add(number, one(options, &server, &mut duckdb, sql).await?);
    }
    summary.report(&mut report);
    report.figure("server_peak_rss_mb", "MiB", vec![server.peak_rss_mb()?]);
    let wrong: Vec<String> = summary.wrong().map(|(number, why)| format!("q{number:02}: {why}")).collect();
    if options.check && !wrong.is_empty() {
        bail!("{} answers are wrong or missing:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(report)
}

/// The first run of each side is judged; with `--check` it is the only one.
async fn one(options: &TpcdsOptions, server: &ServerProcess, duckdb: &mut PythonEngine, sql: &str) -> Result<Query> {
    let mut query = Query::default();
    let (their_ms, theirs) = duckdb.timed_cells(sql)?;
    let started = Instant::now();
    let answer = server.rows(sql).await;
    let our_ms = ms_since(started);
    let judged = match answer {
        Ok(ours) => judge(server, duckdb, sql, &ours, &theirs).await,
        Err(error) => Err(error),
    };
    if let Err(error) = judged {
        query.wrong = Some(in_a_line(&error, sql));
    }
    if options.check || query.wrong.is_some() {
        (query.ours, query.theirs) = (vec![our_ms], vec![their_ms]);
        return Ok(query);
    }
    for _ in 0..options.runs {
        query.ours.push(server.time(sql).await?);
        query.theirs.push(duckdb.time(sql)?.0);
    }
    Ok(query)
}

/// The error with its causes, without the query, whole or without its limit.
fn in_a_line(error: &anyhow::Error, sql: &str) -> String {
    let causes: Vec<String> =
        error.chain().map(|cause| cause.to_string()).filter(|text| !sql.starts_with(text.as_str())).collect();
    causes.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}
