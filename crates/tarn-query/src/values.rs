//! How does a stored value look in SQL?
//!
//! Storage has `Utf8` and `Binary`; SQL has their view forms, as the Parquet reader gives them. Everything else is the
//! same type.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef};
use datafusion::scalar::ScalarValue;
use parking_lot::Mutex;
use tarn_types::{DataType, TableId, TableSchema, Value, arrow_type};

/// Schemas as SQL sees them, kept while their table is as it is: making one of 20,000 columns anew for every statement
/// is slow.
#[derive(Default)]
pub(crate) struct SqlSchemas {
    /// By table and whether with `__seqno`. Locked only to look up and insert.
    known: Mutex<HashMap<(TableId, bool), CachedSchema>>,
}

/// A schema, and of which table it is one.
type CachedSchema = (Weak<TableSchema>, SchemaRef);

impl SqlSchemas {
    pub(crate) fn of(&self, table: &Arc<TableSchema>, with_seqno: bool) -> SchemaRef {
        let mut known = self.known.lock();
        if let Some((of, schema)) = known.get(&(table.id, with_seqno))
            && of.as_ptr() == Arc::as_ptr(table)
        {
            return Arc::clone(schema);
        }
        known.retain(|_, (of, _)| of.strong_count() > 0);
        let schema = sql_schema(table, with_seqno);
        known.insert((table.id, with_seqno), (Arc::downgrade(table), Arc::clone(&schema)));
        schema
    }
}

/// The schema that SQL sees: the table's columns in order, strings and bytes as views; `__seqno` last if asked for, and
/// then `__row` too where the table has it.
pub fn sql_schema(table: &TableSchema, with_seqno: bool) -> SchemaRef {
    let (stored, n_columns) = match with_seqno {
        true => (table.arrow_with_seqno(), table.columns.len() + 1),
        false => (table.arrow(), table.shown().len()),
    };
    let fields = stored.fields().iter().take(n_columns);
    let fields: Vec<Field> = fields.map(|f| f.as_ref().clone().with_data_type(sql_type(f.data_type()))).collect();
    Arc::new(Schema::new(fields))
}

fn sql_type(stored: &ArrowType) -> ArrowType {
    match stored {
        ArrowType::Utf8 => ArrowType::Utf8View,
        ArrowType::Binary => ArrowType::BinaryView,
        ArrowType::List(item) => {
            let of = sql_type(item.data_type());
            ArrowType::List(Arc::new(item.as_ref().clone().with_data_type(of)))
        }
        other => other.clone(),
    }
}

/// A batch of storage types as SQL types. `schema` has the same columns in the same order.
pub(crate) fn to_sql(batch: &RecordBatch, schema: &SchemaRef) -> datafusion::error::Result<RecordBatch> {
    as_sql(batch.columns().to_vec(), batch.num_rows(), schema)
}

