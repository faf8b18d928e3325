//! How does PostgreSQL write the number of a `jsonb`? As its `numeric`: without exponent, with the digits behind the
//! point that were written.

use super::read::JsonFault;

/// Of PostgreSQL's `numeric`, before and behind the point.
const MAX_WHOLE_DIGITS: i64 = 131_072;
const MAX_DIGITS_BEHIND: i64 = 16_383;

/// Appends a number that was checked. Gives how many zeros it was longer than it was written.
pub(super) fn write(number: &str, out: &mut String) -> Result<usize, JsonFault> {
    let (digits, exponent) = match number.split_once(['e', 'E']) {
        None => (number, 0),
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().map_err(|_| JsonFault::TooManyDigits)?),
    };
    if exponent.abs() > i64::from(i32::MAX / 2) {
        return Err(JsonFault::TooManyDigits);
    }
    let (is_negative, digits) = digits.strip_prefix('-').map_or((false, digits), |digits| (true, digits));
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let scale = (behind.len() as i64 - exponent).max(0);
    if scale > MAX_DIGITS_BEHIND {
        return Err(JsonFault::TooManyDigits);
    }
    let digits = || whole.bytes().chain(behind.bytes());
    let n_digits = (whole.len() + behind.len()) as i64;
    let zero = |out: &mut String| {
        out.push('0');
        if scale > 0 {
            out.push('.');
            (0..scale).for_each(|_| out.push('0'));
        }
    };
    let start = out.len();
    let Some(first) = digits().position(|digit| digit != b'0') else {
        zero(out);
        return Ok((out.len() - start).saturating_sub(number.len()));
    };
    // Where the point is, counted from the first digit that is not 0: not before it if negative.
    let first = first as i64;
    let n_whole = whole.len() as i64 + exponent - first;
    if n_whole > MAX_WHOLE_DIGITS {
        return Err(JsonFault::TooManyDigits);
    }
    if is_negative {
        out.push('-');
    }
    if n_whole <= 0 {
        out.push_str("0.");
        (0..-n_whole).for_each(|_| out.push('0'));
    }
    for (at, digit) in (0..).zip(digits().skip(first as usize)) {
        if at == n_whole && n_whole > 0 {
            out.push('.');
        }
        out.push(char::from(digit));
    }
    (n_digits - first..n_whole).for_each(|_| out.push('0'));
    Ok((out.len() - start).saturating_sub(number.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_numerics() {
        for (number, wanted) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("1", "1"),
            ("1.0", "1.0"),
            ("-12.340", "-12.340"),
            ("1e2", "100"),
            ("1E+2", "100"),
            ("1.50e1", "15.0"),
            ("1.5e3", "1500"),
            ("15e-1", "1.5"),
            ("1e-5", "0.00001"),
            ("-1.25e-3", "-0.00125"),
            ("0.001e3", "1"),
            ("0.0010e3", "1.0"),
            ("0e5", "0"),
            ("0.00e1", "0.0"),
            ("0e-3", "0.000"),
            ("0.05", "0.05"),
            ("123456789012345678901234567890.5", "123456789012345678901234567890.5"),
        ] {
            let mut out = String::new();
            write(number, &mut out).unwrap();
            assert_eq!(out, wanted, "{number}");
        }
    }

    #[test]
    fn digits_are_bounded_as_those_of_numerics() {
        let mut out = String::new();
        assert_eq!(write("1e131071", &mut out).map(|zeros| (zeros, out.len())), Ok((131_064, 131_072)));
        for number in ["1e131072", "1e99999999999999999999", "1e-16384", "0e-16384", "1e2147483647"] {
            assert_eq!(write(number, &mut String::new()), Err(JsonFault::TooManyDigits), "{number}");
        }
        assert!(write("1e-16383", &mut String::new()).is_ok() && write("0e131072", &mut String::new()).is_ok());
    }
}
