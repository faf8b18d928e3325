//! How does a path compute with the numbers of a document? They have any number of digits; sums, products and
//! remainders are exact, a quotient has the digits that PostgreSQL gives it.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

use crate::digits::{GROUP, MIN_DIGITS};
use crate::error::{SqlError, state};

/// Digits of a number that is computed with.
const MAX_DIGITS: usize = 10_000;

/// A number with so many of its digits behind the point.
#[derive(Debug, Clone)]
pub(super) struct Number {
    value: BigInt,
    scale: u32,
}

fn out_of_range() -> SqlError {
    SqlError::new(state::NUMERIC_OUT_OF_RANGE, "value overflows numeric format")
        .with_detail(format!("a path computes with {MAX_DIGITS} digits at most"))
}

impl Number {
    /// Of digits with a point and an exponent, if there are.
    ///
    /// Errors: `22003`, more digits than are computed with.
    pub(super) fn of(text: &str) -> Result<Number, SqlError> {
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
        let exponent: i64 = exponent.parse().map_err(|_| out_of_range())?;
        if text.len() > MAX_DIGITS || exponent.unsigned_abs() > MAX_DIGITS as u64 {
            return Err(out_of_range());
        }
        let value: BigInt = format!("{whole}{behind}").parse().map_err(|_| out_of_range())?;
        let scale = behind.len() as i64 - exponent;
        Ok(match u32::try_from(scale) {
            Ok(scale) => Number { value, scale },
            Err(_) => Number { value: value * ten_to(scale.unsigned_abs() as u32), scale: 0 },
        })
    }

    pub(super) fn plus(&self, other: &Number) -> Number {
        let (left, right, scale) = self.beside(other);
        Number { value: left + right, scale }
    }

    pub(super) fn minus(&self, other: &Number) -> Number {
        self.plus(&other.negated())
    }

    /// Errors: `22003`.
    pub(super) fn times(&self, other: &Number) -> Result<Number, SqlError> {
        let product = Number { value: &self.value * &other.value, scale: self.scale + other.scale };
        if product.value.bits() > MAX_DIGITS as u64 * 10 / 3 { Err(out_of_range()) } else { Ok(product) }
    }

    /// Errors: `22012`.
    pub(super) fn divided(&self, other: &Number) -> Result<Number, SqlError> {
        other.check_divisor()?;
        let ((left_weight, left_group), (right_weight, right_group)) = (self.first_group(), other.first_group());
        let weight = left_weight - right_weight - i64::from(left_group <= right_group);
        let digits = i64::from(MIN_DIGITS) - weight * i64::from(GROUP);
        let scale = digits.max(self.scale.into()).max(other.scale.into()).clamp(0, MAX_DIGITS as i64) as u32;
        let shift = i64::from(scale) + i64::from(other.scale) - i64::from(self.scale);
        // As many digits as each side has, at least: never negative.
        let dividend = &self.value * ten_to(shift.unsigned_abs() as u32) * 2;
        let twice: BigInt = dividend / &other.value;
        let one = BigInt::from(if twice.sign() == Sign::Minus { -1 } else { 1 });
        Ok(Number { value: (twice + one) / 2, scale })
    }

    /// Errors: `22012`.
    pub(super) fn rest(&self, other: &Number) -> Result<Number, SqlError> {
        other.check_divisor()?;
        let (left, right, scale) = self.beside(other);
        Ok(Number { value: left % right, scale })
    }

    pub(super) fn negated(&self) -> Number {
        Number { value: -&self.value, scale: self.scale }
    }

    pub(super) fn abs(&self) -> Number {
        if self.value.sign() == Sign::Minus { self.negated() } else { self.clone() }
    }

    /// The greatest whole number that is not greater.
    pub(super) fn floor(&self) -> Number {
        let unit = ten_to(self.scale);
        let (whole, rest) = (&self.value / &unit, &self.value % &unit);
        let value = if rest.sign() == Sign::Minus { whole - 1 } else { whole };
        Number { value, scale: 0 }
    }

    pub(super) fn ceiling(&self) -> Number {
        self.negated().floor().negated()
    }

    /// Without what is behind the point. `None`: it has more than 32 bits.
    pub(super) fn truncated(&self) -> Option<i32> {
        i32::try_from(&self.value / ten_to(self.scale)).ok()
    }

    fn check_divisor(&self) -> Result<(), SqlError> {
        match self.value.sign() {
            Sign::NoSign => Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero")),
            _ => Ok(()),
        }
    }

    /// Both with as many digits behind the point.
    fn beside(&self, other: &Number) -> (BigInt, BigInt, u32) {
        let scale = self.scale.max(other.scale);
        (&self.value * ten_to(scale - self.scale), &other.value * ten_to(scale - other.scale), scale)
    }

    /// PostgreSQL counts in groups of four digits: where the first lies that is not zero, and what it is.
    fn first_group(&self) -> (i64, u64) {
        let digits = self.value.magnitude().to_string();
        if digits == "0" {
            return (0, 0);
        }
        let scale = i64::from(self.scale);
        let weight = (digits.len() as i64 - 1 - scale).div_euclid(GROUP.into());
        let n_digits = digits.len() as i64 - scale - weight * i64::from(GROUP);
        let group = digits.bytes().chain(std::iter::repeat(b'0')).take(n_digits as usize);
        (weight, group.fold(0, |group, digit| group * 10 + u64::from(digit - b'0')))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> Ordering {
        let (left, right, _) = self.beside(other);
        left.cmp(&right)
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (digits, scale) = (self.value.magnitude().to_string(), self.scale as usize);
        let digits = format!("{digits:0>width$}", width = scale + 1);
        let (whole, behind) = digits.split_at(digits.len() - scale);
        let sign = if self.value.sign() == Sign::Minus { "-" } else { "" };
        match behind {
            "" => write!(f, "{sign}{whole}"),
            behind => write!(f, "{sign}{whole}.{behind}"),
        }
    }
}

fn ten_to(places: u32) -> BigInt {
    BigInt::from(10).pow(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_computed_with_as_numerics() {
        let of = |text: &str| Number::of(text).unwrap();
        assert_eq!(of("7").divided(&of("2")).unwrap().to_string(), "3.5000000000000000");
        assert_eq!(of("1").divided(&of("-3")).unwrap().to_string(), "-0.33333333333333333333");
        assert_eq!(of("2").divided(&of("3")).unwrap().to_string(), "0.66666666666666666667");
        assert_eq!(of("-7.5").rest(&of("2")).unwrap().to_string(), "-1.5");
        assert_eq!(of("1.10").plus(&of("0.1e1")).to_string(), "2.10");
        assert_eq!(of("1.5").times(&of("-0.20")).unwrap().to_string(), "-0.300");
        assert_eq!([of("-1.5").floor().to_string(), of("-1.5").ceiling().to_string()], ["-2", "-1"]);
        assert_eq!((of("1e3").to_string(), of("12e-3").to_string()), ("1000".to_owned(), "0.012".to_owned()));
        assert!(of("1.0") == of("1") && of("-2") < of("-1.99"));
        assert_eq!((of("1.7").truncated(), of("-1.7").truncated(), of("1e10").truncated()), (Some(1), Some(-1), None));
        assert!(of("1").divided(&of("0.0")).is_err() && Number::of("1e99999").is_err());
    }
}
