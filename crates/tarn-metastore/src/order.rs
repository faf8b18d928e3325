//! Which of two values of one column is greater, in the order that scans filter by?
//!
//! Invariant: this is the order of Arrow's comparison kernels (floats by `totalOrder`, text by bytes), but that
//! -0.0 is 0.0, as in SQL: a bound compared in another order would prune rows that the filter keeps.

use std::cmp::Ordering;

use tarn_types::Value;

/// `None` when the two are not of one kind, or one is NULL: then nothing can be concluded. Integers are of one kind,
/// whatever their width: a column may have been widened since a bound was taken.
pub fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    Some(match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Float32(a), Value::Float32(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
        (Value::Float64(a), Value::Float64(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
        (Value::Decimal(a), Value::Decimal(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Date(a), Value::Date(b)) => a.cmp(b),
        (Value::Time(a), Value::Time(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Uuid(a), Value::Uuid(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Json(a), Value::Json(b)) => a.as_bytes().cmp(b.as_bytes()),
        (a, b) => integer(a)?.cmp(&integer(b)?),
    })
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int16(v) => Some(i64::from(*v)),
        Value::Int32(v) => Some(i64::from(*v)),
        Value::Int64(v) => Some(*v),
        _ => None,
    }
}
