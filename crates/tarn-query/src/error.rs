//! What can go wrong with a question, and what can the caller do?
//!
//! Errors of ours travel through DataFusion as `External` and come out as they went in.

use datafusion::error::DataFusionError;
use parquet::errors::ParquetError;
use tarn_metastore::VersionSelector;
use tarn_types::Kind;

use crate::parser::ParseError;

/// Result of a query.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a library says was outside of it.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A question without an answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Planning or execution failed.
    #[error("{}", source.strip_backtrace())]
    Sql {
        /// What DataFusion said.
        source: DataFusionError,
    },
    /// No table of that name.
    #[error("table {name} does not exist")]
    NoSuchTable {
        /// As it was asked for.
        name: String,
    },
    /// The hot side failed.
    #[error("read hot rows of {table}: {source}")]
    Hot {
        /// Table name.
        table: String,
        /// What the caller can do.
        kind: Kind,
        /// What the row store said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The metastore failed.
    #[error("read the files of {table} at {at:?}: {source}")]
    Metastore {
        /// Table name.
        table: String,
        /// What was asked for.
        at: VersionSelector,
        /// What the metastore said.
        source: tarn_metastore::Error,
    },
    /// The metastore did not say which blocks can hold the answer, or where their columns lie.
    #[error("ask which blocks of {table} to read: {source}")]
    Blocks {
        /// Table name.
        table: String,
        /// What the metastore said.
        source: tarn_metastore::Error,
    },
    /// A file is damaged, or could not be read.
    #[error("read {path} of table {table}: {what}")]
    Read {
        /// Table name.
        table: String,
        /// Object key.
        path: String,
        /// `Corrupt`: its bytes are no Parquet file. Else what the caller can do.
        kind: Kind,
        /// What the reader said. Text, so that nobody takes the cause for the error.
        what: String,
    },
    /// A value or a row that does not fit the table.
    #[error("table {table}: {source}")]
    Types {
        /// Table name.
        table: String,
        /// What is wrong.
        source: tarn_types::Error,
    },
    /// Reading a lake file failed.
    #[error("read {path}: {source}")]
    File {
        /// Object key.
        path: String,
        /// What the reader said.
        source: ParquetError,
    },
    /// A file is not the one that was written or attached, or its footer could not be read.
    #[error(transparent)]
    Reader {
        /// What the reader of the file said.
        source: tarn_cache::Error,
    },
    /// A scan is opened where its table shows another position than it was planned for.
    #[error("table {table} has changed since its scan was planned; run the statement again")]
    Moved {
        /// Table name.
        table: String,
    },
    /// Metadata and data contradict each other.
    #[error("{what}")]
    Corrupt {
        /// The thing and what is wrong with it.
        what: String,
    },
    /// The forced access path cannot give the answer.
    #[error("access path {path} cannot answer for table {table}: {why}; {remedy}")]
    AccessPath {
        /// The forced path.
        path: &'static str,
        /// Table name.
        table: String,
        /// Why not.
        why: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A view is not what it was made as any more.
    #[error("view \"{view}\" cannot be read as it was made: {reason}")]
    View {
        /// Its name.
        view: String,
        /// What changed below it.
        reason: String,
    },
    /// A function that nobody wrote.
    #[error("function {function} does not exist")]
    NoFunction {
        /// As it is called.
        function: String,
    },
    /// A function's text names a parameter that it does not have.
    #[error("there is no parameter {name}")]
    NoParameter {
        /// As it is written.
        name: String,
    },
    /// A statement that Tarn does not have.
    #[error("{what} is not supported; {remedy}")]
    Unsupported {
        /// The statement or clause.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A text or plan over a limit that keeps the server alive.
    #[error("{limit}")]
    TooLarge {
        /// The limit, and that the statement is over it.
        limit: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A value of a function that would be too long.
    #[error("a value of {function} would take {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// Name of the function.
        function: String,
        /// What the value could take, by the function's arguments.
        bytes: usize,
        /// What a value may take.
        limit: usize,
    },
    /// The statement binds another number of parameters than it was given.
    #[error("statement has {expected} parameters, {given} were given")]
    Parameters {
        /// Highest `$n` of the statement.
        expected: usize,
        /// Given.
        given: usize,
    },
    /// `ON CONFLICT` names columns that are not the key.
    #[error("there is no unique or exclusion constraint matching the ON CONFLICT specification")]
    ConflictTarget {
        /// Table name.
        table: String,
        /// The columns of its key; none in a table without one.
        key: String,
    },
    /// `ON CONFLICT ON CONSTRAINT` names another one than the key.
    #[error("constraint \"{name}\" for table \"{table}\" does not exist")]
    NoConstraint {
        /// Table name.
        table: String,
        /// As it was asked for.
        name: String,
    },
    /// A key column is NULL.
    #[error("key column {column} of table {table} cannot be NULL")]
    NullKey {
        /// Table name.
        table: String,
        /// Column name.
        column: String,
    },
}

impl Error {
    /// An error of the hot side, for implementations of [`HotView`](crate::HotView).
    pub fn hot(table: &str, kind: Kind, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Hot { table: table.to_owned(), kind, source: source.into() }
    }

    /// What a reader of the file at `path` met.
    pub(crate) fn of_file(path: &str, source: ParquetError) -> Self {
        let path = path.to_owned();
        match source {
            ParquetError::External(inner) => match Error::known(inner) {
                Ok(Error::Reader { source: tarn_cache::Error::Footer { source, .. } }) => Error::File { path, source },
                Ok(known) => known,
                Err(inner) => Error::File { path, source: ParquetError::External(inner) },
            },
            source => Error::File { path, source },
        }
    }

    /// What a Parquet reader met outside of Parquet, if it is an error of ours.
    fn known(inner: Cause) -> Result<Self, Cause> {
        match inner.downcast::<Error>() {
            Ok(ours) => Ok(*ours),
            Err(inner) => inner.downcast::<tarn_cache::Error>().map(|source| Error::Reader { source: *source }),
        }
    }

    pub(crate) fn types(table: &str) -> impl FnOnce(tarn_types::Error) -> Self + use<'_> {
        move |source| Error::Types { table: table.to_owned(), source }
    }

    /// What the caller can do.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Sql { source } => sql_kind(source.find_root()),
            Error::NoSuchTable { .. } | Error::NoConstraint { .. } => Kind::NotFound,
            Error::Hot { kind, .. } => *kind,
            Error::Metastore { source, .. } | Error::Blocks { source, .. } => source.kind(),
            Error::Moved { .. } => Kind::Conflict,
            Error::Read { kind, .. } => *kind,
            Error::Types { source, .. } => source.kind(),
            Error::File { source: ParquetError::External(_), .. } => Kind::Unavailable,
            Error::Reader { source } => source.kind(),
            Error::File { .. } | Error::Corrupt { .. } => Kind::Corrupt,
            Error::AccessPath { .. }
            | Error::Unsupported { .. }
            | Error::NoFunction { .. }
            | Error::NoParameter { .. }
            | Error::View { .. }
            | Error::TooLarge { .. }
            | Error::TooLong { .. }
            | Error::Parameters { .. }
            | Error::ConflictTarget { .. }
            | Error::NullKey { .. } => Kind::Invalid,
        }
    }
}

