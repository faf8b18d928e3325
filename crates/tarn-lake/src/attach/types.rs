//! Which type holds the values of two, and what becomes of a value on the way there?
//!
//! ```text
//! smallint ─> integer ─> bigint ─> numeric       jsonb ─> json, uuid ─> text
//!     │           └────> double                   boolean, bytea, date, time, timestamp, timestamptz: only themselves
//!     └─> real ───────────┘
//! ```
//!
//! Invariants: a value is the same number, text or instant in the wider type; the order of values stays, so bounds stay
//! bounds. Integers of 64 bits are no floats, numbers are no texts, and a time without a zone is none with one: nothing
//! is guessed.

use tarn_types::{DataType, Value};

/// The most digits of a decimal.
const MAX_DIGITS: i16 = 38;

/// The narrowest type that holds all values of both.
pub(crate) fn common(a: DataType, b: DataType) -> Option<DataType> {
    if a.widens_to(&b) {
        return Some(b);
    } else if b.widens_to(&a) {
        return Some(a);
    }
    match (a, b) {
        (DataType::Int32, DataType::Float32) | (DataType::Float32, DataType::Int32) => Some(DataType::Float64),
        (DataType::Uuid, DataType::Json | DataType::Jsonb) | (DataType::Json | DataType::Jsonb, DataType::Uuid) => {
            Some(DataType::Text)
        }
        _ => {
            let ((whole_a, scale_a), (whole_b, scale_b)) = (digits(a)?, digits(b)?);
            let scale = scale_a.max(scale_b);
            let precision = whole_a.max(whole_b) + scale;
            (precision <= MAX_DIGITS).then_some(DataType::Decimal { precision: precision as u8, scale: scale as i8 })
        }
    }
}

/// Digits in front of the point and behind it.
fn digits(of: DataType) -> Option<(i16, i16)> {
    match of {
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::Decimal { precision, scale } => Some((i16::from(precision) - i16::from(scale), i16::from(scale))),
        _ => None,
    }
}

/// The same value in a wider type.
pub(crate) fn widen(value: Value, from: DataType, to: DataType) -> Option<Value> {
    match from {
        _ if from == to => Some(value),
        DataType::Decimal { scale, .. } => value.rescale(scale, &to).ok(),
        _ => value.coerce(&to).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [DataType; 17] = [
        DataType::Bool,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal { precision: 20, scale: 0 },
        DataType::Decimal { precision: 10, scale: 2 },
        DataType::Decimal { precision: 12, scale: 5 },
        DataType::Text,
        DataType::Bytes,
        DataType::Date,
        DataType::Time,
        DataType::Timestamp,
        DataType::TimestampTz,
        DataType::Json,
        DataType::Jsonb,
    ];

    #[test]
    fn the_order_of_files_does_not_matter_to_two_types() {
        for a in TYPES {
            assert_eq!(common(a, a), Some(a));
            for b in TYPES {
                assert_eq!(common(a, b), common(b, a), "{a} and {b}");
                if let Some(both) = common(a, b) {
                    assert_eq!((common(a, both), common(b, both)), (Some(both), Some(both)), "{a} and {b}");
                }
            }
        }
    }

    #[test]
    fn types_meet_where_nothing_is_lost() {
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        assert_eq!(common(DataType::Int16, DataType::Float32), Some(DataType::Float32));
        assert_eq!(common(DataType::Int32, DataType::Float32), Some(DataType::Float64));
        assert_eq!(common(DataType::Int64, decimal(20, 0)), Some(decimal(20, 0)));
        assert_eq!(common(decimal(10, 2), decimal(12, 5)), Some(decimal(13, 5)));
        assert_eq!(common(DataType::Int64, decimal(10, 2)), Some(decimal(21, 2)));
        assert_eq!(common(decimal(38, 0), decimal(38, 10)), None);
        for (a, b) in [
            (DataType::Int64, DataType::Float64),
            (DataType::Bool, DataType::Int16),
            (DataType::Text, DataType::Bytes),
            (DataType::Text, DataType::Int64),
            (DataType::Timestamp, DataType::TimestampTz),
            (DataType::Date, DataType::Timestamp),
            (decimal(10, 2), DataType::Float64),
        ] {
            assert_eq!(common(a, b), None, "{a} and {b}");
        }
    }

    #[test]
    fn values_stay_what_they_are() {
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        assert_eq!(widen(Value::Int16(-3), DataType::Int16, DataType::Int64), Some(Value::Int64(-3)));
        assert_eq!(widen(Value::Int32(7), DataType::Int32, decimal(12, 2)), Some(Value::Decimal(700)));
        assert_eq!(widen(Value::Decimal(125), decimal(10, 2), decimal(13, 5)), Some(Value::Decimal(125_000)));
        assert_eq!(widen(Value::Int32(7), DataType::Int32, DataType::Float64), Some(Value::Float64(7.0)));
        assert_eq!(widen(Value::Bool(true), DataType::Bool, DataType::Int16), None);
    }
}
