//! How long does it take to leave out blocks? By bounds in memory, of 50,000 files; and one key against blooms' chunks.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tarn_metastore::prune::{Operator, Predicate, prune};
use tarn_metastore::{Block, Bloom, BloomBuilder, ColumnStats, DEFAULT_CHUNKS, File, Hash, TableVersion, token_hash};
use tarn_types::{ColumnId, FileId, Value, Version};

const FILES: u64 = 50_000;

/// Keys of one block's filter: as many as leave one false positive in a thousand.
const KEYS: u64 = 120_000;

/// Files of one block and two columns: an order that rises from file to file, and one that says nothing.
fn version() -> TableVersion {
    let bounds = |column, min: i64, max: i64| ColumnStats {
        column: ColumnId(column),
        min: Some(Value::Int64(min)),
        max: Some(Value::Int64(max)),
        exact: true,
        null_count: 0,
        bytes: 8_000,
    };
    let file = |id: u64| {
        let first = id as i64 * 1_000;
        let columns = vec![bounds(1, first, first + 999), bounds(2, 0, 1_000_000)];
        Arc::new(File {
            id: FileId(id),
            path: format!("dt=2026-11-01/hr=10/{id}.parquet"),
            size_bytes: 16_000,
            n_rows: 1_000,
            hour: (id / 2_000) as i64,
            etag: None,
            blocks: vec![Block { row_group: 0, first_row: 0, n_rows: 1_000, bytes: 16_000, columns }],
            created_version: Version(1),
            sorted_by_key: true,
            note: None,
            checksums: None,
        })
    };
    TableVersion { version: Version(1), files: (0..FILES).map(file).collect(), ..TableVersion::default() }
}

fn by_bounds(criterion: &mut Criterion) {
    let version = version();
    let predicate = |column, op, value| Predicate { column: ColumnId(column), op, values: vec![Value::Int64(value)] };
    let one_file = [predicate(1, Operator::Eq, 25_000_500)];
    let range =
        [predicate(1, Operator::Ge, 1_000_000), predicate(1, Operator::Lt, 2_000_000), predicate(2, Operator::Gt, 7)];
    assert_eq!(prune(&version, &one_file).counts.files_kept, 1);
    assert_eq!(prune(&version, &range).counts.files_kept, 1_000);
    let mut group = criterion.benchmark_group("prune");
    group.throughput(Throughput::Elements(FILES));
    group.bench_function("to one file", |b| b.iter(|| prune(&version, black_box(&one_file))));
    group.bench_function("to a range", |b| b.iter(|| prune(&version, black_box(&range))));
    group.bench_function("nothing", |b| b.iter(|| prune(&version, black_box(&[]))));
    group.finish();
}

fn by_keys(criterion: &mut Criterion) {
    let mut builder = BloomBuilder::new(DEFAULT_CHUNKS);
    (0..KEYS).for_each(|n| builder.insert(Hash::of(&n.to_le_bytes())));
    let bloom: Bloom = builder.finish();
    let asked: Vec<Hash> = (0..1_024).map(|n: u64| Hash::of(&(n * 231).to_le_bytes())).collect();
    let mut group = criterion.benchmark_group("bloom");
    group.bench_function("hash of a token", |b| b.iter(|| token_hash(black_box("connection"))));
    group.throughput(Throughput::Elements(asked.len() as u64));
    group.bench_function("test", |b| {
        b.iter(|| asked.iter().filter(|hash| bloom.may_contain(black_box(**hash))).count());
    });
    group.bench_function("insert", |b| {
        let mut builder = BloomBuilder::new(DEFAULT_CHUNKS);
        b.iter(|| asked.iter().for_each(|hash| builder.insert(black_box(*hash))));
    });
    group.finish();
}

criterion_group!(benches, by_bounds, by_keys);
criterion_main!(benches);
