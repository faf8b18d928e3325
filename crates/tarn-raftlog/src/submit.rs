//! What does a batch change, and is it allowed?
//!
//! Under the locks of its groups' shards: planning (checks, and the records of groups; nothing is changed), then, once
//! the lane has given it a place, applying (cannot fail). That makes a batch all or nothing in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::batch::{Append, Finished, Op};
use crate::cache::Arrivals;
use crate::error::{Error, Result};
use crate::format::{self, BATCH_HEAD};
use crate::index::{Group, Loc, Meta};
use crate::lane::{EncodedBatch, Room};
use crate::log::Shared;
use crate::record;
use crate::segment::Segment;
use crate::shards::Guards;
use crate::{GroupId, Index};

/// Offsets are 31 bits; a segment is at most its 1 GiB, or one batch.
pub const MAX_BATCH_BYTES: u64 = 1 << 30;

/// A batch that passed all checks.
pub struct Plan {
    pub encoded: EncodedBatch,
    /// Operations that take part, by position; copies of entries that moved meanwhile do not.
    take_part: Vec<bool>,
    /// Groups whose record is in the batch, as they will be after it, and the record's size.
    records: Vec<(u64, Meta, u64)>,
    /// Entries and records, and their payload and record bytes: what will live in the segment.
    items: u64,
    item_bytes: u64,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.encoded.head_and_meta.len() == BATCH_HEAD
    }

    pub fn room(&self) -> Room {
        Room { meta_bytes: self.encoded.head_and_meta.len() as u64, data_bytes: self.encoded.data_bytes }
    }
}

/// A group as the operations planned so far leave it.
struct Draft {
    group: u64,
    meta: Meta,
    changed: bool,
}

impl Shared {
    /// Makes a batch readable and queues it. Returns its lsn.
    pub fn submit(&self, batch: crate::Batch) -> Result<u64> {
        let batch = batch.finish();
        if batch.ops.is_empty() {
            return Ok(self.lane.lock().next_lsn - 1);
        }
        loop {
            let mut guards = self.groups.lock_all(&batch.groups);
            let mut plan = plan(&guards, &batch)?;
            let mut lane = self.lane.lock();
            if let Some(cause) = &lane.poisoned {
                return Err(Error::Poisoned { cause: Arc::clone(cause) });
            }
            if plan.is_empty() {
                return Ok(lane.next_lsn - 1);
            }
            if lane.pending_bytes > self.options.pending_bytes {
                drop((lane, guards));
                self.hold_back()?;
                continue;
            }
            let wanted = match lane.place(plan.room(), self.options.segment_bytes()) {
                Ok((segment, offset)) => {
                    let data_offset = offset + plan.encoded.head_and_meta.len() as u64;
                    // Born before the lock is let go: a segment that is written and sealed meanwhile must not look dead.
                    segment.born(plan.items, plan.item_bytes);
                    let encoded = EncodedBatch {
                        head_and_meta: std::mem::take(&mut plan.encoded.head_and_meta),
                        data: std::mem::take(&mut plan.encoded.data),
                        data_bytes: plan.encoded.data_bytes,
                    };
                    let lsn = lane.push(encoded);
                    drop(lane);
                    self.apply(&mut guards, batch, plan, &segment, data_offset, lsn);
                    return Ok(lsn);
                }
                Err(wanted) => wanted,
            };
            drop((lane, guards));
            self.make_room(wanted)?;
        }
    }

    /// Commits the oldest of what is not yet durable: there is too much of it.
    fn hold_back(&self) -> Result<()> {
        let oldest = self.durable_lsn.load(Ordering::Acquire) + 1;
        self.wait(oldest).map_err(|error| match error {
            Error::Undecided { cause } => Error::Poisoned { cause },
            error => error,
        })
    }

