//! How is one value kept in a file? Layout: docs/formats/page.md. Everything read back is checked; what fails is a
//! miss.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the key.
const FIXED_BYTES: usize = 48;

/// Where the value begins behind a key of `key_len`.
pub(crate) fn header_len(key_len: usize, align: usize) -> usize {
    (FIXED_BYTES + key_len).next_multiple_of(align)
}

/// What stands before the value: the fixed part, the key, and zeros up to where the value begins. `None`: one of them
/// is 4 GiB or longer.
pub(crate) fn header(magic: [u8; 4], align: usize, key: &[u8], written_ms: i64, value: &[u8]) -> Option<Vec<u8>> {
    let len = header_len(key.len(), align);
    let mut out = Vec::with_capacity(len);
    out.extend(magic);
    out.extend(u32::try_from(len).ok()?.to_le_bytes());
    out.extend([0; 8]); // the header's checksum, below
    out.extend(xxh3_64(value).to_le_bytes());
    out.extend(u64::try_from(value.len()).ok()?.to_le_bytes());
    out.extend(written_ms.to_le_bytes());
    out.extend((key.len() as u64).to_le_bytes());
    out.extend(key);
    out.resize(len, 0);
    let sum = xxh3_64(&out[16..]);
    out[8..16].copy_from_slice(&sum.to_le_bytes());
    Some(out)
}

/// A header read back.
#[derive(Debug, PartialEq)]
pub(crate) struct Header<'a> {
    /// The whole key; its reader compares it.
    pub key: &'a [u8],
    /// Unix time.
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
    let key = whole[FIXED_BYTES..].get(..usize::try_from(u64_at(40)).ok()?)?;
    (xxh3_64(&whole[16..]) == u64_at(8)).then(|| Header {
        key,
        written_ms: u64_at(32) as i64,
        value_sum: u64_at(16),
        value_len: u64_at(24),
    })
}

/// How many bytes [`read_header`] needs of a file that begins with `start`: more than those if a key is long.
pub(crate) fn announced_len(start: &[u8]) -> Option<u64> {
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
        [header(MAGIC, 64, key, -5, value).unwrap(), value.to_vec()].concat()
    }

    /// Key and value of a file, as a reader of `key` takes them.
    fn read<'a>(key: &[u8], file: &'a [u8]) -> Option<&'a [u8]> {
        let header = read_header(MAGIC, file).filter(|header| header.key == key)?;
        let value = &file[header_len(header.key.len(), 64)..];
        header.is_of(value).then_some(value)
    }

    #[test]
    fn a_value_comes_back() {
        for (key, value) in [(&b""[..], &b""[..]), (b"key", b""), (b"", b"value"), (b"sixteen bytes ok", &[7; 1_000])] {
            let whole = file(key, value);
            assert_eq!(read(key, &whole), Some(value));
            assert_eq!(announced_len(&whole), Some(64));
            assert_eq!(header_len(key.len(), 64), 64);
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
        assert_eq!((header_len(17, 64), header_len(17, 4096)), (128, 4096));
        assert_eq!(read_header(*b"TST\x02", &file(b"k", b"v")), None);
        assert_eq!(read(b"another", &file(b"k", b"v")), None);
    }
}
