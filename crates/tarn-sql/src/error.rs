//! What went wrong, as a client may see it?
//!
//! Every failure of a statement becomes one [`SqlError`]: a SQLSTATE, a message that names the thing, and where there
//! is one a detail and the remedy. What engines and libraries report becomes one in `error_from`: what reads bytes of
//! clients needs none of them, and is fuzzed without them.

use std::fmt;

use arrow::error::ArrowError;
use tarn_types::json::JsonFault;
use tarn_types::{Kind, NoArray, TimeFault, full_name};

/// SQLSTATEs used by Tarn (Postgres, appendix A).
pub mod state {
    pub const CONNECTION_DOES_NOT_EXIST: &str = "08003";
    pub const CONNECTION_FAILURE: &str = "08006";
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub const NUMERIC_OUT_OF_RANGE: &str = "22003";
    pub const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
    pub const NULL_VALUE_NOT_ALLOWED: &str = "22004";
    pub const INVALID_DATETIME: &str = "22007";
    pub const DATETIME_OVERFLOW: &str = "22008";
    pub const INVALID_ZONE_DISPLACEMENT: &str = "22009";
    pub const INTERVAL_OVERFLOW: &str = "22015";
    pub const INVALID_LOGARITHM: &str = "2201E";
    pub const INVALID_POWER: &str = "2201F";
    pub const INVALID_WIDTH_BUCKET: &str = "2201G";
    pub const SUBSTRING: &str = "22011";
    pub const DIVISION_BY_ZERO: &str = "22012";
    pub const INVALID_PARAMETER_VALUE: &str = "22023";
    pub const INVALID_TEXT: &str = "22P02";
    pub const UNTRANSLATABLE: &str = "22P05";
    pub const INVALID_ESCAPE: &str = "22025";
    pub const INVALID_ESCAPE_USE: &str = "2200C";
    pub const INVALID_REGULAR_EXPRESSION: &str = "2201B";
    pub const NO_JSON_TIME: &str = "22031";
    pub const JSON_SUBSCRIPT: &str = "22033";
    pub const NO_JSON_NUMERIC: &str = "22036";
    pub const NO_SINGLE_JSON: &str = "22038";
    pub const NO_JSON_ARRAY: &str = "22039";
    pub const NO_JSON_MEMBER: &str = "2203A";
    pub const NO_JSON_NUMBER: &str = "2203B";
    pub const NO_JSON_OBJECT: &str = "2203C";
    pub const SEQUENCE_LIMIT: &str = "2200H";
    pub const TEXT_TOO_LONG: &str = "22001";
    pub const CARDINALITY: &str = "21000";
    pub const ARRAY_SUBSCRIPT: &str = "2202E";
    pub const NULL_NOT_ALLOWED: &str = "22004";
    pub const INVALID_NTILE: &str = "22014";
    pub const INVALID_NTH_VALUE: &str = "22016";
    pub const INVALID_FRAME_OFFSET: &str = "22013";
    pub const INVALID_BINARY: &str = "22P03";
    pub const BAD_COPY_FORMAT: &str = "22P04";
    pub const NOT_NULL_VIOLATION: &str = "23502";
    pub const FOREIGN_KEY_VIOLATION: &str = "23503";
    pub const INVALID_FOREIGN_KEY: &str = "42830";
    pub const UNIQUE_VIOLATION: &str = "23505";
    pub const GROUPING: &str = "42803";
    pub const WINDOWING: &str = "42P20";
    pub const INVALID_COLUMN_REFERENCE: &str = "42P10";
    pub const DUPLICATE_ALIAS: &str = "42712";
    pub const CHECK_VIOLATION: &str = "23514";
    pub const GENERATED_ALWAYS: &str = "428C9";
    pub const ACTIVE_TRANSACTION: &str = "25001";
    pub const READ_ONLY_TRANSACTION: &str = "25006";
    pub const FAILED_TRANSACTION: &str = "25P02";
    pub const IDLE_TRANSACTION_TIMEOUT: &str = "25P03";
    pub const NO_ACTIVE_TRANSACTION: &str = "25P01";
    pub const DEADLOCK: &str = "40P01";
    pub const INVALID_SAVEPOINT: &str = "3B001";
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
    pub const INVALID_CURSOR_STATE: &str = "24000";
    pub const INVALID_CURSOR_DEFINITION: &str = "42P11";
    pub const SERIALIZATION_FAILURE: &str = "40001";
    pub const COMPLETION_UNKNOWN: &str = "40003";
    pub const SYNTAX_OR_ACCESS: &str = "42000";
    pub const SYNTAX_ERROR: &str = "42601";
    pub const NAME_TOO_LONG: &str = "42622";
    pub const GROUPING_ERROR: &str = "42803";
    pub const WINDOWING_ERROR: &str = "42P20";
    pub const INVALID_NAME: &str = "42602";
    pub const AMBIGUOUS_COLUMN: &str = "42702";
    pub const UNDEFINED_COLUMN: &str = "42703";
    pub const UNDEFINED_FUNCTION: &str = "42883";
    pub const DUPLICATE_COLUMN: &str = "42701";
    pub const DUPLICATE_CURSOR: &str = "42P03";
    pub const DUPLICATE_SCHEMA: &str = "42P06";
    pub const UNDEFINED_SCHEMA: &str = "3F000";
    pub const UNDEFINED_TABLE: &str = "42P01";
    pub const UNDEFINED_PARAMETER: &str = "42P02";
    pub const DUPLICATE_PREPARED: &str = "42P05";
    pub const DUPLICATE_TABLE: &str = "42P07";
    pub const INVALID_COLUMN_DEFINITION: &str = "42611";
    pub const INVALID_TABLE_DEFINITION: &str = "42P16";
    pub const INVALID_FUNCTION_DEFINITION: &str = "42P13";
    pub const DUPLICATE_FUNCTION: &str = "42723";
    pub const TOO_MANY_ARGUMENTS: &str = "54023";
    pub const INVALID_OBJECT_DEFINITION: &str = "42P17";
    pub const WRONG_OBJECT_TYPE: &str = "42809";
    pub const AMBIGUOUS_ALIAS: &str = "42P09";
    pub const AMBIGUOUS_PARAMETER: &str = "42P08";
    pub const AMBIGUOUS_FUNCTION: &str = "42725";
    pub const INDETERMINATE_TYPE: &str = "42P18";
    pub const INVALID_RECURSION: &str = "42P19";
    pub const CANNOT_COERCE: &str = "42846";
    pub const DATATYPE_MISMATCH: &str = "42804";
    pub const OUT_OF_MEMORY: &str = "53200";
    pub const DISK_FULL: &str = "53100";
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    pub const CONFIGURATION_LIMIT: &str = "53400";
    pub const PROGRAM_LIMIT: &str = "54000";
    pub const TOO_COMPLEX: &str = "54001";
    pub const NOT_IN_PREREQUISITE_STATE: &str = "55000";
    pub const OBJECT_IN_USE: &str = "55006";
    pub const CANNOT_CONNECT_NOW: &str = "57P03";
    pub const ADMIN_SHUTDOWN: &str = "57P01";
    pub const QUERY_CANCELED: &str = "57014";
    pub const IO_ERROR: &str = "58030";
    pub const INTERNAL: &str = "XX000";
    pub const DATA_CORRUPTED: &str = "XX001";
}

