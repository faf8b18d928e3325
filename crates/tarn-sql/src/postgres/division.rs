//! How many digits has `5 / 3.0`? PostgreSQL gives at least sixteen that count, and rounds the last one. DataFusion
//! gives four more than the left side has, and cuts.
//!
//! Here a column of quotients has twenty digits behind the point, fewer where the whole part may need the room (at
//! least sixteen, or as many as a side has). Each of them is rounded, half away from zero, to the digits that
//! PostgreSQL gives it, so that it is PostgreSQL's number; the zeros that fill it up are not shown (`digits`). What
//! needs more than 38 digits in all is an error.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum, Decimal128Array};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type, Field, FieldRef, i256,
};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::{BinaryKernel, operator_function};

use super::integers::out_of_range;
use super::numeric::{NUMERIC, written};
use crate::digits::{Digits, GROUP, MIN_DIGITS, Rule};
use crate::error::{SqlError, state};

/// Digits behind the point, where there is room.
const DIGITS: i8 = 20;

/// The powers of ten that fit.
pub(super) const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// The quotient of two numbers that [`is_numeric`]; of two that are written out it is one, too.
pub(super) fn planned(function: &Arc<ScalarUDF>, left: Expr, right: Expr) -> Expr {
    match written_out(&left, &right) {
        Some(quotient) => Expr::Literal(quotient, None),
        None => Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![left, right])),
    }
}

/// The function of such a quotient.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(operator_function(Quotient))
}

/// Two numbers, of which one is a `numeric` and none a float.
pub(super) fn is_numeric(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    let (Ok(left), Ok(right)) = (left.get_type(schema), right.get_type(schema)) else { return false };
    let is_number = |of: &DataType| of.is_integer() || matches!(of, DataType::Decimal128(..));
    is_number(&left) && is_number(&right) && (left.is_decimal() || right.is_decimal())
}

/// Of two numbers that are written out, with exactly the digits that PostgreSQL gives: they hang on the numbers, which
/// a column's type does not say. `None`: something else, or too long.
fn written_out(left: &Expr, right: &Expr) -> Option<ScalarValue> {
    let (left, right) = (literal(left)?, literal(right).filter(|right| right.0 != 0)?);
    let scale = i8::try_from(digits_of_quotient(left, right)).ok().filter(|scale| *scale <= DECIMAL128_MAX_SCALE)?;
    let quotient = rounded(left, right, scale).ok()?;
    Some(ScalarValue::Decimal128(Some(quotient), DECIMAL128_MAX_PRECISION, scale))
}

/// The digits behind the point that PostgreSQL gives the quotient of two numbers with theirs.
fn digits_of_quotient((left, left_scale): (i128, i8), (right, right_scale): (i128, i8)) -> i32 {
    let ((left_weight, left_digit), (right_weight, right_digit)) = (first(left, left_scale), first(right, right_scale));
    let weight = left_weight - right_weight - i32::from(left_digit <= right_digit);
    let digits = i32::from(MIN_DIGITS) - weight * GROUP;
    digits.max(left_scale.into()).max(right_scale.into()).max(0)
}

/// The quotient of two numbers with their digits behind the point: rounded to PostgreSQL's, filled up with zeros to
/// `scale` of them.
///
/// Errors: `22012`, and `22003` for what does not fit.
pub(super) fn quotient(left: (i128, i8), right: (i128, i8), scale: i8) -> Result<i128, SqlError> {
    if right.0 == 0 {
        return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
    }
    let digits = digits_of_quotient(left, right).min(scale.into()) as i8;
    let quotient = rounded(left, right, digits)?;
    let filled = quotient.checked_mul(POWERS[usize::from((scale - digits).unsigned_abs())]);
    filled.filter(|of| of.unsigned_abs() < LIMIT).ok_or_else(too_long)
}

/// The digits behind the point that PostgreSQL gives the quotient of a long number, of which `scale` digits are behind
/// the point, and a whole one.
pub(super) fn digits_of_long_quotient(left: i256, scale: i32, right: i256) -> i32 {
    let ((left_weight, left_digit), (right_weight, right_digit)) =
        (first_of_long(left, scale), first_of_long(right, 0));
    let weight = left_weight - right_weight - i32::from(left_digit <= right_digit);
    (i32::from(MIN_DIGITS) - weight * GROUP).max(scale)
}

