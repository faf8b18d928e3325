//! What does `UPDATE t SET doc['a'][0] = '1'` make of `doc`? The same with another value at that place, where there may
//! have been none: members and items on the way are made, and items before one that is behind the end are `null`. The
//! parser writes it as a call of the document, the value and the steps; of an array, `array_assigned.rs` says what it
//! means.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::datafusion;
use tarn_query::parser::ASSIGNED;
use tarn_types::json::{normal_form, quote};
use tarn_types::{DataType as Stored, arrow_field, data_type_of};

use super::function::{failed, type_name};
use super::get::index;
use super::walk::{Json, JsonKind};
use crate::error::{SqlError, state};
use crate::postgres::array_assigned;
use crate::postgres::rowwise::ArgumentRows;

/// Items that one assignment may make.
const MAX_MADE: i64 = 1_000_000;

/// The function.
pub(super) fn assigned() -> Arc<ScalarUDF> {
    Arc::new(AssignFunction { signature: Signature::user_defined(Volatility::Immutable) }.into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AssignFunction {
    signature: Signature,
}

impl ScalarUDFImpl for AssignFunction {
    fn name(&self) -> &str {
        ASSIGNED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(array_assigned::types(types)?.unwrap_or_else(|| types.to_vec()))
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let mismatch = |message: String, hint: &str| {
            Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint(hint.to_owned()).into())
        };
        let [doc, value, steps @ ..] = args.arg_fields else {
            return mismatch("an assignment to a part has a value and steps".to_owned(), "SET doc['a'] = '1'");
        };
        if doc.data_type().is_list() {
            return Ok(Arc::new(doc.as_ref().clone().with_name(ASSIGNED).with_nullable(true)));
        }
        let is_jsonb = |field: &FieldRef| data_type_of(field).is_ok_and(|of| of == Stored::Jsonb);
        if !is_jsonb(doc) {
            let message = format!("cannot subscript type {} because it does not support subscripting", type_name(doc));
            return mismatch(message, "parts of arrays and of a jsonb are assigned to; elsewhere give the whole value");
        }
        if !is_jsonb(value) && !value.data_type().is_null() {
            let of = type_name(value);
            let message = format!("subscripted assignment requires type jsonb but expression is of type {of}");
            return mismatch(message, "You will need to rewrite or cast the expression.");
        }
        let is_step = |of: &DataType| of.is_string() || of.is_integer() || of.is_null();
        if !steps.iter().all(|step| is_step(step.data_type())) {
            return mismatch("subscript must be coercible to integer or text".to_owned(), "cast it");
        }
        Ok(Arc::new(arrow_field(ASSIGNED, &Stored::Jsonb, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        if let [array, value, place] = &rows.columns[..]
            && array.data_type().is_list()
        {
            return rows.answer(array_assigned::with_items(array, value, place)?);
        }
        let texts = |column: &ArrayRef| -> Result<StringArray> {
            Ok(cast(column, &DataType::Utf8)?.as_string::<i32>().clone())
        };
        let columns = rows.columns.iter().map(texts).collect::<Result<Vec<_>>>()?;
        let begins_with_item = args.arg_fields.get(2).is_some_and(|step| step.data_type().is_integer());
        let value = |column: &StringArray, row: usize| column.is_valid(row).then(|| column.value(row).to_owned());
        let mut all = StringBuilder::new();
        for row in 0..rows.n_rows {
            let steps: Option<Vec<String>> = columns[2..].iter().map(|column| value(column, row)).collect();
            let Some(steps) = steps else {
                let message = "jsonb subscript in assignment must not be null";
                return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message).into());
            };
            let empty = if begins_with_item { "[]" } else { "{}" };
            let doc = value(&columns[0], row).map_or(Cow::Borrowed(empty), Cow::Owned);
            let new = value(&columns[1], row).map_or(Cow::Borrowed("null"), Cow::Owned);
            let mut out = String::with_capacity(doc.len() + new.len());
            MemberAssignment { steps: &steps, new: &new }.value(Json::of(&doc), 0, &mut out)?;
            all.append_value(normal_form(&out).map_err(failed)?);
        }
        rows.answer(Arc::new(all.finish()))
    }
}

struct MemberAssignment<'a> {
    steps: &'a [String],
    new: &'a str,
}

impl MemberAssignment<'_> {
    fn value(&self, json: Json<'_>, level: usize, out: &mut String) -> Result<(), SqlError> {
        let Some(step) = self.steps.get(level) else {
            out.push_str(self.new);
            return Ok(());
        };
        match json.kind() {
            JsonKind::Object => {
                out.push('{');
                let mut is_found = false;
                for (name, value) in json.members() {
                    out.push_str(if out.ends_with('{') { "" } else { ", " });
                    if !name.is(step)? {
                        out.push_str(&name.with(value));
                        continue;
                    }
                    is_found = true;
                    quote(step, out);
                    out.push_str(": ");
                    self.value(value, level + 1, out)?;
                }
                if !is_found {
                    out.push_str(if out.ends_with('{') { "" } else { ", " });
                    quote(step, out);
                    out.push_str(": ");
                    self.made(level + 1, out)?;
                }
                out.push('}');
            }
            JsonKind::Array => self.item(json, step, level, out)?,
            _ => {
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "cannot replace existing key")
                    .with_detail("The path assumes key is a composite object, but it is a scalar value."));
            }
        }
        Ok(())
    }

    fn item(&self, json: Json<'_>, step: &str, level: usize, out: &mut String) -> Result<(), SqlError> {
        let position = level + 1;
        let Some(index) = index(step) else {
            let message = format!("path element at position {position} is not an integer: \"{step}\"");
            return Err(SqlError::new(state::INVALID_TEXT, message));
        };
        let n_items = json.items().count() as i64;
        let at = if index < 0 { n_items + index } else { index };
        if at < 0 {
            let message = format!("path element at position {position} is out of range: {index}");
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        }
        out.push('[');
        for (idx, item) in (0..).zip(json.items()) {
            out.push_str(if idx == 0 { "" } else { ", " });
            match idx == at {
                true => self.value(item, level + 1, out)?,
                false => out.push_str(item.text()),
            }
        }
        if at >= n_items {
            out.push_str(if n_items == 0 { "" } else { ", " });
            nulls(at - n_items, out)?;
            self.made(level + 1, out)?;
        }
        out.push(']');
        Ok(())
    }

    /// What is there from this level on, where there was nothing.
    fn made(&self, level: usize, out: &mut String) -> Result<(), SqlError> {
        let Some(step) = self.steps.get(level) else {
            out.push_str(self.new);
            return Ok(());
        };
        match index(step) {
            Some(index) => {
                out.push('[');
                nulls(index, out)?;
                self.made(level + 1, out)?;
                out.push(']');
            }
            None => {
                out.push('{');
                quote(step, out);
                out.push_str(": ");
                self.made(level + 1, out)?;
                out.push('}');
            }
        }
        Ok(())
    }
}

