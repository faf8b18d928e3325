//! Both engines keep the contract; and each comes back from a crash with exactly what was made durable.

use std::path::Path;
use std::sync::Arc;

use tarn_rows::{Engine, MemoryEngine, RocksEngine, RocksOptions, Space, WriteBatch, contract};

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
