//! Here is a group and an index: give me the entry, its term, its size.
//!
//! One stream of segment files holds the Raft logs of many groups. There is no LSM: (group, index) is dense and
//! short-lived, so the index is an array per group in memory, and space comes back as whole segments.
//!
//! ```
//! use tarn_raftlog::{GroupId, Index, Options, RaftLog, Term};
//!
//! let dir = tempfile::tempdir()?;
//! let (log, _report) = RaftLog::open(Options::new(dir.path()))?;
//! let group = GroupId(7);
//!
//! let mut batch = log.batch();
//! batch.append(group, Term(1), Index(1), [&b"first"[..], b"second"]).state(group, b"vote: 1");
//! let ticket = log.submit(batch)?; // readable now
//! ticket.wait()?; // durable now: one write and one flush for all who wait
//!
//! let entries = log.entries(group, Index(1)..Index(3), usize::MAX)?;
//! assert_eq!(&entries[1].payload[..], b"second");
//!
//! let mut batch = log.batch();
//! batch.purge(group, Index(1), Term(1));
//! log.submit(batch)?; // need not be waited for
//! assert_eq!(log.first_index(group), Index(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What holds, and is tested: acknowledged means present after loss of power, byte-equal; a batch is all or nothing;
//! batches survive as a prefix of their order; purged or overwritten entries never come back; the first failed write or
//! flush ends all writing ([`Error::Poisoned`]); damage is named, never returned as data and never skipped; a segment
//! file that is gone is missed, the newest too.
//!
//! Reading order: [`format`](../docs/formats/raftlog.md), `record`, `index`, `batch`, `shared`, `submit`, `lane`,
//! `pipeline`, `commit`, `head`, `recovery`, `gc`.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[cfg(any(feature = "raft-rs", feature = "openraft"))]
pub mod adapters;
mod batch;
mod buffer;
mod cache;
mod calls;
mod commit;
mod disk;
mod error;
mod format;
mod gate;
mod gc;
mod head;
mod index;
mod lane;
mod log;
mod maintenance;
mod memory;
mod metrics;
mod open_log;
mod options;
mod pipeline;
#[cfg(test)]
mod pipeline_tests;
mod read;
mod record;
mod recovery;
mod replay;
mod segment;
mod shards;
mod shorten;
mod submit;
mod sync;
mod tail;
mod ticket;
mod verify;

use std::fmt;

pub use batch::Batch;
pub use disk::{Disk, DiskFile, OsDisk};
pub use error::{Error, ErrorKind, Result};
pub use log::{Entry, RaftLog};
pub use memory::MemoryDisk;
pub use metrics::{Histogram, Metrics, SegmentInfo};
pub use options::{
    Blocker, Compression, Damage, Durability, GcReport, LostEntries, Options, Recovery, RecoveryReport, VerifyReport,
};
pub use ticket::{Committer, Ticket};

/// One Raft group, or whatever else needs an ordered log of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// Position of an entry in its group; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u64);

/// Term of a Raft election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl Index {
    /// The index after this one.
    pub fn next(self) -> Index {
        Index(self.0 + 1)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