    fn apply(
        &self,
        guards: &mut Guards<'_>,
        batch: Finished,
        plan: Plan,
        segment: &Arc<Segment>,
        offset: u64,
        lsn: u64,
    ) {
        let mut at = offset;
        let mut kept = Vec::new();
        for (op, _) in batch.ops.iter().zip(&plan.take_part).filter(|(_, taken)| **taken) {
            let group = guards.entry(op.group());
            match op {
                Op::Append(append) => {
                    let n_kept = self.apply_append(group, &batch, append, segment, at, lsn);
                    kept.extend(std::iter::repeat_n(append.group, n_kept));
                    at += append.data_bytes;
                }
                Op::TruncateAfter { index, .. } => truncate_after(&self.arrivals, group, *index, lsn),
                Op::Purge { upto, term, .. } => {
                    self.arrivals.purge(group, *upto);
                    group.purge(*upto, *term, &mut |segment, n, bytes| segment.died(n, bytes, lsn));
                }
                Op::Destroy { .. } => {
                    self.arrivals.clear(group);
                    group.clear(&mut |segment, n, bytes| segment.died(n, bytes, lsn));
                }
                // State and pairs come with the record.
                Op::State { .. } | Op::Put { .. } | Op::Refresh { .. } => {}
            }
        }
        self.arrivals.note(kept.into_iter(), lsn);
        for (id, meta, size_bytes) in plan.records {
            let group = guards.entry(id);
            group.meta = meta;
            if let Some((old, bytes)) = group.record.replace((Arc::clone(segment), size_bytes)) {
                old.died(1, bytes, lsn);
            }
        }
    }

    /// Returns the number of pieces that are kept in memory.
    fn apply_append(
        &self,
        group: &mut Group,
        batch: &Finished,
        append: &Append,
        segment: &Arc<Segment>,
        offset: u64,
        lsn: u64,
    ) -> usize {
        let (packed, mut at) = (append.is_packed(), offset);
        let locs = batch.rows(append).iter().map(|&(len, crc)| {
            let loc = Loc::new(at as u32, len, crc, packed);
            if !packed {
                at += u64::from(len);
            }
            loc
        });
        if append.copied_from.is_some() {
            group.relocate(append.first, segment, locs, &mut |segment, n, bytes| segment.died(n, bytes, lsn));
            self.tally.rewritten_bytes.fetch_add(append.raw_bytes, Ordering::Relaxed);
            return 0;
        }
        if append.first <= group.meta.last {
            truncate_after(&self.arrivals, group, append.first - 1, lsn);
        }
        group.append(append.runs(), segment, locs);
        group.meta.destroyed = false;
        self.tally.entries.fetch_add(append.n(), Ordering::Relaxed);
        self.tally.entry_bytes.fetch_add(append.raw_bytes, Ordering::Relaxed);
        self.tally.saved_bytes.fetch_add(append.raw_bytes - append.data_bytes, Ordering::Relaxed);
        let (mut first, mut n_kept) = (append.first, 0);
        for (n, payloads) in batch.kept(append) {
            n_kept += 1;
            self.arrivals.keep(group, first, n, payloads, lsn);
            first += n;
        }
        n_kept
    }
}

fn truncate_after(arrivals: &Arrivals, group: &mut Group, index: u64, lsn: u64) {
    arrivals.truncate_after(group, index);
    group.truncate_after(index, &mut |segment, n, bytes| segment.died(n, bytes, lsn));
}

/// Checks a batch and encodes it; changes nothing.
fn plan(guards: &Guards<'_>, batch: &Finished) -> Result<Plan> {
    let mut drafts = Drafts { guards, drafts: Vec::new(), groups: &batch.groups, at: vec![None; batch.groups.len()] };
    let mut take_part = Vec::with_capacity(batch.ops.len());
    for op in &batch.ops {
        take_part.push(match op {
            Op::Append(append) => plan_append(append, &mut drafts)?,
            _ => plan_small(op, &mut drafts)?,
        });
    }
    let taken = || {
        let ops = batch.ops.iter().zip(&take_part).filter(|(_, taken)| **taken);
        ops.filter_map(|(op, _)| if let Op::Append(append) = op { Some(append) } else { None })
    };
    let (mut n_taken, mut items, mut item_bytes, mut data_bytes) = (0, 0, 0, 0u64);
    for append in taken() {
        n_taken += 1;
        items += append.n();
        item_bytes += append.raw_bytes;
        data_bytes = data_bytes.saturating_add(append.data_bytes);
    }
    too_large(item_bytes.max(data_bytes))?;
    let n_appends = batch.ops.iter().filter(|op| matches!(op, Op::Append(_))).count();
    let (mut meta, crc) = if n_appends == n_taken {
        let mut meta = Vec::with_capacity(batch.meta.len().max(BATCH_HEAD) + 64);
        meta.extend_from_slice(&batch.meta);
        (meta, batch.crc)
    } else {
        let mut meta = vec![0; BATCH_HEAD];
        taken().for_each(|append| meta.extend_from_slice(&batch.meta[append.meta.clone()]));
        let crc = crc32c::crc32c(&meta[BATCH_HEAD..]);
        (meta, crc)
    };
    meta.resize(meta.len().max(BATCH_HEAD), 0);
    let checked = meta.len() - BATCH_HEAD;
    let mut records = Vec::new();
    for draft in drafts.drafts.into_iter().filter(|draft| draft.changed) {
        let before = meta.len();
        record::encode_group(&mut meta, draft.group, &draft.meta);
        let size_bytes = (meta.len() - before) as u64;
        items += 1;
        item_bytes += size_bytes;
        records.push((draft.group, draft.meta, size_bytes));
    }
    too_large(meta.len() as u64 + data_bytes)?;
    format::finish_batch_head(&mut meta, data_bytes as u32, crc, checked);
    let data: Vec<Bytes> = batch.data(taken());
    let encoded = EncodedBatch { head_and_meta: meta, data, data_bytes };
    Ok(Plan { encoded, take_part, records, items, item_bytes })
}

