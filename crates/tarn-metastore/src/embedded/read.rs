//! Which blocks may hold the keys, and what is kept of them?
//!
//! Hour by hour, and within an hour place by place: blocks that are loose from the log, then those in packs. A pack is
//! asked for whole rows: 32 bytes a block for each key, one read, whatever the number of blocks. Each hour stands for
//! itself, so hours are shared out to a few threads.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use tarn_types::ColumnId;

use super::places::{Hour, LooseMetadata, PackFile};
use crate::bloom::has_bits;
use crate::codec::MetadataParts;
use crate::pack::Pack;
use crate::probe::AllOf;
use crate::{
    BlockMetadataRequest, BlockRef, Bloom, CHUNK_BYTES, ColumnMetadata, Error, MetadataByColumn, ProbeResult, Result,
    codec, log,
};

/// Packs that are kept open, and what their blocks and columns may take in memory.
const OPEN_PACKS: usize = 1024;
const OPEN_BYTES: usize = 64 << 20;

/// An hour that is asked for.
pub(super) struct RequestedHour {
    /// The position of its first block among all that are asked for.
    pub first: u32,
    /// `None`: nothing is known of this hour.
    pub of_hour: Option<Arc<Hour>>,
    pub blocks: Vec<BlockRef>,
}

/// Packs that were read from lately.
pub(super) struct OpenPacks {
    dir: PathBuf,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    packs: HashMap<u64, (Arc<Pack>, u64)>,
    bytes: usize,
    /// Counts uses: the pack with the smallest was not used for longest.
    clock: u64,
}

/// What is wanted of some hours, by column; positions as they are asked for.
#[derive(Default)]
struct CollectedMetadata {
    columns: BTreeMap<ColumnId, ColumnMetadata>,
    blooms: Vec<(u32, Bloom)>,
    bytes_read: u64,
}

/// Answers of hours, in their order.
pub(super) struct HoursMetadata(CollectedMetadata);

impl OpenPacks {
    /// Nothing is open yet.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, cache: Mutex::default() }
    }

    /// While the caller holds `file`, the pack is not deleted.
    pub fn open(&self, file: &PackFile) -> Result<Arc<Pack>> {
        if let Some(pack) = self.cache.lock().get(file.number) {
            return Ok(pack);
        }
        let path = file.path(&self.dir);
        let pack = Pack::open(&path)?;
        let found = (pack.table, pack.hour, pack.slots().len() as u32, pack.n_chunks, pack.size_bytes);
        if found != (file.table, file.hour, file.n_slots, file.n_chunks, file.size_bytes) {
            let reason = "the pack is another one than the log names".to_owned();
            return Err(Error::Corrupt { path, offset: 0, reason });
        }
        let pack = Arc::new(pack);
        self.cache.lock().put(file.number, pack.clone());
        Ok(pack)
    }

    /// The pack is about to be deleted.
    pub fn close(&self, number: u64) {
        self.cache.lock().remove(number);
    }

    /// Of those asked, the blocks that these filters do not rule out. Adds to `probed`.
    pub fn probe(&self, asked: &RequestedHour, clauses: &[Vec<AllOf>], probed: &mut ProbeResult) -> Result<()> {
        let RequestedHour { first, of_hour, blocks } = asked;
        // Until a filter says otherwise.
        let mut kept = vec![true; blocks.len()];
        let mut with_bloom = 0;
        let mut found = vec![false; blocks.len()];
        if let Some(of_hour) = of_hour {
            hide_gone(of_hour, blocks, &mut found);
            for (at, loose) in find_loose(of_hour, blocks, &mut found) {
                if loose.n_chunks > 0 {
                    with_bloom += 1;
                    kept[at as usize] = loose.probe(clauses, &mut probed.bytes_read)?;
                }
            }
            for file in of_hour.packs.iter().rev() {
                if !found.contains(&false) {
                    break;
                }
                let pack = self.open(file)?;
                let places = find_packed(&pack, blocks, &mut found);
                if places.is_empty() || pack.n_chunks == 0 {
                    continue;
                }
                let mut alive = vec![false; pack.slots().len()];
                places.iter().for_each(|(_, slot)| alive[*slot as usize] = true);
                with_bloom += places.len();
                let alive = pack.probe(clauses, alive, &mut probed.bytes_read)?;
                places.iter().for_each(|(at, slot)| kept[*at as usize] = alive[*slot as usize]);
            }
        }
        probed.without_bloom += (blocks.len() - with_bloom) as u64;
        let kept = (*first..).zip(kept).filter(|(_, kept)| *kept).map(|(at, _)| at);
        probed.kept |= RoaringBitmap::from_sorted_iter(kept).expect("positions ascend");
        Ok(())
    }

    /// What is wanted of these hours, which ascend.
    pub fn collect(&self, asked: &[RequestedHour], wanted: &BlockMetadataRequest) -> Result<HoursMetadata> {
        let mut part = CollectedMetadata::default();
        for of_asked in asked {
            let Some(of_hour) = &of_asked.of_hour else { continue };
            let mut here = CollectedMetadata::default();
            self.collect_hour(of_hour, of_asked, wanted, &mut here)?;
            for (column, of_column) in here.columns {
                append(&mut part.columns, column, sorted(of_column));
            }
            here.blooms.sort_unstable_by_key(|(at, _)| *at);
            part.blooms.append(&mut here.blooms);
            part.bytes_read += here.bytes_read;
        }
        Ok(HoursMetadata(part))
    }

    fn collect_hour(
        &self,
        of_hour: &Hour,
        asked: &RequestedHour,
        wanted: &BlockMetadataRequest,
        out: &mut CollectedMetadata,
    ) -> Result<()> {
        let RequestedHour { first, blocks, .. } = asked;
        let of_columns = wanted.stats || wanted.chunks;
        let parts = MetadataParts { stats: wanted.stats, chunks: wanted.chunks };
        let mut found = vec![false; blocks.len()];
        hide_gone(of_hour, blocks, &mut found);
        for (at, loose) in find_loose(of_hour, blocks, &mut found) {
            if wanted.blooms && loose.n_chunks > 0 {
                out.blooms.push((first + at, loose.bloom(&mut out.bytes_read)?));
            }
            if of_columns {
                loose.columns(parts, wanted.columns.as_deref(), first + at, out)?;
            }
        }
        for file in of_hour.packs.iter().rev() {
            let pack = self.open(file)?;
            let places = find_packed(&pack, blocks, &mut found);
            if places.is_empty() {
                continue;
            }
            if wanted.blooms && pack.n_chunks > 0 {
                let slots: Vec<u32> = places.iter().map(|(_, slot)| *slot).collect();
                let blooms = pack.blooms(&slots)?;
                out.bytes_read += file.bloom_bytes();
                out.blooms.extend(places.iter().map(|(at, _)| first + at).zip(blooms));
            }
            let mut position = vec![u32::MAX; pack.slots().len()];
            places.iter().for_each(|(at, slot)| position[*slot as usize] = first + at);
            let columns: Vec<ColumnId> = match &wanted.columns {
                _ if !of_columns => Vec::new(),
                None => pack.columns().collect(),
                // However often a column is asked for, it is read once.
                Some(wanted) => pack.columns().filter(|column| wanted.contains(column)).collect(),
            };
            for column in columns {
                let place = |slot: u32| Some(position[slot as usize]).filter(|position| *position != u32::MAX);
                let of_column = out.columns.entry(column).or_default();
                out.bytes_read += pack.column(column, parts, place, of_column)?;
            }
        }
        Ok(())
    }
}

