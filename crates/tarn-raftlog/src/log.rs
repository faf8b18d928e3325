//! How do many callers share one log, one write and one flush?
//!
//! `submit` plans a batch, gives it its final place on disk, makes it readable and queues it, all under one lock
//! and without I/O. A caller that waits for its ticket and finds nobody writing becomes the committer: it takes the
//! oldest queued frame (everything submitted while the last one was being written), writes and flushes it without
//! the lock, and wakes everyone. There is no thread; the queue drains because those who need it drain it.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::Batch;
use crate::cache::TailCache;
use crate::disk::{Disk, DiskFile, OsDisk};
use crate::error::{Error, Result};
use crate::format::{self, BLOCK};
use crate::gc;
use crate::index::Group;
use crate::options::{Blocker, GcReport, Metrics, Options, RecoveryReport, VerifyReport};
use crate::recovery::{self, Recovered};
use crate::segment::{self, Segment, Writer};
use crate::state::State;
use crate::verify;
use crate::{GroupId, Index, Term};

/// One log for many groups. Share it by reference or [`Arc`]; all calls are safe from any thread.
///
/// The unit of order is the batch: if a batch survives a crash, so does every batch submitted before it.
pub struct RaftLog {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub options: Options,
    store: u64,
    pub state: Mutex<State>,
    /// Signalled when a frame is durable, the log is poisoned, or a spare segment is made.
    progress: Condvar,
    /// Locked by the committer only, never while `state` is held.
    writer: Mutex<Writer>,
    /// One collector at a time.
    pub collecting: Mutex<()>,
    _lock: Box<dyn Any + Send + Sync>,
}

/// One entry as it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub index: Index,
    pub term: Term,
    pub payload: Bytes,
}

/// The promise of a submitted batch. Dropping it is allowed: the batch becomes durable with any later one.
#[must_use = "a batch is durable only when its ticket has been waited for"]
pub struct Ticket {
    shared: Arc<Shared>,
    lsn: u64,
}

impl Ticket {
    /// Returns when the batch, and every one submitted before it, is durable. May write and flush for others too.
    ///
    /// # Errors
    /// [`Error::Undecided`] when a write failed: the batch may be there after a restart.
    pub fn wait(&self) -> Result<()> {
        self.shared.wait(self.lsn)
    }

    /// Whether [`Ticket::wait`] would return at once.
    pub fn is_durable(&self) -> bool {
        self.shared.state.lock().durable_lsn >= self.lsn
    }
}

impl RaftLog {
    /// Opens or makes the log in `options.dir` and takes its lock. Reads the index of every sealed segment and all of
    /// the newest one; cuts off a torn last write (reported); starts a fresh segment.
    ///
    /// # Errors
    /// `Locked` if another process has it; `Corrupt` or `Missing` if anything acknowledged is damaged or gone: nothing
    /// is changed on disk then.
    pub fn open(options: Options) -> Result<(RaftLog, RecoveryReport)> {
        RaftLog::open_on(Arc::new(OsDisk), options)
    }

    /// As [`RaftLog::open`], on a disk of the caller's.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<(RaftLog, RecoveryReport)> {
        options.check()?;
        let dir = &options.dir;
        disk.create_dir_all(dir).map_err(Error::io("create folder", dir))?;
        let lock = take_lock(&*disk, dir)?;
        let recovered = recovery::recover(&*disk, &options)?;
        let Recovered { store, mut segments, groups, next_seq, next_lsn, last_crc, report } = recovered;

