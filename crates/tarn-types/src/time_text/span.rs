//! How long is `1 day 04:05:06`? An interval, of months, days and microseconds, each with a sign of its own.
//!
//! A text is read from its end: the unit of a number stands behind it, and is seconds, or the last field of the type
//! (`INTERVAL '5' DAY`), where none does. What ISO 8601 writes begins with a `P`.

use std::cmp::Ordering;
use std::fmt;

use arrow::datatypes::IntervalMonthDayNano;
use serde::{Deserialize, Serialize};

use super::fault::TimeFault;
use super::fields::{Field, FieldKind, fields};

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;
const DAYS_OF_MONTH: i64 = 30;

/// Longer texts are no intervals.
const MAX_BYTES: usize = 256;

type Result<T> = std::result::Result<T, TimeFault>;

/// What Arrow's nanoseconds hold of microseconds, either way: 292 years.
pub(crate) const MOST_US: i64 = i64::MAX / NANOS;

const NANOS: i64 = 1000;

/// An interval. A month is not so many days, nor a day so many hours. Ordered by its length with months of thirty days
/// and days of 24 hours, as in Postgres; of one length by its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Span {
    /// Twelve are a year.
    pub months: i32,
    /// Calendar days.
    pub days: i32,
    /// Microseconds, also more than a day.
    pub us: i64,
}

/// A field that an interval type may end with: `INTERVAL DAY TO MINUTE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "they are the words of the type")]
pub enum SpanField {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

/// The fields that an interval type has, the first and the last: of `INTERVAL DAY` twice the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanFields {
    /// `DAY` of `DAY TO MINUTE`.
    pub first: SpanField,
    /// `MINUTE` of `DAY TO MINUTE`.
    pub last: SpanField,
}

impl Span {
    /// Nanoseconds that are no whole microsecond are cut off.
    #[must_use]
    pub fn from_arrow(interval: IntervalMonthDayNano) -> Self {
        Self { months: interval.months, days: interval.days, us: interval.nanoseconds / NANOS }
    }

    /// As Arrow has it; `None`: more than 292 years in microseconds, of which it counts nanoseconds.
    #[must_use]
    pub fn to_arrow(self) -> Option<IntervalMonthDayNano> {
        let Self { months, days, us } = self;
        (us.checked_abs()? <= MOST_US).then(|| IntervalMonthDayNano::new(months, days, us * NANOS))
    }

    /// Months, days and microseconds, little-endian: as it is stored in rows, the log and the metastore.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.months.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.days.to_le_bytes());
        bytes[8..].copy_from_slice(&self.us.to_le_bytes());
        bytes
    }

    /// What [`Span::to_bytes`] gave.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, us @ ..] = bytes;
        Self {
            months: i32::from_le_bytes([a, b, c, d]),
            days: i32::from_le_bytes([e, f, g, h]),
            us: i64::from_le_bytes(us),
        }
    }

    /// Microseconds, with months of thirty days and days of 24 hours.
    fn length_us(self) -> i128 {
        let days = i64::from(self.months) * DAYS_OF_MONTH + i64::from(self.days);
        i128::from(days) * i128::from(DAY_US) + i128::from(self.us)
    }

    /// Cut to the last field of a type, and its seconds rounded to so many digits behind the point.
    #[must_use]
    pub fn limited(self, fields: Option<SpanFields>, digits: Option<u8>) -> Span {
        let Span { months, days, us } = self;
        let cut = match fields.map(|fields| fields.last) {
            Some(SpanField::Year) => Span { months: months / 12 * 12, days: 0, us: 0 },
            Some(SpanField::Month) => Span { months, days: 0, us: 0 },
            Some(SpanField::Day) => Span { months, days, us: 0 },
            Some(SpanField::Hour) => Span { months, days, us: us / HOUR_US * HOUR_US },
            Some(SpanField::Minute) => Span { months, days, us: us / MINUTE_US * MINUTE_US },
            Some(SpanField::Second) | None => self,
        };
        match digits {
            Some(digits @ 0..=5) => {
                let unit = 10_i64.pow(6 - u32::from(digits));
                let up = if cut.us < 0 { -unit / 2 } else { unit / 2 };
                Span { us: cut.us.saturating_add(up) / unit * unit, ..cut }
            }
            _ => cut,
        }
    }
}

impl Ord for Span {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = |of: &Self| (of.length_us(), of.months, of.days);
        parts(self).cmp(&parts(other))
    }
}

