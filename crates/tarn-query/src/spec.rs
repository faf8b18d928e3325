//! What does a scan read, said so that it can be read anywhere? Planning makes a [`ScanSpec`], execution opens it
//! (`opening.rs`).
//!
//! A spec is plain data: table, version, position, blocks, which of their rows are dead, columns, and how to read.
//! There is no handle in it, and no row. It has a form in bytes (`spec_bytes.rs`). What DataFusion pushes down into a
//! scan (filters, orders, other projections) is not here: it stays in DataFusion's nodes, which have forms of their
//! own.

use std::sync::Arc;

use tarn_types::{Cursor, TableSchema, Version};

use crate::files::{Counts, HiddenRows, Vectors};
use crate::hot::KeyRange;
use crate::pruning::PrunedBlocks;
use crate::settings::CacheSettings;

/// One scan of one table at one position.
#[derive(Debug, Clone)]
pub struct ScanSpec {
    pub(crate) table: Arc<TableSchema>,
    /// Of the lake.
    pub(crate) version: Version,
    /// Up to which changes the hot side is read. `None`: the lake alone.
    pub(crate) position: Option<Cursor>,
    /// Whether the scan's full schema ends with `__seqno`.
    pub(crate) with_seqno: bool,
    /// Positions in the full schema, ascending.
    pub(crate) projection: Vec<usize>,
    /// Enough rows, if that is known.
    pub(crate) limit: Option<usize>,
    /// Streams to give, at most.
    pub(crate) partitions: usize,
    /// Whether blocks and pages may be left out.
    pub(crate) pruning: bool,
    pub(crate) caches: CacheSettings,
    pub(crate) chosen: PathChoice,
    pub(crate) how: ScanKind,
}

/// For `EXPLAIN`: which path, and why so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PathChoice {
    /// `point`, `keys`, `index`, `range`, `rows`, `lake`.
    pub path: String,
    /// In words.
    pub why: String,
    /// About, in microseconds.
    pub cost_us: u64,
    /// Each other path, and why it was not taken.
    pub not_taken: String,
}

/// What is read.
#[derive(Debug, Clone)]
pub(crate) enum ScanKind {
    /// These keys, which the row engine or the lake may have.
    Keys(Vec<Vec<u8>>),
    /// The rows of these ranges of keys.
    Ranges(RangeRead),
    /// Files, and recent rows.
    Lake(LakeRead),
}

/// Runs of the row engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RangeRead {
    /// Half-open, ascending; they do not overlap.
    pub ranges: Vec<KeyRange>,
    /// So many leading key columns have one value in each.
    pub n_fixed: usize,
    /// Rows that are read at first: few when the reader may stop early.
    pub batch_rows: usize,
    /// Rows of all of them, by the estimate that chose them.
    pub rows: u64,
}

/// Blocks of files, and rows that are not read of them.
#[derive(Debug, Clone)]
pub(crate) struct LakeRead {
    /// What pruning left.
    pub pruned: PrunedBlocks,
    /// Rows that are dead in the version. Perhaps of files that are not read, too.
    pub vectors: Arc<Vectors>,
    /// Rows that recent rows supersede; of files that are not read, too.
    pub hidden: Arc<HiddenRows>,
    /// What is left without them: who lost some of the dead rows counts otherwise.
    pub counts: Counts,
    /// Live rows that are in no file yet.
    pub recent_rows: u64,
    /// Positions of the table's columns that are given or filtered by, ascending.
    pub columns: Vec<usize>,
    /// Those of them that a filter looks at.
    pub in_filter: Vec<usize>,
    /// Whether files are asked for their page indexes: not all of each is read.
    pub by_pages: bool,
    /// Are the filter's columns read first, the others only where a row is left?
    pub late_materialization: bool,
    /// Whether blocks were left out by blooms.
    pub asked_bloom: bool,
    /// Whether the rows of every file of the version are in the order of the key.
    pub sorted_by_key: bool,
}

impl ScanSpec {
    /// Positions of the table's own columns that are given, and whether `__seqno` is behind them.
    pub(crate) fn hot_projection(&self) -> (Vec<usize>, bool) {
        let n_columns = self.table.columns.len();
        let own: Vec<usize> = self.projection.iter().copied().filter(|at| *at < n_columns).collect();
        let with_seqno = own.len() < self.projection.len();
        (own, with_seqno)
    }

    pub(crate) fn lake(&self) -> Option<&LakeRead> {
        match &self.how {
            ScanKind::Lake(lake) => Some(lake),
            ScanKind::Keys(_) | ScanKind::Ranges(_) => None,
        }
    }

    /// Columns by which the rows of each file are sorted, and whether descending. Keys have no NULL.
    pub(crate) fn sorted_by(&self) -> Vec<(&str, bool)> {
        match self.lake() {
            Some(lake) if lake.sorted_by_key => {
                let of_key = self.table.key.iter();
                of_key.map(|part| (self.table.columns[part.column_idx].name.as_str(), part.descending)).collect()
            }
            _ => vec![],
        }
    }
}
