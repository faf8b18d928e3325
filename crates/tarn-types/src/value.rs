//! What is in one cell? A [`Value`], as the edges see it: parameters, literals, defaults, statistics, tests.
//!
//! Bulk paths never make values: they go from Arrow columns to bytes and back ([`crate::key`], [`crate::row`]).
//! A value does not know its type: `Timestamp` serves both kinds, `Decimal` is unscaled at its column's scale. The
//! order of values of one type is the order of their keys: floats have −0 = 0 and NaN above infinity, as in Postgres;
//! texts compare by bytes; NULL is last.

use std::borrow::Cow;
use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{
    DataType as ArrowType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use serde::{Deserialize, Serialize};

use crate::array_text::{array_items, array_text};
use crate::data_type::{DataType, arrow_type};
use crate::error::{Error, Result, shorten};
use crate::file_column::file_column;
use crate::inet::Inet;
use crate::infinity::midnight_us;
use crate::style::{DateOrder, Style};
use crate::time_text::{self, ParseContext, Span, TimeFault};
use crate::{json, text};

/// One cell.
///
/// Serialized, floats, decimals and bytes are texts, so that JSON keeps every digit, NaN and infinity.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// No value, of any type.
    Null,
    /// `BOOLEAN`
    Bool(bool),
    /// `SMALLINT`
    Int16(i16),
    /// `INTEGER`
    Int32(i32),
    /// `BIGINT`
    Int64(i64),
    /// `REAL`
    #[serde(with = "as_text")]
    Float32(f32),
    /// `DOUBLE PRECISION`
    #[serde(with = "as_text")]
    Float64(f64),
    /// `NUMERIC`: the value times 10^scale of its column.
    #[serde(with = "as_text")]
    Decimal(i128),
    /// `TEXT`
    Text(String),
    /// `BYTEA`
    #[serde(with = "as_hex")]
    Bytes(Vec<u8>),
    /// `DATE`: days since 1970-01-01.
    Date(i32),
    /// `TIME`: microseconds since midnight.
    Time(i64),
    /// `TIMESTAMP` and `TIMESTAMPTZ`: microseconds since 1970-01-01 (UTC).
    Timestamp(i64),
    /// `INTERVAL`
    Interval(Span),
    /// `INET`
    Inet(Inet),
    /// `UUID` in canonical text: lower case, hyphenated.
    Uuid(String),
    /// `JSON`: a text that parses; `JSONB`: one in its normal form.
    Json(String),
    /// `type[]`: its items, each of the type or NULL.
    Array(Vec<Value>),
}

/// As of one type and kept alike: NaN is itself, as in Postgres, so that a definition that has one is equal to itself.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(two)) => one == two,
            (Self::Int16(one), Self::Int16(two)) => one == two,
            (Self::Int32(one), Self::Int32(two)) | (Self::Date(one), Self::Date(two)) => one == two,
            (Self::Int64(one), Self::Int64(two))
            | (Self::Time(one), Self::Time(two))
            | (Self::Timestamp(one), Self::Timestamp(two)) => one == two,
            (Self::Float32(one), Self::Float32(two)) => one == two || one.is_nan() && two.is_nan(),
            (Self::Float64(one), Self::Float64(two)) => one == two || one.is_nan() && two.is_nan(),
            (Self::Decimal(one), Self::Decimal(two)) => one == two,
            (Self::Text(one), Self::Text(two))
            | (Self::Uuid(one), Self::Uuid(two))
            | (Self::Json(one), Self::Json(two)) => one == two,
            (Self::Bytes(one), Self::Bytes(two)) => one == two,
            (Self::Interval(one), Self::Interval(two)) => one == two,
            (Self::Inet(one), Self::Inet(two)) => one == two,
            (Self::Array(one), Self::Array(two)) => one == two,
            _ => false,
        }
    }
}

