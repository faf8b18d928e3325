//! `YYYY-MM-DD HH24:MI:SS`: what does a template say of times and intervals, and what is a time written by one?
//!
//! Source: PostgreSQL 16, table "Template Patterns for Date/Time Formatting" and the notes below it.

use chrono::{Datelike, NaiveDate};
use tarn_types::Zone;

use crate::error::{SqlError, state};

const DAY_US: i64 = 86_400_000_000;

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
pub(super) const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// How letters are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Lower,
    Capital,
}

impl Case {
    fn of(self, text: &str) -> String {
        match self {
            Case::Upper => text.to_uppercase(),
            Case::Lower => text.to_lowercase(),
            Case::Capital => text.to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Hour12,
    Hour24,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    /// So many digits of the fraction.
    Fraction(u32),
    SecondOfDay,
    /// With points or without.
    HalfDay(bool),
    /// With points or without.
    Era(bool),
    /// The last so many digits.
    Year(u32),
    YearWithComma,
    IsoYear(u32),
    MonthName,
    MonthShort,
    Month,
    DayName,
    DayShort,
    DayOfYear,
    IsoDayOfYear,
    Day,
    DayOfWeek,
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    Julian,
    Quarter,
    Roman,
    Zone,
    ZoneHour,
    ZoneMinute,
    Offset,
}

/// Patterns, the longer of two first. Those of numbers are the same in small letters.
const PATTERNS: &[(&str, Field)] = &[
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("Y,YYY", Field::YearWithComma),
    ("IYYY", Field::IsoYear(4)),
    ("YYYY", Field::Year(4)),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("IDDD", Field::IsoDayOfYear),
    ("IYY", Field::IsoYear(3)),
    ("YYY", Field::Year(3)),
    ("DDD", Field::DayOfYear),
    ("TZH", Field::ZoneHour),
    ("TZM", Field::ZoneMinute),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("HH", Field::Hour12),
    ("MI", Field::Minute),
    ("SS", Field::Second),
    ("MS", Field::Millisecond),
    ("US", Field::Microsecond),
    ("IY", Field::IsoYear(2)),
    ("YY", Field::Year(2)),
    ("MM", Field::Month),
    ("DD", Field::Day),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("WW", Field::WeekOfYear),
    ("CC", Field::Century),
    ("TZ", Field::Zone),
    ("OF", Field::Offset),
    ("RM", Field::Roman),
    ("I", Field::IsoYear(1)),
    ("Y", Field::Year(1)),
    ("D", Field::DayOfWeek),
    ("W", Field::WeekOfMonth),
    ("J", Field::Julian),
    ("Q", Field::Quarter),
];

/// Patterns whose letters say how the text is written.
const WORDS: &[(&str, Case, Field)] = &[
    ("MONTH", Case::Upper, Field::MonthName),
    ("Month", Case::Capital, Field::MonthName),
    ("month", Case::Lower, Field::MonthName),
    ("MON", Case::Upper, Field::MonthShort),
    ("Mon", Case::Capital, Field::MonthShort),
    ("mon", Case::Lower, Field::MonthShort),
    ("DAY", Case::Upper, Field::DayName),
    ("Day", Case::Capital, Field::DayName),
    ("day", Case::Lower, Field::DayName),
    ("DY", Case::Upper, Field::DayShort),
    ("Dy", Case::Capital, Field::DayShort),
    ("dy", Case::Lower, Field::DayShort),
    ("A.M.", Case::Upper, Field::HalfDay(true)),
    ("P.M.", Case::Upper, Field::HalfDay(true)),
    ("a.m.", Case::Lower, Field::HalfDay(true)),
    ("p.m.", Case::Lower, Field::HalfDay(true)),
    ("AM", Case::Upper, Field::HalfDay(false)),
    ("PM", Case::Upper, Field::HalfDay(false)),
    ("am", Case::Lower, Field::HalfDay(false)),
    ("pm", Case::Lower, Field::HalfDay(false)),
    ("A.D.", Case::Upper, Field::Era(true)),
    ("B.C.", Case::Upper, Field::Era(true)),
    ("a.d.", Case::Lower, Field::Era(true)),
    ("b.c.", Case::Lower, Field::Era(true)),
    ("AD", Case::Upper, Field::Era(false)),
    ("BC", Case::Upper, Field::Era(false)),
    ("ad", Case::Lower, Field::Era(false)),
    ("bc", Case::Lower, Field::Era(false)),
];

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DateTemplatePart {
    Text(String),
    /// Between quotes: nothing in it separates.
    Quoted(String),
    Field {
        field: Field,
        case: Case,
        is_filled: bool,
        ordinal: Option<Case>,
    },
}

/// A template that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DateTemplate {
    pub(super) parts: Vec<DateTemplatePart>,
    /// `FX`: what is read has exactly this form.
    pub(super) is_exact: bool,
}

impl DateTemplate {
    /// Errors: `0A000` for `TM` and `SP`, of which PostgreSQL knows more than we do.
    pub(super) fn parse(template: &str) -> Result<DateTemplate, SqlError> {
        let (mut parts, mut rest, mut is_exact) = (vec![], template, false);
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix('"') {
                rest = quoted_text(quoted, &mut parts);
                continue;
            }
            let mut is_filled = true;
            while let Some(behind) = ["FM", "fm", "FX", "fx"].iter().find_map(|prefix| rest.strip_prefix(prefix)) {
                let is_short = rest.starts_with("FM") || rest.starts_with("fm");
                (is_filled, is_exact) = (is_filled && !is_short, is_exact || !is_short);
                rest = behind;
            }
            if rest.starts_with("TM") || rest.starts_with("tm") {
                return Err(SqlError::unsupported(
                    "TM in a template of to_char is not supported",
                    "leave it out: names are English",
                ));
            }
            let Some((length, field, case)) = pattern(rest) else {
                let escaped = rest.strip_prefix('\\').filter(|behind| behind.starts_with('"'));
                let mut letters = escaped.unwrap_or(rest).chars();
                let Some(letter) = letters.next() else { break };
                text(&mut parts, letter);
                rest = letters.as_str();
                continue;
            };
            rest = &rest[length..];
            let ordinal =
                [("TH", Case::Upper), ("th", Case::Lower)].into_iter().find(|(suffix, _)| rest.starts_with(suffix));
            if ordinal.is_some() {
                rest = &rest[2..];
            }
            if rest.starts_with("SP") || rest.starts_with("sp") {
                return Err(SqlError::unsupported("SP in a template of to_char is not supported", "leave it out"));
            }
            parts.push(DateTemplatePart::Field { field, case, is_filled, ordinal: ordinal.map(|(_, case)| case) });
        }
        Ok(DateTemplate { parts, is_exact })
    }

