//! How do definitions, files, commits, versions and block metadata look as bytes? (docs/formats/metastore.md)
//!
//! Decoding reads every format there was; encoding writes the newest.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use roaring::RoaringBitmap;
use uuid::Uuid;

use tarn_types::{ColumnId, FileId, TableId, TableSchema, Version};

use crate::bloom::{CHUNK_BYTES, MAX_CHUNKS};
use crate::checksums::n_pieces;
use crate::wire::{
    DecodeResult, Malformed, RecordReader, malformed, put_bitmap, put_bytes, put_cursor, put_i64, put_len, put_option,
    put_u64,
};
use crate::{
    Block, BlockMetadata, BlockRef, Bloom, Checksums, ColumnChunk, ColumnMetadata, ColumnStats, CommitInfo, CommitKind,
    File, TableVersion,
};

/// What is written: 2 since blocks have metadata, 3 since files have checksums.
pub const FORMAT: u8 = 3;

/// What a file's record has.
const HAS_NOTE: u8 = 1;
const HAS_CHECKSUMS: u8 = 2;

/// What is kept of one block, as it stands in front of the commit that adds its file.
pub struct BlockMetadataRecord {
    /// Whose file it is.
    pub table: TableId,
    /// Of the file: block metadata is found by it.
    pub hour: i64,
    /// Whose block it is.
    pub file: FileId,
    /// What is kept of the block.
    pub block_metadata: BlockMetadata,
}

/// The payload of a frame that stands in front of a commit: all that is kept of one block.
pub fn encode_block_metadata(table: TableId, hour: i64, file: FileId, block_metadata: &BlockMetadata) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, table.0.into());
    put_i64(&mut out, hour);
    put_u64(&mut out, file.0);
    put_block_metadata(&mut out, block_metadata);
    out
}

/// What [`encode_block_metadata`] wrote, by this build or an older one that wrote `format`.
pub fn decode_block_metadata(bytes: &[u8], format: u8) -> DecodeResult<BlockMetadataRecord> {
    let mut reader = RecordReader { bytes, format };
    let record = BlockMetadataRecord {
        table: TableId(reader.u32()?),
        hour: reader.i64()?,
        file: FileId(reader.u64()?),
        block_metadata: reader.block_metadata()?,
    };
    reader.end()?;
    Ok(record)
}

/// Where the parts of a block metadata frame's payload are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockMetadataOffsets {
    /// Whose file it is.
    pub table: TableId,
    /// Of the file.
    pub hour: i64,
    /// Which block of which file.
    pub block: BlockRef,
    /// 0: no bloom.
    pub n_chunks: u32,
    /// Where the filter's bits begin in the payload; meaningless without one.
    pub bloom_at: u32,
    /// Shapes and columns, up to the end.
    pub columns_at: u32,
    /// Of the columns alone.
    pub column_bytes: u32,
}

/// Looks at everything but the columns.
pub fn locate_block_metadata(bytes: &[u8], format: u8) -> DecodeResult<BlockMetadataOffsets> {
    let mut reader = RecordReader { bytes, format };
    let at = |reader: &RecordReader<'_>| (bytes.len() - reader.bytes.len()) as u32;
    let (table, hour, file) = (TableId(reader.u32()?), reader.i64()?, FileId(reader.u64()?));
    let (row_group, n_chunks) = (reader.u32()?, reader.bloom_chunks()?);
    let bloom_at = at(&reader);
    reader.take(n_chunks as usize * CHUNK_BYTES)?;
    let columns_at = at(&reader);
    reader.shapes()?;
    reader.count()?;
    let (block, column_bytes) = (BlockRef { file, row_group }, reader.bytes.len() as u32);
    Ok(BlockMetadataOffsets { table, hour, block, n_chunks, bloom_at, columns_at, column_bytes })
}

/// The part of a block metadata frame from `columns_at` on.
pub fn decode_columns(bytes: &[u8], format: u8) -> DecodeResult<Vec<(ColumnStats, ColumnChunk)>> {
    let mut reader = RecordReader { bytes, format };
    let columns = reader.columns()?;
    reader.end()?;
    Ok(columns)
}

/// Which parts of the metadata of a column are wanted; the other is passed over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetadataParts {
    pub stats: bool,
    pub chunks: bool,
}

