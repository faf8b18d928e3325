//! What is a JSON value, and how is it read? `json_typeof`, `json_array_length`, `json_strip_nulls`, `jsonb_pretty`.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use tarn_query::datafusion;
use tarn_types::json::{Fault, MAX_DEPTH, quote};

use super::function::{Given, Gives, Takes, function};
use super::get::check_escapes;
use super::walk::{Json, Kind};
use crate::error::{SqlError, state};

/// Of what `jsonb_pretty` gives, in bytes for each byte that it is given: the deeper a value, the more blanks are
/// before it.
const MOST_PRETTY: usize = 64;

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Json as OfJson, Jsonb as OfJsonb};
    vec![
        function("json_typeof", &[OfJson], Gives::Text, |args| Ok(kind_of(args[0].text()))),
        function("jsonb_typeof", &[OfJsonb], Gives::Text, |args| Ok(kind_of(args[0].text()))),
        function("json_array_length", &[OfJson], Gives::Integer, |args| length(args[0].text())),
        function("jsonb_array_length", &[OfJsonb], Gives::Integer, |args| length(args[0].text())),
        function("json_strip_nulls", &[OfJson], Gives::Json, |args| {
            check_escapes(args[0].text())?;
            let mut out = String::new();
            without_nulls(Json::of(args[0].text()), 0, &mut out)?;
            Ok(Given::Text(Cow::Owned(out)))
        }),
        function("jsonb_strip_nulls", &[OfJsonb], Gives::MadeJsonb, |args| {
            let mut out = String::new();
            without_nulls(Json::of(args[0].text()), 0, &mut out)?;
            Ok(Given::Text(Cow::Owned(out)))
        }),
        function("jsonb_pretty", &[OfJsonb], Gives::Text, |args| {
            let text = args[0].text();
            let mut pretty = Pretty { out: String::new(), most: (text.len() + 64) * MOST_PRETTY };
            pretty.value(Json::of(text), 0)?;
            Ok(Given::Text(Cow::Owned(pretty.out)))
        }),
    ]
}

fn kind_of<'a>(text: &str) -> Given<'a> {
    Given::Text(Cow::Borrowed(Json::of(text).kind().name()))
}

fn length<'a>(text: &str) -> Result<Given<'a>, SqlError> {
    let json = Json::of(text);
    let refused = |of: &str| {
        Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("cannot get array length of {of}"))
            .with_hint("json_typeof says what a value is"))
    };
    match json.kind() {
        Kind::Array => Ok(Given::Integer(json.items().count() as i32)),
        Kind::Object => refused("a non-array"),
        _ => refused("a scalar"),
    }
}

/// Without members that are `null`; items stay.
fn without_nulls(json: Json<'_>, depth: usize, out: &mut String) -> Result<(), Fault> {
    if depth > MAX_DEPTH {
        return Err(Fault::TooDeep);
    }
    match json.kind() {
        Kind::Object => {
            out.push('{');
            let mut between = "";
            for (name, value) in json.members().filter(|(_, value)| value.kind() != Kind::Null) {
                out.push_str(between);
                quote(&name.text()?, out);
                out.push(':');
                without_nulls(value, depth + 1, out)?;
                between = ",";
            }
            out.push('}');
        }
        Kind::Array => {
            out.push('[');
            let mut between = "";
            for item in json.items() {
                out.push_str(between);
                without_nulls(item, depth + 1, out)?;
                between = ",";
            }
            out.push(']');
        }
        Kind::String => quote(&json.string()?, out),
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
            return Err(Fault::TooDeep.into());
        }
        let (open, close) = match json.kind() {
            Kind::Object => ('{', '}'),
            Kind::Array => ('[', ']'),
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
