//! How is one value kept in a file? Layout: docs/formats/page.md. Everything read back is checked; what fails is a miss.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the key.
pub(crate) const FIXED_BYTES: usize = 40;

/// What stands before the value: the fixed part and the key. `None`: one of them is 4 GiB or longer.
pub(crate) fn header(magic: [u8; 4], key: &[u8], written_ms: i64, value: &[u8]) -> Option<Vec<u8>> {
    let header_len = u32::try_from(FIXED_BYTES + key.len()).ok()?;
    let mut out = Vec::with_capacity(FIXED_BYTES + key.len());
    out.extend(magic);
    out.extend(header_len.to_le_bytes());
    out.extend([0; 8]); // the header's checksum, below
    out.extend(xxh3_64(value).to_le_bytes());
    out.extend(u64::try_from(value.len()).ok()?.to_le_bytes());
    out.extend(written_ms.to_le_bytes());
    out.extend(key);
    let sum = xxh3_64(&out[16..]);
    out[8..16].copy_from_slice(&sum.to_le_bytes());
    Some(out)
}

/// A header read back.
#[derive(Debug, PartialEq)]
pub(crate) struct Header<'a> {
    pub key: &'a [u8],
    pub written_ms: i64,
    value_sum: u64,
    value_len: u64,
}

/// The header at the start of `bytes`, if it is whole and its checksum holds.
pub(crate) fn read_header(magic: [u8; 4], bytes: &[u8]) -> Option<Header<'_>> {
    let fixed = bytes.get(..FIXED_BYTES)?;
    let u64_at = |at: usize| fixed[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let header_len = (u64_at(0) >> 32) as usize;
    if fixed[..4] != magic || header_len < FIXED_BYTES {
        return None;
    }
    let whole = bytes.get(..header_len)?;
    (xxh3_64(&whole[16..]) == u64_at(8)).then(|| Header {
        key: &whole[FIXED_BYTES..],
        written_ms: u64_at(32) as i64,
        value_sum: u64_at(16),
        value_len: u64_at(24),
    })
}

/// How many bytes [`read_header`] needs of a file that begins with `start`: more than those if a key is long.
pub(crate) fn header_len(start: &[u8]) -> Option<u64> {
    let len = start.get(4..8)?;
    Some(len.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

impl Header<'_> {
    /// Whether `value` is what was written, all of it.
    pub(crate) fn is_of(&self, value: &[u8]) -> bool {
        self.value_len == value.len() as u64 && xxh3_64(value) == self.value_sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 4] = *b"TST\x01";

    fn file(key: &[u8], value: &[u8]) -> Vec<u8> {
        [header(MAGIC, key, -5, value).unwrap(), value.to_vec()].concat()
    }

    /// Key and value of a file, as a reader of `key` takes them.
    fn read<'a>(key: &[u8], file: &'a [u8]) -> Option<&'a [u8]> {
        let header = read_header(MAGIC, file).filter(|header| header.key == key)?;
        let value = &file[FIXED_BYTES + header.key.len()..];
        header.is_of(value).then_some(value)
    }

    #[test]
    fn a_value_comes_back() {
        for (key, value) in [(&b""[..], &b""[..]), (b"key", b""), (b"", b"value"), (b"key", &[7; 1_000])] {
            let whole = file(key, value);
            assert_eq!(read(key, &whole), Some(value));
            assert_eq!(header_len(&whole), Some((FIXED_BYTES + key.len()) as u64));
            assert_eq!(read_header(MAGIC, &whole).unwrap().written_ms, -5);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let whole = file(b"the key", b"0123456789");
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(b"the key", &damaged), None, "bit {bit}");
        }
        for len in 0..whole.len() {
            assert_eq!(read(b"the key", &whole[..len]), None, "cut to {len}");
        }
        assert_eq!(read(b"the key", &[whole, vec![0]].concat()), None);
    }

    #[test]
    fn another_kind_of_file_is_none() {
        assert_eq!(read_header(*b"TST\x02", &file(b"k", b"v")), None);
        assert_eq!(read(b"another", &file(b"k", b"v")), None);
    }
}
