//! How do several files in key order become one stream in key order, in bounded memory?
//!
//! The source with the smallest key gives out all its rows up to the next source's smallest key, found by bisection:
//! files of different times seldom overlap, and then whole batches pass through unread. With `k` sources a run costs
//! `k` comparisons; memory is one batch a source and one output batch, which has fewer rows where they are wide.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::row::Rows;

use crate::Result;
use crate::error::arrow_error;
use crate::sort::KeyOrder;
use crate::writer::{MAX_BATCH_BYTES, size_bytes};

/// A run at least this long is passed on as a slice instead of row by row.
const LONG_RUN: usize = 1024;

/// Batches in key order, one after the other; `None` at the end.
pub(crate) type SortedBatches = Box<dyn FnMut() -> Result<Option<RecordBatch>> + Send>;

/// All rows of the sources in key order. Rows of one key come in the order of their sources.
pub(crate) struct MergeIterator {
    order: KeyOrder,
    sources: Vec<Cursor>,
    output_rows: usize,
    /// Rows that wait to make an output batch: positions (batch, row) in `batches`.
    waiting: Vec<(usize, usize)>,
    /// What these rows take, more or less.
    waiting_bytes: usize,
    batches: Vec<RecordBatch>,
    /// A long run that follows on what waits.
    run: Option<RecordBatch>,
}

struct Cursor {
    source: SortedBatches,
    /// The batch it stands in, and its keys; `None` at the end.
    batch: Option<(RecordBatch, Rows)>,
    /// Of the batch, on average.
    row_bytes: usize,
    at: usize,
    /// Where the batch is in `MergeIterator::batches`.
    slot: Option<usize>,
}

impl MergeIterator {
    /// Reads the first batch of each source. Batches of the output have at most `output_rows` rows.
    pub fn new(order: KeyOrder, sources: Vec<SortedBatches>, output_rows: usize) -> Result<Self> {
        let sources = sources.into_iter().map(|source| Cursor { source, batch: None, row_bytes: 0, at: 0, slot: None });
        let mut merged = Self {
            order,
            sources: sources.collect(),
            output_rows,
            waiting: Vec::new(),
            waiting_bytes: 0,
            batches: Vec::new(),
            run: None,
        };
        for idx in 0..merged.sources.len() {
            merged.refill(idx)?;
        }
        Ok(merged)
    }

    /// Moves a source on to its next batch that has rows.
    fn refill(&mut self, idx: usize) -> Result<()> {
        let cursor = &mut self.sources[idx];
        (cursor.at, cursor.slot, cursor.batch) = (0, None, None);
        while let Some(batch) = (cursor.source)()? {
            if batch.num_rows() > 0 {
                let keys = self.order.rows(&batch)?;
                cursor.row_bytes = size_bytes(&batch) / batch.num_rows();
                cursor.batch = Some((batch, keys));
                break;
            }
        }
        Ok(())
    }

    /// The source with the smallest key, and its rows that come before every other source's.
    fn next_run(&self) -> Option<(usize, Range<usize>)> {
        let head = |idx: usize| self.sources[idx].batch.as_ref().map(|(_, keys)| keys.row(self.sources[idx].at));
        let open = (0..self.sources.len()).filter_map(|idx| head(idx).map(|key| (key, idx)));
        let (mut first, mut second) = (None, None);
        for candidate in open {
            if first.is_none_or(|first| candidate < first) {
                (first, second) = (Some(candidate), first);
            } else if second.is_none_or(|second| candidate < second) {
                second = Some(candidate);
            }
        }
        let (_, idx) = first?;
        let cursor = &self.sources[idx];
        let (_, keys) = cursor.batch.as_ref().expect("an open source has a batch");
        let n_rows = keys.num_rows();
        let Some((bound, bound_idx)) = second else { return Some((idx, cursor.at..n_rows)) };
        let before = |row: usize| (keys.row(row), idx) < (bound, bound_idx);
        // Galloping: most runs are either one row or all of them.
        let (mut low, mut step) = (cursor.at, 1);
        while low + step < n_rows && before(low + step) {
            (low, step) = (low + step, step * 2);
        }
        let (mut low, mut high) = (low + 1, n_rows.min(low + step));
        while low < high {
            let middle = low + (high - low) / 2;
            if before(middle) { low = middle + 1 } else { high = middle }
        }
        Some((idx, cursor.at..low))
    }

