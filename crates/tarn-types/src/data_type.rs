//! Which types has a column, and which Arrow type keeps each of them?
//!
//! | SQL | Arrow (storage) | remark |
//! |---|---|---|
//! | `BOOLEAN` `SMALLINT` `INTEGER` `BIGINT` `REAL` `DOUBLE PRECISION` | Boolean, Int16–64, Float32–64 | |
//! | `NUMERIC(p, s)` | Decimal128(p, s) | p ≤ 38; [`BARE_NUMERIC`] with field metadata `tarn.digits` |
//! | `TEXT` `BYTEA` | Utf8, Binary | |
//! | `DATE` `TIME` | Date32, Time64(µs) | |
//! | `TIMESTAMP` `TIMESTAMPTZ` | Timestamp(µs), Timestamp(µs, UTC) | |
//! | `INTERVAL` | Interval(MonthDayNano) | whole microseconds; in Parquet a text with `tarn.type` ([`file_field`]) |
//! | `INET` | LargeBinary | the bytes of [`crate::inet`], in their order; no other type is of LargeBinary; in Parquet a text with `tarn.type` |
//! | `UUID` `JSON` `JSONB` | Utf8 with field metadata `tarn.type` | UUID in canonical lower case, JSONB in its normal form |
//! | `type[]` of each of these | List of it, the metadata at the field `item` | one dimension, which begins at 1; items may be NULL |

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, IntervalUnit, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The key of the field metadata that tells UUID, JSON and JSONB from text.
pub const TYPE_METADATA: &str = "tarn.type";

/// The time zone of stored `TIMESTAMPTZ` columns.
pub const UTC: &str = "UTC";

/// The most digits of a `NUMERIC`.
pub const MAX_PRECISION: u8 = 38;

/// `NUMERIC` without a precision: room for every 64-bit integer with twelve decimals. Its values are shown without
/// zeros at their ends, which is what [`DIGITS_METADATA`] tells.
pub const BARE_NUMERIC: DataType = DataType::Decimal { precision: MAX_PRECISION, scale: 12 };

/// What [`DIGITS_METADATA`] is of a [`BARE_NUMERIC`].
const NATURAL_DIGITS: &str = "natural 0 12";

/// The key of the field metadata that tells how many of a numeric's digits behind the point are shown: by which rule,
/// at least how many, and how many the column has. `natural 0 12` shows no zeros at the end.
pub const DIGITS_METADATA: &str = "tarn.digits";

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataType {
    /// `BOOLEAN`
    Bool,
    /// `SMALLINT`
    Int16,
    /// `INTEGER`
    Int32,
    /// `BIGINT`
    Int64,
    /// `REAL`
    Float32,
    /// `DOUBLE PRECISION`
    Float64,
    /// `NUMERIC(precision, scale)`: `precision` digits, `scale` of them behind the point.
    Decimal {
        /// 1 to 38.
        precision: u8,
        /// 0 to `precision`.
        scale: i8,
    },
    /// `TEXT`
    Text,
    /// `BYTEA`
    Bytes,
    /// `DATE`: days since 1970-01-01.
    Date,
    /// `TIME`: microseconds since midnight.
    Time,
    /// `TIMESTAMP`: microseconds since 1970-01-01, no zone.
    Timestamp,
    /// `TIMESTAMP WITH TIME ZONE`: microseconds since 1970-01-01 UTC.
    TimestampTz,
    /// `INTERVAL`: months, days and microseconds, each with a sign of its own.
    Interval,
    /// `INET`: the address of a host, and how many of its bits are its network's.
    Inet,
    /// `UUID`
    Uuid,
    /// `JSON`: a text that parses, kept as it came.
    Json,
    /// `JSONB`: a JSON text in its normal form ([`crate::json::normal_form`]).
    Jsonb,
    /// `type[]`: an array of one dimension, which begins at 1.
    Array(ItemType),
}

/// The type of an array's items: every [`DataType`] but an array. In an enum of its own, so that a type stays small and
/// is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "they are the types of those names")]
pub enum ItemType {
    Bool,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Decimal { precision: u8, scale: i8 },
    Text,
    Bytes,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    Inet,
    Uuid,
    Json,
    Jsonb,
}

