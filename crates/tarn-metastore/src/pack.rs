//! How does the metadata of an hour's blocks lie in one file, so that a search reads little and in one piece?
//!
//! Transposed. A search asks thousands of blocks for one chunk of their filters, or for one column of two hundred; so a
//! pack keeps chunk 0 of all its blocks side by side, then chunk 1 of all, and behind the filters the columns, each
//! with all its blocks (docs/formats/pack.md):
//!
//! ```text
//! head    table, hour, sizes, where the parts are                        one CRC
//! dict    the blocks, ascending: a block's place here is its slot         one CRC
//! blooms  chunk 0: [slot 0: 32 B][slot 1: 32 B] … CRC | chunk 1: … | …    a token is one read of 32 bytes a block
//! slabs   a column: shapes, which slots have it, their records … CRC | …
//! dir     column, place, length                                          one CRC
//! ```
//!
//! All filters of a pack have the same number of chunks, 0 for blocks without one; so filters come back bit for bit. A
//! pack never changes. Every byte that is used was under a checksum.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use tarn_types::{ColumnId, FileId, TableId};

use crate::bloom::{Bloom, CHUNK_BYTES, Hash, MAX_CHUNKS};
use crate::codec::MetadataParts;
use crate::error::io_error;
use crate::probe::AllOf;
use crate::{BlockMetadata, BlockRef, ColumnChunk, ColumnMetadata, ColumnStats, Error, Result, codec};

const MAGIC: &[u8; 8] = b"TARNPACK";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 96;
const SLOT_BYTES: usize = 12;
const DIR_BYTES: usize = 16;
/// Rows of the packs that are merged are read in pieces of about this size.
const WINDOW_BYTES: usize = 1 << 20;
/// A pack is synced piece by piece: one large sync would hold up those of the log beside it.
const SYNCED_BYTES: u64 = 1 << 20;
/// More blocks than this are kept in several packs: a row stays at 2 MiB.
pub(crate) const MAX_SLOTS: usize = 65_536;

/// A column's metadata in one block.
pub(crate) type ColumnMetadataRecord = (ColumnStats, ColumnChunk);

/// An open pack: its blocks and its columns' places are in memory, the rest is read when it is asked for.
pub(crate) struct Pack {
    path: PathBuf,
    file: File,
    pub table: TableId,
    pub hour: i64,
    /// Of each filter; 0: these blocks have none.
    pub n_chunks: u32,
    slots: Vec<BlockRef>,
    columns: Vec<SlabExtent>,
    blooms_at: u64,
    pub size_bytes: u64,
}

/// Where a column's slab lies.
#[derive(Debug, Clone, Copy)]
struct SlabExtent {
    column: ColumnId,
    offset: u64,
    bytes: u32,
}

