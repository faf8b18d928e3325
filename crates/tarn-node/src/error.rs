//! What went wrong below SQL, and what can be done about it?
//!
//! Every failure of a node becomes one [`Error`]: a kind that says what a caller can do, a message that names the
//! thing, and where there is one a detail and the remedy. It knows no protocol: whoever speaks one says what a kind is
//! called there.

use std::fmt;
use std::sync::Arc;

use tarn_types::{ForeignKey, TableSchema, Unique, Value};

/// What a caller can do about it, and whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The table is there already.
    TableExists,
    /// There is no such table.
    NoTable,
    /// The table has no such column.
    NoColumn,
    /// The definition of a table does not hold together.
    Definition,
    /// An argument or setting is not what is wanted.
    Invalid,
    /// The table is another kind of thing.
    WrongObject,
    /// Nobody writes this table through this node.
    ReadOnly,
    /// Somebody else has it.
    InUse,
    /// What it is asked of is not as it has to be; the remedy says how.
    WrongState,
    /// A row of the same key is there; [`Error::existing`] is whose.
    KeyExists,
    /// A foreign key does not hold; [`Error::violation`] is which.
    ForeignKey,
    /// Somebody else changed the same rows: again.
    Conflict,
    /// It may have happened or not: look.
    Indeterminate,
    /// A disk or a store did not do it: again, when its cause is gone.
    Unavailable,
    /// The metastore did not answer.
    MetastoreAway,
    /// No room on the disk.
    DiskFull,
    /// A limit of the settings: wait, or raise it.
    Limit,
    /// A limit that no setting moves.
    ProgramLimit,
    /// A sequence has no number left.
    UsedUp,
    /// Bytes at rest are not those that were written.
    Corrupt,
    /// The node is stopping.
    Stopping,
    /// Somebody cancelled it.
    Canceled,
    /// The user may not.
    Denied,
    /// Who it is, is not known or may not come in.
    NotAllowedIn,
    /// The password is wrong.
    WrongPassword,
    /// Others depend on it.
    Depended,
    /// The user, role or right is there already.
    ObjectExists,
    /// There is no such user, role or right.
    NoObject,
    /// The schema is there already.
    SchemaExists,
    /// There is no such schema.
    NoSchema,
    /// The name is not free to be used.
    ReservedName,
    /// A file of the settings is not usable.
    Configuration,
    /// A mistake of the program's.
    Internal,
}

/// What calls of this crate answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure. Cheap to move.
#[derive(Debug, Clone)]
pub struct Error(Box<NodeErrorParts>);

#[derive(Debug, Clone)]
struct NodeErrorParts {
    kind: ErrorKind,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    /// A value that does not fit, whose face says more than the kind.
    value: Option<Arc<tarn_types::Error>>,
    /// The key that is there.
    existing: Option<ExistingKey>,
    /// The foreign key that does not hold.
    violation: Option<Violation>,
}

/// A key that is there, and was to be new.
#[derive(Debug, Clone)]
pub struct ExistingKey {
    /// Whose row it is.
    pub table: Arc<TableSchema>,
    /// The engine key ([`tarn_types::decode_key`]): of the row, or of the entry that another row has.
    pub key: Vec<u8>,
    /// `None`: it is the primary key.
    pub unique: Option<Unique>,
}

/// A foreign key that does not hold.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The table that refers.
    pub child: Arc<TableSchema>,
    /// The table that is referred to.
    pub parent: Arc<TableSchema>,
    /// The one that does not hold.
    pub key: ForeignKey,
    /// Of the child's columns, or of the parent's, in the order of the foreign key's.
    pub values: Vec<Value>,
    /// Who of the two is missing.
    pub what: ForeignKeyFault,
}

/// What is wrong with a foreign key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignKeyFault {
    /// A row has no parent.
    Missing,
    /// A parent is gone, and there are rows that refer to it.
    Referenced,
    /// `MATCH FULL`: some of the columns are NULL.
    Mixed,
}