impl ItemType {
    /// The type of one item.
    #[must_use]
    pub fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Bool,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Decimal { precision, scale } => DataType::Decimal { precision, scale },
            Self::Text => DataType::Text,
            Self::Bytes => DataType::Bytes,
            Self::Date => DataType::Date,
            Self::Time => DataType::Time,
            Self::Timestamp => DataType::Timestamp,
            Self::TimestampTz => DataType::TimestampTz,
            Self::Interval => DataType::Interval,
            Self::Inet => DataType::Inet,
            Self::Uuid => DataType::Uuid,
            Self::Json => DataType::Json,
            Self::Jsonb => DataType::Jsonb,
        }
    }
}

/// The SQL name.
impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "BOOLEAN",
            Self::Int16 => "SMALLINT",
            Self::Int32 => "INTEGER",
            Self::Int64 => "BIGINT",
            Self::Float32 => "REAL",
            Self::Float64 => "DOUBLE PRECISION",
            Self::Decimal { .. } if *self == BARE_NUMERIC => "NUMERIC",
            Self::Decimal { precision, scale } => return write!(f, "NUMERIC({precision}, {scale})"),
            Self::Text => "TEXT",
            Self::Bytes => "BYTEA",
            Self::Date => "DATE",
            Self::Time => "TIME",
            Self::Timestamp => "TIMESTAMP",
            Self::TimestampTz => "TIMESTAMP WITH TIME ZONE",
            Self::Interval => "INTERVAL",
            Self::Inet => "INET",
            Self::Uuid => "UUID",
            Self::Json => "JSON",
            Self::Jsonb => "JSONB",
            Self::Array(item) => return write!(f, "{}[]", item.data_type()),
        })
    }
}

impl DataType {
    /// The type of an array of such items; `None` of an array: those of several dimensions are in no column.
    #[must_use]
    pub fn array(self) -> Option<Self> {
        Some(Self::Array(match self {
            Self::Bool => ItemType::Bool,
            Self::Int16 => ItemType::Int16,
            Self::Int32 => ItemType::Int32,
            Self::Int64 => ItemType::Int64,
            Self::Float32 => ItemType::Float32,
            Self::Float64 => ItemType::Float64,
            Self::Decimal { precision, scale } => ItemType::Decimal { precision, scale },
            Self::Text => ItemType::Text,
            Self::Bytes => ItemType::Bytes,
            Self::Date => ItemType::Date,
            Self::Time => ItemType::Time,
            Self::Timestamp => ItemType::Timestamp,
            Self::TimestampTz => ItemType::TimestampTz,
            Self::Interval => ItemType::Interval,
            Self::Inet => ItemType::Inet,
            Self::Uuid => ItemType::Uuid,
            Self::Json => ItemType::Json,
            Self::Jsonb => ItemType::Jsonb,
            Self::Array(_) => return None,
        }))
    }

    /// The type of the items of an array.
    #[must_use]
    pub fn item(self) -> Option<Self> {
        match self {
            Self::Array(item) => Some(item.data_type()),
            _ => None,
        }
    }

    /// Are there keys and bounds of its values? Of intervals, JSON and arrays, bytes have no order; addresses are texts
    /// in files, which have another.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        !matches!(self, Self::Interval | Self::Inet | Self::Json | Self::Jsonb | Self::Array(_))
    }

    /// Can a column of this type become one of `other` without a value changing? Of equal types, yes. Decimals keep
    /// their scale: values and bounds that were kept unscaled would mean something else at another.
    #[must_use]
    pub fn widens_to(&self, other: &Self) -> bool {
        let digits = match self {
            Self::Int16 => 5,
            Self::Int32 => 10,
            Self::Int64 => 19,
            _ => 0,
        };
        match (self, other) {
            (Self::Int16, Self::Int32 | Self::Int64 | Self::Float32 | Self::Float64)
            | (Self::Int32, Self::Int64 | Self::Float64)
            | (Self::Float32, Self::Float64)
            | (Self::Uuid | Self::Json | Self::Jsonb, Self::Text)
            | (Self::Jsonb, Self::Json) => true,
            (Self::Int16 | Self::Int32 | Self::Int64, Self::Decimal { precision, scale }) => {
                i16::from(*precision) - i16::from(*scale) >= digits
            }
            (Self::Decimal { precision, scale }, Self::Decimal { precision: wider, scale: same }) => {
                scale == same && precision <= wider
            }
            (same, other) => same == other,
        }
    }
}