fn too_large(size_bytes: u64) -> Result<()> {
    if size_bytes > MAX_BATCH_BYTES {
        return Err(Error::TooLarge { size_bytes, limit_bytes: MAX_BATCH_BYTES });
    }
    Ok(())
}

fn plan_append(append: &Append, drafts: &mut Drafts<'_>) -> Result<bool> {
    if let Some(segment) = append.copied_from {
        let group = drafts.guards.get(append.group);
        return Ok(group.is_some_and(|group| group.holds(&(append.first..append.end()), segment)));
    }
    let draft = drafts.of(append.group);
    let (group, first, meta) = (GroupId(append.group), Index(append.first), &mut draft.meta);
    refuse_damaged(group, meta)?;
    if append.first <= meta.floor {
        return Err(Error::BelowFloor { group, index: first, floor: Index(meta.floor) });
    }
    if append.first > meta.last + 1 || append.end() == u64::MAX {
        return Err(Error::Gap { group, first, last: Index(meta.last) });
    }
    // Only a shortened log needs a record: it must clip what older segments still hold.
    draft.changed |= append.first <= meta.last;
    meta.last = append.end() - 1;
    meta.destroyed = false;
    Ok(true)
}

pub fn refuse_damaged(group: GroupId, meta: &Meta) -> Result<()> {
    match meta.damaged {
        Some(from) => Err(Error::Damaged { group, from: Index(from) }),
        None => Ok(()),
    }
}

/// Groups touched by a batch under plan.
struct Drafts<'a> {
    guards: &'a Guards<'a>,
    drafts: Vec<Draft>,
    /// Ascending, and for each the place of its draft.
    groups: &'a [u64],
    at: Vec<Option<usize>>,
}

impl Drafts<'_> {
    fn of(&mut self, group: u64) -> &mut Draft {
        let place = self.groups.binary_search(&group).expect("a batch knows all its groups");
        let at = *self.at[place].get_or_insert_with(|| {
            let meta = self.guards.get(group).map_or_else(Meta::default, |g| g.meta.clone());
            self.drafts.push(Draft { group, meta, changed: false });
            self.drafts.len() - 1
        });
        &mut self.drafts[at]
    }
}

/// Operations that only change a group's record. `false`: nothing to do.
fn plan_small(op: &Op, drafts: &mut Drafts<'_>) -> Result<bool> {
    let group = op.group();
    let draft = drafts.of(group);
    let meta = &mut draft.meta;
    if !matches!(op, Op::Destroy { .. } | Op::Refresh { .. }) {
        refuse_damaged(GroupId(group), meta)?;
    }
    match op {
        Op::TruncateAfter { index, .. } => {
            if *index < meta.floor {
                return Err(Error::BelowFloor {
                    group: GroupId(group),
                    index: Index(*index),
                    floor: Index(meta.floor),
                });
            }
            if *index >= meta.last {
                return Ok(false);
            }
            meta.last = *index;
        }
        Op::Purge { upto, term, .. } => {
            if *upto <= meta.floor || *upto == u64::MAX {
                return Ok(false);
            }
            meta.floor = *upto;
            meta.floor_term = *term;
            meta.last = meta.last.max(*upto);
            meta.destroyed = false;
        }
        Op::State { state, .. } => {
            meta.state = Some(state.clone());
            meta.destroyed = false;
        }
        Op::Put { key, value, .. } => {
            let pairs = Arc::make_mut(&mut meta.pairs);
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
            meta.destroyed = false;
        }
        Op::Destroy { .. } => *meta = Meta { destroyed: true, ..Meta::default() },
        Op::Refresh { .. } | Op::Append(_) => {}
    }
    draft.changed = true;
    Ok(true)
}
