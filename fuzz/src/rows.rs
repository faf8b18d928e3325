//! The Postgres type of a column, for what is fuzzed: the server's `rows` tells it of any result, and needs DataFusion
//! for that.

use arrow::datatypes::Field;
use pgwire::api::Type;
use tarn_types::data_type_of;

use crate::error::{Result, SqlError, state};
use crate::params::pg_type_of;

/// As the server's, of what a table keeps.
pub fn pg_type(field: &Field) -> Result<Type> {
    let of = data_type_of(field).map_err(|error| SqlError::new(state::INTERNAL, error.to_string()))?;
    let Some(item) = of.item() else { return Ok(pg_type_of(&of)) };
    Ok(match pg_type_of(&item) {
        Type::BOOL => Type::BOOL_ARRAY,
        Type::INT2 => Type::INT2_ARRAY,
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::FLOAT4 => Type::FLOAT4_ARRAY,
        Type::FLOAT8 => Type::FLOAT8_ARRAY,
        Type::NUMERIC => Type::NUMERIC_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TIME => Type::TIME_ARRAY,
        Type::TIMESTAMP => Type::TIMESTAMP_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::INTERVAL => Type::INTERVAL_ARRAY,
        Type::INET => Type::INET_ARRAY,
        Type::UUID => Type::UUID_ARRAY,
        Type::JSON => Type::JSON_ARRAY,
        Type::JSONB => Type::JSONB_ARRAY,
        _ => Type::TEXT_ARRAY,
    })
}