    /// Takes runs until there is an output batch.
    fn fill(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(run) = self.run.take() {
            return Ok(Some(run));
        }
        while let Some((idx, rows)) = self.next_run() {
            let cursor = &mut self.sources[idx];
            let (batch, keys) = cursor.batch.as_ref().expect("a run is in a batch");
            let ended = rows.end == keys.num_rows();
            cursor.at = rows.end;
            if rows.len() >= LONG_RUN {
                self.run = Some(batch.slice(rows.start, rows.len()));
            } else {
                let slot = *cursor.slot.get_or_insert_with(|| {
                    self.batches.push(batch.clone());
                    self.batches.len() - 1
                });
                self.waiting_bytes += cursor.row_bytes * rows.len();
                self.waiting.extend(rows.map(|row| (slot, row)));
            }
            if ended {
                self.refill(idx)?;
            }
            if self.run.is_some() || self.waiting.len() >= self.output_rows || self.waiting_bytes >= MAX_BATCH_BYTES {
                return match self.flush()? {
                    Some(output) => Ok(Some(output)),
                    None => Ok(self.run.take()),
                };
            }
        }
        self.flush()
    }

    /// What waits, as an output batch.
    fn flush(&mut self) -> Result<Option<RecordBatch>> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let batches: Vec<_> = self.batches.iter().collect();
        let output = interleave_record_batch(&batches, &self.waiting).map_err(arrow_error("merge rows"))?;
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.batches.clear();
        self.sources.iter_mut().for_each(|cursor| cursor.slot = None);
        Ok(Some(output))
    }
}

impl Iterator for MergeIterator {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.fill().transpose()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_data::{Event, batch, event, events};

    fn source(rows: Vec<Event>, batch_rows: usize) -> SortedBatches {
        let batches: Vec<_> = rows.chunks(batch_rows).map(|rows| batch(&events(), rows)).collect();
        let mut batches = batches.into_iter();
        Box::new(move || Ok(batches.next()))
    }

    fn seqnos(outputs: impl Iterator<Item = Result<RecordBatch>>) -> Vec<i64> {
        use arrow::array::AsArray;
        let values =
            |output: RecordBatch| output.column(4).as_primitive::<arrow::datatypes::Int64Type>().values().to_vec();
        outputs.flat_map(|output| values(output.unwrap())).collect()
    }

    proptest! {
        #[test]
        fn merging_is_sorting(
            files in proptest::collection::vec(proptest::collection::vec((0..3u8, 0..50i64), 0..40), 0..6),
            batch_rows in 1..10usize,
            output_rows in 1..10usize,
        ) {
            let mut seqno = 0;
            let mut all = vec![];
            let mut sources = vec![];
            for (idx, mut file) in files.into_iter().enumerate() {
                file.sort_by_key(|(device, at)| (*device, -at));
                let rows: Vec<_> = file
                    .into_iter()
                    .map(|(device, at)| {
                        seqno += 1;
                        event(&device.to_string(), at, seqno)
                    })
                    .collect();
                all.extend(rows.iter().map(|row| (row.device.clone(), -row.at, idx, row.seqno)));
                sources.push(source(rows, batch_rows));
            }
            all.sort();
            let merged = MergeIterator::new(KeyOrder::new(&events()).unwrap(), sources, output_rows).unwrap();
            prop_assert_eq!(seqnos(merged), all.into_iter().map(|row| row.3).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_batch_of_wide_rows_has_few_of_them() {
        let row = |at: i64| Event { note: Some("x".repeat(1 << 20)), ..event("a", at, at) };
        let rows = |odd: i64| (0..100).map(|at| row(at * 2 + odd)).collect::<Vec<_>>();
        let sources = vec![source(rows(0), 10), source(rows(1), 10)];
        let merged = MergeIterator::new(KeyOrder::new(&events()).unwrap(), sources, 65_536).unwrap();
        let sizes: Vec<usize> = merged.map(|output| output.unwrap().num_rows()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 200);
        assert!(sizes.iter().all(|n_rows| *n_rows <= 70), "{sizes:?}");
    }

    #[test]
    fn files_of_different_times_pass_through() {
        let rows = |from: i64| (from..from + 5000).rev().map(|at| event("a", at, at)).collect::<Vec<_>>();
        let sources = vec![source(rows(0), 2000), source(rows(10_000), 2000), source(rows(5000), 2000)];
        let merged = MergeIterator::new(KeyOrder::new(&events()).unwrap(), sources, 100).unwrap();
        let outputs: Vec<_> = merged.map(|output| output.unwrap()).collect();
        assert_eq!(outputs.len(), 9, "{:?}", outputs.iter().map(|output| output.num_rows()).collect::<Vec<_>>());
        assert_eq!(seqnos(outputs.into_iter().map(Ok)), (0..15_000).rev().collect::<Vec<_>>());
    }
}
