//! What every engine must do, as tests over the trait: run on each implementation.
//!
//! A test of an engine calls [`run`] with a way to make an empty one.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_types::Direction;

use crate::engine::{Engine, EngineSnapshot, Space, WriteBatch};

/// Runs all of it; panics with what is broken. `make` answers with an empty engine every time.
///
/// # Panics
/// When the engine breaks the contract.
pub fn run(make: &mut dyn FnMut() -> Arc<dyn Engine>) {
    batches_are_whole_and_the_last_write_wins(&*make());
    spaces_do_not_see_each_other(&*make());
    a_snapshot_does_not_move(&*make());
    a_scan_is_ordered_half_open_and_bounded(&*make());
    multi_get_answers_in_the_order_asked(&*make());
    multi_get_of_many_keys_is_what_each_of_them_is(&*make());
    ingested_files_cover_older_writes(&*make());
    a_staged_file_is_invisible_and_can_be_dropped(&*make());
    a_range_is_deleted_and_can_be_written_again(&*make());
    flush_changes_nothing_to_see(&*make());
    the_size_of_a_range_is_about_that_of_its_parts(&*make());
}

fn the_size_of_a_range_is_about_that_of_its_parts(engine: &dyn Engine) {
    const N_KEYS: usize = 20_000;
    let size = |from: usize, to: usize| {
        let (from, to) = (format!("{from:06}"), format!("{to:06}"));
        engine.range_bytes(Space::Rows, from.as_bytes()..to.as_bytes()).expect("a size")
    };
    // Of bytes that no compression makes smaller.
    let mut noise = 1_u64;
    for first in (0..N_KEYS).step_by(1000) {
        let mut batch = WriteBatch::default();
        for n in first..first + 1000 {
            let value = (0..16).flat_map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (noise >> 32).to_le_bytes()
            });
            batch.put(Space::Rows, format!("{n:06}").as_bytes(), &value.collect::<Vec<u8>>());
        }
        engine.write(&batch).expect("write");
    }
    engine.flush().expect("flush");
    let (whole, half, tenth) = (size(0, N_KEYS), size(0, N_KEYS / 2), size(0, N_KEYS / 10));
    assert!(whole > 0, "what is flushed has a size");
    let is_about = |size: u64, want: u64| size.abs_diff(want) <= whole / 20;
    assert!(is_about(half, whole / 2) && is_about(tenth, whole / 10), "{tenth}, {half} of {whole}");
    assert_eq!(size(N_KEYS, 2 * N_KEYS), 0, "there is nothing");
}

fn put(engine: &dyn Engine, space: Space, pairs: &[(&str, &str)]) {
    let mut batch = WriteBatch::default();
    for (key, value) in pairs {
        batch.put(space, key.as_bytes(), value.as_bytes());
    }
    engine.write(&batch).expect("write");
}

fn get(engine: &dyn Engine, space: Space, key: &str) -> Option<String> {
    let value = engine.get(space, key.as_bytes()).expect("get");
    value.map(|bytes| String::from_utf8(bytes.to_vec()).expect("we wrote text"))
}

fn scan(snapshot: &dyn EngineSnapshot, space: Space, from: &str, to: &str) -> Vec<String> {
    let mut iter = snapshot.scan(space, from.as_bytes().to_vec()..to.as_bytes().to_vec());
    let mut found = Vec::new();
    while let Some((key, value)) = iter.next().expect("scan") {
        found.push(format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value)));
    }
    assert!(iter.next().expect("scan past the end").is_none());
    found
}

fn batches_are_whole_and_the_last_write_wins(engine: &dyn Engine) {
    let mut batch = WriteBatch::default();
    batch.put(Space::Rows, b"a", b"1");
    batch.put(Space::Rows, b"b", b"1");
    batch.put(Space::Rows, b"a", b"2");
    batch.delete(Space::Rows, b"b");
    batch.put(Space::Meta, b"a", b"");
    batch.put_with(Space::Rows, b"c", |arena| arena.extend_from_slice(b"long"));
    engine.write(&batch).expect("write");
    assert_eq!(get(engine, Space::Rows, "a").as_deref(), Some("2"));
    assert_eq!(get(engine, Space::Rows, "b"), None);
    assert_eq!(get(engine, Space::Rows, "c").as_deref(), Some("long"));
    assert_eq!(get(engine, Space::Meta, "a").as_deref(), Some(""), "an empty value is a value");
    engine.write(&WriteBatch::default()).expect("an empty batch is fine");
}

