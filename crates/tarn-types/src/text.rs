//! How does Postgres write a value as text, and what does it read?
//!
//! Parsers answer `None` for everything they do not understand; the caller names the text and the type. None of them
//! allocates except for bytes, and none knows [`crate::Value`].
//!
//! Dates are proleptic Gregorian, also beyond year 9999 and before Christ (`0044-03-15 BC`). Dates and times in other
//! forms than `2026-11-24 10:00:00+01` are read by [`crate::time_text`].

use std::fmt::Write;

use crate::infinity::{infinite_day_text, infinite_us_text, is_infinite_us};
use crate::zone::Zone;

const DAY_US: i64 = 86_400_000_000;

/// 4714-11-24 BC, the day 0 of Julian days, to the last day of year 5874897: what PostgreSQL's `date` reaches.
pub(crate) const DAYS: std::ops::RangeInclusive<i64> = -2_440_588..=2_145_042_905;

/// That day's midnight. Microseconds since 1970 end in the year 294247, 29 years before PostgreSQL's timestamps do.
pub(crate) const FIRST_TIMESTAMP: i64 = *DAYS.start() * DAY_US;

pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    let text = text.trim();
    let is = |word: &str, shortest: usize| {
        text.len() >= shortest && text.len() <= word.len() && word[..text.len()].eq_ignore_ascii_case(text)
    };
    if !text.is_ascii() {
        None
    } else if is("true", 1) || is("yes", 1) || is("on", 2) || text == "1" {
        Some(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || text == "0" {
        Some(false)
    } else {
        None
    }
}

/// Also reads `Infinity`, `-inf` and `NaN` in any case.
/// `None` also for a number that is too large for its type, or so small that it would be zero.
pub(crate) fn parse_float<F: std::str::FromStr + Into<f64> + Copy>(text: &str) -> Option<F> {
    let text = text.trim();
    let float: F = text.parse().ok()?;
    let wide: f64 = float.into();
    let is_number = text.contains(|c: char| c.is_ascii_digit());
    let is_zero = || text.split(['e', 'E']).next().is_none_or(|digits| !digits.contains(|c| matches!(c, '1'..='9')));
    let is_lost = is_number && (wide.is_infinite() || (wide == 0.0 && !is_zero()));
    (!is_lost).then_some(float)
}

/// As Postgres: shortest text that reads back the same, with an exponent below 1e-4 and from 1e15.
pub(crate) fn format_f64(value: f64) -> String {
    format_float(value, format!("{value:e}"), 15)
}

/// As Postgres: as [`format_f64`], with an exponent from 1e6.
pub(crate) fn format_f32(value: f32) -> String {
    format_float(f64::from(value), format!("{value:e}"), 6)
}

fn format_float(value: f64, scientific: String, limit: i32) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= limit {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat((-exponent - 1) as usize));
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        format!("{sign}{digits}{}", "0".repeat(whole - digits.len()))
    } else {
        format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
    }
}

/// Unscaled value at `scale`; digits beyond the scale are rounded half away from zero, as Postgres does. `None` also
/// for more than `precision` digits.
pub(crate) fn parse_decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let text = text.trim();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.as_bytes().first()? {
        b'-' => (true, &mantissa[1..]),
        b'+' => (false, &mantissa[1..]),
        _ => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // The place of a digit is its power of ten in the unscaled value.
    let mut place = whole.len() as i64 - 1 + i64::from(exponent) + i64::from(scale);
    let mut unscaled: i128 = 0;
    let mut round_up = false;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        if place >= 0 {
            unscaled = unscaled.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
        } else if place == -1 {
            round_up = digit >= b'5';
        }
        place -= 1;
    }
    // `place` is now one below the last digit: what is missing up to place 0 are zeros.
    if unscaled != 0 && place >= 0 {
        let zeros = u32::try_from(place + 1).ok()?;
        unscaled = unscaled.checked_mul(10i128.checked_pow(zeros)?)?;
    }
    unscaled += i128::from(round_up);
    fits_precision(unscaled, precision).then_some(if negative { -unscaled } else { unscaled })
}

pub(crate) fn fits_precision(unscaled: i128, precision: u8) -> bool {
    10i128.checked_pow(u32::from(precision)).is_some_and(|limit| unscaled.unsigned_abs() < limit.unsigned_abs())
}

pub(crate) fn format_decimal(unscaled: i128, scale: i8) -> String {
    let scale = usize::from(scale.unsigned_abs());
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// `\x0aff`, or the escape format (`\\`, `\012`, everything else as it is).
pub(crate) fn parse_bytes(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(hex) => parse_hex(hex.as_bytes()),
        None => parse_escaped(text.as_bytes()),
    }
}

