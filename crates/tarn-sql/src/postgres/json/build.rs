//! How is JSON made of values? `to_json`, `row_to_json`, `json_build_object`, `json_build_array` and `json_object`,
//! with the blanks that PostgreSQL writes; the same as `jsonb`; and of what an aggregate collected, `json_agg` and
//! `json_object_agg` (`written`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, style_of};
use tarn_types::json::{normal_form, quote};
use tarn_types::{DataType as Stored, Forms, Style, arrow_field, data_type_of};

use super::function::{failed, undefined};
use crate::digits::Digits;
use crate::error::{SqlError, state};
use crate::row_type::is_anonymous;
use crate::rows::texts;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Stored::{Json, Jsonb};
    let several = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    let any = || Signature::one_of(several.clone(), Volatility::Stable);
    let one = || Signature::any(1, Volatility::Stable);
    let one_or_two = || Signature::one_of(vec![TypeSignature::Any(1), TypeSignature::Any(2)], Volatility::Stable);
    let all = [
        ("to_json", Json, JsonBuilder::Value, one()),
        ("to_jsonb", Jsonb, JsonBuilder::Value, one()),
        ("array_to_json", Json, JsonBuilder::OfArray, one()),
        ("row_to_json", Json, JsonBuilder::OfRow, one()),
        ("json_build_object", Json, JsonBuilder::Object, any()),
        ("jsonb_build_object", Jsonb, JsonBuilder::Object, any()),
        ("json_build_array", Json, JsonBuilder::Array, any()),
        ("jsonb_build_array", Jsonb, JsonBuilder::Array, any()),
        ("json_object", Json, JsonBuilder::OfTexts, one_or_two()),
        ("jsonb_object", Jsonb, JsonBuilder::OfTexts, one_or_two()),
        (VALUE, Json, JsonBuilder::Value, one()),
        (MEMBER, Json, JsonBuilder::Member, Signature::any(2, Volatility::Stable)),
        (ARRAY_OF[0], Json, JsonBuilder::Collected('[', ']'), one()),
        (ARRAY_OF[1], Jsonb, JsonBuilder::Collected('[', ']'), one()),
        (OBJECT_OF[0], Json, JsonBuilder::Collected('{', '}'), one()),
        (OBJECT_OF[1], Jsonb, JsonBuilder::Collected('{', '}'), one()),
        (BUILD_ARRAY_OF[0], Json, JsonBuilder::ArrayOf, one()),
        (BUILD_ARRAY_OF[1], Jsonb, JsonBuilder::ArrayOf, one()),
        (BUILD_OBJECT_OF[0], Json, JsonBuilder::ObjectOf, one()),
        (BUILD_OBJECT_OF[1], Jsonb, JsonBuilder::ObjectOf, one()),
    ];
    let function = |(name, to, makes, signature)| Arc::new(ScalarUDF::from(JsonOf { name, to, makes, signature }));
    all.map(function).to_vec()
}

/// A value of which [`ARRAY_OF`] makes an item: `to_json`, of which alone lists are made.
pub(super) const VALUE: &str = "tarn_json_value";
/// A name and a value, of which [`OBJECT_OF`] makes an object.
pub(super) const MEMBER: &str = "tarn_json_member";
/// Of texts that are JSON in a list: an array, as `json` and as `jsonb`.
pub(super) const ARRAY_OF: [&str; 2] = ["tarn_json_array", "tarn_jsonb_array"];
/// Of members in a list.
pub(super) const OBJECT_OF: [&str; 2] = ["tarn_json_object", "tarn_jsonb_object"];

/// `json_build_array(VARIADIC list)`, and of `jsonb`.
pub(in crate::postgres) const BUILD_ARRAY_OF: [&str; 2] = ["tarn_json_build_array", "tarn_jsonb_build_array"];
/// `json_build_object(VARIADIC list)`, and of `jsonb`.
pub(in crate::postgres) const BUILD_OBJECT_OF: [&str; 2] = ["tarn_json_build_object", "tarn_jsonb_build_object"];

