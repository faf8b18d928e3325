use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::*;
use tarn_cache::{NotUsed, ObjectState, PageOptions, PageStore, PageUsage, ReadRequest, Trust};

use crate::stores::*;

async fn get(store: &PageStore, path: &str, range: GetRange) -> Result<Bytes> {
    let options = GetOptions { range: Some(range), ..GetOptions::default() };
    store.get_opts(&Path::from(path), options).await?.bytes().await
}

#[tokio::test]
async fn only_missing_pages_are_fetched_and_neighbours_in_one_request() {
    let inner = TestStore::new();
    let content = bytes(1, 1_000);
    inner.put_plain("a", content.clone()).await;
    let store = cached(&inner, options(), Trust::WrittenOnce);
    let path = Path::from("a");
    assert_eq!(store.get_range(&path, 130..140).await.unwrap(), content[130..140]);
    let seen = inner.take_seen();
    assert_eq!((seen.heads, seen.gets), (1, [((path.clone(), 128..192), 1)].into()));

    let ranges = [0..10, 100..300, 190..200, 990..1_000];
    let got = store.get_ranges(&path, &ranges).await.unwrap();
    assert!(got.iter().zip(&ranges).all(|(got, r)| *got == content[r.start as usize..r.end as usize]));
    let seen = inner.take_seen();
    let expected = [(0..128, 1), (192..320, 1), (960..1_000, 1)].map(|(range, n)| ((path.clone(), range), n));
    assert_eq!((seen.heads, seen.gets), (0, expected.into()));
    let stats = store.cache().stats();
    assert_eq!((stats.misses, stats.ram_hits, stats.requests), (1 + 5, 1, 4));
    assert_eq!((stats.remote_bytes, stats.asked_bytes), (64 + 128 + 128 + 40, 10 + 10 + 200 + 10 + 10));
}

#[tokio::test]
async fn a_gap_of_present_pages_may_be_fetched_again_and_long_runs_are_cut() {
    let inner = TestStore::new();
    inner.put_plain("a", bytes(1, 1_000)).await;
    let path = Path::from("a");
    let bridging = cached(&inner, PageOptions { coalesce_gap_bytes: PAGE, ..options() }, Trust::WrittenOnce);
    bridging.get_range(&path, 64..128).await.unwrap();
    bridging.get_range(&path, 0..256).await.unwrap();
    assert!(inner.take_seen().gets.contains_key(&(path.clone(), 0..256)));
    let cut = cached(&inner, PageOptions { max_request_bytes: 2 * PAGE, ..options() }, Trust::WrittenOnce);
    cut.get_range(&path, 0..320).await.unwrap();
    let mut ranges: Vec<_> = inner.take_seen().gets.into_keys().map(|(_, range)| range).collect();
    ranges.sort_by_key(|range| range.start);
    assert_eq!(ranges, [0..128, 128..256, 256..320]);
}

#[tokio::test]
async fn ends_suffixes_empty_objects_and_empty_ranges() {
    let inner = TestStore::new();
    let content = bytes(2, 300);
    inner.put_plain("a", content.clone()).await;
    inner.put_plain("empty", vec![]).await;
    for trust in [Trust::WrittenOnce, Trust::Checked] {
        let store = cached(&inner, options(), trust);
        for _ in 0..2 {
            assert_eq!(get(&store, "a", GetRange::Suffix(10)).await.unwrap(), content[290..]);
            assert_eq!(get(&store, "a", GetRange::Suffix(1_000)).await.unwrap(), content[..]);
            assert_eq!(get(&store, "a", GetRange::Offset(250)).await.unwrap(), content[250..]);
            assert_eq!(get(&store, "a", GetRange::Bounded(290..400)).await.unwrap(), content[290..]);
            assert_eq!(get(&store, "a", GetRange::Bounded(256..300)).await.unwrap(), content[256..]);
            assert!(get(&store, "a", GetRange::Bounded(300..301)).await.is_err());
            assert!(get(&store, "a", GetRange::Offset(300)).await.is_err());
            assert!(get(&store, "a", GetRange::Bounded(5..5)).await.is_err());
            assert_eq!(store.get(&Path::from("a")).await.unwrap().bytes().await.unwrap(), content[..]);
            let whole = store.get(&Path::from("empty")).await.unwrap();
            assert_eq!((whole.range.clone(), whole.bytes().await.unwrap()), (0..0, Bytes::new()));
            let got = store.get_ranges(&Path::from("a"), &[7..7, 299..300, 0..300]).await.unwrap();
            assert_eq!((got[0].len(), &got[1][..], &got[2][..]), (0, &content[299..], &content[..]));
            assert_eq!(store.get_ranges(&Path::from("a"), &[]).await.unwrap(), Vec::<Bytes>::new());
            assert!(matches!(get(&store, "none", GetRange::Offset(0)).await, Err(Error::NotFound { .. })));
        }
        let meta = store.get(&Path::from("a")).await.unwrap().meta;
        assert_eq!(meta, inner.plain.head(&Path::from("a")).await.unwrap());
    }
}

