//! What survived, and is it all?
//!
//! Sealed segments are read through their seal, the newest one frame by frame; records are applied in LSN order.
//! Files are changed only after everything has been found sound.
//!
//! **Tail rule.** One frame is in flight at a time, and a segment gets its first frame after the one before it is
//! sealed. So a crash can leave one bad frame: the last of the newest segment that has frames. A bad frame followed,
//! there or in a later segment, by anything valid was acknowledged, and opening is refused. What cannot be told
//! apart by any log without a second copy: damage that hits exactly the last frame looks like a crash.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::{Error, Result};
use crate::format::{
    self, BLOCK, Bad, BatchView, FRAME_HEADER, FrameHeader, FrameKind, Record, SegmentHeader, Trailer,
};
use crate::index::{Group, Loc, Meta};
use crate::log::Segments;
use crate::options::{Options, RecoveryReport};
use crate::segment::{EXTENSION, Segment, TEMPORARY, Writer};
use crate::{GroupId, Index};

pub struct Recovered {
    pub store: u64,
    pub segments: Segments,
    pub groups: HashMap<u64, Group>,
    pub next_seq: u64,
    pub next_lsn: u64,
    pub last_crc: u32,
    pub report: RecoveryReport,
}

pub fn recover(disk: &dyn Disk, options: &Options) -> Result<Recovered> {
    let dir = &options.dir;
    let listing = list(disk, dir)?;
    let store = match read_format(disk, dir)? {
        Some(store) => store,
        None if listing.segments.is_empty() => write_format(disk, dir)?,
        None => return Err(Error::corrupt(&dir.join(FORMAT), 0, "missing, though there are segments")),
    };
    let mut report = RecoveryReport::default();
    let mut replay = Replay::default();
    let mut segments = Segments::new();
    let (mut open_tail, mut empty) = (None, Vec::new());
    let mut chain: Option<(u64, u32)> = None;
    let next_seq = listing.segments.last().map_or(1, |(seq, _)| seq + 1);

    for (seq, path) in listing.segments {
        let file = disk.open(&path).map_err(Error::io("open", &path))?;
        let loaded = load(&*file, &path, seq, store)?;
        if loaded.batches.is_empty() {
            empty.push(path); // a spare, or its first frame was torn
            continue;
        }
        if let Some((tail, _, _)) = &open_tail {
            let Tail { path, end, .. }: &Tail = tail;
            return Err(Error::corrupt(path, *end, "segment was never finished, but a later one has entries"));
        }
        check_chain(&path, chain, &loaded)?;
        chain = Some((loaded.next_lsn, loaded.last_crc));
        for batch in &loaded.batches {
            replay.batch(seq, batch, &path)?;
        }
        let segment = Segment {
            sealed: true,
            ..Segment::new(path.clone(), Arc::clone(&file), loaded.header.salt, loaded.size_bytes)
        };
        report.n_segments += 1;
        if !loaded.sealed {
            report.n_scanned += 1;
            if loaded.torn {
                report.torn_tail = Some((path.clone(), loaded.end));
            }
            open_tail = Some((Tail { path, end: loaded.end }, seq, loaded));
        }
        segments.insert(seq, segment);
    }
    let groups = replay.finish(dir, &mut segments, &mut report)?;
    let (next_lsn, last_crc) = chain.unwrap_or((1, 0));

    // Everything is sound: from here on files change.
    if let Some((tail, seq, loaded)) = open_tail
        && let Some(segment) = segments.get_mut(&seq)
    {
        segment.size_bytes = seal_tail(&tail, segment, loaded)?;
    }
    for path in empty.iter().chain(&listing.temporary) {
        disk.remove(path).map_err(Error::io("remove", path))?;
    }
    disk.sync_dir(dir).map_err(Error::io("sync folder", dir))?;
    Ok(Recovered { store, segments, groups, next_seq, next_lsn, last_crc, report })
}

struct Tail {
    path: PathBuf,
    end: u64,
}

