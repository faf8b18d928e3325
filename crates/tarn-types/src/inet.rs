//! What is `10.1.2.3/8`? An address of a host and how many bits of it name its network: PostgreSQL's `inet`.
//!
//! ```text
//! family u8: 4 or 6 | network: the address without the bits behind the mask | bits of the mask u8 | address
//! ```
//!
//! The order of these bytes is PostgreSQL's: families, networks, of one network the wider mask, then addresses. So are
//! they compared, sorted and grouped wherever they lie: 10 bytes of a family of four, 34 of one of sixteen.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// The most bytes of one in a row.
pub const MAX_INET_BYTES: usize = 34;

/// A host's address, and how many of its leading bits are its network's. Ordered as PostgreSQL orders them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inet {
    address: IpAddr,
    /// Invariant: at most as many as the address has.
    mask_bits: u8,
}

/// A text that is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoInet;

impl Inet {
    /// `None`: the address has not so many bits.
    #[must_use]
    pub fn new(address: IpAddr, mask_bits: u8) -> Option<Self> {
        (mask_bits <= width(&address)).then_some(Self { address, mask_bits })
    }

    /// Of one host: all bits are its network's.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, mask_bits: width(&address) }
    }

    /// The address, with the bits of its host.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits are the network's: up to 32 of IPv4, up to 128 of IPv6.
    #[must_use]
    pub fn mask_bits(&self) -> u8 {
        self.mask_bits
    }

    /// How many bits an address of this family has: 32 or 128.
    #[must_use]
    pub fn width(&self) -> u8 {
        width(&self.address)
    }

    /// Is the address of IPv4?
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The address as a number: the first byte is the highest.
    #[must_use]
    pub fn number(&self) -> u128 {
        match self.address {
            IpAddr::V4(of) => u128::from(of.to_bits()),
            IpAddr::V6(of) => of.to_bits(),
        }
    }

    /// Another address of the same family, under the same mask. `None`: the family has no such number.
    #[must_use]
    pub fn with_number(&self, number: u128) -> Option<Self> {
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).ok()?)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(number)),
        };
        Some(Self { address, ..*self })
    }

    /// The bits of the host, set: `0.0.0.255` of a mask of 24.
    #[must_use]
    pub fn host_mask(&self) -> u128 {
        match u32::from(self.width() - self.mask_bits) {
            128 => u128::MAX,
            bits => (1 << bits) - 1,
        }
    }

    /// The number of the network: the address without the bits of its host.
    #[must_use]
    pub fn network(&self) -> u128 {
        self.number() & !self.host_mask()
    }

    /// Is every address of the other's network one of this? Of another family, none is.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.is_v4() == other.is_v4()
            && self.mask_bits <= other.mask_bits
            && self.network() == other.number() & !self.host_mask()
    }

    /// The bytes of a row, as the module says.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_INET_BYTES);
        match self.address {
            IpAddr::V4(address) => {
                out.push(4);
                // No more than the address has.
                out.extend_from_slice(&(self.network() as u32).to_be_bytes());
                out.push(self.mask_bits);
                out.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.push(6);
                out.extend_from_slice(&self.network().to_be_bytes());
                out.push(self.mask_bits);
                out.extend_from_slice(&address.octets());
            }
        }
        out
    }

    /// From the bytes of a row. `None`: they are no such.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (network, address, mask_bits) = match bytes {
            [4, rest @ ..] if rest.len() == 9 => {
                let part = |at: usize| rest[at..at + 4].try_into().map(u32::from_be_bytes).ok();
                (u128::from(part(0)?), IpAddr::V4(Ipv4Addr::from_bits(part(5)?)), rest[4])
            }
            [6, rest @ ..] if rest.len() == 33 => {
                let part = |at: usize| rest[at..at + 16].try_into().map(u128::from_be_bytes).ok();
                (part(0)?, IpAddr::V6(Ipv6Addr::from_bits(part(17)?)), rest[16])
            }
            _ => return None,
        };
        // One value has one form, else equal ones were not equal.
        Self::new(address, mask_bits).filter(|of| of.network() == network)
    }

    /// As [`Inet::from_bytes`].
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn of_row(bytes: &[u8]) -> Result<Self> {
        Self::from_bytes(bytes).ok_or_else(|| Error::corrupt("inet", format!("{} bytes are no address", bytes.len())))
    }

    /// The address alone, as PostgreSQL's `host()` writes it.
    #[must_use]
    pub fn host_text(&self) -> String {
        match self.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => v6_text(address),
        }
    }

    /// With the bits of its mask, also where these are all: what it is when it is cast to a text.
    #[must_use]
    pub fn full_text(&self) -> String {
        format!("{}/{}", self.host_text(), self.mask_bits)
    }
}

