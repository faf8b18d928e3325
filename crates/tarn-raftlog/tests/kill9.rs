//! Does what a process was told is durable outlive it, wherever it is killed?
//!
//! The child is this test again, told by its environment to write: it commits from three threads, collects garbage, and
//! prints what was acknowledged. The parent kills it after so many lines, reads what else came through the pipe, opens
//! the log and compares. No time is measured and none is waited for.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tarn_raftlog::{GroupId, Index, Options, RaftLog, Term};

const DIR: &str = "TARN_RAFTLOG_KILL9_DIR";
const THREADS: u64 = 3;
const GROUPS: u64 = 4;

fn options(dir: &Path) -> Options {
    Options { segment_bytes: 256 << 10, cache_bytes: 64 << 10, ..Options::new(dir) }
}

/// Half of it can be packed, half cannot.
fn payload(group: u64, index: u64) -> Vec<u8> {
    let len = 20 + (group * 7919 + index * 613) % 9000;
    let mut state = group << 32 | index;
    (0..len)
        .map(|i| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if i % 16 < 8 { (state >> 40) as u8 } else { group as u8 }
        })
        .collect()
}

/// Writes until it is killed.
fn child(dir: &Path) {
    let (log, _) = RaftLog::open(options(dir)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for round in 0.. {
                    let group = GroupId(thread * GROUPS + round % GROUPS);
                    let index = log.last_index(group).next();
                    let mut batch = log.batch();
                    batch.append(group, Term(1 + index.0 / 10), index, [&payload(group.0, index.0)[..]]);
                    batch.state(group, &index.0.to_le_bytes());
                    if index.0 > 20 {
                        batch.purge(group, Index(index.0 - 20), Term(1 + (index.0 - 20) / 10));
                    }
                    log.commit(batch).unwrap();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "acknowledged {group} {index}").unwrap();
                    out.flush().unwrap();
                    drop(out);
                    if round % 16 == thread {
                        log.collect_garbage(1 << 20).unwrap();
                    }
                }
            });
        }
    });
}

fn live_and_die(dir: &Path, n_lines: usize, acknowledged: &mut [u64]) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "acknowledged_entries_outlive_the_process", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        // The test runner's own words may stand before it on the line.
        let Some((_, numbers)) = line.split_once("acknowledged ") else { continue };
        let Some((group, index)) = numbers.split_once(' ') else { continue };
        let (Ok(group), Ok(index)) = (group.parse::<usize>(), index.parse::<u64>()) else { continue };
        acknowledged[group] = acknowledged[group].max(index);
        seen += 1;
        if seen == n_lines {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(seen >= n_lines, "the child died by itself after {seen} lines");
}

#[test]
fn acknowledged_entries_outlive_the_process() {
    if let Some(dir) = std::env::var_os(DIR) {
        child(&PathBuf::from(dir));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = vec![0; (THREADS * GROUPS) as usize];
    for life in 0..12usize {
        live_and_die(dir.path(), 1 + life * 37 % 250, &mut acknowledged);
        let (log, report) = RaftLog::open(options(dir.path())).unwrap();
        assert_eq!(report.damages, vec![]);
        for (group, &told) in acknowledged.iter().enumerate() {
            let group = GroupId(group as u64);
            let (first, last) = (log.first_index(group), log.last_index(group));
            assert!(last.0 >= told, "life {life}: group {group} ends at {last}, {told} was acknowledged");
            for entry in log.entries(group, first..last.next(), usize::MAX).unwrap() {
                assert_eq!(entry.payload, payload(group.0, entry.index.0));
                assert_eq!(entry.term, Term(1 + entry.index.0 / 10));
            }
            if last.0 > 0 {
                assert_eq!(log.state(group).as_deref(), Some(&last.0.to_le_bytes()[..]));
                assert!(first.0 + 21 > last.0);
            }
        }
    }
    assert_eq!(RaftLog::verify(dir.path()).unwrap().damages, vec![]);
}
