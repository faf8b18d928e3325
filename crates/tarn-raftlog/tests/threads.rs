//! Sixty-four threads, a thousand groups, collection all the while: does every group hold exactly its own entries?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tarn_raftlog::{GroupId, Index, MemoryDisk, Options, RaftLog, Term};

const THREADS: u64 = 64;
const GROUPS: u64 = 1024;
const ROUNDS: u64 = 6;
const KEEP: u64 = 3;

fn payload(group: u64, index: u64) -> Vec<u8> {
    let word = (group << 20 | index).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    word.repeat(4 + (group + index) as usize % 30)
}

#[test]
fn groups_stay_apart_under_many_threads_and_collection() {
    let disk = MemoryDisk::new(1);
    let options = Options { segment_bytes: 128 << 10, cache_bytes: 100 << 10, ..Options::new("/log") };
    let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    let own: Vec<u64> = (0..GROUPS).filter(|group| group % THREADS == thread).collect();
                    for index in 1..=ROUNDS {
                        // Several groups a batch, in an order of the thread's own: locks are taken in theirs.
                        for chunk in own.chunks(1 + thread as usize % 5) {
                            let mut batch = log.batch();
                            for &group in chunk.iter().rev() {
                                batch.append(GroupId(group), Term(index), Index(index), [&payload(group, index)[..]]);
                                if index > KEEP {
                                    batch.purge(GroupId(group), Index(index - KEEP), Term(index - KEEP));
                                }
                            }
                            log.commit(batch).unwrap();
                        }
                        // A neighbour's group is read while it is written.
                        let other = GroupId((thread + 1) % GROUPS);
                        let (first, last) = (log.first_index(other), log.last_index(other));
                        for entry in log.entries(other, first..last.next(), usize::MAX).unwrap_or_default() {
                            assert_eq!(entry.payload, payload(other.0, entry.index.0));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                log.collect_garbage(64 << 10).unwrap();
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let metrics = log.metrics();
    assert!(metrics.segments_deleted > 0 && metrics.frames < metrics.batches, "{metrics:?}");
    check(&log);
    drop(log);
    disk.cut_power();
    check(&RaftLog::open_on(Arc::new(disk), options).unwrap().0);
}

fn check(log: &RaftLog) {
    for group in 0..GROUPS {
        let id = GroupId(group);
        assert_eq!((log.first_index(id), log.last_index(id)), (Index(ROUNDS - KEEP + 1), Index(ROUNDS)));
        let entries = log.entries(id, Index(ROUNDS - KEEP + 1)..Index(ROUNDS + 1), usize::MAX).unwrap();
        for entry in &entries {
            assert_eq!((entry.term.0, &entry.payload[..]), (entry.index.0, &payload(group, entry.index.0)[..]));
        }
        assert_eq!(log.log_bytes(id), entries.iter().map(|e| e.payload.len() as u64).sum::<u64>());
        let two = Index(ROUNDS - 1)..Index(ROUNDS + 9);
        assert_eq!(log.log_bytes_in(id, two), entries[1..].iter().map(|e| e.payload.len() as u64).sum::<u64>());
    }
}
