//! How are entries read back?
//!
//! Their places and what is kept of them are taken under the group's lock; the rest is read without it, one read for
//! neighbours, each entry held against its checksum. The segments found are pinned by their `Arc`: a file is not used
//! again while somebody reads it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::index::{Group, Loc};
use crate::log;
use crate::open_log::OpenLog;
use crate::record::{self, BLOCK_HEAD, UnpackedEntries, entry_crc};
use crate::segment::Segment;
use crate::submit::refuse_damaged;
use crate::{GroupId, Index, Term};

struct LocatedEntry {
    index: u64,
    term: u64,
    loc: Loc,
    /// Which of the segments.
    segment: usize,
    payload: Option<Bytes>,
}

/// What was found of a range, and the segments it lies in, which are not used again while this is held.
#[derive(Default)]
struct RangeLocations {
    found: Vec<LocatedEntry>,
    segments: Vec<Arc<Segment>>,
}

/// Neighbours this near are read in one go, up to this much at once.
const GAP_BYTES: u64 = 16 << 10;
const READ_BYTES: u64 = 4 << 20;

impl OpenLog {
    /// Entries of `range`, in order: as many as `max_bytes` of payloads hold, but at least one. Of those in the cache
    /// none is read; neighbours on the disk are one read.
    ///
    /// # Errors
    ///
    /// `Purged`, `OutOfRange`, `Damaged`; `Corrupt` names the file when bytes are not what was written.
    pub fn entries(&self, group: GroupId, range: Range<Index>, max_bytes: usize) -> Result<Vec<log::Entry>> {
        let RangeLocations { mut found, segments } = self.find(group, range, max_bytes)?;
        let mut missed = 0;
        {
            let cache = self.cache.read();
            for f in &mut found {
                f.payload = cache.payload(segments[f.segment].seq, f.index, &f.loc);
                missed += u64::from(f.payload.is_none());
            }
        }
        self.tally.cache_hits.fetch_add(found.len() as u64 - missed, Ordering::Relaxed);
        if missed > 0 {
            self.tally.cache_misses.fetch_add(missed, Ordering::Relaxed);
            read_missing(group, &mut found, &segments)?;
        }
        let entry = |f: LocatedEntry| {
            let payload = f.payload.unwrap_or_default();
            log::Entry { index: Index(f.index), term: Term(f.term), payload }
        };
        Ok(found.into_iter().map(entry).collect())
    }

    fn find(&self, group: GroupId, range: Range<Index>, max_bytes: usize) -> Result<RangeLocations> {
        if range.start >= range.end {
            return Ok(RangeLocations::default());
        }
        let find = |log: &mut Group| find_in(log, group, range.clone(), max_bytes);
        self.groups.with(group.0, find).unwrap_or_else(|| find(&mut Group::default()))
    }
}

fn find_in(log: &Group, group: GroupId, range: Range<Index>, max_bytes: usize) -> Result<RangeLocations> {
    if let Some(from) = log.meta.damaged
        && range.end.0 > from
    {
        refuse_damaged(group, log.meta.damaged)?;
    }
    if range.start.0 <= log.meta.floor {
        return Err(Error::Purged { group, range, floor: Index(log.meta.floor) });
    }
    if range.end.0 - 1 > log.meta.last {
        return Err(Error::OutOfRange { group, range, last: Index(log.meta.last) });
    }
    let n = (range.end.0 - range.start.0).min(1024) as usize;
    let mut places = RangeLocations { found: Vec::with_capacity(n), segments: Vec::new() };
    let mut bytes = 0;
    for (index, segment, loc) in log.locate(range.start.0) {
        bytes += loc.len() as usize;
        if index >= range.end.0 || (bytes > max_bytes && !places.found.is_empty()) {
            break;
        }
        if places.segments.last().is_none_or(|last| last.seq != segment.seq) {
            places.segments.push(Arc::clone(segment));
        }
        let term = log.term(index).unwrap_or(0);
        places.found.push(LocatedEntry { index, term, loc, segment: places.segments.len() - 1, payload: None });
    }
    Ok(places)
}

