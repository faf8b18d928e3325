//! Which frame may be written now, which are done, and who is waiting for them?
//!
//! Frames stand in LSN order: those being written in front, the queued behind. A few may be written at once; they may
//! end in any order, but they are *acknowledged* strictly in order, and a frame may begin only when all but `window -
//! 1` frames before it are acknowledged. So what a crash leaves in doubt are the last `window` frames, never more.
//!
//! A frame that would be written beside another waits until it holds a batch for its share of those who waited or wrote
//! lately (the *crowd*), and will soon be back: else the first caller to come back would take a frame for itself, and
//! the rest a whole turn of the device later. A frame that stands alone never waits.
//!
//! No thread, no I/O, no lock in here: the lane's lock guards it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::gate::Gate;

/// Called once: with `Ok` when the batch is durable, else with what went wrong.
pub type Call = Box<dyn FnOnce(Result<(), Arc<str>>) + Send>;

/// The batches up to `lsn` are durable: whom to wake for that, and which calls to make.
#[derive(Default)]
pub struct Completion {
    /// The last that is durable.
    pub lsn: u64,
    /// To be opened, for all who sleep there.
    pub gates: Vec<Arc<Gate>>,
    /// By LSN, to be made in that order.
    pub calls: Vec<(u64, Call)>,
}

struct Slot<F> {
    /// Taken by whoever writes it.
    frame: Option<F>,
    last_lsn: u64,
    written: bool,
    /// Made for the first who waits in a thread.
    gate: Option<Arc<Gate>>,
    /// Threads at the gate for which no token was given.
    sleepers: usize,
    calls: Vec<(u64, Call)>,
}

/// Frames that are queued or being written, in LSN order.
pub struct Pipeline<F> {
    slots: VecDeque<Slot<F>>,
    /// Slots in front whose frame was taken.
    started: usize,
    window: usize,
    acknowledged: u64,
    /// Who waited, and who wrote, as frames ended: the most, of which each frame forgets an eighth.
    crowd: u64,
}

impl<F> Pipeline<F> {
    /// Frames in flight at most, and the lsn up to which all is acknowledged.
    pub fn new(window: usize, acknowledged: u64) -> Pipeline<F> {
        Pipeline { slots: VecDeque::new(), started: 0, window, acknowledged, crowd: 0 }
    }

    /// Queues a frame that so far ends with `last_lsn`.
    pub fn push(&mut self, frame: F, last_lsn: u64) {
        let frame = Some(frame);
        self.slots.push_back(Slot { frame, last_lsn, written: false, gate: None, sleepers: 0, calls: Vec::new() });
    }

    /// The newest queued frame, to add to, and the lsn it ends with.
    pub fn newest(&mut self) -> Option<(&mut F, &mut u64)> {
        let slot = self.slots.back_mut()?;
        Some((slot.frame.as_mut()?, &mut slot.last_lsn))
    }

    /// The frame that is next to be written, if one more may be and should.
    pub fn next(&self) -> Option<&F> {
        if self.started >= self.window {
            return None;
        }
        let next = self.slots.get(self.started)?;
        let share = self.crowd.div_ceil(self.window as u64);
        let gathered = self.started == 0 || self.queued() > 1 || next.last_lsn >= self.started_lsn() + share;
        next.frame.as_ref().filter(|_| gathered)
    }

    /// The last lsn of those being written, or acknowledged.
    pub fn started_lsn(&self) -> u64 {
        self.started.checked_sub(1).map_or(self.acknowledged, |last| self.slots[last].last_lsn)
    }

    /// Frames taken and not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.started
    }

    /// Frames that nobody has taken yet.
    pub fn queued(&self) -> usize {
        self.slots.len() - self.started
    }

    /// Takes the frame that [`Pipeline::next`] shows.
    pub fn start(&mut self) -> Option<F> {
        self.next()?;
        self.started += 1;
        self.slots[self.started - 1].frame.take()
    }

    /// The frame that ends with `last_lsn` is written. Acknowledges it and those behind it, or nothing while one before
    /// it is still being written.
    pub fn finish(&mut self, last_lsn: u64) -> Option<Completion> {
        if let Some(slot) = self.slots.iter_mut().take(self.started).find(|slot| slot.last_lsn == last_lsn) {
            slot.written = true;
        }
        let waiting = self.slots.iter().map(|slot| slot.sleepers + slot.calls.len()).sum::<usize>();
        self.crowd = ((waiting + self.started) as u64).max(self.crowd - self.crowd.div_ceil(8));
        let mut completion: Option<Completion> = None;
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.written) {
            self.started -= 1;
            self.acknowledged = slot.last_lsn;
            completion.get_or_insert_default().add(slot);
        }
        completion
    }

    /// The gate of the frame that holds `lsn`, for a thread that will sleep there; `None` if there is no such frame.
    pub fn wait(&mut self, lsn: u64) -> Option<Arc<Gate>> {
        let slot = self.slots.iter_mut().find(|slot| lsn <= slot.last_lsn)?;
        slot.sleepers += 1;
        Some(Arc::clone(slot.gate.get_or_insert_default()))
    }

    /// Leaves a call with the frame that holds `lsn`; gives it back if there is none.
    pub fn leave(&mut self, lsn: u64, call: Call) -> Result<(), Call> {
        match self.slots.iter_mut().find(|slot| lsn <= slot.last_lsn) {
            Some(slot) => {
                slot.calls.push((lsn, call));
                Ok(())
            }
            None => Err(call),
        }
    }

    /// A gate of a queued frame, at which one thread is now to be let through: it looks itself.
    pub fn pick_gate(&mut self) -> Option<Arc<Gate>> {
        let slot = self.slots.iter_mut().skip(self.started).find(|slot| slot.sleepers > 0)?;
        slot.sleepers -= 1;
        slot.gate.clone()
    }

    /// Whether somebody who does not wait in a thread wants a queued frame.
    pub fn wants_call(&self) -> bool {
        self.slots.iter().skip(self.started).any(|slot| !slot.calls.is_empty())
    }

    /// Everybody who waits: nothing more will be acknowledged.
    pub fn give_up(&mut self) -> Completion {
        let mut completion = Completion::default();
        for slot in &mut self.slots {
            completion.gates.extend(slot.gate.take());
            completion.calls.append(&mut slot.calls);
        }
        completion.lsn = self.acknowledged;
        completion
    }
}

impl Completion {
    fn add<F>(&mut self, slot: Slot<F>) {
        self.lsn = slot.last_lsn;
        self.gates.extend(slot.gate);
        self.calls.extend(slot.calls);
    }
}
