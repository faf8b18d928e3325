//! Which classes of operators may an index name for a column? Those of PostgreSQL's btree whose order is that of keys,
//! which is what each type has here: texts are compared byte by byte, as `text_pattern_ops` compares them.

use tarn_types::{DataType, IndexedColumn, Length, TableSchema};

use crate::definition::long_type;
use crate::error::{Result, SqlError, state};

/// Those of PostgreSQL 15 that are of types which columns do not have here, or of json and arrays, of which there are
/// no keys.
const OF_OTHER_TYPES: [&str; 21] = [
    "array_ops",
    "bit_ops",
    "char_ops",
    "cidr_ops",
    "inet_ops",
    "interval_ops",
    "jsonb_ops",
    "macaddr8_ops",
    "macaddr_ops",
    "money_ops",
    "multirange_ops",
    "name_ops",
    "oid_ops",
    "oidvector_ops",
    "pg_lsn_ops",
    "range_ops",
    "record_ops",
    "tid_ops",
    "timetz_ops",
    "varbit_ops",
    "xid8_ops",
];

/// What is kept of a class that is named: nothing of the one that the type has by itself.
///
/// Errors: `42704` for one that PostgreSQL does not have; `42804` for one of another type.
pub fn operators(class: &str, table: &TableSchema, at: usize) -> Result<Option<String>> {
    let (own, others) = of_column(table, at);
    if class == own {
        return Ok(None);
    }
    if others.contains(&class) {
        return Ok(Some(class.to_owned()));
    }
    if !is_known(class) {
        let message = format!("operator class \"{class}\" does not exist for access method \"btree\"");
        return Err(SqlError::new(state::UNDEFINED_OBJECT, message).with_hint("leave it out"));
    }
    let rules = table.rules_of(at);
    let data_type = match (rules.and_then(|rules| rules.length), rules.and_then(|rules| rules.enumerated.as_ref())) {
        (Some(Length::Fixed(_)), _) => "character".to_owned(),
        (_, Some(enumerated)) => enumerated.name.clone(),
        _ => long_type(table, at),
    };
    let message = format!("operator class \"{class}\" does not accept data type {data_type}");
    Err(SqlError::new(state::DATATYPE_MISMATCH, message).with_hint(format!("leave it out: it has {own}")))
}

/// The class by which a column of an index is ordered.
pub fn class_of<'a>(table: &TableSchema, at: usize, order: &'a IndexedColumn) -> &'a str {
    order.operators.as_deref().unwrap_or_else(|| of_column(table, at).0)
}

/// The class that the column's type has by itself, and others of the same order.
fn of_column(table: &TableSchema, at: usize) -> (&'static str, &'static [&'static str]) {
    let rules = table.rules_of(at);
    let is_fixed = matches!(rules.and_then(|rules| rules.length), Some(Length::Fixed(_)));
    let is_enumerated = rules.is_some_and(|rules| rules.enumerated.is_some());
    of_type(table.columns[at].data_type, is_fixed, is_enumerated)
}

fn of_type(data_type: DataType, is_fixed: bool, is_enumerated: bool) -> (&'static str, &'static [&'static str]) {
    match data_type {
        DataType::Bool => ("bool_ops", &[]),
        DataType::Int16 => ("int2_ops", &[]),
        DataType::Int32 => ("int4_ops", &[]),
        DataType::Int64 => ("int8_ops", &[]),
        DataType::Float32 => ("float4_ops", &[]),
        DataType::Float64 => ("float8_ops", &[]),
        DataType::Decimal { .. } => ("numeric_ops", &[]),
        DataType::Text if is_enumerated => ("enum_ops", &[]),
        DataType::Text if is_fixed => ("bpchar_ops", &["bpchar_pattern_ops"]),
        DataType::Text => ("text_ops", &["text_pattern_ops", "varchar_ops", "varchar_pattern_ops"]),
        DataType::Bytes => ("bytea_ops", &[]),
        DataType::Date => ("date_ops", &[]),
        DataType::Time => ("time_ops", &[]),
        DataType::Timestamp => ("timestamp_ops", &[]),
        DataType::TimestampTz => ("timestamptz_ops", &[]),
        DataType::Interval => ("interval_ops", &[]),
        DataType::Inet => ("inet_ops", &[]),
        DataType::Uuid => ("uuid_ops", &[]),
        DataType::Json | DataType::Jsonb => ("jsonb_ops", &[]),
        DataType::Array(_) => ("array_ops", &[]),
    }
}

fn is_known(class: &str) -> bool {
    const TYPES: [DataType; 14] = [
        DataType::Bool,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal { precision: 1, scale: 0 },
        DataType::Text,
        DataType::Bytes,
        DataType::Date,
        DataType::Time,
        DataType::Timestamp,
        DataType::TimestampTz,
        DataType::Uuid,
    ];
    let forms = [(false, false), (true, false), (false, true)];
    let mut classes =
        TYPES.into_iter().flat_map(|of| forms.map(|(is_fixed, is_enumerated)| of_type(of, is_fixed, is_enumerated)));
    OF_OTHER_TYPES.contains(&class) || classes.any(|(own, others)| own == class || others.contains(&class))
}
