//! What do all records together say?
//!
//! Batches are taken in LSN order. An entries record puts its entries at their indexes, replacing what is there; a group
//! record removes entries outside `(floor, last]`. Holes are allowed on the way, because segments are used again in any
//! order. Only ranges move while records are replayed; entries are looked at once, when the index is built. Groups do not
//! know of each other: they are dealt out in lots, and threads take lots.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::format::BATCH_HEAD;
use crate::index::{Group, Loc, Meta};
use crate::record::{self, EntriesView, RecordView};
use crate::segment::Segment;
use crate::shards::{self, IdHasher};
use crate::tail::Loaded;

/// One segment's records, found but not taken apart: those of a group are all in one of the lots, in order, so that
/// lots can be worked on side by side.
pub struct Source {
    pub loaded: Loaded,
    lots: [Vec<RecordRef>; LOTS],
    /// Payload and record bytes of all of them.
    pub born_bytes: u64,
}

const LOTS: usize = 8;

fn lot_of(group: u64) -> usize {
    (shards::mix(group) >> 32) as usize % LOTS
}

/// A record's place in `Loaded::bytes`, and what replay needs of it.
struct RecordRef {
    group: u64,
    /// Entries `first..end`, or of a group record its floor and last.
    first: u64,
    end: u64,
    at: u32,
    /// Where the entries' data begins in the segment file; [`NO_DATA`] of a group record.
    data_offset: u32,
}

const NO_DATA: u32 = u32::MAX;

impl Source {
    pub fn new(loaded: Loaded) -> Source {
        Source { loaded, lots: Default::default(), born_bytes: 0 }
    }

    /// Finds all records. Runs beside those of other segments.
    pub fn parse(&mut self, path: &Path) -> Result<()> {
        let source = self;
        for batch in &source.loaded.batches {
            let corrupt = || Error::corrupt(path, batch.data_offset, format!("batch {} does not decode", batch.lsn));
            let start = batch.head_and_meta.start + BATCH_HEAD;
            let meta = &source.loaded.bytes[start..batch.head_and_meta.end];
            let (mut rest, mut data_offset) = (meta, batch.data_offset);
            while !rest.is_empty() {
                let (record, after) = record::decode_record(rest).ok_or_else(corrupt)?;
                let at = (start + meta.len() - rest.len()) as u32;
                rest = after;
                let found = match record {
                    RecordView::Entries(entries) => {
                        source.born_bytes += entries.raw_bytes;
                        let (group, first, end) = (entries.group, entries.first, entries.end());
                        let found = RecordRef { group, first, end, at, data_offset: data_offset as u32 };
                        data_offset += entries.data_bytes;
                        found
                    }
                    RecordView::Group(record) => {
                        source.born_bytes += record.size_bytes as u64;
                        let (group, first, end) = (record.group, record.floor, record.last);
                        RecordRef { group, first, end, at, data_offset: NO_DATA }
                    }
                };
                source.lots[lot_of(found.group)].push(found);
            }
            let fits = u32::try_from(data_offset).is_ok_and(|end| end < 1 << 31);
            if data_offset != batch.data_offset + batch.data_bytes as u64 || !fits {
                return Err(corrupt());
            }
        }
        Ok(())
    }

    fn n_records(&self) -> usize {
        self.lots.iter().map(Vec::len).sum()
    }

    fn entries(&self, record: &RecordRef) -> EntriesView<'_> {
        match record::decode_record(&self.loaded.bytes[record.at as usize..]) {
            Some((RecordView::Entries(entries), _)) => entries,
            _ => unreachable!("a record that decoded once decodes again"),
        }
    }

    /// A group record and its size.
    fn meta(&self, record: &RecordRef) -> (Meta, u64) {
        match record::decode_record(&self.loaded.bytes[record.at as usize..]) {
            Some((RecordView::Group(group), _)) => (group.meta(), group.size_bytes as u64),
            _ => unreachable!("a record that decoded once decodes again"),
        }
    }
}

/// Entries `first..end` as one record has them.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first: u64,
    end: u64,
    source: u32,
    record: u32,
}

#[derive(Default)]
struct Rebuilt {
    /// Ascending, not overlapping.
    pieces: Vec<Piece>,
    /// Source and number of the newest group record.
    record: Option<(u32, u32)>,
    /// The last index it tells.
    last: u64,
    floor: u64,
    /// Entries came after a record that destroyed the group.
    alive: bool,
}

