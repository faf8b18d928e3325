//! `tarn load`: files in. Each file is parsed here into Arrow batches of the table's schema while the batches before go
//! to the server, in COPY statements of up to a million rows.
//!
//! A bad line stops its file and is named by file, line and column; rows before it may be stored already. Loading again
//! with `--on-conflict skip` or `replace` is harmless for a table with a key: a row with the same key is there once. (A
//! table without one, or an append-only one, would keep both.) With `--idempotency-key` rows that are stored are left
//! out whatever the table: each COPY has a key of its own, made of that one, the file's name and its number.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use clap::{Args, ValueEnum};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::client::{Connection, Target, runtime};
use super::copy::{Copy, quoted, quoted_table};
use super::output::{fetch, grouped};
use super::parse::{self, sql_name};

/// Bring files into a table: CSV with a header, NDJSON or Parquet
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn load trips.csv --table trips
  tarn load 2026-*.parquet --table trips --create --key city,at    columns from the first file
  zcat trips.ndjson.gz | tarn load - --format ndjson --table trips
  tarn load trips.csv --table trips --on-conflict skip             once more, after it broke off
  tarn load log.csv --table log --idempotency-key monday           the same command goes on where it broke off

Columns are matched by name; columns that a file lacks become NULL or their default. An empty
CSV field is NULL, except in a text column that is NOT NULL. A bad line is named by file, line
and column, and ends the load of that file.")]
pub struct Load {
    #[command(flatten)]
    target: Target,
    /// Files to load; - is stdin (then say --format)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The table, or SCHEMA.TABLE
    #[arg(long, short)]
    table: String,
    /// What the files are [default: by their names' endings]
    #[arg(long, value_enum)]
    format: Option<FileKind>,
    /// What separates the fields of a CSV line
    #[arg(long, default_value = ",")]
    delimiter: char,
    /// Create the table from the first file's columns (needs --key)
    #[arg(long, requires = "key")]
    create: bool,
    /// Primary key of the table to create: columns, separated by commas
    #[arg(long, value_delimiter = ',')]
    key: Vec<String>,
    /// What becomes of rows whose key is there: the load ends, or they are left out, or they replace those that are
    /// there
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnConflict::Error)]
    on_conflict: OnConflict,
    /// Names this load: the same command with the same key goes on where it broke off, and stores no row twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Files loaded at once, each on a connection of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Rows of one batch on the wire
    #[arg(long, default_value_t = 32_768, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_rows: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileKind {
    Csv,
    Ndjson,
    Parquet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnConflict {
    Error,
    Skip,
    Replace,
}

/// One file to load.
#[derive(Clone)]
struct InputFile {
    path: PathBuf,
    kind: FileKind,
    delimiter: u8,
    batch_rows: usize,
    on_conflict: OnConflict,
    /// Of the whole load.
    key: Option<String>,
}

/// A parsed batch, and how much of the file has been read when it was.
struct ParsedBatch {
    batch: RecordBatch,
    progress: u64,
}

impl Load {
    /// Loads one file after the other; an error says how many rows are in already.
    pub fn run(self) -> Result<()> {
        let delimiter = u8::try_from(self.delimiter).context("--delimiter takes one ASCII character")?;
        let mut sources = Vec::new();
        for path in &self.files {
            let kind = self
                .format
                .or_else(|| kind_of(path))
                .with_context(|| format!("{}: what is it? say --format csv, ndjson or parquet", path.display()))?;
            let (batch_rows, on_conflict) = (self.batch_rows as usize, self.on_conflict);
            let key = self.idempotency_key.clone();
            sources.push(InputFile { path: path.clone(), kind, delimiter, batch_rows, on_conflict, key });
        }
        runtime()?.block_on(self.load(sources))
    }

