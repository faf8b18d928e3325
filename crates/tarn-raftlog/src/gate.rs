//! How do all who wait for one frame sleep, and wake by one call?
//!
//! A frame has one gate. Whoever ends the frame opens it: one system call wakes everybody, so the caller is not put off
//! by the first of them before it has woken the last. Until then a gate lets single threads through, by *tokens*: one
//! sleeper, whichever, wakes to look whether a frame wants to be written.

use crate::sync::{AtomicU32, Futex, Ordering};

/// Tokens not yet taken, or [`OPEN`].
#[derive(Debug, Default)]
pub struct Gate {
    word: AtomicU32,
    futex: Futex,
}

const OPEN: u32 = u32::MAX;

/// Why a sleeper woke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeReason {
    /// What it waited for is decided.
    Done,
    /// A frame wants to be written: look under the lock.
    Look,
}

impl Gate {
    /// Returns when the gate is open, or with a token.
    pub fn sleep(&self) -> WakeReason {
        loop {
            if let Some(woken) = self.pass() {
                return woken;
            }
            self.futex.wait(&self.word, 0);
        }
    }

    /// Goes through, if that is possible now.
    pub fn pass(&self) -> Option<WakeReason> {
        let take = |word| (word != 0).then(|| if word == OPEN { OPEN } else { word - 1 });
        let word = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(if word == OPEN { WakeReason::Done } else { WakeReason::Look })
    }

    /// Lets one through.
    pub fn let_one_look(&self) {
        let add = |word| (word != OPEN).then(|| word + 1);
        if self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok() {
            self.futex.wake_one(&self.word);
        }
    }

    /// Lets all through, for good.
    pub fn open(&self) {
        self.word.store(OPEN, Ordering::Release);
        self.futex.wake_all(&self.word);
    }

    /// Whether [`Gate::pass`] would go through.
    #[cfg(test)]
    pub fn passes(&self) -> bool {
        self.word.load(Ordering::Acquire) != 0
    }
}