fn sql_kind(root: &DataFusionError) -> Kind {
    match root {
        DataFusionError::ResourcesExhausted(_) | DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) => {
            Kind::Unavailable
        }
        DataFusionError::ParquetError(_) => Kind::Corrupt,
        DataFusionError::External(source) => source.downcast_ref::<Error>().map_or(Kind::Invalid, Error::kind),
        _ => Kind::Invalid,
    }
}

impl From<tarn_cache::Error> for Error {
    fn from(source: tarn_cache::Error) -> Self {
        Error::Reader { source }
    }
}

impl From<DataFusionError> for Error {
    fn from(source: DataFusionError) -> Self {
        match source {
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(inner) => Error::Sql { source: DataFusionError::External(inner) },
            },
            DataFusionError::ParquetError(inner) => match *inner {
                ParquetError::External(inner) => Error::known(inner).unwrap_or_else(|inner| Error::Sql {
                    source: DataFusionError::ParquetError(Box::new(ParquetError::External(inner))),
                }),
                inner => Error::Sql { source: DataFusionError::ParquetError(Box::new(inner)) },
            },
            DataFusionError::Context(context, inner) => match Error::from(*inner) {
                Error::Sql { source } => Error::Sql { source: DataFusionError::Context(context, Box::new(source)) },
                ours => ours,
            },
            source => Error::Sql { source },
        }
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Syntax(error) => Error::Sql { source: DataFusionError::SQL(Box::new(error), None) },
            ParseError::TooLarge(limit) => Error::TooLarge { limit: limit.to_string(), remedy: limit.remedy() },
            ParseError::Refused { what, remedy } => Error::Unsupported { what, remedy },
        }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Sql { source } => source,
            other => DataFusionError::External(Box::new(other)),
        }
    }
}
