//! What is the variance of integers and numerics? A `numeric` in PostgreSQL, computed exactly; DataFusion's is a float.
//! And of an infinite value, or of one that is no number, it is none in PostgreSQL, even if it is the only one;
//! DataFusion's is 0.
//!
//! Exact numbers: `(n · Σx² − (Σx)²) ÷ n²`, or `÷ n (n − 1)` of a sample, divided as PostgreSQL divides. Floats: the
//! method of Youngs and Cramer, which PostgreSQL has, too, so that the last digits are the same where the order of rows
//! is.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, UInt64Array};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Float64Type, UInt64Type, i256};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use tarn_query::datafusion;

use super::averages::{averaged_as, digits_of, undefined};
use super::division::{POWERS, digits_of_long_quotient, long_quotient, scale_of, too_long};
use super::frames::OfFrame;
use super::moments::{Moments, MomentsAccumulator, MomentsResult, OfDistinct, OfGroups, Squares, state_fields};
use super::powers::root;
use crate::digits::{Digits, MIN_DIGITS, Rule};
use crate::error::{SqlError, state};

/// The functions, to be registered over DataFusion's.
pub(super) fn variances() -> Vec<Arc<AggregateUDF>> {
    let all: [(&'static str, &[&str], VarianceDivisor, VarianceFunction); 4] = [
        ("var", &["var_sample", "var_samp", "variance"], VarianceDivisor::Sample, VarianceFunction::Variance),
        ("var_pop", &["var_population"], VarianceDivisor::Population, VarianceFunction::Variance),
        ("stddev", &["stddev_samp"], VarianceDivisor::Sample, VarianceFunction::Deviation),
        ("stddev_pop", &[], VarianceDivisor::Population, VarianceFunction::Deviation),
    ];
    let function = |(name, aliases, of, what): (&'static str, &[&str], VarianceDivisor, VarianceFunction)| {
        let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::from(Variance { name, aliases, of, what, signature }))
    };
    all.into_iter().map(function).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum VarianceDivisor {
    Sample,
    Population,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum VarianceFunction {
    Variance,
    /// Its root.
    Deviation,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Variance {
    name: &'static str,
    aliases: Vec<String>,
    of: VarianceDivisor,
    what: VarianceFunction,
    signature: Signature,
}

impl VarianceDivisor {
    /// What a sum is divided by; `None`: there are too few values.
    fn divisor(self, n: u64) -> Option<i128> {
        let n = i128::from(n);
        match self {
            VarianceDivisor::Population => Some(n * n).filter(|divisor| *divisor > 0),
            VarianceDivisor::Sample => Some(n * (n - 1)).filter(|divisor| *divisor > 0),
        }
    }
}

impl VarianceFunction {
    fn rule(self) -> Rule {
        match self {
            VarianceFunction::Variance => Rule::Variance,
            VarianceFunction::Deviation => Rule::Deviation,
        }
    }

    /// Of numbers with so many digits before and behind the point. What is before it has room, if that leaves sixteen.
    fn result(self, (whole, scale): (i8, i8)) -> DataType {
        let whole = if self == VarianceFunction::Variance { whole.saturating_mul(2) } else { whole };
        let whole = whole.min(DECIMAL128_MAX_PRECISION as i8);
        let room = (DECIMAL128_MAX_PRECISION as i8 - whole).max(MIN_DIGITS);
        let scale = scale_of(whole, scale.saturating_mul(2).min(room));
        DataType::Decimal128((whole + scale).clamp(1, DECIMAL128_MAX_PRECISION as i8) as u8, scale)
    }

    /// Of values with `of` digits behind the point, with `scale` of them. Those that are `natural` have as many as are
    /// no zeros.
    fn exact(
        self,
        divided: VarianceDivisor,
        kept: &Squares,
        of: i8,
        scale: i8,
        is_natural: bool,
    ) -> Result<Option<i128>, SqlError> {
        let Some(divisor) = divided.divisor(kept.n) else { return Ok(None) };
        let (n, sum) = (i256::from_i128(kept.n.into()), i256::from_i128(kept.sum));
        let dividend =
            sum.checked_mul(sum).zip(n.checked_mul(kept.squares())).and_then(|(of, all)| all.checked_sub(of));
        let (dividend, divisor) = (dividend.ok_or_else(long)?, i256::from_i128(divisor));
        if dividend <= i256::ZERO {
            return Ok(Some(0));
        }
        let (mut dividend, mut of) = (dividend, i32::from(of) * 2);
        let hundred = i256::from_i128(100);
        while is_natural && of > 0 && dividend.wrapping_rem(hundred) == i256::ZERO {
            (dividend, of) = (dividend.wrapping_div(hundred), of - 2);
        }
        let digits = digits_of_long_quotient(dividend, of, divisor);
        let shown = digits.min(scale.into());
        let value = match self {
            VarianceFunction::Variance => long_quotient(dividend, of, divisor, shown),
            // That of all digits for which there is room: the last one that is shown hangs on those behind it.
            VarianceFunction::Deviation => long_quotient(dividend, of, divisor, 0).and_then(|whole| {
                let n_whole = whole.unsigned_abs().checked_ilog10().map_or(0, |digits| digits as i32 + 1);
                let digits = digits.min(i32::from(DECIMAL128_MAX_PRECISION) - n_whole);
                let variance = long_quotient(dividend, of, divisor, digits)?;
                root(variance, digits, shown).ok_or_else(long)
            }),
        };
        let value = value.map_err(|_| long())?;
        let filled = value.checked_mul(POWERS[(i32::from(scale) - shown).unsigned_abs() as usize]);
        filled.filter(|value| value.unsigned_abs() < POWERS[38].unsigned_abs()).map(Some).ok_or_else(long)
    }

    fn of_floats(self, divided: VarianceDivisor, kept: &Floats) -> Option<f64> {
        let divisor = match divided {
            VarianceDivisor::Population => kept.n as f64,
            VarianceDivisor::Sample => kept.n as f64 - 1.0,
        };
        let variance = (divisor > 0.0).then(|| kept.squares / divisor)?;
        Some(if self == VarianceFunction::Variance { variance } else { variance.sqrt() })
    }
}

fn long() -> SqlError {
    too_long().with_hint("cast the values to double precision")
}

impl Variance {
    fn exact(&self, args: &AccumulatorArgs<'_>) -> Option<(MomentsResult<Squares>, DataType)> {
        let (_, of) = digits_of(args.expr_fields.first()?.data_type())?;
        let DataType::Decimal128(_, scale) = *args.return_field.data_type() else { return None };
        let (what, divided) = (self.what, self.of);
        let is_natural = Digits::of(&args.expr_fields[0]).is_some_and(|digits| digits.rule() == Rule::Natural);
        let finish = move |kept: &Squares| what.exact(divided, kept, of, scale, is_natural);
        Some((Arc::new(finish), args.return_field.data_type().clone()))
    }

    fn of_floats(&self) -> MomentsResult<Floats> {
        let (what, divided) = (self.what, self.of);
        Arc::new(move |kept: &Floats| match kept.is_over {
            true => Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, "value out of range: overflow")),
            false => Ok(what.of_floats(divided, kept)),
        })
    }
}

impl AggregateUDFImpl for Variance {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let coerced = if let [of] = types { averaged_as(of) } else { None };
        // What has no variance is refused when its type is asked for.
        Ok(coerced.map_or_else(|| types.to_vec(), |of| vec![of]))
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [of] if averaged_as(of).is_some() => {
                Ok(digits_of(of).map_or(DataType::Float64, |digits| self.what.result(digits)))
            }
            _ => Err(undefined(self.name, types).into()),
        }
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        let of = fields[0].data_type();
        let variance = Field::new(self.name, self.return_type(std::slice::from_ref(of))?, true);
        let own = Digits::of(&fields[0]).map(Digits::least).or_else(|| digits_of(of).map(|(_, scale)| scale));
        let least = own.map_or(0, |scale| scale.saturating_mul(2));
        Ok(Arc::new(Digits::mark(variance, self.what.rule(), least)))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(match digits_of(args.input_fields[0].data_type()) {
            Some(_) => state_fields::<Squares>(args.name, args.is_distinct),
            None => state_fields::<Floats>(args.name, args.is_distinct),
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let floats = || (self.of_floats(), DataType::Float64);
        Ok(match (self.exact(&args), args.is_distinct) {
            (Some((finish, to)), false) => Box::new(MomentsAccumulator::new(finish, to)),
            (Some((finish, to)), true) => Box::new(OfDistinct::new(finish, to)),
            (None, false) => Box::new(MomentsAccumulator::new(floats().0, floats().1)),
            (None, true) => Box::new(OfDistinct::new(floats().0, floats().1)),
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if self.exact(&args).is_some() || args.is_distinct {
            return self.accumulator(args);
        }
        let finish = self.of_floats();
        let of_frame = move |values: &mut dyn Iterator<Item = f64>| {
            let mut kept = Floats::default();
            // There is room for any number of floats.
            values.for_each(|value| _ = kept.add(value.to_bits().cast_signed().into()));
            Ok(finish(&kept)?)
        };
        Ok(Box::new(OfFrame::new(DataType::Float64, of_frame)))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match self.exact(&args) {
            Some((finish, to)) => Box::new(OfGroups::new(finish, to)),
            None => Box::new(OfGroups::new(self.of_floats(), DataType::Float64)),
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// How many floats, their sum, and that of the squares of what they are from their mean.
///
/// Source: E. A. Youngs, E. M. Cramer, "Some Results Relevant to Choice of Sum and Sum-of-Product Algorithms",
/// Technometrics 13 (1971).
#[derive(Debug, Clone, Copy, Default)]
struct Floats {
    n: u64,
    sum: f64,
    squares: f64,
    /// Something left the range of floats.
    is_over: bool,
}

impl Floats {
    fn float(value: i128) -> f64 {
        f64::from_bits((value as i64).cast_unsigned())
    }
}

impl Moments for Floats {
    type Out = Float64Type;

    fn add(&mut self, value: i128) -> bool {
        let (value, before) = (Floats::float(value), *self);
        self.n += 1;
        self.sum += value;
        if before.n == 0 {
            self.squares = if value.is_finite() { 0.0 } else { f64::NAN };
            return true;
        }
        let n = self.n as f64;
        let off = value * n - self.sum;
        self.squares += off * off / (n * before.n as f64);
        if self.sum.is_infinite() || self.squares.is_infinite() {
            self.is_over |= !before.sum.is_infinite() && !value.is_infinite();
            self.squares = f64::NAN;
        }
        true
    }

    /// What is left of the others may differ in its last digits.
    fn remove(&mut self, value: i128) {
        if self.n <= 1 {
            *self = Floats::default();
            return;
        }
        let (value, n) = (Floats::float(value), self.n as f64);
        let off = value * n - self.sum;
        self.squares = (self.squares - off * off / (n * (n - 1.0))).max(0.0);
        self.sum -= value;
        self.n -= 1;
    }

    fn merge(&mut self, other: &Floats) -> bool {
        if other.n == 0 || self.n == 0 {
            *self = if self.n == 0 { *other } else { *self };
            return true;
        }
        let (left, right) = (self.n as f64, other.n as f64);
        let off = self.sum / left - other.sum / right;
        let squares = self.squares + other.squares + left * right * off * off / (left + right);
        let is_over = squares.is_infinite() && !self.squares.is_infinite() && !other.squares.is_infinite();
        *self = Floats {
            n: self.n + other.n,
            sum: self.sum + other.sum,
            squares,
            is_over: self.is_over || other.is_over || is_over,
        };
        true
    }

    fn states() -> Vec<(&'static str, DataType)> {
        vec![
            ("count", DataType::UInt64),
            ("sum", DataType::Float64),
            ("squares", DataType::Float64),
            ("over", DataType::UInt64),
        ]
    }

    fn write(groups: &[Floats]) -> Vec<ArrayRef> {
        let floats = |of: fn(&Floats) -> f64| Float64Array::from_iter_values(groups.iter().map(of));
        let numbers = |of: fn(&Floats) -> u64| UInt64Array::from_iter_values(groups.iter().map(of));
        vec![
            Arc::new(numbers(|group| group.n)),
            Arc::new(floats(|group| group.sum)),
            Arc::new(floats(|group| group.squares)),
            Arc::new(numbers(|group| group.is_over.into())),
        ]
    }

    fn read(states: &[ArrayRef]) -> Vec<Floats> {
        let float = |idx: usize, row: usize| states[idx].as_primitive::<Float64Type>().value(row);
        let number = |idx: usize, row: usize| states[idx].as_primitive::<UInt64Type>().value(row);
        let group = |row: usize| Floats {
            n: number(0, row),
            sum: float(1, row),
            squares: float(2, row),
            is_over: number(3, row) != 0,
        };
        (0..states[0].len()).map(group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn exact_numbers_have_exact_variances() {
        let of = |what: VarianceFunction, divided: VarianceDivisor, values: &[i128], of: i8, scale: i8| {
            let mut kept = Squares::default();
            values.iter().for_each(|value| assert!(kept.add(*value)));
            what.exact(divided, &kept, of, scale, false).unwrap()
        };
        let unit = 10_i128.pow(20);
        assert_eq!(
            of(VarianceFunction::Variance, VarianceDivisor::Sample, &[1, 2, 3, 4], 0, 20),
            Some(16_666_666_666_666_667 * 10_000)
        );
        assert_eq!(
            of(VarianceFunction::Deviation, VarianceDivisor::Sample, &[1, 2, 3, 4], 0, 20),
            Some(12_909_944_487_358_056 * 10_000)
        );
        assert_eq!(
            of(
                VarianceFunction::Variance,
                VarianceDivisor::Population,
                &[100_000_003, 100_000_004, 100_000_006, 100_000_007],
                0,
                16
            ),
            Some(25 * 10_i128.pow(15))
        );
        assert_eq!(of(VarianceFunction::Variance, VarianceDivisor::Sample, &[5], 0, 20), None);
        // Of averages, which have twenty digits behind the point; and of such that there is no room for all of them.
        let averages = [1_775_000_000_000_000_000, 4_000_000_000_000_000_000].map(|of: i128| of * 100);
        assert_eq!(
            of(VarianceFunction::Variance, VarianceDivisor::Sample, &averages, 20, 26),
            Some(24_753_125 * 10_i128.pow(19))
        );
        assert_eq!(
            of(VarianceFunction::Deviation, VarianceDivisor::Population, &averages, 20, 32),
            Some(11_125 * 10_i128.pow(28))
        );
        assert_eq!(of(VarianceFunction::Variance, VarianceDivisor::Population, &[5], 0, 20), Some(0));
        assert_eq!(of(VarianceFunction::Variance, VarianceDivisor::Population, &[50, 150], 2, 20), Some(unit / 4));
    }

    #[test]
    fn floats_that_are_no_numbers_have_no_variance() {
        let of = |divided: VarianceDivisor, values: &[f64]| {
            let mut kept = Floats::default();
            values.iter().for_each(|value| assert!(kept.add((value.to_bits().cast_signed()).into())));
            VarianceFunction::Variance.of_floats(divided, &kept)
        };
        assert!(of(VarianceDivisor::Population, &[f64::INFINITY]).unwrap().is_nan());
        assert!(of(VarianceDivisor::Population, &[1.0, f64::NAN]).unwrap().is_nan());
        assert_eq!(of(VarianceDivisor::Sample, &[f64::INFINITY]), None);
        assert_eq!(of(VarianceDivisor::Population, &[1.0, 2.0, 3.0, 4.0]), Some(1.25));
        let (mut left, mut right) = (Floats::default(), Floats::default());
        let bits = |value: f64| i128::from(value.to_bits().cast_signed());
        assert!(left.add(bits(1.0)) && left.add(bits(2.0)) && right.add(bits(3.0)) && right.add(bits(4.0)));
        assert!(left.merge(&right));
        assert_eq!(VarianceFunction::Variance.of_floats(VarianceDivisor::Population, &left), Some(1.25));
        left.remove(bits(4.0));
        assert!(
            (VarianceFunction::Variance.of_floats(VarianceDivisor::Population, &left).unwrap() - 2.0 / 3.0).abs()
                < 1e-12
        );
    }
}