    async fn load(&self, sources: Vec<InputFile>) -> Result<()> {
        let connection = self.target.connect().await?;
        if self.create {
            self.create_table(&connection, &sources[0]).await?;
        }
        let select = format!("SELECT * FROM {} LIMIT 0", quoted_table(&self.table));
        let schema = fetch(&connection, &select, |_| Ok(())).await?;
        drop(connection);

        let started = Instant::now();
        let bars = MultiProgress::with_draw_target(if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        });
        let free = Arc::new(Semaphore::new(self.jobs.into()));
        let mut jobs = JoinSet::new();
        for source in sources {
            let (target, table, schema, bars, free) =
                (self.target.clone(), self.table.clone(), schema.clone(), bars.clone(), free.clone());
            jobs.spawn(async move {
                let _permit = free.acquire_owned().await?;
                let connection = target.connect().await?;
                connection.cancellable(load_file(&connection, &table, source, schema, &bars)).await
            });
        }
        let mut total = 0;
        while let Some(rows) = jobs.join_next().await {
            total += rows.context("a load ended unexpectedly")??;
        }
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "loaded {} rows in {seconds:.1} s ({} rows/s)",
            grouped(total),
            grouped((total as f64 / seconds.max(1e-9)) as u64)
        );
        Ok(())
    }

    async fn create_table(&self, connection: &Connection, source: &InputFile) -> Result<()> {
        let schema = source.infer_schema().with_context(|| format!("read the columns of {}", source.path.display()))?;
        let mut columns: Vec<String> = Vec::new();
        for field in schema.fields() {
            let not_null = if self.key.contains(field.name()) { " NOT NULL" } else { "" };
            columns.push(format!("{} {}{not_null}", quoted(field.name()), sql_name(field.data_type())));
        }
        let key: Vec<String> = self.key.iter().map(|name| quoted(name)).collect();
        let sql = format!(
            "CREATE TABLE {} ({}, PRIMARY KEY ({}))",
            quoted_table(&self.table),
            columns.join(", "),
            key.join(", ")
        );
        eprintln!("{sql}");
        connection.execute(&sql).await.map(drop)
    }
}

fn kind_of(path: &Path) -> Option<FileKind> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "csv" | "tsv" => Some(FileKind::Csv),
        "ndjson" | "jsonl" | "json" => Some(FileKind::Ndjson),
        "parquet" => Some(FileKind::Parquet),
        _ => None,
    }
}

/// Parses on a thread of its own while this task sends. Returns the acknowledged rows.
async fn load_file(
    connection: &Connection,
    table: &str,
    source: InputFile,
    schema: SchemaRef,
    bars: &MultiProgress,
) -> Result<u64> {
    let bar = bars.add(source.bar()?);
    let (batches, mut parsed) = mpsc::channel::<ParsedBatch>(4);
    let (name, on_conflict) = (source.name(), source.on_conflict);
    let key = source.key.as_ref().map(|key| format!("{key} {name}"));
    let again = if key.is_some() { AGAIN_NAMED } else { AGAIN };
    let parser = tokio::task::spawn_blocking(move || {
        source.parse(&schema, |parsed| batches.blocking_send(parsed).map_err(|_| anyhow::anyhow!("the load has ended")))
    });
    let mut copy: Option<Copy<'_>> = None;
    let mut sent_rows = 0;
    while let Some(ParsedBatch { batch, progress }) = parsed.recv().await {
        let copy = copy.get_or_insert_with(|| {
            let copy = Copy::new(connection, table, batch.schema());
            let copy = match &key {
                Some(key) => copy.named(key.clone()),
                None => copy,
            };
            match on_conflict {
                // What a server does by itself; of tables without a key it takes no other word.
                OnConflict::Error => copy,
                OnConflict::Skip => copy.on_conflict("skip"),
                OnConflict::Replace => copy.on_conflict("replace"),
            }
        });
        copy.send(&batch).await.with_context(|| rows_of(&name, copy.n_acknowledged(), again))?;
        sent_rows += batch.num_rows() as u64;
        bar.set_position(progress);
        bar.set_message(format!(
            "{} rows, {} rows/s",
            grouped(sent_rows),
            grouped((sent_rows as f64 / bar.elapsed().as_secs_f64().max(1e-9)) as u64)
        ));
    }
    let outcome = parser.await.context("the parser ended unexpectedly")?;
    let acknowledged = match copy {
        // The last statement is not ended: with the line corrected it is another one, of the same key.
        Some(copy) if outcome.is_err() && key.is_some() => copy.n_acknowledged(),
        Some(copy) => {
            let before = copy.n_acknowledged();
            copy.finish().await.with_context(|| rows_of(&name, before, again))?
        }
        None => 0,
    };
    bar.finish();
    outcome.with_context(|| {
        format!("{} rows before it are stored; correct the line and load again{again}", grouped(acknowledged))
    })?;
    Ok(acknowledged)
}

