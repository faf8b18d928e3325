//! How does a log look in bytes? (`docs/formats/raftlog.md` has the same, as tables.)
//!
//! ```text
//! segment   header block | frame | frame | … | seal | trailer block          every part starts on a 4 KiB boundary
//! frame     header 48 B | batch | batch | … | zeros                          one group commit
//! batch     head 16 B | meta: records | data: entry payloads, back to back   one atomic submit
//! ```
//! All integers are little-endian. A frame's CRC32C covers its header and the head and meta of every batch; the meta
//! carries a CRC32C for every entry, so each byte is checked once, and one entry can be checked alone. Decoders take
//! any bytes: they never panic and never allocate more than a small multiple of the input.

use bytes::{BufMut, Bytes};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::index::Meta;

pub const VERSION: u8 = 1;
/// Alignment of frames and size of the header and trailer blocks.
pub const BLOCK: u64 = 4096;
pub const FRAME_HEADER: usize = 48;
pub const BATCH_HEAD: usize = 16;

const FORMAT_MAGIC: &[u8; 8] = b"TARNRLOG";
const SEGMENT_MAGIC: &[u8; 8] = b"TARNSEGM";
const TRAILER_MAGIC: &[u8; 8] = b"TARNTRLR";
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"TFRM");
const SEAL_MAGIC: u32 = u32::from_le_bytes(*b"TSEL");
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"TBAT");

const KIND_APPEND: u8 = 1;
const KIND_REWRITE: u8 = 2;
const KIND_GROUP: u8 = 3;
const FLAG_DESTROYED: u8 = 1;
const FLAG_STATE: u8 = 2;

pub fn align(offset: u64) -> u64 {
    offset.next_multiple_of(BLOCK)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

/// Why bytes are not what they should be. `Version` stands apart: the bytes are sound, but from another release.
#[derive(Debug, PartialEq, Eq)]
pub enum Bad {
    Version(u8),
    What(&'static str),
}

/// A block of 4096 bytes whose last four are the CRC32C of the rest: FORMAT, segment header, trailer.
fn seal_block(magic: &[u8; 8], numbers: &[u64]) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK as usize);
    block.extend_from_slice(magic);
    block.put_u64_le(u64::from(VERSION));
    numbers.iter().for_each(|&n| block.put_u64_le(n));
    block.resize(BLOCK as usize - 4, 0);
    block.put_u32_le(crc32c::crc32c(&block));
    block
}

fn open_block<const N: usize>(block: &[u8], magic: &[u8; 8]) -> Result<[u64; N], Bad> {
    if block.len() != BLOCK as usize || &block[..8] != magic {
        return Err(Bad::What("wrong magic"));
    }
    let (body, crc) = block.split_at(BLOCK as usize - 4);
    if crc32c::crc32c(body) != u32_at(crc, 0) {
        return Err(Bad::What("wrong checksum of a header block"));
    }
    if block[8] != VERSION {
        return Err(Bad::Version(block[8]));
    }
    Ok(std::array::from_fn(|i| u64_at(block, 16 + 8 * i)))
}

pub fn encode_format(store: u64) -> Vec<u8> {
    seal_block(FORMAT_MAGIC, &[store])
}

pub fn decode_format(block: &[u8]) -> Result<u64, Bad> {
    open_block::<1>(block, FORMAT_MAGIC).map(|[store]| store)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    pub store: u64,
    pub seq: u64,
    pub salt: u64,
    /// The file is never shorter than this until it is sealed.
    pub reserved_bytes: u64,
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        seal_block(SEGMENT_MAGIC, &[self.store, self.seq, self.salt, self.reserved_bytes])
    }

    pub fn decode(block: &[u8]) -> Result<SegmentHeader, Bad> {
        let [store, seq, salt, reserved_bytes] = open_block(block, SEGMENT_MAGIC)?;
        Ok(SegmentHeader { store, seq, salt, reserved_bytes })
    }
}

/// Last block of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    pub salt: u64,
    pub seal_offset: u64,
}

impl Trailer {
    pub fn encode(&self) -> Vec<u8> {
        seal_block(TRAILER_MAGIC, &[self.salt, self.seal_offset])
    }

    pub fn decode(block: &[u8]) -> Result<Trailer, Bad> {
        let [salt, seal_offset] = open_block(block, TRAILER_MAGIC)?;
        Ok(Trailer { salt, seal_offset })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    Frame,
    /// The index of a sealed segment: the heads and metas of all its batches.
    Seal,
}

/// Opens a frame and a seal alike. `lsn` counts batches over all segments: of the first batch in a frame, of the
/// batch after the last one in a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
    pub salt: u64,
    pub lsn: u64,
    pub n_batches: u32,
    /// CRC of the frame before this one, over segments: the chain.
    pub prev_crc: u32,
    pub payload_bytes: u64,
    pub crc: u32,
}

