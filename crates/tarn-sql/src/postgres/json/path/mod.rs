//! What does a `jsonpath` find in a `jsonb`? `jsonb_path_query`, `@?` and `@@`, as in PostgreSQL: the path is a text
//! that is read where it is used.
//!
//! - `grammar`: what a path says
//! - `evaluate`: what it finds
//! - `number`: how it computes

mod evaluate;
mod grammar;
mod number;

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use tarn_query::datafusion;

use self::evaluate::{Evaluation, PathFailure, PathItem};
use super::function::{Arg, JsonValue, ResultType, Takes, function, with_defaults};
use super::walk::{Json, JsonKind};
use crate::error::{SqlError, state};

/// What is listed of a document by a path.
pub(super) const FOUND: &str = "tarn_jsonb_path_found";
/// `@?`
pub(super) const EXISTS: &str = "tarn_jsonb_path_exists";
/// `@@`
pub(super) const MATCHES: &str = "tarn_jsonb_path_match";

/// A document, a path, the path's variables, and whether errors are NULL.
const TAKES: &[Takes] = &[Takes::Jsonb, Takes::Text, Takes::Jsonb, Takes::Boolean];

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of = |name, gives, compute| with_defaults(name, TAKES, 2, gives, compute);
    vec![
        of("jsonb_path_exists", ResultType::Boolean, exists),
        of("jsonb_path_match", ResultType::Boolean, matches),
        of("jsonb_path_query_array", ResultType::Jsonb, array),
        of("jsonb_path_query_first", ResultType::Jsonb, first),
        of(FOUND, ResultType::List, found),
    ]
}

/// Those of operators, which are silent.
pub(super) fn operators() -> Vec<Arc<ScalarUDF>> {
    vec![
        function(EXISTS, &[Takes::Jsonb, Takes::Text], ResultType::Boolean, |args| exists(&silent(args))),
        function(MATCHES, &[Takes::Jsonb, Takes::Text], ResultType::Boolean, |args| matches(&silent(args))),
    ]
}

/// A document and a path with no variables, where errors of the document are NULL.
fn silent<'a>(args: &[Arg<'a>]) -> [Arg<'a>; 4] {
    [Arg::Text(args[0].text()), Arg::Text(args[1].text()), Arg::Text("{}"), Arg::Boolean(true)]
}

/// Asks a document. `None`: a silent call had an error.
fn asked<T>(
    args: &[Arg<'_>],
    ask: impl FnOnce(&Evaluation<'_>) -> Result<T, PathFailure>,
) -> Result<Option<T>, SqlError> {
    let path = grammar::read(args[1].text())?;
    let evaluation = Evaluation::new(&path, args[0].text(), args.get(2).map(Arg::text))?;
    match ask(&evaluation) {
        Ok(answer) => Ok(Some(answer)),
        Err(PathFailure::Soft(_) | PathFailure::Enough) if args.get(3).is_some_and(Arg::is_true) => Ok(None),
        Err(PathFailure::Soft(error) | PathFailure::Hard(error)) => Err(error),
        Err(PathFailure::Enough) => Ok(None),
    }
}

fn texts(args: &[Arg<'_>]) -> Result<Vec<String>, SqlError> {
    let texts = |evaluation: &Evaluation<'_>| {
        Ok(evaluation.all()?.into_iter().map(|item| item.into_text().into_owned()).collect::<Vec<String>>())
    };
    Ok(asked(args, texts)?.unwrap_or_default())
}

fn exists<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    Ok(asked(args, |evaluation| evaluation.any())?.map_or(JsonValue::Null, JsonValue::Boolean))
}

fn matches<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    let is_silent = args.get(3).is_some_and(Arg::is_true);
    let one = |evaluation: &Evaluation<'_>| {
        let items = evaluation.all()?;
        let one = if let [item] = &items[..] { Some(item.clone()) } else { None };
        Ok(one.map(PathItem::into_text).map(Cow::into_owned))
    };
    let one = match asked(args, one)? {
        None => return Ok(JsonValue::Null),
        Some(one) => one,
    };
    match one.as_deref().map(|text| (Json::of(text).kind(), text)) {
        Some((JsonKind::Boolean, text)) => Ok(JsonValue::Boolean(text == "true")),
        Some((JsonKind::Null, _)) => Ok(JsonValue::Null),
        _ if is_silent => Ok(JsonValue::Null),
        _ => Err(SqlError::new(state::NO_SINGLE_JSON, "single boolean result is expected")
            .with_hint("a path that is a condition: $.a > 1")),
    }
}

