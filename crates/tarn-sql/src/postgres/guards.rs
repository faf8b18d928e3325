//! What do functions of numbers refuse, and where do they round? `ln(0)` is an error in PostgreSQL,
//! `round(2.5::float8)` is 2, and an empty array has no length. Here DataFusion's functions are asked only what they
//! answer alike.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::array::{Scalar, UInt64Array};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, Int64Type, UInt64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::integers::out_of_range;
use crate::error::{SqlError, state};

/// Functions to be registered over those of the same name.
pub(super) fn guarded() -> Vec<Arc<ScalarUDF>> {
    use datafusion::functions::{math, unicode};
    use datafusion::functions_nested::cardinality::cardinality_udf;
    use datafusion::functions_nested::length::array_length_udf;
    use datafusion::functions_nested::position::{array_position_udf, array_positions_udf};
    let all = [
        (math::log2(), ArgumentGuard::Logarithm),
        (math::round(), ArgumentGuard::HalfToEven),
        (math::sin(), ArgumentGuard::Within(|of| !of.is_infinite())),
        (math::cos(), ArgumentGuard::Within(|of| !of.is_infinite())),
        (math::tan(), ArgumentGuard::Within(|of| !of.is_infinite())),
        (math::cot(), ArgumentGuard::Within(|of| !of.is_infinite())),
        (math::asin(), ArgumentGuard::Within(|of| of.is_nan() || of.abs() <= 1.0)),
        (math::acos(), ArgumentGuard::Within(|of| of.is_nan() || of.abs() <= 1.0)),
        (math::acosh(), ArgumentGuard::Within(|of| of.is_nan() || of >= 1.0)),
        (math::atanh(), ArgumentGuard::Within(|of| of.is_nan() || of.abs() <= 1.0)),
        (math::degrees(), ArgumentGuard::NotLonger),
        (array_length_udf(), ArgumentGuard::NoEmptyLength),
        (array_position_udf(), ArgumentGuard::Integers),
        (array_positions_udf(), ArgumentGuard::Integers),
        (cardinality_udf(), ArgumentGuard::Integers),
        (math::abs(), ArgumentGuard::NoLeast),
        (datafusion::functions::string::chr(), ArgumentGuard::NoNullCharacter),
        (unicode::right(), ArgumentGuard::NotLeast),
    ];
    all.into_iter().map(|(inner, guard)| Arc::new(ScalarUDF::from(GuardedFunction { inner, guard }))).collect()
}

#[derive(Debug, Clone, Copy)]
enum ArgumentGuard {
    /// Of what is greater than zero, and to such a base.
    Logarithm,
    /// Of angles and shares alone.
    Within(fn(f64) -> bool),
    /// What is finite stays finite.
    NotLonger,
    /// Floats, as processors round them; other numbers half away from zero.
    HalfToEven,
    NoEmptyLength,
    /// Places and lengths of arrays: `integer`s.
    Integers,
    /// Of integers, the least has no positive one.
    NoLeast,
    /// As many letters as the least integer is the whole text.
    NotLeast,
    /// A text has none.
    NoNullCharacter,
}

/// A function with a guard before or behind it, one for each.
#[derive(Debug)]
struct GuardedFunction {
    inner: Arc<ScalarUDF>,
    guard: ArgumentGuard,
}

impl PartialEq for GuardedFunction {
    fn eq(&self, other: &GuardedFunction) -> bool {
        self.inner == other.inner
    }
}

impl Eq for GuardedFunction {}

impl std::hash::Hash for GuardedFunction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for GuardedFunction {
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
        let of = self.inner.return_type(types)?;
        Ok(if self.gives_integers() { integers(&of) } else { of })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = self.inner.return_field_from_args(args)?;
        Ok(match self.gives_integers() {
            true => {
                let of = integers(field.data_type());
                Arc::new(field.as_ref().clone().with_nullable(true).with_data_type(of))
            }
            false => field,
        })
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.gives_integers() {
            let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
            let of = self.inner.return_type(&types)?;
            args.return_field = Arc::new(args.return_field.as_ref().clone().with_data_type(of));
        }
        match self.guard {
            ArgumentGuard::Logarithm => {
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
            ArgumentGuard::Within(is_within) => {
                check(&args.args[0], |value| match is_within(value) {
                    true => Ok(()),
                    false => Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, "input is out of range")),
                })?;
                self.inner.invoke_with_args(args)
            }
            ArgumentGuard::NotLonger => {
                // Degrees are less than 58 times as many.
                check(&args.args[0], |value| match value.is_finite() && value.abs() > f64::MAX / 58.0 {
                    true => Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, "value out of range: overflow")),
                    false => Ok(()),
                })?;
                self.inner.invoke_with_args(args)
            }
            ArgumentGuard::HalfToEven => match (&args.args[..], args.arg_fields[0].data_type()) {
                ([of], DataType::Float32 | DataType::Float64) => each(of, half_to_even),
                _ => self.inner.invoke_with_args(args),
            },
            ArgumentGuard::NoEmptyLength => each(&self.inner.invoke_with_args(args)?, |lengths| {
                let lengths = cast(&lengths, &DataType::UInt64)?;
                let none = Scalar::new(UInt64Array::from(vec![0]));
                let lengths = nullif(lengths.as_primitive::<UInt64Type>(), &eq(&lengths, &none)?)?;
                Ok(cast(&lengths, &DataType::Int32)?)
            }),
            ArgumentGuard::Integers => {
                let of = self.inner.invoke_with_args(args)?;
                each(&of, |numbers| Ok(cast(&numbers, &integers(numbers.data_type()))?))
            }
            ArgumentGuard::NoLeast => {
                let of = match args.arg_fields[0].data_type() {
                    DataType::Int16 => Some(("smallint", i64::from(i16::MIN))),
                    DataType::Int32 => Some(("integer", i64::from(i32::MIN))),
                    DataType::Int64 => Some(("bigint", i64::MIN)),
                    _ => None,
                };
                if let Some((name, least)) = of {
                    each(&args.args[0], |values| {
                        let longs = cast(&values, &DataType::Int64)?;
                        match longs.as_primitive::<Int64Type>().iter().any(|value| value == Some(least)) {
                            true => Err(out_of_range(name).into()),
                            false => Ok(values),
                        }
                    })?;
                }
                self.inner.invoke_with_args(args)
            }
            ArgumentGuard::NoNullCharacter => {
                check(&args.args[0], |code| match code {
                    0.0 => Err(SqlError::new(state::PROGRAM_LIMIT, "null character not permitted")),
                    _ => Ok(()),
                })?;
                self.inner.invoke_with_args(args)
            }
            ArgumentGuard::NotLeast => {
                args.args[1] = each(&args.args[1], |counts| {
                    let counts = cast(&counts, &DataType::Int64)?;
                    let all = |count| if count == i64::from(i32::MIN) { i64::MAX } else { count };
                    Ok(Arc::new(counts.as_primitive::<Int64Type>().unary::<_, Int64Type>(all)))
                })?;
                self.inner.invoke_with_args(args)
            }
        }
    }
}

impl GuardedFunction {
    fn gives_integers(&self) -> bool {
        matches!(self.guard, ArgumentGuard::NoEmptyLength | ArgumentGuard::Integers)
    }
}

/// `integer`, or an array of them.
fn integers(of: &DataType) -> DataType {
    match of {
        DataType::List(item) => DataType::List(Arc::new(item.as_ref().clone().with_data_type(DataType::Int32))),
        _ => DataType::Int32,
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
