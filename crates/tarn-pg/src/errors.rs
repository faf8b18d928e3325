//! How does an error travel to a Postgres client, and back out of the protocol library?

use bytes::BytesMut;
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::PgWireBackendMessage;
use tarn_sql::error::{SqlError, state};
use tarn_types::full_name;

/// As the protocol library carries it.
pub fn on_wire(error: SqlError) -> PgWireError {
    PgWireError::UserError(Box::new(error_info(&error)))
}

/// The fields a client shows.
pub fn error_info(error: &SqlError) -> ErrorInfo {
    let severity = if error.is_fatal() { "FATAL" } else { "ERROR" };
    let mut info = ErrorInfo::new(severity.to_owned(), error.state().to_owned(), error.message().to_owned());
    info.severity_nonlocalized = Some(severity.to_owned());
    info.detail = error.detail().map(str::to_owned);
    info.hint = error.hint().map(str::to_owned);
    info.position = error.position().map(|position| position.to_string());
    info.where_context = error.context().map(str::to_owned);
    if let Some((table, constraint)) = error.constraint() {
        let (schema, table) = full_name::split(table);
        info.schema = Some(schema.to_owned());
        info.table = Some(table.to_owned());
        info.constraint = Some(constraint.to_owned());
    }
    info
}

/// An error as bytes, for who is refused before there is a connection to answer on.
pub fn encoded(error: &SqlError) -> BytesMut {
    let mut bytes = BytesMut::new();
    // Only a message of gigabytes cannot be encoded.
    let _ = PgWireBackendMessage::ErrorResponse(error_info(error).into()).encode(&mut bytes);
    bytes
}

/// A notice: something was done, but not quite as asked.
pub fn notice(state: &str, message: &str) -> ErrorInfo {
    let mut info = ErrorInfo::new("NOTICE".to_owned(), state.to_owned(), message.to_owned());
    info.severity_nonlocalized = Some("NOTICE".to_owned());
    info
}

/// Gives errors of the protocol library the SQLSTATEs that drivers look for.
pub fn sharpen(error: &mut PgWireError) {
    let sharper = match error {
        PgWireError::PortalNotFound(name) => {
            SqlError::new(state::INVALID_CURSOR, format!("portal \"{}\" does not exist", shown(name)))
        }
        PgWireError::StatementNotFound(name) => SqlError::new(
            state::INVALID_STATEMENT_NAME,
            format!("prepared statement \"{}\" does not exist", shown(name)),
        ),
        PgWireError::QueryCanceled => SqlError::canceled(),
        _ => return,
    };
    *error = on_wire(sharper);
}

fn shown(name: &str) -> &str {
    if name == pgwire::api::DEFAULT_NAME { "" } else { name }
}
