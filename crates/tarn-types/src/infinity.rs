//! Which numbers are `infinity` and `-infinity` of dates and times? The greatest and the least that there are, as on
//! PostgreSQL's wire: so they are before and behind all others in rows, keys, Parquet and statistics, and whoever only
//! compares need not know them.
//!
//! Whoever computes has to. Nothing that is computed of a finite time is infinite: it is out of range.

/// `infinity` of dates, in days.
pub const INFINITE_DAY: i32 = i32::MAX;
/// `-infinity` of dates.
pub const MINUS_INFINITE_DAY: i32 = i32::MIN;
/// `infinity` of timestamps, in microseconds.
pub const INFINITE_US: i64 = i64::MAX;
/// `-infinity` of timestamps.
pub const MINUS_INFINITE_US: i64 = i64::MIN;

const DAY_US: i64 = 86_400_000_000;

/// Whether a date is infinite.
#[must_use]
pub const fn is_infinite_day(days: i32) -> bool {
    days == INFINITE_DAY || days == MINUS_INFINITE_DAY
}

/// Whether a timestamp is infinite.
#[must_use]
pub const fn is_infinite_us(us: i64) -> bool {
    us == INFINITE_US || us == MINUS_INFINITE_US
}

/// How an infinite date is written. `None`: it is finite.
#[must_use]
pub const fn infinite_day_text(days: i32) -> Option<&'static str> {
    match days {
        INFINITE_DAY => Some("infinity"),
        MINUS_INFINITE_DAY => Some("-infinity"),
        _ => None,
    }
}

/// How an infinite timestamp is written. `None`: it is finite.
#[must_use]
pub const fn infinite_us_text(us: i64) -> Option<&'static str> {
    match us {
        INFINITE_US => Some("infinity"),
        MINUS_INFINITE_US => Some("-infinity"),
        _ => None,
    }
}

/// When a day begins; of an infinite one that is as infinite. `None`: beyond the years of timestamps.
#[must_use]
pub fn midnight_us(days: i32) -> Option<i64> {
    match days {
        INFINITE_DAY => Some(INFINITE_US),
        MINUS_INFINITE_DAY => Some(MINUS_INFINITE_US),
        days => i64::from(days).checked_mul(DAY_US),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinite_days_begin_at_infinite_times() {
        assert_eq!([midnight_us(i32::MAX), midnight_us(i32::MIN)], [Some(i64::MAX), Some(i64::MIN)]);
        assert_eq!([midnight_us(1), midnight_us(i32::MAX - 1)], [Some(DAY_US), None]);
    }
}
