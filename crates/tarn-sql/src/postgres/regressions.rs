//! What is the regression of pairs of floats? `corr(y, x)`, `covar_pop`, `covar_samp` and `regr_slope` and its kin. Of
//! pairs with an infinite value, or with one that is no number, they are no number in PostgreSQL, and an error where
//! finite values leave the range of floats; DataFusion's are NULL or 0 there, and differ in the last digits.
//!
//! PostgreSQL keeps six numbers of the pairs, by the method of Youngs and Cramer, and so does this file.
//!
//! Source: PostgreSQL 15, `float8_regr_accum` and what stands behind it.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF, Signature, Volatility};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::averages::{averaged_as, undefined};
use crate::error::{SqlError, state};

const COVAR_SAMP: &str = "covar_samp";

/// The functions, to be registered over DataFusion's. `tarn-query` computes them anew where a frame moves.
pub(super) fn regressions() -> Vec<Arc<AggregateUDF>> {
    let all = [
        ("corr", What::Correlation),
        ("covar_pop", What::CovariancePopulation),
        (COVAR_SAMP, What::CovarianceSample),
        ("regr_avgx", What::AverageX),
        ("regr_avgy", What::AverageY),
        ("regr_count", What::Count),
        ("regr_intercept", What::Intercept),
        ("regr_r2", What::R2),
        ("regr_slope", What::Slope),
        ("regr_sxx", What::Sxx),
        ("regr_sxy", What::Sxy),
        ("regr_syy", What::Syy),
    ];
    let function = |(name, what): (&'static str, What)| {
        // DataFusion's other name of it, by which its own must not be found.
        let aliases = if name == COVAR_SAMP { vec!["covar".to_owned()] } else { vec![] };
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::from(Regression { name, aliases, what, signature }))
    };
    all.into_iter().map(function).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Correlation,
    CovariancePopulation,
    CovarianceSample,
    AverageX,
    AverageY,
    Count,
    Intercept,
    R2,
    Slope,
    Sxx,
    Sxy,
    Syy,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Regression {
    name: &'static str,
    aliases: Vec<String>,
    what: What,
    signature: Signature,
}

impl AggregateUDFImpl for Regression {
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
        match types {
            [y, x] if averaged_as(y).is_some() && averaged_as(x).is_some() => Ok(vec![DataType::Float64; 2]),
            _ => Err(undefined(self.name, types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.what == What::Count { DataType::Int64 } else { DataType::Float64 })
    }

    /// Of no rows.
    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        if self.what == What::Count { Ok(ScalarValue::Int64(Some(0))) } else { ScalarValue::try_from(data_type) }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let names = ["count", "x", "xx", "y", "yy", "xy"];
        let field = |of| Arc::new(Field::new(format_state_name(args.name, of), DataType::Float64, false));
        Ok(names.into_iter().map(field).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            let message = format!("{}(DISTINCT …) is not supported", self.name);
            return Err(SqlError::unsupported(message, "a subquery with SELECT DISTINCT in FROM").into());
        }
        Ok(Box::new(OfPairs { what: self.what, sums: Sums::default() }))
    }

