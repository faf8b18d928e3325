//! How do Arrow rows become Postgres rows?
//!
//! [`fields`] names the wire type of each column, [`RowWriter`] writes cells, text or binary, by column type decided once a
//! batch. Types that Tarn's tables cannot hold (lists, structs, intervals) go through `arrow-pg`.

use std::sync::Arc;

use arrow_pg::datatypes::{PG_CHAR_KEY, field_into_pg_type};
use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Decimal128Array, Float32Array, Float64Array,
    GenericBinaryArray, GenericStringArray, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringViewArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Field, Schema, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
use pgwire::messages::data::DataRow;
use tarn_types::Zone;

use super::text;
use crate::error::{Result, SqlError, state};

/// Days and microseconds from 1970 to Postgres' epoch, 2000-01-01.
const EPOCH_DAYS: i64 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS * 86_400_000_000;

/// Field metadata by which storage types carry a finer SQL type (`uuid`, `json`).
const TYPE_KEY: &str = "tarn.type";

/// The wire type of one column.
pub fn pg_type(field: &Field) -> Result<Type> {
    match field.metadata().get(TYPE_KEY).map(String::as_str) {
        Some("uuid") => return Ok(Type::UUID),
        Some("json") => return Ok(Type::JSON),
        _ => {}
    }
    if matches!(field.data_type(), DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal256(..)) {
        return Ok(Type::NUMERIC);
    }
    // An untyped NULL: Postgres answers text.
    if field.data_type().is_null() {
        return Ok(Type::TEXT);
    }
    field_into_pg_type(&Arc::new(field.clone())).map_err(|_| {
        SqlError::unsupported(
            format!("result type {} of column \"{}\"", field.data_type(), field.name()),
            "cast it to text",
        )
    })
}

/// RowDescription of a result. `format` is what the client asked for in Bind; the simple protocol is all text.
pub fn fields(schema: &Schema, format: &Format) -> Result<Arc<Vec<FieldInfo>>> {
    if let Format::Individual(codes) = format
        && codes.len() != schema.fields().len()
    {
        return Err(SqlError::new(
            state::PROTOCOL_VIOLATION,
            format!("bind message has {} result formats but query has {} columns", codes.len(), schema.fields().len()),
        ));
    }
    let fields = schema.fields().iter().enumerate().map(|(idx, field)| {
        let pg_type = pg_type(field)?;
        let (size, modifier) = size_and_modifier(&pg_type, field.data_type());
        Ok(FieldInfo::new(field.name().clone(), None, None, pg_type, format.format_for(idx))
            .with_type_size(size)
            .with_type_modifier(modifier))
    });
    Ok(Arc::new(fields.collect::<Result<Vec<_>>>()?))
}

fn size_and_modifier(pg_type: &Type, data_type: &DataType) -> (i16, i32) {
    let size = match *pg_type {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::OID => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::UUID | Type::INTERVAL => 16,
        _ => -1,
    };
    let modifier = match data_type {
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            ((i32::from(*precision) << 16) | i32::from(*scale)) + 4
        }
        _ => -1,
    };
    (size, modifier)
}

/// Writes the rows of one batch.
pub struct RowWriter {
    columns: Vec<Column>,
    n_rows: usize,
}

struct Column {
    cells: Cells,
    array: ArrayRef,
    binary: bool,
    field: FieldInfo,
}

enum Cells {
    Null,
    Bool(BooleanArray),
    Int8(Int8Array),
    Int16(Int16Array),
    Int32(Int32Array),
    Int64(Int64Array),
    UInt8(UInt8Array),
    UInt16(UInt16Array),
    UInt32(UInt32Array),
    UInt64(UInt64Array),
    Float32(Float32Array),
    Float64(Float64Array),
    Decimal(Decimal128Array, i8),
    Text(GenericStringArray<i32>),
    LargeText(GenericStringArray<i64>),
    TextView(StringViewArray),
    Bytes(GenericBinaryArray<i32>),
    LargeBytes(GenericBinaryArray<i64>),
    BytesView(BinaryViewArray),
    Date(Int32Array),
    Time(Int64Array),
    Timestamp { micros: Int64Array, zone: Option<Zone> },
    Other(Arc<Field>),
}

