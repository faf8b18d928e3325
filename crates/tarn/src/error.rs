//! What went wrong, as a client may see it?
//!
//! Every failure of a statement becomes one [`SqlError`]: a SQLSTATE, a message that names the thing, and where there is
//! one a detail and the remedy. The crates below report a `kind()` (what the caller can do); here it becomes a SQLSTATE.

use std::fmt;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use parquet::errors::ParquetError;
use tarn_query::parser::ParseError;
use tarn_types::Kind;

use crate::stores::chain;

/// SQLSTATEs used by Tarn (Postgres, appendix A).
pub mod state {
    pub const CONNECTION_DOES_NOT_EXIST: &str = "08003";
    pub const CONNECTION_FAILURE: &str = "08006";
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub const NUMERIC_OUT_OF_RANGE: &str = "22003";
    pub const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
    pub const INVALID_DATETIME: &str = "22007";
    pub const DIVISION_BY_ZERO: &str = "22012";
    pub const INVALID_PARAMETER_VALUE: &str = "22023";
    pub const INVALID_TEXT: &str = "22P02";
    pub const INVALID_BINARY: &str = "22P03";
    pub const BAD_COPY_FORMAT: &str = "22P04";
    pub const NOT_NULL_VIOLATION: &str = "23502";
    pub const ACTIVE_TRANSACTION: &str = "25001";
    pub const READ_ONLY_TRANSACTION: &str = "25006";
    pub const FAILED_TRANSACTION: &str = "25P02";
    pub const IDLE_TRANSACTION_TIMEOUT: &str = "25P03";
    pub const NO_ACTIVE_TRANSACTION: &str = "25P01";
    pub const INVALID_STATEMENT_NAME: &str = "26000";
    pub const INVALID_AUTHORIZATION: &str = "28000";
    pub const INVALID_PASSWORD: &str = "28P01";
    pub const DEPENDENT_OBJECTS: &str = "2BP01";
    pub const INVALID_GRANT: &str = "0LP01";
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    pub const UNDEFINED_OBJECT: &str = "42704";
    pub const DUPLICATE_OBJECT: &str = "42710";
    pub const RESERVED_NAME: &str = "42939";
    pub const CONFIG_FILE_ERROR: &str = "F0000";
    pub const INVALID_CURSOR: &str = "34000";
    pub const SERIALIZATION_FAILURE: &str = "40001";
    pub const COMPLETION_UNKNOWN: &str = "40003";
    pub const SYNTAX_OR_ACCESS: &str = "42000";
    pub const SYNTAX_ERROR: &str = "42601";
    pub const NAME_TOO_LONG: &str = "42622";
    pub const AMBIGUOUS_COLUMN: &str = "42702";
    pub const UNDEFINED_COLUMN: &str = "42703";
    pub const UNDEFINED_FUNCTION: &str = "42883";
    pub const DUPLICATE_COLUMN: &str = "42701";
    pub const DUPLICATE_CURSOR: &str = "42P03";
    pub const UNDEFINED_TABLE: &str = "42P01";
    pub const UNDEFINED_PARAMETER: &str = "42P02";
    pub const DUPLICATE_PREPARED: &str = "42P05";
    pub const DUPLICATE_TABLE: &str = "42P07";
    pub const INVALID_COLUMN_DEFINITION: &str = "42611";
    pub const INVALID_TABLE_DEFINITION: &str = "42P16";
    pub const WRONG_OBJECT_TYPE: &str = "42809";
    pub const DATATYPE_MISMATCH: &str = "42804";
    pub const OUT_OF_MEMORY: &str = "53200";
    pub const DISK_FULL: &str = "53100";
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    pub const CONFIGURATION_LIMIT: &str = "53400";
    pub const PROGRAM_LIMIT: &str = "54000";
    pub const NOT_IN_PREREQUISITE_STATE: &str = "55000";
    pub const OBJECT_IN_USE: &str = "55006";
    pub const CANNOT_CONNECT_NOW: &str = "57P03";
    pub const ADMIN_SHUTDOWN: &str = "57P01";
    pub const QUERY_CANCELED: &str = "57014";
    pub const IO_ERROR: &str = "58030";
    pub const INTERNAL: &str = "XX000";
    pub const DATA_CORRUPTED: &str = "XX001";
}

