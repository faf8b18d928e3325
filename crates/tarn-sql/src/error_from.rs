//! What does a failure below mean to a client?
//!
//! The crates below report a `kind()` (what the caller can do), DataFusion kinds of its own; here they become
//! SQLSTATEs.

use arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use parquet::errors::ParquetError;
use tarn_node::error::chain;
use tarn_node::error::{Error, ErrorKind, metastore_away};
use tarn_query::parser::ParseError;
use tarn_types::{Kind, Zone};

use crate::duplicate::{duplicate, violated};
use crate::error::{SqlError, TextPosition, no_array, state, types_state};
use crate::planner_messages;

/// What a kind is called on Postgres' wire.
fn state_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TableExists => state::DUPLICATE_TABLE,
        ErrorKind::NoTable => state::UNDEFINED_TABLE,
        ErrorKind::NoColumn => state::UNDEFINED_COLUMN,
        ErrorKind::Definition => state::INVALID_TABLE_DEFINITION,
        ErrorKind::Invalid => state::INVALID_PARAMETER_VALUE,
        ErrorKind::WrongObject => state::WRONG_OBJECT_TYPE,
        ErrorKind::ReadOnly => state::READ_ONLY_TRANSACTION,
        ErrorKind::InUse => state::OBJECT_IN_USE,
        ErrorKind::WrongState => state::NOT_IN_PREREQUISITE_STATE,
        ErrorKind::KeyExists => state::UNIQUE_VIOLATION,
        ErrorKind::ForeignKey => state::FOREIGN_KEY_VIOLATION,
        ErrorKind::Conflict => state::SERIALIZATION_FAILURE,
        ErrorKind::Indeterminate => state::COMPLETION_UNKNOWN,
        // Not 57P03: drivers take that for a server that is starting.
        ErrorKind::Unavailable => state::IO_ERROR,
        ErrorKind::MetastoreAway => state::CONNECTION_FAILURE,
        ErrorKind::DiskFull => state::DISK_FULL,
        ErrorKind::Limit => state::CONFIGURATION_LIMIT,
        ErrorKind::ProgramLimit => state::PROGRAM_LIMIT,
        ErrorKind::UsedUp => state::SEQUENCE_LIMIT,
        ErrorKind::Corrupt => state::DATA_CORRUPTED,
        ErrorKind::Stopping => state::ADMIN_SHUTDOWN,
        ErrorKind::Canceled => state::QUERY_CANCELED,
        ErrorKind::Denied => state::INSUFFICIENT_PRIVILEGE,
        ErrorKind::NotAllowedIn => state::INVALID_AUTHORIZATION,
        ErrorKind::WrongPassword => state::INVALID_PASSWORD,
        ErrorKind::Depended => state::DEPENDENT_OBJECTS,
        ErrorKind::ObjectExists => state::DUPLICATE_OBJECT,
        ErrorKind::NoObject => state::UNDEFINED_OBJECT,
        ErrorKind::SchemaExists => state::DUPLICATE_SCHEMA,
        ErrorKind::NoSchema => state::UNDEFINED_SCHEMA,
        ErrorKind::ReservedName => state::RESERVED_NAME,
        ErrorKind::Configuration => state::CONFIG_FILE_ERROR,
        ErrorKind::Internal => state::INTERNAL,
    }
}

impl From<Error> for SqlError {
    fn from(error: Error) -> SqlError {
        if let Some(existing) = error.existing() {
            return duplicate(existing, &Zone::utc());
        }
        if let Some(violation) = error.violation() {
            return violated(violation, &Zone::utc());
        }
        let state = error.value().map_or_else(|| state_of(error.kind()), types_state);
        let mut told = SqlError::new(state, error.message());
        if let Some(detail) = error.detail() {
            told = told.with_detail(detail);
        }
        if let Some(hint) = error.hint() {
            told = told.with_hint(hint);
        }
        told
    }
}

/// It comes out of the engine as it went in.
impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

