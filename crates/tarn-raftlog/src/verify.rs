//! Is every stored byte what was written, and if not, who lost what?
//!
//! Reads all frames of all segments, also those that opening skips, and goes on after damage, to name all of it: by
//! file and offset, and by the entries that were there. A damaged frame of a sealed segment is listed in the seal; of
//! another frame whatever can still be read is named, and replay tells which entries are in no segment.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{self, BATCH_HEAD, BLOCK, FRAME_HEADER};
use crate::head::{FORMAT, FormatFile};
use crate::options::{Damage, LostEntries, VerifyReport};
use crate::record::{self, RecordView};
use crate::recovery;
use crate::replay::{self, SegmentRecords};
use crate::segment::Segment;
use crate::tail::{self, LoadedBatch, LoadedSegment};
use crate::{GroupId, Index};

/// Reads every byte of a log that nobody has open for writing, changes nothing, and goes on behind damage; only what
/// cannot be read at all is an error.
pub fn verify(disk: &dyn Disk, dir: &Path) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let listing = recovery::list(disk, dir)?;
    let Some(head) = FormatFile::read(disk, dir)? else {
        if !listing.segments.is_empty() {
            let what = "missing, though there are segments".to_string();
            report.damages.push(Damage { path: dir.join(FORMAT), offset: 0, what });
        }
        return Ok(report);
    };
    let mut segments = Vec::new();
    for (_, path) in listing.segments {
        let file = disk.open(&path).map_err(Error::io("open", &path))?;
        report.bytes_read += file.size_bytes().map_err(Error::io("read size of", &path))?;
        match tail::open(file, &path, head.store) {
            Ok(loaded) => segments.push((path, loaded)),
            Err(Error::Corrupt { path, offset, what }) => report.damages.push(Damage { path, offset, what }),
            Err(error) => return Err(error),
        }
    }
    segments.sort_by_key(|(_, segment)| segment.header.seq);
    let (mut unfinished, mut sources): (Option<Damage>, Vec<(PathBuf, SegmentRecords)>) = (None, Vec::new());
    let mut found = Vec::new();
    for (path, segment) in segments {
        let loaded = check(segment, &path, &mut report)?;
        found.push((loaded.header.seq, !loaded.is_empty()));
        if loaded.torn && !loaded.sealed && loaded.damage.is_none() {
            report.torn_tail = Some((path.clone(), loaded.end));
        }
        if loaded.is_empty() {
            continue;
        }
        report.n_segments += 1;
        report.damages.extend(unfinished.take());
        if !loaded.sealed {
            let what = "segment was never finished, but a later one has entries".to_string();
            unfinished = Some(Damage { path: path.clone(), offset: loaded.end, what });
        }
        let mut source = SegmentRecords::new(loaded);
        match source.parse(&path) {
            Ok(()) => sources.push((path, source)),
            Err(Error::Corrupt { path, offset, what }) => report.damages.push(Damage { path, offset, what }),
            Err(error) => return Err(error),
        }
    }
    report.damages.extend(sources.windows(2).filter_map(|pair| recovery::same_number(&pair[0], &pair[1])));
    report.damages.extend(sources.windows(2).filter_map(|pair| two_histories(&pair[0], &pair[1])));
    check_head(&head, &found, dir, &mut report);
    find_lost(&sources, &mut report);
    Ok(report)
}

/// Damage if a segment does not continue the sealed one before it: one was put back after the log went on without it.
fn two_histories(before: &(PathBuf, SegmentRecords), next: &(PathBuf, SegmentRecords)) -> Option<Damage> {
    let is_other = before.1.loaded.sealed && before.1.loaded.header.seq != next.1.loaded.header.seq;
    let broken = is_other.then(|| recovery::broken_chain((&before.0, &before.1.loaded), (&next.0, &next.1.loaded)));
    match broken.flatten() {
        Some(Error::Corrupt { path, offset, what }) => Some(Damage { path, offset, what }),
        _ => None,
    }
}

/// `found`: the number of each segment, and whether it has frames.
fn check_head(head: &FormatFile, found: &[(u64, bool)], dir: &Path, report: &mut VerifyReport) {
    let mut gone = head.find_gone(found);
    if gone.is_empty() && !head.is_whole() {
        let what = "one of the two lists of the segments is not whole".to_string();
        report.mendable.push(Damage { path: dir.join(FORMAT), offset: BLOCK, what });
    }
    // A file that is there and does not tell its number is named already.
    gone.retain(|gone| report.damages.iter().all(|damage| damage.path != gone.path));
    report.damages.extend(gone);
}

/// Reads all frames; of a sealed segment they must be those of its seal. Answers the batches that replay would see.
fn check(segment: LoadedSegment, path: &Path, report: &mut VerifyReport) -> Result<LoadedSegment> {
    let damage = |what: String, offset: u64| Damage { path: path.to_path_buf(), offset, what };
    if !segment.header_is_whole {
        report.mendable.push(damage("one of the two copies of the header is not whole".to_string(), 0));
    }
    let bound = if segment.sealed { segment.end } else { segment.size_bytes };
    let mut scanned = segment.unread();
    tail::scan(&mut scanned, path, bound)?;
    if !segment.sealed {
        if let Some(Damage { offset, what, .. }) = scanned.damage.clone() {
            let held = readable(&scanned, path, offset)?;
            report.damages.push(damage(if held.is_empty() { what } else { format!("{what}; it held {held}") }, offset));
            tail::salvage(&mut scanned, path)?;
        }
        count(&scanned, report);
        return Ok(scanned);
    }
    if scanned.end != segment.end || !same(&scanned, &segment) {
        tail::salvage(&mut scanned, path)?;
        let frames = missing_frames(&segment, &scanned);
        let named = frames.iter().map(|(offset, batches)| {
            let names = names(batches.iter().map(|batch| &segment.head_and_meta(batch)[BATCH_HEAD..]));
            damage(format!("damaged frame in a sealed segment; it held {names}"), *offset)
        });
        report.damages.extend(named);
        if frames.is_empty() {
            report.damages.push(damage("the frames are not those of the seal".to_string(), scanned.end));
        }
    }
    count(&scanned, report);
    Ok(segment)
}

