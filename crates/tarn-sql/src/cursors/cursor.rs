//! What does FETCH move over? An open result, and where it stands.
//!
//! A cursor stands on a row, before the first (0), or behind the last. Rows that it has passed are kept where it may go
//! back ([`Scroll`]); where not, each is gone when it was given out.

use datafusion::arrow::array::UInt64Array;
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::record_batch::RecordBatch;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::kept::{CursorRows, Room};
use crate::cursor_sql::FetchStep;
use crate::error::{Result, SqlError, state};

/// A cursor of which nothing is said keeps so much, and goes forward only when there is more.
const SMALL_BYTES: usize = 1 << 20;

/// Whether a cursor goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scroll {
    /// Only forward: rows that it has passed are not kept.
    No,
    /// All its rows are kept.
    Yes,
    /// Nobody said. PostgreSQL goes back where its plan does; here it is where the rows are few.
    WhileSmall,
}

/// An open result.
pub struct Cursor {
    scroll: Scroll,
    /// `None`: all of it was read.
    source: Option<BoxStream<'static, Result<RecordBatch>>>,
    /// Rows that were read. `None`: those that were fetched are gone.
    kept: Option<CursorRows>,
    /// Without `kept`: read, and not fetched yet.
    rest: Option<RecordBatch>,
    /// The number of the row that it stands on; behind the last one, one more than there are.
    place: u64,
    room: Room,
}

/// What a FETCH has still to give out, from where the cursor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// So many of the next rows.
    Forward(u64),
    /// So many of the rows before, the nearest first.
    Backward(u64),
    /// The row that it stands on, once more.
    Again,
    /// Nothing more.
    Done,
}

impl Run {
    /// So many rows more, in its direction; of one that is done, forward.
    pub fn and(self, n_rows: u64) -> Run {
        match self {
            Run::Forward(n) => Run::Forward(n.saturating_add(n_rows)),
            Run::Backward(n) => Run::Backward(n.saturating_add(n_rows)),
            Run::Done if n_rows > 0 => Run::Forward(n_rows),
            Run::Again | Run::Done => self,
        }
    }
}

impl Cursor {
    /// Stands before the first row; nothing is read yet.
    pub fn new(source: BoxStream<'static, Result<RecordBatch>>, scroll: Scroll, room: Room) -> Cursor {
        let kept = (scroll != Scroll::No).then(|| CursorRows::new(room.clone(), 0));
        Cursor { scroll, source: Some(source), kept, rest: None, place: 0, room }
    }

    /// As it was declared.
    pub fn scroll(&self) -> Scroll {
        self.scroll
    }

    /// Reads what is left, so that nothing is read of the tables any more. Rows that a cursor which goes forward only
    /// has passed are not kept.
    ///
    /// Errors: the query's; of [`CursorRows::push`].
    pub async fn keep_all(&mut self) -> Result<()> {
        if self.kept.is_none() {
            self.kept = Some(CursorRows::new(self.room.clone(), self.place));
            if let (Some(kept), Some(rest)) = (&mut self.kept, self.rest.take()) {
                kept.push(rest).await?;
            }
        }
        let Some(kept) = &mut self.kept else { return Ok(()) };
        while let Some(source) = &mut self.source {
            match source.next().await.transpose()? {
                Some(batch) => kept.push(batch).await?,
                None => self.source = None,
            }
        }
        Ok(())
    }

