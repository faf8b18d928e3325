use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cell::{Items, WIDTH_16, typed_cell};
use crate::column_cells::ColumnWriter;
use crate::data_type::{DataType, ItemType};
use crate::test_data::{batch_of, documented, hex, orders, table_and_rows};

fn example_cells() -> Vec<u8> {
    let row = [Value::Int64(5), Value::Int32(-2), Value::Decimal(1999), Value::Text("hi".into()), Value::Null];
    encode_cells(&orders(), &row).unwrap()
}

/// The worked example of `docs/formats/row.md`.
#[test]
fn documented_example() {
    let mut row = Vec::new();
    encode_stored(&mut row, RowKind::Live, SeqNo(3), &example_cells(), None);
    assert!(documented(include_str!("../../../../docs/formats/row.md"), &hex(&row)), "{}", hex(&row));
    let mut row = Vec::new();
    encode_stored(&mut row, RowKind::Tombstone, SeqNo(4), &[], None);
    assert!(documented(include_str!("../../../../docs/formats/row.md"), &hex(&row)), "{}", hex(&row));
}

/// The second example of `docs/formats/row.md`.
#[test]
fn an_array_is_its_items_and_nothing_else() {
    let items = [Value::Int32(7), Value::Null, Value::Int32(300)];
    let mut out = Vec::new();
    push_cell(&mut out, Cell::Items(&items, ItemType::Int32));
    assert!(documented(include_str!("../../../../docs/formats/row.md"), &hex(&out)), "{}", hex(&out));
    let stored = &out[2..];
    let array = DataType::Array(ItemType::Int32);
    let again = typed_cell(&array, stored).unwrap().to_value(&array).unwrap();
    assert_eq!(again, Value::Array(items.to_vec()));
    let longer = [stored, &[0]].concat();
    let bad: [&[u8]; 6] = [&stored[..stored.len() - 1], &longer, &[], &[1, 2], &[1, 0x60, 1], &[2, 1]];
    for bad in bad {
        let is_corrupt = Items::of(bad, ItemType::Int32).is_ok_and(|mut items| items.any(|item| item.is_err()));
        assert!(is_corrupt || bad.is_empty(), "{bad:?}");
        assert!(!ColumnWriter::new(&array).push(Cell::Bytes(bad)), "{bad:?}");
        assert_eq!(Cell::Bytes(bad).to_value(&array), None);
    }
    // A text that is none leaves no item behind.
    let mut texts = ColumnWriter::new(&DataType::Array(ItemType::Text));
    assert!(!texts.push(Cell::Bytes(&[2, 0x60, 1, b'a', 0x60, 1, 0xff])));
    assert!(texts.push(Cell::Bytes(&[1, 0x60, 1, b'b'])));
    let mut want = ColumnWriter::new(&DataType::Array(ItemType::Text));
    assert!(want.push(Cell::Items(&[Value::Text("b".into())], ItemType::Text)));
    assert_eq!(&texts.finish(), &want.finish());
}

#[test]
fn a_null_where_none_may_be_is_refused() {
    let schema = orders();
    let row = [Value::Int64(5), Value::Int32(-2), Value::Null, Value::Null, Value::Null];
    assert_eq!(encode_cells(&schema, &row).unwrap_err().to_string(), "column total is NOT NULL, row 0 has NULL");
    assert!(encode_cells(&schema, &row[..4]).is_err());
    assert!(encode_patch(&schema, &[(2, Value::Null)]).is_err());
    assert!(encode_patch(&schema, &[(0, Value::Int64(1))]).is_err());
    assert!(encode_patch(&schema, &[(3, Value::Null), (3, Value::Null)]).is_err());
    assert!(encode_patch(&schema, &[(9, Value::Null)]).is_err());
}

#[test]
fn a_stored_row_expires() {
    let mut bytes = Vec::new();
    encode_stored(&mut bytes, RowKind::Live, SeqNo(1), &[0], Some(1_000));
    let row = StoredRow::parse(&bytes).unwrap();
    assert_eq!((row.expires_ms, row.cells), (Some(1_000), &[0][..]));
    assert!(row.is_live(999) && !row.is_live(1_000));
}

/// A column may be widened without rewriting its rows.
#[test]
fn a_narrow_integer_reads_as_a_wide_one() {
    for n in [0, -1, 127, 128, -129, 32_767, 32_768, i64::from(i32::MAX), i64::from(i32::MIN) - 1, i64::MAX] {
        let mut out = Vec::new();
        push_cell(&mut out, Cell::I64(n));
        assert_eq!(typed_cell(&DataType::Int64, &out[1..]).unwrap(), Cell::I64(n));
        let decimal = DataType::Decimal { precision: 38, scale: 0 };
        assert_eq!(typed_cell(&decimal, &out[1..]).unwrap(), Cell::I128(n.into()));
        assert_eq!(typed_cell(&DataType::Int32, &out[1..]).is_ok(), i32::try_from(n).is_ok());
    }
}

