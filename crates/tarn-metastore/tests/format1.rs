//! Does a metastore that format 1 wrote still open, to exactly what it held?
//!
//! `fixtures/format1` is the folder as the first release's code left it: two tables that are there and one that was
//! dropped, deliveries, compactions and an expiry, deletion vectors, bounds of every kind of value; the first half of
//! it in a checkpoint, the second in the log behind. `expected.txt` is what that code read back. Neither is ever
//! written again.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_metastore::{Embedded, File, Metastore, Recovery, VersionSelector};
use tarn_types::{ManualClock, Version};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format1")
}

/// Opening writes, so a copy is opened.
fn copy() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "tarn") {
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    copy
}

fn open(dir: &Path) -> (Embedded, Recovery) {
    Embedded::open(dir, Arc::new(ManualClock::new(1_000))).unwrap()
}

/// All that format 1 can hold, in words that stay when the types in memory change.
async fn held(metastore: &dyn Metastore) -> String {
    let mut out = String::new();
    for table in metastore.tables().await.unwrap() {
        let (id, first, tablets) = (table.id, table.first_tablet, table.options.tablets);
        writeln!(out, "table {} id {id} tablets {tablets} from {first} key {:?}", table.name, table.key).unwrap();
        for column in &table.columns {
            let (id, name, null) = (column.id, &column.name, column.nullable);
            writeln!(out, "  column {id} {name} {} null {null} default {:?}", column.data_type, column.default)
                .unwrap();
        }
        let oldest = metastore.snapshot(table.id, VersionSelector::Oldest).await.unwrap().version;
        let latest = metastore.snapshot(table.id, VersionSelector::Latest).await.unwrap().version;
        for version in oldest.0..=latest.0 {
            let whole = metastore.snapshot(table.id, VersionSelector::Version(Version(version))).await.unwrap();
            writeln!(out, "  version {version} at {} cursor {}", whole.committed_ms, whole.cursor).unwrap();
            for file in whole.files.iter() {
                describe(&mut out, file);
                if let Some(dead) = whole.deletion_vectors.get(&file.id) {
                    let sum: u64 = dead.iter().map(u64::from).sum();
                    writeln!(out, "      dead {} from {:?} to {:?} sum {sum}", dead.len(), dead.min(), dead.max())
                        .unwrap();
                }
            }
        }
        for commit in metastore.commits(table.id, oldest).await.unwrap() {
            let added: Vec<_> = commit.added.iter().map(|file| file.id.0).collect();
            let dead: Vec<_> = commit.deletion_vectors.iter().map(|(file, dead)| (file.0, dead.len())).collect();
            let cursor = commit.cursor.as_ref().map(ToString::to_string);
            let removed: Vec<_> = commit.removed.iter().map(|file| file.0).collect();
            writeln!(
                out,
                "  commit {} {} {:?} at {} cursor {cursor:?} added {added:?} removed {removed:?} dead {dead:?}",
                commit.version, commit.id, commit.kind, commit.at_ms
            )
            .unwrap();
        }
    }
    out
}

fn describe(out: &mut String, file: &File) {
    writeln!(
        out,
        "    file {} {} bytes {} rows {} hour {} etag {:?} since {} sorted {}",
        file.id,
        file.path,
        file.size_bytes,
        file.n_rows,
        file.hour,
        file.etag,
        file.created_version,
        file.sorted_by_key
    )
    .unwrap();
    for block in &file.blocks {
        let (group, first, rows, bytes) = (block.row_group, block.first_row, block.n_rows, block.bytes);
        writeln!(out, "      block {group} from {first} rows {rows} bytes {bytes}").unwrap();
        for stats in &block.columns {
            let (id, exact, nulls, bytes) = (stats.column, stats.exact, stats.null_count, stats.bytes);
            let (min, max) = (&stats.min, &stats.max);
            writeln!(out, "        {id} exact {exact} nulls {nulls} bytes {bytes} {min:?} to {max:?}").unwrap();
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn expected() -> String {
    fs::read_to_string(fixture().join("expected.txt")).unwrap()
}

#[test]
fn it_opens_to_what_it_held() {
    let dir = copy();
    let (metastore, recovery) = open(dir.path());
    assert_eq!(runtime().block_on(held(&metastore)), expected());
    assert_eq!(recovery, Recovery { records: 8, torn_bytes: 0 });
    let next = runtime().block_on(metastore.allocate_files(1)).unwrap();
    assert_eq!(next.0, 1032, "ids that format 1 reserved are not given out again");
}

/// The numbered files of a folder with the format that each is in.
fn formats(dir: &Path) -> Vec<(String, u8)> {
    let mut formats = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "tarn") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            formats.push((name, fs::read(&path).unwrap()[8]));
        }
    }
    formats.sort();
    formats
}

const CHECKPOINT: &str = "checkpoint-00000000000000000015.tarn";
const LOG: &str = "log-00000000000000000016.tarn";

#[test]
fn it_is_written_anew_as_it_is_opened() {
    let dir = copy();
    drop(open(dir.path()));
    assert_eq!(formats(dir.path()), [(CHECKPOINT.to_owned(), 3), (LOG.to_owned(), 3)]);
    let (metastore, recovery) = open(dir.path());
    assert_eq!(recovery, Recovery::default());
    assert_eq!(runtime().block_on(held(&metastore)), expected());
    assert!(runtime().block_on(metastore.allocate_files(1)).unwrap().0 >= 1032);
}

#[test]
fn a_crash_while_it_is_written_anew_loses_nothing() {
    let done = copy();
    drop(open(done.path()));
    for n_new in 0..=2 {
        // In this order: log, checkpoint; then the old ones go, one by one.
        for n_old_gone in 0..=if n_new == 2 { 2 } else { 0 } {
            let dir = copy();
            fs::write(dir.path().join("checkpoint-00000000000000000099.tmp"), b"half").unwrap();
            for name in [LOG, CHECKPOINT].iter().take(n_new) {
                fs::copy(done.path().join(name), dir.path().join(name)).unwrap();
            }
            let old = formats(&fixture());
            for (name, _) in old.iter().take(n_old_gone) {
                fs::remove_file(dir.path().join(name)).unwrap();
            }
            let (metastore, _) = open(dir.path());
            assert_eq!(runtime().block_on(held(&metastore)), expected(), "{n_new} new, {n_old_gone} gone");
            drop(metastore);
            let (metastore, _) = open(dir.path());
            assert_eq!(runtime().block_on(held(&metastore)), expected());
            assert!(
                formats(dir.path()).iter().all(|(name, format)| *format == 3 || old.iter().any(|(at, _)| at == name))
            );
        }
    }
}

#[test]
fn an_empty_one_is_written_anew_too() {
    // What format 1 left of a metastore that nothing was put into: a log of nothing but its header.
    let dir = tempfile::tempdir().unwrap();
    let mut header = b"TARNMLOG\x01\0\0\0".to_vec();
    let crc = crc32c::crc32c(&header);
    header.extend_from_slice(&crc.to_le_bytes());
    fs::write(dir.path().join("log-00000000000000000001.tarn"), header).unwrap();
    for _ in 0..2 {
        let (metastore, _) = open(dir.path());
        assert_eq!(runtime().block_on(held(&metastore)), "");
        assert!(formats(dir.path()).iter().all(|(_, format)| *format == 3));
    }
}
