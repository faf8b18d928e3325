//! Which segments may go, and what must be moved first?
//!
//! A segment may go when nothing lives in it and the batches that killed its last are durable. Why replay is right
//! without it: the newest record of a group always lives, and clips every older entry that any other segment still
//! holds to `(floor, last]`; an entry inside that range is overwritten by its newer, living copy.
//!
//! What lives is counted when it dies, per segment, so nothing is searched: segments go in any order. A group that
//! nobody purges holds no segment either: while the log takes too much disk, the remainder of the emptiest segments is
//! copied to the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::open_log::OpenLog;
use crate::options::{Blocker, Compression, GcReport};
use crate::segment::Segment;
use crate::{GroupId, Index};

/// Copies are committed in batches of about this size.
const COPY_BYTES: usize = 1 << 20;
/// Segments allowed above 1.5 times the live bytes: of the four that are promised one is for what is written between
/// two collections.
const SLACK_SEGMENTS: u64 = 3;
/// A segment that lives to more than this is left alone: were all like it, the log would take 1.5 times what lives.
const WORTH_PER_MILLE: u64 = 667;
/// So many small segments are merged whatever the disk holds.
const SMALL_SEGMENTS: usize = 16;

/// Frees segments in which nothing lives, shortens those that ended early, and copies what lives in the emptiest, up to
/// `budget_bytes` of copies. What it frees is durably freed; a call that fails half-way leaves a log that is whole.
pub fn collect(shared: &OpenLog, budget_bytes: u64) -> Result<GcReport> {
    let _one = shared.collecting.lock();
    let mut report = GcReport::default();
    free_dead(shared, &mut report)?;
    shared.shorten()?;
    let victims = victims(shared, budget_bytes);
    if !victims.is_empty() {
        rewrite(shared, &victims, &mut report)?;
        free_dead(shared, &mut report)?;
    }
    shared.trim()?;
    if report.segments_deleted > 0 {
        shared.freed();
    }
    Ok(report)
}

/// Groups that keep the oldest segment that any group keeps, the largest first.
pub fn blockers(shared: &OpenLog) -> Vec<Blocker> {
    let mut blockers: Vec<Blocker> = Vec::new();
    shared.groups.for_each(|id, group| {
        let Some(oldest_segment) = group.oldest() else { return };
        let first = Index(group.meta.floor + 1);
        blockers.push(Blocker { group: GroupId(id), first, log_bytes: group.bytes, oldest_segment });
    });
    let oldest = blockers.iter().map(|b| b.oldest_segment).min();
    blockers.retain(|b| Some(b.oldest_segment) == oldest);
    blockers.sort_by_key(|b| (std::cmp::Reverse(b.log_bytes), b.group));
    blockers
}

fn free_dead(shared: &OpenLog, report: &mut GcReport) -> Result<()> {
    loop {
        // A purge rides with the next commit; here somebody waits for it.
        let killer = {
            let lane = shared.lane.lock();
            let dead = lane.segments.values().filter(|s| s.is_sealed() && s.live_items() == 0);
            dead.map(|s| s.killed_by()).max()
        };
        if let Some(lsn) = killer {
            shared.wait(lsn)?;
        }
        let mut removed = false;
        while let Some(dead) = { shared.lane.lock().take_dead(shared.durable_lsn.load(Ordering::Acquire), |_| true) } {
            match free(shared, &dead) {
                Ok(kept) => removed |= !kept,
                Err(error) => {
                    shared.lane.lock().segments.insert(dead.seq, dead);
                    return Err(error);
                }
            }
            report.segments_deleted += 1;
            report.bytes_freed += dead.size_bytes();
            shared.lane.lock().counters.segments_deleted += 1;
        }
        if removed {
            let dir = &shared.options.dir;
            shared.disk.sync_dir(dir).map_err(Error::io("sync folder", dir))?;
        }
        if !forget_destroyed(shared) {
            return Ok(());
        }
    }
}

/// Renews the file of a dead segment (`true`) or removes it.
fn free(shared: &OpenLog, dead: &Arc<Segment>) -> Result<bool> {
    shared.head.let_go(dead, &shared.buffers)?;
    let has_space = { Space::of(shared, &shared.lane.lock()).has_room(dead.size_bytes()) };
    if shared.keep_file(dead, has_space)? {
        return Ok(true);
    }
    match shared.disk.remove(&dead.path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &dead.path)(e)),
        _ => Ok(false),
    }
}

/// Drops records of destroyed groups from the oldest segment: no older one is left that they would have to clip.
fn forget_destroyed(shared: &OpenLog) -> bool {
    // Nothing is being renewed now: a segment that is not in the table is gone for good.
    let _making = shared.making.lock();
    let oldest = shared.lane.lock().segments.values().next().cloned();
    let Some(oldest) = oldest.filter(|segment| segment.is_sealed()) else { return false };
    let mut forgotten = false;
    shared.groups.forget(|group| match &group.record {
        Some((at, bytes)) if at.seq == oldest.seq && group.meta.destroyed => {
            at.died(1, *bytes, 0);
            forgotten = true;
            true
        }
        _ => false,
    });
    forgotten && oldest.live_items() == 0
}

/// What the log takes, and what it should take at most.
pub struct Space {
    disk_bytes: u64,
    target_bytes: u64,
}

