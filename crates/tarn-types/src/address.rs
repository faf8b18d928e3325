//! Where in the lake does a key's row lie? A file and a row of it, with the row's own sequence number.
//!
//! ```text
//! version u8 = 1 | file u64 LE | row u32 LE | seqno u64 LE          21 bytes
//! ```
//!
//! Opaque bytes to everyone but the lake and the query side. The layout is described in `docs/formats/address.md`.

use crate::error::{Error, Result};
use crate::ids::{FileId, SeqNo};

const VERSION: u8 = 1;

/// The bytes of an encoded address.
pub const ADDRESS_BYTES: usize = 21;

/// The place of one row in the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The file.
    pub file: FileId,
    /// The row of the file, from 0, over all its row groups.
    pub row: u32,
    /// The commit position of the row: what a guard on it compares with.
    pub seqno: SeqNo,
}

impl Address {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ADDRESS_BYTES] {
        let mut out = [0; ADDRESS_BYTES];
        out[0] = VERSION;
        out[1..9].copy_from_slice(&self.file.0.to_le_bytes());
        out[9..13].copy_from_slice(&self.row.to_le_bytes());
        out[13..21].copy_from_slice(&self.seqno.0.to_le_bytes());
        out
    }

    /// Reads what [`Address::encode`] wrote.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the length or the version is another.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes: &[u8; ADDRESS_BYTES] = bytes
            .try_into()
            .map_err(|_| Error::corrupt("address", format!("{} bytes, want {ADDRESS_BYTES}", bytes.len())))?;
        let [version, f0, f1, f2, f3, f4, f5, f6, f7, r0, r1, r2, r3, s0, s1, s2, s3, s4, s5, s6, s7] = *bytes;
        if version != VERSION {
            return Err(Error::corrupt("address", format!("version {version}, want {VERSION}")));
        }
        Ok(Self {
            file: FileId(u64::from_le_bytes([f0, f1, f2, f3, f4, f5, f6, f7])),
            row: u32::from_le_bytes([r0, r1, r2, r3]),
            seqno: SeqNo(u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7])),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_data::{documented, hex};

    /// The worked example of `docs/formats/address.md`.
    #[test]
    fn documented_example() {
        let address = Address { file: FileId(258), row: 7, seqno: SeqNo(3) };
        let hex = hex(&address.encode());
        assert_eq!(hex, "010201000000000000070000000300000000000000");
        assert!(documented(include_str!("../../../docs/formats/address.md"), &hex));
    }

    proptest! {
        #[test]
        fn round_trip(file: u64, row: u32, seqno: u64) {
            let address = Address { file: FileId(file), row, seqno: SeqNo(seqno) };
            prop_assert_eq!(Address::decode(&address.encode()).unwrap(), address);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(address) = Address::decode(&bytes) {
                prop_assert_eq!(&address.encode()[..], &bytes[..]);
            }
        }
    }
}
