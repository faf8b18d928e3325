//! Is this in that? `@>`, `<@`, `?`, `?|` and `?&` of `jsonb`, which are functions, too: `jsonb_contains`,
//! `jsonb_exists`, …

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use tarn_query::datafusion;
use tarn_types::json::{JsonFault, MAX_DEPTH};

use super::function::{Arg, JsonValue, ResultType, Takes, function, names_of};
use super::key;
use super::walk::{Json, JsonKind};
use crate::error::{SqlError, state};

pub(super) const CONTAINS: &str = "tarn_jsonb_contains";
pub(super) const EXISTS: &str = "tarn_jsonb_exists";
pub(super) const EXISTS_ANY: &str = "tarn_jsonb_exists_any";
pub(super) const EXISTS_ALL: &str = "tarn_jsonb_exists_all";

/// Containers that are held against each other for one row: each of an array against each of another.
const MAX_COMPARED: usize = 1_000_000;

/// The functions that stand for operators.
pub(super) fn operators() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Jsonb, Names, Text};
    vec![
        function(CONTAINS, &[Jsonb, Jsonb], ResultType::Boolean, |args| contains(&args[0], &args[1])),
        function(EXISTS, &[Jsonb, Text], ResultType::Boolean, exists),
        function(EXISTS_ANY, &[Jsonb, Names], ResultType::Boolean, exists_any),
        function(EXISTS_ALL, &[Jsonb, Names], ResultType::Boolean, exists_all),
    ]
}

/// The same, called by their names.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Takes::{Jsonb, Names, Text};
    vec![
        function("jsonb_contains", &[Jsonb, Jsonb], ResultType::Boolean, |args| contains(&args[0], &args[1])),
        function("jsonb_contained", &[Jsonb, Jsonb], ResultType::Boolean, |args| contains(&args[1], &args[0])),
        function("jsonb_exists", &[Jsonb, Text], ResultType::Boolean, exists),
        function("jsonb_exists_any", &[Jsonb, Names], ResultType::Boolean, exists_any),
        function("jsonb_exists_all", &[Jsonb, Names], ResultType::Boolean, exists_all),
    ]
}

fn contains<'a>(whole: &Arg<'a>, part: &Arg<'a>) -> Result<JsonValue<'a>, SqlError> {
    let (whole, part) = (Json::of(whole.text()), Json::of(part.text()));
    Contains { n_compared: 0 }.top(whole, part).map(JsonValue::Boolean)
}

fn exists<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    Ok(JsonValue::Boolean(is_there(Json::of(args[0].text()), args[1].text())?))
}

fn exists_any<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    let json = Json::of(args[0].text());
    for name in names_of(&args[1])?.iter().flatten() {
        if is_there(json, name)? {
            return Ok(JsonValue::Boolean(true));
        }
    }
    Ok(JsonValue::Boolean(false))
}

fn exists_all<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    let json = Json::of(args[0].text());
    for name in names_of(&args[1])?.iter().flatten() {
        if !is_there(json, name)? {
            return Ok(JsonValue::Boolean(false));
        }
    }
    Ok(JsonValue::Boolean(true))
}