impl RowWriter {
    /// Prepares all columns of `batch`; instants are written as the clocks of `zone` show them. Fails when a column's type has no wire form.
    pub fn new(batch: &RecordBatch, fields: &[FieldInfo], zone: &Zone) -> Result<RowWriter> {
        assert_eq!(batch.num_columns(), fields.len(), "a row description per column");
        let schema = batch.schema();
        let columns = batch.columns().iter().zip(fields).enumerate().map(|(idx, (array, field))| {
            let (cells, array) = column_cells(array, schema.field(idx), zone)?;
            Ok(Column { cells, array, binary: field.format() == FieldFormat::Binary, field: field.clone() })
        });
        Ok(RowWriter { columns: columns.collect::<Result<_>>()?, n_rows: batch.num_rows() })
    }

    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// One DataRow; `buffer` is reused between rows.
    pub fn row(&self, row: usize, buffer: &mut BytesMut) -> Result<DataRow> {
        for column in &self.columns {
            if column.is_null(row) {
                buffer.put_i32(-1);
                continue;
            }
            if let Cells::Other(field) = &column.cells {
                column.other(field, row, buffer)?;
                continue;
            }
            let start = buffer.len();
            buffer.put_i32(0);
            if column.binary {
                column.binary(row, buffer)?
            } else {
                column.text(row, buffer)?
            }
            let length = (buffer.len() - start - 4) as i32;
            buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(DataRow::new(buffer.split(), self.columns.len() as i16))
    }

    /// Appends the text of one cell; false when it is NULL (nothing is appended).
    pub fn text(&self, row: usize, column: usize, out: &mut BytesMut) -> Result<bool> {
        let column = &self.columns[column];
        if column.is_null(row) {
            return Ok(false);
        }
        if let Cells::Other(field) = &column.cells {
            let mut cell = BytesMut::new();
            column.other(field, row, &mut cell)?;
            out.put_slice(&cell[4..]);
        } else {
            column.text(row, out)?;
        }
        Ok(true)
    }
}

fn column_cells(array: &ArrayRef, field: &Field, shown: &Zone) -> Result<(Cells, ArrayRef)> {
    if field.metadata().contains_key(PG_CHAR_KEY) {
        return Ok((Cells::Other(Arc::new(field.clone())), array.clone()));
    }
    let as_type = |data_type: &DataType| exactly(array, data_type, field);
    let micros = |data_type: &DataType| -> Result<Int64Array> {
        Ok(exactly(&as_type(data_type)?, &DataType::Int64, field)?.as_primitive().clone())
    };
    let cells = match array.data_type() {
        DataType::Null => Cells::Null,
        DataType::Boolean => Cells::Bool(array.as_boolean().clone()),
        DataType::Int8 => Cells::Int8(array.as_primitive().clone()),
        DataType::Int16 => Cells::Int16(array.as_primitive().clone()),
        DataType::Int32 => Cells::Int32(array.as_primitive().clone()),
        DataType::Int64 => Cells::Int64(array.as_primitive().clone()),
        DataType::UInt8 => Cells::UInt8(array.as_primitive().clone()),
        DataType::UInt16 => Cells::UInt16(array.as_primitive().clone()),
        DataType::UInt32 => Cells::UInt32(array.as_primitive().clone()),
        DataType::UInt64 => Cells::UInt64(array.as_primitive().clone()),
        DataType::Float16 => Cells::Float32(as_type(&DataType::Float32)?.as_primitive().clone()),
        DataType::Float32 => Cells::Float32(array.as_primitive().clone()),
        DataType::Float64 => Cells::Float64(array.as_primitive().clone()),
        DataType::Decimal128(_, scale) => Cells::Decimal(array.as_primitive().clone(), *scale),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            Cells::Decimal(as_type(&DataType::Decimal128(*precision, *scale))?.as_primitive().clone(), *scale)
        }
        DataType::Decimal256(_, scale) => {
            Cells::Decimal(as_type(&DataType::Decimal128(38, *scale))?.as_primitive().clone(), *scale)
        }
        DataType::Utf8 => Cells::Text(array.as_string().clone()),
        DataType::LargeUtf8 => Cells::LargeText(array.as_string().clone()),
        DataType::Utf8View => Cells::TextView(array.as_string_view().clone()),
        DataType::Binary => Cells::Bytes(array.as_binary().clone()),
        DataType::LargeBinary => Cells::LargeBytes(array.as_binary().clone()),
        DataType::BinaryView => Cells::BytesView(array.as_binary_view().clone()),
        DataType::FixedSizeBinary(_) => Cells::Bytes(as_type(&DataType::Binary)?.as_binary().clone()),
        DataType::Date32 => Cells::Date(array.as_primitive::<Date32Type>().reinterpret_cast()),
        DataType::Date64 => Cells::Date(as_type(&DataType::Date32)?.as_primitive::<Date32Type>().reinterpret_cast()),
        DataType::Time64(TimeUnit::Microsecond) => {
            Cells::Time(array.as_primitive::<Time64MicrosecondType>().reinterpret_cast())
        }
        DataType::Time32(_) | DataType::Time64(_) => Cells::Time(micros(&DataType::Time64(TimeUnit::Microsecond))?),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => Cells::Timestamp {
            micros: array.as_primitive::<TimestampMicrosecondType>().reinterpret_cast(),
            zone: zone.as_ref().map(|_| shown.clone()),
        },
        DataType::Timestamp(_, zone) => Cells::Timestamp {
            micros: micros(&DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?,
            zone: zone.as_ref().map(|_| shown.clone()),
        },
        DataType::Dictionary(_, value) => {
            let plain = as_type(value)?;
            let field = field.clone().with_data_type(value.as_ref().clone());
            return column_cells(&plain, &field, shown);
        }
        _ => Cells::Other(Arc::new(field.clone())),
    };
    Ok((cells, array.clone()))
}

/// What the wire has no room for is an error: a safe cast would make it NULL, which here is shown as zero.
fn exactly(array: &ArrayRef, data_type: &DataType, field: &Field) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, data_type, &options).map_err(|error| {
        let message = format!("a value of column \"{}\" is out of range: {error}", field.name());
        SqlError::new(state::NUMERIC_OUT_OF_RANGE, message)
    })
}