    /// Goes to where a FETCH begins; what it gives out from there.
    ///
    /// Errors: `55000` where it would have to go back and cannot.
    pub async fn begin(&mut self, step: FetchStep) -> Result<Run> {
        Ok(match step {
            FetchStep::By(0) | FetchStep::Relative(0) if self.place == 0 => Run::Done,
            FetchStep::By(0) | FetchStep::Relative(0) => {
                self.check_back()?;
                Run::Again
            }
            FetchStep::By(n) if n < 0 => Run::Backward(n.unsigned_abs()),
            FetchStep::By(n) => Run::Forward(n.unsigned_abs()),
            FetchStep::AllForward => Run::Forward(u64::MAX),
            FetchStep::AllBackward => Run::Backward(u64::MAX),
            FetchStep::Absolute(0) => {
                self.go_to(0).await?;
                Run::Done
            }
            FetchStep::Absolute(n) if n > 0 => {
                self.go_to(n.unsigned_abs() - 1).await?;
                Run::Forward(1)
            }
            FetchStep::Absolute(n) => {
                self.check_back()?;
                self.skip(u64::MAX).await?;
                self.go_back(n.unsigned_abs() - 1)?;
                Run::Backward(1)
            }
            FetchStep::Relative(n) if n > 0 => {
                self.skip(n.unsigned_abs() - 1).await?;
                Run::Forward(1)
            }
            FetchStep::Relative(n) => {
                self.go_back(n.unsigned_abs() - 1)?;
                Run::Backward(1)
            }
        })
    }

    /// The next rows of a run, and what is left of it. `None`: that was all.
    pub async fn next(&mut self, run: Run) -> Result<Option<(RecordBatch, Run)>> {
        match run {
            Run::Done => Ok(None),
            Run::Forward(n) => {
                let Some(batch) = self.forward(n).await? else { return Ok(None) };
                let n_left = n - batch.num_rows() as u64;
                Ok(Some((batch, if n_left == 0 { Run::Done } else { Run::Forward(n_left) })))
            }
            Run::Backward(n) => {
                let Some(batch) = self.backward(n).await? else { return Ok(None) };
                let n_left = n - batch.num_rows() as u64;
                Ok(Some((batch, if n_left == 0 { Run::Done } else { Run::Backward(n_left) })))
            }
            Run::Again => {
                let Some(kept) = &mut self.kept else { return Ok(None) };
                let Some((batch, first)) = kept.around(self.place).await? else { return Ok(None) };
                Ok(Some((batch.slice((self.place - first) as usize, 1), Run::Done)))
            }
        }
    }

    /// How many rows a run would give out: it goes over them.
    pub async fn pass(&mut self, run: Run) -> Result<u64> {
        match run {
            Run::Done => Ok(0),
            Run::Forward(n) => self.skip(n).await,
            Run::Backward(n) => self.go_back(n),
            Run::Again => Ok(u64::from(self.is_on_row())),
        }
    }

    fn is_on_row(&self) -> bool {
        self.place > 0 && self.kept.as_ref().is_some_and(|kept| self.place <= kept.last())
    }

