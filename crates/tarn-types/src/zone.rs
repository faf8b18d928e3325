//! Which instant is 08:00, and what do the clocks of a place show at an instant? A time zone, as `SET TIME ZONE` names
//! it.
//!
//! Names are those of the IANA database; numbers are hours east of Greenwich. POSIX' `GMT-05:30` lies east, as drivers
//! know, and so does `-05:30`. Functions and `AT TIME ZONE` know abbreviations too.

use std::str::FromStr;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use chrono::{DateTime, Datelike, Days, NaiveDate, Offset, TimeZone};

use crate::infinity::{INFINITE_US, MINUS_INFINITE_US, is_infinite_us};
use crate::zone_abbreviations::{Abbreviation, abbreviation};

const DAY_US: i64 = 86_400_000_000;

/// Longest name of a time zone.
const MAX_NAME_BYTES: usize = 64;

/// Offsets are less than this many minutes, as in the texts of times.
const MAX_OFFSET_MINUTES: i32 = 16 * 60;

/// The last year of which the database of time zones has the switches.
const LAST_KNOWN_YEAR: i32 = 2099;

/// A time zone.
#[derive(Debug, Clone)]
pub struct Zone {
    name: Arc<str>,
    arrow: Arc<str>,
    tz: Tz,
    /// Of an abbreviation that changed: minutes east of Greenwich from each of these seconds since 1970 on.
    changes: &'static [(i64, i16)],
}

impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.arrow == other.arrow && self.changes == other.changes
    }
}

impl Eq for Zone {}

impl Default for Zone {
    fn default() -> Zone {
        Zone::utc()
    }
}

impl Zone {
    /// Coordinated Universal Time.
    #[must_use]
    pub fn utc() -> Zone {
        Zone::named("UTC").expect("the database of time zones has UTC")
    }