#[tokio::test]
async fn an_object_of_many_windows_comes_as_a_stream() {
    let inner = TestStore::new();
    let content = bytes(3, 40 << 20);
    inner.put_plain("big", content.clone()).await;
    let big = PageOptions { page_bytes: 1 << 20, ram_bytes: 64 << 20, max_request_bytes: 4 << 20, ..options() };
    let store = cached(&inner, big, Trust::WrittenOnce);
    let mut stream = store.get(&Path::from("big")).await.unwrap().into_stream();
    assert_eq!(inner.seen.lock().bytes(), 16 << 20, "one window ahead, not the object");
    let mut all = vec![];
    while let Some(piece) = stream.next().await {
        all.extend(piece.unwrap());
    }
    assert!(all == content);
}

#[tokio::test]
async fn an_object_overwritten_in_place_is_never_answered_stale() {
    for etags in [true, false] {
        let inner = TestStore::new();
        inner.etags.store(etags, Ordering::Relaxed);
        let store = cached(&inner, options(), Trust::Checked);
        let path = Path::from("a");
        for round in 0..5 {
            let content = bytes(round, 500); // the same size each time
            inner.put_plain("a", content.clone()).await;
            for _ in 0..2 {
                assert_eq!(store.get_range(&path, 100..400).await.unwrap(), content[100..400]);
                assert_eq!(store.get_ranges(&path, &[0..500]).await.unwrap()[0], content[..]);
            }
        }
        let n_gets = inner.take_seen().n_gets();
        assert_eq!(n_gets, 5 * 3, "the second reads of each state come from memory");
    }
}

#[tokio::test]
async fn who_names_the_state_is_given_it_or_an_error() {
    let inner = TestStore::new();
    let path = Path::from("a");
    let old = bytes(1, 200);
    inner.put_plain("a", old.clone()).await;
    let meta = inner.plain.head(&path).await.unwrap();
    let store = cached(&inner, options(), Trust::Checked);
    let state = ObjectState::of(&meta);
    let ask = ReadRequest { state: Some(state.clone()), ..ReadRequest::default() };
    assert_eq!(store.read_ranges(&path, &[0..64], &ask).await.unwrap()[0], old[..64]);
    let seen = inner.take_seen();
    assert_eq!((seen.heads, seen.n_gets()), (0, 1), "nobody is asked what is known");

    inner.put_plain("a", bytes(2, 200)).await;
    assert_eq!(store.read_ranges(&path, &[0..64], &ask).await.unwrap()[0], old[..64], "near, and of that state");
    let gone = store.read_ranges(&path, &[0..128], &ask).await.unwrap_err();
    assert!(matches!(gone, Error::Precondition { .. }), "{gone}");
    let if_match = |range: std::ops::Range<u64>| GetOptions {
        range: Some(range.into()),
        if_match: meta.e_tag.clone(),
        ..GetOptions::default()
    };
    assert_eq!(store.get_opts(&path, if_match(10..20)).await.unwrap().bytes().await.unwrap(), old[10..20]);
    assert!(matches!(store.get_opts(&path, if_match(100..128)).await, Err(Error::Precondition { .. })));
    // Past the cache too, the answer is of that state or an error.
    store.cache().set_on(false);
    let gone = store.read_ranges(&path, &[0..64], &ask).await.unwrap_err();
    assert!(matches!(gone, Error::Precondition { .. }), "{gone}");
    let new = bytes(2, 200);
    let now =
        ReadRequest { state: Some(ObjectState::of(&inner.plain.head(&path).await.unwrap())), ..ReadRequest::default() };
    let got = store.read_ranges(&path, &[0..64, 100..300, 7..7], &now).await.unwrap();
    assert_eq!((&got[0][..], &got[1][..], got[2].len()), (&new[..64], &new[100..], 0));
    assert!(store.read_ranges(&path, &[200..201], &now).await.is_err());
    store.cache().set_on(true);
    // A state is also handed along with ordinary reads.
    let mut options = GetOptions { range: Some((0..5).into()), ..GetOptions::default() };
    options.extensions.insert(ask);
    assert_eq!(store.get_opts(&path, options).await.unwrap().bytes().await.unwrap(), old[..5]);
}

