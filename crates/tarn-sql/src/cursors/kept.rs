//! Where are the rows of a cursor that may be asked for again?
//!
//! In memory first; what is more than [`MEMORY_BYTES`], or than transactions may hold together, goes into a file of the
//! folder where queries spill, which is gone with the cursor. Rows have the numbers that FETCH ABSOLUTE gives them, the
//! first is 1.
//!
//! ```text
//! file  [batch][batch]…    each a stream of Arrow IPC by itself; where it begins is known here alone
//! ```

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::spill_file::{SpillFile, SpillWriter};

use crate::budget::{Budget, Reservation};
use crate::error::{Result, SqlError, state};

/// Of one cursor.
const MEMORY_BYTES: usize = 4 << 20;

/// Cursors of a node that have a file, which is open: a client may declare many.
pub const MAX_FILES: u64 = 128;

/// Where rows may be kept.
#[derive(Clone)]
pub struct Room {
    /// Taken first.
    pub memory: Arc<Budget>,
    /// Where rows go that memory has no room for.
    pub disk: Arc<DiskManager>,
    /// Of [`MAX_FILES`].
    pub files: Arc<Budget>,
}

/// Rows in a row.
pub struct CursorRows {
    room: Room,
    /// How many there were before the first one that is kept.
    n_before: u64,
    n_rows: u64,
    /// In order.
    parts: Vec<StoredBatch>,
    memory_bytes: usize,
    reservation: Reservation,
    file: Option<SpilledRows>,
    /// The part of the file that was read last, by its place among the parts.
    last_read: Option<(usize, RecordBatch)>,
}

struct StoredBatch {
    /// The number of its first row.
    first: u64,
    place: BatchLocation,
}

enum BatchLocation {
    Memory(RecordBatch),
    File { offset: u64, n_bytes: usize },
}

struct SpilledRows {
    /// Removed when this is dropped.
    file: Arc<dyn SpillFile>,
    writer: Box<dyn SpillWriter>,
    n_bytes: u64,
    _one: Reservation,
}

impl CursorRows {
    /// Nothing yet; the first row that comes has the number behind `n_before`.
    pub fn new(room: Room, n_before: u64) -> CursorRows {
        let reservation = room.memory.reservation();
        let (parts, file) = (vec![], None);
        CursorRows { room, n_before, n_rows: 0, parts, memory_bytes: 0, reservation, file, last_read: None }
    }

    /// The number of the last row.
    pub fn last(&self) -> u64 {
        self.n_before + self.n_rows
    }

    /// What is held in memory.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Adds the next rows.
    ///
    /// Errors: `58030`, or `53100` where the disk has no room; `53400` where too many cursors have a file. The cursor
    /// cannot be read on then.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let n_rows = batch.num_rows() as u64;
        if n_rows == 0 {
            return Ok(());
        }
        let memory_bytes = self.memory_bytes + batch.get_array_memory_size();
        let first = self.last() + 1;
        let stays = self.file.is_none() && memory_bytes <= MEMORY_BYTES && self.reservation.resize(memory_bytes as u64);
        let place = match stays {
            true => {
                self.memory_bytes = memory_bytes;
                BatchLocation::Memory(batch)
            }
            false => self.spill(batch).await?,
        };
        self.parts.push(StoredBatch { first, place });
        self.n_rows += n_rows;
        Ok(())
    }

    /// The rows that lie together with this one, and the number of the first of them. `None`: it is not kept.
    pub async fn around(&mut self, row: u64) -> Result<Option<(RecordBatch, u64)>> {
        if row <= self.n_before || row > self.last() {
            return Ok(None);
        }
        let idx = self.parts.partition_point(|part| part.first <= row) - 1;
        let StoredBatch { first, place } = &self.parts[idx];
        let first = *first;
        let (offset, n_bytes) = match place {
            BatchLocation::Memory(batch) => return Ok(Some((batch.clone(), first))),
            BatchLocation::File { offset, n_bytes } => (*offset, *n_bytes),
        };
        if let Some((_, batch)) = self.last_read.as_ref().filter(|(read, _)| *read == idx) {
            return Ok(Some((batch.clone(), first)));
        }
        let path = self.file.as_ref().and_then(|spilled| spilled.file.path()).map(PathBuf::from);
        let path = path.ok_or_else(|| SqlError::new(state::INTERNAL, "rows of a cursor were spilled to no file"))?;
        let batch = blocking(move || read(path, offset, n_bytes)).await?;
        self.last_read = Some((idx, batch.clone()));
        Ok(Some((batch, first)))
    }

    async fn spill(&mut self, batch: RecordBatch) -> Result<BatchLocation> {
        let mut spilled = match self.file.take() {
            Some(spilled) => spilled,
            None => {
                let mut one = self.room.files.reservation();
                if !one.resize(1) {
                    let message = format!("{} cursors keep rows in files already", self.room.files.limit());
                    return Err(SqlError::new(state::CONFIGURATION_LIMIT, message)
                        .with_hint("CLOSE those that are not needed, or DECLARE them NO SCROLL and without HOLD"));
                }
                let file = self.room.disk.create_tmp_file("rows of a cursor")?;
                let writer = file.open_writer()?;
                SpilledRows { file, writer, n_bytes: 0, _one: one }
            }
        };
        let (spilled, n_bytes) = blocking(move || {
            let mut encoder = StreamWriter::try_new(Vec::new(), &batch.schema())?;
            encoder.write(&batch)?;
            let bytes = encoder.into_inner()?;
            spilled.writer.write_all(&bytes).map_err(failed)?;
            Ok((spilled, bytes.len()))
        })
        .await?;
        let offset = spilled.n_bytes;
        self.file = Some(SpilledRows { n_bytes: offset + n_bytes as u64, ..spilled });
        Ok(BatchLocation::File { offset, n_bytes })
    }
}

