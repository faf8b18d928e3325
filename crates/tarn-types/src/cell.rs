//! What is the physical form of one value, whichever side it comes from?
//!
//! [`Cell`] is what keys, tokens and rows are written from and read into. It borrows, so that bulk paths allocate per
//! column and batch, never per cell; [`crate::Value`] and [`ColumnReader`] both give cells, [`ColumnWriter`] takes
//! them. So there is one codec of each layout, whether rows come one by one or in columns.

use arrow::array::*;
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::*;

use crate::data_type::{DataType as ColumnType, arrow_type};
use crate::error::{Error, Result};
use crate::schema::Column;
use crate::text;
use crate::value::Value;

/// One value that is not NULL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    Bool(bool),
    I16(i16),
    /// Also dates.
    I32(i32),
    /// Also times and timestamps.
    I64(i64),
    F32(f32),
    F64(f64),
    /// A decimal, unscaled.
    I128(i128),
    /// Text, JSON and bytes.
    Bytes(&'a [u8]),
    Uuid([u8; 16]),
}

impl<'a> Cell<'a> {
    /// The cell of a value that must be of the type already; `None` is NULL.
    pub(crate) fn of(value: &'a Value, data_type: &ColumnType) -> Result<Option<Self>> {
        let uuid = |text: &str| text::parse_uuid(text).map(uuid::Uuid::into_bytes);
        let cell = match (value, data_type) {
            (Value::Null, _) => return Ok(None),
            (Value::Bool(value), ColumnType::Bool) => Some(Self::Bool(*value)),
            (Value::Int16(value), ColumnType::Int16) => Some(Self::I16(*value)),
            (Value::Int32(value), ColumnType::Int32) | (Value::Date(value), ColumnType::Date) => {
                Some(Self::I32(*value))
            }
            (Value::Int64(value), ColumnType::Int64)
            | (Value::Time(value), ColumnType::Time)
            | (Value::Timestamp(value), ColumnType::Timestamp | ColumnType::TimestampTz) => Some(Self::I64(*value)),
            (Value::Float32(value), ColumnType::Float32) => Some(Self::F32(*value)),
            (Value::Float64(value), ColumnType::Float64) => Some(Self::F64(*value)),
            (Value::Decimal(value), ColumnType::Decimal { .. }) => Some(Self::I128(*value)),
            (Value::Text(value), ColumnType::Text) | (Value::Json(value), ColumnType::Json | ColumnType::Jsonb) => {
                Some(Self::Bytes(value.as_bytes()))
            }
            (Value::Bytes(value), ColumnType::Bytes) => Some(Self::Bytes(value)),
            (Value::Uuid(value), ColumnType::Uuid) => uuid(value).map(Self::Uuid),
            _ => None,
        };
        match cell {
            Some(cell) => Ok(Some(cell)),
            None => Err(Error::Coerce {
                value: crate::error::shorten(&format!("{value:?}")),
                data_type: data_type.to_string(),
            }),
        }
    }

    /// The value of a cell; `None` when the bytes are no UTF-8 where they must be.
    pub(crate) fn to_value(self, data_type: &ColumnType) -> Option<Value> {
        Some(match (self, data_type) {
            (Self::Bool(value), _) => Value::Bool(value),
            (Self::I16(value), _) => Value::Int16(value),
            (Self::I32(value), ColumnType::Date) => Value::Date(value),
            (Self::I32(value), _) => Value::Int32(value),
            (Self::I64(value), ColumnType::Time) => Value::Time(value),
            (Self::I64(value), ColumnType::Timestamp | ColumnType::TimestampTz) => Value::Timestamp(value),
            (Self::I64(value), _) => Value::Int64(value),
            (Self::F32(value), _) => Value::Float32(value),
            (Self::F64(value), _) => Value::Float64(value),
            (Self::I128(value), _) => Value::Decimal(value),
            (Self::Bytes(value), ColumnType::Bytes) => Value::Bytes(value.to_vec()),
            (Self::Bytes(value), ColumnType::Json | ColumnType::Jsonb) => {
                Value::Json(std::str::from_utf8(value).ok()?.to_owned())
            }
            (Self::Bytes(value), _) => Value::Text(std::str::from_utf8(value).ok()?.to_owned()),
            (Self::Uuid(bytes), _) => Value::Uuid(uuid::Uuid::from_bytes(bytes).to_string()),
        })
    }
}

