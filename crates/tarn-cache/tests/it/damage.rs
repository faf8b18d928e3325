use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use object_store::path::Path;
use object_store::*;
use tarn_cache::{PageCache, PageOptions, PageStore, Trust, Ttl};
use tarn_types::ManualClock;
use tokio::runtime::Handle;

use crate::stores::*;

#[tokio::test]
async fn pages_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let inner = TestStore::new();
    let content = bytes(1, 1_000);
    inner.put_plain("dir/a", content.clone()).await;
    let path = Path::from("dir/a");
    let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    store.get(&path).await.unwrap().bytes().await.unwrap();
    store.cache().write_waiting();
    drop(store);
    inner.take_seen();
    let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    assert_eq!(store.cache().held().disk_pages, 16);
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), content);
    let seen = inner.take_seen();
    assert_eq!((seen.heads, seen.n_gets()), (1, 0), "it is asked once whether the object is still that one");
    assert_eq!(store.cache().stats().disk_hits, 16);
    drop(store);
    // With less room a part of it stays, with another page size nothing.
    let less = PageOptions { disk_bytes: 5 * 8192, ..on_disk(folder.path()) };
    assert_eq!(cached(&inner, less, Trust::WrittenOnce).cache().held().disk_pages, 5);
    assert_eq!(page_files(folder.path()).len(), 5);
    let larger = PageOptions { page_bytes: 128, ..on_disk(folder.path()) };
    let store = cached(&inner, larger, Trust::WrittenOnce);
    assert_eq!((store.cache().held().disk_pages, store.cache().stats().damaged), (0, 0));
    assert_eq!(page_files(folder.path()).len(), 0);
}

#[tokio::test]
async fn what_others_need_of_the_disk_is_given_back() {
    let inner = TestStore::new();
    let content = bytes(1, 1_000);
    inner.put_plain("a", content.clone()).await;
    let (path, folder) = (Path::from("a"), tempfile::tempdir().unwrap());
    let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    store.get(&path).await.unwrap().bytes().await.unwrap();
    store.cache().write_waiting();
    let before = store.cache().held();
    let given = store.cache().give_back(3 * 4096 + 1);
    let after = store.cache().held();
    assert!(given > 3 * 4096 && given < before.disk_bytes, "{given} of {}", before.disk_bytes);
    assert_eq!(after.disk_bytes, before.disk_bytes - given);
    assert_eq!(page_files(folder.path()).len() as u64, after.disk_pages);
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), content);
    store.cache().write_waiting();
    store.cache().give_back(u64::MAX);
    assert_eq!((store.cache().held().disk_bytes, page_files(folder.path()).len()), (0, 0));
    assert_eq!(store.cache().stats().damaged, 0);
    assert!(tarn_cache::shortage(folder.path()).is_ok());
}

#[tokio::test]
async fn a_folder_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(on_disk(folder.path()));
    let error = PageCache::open(on_disk(folder.path()), Handle::current()).unwrap_err();
    assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
    drop(first);
    open(on_disk(folder.path()));
}

/// Every kind of damage to every file, while the cache is open and while it is not.
#[tokio::test]
async fn a_damaged_or_missing_file_is_a_miss_and_is_counted() {
    let inner = TestStore::new();
    let content = bytes(1, 300);
    inner.put_plain("a", content.clone()).await;
    inner.put_plain("b", bytes(2, 300)).await;
    let (a, b) = (Path::from("a"), Path::from("b"));
    type Damage = fn(&std::path::Path, &[u8]);
    let damages: [Damage; 6] = [
        |file, bytes| fs::write(file, [&bytes[..70], &[bytes[70] ^ 1], &bytes[71..]].concat()).unwrap(),
        |file, bytes| fs::write(file, [&bytes[..bytes.len() - 1], &[bytes[bytes.len() - 1] ^ 128]].concat()).unwrap(),
        |file, bytes| fs::write(file, &bytes[..bytes.len() / 2]).unwrap(),
        |file, _| fs::write(file, b"").unwrap(),
        |file, _| fs::remove_file(file).unwrap(),
        |file, bytes| fs::write(file, [bytes, b"x"].concat()).unwrap(),
    ];
    for damage in damages {
        for reopened in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut open = Some(cached(&inner, on_disk(folder.path()), Trust::WrittenOnce));
            let store = open.as_ref().unwrap();
            store.get(&a).await.unwrap().bytes().await.unwrap();
            store.get(&b).await.unwrap().bytes().await.unwrap();
            store.cache().write_waiting();
            if reopened {
                open = None;
            }
            let files = page_files(folder.path());
            assert_eq!(files.len(), 10);
            for file in &files {
                damage(file, &fs::read(file).unwrap());
            }
            let store = open.unwrap_or_else(|| cached(&inner, on_disk(folder.path()), Trust::WrittenOnce));
            for _ in 0..2 {
                assert_eq!(store.get(&a).await.unwrap().bytes().await.unwrap(), content);
                assert_eq!(store.get_ranges(&b, &[0..300]).await.unwrap()[0], bytes(2, 300));
                store.cache().write_waiting();
            }
            let stats = store.cache().stats();
            if !reopened {
                assert_eq!(stats.damaged, 10);
            }
            assert_eq!(stats.disk_hits, 10, "they were fetched and written again");
            assert_eq!(page_files(folder.path()).len(), 10);
        }
    }
}

