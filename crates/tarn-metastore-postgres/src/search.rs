//! Which blocks are left after which bytes? A probe as a machine that says what it must read next, and is fed with it. No IO.
//!
//! All packs of all hours and the loose blocks go along key by key: a key's bytes are asked for where a block is left that needs it, so a
//! rare key first spares the others' bytes. What is small is asked for at once: then a round trip costs more than the bytes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use roaring::RoaringBitmap;

use tarn_metastore::backend::{has_bits, test_row};
use tarn_metastore::{AllOf, BlockRef, CHUNK_BYTES, Hash};

use crate::bytes::{damaged, unseal};
use crate::pool::Failure;

/// Bytes that are read for keys that may not be needed.
const AT_ONCE_BYTES: usize = 1 << 20;

/// A pack some of whose blocks are asked for.
#[derive(Debug, Clone)]
pub(crate) struct AskedPack {
    pub pack: i64,
    pub n_chunks: u32,
    pub n_slots: usize,
    /// Asked blocks: position among all that are asked, slot.
    pub places: Vec<(u32, u32)>,
}

/// A block that is not in a pack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedLoose {
    pub position: u32,
    pub hour: i64,
    pub block: BlockRef,
    pub n_chunks: u32,
}

/// What to read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Pack and chunk.
    pub rows: Vec<(i64, u32)>,
    /// Place among the loose blocks, and chunk.
    pub pieces: Vec<(usize, u32)>,
}

pub(crate) struct Search {
    packs: Vec<AskedPack>,
    loose: Vec<AskedLoose>,
    clauses: Arc<Vec<Vec<AllOf>>>,
    rows: HashMap<(i64, u32), Vec<u8>>,
    pieces: HashMap<(usize, u32), Vec<u8>>,
    /// Positions of blocks with a filter that are left by the clauses before this one.
    left: RoaringBitmap,
    /// Of this clause: those that one of the ways before this one holds for.
    held: RoaringBitmap,
    /// Of this way: those that have its keys so far.
    having: RoaringBitmap,
    clause: usize,
    way: usize,
    key: usize,
    pub bytes_read: u64,
}

impl Search {
    /// Blocks without a filter do not come in here.
    pub fn new(packs: Vec<AskedPack>, loose: Vec<AskedLoose>, clauses: Vec<Vec<AllOf>>) -> Self {
        let packed = packs.iter().flat_map(|pack| pack.places.iter().map(|(position, _)| *position));
        let left: RoaringBitmap = packed.chain(loose.iter().map(|of| of.position)).collect();
        Self {
            packs,
            loose,
            clauses: Arc::new(clauses),
            rows: HashMap::new(),
            pieces: HashMap::new(),
            held: RoaringBitmap::new(),
            having: left.clone(),
            left,
            clause: 0,
            way: 0,
            key: 0,
            bytes_read: 0,
        }
    }

    pub fn loose(&self) -> &[AskedLoose] {
        &self.loose
    }

    /// Goes on as far as it can. `None`: it is done, and these are left.
    pub fn needs(&mut self) -> Result<RoaringBitmap, Needs> {
        let all = self.all_needs();
        let n_bytes: usize = all.rows.iter().map(|(pack, _)| self.row_bytes(*pack)).sum();
        if n_bytes + all.pieces.len() * CHUNK_BYTES <= AT_ONCE_BYTES && !all.is_empty() {
            return Err(all);
        }
        let clauses = self.clauses.clone();
        loop {
            let Some(clause) = clauses.get(self.clause) else { return Ok(self.left.clone()) };
            let Some(way) = clause.get(self.way) else {
                self.left = std::mem::take(&mut self.held);
                self.having = self.left.clone();
                (self.clause, self.way, self.key) = (self.clause + 1, 0, 0);
                if self.left.is_empty() {
                    return Ok(RoaringBitmap::new());
                }
                continue;
            };
            let key = way.get(self.key).filter(|_| !self.having.is_empty());
            let Some(key) = key else {
                self.held |= std::mem::take(&mut self.having);
                self.having = self.left.clone();
                (self.way, self.key) = (self.way + 1, 0);
                continue;
            };
            let needs = self.needs_of(*key, &self.having);
            if !needs.is_empty() {
                return Err(needs);
            }
            self.test(*key);
            self.key += 1;
        }
    }

