//! What is a type called that is written as `pg_type` has it? `'1'::pg_catalog.int8` and `x::"timestamptz"` are what
//! programs write that read a type's name in the catalog and quote it, asyncpg among them. The parser knows these words
//! only without quotes and schema.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, Expr, TimezoneInfo,
};

use tarn_query::inet;

use crate::names::fold;

/// The type of a cast, as the parser says it otherwise.
pub(super) fn plain(expr: &mut Expr) {
    match expr {
        Expr::Cast { data_type, .. } => plain_type(data_type),
        Expr::TypedString(typed) => plain_type(&mut typed.data_type),
        _ => {}
    }
}

fn plain_type(data_type: &mut DataType) {
    let name = match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => return plain_type(item),
        DataType::Custom(name, modifiers) if modifiers.is_empty() => name,
        // `bpchar(3)` is a `char(3)`; without a length it is no `char` (`blank_padded`).
        DataType::Custom(name, modifiers) if matches!(&name.0[..], [.., last] if last.as_ident().is_some_and(|last| fold(last) == "bpchar")) =>
        {
            if let [Ok(length)] = modifiers.iter().map(|n| n.parse::<u64>()).collect::<Vec<_>>()[..] {
                *data_type = DataType::Char(Some(CharacterLength::IntegerLength { length, unit: None }));
            }
            return;
        }
        _ => return,
    };
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    let name = match parts.as_slice() {
        [name] => name,
        [schema, name] if schema == "pg_catalog" => name,
        _ => return,
    };
    let named = match name.strip_prefix('_') {
        // `_int4` is `int4[]` there.
        Some(item) => called(item).map(|item| DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(item), None))),
        None => called(name),
    };
    if let Some(named) = named {
        *data_type = named;
    }
}

fn called(name: &str) -> Option<DataType> {
    Some(match name {
        "bool" => DataType::Boolean,
        "int2" => DataType::SmallInt(None),
        "int4" => DataType::Integer(None),
        "int8" => DataType::BigInt(None),
        "float4" => DataType::Real,
        "float8" => DataType::DoublePrecision,
        "numeric" => DataType::Numeric(ExactNumberInfo::None),
        "text" | "varchar" => DataType::Text,
        "bytea" => DataType::Bytea,
        "date" => DataType::Date,
        "time" => DataType::Time(None, TimezoneInfo::None),
        "timestamp" => DataType::Timestamp(None, TimezoneInfo::None),
        "timestamptz" => DataType::Timestamp(None, TimezoneInfo::Tz),
        "interval" => DataType::Interval { fields: None, precision: None },
        "inet" => inet(),
        "uuid" => DataType::Uuid,
        "json" => DataType::JSON,
        "jsonb" => DataType::JSONB,
        _ => return None,
    })
}