/// A column of a batch, downcast once.
pub(crate) struct ColumnReader {
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
    Bool(BooleanBuffer),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    F32(ScalarBuffer<f32>),
    F64(ScalarBuffer<f64>),
    I128(ScalarBuffer<i128>),
    Text(StringArray),
    Bytes(BinaryArray),
    Uuid(Vec<[u8; 16]>),
}

impl ColumnReader {
    /// Reads `array` as a column of the table. Storage types are free; string and binary views, large and dictionary
    /// forms are cast once; every other type is refused.
    ///
    /// # Errors
    /// [`Error::Type`] for another type, [`Error::Cell`] for a text that is no UUID.
    pub(crate) fn new(array: &ArrayRef, column: &Column) -> Result<Self> {
        let array = to_storage(array, column)?;
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let values = match column.data_type {
            ColumnType::Bool => Values::Bool(array.as_boolean().values().clone()),
            ColumnType::Int16 => Values::I16(array.as_primitive::<Int16Type>().values().clone()),
            ColumnType::Int32 => Values::I32(array.as_primitive::<Int32Type>().values().clone()),
            ColumnType::Int64 => Values::I64(array.as_primitive::<Int64Type>().values().clone()),
            ColumnType::Float32 => Values::F32(array.as_primitive::<Float32Type>().values().clone()),
            ColumnType::Float64 => Values::F64(array.as_primitive::<Float64Type>().values().clone()),
            ColumnType::Decimal { .. } => Values::I128(array.as_primitive::<Decimal128Type>().values().clone()),
            ColumnType::Date => Values::I32(array.as_primitive::<Date32Type>().values().clone()),
            ColumnType::Time => Values::I64(array.as_primitive::<Time64MicrosecondType>().values().clone()),
            ColumnType::Timestamp | ColumnType::TimestampTz => {
                Values::I64(array.as_primitive::<TimestampMicrosecondType>().values().clone())
            }
            ColumnType::Text | ColumnType::Json | ColumnType::Jsonb => Values::Text(array.as_string::<i32>().clone()),
            ColumnType::Bytes => Values::Bytes(array.as_binary::<i32>().clone()),
            ColumnType::Uuid => Values::Uuid(parse_uuids(array.as_string::<i32>(), column)?),
        };
        Ok(Self { nulls, values })
    }

    /// The first row that is NULL.
    pub(crate) fn first_null(&self) -> Option<usize> {
        let nulls = self.nulls.as_ref()?;
        (0..nulls.len()).find(|row| nulls.is_null(*row))
    }

    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// The cell of a row; of a NULL row, something.
    #[inline]
    pub(crate) fn cell(&self, row: usize) -> Cell<'_> {
        match &self.values {
            Values::Bool(values) => Cell::Bool(values.value(row)),
            Values::I16(values) => Cell::I16(values[row]),
            Values::I32(values) => Cell::I32(values[row]),
            Values::I64(values) => Cell::I64(values[row]),
            Values::F32(values) => Cell::F32(values[row]),
            Values::F64(values) => Cell::F64(values[row]),
            Values::I128(values) => Cell::I128(values[row]),
            Values::Text(values) => Cell::Bytes(values.value(row).as_bytes()),
            Values::Bytes(values) => Cell::Bytes(values.value(row)),
            Values::Uuid(values) => Cell::Uuid(values[row]),
        }
    }
}

fn to_storage(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let storage = arrow_type(&column.data_type);
    let found = array.data_type();
    if *found == storage {
        return Ok(array.clone());
    }
    let plain = match found {
        DataType::Dictionary(_, values) => values.as_ref(),
        other => other,
    };
    let same = match plain {
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => storage == DataType::Utf8,
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => storage == DataType::Binary,
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => column.data_type == ColumnType::TimestampTz,
        other => *other == storage,
    };
    if !same {
        return Err(Error::Type { column: column.name.clone(), found: found.to_string(), want: storage.to_string() });
    }
    cast(array, &storage).map_err(Error::arrow("cast a column to its storage type"))
}

fn parse_uuids(texts: &StringArray, column: &Column) -> Result<Vec<[u8; 16]>> {
    let parse = |(row, text): (usize, Option<&str>)| {
        let Some(text) = text else { return Ok([0; 16]) };
        text::parse_uuid(text).map(uuid::Uuid::into_bytes).ok_or_else(|| Error::Cell {
            column: column.name.clone(),
            row,
            source: Box::new(Error::Parse { value: crate::error::shorten(text), data_type: "UUID".to_owned() }),
        })
    };
    texts.iter().enumerate().map(parse).collect()
}

