//! What does the log hold on disk, and what does it copy to hold no more?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use tarn_raftlog::{Compression, GroupId, Index, MemoryDisk, Options, RaftLog, Term};

const SEGMENT_BYTES: u64 = 256 << 10;
const KEEP: u64 = 120;

struct Load {
    log: RaftLog,
    next: Vec<u64>,
    payload: Vec<u8>,
}

impl Load {
    fn new(groups: usize) -> Load {
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            cache_bytes: 64 << 10,
            compression: Compression::None,
            ..Options::new("/log")
        };
        let (log, _) = RaftLog::open_on(Arc::new(MemoryDisk::new(1)), options).unwrap();
        Load { log, next: vec![1; groups], payload: vec![7; 1024] }
    }

    /// One commit over `groups`; those that `purged` names keep their newest entries only.
    fn round(&mut self, groups: impl Iterator<Item = usize>, purged: impl Fn(usize) -> bool) {
        let mut batch = self.log.batch();
        for group in groups {
            let (id, index) = (GroupId(group as u64), self.next[group]);
            batch.append(id, Term(1), Index(index), [&self.payload[..]]);
            if purged(group) && index > KEEP && index.is_multiple_of(20) {
                batch.purge(id, Index(index - KEEP), Term(1));
            }
            self.next[group] += 1;
        }
        self.log.commit(batch).unwrap();
    }

    fn check_space(&self, round: u64) {
        let m = self.log.metrics();
        let bound = m.live_bytes * 3 / 2 + 4 * SEGMENT_BYTES;
        assert!(m.disk_bytes <= bound, "round {round}: {} bytes on disk, allowed {bound}: {m:?}", m.disk_bytes);
    }
}

#[test]
fn groups_written_seldom_and_never_purged_cost_little_copying() {
    let mut load = Load::new(20);
    for round in 0..3000u64 {
        let is_cold = |group: usize| group.is_multiple_of(5);
        load.round((0..20).filter(|&g| !is_cold(g) || round.is_multiple_of(20)), |g| !is_cold(g));
        if round.is_multiple_of(4) {
            load.log.collect_garbage(1 << 20).unwrap();
            load.check_space(round);
        }
    }
    let m = load.log.metrics();
    let copied = m.rewritten_bytes * 1000 / m.entry_bytes;
    assert!(copied <= 100, "{copied} per mille of what was written was copied: {m:?}");
    assert!(m.segments_created < m.segments_deleted / 3, "two files of three are used again: {m:?}");
}

#[test]
fn a_log_overwritten_ten_times_holds_what_lives() {
    let mut load = Load::new(16);
    for round in 0..KEEP * 10 {
        load.round(0..16, |_| true);
        if round.is_multiple_of(4) {
            load.log.collect_garbage(1 << 20).unwrap();
            load.check_space(round);
        }
    }
    assert_eq!(load.log.metrics().rewritten_bytes, 0, "nothing has to be moved");
}

/// The first segment of a log is short; batches that do not fit it must not keep it in the way of those that do.
#[test]
fn batches_longer_than_the_first_segment_make_few_files() {
    let options = Options { segment_bytes: 8 << 20, compression: Compression::None, ..Options::new("/log") };
    let (log, _) = RaftLog::open_on(Arc::new(MemoryDisk::new(1)), options).unwrap();
    let (group, payload) = (GroupId(1), vec![7; 5 << 20]);
    for index in 1..=20 {
        let mut batch = log.batch();
        batch.append(group, Term(1), Index(index), [&payload[..]]);
        batch.purge(group, Index(index - 1), Term(1));
        log.commit(batch).unwrap();
        let m = log.metrics();
        assert!(m.disk_bytes <= m.live_bytes * 3 / 2 + 4 * (8 << 20), "{index}: {m:?}");
    }
}

#[test]
fn a_segment_that_a_crash_ended_early_is_shortened() {
    let disk = MemoryDisk::new(1);
    let open = || {
        let options = Options { segment_bytes: 1 << 20, ..Options::new("/log") };
        RaftLog::open_on(Arc::new(disk.clone()), options).unwrap()
    };
    let (group, payload) = (GroupId(1), vec![7; 40_000]);
    for life in 1..=10 {
        let (log, report) = open();
        assert_eq!(report.n_entries, life - 1);
        let mut batch = log.batch();
        batch.append(group, Term(1), Index(life), [&payload[..]]);
        log.commit(batch).unwrap();
        drop(log);
        disk.kill_process();
        let (log, _) = open();
        log.collect_garbage(u64::MAX).unwrap();
        let sealed = log.segments().iter().filter(|s| s.sealed).map(|s| s.size_bytes).sum::<u64>();
        assert!(sealed < life * 3 * 40_000, "life {life}: {sealed} bytes in {:?}", log.segments());
        let entries = log.entries(group, Index(1)..Index(life + 1), usize::MAX).unwrap();
        assert!(entries.iter().all(|entry| entry.payload == payload));
        drop(log);
        disk.kill_process();
    }
}
