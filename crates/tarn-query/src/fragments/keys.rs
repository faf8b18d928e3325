//! Under which key is a part of a file kept?
//!
//! Conditions that bounds prove for all blocks of a part are not in its key: a range and a wider range share the parts
//! that lie in both.
//!
//! The key has all that names the file's rows: table, file id (never used again), path, size, ETag, the deletion
//! vector's digest, and the blocks, if pruning left some out.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tarn_cache::FragmentKey;
use tarn_types::FileId;
use xxhash_rust::xxh3::Xxh3;

use super::canonical::Encoder;
use super::leaf::{Condition, FragmentLeaf};
use super::units::{FragmentUnit, LakeSide};

/// Makes the keys of one leaf.
pub(crate) struct FragmentKeys<'a> {
    leaf: &'a FragmentLeaf,
    lake: &'a LakeSide,
    scope: Arc<str>,
    /// Of conditions that can fail, the order in which they are asked matters.
    in_order: bool,
    /// By which conditions are left.
    residues: HashMap<Vec<bool>, Arc<[u8]>>,
    /// Of the dead rows, by file: its units share them.
    digests: HashMap<FileId, u128>,
}

impl<'a> FragmentKeys<'a> {
    pub(crate) fn new(leaf: &'a FragmentLeaf, lake: &'a LakeSide) -> Self {
        let in_order = leaf.conditions.iter().any(|condition| condition.term.fallible);
        FragmentKeys {
            leaf,
            lake,
            scope: lake.table().id.0.to_string().into(),
            in_order,
            residues: HashMap::new(),
            digests: HashMap::new(),
        }
    }

    pub(crate) fn of(&mut self, unit: &FragmentUnit) -> FragmentKey {
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

    fn file(&mut self, encoder: &mut Encoder, unit: &FragmentUnit) {
        let FragmentUnit { file, row_groups, is_whole } = unit;
        encoder.number(file.id.0).put(file.path.as_bytes()).number(file.size_bytes);
        encoder.flag(file.etag.is_some()).put(file.etag.as_deref().unwrap_or("").as_bytes());
        match self.lake.dead(file.id).filter(|dead| !dead.is_empty()) {
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
    use super::*;

    #[test]
    fn dead_rows_tell_files_apart() {
        let of = |rows: &[u32]| digest(&rows.iter().copied().collect());
        assert_eq!(of(&[1, 2, 3]), of(&[3, 2, 1]));
        assert_ne!(of(&[1, 2, 3]), of(&[1, 2, 4]));
    }
}
