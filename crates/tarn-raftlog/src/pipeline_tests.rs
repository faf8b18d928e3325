//! Is everybody who waits for a frame told, in order, once, whatever the order of steps? (`tests/loom.rs` asks the same
//! of real threads.)

use proptest::prelude::*;

use std::sync::Arc;

use crate::gate::{Gate, WakeReason};
use crate::pipeline::Pipeline;

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
                        let last = pipeline.started_lsn();
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
                    if let Some(completion) = pipeline.finish(last) {
                        prop_assert!(completion.lsn > acknowledged);
                        acknowledged = completion.lsn;
                        for (lsn, _) in completion.calls {
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

/// The steps of `OpenLog::wait` and `OpenLog::write` as they follow each other under the lane's lock, for a few threads
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
    at: ThreadState,
    lsn: u64,
    left: u64,
    gate: Arc<Gate>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadState {
    Submit,
    Look,
    Write(u64),
    Asleep,
    Done,
}

impl Threads {
    fn new(n_threads: usize, batches: u64, opens: fn(u64) -> bool) -> Threads {
        let thread = |_| Thread { at: ThreadState::Submit, lsn: 0, left: batches, gate: Arc::default() };
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
            ThreadState::Asleep => self.threads[i].gate.passes(),
            at => at != ThreadState::Done,
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
        thread.at = if thread.left == 0 { ThreadState::Done } else { ThreadState::Submit };
    }

    fn step(&mut self, i: usize) {
        let lsn = self.threads[i].lsn;
        match self.threads[i].at {
            ThreadState::Submit => {
                let lsn = self.next_lsn;
                self.next_lsn += 1;
                match self.pipeline.newest() {
                    Some((_, last)) if !(self.opens)(lsn) => *last = lsn,
                    _ => self.pipeline.push(lsn, lsn),
                }
                (self.threads[i].lsn, self.threads[i].at) = (lsn, ThreadState::Look);
            }
            ThreadState::Look if self.durable >= lsn => {
                self.pass_on();
                self.returned(i);
            }
            ThreadState::Look => {
                if self.has_work() {
                    self.pipeline.start().expect("there is work");
                    let last = self.pipeline.started_lsn();
                    self.threads[i].at = ThreadState::Write(last);
                    return;
                }
                self.threads[i].gate = self.pipeline.wait(lsn).expect("it is not durable");
                self.threads[i].at = ThreadState::Asleep;
            }
            ThreadState::Write(last) => {
                if let Some(completion) = self.pipeline.finish(last) {
                    assert!(completion.lsn > self.durable);
                    self.durable = completion.lsn;
                    self.pass_on();
                    completion.gates.iter().for_each(|gate| gate.open());
                } else {
                    self.pass_on();
                }
                match self.durable >= lsn {
                    true => self.returned(i),
                    false => self.threads[i].at = ThreadState::Look,
                }
            }
            ThreadState::Asleep => match self.threads[i].gate.pass() {
                Some(WakeReason::Done) if self.durable >= lsn => self.returned(i),
                _ => self.threads[i].at = ThreadState::Look,
            },
            ThreadState::Done => {}
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
        let stuck = threads.threads.iter().any(|thread| thread.at != ThreadState::Done);
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
