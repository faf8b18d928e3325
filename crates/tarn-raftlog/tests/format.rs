//! Are the bytes those of docs/formats/raftlog.md?

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use tarn_raftlog::{GroupId, Index, MemoryDisk, Options, RaftLog, Term};

/// The document's example: `None` where it leaves a byte open.
fn documented() -> Vec<Option<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/raftlog.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, example) = text.split_once("## Example").unwrap();
    let block = example.split("```").nth(1).unwrap().trim_start_matches("text\n");
    let hex: String = block.lines().map(|line| line.split("   ").next().unwrap().replace(' ', "")).collect();
    let digits: Vec<char> = hex.chars().collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).ok()).collect()
}

#[test]
fn a_frame_is_as_documented() {
    let disk = MemoryDisk::new(1);
    let options = Options { segment_bytes: 64 << 10, ..Options::new("/log") };
    let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options).unwrap();
    let mut batch = log.batch();
    batch.append(GroupId(7), Term(3), Index(1), [&b"a"[..], b"bc"]).state(GroupId(7), b"s");
    log.commit(batch).unwrap();

    let file = disk.read(Path::new("/log/0000000000000001.seg")).unwrap();
    assert_eq!((&file[..8], file.len()), (&b"TARNSEGM"[..], 64 << 10));
    let want = documented();
    assert_eq!(want.len(), 52 + 45);
    let written = &file[8192..8192 + want.len()];
    let same = |(i, (want, got)): (usize, (&Option<u8>, &u8))| (want.is_some_and(|w| w != *got)).then_some(i);
    assert_eq!(want.iter().zip(written).enumerate().find_map(same), None, "{written:02x?}");
    assert_eq!(file[16..24], disk.read(Path::new("/log/FORMAT")).unwrap()[16..24]);
    assert!(file[8192 + want.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(file[..4096], file[4096..8192], "two copies of the header");
}
