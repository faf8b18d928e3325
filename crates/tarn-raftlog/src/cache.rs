//! Which payloads need no disk?
//!
//! The newest payloads, as the caller handed them in: what is not yet durable is always here (it may be nowhere
//! else), what is durable leaves oldest first when the budget is exceeded.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

/// (segment, offset in its file).
type Place = (u64, u64);

#[derive(Debug)]
pub struct TailCache {
    budget_bytes: u64,
    bytes: u64,
    pieces: BTreeMap<Place, Bytes>,
    /// In order of arrival: place and the lsn that makes it durable.
    order: VecDeque<(Place, u64)>,
}

impl TailCache {
    pub fn new(budget_bytes: u64) -> TailCache {
        TailCache { budget_bytes, bytes: 0, pieces: BTreeMap::new(), order: VecDeque::new() }
    }

    pub fn insert(&mut self, segment: u64, offset: u64, piece: Bytes, lsn: u64) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len() as u64;
        self.order.push_back(((segment, offset), lsn));
        self.pieces.insert((segment, offset), piece);
    }

    /// Shrinks to the budget, keeping what is not durable.
    pub fn evict(&mut self, durable_lsn: u64) {
        while self.bytes > self.budget_bytes {
            match self.order.front() {
                Some(&(place, lsn)) if lsn <= durable_lsn => {
                    self.order.pop_front();
                    self.bytes -= self.pieces.remove(&place).map_or(0, |piece| piece.len() as u64);
                }
                _ => return,
            }
        }
    }

    pub fn get(&self, segment: u64, offset: u64, len: usize) -> Option<Bytes> {
        if len == 0 {
            return Some(Bytes::new());
        }
        let (&(at_segment, at), piece) = self.pieces.range(..=(segment, offset)).next_back()?;
        let start = usize::try_from(offset - at.min(offset)).ok()?;
        let end = start.checked_add(len)?;
        (at_segment == segment && end <= piece.len()).then(|| piece.slice(start..end))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_not_durable_and_evicts_the_oldest_first() {
        let mut cache = TailCache::new(10);
        cache.insert(1, 100, Bytes::from_static(b"0123456789"), 1);
        cache.insert(1, 110, Bytes::from_static(b"abcdefghij"), 2);
        cache.insert(2, 50, Bytes::from_static(b"xyz"), 3);
        cache.evict(0);
        assert_eq!(cache.bytes(), 23);
        assert_eq!(cache.get(1, 102, 3), Some(Bytes::from_static(b"234")));
        assert_eq!(cache.get(1, 108, 3), None);
        cache.evict(1);
        assert_eq!(cache.get(1, 102, 3), None);
        assert_eq!(cache.get(1, 115, 5), Some(Bytes::from_static(b"fghij")));
        cache.evict(3);
        assert_eq!(cache.get(1, 115, 5), None);
        assert_eq!(cache.get(2, 50, 3), Some(Bytes::from_static(b"xyz")));
        assert_eq!(cache.get(2, 49, 1), None);
    }
}