        let active = segment::create(&*disk, dir, store, next_seq, options.segment_bytes)?;
        let writer = Writer {
            segment: next_seq,
            file: Arc::clone(&active.file),
            salt: active.salt,
            end: BLOCK,
            prev_crc: last_crc,
            next_lsn,
            lines: Vec::new(),
            n_batches: 0,
        };
        segments.insert(next_seq, active);
        let state = State {
            groups,
            segments,
            active: next_seq,
            spare: None,
            next_seq: next_seq + 1,
            making_spare: false,
            spare_failed: false,
            next_offset: BLOCK,
            seal_bytes: format::FRAME_HEADER as u64,
            queue: VecDeque::new(),
            in_flight: false,
            next_lsn,
            durable_lsn: next_lsn - 1,
            pending_bytes: 0,
            cache: TailCache::new(options.cache_bytes),
            poisoned: None,
            counters: Metrics { segments_created: 1, ..Metrics::default() },
        };
        let shared = Shared {
            disk,
            options,
            store,
            state: Mutex::new(state),
            progress: Condvar::new(),
            writer: Mutex::new(writer),
            collecting: Mutex::new(()),
            _lock: lock,
        };
        Ok((RaftLog { shared: Arc::new(shared) }, report))
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::default()
    }

    /// Checks the batch and makes it readable, in order after all submitted before. Durable when the ticket says so.
    /// Does no I/O, unless more than `pending_bytes` wait (then it commits some) or a segment must be made.
    ///
    /// # Errors
    /// `Gap`, `BelowFloor`, `TooLarge`: the batch is wrong. `NoSpace`: no room for a segment; purges still go through
    /// for a while. `Poisoned`: an earlier write failed. In all cases nothing of the batch was done.
    pub fn submit(&self, batch: Batch) -> Result<Ticket> {
        let lsn = self.shared.submit(batch)?;
        Ok(Ticket { shared: Arc::clone(&self.shared), lsn })
    }

    /// Submits and waits.
    pub fn commit(&self, batch: Batch) -> Result<()> {
        self.submit(batch)?.wait()
    }

    /// Makes everything submitted so far durable, batches whose ticket was dropped too.
    pub fn sync(&self) -> Result<()> {
        let last = self.shared.state.lock().next_lsn - 1;
        self.shared.wait(last)
    }

    /// The first index that is, or may next be, in the log: one after what is purged.
    pub fn first_index(&self, group: GroupId) -> Index {
        Index(self.group(group, |g| g.meta.floor).unwrap_or(0) + 1)
    }

    /// The last index; of an empty log the purged floor, 0 if nothing was ever appended.
    pub fn last_index(&self, group: GroupId) -> Index {
        Index(self.group(group, |g| g.meta.last).unwrap_or(0))
    }

    /// The term of a live entry or of the purged floor. Memory only.
    pub fn term(&self, group: GroupId, index: Index) -> Option<Term> {
        self.group(group, |g| g.term(index.0)).flatten().map(Term)
    }

    /// Payload bytes of the group's live entries. Memory only.
    pub fn log_bytes(&self, group: GroupId) -> u64 {
        self.group(group, |g| g.bytes).unwrap_or(0)
    }

    /// The group's hard state, as it was last set.
    pub fn state(&self, group: GroupId) -> Option<Bytes> {
        self.group(group, |g| g.meta.state.clone()).flatten()
    }

    /// The value of one of the group's pairs.
    pub fn get(&self, group: GroupId, key: &[u8]) -> Option<Bytes> {
        self.group(group, |g| g.meta.pairs.get(key).cloned()).flatten()
    }

    /// All groups that exist, sorted.
    pub fn groups(&self) -> Vec<GroupId> {
        let state = self.shared.state.lock();
        let mut groups: Vec<_> =
            state.groups.iter().filter(|(_, g)| !g.meta.destroyed).map(|(&id, _)| GroupId(id)).collect();
        groups.sort_unstable();
        groups
    }

    /// Entries of `range` in order, as many as fit in `max_bytes` of payload, but at least one if the range is not
    /// empty. From memory where they are recent; else one read per run of neighbours, every entry's checksum checked.
    ///
    /// # Errors
    /// `Purged`, `OutOfRange`: part of the range is not there. `Corrupt`: the bytes on disk are not what was appended.
    pub fn entries(&self, group: GroupId, range: Range<Index>, max_bytes: usize) -> Result<Vec<Entry>> {
        self.shared.entries(group, range, max_bytes)
    }

    /// Deletes segments nothing lives in; then, while the log takes more disk than 1.5 times its live bytes and four
    /// segments, copies the remainder of the emptiest ones to the end, up to `budget_bytes`. For one caller from time
    /// to time; it shares commits with everyone else.
    pub fn collect_garbage(&self, budget_bytes: u64) -> Result<GcReport> {
        gc::collect(&self.shared, budget_bytes)
    }

    /// Groups that keep the oldest segment, largest first.
    pub fn gc_blockers(&self) -> Vec<Blocker> {
        gc::blockers(&self.shared.state.lock())
    }

    /// Counters since open and what there is now. Cost: one pass over groups and segments.
    pub fn metrics(&self) -> Metrics {
        let state = self.shared.state.lock();
        Metrics {
            n_groups: state.groups.values().filter(|g| !g.meta.destroyed).count() as u64,
            n_segments: state.segments.len() as u64,
            disk_bytes: state.segments.values().map(|s| s.size_bytes).sum(),
            live_bytes: state.segments.values().map(|s| s.live_bytes).sum(),
            cached_bytes: state.cache.bytes(),
            pending_bytes: state.pending_bytes,
            poisoned: state.poisoned.is_some(),
            ..state.counters.clone()
        }
    }

    /// Reads every byte of the log in `dir`, which no process may have open, and reports all damage. Changes nothing.
    pub fn verify(dir: &Path) -> Result<VerifyReport> {
        RaftLog::verify_on(&OsDisk, dir)
    }

    /// As [`RaftLog::verify`], on a disk of the caller's.
    pub fn verify_on(disk: &dyn Disk, dir: &Path) -> Result<VerifyReport> {
        let _lock = take_lock(disk, dir)?;
        verify::verify(disk, dir)
    }

    fn group<T>(&self, group: GroupId, read: impl FnOnce(&Group) -> T) -> Option<T> {
        let state = self.shared.state.lock();
        state.groups.get(&group.0).map(read)
    }
}

