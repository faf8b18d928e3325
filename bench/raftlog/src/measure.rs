//! What did it cost? CPU, bytes to storage, flushes of the device, disk in use, percentiles.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};
use rustix::time::{ClockId, clock_gettime};

/// Counters of this process and of the device under a folder.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Seconds of all threads, user and system.
    pub cpu_s: f64,
    /// Bytes the kernel accounts to this process as written to storage. A page that is written back and dirtied again
    /// counts again, and of a large folio the whole, though only its dirty blocks are written: too much where old
    /// blocks are overwritten in the page cache.
    accounted_bytes: u64,
    /// Bytes, writes and flushes the whole device completed, for whomever.
    device_bytes: u64,
    pub device_writes: u64,
    pub device_flushes: u64,
}

impl Counters {
    /// The counters now. Unknown ones are 0.
    pub fn now(dir: &Path) -> Counters {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap_or_default();
        let [device_writes, device_sectors, device_flushes] = device(dir).unwrap_or_default();
        Counters {
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            accounted_bytes: written.parse().unwrap_or_default(),
            device_bytes: device_sectors * 512,
            device_writes,
            device_flushes,
        }
    }

    /// What was added since `before`.
    pub fn since(self, before: Counters) -> Counters {
        Counters {
            cpu_s: self.cpu_s - before.cpu_s,
            accounted_bytes: self.accounted_bytes - before.accounted_bytes,
            device_bytes: self.device_bytes - before.device_bytes,
            device_writes: self.device_writes - before.device_writes,
            device_flushes: self.device_flushes - before.device_flushes,
        }
    }

    /// Bytes written, where everything was flushed at the end: what is accounted to the process, but no more than the
    /// device wrote.
    pub fn flushed_bytes(self) -> u64 {
        if self.device_bytes == 0 { self.accounted_bytes } else { self.accounted_bytes.min(self.device_bytes) }
    }

    /// Bytes written, where the system writes back later: what is accounted to the process.
    pub fn unflushed_bytes(self) -> u64 {
        self.accounted_bytes
    }
}

fn device(dir: &Path) -> Option<[u64; 3]> {
    let number = fs::metadata(dir).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let fields: Vec<u64> = stat.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some([*fields.get(4)?, *fields.get(6)?, *fields.get(15)?])
}

/// The value below which `per_mille` of the sorted samples lie.
pub fn percentile(sorted: &[u32], per_mille: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * per_mille / 1000).min(last)).map_or(f64::NAN, |&sample| f64::from(sample))
}

/// The middle value; of an even number the mean of the two in the middle.
pub fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The geometric mean.
pub fn geomean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// Bytes of disk the files of a folder take, and those of its folders.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for_each_file(dir, &mut |path| {
        // A file may be deleted between the listing and this call.
        bytes += fs::metadata(path).map_or(0, |metadata| metadata.st_blocks() * 512);
        Ok(())
    })?;
    Ok(bytes)
}

/// Puts the pages of all files of a folder out of the page cache, after writing them back.
pub fn evict(dir: &Path) -> Result<()> {
    for_each_file(dir, &mut |path| {
        let Ok(file) = File::open(path) else { return Ok(()) };
        file.sync_all().with_context(|| format!("sync {}", path.display()))?;
        fadvise(&file, 0, None, Advice::DontNeed).with_context(|| format!("evict {}", path.display()))
    })
}

/// Calls `visit` with every file below `dir`, in no order.
pub fn for_each_file(dir: &Path, visit: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let entry = entry?;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => for_each_file(&entry.path(), visit)?,
            Ok(kind) if kind.is_file() => visit(&entry.path())?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{geomean, median, percentile};

    #[test]
    fn middles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!((geomean(&[1.0, 4.0]) - 2.0).abs() < 1e-12);
        assert_eq!(percentile(&[1, 2, 3, 4], 500), 3.0);
        assert_eq!(percentile(&[7], 999), 7.0);
        assert!(percentile(&[], 500).is_nan());
    }
}
