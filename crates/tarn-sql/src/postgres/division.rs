//! How many digits has `5 / 3.0`? PostgreSQL gives at least sixteen that count, and rounds the last one. DataFusion gives four more than the
//! left side has, and cuts.
//!
//! Here a quotient has twenty digits behind the point, fewer where the whole part may need the room (at least sixteen, or as many as a side has),
//! and the last one is rounded half away from zero. What needs more than 38 digits in all is an error.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum, Decimal128Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type, i256};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::{BinaryKernel, each_expression, operator_function};

use super::integers::out_of_range;
use crate::error::{SqlError, state};

/// Digits behind the point, where there is room.
const DIGITS: i8 = 20;
/// PostgreSQL's fewest digits that count.
const MIN_DIGITS: i8 = 16;

/// Digits of a group, in which PostgreSQL keeps numbers.
const GROUP: i32 = 4;

/// The rule; it runs before types are made one, for the type of a quotient is another than DataFusion's.
#[derive(Debug)]
pub(super) struct NumericDivision(Arc<ScalarUDF>);

impl NumericDivision {
    pub(super) fn new() -> NumericDivision {
        NumericDivision(Arc::new(operator_function(Quotient)))
    }

    fn rewritten(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right }) if is_numeric(&left, &right, schema) => {
                if let Some(quotient) = written_out(&left, &right) {
                    return Ok(Transformed::yes(Expr::Literal(quotient, None)));
                }
                let call = ScalarFunction::new_udf(Arc::clone(&self.0), vec![*left, *right]);
                Transformed::yes(Expr::ScalarFunction(call))
            }
            other => Transformed::no(other),
        })
    }
}

impl AnalyzerRule for NumericDivision {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.rewritten(expr, schema))
    }

    fn name(&self) -> &str {
        "numeric_division"
    }
}

/// Two numbers, of which one is a `numeric` and none a float.
fn is_numeric(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    let (Ok(left), Ok(right)) = (left.get_type(schema), right.get_type(schema)) else { return false };
    let is_number = |of: &DataType| of.is_integer() || matches!(of, DataType::Decimal128(..));
    is_number(&left) && is_number(&right) && (left.is_decimal() || right.is_decimal())
}

/// Of two numbers that are written out, with exactly the digits that PostgreSQL gives: they hang on the numbers, which a column's type does
/// not say. `None`: something else, or too long.
fn written_out(left: &Expr, right: &Expr) -> Option<ScalarValue> {
    let ((left, left_scale), (right, right_scale)) = (literal(left)?, literal(right)?);
    let ((left_weight, left_digit), (right_weight, right_digit)) = (first(left, left_scale), first(right, right_scale));
    let weight = left_weight - right_weight - i32::from(left_digit <= right_digit);
    let digits = i32::from(MIN_DIGITS) - weight * GROUP;
    let scale = i8::try_from(digits.max(left_scale.into()).max(right_scale.into()).max(0)).ok()?;
    let shift = scale.checked_add(right_scale)?.checked_sub(left_scale)?;
    let quotient = Division::new(shift).of(left, right).ok()?;
    (scale <= DECIMAL128_MAX_SCALE).then_some(ScalarValue::Decimal128(Some(quotient), DECIMAL128_MAX_PRECISION, scale))
}

fn literal(expr: &Expr) -> Option<(i128, i8)> {
    match expr {
        Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), _) if *scale >= 0 => Some((*value, *scale)),
        Expr::Literal(ScalarValue::Int32(Some(value)), _) => Some(((*value).into(), 0)),
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some(((*value).into(), 0)),
        Expr::Negative(inner) => literal(inner).map(|(value, scale)| (-value, scale)),
        _ => None,
    }
}

