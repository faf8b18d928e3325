//! How do the rows look that hold more than numbers? (docs/formats/metastore-cql.md)
//!
//! Each ends with a CRC32C of what stands before it, so that a row that came back otherwise is named and not believed.

use std::sync::Arc;

use tarn_metastore::backend::{
    DecodeResult, FORMAT, Malformed, RecordReader, decode_slab, encode_slab, malformed, put_commit, put_u64,
};
use tarn_metastore::{BlockMetadata, Bloom, ColumnChunk, ColumnStats, CommitInfo};
use tarn_types::{ColumnId, FileId};

/// What is known of a block's metadata without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockMeta {
    /// Of the file.
    pub row_group: u32,
    /// 0: no filter.
    pub n_chunks: u32,
    /// Of the whole filter.
    pub bloom_crc: u32,
    /// How many columns have a record.
    pub n_columns: u32,
    /// Of all records.
    pub column_bytes: u64,
}

impl BlockMeta {
    /// What the commit's row says of the block, so that damage of its other rows is noticed.
    pub fn of(block_metadata: &BlockMetadata) -> Self {
        let bloom = block_metadata.bloom.as_ref();
        let of_column = |column: &(ColumnStats, ColumnChunk)| column_record(column).len() as u64;
        Self {
            row_group: block_metadata.row_group,
            n_chunks: bloom.map_or(0, Bloom::n_chunks),
            bloom_crc: bloom.map_or(0, |bloom| crc32c::crc32c(bloom.bits())),
            n_columns: block_metadata.columns.len() as u32,
            column_bytes: block_metadata.columns.iter().map(of_column).sum(),
        }
    }
}

/// Of the added files that have block metadata, ascending by file; blocks ascending by row group.
pub(crate) type Metas = Vec<(FileId, Vec<BlockMeta>)>;

/// Adds the CRC.
pub(crate) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Takes the CRC off, if it is right.
pub(crate) fn unsealed(bytes: &[u8]) -> DecodeResult<&[u8]> {
    match bytes.split_last_chunk::<4>() {
        Some((bytes, crc)) if crc32c::crc32c(bytes) == u32::from_le_bytes(*crc) => Ok(bytes),
        Some(_) => malformed("does not match its checksum"),
        None => malformed("is too short"),
    }
}

pub(crate) fn encode_commit(info: &CommitInfo, metas: &Metas) -> Vec<u8> {
    let mut out = vec![FORMAT];
    put_commit(&mut out, info);
    put_metas(&mut out, metas);
    sealed(out)
}

fn put_metas(out: &mut Vec<u8>, metas: &Metas) {
    put_u64(out, metas.len() as u64);
    for (file, blocks) in metas {
        put_u64(out, file.0);
        put_u64(out, blocks.len() as u64);
        blocks.iter().for_each(|block| put_meta(out, block));
    }
}

fn put_meta(out: &mut Vec<u8>, block: &BlockMeta) {
    let BlockMeta { row_group, n_chunks, bloom_crc, n_columns, column_bytes } = *block;
    for n in [row_group, n_chunks, bloom_crc, n_columns] {
        put_u64(out, n.into());
    }
    put_u64(out, column_bytes);
}

fn meta(reader: &mut RecordReader<'_>) -> DecodeResult<BlockMeta> {
    Ok(BlockMeta {
        row_group: reader.u32()?,
        n_chunks: reader.u32()?,
        bloom_crc: reader.u32()?,
        n_columns: reader.u32()?,
        column_bytes: reader.u64()?,
    })
}

pub(crate) fn decode_commit(bytes: &[u8]) -> DecodeResult<(Arc<CommitInfo>, Metas)> {
    let (format, bytes) = unsealed(bytes)?.split_first().ok_or_else(|| Malformed("is empty".to_owned()))?;
    if *format > FORMAT {
        return malformed(format!("format {format} is not known, this build writes {FORMAT}"));
    }
    let mut reader = RecordReader { bytes, format: *format };
    let info = Arc::new(reader.commit()?);
    let mut metas = Vec::new();
    for _ in 0..reader.count()? {
        let file = FileId(reader.u64()?);
        let blocks = (0..reader.count()?).map(|_| meta(&mut reader)).collect::<DecodeResult<_>>()?;
        metas.push((file, blocks));
    }
    reader.end()?;
    Ok((info, metas))
}