    /// Appends the text of a moment.
    ///
    /// Errors: `0A000` for the letters of a zone; `22023` for what an interval does not have.
    pub(super) fn write(&self, moment: &TimeFields, out: &mut String) -> Result<(), SqlError> {
        for part in &self.parts {
            match part {
                DateTemplatePart::Text(text) | DateTemplatePart::Quoted(text) => out.push_str(text),
                DateTemplatePart::Field { field, case, is_filled, ordinal } => {
                    let start = out.len();
                    let is_number = moment.write(*field, *case, *is_filled, out)?;
                    if let Some(case) = ordinal.filter(|_| is_number) {
                        let suffix = case.of(ordinal_suffix(&out[start..]));
                        out.push_str(&suffix);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is behind the closing quote. A backslash takes the next letter as it is.
fn quoted_text<'a>(inside: &'a str, parts: &mut Vec<DateTemplatePart>) -> &'a str {
    let (mut letters, mut quoted) = (inside.chars(), String::new());
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => quoted.extend(letters.next()),
            letter => quoted.push(letter),
        }
    }
    parts.push(DateTemplatePart::Quoted(quoted));
    letters.as_str()
}

fn text(parts: &mut Vec<DateTemplatePart>, letter: char) {
    match parts.last_mut() {
        Some(DateTemplatePart::Text(text)) => text.push(letter),
        _ => parts.push(DateTemplatePart::Text(letter.to_string())),
    }
}

fn pattern(rest: &str) -> Option<(usize, Field, Case)> {
    let word =
        WORDS.iter().find(|(word, ..)| rest.starts_with(word)).map(|(word, case, field)| (word.len(), *field, *case));
    word.or_else(|| {
        PATTERNS.iter().find_map(|(pattern, field)| {
            let of = rest.get(..pattern.len())?;
            let case = match of {
                of if of == *pattern => Case::Upper,
                of if of == pattern.to_lowercase() => Case::Lower,
                _ => return None,
            };
            Some((pattern.len(), *field, case))
        })
    })
}

fn ordinal_suffix(number: &str) -> &'static str {
    let bytes = number.as_bytes();
    if bytes.len() >= 2 && bytes[bytes.len() - 2] == b'1' {
        return "th";
    }
    match bytes.last() {
        Some(b'1') => "st",
        Some(b'2') => "nd",
        Some(b'3') => "rd",
        _ => "th",
    }
}

/// A time or an interval, taken apart.
#[derive(Debug, Default)]
pub(super) struct TimeFields {
    /// As it is written: 1 is the year before and after Christ.
    year: i64,
    is_before_christ: bool,
    month: i64,
    day: i64,
    hour: i64,
    us_of_hour: i64,
    /// `None`: an interval.
    date: Option<NaiveDate>,
    julian: i64,
    /// Seconds east of Greenwich, if there is a zone; and whether it is UTC.
    offset: Option<(i32, bool)>,
}

impl TimeFields {
    /// Microseconds since 1970; with a zone as its clocks show them.
    pub(super) fn of_time(us: i64, zone: Option<&Zone>) -> TimeFields {
        let offset = zone.map(|zone| (zone.offset_at(us), *zone == Zone::utc()));
        let local = us.saturating_add(offset.map_or(0, |(seconds, _)| i64::from(seconds) * 1_000_000));
        let (days, us_of_day) = (local.div_euclid(DAY_US), local.rem_euclid(DAY_US));
        let date = NaiveDate::from_num_days_from_ce_opt((days + 719_163) as i32).unwrap_or_default();
        let year = i64::from(date.year());
        TimeFields {
            year: if year <= 0 { 1 - year } else { year },
            is_before_christ: year <= 0,
            month: date.month().into(),
            day: date.day().into(),
            hour: us_of_day / 3_600_000_000,
            us_of_hour: us_of_day % 3_600_000_000,
            date: Some(date),
            julian: days + 2_440_588,
            offset,
        }
    }

