//! Two frames in flight: which of them may survive a power cut, and who is told when?
//!
//! The simulated disk holds writes back, so that a test decides which ends first and where the power goes. Files are
//! used again all the time: what an earlier use left in them lies where torn writes leave it.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tarn_raftlog::{Error, GroupId, Index, MemoryDisk, Options, RaftLog, RecoveryReport, Term};

const GROUP: GroupId = GroupId(1);

fn open(disk: &MemoryDisk, segment_bytes: u64) -> (RaftLog, RecoveryReport) {
    let options = Options { segment_bytes, cache_bytes: 0, ..Options::new("/log") };
    RaftLog::open_on(Arc::new(disk.clone()), options).unwrap()
}

/// Content that says which entry it is, and that LZ4 cannot shorten.
fn payload(index: u64, len: usize) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(index);
    (0..len).map(|_| random.random()).collect()
}

fn read(log: &RaftLog) -> Vec<(u64, Vec<u8>)> {
    let (first, last) = (log.first_index(GROUP), log.last_index(GROUP));
    let entries = log.entries(GROUP, first..last.next(), usize::MAX).unwrap();
    entries.into_iter().map(|e| (e.index.0, e.payload.to_vec())).collect()
}

/// Waits, without sleeping, until so many frames are written.
fn until_frames(log: &RaftLog, n: u64) {
    while log.metrics().frames < n {
        std::thread::yield_now();
    }
}

/// One life of a log: commits, then two frames in flight (and a third queued), of which some end before the power goes.
fn life(disk: &MemoryDisk, random: &mut StdRng, segment_bytes: u64, next: &mut u64, lens: &mut Vec<usize>) {
    let (log, _) = open(disk, segment_bytes);
    let mut append = |log: &RaftLog, random: &mut StdRng| {
        let len = if random.random_bool(0.2) { random.random_range(4000..9000) } else { random.random_range(0..1500) };
        let mut batch = log.batch();
        batch.append(GROUP, Term(1), Index(*next), [&payload(*next, len)[..]]);
        let ticket = log.submit(batch).unwrap();
        lens.resize(*next as usize, 0);
        lens.push(len);
        *next += 1;
        ticket
    };
    for _ in 0..random.random_range(0..6) {
        append(&log, random).wait().unwrap();
    }
    let keep = random.random_range(0..8);
    let upto = log.last_index(GROUP).0.saturating_sub(keep);
    let mut batch = log.batch();
    batch.purge(GROUP, Index(upto), Term(1));
    log.commit(batch).unwrap();
    log.collect_garbage(u64::MAX).unwrap();
    // Room for what follows, so that it is written side by side and not across a seal.
    log.prepare().unwrap();
    let base = log.last_index(GROUP).0;
    let (frames, n_segments) = (log.metrics().frames, log.segments().len());

    disk.hold_writes(true);
    let acknowledged = Mutex::new(base);
    let fates = std::thread::scope(|scope| {
        let wait = |ticket: tarn_raftlog::Ticket, index: u64| {
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                let done = ticket.wait();
                if done.is_ok() {
                    let mut acknowledged = acknowledged.lock().unwrap();
                    *acknowledged = index.max(*acknowledged);
                }
                done
            })
        };
        let first = append(&log, random);
        let waiters = vec![wait(first, base + 1)];
        disk.wait_held(1);
        let second = append(&log, random);
        let third = append(&log, random);
        // Where a segment is opened, its frames are not written side by side and seals are held too: only cut.
        let choice = if log.segments().len() == n_segments { random.random_range(0..4) } else { 0 };
        match choice {
            0 => disk.cut_power(),
            1 => {
                // The first alone.
                disk.release(0);
                until_frames(&log, frames + 1);
                drop((second, third));
                disk.cut_power();
            }
            choice => {
                let mut waiters = waiters;
                waiters.push(wait(second, base + 3));
                disk.wait_held(2);
                if choice == 2 {
                    // The second ends first: nobody may be told.
                    disk.release(1);
                    until_frames(&log, frames + 1);
                    assert_eq!(*acknowledged.lock().unwrap(), base);
                    assert!(!third.is_durable());
                } else {
                    disk.release(0);
                    until_frames(&log, frames + 1);
                }
                disk.cut_power();
                return waiters.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>();
            }
        }
        waiters.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(fates.iter().all(|f| f.is_ok() || matches!(f, Err(Error::Undecided { .. }))));
    drop(log);

    let (log, _) = open(disk, segment_bytes);
    let found = log.last_index(GROUP).0;
    assert!((*acknowledged.lock().unwrap()..*next).contains(&found), "{found} of {base}..{next}");
    let entries = read(&log);
    for (index, bytes) in &entries {
        assert_eq!(*bytes, payload(*index, lens[*index as usize]), "entry {index}");
    }
    // What was cut off does not come back.
    drop(log);
    disk.kill_process();
    let (log, report) = open(disk, segment_bytes);
    assert_eq!((read(&log), report.torn_tail), (entries, None));
    drop(log);
    disk.kill_process();
    let report = RaftLog::verify_on(disk, std::path::Path::new("/log")).unwrap();
    assert_eq!(report.damages, vec![]);
    *next = found + 1;
}