pub type Result<T, E = SqlError> = std::result::Result<T, E>;

/// A failed statement. Cheap to move; the parts are what a Postgres client shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    state: &'static str,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    context: Option<String>,
    position: Option<usize>,
    fatal: bool,
}

impl SqlError {
    pub fn new(state: &'static str, message: impl Into<String>) -> SqlError {
        SqlError(Box::new(Parts {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            position: None,
            fatal: false,
        }))
    }

    /// `0A000` with the remedy.
    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> SqlError {
        SqlError::new(state::FEATURE_NOT_SUPPORTED, message).with_hint(hint)
    }

    pub fn undefined_table(name: &str) -> SqlError {
        SqlError::new(state::UNDEFINED_TABLE, format!("table \"{name}\" does not exist"))
            .with_hint("SHOW TABLES lists the tables")
    }

    pub fn undefined_column(table: &str, column: &str) -> SqlError {
        SqlError::new(state::UNDEFINED_COLUMN, format!("column \"{column}\" of table \"{table}\" does not exist"))
    }

    pub fn canceled() -> SqlError {
        SqlError::new(state::QUERY_CANCELED, "canceling statement due to user request")
    }

    pub fn stopping() -> SqlError {
        SqlError::new(state::ADMIN_SHUTDOWN, "the server is stopping")
    }

    pub fn of_kind(kind: Kind, message: impl Into<String>) -> SqlError {
        let state = match kind {
            Kind::Invalid => state::INVALID_PARAMETER_VALUE,
            Kind::NotFound => state::UNDEFINED_TABLE,
            Kind::Conflict => state::SERIALIZATION_FAILURE,
            // Not 57P03: drivers take that for a server that is starting.
            Kind::Unavailable => state::IO_ERROR,
            Kind::Indeterminate => state::COMPLETION_UNKNOWN,
            Kind::Corrupt => state::DATA_CORRUPTED,
        };
        SqlError::new(state, message)
    }

