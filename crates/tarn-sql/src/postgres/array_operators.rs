//! Have two arrays an item in common? `a && b`, which the planner refuses. No NULL is in common, nor in an array for
//! `@>`. A text beside an array, here and in comparisons, is one of its type. And what is `a || NULL`? The array: a
//! NULL that is written out is no item, and `a || '{x}'` are two arrays. A parameter beside an array, `tags @> $1`, is
//! one of its type.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::functions_nested::expr_fn::{array_compact, array_concat, array_has_all, array_has_any, cardinality};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, when};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{self, BinaryOperator, Function, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::calls::{is_named, take};
use super::common_types::is_written;

/// Plans the operator.
#[derive(Debug)]
pub(super) struct ArrayOperators;

impl ExprPlanner for ArrayOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{ArrowAt, AtArrow, Eq, Gt, GtEq, Lt, LtEq, NotEq, PGOverlap, StringConcat};
        if !matches!(expr.op, PGOverlap | StringConcat | Eq | NotEq | Lt | LtEq | Gt | GtEq | AtArrow | ArrowAt) {
            return Ok(PlannerResult::Original(expr));
        }
        let mut expr = expr;
        typed(&mut expr.left, &expr.right, schema);
        typed(&mut expr.right, &expr.left, schema);
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        if !left.is_list() && !right.is_list() {
            return Ok(PlannerResult::Original(expr));
        }
        let as_array = |side: Expr, of: &DataType| Expr::Cast(Cast::new(Box::new(side), of.clone()));
        if expr.op == StringConcat {
            let RawBinaryExpr { left: one, right: two, op } = expr;
            return Ok(match () {
                () if right.is_null() => PlannerResult::Planned(one),
                () if left.is_null() => PlannerResult::Planned(two),
                // A text that is written out is an array, and no item.
                () if is_written(&two) => PlannerResult::Planned(array_concat(vec![one, as_array(two, &left)])),
                () if is_written(&one) => PlannerResult::Planned(array_concat(vec![as_array(one, &right), two])),
                () => PlannerResult::Original(RawBinaryExpr { left: one, right: two, op }),
            });
        }
        if matches!(expr.op, PGOverlap | AtArrow | ArrowAt) && (left.is_null() || right.is_null()) {
            return Ok(PlannerResult::Planned(Expr::Literal(ScalarValue::Boolean(None), None)));
        }
        let of = |side: Expr, own: &DataType, other: &DataType| match own.is_string() && other.is_list() {
            true => as_array(side, other),
            false => side,
        };
        let sides = (of(expr.left, &left, &right), of(expr.right, &right, &left));
        Ok(match expr.op {
            PGOverlap => {
                let are_common = array_has_any(sides.0.clone(), array_compact(sides.1.clone()));
                PlannerResult::Planned(known(are_common, [sides.0, sides.1])?)
            }
            AtArrow => PlannerResult::Planned(contains(sides.0, sides.1)?),
            ArrowAt => PlannerResult::Planned(contains(sides.1, sides.0)?),
            op => PlannerResult::Original(RawBinaryExpr { left: sides.0, right: sides.1, op }),
        })
    }
}

/// `array_cat(a, NULL)` is `a`, as `a || NULL` is.
pub(super) fn without_null(expr: &mut ast::Expr) {
    let ast::Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return };
    if !is_named(name, "array_cat") {
        return;
    }
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(one)), FunctionArg::Unnamed(FunctionArgExpr::Expr(two))] =
        &mut list.args[..]
    else {
        return;
    };
    let is_null = |of: &ast::Expr| matches!(of, ast::Expr::Value(of) if of.value == ast::Value::Null);
    let array = match (is_null(one), is_null(two)) {
        (true, false) => take(two),
        (false, true) => take(one),
        _ => return,
    };
    *expr = ast::Expr::Nested(Box::new(array));
}

/// Whether all items of the second array are in the first. A NULL is in none.
fn contains(array: Expr, items: Expr) -> Result<Expr> {
    let has_no_null = cardinality(array_compact(items.clone())).eq(cardinality(items.clone()));
    known(array_has_all(array.clone(), items.clone()).and(has_no_null), [array, items])
}

/// Of an array that is NULL nobody knows.
fn known(answer: Expr, sides: [Expr; 2]) -> Result<Expr> {
    let may_be_null = |side: &Expr| !matches!(side, Expr::Literal(of, _) if !of.is_null());
    let are_there = sides.into_iter().filter(may_be_null).map(Expr::is_not_null).reduce(Expr::and);
    are_there.map_or(Ok(answer.clone()), |are_there| when(are_there, answer).end())
}

/// A parameter that stands beside an array.
fn typed(side: &mut Expr, beside: &Expr, schema: &DFSchema) {
    if let Expr::Placeholder(parameter) = side
        && parameter.field.is_none()
        && let Ok((_, array)) = beside.to_field(schema)
        && array.data_type().is_list()
    {
        parameter.field = Some(Arc::new(array.as_ref().clone().with_name("").with_nullable(true)));
    }
}
