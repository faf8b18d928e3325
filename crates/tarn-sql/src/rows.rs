//! How do Arrow rows become Postgres rows?
//!
//! [`fields`] names the wire type of each column, [`RowWriter`] writes cells, text or binary, by column type decided
//! once a batch. Cells of arrays and rows are written by the same, in the frames of `nested.rs`.

use std::ops::Range;
use std::sync::Arc;

use arrow_pg::datatypes::{PG_OID_ALIAS_KEY, field_into_pg_type};
use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Decimal128Array, Float32Array, Float64Array,
    GenericBinaryArray, GenericListArray, GenericStringArray, Int8Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, OffsetSizeTrait, RecordBatch, StringViewArray, StringViewBuilder, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, DurationMicrosecondType, Field, Fields, IntervalUnit, Schema, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType,
};
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::messages::data::DataRow;
use postgres_types::Kind;

use tarn_types::{BARE_NUMERIC, DateForm, Enumerated, Forms, Inet, Length, Style, Zone, arrow_type, full_name};

use crate::digits::Digits;
use crate::error::{Result, SqlError, state};
use crate::names::quote;
use crate::row_type::named;
use crate::{binary, nested, text};

/// Before the text of a `jsonb` in its binary form.
const JSONB_VERSION: u8 = 1;

/// Field metadata by which storage types carry a finer SQL type (`uuid`, `json`, `jsonb`).
const TYPE_KEY: &str = "tarn.type";

/// What a column of one letter has there, which the catalog has some of: drivers read `pg_type.typtype` as such.
pub(crate) const CHAR: &str = "char";

/// What a list of small numbers has there that the catalog calls so: it is shown as `1 2`, which SQLAlchemy cuts at its
/// blanks.
pub(crate) const INT2_VECTOR: &str = "int2vector";

/// What a text has there that is a `bpchar` without a length.
const BPCHAR: &str = "bpchar";

/// Types that are written otherwise than they are called in `pg_type`.
pub(crate) const LONG_NAMES: [(&str, &str); 12] = [
    ("bigint", "int8"),
    ("boolean", "bool"),
    ("character", "bpchar"),
    ("character varying", "varchar"),
    ("double precision", "float8"),
    ("integer", "int4"),
    ("real", "float4"),
    ("smallint", "int2"),
    ("time with time zone", "timetz"),
    ("time without time zone", "time"),
    ("timestamp with time zone", "timestamptz"),
    ("timestamp without time zone", "timestamp"),
];

/// As `format_type` writes it.
pub(crate) fn long_name(of: &Type) -> String {
    let name = of.name();
    match (of.kind(), name.strip_prefix('_')) {
        (Kind::Composite(_), _) if of.oid() == Type::RECORD.oid() => name.to_owned(),
        (Kind::Enum(_) | Kind::Composite(_), _) => quote(&full_name::join(of.schema(), name)),
        (Kind::Array(item), Some(_))
            if matches!(item.kind(), Kind::Enum(_) | Kind::Composite(_)) && item.oid() != Type::RECORD.oid() =>
        {
            format!("{}[]", quote(&full_name::join(item.schema(), item.name())))
        }
        (Kind::Array(_), Some(item)) => format!("{}[]", long(item)),
        _ => long(name).to_owned(),
    }
}

fn long(name: &str) -> &str {
    LONG_NAMES.iter().find(|(_, short)| *short == name).map_or(name, |(long, _)| long)
}

/// A field whose texts are `bpchar` without a length.
pub(crate) fn bpchar(field: Field) -> Field {
    field.with_metadata([(TYPE_KEY.to_owned(), BPCHAR.to_owned())].into())
}

/// Whether they are.
pub(crate) fn is_bpchar(field: &Field) -> bool {
    field.metadata().get(TYPE_KEY).is_some_and(|of| of == BPCHAR)
}

/// Whether it is what lies between two times, which is an interval for whoever sees it.
pub(crate) fn is_between_times(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Duration(_))
}

