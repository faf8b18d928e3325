//! Of which type are roots, powers and logarithms? Of a `numeric` they are numerics in PostgreSQL, with digits that are
//! right; DataFusion computes them as floats. What is not defined is an error, and so is a float that leaves its range.
//!
//! `powers` computes the digits. A constant has exactly those of PostgreSQL; a column has one number of them, filled up
//! with zeros that are not shown (`digits`).

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Float64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::averages::{digits_of, undefined};
use super::division::{POWERS, scale_of, too_long};
use super::powers::{self, Number};
use super::rowwise::ArgumentRows;
use crate::digits::{Digits, Rule};
use crate::error::{SqlError, state};

/// The functions, to be registered over DataFusion's.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let all = [
        ExactFunction::Sqrt,
        ExactFunction::Exp,
        ExactFunction::Ln,
        ExactFunction::Log,
        ExactFunction::Log10,
        ExactFunction::Power,
    ];
    let function = |what: ExactFunction| {
        let aliases = if what == ExactFunction::Power { vec!["pow".to_owned()] } else { vec![] };
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(NumericMathFunction { what, aliases, signature }))
    };
    all.into_iter().map(function).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ExactFunction {
    Sqrt,
    Exp,
    Ln,
    /// To base 10, or to another one that is given first.
    Log,
    Log10,
    Power,
}

/// Digits behind the point of a column of exponentials.
const EXP_DIGITS: i8 = 24;

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericMathFunction {
    what: ExactFunction,
    aliases: Vec<String>,
    signature: Signature,
}

impl ExactFunction {
    fn name(self) -> &'static str {
        match self {
            ExactFunction::Sqrt => "sqrt",
            ExactFunction::Exp => "exp",
            ExactFunction::Ln => "ln",
            ExactFunction::Log => "log",
            ExactFunction::Log10 => "log10",
            ExactFunction::Power => "power",
        }
    }

    /// Its value with `most` digits behind the point at most.
    fn exact(self, args: &[Number], most: i8) -> Result<Number, SqlError> {
        const TEN: Number = (10, 0);
        match (self, args) {
            (ExactFunction::Sqrt, [of]) => powers::sqrt(*of, most),
            (ExactFunction::Exp, [of]) => powers::exp(*of, most),
            (ExactFunction::Ln, [of]) => powers::ln(*of, most),
            (ExactFunction::Log | ExactFunction::Log10, [of]) => powers::log(TEN, *of, most),
            (_, [base, of]) if self == ExactFunction::Log => powers::log(*base, *of, most),
            (_, [base, of]) => powers::power(*base, *of, most),
            _ => Err(SqlError::new(state::UNDEFINED_FUNCTION, format!("function {} does not exist", self.name()))),
        }
    }

    fn of_floats(self, args: &[f64]) -> Result<f64, SqlError> {
        let root = |message: &str| Err(SqlError::new(state::INVALID_POWER, message));
        let of = args[0];
        let value = match (self, args) {
            (ExactFunction::Sqrt, _) if of < 0.0 => return root("cannot take square root of a negative number"),
            (ExactFunction::Sqrt, _) => of.sqrt(),
            (ExactFunction::Exp, _) => of.exp(),
            (ExactFunction::Power, [base, exponent]) => match (*base, *exponent) {
                (0.0, exponent) if exponent < 0.0 => return root("zero raised to a negative power is undefined"),
                (base, exponent) if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 => {
                    return root("a negative number raised to a non-integer power yields a complex result");
                }
                (base, exponent) => base.powf(exponent),
            },
            _ if of == 0.0 => return Err(SqlError::new(state::INVALID_LOGARITHM, "cannot take logarithm of zero")),
            _ if of < 0.0 => {
                return Err(SqlError::new(state::INVALID_LOGARITHM, "cannot take logarithm of a negative number"));
            }
            (ExactFunction::Ln, _) => of.ln(),
            _ => of.log10(),
        };
        let are_finite = args.iter().all(|arg| arg.is_finite());
        let out = |how: &str| Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, format!("value out of range: {how}")));
        match value {
            value if are_finite && value.is_infinite() => out("overflow"),
            0.0 if are_finite && (self == ExactFunction::Exp || (self == ExactFunction::Power && of != 0.0)) => {
                out("underflow")
            }
            value => Ok(value),
        }
    }

    /// The digits behind the point of a column, and what those of its values hang on.
    fn column(self, args: &[(i8, i8)]) -> (DataType, Rule, i8) {
        let least = args.iter().map(|(_, scale)| *scale).fold(0, i8::max);
        let (whole, rule) = match self {
            ExactFunction::Sqrt => (args[0].0.midpoint(1), Rule::Root),
            ExactFunction::Exp => (DECIMAL128_MAX_PRECISION as i8, Rule::Single),
            ExactFunction::Ln | ExactFunction::Log | ExactFunction::Log10 => (3, Rule::Single),
            // Of whole exponents.
            ExactFunction::Power if args[1].1 == 0 => (DECIMAL128_MAX_PRECISION as i8, Rule::Fixed),
            ExactFunction::Power => (DECIMAL128_MAX_PRECISION as i8, Rule::Single),
        };
        let least = if rule == Rule::Fixed { args[0].1 } else { least };
        // Exponentials from 1e-8 to 1e14 have all their digits; those that are larger are refused.
        let scale = if self == ExactFunction::Exp { EXP_DIGITS.max(least) } else { scale_of(whole, least) };
        (DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale), rule, least)
    }
}

