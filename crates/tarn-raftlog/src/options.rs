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
    /// With the operating system: survives the death of the process only. For data that can be made again.
    Os,
}

/// How a log is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the log; made if absent. Nothing else may live in it.
    pub dir: PathBuf,
    /// Size at which a segment is sealed. A batch that is larger gets a segment of its own.
    pub segment_bytes: u64,
    /// Newest payloads kept in memory for readers, beyond those not yet durable.
    pub cache_bytes: u64,
    pub sync: Durability,
    /// Submitted but not durable bytes at which `submit` commits before it takes more.
    pub pending_bytes: u64,
}

const MIN_SEGMENT_BYTES: u64 = 16 << 10;
const MAX_SEGMENT_BYTES: u64 = 1 << 30;

impl Options {
    /// 64 MiB segments, 64 MiB of cache, durable.
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: dir.into(),
            segment_bytes: 64 << 20,
            cache_bytes: 64 << 20,
            sync: Durability::Durable,
            pending_bytes: 128 << 20,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if (MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&self.segment_bytes) {
            return Ok(());
        }
        Err(Error::Options { segment_bytes: self.segment_bytes, min: MIN_SEGMENT_BYTES, max: MAX_SEGMENT_BYTES })
    }
}

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    pub n_segments: u64,
    /// Of those, read through because they were not sealed.
    pub n_scanned: u64,
    pub n_groups: u64,
    pub n_entries: u64,
    pub live_bytes: u64,
    /// Where a write that was never acknowledged was cut off: file and byte.
    pub torn_tail: Option<(PathBuf, u64)>,
}

/// Counters since open, and gauges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    pub batches: u64,
    /// Group commits: one write and one flush each.
    pub frames: u64,
    pub entries: u64,
    pub entry_bytes: u64,
    /// Frames with their padding, and seals.
    pub written_bytes: u64,
    pub segments_created: u64,
    pub segments_deleted: u64,
    pub rewritten_bytes: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub n_groups: u64,
    pub n_segments: u64,
    pub disk_bytes: u64,
    pub live_bytes: u64,
    pub cached_bytes: u64,
    pub pending_bytes: u64,
    pub poisoned: bool,
}

/// What one call of `collect_garbage` did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    pub segments_deleted: u64,
    pub bytes_freed: u64,
    pub bytes_rewritten: u64,
}

/// The group that keeps the oldest entry, and how much it keeps: who to ask when the log does not shrink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    pub group: GroupId,
    pub first: Index,
    pub log_bytes: u64,
    pub oldest_segment: u64,
}

/// One place where stored bytes are not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub path: PathBuf,
    pub offset: u64,
    pub what: String,
}

/// What reading every byte of a log found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub n_segments: u64,
    pub n_batches: u64,
    pub n_entries: u64,
    pub bytes_read: u64,
    /// The newest segment ends in a write that was never acknowledged; the next open cuts it off.
    pub torn_tail: Option<(PathBuf, u64)>,
    pub damages: Vec<Damage>,
}
