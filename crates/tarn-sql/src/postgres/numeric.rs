//! Of how many digits is `x::numeric`? Of as many as `x` has. DataFusion's type without digits is `numeric(38, 10)`:
//! the eleventh digit is lost, and integers get ten zeros.
//!
//! So the cast is a function, whose type is that of its argument where that has digits of its own; of a text that is
//! written out, its own.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Float64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_types::{BARE_NUMERIC, DataType as Stored, Value, arrow_type};

use crate::digits::{Digits, Rule};
use crate::error::{SqlError, state};

/// What `CAST(x AS numeric)` is written as.
pub(super) const NUMERIC: &str = "numeric";

/// Digits behind the point of what does not say how many it has.
const DIGITS: i8 = 10;

/// The function.
pub(super) fn numeric() -> ScalarUDF {
    ToNumeric { signature: Signature::any(1, Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToNumeric {
    signature: Signature,
}

impl ScalarUDFImpl for ToNumeric {
    fn name(&self) -> &str {
        NUMERIC
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match &types[0] {
            // `1e10` is one digit and ten zeros to the planner.
            DataType::Decimal128(precision, scale) if *scale < 0 => {
                let digits = u8::try_from(i16::from(*precision) - i16::from(*scale)).unwrap_or(u8::MAX);
                DataType::Decimal128(digits.min(DECIMAL128_MAX_PRECISION), 0)
            }
            DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, *scale),
            // It has no digits, and gives none to what it stands beside.
            DataType::Null => DataType::Decimal128(1, 0),
            DataType::Int16 => DataType::Decimal128(5, 0),
            DataType::Int32 => DataType::Decimal128(10, 0),
            of if of.is_integer() => DataType::Decimal128(20, 0),
            DataType::Boolean => {
                let message = "cannot cast type boolean to numeric";
                return Err(SqlError::new(state::CANNOT_COERCE, message).into());
            }
            _ => DataType::Decimal128(DECIMAL128_MAX_PRECISION, DIGITS),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = args.arg_fields[0].data_type();
        let written = args.scalar_arguments.first().copied().flatten().and_then(|value| value.try_as_str().flatten());
        let written = written.and_then(digits_behind_point);
        let data_type = match written {
            Some(digits) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, digits),
            None => self.return_type(std::slice::from_ref(of))?,
        };
        // Whether a text is a number is asked before whether it is there.
        let number = Field::new(self.name(), data_type, args.arg_fields[0].is_nullable() || of.is_string());
        // One with digits of its own keeps them; of a text, each has as many as are written.
        Ok(Arc::new(match Digits::of(&args.arg_fields[0]) {
            Some(digits) => digits.told(number),
            None if written.is_none() && (of.is_string() || of.is_floating() || is_without_digits(of)) => {
                Digits::mark(number, Rule::Natural, 0)
            }
            None => number,
        }))
    }

    /// As the cast is.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args[0].schema_name().to_string())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let to = args.return_field.data_type();
        Ok(match &args.args[0] {
            ColumnarValue::Array(values) => ColumnarValue::Array(numbers(values, to)?),
            ColumnarValue::Scalar(value) => {
                let number = numbers(&value.to_array()?, to)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&number, 0)?)
            }
        })
    }
}

/// Whether it is a `numeric` of which nobody said how many digits it has: of a column, or of a cast.
pub(super) fn is_without_digits(of: &DataType) -> bool {
    *of == arrow_type(&BARE_NUMERIC) || *of == DataType::Decimal128(DECIMAL128_MAX_PRECISION, DIGITS)
}

/// Values as a `numeric` of this type: rounded to its digits, half away from zero.
///
/// Errors: `22P02` for what is no number, `22003` for what has no room, `0A000` for what is not finite.
pub(super) fn numbers(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = *to else { return exec_err!("a numeric as {to}") };
    if values.data_type().is_floating() {
        return Ok(of_floats(values, precision, scale)?);
    }
    if !values.data_type().is_string() {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        return Ok(cast_with_options(values, to, &options)?);
    }
    // Arrow's reading of texts knows no `1e10`.
    let of = Stored::Decimal { precision, scale };
    let texts = cast(values, &DataType::Utf8)?;
    let read = |text: &str| match (Value::parse(&of, text), text.trim().parse::<f64>()) {
        (Ok(Value::Decimal(number)), _) => Ok(number),
        (_, Ok(float)) if !is_a_number(text) => Err(not_finite(float)),
        (_, Ok(_)) => Err(no_room(precision, scale)),
        _ => {
            let message = format!("invalid input syntax for type numeric: \"{text}\"");
            Err(SqlError::new(state::INVALID_TEXT, message))
        }
    };
    let numbers = texts.as_string::<i32>().iter().map(|text| text.map(read).transpose());
    let numbers: Decimal128Array = numbers.collect::<Result<_, SqlError>>()?;
    Ok(Arc::new(numbers.with_precision_and_scale(precision, scale)?))
}