/// The wire type of one column.
pub fn pg_type(field: &Field) -> Result<Type> {
    match field.metadata().get(TYPE_KEY).map(String::as_str) {
        Some("uuid") => return Ok(Type::UUID),
        Some("json") => return Ok(Type::JSON),
        Some("jsonb") => return Ok(Type::JSONB),
        Some(CHAR) => return Ok(Type::CHAR),
        Some(BPCHAR) => return Ok(Type::BPCHAR),
        Some(INT2_VECTOR) => return Ok(Type::INT2_VECTOR),
        _ => {}
    }
    if let Some(of) = enumerated_type(field) {
        return Ok(of);
    }
    match Length::of(field) {
        Some(Length::Varying(_)) if field.data_type().is_list() => return Ok(Type::VARCHAR_ARRAY),
        Some(Length::Varying(_)) => return Ok(Type::VARCHAR),
        Some(Length::Fixed(_)) => return Ok(Type::BPCHAR),
        None => {}
    }
    if matches!(field.data_type(), DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal256(..)) {
        return Ok(Type::NUMERIC);
    }
    match field.data_type() {
        DataType::LargeBinary => return Ok(Type::INET),
        DataType::List(item) | DataType::LargeList(item) if *item.data_type() == DataType::LargeBinary => {
            return Ok(Type::INET_ARRAY);
        }
        // Of several dimensions.
        DataType::List(item) | DataType::LargeList(item) if item.data_type().is_list() => {
            return pg_type(&item.as_ref().clone().with_name(field.name()));
        }
        DataType::List(item) | DataType::LargeList(item) => match item.metadata().get(TYPE_KEY).map(String::as_str) {
            Some("uuid") => return Ok(Type::UUID_ARRAY),
            Some("json") => return Ok(Type::JSON_ARRAY),
            Some("jsonb") => return Ok(Type::JSONB_ARRAY),
            _ if item.metadata().get(PG_OID_ALIAS_KEY).is_some_and(|kind| kind == "oid") => return Ok(Type::OID_ARRAY),
            _ => {
                if let Some(of) = enumerated_type(item) {
                    let (name, oid, schema) = (format!("_{}", of.name()), of.oid() + 1, of.schema().to_owned());
                    return Ok(Type::new(name, oid, Kind::Array(of), schema));
                }
            }
        },
        _ => {}
    }
    if let DataType::Struct(fields) = field.data_type() {
        return row_type(field.data_type(), fields);
    }
    if let DataType::List(item) | DataType::LargeList(item) = field.data_type()
        && let DataType::Struct(fields) = item.data_type()
    {
        let of = row_type(item.data_type(), fields)?;
        let (oid, schema) = match of.oid() {
            oid if oid == Type::RECORD.oid() => (Type::RECORD_ARRAY.oid(), "pg_catalog".to_owned()),
            oid => (oid + 1, of.schema().to_owned()),
        };
        return Ok(Type::new(format!("_{}", of.name()), oid, Kind::Array(of), schema));
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

/// An enumerated type, by what a field says of it. Its labels are not asked for: they are written as texts.
fn enumerated_type(field: &Field) -> Option<Type> {
    let (id, name) = Enumerated::of(field)?;
    let (schema, name) = full_name::split(name);
    Some(Type::new(name.to_owned(), id.0, Kind::Enum(vec![]), schema.to_owned()))
}

/// The type of rows of these fields. Those of a table's rows have no number of their own: to clients they are records.
fn row_type(of: &DataType, fields: &Fields) -> Result<Type> {
    let columns = fields.iter().map(|field| Ok(postgres_types::Field::new(field.name().clone(), pg_type(field)?)));
    let kind = Kind::Composite(columns.collect::<Result<_>>()?);
    Ok(match named(of) {
        Some((id, name)) if id.0 != 0 => {
            let (schema, name) = full_name::split(name);
            Type::new(name.to_owned(), id.0, kind, schema.to_owned())
        }
        _ => Type::new("record".to_owned(), Type::RECORD.oid(), kind, "pg_catalog".to_owned()),
    })
}

/// Whether values of a type are labels, which are their texts in both forms.
pub(crate) fn is_enumerated(pg_type: &Type) -> bool {
    matches!(pg_type.kind(), Kind::Enum(_))
}

/// The type of the elements of an array type.
pub fn element_of(pg_type: &Type) -> Option<&Type> {
    match pg_type.kind() {
        Kind::Array(element) => Some(element),
        _ => None,
    }
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
        let (size, modifier) = size_and_modifier(&pg_type, field);
        Ok(FieldInfo::new(field.name().clone(), None, None, pg_type, format.format_for(idx))
            .with_type_size(size)
            .with_type_modifier(modifier))
    });
    Ok(Arc::new(fields.collect::<Result<Vec<_>>>()?))
}

