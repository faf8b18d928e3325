//! How do many callers share one write and one flush, and who makes it?
//!
//! A caller that waits and finds a frame that may be written becomes its committer: it writes it without any lock. All
//! who wait for the same frame sleep meanwhile; what is submitted meanwhile gathers in the next frame, which another
//! waiter may write beside the first. Whoever ends a frame wakes those it acknowledges, and one more if a frame is
//! ready: so whenever a frame may be written and somebody waits for it, somebody is awake who will look. There is no
//! thread: the queue drains because those who need it drain it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use crate::error::{Error, Result};
use crate::format::{self, BLOCK};
use crate::gate::{Gate, WakeReason};
use crate::lane::{Draft, Lane, Work};
use crate::open_log::OpenLog;
use crate::options::Durability;
use crate::pipeline::Completion;
use crate::recovery;

/// Wakes somebody who will write the next frame, if there is one and somebody wants it; without the lock, for which
/// they would only wait.
pub fn pass_on(mut lane: MutexGuard<'_, Lane>) {
    let next = lane.pick_writer();
    drop(lane);
    next.iter().for_each(|gate| gate.let_one_look());
}

impl OpenLog {
    /// Whether everything up to `lsn` is on the device, or, in a log that does not flush, with the operating system.
    pub fn is_durable(&self, lsn: u64) -> bool {
        self.durable_lsn.load(Ordering::Acquire) >= lsn
    }

    /// Returns when everything up to `lsn` is durable; writes what it finds to be written.
    pub fn wait(&self, lsn: u64) -> Result<()> {
        if self.is_durable(lsn) {
            return Ok(());
        }
        if let Some(turn) = self.turn() {
            return self.write_up_to(lsn, turn);
        }
        let mut lane = self.lane.lock();
        loop {
            if self.is_durable(lsn) {
                // It may have been woken to write a frame that another took; then this one is to be passed on.
                pass_on(lane);
                return Ok(());
            }
            if let Some(cause) = &lane.poisoned {
                return Err(Error::Undecided { cause: Arc::clone(cause) });
            }
            if let Some(work) = lane.take() {
                drop(lane);
                self.write(work);
                if self.is_durable(lsn) {
                    return Ok(());
                }
                lane = self.lane.lock();
                continue;
            }
            let Some(gate) = lane.frames.wait(lsn) else {
                assert!(self.is_durable(lsn), "lsn {lsn} is in no frame, but was given to a batch");
                return Ok(());
            };
            drop(lane);
            if gate.sleep() == WakeReason::Done && self.is_durable(lsn) {
                return Ok(());
            }
            lane = self.lane.lock();
        }
    }