    pub fn with_detail(mut self, detail: impl Into<String>) -> SqlError {
        self.0.detail = Some(detail.into());
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> SqlError {
        self.0.hint = Some(hint.into());
        self
    }

    /// Where it happened, when that is not in the statement: `COPY t, line 2, column n: "abc"`.
    pub fn with_context(mut self, context: impl Into<String>) -> SqlError {
        self.0.context = Some(context.into());
        self
    }

    pub fn with_state(mut self, state: &'static str) -> SqlError {
        self.0.state = state;
        self
    }

    /// The connection ends with this error.
    pub fn fatal(mut self) -> SqlError {
        self.0.fatal = true;
        self
    }

    pub fn state(&self) -> &'static str {
        self.0.state
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub fn context(&self) -> Option<&str> {
        self.0.context.as_deref()
    }

    pub fn is_fatal(&self) -> bool {
        self.0.fatal
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.message)?;
        if let Some(detail) = &self.0.detail {
            write!(f, " ({detail})")?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}

macro_rules! by_kind {
    ($($path:path),* $(,)?) => {$(
        impl From<$path> for SqlError {
            fn from(error: $path) -> SqlError {
                metastore_away(&error).unwrap_or_else(|| SqlError::of_kind(error.kind(), chain(&error)))
            }
        }
    )*};
}

by_kind!(tarn_feed::Error, tarn_rows::Error, tarn_lake::Error);

/// The metastore did not answer, whoever asked it.
fn metastore_away(error: &(dyn std::error::Error + 'static)) -> Option<SqlError> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let away = causes.find_map(|cause| cause.downcast_ref::<tarn_metastore::Error>())?;
    let tarn_metastore::Error::Unavailable { source, .. } = away else { return None };
    let away = SqlError::new(state::CONNECTION_FAILURE, format!("{away}: {source}"));
    Some(away.with_hint(
        "statements that need it work again when it is back; metastore_timeout_ms is how long it is waited for",
    ))
}

impl From<tarn_replica::Error> for SqlError {
    fn from(error: tarn_replica::Error) -> SqlError {
        match error {
            tarn_replica::Error::Log { source: tarn_raftlog::Error::Closed { .. }, .. } => SqlError::stopping(),
            error => SqlError::of_kind(error.kind(), chain(&error)),
        }
    }
}

/// The log knows nothing of ours, not even our kinds.
impl From<tarn_raftlog::Error> for SqlError {
    fn from(error: tarn_raftlog::Error) -> SqlError {
        use tarn_raftlog::ErrorKind;
        let state = match error.kind() {
            ErrorKind::Invalid => state::INTERNAL,
            ErrorKind::NotFound => state::INTERNAL,
            ErrorKind::Unavailable => state::IO_ERROR,
            ErrorKind::Indeterminate => state::COMPLETION_UNKNOWN,
            ErrorKind::Corrupt => state::DATA_CORRUPTED,
        };
        SqlError::new(state, error.to_string())
    }
}

impl From<tarn_types::Error> for SqlError {
    fn from(error: tarn_types::Error) -> SqlError {
        let state = types_state(&error);
        SqlError::new(state, error.to_string())
    }
}

fn types_state(error: &tarn_types::Error) -> &'static str {
    use tarn_types::Error as Types;
    match error {
        Types::Schema { .. } => state::INVALID_TABLE_DEFINITION,
        Types::Parse { value, data_type } => text_state(value, data_type),
        Types::Coerce { .. } => state::NUMERIC_OUT_OF_RANGE,
        Types::Null { .. } | Types::MissingColumn { .. } => state::NOT_NULL_VIOLATION,
        Types::Cell { source, .. } => types_state(source),
        Types::UnknownColumn { .. } => state::UNDEFINED_COLUMN,
        Types::Type { .. } => state::DATATYPE_MISMATCH,
        Types::Corrupt { .. } => state::DATA_CORRUPTED,
        _ => state::INVALID_PARAMETER_VALUE,
    }
}

/// Postgres tells a malformed date from a malformed number, and a number that is only too large from both.
fn text_state(value: &str, data_type: &str) -> &'static str {
    const NUMBERS: [&str; 6] = ["SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "NUMERIC"];
    if data_type.starts_with("DATE") || data_type.starts_with("TIME") {
        return state::INVALID_DATETIME;
    }
    let is_number = NUMBERS.iter().any(|name| data_type.starts_with(name)) && value.trim().parse::<f64>().is_ok();
    if is_number { state::NUMERIC_OUT_OF_RANGE } else { state::INVALID_TEXT }
}

impl From<tarn_metastore::Error> for SqlError {
    fn from(error: tarn_metastore::Error) -> SqlError {
        let state = match &error {
            tarn_metastore::Error::TableExists { .. } => state::DUPLICATE_TABLE,
            tarn_metastore::Error::NoTable { .. } => state::UNDEFINED_TABLE,
            other => {
                return metastore_away(other).unwrap_or_else(|| SqlError::of_kind(other.kind(), chain(other)));
            }
        };
        SqlError::new(state, error.to_string())
    }
}

impl From<tarn_query::Error> for SqlError {
    fn from(error: tarn_query::Error) -> SqlError {
        match error {
            tarn_query::Error::Sql { source } => SqlError::from(source),
            other => from_query(&other),
        }
    }
}

fn from_query(error: &tarn_query::Error) -> SqlError {
    use tarn_query::Error as Query;
    match error {
        Query::Sql { source } => from_shared(source),
        Query::NoSuchTable { name } => SqlError::undefined_table(name),
        Query::Types { source, .. } => SqlError::new(types_state(source), error.to_string()),
        Query::TooLong { .. } => SqlError::new(state::PROGRAM_LIMIT, error.to_string())
            .with_hint("it may take a quarter of query_memory_bytes"),
        Query::Unsupported { what, remedy } => SqlError::unsupported(format!("{what} is not supported"), *remedy),
        Query::AccessPath { path, table, why, remedy } => {
            SqlError::unsupported(format!("access path {path} cannot answer for table {table}: {why}"), *remedy)
        }
        Query::Changed { .. } | Query::Gone { .. } => {
            SqlError::new(state::NOT_IN_PREREQUISITE_STATE, error.to_string())
        }
        Query::Read { kind: Kind::Unavailable, .. } => SqlError::new(state::IO_ERROR, error.to_string()),
        Query::TooLarge { limit, remedy } => SqlError::new(state::PROGRAM_LIMIT, limit).with_hint(*remedy),
        Query::Parameters { .. } => SqlError::new(state::PROTOCOL_VIOLATION, error.to_string()),
        Query::NullKey { .. } => SqlError::new(state::NOT_NULL_VIOLATION, error.to_string()),
        Query::Hot { source, .. } if source.is::<SqlError>() => source
            .downcast_ref::<SqlError>()
            .map_or_else(|| SqlError::new(state::INTERNAL, error.to_string()), SqlError::clone),
        other => metastore_away(other).unwrap_or_else(|| SqlError::of_kind(other.kind(), chain(other))),
    }
}

impl From<ParserError> for SqlError {
    fn from(error: ParserError) -> SqlError {
        let message = match error {
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
            ParserError::RecursionLimitExceeded => {
                return SqlError::new(state::PROGRAM_LIMIT, "the statement is nested too deeply");
            }
        };
        SqlError::new(state::SYNTAX_ERROR, format!("syntax error: {message}"))
    }
}

impl From<ParseError> for SqlError {
    fn from(error: ParseError) -> SqlError {
        match error {
            ParseError::Syntax(error) => SqlError::from(error),
            ParseError::TooLarge(limit) => {
                SqlError::new(state::PROGRAM_LIMIT, limit.to_string()).with_hint(limit.remedy())
            }
            ParseError::Refused { what, remedy } => SqlError::unsupported(format!("{what} is not supported"), remedy),
        }
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> SqlError {
        let state = match &error {
            ArrowError::DivideByZero => return SqlError::new(state::DIVISION_BY_ZERO, "division by zero"),
            ArrowError::ArithmeticOverflow(_) => state::NUMERIC_OUT_OF_RANGE,
            ArrowError::CastError(_)
            | ArrowError::ParseError(_)
            | ArrowError::CsvError(_)
            | ArrowError::JsonError(_) => state::INVALID_TEXT,
            ArrowError::NotYetImplemented(_) => state::FEATURE_NOT_SUPPORTED,
            ArrowError::SchemaError(_) | ArrowError::InvalidArgumentError(_) => state::INVALID_PARAMETER_VALUE,
            ArrowError::MemoryError(_) => state::OUT_OF_MEMORY,
            ArrowError::IoError(..) => state::IO_ERROR,
            ArrowError::IpcError(_) => state::BAD_COPY_FORMAT,
            _ => state::INTERNAL,
        };
        SqlError::new(state, error.to_string())
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => SqlError::from(*inner),
            DataFusionError::Shared(inner) => from_shared(&inner),
            DataFusionError::Collection(errors) => errors
                .into_iter()
                .next()
                .map_or_else(|| SqlError::new(state::INTERNAL, "empty error collection"), SqlError::from),
            DataFusionError::External(inner) => from_external(inner),
            DataFusionError::ArrowError(inner, _) => SqlError::from(*inner),
            DataFusionError::SQL(inner, _) => SqlError::from(*inner),
            other => from_shared(&other),
        }
    }
}

fn from_external(error: Box<dyn std::error::Error + Send + Sync>) -> SqlError {
    let error = match error.downcast::<SqlError>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    let error = match error.downcast::<tarn_query::Error>() {
        Ok(error) => return SqlError::from(*error),
        Err(error) => error,
    };
    let error = match error.downcast::<DataFusionError>() {
        Ok(error) => return SqlError::from(*error),
        Err(error) => error,
    };
    match error.downcast::<ArrowError>() {
        Ok(error) => SqlError::from(*error),
        Err(error) => SqlError::new(state::INTERNAL, error.to_string()),
    }
}

/// The same by reference, for errors that several readers share.
fn from_shared(error: &DataFusionError) -> SqlError {
    let message = error.strip_backtrace();
    let state = match error.find_root() {
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::AmbiguousReference { .. } => state::AMBIGUOUS_COLUMN,
            SchemaError::FieldNotFound { .. } => state::UNDEFINED_COLUMN,
            SchemaError::DuplicateQualifiedField { .. } | SchemaError::DuplicateUnqualifiedField { .. } => {
                state::DUPLICATE_COLUMN
            }
        },
        DataFusionError::SQL(..) => state::SYNTAX_ERROR,
        DataFusionError::NotImplemented(_) => state::FEATURE_NOT_SUPPORTED,
        DataFusionError::Plan(_) => state::SYNTAX_OR_ACCESS,
        DataFusionError::Configuration(_) => state::INVALID_PARAMETER_VALUE,
        DataFusionError::ResourcesExhausted(_) => state::OUT_OF_MEMORY,
        DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) => state::IO_ERROR,
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::DivideByZero => state::DIVISION_BY_ZERO,
            ArrowError::ArithmeticOverflow(_) => state::NUMERIC_OUT_OF_RANGE,
            ArrowError::CastError(_) | ArrowError::ParseError(_) => state::INVALID_TEXT,
            _ => state::INTERNAL,
        },
        DataFusionError::External(inner) => {
            if let Some(error) = inner.downcast_ref::<SqlError>() {
                return error.clone();
            }
            if let Some(error) = inner.downcast_ref::<tarn_query::Error>() {
                return from_query(error);
            }
            state::INTERNAL
        }
        // What a scan met while it read a file.
        DataFusionError::ParquetError(inner) => match inner.as_ref() {
            ParquetError::External(inner) => match inner.downcast_ref::<tarn_query::Error>() {
                Some(error) => return from_query(error),
                None => state::IO_ERROR,
            },
            _ => state::INTERNAL,
        },
        // Values that do not fit are reported as Execution errors by DataFusion's functions.
        DataFusionError::Execution(_) => state::INVALID_PARAMETER_VALUE,
        _ => state::INTERNAL,
    };
    SqlError::new(state, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datafusion_errors_become_sqlstates() {
        fn in_a_file(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
            DataFusionError::ParquetError(Box::new(ParquetError::External(Box::new(error))))
        }
        let away = tarn_metastore::Error::Unavailable {
            address: "cql://a".to_owned(),
            setting: "metastore",
            source: "no answer".into(),
        };
        let away = tarn_query::Error::Blocks { table: "t".to_owned(), source: away };
        let cases = [
            (DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None), state::DIVISION_BY_ZERO),
            (DataFusionError::NotImplemented("x".into()), state::FEATURE_NOT_SUPPORTED),
            (DataFusionError::ResourcesExhausted("x".into()), state::OUT_OF_MEMORY),
            (DataFusionError::External(Box::new(SqlError::canceled())), state::QUERY_CANCELED),
            (DataFusionError::Plan("x".into()).context("while planning"), state::SYNTAX_OR_ACCESS),
            (in_a_file(away), state::CONNECTION_FAILURE),
            (in_a_file(std::io::Error::other("x")), state::IO_ERROR),
        ];
        for (error, state) in cases {
            let text = error.to_string();
            assert_eq!(SqlError::from(error).state(), state, "{text}");
        }
    }

    #[test]
    fn a_metastore_that_is_away_is_named_with_its_setting() {
        let away = || tarn_metastore::Error::Unavailable {
            address: "cql://a".to_owned(),
            setting: "metastore",
            source: "no answer in 10 s".into(),
        };
        let commit = tarn_lake::Error::Metastore { action: "commit", table: tarn_types::TableId(1), source: away() };
        let read = tarn_query::Error::Metastore { table: "t".into(), at: tarn_metastore::At::Latest, source: away() };
        for error in [SqlError::from(away()), SqlError::from(commit), SqlError::from(read)] {
            assert_eq!(error.state(), "08006");
            assert_eq!(
                error.message(),
                "metastore at cql://a (setting `metastore`) is not available: no answer in 10 s"
            );
            assert!(error.hint().is_some_and(|hint| hint.contains("metastore_timeout_ms")));
        }
        let taken = tarn_metastore::Error::TableExists { name: "t".into() };
        assert_eq!(SqlError::from(taken).state(), state::DUPLICATE_TABLE);
    }
}
