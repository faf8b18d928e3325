//! What does the meta of a batch say?
//!
//! A list of records: entries with their lengths and checksums, and groups as they are after the batch. Entries of one
//! record may be *packed*: their payloads are then one LZ4 block in the batch's data, which says of itself where each
//! entry lies, so that a place of 12 bytes in memory finds any of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes};

use crate::format::{u32_at, u64_at};
use crate::index::Meta;

const KIND_APPEND: u8 = 1;
const KIND_REWRITE: u8 = 2;
const KIND_GROUP: u8 = 3;
/// Added to the kind of an entries record whose payloads are packed.
const PACKED: u8 = 16;
const FLAG_DESTROYED: u8 = 1;
const FLAG_STATE: u8 = 2;
const FLAG_DAMAGED: u8 = 4;

/// What identifies an entry is under its checksum, so that bytes of another entry never pass for it.
pub fn entry_crc(group: u64, index: u64, term: u64, payload: &[u8]) -> u32 {
    let mut id = [0; 24];
    id[..8].copy_from_slice(&group.to_le_bytes());
    id[8..16].copy_from_slice(&index.to_le_bytes());
    id[16..].copy_from_slice(&term.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&id), payload)
}

/// LEB128: one to ten bytes.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Entries `first ..` of a group, as they are written.
pub struct NewEntries<'a> {
    /// Whose entries they are.
    pub group: u64,
    /// The index of the first.
    pub first: u64,
    /// (number of entries, term), in index order.
    pub runs: &'a [(u64, u64)],
    /// (payload length, entry CRC).
    pub table: &'a [(u32, u32)],
    /// Copies made by garbage collection; the same to a reader.
    pub rewrite: bool,
    /// The block that holds the payloads, if they are packed.
    pub block: Option<&'a [u8]>,
}

/// Adds the record; the payloads themselves are the batch's data.
pub fn encode_entries(out: &mut Vec<u8>, entries: &NewEntries<'_>) {
    let kind = if entries.rewrite { KIND_REWRITE } else { KIND_APPEND };
    out.push(kind + if entries.block.is_some() { PACKED } else { 0 });
    put_varint(out, entries.group);
    put_varint(out, entries.first);
    put_varint(out, entries.runs.len() as u64);
    for &(n, term) in entries.runs {
        put_varint(out, n);
        put_varint(out, term);
    }
    put_varint(out, entries.table.len() as u64);
    for &(len, _) in entries.table {
        put_varint(out, u64::from(len));
    }
    for &(_, crc) in entries.table {
        out.put_u32_le(crc);
    }
    if let Some(block) = entries.block {
        put_varint(out, block.len() as u64);
        out.put_u32_le(crc32c::crc32c(block));
    }
}

/// Adds a record of all of a group but its entries. The newest one of a group counts.
pub fn encode_group(out: &mut Vec<u8>, group: u64, meta: &Meta) {
    out.push(KIND_GROUP);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(
        flag(meta.destroyed, FLAG_DESTROYED)
            | flag(meta.state.is_some(), FLAG_STATE)
            | flag(meta.damaged.is_some(), FLAG_DAMAGED),
    );
    put_varint(out, group);
    put_varint(out, meta.floor);
    put_varint(out, meta.floor_term);
    put_varint(out, meta.last);
    if let Some(from) = meta.damaged {
        put_varint(out, from);
    }
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

/// One record, not yet taken apart.
#[derive(Debug, Clone, Copy)]
pub enum RecordView<'a> {
    /// Entries of one group, in index order.
    Entries(EntriesView<'a>),
    /// All that is known of a group but its entries, which it clips to `(floor, last]`. The newest one counts.
    Group(GroupView<'a>),
}

/// Entries of a record whose lengths and counts were found to agree.
#[derive(Debug, Clone, Copy)]
pub struct EntriesView<'a> {
    /// Whose entries they are.
    pub group: u64,
    /// The index of the first.
    pub first: u64,
    /// How many.
    pub n: usize,
    /// Length and CRC of the packed block.
    pub block: Option<(u32, u32)>,
    /// Bytes of the record's part of the batch's data.
    pub data_bytes: u64,
    /// Payload bytes.
    pub raw_bytes: u64,
    runs: &'a [u8],
    lens: &'a [u8],
    crcs: &'a [u8],
}

/// One entry of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryLine {
    /// Its place in the group.
    pub index: u64,
    /// The term of its leader.
    pub term: u64,
    /// Bytes of the payload.
    pub len: u32,
    /// Over group, index, term and payload.
    pub crc: u32,
}

