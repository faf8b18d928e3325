//! The server under test: the shipped binary as a child process, and a client of it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::Common;
use crate::report::ms_since;

/// Rows of one COPY statement.
const STATEMENT_ROWS: usize = 1_000_000;

/// Of /proc: the kernel's interface has this unit wherever Linux runs.
const TICKS_PER_S: f64 = 100.0;

const STOP: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// The server's program: the one beside this, if none is named.
pub fn program(named: Option<&Path>) -> Result<PathBuf> {
    Ok(match named {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()?.with_file_name("tarn"),
    })
}

/// The child process; it is killed when this is dropped.
pub struct ServerProcess {
    child: Child,
    pub client: Client,
    pub data_dir: PathBuf,
}

impl ServerProcess {
    /// Starts `tarn serve` with its defaults on a folder of its own and connects.
    pub async fn start(common: &Common, data_dir: &Path) -> Result<ServerProcess> {
        Self::start_with(common.tarn.as_deref(), data_dir, &[]).await
    }

    /// The same of a program (the one beside this, if it is not named), with variables in its environment.
    pub async fn start_with(
        program: Option<&Path>,
        data_dir: &Path,
        variables: &[(&str, &str)],
    ) -> Result<ServerProcess> {
        let program = self::program(program)?;
        std::fs::create_dir_all(data_dir)?;
        let log = File::create(data_dir.join("server.log"))?;
        let mut command = Command::new(&program);
        command.args([
            "serve",
            "--stop-when-stdin-closes",
            "--pg-listen",
            "127.0.0.1:0",
            "--http-listen",
            "127.0.0.1:0",
            "--data-dir",
        ]);
        command.envs(variables.iter().copied());
        command.arg(data_dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let stdout = child.stdout.take().context("the server's stdout")?;
        let port = BufReader::new(stdout).lines().map_while(Result::ok).find_map(|line| port(&line));
        let Some(port) = port else {
            let _ = child.kill();
            bail!(
                "the server did not start:\n{}",
                std::fs::read_to_string(data_dir.join("server.log")).unwrap_or_default()
            )
        };
        let (client, connection) =
            tokio_postgres::connect(&format!("host=127.0.0.1 port={port} user=tarn dbname=tarn"), NoTls).await?;
        tokio::spawn(connection);
        Ok(ServerProcess { child, client, data_dir: data_dir.to_owned() })
    }

    /// All rows as text.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Vec<String>>> {
        let messages = self.client.simple_query(sql).await.with_context(|| sql.to_owned())?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|idx| row.get(idx).unwrap_or_default().to_owned()).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Runs a statement to its end; its rows are read and forgotten.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        self.rows(sql).await.map(drop)
    }

    /// Milliseconds until all rows of `sql` are here.
    pub async fn time(&self, sql: &str) -> Result<f64> {
        let started = Instant::now();
        self.rows(sql).await?;
        Ok(ms_since(started))
    }

    /// Sends batches of new rows through COPY; returns the rows that the server acknowledged.
    pub async fn copy(
        &self,
        table: &str,
        schema: &SchemaRef,
        batches: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<u64> {
        self.copy_by(&format!("COPY {table} FROM STDIN WITH (FORMAT arrow)"), schema, batches).await
    }

    /// As [`ServerProcess::copy`]; rows whose key is there are replaced.
    pub async fn replace(
        &self,
        table: &str,
        schema: &SchemaRef,
        batches: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<u64> {
        let sql = format!("COPY {table} FROM STDIN WITH (FORMAT arrow, on_conflict = replace)");
        self.copy_by(&sql, schema, batches).await
    }

    async fn copy_by(
        &self,
        sql: &str,
        schema: &SchemaRef,
        batches: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<u64> {
        let mut batches = batches.peekable();
        let mut acknowledged = 0;
        while batches.peek().is_some() {
            let sink = self.client.copy_in::<_, Bytes>(sql).await?;
            let mut sink = Box::pin(sink);
            let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
            let mut sent = 0;
            while sent < STATEMENT_ROWS
                && let Some(batch) = batches.next()
            {
                let batch = batch?;
                sent += batch.num_rows();
                writer.write(&batch)?;
                sink.send(Bytes::from(std::mem::take(writer.get_mut()))).await?;
            }
            writer.finish()?;
            sink.send(Bytes::from(std::mem::take(writer.get_mut()))).await?;
            acknowledged += sink.as_mut().finish().await?;
        }
        Ok(acknowledged)
    }

    /// CPU time of the server so far, in seconds, to a hundredth: all its threads, user and system.
    pub fn cpu_s(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name in parentheses, which may have spaces, come the fields from the third on; 14 and 15 are
        // ticks.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
        ensure!(ticks.len() == 2, "no CPU time in /proc");
        Ok(ticks.iter().sum::<f64>() / TICKS_PER_S)
    }

    /// Asks it to stop and waits until it has: the next start has no log to replay.
    pub async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let mut waited = Duration::ZERO;
        while self.child.try_wait()?.is_none() {
            ensure!(waited < STOP, "the server has not stopped in {} s", STOP.as_secs());
            tokio::time::sleep(POLL).await;
            waited += POLL;
        }
        Ok(())
    }

    /// The most memory that the server has had resident since it started.
    pub fn peak_rss_mb(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in /proc")?;
        let kb: f64 = line.split_whitespace().next().context("VmHWM has no value")?.parse()?;
        Ok(kb / 1024.0)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn port(line: &str) -> Option<u16> {
    line.strip_prefix("ready postgres=")?.split_whitespace().next()?.rsplit(':').next()?.parse().ok()
}