/// As [`first`].
fn first_of_long(value: i256, scale: i32) -> (i32, u128) {
    let digits = value.wrapping_abs().to_string();
    let weight = (digits.len() as i32 - 1 - scale).div_euclid(GROUP);
    // Of the group, as many as there are; zeros behind them.
    let n_digits = digits.len() as i32 - scale - weight * GROUP;
    let group = digits.bytes().chain(std::iter::repeat(b'0')).take(n_digits as usize);
    (weight, group.fold(0, |group, digit| group * 10 + u128::from(digit - b'0')))
}

/// The quotient of such numbers, rounded to `digits` behind the point.
///
/// Errors: `22003`, more than 38 digits.
pub(super) fn long_quotient(left: i256, scale: i32, right: i256, digits: i32) -> Result<i128, SqlError> {
    let shift = digits - scale;
    let power = i256::from_i128(10).checked_pow(shift.unsigned_abs()).ok_or_else(too_long)?;
    match shift >= 0 {
        true => wide(left.checked_mul(power).ok_or_else(too_long)?, right),
        false => wide(left, right.checked_mul(power).ok_or_else(too_long)?),
    }
}

/// As many digits behind the point of a column of quotients, of which so many may stand before it.
pub(super) fn scale_of(whole: i8, least: i8) -> i8 {
    (DECIMAL128_MAX_PRECISION as i8 - whole).min(DIGITS).max(MIN_DIGITS.max(least))
}

/// The least number that has no room.
const LIMIT: u128 = 10_u128.pow(38);

fn literal(expr: &Expr) -> Option<(i128, i8)> {
    match expr {
        Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), _) if *scale >= 0 => Some((*value, *scale)),
        Expr::Literal(ScalarValue::Int32(Some(value)), _) => Some(((*value).into(), 0)),
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some(((*value).into(), 0)),
        Expr::Negative(inner) => literal(inner).map(|(value, scale)| (-value, scale)),
        // `'12.5'::numeric`
        Expr::ScalarFunction(call) if call.name() == NUMERIC => match &call.args[..] {
            [Expr::Literal(text, _)] if text.data_type().is_string() => text.try_as_str().flatten().and_then(written),
            [number] => literal(number),
            _ => None,
        },
        _ => None,
    }
}

/// PostgreSQL counts in groups of four digits from the point on: where the first group lies that is not zero, and what
/// it is.
fn first(value: i128, scale: i8) -> (i32, u128) {
    let (value, scale) = (value.unsigned_abs(), i32::from(scale));
    // Most numbers have 64 bits, whose arithmetic is several times as fast.
    let n_digits = match u64::try_from(value) {
        Ok(0) => return (0, 0),
        Ok(value) => value.ilog10(),
        Err(_) => value.ilog10(),
    };
    let weight = (n_digits as i32 - scale).div_euclid(GROUP);
    let unit = weight * GROUP + scale;
    let power = POWERS[unit.unsigned_abs() as usize].unsigned_abs();
    let group = match (unit >= 0, u64::try_from(value), u64::try_from(power)) {
        (true, Ok(value), Ok(power)) => (value / power).into(),
        (true, ..) => value / power,
        // Fewer than four digits, and zeros.
        (false, ..) => value * power,
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
        let scale = scale_of(whole, left_scale.max(right_scale));
        Ok(DataType::Decimal128((whole + scale).clamp(1, DECIMAL128_MAX_PRECISION as i8) as u8, scale))
    }

    fn marked(&self, column: Field, sides: &[FieldRef]) -> Field {
        let least = sides.iter().map(|side| match (Digits::of(side), numeric(side.data_type())) {
            (Some(digits), _) => digits.least(),
            (None, Ok(DataType::Decimal128(_, scale))) => scale,
            _ => 0,
        });
        Digits::mark(column, Rule::Quotient, least.fold(0, i8::max))
    }

    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
        self.compute_columns(left, right, &[])
    }

    fn compute_columns(&self, left: &dyn Datum, right: &dyn Datum, sides: &[FieldRef]) -> Result<ArrayRef> {
        let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
        let result = self.result(left.data_type(), right.data_type())?;
        let ((_, left_scale), (_, right_scale), (_, scale)) =
            (parts(left.data_type())?, parts(right.data_type())?, parts(&result)?);
        let digits = |side: usize| sides.get(side).and_then(|field| Digits::of(field));
        let (left_digits, right_digits) = (digits(0), digits(1));
        let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
        let n_rows = if left_is_one { right.len() } else { left.len() };
        let at = |array: &Decimal128Array, is_one: bool, row: usize, scale: i8, digits: Option<Digits>| {
            let row = if is_one { 0 } else { row };
            let value = array.is_valid(row).then(|| array.value(row))?;
            Some(digits.map_or((value, scale), |digits| digits.shown(value)))
        };
        let of = |row: usize| {
            let left = at(left, left_is_one, row, left_scale, left_digits);
            let sides = left.zip(at(right, right_is_one, row, right_scale, right_digits));
            sides.map(|(left, right)| quotient(left, right, scale)).transpose()
        };
        let quotients = (0..n_rows).map(of).collect::<Result<Decimal128Array, SqlError>>()?;
        Ok(Arc::new(quotients.with_data_type(result)))
    }
}