impl FrameHeader {
    /// Encodes with a CRC over the header's first 44 bytes and then `covered`; sets `crc`.
    pub fn encode<'a>(&mut self, covered: impl Iterator<Item = &'a [u8]>) -> [u8; FRAME_HEADER] {
        let mut out = [0; FRAME_HEADER];
        let mut buf = &mut out[..];
        buf.put_u32_le(if self.kind == FrameKind::Frame { FRAME_MAGIC } else { SEAL_MAGIC });
        buf.put_u32_le(u32::from(VERSION));
        buf.put_u64_le(self.salt);
        buf.put_u64_le(self.lsn);
        buf.put_u32_le(self.n_batches);
        buf.put_u32_le(self.prev_crc);
        buf.put_u64_le(self.payload_bytes);
        buf.put_u32_le(0);
        self.crc = covered.fold(crc32c::crc32c(&out[..44]), crc32c::crc32c_append);
        out[44..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// Reads the fields; the CRC is not checked, because it covers more than the header.
    pub fn decode(bytes: &[u8]) -> Option<FrameHeader> {
        if bytes.len() < FRAME_HEADER || bytes[4] != VERSION {
            return None;
        }
        let kind = match u32_at(bytes, 0) {
            FRAME_MAGIC => FrameKind::Frame,
            SEAL_MAGIC => FrameKind::Seal,
            _ => return None,
        };
        Some(FrameHeader {
            kind,
            salt: u64_at(bytes, 8),
            lsn: u64_at(bytes, 16),
            n_batches: u32_at(bytes, 24),
            prev_crc: u32_at(bytes, 28),
            payload_bytes: u64_at(bytes, 32),
            crc: u32_at(bytes, 44),
        })
    }

    pub fn crc_matches<'a>(&self, header: &[u8], covered: impl Iterator<Item = &'a [u8]>) -> bool {
        covered.fold(crc32c::crc32c(&header[..44]), crc32c::crc32c_append) == self.crc
    }
}

/// Fills the first [`BATCH_HEAD`] bytes of `head_and_meta`, once the meta behind them is complete.
pub fn finish_batch_head(head_and_meta: &mut [u8], data_bytes: u32) {
    let meta_bytes = (head_and_meta.len() - BATCH_HEAD) as u32;
    let mut buf = &mut head_and_meta[..BATCH_HEAD];
    buf.put_u32_le(BATCH_MAGIC);
    buf.put_u32_le(meta_bytes);
    buf.put_u32_le(data_bytes);
    buf.put_u32_le(0);
}

/// Length of meta and of data.
pub fn decode_batch_head(bytes: &[u8]) -> Option<(usize, usize)> {
    if bytes.len() < BATCH_HEAD || u32_at(bytes, 0) != BATCH_MAGIC {
        return None;
    }
    Some((u32_at(bytes, 4) as usize, u32_at(bytes, 8) as usize))
}

/// What identifies an entry is under its checksum, so that bytes of another entry never pass for it.
pub fn entry_crc(group: u64, index: u64, term: u64, payload: &[u8]) -> u32 {
    let mut id = [0; 24];
    id[..8].copy_from_slice(&group.to_le_bytes());
    id[8..16].copy_from_slice(&index.to_le_bytes());
    id[16..].copy_from_slice(&term.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&id), payload)
}

/// Entries `first ..` of a group; their payloads follow each other in the batch's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    pub group: u64,
    pub first: u64,
    /// (number of entries, term), in index order.
    pub runs: Vec<(u64, u64)>,
    /// (payload length, entry CRC).
    pub table: Vec<(u32, u32)>,
    /// Copies made by garbage collection; the same to a reader.
    pub rewrite: bool,
}

