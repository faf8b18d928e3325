//! How are types and constants written? `int8`, `timestamp with time zone`, `'a'::text`, `-5`.

use datafusion::sql::sqlparser::ast::{self, ArrayElemTypeDef, ExactNumberInfo, Expr, TimezoneInfo, UnaryOperator};
use tarn_types::{BARE_NUMERIC, DataType};

use crate::error::{Result, SqlError, state};
use crate::names::fold;

/// The text of a literal; `Some(None)` is NULL.
pub fn literal(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Value(value) => match &value.value {
            ast::Value::Null => Some(None),
            ast::Value::Number(text, _) => Some(Some(text.clone())),
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => Some(Some(text.clone())),
            ast::Value::Boolean(flag) => Some(Some(flag.to_string())),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => literal(expr)?.map(|text| Some(format!("-{text}"))),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } | Expr::Nested(expr) => literal(expr),
        Expr::Cast { expr, .. } => literal(expr),
        Expr::TypedString(typed) => match &typed.value.value {
            ast::Value::SingleQuotedString(text) => Some(Some(text.clone())),
            _ => None,
        },
        _ => None,
    }
}

/// A SQL type in any of its usual spellings.
pub fn data_type(sql: &ast::DataType) -> Result<DataType> {
    use ast::DataType as Sql;
    Ok(match sql {
        Sql::Bool | Sql::Boolean => DataType::Bool,
        Sql::SmallInt(_) | Sql::Int2(_) | Sql::Int16 | Sql::TinyInt(_) => DataType::Int16,
        Sql::Int(_) | Sql::Integer(_) | Sql::Int4(_) | Sql::Int32 | Sql::MediumInt(_) => DataType::Int32,
        Sql::BigInt(_) | Sql::Int8(_) | Sql::Int64 => DataType::Int64,
        Sql::Real | Sql::Float4 | Sql::Float32 => DataType::Float32,
        Sql::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => DataType::Float32,
        Sql::Float(_) | Sql::Double(_) | Sql::DoublePrecision | Sql::Float8 | Sql::Float64 => DataType::Float64,
        Sql::Numeric(info) | Sql::Decimal(info) | Sql::Dec(info) => decimal(info)?,
        Sql::Text
        | Sql::String(_)
        | Sql::Varchar(_)
        | Sql::Char(_)
        | Sql::Character(_)
        | Sql::CharacterVarying(_)
        | Sql::CharVarying(_) => DataType::Text,
        Sql::Bytea | Sql::Blob(_) | Sql::Binary(_) | Sql::Varbinary(_) | Sql::Bytes(_) => DataType::Bytes,
        Sql::Date | Sql::Date32 => DataType::Date,
        Sql::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => DataType::Time,
        Sql::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
        | Sql::Datetime(_)
        | Sql::TimestampNtz(_) => DataType::Timestamp,
        Sql::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => DataType::TimestampTz,
        Sql::Interval { fields: None, precision: None } => DataType::Interval,
        Sql::Uuid => DataType::Uuid,
        Sql::JSON => DataType::Json,
        Sql::JSONB => DataType::Jsonb,
        Sql::Array(ArrayElemTypeDef::SquareBracket(item, _)) => array(item)?,
        Sql::Custom(name, _) => {
            match name.0.last().and_then(|part| part.as_ident()).map(fold).unwrap_or_default().as_str() {
                // As `pg_type` calls them, with its schema or in quotes: programs write them so.
                "bool" => DataType::Bool,
                "int2" => DataType::Int16,
                "int4" => DataType::Int32,
                "int8" => DataType::Int64,
                "float4" => DataType::Float32,
                "float8" => DataType::Float64,
                "numeric" => decimal(&ExactNumberInfo::None)?,
                "text" | "varchar" | "bpchar" => DataType::Text,
                "bytea" => DataType::Bytes,
                "date" => DataType::Date,
                "time" => DataType::Time,
                "timestamp" => DataType::Timestamp,
                "timestamptz" => DataType::TimestampTz,
                "interval" => DataType::Interval,
                "inet" => DataType::Inet,
                "uuid" => DataType::Uuid,
                "json" => DataType::Json,
                "jsonb" => DataType::Jsonb,
                // `_int4` is `int4[]` there.
                name => match name.strip_prefix('_') {
                    Some(item) => array(&Sql::Custom(ast::ObjectName::from(vec![ast::Ident::new(item)]), vec![]))?,
                    None => return Err(unknown_type(sql)),
                },
            }
        }
        _ => return Err(unknown_type(sql)),
    })
}

/// The type of an array of such items. As in PostgreSQL, what is said of its length is not held.
///
/// Errors: `0A000` for items that no column has.
fn array(item: &ast::DataType) -> Result<DataType> {
    data_type(item)?.array().ok_or_else(|| {
        SqlError::unsupported(
            format!("type {item}[], an array of several dimensions, in a column"),
            "arrays of one dimension are columns, such as int[]; keep others as jsonb",
        )
    })
}

fn unknown_type(sql: &ast::DataType) -> SqlError {
    if sql.to_string().eq_ignore_ascii_case("cidr") {
        return SqlError::unsupported("type cidr", "inet, which keeps the mask, and the bits of a host too");
    }
    SqlError::unsupported(
        format!("type {sql}"),
        "types: boolean, smallint, integer, bigint, real, double precision, numeric(p, s), text, varchar, bytea, date, time, \
         timestamp, timestamptz, interval, inet, uuid, json, jsonb, and arrays of these",
    )
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(BARE_NUMERIC),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=38), Ok(scale)) if scale >= 0 && scale as u8 <= precision => {
            Ok(DataType::Decimal { precision, scale })
        }
        _ => Err(SqlError::new(
            state::INVALID_PARAMETER_VALUE,
            format!("numeric({precision}, {scale}): precision must be 1 to 38 and scale 0 to precision"),
        )),
    }
}