#[test]
fn a_power_cut_leaves_a_prefix_whichever_of_two_writes_ended() {
    for seed in 0..120 {
        let disk = MemoryDisk::new(seed);
        let mut random = StdRng::seed_from_u64(seed);
        let segment_bytes = random.random_range(8..24) * 4096;
        let (mut next, mut lens) = (1, Vec::new());
        for _ in 0..6 {
            life(&disk, &mut random, segment_bytes, &mut next, &mut lens);
        }
    }
}

#[test]
fn the_second_frame_is_told_after_the_first() {
    let disk = MemoryDisk::new(1);
    let (log, _) = open(&disk, 1 << 20);
    let frames = log.metrics().frames;
    let told = Arc::new(Mutex::new(Vec::new()));
    let submit = |index: u64| {
        let mut batch = log.batch();
        batch.append(GROUP, Term(1), Index(index), [&payload(index, 100)[..]]);
        log.submit(batch).unwrap()
    };
    let note = |index: u64| {
        let told = Arc::clone(&told);
        move |done: tarn_raftlog::Result<()>| told.lock().unwrap().push((index, done.is_ok()))
    };
    disk.hold_writes(true);
    std::thread::scope(|scope| {
        let first = submit(1);
        let first = scope.spawn(move || first.wait());
        disk.wait_held(1);
        let second = submit(2);
        submit(3).on_durable(note(3));
        let second = scope.spawn(move || second.wait());
        disk.wait_held(2);
        disk.release(1);
        until_frames(&log, frames + 1);
        assert_eq!(*told.lock().unwrap(), vec![]);
        assert!(!first.is_finished() && !second.is_finished());
        disk.hold_writes(false);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    // Whoever ended the first frame calls, perhaps after the waiters have gone.
    log.sync().unwrap();
    submit(4).on_durable(note(4));
    log.sync().unwrap();
    while told.lock().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    assert_eq!(*told.lock().unwrap(), vec![(3, true), (4, true)]);
}

#[test]
fn a_failed_write_fails_what_was_written_beside_it_only_if_it_came_later() {
    let disk = MemoryDisk::new(2);
    let (log, _) = open(&disk, 1 << 20);
    disk.hold_writes(true);
    std::thread::scope(|scope| {
        let mut batch = log.batch();
        batch.append(GROUP, Term(1), Index(1), [&b"first"[..]]);
        let first = log.submit(batch).unwrap();
        let first = scope.spawn(move || first.wait());
        disk.wait_held(1);
        let mut batch = log.batch();
        batch.append(GROUP, Term(1), Index(2), [&b"second"[..]]);
        let second = log.submit(batch).unwrap();
        let second = scope.spawn(move || second.wait());
        disk.wait_held(2);
        // The next step is the first frame's write; the second is written after it, in vain.
        disk.fail_in(0);
        disk.release(0);
        assert!(matches!(first.join().unwrap(), Err(Error::Undecided { .. })));
        disk.hold_writes(false);
        assert!(matches!(second.join().unwrap(), Err(Error::Undecided { .. })));
    });
    assert!(log.metrics().poisoned);
    assert!(matches!(log.sync(), Err(Error::Undecided { .. })));
    drop(log);
    disk.cut_power();
    let (log, _) = open(&disk, 1 << 20);
    assert_eq!(log.last_index(GROUP), Index(0), "the second frame has nothing to stand on");
}
