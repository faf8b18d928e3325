//! Where does each live entry of a group lie?
//!
//! Indexes of a group are dense and short-lived, so the index is an array per group in memory: 12 bytes an entry, in
//! blocks of [`BLOCK_ENTRIES`] that are never reallocated once full. What neighbours share is kept once per run: term,
//! segment, and (per block) the bytes before it. Nothing here does I/O.
//!
//! Invariants: blocks, term runs and segment spans cover exactly `floor+1 ..= last`, in order and without gap; all
//! blocks but the last are full (the first may have a dead front).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::segment::Segment;

/// All of a group but its entries. Small: it is written whole whenever a part of it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Entries up to here are purged.
    pub floor: u64,
    /// The term of the entry at `floor`.
    pub floor_term: u64,
    /// The index of the last entry; `floor` when there is none.
    pub last: u64,
    /// What the host set by [`crate::Batch::state`], such as Raft's hard state.
    pub state: Option<Bytes>,
    /// What the host put beside it, by key.
    pub pairs: Arc<BTreeMap<Bytes, Bytes>>,
    /// The group is gone, but older segments may still hold bytes of it.
    pub destroyed: bool,
    /// Entries from here on, and the state, were acknowledged and are lost: only destroying the group heals it.
    pub damaged: Option<u64>,
}

/// Place of one payload in its segment file, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loc {
    /// Of the payload, or of the packed block that holds it.
    pub offset: u32,
    /// Highest bit: packed. The rest: length of the payload.
    len: u32,
    /// Over group, index, term and payload.
    pub crc: u32,
}

const PACKED: u32 = 1 << 31;

impl Loc {
    /// `len` is below 2 GiB.
    pub fn new(offset: u32, len: u32, crc: u32, packed: bool) -> Loc {
        Loc { offset, len: len | if packed { PACKED } else { 0 }, crc }
    }

    /// Bytes of the payload.
    pub fn len(&self) -> u32 {
        self.len & !PACKED
    }

    /// Whether the payload is in a block of several, at whose head `offset` is.
    pub fn is_packed(&self) -> bool {
        self.len & PACKED != 0
    }
}

const BLOCK_ENTRIES: usize = 128;

struct Block {
    /// Bytes of all entries that were ever in earlier blocks: differences count.
    before: u64,
    locs: Vec<Loc>,
}

/// Told of every run of entries that dies: segment, entries, bytes.
pub type DeadEntriesCallback<'a> = &'a mut dyn FnMut(&Segment, u64, u64);

/// What is known of one group: where its entries lie, and the rest of it.
#[derive(Default)]
pub struct Group {
    /// All but the entries.
    pub meta: Meta,
    /// Segment and size of the newest group record, if one was ever written.
    pub record: Option<(Arc<Segment>, u64)>,
    blocks: VecDeque<Block>,
    /// Index of the first slot of the first block.
    base: u64,
    /// (first index, segment).
    spans: VecDeque<(u64, Arc<Segment>)>,
    /// (first index, term).
    runs: VecDeque<(u64, u64)>,
    /// Payload bytes of all live entries.
    pub bytes: u64,
}

impl Group {
    /// A group of which nothing but the purged floor is known yet.
    pub fn empty(meta: Meta, record: Option<(Arc<Segment>, u64)>) -> Group {
        Group { meta: Meta { last: meta.floor, ..meta }, record, ..Group::default() }
    }

    /// Whether the host made the group, and did not destroy it.
    pub fn is_there(&self) -> bool {
        !self.meta.destroyed && (self.meta.last > 0 || self.record.is_some())
    }

    /// Adds entries after the last. `runs` are (count, term).
    pub fn append(&mut self, runs: &[(u64, u64)], segment: &Arc<Segment>, locs: impl Iterator<Item = Loc>) {
        let first = self.meta.last + 1;
        let mut at = first;
        for &(n, term) in runs {
            if self.runs.back().is_none_or(|&(_, last)| last != term) {
                self.runs.push_back((at, term));
            }
            at += n;
        }
        if self.spans.back().is_none_or(|(_, last)| last.seq != segment.seq) {
            self.spans.push_back((first, Arc::clone(segment)));
        }
        if self.blocks.is_empty() {
            self.base = first;
        }
        let mut last = self.meta.last;
        for loc in locs {
            let slot = (last + 1 - self.base) as usize;
            if slot == self.blocks.len() * BLOCK_ENTRIES {
                let before = self.blocks.back().map_or(0, |b| b.before + total(&b.locs));
                self.blocks.push_back(Block { before, locs: Vec::new() });
            }
            let Some(block) = self.blocks.back_mut() else { return };
            block.locs.push(loc);
            self.bytes += u64::from(loc.len());
            last += 1;
        }
        self.meta.last = last;
        assert_eq!(last + 1, at, "term runs and locations count the same entries");
    }

