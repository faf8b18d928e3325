//! Values in files of a folder, each under its whole key, bounded by bytes, with checksums; shared by pages and
//! fragments.
//!
//! Reading order: [`key`] what a key must say; [`cache`] the folder, what is in it and what goes; [`read`] values out
//! of files, [`cached`] without waiting for a disk, [`buffers`] into what memory; [`recover`] what an earlier process
//! left, [`judge`] what of that is of use; [`format`] one file.

mod buffers;
mod cache;
mod cached;
mod format;
mod judge;
mod key;
mod read;
mod recover;

pub use cache::shortage;
pub(crate) use cache::{DiskCache, DiskCacheOptions, DiskUsage, EnqueueResult, Location};
pub(crate) use judge::FolderContent;
pub(crate) use key::{DiskKey, EntryId};
pub(crate) use read::ReadAll;