/// The Arrow type a column is stored in.
#[must_use]
pub fn arrow_type(data_type: &DataType) -> ArrowType {
    match *data_type {
        DataType::Bool => ArrowType::Boolean,
        DataType::Int16 => ArrowType::Int16,
        DataType::Int32 => ArrowType::Int32,
        DataType::Int64 => ArrowType::Int64,
        DataType::Float32 => ArrowType::Float32,
        DataType::Float64 => ArrowType::Float64,
        DataType::Decimal { precision, scale } => ArrowType::Decimal128(precision, scale),
        DataType::Text | DataType::Uuid | DataType::Json | DataType::Jsonb => ArrowType::Utf8,
        DataType::Bytes => ArrowType::Binary,
        DataType::Date => ArrowType::Date32,
        DataType::Time => ArrowType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, None),
        DataType::TimestampTz => ArrowType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        DataType::Interval => ArrowType::Interval(IntervalUnit::MonthDayNano),
        DataType::Inet => ArrowType::LargeBinary,
        DataType::Array(item) => ArrowType::List(item_field(item)),
    }
}

/// The field of the items of an array in its storage type: each may be NULL.
#[must_use]
pub fn item_field(item: ItemType) -> Arc<Field> {
    let field = arrow_field(Field::LIST_FIELD_DEFAULT_NAME, &item.data_type(), true);
    // How they are shown is said of the array.
    Arc::new(if item.data_type() == BARE_NUMERIC { field.with_metadata(HashMap::new()) } else { field })
}

/// The Arrow field a column is stored in: storage type, nullability, `tarn.type` for UUID, JSON and JSONB, and
/// `tarn.digits` for [`BARE_NUMERIC`] and arrays of such.
#[must_use]
pub fn arrow_field(name: &str, data_type: &DataType, nullable: bool) -> Field {
    let field = Field::new(name, arrow_type(data_type), nullable);
    let (key, tag) = match data_type {
        DataType::Uuid => (TYPE_METADATA, "uuid"),
        DataType::Json => (TYPE_METADATA, "json"),
        DataType::Jsonb => (TYPE_METADATA, "jsonb"),
        of if of.item().unwrap_or(*of) == BARE_NUMERIC => (DIGITS_METADATA, NATURAL_DIGITS),
        _ => return field,
    };
    field.with_metadata([(key.to_owned(), tag.to_owned())].into())
}

/// A column's field as lake files have it. Parquet's own intervals have milliseconds at most, so there they are texts,
/// as Arrow casts them (`1 mons 2 days 3.5 secs`): what else is read in them says what it means. So are addresses, as
/// PostgreSQL shows them ([`crate::file_column`] turns the values).
#[must_use]
pub fn file_field(field: Field) -> Field {
    let mut metadata = field.metadata().clone();
    // The number is the same.
    let field = if metadata.remove(DIGITS_METADATA).is_some() { field.with_metadata(metadata) } else { field };
    let tag = |of: &ArrowType| match of {
        ArrowType::Interval(_) => Some("interval"),
        ArrowType::LargeBinary => Some("inet"),
        _ => None,
    };
    let tagged = |field: Field, tag: &str| {
        let mut metadata = field.metadata().clone();
        metadata.insert(TYPE_METADATA.to_owned(), tag.to_owned());
        field.with_data_type(ArrowType::Utf8).with_metadata(metadata)
    };
    if let Some(tag) = tag(field.data_type()) {
        return tagged(field, tag);
    }
    match field.data_type() {
        ArrowType::List(item) => match tag(item.data_type()) {
            Some(tag) => {
                let item = tagged(item.as_ref().clone(), tag);
                field.with_data_type(ArrowType::List(Arc::new(item)))
            }
            None => field,
        },
        _ => field,
    }
}

