//! Is a log of each released format still read, and is it what docs/formats/raftlog.md shows?
//!
//! `TARN_GOLDEN=write cargo test -p tarn-raftlog --test golden` makes the folder of the present format anew. That of a
//! released one never changes.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_raftlog::{Compression, Disk, GroupId, Index, MemoryDisk, Options, RaftLog, Term};

const DIR: &str = "/log";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

fn open(disk: &MemoryDisk) -> RaftLog {
    let options = Options { segment_bytes: 64 << 10, compression: Compression::Lz4, ..Options::new(DIR) };
    let (log, report) = RaftLog::open_on(Arc::new(disk.clone()), options).unwrap();
    assert_eq!((report.n_scanned, report.damages), (0, vec![]));
    log
}

/// Two segments: the document's commit alone in the first, what else a log can hold in the second.
fn write(disk: &MemoryDisk) {
    let log = open(disk);
    let mut batch = log.batch();
    batch.append(GroupId(7), Term(3), Index(1), [&b"a"[..], b"bc"]).state(GroupId(7), b"s");
    log.commit(batch).unwrap();
    log.close().unwrap();
    drop(log);

    let log = open(disk);
    let mut batch = log.batch();
    // Long and alike: packed.
    batch.append(GroupId(8), Term(1), Index(1), [&[b'x'; 3000][..], &[b'y'; 3000]]);
    batch.append(GroupId(9), Term(1), Index(1), [&b"one"[..], b"two", b"three"]);
    batch.append(GroupId(10), Term(1), Index(1), [&b"gone"[..]]);
    log.commit(batch).unwrap();
    let mut batch = log.batch();
    batch.append(GroupId(9), Term(2), Index(2), [&b"other"[..]]).append(GroupId(9), Term(4), Index(3), [&b""[..]]);
    batch.purge(GroupId(9), Index(1), Term(1)).put(GroupId(9), b"key", Some(b"value")).destroy(GroupId(10));
    log.commit(batch).unwrap();
    log.close().unwrap();
}

/// The files that hold something: empty segments are made ahead, or not.
fn files(disk: &MemoryDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| disk.read(&path).map(|bytes| (path, bytes));
    let holds = |(path, bytes): &(PathBuf, Vec<u8>)| {
        path.ends_with("FORMAT") || (path.extension().is_some_and(|e| e == "seg") && bytes.len() < 64 << 10)
    };
    disk.paths().into_iter().filter_map(read).filter(holds).collect()
}

fn check(log: &RaftLog) {
    let entries = |group, range: std::ops::Range<u64>| -> Vec<(u64, Vec<u8>)> {
        let entries = log.entries(GroupId(group), Index(range.start)..Index(range.end), usize::MAX).unwrap();
        entries.into_iter().map(|entry| (entry.term.0, entry.payload.to_vec())).collect()
    };
    assert_eq!(log.groups(), [7, 8, 9].map(GroupId));
    assert_eq!(entries(7, 1..3), [(3, b"a".to_vec()), (3, b"bc".to_vec())]);
    assert_eq!((log.state(GroupId(7)).as_deref(), log.last_index(GroupId(7))), (Some(&b"s"[..]), Index(2)));
    assert_eq!(entries(8, 1..3), [(1, vec![b'x'; 3000]), (1, vec![b'y'; 3000])]);
    assert_eq!(entries(9, 2..4), [(2, b"other".to_vec()), (4, b"".to_vec())]);
    assert_eq!((log.first_index(GroupId(9)), log.term(GroupId(9), Index(1))), (Index(2), Some(Term(1))));
    assert_eq!(log.get(GroupId(9), b"key").as_deref(), Some(&b"value"[..]));
}

#[test]
fn the_first_format_is_read() {
    let fresh = MemoryDisk::new(1);
    write(&fresh);
    if std::env::var("TARN_GOLDEN").is_ok_and(|what| what == "write") {
        std::fs::create_dir_all(golden()).unwrap();
        for (path, bytes) in files(&fresh) {
            std::fs::write(golden().join(path.file_name().unwrap()), bytes).unwrap();
        }
    }
    let disk = MemoryDisk::new(2);
    let mut n_files = 0;
    for entry in std::fs::read_dir(golden()).unwrap() {
        let entry = entry.unwrap();
        let path = Path::new(DIR).join(entry.file_name());
        Disk::create(&disk, &path, 0).unwrap();
        disk.replace(&path, std::fs::read(entry.path()).unwrap());
        n_files += 1;
    }
    assert_eq!(n_files, 3, "FORMAT and two segments");
    let report = RaftLog::verify_on(&disk, Path::new(DIR)).unwrap();
    assert!(report.is_sound() && report.torn_tail.is_none() && report.mendable.is_empty(), "{report:?}");
    check(&open(&disk));
    check(&open(&fresh));
}

/// Every line of the document that looks like one of `xxd` is one of the golden segment.
#[test]
fn the_hex_dump_of_the_document_is_that_of_the_file() {
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/raftlog.md"));
    let bytes = std::fs::read(golden().join("0000000000000001.seg")).unwrap();
    let mut n_lines = 0;
    for line in document.unwrap().lines() {
        let Some((offset, rest)) = line.split_once(": ") else { continue };
        let Some(offset) = (offset.len() == 8).then(|| usize::from_str_radix(offset, 16).ok()).flatten() else {
            continue;
        };
        let row = &bytes[offset..offset + 16];
        let pairs: Vec<String> = row.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
        let shown = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' };
        let text: String = row.iter().map(shown).collect();
        assert_eq!(rest, format!("{}  {text}", pairs.join(" ")), "byte {offset:#x}");
        n_lines += 1;
    }
    assert!(n_lines > 10, "{n_lines} lines of a hex dump");
}
