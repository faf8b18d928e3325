//! Tables and values for the tests of this crate.

use std::net::IpAddr;

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::concat;
use proptest::prelude::*;

use crate::data_type::{DataType, ItemType, arrow_type};
use crate::ids::{ColumnId, TableId, TabletId};
use crate::inet::Inet;
use crate::options::{Partitioning, TableOptions};
use crate::schema::{Column, KeyPart, TableSchema};
use crate::time_text::{MOST_US, Span};
use crate::value::Value;

/// `orders (customer BIGINT, id INTEGER, total NUMERIC(10,2) DEFAULT 0, note TEXT, at TIMESTAMPTZ)`, key (customer,
/// id).
pub fn orders() -> TableSchema {
    let column = |id, name: &str, data_type, nullable, default| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        data_type,
        nullable,
        default,
    };
    let key = [0, 1].map(|column_idx| KeyPart { column_idx, descending: false });
    TableSchema {
        id: TableId(1),
        name: "orders".to_owned(),
        columns: vec![
            column(1, "customer", DataType::Int64, false, None),
            column(2, "id", DataType::Int32, false, None),
            column(3, "total", DataType::Decimal { precision: 10, scale: 2 }, false, Some(Value::Decimal(0))),
            column(4, "note", DataType::Text, true, None),
            column(5, "at", DataType::TimestampTz, true, None),
        ],
        key: key.to_vec(),
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions::default(),
    }
}

/// A table of one column of each given type, all nullable but the `n_key` leading ones, which are the key.
pub fn table(types: &[DataType], n_key: usize, descending: &[bool], tablets: u32) -> TableSchema {
    let columns = types.iter().enumerate().map(|(i, data_type)| Column {
        id: ColumnId(i as u32 * 50 + 1), // so that some ids take two bytes
        name: format!("c{i}"),
        data_type: *data_type,
        nullable: i >= n_key,
        default: None,
    });
    let key = (0..n_key).map(|i| KeyPart { column_idx: i, descending: descending.get(i).copied().unwrap_or(false) });
    TableSchema {
        id: TableId(7),
        name: "t".to_owned(),
        columns: columns.collect(),
        key: key.collect(),
        n_partition_key: 1,
        first_tablet: TabletId(3),
        options: TableOptions {
            partitioning: if tablets > 1 { Partitioning::Hash } else { Partitioning::Range },
            tablets,
            ..TableOptions::default()
        },
    }
}

/// Every type there is, and arrays of some: the first 14 may be those of keys.
pub const ALL_TYPES: [DataType; 26] = [
    DataType::Bool,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Float32,
    DataType::Float64,
    DataType::Decimal { precision: 20, scale: 3 },
    DataType::Text,
    DataType::Bytes,
    DataType::Date,
    DataType::Time,
    DataType::Timestamp,
    DataType::TimestampTz,
    DataType::Uuid,
    DataType::Interval,
    DataType::Inet,
    DataType::Json,
    DataType::Jsonb,
    DataType::Array(ItemType::Interval),
    DataType::Array(ItemType::Inet),
    DataType::Array(ItemType::Bool),
    DataType::Array(ItemType::Int32),
    DataType::Array(ItemType::Float64),
    DataType::Array(ItemType::Decimal { precision: 20, scale: 3 }),
    DataType::Array(ItemType::Text),
    DataType::Array(ItemType::Uuid),
];

/// Any value of the type but NULL, with short alphabets so that prefixes and zeros meet.
pub fn value_of(data_type: DataType) -> BoxedStrategy<Value> {
    match data_type {
        DataType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        DataType::Int16 => any::<i16>().prop_map(Value::Int16).boxed(),
        DataType::Int32 => any::<i32>().prop_map(Value::Int32).boxed(),
        DataType::Int64 => prop_oneof![any::<i64>(), -2..2i64].prop_map(Value::Int64).boxed(),
        DataType::Float32 => prop_oneof![prop::num::f32::ANY, Just(0.0), Just(-0.0)].prop_map(Value::Float32).boxed(),
        DataType::Float64 => prop_oneof![prop::num::f64::ANY, Just(0.0), Just(-0.0)].prop_map(Value::Float64).boxed(),
        DataType::Decimal { precision, .. } => {
            let limit = 10i128.pow(u32::from(precision));
            (-limit + 1..limit).prop_map(Value::Decimal).boxed()
        }
        DataType::Text => "[\u{0}\u{1}ab\u{ff}]{0,5}|.{0,12}".prop_map(Value::Text).boxed(),
        DataType::Bytes => prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..6)
            .prop_map(Value::Bytes)
            .boxed(),
        DataType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        DataType::Time => (0..=86_400_000_000i64).prop_map(Value::Time).boxed(),
        DataType::Timestamp | DataType::TimestampTz => any::<i64>().prop_map(Value::Timestamp).boxed(),
        DataType::Uuid => any::<u128>().prop_map(|n| Value::Uuid(uuid::Uuid::from_u128(n).to_string())).boxed(),
        DataType::Json | DataType::Jsonb => any::<i32>().prop_map(|n| Value::Json(format!("{{\"a\": {n}}}"))).boxed(),
        DataType::Interval => (any::<i32>(), any::<i32>(), prop_oneof![-MOST_US..=MOST_US, -2..2i64])
            .prop_map(|(months, days, us)| Value::Interval(Span { months, days, us }))
            .boxed(),
        DataType::Inet => inet().prop_map(Value::Inet).boxed(),
        DataType::Array(item) => {
            let item = prop_oneof![4 => value_of(item.data_type()), 1 => Just(Value::Null)];
            prop::collection::vec(item, 0..4).prop_map(Value::Array).boxed()
        }
    }
}

