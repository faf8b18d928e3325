//! What do the gate's threads meet at?
//!
//! The system's atomics and futex. A test puts others in their place (`tests/loom.rs`), and has every order of their
//! steps tried.

pub use std::sync::atomic::{AtomicU32, Ordering};

/// Sleeping until a word changes.
#[derive(Debug, Default)]
pub struct Futex;

impl Futex {
    /// Returns when woken, or at once unless `word` is still `expected`; also for no reason.
    pub fn wait(&self, word: &AtomicU32, expected: u32) {
        atomic_wait::wait(word, expected);
    }

    /// Wakes one thread that waits for the word, whichever.
    pub fn wake_one(&self, word: &AtomicU32) {
        atomic_wait::wake_one(word);
    }

    /// Wakes all threads that wait for the word.
    pub fn wake_all(&self, word: &AtomicU32) {
        atomic_wait::wake_all(word);
    }
}
