//! A file of the log was gone for a start, and is put back. Is everything there again?
//!
//! A log refuses to open without it, and changes nothing; or, if nothing lived in it, opens and goes on. Whatever an
//! open made, it must not stand in the way of the file.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_raftlog::{Disk, ErrorKind, GroupId, Index, MemoryDisk, Options, RaftLog, Result, Term};

const GROUP: GroupId = GroupId(1);

fn open(disk: &MemoryDisk) -> Result<RaftLog> {
    let options = Options { segment_bytes: 28 << 10, cache_bytes: 0, ..Options::new("/log") };
    RaftLog::open_on(Arc::new(disk.clone()), options).map(|(log, _)| log)
}

fn append(log: &RaftLog) {
    let mut batch = log.batch();
    let index = log.last_index(GROUP).next();
    batch.append(GROUP, Term(1), index, [&index.0.to_le_bytes()[..]]);
    log.commit(batch).unwrap();
}

/// A log of so many entries, one a frame, whose process was killed after `last`, while it made a file: names go on
/// behind that file's, so no later file gets the name of one that is gone.
fn killed_after(n_entries: u64, last: impl FnOnce(&RaftLog) -> Result<()>) -> MemoryDisk {
    let disk = MemoryDisk::new(n_entries);
    let log = open(&disk).unwrap();
    (0..n_entries).for_each(|_| append(&log));
    last(&log).unwrap();
    drop(log);
    disk.kill_process();
    put(&disk, Path::new("/log/0000000000000050.tmp"), vec![0; 4096]);
    disk
}

fn killed(n_entries: u64) -> MemoryDisk {
    killed_after(n_entries, |_| Ok(()))
}

fn killed_with_spares(n_entries: u64) -> MemoryDisk {
    killed_after(n_entries, RaftLog::prepare)
}

fn closed(n_entries: u64) -> MemoryDisk {
    killed_after(n_entries, RaftLog::close)
}

fn segments(disk: &MemoryDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "seg")).collect()
}

/// Puts a file there, whether or not one has the name.
fn put(disk: &MemoryDisk, path: &Path, bytes: Vec<u8>) {
    disk.create(path, 0).unwrap();
    disk.replace(path, bytes);
}

/// The segment number of the file's header.
fn number(disk: &MemoryDisk, path: &Path) -> u64 {
    u64::from_le_bytes(disk.read(path).unwrap()[24..32].try_into().unwrap())
}

fn has_frames(disk: &MemoryDisk, path: &Path) -> bool {
    let bytes = disk.read(path).unwrap();
    bytes[8192..8196] == *b"TFRM" && bytes[8200..8208] == bytes[32..40]
}

/// The newest of the segments with frames.
fn newest(disk: &MemoryDisk) -> PathBuf {
    let with_frames = segments(disk).into_iter().filter(|path| has_frames(disk, path));
    with_frames.max_by_key(|path| number(disk, path)).unwrap()
}

/// Opens it, if it opens, and lets it be as a server that refuses to start.
fn open_and_leave(disk: &MemoryDisk) {
    drop(open(disk));
    disk.kill_process();
}

fn check_holds(disk: &MemoryDisk, n_entries: u64, what: &str) {
    let log = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(log.last_index(GROUP), Index(n_entries), "{what}");
    if n_entries > 0 {
        let entries = log.entries(GROUP, Index(1)..Index(n_entries + 1), usize::MAX).unwrap();
        assert!(entries.iter().all(|entry| entry.payload[..] == entry.index.0.to_le_bytes()), "{what}");
    }
    drop(log);
    disk.kill_process();
}

/// Takes each segment file, and each two of them, away for so many starts, puts them back, and goes on with the log.
fn check_each(disk: &MemoryDisk, n_entries: u64, n_starts: usize, what: &str) {
    let paths = segments(disk);
    let twos = paths.iter().enumerate().flat_map(|(i, one)| paths[i..].iter().map(move |other| [one, other]));
    for gone in twos {
        let what = format!("{what}, {gone:?} gone for {n_starts} starts");
        let disk = disk.fork(n_entries);
        let files: Vec<_> = BTreeSet::from(gone).into_iter().map(|path| (path, disk.read(path).unwrap())).collect();
        files.iter().for_each(|(path, _)| disk.remove(path).unwrap());
        (0..n_starts).for_each(|_| open_and_leave(&disk));
        files.into_iter().for_each(|(path, file)| put(&disk, path, file));
        check_holds(&disk, n_entries, &what);
        let log = open(&disk).unwrap();
        (0..5).for_each(|_| append(&log));
        drop(log);
        disk.kill_process();
        check_holds(&disk, n_entries + 5, &what);
    }
}

