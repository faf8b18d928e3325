//! How do several files in key order become one stream in key order, in bounded memory?
//!
//! The source with the smallest key gives out all its rows up to the next source's smallest key, found by bisection: files of
//! different times seldom overlap, and then whole batches pass through unread. With `k` sources a run costs `k` comparisons;
//! memory is one batch a source and one chunk.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::row::Rows;

use crate::Result;
use crate::error::arrow_error;
use crate::sort::KeyOrder;

/// A run at least this long is passed on as a slice instead of row by row.
const LONG_RUN: usize = 1024;

/// Batches in key order, one after the other; `None` at the end.
pub(crate) type Source = Box<dyn FnMut() -> Result<Option<RecordBatch>> + Send>;

/// All rows of the sources in key order. Rows of one key come in the order of their sources.
pub(crate) struct Merged {
    order: KeyOrder,
    sources: Vec<Cursor>,
    chunk_rows: usize,
    /// Rows that wait to make a chunk: positions (batch, row) in `batches`.
    waiting: Vec<(usize, usize)>,
    batches: Vec<RecordBatch>,
    /// A long run that follows on what waits.
    run: Option<RecordBatch>,
}

struct Cursor {
    source: Source,
    /// The batch it stands in, and its keys; `None` at the end.
    batch: Option<(RecordBatch, Rows)>,
    at: usize,
    /// Where the batch is in `Merged::batches`.
    slot: Option<usize>,
}

impl Merged {
    pub fn new(order: KeyOrder, sources: Vec<Source>, chunk_rows: usize) -> Result<Self> {
        let sources = sources.into_iter().map(|source| Cursor { source, batch: None, at: 0, slot: None });
        let mut merged =
            Self { order, sources: sources.collect(), chunk_rows, waiting: Vec::new(), batches: Vec::new(), run: None };
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

    /// Takes runs until there is a chunk.
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
                self.waiting.extend(rows.map(|row| (slot, row)));
            }
            if ended {
                self.refill(idx)?;
            }
            if self.run.is_some() || self.waiting.len() >= self.chunk_rows {
                return match self.flush()? {
                    Some(chunk) => Ok(Some(chunk)),
                    None => Ok(self.run.take()),
                };
            }
        }
        self.flush()
    }

    /// What waits, as a chunk.
    fn flush(&mut self) -> Result<Option<RecordBatch>> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let batches: Vec<_> = self.batches.iter().collect();
        let chunk = interleave_record_batch(&batches, &self.waiting).map_err(arrow_error("merge rows"))?;
        self.waiting.clear();
        self.batches.clear();
        self.sources.iter_mut().for_each(|cursor| cursor.slot = None);
        Ok(Some(chunk))
    }
}

impl Iterator for Merged {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.fill().transpose()
    }
}
