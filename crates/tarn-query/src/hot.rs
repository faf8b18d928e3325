//! What does a query need to know of hot rows?
//!
//! The binary fills these traits from the row store. A [`HotView`] is one position of one table: everything it answers
//! is true at that position, and it names the lake version that completes it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use roaring::RoaringBitmap;
use tarn_cache::ReadStore;
use tarn_types::{Address, Cursor, Direction, FileId, SeqNo, TableId, TableSchema, Version, prefix_end};

use crate::Result;

/// Rows in the order of their keys, or against it. Blocking: polled on a thread that may wait.
pub type RowBatches = Box<dyn Iterator<Item = Result<HotRows>> + Send>;

/// The tables there are.
pub trait HotCatalog: Send + Sync {
    /// All tables and views, in any order.
    fn tables(&self) -> Vec<Arc<TableSchema>>;
    /// A table by its exact name.
    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>>;
    /// The schemas that some of them may be in, beside `public`: those have it in their names
    /// ([`tarn_types::full_name`]). By default there are none.
    fn schemas(&self) -> Vec<String> {
        vec![]
    }
    /// A view by its exact name. By default there are none.
    fn view(&self, _name: &str) -> Option<Arc<TableSchema>> {
        None
    }
}

/// Who reads: one for each session.
pub trait HotReader: Send + Sync {
    /// The tables of one statement, all at one moment, in the order of `sources`, which are of this reader's catalog.
    /// No IO worth naming.
    ///
    /// Errors: a table may not be read by whom the session is for, or was dropped.
    fn snapshot(&self, sources: &[Arc<dyn HotSource>]) -> Result<Vec<Arc<dyn HotView>>>;
}

/// One table as a statement is planned with it.
pub trait HotSource: Any + Send + Sync {
    /// Its schema.
    fn schema(&self) -> Arc<TableSchema>;
    /// Where its files are.
    fn files(&self) -> FileStore {
        FileStore::Lake
    }
    /// The same table, read because this view reads it: with the rights of the view's owner. `None`: rights are
    /// nobody's business here.
    fn through(&self, _view: TableId) -> Option<Arc<dyn HotSource>> {
        None
    }
}

/// Where a table's files are.
#[derive(Debug, Clone)]
pub enum FileStore {
    /// In the lake's own store; nobody else writes there.
    Lake,
    /// Where somebody else writes: a file that is no longer the one that was attached is an error, not rows.
    External {
        /// Paths of files are below its root.
        store: ReadStore,
        /// Of this store and no other, and not 0: files of two archives may have the same path.
        id: u64,
    },
}

/// One table at one position.
pub trait HotView: Send + Sync {
    /// The lake version that, with the recent rows, is the table.
    fn version(&self) -> Version;
    /// Per tablet, the last change that this view shows.
    fn position(&self) -> &Cursor;
    /// Live rows changed after `version`'s cursor.
    fn recent_rows(&self) -> Result<u64>;
    /// Those rows: storage schema, projected by column position in the order given; `__seqno` last if asked for. No
    /// order.
    fn recent(&self, projection: Option<&[usize]>, with_seqno: bool) -> Result<Vec<RecordBatch>>;
    /// Rows of `version`'s files that recent changes supersede, by file.
    fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>>;
    /// The rows of engine keys, in the order of `keys`. Not for append-only tables, whose keys are not unique. Waits
    /// for the disk.
    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<HotLookup>>;
    /// The rows of a range of keys; of those that were evicted, where they lie in the files of `version`. Not for
    /// append-only tables.
    fn scan(&self, scan: &RangeScan) -> RowBatches;
    /// Whether the row engine has every row of the table: nothing was evicted, and the table is not append-only.
    fn rows_complete(&self) -> bool;
    /// The rows whose entries in an index of the table lie in these ranges, which do not overlap: the entries of the
    /// view's position. Waits for the disk. By default nobody knows.
    fn indexed(&self, _index: TableId, _ranges: &[KeyRange], _max_rows: usize) -> Result<IndexLookup> {
        Ok(IndexLookup::Unknown("its entries are not there"))
    }
}

/// What an index knows of some values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexLookup {
    /// Engine keys of the rows that have them, in no order, each once.
    Rows(Vec<Vec<u8>>),
    /// More rows than were asked for.
    TooMany,
    /// It cannot be asked, and why.
    Unknown(&'static str),
}

/// Which rows, and what of them?
#[derive(Debug, Clone)]
pub struct RangeScan {
    /// Of these keys.
    pub range: KeyRange,
    /// Which of them come first.
    pub direction: Direction,
    /// Positions of columns, in the order wanted.
    pub projection: Vec<usize>,
    /// Whether `__seqno` is behind them.
    pub with_seqno: bool,
    /// Rows of the first batch, at most; later ones grow.
    pub batch_rows: usize,
}

/// Neighbouring rows of a range.
#[derive(Debug, Clone)]
pub struct HotRows {
    /// Those that the row engine has, of storage types.
    pub rows: RecordBatch,
    /// Those that were evicted: the place of each among all rows of the batch, ascending, and where to read it.
    pub evicted: Vec<(usize, Address)>,
}

/// Engine keys from `start` on and before `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be in it.
    pub start: Vec<u8>,
    /// The first key behind it.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with `prefix`. `None`: no key is behind them, which has no end.
    pub fn of_prefix(prefix: Vec<u8>) -> Option<KeyRange> {
        let end = prefix_end(&prefix)?;
        Some(KeyRange { start: prefix, end })
    }
}

/// What the row engine knows of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum HotLookup {
    /// The row: its encoded cells and the change that wrote it.
    Row {
        /// As `tarn_types::decode_row` reads them.
        cells: Bytes,
        /// Position of the change.
        seqno: SeqNo,
    },
    /// There is no such row.
    Absent,
    /// The row was evicted: read it there.
    InLake(Address),
}
