//! What can the disk itself do, so that nobody is compared with the impossible?
//!
//! The limit of a durable commit is one write of the frame's size to blocks that were written before, with `O_DIRECT |
//! O_DSYNC`: one command to the device. Beside it `fdatasync` after a buffered write (over old blocks, and growing the
//! file), and sequential bandwidth.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use rustix::fs::OFlags;

use crate::job::JobOutput;
use crate::measure::percentile;

const BLOCK: usize = 4096;
const FILE_BYTES: usize = 64 << 20;
const LIMIT_FILE_BYTES: usize = 16 << 20;
const MIB: usize = 1 << 20;

/// Bytes of the smallest aligned write that holds an entry and its headers.
pub fn frame_bytes(entry_bytes: u64) -> u64 {
    (entry_bytes + 128).next_multiple_of(BLOCK as u64)
}

/// Name of the limit for entries of a size.
pub fn limit_name(entry_bytes: u64) -> String {
    format!("disk_limit_{entry_bytes}b_p50_us")
}

/// Nanoseconds, sorted, of `n` durable writes of the frame of an entry; nothing where the file system refuses
/// `O_DIRECT`.
pub fn limit(dir: &Path, entry_bytes: u64, n: usize) -> Result<Vec<u32>> {
    let path = dir.join("disk-limit");
    let buffer = AlignedBuffer::new(MIB);
    let file = File::create(&path)?;
    write_through(&file, buffer.bytes(), LIMIT_FILE_BYTES)?;
    file.sync_all()?;
    let flags = OFlags::DIRECT | OFlags::DSYNC;
    let times = match OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(&path) {
        Ok(file) => {
            let frame = &buffer.bytes()[..frame_bytes(entry_bytes) as usize];
            let n_places = LIMIT_FILE_BYTES / frame.len();
            times(n, |i| file.write_all_at(frame, (i % n_places * frame.len()) as u64))?
        }
        Err(_) => Vec::new(),
    };
    std::fs::remove_file(path)?;
    Ok(times)
}

/// The limit's figures, from writes before and after the cell it is compared with.
pub fn limit_figures(entry_bytes: u64, mut times: Vec<u32>) -> JobOutput {
    times.sort_unstable();
    let mut answer = JobOutput::default();
    let name = limit_name(entry_bytes);
    answer.set(&name, percentile(&times, 500) / 1e3);
    answer.set(&name.replace("p50", "p99"), percentile(&times, 990) / 1e3);
    answer
}

/// Answers `fdatasync_overwrite_p50_us`, `fdatasync_append_p50_us` (4 KiB each), `sequential_direct_mb_s` (left out
/// where the file system refuses it) and `sequential_buffered_mb_s`.
pub fn general(dir: &Path, n_writes: usize) -> Result<JobOutput> {
    let path = dir.join("disk-general");
    let mut answer = JobOutput::default();
    let buffer = AlignedBuffer::new(MIB);
    let file = File::create(&path)?;
    let started = Instant::now();
    write_through(&file, buffer.bytes(), FILE_BYTES)?;
    file.sync_data()?;
    answer.set("sequential_buffered_mb_s", FILE_BYTES as f64 / 1e6 / started.elapsed().as_secs_f64());
    if let Ok(file) = OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path) {
        let started = Instant::now();
        write_through(&file, buffer.bytes(), FILE_BYTES)?;
        answer.set("sequential_direct_mb_s", FILE_BYTES as f64 / 1e6 / started.elapsed().as_secs_f64());
    }
    let block = &buffer.bytes()[..BLOCK];
    for (name, path) in [("overwrite", path.clone()), ("append", dir.join("disk-grown"))] {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        let times = times(n_writes, |i| {
            file.write_all_at(block, (i * BLOCK) as u64)?;
            file.sync_data()
        })?;
        answer.set(&format!("fdatasync_{name}_p50_us"), percentile(&times, 500) / 1e3);
        std::fs::remove_file(path)?;
    }
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
struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    fn new(len: usize) -> AlignedBuffer {
        let memory = vec![7; len + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        AlignedBuffer { memory, start, len }
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
        assert_eq!(limit_name(16384), "disk_limit_16384b_p50_us");
    }

    #[test]
    fn limits_are_measured_where_the_file_system_allows() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let answer = general(dir.path(), 3)?;
        assert!(answer.figures["fdatasync_append_p50_us"] > 0.0);
        assert!(answer.figures["sequential_buffered_mb_s"] > 0.0);
        let times = limit(dir.path(), 16384, 3)?;
        assert_eq!(limit_figures(16384, times.clone()).figures.len(), if times.is_empty() { 0 } else { 2 });
        assert_eq!(std::fs::read_dir(dir.path())?.count(), 0, "nothing is left behind");
        Ok(())
    }
}
