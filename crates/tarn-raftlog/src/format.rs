//! How does a log look in bytes? (`docs/formats/raftlog.md` has the same, as tables; records are in `record`.)
//!
//! ```text
//! segment   header block | the same again | frame | frame | … | unused | seal | trailer block
//! frame     header 52 B | batch | batch | … | zeros            one group commit, one write
//! batch     head 16 B | meta: records | data                   one atomic submit
//! ```
//! All integers are little-endian. A frame header has a CRC32C of its own and one over the batch heads, a batch head
//! one over the meta, and the meta one for every entry: each byte is checked once, whoever makes a part checksums it,
//! and one entry can be checked alone. Decoders take any bytes: they never panic and never allocate more than a small
//! multiple of the input.

use bytes::BufMut;

/// Of every header block and frame; bytes with another one are refused by [`Bad::Version`].
pub const VERSION: u8 = 1;
/// Alignment of what is written to be durable, and size of header and trailer blocks.
pub const BLOCK: u64 = 4096;
/// Where frames begin: after two copies of the segment's header.
pub const FIRST_FRAME: u64 = 2 * BLOCK;
/// Bytes of a frame's header, and of a seal's.
pub const FRAME_HEADER: usize = 52;
/// Bytes of a batch's head: magic, lengths of meta and data, CRC of the meta.
pub const BATCH_HEAD: usize = 16;
/// Where frames may start in a segment whose frames are not flushed one by one.
pub const PACKED_UNIT: u64 = 64;
/// A frame of at least this ends on a block even there, so that long writes need no copy through the page cache.
pub const LONG_FRAME: u64 = 64 << 10;

const FORMAT_MAGIC: &[u8; 8] = b"TARNRLOG";
const SEGMENT_MAGIC: &[u8; 8] = b"TARNSEGM";
const TRAILER_MAGIC: &[u8; 8] = b"TARNTRLR";
const NAMES_MAGIC: &[u8; 8] = b"TARNSEGS";
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"TFRM");
const SEAL_MAGIC: u32 = u32::from_le_bytes(*b"TSEL");
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"TBAT");

/// The next block boundary, or `offset` if it is one.
pub fn align(offset: u64) -> u64 {
    offset.next_multiple_of(BLOCK)
}

/// Where the frame after one of `payload_bytes` at `offset` starts, in a segment of this unit.
pub fn frame_end(offset: u64, payload_bytes: u64, unit: u64) -> u64 {
    let len = FRAME_HEADER as u64 + payload_bytes;
    (offset + len).next_multiple_of(if len >= LONG_FRAME { BLOCK } else { unit })
}

/// Four bytes, little-endian; panics when they are not there.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

/// Eight bytes, little-endian; panics when they are not there.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

/// Why bytes are not what they should be. `Version` stands apart: the bytes are sound, but from another release.
#[derive(Debug, PartialEq, Eq)]
pub enum Bad {
    /// This version, which is not [`VERSION`].
    Version(u8),
    /// What is wrong with them.
    What(&'static str),
}

/// A block of 4096 bytes whose last four are the CRC32C of the rest: those of FORMAT, segment header, trailer.
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

/// The first block of `FORMAT`: the number of the log, which is in all its segments.
pub fn encode_format(store: u64) -> Vec<u8> {
    seal_block(FORMAT_MAGIC, &[store])
}

/// The number of the log.
pub fn decode_format(block: &[u8]) -> Result<u64, Bad> {
    open_block::<1>(block, FORMAT_MAGIC).map(|[store]| store)
}

/// A segment and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentRef {
    /// The segment's number; 0: none.
    pub seq: u64,
    /// The number in its file's name, to name the file when it is gone.
    pub slot: u64,
}

/// The segments that must be there, as FORMAT has them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentList {
    /// Counts how often they were written; the parity says in which of two blocks.
    pub turn: u64,
    /// The one that takes frames; it may be empty.
    pub newest: SegmentRef,
    /// Those with frames before it, oldest first; of more than [`MAX_NAMES`] the newest.
    pub before: Vec<SegmentRef>,
}

/// As many as a block holds.
pub const MAX_NAMES: usize = 252;
const NAME_NUMBERS: usize = 5 + 2 * MAX_NAMES;

