//! What do all records together say?
//!
//! Batches are taken in LSN order. An entries record puts its entries at their indexes, replacing what is there; a
//! group record removes entries outside `(floor, last]`. Holes are allowed on the way, because segments are used again
//! in any order. Only ranges move while records are replayed; entries are looked at once, when the index is built.
//! Groups do not know of each other: they are dealt out in lots, and threads take lots.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::format::BATCH_HEAD;
use crate::index::{Group, Loc, Meta};
use crate::record::{self, EntriesView, RecordView};
use crate::segment::Segment;
use crate::shards::{self, IdHasher};
use crate::tail::LoadedSegment;

/// One segment's records, taken apart: those of a group are all in one of the lots, in order, so that lots can be
/// worked on side by side.
pub struct SegmentRecords {
    /// The segment that they are from.
    pub loaded: LoadedSegment,
    lots: [Mutex<ReplayRecords>; LOTS],
    n_entries: usize,
    /// Payload and record bytes of all of them.
    pub born_bytes: u64,
}

const LOTS: usize = 8;

fn lot_of(group: u64) -> usize {
    (shards::mix(group) >> 32) as usize % LOTS
}

#[derive(Default)]
struct ReplayRecords {
    records: Vec<RecordRef>,
    /// Places of the entries, record after record.
    locs: Vec<Loc>,
}

/// Entries of one term, or a group record.
struct RecordRef {
    group: u64,
    what: RecordContent,
}

enum RecordContent {
    /// Entries `first ..`; their places start at `locs`.
    Entries { first: u64, n: u32, locs: u32, term: u64 },
    /// Where the record starts in `LoadedSegment::bytes`, and what it clips the group to.
    Group { at: u32, floor: u64, last: u64 },
}

impl SegmentRecords {
    /// Nothing is taken apart yet.
    pub fn new(loaded: LoadedSegment) -> SegmentRecords {
        SegmentRecords { loaded, lots: Default::default(), n_entries: 0, born_bytes: 0 }
    }

    /// Takes all records apart. Runs beside those of other segments.
    pub fn parse(&mut self, path: &Path) -> Result<()> {
        for batch in &self.loaded.batches {
            let corrupt = || Error::corrupt(path, batch.data_offset, format!("batch {} does not decode", batch.lsn));
            let start = batch.head_and_meta.start + BATCH_HEAD;
            let meta = &self.loaded.bytes[start..batch.head_and_meta.end];
            let (mut rest, mut data_offset) = (meta, batch.data_offset);
            while !rest.is_empty() {
                let at = (start + meta.len() - rest.len()) as u32;
                let (record, after) = record::decode_record(rest).ok_or_else(corrupt)?;
                rest = after;
                match record {
                    RecordView::Entries(entries) => {
                        self.n_entries += entries.n;
                        self.born_bytes += entries.raw_bytes;
                        self.lots[lot_of(entries.group)].get_mut().put(&entries, data_offset);
                        data_offset += entries.data_bytes;
                    }
                    RecordView::Group(record) => {
                        self.born_bytes += record.size_bytes as u64;
                        let what = RecordContent::Group { at, floor: record.floor, last: record.last };
                        let lot = self.lots[lot_of(record.group)].get_mut();
                        lot.records.push(RecordRef { group: record.group, what });
                    }
                }
            }
            let fits = u32::try_from(data_offset).is_ok_and(|end| end < 1 << 31);
            if data_offset != batch.data_offset + batch.data_bytes as u64 || !fits {
                return Err(corrupt());
            }
        }
        Ok(())
    }

    /// The group record at `at`, and its size.
    fn meta(&self, at: u32) -> (Meta, u64) {
        match record::decode_record(&self.loaded.bytes[at as usize..]) {
            Some((RecordView::Group(group), _)) => (group.meta(), group.size_bytes as u64),
            _ => unreachable!("a record that decoded once decodes again"),
        }
    }
}