/// The column type that keeps every value of an Arrow field; dictionaries count as their values.
///
/// Nanoseconds become microseconds. `UInt64` becomes `NUMERIC(20, 0)`, an all-null column `TEXT`. `LargeBinary` is
/// `INET`; of files that others wrote it is looked at before this is asked.
///
/// # Errors
/// [`Error::Type`] for lists of lists, structs, maps, intervals without months or days and decimals above 38 digits.
pub fn data_type_of(field: &Field) -> Result<DataType> {
    let text = || match field.metadata().get(TYPE_METADATA).map(String::as_str) {
        Some("uuid") => DataType::Uuid,
        Some("json") => DataType::Json,
        Some("jsonb") => DataType::Jsonb,
        Some("interval") => DataType::Interval,
        Some("inet") => DataType::Inet,
        _ => DataType::Text,
    };
    let mut arrow_type = field.data_type();
    if let ArrowType::Dictionary(_, values) = arrow_type {
        arrow_type = values;
    }
    Ok(match arrow_type {
        ArrowType::Boolean => DataType::Bool,
        ArrowType::Int8 | ArrowType::UInt8 | ArrowType::Int16 => DataType::Int16,
        ArrowType::UInt16 | ArrowType::Int32 => DataType::Int32,
        ArrowType::UInt32 | ArrowType::Int64 => DataType::Int64,
        ArrowType::UInt64 => DataType::Decimal { precision: 20, scale: 0 },
        ArrowType::Float16 | ArrowType::Float32 => DataType::Float32,
        ArrowType::Float64 => DataType::Float64,
        ArrowType::Decimal32(precision, scale)
        | ArrowType::Decimal64(precision, scale)
        | ArrowType::Decimal128(precision, scale)
        | ArrowType::Decimal256(precision, scale)
            if *precision <= MAX_PRECISION && (0..=*precision as i8).contains(scale) =>
        {
            DataType::Decimal { precision: *precision, scale: *scale }
        }
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => text(),
        ArrowType::Null => DataType::Text,
        ArrowType::FixedSizeBinary(16) if field.metadata().get(TYPE_METADATA).is_some_and(|tag| tag == "uuid") => {
            DataType::Uuid
        }
        ArrowType::LargeBinary => DataType::Inet,
        ArrowType::Binary | ArrowType::BinaryView | ArrowType::FixedSizeBinary(_) => DataType::Bytes,
        ArrowType::Date32 | ArrowType::Date64 => DataType::Date,
        ArrowType::Time32(_) | ArrowType::Time64(_) => DataType::Time,
        ArrowType::Timestamp(_, None) => DataType::Timestamp,
        ArrowType::Timestamp(_, Some(_)) => DataType::TimestampTz,
        ArrowType::Interval(IntervalUnit::MonthDayNano) => DataType::Interval,
        ArrowType::List(item) | ArrowType::LargeList(item) => {
            data_type_of(item).ok().and_then(DataType::array).ok_or_else(|| not_kept(field))?
        }
        _ => return Err(not_kept(field)),
    })
}

