//! What survived, and is it all?
//!
//! Headers and seals of all segments are read side by side; the newest segment with frames is read frame by frame
//! (`tail`); records are replayed in LSN order (`replay`). Files are changed only after everything has been found
//! sound, or the operator chose [`Recovery::Quarantine`]; a crash during that is as harmless as any.
//!
//! A segment gets its first frame after the one before it is sealed, and that is durable. So among the segments by
//! number there are: sealed ones, at most one with frames that is not, and empty ones. A seal that does not read is
//! made again if the frames show that nothing is missing: the next segment continues where they end.
//!
//! A log without some of its segments may look whole: `FORMAT` names those that must be there (`head`). An open names
//! another newest one only when that one is durable, and leaves the old one alone until then.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::buffer::Buffers;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{self, BLOCK};
use crate::head::{FORMAT, FormatFile};
use crate::index::Group;
use crate::lane::{Chain, Draft, Lane};
use crate::maintenance::FREE_SEGMENTS;
use crate::open_log::{OpenLog, SegmentPreparation};
use crate::options::{Damage, Durability, Options, Recovery, RecoveryReport};
use crate::replay::{Hole, SegmentRecords, replay, side_by_side};
use crate::segment::{self, EXTENSION, Ident, Preparation, Segment, TEMPORARY};
use crate::shards::Shards;
use crate::tail::{self, LoadedSegment};
use crate::{GroupId, Index};

/// The first segment of a log is small, so that opening a new one writes little; later ones are made beside it.
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;

/// Opens a log, or makes one in an empty folder. When it returns, all that was acknowledged is there, by its places,
/// and what follows was cut off; else the report says what is lost, or it is refused and nothing was changed. Cost:
/// reads the seals of all segments, and those segments whole that have none.
pub fn open(
    disk: Arc<dyn Disk>,
    options: Options,
    lock: Box<dyn Any + Send + Sync>,
) -> Result<(OpenLog, RecoveryReport)> {
    let started = options.clock.map(|clock| clock());
    let dir = options.dir.clone();
    let listing = list(&*disk, &dir)?;
    let head = match FormatFile::read(&*disk, &dir)? {
        Some(head) => head,
        None if listing.segments.is_empty() => FormatFile::create(&*disk, &dir)?,
        None => return Err(Error::corrupt(&dir.join(FORMAT), 0, "missing, though there are segments")),
    };
    let next_slot = listing.segments.iter().chain(&listing.temporary).map(|(slot, _)| slot + 1).max().unwrap_or(1);
    let mut report = RecoveryReport::default();
    let mut opening = LogOpening {
        disk: &*disk,
        options: &options,
        buffers: Buffers::default(),
        report: &mut report,
        unknown: false,
    };
    let loaded = opening.load(&listing, &head)?;
    let is_gone = opening.miss(&head, &loaded)?;
    let (sources, empty, chain) = opening.order(loaded)?;
    let (segments, groups, damaged) = opening.replay(&sources)?;

    // Everything is sound, or is known to be damaged: from here on files change.
    let ident = Ident::new(head.store, &options);
    let newest = segments.last().map_or(0, |segment| segment.seq);
    let name = |active: &Segment| match is_gone {
        true => Ok(()),
        false => head.name(active, &segments, &opening.buffers),
    };
    // No segment gets the number of one that is gone.
    let numbers = empty.iter().map(|(_, e)| e.header.seq).chain([newest, head.newest_seq()]);
    let mut numbers = SegmentNumbers { newest, next: numbers.max().unwrap_or(0) + 1 };
    head.sync()?;
    opening.seal(&sources, &segments)?;
    for (_, path) in &listing.temporary {
        match disk.remove(path) {
            // Left by a first open that was killed: this one has renamed it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(Error::io("remove", path))?,
        }
    }
    disk.sync_dir(&dir).map_err(Error::io("sync folder", &dir))?;
    let mut making = SegmentPreparation::new(next_slot);
    let (active, free) = opening.free(&ident, empty, head.newest_seq(), name, &mut making, &mut numbers)?;
    let n_free = free.len() as u64;
    let next_seq = numbers.next;
    let buffers = opening.buffers;
    report.n_free = n_free + 1;
    report.damaged = damaged.iter().map(|&(group, from)| (GroupId(group), Index(from))).collect();

    let mut table: BTreeMap<u64, Arc<Segment>> = segments.into_iter().map(|s| (s.seq, s)).collect();
    table.insert(active.seq, Arc::clone(&active));
    let flushed = options.sync != Durability::Os;
    let mut lane = Lane::new(table, free, active, next_seq, chain, flushed);
    lane.counters.segments_created = 1;
    let shared = OpenLog {
        disk: Arc::clone(&disk),
        options,
        ident,
        head,
        groups: Shards::new(groups),
        writing: Mutex::default(),
        durable_lsn: (lane.next_lsn - 1).into(),
        lane: Mutex::new(lane),
        cache: Default::default(),
        buffers,
        calls: Default::default(),
        making: Mutex::new(making),
        collecting: Mutex::default(),
        tally: Default::default(),
        _lock: lock,
    };
    remember_damage(&shared, &damaged)?;
    if is_gone {
        // Only now: until the damage is remembered, the name of what is gone is all that tells of it.
        let (active, mut before) = {
            let lane = shared.lane.lock();
            (Arc::clone(&lane.active), lane.segments.values().cloned().collect::<Vec<_>>())
        };
        before.retain(|segment| segment.seq != active.seq);
        shared.head.name(&active, &before, &shared.buffers)?;
    }
    if let (Some(clock), Some(then)) = (shared.options.clock, started) {
        shared.tally.recovery_ns.store(clock().saturating_sub(then), Ordering::Relaxed);
    }
    Ok((shared, report))
}

