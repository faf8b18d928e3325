//! Do many callers share commits, and does everyone learn the truth when one fails?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tarn_raftlog::{Compression, Error, ErrorKind, GroupId, Index, MemoryDisk, Options, RaftLog, Term};

fn memory(seed: u64, segment_bytes: u64) -> (MemoryDisk, RaftLog) {
    let disk = MemoryDisk::new(seed);
    let log = reopen(&disk, segment_bytes);
    (disk, log)
}

fn reopen(disk: &MemoryDisk, segment_bytes: u64) -> RaftLog {
    let options = Options { segment_bytes, ..Options::new("/log") };
    RaftLog::open_on(Arc::new(disk.clone()), options).unwrap().0
}

fn append(log: &RaftLog, group: u64, entry: &[u8]) -> tarn_raftlog::Result<()> {
    let mut batch = log.batch();
    batch.append(GroupId(group), Term(1), log.last_index(GroupId(group)).next(), [entry]);
    log.commit(batch)
}

#[test]
fn threads_share_one_log_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let compression = Compression::None;
    let options = Options { segment_bytes: 1 << 20, cache_bytes: 1 << 16, compression, ..Options::new(dir.path()) };
    let (log, _) = RaftLog::open(options.clone()).unwrap();
    let (n_threads, n_commits) = (8u64, 60u64);
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..n_threads {
            let (log, acknowledged) = (&log, &acknowledged);
            scope.spawn(move || {
                for i in 1..=n_commits {
                    let payload = vec![(thread * 31 + i) as u8; 5000 + i as usize];
                    let mut batch = log.batch();
                    batch.append(GroupId(thread), Term(i), Index(i), [&payload[..]]);
                    if i > 20 {
                        batch.purge(GroupId(thread), Index(i - 20), Term(i - 20));
                    }
                    log.commit(batch).unwrap();
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                    let lo = i.saturating_sub(15).max(1);
                    let read = log.entries(GroupId(thread), Index(lo)..Index(i + 1), usize::MAX).unwrap();
                    assert_eq!(read.len() as u64, i + 1 - lo);
                    assert_eq!(read[read.len() - 1].payload, payload);
                    if i % 20 == 0 {
                        log.collect_garbage(1 << 20).unwrap();
                    }
                }
            });
        }
    });
    let metrics = log.metrics();
    assert_eq!(
        metrics.batches - metrics.rewritten_bytes.min(1) * (metrics.batches - acknowledged.load(Ordering::Relaxed)),
        n_threads * n_commits
    );
    assert!(metrics.frames <= metrics.batches && metrics.segments_deleted > 0, "{metrics:?}");
    drop(log);
    assert_eq!(RaftLog::verify(dir.path()).unwrap().damages, vec![]);
    let (log, report) = RaftLog::open(options).unwrap();
    assert_eq!((report.n_groups, report.n_entries, report.torn_tail), (n_threads, n_threads * 20, None));
    for thread in 0..n_threads {
        let read = log.entries(GroupId(thread), Index(n_commits - 19)..Index(n_commits + 1), usize::MAX).unwrap();
        for entry in read {
            assert_eq!(entry.payload, vec![(thread * 31 + entry.index.0) as u8; 5000 + entry.index.0 as usize]);
            assert_eq!(entry.term, Term(entry.index.0));
        }
    }
}

#[test]
fn batches_submitted_together_cost_one_flush() {
    let (disk, log) = memory(1, 1 << 20);
    log.prepare().unwrap();
    let syncs = disk.n_syncs();
    let tickets: Vec<_> = (0..50)
        .map(|group| {
            let mut batch = log.batch();
            batch.append(GroupId(group), Term(1), Index(1), [&b"x"[..]]);
            log.submit(batch).unwrap()
        })
        .collect();
    assert_eq!(log.entries(GroupId(9), Index(1)..Index(2), 10).unwrap()[0].payload, "x"); // readable before durable
    assert!(!tickets[0].is_durable());
    tickets[49].wait().unwrap();
    assert!(tickets.iter().all(|t| t.is_durable()));
    assert_eq!(log.metrics().frames, 1);
    assert_eq!(disk.n_syncs() - syncs, 1);
}

#[test]
fn a_failed_write_poisons_and_nothing_acknowledged_is_lost() {
    let mut n_poisoned = 0;
    for steps in 0..30 {
        let (disk, log) = memory(steps, 32 << 10);
        append(&log, 1, b"safe").unwrap();
        disk.fail_in(steps);
        let mut kept = 1;
        // Making a segment may fail and is tried again; a failed write or flush of entries is not.
        let failed = (0..20).find_map(|_| match append(&log, 1, &[7; 3000]) {
            Ok(()) => {
                kept += 1;
                None
            }
            Err(error) => log.metrics().poisoned.then_some(error),
        });
        if let Some(error) = failed {
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "step {steps}: {error}");
            n_poisoned += 1;
            let mut batch = log.batch();
            batch.state(GroupId(1), b"later");
            assert!(matches!(log.submit(batch).err(), Some(Error::Poisoned { .. })));
            assert!(log.sync().is_err() && log.metrics().poisoned);
        }
        let read = log.entries(GroupId(1), Index(1)..Index(2), 10).unwrap();
        assert_eq!(read[0].payload, "safe"); // reads go on
        drop(log);
        disk.cut_power();
        let log = reopen(&disk, 32 << 10);
        assert!(log.last_index(GroupId(1)).0 >= kept, "step {steps}");
    }
    assert!(n_poisoned > 5);
}