impl PartialOrd for Span {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `1 year 2 mons -3 days +04:05:06.7`: a part that is positive behind a negative one says so. Source: PostgreSQL 16,
/// `EncodeInterval` of style `postgres`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { months, days, us } = *self;
        let (mut gap, mut is_behind_negative) = ("", false);
        for (value, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
            if value == 0 {
                continue;
            }
            let sign = if is_behind_negative && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            write!(f, "{gap}{sign}{value} {unit}{plural}")?;
            (gap, is_behind_negative) = (" ", value < 0);
        }
        if us == 0 && !gap.is_empty() {
            return Ok(());
        }
        let sign = match us < 0 {
            true => "-",
            false if is_behind_negative => "+",
            false => "",
        };
        let us = us.unsigned_abs();
        let seconds = us / SECOND_US as u64;
        write!(f, "{gap}{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        match us % SECOND_US as u64 {
            0 => Ok(()),
            fraction => f.write_str(format!(".{fraction:06}").trim_end_matches('0')),
        }
    }
}

/// Reads an interval in every form that PostgreSQL does; of a type with fields, numbers without a unit are of the last.
///
/// # Errors
/// [`TimeFault::Syntax`], [`TimeFault::Interval`] for a part that is too much, [`TimeFault::Range`] for a sum that is.
pub fn parse_span(text: &str, of: Option<SpanFields>) -> std::result::Result<Span, TimeFault> {
    if text.len() > MAX_BYTES || !text.is_ascii() {
        return Err(TimeFault::Syntax);
    }
    let lower = text.to_ascii_lowercase();
    let read = match fields(&lower) {
        Some(fields) => Sum::default().all(&fields, of),
        None => Err(TimeFault::Syntax),
    };
    match (read, lower.trim_start().strip_prefix('p')) {
        (Err(TimeFault::Syntax), Some(_)) if text.trim_start().starts_with('P') => {
            Sum::default().iso(text.trim_start()[1..].trim_end())?.span()
        }
        (read, _) => read?.span(),
    }
}

/// What was read so far.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    years: i64,
    months: i64,
    days: i64,
    us: i64,
    /// Of which units.
    said: u32,
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IntervalUnit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
    Decade,
    Century,
    Millennium,
}

fn unit(word: &str) -> Option<IntervalUnit> {
    Some(match word.get(..10).unwrap_or(word) {
        "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecon" => IntervalUnit::Microsecond,
        "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecon" => IntervalUnit::Millisecond,
        "s" | "sec" | "secs" | "second" | "seconds" => IntervalUnit::Second,
        "m" | "min" | "mins" | "minute" | "minutes" => IntervalUnit::Minute,
        "h" | "hr" | "hrs" | "hour" | "hours" => IntervalUnit::Hour,
        "d" | "day" | "days" => IntervalUnit::Day,
        "w" | "week" | "weeks" => IntervalUnit::Week,
        "mon" | "mons" | "month" | "months" => IntervalUnit::Month,
        "y" | "yr" | "yrs" | "year" | "years" => IntervalUnit::Year,
        "dec" | "decs" | "decade" | "decades" => IntervalUnit::Decade,
        "c" | "cent" | "century" | "centuries" => IntervalUnit::Century,
        "mil" | "mils" | "millennia" | "millennium" => IntervalUnit::Millennium,
        _ => return None,
    })
}