fn parse_hex(hex: &[u8]) -> Option<Vec<u8>> {
    let nibble = |digit: u8| (digit as char).to_digit(16).map(|n| n as u8);
    if !hex.len().is_multiple_of(2) {
        return None;
    }
    hex.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

fn parse_escaped(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        (text, _) = match (first, rest) {
            (b'\\', [b'\\', rest @ ..]) => (rest, out.push(b'\\')),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                (rest, out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')))
            }
            (b'\\', _) => return None,
            (byte, rest) => (rest, out.push(*byte)),
        };
    }
    Some(out)
}

pub(crate) fn format_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("\\x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}"); // writing to a String cannot fail
    }
    out
}

/// Days since 1970-01-01. A time and a zone behind the date are read and ignored, as Postgres does: JDBC sends
/// `2026-11-22 +01`.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    let text = text.trim();
    let (date, bc) = text.strip_suffix(" BC").map_or((text, false), |text| (text, true));
    let days = parse_days(date, bc).or_else(|| {
        parse_date_time(text)?;
        parse_days(date.split_once([' ', 'T', 't'])?.0, bc)
    });
    i32::try_from(days?).ok()
}

fn parse_days(text: &str, bc: bool) -> Option<i64> {
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    if year.len() < 4 || year.len() > 7 {
        return None;
    }
    let (year, month, day) = (digits(year, 7)?, digits(month, 2)?, digits(day, 2)?);
    if year == 0 {
        return None;
    }
    let year = if bc { 1 - year } else { year };
    let days = days_from_civil(year, month, day);
    (DAYS.contains(&days) && civil_from_days(days) == (year, month, day)).then_some(days)
}

/// A number of one to `most` decimal digits, nothing else.
fn digits(text: &str, most: usize) -> Option<i64> {
    if text.is_empty() || text.len() > most {
        return None;
    }
    text.bytes().try_fold(0, |n, digit| digit.is_ascii_digit().then(|| n * 10 + i64::from(digit - b'0')))
}

/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = (shifted + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

pub(crate) fn format_date(days: i32) -> String {
    if let Some(text) = infinite_day_text(days) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(10);
    let bc = push_date(&mut out, i64::from(days));
    out.push_str(if bc { " BC" } else { "" });
    out
}

/// Writes the date without its era; true when that is BC.
fn push_date(out: &mut String, days: i64) -> bool {
    let (year, month, day) = civil_from_days(days);
    let shown = if year <= 0 { 1 - year } else { year };
    let _ = write!(out, "{shown:04}-{month:02}-{day:02}"); // writing to a String cannot fail
    year <= 0
}

/// Microseconds since midnight, up to and including 24:00:00. More than six digits of a second are rounded. A zone is
/// read and ignored, as Postgres does: JDBC sends `08:09:10+01`.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let text = text.trim();
    let zone_at = text.find(['+', '-', 'Z', 'z', ' ']).unwrap_or(text.len());
    let (text, zone) = text.split_at(zone_at);
    parse_zone(zone.trim())?;
    let (hour, rest) = text.split_once(':')?;
    let (minute, second) = rest.split_once(':').unwrap_or((rest, "0"));
    let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    if minute > 59 || second > 60 {
        return None;
    }
    let us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + parse_fraction(fraction)?;
    (us <= DAY_US).then_some(us)
}

pub(crate) fn parse_fraction(text: &str) -> Option<i64> {
    let mut us = 0;
    for (i, digit) in text.bytes().enumerate() {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        match i {
            0..=5 => us += digit * 10i64.pow(5 - i as u32),
            6 => us += i64::from(digit >= 5),
            _ => {}
        }
    }
    Some(us)
}

pub(crate) fn format_time(us: i64) -> String {
    let mut out = String::with_capacity(15);
    push_time(&mut out, us);
    out
}

