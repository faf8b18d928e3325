//! Which segments may go, and what must be moved first?
//!
//! A segment may go when nothing lives in it and the batches that killed its last are durable. Why replay is right
//! without it: the newest record of a group always lives, and clips every older entry that any other segment still
//! holds to `(floor, last]`; an entry inside that range is overwritten by its newer, living copy.

use std::path::PathBuf;

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::log::Shared;
use crate::options::{Blocker, GcReport};
use crate::segment::Segment;
use crate::state::State;
use crate::{GroupId, Index};

/// Copies are committed in batches of about this size.
const COPY_BYTES: usize = 1 << 20;
/// Segments allowed above 1.5 times the live bytes.
const SLACK_SEGMENTS: u64 = 4;
/// A segment that lives to more than this is left alone: moving it frees little.
const WORTH_PER_MILLE: u64 = 800;
/// So many small segments are merged whatever the disk holds.
const SMALL_SEGMENTS: usize = 16;

pub fn collect(shared: &Shared, budget_bytes: u64) -> Result<GcReport> {
    let _one = shared.collecting.lock();
    let mut report = GcReport::default();
    delete_dead(shared, &mut report)?;
    let victims = victims(shared, budget_bytes);
    if !victims.is_empty() {
        rewrite(shared, &victims, &mut report)?;
        delete_dead(shared, &mut report)?;
    }
    Ok(report)
}

pub fn blockers(state: &State) -> Vec<Blocker> {
    let Some(oldest) = state.groups.values().filter_map(|g| Some(g.locate(0).next()?.1)).min() else {
        return Vec::new();
    };
    let mut blockers: Vec<Blocker> = Vec::new();
    for (&id, group) in &state.groups {
        if group.locate(0).next().is_some_and(|(_, segment, _)| segment == oldest) {
            let first = Index(group.meta.floor + 1);
            blockers.push(Blocker { group: GroupId(id), first, log_bytes: group.bytes, oldest_segment: oldest });
        }
    }
    blockers.sort_by_key(|b| (std::cmp::Reverse(b.log_bytes), b.group));
    blockers
}

fn delete_dead(shared: &Shared, report: &mut GcReport) -> Result<()> {
    loop {
        // A purge rides with the next commit; here somebody waits for it.
        let killer = {
            let state = shared.state.lock();
            state.segments.values().filter(|s| s.sealed && s.live_items == 0).map(|s| s.killed_by).max()
        };
        if let Some(lsn) = killer {
            shared.wait(lsn)?;
        }
        let dead: Vec<(u64, PathBuf)> = {
            let state = shared.state.lock();
            let durable = state.durable_lsn;
            let dead = state.segments.iter().filter(|(_, s)| s.sealed && s.live_items == 0 && s.killed_by <= durable);
            dead.map(|(&seq, s)| (seq, s.path.clone())).collect()
        };
        if !dead.is_empty() {
            for (_, path) in &dead {
                match shared.disk.remove(path) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io("remove", path)(e)),
                    _ => {}
                }
            }
            let dir = &shared.options.dir;
            shared.disk.sync_dir(dir).map_err(Error::io("sync folder", dir))?;
        }
        let mut state = shared.state.lock();
        for (seq, _) in &dead {
            if let Some(segment) = state.segments.remove(seq) {
                report.segments_deleted += 1;
                report.bytes_freed += segment.size_bytes;
                state.counters.segments_deleted += 1;
                state.spare_failed = false;
            }
        }
        if !forget_destroyed(&mut state) {
            return Ok(());
        }
    }
}

/// Drops records of destroyed groups from the oldest segment: no older one is left that they would have to clip.
fn forget_destroyed(state: &mut State) -> bool {
    let Some((&oldest, segment)) = state.segments.iter_mut().next() else { return false };
    if !segment.sealed {
        return false;
    }
    let before = state.groups.len();
    state.groups.retain(|_, group| match group.record {
        Some((at, bytes)) if at == oldest && group.meta.destroyed => {
            segment.died(1, bytes, 0);
            false
        }
        _ => true,
    });
    state.groups.len() < before && segment.live_items == 0
}

/// Sealed segments to empty, smallest live share first: as many as bring the log to its target, within the budget.
fn victims(shared: &Shared, budget_bytes: u64) -> Vec<u64> {
    let state = shared.state.lock();
    let segment_bytes = shared.options.segment_bytes;
    let mut disk_bytes: u64 = state.segments.values().map(|s| s.size_bytes).sum();
    let live_bytes: u64 = state.segments.values().map(|s| s.live_bytes).sum();
    let target_bytes = live_bytes + (live_bytes / 2).max(SLACK_SEGMENTS * segment_bytes);
    // Each restart ends a segment early: few bytes, but files to open.
    let is_small = |segment: &Segment| segment.size_bytes <= segment_bytes / 4;
    let mut n_small = state.segments.values().filter(|s| s.sealed && is_small(s)).count();

    let share = |segment: &Segment| segment.live_bytes * 1000 / segment.size_bytes.max(1);
    let mut sealed: Vec<_> = state.segments.iter().filter(|(_, s)| s.sealed && share(s) < WORTH_PER_MILLE).collect();
    sealed.sort_by_key(|(_, segment)| share(segment));
    let mut left = budget_bytes;
    let mut victims = Vec::new();
    for (&seq, segment) in sealed {
        let wanted = disk_bytes > target_bytes || (n_small >= SMALL_SEGMENTS && is_small(segment));
        if !wanted || left == 0 {
            continue;
        }
        victims.push(seq);
        disk_bytes = disk_bytes.saturating_sub(segment.size_bytes - segment.live_bytes.min(segment.size_bytes));
        n_small -= usize::from(is_small(segment));
        left = left.saturating_sub(segment.live_bytes);
    }
    victims
}

/// Copies what lives in the victims to the end of the log and waits until the copies are durable.
fn rewrite(shared: &Shared, victims: &[u64], report: &mut GcReport) -> Result<()> {
    let mut copies = Vec::new();
    let mut batch = Batch::default();
    {
        let state = shared.state.lock();
        for (&id, group) in &state.groups {
            copies
                .extend(victims.iter().flat_map(|&v| group.ranges_in(v).into_iter().map(move |range| (id, v, range))));
            if group.record.is_some_and(|(at, _)| victims.contains(&at)) {
                batch.refresh(id);
            }
        }
    }
    let batch_bytes = COPY_BYTES.min(shared.options.segment_bytes as usize / 4);
    for (id, segment, range) in copies {
        let mut lo = range.start;
        while lo < range.end {
            let entries = match shared.entries(GroupId(id), Index(lo)..Index(range.end), batch_bytes) {
                Ok(entries) => entries,
                // Purged or truncated meanwhile: less to copy.
                Err(Error::Purged { .. } | Error::OutOfRange { .. }) => break,
                Err(error) => return Err(error),
            };
            let n = entries.len() as u64;
            report.bytes_rewritten += entries.iter().map(|e| e.payload.len() as u64).sum::<u64>();
            batch.copy_entries(id, lo, segment, entries.into_iter().map(|e| (e.term.0, e.payload)));
            lo += n;
            if batch.data_bytes() >= batch_bytes as u64 {
                shared.submit(std::mem::take(&mut batch))?;
            }
        }
    }
    let last = shared.submit(batch)?;
    shared.wait(last)
}
