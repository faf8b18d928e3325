//! What can go wrong with a type, a value or its bytes, and what may the caller do about it?
//!
//! [`Kind`] is shared by every crate of the workspace: each `Error` has a `kind()`, and nobody decides on a text.

use std::fmt;

use crate::array_text::NoArray;
use crate::json::JsonFault;
use crate::time_text::TimeFault;

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The call is wrong: fix it, do not repeat it.
    Invalid,
    /// What was named does not exist.
    NotFound,
    /// Somebody else was first: read again, then retry.
    Conflict,
    /// Not now: retry later.
    Unavailable,
    /// It may have happened: look before retrying.
    Indeterminate,
    /// Stored bytes are not what was written: stop.
    Corrupt,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Indeterminate => "indeterminate",
            Self::Corrupt => "corrupt",
        })
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything this crate can refuse.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The definition of a table contradicts itself.
    #[error("table {table}: {reason}")]
    Schema {
        /// The table's name.
        table: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `WITH (name = …)` names no option we have.
    #[error("unknown table option {name}, known are: {known}")]
    UnknownOption {
        /// The name that was given.
        name: String,
        /// All names there are, comma-separated.
        known: String,
    },
    /// `WITH (name = value)` has a value the option cannot take.
    #[error("table option {name} = {value}: want {want}")]
    BadOption {
        /// The option.
        name: String,
        /// What was given.
        value: String,
        /// What it takes.
        want: &'static str,
    },
    /// A text is not a value of the type.
    #[error("{value:?} is not a valid {data_type}")]
    Parse {
        /// The text, shortened to 100 characters.
        value: String,
        /// The SQL name of the type.
        data_type: String,
    },
    /// A JSON text that is more than a value of the type may be.
    #[error("{data_type}: {fault}")]
    Json {
        /// The SQL name of the type.
        data_type: String,
        /// What is too much.
        fault: JsonFault,
    },
    /// A text is no array, or one that no column takes.
    #[error("malformed array literal: \"{value}\"")]
    Array {
        /// The text, shortened to 100 characters.
        value: String,
        /// What is wrong with it.
        #[source]
        why: NoArray,
    },
    /// A text is not a date, a time or an interval; its text says why in PostgreSQL's words.
    #[error("{}", InWords { value, data_type, fault: *fault })]
    Time {
        /// The text, shortened to 100 characters.
        value: String,
        /// What PostgreSQL calls the type.
        data_type: String,
        /// Why.
        fault: TimeFault,
    },
    /// A value cannot become a value of the type without loss.
    #[error("{value} does not fit {data_type}")]
    Coerce {
        /// The value as text, shortened to 100 characters.
        value: String,
        /// The SQL name of the type.
        data_type: String,
    },
    /// A text has more characters than its column takes.
    #[error("value too long for type {data_type}")]
    TooLong {
        /// The SQL name of the type, with its length.
        data_type: String,
    },
    /// A text is none of the labels of an enumerated type.
    #[error("invalid input value for enum {data_type}: \"{value}\"")]
    NoLabel {
        /// What the type is called.
        data_type: String,
        /// The text, shortened to 100 characters.
        value: String,
    },
    /// NULL in a column that has none.
    #[error("column {column} is NOT NULL, row {row} has NULL")]
    Null {
        /// The column's name.
        column: String,
        /// The row of the batch, from 0.
        row: usize,
    },
    /// A cell of a batch cannot become a value of its column.
    #[error("column {column}, row {row}: {source}")]
    Cell {
        /// The column's name.
        column: String,
        /// The row of the batch, from 0.
        row: usize,
        /// What is wrong with the cell.
        source: Box<Error>,
    },
    /// The table has no such column.
    #[error("table {table} has no column {column}")]
    UnknownColumn {
        /// The table's name.
        table: String,
        /// The name that was given.
        column: String,
    },
    /// A column that must be there is not.
    #[error("column {column} of table {table} is missing and has neither NULL nor a default")]
    MissingColumn {
        /// The table's name.
        table: String,
        /// The column's name.
        column: String,
    },
    /// A column has a type that the table's column cannot take.
    #[error("column {column} is {found}, want {want}")]
    Type {
        /// The column's name.
        column: String,
        /// What came.
        found: String,
        /// What the table has.
        want: String,
    },
    /// A call whose arguments do not fit together (a wrong number of key parts, an operation without columns …).
    #[error("{reason}")]
    Usage {
        /// What is wrong.
        reason: String,
    },
    /// Bytes that we did not write, or that changed since.
    #[error("{what} is corrupt: {reason}")]
    Corrupt {
        /// What the bytes should have been: `key`, `row`, `cells`, `mutation batch`, `address`.
        what: &'static str,
        /// What is wrong with them.
        reason: String,
    },
    /// An Arrow kernel refused.
    #[error("{context}: {source}")]
    Arrow {
        /// What we were doing, as a verb phrase.
        context: &'static str,
        /// Arrow's error.
        source: arrow::error::ArrowError,
    },
}

/// What is wrong with the text of a time.
struct InWords<'a> {
    value: &'a str,
    data_type: &'a str,
    fault: TimeFault,
}

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.say(f, self.value, self.data_type)
    }
}

impl Error {
    /// What the caller can do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Corrupt { .. } => Kind::Corrupt,
            Self::Cell { source, .. } => source.kind(),
            _ => Kind::Invalid,
        }
    }

    /// A text that is no `data_type`, which is JSON.
    #[must_use]
    pub fn of_json(fault: JsonFault, text: &str, data_type: &str) -> Self {
        let data_type = data_type.to_owned();
        match fault {
            JsonFault::Syntax | JsonFault::Surrogate => Self::Parse { value: shorten(text), data_type },
            fault => Self::Json { data_type, fault },
        }
    }

    pub(crate) fn corrupt(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Corrupt { what, reason: reason.into() }
    }

    /// A call that makes no sense, in words.
    pub fn usage(reason: impl Into<String>) -> Self {
        Self::Usage { reason: reason.into() }
    }

    pub(crate) fn arrow(context: &'static str) -> impl FnOnce(arrow::error::ArrowError) -> Self {
        move |source| Self::Arrow { context, source }
    }
}

/// At most 100 characters of a text, for messages.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
