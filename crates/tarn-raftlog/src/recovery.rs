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
//! Without its newest segment a log looks like one that ended before it, and opens. Who knows better refuses to go on
//! and has the file put back; what such an open made is empty and stands in nobody's way.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::buffer::Buffers;
use crate::care::{FREE_SEGMENTS, Making};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{self, BLOCK};
use crate::index::Group;
use crate::lane::{Chain, Draft, Lane};
use crate::log::Shared;
use crate::options::{Damage, Durability, Options, Recovery, RecoveryReport};
use crate::replay::{Hole, Source, replay, side_by_side};
use crate::segment::{self, EXTENSION, Ident, Preparation, Segment, TEMPORARY};
use crate::shards::Shards;
use crate::tail::{self, Loaded, read_at, refuse};
use crate::{GroupId, Index};

/// The first segment of a log is small, so that opening a new one writes little; later ones are made beside it.
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;

pub fn open(
    disk: Arc<dyn Disk>,
    options: Options,
    lock: Box<dyn Any + Send + Sync>,
) -> Result<(Shared, RecoveryReport)> {
    let started = options.clock.map(|clock| clock());
    let dir = options.dir.clone();
    let listing = list(&*disk, &dir)?;
    let store = match read_format(&*disk, &dir)? {
        Some(store) => store,
        None if listing.segments.is_empty() => write_format(&*disk, &dir)?,
        None => return Err(Error::corrupt(&dir.join(FORMAT), 0, "missing, though there are segments")),
    };
    let next_slot = listing.segments.iter().chain(&listing.temporary).map(|(slot, _)| slot + 1).max().unwrap_or(1);
    let mut report = RecoveryReport::default();
    let mut opening =
        Opening { disk: &*disk, options: &options, buffers: Buffers::default(), report: &mut report, unknown: false };
    let loaded = opening.load(&listing, store)?;
    let (sources, empty, chain) = opening.order(loaded)?;
    let (segments, groups, damaged) = opening.replay(&sources)?;

    // Everything is sound, or is known to be damaged: from here on files change.
    let ident = Ident::new(store, &options);
    let mut next_seq = sources
        .iter()
        .map(|(_, s)| s.loaded.header.seq)
        .chain(empty.iter().map(|(_, e)| e.header.seq))
        .max()
        .unwrap_or(0)
        + 1;
    opening.seal(&sources, &segments)?;
    let newest = segments.last().map_or(0, |segment| segment.seq);
    let mut free = opening.free(&ident, empty, newest, &mut next_seq)?;
    for (_, path) in &listing.temporary {
        disk.remove(path).map_err(Error::io("remove", path))?;
    }
    disk.sync_dir(&dir).map_err(Error::io("sync folder", &dir))?;
    let mut making = Making::new(next_slot);
    let active = match free.pop_first() {
        Some((_, active)) => active,
        None => opening.first(&ident, &mut making, &mut next_seq)?,
    };
    let n_free = free.len() as u64;
    let buffers = opening.buffers;
    report.n_free = n_free + 1;
    report.damaged = damaged.iter().map(|&(group, from)| (GroupId(group), Index(from))).collect();

    let mut table: BTreeMap<u64, Arc<Segment>> = segments.into_iter().map(|s| (s.seq, s)).collect();
    table.insert(active.seq, Arc::clone(&active));
    let flushed = options.sync != Durability::Os;
    let mut lane = Lane::new(table, free, active, next_seq, chain, flushed);
    lane.counters.segments_created = 1;
    let shared = Shared {
        disk: Arc::clone(&disk),
        options,
        ident,
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
    if let (Some(clock), Some(then)) = (shared.options.clock, started) {
        shared.tally.recovery_ns.store(clock().saturating_sub(then), Ordering::Relaxed);
    }
    Ok((shared, report))
}

/// Writes the damage into the groups' records: the next open must know it too.
fn remember_damage(shared: &Shared, damaged: &[(u64, u64)]) -> Result<()> {
    if damaged.is_empty() {
        return Ok(());
    }
    let mut batch = crate::Batch::default();
    damaged.iter().for_each(|&(group, _)| batch.refresh(group));
    let lsn = shared.submit(batch)?;
    shared.wait(lsn)
}

struct Opening<'a> {
    disk: &'a dyn Disk,
    options: &'a Options,
    buffers: Buffers,
    report: &'a mut RecoveryReport,
    /// Something acknowledged is lost, and nobody can say of which group.
    unknown: bool,
}

