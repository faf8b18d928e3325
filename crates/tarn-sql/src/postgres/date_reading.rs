//! Which time does a text say, by a template? `to_date('05 Dec 2000', 'DD Mon YYYY')`, `to_timestamp('20261124 10:15',
//! 'YYYYMMDD HH24:MI')`. DataFusion's functions of these names take the templates of `strftime`.
//!
//! A number has as many digits as its pattern, or any where the next thing of the template is none. What separates, in
//! the template or in the text, may be anything, and blanks before and behind fields do not count. What is behind the
//! end of one of both is left out.
//!
//! Source: PostgreSQL 15, "Usage notes for date/time formatting", and its answers. `FX` is refused.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{Datelike, NaiveDate, Weekday};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use tarn_query::{datafusion, zone_of};
use tarn_types::{Zone, is_infinite_us};

use super::date_template::{DAYS, DateTemplate, DateTemplatePart, Field, MONTHS, ROMAN};
use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

const DAY_US: i64 = 86_400_000_000;
/// Between 1970-01-01 and the day 0 of Julian days.
const JULIAN_DAYS: i64 = 2_440_588;

/// What calls with two arguments are written as: `to_date('…', 'YYYY')`.
pub(super) const TO_DATE: &str = "tarn_to_date";
/// As [`TO_DATE`].
pub(super) const TO_TIMESTAMP: &str = "tarn_to_timestamp";

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of =
        |is_date| Arc::new(ScalarUDF::from(OfText { is_date, signature: Signature::string(2, Volatility::Stable) }));
    vec![of(true), of(false)]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfText {
    is_date: bool,
    signature: Signature,
}

impl ScalarUDFImpl for OfText {
    fn name(&self) -> &str {
        if self.is_date { TO_DATE } else { TO_TIMESTAMP }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.is_date {
            true => DataType::Date32,
            false => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(Zone::utc().arrow_name()))),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let texts = arrow::compute::cast(&rows.columns[0], &DataType::Utf8View)?;
        let templates = arrow::compute::cast(&rows.columns[1], &DataType::Utf8View)?;
        let (texts, templates, zone) =
            (texts.as_string_view(), templates.as_string_view(), zone_of(&args.config_options));
        // That of the next row is usually the same.
        let mut last: Option<(&str, DateTemplate)> = None;
        let mut said = |row: usize| -> Result<ParsedFields, SqlError> {
            let template = templates.value(row);
            if last.as_ref().is_none_or(|(text, _)| *text != template) {
                last = Some((template, DateTemplate::parse(template)?));
            }
            match &last {
                Some((_, parsed)) => ParsedFields::read(parsed, texts.value(row)),
                None => Err(SqlError::new(state::INTERNAL, "no template was read")),
            }
        };
        let answer: ArrayRef = match self.is_date {
            true => {
                let mut of = |row: usize| {
                    let days = said(row)?.days(texts.value(row))?;
                    i32::try_from(days).map_err(|_| SqlError::new(state::DATETIME_OVERFLOW, "date out of range"))
                };
                Arc::new(rows.there().map(|row| row.map(&mut of).transpose()).collect::<Result<Date32Array, _>>()?)
            }
            false => {
                let mut of = |row: usize| said(row)?.instant(texts.value(row), &zone);
                let all = rows.there().map(|row| row.map(&mut of).transpose());
                let all = all.collect::<Result<TimestampMicrosecondArray, SqlError>>()?;
                Arc::new(all.with_data_type(args.return_field.data_type().clone()))
            }
        };
        rows.answer(answer)
    }
}

/// What a text says, by a template.
#[derive(Debug, Default)]
struct ParsedFields {
    year: Option<i64>,
    /// Of the pattern.
    year_digits: u32,
    iso_year: Option<i64>,
    century: Option<i64>,
    is_before_christ: bool,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_day_of_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    week_of_year: Option<i64>,
    week_of_month: Option<i64>,
    julian: Option<i64>,
    hour: Option<i64>,
    is_twelve_hours: bool,
    is_afternoon: bool,
    minute: Option<i64>,
    second: Option<i64>,
    second_of_day: Option<i64>,
    us: i64,
    /// Seconds are rounded to so many.
    fraction_digits: Option<u32>,
    zone_hour: Option<i64>,
    zone_minute: Option<i64>,
    is_west: bool,
    /// The separator before the field that is read may be its sign.
    is_behind_minus: bool,
}