pub(crate) fn size_and_modifier(pg_type: &Type, field: &Field) -> (i16, i32) {
    let size = match *pg_type {
        Type::BOOL | Type::CHAR => 1,
        Type::INT2 => 2,
        Type::INT4 | Type::FLOAT4 | Type::DATE | Type::OID => 4,
        _ if is_enumerated(pg_type) => 4,
        Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
        Type::UUID | Type::INTERVAL => 16,
        _ => -1,
    };
    let modifier = match field.data_type() {
        // Also of what is described before its digits are known.
        of if Digits::of(field).is_some() || *of == arrow_type(&BARE_NUMERIC) => -1,
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            ((i32::from(*precision) << 16) | i32::from(*scale)) + 4
        }
        _ => Length::of(field).and_then(|length| i32::try_from(length.n_chars()).ok()).map_or(-1, |n| n + 4),
    };
    (size, modifier)
}

/// Values of any type as clients are shown them; in the forms of `style`.
///
/// Errors: a type without a form; a value that its form has no room for.
pub(crate) fn texts(array: &ArrayRef, field: &Field, style: &Style) -> Result<ArrayRef> {
    let column = column(array, field, &pg_type(field)?, style)?;
    let (mut texts, mut text) = (StringViewBuilder::with_capacity(array.len()), BytesMut::new());
    for row in 0..array.len() {
        text.clear();
        match column.text(row, &mut text)? {
            true => texts.append_value(String::from_utf8_lossy(&text)),
            false => texts.append_null(),
        }
    }
    Ok(Arc::new(texts.finish()))
}

/// Writes the rows of one batch.
pub struct RowWriter {
    columns: Vec<(CellColumn, FieldFormat)>,
    n_rows: usize,
}

/// The cells of one column, of one element of an array, or of one field of a row.
struct CellColumn {
    cells: CellArray,
    nulls: Option<NullBuffer>,
    name: String,
    pg_type: Type,
    forms: Forms,
}

enum CellArray {
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
    /// Each with digits of its own.
    Quotients(Decimal128Array, Digits),
    Text(GenericStringArray<i32>),
    LargeText(GenericStringArray<i64>),
    TextView(StringViewArray),
    Bytes(GenericBinaryArray<i32>),
    Inet(GenericBinaryArray<i64>),
    BytesView(BinaryViewArray),
    Date(Int32Array),
    Time(Int64Array),
    Timestamp {
        micros: Int64Array,
        zone: Option<Zone>,
    },
    Interval(IntervalMonthDayNanoArray),
    /// Microseconds between two times: whole days, and the rest.
    Duration(Int64Array),
    /// Where the elements of each cell are.
    Array {
        spans: Vec<Range<usize>>,
        elements: Box<CellColumn>,
    },
    Row(Vec<CellColumn>),
}

impl RowWriter {
    /// Prepares all columns of `batch`, whose texts are in the forms of `style`. Fails when a column's type has no wire
    /// form.
    pub fn new(batch: &RecordBatch, fields: &[FieldInfo], style: &Style) -> Result<RowWriter> {
        assert_eq!(batch.num_columns(), fields.len(), "a row description per column");
        let schema = batch.schema();
        let columns = batch.columns().iter().zip(fields).enumerate().map(|(idx, (array, field))| {
            Ok((column(array, schema.field(idx), field.datatype(), style)?, field.format()))
        });
        Ok(RowWriter { columns: columns.collect::<Result<_>>()?, n_rows: batch.num_rows() })
    }

