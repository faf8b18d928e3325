//! Which rows have the keys of a range, in their order or against it? Rows of the engine; of rows that were evicted,
//! where they are.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use self_cell::self_cell;
use tarn_types::{Address, Direction, RowDecoder, RowKind, StoredRow, TableSchema};

use crate::engine::{EngineSnapshot, RowIter, Space};
use crate::error::Result;

/// Of the cells of one batch of a scan, at most; one row may be longer.
const BATCH_BYTES: usize = 16 << 20;

/// Rows of one batch that lie in the lake, at most: whoever reads them holds them all, however wide they are.
const BATCH_EVICTED: usize = 256;

/// Batches grow up to so many rows: who goes on reading wants more than the first ones.
const GROWN_ROWS: usize = 8_192;

/// Which keys does a scan want?
#[derive(Clone, Debug)]
pub enum KeyRange {
    /// The whole table.
    All,
    /// All keys that begin with these bytes (see [`tarn_types::encode_partition_prefix`]).
    Prefix(Vec<u8>),
    /// Engine keys, half-open.
    Range(Range<Vec<u8>>),
}

/// Which rows does a scan want, and how?
#[derive(Clone, Debug)]
pub struct RangeOfRows {
    /// Of which keys.
    pub range: KeyRange,
    /// Which come first.
    pub direction: Direction,
    /// Positions of columns; None: all.
    pub projection: Option<Vec<usize>>,
    /// Whether `__seqno` is wanted, as the last column.
    pub with_seqno: bool,
    /// So many rows has the first batch, at least one; of wide and of evicted rows fewer. Each later one may be twice
    /// as long as the one before.
    pub batch_rows: usize,
}

impl RangeOfRows {
    /// All columns of all rows, without `__seqno`, ascending.
    #[must_use]
    pub fn all(batch_rows: usize) -> Self {
        let (range, direction) = (KeyRange::All, Direction::Ascending);
        Self { range, direction, projection: None, with_seqno: false, batch_rows }
    }
}

/// Neighbouring rows.
#[derive(Clone, Debug, PartialEq)]
pub struct ScannedRows {
    /// Those that the engine has, in the storage schema, projected.
    pub rows: RecordBatch,
    /// Those that lie in the lake alone: the place of each among all rows of the batch, ascending, and where it lies.
    pub evicted: Vec<(usize, Address)>,
    /// The key of the last one of all; None: no row is behind it.
    pub last_key: Option<Vec<u8>>,
}

/// Keys, and the engine as it is to be read there.
pub(crate) struct ScanRange {
    pub(crate) engine: Arc<dyn EngineSnapshot>,
    pub(crate) range: Range<Vec<u8>>,
    /// Whether addresses have to be asked, too.
    pub(crate) evicted: bool,
}

/// Rows and addresses of a part, by key. Of a key that has both the row is meant: its address is of what was delivered.
struct Merge<'a> {
    rows: Box<dyn RowIter + 'a>,
    addresses: Option<Box<dyn RowIter + 'a>>,
    direction: Direction,
    /// Which of the two stood on the entry that was given last.
    given: Option<Ordering>,
}

enum ScannedKey<'a> {
    Row { key: &'a [u8], stored: &'a [u8] },
    Address { key: &'a [u8], address: &'a [u8] },
}

impl<'a> Merge<'a> {
    fn new(engine: &'a dyn EngineSnapshot, range: Range<Vec<u8>>, evicted: bool, direction: Direction) -> Self {
        let addresses = evicted.then(|| engine.scan_in(Space::Addresses, range.clone(), direction));
        Self { rows: engine.scan_in(Space::Rows, range, direction), addresses, direction, given: None }
    }

    fn next(&mut self) -> Result<Option<ScannedKey<'_>>> {
        let given = self.given.replace(Ordering::Equal);
        if given.is_none_or(Ordering::is_le) {
            self.rows.advance()?;
        }
        if let Some(addresses) = self.addresses.as_mut().filter(|_| given.is_none_or(Ordering::is_ge)) {
            addresses.advance()?;
        }
        let address = self.addresses.as_ref().and_then(|addresses| addresses.entry());
        let (order, found) = match (self.rows.entry(), address) {
            (None, None) => return Ok(None),
            (Some((key, stored)), None) => (Ordering::Less, ScannedKey::Row { key, stored }),
            (None, Some((key, address))) => (Ordering::Greater, ScannedKey::Address { key, address }),
            (Some((key, stored)), Some((of_address, address))) => match self.direction.of(key.cmp(of_address)) {
                Ordering::Greater => (Ordering::Greater, ScannedKey::Address { key: of_address, address }),
                order => (order, ScannedKey::Row { key, stored }),
            },
        };
        self.given = Some(order);
        Ok(Some(found))
    }
}