/// Any address, with few bits, so that networks meet.
pub fn inet() -> impl Strategy<Value = Inet> {
    let v4 = prop_oneof![any::<u32>(), (0..8_u32, 0..32_u32).prop_map(|(bits, by)| bits << by)];
    let v6 = prop_oneof![any::<u128>(), (0..8_u128, 0..128_u32).prop_map(|(bits, by)| bits << by)];
    let mapped = any::<u32>().prop_map(|of| u128::from(of) | 0xffff << 32);
    prop_oneof![
        (v4, 0..=32_u8).prop_map(|(of, bits)| Inet::new(IpAddr::V4(of.into()), bits).unwrap()),
        (prop_oneof![v6, mapped], 0..=128_u8).prop_map(|(of, bits)| Inet::new(IpAddr::V6(of.into()), bits).unwrap()),
    ]
}

/// Any type with a value of it.
pub fn typed_value() -> impl Strategy<Value = (DataType, Value)> {
    prop::sample::select(ALL_TYPES.to_vec()).prop_flat_map(|data_type| (Just(data_type), value_of(data_type)))
}

/// A table with a key of one to three parts of any type, ascending or descending, some value columns, and rows of it.
pub fn table_and_rows(n_rows: usize) -> impl Strategy<Value = (TableSchema, Vec<Vec<Value>>)> {
    let types = |types: &[DataType], n| prop::collection::vec(prop::sample::select(types.to_vec()), n);
    let shape = (types(&ALL_TYPES[..14], 1..4), types(&ALL_TYPES, 0..6), any::<[bool; 3]>(), 1..4usize, 1..6u32);
    shape.prop_flat_map(move |(key, values, descending, n_partition_key, tablets)| {
        let all: Vec<DataType> = key.iter().chain(&values).copied().collect();
        let mut schema = table(&all, key.len(), &descending, tablets);
        schema.n_partition_key = n_partition_key.min(key.len());
        (Just(schema), rows_of(all, key.len(), n_rows))
    })
}

fn rows_of(types: Vec<DataType>, n_key: usize, most: usize) -> impl Strategy<Value = Vec<Vec<Value>>> {
    let cell = move |(i, data_type): (usize, &DataType)| {
        let nullable = if i < n_key { 0 } else { 1 };
        prop_oneof![3 => value_of(*data_type), nullable => Just(Value::Null)].boxed()
    };
    let row: Vec<BoxedStrategy<Value>> = types.iter().enumerate().map(cell).collect();
    prop::collection::vec(row, 0..most)
}

/// The rows in columns, in the storage schema.
pub fn batch_of(schema: &TableSchema, rows: &[Vec<Value>]) -> RecordBatch {
    let column = |i: usize| {
        let data_type = &schema.columns[i].data_type;
        let cells: Vec<ArrayRef> = rows.iter().map(|row| row[i].to_array(data_type, 1).unwrap()).collect();
        let cells: Vec<&dyn Array> = cells.iter().map(AsRef::as_ref).collect();
        if cells.is_empty() { new_empty_array(&arrow_type(data_type)) } else { concat(&cells).unwrap() }
    };
    RecordBatch::try_new(schema.arrow(), (0..schema.columns.len()).map(column).collect()).unwrap()
}

/// The key parts of a row, in key order.
pub fn key_of(schema: &TableSchema, row: &[Value]) -> Vec<Value> {
    schema.key.iter().map(|part| row[part.column_idx].clone()).collect()
}

/// The row as it comes back: a key has one zero and one NaN.
pub fn same_row(schema: &TableSchema, a: &[Value], b: &[Value]) -> bool {
    a.len() == schema.columns.len() && a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.cmp_same_type(b).is_eq())
}

/// Two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Is the hexadecimal text in the document, in whatever lines and groups?
pub fn documented(document: &str, hex: &str) -> bool {
    document.replace([' ', '\n'], "").contains(hex)
}
