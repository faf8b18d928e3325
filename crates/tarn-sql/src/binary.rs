//! How are values read in Postgres' binary formats? Those of parameters, of elements of arrays and of fields of COPY,
//! which are the same bytes: what PostgreSQL 16's `…send` functions write.
//!
//! Numbers are big-endian. Nothing here allocates but the texts of errors, and of numbers that are wanted as texts. An
//! error says what is wrong with the bytes; whose they are, and the SQLSTATE (22P03), the caller knows.

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use tarn_types::{Inet, Span, is_infinite_day, is_infinite_us};
use uuid::Uuid;

/// Days and microseconds from 1970 to Postgres' epoch, 2000-01-01.
pub const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// Days since 2000 that Postgres takes for a date: from 4714-11-24 BC to the year 5874897.
const DATES: std::ops::Range<i32> = -2_451_545..2_145_031_949;

/// Microseconds of a day. Postgres also has 24:00, which is no time of day here.
const TIMES: std::ops::Range<i64> = 0..86_400_000_000;

/// 4714-11-24 BC, in microseconds since 2000; the end is that of the numbers.
const FIRST_TIMESTAMP: i64 = -211_813_488_000_000_000;

/// Powers of 10,000 and digits behind the point that a number may have here.
const MOST_GROUPS: i32 = 2_000;
const MOST_SCALE: u16 = 2_000;

/// As PostgreSQL numbers families of addresses.
const INET_V4: u8 = 2;
const INET_V6: u8 = 3;

/// The error is what the value's client is told.
pub type Result<T, E = String> = std::result::Result<T, E>;

/// The bytes of a type whose values have all the same length.
pub fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| format!("{} bytes, want {N}", bytes.len()))
}

/// One byte; anything but 0 is true.
pub fn boolean(bytes: &[u8]) -> Result<bool> {
    Ok(fixed::<1>(bytes)?[0] != 0)
}

/// Days since 1970-01-01. What is infinite is the same number of either epoch.
pub fn date(bytes: &[u8]) -> Result<i32> {
    let days = i32::from_be_bytes(fixed(bytes)?);
    if is_infinite_day(days) {
        return Ok(days);
    }
    let days = Some(days).filter(|days| DATES.contains(days));
    Ok(days.and_then(|days| days.checked_add(EPOCH_DAYS)).ok_or("date out of range")?)
}

/// Days since 2000-01-01, of days since 1970-01-01.
pub fn date_of(days: i32) -> i32 {
    if is_infinite_day(days) { days } else { days.saturating_sub(EPOCH_DAYS) }
}

/// Microseconds since midnight.
pub fn time(bytes: &[u8]) -> Result<i64> {
    let micros = Some(i64::from_be_bytes(fixed(bytes)?)).filter(|micros| TIMES.contains(micros));
    Ok(micros.ok_or("time out of range")?)
}

/// Microseconds since 1970-01-01, with a time zone (then in UTC) or without.
pub fn timestamp(bytes: &[u8]) -> Result<i64> {
    let micros = i64::from_be_bytes(fixed(bytes)?);
    if is_infinite_us(micros) {
        return Ok(micros);
    }
    let micros = Some(micros).filter(|micros| *micros >= FIRST_TIMESTAMP);
    let micros = micros.and_then(|micros| micros.checked_add(EPOCH_MICROS)).filter(|micros| !is_infinite_us(*micros));
    Ok(micros.ok_or("timestamp out of range")?)
}

/// Microseconds since 2000-01-01, of microseconds since 1970-01-01.
pub fn timestamp_of(micros: i64) -> i64 {
    if is_infinite_us(micros) { micros } else { micros.saturating_sub(EPOCH_MICROS) }
}

/// Microseconds, days and months.
pub fn interval(bytes: &[u8]) -> Result<Span> {
    let [us @ .., a, b, c, d, e, f, g, h] = fixed::<16>(bytes)?;
    let (days, months) = (i32::from_be_bytes([a, b, c, d]), i32::from_be_bytes([e, f, g, h]));
    Ok(Span { months, days, us: i64::from_be_bytes(us) })
}

/// An address: its family, the bits of its mask, whether it is a network's, which says nothing here, how many bytes it
/// has, and these.
pub fn inet(bytes: &[u8]) -> Result<Inet> {
    let [family, mask_bits, _, n_bytes, address @ ..] = bytes else {
        return Err(format!("{} bytes are no inet", bytes.len()));
    };
    let address = match (*family, *n_bytes) {
        (INET_V4, 4) => IpAddr::from(fixed::<4>(address)?),
        (INET_V6, 16) => IpAddr::from(fixed::<16>(address)?),
        (INET_V4 | INET_V6, n_bytes) => return Err(format!("invalid length {n_bytes} in inet value")),
        (family, _) => return Err(format!("invalid address family {family} in inet value")),
    };
    Inet::new(address, *mask_bits).ok_or_else(|| format!("invalid bits {mask_bits} in inet value"))
}