impl MetadataParts {
    /// Bounds and places: what copying, checking and packs read.
    pub const BOTH: Self = Self { stats: true, chunks: true };
}

/// As `decode_columns`, but only the parts that are wanted, and of the columns that are, put where `columns` has them.
pub(crate) fn read_columns(
    bytes: &[u8],
    format: u8,
    parts: MetadataParts,
    block: u32,
    wanted: impl Fn(ColumnId) -> bool,
    columns: &mut BTreeMap<ColumnId, ColumnMetadata>,
) -> DecodeResult<()> {
    let mut reader = RecordReader { bytes, format };
    let shapes = reader.shapes()?;
    for _ in 0..reader.count()? {
        let column = ColumnId(RecordReader { bytes: reader.bytes, format }.u32()?);
        match wanted(column) {
            true => reader.record(&shapes, parts, block, columns.entry(column).or_default())?,
            false => reader.skip_record()?,
        }
    }
    reader.end()
}

/// What one column of one block takes, about: as in a record, whose columns share their shapes.
pub fn column_bytes((stats, chunk): &(ColumnStats, ColumnChunk)) -> u64 {
    let mut out = Vec::new();
    put_stats(&mut out, stats);
    put_chunk(&mut out, chunk, 0);
    out.len() as u64
}

/// The definition as JSON: small, rare, and it grows by named fields.
pub fn put_schema(out: &mut Vec<u8>, schema: &TableSchema) {
    put_bytes(out, &serde_json::to_vec(schema).expect("a table definition has a JSON form"));
}

/// Writes a file with its blocks and checksums; a row of the version that a checkpoint or a commit has.
pub fn put_file(out: &mut Vec<u8>, file: &File) {
    put_u64(out, file.id.0);
    put_bytes(out, file.path.as_bytes());
    put_u64(out, file.size_bytes);
    put_u64(out, file.n_rows);
    put_i64(out, file.hour);
    match &file.etag {
        None => out.push(0),
        Some(etag) => {
            out.push(1);
            put_bytes(out, etag.as_bytes());
        }
    }
    put_u64(out, file.created_version.0);
    out.push(u8::from(file.sorted_by_key));
    let has_note = if file.note.is_some() { HAS_NOTE } else { 0 };
    out.push(has_note | if file.checksums.is_some() { HAS_CHECKSUMS } else { 0 });
    if let Some(note) = &file.note {
        put_bytes(out, note.as_bytes());
    }
    if let Some(checksums) = &file.checksums {
        put_checksums(out, checksums);
    }
    put_len(out, file.blocks.len());
    for block in &file.blocks {
        put_u64(out, block.row_group.into());
        put_u64(out, block.first_row);
        put_u64(out, block.n_rows);
        put_u64(out, block.bytes);
        put_len(out, block.columns.len());
        for stats in &block.columns {
            put_stats(out, stats);
        }
    }
}

/// The cuts, each from the one before it; then a checksum for each piece. How many there are the size and the cuts say.
fn put_checksums(out: &mut Vec<u8>, checksums: &Checksums) {
    put_len(out, checksums.cuts().len());
    let mut before = 0;
    for cut in checksums.cuts() {
        put_u64(out, cut - before);
        before = *cut;
    }
    checksums.crcs().iter().for_each(|crc| out.extend_from_slice(&crc.to_le_bytes()));
}

/// Writes the bounds of one column.
pub fn put_stats(out: &mut Vec<u8>, stats: &ColumnStats) {
    put_u64(out, stats.column.0.into());
    out.push(u8::from(stats.exact));
    put_u64(out, stats.null_count);
    put_u64(out, stats.bytes);
    put_option(out, stats.min.as_ref());
    put_option(out, stats.max.as_ref());
}

/// `shape`: its place among the shapes of the record.
pub fn put_chunk(out: &mut Vec<u8>, chunk: &ColumnChunk, shape: usize) {
    put_len(out, shape);
    put_u64(out, chunk.data_page_offset);
    put_u64(out, chunk.dictionary_page_offset);
    put_u64(out, chunk.compressed_bytes);
    put_u64(out, chunk.uncompressed_bytes);
    put_u64(out, chunk.n_values);
    out.push(chunk.codec);
    put_u64(out, chunk.encodings.into());
    for (offset, bytes) in [chunk.offset_index, chunk.column_index] {
        put_u64(out, offset);
        put_u64(out, bytes.into());
    }
}

