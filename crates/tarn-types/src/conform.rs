//! How does a batch of somebody else become rows of the table?
//!
//! By name, and without loss: a value that does not fit is an error that names its column and row, never NULL and
//! never cut. The only roundings are those of Postgres: decimals read from text, and nanoseconds to microseconds.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::compute::kernels::cmp;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType as ArrowType, Date32Type, Field, Float32Type, Float64Type, TimeUnit};
use uuid::Uuid;

use crate::array_text::NoArray;
use crate::cell::Cell;
use crate::column_cells::{ColumnWriter, checked_inets};
use crate::data_type::{DataType, ItemType, arrow_type, data_type_of, item_field};
use crate::error::{Error, Result};
use crate::infinity::midnight_us;
use crate::rules::{ColumnRules, Length};
use crate::schema::{Column, ROW_COLUMN, TableSchema};
use crate::value::{Value, is_lost_as_real};
use crate::{json, text};

/// The batch with all columns of the table, in its order and storage types ([`TableSchema::arrow`]).
///
/// Columns are found by exact name; those already of their type are not copied. A missing column is filled with its
/// default, else NULL; [`ROW_COLUMN`] with numbers that no row has. Texts are read as Postgres reads them, for every
/// type.
///
/// # Errors
/// [`Error::UnknownColumn`] for a column the table does not have, [`Error::MissingColumn`] for one that can be
/// neither NULL nor a default, [`Error::Type`] for a type that cannot become the column's, [`Error::Cell`] and
/// [`Error::Null`] for a value that cannot, [`Error::TooLong`] and [`Error::NoLabel`] for a text.
pub fn conform(batch: &RecordBatch, schema: &TableSchema) -> Result<RecordBatch> {
    for field in batch.schema_ref().fields() {
        if schema.column(field.name()).is_none() {
            return Err(Error::UnknownColumn { table: schema.name.clone(), column: field.name().clone() });
        }
    }
    let column = |column: &Column| {
        let array = match batch.schema_ref().column_with_name(&column.name) {
            Some((idx, field)) => conform_column(batch.column(idx), field, column)?,
            None => missing_column(schema, column, batch.num_rows())?,
        };
        match first_null(&array).filter(|_| !column.nullable) {
            Some(row) => Err(Error::Null { column: column.name.clone(), row }),
            None => Ok(array),
        }
    };
    let column = |(idx, of): (usize, &Column)| match schema.rules_of(idx) {
        Some(ColumnRules { length: Some(length), .. }) => fitted(&column(of)?, *length),
        Some(ColumnRules { enumerated: Some(enumerated), .. }) => {
            let texts = column(of)?;
            enumerated.check(&texts).map(|()| texts)
        }
        _ => Ok(one_of_a_kind(column(of)?, schema.is_key(idx))),
    };
    let columns = schema.columns.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(schema.arrow(), columns).map_err(Error::arrow("build a batch"))
}

/// Texts, or items that are, as their column keeps them. Most are so already.
fn fitted(array: &ArrayRef, length: Length) -> Result<ArrayRef> {
    if array.as_list_opt::<i32>().is_some() {
        return of_items(array, |items| fitted(items, length));
    }
    let texts = array.as_string::<i32>();
    if texts.iter().flatten().all(|text| length.holds(text)) {
        return Ok(Arc::clone(array));
    }
    let fitted = texts.iter().map(|text| text.map(|text| length.fit(text)).transpose());
    Ok(Arc::new(fitted.collect::<Result<StringArray>>()?))
}

/// The lists, with what becomes of their items.
fn of_items(lists: &ArrayRef, become_of: impl FnOnce(&ArrayRef) -> Result<ArrayRef>) -> Result<ArrayRef> {
    let lists = lists.as_list::<i32>();
    let ends = lists.value_offsets();
    let (first, last) = (ends[0], ends[lists.len()]);
    // Others than those of the lists may lie there.
    let items = become_of(&lists.values().slice(first as usize, (last - first) as usize))?;
    let ends = ends.iter().map(|end| end - first).collect::<Vec<_>>();
    let item = match lists.data_type() {
        ArrowType::List(item) => item.as_ref().clone().with_data_type(items.data_type().clone()).with_nullable(true),
        _ => Field::new_list_field(items.data_type().clone(), true),
    };
    let lists = ListArray::try_new(Arc::new(item), OffsetBuffer::new(ends.into()), items, lists.nulls().cloned());
    Ok(Arc::new(lists.map_err(Error::arrow("put items together"))?))
}