fn invalid(value: &str, field: &str) -> SqlError {
    let value: String = value.chars().take(20).collect();
    SqlError::new(state::INVALID_DATETIME, format!("invalid value \"{value}\" for {field}"))
}

fn out_of_range(text: &str) -> SqlError {
    let text: String = text.chars().take(100).collect();
    SqlError::new(state::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

fn is_separator(letter: char) -> bool {
    letter.is_ascii_punctuation()
}

impl ParsedFields {
    fn read(template: &DateTemplate, text: &str) -> Result<ParsedFields, SqlError> {
        if template.is_exact {
            let message = "FX in a template of to_date and to_timestamp is not supported";
            return Err(SqlError::unsupported(message, "leave it out"));
        }
        let mut said = ParsedFields::default();
        // Blanks and separators that were passed, and may be those of the template.
        let (mut rest, mut passed) = (text, 0_usize);
        let skip = |rest: &mut &str| {
            let trimmed = rest.trim_start();
            let n_skipped = rest.len() - trimmed.len();
            *rest = trimmed;
            n_skipped
        };
        let mut is_first = true;
        for (idx, part) in template.parts.iter().enumerate() {
            if rest.is_empty() {
                break;
            }
            if is_first {
                passed += skip(&mut rest);
                is_first = false;
            }
            match part {
                DateTemplatePart::Text(letters) | DateTemplatePart::Quoted(letters) => {
                    for letter in letters.chars() {
                        let Some(next) = rest.chars().next() else { break };
                        let parts = matches!(part, DateTemplatePart::Text(_))
                            && (letter.is_whitespace() || is_separator(letter));
                        if parts {
                            // One of the text, if there is one.
                            match next.is_whitespace() || is_separator(next) {
                                true => rest = &rest[next.len_utf8()..],
                                false => passed = passed.saturating_sub(1),
                            }
                        } else if passed > 0 {
                            passed -= 1;
                        } else {
                            rest = &rest[next.len_utf8()..];
                        }
                    }
                }
                DateTemplatePart::Field { field, is_filled, ordinal, .. } => {
                    skip(&mut rest);
                    // Where more was passed than the template says, that may have been its sign.
                    let before = &text[..text.len() - rest.len()];
                    said.is_behind_minus = passed > 0 && before.ends_with('-');
                    let is_free = !is_filled || ordinal.is_some() || is_no_digit(template.parts.get(idx + 1));
                    rest = said.field(*field, is_free, rest)?;
                    if ordinal.is_some() {
                        rest = rest.get(2..).unwrap_or("");
                    }
                    passed = skip(&mut rest);
                }
            }
        }
        Ok(said)
    }

    /// Reads one field, and gives what is behind it.
    fn field<'a>(&mut self, field: Field, is_free: bool, text: &'a str) -> Result<&'a str, SqlError> {
        let mut rest = text;
        let mut number = |digits: usize| {
            let (value, behind) = number(text, if is_free { usize::MAX } else { digits }, field)?;
            rest = behind;
            Ok::<i64, SqlError>(value)
        };
        match field {
            Field::Hour12 => {
                self.is_twelve_hours = true;
                set(&mut self.hour, number(2)?)?;
            }
            Field::Hour24 => set(&mut self.hour, number(2)?)?,
            Field::Minute => set(&mut self.minute, number(2)?)?,
            Field::Second => set(&mut self.second, number(2)?)?,
            Field::SecondOfDay => set(&mut self.second_of_day, number(5)?)?,
            Field::Millisecond => {
                let value = number(3)?;
                // "25" are 250 milliseconds.
                self.us += fraction(value, text.len() - rest.len(), 3)? * 1_000;
            }
            Field::Microsecond => {
                let value = number(6)?;
                self.us += fraction(value, text.len() - rest.len(), 6)?;
            }
            Field::Fraction(digits) => {
                let value = number(digits as usize)?;
                self.us += fraction(value, text.len() - rest.len(), 6)?;
                self.fraction_digits = Some(digits);
            }
            Field::Month => set(&mut self.month, number(2)?)?,
            Field::Day => set(&mut self.day, number(2)?)?,
            Field::DayOfYear => set(&mut self.day_of_year, number(3)?)?,
            Field::IsoDayOfYear => set(&mut self.iso_day_of_year, number(3)?)?,
            Field::IsoWeek => set(&mut self.iso_week, number(2)?)?,
            Field::IsoDayOfWeek => set(&mut self.iso_day, number(1)?)?,
            Field::WeekOfYear => set(&mut self.week_of_year, number(2)?)?,
            Field::WeekOfMonth => set(&mut self.week_of_month, number(1)?)?,
            Field::Century => set(&mut self.century, number(2)?)?,
            Field::Julian => set(&mut self.julian, number(usize::MAX)?)?,
            // They say nothing that counts.
            Field::Quarter | Field::DayOfWeek => {
                number(1)?;
            }
            Field::Year(digits) | Field::IsoYear(digits) => {
                let value = number(digits as usize)?;
                let n_digits = text.len() - rest.len();
                let year = if digits < 4 && n_digits < 4 { near_2020(value) } else { value };
                self.year_digits = digits;
                match field {
                    Field::Year(_) => set(&mut self.year, year)?,
                    _ => set(&mut self.iso_year, year)?,
                }
            }
            Field::YearWithComma => {
                let (thousands, behind) = text.split_once(',').ok_or_else(|| invalid(text, "\"Y,YYY\""))?;
                let thousands = thousands.parse::<i64>().map_err(|_| invalid(text, "\"Y,YYY\""))?;
                let (ones, behind) = self::number(behind, 3, field)?;
                let year = thousands.checked_mul(1_000).and_then(|year| year.checked_add(ones));
                set(&mut self.year, year.ok_or_else(|| invalid(text, "\"Y,YYY\""))?)?;
                (self.year_digits, rest) = (4, behind);
            }
            Field::MonthName | Field::MonthShort => {
                let is_short = field == Field::MonthShort;
                let (month, behind) = name(text, &MONTHS, is_short).ok_or_else(|| invalid(text, "a month"))?;
                set(&mut self.month, month as i64 + 1)?;
                rest = behind;
            }
            Field::DayName | Field::DayShort => {
                let is_short = field == Field::DayShort;
                (_, rest) = name(text, &DAYS, is_short).ok_or_else(|| invalid(text, "a day of the week"))?;
            }
            Field::Roman => {
                // The longer of two that begin alike.
                let longest = ROMAN.iter().enumerate().filter(|(_, roman)| starts_with(text, roman));
                let (month, roman) =
                    longest.max_by_key(|(_, roman)| roman.len()).ok_or_else(|| invalid(text, "\"RM\""))?;
                set(&mut self.month, month as i64 + 1)?;
                rest = &text[roman.len()..];
            }
            Field::HalfDay(has_points) => {
                let words = if has_points { ["a.m.", "p.m."] } else { ["am", "pm"] };
                let half = words.iter().position(|word| starts_with(text, word));
                self.is_afternoon = half.ok_or_else(|| invalid(text, "\"AM\""))? == 1;
                self.is_twelve_hours = true;
                rest = &text[words[0].len()..];
            }
            Field::Era(has_points) => {
                let words = if has_points { ["a.d.", "b.c."] } else { ["ad", "bc"] };
                let era = words.iter().position(|word| starts_with(text, word));
                self.is_before_christ = era.ok_or_else(|| invalid(text, "\"BC\""))? == 1;
                rest = &text[words[0].len()..];
            }
            Field::ZoneHour => {
                self.is_west = text.starts_with('-') || (self.is_behind_minus && !text.starts_with('+'));
                let (value, behind) = self::number(text.strip_prefix(['-', '+']).unwrap_or(text), 2, field)?;
                set(&mut self.zone_hour, value)?;
                rest = behind;
            }
            Field::ZoneMinute => set(&mut self.zone_minute, number(2)?)?,
            Field::Zone | Field::Offset => {
                let message = "formatting fields \"TZ\" and \"OF\" are only supported in to_char";
                return Err(SqlError::unsupported(message, "use TZH and TZM"));
            }
        }
        Ok(rest)
    }

    /// Days since 1970-01-01.
    fn days(&self, text: &str) -> Result<i64, SqlError> {
        let out = || out_of_range(text);
        let is_iso = self.iso_year.is_some() || self.iso_week.is_some() || self.iso_day_of_year.is_some();
        let is_gregorian = self.year.is_some() || self.month.is_some() || self.day_of_year.is_some();
        if is_iso && is_gregorian {
            let message = "invalid combination of date conventions";
            return Err(SqlError::new(state::INVALID_DATETIME, message)
                .with_hint("do not mix Gregorian and ISO week date conventions in a formatting template"));
        }
        if let Some(julian) = self.julian {
            return Ok(julian - JULIAN_DAYS);
        }
        // 0 is the year before 1.
        let year = self.year_of()?.unwrap_or(0);
        let number = |value: i64| i32::try_from(value).map_err(|_| out());
        if is_iso {
            let monday = |week: i64| {
                let week = u32::try_from(week).ok()?;
                NaiveDate::from_isoywd_opt(i32::try_from(year).ok()?, week, Weekday::Mon)
            };
            let first = monday(1).map(days_of).ok_or_else(out)?;
            return match (self.iso_day_of_year, self.iso_week) {
                (Some(day), _) => Ok(first + day - 1),
                (None, Some(week)) => Ok(first + (week - 1) * 7 + self.iso_day.map_or(0, |day| day.clamp(1, 7) - 1)),
                (None, None) => Ok(first),
            };
        }
        let day_of_year = self.week_of_year.map(|week| (week - 1) * 7 + 1).or(self.day_of_year);
        if let Some(day) = day_of_year.filter(|_| self.month.is_none_or(|month| month <= 1) && self.day.is_none()) {
            if self.year.is_none() && self.century.is_none() {
                let message = "cannot calculate day of year without year information";
                return Err(SqlError::new(state::INVALID_DATETIME, message));
            }
            let first = NaiveDate::from_ymd_opt(number(year)?, 1, 1).ok_or_else(out)?;
            let n_days = if first.leap_year() { 366 } else { 365 };
            return if (1..=n_days).contains(&day) { Ok(days_of(first) + day - 1) } else { Err(out()) };
        }
        let day = self.week_of_month.map(|week| (week - 1) * 7 + 1).or(self.day).unwrap_or(1);
        let (month, day) = (u32::try_from(self.month.unwrap_or(1)).ok(), u32::try_from(day).ok());
        let date =
            month.zip(day).and_then(|(month, day)| NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day));
        date.map(days_of).ok_or_else(out)
    }

    /// The year, of which 0 is the one before 1.
    fn year_of(&self) -> Result<Option<i64>, SqlError> {
        let of_century = |century: i64| if self.is_before_christ { -century } else { century };
        let year = match (self.year.or(self.iso_year), self.century.map(of_century)) {
            // The last two digits, of a year of that century.
            (Some(year), Some(century)) if self.year_digits <= 2 => match year % 100 {
                0 => century * 100 + i64::from(century < 0),
                two if century >= 0 => two + (century - 1) * 100,
                two => (century + 1) * 100 - two + 1,
            },
            (Some(year), _) => {
                let year = if self.is_before_christ { -year } else { year };
                if year < 0 { year + 1 } else { year }
            }
            (None, Some(century)) => {
                if century >= 0 {
                    (century - 1) * 100 + 1
                } else {
                    century * 100 + 1
                }
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(year))
    }

    /// Microseconds since midnight.
    fn time(&self, text: &str) -> Result<i64, SqlError> {
        let out = || out_of_range(text);
        let (mut hour, mut minute, mut second) =
            (self.hour.unwrap_or(0), self.minute.unwrap_or(0), self.second.unwrap_or(0));
        if let Some(all) = self.second_of_day {
            (hour, minute, second) = (all / 3_600, all / 60 % 60, all % 60);
        }
        if self.is_twelve_hours {
            if !(1..=12).contains(&hour) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                return Err(SqlError::new(state::INVALID_DATETIME, message)
                    .with_hint("use the 24-hour clock, or give an hour between 1 and 12"));
            }
            hour = hour % 12 + if self.is_afternoon { 12 } else { 0 };
        }
        if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..60).contains(&second) || self.us >= 1_000_000
        {
            return Err(out());
        }
        let unit = 10_i64.pow(6_u32.saturating_sub(self.fraction_digits.unwrap_or(6)));
        Ok(((hour * 60 + minute) * 60 + second) * 1_000_000 + (self.us + unit / 2) / unit * unit)
    }

    /// Microseconds since 1970-01-01 UTC. Without a zone it is what the clocks of `zone` show.
    fn instant(&self, text: &str, zone: &Zone) -> Result<i64, SqlError> {
        let out = || SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range");
        let us = self.time(text)?;
        let local =
            self.days(text)?.checked_mul(DAY_US).and_then(|us_of_day| us_of_day.checked_add(us)).ok_or_else(out)?;
        if self.zone_hour.is_none() && self.zone_minute.is_none() {
            return zone.instant(local).ok_or_else(out);
        }
        let (hours, minutes) = (self.zone_hour.unwrap_or(0), self.zone_minute.unwrap_or(0));
        if hours > 15 || minutes > 59 {
            let message = format!("time zone displacement out of range: \"{text}\"");
            return Err(SqlError::new(state::INVALID_ZONE_DISPLACEMENT, message));
        }
        let east = (hours * 60 + minutes) * 60_000_000;
        let instant = local.checked_sub(if self.is_west { -east } else { east });
        instant.filter(|us| !is_infinite_us(*us)).ok_or_else(out)
    }
}

