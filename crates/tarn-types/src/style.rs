//! How are values shown in a session, and in which order does a date have its day? What `TimeZone`, `DateStyle`,
//! `IntervalStyle`, `bytea_output` and `extra_float_digits` say.

use std::fmt::Write;

use crate::text;
use crate::zone::Zone;

/// How values are shown, and texts of times are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Style {
    /// Whose clocks are shown, and meant by a time without a zone.
    pub zone: Zone,
    /// Everything else.
    pub forms: Forms,
}

/// The forms of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Forms {
    /// Of dates and timestamps.
    pub dates: DateForm,
    /// Of `1/2/2026`, as it is read, and in most forms shown.
    pub order: DateOrder,
    /// Of intervals.
    pub intervals: IntervalForm,
    /// Of bytes.
    pub bytes: BytesForm,
    /// Above 0, floats have as many digits as tell them from all others; else so many more (or fewer) than 6 of a
    /// `real` and 15 of a `double precision`.
    pub float_digits: i8,
}

impl Default for Forms {
    fn default() -> Forms {
        Forms {
            dates: DateForm::default(),
            order: DateOrder::default(),
            intervals: IntervalForm::default(),
            bytes: BytesForm::default(),
            float_digits: 1,
        }
    }
}

/// How a date is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DateForm {
    /// `2026-11-25 10:00:00+01`
    #[default]
    Iso,
    /// `11/25/2026 10:00:00 CET`
    Sql,
    /// `Wed Nov 25 10:00:00 2026 CET`
    Postgres,
    /// `25.11.2026 10:00:00 CET`
    German,
}

/// What a number of a date is when nothing else tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// How an interval is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IntervalForm {
    /// `1 year 2 mons 3 days 04:05:06`
    #[default]
    Postgres,
    /// `@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs`
    PostgresVerbose,
    /// `P1Y2M3DT4H5M6S`
    Iso8601,
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BytesForm {
    /// `\x610a`
    #[default]
    Hex,
    /// `a\012`
    Escape,
}

impl BytesForm {
    /// Bytes as they are shown.
    #[must_use]
    pub fn text(self, bytes: &[u8]) -> String {
        match self {
            BytesForm::Hex => text::format_bytes(bytes),
            BytesForm::Escape => {
                let mut out = String::with_capacity(bytes.len());
                for byte in bytes {
                    match byte {
                        b'\\' => out.push_str("\\\\"),
                        b' '..=b'~' => out.push(char::from(*byte)),
                        // Writing to a String cannot fail.
                        other => drop(write!(out, "\\{other:03o}")),
                    }
                }
                out
            }
        }
    }
}

impl Style {
    /// The usual forms, by the clocks of a zone.
    #[must_use]
    pub fn of_zone(zone: Zone) -> Style {
        Style { zone, forms: Forms::default() }
    }
}

/// What a `DateStyle` says beside what was said before: `German`, `SQL, DMY`, `YMD`. `None`: it says two things of one,
/// or what is none.
#[must_use]
pub fn date_style(text: &str, before: Forms) -> Option<Forms> {
    let (mut form, mut order) = (None, None);
    // Said twice is said once, if it is the same.
    fn says<T: PartialEq>(said: &mut Option<T>, value: T) -> bool {
        said.as_ref().is_none_or(|said| *said == value) && {
            *said = Some(value);
            true
        }
    }
    let mut is_default = false;
    for word in text.split(',') {
        let word = word.trim().trim_matches('"').to_ascii_lowercase();
        let is_known = match word.as_str() {
            "iso" => says(&mut form, DateForm::Iso),
            "sql" => says(&mut form, DateForm::Sql),
            "german" => says(&mut form, DateForm::German),
            word if word.starts_with("postgres") => says(&mut form, DateForm::Postgres),
            "ymd" => says(&mut order, DateOrder::Ymd),
            "dmy" => says(&mut order, DateOrder::Dmy),
            word if word.starts_with("euro") => says(&mut order, DateOrder::Dmy),
            "mdy" | "us" => says(&mut order, DateOrder::Mdy),
            word if word.starts_with("noneuro") => says(&mut order, DateOrder::Mdy),
            "default" => {
                is_default = true;
                true
            }
            _ => false,
        };
        if !is_known {
            return None;
        }
    }
    if form == Some(DateForm::German) {
        order = order.or(Some(DateOrder::Dmy));
    }
    let before = if is_default { Forms::default() } else { before };
    Some(Forms { dates: form.unwrap_or(before.dates), order: order.unwrap_or(before.order), ..before })
}

