//! How does Postgres write a value as text?
//!
//! The output formats of `DateStyle = ISO, MDY`, `IntervalStyle = postgres`, `bytea_output = hex`,
//! `extra_float_digits = 1`, and the time zone of the session. Used by DataRow text cells and by COPY TO.

use std::io::Write;

use bytes::{BufMut, BytesMut};
use tarn_types::Zone;

/// 1 `true`, 0 `false`: `t` or `f`.
pub fn boolean(out: &mut BytesMut, value: bool) {
    out.put_u8(if value { b't' } else { b'f' });
}

pub fn integer(out: &mut BytesMut, value: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.put_u8(b'-');
    }
    out.put_slice(&digits[at..]);
}

/// Shortest text that reads back as the same number; an exponent where Postgres uses one.
pub fn float(out: &mut BytesMut, value: f64, shortest: impl Fn(f64, bool) -> String) {
    if value.is_nan() {
        return out.put_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.put_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-4..1e15).contains(&magnitude) {
        return out.put_slice(shortest(value, false).as_bytes());
    }
    let text = shortest(value, true);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    out.put_slice(mantissa.as_bytes());
    out.put_u8(b'e');
    let (sign, digits) = exponent.strip_prefix('-').map_or((b'+', exponent), |digits| (b'-', digits));
    out.put_u8(sign);
    if digits.len() < 2 {
        out.put_u8(b'0');
    }
    out.put_slice(digits.as_bytes());
}

pub fn float64(out: &mut BytesMut, value: f64) {
    float(out, value, |v, exponent| if exponent { format!("{v:e}") } else { format!("{v}") });
}

pub fn float32(out: &mut BytesMut, value: f32) {
    let magnitude = value.abs();
    // Postgres switches to exponents at 1e6 for float4.
    let plain = magnitude == 0.0 || (1e-4..1e6).contains(&magnitude);
    if plain || !value.is_finite() {
        float(out, f64::from(value), |_, _| format!("{value}"));
    } else {
        float(out, if value < 0.0 { -1e300 } else { 1e300 }, |_, _| format!("{value:e}"));
    }
}

/// `unscaled` × 10^-`scale`.
pub fn decimal(out: &mut BytesMut, unscaled: i128, scale: i8) {
    let mut buffer = [0u8; 48];
    let mut rest = buffer.as_mut_slice();
    // 39 digits and a sign at most: it fits.
    let _ = write!(rest, "{}", unscaled.unsigned_abs());
    let unused = rest.len();
    let digits = &buffer[..48 - unused];
    if unscaled < 0 {
        out.put_u8(b'-');
    }
    if scale <= 0 {
        out.put_slice(digits);
        if unscaled != 0 {
            out.put_bytes(b'0', usize::from(scale.unsigned_abs()));
        }
        return;
    }
    let scale = scale as usize;
    if digits.len() <= scale {
        out.put_slice(b"0.");
        out.put_bytes(b'0', scale - digits.len());
        out.put_slice(digits);
    } else {
        let point = digits.len() - scale;
        out.put_slice(&digits[..point]);
        out.put_u8(b'.');
        out.put_slice(&digits[point..]);
    }
}

/// `\x0102ff`
pub fn bytea(out: &mut BytesMut, value: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + value.len() * 2);
    out.put_slice(b"\\x");
    for byte in value {
        out.put_u8(HEX[usize::from(byte >> 4)]);
        out.put_u8(HEX[usize::from(byte & 15)]);
    }
}

/// Days since 1970-01-01.
pub fn date(out: &mut BytesMut, days: i64) {
    let before_christ = civil(out, days);
    if before_christ {
        out.put_slice(b" BC");
    }
}

/// Microseconds of the day.
pub fn time(out: &mut BytesMut, micros: i64) {
    two(out, micros.div_euclid(3_600_000_000));
    out.put_u8(b':');
    minutes(out, micros.rem_euclid(3_600_000_000));
}

/// `1 year 2 mons -3 days +04:05:06.7`: a part that is positive behind a negative one says so. Source: PostgreSQL 16,
/// `EncodeInterval` of style `postgres`.
pub fn interval(out: &mut BytesMut, months: i32, days: i32, micros: i64) {
    let mut is_first = true;
    let mut is_behind_negative = false;
    for (value, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if value == 0 {
            continue;
        }
        if !is_first {
            out.put_u8(b' ');
        }
        if is_behind_negative && value > 0 {
            out.put_u8(b'+');
        }
        integer(out, value.into());
        out.put_u8(b' ');
        out.put_slice(unit.as_bytes());
        if value != 1 {
            out.put_u8(b's');
        }
        (is_first, is_behind_negative) = (false, value < 0);
    }
    if micros == 0 && !is_first {
        return;
    }
    if !is_first {
        out.put_u8(b' ');
    }
    if micros < 0 {
        out.put_u8(b'-');
    } else if is_behind_negative {
        out.put_u8(b'+');
    }
    let micros = micros.unsigned_abs();
    let hours = micros / 3_600_000_000;
    if hours < 100 {
        two(out, hours as i64);
    } else {
        integer(out, hours as i64);
    }
    out.put_u8(b':');
    minutes(out, (micros % 3_600_000_000) as i64);
}