    /// The last digits hang on the order of the rows.
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[derive(Debug)]
struct OfPairs {
    what: What,
    sums: Sums,
}

impl Accumulator for OfPairs {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [y, x] = [0, 1].map(|idx: usize| values[idx].as_primitive::<Float64Type>());
        for (y, x) in y.iter().zip(x.iter()) {
            if let (Some(y), Some(x)) = (y, x) {
                self.sums.add(y, x)?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(match self.what {
            What::Count => ScalarValue::Int64(Some(self.sums.n as i64)),
            what => ScalarValue::Float64(self.sums.of(what)),
        })
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Sums { n, x, xx, y, yy, xy } = self.sums;
        Ok([n, x, xx, y, yy, xy].into_iter().map(|of| ScalarValue::Float64(Some(of))).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [n, x, xx, y, yy, xy] = [0, 1, 2, 3, 4, 5].map(|idx: usize| states[idx].as_primitive::<Float64Type>());
        for row in 0..n.len() {
            let other = Sums {
                n: n.value(row),
                x: x.value(row),
                xx: xx.value(row),
                y: y.value(row),
                yy: yy.value(row),
                xy: xy.value(row),
            };
            self.sums.merge(&other)?;
        }
        Ok(())
    }
}

/// How many pairs; the sums of both sides, and of the squares and the products of what they are from their means.
///
/// Source: E. A. Youngs, E. M. Cramer, "Some Results Relevant to Choice of Sum and Sum-of-Product Algorithms",
/// Technometrics 13 (1971).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    n: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

impl Sums {
    /// Errors: `22003` where finite values leave the range of floats.
    fn add(&mut self, y: f64, x: f64) -> Result<(), SqlError> {
        let before = *self;
        self.n += 1.0;
        self.x += x;
        self.y += y;
        if before.n == 0.0 {
            if !x.is_finite() {
                (self.xx, self.xy) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (self.yy, self.xy) = (f64::NAN, f64::NAN);
            }
            return Ok(());
        }
        let (off_x, off_y) = (x * self.n - self.x, y * self.n - self.y);
        let scale = 1.0 / (self.n * before.n);
        self.xx += off_x * off_x * scale;
        self.yy += off_y * off_y * scale;
        self.xy += off_x * off_y * scale;
        let was_within = |sum: f64, value: f64| !sum.is_infinite() && !value.is_infinite();
        let (x_within, y_within) = (was_within(before.x, x), was_within(before.y, y));
        if (self.x.is_infinite() || self.xx.is_infinite()) && x_within
            || (self.y.is_infinite() || self.yy.is_infinite()) && y_within
            || self.xy.is_infinite() && x_within && y_within
        {
            return Err(overflow());
        }
        for squares in [&mut self.xx, &mut self.yy, &mut self.xy] {
            if squares.is_infinite() {
                *squares = f64::NAN;
            }
        }
        Ok(())
    }

    /// Adds the pairs of another.
    ///
    /// Errors: as [`Sums::add`].
    fn merge(&mut self, other: &Sums) -> Result<(), SqlError> {
        if self.n == 0.0 || other.n == 0.0 {
            *self = if self.n == 0.0 { *other } else { *self };
            return Ok(());
        }
        let checked = |sum: f64, left: f64, right: f64| {
            if sum.is_infinite() && !left.is_infinite() && !right.is_infinite() { Err(overflow()) } else { Ok(sum) }
        };
        let n = self.n + other.n;
        let (off_x, off_y) = (self.x / self.n - other.x / other.n, self.y / self.n - other.y / other.n);
        let squares = |left: f64, right: f64, off: f64, by: f64| left + right + self.n * other.n * off * by / n;
        *self = Sums {
            n,
            x: checked(self.x + other.x, self.x, other.x)?,
            xx: checked(squares(self.xx, other.xx, off_x, off_x), self.xx, other.xx)?,
            y: checked(self.y + other.y, self.y, other.y)?,
            yy: checked(squares(self.yy, other.yy, off_y, off_y), self.yy, other.yy)?,
            xy: checked(squares(self.xy, other.xy, off_x, off_y), self.xy, other.xy)?,
        };
        Ok(())
    }

    /// `None` is NULL.
    fn of(&self, what: What) -> Option<f64> {
        let Sums { n, x, xx, y, yy, xy } = *self;
        if n < 1.0 {
            return None;
        }
        match what {
            What::Correlation => (xx != 0.0 && yy != 0.0).then(|| xy / (xx * yy).sqrt()),
            What::CovariancePopulation => Some(xy / n),
            What::CovarianceSample => (n >= 2.0).then(|| xy / (n - 1.0)),
            What::AverageX => Some(x / n),
            What::AverageY => Some(y / n),
            What::Count => Some(n),
            What::Intercept => (xx != 0.0).then(|| (y - x * xy / xx) / n),
            What::R2 if xx != 0.0 && yy == 0.0 => Some(1.0),
            What::R2 => (xx != 0.0).then(|| (xy * xy) / (xx * yy)),
            What::Slope => (xx != 0.0).then(|| xy / xx),
            What::Sxx => Some(xx),
            What::Sxy => Some(xy),
            What::Syy => Some(yy),
        }
    }
}

fn overflow() -> SqlError {
    SqlError::new(state::NUMERIC_OUT_OF_RANGE, "value out of range: overflow")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(f64, f64)]) -> Sums {
        let mut sums = Sums::default();
        pairs.iter().for_each(|(y, x)| sums.add(*y, *x).unwrap());
        sums
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn pairs_of_all_kinds_have_regressions() {
        assert_eq!(of(&[]).of(What::Correlation), None);
        assert_eq!(of(&[(1e20, 1.0), (1.0, 2.0)]).of(What::Correlation), Some(-1.0));
        assert_eq!(of(&[(1e20, 1.0), (1.0, 2.0), (2.0, 3.0)]).of(What::Correlation), Some(-0.866_025_403_784_438_6));
        assert!(of(&[(f64::INFINITY, 1.0), (1.0, 2.0)]).of(What::Correlation).unwrap().is_nan());
        assert_eq!(of(&[(1.0, 5.0), (2.0, 5.0)]).of(What::Slope), None);
        assert_eq!(of(&[(5.0, 1.0), (5.0, 2.0)]).of(What::R2), Some(1.0));
        assert_eq!(of(&[(5.0, 1.0)]).of(What::CovarianceSample), None);
        assert_eq!(of(&[(5.0, 1.0)]).of(What::CovariancePopulation), Some(0.0));
        assert_eq!(of(&[(3.0, 1.0), (5.0, 2.0)]).of(What::Intercept), Some(1.0));
        let mut sums = of(&[(1.0, 1e200)]);
        assert_eq!(sums.add(1.0, -1e200).unwrap_err().state(), state::NUMERIC_OUT_OF_RANGE);
    }

    #[test]
    fn parts_of_pairs_are_one_whole() {
        let pairs = [(1.0, 2.0), (3.0, 5.0), (4.0, 4.0), (9.0, 8.0)];
        let mut parts = of(&pairs[..1]);
        parts.merge(&of(&pairs[1..])).unwrap();
        parts.merge(&Sums::default()).unwrap();
        let whole = of(&pairs);
        assert_eq!((parts.n, parts.x, parts.y), (whole.n, whole.x, whole.y));
        for (part, whole) in [(parts.xx, whole.xx), (parts.yy, whole.yy), (parts.xy, whole.xy)] {
            assert!((part - whole).abs() < 1e-12);
        }
    }
}