    /// Without flushes a write is over before a thread has fallen asleep: there nobody sleeps until a frame ends, who
    /// wants something written waits for a turn at writing. Taken before the lane's lock; a frame is written by whoever
    /// has it.
    pub fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        (self.options.sync == Durability::Os).then(|| self.writing.lock())
    }

    fn write_up_to(&self, lsn: u64, _turn: MutexGuard<'_, ()>) -> Result<()> {
        while !self.is_durable(lsn) {
            let mut lane = self.lane.lock();
            if let Some(cause) = &lane.poisoned {
                return Err(Error::Undecided { cause: Arc::clone(cause) });
            }
            let Some(work) = lane.take() else {
                assert!(self.is_durable(lsn), "lsn {lsn} is in no frame, but was given to a batch");
                return Ok(());
            };
            drop(lane);
            self.write(work);
        }
        Ok(())
    }

    /// Writes a frame and tells everybody. An error poisons the log.
    pub fn write(&self, work: Work) {
        let started = self.now();
        let written = self.write_frame(&work);
        let elapsed = self.now().zip(started).map(|(now, then)| now.saturating_sub(then));
        let frame = &work.frame;

        let mut lane = self.lane.lock();
        let mut completion = Completion::default();
        match written {
            Ok(()) => {
                lane.counters.frames += 1;
                lane.counters.written_bytes += frame.end() - frame.offset;
                lane.counters.frame_batches.add(frame.batches.len() as u64);
                elapsed.iter().for_each(|&ns| lane.counters.write_ns.add(ns));
                lane.pending_bytes -= frame.payload_bytes;
                frame.segment.end.fetch_max(frame.end(), Ordering::Relaxed);
                if let Some(done) = lane.frames.finish(frame.last_lsn()) {
                    self.durable_lsn.store(done.lsn, Ordering::Release);
                    completion = done;
                }
            }
            Err(error) => {
                lane.fail(format!("write {}: {error}", frame.segment.path.display()).into());
                completion = lane.frames.give_up();
                completion.gates.extend(lane.committer.take());
            }
        }
        let next = lane.pick_writer();
        let mut needs_maintenance = lane.free.is_empty() || !lane.idle.is_empty();
        if needs_maintenance || lane.closed {
            // A host's thread does that beside the commits.
            let committer = lane.committer.take();
            needs_maintenance &= committer.is_none();
            completion.gates.extend(committer);
        }
        self.complete(lane, completion, next);
        self.cache.shrink(self.options.cache_bytes, self.durable_lsn.load(Ordering::Acquire));
        if needs_maintenance {
            self.maintain_segments();
        }
    }

    /// Wakes and calls those whose fate is decided.
    fn complete(&self, lane: MutexGuard<'_, Lane>, completion: Completion, next: Option<Arc<Gate>>) {
        let any = !completion.calls.is_empty();
        if any {
            // Under the lane's lock, so that two committers queue their calls in the order of their frames.
            self.calls.queue(completion.calls, lane.poisoned.clone(), self.durable_lsn.load(Ordering::Acquire));
        }
        drop(lane);
        // The device first: who writes the next frame wakes before those who are done.
        next.iter().for_each(|gate| gate.let_one_look());
        completion.gates.iter().for_each(|gate| gate.open());
        if any {
            self.calls.run();
        }
    }

    fn write_frame(&self, work: &Work) -> io::Result<()> {
        if let Some(draft) = &work.seal {
            self.seal(draft)?;
        }
        let frame = &work.frame;
        if work.enters {
            let before = work.seal.as_ref().map(|draft| &*draft.segment);
            self.head.enter(&frame.segment, before, &self.buffers)?;
            let mut lane = self.lane.lock();
            lane.entered(&frame.segment);
            pass_on(lane);
        }
        let len = (frame.end() - frame.offset) as usize;
        let mut buffer = self.buffers.take(len);
        buffer.extend(&work.header);
        for batch in &frame.batches {
            buffer.extend(&batch.head_and_meta);
            batch.data.pieces().for_each(|piece| buffer.extend(piece));
        }
        buffer.pad(frame.segment.unit as usize);
        buffer.zeros(len - buffer.bytes().len());
        match self.options.sync {
            Durability::Os => frame.segment.file.write_at(buffer.bytes(), frame.offset)?,
            _ => frame.segment.file.write_durable(buffer.bytes(), frame.offset)?,
        }
        self.buffers.give(buffer);
        Ok(())
    }

    /// Ends a segment with its index. All its frames are acknowledged, and none of the next segment is written yet.
    fn seal(&self, draft: &Draft) -> io::Result<()> {
        let segment = &draft.segment;
        let (len, size_bytes) = (draft.seal_bytes(), segment.size_bytes());
        let offset = size_bytes - len;
        assert!(offset >= draft.end, "a batch is placed where it leaves room for the seal");
        if self.options.sync == Durability::Os {
            // A sealed segment is trusted without reading its frames.
            segment.file.sync()?;
        }
        let (seal, trailer) = draft.encode(offset);
        let mut buffer = self.buffers.take(len as usize);
        buffer.extend(&seal);
        buffer.pad(BLOCK as usize);
        buffer.extend(&trailer);
        segment.file.write_durable(buffer.bytes(), offset)?;
        self.buffers.give(buffer);
        draft.done(size_bytes);
        segment.file.rest();
        self.tally.written_bytes.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the taking of batches, writes what was taken, and seals the newest segment, so that the next open has
    /// nothing to scan and any damage to tell from a crash. One caller at a time.
    pub fn close(&self) -> Result<()> {
        let last = self.lane.lock().close();
        self.wait(last)?;
        let draft = {
            let mut lane = self.lane.lock();
            if let Some(cause) = &lane.poisoned {
                return Err(Error::Poisoned { cause: Arc::clone(cause) });
            }
            lane.take_last()
        };
        let Some(draft) = draft else { return Ok(()) };
        recovery::seal_at(&draft, format::align(draft.end), &self.buffers).map_err(|error| {
            self.lane.lock().fail(format!("seal {}: {error}", draft.segment.path.display()).into());
            Error::io("seal", &draft.segment.path)(error)
        })
    }

    fn now(&self) -> Option<u64> {
        self.options.clock.map(|clock| clock())
    }
}