/// Writes what is kept of a block. Columns that have the same shape share it: it is written once.
pub fn put_block_metadata(out: &mut Vec<u8>, block_metadata: &BlockMetadata) {
    put_u64(out, block_metadata.row_group.into());
    put_u64(out, block_metadata.bloom.as_ref().map_or(0, Bloom::n_chunks).into());
    if let Some(bloom) = &block_metadata.bloom {
        out.extend_from_slice(bloom.bits());
    }
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut shapes: Vec<&str> = Vec::new();
    for (_, chunk) in &block_metadata.columns {
        places.entry(&chunk.shape).or_insert_with(|| {
            shapes.push(&chunk.shape);
            shapes.len() - 1
        });
    }
    put_len(out, shapes.len());
    for shape in &shapes {
        put_bytes(out, shape.as_bytes());
    }
    put_len(out, block_metadata.columns.len());
    for (stats, chunk) in &block_metadata.columns {
        put_stats(out, stats);
        put_chunk(out, chunk, places[&*chunk.shape]);
    }
}

/// One column of many blocks: the records of those slots that have one, ascending by slot. Answers, beside the bytes,
/// how many of them are records.
pub fn encode_slab(n_slots: u32, records: &[(u32, &(ColumnStats, ColumnChunk))]) -> (Vec<u8>, u64) {
    let mut out = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut shapes: Vec<&str> = Vec::new();
    for (_, (_, chunk)) in records {
        places.entry(&chunk.shape).or_insert_with(|| {
            shapes.push(&chunk.shape);
            shapes.len() - 1
        });
    }
    put_len(&mut out, shapes.len());
    shapes.iter().for_each(|shape| put_bytes(&mut out, shape.as_bytes()));
    let all = records.len() == n_slots as usize;
    out.push(u8::from(all));
    if !all {
        let mut present = vec![0u8; (n_slots as usize).div_ceil(8)];
        records.iter().for_each(|(slot, _)| present[*slot as usize / 8] |= 1 << (slot % 8));
        out.extend_from_slice(&present);
    }
    let head = out.len();
    for (_, (stats, chunk)) in records {
        put_stats(&mut out, stats);
        put_chunk(&mut out, chunk, places[&*chunk.shape]);
    }
    let record_bytes = (out.len() - head) as u64;
    (out, record_bytes)
}

/// The records of the slots that are wanted, ascending by slot.
pub fn decode_slab(
    bytes: &[u8],
    n_slots: u32,
    wanted: impl Fn(u32) -> bool,
) -> DecodeResult<Vec<(u32, (ColumnStats, ColumnChunk))>> {
    let mut block_metadata = ColumnMetadata::default();
    read_slab(bytes, n_slots, MetadataParts::BOTH, |slot| wanted(slot).then_some(slot), &mut block_metadata)?;
    let ColumnMetadata { blocks, stats, chunks, .. } = block_metadata;
    Ok(blocks.into_iter().zip(stats.into_iter().zip(chunks)).collect())
}

/// The wanted parts of the records of the slots that `place` has a place for.
pub(crate) fn read_slab(
    bytes: &[u8],
    n_slots: u32,
    parts: MetadataParts,
    place: impl Fn(u32) -> Option<u32>,
    out: &mut ColumnMetadata,
) -> DecodeResult<()> {
    let mut reader = RecordReader { bytes, format: FORMAT };
    let shapes = reader.shapes()?;
    let present = if reader.bool()? { None } else { Some(reader.take((n_slots as usize).div_ceil(8))?) };
    let has = |slot: u32| present.is_none_or(|bits| bits[slot as usize / 8] & 1 << (slot % 8) != 0);
    for slot in (0..n_slots).filter(|slot| has(*slot)) {
        match place(slot) {
            Some(block) => reader.record(&shapes, parts, block, out)?,
            None => reader.skip_record()?,
        }
    }
    reader.end()
}