impl Error {
    /// With a message for whoever asked: lower case, no full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(NodeErrorParts {
            kind,
            message: message.into(),
            detail: None,
            hint: None,
            value: None,
            existing: None,
            violation: None,
        }))
    }

    /// `ForeignKey`.
    pub fn foreign_key(violation: Violation) -> Error {
        let message =
            format!("foreign key \"{}\" of table \"{}\" does not hold", violation.key.name, violation.child.name);
        let mut error = Error::new(ErrorKind::ForeignKey, message);
        error.0.violation = Some(violation);
        error
    }

    /// `NoTable`, with a hint that tells how to list them.
    pub fn no_table(name: &str) -> Error {
        Error::new(ErrorKind::NoTable, format!("table \"{name}\" does not exist"))
            .with_hint("SHOW TABLES lists the tables")
    }

    /// `NoColumn`.
    pub fn no_column(table: &str, column: &str) -> Error {
        Error::new(ErrorKind::NoColumn, format!("column \"{column}\" of table \"{table}\" does not exist"))
    }

    /// `KeyExists`.
    pub fn key_exists(table: &Arc<TableSchema>, key: Vec<u8>) -> Error {
        let message = format!("a row of this key is there in table \"{}\"", table.name);
        let mut error = Error::new(ErrorKind::KeyExists, message);
        error.0.existing = Some(ExistingKey { table: Arc::clone(table), key, unique: None });
        error
    }

    /// `KeyExists`: another row has the values of the entry with this key.
    pub fn entry_exists(table: &Arc<TableSchema>, unique: Unique, key: Vec<u8>) -> Error {
        let message = format!("a row of these values is there in table \"{}\"", table.name);
        let mut error = Error::new(ErrorKind::KeyExists, message);
        error.0.existing = Some(ExistingKey { table: Arc::clone(table), key, unique: Some(unique) });
        error
    }

    /// A view has the name of a table.
    pub fn is_view(name: &str) -> Error {
        Error::new(ErrorKind::WrongObject, format!("\"{name}\" is a view, not a table"))
            .with_hint("name the table that it reads; DROP VIEW removes a view")
    }

    /// `Stopping`: the same can be asked again when the server is back.
    pub fn stopping() -> Error {
        Error::new(ErrorKind::Stopping, "the server is stopping")
    }

    /// By the kind that the crates below report.
    pub fn of_kind(kind: tarn_types::Kind, message: impl Into<String>) -> Error {
        use tarn_types::Kind as Below;
        let kind = match kind {
            Below::Invalid => ErrorKind::Invalid,
            Below::NotFound => ErrorKind::NoTable,
            Below::Conflict => ErrorKind::Conflict,
            Below::Unavailable => ErrorKind::Unavailable,
            Below::Indeterminate => ErrorKind::Indeterminate,
            Below::Corrupt => ErrorKind::Corrupt,
        };
        Error::new(kind, message)
    }

    /// What more is known of this case; takes the place of an earlier one.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Error {
        self.0.detail = Some(detail.into());
        self
    }

    /// What can be done; takes the place of an earlier one.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same words under another kind.
    pub fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.0.kind = kind;
        self
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Without detail and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What more is known of this case.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What can be done.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The value that does not fit, if that is what went wrong.
    pub fn value(&self) -> Option<&tarn_types::Error> {
        self.0.value.as_deref()
    }

    /// The foreign key that does not hold, if that is what went wrong.
    pub fn violation(&self) -> Option<&Violation> {
        self.0.violation.as_ref()
    }

    /// The key that is there, if that is what went wrong.
    pub fn existing(&self) -> Option<&ExistingKey> {
        self.0.existing.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.message)?;
        if let Some(detail) = &self.0.detail {
            write!(f, " ({detail})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<tarn_types::Error> for Error {
    fn from(error: tarn_types::Error) -> Error {
        let mut told = Error::of_kind(error.kind(), error.to_string());
        told.0.value = Some(Arc::new(error));
        told
    }
}

macro_rules! by_kind {
    ($($path:path),* $(,)?) => {$(
        impl From<$path> for Error {
            fn from(error: $path) -> Error {
                metastore_away(&error).unwrap_or_else(|| Error::of_kind(error.kind(), chain(&error)))
            }
        }
    )*};
}

by_kind!(tarn_feed::Error, tarn_rows::Error);

/// What the reader of a file met is said by it better than by who read rows.
impl From<tarn_lake::Error> for Error {
    fn from(error: tarn_lake::Error) -> Error {
        let causes = std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |error| error.source());
        let of_file = causes.filter_map(|cause| cause.downcast_ref::<tarn_cache::Error>()).next();
        let of_file = of_file.map(|cause| Error::of_kind(cause.kind(), chain(cause)));
        let away = metastore_away(&error);
        of_file.or(away).unwrap_or_else(|| Error::of_kind(error.kind(), chain(&error)))
    }
}

