//! How does a result look on stdout? As a table for eyes, CSV or JSON lines for programs, Parquet for files.
//!
//! Tables and CSV are printed from the text that the wire carries, row by row. JSON and Parquet need types, so queries are fetched as an
//! Arrow stream (`COPY (…) TO STDOUT WITH (FORMAT arrow)`). Memory is bounded: a table is laid out for [`TABLE_ROWS`] rows at a time.

use std::io::{IsTerminal, Write};

use anyhow::{Result, bail};
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;
use arrow::record_batch::RecordBatch;
use clap::ValueEnum;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use futures::{StreamExt, TryStreamExt};
use parquet::arrow::ArrowWriter;
use tokio_postgres::SimpleQueryMessage;

use super::client::Connection;

/// Rows laid out together in one printed table.
const TABLE_ROWS: usize = 5_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For eyes: columns aligned, number of rows below
    Table,
    /// One object per line
    Json,
    /// With a header line; NULL is empty
    Csv,
    /// One Parquet file; redirect stdout to a file
    Parquet,
}

/// Runs one statement and writes what it returns to stdout. Returns the number of rows returned or changed.
pub async fn run(connection: &Connection, sql: &str, format: Format) -> Result<u64> {
    match format {
        Format::Table | Format::Csv => print_text(connection, sql, format).await,
        Format::Json if !is_query(sql) => print_text(connection, sql, format).await,
        Format::Json => print_json(connection, sql).await,
        Format::Parquet if !is_query(sql) => bail!("only the result of a query can be written as Parquet"),
        Format::Parquet if std::io::stdout().is_terminal() => {
            bail!("Parquet is not for a terminal: add `> file.parquet`")
        }
        Format::Parquet => write_parquet(connection, sql).await,
    }
}

/// Whether `sql` is a statement that COPY can wrap.
fn is_query(sql: &str) -> bool {
    matches!(first_word(sql).as_str(), "SELECT" | "WITH" | "VALUES" | "TABLE")
}

/// The first word, upper case, comments skipped.
pub fn first_word(sql: &str) -> String {
    let mut rest = sql.trim_start();
    while let Some(comment) = rest.strip_prefix("--") {
        rest = comment.split_once('\n').map_or("", |(_, after)| after).trim_start();
    }
    let rest = rest.trim_start_matches('(');
    rest.chars().take_while(char::is_ascii_alphabetic).collect::<String>().to_ascii_uppercase()
}

async fn print_text(connection: &Connection, sql: &str, format: Format) -> Result<u64> {
    let stream = connection.client.simple_query_raw(sql).await?;
    tokio::pin!(stream);
    let mut out = std::io::stdout().lock();
    let mut sheet = Sheet::default();
    let mut total = 0;
    while let Some(message) = stream.next().await {
        match message? {
            SimpleQueryMessage::RowDescription(columns) => {
                sheet = Sheet { header: columns.iter().map(|c| c.name().to_owned()).collect(), ..Sheet::default() };
                if format == Format::Csv {
                    writeln!(out, "{}", csv_line(sheet.header.iter().map(|name| Some(name.as_str()))))?;
                }
            }
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|idx| row.get(idx));
                match format {
                    Format::Csv => writeln!(out, "{}", csv_line(cells))?,
                    Format::Json => writeln!(out, "{}", json_line(&sheet.header, cells)?)?,
                    _ => sheet.push(&mut out, cells.map(|cell| cell.map(str::to_owned)).collect())?,
                }
            }
            SimpleQueryMessage::CommandComplete(rows) => {
                total += rows;
                let is_result = !sheet.header.is_empty();
                if format == Format::Table && is_result {
                    sheet.flush(&mut out)?;
                    writeln!(out, "({} row{})", grouped(rows), if rows == 1 { "" } else { "s" })?;
                } else if !is_result {
                    tell(sql, rows);
                }
                sheet = Sheet::default();
            }
            _ => {}
        }
    }
    out.flush()?;
    Ok(total)
}

/// A statement without a result: what it did, on stderr unless someone looks at stdout.
fn tell(sql: &str, rows: u64) {
    let verb = first_word(sql);
    let text = match verb.as_str() {
        "INSERT" | "UPDATE" | "DELETE" | "COPY" => format!("{verb} {rows}"),
        _ => verb,
    };
    if std::io::stdout().is_terminal() { println!("{text}") } else { eprintln!("{text}") }
}

/// Rows waiting to be laid out.
#[derive(Default)]
struct Sheet {
    header: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    n_printed: usize,
}