/// PostgreSQL counts in groups of four digits from the point on: where the first group lies that is not zero, and what it is.
fn first(value: i128, scale: i8) -> (i32, u128) {
    let (value, scale) = (value.unsigned_abs(), i32::from(scale));
    if value == 0 {
        return (0, 0);
    }
    let weight = (value.ilog10() as i32 - scale).div_euclid(GROUP);
    let unit = weight * GROUP + scale;
    let group = match u32::try_from(unit) {
        Ok(unit) => value / 10_u128.pow(unit),
        Err(_) => value * 10_u128.pow(unit.unsigned_abs()),
    };
    (weight, group)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Quotient;

/// A number as a `numeric`.
fn numeric(of: &DataType) -> Result<DataType> {
    Ok(match of {
        DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, *scale),
        DataType::Int8 => DataType::Decimal128(3, 0),
        DataType::Int16 | DataType::UInt8 => DataType::Decimal128(5, 0),
        DataType::Int32 | DataType::UInt16 => DataType::Decimal128(10, 0),
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => DataType::Decimal128(20, 0),
        other => return exec_err!("numeric division of {other}"),
    })
}

fn parts(of: &DataType) -> Result<(i8, i8)> {
    let DataType::Decimal128(precision, scale) = of else { return exec_err!("numeric division of {of}") };
    Ok((*precision as i8, *scale))
}

impl BinaryKernel for Quotient {
    fn symbol(&self) -> &'static str {
        "/"
    }

    fn coerced(&self, left: &DataType, right: &DataType) -> Result<(DataType, DataType)> {
        Ok((numeric(left)?, numeric(right)?))
    }

    fn result(&self, left: &DataType, right: &DataType) -> Result<DataType> {
        let ((precision, left_scale), (_, right_scale)) = (parts(&numeric(left)?)?, parts(&numeric(right)?)?);
        // The least divisor makes the whole part longer by its own digits.
        let whole = precision - left_scale + right_scale;
        let least = MIN_DIGITS.max(left_scale).max(right_scale);
        let scale = (DECIMAL128_MAX_PRECISION as i8 - whole).min(DIGITS).max(least);
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale))
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
        let result = self.result(left.data_type(), right.data_type())?;
        let ((_, left_scale), (_, right_scale), (_, scale)) =
            (parts(left.data_type())?, parts(right.data_type())?, parts(&result)?);
        let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
        let division = Division::new(scale + right_scale - left_scale);
        let n_rows = if left_is_one { right.len() } else { left.len() };
        let at = |array: &Decimal128Array, is_one: bool, row: usize| {
            let row = if is_one { 0 } else { row };
            array.is_valid(row).then(|| array.value(row))
        };
        let quotient = |row: usize| match (at(left, left_is_one, row), at(right, right_is_one, row)) {
            (Some(left), Some(right)) => division.of(left, right).map(Some),
            _ => Ok(None),
        };
        let quotients = (0..n_rows).map(quotient).collect::<Result<Decimal128Array, SqlError>>()?;
        Ok(Arc::new(quotients.with_data_type(result)))
    }
}

/// `left × 10^shift ÷ right`, rounded.
struct Division {
    /// Where it fits.
    factor: Option<i128>,
    wide_factor: i256,
}

impl Division {
    /// A quotient has as many digits as each side, at least: the shift is never negative.
    fn new(shift: i8) -> Division {
        let shift = shift.unsigned_abs().into();
        Division {
            factor: 10_i128.checked_pow(shift),
            wide_factor: i256::from_i128(10).checked_pow(shift).unwrap_or(i256::MAX),
        }
    }