self_cell!(
    struct OwnedMerge {
        owner: Arc<dyn EngineSnapshot>,
        #[covariant]
        dependent: Merge,
    }
);

/// The batches of a scan. It holds its engine snapshots, not the [`crate::HotSnapshot`].
pub struct RowScan {
    schema: Arc<TableSchema>,
    wanted: RangeOfRows,
    /// Not begun yet, in the order of keys.
    parts: VecDeque<ScanRange>,
    part: Option<OwnedMerge>,
    done: bool,
}

impl RowScan {
    pub(crate) fn new(schema: Arc<TableSchema>, parts: VecDeque<ScanRange>, wanted: RangeOfRows) -> Self {
        Self { schema, wanted, parts, part: None, done: false }
    }

    fn next_part(&mut self) -> Option<OwnedMerge> {
        let direction = self.wanted.direction;
        let ScanRange { engine, range, evicted } = match direction {
            Direction::Ascending => self.parts.pop_front(),
            Direction::Descending => self.parts.pop_back(),
        }?;
        Some(OwnedMerge::new(engine, |engine| Merge::new(&**engine, range, evicted, direction)))
    }

    fn read(&mut self) -> Result<Option<ScannedRows>> {
        let mut batch = ScanBatch {
            decoder: RowDecoder::new(&self.schema, self.wanted.projection.as_deref(), self.wanted.with_seqno),
            max_rows: self.wanted.batch_rows.max(1),
            n_bytes: 0,
            evicted: Vec::new(),
            last_key: None,
        };
        while !batch.is_full() {
            if self.part.is_none() {
                self.part = self.next_part();
            }
            let Some(part) = &mut self.part else {
                self.done = true;
                break;
            };
            if part.with_dependent_mut(|_, merge| batch.fill(merge))? {
                self.part = None;
            }
        }
        self.wanted.batch_rows = batch.max_rows.saturating_mul(2).min(GROWN_ROWS).max(batch.max_rows);
        batch.finish()
    }
}

/// A batch on its way.
struct ScanBatch {
    decoder: RowDecoder,
    max_rows: usize,
    n_bytes: usize,
    evicted: Vec<(usize, Address)>,
    last_key: Option<Vec<u8>>,
}

impl ScanBatch {
    fn n_rows(&self) -> usize {
        self.decoder.len() + self.evicted.len()
    }

    fn is_full(&self) -> bool {
        self.n_rows() >= self.max_rows || self.n_bytes >= BATCH_BYTES || self.evicted.len() >= BATCH_EVICTED
    }

    /// Takes rows until it is full. True: there are no more.
    fn fill(&mut self, merge: &mut Merge<'_>) -> Result<bool> {
        while !self.is_full() {
            let key = match merge.next()? {
                None => return Ok(true),
                Some(ScannedKey::Row { key, stored }) => {
                    let stored = StoredRow::parse(stored)?;
                    if stored.kind != RowKind::Live {
                        continue;
                    }
                    self.decoder.push(key, stored.cells, stored.seqno)?;
                    self.n_bytes += stored.cells.len();
                    key
                }
                Some(ScannedKey::Address { key, address }) => {
                    self.evicted.push((self.n_rows(), Address::decode(address)?));
                    key
                }
            };
            if self.is_full() {
                self.last_key = Some(key.to_vec());
            }
        }
        Ok(false)
    }

    fn finish(mut self) -> Result<Option<ScannedRows>> {
        if self.n_rows() == 0 {
            return Ok(None);
        }
        Ok(Some(ScannedRows { rows: self.decoder.finish()?, evicted: self.evicted, last_key: self.last_key }))
    }
}

impl Iterator for RowScan {
    type Item = Result<ScannedRows>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let batch = self.read();
        self.done |= batch.is_err();
        batch.transpose()
    }
}
