//! What does a table's lake consist of at one version?
//!
//! ```text
//! TableVersion  version, cursor ──> File ──> Block (one row group) ──> ColumnStats
//!                                     └──> deletion vector (dead rows of that file at this version)
//! ```
//!
//! Invariants: a file never changes once committed; only its deletion vector grows. Blocks of a file are in row-group
//! order and cover its rows without a gap. `min`/`max` are bounds: no non-null value of the block lies outside them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use tarn_types::{ColumnId, Cursor, FileId, Value, Version};

use crate::order::compare;

/// Bounds of one column over some rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnStats {
    pub column: ColumnId,
    /// No non-null value is smaller. `None`: not known, or every value is NULL (`null_count` tells).
    pub min: Option<Value>,
    /// No non-null value is greater. `None`: as for `min`.
    pub max: Option<Value>,
    /// Whether `min` and `max` are values that occur, not shortened bounds.
    pub exact: bool,
    pub null_count: u64,
    /// Bytes on storage.
    pub bytes: u64,
}

/// One row group of one file: the unit of pruning and scanning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Position of the row group in its file.
    pub row_group: u32,
    /// Row of the file with which the block starts.
    pub first_row: u64,
    pub n_rows: u64,
    /// Compressed bytes.
    pub bytes: u64,
    /// In table column order; a column that is missing here has no known bounds.
    pub columns: Vec<ColumnStats>,
}

impl Block {
    pub fn column(&self, column: ColumnId) -> Option<&ColumnStats> {
        self.columns.iter().find(|stats| stats.column == column)
    }
}

/// One Parquet file of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    pub id: FileId,
    /// Object key in the lake's store.
    pub path: String,
    pub size_bytes: u64,
    pub n_rows: u64,
    /// Hours since the Unix epoch.
    pub hour: i64,
    pub etag: Option<String>,
    pub blocks: Vec<Block>,
    /// Set by the metastore when the file is committed.
    pub created_version: Version,
    pub sorted_by_key: bool,
}

impl File {
    /// The bounds of one column over the whole file; `None` when a block does not know the column.
    pub fn column_stats(&self, column: ColumnId) -> Option<ColumnStats> {
        let mut whole: Option<ColumnStats> = None;
        let mut rows = 0;
        for block in &self.blocks {
            let stats = block.column(column)?;
            whole = Some(match whole {
                None => stats.clone(),
                Some(so_far) => merge(so_far, rows, stats, block.n_rows),
            });
            rows += block.n_rows;
        }
        whole
    }
}

/// Bounds over the rows of both sides. A side of NULLs alone has no bounds to add.
fn merge(left: ColumnStats, left_rows: u64, right: &ColumnStats, right_rows: u64) -> ColumnStats {
    let left_empty = left.null_count == left_rows;
    let right_empty = right.null_count == right_rows;
    let pick = |a: Option<Value>, b: Option<&Value>, keep: Ordering| match (a, b) {
        (a, _) if right_empty => a,
        (_, b) if left_empty => b.cloned(),
        (Some(a), Some(b)) => match compare(&a, b) {
            Some(order) if order == keep || order == Ordering::Equal => Some(a),
            Some(_) => Some(b.clone()),
            None => None,
        },
        _ => None,
    };
    ColumnStats {
        column: left.column,
        exact: (left.exact || left_empty) && (right.exact || right_empty),
        min: pick(left.min, right.min.as_ref(), Ordering::Less),
        max: pick(left.max, right.max.as_ref(), Ordering::Greater),
        null_count: left.null_count + right.null_count,
        bytes: left.bytes + right.bytes,
    }
}

/// All of a table's lake at one version. Immutable; shared.
#[derive(Debug, Clone, PartialEq)]
pub struct TableVersion {
    pub version: Version,
    /// Changes up to here are in these files, later ones are not.
    pub cursor: Cursor,
    /// By id, hence in the order of creation.
    pub files: Vec<Arc<File>>,
    /// Dead rows; a file without an entry has none.
    pub deletion_vectors: HashMap<FileId, Arc<RoaringBitmap>>,
    /// Unix time; never decreases from version to version.
    pub committed_ms: i64,
}

impl TableVersion {
    pub fn file(&self, id: FileId) -> Option<&Arc<File>> {
        self.files.binary_search_by_key(&id, |file| file.id).ok().map(|idx| &self.files[idx])
    }

    /// Rows that are not dead. Arithmetic on metadata.
    pub fn live_rows(&self) -> u64 {
        self.files.iter().map(|file| file.n_rows - self.dead_rows(file.id)).sum()
    }

    pub fn dead_rows(&self, file: FileId) -> u64 {
        self.deletion_vectors.get(&file).map_or(0, |dead| dead.len())
    }

    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }
}

/// Why a commit was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommitKind {
    /// Changes became files: the cursor moves.
    Delivery,
    /// The same rows in other files: the cursor stays.
    Compaction,
}

/// A change of a table's lake, all of it or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// Chosen by the writer. A commit with an id that is already in gets the first one's answer.
    pub id: Uuid,
    /// The version that this commit supersedes.
    pub expected: Version,
    pub add: Vec<File>,
    pub remove: Vec<FileId>,
    /// Whole new vector per file; a file keeps its vector when it is not named.
    pub deletion_vectors: BTreeMap<FileId, RoaringBitmap>,
    /// The new cursor; `None` leaves it.
    pub cursor: Option<Cursor>,
    pub kind: CommitKind,
    /// Unix time by the writer's clock.
    pub at_ms: i64,
}

/// A commit as it went in.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitInfo {
    pub id: Uuid,
    pub version: Version,
    pub added: Vec<Arc<File>>,
    pub removed: Vec<FileId>,
    pub deletion_vectors: BTreeMap<FileId, Arc<RoaringBitmap>>,
    pub cursor: Option<Cursor>,
    pub kind: CommitKind,
    pub at_ms: i64,
}

/// Which version of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Latest,
    /// The oldest that is kept.
    Oldest,
    Version(Version),
    /// The newest that was committed at or before this Unix time.
    Time(i64),
}

/// How much the metastore holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    pub tables: u64,
    /// Files of latest versions.
    pub files: u64,
    pub blocks: u64,
    /// Commits kept for `AS OF` and for retries.
    pub commits: u64,
    /// Bytes of the commit log since the last checkpoint; 0 without a disk.
    pub log_bytes: u64,
    pub checkpoint_bytes: u64,
}
