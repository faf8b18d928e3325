//! Which values, names and texts are in a container? As lists, of which `unnest` makes rows (`written`).

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use tarn_query::datafusion;

use super::function::{JsonValue, ResultType, Takes, function};
use super::get::check_escapes;
use super::walk::{Json, JsonKind};
use crate::error::{SqlError, state};

/// What is listed of a `json`, and of a `jsonb`.
pub(super) const ITEMS: [&str; 2] = ["tarn_json_items", "tarn_jsonb_items"];
pub(super) const ITEM_TEXTS: [&str; 2] = ["tarn_json_item_texts", "tarn_jsonb_item_texts"];
pub(super) const NAMES: [&str; 2] = ["tarn_json_names", "tarn_jsonb_names"];
pub(super) const VALUES: [&str; 2] = ["tarn_json_values", "tarn_jsonb_values"];
pub(super) const VALUE_TEXTS: [&str; 2] = ["tarn_json_value_texts", "tarn_jsonb_value_texts"];
pub(super) const EACH_NAMES: [&str; 2] = ["tarn_json_each_names", "tarn_jsonb_each_names"];
/// A document that is an object, as a list of it alone.
pub(super) const RECORD: [&str; 2] = ["tarn_json_record", "tarn_jsonb_record"];
/// The items of a document that is an array of objects.
pub(super) const RECORDS: [&str; 2] = ["tarn_json_records", "tarn_jsonb_records"];

/// The same, for rows that are filled.
pub(super) const FILLED_RECORDS: [&str; 2] = ["tarn_json_filled_records", "tarn_jsonb_filled_records"];

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Json as OfJson, Jsonb as OfJsonb};
    let list = ResultType::List;
    vec![
        function(ITEMS[0], &[OfJson], list, |args| items(checked(args[0].text())?)),
        function(ITEMS[1], &[OfJsonb], list, |args| items(Json::of(args[0].text()))),
        function(ITEM_TEXTS[0], &[OfJson], list, |args| item_texts(checked(args[0].text())?)),
        function(ITEM_TEXTS[1], &[OfJsonb], list, |args| item_texts(Json::of(args[0].text()))),
        function(NAMES[0], &[OfJson], list, |args| names(checked(args[0].text())?, "json_object_keys")),
        function(NAMES[1], &[OfJsonb], list, |args| names(Json::of(args[0].text()), "jsonb_object_keys")),
        function(EACH_NAMES[0], &[OfJson], list, |args| each_names(checked(args[0].text())?, "json_each")),
        function(EACH_NAMES[1], &[OfJsonb], list, |args| each_names(Json::of(args[0].text()), "jsonb_each")),
        function(VALUES[0], &[OfJson], list, |args| Ok(values(checked(args[0].text())?))),
        function(VALUES[1], &[OfJsonb], list, |args| Ok(values(Json::of(args[0].text())))),
        function(VALUE_TEXTS[0], &[OfJson], list, |args| value_texts(checked(args[0].text())?)),
        function(RECORD[0], &[OfJson], list, |args| record(checked(args[0].text())?)),
        function(RECORD[1], &[OfJsonb], list, |args| record(Json::of(args[0].text()))),
        function(RECORDS[0], &[OfJson], list, |args| records(checked(args[0].text())?, "json_to_recordset")),
        function(RECORDS[1], &[OfJsonb], list, |args| records(Json::of(args[0].text()), "jsonb_to_recordset")),
        function(FILLED_RECORDS[0], &[OfJson], list, |args| {
            records(checked(args[0].text())?, "json_populate_recordset")
        }),
        function(FILLED_RECORDS[1], &[OfJsonb], list, |args| {
            records(Json::of(args[0].text()), "jsonb_populate_recordset")
        }),
        function(VALUE_TEXTS[1], &[OfJsonb], list, |args| value_texts(Json::of(args[0].text()))),
    ]
}

fn checked(text: &str) -> Result<Json<'_>, SqlError> {
    check_escapes(text)?;
    Ok(Json::of(text))
}

fn refused<'a>(message: String) -> Result<JsonValue<'a>, SqlError> {
    Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).with_hint("json_typeof says what a value is"))
}

fn items(json: Json<'_>) -> Result<JsonValue<'_>, SqlError> {
    match json.kind() {
        JsonKind::Array => Ok(JsonValue::List(json.items().map(|item| Some(Cow::Borrowed(item.text()))).collect())),
        JsonKind::Object => refused("cannot extract elements from an object".to_owned()),
        _ => refused("cannot extract elements from a scalar".to_owned()),
    }
}

fn record(json: Json<'_>) -> Result<JsonValue<'_>, SqlError> {
    match json.kind() {
        JsonKind::Object => Ok(JsonValue::List(vec![Some(Cow::Borrowed(json.text()))])),
        JsonKind::Array => refused("cannot call populate_composite on an array".to_owned()),
        _ => refused("cannot call populate_composite on a scalar".to_owned()),
    }
}

fn records<'a>(json: Json<'a>, called: &str) -> Result<JsonValue<'a>, SqlError> {
    match json.kind() {
        JsonKind::Array if json.items().all(|item| item.kind() == JsonKind::Object) => items(json),
        JsonKind::Array => refused(format!("argument of {called} must be an array of objects")),
        _ => refused(format!("cannot call {called} on a non-array")),
    }
}

fn item_texts(json: Json<'_>) -> Result<JsonValue<'_>, SqlError> {
    match json.kind() {
        JsonKind::Array => Ok(JsonValue::List(json.items().map(Json::as_text).collect::<Result<_, _>>()?)),
        _ => items(json),
    }
}

fn names<'a>(json: Json<'a>, called: &str) -> Result<JsonValue<'a>, SqlError> {
    match json.kind() {
        JsonKind::Object => {
            Ok(JsonValue::List(json.members().map(|(name, _)| name.text().map(Some)).collect::<Result<_, _>>()?))
        }
        JsonKind::Array => refused(format!("cannot call {called} on an array")),
        _ => refused(format!("cannot call {called} on a scalar")),
    }
}

fn each_names<'a>(json: Json<'a>, called: &str) -> Result<JsonValue<'a>, SqlError> {
    match json.kind() {
        JsonKind::Object => names(json, called),
        _ => refused(format!("cannot call {called} on a non-object")),
    }
}

fn values(json: Json<'_>) -> JsonValue<'_> {
    JsonValue::List(json.members().map(|(_, value)| Some(Cow::Borrowed(value.text()))).collect())
}

fn value_texts(json: Json<'_>) -> Result<JsonValue<'_>, SqlError> {
    Ok(JsonValue::List(json.members().map(|(_, value)| value.as_text()).collect::<Result<_, _>>()?))
}