/// What is said twice must be the same.
fn set(field: &mut Option<i64>, value: i64) -> Result<(), SqlError> {
    match field.replace(value).filter(|before| *before != value) {
        None => Ok(()),
        Some(before) => {
            let message = format!("conflicting values {before} and {value} for a field of a template");
            Err(SqlError::new(state::INVALID_DATETIME, message).with_hint("each field is given once"))
        }
    }
}

/// So many digits, or any number of them if that is `usize::MAX`, with a sign before them.
fn number(text: &str, n_digits: usize, field: Field) -> Result<(i64, &str), SqlError> {
    let start = usize::from(text.starts_with(['-', '+']));
    let digits = text[start..].bytes().take(n_digits.saturating_sub(start)).take_while(u8::is_ascii_digit).count();
    if digits == 0 || (n_digits != usize::MAX && start + digits < n_digits) {
        return Err(invalid(text, &format!("{field:?}"))
            .with_hint("it must be a number of as many digits as the pattern has, or stand before a separator"));
    }
    let (value, rest) = text.split_at(start + digits);
    match value.parse::<i32>() {
        Ok(value) => Ok((value.into(), rest)),
        Err(_) => {
            let message = format!("value for {field:?} in source string is out of range");
            Err(SqlError::new(state::DATETIME_OVERFLOW, message))
        }
    }
}

