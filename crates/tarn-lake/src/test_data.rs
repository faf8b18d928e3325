//! Tables, rows, and a hot side for the tests of this crate.

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};

use tarn_types::{Column, ColumnId, DataType, KeyPart, TableId, TableOptions, TableSchema, TabletId};

/// `events (device TEXT, at BIGINT, reading DOUBLE, note TEXT)`, key (device, at DESC).
pub fn events() -> TableSchema {
    let column = |id, name: &str, data_type, nullable| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        data_type,
        nullable,
        default: None,
    };
    TableSchema {
        id: TableId(1),
        name: "events".to_owned(),
        columns: vec![
            column(1, "device", DataType::Text, false),
            column(2, "at", DataType::Int64, false),
            column(3, "reading", DataType::Float64, true),
            column(4, "note", DataType::Text, true),
        ],
        key: vec![KeyPart { column_idx: 0, descending: false }, KeyPart { column_idx: 1, descending: true }],
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions::default(),
    }
}

/// A row of [`events`], and its `__seqno`.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub device: String,
    pub at: i64,
    pub reading: Option<f64>,
    pub note: Option<String>,
    pub seqno: i64,
}

/// Some readings and notes are NULL, some notes are too long for exact bounds.
pub fn event(device: &str, at: i64, seqno: i64) -> Event {
    let note = match seqno % 5 {
        0 => None,
        1 => Some(format!("{}{seqno}", "long ".repeat(20))),
        _ => Some(format!("note {seqno}")),
    };
    Event { device: device.to_owned(), at, reading: (at % 3 != 0).then_some(at as f64 / 4.0), note, seqno }
}

/// The rows as arrays, in the order in which they are given.
pub fn batch(table: &TableSchema, rows: &[Event]) -> RecordBatch {
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.device))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.at))),
        Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.reading))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.note.as_ref()))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.seqno))),
    ];
    RecordBatch::try_new(table.arrow_with_seqno(), columns).unwrap()
}