/// A member of that name, or a string among the items. A string is its own item.
fn is_there(json: Json<'_>, name: &str) -> Result<bool, JsonFault> {
    let is_name = |item: Json<'_>| Ok(item.kind() == JsonKind::String && item.string()? == name);
    match json.kind() {
        JsonKind::Object => Ok(json.member(name)?.is_some()),
        JsonKind::Array => {
            for item in json.items() {
                if is_name(item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => is_name(json),
    }
}

struct Contains {
    n_compared: usize,
}

impl Contains {
    /// At the top alone, an array contains a value that is one of its items.
    fn top(&mut self, whole: Json<'_>, part: Json<'_>) -> Result<bool, SqlError> {
        match (whole.kind(), part.is_scalar()) {
            (JsonKind::Array, true) => self.has_scalar(whole, part),
            _ => self.contains(whole, part, 0),
        }
    }

    fn contains(&mut self, whole: Json<'_>, part: Json<'_>, depth: usize) -> Result<bool, SqlError> {
        if depth > MAX_DEPTH {
            return Err(JsonFault::TooDeep.into());
        }
        self.n_compared += 1;
        if self.n_compared > MAX_COMPARED {
            return Err(SqlError::new(state::PROGRAM_LIMIT, format!("@> compares more than {MAX_COMPARED} values"))
                .with_hint("compare smaller arrays"));
        }
        match (whole.kind(), part.kind()) {
            (JsonKind::Object, JsonKind::Object) => self.has_members(whole, part, depth),
            (JsonKind::Array, JsonKind::Array) => self.has_items(whole, part, depth),
            (one, other) if one == other => Ok(equal(whole, part)?),
            _ => Ok(false),
        }
    }

    fn has_members(&mut self, whole: Json<'_>, part: Json<'_>, depth: usize) -> Result<bool, SqlError> {
        // Both are in the order of their names: each is found behind the one before.
        let mut rest = whole.members();
        for (name, wanted) in part.members() {
            let name = name.text()?;
            let mut found = None;
            for (of, value) in rest.by_ref() {
                if of.is(&name)? {
                    found = Some(value);
                    break;
                }
            }
            let Some(found) = found else { return Ok(false) };
            if !self.contains(found, wanted, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_items(&mut self, whole: Json<'_>, part: Json<'_>, depth: usize) -> Result<bool, SqlError> {
        let mut scalars = None;
        for wanted in part.items() {
            if wanted.is_scalar() {
                let scalars = match &mut scalars {
                    Some(scalars) => scalars,
                    none => none.insert(keys_of_scalars(whole)?),
                };
                if !scalars.contains(&key_of(wanted)?) {
                    return Ok(false);
                }
                continue;
            }
            let mut is_found = false;
            for item in whole.items().filter(|item| item.kind() == wanted.kind()) {
                if self.contains(item, wanted, depth + 1)? {
                    is_found = true;
                    break;
                }
            }
            if !is_found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_scalar(&self, whole: Json<'_>, wanted: Json<'_>) -> Result<bool, SqlError> {
        for item in whole.items().filter(|item| item.kind() == wanted.kind()) {
            if equal(item, wanted)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn keys_of_scalars(array: Json<'_>) -> Result<HashSet<Vec<u8>>, JsonFault> {
    array.items().filter(|item| item.is_scalar()).map(key_of).collect()
}

fn key_of(json: Json<'_>) -> Result<Vec<u8>, JsonFault> {
    let mut key = vec![];
    key::write(json.text(), &mut key)?;
    Ok(key)
}

fn equal(one: Json<'_>, other: Json<'_>) -> Result<bool, JsonFault> {
    Ok(one == other || key_of(one)? == key_of(other)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(whole: &str, part: &str) -> bool {
        Contains { n_compared: 0 }.top(Json::of(whole), Json::of(part)).unwrap()
    }

    #[test]
    fn parts_are_contained() {
        for (whole, part) in [
            ("{\"a\": 1, \"b\": {\"c\": [1, 2]}}", "{\"b\": {\"c\": [2]}}"),
            ("{\"a\": 1}", "{}"),
            ("[1, 2, [3, 4]]", "[[4], 2, 2]"),
            ("[1, \"a\"]", "\"a\""),
            ("[1.0]", "[1]"),
            ("1", "1.0"),
            ("[{\"a\": 1}, {\"b\": 2}]", "[{\"b\": 2}]"),
        ] {
            assert!(contains(whole, part), "{whole} @> {part}");
        }
        for (whole, part) in [
            ("{\"a\": 1}", "{\"a\": 2}"),
            ("{\"a\": 1}", "{\"b\": 1}"),
            ("{\"a\": [1]}", "{\"a\": 1}"),
            ("\"a\"", "[\"a\"]"),
            ("[[1, 2]]", "[1]"),
            ("1", "[]"),
            ("[]", "{}"),
        ] {
            assert!(!contains(whole, part), "{whole} @> {part}");
        }
    }

    #[test]
    fn comparing_ends() {
        let whole = format!("[{}{{\"a\": 1}}]", "{\"a\": 2}, ".repeat(1_500));
        let part = format!("[{}{{\"a\": 1}}]", "{\"a\": 1}, ".repeat(1_500));
        let error = Contains { n_compared: 0 }.top(Json::of(&whole), Json::of(&part)).unwrap_err();
        assert_eq!(error.state(), state::PROGRAM_LIMIT);
    }
}
