//! What does the log know, and how does a batch change it?
//!
//! Everything under the log's one lock: groups, segments, the queue of frames to write. Planning a batch (checks and
//! encoding, nothing changed) is apart from applying it (cannot fail), which makes a batch all or nothing in memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::batch::{Append, Batch, Op};
use crate::cache::TailCache;
use crate::error::{Error, Result};
use crate::format::{self, BATCH_HEAD, BLOCK, FRAME_HEADER, SEAL_LINE};
use crate::index::{Group, Loc, Meta};
use crate::options::Metrics;
use crate::segment::{EncodedBatch, Frame, Segment};
use crate::{GroupId, Index};

/// A frame takes no more batches beyond this, so that one torn write stays small beside a segment.
const FRAME_BYTES: u64 = 32 << 20;
/// Offsets are 32 bits; a segment is at most its 1 GiB, or one batch.
pub const MAX_BATCH_BYTES: u64 = 1 << 30;

pub struct State {
    pub groups: HashMap<u64, Group>,
    pub segments: BTreeMap<u64, Segment>,
    /// The segment that takes new frames.
    pub active: u64,
    /// An empty segment, made ahead.
    pub spare: Option<u64>,
    pub next_seq: u64,
    /// A thread is making a spare, without the lock.
    pub making_spare: bool,
    /// The last attempt failed: not tried again before something was deleted, unless a batch needs it.
    pub spare_failed: bool,
    /// Where the next frame starts in `active`, when no frame is queued.
    pub next_offset: u64,
    /// Size of the seal that `active` will need.
    pub seal_bytes: u64,
    pub queue: VecDeque<Frame>,
    /// A frame is being written, without the lock.
    pub in_flight: bool,
    pub next_lsn: u64,
    pub durable_lsn: u64,
    pub pending_bytes: u64,
    pub cache: TailCache,
    pub poisoned: Option<Arc<str>>,
    pub counters: Metrics,
}

/// A batch that passed all checks.
pub struct Plan {
    pub head_and_meta: Vec<u8>,
    pub data_bytes: u64,
    /// Operations that take part, by position; copies of entries that moved meanwhile do not.
    take_part: Vec<bool>,
    /// Groups whose record is in the batch, as they will be after it, and the record's size.
    records: Vec<(u64, Meta, u64)>,
}

impl Plan {
    pub fn size_bytes(&self) -> u64 {
        self.head_and_meta.len() as u64 + self.data_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.head_and_meta.len() == BATCH_HEAD
    }
}

/// A group as the operations planned so far leave it.
struct Draft {
    group: u64,
    meta: Meta,
    changed: bool,
}

impl State {
    /// Checks a batch and encodes it; changes nothing.
    pub fn plan(&self, batch: &Batch) -> Result<Plan> {
        let mut drafts = Drafts { groups: &self.groups, drafts: Vec::new() };
        let mut take_part = Vec::with_capacity(batch.ops.len());
        let mut head_and_meta = vec![0; BATCH_HEAD];
        let mut data_bytes = 0;
        let all_bytes = batch.data_bytes();
        if all_bytes > MAX_BATCH_BYTES {
            return Err(Error::TooLarge { size_bytes: all_bytes, limit_bytes: MAX_BATCH_BYTES });
        }
        for op in &batch.ops {
            let taken = match op {
                Op::Append(append) => self.plan_append(append, &mut drafts)?,
                _ => plan_small(op, &mut drafts)?,
            };
            take_part.push(taken);
            if let (Op::Append(append), true) = (op, taken) {
                format::encode_entries(&mut head_and_meta, &append.entries);
                data_bytes += append.data_bytes;
            }
        }
        let mut records = Vec::new();
        for draft in drafts.drafts.into_iter().filter(|draft| draft.changed) {
            let before = head_and_meta.len();
            format::encode_group(&mut head_and_meta, draft.group, &draft.meta);
            records.push((draft.group, draft.meta, (head_and_meta.len() - before) as u64));
        }
        let size_bytes = head_and_meta.len() as u64 + data_bytes;
        if size_bytes > MAX_BATCH_BYTES {
            return Err(Error::TooLarge { size_bytes, limit_bytes: MAX_BATCH_BYTES });
        }
        format::finish_batch_head(&mut head_and_meta, data_bytes as u32);
        Ok(Plan { head_and_meta, data_bytes, take_part, records })
    }