/// A column being built in its storage type.
pub(crate) enum ColumnWriter {
    Bool(BooleanBuilder),
    I16(Int16Builder),
    I32(Int32Builder),
    Date(Date32Builder),
    I64(Int64Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    F32(Float32Builder),
    F64(Float64Builder),
    I128(Decimal128Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
}

impl ColumnWriter {
    pub(crate) fn new(data_type: &ColumnType) -> Self {
        let storage = arrow_type(data_type);
        match data_type {
            ColumnType::Bool => Self::Bool(BooleanBuilder::new()),
            ColumnType::Int16 => Self::I16(Int16Builder::new()),
            ColumnType::Int32 => Self::I32(Int32Builder::new()),
            ColumnType::Int64 => Self::I64(Int64Builder::new()),
            ColumnType::Float32 => Self::F32(Float32Builder::new()),
            ColumnType::Float64 => Self::F64(Float64Builder::new()),
            ColumnType::Decimal { .. } => Self::I128(Decimal128Builder::new().with_data_type(storage)),
            ColumnType::Date => Self::Date(Date32Builder::new()),
            ColumnType::Time => Self::Time(Time64MicrosecondBuilder::new()),
            ColumnType::Timestamp | ColumnType::TimestampTz => {
                Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(storage))
            }
            ColumnType::Text | ColumnType::Uuid | ColumnType::Json | ColumnType::Jsonb => {
                Self::Text(StringBuilder::new())
            }
            ColumnType::Bytes => Self::Bytes(BinaryBuilder::new()),
        }
    }

    /// False when the cell is of another type or no UTF-8 where it must be; nothing is appended then.
    #[inline]
    #[must_use]
    pub(crate) fn push(&mut self, cell: Cell<'_>) -> bool {
        match (self, cell) {
            (Self::Bool(out), Cell::Bool(value)) => out.append_value(value),
            (Self::I16(out), Cell::I16(value)) => out.append_value(value),
            (Self::I32(out), Cell::I32(value)) => out.append_value(value),
            (Self::Date(out), Cell::I32(value)) => out.append_value(value),
            (Self::I64(out), Cell::I64(value)) => out.append_value(value),
            (Self::Time(out), Cell::I64(value)) => out.append_value(value),
            (Self::Timestamp(out), Cell::I64(value)) => out.append_value(value),
            (Self::F32(out), Cell::F32(value)) => out.append_value(value),
            (Self::F64(out), Cell::F64(value)) => out.append_value(value),
            (Self::I128(out), Cell::I128(value)) => out.append_value(value),
            (Self::Text(out), Cell::Bytes(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => out.append_value(text),
                Err(_) => return false,
            },
            (Self::Text(out), Cell::Uuid(bytes)) => {
                let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
                out.append_value(uuid::Uuid::from_bytes(bytes).hyphenated().encode_lower(&mut buffer));
            }
            (Self::Bytes(out), Cell::Bytes(bytes)) => out.append_value(bytes),
            _ => return false,
        }
        true
    }

    pub(crate) fn push_null(&mut self) {
        match self {
            Self::Bool(out) => out.append_null(),
            Self::I16(out) => out.append_null(),
            Self::I32(out) => out.append_null(),
            Self::Date(out) => out.append_null(),
            Self::I64(out) => out.append_null(),
            Self::Time(out) => out.append_null(),
            Self::Timestamp(out) => out.append_null(),
            Self::F32(out) => out.append_null(),
            Self::F64(out) => out.append_null(),
            Self::I128(out) => out.append_null(),
            Self::Text(out) => out.append_null(),
            Self::Bytes(out) => out.append_null(),
        }
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(out) => ArrayBuilder::finish(out),
            Self::I16(out) => ArrayBuilder::finish(out),
            Self::I32(out) => ArrayBuilder::finish(out),
            Self::Date(out) => ArrayBuilder::finish(out),
            Self::I64(out) => ArrayBuilder::finish(out),
            Self::Time(out) => ArrayBuilder::finish(out),
            Self::Timestamp(out) => ArrayBuilder::finish(out),
            Self::F32(out) => ArrayBuilder::finish(out),
            Self::F64(out) => ArrayBuilder::finish(out),
            Self::I128(out) => ArrayBuilder::finish(out),
            Self::Text(out) => ArrayBuilder::finish(out),
            Self::Bytes(out) => ArrayBuilder::finish(out),
        }
    }
}
