//! How do definitions, files, commits, versions and details look as bytes? (docs/formats/metastore.md)
//!
//! Decoding reads every format there was; encoding writes the newest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use roaring::RoaringBitmap;
use uuid::Uuid;

use tarn_types::{ColumnId, FileId, TableId, TableSchema, Version};

use crate::bloom::{CHUNK_BYTES, MAX_CHUNKS};
use crate::wire::{
    Decoded, Malformed, Reader, malformed, put_bitmap, put_bytes, put_cursor, put_i64, put_len, put_option, put_u64,
};
use crate::{Block, BlockDetails, Bloom, ColumnChunk, ColumnStats, CommitInfo, CommitKind, File, TableVersion};

/// What is written: 2 since blocks have details.
pub(crate) const FORMAT: u8 = 2;

/// What is kept of one block, as it stands in front of the commit that adds its file.
pub(crate) struct DetailsRecord {
    pub table: TableId,
    pub hour: i64,
    pub file: FileId,
    pub details: BlockDetails,
}

pub(crate) fn encode_details(table: TableId, hour: i64, file: FileId, details: &BlockDetails) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, table.0.into());
    put_i64(&mut out, hour);
    put_u64(&mut out, file.0);
    put_details(&mut out, details);
    out
}

pub(crate) fn decode_details(bytes: &[u8], format: u8) -> Decoded<DetailsRecord> {
    let mut reader = Reader { bytes, format };
    let record = DetailsRecord {
        table: TableId(reader.u32()?),
        hour: reader.i64()?,
        file: FileId(reader.u64()?),
        details: reader.details()?,
    };
    reader.end()?;
    Ok(record)
}

/// What one column of one block takes, about: as in a record, whose columns share their shapes.
pub(crate) fn column_bytes((stats, chunk): &(ColumnStats, ColumnChunk)) -> u64 {
    let mut out = Vec::new();
    put_stats(&mut out, stats);
    put_chunk(&mut out, chunk, 0);
    out.len() as u64
}

/// The definition as JSON: small, rare, and it grows by named fields.
pub(crate) fn put_schema(out: &mut Vec<u8>, schema: &TableSchema) {
    put_bytes(out, &serde_json::to_vec(schema).expect("a table definition has a JSON form"));
}