/// Writes a commit as it went in, without the metadata of its blocks.
pub fn put_commit(out: &mut Vec<u8>, commit: &CommitInfo) {
    out.extend_from_slice(commit.id.as_bytes());
    put_u64(out, commit.version.0);
    out.push(match commit.kind {
        CommitKind::Delivery => 1,
        CommitKind::Compaction => 2,
        CommitKind::Attach => 3,
        CommitKind::Restore => 4,
    });
    put_i64(out, commit.at_ms);
    match &commit.cursor {
        None => out.push(0),
        Some(cursor) => {
            out.push(1);
            put_cursor(out, cursor);
        }
    }
    put_len(out, commit.added.len());
    for file in &commit.added {
        put_file(out, file);
    }
    put_len(out, commit.removed.len());
    for file in &commit.removed {
        put_u64(out, file.0);
    }
    put_len(out, commit.deletion_vectors.len());
    for (file, dead) in &commit.deletion_vectors {
        put_u64(out, file.0);
        put_bitmap(out, dead);
    }
}

/// Writes a whole version: files ascending by id, then deletion vectors ascending by file.
pub fn put_version(out: &mut Vec<u8>, version: &TableVersion) {
    put_version_in_parts::<Infallible>(out, version, |_| Ok(())).unwrap_or_else(|never| match never {});
}