fn spaces_do_not_see_each_other(engine: &dyn Engine) {
    for space in Space::ALL {
        put(engine, space, &[("k", space.name())]);
    }
    for space in Space::ALL {
        assert_eq!(get(engine, space, "k").as_deref(), Some(space.name()));
    }
}

fn a_snapshot_does_not_move(engine: &dyn Engine) {
    put(engine, Space::Rows, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let old = engine.snapshot();
    put(engine, Space::Rows, &[("a", "2"), ("d", "2")]);
    let mut batch = WriteBatch::default();
    batch.delete(Space::Rows, b"b");
    engine.write(&batch).expect("write");
    engine.delete_range(Space::Rows, b"c"..b"d").expect("delete_range");
    let file = engine.stage(Space::Rows, &mut [(&b"a"[..], Some(&b"3"[..]))].into_iter()).expect("stage");
    engine.ingest(vec![file]).expect("ingest");
    engine.flush().expect("flush");
    assert_eq!(scan(&*old, Space::Rows, "", "z"), ["a=1", "b=1", "c=1"]);
    assert_eq!(scan(&*engine.snapshot(), Space::Rows, "", "z"), ["a=3", "d=2"]);
    assert_eq!(old.get(Space::Rows, b"a").expect("get").as_deref(), Some(&b"1"[..]));
    let found = old.multi_get(Space::Rows, &[b"a", b"b", b"d"]).expect("multi_get");
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
}

fn a_scan_is_ordered_half_open_and_bounded(engine: &dyn Engine) {
    let mut batch = WriteBatch::default();
    for i in (0..1000u32).rev() {
        batch.put(Space::Rows, &i.to_be_bytes(), &i.to_le_bytes());
    }
    engine.write(&batch).expect("write");
    let snapshot = engine.snapshot();
    let mut iter = snapshot.scan(Space::Rows, 100u32.to_be_bytes().to_vec()..900u32.to_be_bytes().to_vec());
    for i in 100..900u32 {
        let (key, value) = iter.next().expect("scan").expect("an entry");
        assert_eq!((key, value), (&i.to_be_bytes()[..], &i.to_le_bytes()[..]));
    }
    assert!(iter.next().expect("scan").is_none());
    assert!(iter.entry().is_none(), "it stays at the end");
    let range = 100u32.to_be_bytes().to_vec()..900u32.to_be_bytes().to_vec();
    let mut iter = snapshot.scan_in(Space::Rows, range, Direction::Descending);
    assert!(iter.entry().is_none(), "it stands before the first entry");
    for i in (100..900u32).rev() {
        iter.advance().expect("scan");
        assert_eq!(iter.entry().expect("an entry"), (&i.to_be_bytes()[..], &i.to_le_bytes()[..]));
    }
    assert!(iter.next().expect("scan").is_none());
    assert!(iter.next().expect("scan past the end").is_none());
    drop(iter);
    for direction in [Direction::Ascending, Direction::Descending] {
        let mut inverted = snapshot.scan_in(Space::Rows, b"b".to_vec()..b"a".to_vec(), direction);
        assert!(inverted.next().expect("scan").is_none(), "an inverted range is empty");
        let mut beyond = snapshot.scan_in(Space::Rows, b"x".to_vec()..b"y".to_vec(), direction);
        assert!(beyond.next().expect("scan").is_none(), "nothing is there");
    }
}

fn multi_get_answers_in_the_order_asked(engine: &dyn Engine) {
    put(engine, Space::Addresses, &[("a", "1"), ("c", "3")]);
    let check = |keys: &[&[u8]], want: &[Option<&[u8]>]| {
        let found = engine.multi_get(Space::Addresses, keys).expect("multi_get");
        assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), want);
    };
    check(&[b"a", b"b", b"c"], &[Some(b"1"), None, Some(b"3")]);
    check(&[b"c", b"a", b"c", b"b"], &[Some(b"3"), Some(b"1"), Some(b"3"), None]);
    check(&[], &[]);
}

