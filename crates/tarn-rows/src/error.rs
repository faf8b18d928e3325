//! What can go wrong with rows, and what may the caller do about it?

use std::path::PathBuf;

use tarn_types::{Cursor, Kind, SeqNo, TabletId, Version};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything the row store can refuse.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine refused. What it was doing may or may not have happened in memory; nothing of it is durable.
    #[error("{context}: {source}")]
    Engine {
        /// What we were doing, as a verb phrase.
        context: &'static str,
        /// Is the engine's data damaged?
        corrupt: bool,
        /// The engine's error.
        source: Box<dyn std::error::Error + Send + Sync>,
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
    /// The engine's disk failed earlier, and it cannot be written to until it is healed. Nothing happened; try again
    /// later.
    #[error("the row engine cannot write: {reason}")]
    Faulty {
        /// What failed.
        reason: String,
    },
    /// The engine has no such operation.
    #[error("the {engine} engine cannot {operation}")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// What it cannot do.
        operation: &'static str,
    },
    /// Stored bytes that we did not write.
    #[error("{what} of {key} is corrupt: {reason}")]
    Corrupt {
        /// What the bytes should have been.
        what: &'static str,
        /// The key in hexadecimal.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// Entries of a tablet come in order, each once.
    #[error("tablet {tablet} has applied {applied}, entry {seqno} comes too late")]
    OutOfOrder {
        /// The tablet.
        tablet: TabletId,
        /// What it has applied.
        applied: SeqNo,
        /// What was to be applied.
        seqno: SeqNo,
    },
    /// The batch is of another table, or the table has no such tablet.
    #[error("what is for tablet {tablet} is not of table {table}")]
    NotOurs {
        /// The table's name.
        table: String,
        /// The tablet the batch is for.
        tablet: TabletId,
    },
    /// Keys of the batch are in another tablet by now, or soon: cut it anew, and try again.
    #[error("tablet {tablet} of table {table} was split")]
    Elsewhere {
        /// The table's name.
        table: String,
        /// The tablet that had the keys.
        tablet: TabletId,
    },
    /// Entries that are in the rows here are not what the leader, or this replica before a restart, made of them. The
    /// rows are not what was acknowledged.
    #[error("tablet {tablet} holds other rows than its log: entries {} to {upto} came to something else", after.next())]
    Diverged {
        /// The tablet.
        tablet: TabletId,
        /// The entries come after this one.
        after: SeqNo,
        /// The last of them.
        upto: SeqNo,
    },
    /// The tablet was born by a split, and what came before it is not delivered yet: deliver, then split.
    #[error("tablet {tablet} of table {table} was split off and is not delivered since")]
    Unborn {
        /// The table's name.
        table: String,
        /// The tablet.
        tablet: TabletId,
    },
    /// Recent rows are as they were written: deliver them, then alter the table.
    #[error("table {table} has rows that are not delivered, and cannot be altered")]
    Undelivered {
        /// The table's name.
        table: String,
    },
    /// The table is replaying its log: [`finish_replay`](crate::Table::finish_replay) first.
    #[error("table {table} is replaying its log")]
    Replaying {
        /// The table's name.
        table: String,
    },
    /// The table serves already: its log is replayed once.
    #[error("table {table} has replayed its log")]
    Replayed {
        /// The table's name.
        table: String,
    },
    /// The staged addresses do not follow the installed version: stage again.
    #[error("version {staged} of table {table} was staged on version {base}, installed is {installed}")]
    Stale {
        /// The table's name.
        table: String,
        /// What was staged.
        staged: Version,
        /// On what.
        base: Version,
        /// What is installed now.
        installed: Version,
    },
    /// A delivery's cursor is at no freeze, or beyond what the tablet has applied: the latter comes true with time.
    #[error("cursor {cursor} cannot be installed in table {table}: want {want}")]
    WrongCursor {
        /// The table's name.
        table: String,
        /// The delivery's cursor.
        cursor: Cursor,
        /// What it should be.
        want: String,
    },
    /// A key was asked of a table that keeps none.
    #[error("table {table} is append-only and keeps no keys")]
    AppendOnly {
        /// The table's name.
        table: String,
    },
    /// A type, a key or a row is wrong.
    #[error(transparent)]
    Types(#[from] tarn_types::Error),
    /// An Arrow kernel refused.
    #[error("{context}: {source}")]
    Arrow {
        /// What we were doing, as a verb phrase.
        context: &'static str,
        /// Arrow's error.
        source: arrow::error::ArrowError,
    },
}

impl Error {
    /// What the caller can do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Engine { corrupt: true, .. } | Self::Corrupt { .. } | Self::Diverged { .. } => Kind::Corrupt,
            Self::Engine { .. } | Self::Io { .. } | Self::Faulty { .. } | Self::Replaying { .. } => Kind::Unavailable,
            Self::Stale { .. }
            | Self::WrongCursor { .. }
            | Self::Elsewhere { .. }
            | Self::Unborn { .. }
            | Self::Undelivered { .. } => Kind::Conflict,
            Self::Types(source) => source.kind(),
            _ => Kind::Invalid,
        }
    }

    pub(crate) fn corrupt(what: &'static str, key: &[u8], reason: impl Into<String>) -> Self {
        use std::fmt::Write;
        let mut hex = String::with_capacity(key.len() * 2);
        for byte in key {
            let _ = write!(hex, "{byte:02x}");
        }
        Self::Corrupt { what, key: hex, reason: reason.into() }
    }

    pub(crate) fn arrow(context: &'static str) -> impl FnOnce(arrow::error::ArrowError) -> Self {
        move |source| Self::Arrow { context, source }
    }
}

impl From<Error> for tarn_feed::Error {
    fn from(error: Error) -> Self {
        Self::source(error.kind(), error)
    }
}