/// Digits behind a point, in units of so many digits.
fn fraction(value: i64, n_digits: usize, of_digits: usize) -> Result<i64, SqlError> {
    match u32::try_from(of_digits.saturating_sub(n_digits)).ok().and_then(|by| value.checked_mul(10_i64.pow(by))) {
        Some(value) if value >= 0 => Ok(value),
        _ => Err(SqlError::new(state::DATETIME_OVERFLOW, "a fraction of a second is out of range")),
    }
}

/// Years of less than four digits are those nearest to 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        0..=69 => year + 2_000,
        70..=99 => year + 1_900,
        100..=519 => year + 2_000,
        520..=999 => year + 1_000,
        year => year,
    }
}

fn starts_with(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Which of the names a text begins with, or with the first three letters of, and what is behind.
fn name<'a>(text: &'a str, names: &[&str], is_short: bool) -> Option<(usize, &'a str)> {
    names.iter().enumerate().find_map(|(idx, name)| {
        let name = if is_short { &name[..3] } else { name };
        starts_with(text, name).then(|| (idx, &text[name.len()..]))
    })
}

/// Is what comes next no digit?
fn is_no_digit(next: Option<&DateTemplatePart>) -> bool {
    match next {
        None => true,
        Some(DateTemplatePart::Text(letters) | DateTemplatePart::Quoted(letters)) => {
            !letters.starts_with(|c: char| c.is_ascii_digit())
        }
        Some(DateTemplatePart::Field { field, .. }) => matches!(
            field,
            Field::HalfDay(_)
                | Field::Era(_)
                | Field::MonthName
                | Field::MonthShort
                | Field::DayName
                | Field::DayShort
                | Field::Roman
                | Field::Zone
                | Field::ZoneHour
                | Field::Offset
        ),
    }
}

