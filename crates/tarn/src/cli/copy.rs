//! How do many rows reach a server quickly? As an Arrow IPC stream inside COPY, batch by batch.

use std::pin::Pin;

use anyhow::{Context, Result};
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::CopyInSink;

use super::client::Connection;

/// Size of one CopyData message.
const MESSAGE_BYTES: usize = 256 << 10;

/// Rows of one COPY statement. A server's error is heard when the statement ends, so it must not be endless.
const STATEMENT_ROWS: u64 = 1_000_000;

/// Bytes of one COPY statement that has a key, which the server holds until it commits: well within its setting
/// `transaction_bytes`.
const NAMED_STATEMENT_BYTES: u64 = 16 << 20;

/// Rows on their way into one table. [`Copy::finish`] must be called, otherwise the last statement is undone by the
/// server as far as it was not yet applied.
pub struct Copy<'a> {
    connection: &'a Connection,
    table: String,
    schema: SchemaRef,
    /// What becomes of rows whose key is there; what the server does by itself where nothing is said.
    on_conflict: Option<&'static str>,
    /// Names the statements, with their numbers behind it, so that those of a load that broke off are not written
    /// twice.
    key: Option<String>,
    n_begun: u64,
    statement: Option<Statement>,
    n_acknowledged: u64,
}

struct Statement {
    sink: Pin<Box<CopyInSink<Bytes>>>,
    writer: StreamWriter<Vec<u8>>,
    n_rows: u64,
    n_bytes: u64,
}

impl<'a> Copy<'a> {
    /// Rows of `schema` for `table`. Columns are matched by name.
    pub fn new(connection: &'a Connection, table: &str, schema: SchemaRef) -> Copy<'a> {
        Copy {
            connection,
            table: quoted_table(table),
            schema,
            on_conflict: None,
            key: None,
            n_begun: 0,
            statement: None,
            n_acknowledged: 0,
        }
    }

    /// With what becomes of rows whose key is there: `error`, `skip` or `replace`.
    pub fn on_conflict(self, word: &'static str) -> Copy<'a> {
        Copy { on_conflict: Some(word), ..self }
    }

    /// With a key: the same batches, sent again with the same one, are there once. A statement is then all or nothing.
    pub fn named(self, key: String) -> Copy<'a> {
        Copy { key: Some(key), ..self }
    }

    /// Sends one batch. The server has applied it only after [`Copy::finish`], or when a later statement has begun.
    pub async fn send(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut statement = match self.statement.take() {
            Some(statement) => statement,
            None => self.begin().await?,
        };
        statement.writer.write(batch)?;
        statement.send_waiting().await?;
        statement.n_rows += batch.num_rows() as u64;
        self.statement = Some(statement);
        let max_bytes = if self.key.is_some() { NAMED_STATEMENT_BYTES } else { u64::MAX };
        let is_full = |statement: &Statement| statement.n_rows >= STATEMENT_ROWS || statement.n_bytes >= max_bytes;
        if self.statement.as_ref().is_some_and(is_full) { self.end().await } else { Ok(()) }
    }

    /// Ends the last statement and returns the rows that the server acknowledged, all statements together.
    pub async fn finish(mut self) -> Result<u64> {
        self.end().await?;
        Ok(self.n_acknowledged)
    }

    /// Rows that the server has said it has, in statements that are done.
    pub fn n_acknowledged(&self) -> u64 {
        self.n_acknowledged
    }

    async fn begin(&mut self) -> Result<Statement> {
        self.n_begun += 1;
        if let Some(key) = &self.key {
            let key = format!("{key} {}", self.n_begun).replace('\'', "''");
            self.connection.client.batch_execute(&format!("SET tarn.idempotency_key = '{key}'")).await?;
        }
        let on_conflict = self.on_conflict.map_or(String::new(), |word| format!(", on_conflict = {word}"));
        let sql = format!("COPY {} FROM STDIN WITH (FORMAT arrow{on_conflict})", self.table);
        let sink = self.connection.client.copy_in(&sql).await?;
        let writer = StreamWriter::try_new(Vec::new(), &self.schema).context("encode rows")?;
        Ok(Statement { sink: Box::pin(sink), writer, n_rows: 0, n_bytes: 0 })
    }

    async fn end(&mut self) -> Result<()> {
        let Some(mut statement) = self.statement.take() else { return Ok(()) };
        statement.writer.finish()?;
        statement.send_waiting().await?;
        self.n_acknowledged += statement.sink.as_mut().finish().await?;
        Ok(())
    }
}

impl Statement {
    async fn send_waiting(&mut self) -> Result<()> {
        let mut bytes = Bytes::from(std::mem::take(self.writer.get_mut()));
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(MESSAGE_BYTES));
            self.n_bytes += piece.len() as u64;
            self.sink.send(piece).await?;
        }
        Ok(())
    }
}

/// A table as SQL names it: what is before the first point of `name` is its schema.
pub fn quoted_table(name: &str) -> String {
    match name.split_once('.') {
        Some((schema, table)) => format!("{}.{}", quoted(schema), quoted(table)),
        None => quoted(name),
    }
}

/// `name` as an identifier in SQL.
pub fn quoted(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_before_the_first_point_is_the_schema() {
        let names = ["trips", "s.trips", "s.a.b", "S.order lines"];
        assert_eq!(names.map(quoted_table), ["trips", "s.trips", "s.\"a.b\"", "\"S\".\"order lines\""]);
    }
}
