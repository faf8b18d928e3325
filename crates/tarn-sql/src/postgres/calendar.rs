//! In which century is a day, and when did it begin? The fields of a time of the calendar, and where each begins: pure
//! arithmetic, of times in microseconds since 1970-01-01 as clocks show them.
//!
//! There is no year 0: the one before 1 is -1. Decades begin with a 0 (1990, also 0 itself), centuries and millennia
//! with a 1.

use std::ops::Range;

use chrono::{Datelike, NaiveDate, Weekday};

pub(super) const SECOND_US: i64 = 1_000_000;
pub(super) const MINUTE_US: i64 = 60 * SECOND_US;
pub(super) const HOUR_US: i64 = 60 * MINUTE_US;
pub(super) const DAY_US: i64 = 24 * HOUR_US;

/// Between 1970-01-01 and the day 0 of Julian days.
const JULIAN_DAYS: i64 = 2_440_588;

/// Dates of PostgreSQL, in days since 1970-01-01: from 4714-11-24 BC, the first Julian day, to the end of 5874897.
pub(super) const DAYS: Range<i64> = -JULIAN_DAYS..2_145_042_906;

/// A field of a time or an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CalendarField {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    IsoYear,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    Julian,
    Epoch,
    Zone,
    ZoneHour,
    ZoneMinute,
}

impl CalendarField {
    /// By any of its names, in any case.
    pub(super) fn of(name: &str) -> Option<CalendarField> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" => {
                CalendarField::Microseconds
            }
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" => {
                CalendarField::Milliseconds
            }
            "s" | "sec" | "secs" | "second" | "seconds" => CalendarField::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => CalendarField::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => CalendarField::Hour,
            "d" | "day" | "days" => CalendarField::Day,
            "w" | "week" | "weeks" => CalendarField::Week,
            "mon" | "mons" | "month" | "months" => CalendarField::Month,
            "qtr" | "quarter" => CalendarField::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => CalendarField::Year,
            "dec" | "decs" | "decade" | "decades" => CalendarField::Decade,
            "c" | "cent" | "century" | "centuries" => CalendarField::Century,
            "mil" | "mils" | "millennia" | "millennium" => CalendarField::Millennium,
            "isoyear" => CalendarField::IsoYear,
            "dow" => CalendarField::DayOfWeek,
            "isodow" => CalendarField::IsoDayOfWeek,
            "doy" => CalendarField::DayOfYear,
            "j" | "jd" | "julian" => CalendarField::Julian,
            "epoch" => CalendarField::Epoch,
            "timezone" => CalendarField::Zone,
            "timezone_h" | "timezone_hour" => CalendarField::ZoneHour,
            "timezone_m" | "timezone_minute" => CalendarField::ZoneMinute,
            _ => return None,
        })
    }

    /// Whether it grows with time for ever, and does not begin anew: of an infinite time it is infinite, and not
    /// unknown.
    pub(super) fn grows(self) -> bool {
        use CalendarField::{Century, Decade, Epoch, IsoYear, Julian, Millennium, Year};
        matches!(self, Year | Decade | Century | Millennium | IsoYear | Julian | Epoch)
    }

    /// Digits behind the point of its values. Those of a Julian day are a part of the day.
    pub(super) fn digits(self) -> i8 {
        match self {
            CalendarField::Second | CalendarField::Epoch => 6,
            CalendarField::Milliseconds => 3,
            _ => 0,
        }
    }
}

/// The field of a time, times ten for each of its [`CalendarField::digits`]. `None`: times have no such field, or it is
/// not of the calendar.
pub(super) fn field_of_time(unit: CalendarField, local_us: i64) -> Option<i64> {
    let (days, us) = (local_us.div_euclid(DAY_US), local_us.rem_euclid(DAY_US));
    let date = date(days)?;
    let year = i64::from(date.year());
    Some(match unit {
        CalendarField::Microseconds | CalendarField::Milliseconds | CalendarField::Second => us % MINUTE_US,
        CalendarField::Minute => us / MINUTE_US % 60,
        CalendarField::Hour => us / HOUR_US,
        CalendarField::Day => date.day().into(),
        CalendarField::Week => date.iso_week().week().into(),
        CalendarField::Month => date.month().into(),
        CalendarField::Quarter => i64::from(date.month0()) / 3 + 1,
        CalendarField::Year => shown(year),
        CalendarField::Decade => year.div_euclid(10),
        CalendarField::Century => ordinal(year, 100),
        CalendarField::Millennium => ordinal(year, 1_000),
        CalendarField::IsoYear => shown(date.iso_week().year().into()),
        CalendarField::DayOfWeek => date.weekday().num_days_from_sunday().into(),
        CalendarField::IsoDayOfWeek => date.weekday().number_from_monday().into(),
        CalendarField::DayOfYear => date.ordinal().into(),
        CalendarField::Julian => days + JULIAN_DAYS,
        CalendarField::Epoch => local_us,
        CalendarField::Zone | CalendarField::ZoneHour | CalendarField::ZoneMinute => return None,
    })
}