#[test]
fn a_full_disk_refuses_entries_but_lets_purges_free_it() {
    let segment_bytes = 64 << 10;
    let (disk, log) = memory(3, segment_bytes);
    disk.set_space(4 * segment_bytes);
    let error = loop {
        if let Err(error) = append(&log, 1, &[1; 6000]) {
            break error;
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let last = log.last_index(GroupId(1));
    let mut batch = log.batch();
    batch.purge(GroupId(1), last, Term(1));
    log.commit(batch).unwrap();
    assert!(log.collect_garbage(0).unwrap().segments_deleted > 0);
    append(&log, 1, b"room again").unwrap();
    drop(log);
    let log = reopen(&disk, segment_bytes);
    assert_eq!((log.first_index(GroupId(1)), log.last_index(GroupId(1))), (last.next(), last.next()));
}

#[test]
fn a_group_nobody_purges_does_not_pin_the_disk() {
    let (disk, log) = memory(4, 64 << 10);
    for i in 1..400u64 {
        // Every tenth commit is of a group that is never purged: without copying, each segment would be kept for a few.
        if i % 10 == 1 {
            append(&log, 100 + i, b"never purged").unwrap();
        }
        append(&log, 2, &[i as u8; 5000]).unwrap();
        let mut batch = log.batch();
        batch.purge(GroupId(2), Index(i), Term(1));
        drop(log.submit(batch).unwrap());
        if i == 50 {
            assert_eq!(log.gc_blockers()[0].log_bytes, 12);
        }
        log.collect_garbage(u64::MAX).unwrap();
        assert!(log.metrics().n_segments <= 12, "{:?}", log.metrics());
    }
    assert!(log.metrics().rewritten_bytes > 0, "{:?}", log.metrics());
    log.sync().unwrap();
    drop(log);
    disk.cut_power();
    let log = reopen(&disk, 64 << 10);
    for i in (1..400).step_by(10) {
        assert_eq!(log.entries(GroupId(100 + i), Index(1)..Index(2), 100).unwrap()[0].payload, "never purged");
    }
    assert_eq!((log.first_index(GroupId(2)), log.last_index(GroupId(2))), (Index(400), Index(399)));
}

#[test]
fn restarts_do_not_pile_up_segments() {
    let disk = MemoryDisk::new(5);
    for i in 1..60u64 {
        let log = reopen(&disk, 64 << 10);
        append(&log, i % 3, b"one a run").unwrap();
        log.collect_garbage(u64::MAX).unwrap();
        assert!(log.metrics().n_segments < 22, "{:?}", log.metrics());
    }
    let log = reopen(&disk, 64 << 10);
    let n: u64 = (0..3).map(|g| log.last_index(GroupId(g)).0).sum();
    assert_eq!(n, 59);
}

#[test]
fn large_payloads_are_shared_not_copied() {
    let (_disk, log) = memory(6, 1 << 20);
    let payload = Bytes::from(vec![5; 8 << 20]);
    let mut batch = log.batch();
    batch.append_bytes(GroupId(1), Term(1), Index(1), [payload.clone(), Bytes::from_static(b"small")]);
    log.commit(batch).unwrap();
    let read = log.entries(GroupId(1), Index(1)..Index(3), usize::MAX).unwrap();
    assert_eq!(read[0].payload.as_ptr(), payload.as_ptr());
    assert_eq!(read[1].payload, "small");
    assert_eq!(log.entries(GroupId(1), Index(1)..Index(3), 1).unwrap().len(), 1);
}

#[test]
fn wrong_calls_change_nothing() {
    let (_disk, log) = memory(7, 1 << 20);
    append(&log, 1, b"a").unwrap();
    let mut batch = log.batch();
    batch.append(GroupId(1), Term(1), Index(2), [&b"b"[..]]).append(GroupId(1), Term(1), Index(9), [&b"gap"[..]]);
    assert!(matches!(log.submit(batch).err(), Some(Error::Gap { last: Index(2), .. })));
    assert_eq!(log.last_index(GroupId(1)), Index(1));
    let mut batch = log.batch();
    batch.purge(GroupId(1), Index(1), Term(1)).append(GroupId(1), Term(1), Index(1), [&b"x"[..]]);
    assert!(matches!(log.submit(batch).err(), Some(Error::BelowFloor { .. })));
    assert_eq!(log.first_index(GroupId(1)), Index(1));
    assert_eq!(log.entries(GroupId(1), Index(1)..Index(3), 9).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(log.entries(GroupId(5), Index(1)..Index(2), 9).unwrap_err().kind(), ErrorKind::NotFound);
    log.commit(log.batch()).unwrap();
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = RaftLog::open(Options::new(dir.path())).unwrap();
    assert!(matches!(RaftLog::open(Options::new(dir.path())).err(), Some(Error::Locked { .. })));
    assert!(matches!(RaftLog::verify(dir.path()).err(), Some(Error::Locked { .. })));
    drop(log);
    assert!(RaftLog::open(Options::new(dir.path())).is_ok());
}
