//! Which functions of texts are there of bytes, too? `substr`, `btrim`, `ltrim` and `rtrim`, `octet_length` and
//! `bit_length`, `position` and `overlay`, and `~~`, which is LIKE. DataFusion has them of texts alone: here each looks
//! at its first argument, and leaves texts to it.
//!
//! `substring` looks at its second one, too: `substring(x FROM 'a.c')` is what a regular expression matches,
//! `substring(x FROM 'a#"_#"c' FOR '#')` a part of what one of SQL does.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, BooleanArray, Int32Array, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::functions::{core, string, unicode};
use datafusion::logical_expr::expr::{Like, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::BinaryOperator;

use super::averages::undefined;
use super::format::similar_to_escape;
use super::like_patterns::like;
use super::regular_expressions::by_pattern;
use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

/// The functions, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = [
        (unicode::substr(), ByteStringFunction::Part),
        (string::btrim(), ByteStringFunction::Trimmed(true, true)),
        (string::ltrim(), ByteStringFunction::Trimmed(true, false)),
        (string::rtrim(), ByteStringFunction::Trimmed(false, true)),
        (string::octet_length(), ByteStringFunction::Length(1)),
        (string::bit_length(), ByteStringFunction::Length(8)),
        (unicode::strpos(), ByteStringFunction::Place),
        (core::overlay(), ByteStringFunction::Overlay),
    ];
    all.into_iter().map(|(inner, what)| Arc::new(of_strings(inner, what))).collect()
}

fn of_strings(inner: Arc<ScalarUDF>, what: ByteStringFunction) -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::from(OfStrings { inner: Some(inner), what, signature })
}

/// Plans `~~` and its kin, of texts as LIKE, `^@`, which is `starts_with`, and what the grammar has forms of.
#[derive(Debug)]
pub(super) struct ByteStrings;