/// Writes the damage into the groups' records: the next open must know it too.
fn remember_damage(shared: &OpenLog, damaged: &[(u64, u64)]) -> Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    let mut batch = crate::Batch::default();
    damaged.iter().for_each(|&(group, _)| batch.refresh(group));
    let lsn = shared.submit(batch)?;
    shared.wait(lsn)
}

struct LogOpening<'a> {
    disk: &'a dyn Disk,
    options: &'a Options,
    buffers: Buffers,
    report: &'a mut RecoveryReport,
    /// Something acknowledged is lost, and nobody can say of which group.
    unknown: bool,
}

impl LogOpening<'_> {
    fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Refuses, or notes the damage, as was chosen.
    fn damaged(&mut self, error: Error) -> Result<()> {
        match (self.options.recovery, error) {
            (Recovery::Quarantine, Error::Corrupt { path, offset, what }) => {
                self.report.damages.push(Damage { path, offset, what });
                self.unknown = true;
                Ok(())
            }
            (_, error) => Err(error),
        }
    }

    /// Reads all files: the sealed by their seals; of the others the newest, and any that seem to hold frames, whole.
    fn load(&mut self, listing: &Listing, head: &FormatFile) -> Result<Vec<(PathBuf, SegmentRecords)>> {
        let (disk, paths) = (self.disk, &listing.segments);
        let opened = side_by_side(paths.len(), |i| {
            let path = &paths[i].1;
            let file = disk.open(path).map_err(Error::io("open", path))?;
            tail::open(file, path, head.store)
        });
        let mut loaded = Vec::new();
        for ((_, path), opened) in paths.iter().zip(opened) {
            match opened {
                Ok(segment) => loaded.push((path.clone(), segment)),
                Err(error) => {
                    self.damaged(error)?;
                    self.set_aside(path)?;
                }
            }
        }
        loaded.sort_by_key(|(_, segment)| segment.header.seq);
        let may_be_newest = may_be_newest(&loaded, head);
        let slots: Vec<_> = loaded.into_iter().map(|segment| Mutex::new(Some(segment))).collect();
        let sources = side_by_side(slots.len(), |i| {
            let (path, mut loaded) = slots[i].lock().take().expect("each segment is taken once");
            let is_candidate = may_be_newest.contains(&Some(loaded.header.seq));
            if !loaded.sealed && (is_candidate || tail::has_first_frame(&loaded, &path)?) {
                let bound = loaded.size_bytes;
                tail::scan(&mut loaded, &path, bound)?;
            }
            let mut source = SegmentRecords::new(loaded);
            if source.loaded.damage.is_none() {
                source.parse(&path)?;
            }
            Ok((path, source))
        });
        let mut sources: Vec<(PathBuf, SegmentRecords)> = sources.into_iter().collect::<Result<_>>()?;
        for (_, source) in &mut sources {
            if let Some(Damage { path, offset, what }) = source.loaded.damage.clone() {
                self.damaged(Error::Corrupt { path: path.clone(), offset, what })?;
                tail::salvage(&mut source.loaded, &path)?;
                source.parse(&path)?;
            }
        }
        Ok(sources)
    }

    /// Whether segments are gone, and it was chosen to go on all the same.
    fn miss(&mut self, head: &FormatFile, loaded: &[(PathBuf, SegmentRecords)]) -> Result<bool> {
        let found = loaded.iter().map(|(_, source)| (source.loaded.header.seq, !source.loaded.is_empty()));
        let gone = head.find_gone(&found.collect::<Vec<_>>());
        let is_gone = !gone.is_empty();
        for Damage { path, offset, what } in gone {
            self.damaged(Error::Corrupt { path, offset, what })?;
        }
        Ok(is_gone)
    }

    /// Quarantine: a file that does not even tell what it is must not trouble the next open.
    fn set_aside(&self, path: &Path) -> Result<()> {
        let aside = path.with_extension("bad");
        self.disk.rename(path, &aside).map_err(Error::io("set aside", path))
    }

    /// Splits into segments with frames, in order and continuous, and empty ones.
    #[expect(clippy::type_complexity, reason = "two lists and the end of the chain, taken apart at once")]
    fn order(
        &mut self,
        sources: Vec<(PathBuf, SegmentRecords)>,
    ) -> Result<(Vec<(PathBuf, SegmentRecords)>, Vec<(PathBuf, LoadedSegment)>, Chain)> {
        let (sources, empty): (Vec<_>, Vec<_>) = sources.into_iter().partition(|(_, source)| !source.loaded.is_empty());
        let empty: Vec<_> = empty.into_iter().map(|(path, source)| (path, source.loaded)).collect();
        for pair in sources.windows(2) {
            if let Some(Damage { path, offset, what }) = same_number(&pair[0], &pair[1]) {
                return Err(Error::Corrupt { path, offset, what });
            }
        }
        let with_frames = || sources.iter().map(|(path, source)| (path, &source.loaded));
        let mut before: Option<(&Path, &LoadedSegment)> = None;
        for (path, segment) in with_frames() {
            if let Some(error) = before.and_then(|before| broken_chain(before, (path, segment))) {
                self.damaged(error)?;
            }
            if !segment.header_is_whole {
                let (path, what) =
                    (path.clone(), "one of the two copies of the header is not whole; the other is used".to_string());
                self.report.damages.push(Damage { path, offset: 0, what });
            }
            before = Some((path, segment));
        }
        if let Some((path, last)) = with_frames().last()
            && last.torn
        {
            self.report.torn_tail = Some((path.clone(), last.end));
        }
        if let Some((path, torn)) = empty.iter().find(|(_, segment)| segment.torn) {
            self.report.torn_tail.get_or_insert((path.clone(), torn.end));
        }
        let chain = with_frames().last().map_or(Chain { crc: 0, next_lsn: 1 }, |(_, segment)| segment.chain);
        self.report.n_segments = sources.len() as u64;
        self.report.n_scanned = with_frames().filter(|(_, segment)| !segment.sealed).count() as u64;
        let unsealed = with_frames().rev().skip(1).filter(|(_, segment)| !segment.sealed);
        for (path, segment) in unsealed {
            let what = "the seal is damaged; it is made again from the frames".to_string();
            self.report.damages.push(Damage { path: path.clone(), offset: segment.end, what });
        }
        Ok((sources, empty, chain))
    }

    /// Builds segments and groups; answers the damaged groups and from where.
    #[expect(clippy::type_complexity, reason = "three lists, taken apart at once")]
    fn replay(
        &mut self,
        sources: &[(PathBuf, SegmentRecords)],
    ) -> Result<(Vec<Arc<Segment>>, Vec<(u64, Group)>, Vec<(u64, u64)>)> {
        let segments: Vec<Arc<Segment>> = sources.iter().map(|(path, source)| segment_of(path, source)).collect();
        let only: Vec<&SegmentRecords> = sources.iter().map(|(_, source)| source).collect();
        let (mut groups, mut holes) = replay(&only, &segments);
        holes.sort_unstable_by_key(|hole| hole.group);
        if let Some(&Hole { group, from, to }) = holes.first() {
            if self.options.recovery == Recovery::Refuse {
                let dir = self.dir().to_path_buf();
                return Err(Error::Missing { dir, group: GroupId(group), from: Index(from), to: Index(to) });
            }
            self.unknown = true;
        }
        let mut damaged = Vec::new();
        for (id, group) in &mut groups {
            let found = self.unknown && !group.meta.destroyed;
            if found {
                let from = group.meta.damaged.unwrap_or(u64::MAX).min(group.meta.last + 1);
                group.meta.damaged = Some(from);
            }
            if let Some(from) = group.meta.damaged {
                damaged.push((*id, from));
            }
            self.report.n_groups += u64::from(!group.meta.destroyed);
            self.report.n_entries += group.meta.last - group.meta.floor;
            self.report.live_bytes += group.bytes;
        }
        damaged.sort_unstable();
        Ok((segments, groups, damaged))
    }

    /// Seals what has frames and no seal. The newest ends after its last good frame.
    fn seal(&self, sources: &[(PathBuf, SegmentRecords)], segments: &[Arc<Segment>]) -> Result<()> {
        for ((path, source), segment) in sources.iter().zip(segments) {
            if !source.loaded.sealed {
                seal(&source.loaded, segment, &self.buffers).map_err(Error::io("seal", path))?;
            }
            if !source.loaded.header_is_whole {
                let header = &source.loaded.header;
                segment::write_header(&*segment.file, header, &self.buffers).map_err(Error::io("mend", path))?;
            }
        }
        Ok(())
    }

    /// The segment that will take frames, and other empty ones. If `FORMAT` names an empty segment, that one, if it can
    /// be used as it is; else it is left alone until another one is named.
    fn free(
        &self,
        ident: &Ident,
        mut empty: Vec<(PathBuf, LoadedSegment)>,
        named_seq: u64,
        name: impl Fn(&Segment) -> Result<()>,
        making: &mut SegmentPreparation,
        numbers: &mut SegmentNumbers,
    ) -> Result<(Arc<Segment>, FreeSegments)> {
        let is_named = |loaded: &LoadedSegment| loaded.header.seq == named_seq;
        let usual = self.options.segment_bytes();
        let fits = |loaded: &LoadedSegment| loaded.is_ready(numbers.newest, ident.unit) && loaded.size_bytes <= usual;
        let named = empty.iter().position(|(_, loaded)| is_named(loaded) && fits(loaded));
        if let Some(at) = named {
            let active = empty_segment(empty.swap_remove(at));
            numbers.newest = active.seq;
            name(&active)?;
            let mut free = FreeSegments::new();
            self.use_again(ident, empty, FREE_SEGMENTS, &mut free, numbers)?;
            return Ok((active, free));
        }
        let (named, others): (Vec<_>, Vec<_>) = empty.into_iter().partition(|(_, loaded)| is_named(loaded));
        let mut free = FreeSegments::new();
        self.use_again(ident, others, FREE_SEGMENTS + 1, &mut free, numbers)?;
        let active = match free.pop_first() {
            Some((_, active)) => active,
            None => self.first(ident, making, numbers)?,
        };
        name(&active)?;
        self.use_again(ident, named, FREE_SEGMENTS, &mut free, numbers)?;
        Ok((active, free))
    }

    /// Adds empty files that may be used again, until there are so many; the rest is removed.
    fn use_again(
        &self,
        ident: &Ident,
        empty: Vec<(PathBuf, LoadedSegment)>,
        n_free: usize,
        free: &mut FreeSegments,
        numbers: &mut SegmentNumbers,
    ) -> Result<()> {
        for (path, loaded) in empty {
            let usual = loaded.size_bytes == self.options.segment_bytes();
            if !usual || free.len() >= n_free {
                self.disk.remove(&path).map_err(Error::io("remove", &path))?;
                continue;
            }
            let as_new = loaded.is_ready(numbers.newest, ident.unit) && !free.contains_key(&loaded.header.seq);
            if !loaded.header_is_whole {
                // The copy that is whole is written first when the file is renewed: the other must be whole by then.
                let mended = segment::write_header(&*loaded.file, &loaded.header, &self.buffers);
                mended.map_err(Error::io("mend", &path))?;
            }
            let mut segment = empty_segment((path, loaded));
            if !as_new {
                segment = segment::renew(self.disk, ident, &segment, numbers.take(), &self.buffers)?;
            }
            free.insert(segment.seq, segment);
        }
        Ok(())
    }

    /// A small segment to begin with.
    fn first(
        &self,
        ident: &Ident,
        making: &mut SegmentPreparation,
        numbers: &mut SegmentNumbers,
    ) -> Result<Arc<Segment>> {
        let bytes = self.options.segment_bytes().min(FIRST_SEGMENT_BYTES);
        let mut preparation = Preparation::begin(self.disk, self.options, making.next_slot, bytes)?;
        while !preparation.fill(&self.buffers)? {}
        making.next_slot += 1;
        preparation.finish(self.disk, self.dir(), ident, numbers.take(), &self.buffers)
    }
}