    pub(super) fn of_interval(months: i32, days: i32, us: i64) -> TimeFields {
        TimeFields {
            year: (months / 12).into(),
            month: (months % 12).into(),
            day: days.into(),
            hour: us / 3_600_000_000,
            us_of_hour: us % 3_600_000_000,
            ..TimeFields::default()
        }
    }

    fn date(&self) -> Result<NaiveDate, SqlError> {
        self.date.ok_or_else(|| {
            SqlError::new(state::INVALID_DATETIME, "invalid format specification for an interval value")
                .with_hint("Intervals are not tied to specific calendar dates.")
        })
    }

    /// Whether it is a number.
    fn write(&self, field: Field, case: Case, is_filled: bool, out: &mut String) -> Result<bool, SqlError> {
        let mut number = |value: i64, width: usize| {
            match is_filled {
                // The sign has a place of its own.
                true if value < 0 => out.push_str(&format!("{value:0width$}", width = width + 1)),
                true => out.push_str(&format!("{value:0width$}")),
                false => out.push_str(&value.to_string()),
            }
            Ok(true)
        };
        let sunday = |date: NaiveDate| i64::from(date.weekday().num_days_from_sunday());
        match field {
            Field::Hour12 => number(if self.hour % 12 == 0 { 12 } else { self.hour % 12 }, 2),
            Field::Hour24 => number(self.hour, 2),
            Field::Minute => number(self.us_of_hour / 60_000_000, 2),
            Field::Second => number(self.us_of_hour / 1_000_000 % 60, 2),
            Field::Millisecond => fraction(self.us_of_hour, 3, out),
            Field::Microsecond => fraction(self.us_of_hour, 6, out),
            Field::Fraction(digits) => fraction(self.us_of_hour, digits, out),
            Field::SecondOfDay => number(self.hour * 3600 + self.us_of_hour / 1_000_000, 1),
            Field::Year(digits) => {
                number(if digits == 4 { self.signed_year() } else { self.year % 10_i64.pow(digits) }, digits as usize)
            }
            Field::YearWithComma => {
                out.push_str(&format!("{},{:03}", self.year / 1_000, self.year % 1_000));
                Ok(false)
            }
            Field::IsoYear(digits) if self.date.is_none() => {
                let year = iso_year(self.year, self.month, self.day) % 10_i64.pow(digits);
                // The sign of the interval's own years has a place.
                let width = if is_filled { digits as usize + usize::from(self.year < 0) } else { 0 };
                out.push_str(&format!("{year:0width$}"));
                Ok(true)
            }
            Field::IsoYear(digits) => {
                let year = i64::from(self.date()?.iso_week().year());
                let year = if year <= 0 { 1 - year } else { year };
                number(if digits == 4 { year } else { year % 10_i64.pow(digits) }, digits as usize)
            }
            Field::Month => number(self.month, 2),
            // The sign of an interval's days has none.
            Field::Day => number(self.day, if self.day < 0 { 1 } else { 2 }),
            Field::DayOfYear if self.date.is_none() => {
                let days = (self.year * 12 + self.month) * 30 + self.day;
                number(days, if days < 0 { 2 } else { 3 })
            }
            Field::DayOfYear => number(self.date()?.ordinal().into(), 3),
            Field::IsoDayOfYear => {
                let week = self.date()?.iso_week();
                let day = i64::from(self.date()?.weekday().number_from_monday());
                number(i64::from(week.week0()) * 7 + day, 3)
            }
            Field::DayOfWeek => number(sunday(self.date()?) + 1, 1),
            Field::IsoDayOfWeek => number(self.date()?.weekday().number_from_monday().into(), 1),
            Field::WeekOfMonth => number((self.day - 1) / 7 + 1, 1),
            Field::WeekOfYear => number((i64::from(self.date()?.ordinal()) - 1) / 7 + 1, 2),
            Field::IsoWeek => number(self.date()?.iso_week().week().into(), 2),
            Field::Century if self.date.is_none() => number(self.year / 100, 2),
            Field::Century => {
                let century = (self.year - 1) / 100 + 1;
                number(if self.is_before_christ { -century } else { century }, 2)
            }
            Field::Julian => {
                self.date()?;
                number(self.julian, 1)
            }
            Field::Quarter => {
                if self.month > 0 {
                    number((self.month - 1) / 3 + 1, 1)
                } else {
                    Ok(false)
                }
            }
            Field::ZoneHour => {
                let seconds = self.offset.map_or(0, |(seconds, _)| seconds);
                out.push_str(&format!("{}{:02}", if seconds < 0 { '-' } else { '+' }, seconds.abs() / 3600));
                Ok(false)
            }
            Field::ZoneMinute => number((self.offset.map_or(0, |(seconds, _)| seconds).abs() / 60 % 60).into(), 2),
            Field::Offset => {
                let seconds = self.offset.map_or(0, |(seconds, _)| seconds);
                out.push_str(&format!("{}{:02}", if seconds < 0 { '-' } else { '+' }, seconds.abs() / 3600));
                if seconds % 3600 != 0 {
                    out.push_str(&format!(":{:02}", seconds.abs() / 60 % 60));
                }
                Ok(false)
            }
            Field::Zone => match self.offset {
                None => Ok(false),
                Some((_, true)) => {
                    out.push_str(&case.of("UTC"));
                    Ok(false)
                }
                Some(_) => Err(SqlError::unsupported(
                    "the letters of a time zone (TZ) in a template of to_char are not supported",
                    "use OF, or TZH:TZM",
                )),
            },
            Field::HalfDay(has_points) => {
                // Of an interval, the hours of its day.
                let is_morning = self.hour.rem_euclid(24) < 12;
                out.push_str(&case.of(match (is_morning, has_points) {
                    (true, true) => "A.M.",
                    (true, false) => "AM",
                    (false, true) => "P.M.",
                    (false, false) => "PM",
                }));
                Ok(false)
            }
            Field::Era(has_points) => {
                self.date()?;
                out.push_str(&case.of(match (self.is_before_christ, has_points) {
                    (true, true) => "B.C.",
                    (true, false) => "BC",
                    (false, true) => "A.D.",
                    (false, false) => "AD",
                }));
                Ok(false)
            }
            Field::MonthName | Field::MonthShort | Field::Roman => {
                let month = match (self.month, self.year) {
                    // Of an interval they are counted backwards from the end of a year, too.
                    (0, 1..) if field == Field::Roman => 12,
                    (0, ..=-1) if field == Field::Roman => 1,
                    (month @ ..=-1, _) if field == Field::Roman => month + 13,
                    (month, _) => month,
                };
                // An interval of no month has no name of one.
                let Some(month) = usize::try_from(month - 1).ok().filter(|month| *month < 12) else {
                    return Ok(false);
                };
                let (name, width) = match field {
                    Field::MonthName => (MONTHS[month], 9),
                    Field::Roman => (ROMAN[month], 4),
                    _ => (&MONTHS[month][..3], 3),
                };
                padded(&case.of(name), width, is_filled, out);
                Ok(false)
            }
            Field::DayName | Field::DayShort => {
                let name = DAYS[sunday(self.date()?) as usize];
                let (name, width) = if field == Field::DayName { (name, 9) } else { (&name[..3], 3) };
                padded(&case.of(name), width, is_filled, out);
                Ok(false)
            }
        }
    }

