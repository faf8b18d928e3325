//! Where in the ring does a partition key lie? Murmur3 x64 128 as Cassandra computes it, over Cassandra's
//! serialization of the key, so that drivers of that ecosystem can route by it.
//!
//! Cassandra's variant differs from the published hash in one point: the tail bytes are sign-extended. The token is
//! the first half of the hash, and `i64::MIN` becomes `i64::MAX`.
//!
//! One column serializes to its bare bytes; several to `[u16 BE length][bytes][0]` each. Integers and floats are big
//! endian, dates are days + 2^31 unsigned, times nanoseconds, timestamps milliseconds (rounded down), decimals an i32
//! scale and the shortest two's complement.

use crate::ids::Token;

/// The token of serialized bytes.
#[must_use]
pub fn murmur3_token(bytes: &[u8]) -> Token {
    let hash = murmur3_h1(bytes);
    Token(if hash == i64::MIN { i64::MAX } else { hash })
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn mix_k1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_k2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn fmix(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

fn murmur3_h1(bytes: &[u8]) -> i64 {
    let (mut h1, mut h2) = (0u64, 0u64);
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let whole = u128::from_le_bytes(*block);
        h1 ^= mix_k1(whole as u64);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix_k2((whole >> 64) as u64);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    if !tail.is_empty() {
        let signed = |byte: u8, i: usize| (i64::from(byte as i8) as u64) << (8 * i);
        let (low, high) = tail.split_at(tail.len().min(8));
        let fold = |half: &[u8]| half.iter().enumerate().fold(0u64, |k, (i, byte)| k ^ signed(*byte, i));
        if !high.is_empty() {
            h2 ^= mix_k2(fold(high));
        }
        h1 ^= mix_k1(fold(low));
    }
    let length = bytes.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    fmix(h1).wrapping_add(fmix(h2)) as i64
}

/// The shortest big-endian two's complement of a number, at least one byte: Java's `BigInteger.toByteArray`.
pub(crate) fn push_big_integer(out: &mut Vec<u8>, n: i128) {
    let bytes = n.to_be_bytes();
    let sign = if n < 0 { 0xff } else { 0 };
    let redundant = (0..15).take_while(|&i| bytes[i] == sign && (bytes[i + 1] ^ sign) < 0x80).count();
    out.extend_from_slice(&bytes[redundant..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the drivers for Python and Java, which were taken from a Cassandra server.
    #[test]
    fn agrees_with_cassandra() {
        assert_eq!(murmur3_token(b"123"), Token(-7_468_325_962_851_647_638));
        assert_eq!(murmur3_token(&b"\x00\xff\x10\xfa\x99".repeat(10)), Token(5_837_342_703_291_459_765));
        assert_eq!(murmur3_token(&[0xfe; 8]), Token(-8_927_430_733_708_461_935));
        assert_eq!(murmur3_token(&[0x10; 8]), Token(1_446_172_840_243_228_796));
        assert_eq!(murmur3_token(b"9223372036854775807"), Token(7_162_290_910_810_015_547));
        assert_eq!(murmur3_token(b""), Token(0));
    }

    #[test]
    fn big_integers_are_shortest() {
        let bytes = |n| {
            let mut out = Vec::new();
            push_big_integer(&mut out, n);
            out
        };
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(127), [0x7f]);
        assert_eq!(bytes(128), [0, 0x80]);
        assert_eq!(bytes(-1), [0xff]);
        assert_eq!(bytes(-128), [0x80]);
        assert_eq!(bytes(-129), [0xff, 0x7f]);
        assert_eq!(bytes(i128::MIN).len(), 16);
    }
}
