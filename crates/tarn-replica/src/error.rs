//! What can go wrong on the way to agreement, and what may the caller do about it?

use tarn_types::{Kind, SeqNo, TabletId};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything a replica can refuse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log refused. By its kind: `Unavailable` (nothing happened) or `Indeterminate` (the entry may be in the log).
    #[error("tablet {tablet}: {source}")]
    Log {
        /// The tablet.
        tablet: TabletId,
        /// The log's error.
        source: tarn_raftlog::Error,
    },
    /// What the rows hold could not be read, so that it is not known what the batch comes to. Nothing happened.
    #[error("decide a batch of tablet {tablet}: {source}")]
    NotDecided {
        /// The tablet.
        tablet: TabletId,
        /// Why.
        source: tarn_rows::Error,
    },
    /// The batch changes nothing, or is refused, because of another that may be lost. Nothing of it happened.
    #[error("a batch of tablet {tablet} was decided upon one that is in doubt: {source}")]
    InDoubt {
        /// The tablet.
        tablet: TabletId,
        /// What became of the other.
        source: Box<Error>,
    },
    /// The entry is agreed and durable, but the rows refused it. It comes into effect with the tablet's next proposal,
    /// or at the next start: do not send it again.
    #[error("entry {seqno} of tablet {tablet} is in the log, but not yet applied: {source}")]
    NotApplied {
        /// The tablet.
        tablet: TabletId,
        /// The entry that could not be applied: the one asked for, or one before it.
        seqno: SeqNo,
        /// Why.
        source: tarn_rows::Error,
    },
    /// An entry could not be replayed.
    #[error("replay entry {seqno} of tablet {tablet}: {source}")]
    Replay {
        /// The tablet.
        tablet: TabletId,
        /// The entry.
        seqno: SeqNo,
        /// Why.
        source: tarn_rows::Error,
    },
    /// The bytes of an entry are no effects, though their checksum is right.
    #[error("entry {seqno} of tablet {tablet}: {source}")]
    Entry {
        /// The tablet.
        tablet: TabletId,
        /// The entry.
        seqno: SeqNo,
        /// What is wrong with them.
        source: tarn_types::Error,
    },
    /// The rows are further than the log: the log is not the one they were written from, or its end is gone.
    #[error("tablet {tablet} has applied {applied}, but its log ends at {last}")]
    LogBehind {
        /// The tablet.
        tablet: TabletId,
        /// What the rows have applied.
        applied: SeqNo,
        /// Where the log ends.
        last: SeqNo,
    },
    /// The log begins after entries that the rows still need.
    #[error("tablet {tablet} needs its log from {needed} on, but it begins at {first}")]
    LogGone {
        /// The tablet.
        tablet: TabletId,
        /// The first entry that must be replayed.
        needed: SeqNo,
        /// The first that there is.
        first: SeqNo,
    },
    /// A batch could not be cut by tablets. Nothing happened.
    #[error("cut a batch by tablets: {0}")]
    Cut(tarn_types::Error),
    /// Tablets were split again and again while a batch was proposed. Nothing happened: try again.
    #[error("tablets of table {table} are being split")]
    Moving {
        /// The table's name.
        table: String,
    },
    /// Replicas of several logs were asked to commit together.
    #[error("tablets {tablet} and {given} have different logs")]
    NotOurs {
        /// One tablet.
        tablet: TabletId,
        /// The other.
        given: TabletId,
    },
}

impl Error {
    /// What the caller can do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Log { source, .. } => kind_of(source),
            Self::NotApplied { source, .. } if source.kind() == Kind::Corrupt => Kind::Corrupt,
            Self::NotApplied { .. } => Kind::Indeterminate,
            Self::InDoubt { .. } => Kind::Unavailable,
            Self::NotDecided { source, .. } | Self::Replay { source, .. } => source.kind(),
            Self::Entry { .. } | Self::LogBehind { .. } | Self::LogGone { .. } => Kind::Corrupt,
            Self::Cut(source) => source.kind(),
            Self::Moving { .. } => Kind::Conflict,
            Self::NotOurs { .. } => Kind::Invalid,
        }
    }

    /// Have keys of the batch moved to another tablet, so that it should be cut anew?
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::NotDecided { source: tarn_rows::Error::Elsewhere { .. }, .. })
    }

    pub(crate) fn not_decided(tablet: TabletId) -> impl FnOnce(tarn_rows::Error) -> Self {
        move |source| Self::NotDecided { tablet, source }
    }

    pub(crate) fn log(tablet: TabletId) -> impl FnOnce(tarn_raftlog::Error) -> Self {
        move |source| Self::Log { tablet, source }
    }
}

/// The log knows nothing of ours, so its kinds are its own.
pub(crate) fn kind_of(error: &tarn_raftlog::Error) -> Kind {
    use tarn_raftlog::ErrorKind;
    match error.kind() {
        ErrorKind::Invalid => Kind::Invalid,
        ErrorKind::NotFound => Kind::NotFound,
        ErrorKind::Unavailable => Kind::Unavailable,
        ErrorKind::Indeterminate => Kind::Indeterminate,
        ErrorKind::Corrupt => Kind::Corrupt,
    }
}
