//! What is kept of a block that is too much to keep in memory: its bloom filter, and where its columns lie and between
//! which bounds?
//!
//! Block metadata comes with the commit that adds the file, never changes, and goes when no kept version has the file.
//! It is asked for many blocks at a time, by hour, because that is how stores keep them together; and column by column,
//! because a query reads ten columns of 20,000.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_types::{ColumnId, FileId};

use crate::{Bloom, ColumnStats, File};

/// One row group of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockRef {
    /// The file that the row group is in.
    pub file: FileId,
    /// Its position in the file, from 0.
    pub row_group: u32,
}

/// Blocks of one hour, ascending, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HourBlocks {
    /// That of the blocks' files. A block that is asked for under another hour is not found.
    pub hour: i64,
    /// Ascending, each once.
    pub blocks: Vec<BlockRef>,
}

/// All blocks of these files, by hour.
pub fn hour_blocks<'a>(files: impl IntoIterator<Item = &'a Arc<File>>) -> Vec<HourBlocks> {
    let mut hours: BTreeMap<i64, Vec<BlockRef>> = BTreeMap::new();
    for file in files {
        let blocks = file.blocks.iter().map(|block| BlockRef { file: file.id, row_group: block.row_group });
        hours.entry(file.hour).or_default().extend(blocks);
    }
    let sorted = hours.into_iter().map(|(hour, mut blocks)| {
        blocks.sort_unstable();
        HourBlocks { hour, blocks }
    });
    sorted.filter(|of_hour| !of_hour.blocks.is_empty()).collect()
}

/// Where one column of one block lies in its file: what a Parquet reader needs of the footer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnChunk {
    /// Parquet's type of the column under the placeholder name `c`, in its schema language: `optional int64 c
    /// (TIMESTAMP(MICROS,true))`. A list is a group, of one leaf.
    pub shape: Arc<str>,
    /// In the file, where the column's first data page begins.
    pub data_page_offset: u64,
    /// 0: no dictionary.
    pub dictionary_page_offset: u64,
    /// On storage, pages and their headers together.
    pub compressed_bytes: u64,
    /// What these pages take once they are decompressed.
    pub uncompressed_bytes: u64,
    /// NULLs among them; of a list, its items.
    pub n_values: u64,
    /// Parquet's code of the codec, and a bit per encoding.
    pub codec: u8,
    /// A bit for each of Parquet's codes of encodings that the pages use.
    pub encodings: u32,
    /// Offset and bytes; (0, 0): the file has none.
    pub offset_index: (u64, u32),
    /// As `offset_index`: Parquet's bounds of the pages.
    pub column_index: (u64, u32),
}

/// What is kept of one block beside the commit log.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockMetadata {
    /// Of the file with which it is committed, from 0.
    pub row_group: u32,
    /// Ascending by column.
    pub columns: Vec<(ColumnStats, ColumnChunk)>,
    /// `None`: every key may be in the block.
    pub bloom: Option<Bloom>,
}

impl BlockMetadata {
    /// The bounds and the place of one column; `None` when nothing is kept of it. A binary search.
    pub fn column(&self, id: ColumnId) -> Option<&(ColumnStats, ColumnChunk)> {
        self.columns.binary_search_by_key(&id, |(stats, _)| stats.column).ok().map(|idx| &self.columns[idx])
    }
}

/// Which metadata of which blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockMetadataRequest {
    /// The blocks, hour by hour. Answers count them through all hours, in this order.
    pub hours: Vec<HourBlocks>,
    /// `None`: all columns there are (copying, checking).
    pub columns: Option<Vec<ColumnId>>,
    /// Whether bounds are wanted.
    pub stats: bool,
    /// Whether the places of the columns are wanted.
    pub chunks: bool,
    /// Whether whole filters are wanted: up to 32 MiB a block. A search asks [`crate::Metastore::probe`] instead.
    pub blooms: bool,
}

/// Block metadata column by column. `block` in each part counts the wanted blocks in their order, through all hours.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct MetadataByColumn {
    /// One for each wanted column, in their order; when all are wanted, those that there are, ascending. None when
    /// neither `stats` nor `chunks` were wanted.
    pub columns: Vec<ColumnMetadata>,
    /// Ascending; a block that is missing has none.
    pub blooms: Vec<(u32, Bloom)>,
    /// Read from the store for this, before any cache of ours.
    pub bytes_read: u64,
}

/// What is kept of one column, in those of the wanted blocks that have it.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct ColumnMetadata {
    /// The column by its id, which no other column of the table ever has.
    pub column: ColumnId,
    /// Ascending; a block that is missing has no metadata of this column.
    pub blocks: Vec<u32>,
    /// As many as `blocks`, or none when they were not wanted.
    pub stats: Vec<ColumnStats>,
    /// As `stats`.
    pub chunks: Vec<ColumnChunk>,
}

impl ColumnMetadata {
    fn add(&mut self, block: u32, (stats, chunk): &(ColumnStats, ColumnChunk), wanted: &BlockMetadataRequest) {
        self.blocks.push(block);
        if wanted.stats {
            self.stats.push(stats.clone());
        }
        if wanted.chunks {
            self.chunks.push(chunk.clone());
        }
    }
}

/// Answers from block metadata in memory. `find` looks a block up by hour and place; `column_bytes` says what a
/// column's record takes.
pub fn collect<'a>(
    wanted: &BlockMetadataRequest,
    find: impl Fn(i64, BlockRef) -> Option<&'a BlockMetadata>,
    column_bytes: impl Fn(&(ColumnStats, ColumnChunk)) -> u64,
) -> MetadataByColumn {
    let mut block_metadata = MetadataByColumn::default();
    let of_columns = wanted.stats || wanted.chunks;
    let mut asked: Vec<ColumnMetadata> = wanted.columns.iter().flatten().map(|id| empty(*id)).collect();
    let mut found: BTreeMap<ColumnId, ColumnMetadata> = BTreeMap::new();
    let blocks = wanted.hours.iter().flat_map(|of_hour| of_hour.blocks.iter().map(|block| (of_hour.hour, *block)));
    for (at, (hour, block)) in (0..).zip(blocks) {
        let Some(of_block) = find(hour, block) else { continue };
        if let Some(bloom) = of_block.bloom.as_ref().filter(|_| wanted.blooms) {
            block_metadata.bytes_read += bloom.bits().len() as u64;
            block_metadata.blooms.push((at, bloom.clone()));
        }
        if !of_columns {
            continue;
        }
        for column in &mut asked {
            if let Some(record) = of_block.column(column.column) {
                block_metadata.bytes_read += column_bytes(record);
                column.add(at, record, wanted);
            }
        }
        for record in of_block.columns.iter().filter(|_| wanted.columns.is_none()) {
            block_metadata.bytes_read += column_bytes(record);
            let id = record.0.column;
            found.entry(id).or_insert_with(|| empty(id)).add(at, record, wanted);
        }
    }
    if of_columns {
        block_metadata.columns = if wanted.columns.is_some() { asked } else { found.into_values().collect() };
    }
    block_metadata
}

fn empty(column: ColumnId) -> ColumnMetadata {
    ColumnMetadata { column, ..ColumnMetadata::default() }
}