/// Of a file that was loaded in part, rows are there.
const AGAIN: &str = " with --on-conflict skip or --on-conflict replace";

/// A load with a key leaves out what is there.
const AGAIN_NAMED: &str = " with the same --idempotency-key";

fn rows_of(name: &str, acknowledged: u64, again: &str) -> String {
    format!(
        "{name}: the server refused rows after the first {}; some of them may be stored all the same: load again{again}",
        grouped(acknowledged)
    )
}

impl InputFile {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn open(&self) -> Result<Box<dyn Read>> {
        if self.path.as_os_str() == "-" {
            return Ok(Box::new(std::io::stdin()));
        }
        Ok(Box::new(self.open_file()?))
    }

    fn open_file(&self) -> Result<File> {
        File::open(&self.path).with_context(|| format!("open {}", self.path.display()))
    }

    /// A bar over the file's bytes, or over its rows for Parquet, or a spinner for stdin.
    fn bar(&self) -> Result<ProgressBar> {
        let length = match self.kind {
            _ if self.path.as_os_str() == "-" => None,
            FileKind::Parquet => {
                Some(ParquetRecordBatchReaderBuilder::try_new(self.open_file()?)?.metadata().file_metadata().num_rows()
                    as u64)
            }
            _ => Some(self.open_file()?.metadata()?.len()),
        };
        let name = self.path.file_name().map_or_else(|| "stdin".into(), |name| name.to_string_lossy().into_owned());
        let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let style = if length.is_some() {
            "{prefix} {bar:30} {percent:>3} % {msg} eta {eta}"
        } else {
            "{prefix} {spinner} {msg}"
        };
        bar.set_style(ProgressStyle::with_template(style)?);
        bar.set_prefix(name);
        Ok(bar)
    }

    /// Reads the file from start to end; blocks.
    fn parse(&self, schema: &SchemaRef, mut take: impl FnMut(ParsedBatch) -> Result<()>) -> Result<()> {
        let name = self.name();
        let take = |batch, progress| take(ParsedBatch { batch, progress });
        match self.kind {
            FileKind::Csv => parse::csv(&name, self.open()?, schema, self.batch_rows, self.delimiter, take),
            FileKind::Ndjson => parse::ndjson(&name, self.open()?, schema, self.batch_rows, take),
            FileKind::Parquet => self.parse_parquet(schema, take),
        }
    }

    /// The file's own types are sent; the server converts them safely and refuses what does not fit.
    fn parse_parquet(&self, schema: &SchemaRef, mut take: impl FnMut(RecordBatch, u64) -> Result<()>) -> Result<()> {
        let name = self.name();
        let builder = ParquetRecordBatchReaderBuilder::try_new(self.open_file()?)
            .with_context(|| format!("read the footer of {name}"))?;
        if let Some(stranger) = builder.schema().fields().iter().find(|field| schema.index_of(field.name()).is_err()) {
            bail!("{name}: column {}: the table has no such column", stranger.name());
        }
        let mut rows = 0;
        for batch in builder.with_batch_size(self.batch_rows).build()? {
            let batch = batch.with_context(|| format!("{name}, after row {rows}"))?;
            rows += batch.num_rows() as u64;
            take(batch, rows)?;
        }
        Ok(())
    }

    /// The columns of the file, for --create. Text formats are judged by their first 1,000 rows.
    fn infer_schema(&self) -> Result<Schema> {
        if self.path.as_os_str() == "-" {
            bail!("--create needs a file, not stdin");
        }
        Ok(match self.kind {
            FileKind::Parquet => ParquetRecordBatchReaderBuilder::try_new(self.open_file()?)?.schema().as_ref().clone(),
            FileKind::Csv => {
                let format = arrow::csv::reader::Format::default().with_header(true).with_delimiter(self.delimiter);
                format.infer_schema(self.open_file()?, Some(1000))?.0
            }
            FileKind::Ndjson => {
                arrow::json::reader::infer_json_schema(std::io::BufReader::new(self.open_file()?), Some(1000))?.0
            }
        })
    }
}