impl EntriesView<'_> {
    /// The entries in order.
    pub fn lines(&self) -> impl Iterator<Item = EntryLine> {
        let (mut runs, mut lens) = (Input(self.runs), Input(self.lens));
        let (mut left, mut term) = (0, 0);
        (0..self.n).map(move |i| {
            while left == 0 {
                left = runs.varint().unwrap_or(u64::MAX);
                term = runs.varint().unwrap_or_default();
            }
            left -= 1;
            let len = lens.varint().unwrap_or_default() as u32;
            EntryLine { index: self.first + i as u64, term, len, crc: u32_at(self.crcs, 4 * i) }
        })
    }

    /// Whether `data`, this record's part of the batch's data, is what was written.
    pub fn data_matches(&self, data: &[u8]) -> bool {
        if let Some((len, crc)) = self.block {
            return data.len() == len as usize && crc32c::crc32c(data) == crc;
        }
        let mut rest = data;
        for line in self.lines() {
            let Some((payload, after)) = rest.split_at_checked(line.len as usize) else { return false };
            if entry_crc(self.group, line.index, line.term, payload) != line.crc {
                return false;
            }
            rest = after;
        }
        rest.is_empty()
    }
}

/// A group record whose head was read.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'a> {
    /// Whose record it is.
    pub group: u64,
    /// Entries up to here are purged.
    pub floor: u64,
    /// Entries after it do not count.
    pub last: u64,
    /// Of the record.
    pub size_bytes: usize,
    record: &'a [u8],
}

impl GroupView<'_> {
    /// The whole of it, copied.
    pub fn meta(&self) -> Meta {
        let mut input = Input(self.record);
        input.group_meta().unwrap_or_default()
    }
}

/// All records of a batch's meta, in order. `None` when the bytes are not exactly a list of records.
pub fn decode_records(meta: &[u8]) -> Option<Vec<RecordView<'_>>> {
    let mut records = Vec::with_capacity(1);
    let mut rest = meta;
    while !rest.is_empty() {
        let (record, after) = decode_record(rest)?;
        records.push(record);
        rest = after;
    }
    Some(records)
}

/// The first record, and what follows it.
pub fn decode_record(bytes: &[u8]) -> Option<(RecordView<'_>, &[u8])> {
    let mut input = Input(bytes);
    let record = match input.byte()? {
        KIND_APPEND | KIND_REWRITE => RecordView::Entries(input.entries(false)?),
        kind if kind == KIND_APPEND + PACKED || kind == KIND_REWRITE + PACKED => {
            RecordView::Entries(input.entries(true)?)
        }
        KIND_GROUP => RecordView::Group(input.group(bytes)?),
        _ => return None,
    };
    Some((record, input.0))
}

#[derive(Clone, Copy)]
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

    fn slice(&mut self) -> Option<&'a [u8]> {
        let n = self.count(1)?;
        self.take(n)
    }

    fn entries(&mut self, packed: bool) -> Option<EntriesView<'a>> {
        let (group, first) = (self.varint()?, self.varint()?);
        let n_runs = self.count(2)?;
        let (runs, mut counted) = (self.0, 0u64);
        for _ in 0..n_runs {
            let run = self.varint()?;
            if run == 0 {
                return None;
            }
            counted = counted.checked_add(run)?;
            self.varint()?;
        }
        let n = self.count(5)?;
        let (lens, mut raw_bytes) = (self.0, 0u64);
        for _ in 0..n {
            raw_bytes += u64::from(u32::try_from(self.varint()?).ok()?);
        }
        let crcs = self.take(n.checked_mul(4)?)?;
        if n == 0 || counted != n as u64 || first == 0 || first.checked_add(n as u64).is_none() {
            return None;
        }
        let block = match packed {
            true => Some((u32::try_from(self.varint()?).ok()?, u32_at(self.take(4)?, 0))),
            false => None,
        };
        let data_bytes = block.map_or(raw_bytes, |(len, _)| u64::from(len));
        Some(EntriesView { group, first, n, block, data_bytes, raw_bytes, runs, lens, crcs })
    }

    fn group(&mut self, start: &'a [u8]) -> Option<GroupView<'a>> {
        let mut fields = Input(start);
        let (_kind, _flags) = (fields.byte()?, fields.byte()?);
        let (group, floor, _term, last) = (fields.varint()?, fields.varint()?, fields.varint()?, fields.varint()?);
        let mut whole = Input(start);
        whole.skip_group()?;
        self.0 = whole.0;
        let record = &start[..start.len() - whole.0.len()];
        Some(GroupView { group, floor, last, size_bytes: record.len(), record })
    }

    /// Walks a group record and checks it, without copying.
    fn skip_group(&mut self) -> Option<()> {
        let (_kind, flags, _group) = (self.byte()?, self.byte()?, self.varint()?);
        let (floor, _term, last) = (self.varint()?, self.varint()?, self.varint()?);
        if flags & FLAG_DAMAGED != 0 {
            self.varint()?;
        }
        if flags & FLAG_STATE != 0 {
            self.slice()?;
        }
        for _ in 0..self.count(2)? {
            self.slice()?;
            self.slice()?;
        }
        let sound = last >= floor && last != u64::MAX && flags <= FLAG_DESTROYED | FLAG_STATE | FLAG_DAMAGED;
        sound.then_some(())
    }

    fn group_meta(&mut self) -> Option<Meta> {
        let (_kind, flags, _group) = (self.byte()?, self.byte()?, self.varint()?);
        let (floor, floor_term, last) = (self.varint()?, self.varint()?, self.varint()?);
        let damaged = if flags & FLAG_DAMAGED != 0 { Some(self.varint()?) } else { None };
        let state = if flags & FLAG_STATE != 0 { Some(Bytes::copy_from_slice(self.slice()?)) } else { None };
        let mut pairs = BTreeMap::new();
        for _ in 0..self.count(2)? {
            pairs.insert(Bytes::copy_from_slice(self.slice()?), Bytes::copy_from_slice(self.slice()?));
        }
        let destroyed = flags & FLAG_DESTROYED != 0;
        Some(Meta { floor, floor_term, last, state, pairs: Arc::new(pairs), destroyed, damaged })
    }
}

