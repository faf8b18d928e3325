//! Where does each live entry of a group lie?
//!
//! Indexes of a group are dense and short-lived, so the index is an array per group in memory: chunks of
//! consecutive entries in one segment, 12 bytes an entry, beside term runs and a byte total. Nothing here does I/O.
//!
//! Invariants: chunks cover exactly `floor+1 ..= last`, in order and without gap; term runs cover the same.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

/// All of a group but its entries. Small: it is written whole whenever a part of it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Entries up to here are purged.
    pub floor: u64,
    pub floor_term: u64,
    pub last: u64,
    pub state: Option<Bytes>,
    pub pairs: Arc<BTreeMap<Bytes, Bytes>>,
    /// The group is gone, but older segments may still hold bytes of it.
    pub destroyed: bool,
}

/// Place of one payload in its segment file, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loc {
    pub offset: u32,
    pub len: u32,
    pub crc: u32,
}

#[derive(Debug)]
struct Chunk {
    segment: u64,
    first: u64,
    locs: VecDeque<Loc>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.first + self.locs.len() as u64
    }
}

/// Told of every run of entries that dies: (segment, entries, bytes).
pub type Killed<'a> = &'a mut dyn FnMut(u64, u64, u64);

#[derive(Debug, Default)]
pub struct Group {
    pub meta: Meta,
    /// Segment and size of the newest group record, if one was ever written.
    pub record: Option<(u64, u64)>,
    chunks: VecDeque<Chunk>,
    /// (first index, term).
    runs: VecDeque<(u64, u64)>,
    pub bytes: u64,
}

impl Group {
    /// A group of which nothing but the purged floor is known yet.
    pub fn empty(meta: Meta, record: Option<(u64, u64)>) -> Group {
        Group { meta: Meta { last: meta.floor, ..meta }, record, ..Group::default() }
    }

    /// Adds entries after the last. `runs` are (count, term).
    pub fn append(&mut self, runs: &[(u64, u64)], segment: u64, locs: impl Iterator<Item = Loc>) {
        let first = self.meta.last + 1;
        let mut at = first;
        for &(n, term) in runs {
            if self.runs.back().is_none_or(|&(_, last)| last != term) {
                self.runs.push_back((at, term));
            }
            at += n;
        }
        if self.chunks.back().is_none_or(|chunk| chunk.segment != segment) {
            self.chunks.push_back(Chunk { segment, first, locs: VecDeque::new() });
        }
        let Some(chunk) = self.chunks.back_mut() else { return };
        let before = chunk.locs.len();
        chunk.locs.extend(locs);
        self.bytes += chunk.locs.iter().skip(before).map(|loc| u64::from(loc.len)).sum::<u64>();
        self.meta.last = chunk.end() - 1;
        assert_eq!(self.meta.last + 1, at, "term runs and locations count the same entries");
    }

    /// Drops entries after `index`.
    pub fn truncate_after(&mut self, index: u64, killed: Killed<'_>) {
        while let Some(chunk) = self.chunks.back_mut() {
            if chunk.end() <= index + 1 {
                break;
            }
            let keep = (index + 1).saturating_sub(chunk.first) as usize;
            kill(&mut self.bytes, chunk.segment, chunk.locs.range(keep..), killed);
            chunk.locs.truncate(keep);
            if keep > 0 {
                break;
            }
            self.chunks.pop_back();
        }
        while self.runs.back().is_some_and(|&(first, _)| first > index) {
            self.runs.pop_back();
        }
        self.meta.last = self.meta.last.min(index);
    }

    /// Drops entries up to `upto`; beyond the last, the log restarts empty after `upto`.
    pub fn purge(&mut self, upto: u64, term: u64, killed: Killed<'_>) {
        while let Some(chunk) = self.chunks.front_mut() {
            if chunk.first > upto {
                break;
            }
            let drop = ((upto + 1 - chunk.first) as usize).min(chunk.locs.len());
            kill(&mut self.bytes, chunk.segment, chunk.locs.range(..drop), killed);
            if drop < chunk.locs.len() {
                chunk.locs.drain(..drop);
                chunk.first += drop as u64;
                break;
            }
            self.chunks.pop_front();
        }
        while self.runs.get(1).is_some_and(|&(first, _)| first <= upto + 1) {
            self.runs.pop_front();
        }
        if upto >= self.meta.last {
            self.runs.clear();
        } else if let Some(front) = self.runs.front_mut() {
            front.0 = front.0.max(upto + 1);
        }
        self.meta.floor = upto;
        self.meta.floor_term = term;
        self.meta.last = self.meta.last.max(upto);
    }

