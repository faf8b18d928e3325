//! How do batches become bytes, and bytes batches? An Arrow IPC stream of the columns in the key's order, and a
//! checksum.
//!
//! ```text
//! value := Arrow IPC stream (buffers LZ4 if the stream is large), XXH3-64 of it (u64, little-endian)
//! ```
//!
//! Columns are named by their positions: the names that a query gives them are put back when the value is used. Small
//! values are not compressed: their buffers are used as they lie in memory. Text that a filter left is copied together
//! first, so that a value has no bytes of rows that were dropped.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

const CHECKSUM_BYTES: usize = 8;

/// Streams of batches larger than this are compressed.
const COMPRESS_FROM_BYTES: usize = 64 << 10;

/// In which order the columns of a leaf are kept.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// As the plan has them.
    schema: SchemaRef,
    /// As they are kept.
    kept: SchemaRef,
    /// Of each kept column, where the plan has it.
    order: Vec<usize>,
    /// Of each column of the plan, where it is kept.
    back: Vec<usize>,
}

impl Layout {
    pub(crate) fn new(schema: SchemaRef, order: Vec<usize>) -> Self {
        let field = |(name, at): (usize, &usize)| {
            let of = schema.field(*at);
            Field::new(name.to_string(), of.data_type().clone(), of.is_nullable())
        };
        let kept = Arc::new(Schema::new(order.iter().enumerate().map(field).collect::<Vec<_>>()));
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(kept, at)| back[*at] = kept);
        Layout { schema, kept, order, back }
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// A batch of the plan as it is kept, without bytes that no row of it has.
    pub(crate) fn pack(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let columns = self.order.iter().map(|at| compact(batch.column(*at))).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.kept), columns, &options)
    }

    /// The value of packed batches.
    pub(crate) fn encode(&self, batches: &[RecordBatch]) -> Result<Bytes, ArrowError> {
        let bytes: usize = batches.iter().map(size).sum();
        let compression = (bytes > COMPRESS_FROM_BYTES).then_some(CompressionType::LZ4_FRAME);
        let options = IpcWriteOptions::default().try_with_compression(compression)?;
        let mut writer = StreamWriter::try_new_with_options(Vec::with_capacity(bytes / 2), &self.kept, options)?;
        for batch in batches {
            writer.write(batch)?;
        }
        writer.finish()?;
        let mut value = writer.into_inner()?;
        value.extend_from_slice(&xxh3_64(&value).to_le_bytes());
        value.shrink_to_fit();
        Ok(value.into())
    }

    /// The batches of a value, as the plan has them. `None`: the value is damaged, or of another leaf.
    pub(crate) fn decode(&self, value: &Bytes) -> Option<Vec<RecordBatch>> {
        let n_bytes = value.len().checked_sub(CHECKSUM_BYTES)?;
        let (stream, checksum) = value.split_at(n_bytes);
        if xxh3_64(stream).to_le_bytes() != checksum {
            return None;
        }
        let mut stream = Buffer::from(value.slice(..n_bytes));
        let mut decoder = StreamDecoder::new();
        let mut batches = vec![];
        while !stream.is_empty() {
            match decoder.decode(&mut stream).ok()? {
                Some(batch) if batch.schema_ref().fields() == self.kept.fields() => batches.push(self.unpack(&batch)?),
                Some(_) => return None,
                None => {}
            }
        }
        decoder.finish().ok()?;
        (decoder.schema()?.fields() == self.kept.fields()).then_some(batches)
    }

    fn unpack(&self, batch: &RecordBatch) -> Option<RecordBatch> {
        let columns = self.back.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).ok()
    }
}

fn compact(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => Arc::clone(column),
    }
}

/// Bytes of the rows of a packed batch.
pub(crate) fn size(batch: &RecordBatch) -> usize {
    let of = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(usize::MAX / 2);
    batch.columns().iter().map(of).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};

    use super::*;

    fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
        let text = |n: i64| (n % 3 != 0).then(|| format!("a text that is too long to be inline, number {n}"));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter(rows.clone().map(text)));
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(rows)) as ArrayRef), ("t", texts)])
            .unwrap()
    }

    fn layout(names: [&str; 2], order: Vec<usize>) -> Layout {
        let types = [DataType::Int64, DataType::Utf8View];
        let field = |(at, name): (usize, &str)| Field::new(name, types[at].clone(), at == 1);
        Layout::new(Arc::new(Schema::new(names.into_iter().enumerate().map(field).collect::<Vec<_>>())), order)
    }

    fn value(layout: &Layout, batches: &[RecordBatch]) -> Bytes {
        let packed: Vec<_> = batches.iter().map(|batch| layout.pack(batch).unwrap()).collect();
        layout.encode(&packed).unwrap()
    }

    #[test]
    fn what_was_kept_comes_back_under_the_names_of_who_asks() {
        let stored = layout(["n", "t"], vec![1, 0]);
        for rows in [0..0, 0..5, 0..5000] {
            let batches = [batch(rows.clone()), batch(rows)];
            let value = value(&stored, &batches);
            let asked = layout(["number", "text"], vec![1, 0]);
            let found = asked.decode(&value).unwrap();
            for (found, kept) in found.iter().zip(&batches) {
                assert_eq!((found.columns(), found.schema_ref()), (kept.columns(), asked.schema()));
            }
        }
        assert!(stored.decode(&value(&stored, &[])).unwrap().is_empty());
    }

    #[test]
    fn rows_that_were_dropped_are_not_kept() {
        let stored = layout(["n", "t"], vec![0, 1]);
        let few = batch(0..5000).slice(100, 2);
        assert!(value(&stored, &[few]).len() < 2000);
    }

    #[test]
    fn damage_and_other_types_are_nothing() {
        let stored = layout(["n", "t"], vec![0, 1]);
        let value = value(&stored, &[batch(0..50)]);
        assert!(layout(["n", "t"], vec![1, 0]).decode(&value).is_none(), "other types");
        for at in (0..value.len()).step_by(7) {
            let mut damaged = value.to_vec();
            damaged[at] ^= 4;
            assert!(stored.decode(&damaged.into()).is_none(), "byte {at}");
            assert!(stored.decode(&value.slice(..at)).is_none(), "cut at {at}");
        }
    }
}
