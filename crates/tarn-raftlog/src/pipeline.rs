//! Which frame may be written now, which are done, and who is waiting for them?
//!
//! Frames stand in LSN order: those being written in front, the queued behind. A few may be written at once; they may
//! end in any order, but they are *acknowledged* strictly in order, and a frame may begin only when all but `window - 1`
//! frames before it are acknowledged. So what a crash leaves in doubt are the last `window` frames, never more.
//!
//! A frame that would be written beside another waits until it holds its share of the batches that were on their way
//! lately (the *crowd*): else the first caller to come back would take a frame for itself, and the rest a whole turn of
//! the device later. A frame that stands alone never waits.
//!
//! No thread, no I/O, no lock in here: the lane's lock guards it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::gate::Gate;

/// Called once: with `Ok` when the batch is durable, else with what went wrong.
pub type Call = Box<dyn FnOnce(Result<(), Arc<str>>) + Send>;

/// Who is to be told, and that up to which lsn all is done.
#[derive(Default)]
pub struct Told {
    pub lsn: u64,
    pub gates: Vec<Arc<Gate>>,
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

pub struct Pipeline<F> {
    slots: VecDeque<Slot<F>>,
    /// Slots in front whose frame was taken.
    started: usize,
    window: usize,
    acknowledged: u64,
    /// Batches submitted and not acknowledged, as frames ended: the most, of which each frame forgets an eighth.
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