fn take_lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn Any + Send + Sync>> {
    let path = dir.join("LOCK");
    let lock = disk.lock(&path).map_err(Error::io("lock", &path))?;
    lock.ok_or(Error::Locked { path })
}

impl Shared {
    pub fn submit(&self, batch: Batch) -> Result<u64> {
        let mut state = self.state.lock();
        loop {
            if let Some(cause) = &state.poisoned {
                return Err(Error::Poisoned { cause: Arc::clone(cause) });
            }
            if state.pending_bytes > self.options.pending_bytes {
                self.make_progress(&mut state);
                continue;
            }
            let plan = state.plan(&batch)?;
            if plan.is_empty() {
                return Ok(state.next_lsn - 1);
            }
            match state.place(&plan, self.options.segment_bytes) {
                Some((segment, offset)) => return Ok(state.apply(batch, plan, segment, offset)),
                None if state.making_spare => self.progress.wait(&mut state),
                None => self.make_spare(&mut state)?,
            }
        }
    }

    pub fn wait(&self, lsn: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.durable_lsn < lsn {
            if let Some(cause) = &state.poisoned {
                return Err(Error::Undecided { cause: Arc::clone(cause) });
            }
            self.make_progress(&mut state);
        }
        Ok(())
    }

    /// Commits the oldest frame, or waits for whoever is at it.
    fn make_progress(&self, state: &mut MutexGuard<'_, State>) {
        if state.in_flight {
            self.progress.wait(state);
            return;
        }
        let Some(frame) = state.queue.pop_front() else { return };
        if state.queue.is_empty() {
            state.next_offset = frame.end();
        }
        let segment = state.segments[&frame.segment].clone();
        state.in_flight = true;
        let written = MutexGuard::unlocked(state, || self.writer.lock().commit(&frame, &segment, self.options.sync));
        state.in_flight = false;
        match written {
            Ok(sealed) => {
                state.durable_lsn = frame.last_lsn();
                state.pending_bytes -= frame.payload_bytes;
                state.counters.frames += 1;
                state.counters.written_bytes += frame.end() - frame.offset;
                let durable_lsn = state.durable_lsn;
                state.cache.evict(durable_lsn);
                if let Some(old) =
                    sealed.and_then(|(old, size_bytes)| Some((state.segments.get_mut(&old)?, size_bytes)))
                {
                    old.0.sealed = true;
                    old.0.size_bytes = old.1;
                }
                if let Some(segment) = state.segments.get_mut(&frame.segment) {
                    segment.size_bytes = segment.size_bytes.max(frame.end());
                }
            }
            Err(error) => state.poisoned = Some(format!("write {}: {error}", segment.path.display()).into()),
        }
        self.progress.notify_all();
        if state.spare.is_none() && !state.making_spare && !state.spare_failed && state.poisoned.is_none() {
            // Ahead of need; if it fails, the batch that needs it will say so.
            state.spare_failed = self.make_spare(state).is_err();
        }
    }