/// Ends an unsealed segment after its last good frame. What was read may be only in the page cache: sealing syncs it.
fn seal_tail(tail: &Tail, segment: &Segment, loaded: Loaded) -> Result<u64> {
    let mut lines = Vec::new();
    for batch in &loaded.batches {
        format::put_seal_line(&mut lines, batch.lsn, batch.data_offset, &batch.head_and_meta);
    }
    let mut writer = Writer {
        segment: loaded.header.seq,
        file: Arc::clone(&segment.file),
        salt: segment.salt,
        end: loaded.end,
        prev_crc: loaded.last_crc,
        next_lsn: loaded.next_lsn,
        lines,
        n_batches: loaded.batches.len() as u32,
    };
    writer.seal().map_err(Error::io("seal", &tail.path))
}

pub const FORMAT: &str = "FORMAT";

pub struct Listing {
    /// Ascending by number.
    pub segments: Vec<(u64, PathBuf)>,
    pub temporary: Vec<PathBuf>,
}

pub fn list(disk: &dyn Disk, dir: &Path) -> Result<Listing> {
    let names = disk.list(dir).map_err(Error::io("list", dir))?;
    let mut listing = Listing { segments: Vec::new(), temporary: Vec::new() };
    for name in names {
        let path = dir.join(&name);
        if name.ends_with(TEMPORARY) {
            listing.temporary.push(path);
        } else if let Some(stem) = name.strip_suffix(EXTENSION) {
            match stem.parse() {
                Ok(seq) => listing.segments.push((seq, path)),
                Err(_) => return Err(Error::corrupt(&path, 0, "file name is not a segment number")),
            }
        }
    }
    listing.segments.sort();
    Ok(listing)
}

pub fn read_format(disk: &dyn Disk, dir: &Path) -> Result<Option<u64>> {
    let path = dir.join(FORMAT);
    let file = match disk.open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { action: "open", path, source }),
    };
    let block = read_block(&*file, &path, 0)?;
    format::decode_format(&block).map(Some).map_err(|bad| refuse(bad, &path, 0))
}

fn write_format(disk: &dyn Disk, dir: &Path) -> Result<u64> {
    let path = dir.join(FORMAT);
    let temporary = dir.join(format!("{FORMAT}{TEMPORARY}"));
    let store = disk.salt();
    let write = || -> io::Result<()> {
        let file = disk.create(&temporary, 0)?;
        file.write_at(&mut [IoSlice::new(&format::encode_format(store))], 0)?;
        file.sync_all()?;
        disk.rename(&temporary, &path)?;
        disk.sync_dir(dir)
    };
    write().map_err(Error::io("write", &path))?;
    Ok(store)
}

fn refuse(bad: Bad, path: &Path, offset: u64) -> Error {
    match bad {
        Bad::Version(found) => Error::Version { path: path.to_path_buf(), found, known: format::VERSION },
        Bad::What(what) => Error::corrupt(path, offset, what),
    }
}

pub fn read_at(file: &dyn DiskFile, path: &Path, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut buf = vec![0; len as usize];
    match file.read_at(&mut buf, offset) {
        Ok(()) => Ok(buf),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(Error::corrupt(path, offset, "file is too short")),
        Err(source) => Err(Error::Io { action: "read", path: path.to_path_buf(), source }),
    }
}

fn read_block(file: &dyn DiskFile, path: &Path, offset: u64) -> Result<Vec<u8>> {
    read_at(file, path, offset, BLOCK)
}

/// A batch as recovery keeps it.
pub struct LoadedBatch {
    pub lsn: u64,
    pub data_offset: u64,
    pub data_bytes: usize,
    pub head_and_meta: Vec<u8>,
}

impl From<BatchView<'_>> for LoadedBatch {
    fn from(view: BatchView<'_>) -> LoadedBatch {
        let BatchView { lsn, head_and_meta, data_offset, data_bytes } = view;
        LoadedBatch { lsn, data_offset, data_bytes, head_and_meta: head_and_meta.to_vec() }
    }
}

