//! What does a statement answer, and how is it written? Row by row as it comes, in bounded memory.
//!
//! Tables and CSV are printed from the text that the wire carries. JSON and Parquet need types, so queries are fetched
//! as an Arrow stream (`COPY (…) TO STDOUT WITH (FORMAT arrow)`). A table is laid out for [`TABLE_ROWS`] rows or
//! [`TABLE_BYTES`] at a time.

use std::io::Write;

use anyhow::{Result, bail, ensure};
use arrow::json::WriterBuilder;
use arrow::json::writer::LineDelimited;
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use tarn_console::layout::{ResultLayout, Row, csv_line, grouped, render, shape, unaligned};
use tarn_console::script::first_words;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::out::AnswerOutput;
use super::settings::{ConsoleSettings, Format};
use crate::cli::client::Connection;
use crate::cli::output::fetch;

/// Rows laid out together in one printed table.
const TABLE_ROWS: usize = 5_000;

/// Bytes of values laid out together.
const TABLE_BYTES: usize = 8 << 20;

/// Runs one statement and writes what it answers. `ends_early`: a query may be cancelled when as many rows were shown
/// as should be; not within a transaction, which that would fail.
pub async fn run(
    connection: &Connection,
    sql: &str,
    settings: &ConsoleSettings,
    out: &mut AnswerOutput,
    ends_early: bool,
) -> Result<()> {
    match settings.format {
        Format::Table | Format::Csv | Format::Unaligned => print_text(connection, sql, settings, out, ends_early).await,
        Format::Json if !is_wrapped(settings.format, sql) => {
            print_text(connection, sql, settings, out, ends_early).await
        }
        Format::Json => print_json(connection, sql, out).await,
        Format::Parquet if !is_wrapped(settings.format, sql) => {
            bail!("only the result of a query can be written as Parquet")
        }
        Format::Parquet => write_parquet(connection, sql, out).await,
    }
}

/// Whether the statement is sent within a `COPY`: places in it are counted from there.
pub fn is_wrapped(format: Format, sql: &str) -> bool {
    matches!(format, Format::Json | Format::Parquet) && is_query(sql)
}

fn is_query(sql: &str) -> bool {
    matches!(first_words(sql, 1).as_str(), "SELECT" | "WITH" | "VALUES" | "TABLE")
}

/// Whether a text is to be read whole: plans and definitions.
fn is_read_line_by_line(sql: &str, n_columns: usize) -> bool {
    let words = first_words(sql, 2);
    n_columns == 1 || words.starts_with("EXPLAIN") || words == "SHOW CREATE"
}

async fn print_text(
    connection: &Connection,
    sql: &str,
    settings: &ConsoleSettings,
    out: &mut AnswerOutput,
    ends_early: bool,
) -> Result<()> {
    let stream = connection.client.simple_query_raw(sql).await?;
    tokio::pin!(stream);
    let mut sheet = Sheet::new(sql, settings, out);
    let may_cancel = ends_early && matches!(first_words(sql, 1).as_str(), "SELECT" | "VALUES" | "TABLE");
    let mut is_cancelled = false;
    while let Some(message) = stream.next().await {
        match message {
            Ok(SimpleQueryMessage::RowDescription(columns)) => {
                let header = columns.iter().map(|column| column.name().to_owned()).collect();
                sheet.begin(header, out)?;
            }
            Ok(SimpleQueryMessage::Row(row)) => {
                sheet.row((0..row.len()).map(|idx| row.get(idx)), out)?;
                if sheet.n_hidden > 0 && may_cancel && !is_cancelled {
                    is_cancelled = true;
                    connection.cancel().await?;
                }
            }
            Ok(SimpleQueryMessage::CommandComplete(rows)) => {
                if sheet.header.is_some() {
                    sheet.end(Some(rows), out)?;
                } else {
                    tell(sql, rows, out)?;
                }
            }
            Ok(_) => {}
            // We asked for it.
            Err(error) if is_cancelled && error.code() == Some(&SqlState::QUERY_CANCELED) => {
                sheet.end(None, out)?;
                return out.finish();
            }
            Err(error) => {
                out.finish()?;
                return Err(error.into());
            }
        }
    }
    if is_cancelled {
        // The statement was done before the server heard of it: a late cancel must not strike the next one, but this.
        let _ = connection.client.simple_query("SELECT 1").await;
    }
    out.finish()
}