    /// A zone by its name, in any case that is usual, by hours east of Greenwich (`-7`, `5.5`), by hours and minutes
    /// *west* (`+05:30`, as POSIX has it), or as [`Zone::name`] writes those.
    #[must_use]
    pub fn parse(text: &str) -> Option<Zone> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_NAME_BYTES {
            return None;
        }
        if let Ok(hours) = text.parse::<f64>() {
            let minutes = hours * 60.0;
            return (minutes.fract() == 0.0).then(|| Zone::east(minutes as i32))?;
        }
        if let Some(posix) = text.strip_prefix('<') {
            let (offset, _) = posix.split_once('>')?;
            let zone = Zone::offset(offset)?;
            return (*zone.name == *text).then_some(zone);
        }
        // Offsets that Arrow would take have the other sign in Postgres.
        if text.starts_with(['+', '-']) || text.as_bytes()[0].is_ascii_digit() {
            let zone = Zone::at(text)?;
            return Some(Zone { name: text.into(), ..zone });
        }
        Zone::named(text)
            .or_else(|| Zone::named(&text.to_ascii_uppercase()))
            .or_else(|| Zone::named(&capitals(text)))
            .or_else(|| Zone::posix(text))
    }

    /// A zone as functions and `AT TIME ZONE` name it: by an abbreviation, or as [`Zone::parse`], but that numbers are
    /// POSIX', and count hours *west*, with their minutes: `5`, `+5`, `-05:30`.
    #[must_use]
    pub fn at(text: &str) -> Option<Zone> {
        let (sign, rest) = match text.as_bytes().first()? {
            b'-' => ('+', &text[1..]),
            b'+' => ('-', &text[1..]),
            b'0'..=b'9' => ('-', text),
            _ => return Zone::abbreviated(text).or_else(|| Zone::parse(text)),
        };
        let zero = if rest.find(':').unwrap_or(rest.len()) == 1 { "0" } else { "" };
        Zone::offset(&format!("{sign}{zero}{rest}"))
    }

    /// A zone by an abbreviation of PostgreSQL's default set: `PST`, `msk`.
    #[must_use]
    pub fn abbreviated(text: &str) -> Option<Zone> {
        match abbreviation(&text.to_ascii_lowercase())? {
            Abbreviation::East(minutes) => Zone::east(i32::from(minutes)),
            Abbreviation::Of(name) => Zone::named(name),
            Abbreviation::Changing(name, changes) => Zone::named(name).map(|zone| Zone { changes, ..zone }),
        }
    }

    /// `GMT-05:30`, as drivers write it for Postgres: a name of one's own, and how far it lies *west*.
    fn posix(text: &str) -> Option<Zone> {
        let at = text.find(|c: char| !c.is_ascii_alphabetic()).filter(|at| *at >= 3)?;
        let (sign, rest) = match text.as_bytes()[at] {
            b'+' => ('-', &text[at + 1..]),
            b'-' => ('+', &text[at + 1..]),
            _ => return None,
        };
        let zone = match rest.find(':').unwrap_or(rest.len()) {
            1 => Zone::offset(&format!("{sign}0{rest}"))?,
            _ => Zone::offset(&format!("{sign}{rest}"))?,
        };
        Some(Zone { name: text.into(), ..zone })
    }

    /// A zone by its offset east of Greenwich: `+05`, `+05:30`.
    #[must_use]
    pub fn offset(text: &str) -> Option<Zone> {
        let (sign, rest) = match text.as_bytes().first()? {
            b'+' => (1, &text[1..]),
            b'-' => (-1, &text[1..]),
            _ => return None,
        };
        let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "00"));
        let two = |digits: &str| {
            (digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse::<i32>().ok())?
        };
        let (hours, minutes) = (two(hours)?, two(minutes).filter(|minutes| *minutes < 60)?);
        Zone::east(sign * (hours * 60 + minutes))
    }

    fn east(minutes: i32) -> Option<Zone> {
        if minutes.abs() >= MAX_OFFSET_MINUTES {
            return None;
        }
        let (sign, opposite) = if minutes < 0 { ('-', '+') } else { ('+', '-') };
        let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
        let arrow = format!("{sign}{hours:02}:{rest:02}");
        let short = if rest == 0 { format!("{hours:02}") } else { format!("{hours:02}:{rest:02}") };
        let tz = Tz::from_str(&arrow).ok()?;
        Some(Zone { name: format!("<{sign}{short}>{opposite}{short}").into(), arrow: arrow.into(), tz, changes: &[] })
    }

    fn named(name: &str) -> Option<Zone> {
        let tz = Tz::from_str(name).ok()?;
        Some(Zone { name: name.into(), arrow: name.into(), tz, changes: &[] })
    }

    /// As `SHOW TimeZone` writes it, and `SET` reads it: of an offset in POSIX' form, with the sign that everybody
    /// reads in brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As Arrow's types name it.
    #[must_use]
    pub fn arrow_name(&self) -> &Arc<str> {
        &self.arrow
    }

    /// What its clocks are called beside a time, as in `10:00 UTC`, where that is one thing at all times. `None`: it is
    /// another in summer, or is not known here.
    #[must_use]
    pub fn letters(&self) -> Option<&str> {
        if let name @ ("UTC" | "GMT") = self.name.strip_prefix("Etc/").unwrap_or(&self.name) {
            return Some(name);
        }
        // By an offset, with letters of its own.
        match self.name.strip_prefix('<').and_then(|posix| posix.split_once('>')) {
            Some((letters, _)) => Some(letters),
            None if self.arrow.starts_with(['+', '-']) => {
                let end = self.name.find(|c: char| !c.is_ascii_alphabetic())?;
                Some(&self.name[..end]).filter(|letters| !letters.is_empty())
            }
            None => None,
        }
    }

    /// Seconds east of Greenwich at an instant, in microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn offset_at(&self, us: i64) -> i32 {
        match self.changes.iter().rev().find(|(from, _)| *from <= us.div_euclid(1_000_000)) {
            Some((_, minutes)) => i32::from(*minutes) * 60,
            None => self.offset_of_clocks(us),
        }
    }

    /// As [`Zone::offset_at`], by the clocks of the place.
    fn offset_of_clocks(&self, us: i64) -> i32 {
        let us = us.saturating_add(to_known_year(us));
        match DateTime::from_timestamp_micros(us) {
            Some(instant) => self.tz.offset_from_utc_datetime(&instant.naive_utc()).fix().local_minus_utc(),
            // Long before there were zones, or before chrono's calendar begins.
            None => self.tz.offset_from_utc_datetime(&DateTime::UNIX_EPOCH.naive_utc()).fix().local_minus_utc(),
        }
    }

    /// What the clocks show at an instant; both in microseconds since 1970-01-01. What is infinite stays so, and
    /// nothing else becomes it.
    #[must_use]
    pub fn local(&self, us: i64) -> i64 {
        if is_infinite_us(us) {
            return us;
        }
        let local = us.saturating_add(i64::from(self.offset_at(us)) * 1_000_000);
        local.clamp(MINUS_INFINITE_US + 1, INFINITE_US - 1)
    }

    /// The instant at which the clocks show a time; both in microseconds since 1970-01-01. As in Postgres, a time that
    /// is left out when the clocks go forward is read as if they had not, one that comes twice is the second. An
    /// abbreviation means what it means when the clocks of its place show that time.
    ///
    /// `None`: out of range. What is infinite stays so.
    #[must_use]
    pub fn instant(&self, local_us: i64) -> Option<i64> {
        if is_infinite_us(local_us) {
            return Some(local_us);
        }
        let shown = self.instant_of_clocks(local_us)?;
        let instant = match self.changes {
            [] => Some(shown),
            _ => local_us.checked_sub(i64::from(self.offset_at(shown)) * 1_000_000),
        };
        instant.filter(|us| !is_infinite_us(*us))
    }

    fn instant_of_clocks(&self, local_us: i64) -> Option<i64> {
        // Nowhere are two switches within two days.
        let before = self.offset_of_clocks(local_us.saturating_sub(DAY_US));
        let after = self.offset_of_clocks(local_us.saturating_add(DAY_US));
        let by = |offset: i32| local_us.checked_sub(i64::from(offset) * 1_000_000);
        if before == after {
            return by(before);
        }
        match by(after) {
            Some(instant) if self.offset_of_clocks(instant) == after => Some(instant),
            _ => by(before),
        }
    }
}