impl ExprPlanner for ByteStrings {
    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(of_strings(unicode::substr(), ByteStringFunction::Substring).call(args)))
    }

    fn plan_position(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(of_strings(unicode::strpos(), ByteStringFunction::Place).call(args)))
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(of_strings(core::overlay(), ByteStringFunction::Overlay).call(args)))
    }

    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if expr.op == BinaryOperator::PGStartsWith {
            let is_text = |side: &Expr| side.get_type(schema).is_ok_and(|of| of.is_string() || of.is_null());
            return Ok(match is_text(&expr.left) && is_text(&expr.right) {
                true => PlannerResult::Planned(string::starts_with().call(vec![expr.left, expr.right])),
                false => PlannerResult::Original(expr),
            });
        }
        let (negated, case_insensitive) = match expr.op {
            BinaryOperator::PGLikeMatch => (false, false),
            BinaryOperator::PGNotLikeMatch => (true, false),
            BinaryOperator::PGILikeMatch => (false, true),
            BinaryOperator::PGNotILikeMatch => (true, true),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let types = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        // What is said of LIKE holds of its operator then: errors of patterns, and blocks that are left out.
        if types.0.is_string() && types.1.is_string() {
            let (left, right) = (Box::new(expr.left), Box::new(expr.right));
            let like = Expr::Like(Like::new(negated, left, right, None, case_insensitive));
            return Ok(PlannerResult::Planned(like));
        }
        if !types.0.is_binary() || case_insensitive {
            return Ok(PlannerResult::Original(expr));
        }
        let signature = Signature::user_defined(Volatility::Immutable);
        let function = Arc::new(ScalarUDF::from(OfStrings { inner: None, what: ByteStringFunction::Like, signature }));
        let like = Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![expr.left, expr.right]));
        Ok(PlannerResult::Planned(if negated { Expr::Not(Box::new(like)) } else { like }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ByteStringFunction {
    Part,
    /// Of texts, by places or by a pattern.
    Substring,
    /// At the beginning, at the end.
    Trimmed(bool, bool),
    /// In units of which a byte has so many.
    Length(i32),
    Place,
    Overlay,
    Like,
}

impl ByteStringFunction {
    /// Whether there is such a function of so many arguments, the first of which are bytes; the others are numbers.
    fn n_bytes(self, n_args: usize) -> Option<usize> {
        match (self, n_args) {
            (ByteStringFunction::Part | ByteStringFunction::Substring, 2 | 3) | (ByteStringFunction::Length(_), 1) => {
                Some(1)
            }
            (ByteStringFunction::Trimmed(..) | ByteStringFunction::Place | ByteStringFunction::Like, 2)
            | (ByteStringFunction::Overlay, 3 | 4) => Some(2),
            _ => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfStrings {
    /// That of texts.
    inner: Option<Arc<ScalarUDF>>,
    what: ByteStringFunction,
    signature: Signature,
}

impl ScalarUDFImpl for OfStrings {
    fn name(&self) -> &str {
        self.inner.as_ref().map_or("tarn_like_bytes", |inner| inner.name())
    }

    fn aliases(&self) -> &[String] {
        self.inner.as_ref().map_or(&[], |inner| inner.aliases())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if self.is_by_pattern(types) {
            let are_texts = types.iter().all(|of| of.is_string() || of.is_null());
            return if are_texts {
                Ok(vec![DataType::Utf8; types.len()])
            } else {
                Err(undefined("substring", types).into())
            };
        }
        if let Some(inner) = self.inner.as_ref().filter(|_| !types.first().is_some_and(DataType::is_binary)) {
            // DataFusion's places in texts are of two types of integers.
            let wide = |of: &DataType| if *of == DataType::Int16 { DataType::Int32 } else { of.clone() };
            let fields: Vec<FieldRef> = types.iter().map(|of| Arc::new(Field::new("", wide(of), true))).collect();
            let coerced = fields_with_udf(&fields, inner.as_ref()).map_err(|_| undefined(self.name(), types))?;
            return Ok(coerced.iter().map(|field| field.data_type().clone()).collect());
        }
        let n_bytes = self.what.n_bytes(types.len()).ok_or_else(|| undefined(self.name(), types))?;
        let (bytes, numbers) = types.split_at(n_bytes);
        let are_taken = bytes.iter().all(|of| of.is_binary() || of.is_string() || of.is_null())
            && numbers.iter().all(|of| of.is_integer() || of.is_null());
        if !are_taken {
            return Err(undefined(self.name(), types).into());
        }
        let mut coerced = vec![DataType::Binary; n_bytes];
        coerced.resize(types.len(), DataType::Int64);
        Ok(coerced)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (&self.inner, self.what) {
            _ if self.is_by_pattern(types) => Ok(DataType::Utf8),
            (Some(inner), _) if !types[0].is_binary() => inner.return_type(types),
            (
                _,
                ByteStringFunction::Part
                | ByteStringFunction::Substring
                | ByteStringFunction::Trimmed(..)
                | ByteStringFunction::Overlay,
            ) => Ok(DataType::Binary),
            (_, ByteStringFunction::Length(_) | ByteStringFunction::Place) => Ok(DataType::Int32),
            (_, ByteStringFunction::Like) => Ok(DataType::Boolean),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        if let Some(inner) = self.inner.as_ref().filter(|_| !types[0].is_binary() && !self.is_by_pattern(&types)) {
            return inner.return_field_from_args(args);
        }
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, true)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.as_ref().and_then(|inner| inner.documentation())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        if self.is_by_pattern(&types) {
            return matched(args);
        }
        if let Some(inner) = self.inner.as_ref().filter(|_| !types[0].is_binary()) {
            return inner.invoke_with_args(args);
        }
        let rows = ArgumentRows::of(&args)?;
        let bytes = |idx: usize, row: usize| rows.columns[idx].as_binary::<i32>().value(row);
        let number = |idx: usize, row: usize| rows.columns[idx].as_primitive::<Int64Type>().value(row);
        let count = |idx: usize, row: usize| rows.columns.get(idx).map(|_| number(idx, row));
        let answer: ArrayRef = match self.what {
            ByteStringFunction::Part | ByteStringFunction::Substring => {
                let of = |row: usize| part(bytes(0, row), number(1, row), count(2, row));
                let all = rows.there().map(|row| row.map(of).transpose());
                Arc::new(all.collect::<Result<BinaryArray, SqlError>>()?)
            }
            ByteStringFunction::Trimmed(at_start, at_end) => {
                let of = |row: usize| trimmed(bytes(0, row), bytes(1, row), at_start, at_end);
                Arc::new(rows.there().map(|row| row.map(of)).collect::<BinaryArray>())
            }
            ByteStringFunction::Length(unit) => {
                let of = |row: usize| bytes(0, row).len() as i32 * unit;
                Arc::new(rows.there().map(|row| row.map(of)).collect::<Int32Array>())
            }
            ByteStringFunction::Place => {
                let of = |row: usize| place(bytes(0, row), bytes(1, row)).map_or(0, |at| at as i32 + 1);
                Arc::new(rows.there().map(|row| row.map(of)).collect::<Int32Array>())
            }
            ByteStringFunction::Overlay => {
                let of = |row: usize| overlaid(bytes(0, row), bytes(1, row), number(2, row), count(3, row));
                let all = rows.there().map(|row| row.map(of).transpose());
                Arc::new(all.collect::<Result<BinaryArray, SqlError>>()?)
            }
            ByteStringFunction::Like => {
                let of = |row: usize| like(bytes(0, row), bytes(1, row), |_| 1);
                let all = rows.there().map(|row| row.map(of).transpose());
                Arc::new(all.collect::<Result<BooleanArray, SqlError>>()?)
            }
        };
        rows.answer(answer)
    }
}

impl OfStrings {
    /// Of a text, what stands behind it is a text as well.
    fn is_by_pattern(&self, types: &[DataType]) -> bool {
        let is_text = |at: usize| types.get(at).is_some_and(DataType::is_string);
        self.what == ByteStringFunction::Substring
            && !types.first().is_some_and(DataType::is_binary)
            && (is_text(1) || is_text(2))
    }
}

/// What a regular expression matches; of three arguments it is one of SQL, with its escape.
fn matched(mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    if args.args.len() == 3 {
        let rows = ArgumentRows::of(&args)?;
        let text = |idx: usize, row: usize| rows.columns[idx].as_string::<i32>().value(row);
        let of = |row: usize| similar_to_escape(&[Some(text(1, row)), Some(text(2, row))]);
        let patterns = rows.there().map(|row| row.map_or(Ok(None), of));
        let patterns: ArrayRef = Arc::new(patterns.collect::<Result<StringArray, SqlError>>()?);
        args.args.truncate(1);
        args.args.push(rows.answer(patterns)?);
        args.arg_fields.truncate(2);
    }
    by_pattern().invoke_with_args(args)
}

/// So many bytes from a place on, which is counted from 1 and may lie before the first.
fn part(bytes: &[u8], from: i64, count: Option<i64>) -> Result<&[u8], SqlError> {
    let end = match count {
        Some(..0) => {
            return Err(SqlError::new(state::SUBSTRING, "negative substring length not allowed"));
        }
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let place = |at: i64| usize::try_from(at - 1).unwrap_or(0).min(bytes.len());
    let (first, last) = (place(from.max(1)), place(end.max(1)));
    Ok(&bytes[first..last.max(first)])
}

/// Without the bytes of a set at its ends.
fn trimmed<'a>(bytes: &'a [u8], set: &[u8], at_start: bool, at_end: bool) -> &'a [u8] {
    let is_kept = |byte: &u8| !set.contains(byte);
    let first = if at_start { bytes.iter().position(is_kept).unwrap_or(bytes.len()) } else { 0 };
    let last = if at_end { bytes.iter().rposition(is_kept).map_or(0, |at| at + 1) } else { bytes.len() };
    &bytes[first..last.max(first)]
}

fn place(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    match wanted.is_empty() {
        true => Some(0),
        false => bytes.windows(wanted.len()).position(|window| window == wanted),
    }
}

/// With others in the place of so many bytes, or of as many as the others are.
fn overlaid(bytes: &[u8], others: &[u8], from: i64, count: Option<i64>) -> Result<Vec<u8>, SqlError> {
    if from < 1 {
        return Err(SqlError::new(state::SUBSTRING, "negative substring length not allowed"));
    }
    let behind = from.saturating_add(count.unwrap_or(others.len() as i64));
    let (before, rest) = (part(bytes, 1, Some(from - 1))?, part(bytes, behind, None)?);
    Ok([before, others, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn bytes_are_cut() {
        let of = |from, count| part(b"abc", from, count).unwrap();
        assert_eq!([of(2, None), of(0, Some(2)), of(-5, None), of(2, Some(1))], [b"bc" as &[u8], b"a", b"abc", b"b"]);
        assert_eq!([of(9, None), of(i64::MIN, Some(3)), of(3, Some(i64::MAX))], [b"" as &[u8], b"", b"c"]);
        assert!(part(b"abc", 2, Some(-1)).is_err());
        assert_eq!(trimmed(b"xyaxy", b"yx", true, true), b"a");
        assert_eq!(trimmed(b"xx", b"x", true, true), b"");
        assert_eq!([place(b"abc", b"c"), place(b"abc", b""), place(b"", b"c")], [Some(2), Some(0), None]);
        assert_eq!(overlaid(b"abc", b"X", 2, Some(1)).unwrap(), b"aXc");
        assert_eq!(overlaid(b"abc", b"XY", 9, None).unwrap(), b"abcXY");
        assert!(overlaid(b"abc", b"X", 0, None).is_err());
    }
}
