//! What can the disk itself do, so that nobody is compared with the impossible?
//!
//! The limit of a durable commit is one write of the frame's size to blocks that were written before, with `O_DIRECT | O_DSYNC`: one
//! command to the device. Beside it `fdatasync` after a buffered write (over old blocks, and growing the file), and sequential bandwidth.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use rustix::fs::OFlags;

use crate::job::Answer;
use crate::measure::percentile;

const BLOCK: usize = 4096;
const FILE_BYTES: usize = 64 << 20;
const MIB: usize = 1 << 20;

/// Bytes of the smallest aligned write that holds an entry and its headers.
pub fn frame_bytes(entry_bytes: u64) -> u64 {
    (entry_bytes + 128).next_multiple_of(BLOCK as u64)
}

/// Name of the limit for entries of a size, in [`limits`].
pub fn limit_name(entry_bytes: u64) -> String {
    format!("disk_limit_{}k_p50_us", frame_bytes(entry_bytes) >> 10)
}

/// Answers `disk_limit_<size>k_p50_us` and `_p99_us` for each frame of `entry_sizes`, `fdatasync_overwrite_p50_us`,
/// `fdatasync_append_p50_us`, `sequential_direct_mb_s`, `sequential_buffered_mb_s`. Where the file system refuses `O_DIRECT`, the figures
/// that need it are left out.
pub fn limits(dir: &Path, entry_sizes: &[u64], n_writes: usize) -> Result<Answer> {
    let path = dir.join("disk-limit");
    let mut answer = Answer::default();
    let buffer = Aligned::new(MIB);
    let file = File::create(&path)?;
    let started = Instant::now();
    write_through(&file, buffer.bytes(), FILE_BYTES)?;
    file.sync_data()?;
    answer.set("sequential_buffered_mb_s", FILE_BYTES as f64 / 1e6 / started.elapsed().as_secs_f64());

    let direct = OFlags::DIRECT.bits() as i32;
    if let Ok(file) = OpenOptions::new().write(true).custom_flags(direct).open(&path) {
        let started = Instant::now();
        write_through(&file, buffer.bytes(), FILE_BYTES)?;
        answer.set("sequential_direct_mb_s", FILE_BYTES as f64 / 1e6 / started.elapsed().as_secs_f64());
    }
    if let Ok(file) = OpenOptions::new().write(true).custom_flags(direct | OFlags::DSYNC.bits() as i32).open(&path) {
        let mut sizes: Vec<u64> = entry_sizes.iter().map(|&bytes| frame_bytes(bytes)).collect();
        sizes.dedup();
        for size in sizes {
            let frame = &buffer.bytes()[..size as usize];
            let times = times(n_writes, |i| file.write_all_at(frame, (i * frame.len() % (FILE_BYTES / 2)) as u64))?;
            answer.set(&format!("disk_limit_{}k_p50_us", size >> 10), percentile(&times, 500) / 1e3);
            answer.set(&format!("disk_limit_{}k_p99_us", size >> 10), percentile(&times, 990) / 1e3);
        }
    }
    let block = &buffer.bytes()[..BLOCK];
    let old = OpenOptions::new().write(true).open(&path)?;
    let over = times(n_writes, |i| {
        old.write_all_at(block, (i * BLOCK) as u64)?;
        old.sync_data()
    })?;
    answer.set("fdatasync_overwrite_p50_us", percentile(&over, 500) / 1e3);
    let grown = File::create(dir.join("disk-limit-grown"))?;
    let grow = times(n_writes, |i| {
        grown.write_all_at(block, (i * BLOCK) as u64)?;
        grown.sync_data()
    })?;
    answer.set("fdatasync_append_p50_us", percentile(&grow, 500) / 1e3);
    std::fs::remove_file(path)?;
    std::fs::remove_file(dir.join("disk-limit-grown"))?;
    Ok(answer)
}

fn write_through(file: &File, piece: &[u8], bytes: usize) -> Result<()> {
    for at in (0..bytes).step_by(piece.len()) {
        file.write_all_at(piece, at as u64)?;
    }
    Ok(())
}

/// Nanoseconds of each of `n` calls, sorted.
fn times(n: usize, mut write: impl FnMut(usize) -> std::io::Result<()>) -> Result<Vec<u32>> {
    let mut times = Vec::with_capacity(n);
    for i in 0..n {
        let started = Instant::now();
        write(i)?;
        times.push(u32::try_from(started.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
    times.sort_unstable();
    Ok(times)
}

/// Bytes whose address is a multiple of a block, as `O_DIRECT` asks.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let memory = vec![7; len + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        Aligned { memory, start, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_blocks() {
        assert_eq!([128, 1024, 16384].map(frame_bytes), [4096, 4096, 20480]);
        assert_eq!(limit_name(16384), "disk_limit_20k_p50_us");
    }

    #[test]
    fn limits_are_measured_where_the_file_system_allows() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let answer = limits(dir.path(), &[128, 1024, 16384], 3)?;
        assert!(answer.figures["fdatasync_append_p50_us"] > 0.0);
        assert!(answer.figures["sequential_buffered_mb_s"] > 0.0);
        Ok(())
    }
}
