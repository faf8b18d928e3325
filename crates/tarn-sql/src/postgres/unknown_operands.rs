//! What is `x * '-1'`? A text that is written out beside an operator is of the type of the other side: here a number,
//! an interval, a date or time that another is taken from (`d - '2024-01-01'`), or bytes (`raw || 'b'`). DataFusion
//! takes it for a text, and knows no product with one. An interval is multiplied with a number, and so is a text beside
//! it one. Beside a `char(n)` it is a `char(n)`, too, and so is compared without the blanks at its end. A parameter
//! without a type beside an interval, or added to a time, is of the type that a text has there.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::BinaryOperator;

use super::filled;
use super::interval_aggregates::INTERVAL;
use super::numeric::numeric;
use crate::error::{SqlError, state};

/// Plans the operators.
#[derive(Debug)]
pub(super) struct UnknownOperands;

impl ExprPlanner for UnknownOperands {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Modulo, Multiply, NotEq, Plus, StringConcat};
        let RawBinaryExpr { op, mut left, mut right } = expr;
        type_parameter(&mut right, &op, &left, schema);
        if op != Divide {
            type_parameter(&mut left, &op, &right, schema);
        }
        let (left, right) = match op {
            Plus if is_written(&right) && is_date(&left, schema) => return Err(not_unique("date + unknown").into()),
            Plus if is_written(&left) && is_date(&right, schema) => return Err(not_unique("unknown + date").into()),
            StringConcat => {
                let left = as_bytes(&right, left, schema);
                let right = as_bytes(&left, right, schema);
                (left, right)
            }
            Multiply | Divide if is_written(&right) && is_interval(&left, schema) => {
                (left, cast(right, DataType::Float64))
            }
            Multiply if is_written(&left) && is_interval(&right, schema) => (cast(left, DataType::Float64), right),
            Plus | Minus if is_written(&right) => {
                let right = match beside_time(op == Minus, &left, schema) {
                    Some(to) => cast(right, to),
                    None => as_type_of(&left, right, schema),
                };
                (left, right)
            }
            Plus if is_written(&left) && beside_time(false, &right, schema).is_some() => (cast(left, INTERVAL), right),
            Minus if is_written(&left) => {
                let left = match beside_time(true, &right, schema) {
                    Some(to) => cast(left, to),
                    None => as_type_of(&right, left, schema),
                };
                (left, right)
            }
            Plus | Minus | Multiply | Divide | Modulo => match (is_written(&left), is_written(&right)) {
                (true, false) => (as_type_of(&right, left, schema), right),
                (false, true) => {
                    let right = as_type_of(&left, right, schema);
                    (left, right)
                }
                _ => (left, right),
            },
            Eq | NotEq | Lt | LtEq | Gt | GtEq => {
                let left = as_interval(&right, filled::beside(&right, left, schema), schema);
                let right = as_interval(&left, filled::beside(&left, right, schema), schema);
                (left, right)
            }
            _ => (left, right),
        };
        Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
    }
}

fn is_written(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), _))
}

/// Of a date and a text that is added, which may be days, an interval or a time of day.
fn not_unique(operands: &str) -> SqlError {
    let message = format!("operator is not unique: {operands}");
    SqlError::new(state::AMBIGUOUS_FUNCTION, message).with_hint("cast one of them")
}

fn is_date(of: &Expr, schema: &DFSchema) -> bool {
    matches!(of.get_type(schema), Ok(DataType::Date32))
}

fn is_interval(of: &Expr, schema: &DFSchema) -> bool {
    matches!(of.get_type(schema), Ok(DataType::Interval(_) | DataType::Duration(_)))
}

/// A text that is written out beside bytes is bytes.
fn as_bytes(other: &Expr, text: Expr, schema: &DFSchema) -> Expr {
    if !is_written(&text) {
        return text;
    }
    match other.get_type(schema) {
        // Large ones are addresses.
        Ok(of @ (DataType::Binary | DataType::BinaryView)) => cast(text, of),
        _ => text,
    }
}

/// Gives a parameter of which nothing is known the type of a text that is written out in its place.
fn type_parameter(parameter: &mut Expr, op: &BinaryOperator, beside: &Expr, schema: &DFSchema) {
    let Expr::Placeholder(parameter) = parameter else { return };
    let of = match op {
        _ if parameter.field.is_some() => None,
        BinaryOperator::Plus | BinaryOperator::Minus => beside_time(*op == BinaryOperator::Minus, beside, schema),
        BinaryOperator::Multiply | BinaryOperator::Divide if is_interval(beside, schema) => Some(DataType::Float64),
        _ => None,
    };
    if let Some(of) = of {
        parameter.field = Some(Arc::new(Field::new("", of, true)));
    }
}

/// What a text is that is added to an interval or to a moment, or taken from one, or that one is taken from.
fn beside_time(is_taken: bool, other: &Expr, schema: &DFSchema) -> Option<DataType> {
    match other.get_type(schema).ok()? {
        DataType::Interval(_) | DataType::Duration(_) => Some(INTERVAL),
        moment @ DataType::Timestamp(..) => Some(if is_taken { moment } else { INTERVAL }),
        DataType::Time64(_) => Some(if is_taken { DataType::Time64(TimeUnit::Microsecond) } else { INTERVAL }),
        // What is added to a date may be days, an interval or a time of day: only where one is taken, it is clear.
        DataType::Date32 if is_taken => Some(DataType::Date32),
        _ => None,
    }
}

/// A text that is compared with an interval is one.
fn as_interval(other: &Expr, text: Expr, schema: &DFSchema) -> Expr {
    match other.get_type(schema) {
        Ok(DataType::Interval(_) | DataType::Duration(_)) if is_written(&text) => cast(text, INTERVAL),
        _ => text,
    }
}

/// A text as what it stands beside is, if that is a number.
fn as_type_of(other: &Expr, text: Expr, schema: &DFSchema) -> Expr {
    match other.get_type(schema) {
        // With digits of its own.
        Ok(DataType::Decimal128(..)) => numeric().call(vec![text]),
        Ok(of) if of.is_numeric() => cast(text, of),
        _ => text,
    }
}
