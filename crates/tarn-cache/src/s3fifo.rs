//! What goes when there is no room? S3-FIFO over bytes: what is seen once passes through a tenth of the room, and the
//! rest is for what came back.
//!
//! ```text
//! new ──> small (10 %) ──hit twice or more──> main (90 %) ──not hit since──> gone
//!            └──else──> gone, remembered in ghost ──new again──> main
//! ```
//!
//! Source: Yang and others, "FIFO queues are all you need for cache eviction" (SOSP 2023). A scan of any length only
//! ever displaces what is in `small`, as long as its pages are asked for once.
//!
//! Invariant: `bytes()` is at most `max_bytes` whenever a call has returned. A key is in the map with the sequence
//! number of exactly one queue element; elements with another number are left over from removed entries, and are
//! dropped when they are met or outnumber the rest.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Hits beyond this are not counted: a long-forgotten favourite leaves after so many turns of `main`.
const MAX_HITS: u8 = 3;
/// Hits in `small` that bring an entry to `main`.
const HITS_TO_STAY: u8 = 2;
/// `small` has one part in so many of the room.
const SMALL_PART: u64 = 10;

/// Values by key, bounded by the sum of the weights that their owner gives them.
#[derive(Debug)]
pub(crate) struct S3Fifo<K, V> {
    max_bytes: u64,
    entries: HashMap<K, FifoEntry<V>>,
    small: FifoQueue<K>,
    main: FifoQueue<K>,
    /// Keys that left `small`, as many bytes as `main` may hold.
    ghost: FifoQueue<K>,
    ghosts: HashMap<K, (u64, u64)>,
    next_number: u64,
}

#[derive(Debug)]
struct FifoEntry<V> {
    value: V,
    bytes: u64,
    hits: u8,
    number: u64,
    in_main: bool,
}

#[derive(Debug)]
struct FifoQueue<K> {
    keys: VecDeque<(K, u64)>,
    bytes: u64,
}

impl<K> FifoQueue<K> {
    fn new() -> Self {
        FifoQueue { keys: VecDeque::new(), bytes: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> S3Fifo<K, V> {
    pub(crate) fn new(max_bytes: u64) -> Self {
        S3Fifo {
            max_bytes,
            entries: HashMap::new(),
            small: FifoQueue::new(),
            main: FifoQueue::new(),
            ghost: FifoQueue::new(),
            ghosts: HashMap::new(),
            next_number: 0,
        }
    }

    /// The value of `key`, which counts as a hit.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let entry = self.entries.get_mut(key)?;
        entry.hits = (entry.hits + 1).min(MAX_HITS);
        Some(&entry.value)
    }

    /// Whether an entry of `bytes` can be held at all.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.max_bytes
    }

    /// Whether an entry of `bytes` displaces nothing.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.bytes() + bytes <= self.max_bytes
    }

    /// Whether `key` was here not long ago, or was [remembered](S3Fifo::remember): it would go to `main`.
    pub(crate) fn is_ghost(&self, key: &K) -> bool {
        self.ghosts.contains_key(key)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    /// Puts `key` in, and what had to go into `evicted`. `false`: it is larger than the whole room, and nothing
    /// changed.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: u64, evicted: &mut Vec<(K, V)>) -> bool {
        if !self.fits(bytes) {
            return false;
        }
        self.remove(&key);
        self.make_room(bytes, evicted);
        let in_main = match self.ghosts.remove(&key) {
            Some((_, ghost_bytes)) => {
                self.ghost.bytes -= ghost_bytes;
                true
            }
            None => false,
        };
        self.push(key, value, bytes, in_main);
        true
    }

    /// Puts `key` among what stays, as long as there is room: what was kept by an earlier process. `false`: there is
    /// none.
    pub(crate) fn insert_kept(&mut self, key: K, value: V, bytes: u64) -> bool {
        let fits = self.has_room(bytes);
        if fits {
            self.remove(&key);
            self.push(key, value, bytes, true);
        }
        fits
    }