impl Space {
    /// Whether the log may take so much more.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.disk_bytes + bytes <= self.target_bytes
    }

    /// Whether it takes at most what is promised: a segment more than the target.
    pub fn keeps_promise(&self, segment_bytes: u64) -> bool {
        self.disk_bytes <= self.target_bytes + segment_bytes
    }

    /// As it stands now; the caller holds the lane.
    pub fn of(shared: &OpenLog, lane: &Lane) -> Space {
        let files = lane.segments.values().chain(lane.free.values()).chain(&lane.idle);
        let disk_bytes =
            files.map(|s| s.size_bytes()).sum::<u64>() + shared.tally.preparing_bytes.load(Ordering::Relaxed);
        let live_bytes: u64 = lane.segments.values().map(|s| s.live_disk_bytes()).sum();
        let slack_bytes = SLACK_SEGMENTS * shared.options.segment_bytes();
        Space { disk_bytes, target_bytes: live_bytes + live_bytes / 2 + slack_bytes }
    }
}

/// Sealed segments to empty, smallest live share first: as many as bring the log to its target, within the budget.
fn victims(shared: &OpenLog, budget_bytes: u64) -> Vec<u64> {
    let lane = shared.lane.lock();
    let segment_bytes = shared.options.segment_bytes();
    let Space { mut disk_bytes, target_bytes } = Space::of(shared, &lane);
    // Each restart ends a segment early: few bytes, but files to open.
    let is_small = |segment: &Segment| segment.size_bytes() <= segment_bytes / 4;
    let mut n_small = lane.segments.values().filter(|s| s.is_sealed() && is_small(s)).count();

    let share = |segment: &Segment| segment.live_disk_bytes() * 1000 / segment.size_bytes().max(1);
    let mut sealed: Vec<_> = lane
        .segments
        .values()
        .filter(|s| s.is_sealed() && share(s) < WORTH_PER_MILLE)
        .map(|s| (share(s), s.seq, s))
        .collect();
    sealed.sort_unstable_by_key(|&(share, seq, _)| (share, seq));
    let mut left = budget_bytes;
    let mut victims = Vec::new();
    for (_, seq, segment) in sealed {
        let wanted = disk_bytes > target_bytes || (n_small >= SMALL_SEGMENTS && is_small(segment));
        if !wanted || left == 0 {
            continue;
        }
        victims.push(seq);
        disk_bytes =
            disk_bytes.saturating_sub(segment.size_bytes() - segment.live_disk_bytes().min(segment.size_bytes()));
        n_small = n_small.saturating_sub(usize::from(is_small(segment)));
        left = left.saturating_sub(segment.live_disk_bytes());
    }
    victims
}

/// Copies what lives in the victims to the end of the log and waits until the copies are durable.
fn rewrite(shared: &OpenLog, victims: &[u64], report: &mut GcReport) -> Result<()> {
    let new_batch = || Batch::packing(shared.options.compression == Compression::Lz4);
    let mut copies = Vec::new();
    let mut batch = new_batch();
    shared.groups.for_each(|id, group| {
        copies.extend(victims.iter().flat_map(|&v| group.ranges_in(v).into_iter().map(move |range| (id, v, range))));
        if group.record.as_ref().is_some_and(|(at, _)| victims.contains(&at.seq)) {
            batch.refresh(id);
        }
    });
    let batch_bytes = COPY_BYTES.min(shared.options.segment_bytes() as usize / 4);
    for (id, segment, range) in copies {
        let mut lo = range.start;
        while lo < range.end {
            let entries = match shared.entries(GroupId(id), Index(lo)..Index(range.end), batch_bytes) {
                Ok(entries) => entries,
                // Purged or truncated meanwhile: less to copy. A damaged group is not copied, it is destroyed.
                Err(Error::Purged { .. } | Error::OutOfRange { .. } | Error::Damaged { .. }) => break,
                Err(error) => return Err(error),
            };
            let n = entries.len() as u64;
            report.bytes_rewritten += entries.iter().map(|e| e.payload.len() as u64).sum::<u64>();
            batch.copy_entries(id, lo, segment, entries.into_iter().map(|e| (e.term.0, e.payload)));
            lo += n;
            if batch.data_bytes() >= batch_bytes as u64 {
                shared.submit(std::mem::replace(&mut batch, new_batch()))?;
            }
        }
    }
    let last = shared.submit(batch)?;
    shared.wait(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDisk, Options, RaftLog, Term};

    #[test]
    fn copies_can_be_read_before_they_are_written() {
        let options = Options { cache_bytes: 0, segment_bytes: 1 << 20, ..Options::new("/log") };
        let (log, _) = RaftLog::open_on(Arc::new(MemoryDisk::new(1)), options).unwrap();
        let (group, payload) = (GroupId(3), vec![5; 3000]);
        for index in 1..=600 {
            let mut batch = log.batch();
            batch.append(group, Term(2), Index(index), [&payload[..]]);
            log.commit(batch).unwrap();
        }
        let range = Index(1)..Index(100);
        let before = log.entries(group, range.clone(), usize::MAX).unwrap();
        let oldest = log.segments()[0].seq;
        let mut batch = log.batch();
        batch.copy_entries(group.0, 1, oldest, before.iter().map(|e| (e.term.0, e.payload.clone())));
        let ticket = log.submit(batch).unwrap();
        assert!(!ticket.is_durable());
        assert_eq!(log.entries(group, range.clone(), usize::MAX).unwrap(), before);
        ticket.wait().unwrap();
        assert_eq!(log.entries(group, range, usize::MAX).unwrap(), before);
        assert!(log.metrics().rewritten_bytes > 0);
    }
}
