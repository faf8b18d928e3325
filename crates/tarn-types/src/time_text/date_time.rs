//! Which moment do the parts of a text name?
//!
//! A number is what it can be by what was read before it: of `1999 Jan 8` the year, of `Jan 8 1999` the day and then
//! the year, of `1/8/1999` the month first, or the day or the year, as the DateStyle has it. Digits in a row are
//! `YYYYMMDD` and then `HHMMSS`. What is said twice is refused.

use super::fault::TimeFault;
use super::fields::{Field, FieldKind, fields};
use super::here::ParseContext;
use super::words::{self, IsoUnit, Word};
use crate::Zone;
use crate::infinity::{INFINITE_DAY, INFINITE_US, MINUS_INFINITE_DAY, MINUS_INFINITE_US, is_infinite_us};
use crate::style::DateOrder;
use crate::text::{DAYS, FIRST_TIMESTAMP, civil_from_days, days_from_civil};
use crate::zone_abbreviations::{Abbreviation, abbreviation};

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;
const DAY_US: i64 = 24 * HOUR_US;

/// Longer texts are no dates.
const MAX_BYTES: usize = 128;

/// Between 1970-01-01 and the day 0 of Julian days.
const JULIAN_DAYS: i64 = 2_440_588;

/// Clocks differ by less.
const MAX_OFFSET_HOURS: i64 = 15;

type Result<T> = std::result::Result<T, TimeFault>;

/// Days since 1970-01-01.
pub(crate) fn date(text: &str, here: ParseContext<'_>) -> Result<i32> {
    let days = match moment(text, here)? {
        ParsedTime::Special(Special::Epoch) => 0,
        ParsedTime::Special(Special::Infinity) => return Ok(INFINITE_DAY),
        ParsedTime::Special(Special::MinusInfinity) => return Ok(MINUS_INFINITE_DAY),
        ParsedTime::Now => local_now(here)?.div_euclid(DAY_US),
        ParsedTime::Said { days, .. } => days,
    };
    i32::try_from(days).ok().filter(|_| DAYS.contains(&days)).ok_or(TimeFault::Range)
}

/// Microseconds since 1970-01-01; a zone is read and says nothing.
pub(crate) fn timestamp(text: &str, here: ParseContext<'_>) -> Result<i64> {
    match moment(text, here)? {
        ParsedTime::Special(special) => Ok(special.us()),
        ParsedTime::Now => local_now(here),
        ParsedTime::Said { days, us, .. } => local(days, us),
    }
}

/// Microseconds since 1970-01-01 UTC.
pub(crate) fn timestamp_tz(text: &str, here: ParseContext<'_>) -> Result<i64> {
    match moment(text, here)? {
        ParsedTime::Special(special) => Ok(special.us()),
        ParsedTime::Now => here.now_us.ok_or(TimeFault::Clock),
        ParsedTime::Said { days, us, zone } => {
            let shown = local(days, us)?;
            let instant = match (zone, here.zone) {
                (Some(Offset::Seconds(east)), _) => shown.checked_sub(east * SECOND_US),
                (Some(Offset::Of(zone) | Offset::Abbreviated(zone)), _) => zone.instant(shown),
                (None, Some(zone)) => zone.instant(shown),
                (None, None) => Some(shown),
            };
            instant.filter(is_in_calendar).ok_or(TimeFault::Range)
        }
    }
}

/// Microseconds since midnight; a date and a zone are read and say nothing.
pub(crate) fn time(text: &str, here: ParseContext<'_>) -> Result<i64> {
    let lower = lower(text)?;
    let mut read = TimeParser::new(here, true);
    read.all(&fields(&lower).ok_or(TimeFault::Syntax)?)?;
    if read.is_now {
        return Ok(local_now(here)?.rem_euclid(DAY_US));
    }
    read.check_date()?;
    let us = read.time_of_day()?;
    // Which hour a place's clocks show hangs on the day.
    let is_vague = matches!(read.zone, Some(Offset::Of(_))) && !read.has(DATE);
    if !read.has(TIME) || is_vague {
        return Err(TimeFault::Syntax);
    }
    Ok(us)
}

fn local(days: i64, us: i64) -> Result<i64> {
    let us = i128::from(days) * i128::from(DAY_US) + i128::from(us);
    i64::try_from(us).ok().filter(is_in_calendar).ok_or(TimeFault::Range)
}

