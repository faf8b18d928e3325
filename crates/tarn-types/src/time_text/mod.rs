//! Which day, time or span does a text name, in all the forms that PostgreSQL reads?
//!
//! The usual form, `2026-11-24 10:00:00+01`, is read by [`crate::text`] in one pass; what that does not take comes
//! here:
//!
//! - [`here`]: what a text leaves to its reader; [`fault`]: why it is refused
//! - [`fields`]: a text is cut into dates, times, numbers, words and zones, whatever type it is of
//! - [`words`]: months, days of the week, and words as `today`
//! - [`date_time`]: the fields as a date, a time or an instant (`Jan 8 1999`, `19990108T040506-08`, `J2451187`,
//!   `tomorrow`)
//! - [`span`]: the fields as an interval (`1 day 04:05:06`, `1-2`, `P1Y2M`)
//!
//! Source: PostgreSQL 15, appendix B, "Date/Time Support", with IntervalStyle `postgres`; and its answers.

mod fault;
mod here;

mod fields;
mod words;

mod date_time;
mod span;

pub(crate) use self::date_time::{date, time, timestamp, timestamp_tz};
pub use self::fault::TimeFault;
pub use self::here::ParseContext;
#[cfg(test)]
pub(crate) use self::span::MOST_US;
pub use self::span::{Span, SpanField, SpanFields, parse_span};