impl Column {
    fn is_null(&self, row: usize) -> bool {
        matches!(self.cells, Cells::Null) || self.array.is_null(row)
    }

    fn text(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        match &self.cells {
            Cells::Null | Cells::Other(_) => {}
            Cells::Bool(a) => text::boolean(out, a.value(row)),
            Cells::Int8(a) => text::integer(out, a.value(row).into()),
            Cells::Int16(a) => text::integer(out, a.value(row).into()),
            Cells::Int32(a) => text::integer(out, a.value(row).into()),
            Cells::Int64(a) => text::integer(out, a.value(row)),
            Cells::UInt8(a) => text::integer(out, a.value(row).into()),
            Cells::UInt16(a) => text::integer(out, a.value(row).into()),
            Cells::UInt32(a) => text::integer(out, a.value(row).into()),
            Cells::UInt64(a) => text::decimal(out, a.value(row).into(), 0),
            Cells::Float32(a) => text::float32(out, a.value(row)),
            Cells::Float64(a) => text::float64(out, a.value(row)),
            Cells::Decimal(a, scale) => text::decimal(out, a.value(row), *scale),
            Cells::Text(a) => out.put_slice(a.value(row).as_bytes()),
            Cells::LargeText(a) => out.put_slice(a.value(row).as_bytes()),
            Cells::TextView(a) => out.put_slice(a.value(row).as_bytes()),
            Cells::Bytes(a) => text::bytea(out, a.value(row)),
            Cells::LargeBytes(a) => text::bytea(out, a.value(row)),
            Cells::BytesView(a) => text::bytea(out, a.value(row)),
            Cells::Date(a) => text::date(out, a.value(row).into()),
            Cells::Time(a) => text::time(out, a.value(row)),
            Cells::Timestamp { micros, zone } => text::timestamp(out, micros.value(row), zone.as_ref()),
        }
        Ok(())
    }

