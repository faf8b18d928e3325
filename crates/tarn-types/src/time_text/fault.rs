//! Why is a text no date, time or interval? In PostgreSQL's words, which has a SQLSTATE for each.

use std::fmt;

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
            TimeFault::Clock => write!(f, "\"{text}\" depends on when it is read: write the {data_type} itself"),
        }
    }
}