/// As [`inet`] reads it.
pub fn put_inet(out: &mut BytesMut, of: &Inet) {
    let (family, n_bytes) = if of.is_v4() { (INET_V4, 4) } else { (INET_V6, 16) };
    out.put_slice(&[family, of.mask_bits(), 0, n_bytes]);
    match of.address() {
        IpAddr::V4(address) => out.put_slice(&address.octets()),
        IpAddr::V6(address) => out.put_slice(&address.octets()),
    }
}

/// Sixteen bytes.
pub fn uuid(bytes: &[u8]) -> Result<Uuid> {
    Ok(Uuid::from_bytes(fixed(bytes)?))
}

/// The text of a `jsonb`, which its version precedes.
pub fn jsonb(bytes: &[u8]) -> Result<&[u8]> {
    match bytes.split_first() {
        Some((1, json)) => Ok(json),
        _ => Err("unknown jsonb version".to_owned()),
    }
}

/// A number: groups of four decimal digits, the first of which counts `10_000 ^ weight`.
pub struct Numeric<'a> {
    is_negative: bool,
    weight: i32,
    /// Digits behind the point; those of the groups that are behind them do not count.
    scale: u16,
    groups: &'a [[u8; 2]],
}

impl<'a> Numeric<'a> {
    /// Checks the whole, so that reading it cannot fail but for its range.
    pub fn new(bytes: &'a [u8]) -> Result<Numeric<'a>> {
        let (words, odd) = bytes.as_chunks::<2>();
        let ([n_groups, weight, sign, scale, groups @ ..], []) = (words, odd) else {
            return Err("numeric is cut off".to_owned());
        };
        let [n_groups, sign, scale] = [n_groups, sign, scale].map(|word| u16::from_be_bytes(*word));
        let weight = i32::from(i16::from_be_bytes(*weight));
        match sign {
            0 | 0x4000 => {}
            0xC000 => return Err("NaN has no place in a decimal column".to_owned()),
            _ => return Err("infinity has no place in a decimal column".to_owned()),
        }
        if !(-MOST_GROUPS..=MOST_GROUPS).contains(&weight) || scale > MOST_SCALE {
            return Err("numeric has too many digits".to_owned());
        }
        if groups.len() != usize::from(n_groups) {
            return Err("numeric is cut off".to_owned());
        }
        if let Some(group) = groups.iter().map(|group| u16::from_be_bytes(*group)).find(|group| *group > 9_999) {
            return Err(format!("numeric has the group {group}, which is not of four digits"));
        }
        Ok(Numeric { is_negative: sign == 0x4000, weight, scale, groups })
    }

    /// In units of `10 ^ -scale`, rounded half away from zero; `None` if it has more than `precision` digits then.
    pub fn unscaled(&self, precision: u8, scale: i8) -> Option<i128> {
        let mut unscaled: i128 = 0;
        let mut is_up = false;
        // The power of ten of the last digit of a group: in the number that is wanted, and in the one that was sent.
        let mut place = self.weight * 4 + i32::from(scale);
        let mut sent_place = self.weight * 4 + i32::from(self.scale);
        for group in self.groups {
            if place < -4 || sent_place <= -4 {
                break;
            }
            let mut group = i128::from(u16::from_be_bytes(*group));
            if sent_place < 0 {
                group -= group % 10_i128.pow(sent_place.unsigned_abs());
            }
            if place >= 0 {
                unscaled = unscaled.checked_mul(10_000)?.checked_add(group)?;
            } else if place >= -4 {
                let unit = 10_i128.pow(place.unsigned_abs());
                unscaled = unscaled.checked_mul(10_000 / unit)?.checked_add(group / unit)?;
                is_up = group % unit * 2 >= unit;
            }
            (place, sent_place) = (place - 4, sent_place - 4);
        }
        // It is now that of a group behind the last: what is missing down to the units are zeros.
        let n_zeros = u32::try_from(place + 4).unwrap_or(0);
        if unscaled != 0 && n_zeros > 0 {
            unscaled = unscaled.checked_mul(10_i128.checked_pow(n_zeros)?)?;
        }
        unscaled += i128::from(is_up);
        let fits = 10_i128.checked_pow(precision.into()).is_none_or(|limit| unscaled < limit);
        fits.then_some(if self.is_negative { -unscaled } else { unscaled })
    }

    /// All its digits, as text.
    pub fn text(&self) -> String {
        let group = |place: i32| {
            let idx = usize::try_from(self.weight - place).unwrap_or(usize::MAX);
            self.groups.get(idx).map_or(0, |group| u16::from_be_bytes(*group))
        };
        let mut out = String::new();
        if self.is_negative {
            out.push('-');
        }
        if self.weight < 0 {
            out.push('0');
        }
        for place in (0..=self.weight).rev() {
            let digits = group(place);
            out.push_str(&if place == self.weight { digits.to_string() } else { format!("{digits:04}") });
        }
        if self.scale > 0 {
            let scale = usize::from(self.scale);
            let n_groups = scale.div_ceil(4) as i32;
            let fraction: String = (1..=n_groups).map(|below| format!("{:04}", group(-below))).collect();
            out.push('.');
            out.push_str(&fraction[..scale]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(weight: i16, sign: u16, scale: u16, groups: &[u16]) -> Vec<u8> {
        let head = [groups.len() as u16, weight as u16, sign, scale];
        head.iter().chain(groups).flat_map(|word| word.to_be_bytes()).collect()
    }

    /// What PostgreSQL 15 sends, and what it refuses.
    #[test]
    fn addresses_have_their_family_and_mask() {
        for (text, bytes) in [
            ("10.1.2.3/8", &[2, 8, 0, 4, 10, 1, 2, 3][..]),
            ("::1", &[3, 128, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ] {
            let of: Inet = text.parse().unwrap();
            let mut sent = BytesMut::new();
            put_inet(&mut sent, &of);
            assert_eq!((&sent[..], inet(bytes)), (bytes, Ok(of)));
        }
        for wrong in
            [&[2, 8, 0, 4, 10, 1, 2][..], &[2, 33, 0, 4, 10, 1, 2, 3], &[4, 8, 0, 4, 10, 1, 2, 3], &[2, 8, 0, 16], &[2]]
        {
            assert!(inet(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_are_rounded_half_away_from_zero() {
        let cases: [(Vec<u8>, &str, i8, Option<i128>); 14] = [
            (numeric(1, 0, 3, &[1, 2345, 6780]), "12345.678", 3, Some(12_345_678)),
            (numeric(1, 0, 3, &[1, 2345, 6780]), "12345.678", 2, Some(1_234_568)),
            (numeric(1, 0x4000, 3, &[1, 2345, 6780]), "-12345.678", 0, Some(-12_346)),
            (numeric(1, 0, 3, &[1, 2345, 6780]), "12345.678", 8, Some(1_234_567_800_000)),
            (numeric(-1, 0x4000, 4, &[1]), "-0.0001", 4, Some(-1)),
            (numeric(-1, 0, 4, &[5000]), "0.5000", 0, Some(1)),
            (numeric(-1, 0, 4, &[4999]), "0.4999", 0, Some(0)),
            (numeric(-2, 0, 8, &[9999]), "0.00009999", 0, Some(0)),
            (numeric(-2, 0, 8, &[9999]), "0.00009999", 4, Some(1)),
            (numeric(0, 0, 0, &[]), "0", 2, Some(0)),
            (numeric(2, 0, 0, &[7]), "700000000", 1, Some(7_000_000_000)),
            // What the scale cuts off does not count, as in PostgreSQL.
            (numeric(0, 0, 1, &[1, 5900]), "1.5", 2, Some(150)),
            (numeric(9, 0, 0, &[1]), "1000000000000000000000000000000000000", 2, None),
            (numeric(-500, 0, 0, &[1]), "0", 2, Some(0)),
        ];
        for (bytes, text, scale, unscaled) in cases {
            let numeric = Numeric::new(&bytes).unwrap();
            assert_eq!(numeric.text(), text);
            assert_eq!(numeric.unscaled(38, scale), unscaled, "{text} at scale {scale}");
        }
        let full = numeric(0, 0, 2, &[99, 9900]);
        assert_eq!(Numeric::new(&full).unwrap().unscaled(4, 2), Some(9_999));
        assert_eq!(Numeric::new(&full).unwrap().unscaled(3, 1), None, "100.0 has four digits");
    }

    #[test]
    fn what_is_infinite_is_so_since_any_epoch() {
        for days in [i32::MIN, i32::MAX] {
            assert_eq!([date(&days.to_be_bytes()), Ok(date_of(days))], [Ok(days), Ok(days)]);
        }
        for us in [i64::MIN, i64::MAX] {
            assert_eq!([timestamp(&us.to_be_bytes()), Ok(timestamp_of(us))], [Ok(us), Ok(us)]);
        }
        assert_eq!(timestamp(&(i64::MAX - EPOCH_MICROS).to_be_bytes()), Err("timestamp out of range".to_owned()));
        assert_eq!(date(&date_of(-10_957).to_be_bytes()), Ok(-10_957));
    }

    #[test]
    fn damaged_numbers_are_refused() {
        let nan = numeric(0, 0xC000, 0, &[]);
        let infinite = numeric(0, 0xD000, 0, &[]);
        let group = numeric(0, 0, 0, &[10_000]);
        let mut longer = numeric(0, 0, 0, &[1]);
        longer.extend([0, 1]);
        let weight = numeric(2_001, 0, 0, &[1]);
        for bytes in [&nan, &infinite, &group, &longer, &weight, &nan[..7].to_vec(), &Vec::new()] {
            assert!(Numeric::new(bytes).is_err(), "{bytes:?}");
        }
    }
}