/// What calls of this crate answer.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

/// A failed statement. Cheap to move; the parts are what a Postgres client shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError(Box<SqlErrorParts>);

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPosition {
    /// Both from 1, the column in characters, as the parser counts them.
    At { line: u64, column: u64 },
    /// Behind its last character: something is missing there.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SqlErrorParts {
    state: &'static str,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    context: Option<String>,
    place: Option<TextPosition>,
    position: Option<usize>,
    /// A table and the constraint of it that a row violates.
    constraint: Option<(String, String)>,
    fatal: bool,
}

impl SqlError {
    /// With one of [`state`] and a message, as clients see it.
    pub fn new(state: &'static str, message: impl Into<String>) -> SqlError {
        SqlError(Box::new(SqlErrorParts {
            state,
            message: shown(state, message.into()),
            detail: None,
            hint: None,
            context: None,
            place: None,
            position: None,
            constraint: None,
            fatal: false,
        }))
    }

    /// `0A000` with the remedy.
    pub fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> SqlError {
        SqlError::new(state::FEATURE_NOT_SUPPORTED, message).with_hint(hint)
    }

    /// `42P01`, with a hint that tells how to list them.
    pub fn undefined_table(name: &str) -> SqlError {
        SqlError::new(state::UNDEFINED_TABLE, format!("table \"{name}\" does not exist"))
            .with_hint("SHOW TABLES lists the tables")
    }

    /// `42703`.
    pub fn undefined_column(table: &str, column: &str) -> SqlError {
        SqlError::new(state::UNDEFINED_COLUMN, format!("column \"{column}\" of table \"{table}\" does not exist"))
    }

    /// `57014`, in PostgreSQL's words, which clients know.
    pub fn canceled() -> SqlError {
        SqlError::new(state::QUERY_CANCELED, "canceling statement due to user request")
    }