/// Before each array and row but the first of those that an aggregate collects, as PostgreSQL has it.
const LINE: &str = "\n ";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum JsonBuilder {
    Value,
    /// Of names and values in turn.
    Object,
    Array,
    /// Of the items of a list, whatever lists they are in.
    ArrayOf,
    /// Of names and values in turn in one list.
    ObjectOf,
    OfArray,
    OfRow,
    /// Of names and values in turn in one array, or in two.
    OfTexts,
    Member,
    /// Between these brackets.
    Collected(char, char),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonOf {
    name: &'static str,
    to: Stored,
    makes: JsonBuilder,
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
        if self.makes == JsonBuilder::Object && args.arg_fields.len() % 2 == 1 {
            let message = "argument list must have even number of elements";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                .with_hint(format!("{}(name, value, …)", self.name))
                .into());
        }
        let is_scalar = |field: &FieldRef| {
            !field.data_type().is_nested()
                && !data_type_of(field).is_ok_and(|of| matches!(of, Stored::Json | Stored::Jsonb))
        };
        let is_right = match (self.makes, args.arg_fields[..].first().map(|field| field.data_type())) {
            (
                JsonBuilder::OfArray
                | JsonBuilder::ArrayOf
                | JsonBuilder::ObjectOf
                | JsonBuilder::OfTexts
                | JsonBuilder::Collected(..),
                Some(of),
            ) => {
                matches!(of, DataType::List(_))
            }
            (JsonBuilder::OfRow, Some(of)) => matches!(of, DataType::Struct(_)),
            (JsonBuilder::Member, _) => is_scalar(&args.arg_fields[0]),
            _ => true,
        };
        if !is_right {
            return Err(undefined(self.name, args.arg_fields).into());
        }
        if self.makes == JsonBuilder::Object && !args.arg_fields.iter().step_by(2).all(&is_scalar) {
            let message = "key value must be scalar, not array, composite, or json";
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("cast it to text").into());
        }
        Ok(Arc::new(arrow_field(self.name, &self.to, !matches!(self.makes, JsonBuilder::Object | JsonBuilder::Array))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let style = in_iso(style_of(&args.config_options));
        let columns = args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let columns = columns.iter().zip(&args.arg_fields).map(|(values, field)| Values::of(values, field, &style));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let mut rows = StringBuilder::new();
        for row in 0..args.number_rows {
            match self.row(&columns, row)? {
                Some(json) if self.to == Stored::Jsonb => rows.append_value(normal_form(&json).map_err(failed)?),
                json => rows.append_option(json),
            }
        }
        let rows = rows.finish();
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
            JsonBuilder::Value | JsonBuilder::OfArray | JsonBuilder::OfRow => {
                if columns[0].is_null(row) {
                    return Ok(None);
                }
                if self.name == VALUE && columns[0].has_parts() {
                    json.push_str(LINE);
                }
                columns[0].write(row, &mut json);
            }
            JsonBuilder::Array => write_array(columns.iter().map(|column| (column, row)), &mut json),
            JsonBuilder::Object => write_object(columns.iter().map(|column| (column, row)), &mut json)?,
            JsonBuilder::ArrayOf | JsonBuilder::ObjectOf => {
                if columns[0].is_null(row) {
                    return Ok(None);
                }
                let mut items = Vec::new();
                columns[0].leaves(row, &mut items);
                match self.makes {
                    JsonBuilder::ArrayOf => write_array(items, &mut json),
                    _ if items.len() % 2 == 1 => {
                        let message = "argument list must have even number of elements";
                        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                            .with_hint("names and values in turn")
                            .into());
                    }
                    _ => write_object(items, &mut json)?,
                }
            }
            JsonBuilder::OfTexts => return self.of_texts(columns, row),
            JsonBuilder::Member => {
                if columns[0].is_null(row) {
                    let message = "field name must not be null";
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message)
                        .with_hint("names of an object are not NULL")
                        .into());
                }
                quote(columns[0].text(row), &mut json);
                json.push_str(" : ");
                columns[1].write(row, &mut json);
            }
            JsonBuilder::Collected(open, close) => {
                let Some(items) = columns[0].items(row) else { return Ok(None) };
                // PostgreSQL has blanks behind the brackets of a `json` that is an object.
                let blank = if open == '{' { " " } else { "" };
                json.push(open);
                json.push_str(blank);
                for (at, item) in items.enumerate() {
                    json.push_str(if at == 0 { "" } else { ", " });
                    let item = item.unwrap_or("null");
                    json.push_str(if at == 0 { item.strip_prefix(LINE).unwrap_or(item) } else { item });
                }
                json.push_str(blank);
                json.push(close);
            }
        }
        Ok(Some(json))
    }

    /// `{a,1,b,2}`, `{{a,1},{b,2}}`, or `{a,b}` and `{1,2}`.
    fn of_texts(&self, columns: &[Values], row: usize) -> Result<Option<String>> {
        let lists: Option<Vec<Vec<_>>> = match columns {
            [pairs] if pairs.n_dimensions() == 2 => pairs.pairs(row)?.map(|pairs| vec![pairs]),
            columns if columns.iter().any(|column| column.n_dimensions() > 1) => {
                return Err(SqlError::new(state::ARRAY_SUBSCRIPT, "wrong number of array subscripts")
                    .with_hint("arrays of one dimension, or one of pairs")
                    .into());
            }
            columns => columns.iter().map(|column| column.items(row).map(|items| items.collect())).collect(),
        };
        let Some(lists) = lists else { return Ok(None) };
        let pairs: Vec<_> = match &lists[..] {
            [names, values] if names.len() == values.len() => names.iter().zip(values).collect(),
            [_, _] => {
                return Err(SqlError::new(state::ARRAY_SUBSCRIPT, "mismatched array dimensions")
                    .with_hint("as many values as names")
                    .into());
            }
            [both] if both.len() % 2 == 0 => both.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
            _ => {
                return Err(SqlError::new(state::ARRAY_SUBSCRIPT, "array must have even number of elements")
                    .with_hint("names and values in turn")
                    .into());
            }
        };
        let mut json = String::from("{");
        for (at, (name, value)) in pairs.into_iter().enumerate() {
            json.push_str(if at == 0 { "" } else { ", " });
            quote(name.ok_or_else(null_name)?, &mut json);
            json.push_str(" : ");
            match value {
                Some(value) => quote(value, &mut json),
                None => json.push_str("null"),
            }
        }
        json.push('}');
        Ok(Some(json))
    }
}