/// What the node said while a query read `table` of it: it comes out of the query as it went in.
pub(crate) fn in_query(table: &str, error: Error) -> tarn_query::Error {
    tarn_query::Error::hot(table, Kind::Unavailable, error)
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
        // It names its column's type, as PostgreSQL does, and no table.
        Query::Types {
            source: source @ (tarn_types::Error::TooLong { .. } | tarn_types::Error::NoLabel { .. }),
            ..
        } => SqlError::new(types_state(source), source.to_string()),
        Query::Types { table, source: tarn_types::Error::Null { column, .. } } => {
            let message =
                format!("null value in column \"{column}\" of relation \"{table}\" violates not-null constraint");
            SqlError::new(state::NOT_NULL_VIOLATION, message)
        }
        Query::Types { source: source @ tarn_types::Error::Array { why, .. }, .. } => {
            no_array(SqlError::new(types_state(source), source.to_string()), *why)
        }
        Query::Types { source, .. } => SqlError::new(types_state(source), error.to_string()),
        Query::TooLong { .. } => SqlError::new(state::PROGRAM_LIMIT, error.to_string())
            .with_hint("it may take a quarter of query_memory_bytes"),
        Query::NoFunction { .. } => SqlError::new(state::UNDEFINED_FUNCTION, error.to_string()).with_hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        ),
        Query::NoParameter { .. } => SqlError::new(state::UNDEFINED_PARAMETER, error.to_string()),
        Query::Unsupported { what, remedy } => SqlError::unsupported(format!("{what} is not supported"), *remedy),
        Query::View { .. } => SqlError::new(state::NOT_IN_PREREQUISITE_STATE, error.to_string())
            .with_hint("SHOW CREATE VIEW prints how it was made: DROP VIEW it, and make it anew"),
        Query::AccessPath { path, table, why, remedy } => {
            SqlError::unsupported(format!("access path {path} cannot answer for table {table}: {why}"), *remedy)
        }
        // It is no longer the file that was attached.
        Query::Reader { source } if source.kind() == Kind::Conflict => {
            SqlError::new(state::NOT_IN_PREREQUISITE_STATE, error.to_string())
        }
        Query::Read { kind: Kind::Unavailable, .. } => SqlError::new(state::IO_ERROR, error.to_string()),
        Query::TooLarge { limit, remedy } => SqlError::new(state::PROGRAM_LIMIT, limit).with_hint(*remedy),
        Query::Parameters { .. } => SqlError::new(state::PROTOCOL_VIOLATION, error.to_string()),
        Query::ConflictTarget { table, key } => {
            let told = SqlError::new(state::INVALID_COLUMN_REFERENCE, error.to_string());
            match key.is_empty() {
                true => told.with_hint(format!("table {table} has no primary key")),
                false => told.with_hint(format!("the key of table {table} is ({key})")),
            }
        }
        Query::NoConstraint { table, .. } => SqlError::new(state::UNDEFINED_OBJECT, error.to_string())
            .with_hint(format!("the constraint of a table is its key, {table}_pkey")),
        Query::NullKey { .. } => SqlError::new(state::NOT_NULL_VIOLATION, error.to_string()),
        Query::Hot { source, .. } if source.is::<Error>() => source
            .downcast_ref::<Error>()
            .map_or_else(|| SqlError::new(state::INTERNAL, error.to_string()), |error| error.clone().into()),
        other => metastore_away(other).unwrap_or_else(|| Error::of_kind(other.kind(), chain(other))).into(),
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
        let place = place(&message);
        SqlError::new(state::SYNTAX_ERROR, format!("syntax error: {message}")).with_place(place)
    }
}

/// The parser says where at the end of its message, and nowhere else.
fn place(message: &str) -> Option<TextPosition> {
    if message.ends_with("found: EOF") {
        return Some(TextPosition::End);
    }
    let (_, place) = message.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some(TextPosition::At { line: line.parse().ok()?, column: column.parse().ok()? })
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
            SchemaError::FieldNotFound { field, valid_fields } => {
                return planner_messages::no_column(field, valid_fields);
            }
            SchemaError::DuplicateQualifiedField { .. } | SchemaError::DuplicateUnqualifiedField { .. } => {
                state::DUPLICATE_COLUMN
            }
        },
        DataFusionError::SQL(..) => state::SYNTAX_ERROR,
        DataFusionError::NotImplemented(_) => state::FEATURE_NOT_SUPPORTED,
        DataFusionError::Plan(sentence) => match planner_messages::told(sentence) {
            Some(told) => return told,
            None => state::SYNTAX_OR_ACCESS,
        },
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
        let away = Error::new(ErrorKind::MetastoreAway, "no answer");
        let away = tarn_query::Error::hot("t", Kind::Unavailable, away);
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
}