fn push_time(out: &mut String, us: i64) {
    let (second, fraction) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
    // Writing to a String cannot fail.
    let _ = write!(out, "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

/// Microseconds since 1970-01-01, and the zone's offset in seconds when the text has one.
fn parse_date_time(text: &str) -> Option<(i128, Option<i64>)> {
    let text = text.trim();
    let (text, bc) = text.strip_suffix(" BC").map_or((text, false), |text| (text, true));
    let (date, rest) = text.split_once([' ', 'T', 't']).unwrap_or((text, ""));
    let days = parse_days(date, bc)?;
    // A `T` has a time behind it.
    if rest.is_empty() && date.len() < text.len() {
        return None;
    }
    let rest = rest.trim_start();
    let zone_at = rest.find(['+', '-', 'Z', 'z', ' ', 'U']).unwrap_or(rest.len());
    let (time, zone) = rest.split_at(zone_at);
    let us = if time.is_empty() { 0 } else { parse_time(time)? };
    Some((i128::from(days) * i128::from(DAY_US) + i128::from(us), parse_zone(zone.trim())?))
}

fn parse_zone(zone: &str) -> Option<Option<i64>> {
    if zone.is_empty() {
        return Some(None);
    }
    if matches!(zone, "Z" | "z" | "UTC") {
        return Some(Some(0));
    }
    let (sign, rest) = match zone.as_bytes().first()? {
        b'+' => (1, &zone[1..]),
        b'-' => (-1, &zone[1..]),
        _ => return None,
    };
    let mut parts = rest.split(':');
    let first = parts.next()?;
    let (hours, minutes) = match (first.len(), parts.next()) {
        (4, None) => first.split_at_checked(2)?,
        (_, minutes) => (first, minutes.unwrap_or("0")),
    };
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    let seconds = parts.next().map_or(Some(0), |seconds| digits(seconds, 2))?;
    if parts.next().is_some() || hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(Some(sign * (hours * 3600 + minutes * 60 + seconds)))
}

/// Microseconds since 1970-01-01; a zone in the text is read and ignored, as Postgres does.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    i64::try_from(parse_date_time(text)?.0).ok().filter(is_in_calendar)
}

/// Microseconds since 1970-01-01 UTC; a text without an offset is what the clocks of the zone show, without a zone it
/// is UTC.
pub(crate) fn parse_timestamp_tz(text: &str, zone: Option<&Zone>) -> Option<i64> {
    let instant = match (parse_date_time(text)?, zone) {
        ((us, None), Some(zone)) => zone.instant(i64::try_from(us).ok()?),
        ((us, offset), _) => i64::try_from(us - i128::from(offset.unwrap_or(0)) * 1_000_000).ok(),
    };
    instant.filter(is_in_calendar)
}

fn is_in_calendar(us: &i64) -> bool {
    *us >= FIRST_TIMESTAMP && !is_infinite_us(*us)
}

pub(crate) fn format_timestamp(us: i64) -> String {
    format_date_time(us, "")
}

pub(crate) fn format_timestamp_tz(us: i64) -> String {
    format_date_time(us, "+00")
}

fn format_date_time(us: i64, zone: &str) -> String {
    if let Some(text) = infinite_us_text(us) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(30);
    let bc = push_date(&mut out, us.div_euclid(DAY_US));
    out.push(' ');
    push_time(&mut out, us.rem_euclid(DAY_US));
    out.push_str(zone);
    out.push_str(if bc { " BC" } else { "" });
    out
}

/// Hyphenated or not, in braces or not, in any case.
pub(crate) fn parse_uuid(text: &str) -> Option<uuid::Uuid> {
    uuid::Uuid::try_parse(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn booleans_as_postgres_reads_them() {
        for text in ["t", "TRUE", "y", "yes", "on", "1", " tru "] {
            assert_eq!(parse_bool(text), Some(true), "{text}");
        }
        for text in ["f", "False", "n", "no", "off", "of", "0"] {
            assert_eq!(parse_bool(text), Some(false), "{text}");
        }
        for text in ["", "o", "2", "truee", "ја"] {
            assert_eq!(parse_bool(text), None, "{text}");
        }
    }

    #[test]
    fn floats_as_postgres_writes_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (-1234.25, "-1234.25"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1e+15"),
            (123456789012345.0, "123456789012345"),
            (1.5e300, "1.5e+300"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(format_f64(value), text);
        }
        assert_eq!(format_f32(1e6), "1e+06");
        assert_eq!(format_f32(0.1), "0.1");
    }

    #[test]
    fn decimals_round_and_refuse() {
        let parse = |text| parse_decimal(text, 5, 2);
        assert_eq!(parse("1"), Some(100));
        assert_eq!(parse("-1.005"), Some(-101));
        assert_eq!(parse("+.5"), Some(50));
        assert_eq!(parse("1."), Some(100));
        assert_eq!(parse("1.5e2"), Some(15_000));
        assert_eq!(parse("15e-1"), Some(150));
        assert_eq!(parse("6e-3"), Some(1));
        assert_eq!(parse("6e-4"), Some(0));
        assert_eq!(parse("0e999"), Some(0));
        assert_eq!(parse("999.99"), Some(99_999));
        for text in ["999.995", "1000", "", ".", "-", "1.2.3", "1e", "NaN", "1e999999999", "--1"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(format_decimal(-5, 2), "-0.05");
        assert_eq!(format_decimal(12_345, 0), "12345");
    }

    #[test]
    fn dates_and_times() {
        assert_eq!(parse_date("1970-01-01"), Some(0));
        assert_eq!(parse_date("2000-03-01"), Some(11_017));
        assert_eq!(parse_date("0001-12-31 BC"), Some(-719_163));
        assert_eq!(format_date(-719_163), "0001-12-31 BC");
        for text in
            ["2023-02-29", "2023-13-01", "2023-1", "23-01-01", "0000-01-01", "x", "2023-01-01 +", "2023-01-01 x"]
        {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for text in ["2000-03-01 +00", "2000-03-01 -05:30", "2000-03-01 23:59:59.9+14", "2000-03-01T24:00Z"] {
            assert_eq!(parse_date(text), Some(11_017), "{text}");
        }
        for text in ["01:02:03+00", "01:02:03 -05:30", "01:02:03Z", "01:02:03+14:00:00"] {
            assert_eq!(parse_time(text), Some(3_723_000_000), "{text}");
        }
        for text in ["01:02:03+", "01:02:03 x", "01:02:03+99", "+01", ""] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert_eq!(parse_time("24:00:00"), Some(DAY_US));
        assert_eq!(parse_time("01:02:03.4567896"), Some(3_723_456_790));
        assert_eq!(parse_time("24:00:00.000001"), None);
        assert_eq!(format_time(3_723_450_000), "01:02:03.45");
    }

    #[test]
    fn timestamps_with_and_without_zone() {
        assert_eq!(parse_timestamp("1970-01-02"), Some(DAY_US));
        assert_eq!(parse_timestamp("1970-01-01T00:00:01.5Z"), Some(1_500_000));
        assert_eq!(parse_timestamp("1970-01-01 00:00:00+05"), Some(0));
        assert_eq!(parse_timestamp_tz("1970-01-01 05:30:00+05:30", None), Some(0));
        assert_eq!(parse_timestamp_tz("1970-01-01 00:00:00-0100", None), Some(3_600_000_000));
        assert_eq!(parse_timestamp_tz("1970-01-01 00:00:00 UTC", None), Some(0));
        assert_eq!(format_timestamp_tz(1_500_000), "1970-01-01 00:00:01.5+00");
        for text in ["1970-01-01 25:00:00", "1970-01-01 00:00:00+99", "1970-01-01 00:00:00 Mars", "9999999-01-01"] {
            assert_eq!(parse_timestamp_tz(text, None), None, "{text}");
        }
    }

    #[test]
    fn bytes_in_both_formats() {
        assert_eq!(parse_bytes("\\x00fF"), Some(vec![0, 255]));
        assert_eq!(parse_bytes("a\\\\b\\001"), Some(b"a\\b\x01".to_vec()));
        for text in ["\\x0", "\\xzz", "\\9", "\\4"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trips(days in *DAYS.start() as i32..=*DAYS.end() as i32, us in FIRST_TIMESTAMP..i64::MAX, time in 0..=DAY_US, f: f64, g: f32, unscaled: i64, scale in 0i8..=18, bytes: Vec<u8>) {
            prop_assert_eq!(parse_date(&format_date(days)), Some(days));
            prop_assert_eq!(parse_timestamp(&format_timestamp(us)), Some(us));
            prop_assert_eq!(parse_timestamp_tz(&format_timestamp_tz(us), None), Some(us));
            prop_assert_eq!(parse_time(&format_time(time)), Some(time));
            prop_assert_eq!(parse_float::<f64>(&format_f64(f)).map(f64::to_bits), Some(f.to_bits()));
            prop_assert_eq!(parse_float::<f32>(&format_f32(g)).map(f32::to_bits), Some(g.to_bits()));
            let decimal = format_decimal(unscaled.into(), scale);
            prop_assert_eq!(parse_decimal(&decimal, 38, scale), Some(unscaled.into()));
            prop_assert_eq!(parse_bytes(&format_bytes(&bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_refused_or_read_but_never_panics(text in "[-+0-9eE.:TZ Bxn\\\\]{0,30}|.{0,30}") {
            parse_bool(&text);
            parse_float::<f64>(&text);
            parse_decimal(&text, 38, 10);
            parse_bytes(&text);
            parse_date(&text);
            parse_time(&text);
            parse_timestamp(&text);
            parse_timestamp_tz(&text, None);
            parse_uuid(&text);
        }
    }
}