/// One damaged, one cut and one missing page among neighbours that are read into one buffer: the others are still the
/// folder's.
#[tokio::test]
async fn damage_within_a_run_costs_only_its_pages() {
    let inner = TestStore::new();
    let content = bytes(1, 1_000);
    inner.put_plain("a", content.clone()).await;
    let path = Path::from("a");
    let folder = tempfile::tempdir().unwrap();
    for reopened in [false, true] {
        let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
        store.get(&path).await.unwrap().bytes().await.unwrap();
        store.cache().write_waiting();
        let files = page_files(folder.path());
        assert_eq!(files.len(), 16);
        let mut third = fs::read(&files[3]).unwrap();
        *third.last_mut().unwrap() ^= 1;
        fs::write(&files[3], third).unwrap();
        fs::File::options().write(true).open(&files[7]).unwrap().set_len(10).unwrap();
        fs::remove_file(&files[11]).unwrap();
        let store = if reopened {
            drop(store);
            cached(&inner, on_disk(folder.path()), Trust::WrittenOnce)
        } else {
            store
        };
        let before = store.cache().stats();
        inner.take_seen();
        let ranges = [10..900, 0..64, 100..101, 190..260, 960..1_000];
        let got = store.get_ranges(&path, &ranges).await.unwrap();
        assert!(got.iter().zip(&ranges).all(|(got, r)| *got == content[r.start as usize..r.end as usize]));
        let seen = inner.take_seen();
        assert_eq!(seen.n_gets(), 3);
        assert_eq!(store.cache().stats().disk_hits - before.disk_hits, 13);
        store.cache().write_waiting();
    }
}

/// Long runs are read by a blocking thread, one buffer of several for each; short ones on the thread that asks.
#[tokio::test]
async fn a_long_run_off_the_disk_is_the_objects_bytes() {
    let inner = TestStore::new();
    let content = bytes(1, (9 << 20) + 12_345);
    inner.put_plain("a", content.clone()).await;
    let path = Path::from("a");
    let folder = tempfile::tempdir().unwrap();
    let options = PageOptions { page_bytes: 256 << 10, disk_bytes: 64 << 20, ..on_disk(folder.path()) };
    let store = cached(&inner, options, Trust::WrittenOnce);
    store.get_range(&path, 0..content.len() as u64).await.unwrap();
    store.cache().write_waiting();
    inner.take_seen();
    for range in [0..content.len() as u64, 1..(5 << 20), (2 << 20) - 7..(2 << 20) + 7, (9 << 20)..(9 << 20) + 12_345] {
        let got = store.get_range(&path, range.clone()).await.unwrap();
        assert!(got == content[range.start as usize..range.end as usize], "{range:?}");
    }
    assert_eq!((inner.take_seen().n_gets(), store.cache().stats().damaged), (0, 0));
    let mut file = fs::read(&page_files(folder.path())[17]).unwrap();
    *file.last_mut().unwrap() ^= 1;
    fs::write(&page_files(folder.path())[17], file).unwrap();
    assert!(store.get_range(&path, 0..content.len() as u64).await.unwrap() == content);
    assert_eq!((inner.take_seen().n_gets(), store.cache().stats().damaged), (1, 1));
}

