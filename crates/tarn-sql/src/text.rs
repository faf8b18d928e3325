//! How does Postgres write a value as text?
//!
//! In the forms that `DateStyle`, `IntervalStyle`, `bytea_output`, `extra_float_digits` and the time zone of the
//! session say. Used by DataRow text cells, by COPY TO, and by casts to text.

use std::fmt::Write as _;
use std::io::Write;

use bytes::{BufMut, BytesMut};
use tarn_types::{
    BytesForm, DateForm, DateOrder, Forms, IntervalForm, Span, Zone, infinite_day_text, infinite_us_text,
};

/// 1 `true`, 0 `false`: `t` or `f`.
pub fn boolean(out: &mut BytesMut, value: bool) {
    out.put_u8(if value { b't' } else { b'f' });
}

/// In decimal digits, with a minus where it is below 0.
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

/// Of so many digits as [`Forms::float_digits`] says.
pub fn float64(out: &mut BytesMut, value: f64, float_digits: i8) {
    const DIGITS: i16 = 15;
    if float_digits <= 0 && value.is_finite() {
        return general(out, value, DIGITS + i16::from(float_digits));
    }
    float(out, value, |v, exponent| if exponent { format!("{v:e}") } else { format!("{v}") });
}

/// As [`float64`].
pub fn float32(out: &mut BytesMut, value: f32, float_digits: i8) {
    const DIGITS: i16 = 6;
    if float_digits <= 0 && value.is_finite() {
        return general(out, value.into(), DIGITS + i16::from(float_digits));
    }
    let magnitude = value.abs();
    // Postgres switches to exponents at 1e6 for float4.
    let plain = magnitude == 0.0 || (1e-4..1e6).contains(&magnitude);
    if plain || !value.is_finite() {
        float(out, f64::from(value), |_, _| format!("{value}"));
    } else {
        float(out, if value < 0.0 { -1e300 } else { 1e300 }, |_, _| format!("{value:e}"));
    }
}

/// As C's `%g` writes a finite number: of so many digits, without zeros at the end, and with an exponent where one of
/// so few has its point elsewhere.
fn general(out: &mut BytesMut, value: f64, n_digits: i16) {
    let n_digits = usize::try_from(n_digits.max(1)).unwrap_or(1);
    let scientific = format!("{value:.*e}", n_digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    let text = match (-4..n_digits as i32).contains(&exponent) {
        true => {
            let behind_point = (n_digits as i32 - 1 - exponent) as usize;
            without_zeros(&format!("{value:.behind_point$}"))
        }
        false => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs())
        }
    };
    out.put_slice(text.as_bytes());
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

/// `\x0102ff`, or `\001\002\377`.
pub fn bytea(out: &mut BytesMut, value: &[u8], form: BytesForm) {
    if form == BytesForm::Escape {
        return out.put_slice(form.text(value).as_bytes());
    }
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + value.len() * 2);
    out.put_slice(b"\\x");
    for byte in value {
        out.put_u8(HEX[usize::from(byte >> 4)]);
        out.put_u8(HEX[usize::from(byte & 15)]);
    }
}