/// As [`field_of_time`], of an interval, in which a year has 365.25 days, a month 30, and a day 24 hours.
pub(super) fn field_of_interval(unit: CalendarField, months: i32, days: i32, us: i64) -> Option<i128> {
    let (months, days) = (i64::from(months), i64::from(days));
    let years = months / 12;
    Some(
        match unit {
            CalendarField::Microseconds | CalendarField::Milliseconds | CalendarField::Second => us % MINUTE_US,
            CalendarField::Minute => us / MINUTE_US % 60,
            CalendarField::Hour => us / HOUR_US,
            CalendarField::Day => days,
            CalendarField::Month => months % 12,
            CalendarField::Quarter => months % 12 / 3 + 1,
            CalendarField::Year => years,
            CalendarField::Decade => years / 10,
            CalendarField::Century => years / 100,
            CalendarField::Millennium => years / 1_000,
            CalendarField::Epoch => {
                let quarters_of_days = years * 1_461 + months % 12 * 120 + days * 4;
                return Some(i128::from(quarters_of_days) * i128::from(DAY_US / 4) + i128::from(us));
            }
            _ => return None,
        }
        .into(),
    )
}

/// When the field that a time is in began. `None`: it is no field that begins, or lies before the calendar.
pub(super) fn truncated(unit: CalendarField, local_us: i64) -> Option<i64> {
    let fine = |unit_us: i64| local_us.div_euclid(unit_us).checked_mul(unit_us);
    let date = date(local_us.div_euclid(DAY_US))?;
    let year = i64::from(date.year());
    let from = |year: i64, month: u32| {
        let first = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, 1)?;
        days_of(first).checked_mul(DAY_US)
    };
    match unit {
        CalendarField::Microseconds => Some(local_us),
        CalendarField::Milliseconds => fine(1_000),
        CalendarField::Second => fine(SECOND_US),
        CalendarField::Minute => fine(MINUTE_US),
        CalendarField::Hour => fine(HOUR_US),
        CalendarField::Day => fine(DAY_US),
        CalendarField::Week => days_of(date.week(Weekday::Mon).checked_first_day()?).checked_mul(DAY_US),
        CalendarField::Month => from(year, date.month()),
        CalendarField::Quarter => from(year, date.month0() / 3 * 3 + 1),
        CalendarField::Year => from(year, 1),
        CalendarField::Decade => from(year.div_euclid(10) * 10, 1),
        CalendarField::Century => from((year - 1).div_euclid(100) * 100 + 1, 1),
        CalendarField::Millennium => from((year - 1).div_euclid(1_000) * 1_000 + 1, 1),
        _ => None,
    }
}

/// An interval without what is smaller than the unit. `None`: there is no such unit of intervals.
pub(super) fn truncated_interval(unit: CalendarField, months: i32, days: i32, us: i64) -> Option<(i32, i32, i64)> {
    let of_months = |unit: i32| Some((months / unit * unit, 0, 0));
    let of_time = |unit: i64| Some((months, days, us / unit * unit));
    match unit {
        CalendarField::Microseconds => of_time(1),
        CalendarField::Milliseconds => of_time(1_000),
        CalendarField::Second => of_time(SECOND_US),
        CalendarField::Minute => of_time(MINUTE_US),
        CalendarField::Hour => of_time(HOUR_US),
        CalendarField::Day => Some((months, days, 0)),
        CalendarField::Month => of_months(1),
        CalendarField::Quarter => of_months(3),
        CalendarField::Year => of_months(12),
        CalendarField::Decade => of_months(120),
        CalendarField::Century => of_months(1_200),
        CalendarField::Millennium => of_months(12_000),
        _ => None,
    }
}

