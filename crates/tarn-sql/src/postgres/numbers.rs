//! Functions of numbers that DataFusion has not, or has of floats alone: `div`, `scale`, `min_scale`, `trim_scale`,
//! `width_bucket`, `gcd` and `lcm`, `factorial`, `to_hex`, and the trigonometric ones of degrees. What does not fit is
//! `22003`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Float64Type, Int32Type, Int64Type, i256,
};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::array_bucket;
use super::degrees::AngleFunction;
use super::inets::INET;
use super::integers::out_of_range;
use super::rowwise::ArgumentRows;
use crate::digits::{Digits, Rule};
use crate::error::{SqlError, state};

/// The greatest number whose factorial has 38 digits at most.
const MAX_FACTORIAL: i64 = 33;

/// What is not written bare in a statement: `~ x`.
pub(super) const BIT_NOT: &str = "tarn_bit_not";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use NumberFunction::{BitNot, Degrees, Div, Factorial, Gcd, Lcm, MinScale, Scale, ToHex, TrimScale, WidthBucket};
    let all = [BitNot, Div, Factorial, Gcd, Lcm, MinScale, Scale, ToHex, TrimScale, WidthBucket];
    let of =
        |what| Arc::new(ScalarUDF::from(OfNumbers { what, signature: Signature::user_defined(Volatility::Immutable) }));
    all.into_iter().chain(AngleFunction::ALL.map(Degrees)).map(of).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NumberFunction {
    BitNot,
    Div,
    Factorial,
    Gcd,
    Lcm,
    MinScale,
    Scale,
    /// Of as many bits as the number has.
    ToHex,
    TrimScale,
    WidthBucket,
    /// Of angles in degrees, or with one.
    Degrees(AngleFunction),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfNumbers {
    what: NumberFunction,
    signature: Signature,
}

impl OfNumbers {
    fn no_such(&self, types: &[DataType]) -> datafusion::error::DataFusionError {
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        let message = format!("function {}({}) does not exist", self.name(), types.join(", "));
        SqlError::new(state::UNDEFINED_FUNCTION, message).with_hint("cast the arguments to the types it takes").into()
    }
}

/// A number as a `numeric`.
fn numeric(of: &DataType) -> Option<DataType> {
    Some(match of {
        DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, *scale),
        DataType::Int8 | DataType::Int16 => DataType::Decimal128(5, 0),
        DataType::Int32 => DataType::Decimal128(10, 0),
        of if of.is_integer() || of.is_null() => DataType::Decimal128(20, 0),
        _ => return None,
    })
}

