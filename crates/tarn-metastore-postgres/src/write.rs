//! Which rows does a new block's detail become? In the transaction of the commit that adds its file.

use tarn_metastore::backend::{column_bytes, put_block_metadata};
use tarn_metastore::{BlockMetadata, Bloom, CHUNK_BYTES};
use tarn_types::{FileId, TableId};

use crate::bytes::{encode_bloom, seal};
use crate::layout::Layout;
use crate::pool::{FlightStatement, params};

/// Bytes of one statement, about: more are several.
const BATCH_BYTES: usize = 4 << 20;

/// What is kept of a block.
#[derive(Debug, Clone)]
pub(crate) struct NewBlock {
    /// Of the block's file.
    pub hour: i64,
    pub file: FileId,
    pub block_metadata: BlockMetadata,
}

impl NewBlock {
    fn bytes(&self) -> usize {
        block_metadata_bytes(&self.block_metadata)
    }
}

/// Bytes of a block's metadata as it is stored, about.
pub(crate) fn block_metadata_bytes(block_metadata: &BlockMetadata) -> usize {
    let bloom = block_metadata.bloom.as_ref().map_or(0, |bloom| bloom.bits().len());
    bloom + block_metadata.columns.iter().map(column_bytes).sum::<u64>() as usize
}

/// Statements that write the blocks to where the layout wants them. Blocks that are there already stay as they are.
pub(crate) fn write_steps(table: TableId, blocks: &[NewBlock], layout: Layout) -> Vec<FlightStatement> {
    let mut steps = Vec::new();
    for batch in batches(blocks) {
        if layout.writes_second {
            steps.push(loose_step(table, batch));
        }
        if layout.writes_first {
            steps.extend(first_steps(table, batch));
        }
    }
    steps
}

fn batches(blocks: &[NewBlock]) -> Vec<&[NewBlock]> {
    let (mut batches, mut start, mut n_bytes) = (Vec::new(), 0, 0);
    for (at, block) in blocks.iter().enumerate() {
        n_bytes += block.bytes();
        if at > start && n_bytes > BATCH_BYTES {
            batches.push(&blocks[start..at]);
            (start, n_bytes) = (at, block.bytes());
        }
    }
    batches.extend((start < blocks.len()).then(|| &blocks[start..]));
    batches
}

/// The columns as in a block metadata record: the block's row group and an empty filter in front.
pub(crate) fn encode_columns(block_metadata: &BlockMetadata) -> Vec<u8> {
    let mut out = Vec::new();
    let columns =
        BlockMetadata { row_group: block_metadata.row_group, columns: block_metadata.columns.clone(), bloom: None };
    put_block_metadata(&mut out, &columns);
    seal(out)
}

pub(crate) fn loose_step(table: TableId, blocks: &[NewBlock]) -> FlightStatement {
    let (mut hours, mut files, mut row_groups, mut n_chunks) = (vec![], vec![], vec![], vec![]);
    let (mut blooms, mut columns, mut sizes) = (vec![], vec![], vec![]);
    for NewBlock { hour, file, block_metadata } in blocks {
        hours.push(*hour);
        files.push(file.0 as i64);
        row_groups.push(i64::from(block_metadata.row_group));
        n_chunks.push(block_metadata.bloom.as_ref().map_or(0, Bloom::n_chunks) as i32);
        blooms.push(block_metadata.bloom.as_ref().map(encode_bloom));
        columns.push(encode_columns(block_metadata));
        sizes.push(block_metadata.columns.iter().map(column_bytes).sum::<u64>() as i64);
    }
    let insert = "INSERT INTO loose (table_id, hour, file_id, row_group, n_chunks, bloom, columns, column_bytes)
        SELECT $1, * FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int4[], $6::bytea[], $7::bytea[], $8::int8[])
        ON CONFLICT DO NOTHING";
    FlightStatement::Query(
        insert,
        params![i64::from(table.0), hours, files, row_groups, n_chunks, blooms, columns, sizes],
    )
}

/// Schema 1: a row for each chunk, a row for each column.
fn first_steps(table: TableId, blocks: &[NewBlock]) -> Vec<FlightStatement> {
    let id = i64::from(table.0);
    let mut of_blocks = (vec![], vec![], vec![], vec![]);
    let mut of_chunks = (vec![], vec![], vec![], vec![], vec![]);
    let mut of_columns = (vec![], vec![], vec![], vec![], vec![]);
    for NewBlock { hour, file, block_metadata } in blocks {
        let (file, row_group) = (file.0 as i64, i64::from(block_metadata.row_group));
        of_blocks.0.push(*hour);
        of_blocks.1.push(file);
        of_blocks.2.push(row_group);
        of_blocks.3.push(block_metadata.bloom.as_ref().map_or(0, Bloom::n_chunks) as i32);
        let bits = block_metadata.bloom.iter().flat_map(|bloom| bloom.bits().chunks_exact(CHUNK_BYTES));
        for (chunk, bits) in (0i32..).zip(bits) {
            of_chunks.0.push(*hour);
            of_chunks.1.push(chunk);
            of_chunks.2.push(file);
            of_chunks.3.push(row_group);
            of_chunks.4.push(seal(bits.to_vec()));
        }
        for column in &block_metadata.columns {
            let one = BlockMetadata { row_group: block_metadata.row_group, columns: vec![column.clone()], bloom: None };
            of_columns.0.push(*hour);
            of_columns.1.push(i64::from(column.0.column.0));
            of_columns.2.push(file);
            of_columns.3.push(row_group);
            of_columns.4.push(encode_columns(&one));
        }
    }
    let mut steps = vec![FlightStatement::Query(
        "INSERT INTO block_details (table_id, hour, file_id, row_group, n_chunks)
            SELECT $1, * FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int4[]) ON CONFLICT DO NOTHING",
        params![id, of_blocks.0, of_blocks.1, of_blocks.2, of_blocks.3],
    )];
    steps.push(FlightStatement::Query(
        "INSERT INTO bloom_chunks (table_id, hour, chunk, file_id, row_group, bits)
            SELECT $1, * FROM unnest($2::int8[], $3::int4[], $4::int8[], $5::int8[], $6::bytea[]) ON CONFLICT DO NOTHING",
        params![id, of_chunks.0, of_chunks.1, of_chunks.2, of_chunks.3, of_chunks.4],
    ));
    steps.push(FlightStatement::Query(
        "INSERT INTO block_columns (table_id, hour, column_id, file_id, row_group, record)
            SELECT $1, * FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::bytea[]) ON CONFLICT DO NOTHING",
        params![id, of_columns.0, of_columns.1, of_columns.2, of_columns.3, of_columns.4],
    ));
    steps
}
