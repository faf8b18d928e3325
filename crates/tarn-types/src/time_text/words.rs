//! What does a word in a date mean? Months, days of the week, zones by their abbreviations, and words that stand for a time.
//!
//! Abbreviations are those of PostgreSQL's default set that have one offset. Those that meant several in the course of time (`MSK`) are
//! not read: a zone's name says which.

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
    Unit(Unit),
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
pub(super) enum Unit {
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
        "y" => Word::Unit(Unit::Year),
        "m" => Word::Unit(Unit::Month),
        "d" => Word::Unit(Unit::Day),
        "h" => Word::Unit(Unit::Hour),
        "mm" => Word::Unit(Unit::Minute),
        "s" => Word::Unit(Unit::Second),
        "j" | "jd" | "julian" => Word::Unit(Unit::Julian),
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

/// Seconds east of Greenwich.
pub(super) fn zone(word: &str) -> Option<i64> {
    let word = word.get(..MAX_WORD).unwrap_or(word);
    ZONES.binary_search_by(|(name, _)| (*name).cmp(word)).ok().map(|idx| i64::from(ZONES[idx].1) * 60)
}

/// Abbreviations in order, and minutes east of Greenwich.
#[rustfmt::skip]
const ZONES: &[(&str, i16)] = &[
    ("acdt", 630), ("acsst", 630), ("acst", 570), ("act", -300), ("acwst", 525), ("adt", -180), ("aedt", 660),
    ("aesst", 660), ("aest", 600), ("aft", 270), ("akdt", -480), ("akst", -540), ("almst", 420), ("almt", 360),
    ("amt", -240), ("ast", -240), ("awsst", 540), ("awst", 480), ("azost", 0), ("azot", -60), ("bdst", 120), ("bdt",
    360), ("bnt", 480), ("bort", 480), ("bot", -240), ("bra", -180), ("brst", -120), ("brt", -180), ("bst", 60),
    ("btt", 360), ("cadt", 630), ("cast", 570), ("cct", 480), ("cdt", -300), ("cest", 120), ("cet", 60), ("cetdst",
    120), ("chadt", 825), ("chast", 765), ("chut", 600), ("clst", -180), ("cot", -300), ("cst", -360), ("cxt", 420),
    ("ddut", 600), ("eat", 180), ("edt", -240), ("eest", 180), ("eet", 120), ("eetdst", 180), ("egst", 0), ("egt",
    -60), ("est", -300), ("fet", 180), ("fjst", 780), ("fjt", 720), ("fnst", -60), ("fnt", -120), ("galt", -360),
    ("gamt", -540), ("gft", -180), ("gilt", 720), ("gmt", 0), ("hkt", 480), ("hst", -600), ("ict", 420), ("idt", 180),
    ("irt", 210), ("ist", 120), ("jayt", 540), ("jst", 540), ("kdt", 600), ("kgst", 360), ("kst", 540), ("lhst", 630),
    ("ligt", 600), ("mart", -570), ("mdt", -360), ("mest", 120), ("mesz", 120), ("met", 60), ("metdst", 120), ("mez",
    60), ("mht", 720), ("mmt", 390), ("mpt", 600), ("msd", 240), ("mst", -420), ("must", 300), ("mut", 240), ("mvt",
    300), ("myt", 480), ("ndt", -150), ("nft", -210), ("npt", 345), ("nst", -210), ("nzdt", 780), ("nzst", 720),
    ("nzt", 720), ("pdt", -420), ("pet", -300), ("pgt", 600), ("pht", 480), ("pkst", 360), ("pkt", 300), ("pmdt",
    -120), ("pmst", -180), ("pont", 660), ("pst", -480), ("pwt", 540), ("pyst", -180), ("ret", 240), ("sadt", 630),
    ("sast", 120), ("sct", 240), ("taht", -600), ("tft", 300), ("tjt", 300), ("tot", 780), ("trut", 600), ("tvt",
    720), ("uct", 0), ("ulast", 540), ("ut", 0), ("utc", 0), ("uyst", -120), ("uyt", -180), ("uzst", 360), ("uzt",
    300), ("vut", 660), ("wadt", 480), ("wakt", 720), ("wast", 420), ("wat", 60), ("wdt", 540), ("wet", 0), ("wetdst",
    60), ("wft", 720), ("wgst", -120), ("wgt", -180), ("xjt", 360), ("yapt", 600), ("yekst", 360), ("z", 0), ("zulu",
    0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found() {
        assert!(ZONES.is_sorted());
        assert_eq!((zone("pst"), zone("utc"), zone("msk")), (Some(-8 * 3600), Some(0), None));
    }
}
