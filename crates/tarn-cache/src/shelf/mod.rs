//! Values in files of a folder, each under its whole key, bounded by bytes, with checksums; shared by pages and fragments.
//!
//! Reading order: [`key`] what a key must say; [`disk`] the folder, what is in it and what goes; [`format`] one file.

mod disk;
mod format;
mod key;

pub(crate) use disk::{Enqueued, Held, Left, Place, Shelf, ShelfOptions};
pub(crate) use key::{ShelfKey, Slot};