/// Floats that are equal have the same bits: all NaNs, and in keys, which are compared by their bytes, both zeros.
fn one_of_a_kind(array: ArrayRef, is_key: bool) -> ArrayRef {
    macro_rules! canonical {
        ($arrow:ty, $float:ty) => {{
            let floats = array.as_primitive::<$arrow>();
            let odd = |float: &$float| {
                float.is_nan() && float.to_bits() != <$float>::NAN.abs().to_bits()
                    || is_key && *float == 0.0 && float.is_sign_negative()
            };
            if !floats.values().iter().any(odd) {
                return array;
            }
            let canonical = |float: $float| match float.is_nan() {
                true => <$float>::NAN.abs(),
                false if is_key => float + 0.0,
                false => float,
            };
            Arc::new(floats.unary::<_, $arrow>(canonical))
        }};
    }
    match array.data_type() {
        ArrowType::Float32 => canonical!(Float32Type, f32),
        ArrowType::Float64 => canonical!(Float64Type, f64),
        ArrowType::List(item) if item.data_type().is_floating() => {
            // It does not fail.
            of_items(&array, |items| Ok(one_of_a_kind(Arc::clone(items), false))).unwrap_or(array)
        }
        _ => array,
    }
}

fn missing_column(schema: &TableSchema, column: &Column, n_rows: usize) -> Result<ArrayRef> {
    if column.name == ROW_COLUMN {
        // Never twice the same, on any node, and ascending here.
        return Ok(Arc::new(BinaryArray::from_iter_values((0..n_rows).map(|_| Uuid::now_v7().into_bytes()))));
    }
    match &column.default {
        Some(value) => value.to_array(&column.data_type, n_rows),
        None if column.nullable => Ok(new_null_array(&arrow_type(&column.data_type), n_rows)),
        None => Err(Error::MissingColumn { table: schema.name.clone(), column: column.name.clone() }),
    }
}

fn first_null(array: &ArrayRef) -> Option<usize> {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    (0..nulls.len()).find(|row| nulls.is_null(*row))
}

/// Item by item, as a column of such items would be. An array of several dimensions that has no items is like any other
/// without.
fn conform_lists(array: &ArrayRef, found: &Field, item: ItemType, column: &Column) -> Result<ArrayRef> {
    let lists = match array.data_type() {
        ArrowType::LargeList(found) => {
            cast(array, &ArrowType::List(Arc::clone(found))).map_err(Error::arrow("read lists"))?
        }
        _ => Arc::clone(array),
    };
    let ends = lists.as_list::<i32>().value_offsets();
    if found.data_type().is_list() && ends.first() != ends.last() {
        return Err(Error::Array { value: column.name.clone(), why: NoArray::Dimensions });
    }
    let of_item = Column { data_type: item.data_type(), nullable: true, default: None, ..column.clone() };
    let become_of = |items: &ArrayRef| match found.data_type().is_list() {
        true => Ok(new_empty_array(&arrow_type(&of_item.data_type))),
        false => conform_column(items, found, &of_item),
    };
    let conformed = of_items(&lists, become_of).map_err(|error| match error {
        // Of the array, not of its item.
        Error::Cell { column, row, source } => {
            let row = ends.partition_point(|end| (end - ends[0]) as usize <= row).saturating_sub(1);
            Error::Cell { column, row, source }
        }
        other => other,
    });
    let lists = conformed?;
    let (_, offsets, items, nulls) = lists.as_list::<i32>().clone().into_parts();
    Ok(Arc::new(ListArray::new(item_field(item), offsets, items, nulls)))
}

/// How a source column becomes the wanted one.
enum Conversion {
    /// The bytes of addresses, which are looked at.
    Check,
    /// Cast: values out of range become NULL in the kernel, which we then find.
    Cast,
    /// Cast, and no number may become infinite or zero by it.
    CastInRange,
    /// Cast, and the cast back must give the source.
    CastExactly,
    /// Read as text.
    Parse,
}