impl ScalarUDFImpl for OfNumbers {
    fn name(&self) -> &str {
        match self.what {
            NumberFunction::BitNot => BIT_NOT,
            NumberFunction::Div => "div",
            NumberFunction::Factorial => "factorial",
            NumberFunction::Gcd => "gcd",
            NumberFunction::Lcm => "lcm",
            NumberFunction::MinScale => "min_scale",
            NumberFunction::Scale => "scale",
            NumberFunction::ToHex => "to_hex",
            NumberFunction::TrimScale => "trim_scale",
            NumberFunction::WidthBucket => "width_bucket",
            NumberFunction::Degrees(angle) => angle.name(),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |of: &DataType| of.is_numeric() || of.is_null();
        let of_numerics = || types.iter().map(numeric).collect::<Option<Vec<_>>>();
        let coerced = match (self.what, types) {
            (NumberFunction::BitNot, [DataType::Int16 | DataType::Int32 | DataType::Int64]) => Some(types.to_vec()),
            // A rule puts another function into its place.
            (NumberFunction::BitNot, [of]) if *of == INET => Some(types.to_vec()),
            (NumberFunction::ToHex, [of]) if is_int4(of) => Some(vec![DataType::Int32]),
            (NumberFunction::ToHex, [of]) if is_whole(of) => Some(vec![DataType::Int64]),
            (NumberFunction::Factorial, [of]) if of.is_integer() || of.is_null() => Some(vec![DataType::Int64]),
            (NumberFunction::MinScale | NumberFunction::Scale | NumberFunction::TrimScale, [_])
            | (NumberFunction::Div, [_, _]) => of_numerics(),
            (NumberFunction::Gcd | NumberFunction::Lcm, [left, right]) => match () {
                () if left.is_decimal() || right.is_decimal() => of_numerics(),
                () if !is_whole(left) || !is_whole(right) => None,
                () if is_int4(left) && is_int4(right) => Some(vec![DataType::Int32; 2]),
                () => Some(vec![DataType::Int64; 2]),
            },
            (NumberFunction::WidthBucket, [_, _]) => array_bucket::coerced(types),
            (NumberFunction::WidthBucket, [of @ .., count]) if of.len() == 3 && is_whole(count) => match () {
                () if !of.iter().all(is_number) => None,
                () if of.iter().any(DataType::is_floating) => {
                    Some(vec![DataType::Float64, DataType::Float64, DataType::Float64, DataType::Int64])
                }
                () => of.iter().map(numeric).chain([Some(DataType::Int64)]).collect(),
            },
            (NumberFunction::Degrees(AngleFunction::ArcTan2), [left, right]) if is_number(left) && is_number(right) => {
                Some(vec![DataType::Float64; 2])
            }
            (NumberFunction::Degrees(angle), [of]) if angle != AngleFunction::ArcTan2 && is_number(of) => {
                Some(vec![DataType::Float64])
            }
            _ => None,
        };
        coerced.ok_or_else(|| self.no_such(types))
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match self.what {
            NumberFunction::Div | NumberFunction::Factorial => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
            NumberFunction::MinScale | NumberFunction::Scale | NumberFunction::WidthBucket => DataType::Int32,
            NumberFunction::Gcd | NumberFunction::Lcm => match (&types[0], &types[1]) {
                (DataType::Decimal128(_, left), DataType::Decimal128(_, right)) => {
                    DataType::Decimal128(DECIMAL128_MAX_PRECISION, (*left).max(*right))
                }
                (left, _) => left.clone(),
            },
            NumberFunction::BitNot | NumberFunction::TrimScale => types[0].clone(),
            NumberFunction::Degrees(_) => DataType::Float64,
            NumberFunction::ToHex => DataType::Utf8,
        })
    }

