use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tarn_cache::{FragmentCache, FragmentKey, FragmentOptions, FragmentStats, Ttl};
use tarn_types::ManualClock;
use tokio::runtime::Handle;

use crate::stores::{bytes, page_files};

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

/// A folder, and memory that holds nothing, so that every hit is the disk's.
fn on_disk(folder: &Path) -> FragmentOptions {
    let runtime = Some(Handle::current());
    let folder = Some(folder.to_owned());
    FragmentOptions { ram_bytes: 0, folder, disk_bytes: 8 << 20, runtime, ..FragmentOptions::default() }
}

/// Opens a cache, also right after the one before was dropped: its writer may be about to let the folder go.
fn open(options: &FragmentOptions) -> FragmentCache {
    for _ in 0..1_000_000 {
        match FragmentCache::open(options.clone()) {
            Err(_) => std::thread::yield_now(),
            Ok(cache) => return cache,
        }
    }
    panic!("the folder is not let go")
}

#[tokio::test]
async fn fragments_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(&on_disk(folder.path()));
    for n in 0..20 {
        cache.put(key("t", n), value(n, 1_000 * n as usize));
        cache.put(key("u", n), value(n + 100, 10));
    }
    for n in 0..20 {
        assert_eq!(cache.get(&key("t", n)).await, Some(value(n, 1_000 * n as usize)), "also before it is written");
    }
    cache.write_waiting();
    drop(cache);
    // Memory in front: what is read once comes from there.
    let cache = open(&FragmentOptions { ram_bytes: 1 << 20, ..on_disk(folder.path()) });
    assert_eq!((cache.held().disk_fragments, cache.held().ram_fragments), (40, 0));
    for _ in 0..2 {
        for n in 0..20 {
            assert_eq!(cache.get(&key("t", n)).await, Some(value(n, 1_000 * n as usize)));
            assert_eq!(cache.get(&key("u", n)).await, Some(value(n + 100, 10)));
        }
    }
    assert_eq!(cache.get(&key("t", 20)).await, None);
    let stats = cache.stats();
    assert_eq!((stats.disk_hits, stats.ram_hits, stats.misses, stats.kept, stats.damaged), (40, 40, 1, 0, 0));
    cache.put(key("t", 1), value(1, 1_000));
    assert_eq!(cache.stats().kept, 0, "it is there");
    let cleared = cache.clear(Some("t"));
    assert_eq!((cleared.ram_fragments, cleared.disk_fragments), (20, 20));
    assert_eq!((cache.get(&key("t", 1)).await, cache.get(&key("u", 1)).await), (None, Some(value(101, 10))));
    drop(cache);
    // With less room a part of it stays.
    let cache = open(&FragmentOptions { disk_bytes: 5 * 4096, ..on_disk(folder.path()) });
    assert_eq!((cache.held().disk_fragments, page_files(folder.path()).len()), (5, 5));
    assert_eq!(cache.clear(None).disk_fragments, 5);
    assert_eq!(page_files(folder.path()).len(), 0);
}

#[tokio::test]
async fn a_folder_needs_rights_a_runtime_and_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(&on_disk(folder.path()));
    let error = FragmentCache::open(on_disk(folder.path())).unwrap_err();
    assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
    drop(first);
    open(&on_disk(folder.path()));
    let alone = FragmentOptions { runtime: None, ..on_disk(folder.path()) };
    assert!(FragmentCache::open(alone).unwrap_err().to_string().contains("runtime"));
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    assert!(FragmentCache::open(on_disk(&file)).is_err());
}

