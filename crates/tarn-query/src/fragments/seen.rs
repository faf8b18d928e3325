//! Was this asked before? What all leaves of an engine share: the cache, and keys that were seen once.

use std::collections::HashSet;

use parking_lot::Mutex;
use tarn_cache::{FragmentCache, FragmentKey};
use xxhash_rust::xxh3::xxh3_64;

/// Keys of each of two generations: when the younger is full, the elder is forgotten.
const GENERATION: usize = 32 << 10;

/// The cache of fragments as plans use it.
#[derive(Debug)]
pub(crate) struct Fragments {
    /// Where values are kept, in memory and in a folder.
    pub cache: FragmentCache,
    seen: Mutex<RecentKeys>,
}

/// Hashes of keys: a wrong answer keeps a fragment too early, no more.
#[derive(Debug, Default)]
struct RecentKeys {
    younger: HashSet<u64>,
    elder: HashSet<u64>,
}

impl Fragments {
    pub(crate) fn new(cache: FragmentCache) -> Self {
        Fragments { cache, seen: Mutex::default() }
    }

    /// Whether the key was asked for before; from now on it was.
    pub(crate) fn was_seen(&self, key: &FragmentKey) -> bool {
        let hash = xxh3_64(&key.bytes);
        let mut seen = self.seen.lock();
        if seen.younger.contains(&hash) {
            return true;
        }
        let before = seen.elder.contains(&hash);
        if seen.younger.len() >= GENERATION {
            seen.elder = std::mem::take(&mut seen.younger);
        }
        seen.younger.insert(hash);
        before
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tarn_cache::FragmentOptions;

    use super::*;

    #[test]
    fn a_key_is_new_once_and_forgotten_after_many_others() {
        let fragments = Fragments::new(FragmentCache::open(FragmentOptions::default()).unwrap());
        let key = |n: u64| FragmentKey { scope: "1".into(), bytes: Bytes::copy_from_slice(&n.to_le_bytes()) };
        assert!(!fragments.was_seen(&key(0)));
        assert!(fragments.was_seen(&key(0)));
        for n in 1..=2 * GENERATION as u64 {
            assert!(!fragments.was_seen(&key(n)), "{n}");
        }
        assert!(!fragments.was_seen(&key(0)));
    }
}
