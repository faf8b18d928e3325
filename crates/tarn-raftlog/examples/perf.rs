//! How fast is the log here, now? A quick look for whoever tunes it; figures to quote come from `tarn-bench raftlog`.
//!
//! `cargo run --release -p tarn-raftlog --example perf -- DIR [limit|commit|batched|reads|reopen]... `

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tarn_raftlog::{GroupId, Index, Options, RaftLog, Term};

/// Live entries kept of each group.
const KEEP: u64 = 1000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = PathBuf::from(args.first().map_or("/tmp/raftlog-perf", |s| s.as_str()));
    let seconds = std::env::var("SECONDS_EACH").ok().and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let wanted = |name: &str| args.len() < 2 || args[1..].iter().any(|a| a == name);
    if wanted("limit") || wanted("quick") {
        limit(&dir);
    }
    if wanted("commit") {
        for bytes in [128, 1024, 16384] {
            for writers in [1, 2, 4, 16, 64] {
                commit(&dir, writers, 64, 1, bytes, seconds);
            }
        }
    }
    if wanted("quick") && args.len() > 1 {
        for writers in [1, 16] {
            commit(&dir, writers, 64, 1, 1024, seconds);
        }
    }
    if wanted("batched") {
        for bytes in [128, 1024, 16384] {
            for writers in [1, 4] {
                commit(&dir, writers, 1024, 32, bytes, seconds);
            }
        }
    }
    if wanted("reads") {
        reads(&dir);
    }
    if wanted("reopen") {
        reopen(&dir);
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// CPU time of this process, in µs (its clock ticks are 10 ms).
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10_000.0
}

fn written_bytes() -> f64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|l| l.strip_prefix("write_bytes: ")).unwrap().parse().unwrap()
}

/// Half of it random, so that LZ4 halves it.
fn payload(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = vec![0; bytes];
    for (i, chunk) in out.chunks_mut(8).enumerate() {
        if i % 8 < 4 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let word = (state ^ (state >> 29)).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
    out
}

fn fresh(dir: &Path) -> RaftLog {
    let _ = std::fs::remove_dir_all(dir);
    RaftLog::open(Options::new(dir)).unwrap().0
}

/// What the device does: direct writes, written through, into a file that was filled before.
fn limit(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let path = dir.join("limit");
    std::fs::write(&path, vec![0; 64 << 20]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let flags = (rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC).bits() as i32;
    let file = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&path).unwrap();
    let raw = vec![7u8; (64 << 10) + 4096];
    let start = raw.as_ptr().align_offset(4096);
    for bytes in [4096, 20480, 65536] {
        let mut times: Vec<u128> = (0..4000u64)
            .map(|i| {
                let t = Instant::now();
                file.write_all_at(&raw[start..start + bytes], i * bytes as u64 % (60 << 20)).unwrap();
                t.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        println!("limit {bytes:5} B: P50 {:7.1} P99 {:8.1} µs", times[2000] as f64 / 1e3, times[3960] as f64 / 1e3);
    }
}

/// Each writer appends to its own groups; a collector runs beside them.
fn commit(dir: &Path, writers: u64, groups: u64, groups_per_commit: u64, bytes: usize, seconds: f64) {
    let log = fresh(dir);
    let stop = AtomicBool::new(false);
    let (n_commits, start_cpu, start_io) = (AtomicU64::new(0), cpu_us(), written_bytes());
    let started = Instant::now();
    let mut latencies: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                let (log, n_commits) = (&log, &n_commits);
                scope.spawn(move || write(log, writer, writers, groups, groups_per_commit, bytes, seconds, n_commits))
            })
            .collect();
        let collector = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                log.collect_garbage(8 << 20).unwrap();
            }
        });
        let all = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        collector.join().unwrap();
        all
    });
    let (elapsed, cpu, io) = (started.elapsed().as_secs_f64(), cpu_us() - start_cpu, written_bytes() - start_io);
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    let n = n_commits.load(Ordering::Relaxed) as f64;
    let entries = n * groups_per_commit as f64;
    println!(
        "{writers:3} writers {groups_per_commit:2} groups/commit {bytes:5} B: {:8.0} commits/s  P50 {:7.1} P99 {:8.1} P99.9 {:8.1} µs  cpu/entry {:6.2} µs  bytes/user byte {:5.2}",
        n / elapsed,
        at(0.5),
        at(0.99),
        at(0.999),
        cpu / entries,
        io / (entries * bytes as f64),
    );
}