impl Sum {
    fn all(mut self, fields: &[Field<'_>], of: Option<SpanFields>) -> Result<Sum> {
        let mut counted = None;
        // A number right before `ago` counts nothing.
        let (mut is_ago, mut is_bare) = (false, false);
        for field in fields.iter().rev() {
            match field.kind {
                FieldKind::Time => {
                    self.clock(field.text, field.is_negative, of)?;
                    (counted, is_bare) = (Some(IntervalUnit::Day), false);
                }
                FieldKind::Signed
                    if field.text.contains(':') && self.clock(field.text, field.is_negative, of).is_ok() =>
                {
                    (counted, is_bare) = (Some(IntervalUnit::Day), false);
                }
                FieldKind::Date | FieldKind::Number | FieldKind::Signed => {
                    let by_type = || match of.map(|of| of.last) {
                        Some(SpanField::Year) => IntervalUnit::Year,
                        Some(SpanField::Month) => IntervalUnit::Month,
                        Some(SpanField::Day) => IntervalUnit::Day,
                        Some(SpanField::Hour) => IntervalUnit::Hour,
                        Some(SpanField::Minute) => IntervalUnit::Minute,
                        Some(SpanField::Second) | None => IntervalUnit::Second,
                    };
                    let unit = if is_bare { return Err(TimeFault::Syntax) } else { counted.unwrap_or_else(by_type) };
                    counted = Some(unit);
                    self.number(field.text, field.is_negative, unit)?;
                }
                FieldKind::Word if field.text == "ago" => (is_ago, is_bare) = (true, true),
                FieldKind::Word => (counted, is_bare) = (Some(unit(field.text).ok_or(TimeFault::Syntax)?), false),
                FieldKind::SignedWord => return Err(TimeFault::Syntax),
            }
        }
        if self.said == 0 {
            return Err(TimeFault::Syntax);
        }
        if is_ago {
            let negative = |value: i64| value.checked_neg().ok_or(TimeFault::Interval);
            self.years = negative(self.years)?;
            self.months = negative(self.months)?;
            self.days = negative(self.days)?;
            self.us = negative(self.us)?;
        }
        Ok(self)
    }

    fn span(self) -> Result<Span> {
        let months = self.years.checked_mul(12).and_then(|months| months.checked_add(self.months));
        let months = months.and_then(|months| i32::try_from(months).ok()).ok_or(TimeFault::Range)?;
        Ok(Span { months, days: i32::try_from(self.days).map_err(|_| TimeFault::Range)?, us: self.us })
    }

    /// Each unit is said once.
    fn say(&mut self, bits: u32) -> Result<()> {
        if self.said & bits != 0 {
            return Err(TimeFault::Syntax);
        }
        self.said |= bits;
        Ok(())
    }

    /// `04:05:06.789`; of `MINUTE TO SECOND`, `05:06`.
    fn clock(&mut self, text: &str, is_negative: bool, of: Option<SpanFields>) -> Result<()> {
        let parts: Vec<&str> = text.split(':').collect();
        let number = |text: &str| match super::date_time::number(text) {
            Err(TimeFault::Field) => Err(TimeFault::Interval),
            other => other,
        };
        let is_minutes = of == Some(SpanFields { first: SpanField::Minute, last: SpanField::Second });
        let (hours, minutes, seconds) = match parts[..] {
            [minutes, seconds] if is_minutes || seconds.contains('.') => ("0", minutes, seconds),
            [hours, minutes] => (hours, minutes, "0"),
            [hours, minutes, seconds] => (hours, minutes, seconds),
            _ => return Err(TimeFault::Syntax),
        };
        let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let (hours, minutes, seconds) = (whole(hours)?, number(minutes)?, number(seconds)?);
        if minutes > 59 || seconds > 60 {
            return Err(TimeFault::Interval);
        }
        let fraction = fraction_of(fraction)?;
        let rest = minutes * MINUTE_US + seconds * SECOND_US + rounded(fraction * 1e6)?;
        let us = hours.checked_mul(HOUR_US).and_then(|us| us.checked_add(rest)).ok_or(TimeFault::Interval)?;
        self.say(bit(IntervalUnit::Hour) | bit(IntervalUnit::Minute) | SECONDS)?;
        self.us = self.us.checked_add(if is_negative { -us } else { us }).ok_or(TimeFault::Interval)?;
        Ok(())
    }

    /// `1.5`, or years and months: `1-2`.
    fn number(&mut self, text: &str, is_negative: bool, unit: IntervalUnit) -> Result<()> {
        let sign = if is_negative { -1 } else { 1 };
        let digits = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
        let (value, rest) = (whole(&text[..digits])?, &text[digits..]);
        if let Some(months) = rest.strip_prefix('-') {
            let months = super::date_time::number(months)?;
            if months >= 12 {
                return Err(TimeFault::Interval);
            }
            let months = value.checked_mul(12).map(|years| years + months).filter(|all| *all <= i64::from(i32::MAX));
            return self.add(sign * months.ok_or(TimeFault::Interval)?, 0.0, IntervalUnit::Month);
        }
        let fraction = match rest.strip_prefix('.') {
            Some(fraction) => fraction_of(fraction)?,
            None if rest.is_empty() => 0.0,
            None => return Err(TimeFault::Syntax),
        };
        self.add(sign * value, f64::from(sign as i32) * fraction, unit)
    }

    /// So many of a unit. What is a fraction of it goes to the smaller ones: that of a year to months, of a month to
    /// days and then hours.
    fn add(&mut self, value: i64, fraction: f64, unit: IntervalUnit) -> Result<()> {
        self.say(if unit == IntervalUnit::Second && fraction != 0.0 { SECONDS } else { bit(unit) })?;
        self.take(value, fraction, unit).ok_or(TimeFault::Interval)
    }

    fn take(&mut self, value: i64, fraction: f64, unit: IntervalUnit) -> Option<()> {
        let of = |unit_us: i64| -> Option<i64> {
            value.checked_mul(unit_us)?.checked_add(rounded(fraction * unit_us as f64).ok()?)
        };
        match unit {
            IntervalUnit::Microsecond => self.us = self.us.checked_add(of(1)?)?,
            IntervalUnit::Millisecond => self.us = self.us.checked_add(of(1_000)?)?,
            IntervalUnit::Second => self.us = self.us.checked_add(of(SECOND_US)?)?,
            IntervalUnit::Minute => self.us = self.us.checked_add(of(MINUTE_US)?)?,
            IntervalUnit::Hour => self.us = self.us.checked_add(of(HOUR_US)?)?,
            IntervalUnit::Day => self.days_of(value, fraction)?,
            IntervalUnit::Week => self.days_of(value.checked_mul(7)?, fraction * 7.0)?,
            IntervalUnit::Month => {
                self.months = fits(self.months.checked_add(value)?)?;
                self.days_of(0, fraction * DAYS_OF_MONTH as f64)?;
            }
            IntervalUnit::Year => self.years_of(value, fraction, 1)?,
            IntervalUnit::Decade => self.years_of(value, fraction, 10)?,
            IntervalUnit::Century => self.years_of(value, fraction, 100)?,
            IntervalUnit::Millennium => self.years_of(value, fraction, 1_000)?,
        }
        Some(())
    }

    fn days_of(&mut self, days: i64, more: f64) -> Option<()> {
        let whole = more.trunc();
        self.days = fits(self.days.checked_add(days)?.checked_add(whole as i64)?)?;
        self.us = self.us.checked_add(rounded((more - whole) * DAY_US as f64).ok()?)?;
        Some(())
    }

    fn years_of(&mut self, value: i64, fraction: f64, scale: i64) -> Option<()> {
        self.years = fits(self.years.checked_add(value.checked_mul(scale)?)?)?;
        let months = (fraction * scale as f64 * 12.0).round_ties_even() as i64;
        self.months = fits(self.months.checked_add(months)?)?;
        Some(())
    }

    /// What stands behind the `P`: `1Y2M3DT4H5M6S`, `0001-02-03T04:05:06`, `00010203T040506`.
    fn iso(mut self, text: &str) -> Result<Sum> {
        let (date, time) = text.split_once('T').map_or((text, None), |(date, time)| (date, Some(time)));
        if text.is_empty() {
            return Err(TimeFault::Syntax);
        }
        self.iso_date(date)?;
        if let Some(time) = time {
            self.iso_time(time)?;
        }
        Ok(self)
    }

    fn iso_date(&mut self, date: &str) -> Result<()> {
        let (mut rest, mut is_first) = (date, true);
        while !rest.is_empty() {
            let (number, behind) = Iso::read(rest)?;
            let alone = behind.is_empty() && is_first;
            rest = behind.get(1..).unwrap_or("");
            match behind.bytes().next() {
                Some(b'Y') => self.iso_add(number, IntervalUnit::Year)?,
                Some(b'M') => self.iso_add(number, IntervalUnit::Month)?,
                Some(b'W') => self.iso_add(number, IntervalUnit::Week)?,
                Some(b'D') => self.iso_add(number, IntervalUnit::Day)?,
                None if alone && number.n_digits == 8 => {
                    let value = number.value;
                    self.iso_add(Iso { value: value / 10_000, ..number }, IntervalUnit::Year)?;
                    self.iso_add(Iso { value: value / 100 % 100, fraction: 0.0, ..number }, IntervalUnit::Month)?;
                    self.iso_add(Iso { value: value % 100, fraction: 0.0, ..number }, IntervalUnit::Day)?;
                }
                Some(b'-') | None if is_first => {
                    self.iso_add(number, IntervalUnit::Year)?;
                    self.iso_parts(rest, '-', [IntervalUnit::Month, IntervalUnit::Day])?;
                    rest = "";
                }
                _ => return Err(TimeFault::Syntax),
            }
            is_first = false;
        }
        Ok(())
    }

    fn iso_time(&mut self, time: &str) -> Result<()> {
        let (mut rest, mut is_first) = (time, true);
        while !rest.is_empty() {
            let (number, behind) = Iso::read(rest)?;
            let alone = behind.is_empty() && is_first;
            rest = behind.get(1..).unwrap_or("");
            match behind.bytes().next() {
                Some(b'H') => self.iso_add(number, IntervalUnit::Hour)?,
                Some(b'M') => self.iso_add(number, IntervalUnit::Minute)?,
                Some(b'S') => self.iso_add(number, IntervalUnit::Second)?,
                None if alone && number.n_digits == 6 => {
                    let value = number.value;
                    self.iso_add(Iso { value: value / 10_000, fraction: 0.0, ..number }, IntervalUnit::Hour)?;
                    self.iso_add(Iso { value: value / 100 % 100, fraction: 0.0, ..number }, IntervalUnit::Minute)?;
                    self.iso_add(Iso { value: value % 100, ..number }, IntervalUnit::Second)?;
                }
                Some(b':') | None if is_first => {
                    self.iso_add(number, IntervalUnit::Hour)?;
                    self.iso_parts(rest, ':', [IntervalUnit::Minute, IntervalUnit::Second])?;
                    rest = "";
                }
                _ => return Err(TimeFault::Syntax),
            }
            is_first = false;
        }
        Ok(())
    }

    /// What is behind the first number of `0001-02-03` and `04:05:06`: parts may be left out at the end.
    fn iso_parts(&mut self, mut rest: &str, separator: char, units: [IntervalUnit; 2]) -> Result<()> {
        let mut units = units.into_iter();
        while !rest.is_empty() {
            let (number, behind) = Iso::read(rest)?;
            self.iso_add(number, units.next().ok_or(TimeFault::Syntax)?)?;
            rest = match behind.strip_prefix(separator) {
                Some(behind) => behind,
                None if behind.is_empty() => behind,
                None => return Err(TimeFault::Syntax),
            };
        }
        Ok(())
    }

    fn iso_add(&mut self, number: Iso, unit: IntervalUnit) -> Result<()> {
        self.take(number.value, number.fraction, unit).ok_or(TimeFault::Interval)
    }
}

/// A number of ISO 8601's: with a sign and a fraction, if any.
#[derive(Debug, Clone, Copy)]
struct Iso {
    value: i64,
    fraction: f64,
    n_digits: usize,
}

impl Iso {
    fn read(text: &str) -> Result<(Iso, &str)> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = digits.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
        let (value, rest) = digits.split_at(end);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(behind) => behind.split_at(behind.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(behind.len())),
            None => ("", rest),
        };
        if value.is_empty() && fraction.is_empty() {
            return Err(TimeFault::Syntax);
        }
        let fraction = f64::from(sign) * fraction_of(fraction)?;
        Ok((Iso { value: i64::from(sign) * whole(value)?, fraction, n_digits: value.len() }, rest))
    }
}

