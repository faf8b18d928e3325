//! What is `x * '-1'`? A text that is written out beside an operator is of the type of the other side: here a number,
//! an interval, or a date or time that another is taken from (`d - '2024-01-01'`). DataFusion takes it for a text, and
//! knows no product with one. Beside a `char(n)` it is one, too, and so is compared without the blanks at its end.

use arrow::datatypes::DataType;
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

/// Plans the operators.
#[derive(Debug)]
pub(super) struct UnknownOperands;

impl ExprPlanner for UnknownOperands {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Modulo, Multiply, NotEq, Plus};
        let RawBinaryExpr { op, left, right } = expr;
        let (left, right) = match op {
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

/// What a text is that is added to an interval or to a moment, or taken from one, or that one is taken from.
fn beside_time(is_taken: bool, other: &Expr, schema: &DFSchema) -> Option<DataType> {
    match other.get_type(schema).ok()? {
        DataType::Interval(_) | DataType::Duration(_) => Some(INTERVAL),
        moment @ DataType::Timestamp(..) => Some(if is_taken { moment } else { INTERVAL }),
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
