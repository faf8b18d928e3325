//! Which blocks are left after which bytes? A probe as a machine that says what it must read next, and is fed with it.
//! No IO.
//!
//! All packs of all hours and the loose blocks go along key by key: a key's bytes are asked for where a block is left
//! that needs it, so a rare key first spares the others' bytes. What is small is asked for at once: then a round trip
//! costs more than the bytes. Bytes stay until the last key that has them was tested: memory is that of a key's row in
//! all packs, not of all keys.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use roaring::RoaringBitmap;

use tarn_metastore::backend::{has_bits, test_row};
use tarn_metastore::{AllOf, BlockRef, CHUNK_BYTES, Hash};

use crate::bytes::{damaged, unseal};
use crate::pool::RequestFailure;

/// Bytes that are read for keys that may not be needed.
const AT_ONCE_BYTES: usize = 1 << 20;

/// A pack some of whose blocks are asked for.
#[derive(Debug, Clone)]
pub(crate) struct AskedPack {
    /// Its number in the database.
    pub pack: i64,
    /// Of each of its filters.
    pub n_chunks: u32,
    /// Blocks that it has, asked or not: the length of its rows.
    pub n_slots: usize,
    /// Asked blocks: position among all that are asked, slot.
    pub places: Vec<(u32, u32)>,
}

/// A block that is not in a pack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedLoose {
    /// Among all blocks that are asked for.
    pub position: u32,
    /// Of the block's file.
    pub hour: i64,
    pub block: BlockRef,
    /// Of its filter.
    pub n_chunks: u32,
}

/// What to read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NeededReads {
    /// Pack and chunk.
    pub rows: Vec<(i64, u32)>,
    /// Place among the loose blocks, and chunk.
    pub pieces: Vec<(usize, u32)>,
}

pub(crate) struct Search {
    packs: Vec<AskedPack>,
    /// Where each is in `packs`.
    pack_idx: HashMap<i64, usize>,
    loose: Vec<AskedLoose>,
    at_once_bytes: usize,
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
    /// That it was fed with so far.
    pub bytes_read: u64,
}