impl Sheet {
    fn push(&mut self, out: &mut impl Write, row: Vec<Option<String>>) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() == TABLE_ROWS { self.flush(out) } else { Ok(()) }
    }

    fn flush(&mut self, out: &mut impl Write) -> Result<()> {
        if self.rows.is_empty() && self.n_printed > 0 {
            return Ok(());
        }
        writeln!(out, "{}", table(&self.header, &self.rows))?;
        self.n_printed += self.rows.len();
        self.rows.clear();
        Ok(())
    }
}

/// A table with right-aligned numbers.
pub fn table(header: &[String], rows: &[Vec<Option<String>>]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| Cell::new(cell.as_deref().unwrap_or("∅"))));
    }
    for (idx, column) in table.column_iter_mut().enumerate() {
        let mut cells = rows.iter().filter_map(|row| row.get(idx)?.as_deref()).peekable();
        if cells.peek().is_some() && cells.all(is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('-');
    digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || ".,e+- ".contains(c))
        && !digits.contains("-")
}

fn csv_line<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> String {
    let quoted = cells.map(|cell| match cell {
        None => String::new(),
        Some("") => "\"\"".to_owned(),
        Some(text) if text.contains([',', '"', '\n', '\r']) => format!("\"{}\"", text.replace('"', "\"\"")),
        Some(text) => text.to_owned(),
    });
    quoted.collect::<Vec<_>>().join(",")
}

fn json_line<'a>(header: &[String], cells: impl Iterator<Item = Option<&'a str>>) -> Result<String> {
    let object: serde_json::Map<String, serde_json::Value> =
        header.iter().cloned().zip(cells.map(|cell| cell.map_or(serde_json::Value::Null, Into::into))).collect();
    Ok(serde_json::to_string(&object)?)
}

async fn print_json(connection: &Connection, sql: &str) -> Result<u64> {
    let mut writer = arrow::json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow::json::writer::LineDelimited>(std::io::stdout().lock());
    let mut rows = 0;
    fetch(connection, sql, |batch| {
        rows += batch.num_rows() as u64;
        Ok(writer.write(&batch)?)
    })
    .await?;
    writer.finish()?;
    Ok(rows)
}

async fn write_parquet(connection: &Connection, sql: &str) -> Result<u64> {
    let mut waiting = None;
    let mut rows = 0;
    let schema = fetch(connection, sql, |batch| {
        rows += batch.num_rows() as u64;
        let writer = match &mut waiting {
            Some(writer) => writer,
            none => none.insert(ArrowWriter::try_new(std::io::stdout(), batch.schema(), None)?),
        };
        Ok(writer.write(&batch)?)
    })
    .await?;
    let writer = match waiting {
        Some(writer) => writer,
        None => ArrowWriter::try_new(std::io::stdout(), schema, None)?,
    };
    writer.close()?;
    Ok(rows)
}

/// Fetches the result of a query as Arrow, batch by batch; returns its schema (also of an empty result).
pub async fn fetch(
    connection: &Connection,
    sql: &str,
    mut take: impl FnMut(RecordBatch) -> Result<()>,
) -> Result<SchemaRef> {
    let copy = format!("COPY ({}\n) TO STDOUT WITH (FORMAT arrow)", sql.trim().trim_end_matches(';'));
    let stream = connection.client.copy_out(&copy).await?;
    tokio::pin!(stream);
    let mut decoder = StreamDecoder::new();
    while let Some(bytes) = stream.try_next().await? {
        let mut buffer = arrow::buffer::Buffer::from(bytes);
        while !buffer.is_empty() {
            if let Some(batch) = decoder.decode(&mut buffer)? {
                take(batch)?;
            }
        }
    }
    match decoder.schema() {
        Some(schema) => Ok(schema),
        None => bail!("the server sent no schema"),
    }
}

/// `6001215` → `6,001,215`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_recognised() {
        assert_eq!([grouped(0), grouped(999), grouped(6_001_215)], ["0", "999", "6,001,215"]);
        assert!(is_number("-12.5") && is_number("6,001") && !is_number("1996-03-13") && !is_number("x"));
    }

    #[test]
    fn csv_quotes_what_must_be_quoted_and_tells_null_from_empty() {
        assert_eq!(csv_line([Some("a,b"), None, Some(""), Some("x\"y")].into_iter()), "\"a,b\",,\"\",\"x\"\"y\"");
    }

    #[test]
    fn the_first_word_is_found_behind_comments() {
        assert_eq!(first_word("-- hi\n (select 1)"), "SELECT");
        assert!(is_query("with x as (select 1) select * from x") && !is_query("insert into t values (1)"));
    }
}