fn conform_column(array: &ArrayRef, field: &Field, column: &Column) -> Result<ArrayRef> {
    let storage = arrow_type(&column.data_type);
    let is_checked = |of: DataType| matches!(of, DataType::Inet | DataType::Uuid | DataType::Json | DataType::Jsonb);
    let is_checked = is_checked(column.data_type.item().unwrap_or(column.data_type));
    if *array.data_type() == storage && !is_checked {
        return Ok(array.clone());
    }
    if *array.data_type() == ArrowType::Null {
        return Ok(new_null_array(&storage, array.len()));
    }
    if let DataType::Array(item) = column.data_type
        && let ArrowType::List(found) | ArrowType::LargeList(found) = array.data_type()
    {
        return conform_lists(array, found, item, column);
    }
    if let ArrowType::FixedSizeBinary(16) = array.data_type()
        && column.data_type == DataType::Uuid
    {
        return Ok(uuids_of_bytes(array.as_fixed_size_binary()));
    }
    match way(field, column)? {
        Conversion::Check => Ok(Arc::new(checked_inets(array.as_binary::<i64>(), column)?)),
        Conversion::Cast => cast_safely(array, &storage, column),
        Conversion::CastExactly => {
            let out = cast_safely(array, &storage, column)?;
            check_exact(array, &out, column)?;
            Ok(out)
        }
        Conversion::CastInRange => {
            let out = cast_safely(array, &storage, column)?;
            check_range(array, &out, column)?;
            Ok(out)
        }
        Conversion::Parse => parse_column(array, column),
    }
}

fn way(field: &Field, column: &Column) -> Result<Conversion> {
    use DataType::*;
    let refused = || Error::Type {
        column: column.name.clone(),
        found: field.data_type().to_string(),
        want: column.data_type.to_string(),
    };
    // An all-null column has been dealt with, so TEXT here is a text.
    let found = data_type_of(field).map_err(|_| refused())?;
    Ok(match (found, column.data_type) {
        (Text | Uuid | Json | Jsonb, Text) | (Jsonb, Json) => Conversion::Cast,
        (Text | Uuid | Json | Jsonb, _) => Conversion::Parse,
        (Inet, Inet) => Conversion::Check,
        // Somebody else's.
        (Inet, Bytes) => Conversion::Cast,
        (Int16 | Int32 | Int64, Int16 | Int32 | Int64 | Float32 | Float64 | Decimal { .. }) => Conversion::Cast,
        (Float64 | Decimal { .. }, Float32) => Conversion::CastInRange,
        (Float32 | Float64 | Decimal { .. }, Float32 | Float64) => Conversion::Cast,
        (Float32 | Float64 | Decimal { .. }, Int16 | Int32 | Int64 | Decimal { .. }) => Conversion::CastExactly,
        (Date | Timestamp | TimestampTz, Timestamp | TimestampTz) => Conversion::Cast,
        (Bool, Bool) | (Bytes, Bytes) | (Date, Date) | (Time, Time) | (Interval, Interval) => Conversion::Cast,
        _ => return Err(refused()),
    })
}

/// A number that is too large, or too near to zero, for a `REAL`.
fn check_range(array: &ArrayRef, out: &ArrayRef, column: &Column) -> Result<()> {
    let wide = cast(array, &ArrowType::Float64).map_err(Error::arrow("read numbers"))?;
    let narrow = out.as_primitive::<Float32Type>().iter();
    let mut both = wide.as_primitive::<Float64Type>().iter().zip(narrow);
    match both.position(|(wide, narrow)| wide.zip(narrow).is_some_and(|(wide, narrow)| is_lost_as_real(wide, narrow))) {
        Some(row) => Err(does_not_fit(array, row, column)),
        None => Ok(()),
    }
}

fn cast_safely(array: &ArrayRef, storage: &ArrowType, column: &Column) -> Result<ArrayRef> {
    let from = match (array.data_type(), storage) {
        // A zone is only how an instant is shown; a time without one is UTC here.
        (ArrowType::Timestamp(unit, zone), ArrowType::Timestamp(_, wanted)) if zone.is_none() != wanted.is_none() => {
            retag_timestamp(array, *unit, wanted.clone())?
        }
        // Arrow knows no infinite days.
        (ArrowType::Date32, ArrowType::Timestamp(_, zone)) => {
            let midnights: TimestampMicrosecondArray = array.as_primitive::<Date32Type>().unary_opt(midnight_us);
            Arc::new(midnights.with_timezone_opt(zone.clone()))
        }
        _ => array.clone(),
    };
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let out = cast_with_options(&from, storage, &options).map_err(Error::arrow("cast a column"))?;
    let before = array.logical_nulls();
    let lost = |row: &usize| out.is_null(*row) && before.as_ref().is_none_or(|nulls| !nulls.is_null(*row));
    if out.null_count() > before.as_ref().map_or(0, |nulls| nulls.null_count())
        && let Some(row) = (0..out.len()).find(lost)
    {
        return Err(does_not_fit(array, row, column));
    }
    Ok(out)
}

