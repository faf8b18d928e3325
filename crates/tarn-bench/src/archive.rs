//! `tarn-bench archive`: one line in millions, in files that Tarn did not write; beside DuckDB and DataFusion on the
//! same files.
//!
//! The archive is attached, and then asked for a rare word and for a trace id, on the local disk and in a store that
//! answers each request after 30 ms. Tarn is timed over the Postgres wire, DuckDB in its process in Python, DataFusion
//! in this one. They take turns, each run asks for another word, and the first run of each does not count. The others
//! have what the files bring: footers, statistics, and Parquet's blooms on the trace id. Ratios are the other over
//! Tarn: above 1 Tarn is faster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::far_store::{CREDENTIALS, FarStore, Line, REGION};
use crate::logs::{Archive, BUCKET};
use crate::others::DataFusion;
use crate::python::PythonEngine;
use crate::report::Report;
use crate::scratch::scratch;
use crate::server::ServerProcess;

/// What is asked of that store is counted, and the others keep nothing near: Tarn does not either.
const UNCACHED: [(&str, &str); 2] = [("TARN_CACHE_PAGES", "off"), ("TARN_CACHE_FRAGMENTS", "off")];

/// Of that store.
const DELAY: Duration = Duration::from_millis(30);

#[derive(Args, Debug, Clone)]
pub struct ArchiveOptions {
    /// Parquet files of the archive [default: 2,000; quick 60]
    #[arg(long)]
    pub files: Option<u64>,
    /// Log lines of each file [default: 10,000; quick 1,000]
    #[arg(long)]
    pub rows: Option<u64>,
    /// A small archive: whether it runs, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Runs of each side of each figure; the value is their median
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// The same in the store that is far away, where others take minutes
    #[arg(long, default_value_t = 2)]
    pub remote_runs: usize,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    pub json: bool,
    /// The server's program [default: tarn beside this program]
    #[arg(long, value_name = "FILE")]
    pub tarn: Option<PathBuf>,
    /// A Python that has DuckDB (make setup-tests makes one)
    #[arg(long, env = "TARN_PYTHON", default_value = "python3", value_name = "FILE")]
    pub python: PathBuf,
    /// One whose DuckDB has its extension httpfs from PyPI [default: DuckDB is left out of the store that is far away]
    #[arg(long, env = "TARN_PYTHON_HTTPFS", value_name = "FILE")]
    pub python_httpfs: Option<PathBuf>,
    /// Where to keep the archive and the server's folder while running [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// A question in the words of Tarn and of the others.
struct Question {
    name: &'static str,
    ours: fn(&Archive, u64) -> String,
    theirs: fn(&Archive, u64) -> String,
}

const LINES: &str = "SELECT ts, trace_id, status, body FROM logs WHERE";

const QUESTIONS: [Question; 2] = [
    Question {
        name: "token",
        ours: |_, n| format!("{LINES} matches(body, '{}')", Archive::needle(n)),
        theirs: |_, n| format!("{LINES} body LIKE '%{}%'", Archive::needle(n)),
    },
    Question {
        name: "equality",
        ours: |archive, n| format!("{LINES} trace_id = '{}'", archive.trace(n)),
        theirs: |archive, n| format!("{LINES} trace_id = '{}'", archive.trace(n)),
    },
];

/// Makes the archive in a folder of its own, and measures.
pub async fn run(options: &ArchiveOptions) -> Result<Report> {
    let scratch = scratch(options.scratch.as_deref())?;
    let mut report = Report::new("archive");
    measure(options, scratch.path(), &mut report).await?;
    Ok(report)
}

/// As [`run`], in a folder and for a report that others use, too.
pub async fn measure(options: &ArchiveOptions, scratch: &Path, report: &mut Report) -> Result<()> {
    let (n_files, rows_per_file) = if options.quick { (60, 1_000) } else { (2_000, 10_000) };
    let archive =
        Archive { n_files: options.files.unwrap_or(n_files), rows_per_file: options.rows.unwrap_or(rows_per_file) };
    report.parameter("archive_files", archive.n_files);
    report.parameter("archive_rows_per_file", archive.rows_per_file);
    report.parameter("archive_runs", options.runs);
    report.parameter("archive_remote_runs", options.remote_runs);
    report.parameter("archive_remote_delay_ms", DELAY.as_millis() as u64);
    let files = scratch.join(BUCKET);
    eprintln!("writing {} files of {} lines …", archive.n_files, archive.rows_per_file);
    archive.write(&files, options.runs.max(options.remote_runs) as u64 + 1)?;

    let server = ServerProcess::start_with(options.tarn.as_deref(), &scratch.join("data"), &[]).await?;
    attach(&server, &files.display().to_string(), "archive", &archive, report).await?;
    let mut duckdb = PythonEngine::duckdb(&options.python)?;
    report.parameter("duckdb", duckdb.version.clone());
    duckdb.time(&format!("CREATE VIEW logs AS SELECT * FROM read_parquet('{}/**/*.parquet')", files.display()))?;
    let datafusion = DataFusion::start(&format!("{}/", files.display()), None).await?;
    for question in &QUESTIONS {
        let others = OtherEngines { duckdb: Some(&mut duckdb), datafusion: &datafusion };
        ask(&server, others, question, &archive, "archive", options.runs, report).await?;
    }
    drop((server, duckdb, datafusion));
    remote(options, scratch, &archive, report).await
}

/// The same in the store that is far away.
async fn remote(options: &ArchiveOptions, scratch: &Path, archive: &Archive, report: &mut Report) -> Result<()> {
    let store = FarStore::serve(scratch, Line { latency: DELAY, bytes_per_s: 0 }).await?;
    let mut variables = store.variables().to_vec();
    variables.extend(UNCACHED);
    let server = ServerProcess::start_with(options.tarn.as_deref(), &scratch.join("far"), &variables).await?;
    attach(&server, &format!("s3://{BUCKET}/"), "archive_remote", archive, report).await?;
    let datafusion = DataFusion::start(&format!("s3://{BUCKET}/"), Some(&store.endpoint)).await?;
    let mut duckdb = match &options.python_httpfs {
        None => {
            eprintln!("DuckDB is left out of the store that is far away: --python-httpfs names no Python");
            None
        }
        Some(python) => {
            let mut duckdb = PythonEngine::duckdb(python)?;
            report.parameter("duckdb_remote", duckdb.version.clone());
            for statement in duckdb_over_http(&store.endpoint) {
                duckdb.time(&statement)?;
            }
            Some(duckdb)
        }
    };
    for question in &QUESTIONS {
        store.take_asked();
        server.rows(&(question.ours)(archive, 0)).await?;
        let asked = store.take_asked();
        let name = question.name;
        report.figure(&format!("archive_remote_{name}_files"), "files", vec![asked.objects.len() as f64]);
        report.figure(&format!("archive_remote_{name}_requests"), "requests", vec![asked.requests() as f64]);
        report.figure(&format!("archive_remote_{name}_bytes"), "bytes", vec![asked.bytes as f64]);
        let others = OtherEngines { duckdb: duckdb.as_mut(), datafusion: &datafusion };
        ask(&server, others, question, archive, "archive_remote", options.remote_runs, report).await?;
    }
    Ok(())
}

fn duckdb_over_http(endpoint: &str) -> [String; 2] {
    let host = endpoint.trim_start_matches("http://");
    [
        format!(
            "CREATE SECRET (TYPE s3, PROVIDER config, KEY_ID '{}', SECRET '{}', REGION '{REGION}', ENDPOINT '{host}', USE_SSL false, URL_STYLE 'path')",
            CREDENTIALS.0, CREDENTIALS.1
        ),
        format!("CREATE VIEW logs AS SELECT * FROM read_parquet('s3://{BUCKET}/**/*.parquet')"),
    ]
}

async fn attach(server: &ServerProcess, url: &str, name: &str, archive: &Archive, report: &mut Report) -> Result<()> {
    let started = Instant::now();
    let with = "hour_from = 'dt=…/hr=…', time_column = 'ts', tokens = 'body', bloom = 'trace_id'";
    server.execute(&format!("ATTACH '{url}' AS logs WITH ({with})")).await?;
    report.figure(&format!("{name}_attach_s"), "s", vec![started.elapsed().as_secs_f64()]);
    let counted = server.rows("SELECT count(*) FROM logs").await?;
    let expected = (archive.n_files * archive.rows_per_file).to_string();
    ensure!(counted == [[expected.clone()]], "{counted:?} lines are attached, want {expected}");
    Ok(())
}

struct OtherEngines<'a> {
    duckdb: Option<&'a mut PythonEngine>,
    datafusion: &'a DataFusion,
}