/// `[1, "a"]`, of values and where each stands.
fn write_array<'a>(values: impl IntoIterator<Item = (&'a Values, usize)>, json: &mut String) {
    json.push('[');
    for (at, (values, row)) in values.into_iter().enumerate() {
        json.push_str(if at == 0 { "" } else { ", " });
        values.write(row, json);
    }
    json.push(']');
}

/// `{"a" : 1}`, of names and values in turn.
///
/// Errors: `22023` for a name that is NULL.
fn write_object<'a>(pairs: impl IntoIterator<Item = (&'a Values, usize)>, json: &mut String) -> Result<(), SqlError> {
    json.push('{');
    for (at, (values, row)) in pairs.into_iter().enumerate() {
        if at % 2 == 1 {
            json.push_str(" : ");
            values.write(row, json);
            continue;
        }
        if values.is_null(row) {
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("argument {} cannot be null", at + 1))
                .with_hint("names of an object are not NULL"));
        }
        json.push_str(if at == 0 { "" } else { ", " });
        quote(values.text(row), json);
    }
    json.push('}');
    Ok(())
}

fn null_name() -> SqlError {
    SqlError::new(state::NULL_NOT_ALLOWED, "null value not allowed for object key")
        .with_hint("names of an object are not NULL")
}

/// Values of one column, and how they are written.
struct Values {
    texts: StringArray,
    form: JsonEncoding,
}

enum JsonEncoding {
    /// As it is: a number, a truth, JSON.
    Plain,
    Text,
    Time,
    /// The items, and where those of each list end.
    List(Vec<usize>, Box<Values>),
    /// The fields of a row, by their names.
    Row(Vec<(String, Values)>),
}

/// In JSON, times are in ISO form whatever the session says.
fn in_iso(style: Style) -> Style {
    let Forms { dates, order, .. } = Forms::default();
    Style { forms: Forms { dates, order, ..style.forms }, ..style }
}

impl Values {
    fn of(values: &ArrayRef, field: &Field, style: &Style) -> Result<Values> {
        if let Some(lists) = values.as_list_opt::<i32>() {
            let offsets = lists.offsets();
            let first = offsets[0] as usize;
            let n_items = *offsets.last().unwrap_or(&0) as usize - first;
            let items = lists.values().slice(first, n_items);
            let DataType::List(item) = values.data_type() else { return Err(unknown(field).into()) };
            let ends = offsets.iter().map(|offset| *offset as usize - first).collect();
            let nulls = (0..lists.len()).map(|row| (!lists.is_null(row)).then_some(""));
            let items = Values::of(&items, &Digits::told_of_items(field, item), style)?;
            return Ok(Values { texts: nulls.collect(), form: JsonEncoding::List(ends, Box::new(items)) });
        }
        if let (Some(rows), DataType::Struct(fields)) = (values.as_struct_opt(), values.data_type()) {
            let is_anonymous = is_anonymous(fields);
            let columns = rows.columns().iter().zip(fields).enumerate().map(|(at, (values, field))| {
                // As PostgreSQL calls those of ROW(…).
                let name = if is_anonymous { format!("f{}", at + 1) } else { field.name().clone() };
                Ok((name, Values::of(values, field, style)?))
            });
            let nulls = (0..rows.len()).map(|row| (!rows.is_null(row)).then_some(""));
            return Ok(Values { texts: nulls.collect(), form: JsonEncoding::Row(columns.collect::<Result<_>>()?) });
        }
        let is_json = data_type_of(field).is_ok_and(|of| matches!(of, Stored::Json | Stored::Jsonb));
        let form = match values.data_type() {
            of if of.is_numeric() || is_json => JsonEncoding::Plain,
            DataType::Boolean | DataType::Null => JsonEncoding::Plain,
            DataType::Timestamp(..) => JsonEncoding::Time,
            DataType::Map(..) | DataType::LargeList(_) => return Err(unknown(field).into()),
            _ => JsonEncoding::Text,
        };
        let texts = match values.data_type() {
            DataType::Boolean => {
                let truths = values.as_boolean();
                truths.iter().map(|truth| truth.map(|truth| if truth { "true" } else { "false" })).collect()
            }
            DataType::Null => StringArray::new_null(values.len()),
            _ => {
                let texts = texts(values, field, style)?;
                arrow::compute::cast(&texts, &DataType::Utf8)?.as_string::<i32>().clone()
            }
        };
        Ok(Values { texts, form })
    }

