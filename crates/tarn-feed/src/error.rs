//! What can go wrong in the feed, and what may the caller do about it?

use std::path::PathBuf;

use tarn_types::{Cursor, Kind, SeqNo, TabletId};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything the feed can refuse.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The reader is behind the log's retention: take a snapshot and go on from its cursor.
    #[error("tablet {tablet} keeps changes from {first} on, the reader stands at {after}")]
    Trimmed {
        /// The tablet whose log begins later.
        tablet: TabletId,
        /// Where the reader stands.
        after: SeqNo,
        /// The first change there is.
        first: SeqNo,
    },
    /// A checkpoint cannot move to a place that was not polled yet.
    #[error("subscription {name} was polled up to {polled}, not to {asked}")]
    NotPolled {
        /// The subscription.
        name: String,
        /// How far it was polled.
        polled: Cursor,
        /// What the caller wanted to confirm.
        asked: Cursor,
    },
    /// A name that cannot be a file name.
    #[error(
        "subscription name {name:?} has characters besides letters, digits, '-', '_' and '.', or is empty or too long"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// A checkpoint file that we did not write.
    #[error("checkpoint {} is corrupt: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk refused.
    #[error("{context} {}: {source}", path.display())]
    Io {
        /// What we were doing, as a verb phrase.
        context: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Whoever implements a seam of this crate refused.
    #[error("{source}")]
    Source {
        /// What the caller can do.
        kind: Kind,
        /// The error of the implementation.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Carries an implementation's error through a seam of this crate.
    pub fn source(kind: Kind, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Source { kind, source: source.into() }
    }

    /// What the caller can do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Trimmed { .. } => Kind::NotFound,
            Self::NotPolled { .. } | Self::BadName { .. } => Kind::Invalid,
            Self::Corrupt { .. } => Kind::Corrupt,
            Self::Io { .. } => Kind::Unavailable,
            Self::Source { kind, .. } => *kind,
        }
    }

    pub(crate) fn io(context: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { context, path, source }
    }
}
