//! Both engines keep the contract; and each comes back from a crash with exactly what was made durable.

use std::path::Path;
use std::sync::Arc;

use tarn_rows::{Engine, MemoryEngine, Remedy, RocksEngine, RocksOptions, Space, WriteBatch, contract};

pub fn rocks(dir: &Path) -> RocksEngine {
    let options = RocksOptions { memory_budget_bytes: 16 << 20, background_jobs: 2, flush_on_close: false };
    RocksEngine::open(dir, &options).unwrap()
}

#[test]
fn the_memory_engine_keeps_the_contract() {
    contract::run(&mut || Arc::new(MemoryEngine::new()));
}

#[test]
fn rocksdb_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let mut n = 0;
    contract::run(&mut || {
        n += 1;
        Arc::new(rocks(&dir.path().join(n.to_string())))
    });
}

fn put(engine: &dyn Engine, space: Space, key: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::default();
    batch.put(space, key, value);
    batch.put(Space::Meta, b"last", key);
    engine.write(&batch).unwrap();
}

fn before_the_crash(engine: &dyn Engine) {
    put(engine, Space::Rows, b"a", b"1");
    engine.flush().unwrap();
    put(engine, Space::Rows, b"b", b"1");
    put(engine, Space::Rows, b"a", b"2");
    let file = engine.stage(Space::Addresses, &mut [(&b"x"[..], Some(&b"1"[..]))].into_iter()).unwrap();
    engine.ingest(vec![file]).unwrap();
    let lost = engine.stage(Space::Addresses, &mut [(&b"y"[..], Some(&b"1"[..]))].into_iter()).unwrap();
    std::mem::forget(lost);
}

fn after_the_crash(engine: &dyn Engine) {
    let get = |space, key: &[u8]| engine.get(space, key).unwrap().map(|bytes| bytes.to_vec());
    assert_eq!(get(Space::Rows, b"a"), Some(b"1".to_vec()));
    assert_eq!(get(Space::Rows, b"b"), None);
    assert_eq!(get(Space::Meta, b"last"), Some(b"a".to_vec()), "spaces come back as one cut");
    assert_eq!(get(Space::Addresses, b"x"), Some(b"1".to_vec()), "what was ingested is durable");
    assert_eq!(get(Space::Addresses, b"y"), None);
}

#[test]
fn the_memory_engine_forgets_what_was_not_flushed() {
    let engine = MemoryEngine::new();
    before_the_crash(&engine);
    after_the_crash(&engine.crash());
}

#[test]
fn rocksdb_forgets_what_was_not_flushed_and_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    {
        let engine = rocks(dir.path());
        before_the_crash(&engine);
    }
    let engine = rocks(dir.path());
    after_the_crash(&engine);
    assert_eq!(std::fs::read_dir(dir.path().join("staged")).unwrap().count(), 0);
}

