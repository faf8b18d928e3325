//! What is the physical form of one value, whichever side it comes from, and which bytes has it in a row?
//!
//! [`Cell`] is what keys, tokens and rows are written from and read into. It borrows, so that bulk paths allocate per
//! column and batch, never per cell; [`crate::Value`] and `column_cells.rs` both give cells. So there is one codec of
//! each layout, whether rows come one by one or in columns.
//!
//! ```text
//! in a row   flags u8 (bits 4–6: the width of the value, bit 0: NULL) | value
//! an array   as bytes are: varint n | n × item, each as in a row
//! ```

use crate::data_type::{DataType as ColumnType, ItemType};
use crate::error::{Error, Result};
use crate::inet::Inet;
use crate::text;
use crate::time_text::Span;
use crate::value::Value;
use crate::wire::{Reader, put_varint};

pub(crate) const CELL_NULL: u8 = 1;
pub(crate) const WIDTH_MASK: u8 = 0x70;
const WIDTH_1: u8 = 0x10;
const WIDTH_2: u8 = 0x20;
const WIDTH_4: u8 = 0x30;
const WIDTH_8: u8 = 0x40;
pub(crate) const WIDTH_16: u8 = 0x50;
/// A varint length and that many bytes.
const WIDTH_VARIABLE: u8 = 0x60;

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
    /// Text, JSON and bytes; the bytes of an address; an array as it is stored ([`Items`]).
    Bytes(&'a [u8]),
    Uuid([u8; 16]),
    Interval(Span),
    /// Of a value; of a column it is the bytes of one.
    Inet(Inet),
    /// An array whose items are of this type, or NULL.
    Items(&'a [Value], ItemType),
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
            (Value::Interval(span), ColumnType::Interval) => Some(Self::Interval(*span)),
            (Value::Inet(inet), ColumnType::Inet) => Some(Self::Inet(*inet)),
            (Value::Array(values), ColumnType::Array(item)) => {
                values.iter().try_for_each(|value| Self::of(value, &item.data_type()).map(drop))?;
                Some(Self::Items(values, *item))
            }
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

    /// The value of a cell; `None` when the bytes are no UTF-8, or no address, where they must be.
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
            (Self::Items(values, _), _) => Value::Array(values.to_vec()),
            (Self::Bytes(stored), ColumnType::Array(item)) => {
                let value = |cell: Option<Self>| match cell {
                    Some(cell) => cell.to_value(&item.data_type()),
                    None => Some(Value::Null),
                };
                let items = Items::of(stored, *item).ok()?;
                Value::Array(items.map(|cell| value(cell.ok()?)).collect::<Option<_>>()?)
            }
            (Self::Bytes(value), ColumnType::Bytes) => Value::Bytes(value.to_vec()),
            (Self::Bytes(value), ColumnType::Inet) => Value::Inet(Inet::from_bytes(value)?),
            (Self::Bytes(value), ColumnType::Json | ColumnType::Jsonb) => {
                Value::Json(std::str::from_utf8(value).ok()?.to_owned())
            }
            (Self::Bytes(value), _) => Value::Text(std::str::from_utf8(value).ok()?.to_owned()),
            (Self::Interval(span), _) => Value::Interval(span),
            (Self::Inet(inet), _) => Value::Inet(inet),
            (Self::Uuid(bytes), _) => Value::Uuid(uuid::Uuid::from_bytes(bytes).to_string()),
        })
    }
}

