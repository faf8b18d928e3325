//! What is an address, `'10.1.2.3/8'::inet`, to a statement? Large bytes to the planner, which nothing else is here
//! ([`tarn_types::inet`]): so its type is known wherever a value goes, and what compares, sorts and groups bytes does
//! so with addresses in PostgreSQL's order. A text becomes one by a cast, the planner's own ones too (`casts`).
//!
//! - `function`: `host`, `family`, `masklen` and their kin, and what operators are
//! - `operators`: `<<`, `>>=`, `&&`, `~`, `+`, and what no operator is of
//! - `checked`: what other functions, casts and comparisons make of addresses: nothing, but for a few

mod checked;
mod function;
mod operators;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryBuilder, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF};
use datafusion::scalar::ScalarValue;
use tarn_query::{Rule, datafusion};
use tarn_types::Inet;

use super::json::is_untyped;
use crate::error::{SqlError, state};
use crate::rows::{long_name, pg_type};

/// The type of addresses.
pub(super) const INET: DataType = DataType::LargeBinary;

/// The functions that statements name.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    function::functions()
}

/// Plans the operators; before those of other types are asked.
pub(super) fn planner() -> Arc<dyn ExprPlanner> {
    Arc::new(operators::InetOperators)
}

/// Of expressions as they are written; before other rules ask for types.
pub(super) fn rules() -> Vec<Rule> {
    vec![Arc::new(checked::CheckedInets)]
}

/// Texts as addresses.
///
/// Errors: `22P02`.
pub(super) fn inets_of_texts(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let mut all = LargeBinaryBuilder::with_capacity(texts.len(), 10 * texts.len());
    for text in texts.as_string_view() {
        match text {
            Some(text) => all.append_value(read(text)?.to_bytes()),
            None => all.append_null(),
        }
    }
    Ok(Arc::new(all.finish()))
}

/// Addresses as texts, each with its mask.
pub(super) fn texts_of_inets(inets: &ArrayRef) -> Result<ArrayRef> {
    let mut all = StringBuilder::with_capacity(inets.len(), 16 * inets.len());
    for bytes in inets.as_binary::<i64>() {
        match bytes {
            Some(bytes) => all.append_value(Inet::of_row(bytes).map_err(SqlError::from)?.full_text()),
            None => all.append_null(),
        }
    }
    Ok(Arc::new(all.finish()))
}

/// What has no type yet, as an address: a text is read, and a parameter told.
///
/// Errors: `22P02`.
fn as_inet(of: Expr) -> Result<Expr> {
    Ok(match of {
        Expr::Placeholder(mut parameter) => {
            parameter.field = Some(Arc::new(Field::new("", INET, true)));
            Expr::Placeholder(parameter)
        }
        Expr::Literal(value, _) => {
            let read = value.try_as_str().flatten().map(|text| read(text).map(Inet::to_bytes)).transpose()?;
            Expr::Literal(ScalarValue::LargeBinary(read), None)
        }
        of => of,
    })
}

fn read(text: &str) -> Result<Inet, SqlError> {
    let message = || format!("invalid input syntax for type inet: \"{text}\"");
    text.parse().map_err(|_| SqlError::new(state::INVALID_TEXT, message()))
}

/// Whether it is an address, as far as it is known.
fn is_inet(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| of == INET)
}

/// What PostgreSQL calls the type of an expression.
fn called(expr: &Expr, schema: &DFSchema) -> String {
    if is_untyped(expr) {
        return "unknown".to_owned();
    }
    let field = expr.to_field(schema).map(|(_, field)| field);
    let name = |field: &Field| pg_type(field).ok().map(|of| long_name(&of));
    field.ok().and_then(|field| name(&field)).unwrap_or_else(|| "unknown".to_owned())
}

/// `42883`
fn no_operator(left: &str, op: &str, right: &str) -> SqlError {
    let message = format!("operator does not exist: {left} {op} {right}");
    SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast one of them")
}
