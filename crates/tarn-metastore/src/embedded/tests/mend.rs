//! Does a store go on by itself after a sync that failed, from what was answered?

use super::*;

fn create(metastore: &Embedded, name: &str) -> Result<()> {
    runtime().block_on(metastore.create_table(contract::sample_schema(name))).map(drop)
}

/// As a failed sync leaves it.
fn stop(metastore: &Embedded) {
    metastore.inner.writer.lock().stopped = Some(StopReason::Unsynced);
}

fn maintain(metastore: &Embedded) -> Result<()> {
    runtime().block_on(metastore.maintain(1)).map(drop)
}

/// A store with one table, and what its log would be with one more.
fn with_a_write_that_may_be_there() -> (Embedded, TempDir, Vec<u8>) {
    let (metastore, dir) = made();
    create(&metastore, "kept").unwrap();
    let ahead = copy(dir.path());
    create(&open(ahead.path()).unwrap().0, "unanswered").unwrap();
    let whole = fs::read(last_log(ahead.path())).unwrap();
    (metastore, dir, whole)
}

#[test]
fn a_store_whose_sync_failed_takes_writes_again_without_what_was_not_answered() {
    let (_, _, whole) = with_a_write_that_may_be_there();
    for n_bytes in (0..=whole.len()).step_by(7) {
        let (metastore, dir, whole) = with_a_write_that_may_be_there();
        let answered = describe(&metastore);
        // Of the unanswered write, the disk has any part.
        let log = last_log(dir.path());
        let file = OpenOptions::new().write(true).open(&log).unwrap();
        let from = fs::read(&log).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let part = &whole[from.min(n_bytes)..n_bytes.min(whole.len())];
        std::os::unix::fs::FileExt::write_all_at(&file, part, from.min(n_bytes) as u64).unwrap();
        stop(&metastore);
        let refused = create(&metastore, "refused").unwrap_err();
        assert!(matches!(refused, Error::Stopped { .. }), "{refused}");

        maintain(&metastore).unwrap();
        assert_eq!(describe(&metastore), answered);
        create(&metastore, "later").unwrap();
        let now = describe(&metastore);
        drop(metastore);
        let again = open(dir.path()).unwrap().0;
        assert_eq!(describe(&again), now, "{n_bytes} bytes were there");
    }
}

#[test]
fn a_store_whose_new_log_could_not_be_synced_goes_on_in_the_old_one() {
    let (metastore, dir, _) = with_a_write_that_may_be_there();
    let next = metastore.inner.writer.lock().log.last_seq() + 1;
    drop(UnnumberedLog::create(dir.path(), "test").unwrap().install(next).unwrap());
    stop(&metastore);
    maintain(&metastore).unwrap();
    create(&metastore, "later").unwrap();
    let now = describe(&metastore);
    drop(metastore);
    assert_eq!(describe(&open(dir.path()).unwrap().0), now);
}

#[test]
fn an_empty_log_whose_sync_failed_is_begun_anew() {
    let (metastore, dir) = made();
    stop(&metastore);
    maintain(&metastore).unwrap();
    create(&metastore, "first").unwrap();
    let now = describe(&metastore);
    drop(metastore);
    assert_eq!(describe(&open(dir.path()).unwrap().0), now);
}

#[test]
fn a_store_takes_no_writes_while_the_disk_does_not_have_what_was_answered() {
    let (metastore, dir, _) = with_a_write_that_may_be_there();
    let log = last_log(dir.path());
    let whole = fs::read(&log).unwrap();
    let mut damaged = whole.clone();
    damaged[HEADER as usize + 20] ^= 1;
    fs::write(&log, &damaged).unwrap();
    stop(&metastore);
    for _ in 0..2 {
        let error = maintain(&metastore).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(create(&metastore, "refused").is_err());
    }
}
