//! What do movers need to know of a table's hot side? What is waiting, a frozen piece of it, and how to install what
//! became of it in the lake.
//!
//! A delivery: [`HotTable::freeze`] → write files → commit in the metastore → [`HotTable::stage`] →
//! [`HotTable::install`]. A compaction: write files → commit → `stage` with no cursor → `install`. Both are serial for
//! one table: whoever drives them sees to it. Between commit and install a crash may come; [`Stage::repair`] then
//! installs from the committed files.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use roaring::RoaringBitmap;
use tarn_types::{Cursor, FileId, TableSchema, Version};

use crate::error::Result;

/// How much waits for delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryBacklog {
    /// Distinct keys changed or deleted after the installed cursor (rows, for a table that only appends).
    pub rows: u64,
    /// The memory that recent rows take, their index included.
    pub bytes: u64,
    /// When the oldest of them came, in milliseconds since 1970; after a restart, when they were replayed. None:
    /// nothing waits.
    pub oldest_ms: Option<i64>,
}

/// The recent rows of a table at one position, waiting to become lake files.
#[derive(Clone, Debug)]
pub struct FrozenRows {
    /// The table.
    pub table: Arc<TableSchema>,
    /// The position: every change up to here is in `version` or in this. It names every tablet.
    pub cursor: Cursor,
    /// The lake version this supersedes. `dead` speaks of its files.
    pub version: Version,
    /// The live rows, schema [`TableSchema::arrow_with_seqno`], in no order. Each key at most once (unless the table
    /// only appends).
    pub rows: Vec<RecordBatch>,
    /// How many rows these are.
    pub n_rows: u64,
    /// Rows of `version`'s files that are superseded or deleted at `cursor`.
    pub dead: BTreeMap<FileId, RoaringBitmap>,
    /// How many keys are deleted at `cursor` and were changed since the installed one.
    pub deleted_keys: u64,
}

/// Rows that a lake file holds.
#[derive(Clone, Debug)]
pub struct PlacedRows {
    /// The file.
    pub file: FileId,
    /// The key columns and `__seqno`, in the order of the file's rows. Other columns are ignored.
    pub keys: RecordBatch,
    /// The file's row that the first of them is.
    pub first_row: u32,
}

/// What a committed version changes in the addresses.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// The committed version.
    pub version: Version,
    /// The delivered position; None for a compaction, which moves rows and no cursor.
    pub cursor: Option<Cursor>,
    /// Where rows lie now. All of them live in `version`.
    pub placed: Vec<PlacedRows>,
    /// Keys that `version` no longer holds, beside those in `placed`, which win. None: the keys that are deleted in the
    /// frozen rows up to the cursor. Keys without an address are ignored.
    pub gone: Option<Vec<Vec<u8>>>,
}

impl Stage {
    /// The delivery of what is frozen.
    #[must_use]
    pub fn delivery(version: Version, cursor: Cursor, placed: Vec<PlacedRows>) -> Self {
        Self { version, cursor: Some(cursor), placed, gone: None }
    }

    /// A move of rows between files.
    #[must_use]
    pub fn compaction(version: Version, placed: Vec<PlacedRows>) -> Self {
        Self { version, cursor: None, placed, gone: None }
    }

    /// A delivery that is committed and not installed: by somebody else, or before a crash. `placed` are the rows of
    /// the files it added, `gone` the keys of the rows that died by it.
    ///
    /// The order at start is: open, replay the log into the table, repair (commit by commit), finish the replay.
    #[must_use]
    pub fn repair(version: Version, cursor: Cursor, placed: Vec<PlacedRows>, gone: Vec<Vec<u8>>) -> Self {
        Self { version, cursor: Some(cursor), placed, gone: Some(gone) }
    }
}

/// Addresses that are written and wait for [`HotTable::install`]. Dropping it forgets them.
pub struct StagedAddresses {
    /// The version they belong to.
    pub version: Version,
    /// The delivered position, None for a compaction.
    pub cursor: Option<Cursor>,
    /// How many addresses are set.
    pub n_addresses: u64,
    /// How many addresses are removed.
    pub n_gone: u64,
    /// What the implementation needs to install them.
    pub payload: Box<dyn Any + Send>,
}

impl fmt::Debug for StagedAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged")
            .field("version", &self.version)
            .field("cursor", &self.cursor)
            .field("n_addresses", &self.n_addresses)
            .field("n_gone", &self.n_gone)
            .finish_non_exhaustive()
    }
}

/// The hot side of one table as movers see it. Calls block (on disk at most); call them off the executor.
pub trait HotTable: Send + Sync {
    /// The table.
    fn schema(&self) -> Arc<TableSchema>;

    /// How much waits. Cheap.
    fn pending(&self) -> DeliveryBacklog;

    /// The lake version whose addresses are installed, and the position it holds.
    fn installed(&self) -> (Version, Cursor);

    /// Sets the recent rows aside, at a place of each tablet's log, and says which rows of the lake they supersede.
    /// None: nothing waits. Until an install with its cursor, the same again, whatever was written meanwhile (with
    /// `version` and `dead` moved on by compactions).
    fn freeze(&self) -> Result<Option<FrozenRows>>;

    /// Writes the addresses of a committed version beside the table. Nothing is visible yet; nothing is locked.
    fn stage(&self, stage: Stage) -> Result<StagedAddresses>;

    /// Switches the table to the staged version, atomically for readers and for a crash, durable when it returns.
    /// Snapshots taken before stay exact. `Kind::Conflict` when another version was installed or a tablet split since
    /// `stage`, and when the cursor is not applied here yet: stage again.
    fn install(&self, staged: StagedAddresses) -> Result<()>;
}