/// Where the block metadata of a new pack comes from. All blocks have filters of the same number of chunks.
pub(crate) enum PackInput<'a> {
    Loose(&'a [(BlockRef, BlockMetadata)]),
    Packed(&'a Pack),
}

impl PackInput<'_> {
    /// In the order of slots, or as they were handed in.
    pub fn blocks(&self) -> Box<dyn Iterator<Item = BlockRef> + '_> {
        match self {
            PackInput::Loose(blocks) => Box::new(blocks.iter().map(|(block, _)| *block)),
            PackInput::Packed(pack) => Box::new(pack.slots.iter().copied()),
        }
    }

    fn n_chunks(&self) -> Option<u32> {
        match self {
            PackInput::Loose(blocks) => blocks.first().map(|(_, of)| of.bloom.as_ref().map_or(0, Bloom::n_chunks)),
            PackInput::Packed(pack) => Some(pack.n_chunks),
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackSummary {
    pub n_slots: u32,
    pub n_chunks: u32,
    pub size_bytes: u64,
    /// Of records of column metadata.
    pub column_bytes: u64,
}

/// Makes a pack of those blocks of the sources that are kept, durable under its name. Of a block in several sources the
/// first counts.
///
/// # Panics
/// When filters differ in size, or there are more than [`MAX_SLOTS`] blocks.
pub(crate) fn write(
    path: &Path,
    table: TableId,
    hour: i64,
    sources: &[PackInput<'_>],
    keep: impl Fn(BlockRef) -> bool,
) -> Result<PackSummary> {
    let mut slots: Vec<(BlockRef, usize, usize)> = Vec::new();
    for (which, source) in sources.iter().enumerate() {
        slots.extend(source.blocks().enumerate().filter(|(_, b)| keep(*b)).map(|(slot, b)| (b, which, slot)));
    }
    slots.sort_unstable();
    slots.dedup_by_key(|(block, ..)| *block);
    assert!(slots.len() <= MAX_SLOTS, "{} blocks for one pack", slots.len());
    let n_chunks = sources.iter().find_map(PackInput::n_chunks).unwrap_or(0);
    let same = |source: &PackInput<'_>| match source {
        PackInput::Loose(blocks) => {
            blocks.iter().all(|(_, of)| of.bloom.as_ref().map_or(0, Bloom::n_chunks) == n_chunks)
        }
        PackInput::Packed(pack) => pack.n_chunks == n_chunks,
    };
    assert!(sources.iter().all(same), "filters of a pack are of one size");

    let temporary = path.with_extension("tmp");
    let file = File::create(&temporary).map_err(io_error("create", &temporary))?;
    let mut out = PackOutput { path: &temporary, file: BufWriter::with_capacity(256 << 10, file), at: 0, synced: 0 };
    out.put(&[0; HEAD_BYTES])?;
    let dict_at = out.at;
    let mut dict = Vec::with_capacity(slots.len() * SLOT_BYTES);
    for (block, ..) in &slots {
        dict.extend_from_slice(&block.file.0.to_le_bytes());
        dict.extend_from_slice(&block.row_group.to_le_bytes());
    }
    out.put_checked(&mut dict)?;
    let blooms_at = out.at;
    write_blooms(&mut out, sources, &slots, n_chunks)?;
    let slabs_at = out.at;
    let (columns, column_bytes) = write_slabs(&mut out, sources, &slots)?;
    let dir_at = out.at;
    let mut dir = Vec::with_capacity(columns.len() * DIR_BYTES);
    for SlabExtent { column, offset, bytes } in &columns {
        dir.extend_from_slice(&column.0.to_le_bytes());
        dir.extend_from_slice(&offset.to_le_bytes());
        dir.extend_from_slice(&bytes.to_le_bytes());
    }
    out.put_checked(&mut dir)?;

    let end = out.at;
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&[VERSION, 0, 0, 0]);
    head.extend_from_slice(&table.0.to_le_bytes());
    head.extend_from_slice(&hour.to_le_bytes());
    for n in [slots.len() as u32, n_chunks, columns.len() as u32] {
        head.extend_from_slice(&n.to_le_bytes());
    }
    for at in [dict_at, blooms_at, slabs_at, dir_at, end] {
        head.extend_from_slice(&at.to_le_bytes());
    }
    head.resize(HEAD_BYTES - 4, 0);
    head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
    let finish = || -> io::Result<()> {
        let mut file = out.file;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&head)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    finish().map_err(io_error("write", path))?;
    Ok(PackSummary { n_slots: slots.len() as u32, n_chunks, size_bytes: end, column_bytes })
}

/// Row by row; the rows of packs are read a window at a time.
fn write_blooms(
    out: &mut PackOutput<'_>,
    sources: &[PackInput<'_>],
    slots: &[(BlockRef, usize, usize)],
    n_chunks: u32,
) -> Result<()> {
    let widest =
        sources.iter().map(|source| if let PackInput::Packed(pack) = source { pack.stride() } else { 0 }).max();
    let per_window = (WINDOW_BYTES / widest.unwrap_or(0).max(1)).clamp(1, n_chunks.max(1) as usize) as u32;
    let mut row = Vec::with_capacity(slots.len() * CHUNK_BYTES + 4);
    let mut first = 0;
    while first < n_chunks {
        let n = per_window.min(n_chunks - first);
        let mut windows = Vec::with_capacity(sources.len());
        for source in sources {
            windows.push(if let PackInput::Packed(pack) = source { pack.rows(first, n)? } else { Vec::new() });
        }
        for chunk in 0..n {
            row.clear();
            for &(_, which, slot) in slots {
                match &sources[which] {
                    PackInput::Loose(blocks) => {
                        let bloom = blocks[slot].1.bloom.as_ref();
                        row.extend_from_slice(bloom.expect("the pack has filters").chunk(first + chunk));
                    }
                    PackInput::Packed(pack) => {
                        let at = chunk as usize * pack.stride() + slot * CHUNK_BYTES;
                        row.extend_from_slice(&windows[which][at..at + CHUNK_BYTES]);
                    }
                }
            }
            out.put_checked(&mut row)?;
        }
        first += n;
    }
    Ok(())
}

/// Answers where they lie, and the bytes of their records.
fn write_slabs(
    out: &mut PackOutput<'_>,
    sources: &[PackInput<'_>],
    slots: &[(BlockRef, usize, usize)],
) -> Result<(Vec<SlabExtent>, u64)> {
    let mut column_bytes = 0;
    let mut ids = BTreeSet::new();
    for source in sources {
        match source {
            PackInput::Loose(blocks) => {
                ids.extend(blocks.iter().flat_map(|(_, of)| of.columns.iter().map(|(stats, _)| stats.column)));
            }
            PackInput::Packed(pack) => ids.extend(pack.columns.iter().map(|place| place.column)),
        }
    }
    let mut places = Vec::with_capacity(ids.len());
    for column in ids {
        let mut packed: Vec<HashMap<u32, ColumnMetadataRecord>> = Vec::with_capacity(sources.len());
        for source in sources {
            packed.push(match source {
                PackInput::Loose(_) => HashMap::new(),
                PackInput::Packed(pack) => pack.records(column)?.into_iter().collect(),
            });
        }
        let record = |which: usize, slot: usize| match &sources[which] {
            PackInput::Loose(blocks) => blocks[slot].1.column(column),
            PackInput::Packed(_) => packed[which].get(&(slot as u32)),
        };
        let records: Vec<(u32, &ColumnMetadataRecord)> = (0..)
            .zip(slots)
            .filter_map(|(slot, &(_, which, from))| record(which, from).map(|record| (slot, record)))
            .collect();
        if records.is_empty() {
            continue;
        }
        let offset = out.at;
        let (mut slab, record_bytes) = codec::encode_slab(slots.len() as u32, &records);
        column_bytes += record_bytes;
        let bytes = u32::try_from(slab.len() + 4).map_err(|_| io::Error::other("metadata of one column over 4 GiB"));
        let bytes = bytes.map_err(io_error("write", out.path))?;
        out.put_checked(&mut slab)?;
        places.push(SlabExtent { column, offset, bytes });
    }
    Ok((places, column_bytes))
}

struct PackOutput<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    at: u64,
    synced: u64,
}

impl PackOutput<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(io_error("write", self.path))?;
        self.at += bytes.len() as u64;
        if self.at - self.synced >= SYNCED_BYTES {
            let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
            synced.map_err(io_error("sync", self.path))?;
            self.synced = self.at;
        }
        Ok(())
    }

    /// The bytes and their CRC, which is added to them.
    fn put_checked(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
        self.put(bytes)
    }
}

