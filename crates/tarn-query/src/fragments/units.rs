//! Which part of which file is one fragment, and under which key?
//!
//! A file is cut at the same rows whatever is asked: after every [`UNIT_ROWS`] at the next end of a block. So a large file is read by many at
//! once, and its parts are found again. Conditions that bounds prove for all blocks of a part are not in its key: a range and a wider range
//! share the parts that lie in both.
//!
//! The key has all that names the file's rows: table, file id (never used again), path, size, ETag, the deletion vector's digest, and the
//! blocks, if pruning left some out.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use roaring::RoaringBitmap;
use tarn_cache::FragmentKey;
use tarn_metastore::prune::PrunedFile;
use tarn_metastore::{Block, File};
use tarn_types::{FileId, TableSchema};
use xxhash_rust::xxh3::Xxh3;

use super::canonical::Encoder;
use super::leaf::{Condition, Leaf};
use crate::Result;
use crate::chunks::ChunkLoader;
use crate::files::{Hidden, blocks_of};

/// A part of a file ends with the block in which it gets this many rows.
const UNIT_ROWS: u64 = 1 << 19;

/// The files of one scan.
#[derive(Debug)]
pub(crate) struct LakeSide {
    pub table: Arc<TableSchema>,
    pub vectors: Arc<HashMap<FileId, Arc<RoaringBitmap>>>,
    pub hidden: Arc<Hidden>,
    /// What pruning left.
    pub files: Vec<PrunedFile>,
    pub loader: Option<Arc<ChunkLoader>>,
    /// Positions of the table's columns that are read.
    pub columns: Vec<usize>,
}

/// Neighbouring blocks of a file.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    file: Arc<File>,
    /// Ascending.
    row_groups: Vec<u32>,
    /// Whether these are all of the part's.
    is_whole: bool,
}

impl LakeSide {
    /// All that is read, cut.
    pub(crate) fn units(&self) -> Vec<Unit> {
        self.files.iter().flat_map(units_of).collect()
    }

    /// Whether recent rows supersede rows of it: then it is what it is for this statement alone.
    pub(crate) fn is_touched(&self, unit: &Unit) -> bool {
        self.hidden.get(&unit.file.id).is_some_and(|hidden| !hidden.is_empty())
    }

    /// What a scan reads of it; `None`: it has no live row.
    pub(crate) fn piece(&self, unit: &Unit) -> Result<Option<PartitionedFile>> {
        blocks_of(&self.vectors, &self.hidden, &unit.file, &unit.row_groups, self.loader.as_ref())
    }

    /// Compressed bytes of the columns that are read of it.
    pub(crate) fn bytes(&self, unit: &Unit) -> u64 {
        let n_columns = self.table.columns.len().max(1) as u64;
        let of_block = |block: &Block| -> u64 {
            let of_column = |position: &usize| {
                let known = self.table.columns.get(*position).and_then(|column| block.column(column.id));
                known.map_or(block.bytes / n_columns, |stats| stats.bytes)
            };
            self.columns.iter().map(of_column).sum()
        };
        unit.blocks().map(of_block).sum()
    }
}

impl Unit {
    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.row_groups.iter().filter_map(|row_group| self.file.blocks.get(*row_group as usize))
    }
}

fn units_of(kept: &PrunedFile) -> Vec<Unit> {
    let mut units: Vec<Unit> = vec![];
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
                units.push(Unit { file: Arc::clone(&kept.file), row_groups, is_whole });
            }
            (all, rows) = (0, 0);
        }
    }
    units
}

/// Makes the keys of one leaf.
pub(crate) struct Keys<'a> {
    leaf: &'a Leaf,
    lake: &'a LakeSide,
    scope: Arc<str>,
    /// Of conditions that can fail, the order in which they are asked matters.
    in_order: bool,
    /// By which conditions are left.
    residues: HashMap<Vec<bool>, Arc<[u8]>>,
    /// Of the dead rows, by file: its units share them.
    digests: HashMap<FileId, u128>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(leaf: &'a Leaf, lake: &'a LakeSide) -> Self {
        let in_order = leaf.conditions.iter().any(|condition| condition.term.fallible);
        Keys {
            leaf,
            lake,
            scope: lake.table.id.0.to_string().into(),
            in_order,
            residues: HashMap::new(),
            digests: HashMap::new(),
        }
    }

    pub(crate) fn of(&mut self, unit: &Unit) -> FragmentKey {
        let is_left =
            |condition: &Condition| condition.claim.as_ref().is_none_or(|claim| !claim.is_proven(unit.blocks()));
        let left: Vec<bool> = self.leaf.conditions.iter().map(is_left).collect();
        let in_order = self.in_order;
        let residue = self.residues.entry(left).or_insert_with_key(|left| {
            let conditions = self.leaf.conditions.iter().zip(left).filter(|(_, left)| **left);
            let mut terms: Vec<&[u8]> = conditions.map(|(condition, _)| condition.term.bytes.as_ref()).collect();
            if !in_order {
                terms.sort_unstable();
                terms.dedup();
            }
            let mut encoder = Encoder::default();
            encoder.number(terms.len() as u64);
            for term in terms {
                encoder.put(term);
            }
            encoder.into_bytes().into()
        });
        let mut encoder = Encoder::default();
        encoder.put(&self.leaf.head).put(residue);
        self.file(&mut encoder, unit);
        FragmentKey { scope: Arc::clone(&self.scope), bytes: encoder.into_bytes().into() }
    }

    fn file(&mut self, encoder: &mut Encoder, unit: &Unit) {
        let Unit { file, row_groups, is_whole } = unit;
        encoder.number(file.id.0).put(file.path.as_bytes()).number(file.size_bytes);
        encoder.flag(file.etag.is_some()).put(file.etag.as_deref().unwrap_or("").as_bytes());
        match self.lake.vectors.get(&file.id).filter(|dead| !dead.is_empty()) {
            None => encoder.number(0).put(&[]),
            Some(dead) => {
                let digest = self.digests.entry(file.id).or_insert_with(|| digest(dead));
                encoder.number(dead.len()).put(&digest.to_le_bytes())
            }
        };
        encoder.number(u64::from(row_groups.first().copied().unwrap_or(0)));
        encoder.flag(*is_whole).number(row_groups.len() as u64);
        if !is_whole {
            for row_group in row_groups {
                encoder.number(u64::from(*row_group));
            }
        }
    }
}

fn digest(dead: &RoaringBitmap) -> u128 {
    struct Hash(Xxh3);
    impl Write for Hash {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hash = Hash(Xxh3::new());
    dead.serialize_into(&mut hash).expect("hashing does not fail");
    hash.0.digest128()
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

    #[test]
    fn dead_rows_tell_files_apart() {
        let of = |rows: &[u32]| digest(&rows.iter().copied().collect());
        assert_eq!(of(&[1, 2, 3]), of(&[3, 2, 1]));
        assert_ne!(of(&[1, 2, 3]), of(&[1, 2, 4]));
    }
}
