//! How many digits has a product? As many behind the point as both sides together. DataFusion refuses what would be
//! more than 38, and has no room before the point for what is almost as many: averages and quotients have twenty each.
//!
//! There a product has twenty digits behind the point, or as many as a side has, rounded half away from zero: averages
//! and quotients have zeros at their ends, which are not missed. What needs more than 38 digits in all is an error.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum, Decimal128Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, i256};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF};
use tarn_query::sqlparser::ast::BinaryOperator;
use tarn_query::{BinaryKernel, datafusion, operator_function};

use super::averages::digits_of;
use super::division::{long_quotient, scale_of};
use crate::error::SqlError;

/// Digits before the point that a product has room for, at least.
const MIN_WHOLE: i8 = 14;

/// The function of such a product.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(operator_function(Product))
}

/// Plans such products, which have no type in DataFusion.
#[derive(Debug)]
pub(super) struct LongProducts;

impl ExprPlanner for LongProducts {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        if expr.op != BinaryOperator::Multiply || !is_long(&expr.left, &expr.right, schema) {
            return Ok(PlannerResult::Original(expr));
        }
        let call = ScalarFunction::new_udf(function(), vec![expr.left, expr.right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// Two numerics, of whose product the whole part may have no room.
pub(super) fn is_long(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    let digits = |side: &Expr| match side.get_type(schema) {
        Ok(of @ DataType::Decimal128(..)) => digits_of(&of),
        _ => None,
    };
    let Some(((left_whole, left), (right_whole, right))) = digits(left).zip(digits(right)) else { return false };
    let room = DECIMAL128_MAX_PRECISION as i8 - left.saturating_add(right);
    left >= 0 && right >= 0 && room < MIN_WHOLE.min(left_whole + right_whole)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Product;

impl BinaryKernel for Product {
    fn symbol(&self) -> &'static str {
        "*"
    }

    fn result(&self, left: &DataType, right: &DataType) -> Result<DataType> {
        let Some(((left_whole, left), (right_whole, right))) = digits_of(left).zip(digits_of(right)) else {
            return exec_err!("numeric product of {left} and {right}");
        };
        let scale = scale_of((left_whole + right_whole).min(DECIMAL128_MAX_PRECISION as i8), left.max(right));
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale.min(left.saturating_add(right))))
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
        let result = self.result(left.data_type(), right.data_type())?;
        let DataType::Decimal128(_, scale) = result else { return exec_err!("numeric product of {result}") };
        let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
        let behind = i32::from(left.scale()) + i32::from(right.scale());
        let n_rows = if left_is_one { right.len() } else { left.len() };
        let at = |array: &Decimal128Array, is_one: bool, row: usize| {
            let row = if is_one { 0 } else { row };
            array.is_valid(row).then(|| i256::from_i128(array.value(row)))
        };
        // At most 76 digits.
        let product = |row: usize| at(left, left_is_one, row).zip(at(right, right_is_one, row));
        let product = |row: usize| product(row).map(|(left, right)| left.wrapping_mul(right));
        let rounded = |product: i256| long_quotient(product, behind, i256::ONE, scale.into());
        let products = (0..n_rows).map(|row| product(row).map(rounded).transpose());
        let products = products.collect::<Result<Decimal128Array, SqlError>>()?;
        Ok(Arc::new(products.with_data_type(result)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_have_room_and_are_rounded() {
        let of = |values: Vec<i128>, precision, scale| {
            Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()
        };
        let left = of(vec![166_666_666_666_666_670_000, -25 * 10_i128.pow(19)], 30, 20);
        let right = of(vec![166_666_666_666_666_670_000, 2 * 10_i128.pow(20)], 38, 20);
        let products = Product.compute(&left, &right).unwrap();
        assert_eq!(*products.data_type(), DataType::Decimal128(38, 20));
        let products = products.as_primitive::<Decimal128Type>();
        assert_eq!([products.value(0), products.value(1)], [277_777_777_777_777_788_889, -500_000_000_000_000_000_000]);
    }
}