impl Pack {
    /// Reads the head, the blocks and the columns' places.
    ///
    /// # Errors
    /// `Corrupt` names the file and the offset of what does not match its checksum.
    pub fn open(path: &Path) -> Result<Pack> {
        let file = File::open(path).map_err(io_error("open", path))?;
        let size_bytes = file.metadata().map_err(io_error("read the size of", path))?.len();
        let whole = CheckedFile { path, file: &file };
        let head = whole.checked(0, HEAD_BYTES as u64)?;
        if head[..8] != MAGIC[..] {
            return Err(whole.corrupt(0, "this is no pack"));
        }
        if head[8] != VERSION {
            let reason = format!("version {} of a pack is not known, this build writes {VERSION}", head[8]);
            return Err(whole.corrupt(8, &reason));
        }
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (n_slots, n_chunks, n_columns) = (u32_at(24) as usize, u32_at(28), u32_at(32) as usize);
        let [dict_at, blooms_at, slabs_at, dir_at, end] = [36, 44, 52, 60, 68].map(u64_at);
        let stride = (n_slots * CHUNK_BYTES + 4) as u64;
        let fits = n_slots <= MAX_SLOTS
            && n_chunks <= MAX_CHUNKS
            && dict_at == HEAD_BYTES as u64
            && blooms_at == dict_at + (n_slots * SLOT_BYTES + 4) as u64
            && slabs_at == blooms_at + u64::from(n_chunks) * stride
            && slabs_at <= dir_at
            && end == dir_at + (n_columns * DIR_BYTES + 4) as u64
            && end == size_bytes;
        if !fits {
            return Err(whole.corrupt(0, &format!("its parts do not add up to its {size_bytes} bytes")));
        }
        let dict = whole.checked(dict_at, blooms_at - dict_at)?;
        let slots: Vec<BlockRef> = dict
            .chunks_exact(SLOT_BYTES)
            .map(|slot| BlockRef {
                file: FileId(u64::from_le_bytes(slot[..8].try_into().expect("eight bytes"))),
                row_group: u32::from_le_bytes(slot[8..].try_into().expect("four bytes")),
            })
            .collect();
        let dir = whole.checked(dir_at, end - dir_at)?;
        let columns: Vec<SlabExtent> = dir
            .chunks_exact(DIR_BYTES)
            .map(|entry| SlabExtent {
                column: ColumnId(u32::from_le_bytes(entry[..4].try_into().expect("four bytes"))),
                offset: u64::from_le_bytes(entry[4..12].try_into().expect("eight bytes")),
                bytes: u32::from_le_bytes(entry[12..].try_into().expect("four bytes")),
            })
            .collect();
        let inside = |place: &SlabExtent| place.offset >= slabs_at && place.offset + u64::from(place.bytes) <= dir_at;
        if !slots.is_sorted_by(|a, b| a < b) || !columns.iter().all(|place| place.bytes >= 4 && inside(place)) {
            return Err(whole.corrupt(dict_at, "blocks or columns are out of order"));
        }
        let (table, hour) = (TableId(u32_at(12)), u64_at(16) as i64);
        Ok(Pack { path: path.to_owned(), file, table, hour, n_chunks, slots, columns, blooms_at, size_bytes })
    }