/// One segment, read.
pub struct Loaded {
    pub header: SegmentHeader,
    pub sealed: bool,
    pub batches: Vec<LoadedBatch>,
    /// Chain value the first frame continues; only known when frames were read.
    pub first_prev_crc: Option<u32>,
    pub next_lsn: u64,
    pub last_crc: u32,
    /// End of the last good frame.
    pub end: u64,
    /// Something that is not zero follows `end`.
    pub torn: bool,
    pub size_bytes: u64,
}

/// Reads a segment by its seal, or frame by frame when it has no whole one.
fn load(file: &dyn DiskFile, path: &Path, seq: u64, store: u64) -> Result<Loaded> {
    let header = read_header(file, path, seq, store)?;
    let size_bytes = file.size_bytes().map_err(Error::io("read size of", path))?;
    if let Some(loaded) = load_sealed(file, path, header, size_bytes)? {
        return Ok(loaded);
    }
    let loaded = scan(file, path, header, size_bytes)?;
    // The reserved length goes only after the seal is written: a shorter file without one has lost its end.
    if size_bytes < header.reserved_bytes {
        let what = format!("file of {size_bytes} bytes without a seal, want at least {}", header.reserved_bytes);
        return Err(Error::corrupt(path, size_bytes, what));
    }
    Ok(loaded)
}

pub fn read_header(file: &dyn DiskFile, path: &Path, seq: u64, store: u64) -> Result<SegmentHeader> {
    let header = SegmentHeader::decode(&read_block(file, path, 0)?).map_err(|bad| refuse(bad, path, 0))?;
    if header.store != store || header.seq != seq {
        return Err(Error::corrupt(
            path,
            0,
            format!("segment {} of log {:x} under this name", header.seq, header.store),
        ));
    }
    Ok(header)
}

/// `None` when the trailer or the seal it points to is not whole.
pub fn load_sealed(file: &dyn DiskFile, path: &Path, header: SegmentHeader, size_bytes: u64) -> Result<Option<Loaded>> {
    if size_bytes < 3 * BLOCK || !size_bytes.is_multiple_of(BLOCK) {
        return Ok(None);
    }
    let trailer_offset = size_bytes - BLOCK;
    let Ok(trailer) = Trailer::decode(&read_block(file, path, trailer_offset)?) else { return Ok(None) };
    if trailer.salt != header.salt || trailer.seal_offset < BLOCK || trailer.seal_offset >= trailer_offset {
        return Ok(None);
    }
    let seal = read_at(file, path, trailer.seal_offset, trailer_offset - trailer.seal_offset)?;
    Ok(parse_seal(&seal, header, trailer.seal_offset).map(|(frame, batches)| Loaded {
        header,
        sealed: true,
        batches,
        first_prev_crc: None,
        next_lsn: frame.lsn,
        last_crc: frame.prev_crc,
        end: trailer.seal_offset,
        torn: false,
        size_bytes,
    }))
}

fn parse_seal(seal: &[u8], header: SegmentHeader, seal_offset: u64) -> Option<(FrameHeader, Vec<LoadedBatch>)> {
    let frame = FrameHeader::decode(seal)?;
    let end = FRAME_HEADER.checked_add(usize::try_from(frame.payload_bytes).ok()?)?;
    let body = seal.get(FRAME_HEADER..end)?;
    if frame.kind != FrameKind::Seal || frame.salt != header.salt || !frame.crc_matches(seal, [body].into_iter()) {
        return None;
    }
    let batches = format::walk_seal(&frame, body)?;
    let inside =
        |b: &BatchView<'_>| b.data_offset >= BLOCK && b.data_offset.saturating_add(b.data_bytes as u64) <= seal_offset;
    batches.iter().all(inside).then(|| (frame, batches.into_iter().map(LoadedBatch::from).collect()))
}

