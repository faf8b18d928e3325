//! Which whole number is near a `numeric`, and what is its sign? A `numeric` in PostgreSQL, of no digits behind the
//! point: `ceil(5.1)` is 6, `trunc(5.99)` is 5, `trunc(5.99, 1)` is 5.9. DataFusion keeps the digits, as zeros, and its
//! signs are floats. `sign('NaN'::float8)` is 0, where DataFusion's is NaN. Other numbers are DataFusion's.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Float64Type, Int64Type};
use datafusion::error::Result;
use datafusion::functions::math;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::averages::undefined;
use super::division::{POWERS, too_long};
use super::rowwise::ArgumentRows;
use crate::error::SqlError;

/// The functions, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = [
        (math::ceil(), RoundingFunction::Ceil),
        (math::floor(), RoundingFunction::Floor),
        (math::trunc(), RoundingFunction::Trunc),
        (math::signum(), RoundingFunction::Sign),
    ];
    let function = |(inner, what)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(NumericRounding { inner, what, signature }))
    };
    all.into_iter().map(function).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RoundingFunction {
    Ceil,
    Floor,
    /// With so many digits behind the point, or none.
    Trunc,
    Sign,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericRounding {
    inner: Arc<ScalarUDF>,
    what: RoundingFunction,
    signature: Signature,
}

impl ScalarUDFImpl for NumericRounding {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// A numeric stays one; other numbers are floats, but a `real`, and what is cut to so many digits.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |of: &DataType| of.is_numeric() || of.is_null() || of.is_string();
        let coerced = match types {
            [DataType::Decimal128(precision, scale)] => Some(vec![DataType::Decimal128(*precision, (*scale).max(0))]),
            [DataType::Float32] => Some(vec![DataType::Float32]),
            [of] if is_number(of) => Some(vec![DataType::Float64]),
            [of, digits] if self.what == RoundingFunction::Trunc && is_number(of) && digits.is_integer() => {
                let of = match of {
                    DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, (*scale).max(0)),
                    of if of.is_integer() => DataType::Decimal128(20, 0),
                    DataType::Float32 => DataType::Float32,
                    _ => DataType::Float64,
                };
                // A literal stays one.
                Some(vec![of, if digits == &DataType::Int64 { DataType::Int64 } else { DataType::Int32 }])
            }
            _ => None,
        };
        coerced.ok_or_else(|| undefined(self.name(), types).into())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Decimal128(precision, scale)] => {
                Ok(DataType::Decimal128(whole_precision(*precision, *scale), 0))
            }
            [of @ DataType::Decimal128(..), _] => Ok(of.clone()),
            types => self.inner.return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let of = match (&types[..], args.scalar_arguments.get(1).copied().flatten()) {
            // Cut to digits that are written out.
            ([DataType::Decimal128(precision, scale), _], Some(digits)) if !digits.is_null() => {
                let wanted = match digits.cast_to(&DataType::Int64)? {
                    ScalarValue::Int64(Some(digits)) => digits.clamp(0, (*scale).into()) as i8,
                    _ => 0,
                };
                DataType::Decimal128(
                    whole_precision(*precision, *scale)
                        .saturating_add(wanted.unsigned_abs())
                        .min(DECIMAL128_MAX_PRECISION),
                    wanted,
                )
            }
            (types, _) => self.return_type(types)?,
        };
        Ok(Arc::new(Field::new(self.name(), of, is_nullable)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) =
            (args.arg_fields[0].data_type(), args.return_field.data_type())
        else {
            let is_sign = self.what == RoundingFunction::Sign && args.return_field.data_type().is_floating();
            return if is_sign { signs(&args) } else { self.inner.invoke_with_args(args) };
        };
        let (rows, from, to) = (ArgumentRows::of(&args)?, *from, *to);
        let numbers = rows.columns[0].as_primitive::<Decimal128Type>();
        let digits = rows.columns.get(1).map(|digits| cast(digits, &DataType::Int64)).transpose()?;
        let of = |row: usize| {
            let wanted = digits.as_ref().map_or(0, |digits| digits.as_primitive::<Int64Type>().value(row));
            self.what.of(numbers.value(row), from, wanted, to).ok_or_else(too_long)
        };
        let values = rows.there().map(|row| row.map(of).transpose()).collect::<Result<Decimal128Array, SqlError>>()?;
        let values: ArrayRef = Arc::new(values.with_data_type(args.return_field.data_type().clone()));
        rows.answer(values)
    }
}

/// The signs of floats: that of NaN, which is neither above nor below, is 0.
fn signs(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    let rows = ArgumentRows::of(args)?;
    let numbers = cast(&rows.columns[0], &DataType::Float64)?;
    let sign = |number: f64| f64::from(i8::from(number > 0.0) - i8::from(number < 0.0));
    let signs: Float64Array = numbers.as_primitive::<Float64Type>().unary(sign);
    rows.answer(cast(&signs, args.return_field.data_type())?)
}

/// Digits before the point, and one for what is rounded up.
fn whole_precision(precision: u8, scale: i8) -> u8 {
    (precision as i8 - scale).max(0).saturating_add(1).cast_unsigned().min(DECIMAL128_MAX_PRECISION)
}

impl RoundingFunction {
    /// Of a number with `from` digits behind the point; trunc: with `digits` that count; as one with `to` of them.
    /// `None`: it has no room.
    fn of(self, value: i128, from: i8, digits: i64, to: i8) -> Option<i128> {
        let unit = *POWERS.get(usize::from(from.unsigned_abs()))?;
        let (whole, rest) = (value.div_euclid(unit), value.rem_euclid(unit));
        match self {
            RoundingFunction::Ceil => Some(whole + i128::from(rest > 0)),
            RoundingFunction::Floor => Some(whole),
            RoundingFunction::Sign => Some(value.signum()),
            RoundingFunction::Trunc => {
                let cut = i64::from(from) - digits;
                let kept = match usize::try_from(cut) {
                    Err(_) | Ok(0) => value,
                    Ok(cut) => POWERS.get(cut).map_or(0, |power| value / power * power),
                };
                match from >= to {
                    true => Some(kept / POWERS[usize::from((from - to).unsigned_abs())]),
                    false => kept.checked_mul(POWERS[usize::from((to - from).unsigned_abs())]),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_and_rounded() {
        assert_eq!(
            [
                RoundingFunction::Ceil.of(51, 1, 0, 0),
                RoundingFunction::Ceil.of(-51, 1, 0, 0),
                RoundingFunction::Ceil.of(50, 1, 0, 0)
            ],
            [Some(6), Some(-5), Some(5)]
        );
        assert_eq!(
            [RoundingFunction::Floor.of(59, 1, 0, 0), RoundingFunction::Floor.of(-51, 1, 0, 0)],
            [Some(5), Some(-6)]
        );
        assert_eq!(
            [RoundingFunction::Trunc.of(-599, 2, 1, 1), RoundingFunction::Trunc.of(12_345_678, 4, -2, 0)],
            [Some(-59), Some(1200)]
        );
        assert_eq!(
            [RoundingFunction::Trunc.of(599, 2, 5, 2), RoundingFunction::Trunc.of(599, 2, -40, 0)],
            [Some(599), Some(0)]
        );
        assert_eq!(
            [RoundingFunction::Sign.of(-5, 1, 0, 0), RoundingFunction::Sign.of(0, 1, 0, 0)],
            [Some(-1), Some(0)]
        );
    }
}