impl SegmentList {
    /// A block that says which log's segments they are; durable once it is written.
    pub fn encode(&self, store: u64) -> Vec<u8> {
        let SegmentList { turn, newest, before } = self;
        let mut numbers = vec![store, *turn, newest.seq, newest.slot, before.len() as u64];
        numbers.extend(before.iter().flat_map(|place| [place.seq, place.slot]));
        seal_block(NAMES_MAGIC, &numbers)
    }

    /// Refuses names of another log than `want_store`.
    pub fn decode(block: &[u8], want_store: u64) -> Result<SegmentList, Bad> {
        let numbers: [u64; NAME_NUMBERS] = open_block(block, NAMES_MAGIC)?;
        let [store, turn, seq, slot, n] = std::array::from_fn(|i| numbers[i]);
        if store != want_store || n > MAX_NAMES as u64 {
            return Err(Bad::What("names of another log's segments"));
        }
        let pairs = numbers[5..].chunks_exact(2).take(n as usize);
        let before = pairs.map(|pair| SegmentRef { seq: pair[0], slot: pair[1] }).collect();
        Ok(SegmentList { turn, newest: SegmentRef { seq, slot }, before })
    }
}

/// What a segment file says of its present use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The number of the log.
    pub store: u64,
    /// Order of the segments; a file gets a new number each time it is used again.
    pub seq: u64,
    /// Drawn anew for each use.
    pub salt: u64,
    /// The file is never shorter than this until it is sealed.
    pub reserved_bytes: u64,
    /// Frames start at multiples of this.
    pub unit: u64,
}

impl SegmentHeader {
    /// One of the two copies at the head of the file.
    pub fn encode(&self) -> Vec<u8> {
        let SegmentHeader { store, seq, salt, reserved_bytes, unit } = *self;
        seal_block(SEGMENT_MAGIC, &[store, seq, salt, reserved_bytes, unit])
    }

    /// Refuses damage, other versions and units that cannot be.
    pub fn decode(block: &[u8]) -> Result<SegmentHeader, Bad> {
        let [store, seq, salt, reserved_bytes, unit] = open_block(block, SEGMENT_MAGIC)?;
        if !unit.is_power_of_two() || !(PACKED_UNIT..=BLOCK).contains(&unit) {
            return Err(Bad::What("impossible unit of a segment"));
        }
        Ok(SegmentHeader { store, seq, salt, reserved_bytes, unit })
    }
}

/// Last block of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// That of the segment's header: a trailer of an earlier use of the file has another one.
    pub salt: u64,
    /// Where the seal begins.
    pub seal_offset: u64,
    /// End of the last frame.
    pub frames_end: u64,
    /// Without the seal.
    pub n_frames: u64,
    /// Of the first batch in the segment.
    pub first_lsn: u64,
    /// The chain: CRC of the frame before the first, and of the last.
    pub first_prev_crc: u32,
    /// Of the header of the last frame.
    pub last_crc: u32,
}

impl Trailer {
    /// The last block of the file.
    pub fn encode(&self) -> Vec<u8> {
        let Trailer { salt, seal_offset, frames_end, n_frames, first_lsn, first_prev_crc, last_crc } = *self;
        let crcs = u64::from(first_prev_crc) << 32 | u64::from(last_crc);
        seal_block(TRAILER_MAGIC, &[salt, seal_offset, frames_end, n_frames, first_lsn, crcs])
    }

    /// Refuses damage and other versions.
    pub fn decode(block: &[u8]) -> Result<Trailer, Bad> {
        let [salt, seal_offset, frames_end, n_frames, first_lsn, crcs] = open_block(block, TRAILER_MAGIC)?;
        let (first_prev_crc, last_crc) = ((crcs >> 32) as u32, crcs as u32);
        Ok(Trailer { salt, seal_offset, frames_end, n_frames, first_lsn, first_prev_crc, last_crc })
    }
}

/// What a frame header opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A group commit: batches.
    Frame,
    /// The index of a sealed segment: the heads and metas of all its batches.
    Seal,
}

