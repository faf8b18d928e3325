//! What does `pg_cursors` show? The cursors of the session that asks.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::record_batch::RecordBatch;
use tarn_query::Error;

use super::book::{Book, Facts};
use super::cursor::Scroll;

/// By name.
pub(crate) fn pg_cursors(book: &Book) -> Result<RecordBatch, Error> {
    let all = book.all();
    let texts = |text: fn(&Facts) -> &str| Arc::new(StringArray::from_iter_values(all.iter().map(text))) as ArrayRef;
    let flags = |flag: fn(&Facts) -> bool| {
        Arc::new(all.iter().map(|facts| Some(flag(facts))).collect::<BooleanArray>()) as ArrayRef
    };
    let declared = TimestampMicrosecondArray::from_iter_values(all.iter().map(|facts| facts.declared_ms * 1_000));
    let columns = [
        ("name", texts(|facts| &facts.name)),
        ("statement", texts(|facts| &facts.statement)),
        ("is_holdable", flags(|facts| facts.is_holdable)),
        ("is_binary", flags(|facts| facts.is_binary)),
        ("is_scrollable", flags(|facts| facts.scroll != Scroll::No)),
        ("creation_time", Arc::new(declared.with_timezone("UTC")) as ArrayRef),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .map_err(|error| Error::Sql { source: error.into() })
}