/// Every byte of a small file in turn, files cut everywhere, gone, longer, and another's: a miss that is counted, and
/// then written again.
#[tokio::test]
async fn a_damaged_or_missing_file_is_a_miss_and_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(&on_disk(folder.path()));
    let (mine, other) = (key("t", 1), key("t", 2));
    cache.put(other.clone(), value(2, 30));
    cache.write_waiting();
    let theirs = fs::read(&page_files(folder.path())[0]).unwrap();
    cache.put(mine.clone(), value(1, 30));
    cache.write_waiting();
    let files = page_files(folder.path());
    let file = files.iter().find(|file| fs::read(file).unwrap() != theirs).unwrap();
    let whole = fs::read(file).unwrap();
    let mut damages = vec![Some(theirs), Some([&whole[..], b"x"].concat()), None];
    for at in 0..whole.len() {
        damages.push(Some(whole[..at].to_vec()));
        damages.push(Some([&whole[..at], &[whole[at] ^ (1 << (at % 8))], &whole[at + 1..]].concat()));
    }
    let n = damages.len() as u64;
    for (i, damage) in damages.into_iter().enumerate() {
        match &damage {
            Some(bytes) => fs::write(file, bytes).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
        assert_eq!(cache.get(&mine).await, None, "damage {i}");
        assert!(!file.exists());
        cache.put(mine.clone(), value(1, 30));
        cache.write_waiting();
        assert_eq!(cache.get(&mine).await, Some(value(1, 30)));
    }
    let stats = cache.stats();
    assert_eq!((stats.damaged, stats.misses, stats.disk_hits, stats.written), (n, n, n, n + 2));
    assert_eq!(cache.get(&other).await, Some(value(2, 30)), "what is beside it is whole");
}

/// As if the two had one hash: the file has another key than the one asked for.
#[tokio::test]
async fn files_in_each_others_place_are_told_apart_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    for reopened in [false, true] {
        let cache = open(&on_disk(folder.path()));
        (0..2).for_each(|n| cache.put(key("t", n), value(n, 500)));
        cache.write_waiting();
        let files = page_files(folder.path());
        let contents: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        fs::write(&files[0], &contents[1]).unwrap();
        fs::write(&files[1], &contents[0]).unwrap();
        let cache = if reopened {
            drop(cache);
            open(&on_disk(folder.path()))
        } else {
            cache
        };
        assert_eq!((cache.get(&key("t", 0)).await, cache.get(&key("t", 1)).await), (None, None));
        assert_eq!((cache.stats().damaged, cache.held().disk_fragments), (2, 0));
    }
}

#[tokio::test]
async fn what_another_left_in_the_folder_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(&on_disk(folder.path()));
    cache.put(key("t", 1), value(1, 500));
    cache.write_waiting();
    drop(cache);
    let file = page_files(folder.path())[0].clone();
    fs::write(file.with_extension("tmp"), "half").unwrap();
    fs::write(file.with_file_name("notes"), "hello").unwrap();
    fs::create_dir(file.with_file_name(format!("{:032x}", 7))).unwrap(); // a folder where a file should be
    fs::write(folder.path().join("v1/readme"), "hello").unwrap();
    fs::create_dir_all(folder.path().join("v1/zz/not-a-group")).unwrap();
    let cache = open(&on_disk(folder.path()));
    assert_eq!((cache.held().disk_fragments, cache.stats().damaged), (1, 4));
    assert_eq!(page_files(folder.path()), [file]);
    assert_eq!(cache.get(&key("t", 1)).await, Some(value(1, 500)));
}

#[tokio::test]
async fn a_full_disk_stops_writing_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(&FragmentOptions { ram_bytes: 1 << 20, ..on_disk(folder.path()) });
    cache.put(key("t", 1), value(1, 500));
    cache.put(key("t", 2), value(2, 500));
    cache.write_waiting();
    let files = page_files(folder.path());
    // Which file is the second one's: the disk is full for whoever writes it again.
    let second = files.iter().find(|file| fs::read(file).unwrap().ends_with(&value(2, 500))).unwrap();
    cache.clear(Some("t"));
    cache.put(key("t", 1), value(1, 500));
    cache.write_waiting();
    symlink("/dev/full", second.with_extension("tmp")).unwrap();
    cache.put(key("t", 2), value(2, 500));
    cache.write_waiting();
    cache.put(key("t", 3), value(3, 500));
    cache.write_waiting();
    let stopped = cache.held().stopped.expect("writing stopped");
    assert!(stopped.contains("No space left"), "{stopped}");
    for n in 1..4 {
        assert_eq!(cache.get(&key("t", n)).await, Some(value(n, 500)), "in memory, or on disk");
    }
    let stats = cache.stats();
    assert_eq!((stats.write_failures, stats.not_written, stats.damaged), (1, 1, 0));
    assert_eq!(cache.held().disk_fragments, 1);
    cache.resume_writing();
    cache.put(key("t", 4), value(4, 500));
    cache.write_waiting();
    assert_eq!((cache.held().stopped, cache.held().disk_fragments), (None, 2));
}

