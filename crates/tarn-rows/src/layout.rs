//! Which keys and bytes does a table keep in the engine, beside its rows?
//!
//! ```text
//! rows       engine key                        -> stored row (tarn-types)
//! addresses  engine key                        -> address (tarn-types)
//!            0 u32 | table u32 BE              -> marker: 1 u8 | version u64 LE | n u32 LE | n × (tablet u32 LE, seqno u64 LE)
//! meta       'a' | tablet u32 BE               -> applied: 1 u8 | seqno u64 LE
//!            'e' | table u32 BE                -> 1 u8, there once a live row was evicted
//!            'o'                               -> owner: 1 u8 | id of the data folder, 16 bytes
//! ```
//!
//! Engine keys begin with their tablet, big-endian; tablets begin at 1, so markers share the space with nobody. The layout is
//! described in `docs/formats/rows.md`.

use std::ops::Range;

use tarn_types::{Cursor, SeqNo, TableId, TableSchema, TabletId, Version};

use crate::error::{Error, Result};

const FORMAT: u8 = 1;

/// Where a table's marker lies in the addresses space.
pub(crate) fn marker_key(table: TableId) -> [u8; 8] {
    let mut key = [0; 8];
    key[4..].copy_from_slice(&table.0.to_be_bytes());
    key
}

/// The keys of all markers.
pub(crate) fn marker_keys() -> Range<Vec<u8>> {
    vec![0; 8]..vec![0, 0, 0, 1]
}

/// The table of such a key.
pub(crate) fn table_of_marker(key: &[u8]) -> Option<TableId> {
    let table = key.strip_prefix(&[0; 4])?;
    Some(TableId(u32::from_be_bytes(table.try_into().ok()?)))
}

pub(crate) fn encode_marker(version: Version, cursor: &Cursor) -> Vec<u8> {
    let positions: Vec<(TabletId, SeqNo)> = cursor.iter().collect();
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&version.0.to_le_bytes());
    bytes.extend_from_slice(&(positions.len() as u32).to_le_bytes());
    for (tablet, seqno) in positions {
        bytes.extend_from_slice(&tablet.0.to_le_bytes());
        bytes.extend_from_slice(&seqno.0.to_le_bytes());
    }
    bytes
}

pub(crate) fn decode_marker(key: &[u8], bytes: &[u8]) -> Result<(Version, Cursor)> {
    let corrupt = |reason: String| Error::corrupt("marker", key, reason);
    let mut rest = bytes;
    if take(&mut rest) != Some([FORMAT]) {
        return Err(corrupt(format!("format {:?}, want {FORMAT}", bytes.first())));
    }
    let short = || corrupt(format!("{} bytes are too few", bytes.len()));
    let version = Version(u64::from_le_bytes(take(&mut rest).ok_or_else(short)?));
    let n = u32::from_le_bytes(take(&mut rest).ok_or_else(short)?);
    let mut cursor = Cursor::new();
    for _ in 0..n {
        let tablet = TabletId(u32::from_le_bytes(take(&mut rest).ok_or_else(short)?));
        cursor.set(tablet, SeqNo(u64::from_le_bytes(take(&mut rest).ok_or_else(short)?)));
    }
    if !rest.is_empty() {
        return Err(corrupt(format!("{} bytes too many", rest.len())));
    }
    Ok((version, cursor))
}

/// Where a tablet's applied seqno lies in the meta space.
pub(crate) fn applied_key(tablet: TabletId) -> [u8; 5] {
    tagged(b'a', tablet.0)
}

pub(crate) fn encode_applied(seqno: SeqNo) -> [u8; 9] {
    let mut bytes = [FORMAT; 9];
    bytes[1..].copy_from_slice(&seqno.0.to_le_bytes());
    bytes
}

pub(crate) fn decode_applied(key: &[u8], bytes: &[u8]) -> Result<SeqNo> {
    let mut rest = bytes;
    match (take(&mut rest), take(&mut rest), rest.is_empty()) {
        (Some([FORMAT]), Some(seqno), true) => Ok(SeqNo(u64::from_le_bytes(seqno))),
        _ => Err(Error::corrupt("applied seqno", key, format!("{} bytes of format {:?}", bytes.len(), bytes.first()))),
    }
}

