//! What do all records together say?
//!
//! Batches are taken in LSN order. An entries record puts its entries at their indexes, replacing what is there; a group
//! record removes entries outside `(floor, last]`. Holes are allowed on the way, because segments are used again in any
//! order. Only ranges move while records are replayed; entries are looked at once, when the index is built.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::BATCH_HEAD;
use crate::index::{Group, Loc, Meta};
use crate::record::{self, EntriesView, RecordView};
use crate::segment::Segment;
use crate::shards::IdHasher;
use crate::tail::Loaded;

/// One segment's records, found but not taken apart.
pub struct Source {
    pub loaded: Loaded,
    pub records: Vec<RecordRef>,
    /// Payload and record bytes of all of them.
    pub born_bytes: u64,
}

/// A record's place in `Loaded::bytes`, and what replay needs of it.
pub struct RecordRef {
    group: u64,
    /// Entries `first..end`, or of a group record its floor and last.
    first: u64,
    end: u64,
    is_group: bool,
    at: Range<usize>,
    /// Where the entries' data begins in the segment file.
    data_offset: u64,
}

impl Source {
    /// Finds all records of a segment. Runs beside those of other segments.
    pub fn new(loaded: Loaded, path: &Path) -> Result<Source> {
        let mut source = Source { records: Vec::with_capacity(loaded.batches.len()), born_bytes: 0, loaded };
        for batch in &source.loaded.batches {
            let corrupt = || Error::corrupt(path, batch.data_offset, format!("batch {} does not decode", batch.lsn));
            let start = batch.head_and_meta.start + BATCH_HEAD;
            let meta = &source.loaded.bytes[start..batch.head_and_meta.end];
            let (mut rest, mut data_offset) = (meta, batch.data_offset);
            while !rest.is_empty() {
                let (record, after) = record::decode_record(rest).ok_or_else(corrupt)?;
                let from = start + meta.len() - rest.len();
                let at = from..start + meta.len() - after.len();
                rest = after;
                let (group, first, end) = match record {
                    RecordView::Entries(entries) => {
                        source.born_bytes += entries.raw_bytes;
                        (entries.group, entries.first, entries.end())
                    }
                    RecordView::Group(group) => {
                        source.born_bytes += group.size_bytes as u64;
                        (group.group, group.floor, group.last)
                    }
                };
                let is_group = matches!(record, RecordView::Group(_));
                source.records.push(RecordRef { group, first, end, is_group, at, data_offset });
                if let RecordView::Entries(entries) = record {
                    data_offset += entries.data_bytes;
                }
            }
            let fits = u32::try_from(data_offset).is_ok_and(|end| end < 1 << 31);
            if data_offset != batch.data_offset + batch.data_bytes as u64 || !fits {
                return Err(corrupt());
            }
        }
        Ok(source)
    }

    fn entries(&self, record: &RecordRef) -> EntriesView<'_> {
        match record::decode_record(&self.loaded.bytes[record.at.clone()]) {
            Some((RecordView::Entries(entries), _)) => entries,
            _ => unreachable!("a record that decoded once decodes again"),
        }
    }

    fn meta(&self, record: &RecordRef) -> Meta {
        match record::decode_record(&self.loaded.bytes[record.at.clone()]) {
            Some((RecordView::Group(group), _)) => group.meta(),
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

/// Groups under reconstruction.
#[derive(Default)]
pub struct Replay {
    groups: HashMap<u64, Rebuilt, BuildHasherDefault<IdHasher>>,
}

/// A group whose entries `from..=to` are in no segment.
#[derive(Debug, Clone, Copy)]
pub struct Hole {
    pub group: u64,
    pub from: u64,
    pub to: u64,
}

impl Replay {
    /// Takes in all records of the next segment.
    pub fn segment(&mut self, source_idx: usize, source: &Source) {
        for (record_idx, record) in source.records.iter().enumerate() {
            let group = self.groups.entry(record.group).or_default();
            let (source, number) = (source_idx as u32, record_idx as u32);
            if record.is_group {
                group.clip(record.first, record.end);
                group.record = Some((source, number));
            } else {
                group.put(Piece { first: record.first, end: record.end, source, record: number });
            }
        }
    }

    /// Builds the index; what is missing in a group is reported, and the group ends before it.
    pub fn finish(self, sources: &[&Source], segments: &[Arc<Segment>]) -> (Vec<(u64, Group)>, Vec<Hole>) {
        let n_threads = n_threads().min(1 + self.groups.len() / 256);
        let mut parts: Vec<Vec<(u64, Rebuilt)>> = (0..n_threads).map(|_| Vec::new()).collect();
        for (i, group) in self.groups.into_iter().enumerate() {
            parts[i % n_threads].push(group);
        }
        let build = |part: Vec<(u64, Rebuilt)>| {
            let mut holes = Vec::new();
            let groups = part.into_iter().map(|(id, rebuilt)| (id, build(id, rebuilt, sources, segments, &mut holes)));
            (groups.collect::<Vec<_>>(), holes)
        };
        let mut all: (Vec<(u64, Group)>, Vec<Hole>) = Default::default();
        std::thread::scope(|scope| {
            let own = parts.pop();
            let others: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| build(part))).collect();
            let own = own.map(&build);
            let others = others.into_iter().map(|thread| thread.join().expect("building an index does not panic"));
            for (groups, holes) in own.into_iter().chain(others) {
                all.0.extend(groups);
                all.1.extend(holes);
            }
        });
        all
    }
}

/// Threads worth starting for work that is partly reading, partly checksums.
pub fn n_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().min(8))
}

fn build(id: u64, rebuilt: Rebuilt, sources: &[&Source], segments: &[Arc<Segment>], holes: &mut Vec<Hole>) -> Group {
    let record =
        |(source, number): (u32, u32)| (sources[source as usize], &sources[source as usize].records[number as usize]);
    let meta = rebuilt.record.map(record).map_or_else(Meta::default, |(source, r)| source.meta(r));
    let meta = Meta { destroyed: meta.destroyed && !rebuilt.alive, ..meta };
    let held = rebuilt.record.map(|at| (Arc::clone(&segments[at.0 as usize]), record(at).1.at.len() as u64));
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
        let (bytes, n) = take_piece(&source.entries(record), record.data_offset, piece, &mut runs, &mut locs);
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
