//! What if the power goes at any one step: each write, flush, rename and removal of a log's life, one after another?
//!
//! A scripted life with everything in it — segments opened, sealed, renewed, removed, a long one, copies, a close — is
//! cut at every step; then its recovery is cut at every step as well. Of what is left, each file may be missing. Beside
//! failing devices, this takes the place of failpoints: nothing the log does to a disk lies between two steps.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use tarn_raftlog::{Disk, ErrorKind, GroupId, Index, MemoryDisk, Options, RaftLog, Result, Term};

fn options() -> Options {
    Options { segment_bytes: 32 << 10, cache_bytes: 4 << 10, ..Options::new("/log") }
}

fn open(disk: &MemoryDisk) -> Result<RaftLog> {
    RaftLog::open_on(Arc::new(disk.clone()), options()).map(|(log, _)| log)
}

fn payload(group: u64, index: u64) -> Vec<u8> {
    let len = if index.is_multiple_of(9) { 40_000 } else { 50 + (index * 131 % 3000) as usize };
    (0..len).map(|i| ((i as u64 ^ index).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8 ^ group as u8).collect()
}

/// What was acknowledged: the last index, and the highest purge, of each of two groups.
#[derive(Debug, Default, Clone, Copy)]
struct AcknowledgedState {
    last: [u64; 2],
    floor: [u64; 2],
}

/// Ends at the first error: the power is off.
fn life(disk: &MemoryDisk, acknowledged: &mut AcknowledgedState) -> Result<()> {
    let log = open(disk)?;
    for round in 1..=20u64 {
        for group in 0..2 {
            let id = GroupId(group as u64);
            let index = log.last_index(id).next();
            // The second group is rarely written and rarely purged: it is copied.
            if group == 1 && round % 4 != 0 {
                continue;
            }
            let mut batch = log.batch();
            batch.append(id, Term(1), index, [&payload(group as u64, index.0)[..]]).state(id, &index.0.to_le_bytes());
            let floor = index.0.saturating_sub(3);
            if group == 0 {
                batch.purge(id, Index(floor), Term(1));
            }
            log.commit(batch)?;
            acknowledged.last[group] = index.0;
            acknowledged.floor[group] = if group == 0 { floor } else { 0 };
        }
        if round % 5 == 0 {
            log.collect_garbage(u64::MAX)?;
        }
        if round == 11 {
            log.prepare()?;
        }
    }
    log.close()
}

fn check(disk: &MemoryDisk, acknowledged: AcknowledgedState, what: &str) {
    let log = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    for group in 0..2 {
        let id = GroupId(group as u64);
        let (first, last) = (log.first_index(id), log.last_index(id));
        assert!(
            (acknowledged.last[group]..=acknowledged.last[group] + 1).contains(&last.0),
            "{what}: {last} after {acknowledged:?}"
        );
        assert!(
            first.0 > acknowledged.floor[group] && first.0 <= acknowledged.floor[group] + 2,
            "{what}: {first} after {acknowledged:?}"
        );
        for entry in log.entries(id, first..last.next(), usize::MAX).unwrap() {
            assert_eq!(entry.payload, payload(group as u64, entry.index.0), "{what}");
        }
        if last.0 > 0 {
            assert_eq!(log.state(id).as_deref(), Some(&last.0.to_le_bytes()[..]), "{what}");
        }
    }
    drop(log);
    disk.kill_process();
    let report = RaftLog::verify_on(disk, Path::new("/log")).unwrap();
    assert!(report.is_sound(), "{what}: {report:?}");
}

#[test]
fn the_power_goes_at_every_step_of_a_life_and_of_its_recovery() {
    let whole = MemoryDisk::new(1);
    life(&whole, &mut AcknowledgedState::default()).unwrap();
    let n_steps = whole.n_steps();
    assert!(n_steps > 100, "{n_steps}");
    for step in 0..n_steps {
        let disk = MemoryDisk::new(step);
        let mut acknowledged = AcknowledgedState::default();
        disk.pull_plug_in(step);
        let error = life(&disk, &mut acknowledged).expect_err("the power goes before the end");
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
        disk.cut_power();
        // The recovery is cut at a step of its own, as long as it has so many.
        for cut in (step % 7..).step_by(7) {
            disk.pull_plug_in(cut);
            // The first collection shortens the segment that ended early.
            let done = open(&disk).and_then(|log| log.collect_garbage(u64::MAX)).is_ok();
            disk.cut_power();
            if done {
                break;
            }
        }
        check(&disk, acknowledged, &format!("cut at step {step}"));
    }
}

/// A life that ends with a close, a short one that ends with a kill, and another that is closed.
fn lives(disk: &MemoryDisk, acknowledged: &mut AcknowledgedState) -> Result<()> {
    life(disk, acknowledged)?;
    let log = open(disk)?;
    for _ in 0..2 {
        let mut batch = log.batch();
        let index = log.last_index(GroupId(0)).next();
        batch.append(GroupId(0), Term(1), index, [&payload(0, index.0)[..]]).state(GroupId(0), &index.0.to_le_bytes());
        batch.purge(GroupId(0), Index(index.0 - 3), Term(1));
        log.commit(batch)?;
        (acknowledged.last[0], acknowledged.floor[0]) = (index.0, index.0 - 3);
    }
    drop(log);
    life(disk, acknowledged)
}

/// Takes each file of a segment away. The log is refused, or nothing acknowledged was in it.
fn check_without_each(disk: &MemoryDisk, acknowledged: AcknowledgedState, what: &str) {
    for path in disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "seg")) {
        let disk = disk.fork(acknowledged.last[0]);
        Disk::remove(&disk, &path).unwrap();
        let Ok(log) = open(&disk) else { continue };
        for group in 0..2 {
            let last = log.last_index(GroupId(group as u64));
            assert!(last.0 >= acknowledged.last[group], "{what}, without {path:?}: {last} after {acknowledged:?}");
        }
    }
}

#[test]
fn wherever_the_power_goes_no_missing_file_is_overlooked() {
    let whole = MemoryDisk::new(1);
    lives(&whole, &mut AcknowledgedState::default()).unwrap();
    let n_steps = whole.n_steps();
    for (step, is_killed) in (0..n_steps).flat_map(|step| [(step, false), (step, true)]) {
        let what = format!("cut at step {step}, killed: {is_killed}");
        let disk = MemoryDisk::new(step);
        let mut acknowledged = AcknowledgedState::default();
        disk.pull_plug_in(step);
        let _ = lives(&disk, &mut acknowledged);
        if is_killed {
            disk.kill_process()
        } else {
            disk.cut_power()
        }
        check_without_each(&disk, acknowledged, &what);
        let cut = step % 31;
        disk.pull_plug_in(cut);
        let _ = open(&disk);
        disk.cut_power();
        let what = format!("{what}, its recovery cut at {cut}");
        check_without_each(&disk, acknowledged, &what);
        check(&disk, acknowledged, &what);
    }
}

#[test]
fn any_one_step_may_fail_without_the_power_going() {
    let whole = MemoryDisk::new(1);
    life(&whole, &mut AcknowledgedState::default()).unwrap();
    for step in 0..whole.n_steps() {
        let disk = MemoryDisk::new(step);
        let mut acknowledged = AcknowledgedState::default();
        disk.fail_in(step);
        let _ = life(&disk, &mut acknowledged);
        disk.cut_power();
        check(&disk, acknowledged, &format!("failed at step {step}"));
    }
}
