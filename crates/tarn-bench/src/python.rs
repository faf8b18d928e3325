//! The other sides that live in Python: DuckDB and ClickHouse (chdb), each in a process of its own, asked one statement
//! at a time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::json;

/// Reads a JSON object per line, runs its `sql`, answers with milliseconds (measured inside, all rows fetched), the
/// number of rows, and with `cells` the rows: null, floats as numbers, everything else as text.
const DUCKDB: &str = "
import duckdb
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
connection.execute('SET enable_progress_bar = false')
try:
    import duckdb_extension_httpfs, glob
    found = glob.glob(os.path.join(os.path.dirname(duckdb_extension_httpfs.__file__), 'extensions', '*', 'httpfs.duckdb_extension'))
    connection.execute('LOAD ' + repr(found[0]))
except ImportError:
    pass
version = duckdb.__version__
def fetch(sql):
    return connection.execute(sql).fetchall()
";

/// DuckDB with its generator of TPC-DS.
const TPCDS: &str = "
import duckdb, duckdb_extension_tpcds, glob
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
connection.execute('SET enable_progress_bar = false')
found = glob.glob(os.path.join(os.path.dirname(duckdb_extension_tpcds.__file__), 'extensions', '*', 'tpcds.duckdb_extension'))
connection.execute('LOAD ' + repr(found[0]))
version = duckdb.__version__
def fetch(sql):
    return connection.execute(sql).fetchall()
";

const CLICKHOUSE: &str = "
import chdb
from chdb import session
connection = session.Session()
version = getattr(chdb, '__version__', '?') + ', ClickHouse ' + getattr(chdb, 'engine_version', '?')
def fetch(sql):
    answer = connection.query(sql, 'JSONCompactEachRow')
    return [json.loads(line) for line in (answer.bytes() or b'').splitlines()] if answer else []
";

/// Answers have standard output to themselves: what a library prints (a progress bar) goes to stderr.
const ANSWERS: &str = "
import sys, json, time, os
answers = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
";

const LOOP: &str = "
print(json.dumps({'version': version}), file=answers, flush=True)
def cell(value):
    return value if value is None or isinstance(value, float) else str(value)
for line in sys.stdin:
    try:
        asked = json.loads(line)
        started = time.perf_counter()
        rows = fetch(asked['sql'])
        ms = (time.perf_counter() - started) * 1e3
        cells = [[cell(value) for value in row] for row in rows] if asked['cells'] else []
        print(json.dumps({'ms': ms, 'rows': len(rows), 'cells': cells}), file=answers, flush=True)
    except Exception as error:
        print(json.dumps({'error': str(error)}), file=answers, flush=True)
";

/// A process that runs one statement at a time and times it.
pub struct PythonEngine {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub version: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatementTiming {
    version: Option<String>,
    ms: f64,
    rows: usize,
    cells: Vec<Vec<serde_json::Value>>,
    error: Option<String>,
}

impl PythonEngine {
    /// With extension httpfs, if that Python has it.
    pub fn duckdb(python: &Path) -> Result<PythonEngine> {
        let remedy = "import duckdb (make setup-tests installs it; --python names the Python)";
        Self::start("duckdb", python, DUCKDB, remedy)
    }

    /// With the functions `dsdgen` and `tpcds_queries`.
    pub fn tpcds(python: &Path) -> Result<PythonEngine> {
        let remedy = "import duckdb_extension_tpcds (make bench-tpcds installs it; --python-tpcds names the Python)";
        Self::start("the generator", python, TPCDS, remedy)
    }

    /// ClickHouse as the library chdb.
    pub fn clickhouse(python: &Path) -> Result<PythonEngine> {
        let remedy = "import chdb (make bench-tpch installs it; --python-chdb names the Python)";
        Self::start("clickhouse", python, CLICKHOUSE, remedy)
    }

    fn start(name: &'static str, python: &Path, driver: &str, remedy: &'static str) -> Result<PythonEngine> {
        let mut command = Command::new(python);
        let program = format!("{ANSWERS}\n{driver}\n{LOOP}");
        command.args(["-u", "-c", &program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {}", python.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { bail!("no pipe to Python") };
        let mut engine = PythonEngine { name, child, input, output: BufReader::new(output), version: String::new() };
        engine.version = engine.answer().context(remedy)?.version.unwrap_or_default();
        Ok(engine)
    }

    /// Milliseconds until all rows are fetched, and how many they are.
    pub fn time(&mut self, sql: &str) -> Result<(f64, usize)> {
        let answer = self.ask(sql, false)?;
        Ok((answer.ms, answer.rows))
    }

    /// The rows: null, floats as numbers, everything else as text.
    pub fn cells(&mut self, sql: &str) -> Result<Vec<Vec<serde_json::Value>>> {
        Ok(self.timed_cells(sql)?.1)
    }

    /// Milliseconds until all rows are fetched, and the rows.
    pub fn timed_cells(&mut self, sql: &str) -> Result<(f64, Vec<Vec<serde_json::Value>>)> {
        let answer = self.ask(sql, true)?;
        Ok((answer.ms, answer.cells))
    }

    fn ask(&mut self, sql: &str, cells: bool) -> Result<StatementTiming> {
        writeln!(self.input, "{}", json!({ "sql": sql, "cells": cells }))?;
        self.input.flush()?;
        let answer = self.answer()?;
        match answer.error {
            Some(error) => bail!("{}: {error}: {sql}", self.name),
            None => Ok(answer),
        }
    }

    fn answer(&mut self) -> Result<StatementTiming> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("Python ended");
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for PythonEngine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