/// With the digits that a float is right to: fifteen, of a `real` six.
///
/// Errors: `0A000` for what is no number, `22003` for what has no room.
pub(super) fn of_floats(values: &ArrayRef, precision: u8, scale: i8) -> Result<ArrayRef, SqlError> {
    let digits = if *values.data_type() == DataType::Float32 { 5 } else { 14 };
    let of = Stored::Decimal { precision, scale };
    let number = |float: f64| match Value::parse(&of, &format!("{float:.digits$e}")) {
        _ if !float.is_finite() => Err(not_finite(float)),
        Ok(Value::Decimal(number)) => Ok(number),
        _ => Err(no_room(precision, scale)),
    };
    let floats = cast(values, &DataType::Float64).map_err(datafusion::error::DataFusionError::from)?;
    let numbers = floats.as_primitive::<Float64Type>().try_unary::<_, Decimal128Type, SqlError>(number)?;
    Ok(Arc::new(numbers.with_data_type(DataType::Decimal128(precision, scale))))
}

/// Whether it has digits, and is not a word for what is infinite or no number.
fn is_a_number(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

fn not_finite(float: f64) -> SqlError {
    SqlError::unsupported(format!("{float} as a numeric"), "numerics are finite here: keep it as a double precision")
}

fn no_room(precision: u8, scale: i8) -> SqlError {
    SqlError::new(state::NUMERIC_OUT_OF_RANGE, "numeric field overflow")
        .with_detail(format!("a number has at most {precision} digits here, {scale} of them behind the point"))
}

/// The number of a text and its digits behind the point, if there are not too many.
pub(super) fn written(text: &str) -> Option<(i128, i8)> {
    let scale = digits_behind_point(text)?;
    match Value::parse(&Stored::Decimal { precision: DECIMAL128_MAX_PRECISION, scale }, text) {
        Ok(Value::Decimal(number)) => Some((number, scale)),
        _ => None,
    }
}

/// Of digits with or without a point and an exponent, if there are not too many.
fn digits_behind_point(text: &str) -> Option<i8> {
    let digits = text.trim().strip_prefix(['-', '+']).unwrap_or(text.trim());
    let (digits, exponent) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (digits, 0),
    };
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = whole.bytes().chain(behind.bytes()).all(|byte| byte.is_ascii_digit());
    let (whole, behind) = (whole.len() as i64 + exponent, (behind.len() as i64 - exponent).max(0));
    (is_plain && whole.max(0) + behind <= DECIMAL128_MAX_PRECISION.into()).then_some(behind as i8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn floats_have_six_or_fifteen_digits() {
        use arrow::array::{Float32Array, Float64Array};
        let of = |values: ArrayRef, scale| {
            let numbers = of_floats(&values, 38, scale).unwrap();
            numbers.as_primitive::<Decimal128Type>().value(0)
        };
        assert_eq!(of(Arc::new(Float32Array::from(vec![1.234_567_9])), 10), 12_345_700_000);
        assert_eq!(of(Arc::new(Float64Array::from(vec![0.285])), 2), 29);
        assert_eq!(of(Arc::new(Float64Array::from(vec![1_234_567_890_123_456_789.0])), 0), 1_234_567_890_123_460_000);
        let beyond: ArrayRef = Arc::new(Float64Array::from(vec![1e30]));
        assert!(of_floats(&beyond, 10, 2).is_err());
    }

    #[test]
    fn digits_are_counted() {
        for (text, digits) in [
            ("1.50", Some(2)),
            (" -7 ", Some(0)),
            ("+.5", Some(1)),
            ("1e3", Some(0)),
            ("1.25e1", Some(1)),
            ("1e-3", Some(3)),
            ("1e40", None),
            ("x", None),
            ("NaN", None),
        ] {
            assert_eq!(digits_behind_point(text), digits, "{text}");
        }
    }
}
