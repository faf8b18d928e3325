//! Which hour is a file of?
//!
//! What its path says where the table tells how to read it (`hour_from`), else the hour of its earliest row, else of
//! its last modification. The hour groups what is kept of blocks; it prunes nothing, so a row that came late is found
//! under the hour of its folder.

use chrono::NaiveDate;

use tarn_types::{Value, is_infinite_day, is_infinite_us};

use crate::names::MS_PER_HOUR;

const US_PER_HOUR: i64 = MS_PER_HOUR * 1000;

/// `dt=…/hr=…`: the parts of a path that together say the hour.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HourFrom {
    keys: Vec<String>,
}

impl HourFrom {
    /// `None` unless every part begins with a name and `=`; what follows is only for people.
    pub fn parse(text: &str) -> Option<Self> {
        let key = |part: &str| part.split_once('=').map(|(key, _)| key.trim().to_owned()).filter(|key| !key.is_empty());
        let keys: Option<Vec<_>> = text.split('/').map(str::trim).filter(|part| !part.is_empty()).map(key).collect();
        keys.filter(|keys| !keys.is_empty()).map(|keys| Self { keys })
    }

    /// Hours since the Unix epoch. The values of the keys, in the order of the keys, are read as year, month, day and
    /// hour, with anything between them: `dt=2026-03-01/hr=07`, `day=20260301/hour=7`, `hr=2026-03-01-07`,
    /// `y=2026/m=3/d=1`.
    pub fn hour(&self, path: &str) -> Option<i64> {
        let mut numbers = Vec::new();
        for key in &self.keys {
            let value = path.split('/').find_map(|part| part.split_once('=').filter(|(of, _)| of == key))?.1;
            let value = unescape(value);
            for digits in value.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
                push_numbers(&mut numbers, digits);
            }
        }
        let part = |idx: usize| numbers.get(idx).and_then(|n| u32::try_from(*n).ok());
        let date = NaiveDate::from_ymd_opt(part(0)? as i32, part(1)?, part(2)?)?;
        let hour = i64::from(part(3).unwrap_or(0));
        let days = date.signed_duration_since(NaiveDate::default()).num_days();
        (hour < 24).then_some(days * 24 + hour)
    }
}

/// `20260301` and `2026030107` are several numbers.
fn push_numbers(numbers: &mut Vec<u64>, digits: &str) {
    let widths: &[usize] = match (digits.len(), numbers.len()) {
        (6, 0) => &[4, 2],
        (8, 0) => &[4, 2, 2],
        (10, 0) => &[4, 2, 2, 2],
        _ => &[],
    };
    let mut rest = digits;
    for width in widths {
        let (head, tail) = rest.split_at(*width);
        numbers.extend(head.parse::<u64>());
        rest = tail;
    }
    if !rest.is_empty() {
        numbers.push(rest.parse().unwrap_or(u64::MAX));
    }
}

/// `2026-03-01%2007%3A00` as Hive writes it.
fn unescape(value: &str) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Of the earliest time in a file. `None`: it is no time, or `-infinity`.
pub(crate) fn hour_of(time: &Value) -> Option<i64> {
    match time {
        Value::Timestamp(micros) if is_infinite_us(*micros) => None,
        Value::Date(days) if is_infinite_day(*days) => None,
        Value::Timestamp(micros) => Some(micros.div_euclid(US_PER_HOUR)),
        Value::Date(days) => Some(i64::from(*days) * 24),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_the_hour_in_many_ways() {
        let cases = [
            ("dt=…/hr=…", "a/dt=2023-08-14/hr=08/x.parquet", Some(470_000)),
            ("dt=/hr=", "hr=8/dt=20230814/x.parquet", Some(470_000)),
            ("hr=…", "events-1/hr=2023-08-14-08/1.parquet", Some(470_000)),
            ("h=", "h=2023081408/x.parquet", Some(470_000)),
            ("year=/month=/day=/hour=", "year=2023/month=8/day=14/hour=8/x.parquet", Some(470_000)),
            ("ts=", "ts=2023-08-14%2008%3A00%3A00/x.parquet", Some(470_000)),
            ("dt=", "dt=2023-08-14/x.parquet", Some(469_992)),
            ("m=/d=", "m=202308/d=14/x.parquet", Some(469_992)),
            ("dt=", "dt=1969-12-31/x.parquet", Some(-24)),
            ("dt=/hr=", "dt=2023-08-14/x.parquet", None),
            ("dt=/hr=", "dt=2023-08-14/hr=24/x.parquet", None),
            ("dt=", "dt=__HIVE_DEFAULT_PARTITION__/x.parquet", None),
            ("dt=", "dt=2023-02-30/x.parquet", None),
            ("dt=", "dt=99999999999999999999999/x.parquet", None),
            ("dt=", "dt=%/dt=%2/x%zz", None),
        ];
        for (pattern, path, want) in cases {
            assert_eq!(HourFrom::parse(pattern).unwrap().hour(path), want, "{pattern} {path}");
        }
        for bad in ["", "/", "dt", "dt=/hr", "=x"] {
            assert_eq!(HourFrom::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_before_1970_are_in_the_hour_that_began_before_them() {
        assert_eq!(hour_of(&Value::Timestamp(-1)), Some(-1));
        assert_eq!(hour_of(&Value::Timestamp(US_PER_HOUR)), Some(1));
        assert_eq!(hour_of(&Value::Date(2)), Some(48));
        assert_eq!(hour_of(&Value::Int64(2)), None);
        assert_eq!([hour_of(&Value::Timestamp(i64::MIN)), hour_of(&Value::Date(i32::MIN))], [None, None]);
    }
}