impl ReplayRecords {
    /// Adds the entries of a record, whose data starts at `data_offset` of the file.
    fn put(&mut self, entries: &EntriesView<'_>, data_offset: u64) {
        let (mut at, packed) = (data_offset, entries.block.is_some());
        let mut open: Option<(u64, u32, u64)> = None;
        for line in entries.lines() {
            match &mut open {
                Some((_, n, term)) if *term == line.term => *n += 1,
                _ => {
                    self.close(entries.group, open);
                    open = Some((line.index, 1, line.term));
                }
            }
            self.locs.push(Loc::new(at as u32, line.len, line.crc, packed));
            if !packed {
                at += u64::from(line.len);
            }
        }
        self.close(entries.group, open);
    }

    /// Ends a run of entries (first, number, term), the last whose places were pushed.
    fn close(&mut self, group: u64, run: Option<(u64, u32, u64)>) {
        if let Some((first, n, term)) = run {
            let locs = self.locs.len() as u32 - n;
            self.records.push(RecordRef { group, what: RecordContent::Entries { first, n, locs, term } });
        }
    }
}

/// Entries `first..end` as one record has them.
#[derive(Debug, Clone, Copy)]
struct EntryRun {
    first: u64,
    end: u64,
    source: u32,
    record: u32,
}

#[derive(Default)]
struct RebuiltGroup {
    /// Ascending, not overlapping.
    pieces: Vec<EntryRun>,
    /// Source of the newest group record, and where it starts there.
    record: Option<(u32, u32)>,
    /// The last index it tells.
    last: u64,
    floor: u64,
    /// Entries came after a record that destroyed the group.
    alive: bool,
}

impl RebuiltGroup {
    fn put(&mut self, piece: EntryRun) {
        self.alive = true;
        if self.pieces.last().is_none_or(|last| last.end <= piece.first) {
            self.pieces.push(piece);
            return;
        }
        let from = self.pieces.partition_point(|old| old.end <= piece.first);
        let to = self.pieces.partition_point(|old| old.first < piece.end);
        let mut parts = Vec::with_capacity(3);
        parts.extend(
            self.pieces[from..to]
                .first()
                .filter(|old| old.first < piece.first)
                .map(|old| EntryRun { end: piece.first, ..*old }),
        );
        parts.push(piece);
        parts.extend(
            self.pieces[from..to]
                .last()
                .filter(|old| old.end > piece.end)
                .map(|old| EntryRun { first: piece.end, ..*old }),
        );
        self.pieces.splice(from..to, parts);
    }

    /// Drops what is outside `(floor, last]`.
    fn clip(&mut self, floor: u64, last: u64) {
        while let Some(back) = self.pieces.last_mut() {
            if back.first <= last {
                back.end = back.end.min(last + 1);
                break;
            }
            self.pieces.pop();
        }
        let gone = self.pieces.partition_point(|piece| piece.end <= floor + 1);
        self.pieces.drain(..gone);
        if let Some(front) = self.pieces.first_mut() {
            front.first = front.first.max(floor + 1);
        }
        (self.floor, self.last, self.alive) = (floor, last, false);
    }
}

/// A group whose entries `from..=to` are in no segment.
#[derive(Debug, Clone, Copy)]
pub struct Hole {
    /// The group that lost them.
    pub group: u64,
    /// The first index that is gone.
    pub from: u64,
    /// The last.
    pub to: u64,
}

/// Entries for which a thread of their own pays.
const ENTRIES_PER_THREAD: usize = 10_000;