/// A quotient, whose divisor is not zero, with so many digits behind the point, rounded half away from zero.
fn rounded((left, left_scale): (i128, i8), (right, right_scale): (i128, i8), scale: i8) -> Result<i128, SqlError> {
    // Negative where the value of a side is shown with more digits than the quotient's column has.
    let shift = i32::from(scale) + i32::from(right_scale) - i32::from(left_scale);
    let power = POWERS.get(shift.unsigned_abs() as usize).copied();
    let narrow = match (shift >= 0, power) {
        (true, Some(power)) => left.checked_mul(power).map(|dividend| (dividend, right)),
        (false, Some(power)) => right.checked_mul(power).map(|divisor| (left, divisor)),
        _ => None,
    };
    let quotient = match narrow {
        Some((dividend, divisor)) => {
            let (quotient, rest) = (dividend / divisor, dividend % divisor);
            // Twice the rest may not fit, half of the divisor does.
            let is_up = rest.unsigned_abs() >= divisor.unsigned_abs() - rest.unsigned_abs();
            quotient + i128::from(is_up) * (dividend.signum() * divisor.signum())
        }
        None => {
            let power = i256::from_i128(10).checked_pow(shift.unsigned_abs()).ok_or_else(too_long)?;
            let (left, right) = (i256::from_i128(left), i256::from_i128(right));
            match shift >= 0 {
                true => wide(left.checked_mul(power).ok_or_else(too_long)?, right)?,
                false => wide(left, right.checked_mul(power).ok_or_else(too_long)?)?,
            }
        }
    };
    if quotient.unsigned_abs() < LIMIT { Ok(quotient) } else { Err(too_long()) }
}

/// A quotient of long numbers, rounded half away from zero.
///
/// Errors: `22003`, more than 38 digits.
fn wide(dividend: i256, divisor: i256) -> Result<i128, SqlError> {
    let (quotient, rest) = (dividend.wrapping_div(divisor), dividend.wrapping_rem(divisor));
    let is_up = rest.wrapping_abs() >= divisor.wrapping_abs().wrapping_sub(rest.wrapping_abs());
    let step = if is_up { dividend.signum() * divisor.signum() } else { i256::ZERO };
    let quotient = quotient.wrapping_add(step).to_i128();
    quotient.filter(|quotient| quotient.unsigned_abs() < LIMIT).ok_or_else(too_long)
}

/// An error of a number without room.
pub(super) fn too_long() -> SqlError {
    out_of_range("numeric").with_detail("a number has at most 38 digits, those behind the point among them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_half_away_from_zero() {
        let of = |scale, left, right| rounded((left, 0), (right, 0), scale).unwrap();
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
        let of = |scale, left, right| quotient((left, 0), (right, 0), scale).unwrap_err().state();
        assert_eq!(of(0, 1, 0), state::DIVISION_BY_ZERO);
        assert_eq!(of(20, 10_i128.pow(37), 1), state::NUMERIC_OUT_OF_RANGE);
        assert_eq!(of(37, 10, 1), state::NUMERIC_OUT_OF_RANGE);
    }

    /// PostgreSQL's number, with zeros behind it.
    #[test]
    fn quotients_of_columns_have_its_digits() {
        let of = |left, right| quotient((left, 0), (right, 0), 20).unwrap();
        assert_eq!(of(5, 3), 166_666_666_666_666_670_000);
        assert_eq!(of(1, 3), 33_333_333_333_333_333_333);
        assert_eq!(of(100_000, 7), 1_428_571_428_571_428_600_000_000);
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
        assert_eq!(of((15, 2), (15, 2)), DataType::Decimal128(35, 20));
        assert_eq!(of((25, 2), (20, 0)), DataType::Decimal128(38, 16));
        assert_eq!(of((5, 0), (5, 0)), DataType::Decimal128(25, 20));
        assert_eq!(of((38, 30), (38, 25)), DataType::Decimal128(38, 30));
    }
}
