//! How long did it take, and what does the disk do by itself?

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

/// Of many calls.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    pub calls: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Latency {
    /// Of one call at least.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let idx = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1;
            ms(times[idx])
        };
        if times.is_empty() {
            return Self { calls: 0, p50_ms: 0.0, p99_ms: 0.0, p999_ms: 0.0, max_ms: 0.0 };
        }
        Self { calls: times.len(), p50_ms: at(0.5), p99_ms: at(0.99), p999_ms: at(0.999), max_ms: at(1.0) }
    }
}

/// In milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Appends of 4 KiB, each synced.
pub fn fdatasync(dir: &Path, calls: usize) -> Result<Latency> {
    let path = dir.join("fdatasync");
    let file = File::create(&path)?;
    let page = [7u8; 4096];
    let mut times = Vec::with_capacity(calls);
    for n in 0..calls {
        let start = Instant::now();
        file.write_all_at(&page, n as u64 * 4096)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    fs::remove_file(path)?;
    Ok(Latency::of(times))
}

/// The least that a log can do that syncs what it is given: appends of `n_bytes`, due `per_s` times a second, to space
/// that is taken already; those that are due together share a sync. Timed as the commits are.
pub fn paced_fdatasync(dir: &Path, per_s: u64, calls: u64, n_bytes: usize) -> Result<Latency> {
    let path = dir.join("fdatasync");
    let file = File::create(&path)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, calls * n_bytes as u64)?;
    file.sync_all()?;
    let start = Instant::now();
    let due = |number: u64| start + Duration::from_nanos(number * 1_000_000_000 / per_s);
    let (mut done, mut times) = (0, Vec::with_capacity(calls as usize));
    while done < calls {
        let now = Instant::now();
        if now < due(done) {
            // As coarse as the timers of those who commit.
            std::thread::sleep(Duration::from_millis(1));
        }
        let late = now >= due(done);
        let begun = Instant::now();
        let waiting: Vec<u64> = (done..calls).take_while(|number| due(*number) <= begun).collect();
        if waiting.is_empty() {
            continue;
        }
        file.write_all_at(&vec![7; waiting.len() * n_bytes], done * n_bytes as u64)?;
        file.sync_data()?;
        times.extend(waiting.iter().map(|number| if late { due(*number) } else { begun }.elapsed()));
        done += waiting.len() as u64;
    }
    fs::remove_file(path)?;
    Ok(Latency::of(times))
}

/// In all folders below, in no order.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

/// The lengths of all files below.
pub fn bytes_on_disk(dir: &Path) -> Result<u64> {
    files(dir)?.iter().try_fold(0, |sum, path| Ok(sum + fs::metadata(path)?.len()))
}

/// The next reader finds nothing of these files in memory.
pub fn forget_pages(dir: &Path) -> Result<()> {
    for path in files(dir)? {
        let file = File::open(path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// For who is not root.
pub fn free_bytes(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// `VmRSS` or `VmHWM` of this process.
pub fn memory_bytes(line: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let found = status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
    let kib = found.and_then(|found| found.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    Ok(kib.unwrap_or(0) * 1024)
}