    /// The last of those being written.
    fn started_lsn(&self) -> u64 {
        self.started.checked_sub(1).map_or(self.acknowledged, |last| self.slots[last].last_lsn)
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
    /// it is still being written.
    pub fn finish(&mut self, last_lsn: u64) -> Option<Told> {
        if let Some(slot) = self.slots.iter_mut().take(self.started).find(|slot| slot.last_lsn == last_lsn) {
            slot.written = true;
        }
        let on_their_way = self.slots.back().map_or(0, |slot| slot.last_lsn - self.acknowledged);
        self.crowd = on_their_way.max(self.crowd - self.crowd.div_ceil(8));
        let mut told: Option<Told> = None;
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.written) {
            self.started -= 1;
            self.acknowledged = slot.last_lsn;
            told.get_or_insert_default().add(slot);
        }
        told
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
    pub fn give_up(&mut self) -> Told {
        let mut told = Told::default();
        for slot in &mut self.slots {
            told.gates.extend(slot.gate.take());
            told.calls.append(&mut slot.calls);
        }
        told.lsn = self.acknowledged;
        told
    }
}

impl Told {
    fn add<F>(&mut self, slot: Slot<F>) {
        self.lsn = slot.last_lsn;
        self.gates.extend(slot.gate);
        self.calls.extend(slot.calls);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gate::Woken;

    proptest! {
        /// Whatever starts and ends when: acknowledged in order, each once, and never more than two in doubt.
        #[test]
        fn frames_are_acknowledged_in_order_within_the_window(steps in prop::collection::vec(0u8..5, 1..200)) {
            let mut pipeline = Pipeline::new(2, 0);
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
                            if pipeline.leave(lsn, Box::new(|_| ())).is_ok() {
                                waiting.push(lsn);
                            } else {
                                prop_assert!(acknowledged >= lsn);
                            }
                        }
                    }
                    _ => {
                        if running.is_empty() { continue; }
                        let last = running.remove(running.len() / 2);
                        if let Some(told) = pipeline.finish(last) {
                            prop_assert!(told.lsn > acknowledged);
                            acknowledged = told.lsn;
                            for (lsn, _) in told.calls {
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
            prop_assert_eq!(pipeline.give_up().calls.len(), waiting.len());
        }
    }

    /// The steps of `Shared::wait` and `Shared::write` as they follow each other under the lane's lock, for a few threads
    /// that each submit and wait. Between any two steps any other thread may run.
    struct Threads {
        pipeline: Pipeline<u64>,
        next_lsn: u64,
        durable: u64,
        threads: Vec<Thread>,
        /// A frame that begins with such an lsn opens a segment: it is written alone.
        opens: fn(u64) -> bool,
    }

    struct Thread {
        at: At,
        lsn: u64,
        left: u64,
        gate: Arc<Gate>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum At {
        Submit,
        Look,
        Write(u64),
        Asleep,
        Done,
    }

    impl Threads {
        fn new(n_threads: usize, batches: u64, opens: fn(u64) -> bool) -> Threads {
            let thread = |_| Thread { at: At::Submit, lsn: 0, left: batches, gate: Arc::default() };
            Threads {
                pipeline: Pipeline::new(2, 0),
                next_lsn: 1,
                durable: 0,
                threads: (0..n_threads).map(thread).collect(),
                opens,
            }
        }

        fn may_run(&self, i: usize) -> bool {
            match self.threads[i].at {
                At::Asleep => self.threads[i].gate.passes(),
                at => at != At::Done,
            }
        }

        fn has_work(&self) -> bool {
            self.pipeline.next().is_some_and(|&first| !(self.opens)(first) || self.pipeline.in_flight() == 0)
        }

        fn pass_on(&mut self) {
            if self.has_work()
                && let Some(gate) = self.pipeline.pick_gate()
            {
                gate.let_one_look();
            }
        }

        fn returned(&mut self, i: usize) {
            let thread = &mut self.threads[i];
            thread.left -= 1;
            thread.at = if thread.left == 0 { At::Done } else { At::Submit };
        }

        fn step(&mut self, i: usize) {
            let lsn = self.threads[i].lsn;
            match self.threads[i].at {
                At::Submit => {
                    let lsn = self.next_lsn;
                    self.next_lsn += 1;
                    match self.pipeline.newest() {
                        Some((_, last)) if !(self.opens)(lsn) => *last = lsn,
                        _ => self.pipeline.push(lsn, lsn),
                    }
                    (self.threads[i].lsn, self.threads[i].at) = (lsn, At::Look);
                }
                At::Look if self.durable >= lsn => {
                    self.pass_on();
                    self.returned(i);
                }
                At::Look => {
                    if self.has_work() {
                        self.pipeline.start().expect("there is work");
                        let last = self.pipeline.slots[self.pipeline.started - 1].last_lsn;
                        self.threads[i].at = At::Write(last);
                        return;
                    }
                    self.threads[i].gate = self.pipeline.wait(lsn).expect("it is not durable");
                    self.threads[i].at = At::Asleep;
                }
                At::Write(last) => {
                    if let Some(told) = self.pipeline.finish(last) {
                        assert!(told.lsn > self.durable);
                        self.durable = told.lsn;
                        self.pass_on();
                        told.gates.iter().for_each(|gate| gate.open());
                    } else {
                        self.pass_on();
                    }
                    match self.durable >= lsn {
                        true => self.returned(i),
                        false => self.threads[i].at = At::Look,
                    }
                }
                At::Asleep => match self.threads[i].gate.pass() {
                    Some(Woken::Done) if self.durable >= lsn => self.returned(i),
                    _ => self.threads[i].at = At::Look,
                },
                At::Done => {}
            }
        }
    }

    /// Every order in which the threads' steps can follow each other ends with everybody served.
    fn every_schedule(n_threads: usize, batches: u64, opens: fn(u64) -> bool) -> u64 {
        let (mut schedule, mut n_schedules) = (Vec::<usize>::new(), 0);
        loop {
            let mut threads = Threads::new(n_threads, batches, opens);
            schedule.iter().for_each(|&i| threads.step(i));
            while let Some(i) = (0..n_threads).find(|&i| threads.may_run(i)) {
                schedule.push(i);
                threads.step(i);
                assert!(threads.pipeline.in_flight() <= 2);
            }
            let stuck = threads.threads.iter().any(|thread| thread.at != At::Done);
            assert!(!stuck, "somebody sleeps for ever after {schedule:?}");
            n_schedules += 1;
            // The next schedule: the last choice that had another thread behind it.
            loop {
                let Some(last) = schedule.pop() else { return n_schedules };
                let mut threads = Threads::new(n_threads, batches, opens);
                schedule.iter().for_each(|&i| threads.step(i));
                if let Some(i) = (last + 1..n_threads).find(|&i| threads.may_run(i)) {
                    schedule.push(i);
                    break;
                }
            }
        }
    }

    #[test]
    fn nobody_is_forgotten_in_any_order_of_steps() {
        for opens in [|_| false, |lsn| lsn == 2, |lsn| lsn == 3] as [fn(u64) -> bool; 3] {
            assert!(every_schedule(2, 2, opens) > 100);
            assert!(every_schedule(3, 1, opens) > 100);
        }
    }
}