#[test]
fn a_segment_gone_for_a_refused_start_can_be_put_back() {
    for n_entries in 0..9 {
        for n_starts in 1..3 {
            check_each(&killed(n_entries), n_entries, n_starts, &format!("killed after {n_entries}"));
            check_each(&killed_with_spares(n_entries), n_entries, n_starts, &format!("spares after {n_entries}"));
            check_each(&closed(n_entries), n_entries, n_starts, &format!("closed after {n_entries}"));
        }
    }
}

/// The newest segment, with two frames, beside an empty one that has its number, or that of the segment before it, and
/// is listed first. Of the newest the first frame's header is damaged: the file looks empty at first sight.
fn damaged_beside_an_empty_one(nth_spare: usize) -> (MemoryDisk, PathBuf) {
    let disk = MemoryDisk::new(8);
    let log = open(&disk).unwrap();
    log.prepare().unwrap();
    let mut spares = segments(&disk);
    spares.sort_by_key(|path| number(&disk, path));
    let empty = disk.read(&spares[nth_spare]).unwrap();
    let third = spares[2].clone();
    let n_frames = || {
        let bytes = disk.read(&third).unwrap();
        [8192, 12288].iter().filter(|&&at| bytes[at..at + 4] == *b"TFRM").count()
    };
    while n_frames() < 2 {
        append(&log);
    }
    drop(log);
    disk.kill_process();
    put(&disk, Path::new("/log/0000000000000000.seg"), empty);
    let mut bytes = disk.read(&third).unwrap();
    bytes[8192 + 2] ^= 1;
    disk.replace(&third, bytes);
    (disk, third)
}

#[test]
fn an_empty_segment_with_the_number_of_another_hides_no_damage() {
    for nth_spare in 1..3 {
        let (disk, path) = damaged_beside_an_empty_one(nth_spare);
        let error = open(&disk).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&format!("{} at byte 8192", path.display())), "{error}");
    }
}

#[test]
fn a_copy_of_the_newest_segment_that_was_written_to_is_refused_and_named() {
    let disk = killed(10);
    // Under a name of its own, or it would take the place of the other.
    put(&disk, Path::new("/log/0000000000000077.seg"), disk.read(&newest(&disk)).unwrap());
    let before: Vec<_> = disk.paths().iter().map(|path| disk.read(path)).collect();
    let error = open(&disk).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("the same segment as"), "{error}");
    disk.kill_process();
    let after: Vec<_> = disk.paths().iter().map(|path| disk.read(path)).collect();
    assert!(before == after, "a refused open changes nothing");
    let named = RaftLog::verify_on(&disk, Path::new("/log")).unwrap().damages;
    assert!(named.iter().any(|damage| damage.what.contains("the same segment as")), "{named:?}");
}

#[test]
fn a_spare_can_be_put_back_after_another_file_had_its_number() {
    let disk = killed_with_spares(4);
    let spares: Vec<_> = segments(&disk).into_iter().filter(|path| !has_frames(&disk, path)).collect();
    let files: Vec<_> = spares.iter().map(|path| disk.read(path).unwrap()).collect();
    spares.iter().for_each(|path| disk.remove(path).unwrap());
    let log = open(&disk).unwrap();
    log.prepare().unwrap();
    (0..6).for_each(|_| append(&log));
    drop(log);
    disk.kill_process();
    for (slot, file) in (70..).zip(files) {
        put(&disk, Path::new(&format!("/log/{slot:016}.seg")), file);
    }
    check_holds(&disk, 10, "the spares are back");
    let log = open(&disk).unwrap();
    (0..20).for_each(|_| append(&log));
    drop(log);
    disk.kill_process();
    check_holds(&disk, 30, "the spares were used");
}