#[test]
fn a_checkpoint_opens_as_an_engine() {
    let dir = tempfile::tempdir().unwrap();
    let engine = rocks(&dir.path().join("a"));
    put(&engine, Space::Rows, b"a", b"1");
    engine.checkpoint(&dir.path().join("b")).unwrap();
    put(&engine, Space::Rows, b"a", b"2");
    let copy = rocks(&dir.path().join("b"));
    assert_eq!(copy.get(Space::Rows, b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_snapshot_outlives_the_engine_handle() {
    let dir = tempfile::tempdir().unwrap();
    let engine = rocks(dir.path());
    put(&engine, Space::Rows, b"a", b"1");
    let snapshot = engine.snapshot();
    drop(engine);
    assert_eq!(snapshot.get(Space::Rows, b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// An engine's folder that can be taken away: no file can be made in it then. What is open stays open.
struct Folder(tempfile::TempDir);

impl Folder {
    fn take_away(&self) {
        std::fs::rename(self.0.path().join("db"), self.0.path().join("away")).unwrap();
    }

    fn bring_back(&self) {
        std::fs::rename(self.0.path().join("away"), self.0.path().join("db")).unwrap();
    }
}

#[test]
fn one_failed_flush_made_an_engine_refuse_writes_for_ever() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let engine = rocks(folder.0.path());
    put(&engine, Space::Rows, b"a", b"1");
    engine.flush().unwrap();
    assert_eq!(engine.fault(), None);

    folder.take_away();
    put(&engine, Space::Rows, b"b", b"1");
    engine.flush().unwrap_err();
    let fault = engine.fault().unwrap();
    assert_eq!(fault.remedy, Remedy::Heal, "{fault:?}");
    engine.heal().unwrap_err();
    let seen = engine.snapshot();
    assert_eq!(seen.get(Space::Rows, b"b").unwrap().as_deref(), Some(&b"1"[..]), "reads go on");

    folder.bring_back();
    engine.heal().unwrap();
    assert_eq!(engine.fault(), None);
    put(&engine, Space::Rows, b"c", b"1");
    drop(seen);
    drop(engine);
    let engine = rocks(folder.0.path());
    let has = |key: &[u8]| engine.get(Space::Rows, key).unwrap().is_some();
    assert!(has(b"a") && has(b"b"), "healed is flushed");
    assert!(!has(b"c"), "what came later is not");
}

/// What is durable after any order of writes, flushes, ingests, faults and heals is what the last flush that succeeded
/// had.
#[test]
fn an_engine_that_fails_and_heals_equals_a_model() {
    for seed in 1..=3u64 {
        let folder = Folder(tempfile::tempdir().unwrap());
        let engine = rocks(folder.0.path());
        let (mut now, mut durable) = (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
        let (mut is_away, mut n_faults, mut random) = (false, 0, seed);
        for step in 0..400u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("k{}", random >> 33 & 31).into_bytes();
            match random >> 48 & 63 {
                0 | 1 if !is_away && n_faults < 3 => {
                    (is_away, n_faults) = (true, n_faults + 1);
                    folder.take_away();
                }
                2..=4 if is_away => {
                    is_away = false;
                    folder.bring_back();
                    engine.heal().unwrap();
                    assert_eq!(engine.fault(), None);
                }
                5..=7 => {
                    if engine.flush().is_ok() {
                        durable = now.clone();
                    } else {
                        assert!(is_away && engine.fault().is_some(), "seed {seed}, step {step}");
                    }
                }
                8..=11 if !is_away => {
                    let file = engine.stage(Space::Addresses, &mut [(&key[..], Some(&b"x"[..]))].into_iter()).unwrap();
                    engine.ingest(vec![file]).unwrap();
                }
                _ => {
                    let mut batch = WriteBatch::default();
                    batch.put(Space::Rows, &key, &step.to_be_bytes());
                    match engine.write(&batch) {
                        Ok(()) => drop(now.insert(key, step.to_be_bytes().to_vec())),
                        // Each flush that failed holds a memtable: after some of them there is none left to write to.
                        Err(error) => assert!(engine.fault().is_some(), "seed {seed}, step {step}: {error}"),
                    }
                }
            }
        }
        let rows = |engine: &RocksEngine| {
            let snapshot = engine.snapshot();
            let mut scan = snapshot.scan(Space::Rows, vec![0]..vec![255]);
            let mut rows = std::collections::BTreeMap::new();
            while let Some((key, value)) = scan.next().unwrap() {
                rows.insert(key.to_vec(), value.to_vec());
            }
            rows
        };
        assert_eq!(rows(&engine), now, "seed {seed}");
        if is_away {
            folder.bring_back();
        }
        drop(engine);
        let found = rows(&rocks(folder.0.path()));
        // A heal flushes, too: what is there is of some moment since the last flush that the test saw.
        assert!(durable.keys().all(|key| found.contains_key(key)), "seed {seed}: {durable:?} {found:?}");
        for (key, value) in &found {
            assert!(value <= &now[key] && durable.get(key).is_none_or(|old| old <= value), "seed {seed}: {key:?}");
        }
    }
}