    /// Takes entries out until `bytes` more fit, or none is left.
    pub(crate) fn make_room(&mut self, bytes: u64, evicted: &mut Vec<(K, V)>) {
        self.shrink_to(self.max_bytes.saturating_sub(bytes), evicted);
    }

    /// Takes entries out until there are `most` bytes, or none is left.
    pub(crate) fn shrink_to(&mut self, most: u64, evicted: &mut Vec<(K, V)>) {
        while self.bytes() > most && !self.entries.is_empty() {
            let from_small = self.small.bytes > self.max_bytes / SMALL_PART || self.main.bytes == 0;
            let gone = if from_small { self.evict_small() } else { self.evict_main() };
            evicted.extend(gone);
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        let queue = if entry.in_main { &mut self.main } else { &mut self.small };
        queue.bytes -= entry.bytes;
        let live = self.entries.len();
        for queue in [&mut self.small, &mut self.main] {
            if queue.keys.len() > 2 * live + 64 {
                queue.keys.retain(|(key, number)| self.entries.get(key).is_some_and(|e| e.number == *number));
            }
        }
        Some(entry.value)
    }

    fn push(&mut self, key: K, value: V, bytes: u64, in_main: bool) {
        let number = self.number();
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.keys.push_back((key, number));
        queue.bytes += bytes;
        self.entries.insert(key, FifoEntry { value, bytes, hits: 0, number, in_main });
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// The oldest of `small` moves to `main` or leaves. `None`: it moved, or the queue element was a left-over.
    fn evict_small(&mut self) -> Option<(K, V)> {
        let (key, number) = self.small.keys.pop_front()?;
        let entry = self.entries.get_mut(&key).filter(|e| e.number == number)?;
        self.small.bytes -= entry.bytes;
        if entry.hits >= HITS_TO_STAY {
            entry.hits = 0;
            entry.in_main = true;
            self.main.bytes += entry.bytes;
            self.main.keys.push_back((key, number));
            return None;
        }
        let entry = self.entries.remove(&key)?;
        self.remember(key, entry.bytes);
        Some((key, entry.value))
    }

    /// The oldest of `main` goes round again or leaves.
    fn evict_main(&mut self) -> Option<(K, V)> {
        let (key, number) = self.main.keys.pop_front()?;
        let entry = self.entries.get_mut(&key).filter(|e| e.number == number)?;
        if entry.hits > 0 {
            entry.hits -= 1;
            self.main.keys.push_back((key, number));
            return None;
        }
        self.main.bytes -= entry.bytes;
        self.entries.remove(&key).map(|entry| (key, entry.value))
    }

    /// Notes that `key` was asked for, as if it had been in and left.
    pub(crate) fn remember(&mut self, key: K, bytes: u64) {
        let number = self.number();
        if let Some((_, old)) = self.ghosts.insert(key, (number, bytes)) {
            self.ghost.bytes -= old;
        }
        self.ghost.bytes += bytes;
        self.ghost.keys.push_back((key, number));
        let max = self.max_bytes - self.max_bytes / SMALL_PART;
        while self.ghost.bytes > max || self.ghost.keys.len() > 2 * self.ghosts.len() + 64 {
            let Some((key, number)) = self.ghost.keys.pop_front() else { break };
            if self.ghosts.get(&key).is_some_and(|(n, _)| *n == number)
                && let Some((_, bytes)) = self.ghosts.remove(&key)
            {
                self.ghost.bytes -= bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(cache: &mut S3Fifo<u32, u32>, key: u32) -> Vec<(u32, u32)> {
        let mut evicted = vec![];
        cache.insert(key, key, 10, &mut evicted);
        evicted
    }

    #[test]
    fn a_scan_of_ten_times_the_room_leaves_what_is_hot() {
        let mut cache = S3Fifo::new(1_000);
        (0..50).for_each(|key| drop(put(&mut cache, key)));
        for round in 0..1_000 {
            if round % 20 == 0 {
                (0..50).for_each(|key| assert!(cache.get(&key).is_some()));
            }
            put(&mut cache, 1_000 + round);
        }
        assert_eq!((0..50).filter(|key| cache.contains(key)).count(), 50);
    }

    /// Hot, then left alone while ten times the room passes by: seen twice is enough to be in `main`, which a scan does
    /// not touch.
    #[test]
    fn what_was_hot_survives_a_scan_during_which_nobody_asks_for_it() {
        let mut cache = S3Fifo::new(1_000);
        for _ in 0..3 {
            for key in 0..50 {
                if cache.get(&key).is_none() {
                    put(&mut cache, key);
                }
            }
        }
        (1_000..2_000).for_each(|key| drop(put(&mut cache, key)));
        assert_eq!((0..50).filter(|key| cache.contains(key)).count(), 50);
    }

    #[test]
    fn what_comes_back_soon_after_it_left_stays() {
        let mut cache = S3Fifo::new(1_000);
        (0..150).for_each(|key| drop(put(&mut cache, key)));
        assert!(!cache.contains(&40));
        put(&mut cache, 40); // its ghost is remembered
        (1_000..2_000).for_each(|key| drop(put(&mut cache, key)));
        assert!(cache.contains(&40));
    }

    #[test]
    fn what_was_only_noted_is_as_if_it_had_been_in() {
        let mut cache = S3Fifo::new(1_000);
        (0..100).for_each(|key| drop(put(&mut cache, key)));
        assert!(!cache.has_room(10) && !cache.is_ghost(&500));
        cache.remember(500, 10);
        assert!(cache.is_ghost(&500) && !cache.contains(&500) && cache.len() == 100);
        put(&mut cache, 500);
        assert!(!cache.is_ghost(&500));
        (1_000..2_000).for_each(|key| drop(put(&mut cache, key)));
        assert!(cache.contains(&500));
        (0..100_000).for_each(|key| cache.remember(5_000 + key, 10));
        assert!(cache.ghosts.len() <= 90);
    }

    #[test]
    fn what_is_larger_than_the_room_is_refused() {
        let mut cache = S3Fifo::new(100);
        put(&mut cache, 1);
        let mut evicted = vec![];
        assert!(!cache.insert(2, 2, 101, &mut evicted));
        assert!(evicted.is_empty() && cache.contains(&1));
        assert!(!S3Fifo::new(0).insert(1, 1, 1, &mut vec![]));
    }

    proptest! {
        /// Against a plain map: an entry is there unless it was removed or handed back as evicted, and the room is
        /// never exceeded.
        #[test]
        fn nothing_is_lost_and_nothing_is_too_much(steps in proptest::collection::vec((0u8..4, 0u32..40, 1u64..60), 1..400)) {
            let mut cache = S3Fifo::new(200);
            let mut model = HashMap::new();
            for (step, key, bytes) in steps {
                match step {
                    0 => prop_assert_eq!(cache.remove(&key).is_some(), model.remove(&key).is_some()),
                    1 => prop_assert_eq!(cache.get(&key), model.get(&key).map(|(value, _)| value)),
                    _ => {
                        let mut evicted = vec![];
                        prop_assert!(cache.insert(key, key + 1, bytes, &mut evicted));
                        for (key, value) in evicted {
                            prop_assert_eq!(model.remove(&key).map(|(value, _)| value), Some(value));
                        }
                        model.insert(key, (key + 1, bytes));
                    }
                }
                prop_assert_eq!(cache.len(), model.len());
                prop_assert_eq!(cache.bytes(), model.values().map(|(_, bytes)| bytes).sum::<u64>());
                prop_assert!(cache.bytes() <= 200);
                prop_assert!(cache.small.keys.len() <= 2 * cache.len() + 66 && cache.main.keys.len() <= 2 * cache.len() + 66);
            }
        }
    }
}