    /// Drops every entry and everything known.
    pub fn clear(&mut self, killed: Killed<'_>) {
        self.truncate_after(self.meta.floor, killed);
        self.meta = Meta::default();
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

    /// Live entries from `lo` on, in order: (index, segment, place).
    pub fn locate(&self, lo: u64) -> impl Iterator<Item = (u64, u64, Loc)> {
        let start = self.chunks.partition_point(|chunk| chunk.end() <= lo);
        self.chunks.range(start..).flat_map(move |chunk| {
            let skip = lo.saturating_sub(chunk.first) as usize;
            chunk.locs.iter().enumerate().skip(skip).map(move |(i, &loc)| (chunk.first + i as u64, chunk.segment, loc))
        })
    }

    /// Runs of live entries in `segment`: half-open ranges, ascending.
    pub fn ranges_in(&self, segment: u64) -> Vec<std::ops::Range<u64>> {
        self.chunks.iter().filter(|c| c.segment == segment).map(|c| c.first..c.end()).collect()
    }

    /// Whether `range` is live and wholly in one chunk of `segment`.
    pub fn holds(&self, range: &std::ops::Range<u64>, segment: u64) -> bool {
        let at = self.chunks.partition_point(|chunk| chunk.end() <= range.start);
        self.chunks.get(at).is_some_and(|c| c.segment == segment && c.first <= range.start && range.end <= c.end())
    }

    /// Points the entries from `first` on, which one chunk must hold, to their copies in `segment`.
    pub fn relocate(&mut self, first: u64, segment: u64, locs: VecDeque<Loc>, killed: Killed<'_>) {
        let at = self.chunks.partition_point(|chunk| chunk.end() <= first);
        let end = first + locs.len() as u64;
        let Some(mut old) = self.chunks.remove(at) else { return };
        let tail = Chunk { segment: old.segment, first: end, locs: old.locs.split_off((end - old.first) as usize) };
        let moved = old.locs.split_off((first - old.first) as usize);
        let bytes = moved.iter().map(|loc| u64::from(loc.len)).sum();
        killed(old.segment, moved.len() as u64, bytes);
        let parts = [old, Chunk { segment, first, locs }, tail];
        for part in parts.into_iter().rev().filter(|part| !part.locs.is_empty()) {
            self.chunks.insert(at, part);
        }
    }
}

fn kill<'a>(total: &mut u64, segment: u64, locs: impl ExactSizeIterator<Item = &'a Loc>, killed: Killed<'_>) {
    let n = locs.len() as u64;
    let bytes = locs.map(|loc| u64::from(loc.len)).sum();
    *total -= bytes;
    killed(segment, n, bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Append { n: u64, term: u64, segment: u64 },
        Truncate(u64),
        Purge(u64),
        Relocate(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1u64..6, 0u64..3, 0u64..2).prop_map(|(n, term, segment)| Step::Append { n, term, segment }),
            1 => (0u64..30).prop_map(Step::Truncate),
            1 => (0u64..30).prop_map(Step::Purge),
            1 => (0u64..30).prop_map(Step::Relocate),
        ];
        proptest::collection::vec(step, 0..40)
    }

    proptest! {
        /// The model is a map from index to (term, segment, place).
        #[test]
        fn index_equals_a_map(steps in steps()) {
            let mut group = Group::default();
            let mut model: BTreeMap<u64, (u64, u64, Loc)> = BTreeMap::new();
            let mut live = BTreeMap::<u64, (i64, i64)>::new();
            let (mut floor, mut last, mut term_now, mut segment_now, mut offset) = (0, 0, 1, 0, 0u32);
            for step in steps {
                let mut dead = Vec::new();
                let mut killed = |segment: u64, n: u64, bytes: u64| dead.push((segment, n as i64, bytes as i64));
                match step {
                    Step::Append { n, term, segment } => {
                        term_now += term;
                        segment_now += segment;
                        let locs: Vec<Loc> = (0..n).map(|i| Loc { offset: offset + i as u32, len: i as u32 + 1, crc: 0 }).collect();
                        offset += n as u32;
                        group.append(&[(n, term_now)], segment_now, locs.iter().copied());
                        for loc in locs {
                            last += 1;
                            model.insert(last, (term_now, segment_now, loc));
                            let entry = live.entry(segment_now).or_default();
                            *entry = (entry.0 + 1, entry.1 + i64::from(loc.len));
                        }
                    }
                    Step::Truncate(index) => {
                        let index = index.clamp(floor, last);
                        group.truncate_after(index, &mut killed);
                        model.split_off(&(index + 1));
                        last = index;
                    }
                    Step::Purge(upto) => {
                        let upto = upto.max(floor);
                        let term = group.term(upto).unwrap_or(term_now);
                        group.purge(upto, term, &mut killed);
                        model = model.split_off(&(upto + 1));
                        floor = upto;
                        last = last.max(upto);
                    }
                    Step::Relocate(at) => {
                        let Some((_, segment, _)) = group.locate(at.max(floor + 1)).next() else { continue };
                        let range = group.ranges_in(segment)[0].clone();
                        let range = range.start + (range.end - range.start) / 3..range.end;
                        prop_assert!(group.holds(&range, segment));
                        segment_now += 1;
                        let locs: VecDeque<Loc> = group.locate(range.start).take((range.end - range.start) as usize).map(|l| l.2).collect();
                        for index in range.clone() {
                            let entry = model.get_mut(&index).unwrap();
                            entry.1 = segment_now;
                            let total = live.entry(segment_now).or_default();
                            *total = (total.0 + 1, total.1 + i64::from(entry.2.len));
                        }
                        group.relocate(range.start, segment_now, locs, &mut killed);
                    }
                }
                for (segment, n, bytes) in dead {
                    let entry = live.entry(segment).or_default();
                    *entry = (entry.0 - n, entry.1 - bytes);
                }
                prop_assert_eq!((group.meta.floor, group.meta.last), (floor, last));
                let located: Vec<_> = group.locate(0).map(|(i, s, l)| (i, (group.term(i).unwrap(), s, l))).collect();
                prop_assert_eq!(located, model.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
                prop_assert_eq!(group.bytes, model.values().map(|v| u64::from(v.2.len)).sum::<u64>());
                for (&segment, &(n, bytes)) in &live {
                    let of = model.values().filter(|v| v.1 == segment);
                    prop_assert_eq!((n, bytes), of.fold((0, 0), |sum, v| (sum.0 + 1, sum.1 + i64::from(v.2.len))));
                }
            }
        }
    }
}
