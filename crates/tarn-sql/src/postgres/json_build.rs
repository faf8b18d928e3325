//! How is JSON made of values? `to_json`, `json_build_object` and `json_build_array`, with the blanks that PostgreSQL writes.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, zone_of};
use tarn_types::{DataType as Stored, Zone, arrow_field, data_type_of};

use crate::error::{SqlError, state};
use crate::rows::texts;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let several = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    let any = || Signature::one_of(several.clone(), Volatility::Stable);
    let all = [
        ("to_json", Makes::Value, Signature::any(1, Volatility::Stable)),
        ("json_build_object", Makes::Object, any()),
        ("json_build_array", Makes::Array, any()),
    ];
    all.map(|(name, makes, signature)| Arc::new(ScalarUDF::from(JsonOf { name, makes, signature }))).to_vec()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Makes {
    Value,
    /// Of names and values in turn.
    Object,
    Array,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonOf {
    name: &'static str,
    makes: Makes,
    signature: Signature,
}

impl ScalarUDFImpl for JsonOf {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        if self.makes == Makes::Object && args.arg_fields.len() % 2 == 1 {
            let message = "argument list must have even number of elements";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                .with_hint("json_build_object(name, value, …)")
                .into());
        }
        let is_scalar = |field: &FieldRef| {
            !field.data_type().is_nested() && !data_type_of(field).is_ok_and(|of| of == Stored::Json)
        };
        if self.makes == Makes::Object && !args.arg_fields.iter().step_by(2).all(is_scalar) {
            let message = "key value must be scalar, not array, composite, or json";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("cast it to text").into());
        }
        Ok(Arc::new(arrow_field(self.name, &Stored::Json, self.makes == Makes::Value)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = zone_of(&args.config_options);
        let columns = args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let columns = columns.iter().zip(&args.arg_fields).map(|(values, field)| Values::of(values, field, &zone));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let rows = (0..args.number_rows).map(|row| self.row(&columns, row)).collect::<Result<StringArray>>()?;
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        Ok(match is_constant && rows.len() == 1 {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&rows, 0)?),
            false => ColumnarValue::Array(Arc::new(rows)),
        })
    }
}

impl JsonOf {
    fn row(&self, columns: &[Values], row: usize) -> Result<Option<String>> {
        let mut json = String::new();
        match self.makes {
            Makes::Value => {
                if columns[0].is_null(row) {
                    return Ok(None);
                }
                columns[0].write(row, &mut json);
            }
            Makes::Array => {
                json.push('[');
                for (at, column) in columns.iter().enumerate() {
                    json.push_str(if at == 0 { "" } else { ", " });
                    column.write(row, &mut json);
                }
                json.push(']');
            }
            Makes::Object => {
                json.push('{');
                for (at, pair) in columns.chunks_exact(2).enumerate() {
                    if pair[0].is_null(row) {
                        let message = format!("argument {} cannot be null", at * 2 + 1);
                        return Err(SqlError::new(state::NULL_NOT_ALLOWED, message)
                            .with_hint("names of an object are not NULL")
                            .into());
                    }
                    json.push_str(if at == 0 { "" } else { ", " });
                    quote(pair[0].text(row), &mut json);
                    json.push_str(" : ");
                    pair[1].write(row, &mut json);
                }
                json.push('}');
            }
        }
        Ok(Some(json))
    }
}

/// Values of one column, and how they are written.
struct Values {
    texts: StringArray,
    form: Form,
}

enum Form {
    /// As it is: a number, a truth, JSON.
    Plain,
    Text,
    Time,
    /// The items, and where those of each list end.
    List(Vec<usize>, Box<Values>),
}

impl Values {
    fn of(values: &ArrayRef, field: &Field, zone: &Zone) -> Result<Values> {
        if let Some(lists) = values.as_list_opt::<i32>() {
            let offsets = lists.offsets();
            let first = offsets[0] as usize;
            let n_items = *offsets.last().unwrap_or(&0) as usize - first;
            let items = lists.values().slice(first, n_items);
            let DataType::List(item) = values.data_type() else { return Err(unknown(field).into()) };
            let ends = offsets.iter().map(|offset| *offset as usize - first).collect();
            let nulls = (0..lists.len()).map(|row| (!lists.is_null(row)).then_some(""));
            let items = Values::of(&items, item, zone)?;
            return Ok(Values { texts: nulls.collect(), form: Form::List(ends, Box::new(items)) });
        }
        let is_json = data_type_of(field).is_ok_and(|of| of == Stored::Json);
        let form = match values.data_type() {
            of if of.is_numeric() || is_json => Form::Plain,
            DataType::Boolean | DataType::Null => Form::Plain,
            DataType::Timestamp(..) => Form::Time,
            DataType::Struct(_) | DataType::Map(..) | DataType::LargeList(_) => return Err(unknown(field).into()),
            _ => Form::Text,
        };
        let texts = match values.data_type() {
            DataType::Boolean => {
                let truths = values.as_boolean();
                truths.iter().map(|truth| truth.map(|truth| if truth { "true" } else { "false" })).collect()
            }
            DataType::Null => StringArray::new_null(values.len()),
            _ => {
                let texts = texts(values, field, zone)?;
                arrow::compute::cast(&texts, &DataType::Utf8)?.as_string::<i32>().clone()
            }
        };
        Ok(Values { texts, form })
    }

    fn is_null(&self, row: usize) -> bool {
        self.texts.is_null(row)
    }

    fn text(&self, row: usize) -> &str {
        self.texts.value(row)
    }

    fn write(&self, row: usize, json: &mut String) {
        if self.is_null(row) {
            return json.push_str("null");
        }
        let text = self.text(row);
        match &self.form {
            // What is no number in JSON.
            Form::Plain if matches!(text, "NaN" | "Infinity" | "-Infinity") => quote(text, json),
            Form::Plain => json.push_str(text),
            Form::Text => quote(text, json),
            Form::Time => {
                let mut time = text.replacen(' ', "T", 1);
                // Hours alone are no offset of ISO 8601.
                if time.len() > 3 && time[time.len() - 3..].starts_with(['+', '-']) && time.contains(':') {
                    time.push_str(":00");
                }
                quote(&time, json);
            }
            Form::List(ends, items) => {
                json.push('[');
                for (at, item) in (ends[row]..ends[row + 1]).enumerate() {
                    json.push_str(if at == 0 { "" } else { "," });
                    items.write(item, json);
                }
                json.push(']');
            }
        }
    }
}

fn unknown(field: &Field) -> SqlError {
    SqlError::unsupported(
        format!("JSON of a value of type {}", field.data_type()),
        "name its parts: json_build_object('a', a)",
    )
}

fn quote(text: &str, json: &mut String) {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            letter if letter < ' ' => {
                let _ = write!(json, "\\u{:04x}", letter as u32);
            }
            letter => json.push(letter),
        }
    }
    json.push('"');
}