fn is_in_calendar(us: &i64) -> bool {
    *us >= FIRST_TIMESTAMP && !is_infinite_us(*us)
}

/// What the clocks show now.
fn local_now(here: ParseContext<'_>) -> Result<i64> {
    let now = here.now_us.ok_or(TimeFault::Clock)?;
    Ok(here.zone.map_or(now, |zone| zone.local(now)))
}

fn lower(text: &str) -> Result<String> {
    match text.len() <= MAX_BYTES && text.is_ascii() {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(TimeFault::Syntax),
    }
}

/// What a text names.
enum ParsedTime {
    Special(Special),
    Now,
    Said { days: i64, us: i64, zone: Option<Offset> },
}

/// A word that names a moment by itself; what stands beside it says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    Epoch,
    Infinity,
    MinusInfinity,
}

impl Special {
    fn us(self) -> i64 {
        match self {
            Special::Epoch => 0,
            Special::Infinity => INFINITE_US,
            Special::MinusInfinity => MINUS_INFINITE_US,
        }
    }
}

fn moment(text: &str, here: ParseContext<'_>) -> Result<ParsedTime> {
    let lower = lower(text)?;
    let mut read = TimeParser::new(here, false);
    read.all(&fields(&lower).ok_or(TimeFault::Syntax)?)?;
    if let Some(special) = read.special {
        return Ok(ParsedTime::Special(special));
    }
    if read.is_now {
        return Ok(ParsedTime::Now);
    }
    let days = read.check_date()?;
    let us = read.time_of_day()?;
    match days {
        Some(days) => Ok(ParsedTime::Said { days, us, zone: read.zone }),
        None => Err(TimeFault::Syntax),
    }
}

/// How far the clocks were from Greenwich's.
#[derive(Debug, Clone)]
enum Offset {
    /// East of it.
    Seconds(i64),
    /// By what the place's law said.
    Of(Zone),
    /// The same, of an abbreviation, which a time without a date may have as well.
    Abbreviated(Zone),
}

// What was said.
const YEAR: u16 = 1;
const MONTH: u16 = 1 << 1;
const DAY: u16 = 1 << 2;
const HOUR: u16 = 1 << 3;
const MINUTE: u16 = 1 << 4;
const SECOND: u16 = 1 << 5;
const ZONE: u16 = 1 << 6;
const SUMMER: u16 = 1 << 7;
const WEEKDAY: u16 = 1 << 8;
const HALF: u16 = 1 << 9;
const ERA: u16 = 1 << 10;
const DATE: u16 = YEAR | MONTH | DAY;
const TIME: u16 = HOUR | MINUTE | SECOND;

/// Which half of the day twelve hours are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HalfDay {
    Ante,
    Post,
}

/// What was read so far.
struct TimeParser<'a> {
    here: ParseContext<'a>,
    /// A time is asked for, and a number without more is one.
    is_time: bool,
    said: u16,
    year: i64,
    month: i64,
    day: i64,
    /// Of the year, in the place of month and day.
    day_of_year: Option<i64>,
    /// Since 1970, in the place of year, month and day.
    days: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    us: i64,
    zone: Option<Offset>,
    /// The label of the next number.
    label: Option<Label>,
    is_month_word: bool,
    is_two_digit_year: bool,
    is_before_christ: bool,
    half: Option<HalfDay>,
    is_now: bool,
    special: Option<Special>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Unit(IsoUnit),
    Time,
}

