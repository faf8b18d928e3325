//! Values in files of a folder, each under its whole key, bounded by bytes, with checksums; shared by pages and fragments.
//!
//! Reading order: [`key`] what a key must say; [`disk`] the folder, what is in it and what goes; [`cached`] reads that wait for no disk; [`recover`] what an earlier
//! process left; [`format`] one file.

mod cached;
mod disk;
mod format;
mod key;
mod recover;

pub(crate) use disk::{Enqueued, Held, Place, ReadAll, Shelf, ShelfOptions};
pub(crate) use key::{ShelfKey, Shelfmark};
pub(crate) use recover::Left;
