//! What can go wrong, and what may the caller do about it?
//!
//! A failed write or flush is final for the process: the log is *poisoned*, later submits answer
//! [`Error::Poisoned`], and tickets that were waiting answer [`Error::Undecided`] (their batch may be on disk).

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{GroupId, Index};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The call is wrong: fix it.
    Invalid,
    /// What was asked for is not there (purged, or not yet written).
    NotFound,
    /// Try later, or after the cause is removed.
    Unavailable,
    /// It may have happened: look before retrying.
    Indeterminate,
    /// Stored bytes are not what was written: stop.
    Corrupt,
}

/// Everything the log can refuse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of each says what its fields are")]
pub enum Error {
    /// The disk refused, before anything of the caller's was written.
    #[error("{action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// No room for another segment. Nothing was written and the log stays usable: purge, collect garbage, retry.
    #[error("no space for segment {path}: {source}")]
    NoSpace { path: PathBuf, source: io::Error },
    /// One process at a time.
    #[error("{path} is locked: another process has this log open")]
    Locked { path: PathBuf },
    /// An earlier write or flush failed; nothing was done. Reads go on; only a restart heals it.
    #[error("log is read-only since a write failed: {cause}")]
    Poisoned { cause: Arc<str> },
    /// [`crate::RaftLog::close`] was called; nothing was done. Reads go on.
    #[error("log in {dir} is closed")]
    Closed { dir: PathBuf },
    /// The write or flush of this batch failed: after a restart it is there or it is not.
    #[error("batch may or may not be durable: {cause}")]
    Undecided { cause: Arc<str> },
    /// Stored bytes that were not written so. Nothing on disk was changed.
    #[error("{path} at byte {offset}: {what}")]
    Corrupt { path: PathBuf, offset: u64, what: String },
    /// All segments are sound by themselves, but entries that must exist are in none of them.
    #[error("group {group} lost entries {from}..={to}: no segment in {dir} holds them")]
    Missing { dir: PathBuf, group: GroupId, from: Index, to: Index },
    /// The log was opened although this group had lost something: destroy it and fetch it from its peers.
    #[error("group {group} lost what was acknowledged, from entry {from} on")]
    Damaged { group: GroupId, from: Index },
    /// Sound bytes of another release.
    #[error("{path} has format version {found}, this program reads {known}")]
    Version { path: PathBuf, found: u8, known: u8 },
    /// Read from [`crate::RaftLog::first_index`] on.
    #[error("entries {}..{} of group {group} are purged up to {floor}", range.start, range.end)]
    Purged { group: GroupId, range: Range<Index>, floor: Index },
    /// Read up to [`crate::RaftLog::last_index`].
    #[error("entries {}..{} of group {group} end after its last, {last}", range.start, range.end)]
    OutOfRange { group: GroupId, range: Range<Index>, last: Index },
    /// Indexes of a group have no holes.
    #[error("append to group {group} at {first} leaves a gap after {last}")]
    Gap { group: GroupId, first: Index, last: Index },
    /// What is purged is not written again.
    #[error("index {index} of group {group} is purged (floor {floor}) and cannot be rewritten")]
    BelowFloor { group: GroupId, index: Index, floor: Index },
    /// Split the batch.
    #[error("batch of {size_bytes} bytes is over the limit of {limit_bytes}")]
    TooLarge { size_bytes: u64, limit_bytes: u64 },
    /// An option is out of its range.
    #[error("segment_bytes = {segment_bytes} is outside {min}..={max}")]
    Options { segment_bytes: u64, min: u64, max: u64 },
}

impl Error {
    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { .. }
            | Error::NoSpace { .. }
            | Error::Locked { .. }
            | Error::Poisoned { .. }
            | Error::Closed { .. } => ErrorKind::Unavailable,
            Error::Undecided { .. } => ErrorKind::Indeterminate,
            Error::Corrupt { .. } | Error::Missing { .. } | Error::Damaged { .. } => ErrorKind::Corrupt,
            Error::Purged { .. } | Error::OutOfRange { .. } => ErrorKind::NotFound,
            Error::Version { .. }
            | Error::Gap { .. }
            | Error::BelowFloor { .. }
            | Error::TooLarge { .. }
            | Error::Options { .. } => ErrorKind::Invalid,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_path_buf(), source }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { path: path.to_path_buf(), offset, what: what.into() }
    }
}