/// Replays all segments, oldest first, and builds the index; what is missing in a group is reported, and the group ends
/// before it.
pub fn replay(sources: &[&SegmentRecords], segments: &[Arc<Segment>]) -> (Vec<(u64, Group)>, Vec<Hole>) {
    let n_entries = sources.iter().map(|source| source.n_entries).sum::<usize>();
    let n_threads = n_threads().min(1 + n_entries / ENTRIES_PER_THREAD);
    let built = side_by_side_on(n_threads, LOTS, |lot| {
        // Taken, so that the memory is given back here, not by one thread for all.
        let lots: Vec<ReplayRecords> =
            sources.iter().map(|source| std::mem::take(&mut *source.lots[lot].lock())).collect();
        let mut holes = Vec::new();
        let groups = take_in(&lots).into_iter();
        let groups = groups.map(|(id, rebuilt)| (id, build(id, rebuilt, &lots, sources, segments, &mut holes)));
        (groups.collect::<Vec<_>>(), holes)
    });
    let mut all: (Vec<(u64, Group)>, Vec<Hole>) = Default::default();
    for (groups, holes) in built {
        all.0.extend(groups);
        all.1.extend(holes);
    }
    all
}

/// What all records of a lot say together: of each source its part, oldest first.
fn take_in(lots: &[ReplayRecords]) -> HashMap<u64, RebuiltGroup, BuildHasherDefault<IdHasher>> {
    let mut groups = HashMap::<u64, RebuiltGroup, BuildHasherDefault<IdHasher>>::default();
    for (source, lot) in (0..).zip(lots) {
        for (record, found) in (0..).zip(&lot.records) {
            let group = groups.entry(found.group).or_default();
            match found.what {
                RecordContent::Entries { first, n, .. } => {
                    group.put(EntryRun { first, end: first + u64::from(n), source, record });
                }
                RecordContent::Group { at, floor, last } => {
                    group.clip(floor, last);
                    group.record = Some((source, at));
                }
            }
        }
    }
    groups
}

/// Threads worth starting for work that is partly reading, partly checksums.
fn n_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().min(8))
}

/// Runs `work(0..n)` on as many threads as pay, answers in order.
pub fn side_by_side<T: Send>(n: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    side_by_side_on(n_threads(), n, work)
}

fn side_by_side_on<T: Send>(n_threads: usize, n: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                return done;
            }
            done.push((i, work(i)));
        }
    };
    let n_others = n_threads.min(n).saturating_sub(1);
    let mut all = std::thread::scope(|scope| {
        let others: Vec<_> = (0..n_others).map(|_| scope.spawn(run)).collect();
        let mut all = run();
        for other in others {
            all.extend(other.join().expect("reading a segment does not panic"));
        }
        all
    });
    all.sort_unstable_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, done)| done).collect()
}

fn build(
    id: u64,
    rebuilt: RebuiltGroup,
    lots: &[ReplayRecords],
    sources: &[&SegmentRecords],
    segments: &[Arc<Segment>],
    holes: &mut Vec<Hole>,
) -> Group {
    let mut held = None;
    let mut meta = Meta::default();
    if let Some((source, at)) = rebuilt.record {
        let (found, size_bytes) = sources[source as usize].meta(at);
        let segment = &segments[source as usize];
        segment.born(1, size_bytes);
        meta = Meta { destroyed: found.destroyed && !rebuilt.alive, ..found };
        held = Some((Arc::clone(segment), size_bytes));
    }
    let last = rebuilt.pieces.last().map_or(rebuilt.floor, |piece| piece.end - 1).max(rebuilt.last);
    let mut group = Group::empty(meta, held);
    for piece in &rebuilt.pieces {
        let want = group.meta.last + 1;
        if piece.first != want {
            holes.push(Hole { group: id, from: want, to: piece.first - 1 });
            return group;
        }
        let lot = &lots[piece.source as usize];
        let RecordContent::Entries { first, locs, term, .. } = lot.records[piece.record as usize].what else {
            continue;
        };
        let n = piece.end - piece.first;
        let start = locs as usize + (piece.first - first) as usize;
        let locs = &lot.locs[start..start + n as usize];
        let segment = &segments[piece.source as usize];
        segment.born(n, locs.iter().map(|loc| u64::from(loc.len())).sum());
        group.append(&[(n, term)], segment, locs.iter().copied());
    }
    if group.meta.last < last {
        holes.push(Hole { group: id, from: group.meta.last + 1, to: last });
    }
    group
}