fn read(path: PathBuf, offset: u64, n_bytes: usize) -> Result<RecordBatch> {
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = vec![0; n_bytes];
    file.read_exact(&mut bytes).map_err(failed)?;
    let batch = StreamReader::try_new(bytes.as_slice(), None)?.next().transpose()?;
    batch.ok_or_else(|| SqlError::new(state::DATA_CORRUPTED, "rows of a cursor are not where they were written"))
}

fn failed(error: std::io::Error) -> SqlError {
    let state = if error.kind() == std::io::ErrorKind::StorageFull { state::DISK_FULL } else { state::IO_ERROR };
    SqlError::new(state, format!("keep rows of a cursor: {error}"))
        .with_hint("DECLARE it NO SCROLL and without HOLD, or make room in the setting spill_dir")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|died| SqlError::new(state::INTERNAL, format!("rows of a cursor were not kept: {died}")))?
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::execution::disk_manager::DiskManagerBuilder;

    use super::*;

    fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
        let numbers = Arc::new(Int64Array::from_iter_values(numbers)) as _;
        RecordBatch::try_from_iter([("n", numbers)]).unwrap()
    }

    async fn number(kept: &mut CursorRows, row: u64) -> Option<i64> {
        let (batch, first) = kept.around(row).await.unwrap()?;
        Some(batch.column(0).as_primitive::<Int64Type>().value((row - first) as usize))
    }

    #[tokio::test]
    async fn rows_are_found_by_number_in_memory_and_in_the_file() {
        let disk = Arc::new(DiskManagerBuilder::default().build().unwrap());
        for limit in [u64::MAX, 20_000, 0] {
            let files = Budget::new(1);
            let room = Room { memory: Budget::new(limit), disk: Arc::clone(&disk), files };
            let mut kept = CursorRows::new(room, 10);
            for at in 0..4 {
                kept.push(batch(at * 1_000..(at + 1) * 1_000)).await.unwrap();
            }
            assert_eq!(kept.file.is_some(), limit != u64::MAX);
            for (row, want) in [(10, None), (11, Some(0)), (4_010, Some(3_999)), (2_000, Some(1_989)), (4_011, None)] {
                assert_eq!(number(&mut kept, row).await, want, "row {row} with {limit} bytes");
            }
            if limit == 0 {
                let refused = CursorRows::new(kept.room.clone(), 0).push(batch(0..10)).await.unwrap_err();
                assert_eq!(refused.state(), state::CONFIGURATION_LIMIT);
            }
            drop(kept);
            assert_eq!(disk.used_disk_space(), 0);
        }
    }
}
