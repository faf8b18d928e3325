//! Is anybody forgotten at a gate, in any order in which threads' steps can follow each other, weak memory included?
//!
//! The real gate and the real pipeline, over loom's atomics and a futex made of loom's parts. The threads do what
//! `OpenLog::wait` and `OpenLog::write` do, over loom's lock.

#![allow(clippy::unwrap_used)]

mod sync {
    pub use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    /// As the kernel's: whether to sleep is decided under the lock that wakers take.
    #[derive(Debug)]
    pub struct Futex {
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Default for Futex {
        fn default() -> Futex {
            Futex { queue: Mutex::new(()), woken: Condvar::new() }
        }
    }

    impl Futex {
        pub fn wait(&self, word: &AtomicU32, expected: u32) {
            let queue = self.queue.lock().unwrap();
            if word.load(Ordering::SeqCst) == expected {
                drop(self.woken.wait(queue).unwrap());
            }
        }

        pub fn wake_one(&self, _word: &AtomicU32) {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }

        pub fn wake_all(&self, _word: &AtomicU32) {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_all();
        }
    }
}

#[allow(dead_code)]
#[path = "../src/gate.rs"]
mod gate;
#[allow(dead_code)]
#[path = "../src/pipeline.rs"]
mod pipeline;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

use gate::WakeReason;
use pipeline::Pipeline;

struct Lane {
    frames: Pipeline<u64>,
    next_lsn: u64,
}

struct Log {
    lane: Mutex<Lane>,
    durable: AtomicU64,
}

impl Log {
    fn new(window: usize) -> Log {
        let lane = Lane { frames: Pipeline::new(window, 0), next_lsn: 1 };
        Log { lane: Mutex::new(lane), durable: AtomicU64::new(0) }
    }

    fn is_durable(&self, lsn: u64) -> bool {
        self.durable.load(Ordering::Acquire) >= lsn
    }

    fn commit(&self) {
        let lsn = {
            let mut lane = self.lane.lock().unwrap();
            let lsn = lane.next_lsn;
            lane.next_lsn += 1;
            match lane.frames.newest() {
                Some((_, last)) => *last = lsn,
                None => lane.frames.push(lsn, lsn),
            }
            lsn
        };
        self.wait(lsn);
        assert!(self.is_durable(lsn));
    }

    fn wait(&self, lsn: u64) {
        let mut lane = self.lane.lock().unwrap();
        loop {
            if self.is_durable(lsn) {
                return pass_on(lane);
            }
            if lane.frames.next().is_some() {
                lane.frames.start().unwrap();
                let last = lane.frames.started_lsn();
                drop(lane);
                self.finish(last);
                if self.is_durable(lsn) {
                    return;
                }
                lane = self.lane.lock().unwrap();
                continue;
            }
            let Some(gate) = lane.frames.wait(lsn) else { panic!("lsn {lsn} is in no frame") };
            drop(lane);
            if gate.sleep() == WakeReason::Done && self.is_durable(lsn) {
                return;
            }
            lane = self.lane.lock().unwrap();
        }
    }

    /// The frame is on the device.
    fn finish(&self, last: u64) {
        let mut lane = self.lane.lock().unwrap();
        let told = lane.frames.finish(last).unwrap_or_default();
        if told.lsn > 0 {
            self.durable.store(told.lsn, Ordering::Release);
        }
        let next = pick(&mut lane);
        drop(lane);
        next.iter().for_each(|gate| gate.let_one_look());
        told.gates.iter().for_each(|gate| gate.open());
    }
}

fn pick(lane: &mut Lane) -> Option<std::sync::Arc<gate::Gate>> {
    lane.frames.next()?;
    lane.frames.pick_gate()
}

fn pass_on(mut lane: MutexGuard<'_, Lane>) {
    let next = pick(&mut lane);
    drop(lane);
    next.iter().for_each(|gate| gate.let_one_look());
}

/// loom finds a thread that sleeps for ever: it is a deadlock.
fn all_return(threads: usize, commits: usize, window: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let log = Arc::new(Log::new(window));
        let run = |log: Arc<Log>| move || (0..commits).for_each(|_| log.commit());
        let others: Vec<_> = (1..threads).map(|_| thread::spawn(run(Arc::clone(&log)))).collect();
        run(Arc::clone(&log))();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(log.is_durable((threads * commits) as u64));
    });
}

#[test]
fn two_threads_that_commit_twice_return() {
    all_return(2, 2, 2);
}

#[test]
fn three_threads_return() {
    all_return(3, 1, 2);
}

#[test]
fn three_threads_return_where_one_frame_is_written_at_a_time() {
    all_return(3, 1, 1);
}