/// Before the LZ4 bytes of a packed block: their length, the length of what they hold, the first index.
pub const BLOCK_HEAD: usize = 16;
/// Payloads of a record shorter than this are not packed.
pub const PACK_BYTES: usize = 4096;

/// Packs the payloads of entries `first ..`, if that saves at least an eighth; what is packed begins with the number of
/// entries and their lengths.
pub fn pack(first: u64, table: &[(u32, u32)], payloads: &[u8]) -> Option<Vec<u8>> {
    let worth = |packed: usize, raw: usize| packed < raw - raw / 8;
    if payloads.len() < PACK_BYTES || payloads.len() > 1 << 30 {
        return None;
    }
    if payloads.len() >= 4 * PACK_BYTES {
        // A look at the middle costs little and spares the rest when the payload is random.
        let middle = payloads.len() / 2;
        let sample = &payloads[middle..middle + PACK_BYTES];
        let mut out = [0; 2 * PACK_BYTES];
        if !lz4_flex::block::compress_into(sample, &mut out).is_ok_and(|len| worth(len, PACK_BYTES)) {
            return None;
        }
    }
    let mut raw = Vec::with_capacity(4 + 4 * table.len() + payloads.len());
    raw.put_u32_le(table.len() as u32);
    table.iter().for_each(|&(len, _)| raw.put_u32_le(len));
    raw.extend_from_slice(payloads);
    let mut block = vec![0; BLOCK_HEAD + lz4_flex::block::get_maximum_output_size(raw.len())];
    let len = lz4_flex::block::compress_into(&raw, &mut block[BLOCK_HEAD..]).ok()?;
    if !worth(len + BLOCK_HEAD, payloads.len()) {
        return None;
    }
    let mut head = &mut block[..BLOCK_HEAD];
    head.put_u32_le(len as u32);
    head.put_u32_le(raw.len() as u32);
    head.put_u64_le(first);
    block.truncate(BLOCK_HEAD + len);
    block.shrink_to_fit();
    Some(block)
}

/// A packed block, opened.
pub struct UnpackedEntries {
    first: u64,
    raw: Bytes,
    n: usize,
}

/// Length of the block that starts with `head`.
pub fn block_bytes(head: &[u8]) -> Option<usize> {
    (head.len() >= BLOCK_HEAD).then(|| BLOCK_HEAD + u32_at(head, 0) as usize)
}

/// Opens a block. `None` for anything that `pack` does not make. LZ4 gives at most 255 bytes for one.
pub fn unpack(block: &[u8]) -> Option<UnpackedEntries> {
    let len = block_bytes(block)?;
    let raw_bytes = u32_at(block, 4) as usize;
    let lz4 = block.get(BLOCK_HEAD..len)?;
    if raw_bytes < 4 || raw_bytes / 256 > lz4.len() {
        return None;
    }
    let mut raw = vec![0; raw_bytes];
    let got = lz4_flex::block::decompress_into(lz4, &mut raw).ok()?;
    let n = u32_at(&raw, 0) as usize;
    if got != raw_bytes || n.checked_mul(4)? > raw_bytes - 4 {
        return None;
    }
    Some(UnpackedEntries { first: u64_at(block, 8), raw: raw.into(), n })
}

