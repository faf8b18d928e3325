//! What did a leaf of a plan give the last time? Bytes that the query room made, under keys that only it can read.
//!
//! A key holds everything that could make its value stale, so a lookup gives what the same work would give again, or
//! nothing. Keys are found by a hash and compared whole. Values are immutable: who puts a key a second time puts the
//! same bytes.
//!
//! Reading order: [`key`] the question; [`cache`] memory in front of the folder (`disk_cache`); [`stats`] counters.

mod cache;
mod key;
mod stats;

pub use cache::{FragmentCache, FragmentOptions};
pub use key::FragmentKey;
pub use stats::{FragmentStats, FragmentsCleared, FragmentsHeld};