impl Rebuilt {
    fn put(&mut self, piece: Piece) {
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
                .map(|old| Piece { end: piece.first, ..*old }),
        );
        parts.push(piece);
        parts.extend(
            self.pieces[from..to]
                .last()
                .filter(|old| old.end > piece.end)
                .map(|old| Piece { first: piece.end, ..*old }),
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
    pub group: u64,
    pub from: u64,
    pub to: u64,
}

/// Records for which a thread of their own pays.
const RECORDS_PER_THREAD: usize = 10_000;

/// Replays all segments, oldest first, and builds the index; what is missing in a group is reported, and the group ends
/// before it.
pub fn replay(sources: &[&Source], segments: &[Arc<Segment>]) -> (Vec<(u64, Group)>, Vec<Hole>) {
    let n_threads =
        n_threads().min(LOTS).min(1 + sources.iter().map(|s| s.n_records()).sum::<usize>() / RECORDS_PER_THREAD);
    let built = side_by_side_on(n_threads, LOTS, |lot| {
        let mut holes = Vec::new();
        let groups = take_in(sources, lot).into_iter();
        let groups = groups.map(|(id, rebuilt)| (id, build(id, rebuilt, lot, sources, segments, &mut holes)));
        (groups.collect::<Vec<_>>(), holes)
    });
    let mut all: (Vec<(u64, Group)>, Vec<Hole>) = Default::default();
    for (groups, holes) in built {
        all.0.extend(groups);
        all.1.extend(holes);
    }
    all
}

/// What all records of a lot say together.
fn take_in(sources: &[&Source], lot: usize) -> HashMap<u64, Rebuilt, BuildHasherDefault<IdHasher>> {
    let mut groups = HashMap::<u64, Rebuilt, BuildHasherDefault<IdHasher>>::default();
    for (source_idx, source) in sources.iter().enumerate() {
        for (record_idx, record) in source.lots[lot].iter().enumerate() {
            let group = groups.entry(record.group).or_default();
            let (source, number) = (source_idx as u32, record_idx as u32);
            if record.data_offset == NO_DATA {
                group.clip(record.first, record.end);
                group.record = Some((source, number));
            } else {
                group.put(Piece { first: record.first, end: record.end, source, record: number });
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
    rebuilt: Rebuilt,
    lot: usize,
    sources: &[&Source],
    segments: &[Arc<Segment>],
    holes: &mut Vec<Hole>,
) -> Group {
    let record = |(source, number): (u32, u32)| {
        let source = sources[source as usize];
        (source, &source.lots[lot][number as usize])
    };
    let (meta, size_bytes) =
        rebuilt.record.map(record).map_or_else(Default::default, |(source, record)| source.meta(record));
    let meta = Meta { destroyed: meta.destroyed && !rebuilt.alive, ..meta };
    let held = rebuilt.record.map(|at| (Arc::clone(&segments[at.0 as usize]), size_bytes));
    if let Some((segment, bytes)) = &held {
        segment.born(1, *bytes);
    }
    let last = rebuilt.pieces.last().map_or(rebuilt.floor, |piece| piece.end - 1).max(rebuilt.last);
    let mut group = Group::empty(meta, held);
    let (mut runs, mut locs) = (Vec::new(), Vec::new());
    for piece in &rebuilt.pieces {
        let want = group.meta.last + 1;
        if piece.first != want {
            holes.push(Hole { group: id, from: want, to: piece.first - 1 });
            return group;
        }
        let (source, record) = record((piece.source, piece.record));
        let segment = &segments[piece.source as usize];
        let (bytes, n) =
            take_piece(&source.entries(record), u64::from(record.data_offset), piece, &mut runs, &mut locs);
        group.append(&runs, segment, locs.drain(..));
        segment.born(n, bytes);
    }
    if group.meta.last < last {
        holes.push(Hole { group: id, from: group.meta.last + 1, to: last });
    }
    group
}

/// Term runs and places of a piece's entries; returns their bytes and number.
fn take_piece(
    entries: &EntriesView<'_>,
    data_offset: u64,
    piece: &Piece,
    runs: &mut Vec<(u64, u64)>,
    locs: &mut Vec<Loc>,
) -> (u64, u64) {
    runs.clear();
    let (mut at, mut bytes) = (data_offset, 0);
    for line in entries.lines().take_while(|line| line.index < piece.end) {
        if line.index >= piece.first {
            match runs.last_mut() {
                Some((n, term)) if *term == line.term => *n += 1,
                _ => runs.push((1, line.term)),
            }
            locs.push(Loc::new(at as u32, line.len, line.crc, entries.block.is_some()));
            bytes += u64::from(line.len);
        }
        if entries.block.is_none() {
            at += u64::from(line.len);
        }
    }
    (bytes, piece.end - piece.first)
}