impl PartialOrd for Inet {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// As their bytes are.
impl Ord for Inet {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |of: &Self| (!of.is_v4(), of.network(), of.mask_bits, of.number());
        key(self).cmp(&key(other))
    }
}

/// As PostgreSQL shows it to clients: with the bits of its mask where it is no host's.
impl fmt::Display for Inet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mask_bits == self.width() {
            true => f.write_str(&self.host_text()),
            false => f.write_str(&self.full_text()),
        }
    }
}

/// Every text that PostgreSQL reads as an `inet`, and no other: `10.1/16` is one, `10.1` and ` ::1` are none.
impl FromStr for Inet {
    type Err = NoInet;

    fn from_str(text: &str) -> std::result::Result<Self, NoInet> {
        match text.contains(':') {
            true => v6(text),
            false => v4(text),
        }
        .ok_or(NoInet)
    }
}

impl Serialize for Inet {
    fn serialize<S: Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Inet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(|_| serde::de::Error::custom("not an address"))
    }
}

fn width(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The longest run of two zero groups and more is `::`, the first of equal ones; behind six, and behind `::ffff`, the
/// rest is written as IPv4. Source: PostgreSQL 15, `pg_inet_net_ntop`.
fn v6_text(address: Ipv6Addr) -> String {
    let groups = address.segments();
    let (mut run, mut at) = (0..0, 0);
    while at < groups.len() {
        let zeros = groups[at..].iter().take_while(|group| **group == 0).count();
        if zeros > run.len().max(1) {
            run = at..at + zeros;
        }
        at += zeros.max(1);
    }
    let hex = |groups: &[u16]| groups.iter().map(|group| format!("{group:x}")).collect::<Vec<_>>().join(":");
    if run.is_empty() {
        return hex(&groups);
    }
    let is_v4 = run.start == 0 && (run.len() == 6 || run.len() == 5 && groups[5] == 0xffff);
    if is_v4 {
        let [.., a, b, c, d] = address.octets();
        let before = if run.len() == 6 { "::" } else { "::ffff:" };
        return format!("{before}{}", Ipv4Addr::new(a, b, c, d));
    }
    format!("{}::{}", hex(&groups[..run.start]), hex(&groups[run.end..]))
}

/// A number of decimal digits, at most so much, and what stands behind it. Without leading zeros, if so asked.
fn number(text: &[u8], most: u32, zeros: bool) -> Option<(u8, &[u8])> {
    let n_digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(n_digits);
    if digits.is_empty() || !zeros && digits.len() > 1 && digits[0] == b'0' {
        return None;
    }
    let value = digits
        .iter()
        .try_fold(0, |value: u32, digit| Some(value * 10 + u32::from(digit - b'0')).filter(|value| *value <= most))?;
    Some((u8::try_from(value).ok()?, rest))
}

/// `10.1.2.3`, `10.1/16`, whose other bytes are zero. Source: PostgreSQL 15, `inet_net_pton_ipv4`.
fn v4(text: &str) -> Option<Inet> {
    let mut rest = text.as_bytes();
    let (mut octets, mut n) = ([0_u8; 4], 0);
    while rest.first().is_some_and(u8::is_ascii_digit) {
        let (octet, behind) = number(rest, 255, true)?;
        *octets.get_mut(n)? = octet;
        n += 1;
        rest = behind;
        match rest {
            [] | [b'/', ..] => break,
            [b'.', behind @ ..] => rest = behind,
            _ => return None,
        }
    }
    let mask_bits = match rest {
        [] if n == 4 => 32,
        [b'/', behind @ ..] if n > 0 => match number(behind, 32, true)? {
            (bits, []) => bits,
            _ => return None,
        },
        _ => return None,
    };
    // A mask is of bytes that are written.
    if usize::from(mask_bits / 8) > n {
        return None;
    }
    Inet::new(IpAddr::from(octets), mask_bits)
}

/// `::1`, `fe80::/10`, `::ffff:1.2.3.4/120`. What is read more than a standard has is what PostgreSQL 15 reads,
/// `inet_cidr_pton_ipv6`: bytes that are left out of an IPv4 at the end, and a colon before a mask.
fn v6(text: &str) -> Option<Inet> {
    let (address, mask) = match text.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (text, None),
    };
    let mask_bits = match mask {
        None => 128,
        Some(mask) => match number(mask.as_bytes(), 128, false)? {
            (bits, []) => bits,
            _ => return None,
        },
    };
    let (groups, last) = address.split_at(address.rfind(':')? + 1);
    let address = if last.contains('.') {
        format!("{groups}{}", v4_behind_groups(last, mask.is_some())?)
    } else if mask.is_some() && last.is_empty() && !groups.ends_with("::") && !groups.contains('.') {
        groups[..groups.len() - 1].to_owned()
    } else {
        address.to_owned()
    };
    Inet::new(IpAddr::V6(address.parse().ok()?), mask_bits)
}

