use std::sync::Arc;

use bytes::Bytes;
use tarn_cache::{FragmentCache, FragmentKey, FragmentOptions, FragmentStats, Ttl};
use tarn_types::ManualClock;

use crate::stores::bytes;

fn key(scope: &str, n: u64) -> FragmentKey {
    FragmentKey { scope: scope.into(), bytes: n.to_le_bytes().to_vec().into() }
}

fn value(n: u64, len: usize) -> Bytes {
    bytes(n, len).into()
}

#[tokio::test]
async fn what_was_put_comes_back_under_its_key_alone() {
    let cache = FragmentCache::open(FragmentOptions::default()).unwrap();
    assert_eq!(cache.get(&key("t", 1)).await, None);
    cache.put(key("t", 1), value(1, 100));
    cache.put(key("t", 1), value(1, 100));
    assert_eq!(cache.get(&key("t", 1)).await, Some(value(1, 100)));
    assert_eq!(cache.get(&key("u", 1)).await, None);
    assert_eq!(cache.get(&key("t", 2)).await, None);
    let expected = FragmentStats { kept: 1, ram_hits: 1, ram_bytes: 100, misses: 3, ..FragmentStats::default() };
    assert_eq!(cache.stats(), expected);
}

#[tokio::test]
async fn memory_is_bounded_and_what_is_hot_stays() {
    let cache = FragmentCache::open(FragmentOptions { ram_bytes: 100_000, ..FragmentOptions::default() }).unwrap();
    for _ in 0..3 {
        for n in 0..20 {
            match cache.get(&key("hot", n)).await {
                None => cache.put(key("hot", n), value(n, 1_000)),
                Some(kept) => assert_eq!(kept, value(n, 1_000)),
            }
        }
    }
    for n in 0..1_000 {
        cache.put(key("scan", n), value(n, 1_000));
        assert!(cache.held().ram_bytes <= 100_000);
    }
    for n in 0..20 {
        assert!(cache.get(&key("hot", n)).await.is_some(), "{n}");
    }
    let before = cache.held();
    cache.put(key("large", 1), value(1, 100_000));
    assert_eq!((cache.held(), cache.get(&key("large", 1)).await), (before, None));
    assert_eq!(cache.stats().ram_evicted, 1_020 - cache.held().ram_fragments);
}

#[tokio::test]
async fn what_is_refused_is_remembered_up_to_a_bound() {
    let cache = FragmentCache::open(FragmentOptions::default()).unwrap();
    assert!(!cache.is_refused(&key("t", 1)));
    cache.refuse(&key("t", 1));
    cache.refuse(&key("u", 1));
    assert!(cache.is_refused(&key("t", 1)) && !cache.is_refused(&key("t", 2)));
    cache.clear(Some("t"));
    assert!(!cache.is_refused(&key("t", 1)) && cache.is_refused(&key("u", 1)));
    (0..100_000).for_each(|n| cache.refuse(&key("v", n)));
    assert!(cache.is_refused(&key("v", 99_999)));
    assert!(cache.held().refused_keys <= 16_384);
    assert_eq!(cache.stats().refused, 100_002);
}

#[tokio::test]
async fn clearing_drops_a_scope_and_nothing_else() {
    let cache = FragmentCache::open(FragmentOptions::default()).unwrap();
    for scope in ["t", "tt"] {
        (0..3).for_each(|n| cache.put(key(scope, n), value(n, 10)));
    }
    assert_eq!(cache.clear(Some("t")).ram_fragments, 3);
    assert_eq!(cache.get(&key("t", 1)).await, None);
    assert!(cache.get(&key("tt", 1)).await.is_some());
    assert_eq!(cache.clear(None).ram_fragments, 3);
    assert_eq!((cache.held().ram_fragments, cache.held().ram_bytes), (0, 0));
}

#[tokio::test]
async fn off_it_gives_and_takes_nothing_and_what_it_holds_stays() {
    let cache = FragmentCache::open(FragmentOptions::default()).unwrap();
    cache.put(key("t", 1), value(1, 10));
    cache.set_on(false);
    cache.put(key("t", 2), value(2, 10));
    assert!(!cache.is_on() && cache.get(&key("t", 1)).await.is_none());
    cache.set_on(true);
    assert!(cache.get(&key("t", 1)).await.is_some() && cache.get(&key("t", 2)).await.is_none());
    assert_eq!((cache.stats().kept, cache.stats().misses), (1, 1));
}

#[tokio::test]
async fn what_is_too_old_is_a_miss_and_may_be_put_again() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let ttl = Ttl { ttl_ms: 1_000, clock: clock.clone() };
    let cache = FragmentCache::open(FragmentOptions { ttl: Some(ttl), ..FragmentOptions::default() }).unwrap();
    cache.put(key("t", 1), value(1, 10));
    clock.advance_ms(1_000);
    assert!(cache.get(&key("t", 1)).await.is_some());
    clock.advance_ms(1);
    assert!(cache.get(&key("t", 1)).await.is_none());
    cache.put(key("t", 1), value(1, 10));
    assert!(cache.get(&key("t", 1)).await.is_some());
    assert_eq!((cache.stats().expired, cache.stats().kept), (1, 2));
}