fn read_missing(group: GroupId, found: &mut [LocatedEntry], segments: &[Arc<Segment>]) -> Result<()> {
    let mut blocks = Blocks::default();
    let mut at = 0;
    while at < found.len() {
        if found[at].payload.is_some() {
            at += 1;
            continue;
        }
        let (loc, in_segment) = (found[at].loc, found[at].segment);
        let segment = &*segments[in_segment];
        if loc.is_packed() {
            let payload = blocks.payload(segment, &found[at])?;
            found[at].payload = Some(checked(group, &found[at], payload, segment)?);
            at += 1;
            continue;
        }
        let start = u64::from(loc.offset);
        let mut end = start + u64::from(loc.len());
        let mut next = at + 1;
        while let Some(f) = found.get(next) {
            let offset = u64::from(f.loc.offset);
            let same = f.payload.is_none() && f.segment == in_segment && !f.loc.is_packed();
            let near = same && offset >= end && offset - end <= GAP_BYTES;
            if !near || offset + u64::from(f.loc.len()) - start > READ_BYTES {
                break;
            }
            end = offset + u64::from(f.loc.len());
            next += 1;
        }
        let bytes = read_range(segment, start, end - start)?;
        for f in &mut found[at..next] {
            let from = (u64::from(f.loc.offset) - start) as usize;
            let payload = bytes.slice(from..from + f.loc.len() as usize);
            f.payload = Some(checked(group, f, payload, segment)?);
        }
        at = next;
    }
    Ok(())
}

/// The payload, if it is the one that was appended.
fn checked(group: GroupId, f: &LocatedEntry, payload: Bytes, segment: &Segment) -> Result<Bytes> {
    if entry_crc(group.0, f.index, f.term, &payload) == f.loc.crc {
        return Ok(payload);
    }
    let what = format!("entry {} of group {group} has a wrong checksum", f.index);
    Err(Error::corrupt(&segment.path, u64::from(f.loc.offset), what))
}

/// Packed blocks already opened in this read.
#[derive(Default)]
struct Blocks {
    open: HashMap<(u64, u32), UnpackedEntries>,
}

impl Blocks {
    fn payload(&mut self, segment: &Segment, f: &LocatedEntry) -> Result<Bytes> {
        let block = match self.open.entry((segment.seq, f.loc.offset)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => place.insert(open_block(segment, f)?),
        };
        let payload = block.payload(f.index).filter(|p| p.len() == f.loc.len() as usize);
        payload.ok_or_else(|| does_not_open(segment, f))
    }
}

fn does_not_open(segment: &Segment, f: &LocatedEntry) -> Error {
    Error::corrupt(&segment.path, u64::from(f.loc.offset), format!("packed entry {} does not open", f.index))
}

fn open_block(segment: &Segment, f: &LocatedEntry) -> Result<UnpackedEntries> {
    let offset = u64::from(f.loc.offset);
    let room = segment.size_bytes().saturating_sub(offset);
    // Packed is shorter than raw: for a block of one entry that is enough. Never past the file's end.
    let guess = (BLOCK_HEAD as u64 + 8 + u64::from(f.loc.len())).min(room);
    let mut block = read_range(segment, offset, guess)?;
    let len = record::block_bytes(&block).ok_or_else(|| does_not_open(segment, f))?;
    if len > block.len() {
        if len as u64 > room {
            return Err(does_not_open(segment, f));
        }
        block = read_range(segment, offset, len as u64)?;
    }
    record::unpack(&block).ok_or_else(|| does_not_open(segment, f))
}

fn read_range(segment: &Segment, start: u64, len: u64) -> Result<Bytes> {
    let mut buf = vec![0; len as usize];
    match segment.file.read_at(&mut buf, start) {
        Ok(()) => Ok(buf.into()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(&segment.path, start, "file ends inside an entry"))
        }
        Err(source) => Err(Error::Io { action: "read", path: segment.path.clone(), source }),
    }
}
