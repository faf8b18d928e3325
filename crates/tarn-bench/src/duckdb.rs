//! The other side: DuckDB in a Python process of its own, on the same Parquet files, asked one statement at a time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Reads a JSON text per line, runs it, answers with milliseconds (measured inside, all rows fetched) and the rows.
const DRIVER: &str = "
import sys, json, time
import duckdb
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
try:
    import duckdb_extension_httpfs, glob, os
    found = glob.glob(os.path.join(os.path.dirname(duckdb_extension_httpfs.__file__), 'extensions', '*', 'httpfs.duckdb_extension'))
    connection.execute('LOAD ' + repr(found[0]))
except ImportError:
    pass
print(json.dumps({'version': duckdb.__version__}), flush=True)
for line in sys.stdin:
    try:
        started = time.perf_counter()
        rows = connection.execute(json.loads(line)).fetchall()
        print(json.dumps({'ms': (time.perf_counter() - started) * 1e3, 'rows': len(rows)}), flush=True)
    except Exception as error:
        print(json.dumps({'error': str(error)}), flush=True)
";

pub struct DuckDb {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub version: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Answer {
    version: Option<String>,
    ms: f64,
    rows: usize,
    error: Option<String>,
}

impl DuckDb {
    /// With extension httpfs, if that Python has it.
    pub fn start(python: &Path) -> Result<DuckDb> {
        let mut command = Command::new(python);
        command.args(["-u", "-c", DRIVER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {}", python.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { bail!("no pipe to Python") };
        let mut duckdb = DuckDb { child, input, output: BufReader::new(output), version: String::new() };
        let hello =
            duckdb.answer().context("import duckdb (make setup-tests installs it; --python names the Python)")?;
        duckdb.version = hello.version.unwrap_or_default();
        Ok(duckdb)
    }

    /// Milliseconds until all rows are fetched, and how many they are.
    pub fn time(&mut self, sql: &str) -> Result<(f64, usize)> {
        writeln!(self.input, "{}", serde_json::to_string(sql)?)?;
        self.input.flush()?;
        let answer = self.answer()?;
        match answer.error {
            Some(error) => bail!("duckdb: {error}: {sql}"),
            None => Ok((answer.ms, answer.rows)),
        }
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("Python ended");
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for DuckDb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