    /// Drops entries after `index`.
    pub fn truncate_after(&mut self, index: u64, killed: DeadEntriesCallback<'_>) {
        let index = index.max(self.meta.floor);
        if index >= self.meta.last {
            return;
        }
        self.kill(index + 1..self.meta.last + 1, killed);
        let slots = (index + 1 - self.base) as usize;
        self.blocks.truncate(slots.div_ceil(BLOCK_ENTRIES));
        if let Some(back) = self.blocks.back_mut()
            && !slots.is_multiple_of(BLOCK_ENTRIES)
        {
            back.locs.truncate(slots % BLOCK_ENTRIES);
        }
        while self.spans.back().is_some_and(|&(first, _)| first > index) {
            self.spans.pop_back();
        }
        while self.runs.back().is_some_and(|&(first, _)| first > index) {
            self.runs.pop_back();
        }
        self.meta.last = index;
        if self.meta.last == self.meta.floor {
            self.forget_places();
        }
    }

    /// Drops entries up to `upto`; beyond the last, the log restarts empty after `upto`.
    pub fn purge(&mut self, upto: u64, term: u64, killed: DeadEntriesCallback<'_>) {
        if upto > self.meta.floor {
            self.kill(self.meta.floor + 1..upto.min(self.meta.last) + 1, killed);
        }
        if upto >= self.meta.last {
            self.forget_places();
        } else {
            while self.base + BLOCK_ENTRIES as u64 <= upto + 1 && self.blocks.len() > 1 {
                self.blocks.pop_front();
                self.base += BLOCK_ENTRIES as u64;
            }
            while self.spans.get(1).is_some_and(|&(first, _)| first <= upto + 1) {
                self.spans.pop_front();
            }
            while self.runs.get(1).is_some_and(|&(first, _)| first <= upto + 1) {
                self.runs.pop_front();
            }
            if let Some(front) = self.spans.front_mut() {
                front.0 = front.0.max(upto + 1);
            }
            if let Some(front) = self.runs.front_mut() {
                front.0 = front.0.max(upto + 1);
            }
        }
        self.meta.floor = upto;
        self.meta.floor_term = term;
        self.meta.last = self.meta.last.max(upto);
    }

    /// Drops every entry and everything known.
    pub fn clear(&mut self, killed: DeadEntriesCallback<'_>) {
        self.kill(self.meta.floor + 1..self.meta.last + 1, killed);
        self.forget_places();
        self.meta = Meta::default();
    }

    fn forget_places(&mut self) {
        self.blocks = VecDeque::new();
        self.spans = VecDeque::new();
        self.runs = VecDeque::new();
    }

    /// Reports the live entries of `range` as dead; they must still be there.
    fn kill(&mut self, range: Range<u64>, killed: DeadEntriesCallback<'_>) {
        let mut at = range.start;
        while at < range.end {
            let span = self.spans.partition_point(|&(first, _)| first <= at) - 1;
            let end = self.spans.get(span + 1).map_or(range.end, |&(next, _)| next.min(range.end));
            let bytes = self.bytes_before(end) - self.bytes_before(at);
            self.bytes -= bytes;
            killed(&self.spans[span].1, end - at, bytes);
            at = end;
        }
    }

    /// The term of a live entry, or of the floor.
    pub fn term(&self, index: u64) -> Option<u64> {
        if index == self.meta.floor && index > 0 {
            return Some(self.meta.floor_term);
        }
        if index <= self.meta.floor || index > self.meta.last {
            return None;
        }
        let after = self.runs.partition_point(|&(first, _)| first <= index);
        Some(self.runs[after - 1].1)
    }

    /// Payload bytes of the live entries in `range`.
    pub fn bytes_in(&self, range: Range<u64>) -> u64 {
        let (start, end) = (range.start.max(self.meta.floor + 1), range.end.min(self.meta.last + 1));
        if start >= end { 0 } else { self.bytes_before(end) - self.bytes_before(start) }
    }

    /// Bytes of the entries before a live index, or before the end, since an arbitrary point.
    fn bytes_before(&self, index: u64) -> u64 {
        let slot = (index - self.base) as usize;
        match self.blocks.get(slot / BLOCK_ENTRIES) {
            Some(block) => block.before + total(&block.locs[..slot % BLOCK_ENTRIES]),
            None => self.blocks.back().map_or(0, |block| block.before + total(&block.locs)),
        }
    }

    /// The place of a live entry.
    pub fn loc(&self, index: u64) -> Loc {
        let slot = (index - self.base) as usize;
        self.blocks[slot / BLOCK_ENTRIES].locs[slot % BLOCK_ENTRIES]
    }

