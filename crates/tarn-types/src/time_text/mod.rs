//! Which day, time or span does a text name, in all the forms that PostgreSQL reads?
//!
//! The usual form, `2026-11-24 10:00:00+01`, is read by [`crate::text`] in one pass; what that does not take comes here:
//!
//! - [`fields`]: a text is cut into dates, times, numbers, words and zones, whatever type it is of
//! - [`words`]: months, days of the week, abbreviations of zones, and words as `today`
//! - [`date_time`]: the fields as a date, a time or an instant (`Jan 8 1999`, `19990108T040506-08`, `J2451187`, `tomorrow`)
//! - [`span`]: the fields as an interval (`1 day 04:05:06`, `1-2`, `P1Y2M`)
//!
//! Source: PostgreSQL 15, appendix B, "Date/Time Support", with DateStyle `ISO, MDY` and IntervalStyle `postgres`; and its answers.

mod date_time;
mod fields;
mod span;
mod words;

pub(crate) use self::date_time::{date, time, timestamp, timestamp_tz};
pub use self::span::{Span, SpanField, SpanFields, parse_span};

use std::fmt;

use crate::Zone;

/// What a text leaves to where it is read.
#[derive(Debug, Clone, Copy)]
pub struct Here<'a> {
    /// Whose clocks show a time that is written without a zone. `None`: those of UTC.
    pub zone: Option<&'a Zone>,
    /// What `now` and `today` are, in microseconds since 1970-01-01 UTC. `None`: nobody says, and they are refused.
    pub now_us: Option<i64>,
}

/// Why a text is no date, time or interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFault {
    /// It is not written as one.
    Syntax,
    /// It is, but a part of it is none there is: 30 February, 25 o'clock.
    Field,
    /// An interval whose part is more than there is room for.
    Interval,
    /// Clocks nowhere differ so much.
    Displacement,
    /// It ends with what could be a zone, and is none.
    Zone,
    /// The type does not reach as far.
    Range,
    /// `infinity`: no column can keep it.
    Infinite,
    /// `now` and its kin, where nobody says what time it is.
    Clock,
}

impl TimeFault {
    /// What is wrong with `text`, which should be of the type `data_type`, in PostgreSQL's words.
    pub(crate) fn say(self, f: &mut fmt::Formatter<'_>, text: &str, data_type: &str) -> fmt::Result {
        match self {
            TimeFault::Syntax => write!(f, "invalid input syntax for type {data_type}: \"{text}\""),
            TimeFault::Field => write!(f, "date/time field value out of range: \"{text}\""),
            TimeFault::Interval => write!(f, "interval field value out of range: \"{text}\""),
            TimeFault::Displacement => write!(f, "time zone displacement out of range: \"{text}\""),
            TimeFault::Zone => write!(f, "time zone of \"{text}\" not recognized"),
            TimeFault::Range => write!(f, "{data_type} out of range: \"{text}\""),
            TimeFault::Infinite => write!(f, "infinite values of type {data_type} are not supported: \"{text}\""),
            TimeFault::Clock => write!(f, "\"{text}\" depends on when it is read: write the {data_type} itself"),
        }
    }
}