    /// The digits of a number that is written out are known.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let data_type = match (self.what, args.scalar_arguments.first().copied().flatten()) {
            (NumberFunction::TrimScale, Some(ScalarValue::Decimal128(Some(value), precision, scale))) => {
                DataType::Decimal128(*precision, min_scale(*value, *scale))
            }
            _ => self.return_type(&types)?,
        };
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let field = Field::new(self.name(), data_type, is_nullable);
        Ok(Arc::new(if self.what == NumberFunction::TrimScale { Digits::mark(field, Rule::Natural, 0) } else { field }))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let columns = &rows.columns;
        let decimal = |idx: usize, row: usize| columns[idx].as_primitive::<Decimal128Type>().value(row);
        let float = |idx: usize, row: usize| columns[idx].as_primitive::<Float64Type>().value(row);
        let long = |idx: usize, row: usize| columns[idx].as_primitive::<Int64Type>().value(row);
        let scale = |idx: usize| match columns[idx].data_type() {
            DataType::Decimal128(_, scale) => *scale,
            _ => 0,
        };
        let answer: ArrayRef = match self.what {
            NumberFunction::BitNot => match columns[0].data_type() {
                DataType::Int64 => Arc::new(columns[0].as_primitive::<Int64Type>().unary::<_, Int64Type>(|of| !of)),
                DataType::Int32 => Arc::new(columns[0].as_primitive::<Int32Type>().unary::<_, Int32Type>(|of| !of)),
                _ => {
                    use arrow::datatypes::Int16Type;
                    Arc::new(columns[0].as_primitive::<Int16Type>().unary::<_, Int16Type>(|of| !of))
                }
            },
            NumberFunction::Div => {
                let of = |row: usize| div((decimal(0, row), scale(0)), (decimal(1, row), scale(1)));
                decimals(rows.there().map(|row| row.map(of).transpose()), args.return_field.data_type())?
            }
            NumberFunction::Factorial => {
                let of = |row: usize| factorial(long(0, row));
                decimals(rows.there().map(|row| row.map(of).transpose()), args.return_field.data_type())?
            }
            NumberFunction::Gcd | NumberFunction::Lcm => {
                let common = scale(0).max(scale(columns.len() - 1));
                let is_gcd = self.what == NumberFunction::Gcd;
                let of = |left: i128, right: i128, name: &str| {
                    let value = if is_gcd { Some(gcd(left, right)) } else { lcm(left, right) };
                    value.and_then(|value| i128::try_from(value).ok()).ok_or_else(|| out_of_range(name))
                };
                match columns[0].data_type() {
                    DataType::Decimal128(..) => {
                        let of = |row: usize| {
                            let at_common = |idx: usize| rescaled(decimal(idx, row), common - scale(idx));
                            let both = at_common(0).zip(at_common(1));
                            both.ok_or_else(|| out_of_range("numeric"))
                                .and_then(|(left, right)| of(left, right, "numeric"))
                        };
                        decimals(rows.there().map(|row| row.map(of).transpose()), args.return_field.data_type())?
                    }
                    DataType::Int32 => {
                        let int = |idx: usize, row: usize| columns[idx].as_primitive::<Int32Type>().value(row).into();
                        let of = |row: usize| {
                            let value = of(int(0, row), int(1, row), "integer")?;
                            i32::try_from(value).map_err(|_| out_of_range("integer"))
                        };
                        Arc::new(rows.there().map(|row| row.map(of).transpose()).collect::<Result<Int32Array, _>>()?)
                    }
                    _ => {
                        let of = |row: usize| {
                            let value = of(long(0, row).into(), long(1, row).into(), "bigint")?;
                            i64::try_from(value).map_err(|_| out_of_range("bigint"))
                        };
                        Arc::new(rows.there().map(|row| row.map(of).transpose()).collect::<Result<Int64Array, _>>()?)
                    }
                }
            }
            NumberFunction::Scale => {
                let digits = Digits::of(&args.arg_fields[0]);
                let own = |row: usize| digits.map_or(scale(0), |digits| digits.shown(decimal(0, row)).1);
                let of = |row: usize| i32::from(own(row).max(0));
                Arc::new(rows.there().map(|row| row.map(of)).collect::<Int32Array>())
            }
            NumberFunction::ToHex => match columns[0].data_type() {
                DataType::Int32 => {
                    let of = |row: usize| format!("{:x}", columns[0].as_primitive::<Int32Type>().value(row));
                    Arc::new(rows.there().map(|row| row.map(of)).collect::<StringArray>())
                }
                _ => {
                    let of = |row: usize| format!("{:x}", long(0, row));
                    Arc::new(rows.there().map(|row| row.map(of)).collect::<StringArray>())
                }
            },
            NumberFunction::MinScale => {
                let of = |row: usize| i32::from(min_scale(decimal(0, row), scale(0)).max(0));
                Arc::new(rows.there().map(|row| row.map(of)).collect::<Int32Array>())
            }
            NumberFunction::TrimScale => {
                let options = CastOptions { safe: false, ..CastOptions::default() };
                cast_with_options(&columns[0], args.return_field.data_type(), &options)?
            }
            NumberFunction::WidthBucket if columns.len() == 2 => Arc::new(array_bucket::buckets(&rows)?),
            NumberFunction::WidthBucket => {
                let of = |row: usize| match columns[0].data_type() {
                    DataType::Float64 => float_bucket([0, 1, 2].map(|idx| float(idx, row)), long(3, row)),
                    _ => bucket([0, 1, 2].map(|idx| (decimal(idx, row), scale(idx))), long(3, row)),
                };
                let of = |row: usize| i32::try_from(of(row)?).map_err(|_| out_of_range("integer"));
                Arc::new(rows.there().map(|row| row.map(of).transpose()).collect::<Result<Int32Array, SqlError>>()?)
            }
            NumberFunction::Degrees(angle) => {
                let of = |row: usize| match angle {
                    AngleFunction::ArcTan2 => Ok(AngleFunction::of_sides(float(0, row), float(1, row))),
                    angle => angle.of(float(0, row)),
                };
                Arc::new(rows.there().map(|row| row.map(of).transpose()).collect::<Result<Float64Array, SqlError>>()?)
            }
        };
        rows.answer(answer)
    }
}