#[tokio::test]
async fn pages_off_the_disk_go_to_memory_while_there_is_room_or_when_asked_for_again() {
    let inner = TestStore::new();
    let content = bytes(1, 32 * PAGE as usize);
    inner.put_plain("a", content.clone()).await;
    let path = Path::from("a");
    let folder = tempfile::tempdir().unwrap();
    let filled = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    filled.get(&path).await.unwrap().bytes().await.unwrap();
    filled.cache().write_waiting();
    drop(filled);
    let options = PageOptions { ram_bytes: 10 * PAGE, ..on_disk(folder.path()) };
    let store = cached(&inner, options, Trust::WrittenOnce);
    assert_eq!(store.get_range(&path, 0..32 * PAGE).await.unwrap(), content);
    assert_eq!((store.cache().held().ram_pages, store.cache().stats().ram_evicted), (10, 0), "nothing is displaced");
    let last = 31 * PAGE..32 * PAGE;
    for _ in 0..3 {
        assert_eq!(store.get_range(&path, last.clone()).await.unwrap(), content[31 * PAGE as usize..]);
    }
    let stats = store.cache().stats();
    assert_eq!((stats.disk_hits, stats.ram_hits, store.cache().held().ram_bytes), (32 + 1, 2, 10 * PAGE));
}

#[tokio::test]
async fn pages_that_are_too_old_are_fetched_again() {
    let inner = TestStore::new();
    let content = bytes(1, 300);
    inner.put_plain("a", content.clone()).await;
    let path = Path::from("a");
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_000_000));
    for (ram_bytes, hits) in [(0, 0), (1 << 20, 5)] {
        let options = PageOptions { ram_bytes, ..on_disk(folder.path()) };
        let ttl = Some(Ttl { ttl_ms: 1_000, clock: clock.clone() });
        let cache = loop {
            // The writer of the one before may be about to let the folder go.
            match PageCache::open_with_ttl(options.clone(), Handle::current(), ttl.clone()) {
                Ok(cache) => break cache,
                Err(_) => std::thread::yield_now(),
            }
        };
        let store =
            PageStore::new(Arc::clone(&inner) as Arc<dyn ObjectStore>, cache, "test://store", Trust::WrittenOnce);
        let read = async || assert_eq!(store.get_range(&path, 0..300).await.unwrap(), content);
        read().await;
        store.cache().write_waiting();
        inner.take_seen();
        clock.advance_ms(1_000);
        read().await;
        assert_eq!((inner.take_seen().n_gets(), store.cache().stats().ram_hits), (0, hits));
        clock.advance_ms(1);
        read().await;
        store.cache().write_waiting();
        assert_eq!((inner.take_seen().n_gets(), store.cache().stats().damaged), (1, 0));
        assert_eq!(store.cache().stats().expired, if ram_bytes == 0 { 5 } else { 10 }, "in memory, and on disk");
        read().await;
        assert_eq!(inner.take_seen().n_gets(), 0);
        store.cache().clear(None, None);
    }
    // Of what was written by a cache that does not care for age, nobody knows it.
    let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    store.get_range(&path, 0..300).await.unwrap();
    store.cache().write_waiting();
    assert_eq!(store.cache().held().disk_pages, 5);
}

#[tokio::test]
async fn pages_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let inner = TestStore::new();
    inner.put_plain("a", bytes(1, 10)).await;
    let store = cached(&inner, on_disk(&folder.path().join("new/cache")), Trust::WrittenOnce);
    store.get_range(&Path::from("a"), 0..10).await.unwrap();
    store.cache().write_waiting();
    let mut at = page_files(&folder.path().join("new/cache"))[0].clone();
    while at != folder.path() {
        assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o077, 0, "{}", at.display());
        at = at.parent().unwrap().to_owned();
    }
}

