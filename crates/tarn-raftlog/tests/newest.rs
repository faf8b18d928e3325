//! The newest segment is gone: removed, or lost by a restore. Is that seen, by name, in every life of a log?
//!
//! Such a log looks like one that ended earlier, so a file beside the segments says which one must be there. That no
//! crash brings the two apart is tested at every step of the disk, in `every_step.rs`.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_raftlog::{
    Disk, Durability, ErrorKind, GroupId, Index, MemoryDisk, Options, RaftLog, Recovery, RecoveryReport, Result, Term,
};

const GROUP: GroupId = GroupId(1);
const FORMAT: &str = "/log/FORMAT";

fn options() -> Options {
    Options { segment_bytes: 28 << 10, cache_bytes: 0, ..Options::new("/log") }
}

fn open_with(disk: &MemoryDisk, options: Options) -> Result<(RaftLog, RecoveryReport)> {
    RaftLog::open_on(Arc::new(disk.clone()), options)
}

fn open(disk: &MemoryDisk) -> Result<RaftLog> {
    open_with(disk, options()).map(|(log, _)| log)
}

fn append(log: &RaftLog, len: usize) {
    let mut batch = log.batch();
    batch.append(GROUP, Term(1), log.last_index(GROUP).next(), [&vec![7; len][..]]);
    log.commit(batch).unwrap();
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[24..32].try_into().unwrap())
}

fn segments(disk: &MemoryDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "seg")).collect()
}

/// The newest segment with frames.
fn newest(disk: &MemoryDisk) -> PathBuf {
    let has_frames = |path: &PathBuf| {
        let bytes = disk.read(path).unwrap();
        bytes[8192..8196] == *b"TFRM" && bytes[8200..8208] == bytes[32..40]
    };
    let with_frames = segments(disk).into_iter().filter(has_frames);
    with_frames.max_by_key(|path| number(&disk.read(path).unwrap())).unwrap()
}

fn all_bytes(disk: &MemoryDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().filter_map(|path| disk.read(&path).map(|bytes| (path, bytes))).collect()
}

fn put(disk: &MemoryDisk, path: &Path, bytes: Vec<u8>) {
    disk.create(path, 0).unwrap();
    disk.replace(path, bytes);
}