/// Flags and value.
#[inline]
pub(crate) fn push_cell(out: &mut Vec<u8>, cell: Cell<'_>) {
    match cell {
        Cell::Bool(value) => out.extend_from_slice(&[WIDTH_1, u8::from(value)]),
        Cell::I16(value) => push_integer(out, i64::from(value)),
        Cell::I32(value) => push_integer(out, i64::from(value)),
        Cell::I64(value) => push_integer(out, value),
        Cell::I128(value) => match i64::try_from(value) {
            Ok(value) => push_integer(out, value),
            Err(_) => push_fixed(out, WIDTH_16, value.to_le_bytes()),
        },
        Cell::F32(value) => push_fixed(out, WIDTH_4, value.to_le_bytes()),
        Cell::F64(value) => push_fixed(out, WIDTH_8, value.to_le_bytes()),
        Cell::Uuid(bytes) => push_fixed(out, WIDTH_16, bytes),
        Cell::Interval(span) => push_fixed(out, WIDTH_16, span.to_bytes()),
        Cell::Inet(inet) => push_cell(out, Cell::Bytes(&inet.to_bytes())),
        Cell::Items(values, item) => {
            let item = item.data_type();
            let mut stored = Vec::with_capacity(2 + 4 * values.len());
            // They were held against the type when the cell was made of them.
            push_items(&mut stored, values.iter().map(|value| Cell::of(value, &item).ok().flatten()));
            push_cell(out, Cell::Bytes(&stored));
        }
        Cell::Bytes(bytes) => {
            out.push(WIDTH_VARIABLE);
            put_varint(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

#[inline]
fn push_fixed<const N: usize>(out: &mut Vec<u8>, flags: u8, bytes: [u8; N]) {
    out.push(flags);
    out.extend_from_slice(&bytes);
}

/// In the fewest bytes that keep it: most numbers are small, and every byte is written to the log, the row engine and
/// memory.
#[inline]
fn push_integer(out: &mut Vec<u8>, n: i64) {
    let bytes = n.to_le_bytes();
    if let Ok(n) = i8::try_from(n) {
        out.extend_from_slice(&[WIDTH_1, n as u8]);
    } else if i16::try_from(n).is_ok() {
        out.extend_from_slice(&[WIDTH_2, bytes[0], bytes[1]]);
    } else if let Ok(n) = i32::try_from(n) {
        push_fixed(out, WIDTH_4, n.to_le_bytes());
    } else {
        push_fixed(out, WIDTH_8, bytes);
    }
}

/// Appends an array as it is stored; NULL is `None`.
pub(crate) fn push_items<'a>(out: &mut Vec<u8>, items: impl ExactSizeIterator<Item = Option<Cell<'a>>>) {
    put_varint(out, items.len() as u64);
    for item in items {
        match item {
            Some(cell) => push_cell(out, cell),
            None => out.push(CELL_NULL),
        }
    }
}

/// The items of a stored array, in order; NULL is `None`. An error is the last.
#[derive(Clone)]
pub(crate) struct Items<'a> {
    reader: Reader<'a>,
    item: ColumnType,
    left: u64,
}

impl<'a> Items<'a> {
    /// # Errors
    /// [`Error::Corrupt`] when not even their number is there.
    pub(crate) fn of(stored: &'a [u8], item: ItemType) -> Result<Self> {
        let mut reader = Reader::new("array", stored);
        let left = reader.varint()?;
        Ok(Self { reader, item: item.data_type(), left })
    }

    fn read(&mut self) -> Result<Option<Cell<'a>>> {
        let flags = self.reader.u8()?;
        if flags == CELL_NULL {
            return Ok(None);
        }
        if flags & !WIDTH_MASK != 0 {
            return Err(self.reader.corrupt(format!("item flags {flags:#04x}")));
        }
        let bytes = value_bytes(&mut self.reader, flags)?;
        typed_cell(&self.item, bytes).map(Some)
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Option<Cell<'a>>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            // Bytes behind the last item are none of ours.
            let rest = std::mem::replace(&mut self.reader, Reader::new("array", &[]));
            return rest.finish().err().map(Err);
        }
        self.left -= 1;
        let read = self.read();
        if read.is_err() {
            self.left = 0;
            self.reader = Reader::new("array", &[]);
        }
        Some(read)
    }
}

/// The value behind these flags, which say how long it is.
#[inline]
pub(crate) fn value_bytes<'a>(reader: &mut Reader<'a>, flags: u8) -> Result<&'a [u8]> {
    match flags & WIDTH_MASK {
        WIDTH_1 => reader.take(1),
        WIDTH_2 => reader.take(2),
        WIDTH_4 => reader.take(4),
        WIDTH_8 => reader.take(8),
        WIDTH_16 => reader.take(16),
        WIDTH_VARIABLE => reader.bytes(),
        _ => Err(reader.corrupt(format!("cell flags {flags:#04x}"))),
    }
}

/// The cell of a value as it lies there. An integer may have been written by a narrower type.
#[inline]
pub(crate) fn typed_cell<'a>(data_type: &ColumnType, bytes: &'a [u8]) -> Result<Cell<'a>> {
    let cell = match data_type {
        ColumnType::Bool => match bytes {
            [0] => Some(Cell::Bool(false)),
            [1] => Some(Cell::Bool(true)),
            _ => None,
        },
        ColumnType::Int16 => integer(bytes).and_then(|n| n.try_into().ok()).map(Cell::I16),
        ColumnType::Int32 | ColumnType::Date => integer(bytes).and_then(|n| n.try_into().ok()).map(Cell::I32),
        ColumnType::Int64 | ColumnType::Time | ColumnType::Timestamp | ColumnType::TimestampTz => {
            integer(bytes).map(Cell::I64)
        }
        ColumnType::Decimal { .. } => match bytes.try_into() {
            Ok(bytes) => Some(Cell::I128(i128::from_le_bytes(bytes))),
            Err(_) => integer(bytes).map(|n| Cell::I128(i128::from(n))),
        },
        ColumnType::Float32 => bytes.try_into().ok().map(|bytes| Cell::F32(f32::from_le_bytes(bytes))),
        ColumnType::Float64 => bytes.try_into().ok().map(|bytes| Cell::F64(f64::from_le_bytes(bytes))),
        ColumnType::Uuid => bytes.try_into().ok().map(Cell::Uuid),
        ColumnType::Interval => bytes.try_into().ok().map(|bytes| Cell::Interval(Span::from_bytes(bytes))),
        ColumnType::Inet => Inet::from_bytes(bytes).map(|_| Cell::Bytes(bytes)),
        ColumnType::Text | ColumnType::Bytes | ColumnType::Json | ColumnType::Jsonb | ColumnType::Array(_) => {
            Some(Cell::Bytes(bytes))
        }
    };
    cell.ok_or_else(|| Error::corrupt("cells", format!("{} bytes are no {data_type}", bytes.len())))
}

#[inline]
fn integer(bytes: &[u8]) -> Option<i64> {
    Some(match *bytes {
        [a] => i64::from(a as i8),
        [a, b] => i64::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}
