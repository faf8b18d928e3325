//! What does a cursor keep? A result that is open and is read piece by piece, forward only.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use futures::StreamExt;

use super::answer::Batches;
use crate::error::Result;

/// An open result.
pub struct Cursor {
    schema: SchemaRef,
    batches: Batches,
    /// Read from the stream, not fetched yet.
    rest: Option<RecordBatch>,
    /// How many savepoints there were when it was opened, and still are.
    pub(super) depth: usize,
}

impl Cursor {
    pub(super) fn new(schema: SchemaRef, batches: Batches, depth: usize) -> Cursor {
        Cursor { schema, batches, rest: None, depth }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows, at most `n_rows`; `None` when there are none left.
    pub(super) async fn next(&mut self, n_rows: usize) -> Result<Option<RecordBatch>> {
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => match self.batches.next().await.transpose()? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        if batch.num_rows() > n_rows {
            self.rest = Some(batch.slice(n_rows, batch.num_rows() - n_rows));
        }
        Ok(Some(batch.slice(0, batch.num_rows().min(n_rows))))
    }
}
