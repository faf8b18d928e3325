//! What do rows hold that a filter left? Texts and bytes are views into the pages that they were read from: one row of
//! a page keeps the whole page in memory, and is counted as large as the page. Batches that are sparse are copied
//! together.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch};
use arrow::datatypes::{ByteViewType, DataType};
use arrow::error::ArrowError;

/// Below this there is nothing to gain.
const SLACK_BYTES: usize = 64 << 10;
/// Buffers that are at least this many times as large as the values in them are sparse.
const SPARSE: usize = 4;

/// The batch, without the bytes that it keeps and does not show.
pub(crate) fn compacted(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let compacted: Vec<Option<ArrayRef>> = batch.columns().iter().map(compact).collect();
    if compacted.iter().all(Option::is_none) {
        return Ok(batch);
    }
    let columns = compacted.into_iter().zip(batch.columns()).map(|(new, old)| new.unwrap_or_else(|| Arc::clone(old)));
    RecordBatch::try_new(batch.schema(), columns.collect())
}

fn compact(column: &ArrayRef) -> Option<ArrayRef> {
    match column.data_type() {
        DataType::Utf8View => of_views(column.as_string_view()),
        DataType::BinaryView => of_views(column.as_binary_view()),
        _ => None,
    }
}

fn of_views<T: ByteViewType>(views: &GenericByteViewArray<T>) -> Option<ArrayRef> {
    let held: usize = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
    if held < SLACK_BYTES {
        return None;
    }
    // The length of a value is the first four bytes of its view; short ones are in the view itself.
    let lengths = views.views().iter().map(|view| *view as u32 as usize).filter(|length| *length > 12);
    let shown: usize = lengths.sum();
    (held >= SPARSE * shown.max(SLACK_BYTES / SPARSE)).then(|| Arc::new(views.gc()) as ArrayRef)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringViewArray, UInt32Array};
    use arrow::compute::take;

    use super::*;

    #[test]
    fn a_row_of_a_page_does_not_hold_the_page() {
        let texts =
            StringViewArray::from_iter_values((0..10_000).map(|n| format!("a text of some length, number {n}")));
        let page: ArrayRef = Arc::new(texts);
        let few = take(&page, &UInt32Array::from(vec![5, 777]), None).unwrap();
        let batch = RecordBatch::try_from_iter([("v", few)]).unwrap();
        assert!(batch.get_array_memory_size() > 300_000);
        let small = compacted(batch.clone()).unwrap();
        assert!(small.get_array_memory_size() < 10_000, "{}", small.get_array_memory_size());
        assert_eq!(small, batch);
        let all = RecordBatch::try_from_iter([("v", page)]).unwrap();
        assert_eq!(compacted(all.clone()).unwrap().get_array_memory_size(), all.get_array_memory_size());
    }
}