#[tokio::test]
async fn what_goes_past_the_cache_says_why() {
    let inner = TestStore::new();
    let content = bytes(1, 200);
    inner.put_plain("a", content.clone()).await;
    let path = Path::from("a");
    let meta = inner.plain.head(&path).await.unwrap();
    let store = cached(&inner, options(), Trust::WrittenOnce);
    let read = async |options: GetOptions, ask: ReadRequest| {
        let usage = PageUsage::default();
        let mut options = GetOptions { range: Some((0..64).into()), ..options };
        options.extensions.insert(ReadRequest { usage: Some(usage.clone()), ..ask });
        let got = store.get_opts(&path, options).await.unwrap().bytes().await.unwrap();
        assert_eq!(got, content[..64]);
        usage
    };
    let past = ReadRequest { bypass: true, ..ReadRequest::default() };
    assert_eq!(read(GetOptions::default(), past).await.not_used(), Some(NotUsed::Asked));
    let since = GetOptions { if_unmodified_since: Some(meta.last_modified), ..GetOptions::default() };
    assert_eq!(read(since, ReadRequest::default()).await.not_used(), Some(NotUsed::Conditions));
    let any = GetOptions { if_match: Some("*".to_owned()), ..GetOptions::default() };
    assert_eq!(read(any, ReadRequest::default()).await.not_used(), Some(NotUsed::Conditions));
    store.cache().set_on(false);
    assert_eq!(read(GetOptions::default(), ReadRequest::default()).await.not_used(), Some(NotUsed::Off));
    store.cache().set_on(true);
    assert_eq!(store.cache().held().ram_pages, 0);
    assert_eq!(store.cache().stats().bypassed, 4);

    let cold = read(GetOptions::default(), ReadRequest::default()).await;
    let warm = read(GetOptions::default(), ReadRequest::default()).await;
    assert_eq!((cold.not_used(), cold.stats().misses, cold.stats().requests), (None, 1, 1));
    assert_eq!((warm.stats().ram_hits, warm.stats().requests, warm.stats().asked_bytes), (1, 0, 64));
}

#[tokio::test]
async fn a_scan_of_ten_times_the_room_leaves_the_hot_set_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let inner = TestStore::new();
    inner.put_plain("hot", bytes(1, 20 * PAGE as usize)).await;
    inner.put_plain("scan", bytes(2, 2_000 * PAGE as usize)).await;
    let (hot, scan) = (Path::from("hot"), Path::from("scan"));
    let in_memory = PageOptions { ram_bytes: 200 * PAGE, ..options() };
    let disk = PageOptions { disk_bytes: 200 * 4096, ..on_disk(folder.path()) };
    for options in [in_memory, disk] {
        let store = cached(&inner, options, Trust::WrittenOnce);
        for _ in 0..4 {
            store.get_range(&hot, 0..20 * PAGE).await.unwrap();
            store.cache().write_waiting();
        }
        for page in 0..2_000 {
            store.get_range(&scan, page * PAGE..(page + 1) * PAGE).await.unwrap();
            store.cache().write_waiting();
        }
        inner.take_seen();
        store.get_range(&hot, 0..20 * PAGE).await.unwrap();
        assert_eq!(inner.take_seen().n_gets(), 0);
        let held = store.cache().held();
        assert!(held.ram_bytes <= store.cache().options().ram_bytes && held.disk_bytes <= 200 * 4096, "{held:?}");
    }
    assert!(page_files(folder.path()).len() <= 200);
}

#[tokio::test]
async fn clearing_drops_what_lies_under_a_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let inner = TestStore::new();
    let store = cached(&inner, PageOptions { ram_bytes: 1 << 20, ..on_disk(folder.path()) }, Trust::WrittenOnce);
    for path in ["t/a", "t/b", "tt/c"] {
        inner.put_plain(path, bytes(1, 100)).await;
        store.get(&Path::from(path)).await.unwrap().bytes().await.unwrap();
    }
    store.cache().write_waiting();
    assert_eq!(page_files(folder.path()).len(), 6);
    let cleared = store.cache().clear(Some("another"), None);
    assert_eq!(cleared, Default::default());
    let cleared = store.cache().clear(Some("test://store"), Some(&Path::from("t")));
    assert_eq!((cleared.objects, cleared.ram_pages, cleared.disk_pages), (2, 4, 4));
    assert_eq!(page_files(folder.path()).len(), 2);
    inner.take_seen();
    store.get(&Path::from("tt/c")).await.unwrap().bytes().await.unwrap();
    assert_eq!(inner.take_seen().n_gets(), 0);
    store.get(&Path::from("t/a")).await.unwrap().bytes().await.unwrap();
    assert_eq!(inner.take_seen().n_gets(), 1);
    store.cache().clear(None, None);
    store.cache().write_waiting();
    let held = store.cache().held();
    assert_eq!((held.ram_pages, held.disk_pages, page_files(folder.path()).len()), (0, 0, 0));
}