impl Search {
    /// Blocks without a filter do not come in here.
    pub fn new(packs: Vec<AskedPack>, loose: Vec<AskedLoose>, clauses: Vec<Vec<AllOf>>) -> Self {
        let packed = packs.iter().flat_map(|pack| pack.places.iter().map(|(position, _)| *position));
        let left: RoaringBitmap = packed.chain(loose.iter().map(|of| of.position)).collect();
        Self {
            pack_idx: packs.iter().enumerate().map(|(idx, pack)| (pack.pack, idx)).collect(),
            packs,
            loose,
            at_once_bytes: AT_ONCE_BYTES,
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

    /// By position, as they were handed in.
    pub fn loose(&self) -> &[AskedLoose] {
        &self.loose
    }

    /// Goes on as far as it can. `None`: it is done, and these are left.
    pub fn needs(&mut self) -> Result<RoaringBitmap, NeededReads> {
        let all = self.all_needs();
        let n_bytes: usize = all.rows.iter().map(|(pack, _)| self.row_bytes(*pack)).sum();
        if n_bytes + all.pieces.len() * CHUNK_BYTES <= self.at_once_bytes && !all.is_empty() {
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
                self.forget();
                return Err(needs);
            }
            self.test(*key);
            self.key += 1;
        }
    }

    /// Those that were not tested yet.
    fn keys_left(&self) -> BTreeSet<Hash> {
        let ways = self.clauses.get(self.clause).map(Vec::as_slice).unwrap_or_default();
        let way = ways.get(self.way).map(Vec::as_slice).unwrap_or_default();
        let later = ways.iter().skip(self.way + 1).chain(self.clauses.iter().skip(self.clause + 1).flatten());
        way.iter().skip(self.key).chain(later.flatten()).copied().collect()
    }

    /// What all keys that are left would read that is not there.
    fn all_needs(&self) -> NeededReads {
        let (mut rows, mut pieces) = (BTreeSet::new(), BTreeSet::new());
        for key in self.keys_left() {
            let needs = self.needs_of(key, &self.left);
            rows.extend(needs.rows);
            pieces.extend(needs.pieces);
        }
        NeededReads { rows: rows.into_iter().collect(), pieces: pieces.into_iter().collect() }
    }

    fn needs_of(&self, key: Hash, of: &RoaringBitmap) -> NeededReads {
        let mut needs = NeededReads::default();
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

    /// Drops what no key that is left has.
    fn forget(&mut self) {
        let keys = self.keys_left();
        let sizes = self.packs.iter().map(|pack| pack.n_chunks).chain(self.loose.iter().map(|of| of.n_chunks));
        let sizes: BTreeSet<u32> = sizes.collect();
        let chunks: HashSet<(u32, u32)> =
            sizes.iter().flat_map(|size| keys.iter().map(|key| (*size, key.chunk(*size)))).collect();
        let (packs, pack_idx, loose) = (&self.packs, &self.pack_idx, &self.loose);
        self.rows.retain(|(pack, chunk), _| chunks.contains(&(packs[pack_idx[pack]].n_chunks, *chunk)));
        self.pieces.retain(|(idx, chunk), _| chunks.contains(&(loose[*idx].n_chunks, *chunk)));
    }

    /// Takes from what is needed so much as one flight may bring.
    pub fn next_flight(&self, needs: &mut NeededReads, max_bytes: usize) -> NeededReads {
        let (mut flight, mut n_bytes) = (NeededReads::default(), 0);
        let mut fits = |bytes: usize| {
            let is_first = n_bytes == 0;
            n_bytes += bytes;
            is_first || n_bytes <= max_bytes
        };
        while needs.rows.last().is_some_and(|(pack, _)| fits(self.row_bytes(*pack))) {
            flight.rows.extend(needs.rows.pop());
        }
        while !needs.pieces.is_empty() && fits(CHUNK_BYTES) {
            flight.pieces.extend(needs.pieces.pop());
        }
        flight
    }

    fn row_bytes(&self, pack: i64) -> usize {
        self.pack_idx.get(&pack).map_or(0, |idx| self.packs[*idx].n_slots * CHUNK_BYTES)
    }

    /// A row of a pack, as it is stored.
    pub fn feed_row(&mut self, pack: i64, chunk: u32, sealed: &[u8]) -> Result<(), RequestFailure> {
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
    pub fn feed_piece(&mut self, idx: usize, chunk: u32, sealed: &[u8]) -> Result<(), RequestFailure> {
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
    pub fn check_fed(&self, needs: &NeededReads) -> Result<(), RequestFailure> {
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

impl NeededReads {
    /// Nothing is left to be read.
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
        fn it_answers_as_the_filters_do_reads_nothing_twice_and_keeps_nothing_longer_than_needed(
            at_once_bytes in prop_oneof![Just(0), Just(500), Just(AT_ONCE_BYTES)],
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
            let mut search = Search { at_once_bytes, ..Search::new(packs.clone(), loose.clone(), clauses.clone()) };
            let mut fed = BTreeSet::new();
            let left = loop {
                let mut needs = match search.needs() {
                    Ok(left) => break left,
                    Err(needs) => needs,
                };
                if at_once_bytes == 0 {
                    let left = search.keys_left();
                    let has = |n_chunks: u32, chunk: u32| left.iter().any(|key| key.chunk(n_chunks) == chunk);
                    prop_assert!(search.rows.keys().all(|(pack, chunk)| has([2, 1, 2, 4][*pack as usize], *chunk)));
                    prop_assert!(search.pieces.keys().all(|(_, chunk)| has(2, *chunk)));
                }
                while !needs.is_empty() {
                    let flight = search.next_flight(&mut needs, 300);
                    let row_bytes = |(pack, _): &(i64, u32)| of(*pack as usize).count() * CHUNK_BYTES;
                    let n_bytes = flight.rows.iter().map(row_bytes).sum::<usize>() + flight.pieces.len() * CHUNK_BYTES;
                    prop_assert!(n_bytes <= 300 || flight.rows.len() == 1 && flight.pieces.is_empty());
                    for (pack, chunk) in &flight.rows {
                        prop_assert!(fed.insert((*pack, *chunk)));
                        let bits: Vec<u8> = of(*pack as usize).flat_map(|at| blooms[at as usize].chunk(*chunk).to_vec()).collect();
                        search.feed_row(*pack, *chunk, &seal(bits)).unwrap();
                    }
                    for (idx, chunk) in &flight.pieces {
                        prop_assert!(fed.insert((-1 - *idx as i64, *chunk)));
                        search.feed_piece(*idx, *chunk, &seal(blooms[loose[*idx].position as usize].chunk(*chunk).to_vec())).unwrap();
                    }
                    search.check_fed(&flight).unwrap();
                }
            };
            let all = (0..blocks.len() as u32).map(block).collect();
            let probe = Probe { hours: vec![HourBlocks { hour: 0, blocks: all }], clauses };
            prop_assert_eq!(left, answer(&probe, |_, block| blooms.get(block.file.0 as usize)).kept);
        }
    }
}