    /// `57P01`.
    pub fn stopping() -> SqlError {
        SqlError::new(state::ADMIN_SHUTDOWN, "the server is stopping")
    }

    /// The state that fits what the crates below say of an error.
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

    /// What more is known of this case; takes the place of an earlier one.
    pub fn with_detail(mut self, detail: impl Into<String>) -> SqlError {
        self.0.detail = Some(dotted(detail.into()));
        self
    }

    /// What can be done; takes the place of an earlier one.
    pub fn with_hint(mut self, hint: impl Into<String>) -> SqlError {
        self.0.hint = Some(dotted(hint.into()));
        self
    }

    /// Where it happened, when that is not in the statement: `COPY t, line 2, column n: "abc"`.
    pub fn with_context(mut self, context: impl Into<String>) -> SqlError {
        self.0.context = Some(full_name::stripped(&context.into()).into_owned());
        self
    }

    /// The constraint of a table that a row violates: what libraries look at to tell errors apart.
    pub fn with_constraint(mut self, table: impl Into<String>, name: impl Into<String>) -> SqlError {
        self.0.constraint = Some((table.into(), name.into()));
        self
    }

    /// Which part of its text it is about. Who has the text says where that is: [`SqlError::in_text`].
    pub fn with_place(mut self, place: Option<TextPosition>) -> SqlError {
        self.0.place = place;
        self
    }

    /// The text whose part it is about. A place that is none in it is forgotten: no caret is better than a wrong one.
    pub fn in_text(mut self, text: &str) -> SqlError {
        self.0.position = self.0.place.take().and_then(|place| position(place, text));
        self
    }

    /// The same words under another state.
    pub fn with_state(mut self, state: &'static str) -> SqlError {
        self.0.state = state;
        self
    }

    /// The connection ends with this error.
    pub fn fatal(mut self) -> SqlError {
        self.0.fatal = true;
        self
    }

    /// Five characters: what clients decide by.
    pub fn state(&self) -> &'static str {
        self.0.state
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

    /// Where it happened, outside of the statement's text.
    pub fn context(&self) -> Option<&str> {
        self.0.context.as_deref()
    }

    /// The table and the constraint of it that a row violates.
    pub fn constraint(&self) -> Option<(&str, &str)> {
        self.0.constraint.as_ref().map(|(table, name)| (table.as_str(), name.as_str()))
    }

    /// Where in the text of the statement, in characters from 1.
    pub fn position(&self) -> Option<usize> {
        self.0.position
    }

    /// The connection ends with it.
    pub fn is_fatal(&self) -> bool {
        self.0.fatal
    }
}

/// A message with the names of tables of other schemas than `public` as PostgreSQL says them: with the schema where it
/// is not known what is meant, or what depends on what.
fn shown(state: &str, message: String) -> String {
    let with_schema = [
        state::UNDEFINED_TABLE,
        state::UNDEFINED_OBJECT,
        state::DEPENDENT_OBJECTS,
        state::FEATURE_NOT_SUPPORTED,
        // Of which type something is no value.
        state::INVALID_TEXT,
    ];
    match with_schema.contains(&state) {
        true => dotted(message),
        false => full_name::stripped(&message).into_owned(),
    }
}

fn dotted(text: String) -> String {
    full_name::dotted(&text).into_owned()
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

impl From<tarn_types::Error> for SqlError {
    fn from(error: tarn_types::Error) -> SqlError {
        let told = SqlError::new(types_state(&error), error.to_string());
        match error {
            tarn_types::Error::Array { why, .. } => no_array(told, why),
            tarn_types::Error::Parse { value, data_type } if data_type == "INET" => {
                SqlError::new(told.state(), format!("invalid input syntax for type inet: \"{value}\""))
            }
            _ => told,
        }
    }
}

/// Why a text is no array, behind the text.
pub(crate) fn no_array(told: SqlError, why: NoArray) -> SqlError {
    match why {
        NoArray::Malformed(what) => told.with_detail(what),
        NoArray::Dimensions => SqlError::unsupported(
            "an array of several dimensions in a column",
            "its arrays have one dimension: give the items alone, or keep it as jsonb",
        ),
        NoArray::Bounds => SqlError::unsupported("an array whose bounds are said", "leave them out: it begins at 1"),
    }
}

pub(crate) fn types_state(error: &tarn_types::Error) -> &'static str {
    use tarn_types::Error as Types;
    match error {
        Types::Schema { .. } => state::INVALID_TABLE_DEFINITION,
        Types::Array { why: NoArray::Malformed(_), .. } => state::INVALID_TEXT,
        Types::Array { .. } => state::FEATURE_NOT_SUPPORTED,
        Types::Parse { value, data_type } => text_state(value, data_type),
        Types::Json { fault, .. } => json_state(*fault),
        Types::Time { fault, .. } => time_state(*fault),
        Types::Coerce { .. } => state::NUMERIC_OUT_OF_RANGE,
        Types::TooLong { .. } => state::TEXT_TOO_LONG,
        Types::NoLabel { .. } => state::INVALID_TEXT,
        Types::Null { .. } | Types::MissingColumn { .. } => state::NOT_NULL_VIOLATION,
        Types::Cell { source, .. } => types_state(source),
        Types::UnknownColumn { .. } => state::UNDEFINED_COLUMN,
        Types::Type { .. } => state::DATATYPE_MISMATCH,
        Types::Corrupt { .. } => state::DATA_CORRUPTED,
        _ => state::INVALID_PARAMETER_VALUE,
    }
}