impl Cache {
    fn get(&mut self, number: u64) -> Option<Arc<Pack>> {
        self.clock += 1;
        let (pack, used) = self.packs.get_mut(&number)?;
        *used = self.clock;
        Some(pack.clone())
    }

    fn put(&mut self, number: u64, pack: Arc<Pack>) {
        self.remove(number);
        self.bytes += pack.memory_bytes();
        self.packs.insert(number, (pack, self.clock));
        while self.packs.len() > OPEN_PACKS || self.bytes > OPEN_BYTES && self.packs.len() > 1 {
            let oldest = self.packs.iter().min_by_key(|(_, (_, used))| *used).map(|(number, _)| *number);
            self.remove(oldest.expect("there is one"));
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some((pack, _)) = self.packs.remove(&number) {
            self.bytes -= pack.memory_bytes();
        }
    }
}

/// Files that no kept version has are not known here, whatever the packs still have of them.
fn hide_gone(of_hour: &Hour, blocks: &[BlockRef], found: &mut [bool]) {
    if of_hour.gone.is_empty() {
        return;
    }
    for (block, found) in blocks.iter().zip(found) {
        if of_hour.gone.contains_key(&block.file) {
            *found = true;
        }
    }
}

/// The asked blocks that are loose, by position.
fn find_loose<'a>(of_hour: &'a Hour, blocks: &[BlockRef], found: &mut [bool]) -> Vec<(u32, &'a Arc<LooseMetadata>)> {
    let mut loose = Vec::new();
    let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return loose };
    for (block, place) in of_hour.loose.range(first..=last) {
        if let Ok(at) = blocks.binary_search(block)
            && !found[at]
        {
            found[at] = true;
            loose.push((at as u32, place));
        }
    }
    loose
}

/// The asked blocks that are in the pack and were nowhere yet: position and slot.
fn find_packed(pack: &Pack, blocks: &[BlockRef], found: &mut [bool]) -> Vec<(u32, u32)> {
    let mut places = pack.places(blocks);
    places.retain(|(at, _)| !std::mem::replace(&mut found[*at as usize], true));
    places
}

impl LooseMetadata {
    /// The payload from one place to another. The first time it is read as a whole, and held against its checksum.
    fn part(&self, from: u32, to: u32, bytes_read: &mut u64) -> Result<Vec<u8>> {
        if self.is_checked.load(Ordering::Relaxed) {
            let mut part = vec![0; (to - from) as usize];
            self.log.read(&mut part, log::payload_at(self.offset) + u64::from(from))?;
            *bytes_read += part.len() as u64;
            return Ok(part);
        }
        let mut payload = self.payload()?;
        *bytes_read += payload.len() as u64;
        payload.truncate(to as usize);
        payload.drain(..from as usize);
        Ok(payload)
    }