impl<'a> TimeParser<'a> {
    fn new(here: ParseContext<'a>, is_time: bool) -> TimeParser<'a> {
        TimeParser {
            here,
            is_time,
            said: 0,
            year: 0,
            month: 0,
            day: 0,
            day_of_year: None,
            days: None,
            hour: 0,
            minute: 0,
            second: 0,
            us: 0,
            zone: None,
            label: None,
            is_month_word: false,
            is_two_digit_year: false,
            is_before_christ: false,
            half: None,
            is_now: false,
            special: None,
        }
    }

    fn has(&self, all: u16) -> bool {
        self.said & all == all
    }

    fn all(&mut self, fields: &[Field<'_>]) -> Result<()> {
        if fields.is_empty() {
            return Err(TimeFault::Syntax);
        }
        for (idx, field) in fields.iter().enumerate() {
            let said = match field.kind {
                FieldKind::Date => self.dated(field.text, idx == 0 && fields.len() > 1)?,
                FieldKind::Time => {
                    if !matches!(self.label.take(), None | Some(Label::Time)) {
                        return Err(TimeFault::Syntax);
                    }
                    self.clock(field.text)?
                }
                FieldKind::Number => self.number(field.text)?,
                FieldKind::Signed => {
                    self.zone = Some(Offset::Seconds(displacement(field.text, field.is_negative)?));
                    ZONE
                }
                FieldKind::SignedWord => match words::of_dates(field.text) {
                    Some(Word::Infinity) if !self.is_time && field.is_negative => {
                        self.special = Some(Special::MinusInfinity);
                        DATE | TIME | ZONE
                    }
                    _ => return Err(TimeFault::Syntax),
                },
                FieldKind::Word => self.word(field.text, fields.get(idx + 1))?,
            };
            if self.said & said != 0 {
                return Err(TimeFault::Syntax);
            }
            self.said |= said;
        }
        // `JD` and `T` alone are labels of nothing.
        if self.label.is_some() { Err(TimeFault::Syntax) } else { Ok(()) }
    }

    /// A date; or, behind one, a time with a zone (`040506-08`) or a zone's name.
    fn dated(&mut self, text: &str, may_begin: bool) -> Result<u16> {
        if self.label == Some(Label::Unit(IsoUnit::Julian)) {
            // A zone behind a Julian day.
            self.label = None;
            let (number, east) = with_zone(text)?;
            self.julian(number)?;
            self.zone = Some(Offset::Seconds(east));
            return Ok(DATE | TIME | ZONE);
        }
        let is_begun = self.has(MONTH | DAY) || (self.is_time && !may_begin);
        if self.label.is_none() && !is_begun {
            return self.date_of(text);
        }
        if self.label.is_some() || text.starts_with(|c: char| c.is_ascii_digit()) {
            if !matches!(self.label.take(), None | Some(Label::Time)) || self.has(TIME) {
                return Err(TimeFault::Syntax);
            }
            let (number, east) = with_zone(text)?;
            self.zone = Some(Offset::Seconds(east));
            return Ok(self.run_together(number, self.said | DATE)? | ZONE);
        }
        self.zone = Some(Offset::Of(Zone::parse(text).ok_or(TimeFault::Zone)?));
        Ok(ZONE)
    }

    /// `1999-01-08`, `8-jan-1999`: a month in letters says which of the others is the day.
    fn date_of(&mut self, text: &str) -> Result<u16> {
        let mut parts = vec![];
        for part in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
            // `8jan1999`: letters and digits part.
            let mut rest = part;
            while let Some(first) = rest.chars().next() {
                let same = |c: char| c.is_ascii_digit() == first.is_ascii_digit();
                let end = rest.find(|c: char| !same(c)).unwrap_or(rest.len());
                parts.push(&rest[..end]);
                rest = &rest[end..];
            }
        }
        let mut said = 0;
        for word in parts.iter().filter(|part| part.starts_with(|c: char| c.is_ascii_alphabetic())) {
            match words::of_dates(word) {
                Some(Word::Filler) => {}
                Some(Word::Month(month)) if (self.said | said) & MONTH == 0 => {
                    (self.month, self.is_month_word) = (month, true);
                    said |= MONTH;
                }
                _ => return Err(TimeFault::Syntax),
            }
        }
        for number in parts.iter().filter(|part| part.starts_with(|c: char| c.is_ascii_digit())) {
            let more = self.by_place(number, self.said | said)?;
            if said & more != 0 {
                return Err(TimeFault::Syntax);
            }
            said |= more;
        }
        // Behind a zone, but behind nothing else.
        if (self.said | said) & !ZONE == DATE { Ok(said) } else { Err(TimeFault::Syntax) }
    }

    fn number(&mut self, text: &str) -> Result<u16> {
        match self.label.take() {
            Some(Label::Time) => return self.run_together(text, self.said | DATE),
            Some(Label::Unit(unit)) => return self.labelled(unit, text),
            None => {}
        }
        let point = text.find('.');
        if self.is_time {
            return match point {
                Some(0..=2) => Err(TimeFault::Syntax),
                None if text.len() <= 4 => self.by_place(text, self.said | DATE),
                _ => self.run_together(text, self.said | DATE),
            };
        }
        match point {
            // `1999.008`
            Some(_) if self.said & DATE == 0 => self.date_of(text),
            Some(3..) => self.run_together(text, self.said),
            // A year of more than four digits stands at the end.
            None if text.len() >= 6 && (self.said & DATE == 0 || self.said & TIME == 0) => {
                self.run_together(text, self.said)
            }
            _ => self.by_place(text, self.said),
        }
    }

    fn labelled(&mut self, unit: IsoUnit, text: &str) -> Result<u16> {
        let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
        if fraction.is_some() && !matches!(unit, IsoUnit::Second | IsoUnit::Julian) {
            return Err(TimeFault::Syntax);
        }
        let value = number(whole)?;
        Ok(match unit {
            IsoUnit::Year => {
                self.year = value;
                YEAR
            }
            // A month and an hour are there: minutes.
            IsoUnit::Month if self.has(MONTH | HOUR) => {
                self.minute = value;
                MINUTE
            }
            IsoUnit::Month => {
                self.month = value;
                MONTH
            }
            IsoUnit::Day => {
                self.day = value;
                DAY
            }
            IsoUnit::Hour => {
                self.hour = value;
                HOUR
            }
            IsoUnit::Minute => {
                self.minute = value;
                MINUTE
            }
            IsoUnit::Second => {
                self.second = value;
                self.us = fraction.map_or(Ok(0), fraction_us)?;
                SECOND
            }
            IsoUnit::Julian => {
                self.julian(whole)?;
                match fraction {
                    None => DATE,
                    Some(fraction) => {
                        let of_day: f64 = format!("0.{fraction}").parse().map_err(|_| TimeFault::Syntax)?;
                        self.us = (of_day * DAY_US as f64).round() as i64;
                        DATE | TIME
                    }
                }
            }
        })
    }

    fn julian(&mut self, text: &str) -> Result<()> {
        self.days = Some(number(text)? - JULIAN_DAYS);
        Ok(())
    }

    /// What a number is by what was `said` before it.
    fn by_place(&mut self, text: &str, said: u16) -> Result<u16> {
        if let Some((whole, _)) = text.split_once('.') {
            // Seconds cannot stand alone.
            return if whole.len() > 2 { self.run_together(text, said | DATE) } else { Err(TimeFault::Syntax) };
        }
        let value = number(text)?;
        let is_long = text.len() >= 3;
        if text.len() == 3 && said & DATE == YEAR && (1..=366).contains(&value) {
            self.day_of_year = Some(value);
            return Ok(MONTH | DAY);
        }
        let part = match said & DATE {
            0 if is_long => YEAR,
            0 => match self.here.order {
                DateOrder::Mdy => MONTH,
                DateOrder::Dmy => DAY,
                DateOrder::Ymd => YEAR,
            },
            YEAR | DAY => MONTH,
            MONTH if self.is_month_word && (is_long || self.here.order == DateOrder::Ymd) => YEAR,
            MONTH => DAY,
            // The first number was the day, as in `8 jan 1999`, although it looked like a year.
            part if part == YEAR | MONTH && self.is_month_word && is_long && self.is_two_digit_year => {
                (self.day, self.year, self.is_two_digit_year) = (self.year, value, false);
                return Ok(DAY);
            }
            part if part == YEAR | MONTH => DAY,
            part if part == MONTH | DAY => YEAR,
            DATE => return self.run_together(text, said),
            _ => return Err(TimeFault::Syntax),
        };
        match part {
            YEAR => (self.year, self.is_two_digit_year) = (value, text.len() <= 2),
            MONTH => self.month = value,
            _ => self.day = value,
        }
        Ok(part)
    }

    /// `20011225`, `040506.789`, `0405`
    fn run_together(&mut self, text: &str, said: u16) -> Result<u16> {
        let (digits, fraction) = text.split_once('.').map_or((text, None), |(digits, rest)| (digits, Some(rest)));
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TimeFault::Syntax);
        }
        if let Some(fraction) = fraction {
            self.us = fraction_us(fraction)?;
        } else if said & DATE != DATE && digits.len() >= 6 {
            let (rest, day) = digits.split_at(digits.len() - 2);
            let (year, month) = rest.split_at(rest.len() - 2);
            (self.year, self.month, self.day) = (number(year)?, number(month)?, number(day)?);
            self.is_two_digit_year = year.len() == 2;
            return Ok(DATE);
        }
        if said & TIME == TIME || !matches!(digits.len(), 4 | 6) {
            return Err(TimeFault::Syntax);
        }
        (self.hour, self.minute) = (number(&digits[..2])?, number(&digits[2..4])?);
        self.second = if digits.len() == 6 { number(&digits[4..])? } else { 0 };
        Ok(TIME)
    }

    /// `04:05:06.789`, `04:05`
    fn clock(&mut self, text: &str) -> Result<u16> {
        let mut parts = text.split(':');
        let (Some(hour), Some(minute), second, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(TimeFault::Syntax);
        };
        let (hour, minute) = (number(hour)?, minute);
        let (second, fraction) = second.map_or(("0", None), |second| {
            second.split_once('.').map_or((second, None), |(second, rest)| (second, Some(rest)))
        });
        // `04:05.6` is of minutes and seconds.
        if let Some((whole, rest)) = minute.split_once('.') {
            (self.hour, self.minute, self.second) = (0, hour, number(whole)?);
            self.us = fraction_us(rest)?;
        } else {
            (self.hour, self.minute, self.second) = (hour, number(minute)?, number(second)?);
            self.us = fraction.map_or(Ok(0), fraction_us)?;
        }
        if self.minute > 59 || self.second > 60 || self.hour > 24 {
            return Err(TimeFault::Field);
        }
        Ok(TIME)
    }

    fn word(&mut self, text: &str, next: Option<&Field<'_>>) -> Result<u16> {
        if self.label.is_some() && abbreviation(text).is_none() {
            return Err(TimeFault::Syntax);
        }
        if let Some(meaning) = abbreviation(text) {
            self.zone = Some(match meaning {
                Abbreviation::East(minutes) => Offset::Seconds(i64::from(minutes) * 60),
                Abbreviation::Of(_) | Abbreviation::Changing(..) => {
                    Offset::Abbreviated(Zone::abbreviated(text).ok_or(TimeFault::Zone)?)
                }
            });
            return Ok(ZONE);
        }
        let Some(word) = words::of_dates(text) else {
            self.zone = Some(Offset::Of(Zone::parse(text).ok_or(TimeFault::Syntax)?));
            return Ok(ZONE);
        };
        Ok(match word {
            Word::Filler => 0,
            Word::Weekday => WEEKDAY,
            Word::Month(month) => {
                // `08 jan`: what looked like a month was the day.
                let said =
                    match self.said & (MONTH | DAY) == MONTH && !self.is_month_word && (1..=31).contains(&self.month) {
                        true => {
                            self.day = self.month;
                            self.said &= !MONTH;
                            MONTH | DAY
                        }
                        false => MONTH,
                    };
                (self.month, self.is_month_word) = (month, true);
                said
            }
            Word::Ante | Word::Post => {
                self.half = Some(if word == Word::Ante { HalfDay::Ante } else { HalfDay::Post });
                HALF
            }
            Word::BeforeChrist | Word::AfterChrist => {
                self.is_before_christ = word == Word::BeforeChrist;
                ERA
            }
            Word::Unit(unit) => {
                self.label = Some(Label::Unit(unit));
                0
            }
            Word::Time => {
                let is_followed =
                    next.is_some_and(|next| matches!(next.kind, FieldKind::Number | FieldKind::Time | FieldKind::Date));
                if !is_followed || (!self.has(DATE) && !self.is_time) {
                    return Err(TimeFault::Syntax);
                }
                self.label = Some(Label::Time);
                0
            }
            Word::Summer => match &mut self.zone {
                Some(Offset::Seconds(east)) => {
                    *east += 3_600;
                    SUMMER
                }
                _ => return Err(TimeFault::Syntax),
            },
            Word::Now => {
                self.is_now = true;
                DATE | TIME | ZONE
            }
            Word::Midnight => {
                self.zone = Some(Offset::Seconds(0));
                TIME | ZONE
            }
            _ if self.is_time => return Err(TimeFault::Syntax),
            Word::Today | Word::Tomorrow | Word::Yesterday => {
                let later = match word {
                    Word::Today => 0,
                    Word::Tomorrow => 1,
                    _ => -1,
                };
                self.days = Some(local_now(self.here)?.div_euclid(DAY_US) + later);
                DATE
            }
            Word::Epoch => {
                self.special = Some(Special::Epoch);
                DATE | TIME | ZONE
            }
            Word::Infinity => {
                self.special = Some(Special::Infinity);
                DATE | TIME | ZONE
            }
        })
    }

    /// Days since 1970-01-01, of a whole date. What there is of one must be possible.
    fn check_date(&mut self) -> Result<Option<i64>> {
        if self.days.is_some() {
            return Ok(self.days);
        }
        if self.has(YEAR) {
            self.year = match self.year {
                year if self.is_before_christ && year > 0 => 1 - year,
                year if !self.is_before_christ && self.is_two_digit_year && year < 70 => year + 2_000,
                year if !self.is_before_christ && self.is_two_digit_year => year + 1_900,
                year if !self.is_before_christ && year > 0 => year,
                _ => return Err(TimeFault::Field),
            };
        }
        if let Some(day) = self.day_of_year {
            return Ok(Some(days_from_civil(self.year, 1, 1) + day - 1));
        }
        let is_month = !self.has(MONTH) || (1..=12).contains(&self.month);
        let is_day = !self.has(DAY) || (1..=31).contains(&self.day);
        if !is_month || !is_day {
            return Err(TimeFault::Field);
        }
        if !self.has(DATE) {
            return Ok(None);
        }
        let days = days_from_civil(self.year, self.month, self.day);
        match civil_from_days(days) == (self.year, self.month, self.day) {
            true => Ok(Some(days)),
            false => Err(TimeFault::Field),
        }
    }

    /// Microseconds since midnight, up to and including 24:00.
    fn time_of_day(&self) -> Result<i64> {
        let hour = match (self.half, self.hour) {
            (Some(_), 13..) => return Err(TimeFault::Field),
            (Some(HalfDay::Ante), 12) => 0,
            (Some(HalfDay::Post), hour) if hour != 12 => hour + 12,
            (_, hour) => hour,
        };
        if hour > 24 || self.minute > 59 || self.second > 60 {
            return Err(TimeFault::Field);
        }
        let us = hour * HOUR_US + self.minute * 60 * SECOND_US + self.second * SECOND_US + self.us;
        if us <= DAY_US { Ok(us) } else { Err(TimeFault::Field) }
    }
}

