//! What does a statement answer?

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use futures::{Stream, StreamExt, stream};

use super::copy_from::CopyFrom;
use crate::copy_format::Format;
use crate::error::{Result, SqlError};
use crate::shown::shown;

/// Batches of one result, all of one schema.
pub type Batches = Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>;

/// The outcome of one statement.
pub enum Answer {
    /// Rows; dropping the stream cancels the query.
    Rows(ResultSet),
    /// No rows; the command tag says what happened, e.g. `UPDATE 3`.
    Done(Tag),
    /// The client may now send data.
    CopyFrom(Box<CopyFrom>),
    /// The client now receives data.
    CopyTo(CopyTo),
}

/// A result set.
pub struct ResultSet {
    /// As clients are shown it.
    pub schema: SchemaRef,
    /// In order; the first may come long before the last is computed.
    pub batches: Batches,
    /// First word of the tag; the number of rows is added when all were sent.
    pub command: &'static str,
    /// Of a cursor that is BINARY: a client that does not say which form it wants gets the binary one.
    pub is_binary: bool,
}

/// A COPY TO that is about to run.
pub struct CopyTo {
    /// What is sent.
    pub rows: ResultSet,
    /// How rows are written.
    pub format: Format,
}

/// A command tag: `CREATE TABLE`, `INSERT 0 5`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// The words of the tag.
    pub command: String,
    /// For statements that tell a number.
    pub rows: Option<u64>,
}

impl ResultSet {
    fn counted_by(self, rows: Arc<AtomicU64>) -> ResultSet {
        let count = move |batch: &Result<RecordBatch>| {
            let n_rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
            rows.fetch_add(n_rows as u64, Ordering::Relaxed);
        };
        ResultSet { batches: self.batches.inspect(count).boxed(), ..self }
    }
}

impl Tag {
    /// Without a number.
    pub fn new(command: impl Into<String>) -> Tag {
        Tag { command: command.into(), rows: None }
    }

    /// With the number of rows that were read or changed.
    pub fn rows(command: impl Into<String>, rows: u64) -> Tag {
        Tag { command: command.into(), rows: Some(rows) }
    }

    /// Postgres' text: INSERT has an object id, always 0.
    pub fn text(&self) -> String {
        match (self.command.as_str(), self.rows) {
            ("INSERT", Some(rows)) => format!("INSERT 0 {rows}"),
            (command, Some(rows)) => format!("{command} {rows}"),
            (command, None) => command.to_owned(),
        }
    }
}

impl Answer {
    /// An answer without rows and number.
    pub fn done(command: impl Into<String>) -> Answer {
        Answer::Done(Tag::new(command))
    }

    /// An answer without rows, with their number.
    pub fn counted(command: impl Into<String>, rows: u64) -> Answer {
        Answer::Done(Tag::rows(command, rows))
    }

    /// The same; each row that is read of it is counted in `rows`.
    pub(super) fn counted_by(self, rows: Arc<AtomicU64>) -> Answer {
        match self {
            Answer::Rows(of) => Answer::Rows(of.counted_by(rows)),
            Answer::CopyTo(CopyTo { rows: of, format }) => Answer::CopyTo(CopyTo { rows: of.counted_by(rows), format }),
            answer => answer,
        }
    }

    /// A small result that is already there.
    pub fn batch(batch: RecordBatch, command: &'static str) -> Answer {
        let (schema, batches) = (batch.schema(), stream::once(async { Ok(batch) }).boxed());
        Answer::Rows(ResultSet { schema, batches, command, is_binary: false })
    }

    /// The rows of a query as they are computed; an error may come behind some of them.
    pub fn stream(stream: datafusion::execution::SendableRecordBatchStream, command: &'static str) -> Answer {
        let schema = shown(&stream.schema());
        let batches = stream.map(|batch| batch.map_err(SqlError::from)).boxed();
        Answer::Rows(ResultSet { schema, batches, command, is_binary: false })
    }
}
