//! How does a thread sleep until its batch is durable, or until it should look for itself?
//!
//! Each thread has one parker, registered in at most one place: who takes it out of there wakes it, once.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};

const ASLEEP: u8 = 0;
const DONE: u8 = 1;
const LOOK: u8 = 2;

pub struct Parker {
    state: AtomicU8,
    thread: Thread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// What it waited for is decided.
    Done,
    /// A frame wants to be written: look under the lock.
    Look,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Parker>>> = const { RefCell::new(None) };
}

impl Parker {
    /// This thread's, ready to be registered.
    pub fn own() -> Arc<Parker> {
        let make = || Arc::new(Parker { state: AtomicU8::new(ASLEEP), thread: thread::current() });
        let parker = OWN.with(|own| Arc::clone(own.borrow_mut().get_or_insert_with(make)));
        parker.state.store(ASLEEP, Ordering::Relaxed);
        parker
    }

    /// For a test that plays several threads itself.
    #[cfg(test)]
    pub fn for_tests() -> Arc<Parker> {
        Arc::new(Parker { state: AtomicU8::new(ASLEEP), thread: thread::current() })
    }

    /// Why it was woken, if it was.
    #[cfg(test)]
    pub fn woken(&self) -> Option<Woken> {
        match self.state.load(Ordering::Acquire) {
            ASLEEP => None,
            DONE => Some(Woken::Done),
            _ => Some(Woken::Look),
        }
    }

    /// Returns when somebody called [`Parker::wake`].
    pub fn sleep(&self) -> Woken {
        loop {
            match self.state.load(Ordering::Acquire) {
                ASLEEP => thread::park(),
                DONE => return Woken::Done,
                _ => return Woken::Look,
            }
        }
    }

    pub fn wake(&self, why: Woken) {
        self.state.store(if why == Woken::Done { DONE } else { LOOK }, Ordering::Release);
        self.thread.unpark();
    }
}