    fn plan_append(&self, append: &Append, drafts: &mut Drafts<'_>) -> Result<bool> {
        let end = append.entries.first.saturating_add(append.entries.table.len() as u64);
        if let Some(segment) = append.copied_from {
            return Ok(self
                .groups
                .get(&append.entries.group)
                .is_some_and(|group| group.holds(&(append.entries.first..end), segment)));
        }
        let draft = drafts.of(append.entries.group);
        let (group, first, meta) = (GroupId(append.entries.group), Index(append.entries.first), &mut draft.meta);
        if append.entries.first <= meta.floor {
            return Err(Error::BelowFloor { group, index: first, floor: Index(meta.floor) });
        }
        if append.entries.first > meta.last + 1 || end == u64::MAX {
            return Err(Error::Gap { group, first, last: Index(meta.last) });
        }
        // Only a shortened log needs a record: it must clip what older segments still hold.
        draft.changed |= append.entries.first <= meta.last;
        meta.last = end - 1;
        meta.destroyed = false;
        Ok(true)
    }

    /// The place for a batch of `plan`'s size: (segment, offset). `None`: a new segment is needed and there is no spare.
    pub fn place(&mut self, plan: &Plan, segment_bytes: u64) -> Option<(u64, u64)> {
        let size_bytes = plan.size_bytes();
        let seal_bytes = self.seal_bytes + (SEAL_LINE + plan.head_and_meta.len()) as u64;
        // Without a spare the last part of a segment is kept for batches that free space, such as purges.
        let kept = if self.spare.is_some() || plan.data_bytes == 0 { 0 } else { (segment_bytes / 8).min(1 << 20) };
        let fits = |end: u64| format::align(end) + format::align(seal_bytes) + BLOCK + kept <= segment_bytes;

        if let Some(frame) = self.queue.back()
            && frame.payload_bytes < FRAME_BYTES
            && fits(frame.next_offset() + size_bytes)
        {
            self.seal_bytes = seal_bytes;
            return Some((frame.segment, frame.next_offset()));
        }
        let start = self.queue.back().map_or(self.next_offset, Frame::end);
        if !fits(start + FRAME_HEADER as u64 + size_bytes) && start > BLOCK {
            self.active = self.spare.take()?;
            self.seal_bytes = FRAME_HEADER as u64 + (SEAL_LINE + plan.head_and_meta.len()) as u64;
            self.open_frame(BLOCK);
        } else {
            self.seal_bytes = seal_bytes;
            self.open_frame(start);
        }
        self.queue.back().map(|frame| (frame.segment, frame.next_offset()))
    }

    fn open_frame(&mut self, offset: u64) {
        let (segment, first_lsn) = (self.active, self.next_lsn);
        self.queue.push_back(Frame { segment, offset, first_lsn, batches: Vec::new(), payload_bytes: 0 });
    }

    /// Makes a planned batch readable and queues it at the place it was given. Returns its lsn.
    pub fn apply(&mut self, batch: Batch, plan: Plan, segment: u64, offset: u64) -> u64 {
        let lsn = self.next_lsn;
        self.next_lsn += 1;
        let mut encoded =
            EncodedBatch { head_and_meta: plan.head_and_meta.into(), pieces: Vec::new(), data_bytes: plan.data_bytes };
        let mut data_offset = offset + encoded.head_and_meta.len() as u64;
        for (op, _) in batch.ops.into_iter().zip(plan.take_part).filter(|(_, taken)| *taken) {
            if let Op::Append(append) = op {
                data_offset = self.apply_append(append, segment, data_offset, lsn, &mut encoded.pieces);
            } else {
                self.apply_small(op, lsn);
            }
        }
        for (group, meta, size_bytes) in plan.records {
            let (segments, group) = (&mut self.segments, self.groups.entry(group).or_default());
            group.meta = meta;
            if let Some((old, bytes)) = group.record.replace((segment, size_bytes)) {
                died(segments, old, 1, bytes, lsn);
            }
            born(segments, segment, 1, size_bytes);
        }
        self.pending_bytes += encoded.size_bytes();
        self.counters.batches += 1;
        if let Some(frame) = self.queue.back_mut() {
            frame.payload_bytes += encoded.size_bytes();
            frame.batches.push(encoded);
        }
        lsn
    }

