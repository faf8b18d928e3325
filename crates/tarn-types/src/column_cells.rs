//! How do the columns of a batch give cells, and take them? Downcast once a column, with no allocation for a cell.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::*;

use crate::cell::{Cell, Items, push_items};
use crate::data_type::{DataType as ColumnType, ItemType, arrow_type, item_field};
use crate::error::{Error, Result};
use crate::ids::ColumnId;
use crate::inet::Inet;
use crate::schema::Column;
use crate::text;
use crate::time_text::Span;
use crate::value::Value;

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
    Interval(ScalarBuffer<IntervalMonthDayNano>),
    /// Each is one.
    Inet(LargeBinaryArray),
    /// As they are stored, in one allocation.
    Arrays {
        arena: Vec<u8>,
        /// Invariant: one more than there are rows, never descending, the last is the arena's length.
        offsets: Vec<usize>,
    },
}

impl ColumnReader {
    /// Reads `array` as a column of the table. Storage types are free; string and binary views, large and dictionary
    /// forms are cast once, arrays are encoded once; every other type is refused.
    ///
    /// # Errors
    /// [`Error::Type`] for another type, [`Error::Cell`] for a text that is no UUID and for bytes that are no address.
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
            ColumnType::Interval => Values::Interval(array.as_primitive::<IntervalMonthDayNanoType>().values().clone()),
            ColumnType::Inet => Values::Inet(checked_inets(array.as_binary::<i64>(), column)?),
            ColumnType::Array(item) => arrays(array.as_list::<i32>(), item, &column.name)?,
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
            Values::Interval(values) => Cell::Interval(Span::from_arrow(values[row])),
            Values::Inet(values) => Cell::Bytes(values.value(row)),
            Values::Arrays { arena, offsets } => Cell::Bytes(&arena[offsets[row]..offsets[row + 1]]),
        }
    }
}

/// The arrays of a column as they are stored.
fn arrays(lists: &ListArray, item: ItemType, name: &str) -> Result<Values> {
    let ends = lists.value_offsets();
    let (first, last) = (ends[0] as usize, ends[lists.len()] as usize);
    let items = lists.values().slice(first, last - first);
    let of_item = Column {
        id: ColumnId::default(),
        name: name.to_owned(),
        data_type: item.data_type(),
        nullable: true,
        default: None,
    };
    let items = ColumnReader::new(&items, &of_item)?;
    let mut arena = Vec::with_capacity(4 * (last - first) + lists.len());
    let mut offsets = Vec::with_capacity(lists.len() + 1);
    offsets.push(0);
    for row in 0..lists.len() {
        if lists.is_valid(row) {
            let places = ends[row] as usize - first..ends[row + 1] as usize - first;
            push_items(&mut arena, places.map(|place| (!items.is_null(place)).then(|| items.cell(place))));
        }
        offsets.push(arena.len());
    }
    Ok(Values::Arrays { arena, offsets })
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
        // What their items are is looked at when these are read.
        DataType::List(_) | DataType::LargeList(_) if matches!(storage, DataType::List(_)) => {
            return as_lists(array);
        }
        other => *other == storage,
    };
    if !same {
        return Err(Error::Type { column: column.name.clone(), found: found.to_string(), want: storage.to_string() });
    }
    cast(array, &storage).map_err(Error::arrow("cast a column to its storage type"))
}

/// Lists whose items are what they were.
fn as_lists(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::LargeList(item) => {
            cast(array, &DataType::List(item.clone())).map_err(Error::arrow("cast a column to its storage type"))
        }
        _ => Ok(array.clone()),
    }
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

/// The same bytes, each of which are an address's.
///
/// # Errors
/// [`Error::Cell`].
pub(crate) fn checked_inets(values: &LargeBinaryArray, column: &Column) -> Result<LargeBinaryArray> {
    for (row, bytes) in values.iter().enumerate() {
        if let Some(bytes) = bytes {
            Inet::of_row(bytes).map_err(|source| Error::Cell {
                column: column.name.clone(),
                row,
                source: Box::new(source),
            })?;
        }
    }
    Ok(values.clone())
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
    Interval(IntervalMonthDayNanoBuilder),
    Inet(LargeBinaryBuilder),
    Array(Box<ArrayWriter>),
}

/// Arrays being built.
pub(crate) struct ArrayWriter {
    item: ItemType,
    items: ColumnWriter,
    /// Items of each array.
    lengths: Vec<usize>,
    nulls: NullBufferBuilder,
}

impl ArrayWriter {
    fn new(item: ItemType) -> Self {
        Self {
            item,
            items: ColumnWriter::new(&item.data_type()),
            lengths: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }

    fn push_null(&mut self) {
        self.lengths.push(0);
        self.nulls.append_null();
    }

    fn push_values(&mut self, values: &[Value]) {
        for value in values {
            // They were held against the type when the cell was made of them.
            match Cell::of(value, &self.item.data_type()) {
                Ok(Some(cell)) if self.items.push(cell) => {}
                _ => self.items.push_null(),
            }
        }
        self.end_array(values.len());
    }

    /// False, and nothing is appended, when they are no items of the type.
    fn push_stored(&mut self, stored: &[u8]) -> bool {
        let Ok(items) = Items::of(stored, self.item) else { return false };
        let is_text = matches!(self.item, ItemType::Text | ItemType::Json | ItemType::Jsonb);
        let is_item = |item: Result<Option<Cell<'_>>>| match item {
            Ok(Some(Cell::Bytes(bytes))) if is_text => std::str::from_utf8(bytes).is_ok(),
            item => item.is_ok(),
        };
        if !items.clone().all(is_item) {
            return false;
        }
        let mut n_items = 0;
        for item in items.flatten() {
            n_items += 1;
            if !item.is_some_and(|cell| self.items.push(cell)) {
                self.items.push_null();
            }
        }
        self.end_array(n_items);
        true
    }

    fn end_array(&mut self, n_items: usize) {
        self.lengths.push(n_items);
        self.nulls.append_non_null();
    }

    fn finish(&mut self) -> ArrayRef {
        let offsets = OffsetBuffer::from_lengths(self.lengths.drain(..));
        Arc::new(ListArray::new(item_field(self.item), offsets, self.items.finish(), self.nulls.finish()))
    }
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
            ColumnType::Interval => Self::Interval(IntervalMonthDayNanoBuilder::new()),
            ColumnType::Inet => Self::Inet(LargeBinaryBuilder::new()),
            ColumnType::Array(item) => Self::Array(Box::new(ArrayWriter::new(*item))),
        }
    }

    /// False when the cell is of another type, or no UTF-8 or address where it must be; nothing is appended then.
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
            (Self::Interval(out), Cell::Interval(span)) => match span.to_arrow() {
                Some(interval) => out.append_value(interval),
                None => return false,
            },
            (Self::Inet(out), Cell::Inet(inet)) => out.append_value(inet.to_bytes()),
            (Self::Inet(out), Cell::Bytes(bytes)) => match Inet::from_bytes(bytes) {
                Some(_) => out.append_value(bytes),
                None => return false,
            },
            (Self::Array(out), Cell::Bytes(stored)) => return out.push_stored(stored),
            (Self::Array(out), Cell::Items(values, item)) if out.item == item => out.push_values(values),
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
            Self::Interval(out) => out.append_null(),
            Self::Inet(out) => out.append_null(),
            Self::Array(out) => out.push_null(),
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
            Self::Interval(out) => ArrayBuilder::finish(out),
            Self::Inet(out) => ArrayBuilder::finish(out),
            Self::Array(out) => out.finish(),
        }
    }
}
