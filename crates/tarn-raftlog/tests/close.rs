//! What does closing promise: to what was submitted, to those who still write, and to the next open?

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use tarn_raftlog::{Durability, Error, ErrorKind, GroupId, Index, MemoryDisk, Options, RaftLog, RecoveryReport, Term};

fn open(disk: &MemoryDisk) -> (RaftLog, RecoveryReport) {
    RaftLog::open_on(Arc::new(disk.clone()), Options { segment_bytes: 256 << 10, ..Options::new("/log") }).unwrap()
}

fn append(log: &RaftLog, group: u64, payload: &[u8]) -> tarn_raftlog::Result<tarn_raftlog::Ticket> {
    let mut batch = log.batch();
    batch.append(GroupId(group), Term(1), log.last_index(GroupId(group)).next(), [payload]);
    log.submit(batch)
}

#[test]
fn the_next_open_scans_nothing_and_finds_all_that_was_submitted() {
    let disk = MemoryDisk::new(1);
    let (log, _) = open(&disk);
    for i in 0..20u8 {
        let _not_waited_for = append(&log, 1, &[i; 100]).unwrap();
    }
    let mut batch = log.batch();
    batch.state(GroupId(1), b"lazy");
    let _lazy = log.submit_with(batch, Durability::Lazy).unwrap();
    log.close().unwrap();
    drop(log);
    disk.cut_power();
    let (log, report) = open(&disk);
    assert_eq!((report.n_scanned, report.torn_tail, report.damages), (0, None, vec![]));
    assert_eq!((log.last_index(GroupId(1)), log.state(GroupId(1)).as_deref()), (Index(20), Some(&b"lazy"[..])));
    assert_eq!(log.entries(GroupId(1), Index(1)..Index(21), usize::MAX).unwrap()[19].payload, vec![19; 100]);
}

#[test]
fn a_log_without_a_commit_closes_too() {
    let disk = MemoryDisk::new(2);
    for _ in 0..2 {
        let (log, report) = open(&disk);
        assert_eq!((report.n_segments, report.n_scanned), (0, 0));
        log.close().unwrap();
    }
}

#[test]
fn a_closed_log_reads_and_refuses_to_write() {
    let (log, _) = open(&MemoryDisk::new(3));
    let _not_waited_for = append(&log, 1, b"entry").unwrap();
    log.close().unwrap();
    let refused = append(&log, 1, b"more").err().unwrap();
    assert!(matches!(refused, Error::Closed { .. }), "{refused}");
    assert_eq!((refused.kind(), refused.to_string().as_str()), (ErrorKind::Unavailable, "log in /log is closed"));
    assert_eq!(log.last_index(GroupId(1)), Index(1), "nothing of it was done");
    assert_eq!(log.entries(GroupId(1), Index(1)..Index(2), usize::MAX).unwrap()[0].payload, "entry");
    assert!(log.segments().iter().all(|segment| segment.sealed));
    log.sync().unwrap();
    log.collect_garbage(1 << 20).unwrap();
    log.close().unwrap();
}

#[test]
fn calls_left_with_the_log_are_made_and_the_committer_goes() {
    let (log, _) = open(&MemoryDisk::new(4));
    let told = Arc::new(AtomicU64::new(0));
    let count = |ticket: tarn_raftlog::Ticket| {
        let told = Arc::clone(&told);
        ticket.on_durable(move |done| {
            done.unwrap();
            told.fetch_add(1, Ordering::SeqCst);
        });
    };
    count(append(&log, 1, b"without a committer").unwrap());
    assert_eq!(told.load(Ordering::SeqCst), 0);
    log.close().unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 1);

    let (log, _) = open(&MemoryDisk::new(4));
    let committer = log.committer();
    let thread = std::thread::spawn(move || committer.run());
    count(append(&log, 1, b"with one").unwrap());
    log.close().unwrap();
    thread.join().unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 2);
}

#[test]
fn nothing_acknowledged_is_lost_to_a_close_beside_writers() {
    const WRITERS: u64 = 4;
    for seed in 0..8 {
        let disk = MemoryDisk::new(seed);
        let (log, _) = open(&disk);
        let (started, running) = mpsc::channel();
        let write = |group: u64, started: mpsc::Sender<()>| {
            let mut acknowledged = 0u64;
            loop {
                let payload = (acknowledged + 1).to_le_bytes();
                match append(&log, group, &payload) {
                    Ok(ticket) => ticket.wait().expect("what is taken becomes durable"),
                    Err(Error::Closed { .. }) => return acknowledged,
                    Err(error) => panic!("{error}"),
                }
                acknowledged += 1;
                if acknowledged == 10 * group {
                    started.send(()).unwrap();
                }
            }
        };
        let acknowledged: Vec<u64> = std::thread::scope(|scope| {
            let writers: Vec<_> = (1..=WRITERS)
                .map(|group| {
                    let started = started.clone();
                    scope.spawn(move || write(group, started))
                })
                .collect();
            (0..WRITERS).for_each(|_| running.recv().unwrap());
            let other = scope.spawn(|| log.close());
            log.close().unwrap();
            assert!(log.segments().iter().all(|segment| segment.sealed), "also for the one who came second");
            other.join().unwrap().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        drop(log);
        disk.cut_power();
        let (log, report) = open(&disk);
        assert_eq!((report.n_scanned, report.torn_tail), (0, None));
        for (group, n) in (1..=WRITERS).map(GroupId).zip(acknowledged) {
            assert_eq!(log.last_index(group), Index(n));
            let entries = log.entries(group, Index(1)..Index(n + 1), usize::MAX).unwrap();
            assert!(entries.iter().all(|entry| entry.payload[..] == entry.index.0.to_le_bytes()));
        }
    }
}

#[test]
fn a_close_that_fails_is_no_more_than_a_crash() {
    for step in 0..4 {
        let disk = MemoryDisk::new(5);
        let (log, _) = open(&disk);
        log.commit({
            let mut batch = log.batch();
            batch.append(GroupId(1), Term(1), Index(1), [&b"entry"[..]]);
            batch
        })
        .unwrap();
        disk.fail_in(step);
        assert!(log.close().is_err(), "step {step} of sealing");
        assert!(matches!(log.close().err(), Some(Error::Poisoned { .. })));
        assert!(append(&log, 1, b"more").is_err());
        assert_eq!(log.entries(GroupId(1), Index(1)..Index(2), usize::MAX).unwrap().len(), 1);
        drop(log);
        disk.cut_power();
        let (log, _) = open(&disk);
        assert_eq!(log.last_index(GroupId(1)), Index(1));
    }
}