/// A byte that is left out is zero, but for the last one where nothing stands behind it.
fn v4_behind_groups(text: &str, is_masked: bool) -> Option<Ipv4Addr> {
    let (mut octets, mut places) = ([0; 4], 0..4);
    if text.ends_with('.') && !is_masked {
        return None;
    }
    for part in text.split('.') {
        let place = places.next()?;
        octets[place] = match part {
            "" => 0,
            digits => match number(digits.as_bytes(), 255, false)? {
                (octet, []) => octet,
                _ => return None,
            },
        };
    }
    Some(Ipv4Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;
    use crate::test_data::inet;

    /// PostgreSQL's `network_cmp_internal`, bit by bit.
    fn network_cmp(a: &Inet, b: &Inet) -> Ordering {
        let bits = |of: &Inet, n: u8| {
            let all: Vec<bool> = (0..of.width()).map(|at| of.number() >> (of.width() - 1 - at) & 1 == 1).collect();
            all[..usize::from(n)].to_vec()
        };
        if a.is_v4() != b.is_v4() {
            return if a.is_v4() { Ordering::Less } else { Ordering::Greater };
        }
        let common = a.mask_bits.min(b.mask_bits);
        let network = bits(a, common).cmp(&bits(b, common));
        network.then(a.mask_bits.cmp(&b.mask_bits)).then_with(|| bits(a, a.width()).cmp(&bits(b, b.width())))
    }

    /// What PostgreSQL 15 says: the text that it shows, or that it reads none.
    #[test]
    fn texts_are_read_as_postgres_reads_them() {
        for (text, shown) in [
            ("10.1/16", "10.1.0.0/16"),
            ("10/9", "10.0.0.0/9"),
            ("10.1/23", "10.1.0.0/23"),
            ("010.001.02.3", "10.1.2.3"),
            ("10.1.2.3.", "10.1.2.3"),
            ("10.1./16", "10.1.0.0/16"),
            ("10.1.2.3/08", "10.1.2.3/8"),
            ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
            ("::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"),
            ("FE80::A/10", "fe80::a/10"),
            ("::1.2.3.4", "::1.2.3.4"),
            ("::1.2.3", "::1.2.3.0"),
            ("1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
            ("::fffe:1.2.3.4", "::fffe:102:304"),
            ("::1:0", "::0.1.0.0"),
            ("0:0:0:0:0:0:0:1", "::1"),
            ("1:0:0:2:0:0:0:3", "1:0:0:2::3"),
            ("1:0:0:0:2:0:0:0", "1::2:0:0:0"),
            ("1:0:0:2:0:0:3:4", "1::2:0:0:3:4"),
            ("::ffff:0:1/96", "::ffff:0.0.0.1/96"),
            ("0::0.0.0.0", "::"),
            ("::/0", "::/0"),
            ("::1:/64", "::1/64"),
        ] {
            assert_eq!(text.parse::<Inet>().map(|of| of.to_string()), Ok(shown.to_owned()), "{text}");
        }
        for text in [
            "10.1",
            "10/16",
            "10.1/24",
            "10.1.2.",
            "10.1.2.3/033",
            "10.1.2.3/33",
            "1.2.3.4/",
            " 1.2.3.4",
            "",
            "/8",
            "256.1.1.1",
            "1..2/8",
            ".1.2.3.4",
            "1.2.3.4.5",
            ":1",
            "1:",
            "1::2::3",
            "1:2:3:4:5:6:7:8::",
            "::/08",
            "::/129",
            "12345::",
            "::01.2.3.4",
            "1:2:3:4:5:6:7:1.2.3.4",
            "::1.2.3.",
            "fe80::1%eth0",
            "::1/64/3",
            "0::1.2.3.4:/0",
        ] {
            assert_eq!(text.parse::<Inet>(), Err(NoInet), "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_are_in_the_order_of_postgres(a in inet(), b in inet()) {
            let want = network_cmp(&a, &b);
            prop_assert_eq!(a.to_bytes().cmp(&b.to_bytes()), want, "{} and {}", a, b);
            prop_assert_eq!(a.cmp(&b), want, "{} and {}", a, b);
        }

        #[test]
        fn what_is_written_is_read(of in inet()) {
            prop_assert_eq!(of.to_string().parse(), Ok(of));
            prop_assert_eq!(of.full_text().parse(), Ok(of));
            prop_assert_eq!(Inet::from_bytes(&of.to_bytes()), Some(of));
            prop_assert!(of.contains(&of));
        }

        #[test]
        fn no_bytes_and_no_texts_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            text in ".{0,24}|[0-9a-f:./]{0,24}",
        ) {
            if let Some(of) = Inet::from_bytes(&bytes) {
                prop_assert_eq!(of.to_bytes(), bytes);
            }
            let _ = text.parse::<Inet>();
        }
    }
}
