//! Which frame may be written now, which are done, and who is waiting for them?
//!
//! Frames stand in LSN order: those being written in front, the queued behind. A few may be written at once; they may
//! end in any order, but they are *acknowledged* strictly in order, and a frame may begin only when all but `window - 1`
//! frames before it are acknowledged. So what a crash leaves in doubt are the last `window` frames, never more.
//!
//! No thread, no I/O, no lock in here: the lane's lock guards it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::parker::Parker;

/// Called once: with `Ok` when the batch is durable, else with what went wrong.
pub type Call = Box<dyn FnOnce(Result<(), Arc<str>>) + Send>;

pub enum Waiter {
    Thread(Arc<Parker>),
    Call(u64, Call),
}

struct Slot<F> {
    /// Taken by whoever writes it.
    frame: Option<F>,
    last_lsn: u64,
    written: bool,
    waiters: Vec<Waiter>,
}

pub struct Pipeline<F> {
    slots: VecDeque<Slot<F>>,
    /// Slots in front whose frame was taken.
    started: usize,
    window: usize,
}

impl<F> Pipeline<F> {
    pub fn new(window: usize) -> Pipeline<F> {
        Pipeline { slots: VecDeque::new(), started: 0, window }
    }

    /// Queues a frame that so far ends with `last_lsn`.
    pub fn push(&mut self, frame: F, last_lsn: u64) {
        self.slots.push_back(Slot { frame: Some(frame), last_lsn, written: false, waiters: Vec::new() });
    }

    /// The newest queued frame, to add to, and the lsn it ends with.
    pub fn newest(&mut self) -> Option<(&mut F, &mut u64)> {
        let slot = self.slots.back_mut()?;
        Some((slot.frame.as_mut()?, &mut slot.last_lsn))
    }

    /// The frame that is next to be written, if one more may be.
    pub fn next(&self) -> Option<&F> {
        if self.started >= self.window {
            return None;
        }
        self.slots.get(self.started)?.frame.as_ref()
    }

    /// Frames taken and not acknowledged.
    pub fn in_flight(&self) -> usize {
        self.started
    }

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
    /// it is still being written: the lsn up to which all is done, and who waited for it.
    pub fn finish(&mut self, last_lsn: u64) -> Option<(u64, Vec<Waiter>)> {
        if let Some(slot) = self.slots.iter_mut().take(self.started).find(|slot| slot.last_lsn == last_lsn) {
            slot.written = true;
        }
        let mut done: Option<(u64, Vec<Waiter>)> = None;
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.written) {
            self.started -= 1;
            match &mut done {
                None => done = Some((slot.last_lsn, slot.waiters)),
                Some((lsn, waiters)) => {
                    *lsn = slot.last_lsn;
                    waiters.extend(slot.waiters);
                }
            }
        }
        done
    }

    /// Waits for the frame that holds `lsn`; gives the waiter back if there is none.
    pub fn wait(&mut self, lsn: u64, waiter: Waiter) -> Result<(), Waiter> {
        match self.slots.iter_mut().find(|slot| lsn <= slot.last_lsn) {
            Some(slot) => {
                slot.waiters.push(waiter);
                Ok(())
            }
            None => Err(waiter),
        }
    }

    /// A thread that waits for a queued frame, no longer registered: it is to be woken, and looks itself.
    pub fn pick_thread(&mut self) -> Option<Arc<Parker>> {
        let queued = self.slots.iter_mut().skip(self.started);
        queued.filter_map(Slot::pick_thread).next()
    }

    /// Whether somebody who does not wait in a thread wants a queued frame.
    pub fn wants_call(&self) -> bool {
        let is_call = |waiter: &Waiter| matches!(waiter, Waiter::Call(..));
        self.slots.iter().skip(self.started).any(|slot| slot.waiters.iter().any(is_call))
    }

    /// Everybody who waits: nothing more will be acknowledged.
    pub fn give_up(&mut self) -> Vec<Waiter> {
        self.slots.iter_mut().flat_map(|slot| std::mem::take(&mut slot.waiters)).collect()
    }
}

impl<F> Slot<F> {
    fn pick_thread(&mut self) -> Option<Arc<Parker>> {
        let at = self.waiters.iter().position(|waiter| matches!(waiter, Waiter::Thread(_)))?;
        match self.waiters.swap_remove(at) {
            Waiter::Thread(parker) => Some(parker),
            Waiter::Call(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever starts and ends when: acknowledged in order, each once, and never more than two in doubt.
        #[test]
        fn frames_are_acknowledged_in_order_within_the_window(steps in prop::collection::vec(0u8..5, 1..200)) {
            let mut pipeline = Pipeline::new(2);
            let (mut next_lsn, mut acknowledged, mut running) = (1u64, 0u64, Vec::<u64>::new());
            let mut waiting: Vec<u64> = Vec::new();
            for step in steps {
                match step {
                    0 => {
                        pipeline.push(next_lsn, next_lsn);
                        next_lsn += 1;
                    }
                    1 => {
                        if let Some((first, last)) = pipeline.newest() {
                            assert!(*first <= *last);
                            *last = next_lsn;
                            next_lsn += 1;
                        }
                    }
                    2 => {
                        if let Some(first) = pipeline.start() {
                            let last = pipeline.slots[pipeline.started - 1].last_lsn;
                            prop_assert!(first > acknowledged && running.iter().all(|&r| r < first));
                            running.push(last);
                        }
                    }
                    3 => {
                        if next_lsn > 1 {
                            let lsn = next_lsn - 1;
                            if pipeline.wait(lsn, Waiter::Call(lsn, Box::new(|_| ()))).is_ok() {
                                waiting.push(lsn);
                            } else {
                                prop_assert!(acknowledged >= lsn);
                            }
                        }
                    }
                    _ => {
                        if running.is_empty() { continue; }
                        let last = running.remove(running.len() / 2);
                        if let Some((lsn, woken)) = pipeline.finish(last) {
                            prop_assert!(lsn > acknowledged);
                            acknowledged = lsn;
                            for waiter in woken {
                                let Waiter::Call(lsn, _) = waiter else { continue };
                                prop_assert!(lsn <= acknowledged);
                                let at = waiting.iter().position(|&w| w == lsn);
                                waiting.remove(at.expect("woken once"));
                            }
                        }
                        prop_assert!(waiting.iter().all(|&lsn| lsn > acknowledged));
                    }
                }
                prop_assert!(pipeline.in_flight() <= 2);
            }
            prop_assert_eq!(pipeline.give_up().len(), waiting.len());
        }
    }
}
