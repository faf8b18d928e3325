//! What do tablets bring to those who write? The same rows applied to RocksDB as entries of one tablet, which come one
//! after another, and of four, which are applied beside each other, each by a thread of its own, as their writers do.
//! The time of the former by that of the latter is `apply_speedup` (docs/benchmarks.md).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tarn_rows::{RocksEngine, RocksOptions, Table};
use tarn_types::{
    BatchBuilder, Column, ColumnId, DataType, Effects, Entry, KeyPart, ManualClock, Partitioning, SeqNo, TableId,
    TableOptions, TableSchema, TabletId, TabletMap, Value, encode_cells, encode_key,
};

const ROWS: i64 = 200_000;

const ROWS_OF_AN_ENTRY: usize = 500;

fn schema(tablets: u32) -> Arc<TableSchema> {
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
        first_tablet: TabletId(1),
        options: TableOptions { partitioning: Partitioning::Hash, tablets, ..TableOptions::default() },
    })
}

/// The log of each tablet.
fn logs(schema: &TableSchema) -> Vec<(TabletId, Vec<Entry>)> {
    let map = TabletMap::initial(schema);
    let mut rows: Vec<(TabletId, Vec<[Value; 3]>)> = map.ids().map(|tablet| (tablet, Vec::new())).collect();
    for id in 0..ROWS {
        let row = [Value::Int64(id), Value::Int64(id * 3), Value::Text(format!("what was said of {id}"))];
        let tablet = map.tablet_of(&encode_key(schema, &row[..1]).expect("a key"));
        rows.iter_mut().filter(|(of, _)| *of == tablet).for_each(|(_, rows)| rows.push(row.clone()));
    }
    let entry = |rows: &[[Value; 3]]| {
        let mut builder = BatchBuilder::new(schema);
        for row in rows {
            let key = encode_key(schema, &row[..1]).expect("a key");
            builder.put(&key, &encode_cells(schema, row).expect("cells"), None);
        }
        Entry::Effects(Effects::of_rows(&builder.finish()).expect("plain rows"))
    };
    rows.into_iter().map(|(tablet, rows)| (tablet, rows.chunks(ROWS_OF_AN_ENTRY).map(entry).collect())).collect()
}

/// How long it takes until all is applied, to an empty table.
fn applied(schema: &Arc<TableSchema>, logs: &[(TabletId, Vec<Entry>)]) -> Duration {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = Arc::new(RocksEngine::open(dir.path(), &RocksOptions::default()).expect("an engine"));
    let table = Table::open(engine, Arc::clone(schema), Arc::new(ManualClock::new(0))).expect("an empty table");
    table.finish_replay().expect("nothing to replay");
    let began = Instant::now();
    thread::scope(|scope| {
        for (tablet, log) in logs {
            let table = &table;
            scope.spawn(move || {
                for (seqno, entry) in (1..).map(SeqNo).zip(log) {
                    table.apply(*tablet, seqno, entry).expect("applied");
                }
            });
        }
    });
    began.elapsed()
}

fn apply(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("apply");
    group.sample_size(10).throughput(Throughput::Elements(ROWS as u64));
    for (name, tablets) in [("one tablet", 1), ("four tablets", 4)] {
        let schema = schema(tablets);
        let logs = logs(&schema);
        group.bench_function(name, |b| b.iter_custom(|n| (0..n).map(|_| applied(&schema, &logs)).sum()));
    }
    group.finish();
}

criterion_group!(benches, apply);
criterion_main!(benches);