/// `mm:ss` and a fraction, of microseconds below an hour.
fn minutes(out: &mut BytesMut, micros: i64) {
    let seconds = micros / 1_000_000;
    two(out, seconds / 60);
    out.put_u8(b':');
    two(out, seconds % 60);
    let mut fraction = micros % 1_000_000;
    if fraction != 0 {
        out.put_u8(b'.');
        let mut unit = 100_000;
        while fraction != 0 {
            out.put_u8(b'0' + (fraction / unit) as u8);
            fraction %= unit;
            unit /= 10;
        }
    }
}

/// Microseconds since 1970-01-01 00:00 UTC; with a zone what its clocks show, and their offset.
pub fn timestamp(out: &mut BytesMut, micros: i64, zone: Option<&Zone>) {
    const DAY: i64 = 86_400_000_000;
    let offset = zone.map(|zone| zone.offset_at(micros));
    let micros = micros.saturating_add(i64::from(offset.unwrap_or(0)) * 1_000_000);
    let before_christ = civil(out, micros.div_euclid(DAY));
    out.put_u8(b' ');
    time(out, micros.rem_euclid(DAY));
    if let Some(seconds) = offset {
        out.put_u8(if seconds < 0 { b'-' } else { b'+' });
        let seconds = i64::from(seconds.abs());
        two(out, seconds / 3600);
        if seconds % 3600 != 0 {
            out.put_u8(b':');
            two(out, seconds / 60 % 60);
        }
        if seconds % 60 != 0 {
            out.put_u8(b':');
            two(out, seconds % 60);
        }
    }
    if before_christ {
        out.put_slice(b" BC");
    }
}

/// Writes yyyy-mm-dd; true when the year is before Christ. Source: Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", civil_from_days.
fn civil(out: &mut BytesMut, days: i64) -> bool {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let before_christ = year <= 0;
    let shown = if before_christ { 1 - year } else { year };
    if shown < 10_000 {
        two(out, shown / 100);
        two(out, shown % 100);
    } else {
        integer(out, shown);
    }
    out.put_u8(b'-');
    two(out, month);
    out.put_u8(b'-');
    two(out, day);
    before_christ
}

fn two(out: &mut BytesMut, value: i64) {
    out.put_u8(b'0' + (value / 10 % 10) as u8);
    out.put_u8(b'0' + (value % 10) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn numbers_as_postgres_writes_them() {
        assert_eq!(text(|o| integer(o, i64::MIN)), "-9223372036854775808");
        assert_eq!(text(|o| integer(o, 0)), "0");
        for (value, want) in [
            (0.0, "0"),
            (-0.5, "-0.5"),
            (1e15, "1e+15"),
            (123456789012345.0, "123456789012345"),
            (1.5e-7, "1.5e-07"),
            (1e300, "1e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (0.1, "0.1"),
        ] {
            assert_eq!(text(|o| float64(o, value)), want);
        }
        assert_eq!(text(|o| float32(o, 0.1)), "0.1");
        assert_eq!(text(|o| float32(o, -1.5e20)), "-1.5e+20");
    }

    #[test]
    fn decimals_keep_their_scale() {
        assert_eq!(text(|o| decimal(o, 12345, 2)), "123.45");
        assert_eq!(text(|o| decimal(o, -5, 3)), "-0.005");
        assert_eq!(text(|o| decimal(o, 0, 2)), "0.00");
        assert_eq!(text(|o| decimal(o, 7, -2)), "700");
        assert_eq!(text(|o| decimal(o, i128::MIN, 0)), i128::MIN.to_string());
    }

    #[test]
    fn dates_and_times() {
        assert_eq!(text(|o| date(o, 0)), "1970-01-01");
        assert_eq!(text(|o| date(o, 19_782)), "2024-02-29");
        assert_eq!(text(|o| date(o, -719_528)), "0001-01-01 BC");
        assert_eq!(text(|o| timestamp(o, -1, Some(&Zone::utc()))), "1969-12-31 23:59:59.999999+00");
        assert_eq!(text(|o| timestamp(o, 1_500_000, None)), "1970-01-01 00:00:01.5");
        let shown = |zone: &str, micros| text(|o| timestamp(o, micros, Zone::parse(zone).as_ref()));
        assert_eq!(shown("Asia/Kathmandu", 1_577_836_800_000_000), "2020-01-01 05:45:00+05:45");
        assert_eq!(shown("America/New_York", 1_593_561_600_000_000), "2020-06-30 20:00:00-04");
        assert_eq!(shown("Europe/Berlin", -5_364_662_400_000_000), "1800-01-01 00:53:28+00:53:28");
        assert_eq!(text(|o| time(o, 86_399_000_000)), "23:59:59");
    }

    /// What PostgreSQL 16 says of the same intervals.
    #[test]
    fn intervals() {
        let of = |months, days, micros| {
            let mut out = BytesMut::new();
            interval(&mut out, months, days, micros);
            String::from_utf8(out.to_vec()).unwrap()
        };
        assert_eq!(of(0, 0, 0), "00:00:00");
        assert_eq!(of(14, 3, 14_706_789_000), "1 year 2 mons 3 days 04:05:06.789");
        assert_eq!(of(1, 0, 0), "1 mon");
        assert_eq!(of(-1, 2, -3_000_001), "-1 mons +2 days -00:00:03.000001");
        assert_eq!(of(-14, 0, 1), "-1 years -2 mons +00:00:00.000001");
        assert_eq!(of(0, -1, 0), "-1 days");
        assert_eq!(of(0, 0, i64::MIN), "-2562047788:00:54.775808");
        assert_eq!(of(0, 0, 360_000_000_000), "100:00:00");
    }
}