    /// Of the batch.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// One DataRow; `buffer` is reused between rows.
    pub fn row(&self, row: usize, buffer: &mut BytesMut) -> Result<DataRow> {
        self.cells(row, buffer)?;
        Ok(DataRow::new(buffer.split(), self.columns.len() as i16))
    }

    /// Appends the cells of one row, each with its length, which of NULL is -1.
    pub fn cells(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        self.columns.iter().try_for_each(|(column, format)| column.sized(row, *format == FieldFormat::Binary, out))
    }

    /// Appends the text of one cell; false when it is NULL (nothing is appended).
    pub fn text(&self, row: usize, column: usize, out: &mut BytesMut) -> Result<bool> {
        let (column, _) = &self.columns[column];
        column.text(row, out)
    }
}

fn column(array: &ArrayRef, field: &Field, pg_type: &Type, shown: &Style) -> Result<CellColumn> {
    if let DataType::Dictionary(_, value) = array.data_type() {
        let plain = exactly(array, value, field)?;
        return column(&plain, &field.clone().with_data_type(value.as_ref().clone()), pg_type, shown);
    }
    if let Some(Length::Fixed(n)) = Length::of(field) {
        let padded = padded(array, n as usize, field)?;
        let cells = cells(&padded, field, pg_type, shown)?;
        return Ok(CellColumn {
            cells,
            nulls: padded.logical_nulls(),
            name: field.name().clone(),
            pg_type: pg_type.clone(),
            forms: shown.forms,
        });
    }
    let cells = cells(array, field, pg_type, shown)?;
    let (name, forms) = (field.name().clone(), shown.forms);
    Ok(CellColumn { cells, nulls: array.logical_nulls(), name, pg_type: pg_type.clone(), forms })
}

/// Texts of `char(n)` as they are shown: with blanks, to n characters.
fn padded(array: &ArrayRef, n_chars: usize, field: &Field) -> Result<ArrayRef> {
    let texts = exactly(array, &DataType::Utf8View, field)?;
    let padded = texts.as_string_view().iter().map(|text| text.map(|text| format!("{text:<n_chars$}")));
    Ok(Arc::new(padded.collect::<StringViewArray>()))
}

