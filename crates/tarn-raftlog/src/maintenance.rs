//! Maintenance of segments: where do empty ones come from?
//!
//! First from segments in which nothing lives any more, then from files made new. A committer looks after its callers
//! are told: it renews a dead segment (two writes), or fills the next MiB of a new file, at the pace at which the
//! active segment fills. A host that has a thread to spare calls [`crate::RaftLog::prepare`] and takes this off its
//! committers.
//!
//! A file is renewed only when the batches that killed its last entry are durable, and nobody reads it any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::gc::Space;
use crate::lane::Lane;
use crate::open_log::{OpenLog, SegmentPreparation};
use crate::segment::{self, Preparation, Segment};

/// Empty segments that are kept whatever the log takes, and that a host's idle moments make ahead.
pub const FREE_SEGMENTS: usize = 2;

impl OpenLog {
    /// A segment of at least `wanted` bytes is free afterwards.
    pub fn make_room(&self, wanted: u64) -> Result<()> {
        let mut making = self.making.lock();
        self.renew_idle()?;
        let is_there = |lane: &Lane| lane.free.values().any(|s| s.size_bytes() >= wanted);
        if is_there(&self.lane.lock()) {
            return Ok(());
        }
        if wanted > self.options.segment_bytes() {
            return self.make(&mut making, Some(wanted));
        }
        if self.renew_dead()? { Ok(()) } else { self.make(&mut making, None) }
    }

    /// Makes a new file: the one under preparation, or one of another length.
    fn make(&self, making: &mut SegmentPreparation, long: Option<u64>) -> Result<()> {
        let made = self.make_file(making, long);
        making.failed = made.is_err();
        made
    }

    fn make_file(&self, making: &mut SegmentPreparation, long: Option<u64>) -> Result<()> {
        let mut preparation = match making.preparation.take() {
            Some(preparation) if long.is_none() => preparation,
            kept => {
                making.preparation = kept;
                self.begin(making, long.unwrap_or(self.options.segment_bytes()))?
            }
        };
        while !self.fill(&mut preparation)? {}
        self.finish(preparation)
    }

    fn begin(&self, making: &mut SegmentPreparation, bytes: u64) -> Result<Preparation> {
        let slot = making.next_slot;
        making.next_slot += 1;
        let begun = Preparation::begin(&*self.disk, &self.options, slot, bytes)?;
        self.tally.preparing_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(begun)
    }

    fn fill(&self, preparation: &mut Preparation) -> Result<bool> {
        let before = preparation.filled_bytes();
        let filled = preparation.fill(&self.buffers);
        self.tally.filled_bytes.fetch_add(preparation.filled_bytes() - before, Ordering::Relaxed);
        if filled.is_err() {
            self.tally.preparing_bytes.fetch_sub(preparation.reserved_bytes(), Ordering::Relaxed);
            preparation.abandon(&*self.disk);
        }
        filled
    }

    fn finish(&self, preparation: Preparation) -> Result<()> {
        let seq = self.next_seq();
        self.tally.preparing_bytes.fetch_sub(preparation.reserved_bytes(), Ordering::Relaxed);
        let segment = preparation.finish(&*self.disk, &self.options.dir, &self.ident, seq, &self.buffers)?;
        let mut lane = self.lane.lock();
        lane.counters.segments_created += 1;
        lane.free.insert(segment.seq, segment);
        Ok(())
    }

    fn next_seq(&self) -> u64 {
        let mut lane = self.lane.lock();
        lane.next_seq += 1;
        lane.next_seq - 1
    }

    fn renew(&self, old: &Segment) -> Result<()> {
        let renewed = segment::renew(&*self.disk, &self.ident, old, self.next_seq(), &self.buffers)?;
        self.lane.lock().free.insert(renewed.seq, renewed);
        Ok(())
    }

