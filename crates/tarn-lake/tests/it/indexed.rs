//! What is kept of each block beside the commit log is what its file says and its rows hold, from delivery on and after
//! compaction.

use std::collections::BTreeSet;

use bytes::Bytes;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::file::metadata::ParquetMetaDataReader;

use tarn_lake::Options;
use tarn_metastore::{
    BlockMetadataRequest, MetadataByColumn, Probe, TableVersion, hour_blocks, token_hash, tokens, value_hash,
};
use tarn_types::{ColumnId, DataType, SEQNO_ID, TableSchema, TokenColumns, Value};

use crate::test_data::{Event, events};
use crate::world::{LakeHarness, small};

fn indexed() -> TableSchema {
    let mut table = events();
    table.options.indexing.tokens = TokenColumns::Some(vec![ColumnId(4)]);
    table.options.indexing.bloom = vec![ColumnId(1), ColumnId(2)];
    table
}

async fn all_block_metadata(world: &LakeHarness, version: &TableVersion) -> MetadataByColumn {
    let hours = hour_blocks(&version.files);
    let wanted = BlockMetadataRequest { hours, columns: None, stats: true, chunks: true, blooms: true };
    world.metastore.inner.block_metadata(world.table.id, wanted).await.unwrap()
}

/// Columns are where the footer says, their bounds those of the block, and every key of every row is in its block's
/// filter.
async fn check(world: &LakeHarness, with_blooms: bool) {
    let version = world.latest().await;
    let block_metadata = all_block_metadata(world, &version).await;
    let ids: Vec<_> = block_metadata.columns.iter().map(|column| column.column).collect();
    assert_eq!(ids, [ColumnId(1), ColumnId(2), ColumnId(3), ColumnId(4), SEQNO_ID]);
    let mut at = 0;
    for file in &version.files {
        let bytes: Bytes = world.store.inner.get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap();
        let footer = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
        let rows = world.rows_of(file).await;
        for block in &file.blocks {
            for (idx, column) in block_metadata.columns.iter().enumerate() {
                assert_eq!(column.blocks[at], at as u32);
                match block.columns.get(idx) {
                    Some(stats) => assert_eq!(column.stats[at], *stats),
                    None => assert_eq!((column.column, &column.stats[at].min), (SEQNO_ID, &None)),
                }
                let (chunk, of) = (&column.chunks[at], footer.row_group(block.row_group as usize).column(idx));
                let range = (chunk.dictionary_page_offset.max(chunk.data_page_offset), chunk.compressed_bytes);
                assert_eq!(range.1, of.compressed_size() as u64);
                assert_eq!(chunk.data_page_offset, of.data_page_offset() as u64);
                assert_eq!(chunk.dictionary_page_offset, of.dictionary_page_offset().unwrap_or(0) as u64);
                assert_eq!(chunk.n_values, block.n_rows);
                assert_eq!(chunk.codec, of.compression_codec() as u8);
                assert_eq!(chunk.offset_index.0, of.offset_index_offset().unwrap() as u64);
                assert_eq!(chunk.column_index.1, of.column_index_length().unwrap() as u32);
            }
            assert_eq!(&*block_metadata.columns[0].chunks[at].shape, "required byte_array c (STRING)");
            assert_eq!(&*block_metadata.columns[2].chunks[at].shape, "optional double c");
            let rows = &rows[block.first_row as usize..][..block.n_rows as usize];
            match with_blooms {
                true => {
                    let (of, bloom) = &block_metadata.blooms[at];
                    assert_eq!(*of, at as u32);
                    assert!(rows.iter().flat_map(keys).all(|key| bloom.may_contain(key)));
                }
                false => assert!(block_metadata.blooms.is_empty()),
            }
            at += 1;
        }
    }
    assert!(block_metadata.columns.iter().all(|column| column.blocks.len() == at));
}

fn keys(row: &Event) -> Vec<tarn_metastore::Hash> {
    let mut keys = vec![
        value_hash(ColumnId(1), &DataType::Text, &Value::Text(row.device.clone())).unwrap(),
        value_hash(ColumnId(2), &DataType::Int64, &Value::Int64(row.at)).unwrap(),
    ];
    let mut scratch = String::new();
    let mut tokens = tokens(row.note.as_deref().unwrap_or(""), &mut scratch);
    while let Some(token) = tokens.next_token() {
        keys.push(token_hash(token));
    }
    keys
}

#[tokio::test]
async fn block_metadata_come_with_every_commit() {
    let _scenario = fail::FailScenario::setup();
    for (table, with_blooms) in [(events(), false), (indexed(), true)] {
        let world = LakeHarness::of(table, small()).await;
        for round in 0..3 {
            (0..9).for_each(|at| world.hot.put(["a", "b"][at as usize % 2], at * 10 + round));
            world.hot.delete("a", 0);
            world.deliver().await;
            check(&world, with_blooms).await;
        }
        while world.compact_fully().await.is_some() {
            check(&world, with_blooms).await;
        }
        world.check().await;
    }
}

#[tokio::test]
async fn a_search_by_key_keeps_the_blocks_that_have_it() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::of(indexed(), Options { row_group_rows: 50, ..Options::default() }).await;
    (0..1000).for_each(|at| world.hot.put("a", at));
    world.deliver().await;
    let version = world.latest().await;
    let at = |v| value_hash(ColumnId(2), &DataType::Int64, &Value::Int64(v)).unwrap();
    let probe = Probe { hours: hour_blocks(&version.files), clauses: vec![vec![vec![at(3)], vec![at(997)]]] };
    let probed = world.metastore.inner.probe(world.table.id, probe).await.unwrap();
    let kept: BTreeSet<_> = probed.kept.iter().collect();
    // Keys descend: 997 is in the first block, 3 in the last.
    assert!(kept.contains(&0) && kept.contains(&19) && kept.len() < 6, "{kept:?}");
    assert_eq!(probed.without_bloom, 0);
}