    /// All of it, held against its checksum.
    pub fn payload(&self) -> Result<Vec<u8>> {
        let payload = self.log.block_metadata(self.offset, self.payload_bytes as usize)?;
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(payload)
    }

    fn probe(&self, clauses: &[Vec<AllOf>], bytes_read: &mut u64) -> Result<bool> {
        for ways in clauses {
            let mut some = false;
            for keys in ways {
                let mut all = true;
                for key in keys {
                    let at = self.bloom_at + key.chunk(self.n_chunks) * CHUNK_BYTES as u32;
                    let chunk = self.part(at, at + CHUNK_BYTES as u32, bytes_read)?;
                    all = has_bits(&chunk, &key.mask());
                    if !all {
                        break;
                    }
                }
                some = all;
                if some {
                    break;
                }
            }
            if !some {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn bloom(&self, bytes_read: &mut u64) -> Result<Bloom> {
        let bits = self.part(self.bloom_at, self.columns_at, bytes_read)?;
        Bloom::from_bits(Bytes::from(bits)).ok_or_else(|| self.corrupt("the bloom has another size".to_owned()))
    }

    /// Adds what is wanted of these columns.
    fn columns(
        &self,
        parts: MetadataParts,
        wanted: Option<&[ColumnId]>,
        at: u32,
        out: &mut CollectedMetadata,
    ) -> Result<()> {
        let bytes = self.part(self.columns_at, self.payload_bytes, &mut out.bytes_read)?;
        let is_wanted = |column: ColumnId| wanted.is_none_or(|wanted| wanted.contains(&column));
        let read = codec::read_columns(&bytes, codec::FORMAT, parts, at, is_wanted, &mut out.columns);
        read.map_err(|malformed| self.corrupt(malformed.0))
    }

    /// That the frame is damaged: names the log's file and the frame's offset.
    pub fn corrupt(&self, reason: String) -> Error {
        Error::Corrupt { path: self.log.path().to_owned(), offset: self.offset, reason }
    }
}

/// Puts the parts behind each other.
pub(super) fn finish(parts: Vec<HoursMetadata>, wanted: &BlockMetadataRequest) -> MetadataByColumn {
    let mut all = CollectedMetadata::default();
    for HoursMetadata(part) in parts {
        for (column, of_column) in part.columns {
            append(&mut all.columns, column, of_column);
        }
        all.blooms.extend(part.blooms);
        all.bytes_read += part.bytes_read;
    }
    let mut block_metadata = MetadataByColumn { columns: Vec::new(), blooms: all.blooms, bytes_read: all.bytes_read };
    if !wanted.stats && !wanted.chunks {
        return block_metadata;
    }
    match &wanted.columns {
        None => {
            let columns = all.columns.into_iter().filter(|(_, of_column)| !of_column.blocks.is_empty());
            block_metadata.columns =
                columns.map(|(column, of_column)| ColumnMetadata { column, ..of_column }).collect();
        }
        Some(columns) => {
            for (at, column) in columns.iter().enumerate() {
                let again = columns[..at].iter().position(|before| before == column);
                block_metadata.columns.push(match again {
                    Some(before) => block_metadata.columns[before].clone(),
                    None => ColumnMetadata { column: *column, ..all.columns.remove(column).unwrap_or_default() },
                });
            }
        }
    }
    block_metadata
}

/// Puts blocks of a column behind those that are there, which come before them.
fn append(columns: &mut BTreeMap<ColumnId, ColumnMetadata>, column: ColumnId, mut more: ColumnMetadata) {
    match columns.entry(column) {
        Entry::Vacant(place) => drop(place.insert(more)),
        Entry::Occupied(mut there) => {
            let there = there.get_mut();
            there.blocks.append(&mut more.blocks);
            there.stats.append(&mut more.stats);
            there.chunks.append(&mut more.chunks);
        }
    }
}

/// Blocks of several packs, each of them in order, in the order of the blocks.
fn sorted(of_column: ColumnMetadata) -> ColumnMetadata {
    let ColumnMetadata { column, blocks, stats, chunks } = of_column;
    if blocks.is_sorted() {
        return ColumnMetadata { column, blocks, stats, chunks };
    }
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_unstable_by_key(|at| blocks[*at]);
    let (mut stats, mut chunks): (Vec<_>, Vec<_>) =
        (stats.into_iter().map(Some).collect(), chunks.into_iter().map(Some).collect());
    ColumnMetadata {
        column,
        stats: order.iter().filter_map(|at| stats.get_mut(*at)?.take()).collect(),
        chunks: order.iter().filter_map(|at| chunks.get_mut(*at)?.take()).collect(),
        blocks: order.iter().map(|at| blocks[*at]).collect(),
    }
}