/// As [`to_sql`], of the columns by themselves.
pub(crate) fn as_sql(
    mut columns: Vec<ArrayRef>,
    n_rows: usize,
    schema: &SchemaRef,
) -> datafusion::error::Result<RecordBatch> {
    for (column, field) in columns.iter_mut().zip(schema.fields()) {
        if column.data_type() != field.data_type() {
            *column = cast(column, field.data_type())?;
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// A value of a column as SQL compares it. `None` for a value that is not of the column's type.
pub(crate) fn to_scalar(value: &Value, data_type: &DataType) -> Option<ScalarValue> {
    Some(match (value, data_type) {
        (Value::Bool(v), DataType::Bool) => ScalarValue::Boolean(Some(*v)),
        (Value::Int16(v), DataType::Int16) => ScalarValue::Int16(Some(*v)),
        (Value::Int32(v), DataType::Int32) => ScalarValue::Int32(Some(*v)),
        (Value::Int64(v), DataType::Int64) => ScalarValue::Int64(Some(*v)),
        (Value::Float32(v), DataType::Float32) => ScalarValue::Float32(Some(*v)),
        (Value::Float64(v), DataType::Float64) => ScalarValue::Float64(Some(*v)),
        (Value::Decimal(v), DataType::Decimal { precision, scale }) => {
            ScalarValue::Decimal128(Some(*v), *precision, *scale)
        }
        (Value::Text(v), DataType::Text)
        | (Value::Uuid(v), DataType::Uuid)
        | (Value::Json(v), DataType::Json | DataType::Jsonb) => ScalarValue::Utf8View(Some(v.clone())),
        (Value::Bytes(v), DataType::Bytes) => ScalarValue::BinaryView(Some(v.clone())),
        (Value::Inet(v), DataType::Inet) => ScalarValue::LargeBinary(Some(v.to_bytes())),
        (Value::Date(v), DataType::Date) => ScalarValue::Date32(Some(*v)),
        (Value::Time(v), DataType::Time) => ScalarValue::Time64Microsecond(Some(*v)),
        (Value::Timestamp(v), DataType::Timestamp) => ScalarValue::TimestampMicrosecond(Some(*v), None),
        (Value::Timestamp(v), DataType::TimestampTz) => match arrow_type(data_type) {
            ArrowType::Timestamp(_, zone) => ScalarValue::TimestampMicrosecond(Some(*v), zone),
            _ => return None,
        },
        (Value::Array(_), DataType::Array(_)) | (Value::Interval(_), DataType::Interval) => {
            let stored = value.to_array(data_type, 1).ok()?;
            let shown = cast(&stored, &sql_type(stored.data_type())).ok()?;
            ScalarValue::try_from_array(&shown, 0).ok()?
        }
        _ => return None,
    })
}

/// A literal that SQL compares with a column, as a value of that column. `None` when the literal has another type or is
/// NULL: then nothing may be concluded from it; nor from an array, an interval or an address, of which there are no
/// bounds.
pub(crate) fn from_scalar(scalar: &ScalarValue, data_type: &DataType) -> Option<Value> {
    if scalar.is_null() || matches!(data_type, DataType::Interval | DataType::Inet | DataType::Array(_)) {
        return None;
    }
    let stored = arrow_type(data_type);
    let same_kind = match (scalar.data_type(), &stored) {
        (ArrowType::Utf8 | ArrowType::Utf8View | ArrowType::LargeUtf8, ArrowType::Utf8) => true,
        (ArrowType::Binary | ArrowType::BinaryView, ArrowType::Binary) => true,
        (given, stored) => given == *stored,
    };
    if !same_kind {
        return None;
    }
    let array = cast(&scalar.to_array().ok()?, &stored).ok()?;
    // A text that is no canonical UUID equals no stored one, but still has a place in the order: keep it as text order
    // sees it.
    match (data_type, scalar.try_as_str().flatten()) {
        (DataType::Uuid, Some(text)) => Some(Value::Uuid(text.to_owned())),
        (DataType::Json | DataType::Jsonb, Some(text)) => Some(Value::Json(text.to_owned())),
        _ => Value::from_arrow(array.as_ref() as &dyn Array, 0, data_type).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_and_values_are_one_to_one() {
        let pairs = [
            (Value::Bool(true), DataType::Bool),
            (Value::Int16(-3), DataType::Int16),
            (Value::Int32(4), DataType::Int32),
            (Value::Int64(i64::MIN), DataType::Int64),
            (Value::Float64(1.5), DataType::Float64),
            (Value::Decimal(-1234), DataType::Decimal { precision: 15, scale: 2 }),
            (Value::Text("ä".into()), DataType::Text),
            (Value::Bytes(vec![0, 255]), DataType::Bytes),
            (Value::Date(9_000), DataType::Date),
            (Value::Time(86_399_999_999), DataType::Time),
            (Value::Timestamp(-1), DataType::Timestamp),
            (Value::Timestamp(7), DataType::TimestampTz),
            (Value::Json("{}".into()), DataType::Json),
        ];
        for (value, data_type) in pairs {
            let scalar = to_scalar(&value, &data_type).unwrap();
            assert_eq!(from_scalar(&scalar, &data_type), Some(value), "{data_type}");
        }
    }

    #[test]
    fn a_literal_of_another_type_says_nothing() {
        assert_eq!(from_scalar(&ScalarValue::Int32(Some(1)), &DataType::Int64), None);
        assert_eq!(from_scalar(&ScalarValue::Int64(None), &DataType::Int64), None);
        assert_eq!(
            from_scalar(&ScalarValue::Decimal128(Some(1), 15, 3), &DataType::Decimal { precision: 15, scale: 2 }),
            None
        );
    }
}
