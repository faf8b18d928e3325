//! Is every flipped bit and every cut file noticed?
//!
//! A small log with two sealed segments and an open one, all record kinds in it. Each byte is changed and each file cut
//! at each length; then the log must refuse to open and name the damage, or show exactly what was written, less at most
//! the one last frame that looks like a torn write. Reads may refuse; they never return other bytes.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_raftlog::{Entry, ErrorKind, GroupId, Index, MemoryDisk, Options, RaftLog, Term};

const GROUPS: u64 = 3;

fn options() -> Options {
    Options { segment_bytes: 28 << 10, cache_bytes: 0, ..Options::new("/log") }
}

fn open(disk: &MemoryDisk) -> tarn_raftlog::Result<RaftLog> {
    RaftLog::open_on(Arc::new(disk.clone()), options()).map(|(log, _)| log)
}

/// What a reader sees of one group.
type GroupView = (Index, Vec<(Index, Term, Vec<u8>)>, Option<Vec<u8>>, Option<Vec<u8>>);

fn view(log: &RaftLog) -> tarn_raftlog::Result<Vec<GroupView>> {
    let group = |g| {
        let id = GroupId(g);
        let entries = log.entries(id, log.first_index(id)..log.last_index(id).next(), usize::MAX)?;
        let entry = |e: Entry| (e.index, e.term, e.payload.to_vec());
        let entries = entries.into_iter().map(entry).collect();
        Ok((log.first_index(id), entries, log.state(id).map(|s| s.to_vec()), log.get(id, b"k").map(|v| v.to_vec())))
    };
    (0..GROUPS).map(group).collect()
}

/// The disk of a killed process, and what it showed before its last commit and after it.
fn small_log() -> (MemoryDisk, Vec<GroupView>, Vec<GroupView>) {
    let disk = MemoryDisk::new(42);
    let log = open(&disk).unwrap();
    let mut before = Vec::new();
    for round in 0..8u64 {
        before = view(&log).unwrap();
        let mut batch = log.batch();
        for g in 0..GROUPS {
            let entries: Vec<Vec<u8>> =
                (0..3u64).map(|i| vec![(round * 16 + g * 5 + i) as u8; (i * 15 + g) as usize]).collect();
            let first = log.last_index(GroupId(g)).next();
            batch.append(GroupId(g), Term(round + 1), first, entries.iter().map(|e| &e[..]));
        }
        batch.state(GroupId(round % GROUPS), &[round as u8; 9]).put(GroupId(1), b"k", Some(&[round as u8; 5]));
        if round == 4 {
            batch.purge(GroupId(0), Index(5), Term(2)).truncate_after(GroupId(1), Index(8));
        }
        log.commit(batch).unwrap();
    }
    let after = view(&log).unwrap();
    drop(log);
    disk.kill_process();
    (disk, before, after)
}

fn check(disk: &MemoryDisk, before: &[GroupView], after: &[GroupView], what: &str) {
    let log = match open(disk) {
        Ok(log) => log,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid), "{what}: {error}");
            return;
        }
    };
    match view(&log) {
        Ok(seen) => assert!(seen == after || seen == before, "{what}: other data, {seen:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}"),
    }
}

fn files(disk: &MemoryDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let stored = |p: &PathBuf| p.extension().is_some_and(|e| e == "seg") || p.ends_with("FORMAT");
    disk.paths().into_iter().filter(stored).map(|p| (p.clone(), disk.read(&p).unwrap())).collect()
}

/// Bytes of a file that carry something: zeros that nothing reads are left to the coarse step.
fn positions(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|&at| bytes[at] != 0 || at % 4096 < 56 || at % 97 == 0 || at % 4096 > 4090).collect()
}

#[test]
fn every_flipped_byte_is_named_or_harmless() {
    let (disk, before, after) = small_log();
    let segments = files(&disk).iter().filter(|(p, _)| p.extension().is_some()).count();
    assert!(segments >= 3, "want sealed and open segments, have {segments}");
    for (path, bytes) in files(&disk) {
        for at in positions(&bytes) {
            let broken = disk.fork(at as u64);
            let mut copy = bytes.clone();
            copy[at] ^= 1 << (at % 8);
            broken.replace(&path, copy);
            check(&broken, &before, &after, &format!("{} flipped at {at}", path.display()));
        }
    }
}

#[test]
fn every_cut_is_named_or_harmless() {
    let (disk, before, after) = small_log();
    for (path, bytes) in files(&disk) {
        for len in (0..bytes.len()).filter(|len| len % 512 < 2 || len % 37 == 0) {
            let broken = disk.fork(len as u64);
            broken.replace(&path, bytes[..len].to_vec());
            check(&broken, &before, &after, &format!("{} cut to {len}", path.display()));
        }
    }
}

