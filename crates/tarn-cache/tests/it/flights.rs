use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::poll;
use object_store::path::Path;
use object_store::*;
use tarn_cache::Trust;

use crate::stores::*;

/// The figure of the issue: whatever the order in which they run, each page is fetched once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_readers_on_eight_objects_fetch_each_page_once() {
    let folder = tempfile::tempdir().unwrap();
    for options in [options(), on_disk(folder.path())] {
        let inner = TestStore::new();
        let names: Vec<Path> = (0..8).map(|i| Path::from(format!("object{i}"))).collect();
        for (i, name) in names.iter().enumerate() {
            inner.put_plain(name.as_ref(), bytes(i as u64, 5_000)).await;
        }
        let store = Arc::new(cached(&inner, options, Trust::WrittenOnce));
        let readers = (0..64usize).map(|reader| {
            let (store, names) = (Arc::clone(&store), names.clone());
            tokio::spawn(async move {
                for i in 0..8 {
                    let object = (reader + i) % 8;
                    let start = (reader * 31) as u64;
                    let ranges = [start..start + 700, 4_000..5_000, 0..5_000];
                    let got = store.get_ranges(&names[object], &ranges).await.unwrap();
                    let expected = bytes(object as u64, 5_000);
                    assert_eq!(got[2], expected);
                    assert_eq!(got[0], expected[start as usize..start as usize + 700]);
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await.unwrap();
        }
        assert_eq!(inner.seen.lock().bytes(), 8 * 5_000);
        let stats = store.cache().stats();
        assert_eq!(stats.misses, 8 * 5_000u64.div_ceil(PAGE));
        assert_eq!((stats.damaged, stats.dropped), (0, 0));
    }
}

#[tokio::test]
async fn a_cancelled_reader_leaves_those_who_wait_with_it_their_pages() {
    let inner = TestStore::gated();
    let content = bytes(1, 300);
    inner.put_plain("a", content.clone()).await;
    let store = cached(&inner, options(), Trust::WrittenOnce);
    let path = Path::from("a");
    let (one, two) = ([0..300], [100..300]);
    let mut leader = Box::pin(store.get_ranges(&path, &one));
    assert!(poll!(&mut leader).is_pending());
    let mut follower = Box::pin(store.get_ranges(&path, &two));
    assert!(poll!(&mut follower).is_pending());
    drop(leader);
    inner.open();
    assert_eq!(follower.await.unwrap()[0], content[100..]);
    assert_eq!(inner.take_seen().n_gets(), 1);
    assert_eq!((store.cache().stats().misses, store.cache().stats().waited), (5, 4));
    assert_eq!(store.cache().held().ram_pages, 5, "and what the leader asked for beyond");
}

#[tokio::test]
async fn a_read_that_everybody_left_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let inner = TestStore::gated();
    let content = bytes(1, 300);
    inner.put_plain("a", content.clone()).await;
    let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    let path = Path::from("a");
    let all = [0..300];
    let mut only = Box::pin(store.get_ranges(&path, &all));
    assert!(poll!(&mut only).is_pending());
    drop(only);
    store.cache().write_waiting();
    let held = store.cache().held();
    assert_eq!((held.ram_pages, held.disk_pages, held.waiting_bytes), (0, 0, 0));
    assert!(page_files(folder.path()).is_empty());
    inner.open();
    assert_eq!(store.get_ranges(&path, &all).await.unwrap()[0], content);
    assert_eq!(inner.take_seen().n_gets(), 2);
}

#[tokio::test]
async fn a_failed_read_is_told_to_all_and_kept_by_nobody() {
    let inner = TestStore::gated();
    inner.put_plain("a", bytes(1, 300)).await;
    let store = cached(&inner, options(), Trust::WrittenOnce);
    let path = Path::from("a");
    let all = [0..300];
    let mut one = Box::pin(store.get_ranges(&path, &all));
    let mut two = Box::pin(store.get_ranges(&path, &all));
    assert!(poll!(&mut one).is_pending() && poll!(&mut two).is_pending());
    inner.faults_percent.store(100, Ordering::Relaxed);
    inner.open();
    assert!(one.await.is_err() && two.await.is_err());
    assert_eq!((inner.take_seen().n_gets(), store.cache().held().ram_pages), (1, 0));
    inner.faults_percent.store(0, Ordering::Relaxed);
    assert_eq!(store.get_ranges(&path, &all).await.unwrap()[0], bytes(1, 300));
}

#[tokio::test]
async fn a_missing_object_stays_missing_for_those_who_wait() {
    let inner = TestStore::gated();
    inner.put_plain("a", bytes(1, 300)).await;
    let store = cached(&inner, options(), Trust::WrittenOnce);
    let path = Path::from("a");
    let state = tarn_cache::ObjectState::of(&inner.plain.head(&path).await.unwrap());
    let ask = tarn_cache::ReadRequest { state: Some(state), ..Default::default() };
    inner.plain.delete(&path).await.unwrap();
    let error = store.read_ranges(&path, &[0..10, 100..200], &ask).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}
