use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::test_data::{batch_of, documented, hex, key_of, orders, table_and_rows, value_of};

/// The worked example of `docs/formats/key.md`.
#[test]
fn documented_example() {
    let mut schema = orders();
    schema.options.partitioning = crate::Partitioning::Hash;
    schema.key[1].descending = true;
    let key = encode_key(&schema, &[Value::Int64(5), Value::Int32(-2)]).unwrap();
    assert!(documented(include_str!("../../../../docs/formats/key.md"), &hex(&key)), "{}", hex(&key));
    let mut schema = orders();
    schema.columns[0].data_type = DataType::Text;
    let key = encode_key(&schema, &[Value::Text("a\0b".into()), Value::Int32(1)]).unwrap();
    assert!(documented(include_str!("../../../../docs/formats/key.md"), &hex(&key)), "{}", hex(&key));
}

#[test]
fn token_of_several_columns_is_that_of_cassandras_composite() {
    let mut schema = orders();
    schema.n_partition_key = 2;
    let token = token_of(&schema, &[Value::Int64(5), Value::Int32(-2)]).unwrap();
    assert_eq!(token, murmur3_token(b"\x00\x08\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x04\xff\xff\xff\xfe\x00"));
}

#[test]
fn nulls_and_other_types_are_refused() {
    let schema = orders();
    let null = encode_key(&schema, &[Value::Int64(1), Value::Null]).unwrap_err();
    assert_eq!(null.to_string(), "column id is NOT NULL, row 0 has NULL");
    assert!(encode_key(&schema, &[Value::Int32(1), Value::Int32(1)]).is_err());
    assert!(encode_key(&schema, &[Value::Int64(1)]).is_err());
    assert!(encode_partition_prefix(&schema, &[]).is_err());
}

#[test]
fn prefix_end_is_behind_all_that_begin_so() {
    assert_eq!(prefix_end(&[1, 2]), Some(vec![1, 3]));
    assert_eq!(prefix_end(&[1, 0xff]), Some(vec![2]));
    assert_eq!(prefix_end(&[0xff]), None);
}

fn part_bytes(value: &Value, data_type: &DataType, descending: bool) -> Vec<u8> {
    let mut out = Vec::new();
    push_part(&mut out, Cell::of(value, data_type).unwrap().unwrap(), descending);
    out
}

fn two_values() -> impl Strategy<Value = (DataType, Value, Value)> {
    let key_types = crate::test_data::ALL_TYPES[..14].to_vec();
    prop::sample::select(key_types)
        .prop_flat_map(|data_type| (Just(data_type), value_of(data_type), value_of(data_type)))
}

#[test]
fn a_float_that_no_key_has_is_refused() {
    let floats = [0.0, 1.5, -2.5, f64::INFINITY, f64::NAN].map(|value| (value.to_bits(), true));
    let others = [-0.0, -f64::NAN, f64::from_bits(f64::NAN.to_bits() | 1)].map(|value| (value.to_bits(), false));
    for (bits, is_key) in floats.into_iter().chain(others) {
        let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        let bytes = ordered.to_be_bytes();
        let mut scratch = Vec::new();
        let read = KeyReader::new(0, &bytes).unwrap().part(&DataType::Float64, false, &mut scratch).is_ok();
        assert_eq!(read, is_key, "{bits:x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn byte_order_is_value_order((data_type, a, b) in two_values()) {
        let order = a.cmp_same_type(&b);
        prop_assert_eq!(part_bytes(&a, &data_type, false).cmp(&part_bytes(&b, &data_type, false)), order);
        prop_assert_eq!(part_bytes(&a, &data_type, true).cmp(&part_bytes(&b, &data_type, true)), order.reverse());
    }

    /// Also holds parts of different length against each other: no part is a prefix of another.
    #[test]
    fn no_part_begins_another((data_type, a, b) in two_values()) {
        let (x, y) = (part_bytes(&a, &data_type, false), part_bytes(&b, &data_type, false));
        prop_assert!(a.cmp_same_type(&b) == Ordering::Equal || !x.starts_with(&y));
    }
}

proptest! {
    #[test]
    fn keys_come_back((schema, rows) in table_and_rows(4)) {
        for row in &rows {
            let parts = key_of(&schema, row);
            let key = encode_key(&schema, &parts).unwrap();
            prop_assert!(key.starts_with(&table_prefix(schema.id)));
            if schema.is_hashed() {
                prop_assert!(key.starts_with(&token_prefix(schema.id, token_of(&schema, &parts).unwrap())));
            }
            prop_assert!(key.starts_with(&partition_prefix(&schema, &key).unwrap()));
            let back = decode_key(&schema, &key).unwrap();
            prop_assert!(back.iter().zip(&parts).all(|(a, b)| a.cmp_same_type(b).is_eq()));
            for n in schema.n_partition_key..=parts.len() {
                prop_assert!(key.starts_with(&encode_partition_prefix(&schema, &parts[..n]).unwrap()));
            }
        }
    }

    #[test]
    fn columnar_keys_are_the_row_wise_ones((schema, rows) in table_and_rows(20)) {
        let keys = encode_keys(&schema, &batch_of(&schema, &rows)).unwrap();
        prop_assert_eq!(keys.len(), rows.len());
        for (i, row) in rows.iter().enumerate() {
            prop_assert_eq!(keys.get(i), &encode_key(&schema, &key_of(&schema, row)).unwrap()[..]);
        }
        prop_assert!(keys.iter().eq((0..rows.len()).map(|i| keys.get(i))));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic((schema, rows) in table_and_rows(2), bytes: Vec<u8>, at: usize, byte: u8) {
        let _ = (decode_key(&schema, &bytes), partition_prefix(&schema, &bytes));
        for row in &rows {
            let mut key = encode_key(&schema, &key_of(&schema, row)).unwrap();
            prop_assert!(decode_key(&schema, &key[..key.len() - 1]).is_err());
            let at = at % key.len();
            key[at] = byte;
            let _ = decode_key(&schema, &key);
        }
    }
}
