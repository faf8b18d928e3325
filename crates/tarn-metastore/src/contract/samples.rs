//! Which tables, files, block metadata and commits do the tests of this crate share?

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use uuid::Uuid;

use tarn_types::{
    Column, ColumnId, Cursor, DataType, FileId, Inet, KeyPart, SeqNo, Span, TableId, TableOptions, TableSchema,
    TabletId, Value, Version,
};

use crate::{
    Block, BlockMetadata, Bloom, BloomBuilder, Checksums, ColumnChunk, ColumnStats, Commit, CommitKind,
    ExpectedVersion, File, Hash, Metastore, MetastoreExt, Summing, token_hash,
};

/// In memory where there is such a place: tests open thousands of folders, and every opening syncs.
#[cfg(test)]
pub fn scratch() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// A table of two columns of floats, `k`, its key, and `v`; its ids are to be assigned.
pub fn sample_schema(name: &str) -> TableSchema {
    let column = |id, name: &str, nullable| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        data_type: DataType::Float64,
        nullable,
        default: None,
    };
    TableSchema {
        id: TableId(0),
        name: name.to_owned(),
        columns: vec![column(11, "k", false), column(12, "v", true)],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(0),
        options: TableOptions::default(),
    }
}

/// One block, unless there are no rows.
pub fn sample_file(id: FileId, n_rows: u64) -> File {
    let stats = ColumnStats {
        column: ColumnId(1),
        min: Some(Value::Float64(0.1 + id.0 as f64)),
        max: None,
        exact: true,
        null_count: 1,
        bytes: 7,
    };
    let block = Block { row_group: 0, first_row: 0, n_rows, bytes: 9, columns: vec![stats] };
    File {
        id,
        path: format!("f{id}"),
        size_bytes: 10 * n_rows,
        n_rows,
        hour: -1,
        etag: Some("e".into()),
        blocks: if n_rows == 0 { vec![] } else { vec![block] },
        created_version: Version(0),
        sorted_by_key: true,
        note: None,
        checksums: Some(Arc::new(sample_checksums(10 * n_rows))),
    }
}

/// Of a file of this size, all zeros, in two pieces or fewer.
fn sample_checksums(size_bytes: u64) -> Checksums {
    let mut summing = Summing::default();
    summing.cut(size_bytes / 2);
    summing.feed(&vec![0; size_bytes as usize]);
    summing.finish()
}

/// Of a block with these keys, and two columns.
pub fn sample_block_metadata(keys: &[&str]) -> Vec<BlockMetadata> {
    let column = |id| {
        let stats = ColumnStats {
            column: ColumnId(id),
            min: Some(Value::Int64(-5)),
            max: None,
            exact: false,
            null_count: 2,
            bytes: 900,
        };
        let chunk = ColumnChunk {
            shape: "optional int64 c".into(),
            data_page_offset: 4,
            n_values: 5,
            ..ColumnChunk::default()
        };
        (stats, chunk)
    };
    vec![BlockMetadata { row_group: 0, columns: vec![column(1), column(300)], bloom: Some(sample_bloom(4, keys)) }]
}

/// A filter of this size with the hashes of these tokens.
pub fn sample_bloom(n_chunks: u32, keys: &[&str]) -> Bloom {
    let mut builder = BloomBuilder::new(n_chunks);
    keys.iter().for_each(|key| builder.insert(token_hash(key)));
    builder.finish()
}

/// With up to so many columns of every kind, and perhaps a bloom of 1 to 8 chunks.
pub fn any_block_metadata(max_columns: usize) -> impl Strategy<Value = BlockMetadata> {
    let bound = || proptest::option::of(any_value());
    let stats = (bound(), bound(), any::<bool>(), any::<u64>(), any::<u64>());
    let shape = prop_oneof![Just("optional int64 c"), Just("required byte_array c (STRING)"), Just("")];
    let index = || (any::<u64>(), any::<u32>());
    let chunk = (shape, any::<[u64; 5]>(), any::<u8>(), any::<u32>(), index(), index());
    let columns = proptest::collection::btree_map(0..100_000u32, (stats, chunk), 0..=max_columns);
    let bloom = proptest::option::of((0..4u32, vec(any::<u64>(), 0..20)));
    (any::<u32>(), columns, bloom).prop_map(|(row_group, columns, bloom)| BlockMetadata {
        row_group,
        columns: columns.into_iter().map(|(id, (stats, chunk))| any_column(ColumnId(id), stats, chunk)).collect(),
        bloom: bloom.map(|(log_chunks, keys)| {
            let mut builder = BloomBuilder::new(1 << log_chunks);
            keys.into_iter().for_each(|key| builder.insert(Hash(key)));
            builder.finish()
        }),
    })
}

