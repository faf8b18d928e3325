use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use proptest::prelude::*;

use super::*;
use crate::ids::ColumnId;
use crate::schema::Column;
use crate::test_data::{batch_of, key_of, orders, same_row, table_and_rows};
use crate::{encode_cells, encode_key};

#[test]
fn a_column_added_later_is_null_whatever_its_default_and_a_dropped_one_is_passed_over() {
    let old = orders();
    let row = [Value::Int64(1), Value::Int32(2), Value::Decimal(3), Value::Text("x".into()), Value::Null];
    let key = encode_key(&old, &row[..2]).unwrap();
    let cells = encode_cells(&old, &row).unwrap();
    let mut new = old.clone();
    new.columns.remove(3);
    for (id, default) in [(9, Some(Value::Int16(7))), (10, None)] {
        let name = format!("c{id}");
        new.columns.push(Column { id: ColumnId(id), name, data_type: DataType::Int16, nullable: true, default });
    }
    let want = [Value::Int64(1), Value::Int32(2), Value::Decimal(3), Value::Null, Value::Null, Value::Null];
    assert_eq!(decode_row(&new, &key, &cells).unwrap(), want);
    let mut decoder = RowDecoder::new(&new, None, false);
    decoder.push(&key, &cells, SeqNo(1)).unwrap();
    let batch = decoder.finish().unwrap();
    for (i, value) in want.iter().enumerate() {
        assert_eq!(&Value::from_arrow(batch.column(i), 0, &new.columns[i].data_type).unwrap(), value);
    }
}

#[test]
fn a_column_that_was_added_with_a_value_has_it_in_older_rows_and_null_where_null_was_written() {
    let old = orders();
    let row = [Value::Int64(1), Value::Int32(2), Value::Decimal(3), Value::Text("x".into()), Value::Null];
    let key = encode_key(&old, &row[..2]).unwrap();
    let mut new = old.clone();
    for (id, data_type, missing) in [
        (6, DataType::Uuid, Some(Value::Uuid("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".into()))),
        (7, DataType::Text, Some(Value::Text("older".into()))),
        (8, DataType::Int16, None),
    ] {
        let column = Column { id: ColumnId(id), name: format!("c{id}"), data_type, nullable: true, default: None };
        new = new.with_column_added(column, crate::ColumnRules { missing, ..Default::default() });
    }
    new.validate().unwrap();
    let uuid = || Value::Uuid("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".into());
    let patch = crate::encode_patch(&new, &[(6, Value::Null), (7, Value::Int16(8))]).unwrap();
    let older = encode_cells(&old, &row).unwrap();
    let patched = crate::patch_cells(&older, &patch).unwrap();
    let older_values = [uuid(), Value::Text("older".into()), Value::Null];
    for (cells, values) in [(older, older_values), (patched, [uuid(), Value::Null, Value::Int16(8)])] {
        let want = [&row[..], &values].concat();
        assert_eq!(decode_row(&new, &key, &cells).unwrap(), want);
        let mut decoder = RowDecoder::new(&new, None, false);
        decoder.push(&key, &cells, SeqNo(1)).unwrap();
        let batch = decoder.finish().unwrap();
        for (i, value) in want.iter().enumerate() {
            assert_eq!(&Value::from_arrow(batch.column(i), 0, &new.columns[i].data_type).unwrap(), value);
        }
    }
}

#[test]
fn an_error_spoils_the_batch_and_only_that() {
    let mut schema = orders();
    schema.columns[2].nullable = true;
    let key = encode_key(&schema, &[Value::Int64(1), Value::Int32(2)]).unwrap();
    let mut decoder = RowDecoder::new(&schema, None, true);
    assert!(decoder.push(&key, &[1, 3, 0x40], SeqNo(1)).is_err());
    assert!(decoder.finish().is_err());
    decoder.push(&key, &[0], SeqNo(2)).unwrap();
    let batch = decoder.finish().unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns()), (1, 6));
}

#[test]
fn keys_alone_make_key_columns() {
    let schema = orders();
    let key = encode_key(&schema, &[Value::Int64(1), Value::Int32(2)]).unwrap();
    let mut decoder = RowDecoder::new(&schema, Some(&[1]), true);
    decoder.push_key(&key, SeqNo(9)).unwrap();
    let batch = decoder.finish().unwrap();
    assert_eq!(batch.schema_ref().field(1).name(), crate::SEQNO_COLUMN);
    assert_eq!(batch.column(1).as_primitive::<Int64Type>().value(0), 9);
    assert!(RowDecoder::new(&schema, Some(&[2]), false).push_key(&key, SeqNo(9)).is_err());
    let mut counting = RowDecoder::new(&schema, Some(&[]), false);
    counting.push_key(&key, SeqNo(9)).unwrap();
    assert_eq!(counting.finish().unwrap().num_rows(), 1);
}

proptest! {
    #[test]
    fn rows_come_back((schema, rows) in table_and_rows(8), projection in prop::collection::vec(0..9usize, 0..6)) {
        let projection: Vec<usize> = projection.into_iter().filter(|idx| *idx < schema.columns.len()).collect();
        let mut all = RowDecoder::new(&schema, None, false);
        let mut some = RowDecoder::new(&schema, Some(&projection), true);
        for (i, row) in rows.iter().enumerate() {
            let key = encode_key(&schema, &key_of(&schema, row)).unwrap();
            let cells = encode_cells(&schema, row).unwrap();
            prop_assert!(same_row(&schema, &decode_row(&schema, &key, &cells).unwrap(), row));
            all.push(&key, &cells, SeqNo(i as u64)).unwrap();
            some.push(&key, &cells, SeqNo(i as u64)).unwrap();
        }
        prop_assert_eq!(all.len(), rows.len());
        let (all, some) = (all.finish().unwrap(), some.finish().unwrap());
        let want = batch_of(&schema, &rows);
        prop_assert_eq!(all.schema(), want.schema());
        for (row, values) in rows.iter().enumerate() {
            let value = |batch: &RecordBatch, i: usize, idx: usize| {
                Value::from_arrow(batch.column(i), row, &schema.columns[idx].data_type).unwrap()
            };
            for (idx, want) in values.iter().enumerate() {
                prop_assert!(value(&all, idx, idx).cmp_same_type(want).is_eq());
            }
            for (i, idx) in projection.iter().enumerate() {
                prop_assert!(value(&some, i, *idx).cmp_same_type(&values[*idx]).is_eq());
            }
        }
        prop_assert_eq!(some.column(projection.len()).len(), rows.len());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        (schema, rows) in table_and_rows(2),
        bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..40),
        at: usize,
        byte: u8,
    ) {
        let mut decoder = RowDecoder::new(&schema, None, true);
        for row in &rows {
            let key = encode_key(&schema, &key_of(&schema, row)).unwrap();
            let mut cells = encode_cells(&schema, row).unwrap();
            let at = at % cells.len();
            cells[at] = byte;
            for cells in [&cells, &bytes] {
                let _ = decode_row(&schema, &key, cells);
                let _ = decoder.push(&key, cells, SeqNo(1));
                let _ = decoder.push(&bytes, cells, SeqNo(1));
                let _ = decoder.finish();
            }
        }
    }
}