fn is_whole(of: &DataType) -> bool {
    of.is_integer() || of.is_null()
}

fn is_int4(of: &DataType) -> bool {
    matches!(of, DataType::Int8 | DataType::Int16 | DataType::Int32)
}

fn decimals(values: impl Iterator<Item = Result<Option<i128>, SqlError>>, of: &DataType) -> Result<ArrayRef> {
    let values = values.collect::<Result<Decimal128Array, SqlError>>()?.with_data_type(of.clone());
    let DataType::Decimal128(precision, _) = of else { return Ok(Arc::new(values)) };
    values.validate_decimal_precision(*precision).map_err(|_| out_of_range("numeric"))?;
    Ok(Arc::new(values))
}

fn rescaled(value: i128, by: i8) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(by).ok()?).and_then(|unit| value.checked_mul(unit))
}

fn wide(value: i128, by: i8) -> i256 {
    i256::from_i128(value).wrapping_mul(i256::from_i128(10).wrapping_pow(u32::from(by.unsigned_abs())))
}

/// Of values with their scales: how often one is in the other, cut.
fn div((left, left_scale): (i128, i8), (right, right_scale): (i128, i8)) -> Result<i128, SqlError> {
    let common = left_scale.max(right_scale);
    // At most 76 digits each.
    let (left, right) = (wide(left, common - left_scale), wide(right, common - right_scale));
    match left.checked_div(right) {
        Some(whole) => whole.to_i128().ok_or_else(|| out_of_range("numeric")),
        None => Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero")),
    }
}

fn factorial(of: i64) -> Result<i128, SqlError> {
    match of {
        ..0 => {
            let message = "factorial of a negative number is undefined";
            Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, message))
        }
        0..=MAX_FACTORIAL => Ok((1..=i128::from(of)).product()),
        _ => Err(out_of_range("numeric").with_hint("a numeric has at most 38 digits")),
    }
}

