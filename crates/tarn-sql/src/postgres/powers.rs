//! Which digits have the root, the power and the logarithm of a `numeric`?
//!
//! PostgreSQL gives sixteen that count at least, and as many behind the point as the number has; all of them are right.
//! Here, too: whole numbers of any length stand for fixed points, with enough digits beyond those that are asked for.
//!
//! - A root is that of a whole number.
//! - `exp(x)` is a series of `x ÷ 2ⁿ`, squared n times.
//! - `ln(x)` is `a + ln(x · exp(−a))`, where `a` is the logarithm as a float: what is left is a series of very few
//!   terms.
//! - A power is one of whole numbers if it is short, else `exp(b · ln(a))`.

use num_bigint::{BigInt, BigUint, Sign};

use super::integers::out_of_range;
use crate::digits::{GROUP, MIN_DIGITS};
use crate::error::{SqlError, state};

/// A number, and how many of its digits are behind the point.
pub(super) type Number = (i128, i8);

/// Digits of a number.
const MAX_DIGITS: i32 = 38;
/// The first powers of ten that have no room, whatever the sign.
const MAX_WEIGHT: f64 = 40.0;
/// Digits behind the point that PostgreSQL shows at most, and one more for what is rounded.
const MOST_ZEROS: f64 = 1002.0;
/// Digits that a computation has beyond those that are asked for.
const GUARD: i32 = 12;
/// Beyond so many digits a power is no longer multiplied out.
const MAX_POWER_DIGITS: u64 = 4_000;

/// How many digits behind the point a value has, and what it is with a number of them that is not larger.
type NumberResult = Result<Number, SqlError>;

/// `√x`, with `most` digits behind the point at most.
pub(super) fn sqrt((of, scale): Number, most: i8) -> NumberResult {
    if of < 0 {
        return Err(SqlError::new(state::INVALID_POWER, "cannot take square root of a negative number"));
    }
    let weight = weight_of_group(of, scale);
    let digits = wanted(i32::from(MIN_DIGITS) + 1 - (weight + 1) * GROUP / 2, &[scale], most);
    root(of, scale.into(), digits).map(|root| (root, digits as i8)).ok_or_else(too_long)
}

/// The root of a number with `scale` digits behind the point, rounded to `digits`. `None`: it has no room.
pub(super) fn root(of: i128, scale: i32, digits: i32) -> Option<i128> {
    let shift = digits * 2 - scale;
    let of = BigUint::from(of.unsigned_abs());
    let power = BigUint::from(10_u8).pow(shift.unsigned_abs());
    let of = if shift >= 0 { of * power } else { of / power };
    // Half of the root of four times as much: rounded.
    let root: BigUint = ((of * 4_u8).sqrt() + 1_u8) / 2_u8;
    i128::try_from(root).ok().filter(|root| fits(*root))
}

/// `eˣ`
pub(super) fn exp((of, scale): Number, most: i8) -> NumberResult {
    let weight = approximate((of, scale)) * std::f64::consts::LOG10_E;
    if weight > MAX_WEIGHT {
        return Err(overflow());
    }
    let digits = wanted(i32::from(MIN_DIGITS) - weight.max(-1000.0) as i32, &[scale], most);
    if weight < -MAX_WEIGHT {
        return nearly_zero(weight, digits);
    }
    let places = digits + GUARD * 2 + weight.max(0.0) as i32;
    let value = exp_of(&fixed((of, scale), places), places);
    shortened(&value, places, digits)
}

/// The natural logarithm.
pub(super) fn ln(of: Number, most: i8) -> NumberResult {
    check_logarithm(of)?;
    let digits = wanted(i32::from(MIN_DIGITS) - weight_of_ln(of), &[of.1], most);
    shortened(&ln_of(of, digits + GUARD), digits + GUARD, digits)
}