fn cells(array: &ArrayRef, field: &Field, pg_type: &Type, shown: &Style) -> Result<CellArray> {
    let as_type = |data_type: &DataType| exactly(array, data_type, field);
    let micros = |data_type: &DataType| -> Result<Int64Array> {
        Ok(exactly(&as_type(data_type)?, &DataType::Int64, field)?.as_primitive().clone())
    };
    Ok(match array.data_type() {
        DataType::Null => CellArray::Null,
        DataType::Boolean => CellArray::Bool(array.as_boolean().clone()),
        DataType::Int8 => CellArray::Int8(array.as_primitive().clone()),
        DataType::Int16 => CellArray::Int16(array.as_primitive().clone()),
        DataType::Int32 => CellArray::Int32(array.as_primitive().clone()),
        DataType::Int64 => CellArray::Int64(array.as_primitive().clone()),
        DataType::UInt8 => CellArray::UInt8(array.as_primitive().clone()),
        DataType::UInt16 => CellArray::UInt16(array.as_primitive().clone()),
        DataType::UInt32 => CellArray::UInt32(array.as_primitive().clone()),
        DataType::UInt64 => CellArray::UInt64(array.as_primitive().clone()),
        DataType::Float16 => CellArray::Float32(as_type(&DataType::Float32)?.as_primitive().clone()),
        DataType::Float32 => CellArray::Float32(array.as_primitive().clone()),
        DataType::Float64 => CellArray::Float64(array.as_primitive().clone()),
        DataType::Decimal128(_, scale) => match Digits::of(field) {
            Some(digits) => CellArray::Quotients(array.as_primitive().clone(), digits),
            None => CellArray::Decimal(array.as_primitive().clone(), *scale),
        },
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            CellArray::Decimal(as_type(&DataType::Decimal128(*precision, *scale))?.as_primitive().clone(), *scale)
        }
        DataType::Decimal256(_, scale) => {
            CellArray::Decimal(as_type(&DataType::Decimal128(38, *scale))?.as_primitive().clone(), *scale)
        }
        DataType::Utf8 => CellArray::Text(array.as_string().clone()),
        DataType::LargeUtf8 => CellArray::LargeText(array.as_string().clone()),
        DataType::Utf8View => CellArray::TextView(array.as_string_view().clone()),
        DataType::Binary => CellArray::Bytes(array.as_binary().clone()),
        DataType::LargeBinary => CellArray::Inet(array.as_binary().clone()),
        DataType::BinaryView => CellArray::BytesView(array.as_binary_view().clone()),
        DataType::FixedSizeBinary(_) => CellArray::Bytes(as_type(&DataType::Binary)?.as_binary().clone()),
        DataType::Date32 => CellArray::Date(array.as_primitive::<Date32Type>().reinterpret_cast()),
        DataType::Date64 => {
            CellArray::Date(as_type(&DataType::Date32)?.as_primitive::<Date32Type>().reinterpret_cast())
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            CellArray::Time(array.as_primitive::<Time64MicrosecondType>().reinterpret_cast())
        }
        DataType::Time32(_) | DataType::Time64(_) => CellArray::Time(micros(&DataType::Time64(TimeUnit::Microsecond))?),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => CellArray::Timestamp {
            micros: array.as_primitive::<TimestampMicrosecondType>().reinterpret_cast(),
            zone: zone.as_ref().map(|_| shown.zone.clone()),
        },
        DataType::Timestamp(_, zone) => CellArray::Timestamp {
            micros: micros(&DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?,
            zone: zone.as_ref().map(|_| shown.zone.clone()),
        },
        DataType::Interval(IntervalUnit::MonthDayNano) => CellArray::Interval(array.as_primitive().clone()),
        DataType::Interval(_) => {
            CellArray::Interval(as_type(&DataType::Interval(IntervalUnit::MonthDayNano))?.as_primitive().clone())
        }
        DataType::Duration(_) => {
            let micros = as_type(&DataType::Duration(TimeUnit::Microsecond))?;
            CellArray::Duration(micros.as_primitive::<DurationMicrosecondType>().reinterpret_cast())
        }
        DataType::List(element) => {
            list(array.as_list::<i32>(), &Digits::told_of_items(field, element), pg_type, shown)?
        }
        DataType::LargeList(element) => list(array.as_list::<i64>(), element, pg_type, shown)?,
        DataType::ListView(element) => {
            list(as_type(&DataType::List(Arc::clone(element)))?.as_list::<i32>(), element, pg_type, shown)?
        }
        DataType::LargeListView(element) => {
            list(as_type(&DataType::LargeList(Arc::clone(element)))?.as_list::<i64>(), element, pg_type, shown)?
        }
        DataType::FixedSizeList(element, length) => {
            let (list, length) = (array.as_fixed_size_list(), *length as usize);
            let spans = (0..list.len()).map(|row| row * length..(row + 1) * length).collect();
            let elements = column(list.values(), element, element_type(pg_type, element)?, shown)?;
            CellArray::Array { spans, elements: Box::new(elements) }
        }
        DataType::Struct(fields) => {
            let Kind::Composite(types) = pg_type.kind() else { return Err(no_form(field)) };
            let columns = array.as_struct().columns().iter().zip(fields).zip(types);
            let columns = columns.map(|((array, field), of)| column(array, field, of.type_(), shown));
            CellArray::Row(columns.collect::<Result<_>>()?)
        }
        _ => return Err(no_form(field)),
    })
}

fn list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    element: &Field,
    pg_type: &Type,
    shown: &Style,
) -> Result<CellArray> {
    // A slice of a list keeps the elements of all of it.
    let offsets = list.value_offsets();
    let first = offsets.first().map_or(0, |offset| offset.as_usize());
    let last = offsets.last().map_or(0, |offset| offset.as_usize());
    let elements = list.values().slice(first, last - first);
    let spans = offsets.windows(2).map(|ends| ends[0].as_usize() - first..ends[1].as_usize() - first).collect();
    let elements = column(&elements, element, element_type(pg_type, element)?, shown)?;
    Ok(CellArray::Array { spans, elements: Box::new(elements) })
}