    /// What all keys would read that is not there.
    fn all_needs(&self) -> Needs {
        let mut keys: BTreeSet<Hash> = BTreeSet::new();
        for clause in self.clauses.iter().skip(self.clause) {
            keys.extend(clause.iter().flatten());
        }
        let (mut rows, mut pieces) = (BTreeSet::new(), BTreeSet::new());
        for key in keys {
            let needs = self.needs_of(key, &self.left);
            rows.extend(needs.rows);
            pieces.extend(needs.pieces);
        }
        Needs { rows: rows.into_iter().collect(), pieces: pieces.into_iter().collect() }
    }

    fn needs_of(&self, key: Hash, of: &RoaringBitmap) -> Needs {
        let mut needs = Needs::default();
        for pack in &self.packs {
            let row = (pack.pack, key.chunk(pack.n_chunks));
            if !self.rows.contains_key(&row) && pack.places.iter().any(|(position, _)| of.contains(*position)) {
                needs.rows.push(row);
            }
        }
        for (idx, loose) in self.loose.iter().enumerate() {
            let piece = (idx, key.chunk(loose.n_chunks));
            if of.contains(loose.position) && !self.pieces.contains_key(&piece) {
                needs.pieces.push(piece);
            }
        }
        needs
    }

    fn test(&mut self, key: Hash) {
        for pack in &self.packs {
            let Some(row) = self.rows.get(&(pack.pack, key.chunk(pack.n_chunks))) else { continue };
            let mut kept = vec![true; pack.n_slots];
            test_row(row, key, &mut kept);
            for (position, slot) in pack.places.iter().filter(|(_, slot)| !kept[*slot as usize]) {
                debug_assert!((*slot as usize) < pack.n_slots);
                self.having.remove(*position);
            }
        }
        for (idx, loose) in self.loose.iter().enumerate() {
            let Some(piece) = self.pieces.get(&(idx, key.chunk(loose.n_chunks))) else { continue };
            if !has_bits(piece, &key.mask()) {
                self.having.remove(loose.position);
            }
        }
    }

    fn row_bytes(&self, pack: i64) -> usize {
        self.packs.iter().find(|asked| asked.pack == pack).map_or(0, |asked| asked.n_slots * CHUNK_BYTES)
    }

    /// A row of a pack, as it is stored.
    pub fn feed_row(&mut self, pack: i64, chunk: u32, sealed: &[u8]) -> Result<(), Failure> {
        let place = || format!("pack_rows, pack {pack} chunk {chunk}");
        let bits = unseal(sealed, place)?;
        if bits.len() != self.row_bytes(pack) {
            return Err(damaged(place(), format!("{} bytes, want {}", bits.len(), self.row_bytes(pack))));
        }
        self.bytes_read += bits.len() as u64;
        self.rows.insert((pack, chunk), bits.to_vec());
        Ok(())
    }

    /// A chunk of the filter of a loose block, as it is stored.
    pub fn feed_piece(&mut self, idx: usize, chunk: u32, sealed: &[u8]) -> Result<(), Failure> {
        let place = || format!("loose, block {:?} chunk {chunk}", self.loose[idx].block);
        let bits = unseal(sealed, place)?;
        if bits.len() != CHUNK_BYTES {
            return Err(damaged(place(), format!("{} bytes, want {CHUNK_BYTES}", bits.len())));
        }
        self.bytes_read += CHUNK_BYTES as u64;
        self.pieces.insert((idx, chunk), bits.to_vec());
        Ok(())
    }