/// Without its newest segment the log is refused, by open and by verify, unchanged; with it everything is there.
fn check_missed(disk: &MemoryDisk, options: &Options, n_entries: u64, what: &str) {
    let path = newest(disk);
    let file = disk.read(&path).unwrap();
    disk.remove(&path).unwrap();
    let before = all_bytes(disk);
    let refused = open_with(disk, options.clone()).err().unwrap_or_else(|| panic!("{what}: opened without {path:?}"));
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{what}: {refused}");
    let want = format!("as segment {}, and no file in /log holds that segment; put it back", number(&file));
    let text = refused.to_string();
    assert!(text.starts_with(&format!("{} at byte 0: this file is missing", path.display())), "{what}: {text}");
    assert!(text.contains(FORMAT) && text.contains(&want), "{what}: {text}");
    disk.kill_process();
    assert!(all_bytes(disk) == before, "{what}: a refused open changes nothing");
    let report = RaftLog::verify_on(disk, Path::new("/log")).unwrap();
    assert!(report.damages.iter().any(|damage| damage.path == path), "{what}: {report:?}");
    put(disk, &path, file);
    let (log, _) = open_with(disk, options.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(log.last_index(GROUP), Index(n_entries), "{what}");
    drop(log);
    disk.kill_process();
    assert!(RaftLog::verify_on(disk, Path::new("/log")).unwrap().is_sound(), "{what}");
}

/// How a process ended, or what it did last.
#[derive(Debug, Clone, Copy)]
enum ProcessEnd {
    Killed,
    Prepared,
    Closed,
    Collected,
}

fn end(disk: &MemoryDisk, log: RaftLog, end: ProcessEnd) {
    match end {
        ProcessEnd::Killed => {}
        ProcessEnd::Prepared => log.prepare().unwrap(),
        ProcessEnd::Closed => log.close().unwrap(),
        ProcessEnd::Collected => drop(log.collect_garbage(u64::MAX).unwrap()),
    }
    drop(log);
    disk.kill_process();
}

#[test]
fn the_newest_segment_is_missed_however_the_log_was_left() {
    for sync in [Durability::Durable, Durability::Os] {
        let options = Options { sync, ..options() };
        for (first, second) in [
            (ProcessEnd::Killed, ProcessEnd::Killed),
            (ProcessEnd::Closed, ProcessEnd::Killed),
            (ProcessEnd::Prepared, ProcessEnd::Prepared),
            (ProcessEnd::Killed, ProcessEnd::Closed),
            (ProcessEnd::Collected, ProcessEnd::Collected),
        ] {
            for n_entries in 1..9u64 {
                let what = format!("{sync:?}, {first:?} and {second:?} after {n_entries}");
                let disk = MemoryDisk::new(n_entries);
                let (log, _) = open_with(&disk, options.clone()).unwrap();
                (0..n_entries).for_each(|_| append(&log, 900));
                end(&disk, log, first);
                check_missed(&disk, &options, n_entries, &what);
                let (log, _) = open_with(&disk, options.clone()).unwrap();
                append(&log, 900);
                end(&disk, log, second);
                check_missed(&disk, &options, n_entries + 1, &what);
            }
        }
    }
}

/// The log was opened and nothing was written: an empty segment is newer.
#[test]
fn the_newest_segment_is_missed_after_starts_without_a_write() {
    for n_starts in 1..4 {
        for last in [ProcessEnd::Killed, ProcessEnd::Closed, ProcessEnd::Collected, ProcessEnd::Prepared] {
            let disk = MemoryDisk::new(n_starts);
            let log = open(&disk).unwrap();
            (0..5).for_each(|_| append(&log, 900));
            end(&disk, log, last);
            (0..n_starts).for_each(|_| end(&disk, open(&disk).unwrap(), last));
            check_missed(&disk, &options(), 5, &format!("{n_starts} starts, {last:?}"));
        }
    }
}

#[test]
fn the_newest_segment_is_missed_when_all_before_it_were_used_again() {
    let disk = MemoryDisk::new(1);
    let log = open(&disk).unwrap();
    for _ in 0..40 {
        append(&log, 900);
        let mut batch = log.batch();
        batch.purge(GROUP, log.last_index(GROUP), Term(1));
        log.commit(batch).unwrap();
        log.collect_garbage(u64::MAX).unwrap();
    }
    assert!(log.metrics().segments_deleted > 3, "{:?}", log.metrics());
    end(&disk, log, ProcessEnd::Killed);
    check_missed(&disk, &options(), 40, "purged");
}

/// More segments than FORMAT has room for: it names the newest.
#[test]
fn a_log_of_many_segments_misses_its_newest() {
    let disk = MemoryDisk::new(8);
    let log = open(&disk).unwrap();
    (0..300).for_each(|_| append(&log, 9000));
    assert!(log.segments().len() > 252, "{}", log.segments().len());
    end(&disk, log, ProcessEnd::Killed);
    (0..2).for_each(|_| check_missed(&disk, &options(), 300, "many segments"));
    let log = open(&disk).unwrap();
    let mut batch = log.batch();
    batch.purge(GROUP, Index(290), Term(1));
    log.commit(batch).unwrap();
    log.collect_garbage(u64::MAX).unwrap();
    end(&disk, log, ProcessEnd::Killed);
    check_missed(&disk, &options(), 300, "few segments again");
}

#[test]
fn a_closed_log_that_forgot_all_it_had_opens_again() {
    let disk = MemoryDisk::new(2);
    let log = open(&disk).unwrap();
    append(&log, 10);
    let mut batch = log.batch();
    batch.destroy(GROUP);
    log.commit(batch).unwrap();
    log.close().unwrap();
    log.collect_garbage(u64::MAX).unwrap();
    end(&disk, log, ProcessEnd::Killed);
    let log = open(&disk).unwrap();
    append(&log, 10);
    end(&disk, log, ProcessEnd::Killed);
    check_missed(&disk, &options(), 1, "forgotten");
}

#[test]
fn starts_without_a_write_make_no_files() {
    let disk = MemoryDisk::new(3);
    end(&disk, open(&disk).unwrap(), ProcessEnd::Killed);
    let before = all_bytes(&disk);
    (0..5).for_each(|_| end(&disk, open(&disk).unwrap(), ProcessEnd::Killed));
    assert!(all_bytes(&disk) == before);
}

/// A log of two groups without its newest segment.
fn without_newest() -> (MemoryDisk, PathBuf, Vec<u8>) {
    let disk = MemoryDisk::new(4);
    let log = open(&disk).unwrap();
    (0..7).for_each(|_| append(&log, 900));
    end(&disk, log, ProcessEnd::Killed);
    let path = newest(&disk);
    let file = disk.read(&path).unwrap();
    disk.remove(&path).unwrap();
    // Names go on behind that file's, so that it can be put back beside what is made.
    put(&disk, Path::new("/log/0000000000000050.tmp"), vec![0; 4096]);
    (disk.fork(4), path, file)
}

fn quarantined(disk: &MemoryDisk) -> Result<RaftLog> {
    open_with(disk, Options { recovery: Recovery::Quarantine, ..options() }).map(|(log, report)| {
        assert_eq!(report.damages.len(), 1, "{report:?}");
        log
    })
}

#[test]
fn a_quarantine_marks_the_groups_and_later_starts_know_it() {
    let (disk, path, file) = without_newest();
    let log = quarantined(&disk).unwrap();
    assert_eq!(log.check_group(GROUP).unwrap_err().kind(), ErrorKind::Corrupt);
    end(&disk, log, ProcessEnd::Killed);
    for _ in 0..2 {
        let log = open(&disk).unwrap();
        assert_eq!(log.check_group(GROUP).unwrap_err().kind(), ErrorKind::Corrupt);
        end(&disk, log, ProcessEnd::Killed);
    }
    // Too late: the log went on without it.
    put(&disk, &path, file);
    let before = all_bytes(&disk);
    let refused = open(&disk).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    disk.kill_process();
    assert!(all_bytes(&disk) == before);
    let report = RaftLog::verify_on(&disk, Path::new("/log")).unwrap();
    assert!(!report.damages.is_empty(), "what is refused is not called sound");
}

#[test]
fn a_quarantine_cut_at_any_step_forgets_no_loss() {
    let whole = without_newest().0;
    quarantined(&whole).unwrap();
    let n_steps = whole.n_steps();
    for step in 0..n_steps {
        let disk = without_newest().0.fork(step);
        disk.pull_plug_in(step);
        let _ = quarantined(&disk);
        disk.cut_power();
        match open(&disk) {
            Ok(log) => assert!(log.check_group(GROUP).is_err(), "forgotten after a cut at step {step}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
        }
        disk.kill_process();
        if let Err(error) = quarantined_or_marked(&disk) {
            panic!("cut at step {step}: {error}");
        }
    }
}

fn quarantined_or_marked(disk: &MemoryDisk) -> Result<()> {
    let log = open_with(disk, Options { recovery: Recovery::Quarantine, ..options() })?.0;
    assert!(log.check_group(GROUP).is_err());
    Ok(())
}

#[test]
fn one_damaged_list_is_written_again_and_two_are_refused() {
    let disk = MemoryDisk::new(5);
    let log = open(&disk).unwrap();
    (0..7).for_each(|_| append(&log, 900));
    end(&disk, log, ProcessEnd::Killed);
    let whole = disk.read(Path::new(FORMAT)).unwrap();
    assert_eq!(whole.len(), 3 * 4096);
    for block in [1, 2] {
        let disk = disk.fork(block);
        let mut bytes = whole.clone();
        bytes[block as usize * 4096 + 40] ^= 1;
        disk.replace(Path::new(FORMAT), bytes);
        let report = RaftLog::verify_on(&disk, Path::new("/log")).unwrap();
        assert!(report.is_sound() && report.mendable.len() == 1, "{report:?}");
        let log = open(&disk).unwrap();
        assert_eq!(log.last_index(GROUP), Index(7));
        end(&disk, log, ProcessEnd::Killed);
        let report = RaftLog::verify_on(&disk, Path::new("/log")).unwrap();
        assert!(report.is_sound() && report.mendable.is_empty(), "{report:?}");
    }
    let mut bytes = whole.clone();
    [1, 2].iter().for_each(|block| bytes[block * 4096 + 40] ^= 1);
    disk.replace(Path::new(FORMAT), bytes);
    let refused = open(&disk).err().unwrap();
    assert!(refused.kind() == ErrorKind::Corrupt && refused.to_string().contains("neither list"), "{refused}");
    disk.kill_process();
    assert!(!RaftLog::verify_on(&disk, Path::new("/log")).unwrap().is_sound());
    end(&disk, quarantined(&disk).unwrap(), ProcessEnd::Killed);
    (0..2).for_each(|_| end(&disk, open(&disk).unwrap(), ProcessEnd::Killed));
    let report = RaftLog::verify_on(&disk, Path::new("/log")).unwrap();
    assert!(report.damages.is_empty() && report.mendable.is_empty(), "{report:?}");
}

#[test]
fn an_empty_segment_of_a_lower_number_hides_no_damage_of_the_newest() {
    let options = Options { segment_bytes: 8 << 20, ..options() };
    let disk = MemoryDisk::new(6);
    let (log, _) = open_with(&disk, options.clone()).unwrap();
    log.prepare().unwrap();
    let first = segments(&disk)[0].clone();
    let empty = disk.read(&first).unwrap();
    // Too long for the first segment, which is passed over and made ready for later use.
    append(&log, 5 << 20);
    (0..2).for_each(|_| append(&log, 100));
    drop(log);
    disk.kill_process();
    // The process dies before that.
    assert_ne!(number(&disk.read(&first).unwrap()), number(&empty));
    disk.replace(&first, empty);
    let path = newest(&disk);
    let mut bytes = disk.read(&path).unwrap();
    bytes[8192 + 2] ^= 1;
    disk.replace(&path, bytes);
    let refused = open_with(&disk, options).err().expect("refused");
    assert!(refused.to_string().contains(&format!("{} at byte 8192", path.display())), "{refused}");
}