/// Where a table remembers, in the meta space, that live rows were evicted.
pub(crate) fn evicted_key(table: TableId) -> [u8; 5] {
    tagged(b'e', table.0)
}

pub(crate) const EVICTED: [u8; 1] = [FORMAT];

/// Where the engine remembers, in the meta space, whose it is.
pub(crate) const OWNER_KEY: [u8; 1] = [b'o'];

pub(crate) fn encode_owner(id: [u8; 16]) -> [u8; 17] {
    let mut bytes = [FORMAT; 17];
    bytes[1..].copy_from_slice(&id);
    bytes
}

pub(crate) fn decode_owner(key: &[u8], bytes: &[u8]) -> Result<[u8; 16]> {
    let mut rest = bytes;
    match (take(&mut rest), take(&mut rest), rest.is_empty()) {
        (Some([FORMAT]), Some(id), true) => Ok(id),
        _ => Err(Error::corrupt("owner", key, format!("{} bytes of format {:?}", bytes.len(), bytes.first()))),
    }
}

/// The keys of all applied seqnos.
pub(crate) fn applied_keys() -> Range<Vec<u8>> {
    vec![b'a']..vec![b'a' + 1]
}

/// The tablet of such a key.
pub(crate) fn tablet_of_applied(key: &[u8]) -> Option<TabletId> {
    let tablet = key.strip_prefix(b"a")?;
    Some(TabletId(u32::from_be_bytes(tablet.try_into().ok()?)))
}

/// All engine keys of a table: its tablets are a run.
pub(crate) fn table_range(schema: &TableSchema) -> Range<Vec<u8>> {
    let first = schema.first_tablet.0;
    tablet_range(schema.first_tablet..TabletId(first + schema.options.tablets))
}

/// All engine keys of a run of tablets.
pub(crate) fn tablet_range(tablets: Range<TabletId>) -> Range<Vec<u8>> {
    tablets.start.0.to_be_bytes().to_vec()..tablets.end.0.to_be_bytes().to_vec()
}

/// The end of all keys that begin with `prefix`, or `end` if that comes first.
pub(crate) fn prefix_end(prefix: &[u8], end: &[u8]) -> Vec<u8> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if last < u8::MAX {
            next.push(last + 1);
            return next.min(end.to_vec());
        }
    }
    end.to_vec()
}

fn tagged(tag: u8, id: u32) -> [u8; 5] {
    let mut key = [tag; 5];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of `docs/formats/rows.md`.
    #[test]
    fn the_documented_bytes() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let cursor: Cursor = [(TabletId(5), SeqNo(257))].into_iter().collect();
        assert_eq!(hex(&marker_key(TableId(3))), "0000000000000003");
        assert_eq!(hex(&encode_marker(Version(2), &cursor)), "01020000000000000001000000050000000101000000000000");
        assert_eq!(hex(&applied_key(TabletId(5))), "6100000005");
        assert_eq!(hex(&encode_applied(SeqNo(258))), "010201000000000000");
        assert_eq!(hex(&evicted_key(TableId(3))), "6500000003");
    }

    proptest! {
        #[test]
        fn a_marker_survives_and_a_cut_one_is_corrupt(version: u64, positions: Vec<(u32, u64)>, cut in 0usize..200) {
            let cursor: Cursor = positions.into_iter().map(|(t, s)| (TabletId(t), SeqNo(s))).collect();
            let bytes = encode_marker(Version(version), &cursor);
            let (found, at) = decode_marker(b"k", &bytes).unwrap();
            prop_assert_eq!((found, &at), (Version(version), &cursor));
            let cut = cut % bytes.len();
            prop_assert!(decode_marker(b"k", &bytes[..cut]).is_err());
        }

        #[test]
        fn an_applied_seqno_survives(seqno: u64) {
            let bytes = encode_applied(SeqNo(seqno));
            prop_assert_eq!(decode_applied(b"k", &bytes).unwrap(), SeqNo(seqno));
            prop_assert!(decode_applied(b"k", &bytes[..8]).is_err());
        }

        #[test]
        fn a_prefix_ends_after_all_that_begin_with_it(prefix: Vec<u8>, tail: Vec<u8>) {
            let end = prefix_end(&prefix, &[255; 40]);
            let mut key = prefix.clone();
            key.extend(tail);
            prop_assume!(key.as_slice() < &[255; 40][..]);
            prop_assert!(key < end);
        }
    }
}