    fn apply_append(
        &mut self,
        append: Append,
        segment: u64,
        mut offset: u64,
        lsn: u64,
        pieces: &mut Vec<bytes::Bytes>,
    ) -> u64 {
        let (segments, group) = (&mut self.segments, self.groups.entry(append.entries.group).or_default());
        born(segments, segment, append.entries.table.len() as u64, append.data_bytes);
        let mut at = offset;
        let locs = append.entries.table.iter().map(|&(len, crc)| {
            let loc = Loc { offset: at as u32, len, crc };
            at += u64::from(len);
            loc
        });
        let mut killed = |from: u64, n: u64, bytes: u64| died(segments, from, n, bytes, lsn);
        if append.copied_from.is_some() {
            group.relocate(append.entries.first, segment, locs.collect(), &mut killed);
            self.counters.rewritten_bytes += append.data_bytes;
        } else {
            if append.entries.first <= group.meta.last {
                group.truncate_after(append.entries.first - 1, &mut killed);
            }
            group.append(&append.entries.runs, segment, locs);
            group.meta.destroyed = false;
            self.counters.entries += append.entries.table.len() as u64;
            self.counters.entry_bytes += append.data_bytes;
        }
        for piece in append.pieces {
            let len = piece.len() as u64;
            self.cache.insert(segment, offset, piece.clone(), lsn);
            pieces.push(piece);
            offset += len;
        }
        offset
    }

    /// State and pairs come with the record; here only entries go.
    fn apply_small(&mut self, op: Op, lsn: u64) {
        let segments = &mut self.segments;
        let mut killed = |segment: u64, n: u64, bytes: u64| died(segments, segment, n, bytes, lsn);
        match op {
            Op::TruncateAfter { group, index } => {
                self.groups.entry(group).or_default().truncate_after(index, &mut killed)
            }
            Op::Purge { group, upto, term } => self.groups.entry(group).or_default().purge(upto, term, &mut killed),
            Op::Destroy { group } => self.groups.entry(group).or_default().clear(&mut killed),
            Op::State { .. } | Op::Put { .. } | Op::Refresh { .. } | Op::Append(_) => {}
        }
    }
}

/// Groups touched by a batch under plan: a handful.
struct Drafts<'a> {
    groups: &'a HashMap<u64, Group>,
    drafts: Vec<Draft>,
}

impl Drafts<'_> {
    fn of(&mut self, group: u64) -> &mut Draft {
        let at = self.drafts.iter().position(|draft| draft.group == group).unwrap_or_else(|| {
            let meta = self.groups.get(&group).map_or_else(Meta::default, |g| g.meta.clone());
            self.drafts.push(Draft { group, meta, changed: false });
            self.drafts.len() - 1
        });
        &mut self.drafts[at]
    }
}

/// Operations that only change a group's record. `false`: nothing to do.
fn plan_small(op: &Op, drafts: &mut Drafts<'_>) -> Result<bool> {
    let group = match op {
        Op::TruncateAfter { group, .. } | Op::Purge { group, .. } | Op::State { group, .. } => *group,
        Op::Put { group, .. } | Op::Destroy { group } | Op::Refresh { group } => *group,
        Op::Append(append) => append.entries.group,
    };
    let draft = drafts.of(group);
    let meta = &mut draft.meta;
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

fn born(segments: &mut BTreeMap<u64, Segment>, segment: u64, items: u64, bytes: u64) {
    if let Some(segment) = segments.get_mut(&segment) {
        segment.born(items, bytes);
    }
}

fn died(segments: &mut BTreeMap<u64, Segment>, segment: u64, items: u64, bytes: u64, lsn: u64) {
    if let Some(segment) = segments.get_mut(&segment) {
        segment.died(items, bytes, lsn);
    }
}
