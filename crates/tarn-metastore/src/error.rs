//! What can go wrong in the metastore, and what the caller can do about it.

use std::io;
use std::path::{Path, PathBuf};

use tarn_types::{FileId, Kind, TableId, Version};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What calls of this crate answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, with all that its text needs; [`Error::kind`] says what the caller can do.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each says what its fields are")]
pub enum Error {
    /// Choose another name.
    #[error("table \"{name}\" already exists")]
    TableExists { name: String },
    /// No table has this name now.
    #[error("table \"{name}\" does not exist")]
    NoTable { name: String },
    /// No table has this id any more; ids are not used twice.
    #[error("table {table} does not exist")]
    NoTableId { table: TableId },
    /// The version was forgotten by `expire`, or was never made.
    #[error("version {version} of table {table} is not kept: versions {oldest} to {latest} are")]
    NoVersion { table: TableId, version: Version, oldest: Version, latest: Version },
    /// The version of that time was forgotten, or the table was made later.
    #[error("table {table} has no version as old as {at_ms} ms: the oldest kept is of {oldest_ms} ms")]
    NoVersionAt { table: TableId, at_ms: i64, oldest_ms: i64 },
    /// Another commit came first. Read the new version, decide anew.
    #[error("table {table} is at version {current}, the commit expected {expected}")]
    Conflict { table: TableId, expected: Version, current: Version },
    /// What the commit says of a file cannot be. Nothing of the commit is there.
    #[error("commit to table {table}: file {file} {reason}")]
    InvalidFile { table: TableId, file: FileId, reason: &'static str },
    /// What the commit does cannot go together. Nothing of it is there.
    #[error("commit to table {table}: {reason}")]
    InvalidCommit { table: TableId, reason: &'static str },
    /// The definition changed in between. Read it again, decide anew.
    #[error("table \"{name}\" is no longer what its change was made for")]
    SchemaChanged { name: String },
    /// Another change came first. Read the document again, decide anew.
    #[error("document \"{name}\" was changed meanwhile")]
    DocumentChanged { name: String },
    /// A document has at most [`crate::MAX_DOCUMENT_BYTES`].
    #[error("document \"{name}\" would have {bytes} bytes, the limit is {limit}")]
    DocumentTooLong { name: String, bytes: usize, limit: usize },
    /// The change of a definition is not one that may be made. Nothing was changed.
    #[error("change of table \"{name}\": {reason}")]
    InvalidChange { name: String, reason: String },
    /// The ids or the name are taken, or the table is not being restored.
    #[error("restore table \"{name}\": {reason}")]
    InvalidRestore { name: String, reason: &'static str },
    /// Cursors only go forward: another delivery was there first.
    #[error("commit to table {table}: cursor {given} is behind {current}")]
    CursorBehind { table: TableId, given: String, current: String },
    /// The latest version cannot be forgotten.
    #[error("expire table {table}: version {keep} is newer than the latest, {latest}")]
    ExpireAhead { table: TableId, keep: Version, latest: Version },
    /// The definition itself is not lawful.
    #[error("table definition")]
    Schema {
        /// Which part of it, and why.
        #[source]
        source: tarn_types::Error,
    },
    /// Bytes that were written are not the bytes that are read. Nothing is repaired by guessing.
    #[error("{path} at byte {offset}: {reason}")]
    Corrupt { path: PathBuf, offset: u64, reason: String },
    /// What the store says of a table does not go together.
    #[error("table \"{name}\": {reason}")]
    Inconsistent { name: String, reason: String },
    /// Another process has the folder open. One at a time.
    #[error("{path} is held by another process")]
    Locked { path: PathBuf },
    /// Nothing was changed.
    #[error("{action} {path}")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder that it was tried on.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The change may or may not have happened: look (`commits`, `tables`) before trying again.
    #[error("{action} {place}: outcome unknown")]
    Indeterminate {
        /// What was tried, as a verb.
        action: &'static str,
        /// A path, or the address of a server.
        place: String,
        /// What was said when the answer was lost.
        #[source]
        source: BoxError,
    },
    /// What a server gave back is not what was stored. `what` names the row.
    #[error("metastore at {address}: {what}: {reason}")]
    Damaged { address: String, what: String, reason: String },
    /// The tables of a server have another layout than this build reads.
    #[error(
        "metastore at {address} has schema version {found}, this build reads {needed}: {}",
        if found < needed { "run `tarn metastore migrate` on it" } else { "use a build at least as new as the one that wrote it" }
    )]
    SchemaVersion { address: String, found: u32, needed: u32 },
    /// The setting that names the metastore cannot be understood.
    #[error("setting `metastore`: {reason}")]
    Address { reason: String },
    /// A write failed earlier in a way that leaves memory and disk apart. Maintenance brings them together again when
    /// the disk works.
    #[error("{path} takes no writes since one could not be synced, until it can be read back")]
    Stopped { path: PathBuf },
    /// A store behind a network did not answer, or not in time. Nothing was changed.
    #[error("metastore at {address} (setting `{setting}`) is not available")]
    Unavailable {
        /// The server, without user and password.
        address: String,
        /// The setting that names it, for whoever operates the server.
        setting: &'static str,
        /// What the driver said.
        #[source]
        source: BoxError,
    },
}

impl Error {
    /// What the caller can do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::TableExists { .. }
            | Self::InvalidFile { .. }
            | Self::InvalidCommit { .. }
            | Self::InvalidChange { .. }
            | Self::DocumentTooLong { .. }
            | Self::InvalidRestore { .. }
            | Self::CursorBehind { .. }
            | Self::ExpireAhead { .. }
            | Self::Address { .. }
            | Self::Schema { .. } => Kind::Invalid,
            Self::NoTable { .. } | Self::NoTableId { .. } | Self::NoVersion { .. } | Self::NoVersionAt { .. } => {
                Kind::NotFound
            }
            Self::Conflict { .. } | Self::SchemaChanged { .. } | Self::DocumentChanged { .. } => Kind::Conflict,
            Self::Corrupt { .. } | Self::Damaged { .. } | Self::Inconsistent { .. } => Kind::Corrupt,
            Self::Locked { .. }
            | Self::Io { .. }
            | Self::Stopped { .. }
            | Self::Unavailable { .. }
            | Self::SchemaVersion { .. } => Kind::Unavailable,
            Self::Indeterminate { .. } => Kind::Indeterminate,
        }
    }
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}