/// Days since 1970-01-01 of a day that is written as it is shown. `None`: there is no such day.
pub(super) fn day_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let year = match year {
        0 => return None,
        year if year < 0 => year + 1,
        year => year,
    };
    // The calendar repeats itself, and chrono's is shorter than PostgreSQL's.
    const CYCLE_YEARS: i64 = 400;
    const CYCLE_DAYS: i64 = 146_097;
    let of_cycle = i32::try_from(year.rem_euclid(CYCLE_YEARS)).ok()?;
    let date = NaiveDate::from_ymd_opt(of_cycle, u32::try_from(month).ok()?, u32::try_from(day).ok()?)?;
    let days = year.div_euclid(CYCLE_YEARS).checked_mul(CYCLE_DAYS)?.checked_add(days_of(date))?;
    Some(days).filter(|days| DAYS.contains(days))
}

pub(super) fn date(days: i64) -> Option<NaiveDate> {
    NaiveDate::from_num_days_from_ce_opt(i32::try_from(days.checked_add(719_163)?).ok()?)
}

pub(super) fn days_of(date: NaiveDate) -> i64 {
    i64::from(date.num_days_from_ce()) - 719_163
}

/// The year before 1 is -1.
fn shown(year: i64) -> i64 {
    if year > 0 { year } else { year - 1 }
}

/// Which of so many years, counted from 1, and backwards from -1.
fn ordinal(year: i64, years: i64) -> i64 {
    if year > 0 { (year + years - 1) / years } else { -((years - year) / years) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(year: i64, month: i64, day: i64) -> i64 {
        day_of(year, month, day).unwrap() * DAY_US
    }

    #[test]
    fn days_are_of_the_calendar_of_postgres() {
        assert_eq!([day_of(1970, 1, 1), day_of(2024, 2, 29), day_of(2023, 2, 29)], [Some(0), Some(19_782), None]);
        assert_eq!([day_of(-4714, 11, 24), day_of(-4714, 11, 23)], [Some(DAYS.start), None]);
        assert_eq!([day_of(5_874_897, 12, 31), day_of(5_874_898, 1, 1)], [Some(DAYS.end - 1), None]);
        assert_eq!(day_of(i64::MAX, 1, 1), None);
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn fields_of_days() {
        let all = |of: i64| {
            [
                CalendarField::Year,
                CalendarField::Decade,
                CalendarField::Century,
                CalendarField::Millennium,
                CalendarField::IsoYear,
                CalendarField::Week,
            ]
            .map(|unit| field_of_time(unit, of).unwrap())
        };
        assert_eq!(all(us(2001, 12, 31)), [2001, 200, 21, 3, 2002, 1]);
        assert_eq!(all(us(2000, 12, 31)), [2000, 200, 20, 2, 2000, 52]);
        assert_eq!(all(us(-1, 12, 31)), [-1, 0, -1, -1, -1, 52]);
        assert_eq!(all(us(-101, 1, 1))[..4], [-101, -10, -2, -1]);
        assert_eq!(all(us(-12, 1, 1))[1], -2);
        assert_eq!(field_of_time(CalendarField::Julian, us(2001, 12, 27)), Some(2_452_271));
    }

    #[test]
    fn fields_begin() {
        let of = us(-44, 3, 15);
        assert_eq!(truncated(CalendarField::Century, of), Some(us(-100, 1, 1)));
        assert_eq!(truncated(CalendarField::Decade, of), Some(us(-51, 1, 1)));
        assert_eq!(truncated(CalendarField::Millennium, us(2001, 3, 15)), Some(us(2001, 1, 1)));
        assert_eq!(truncated(CalendarField::Century, us(2000, 3, 15)), Some(us(1901, 1, 1)));
        assert_eq!(truncated(CalendarField::Week, us(2001, 12, 30)), Some(us(2001, 12, 24)));
        assert_eq!(truncated(CalendarField::DayOfWeek, of), None);
        assert_eq!(truncated_interval(CalendarField::Quarter, 14, 3, 5), Some((12, 0, 0)));
    }

    #[test]
    fn fields_of_intervals() {
        assert_eq!(field_of_interval(CalendarField::Epoch, 14, 3, 4_500_000), Some(37_000_804_500_000));
        assert_eq!(field_of_interval(CalendarField::Quarter, -5, 0, 0), Some(0));
        assert_eq!(field_of_interval(CalendarField::Week, 1, 0, 0), None);
    }
}
