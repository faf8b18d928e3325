//! Who may still take memory? Connections take some before any statement runs: messages that are not whole yet, rows
//! that a transaction holds back. Each is bounded by itself; a [`Budget`] bounds all of them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all together may take.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

/// What one of them has taken; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    taken: u64,
}

impl Budget {
    /// So many bytes, of which none are used.
    pub fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicU64::new(0) })
    }

    /// As it was made.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// A reservation of nothing yet.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { budget: Arc::clone(self), taken: 0 }
    }
}

impl Reservation {
    /// What it has.
    pub fn size_bytes(&self) -> u64 {
        self.taken
    }

    /// Takes or gives back until it has `bytes`. False: there is not so much left, and it has what it had.
    #[must_use]
    pub fn resize(&mut self, bytes: u64) -> bool {
        if bytes <= self.taken {
            self.budget.used.fetch_sub(self.taken - bytes, Ordering::Relaxed);
            self.taken = bytes;
            return true;
        }
        let more = bytes - self.taken;
        let fits = |used: u64| used.checked_add(more).filter(|used| *used <= self.budget.limit);
        let taken = self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            self.taken = bytes;
        }
        taken
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_stay_below_the_limit() {
        let budget = Budget::new(100);
        let (mut first, mut second) = (budget.reservation(), budget.reservation());
        assert!(first.resize(70));
        assert!(!second.resize(31));
        assert!(second.resize(30));
        assert!(first.resize(10));
        assert!(second.resize(90));
        drop(second);
        assert!(first.resize(100));
    }
}