    fn check_back(&self) -> Result<()> {
        let error = || SqlError::new(state::NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward");
        match (self.scroll, &self.kept) {
            (Scroll::Yes, _) | (Scroll::WhileSmall, Some(_)) => Ok(()),
            (Scroll::No, _) => Err(error().with_hint("Declare it with SCROLL option to enable backward scan.")),
            (Scroll::WhileSmall, None) => Err(error()
                .with_detail(format!(
                    "it has given out more than {} MiB of rows, which are not kept",
                    SMALL_BYTES >> 20
                ))
                .with_hint("Declare it with SCROLL option to enable backward scan.")),
        }
    }

    /// Stands on this row then, or behind the last one.
    async fn go_to(&mut self, row: u64) -> Result<()> {
        if row < self.place {
            self.check_back()?;
            self.place = row;
            return Ok(());
        }
        self.skip(row - self.place).await.map(drop)
    }

    /// Goes forward over so many rows, and behind the last one if there are fewer; how many there were.
    async fn skip(&mut self, n: u64) -> Result<u64> {
        let mut n_left = n;
        while n_left > 0 {
            // What is kept need not be looked at.
            if let Some(kept) = self.kept.as_ref().filter(|kept| kept.last() > self.place) {
                let n_over = n_left.min(kept.last() - self.place);
                self.place += n_over;
                n_left -= n_over;
                continue;
            }
            match self.forward(n_left).await? {
                Some(batch) => n_left -= batch.num_rows() as u64,
                None => break,
            }
        }
        Ok(n - n_left)
    }

    /// Goes back over so many rows, and before the first one if there are fewer; how many there were.
    fn go_back(&mut self, n: u64) -> Result<u64> {
        if n == 0 {
            return Ok(0);
        }
        self.check_back()?;
        let n_over = n.min(self.place.saturating_sub(1));
        self.place = self.place.saturating_sub(n);
        Ok(n_over)
    }

    /// The next rows, at most so many. `None`: there are none left, and it stands behind the last one.
    async fn forward(&mut self, n: u64) -> Result<Option<RecordBatch>> {
        loop {
            let next = self.place + 1;
            let found = match (self.rest.take(), &mut self.kept) {
                (Some(rest), _) => Some((rest, next)),
                (None, Some(kept)) => kept.around(next).await?,
                (None, None) => None,
            };
            let Some((batch, first)) = found else {
                if self.read_on().await? {
                    continue;
                }
                return Ok(self.end());
            };
            let offset = (next - first) as usize;
            let n_there = batch.num_rows() - offset;
            let n_taken = usize::try_from(n).unwrap_or(usize::MAX).min(n_there);
            if self.kept.is_none() && n_taken < n_there {
                self.rest = Some(batch.slice(offset + n_taken, n_there - n_taken));
            }
            self.place += n_taken as u64;
            return Ok(Some(batch.slice(offset, n_taken)));
        }
    }

    /// Nothing is left.
    fn end(&mut self) -> Option<RecordBatch> {
        if let Some(kept) = &self.kept {
            self.place = kept.last() + 1;
        }
        None
    }

    /// Rows before where it stands, the nearest first, at most so many. `None`: there are none, and it stands before
    /// the first one.
    async fn backward(&mut self, n: u64) -> Result<Option<RecordBatch>> {
        self.check_back()?;
        let Some(kept) = &mut self.kept else { return Ok(None) };
        let Some((batch, first)) = kept.around(self.place.saturating_sub(1)).await? else {
            self.place = 0;
            return Ok(None);
        };
        // Those at `first..self.place` are before it.
        let n_there = self.place - first;
        let n_taken = n.min(n_there);
        let turned = UInt64Array::from_iter_values((n_there - n_taken..n_there).rev());
        self.place -= n_taken;
        Ok(Some(take_record_batch(&batch, &turned)?))
    }

    /// Reads a batch of the query. False: there is none.
    async fn read_on(&mut self) -> Result<bool> {
        let Some(source) = &mut self.source else { return Ok(false) };
        let batch = loop {
            match source.next().await.transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => break batch,
                None => {
                    self.source = None;
                    return Ok(false);
                }
            }
        };
        let n_bytes = batch.get_array_memory_size();
        let is_small = |kept: &CursorRows| kept.memory_bytes() + n_bytes <= SMALL_BYTES;
        match &mut self.kept {
            Some(kept) if self.scroll == Scroll::Yes || is_small(kept) => kept.push(batch).await?,
            _ => {
                self.kept = None;
                self.rest = Some(batch);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{AsArray, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::execution::disk_manager::DiskManagerBuilder;
    use futures::stream;

    use super::*;
    use crate::budget::Budget;

    fn cursor(n_rows: i64, scroll: Scroll) -> Cursor {
        let batch = |numbers: Vec<i64>| {
            let numbers = Arc::new(Int64Array::from(numbers)) as _;
            RecordBatch::try_from_iter([("n", numbers)]).unwrap()
        };
        let numbers: Vec<i64> = (1..=n_rows).collect();
        let batches: Vec<RecordBatch> = numbers.chunks(3).map(|part| batch(part.to_vec())).collect();
        let disk = Arc::new(DiskManagerBuilder::default().build().unwrap());
        let room = Room { memory: Budget::new(1_000), disk, files: Budget::new(1) };
        Cursor::new(stream::iter(batches.into_iter().map(Ok)).boxed(), scroll, room)
    }

    async fn fetch(cursor: &mut Cursor, step: FetchStep) -> Vec<i64> {
        let (mut run, mut all) = (cursor.begin(step).await.unwrap(), vec![]);
        while let Some((batch, left)) = cursor.next(run).await.unwrap() {
            all.extend(batch.column(0).as_primitive::<Int64Type>().values().iter());
            run = left;
        }
        all
    }

    #[tokio::test]
    async fn it_stands_where_postgres_cursors_stand() {
        for held in [false, true] {
            let mut cursor = cursor(10, Scroll::Yes);
            if held {
                cursor.keep_all().await.unwrap();
            }
            let steps: [(FetchStep, &[i64]); 25] = [
                (FetchStep::By(-1), &[]),
                (FetchStep::By(0), &[]),
                (FetchStep::By(2), &[1, 2]),
                (FetchStep::By(0), &[2]),
                (FetchStep::By(-1), &[1]),
                (FetchStep::By(-1), &[]),
                (FetchStep::By(1), &[1]),
                (FetchStep::Absolute(-1), &[10]),
                (FetchStep::By(1), &[]),
                (FetchStep::Relative(0), &[]),
                (FetchStep::By(-3), &[10, 9, 8]),
                (FetchStep::Absolute(4), &[4]),
                (FetchStep::Relative(3), &[7]),
                (FetchStep::Relative(-5), &[2]),
                (FetchStep::AllForward, &[3, 4, 5, 6, 7, 8, 9, 10]),
                (FetchStep::AllBackward, &[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
                (FetchStep::Absolute(-20), &[]),
                (FetchStep::By(1), &[1]),
                (FetchStep::Absolute(20), &[]),
                (FetchStep::By(-1), &[10]),
                (FetchStep::Absolute(0), &[]),
                (FetchStep::Relative(2), &[2]),
                (FetchStep::Absolute(10), &[10]),
                (FetchStep::By(1), &[]),
                (FetchStep::Absolute(-10), &[1]),
            ];
            for (at, (step, want)) in steps.into_iter().enumerate() {
                assert_eq!(fetch(&mut cursor, step).await, want, "{at}: {step:?}");
            }
        }
    }

    #[tokio::test]
    async fn it_says_that_it_goes_forward_only() {
        let mut cursor = cursor(10, Scroll::No);
        assert_eq!(fetch(&mut cursor, FetchStep::By(2)).await, [1, 2]);
        for step in [
            FetchStep::By(-1),
            FetchStep::By(0),
            FetchStep::Absolute(2),
            FetchStep::Absolute(-1),
            FetchStep::AllBackward,
        ] {
            let run = cursor.begin(step).await;
            let done = match run {
                Ok(run) => cursor.next(run).await.map(drop),
                Err(error) => Err(error),
            };
            assert_eq!(done.unwrap_err().state(), "55000", "{step:?}");
        }
        assert_eq!(fetch(&mut cursor, FetchStep::Absolute(5)).await, [5]);
        cursor.keep_all().await.unwrap();
        assert_eq!(fetch(&mut cursor, FetchStep::Relative(2)).await, [7]);
        assert_eq!(fetch(&mut cursor, FetchStep::AllForward).await, [8, 9, 10]);
        assert_eq!(cursor.begin(FetchStep::Relative(-2)).await.unwrap_err().state(), "55000");
    }

    #[tokio::test]
    async fn move_counts_what_fetch_gives() {
        let mut cursor = cursor(10, Scroll::WhileSmall);
        for (step, want) in [
            (FetchStep::By(4), 4),
            (FetchStep::AllBackward, 3),
            (FetchStep::AllForward, 10),
            (FetchStep::AllBackward, 10),
            (FetchStep::Absolute(3), 1),
            (FetchStep::By(0), 1),
        ] {
            let run = cursor.begin(step).await.unwrap();
            assert_eq!(cursor.pass(run).await.unwrap(), want, "{step:?}");
        }
        assert_eq!(fetch(&mut cursor, FetchStep::By(1)).await, [4]);
    }
}
