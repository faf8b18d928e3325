//! What a writer of the lake would say of a file's blocks beside the commit log, with some of it missing: not every
//! file has block metadata, not every block a bloom.

use parquet::file::metadata::ParquetMetaData;
use tarn_metastore::{Block, BlockMetadata, Bloom, BloomBuilder, ColumnStats, token_hash, tokens, value_hash};
use tarn_types::{FileId, SEQNO_ID, TableSchema, TokenColumns, Value};

use crate::column_chunk::column_chunk;
use crate::fixture::Row;

/// Small, so that some keys are taken for others.
const BLOOM_CHUNKS: u32 = 2;

/// What is kept of the files that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptMetadata {
    /// All bounds in memory, no block metadata.
    Bounds,
    /// The first column's bounds in memory, everything in the block metadata.
    Metadata,
    /// As `Metadata`, but of every fourth file nothing, of every third not where the change of a row is, and of every
    /// fifth block no bloom.
    SomeMetadata,
}

impl KeptMetadata {
    /// Takes from the blocks what is not kept in memory. `rows` are those of each block.
    pub fn block_metadata(
        self,
        schema: &TableSchema,
        id: FileId,
        blocks: &mut [Block],
        rows: &[&[Row]],
        footer: &ParquetMetaData,
    ) -> Vec<BlockMetadata> {
        if self == KeptMetadata::Bounds || (self == KeptMetadata::SomeMetadata && id.0.is_multiple_of(4)) {
            return vec![];
        }
        let mut block_metadata = vec![];
        for (block, rows) in blocks.iter_mut().zip(rows) {
            let group = footer.row_group(block.row_group as usize);
            let columns =
                block.columns.iter().enumerate().map(|(idx, stats)| (stats.clone(), column_chunk(group.column(idx))));
            // Files that were written long ago do not tell where the change of a row is.
            let change = (self == KeptMetadata::Metadata || !id.0.is_multiple_of(3)).then(|| {
                let unknown =
                    ColumnStats { column: SEQNO_ID, min: None, max: None, exact: false, ..block.columns[0].clone() };
                (unknown, column_chunk(group.column(schema.columns.len())))
            });
            let bloom = self == KeptMetadata::Metadata || !(id.0 + u64::from(block.row_group)).is_multiple_of(5);
            block_metadata.push(BlockMetadata {
                row_group: block.row_group,
                columns: columns.chain(change).collect(),
                bloom: bloom.then(|| bloom_of(schema, rows)),
            });
            block.columns.truncate(1);
        }
        block_metadata
    }
}

fn bloom_of(schema: &TableSchema, rows: &[Row]) -> Bloom {
    let indexing = &schema.options.indexing;
    let mut builder = BloomBuilder::new(BLOOM_CHUNKS);
    let mut scratch = String::new();
    for row in rows {
        for (value, column) in row.iter().zip(&schema.columns) {
            if indexing.bloom.contains(&column.id) {
                value_hash(column.id, &column.data_type, value).into_iter().for_each(|hash| builder.insert(hash));
            }
            let TokenColumns::Some(with_tokens) = &indexing.tokens else { continue };
            if let (Value::Text(text), true) = (value, with_tokens.contains(&column.id)) {
                let mut words = tokens(text, &mut scratch);
                while let Some(word) = words.next_token() {
                    builder.insert(token_hash(word));
                }
            }
        }
    }
    builder.finish()
}
