//! Which part of which file is one fragment?
//!
//! A file is cut at the same rows whatever is asked: after every [`UNIT_ROWS`] at the next end of a block. So a large
//! file is read by many at once, and its parts are found again.

use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use roaring::RoaringBitmap;
use tarn_metastore::prune::PrunedFile;
use tarn_metastore::{Block, File};
use tarn_types::{FileId, TableSchema};

use crate::Result;
use crate::files::blocks_of;
use crate::spec::{LakeRead, ScanSpec};

/// A part of a file ends with the block in which it gets this many rows.
const UNIT_ROWS: u64 = 1 << 19;

/// The files of one scan.
#[derive(Debug, Clone)]
pub(crate) struct LakeSide(Arc<ScanSpec>);

/// Neighbouring blocks of a file.
#[derive(Debug, Clone)]
pub(crate) struct FragmentUnit {
    pub(super) file: Arc<File>,
    /// Ascending.
    pub(super) row_groups: Vec<u32>,
    /// Whether these are all of the part's.
    pub(super) is_whole: bool,
}

impl LakeSide {
    /// `None`: the scan reads no files.
    pub(crate) fn of(spec: &Arc<ScanSpec>) -> Option<LakeSide> {
        spec.lake().map(|_| LakeSide(Arc::clone(spec)))
    }

    pub(crate) fn spec(&self) -> &Arc<ScanSpec> {
        &self.0
    }

    pub(crate) fn table(&self) -> &TableSchema {
        &self.0.table
    }

    fn read(&self) -> &LakeRead {
        self.0.lake().expect("it is made of scans that read files alone")
    }

    /// Dead rows of a file, but for those that recent rows supersede.
    pub(crate) fn dead(&self, file: FileId) -> Option<&Arc<RoaringBitmap>> {
        self.read().vectors.get(&file)
    }

    /// All that is read, cut.
    pub(crate) fn units(&self) -> Vec<FragmentUnit> {
        self.read().pruned.files.iter().flat_map(units_of).collect()
    }

    /// Whether recent rows supersede rows of it: then it is what it is for this statement alone.
    pub(crate) fn is_touched(&self, unit: &FragmentUnit) -> bool {
        self.read().hidden.get(&unit.file.id).is_some_and(|hidden| !hidden.is_empty())
    }

    /// What a scan reads of it; `None`: it has no live row.
    pub(crate) fn piece(&self, unit: &FragmentUnit) -> Result<Option<PartitionedFile>> {
        let LakeRead { vectors, hidden, .. } = self.read();
        blocks_of(vectors, hidden, &unit.file, &unit.row_groups)
    }

    /// Compressed bytes of the columns that are read of it.
    pub(crate) fn bytes(&self, unit: &FragmentUnit) -> u64 {
        let n_columns = self.table().columns.len().max(1) as u64;
        let of_block = |block: &Block| -> u64 {
            let of_column = |position: &usize| {
                let known = self.table().columns.get(*position).and_then(|column| block.column(column.id));
                known.map_or(block.bytes / n_columns, |stats| stats.bytes)
            };
            self.read().columns.iter().map(of_column).sum()
        };
        unit.blocks().map(of_block).sum()
    }
}

impl FragmentUnit {
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.row_groups.iter().filter_map(|row_group| self.file.blocks.get(*row_group as usize))
    }
}

fn units_of(kept: &PrunedFile) -> Vec<FragmentUnit> {
    let mut units: Vec<FragmentUnit> = vec![];
    let mut left = kept.row_groups.iter().copied().peekable();
    let (mut all, mut row_groups, mut rows) = (0, vec![], 0);
    let n_blocks = kept.file.blocks.len();
    for (at, block) in kept.file.blocks.iter().enumerate() {
        all += 1;
        rows += block.n_rows;
        row_groups.extend(left.next_if_eq(&block.row_group));
        if rows >= UNIT_ROWS || at + 1 == n_blocks {
            let is_whole = row_groups.len() == all;
            let row_groups = std::mem::take(&mut row_groups);
            if !row_groups.is_empty() {
                units.push(FragmentUnit { file: Arc::clone(&kept.file), row_groups, is_whole });
            }
            (all, rows) = (0, 0);
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use tarn_types::Version;

    use super::*;

    fn file(rows: &[u64], kept: &[u32]) -> PrunedFile {
        let mut first_row = 0;
        let mut blocks = vec![];
        for (row_group, n_rows) in (0..).zip(rows) {
            blocks.push(Block { row_group, first_row, n_rows: *n_rows, bytes: 0, columns: vec![] });
            first_row += n_rows;
        }
        let file = File {
            id: FileId(1),
            path: "f".to_owned(),
            size_bytes: 1,
            n_rows: first_row,
            hour: 0,
            etag: None,
            blocks,
            created_version: Version(0),
            sorted_by_key: true,
            note: None,
            checksums: None,
        };
        PrunedFile { file: Arc::new(file), row_groups: kept.to_vec() }
    }

    fn cut(rows: &[u64], kept: &[u32]) -> Vec<(Vec<u32>, bool)> {
        units_of(&file(rows, kept)).into_iter().map(|unit| (unit.row_groups, unit.is_whole)).collect()
    }

    #[test]
    fn cuts_do_not_depend_on_what_is_left() {
        let half = UNIT_ROWS / 2;
        let rows = [half, half, half, half, half];
        assert_eq!(cut(&rows, &[0, 1, 2, 3, 4]), [(vec![0, 1], true), (vec![2, 3], true), (vec![4], true)]);
        assert_eq!(cut(&rows, &[1, 2, 3]), [(vec![1], false), (vec![2, 3], true)]);
        assert_eq!(cut(&rows, &[4]), [(vec![4], true)]);
        assert_eq!(cut(&[3, 4], &[0, 1]), [(vec![0, 1], true)]);
    }
}