    fn renew_idle(&self) -> Result<()> {
        while let Some(idle) = { self.lane.lock().take_idle() } {
            if let Err(error) = self.renew(&idle) {
                self.lane.lock().idle.push(idle);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Renews one dead segment of the usual length, if there is one.
    fn renew_dead(&self) -> Result<bool> {
        let usual = self.options.segment_bytes();
        let Some(dead) =
            ({ self.lane.lock().take_dead(self.durable_lsn.load(Ordering::Acquire), |s| s.size_bytes() == usual) })
        else {
            return Ok(false);
        };
        let renewed = self.head.let_go(&dead, &self.buffers).and_then(|()| self.renew(&dead));
        let mut lane = self.lane.lock();
        if renewed.is_err() {
            lane.segments.insert(dead.seq, dead);
        } else {
            lane.counters.segments_deleted += 1;
        }
        renewed.map(|()| true)
    }

    /// After a commit: sees that the next segment will be there in time. What fails here fails again, and is told,
    /// when a batch needs the segment.
    pub fn maintain_segments(&self) {
        let Some(mut making) = self.making.try_lock() else { return };
        if making.failed || self.renew_idle().is_err() {
            return;
        }
        let (free, used, has_space) = {
            let mut lane = self.lane.lock();
            if lane.poisoned.is_some() {
                return;
            }
            let used = lane.used_bytes() * 1000 / lane.active.size_bytes().max(1);
            let has_space = lane.free.is_empty() && Space::of(self, &lane).has_room(self.options.segment_bytes());
            (lane.free.len(), used, has_space)
        };
        if free > 0 || matches!(self.renew_dead(), Ok(true)) {
            return;
        }
        // A quarter ahead of need while the log grows; else late, because a segment may yet die and be renewed.
        let due = if has_space { used * 5 / 4 } else { used.saturating_sub(900) * 10 };
        if due == 0 && !has_space {
            return;
        }
        let stepped = match making.preparation.take() {
            Some(ahead) if ahead.per_mille() > due => Ok(Some(ahead)),
            preparation => self.step(&mut making, preparation),
        };
        making.failed = stepped.is_err();
        making.preparation = stepped.unwrap_or_default();
    }

    /// Begins a file if there is none, fills some of it, and finishes it when it is full.
    fn step(&self, making: &mut SegmentPreparation, preparation: Option<Preparation>) -> Result<Option<Preparation>> {
        let mut preparation = match preparation {
            Some(preparation) => preparation,
            None => self.begin(making, self.options.segment_bytes())?,
        };
        if !self.fill(&mut preparation)? {
            return Ok(Some(preparation));
        }
        self.finish(preparation).map(|()| None)
    }

    /// Fills the stock of empty segments.
    pub fn prepare(&self) -> Result<()> {
        loop {
            let mut making = self.making.lock();
            self.renew_idle()?;
            if self.lane.lock().free.len() >= FREE_SEGMENTS {
                return Ok(());
            }
            if !self.renew_dead()? {
                self.make(&mut making, None)?;
            }
        }
    }

    /// Something was freed: making a file may succeed again.
    pub fn freed(&self) {
        self.making.lock().failed = false;
    }

    /// Keeps the file of a dead segment for use again, if there are few or there is space for more; `false`: it is to
    /// be removed.
    pub fn keep_file(&self, dead: &Segment, has_space: bool) -> Result<bool> {
        let _making = self.making.lock();
        let few = self.lane.lock().free.len() < FREE_SEGMENTS;
        let wanted = dead.size_bytes() == self.options.segment_bytes() && (few || has_space);
        if wanted {
            self.renew(dead)?;
        }
        Ok(wanted)
    }
}

impl OpenLog {
    /// Gives back what was made ahead, while the log takes more than is promised.
    pub fn trim(&self) -> Result<()> {
        let mut making = self.making.lock();
        loop {
            let (kept, n_free) = {
                let lane = self.lane.lock();
                (Space::of(self, &lane).keeps_promise(self.options.segment_bytes()), lane.free.len())
            };
            if kept || n_free == 0 {
                return Ok(());
            }
            if let Some(preparation) = making.preparation.take() {
                self.tally.preparing_bytes.fetch_sub(preparation.reserved_bytes(), Ordering::Relaxed);
                preparation.abandon(&*self.disk);
                continue;
            }
            if n_free == 1 {
                return Ok(());
            }
            let Some((_, surplus)) = ({ self.lane.lock().free.pop_last() }) else { return Ok(()) };
            self.disk.remove(&surplus.path).map_err(Error::io("remove", &surplus.path))?;
        }
    }
}

impl Lane {
    /// Takes out a segment that may be used again: sealed, nothing lives in it, its killers are durable, nobody reads
    /// it, and it need not be there.
    pub fn take_dead(&mut self, durable_lsn: u64, fits: impl Fn(&Segment) -> bool) -> Option<Arc<Segment>> {
        let is_dead = |segment: &Arc<Segment>| {
            segment.is_sealed()
                && segment.live_items() == 0
                && segment.killed_by() <= durable_lsn
                && Arc::strong_count(segment) == 1
                && self.may_go(segment)
                && fits(segment)
        };
        let seq = self.segments.iter().find(|(_, segment)| is_dead(segment)).map(|(&seq, _)| seq)?;
        self.segments.remove(&seq)
    }
}