    fn make_spare(&self, state: &mut MutexGuard<'_, State>) -> Result<()> {
        let seq = state.next_seq;
        state.next_seq += 1;
        state.making_spare = true;
        let made = MutexGuard::unlocked(state, || {
            segment::create(&*self.disk, &self.options.dir, self.store, seq, self.options.segment_bytes)
        });
        state.making_spare = false;
        self.progress.notify_all();
        state.segments.insert(seq, made?);
        state.spare = Some(seq);
        state.counters.segments_created += 1;
        Ok(())
    }

    pub fn entries(&self, group: GroupId, range: Range<Index>, max_bytes: usize) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let mut files = HashMap::new();
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            let nothing = Group::default();
            let log = state.groups.get(&group.0).unwrap_or(&nothing);
            if range.start >= range.end {
                return Ok(Vec::new());
            }
            if range.start.0 <= log.meta.floor {
                return Err(Error::Purged { group, range, floor: Index(log.meta.floor) });
            }
            if range.end.0 - 1 > log.meta.last {
                return Err(Error::OutOfRange { group, range, last: Index(log.meta.last) });
            }
            let mut bytes = 0;
            for (index, segment, loc) in log.locate(range.start.0) {
                bytes += loc.len as usize;
                if index >= range.end.0 || (bytes > max_bytes && !found.is_empty()) {
                    break;
                }
                let payload = state.cache.get(segment, u64::from(loc.offset), loc.len as usize);
                if payload.is_some() {
                    state.counters.cache_hits += 1;
                } else {
                    state.counters.cache_misses += 1;
                    files.entry(segment).or_insert_with(|| state.segments[&segment].clone());
                }
                found.push(Found { index, term: log.term(index).unwrap_or(0), segment, loc, payload });
            }
        }
        read_missing(group, &mut found, &files)?;
        let entry =
            |f: Found| Entry { index: Index(f.index), term: Term(f.term), payload: f.payload.unwrap_or_default() };
        Ok(found.into_iter().map(entry).collect())
    }
}

struct Found {
    index: u64,
    term: u64,
    segment: u64,
    loc: crate::index::Loc,
    payload: Option<Bytes>,
}

/// Neighbours this near are read in one go, up to this much at once.
const GAP_BYTES: u64 = 16 << 10;
const READ_BYTES: u64 = 4 << 20;

fn read_missing(group: GroupId, found: &mut [Found], files: &HashMap<u64, Segment>) -> Result<()> {
    let mut at = 0;
    while at < found.len() {
        if found[at].payload.is_some() {
            at += 1;
            continue;
        }
        let (segment, start) = (found[at].segment, u64::from(found[at].loc.offset));
        let mut end = start + u64::from(found[at].loc.len);
        let mut next = at + 1;
        while let Some(f) = found.get(next) {
            let offset = u64::from(f.loc.offset);
            let near = f.payload.is_none() && f.segment == segment && offset >= end && offset - end <= GAP_BYTES;
            if !near || offset + u64::from(f.loc.len) - start > READ_BYTES {
                break;
            }
            end = offset + u64::from(f.loc.len);
            next += 1;
        }
        let Segment { path, file, .. } = &files[&segment];
        let bytes = read_range(&**file, path, start, end)?;
        for f in &mut found[at..next] {
            let from = (u64::from(f.loc.offset) - start) as usize;
            let payload = bytes.slice(from..from + f.loc.len as usize);
            if format::entry_crc(group.0, f.index, f.term, &payload) != f.loc.crc {
                let what = format!("entry {} of group {group} has a wrong checksum", f.index);
                return Err(Error::corrupt(path, u64::from(f.loc.offset), what));
            }
            f.payload = Some(payload);
        }
        at = next;
    }
    Ok(())
}

fn read_range(file: &dyn DiskFile, path: &Path, start: u64, end: u64) -> Result<Bytes> {
    let mut buf = vec![0; (end - start) as usize];
    match file.read_at(&mut buf, start) {
        Ok(()) => Ok(buf.into()),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(path, start, "file ends inside an entry"))
        }
        Err(source) => Err(Error::Io { action: "read", path: path.to_path_buf(), source }),
    }
}

/// Segments by number, as recovery hands them over.
pub(crate) type Segments = BTreeMap<u64, Segment>;