/// The logarithm to a base.
pub(super) fn log(base: Number, of: Number, most: i8) -> NumberResult {
    check_logarithm(base)?;
    check_logarithm(of)?;
    let weight = weight_of_ln(of) - weight_of_ln(base);
    let digits = wanted(i32::from(MIN_DIGITS) - weight, &[base.1, of.1], most);
    // The logarithm of a base that is almost 1 is small.
    let places = digits + GUARD * 2 + MAX_DIGITS;
    let (of, base) = (ln_of(of, places), ln_of(base, places));
    if base.sign() == Sign::NoSign {
        return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
    }
    shortened(&(of * ten_to(places) / base), places, digits)
}

/// `base` to the power of `exponent`
pub(super) fn power(base: Number, exponent: Number, most: i8) -> NumberResult {
    let whole = whole_of(exponent);
    // PostgreSQL multiplies by these, and has other digits for what it multiplies.
    let times = whole.and_then(|whole| i32::try_from(whole).ok());
    match base.0.signum() {
        0 if exponent.0 < 0 => {
            return Err(SqlError::new(state::INVALID_POWER, "zero raised to a negative power is undefined"));
        }
        -1 if whole.is_none() => {
            let message = "a negative number raised to a non-integer power yields a complex result";
            return Err(SqlError::new(state::INVALID_POWER, message));
        }
        _ => {}
    }
    if base.0 == 0 {
        let own = if times.is_some() { base.1 } else { 0 };
        let digits = wanted(MIN_DIGITS.into(), &[own], most);
        let one = if exponent.0 == 0 { 10_i128.pow(digits.unsigned_abs()) } else { 0 };
        return Ok((one, digits as i8));
    }
    let weight = approximate(exponent) * logarithm(base) * std::f64::consts::LOG10_E;
    if weight > MAX_WEIGHT {
        return Err(overflow());
    }
    let digits = match times {
        Some(_) => wanted(MIN_DIGITS.into(), &[base.1], most),
        None => wanted(i32::from(MIN_DIGITS) - weight.max(-1000.0) as i32, &[base.1, exponent.1], most),
    };
    if weight < -MAX_WEIGHT {
        return nearly_zero(weight, digits);
    }
    let is_negative = base.0 < 0 && whole.is_some_and(|whole| whole % 2 != 0);
    let signed = |value: BigInt| if is_negative { -value } else { value };
    if let Some(times) = times.map(i32::unsigned_abs)
        && u64::from(times) * u64::from(base.0.unsigned_abs().ilog10() + 1) <= MAX_POWER_DIGITS
    {
        let (value, scale) = (BigInt::from(base.0.unsigned_abs()).pow(times), i64::from(base.1) * i64::from(times));
        let scale = scale as i32;
        return match exponent.0 >= 0 {
            true => shortened(&signed(value), scale, digits),
            // One divided by it.
            false => {
                let places = digits + GUARD;
                let inverse: BigInt = ten_to(scale + places) / value;
                shortened(&signed(inverse), places, digits)
            }
        };
    }
    let places = digits + GUARD * 2 + weight.max(0.0) as i32;
    // What is wrong with the logarithm is wrong with the power as often as it is multiplied.
    let more = places + MAX_DIGITS;
    let product = ln_of((base.0.abs(), base.1), more) * BigInt::from(exponent.0) / ten_to(exponent.1.into());
    let value = exp_of(&(product / ten_to(more - places)), places);
    shortened(&signed(value), places, digits)
}

/// As PostgreSQL has it, and not fewer than the numbers have.
fn wanted(digits: i32, own: &[i8], most: i8) -> i32 {
    own.iter().fold(digits.max(0), |digits, own| digits.max((*own).into())).min(most.into())
}

fn fits(value: i128) -> bool {
    value.unsigned_abs() < 10_u128.pow(MAX_DIGITS as u32)
}

fn too_long() -> SqlError {
    super::division::too_long()
}

fn overflow() -> SqlError {
    out_of_range("numeric").with_hint("a numeric has at most 38 digits: cast to double precision")
}

/// What PostgreSQL shows with more zeros behind the point than there is room for.
fn underflow() -> SqlError {
    out_of_range("numeric").with_hint("a numeric has at most 38 digits behind the point: cast to double precision")
}

