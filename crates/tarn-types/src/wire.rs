//! How are numbers and lengths written inside our layouts? LEB128 varints, and a reader that never panics.
//!
//! Varints are canonical: no trailing zero groups, so that equal content is equal bytes.

use crate::error::{Error, Result};

pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads forward through untrusted bytes; `what` names them in errors.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::corrupt(self.what, reason)
    }

    #[cold]
    fn ends_early(&self) -> Error {
        self.corrupt("it ends early")
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.ends_early())?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.ends_early())?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.ends_early())?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let first = self.u8()?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.long_varint(first) }
    }

    fn long_varint(&mut self, first: u8) -> Result<u64> {
        let mut n = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let overflows = shift == 63 && byte > 1;
                return if byte == 0 || overflows { Err(self.corrupt("a varint is not canonical")) } else { Ok(n) };
            }
        }
        Err(self.corrupt("a varint is longer than ten bytes"))
    }

    pub(crate) fn varint_u32(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| self.corrupt("a number is beyond 32 bits"))
    }

    /// A varint length and that many bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.varint()?;
        let n = usize::try_from(n).map_err(|_| self.ends_early())?;
        self.take(n)
    }

    pub(crate) fn finish(self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.corrupt(format!("{} bytes behind its end", self.rest.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn varints_come_back(n in prop_oneof![any::<u64>(), 0..300u64]) {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            let mut reader = Reader::new("number", &out);
            prop_assert_eq!(reader.varint().unwrap(), n);
            reader.finish().unwrap();
        }

        #[test]
        fn what_reads_is_canonical(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = Reader::new("number", &bytes);
            if let Ok(n) = reader.varint() {
                let mut out = Vec::new();
                put_varint(&mut out, n);
                prop_assert_eq!(&out[..], &bytes[..bytes.len() - reader.rest().len()]);
            }
        }
    }
}