/// A statement without a result: its tag, on stderr unless someone looks at stdout.
fn tell(sql: &str, rows: u64, out: &AnswerOutput) -> Result<()> {
    let words = first_words(sql, 2);
    let verb = words.split(' ').next().unwrap_or_default();
    let text = match verb {
        "" => return Ok(()),
        "INSERT" => format!("INSERT 0 {rows}"),
        "UPDATE" | "DELETE" | "COPY" => format!("{verb} {rows}"),
        "CREATE" | "DROP" | "ALTER" | "TRUNCATE" => words.clone(),
        _ => verb.to_owned(),
    };
    if out.is_terminal() {
        say!("{text}")?;
    } else {
        eprintln!("{text}");
    }
    Ok(())
}

/// One answer on its way to a person or a program.
struct Sheet<'a> {
    settings: &'a ConsoleSettings,
    sql: &'a str,
    /// None: nothing came yet
    header: Option<Vec<String>>,
    waiting: Vec<Row>,
    waiting_bytes: usize,
    n_shown: u64,
    n_hidden: u64,
    is_cut: bool,
    /// Rows that are shown; none: all
    limit: Option<u64>,
}

impl<'a> Sheet<'a> {
    fn new(sql: &'a str, settings: &'a ConsoleSettings, out: &AnswerOutput) -> Sheet<'a> {
        let has_limit = settings.limit_rows > 0 && settings.format == Format::Table && out.screen().is_some();
        Sheet {
            settings,
            sql,
            header: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
            n_shown: 0,
            n_hidden: 0,
            is_cut: false,
            limit: has_limit.then_some(settings.limit_rows),
        }
    }

    fn begin(&mut self, header: Vec<String>, out: &mut AnswerOutput) -> Result<()> {
        if !self.settings.has_only_rows {
            let names = header.iter().map(|name| Some(name.as_str()));
            match self.settings.format {
                Format::Csv => writeln!(out, "{}", csv_line(names))?,
                Format::Unaligned => writeln!(out, "{}", unaligned(names, ""))?,
                _ => {}
            }
        }
        *self = Sheet { header: Some(header), ..Sheet::new(self.sql, self.settings, out) };
        Ok(())
    }

    fn row<'r>(&mut self, cells: impl Iterator<Item = Option<&'r str>>, out: &mut AnswerOutput) -> Result<()> {
        match self.settings.format {
            Format::Csv => writeln!(out, "{}", csv_line(cells))?,
            Format::Unaligned => writeln!(out, "{}", unaligned(cells, self.settings.null()))?,
            Format::Json => {
                let names = self.header.iter().flatten().cloned();
                let values = cells.map(|cell| cell.map_or(serde_json::Value::Null, Into::into));
                writeln!(out, "{}", serde_json::Value::Object(names.zip(values).collect()))?;
            }
            Format::Table | Format::Parquet => {
                if out.is_left() || self.limit.is_some_and(|limit| self.n_shown + self.waiting.len() as u64 >= limit) {
                    self.n_hidden += 1;
                    return Ok(());
                }
                let row: Row = cells.map(|cell| cell.map(str::to_owned)).collect();
                self.waiting_bytes += row.iter().flatten().map(String::len).sum::<usize>();
                self.waiting.push(row);
                if self.waiting.len() >= TABLE_ROWS || self.waiting_bytes >= TABLE_BYTES {
                    self.lay_out(false, out)?;
                }
            }
        }
        Ok(())
    }

    /// Writes what is waiting. The first piece decides whether a pager is needed.
    fn lay_out(&mut self, is_last: bool, out: &mut AnswerOutput) -> Result<()> {
        let header = self.header.as_deref().unwrap_or_default();
        let screen = out.screen();
        let width = screen.as_ref().map(|screen| screen.width);
        let look = self.settings.look(width, is_read_line_by_line(self.sql, header.len()));
        self.is_cut |= shape(header, &self.waiting, &look) == ResultLayout::Cut;
        let text = render(header, &self.waiting, &look, self.n_shown + 1);
        let is_long = |height: usize| !is_last || text.lines().count() + 2 > height;
        if self.settings.has_pager && !out.has_pager() && screen.is_some_and(|screen| is_long(screen.height)) {
            out.start_pager();
        }
        out.write_all(text.as_bytes())?;
        self.n_shown += self.waiting.len() as u64;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    /// The end of one answer: `total` rows, if they were counted.
    fn end(&mut self, total: Option<u64>, out: &mut AnswerOutput) -> Result<()> {
        if self.settings.format == Format::Table {
            if !self.waiting.is_empty() || self.n_shown == 0 {
                self.lay_out(true, out)?;
            }
            if !self.settings.has_only_rows {
                writeln!(out, "{}", self.footer(total))?;
            }
        } else if self.settings.format == Format::Unaligned && !self.settings.has_only_rows {
            let rows = total.unwrap_or(self.n_shown);
            writeln!(out, "({rows} row{})", plural(rows))?;
        }
        self.header = None;
        Ok(())
    }

    fn footer(&self, total: Option<u64>) -> String {
        let cut = if self.is_cut { "; values are cut, \\x shows them whole" } else { "" };
        match total {
            _ if self.n_hidden == 0 => {
                let rows = total.unwrap_or(self.n_shown);
                format!("({} row{}{cut})", grouped(rows), plural(rows))
            }
            Some(total) => format!("({} of {} rows{cut}; {ALL})", grouped(self.n_shown), grouped(total)),
            None => format!("(the first {} rows, and there are more{cut}; {ALL})", grouped(self.n_shown)),
        }
    }
}