impl UnpackedEntries {
    /// The payload of entry `index`, not yet held against its checksum.
    pub fn payload(&self, index: u64) -> Option<Bytes> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        if at >= self.n {
            return None;
        }
        let len_of = |i: usize| u32_at(&self.raw, 4 + 4 * i) as usize;
        let start = (0..at).try_fold(4 + 4 * self.n, |sum, i| sum.checked_add(len_of(i)))?;
        let end = start.checked_add(len_of(at))?;
        (end <= self.raw.len()).then(|| self.raw.slice(start..end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Record {
        Entries {
            group: u64,
            first: u64,
            runs: Vec<(u64, u64)>,
            table: Vec<(u32, u32)>,
            rewrite: bool,
            block: Option<Vec<u8>>,
        },
        Group(u64, Meta),
    }

    fn entries() -> impl Strategy<Value = Record> {
        (
            any::<u64>(),
            1..u64::MAX / 2,
            vec((1u64..4, any::<u64>()), 1..4),
            any::<bool>(),
            prop::option::of(vec(any::<u8>(), 0..9)),
        )
            .prop_flat_map(|(group, first, runs, rewrite, block)| {
                let n = runs.iter().map(|r| r.0 as usize).sum::<usize>();
                vec(any::<(u32, u32)>(), n).prop_map(move |table| Record::Entries {
                    group,
                    first,
                    runs: runs.clone(),
                    table,
                    rewrite,
                    block: block.clone(),
                })
            })
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..20).prop_map(Bytes::from)
    }

    fn group() -> impl Strategy<Value = Record> {
        let numbers = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>());
        let pairs = btree_map(bytes(), bytes(), 0..4);
        (numbers, prop::option::of(bytes()), pairs, any::<bool>(), any::<Option<u64>>()).prop_map(
            |((group, floor, floor_term, more), state, pairs, destroyed, damaged)| {
                let floor = u64::from(floor);
                let last = floor + u64::from(more);
                Record::Group(
                    group,
                    Meta { floor, floor_term, last, state, pairs: Arc::new(pairs), destroyed, damaged },
                )
            },
        )
    }

    fn same(view: &RecordView<'_>, record: &Record) -> bool {
        match (view, record) {
            (RecordView::Entries(view), Record::Entries { group, first, runs, table, block, .. }) => {
                let terms = runs.iter().flat_map(|&(n, term)| std::iter::repeat_n(term, n as usize));
                let want = (*first..).zip(terms).zip(table).map(|((index, term), &(len, crc))| EntryLine {
                    index,
                    term,
                    len,
                    crc,
                });
                view.lines().eq(want)
                    && (view.group, view.first) == (*group, *first)
                    && view.block.map(|b| b.0) == block.as_ref().map(|b| b.len() as u32)
            }
            (RecordView::Group(view), Record::Group(group, meta)) => {
                view.group == *group && view.meta() == *meta && view.last == meta.last
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn records_round_trip(records in vec(prop_oneof![entries(), group()], 0..6)) {
            let mut out = Vec::new();
            for record in &records {
                match record {
                    Record::Entries { group, first, runs, table, rewrite, block } => encode_entries(&mut out, &NewEntries {
                        group: *group, first: *first, runs, table, rewrite: *rewrite, block: block.as_deref(),
                    }),
                    Record::Group(group, meta) => encode_group(&mut out, *group, meta),
                }
            }
            let views = decode_records(&out).expect("own records");
            prop_assert_eq!(views.len(), records.len());
            prop_assert!(views.iter().zip(&records).all(|(view, record)| same(view, record)));
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes in vec(any::<u8>(), 0..200)) {
            for record in decode_records(&bytes).unwrap_or_default() {
                match record {
                    RecordView::Entries(entries) => { let _ = (entries.lines().count(), entries.data_matches(&bytes)); }
                    RecordView::Group(group) => { let _ = group.meta(); }
                }
            }
            if let Some(block) = unpack(&bytes) {
                (0..300).for_each(|i| drop(block.payload(i)));
            }
        }

        #[test]
        fn packed_entries_come_back(lens in vec(0usize..3000, 1..20), first in 1u64..1000, random: bool) {
            let mut seed = 1u64;
            let payloads: Vec<Vec<u8>> = lens.iter().map(|&len| (0..len).map(|i| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                if random { (seed >> 33) as u8 } else { (i % 7) as u8 }
            }).collect()).collect();
            let table: Vec<_> = payloads.iter().map(|p| (p.len() as u32, 0)).collect();
            let all = payloads.concat();
            match pack(first, &table, &all) {
                None => prop_assert!(random || all.len() < PACK_BYTES),
                Some(block) => {
                    prop_assert_eq!(block_bytes(&block), Some(block.len()));
                    let open = unpack(&block).expect("own block");
                    for (index, payload) in (first..).zip(&payloads) {
                        prop_assert_eq!(open.payload(index), Some(Bytes::from(payload.clone())));
                    }
                    prop_assert_eq!(open.payload(first + payloads.len() as u64), None);
                    prop_assert_eq!(open.payload(first - 1), None);
                }
            }
        }
    }
}
