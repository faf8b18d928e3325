//! How much memory do the recent rows of all tables take? A sum that is kept: a write need not ask every table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that recent rows take, their index included, of all tables that were opened with it, until they are
/// freed.
#[derive(Debug, Default)]
pub struct RecentBytes(AtomicU64);

impl RecentBytes {
    /// The sum, now. Cost: one load.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one tablet has of it; nothing any more when it is dropped.
pub(crate) struct Reservation {
    total: Arc<RecentBytes>,
    bytes: u64,
}

impl Reservation {
    /// Nothing yet.
    pub(crate) fn of(total: &Arc<RecentBytes>) -> Self {
        Self { total: Arc::clone(total), bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It is so much from now on.
    pub(crate) fn set(&mut self, bytes: u64) {
        // A sum of differences wraps as it should.
        self.total.0.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_reservations_that_are_there() {
        let total = Arc::<RecentBytes>::default();
        let (mut a, mut b) = (Reservation::of(&total), Reservation::of(&total));
        a.set(10);
        b.set(5);
        a.set(3);
        assert_eq!((total.get(), a.bytes()), (8, 3));
        drop(a);
        assert_eq!(total.get(), 5);
    }
}
