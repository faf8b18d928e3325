//! When is a pattern of LIKE an error? When it ends within an escape, and a text is read that far: `'a' LIKE '\'`, not
//! `'' LIKE '\'`. DataFusion takes the last `\` for a letter. So LIKE of such a pattern, and of one that hangs on the
//! row, is a function of ours.
//!
//! Any other stays an operator: DataFusion leaves out blocks by its first letters.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{BinaryExpr, Like, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::datafusion;

use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

/// The function that stands for LIKE, and that for ILIKE.
#[derive(Debug)]
pub(super) struct LikePatterns([Arc<ScalarUDF>; 2]);

impl LikePatterns {
    pub(super) fn new() -> LikePatterns {
        let of = |ignores_case| {
            let signature = Signature::exact(vec![DataType::Utf8; 2], Volatility::Immutable);
            Arc::new(ScalarUDF::from(LikeTexts { ignores_case, signature }))
        };
        LikePatterns([false, true].map(of))
    }

    pub(super) fn rewritten(&self, like: Like, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let is_text = |of: &Expr| of.get_type(schema).is_ok_and(|of| of.is_string());
        let may_fail = may_be_unfinished(&like.pattern);
        if !may_fail || like.escape_char.is_some() || !is_text(&like.expr) || !is_text(&like.pattern) {
            return Ok(Transformed::no(Expr::Like(like)));
        }
        let function = Arc::clone(&self.0[usize::from(like.case_insensitive)]);
        let call = Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*like.expr, *like.pattern]));
        Ok(Transformed::yes(if like.negated { Expr::Not(Box::new(call)) } else { call }))
    }
}

/// Whether a pattern may end within an escape. One that a letter is put behind does not: `LIKE x || '%'`.
fn may_be_unfinished(pattern: &Expr) -> bool {
    match (pattern, constant(pattern)) {
        (_, Some(text)) => is_unfinished(text),
        (Expr::Placeholder(_), _) => false,
        (Expr::BinaryExpr(BinaryExpr { op: Operator::StringConcat, left, right }), _) => match constant(right) {
            Some("") => may_be_unfinished(left),
            Some(text) => text.ends_with('\\'),
            None => true,
        },
        _ => true,
    }
}

/// The text of a literal, whatever kind of text it is cast to.
fn constant(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        Expr::Cast(cast) if cast.field.data_type().is_string() => constant(&cast.expr),
        Expr::Alias(alias) => constant(&alias.expr),
        _ => None,
    }
}

/// Whether the last `\` has nothing to escape.
fn is_unfinished(pattern: &str) -> bool {
    pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LikeTexts {
    ignores_case: bool,
    signature: Signature,
}

impl ScalarUDFImpl for LikeTexts {
    fn name(&self) -> &str {
        if self.ignores_case { "tarn_ilike" } else { "tarn_like" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let [texts, patterns] = [0, 1].map(|at| rows.columns[at].as_string::<i32>());
        let of = |row: usize| {
            let (text, pattern) = (texts.value(row), patterns.value(row));
            match self.ignores_case {
                true => like_text(&text.to_lowercase(), &pattern.to_lowercase()),
                false => like_text(text, pattern),
            }
        };
        let matched = rows.there().map(|row| row.map(of).transpose());
        let matched = matched.collect::<std::result::Result<BooleanArray, SqlError>>()?;
        rows.answer(Arc::new(matched))
    }
}

fn like_text(text: &str, pattern: &str) -> std::result::Result<bool, SqlError> {
    // Of UTF-8: the ones before the first zero, and one for an ASCII letter.
    like(text.as_bytes(), pattern.as_bytes(), |first| (first.leading_ones() as usize).max(1))
}

/// Whether bytes are of a pattern, in which `%` is any letters, `_` one, and `\` makes the next one its own. A letter
/// that begins with a byte has `width` of it.
///
/// Errors: `22025`, the pattern ends with `\`. Cost: the product of both lengths at most.
pub(super) fn like(bytes: &[u8], pattern: &[u8], width: impl Fn(u8) -> usize) -> std::result::Result<bool, SqlError> {
    // Where the pattern goes on if it fails: behind the last `%`, one letter further.
    let (mut at, mut of, mut retry) = (0, 0, None);
    loop {
        // How far the text goes on, and the pattern.
        let matched = match pattern.get(of) {
            Some(b'%') => {
                (of, retry) = (of + 1, Some((at, of + 1)));
                continue;
            }
            Some(b'\\') => match pattern.get(of + 1) {
                Some(own) => (bytes.get(at) == Some(own)).then_some((1, 2)),
                None if at < bytes.len() => {
                    let message = "LIKE pattern must not end with escape character";
                    return Err(SqlError::new(state::INVALID_ESCAPE, message));
                }
                None => None,
            },
            Some(b'_') => bytes.get(at).map(|first| (width(*first), 1)),
            Some(own) => (bytes.get(at) == Some(own)).then_some((1, 1)),
            None if at == bytes.len() => return Ok(true),
            None => None,
        };
        match (matched, retry) {
            (Some((read, taken)), _) => (at, of) = (at + read, of + taken),
            (None, Some((begun, behind))) if begun < bytes.len() => {
                let next = begun + width(bytes[begun]);
                (at, of, retry) = (next, behind, Some((next, behind)));
            }
            (None, _) => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_like_patterns() {
        let of = |bytes: &[u8], pattern: &[u8]| like(bytes, pattern, |_| 1).unwrap();
        assert!(of(b"abc", b"a%") && of(b"abc", b"%c") && of(b"abc", b"a_c") && of(b"", b"%") && of(b"aab", b"%ab"));
        assert!(!of(b"abc", b"a") && !of(b"", b"_") && !of(b"abc", b"b%") && of(b"%", b"\\%") && !of(b"a", b"\\%"));
        assert!(of("ä".as_bytes(), b"__") && !of("ä".as_bytes(), b"_"));
        assert!(like(b"A", b"\\", |_| 1).is_err());
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn texts_are_like_patterns_of_letters() {
        let of = |text: &str, pattern: &str| like_text(text, pattern).map_err(|error| error.state());
        for (text, pattern) in [("ä", "_"), ("aäb", "a_b"), ("xäyz", "%_z"), ("a%", "a\\%"), ("日本", "日_"), ("", "%")]
        {
            assert_eq!(of(text, pattern), Ok(true), "{text} {pattern}");
        }
        for (text, pattern) in [("ä", "__"), ("", "\\"), ("a", "b\\"), ("a\\", "a"), ("日本", "_")] {
            assert_eq!(of(text, pattern), Ok(false), "{text} {pattern}");
        }
        for (text, pattern) in [("a", "\\"), ("ab", "a\\"), ("a", "%\\")] {
            assert_eq!(of(text, pattern), Err(state::INVALID_ESCAPE), "{text} {pattern}");
        }
    }

    #[test]
    fn an_escape_is_finished_by_what_is_behind_it() {
        assert!(is_unfinished("\\") && is_unfinished("a\\\\\\") && !is_unfinished("a\\\\") && !is_unfinished("\\a"));
    }
}
