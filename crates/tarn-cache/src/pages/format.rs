//! How is one page kept in a file? Layout: docs/formats/page.md. Everything read back is checked; what fails is a miss.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use xxhash_rust::xxh3::xxh3_64;

use super::key::{Object, ObjectState};

const MAGIC: [u8; 3] = *b"TPG";
const VERSION: u8 = 1;
/// Bytes before the names.
const FIXED_BYTES: usize = 64;
const HAS_ETAG: u8 = 1;
const HAS_TIME: u8 = 2;

/// The header of a page's file, names and checksums included. `None`: a name is too long to be kept (64 KiB).
pub(crate) fn header(object: &Object, page: u32, page_bytes: u32, payload: &[u8]) -> Option<Vec<u8>> {
    let (store, path) = (object.store.as_bytes(), object.path.as_ref().as_bytes());
    let etag = object.state.etag.as_deref().unwrap_or_default().as_bytes();
    let lengths = [store, path, etag].map(|name| u16::try_from(name.len()).ok());
    let [Some(store_len), Some(path_len), Some(etag_len)] = lengths else { return None };
    let flags = object.state.etag.as_ref().map_or(0, |_| HAS_ETAG) | object.state.modified_ns.map_or(0, |_| HAS_TIME);

    let mut out = Vec::with_capacity(header_len(object));
    out.extend(MAGIC);
    out.push(VERSION);
    out.extend((header_len(object) as u32).to_le_bytes());
    out.extend([0; 8]); // the header's checksum, below
    out.extend(xxh3_64(payload).to_le_bytes());
    out.extend(page.to_le_bytes());
    out.extend(page_bytes.to_le_bytes());
    out.extend((payload.len() as u32).to_le_bytes());
    out.extend([flags, 0, 0, 0]);
    out.extend(object.state.size_bytes.to_le_bytes());
    out.extend(object.state.modified_ns.unwrap_or(0).to_le_bytes());
    [store_len, path_len, etag_len, 0].iter().for_each(|len| out.extend(len.to_le_bytes()));
    [store, path, etag].iter().for_each(|name| out.extend(*name));
    let sum = xxh3_64(&out[16..]);
    out[8..16].copy_from_slice(&sum.to_le_bytes());
    Some(out)
}

/// Length of the header of any page of `object`.
pub(crate) fn header_len(object: &Object) -> usize {
    FIXED_BYTES
        + object.store.len()
        + object.path.as_ref().len()
        + object.state.etag.as_deref().unwrap_or_default().len()
}

/// A header read back.
#[derive(Debug, PartialEq)]
pub(crate) struct Header {
    pub object: Object,
    pub page: u32,
    pub page_bytes: u32,
    payload_sum: u64,
    payload_len: usize,
    header_len: usize,
}

/// The header at the start of `bytes`, if it is whole and its checksum holds.
pub(crate) fn read_header(bytes: &[u8]) -> Option<Header> {
    let fixed = bytes.get(..FIXED_BYTES)?;
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
    let u32_at = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let header_len = u32_at(4) as usize;
    let (store_len, path_len, etag_len) = (u16_at(56), u16_at(58), u16_at(60));
    if fixed[..3] != MAGIC || fixed[3] != VERSION || header_len != FIXED_BYTES + store_len + path_len + etag_len {
        return None;
    }
    let whole = bytes.get(..header_len)?;
    if xxh3_64(&whole[16..]) != u64_at(8) {
        return None;
    }
    let names = std::str::from_utf8(&whole[FIXED_BYTES..]).ok()?;
    let (store, rest) = names.split_at_checked(store_len)?;
    let (path, etag) = rest.split_at_checked(path_len)?;
    let state = ObjectState {
        size_bytes: u64_at(40),
        etag: (fixed[36] & HAS_ETAG != 0).then(|| etag.to_owned()),
        modified_ns: (fixed[36] & HAS_TIME != 0).then(|| u64_at(48) as i64),
    };
    Some(Header {
        object: Object::new(&Arc::from(store), &Path::parse(path).ok()?, state),
        page: u32_at(24),
        page_bytes: u32_at(28),
        payload_sum: u64_at(16),
        payload_len: u32_at(32) as usize,
        header_len,
    })
}

/// The payload of a file that must hold page `page` of `object`. `None`: it does not, or its bytes are not what was written.
pub(crate) fn read_page(file: Bytes, object: &Object, page: u32, page_bytes: u32) -> Option<Bytes> {
    let header = read_header(&file)?;
    let expected = object.page_len(page, u64::from(page_bytes)) as usize;
    let is_it = header.page == page
        && header.page_bytes == page_bytes
        && header.payload_len == expected
        && file.len() == header.header_len + expected
        && header.object.is_same(object);
    let payload = is_it.then(|| file.slice(header.header_len..))?;
    (xxh3_64(&payload) == header.payload_sum).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str, etag: Option<&str>) -> Object {
        let state = ObjectState {
            size_bytes: 25,
            etag: etag.map(str::to_owned),
            modified_ns: Some(-1_700_000_000_000_000_000),
        };
        Object::new(&"s3://bucket".into(), &Path::from(path), state)
    }

    fn file(object: &Object, page: u32, payload: &[u8]) -> Vec<u8> {
        let mut file = header(object, page, 10, payload).unwrap();
        assert_eq!(file.len(), header_len(object));
        file.extend(payload);
        file
    }

    #[test]
    fn a_page_comes_back() {
        for etag in [None, Some(""), Some("\"abc\"")] {
            let object = object("a/ü b.parquet", etag);
            let whole = file(&object, 2, b"01234");
            assert_eq!(read_page(Bytes::from(whole.clone()), &object, 2, 10).unwrap(), "01234");
            let header = read_header(&whole).unwrap();
            assert_eq!((header.object, header.page, header.page_bytes), (object, 2, 10));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let object = object("a", Some("x"));
        let whole = file(&object, 0, b"0123456789");
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_page(Bytes::from(damaged), &object, 0, 10), None, "bit {bit}");
        }
        for len in 0..whole.len() {
            assert_eq!(read_page(Bytes::from(whole[..len].to_vec()), &object, 0, 10), None, "cut to {len}");
        }
        let mut longer = whole;
        longer.push(0);
        assert_eq!(read_page(Bytes::from(longer), &object, 0, 10), None);
    }

    #[test]
    fn another_page_or_object_is_none() {
        let mine = object("a", Some("x"));
        let whole = Bytes::from(file(&mine, 1, b"0123456789"));
        assert!(read_page(whole.clone(), &mine, 1, 10).is_some());
        assert_eq!(read_page(whole.clone(), &mine, 0, 10), None);
        assert_eq!(read_page(whole.clone(), &object("b", Some("x")), 1, 10), None);
        assert_eq!(read_page(whole, &object("a", Some("y")), 1, 10), None);
    }
}