/// Days since 1970-01-01.
pub fn date(out: &mut BytesMut, days: i32, forms: Forms) {
    if let Some(text) = infinite_day_text(days) {
        return out.put_slice(text.as_bytes());
    }
    let before_christ = day(out, days.into(), forms);
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

/// An interval in one of its forms.
pub fn interval(out: &mut BytesMut, months: i32, days: i32, micros: i64, form: IntervalForm) {
    match form {
        IntervalForm::Postgres => {
            let span = Span { months, days, us: micros };
            // A buffer takes what it is given.
            let _ = write!(out, "{span}");
        }
        IntervalForm::PostgresVerbose => verbose_interval(out, months, days, micros),
        IntervalForm::Iso8601 => iso_interval(out, months, days, micros),
    }
}

/// `@ 1 year 2 mons 3 days 4 hours 5 mins 6.7 secs ago`: what is negative, where the first part is. Source: PostgreSQL
/// 15, `EncodeInterval` of style `postgres_verbose`.
fn verbose_interval(out: &mut BytesMut, months: i32, days: i32, micros: i64) {
    out.put_u8(b'@');
    // `None`: all so far was zero.
    let mut is_ago = None;
    let mut part = |out: &mut BytesMut, value: i64, unit: &str| {
        if value == 0 {
            return;
        }
        let is_ago = *is_ago.get_or_insert(value < 0);
        let value = if is_ago { -value } else { value };
        out.put_u8(b' ');
        integer(out, value);
        out.put_u8(b' ');
        out.put_slice(unit.as_bytes());
        if value != 1 {
            out.put_u8(b's');
        }
    };
    let (hours, minutes, rest) = (micros / 3_600_000_000, micros / 60_000_000 % 60, micros % 60_000_000);
    part(out, (months / 12).into(), "year");
    part(out, (months % 12).into(), "mon");
    part(out, days.into(), "day");
    part(out, hours, "hour");
    part(out, minutes, "min");
    if rest != 0 {
        let is_ago = *is_ago.get_or_insert(rest < 0);
        out.put_u8(b' ');
        if (rest < 0) != is_ago {
            out.put_u8(b'-');
        }
        seconds(out, rest.abs());
        out.put_slice(if rest.abs() == 1_000_000 { b" sec" } else { b" secs" });
    }
    match is_ago {
        None => out.put_slice(b" 0"),
        Some(true) => out.put_slice(b" ago"),
        Some(false) => {}
    }
}

/// `P1Y2M3DT4H5M6.7S`, each part with its sign. Source: PostgreSQL 15, `EncodeInterval` of style `iso_8601`.
fn iso_interval(out: &mut BytesMut, months: i32, days: i32, micros: i64) {
    if (months, days, micros) == (0, 0, 0) {
        return out.put_slice(b"PT0S");
    }
    let part = |out: &mut BytesMut, value: i64, unit: u8| {
        if value != 0 {
            integer(out, value);
            out.put_u8(unit);
        }
    };
    out.put_u8(b'P');
    part(out, (months / 12).into(), b'Y');
    part(out, (months % 12).into(), b'M');
    part(out, days.into(), b'D');
    if micros != 0 {
        out.put_u8(b'T');
    }
    part(out, micros / 3_600_000_000, b'H');
    part(out, micros / 60_000_000 % 60, b'M');
    let rest = micros % 60_000_000;
    if rest != 0 {
        if rest < 0 {
            out.put_u8(b'-');
        }
        seconds(out, rest.abs());
        out.put_u8(b'S');
    }
}

/// `6.7`, of microseconds that are not negative.
fn seconds(out: &mut BytesMut, micros: i64) {
    integer(out, micros / 1_000_000);
    fraction(out, micros % 1_000_000);
}

/// `mm:ss` and a fraction, of microseconds below an hour.
fn minutes(out: &mut BytesMut, micros: i64) {
    let seconds = micros / 1_000_000;
    two(out, seconds / 60);
    out.put_u8(b':');
    two(out, seconds % 60);
    fraction(out, micros % 1_000_000);
}

/// `.7`, of microseconds below a second; nothing of none.
fn fraction(out: &mut BytesMut, micros: i64) {
    let mut fraction = micros;
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
pub fn timestamp(out: &mut BytesMut, micros: i64, zone: Option<&Zone>, forms: Forms) {
    const DAY: i64 = 86_400_000_000;
    if let Some(text) = infinite_us_text(micros) {
        return out.put_slice(text.as_bytes());
    }
    let offset = zone.map(|zone| zone.offset_at(micros));
    let micros = micros.saturating_add(i64::from(offset.unwrap_or(0)) * 1_000_000);
    if forms.dates != DateForm::Iso {
        return in_letters(out, micros, zone, forms);
    }
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

/// A time as its clocks show it, in a form that has letters for zones.
fn in_letters(out: &mut BytesMut, local: i64, zone: Option<&Zone>, forms: Forms) {
    const DAY: i64 = 86_400_000_000;
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, us) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    let before_christ = match forms.dates {
        DateForm::Postgres => {
            let (year, month, day) = civil_from_days(days);
            let name = MONTHS[(month - 1) as usize];
            out.put_slice(WEEKDAYS[days.rem_euclid(7) as usize].as_bytes());
            out.put_u8(b' ');
            if forms.order == DateOrder::Dmy {
                two(out, day);
                out.put_u8(b' ');
                out.put_slice(name.as_bytes());
            } else {
                out.put_slice(name.as_bytes());
                out.put_u8(b' ');
                two(out, day);
            }
            out.put_u8(b' ');
            time(out, us);
            out.put_u8(b' ');
            four(out, if year <= 0 { 1 - year } else { year });
            year <= 0
        }
        _ => {
            let before_christ = day(out, days, forms);
            out.put_u8(b' ');
            time(out, us);
            before_christ
        }
    };
    if let Some(letters) = zone.and_then(Zone::letters) {
        out.put_u8(b' ');
        out.put_slice(letters.as_bytes());
    }
    if before_christ {
        out.put_slice(b" BC");
    }
}

/// Writes a date in one of its forms; true when the year is before Christ.
fn day(out: &mut BytesMut, days: i64, forms: Forms) -> bool {
    let separator = match forms.dates {
        DateForm::Iso => return civil(out, days),
        DateForm::Sql => b'/',
        DateForm::Postgres => b'-',
        DateForm::German => b'.',
    };
    let (year, month, day) = civil_from_days(days);
    let is_day_first = forms.dates == DateForm::German || forms.order == DateOrder::Dmy;
    let (first, second) = if is_day_first { (day, month) } else { (month, day) };
    two(out, first);
    out.put_u8(separator);
    two(out, second);
    out.put_u8(separator);
    four(out, if year <= 0 { 1 - year } else { year });
    year <= 0
}

fn four(out: &mut BytesMut, year: i64) {
    if year < 10_000 {
        two(out, year / 100);
        two(out, year % 100);
    } else {
        integer(out, year);
    }
}

/// Writes yyyy-mm-dd; true when the year is before Christ.
fn civil(out: &mut BytesMut, days: i64) -> bool {
    let (year, month, day) = civil_from_days(days);
    let before_christ = year <= 0;
    four(out, if before_christ { 1 - year } else { year });
    out.put_u8(b'-');
    two(out, month);
    out.put_u8(b'-');
    two(out, day);
    before_christ
}

/// Year, month and day. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
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
            assert_eq!(text(|o| float64(o, value, 1)), want);
        }
        assert_eq!(text(|o| float32(o, 0.1, 1)), "0.1");
        assert_eq!(text(|o| float32(o, -1.5e20, 1)), "-1.5e+20");
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
        assert_eq!(text(|o| date(o, 0, Forms::default())), "1970-01-01");
        assert_eq!(text(|o| date(o, 19_782, Forms::default())), "2024-02-29");
        assert_eq!(text(|o| date(o, -719_528, Forms::default())), "0001-01-01 BC");
        assert_eq!(text(|o| timestamp(o, -1, Some(&Zone::utc()), Forms::default())), "1969-12-31 23:59:59.999999+00");
        assert_eq!(text(|o| timestamp(o, 1_500_000, None, Forms::default())), "1970-01-01 00:00:01.5");
        let shown = |zone: &str, micros| text(|o| timestamp(o, micros, Zone::parse(zone).as_ref(), Forms::default()));
        assert_eq!(shown("Asia/Kathmandu", 1_577_836_800_000_000), "2020-01-01 05:45:00+05:45");
        assert_eq!(shown("America/New_York", 1_593_561_600_000_000), "2020-06-30 20:00:00-04");
        assert_eq!(shown("Europe/Berlin", -5_364_662_400_000_000), "1800-01-01 00:53:28+00:53:28");
        assert_eq!(text(|o| time(o, 86_399_000_000)), "23:59:59");
        assert_eq!(text(|o| date(o, i32::MIN, Forms::default())), "-infinity");
        assert_eq!(text(|o| timestamp(o, i64::MAX, Some(&Zone::utc()), Forms::default())), "infinity");
    }

    /// What PostgreSQL 16 says of the same intervals.
    #[test]
    fn intervals() {
        let of = |months, days, micros| {
            let mut out = BytesMut::new();
            interval(&mut out, months, days, micros, IntervalForm::Postgres);
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

    /// What PostgreSQL 15 says.
    #[test]
    fn dates_in_all_forms() {
        let of = |dates, order| {
            let forms = Forms { dates, order, ..Forms::default() };
            let at = text(|o| timestamp(o, 1_795_605_305_500_000, Some(&Zone::utc()), forms));
            let bare = text(|o| timestamp(o, -62_198_755_200_000_000, None, forms));
            [text(|o| date(o, 19_782, forms)), at, bare].join(", ")
        };
        let (mdy, dmy) = (DateOrder::Mdy, DateOrder::Dmy);
        assert_eq!(of(DateForm::Sql, mdy), "02/29/2024, 11/25/2026 11:15:05.5 UTC, 01/01/0002 00:00:00 BC");
        assert_eq!(of(DateForm::Sql, dmy), "29/02/2024, 25/11/2026 11:15:05.5 UTC, 01/01/0002 00:00:00 BC");
        assert_eq!(of(DateForm::German, mdy), "29.02.2024, 25.11.2026 11:15:05.5 UTC, 01.01.0002 00:00:00 BC");
        let postgres = "02-29-2024, Wed Nov 25 11:15:05.5 2026 UTC, Fri Jan 01 00:00:00 0002 BC";
        assert_eq!(of(DateForm::Postgres, DateOrder::Ymd), postgres);
        let postgres = "29-02-2024, Wed 25 Nov 11:15:05.5 2026 UTC, Fri 01 Jan 00:00:00 0002 BC";
        assert_eq!(of(DateForm::Postgres, dmy), postgres);
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn intervals_in_all_forms() {
        let of = |months, days, us| {
            [IntervalForm::PostgresVerbose, IntervalForm::Iso8601]
                .map(|form| text(|out| interval(out, months, days, us, form)))
        };
        assert_eq!(of(0, 0, 0), ["@ 0", "PT0S"]);
        assert_eq!(of(14, 3, 14_706_700_000), ["@ 1 year 2 mons 3 days 4 hours 5 mins 6.7 secs", "P1Y2M3DT4H5M6.7S"]);
        assert_eq!(of(-1, 2, -3_000_001), ["@ 1 mon -2 days 3.000001 secs ago", "P-1M2DT-3.000001S"]);
        assert_eq!(of(0, 0, 1_000_000), ["@ 1 sec", "PT1S"]);
        assert_eq!(of(1, -1, -1), ["@ 1 mon -1 days -0.000001 secs", "P1M-1DT-0.000001S"]);
        assert_eq!(of(0, -1, 3_600_000_000), ["@ 1 day -1 hours ago", "P-1DT1H"]);
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn floats_of_fewer_digits() {
        let of = |value: f64, digits| text(|out| float64(out, value, digits));
        assert_eq!([of(0.1 + 0.2, 0), of(0.1 + 0.2, 1)], ["0.3", "0.30000000000000004"]);
        assert_eq!([of(1e15, 0), of(123456789012345.0, 0), of(1e-5, 0)], ["1e+15", "123456789012345", "1e-05"]);
        assert_eq!([of(1.0 / 3.0, -12), of(1234.5, -13), of(-0.0, 0)], ["0.333", "1.2e+03", "-0"]);
        assert_eq!([of(9.9999, -15), of(f64::NAN, 0), of(0.0001, -3)], ["1e+01", "NaN", "0.0001"]);
        assert_eq!(text(|out| float32(out, 1.0 / 3.0, 0)), "0.333333");
        assert_eq!(text(|out| float32(out, 1.0 / 3.0, -5)), "0.3");
    }
}