fn retag_timestamp(array: &ArrayRef, unit: TimeUnit, zone: Option<Arc<str>>) -> Result<ArrayRef> {
    let numbers = cast(array, &ArrowType::Int64).map_err(Error::arrow("read timestamps"))?;
    cast(&numbers, &ArrowType::Timestamp(unit, zone)).map_err(Error::arrow("read timestamps"))
}

fn check_exact(array: &ArrayRef, out: &ArrayRef, column: &Column) -> Result<()> {
    let back = cast(out, array.data_type()).map_err(Error::arrow("cast a column back"))?;
    let same = cmp::not_distinct(&back, array).map_err(Error::arrow("compare a column"))?;
    if same.true_count() == same.len() {
        return Ok(());
    }
    // −0 and 0 are distinct to the kernel and the same number to us.
    let numbers = |array: &ArrayRef| cast(array, &ArrowType::Float64).map_err(Error::arrow("compare a column"));
    let is_float = array.data_type().is_floating();
    let (a, b) = if is_float { (numbers(array)?, numbers(&back)?) } else { (array.clone(), back) };
    let differs = |row: &usize| {
        let zeros = is_float
            && a.as_primitive::<Float64Type>().value(*row) == 0.0
            && b.as_primitive::<Float64Type>().value(*row) == 0.0;
        !same.value(*row) && !zeros
    };
    match (0..array.len()).find(differs) {
        Some(row) => Err(does_not_fit(array, row, column)),
        None => Ok(()),
    }
}

fn does_not_fit(array: &ArrayRef, row: usize, column: &Column) -> Error {
    let value = arrow::util::display::array_value_to_string(array, row).unwrap_or_else(|_| "a value".to_owned());
    let source = Error::Coerce { value: crate::error::shorten(&value), data_type: column.data_type.to_string() };
    Error::Cell { column: column.name.clone(), row, source: Box::new(source) }
}

fn uuids_of_bytes(array: &FixedSizeBinaryArray) -> ArrayRef {
    let mut out = ColumnWriter::new(&DataType::Uuid);
    for bytes in array.iter() {
        let pushed = bytes.and_then(|bytes| bytes.try_into().ok()).is_some_and(|bytes| out.push(Cell::Uuid(bytes)));
        if !pushed {
            out.push_null();
        }
    }
    out.finish()
}

fn parse_column(array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
    let texts = cast(array, &ArrowType::Utf8).map_err(Error::arrow("read a column as text"))?;
    let mut out = ColumnWriter::new(&column.data_type);
    for (row, text) in texts.as_string::<i32>().iter().enumerate() {
        match text {
            None => out.push_null(),
            Some(text) => push_parsed(&mut out, text, &column.data_type).map_err(|source| Error::Cell {
                column: column.name.clone(),
                row,
                source: Box::new(source),
            })?,
        }
    }
    Ok(out.finish())
}

/// As [`Value::parse`], without making a value for what needs none.
fn push_parsed(out: &mut ColumnWriter, text: &str, data_type: &DataType) -> Result<()> {
    let is_pushed = match *data_type {
        DataType::Uuid => text::parse_uuid(text).is_some_and(|uuid| out.push(Cell::Uuid(uuid.into_bytes()))),
        DataType::Json => {
            json::check(text).map_err(|fault| Error::of_json(fault, text, "JSON"))?;
            out.push(Cell::Bytes(text.as_bytes()))
        }
        _ => {
            let value = Value::parse(data_type, text)?;
            matches!(Cell::of(&value, data_type), Ok(Some(cell)) if out.push(cell))
        }
    };
    match is_pushed {
        true => Ok(()),
        false => Err(Error::Parse { value: crate::error::shorten(text), data_type: data_type.to_string() }),
    }
}

#[cfg(test)]
mod tests {

    use arrow::datatypes::Int64Type;
    use proptest::prelude::*;

    use super::*;
    use crate::test_data::{ALL_TYPES, orders, table, typed_value};