/// Reads frames until one is not whole, then makes sure that nothing of this segment follows.
pub fn scan(file: &dyn DiskFile, path: &Path, header: SegmentHeader, size_bytes: u64) -> Result<Loaded> {
    let mut loaded = Loaded {
        header,
        sealed: false,
        batches: Vec::new(),
        first_prev_crc: None,
        next_lsn: 0,
        last_crc: 0,
        end: BLOCK,
        torn: false,
        size_bytes,
    };
    while let Some(end) = scan_frame(file, path, &mut loaded)? {
        loaded.end = end;
    }
    let mut at = loaded.end;
    while at < size_bytes {
        let block = read_at(file, path, at, BLOCK.min(size_bytes - at))?;
        loaded.torn |= block.iter().any(|&byte| byte != 0);
        if at > loaded.end || is_later_frame(&block, &loaded) {
            let follows = FrameHeader::decode(&block).is_some_and(|frame| frame.salt == header.salt)
                || Trailer::decode(&block).is_ok_and(|t| t.salt == header.salt && t.seal_offset != loaded.end);
            if follows {
                let what = format!("damaged frame, but the log goes on at byte {at}");
                return Err(Error::corrupt(path, loaded.end, what));
            }
        }
        at += BLOCK;
    }
    Ok(loaded)
}

/// At the end of the good frames stands the frame or seal that was in flight, or damage: an LSN further on than that
/// was never in flight there.
fn is_later_frame(block: &[u8], loaded: &Loaded) -> bool {
    loaded.next_lsn > 0
        && FrameHeader::decode(block)
            .is_some_and(|frame| frame.salt == loaded.header.salt && frame.lsn > loaded.next_lsn)
}

/// Takes in the frame at `loaded.end`. Returns where it ends; `None` if there is no whole frame.
fn scan_frame(file: &dyn DiskFile, path: &Path, loaded: &mut Loaded) -> Result<Option<u64>> {
    let room = loaded.size_bytes.saturating_sub(loaded.end);
    if room < FRAME_HEADER as u64 {
        return Ok(None);
    }
    let header_bytes = read_at(file, path, loaded.end, FRAME_HEADER as u64)?;
    let Some(frame) = FrameHeader::decode(&header_bytes) else { return Ok(None) };
    let first = loaded.next_lsn == 0;
    let continues = first || (frame.lsn == loaded.next_lsn && frame.prev_crc == loaded.last_crc);
    let fits = frame.payload_bytes <= room - FRAME_HEADER as u64 && frame.n_batches > 0 && frame.lsn > 0;
    if frame.kind != FrameKind::Frame || frame.salt != loaded.header.salt || !continues || !fits {
        return Ok(None);
    }
    let offset = loaded.end + FRAME_HEADER as u64;
    let payload = read_at(file, path, offset, frame.payload_bytes)?;
    let Some(batches) = format::walk_frame(&frame, &payload, offset) else { return Ok(None) };
    if !frame.crc_matches(&header_bytes, batches.iter().map(|b| b.head_and_meta)) {
        return Ok(None);
    }
    for batch in &batches {
        let data_at = (batch.data_offset - offset) as usize;
        if !data_matches(batch, &payload[data_at..data_at + batch.data_bytes]) {
            return Ok(None);
        }
    }
    if first {
        loaded.first_prev_crc = Some(frame.prev_crc);
    }
    loaded.batches.extend(batches.into_iter().map(LoadedBatch::from));
    loaded.next_lsn = frame.lsn + u64::from(frame.n_batches);
    loaded.last_crc = frame.crc;
    Ok(Some(format::align(offset + frame.payload_bytes)))
}

/// Whether the payloads in `data` are those the batch's records describe.
pub fn data_matches(batch: &BatchView<'_>, data: &[u8]) -> bool {
    let Some(records) = format::decode_records(&batch.head_and_meta[format::BATCH_HEAD..]) else { return false };
    let mut rest = data;
    for record in &records {
        let Record::Entries(entries) = record else { continue };
        for ((index, &(len, crc)), term) in (entries.first..).zip(&entries.table).zip(entries.terms()) {
            let Some((payload, after)) = rest.split_at_checked(len as usize) else { return false };
            if format::entry_crc(entries.group, index, term, payload) != crc {
                return false;
            }
            rest = after;
        }
    }
    rest.is_empty()
}

