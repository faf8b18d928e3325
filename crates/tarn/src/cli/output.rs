//! How does a command of the line show rows? As a table, or as what the server's Arrow stream brings.

use anyhow::{Result, bail};
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;
use arrow::record_batch::RecordBatch;
use futures::TryStreamExt;
use tarn_console::layout::plain_table;

use super::client::Connection;

pub use tarn_console::layout::grouped;

/// A table with right-aligned numbers, without the line's end behind it.
pub fn table(header: &[String], rows: &[Vec<Option<String>>]) -> String {
    plain_table(header, rows).trim_end().to_owned()
}

/// What stands before a query in the `COPY` that brings its rows as Arrow.
pub const WRAPPED: &str = "COPY (";

/// Fetches the result of a query as Arrow, batch by batch; returns its schema (also of an empty result).
pub async fn fetch(
    connection: &Connection,
    sql: &str,
    mut take: impl FnMut(RecordBatch) -> Result<()>,
) -> Result<SchemaRef> {
    let copy = format!("{WRAPPED}{}\n) TO STDOUT WITH (FORMAT arrow)", sql.trim().trim_end_matches(';'));
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
