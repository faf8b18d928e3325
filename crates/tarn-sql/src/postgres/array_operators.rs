//! Have two arrays an item in common? `a && b`, which the planner refuses. A text beside an array, here and in comparisons, is one of its type. And what is `a || NULL`? The
//! array: a NULL that is written out is no item.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::functions_nested::expr_fn::array_has_any;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::BinaryOperator;

/// Plans the operator.
#[derive(Debug)]
pub(super) struct ArrayOperators;

impl ExprPlanner for ArrayOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{ArrowAt, AtArrow, Eq, Gt, GtEq, Lt, LtEq, NotEq, PGOverlap, StringConcat};
        if !matches!(expr.op, PGOverlap | StringConcat | Eq | NotEq | Lt | LtEq | Gt | GtEq | AtArrow | ArrowAt) {
            return Ok(PlannerResult::Original(expr));
        }
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        if expr.op == StringConcat {
            return Ok(match (left.is_list() && right.is_null(), left.is_null() && right.is_list()) {
                (true, _) => PlannerResult::Planned(expr.left),
                (_, true) => PlannerResult::Planned(expr.right),
                _ => PlannerResult::Original(expr),
            });
        }
        let of = |side: Expr, own: &DataType, other: &DataType| match own.is_string() && other.is_list() {
            true => Expr::Cast(Cast::new(Box::new(side), other.clone())),
            false => side,
        };
        if !left.is_list() && !right.is_list() {
            return Ok(PlannerResult::Original(expr));
        }
        let sides = (of(expr.left, &left, &right), of(expr.right, &right, &left));
        Ok(match expr.op {
            PGOverlap => PlannerResult::Planned(array_has_any(sides.0, sides.1)),
            op => PlannerResult::Original(RawBinaryExpr { left: sides.0, right: sides.1, op }),
        })
    }
}