fn same(a: &LoadedSegment, b: &LoadedSegment) -> bool {
    let equal = |(x, y): (&LoadedBatch, &LoadedBatch)| {
        (x.lsn, x.data_offset, x.data_bytes) == (y.lsn, y.data_offset, y.data_bytes)
            && a.head_and_meta(x) == b.head_and_meta(y)
    };
    a.batches.len() == b.batches.len() && a.batches.iter().zip(&b.batches).all(equal)
}

/// Offsets of the frames that the seal lists and a scan did not find whole, and their batches.
fn missing_frames<'a>(sealed: &'a LoadedSegment, scanned: &LoadedSegment) -> Vec<(u64, Vec<&'a LoadedBatch>)> {
    let mut frames: Vec<(u64, Vec<&LoadedBatch>)> = Vec::new();
    let mut end_before = 0;
    for batch in &sealed.batches {
        let start = batch.data_offset.saturating_sub(batch.head_and_meta.len() as u64);
        let end = batch.data_offset.saturating_add(batch.data_bytes as u64);
        let in_same_frame = std::mem::replace(&mut end_before, end) == start;
        if scanned.batches.binary_search_by_key(&batch.lsn, |b| b.lsn).is_ok() {
            continue;
        }
        match frames.last_mut() {
            Some((_, batches)) if in_same_frame => batches.push(batch),
            _ => frames.push((start.saturating_sub(FRAME_HEADER as u64), vec![batch])),
        }
    }
    frames
}

/// What the frame at `offset`, which is not whole, says it holds, as far as its batches are whole.
fn readable(loaded: &LoadedSegment, path: &Path, offset: u64) -> Result<String> {
    let mut at = offset + FRAME_HEADER as u64;
    let mut metas: Vec<Vec<u8>> = Vec::new();
    let read = |at: u64, len: usize| {
        let there = at.checked_add(len as u64).is_some_and(|end| end <= loaded.size_bytes);
        there.then(|| tail::read_at(&*loaded.file, path, at, len as u64)).transpose()
    };
    while let Some(head) = read(at, BATCH_HEAD)?
        && let Some((meta_bytes, data_bytes)) = format::decode_batch_head(&head)
        && let Some(meta) = read(at + BATCH_HEAD as u64, meta_bytes)?
        && crc32c::crc32c(&meta) == format::u32_at(&head, 12)
    {
        metas.push(meta);
        at += (BATCH_HEAD + meta_bytes + data_bytes) as u64;
    }
    Ok(names(metas.iter().map(|meta| &meta[..])))
}

/// Groups named for one frame; a frame may hold thousands.
const MAX_NAMES: usize = 16;

/// What records say, for people: `entries 5..=9 of group 7, the record of group 7`.
fn names<'a>(metas: impl Iterator<Item = &'a [u8]>) -> String {
    let (mut text, mut n) = (String::new(), 0);
    for record in metas.filter_map(record::decode_records).flatten() {
        n += 1;
        if n > MAX_NAMES {
            continue;
        }
        let comma = if n == 1 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = match record {
            RecordView::Entries(e) => {
                write!(text, "{comma}entries {}..={} of group {}", e.first, e.first + e.n as u64 - 1, e.group)
            }
            RecordView::Group(g) => write!(text, "{comma}the record of group {}", g.group),
        };
    }
    if n > MAX_NAMES {
        let _ = write!(text, " and {} more records", n - MAX_NAMES);
    }
    text
}

/// Replays what was read: entries that no segment holds, and what an earlier opening has given up.
fn find_lost(sources: &[(PathBuf, SegmentRecords)], report: &mut VerifyReport) {
    let only: Vec<&SegmentRecords> = sources.iter().map(|(_, source)| source).collect();
    let segments: Vec<Arc<Segment>> = sources
        .iter()
        .map(|(path, SegmentRecords { loaded, .. })| {
            Arc::new(Segment::new(&loaded.header, path.clone(), Arc::clone(&loaded.file), loaded.size_bytes))
        })
        .collect();
    let (groups, holes) = replay::replay(&only, &segments);
    let lost = |group, from, to| LostEntries { group: GroupId(group), from: Index(from), to: Index(to) };
    report.lost = holes.iter().map(|hole| lost(hole.group, hole.from, hole.to)).collect();
    report.lost.sort_unstable_by_key(|lost| lost.group);
    let damaged = groups.iter().filter_map(|(id, group)| Some((GroupId(*id), Index(group.meta.damaged?))));
    report.damaged = damaged.collect();
    report.damaged.sort_unstable();
}

fn count(loaded: &LoadedSegment, report: &mut VerifyReport) {
    for batch in &loaded.batches {
        report.n_batches += 1;
        let records = record::decode_records(&loaded.head_and_meta(batch)[BATCH_HEAD..]).unwrap_or_default();
        let entries = records.iter().map(|r| if let RecordView::Entries(e) = r { e.n as u64 } else { 0 });
        report.n_entries += entries.sum::<u64>();
    }
}