    fn binary(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        match &self.cells {
            Cells::Null | Cells::Other(_) => {}
            Cells::Bool(a) => out.put_u8(a.value(row).into()),
            Cells::Int8(a) => out.put_i16(a.value(row).into()),
            Cells::Int16(a) => out.put_i16(a.value(row)),
            Cells::Int32(a) => out.put_i32(a.value(row)),
            Cells::Int64(a) => out.put_i64(a.value(row)),
            Cells::UInt8(a) => out.put_i16(a.value(row).into()),
            Cells::UInt16(a) => out.put_i32(a.value(row).into()),
            Cells::UInt32(a) => out.put_i64(a.value(row).into()),
            Cells::UInt64(a) => numeric(out, a.value(row).into(), 0),
            Cells::Float32(a) => out.put_f32(a.value(row)),
            Cells::Float64(a) => out.put_f64(a.value(row)),
            Cells::Decimal(a, scale) => numeric(out, a.value(row), *scale),
            Cells::Text(a) => self.binary_text(a.value(row), out)?,
            Cells::LargeText(a) => self.binary_text(a.value(row), out)?,
            Cells::TextView(a) => self.binary_text(a.value(row), out)?,
            Cells::Bytes(a) => out.put_slice(a.value(row)),
            Cells::LargeBytes(a) => out.put_slice(a.value(row)),
            Cells::BytesView(a) => out.put_slice(a.value(row)),
            Cells::Date(a) => out.put_i32(a.value(row).saturating_sub(EPOCH_DAYS as i32)),
            Cells::Time(a) => out.put_i64(a.value(row)),
            Cells::Timestamp { micros, .. } => out.put_i64(micros.value(row).saturating_sub(EPOCH_MICROS)),
        }
        Ok(())
    }

    fn binary_text(&self, value: &str, out: &mut BytesMut) -> Result<()> {
        if *self.field.datatype() != Type::UUID {
            out.put_slice(value.as_bytes());
            return Ok(());
        }
        let id = uuid::Uuid::parse_str(value).map_err(|_| {
            SqlError::new(
                state::DATA_CORRUPTED,
                format!("column \"{}\" holds \"{value}\", which is no uuid", self.field.name()),
            )
        })?;
        out.put_slice(id.as_bytes());
        Ok(())
    }

    /// A whole cell with its length, by `arrow-pg`.
    fn other(&self, field: &Arc<Field>, row: usize, out: &mut BytesMut) -> Result<()> {
        let mut encoder = DataRowEncoder::new(Arc::new(vec![self.field.clone()]));
        arrow_pg::encoder::encode_value(&mut encoder, &self.array, row, field, &self.field).map_err(|e| {
            SqlError::new(state::FEATURE_NOT_SUPPORTED, format!("column \"{}\": {e}", self.field.name()))
        })?;
        out.put_slice(&encoder.take_row().data);
        Ok(())
    }
}

/// Postgres' binary numeric: groups of four decimal digits.
fn numeric(out: &mut BytesMut, unscaled: i128, scale: i8) {
    let mut digits = unscaled.unsigned_abs().to_string().into_bytes();
    if scale < 0 {
        digits.resize(digits.len() + usize::from(scale.unsigned_abs()), b'0');
    }
    let scale = scale.max(0) as usize;
    if digits.len() < scale {
        let mut padded = vec![b'0'; scale - digits.len()];
        padded.extend_from_slice(&digits);
        digits = padded;
    }
    let n_integer = digits.len() - scale;
    let lead = (4 - n_integer % 4) % 4;
    let trail = (4 - scale % 4) % 4;
    let all: Vec<u8> =
        std::iter::repeat_n(b'0', lead).chain(digits.iter().copied()).chain(std::iter::repeat_n(b'0', trail)).collect();
    let groups: Vec<i16> =
        all.chunks(4).map(|group| group.iter().fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0'))).collect();
    let first = groups.iter().position(|group| *group != 0).unwrap_or(groups.len());
    let last = groups.iter().rposition(|group| *group != 0).map_or(first, |idx| idx + 1);
    let weight = (n_integer + lead) as i32 / 4 - 1 - first as i32;
    let kept = &groups[first..last];
    out.put_i16(kept.len() as i16);
    out.put_i16(if kept.is_empty() { 0 } else { weight as i16 });
    out.put_u16(if unscaled < 0 { 0x4000 } else { 0 });
    out.put_u16(scale as u16);
    for group in kept {
        out.put_i16(*group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric_bytes(unscaled: i128, scale: i8) -> Vec<u8> {
        let mut out = BytesMut::new();
        numeric(&mut out, unscaled, scale);
        out.to_vec()
    }

    #[test]
    fn binary_numeric_has_postgres_groups() {
        // 12345.678: groups 1 2345 . 6780, weight 1, scale 3
        assert_eq!(numeric_bytes(12_345_678, 3), [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
        assert_eq!(numeric_bytes(0, 2), [0, 0, 0, 0, 0, 0, 0, 2]);
        // -0.0001: one group, weight -1
        assert_eq!(numeric_bytes(-1, 4), [0, 1, 0xff, 0xff, 0x40, 0, 0, 4, 0, 1]);
    }
}