/// Items before another one.
///
/// Errors: `54000` for too many.
fn nulls(n: i64, out: &mut String) -> Result<(), SqlError> {
    if n > MAX_MADE {
        let message = format!("an array would have {n} items more, the limit is {MAX_MADE}");
        return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("a smaller index"));
    }
    (0..n).for_each(|_| out.push_str("null, "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(doc: &str, steps: &[&str], new: &str) -> Result<String, SqlError> {
        let steps: Vec<String> = steps.iter().map(|step| (*step).to_owned()).collect();
        let mut out = String::new();
        MemberAssignment { steps: &steps, new }.value(Json::of(doc), 0, &mut out)?;
        Ok(normal_form(&out).unwrap())
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn places_are_made() {
        for (doc, steps, want) in [
            ("{}", &["a"][..], "{\"a\": 9}"),
            ("{\"key\": \"value\", \"a\": 1}", &["a"], "{\"a\": 9, \"key\": \"value\"}"),
            ("[0]", &["5"], "[0, null, null, null, null, 9]"),
            ("[0, 1]", &["-2"], "[9, 1]"),
            ("{}", &["a", "1", "b"], "{\"a\": [null, {\"b\": 9}]}"),
            ("{}", &["0", "a"], "{\"0\": {\"a\": 9}}"),
            ("[]", &["0", "0", "1"], "[[[null, 9]]]"),
            ("{\"a\": {\"b\": [1]}}", &["a", "b", "0"], "{\"a\": {\"b\": [9]}}"),
        ] {
            assert_eq!(of(doc, steps, "9").unwrap(), want, "{doc} {steps:?}");
        }
        for (doc, steps, state) in [
            ("[0]", &["-8"][..], "22023"),
            ("{\"a\": 1}", &["a", "b"], "22023"),
            ("null", &["0"], "22023"),
            ("[1]", &["x"], "22P02"),
            ("[]", &["2000000000"], "54000"),
        ] {
            assert_eq!(of(doc, steps, "9").unwrap_err().state(), state, "{doc} {steps:?}");
        }
    }
}