#[test]
fn zeroed_sectors_and_lost_files_are_named_or_harmless() {
    let (disk, before, after) = small_log();
    for (path, bytes) in files(&disk) {
        for start in (0..bytes.len()).step_by(512) {
            let broken = disk.fork(start as u64);
            let mut copy = bytes.clone();
            copy[start..start + 512].fill(0);
            broken.replace(&path, copy);
            check(&broken, &before, &after, &format!("{} zeroed at {start}", path.display()));
        }
    }
    let sealed: Vec<PathBuf> = files(&disk).into_iter().map(|f| f.0).filter(|p| p.extension().is_some()).collect();
    for path in &sealed[..sealed.len() - 2] {
        let broken = disk.fork(0);
        tarn_raftlog::Disk::remove(&broken, path).unwrap();
        let error = open(&broken).err().expect("a lost segment is missed");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn damage_in_the_middle_names_file_and_offset() {
    let (disk, _, _) = small_log();
    let open_segment = files(&disk).into_iter().map(|f| f.0).rfind(|p| {
        let bytes = disk.read(p).unwrap_or_default();
        p.extension().is_some() && bytes.len() == 28 << 10 && bytes[8192..8196] == *b"TFRM"
    });
    // The second-newest frame, wherever it is, is followed by one: it was acknowledged.
    let path = open_segment.expect("an open segment with frames");
    let mut bytes = disk.read(&path).unwrap();
    assert_eq!(bytes[12288..12292], *b"TFRM", "want two frames in the open segment");
    bytes[8192 + 60] ^= 1;
    disk.replace(&path, bytes);
    let error = open(&disk).err().expect("refused").to_string();
    assert!(error.contains(&format!("{} at byte 8192", path.display())), "{error}");
}

#[test]
fn verify_sees_what_opening_does_not_read() {
    let (disk, _, _) = small_log();
    let clean = RaftLog::verify_on(&disk, Path::new("/log")).unwrap();
    assert_eq!((clean.damages, clean.n_batches), (vec![], 8));
    let path = Path::new("/log/0000000000000001.seg");
    let mut bytes = disk.read(path).unwrap();
    bytes[8192 + 2] ^= 1; // a frame header in a sealed segment
    disk.replace(path, bytes);
    let report = RaftLog::verify_on(&disk, Path::new("/log")).unwrap();
    assert_eq!((report.damages.len(), &*report.damages[0].path, report.damages[0].offset), (1, path, 8192));
    assert_eq!(report.lost, vec![], "the seal tells what was there");
    assert!(open(&disk).is_ok());
}

#[test]
fn verify_names_what_was_lost() {
    let (disk, _, _) = small_log();
    let path = Path::new("/log/0000000000000001.seg");
    let sealed = disk.read(path).unwrap();
    let frames: Vec<usize> = (8192..sealed.len()).step_by(4096).filter(|&at| sealed[at..at + 4] == *b"TFRM").collect();
    assert!(frames.len() > 1, "{frames:?}");
    // In a sealed segment: all damaged frames, with what the seal says of them.
    let broken = disk.fork(1);
    let mut bytes = sealed.clone();
    frames.iter().for_each(|at| bytes[at + 60] ^= 1);
    broken.replace(path, bytes);
    let report = RaftLog::verify_on(&broken, Path::new("/log")).unwrap();
    let offsets: Vec<usize> = report.damages.iter().map(|damage| damage.offset as usize).collect();
    assert_eq!(offsets, frames);
    let first = "damaged frame in a sealed segment; it held entries 1..=3 of group 0, entries 1..=3 of group 1, \
                 entries 1..=3 of group 2, the record of group 0, the record of group 1";
    assert_eq!(report.damages[0].what, first);
    assert!(!report.is_sound());
    // In the open one: what the frame still tells, though an entry of it is not what was written.
    let open_segment = |(path, bytes): &(PathBuf, Vec<u8>)| {
        path.extension().is_some() && bytes.len() == 28 << 10 && bytes[8192..8196] == *b"TFRM"
    };
    let (path, bytes) = files(&disk).into_iter().rfind(open_segment).unwrap();
    let broken = disk.fork(2);
    let mut copy = bytes.clone();
    let last = 8192 + bytes[8192..12288].iter().rposition(|&byte| byte != 0).unwrap();
    copy[last] ^= 1;
    broken.replace(&path, copy);
    let report = RaftLog::verify_on(&broken, Path::new("/log")).unwrap();
    let damage = &report.damages[0];
    assert_eq!((&damage.path, damage.offset), (&path, 8192));
    assert!(damage.what.contains("the log goes on at byte 12288; it held entries "), "{}", damage.what);
    // A file that is gone, and what the rest of the log shows of it.
    let broken = disk.fork(3);
    tarn_raftlog::Disk::remove(&broken, Path::new("/log/0000000000000002.seg")).unwrap();
    let report = RaftLog::verify_on(&broken, Path::new("/log")).unwrap();
    let groups: Vec<GroupId> = report.lost.iter().map(|lost| lost.group).collect();
    assert!(report.damages[0].what.starts_with("this file is missing"), "{report:?}");
    assert_eq!((report.damages.len(), groups), (1, (0..GROUPS).map(GroupId).collect()), "{:?}", report.lost);
}

#[test]
fn a_closed_log_tells_every_damage() {
    let (disk, _, after) = small_log();
    open(&disk).unwrap().close().unwrap();
    let log = open(&disk).unwrap();
    let mut batch = log.batch();
    batch.append(GroupId(0), Term(9), log.last_index(GroupId(0)).next(), [&b"the last entry"[..]]);
    log.commit(batch).unwrap();
    let last = view(&log).unwrap();
    assert_ne!(last, after);
    log.close().unwrap();
    drop(log);
    let (path, bytes) = files(&disk).into_iter().rfind(|(_, b)| b.windows(14).any(|w| w == b"the last entry")).unwrap();
    for at in positions(&bytes) {
        let broken = disk.fork(at as u64);
        let mut copy = bytes.clone();
        copy[at] ^= 1 << (at % 8);
        broken.replace(&path, copy);
        check(&broken, &last, &last, &format!("{} flipped at {at}", path.display()));
    }
}