fn array<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    Ok(JsonValue::Text(Cow::Owned(format!("[{}]", texts(args)?.join(", ")))))
}

fn first<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    Ok(texts(args)?.into_iter().next().map_or(JsonValue::Null, |text| JsonValue::Text(Cow::Owned(text))))
}

fn found<'a>(args: &[Arg<'a>]) -> Result<JsonValue<'a>, SqlError> {
    Ok(JsonValue::List(texts(args)?.into_iter().map(|text| Some(Cow::Owned(text))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(document: &str, path: &str) -> String {
        match texts(&[Arg::Text(document), Arg::Text(path)]) {
            Ok(found) => found.join(" "),
            Err(error) => error.state().to_owned(),
        }
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn paths_find_what_they_say() {
        for (document, path, found) in [
            ("{\"a\": [1, 2, 3]}", "$.a[*] ? (@ > 1)", "2 3"),
            ("{\"a\": [1, 2, 3]}", "strict $.b", "2203A"),
            ("[1, 2, 3]", "$[last - 1, 0]", "2 1"),
            ("[1, 2, 3]", "strict $[5]", "22033"),
            ("{\"a\": {\"b\": 1}, \"c\": [2]}", "$.**", "{\"a\": {\"b\": 1}, \"c\": [2]} {\"b\": 1} 1 [2] 2"),
            ("{\"a\": {\"b\": 1}}", "$.**{2 to last}", "1"),
            ("{\"a\": 7}", "$.a / 2", "3.5000000000000000"),
            ("[1, 2]", "$[*] + 1", "22038"),
            ("[1, -2]", "-$[*]", "-1 2"),
            (
                "[1, \"a\", null, true, {}, []]",
                "$[*].type()",
                "\"number\" \"string\" \"null\" \"boolean\" \"object\" \"array\"",
            ),
            ("5", "strict $.size()", "22039"),
            ("\"1.5\"", "$.double()", "1.5"),
            ("[1, \"a\"]", "$[*] ? ((@ > \"0\") is unknown)", "1"),
            ("[{\"a\": 1}, {\"a\": 2}]", "$.a", "1 2"),
            ("[[1, 2], [3]]", "$[*][*]", "1 2 3"),
            ("{\"a\": 1}", "$.a > 0 && $.a < 2", "true"),
            ("[null]", "$[*] ? (@ == null)", "null"),
            ("[1, 2, 3]", "$[*] ? (@ > $x)", "42704"),
            ("\"2024-01-01\"", "$.datetime().type()", "\"date\""),
            ("\"2024-01-01T10:00:00\"", "$.datetime()", "\"2024-01-01T10:00:00\""),
            ("\"2024-01-01T10:00:00Z\"", "$.datetime()", "0A000"),
            ("\"x\"", "$.datetime()", "22031"),
            ("\"1000000-01-01\"", "$.datetime()", "0A000"),
        ] {
            assert_eq!(all(document, path), found, "{path}");
        }
    }

    #[test]
    fn operators_are_silent() {
        let of = |compute: fn(&[Arg<'static>]) -> Result<JsonValue<'static>, SqlError>, path: &'static str| {
            format!("{:?}", compute(&silent(&[Arg::Text("{\"a\": [1, 2]}"), Arg::Text(path)])).unwrap())
        };
        assert_eq!(
            [of(exists, "strict $.b"), of(exists, "$.b"), of(exists, "$.a")],
            ["Null", "Boolean(false)", "Boolean(true)"]
        );
        assert_eq!([of(matches, "$.a[*]"), of(matches, "$.a[*] > 1")], ["Null", "Boolean(true)"]);
        // A lax path stops at the first.
        assert_eq!(of(exists, "$.a[*] ? (1 / (@ - 2) < 5)"), "Boolean(true)");
    }

    #[test]
    fn no_path_takes_for_ever() {
        let deep = format!("{}{}", "[".repeat(400), "]".repeat(400));
        assert_eq!(all(&deep, "$.**.**.**.**"), state::TOO_COMPLEX);
    }
}
