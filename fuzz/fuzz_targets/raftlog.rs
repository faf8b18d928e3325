//! Any bytes as a segment file: the log is refused, or opens, answers reads and verifies, and opens again the same.
//!
//! The file is put under headers that are whole, because random bytes do not find a checksum; what follows is the input.
#![no_main]

use std::path::Path;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use tarn_raftlog::{GroupId, MemoryDisk, Options, RaftLog, Recovery};

const FILE: &str = "/log/0000000000000001.seg";

fn options(recovery: Recovery) -> Options {
    Options { segment_bytes: 64 << 10, recovery, ..Options::new("/log") }
}

/// A log with one commit, and its segment's bytes.
fn base() -> &'static (MemoryDisk, Vec<u8>) {
    static BASE: OnceLock<(MemoryDisk, Vec<u8>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let disk = MemoryDisk::new(1);
        let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options(Recovery::Refuse)).expect("an empty disk");
        let mut batch = log.batch();
        batch.append(GroupId(1), tarn_raftlog::Term(1), tarn_raftlog::Index(1), [&b"entry"[..]]).state(GroupId(1), b"s");
        log.commit(batch).expect("a commit");
        drop(log);
        disk.kill_process();
        let bytes = disk.read(Path::new(FILE)).expect("the first segment");
        (disk, bytes)
    })
}

fuzz_target!(|input: (u16, bool, &[u8])| {
    let (at, quarantine, bytes) = input;
    let (disk, segment) = base();
    let (disk, mut segment) = (disk.fork(1), segment.clone());
    // The input goes anywhere behind the headers: over the frame, between, or over the end.
    let start = 8192 + usize::from(at) % (segment.len() - 8192);
    let n = bytes.len().min(segment.len() - start);
    segment[start..start + n].copy_from_slice(&bytes[..n]);
    disk.replace(Path::new(FILE), segment);
    let recovery = if quarantine { Recovery::Quarantine } else { Recovery::Refuse };
    let Ok((log, _)) = RaftLog::open_on(Arc::new(disk.clone()), options(recovery)) else { return };
    let ends: Vec<_> = log.groups().into_iter().map(|group| (group, log.first_index(group), log.last_index(group))).collect();
    for &(group, first, last) in &ends {
        let _ = log.entries(group, first..last.next(), 1 << 20);
    }
    drop(log);
    disk.kill_process();
    let _ = RaftLog::verify_on(&disk, Path::new("/log"));
    let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options(recovery)).expect("what opened once opens again");
    let again: Vec<_> = log.groups().into_iter().map(|group| (group, log.first_index(group), log.last_index(group))).collect();
    assert_eq!(ends, again);
});