/// What [`any_column`] takes for bounds: the least, the greatest, whether they are exact, NULLs, bytes.
pub type AnyStats = (Option<Value>, Option<Value>, bool, u64, u64);
/// What [`any_column`] takes for a place: shape, offsets and sizes in the order of [`ColumnChunk`], codec, encodings,
/// and both indexes.
pub type AnyChunk = (&'static str, [u64; 5], u8, u32, (u64, u32), (u64, u32));

/// A column's metadata of values of a strategy.
pub fn any_column(column: ColumnId, stats: AnyStats, chunk: AnyChunk) -> (ColumnStats, ColumnChunk) {
    let (min, max, exact, null_count, bytes) = stats;
    let (shape, numbers, codec, encodings, offset_index, column_index) = chunk;
    let [data_page_offset, dictionary_page_offset, compressed_bytes, uncompressed_bytes, n_values] = numbers;
    let chunk = ColumnChunk {
        shape: shape.into(),
        data_page_offset,
        dictionary_page_offset,
        compressed_bytes,
        uncompressed_bytes,
        n_values,
        codec,
        encodings,
        offset_index,
        column_index,
    };
    (ColumnStats { column, min, max, exact, null_count, bytes }, chunk)
}

/// A value of the strategy, the same in every run.
pub fn draw<S: Strategy>(runner: &mut TestRunner, strategy: &S) -> S::Value {
    strategy.new_tree(runner).expect("the strategy has values").current()
}

/// Values of every type, NULL, NaN, `-0` and infinity among them, but no arrays.
pub fn any_value() -> impl Strategy<Value = Value> {
    let floats = prop_oneof![Just(f64::NAN), Just(-0.0), Just(f64::INFINITY), any::<f64>()];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i16>().prop_map(Value::Int16),
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        any::<f32>().prop_map(Value::Float32),
        floats.prop_map(Value::Float64),
        any::<i128>().prop_map(Value::Decimal),
        ".*".prop_map(Value::Text),
        vec(any::<u8>(), 0..20).prop_map(Value::Bytes),
        any::<i32>().prop_map(Value::Date),
        any::<i64>().prop_map(Value::Time),
        any::<i64>().prop_map(Value::Timestamp),
        any::<(i32, i32, i64)>().prop_map(|(months, days, us)| Value::Interval(Span { months, days, us })),
        any::<(u32, bool)>().prop_map(|(of, is_v4)| Value::Inet(Inet::host(match is_v4 {
            true => Ipv4Addr::from(of).into(),
            false => Ipv4Addr::from(of).to_ipv6_mapped().into(),
        }))),
        ".*".prop_map(Value::Uuid),
        ".*".prop_map(Value::Json),
    ]
}

/// What every test of the suite runs on.
pub type Backend = Arc<dyn Metastore>;

/// An empty compaction upon this version, with an id that a test can name.
pub fn commit(id: u128, expected: u64) -> Commit {
    Commit {
        id: Uuid::from_u128(id),
        expected: ExpectedVersion::At(Version(expected)),
        add: vec![],
        block_metadata: BTreeMap::new(),
        remove: vec![],
        deletion_vectors: BTreeMap::new(),
        cursor: None,
        kind: CommitKind::Compaction,
        at_ms: 2_000 + expected as i64,
    }
}

/// A file of one row, to whatever version is latest.
pub fn append(id: u128, file: FileId) -> Commit {
    Commit { expected: ExpectedVersion::Latest, add: vec![sample_file(file, 1)], ..commit(id, 0) }
}

/// A cursor of the first tablet alone.
pub fn cursor(seqno: u64) -> Option<Cursor> {
    Some([(TabletId(1), SeqNo(seqno))].into_iter().collect())
}

/// A new table `t`, and the first of `n` file ids in a row.
pub async fn with_files(metastore: &Backend, n: u64) -> (TableId, FileId) {
    let table = metastore.create_table(sample_schema("t")).await.unwrap().id;
    (table, metastore.allocate_files(n).await.unwrap())
}

/// The table with one more column.
pub fn with_column(table: &TableSchema, name: &str) -> TableSchema {
    let column = Column { name: name.to_owned(), nullable: true, default: None, ..table.columns[0].clone() };
    let columns = table.columns.iter().cloned().chain([column]).collect();
    TableSchema { columns, ..table.clone() }
}