impl Value {
    /// Is it NULL?
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Reads Postgres' text format. NULL has none: an empty text is a text.
    ///
    /// Decimals are rounded to the type's scale, half away from zero, as Postgres does. Times without an offset are
    /// UTC.
    ///
    /// # Errors
    /// [`Error::Parse`] names the text and the type, [`Error::Json`] what is too much of a JSON text.
    pub fn parse(data_type: &DataType, text: &str) -> Result<Self> {
        Self::parse_at(data_type, text, ParseContext { zone: None, order: DateOrder::default(), now_us: None })
    }

    /// As [`Value::parse`], but a `TIMESTAMPTZ` without an offset is what the clocks of the session show, and not UTC,
    /// and the numbers of a date are in its order.
    ///
    /// # Errors
    /// As [`Value::parse`].
    pub fn parse_in(data_type: &DataType, text: &str, style: &Style) -> Result<Self> {
        Self::parse_at(
            data_type,
            text,
            ParseContext { zone: Some(&style.zone), order: style.forms.order, now_us: None },
        )
    }

    /// As [`Value::parse_in`], and `now`, `today` and their kin are those of the reader. Others refuse them.
    ///
    /// # Errors
    /// [`Error::Time`] for dates and times, [`Error::Array`] for what is no array, else [`Error::Parse`]; all name the
    /// text.
    pub fn parse_at(data_type: &DataType, text: &str, here: ParseContext<'_>) -> Result<Self> {
        let time = |read: std::result::Result<Self, TimeFault>| {
            let named = || data_type.to_string().to_lowercase();
            read.map_err(|fault| Error::Time { value: shorten(text), data_type: named(), fault })
        };
        let value = match *data_type {
            DataType::Bool => text::parse_bool(text).map(Self::Bool),
            DataType::Int16 => text.trim().parse().ok().map(Self::Int16),
            DataType::Int32 => text.trim().parse().ok().map(Self::Int32),
            DataType::Int64 => text.trim().parse().ok().map(Self::Int64),
            DataType::Float32 => text::parse_float(text).map(Self::Float32),
            DataType::Float64 => text::parse_float(text).map(Self::Float64),
            DataType::Decimal { precision, scale } => text::parse_decimal(text, precision, scale).map(Self::Decimal),
            DataType::Text => Some(Self::Text(text.to_owned())),
            DataType::Bytes => text::parse_bytes(text).map(Self::Bytes),
            DataType::Date => match text::parse_date(text) {
                Some(days) => Some(Self::Date(days)),
                None => return time(time_text::date(text, here).map(Self::Date)),
            },
            DataType::Time => match text::parse_time(text) {
                Some(us) => Some(Self::Time(us)),
                None => return time(time_text::time(text, here).map(Self::Time)),
            },
            DataType::Timestamp => match text::parse_timestamp(text) {
                Some(us) => Some(Self::Timestamp(us)),
                None => return time(time_text::timestamp(text, here).map(Self::Timestamp)),
            },
            DataType::TimestampTz => match text::parse_timestamp_tz(text, here.zone) {
                Some(us) => Some(Self::Timestamp(us)),
                None => return time(time_text::timestamp_tz(text, here).map(Self::Timestamp)),
            },
            DataType::Interval => {
                let span = time_text::parse_span(text, None);
                return time(
                    span.and_then(|span| span.to_arrow().map(|_| Self::Interval(span)).ok_or(TimeFault::Range)),
                );
            }
            DataType::Inet => text.parse().ok().map(Self::Inet),
            DataType::Uuid => text::parse_uuid(text).map(|uuid| Self::Uuid(uuid.to_string())),
            DataType::Json => {
                json::check(text).map_err(|fault| Error::of_json(fault, text, "JSON"))?;
                Some(Self::Json(text.to_owned()))
            }
            DataType::Jsonb => {
                let normal = json::normal_form(text).map_err(|fault| Error::of_json(fault, text, "JSONB"))?;
                Some(Self::Json(normal))
            }
            DataType::Array(item) => {
                let items = array_items(text).map_err(|why| Error::Array { value: shorten(text), why })?;
                let item = |text: Option<Cow<'_, str>>| match text {
                    Some(text) => Self::parse_at(&item.data_type(), &text, here),
                    None => Ok(Self::Null),
                };
                Some(Self::Array(items.into_iter().map(item).collect::<Result<_>>()?))
            }
        };
        value.ok_or_else(|| Error::Parse { value: shorten(text), data_type: data_type.to_string() })
    }

    /// Writes Postgres' text format; NULL is `NULL`. `data_type` must be the value's (it has the scale and the zone).
    #[must_use]
    pub fn to_display(&self, data_type: &DataType) -> String {
        match self {
            Self::Null => "NULL".to_owned(),
            Self::Bool(value) => if *value { "t" } else { "f" }.to_owned(),
            Self::Int16(value) => value.to_string(),
            Self::Int32(value) => value.to_string(),
            Self::Int64(value) => value.to_string(),
            Self::Float32(value) => text::format_f32(*value),
            Self::Float64(value) => text::format_f64(*value),
            Self::Decimal(unscaled) => match data_type {
                DataType::Decimal { scale, .. } => text::format_decimal(*unscaled, *scale),
                _ => unscaled.to_string(),
            },
            Self::Text(value) | Self::Uuid(value) | Self::Json(value) => value.clone(),
            Self::Bytes(value) => text::format_bytes(value),
            Self::Date(days) => text::format_date(*days),
            Self::Time(us) => text::format_time(*us),
            Self::Timestamp(us) if *data_type == DataType::TimestampTz => text::format_timestamp_tz(*us),
            Self::Timestamp(us) => text::format_timestamp(*us),
            Self::Interval(span) => span.to_string(),
            Self::Inet(inet) => inet.to_string(),
            Self::Array(items) => {
                let item = data_type.item().unwrap_or(DataType::Text);
                array_text(items.iter().map(|value| (!value.is_null()).then(|| value.to_display(&item))))
            }
        }
    }

    /// The cell of an array as a value of `data_type`. The array may be of any Arrow type that casts to the storage
    /// type, but only storage types are quick; a cast that fails gives an error, not NULL.
    ///
    /// # Errors
    /// [`Error::Arrow`] when the array cannot be cast. [`Error::Usage`] when `row` is beyond the array.
    pub fn from_arrow(array: &dyn Array, row: usize, data_type: &DataType) -> Result<Self> {
        if row >= array.len() {
            return Err(Error::usage(format!("row {row} of an array of {}", array.len())));
        }
        if array.is_null(row) {
            return Ok(Self::Null);
        }
        if let (DataType::Array(item), Some(lists)) = (data_type, array.as_list_opt::<i32>()) {
            let items = lists.value(row);
            let item = |row| Self::from_arrow(&items, row, &item.data_type());
            return (0..items.len()).map(item).collect::<Result<_>>().map(Self::Array);
        }
        let storage = arrow_type(data_type);
        if *array.data_type() != storage {
            let cell = file_column(&array.slice(row, 1), &storage)?;
            // Lists of another kind: their items are read as those of one of the storage type.
            if matches!(data_type, DataType::Array(_)) {
                return Self::from_arrow(&cell, 0, data_type);
            }
            return if cell.is_null(0) { Ok(Self::Null) } else { Self::from_storage(&cell, 0, data_type) };
        }
        Self::from_storage(array, row, data_type)
    }

    /// `array` is of the storage type, which is no list, and not null at `row`.
    fn from_storage(array: &dyn Array, row: usize, data_type: &DataType) -> Result<Self> {
        Ok(match data_type {
            DataType::Bool => Self::Bool(array.as_boolean().value(row)),
            DataType::Int16 => Self::Int16(array.as_primitive::<Int16Type>().value(row)),
            DataType::Int32 => Self::Int32(array.as_primitive::<Int32Type>().value(row)),
            DataType::Int64 => Self::Int64(array.as_primitive::<Int64Type>().value(row)),
            DataType::Float32 => Self::Float32(array.as_primitive::<Float32Type>().value(row)),
            DataType::Float64 => Self::Float64(array.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal { .. } => Self::Decimal(array.as_primitive::<Decimal128Type>().value(row)),
            DataType::Text => Self::Text(array.as_string::<i32>().value(row).to_owned()),
            DataType::Bytes => Self::Bytes(array.as_binary::<i32>().value(row).to_vec()),
            DataType::Date => Self::Date(array.as_primitive::<Date32Type>().value(row)),
            DataType::Time => Self::Time(array.as_primitive::<Time64MicrosecondType>().value(row)),
            DataType::Timestamp | DataType::TimestampTz => {
                Self::Timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row))
            }
            DataType::Interval => {
                Self::Interval(Span::from_arrow(array.as_primitive::<IntervalMonthDayNanoType>().value(row)))
            }
            DataType::Inet => Self::Inet(Inet::of_row(array.as_binary::<i64>().value(row))?),
            DataType::Uuid => Self::Uuid(array.as_string::<i32>().value(row).to_owned()),
            DataType::Json | DataType::Jsonb => Self::Json(array.as_string::<i32>().value(row).to_owned()),
            DataType::Array(_) => unreachable!("an array is read item by item"),
        })
    }

    /// An array of the storage type with this value in each of `n_rows` rows: defaults, literals.
    ///
    /// # Errors
    /// As [`Value::coerce`].
    pub fn to_array(&self, data_type: &DataType, n_rows: usize) -> Result<ArrayRef> {
        use arrow::array::*;
        let storage = arrow_type(data_type);
        let n = n_rows;
        Ok(match self.clone().coerce(data_type)? {
            Self::Null => new_null_array(&storage, n),
            Self::Bool(value) => std::sync::Arc::new(BooleanArray::from(vec![value; n])),
            Self::Int16(value) => std::sync::Arc::new(Int16Array::from_value(value, n)),
            Self::Int32(value) => std::sync::Arc::new(Int32Array::from_value(value, n)),
            Self::Int64(value) => std::sync::Arc::new(Int64Array::from_value(value, n)),
            Self::Float32(value) => std::sync::Arc::new(Float32Array::from_value(value, n)),
            Self::Float64(value) => std::sync::Arc::new(Float64Array::from_value(value, n)),
            Self::Decimal(value) => std::sync::Arc::new(Decimal128Array::from_value(value, n).with_data_type(storage)),
            Self::Text(value) | Self::Uuid(value) | Self::Json(value) => {
                std::sync::Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, n)))
            }
            Self::Bytes(value) => std::sync::Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(value, n))),
            Self::Date(value) => std::sync::Arc::new(Date32Array::from_value(value, n)),
            Self::Time(value) => std::sync::Arc::new(Time64MicrosecondArray::from_value(value, n)),
            Self::Timestamp(value) => {
                std::sync::Arc::new(TimestampMicrosecondArray::from_value(value, n).with_data_type(storage))
            }
            Self::Interval(span) => {
                let span = span.to_arrow().ok_or_else(|| Error::usage("an interval reaches 292 years in its hours"))?;
                std::sync::Arc::new(IntervalMonthDayNanoArray::from_value(span, n))
            }
            Self::Inet(inet) => {
                std::sync::Arc::new(LargeBinaryArray::from_iter_values(std::iter::repeat_n(inet.to_bytes(), n)))
            }
            Self::Array(items) => {
                // It was coerced to an array type.
                let item = data_type.item().unwrap_or(DataType::Text);
                let cells = items.iter().map(|value| value.to_array(&item, 1)).collect::<Result<Vec<_>>>()?;
                let cells: Vec<&dyn Array> = cells.iter().map(AsRef::as_ref).collect();
                let items = match cells.as_slice() {
                    [] => new_empty_array(&arrow_type(&item)),
                    cells => arrow::compute::concat(cells).map_err(Error::arrow("put items together"))?,
                };
                let ArrowType::List(field) = storage else { return Err(Error::usage("an array is a list")) };
                let one = ListArray::new(field, OffsetBuffer::from_lengths([items.len()]), items, None);
                let all = UInt32Array::from_value(0, n);
                arrow::compute::take(&one, &all, None).map_err(Error::arrow("repeat an array"))?
            }
        })
    }

    /// Turns the value into one of `data_type`, without loss: integers of any width, integers and floats into
    /// decimals and back when exact, dates into timestamps, texts into anything by [`Value::parse`]. A decimal
    /// carries no scale here: it must be of the wanted type's scale already ([`Value::rescale`] changes it).
    ///
    /// # Errors
    /// [`Error::Coerce`] names value and type; [`Error::Parse`] for texts.
    pub fn coerce(self, data_type: &DataType) -> Result<Self> {
        let value = match (&self, data_type) {
            (Self::Null, _)
            | (Self::Bool(_), DataType::Bool)
            | (Self::Int16(_), DataType::Int16)
            | (Self::Int32(_), DataType::Int32)
            | (Self::Int64(_), DataType::Int64)
            | (Self::Float32(_), DataType::Float32)
            | (Self::Float64(_), DataType::Float64)
            | (Self::Text(_), DataType::Text)
            | (Self::Bytes(_), DataType::Bytes)
            | (Self::Date(_), DataType::Date)
            | (Self::Time(_), DataType::Time)
            | (Self::Timestamp(_), DataType::Timestamp | DataType::TimestampTz)
            | (Self::Interval(_), DataType::Interval)
            | (Self::Inet(_), DataType::Inet)
            | (Self::Json(_), DataType::Json) => return Ok(self),
            (Self::Decimal(unscaled), DataType::Decimal { precision, .. }) => {
                text::fits_precision(*unscaled, *precision).then_some(Self::Decimal(*unscaled))
            }
            // Parsed again, because the variant promises the canonical text and its maker may not have kept it.
            (Self::Uuid(text), DataType::Uuid) | (Self::Json(text), DataType::Jsonb) => {
                return Self::parse(data_type, text);
            }
            (Self::Text(text), _) => return Self::parse(data_type, text),
            (Self::Array(_), DataType::Array(item)) => {
                let Self::Array(items) = self else { return Err(Error::usage("an array has items")) };
                let item = item.data_type();
                return items.into_iter().map(|value| value.coerce(&item)).collect::<Result<_>>().map(Self::Array);
            }
            (Self::Uuid(text) | Self::Json(text), DataType::Text) => Some(Self::Text(text.clone())),
            (Self::Int16(n), _) => from_integer(i128::from(*n), data_type),
            (Self::Int32(n), _) => from_integer(i128::from(*n), data_type),
            (Self::Int64(n), _) => from_integer(i128::from(*n), data_type),
            (Self::Float32(f), _) => from_float(f64::from(*f), text::format_f32(*f), data_type),
            (Self::Float64(f), _) => from_float(*f, text::format_f64(*f), data_type),
            (Self::Date(days), DataType::Timestamp | DataType::TimestampTz) => midnight_us(*days).map(Self::Timestamp),
            _ => None,
        };
        value.ok_or_else(|| Error::Coerce { value: shorten(&format!("{self:?}")), data_type: data_type.to_string() })
    }

    /// Moves a decimal from one scale to a type, only if exact; everything else as [`Value::coerce`].
    ///
    /// # Errors
    /// [`Error::Coerce`] when digits would be lost.
    pub fn rescale(self, from_scale: i8, data_type: &DataType) -> Result<Self> {
        let Self::Decimal(unscaled) = self else { return self.coerce(data_type) };
        let text = text::format_decimal(unscaled, from_scale);
        let value = match *data_type {
            DataType::Decimal { precision, scale } => change_scale(unscaled, from_scale, scale)
                .filter(|n| text::fits_precision(*n, precision))
                .map(Self::Decimal),
            DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                change_scale(unscaled, from_scale, 0).and_then(|n| from_integer(n, data_type))
            }
            DataType::Float32 => text::parse_float(&text).map(Self::Float32),
            DataType::Float64 => text::parse_float(&text).map(Self::Float64),
            _ => None,
        };
        value.ok_or_else(|| Error::Coerce { value: text, data_type: data_type.to_string() })
    }

    /// A total order of values of one type: that of their keys, and NULL last. Values of different types are in the
    /// order of the enum.
    #[must_use]
    pub fn cmp_same_type(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int16(a), Self::Int16(b)) => a.cmp(b),
            (Self::Int32(a), Self::Int32(b)) | (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Int64(a), Self::Int64(b))
            | (Self::Time(a), Self::Time(b))
            | (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(b),
            (Self::Float32(a), Self::Float32(b)) => cmp_floats(f64::from(*a), f64::from(*b)),
            (Self::Float64(a), Self::Float64(b)) => cmp_floats(*a, *b),
            (Self::Decimal(a), Self::Decimal(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) | (Self::Uuid(a), Self::Uuid(b)) | (Self::Json(a), Self::Json(b)) => {
                a.cmp(b)
            }
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Interval(a), Self::Interval(b)) => a.cmp(b),
            (Self::Inet(a), Self::Inet(b)) => a.cmp(b),
            (Self::Array(a), Self::Array(b)) => {
                let items = a.iter().zip(b).map(|(a, b)| a.cmp_same_type(b));
                items.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int16(_) => 1,
            Self::Int32(_) => 2,
            Self::Int64(_) => 3,
            Self::Float32(_) => 4,
            Self::Float64(_) => 5,
            Self::Decimal(_) => 6,
            Self::Text(_) => 7,
            Self::Bytes(_) => 8,
            Self::Date(_) => 9,
            Self::Time(_) => 10,
            Self::Timestamp(_) => 11,
            Self::Uuid(_) => 12,
            Self::Json(_) => 13,
            Self::Interval(_) => 14,
            Self::Inet(_) => 15,
            Self::Array(_) => 16,
            Self::Null => 17,
        }
    }
}