/// A file of the base, with its blocks and what is known of their metadata.
pub(crate) fn encode_file(file: &tarn_metastore::File, blocks: &[BlockMeta]) -> Vec<u8> {
    let mut out = vec![FORMAT];
    tarn_metastore::backend::put_file(&mut out, file);
    put_u64(&mut out, blocks.len() as u64);
    blocks.iter().for_each(|block| put_meta(&mut out, block));
    sealed(out)
}

pub(crate) fn decode_file(bytes: &[u8]) -> DecodeResult<(tarn_metastore::File, Vec<BlockMeta>)> {
    let (format, bytes) = unsealed(bytes)?.split_first().ok_or_else(|| Malformed("is empty".to_owned()))?;
    let mut reader = RecordReader { bytes, format: *format };
    let file = reader.file()?;
    let blocks = (0..reader.count()?).map(|_| meta(&mut reader)).collect::<DecodeResult<_>>()?;
    reader.end()?;
    Ok((file, blocks))
}

/// One column of one block.
pub(crate) fn column_record(record: &(ColumnStats, ColumnChunk)) -> Vec<u8> {
    sealed(encode_slab(1, &[(0, record)]).0)
}

pub(crate) fn decode_column(bytes: &[u8]) -> DecodeResult<(ColumnStats, ColumnChunk)> {
    let mut records = decode_slab(unsealed(bytes)?, 1, |_| true)?;
    records.pop().map_or_else(|| malformed("holds no record"), |(_, record)| Ok(record))
}

/// Which columns a block has: the first, then distances.
pub(crate) fn column_list(columns: impl Iterator<Item = ColumnId>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut last = 0;
    for column in columns {
        put_u64(&mut out, u64::from(column.0 - last));
        last = column.0;
    }
    sealed(out)
}

pub(crate) fn decode_column_list(bytes: &[u8]) -> DecodeResult<Vec<ColumnId>> {
    let mut reader = RecordReader { bytes: unsealed(bytes)?, format: FORMAT };
    let (mut columns, mut last) = (Vec::new(), 0u32);
    while !reader.bytes.is_empty() {
        let Some(next) = last.checked_add(reader.u32()?) else { return malformed("column ids overflow") };
        columns.push(ColumnId(next));
        last = next;
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tarn_metastore::CommitKind;
    use tarn_metastore::contract::{any_block_metadata, sample_file};

    use super::*;

    proptest! {
        #[test]
        fn rows_come_back_and_damage_is_seen(block_metadata in any_block_metadata(6), at: prop::sample::Index, bit in 0..8u8) {
            let block_metadata = BlockMetadata { row_group: 0, ..block_metadata };
            let file = sample_file(FileId(7), 3);
            let metas = vec![(file.id, vec![BlockMeta::of(&block_metadata)])];
            let info = CommitInfo {
                id: uuid::Uuid::from_u128(5),
                version: tarn_types::Version(3),
                added: vec![Arc::new(file.clone())],
                removed: vec![FileId(2)],
                deletion_vectors: Default::default(),
                cursor: None,
                kind: CommitKind::Attach,
                at_ms: -7,
            };
            let payload = encode_commit(&info, &metas);
            let (back, back_metas) = decode_commit(&payload).unwrap();
            prop_assert_eq!((&*back, &back_metas), (&info, &metas));
            let mut damaged = payload;
            let byte = at.index(damaged.len());
            damaged[byte] ^= 1 << bit;
            prop_assert!(decode_commit(&damaged).is_err());

            let row = encode_file(&file, &metas[0].1);
            prop_assert_eq!(decode_file(&row).unwrap(), (file, metas[0].1.clone()));
            let ids: Vec<_> = block_metadata.columns.iter().map(|(stats, _)| stats.column).collect();
            prop_assert_eq!(decode_column_list(&column_list(ids.iter().copied())).unwrap(), ids);
            for column in &block_metadata.columns {
                let record = column_record(column);
                prop_assert_eq!(format!("{:?}", decode_column(&record).unwrap()), format!("{column:?}"));
                prop_assert!(decode_column(&record[..record.len() - 1]).is_err());
            }
        }
    }
}
