use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use proptest::prelude::*;

use super::*;
use crate::test_data::{batch_of, documented, hex, key_of, orders, table_and_rows};
use crate::{Value, encode_cells, encode_key, encode_patch};

fn example() -> MutationBatch {
    let schema = orders();
    let row = [Value::Int64(5), Value::Int32(-2), Value::Decimal(1999), Value::Text("hi".into()), Value::Null];
    let key = encode_key(&schema, &row[..2]).unwrap();
    let mut batch = BatchBuilder::new(&schema);
    batch.patch(&key, &encode_patch(&schema, &[(3, row[3].clone())]).unwrap(), None);
    batch.delete(&key, Some(SeqNo(258)));
    batch.finish()
}

/// The worked example of `docs/formats/entry.md`.
#[test]
fn documented_example() {
    let hex = hex(example().as_bytes());
    assert!(documented(include_str!("../../../../docs/formats/entry.md"), &hex), "{hex}");
}

#[test]
fn what_no_builder_makes_is_refused() {
    let good = example();
    let change = |at: usize, byte: u8| {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] = byte;
        MutationBatch::from_bytes(bytes.into()).unwrap_err().to_string()
    };
    assert!(change(0, 0x10).contains("kind Freeze"));
    assert!(change(1, 2).contains("version 2"));
    assert!(change(22, 9).contains("none of table 9"));
    assert!(change(26, 3).contains("ends early"));
    assert!(change(26, 1).contains("behind its end"));
    assert!(change(30, 6).contains("operation 6"));
}

#[test]
fn a_null_in_a_column_without_names_its_row() {
    let schema = orders();
    let row = |total| vec![Value::Int64(5), Value::Int32(-2), total, Value::Null, Value::Null];
    let mut nullable = schema.clone();
    nullable.columns[2].nullable = true;
    let rows = batch_of(&nullable, &[row(Value::Decimal(1)), row(Value::Null)]);
    let error = batch_from_columns(&schema, &rows, Op::Put).unwrap_err();
    assert_eq!(error.to_string(), "column total is NOT NULL, row 1 has NULL");
    assert!(batch_from_columns(&schema, &rows, Op::Delete).is_err());
}

#[test]
fn rows_of_one_tablet_keep_their_order_and_are_not_copied() {
    let schema = orders();
    let row = |id| vec![Value::Int64(9), Value::Int32(id), Value::Decimal(1), Value::Null, Value::Null];
    let rows = batch_of(&schema, &[row(2), row(1)]);
    let batches = batch_from_columns(&schema, &rows, Op::Put).unwrap().cut(&TabletMap::initial(&schema)).unwrap();
    assert_eq!(batches.len(), 1);
    let customers = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().as_ptr();
    assert_eq!(customers(batches[0].1.columns().unwrap()), customers(&rows));
}

proptest! {
    #[test]
    fn columns_become_the_batches_of_their_rows((schema, rows) in table_and_rows(20), op in prop_oneof![Just(Op::Put), Just(Op::Insert), Just(Op::Create)]) {
        let map = TabletMap::initial(&schema);
        let whole = batch_from_columns(&schema, &batch_of(&schema, &rows), op).unwrap();
        let batches = whole.cut(&map).unwrap();
        prop_assert_eq!(batches.iter().map(|(_, batch)| batch.len()).sum::<usize>(), rows.len());
        prop_assert!(batches.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let mut left = rows.clone();
        for (tablet, batch) in &batches {
            prop_assert!(batch.iter().all(|mutation| map.tablet_of(mutation.key) == *tablet));
            prop_assert_eq!(batch.table(), schema.id);
            let again = MutationBatch::from_bytes(batch.as_bytes().clone()).unwrap();
            prop_assert_eq!(&again, batch);
            prop_assert!(again.columns().is_none());
            let columns = batch.columns().unwrap();
            prop_assert_eq!(columns.num_rows(), batch.len());
            let keys = encode_keys(&schema, columns).unwrap();
            for (i, mutation) in batch.iter().enumerate() {
                prop_assert_eq!(keys.get(i), mutation.key);
                let same = |row: &Vec<Value>| {
                    encode_key(&schema, &key_of(&schema, row)).unwrap() == mutation.key
                        && encode_cells(&schema, row).unwrap() == mutation.cells
                };
                let at = left.iter().position(same).unwrap();
                left.remove(at);
                prop_assert_eq!((mutation.op, mutation.guard), (op, None));
            }
        }
    }

    #[test]
    fn built_batches_come_back(ops in prop::collection::vec((1u8..6, any::<Option<u64>>(), any::<i32>()), 0..20)) {
        let schema = orders();
        let mut built = BatchBuilder::new(&schema);
        let mut want = Vec::new();
        for (op, guard, id) in ops {
            let row = [Value::Int64(5), Value::Int32(id), Value::Decimal(1), Value::Null, Value::Null];
            let key = encode_key(&schema, &row[..2]).unwrap();
            let cells = encode_cells(&schema, &row).unwrap();
            let guard = guard.map(SeqNo);
            match op {
                1 => built.put(&key, &cells, guard),
                2 => built.insert(&key, &cells),
                3 => built.patch(&key, &cells, guard),
                4 => built.delete(&key, guard),
                _ => built.create(&key, &cells),
            }
            want.push((op, key));
        }
        let batch = built.finish();
        let again = MutationBatch::from_bytes(batch.as_bytes().clone()).unwrap();
        let got: Vec<_> = again.iter().map(|mutation| (mutation.op as u8, mutation.key.to_vec())).collect();
        prop_assert_eq!(got, want);
        prop_assert_eq!(again.len(), batch.len());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>, at: usize, byte: u8) {
        let _ = MutationBatch::from_bytes(bytes.into());
        let mut changed = example().as_bytes().to_vec();
        let at = at % changed.len();
        changed[at] = byte;
        if let Ok(batch) = MutationBatch::from_bytes(changed.into()) {
            prop_assert_eq!(batch.iter().count(), batch.len());
        }
    }
}