/// As PostgreSQL calls what is wrong with a JSON text.
pub(crate) fn json_state(fault: JsonFault) -> &'static str {
    match fault {
        JsonFault::Syntax | JsonFault::Surrogate => state::INVALID_TEXT,
        JsonFault::TooDeep => state::TOO_COMPLEX,
        JsonFault::Nul => state::UNTRANSLATABLE,
        JsonFault::TooManyDigits => state::NUMERIC_OUT_OF_RANGE,
        JsonFault::Expands => state::PROGRAM_LIMIT,
    }
}

fn time_state(fault: TimeFault) -> &'static str {
    match fault {
        TimeFault::Syntax => state::INVALID_DATETIME,
        TimeFault::Field | TimeFault::Range => state::DATETIME_OVERFLOW,
        TimeFault::Interval => state::INTERVAL_OVERFLOW,
        TimeFault::Displacement => state::INVALID_ZONE_DISPLACEMENT,
        TimeFault::Zone => state::INVALID_PARAMETER_VALUE,
        TimeFault::Clock => state::FEATURE_NOT_SUPPORTED,
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

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> SqlError {
        let state = match &error {
            ArrowError::DivideByZero => return SqlError::new(state::DIVISION_BY_ZERO, "division by zero"),
            ArrowError::ArithmeticOverflow(_) => state::NUMERIC_OUT_OF_RANGE,
            // A kind of its own it has not: `too large to store in a Decimal128 of precision 5`.
            ArrowError::InvalidArgumentError(message) if message.contains("to store in a Decimal128") => {
                return SqlError::new(state::NUMERIC_OUT_OF_RANGE, "numeric field overflow").with_detail(message);
            }
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

/// Which character of the text it is, if something is written there.
fn position(place: TextPosition, text: &str) -> Option<usize> {
    let TextPosition::At { line, column } = place else { return Some(text.chars().count() + 1) };
    let (line, column) = (usize::try_from(line).ok()?, usize::try_from(column).ok()?);
    let lines_before: usize = match line.checked_sub(1)? {
        0 => 0,
        n_lines => text.match_indices('\n').nth(n_lines - 1)?.0 + 1,
    };
    let line = text[lines_before..].split('\n').next()?;
    let at = line.chars().nth(column.checked_sub(1)?)?;
    (!at.is_whitespace()).then(|| text[..lines_before].chars().count() + column)
}

/// What clients are told while the data folder is being opened anew.
pub fn being_opened() -> SqlError {
    SqlError::new(state::CANNOT_CONNECT_NOW, "the data folder is being opened").with_hint("try again in a few seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_characters_of_the_whole_text() {
        let at = |line, column, text: &str| {
            let error = SqlError::new(state::SYNTAX_ERROR, "x").with_place(Some(TextPosition::At { line, column }));
            error.in_text(text).position()
        };
        assert_eq!(SqlError::canceled().with_place(Some(TextPosition::End)).in_text("é ").position(), Some(3));
        assert_eq!(at(1, 1, "selec 1"), Some(1));
        assert_eq!(at(1, 12, "select 'é', x"), None, "a blank");
        assert_eq!(at(1, 13, "select 'é', x"), Some(13));
        assert_eq!(at(3, 2, "select\n\n x"), Some(10));
        assert_eq!(at(2, 1, "é\r\nx"), Some(4));
        for (line, column) in [(0, 0), (1, 0), (1, 3), (2, 1), (u64::MAX, u64::MAX)] {
            assert_eq!(at(line, column, "ab"), None);
        }
    }
}
