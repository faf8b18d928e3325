//! What is known of a file without reading it, and without asking the store?
//!
//! Invariants: blocks of a file are in row-group order and cover its rows without a gap. `min`/`max` are bounds: no
//! non-null value of the block lies outside them. What is large and seldom needed of a block (its bloom, the metadata
//! of its columns) is not here but in its metadata (`block_metadata.rs`).

use std::cmp::Ordering;
use std::sync::Arc;

use tarn_types::{ColumnId, FileId, Value, Version};

use crate::Checksums;
use crate::order::compare;

/// What is said of one file besides its rows; shared, because many files have the same one.
pub type Note = Arc<str>;

/// Bounds of one column over some rows.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnStats {
    /// By its id: names may change, this does not.
    pub column: ColumnId,
    /// No non-null value is smaller. `None`: not known, or every value is NULL (`null_count` tells).
    pub min: Option<Value>,
    /// No non-null value is greater. `None`: as for `min`.
    pub max: Option<Value>,
    /// Whether `min` and `max` are values that occur, not shortened bounds.
    pub exact: bool,
    /// Rows whose value is NULL; exact.
    pub null_count: u64,
    /// Bytes on storage.
    pub bytes: u64,
}

/// One row group of one file: the unit of pruning and scanning.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Position of the row group in its file.
    pub row_group: u32,
    /// Row of the file with which the block starts.
    pub first_row: u64,
    /// Dead ones among them: those are in the version's deletion vectors.
    pub n_rows: u64,
    /// Compressed bytes.
    pub bytes: u64,
    /// In table column order: the few columns whose bounds are always in memory. Native tables of at most 32 columns
    /// have all here, wider ones and archives their key and time columns; of the others the bounds are in the block
    /// metadata, if anywhere.
    pub columns: Vec<ColumnStats>,
}

impl Block {
    /// The bounds that are kept in memory of this column; `None` when there are none here.
    pub fn column(&self, column: ColumnId) -> Option<&ColumnStats> {
        self.columns.iter().find(|stats| stats.column == column)
    }
}

/// One Parquet file of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct File {
    /// Given out by [`crate::Metastore::allocate_files`], never to two files.
    pub id: FileId,
    /// Object key: in the lake's store, or below the archive's URL.
    pub path: String,
    /// Of the whole file, its footer included.
    pub size_bytes: u64,
    /// Of all blocks, dead ones among them.
    pub n_rows: u64,
    /// Hours since the Unix epoch: of the rows' time where the table says so, else of delivery. Block metadata is kept
    /// by it.
    pub hour: i64,
    /// What the store said of the file's content when it was written or listed: who reads asks for exactly that.
    /// `None`: the store says nothing.
    pub etag: Option<String>,
    /// Empty: nothing of the file is in the table; then `note` says why.
    pub blocks: Vec<Block>,
    /// Set by the metastore when the file is committed.
    pub created_version: Version,
    /// Whether rows come in the order of the table's key, so that scans of them need no sort.
    pub sorted_by_key: bool,
    /// Why the file is skipped, or what of it was left out.
    pub note: Option<Note>,
    /// Of every byte of the file. `None`: nobody computed them, as for files that others wrote.
    pub checksums: Option<Arc<Checksums>>,
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