pub(crate) fn put_file(out: &mut Vec<u8>, file: &File) {
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
    match &file.note {
        None => out.push(0),
        Some(note) => {
            out.push(1);
            put_bytes(out, note.as_bytes());
        }
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

pub(crate) fn put_stats(out: &mut Vec<u8>, stats: &ColumnStats) {
    put_u64(out, stats.column.0.into());
    out.push(u8::from(stats.exact));
    put_u64(out, stats.null_count);
    put_u64(out, stats.bytes);
    put_option(out, stats.min.as_ref());
    put_option(out, stats.max.as_ref());
}

/// `shape`: its place among the shapes of the record.
pub(crate) fn put_chunk(out: &mut Vec<u8>, chunk: &ColumnChunk, shape: usize) {
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

pub(crate) fn put_details(out: &mut Vec<u8>, details: &BlockDetails) {
    put_u64(out, details.row_group.into());
    put_u64(out, details.bloom.as_ref().map_or(0, Bloom::n_chunks).into());
    if let Some(bloom) = &details.bloom {
        out.extend_from_slice(bloom.bits());
    }
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut shapes: Vec<&str> = Vec::new();
    for (_, chunk) in &details.columns {
        places.entry(&chunk.shape).or_insert_with(|| {
            shapes.push(&chunk.shape);
            shapes.len() - 1
        });
    }
    put_len(out, shapes.len());
    for shape in &shapes {
        put_bytes(out, shape.as_bytes());
    }
    put_len(out, details.columns.len());
    for (stats, chunk) in &details.columns {
        put_stats(out, stats);
        put_chunk(out, chunk, places[&*chunk.shape]);
    }
}

pub(crate) fn put_commit(out: &mut Vec<u8>, commit: &CommitInfo) {
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

pub(crate) fn put_version(out: &mut Vec<u8>, version: &TableVersion) {
    put_u64(out, version.version.0);
    put_i64(out, version.committed_ms);
    put_cursor(out, &version.cursor);
    put_len(out, version.files.len());
    for file in &version.files {
        put_file(out, file);
    }
    let mut dead: Vec<_> = version.deletion_vectors.iter().collect();
    dead.sort_unstable_by_key(|(file, _)| **file);
    put_len(out, dead.len());
    for (file, dead) in dead {
        put_u64(out, file.0);
        put_bitmap(out, dead);
    }
}

impl Reader<'_> {
    pub fn schema(&mut self) -> Decoded<TableSchema> {
        serde_json::from_slice(self.bytes()?).map_err(|e| Malformed(format!("table definition: {e}")))
    }

    pub fn dead(&mut self) -> Decoded<BTreeMap<FileId, Arc<RoaringBitmap>>> {
        let mut dead = BTreeMap::new();
        for _ in 0..self.len()? {
            let file = FileId(self.u64()?);
            dead.insert(file, Arc::new(self.bitmap()?));
        }
        Ok(dead)
    }

    pub fn files(&mut self) -> Decoded<Vec<Arc<File>>> {
        (0..self.len()?).map(|_| self.file().map(Arc::new)).collect()
    }

    pub fn file(&mut self) -> Decoded<File> {
        Ok(File {
            id: FileId(self.u64()?),
            path: self.text()?,
            size_bytes: self.u64()?,
            n_rows: self.u64()?,
            hour: self.i64()?,
            etag: if self.bool()? { Some(self.text()?) } else { None },
            created_version: Version(self.u64()?),
            sorted_by_key: self.bool()?,
            note: if self.format >= 2 && self.bool()? { Some(self.text()?.into()) } else { None },
            blocks: (0..self.len()?).map(|_| self.block()).collect::<Decoded<_>>()?,
        })
    }

    pub fn block(&mut self) -> Decoded<Block> {
        Ok(Block {
            row_group: self.u32()?,
            first_row: self.u64()?,
            n_rows: self.u64()?,
            bytes: self.u64()?,
            columns: (0..self.len()?).map(|_| self.column_stats()).collect::<Decoded<_>>()?,
        })
    }

    pub fn column_stats(&mut self) -> Decoded<ColumnStats> {
        Ok(ColumnStats {
            column: ColumnId(self.u32()?),
            exact: self.bool()?,
            null_count: self.u64()?,
            bytes: self.u64()?,
            min: self.option()?,
            max: self.option()?,
        })
    }

    pub fn chunk(&mut self, shapes: &[Arc<str>]) -> Decoded<ColumnChunk> {
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

    pub fn details(&mut self) -> Decoded<BlockDetails> {
        let row_group = self.u32()?;
        let bloom = match self.u32()? {
            0 => None,
            n_chunks if n_chunks <= MAX_CHUNKS => {
                let bits = Bytes::copy_from_slice(self.take(n_chunks as usize * CHUNK_BYTES)?);
                let bloom = Bloom::from_bits(bits);
                Some(bloom.ok_or_else(|| Malformed(format!("{n_chunks} bloom chunks are no power of two")))?)
            }
            n_chunks => return malformed(format!("{n_chunks} bloom chunks")),
        };
        let shapes = (0..self.len()?).map(|_| self.text().map(Arc::from)).collect::<Decoded<Vec<Arc<str>>>>()?;
        let columns = (0..self.len()?)
            .map(|_| Ok((self.column_stats()?, self.chunk(&shapes)?)))
            .collect::<Decoded<Vec<(ColumnStats, ColumnChunk)>>>()?;
        if !columns.is_sorted_by(|(a, _), (b, _)| a.column < b.column) {
            return malformed("column metadata is not in column order");
        }
        Ok(BlockDetails { row_group, columns, bloom })
    }

    pub fn commit(&mut self) -> Decoded<CommitInfo> {
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
            removed: (0..self.len()?).map(|_| self.u64().map(FileId)).collect::<Decoded<_>>()?,
            deletion_vectors: self.dead()?,
        })
    }

    pub fn version(&mut self) -> Decoded<TableVersion> {
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
    use crate::contract::any_details;

    proptest! {
        #[test]
        fn details_come_back(details in any_details(6), hour: i64) {
            let bytes = encode_details(TableId(3), hour, FileId(300), &details);
            let back = decode_details(&bytes, FORMAT).unwrap();
            prop_assert_eq!((back.table, back.hour, back.file), (TableId(3), hour, FileId(300)));
            prop_assert_eq!(format!("{:?}", back.details), format!("{details:?}"));
            for len in 0..bytes.len() {
                prop_assert!(decode_details(&bytes[..len], FORMAT).is_err(), "cut at {}", len);
            }
        }
    }
}
