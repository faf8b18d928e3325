//! Is there room for what must be written?
//!
//! A file of zeros, [`Reserve::NAME`] in the data folder, holds room back. A node that starts on a full disk, or fills
//! its disk while it runs, deletes it: replaying and flushing what was acknowledged needs room. Writes are refused
//! (`53100`) from then on, and before nothing at all is left, until there is room enough to make the file again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Of a small disk, no more than this part is held back.
const DISK_PART: u64 = 16;

/// See the module.
pub struct Reserve {
    path: PathBuf,
    /// 0: switched off.
    n_bytes: u64,
    is_low: AtomicBool,
}

/// A disk, in bytes.
#[derive(Debug, Clone, Copy)]
struct Room {
    free: u64,
    all: u64,
}

impl Reserve {
    /// The file's name in the data folder.
    pub const NAME: &str = "RESERVE";

    /// For a node that starts: gives the room back if there is little. Makes nothing, see [`Reserve::look`].
    pub fn open(data_dir: &Path, wanted_bytes: u64) -> io::Result<Reserve> {
        let room = room(data_dir)?;
        let n_bytes = wanted_bytes.min(room.all / DISK_PART);
        let reserve = Reserve { path: data_dir.join(Self::NAME), n_bytes, is_low: AtomicBool::new(false) };
        if room.free < n_bytes {
            reserve.release()?;
        }
        reserve.is_low.store(room.free < reserve.least_bytes(), Ordering::Release);
        Ok(reserve)
    }

    /// Are writes to be refused?
    pub fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Acquire)
    }

    /// Looks how much room there is, and takes or gives back what is held. Every second or so.
    pub fn look(&self) -> io::Result<()> {
        if self.n_bytes == 0 {
            return Ok(());
        }
        let room = room(self.path.parent().expect("it lies in the data folder"))?;
        let is_held = self.path.exists();
        if room.free < self.least_bytes() {
            self.is_low.store(true, Ordering::Release);
            return if is_held { self.release() } else { Ok(()) };
        }
        // Half of it more than the file itself takes: what is refused must not be let in and refused again every
        // second.
        if !is_held && room.free < self.n_bytes + self.n_bytes / 2 {
            return Ok(());
        }
        if !is_held {
            self.take()?;
        }
        self.is_low.store(false, Ordering::Release);
        Ok(())
    }

    /// What must be free for writes to be taken.
    fn least_bytes(&self) -> u64 {
        self.n_bytes / 4
    }

    fn take(&self) -> io::Result<()> {
        let file = File::create(&self.path)?;
        let taken = fallocate(&file, FallocateFlags::empty(), 0, self.n_bytes);
        if taken.is_err() {
            // A file without its room is worse than none.
            self.release()?;
        }
        Ok(taken?)
    }

    fn release(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(()) => {
                tracing::warn!(bytes = self.n_bytes, "the disk is nearly full: the reserve is given back");
                Ok(())
            }
            removed => removed,
        }
    }
}

fn room(dir: &Path) -> io::Result<Room> {
    let disk = statvfs(dir)?;
    Ok(Room { free: disk.f_bavail * disk.f_frsize, all: disk.f_blocks * disk.f_frsize })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_takes_real_room_and_gives_it_back() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::open(dir.path(), 1 << 20).unwrap();
        assert!(!dir.path().join(Reserve::NAME).exists(), "a node that has not looked holds nothing back");
        reserve.look().unwrap();
        let held = std::fs::metadata(dir.path().join(Reserve::NAME)).unwrap();
        assert!(held.blocks() * 512 >= 1 << 20, "its bytes are really taken: {} blocks", held.blocks());
        assert!(!reserve.is_low());
    }

    #[test]
    fn a_disk_with_less_than_the_reserve_gives_it_back_at_start_and_refuses_writes() {
        let dir = tempfile::tempdir().unwrap();
        let room = room(dir.path()).unwrap();
        std::fs::write(dir.path().join(Reserve::NAME), [0; 4096]).unwrap();
        // No disk has so much free that a sixteenth of it is more.
        let reserve = Reserve { path: dir.path().join(Reserve::NAME), n_bytes: room.all * 8, is_low: false.into() };
        reserve.look().unwrap();
        assert!(reserve.is_low());
        assert!(!dir.path().join(Reserve::NAME).exists());
        reserve.look().unwrap();
        assert!(reserve.is_low(), "it stays so until there is room for the reserve again");
    }

    #[test]
    fn no_reserve_is_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::open(dir.path(), 0).unwrap();
        reserve.look().unwrap();
        assert!(!reserve.is_low() && !dir.path().join(Reserve::NAME).exists());
    }
}
