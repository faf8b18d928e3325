//! What does the log ask of a disk?
//!
//! One seam, so that tests can cut the power: [`OsDisk`] here, [`crate::MemoryDisk`] beside it. A write is durable
//! after `write_durable` or a later `sync` of its file; a name (create, rename, remove) is durable after `sync_dir` of
//! its folder.
//!
//! Durable writes of whole blocks from block-aligned memory go past the page cache (`O_DIRECT | O_DSYNC`: one command
//! to a device that can force a write through), everything else is `pwrite` and `fdatasync`; so are all writes where a
//! file system refuses direct I/O.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::OFlags;

use crate::format::BLOCK;

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

/// One open file; positions are explicit, so it is shared freely, and writes to different places may run at once.
pub trait DiskFile: Send + Sync {
    /// The file's length.
    fn size_bytes(&self) -> io::Result<u64>;
    /// Fills `buf`, or fails with `UnexpectedEof`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all bytes; they survive the process, not the power.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all bytes and makes them, not necessarily others, durable.
    fn write_durable(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes all data and metadata durable, the length too.
    fn sync(&self) -> io::Result<()>;
    /// No write is to be expected soon: what only writing needs may be let go.
    fn rest(&self) {}
}

/// The local file system: direct writes, `pread`, `flock`.
#[derive(Debug, Default)]
pub struct OsDisk;

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
        Ok(Arc::new(OsFile::new(file, path)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(OsFile::new(file, path)))
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

struct OsFile {
    file: File,
    /// Where it was when it was opened; its own link in /proc says where it is now.
    path: PathBuf,
    direct: RwLock<Direct>,
}

/// Descriptors past the page cache, opened when first needed.
#[derive(Default)]
struct Direct {
    durable: Option<Arc<File>>,
    plain: Option<Arc<File>>,
    refused: bool,
}

/// Shorter writes that need not be durable are cheaper through the page cache.
const MIN_PLAIN_DIRECT: usize = 128 << 10;

impl OsFile {
    fn new(file: File, path: &Path) -> OsFile {
        OsFile { file, path: path.to_path_buf(), direct: RwLock::default() }
    }

    /// The descriptor for a direct write of these bytes, if there can be one.
    fn direct(&self, bytes: &[u8], offset: u64, durable: bool) -> Option<Arc<File>> {
        let block = BLOCK as usize;
        let aligned = offset.is_multiple_of(BLOCK)
            && bytes.len().is_multiple_of(block)
            && bytes.as_ptr().align_offset(block) == 0
            && !bytes.is_empty();
        if !aligned {
            return None;
        }
        {
            let direct = self.direct.read();
            let ready = if durable { &direct.durable } else { &direct.plain };
            if direct.refused || ready.is_some() {
                return ready.clone().filter(|_| !direct.refused);
            }
        }
        let mut direct = self.direct.write();
        let flags = if durable { OFlags::DIRECT | OFlags::DSYNC } else { OFlags::DIRECT };
        // The file may have been renamed since it was opened: the descriptor's own link leads to it.
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.file));
        let open = |path: &Path| OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path);
        let opened =
            open(Path::new(&own)).or_else(|_| open(&self.path)).ok().filter(|file| same_file(file, &self.file));
        direct.refused = opened.is_none();
        let opened = opened.map(Arc::new);
        *(if durable { &mut direct.durable } else { &mut direct.plain }) = opened.clone();
        opened
    }

    /// `false`: direct I/O is not for this file, nothing is known to be written.
    fn write_direct(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<bool> {
        let Some(file) = self.direct(bytes, offset, durable) else { return Ok(false) };
        match file.write_all_at(bytes, offset) {
            Ok(()) => Ok(true),
            // Some file systems open such a descriptor and refuse only the write.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                self.direct.write().refused = true;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

fn same_file(a: &File, b: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

impl DiskFile for OsFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.len() >= MIN_PLAIN_DIRECT && self.write_direct(bytes, offset, false)? {
            return Ok(());
        }
        self.file.write_all_at(bytes, offset)
    }

    fn write_durable(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.write_direct(bytes, offset, true)? {
            return Ok(());
        }
        self.file.write_all_at(bytes, offset)?;
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn rest(&self) {
        let mut direct = self.direct.write();
        (direct.durable, direct.plain) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffers;

    #[test]
    fn aligned_and_unaligned_writes_read_back_alike() {
        let dir = tempfile::tempdir().unwrap();
        let file = OsDisk.create(&dir.path().join("a.tmp"), 1 << 20).unwrap();
        OsDisk.rename(&dir.path().join("a.tmp"), &dir.path().join("a")).unwrap();
        let buffers = Buffers::default();
        let mut buffer = buffers.take(256 << 10);
        buffer.extend(&[7; 200 << 10]);
        buffer.pad(BLOCK as usize);
        file.write_durable(buffer.bytes(), 8192).unwrap();
        file.write_at(buffer.bytes(), 512 << 10).unwrap();
        file.write_durable(b"short", 3).unwrap();
        file.rest();
        file.write_durable(&buffer.bytes()[..4096], 4096).unwrap();
        let mut back = vec![0; 1 << 20];
        file.read_at(&mut back, 0).unwrap();
        assert_eq!(&back[..9], b"\0\0\0short\0");
        assert!(back[4096..8192].iter().all(|&b| b == 7) && back[8192..8192 + (200 << 10)].iter().all(|&b| b == 7));
        assert!(back[512 << 10..712 << 10].iter().all(|&b| b == 7));
        assert_eq!(file.size_bytes().unwrap(), 1 << 20);
        assert_eq!(file.read_at(&mut [0; 2], (1 << 20) - 1).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