fn cmp_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn from_integer(n: i128, data_type: &DataType) -> Option<Value> {
    match *data_type {
        DataType::Int16 => n.try_into().ok().map(Value::Int16),
        DataType::Int32 => n.try_into().ok().map(Value::Int32),
        DataType::Int64 => n.try_into().ok().map(Value::Int64),
        DataType::Float32 => Some(Value::Float32(n as f32)),
        DataType::Float64 => Some(Value::Float64(n as f64)),
        DataType::Decimal { precision, scale } => {
            change_scale(n, 0, scale).filter(|n| text::fits_precision(*n, precision)).map(Value::Decimal)
        }
        _ => None,
    }
}

/// Whether a number is another one as a `REAL`: too large for it, or so near to zero that it is zero.
#[must_use]
pub fn is_lost_as_real(wide: f64, narrow: f32) -> bool {
    (narrow.is_infinite() && wide.is_finite()) || (narrow == 0.0 && wide != 0.0)
}

fn from_float(f: f64, shortest: String, data_type: &DataType) -> Option<Value> {
    match *data_type {
        DataType::Float32 => {
            let narrow = f as f32;
            (!is_lost_as_real(f, narrow)).then_some(Value::Float32(narrow))
        }
        DataType::Float64 => Some(Value::Float64(f)),
        DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let whole = f.fract() == 0.0 && f.abs() < 9.3e18;
            whole.then(|| from_integer(f as i128, data_type)).flatten()
        }
        // The shortest text of a float is what was meant: 0.1 is one tenth.
        DataType::Decimal { precision, scale } => {
            let n = text::parse_decimal(&shortest, precision, scale)?;
            let back: f64 = text::format_decimal(n, scale).parse().ok()?;
            (back == shortest.parse::<f64>().ok()?).then_some(Value::Decimal(n))
        }
        _ => None,
    }
}