/// Opens a frame and a seal alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Frame or seal.
    pub kind: FrameKind,
    /// That of the segment: frames of an earlier use of the file have another one.
    pub salt: u64,
    /// Counts batches over all segments: of the first batch in a frame, of the batch after the last one in a seal.
    pub lsn: u64,
    /// Counts the frames of the segment, from 0; in a seal, how many there are.
    pub ordinal: u32,
    /// So many frames of the segment were acknowledged when this was written; 0 where frames are not flushed.
    pub acknowledged: u32,
    /// In the frame; in a seal, in the segment.
    pub n_batches: u32,
    /// CRC of the header before this one, over segments: the chain.
    pub prev_crc: u32,
    /// Behind the header, without padding.
    pub payload_bytes: u32,
    /// Of the batch heads; of a seal's whole payload.
    pub payload_crc: u32,
    /// Of the header's other bytes.
    pub crc: u32,
}

impl FrameHeader {
    /// Encodes; sets `payload_crc`, over `covered`, and `crc`.
    pub fn encode<'a>(&mut self, covered: impl Iterator<Item = &'a [u8]>) -> [u8; FRAME_HEADER] {
        self.payload_crc = covered.fold(0, crc32c::crc32c_append);
        let mut out = [0; FRAME_HEADER];
        let mut buf = &mut out[..];
        buf.put_u32_le(if self.kind == FrameKind::Frame { FRAME_MAGIC } else { SEAL_MAGIC });
        buf.put_u32_le(u32::from(VERSION));
        buf.put_u64_le(self.salt);
        buf.put_u64_le(self.lsn);
        buf.put_u32_le(self.ordinal);
        buf.put_u32_le(self.acknowledged);
        buf.put_u32_le(self.n_batches);
        buf.put_u32_le(self.prev_crc);
        buf.put_u32_le(self.payload_bytes);
        buf.put_u32_le(self.payload_crc);
        self.crc = crc32c::crc32c(&out[..48]);
        out[48..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// A whole header. What follows it is not looked at.
    pub fn decode(bytes: &[u8]) -> Option<FrameHeader> {
        if bytes.len() < FRAME_HEADER || bytes[4..8] != [VERSION, 0, 0, 0] {
            return None;
        }
        let kind = match u32_at(bytes, 0) {
            FRAME_MAGIC => FrameKind::Frame,
            SEAL_MAGIC => FrameKind::Seal,
            _ => return None,
        };
        let crc = u32_at(bytes, 48);
        if crc32c::crc32c(&bytes[..48]) != crc {
            return None;
        }
        Some(FrameHeader {
            kind,
            salt: u64_at(bytes, 8),
            lsn: u64_at(bytes, 16),
            ordinal: u32_at(bytes, 24),
            acknowledged: u32_at(bytes, 28),
            n_batches: u32_at(bytes, 32),
            prev_crc: u32_at(bytes, 36),
            payload_bytes: u32_at(bytes, 40),
            payload_crc: u32_at(bytes, 44),
            crc,
        })
    }

    /// Whether these are the bytes that the header was made for: batch heads, or a seal's payload.
    pub fn payload_matches<'a>(&self, covered: impl Iterator<Item = &'a [u8]>) -> bool {
        covered.fold(0, crc32c::crc32c_append) == self.payload_crc
    }
}

/// Fills the first [`BATCH_HEAD`] bytes of `head_and_meta`, once the meta behind them is complete. `meta_crc` is the
/// CRC32C of the meta up to `checked` (of nothing: 0), so that what was known early is checksummed early.
pub fn finish_batch_head(head_and_meta: &mut [u8], data_bytes: u32, meta_crc: u32, checked: usize) {
    let crc = crc32c::crc32c_append(meta_crc, &head_and_meta[BATCH_HEAD + checked..]);
    let meta_bytes = (head_and_meta.len() - BATCH_HEAD) as u32;
    let mut buf = &mut head_and_meta[..BATCH_HEAD];
    buf.put_u32_le(BATCH_MAGIC);
    buf.put_u32_le(meta_bytes);
    buf.put_u32_le(data_bytes);
    buf.put_u32_le(crc);
}

/// Length of meta and of data.
pub fn decode_batch_head(bytes: &[u8]) -> Option<(usize, usize)> {
    if bytes.len() < BATCH_HEAD || u32_at(bytes, 0) != BATCH_MAGIC {
        return None;
    }
    Some((u32_at(bytes, 4) as usize, u32_at(bytes, 8) as usize))
}

