//! Any bytes as a segment file: the log is refused, or opens, answers reads and verifies, and opens again the same.
//!
//! The file is put under headers that are whole, because random bytes do not find a checksum; what follows is the
//! input. Shared by the test beside it and the fuzz target `raftlog`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use tarn_raftlog::{GroupId, Index, MemoryDisk, Options, RaftLog, Recovery, Term};

const FILE: &str = "/log/0000000000000001.seg";

fn options(recovery: Recovery) -> Options {
    Options { segment_bytes: 64 << 10, recovery, ..Options::new("/log") }
}

/// A log with one commit, and its segment's bytes.
pub fn base() -> &'static (MemoryDisk, Vec<u8>) {
    static BASE: OnceLock<(MemoryDisk, Vec<u8>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let disk = MemoryDisk::new(1);
        let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options(Recovery::Refuse)).expect("an empty disk");
        let mut batch = log.batch();
        batch.append(GroupId(1), Term(1), Index(1), [&b"entry"[..]]).state(GroupId(1), b"s");
        log.commit(batch).expect("a commit");
        drop(log);
        disk.kill_process();
        let bytes = disk.read(Path::new(FILE)).expect("the first segment");
        (disk, bytes)
    })
}

/// Puts the bytes anywhere behind the headers: over the frame, between, or over the end.
pub fn check(at: u16, quarantine: bool, bytes: &[u8]) {
    let (disk, segment) = base();
    let (disk, mut segment) = (disk.fork(1), segment.clone());
    let start = 8192 + usize::from(at) % (segment.len() - 8192);
    let n = bytes.len().min(segment.len() - start);
    segment[start..start + n].copy_from_slice(&bytes[..n]);
    disk.replace(Path::new(FILE), segment);
    let recovery = if quarantine { Recovery::Quarantine } else { Recovery::Refuse };
    let verified = RaftLog::verify_on(&disk, Path::new("/log"));
    let Ok((log, _)) = RaftLog::open_on(Arc::new(disk.clone()), options(recovery)) else {
        assert!(verified.is_err() || verified.is_ok_and(|report| !report.is_sound()), "refused, but called sound");
        return;
    };
    let ends = |log: &RaftLog| -> Vec<_> {
        log.groups().into_iter().map(|group| (group, log.first_index(group), log.last_index(group))).collect()
    };
    let before = ends(&log);
    for &(group, first, last) in &before {
        let _ = log.entries(group, first..last.next(), 1 << 20);
    }
    drop(log);
    disk.kill_process();
    let _ = RaftLog::verify_on(&disk, Path::new("/log"));
    let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options(recovery)).expect("what opened once opens again");
    assert_eq!(before, ends(&log));
}