fn change_scale(unscaled: i128, from: i8, to: i8) -> Option<i128> {
    let factor = 10i128.checked_pow(u32::from(from.abs_diff(to)))?;
    if to >= from { unscaled.checked_mul(factor) } else { (unscaled % factor == 0).then(|| unscaled / factor) }
}

mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// By what it displays.
    pub fn serialize<T: Display, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(value)
    }

    /// From a text that its type understands.
    pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(|_| D::Error::custom("not a number"))
    }
}

mod as_hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::text;

    /// As the text of a `bytea`: `\x` and two digits for each byte.
    pub fn serialize<S: Serializer>(value: &[u8], out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&text::format_bytes(value))
    }

    /// From such a text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text::parse_bytes(&text).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_data::typed_value;

    #[test]
    fn errors_name_value_and_type() {
        let error = Value::parse(&DataType::Int32, "twelve").unwrap_err();
        assert_eq!(error.to_string(), r#""twelve" is not a valid INTEGER"#);
        let error = Value::Int64(1 << 40).coerce(&DataType::Int32).unwrap_err();
        assert_eq!(error.to_string(), "Int64(1099511627776) does not fit INTEGER");
    }

    #[test]
    fn coercions_are_exact_or_refused() {
        let cents = DataType::Decimal { precision: 10, scale: 2 };
        assert_eq!(Value::Int32(5).coerce(&cents).unwrap(), Value::Decimal(500));
        assert_eq!(Value::Float64(0.1).coerce(&cents).unwrap(), Value::Decimal(10));
        assert!(Value::Float64(0.125).coerce(&cents).is_err());
        assert_eq!(Value::Text("0.125".into()).coerce(&cents).unwrap(), Value::Decimal(13));
        assert_eq!(Value::Decimal(1230).rescale(3, &cents).unwrap(), Value::Decimal(123));
        assert!(Value::Decimal(1234).rescale(3, &cents).is_err());
        assert_eq!(Value::Decimal(300).rescale(2, &DataType::Int16).unwrap(), Value::Int16(3));
        assert_eq!(Value::Float64(3.0).coerce(&DataType::Int16).unwrap(), Value::Int16(3));
        assert!(Value::Float64(3.5).coerce(&DataType::Int16).is_err());
        assert!(Value::Float64(f64::NAN).coerce(&DataType::Int64).is_err());
        assert_eq!(Value::Date(1).coerce(&DataType::Timestamp).unwrap(), Value::Timestamp(86_400_000_000));
        assert!(Value::Bool(true).coerce(&DataType::Int16).is_err());
        assert_eq!(
            Value::Uuid("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11".into()).coerce(&DataType::Uuid).unwrap(),
            Value::Uuid("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".into())
        );
    }

    proptest! {
        #[test]
        fn text_json_and_arrow_keep_every_value((data_type, value) in typed_value()) {
            let same = |other: &Value| value.cmp_same_type(other) == Ordering::Equal;
            let is_read = match value {
                Value::Date(days) => text::DAYS.contains(&days.into()),
                Value::Timestamp(us) => us >= text::FIRST_TIMESTAMP,
                _ => true,
            };
            prop_assert!(!is_read || same(&Value::parse(&data_type, &value.to_display(&data_type)).unwrap()));
            let json = serde_json::to_string(&value).unwrap();
            prop_assert!(same(&serde_json::from_str(&json).unwrap()), "{}", json);
            let array = value.to_array(&data_type, 2).unwrap();
            prop_assert_eq!(array.data_type(), &arrow_type(&data_type));
            prop_assert!(same(&Value::from_arrow(&array, 1, &data_type).unwrap()));
        }
    }
}