    /// Whether they are arrays or rows.
    fn has_parts(&self) -> bool {
        matches!(self.form, JsonEncoding::List(..) | JsonEncoding::Row(_))
    }

    fn is_null(&self, row: usize) -> bool {
        self.texts.is_null(row)
    }

    fn text(&self, row: usize) -> &str {
        self.texts.value(row)
    }

    /// The texts of a list's items. `None`: it is NULL.
    fn items(&self, row: usize) -> Option<impl Iterator<Item = Option<&str>>> {
        let JsonEncoding::List(ends, items) = &self.form else { return None };
        let text = |item| (!items.is_null(item)).then(|| items.text(item));
        (!self.is_null(row)).then(|| (ends[row]..ends[row + 1]).map(text))
    }

    fn n_dimensions(&self) -> usize {
        match &self.form {
            JsonEncoding::List(_, items) => 1 + items.n_dimensions(),
            _ => 0,
        }
    }

    /// The texts of a list's lists, which are of two items. `None`: it is NULL.
    fn pairs(&self, row: usize) -> Result<Option<Vec<Option<&str>>>> {
        let JsonEncoding::List(ends, lists) = &self.form else { return Ok(None) };
        if self.is_null(row) {
            return Ok(None);
        }
        let mut all = vec![];
        for list in ends[row]..ends[row + 1] {
            let n_before = all.len();
            all.extend(lists.items(list).into_iter().flatten());
            if all.len() - n_before != 2 {
                return Err(SqlError::new(state::ARRAY_SUBSCRIPT, "array must have two columns")
                    .with_hint("a name and a value in each")
                    .into());
            }
        }
        Ok(Some(all))
    }

    /// The items of a list, and of lists in it, with where they stand.
    fn leaves<'a>(&'a self, row: usize, found: &mut Vec<(&'a Values, usize)>) {
        match &self.form {
            JsonEncoding::List(ends, items) if !self.is_null(row) => {
                (ends[row]..ends[row + 1]).for_each(|item| items.leaves(item, found));
            }
            _ => found.push((self, row)),
        }
    }

    fn write(&self, row: usize, json: &mut String) {
        if self.is_null(row) {
            return json.push_str("null");
        }
        let text = self.text(row);
        match &self.form {
            // What is no number in JSON.
            JsonEncoding::Plain if matches!(text, "NaN" | "Infinity" | "-Infinity") => quote(text, json),
            JsonEncoding::Plain => json.push_str(text),
            JsonEncoding::Text => quote(text, json),
            JsonEncoding::Time => {
                let mut time = text.replacen(' ', "T", 1);
                // Hours alone are no offset of ISO 8601.
                if time.len() > 3 && time[time.len() - 3..].starts_with(['+', '-']) && time.contains(':') {
                    time.push_str(":00");
                }
                quote(&time, json);
            }
            JsonEncoding::List(ends, items) => {
                json.push('[');
                for (at, item) in (ends[row]..ends[row + 1]).enumerate() {
                    json.push_str(if at == 0 { "" } else { "," });
                    items.write(item, json);
                }
                json.push(']');
            }
            JsonEncoding::Row(fields) => {
                json.push('{');
                for (at, (name, values)) in fields.iter().enumerate() {
                    json.push_str(if at == 0 { "" } else { "," });
                    quote(name, json);
                    json.push(':');
                    values.write(row, json);
                }
                json.push('}');
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
