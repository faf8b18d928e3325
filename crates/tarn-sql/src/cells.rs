//! Where do values gather that come one by one, in bytes or as texts? In the Arrow builder of their type: fields of a
//! COPY in the binary format, elements of an array.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder,
    Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder,
    LargeBinaryBuilder, ListArray, NullBufferBuilder, StringBuilder, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, IntervalMonthDayNano};
use pgwire::api::Type;
use tarn_types::inet::MAX_INET_BYTES;
use tarn_types::{DataType, Error, Span, TimeFault, Value, arrow_field, arrow_type};
use uuid::Uuid;

use crate::arrays::{elements_of_binary, item_oid};
use crate::error::{Result, SqlError, state};
use crate::rows::pg_type;
use crate::{binary, encoding};

/// What has gathered of one column, or of one array: NULLs, and values of one type.
pub struct ValueBuilder {
    data_type: DataType,
    builder: Builder,
}

enum Builder {
    Bool(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Decimal(Decimal128Builder, u8, i8),
    Text(StringBuilder),
    Json(StringBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Inet(LargeBinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Array(Box<Arrays>),
}

/// Arrays that have gathered.
struct Arrays {
    items: ValueBuilder,
    /// Of each array.
    lengths: Vec<usize>,
    nulls: NullBufferBuilder,
}

impl Arrays {
    fn new(item: DataType) -> Arrays {
        Arrays { items: ValueBuilder::new(item), lengths: Vec::new(), nulls: NullBufferBuilder::new(0) }
    }

    /// As [`ValueBuilder::append_binary`].
    fn append_binary(&mut self, bytes: &[u8]) -> Result<usize> {
        let of = pg_type(&arrow_field("", &self.items.data_type, true))?;
        // A text is one by other names, too: that of `varchar(n)[]`, and what drivers send for texts.
        let is_text = |oid: &u32| [Type::TEXT, Type::VARCHAR, Type::BPCHAR].iter().any(|text| text.oid() == *oid);
        let sent = item_oid(bytes).filter(|oid| of == Type::TEXT && is_text(oid)).unwrap_or(of.oid());
        let elements = elements_of_binary(bytes, sent)?;
        let mut n_bytes = 0;
        for element in &elements {
            n_bytes += match element {
                Some(bytes) => self.items.append_binary(bytes)?,
                None => self.items.append_null(),
            };
        }
        self.end_array(elements.len());
        Ok(n_bytes)
    }

    fn append_values(&mut self, items: Vec<Value>) -> Result<()> {
        let n_items = items.len();
        items.into_iter().try_for_each(|item| self.items.append_value(item))?;
        self.end_array(n_items);
        Ok(())
    }

    fn append_null(&mut self) {
        self.lengths.push(0);
        self.nulls.append_null();
    }

    fn end_array(&mut self, n_items: usize) {
        self.lengths.push(n_items);
        self.nulls.append_non_null();
    }

    fn finish(&mut self) -> ListArray {
        let offsets = OffsetBuffer::from_lengths(self.lengths.drain(..));
        let items = self.items.finish();
        let item = Field::new_list_field(items.data_type().clone(), true);
        ListArray::new(Arc::new(item), offsets, items, self.nulls.finish())
    }
}

impl ValueBuilder {
    /// Of a column of this type, without values.
    pub fn new(data_type: DataType) -> ValueBuilder {
        let builder = match data_type {
            DataType::Bool => Builder::Bool(BooleanBuilder::new()),
            DataType::Int16 => Builder::Int16(Int16Builder::new()),
            DataType::Int32 => Builder::Int32(Int32Builder::new()),
            DataType::Int64 => Builder::Int64(Int64Builder::new()),
            DataType::Float32 => Builder::Float32(Float32Builder::new()),
            DataType::Float64 => Builder::Float64(Float64Builder::new()),
            DataType::Decimal { precision, scale } => {
                Builder::Decimal(Decimal128Builder::new().with_data_type(arrow_type(&data_type)), precision, scale)
            }
            DataType::Text => Builder::Text(StringBuilder::new()),
            DataType::Json | DataType::Jsonb => Builder::Json(StringBuilder::new()),
            DataType::Bytes => Builder::Bytes(BinaryBuilder::new()),
            DataType::Date => Builder::Date(Date32Builder::new()),
            DataType::Time => Builder::Time(Time64MicrosecondBuilder::new()),
            DataType::Timestamp | DataType::TimestampTz => {
                Builder::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(arrow_type(&data_type)))
            }
            DataType::Interval => Builder::Interval(IntervalMonthDayNanoBuilder::new()),
            DataType::Inet => Builder::Inet(LargeBinaryBuilder::new()),
            DataType::Uuid => Builder::Uuid(FixedSizeBinaryBuilder::new(UUID_BYTES as i32)),
            DataType::Array(item) => Builder::Array(Box::new(Arrays::new(item.data_type()))),
        };
        ValueBuilder { data_type, builder }
    }

    /// Appends one value in the binary form of the type; answers how many bytes it takes here.
    ///
    /// Errors: 22P03 for bytes that are none, 22003 for a number that is too large, 22021 and 22P02 for a text that is
    /// none.
    pub fn append_binary(&mut self, bytes: &[u8]) -> Result<usize> {
        let data_type = &self.data_type;
        let malformed = |what: String| {
            SqlError::new(state::INVALID_BINARY, format!("incorrect binary data format of {data_type}: {what}"))
                .with_hint("a value has the binary form of the type that it is sent for; or send texts")
        };
        match &mut self.builder {
            Builder::Bool(cells) => cells.append_value(binary::boolean(bytes).map_err(malformed)?),
            Builder::Int16(cells) => cells.append_value(i16::from_be_bytes(binary::fixed(bytes).map_err(malformed)?)),
            Builder::Int32(cells) => cells.append_value(i32::from_be_bytes(binary::fixed(bytes).map_err(malformed)?)),
            Builder::Int64(cells) => cells.append_value(i64::from_be_bytes(binary::fixed(bytes).map_err(malformed)?)),
            Builder::Float32(cells) => cells.append_value(f32::from_be_bytes(binary::fixed(bytes).map_err(malformed)?)),
            Builder::Float64(cells) => cells.append_value(f64::from_be_bytes(binary::fixed(bytes).map_err(malformed)?)),
            Builder::Decimal(cells, precision, scale) => {
                let numeric = binary::Numeric::new(bytes).map_err(malformed)?;
                let unscaled = numeric.unscaled(*precision, *scale);
                cells.append_value(unscaled.ok_or_else(|| not_read(data_type, &numeric.text()))?);
            }
            Builder::Text(cells) => cells.append_value(encoding::text(bytes)?),
            Builder::Json(cells) => {
                let json = match data_type {
                    DataType::Jsonb => binary::jsonb(bytes).map_err(malformed)?,
                    _ => bytes,
                };
                match Value::parse(data_type, encoding::text(json)?)? {
                    Value::Json(json) => cells.append_value(json),
                    other => return Err(no_value(&other, data_type)),
                }
            }
            Builder::Bytes(cells) => cells.append_value(bytes),
            Builder::Date(cells) => cells.append_value(binary::date(bytes).map_err(malformed)?),
            Builder::Time(cells) => cells.append_value(binary::time(bytes).map_err(malformed)?),
            Builder::Timestamp(cells) => cells.append_value(binary::timestamp(bytes).map_err(malformed)?),
            Builder::Interval(cells) => {
                cells.append_value(interval(binary::interval(bytes).map_err(malformed)?, data_type)?);
            }
            Builder::Inet(cells) => cells.append_value(binary::inet(bytes).map_err(malformed)?.to_bytes()),
            Builder::Uuid(cells) => {
                cells.append_value(binary::fixed::<UUID_BYTES>(bytes).map_err(malformed)?)?;
            }
            Builder::Array(arrays) => return Ok(ARRAY_BYTES + arrays.append_binary(bytes)?),
        }
        Ok(match self.builder {
            Builder::Text(_) | Builder::Json(_) | Builder::Bytes(_) => self.width() + bytes.len(),
            _ => self.width(),
        })
    }

    /// Appends one value of the type.
    pub fn append_value(&mut self, value: Value) -> Result<()> {
        match (&mut self.builder, value) {
            (_, Value::Null) => drop(self.append_null()),
            (Builder::Bool(cells), Value::Bool(value)) => cells.append_value(value),
            (Builder::Int16(cells), Value::Int16(value)) => cells.append_value(value),
            (Builder::Int32(cells), Value::Int32(value)) => cells.append_value(value),
            (Builder::Int64(cells), Value::Int64(value)) => cells.append_value(value),
            (Builder::Float32(cells), Value::Float32(value)) => cells.append_value(value),
            (Builder::Float64(cells), Value::Float64(value)) => cells.append_value(value),
            (Builder::Decimal(cells, ..), Value::Decimal(value)) => cells.append_value(value),
            (Builder::Text(cells) | Builder::Json(cells), Value::Text(value) | Value::Json(value)) => {
                cells.append_value(value)
            }
            (Builder::Bytes(cells), Value::Bytes(value)) => cells.append_value(value),
            (Builder::Date(cells), Value::Date(value)) => cells.append_value(value),
            (Builder::Time(cells), Value::Time(value)) => cells.append_value(value),
            (Builder::Timestamp(cells), Value::Timestamp(value)) => cells.append_value(value),
            (Builder::Interval(cells), Value::Interval(value)) => cells.append_value(interval(value, &self.data_type)?),
            (Builder::Inet(cells), Value::Inet(value)) => cells.append_value(value.to_bytes()),
            (Builder::Uuid(cells), Value::Uuid(value)) => {
                cells.append_value(Uuid::parse_str(&value).map_err(|_| no_value(&value, &self.data_type))?)?;
            }
            (Builder::Array(arrays), Value::Array(items)) => arrays.append_values(items)?,
            (_, other) => return Err(no_value(&other, &self.data_type)),
        }
        Ok(())
    }

    /// Appends a NULL; answers how many bytes it takes here.
    pub fn append_null(&mut self) -> usize {
        match &mut self.builder {
            Builder::Bool(cells) => cells.append_null(),
            Builder::Int16(cells) => cells.append_null(),
            Builder::Int32(cells) => cells.append_null(),
            Builder::Int64(cells) => cells.append_null(),
            Builder::Float32(cells) => cells.append_null(),
            Builder::Float64(cells) => cells.append_null(),
            Builder::Decimal(cells, ..) => cells.append_null(),
            Builder::Text(cells) | Builder::Json(cells) => cells.append_null(),
            Builder::Bytes(cells) => cells.append_null(),
            Builder::Date(cells) => cells.append_null(),
            Builder::Time(cells) => cells.append_null(),
            Builder::Timestamp(cells) => cells.append_null(),
            Builder::Interval(cells) => cells.append_null(),
            Builder::Inet(cells) => cells.append_null(),
            Builder::Uuid(cells) => cells.append_null(),
            Builder::Array(arrays) => arrays.append_null(),
        }
        self.width()
    }

    /// Bytes that each cell takes, whatever is in it.
    fn width(&self) -> usize {
        match self.builder {
            Builder::Bool(_) => 1,
            Builder::Int16(_) => 2,
            Builder::Int32(_) | Builder::Float32(_) | Builder::Date(_) => 4,
            Builder::Text(_) | Builder::Json(_) | Builder::Bytes(_) => 4,
            Builder::Int64(_) | Builder::Float64(_) | Builder::Time(_) | Builder::Timestamp(_) => 8,
            Builder::Decimal(..) | Builder::Interval(_) | Builder::Uuid(_) => 16,
            Builder::Inet(_) => 8 + MAX_INET_BYTES,
            Builder::Array(_) => ARRAY_BYTES,
        }
    }

    /// The cells as an array of their storage type, a `uuid` as its sixteen bytes, also as an item; it begins anew.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.builder {
            Builder::Bool(cells) => Arc::new(cells.finish()),
            Builder::Int16(cells) => Arc::new(cells.finish()),
            Builder::Int32(cells) => Arc::new(cells.finish()),
            Builder::Int64(cells) => Arc::new(cells.finish()),
            Builder::Float32(cells) => Arc::new(cells.finish()),
            Builder::Float64(cells) => Arc::new(cells.finish()),
            Builder::Decimal(cells, ..) => Arc::new(cells.finish()),
            Builder::Text(cells) | Builder::Json(cells) => Arc::new(cells.finish()),
            Builder::Bytes(cells) => Arc::new(cells.finish()),
            Builder::Date(cells) => Arc::new(cells.finish()),
            Builder::Time(cells) => Arc::new(cells.finish()),
            Builder::Timestamp(cells) => Arc::new(cells.finish()),
            Builder::Interval(cells) => Arc::new(cells.finish()),
            Builder::Inet(cells) => Arc::new(cells.finish()),
            Builder::Uuid(cells) => Arc::new(cells.finish()),
            Builder::Array(arrays) => Arc::new(arrays.finish()),
        }
    }
}