/// One batch as a frame or a seal shows it.
#[derive(Clone)]
pub struct BatchView<'a> {
    /// Its number, over all segments.
    pub lsn: u64,
    /// Not checked yet: see [`BatchView::meta_matches`].
    pub head_and_meta: &'a [u8],
    /// Where its data lies in the segment file.
    pub data_offset: u64,
    /// How long the data is.
    pub data_bytes: usize,
}

impl BatchView<'_> {
    /// The records.
    pub fn meta(&self) -> &[u8] {
        &self.head_and_meta[BATCH_HEAD..]
    }

    /// Whether the meta is what its head was made for; the head itself is under the frame's CRC.
    pub fn meta_matches(&self) -> bool {
        crc32c::crc32c(self.meta()) == u32_at(self.head_and_meta, 12)
    }
}

/// Walks the batches of a frame's payload that starts at `offset` of the file; `None` when lengths do not add up.
/// Heads are not yet checked against the frame's CRC, metas not against their heads.
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

/// Adds a batch to a seal.
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
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn header(kind: FrameKind) -> FrameHeader {
        let (payload_crc, crc) = (0, 0);
        FrameHeader {
            kind,
            salt: 7,
            lsn: 9,
            ordinal: 4,
            acknowledged: 3,
            n_batches: 2,
            prev_crc: 5,
            payload_bytes: 100,
            payload_crc,
            crc,
        }
    }

    proptest! {
        #[test]
        fn any_bytes_walk_without_panic(bytes in vec(any::<u8>(), 0..200)) {
            let _ = decode_batch_head(&bytes);
            if let Some(header) = FrameHeader::decode(&bytes) {
                let _ = walk_frame(&header, &bytes, 0);
            }
            let header = FrameHeader { lsn: u64::MAX, n_batches: u32::MAX, ..header(FrameKind::Seal) };
            let _ = walk_frame(&header, &bytes, 0);
            let _ = walk_seal(&header, &bytes);
        }

        #[test]
        fn blocks_round_trip_and_every_flip_is_seen(seq: u64, salt: u64, at in 0usize..4096, bit in 0u8..8) {
            let header = SegmentHeader { store: 1, seq, salt, reserved_bytes: 9, unit: 4096 };
            let mut block = header.encode();
            prop_assert_eq!(SegmentHeader::decode(&block), Ok(header));
            block[at] ^= 1 << bit;
            prop_assert!(SegmentHeader::decode(&block).is_err());
            let trailer = Trailer { salt, seal_offset: 1, frames_end: 2, n_frames: 3, first_lsn: seq, first_prev_crc: 5, last_crc: 6 };
            prop_assert_eq!(Trailer::decode(&trailer.encode()), Ok(trailer));
            for n in [0, 1, MAX_NAMES] {
                let before = (0..n as u64).map(|i| SegmentRef { seq: i, slot: salt }).collect();
                let names = SegmentList { turn: salt, newest: SegmentRef { seq, slot: 2 }, before };
                prop_assert!(SegmentList::decode(&names.encode(1), 2).is_err());
                prop_assert_eq!(SegmentList::decode(&names.encode(1), 1), Ok(names));
            }
        }

        #[test]
        fn frames_end_on_their_unit(offset in 0u64..1 << 30, payload in 0u64..1 << 20) {
            let offset = offset.next_multiple_of(BLOCK);
            for unit in [PACKED_UNIT, BLOCK] {
                let end = frame_end(offset, payload, unit);
                prop_assert!(end >= offset + 52 + payload && end.is_multiple_of(unit) && end < offset + 52 + payload + BLOCK);
                prop_assert!(payload < LONG_FRAME || end.is_multiple_of(BLOCK));
            }
        }
    }

    #[test]
    fn frame_header_round_trips_and_every_flip_is_seen() {
        let mut header = header(FrameKind::Frame);
        let bytes = header.encode([&b"ab"[..], b"c"].into_iter());
        let read = FrameHeader::decode(&bytes).expect("own header");
        assert_eq!(read, header);
        assert!(read.payload_matches([&b"abc"[..]].into_iter()));
        assert!(!read.payload_matches([&b"abd"[..]].into_iter()));
        for at in 0..FRAME_HEADER {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            assert_eq!(FrameHeader::decode(&flipped), None);
        }
    }
}
