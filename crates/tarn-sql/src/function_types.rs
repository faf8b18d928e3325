//! Of which types are the parameters of functions, and which value may stand for a parameter? Types are called as
//! `format_type` writes them, without what is said of lengths, which parameters do not have.

use datafusion::sql::sqlparser::ast::{self, ArrayElemTypeDef, ExactNumberInfo, TimezoneInfo};
use tarn_node::types::{TypeKind, Types};

use crate::catalog_types::type_oid;
use crate::error::{Result, SqlError, state};
use crate::names::{fold, quote, table_name};
use crate::rows::LONG_NAMES;

/// Types that stand for any other.
const POLYMORPHIC: [&str; 3] = ["anyelement", "anyarray", "anynonarray"];

/// Those that are none of a value.
const PSEUDO: [&str; 16] = [
    "any",
    "anycompatible",
    "anycompatiblearray",
    "anycompatiblemultirange",
    "anycompatiblenonarray",
    "anycompatiblerange",
    "anyenum",
    "anymultirange",
    "anyrange",
    "cstring",
    "event_trigger",
    "internal",
    "language_handler",
    "record",
    "trigger",
    "void",
];

/// The name of a type.
///
/// Errors: `42704` for what is none.
pub fn named(data_type: &ast::DataType, types: &Types) -> Result<String> {
    use ast::DataType as Sql;
    let name = match data_type {
        Sql::Bool | Sql::Boolean => "boolean",
        Sql::SmallInt(_) | Sql::Int2(_) | Sql::Int16 => "smallint",
        Sql::Int(_) | Sql::Integer(_) | Sql::Int4(_) | Sql::Int32 => "integer",
        Sql::BigInt(_) | Sql::Int8(_) | Sql::Int64 => "bigint",
        Sql::Real | Sql::Float4 | Sql::Float32 => "real",
        Sql::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => "real",
        Sql::Float(_) | Sql::Double(_) | Sql::DoublePrecision | Sql::Float8 | Sql::Float64 => "double precision",
        Sql::Numeric(_) | Sql::Decimal(_) | Sql::Dec(_) => "numeric",
        Sql::Text | Sql::String(_) => "text",
        Sql::Varchar(_) | Sql::CharacterVarying(_) | Sql::CharVarying(_) => "character varying",
        Sql::Char(_) | Sql::Character(_) => "character",
        Sql::Bytea => "bytea",
        Sql::Date | Sql::Date32 => "date",
        Sql::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => "time without time zone",
        Sql::Time(..) => "time with time zone",
        Sql::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => "timestamp without time zone",
        Sql::Timestamp(..) => "timestamp with time zone",
        Sql::Interval { .. } => "interval",
        Sql::Uuid => "uuid",
        Sql::JSON => "json",
        Sql::JSONB => "jsonb",
        Sql::Array(ArrayElemTypeDef::SquareBracket(item, _)) => {
            let item = named(item, types)?;
            return Ok(if item.ends_with("[]") { item } else { format!("{item}[]") });
        }
        Sql::Custom(name, _) => return custom(name, types),
        other => {
            let name = other.to_string().to_lowercase();
            return Ok(long(&name).unwrap_or(name));
        }
    };
    Ok(name.to_owned())
}

fn custom(name: &ast::ObjectName, types: &Types) -> Result<String> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    if let Ok(own) = table_name(name)
        && let Some(found) = types.get(&own)
    {
        return Ok(quote(&found.name));
    }
    let called = match &parts[..] {
        [called] => called,
        [schema, called] if schema == "pg_catalog" => called,
        _ => return table_name(name).map(|name| quote(&name)),
    };
    if let Some(known) = long(called) {
        return Ok(known);
    }
    if let Some(item) = called.strip_prefix('_').and_then(long) {
        return Ok(format!("{item}[]"));
    }
    Ok(if is_pseudo(called) || is_polymorphic(called) { called.clone() } else { quote(called) })
}

/// One of PostgreSQL's own, as it is written.
fn long(name: &str) -> Option<String> {
    type_oid(name)?;
    let found = LONG_NAMES.iter().find(|(long, short)| *short == name || *long == name);
    Some(found.map_or(name, |(long, _)| long).to_owned())
}

/// Whether it stands for the type of an argument: `anyelement`, `anyarray` and their kin.
pub fn is_polymorphic(name: &str) -> bool {
    POLYMORPHIC.contains(&name)
}