/// All that is said of seconds and their fractions.
const SECONDS: u32 = bit(IntervalUnit::Second) | bit(IntervalUnit::Millisecond) | bit(IntervalUnit::Microsecond);

const fn bit(unit: IntervalUnit) -> u32 {
    1 << unit as u32
}

/// Digits that fit 64 bits; none are zero, as in `.5`.
fn whole(digits: &str) -> Result<i64> {
    match digits {
        "" => Ok(0),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().map_err(|_| TimeFault::Interval),
        _ => Err(TimeFault::Syntax),
    }
}

fn fraction_of(digits: &str) -> Result<f64> {
    match digits {
        "" => Ok(0.0),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("0.{digits}").parse().map_err(|_| TimeFault::Syntax)
        }
        _ => Err(TimeFault::Syntax),
    }
}

/// The nearest whole number, of two the one nearer to zero.
fn rounded(value: f64) -> Result<i64> {
    let whole = value.trunc();
    let rest = value - whole;
    let whole = whole
        + if rest > 0.5 {
            1.0
        } else if rest < -0.5 {
            -1.0
        } else {
            0.0
        };
    if whole.abs() < 9.2e18 { Ok(whole as i64) } else { Err(TimeFault::Interval) }
}

fn fits(value: i64) -> Option<i64> {
    i32::try_from(value).ok().map(i64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, of: Option<SpanFields>) -> String {
        match parse_span(text, of) {
            Ok(Span { months, days, us }) => format!("{months} {days} {us}"),
            Err(fault) => format!("{fault:?}"),
        }
    }

    #[test]
    fn intervals_are_ordered_by_their_length() {
        let span = |months, days, us| Span { months, days, us };
        let ascending = [
            span(i32::MIN, i32::MIN, -MOST_US),
            span(0, -30, -1),
            span(-1, 0, 0),
            span(0, -30, 0),
            span(0, 0, 0),
            span(0, 0, DAY_US),
            span(0, 1, 0),
            span(-1, 31, 1),
            span(0, 30, 0),
            span(1, 0, 0),
        ];
        assert!(ascending.is_sorted_by(|a, b| a < b));
        for of in ascending {
            assert_eq!(Span::from_bytes(of.to_bytes()), of);
            assert_eq!(Span::from_arrow(of.to_arrow().unwrap()), of);
            assert_eq!(parse_span(&of.to_string(), None), Ok(of), "{of}");
        }
        assert_eq!(span(0, 0, MOST_US + 1).to_arrow(), None);
        assert_eq!(span(0, 0, i64::MIN).to_arrow(), None);
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn intervals_in_all_forms() {
        let time = 4 * HOUR_US + 5 * MINUTE_US + 6 * SECOND_US;
        for (text, want) in [
            ("1 day 04:05:06", format!("0 1 {time}")),
            ("1 2:03:04.5", "0 1 7384500000".to_owned()),
            ("@ 1 minute ago", "0 0 -60000000".to_owned()),
            ("-1 days +02:03", "0 -1 7380000000".to_owned()),
            ("6 years", "72 0 0".to_owned()),
            ("1-2", "14 0 0".to_owned()),
            ("-1-2 3", "-14 0 3000000".to_owned()),
            ("1.5 months", "1 15 0".to_owned()),
            ("1.3 weeks", "0 9 8640000000".to_owned()),
            ("0.7 days", "0 0 60480000000".to_owned()),
            ("1.1 years", "13 0 0".to_owned()),
            ("2.5 decades", "300 0 0".to_owned()),
            ("5 ms", "0 0 5000".to_owned()),
            ("1.5 us", "0 0 1".to_owned()),
            ("P1Y2M3DT4H5M6S", format!("14 3 {time}")),
            ("P0001-02-03T04:05:06", format!("14 3 {time}")),
            ("P00010203T040506", format!("14 3 {time}")),
            ("P1W", "0 7 0".to_owned()),
            ("P-1Y", "-12 0 0".to_owned()),
            ("PT0.1S", "0 0 100000".to_owned()),
            ("P0.5Y", "6 0 0".to_owned()),
            ("10", "0 0 10000000".to_owned()),
            ("4 millenniums 5 centuries", "54000 0 0".to_owned()),
            ("badly formatted", "Syntax".to_owned()),
            ("", "Syntax".to_owned()),
            ("1 day 2 days", "Syntax".to_owned()),
            ("1 ago day", "Syntax".to_owned()),
            ("P", "Syntax".to_owned()),
            ("p1y", "Syntax".to_owned()),
            ("1:60", "Interval".to_owned()),
            ("9999999999 days", "Interval".to_owned()),
            ("178956970 years 8 months", "Range".to_owned()),
        ] {
            assert_eq!(shown(text, None), want, "{text}");
        }
    }

    #[test]
    fn fields_say_what_a_number_counts_and_where_the_value_ends() {
        use SpanField::{Day, Hour, Minute, Month, Second, Year};
        let of = |first, last| Some(SpanFields { first, last });
        assert_eq!(shown("5", of(Day, Day)), "0 5 0");
        assert_eq!(shown("1 2:03", of(Day, Second)), "0 1 7380000000");
        assert_eq!(shown("2:03", of(Minute, Second)), "0 0 123000000");
        assert_eq!(shown("1", of(Year, Month)), "1 0 0");
        let span = Span { months: 14, days: 3, us: 3_723_456_789 };
        assert_eq!(span.limited(of(Year, Year), None), Span { months: 12, days: 0, us: 0 });
        assert_eq!(span.limited(of(Day, Minute), None).us, 3_720_000_000);
        assert_eq!(span.limited(of(Hour, Hour), None).us, HOUR_US);
        assert_eq!(span.limited(None, Some(2)).us, 3_723_460_000);
        assert_eq!(span.limited(of(Second, Second), Some(0)).us, 3_723_000_000);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.:TZ PYMDaegoy@]{0,30}|.{0,30}") {
            let _ = parse_span(&text, None);
        }
    }
}
