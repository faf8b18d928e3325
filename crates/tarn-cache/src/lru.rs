//! What was used least recently, when the bytes run out?

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key, each with the bytes that it takes. Together they take no more than `max_bytes`.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    max_bytes: usize,
    by_key: HashMap<K, LruEntry<V>>,
    /// Invariant: exactly one key per entry, under the entry's `used`.
    by_use: BTreeMap<u64, K>,
    bytes: usize,
    clock: u64,
    evicted: u64,
}

#[derive(Debug)]
struct LruEntry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    /// Nothing is kept yet; `max_bytes` is what its values may take, as whoever puts them in counts them.
    pub fn new(max_bytes: usize) -> Self {
        Lru { max_bytes, by_key: HashMap::new(), by_use: BTreeMap::new(), bytes: 0, clock: 0, evicted: 0 }
    }

    /// Counts as a use.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        let entry = self.by_key.get_mut(key)?;
        let key = self.by_use.remove(&entry.used)?;
        self.clock += 1;
        entry.used = self.clock;
        self.by_use.insert(entry.used, key);
        Some(&entry.value)
    }

    /// In place of what was there. A value that alone takes more than there is room for is not kept.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        if bytes > self.max_bytes {
            return;
        }
        while self.bytes + bytes > self.max_bytes {
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            let oldest = oldest.clone();
            self.remove(&oldest);
            self.evicted += 1;
        }
        self.clock += 1;
        self.bytes += bytes;
        self.by_use.insert(self.clock, key.clone());
        self.by_key.insert(key, LruEntry { value, bytes, used: self.clock });
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.by_key.remove(key) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    /// Takes out every key that `keep` does not want; how many.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) -> u64 {
        let gone: Vec<K> = self.by_key.keys().filter(|key| !keep(key)).cloned().collect();
        gone.iter().for_each(|key| self.remove(key));
        gone.len() as u64
    }

    /// How many left to make room.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// What all values together may take.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Values that are kept.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// What they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