/// How to see the rows that were not shown.
const ALL: &str = "\\pset limit 0 shows all, \\o FILE writes all";

fn plural(rows: u64) -> &'static str {
    if rows == 1 { "" } else { "s" }
}

async fn print_json(connection: &Connection, sql: &str, out: &mut AnswerOutput) -> Result<()> {
    let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut *out);
    fetch(connection, sql, |batch| Ok(writer.write(&batch)?)).await?;
    writer.finish()?;
    drop(writer);
    out.finish()
}

async fn write_parquet(connection: &Connection, sql: &str, out: &mut AnswerOutput) -> Result<()> {
    ensure!(!out.is_terminal(), "Parquet is not for a terminal: add `> file.parquet`, or \\o FILE");
    ensure!(!out.has_parquet, "one Parquet file holds one result, and there is one: \\o FILE begins another");
    let (mut waiting, mut end) = (None, Some(&mut *out));
    let fetched = fetch(connection, sql, |batch| {
        let writer = match (&mut waiting, end.take()) {
            (Some(writer), _) => writer,
            (none, Some(end)) => none.insert(ArrowWriter::try_new(end, batch.schema(), None)?),
            (None, None) => bail!("the Parquet file could not be begun"),
        };
        Ok(writer.write(&batch)?)
    })
    .await;
    let is_begun = end.is_none();
    let written = fetched.and_then(|schema| {
        let writer = match (waiting, end) {
            (Some(writer), _) => writer,
            (None, Some(end)) => ArrowWriter::try_new(end, schema, None)?,
            (None, None) => bail!("the Parquet file could not be begun"),
        };
        writer.close()?;
        Ok(())
    });
    out.has_parquet = is_begun || written.is_ok();
    written?;
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_copy_can_wrap_is_known() {
        assert!(is_query("with x as (select 1) select * from x") && !is_query("insert into t values (1)"));
        assert!(is_wrapped(Format::Json, "-- hm\n(select 1)") && !is_wrapped(Format::Csv, "select 1"));
    }
}