#[tokio::test]
async fn a_folder_that_vanishes_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(&on_disk(folder.path()));
    cache.put(key("t", 1), value(1, 500));
    cache.write_waiting();
    fs::remove_dir_all(folder.path().join("v1")).unwrap();
    assert_eq!(cache.get(&key("t", 1)).await, None);
    cache.put(key("t", 1), value(1, 500));
    cache.write_waiting();
    assert_eq!(cache.get(&key("t", 1)).await, Some(value(1, 500)));
    assert_eq!((cache.stats().damaged, cache.stats().write_failures), (1, 0));
}

#[tokio::test]
async fn files_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(&on_disk(folder.path()));
    cache.put(key("t", 1), value(1, 500));
    cache.write_waiting();
    let mut at = page_files(folder.path())[0].clone();
    while at != folder.path() {
        assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o077, 0, "{}", at.display());
        at = at.parent().unwrap().to_owned();
    }
}

#[tokio::test]
async fn the_disk_is_bounded_by_bytes_and_what_is_hot_stays_there() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(&FragmentOptions { disk_bytes: 100 * 4096, ..on_disk(folder.path()) });
    for _ in 0..3 {
        for n in 0..20 {
            if cache.get(&key("hot", n)).await.is_none() {
                cache.put(key("hot", n), value(n, 1_000));
            }
        }
        cache.write_waiting();
    }
    for n in 0..500 {
        cache.put(key("scan", n), value(n, 1_000 + 20 * n as usize));
        cache.write_waiting();
        assert!(cache.held().disk_bytes <= 100 * 4096);
    }
    for n in 0..20 {
        assert_eq!(cache.get(&key("hot", n)).await, Some(value(n, 1_000)), "{n}");
    }
    let (stats, held) = (cache.stats(), cache.held());
    assert_eq!(stats.disk_evicted, 520 - held.disk_fragments);
    assert_eq!(page_files(folder.path()).len() as u64, held.disk_fragments);
    // What is larger than the room displaces nothing, what waits too much is dropped.
    cache.put(key("large", 1), value(1, 200 * 4096));
    assert_eq!((cache.held(), cache.stats()), (held, stats));
    let tight = FragmentOptions { waiting_bytes: 1_500, ..on_disk(&folder.path().join("tight")) };
    let cache = open(&tight);
    cache.put(key("t", 1), value(1, 2_000));
    let long = FragmentKey { scope: "t".into(), bytes: value(1, 2_000) };
    cache.put(long, value(1, 1));
    cache.write_waiting();
    assert_eq!((cache.stats().dropped, cache.held().disk_fragments), (2, 0));
}

#[tokio::test]
async fn age_is_kept_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let aged = |ttl_ms| FragmentOptions { ttl: Some(Ttl { ttl_ms, clock: clock.clone() }), ..on_disk(folder.path()) };
    let cache = open(&aged(1_000));
    cache.put(key("t", 1), value(1, 10));
    clock.advance_ms(1_001);
    assert_eq!(cache.get(&key("t", 1)).await, None, "also while it waits to be written");
    cache.write_waiting();
    drop(cache);
    let cache = open(&FragmentOptions { ram_bytes: 1 << 20, ..aged(1_002) });
    assert!(cache.get(&key("t", 1)).await.is_some());
    clock.advance_ms(2);
    assert_eq!(cache.get(&key("t", 1)).await, None, "memory has it with the age that it has on disk");
    assert_eq!((cache.stats().expired, cache.held().disk_fragments, cache.stats().damaged), (2, 0, 0));
    cache.put(key("t", 1), value(1, 10));
    assert!(cache.get(&key("t", 1)).await.is_some());
}

/// A lookup that nobody waits for any more, at whatever point it was given up, leaves the cache as it was.
#[tokio::test]
async fn a_lookup_that_is_given_up_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(&on_disk(folder.path()));
    cache.put(key("t", 1), value(1, 100_000));
    cache.write_waiting();
    for _ in 0..50 {
        // Asked once and dropped: the file is being read, or has just been.
        if let Some(found) = futures::FutureExt::now_or_never(cache.get(&key("t", 1))) {
            assert_eq!(found, Some(value(1, 100_000)));
        }
    }
    assert_eq!(cache.get(&key("t", 1)).await, Some(value(1, 100_000)));
    assert_eq!((cache.stats().damaged, cache.stats().misses, cache.held().disk_fragments), (0, 0, 1));
}