/// What later writers may make is passed over rightly: timestamps, expiries, tombstones, older versions.
#[test]
fn cells_of_later_writers_are_read() {
    let mut cells = vec![4];
    cells.extend([3, WIDTH_16 | CELL_TIMESTAMP | CELL_EXPIRY]);
    cells.extend([9; 16]);
    cells.extend(7i128.to_le_bytes());
    cells.extend([3, WIDTH_16]);
    cells.extend(6i128.to_le_bytes());
    cells.extend([4, CELL_TOMBSTONE | CELL_TIMESTAMP]);
    cells.extend([9; 8]);
    cells.extend([5, CELL_NULL]);
    check_cells(&cells).unwrap();
    let schema = orders();
    let key = crate::encode_key(&schema, &[Value::Int64(1), Value::Int32(1)]).unwrap();
    let row = crate::decode_row(&schema, &key, &cells).unwrap();
    assert_eq!(row[2..], [Value::Decimal(7), Value::Null, Value::Null]);
    let mut decoder = crate::RowDecoder::new(&schema, Some(&[2, 3]), false);
    decoder.push(&key, &cells, SeqNo(1)).unwrap();
    let batch = decoder.finish().unwrap();
    assert_eq!(Value::from_arrow(batch.column(0), 0, &schema.columns[2].data_type).unwrap(), Value::Decimal(7));
    // A patch takes the place of all versions.
    let patch = encode_patch(&schema, &[(2, Value::Decimal(8))]).unwrap();
    let patched = patch_cells(&cells, &patch).unwrap();
    assert_eq!(patched[0], 3);
    assert_eq!(crate::decode_row(&schema, &key, &patched).unwrap()[2], Value::Decimal(8));
}

/// id → value of well-formed cells.
fn as_map(cells: &[u8]) -> BTreeMap<u32, Option<Vec<u8>>> {
    let mut reader = CellReader::new(cells).unwrap();
    let mut map = BTreeMap::new();
    while let Some(cell) = reader.next_cell().unwrap() {
        map.insert(cell.id, cell.value.map(<[u8]>::to_vec));
    }
    reader.finish().unwrap();
    map
}

proptest! {
    #[test]
    fn columnar_cells_are_the_row_wise_ones((mut schema, rows) in table_and_rows(20), reversed: bool) {
        if reversed {
            let n = schema.columns.len() as u32;
            schema.columns.iter_mut().zip(0..).for_each(|(column, i)| column.id = ColumnId(500 * (n - i)));
        }
        let cells = encode_cells_columnar(&schema, &batch_of(&schema, &rows)).unwrap();
        prop_assert_eq!(cells.len(), rows.len());
        for (i, row) in rows.iter().enumerate() {
            prop_assert_eq!(cells.get(i), &encode_cells(&schema, row).unwrap()[..]);
            check_cells(cells.get(i)).unwrap();
        }
        prop_assert!(cells.iter().eq((0..rows.len()).map(|i| cells.get(i))));
    }

    #[test]
    fn a_patch_wins_by_column((schema, rows) in table_and_rows(3), chosen: [bool; 9]) {
        prop_assume!(rows.len() == 2);
        let base = encode_cells(&schema, &rows[0]).unwrap();
        let mut assigned: Vec<(usize, Value)> = schema
            .value_columns()
            .filter(|idx| chosen[*idx])
            .map(|idx| (idx, rows[1][idx].clone()))
            .collect();
        assigned.reverse();
        let patch = encode_patch(&schema, &assigned).unwrap();
        let mut want = as_map(&base);
        want.extend(as_map(&patch));
        let patched = patch_cells(&base, &patch).unwrap();
        prop_assert_eq!(as_map(&patched), want.clone());
        // Of cells that do not overlap, either order gives the same.
        let rest = schema.value_columns().filter(|idx| !chosen[*idx]).map(|idx| (idx, rows[0][idx].clone()));
        let rest = encode_patch(&schema, &rest.collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(patch_cells(&rest, &patch).unwrap(), patch_cells(&patch, &rest).unwrap());
        prop_assert_eq!(as_map(&patch_cells(&rest, &patch).unwrap()), want);
    }

    #[test]
    fn stored_rows_come_back(live: bool, seqno: u64, expires_ms: Option<i64>, cells in prop::collection::vec(any::<u8>(), 1..9)) {
        let (kind, cells) = if live { (RowKind::Live, &cells[..]) } else { (RowKind::Tombstone, &[][..]) };
        let mut bytes = Vec::new();
        encode_stored(&mut bytes, kind, SeqNo(seqno), cells, expires_ms);
        prop_assert_eq!(StoredRow::parse(&bytes).unwrap(), StoredRow { kind, seqno: SeqNo(seqno), expires_ms, cells });
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..60), other: Vec<u8>) {
        let _ = (StoredRow::parse(&bytes), check_cells(&bytes), patch_cells(&bytes, &other));
        if let Ok(patched) = patch_cells(&bytes, &example_cells()) {
            check_cells(&patched).unwrap();
        }
    }
}
