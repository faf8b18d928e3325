//! What do keys and rows cost as bytes, in and out? One batch of 8,192 rows of six columns, two of them the key.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tarn_types::{
    Column, ColumnId, DataType, KeyPart, RowDecoder, SeqNo, TableId, TableOptions, TableSchema, TabletId, Value,
    decode_key, encode_cells_columnar, encode_key, encode_keys,
};

const ROWS: usize = 8_192;

fn schema() -> TableSchema {
    let types = [
        ("id", DataType::Int64),
        ("line", DataType::Int32),
        ("price", DataType::Decimal { precision: 15, scale: 2 }),
        ("at", DataType::Timestamp),
        ("city", DataType::Text),
        ("comment", DataType::Text),
    ];
    let column = |(id, (name, data_type)): (u32, (&str, DataType))| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        data_type,
        nullable: id > 2,
        default: None,
    };
    TableSchema {
        id: TableId(1),
        name: "t".to_owned(),
        columns: (1..).zip(types).map(column).collect(),
        key: [0, 1].map(|column_idx| KeyPart { column_idx, descending: false }).to_vec(),
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions::default(),
    }
}

fn rows(schema: &TableSchema) -> RecordBatch {
    let ids = 0..ROWS as i64;
    let price = Decimal128Array::from_iter_values(ids.clone().map(|id| i128::from(id) * 137));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id / 4))),
        Arc::new(Int32Array::from_iter_values(ids.clone().map(|id| (id % 4) as i32))),
        Arc::new(price.with_precision_and_scale(15, 2).expect("small numbers")),
        Arc::new(TimestampMicrosecondArray::from_iter_values(ids.clone().map(|id| id * 1_000_003))),
        Arc::new(StringArray::from_iter_values(ids.clone().map(|id| ["Bern", "Chur", "Genève"][id as usize % 3]))),
        Arc::new(StringArray::from_iter_values(ids.map(|id| format!("what was said of row {id}")))),
    ];
    RecordBatch::try_new(schema.arrow(), columns).expect("columns of the schema")
}

fn keys(criterion: &mut Criterion) {
    let schema = schema();
    let rows = rows(&schema);
    let mut group = criterion.benchmark_group("key");
    let parts = [Value::Int64(77), Value::Int32(3)];
    group.bench_function("encode one", |b| b.iter(|| encode_key(&schema, black_box(&parts)).expect("a key")));
    let key = encode_key(&schema, &parts).expect("a key");
    group.bench_function("decode one", |b| b.iter(|| decode_key(&schema, black_box(&key)).expect("its parts")));
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("encode a batch", |b| b.iter(|| encode_keys(&schema, black_box(&rows)).expect("keys")));
    group.finish();
}

fn cells(criterion: &mut Criterion) {
    let schema = schema();
    let rows = rows(&schema);
    let keys = encode_keys(&schema, &rows).expect("keys");
    let cells = encode_cells_columnar(&schema, &rows).expect("cells");
    let decode = |projection: Option<&[usize]>| {
        let mut decoder = RowDecoder::new(&schema, projection, false);
        for (key, cells) in keys.iter().zip(cells.iter()) {
            decoder.push(key, cells, SeqNo(1)).expect("a row");
        }
        decoder.finish().expect("columns")
    };
    let mut group = criterion.benchmark_group("row");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("encode a batch", |b| {
        b.iter(|| encode_cells_columnar(&schema, black_box(&rows)).expect("cells"));
    });
    group.bench_function("decode a batch", |b| b.iter(|| decode(black_box(None))));
    group.bench_function("decode one column of a batch", |b| b.iter(|| decode(black_box(Some(&[2])))));
    group.finish();
}

criterion_group!(benches, keys, cells);
criterion_main!(benches);