async fn ask(
    server: &ServerProcess,
    mut others: OtherEngines<'_>,
    question: &Question,
    archive: &Archive,
    prefix: &str,
    runs: usize,
    report: &mut Report,
) -> Result<()> {
    let name = format!("{prefix}_{}", question.name);
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut opened = Vec::new();
    for run in 0..=runs {
        let (ours, theirs) = ((question.ours)(archive, run as u64), (question.theirs)(archive, run as u64));
        let started = Instant::now();
        let rows = server.rows(&ours).await?.len();
        let mut of_run = vec![("tarn", started.elapsed().as_secs_f64() * 1e3)];
        ensure!(rows > 0, "{name}: nothing was found by {ours}");
        let (ms, n_rows) = others.datafusion.time(&theirs).await.with_context(|| name.clone())?;
        ensure!(rows == n_rows, "{name}: {rows} rows, DataFusion has {n_rows}");
        of_run.push(("datafusion", ms));
        if let Some(duckdb) = &mut others.duckdb {
            let (ms, n_rows) = duckdb.time(&theirs).with_context(|| name.clone())?;
            ensure!(rows == n_rows, "{name}: {rows} rows, DuckDB has {n_rows}");
            of_run.push(("duckdb", ms));
        }
        // The first run of each side warms up.
        if run > 0 {
            of_run.into_iter().for_each(|(side, ms)| times.entry(side).or_default().push(ms));
            opened.push(files_opened(server, &ours).await? / archive.n_files as f64 * 100.0);
        }
    }
    report.figure(&format!("{name}_files_opened"), "percent", opened);
    let ours = times.remove("tarn").unwrap_or_default();
    for (side, theirs) in times {
        let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
        report.figure(&format!("{name}_{side}_ms"), "ms", theirs);
        report.figure(&format!("{name}_vs_{side}"), "speed-up", ratios);
    }
    report.figure(&format!("{name}_ms"), "ms", ours);
    Ok(())
}

/// As the plan says it: `files=3/2000`.
async fn files_opened(server: &ServerProcess, sql: &str) -> Result<f64> {
    let plan = server.rows(&format!("EXPLAIN ANALYZE {sql}")).await?;
    let plan = plan.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join("\n");
    let found = plan.split([',', ' ', '[', ']']).find_map(|part| part.strip_prefix("files="));
    let opened = found.and_then(|files| files.split('/').next()?.parse().ok());
    opened.with_context(|| format!("the plan does not say how many files are read:\n{plan}"))
}