fn gcd(left: i128, right: i128) -> u128 {
    let (mut left, mut right) = (left.unsigned_abs(), right.unsigned_abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

fn lcm(left: i128, right: i128) -> Option<u128> {
    match gcd(left, right) {
        0 => Some(0),
        divisor => (left.unsigned_abs() / divisor).checked_mul(right.unsigned_abs()),
    }
}

/// Digits behind the point that are not zeros at the end.
fn min_scale(value: i128, scale: i8) -> i8 {
    let (mut value, mut scale) = (value, scale);
    while scale > 0 && value % 10 == 0 {
        (value, scale) = (value / 10, scale - 1);
    }
    scale
}

fn of_buckets(message: &str) -> SqlError {
    SqlError::new(state::INVALID_WIDTH_BUCKET, message)
}

fn checked_count(count: i64) -> Result<i64, SqlError> {
    match count {
        ..=0 => Err(of_buckets("count must be greater than zero")),
        count => i32::try_from(count).map(i64::from).map_err(|_| out_of_range("integer")),
    }
}

/// In which of so many buckets between two bounds is a value? In 0 before the first, in one more than there are behind
/// the last.
fn float_bucket([of, first, last]: [f64; 3], count: i64) -> Result<i64, SqlError> {
    let count = checked_count(count)?;
    if of.is_nan() || first.is_nan() || last.is_nan() {
        return Err(of_buckets("operand, lower bound, and upper bound cannot be NaN"));
    }
    if first.is_infinite() || last.is_infinite() {
        return Err(of_buckets("lower and upper bounds must be finite"));
    }
    // Mirrored, bounds that fall rise.
    let (of, first, last) = match first.partial_cmp(&last) {
        Some(std::cmp::Ordering::Equal) | None => return Err(of_buckets("lower bound cannot equal upper bound")),
        Some(std::cmp::Ordering::Less) => (of, first, last),
        Some(std::cmp::Ordering::Greater) => (-of, -first, -last),
    };
    if of < first {
        return Ok(0);
    }
    if of >= last {
        return Ok(count + 1);
    }
    let share = match last - first {
        width if width.is_finite() => (of - first) / width,
        _ => (of / 2.0 - first / 2.0) / (last / 2.0 - first / 2.0),
    };
    // It may have been rounded up to the whole.
    Ok(((count as f64 * share) as i64).min(count - 1) + 1)
}

fn bucket([of, first, last]: [(i128, i8); 3], count: i64) -> Result<i64, SqlError> {
    let count = checked_count(count)?;
    let common = of.1.max(first.1).max(last.1);
    let [of, first, last] = [of, first, last].map(|(value, scale)| wide(value, common - scale));
    let (of, first, last) = match first.cmp(&last) {
        std::cmp::Ordering::Equal => return Err(of_buckets("lower bound cannot equal upper bound")),
        std::cmp::Ordering::Less => (of, first, last),
        std::cmp::Ordering::Greater => (of.wrapping_neg(), first.wrapping_neg(), last.wrapping_neg()),
    };
    if of < first {
        return Ok(0);
    }
    if of >= last {
        return Ok(count + 1);
    }
    let nth = of.wrapping_sub(first).checked_mul(i256::from_i128(count.into()));
    let nth = nth.and_then(|nth| nth.checked_div(last.wrapping_sub(first))).and_then(i256::to_i128);
    nth.and_then(|nth| i64::try_from(nth).ok()).map(|nth| nth + 1).ok_or_else(|| out_of_range("numeric"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn numbers_in_buckets() {
        assert_eq!(float_bucket([5.35, 0.024, 10.06], 5).unwrap(), 3);
        assert_eq!(bucket([(535, 2), (24, 3), (1006, 2)], 5).unwrap(), 3);
        assert_eq!(bucket([(-5, 0), (0, 0), (10, 0)], 5).unwrap(), 0);
        assert_eq!(bucket([(10, 0), (0, 0), (10, 0)], 5).unwrap(), 6);
        assert_eq!(bucket([(10, 0), (10, 0), (0, 0)], 5).unwrap(), 1);
        assert_eq!(float_bucket([0.0, 10.0, 0.0], 5).unwrap(), 6);
        for (bounds, count) in [([1.0, 2.0, 2.0], 5), ([1.0, 0.0, 2.0], 0), ([f64::NAN, 0.0, 1.0], 5)] {
            assert_eq!(float_bucket(bounds, count).unwrap_err().state(), state::INVALID_WIDTH_BUCKET);
        }
    }

    #[test]
    fn whole_parts_and_common_divisors() {
        assert_eq!(div((70, 1), (2, 0)).unwrap(), 3);
        assert_eq!(div((-7, 0), (20, 1)).unwrap(), -3);
        assert_eq!(div((1, 0), (0, 0)).unwrap_err().state(), state::DIVISION_BY_ZERO);
        assert_eq!((gcd(-33_600, 33_000), lcm(4, 6)), (600, Some(12)));
        assert_eq!((gcd(0, 0), lcm(0, 5), lcm(i128::MAX, i128::MAX - 1)), (0, Some(0), None));
        assert_eq!((min_scale(1200, 3), min_scale(0, 5), min_scale(8, 1)), (1, 0, 1));
        assert_eq!(factorial(33).unwrap(), 8_683_317_618_811_886_495_518_194_401_280_000_000);
        assert!(factorial(34).is_err() && factorial(-1).is_err());
    }
}
