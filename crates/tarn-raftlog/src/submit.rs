//! What does a batch change, and is it allowed?
//!
//! Under the locks of its groups' shards: planning (checks, and the records of groups; nothing is changed), then, once
//! the lane has given it a place, applying (cannot fail). That makes a batch all or nothing in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::{Append, BatchOp, FinishedBatch};
use crate::error::{Error, Result};
use crate::format::{self, BATCH_HEAD};
use crate::index::{DeadEntriesCallback, Group, Loc, Meta};
use crate::lane::{EncodedBatch, Room};
use crate::open_log::OpenLog;
use crate::record;
use crate::segment::Segment;
use crate::shards::{self, Guards};
use crate::{GroupId, Index};

/// Offsets are 31 bits; a segment is at most its 1 GiB, or one batch.
pub const MAX_BATCH_BYTES: u64 = 1 << 30;

/// A batch that passed all checks.
pub struct Plan {
    /// As it goes to disk.
    pub encoded: EncodedBatch,
    /// Operations that do not take part, by position, ascending: copies of entries that moved meanwhile.
    left_out: Vec<usize>,
    /// Places of the groups whose record is in the batch, as they will be after it, and the record's size.
    records: Vec<(usize, Meta, u64)>,
    /// Entries and records, and their payload and record bytes: what will live in the segment.
    items: u64,
    item_bytes: u64,
    /// The host's entries, their payload bytes, and what packing saves of those.
    entries: u64,
    entry_bytes: u64,
    saved_bytes: u64,
}

impl Plan {
    /// Whether nothing is to be written: all of it is so already.
    pub fn is_empty(&self) -> bool {
        self.encoded.head_and_meta.len() == BATCH_HEAD
    }

    /// What its place must hold.
    pub fn room(&self) -> Room {
        Room { meta_bytes: self.encoded.head_and_meta.len() as u64, data_bytes: self.encoded.data_bytes }
    }
}

/// A group as the operations planned so far leave it.
struct Draft {
    floor: u64,
    last: u64,
    is_there: bool,
    damaged: Option<u64>,
    /// The rest of it, once it must be written as a record; the above are put in at the end.
    record: Option<Meta>,
}

impl Draft {
    fn new(group: &Group) -> Draft {
        let Meta { floor, last, destroyed, damaged, .. } = group.meta;
        Draft { floor, last, is_there: !destroyed, damaged, record: None }
    }

    fn record(&mut self, group: &Group) -> &mut Meta {
        self.record.get_or_insert_with(|| group.meta.clone())
    }
}

