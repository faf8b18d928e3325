//! Values in files of a folder, each under its whole key, bounded by bytes, with checksums; shared by pages and fragments.
//!
//! Reading order: [`key`] what a key must say; [`disk`] the folder, what is in it and what goes; [`read`] values out of files, [`cached`] without
//! waiting for a disk, [`buffers`] into what memory; [`recover`] what an earlier process left, [`judge`] what of that is of use; [`format`] one file.

mod buffers;
mod cached;
mod disk;
mod format;
mod judge;
mod key;
mod read;
mod recover;

pub use disk::shortage;
pub(crate) use disk::{Enqueued, Held, Place, Shelf, ShelfOptions};
pub(crate) use judge::Left;
pub(crate) use key::{ShelfKey, Shelfmark};
pub(crate) use read::ReadAll;