/// That of an array in an array is the same.
fn element_type<'a>(array: &'a Type, field: &Field) -> Result<&'a Type> {
    if field.data_type().is_list() {
        return Ok(array);
    }
    element_of(array).ok_or_else(|| no_form(field))
}

fn no_form(field: &Field) -> SqlError {
    SqlError::unsupported(
        format!("result type {} of column \"{}\"", field.data_type(), field.name()),
        "cast it to text",
    )
}

/// What the wire has no room for is an error: a safe cast would make it NULL, which here is shown as zero.
fn exactly(array: &ArrayRef, data_type: &DataType, field: &Field) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, data_type, &options).map_err(|error| {
        let message = format!("a value of column \"{}\" is out of range: {error}", field.name());
        SqlError::new(state::NUMERIC_OUT_OF_RANGE, message)
    })
}

impl CellColumn {
    fn is_null(&self, row: usize) -> bool {
        matches!(self.cells, CellArray::Null) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// With its length, which of NULL is -1.
    fn sized(&self, row: usize, is_binary: bool, out: &mut BytesMut) -> Result<()> {
        let start = out.len();
        out.put_i32(-1);
        let is_there = if is_binary { self.binary(row, out)? } else { self.text(row, out)? };
        if is_there {
            let length = (out.len() - start - 4) as i32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(())
    }

    /// False when it is NULL: nothing is appended.
    fn text(&self, row: usize, out: &mut BytesMut) -> Result<bool> {
        if self.is_null(row) {
            return Ok(false);
        }
        match &self.cells {
            CellArray::Null => {}
            CellArray::Bool(a) => text::boolean(out, a.value(row)),
            CellArray::Int8(a) => text::integer(out, a.value(row).into()),
            CellArray::Int16(a) => text::integer(out, a.value(row).into()),
            CellArray::Int32(a) => text::integer(out, a.value(row).into()),
            CellArray::Int64(a) => text::integer(out, a.value(row)),
            CellArray::UInt8(a) => text::integer(out, a.value(row).into()),
            CellArray::UInt16(a) => text::integer(out, a.value(row).into()),
            CellArray::UInt32(a) => text::integer(out, a.value(row).into()),
            CellArray::UInt64(a) => text::decimal(out, a.value(row).into(), 0),
            CellArray::Float32(a) => text::float32(out, a.value(row), self.forms.float_digits),
            CellArray::Float64(a) => text::float64(out, a.value(row), self.forms.float_digits),
            CellArray::Decimal(a, scale) => text::decimal(out, a.value(row), *scale),
            CellArray::Quotients(a, digits) => {
                let (value, scale) = digits.shown(a.value(row));
                text::decimal(out, value, scale);
            }
            CellArray::Text(a) => out.put_slice(a.value(row).as_bytes()),
            CellArray::LargeText(a) => out.put_slice(a.value(row).as_bytes()),
            CellArray::TextView(a) => out.put_slice(a.value(row).as_bytes()),
            CellArray::Bytes(a) => text::bytea(out, a.value(row), self.forms.bytes),
            CellArray::Inet(a) => out.put_slice(Inet::of_row(a.value(row))?.to_string().as_bytes()),
            CellArray::BytesView(a) => text::bytea(out, a.value(row), self.forms.bytes),
            CellArray::Date(a) => text::date(out, a.value(row), self.forms),
            CellArray::Time(a) => text::time(out, a.value(row)),
            CellArray::Timestamp { micros, zone } => {
                self.check_letters(zone.as_ref())?;
                text::timestamp(out, micros.value(row), zone.as_ref(), self.forms);
            }
            CellArray::Interval(a) => {
                let value = a.value(row);
                text::interval(out, value.months, value.days, value.nanoseconds / 1_000, self.forms.intervals);
            }
            CellArray::Duration(a) => {
                let (days, us) = days_and_rest(a.value(row));
                text::interval(out, 0, days, us, self.forms.intervals);
            }
            CellArray::Array { spans, elements } if self.pg_type == Type::INT2_VECTOR => {
                for (nth, element) in spans[row].clone().enumerate() {
                    if nth > 0 {
                        out.put_u8(b' ');
                    }
                    elements.text(element, out)?;
                }
            }
            CellArray::Array { spans, elements } if !matches!(elements.cells, CellArray::Array { .. }) => {
                nested::array_text(out, spans[row].clone(), |element, out| elements.text(element, out))?;
            }
            CellArray::Array { .. } => match self.shape(row)?.is_empty() {
                true => out.put_slice(b"{}"),
                false => self.arrays_text(row, out)?,
            },
            CellArray::Row(fields) => {
                nested::row_text(out, fields.len(), |field, out| fields[field].text(row, out))?;
            }
        }
        Ok(true)
    }

    /// Errors: `0A000` where the form of dates has letters for zones, which the database of zones here has not.
    fn check_letters(&self, zone: Option<&Zone>) -> Result<()> {
        match zone.filter(|zone| self.forms.dates != DateForm::Iso && zone.letters().is_none()) {
            None => Ok(()),
            Some(zone) => {
                let message = format!("a time by the clocks of {} in a DateStyle other than ISO", zone.name());
                Err(SqlError::unsupported(message, "SET DateStyle = 'ISO', or SET TIME ZONE 'UTC'"))
            }
        }
    }

    /// False when it is NULL: nothing is appended.
    fn binary(&self, row: usize, out: &mut BytesMut) -> Result<bool> {
        if self.is_null(row) {
            return Ok(false);
        }
        match &self.cells {
            CellArray::Null => {}
            CellArray::Bool(a) => out.put_u8(a.value(row).into()),
            CellArray::Int8(a) => out.put_i16(a.value(row).into()),
            CellArray::Int16(a) => out.put_i16(a.value(row)),
            CellArray::Int32(a) => out.put_i32(a.value(row)),
            CellArray::Int64(a) => out.put_i64(a.value(row)),
            CellArray::UInt8(a) => out.put_i16(a.value(row).into()),
            CellArray::UInt16(a) => out.put_i32(a.value(row).into()),
            CellArray::UInt32(a) => out.put_i64(a.value(row).into()),
            CellArray::UInt64(a) => numeric(out, a.value(row).into(), 0),
            CellArray::Float32(a) => out.put_f32(a.value(row)),
            CellArray::Float64(a) => out.put_f64(a.value(row)),
            CellArray::Decimal(a, scale) => numeric(out, a.value(row), *scale),
            CellArray::Quotients(a, digits) => {
                let (value, scale) = digits.shown(a.value(row));
                numeric(out, value, scale);
            }
            CellArray::Text(a) => self.binary_text(a.value(row), out)?,
            CellArray::LargeText(a) => self.binary_text(a.value(row), out)?,
            CellArray::TextView(a) => self.binary_text(a.value(row), out)?,
            CellArray::Bytes(a) => out.put_slice(a.value(row)),
            CellArray::Inet(a) => binary::put_inet(out, &Inet::of_row(a.value(row))?),
            CellArray::BytesView(a) => out.put_slice(a.value(row)),
            CellArray::Date(a) => out.put_i32(binary::date_of(a.value(row))),
            CellArray::Time(a) => out.put_i64(a.value(row)),
            CellArray::Timestamp { micros, .. } => out.put_i64(binary::timestamp_of(micros.value(row))),
            CellArray::Interval(a) => {
                let value = a.value(row);
                interval(out, value.months, value.days, value.nanoseconds / 1_000);
            }
            CellArray::Duration(a) => {
                let (days, us) = days_and_rest(a.value(row));
                interval(out, 0, days, us);
            }
            CellArray::Array { .. } => {
                let shape = self.shape(row)?;
                let (elements, span) = self.innermost(row);
                let span = if shape.is_empty() { 0..0 } else { span };
                let has_null = span.clone().any(|element| elements.is_null(element));
                nested::array_binary(out, &elements.pg_type, has_null, &shape, span, |element, out| {
                    elements.sized(element, true, out)
                })?;
            }
            CellArray::Row(fields) => {
                let types = fields.iter().map(|field| &field.pg_type);
                nested::row_binary(out, types, |field, out| fields[field].sized(row, true, out))?;
            }
        }
        Ok(true)
    }

    /// How many items an array has in each dimension; none if it has none at all.
    ///
    /// Errors: `2202E` for arrays in it that have no items or are not of one shape, `22004` for those that are NULL,
    /// `54000` for too many dimensions.
    fn shape(&self, row: usize) -> Result<Vec<usize>> {
        let mut shape = vec![];
        self.add_shape(row, 0, &mut shape)?;
        if shape.len() > nested::MAX_DIMENSIONS {
            let message =
                format!("number of array dimensions exceeds the maximum allowed ({})", nested::MAX_DIMENSIONS);
            return Err(SqlError::new(state::PROGRAM_LIMIT, message));
        }
        Ok(if shape.contains(&0) { vec![] } else { shape })
    }

    fn add_shape(&self, row: usize, dimension: usize, shape: &mut Vec<usize>) -> Result<()> {
        let CellArray::Array { spans, elements } = &self.cells else { return Ok(()) };
        let refused = |state: &'static str, what: &str| Err(SqlError::new(state, format!("cannot accumulate {what}")));
        let length = spans[row].len();
        match shape.get(dimension) {
            _ if self.is_null(row) => return refused(state::NULL_VALUE_NOT_ALLOWED, "null arrays"),
            _ if dimension > 0 && length == 0 => return refused(state::ARRAY_SUBSCRIPT, "empty arrays"),
            None => shape.push(length),
            Some(first) if *first == length => {}
            Some(_) => return refused(state::ARRAY_SUBSCRIPT, "arrays of different dimensionality"),
        }
        spans[row].clone().try_for_each(|element| elements.add_shape(element, dimension + 1, shape))
    }

    /// The items of an array of any number of dimensions, which lie behind each other.
    fn innermost(&self, row: usize) -> (&CellColumn, Range<usize>) {
        let (mut column, mut span) = (self, row..row + 1);
        while let CellArray::Array { spans, elements } = &column.cells {
            span = match span.is_empty() {
                true => 0..0,
                false => spans[span.start].start..spans[span.end - 1].end,
            };
            column = elements;
        }
        (column, span)
    }

    /// `{{1,2},{3,4}}`
    fn arrays_text(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        let CellArray::Array { spans, elements } = &self.cells else { return Ok(()) };
        if !matches!(elements.cells, CellArray::Array { .. }) {
            return nested::array_text(out, spans[row].clone(), |element, out| elements.text(element, out));
        }
        out.put_u8(b'{');
        for (nth, element) in spans[row].clone().enumerate() {
            if nth > 0 {
                out.put_u8(b',');
            }
            elements.arrays_text(element, out)?;
        }
        out.put_u8(b'}');
        Ok(())
    }

    fn binary_text(&self, value: &str, out: &mut BytesMut) -> Result<()> {
        if self.pg_type == Type::JSONB {
            out.put_u8(JSONB_VERSION);
        }
        if self.pg_type != Type::UUID {
            out.put_slice(value.as_bytes());
            return Ok(());
        }
        let id = uuid::Uuid::parse_str(value).map_err(|_| {
            SqlError::new(
                state::DATA_CORRUPTED,
                format!("column \"{}\" holds \"{value}\", which is no uuid", self.name),
            )
        })?;
        out.put_slice(id.as_bytes());
        Ok(())
    }
}

/// As Postgres takes one time from another: in days of 24 hours, with what is left.
pub(crate) fn days_and_rest(us: i64) -> (i32, i64) {
    const DAY_US: i64 = 86_400_000_000;
    ((us / DAY_US) as i32, us % DAY_US)
}

/// Postgres' binary interval.
fn interval(out: &mut BytesMut, months: i32, days: i32, micros: i64) {
    out.put_i64(micros);
    out.put_i32(days);
    out.put_i32(months);
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
