//! One log for many groups: what can be asked of it?
//!
//! [`RaftLog`] is the handle; what it shares with tickets and committers is [`OpenLog`].

use std::any::Any;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::batch::Batch;
use crate::disk::{Disk, OsDisk};
use crate::error::{Error, Result};
use crate::gc;
use crate::index::Group;
use crate::metrics::{Metrics, SegmentInfo};
use crate::open_log::OpenLog;
use crate::options::{Blocker, Compression, Durability, GcReport, Options, RecoveryReport, VerifyReport};
use crate::recovery;
use crate::submit::refuse_damaged;
use crate::ticket::{Committer, Ticket};
use crate::verify;
use crate::{GroupId, Index, Term};

/// One log for many groups. Share it by reference or [`Arc`]; all calls are safe from any thread.
///
/// The unit of order is the batch: if a batch survives a crash, so does every batch submitted before it.
pub struct RaftLog {
    shared: Arc<OpenLog>,
}

/// One entry as it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the group, from 1.
    pub index: Index,
    /// The term in which its leader appended it.
    pub term: Term,
    /// As it was appended, held against its checksum.
    pub payload: Bytes,
}

impl RaftLog {
    /// Opens or makes the log in `options.dir` and takes its lock. Reads the index of every sealed segment and all of
    /// the newest one; cuts off torn last writes (reported); starts a fresh segment.
    ///
    /// A segment file that is missing is damage, the newest too: with the file put back the log opens with everything.
    ///
    /// # Errors
    /// `Locked` if another process has it; `Corrupt` or `Missing` if anything acknowledged is damaged or gone
    /// ([`Options::recovery`] may choose otherwise): nothing is changed on disk then.
    pub fn open(options: Options) -> Result<(RaftLog, RecoveryReport)> {
        RaftLog::open_on(Arc::new(OsDisk), options)
    }