    /// Live entries from `lo` on, in order: (index, segment, place).
    pub fn locate(&self, lo: u64) -> impl Iterator<Item = (u64, &Arc<Segment>, Loc)> {
        let lo = lo.max(self.meta.floor + 1);
        let mut span = self.spans.partition_point(|&(first, _)| first <= lo).saturating_sub(1);
        (lo..self.meta.last + 1).map(move |index| {
            while self.spans.get(span + 1).is_some_and(|&(first, _)| first <= index) {
                span += 1;
            }
            (index, &self.spans[span].1, self.loc(index))
        })
    }

    /// The segment of the oldest live entry.
    pub fn oldest(&self) -> Option<u64> {
        self.spans.iter().map(|(_, segment)| segment.seq).min()
    }

    /// Runs of live entries in `segment`: half-open ranges, ascending.
    pub fn ranges_in(&self, segment: u64) -> Vec<Range<u64>> {
        let end = |i: usize| self.spans.get(i + 1).map_or(self.meta.last + 1, |&(next, _)| next);
        let spans = self.spans.iter().enumerate().filter(|(_, (_, s))| s.seq == segment);
        spans.map(|(i, &(first, _))| first..end(i)).collect()
    }

    /// Whether `range` is live and wholly in `segment`.
    pub fn holds(&self, range: &Range<u64>, segment: u64) -> bool {
        if range.start <= self.meta.floor || range.end > self.meta.last + 1 {
            return false;
        }
        let span = self.spans.partition_point(|&(first, _)| first <= range.start) - 1;
        let end = self.spans.get(span + 1).map_or(self.meta.last + 1, |&(next, _)| next);
        self.spans[span].1.seq == segment && range.end <= end
    }

    /// Points live entries from `first` on, which one span must hold, to their copies in `segment`.
    pub fn relocate(
        &mut self,
        first: u64,
        segment: &Arc<Segment>,
        locs: impl ExactSizeIterator<Item = Loc>,
        killed: DeadEntriesCallback<'_>,
    ) {
        let end = first + locs.len() as u64;
        let bytes = self.bytes_before(end) - self.bytes_before(first);
        for (index, loc) in (first..).zip(locs) {
            let slot = (index - self.base) as usize;
            self.blocks[slot / BLOCK_ENTRIES].locs[slot % BLOCK_ENTRIES] = loc;
        }
        let at = self.spans.partition_point(|&(start, _)| start <= first) - 1;
        let (start, old) = self.spans[at].clone();
        let after = self.spans.get(at + 1).map_or(self.meta.last + 1, |&(next, _)| next);
        killed(&old, end - first, bytes);
        self.spans.remove(at);
        if end < after {
            self.spans.insert(at, (end, Arc::clone(&old)));
        }
        // Copies made one after another become one span.
        let joins = |span: Option<&(u64, Arc<Segment>)>| span.is_some_and(|(_, s)| s.seq == segment.seq);
        let joins_before = start == first && at > 0 && joins(self.spans.get(at - 1));
        if end == after && joins(self.spans.get(at)) {
            self.spans.remove(at);
        }
        if !joins_before {
            self.spans.insert(at, (first, Arc::clone(segment)));
        }
        if start < first {
            self.spans.insert(at, (start, old));
        }
    }

    /// Memory of the index itself: places, spans and runs with their spare room.
    pub fn index_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(|b| b.locs.capacity() * size_of::<Loc>()).sum::<usize>();
        let runs = self.blocks.capacity() * size_of::<Block>()
            + self.spans.capacity() * size_of::<(u64, Arc<Segment>)>()
            + self.runs.capacity() * size_of::<(u64, u64)>();
        (blocks + runs) as u64
    }
}

