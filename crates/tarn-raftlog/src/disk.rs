//! What does the log ask of a disk?
//!
//! One seam, so that tests can cut the power: [`OsDisk`] here, [`crate::MemoryDisk`] beside it. A write is durable
//! after `sync_*` of its file; a name (create, rename, remove) is durable after `sync_dir` of its folder.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A file system as the log sees it.
pub trait Disk: Send + Sync {
    /// Makes a folder and those above it, if absent.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Names (not paths) of the files in `dir`, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// A new or emptied file of `len` bytes that read as zero, with its space reserved: `StorageFull` comes from here.
    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DiskFile>>;
    /// A file that is there, to read and write; else `NotFound`.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Moves a name, replacing what has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name; open files can still be read.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes all names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the exclusive lock of a file, made if absent; `None` if another process holds it. Dropping it unlocks.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;
    /// A number no earlier segment used: salts and store ids. Not a secret.
    fn salt(&self) -> u64;
}

/// One open file; positions are explicit, so it is shared freely.
pub trait DiskFile: Send + Sync {
    /// The file's length.
    fn size_bytes(&self) -> io::Result<u64>;
    /// Fills `buf`, or fails with `UnexpectedEof`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all slices one after another from `offset`.
    fn write_at(&self, slices: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Data and what is needed to read it back.
    fn sync_data(&self) -> io::Result<()>;
    /// Data and all metadata, the length too.
    fn sync_all(&self) -> io::Result<()>;
}

/// The local file system: `pwritev`, `fdatasync`, `flock`.
#[derive(Debug, Default)]
pub struct OsDisk;

/// The kernel takes no more slices in one call.
const MAX_SLICES: usize = 1024;

impl Disk for OsDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        if len > 0 {
            use rustix::fs::FallocateFlags;
            use rustix::io::Errno;
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(len)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Arc::new(OsFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OsFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn salt(&self) -> u64 {
        RandomState::new().hash_one(std::process::id())
    }
}

struct OsFile(File);

impl DiskFile for OsFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0); // drops leading empty slices
        while !slices.is_empty() {
            let n = slices.len().min(MAX_SLICES);
            match rustix::io::pwritev(&self.0, &slices[..n], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
