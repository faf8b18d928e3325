use std::sync::Arc;

use futures::{FutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tarn_cache::{ListedStore, ListingOptions};
use tarn_types::Clock;
use tarn_types::clock::ManualClock;

use crate::stores::*;

const HOUR_MS: i64 = 3_600_000;

/// The store's own times are the system's: the clock starts there, and is moved ahead to make what was written old.
fn world(options: ListingOptions) -> (Arc<TestStore>, Arc<ManualClock>, ListedStore) {
    world_of(TestStore::new(), options)
}

fn world_of(inner: Arc<TestStore>, options: ListingOptions) -> (Arc<TestStore>, Arc<ManualClock>, ListedStore) {
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let clock = Arc::new(ManualClock::new(now_ms));
    let store =
        ListedStore::new(Arc::clone(&inner) as Arc<dyn ObjectStore>, options, Arc::clone(&clock) as Arc<dyn Clock>);
    (inner, clock, store)
}

async fn list(store: &dyn ObjectStore, prefix: &str) -> Vec<String> {
    let prefix = Path::from(prefix);
    let mut found: Vec<String> =
        store.list(Some(&prefix)).map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
    found.sort();
    found
}

#[tokio::test]
async fn sealed_directories_are_listed_once_and_open_ones_each_time() {
    let options = ListingOptions { sealed_after_ms: 24 * HOUR_MS, ttl_ms: 100 * HOUR_MS, ..ListingOptions::default() };
    let (inner, clock, store) = world(options);
    for path in ["logs/dt=1/hr=1/a", "logs/dt=1/hr=2/b", "logs/dt=2/hr=1/c", "logs/top"] {
        inner.put_plain(path, vec![1]).await;
    }
    assert_eq!(list(&store, "logs").await.len(), 4);
    assert_eq!(store.stats().entries, 0, "too young");
    clock.advance_ms(25 * HOUR_MS);
    assert_eq!(list(&store, "logs").await.len(), 4);
    assert_eq!((store.stats().lists, store.stats().entries), (2, 2));
    inner.take_seen();
    assert_eq!(list(&store, "logs").await, list(inner.plain.as_ref(), "logs").await);
    assert_eq!((inner.take_seen().lists, store.stats().hits), (1, 2), "only what was asked for itself");

    // A new day comes, and a file into the root: seen at once.
    inner.put_plain("logs/dt=3/hr=1/d", vec![1]).await;
    inner.put_plain("logs/top2", vec![1]).await;
    assert_eq!(list(&store, "logs").await.len(), 6);
    assert_eq!(inner.take_seen().lists, 2);
    // A late one into a sealed day: when the listing is too old.
    inner.put_plain("logs/dt=1/hr=1/late", vec![1]).await;
    assert_eq!(list(&store, "logs").await.len(), 6);
    clock.advance_ms(101 * HOUR_MS);
    assert_eq!(list(&store, "logs").await.len(), 7);
    assert_eq!(store.stats().expired, 3);
    assert_eq!(store.clear(Some(&Path::from("logs"))), 3);
    assert_eq!((store.stats().entries, store.stats().bytes), (0, 0));
}

#[tokio::test]
async fn a_write_that_was_given_up_is_seen() {
    let options = ListingOptions { ttl_ms: 100 * HOUR_MS, ..ListingOptions::default() };
    let (inner, clock, store) = world_of(TestStore::gated(), options);
    inner.put_plain("logs/dt=1/a", vec![1]).await;
    clock.advance_ms(48 * HOUR_MS);
    assert_eq!(list(&store, "logs").await, ["logs/dt=1/a"]);
    assert!(store.put(&Path::from("logs/dt=1/b"), vec![2].into()).now_or_never().is_none());
    assert_eq!(list(&store, "logs").await, ["logs/dt=1/a", "logs/dt=1/b"]);
}

#[tokio::test]
async fn a_pattern_keeps_a_directory_open() {
    let options = ListingOptions { sealed_after_ms: 0, open: vec!["logs/dt=1".into()], ..ListingOptions::default() };
    let (inner, clock, store) = world(options);
    inner.put_plain("logs/dt=1/a", vec![1]).await;
    inner.put_plain("logs/dt=2/b", vec![1]).await;
    clock.advance_ms(HOUR_MS);
    list(&store, "logs").await;
    assert_eq!(store.stats().entries, 1);
    inner.put_plain("logs/dt=1/late", vec![1]).await;
    assert_eq!(list(&store, "logs").await.len(), 3);
    store.set_on(false);
    inner.put_plain("logs/dt=2/late", vec![1]).await;
    assert_eq!(list(&store, "logs").await.len(), 4);
}

#[tokio::test]
async fn memory_is_bounded_and_the_least_recently_listed_goes_first() {
    let options = ListingOptions { sealed_after_ms: 0, max_bytes: 1_000, ..ListingOptions::default() };
    let (inner, clock, store) = world(options);
    for i in 0..30 {
        inner.put_plain(&format!("logs/dt={i}/a"), vec![1]).await;
    }
    clock.advance_ms(HOUR_MS);
    for _ in 0..3 {
        assert_eq!(list(&store, "logs").await.len(), 30);
    }
    let stats = store.stats();
    assert!(stats.bytes <= 1_000 && stats.entries > 1 && stats.evicted > 0, "{stats:?}");
}

/// With all writes through the store, listings equal the plain store's whatever is kept and dropped.
#[tokio::test]
async fn listings_equal_the_stores() {
    for seed in 0..40 {
        let mut dice = StdRng::seed_from_u64(seed);
        let options = ListingOptions {
            sealed_after_ms: HOUR_MS,
            ttl_ms: [HOUR_MS, 1_000 * HOUR_MS][dice.random_range(0..2)],
            max_bytes: [0, 700, 1 << 20][dice.random_range(0..3)],
            open: if dice.random() { vec!["a/1*".into()] } else { vec![] },
        };
        let (inner, clock, store) = world(options);
        for _ in 0..300 {
            let dirs = ["a", "a/1", "a/12", "a/2", "a/2/x", "b", "a/2/y", "ab"];
            let path = Path::from(format!("{}/f{}", dirs[dice.random_range(0..8)], dice.random_range(0..3)));
            match dice.random_range(0..12) {
                0 => drop(store.put(&path, vec![1].into()).await),
                1 => drop(store.delete(&path).await),
                2 => drop(store.rename(&path, &Path::from("a/2/moved")).await),
                3 => clock.advance_ms(HOUR_MS / 2),
                4 => drop(store.clear(Some(&Path::from(dirs[dice.random_range(0..8)])))),
                5 => {
                    let mut upload = store.put_multipart(&path).await.unwrap();
                    list(&store, "a").await;
                    upload.put_part(vec![2].into()).await.unwrap();
                    upload.complete().await.unwrap();
                }
                _ => {
                    let prefix = ["", "a", "a/2", "b", "none"][dice.random_range(0..5)];
                    assert_eq!(
                        list(&store, prefix).await,
                        list(inner.plain.as_ref(), prefix).await,
                        "seed {seed}, {prefix}"
                    );
                }
            }
        }
    }
}
