//! What time is it? A trait, so that a run with a seed can be replayed; the system's clock lives in the binary.

use std::sync::atomic::{AtomicI64, Ordering};

/// Where library code gets the time from.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC. May jump, also backwards.
    fn now_ms(&self) -> i64;

    /// Microseconds since some fixed moment. Never goes backwards; for durations only.
    fn monotonic_us(&self) -> u64;
}

/// A clock that stands still until it is moved: for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
    elapsed_us: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `now_ms` (milliseconds since 1970-01-01 UTC).
    #[must_use]
    pub fn new(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms), elapsed_us: AtomicI64::new(0) }
    }

    /// Moves both times forward.
    pub fn advance_ms(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
        self.elapsed_us.fetch_add(ms.max(0) * 1000, Ordering::SeqCst);
    }

    /// Sets the wall clock, also backwards; the monotonic time stays.
    pub fn set_ms(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic_us(&self) -> u64 {
        self.elapsed_us.load(Ordering::SeqCst).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_only_when_told() {
        let clock = ManualClock::new(1_000);
        assert_eq!((clock.now_ms(), clock.monotonic_us()), (1_000, 0));
        clock.advance_ms(5);
        assert_eq!((clock.now_ms(), clock.monotonic_us()), (1_005, 5_000));
        clock.set_ms(10);
        assert_eq!((clock.now_ms(), clock.monotonic_us()), (10, 5_000));
    }
}