/// As `SHOW DateStyle` writes it.
#[must_use]
pub fn date_style_text(forms: Forms) -> &'static str {
    use DateForm::{German, Iso, Postgres, Sql};
    use DateOrder::{Dmy, Mdy, Ymd};
    match (forms.dates, forms.order) {
        (Iso, Mdy) => "ISO, MDY",
        (Iso, Dmy) => "ISO, DMY",
        (Iso, Ymd) => "ISO, YMD",
        (Sql, Mdy) => "SQL, MDY",
        (Sql, Dmy) => "SQL, DMY",
        (Sql, Ymd) => "SQL, YMD",
        (Postgres, Mdy) => "Postgres, MDY",
        (Postgres, Dmy) => "Postgres, DMY",
        (Postgres, Ymd) => "Postgres, YMD",
        (German, Mdy) => "German, MDY",
        (German, Dmy) => "German, DMY",
        (German, Ymd) => "German, YMD",
    }
}

/// Whether a text of SQL may have a date of which the DateStyle says what is the day: `'1/2/2026'`. A definition that
/// is kept as a text would be another where the order is another.
#[must_use]
pub fn hangs_on_order(sql: &str) -> bool {
    let begins_so = |literal: &str| {
        let literal = literal.trim_start();
        let rest = literal.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_short = (1..=3).contains(&(literal.len() - rest.len()));
        let mut behind = rest.chars();
        is_short
            && matches!(behind.next(), Some('/' | '-' | '.' | ' '))
            && behind.next().is_some_and(|c| c.is_ascii_digit())
    };
    sql.split('\'').skip(1).any(begins_so)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_both_forms() {
        assert_eq!(BytesForm::Escape.text(b"a\\\n \xff~"), r"a\\\012 \377~");
        assert_eq!(BytesForm::Hex.text(b"a\n"), r"\x610a");
    }

    #[test]
    fn dates_without_a_year_at_first_hang_on_the_order() {
        for sql in ["d > '1/2/2026'", "date ' 01-02-03'", "SELECT 'a', '2.1.2026'", "'99 08 01'"] {
            assert!(hangs_on_order(sql), "{sql}");
        }
        for sql in ["d > '2026-01-02'", "nextval('t_1-2')", "a - 1", "'20260102'", "''", "'1 Jan 2026'"] {
            assert!(!hangs_on_order(sql), "{sql}");
        }
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn a_date_style_keeps_what_it_does_not_say() {
        let of = |text: &str, before: &str| {
            let before = date_style(before, Forms::default()).unwrap();
            date_style(text, before).map(date_style_text)
        };
        assert_eq!(of("DMY", "SQL, MDY"), Some("SQL, DMY"));
        assert_eq!(of("sql", "ISO, YMD"), Some("SQL, YMD"));
        assert_eq!(of("German", "ISO, MDY"), Some("German, DMY"));
        assert_eq!(of("US, \"ISO\"", "German"), Some("ISO, MDY"));
        assert_eq!(of("European,Postgres", "ISO"), Some("Postgres, DMY"));
        assert_eq!(of("default", "German"), Some("ISO, MDY"));
        for none in ["", "ISO, SQL", "DMY, MDY", "ISO MDY", "de"] {
            assert_eq!(of(none, "ISO"), None, "{none}");
        }
    }
}