fn not_kept(field: &Field) -> Error {
    Error::Type {
        column: field.name().clone(),
        found: field.data_type().to_string(),
        want: "a type a table can keep".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::ArrayRef;
    use proptest::prelude::*;

    use super::*;
    use crate::file_column::file_column;
    use crate::test_data::value_of;
    use crate::value::Value;

    proptest! {
        #[test]
        fn what_is_a_text_in_files_is_the_same_value_behind_them(
            spans in (value_of(DataType::Interval), value_of(DataType::Array(ItemType::Interval))),
            addresses in (value_of(DataType::Inet), value_of(DataType::Array(ItemType::Inet))),
        ) {
            for (data_type, value) in [
                (DataType::Interval, spans.0),
                (DataType::Array(ItemType::Interval), spans.1),
                (DataType::Inet, addresses.0),
                (DataType::Array(ItemType::Inet), addresses.1),
            ] {
                let stored = value.to_array(&data_type, 1).unwrap();
                let in_file = file_field(arrow_field("c", &data_type, true));
                prop_assert_eq!(data_type_of(&in_file).unwrap(), data_type);
                let written = file_column(&stored, in_file.data_type()).unwrap();
                let read: ArrayRef = file_column(&written, &arrow_type(&data_type)).unwrap();
                prop_assert_eq!(Value::from_arrow(&read, 0, &data_type).unwrap(), value.clone(), "{:?}", written);
                prop_assert_eq!(Value::from_arrow(&written, 0, &data_type).unwrap(), value);
            }
        }
    }

    #[test]
    fn storage_fields_tell_their_type() {
        let all = [
            DataType::Bool,
            DataType::Int16,
            DataType::Int32,
            DataType::Int64,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal { precision: 15, scale: 2 },
            DataType::Text,
            DataType::Bytes,
            DataType::Date,
            DataType::Time,
            DataType::Timestamp,
            DataType::TimestampTz,
            DataType::Interval,
            DataType::Inet,
            DataType::Uuid,
            DataType::Json,
            DataType::Jsonb,
        ];
        let arrays = all.into_iter().map(|item| item.array().unwrap());
        assert!(arrays.clone().zip(all).all(|(array, item)| array.item() == Some(item) && array.array().is_none()));
        for data_type in arrays.chain(all) {
            assert_eq!(data_type_of(&arrow_field("c", &data_type, true)).unwrap(), data_type);
            let json = serde_json::to_string(&data_type).unwrap();
            assert_eq!(serde_json::from_str::<DataType>(&json).unwrap(), data_type);
        }
    }

    #[test]
    fn widening_loses_nothing() {
        let decimal = |precision, scale| DataType::Decimal { precision, scale };
        for (from, to) in [
            (DataType::Int16, DataType::Int64),
            (DataType::Int32, DataType::Float64),
            (DataType::Int64, decimal(20, 1)),
            (DataType::Float32, DataType::Float64),
            (decimal(10, 2), decimal(12, 2)),
            (DataType::Uuid, DataType::Text),
            (DataType::Jsonb, DataType::Json),
            (DataType::Date, DataType::Date),
        ] {
            assert!(from.widens_to(&to), "{from} to {to}");
            assert!(from == to || !to.widens_to(&from), "{to} to {from}");
        }
        for (from, to) in [
            (DataType::Int64, DataType::Float64),
            (DataType::Int64, decimal(20, 2)),
            (decimal(10, 2), decimal(12, 3)),
            (DataType::Bool, DataType::Int16),
            (DataType::Timestamp, DataType::TimestampTz),
            (DataType::Text, DataType::Json),
            (DataType::Json, DataType::Jsonb),
        ] {
            assert!(!from.widens_to(&to), "{from} to {to}");
        }
    }

    #[test]
    fn a_numeric_without_a_precision_tells_how_it_is_shown() {
        let field = arrow_field("n", &BARE_NUMERIC, true);
        assert_eq!(field.metadata().get(DIGITS_METADATA).map(String::as_str), Some("natural 0 12"));
        assert_eq!(BARE_NUMERIC.to_string(), "NUMERIC");
        // Of an array its own field tells it: the type of an array is the same whoever made it.
        let array = arrow_field("a", &BARE_NUMERIC.array().unwrap(), true);
        assert!(array.metadata().contains_key(DIGITS_METADATA));
        let ArrowType::List(item) = array.data_type() else { panic!("{array}") };
        assert!(item.metadata().is_empty());
        assert!(file_field(field).metadata().is_empty());
        let other = DataType::Decimal { precision: 10, scale: 2 };
        assert!(arrow_field("m", &other, true).metadata().is_empty());
    }

    #[test]
    fn nested_types_are_refused_by_name() {
        let texts = ArrowType::new_list(ArrowType::Utf8, true);
        assert_eq!(data_type_of(&Field::new("tags", texts.clone(), true)).unwrap(), DataType::Array(ItemType::Text));
        let field = Field::new("tags", ArrowType::new_list(texts, true), true);
        assert!(data_type_of(&field).unwrap_err().to_string().starts_with("column tags is List"));
    }
}
