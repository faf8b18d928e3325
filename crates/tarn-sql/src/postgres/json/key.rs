//! By what are `jsonb` compared? By bytes that are equal where the values are, and in their order.
//!
//! PostgreSQL's order is Object > Array > Boolean > Number > String > Null; of two objects, or arrays, the one with
//! more members is greater; then member by member, name before value. At the top alone, an empty array is less than
//! everything.
//!
//! ```text
//! top       0 empty array | 1 scalar | 2 array | 3 object, then the value
//! value     0 null | 1 string, 0 | 2 number | 3 0 or 1 | 4 count (4 bytes), values | 5 count, (name, 0, value)…
//! number    1 zero | 2 weight (4 bytes), digits, 0 | 0 the same of its opposite, all bits turned
//! ```
//!
//! Texts are in the order of their bytes, as all texts here. A number's digits have no zeros at their ends: `1.0` is
//! `1`.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_types::json::{JsonFault, MAX_DEPTH};

use super::function::{failed, texts};
use super::walk::{Json, JsonKind};

/// The function.
pub(super) fn key_function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(JsonKeyFunction { signature: Signature::any(1, Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonKeyFunction {
    signature: Signature,
}

impl ScalarUDFImpl for JsonKeyFunction {
    fn name(&self) -> &str {
        "tarn_jsonb_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), DataType::Binary, args.arg_fields[0].is_nullable())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = matches!(args.args[0], ColumnarValue::Scalar(_));
        let n_rows = if is_constant { 1 } else { args.number_rows };
        let values = texts(&args.args[0].to_array(n_rows)?)?;
        let (mut keys, mut key) = (BinaryBuilder::with_capacity(n_rows, values.value_data().len()), vec![]);
        for text in values.iter() {
            let Some(text) = text else {
                keys.append_null();
                continue;
            };
            key.clear();
            write(text, &mut key).map_err(failed)?;
            keys.append_value(&key);
        }
        let keys: ArrayRef = Arc::new(keys.finish());
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&keys, 0)?),
            false => ColumnarValue::Array(keys),
        })
    }
}

/// Appends the key of a value.
pub(super) fn write(text: &str, key: &mut Vec<u8>) -> Result<(), JsonFault> {
    let json = Json::of(text);
    key.push(match json.kind() {
        JsonKind::Array if json.items().next().is_none() => 0,
        JsonKind::Array => 2,
        JsonKind::Object => 3,
        _ => 1,
    });
    value(json, 0, key)
}

fn value(json: Json<'_>, depth: usize, key: &mut Vec<u8>) -> Result<(), JsonFault> {
    if depth > MAX_DEPTH {
        return Err(JsonFault::TooDeep);
    }
    key.push(json.kind() as u8);
    match json.kind() {
        JsonKind::Null => {}
        JsonKind::Boolean => key.push(u8::from(json.text() == "true")),
        JsonKind::Number => number(json.text(), key),
        JsonKind::String => string(&json.string()?, key),
        JsonKind::Array => {
            key.extend((json.items().count() as u32).to_be_bytes());
            for item in json.items() {
                value(item, depth + 1, key)?;
            }
        }
        JsonKind::Object => {
            key.extend((json.members().count() as u32).to_be_bytes());
            for (name, member) in json.members() {
                string(&name.text()?, key);
                value(member, depth + 1, key)?;
            }
        }
    }
    Ok(())
}

fn string(text: &str, key: &mut Vec<u8>) {
    key.extend(text.bytes());
    key.push(0);
}

fn number(text: &str, key: &mut Vec<u8>) {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let all = || whole.bytes().chain(behind.bytes());
    let Some(first) = all().position(|digit| digit != b'0') else { return key.push(1) };
    let behind_last = all().enumerate().filter(|(_, digit)| *digit != b'0').last().map_or(0, |(at, _)| at + 1);
    key.push(if is_negative { 0 } else { 2 });
    let start = key.len();
    // Of the first digit, as a number without a sign.
    let weight = (whole.len() as i64 - first as i64) as i32;
    key.extend((weight.cast_unsigned() ^ 1 << 31).to_be_bytes());
    key.extend(all().skip(first).take(behind_last - first));
    key.push(0);
    if is_negative {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tarn_types::json::normal_form;

    use super::*;

    fn key(text: &str) -> Vec<u8> {
        let mut key = vec![];
        write(&normal_form(text).unwrap(), &mut key).unwrap();
        key
    }

    #[test]
    fn keys_are_in_the_order_of_values() {
        let ordered = [
            "[]",
            "null",
            "\"\"",
            "\"a\"",
            "\"a\\u0001\"",
            "\"ab\"",
            "\"b\"",
            "-1e30",
            "-100",
            "-99.5",
            "-99",
            "-1.5",
            "-1",
            "-0.01",
            "-0.001",
            "0",
            "0.001",
            "0.01",
            "0.011",
            "1",
            "1.5",
            "2",
            "9.99",
            "10",
            "1e30",
            "false",
            "true",
            "[null]",
            "[\"a\"]",
            "[1]",
            "[[]]",
            "[{}]",
            "[1, 2]",
            "[2, 1]",
            "{}",
            "{\"a\": null}",
            "{\"a\": 1}",
            "{\"a\": []}",
            "{\"aa\": 1}",
            "{\"b\": 0}",
            "{\"a\": 1, \"b\": 1}",
            "{\"a\": 1, \"b\": 2}",
        ];
        for (one, next) in ordered.iter().zip(&ordered[1..]) {
            assert!(key(one) < key(next), "{one} < {next}");
        }
    }

    #[test]
    fn equal_values_have_equal_keys() {
        for (one, other) in
            [("1", "1.00"), ("0", "-0.0"), ("100", "1e2"), ("{\"a\":1,\"b\":[2.50]}", "{\"b\":[2.5],\"a\":1.0}")]
        {
            assert_eq!(key(one), key(other), "{one} = {other}");
        }
    }

    proptest! {
        #[test]
        fn numbers_are_in_their_order(a in -100_000i64..100_000, b in -100_000i64..100_000, scale in 0usize..4) {
            let number = |n: i64| format!("{n}e-{scale}");
            prop_assert_eq!(key(&number(a)).cmp(&key(&number(b))), a.cmp(&b));
        }
    }
}
