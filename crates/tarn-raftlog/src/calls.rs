//! In which order are callers told that their batches are durable?
//!
//! Calls run once each, strictly in LSN order, one after another, on the thread that made the last of them due.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pipeline::Call;

/// Calls that are due, in LSN order.
#[derive(Default)]
pub struct CallbackQueue {
    due: Mutex<DueCalls>,
}

#[derive(Default)]
struct DueCalls {
    calls: VecDeque<(u64, Call, Result<(), Arc<str>>)>,
    running: bool,
}

impl CallbackQueue {
    /// Adds calls; those of batches after `durable_lsn` fail, if the log is poisoned.
    pub fn queue(&self, mut calls: Vec<(u64, Call)>, poisoned: Option<Arc<str>>, durable_lsn: u64) {
        calls.sort_by_key(|(lsn, _)| *lsn);
        let mut due = self.due.lock();
        for (lsn, call) in calls {
            let result = match &poisoned {
                Some(cause) if lsn > durable_lsn => Err(Arc::clone(cause)),
                _ => Ok(()),
            };
            // A call for a batch that is long durable comes late, but not behind later batches.
            let at = due.calls.partition_point(|(before, ..)| *before <= lsn);
            due.calls.insert(at, (lsn, call, result));
        }
    }

    /// Runs what is due, unless another thread is at it: then that one runs it.
    pub fn run(&self) {
        struct RunningGuard<'a>(&'a CallbackQueue);
        impl Drop for RunningGuard<'_> {
            fn drop(&mut self) {
                self.0.due.lock().running = false;
            }
        }
        loop {
            {
                let mut due = self.due.lock();
                if due.running || due.calls.is_empty() {
                    return;
                }
                due.running = true;
            }
            // A call that panics must not silence those behind it for good.
            let running = RunningGuard(self);
            while let Some((_, call, result)) = { self.due.lock().calls.pop_front() } {
                call(result);
            }
            drop(running);
        }
    }
}