    /// As [`RaftLog::open`], on a disk of the caller's.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<(RaftLog, RecoveryReport)> {
        options.check()?;
        disk.create_dir_all(&options.dir).map_err(Error::io("create folder", &options.dir))?;
        let lock = take_lock(&*disk, &options.dir)?;
        let (shared, report) = recovery::open(disk, options, lock)?;
        Ok((RaftLog { shared: Arc::new(shared) }, report))
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::packing(self.shared.options.compression == Compression::Lz4)
    }

    /// Checks the batch and makes it readable, in order after all submitted before. Durable when the ticket says so.
    /// Does no I/O, unless more than `pending_bytes` wait (then it commits some) or a segment must be made.
    ///
    /// # Errors
    /// `Gap`, `BelowFloor`, `TooLarge`, `Damaged`: the batch is wrong. `NoSpace`: no room for a segment; purges still
    /// go through for a while. `Poisoned`: an earlier write failed. `Closed`: after [`RaftLog::close`]. In all cases
    /// nothing of the batch was done.
    pub fn submit(&self, batch: Batch) -> Result<Ticket> {
        self.submit_with(batch, Durability::Durable)
    }

    /// As [`RaftLog::submit`]; the ticket of a `Lazy` batch is fulfilled at once, and no flush is made for it. (`Os` is
    /// a choice for the whole log; here it means `Durable`.)
    pub fn submit_with(&self, batch: Batch, durability: Durability) -> Result<Ticket> {
        let lsn = self.shared.submit(batch)?;
        Ok(Ticket::new(Arc::clone(&self.shared), lsn, durability == Durability::Lazy))
    }

    /// Submits and waits.
    pub fn commit(&self, batch: Batch) -> Result<()> {
        let lsn = self.shared.submit(batch)?;
        self.shared.wait(lsn)
    }

    /// Makes everything submitted so far durable, batches whose ticket was dropped too.
    pub fn sync(&self) -> Result<()> {
        let last = self.shared.lane.lock().next_lsn - 1;
        self.shared.wait(last)
    }

    /// Takes no more batches, makes all it took durable and ends the log on disk. Reads go on, and the folder stays
    /// locked, until the log is dropped. To close again does nothing. A log that is dropped without it loses nothing
    /// either; but the next open then scans the newest segment, and takes damage to its very last frame for a write
    /// that never was acknowledged. Waits for a collection of garbage that is under way; not to be called from
    /// [`Ticket::on_durable`].
    ///
    /// # Errors
    /// `Undecided`, `Poisoned`, `Io`: a write failed, now or before. The log is closed all the same, as by a crash.
    pub fn close(&self) -> Result<()> {
        let _alone = self.shared.collecting.lock();
        self.shared.close()
    }

    /// For a thread of the host's, which calls [`Committer::run`] in it: it commits for those who left a call or poll a
    /// future, and keeps empty segments ready. Not needed where every batch is waited for. One is enough.
    pub fn committer(&self) -> Committer {
        Committer::new(Arc::clone(&self.shared))
    }

    /// Makes empty segments ahead of need, so that no committer has to. For a host's idle moments.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: there may be fewer; the log is as usable as before.
    pub fn prepare(&self) -> Result<()> {
        self.shared.prepare()
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

    /// Payload bytes of the live entries in `range`; what is outside counts nothing. Memory only, whatever the length.
    pub fn log_bytes_in(&self, group: GroupId, range: Range<Index>) -> u64 {
        self.group(group, |g| g.bytes_in(range.start.0..range.end.0)).unwrap_or(0)
    }

    /// The group's hard state, as it was last set.
    pub fn state(&self, group: GroupId) -> Option<Bytes> {
        self.group(group, |g| g.meta.state.clone()).flatten()
    }

    /// The value of one of the group's pairs.
    pub fn get(&self, group: GroupId, key: &[u8]) -> Option<Bytes> {
        self.group(group, |g| g.meta.pairs.get(key).cloned()).flatten()
    }

    /// Whether the group lost something that was acknowledged, found when the log was opened: from which index on.
    ///
    /// # Errors
    /// `Damaged`: entries from there on, the hard state and the pairs cannot be relied on.
    pub fn check_group(&self, group: GroupId) -> Result<()> {
        self.group(group, |g| refuse_damaged(group, g.meta.damaged)).unwrap_or(Ok(()))
    }

    /// All groups that exist, sorted.
    pub fn groups(&self) -> Vec<GroupId> {
        let mut groups = Vec::new();
        self.shared.groups.for_each(|id, group| groups.extend(group.is_there().then_some(GroupId(id))));
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

    /// Frees segments nothing lives in; then, while the log takes more disk than 1.5 times its live bytes and four
    /// segments, copies the remainder of the emptiest ones to the end, up to `budget_bytes`. For one caller from time
    /// to time; it shares commits with everyone else.
    pub fn collect_garbage(&self, budget_bytes: u64) -> Result<GcReport> {
        gc::collect(&self.shared, budget_bytes)
    }

    /// Groups that keep the oldest segment, largest first.
    pub fn gc_blockers(&self) -> Vec<Blocker> {
        gc::blockers(&self.shared)
    }

    /// Counters since open and what there is now. Cost: one pass over groups and segments.
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    /// All segments with frames, oldest first, with what in them lives.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.shared.lane.lock().segments.values().map(|segment| segment.info()).collect()
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
        self.shared.groups.with(group.0, |group| read(group))
    }
}

impl Drop for RaftLog {
    fn drop(&mut self) {
        self.shared.lane.lock().close();
    }
}

impl OpenLog {
    fn metrics(&self) -> Metrics {
        let (mut n_groups, mut index_bytes) = (0, self.groups.table_bytes());
        self.groups.for_each(|_, group| {
            n_groups += u64::from(group.is_there());
            index_bytes += group.index_bytes();
        });
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let tally = &self.tally;
        let lane = self.lane.lock();
        let files = || lane.segments.values().chain(lane.free.values()).chain(&lane.idle);
        Metrics {
            written_bytes: lane.counters.written_bytes + read(&tally.written_bytes),
            filled_bytes: read(&tally.filled_bytes),
            rewritten_bytes: read(&tally.rewritten_bytes),
            cache_hits: read(&tally.cache_hits),
            cache_misses: read(&tally.cache_misses),
            n_groups,
            n_segments: lane.segments.len() as u64,
            n_free: (lane.free.len() + lane.idle.len()) as u64,
            disk_bytes: files().map(|s| s.size_bytes()).sum::<u64>() + read(&tally.preparing_bytes),
            live_bytes: lane.segments.values().map(|s| s.live_bytes()).sum(),
            index_bytes,
            cached_bytes: self.cache.bytes(),
            pending_bytes: lane.pending_bytes,
            poisoned: lane.poisoned.is_some(),
            recovery_ns: read(&tally.recovery_ns),
            ..lane.counters.clone()
        }
    }
}

fn take_lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn Any + Send + Sync>> {
    let path = dir.join("LOCK");
    let lock = disk.lock(&path).map_err(Error::io("lock", &path))?;
    lock.ok_or(Error::Locked { path })
}
