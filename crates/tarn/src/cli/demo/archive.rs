//! The demo's archive: Parquet log files that Tarn did not write, attached and searched. The files are made here, a
//! folder an hour, as a log shipper would leave them; then the server is asked the same with and without what it knows
//! of them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use indicatif::ProgressBar;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::cli::client::Connection;
use crate::cli::output::{grouped, table};

const HOURS: u64 = 20;
const FILES_PER_HOUR: u64 = 10;
const ROWS_PER_FILE: u64 = 5_000;
/// Of the whole archive.
pub const FILES: u64 = HOURS * FILES_PER_HOUR;
/// Of the whole archive.
pub const ROWS: u64 = FILES * ROWS_PER_FILE;

/// One line of all is about this, wherever the dice put it.
const RARE: &str = "breaker tripped on rack 7f3a";
/// 2026-11-01T00:00Z, in microseconds.
const FIRST_US: i64 = 1_793_491_200_000_000;
const HOUR_US: i64 = 3_600_000_000;

/// Questions of whoever is on call, and how many rows answer them. The last one looks at everything, whoever asks.
fn questions() -> [(&'static str, String); 4] {
    let (file, row) = rare_place();
    [
        ("words", "SELECT at, service, body FROM logs WHERE matches(body, 'breaker tripped 7f3a')".to_owned()),
        ("one trace", format!("SELECT at, service, body FROM logs WHERE trace_id = '{}'", trace_id(file, row))),
        (
            "words in an hour",
            "SELECT count(*) FROM logs WHERE matches(body, 'timed out') AND at >= '2026-11-01 07:00Z' AND at < '2026-11-01 08:00Z'"
                .to_owned(),
        ),
        ("a common word", "SELECT service, count(*) FROM logs WHERE matches(body, 'refused') GROUP BY service ORDER BY 1".to_owned()),
    ]
}

/// Attaches `folder`, which this makes, and shows what a search opens.
pub async fn tour(connection: &Connection, folder: &Path) -> Result<()> {
    let started = Instant::now();
    let bytes = make(folder).await?;
    say!(
        "{FILES} Parquet files of another writer, {} log lines, {} MiB, made in {:.1} s",
        grouped(ROWS),
        bytes >> 20,
        started.elapsed().as_secs_f64()
    )?;
    let attach = format!(
        "ATTACH '{}' AS logs WITH (hour_from = 'dt=…/hr=…', tokens = 'body', bloom = 'trace_id')",
        folder.display().to_string().replace('\'', "''")
    );
    say!("{attach}")?;
    let started = Instant::now();
    connection.execute(&attach).await?;
    let attached = connection.value("SELECT count(*) FROM tarn.files WHERE table_name = 'logs'").await?;
    say!(
        "{attached} files attached in {:.1} s: footers, words and trace ids were read once",
        started.elapsed().as_secs_f64()
    )?;
    ensure!(attached == FILES.to_string(), "{attached} of {FILES} files are attached");

    let mut cells = Vec::new();
    for (name, sql) in questions() {
        let (known, known_ms) = ask(connection, &sql).await?;
        let opened = opened(connection, &sql).await?;
        connection.execute("SET tarn.pruning = 'off'").await?;
        let asked = ask(connection, &sql).await;
        connection.execute("SET tarn.pruning = 'on'").await?;
        let (all, all_ms) = asked?;
        ensure!(known == all, "{name}: the answer differs when every file is read");
        let row = [
            name.to_owned(),
            grouped(known.len() as u64),
            opened,
            format!("{known_ms:.1} ms"),
            format!("{all_ms:.0} ms"),
        ];
        cells.push(row.map(Some).to_vec());
    }
    let header = ["search", "rows", "files opened", "time", "time reading every file"].map(str::to_owned);
    say!("{}", table(&header, &cells))?;
    for (name, sql) in questions() {
        say!("  {name:<20} {sql}")?;
    }
    say!(
        "The answers are the same whether files are left out or not. The files stay where they are: DETACH TABLE logs forgets them."
    )?;
    Ok(())
}

/// The answer, and the median of three times in milliseconds.
async fn ask(connection: &Connection, sql: &str) -> Result<(Vec<Vec<Option<String>>>, f64)> {
    let mut times = Vec::new();
    let mut answer = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        answer = connection.rows(sql).await?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((answer, times[1]))
}

/// `1 of 200`, as EXPLAIN counts them.
async fn opened(connection: &Connection, sql: &str) -> Result<String> {
    let rows = connection.rows(&format!("EXPLAIN {sql}")).await?;
    let text: Vec<String> = rows.into_iter().flatten().flatten().collect();
    text.iter().find_map(|plan| files_kept(plan)).context("EXPLAIN does not say which files are read")
}

/// From `… files=1/200, …`.
fn files_kept(plan: &str) -> Option<String> {
    let (_, rest) = plan.split_once(" files=")?;
    let (kept, total) = rest.split(',').next()?.split_once('/')?;
    Some(format!("{kept} of {total}"))
}

/// Writes the files on a thread of its own. Answers their bytes.
async fn make(folder: &Path) -> Result<u64> {
    let folder = folder.to_owned();
    let bar = if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        ProgressBar::new(FILES).with_message("making log files")
    } else {
        ProgressBar::hidden()
    };
    let shown = bar.clone();
    let made = tokio::task::spawn_blocking(move || -> Result<u64> {
        let mut bytes = 0;
        for file in 0..FILES {
            let hour = file / FILES_PER_HOUR;
            let dir = folder.join(format!("dt=2026-11-01/hr={hour:02}"));
            std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
            let path = dir.join(format!("shipper-{:02}.parquet", file % FILES_PER_HOUR));
            write(&path, file).with_context(|| format!("write {}", path.display()))?;
            bytes += path.metadata()?.len();
            shown.inc(1);
        }
        Ok(bytes)
    });
    let made = made.await.context("the maker of log files stopped")?;
    bar.finish_and_clear();
    made
}

fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let at = Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false);
    Arc::new(Schema::new(vec![at, text("level"), text("service"), text("trace_id"), text("body")]))
}

fn write(path: &Path, file: u64) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some((ROWS_PER_FILE / 2) as usize))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, schema(), Some(properties))?;
    writer.write(&lines(file)?)?;
    writer.close()?;
    Ok(())
}

/// The rows of one file, in the order of time.
fn lines(file: u64) -> Result<RecordBatch> {
    const SERVICES: [&str; 6] = ["checkout", "search", "billing", "gateway", "mailer", "inventory"];
    let mut at = Vec::new();
    let [mut level, mut service, mut trace, mut body] = [const { Vec::<String>::new() }; 4];
    let hour_us = FIRST_US + (file / FILES_PER_HOUR) as i64 * HOUR_US;
    for row in 0..ROWS_PER_FILE {
        let dice = mix(file * ROWS_PER_FILE + row);
        let (user, ms) = (dice % 50_000, (dice >> 20) % 900);
        at.push(hour_us + (row as i64) * (HOUR_US / ROWS_PER_FILE as i64) + (dice % 1_000) as i64);
        service.push(SERVICES[(dice >> 8) as usize % SERVICES.len()].to_owned());
        trace.push(trace_id(file, row));
        let (severity, text) = match (dice >> 32) % 100 {
            0..2 => ("ERROR", format!("connection to 10.0.{}.{} refused", (dice >> 40) % 4, (dice >> 44) % 256)),
            2..5 => ("WARN", format!("request of user {user} timed out after {ms} ms")),
            5..30 => ("DEBUG", format!("cache hit for key user:{user}")),
            _ => ("INFO", format!("GET /api/v1/orders/{} 200 in {ms} ms", (dice >> 12) % 1_000_000)),
        };
        level.push(severity.to_owned());
        body.push(text);
    }
    if let (rare_file, row) = rare_place()
        && rare_file == file
    {
        (level[row as usize], body[row as usize]) = ("ERROR".to_owned(), RARE.to_owned());
    }
    let text = |values: Vec<String>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(at).with_timezone("UTC"));
    Ok(RecordBatch::try_new(schema(), vec![at, text(level), text(service), text(trace), text(body)])?)
}

/// File and row of the line that is looked for.
fn rare_place() -> (u64, u64) {
    let dice = mix(7);
    (dice % FILES, (dice >> 32) % ROWS_PER_FILE)
}

fn trace_id(file: u64, row: u64) -> String {
    format!("{:016x}", mix((1 << 40) + file * ROWS_PER_FILE + row))
}

/// SplitMix64's finalizer: the same data each time, without a generator's state.
fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};

    use super::*;

    #[test]
    fn one_line_of_all_is_the_rare_one() {
        let (rare_file, rare_row) = rare_place();
        for file in [rare_file, (rare_file + 1) % FILES] {
            let batch = lines(file).unwrap();
            let bodies = batch.column(4).as_string::<i32>();
            let found: Vec<_> = (0..bodies.len()).filter(|row| bodies.value(*row) == RARE).collect();
            assert_eq!(found, if file == rare_file { vec![rare_row as usize] } else { vec![] });
        }
    }

    #[test]
    fn the_files_that_are_read_are_found_in_a_plan() {
        let plan = "TarnScan: table=logs, access_path=lake, files=1/200, blocks=1/400, pruned_time=0";
        assert_eq!(files_kept(plan).as_deref(), Some("1 of 200"));
        assert_eq!(files_kept("Projection"), None);
    }
}