/// A constant that is exact, as a number.
fn number(value: Option<&ScalarValue>) -> Option<Number> {
    match value? {
        ScalarValue::Decimal128(Some(value), _, scale) if *scale >= 0 => Some((*value, *scale)),
        ScalarValue::Int16(Some(value)) => Some(((*value).into(), 0)),
        ScalarValue::Int32(Some(value)) => Some(((*value).into(), 0)),
        ScalarValue::Int64(Some(value)) => Some(((*value).into(), 0)),
        _ => None,
    }
}

impl ScalarUDFImpl for NumericMathFunction {
    fn name(&self) -> &str {
        self.what.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Of numerics, and what stands beside one; all others are floats. The logarithm to another base is of numerics
    /// alone.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let n_wanted = match self.what {
            ExactFunction::Power => 2..=2,
            ExactFunction::Log => 1..=2,
            _ => 1..=1,
        };
        let is_number = |of: &DataType| of.is_numeric() || of.is_null() || of.is_string();
        if !n_wanted.contains(&types.len()) || !types.iter().all(is_number) {
            return Err(undefined(self.name(), types).into());
        }
        let is_exact = !types.iter().any(DataType::is_floating)
            && (types.iter().any(DataType::is_decimal) || (self.what == ExactFunction::Log && types.len() == 2));
        let coerced = types.iter().map(|of| match of {
            _ if !is_exact => DataType::Float64,
            DataType::Decimal128(precision, scale) => DataType::Decimal128(*precision, (*scale).max(0)),
            // Written out with more digits than there is room for.
            DataType::Decimal256(precision, scale) => {
                let whole = (*precision as i8).saturating_sub(*scale).max(0);
                let scale = (*scale).min(DECIMAL128_MAX_PRECISION as i8 - whole).max(0);
                DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
            }
            DataType::Int8 | DataType::Int16 => DataType::Decimal128(5, 0),
            DataType::Int32 => DataType::Decimal128(10, 0),
            of if of.is_integer() => DataType::Decimal128(20, 0),
            _ => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 12),
        });
        Ok(coerced.collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let digits = types.iter().map(digits_of).collect::<Option<Vec<_>>>();
        Ok(digits.map_or(DataType::Float64, |digits| self.what.column(&digits).0))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let Some(digits) = types.iter().map(digits_of).collect::<Option<Vec<_>>>() else {
            return Ok(Arc::new(Field::new(self.name(), DataType::Float64, is_nullable)));
        };
        let constants = args.scalar_arguments.iter().map(|value| number(*value)).collect::<Option<Vec<_>>>();
        // What is not defined is an error when it is computed.
        let constant = constants.and_then(|args| self.what.exact(&args, DECIMAL128_MAX_PRECISION as i8).ok());
        if let Some((_, scale)) = constant {
            let of = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
            return Ok(Arc::new(Field::new(self.name(), of, is_nullable)));
        }
        let (of, rule, _) = self.what.column(&digits);
        // Of a number with digits of its own, those that each has.
        let own = |(field, (_, scale)): (&FieldRef, &(i8, i8))| Digits::of(field).map_or(*scale, Digits::least);
        let least: Vec<(i8, i8)> = args.arg_fields.iter().zip(&digits).map(|each| (each.1.0, own(each))).collect();
        let (_, _, least) = self.what.column(&least);
        Ok(Arc::new(Digits::mark(Field::new(self.name(), of, is_nullable), rule, least)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let answer: ArrayRef = match args.return_field.data_type() {
            DataType::Decimal128(_, scale) => {
                let of = |column: usize, row: usize| {
                    let values = rows.columns[column].as_primitive::<Decimal128Type>();
                    match Digits::of(&args.arg_fields[column]) {
                        Some(digits) => digits.shown(values.value(row)),
                        None => (values.value(row), values.scale()),
                    }
                };
                let value = |row: usize| {
                    let numbers: Vec<Number> = (0..rows.columns.len()).map(|column| of(column, row)).collect();
                    let (value, digits) = self.what.exact(&numbers, *scale)?;
                    let filled = value.checked_mul(POWERS[usize::from((scale - digits).unsigned_abs())]);
                    filled.filter(|value| value.unsigned_abs() < POWERS[38].unsigned_abs()).ok_or_else(too_long)
                };
                let values = rows.there().map(|row| row.map(value).transpose());
                let values = values.collect::<Result<Decimal128Array, SqlError>>()?;
                Arc::new(values.with_data_type(args.return_field.data_type().clone()))
            }
            _ => {
                let value = |row: usize| {
                    let floats = rows.columns.iter().map(|column| column.as_primitive::<Float64Type>().value(row));
                    self.what.of_floats(&floats.collect::<Vec<f64>>())
                };
                let values = rows.there().map(|row| row.map(value).transpose());
                Arc::new(values.collect::<Result<Float64Array, SqlError>>()?)
            }
        };
        rows.answer(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_stay_in_their_domain_and_range() {
        let refused = |what: ExactFunction, args: &[f64]| what.of_floats(args).err().map(|error| error.state());
        let (range, root) = (Some(state::NUMERIC_OUT_OF_RANGE), Some(state::INVALID_POWER));
        assert_eq!([refused(ExactFunction::Exp, &[1000.0]), refused(ExactFunction::Exp, &[-1000.0])], [range, range]);
        assert_eq!(refused(ExactFunction::Exp, &[f64::INFINITY]), None);
        assert_eq!(
            [refused(ExactFunction::Power, &[10.0, 400.0]), refused(ExactFunction::Power, &[1e-300, 2.0])],
            [range, range]
        );
        assert_eq!(
            [refused(ExactFunction::Power, &[0.0, -1.0]), refused(ExactFunction::Power, &[-1.0, 0.5])],
            [root, root]
        );
        assert_eq!(refused(ExactFunction::Sqrt, &[-1.0]), root);
        assert_eq!(
            [
                ExactFunction::Power.of_floats(&[f64::NAN, 0.0]).unwrap(),
                ExactFunction::Power.of_floats(&[0.0, 2.0]).unwrap()
            ],
            [1.0, 0.0]
        );
        assert_eq!(refused(ExactFunction::Ln, &[0.0]), Some(state::INVALID_LOGARITHM));
    }

    #[test]
    fn columns_have_room() {
        let scale = |what: ExactFunction, args: &[(i8, i8)]| match what.column(args).0 {
            DataType::Decimal128(_, scale) => scale,
            other => panic!("{other}"),
        };
        assert_eq!(
            [
                scale(ExactFunction::Sqrt, &[(13, 2)]),
                scale(ExactFunction::Exp, &[(13, 2)]),
                scale(ExactFunction::Ln, &[(13, 2)])
            ],
            [20, 24, 20]
        );
    }
}