fn total(locs: &[Loc]) -> u64 {
    locs.iter().map(|loc| u64::from(loc.len())).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::MemoryDisk;

    #[derive(Debug, Clone)]
    enum IndexOp {
        Append { n: u64, term: u64, segment: u64 },
        Truncate(u64),
        Purge(u64),
        Relocate(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<IndexOp>> {
        let step = prop_oneof![
            4 => (prop_oneof![9 => 1u64..6, 1 => 100u64..300], 0u64..3, 0u64..2)
                .prop_map(|(n, term, segment)| IndexOp::Append { n, term, segment }),
            1 => (0u64..400).prop_map(IndexOp::Truncate),
            1 => (0u64..400).prop_map(IndexOp::Purge),
            1 => (0u64..400).prop_map(IndexOp::Relocate),
        ];
        proptest::collection::vec(step, 0..40)
    }

    fn segment(seq: u64) -> Arc<Segment> {
        Segment::for_tests(&MemoryDisk::new(1), seq)
    }

    proptest! {
        /// The model is a map from index to (term, segment, place).
        #[test]
        fn index_equals_a_map(steps in steps()) {
            let mut group = Group::default();
            let mut model: BTreeMap<u64, (u64, u64, Loc)> = BTreeMap::new();
            let mut live = BTreeMap::<u64, (i64, i64)>::new();
            let (mut floor, mut last, mut term_now, mut segment_now, mut offset) = (0, 0, 1, segment(0), 0u32);
            for step in steps {
                let mut dead = Vec::new();
                let mut killed = |segment: &Segment, n: u64, bytes: u64| dead.push((segment.seq, n as i64, bytes as i64));
                match step {
                    IndexOp::Append { n, term, segment: more } => {
                        term_now += term;
                        if more > 0 {
                            segment_now = segment(segment_now.seq + more);
                        }
                        let locs: Vec<Loc> = (0..n).map(|i| Loc::new(offset + i as u32, i as u32 + 1, 0, i % 2 == 0)).collect();
                        offset += n as u32;
                        group.append(&[(n, term_now)], &segment_now, locs.iter().copied());
                        for loc in locs {
                            last += 1;
                            model.insert(last, (term_now, segment_now.seq, loc));
                            let entry = live.entry(segment_now.seq).or_default();
                            *entry = (entry.0 + 1, entry.1 + i64::from(loc.len()));
                        }
                    }
                    IndexOp::Truncate(index) => {
                        let index = index.clamp(floor, last);
                        group.truncate_after(index, &mut killed);
                        model.split_off(&(index + 1));
                        last = index;
                    }
                    IndexOp::Purge(upto) => {
                        let upto = upto.max(floor);
                        let term = group.term(upto).unwrap_or(term_now);
                        group.purge(upto, term, &mut killed);
                        model = model.split_off(&(upto + 1));
                        floor = upto;
                        last = last.max(upto);
                    }
                    IndexOp::Relocate(at) => {
                        let Some((_, from, _)) = group.locate(at.max(floor + 1)).next() else { continue };
                        let from = from.seq;
                        let range = group.ranges_in(from)[0].clone();
                        let range = range.start + (range.end - range.start) / 3..range.end - (range.end - range.start) / 4;
                        prop_assert!(group.holds(&range, from));
                        segment_now = segment(segment_now.seq + at % 2);
                        if segment_now.seq == from {
                            continue;
                        }
                        let locs: Vec<Loc> = group.locate(range.start).take((range.end - range.start) as usize).map(|l| l.2).collect();
                        for index in range.clone() {
                            let entry = model.get_mut(&index).unwrap();
                            entry.1 = segment_now.seq;
                            let total = live.entry(segment_now.seq).or_default();
                            *total = (total.0 + 1, total.1 + i64::from(entry.2.len()));
                        }
                        group.relocate(range.start, &segment_now, locs.into_iter(), &mut killed);
                    }
                }
                for (segment, n, bytes) in dead {
                    let entry = live.entry(segment).or_default();
                    *entry = (entry.0 - n, entry.1 - bytes);
                }
                prop_assert_eq!((group.meta.floor, group.meta.last), (floor, last));
                let located: Vec<_> = group.locate(0).map(|(i, s, l)| (i, (group.term(i).unwrap(), s.seq, l))).collect();
                prop_assert_eq!(located, model.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
                prop_assert_eq!(group.bytes, model.values().map(|v| u64::from(v.2.len())).sum::<u64>());
                for range in [floor..last / 2, last / 2..last + 5, floor + 3..last] {
                    let want = model.iter().filter(|(i, _)| range.contains(i)).map(|(_, v)| u64::from(v.2.len())).sum::<u64>();
                    prop_assert_eq!(group.bytes_in(range), want);
                }
                for (&segment, &(n, bytes)) in &live {
                    let of = model.values().filter(|v| v.1 == segment);
                    prop_assert_eq!((n, bytes), of.fold((0, 0), |sum, v| (sum.0 + 1, sum.1 + i64::from(v.2.len()))));
                }
            }
        }
    }

    #[test]
    fn a_million_entries_take_under_sixteen_bytes_each() {
        let mut groups: Vec<Group> = (0..1000).map(|_| Group::default()).collect();
        let mut segment_now = segment(0);
        for round in 0..1000u64 {
            if round % 60 == 0 {
                segment_now = segment(round / 60);
            }
            for group in &mut groups {
                group.append(
                    &[(1, round / 100)],
                    &segment_now,
                    std::iter::once(Loc::new(round as u32, 1000, 1, false)),
                );
            }
        }
        let bytes: u64 = groups.iter().map(|group| group.index_bytes() + size_of::<Group>() as u64).sum();
        assert!(bytes <= 16_000_000, "{bytes} bytes for a million entries");
    }
}