/// Whether no column can be of it: `void`, `trigger`, `record` and their kin.
pub fn is_pseudo(name: &str) -> bool {
    PSEUDO.contains(&name)
}

/// The type of items of an array.
pub fn item_of(name: &str) -> Option<&str> {
    name.strip_suffix("[]")
}

/// `42704`
pub fn undefined(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("type {name} does not exist"))
}

/// The columns of a row type that somebody made.
pub fn row_type(name: &str, types: &Types) -> Option<Vec<(String, String)>> {
    let found = types.all().into_iter().find(|of| quote(&of.name) == name)?;
    match found.kind {
        TypeKind::Row { columns } => Some(columns.into_iter().map(|of| (of.name, of.data_type)).collect()),
        TypeKind::Enum { .. } => None,
    }
}

/// Numbers, each of which becomes those behind it by itself.
const NUMBERS: [&str; 6] = ["smallint", "integer", "bigint", "numeric", "real", "double precision"];

/// What becomes what by itself, beside numbers.
const IMPLICIT: [(&str, &str); 15] = [
    ("character varying", "text"),
    ("text", "character varying"),
    ("character", "text"),
    ("character", "character varying"),
    ("text", "character"),
    ("character varying", "character"),
    ("name", "text"),
    ("date", "timestamp without time zone"),
    ("date", "timestamp with time zone"),
    ("timestamp without time zone", "timestamp with time zone"),
    ("time without time zone", "interval"),
    ("time without time zone", "time with time zone"),
    ("integer", "oid"),
    ("bigint", "oid"),
    ("smallint", "oid"),
];

/// What becomes what where a value is stored, beside numbers and what becomes so by itself.
const ASSIGNED: [(&str, &str); 8] = [
    ("timestamp without time zone", "date"),
    ("timestamp with time zone", "date"),
    ("timestamp with time zone", "timestamp without time zone"),
    ("timestamp without time zone", "time without time zone"),
    ("timestamp with time zone", "time without time zone"),
    ("interval", "time without time zone"),
    ("json", "jsonb"),
    ("jsonb", "json"),
];

const TEXTS: [&str; 3] = ["text", "character varying", "character"];

/// Whether a value of a type becomes one of another by itself.
pub fn becomes(from: &str, to: &str) -> bool {
    let place = |name: &str| NUMBERS.iter().position(|number| *number == name);
    match (place(from), place(to)) {
        (Some(from), Some(to)) => from <= to,
        _ => from == to || IMPLICIT.contains(&(from, to)),
    }
}

/// Whether a value of a type may be stored as one of another: what a function gives becomes the type that it is said to
/// give.
pub fn is_stored_as(from: &str, to: &str) -> bool {
    let are_numbers = [from, to].iter().all(|name| NUMBERS.contains(name));
    let are_arrays = match (item_of(from), item_of(to)) {
        (Some(from), Some(to)) => is_stored_as(from, to),
        _ => false,
    };
    becomes(from, to) || are_numbers || are_arrays || TEXTS.contains(&to) || ASSIGNED.contains(&(from, to))
}

/// Types of which one that is not known becomes one rather than another.
pub fn is_preferred(name: &str) -> bool {
    ["boolean", "double precision", "interval", "oid", "text", "timestamp with time zone"].contains(&name)
}

/// What a type is of. Types that users made are each of their own.
pub fn category(name: &str) -> &str {
    match name {
        "boolean" => "B",
        "text" | "character varying" | "character" | "name" => "S",
        "date"
        | "time without time zone"
        | "time with time zone"
        | "timestamp without time zone"
        | "timestamp with time zone" => "D",
        "interval" => "T",
        "oid" | "regclass" => "N",
        name if NUMBERS.contains(&name) => "N",
        name if name.ends_with("[]") || name == "anyarray" => "A",
        name if is_polymorphic(name) => "P",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_what_is_as_in_postgres() {
        assert!(
            becomes("smallint", "numeric") && becomes("bigint", "double precision") && !becomes("bigint", "integer")
        );
        assert!(becomes("date", "timestamp with time zone") && !becomes("timestamp with time zone", "date"));
        assert!(!becomes("integer", "text") && is_stored_as("integer", "text") && is_stored_as("numeric", "integer"));
        assert!(!is_stored_as("text", "integer") && is_stored_as("integer[]", "bigint[]"));
    }
}