/// What is so small: with PostgreSQL's thousand digits some of it is there, or it is zero.
fn nearly_zero(weight: f64, digits: i32) -> NumberResult {
    if weight < -MOST_ZEROS { Ok((0, digits as i8)) } else { Err(underflow()) }
}

fn check_logarithm((of, _): Number) -> Result<(), SqlError> {
    match of.signum() {
        0 => Err(SqlError::new(state::INVALID_LOGARITHM, "cannot take logarithm of zero")),
        -1 => Err(SqlError::new(state::INVALID_LOGARITHM, "cannot take logarithm of a negative number")),
        _ => Ok(()),
    }
}

fn approximate((of, scale): Number) -> f64 {
    of as f64 / 10_f64.powi(scale.into())
}

/// Of what is not zero, without its sign, as a float.
fn logarithm((of, scale): Number) -> f64 {
    let nearly = approximate((of, scale)).abs();
    // Near 1, a float has lost what counts.
    if (0.5..2.0).contains(&nearly)
        && let Some(one) = 10_i128.checked_pow(u32::from(scale.unsigned_abs()))
    {
        return approximate((of.abs() - one, scale)).ln_1p();
    }
    (of.unsigned_abs() as f64).ln() - f64::from(scale) * std::f64::consts::LN_10
}

/// Where the first group of four digits is.
fn weight_of_group(of: i128, scale: i8) -> i32 {
    match of.unsigned_abs() {
        0 => 0,
        of => (of.ilog10() as i32 - i32::from(scale)).div_euclid(GROUP),
    }
}

/// The place of the first digit of a logarithm, cut towards zero if the number is not near 1.
fn weight_of_ln((of, scale): Number) -> i32 {
    let one = 10_i128.pow(u32::from(scale.unsigned_abs()));
    let is_near = of >= one / 10 * 9 && of <= one.saturating_add(one / 10);
    match is_near && scale > 0 {
        true if of == one => 0,
        true => (of - one).unsigned_abs().ilog10() as i32 - i32::from(scale),
        false if of == one => 0,
        false => logarithm((of, scale)).abs().log10() as i32,
    }
}

/// A whole number, if it is one.
fn whole_of((of, scale): Number) -> Option<i128> {
    let unit = 10_i128.pow(u32::from(scale.unsigned_abs()));
    (of % unit == 0).then_some(of / unit)
}

fn ten_to(places: i32) -> BigInt {
    BigInt::from(10).pow(places.unsigned_abs())
}

/// A number with so many digits behind the point.
fn fixed((of, scale): Number, places: i32) -> BigInt {
    let shift = places - i32::from(scale);
    if shift >= 0 { BigInt::from(of) * ten_to(shift) } else { BigInt::from(of) / ten_to(shift) }
}

/// With fewer digits behind the point, rounded half away from zero. What is no zero has to stay none.
fn shortened(value: &BigInt, places: i32, digits: i32) -> NumberResult {
    let is_zero = value.sign() == Sign::NoSign;
    let value = match places - digits {
        ..=0 => value * ten_to(digits - places),
        shift => {
            let unit = ten_to(shift);
            let half: BigInt = &unit / 2;
            let half = if value.sign() == Sign::Minus { -half } else { half };
            (value + half) / unit
        }
    };
    if value.sign() == Sign::NoSign && !is_zero {
        return Err(underflow());
    }
    i128::try_from(value).ok().filter(|value| fits(*value)).map(|value| (value, digits as i8)).ok_or_else(overflow)
}

fn exp_of(of: &BigInt, places: i32) -> BigInt {
    let one = ten_to(places);
    if of.sign() == Sign::Minus {
        return &one * &one / exp_of(&-of, places);
    }
    // So that it is less than 1 / 256. Each square doubles what is wrong: three digits for ten of them, and some more.
    let mut halvings = 0_u32;
    let mut small = of.clone();
    while &small * 256 > one {
        small /= 2;
        halvings += 1;
    }
    let more = ten_to(halvings.cast_signed() / 3 + 4);
    let one_more = &one * &more;
    let small = (of * &more) >> halvings;
    let (mut sum, mut term, mut nth) = (one_more.clone(), one_more.clone(), 0);
    while term.sign() != Sign::NoSign {
        nth += 1;
        term = term * &small / &one_more / nth;
        sum += &term;
    }
    for _ in 0..halvings {
        sum = &sum * &sum / &one_more;
    }
    sum / more
}