fn days_of(date: NaiveDate) -> i64 {
    i64::from(date.num_days_from_ce()) - 719_163
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, template: &str) -> String {
        let said = ParsedFields::read(&DateTemplate::parse(template).unwrap(), text);
        match said.and_then(|said| said.instant(text, &Zone::utc())) {
            Ok(us) => tarn_types::Value::Timestamp(us).to_display(&tarn_types::DataType::Timestamp),
            Err(error) => error.state().to_owned(),
        }
    }

    /// What PostgreSQL 15 says, in UTC.
    #[test]
    fn times_by_templates() {
        for (text, template, want) in [
            ("0097/Feb/16 --> 08:14:30", "YYYY/Mon/DD --> HH:MI:SS", "0097-02-16 08:14:30"),
            ("2011$03!18 23_38_15", "YYYY-MM-DD HH24:MI:SS", "2011-03-18 23:38:15"),
            ("1985 January 12", "YYYY FMMonth DD", "1985-01-12 00:00:00"),
            (
                "My birthday-> Year: 1976, Month: May, Day: 16",
                "\"My birthday-> Year:\" YYYY, \"Month:\" FMMonth, \"Day:\" DD",
                "1976-05-16 00:00:00",
            ),
            ("1,582nd VIII 21", "Y,YYYth FMRM DD", "1582-08-21 00:00:00"),
            (
                "15 \"text between quote marks\" 98 54 45",
                "HH24 \"\\\"text between quote marks\\\"\" YY MI SS",
                "1998-01-01 15:54:45",
            ),
            ("05121445482000", "MMDDHH24MISSYYYY", "2000-05-12 14:45:48"),
            ("2000January09Sunday", "YYYYFMMonthDDFMDay", "2000-01-09 00:00:00"),
            ("97/2/16 8:14:30", "YY/MM/DD HH:MI:SS", "1997-02-16 08:14:30"),
            ("19971116", "YYYYMMDD", "1997-11-16 00:00:00"),
            ("20000-1116", "YYYY-MMDD", "20000-11-16 00:00:00"),
            ("1997 AD 11 16", "YYYY BC MM DD", "1997-11-16 00:00:00"),
            ("1997 BC 11 16", "YYYY BC MM DD", "1997-11-16 00:00:00 BC"),
            ("2005527", "YYYYWWD", "2005-12-24 00:00:00"),
            ("2005300", "YYYYDDD", "2005-10-27 00:00:00"),
            ("2005527", "IYYYIWID", "2006-01-01 00:00:00"),
            ("2011-12-18 11:38 PM", "YYYY-MM-DD HH12:MI PM", "2011-12-18 23:38:00"),
            ("2011-12-18 11:38 -05:20", "YYYY-MM-DD HH12:MI TZH:TZM", "2011-12-18 16:58:00"),
            ("2018-11-02 12:34:56.025", "YYYY-MM-DD HH24:MI:SS.MS", "2018-11-02 12:34:56.025"),
            ("2018-11-02 12:34:56.12", "YYYY-MM-DD HH24:MI:SS.US", "2018-11-02 12:34:56.12"),
            ("2018-11-02 12:34:56.12345", "YYYY-MM-DD HH24:MI:SS.FF4", "2018-11-02 12:34:56.1235"),
            ("J2451187", "J", "22007"),
            ("1", "MM", "0001-01-01 00:00:00 BC"),
            ("2015-02-11 86000", "YYYY-MM-DD SSSSS", "2015-02-11 23:53:20"),
            ("2005-13-01", "YYYY-MM-DD", "22008"),
            ("2016-02-30", "YYYY-MM-DD", "22008"),
            ("2011-12-18 25:38", "YYYY-MM-DD HH24:MI", "22008"),
            ("2011-12-18 00:38", "YYYY-MM-DD HH12:MI", "22007"),
            ("19971", "YYYYMMDD", "22007"),
            ("199711", "YYYY-Mon", "199711-01-01 00:00:00"),
            ("1997 1998", "YYYY YYYY", "22007"),
        ] {
            assert_eq!(shown(text, template), want, "{text} by {template}");
        }
    }
}