/// Empty segments, by number.
type FreeSegments = BTreeMap<u64, Arc<Segment>>;

/// Numbers of segments: an empty one can be used as it is if it is behind `newest`; `next` was never given.
struct SegmentNumbers {
    newest: u64,
    next: u64,
}

impl SegmentNumbers {
    fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

fn empty_segment((path, loaded): (PathBuf, LoadedSegment)) -> Arc<Segment> {
    Arc::new(Segment::new(&loaded.header, path, loaded.file, loaded.size_bytes))
}

fn segment_of(path: &Path, source: &SegmentRecords) -> Arc<Segment> {
    let loaded = &source.loaded;
    let segment = Segment::new(&loaded.header, path.to_path_buf(), Arc::clone(&loaded.file), loaded.size_bytes);
    segment.end.store(loaded.end, Ordering::Relaxed);
    segment.sealed.store(true, Ordering::Relaxed);
    segment.set_born_bytes(source.born_bytes);
    Arc::new(segment)
}

/// Numbers that the newest segment with frames may have if it has no seal: the one that is named, and, should the name
/// be damaged, the first behind all sealed ones. An empty file of the same number must not hide it, nor may one with a
/// lower number that was never used.
fn may_be_newest(loaded: &[(PathBuf, LoadedSegment)], head: &FormatFile) -> [Option<u64>; 2] {
    let numbers = |sealed: bool| loaded.iter().filter(move |(_, s)| s.sealed == sealed).map(|(_, s)| s.header.seq);
    let newest_sealed = numbers(true).max().unwrap_or(0);
    [Some(head.newest_seq()), numbers(false).filter(|&seq| seq > newest_sealed).min()]
}

/// Damage if two segments with frames have one number: they are of two histories, and nobody can say which one counts.
/// Of an empty segment the number means nothing: it is renewed.
pub fn same_number(one: &(PathBuf, SegmentRecords), other: &(PathBuf, SegmentRecords)) -> Option<Damage> {
    let is_same = one.1.loaded.header.seq == other.1.loaded.header.seq;
    let what = || format!("the same segment as {}", one.0.display());
    is_same.then(|| Damage { path: other.0.clone(), offset: 0, what: what() })
}

/// What is wrong between two segments that follow each other, if anything is. Segments between them may be gone.
pub fn broken_chain(
    (before_path, before): (&Path, &LoadedSegment),
    (path, segment): (&Path, &LoadedSegment),
) -> Option<Error> {
    let (want, got) = (before.chain.next_lsn, segment.first_lsn);
    if got < want {
        let what = format!("starts with batch {got} after batch {}", want - 1);
        return Some(Error::corrupt(path, format::FIRST_FRAME, what));
    }
    if got == want && segment.first_prev_crc != before.chain.crc {
        return Some(Error::corrupt(path, format::FIRST_FRAME, "does not continue the segment before it"));
    }
    if got != want && !before.sealed {
        let what = "segment was never finished, but a later one has entries";
        return Some(Error::corrupt(before_path, before.end, what));
    }
    None
}

/// Ends an unsealed segment after its last good frame.
fn seal(loaded: &LoadedSegment, segment: &Arc<Segment>, buffers: &Buffers) -> io::Result<()> {
    let mut draft = Draft::new(segment, Chain { crc: loaded.first_prev_crc, next_lsn: loaded.first_lsn });
    for batch in &loaded.batches {
        draft.line(batch.lsn, batch.data_offset, loaded.head_and_meta(batch));
    }
    draft.n_frames = loaded.n_frames;
    draft.last_crc = loaded.chain.crc;
    draft.next_lsn = loaded.chain.next_lsn;
    draft.end = loaded.end;
    let at_end = loaded.size_bytes.saturating_sub(draft.seal_bytes());
    let offset = if at_end < loaded.end { format::align(loaded.end) } else { at_end };
    seal_at(&draft, offset, buffers)
}

/// Writes the seal so that the file ends with it. What stands in the file may be only in the page cache: it is synced
/// first.
pub fn seal_at(draft: &Draft, offset: u64, buffers: &Buffers) -> io::Result<()> {
    let (segment, len) = (&draft.segment, draft.seal_bytes());
    let (seal, trailer) = draft.encode(offset);
    let mut buffer = buffers.take(len as usize);
    buffer.extend(&seal);
    buffer.pad(BLOCK as usize);
    buffer.extend(&trailer);
    segment.file.sync()?;
    segment.file.write_durable(buffer.bytes(), offset)?;
    // The seal before the length: a file shorter than reserved then always has a whole seal.
    let size_bytes = offset + len;
    if size_bytes != segment.size_bytes() {
        segment.file.set_len(size_bytes)?;
        segment.file.sync()?;
    }
    segment.file.rest();
    buffers.give(buffer);
    draft.done(size_bytes);
    Ok(())
}

/// The segment files of a folder.
pub struct Listing {
    /// (number in the name, path), ascending.
    pub segments: Vec<(u64, PathBuf)>,
    /// Files that were being made when the process ended, by the number in their name.
    pub temporary: Vec<(u64, PathBuf)>,
}

/// Refuses a file with the extension of segments whose name is no number.
pub fn list(disk: &dyn Disk, dir: &Path) -> Result<Listing> {
    let names = disk.list(dir).map_err(Error::io("list", dir))?;
    let mut listing = Listing { segments: Vec::new(), temporary: Vec::new() };
    for name in names {
        let path = dir.join(&name);
        if let Some(stem) = name.strip_suffix(TEMPORARY) {
            listing.temporary.push((stem.parse().unwrap_or(0), path));
        } else if let Some(stem) = name.strip_suffix(EXTENSION) {
            match stem.parse() {
                Ok(slot) => listing.segments.push((slot, path)),
                Err(_) => return Err(Error::corrupt(&path, 0, "file name is not a segment number")),
            }
        }
    }
    listing.segments.sort();
    Ok(listing)
}
