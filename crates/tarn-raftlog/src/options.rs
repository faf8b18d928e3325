//! What can be chosen when a log is opened, and what does it report?

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::{GroupId, Index};

/// When a ticket counts as fulfilled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// On the device: survives loss of power.
    #[default]
    Durable,
    /// With the operating system: survives the death of the process only. For data that can be made again, and for a
    /// whole log ([`Options::sync`]): after loss of power it ends at the first frame that did not survive.
    Os,
    /// At once: the batch rides with whatever is written next. For what may be lost, as a moved commit index or a
    /// purge: no flush is made for it.
    Lazy,
}

/// Whether long payloads are made smaller on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As they are. LZ4 packs slower than a good disk writes.
    #[default]
    None,
    /// The entries of one append together, from 4 KiB on, if LZ4 saves an eighth; tried on a sample first. By the
    /// thread that builds the batch: about 1.5 µs for a KiB. For disks that are slow, worn by writing, or paid by the
    /// byte.
    Lz4,
}

/// What opening does with a log in which something acknowledged is damaged or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// Refuses to open, and changes nothing.
    #[default]
    Refuse,
    /// Opens. Groups that lost something are *damaged* from an index on (all groups, if that cannot be told), for good:
    /// the host must [`crate::Batch::destroy`] them and fetch them from their peers; until then they answer
    /// [`Error::Damaged`]. For a replica whose peers have the rest.
    Quarantine,
}

/// How a log is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the log; made if absent. Nothing else may live in it.
    pub dir: PathBuf,
    /// Length of a segment file. A batch that does not fit gets a longer one of its own.
    pub segment_bytes: u64,
    /// Newest payloads kept in memory for readers, beyond those not yet durable.
    pub cache_bytes: u64,
    /// `Durable` or `Os`, for the whole log (`Lazy` is for single batches, here it means `Durable`).
    pub sync: Durability,
    /// Submitted but not durable bytes at which `submit` commits before it takes more.
    pub pending_bytes: u64,
    /// Of payloads on disk. A log may be opened with another one each time.
    pub compression: Compression,
    /// What to do with a log that is damaged.
    pub recovery: Recovery,
    /// Nanoseconds that only grow, for [`crate::Metrics::write_ns`]; without it nothing is timed.
    pub clock: Option<fn() -> u64>,
}

const MIN_SEGMENT_BYTES: u64 = 16 << 10;
const MAX_SEGMENT_BYTES: u64 = 1 << 30;

impl Options {
    /// 64 MiB segments, 64 MiB of cache, durable, payloads as they are.
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: dir.into(),
            segment_bytes: 64 << 20,
            cache_bytes: 64 << 20,
            sync: Durability::Durable,
            pending_bytes: 128 << 20,
            compression: Compression::default(),
            recovery: Recovery::default(),
            clock: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if (MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&self.segment_bytes) {
            return Ok(());
        }
        Err(Error::Options { segment_bytes: self.segment_bytes, min: MIN_SEGMENT_BYTES, max: MAX_SEGMENT_BYTES })
    }

    /// Whole blocks, at least two.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes / crate::format::BLOCK * crate::format::BLOCK
    }
}

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Files with frames.
    pub n_segments: u64,
    /// Of those, read through because they were not sealed.
    pub n_scanned: u64,
    /// Files found empty and ready for use.
    pub n_free: u64,
    /// Groups that are there.
    pub n_groups: u64,
    /// Of all groups, purged ones not counted.
    pub n_entries: u64,
    /// Their payloads, and the records of the groups.
    pub live_bytes: u64,
    /// Where a write that was never acknowledged was cut off: file and byte.
    pub torn_tail: Option<(PathBuf, u64)>,
    /// What was wrong but is made whole from a second copy, or (`Recovery::Quarantine`) is lost.
    pub damages: Vec<Damage>,
    /// Groups that are damaged, and from where: found now or before, and not destroyed since.
    pub damaged: Vec<(GroupId, Index)>,
}

/// What one call of `collect_garbage` did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Segments in which nothing lived: made ready for use again, or removed.
    pub segments_deleted: u64,
    /// Of the files of these segments.
    pub bytes_freed: u64,
    /// Copied to the end of the log, so that segments could go.
    pub bytes_rewritten: u64,
}

/// The group that keeps the oldest entry, and how much it keeps: who to ask when the log does not shrink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Purge it, and the log can shrink.
    pub group: GroupId,
    /// Its oldest entry.
    pub first: Index,
    /// Payloads of all its entries.
    pub log_bytes: u64,
    /// The number of the segment that has its oldest entry.
    pub oldest_segment: u64,
}

/// One place where stored bytes are not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// In the file.
    pub offset: u64,
    /// What was expected there.
    pub what: String,
}

/// Entries `from..=to` of a group, which must exist, and are in no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostEntries {
    /// Whose entries they were.
    pub group: GroupId,
    /// The first that is gone.
    pub from: Index,
    /// The last that is gone.
    pub to: Index,
}

/// What reading every byte of a log found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Files with frames.
    pub n_segments: u64,
    /// Batches that were read whole.
    pub n_batches: u64,
    /// Entries in them, purged ones included.
    pub n_entries: u64,
    /// Of all files.
    pub bytes_read: u64,
    /// The newest segment ends in a write that was never acknowledged; the next open cuts it off.
    pub torn_tail: Option<(PathBuf, u64)>,
    /// What is there twice and once not whole, as a crash while a file is made ready for use leaves it: the next open
    /// makes it whole.
    pub mendable: Vec<Damage>,
    /// What is not what was written, and what was there, as far as that can be told.
    pub damages: Vec<Damage>,
    /// By group: what the rest of the log shows to have been there.
    pub lost: Vec<LostEntries>,
    /// Groups marked damaged by an opening with [`Recovery::Quarantine`], and from where; by group.
    pub damaged: Vec<(GroupId, Index)>,
}

impl VerifyReport {
    /// Whether all that was acknowledged is there and whole.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty() && self.lost.is_empty() && self.damaged.is_empty()
    }
}