fn check_chain(path: &Path, before: Option<(u64, u32)>, loaded: &Loaded) -> Result<()> {
    let (Some((lsn, crc)), Some(first)) = (before, loaded.batches.first()) else { return Ok(()) };
    if first.lsn < lsn {
        return Err(Error::corrupt(path, BLOCK, format!("starts with batch {} after batch {}", first.lsn, lsn - 1)));
    }
    if first.lsn == lsn && loaded.first_prev_crc.is_some_and(|prev| prev != crc) {
        return Err(Error::corrupt(path, BLOCK, "does not continue the segment before it"));
    }
    Ok(())
}

/// Groups under reconstruction. Holes are allowed until the end: what filled them may have been collected.
#[derive(Default)]
struct Replay {
    groups: HashMap<u64, Rebuilt>,
}

#[derive(Default)]
struct Rebuilt {
    meta: Meta,
    record: Option<(u64, u64)>,
    entries: BTreeMap<u64, (u64, Loc, u64)>,
}

impl Replay {
    fn batch(&mut self, segment: u64, batch: &LoadedBatch, path: &Path) -> Result<()> {
        let corrupt = || Error::corrupt(path, batch.data_offset, format!("batch {} does not decode", batch.lsn));
        let records = format::decode_records(&batch.head_and_meta[format::BATCH_HEAD..]).ok_or_else(corrupt)?;
        let mut at = batch.data_offset;
        for record in records {
            match record {
                Record::Entries(entries) => {
                    let group = self.groups.entry(entries.group).or_default();
                    group.meta.destroyed = false;
                    for ((index, &(len, crc)), term) in (entries.first..).zip(&entries.table).zip(entries.terms()) {
                        let offset = u32::try_from(at).map_err(|_| corrupt())?;
                        group.entries.insert(index, (segment, Loc { offset, len, crc }, term));
                        at += u64::from(len);
                    }
                }
                Record::Group(id, meta) => {
                    let mut bytes = Vec::new();
                    format::encode_group(&mut bytes, id, &meta);
                    let group = self.groups.entry(id).or_default();
                    while group.entries.last_key_value().is_some_and(|(&index, _)| index > meta.last) {
                        group.entries.pop_last();
                    }
                    while group.entries.first_key_value().is_some_and(|(&index, _)| index <= meta.floor) {
                        group.entries.pop_first();
                    }
                    group.record = Some((segment, bytes.len() as u64));
                    group.meta = meta;
                }
            }
        }
        if at != batch.data_offset + batch.data_bytes as u64 {
            return Err(corrupt());
        }
        Ok(())
    }

    /// Builds the index, after checking that every group is whole from floor to last.
    fn finish(self, dir: &Path, segments: &mut Segments, report: &mut RecoveryReport) -> Result<HashMap<u64, Group>> {
        let mut groups = HashMap::new();
        for (id, rebuilt) in self.groups {
            let Rebuilt { meta, record, entries } = rebuilt;
            let last = entries.last_key_value().map_or(meta.floor, |(&last, _)| last).max(meta.last);
            let mut group = Group::empty(meta, record);
            for (index, (segment, loc, term)) in entries {
                let want = group.meta.last + 1;
                if index != want {
                    return Err(missing(dir, id, want, index - 1));
                }
                group.append(&[(1, term)], segment, std::iter::once(loc));
                born(segments, segment, u64::from(loc.len));
            }
            if group.meta.last < last {
                return Err(missing(dir, id, group.meta.last + 1, last));
            }
            if let Some((segment, bytes)) = record {
                born(segments, segment, bytes);
            }
            report.n_groups += u64::from(!group.meta.destroyed);
            report.n_entries += group.meta.last - group.meta.floor;
            report.live_bytes += group.bytes;
            groups.insert(id, group);
        }
        Ok(groups)
    }
}

fn missing(dir: &Path, group: u64, from: u64, to: u64) -> Error {
    Error::Missing { dir: dir.to_path_buf(), group: GroupId(group), from: Index(from), to: Index(to) }
}

fn born(segments: &mut Segments, segment: u64, bytes: u64) {
    if let Some(segment) = segments.get_mut(&segment) {
        segment.born(1, bytes);
    }
}
