//! What do functions of numbers refuse, and where do they round? `ln(0)` is an error in PostgreSQL, `round(2.5::float8)` is 2, an empty array
//! has no length, and the year before year 1 is -1. Here DataFusion's functions are asked only what they answer alike.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::array::{Scalar, UInt64Array};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, Int32Type, UInt64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::extract::intervals;
use crate::error::{SqlError, state};

/// Functions to be registered over those of the same name.
pub(super) fn guarded() -> Vec<Arc<ScalarUDF>> {
    use datafusion::functions::{datetime, math};
    use datafusion::functions_nested::length::array_length_udf;
    let all = [
        (math::ln(), Guard::Logarithm),
        (math::log(), Guard::Logarithm),
        (math::log10(), Guard::Logarithm),
        (math::log2(), Guard::Logarithm),
        (math::sqrt(), Guard::Root),
        (math::round(), Guard::HalfToEven),
        (array_length_udf(), Guard::NoEmptyLength),
        (datetime::make_date(), Guard::NoYearZero),
        (datetime::date_bin(), Guard::NoMonths),
    ];
    all.into_iter().map(|(inner, guard)| Arc::new(ScalarUDF::from(Guarded { inner, guard }))).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Guard {
    /// Of what is greater than zero, and to such a base.
    Logarithm,
    Root,
    /// Floats, as processors round them; other numbers half away from zero.
    HalfToEven,
    NoEmptyLength,
    NoYearZero,
    /// Bins have one length.
    NoMonths,
}

/// A function with a guard before or behind it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Guarded {
    inner: Arc<ScalarUDF>,
    guard: Guard,
}

impl ScalarUDFImpl for Guarded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = self.inner.return_field_from_args(args)?;
        Ok(match self.guard {
            Guard::NoEmptyLength => Arc::new(field.as_ref().clone().with_nullable(true)),
            _ => field,
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.guard {
            Guard::Logarithm => {
                for arg in &args.args {
                    check(arg, |value| match value {
                        0.0 => Err(SqlError::new(state::INVALID_LOGARITHM, "cannot take logarithm of zero")),
                        value if value < 0.0 => {
                            Err(SqlError::new(state::INVALID_LOGARITHM, "cannot take logarithm of a negative number"))
                        }
                        _ => Ok(()),
                    })?;
                }
                self.inner.invoke_with_args(args)
            }
            Guard::Root => {
                check(&args.args[0], |value| match value < 0.0 {
                    true => Err(SqlError::new(state::INVALID_POWER, "cannot take square root of a negative number")),
                    false => Ok(()),
                })?;
                self.inner.invoke_with_args(args)
            }
            Guard::HalfToEven => match (&args.args[..], args.arg_fields[0].data_type()) {
                ([of], DataType::Float32 | DataType::Float64) => each(of, half_to_even),
                _ => self.inner.invoke_with_args(args),
            },
            Guard::NoEmptyLength => each(&self.inner.invoke_with_args(args)?, |lengths| {
                let lengths = cast(&lengths, &DataType::UInt64)?;
                let none = Scalar::new(UInt64Array::from(vec![0]));
                Ok(nullif(lengths.as_primitive::<UInt64Type>(), &eq(&lengths, &none)?)?)
            }),
            Guard::NoMonths => {
                each(&args.args[0], |strides| {
                    for stride in intervals(&strides)?.iter().flatten() {
                        if stride.months != 0 {
                            let message = "timestamps cannot be binned into intervals containing months or years";
                            return Err(SqlError::unsupported(message, "use date_trunc").into());
                        }
                        if i128::from(stride.days) * 86_400_000_000_000 + i128::from(stride.nanoseconds) <= 0 {
                            let message = "stride must be greater than zero";
                            return Err(SqlError::new(state::DATETIME_OVERFLOW, message).into());
                        }
                    }
                    Ok(strides)
                })?;
                self.inner.invoke_with_args(args)
            }
            Guard::NoYearZero => {
                args.args[0] = each(&args.args[0], |years| {
                    let years = cast(&years, &DataType::Int32)?;
                    let years = years.as_primitive::<Int32Type>();
                    let counted = years.try_unary::<_, Int32Type, SqlError>(|year| match year {
                        // There was none between 1 before Christ, which is -1, and 1.
                        0 => Err(SqlError::new(state::DATETIME_OVERFLOW, "date field value out of range: year 0")),
                        year if year < 0 => Ok(year + 1),
                        year => Ok(year),
                    })?;
                    Ok(Arc::new(counted))
                })?;
                self.inner.invoke_with_args(args)
            }
        }
    }
}

fn each(of: &ColumnarValue, map: impl FnOnce(ArrayRef) -> Result<ArrayRef>) -> Result<ColumnarValue> {
    Ok(match of {
        ColumnarValue::Array(values) => ColumnarValue::Array(map(Arc::clone(values))?),
        ColumnarValue::Scalar(value) => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&map(value.to_array()?)?, 0)?)
        }
    })
}

/// Looks at all values that are there, as floats: their sign is what counts.
fn check(of: &ColumnarValue, look: impl Fn(f64) -> std::result::Result<(), SqlError>) -> Result<()> {
    each(of, |values| {
        let floats = cast(&values, &DataType::Float64)?;
        for value in floats.as_primitive::<Float64Type>().iter().flatten() {
            look(value)?;
        }
        Ok(values)
    })?;
    Ok(())
}

fn half_to_even(values: ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        DataType::Float32 => {
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
        }
        _ => Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even)),
    })
}
