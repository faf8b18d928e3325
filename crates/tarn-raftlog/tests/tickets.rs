//! Waiting, calls, futures: is each told once, in order, and does nothing force a flush that need not?

#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tarn_raftlog::{Durability, Error, GroupId, Index, MemoryDisk, Options, RaftLog, Term, Ticket};

fn memory(seed: u64) -> (MemoryDisk, RaftLog) {
    let disk = MemoryDisk::new(seed);
    let options = Options { segment_bytes: 1 << 20, ..Options::new("/log") };
    let log = RaftLog::open_on(Arc::new(disk.clone()), options).unwrap().0;
    (disk, log)
}

fn submit(log: &RaftLog, group: u64) -> Ticket {
    let mut batch = log.batch();
    batch.append(GroupId(group), Term(1), log.last_index(GroupId(group)).next(), [&b"entry"[..]]);
    log.submit(batch).unwrap()
}

struct Unparker(std::thread::Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unparker(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn calls_come_once_each_in_the_order_of_their_batches() {
    let (_disk, log) = memory(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tickets: Vec<Ticket> = (0..40).map(|group| submit(&log, group)).collect();
    // Left in another order than the batches'.
    for (i, ticket) in tickets.into_iter().enumerate().rev() {
        let told = Arc::clone(&told);
        ticket.on_durable(move |done| told.lock().unwrap().push((i, done.is_ok())));
    }
    assert_eq!(*told.lock().unwrap(), vec![], "a call writes nothing");
    log.sync().unwrap();
    assert_eq!(*told.lock().unwrap(), (0..40).map(|i| (i, true)).collect::<Vec<_>>());
    // Of what is durable it is told at once.
    let ticket = submit(&log, 1);
    log.sync().unwrap();
    let late = Arc::clone(&told);
    ticket.on_durable(move |done| late.lock().unwrap().push((99, done.is_ok())));
    assert_eq!(told.lock().unwrap().last(), Some(&(99, true)));
}

#[test]
fn a_committer_serves_calls_and_futures_that_nobody_waits_for() {
    let (_disk, log) = memory(2);
    let committer = log.committer();
    let thread = std::thread::spawn(move || committer.run());
    let order = Arc::new(Mutex::new(Vec::new()));
    for round in 0..50u64 {
        let order = Arc::clone(&order);
        submit(&log, round % 3).on_durable(move |done| {
            done.unwrap();
            order.lock().unwrap().push(round);
        });
        block_on(submit(&log, 7)).unwrap();
    }
    assert_eq!(log.last_index(GroupId(7)), Index(50));
    // The future's batch came after the call's, so the calls are all made.
    assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    let last = submit(&log, 8);
    let counted = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&counted);
    last.on_durable(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    drop(log);
    thread.join().unwrap();
    assert_eq!(counted.load(Ordering::SeqCst), 1, "what is wanted is written before the committer goes");
}

#[test]
fn calls_may_submit_and_may_panic() {
    let (_disk, log) = memory(3);
    let log = Arc::new(log);
    let told = Arc::new(AtomicU64::new(0));
    let (inner, counter) = (Arc::clone(&log), Arc::clone(&told));
    submit(&log, 1).on_durable(move |_| {
        let counter = Arc::clone(&counter);
        submit(&inner, 2).on_durable(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
    });
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 1);
    submit(&log, 1).on_durable(|_| panic!("a host's mistake"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.sync()));
    assert!(panicked.is_err());
    let counter = Arc::clone(&told);
    submit(&log, 1).on_durable(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    log.sync().unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 2, "the calls behind it are made");
}

#[test]
fn lazy_batches_force_no_flush_and_ride_with_the_next() {
    let (disk, log) = memory(4);
    submit(&log, 1).wait().unwrap();
    let frames = log.metrics().frames;
    for commit_index in 0..20u8 {
        let mut batch = log.batch();
        batch.state(GroupId(1), &[commit_index]).purge(GroupId(1), Index(1), Term(1));
        let ticket = log.submit_with(batch, Durability::Lazy).unwrap();
        ticket.wait().unwrap();
        assert!(!ticket.is_durable());
    }
    assert_eq!(log.metrics().frames, frames);
    submit(&log, 1).wait().unwrap();
    assert_eq!(log.metrics().frames, frames + 1);
    drop(log);
    disk.cut_power();
    let log = RaftLog::open_on(Arc::new(disk), Options { segment_bytes: 1 << 20, ..Options::new("/log") }).unwrap().0;
    assert_eq!(log.state(GroupId(1)).as_deref(), Some(&[19u8][..]));
    assert_eq!((log.first_index(GroupId(1)), log.last_index(GroupId(1))), (Index(2), Index(2)));
}

#[test]
fn a_failure_is_told_to_calls_and_futures_too() {
    let (disk, log) = memory(5);
    let told = Arc::new(Mutex::new(Vec::new()));
    let ticket = submit(&log, 1);
    let future = submit(&log, 2);
    let note = |told: &Arc<Mutex<Vec<bool>>>| {
        let told = Arc::clone(told);
        move |done: Result<(), Error>| told.lock().unwrap().push(matches!(done, Err(Error::Undecided { .. })))
    };
    ticket.on_durable(note(&told));
    disk.fail_in(0);
    assert!(log.sync().is_err());
    assert_eq!(*told.lock().unwrap(), vec![true]);
    assert!(matches!(block_on(future), Err(Error::Undecided { .. })));
    let mut batch = log.batch();
    batch.state(GroupId(1), b"x");
    assert!(matches!(log.submit(batch).err(), Some(Error::Poisoned { .. })));
}

#[test]
fn a_log_that_does_not_flush_survives_the_process_and_ends_cleanly_after_a_power_cut() {
    for seed in 0..60u64 {
        let disk = MemoryDisk::new(seed);
        let options = Options { segment_bytes: 64 << 10, sync: Durability::Os, ..Options::new("/log") };
        let open = || RaftLog::open_on(Arc::new(disk.clone()), options.clone()).unwrap().0;
        let log = open();
        let syncs = disk.n_syncs();
        for i in 1..=30u64 {
            let mut batch = log.batch();
            batch.append(GroupId(1), Term(1), Index(i), [&vec![i as u8; 100 + 37 * i as usize][..]]);
            log.commit(batch).unwrap();
        }
        let metrics = log.metrics();
        assert!(metrics.written_bytes < metrics.entry_bytes + 30 * 300, "frames lie close together: {metrics:?}");
        assert!(disk.n_syncs() - syncs < 8, "only segments are flushed");
        drop(log);
        disk.kill_process();
        let log = open();
        assert_eq!(log.last_index(GroupId(1)), Index(30));
        for i in 31..=40u64 {
            let mut batch = log.batch();
            batch.append(GroupId(1), Term(1), Index(i), [&vec![i as u8; 3000][..]]);
            log.commit(batch).unwrap();
        }
        drop(log);
        disk.cut_power();
        let log = open();
        let last = log.last_index(GroupId(1));
        assert!((30..=40).contains(&last.0), "{last}");
        assert_eq!(log.entries(GroupId(1), Index(1)..last.next(), usize::MAX).unwrap().len() as u64, last.0);
    }
}