#[tokio::test]
async fn files_of_others_are_not_taken_for_pages() {
    let inner = TestStore::new();
    inner.put_plain("a", bytes(1, 300)).await;
    inner.put_plain("b", bytes(2, 300)).await;
    let folder = tempfile::tempdir().unwrap();
    let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    for path in ["a", "b"] {
        store.get(&Path::from(path)).await.unwrap().bytes().await.unwrap();
    }
    store.cache().write_waiting();
    // The pages of the one in the place of the other's, and of each other's.
    let files = page_files(folder.path());
    let contents: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (i, file) in files.iter().enumerate() {
        fs::write(file, &contents[(i + 3) % files.len()]).unwrap();
    }
    assert_eq!(store.get(&Path::from("a")).await.unwrap().bytes().await.unwrap(), bytes(1, 300));
    assert_eq!(store.get(&Path::from("b")).await.unwrap().bytes().await.unwrap(), bytes(2, 300));
    assert_eq!(store.cache().stats().damaged, 10);
    store.cache().write_waiting();
    drop(store);
    // Strangers in the folder, and a write that a crash cut short.
    fs::write(folder.path().join("v1/readme"), "hello").unwrap();
    fs::create_dir_all(folder.path().join("v1/zz/not-an-object")).unwrap();
    let some = page_files(folder.path()).into_iter().find(|f| f.file_name().unwrap() == "00000000").unwrap();
    fs::write(some.with_extension("tmp"), "half").unwrap();
    fs::write(some.with_file_name("notes"), "hello").unwrap();
    let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    assert_eq!((store.cache().held().disk_pages, store.cache().stats().damaged), (10, 3));
    assert_eq!(page_files(folder.path()).len(), 10);
    assert_eq!(store.get(&Path::from("a")).await.unwrap().bytes().await.unwrap(), bytes(1, 300));
}

#[tokio::test]
async fn a_full_disk_stops_writing_and_nothing_else() {
    let inner = TestStore::new();
    let content = bytes(1, 300);
    inner.put_plain("a", content.clone()).await;
    let path = Path::from("a");
    let folder = tempfile::tempdir().unwrap();
    let store = cached(&inner, on_disk(folder.path()), Trust::WrittenOnce);
    store.get_range(&path, 0..10).await.unwrap();
    store.cache().write_waiting();
    let first = page_files(folder.path())[0].clone();
    symlink("/dev/full", first.with_file_name("00000001.tmp")).unwrap(); // whoever writes there is told that no space is left
    assert_eq!(store.get_range(&path, 0..300).await.unwrap(), content);
    store.cache().write_waiting();
    let stopped = store.cache().held().stopped.expect("writing stopped");
    assert!(stopped.contains("No space left"), "{stopped}");
    assert_eq!(store.get_range(&path, 0..300).await.unwrap(), content);
    store.cache().write_waiting();
    let stats = store.cache().stats();
    assert_eq!((stats.write_failures, stats.written, stats.damaged), (1, 1, 0));
    assert_eq!(stats.refused, 3 + 4);
    assert_eq!(store.cache().held().disk_pages, 1);

    store.cache().resume_writing();
    assert_eq!(store.get_range(&path, 0..300).await.unwrap(), content);
    store.cache().write_waiting();
    assert_eq!((store.cache().held().stopped, store.cache().held().disk_pages), (None, 5));
}

#[tokio::test]
async fn a_page_larger_than_the_room_displaces_nothing() {
    let inner = TestStore::new();
    inner.put_plain("a", bytes(1, 300)).await;
    inner.put_plain("large", bytes(2, 9_000)).await;
    let folder = tempfile::tempdir().unwrap();
    let tight = PageOptions { page_bytes: 8192, disk_bytes: 8192, ..on_disk(folder.path()) };
    let store = cached(&inner, tight, Trust::WrittenOnce);
    store.get_range(&Path::from("a"), 0..300).await.unwrap();
    store.cache().write_waiting();
    store.get_range(&Path::from("large"), 0..10).await.unwrap();
    store.cache().write_waiting();
    let stats = store.cache().stats();
    assert_eq!((stats.written, stats.disk_evicted, store.cache().held().disk_pages), (1, 0, 1));
}

#[tokio::test]
async fn what_is_too_much_to_wait_is_dropped_and_counted() {
    let inner = TestStore::new();
    inner.put_plain("a", bytes(1, 300)).await;
    let folder = tempfile::tempdir().unwrap();
    let tight = PageOptions { waiting_bytes: 2 * PAGE, ..on_disk(folder.path()) };
    let store = cached(&inner, tight, Trust::WrittenOnce);
    assert_eq!(store.get(&Path::from("a")).await.unwrap().bytes().await.unwrap(), bytes(1, 300));
    store.cache().write_waiting();
    let stats = store.cache().stats();
    assert_eq!((stats.written, stats.dropped), (2, 3));
}
