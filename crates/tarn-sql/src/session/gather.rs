//! When are rows enough for one commit? Batches come in the sizes that suit who makes them; a commit has as many rows
//! as are asked for, or fewer, where these are wide.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;

use crate::copy_format::MAX_BATCH_BYTES;

/// Batches of one schema that wait for their commit.
#[derive(Debug)]
pub(super) struct RowGatherer {
    wanted_rows: usize,
    waiting: Vec<RecordBatch>,
    n_rows: usize,
    n_bytes: usize,
}

impl RowGatherer {
    /// For commits of so many rows, or of [`MAX_BATCH_BYTES`].
    pub(super) fn new(wanted_rows: usize) -> RowGatherer {
        RowGatherer { wanted_rows, waiting: Vec::new(), n_rows: 0, n_bytes: 0 }
    }

    pub(super) fn push(&mut self, batch: RecordBatch) {
        self.n_rows += batch.num_rows();
        self.n_bytes += size_bytes(&batch);
        self.waiting.push(batch);
    }

    /// All that is left, as one.
    pub(super) fn take_all(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let waiting = std::mem::take(&mut self.waiting);
        (self.n_rows, self.n_bytes) = (0, 0);
        waiting.first().map(|first| concat_batches(&first.schema(), &waiting)).transpose()
    }

    /// The rows of the next commit; `None` if there are too few, and at the end if there are none.
    pub(super) fn take(&mut self, is_last: bool) -> Result<Option<RecordBatch>, ArrowError> {
        let is_full = self.n_rows >= self.wanted_rows || self.n_bytes >= MAX_BATCH_BYTES;
        if self.n_rows == 0 || !(is_full || is_last) {
            return Ok(None);
        }
        let waiting = std::mem::take(&mut self.waiting);
        let whole = match &waiting[..] {
            [one] => one.clone(),
            several => concat_batches(&several[0].schema(), several)?,
        };
        let n_take = rows_that_fit(self.n_rows, self.n_bytes, self.wanted_rows);
        let rest = whole.slice(n_take, self.n_rows - n_take);
        self.n_bytes = self.n_bytes / self.n_rows * rest.num_rows();
        self.n_rows = rest.num_rows();
        if self.n_rows > 0 {
            self.waiting.push(rest);
        }
        Ok(Some(whole.slice(0, n_take)))
    }
}

/// Rows of one commit: as many as wanted, fewer when they are wide. A little more is better than a short rest.
fn rows_that_fit(n_rows: usize, size_bytes: usize, wanted: usize) -> usize {
    let per_row = (size_bytes / n_rows.max(1)).max(1);
    let most = (MAX_BATCH_BYTES / per_row).max(1);
    if n_rows <= wanted.saturating_mul(2) { n_rows.min(most) } else { wanted.min(most) }
}

/// What the rows of a batch take, not the buffers that they share with others.
fn size_bytes(batch: &RecordBatch) -> usize {
    let of = |array: &ArrayRef| {
        let views = match array.data_type() {
            DataType::Utf8View => array.as_string_view().total_buffer_bytes_used(),
            DataType::BinaryView => array.as_binary_view().total_buffer_bytes_used(),
            _ => 0,
        };
        views + array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
    };
    batch.columns().iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::StringViewArray;

    use super::*;

    fn texts(n_rows: usize, n_bytes: usize) -> RecordBatch {
        let text = "x".repeat(n_bytes);
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..n_rows).map(|_| &text)));
        RecordBatch::try_from_iter([("v", texts)]).unwrap()
    }

    fn commits(gathered: &mut RowGatherer, is_last: bool) -> Vec<usize> {
        std::iter::from_fn(|| gathered.take(is_last).unwrap().map(|rows| rows.num_rows())).collect()
    }

    #[test]
    fn a_commit_has_the_rows_that_are_wanted_and_the_last_what_is_left() {
        let mut gathered = RowGatherer::new(100);
        gathered.push(texts(60, 1));
        assert!(commits(&mut gathered, false).is_empty());
        gathered.push(texts(60, 1));
        assert_eq!(commits(&mut gathered, false), [120]);
        gathered.push(texts(250, 1));
        assert_eq!(commits(&mut gathered, false), [100, 150]);
        gathered.push(texts(7, 1));
        assert_eq!(commits(&mut gathered, true), [7]);
        assert!(commits(&mut gathered, true).is_empty());
    }

    #[test]
    fn wide_rows_are_committed_before_they_fill_the_memory() {
        let mut gathered = RowGatherer::new(32_768);
        let mut most_waiting = 0;
        for _ in 0..40 {
            gathered.push(texts(4, 1 << 20));
            most_waiting = most_waiting.max(gathered.n_bytes);
            assert!(commits(&mut gathered, false).iter().all(|n_rows| *n_rows <= 16));
        }
        assert!(most_waiting < 2 * MAX_BATCH_BYTES, "{most_waiting}");
    }
}
