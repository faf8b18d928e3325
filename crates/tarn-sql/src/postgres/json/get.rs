//! What is at this place? `->`, `->>`, `#>`, `#>>`, and the functions that are called so.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use tarn_query::datafusion;
use tarn_types::json::{JsonFault, normal_form};

use super::function::{Arg, JsonValue, ResultType, Takes, function, names_of, variadic};
use super::walk::{Json, JsonKind};
use crate::error::SqlError;

pub(super) const JSON_GET: &str = "tarn_json_get";
pub(super) const JSON_GET_TEXT: &str = "tarn_json_get_text";
pub(super) const JSON_PATH: &str = "tarn_json_path";
pub(super) const JSON_PATH_TEXT: &str = "tarn_json_path_text";
pub(super) const JSONB_GET: &str = "tarn_jsonb_get";
pub(super) const JSONB_GET_TEXT: &str = "tarn_jsonb_get_text";
pub(super) const JSONB_SUBSCRIPT: &str = "tarn_jsonb_subscript";
pub(super) const JSONB_PATH: &str = "tarn_jsonb_path";
pub(super) const JSONB_PATH_TEXT: &str = "tarn_jsonb_path_text";

/// The functions that stand for operators.
pub(super) fn operators() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Json as OfJson, Jsonb as OfJsonb, Names, Step};
    vec![
        function(JSON_GET, &[OfJson, Step], ResultType::Json, |args| {
            check_escapes(args[0].text())?;
            Ok(JsonValue::piece(step(Json::of(args[0].text()), &args[1], false)?.map(Json::text)))
        }),
        function(JSON_GET_TEXT, &[OfJson, Step], ResultType::Text, |args| {
            check_escapes(args[0].text())?;
            as_text(step(Json::of(args[0].text()), &args[1], false)?)
        }),
        function(JSON_PATH, &[OfJson, Names], ResultType::Json, |args| {
            check_escapes(args[0].text())?;
            Ok(JsonValue::piece(path(args[0].text(), &names_of(&args[1])?)?.map(Json::text)))
        }),
        function(JSON_PATH_TEXT, &[OfJson, Names], ResultType::Text, |args| {
            check_escapes(args[0].text())?;
            as_text(path(args[0].text(), &names_of(&args[1])?)?)
        }),
        function(JSONB_GET, &[OfJsonb, Step], ResultType::Jsonb, |args| {
            Ok(JsonValue::piece(step(Json::of(args[0].text()), &args[1], true)?.map(Json::text)))
        }),
        function(JSONB_GET_TEXT, &[OfJsonb, Step], ResultType::Text, |args| {
            as_text(step(Json::of(args[0].text()), &args[1], true)?)
        }),
        // As a path of one step, whatever its type: `doc['1']` is `doc[1]`.
        function(JSONB_SUBSCRIPT, &[OfJsonb, Step], ResultType::Jsonb, |args| {
            let step = match &args[1] {
                Arg::Index(index) => Cow::Owned(index.to_string()),
                step => Cow::Borrowed(step.text()),
            };
            Ok(JsonValue::piece(path(args[0].text(), &[Some(step)])?.map(Json::text)))
        }),
        function(JSONB_PATH, &[OfJsonb, Names], ResultType::Jsonb, |args| {
            Ok(JsonValue::piece(path(args[0].text(), &names_of(&args[1])?)?.map(Json::text)))
        }),
        function(JSONB_PATH_TEXT, &[OfJsonb, Names], ResultType::Text, |args| {
            as_text(path(args[0].text(), &names_of(&args[1])?)?)
        }),
    ]
}

/// The functions that are called by their names.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Json as OfJson, Jsonb as OfJsonb, Text};
    vec![
        variadic("json_extract_path", &[OfJson, Text], ResultType::Json, |args| {
            check_escapes(args[0].text())?;
            Ok(JsonValue::piece(path(args[0].text(), &texts(args))?.map(Json::text)))
        }),
        variadic("json_extract_path_text", &[OfJson, Text], ResultType::Text, |args| {
            check_escapes(args[0].text())?;
            as_text(path(args[0].text(), &texts(args))?)
        }),
        variadic("jsonb_extract_path", &[OfJsonb, Text], ResultType::Jsonb, |args| {
            Ok(JsonValue::piece(path(args[0].text(), &texts(args))?.map(Json::text)))
        }),
        variadic("jsonb_extract_path_text", &[OfJsonb, Text], ResultType::Text, |args| {
            as_text(path(args[0].text(), &texts(args))?)
        }),
    ]
}

/// A `json` whose escapes mean nothing is an error when it is looked into, wherever they stand.
pub(in crate::postgres) fn check_escapes(text: &str) -> Result<(), SqlError> {
    if text.contains("\\u")
        && let Err(fault @ (JsonFault::Nul | JsonFault::Surrogate)) = normal_form(text)
    {
        return Err(fault.into());
    }
    Ok(())
}

fn texts<'a>(args: &[Arg<'a>]) -> Vec<Option<Cow<'a, str>>> {
    args[1..].iter().map(|arg| Some(Cow::Borrowed(arg.text()))).collect()
}

/// A member or an item. A `jsonb` that is no container is the only item of itself.
fn step<'a>(json: Json<'a>, step: &Arg<'_>, is_jsonb: bool) -> Result<Option<Json<'a>>, SqlError> {
    Ok(match step {
        Arg::Text(name) => json.member(name)?,
        Arg::Index(0 | -1) if is_jsonb && json.is_scalar() => Some(json),
        Arg::Index(index) => json.item(*index),
        _ => None,
    })
}

/// One step behind the other. A NULL among them gives NULL.
fn path<'a>(text: &'a str, steps: &[Option<Cow<'_, str>>]) -> Result<Option<Json<'a>>, SqlError> {
    let mut json = Json::of(text);
    if steps.iter().any(Option::is_none) {
        return Ok(None);
    }
    for step in steps.iter().flatten() {
        let found = match json.kind() {
            JsonKind::Object => json.member(step)?,
            JsonKind::Array => index(step).and_then(|index| json.item(index)),
            _ => None,
        };
        let Some(found) = found else { return Ok(None) };
        json = found;
    }
    Ok(Some(json))
}

/// A number of 32 bits, as `strtol` of C reads it.
pub(super) fn index(step: &str) -> Option<i64> {
    step.trim_start().parse::<i32>().ok().map(i64::from)
}

fn as_text<'a>(json: Option<Json<'a>>) -> Result<JsonValue<'a>, SqlError> {
    Ok(match json {
        Some(json) => json.as_text()?.map_or(JsonValue::Null, JsonValue::Text),
        None => JsonValue::Null,
    })
}