/// Keys that are near each other, overwritten and deleted, in memory and in files, asked for in order, twice, or in no
/// order.
fn multi_get_of_many_keys_is_what_each_of_them_is(engine: &dyn Engine) {
    let mut noise = 7_u32;
    let mut random = |n: u32| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (noise >> 8) % n
    };
    let mut now: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut before = None;
    for round in 0..12_u32 {
        let mut batch = WriteBatch::default();
        for _ in 0..300 {
            let key = random(1000).to_be_bytes().to_vec();
            if random(4) == 0 {
                batch.delete(Space::Rows, &key);
                now.remove(&key);
            } else {
                let value = round.to_le_bytes().to_vec();
                batch.put(Space::Rows, &key, &value);
                now.insert(key, value);
            }
        }
        engine.write(&batch).expect("write");
        if round == 6 {
            before = Some((engine.snapshot(), now.clone()));
        }
        if round % 5 == 4 {
            engine.flush().expect("flush");
        }
        let (snapshot, then) = before.clone().unwrap_or_else(|| (engine.snapshot(), now.clone()));
        for n_asked in [2, 31, 33, 400] {
            let mut asked: Vec<Vec<u8>> = (0..n_asked).map(|_| random(1100).to_be_bytes().to_vec()).collect();
            for is_sorted in [false, true] {
                if is_sorted {
                    asked.sort();
                }
                let keys: Vec<&[u8]> = asked.iter().map(Vec::as_slice).collect();
                let found = engine.multi_get(Space::Rows, &keys).expect("multi_get");
                let want = keys.iter().map(|key| now.get(*key).map(Vec::as_slice));
                assert!(found.iter().map(Option::as_deref).eq(want), "round {round}, {n_asked} keys");
                let found = snapshot.multi_get(Space::Rows, &keys).expect("multi_get");
                let want = keys.iter().map(|key| then.get(*key).map(Vec::as_slice));
                assert!(found.iter().map(Option::as_deref).eq(want), "round {round}, {n_asked} keys, before");
            }
        }
    }
}

fn ingested_files_cover_older_writes(engine: &dyn Engine) {
    put(engine, Space::Addresses, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let entries = [(&b"a"[..], Some(&b"2"[..])), (b"b", None), (b"d", Some(b"2"))];
    let file = engine.stage(Space::Addresses, &mut entries.into_iter()).expect("stage");
    assert_eq!(file.n_entries(), 3);
    engine.ingest(vec![file]).expect("ingest");
    assert_eq!(scan(&*engine.snapshot(), Space::Addresses, "", "z"), ["a=2", "c=1", "d=2"]);
    put(engine, Space::Addresses, &[("a", "3")]);
    assert_eq!(get(engine, Space::Addresses, "a").as_deref(), Some("3"), "later writes cover ingested files");
}

fn a_staged_file_is_invisible_and_can_be_dropped(engine: &dyn Engine) {
    let file = engine.stage(Space::Addresses, &mut [(&b"a"[..], Some(&b"2"[..]))].into_iter()).expect("stage");
    assert_eq!(get(engine, Space::Addresses, "a"), None);
    drop(file);
    let empty = engine.stage(Space::Addresses, &mut std::iter::empty()).expect("stage nothing");
    engine.ingest(vec![empty]).expect("ingest nothing");
    let unordered = [(&b"b"[..], None), (&b"a"[..], None)];
    assert!(engine.stage(Space::Addresses, &mut unordered.into_iter()).is_err(), "keys must ascend");
}

fn a_range_is_deleted_and_can_be_written_again(engine: &dyn Engine) {
    put(engine, Space::Rows, &[("a", "1"), ("b", "1"), ("c", "1")]);
    engine.delete_range(Space::Rows, b"a"..b"c").expect("delete_range");
    assert_eq!(scan(&*engine.snapshot(), Space::Rows, "", "z"), ["c=1"]);
    put(engine, Space::Rows, &[("a", "2")]);
    assert_eq!(scan(&*engine.snapshot(), Space::Rows, "", "z"), ["a=2", "c=1"]);
}

fn flush_changes_nothing_to_see(engine: &dyn Engine) {
    engine.flush().expect("flush nothing");
    put(engine, Space::Rows, &[("a", "1")]);
    put(engine, Space::Meta, &[("a", "1")]);
    engine.flush().expect("flush");
    assert_eq!(get(engine, Space::Rows, "a").as_deref(), Some("1"));
    assert_eq!(engine.stats().expect("stats").n_keys[Space::Meta as usize], 1);
}