impl Opening<'_> {
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

    /// Reads all files: the sealed by their seals; of the others those that may be the newest with frames, and any that
    /// seem to hold frames, whole.
    fn load(&mut self, listing: &Listing, store: u64) -> Result<Vec<(PathBuf, Source)>> {
        let (disk, paths) = (self.disk, &listing.segments);
        let opened = side_by_side(paths.len(), |i| {
            let path = &paths[i].1;
            let file = disk.open(path).map_err(Error::io("open", path))?;
            tail::open(file, path, store)
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
        let may_be_newest = may_be_newest(&loaded);
        let slots: Vec<_> = loaded.into_iter().map(|segment| Mutex::new(Some(segment))).collect();
        let sources = side_by_side(slots.len(), |i| {
            let (path, mut loaded) = slots[i].lock().take().expect("each segment is taken once");
            let is_candidate = may_be_newest.contains(&Some(loaded.header.seq));
            if !loaded.sealed && (is_candidate || tail::has_first_frame(&loaded, &path)?) {
                let bound = loaded.size_bytes;
                tail::scan(&mut loaded, &path, bound)?;
            }
            let mut source = Source::new(loaded);
            if source.loaded.damage.is_none() {
                source.parse(&path)?;
            }
            Ok((path, source))
        });
        let mut sources: Vec<(PathBuf, Source)> = sources.into_iter().collect::<Result<_>>()?;
        for (_, source) in &mut sources {
            if let Some(Damage { path, offset, what }) = source.loaded.damage.clone() {
                self.damaged(Error::Corrupt { path: path.clone(), offset, what })?;
                tail::salvage(&mut source.loaded, &path)?;
                source.parse(&path)?;
            }
        }
        Ok(sources)
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
        sources: Vec<(PathBuf, Source)>,
    ) -> Result<(Vec<(PathBuf, Source)>, Vec<(PathBuf, Loaded)>, Chain)> {
        let (sources, empty): (Vec<_>, Vec<_>) = sources.into_iter().partition(|(_, source)| !source.loaded.is_empty());
        let empty: Vec<_> = empty.into_iter().map(|(path, source)| (path, source.loaded)).collect();
        for pair in sources.windows(2) {
            if let Some(Damage { path, offset, what }) = same_number(&pair[0], &pair[1]) {
                return Err(Error::Corrupt { path, offset, what });
            }
        }
        let with_frames = || sources.iter().map(|(path, source)| (path, &source.loaded));
        let mut before: Option<(&Path, &Loaded)> = None;
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
        sources: &[(PathBuf, Source)],
    ) -> Result<(Vec<Arc<Segment>>, Vec<(u64, Group)>, Vec<(u64, u64)>)> {
        let segments: Vec<Arc<Segment>> = sources.iter().map(|(path, source)| segment_of(path, source)).collect();
        let only: Vec<&Source> = sources.iter().map(|(_, source)| source).collect();
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
    fn seal(&self, sources: &[(PathBuf, Source)], segments: &[Arc<Segment>]) -> Result<()> {
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

    /// The empty files that may be used again; the rest is removed.
    fn free(
        &mut self,
        ident: &Ident,
        empty: Vec<(PathBuf, Loaded)>,
        newest: u64,
        next_seq: &mut u64,
    ) -> Result<BTreeMap<u64, Arc<Segment>>> {
        let mut free = BTreeMap::new();
        for (path, loaded) in empty {
            let usual = loaded.size_bytes == self.options.segment_bytes();
            if !usual || free.len() > FREE_SEGMENTS {
                self.disk.remove(&path).map_err(Error::io("remove", &path))?;
                continue;
            }
            let header = loaded.header;
            let segment = Arc::new(Segment::new(&header, path, loaded.file, loaded.size_bytes));
            let is_next = header.seq > newest && !free.contains_key(&header.seq);
            let as_new = loaded.header_is_whole && !loaded.torn && is_next;
            let segment = match as_new && header.unit == ident.unit {
                true => segment,
                false => {
                    *next_seq += 1;
                    segment::renew(self.disk, ident, &segment, *next_seq - 1, &self.buffers)?
                }
            };
            free.insert(segment.seq, segment);
        }
        Ok(free)
    }

    /// A small segment to begin with.
    fn first(&self, ident: &Ident, making: &mut Making, next_seq: &mut u64) -> Result<Arc<Segment>> {
        let bytes = self.options.segment_bytes().min(FIRST_SEGMENT_BYTES);
        let mut preparation = Preparation::begin(self.disk, self.options, making.next_slot, bytes)?;
        while !preparation.fill(&self.buffers)? {}
        making.next_slot += 1;
        *next_seq += 1;
        preparation.finish(self.disk, self.dir(), ident, *next_seq - 1, &self.buffers)
    }
}

fn segment_of(path: &Path, source: &Source) -> Arc<Segment> {
    let loaded = &source.loaded;
    let segment = Segment::new(&loaded.header, path.to_path_buf(), Arc::clone(&loaded.file), loaded.size_bytes);
    segment.end.store(loaded.end, Ordering::Relaxed);
    segment.sealed.store(true, Ordering::Relaxed);
    segment.set_born_bytes(source.born_bytes);
    Arc::new(segment)
}

/// Numbers that the newest segment with frames may have if it has no seal: of the files without a seal the first, and
/// the first behind all sealed ones. An empty file may have the same number and must not hide it, nor may one with a
/// lower number that was never used.
fn may_be_newest(loaded: &[(PathBuf, Loaded)]) -> [Option<u64>; 2] {
    let numbers = |sealed: bool| loaded.iter().filter(move |(_, s)| s.sealed == sealed).map(|(_, s)| s.header.seq);
    let newest_sealed = numbers(true).max().unwrap_or(0);
    [numbers(false).min(), numbers(false).filter(|&seq| seq > newest_sealed).min()]
}

/// Damage if two segments with frames have one number: they are of two histories, and nobody can say which one counts.
///
/// Of an empty segment the number means nothing. An open that does not see the newest segment gives its number to an
/// empty one; when the newest is put back, it counts, and the empty one is renewed.
pub fn same_number(one: &(PathBuf, Source), other: &(PathBuf, Source)) -> Option<Damage> {
    let is_same = one.1.loaded.header.seq == other.1.loaded.header.seq;
    let what = || format!("the same segment as {}", one.0.display());
    is_same.then(|| Damage { path: other.0.clone(), offset: 0, what: what() })
}

/// What is wrong between two segments that follow each other, if anything is. Segments between them may be gone.
fn broken_chain((before_path, before): (&Path, &Loaded), (path, segment): (&Path, &Loaded)) -> Option<Error> {
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
fn seal(loaded: &Loaded, segment: &Arc<Segment>, buffers: &Buffers) -> io::Result<()> {
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

pub const FORMAT: &str = "FORMAT";

pub struct Listing {
    /// (number in the name, path), ascending.
    pub segments: Vec<(u64, PathBuf)>,
    pub temporary: Vec<(u64, PathBuf)>,
}

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

pub fn read_format(disk: &dyn Disk, dir: &Path) -> Result<Option<u64>> {
    let path = dir.join(FORMAT);
    let file = match disk.open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { action: "open", path, source }),
    };
    let block = read_at(&*file, &path, 0, BLOCK)?;
    format::decode_format(&block).map(Some).map_err(|bad| refuse(bad, &path, 0))
}

fn write_format(disk: &dyn Disk, dir: &Path) -> Result<u64> {
    let path = dir.join(FORMAT);
    let temporary = dir.join(format!("{FORMAT}{TEMPORARY}"));
    let store = disk.salt();
    let write = || -> io::Result<()> {
        let file = disk.create(&temporary, 0)?;
        file.write_at(&format::encode_format(store), 0)?;
        file.sync()?;
        disk.rename(&temporary, &path)?;
        disk.sync_dir(dir)
    };
    write().map_err(Error::io("write", &path))?;
    Ok(store)
}