    /// What it takes while it is open, about.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&self.slots[..]) + size_of_val(&self.columns[..])
    }

    /// Its blocks, ascending.
    pub fn slots(&self) -> &[BlockRef] {
        &self.slots
    }

    /// Of ascending blocks, those that are here: (position among the asked, slot).
    pub fn places(&self, blocks: &[BlockRef]) -> Vec<(u32, u32)> {
        let mut found = Vec::with_capacity(blocks.len().min(self.slots.len()));
        let (mut slot, mut asked) = (0, 0);
        while let (Some(here), Some(want)) = (self.slots.get(slot), blocks.get(asked)) {
            match here.cmp(want) {
                std::cmp::Ordering::Less => slot += 1,
                std::cmp::Ordering::Greater => asked += 1,
                std::cmp::Ordering::Equal => {
                    found.push((asked as u32, slot as u32));
                    (slot, asked) = (slot + 1, asked + 1);
                }
            }
        }
        found
    }

    fn stride(&self) -> usize {
        self.slots.len() * CHUNK_BYTES + 4
    }

    fn part(&self) -> CheckedFile<'_> {
        CheckedFile { path: &self.path, file: &self.file }
    }

    /// Rows `first ..`, each with its checksum, which was looked at.
    fn rows(&self, first: u32, n: u32) -> Result<Vec<u8>> {
        let offset = self.blooms_at + u64::from(first) * self.stride() as u64;
        let rows = self.part().read(offset, n as usize * self.stride())?;
        for (at, row) in (offset..).step_by(self.stride()).zip(rows.chunks_exact(self.stride())) {
            self.part().check(at, row)?;
        }
        Ok(rows)
    }

    /// The slots whose filters may hold the clauses' keys, among those that are `asked`. Adds up the bytes read,
    /// without checksums.
    pub fn probe(&self, clauses: &[Vec<AllOf>], asked: Vec<bool>, bytes_read: &mut u64) -> Result<Vec<bool>> {
        let mut alive = asked;
        if self.n_chunks == 0 {
            return Ok(alive);
        }
        let mut rows: HashMap<u32, Vec<u8>> = HashMap::new();
        for ways in clauses {
            let mut some = vec![false; alive.len()];
            for keys in ways {
                let mut all = alive.clone();
                for key in keys {
                    let chunk = key.chunk(self.n_chunks);
                    let row = match rows.entry(chunk) {
                        std::collections::hash_map::Entry::Occupied(row) => row.into_mut(),
                        std::collections::hash_map::Entry::Vacant(place) => {
                            *bytes_read += (self.slots.len() * CHUNK_BYTES) as u64;
                            place.insert(self.rows(chunk, 1)?)
                        }
                    };
                    if !test_row(&row[..self.slots.len() * CHUNK_BYTES], *key, &mut all) {
                        break;
                    }
                }
                some.iter_mut().zip(all).for_each(|(some, all)| *some |= all);
            }
            alive = some;
            if !alive.contains(&true) {
                break;
            }
        }
        Ok(alive)
    }

    /// Adds to `out` what is wanted of a column, in the order of the slots, for those slots that `place` has a place
    /// for. Answers the bytes read.
    pub fn column(
        &self,
        id: ColumnId,
        parts: MetadataParts,
        place: impl Fn(u32) -> Option<u32>,
        out: &mut ColumnMetadata,
    ) -> Result<u64> {
        let Ok(at) = self.columns.binary_search_by_key(&id, |place| place.column) else { return Ok(0) };
        let SlabExtent { offset, bytes, .. } = self.columns[at];
        let slab = self.part().checked(offset, u64::from(bytes))?;
        let read = codec::read_slab(&slab, self.slots.len() as u32, parts, place, out);
        read.map_err(|malformed| self.part().corrupt(offset, &malformed.0))?;
        Ok(u64::from(bytes))
    }

    /// All that is known of a column, by slot.
    fn records(&self, id: ColumnId) -> Result<Vec<(u32, ColumnMetadataRecord)>> {
        let mut all = ColumnMetadata::default();
        self.column(id, MetadataParts::BOTH, Some, &mut all)?;
        Ok(all.blocks.into_iter().zip(all.stats.into_iter().zip(all.chunks)).collect())
    }

    /// The columns that any block here has metadata of, ascending.
    pub fn columns(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.columns.iter().map(|place| place.column)
    }

    /// The filters in these slots, ascending. Cost: reads all rows.
    pub fn blooms(&self, slots: &[u32]) -> Result<Vec<Bloom>> {
        if self.n_chunks == 0 || slots.is_empty() {
            return Ok(Vec::new());
        }
        let mut bits = vec![Vec::with_capacity(self.n_chunks as usize * CHUNK_BYTES); slots.len()];
        let per_window = ((WINDOW_BYTES / self.stride()).max(1) as u32).min(self.n_chunks);
        let mut first = 0;
        while first < self.n_chunks {
            let n = per_window.min(self.n_chunks - first);
            for row in self.rows(first, n)?.chunks_exact(self.stride()) {
                for (bits, slot) in bits.iter_mut().zip(slots) {
                    bits.extend_from_slice(&row[*slot as usize * CHUNK_BYTES..][..CHUNK_BYTES]);
                }
            }
            first += n;
        }
        let bloom = |bits: Vec<u8>| Bloom::from_bits(Bytes::from(bits)).expect("a power of two of chunks");
        Ok(bits.into_iter().map(bloom).collect())
    }

    /// Reads everything and holds it against its checksums.
    pub fn verify(&self) -> Result<()> {
        let per_window = ((WINDOW_BYTES / self.stride()).max(1) as u32).min(self.n_chunks.max(1));
        for first in (0..self.n_chunks).step_by(per_window as usize) {
            self.rows(first, per_window.min(self.n_chunks - first))?;
        }
        let mut all = ColumnMetadata::default();
        self.columns().try_for_each(|column| {
            all.blocks.clear();
            all.stats.clear();
            all.chunks.clear();
            self.column(column, MetadataParts::BOTH, Some, &mut all).map(drop)
        })
    }

    /// All that is kept of each block. Cost: reads all.
    #[cfg(test)]
    pub fn block_metadata(&self) -> Result<Vec<(BlockRef, BlockMetadata)>> {
        let mut columns: Vec<Vec<ColumnMetadataRecord>> = vec![Vec::new(); self.slots.len()];
        for id in self.columns() {
            for (slot, record) in self.records(id)? {
                columns[slot as usize].push(record);
            }
        }
        let all: Vec<u32> = (0..self.slots.len() as u32).collect();
        let mut blooms = self.blooms(&all)?.into_iter();
        let block_metadata = self.slots.iter().zip(columns).map(|(block, columns)| {
            (*block, BlockMetadata { row_group: block.row_group, columns, bloom: blooms.next() })
        });
        Ok(block_metadata.collect())
    }
}

