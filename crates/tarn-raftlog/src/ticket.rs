//! How does a caller learn that its batch is durable: by waiting, by a call, or as a future?
//!
//! Calls and wakers run on the thread that made the last of them due (`calls.rs`): they must be short, may submit, and
//! must not wait for the log.
//!
//! **Who drives.** Threads that wait write frames. A call or a future writes nothing: somebody must wait, or call
//! [`crate::RaftLog::sync`], or a thread of the host's must be in [`Committer::run`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::commit::pass_on;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::open_log::OpenLog;
use crate::pipeline::Call;

/// The promise of a submitted batch. Dropping it is allowed: the batch becomes durable with any later one.
///
/// Wait for it ([`Ticket::wait`]), leave a call ([`Ticket::on_durable`]) or `.await` it.
#[must_use = "a batch is durable only when its ticket has been waited for"]
pub struct Ticket {
    shared: Arc<OpenLog>,
    lsn: u64,
    lazy: bool,
    polled: Option<Arc<Mutex<TicketState>>>,
}

#[derive(Default)]
struct TicketState {
    result: Option<Result<(), Arc<str>>>,
    waker: Option<Waker>,
}

impl Ticket {
    pub(crate) fn new(shared: Arc<OpenLog>, lsn: u64, lazy: bool) -> Ticket {
        Ticket { shared, lsn, lazy, polled: None }
    }

    /// Returns when the batch, and every one submitted before it, is durable. May write and flush for others too.
    /// Returns at once for a batch that was submitted as [`crate::Durability::Lazy`].
    ///
    /// # Errors
    /// [`Error::Undecided`] when a write failed: the batch may be there after a restart.
    pub fn wait(&self) -> Result<()> {
        if self.lazy { Ok(()) } else { self.shared.wait(self.lsn) }
    }

    /// Whether the batch is durable (a lazy one may not be though its `wait` returns).
    pub fn is_durable(&self) -> bool {
        self.shared.is_durable(self.lsn)
    }

    /// Calls `f` when the batch is durable, or can no longer become so ([`Error::Undecided`]): exactly once, after the
    /// calls of all batches before it. At once, on this thread, if it already is and no earlier call is under way. If
    /// the log is dropped first, neither closed nor served by a [`Committer`], `f` is dropped uncalled.
    pub fn on_durable(self, f: impl FnOnce(Result<()>) + Send + 'static) {
        let call: Call = Box::new(move |result| f(result.map_err(|cause| Error::Undecided { cause })));
        self.shared.call(self.lsn, call);
    }
}

/// Ready when [`Ticket::on_durable`] would call. Needs no runtime.
impl Future for Ticket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.lazy || self.is_durable() {
            return Poll::Ready(Ok(()));
        }
        let waker = context.waker().clone();
        if let Some(polled) = &self.polled {
            let mut polled = polled.lock();
            if let Some(result) = polled.result.clone() {
                return Poll::Ready(result.map_err(|cause| Error::Undecided { cause }));
            }
            polled.waker = Some(waker);
            return Poll::Pending;
        }
        let polled = Arc::new(Mutex::new(TicketState { result: None, waker: Some(waker) }));
        self.polled = Some(Arc::clone(&polled));
        let call: Call = Box::new(move |result| {
            let waker = {
                let mut polled = polled.lock();
                polled.result = Some(result);
                polled.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        });
        self.shared.call(self.lsn, call);
        // The call may have run already.
        self.poll_again()
    }
}

impl Ticket {
    fn poll_again(&self) -> Poll<Result<()>> {
        let result = self.polled.as_ref().and_then(|polled| polled.lock().result.clone());
        match result {
            Some(result) => Poll::Ready(result.map_err(|cause| Error::Undecided { cause })),
            None => Poll::Pending,
        }
    }
}

impl OpenLog {
    fn call(&self, lsn: u64, call: Call) {
        let mut lane = self.lane.lock();
        let call = if lane.poisoned.is_some() && !self.is_durable(lsn) {
            call
        } else {
            match lane.frames.leave(lsn, call) {
                Ok(()) => {
                    pass_on(lane);
                    return;
                }
                Err(call) => call,
            }
        };
        let durable = self.durable_lsn.load(std::sync::atomic::Ordering::Acquire);
        self.calls.queue(vec![(lsn, call)], lane.poisoned.clone(), durable);
        drop(lane);
        self.calls.run();
    }
}

/// A host's thread at the log's service: see [`crate::RaftLog::committer`].
pub struct Committer {
    shared: Arc<OpenLog>,
}

impl Committer {
    pub(crate) fn new(shared: Arc<OpenLog>) -> Committer {
        Committer { shared }
    }

    /// Writes frames for which calls or futures wait, and keeps empty segments ready. Returns when the log is closed
    /// or its handle dropped (after writing what is wanted), or poisoned; the log's lock is held until then.
    pub fn run(self) {
        let shared = &*self.shared;
        loop {
            let turn = shared.turn();
            let mut lane = shared.lane.lock();
            if lane.poisoned.is_some() {
                return;
            }
            if lane.frames.wants_call()
                && let Some(work) = lane.take()
            {
                drop(lane);
                shared.write(work);
                continue;
            }
            drop(turn);
            if lane.closed && !lane.frames.wants_call() {
                return;
            }
            if lane.free.is_empty() && !lane.closed {
                drop(lane);
                // Where this fails, the batch that needs the segment will say so.
                if shared.prepare().is_ok() {
                    continue;
                }
                lane = shared.lane.lock();
                if lane.closed || (lane.frames.wants_call() && lane.has_work()) || lane.poisoned.is_some() {
                    continue;
                }
            }
            let gate = Arc::new(Gate::default());
            lane.committer = Some(Arc::clone(&gate));
            drop(lane);
            gate.sleep();
        }
    }
}
