//! An operator chooses to open a log that lost something: which groups may still be trusted?

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_raftlog::{ErrorKind, GroupId, Index, MemoryDisk, Options, RaftLog, Recovery, RecoveryReport, Term};

fn open(disk: &MemoryDisk, recovery: Recovery) -> tarn_raftlog::Result<(RaftLog, RecoveryReport)> {
    let options = Options { segment_bytes: 28 << 10, cache_bytes: 0, recovery, ..Options::new("/log") };
    RaftLog::open_on(Arc::new(disk.clone()), options)
}

/// Three groups, ten rounds, a frame each.
fn filled() -> MemoryDisk {
    let disk = MemoryDisk::new(9);
    let (log, _) = open(&disk, Recovery::Refuse).unwrap();
    for round in 1..=10u64 {
        let mut batch = log.batch();
        for group in 1..=3 {
            batch.append(GroupId(group), Term(1), Index(round), [&[group as u8; 50][..]]);
        }
        log.commit(batch).unwrap();
    }
    drop(log);
    disk.kill_process();
    disk
}

fn segments(disk: &MemoryDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|p| p.extension().is_some_and(|e| e == "seg")).collect()
}

/// Opens it refusing, then quarantined, then again as usual; heals group 1.
fn check(disk: &MemoryDisk, lost: std::ops::RangeInclusive<u64>) {
    let refused = open(disk, Recovery::Refuse).err().expect("refused");
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    let (log, report) = open(disk, Recovery::Quarantine).unwrap();
    assert_eq!(report.damaged.len(), 3, "{report:?}");
    drop(log);
    disk.kill_process();
    let marked = RaftLog::verify_on(disk, Path::new("/log")).unwrap().damaged;
    assert_eq!(marked, report.damaged);
    // The log knows it from now on, whoever opens it.
    let (log, report) = open(disk, Recovery::Refuse).unwrap();
    assert_eq!(report.damaged.len(), 3, "{report:?}");
    for &(group, from) in &report.damaged {
        assert!(lost.contains(&from.0), "group {group} is damaged from {from}, {lost:?} is lost");
        assert_eq!(log.check_group(group).unwrap_err().kind(), ErrorKind::Corrupt);
        if from.0 > 1 {
            assert_eq!(log.entries(group, Index(1)..from, usize::MAX).unwrap().len() as u64, from.0 - 1);
        }
        assert_eq!(log.entries(group, from..from.next(), 1).unwrap_err().kind(), ErrorKind::Corrupt);
        let mut batch = log.batch();
        batch.append(group, Term(2), log.last_index(group).next(), [&b"x"[..]]);
        assert_eq!(log.commit(batch).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let mut batch = log.batch();
    batch.destroy(GroupId(1)).append(GroupId(1), Term(2), Index(1), [&b"from a peer"[..]]);
    log.commit(batch).unwrap();
    log.check_group(GroupId(1)).unwrap();
    drop(log);
    disk.kill_process();
    let (log, report) = open(disk, Recovery::Refuse).unwrap();
    assert_eq!(report.damaged.len(), 2);
    assert_eq!(log.entries(GroupId(1), Index(1)..Index(2), 99).unwrap()[0].payload, "from a peer");
}

#[test]
fn a_damaged_frame_that_was_acknowledged() {
    let disk = filled();
    let path = segments(&disk).into_iter().rfind(|p| {
        let bytes = disk.read(p).unwrap();
        bytes.len() == 28 << 10 && &bytes[8192..8196] == b"TFRM" && &bytes[12288..12292] == b"TFRM"
    });
    let path = path.unwrap_or_else(|| segments(&disk)[0].clone());
    let mut bytes = disk.read(&path).unwrap();
    bytes[8192 + 100] ^= 1;
    // Whatever its seal may say.
    let end = bytes.len();
    bytes[end - 1] ^= 1;
    disk.replace(&path, bytes);
    check(&disk, 1..=10);
}

#[test]
fn a_lost_segment() {
    let disk = filled();
    tarn_raftlog::Disk::remove(&disk, &segments(&disk)[1]).unwrap();
    check(&disk, 4..=6);
}

#[test]
fn a_file_that_does_not_tell_what_it_is() {
    let disk = filled();
    let path = segments(&disk)[1].clone();
    let mut bytes = disk.read(&path).unwrap();
    bytes[..8192].fill(0);
    disk.replace(&path, bytes);
    check(&disk, 4..=6);
    assert!(disk.paths().iter().any(|p| p.extension().is_some_and(|e| e == "bad")));
}

#[test]
fn one_bad_header_or_a_bad_seal_is_no_loss() {
    for at in [0, 4096, 28 * 1024 - 100, 28 * 1024 - 4096 - 4050] {
        let disk = filled();
        let path = segments(&disk)[0].clone();
        let mut bytes = disk.read(&path).unwrap();
        bytes[at] ^= 1;
        disk.replace(&path, bytes);
        let (log, report) = open(&disk, Recovery::Refuse).unwrap();
        assert_eq!(report.damages.len(), 1, "flipped at {at}: {report:?}");
        for group in 1..=3 {
            assert_eq!(log.entries(GroupId(group), Index(1)..Index(11), usize::MAX).unwrap().len(), 10);
        }
        drop(log);
        disk.kill_process();
        let (_log, report) = open(&disk, Recovery::Refuse).unwrap();
        assert_eq!(report.damages, vec![], "it was made whole");
        assert_eq!(RaftLog::verify_on(&disk.fork(0), Path::new("/log")).unwrap().damages, vec![]);
    }
}