/// Digits, and nothing else. More than nine are more than any part is.
pub(super) fn number(digits: &str) -> Result<i64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TimeFault::Syntax);
    }
    digits.parse().ok().filter(|value| *value <= i64::from(i32::MAX)).ok_or(TimeFault::Field)
}

/// Digits behind the point of seconds, rounded to microseconds.
fn fraction_us(digits: &str) -> Result<i64> {
    if digits.is_empty() {
        return Ok(0);
    }
    crate::text::parse_fraction(digits).ok_or(TimeFault::Syntax)
}

/// `040506-08`: a number and a zone.
fn with_zone(text: &str) -> Result<(&str, i64)> {
    let (number, zone) = text.split_once('-').ok_or(TimeFault::Syntax)?;
    Ok((number, displacement(zone, true)?))
}

/// `8`, `08:30`, `0830`, in seconds.
fn displacement(text: &str, is_west: bool) -> Result<i64> {
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    let (hours, minutes) = match (number(first)?, parts.next()) {
        (both, None) if first.len() >= 3 => (both / 100, both % 100),
        (hours, minutes) => (hours, minutes.map_or(Ok(0), number)?),
    };
    let seconds = parts.next().map_or(Ok(0), number)?;
    if parts.next().is_some() {
        return Err(TimeFault::Syntax);
    }
    if hours > MAX_OFFSET_HOURS || minutes > 59 || seconds > 59 {
        return Err(TimeFault::Displacement);
    }
    let east = hours * 3_600 + minutes * 60 + seconds;
    Ok(if is_west { -east } else { east })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{format_date, format_time, format_timestamp};

    const HERE: ParseContext<'_> =
        ParseContext { zone: None, order: DateOrder::Mdy, now_us: Some(1_000_000_000_000_000) };

    /// What PostgreSQL 15 says, with DateStyle `ISO, MDY`.
    #[test]
    fn dates_in_all_forms() {
        for text in [
            "January 8, 1999",
            "1999-01-08",
            "1999-01-18 BC",
            "1/8/1999",
            "1/18/1999",
            "1999 Jan 8",
            "1999-Jan-08",
            "Jan-08-1999",
            "08-Jan-1999",
            "99-Jan-08",
            "08-Jan-99",
            "19990108",
            "990108",
            "1999.008",
            "J2451187",
            "January 8, 99 BC",
            "99 Jan 08",
            "08 Jan 99",
            "1999 08 Jan",
            "99-08-01",
            "08-01-99",
            "1999 01 08",
            "epoch",
            "today",
            "tomorrow",
            "now",
            "2040-04-10 BC",
            "4714-11-24 BC",
            "5874897-12-31",
            "y2001m02d04",
            "Friday January 8, 1999 at 04:05",
            "Fri 1999-Jan-08",
            "04:05 1999-01-08",
            "04:05 Jan 8 1999",
            "2001-02-29",
            "13/01/1999",
            "5874898-01-01",
            "4714-11-23 BC",
            "99-Jan-08-5",
            "10:00",
            "infinity",
            "-Infinity",
            "+infinity",
            "J",
            "1999-01-08 +99",
            "1999-01-08 10:00 Mars/Base",
            "1999-01-08 10:00 mars",
        ] {
            let shown = match date(text, HERE) {
                Ok(days) => format_date(days),
                Err(fault) => format!("{fault:?}"),
            };
            let want = match text {
                "1999-01-18 BC" => "1999-01-18 BC",
                "1/18/1999" => "1999-01-18",
                "January 8, 99 BC" => "0099-01-08 BC",
                "99-08-01" | "13/01/1999" => "Field",
                "08-01-99" => "1999-08-01",
                "epoch" => "1970-01-01",
                "today" | "now" => "2001-09-09",
                "tomorrow" => "2001-09-10",
                "2040-04-10 BC" => "2040-04-10 BC",
                "4714-11-24 BC" => "4714-11-24 BC",
                "5874897-12-31" => "5874897-12-31",
                "y2001m02d04" => "2001-02-04",
                "99-Jan-08" | "2001-02-29" => "Field",
                "5874898-01-01" | "4714-11-23 BC" => "Range",
                "Fri 1999-Jan-08"
                | "04:05 1999-01-08"
                | "99-Jan-08-5"
                | "10:00"
                | "J"
                | "99 Jan 08"
                | "1999-01-08 10:00 mars" => "Syntax",
                "infinity" => "infinity",
                "-Infinity" => "-infinity",
                "+infinity" => "Syntax",
                "1999-01-08 +99" => "Displacement",
                "1999-01-08 10:00 Mars/Base" => "Zone",
                _ => "1999-01-08",
            };
            assert_eq!(shown, want, "{text}");
        }
        assert_eq!(date("today", ParseContext { now_us: None, ..HERE }), Err(TimeFault::Clock));
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn numbers_are_in_the_order_of_the_date_style() {
        let of = |text: &str| {
            [DateOrder::Mdy, DateOrder::Dmy, DateOrder::Ymd].map(|order| {
                date(text, ParseContext { order, ..HERE }).map_or_else(|fault| format!("{fault:?}"), format_date)
            })
        };
        let field = "Field";
        for (text, want) in [
            ("1/8/1999", ["1999-01-08", "1999-08-01", field]),
            ("1/18/1999", ["1999-01-18", field, field]),
            ("18/1/1999", [field, "1999-01-18", field]),
            ("01/02/03", ["2003-01-02", "2003-02-01", "2001-02-03"]),
            ("08-01-99", ["1999-08-01", "1999-01-08", field]),
            ("99-08-01", [field, field, "1999-08-01"]),
            ("99-Jan-08", [field, field, "1999-01-08"]),
            ("08-Jan-99", ["1999-01-08", "1999-01-08", field]),
            ("08-Jan-1999", ["1999-01-08"; 3]),
            ("Jan-08-1999", ["1999-01-08"; 3]),
            ("Jan-08-99", ["1999-01-08", "1999-01-08", field]),
            ("99 08 01", [field, field, "1999-08-01"]),
            ("99 Jan 08", ["Syntax", field, "1999-01-08"]),
            ("08 Jan 99", ["1999-01-08", "1999-01-08", field]),
            ("1999-01-08", ["1999-01-08"; 3]),
            ("1999 08 01", ["1999-08-01"; 3]),
            ("19990108", ["1999-01-08"; 3]),
        ] {
            assert_eq!(of(text), want, "{text}");
        }
    }

    #[test]
    fn times_in_all_forms() {
        for (text, want) in [
            ("04:05:06.789", "04:05:06.789"),
            ("04:05", "04:05:00"),
            ("040506", "04:05:06"),
            ("0405", "04:05:00"),
            ("04:05 PM", "16:05:00"),
            ("12:30 am", "00:30:00"),
            ("04:05:06-08:00", "04:05:06"),
            ("04:05 PST", "04:05:00"),
            ("2003-03-07 15:36:39 America/New_York", "15:36:39"),
            ("040506-08", "04:05:06"),
            ("allballs", "00:00:00"),
            ("24:00", "24:00:00"),
            ("23:59:60", "24:00:00"),
            ("now", "01:46:40"),
            ("15:36:39 America/New_York", "Syntax"),
            ("24:00:01", "Field"),
            ("25:00", "Field"),
            ("10:60", "Field"),
            ("13:00 PM", "Field"),
            ("today", "Syntax"),
            ("infinity", "Syntax"),
            ("10:00 MSK 5", "Syntax"),
        ] {
            let shown = time(text, HERE).map_or_else(|fault| format!("{fault:?}"), format_time);
            assert_eq!(shown, want, "{text}");
        }
    }

    #[test]
    fn timestamps_in_all_forms() {
        for (text, want) in [
            ("Mon Feb 10 17:32:01 1997 PST", "1997-02-11 01:32:01"),
            ("Feb 10 17:32:01.4 1997", "1997-02-10 17:32:01.4"),
            ("1997-02-10 17:32:01-08", "1997-02-11 01:32:01"),
            ("19970210 173201 -0800", "1997-02-11 01:32:01"),
            ("1997-06-10 17:32:01 -07:00", "1997-06-11 00:32:01"),
            ("2001-09-22T18:19:20", "2001-09-22 18:19:20"),
            ("20011227 040506+08", "2001-12-26 20:05:06"),
            ("20011227T040506.789-08", "2001-12-27 12:05:06.789"),
            ("J2452271 T040506+08", "2001-12-26 20:05:06"),
            ("1997.041 17:32:01 UTC", "1997-02-10 17:32:01"),
            ("1997-06-10 18:32:01 America/New_York", "1997-06-10 22:32:01"),
            ("1997-06-10 18:32:01 america/new_york", "1997-06-10 22:32:01"),
            ("1997-06-10 18:32:01 PST8PDT", "1997-06-11 01:32:01"),
            ("1997-06-10 18:32:01 MET DST", "1997-06-10 16:32:01"),
            ("Feb 16 17:32:01 0097 BC", "0097-02-16 17:32:01 BC"),
            ("2026-11-22 +00", "2026-11-22 00:00:00"),
            ("epoch", "1970-01-01 00:00:00"),
            ("now", "2001-09-09 01:46:40"),
            ("yesterday 10:30", "2001-09-08 10:30:00"),
            ("294277-01-01", "Range"),
            ("- infinity", "-infinity"),
            ("infinity BC", "infinity"),
            ("1997-02-10 17:32:01 +16:00", "Displacement"),
            ("Feb 10 17:32:01 5097 BC", "Range"),
            ("1997-02-10 10:00 11:00", "Syntax"),
            ("10:00", "Syntax"),
            ("", "Syntax"),
        ] {
            let shown = timestamp_tz(text, HERE).map_or_else(|fault| format!("{fault:?}"), format_timestamp);
            assert_eq!(shown, want, "{text}");
        }
        assert_eq!(timestamp("1997-02-10 17:32:01 PST", HERE), timestamp("1997-02-10 17:32:01", HERE));
    }
}
