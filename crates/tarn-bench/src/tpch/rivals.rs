//! How long do DuckDB and ClickHouse take for the same queries, on the lake's own files on the local disk?
//!
//! Each in a process of its own with its defaults, timed inside, all rows fetched. The first run of each query does not
//! count.

use std::path::Path;

use anyhow::{Result, ensure};

use super::options::TpchOptions;
use super::progress;
use super::summary::Summary;
use super::workspace::{Caches, Lake, Workspace};
use crate::python::PythonEngine;
use crate::report::Report;

/// DuckDB always, ClickHouse where there is a Python for it. A query that one cannot run is told on stderr and left
/// out.
pub async fn measure(
    options: &TpchOptions,
    workspace: &Workspace,
    summary: &mut Summary,
    report: &mut Report,
) -> Result<()> {
    let server = workspace.start(options, Lake::Near, Caches::Off).await?;
    let tables = workspace.files(&server).await?;
    server.stop().await?;
    let mut duckdb = PythonEngine::duckdb(&options.python)?;
    report.parameter("duckdb", duckdb.version.clone());
    for (name, folder) in &tables {
        duckdb.time(&format!("CREATE VIEW {name} AS SELECT * FROM read_parquet({})", files_of(folder)))?;
    }
    run(options, "duckdb", &mut duckdb, summary)?;
    drop(duckdb);
    let Some(python) = &options.python_chdb else {
        eprintln!("ClickHouse is left out: --python-chdb names no Python");
        return Ok(());
    };
    let mut clickhouse = PythonEngine::clickhouse(python)?;
    report.parameter("clickhouse", clickhouse.version.clone());
    // As the standard has it: a row without a match has NULLs, not defaults.
    clickhouse.time("SET join_use_nulls = 1")?;
    for (name, folder) in &tables {
        clickhouse.time(&format!("CREATE VIEW {name} AS SELECT * FROM file({}, Parquet)", files_of(folder)))?;
    }
    run(options, "clickhouse", &mut clickhouse, summary)
}

fn run(options: &TpchOptions, name: &'static str, engine: &mut PythonEngine, summary: &mut Summary) -> Result<()> {
    let queries: Vec<_> = options.asked().collect();
    let bar = progress::bar(name, queries.len() as u64)?;
    for query in queries {
        bar.set_message(query.name());
        let sql = query.sql(options.sf);
        for round in 0..=options.rounds {
            let (ms, n_rows) = match engine.time(&sql) {
                Ok(answer) => answer,
                Err(error) => {
                    bar.suspend(|| eprintln!("{}: {error:#}", query.name()));
                    break;
                }
            };
            let expected = summary.n_rows(query.number);
            ensure!(
                expected.is_none_or(|n| n == n_rows),
                "{}: {name} has {n_rows} rows, not {expected:?}",
                query.name()
            );
            if round > 0 {
                summary.add_rival(query.number, name, ms);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

fn files_of(folder: &Path) -> String {
    format!("'{}'", folder.join("*.parquet").display().to_string().replace('\'', "''"))
}