    /// After what it needed was fed: what is still missing is not in the store.
    pub fn check_fed(&self, needs: &Needs) -> Result<(), Failure> {
        if let Some((pack, chunk)) = needs.rows.iter().find(|row| !self.rows.contains_key(row)) {
            return Err(damaged(format!("pack_rows, pack {pack} chunk {chunk}"), "the row is missing"));
        }
        if let Some((idx, chunk)) = needs.pieces.iter().find(|piece| !self.pieces.contains_key(piece)) {
            let place = format!("loose, block {:?} chunk {chunk}", self.loose[*idx].block);
            return Err(damaged(place, "the row is missing"));
        }
        Ok(())
    }
}

impl Needs {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.pieces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tarn_metastore::backend::answer;
    use tarn_metastore::{Bloom, BloomBuilder, HourBlocks, Probe};
    use tarn_types::FileId;

    use super::*;
    use crate::bytes::seal;

    fn key(n: u64) -> Hash {
        Hash(n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    proptest! {
        #[test]
        fn it_answers_as_the_filters_do_and_reads_nothing_twice(
            blocks in proptest::collection::vec((0..4usize, proptest::collection::vec(0..30u64, 0..20)), 1..40),
            clauses in proptest::collection::vec(proptest::collection::vec(proptest::collection::vec(0..34u64, 0..4), 0..3), 0..4),
        ) {
            // Place 0 is loose, 1 to 3 are packs with filters of 1, 2 and 4 chunks.
            let blooms: Vec<Bloom> = blocks.iter().map(|(place, keys)| {
                let mut builder = BloomBuilder::new([2, 1, 2, 4][*place]);
                keys.iter().for_each(|n| builder.insert(key(*n)));
                builder.finish()
            }).collect();
            let clauses: Vec<Vec<AllOf>> =
                clauses.iter().map(|ways| ways.iter().map(|keys| keys.iter().map(|n| key(*n)).collect()).collect()).collect();
            let of = |place: usize| (0u32..).zip(&blocks).filter(move |(_, (of, _))| *of == place).map(|(at, _)| at);
            let packs: Vec<AskedPack> = (1..4).map(|place| AskedPack {
                pack: place as i64,
                n_chunks: [2, 1, 2, 4][place],
                n_slots: of(place).count(),
                places: of(place).zip(0..).collect(),
            }).filter(|pack| pack.n_slots > 0).collect();
            let block = |at: u32| BlockRef { file: FileId(at.into()), row_group: 0 };
            let loose: Vec<AskedLoose> =
                of(0).map(|position| AskedLoose { position, hour: 0, block: block(position), n_chunks: 2 }).collect();
            let mut search = Search::new(packs.clone(), loose.clone(), clauses.clone());
            let mut fed = BTreeSet::new();
            let left = loop {
                let needs = match search.needs() {
                    Ok(left) => break left,
                    Err(needs) => needs,
                };
                for (pack, chunk) in &needs.rows {
                    prop_assert!(fed.insert((*pack, *chunk)));
                    let bits: Vec<u8> = of(*pack as usize).flat_map(|at| blooms[at as usize].chunk(*chunk).to_vec()).collect();
                    search.feed_row(*pack, *chunk, &seal(bits)).unwrap();
                }
                for (idx, chunk) in &needs.pieces {
                    prop_assert!(fed.insert((-1 - *idx as i64, *chunk)));
                    search.feed_piece(*idx, *chunk, &seal(blooms[loose[*idx].position as usize].chunk(*chunk).to_vec())).unwrap();
                }
                search.check_fed(&needs).unwrap();
            };
            let all = (0..blocks.len() as u32).map(block).collect();
            let probe = Probe { hours: vec![HourBlocks { hour: 0, blocks: all }], clauses };
            prop_assert_eq!(left, answer(&probe, |_, block| blooms.get(block.file.0 as usize)).kept);
        }
    }
}