#[tokio::test]
async fn what_is_written_or_deleted_through_the_store_is_looked_at_anew() {
    let inner = TestStore::new();
    let store = cached(&inner, options(), Trust::WrittenOnce);
    let (a, b) = (Path::from("a"), Path::from("b"));
    store.put(&a, bytes(1, 100).into()).await.unwrap();
    assert_eq!(store.get(&a).await.unwrap().bytes().await.unwrap(), bytes(1, 100));
    store.put(&a, bytes(2, 90).into()).await.unwrap();
    assert_eq!(store.get(&a).await.unwrap().bytes().await.unwrap(), bytes(2, 90));
    store.copy(&a, &b).await.unwrap();
    assert_eq!(store.get(&b).await.unwrap().bytes().await.unwrap(), bytes(2, 90));
    store.delete(&a).await.unwrap();
    assert!(matches!(store.get(&a).await, Err(Error::NotFound { .. })));
    store.rename(&b, &a).await.unwrap();
    assert!(matches!(store.get(&b).await, Err(Error::NotFound { .. })));
    assert_eq!(store.get(&a).await.unwrap().bytes().await.unwrap(), bytes(2, 90));
}

#[tokio::test]
async fn a_write_that_was_given_up_may_have_happened() {
    let inner = TestStore::gated();
    inner.put_plain("a", bytes(1, 100)).await;
    let store = cached(&inner, PageOptions { ram_bytes: 0, ..options() }, Trust::WrittenOnce);
    let path = Path::from("a");
    assert!(store.get_ranges(&path, &[]).await.unwrap().is_empty()); // what is there is known from here on
    assert!(store.put(&path, bytes(2, 90).into()).now_or_never().is_none(), "it is done, and its answer is on its way");
    inner.open();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), bytes(2, 90));
    assert_eq!(store.cache().stats().replaced, 0, "it is looked at anew");
}

#[tokio::test]
async fn two_stores_with_the_same_path_share_a_cache_and_nothing_else() {
    let (one, two) = (TestStore::new(), TestStore::new());
    one.put_plain("a", bytes(1, 100)).await; // equal ETags: each store counts from the same number
    two.put_plain("a", bytes(2, 100)).await;
    let cache = open(options());
    let store = |inner: &Arc<TestStore>, name| {
        PageStore::new(Arc::clone(inner) as Arc<dyn ObjectStore>, cache.clone(), name, Trust::WrittenOnce)
    };
    let (first, second) = (store(&one, "one"), store(&two, "two"));
    assert_eq!(first.get(&Path::from("a")).await.unwrap().bytes().await.unwrap(), bytes(1, 100));
    assert_eq!(second.get(&Path::from("a")).await.unwrap().bytes().await.unwrap(), bytes(2, 100));
}

#[tokio::test]
async fn what_is_not_what_was_written_is_an_error_and_is_not_kept() {
    let inner = TestStore::new();
    let path = Path::from("a");
    let whole = bytes(1, 200_000);
    let mut summing = tarn_metastore::Summing::default();
    summing.cut(30_000);
    summing.feed(&whole);
    let checksums = Arc::new(summing.finish());
    let ask = |bypass| ReadRequest {
        state: Some(ObjectState { size_bytes: 200_000, etag: None, modified_ns: None }),
        checksums: Some(Arc::clone(&checksums)),
        bypass,
        ..ReadRequest::default()
    };
    let mut damaged = whole.clone();
    damaged[100_000] ^= 8;
    // Pages that pieces end in the midst of, and pages of several pieces.
    for page_bytes in [PAGE as u32, 5_000, 64 << 10, 150_000] {
        let store = cached(&inner, PageOptions { page_bytes, ram_bytes: 1 << 20, ..options() }, Trust::WrittenOnce);
        inner.put_plain("a", damaged.clone()).await;
        for bypass in [false, true] {
            let error =
                store.read_ranges(&path, std::slice::from_ref(&(99_000..99_001)), &ask(bypass)).await.unwrap_err();
            let damage = tarn_metastore::Damage::of(&error).expect("it says where");
            assert_eq!(damage.range, 65_536..131_072);
            let read = store.read_ranges(&path, &[10..20, 29_999..30_001, 199_000..200_000], &ask(true)).await.unwrap();
            assert!(read[0] == whole[10..20] && read[1] == whole[29_999..30_001] && read[2] == whole[199_000..]);
        }
        assert_eq!(store.cache().held().ram_pages, 0, "nothing of a failed read is kept");
        inner.put_plain("a", whole.clone()).await;
        for _ in 0..2 {
            let read = store.read_ranges(&path, &[99_000..140_000, 0..1], &ask(false)).await.unwrap();
            assert!(read[0] == whole[99_000..140_000] && read[1] == whole[..1]);
        }
    }
}