impl OpenLog {
    /// Makes a batch readable and queues it. Returns its lsn.
    pub fn submit(&self, batch: crate::Batch) -> Result<u64> {
        let batch = batch.finish();
        if batch.ops.is_empty() {
            return Ok(self.lane.lock().next_lsn - 1);
        }
        let mut cells = self.groups.cells(&batch.groups);
        loop {
            let Some(mut guards) = shards::lock_all(&cells) else {
                cells = self.groups.cells(&batch.groups);
                continue;
            };
            let mut plan = plan(&guards, &batch)?;
            let mut lane = self.lane.lock();
            if let Some(cause) = &lane.poisoned {
                return Err(Error::Poisoned { cause: Arc::clone(cause) });
            }
            if lane.closed {
                return Err(Error::Closed { dir: self.options.dir.clone() });
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
                    // Born before the lock is let go: a segment that is written and sealed meanwhile must not look
                    // dead.
                    segment.born(plan.items, plan.item_bytes);
                    let lsn = lane.push(plan.encoded.take());
                    lane.counters.entries += plan.entries;
                    lane.counters.entry_bytes += plan.entry_bytes;
                    lane.counters.saved_bytes += plan.saved_bytes;
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
        batch: FinishedBatch,
        plan: Plan,
        segment: &Arc<Segment>,
        offset: u64,
        lsn: u64,
    ) {
        // Before any place in it can be looked up.
        self.cache.put(segment.seq, offset, lsn, plan.encoded.data);
        let (mut at, mut places) = (offset, batch.places());
        for (i, op) in batch.ops.iter().enumerate() {
            if plan.left_out.binary_search(&i).is_ok() {
                continue;
            }
            let group = guards.get_mut(places.of(op.group()));
            let killed = &mut |segment: &Segment, n, bytes| segment.died(n, bytes, lsn);
            match op {
                BatchOp::Append(append) => {
                    self.apply_append(group, &batch, append, segment, at, killed);
                    at += append.data_bytes;
                }
                BatchOp::TruncateAfter { index, .. } => group.truncate_after(*index, killed),
                BatchOp::Purge { upto, term, .. } => group.purge(*upto, *term, killed),
                BatchOp::Destroy { .. } => group.clear(killed),
                // State and pairs come with the record.
                BatchOp::State { .. } | BatchOp::Put { .. } | BatchOp::Refresh { .. } => {}
            }
        }
        for (place, meta, size_bytes) in plan.records {
            let group = guards.get_mut(place);
            group.meta = meta;
            if let Some((old, bytes)) = group.record.replace((Arc::clone(segment), size_bytes)) {
                old.died(1, bytes, lsn);
            }
        }
    }

    fn apply_append(
        &self,
        group: &mut Group,
        batch: &FinishedBatch,
        append: &Append,
        segment: &Arc<Segment>,
        offset: u64,
        killed: DeadEntriesCallback<'_>,
    ) {
        let (packed, mut at) = (append.is_packed(), offset);
        let locs = batch.rows(append).iter().map(|&(len, crc)| {
            let loc = Loc::new(at as u32, len, crc, packed);
            if !packed {
                at += u64::from(len);
            }
            loc
        });
        if append.copied_from.is_some() {
            group.relocate(append.first, segment, locs, killed);
            self.tally.rewritten_bytes.fetch_add(append.raw_bytes, Ordering::Relaxed);
            return;
        }
        if append.first <= group.meta.last {
            group.truncate_after(append.first - 1, killed);
        }
        group.append(append.runs(), segment, locs);
        group.meta.destroyed = false;
    }
}

/// Checks a batch and encodes it; changes nothing.
fn plan(guards: &Guards<'_>, batch: &FinishedBatch) -> Result<Plan> {
    let mut drafts: Vec<Draft> = guards.iter().map(Draft::new).collect();
    let (mut left_out, mut places) = (Vec::new(), batch.places());
    let (mut items, mut item_bytes, mut data_bytes) = (0, 0, 0u64);
    let (mut entries, mut entry_bytes, mut saved_bytes) = (0, 0, 0);
    for (i, op) in batch.ops.iter().enumerate() {
        let place = places.of(op.group());
        let (group, draft) = (guards.get(place), &mut drafts[place]);
        let taken = match op {
            BatchOp::Append(append) => plan_append(append, group, draft)?,
            _ => plan_small(op, group, draft)?,
        };
        match op {
            _ if !taken => left_out.push(i),
            BatchOp::Append(append) => {
                items += append.n();
                item_bytes += append.raw_bytes;
                data_bytes = data_bytes.saturating_add(append.data_bytes);
                if append.copied_from.is_none() {
                    entries += append.n();
                    entry_bytes += append.raw_bytes;
                    saved_bytes += append.raw_bytes - append.data_bytes;
                }
            }
            _ => {}
        }
    }
    too_large(item_bytes.max(data_bytes))?;
    let (mut meta, crc) = batch.meta(&left_out);
    let checked = meta.len() - BATCH_HEAD;
    let mut records = Vec::new();
    for (place, mut draft) in drafts.into_iter().enumerate() {
        let Some(record) = draft.record.take() else { continue };
        let Draft { floor, last, is_there, damaged, .. } = draft;
        let record = Meta { floor, last, destroyed: !is_there, damaged, ..record };
        let before = meta.len();
        record::encode_group(&mut meta, batch.groups[place], &record);
        let size_bytes = (meta.len() - before) as u64;
        items += 1;
        item_bytes += size_bytes;
        records.push((place, record, size_bytes));
    }
    too_large(meta.len() as u64 + data_bytes)?;
    format::finish_batch_head(&mut meta, data_bytes as u32, crc, checked);
    let data = Arc::new(batch.data(&left_out));
    let encoded = EncodedBatch { head_and_meta: meta, data, data_bytes };
    Ok(Plan { encoded, left_out, records, items, item_bytes, entries, entry_bytes, saved_bytes })
}

fn too_large(size_bytes: u64) -> Result<()> {
    if size_bytes > MAX_BATCH_BYTES {
        return Err(Error::TooLarge { size_bytes, limit_bytes: MAX_BATCH_BYTES });
    }
    Ok(())
}

/// `false`: not to be done.
fn plan_append(append: &Append, group: &Group, draft: &mut Draft) -> Result<bool> {
    if let Some(segment) = append.copied_from {
        return Ok(group.holds(&(append.first..append.end()), segment));
    }
    let (id, first) = (GroupId(append.group), Index(append.first));
    refuse_damaged(id, draft.damaged)?;
    if append.first <= draft.floor {
        return Err(Error::BelowFloor { group: id, index: first, floor: Index(draft.floor) });
    }
    if append.first > draft.last + 1 || append.end() == u64::MAX {
        return Err(Error::Gap { group: id, first, last: Index(draft.last) });
    }
    if append.first <= draft.last {
        // Only a shortened log needs a record: it must clip what older segments still hold.
        draft.record(group);
    }
    draft.last = append.end() - 1;
    draft.is_there = true;
    Ok(true)
}

/// An error for a group that lost something from this index on.
pub fn refuse_damaged(group: GroupId, damaged: Option<u64>) -> Result<()> {
    match damaged {
        Some(from) => Err(Error::Damaged { group, from: Index(from) }),
        None => Ok(()),
    }
}

/// Operations that only change a group's record. `false`: nothing to do.
fn plan_small(op: &BatchOp, group: &Group, draft: &mut Draft) -> Result<bool> {
    let id = GroupId(op.group());
    if !matches!(op, BatchOp::Destroy { .. } | BatchOp::Refresh { .. }) {
        refuse_damaged(id, draft.damaged)?;
    }
    match op {
        BatchOp::TruncateAfter { index, .. } => {
            if *index < draft.floor {
                return Err(Error::BelowFloor { group: id, index: Index(*index), floor: Index(draft.floor) });
            }
            if *index >= draft.last {
                return Ok(false);
            }
            draft.last = *index;
        }
        BatchOp::Purge { upto, term, .. } => {
            if *upto <= draft.floor || *upto == u64::MAX {
                return Ok(false);
            }
            draft.record(group).floor_term = *term;
            draft.floor = *upto;
            draft.last = draft.last.max(*upto);
            draft.is_there = true;
        }
        BatchOp::State { state, .. } => {
            draft.record(group).state = Some(state.clone());
            draft.is_there = true;
        }
        BatchOp::Put { key, value, .. } => {
            let pairs = Arc::make_mut(&mut draft.record(group).pairs);
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
            draft.is_there = true;
        }
        BatchOp::Destroy { .. } => {
            *draft = Draft { floor: 0, last: 0, is_there: false, damaged: None, record: Some(Meta::default()) };
        }
        BatchOp::Refresh { .. } | BatchOp::Append(_) => {}
    }
    draft.record(group);
    Ok(true)
}
