//! What can go wrong on the way into the lake, and what the caller can do about it.

use parquet::errors::ParquetError;
use tarn_metastore::Damage;
use tarn_types::{FileId, Kind, TableId, Version};

/// What calls of this crate answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, with all that its text needs; [`Error::kind`] says what the caller can do.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each says what its fields are")]
pub enum Error {
    /// The object store failed, or does not have the object.
    #[error("{action} {path}")]
    Store {
        /// What was tried, as a verb.
        action: &'static str,
        /// Of the object.
        path: String,
        /// What the store said.
        #[source]
        source: object_store::Error,
    },
    /// A file cannot be read as Parquet, or not be written.
    #[error("{action} {path}")]
    Parquet {
        /// What was tried, as a verb.
        action: &'static str,
        /// Of the file.
        path: String,
        /// What the reader or writer said.
        #[source]
        source: ParquetError,
    },
    /// Bytes of a file are not those that were written.
    #[error("{path} is damaged: {damage} ({place})")]
    Damaged {
        /// Of the file.
        path: String,
        /// Blocks and columns.
        place: String,
        /// Which bytes.
        damage: Damage,
    },
    /// Rows cannot be put into arrays, or taken out.
    #[error("{action}")]
    Arrow {
        /// What was tried, as a verb.
        action: &'static str,
        /// What Arrow said.
        #[source]
        source: arrow::error::ArrowError,
    },
    /// Values do not fit their types.
    #[error("{action}")]
    Types {
        /// What was tried, as a verb.
        action: &'static str,
        /// Which, and why.
        #[source]
        source: tarn_types::Error,
    },
    /// The metastore refused, or did not answer.
    #[error("{action} of table {table}")]
    Metastore {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which table.
        table: TableId,
        /// What it said.
        #[source]
        source: tarn_metastore::Error,
    },
    /// The hot side of the table refused, or failed.
    #[error("{action} table {table}")]
    Hot {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which table.
        table: TableId,
        /// What it said.
        #[source]
        source: tarn_feed::Error,
    },
    /// An object is not as long as what was written or committed.
    #[error("{path} is {found} bytes, want {want}")]
    Size { path: String, found: u64, want: u64 },
    /// A row was asked for by a number that its file does not have.
    #[error("{path} has no row {row}: {n_rows} rows")]
    NoRow { path: String, row: u32, n_rows: u64 },
    /// A column was asked for by a name that its file does not have.
    #[error("{path} has no column {column}")]
    NoColumn { path: String, column: String },
    /// An address does not name the row that it was made for.
    #[error("row {row} of {path}: {what}")]
    Address { path: String, row: u32, what: String },
    /// Somebody else commits to the table, too. Nothing was changed; the next call starts from what is there.
    #[error("table {table}: the rows speak of version {expected}, the metastore is at {current}")]
    Behind { table: TableId, expected: Version, current: Version },
    /// Addresses name a file that the version they belong to does not have.
    #[error("table {table}: addresses name file {file}, which version {version} does not have")]
    NoFile { table: TableId, file: FileId, version: Version },
    /// The metastore is older than the rows: a backup was restored for one of them alone.
    #[error("table {table}: version {installed} is installed, the metastore is at {latest}")]
    Ahead { table: TableId, installed: Version, latest: Version },
    /// Rows of one delivery are counted in 32 bits.
    #[error("{n_rows} rows in one delivery, more than {max}")]
    TooMany { n_rows: u64, max: u64 },
    /// The table's files are its own, or it is none.
    #[error("table {table} is no archive")]
    NotAnArchive { table: TableId },
    /// No file there can be read as a table.
    #[error("nothing to attach at {url}: {reason}")]
    NothingToAttach { url: String, reason: String },
    /// The option is not understood.
    #[error("hour_from \"{text}\": want the parts of a path that say the hour, such as dt=…/hr=…")]
    HourFrom { text: String },
    /// The option is understood, and finds nothing: no file has such parts in its path.
    #[error("hour_from \"{text}\" finds no date in the path of any of {listed} files, such as {path}")]
    NoHour { text: String, listed: u64, path: String },
    /// The runtime shuts down.
    #[error("the runtime stopped while rows were being written")]
    Cancelled,
    /// Only with the feature `failpoints`.
    #[error("stopped at failpoint {at}")]
    Injected { at: &'static str },
}

impl Error {
    /// What the caller can do. A delivery or compaction that failed, whatever the kind, is simply called again: it
    /// finds out itself how far the former one got.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Store { source: object_store::Error::NotFound { .. }, .. } | Self::NothingToAttach { .. } => {
                Kind::NotFound
            }
            Self::Store { .. } | Self::Cancelled | Self::Injected { .. } => Kind::Unavailable,
            Self::Parquet { source: ParquetError::External(_), .. } => Kind::Unavailable,
            Self::Damaged { .. }
            | Self::Parquet { .. }
            | Self::Size { .. }
            | Self::Address { .. }
            | Self::NoFile { .. }
            | Self::Ahead { .. } => Kind::Corrupt,
            Self::Arrow { .. }
            | Self::NoRow { .. }
            | Self::NoColumn { .. }
            | Self::TooMany { .. }
            | Self::NotAnArchive { .. }
            | Self::HourFrom { .. }
            | Self::NoHour { .. } => Kind::Invalid,
            Self::Types { source, .. } => source.kind(),
            Self::Metastore { source, .. } => source.kind(),
            Self::Hot { source, .. } => source.kind(),
            Self::Behind { .. } => Kind::Conflict,
        }
    }
}

pub(crate) fn arrow_error(action: &'static str) -> impl FnOnce(arrow::error::ArrowError) -> Error {
    move |source| Error::Arrow { action, source }
}

pub(crate) fn types_error(action: &'static str) -> impl FnOnce(tarn_types::Error) -> Error {
    move |source| Error::Types { action, source }
}

pub(crate) fn parquet_error(action: &'static str, path: impl ToString) -> impl FnOnce(ParquetError) -> Error {
    let path = path.to_string();
    move |source| match source {
        // Said by who read the bytes, with more than is known here.
        ParquetError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(inner) => Error::Parquet { action, path, source: ParquetError::External(inner) },
        },
        source => Error::Parquet { action, path, source },
    }
}

pub(crate) fn store_error(action: &'static str, path: impl ToString) -> impl FnOnce(object_store::Error) -> Error {
    let path = path.to_string();
    move |source| Error::Store { action, path, source }
}