#[allow(clippy::too_many_arguments)]
fn write(
    log: &RaftLog,
    writer: u64,
    writers: u64,
    groups: u64,
    groups_per_commit: u64,
    bytes: usize,
    seconds: f64,
    n_commits: &AtomicU64,
) -> Vec<u64> {
    let own: Vec<u64> = (0..groups).filter(|g| g % writers == writer).collect();
    let payloads: Vec<Vec<u8>> = (0..64).map(|i| payload(bytes, writer * 1000 + i)).collect();
    let mut next = vec![1u64; own.len()];
    let (mut latencies, mut at) = (Vec::new(), 0usize);
    let started = Instant::now();
    while started.elapsed().as_secs_f64() < seconds {
        let t = Instant::now();
        let mut batch = log.batch();
        for _ in 0..groups_per_commit {
            let i = at % own.len();
            at += 1;
            let (group, index) = (GroupId(own[i]), next[i]);
            batch.append(group, Term(1), Index(index), [&payloads[at % 64][..]]);
            if index > KEEP && index.is_multiple_of(KEEP / 4) {
                batch.purge(group, Index(index - KEEP), Term(1));
            }
            next[i] += 1;
        }
        log.commit(batch).unwrap();
        latencies.push(t.elapsed().as_nanos() as u64);
        n_commits.fetch_add(1, Ordering::Relaxed);
    }
    latencies
}

fn fill(log: &RaftLog, groups: u64, total_bytes: u64, bytes: usize) {
    let payloads: Vec<Vec<u8>> = (0..64).map(|i| payload(bytes, i)).collect();
    let per_group = total_bytes / bytes as u64 / groups;
    for round in 0..per_group / 8 {
        for chunk in (0..groups).collect::<Vec<_>>().chunks(64) {
            let mut batch = log.batch();
            for &g in chunk {
                let first = Index(1 + round * 8);
                batch.append(
                    GroupId(g),
                    Term(1 + round / 50),
                    first,
                    (0..8).map(|i| &payloads[(i + g as usize) % 64][..]),
                );
            }
            log.commit(batch).unwrap();
        }
    }
}

fn reads(dir: &Path) {
    let log = fresh(dir);
    fill(&log, 256, 256 << 20, 1024);
    let n = 2_000_000u64;
    let per = |name: &str, f: &dyn Fn(u64) -> u64| {
        let (t, mut sum) = (Instant::now(), 0u64);
        for i in 0..n {
            sum = sum.wrapping_add(f(i));
        }
        println!("{name:12} {:.3} µs ({sum})", t.elapsed().as_secs_f64() * 1e6 / n as f64);
    };
    per("term", &|i| log.term(GroupId(i % 256), Index(1 + i % 900)).unwrap().0);
    per("last_index", &|i| log.last_index(GroupId(i % 256)).0);
    per("log_bytes", &|i| log.log_bytes(GroupId(i % 256)));
    for (name, base) in [("cold", 1u64), ("hot", 880)] {
        let t = Instant::now();
        for g in 0..256 {
            assert_eq!(log.entries(GroupId(g), Index(base)..Index(base + 100), usize::MAX).unwrap().len(), 100);
        }
        println!("100 entries {name}: {:.1} µs", t.elapsed().as_secs_f64() * 1e6 / 256.0);
    }
}

fn reopen(dir: &Path) {
    let log = fresh(dir);
    fill(&log, 1024, 1 << 30, 1024);
    println!("index {:.1} bytes an entry", log.metrics().index_bytes as f64 / (1 << 20) as f64);
    drop(log);
    for _ in 0..3 {
        let (t, cpu) = (Instant::now(), cpu_us());
        let (log, report) = RaftLog::open(Options::new(dir)).unwrap();
        println!("reopen {:.3} s, cpu {:.3} s: {report:?}", t.elapsed().as_secs_f64(), (cpu_us() - cpu) / 1e6);
        drop(log);
    }
}
