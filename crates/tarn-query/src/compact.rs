//! What do rows hold that a filter left? Texts and bytes are views into the pages that they were read from: one row of
//! a page keeps the whole page in memory, and is counted as large as the page. Batches that are sparse are copied
//! together.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, GenericByteViewArray, MutableArrayData, RecordBatch, RecordBatchOptions, make_array,
};
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

/// The batch, with buffers of its own where it is a small part of what its buffers hold. Unlike [`compacted`], it is
/// so for small batches too, and for all types: one batch that was cut into thousands stays a small one.
pub(crate) fn owned(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    if batch.columns().iter().all(|column| !is_slice(column)) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(|column| match is_slice(column) {
        true => copied(column),
        false => Ok(Arc::clone(column)),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// What little a slice may hold, whatever it shows: its structures and the least that is allocated.
const SLICE_BYTES: usize = 256;

fn is_slice(column: &ArrayRef) -> bool {
    let held = column.get_array_memory_size();
    held > SPARSE * SLICE_BYTES && held > SPARSE * shown_bytes(column).max(SLICE_BYTES)
}

/// Of what a column shows, whatever its buffers hold.
pub(crate) fn shown_bytes(column: &ArrayRef) -> usize {
    fn of_views<T: ByteViewType>(views: &GenericByteViewArray<T>) -> usize {
        let lengths = views.views().iter().map(|view| *view as u32 as usize).filter(|length| *length > 12);
        lengths.sum::<usize>() + views.len() * size_of::<u128>()
    }
    match column.data_type() {
        DataType::Utf8View => of_views(column.as_string_view()),
        DataType::BinaryView => of_views(column.as_binary_view()),
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let (first, last) = (lists.value_offsets()[0] as usize, lists.value_offsets()[lists.len()] as usize);
            shown_bytes(&lists.values().slice(first, last - first)) + size_of_val(lists.value_offsets())
        }
        // What has no such size is not copied.
        _ => column.to_data().get_slice_memory_size().unwrap_or(usize::MAX / SPARSE),
    }
}

fn copied(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => {
            let data = column.to_data();
            let mut copy = MutableArrayData::new(vec![&data], false, data.len());
            copy.try_extend(0, 0, data.len())?;
            make_array(copy.freeze())
        }
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Int64Array, ListArray, StringArray, StringViewArray, UInt32Array};
    use arrow::compute::take;
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn the_slices_of_a_batch_are_together_about_as_large_as_it() {
        let n_rows = 10_000;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..n_rows).map(|n| (n % 7 > 0).then_some(n))));
        let texts = |n| format!("a text of some length, number {n}");
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..n_rows).map(texts)));
        let strings: ArrayRef = Arc::new(StringArray::from_iter_values((0..n_rows).map(texts)));
        let flags: ArrayRef = Arc::new(BooleanArray::from_iter((0..n_rows).map(|n| Some(n % 3 == 0))));
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>((0..n_rows).map(|n| Some(vec![Some(n), None])));
        let lists: ArrayRef = Arc::new(lists);
        let columns = [("n", numbers), ("v", views), ("s", strings), ("f", flags), ("l", lists)];
        for (name, column) in columns {
            let batch = RecordBatch::try_from_iter([(name, column)]).unwrap();
            let whole = batch.get_array_memory_size();
            let slices: Vec<_> = (0..625).map(|at| batch.slice(at * 16, 16)).collect();
            let owned: Vec<_> = slices.iter().map(|slice| owned(slice.clone()).unwrap()).collect();
            assert_eq!(owned, slices, "{name}");
            let (held, copied) = (
                slices.iter().map(RecordBatch::get_array_memory_size).sum::<usize>(),
                owned.iter().map(RecordBatch::get_array_memory_size).sum::<usize>(),
            );
            assert!(copied < 625 * SPARSE * SLICE_BYTES + SPARSE * whole, "{name}: {copied} of {whole}");
            assert!(held > 4 * copied || whole < 4 * SPARSE * SLICE_BYTES, "{name}: {held}, and {copied} copied");
            // What is whole is not copied.
            let same = super::owned(batch.clone()).unwrap();
            assert!(Arc::ptr_eq(same.column(0), batch.column(0)), "{name}");
        }
    }

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