/// Of what is greater than zero.
fn ln_of(of: Number, digits: i32) -> BigInt {
    const FLOAT_DIGITS: i32 = 12;
    // The exponential of minus its logarithm may be as small as the number is large.
    let places = digits + GUARD + MAX_DIGITS;
    let near = (logarithm(of) * 1e12) as i128;
    let near = BigInt::from(near) * ten_to(places - FLOAT_DIGITS);
    let one = ten_to(places);
    let rest = exp_of(&-&near, places) * of.0 / ten_to(of.1.into()) - &one;
    // ln(1 + rest)
    let (mut sum, mut power, mut nth) = (near, rest.clone(), 1);
    while power.sign() != Sign::NoSign {
        let term = &power / nth;
        if nth % 2 == 1 {
            sum += term
        } else {
            sum -= term
        }
        power = power * &rest / &one;
        nth += 1;
    }
    sum / ten_to(places - digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(of: NumberResult) -> String {
        let (value, scale) = of.unwrap();
        let mut out = bytes::BytesMut::new();
        crate::text::decimal(&mut out, value, scale);
        String::from_utf8(out.to_vec()).unwrap()
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn digits_are_right() {
        assert_eq!(shown(sqrt((20, 1), 38)), "1.414213562373095");
        assert_eq!(shown(sqrt((1_234_567_891, 3), 38)), "1111.1111065055555");
        assert_eq!(shown(exp((10, 1), 38)), "2.7182818284590452");
        assert_eq!(shown(exp((-100, 1), 38)), "0.00004539992976248485");
        assert_eq!(shown(exp((32_999, 3), 38)), "214429043492155.053");
        assert_eq!(shown(ln((20, 1), 38)), "0.6931471805599453");
        assert_eq!(shown(ln((1, 10), 38)), "-23.025850929940457");
        assert_eq!(shown(log((20, 1), (640, 1), 38)), "6.0000000000000000");
        assert_eq!(shown(power((20, 1), (5, 1), 38)), "1.4142135623730950");
        assert_eq!(shown(power((25, 1), (35, 1), 38)), "24.705294220065464");
        assert_eq!(shown(power((20, 1), (-3, 0), 38)), "0.1250000000000000");
        assert_eq!(shown(power((-20, 1), (30, 1), 38)), "-8.0000000000000000");
        assert_eq!(shown(power((1_000_001, 6), (100_000, 0), 38)), "1.1051708628171399");
    }

    #[test]
    fn what_is_not_defined_is_an_error() {
        let states = [
            sqrt((-1, 0), 38),
            ln((0, 0), 38),
            log((2, 0), (-1, 0), 38),
            log((1, 0), (2, 0), 38),
            power((0, 0), (-1, 0), 38),
            power((-2, 0), (5, 1), 38),
            exp((1000, 0), 38),
            power((10, 0), (40, 0), 38),
        ]
        .map(|of| of.unwrap_err().state());
        let (root, range) = (state::INVALID_POWER, state::NUMERIC_OUT_OF_RANGE);
        let (logarithm, zero) = (state::INVALID_LOGARITHM, state::DIVISION_BY_ZERO);
        assert_eq!(states, [root, logarithm, logarithm, zero, root, root, range, range]);
        assert_eq!(exp((-10_000, 0), 38).unwrap().0, 0);
        let lost = [exp((-1000, 0), 38), power((123, 1), (-456, 1), 38), exp((-100, 0), 38)];
        assert_eq!(lost.map(|of| of.unwrap_err().state()), [range; 3]);
        assert_eq!(power((0, 0), (0, 0), 38).unwrap(), (10_i128.pow(16), 16));
    }
}