/// `europe/berlin` → `Europe/Berlin`
fn capitals(text: &str) -> String {
    let mut starts = true;
    let capital = |c: char| {
        let capital = if starts { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        starts = !c.is_ascii_alphanumeric();
        capital
    };
    text.chars().map(capital).collect()
}

/// What leads from an instant to one of the same day in a year that the database knows: rules go on, its list does not.
fn to_known_year(us: i64) -> i64 {
    // 2100-01-01.
    const FIRST_UNKNOWN: i64 = 47_482 * DAY_US;
    if us < FIRST_UNKNOWN {
        return 0;
    }
    // The calendar repeats itself every 400 years.
    const CYCLE_DAYS: i64 = 146_097;
    let days = us.div_euclid(DAY_US);
    let in_cycle = (days - 47_482).rem_euclid(CYCLE_DAYS) + 47_482;
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).expect("a date");
    let Some(date) = u64::try_from(in_cycle).ok().and_then(|days| epoch.checked_add_days(Days::new(days))) else {
        return 0;
    };
    let same = (LAST_KNOWN_YEAR - 27..=LAST_KNOWN_YEAR).find_map(|year| {
        let first = NaiveDate::from_ymd_opt(year, 1, 1)?;
        let of = NaiveDate::from_ymd_opt(date.year(), 1, 1)?;
        (first.leap_year() == of.leap_year() && first.weekday() == of.weekday())
            .then(|| NaiveDate::from_yo_opt(year, date.ordinal()))?
    });
    same.map_or(0, |same| (same.signed_duration_since(epoch).num_days() - days) * DAY_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, Value};

    fn us(text: &str) -> i64 {
        match Value::parse(&DataType::TimestampTz, text).unwrap() {
            Value::Timestamp(us) => us,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_and_numbers() {
        for (text, name, arrow) in [
            ("UTC", "UTC", "UTC"),
            ("utc", "UTC", "UTC"),
            ("europe/berlin", "Europe/Berlin", "Europe/Berlin"),
            ("america/argentina/buenos_aires", "America/Argentina/Buenos_Aires", "America/Argentina/Buenos_Aires"),
            ("5", "<+05>-05", "+05:00"),
            ("-7", "<-07>+07", "-07:00"),
            ("5.5", "<+05:30>-05:30", "+05:30"),
            ("<+05:30>-05:30", "<+05:30>-05:30", "+05:30"),
            ("0", "<+00>-00", "+00:00"),
            ("GMT-05:30", "GMT-05:30", "+05:30"),
            ("UTC+3", "UTC+3", "-03:00"),
            ("+05:00", "+05:00", "-05:00"),
            ("-00:30", "-00:30", "+00:30"),
            ("4:15", "4:15", "-04:15"),
        ] {
            let zone = Zone::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((zone.name(), &**zone.arrow_name()), (name, arrow));
            assert_eq!(Zone::parse(zone.name()), Some(zone));
        }
        for text in
            ["", "Mars/Phobos", "MSK", "+16:00", "17", "nan", "1e300", "5.0001", "<+05>-06", "EST5EDT4", "'; DROP"]
        {
            assert_eq!(Zone::parse(text), None, "{text}");
        }
        let letters = ["UTC", "5", "GMT-05:30", "Europe/Berlin"].map(|name| Zone::parse(name).unwrap());
        let letters = letters.iter().map(Zone::letters).collect::<Vec<_>>();
        assert_eq!(letters, [Some("UTC"), Some("+05"), Some("GMT"), None]);
        assert_eq!(Zone::offset("+05:00"), Zone::parse("5"));
        for (west, east) in [("5", "-05"), ("+5", "-05"), ("-05:30", "+05:30"), ("12", "-12")] {
            assert_eq!(Zone::at(west), Zone::offset(east), "{west}");
        }
        assert_eq!(Zone::at("europe/berlin"), Zone::parse("Europe/Berlin"));
        assert_eq!(["", "+", "5.5", "2024-02-29", "+ä"].map(Zone::at), [const { None }; 5]);
        for text in ["05:00", "+5", "+05:60", "+16:00", "+05:000", "+ä"] {
            assert_eq!(Zone::offset(text), None, "{text}");
        }
    }

    /// The instants are PostgreSQL's.
    #[test]
    fn abbreviations_mean_what_they_meant() {
        let moscow = Zone::at("MSK").unwrap();
        for (local, instant) in [
            ("1900-01-01 00:00:00", "1899-12-31 21:00:00+00"),
            ("2010-07-01 00:00:00", "2010-06-30 21:00:00+00"),
            ("2011-03-27 01:59:59", "2011-03-26 22:59:59+00"),
            ("2011-03-27 02:00:00", "2011-03-26 22:00:00+00"),
            ("2011-03-27 04:00:00", "2011-03-27 00:00:00+00"),
            ("2014-10-26 00:59:59", "2014-10-25 20:59:59+00"),
            ("2014-10-26 01:00:00", "2014-10-25 22:00:00+00"),
        ] {
            assert_eq!(moscow.instant(us(local)), Some(us(instant)), "{local}");
        }
        assert_eq!(moscow.local(us("2011-03-26 23:00:00+00")), us("2011-03-27 03:00:00"));
        assert_ne!(Some(moscow), Zone::parse("Europe/Moscow"));
        // As an abbreviation it has no summer.
        assert_eq!(Zone::at("CET"), Zone::parse("1"));
        assert_eq!(Zone::at("VET"), Zone::parse("America/Caracas"));
    }

    /// The instants are PostgreSQL's.
    #[test]
    fn local_times_are_the_instants_of_postgres() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        for (local, instant) in [
            ("2020-01-01 00:00:00", "2019-12-31 23:00:00+00"),
            ("2020-07-01 00:00:00", "2020-06-30 22:00:00+00"),
            // Left out, and twice.
            ("2020-03-29 02:30:00", "2020-03-29 01:30:00+00"),
            ("2020-10-25 02:30:00", "2020-10-25 01:30:00+00"),
            ("1800-01-01 00:00:00", "1799-12-31 23:06:32+00"),
            ("2150-07-01 00:00:00", "2150-06-30 22:00:00+00"),
            ("9999-12-31 00:00:00", "9999-12-30 23:00:00+00"),
        ] {
            assert_eq!(berlin.instant(us(local)), Some(us(instant)), "{local}");
        }
        for instant in ["2020-03-29 01:00:00+00", "2020-10-25 01:30:00+00", "0044-03-15 12:00:00+00 BC"] {
            assert_eq!(berlin.instant(berlin.local(us(instant))), Some(us(instant)), "{instant}");
        }
        assert_eq!(Zone::utc().instant(i64::MAX), Some(i64::MAX));
        let west = Zone::parse("-5").unwrap();
        // Nothing finite becomes infinite, or the other way round.
        assert_eq!([west.instant(i64::MAX), west.instant(i64::MAX - 1)], [Some(i64::MAX), None]);
        assert_eq!([west.local(i64::MIN), west.local(i64::MIN + 1)], [i64::MIN, i64::MIN + 1]);
    }
}