/// The same; `pause` sees, and may take, what there is so far: behind every file.
pub fn put_version_in_parts<E>(
    out: &mut Vec<u8>,
    version: &TableVersion,
    mut pause: impl FnMut(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_u64(out, version.version.0);
    put_i64(out, version.committed_ms);
    put_cursor(out, &version.cursor);
    put_len(out, version.files.len());
    for file in &version.files {
        put_file(out, file);
        pause(out)?;
    }
    let mut dead: Vec<_> = version.deletion_vectors.iter().collect();
    dead.sort_unstable_by_key(|(file, _)| **file);
    put_len(out, dead.len());
    for (file, dead) in dead {
        put_u64(out, file.0);
        put_bitmap(out, dead);
        pause(out)?;
    }
    Ok(())
}

impl RecordReader<'_> {
    /// Reads a definition: JSON. Whether it is lawful is for `TableSchema::validate` to say.
    pub fn schema(&mut self) -> DecodeResult<TableSchema> {
        serde_json::from_slice(self.bytes()?).map_err(|e| Malformed(format!("table definition: {e}")))
    }

    /// Reads deletion vectors by file.
    pub fn dead(&mut self) -> DecodeResult<BTreeMap<FileId, Arc<RoaringBitmap>>> {
        let mut dead = BTreeMap::new();
        for _ in 0..self.count()? {
            let file = FileId(self.u64()?);
            dead.insert(file, Arc::new(self.bitmap()?));
        }
        Ok(dead)
    }

    /// Reads files, in the order in which they were written.
    pub fn files(&mut self) -> DecodeResult<Vec<Arc<File>>> {
        (0..self.count()?).map(|_| self.file().map(Arc::new)).collect()
    }

    /// Reads a file. Those of format 1 have neither note nor checksums.
    pub fn file(&mut self) -> DecodeResult<File> {
        let (id, path, size_bytes) = (FileId(self.u64()?), self.text()?, self.u64()?);
        let (n_rows, hour) = (self.u64()?, self.i64()?);
        let etag = if self.bool()? { Some(self.text()?) } else { None };
        let (created_version, sorted_by_key) = (Version(self.u64()?), self.bool()?);
        let has = if self.format >= 2 { self.byte()? } else { 0 };
        if has > HAS_NOTE | HAS_CHECKSUMS {
            return malformed(format!("flags of file {id} are {has}"));
        }
        Ok(File {
            id,
            path,
            size_bytes,
            n_rows,
            hour,
            etag,
            created_version,
            sorted_by_key,
            note: if has & HAS_NOTE > 0 { Some(self.text()?.into()) } else { None },
            checksums: if has & HAS_CHECKSUMS > 0 { Some(Arc::new(self.checksums(size_bytes)?)) } else { None },
            blocks: (0..self.count()?).map(|_| self.block()).collect::<DecodeResult<_>>()?,
        })
    }

    /// Of a file of this size.
    fn checksums(&mut self, size_bytes: u64) -> DecodeResult<Checksums> {
        let mut cuts = Vec::new();
        let mut cut = 0u64;
        for _ in 0..self.count()? {
            cut = cut.checked_add(self.u64()?).ok_or_else(|| Malformed("cuts overflow".to_owned()))?;
            cuts.push(cut);
        }
        let n_bytes = usize::try_from(n_pieces(size_bytes, &cuts)).ok().and_then(|n| n.checked_mul(4));
        let crcs = self.take(n_bytes.unwrap_or(usize::MAX))?.as_chunks::<4>().0;
        let crcs = crcs.iter().map(|crc| u32::from_le_bytes(*crc)).collect();
        Checksums::new(size_bytes, cuts, crcs).ok_or_else(|| Malformed("cuts are out of order".to_owned()))
    }

    /// Reads what is always in memory of a row group.
    pub fn block(&mut self) -> DecodeResult<Block> {
        Ok(Block {
            row_group: self.u32()?,
            first_row: self.u64()?,
            n_rows: self.u64()?,
            bytes: self.u64()?,
            columns: (0..self.count()?).map(|_| self.column_stats()).collect::<DecodeResult<_>>()?,
        })
    }

    /// Reads what `put_stats` wrote.
    pub fn column_stats(&mut self) -> DecodeResult<ColumnStats> {
        Ok(ColumnStats {
            column: ColumnId(self.u32()?),
            exact: self.bool()?,
            null_count: self.u64()?,
            bytes: self.u64()?,
            min: self.option()?,
            max: self.option()?,
        })
    }

    /// The metadata of one column of one block.
    fn record(
        &mut self,
        shapes: &[Arc<str>],
        parts: MetadataParts,
        block: u32,
        out: &mut ColumnMetadata,
    ) -> DecodeResult<()> {
        match parts.stats {
            true => out.stats.push(self.column_stats()?),
            false => self.skip_stats()?,
        }
        match parts.chunks {
            true => out.chunks.push(self.chunk(shapes)?),
            false => self.skip_chunk()?,
        }
        out.blocks.push(block);
        Ok(())
    }

    fn skip_record(&mut self) -> DecodeResult<()> {
        self.skip_stats()?;
        self.skip_chunk()
    }

    /// As `column_stats` reads them: column; exact; NULLs and bytes; bounds.
    fn skip_stats(&mut self) -> DecodeResult<()> {
        self.skip_integers(1)?;
        self.take(1)?;
        self.skip_integers(2)?;
        self.skip_option()?;
        self.skip_option()
    }

    /// As `chunk` reads it: up to the values; codec; the rest.
    fn skip_chunk(&mut self) -> DecodeResult<()> {
        self.skip_integers(6)?;
        self.take(1)?;
        self.skip_integers(5)
    }

    /// Reads the shapes that the columns of a record share.
    pub fn shapes(&mut self) -> DecodeResult<Vec<Arc<str>>> {
        (0..self.count()?).map(|_| self.text().map(Arc::from)).collect()
    }

    /// Reads what `put_chunk` wrote; `shapes` are those of the same record.
    pub fn chunk(&mut self, shapes: &[Arc<str>]) -> DecodeResult<ColumnChunk> {
        let shape = self.u64()?;
        let known = usize::try_from(shape).ok().and_then(|shape| shapes.get(shape));
        Ok(ColumnChunk {
            shape: known.ok_or_else(|| Malformed(format!("shape {shape} of {}", shapes.len())))?.clone(),
            data_page_offset: self.u64()?,
            dictionary_page_offset: self.u64()?,
            compressed_bytes: self.u64()?,
            uncompressed_bytes: self.u64()?,
            n_values: self.u64()?,
            codec: self.byte()?,
            encodings: self.u32()?,
            offset_index: (self.u64()?, self.u32()?),
            column_index: (self.u64()?, self.u32()?),
        })
    }

    /// Reads what [`put_block_metadata`] wrote; columns out of order are malformed.
    pub fn block_metadata(&mut self) -> DecodeResult<BlockMetadata> {
        let row_group = self.u32()?;
        let bloom = match self.bloom_chunks()? {
            0 => None,
            n_chunks => {
                let bits = Bytes::copy_from_slice(self.take(n_chunks as usize * CHUNK_BYTES)?);
                Some(Bloom::from_bits(bits).expect("it was seen to be a power of two of chunks"))
            }
        };
        Ok(BlockMetadata { row_group, columns: self.columns()?, bloom })
    }

    /// 0, or a lawful number.
    fn bloom_chunks(&mut self) -> DecodeResult<u32> {
        match self.u32()? {
            n_chunks if n_chunks == 0 || n_chunks.is_power_of_two() && n_chunks <= MAX_CHUNKS => Ok(n_chunks),
            n_chunks => malformed(format!("{n_chunks} bloom chunks")),
        }
    }

    fn columns(&mut self) -> DecodeResult<Vec<(ColumnStats, ColumnChunk)>> {
        let shapes = self.shapes()?;
        let columns = (0..self.count()?)
            .map(|_| Ok((self.column_stats()?, self.chunk(&shapes)?)))
            .collect::<DecodeResult<Vec<(ColumnStats, ColumnChunk)>>>()?;
        if !columns.is_sorted_by(|(a, _), (b, _)| a.column < b.column) {
            return malformed("column metadata is not in column order");
        }
        Ok(columns)
    }

    /// Reads what [`put_commit`] wrote.
    pub fn commit(&mut self) -> DecodeResult<CommitInfo> {
        Ok(CommitInfo {
            id: Uuid::from_bytes(self.array()?),
            version: Version(self.u64()?),
            kind: match self.byte()? {
                1 => CommitKind::Delivery,
                2 => CommitKind::Compaction,
                3 => CommitKind::Attach,
                4 => CommitKind::Restore,
                kind => return malformed(format!("commit kind {kind} is not known")),
            },
            at_ms: self.i64()?,
            cursor: if self.bool()? { Some(self.cursor()?) } else { None },
            added: self.files()?,
            removed: (0..self.count()?).map(|_| self.u64().map(FileId)).collect::<DecodeResult<_>>()?,
            deletion_vectors: self.dead()?,
        })
    }

    /// Reads what [`put_version`] wrote.
    pub fn version(&mut self) -> DecodeResult<TableVersion> {
        Ok(TableVersion {
            version: Version(self.u64()?),
            committed_ms: self.i64()?,
            cursor: self.cursor()?,
            files: self.files()?.into_iter().collect(),
            deletion_vectors: Arc::new(self.dead()?.into_iter().collect::<HashMap<_, _>>()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::any_block_metadata;

    proptest! {
        #[test]
        fn block_metadata_come_back(block_metadata in any_block_metadata(6), hour: i64) {
            let bytes = encode_block_metadata(TableId(3), hour, FileId(300), &block_metadata);
            let back = decode_block_metadata(&bytes, FORMAT).unwrap();
            prop_assert_eq!((back.table, back.hour, back.file), (TableId(3), hour, FileId(300)));
            prop_assert_eq!(format!("{:?}", back.block_metadata), format!("{block_metadata:?}"));
            let places = locate_block_metadata(&bytes, FORMAT).unwrap();
            let block = BlockRef { file: FileId(300), row_group: block_metadata.row_group };
            prop_assert_eq!((places.table, places.hour, places.block), (TableId(3), hour, block));
            let bits = &bytes[places.bloom_at as usize..places.columns_at as usize];
            prop_assert_eq!(bits, block_metadata.bloom.as_ref().map_or(&[][..], |bloom| bloom.bits()));
            let columns = decode_columns(&bytes[places.columns_at as usize..], FORMAT).unwrap();
            prop_assert_eq!(format!("{columns:?}"), format!("{:?}", block_metadata.columns));
            let one = |stats| MetadataParts { stats, chunks: !stats };
            for parts in [MetadataParts::BOTH, one(true), one(false)] {
                let some: Vec<_> = columns.iter().step_by(2).collect();
                let is_wanted = |id| some.iter().any(|(stats, _)| stats.column == id);
                let mut read = BTreeMap::new();
                read_columns(&bytes[places.columns_at as usize..], FORMAT, parts, 7, is_wanted, &mut read).unwrap();
                prop_assert_eq!(read.len(), some.len());
                for ((stats, chunk), (column, read)) in some.into_iter().zip(read) {
                    prop_assert_eq!((stats.column, read.blocks), (column, vec![7]));
                    prop_assert_eq!(format!("{:?}", read.stats), format!("{:?}", Vec::from_iter(parts.stats.then_some(stats))));
                    prop_assert_eq!(read.chunks, Vec::from_iter(parts.chunks.then_some(chunk.clone())));
                }
            }
            let column_bytes: u64 = block_metadata.columns.iter().map(column_bytes).sum();
            prop_assert_eq!(u64::from(places.column_bytes), column_bytes);
            for len in 0..bytes.len() {
                prop_assert!(decode_block_metadata(&bytes[..len], FORMAT).is_err(), "cut at {}", len);
            }
        }
    }
}