    fn one(array: ArrayRef, data_type: DataType) -> Result<ArrayRef> {
        let schema = table(&[DataType::Int32, data_type], 1, &[], 1);
        let n = array.len() as i32;
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("c1", array, true),
            ("c0", Arc::new(Int32Array::from_iter_values(0..n)), false),
        ]);
        conform(&batch.unwrap(), &schema).map(|batch| batch.column(1).clone())
    }

    #[test]
    fn columns_are_found_by_name_and_missing_ones_filled() {
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
            ("customer", Arc::new(UInt8Array::from(vec![7, 8]))),
            ("at", Arc::new(StringArray::from(vec![None, Some("2026-01-01 00:00:00+00")]))),
        ])
        .unwrap();
        let rows = conform(&batch, &orders()).unwrap();
        assert_eq!(rows.schema(), orders().arrow());
        assert_eq!(Value::from_arrow(rows.column(2), 1, &orders().columns[2].data_type).unwrap(), Value::Decimal(0));
        assert_eq!(rows.column(3).null_count(), 2);
        assert_eq!(rows.column(4).null_count(), 1);
    }

    #[test]
    fn errors_name_column_and_row() {
        let ids = Arc::new(Int64Array::from(vec![Some(1), Some(1 << 40), None])) as ArrayRef;
        let error = one(ids.clone(), DataType::Int32).unwrap_err().to_string();
        assert_eq!(error, "column c1, row 1: 1099511627776 does not fit INTEGER");
        let key =
            RecordBatch::try_from_iter_with_nullable([("customer", ids.clone(), true), ("id", ids, true)]).unwrap();
        assert_eq!(conform(&key, &orders()).unwrap_err().to_string(), "column customer is NOT NULL, row 2 has NULL");
        let texts = Arc::new(StringViewArray::from(vec!["1", "x"]));
        let error = one(texts, DataType::Int16).unwrap_err().to_string();
        assert_eq!(error, r#"column c1, row 1: "x" is not a valid SMALLINT"#);
        let other = RecordBatch::try_from_iter([("nope", Arc::new(NullArray::new(1)) as ArrayRef)]).unwrap();
        assert_eq!(conform(&other, &orders()).unwrap_err().to_string(), "table orders has no column nope");
        let error = one(Arc::new(BooleanArray::from(vec![true])), DataType::Date).unwrap_err().to_string();
        assert_eq!(error, "column c1 is Boolean, want DATE");
    }

    #[test]
    fn nans_are_one_and_keys_have_one_zero() {
        let odd = [f64::INFINITY - f64::INFINITY, -f64::NAN, f64::NAN, -0.0];
        let array = one(Arc::new(Float64Array::from(odd.to_vec())), DataType::Float64).unwrap();
        let bits: Vec<u64> = array.as_primitive::<Float64Type>().values().iter().map(|v| v.to_bits()).collect();
        assert_eq!(bits, [f64::NAN.abs().to_bits(); 3].into_iter().chain([(-0.0f64).to_bits()]).collect::<Vec<_>>());
        let key = one_of_a_kind(Arc::new(Float32Array::from(vec![-0.0f32, -1.5])), true);
        let bits: Vec<u32> = key.as_primitive::<Float32Type>().values().iter().map(|v| v.to_bits()).collect();
        assert_eq!(bits, [0, (-1.5f32).to_bits()]);
    }

    #[test]
    fn numbers_are_kept_or_refused() {
        let cents = DataType::Decimal { precision: 10, scale: 2 };
        assert!(one(Arc::new(Float64Array::from(vec![0.1, -0.0, 12.34])), cents).is_ok());
        assert!(one(Arc::new(Float64Array::from(vec![0.125])), cents).is_err());
        assert!(one(Arc::new(Float64Array::from(vec![-0.0, 3.0])), DataType::Int16).is_ok());
        assert!(one(Arc::new(Float64Array::from(vec![3.5])), DataType::Int16).is_err());
        assert!(one(Arc::new(UInt64Array::from(vec![u64::MAX])), DataType::Int64).is_err());
        let fine = Decimal128Array::from(vec![1230]).with_precision_and_scale(10, 3).unwrap();
        assert!(one(Arc::new(fine), cents).is_ok());
        let finer = Decimal128Array::from(vec![1234]).with_precision_and_scale(10, 3).unwrap();
        assert!(one(Arc::new(finer), cents).is_err());
    }

    #[test]
    fn times_and_identifiers() {
        let nanos = Arc::new(TimestampNanosecondArray::from(vec![1_999]).with_timezone("+02:00"));
        let out = one(nanos, DataType::Timestamp).unwrap();
        assert_eq!(Value::from_arrow(&out, 0, &DataType::Timestamp).unwrap(), Value::Timestamp(1));
        let days = Arc::new(Date32Array::from(vec![1, i32::MIN]));
        let out = one(days, DataType::TimestampTz).unwrap();
        assert_eq!(Value::from_arrow(&out, 0, &DataType::TimestampTz).unwrap(), Value::Timestamp(86_400_000_000));
        assert_eq!(Value::from_arrow(&out, 1, &DataType::TimestampTz).unwrap(), Value::Timestamp(i64::MIN));
        assert!(one(Arc::new(Date32Array::from(vec![i32::MAX - 1])), DataType::Timestamp).is_err());
        let shouted = Arc::new(StringArray::from(vec!["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]));
        let out = one(shouted, DataType::Uuid).unwrap();
        assert_eq!(out.as_string::<i32>().value(0), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        assert!(one(Arc::new(StringArray::from(vec!["{"])), DataType::Json).is_err());
        let raw = FixedSizeBinaryArray::try_from_iter([[0u8; 16]].into_iter()).unwrap();
        let tagged = Field::new("c", raw.data_type().clone(), true);
        assert_eq!(data_type_of(&tagged).unwrap(), DataType::Bytes);
        assert_eq!(one(Arc::new(raw), DataType::Uuid).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn text_of_any_value_conforms_to_it((data_type, value) in typed_value()) {
            // Texts are read as far as PostgreSQL's calendar goes; other writers' files may have more.
            prop_assume!(match value {
                Value::Date(days) => (-2_440_588..=2_145_031_948).contains(&days),
                Value::Timestamp(us) => (-210_866_803_200_000_000..9_223_371_331_200_000_000).contains(&us),
                _ => true,
            });
            let text = value.to_display(&data_type);
            let out = one(Arc::new(LargeStringArray::from(vec![Some(text.as_str()), None])), data_type).unwrap();
            prop_assert!(Value::from_arrow(&out, 0, &data_type).unwrap().cmp_same_type(&value).is_eq());
            prop_assert!(out.is_null(1));
        }
    }

    #[test]
    fn arrays_are_taken_item_by_item() {
        let numbers = DataType::Array(ItemType::Int32);
        let of = |array: &ArrayRef, row| Value::from_arrow(array, row, &numbers).unwrap();
        let wide = [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(2)])];
        let wide: ArrayRef = Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(wide));
        let taken = one(wide.slice(1, 3), numbers).unwrap();
        assert_eq!(*taken.data_type(), arrow_type(&numbers));
        assert_eq!(
            [of(&taken, 0), of(&taken, 1), of(&taken, 2)],
            [Value::Null, Value::Array(vec![]), Value::Array(vec![Value::Int32(2)])]
        );
        let nulls: ArrayRef = Arc::new(NullArray::new(2));
        let item = Arc::new(Field::new_list_field(ArrowType::Null, true));
        let nulls: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([0, 2]), nulls, None));
        assert_eq!(of(&one(nulls.clone(), numbers).unwrap(), 1), Value::Array(vec![Value::Null, Value::Null]));
        let large = [Some(vec![Some(1), Some(2)]), Some(vec![]), Some(vec![None, Some(1 << 40)])];
        let large: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(large));
        let error = one(large.slice(1, 2), numbers).unwrap_err().to_string();
        assert_eq!(error, "column c1, row 1: 1099511627776 does not fit INTEGER");
        let deep = Arc::new(Field::new_list_field(nulls.data_type().clone(), true));
        let deep: ArrayRef = Arc::new(ListArray::new(deep, OffsetBuffer::from_lengths([2]), nulls, None));
        assert!(matches!(one(deep.clone(), numbers), Err(Error::Array { why: NoArray::Dimensions, .. })));
        assert_eq!(one(deep.slice(0, 0), numbers).unwrap().len(), 0);
        let ids = DataType::Array(ItemType::Uuid);
        assert!(one(Arc::new(StringArray::from(vec!["{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}"])), ids).is_ok());
        assert!(one(Arc::new(StringArray::from(vec!["{x}"])), ids).is_err());
    }

    #[test]
    fn every_type_takes_an_all_null_column() {
        for data_type in ALL_TYPES {
            let out = one(Arc::new(NullArray::new(3)), data_type).unwrap();
            assert_eq!(out.data_type(), &arrow_type(&data_type));
        }
    }
}