    /// Of an interval, years may be negative.
    fn signed_year(&self) -> i64 {
        self.year
    }
}

fn padded(name: &str, width: usize, is_filled: bool, out: &mut String) {
    match is_filled {
        true => out.push_str(&format!("{name:width$}")),
        false => out.push_str(name),
    }
}

/// Always all of its digits, also after `FM`.
fn fraction(us_of_hour: i64, digits: u32, out: &mut String) -> Result<bool, SqlError> {
    let us = us_of_hour % 1_000_000;
    out.push_str(&format!("{:0width$}", us / 10_i64.pow(6 - digits), width = digits as usize));
    Ok(true)
}

/// The year of the ISO week of what may be no date: PostgreSQL takes the years, months and days of an interval for one.
fn iso_year(year: i64, month: i64, day: i64) -> i64 {
    let julian_day = |year: i64, month: i64, day: i64| {
        // Years begin with March.
        let (year, month) = if month > 2 { (year + 4800, month + 1) } else { (year + 4799, month + 13) };
        year * 365 - 32_167 + year / 4 - year / 100 + year / 400 + 7834 * month / 256 + day
    };
    // The week that has the fourth of January is the first one; weeks begin on Mondays.
    let first_week = |year: i64| {
        let fourth = julian_day(year, 1, 4);
        fourth - fourth.rem_euclid(7)
    };
    let day = julian_day(year, month, day);
    if day < first_week(year) {
        year - 1
    } else if day >= first_week(year + 1) {
        year + 1
    } else {
        year
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &str, moment: &TimeFields) -> String {
        let mut out = String::new();
        DateTemplate::parse(template).unwrap().write(moment, &mut out).unwrap();
        out
    }

    /// 2024-02-29 15:04:05.678901, as PostgreSQL 15 writes it.
    #[test]
    fn times_as_postgres_writes_them() {
        let moment = TimeFields::of_time(1_709_219_045_678_901, None);
        for (template, want) in [
            ("YYYY-MM-DD HH24:MI:SS", "2024-02-29 15:04:05"),
            ("yyyy/mm/dd hh:mi:ss.ms am", "2024/02/29 03:04:05.678 pm"),
            (
                "DAY Day day DY Dy dy MONTH Month month MON Mon mon",
                "THURSDAY  Thursday  thursday  THU Thu thu FEBRUARY  February  february  FEB Feb feb",
            ),
            ("FMDAY FMDay FMMonth FMMM FMDD FMHH", "THURSDAY Thursday February 2 29 3"),
            ("Y,YYY YYYY YYY YY Y CC Q MM WW DDD DD D J", "2,024 2024 024 24 4 21 1 02 09 060 29 5 2460370"),
            ("IYYY IYY IY I IW IDDD ID", "2024 024 24 4 09 060 4"),
            ("HH24--text--MI--text--SS", "15--text--04--text--05"),
            ("\"YYYY is\" YYYY, \\\"MM\\\" = MM", "YYYY is 2024, \"02\" = 02"),
            ("DDth FMDDTH YYYYth MMth", "29th 29TH 2024th 02nd"),
            ("FF1 FF3 FF6 US SSSS", "6 678 678901 678901 54245"),
            ("RM rm FMRM W A.D. B.C. bc", "II   ii   II 5 A.D. A.D. ad"),
            ("TZ|OF|TZH:TZM", "|+00|+00:00"),
        ] {
            assert_eq!(shown(template, &moment), want, "{template}");
        }
    }

    #[test]
    fn zones_and_years_before_christ() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        let moment = TimeFields::of_time(1_709_219_045_000_000, Some(&berlin));
        assert_eq!(shown("HH24:MI OF TZH:TZM", &moment), "16:04 +01 +01:00");
        let mut out = String::new();
        let refused = DateTemplate::parse("TZ").unwrap().write(&moment, &mut out).unwrap_err();
        assert_eq!(refused.state(), state::FEATURE_NOT_SUPPORTED);
        assert_eq!(shown("HH24 TZ tz", &TimeFields::of_time(0, Some(&Zone::utc()))), "00 UTC utc");
        // 0044-03-15 BC
        let ides = TimeFields::of_time(-63_517_132_800_000_000, None);
        assert_eq!(shown("YYYY BC CC", &ides), "0044 BC -01");
    }

    #[test]
    fn intervals_have_no_weekday() {
        let moment = TimeFields::of_interval(14, 3, 4 * 3_600_000_000 + 5_000_000);
        assert_eq!(shown("YYYY-MM-DD HH24:MI:SS", &moment), "0001-02-03 04:00:05");
        assert_eq!(shown("HH24", &TimeFields::of_interval(0, 0, 30 * 3_600_000_000)), "30");
        assert_eq!(shown("HH12", &TimeFields::of_interval(0, 0, 30 * 3_600_000_000)), "06");
        let mut out = String::new();
        assert!(DateTemplate::parse("Day").unwrap().write(&moment, &mut out).is_err());
    }
}
