//! Are these values in the system's page cache? Then they are read at once, on the thread that asks: handing a small
//! read to another thread takes longer than the read.
//!
//! The kernel promises not to wait for a disk: it opens a file only if its path is in memory, and reads only what is.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::path::Path as FsPath;

use rustix::fs::{Advice, CWD, Mode, OFlags, ResolveFlags, fadvise, openat2};
use rustix::io::{ReadWriteFlags, preadv2};

/// Opens a file without waiting for a disk. `None`: that cannot be done, or not on this system.
pub(super) fn open(path: &FsPath) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED).map(OwnedFd::into).ok()
}

/// Fills `head` and `value` from the start of `file` without waiting for a disk. `false`: it has less, or not all is in
/// memory.
pub(super) fn read(file: &File, head: &mut [u8], value: &mut [u8]) -> bool {
    let len = head.len() + value.len();
    let mut parts = [IoSliceMut::new(head), IoSliceMut::new(value)];
    preadv2(file, &mut parts, 0, ReadWriteFlags::NOWAIT).is_ok_and(|read| read == len)
}

/// Has the disk read files while others are still waited for, unless the last one is in memory. Blocks for each file's
/// place on disk.
pub(super) fn prefetch<'a>(paths: impl Iterator<Item = &'a FsPath> + Clone) {
    let is_near = |path: &FsPath| open(path).is_some_and(|file| read(&file, &mut [0; 64], &mut []));
    if paths.clone().last().is_none_or(is_near) {
        return;
    }
    for file in paths.filter_map(|path| File::open(path).ok()) {
        let _ = fadvise(&file, 0, None, Advice::WillNeed);
    }
}
