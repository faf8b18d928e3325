//! What does a word in a date mean? Months, days of the week, and words that stand for a time. Zones are in
//! `zone_abbreviations.rs`.

/// Longer words are compared by their first letters alone.
const MAX_WORD: usize = 10;

/// A word of dates, of a text in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// 1 to 12.
    Month(i64),
    /// A day of the week, which says nothing that the date does not.
    Weekday,
    /// `at`, `on`: says nothing.
    Filler,
    Ante,
    Post,
    BeforeChrist,
    AfterChrist,
    /// What the number behind it counts.
    Unit(IsoUnit),
    /// `t`: a time comes.
    Time,
    /// `dst`: the clocks are an hour ahead of the zone.
    Summer,
    Now,
    Today,
    Tomorrow,
    Yesterday,
    Epoch,
    Midnight,
    Infinity,
}

/// A label of ISO 8601, as in `y2001m02d04`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsoUnit {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Julian,
}

/// What a word means in a date or a time, but for zones.
pub(super) fn of_dates(word: &str) -> Option<Word> {
    Some(match word.get(..MAX_WORD).unwrap_or(word) {
        "jan" | "january" => Word::Month(1),
        "feb" | "february" => Word::Month(2),
        "mar" | "march" => Word::Month(3),
        "apr" | "april" => Word::Month(4),
        "may" => Word::Month(5),
        "jun" | "june" => Word::Month(6),
        "jul" | "july" => Word::Month(7),
        "aug" | "august" => Word::Month(8),
        "sep" | "sept" | "september" => Word::Month(9),
        "oct" | "october" => Word::Month(10),
        "nov" | "november" => Word::Month(11),
        "dec" | "december" => Word::Month(12),
        "sun" | "sunday" | "mon" | "monday" | "tue" | "tues" | "tuesday" | "wed" | "weds" | "wednesday" | "thu"
        | "thur" | "thurs" | "thursday" | "fri" | "friday" | "sat" | "saturday" => Word::Weekday,
        "at" | "on" => Word::Filler,
        "am" => Word::Ante,
        "pm" => Word::Post,
        "bc" => Word::BeforeChrist,
        "ad" => Word::AfterChrist,
        "y" => Word::Unit(IsoUnit::Year),
        "m" => Word::Unit(IsoUnit::Month),
        "d" => Word::Unit(IsoUnit::Day),
        "h" => Word::Unit(IsoUnit::Hour),
        "mm" => Word::Unit(IsoUnit::Minute),
        "s" => Word::Unit(IsoUnit::Second),
        "j" | "jd" | "julian" => Word::Unit(IsoUnit::Julian),
        "t" => Word::Time,
        "dst" => Word::Summer,
        "now" => Word::Now,
        "today" => Word::Today,
        "tomorrow" => Word::Tomorrow,
        "yesterday" => Word::Yesterday,
        "epoch" => Word::Epoch,
        "allballs" => Word::Midnight,
        "infinity" => Word::Infinity,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_by_their_first_letters() {
        assert_eq!(of_dates("september"), Some(Word::Month(9)));
        assert_eq!(of_dates("yesterdays"), None);
    }
}