impl Entries {
    /// Terms of the entries, one by one.
    pub fn terms(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|&(n, term)| std::iter::repeat_n(term, n as usize))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Entries(Entries),
    /// All that is known of a group but its entries, which it clips to `(floor, last]`. The newest one counts.
    Group(u64, Meta),
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn encode_entries(out: &mut Vec<u8>, entries: &Entries) {
    out.push(if entries.rewrite { KIND_REWRITE } else { KIND_APPEND });
    put_varint(out, entries.group);
    put_varint(out, entries.first);
    put_varint(out, entries.runs.len() as u64);
    for &(n, term) in &entries.runs {
        put_varint(out, n);
        put_varint(out, term);
    }
    put_varint(out, entries.table.len() as u64);
    for &(len, _) in &entries.table {
        put_varint(out, u64::from(len));
    }
    for &(_, crc) in &entries.table {
        out.put_u32_le(crc);
    }
}

pub fn encode_group(out: &mut Vec<u8>, group: u64, meta: &Meta) {
    out.push(KIND_GROUP);
    let destroyed = if meta.destroyed { FLAG_DESTROYED } else { 0 };
    out.push(destroyed | if meta.state.is_some() { FLAG_STATE } else { 0 });
    put_varint(out, group);
    put_varint(out, meta.floor);
    put_varint(out, meta.floor_term);
    put_varint(out, meta.last);
    if let Some(state) = &meta.state {
        put_bytes(out, state);
    }
    put_varint(out, meta.pairs.len() as u64);
    for (key, value) in meta.pairs.iter() {
        put_bytes(out, key);
        put_bytes(out, value);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// All records of a batch's meta. `None` when the bytes are not exactly a list of records.
pub fn decode_records(meta: &[u8]) -> Option<Vec<Record>> {
    let mut input = Input(meta);
    let mut records = Vec::new();
    while !input.0.is_empty() {
        records.push(match input.byte()? {
            KIND_APPEND => Record::Entries(input.entries(false)?),
            KIND_REWRITE => Record::Entries(input.entries(true)?),
            KIND_GROUP => input.group()?,
            _ => return None,
        });
    }
    Some(records)
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A number of things of at least `min_bytes` each, all still to come.
    fn count(&mut self, min_bytes: usize) -> Option<usize> {
        let n = usize::try_from(self.varint()?).ok()?;
        (n.checked_mul(min_bytes)? <= self.0.len()).then_some(n)
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes(&mut self) -> Option<Bytes> {
        let n = self.count(1)?;
        self.take(n).map(Bytes::copy_from_slice)
    }

    fn entries(&mut self, rewrite: bool) -> Option<Entries> {
        let (group, first) = (self.varint()?, self.varint()?);
        let n_runs = self.count(2)?;
        let runs: Vec<(u64, u64)> =
            (0..n_runs).map(|_| Some((self.varint()?, self.varint()?))).collect::<Option<_>>()?;
        let n = self.count(5)?;
        let lens: Vec<u32> = (0..n).map(|_| u32::try_from(self.varint()?).ok()).collect::<Option<_>>()?;
        let crcs = self.take(n.checked_mul(4)?)?;
        let counted = runs.iter().try_fold(0u64, |sum, &(n, _)| sum.checked_add(n))?;
        if n == 0 || counted != n as u64 || first == 0 || first.checked_add(n as u64).is_none() {
            return None;
        }
        let table = lens.into_iter().enumerate().map(|(i, len)| (len, u32_at(crcs, 4 * i))).collect();
        Some(Entries { group, first, runs, table, rewrite })
    }

    fn group(&mut self) -> Option<Record> {
        let flags = self.byte()?;
        let group = self.varint()?;
        let (floor, floor_term, last) = (self.varint()?, self.varint()?, self.varint()?);
        let state = if flags & FLAG_STATE != 0 { Some(self.bytes()?) } else { None };
        let n = self.count(2)?;
        let pairs: BTreeMap<Bytes, Bytes> =
            (0..n).map(|_| Some((self.bytes()?, self.bytes()?))).collect::<Option<_>>()?;
        if last < floor || last == u64::MAX || flags > FLAG_DESTROYED | FLAG_STATE {
            return None;
        }
        let destroyed = flags & FLAG_DESTROYED != 0;
        Some(Record::Group(group, Meta { floor, floor_term, last, state, pairs: Arc::new(pairs), destroyed }))
    }
}

/// One batch as a frame or a seal shows it.
pub struct BatchView<'a> {
    pub lsn: u64,
    pub head_and_meta: &'a [u8],
    /// Where its data lies in the segment file.
    pub data_offset: u64,
    pub data_bytes: usize,
}

/// Walks the batches of a frame's payload that starts at `offset` of the file; `None` when lengths do not add up.
/// Heads and metas are not yet checked against the frame's CRC.
pub fn walk_frame<'a>(header: &FrameHeader, payload: &'a [u8], offset: u64) -> Option<Vec<BatchView<'a>>> {
    let mut batches = Vec::with_capacity((header.n_batches as usize).min(payload.len() / BATCH_HEAD));
    let mut at = 0;
    for i in 0..u64::from(header.n_batches) {
        let (meta_bytes, data_bytes) = decode_batch_head(payload.get(at..)?)?;
        let data_at = at.checked_add(BATCH_HEAD + meta_bytes)?;
        let head_and_meta = payload.get(at..data_at)?;
        batches.push(BatchView {
            lsn: header.lsn.checked_add(i)?,
            head_and_meta,
            data_offset: offset + data_at as u64,
            data_bytes,
        });
        at = data_at.checked_add(data_bytes)?;
    }
    (at == payload.len()).then_some(batches)
}

/// Size of a batch's line in a seal: lsn, data offset, then head and meta.
pub const SEAL_LINE: usize = 16;

pub fn put_seal_line(out: &mut Vec<u8>, lsn: u64, data_offset: u64, head_and_meta: &[u8]) {
    out.put_u64_le(lsn);
    out.put_u64_le(data_offset);
    out.extend_from_slice(head_and_meta);
}

/// The batches a seal lists; its CRC has been checked, the lengths have not.
pub fn walk_seal<'a>(header: &FrameHeader, body: &'a [u8]) -> Option<Vec<BatchView<'a>>> {
    let mut batches = Vec::with_capacity((header.n_batches as usize).min(body.len() / (SEAL_LINE + BATCH_HEAD)));
    let mut rest = body;
    while !rest.is_empty() {
        if rest.len() < SEAL_LINE + BATCH_HEAD {
            return None;
        }
        let (meta_bytes, data_bytes) = decode_batch_head(&rest[SEAL_LINE..])?;
        let end = SEAL_LINE + BATCH_HEAD + meta_bytes;
        let head_and_meta = rest.get(SEAL_LINE..end)?;
        batches.push(BatchView { lsn: u64_at(rest, 0), head_and_meta, data_offset: u64_at(rest, 8), data_bytes });
        rest = &rest[end..];
    }
    (batches.len() == header.n_batches as usize).then_some(batches)
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Record> {
        (any::<u64>(), 1..u64::MAX / 2, vec((1u64..4, any::<u64>()), 1..4), any::<bool>()).prop_flat_map(
            |(group, first, runs, rewrite)| {
                let n = runs.iter().map(|r| r.0 as usize).sum::<usize>();
                vec(any::<(u32, u32)>(), n).prop_map(move |table| {
                    Record::Entries(Entries { group, first, runs: runs.clone(), table, rewrite })
                })
            },
        )
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..20).prop_map(Bytes::from)
    }

    fn group() -> impl Strategy<Value = Record> {
        (
            any::<u64>(),
            any::<u32>(),
            any::<u64>(),
            any::<u32>(),
            proptest::option::of(bytes()),
            btree_map(bytes(), bytes(), 0..4),
            any::<bool>(),
        )
            .prop_map(|(group, floor, floor_term, more, state, pairs, destroyed)| {
                let floor = u64::from(floor);
                Record::Group(
                    group,
                    Meta { floor, floor_term, last: floor + u64::from(more), state, pairs: Arc::new(pairs), destroyed },
                )
            })
    }

    proptest! {
        #[test]
        fn records_round_trip(records in vec(prop_oneof![entries(), group()], 0..6)) {
            let mut out = Vec::new();
            for record in &records {
                match record {
                    Record::Entries(entries) => encode_entries(&mut out, entries),
                    Record::Group(group, meta) => encode_group(&mut out, *group, meta),
                }
            }
            prop_assert_eq!(decode_records(&out), Some(records));
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes in vec(any::<u8>(), 0..200)) {
            let _ = decode_records(&bytes);
            let _ = decode_batch_head(&bytes);
            if let Some(header) = FrameHeader::decode(&bytes) {
                let _ = walk_frame(&header, &bytes, 0);
            }
            let header = FrameHeader { kind: FrameKind::Seal, salt: 0, lsn: u64::MAX, n_batches: u32::MAX, prev_crc: 0, payload_bytes: 0, crc: 0 };
            let _ = walk_frame(&header, &bytes, 0);
            let _ = walk_seal(&header, &bytes);
        }

        #[test]
        fn blocks_round_trip_and_every_flip_is_seen(seq: u64, salt: u64, at in 0usize..4096, bit in 0u8..8) {
            let header = SegmentHeader { store: 1, seq, salt, reserved_bytes: 9 };
            let mut block = header.encode();
            prop_assert_eq!(SegmentHeader::decode(&block), Ok(header));
            block[at] ^= 1 << bit;
            prop_assert!(SegmentHeader::decode(&block).is_err());
        }
    }

    #[test]
    fn frame_header_round_trips_and_its_crc_covers_the_rest() {
        let mut header = FrameHeader {
            kind: FrameKind::Frame,
            salt: 7,
            lsn: 9,
            n_batches: 2,
            prev_crc: 5,
            payload_bytes: 100,
            crc: 0,
        };
        let bytes = header.encode([&b"ab"[..], b"c"].into_iter());
        let read = FrameHeader::decode(&bytes).expect("own header");
        assert_eq!(read, header);
        assert!(read.crc_matches(&bytes, [&b"abc"[..]].into_iter()));
        assert!(!read.crc_matches(&bytes, [&b"abd"[..]].into_iter()));
    }
}