/// Keeps of the slots those whose chunk in `row` (32 bytes a slot) has the key's bits. False: none is left.
pub fn test_row(row: &[u8], key: Hash, kept: &mut [bool]) -> bool {
    let mask = key.mask();
    let mut any = false;
    for (chunk, kept) in row.chunks_exact(CHUNK_BYTES).zip(kept) {
        let mut missing = 0;
        for (word, mask) in chunk.chunks_exact(4).zip(mask) {
            missing |= mask & !u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        }
        *kept &= missing == 0;
        any |= *kept;
    }
    any
}

/// A file that is read in checked parts.
struct CheckedFile<'a> {
    path: &'a Path,
    file: &'a File,
}

impl CheckedFile<'_> {
    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.corrupt(offset, "the file ends early")),
            Err(source) => Err(io_error("read", self.path)(source)),
        }
    }

    fn check(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (body, crc) = bytes.split_at(bytes.len() - 4);
        if crc32c::crc32c(body).to_le_bytes() == crc {
            return Ok(());
        }
        Err(self.corrupt(offset, "the bytes do not match their checksum"))
    }

    /// So many bytes, the last four of which are the checksum of the others; those.
    fn checked(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = self.read(offset, len as usize)?;
        self.check(offset, &bytes)?;
        bytes.truncate(bytes.len() - 4);
        Ok(bytes)
    }

    fn corrupt(&self, offset: u64, reason: &str) -> Error {
        Error::Corrupt { path: self.path.to_owned(), offset, reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::{any_block_metadata, scratch};
    use crate::{BlockMetadataRequest, BloomBuilder, HourBlocks, Probe, block_metadata, probe};

    /// Blocks with filters of one size.
    fn any_blocks() -> impl Strategy<Value = Vec<(BlockRef, BlockMetadata)>> {
        let keys = proptest::collection::vec(0..40u64, 0..30);
        let blocks = proptest::collection::btree_map((1..9u64, 0..4u32), (any_block_metadata(5), keys), 1..20);
        (blocks, proptest::option::of(0..4u32)).prop_map(|(blocks, log_chunks)| {
            let block_metadata = |(row_group, mut of, keys): (u32, BlockMetadata, Vec<u64>)| {
                of.row_group = row_group;
                of.bloom = log_chunks.map(|log| {
                    let mut builder = BloomBuilder::new(1 << log);
                    keys.into_iter().for_each(|key| builder.insert(Hash::of(&key.to_le_bytes())));
                    builder.finish()
                });
                of
            };
            let block = |((file, row_group), (of, keys))| {
                (BlockRef { file: FileId(file), row_group }, block_metadata((row_group, of, keys)))
            };
            blocks.into_iter().map(block).collect()
        })
    }

    fn pack_of(dir: &Path, name: &str, sources: &[PackInput<'_>], keep: impl Fn(BlockRef) -> bool) -> Pack {
        let path = dir.join(name);
        write(&path, TableId(7), -3, sources, keep).unwrap();
        Pack::open(&path).unwrap()
    }

    fn clauses() -> impl Strategy<Value = Vec<Vec<AllOf>>> {
        let keys = proptest::collection::vec((0..45u64).prop_map(|key| Hash::of(&key.to_le_bytes())), 0..3);
        proptest::collection::vec(proptest::collection::vec(keys, 0..3), 0..3)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_pack_answers_as_its_blocks_do(blocks in any_blocks(), clauses in clauses(), asked: u32) {
            let dir = scratch().unwrap();
            let pack = pack_of(dir.path(), "a.pack", &[PackInput::Loose(&blocks)], |_| true);
            prop_assert_eq!((pack.table, pack.hour), (TableId(7), -3));
            pack.verify().unwrap();
            let same = |a: &[(BlockRef, BlockMetadata)], b: &[(BlockRef, BlockMetadata)]| format!("{a:?}") == format!("{b:?}");
            prop_assert!(same(&pack.block_metadata().unwrap(), &blocks));

            let all: Vec<BlockRef> = blocks.iter().map(|(block, _)| *block).collect();
            let some: Vec<BlockRef> = (0..).zip(&all).filter(|(i, _)| asked >> (i % 32) & 1 == 1).map(|(_, b)| *b).collect();
            let find = |_, block| blocks.iter().find(|(b, _)| *b == block).map(|(_, of)| of);
            let hours = vec![HourBlocks { hour: -3, blocks: some.clone() }];
            let expected = probe::answer(&Probe { hours: hours.clone(), clauses: clauses.clone() }, |hour, block| {
                find(hour, block).and_then(|of| of.bloom.as_ref())
            });
            let places = pack.places(&some);
            prop_assert_eq!(places.len(), some.len());
            let mut in_pack = vec![false; all.len()];
            places.iter().for_each(|(_, slot)| in_pack[*slot as usize] = true);
            let mut read = 0;
            let kept = pack.probe(&clauses, in_pack, &mut read).unwrap();
            let kept: Vec<u32> = places.iter().filter(|(_, slot)| kept[*slot as usize]).map(|(asked, _)| *asked).collect();
            prop_assert_eq!(kept, expected.kept.iter().collect::<Vec<_>>());

            let wanted = BlockMetadataRequest { hours, columns: None, stats: true, chunks: true, blooms: false };
            let expected = block_metadata::collect(&wanted, find, |_| 0);
            for column in expected.columns {
                let of: HashMap<u32, u32> = places.iter().map(|(asked, slot)| (*slot, *asked)).collect();
                let one = |stats| MetadataParts { stats, chunks: !stats };
                for parts in [MetadataParts::BOTH, one(false), one(true)] {
                    let mut found = ColumnMetadata { column: column.column, ..ColumnMetadata::default() };
                    pack.column(column.column, parts, |slot| of.get(&slot).copied(), &mut found).unwrap();
                    let mut expected = column.clone();
                    expected.stats.truncate(if parts.stats { usize::MAX } else { 0 });
                    expected.chunks.truncate(if parts.chunks { usize::MAX } else { 0 });
                    prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
                }
            }
        }

        #[test]
        fn merging_keeps_all_that_is_kept(blocks in any_blocks(), parts in proptest::collection::vec(0..4usize, 20), dead: u32) {
            let dir = scratch().unwrap();
            let part = |which: usize| -> Vec<_> {
                blocks.iter().zip(&parts).filter(|(_, part)| **part == which).map(|(block, _)| block.clone()).collect()
            };
            let (loose, packed) = (part(0), [part(1), part(2), part(3)]);
            let packs: Vec<Pack> = (0..).zip(&packed).filter(|(_, part)| !part.is_empty()).map(|(i, part)| {
                pack_of(dir.path(), &format!("{i}.pack"), &[PackInput::Loose(part)], |_| true)
            }).collect();
            let mut sources: Vec<PackInput<'_>> = packs.iter().map(PackInput::Packed).collect();
            sources.extend((!loose.is_empty()).then_some(PackInput::Loose(&loose)));
            let lives = |block: BlockRef| (dead >> ((block.file.0 * 4 + u64::from(block.row_group)) % 32)) & 1 == 0;
            let merged = pack_of(dir.path(), "merged.pack", &sources, lives);
            let expected: Vec<_> = blocks.iter().filter(|(block, _)| lives(*block)).cloned().collect();
            prop_assert_eq!(format!("{:?}", merged.block_metadata().unwrap()), format!("{expected:?}"));
        }

        #[test]
        fn any_bytes_open_or_are_named(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let dir = scratch().unwrap();
            let path = dir.path().join("a.pack");
            fs::write(&path, bytes).unwrap();
            let found = Pack::open(&path).map(drop);
            prop_assert!(matches!(found, Err(Error::Corrupt { .. })), "{:?}", found);
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_seen() {
        let dir = scratch().unwrap();
        let chunk = ColumnChunk { shape: "optional int64 c".into(), n_values: 5, ..ColumnChunk::default() };
        let stats = |column| ColumnStats {
            column: ColumnId(column),
            min: None,
            max: None,
            exact: true,
            null_count: 2,
            bytes: 9,
        };
        let block = |file: u64, columns: &[u32]| {
            let mut builder = BloomBuilder::new(2);
            builder.insert(Hash::of(&file.to_le_bytes()));
            let columns = columns.iter().map(|id| (stats(*id), chunk.clone())).collect();
            (
                BlockRef { file: FileId(file), row_group: 0 },
                BlockMetadata { row_group: 0, columns, bloom: Some(builder.finish()) },
            )
        };
        let blocks = [block(1, &[1, 4]), block(5, &[4])];
        let path = dir.path().join("a.pack");
        write(&path, TableId(1), 5, &[PackInput::Loose(&blocks)], |_| true).unwrap();
        let whole = fs::read(&path).unwrap();
        let sees = |bytes: &[u8], what: &str| {
            fs::write(&path, bytes).unwrap();
            let found = Pack::open(&path).and_then(|pack| pack.verify());
            assert!(matches!(found, Err(Error::Corrupt { .. })), "{what}: {found:?}");
        };
        (0..whole.len()).for_each(|len| sees(&whole[..len], &format!("cut at {len}")));
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                sees(&flipped, &format!("bit {bit} of byte {at}"));
            }
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(Pack::open(&path).unwrap().block_metadata().unwrap(), blocks);
    }
}