const UUID_BYTES: usize = 16;

/// Where an array ends.
const ARRAY_BYTES: usize = 4;

/// As Arrow has it.
///
/// Errors: 22008 for more hours than nanoseconds count.
fn interval(span: Span, data_type: &DataType) -> Result<IntervalMonthDayNano> {
    let data_type = || data_type.to_string().to_lowercase();
    let out = || Error::Time { value: span.to_string(), data_type: data_type(), fault: TimeFault::Range };
    span.to_arrow().ok_or_else(|| out().into())
}

/// Why its text is no value of the type.
fn not_read(data_type: &DataType, text: &str) -> SqlError {
    match Value::parse(data_type, text) {
        Ok(other) => no_value(&other, data_type),
        Err(error) => SqlError::from(error),
    }
}

/// It should never have come here.
fn no_value(other: &dyn Debug, data_type: &DataType) -> SqlError {
    SqlError::new(state::INTERNAL, format!("{other:?} is no {data_type}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType as ArrowType, Decimal128Type, Int64Type};

    use super::*;

    #[test]
    fn values_of_every_type_are_stored_as_what_they_are() {
        let one = |data_type: DataType, bytes: &[u8]| {
            let mut cells = ValueBuilder::new(data_type);
            cells.append_binary(bytes).map(|_| cells.finish())
        };
        let numeric = [0, 1, 0, 0, 0x40, 0, 0, 0, 0, 7];
        let decimal = DataType::Decimal { precision: 4, scale: 2 };
        let negative = one(decimal, &numeric).unwrap();
        assert_eq!(negative.as_primitive::<Decimal128Type>().value(0), -700);
        assert_eq!(*negative.data_type(), ArrowType::Decimal128(4, 2));
        let many = [0, 1, 0, 0, 0, 0, 0, 0, 0, 100];
        assert_eq!(one(decimal, &many).unwrap_err().state(), state::NUMERIC_OUT_OF_RANGE);
        assert_eq!(one(DataType::Jsonb, b"\x01[1]").unwrap().as_string::<i32>().value(0), "[1]");
        assert_eq!(one(DataType::Json, b"{").unwrap_err().state(), state::INVALID_TEXT);
        assert!(one(DataType::Bool, &[2]).unwrap().as_boolean().value(0));
        assert_eq!(one(DataType::Int64, &[0xff; 8]).unwrap().as_primitive::<Int64Type>().value(0), -1);
        assert_eq!(one(DataType::Uuid, &[7; 16]).unwrap().as_fixed_size_binary().value(0), [7; 16]);
        for (data_type, bytes) in [
            (DataType::Bool, &[][..]),
            (DataType::Int16, &[0; 4]),
            (DataType::Int64, &[0; 4]),
            (DataType::Float64, &[0; 4]),
            (DataType::Uuid, &[0; 15]),
            (DataType::Date, &[0x7f, 0xff, 0xff, 0xfe]),
            (DataType::Timestamp, &(i64::MAX - 1).to_be_bytes()),
            (decimal, &[0, 0, 0, 0, 0xc0, 0, 0, 0]),
        ] {
            assert_eq!(one(data_type, bytes).unwrap_err().state(), state::INVALID_BINARY, "{data_type}");
        }
    }
}
