//! Any bytes as a key: an error or parts that encode to the same bytes, for ascending and descending columns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tarn_types::{
    Column, ColumnId, DataType, KeyPart, TABLE_PREFIX_BYTES, TableId, TableOptions, TableSchema, TabletId, decode_key,
    encode_key,
};

fuzz_target!(|input: (bool, &[u8])| {
    let (descending, bytes) = input;
    let types = [
        DataType::Text,
        DataType::Int64,
        DataType::Float64,
        DataType::Bytes,
        DataType::Decimal { precision: 38, scale: 4 },
        DataType::Uuid,
    ];
    let column = |(id, data_type)| Column {
        id: ColumnId(id),
        name: format!("c{id}"),
        data_type,
        nullable: false,
        default: None,
    };
    let schema = TableSchema {
        id: TableId(1),
        name: "t".into(),
        key: (0..types.len()).map(|column_idx| KeyPart { column_idx, descending }).collect(),
        columns: (1..).zip(types).map(column).collect(),
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions::default(),
    };
    if let Ok(parts) = decode_key(&schema, bytes) {
        let again = encode_key(&schema, &parts).expect("decoded parts encode");
        // The head, the table, is the schema's: only the columns' bytes must agree.
        assert_eq!(again[TABLE_PREFIX_BYTES..], bytes[TABLE_PREFIX_BYTES..]);
    }
});