    fn of(&self, left: i128, right: i128) -> Result<i128, SqlError> {
        if right == 0 {
            return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
        }
        let narrow = self.factor.and_then(|factor| left.checked_mul(factor));
        let quotient = match narrow {
            Some(dividend) => {
                let (quotient, rest) = (dividend / right, dividend % right);
                // Twice the rest may not fit, half of the divisor does.
                let is_up = rest.unsigned_abs() >= right.unsigned_abs() - rest.unsigned_abs();
                quotient + i128::from(is_up) * (dividend.signum() * right.signum())
            }
            None => self.wide(left, right)?,
        };
        match quotient.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into()) {
            true => Ok(quotient),
            false => Err(Division::too_long()),
        }
    }

    fn wide(&self, left: i128, right: i128) -> Result<i128, SqlError> {
        let dividend = i256::from_i128(left).checked_mul(self.wide_factor).ok_or_else(Division::too_long)?;
        let divisor = i256::from_i128(right);
        let (quotient, rest) = (dividend.wrapping_div(divisor), dividend.wrapping_rem(divisor));
        let is_up = rest.wrapping_abs() >= divisor.wrapping_abs().wrapping_sub(rest.wrapping_abs());
        let step = if is_up { left.signum() * right.signum() } else { 0 };
        quotient.wrapping_add(i256::from_i128(step)).to_i128().ok_or_else(Division::too_long)
    }

    fn too_long() -> SqlError {
        out_of_range("numeric").with_detail("a number has at most 38 digits, those behind the point among them")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_half_away_from_zero() {
        let of = |shift, left, right| Division::new(shift).of(left, right).unwrap();
        assert_eq!(of(0, 7, 2), 4);
        assert_eq!(of(0, -7, 2), -4);
        assert_eq!(of(0, 7, -2), -4);
        assert_eq!(of(0, 1, 3), 0);
        assert_eq!(of(0, -2, 3), -1);
        assert_eq!(of(4, 5, 3), 16667);
        assert_eq!(of(0, i128::MAX / 2 - 1, i128::MAX - 1), 0, "less than half");
        // Beyond 128 bits on the way.
        let long = 10_i128.pow(37);
        assert_eq!(of(20, 2 * long, 3 * long), 66_666_666_666_666_666_667);
        assert_eq!(of(20, -2 * long, 3 * long), -66_666_666_666_666_666_667);
    }

    #[test]
    fn what_is_too_long_or_divided_by_nothing_is_an_error() {
        let of = |shift, left, right| Division::new(shift).of(left, right).unwrap_err().state();
        assert_eq!(of(0, 1, 0), state::DIVISION_BY_ZERO);
        assert_eq!(of(20, 10_i128.pow(37), 1), state::NUMERIC_OUT_OF_RANGE);
        assert_eq!(of(37, 10, 1), state::NUMERIC_OUT_OF_RANGE);
    }

    /// The digits are PostgreSQL's.
    #[test]
    fn numbers_that_are_written_out_have_its_digits() {
        let of = |left: (i128, i8), right: (i128, i8)| {
            let literal = |(value, scale)| Expr::Literal(ScalarValue::Decimal128(Some(value), 38, scale), None);
            match written_out(&literal(left), &literal(right)) {
                Some(ScalarValue::Decimal128(Some(value), _, scale)) => (value, scale),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of((5, 0), (30, 1)), (16_666_666_666_666_667, 16));
        assert_eq!(of((10, 1), (3, 0)), (33_333_333_333_333_333_333, 20));
        assert_eq!(of((10, 1), (300_000, 0)), (3_333_333_333_333_333_333, 24));
        assert_eq!(of((1000, 1), (3, 0)), (333_333_333_333_333_333, 16));
        assert_eq!(of((100_000, 0), (70, 1)), (14_285_714_285_714_286, 12));
    }

    #[test]
    fn the_whole_part_has_room() {
        let of = |left: (u8, i8), right: (u8, i8)| {
            Quotient.result(&DataType::Decimal128(left.0, left.1), &DataType::Decimal128(right.0, right.1)).unwrap()
        };
        assert_eq!(of((15, 2), (15, 2)), DataType::Decimal128(38, 20));
        assert_eq!(of((25, 2), (20, 0)), DataType::Decimal128(38, 16));
        assert_eq!(of((38, 30), (38, 25)), DataType::Decimal128(38, 30));
    }
}
