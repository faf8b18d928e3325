//! What is a JSON value, and how is it read? `json_typeof`, `json_array_length`, `json_strip_nulls`, `jsonb_pretty`.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use tarn_query::datafusion;
use tarn_types::json::{JsonFault, MAX_DEPTH, quote};

use super::function::{JsonValue, ResultType, Takes, function};
use super::get::check_escapes;
use super::walk::{Json, JsonKind};
use crate::error::{SqlError, state};

/// Of what `jsonb_pretty` gives, in bytes for each byte that it is given: the deeper a value, the more blanks are
/// before it.
const MOST_PRETTY: usize = 64;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Json as OfJson, Jsonb as OfJsonb};
    vec![
        function("json_typeof", &[OfJson], ResultType::Text, |args| Ok(kind_of(args[0].text()))),
        function("jsonb_typeof", &[OfJsonb], ResultType::Text, |args| Ok(kind_of(args[0].text()))),
        function("json_array_length", &[OfJson], ResultType::Integer, |args| length(args[0].text())),
        function("jsonb_array_length", &[OfJsonb], ResultType::Integer, |args| length(args[0].text())),
        function("json_strip_nulls", &[OfJson], ResultType::Json, |args| {
            check_escapes(args[0].text())?;
            let mut out = String::new();
            without_nulls(Json::of(args[0].text()), 0, &mut out)?;
            Ok(JsonValue::Text(Cow::Owned(out)))
        }),
        function("jsonb_strip_nulls", &[OfJsonb], ResultType::MadeJsonb, |args| {
            let mut out = String::new();
            without_nulls(Json::of(args[0].text()), 0, &mut out)?;
            Ok(JsonValue::Text(Cow::Owned(out)))
        }),
        function("jsonb_pretty", &[OfJsonb], ResultType::Text, |args| {
            let text = args[0].text();
            let mut pretty = Pretty { out: String::new(), most: (text.len() + 64) * MOST_PRETTY };
            pretty.value(Json::of(text), 0)?;
            Ok(JsonValue::Text(Cow::Owned(pretty.out)))
        }),
    ]
}

fn kind_of<'a>(text: &str) -> JsonValue<'a> {
    JsonValue::Text(Cow::Borrowed(Json::of(text).kind().name()))
}

fn length<'a>(text: &str) -> Result<JsonValue<'a>, SqlError> {
    let json = Json::of(text);
    let refused = |of: &str| {
        Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("cannot get array length of {of}"))
            .with_hint("json_typeof says what a value is"))
    };
    match json.kind() {
        JsonKind::Array => Ok(JsonValue::Integer(json.items().count() as i32)),
        JsonKind::Object => refused("a non-array"),
        _ => refused("a scalar"),
    }
}

/// Without members that are `null`; items stay.
fn without_nulls(json: Json<'_>, depth: usize, out: &mut String) -> Result<(), JsonFault> {
    if depth > MAX_DEPTH {
        return Err(JsonFault::TooDeep);
    }
    match json.kind() {
        JsonKind::Object => {
            out.push('{');
            let mut between = "";
            for (name, value) in json.members().filter(|(_, value)| value.kind() != JsonKind::Null) {
                out.push_str(between);
                quote(&name.text()?, out);
                out.push(':');
                without_nulls(value, depth + 1, out)?;
                between = ",";
            }
            out.push('}');
        }
        JsonKind::Array => {
            out.push('[');
            let mut between = "";
            for item in json.items() {
                out.push_str(between);
                without_nulls(item, depth + 1, out)?;
                between = ",";
            }
            out.push(']');
        }
        JsonKind::String => quote(&json.string()?, out),
        _ => out.push_str(json.text()),
    }
    Ok(())
}

struct Pretty {
    out: String,
    most: usize,
}

impl Pretty {
    fn value(&mut self, json: Json<'_>, depth: usize) -> Result<(), SqlError> {
        if depth > MAX_DEPTH {
            return Err(JsonFault::TooDeep.into());
        }
        let (open, close) = match json.kind() {
            JsonKind::Object => ('{', '}'),
            JsonKind::Array => ('[', ']'),
            _ => {
                self.out.push_str(json.text());
                return Ok(());
            }
        };
        self.out.push(open);
        let mut between = "";
        for (name, value) in
            json.members().map(|(name, value)| (Some(name), value)).chain(json.items().map(|item| (None, item)))
        {
            self.out.push_str(between);
            between = ",";
            self.line(depth + 1)?;
            if let Some(name) = name {
                quote(&name.text()?, &mut self.out);
                self.out.push_str(": ");
            }
            self.value(value, depth + 1)?;
        }
        self.line(depth)?;
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) -> Result<(), SqlError> {
        self.out.push('\n');
        (0..depth).for_each(|_| self.out.push_str("    "));
        match self.out.len() > self.most {
            true => Err(SqlError::new(state::PROGRAM_LIMIT, "jsonb_pretty: most of it would be blanks")
                .with_hint("the value is nested very deeply: take parts of it with #>")),
            false => Ok(()),
        }
    }
}
