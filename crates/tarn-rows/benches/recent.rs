//! What does a change cost until readers see it? Batches applied to a table over the memory engine, with and without a
//! snapshot that somebody holds (then the bitmaps of live rows are copied), and what the first reader afterwards pays.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tarn_rows::{MemoryEngine, Table};
use tarn_types::{
    BatchBuilder, Column, ColumnId, DataType, Effects, Entry, KeyPart, ManualClock, SeqNo, TableId, TableOptions,
    TableSchema, TabletId, Value, encode_cells, encode_key,
};

/// Rows that are there before, and keys that are changed.
const ROWS: i64 = 20_000;

/// All of them are in one.
const TABLET: TabletId = TabletId(1);

fn schema() -> Arc<TableSchema> {
    let column = |id, name: &str, data_type| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        data_type,
        nullable: id > 1,
        default: None,
    };
    Arc::new(TableSchema {
        id: TableId(1),
        name: "t".to_owned(),
        columns: vec![
            column(1, "id", DataType::Int64),
            column(2, "v", DataType::Int64),
            column(3, "s", DataType::Text),
        ],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TABLET,
        options: TableOptions::default(),
    })
}

/// One batch of plain rows.
fn batch(schema: &TableSchema, ids: impl IntoIterator<Item = i64>) -> Entry {
    let row = |id: i64| [Value::Int64(id), Value::Int64(id * 3), Value::Text(format!("what was said of {id}"))];
    let mut builder = BatchBuilder::new(schema);
    for id in ids {
        let key = encode_key(schema, &[Value::Int64(id)]).expect("a key");
        builder.put(&key, &encode_cells(schema, &row(id)).expect("cells"), None);
    }
    Entry::Effects(Effects::of_rows(&builder.finish()).expect("plain rows"))
}

fn filled(schema: &Arc<TableSchema>) -> Table {
    let table = Table::open(Arc::new(MemoryEngine::new()), Arc::clone(schema), Arc::new(ManualClock::new(0)));
    let table = table.expect("an empty table");
    table.finish_replay().expect("nothing to replay");
    table.apply(TABLET, SeqNo(1), &batch(schema, 0..ROWS)).expect("its first rows");
    table
}

fn publish(criterion: &mut Criterion) {
    let schema = schema();
    let mut group = criterion.benchmark_group("recent");
    for n_rows in [1, 100, 10_000] {
        let changes = batch(&schema, (0..n_rows).map(|n| n * 7_919 % ROWS));
        group.throughput(Throughput::Elements(n_rows as u64));
        for held in [false, true] {
            let name = if held { "apply under a snapshot" } else { "apply" };
            group.bench_function(BenchmarkId::new(name, n_rows), |b| {
                let before = || {
                    let table = filled(&schema);
                    let snapshot = held.then(|| table.snapshot().expect("a snapshot"));
                    (table, snapshot)
                };
                let apply = |(table, snapshot): (Table, _)| {
                    table.apply(TABLET, SeqNo(2), black_box(&changes)).expect("changes");
                    (table, snapshot)
                };
                b.iter_batched(before, apply, BatchSize::LargeInput);
            });
        }
    }
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("first read", |b| {
        let read = |table: Table| {
            let rows = table.snapshot().and_then(|snapshot| snapshot.recent(None, false)).expect("recent rows");
            (rows, table)
        };
        b.iter_batched(|| filled(&schema), read, BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group!(benches, publish);
criterion_main!(benches);