/// The metastore did not answer, whoever asked it.
pub fn metastore_away(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let away = causes.find_map(|cause| cause.downcast_ref::<tarn_metastore::Error>())?;
    let tarn_metastore::Error::Unavailable { source, .. } = away else { return None };
    let away = Error::new(ErrorKind::MetastoreAway, format!("{away}: {source}"));
    Some(away.with_hint(
        "statements that need it work again when it is back; metastore_timeout_ms is how long it is waited for",
    ))
}

impl From<tarn_replica::Error> for Error {
    fn from(error: tarn_replica::Error) -> Error {
        match error {
            tarn_replica::Error::Log { source: tarn_raftlog::Error::Closed { .. }, .. } => Error::stopping(),
            error => Error::of_kind(error.kind(), chain(&error)),
        }
    }
}

/// The log knows nothing of ours, not even our kinds.
impl From<tarn_raftlog::Error> for Error {
    fn from(error: tarn_raftlog::Error) -> Error {
        use tarn_raftlog::ErrorKind as Log;
        let kind = match error.kind() {
            Log::Invalid | Log::NotFound => ErrorKind::Internal,
            Log::Unavailable => ErrorKind::Unavailable,
            Log::Indeterminate => ErrorKind::Indeterminate,
            Log::Corrupt => ErrorKind::Corrupt,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<tarn_metastore::Error> for Error {
    fn from(error: tarn_metastore::Error) -> Error {
        let kind = match &error {
            tarn_metastore::Error::TableExists { .. } => ErrorKind::TableExists,
            tarn_metastore::Error::NoTable { .. } => ErrorKind::NoTable,
            other => {
                return metastore_away(other).unwrap_or_else(|| Error::of_kind(other.kind(), chain(other)));
            }
        };
        Error::new(kind, error.to_string())
    }
}

/// An error and what caused it, each said once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let said = source.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metastore_that_is_away_is_named_with_its_setting() {
        let away = || tarn_metastore::Error::Unavailable {
            address: "cql://a".to_owned(),
            setting: "metastore",
            source: "no answer in 10 s".into(),
        };
        let commit = tarn_lake::Error::Metastore { action: "commit", table: tarn_types::TableId(1), source: away() };
        for error in [Error::from(away()), Error::from(commit)] {
            assert_eq!(error.kind(), ErrorKind::MetastoreAway);
            assert_eq!(
                error.message(),
                "metastore at cql://a (setting `metastore`) is not available: no answer in 10 s"
            );
            assert!(error.hint().is_some_and(|hint| hint.contains("metastore_timeout_ms")));
        }
        let taken = tarn_metastore::Error::TableExists { name: "t".into() };
        assert_eq!(Error::from(taken).kind(), ErrorKind::TableExists);
    }
}
