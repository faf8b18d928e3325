//! How do lines of text become Arrow columns of a table? CSV and NDJSON are read line by line into text columns, which
//! are then converted column by column, so that a value that does not fit is named by file, line and column.
//!
//! An empty CSV field is NULL, except in a text column that may not be NULL, where it is the empty text.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use arrow::array::{Array, ArrayRef, BinaryBuilder, ListArray, NullBufferBuilder, StringArray, StringBuilder};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

/// Text of one batch: a column per field of `schema`, and the line on which each row began (from 1).
struct Lines {
    columns: Vec<StringBuilder>,
    numbers: Vec<u64>,
}

impl Lines {
    fn new(n_columns: usize) -> Lines {
        Lines { columns: (0..n_columns).map(|_| StringBuilder::new()).collect(), numbers: Vec::new() }
    }
}

/// Calls `take` with each batch of up to `batch_rows` rows of a CSV file with a header line, and with the bytes read so
/// far.
///
/// Columns are matched by name; columns of the table that the header does not name are left out of the batches.
pub fn csv(
    name: &str,
    input: impl Read,
    schema: &Schema,
    batch_rows: usize,
    delimiter: u8,
    mut take: impl FnMut(RecordBatch, u64) -> Result<()>,
) -> Result<()> {
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(input);
    let header = reader.headers().map_err(|error| at_line(name, 1, error))?.clone();
    let wanted = Arc::new(named_fields(header.iter().map(str::trim), schema).map_err(|error| at_line(name, 1, error))?);
    let mut lines = Lines::new(wanted.fields().len());
    let mut record = csv::ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(|error| csv_error(name, &error))? {
        let number = record.position().map_or(0, csv::Position::line);
        for ((bytes, column), field) in record.iter().zip(&mut lines.columns).zip(wanted.fields()) {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| anyhow!("{name}, line {number}, column {}: not UTF-8", field.name()))?;
            let is_text = matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
            if text.is_empty() && (field.is_nullable() || !is_text) {
                column.append_null()
            } else {
                column.append_value(text)
            }
        }
        lines.numbers.push(number);
        if lines.numbers.len() == batch_rows {
            take(convert(name, &wanted, &mut lines)?, reader.position().byte())?;
        }
    }
    if !lines.numbers.is_empty() {
        take(convert(name, &wanted, &mut lines)?, reader.position().byte())?;
    }
    Ok(())
}

/// The same for newline-delimited JSON: one object a line; absent fields are NULL, nested values become JSON text,
/// those of arrays their items.
pub fn ndjson(
    name: &str,
    input: impl Read,
    schema: &SchemaRef,
    batch_rows: usize,
    mut take: impl FnMut(RecordBatch, u64) -> Result<()>,
) -> Result<()> {
    let mut reader = BufReader::with_capacity(1 << 20, input);
    let mut lines = Lines::new(schema.fields().len());
    let (mut line, mut number, mut bytes_read) = (String::new(), 0, 0);
    loop {
        line.clear();
        let length = reader.read_line(&mut line).with_context(|| format!("{name}, line {}", number + 1))?;
        number += 1;
        bytes_read += length as u64;
        if length > 0 && !line.trim().is_empty() {
            append_object(name, number, &line, schema, &mut lines)?;
        }
        if lines.numbers.len() == batch_rows || (length == 0 && !lines.numbers.is_empty()) {
            take(convert(name, schema, &mut lines)?, bytes_read)?;
        }
        if length == 0 {
            return Ok(());
        }
    }
}

fn append_object(name: &str, number: u64, line: &str, schema: &Schema, lines: &mut Lines) -> Result<()> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line)
        .map_err(|error| anyhow!("{name}, line {number}, column {}: not a JSON object: {error}", error.column()))?;
    if let Some(stranger) = object.keys().find(|key| schema.index_of(key).is_err()) {
        bail!("{name}, line {number}, column {stranger}: the table has no such column; it has {}", names(schema));
    }
    for (field, column) in schema.fields().iter().zip(&mut lines.columns) {
        match object.get(field.name()) {
            None | Some(serde_json::Value::Null) => column.append_null(),
            Some(serde_json::Value::String(text)) => column.append_value(text),
            Some(other) => column.append_value(other.to_string()),
        }
    }
    lines.numbers.push(number);
    Ok(())
}

/// The fields of `schema` that a header names, in the header's order.
fn named_fields<'a>(header: impl Iterator<Item = &'a str>, schema: &Schema) -> Result<Schema> {
    let mut fields = Vec::new();
    for name in header {
        let field = schema.fields().iter().find(|field| field.name().eq_ignore_ascii_case(name));
        let field =
            field.with_context(|| format!("column {name}: the table has no such column; it has {}", names(schema)))?;
        if fields.contains(field) {
            bail!("column {name} stands twice in the header");
        }
        fields.push(field.clone());
    }
    Ok(Schema::new(fields))
}

fn names(schema: &Schema) -> String {
    schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}

fn at_line(name: &str, line: u64, error: impl Display) -> anyhow::Error {
    anyhow!("{name}, line {line}: {error}")
}

fn csv_error(name: &str, error: &csv::Error) -> anyhow::Error {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            at_line(name, pos.as_ref().map_or(0, csv::Position::line), format!("{len} columns, want {expected_len}"))
        }
        _ => match error.position() {
            Some(position) => at_line(name, position.line(), error),
            None => anyhow!("{name}: {error}"),
        },
    }
}

/// Turns the waiting text into a batch and empties it.
fn convert(name: &str, schema: &SchemaRef, lines: &mut Lines) -> Result<RecordBatch> {
    let numbers = std::mem::take(&mut lines.numbers);
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (field, builder) in schema.fields().iter().zip(&mut lines.columns) {
        let text = builder.finish();
        let column = convert_column(&text, field).map_err(|bad| {
            let number = numbers.get(bad.row_idx).copied().unwrap_or_default();
            anyhow!("{name}, line {number}, column {}: {}", field.name(), bad.reason)
        })?;
        columns.push(column);
    }
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// A value that does not fit its column.
#[derive(Debug)]
struct BadValue {
    row_idx: usize,
    reason: String,
}

fn convert_column(text: &StringArray, field: &Field) -> Result<ArrayRef, BadValue> {
    if let Some(row_idx) = (!field.is_nullable()).then(|| (0..text.len()).find(|idx| text.is_null(*idx))).flatten() {
        return Err(BadValue { row_idx, reason: "is empty, but the column is NOT NULL".into() });
    }
    let converted = match field.data_type() {
        DataType::Utf8 => Arc::new(text.clone()),
        DataType::Binary => bytea(text)?,
        DataType::List(item) => arrays(text, item)?,
        other => {
            let options = CastOptions { safe: true, ..CastOptions::default() };
            cast_with_options(text, other, &options)
                .map_err(|error| BadValue { row_idx: 0, reason: error.to_string() })?
        }
    };
    match (0..text.len()).find(|idx| converted.is_null(*idx) && !text.is_null(*idx)) {
        Some(row_idx) => Err(BadValue {
            row_idx,
            reason: format!("'{}' is not a {}", shortened(text.value(row_idx)), sql_name(field.data_type())),
        }),
        None => Ok(converted),
    }
}

/// Arrays as PostgreSQL writes them, `{1,NULL}`, or as JSON does, `[1, null]`.
fn arrays(text: &StringArray, item: &FieldRef) -> Result<ArrayRef, BadValue> {
    let (mut items, mut rows) = (StringBuilder::new(), Vec::new());
    let (mut lengths, mut nulls) = (Vec::with_capacity(text.len()), NullBufferBuilder::new(text.len()));
    for (row_idx, value) in text.iter().enumerate() {
        let read = value.map(|value| items_of(value).map_err(|reason| BadValue { row_idx, reason })).transpose()?;
        nulls.append(read.is_some());
        let read = read.unwrap_or_default();
        lengths.push(read.len());
        rows.extend(std::iter::repeat_n(row_idx, read.len()));
        read.into_iter().for_each(|item| items.append_option(item));
    }
    let items = convert_column(&items.finish(), item)
        .map_err(|bad| BadValue { row_idx: rows.get(bad.row_idx).copied().unwrap_or_default(), ..bad })?;
    let lists = ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, nulls.finish());
    Ok(Arc::new(lists.map_err(|error| BadValue { row_idx: 0, reason: error.to_string() })?))
}

fn items_of(text: &str) -> Result<Vec<Option<String>>, String> {
    use serde_json::Value;
    if let Ok(Value::Array(items)) = serde_json::from_str(text) {
        let item = |item| match item {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        return Ok(items.into_iter().map(item).collect());
    }
    let items = tarn_types::array_items(text).map_err(|why| format!("'{}' is no array: {why}", shortened(text)))?;
    Ok(items.into_iter().map(|item| item.map(Cow::into_owned)).collect())
}

/// `\x0aff` as Postgres writes bytes.
fn bytea(text: &StringArray) -> Result<ArrayRef, BadValue> {
    let mut builder = BinaryBuilder::new();
    for (row_idx, value) in text.iter().enumerate() {
        match value.map(|value| (value, unhex(value))) {
            None => builder.append_null(),
            Some((_, Some(bytes))) => builder.append_value(bytes),
            Some((value, None)) => {
                return Err(BadValue {
                    row_idx,
                    reason: format!("'{}' is not a bytea (write \\x0aff)", shortened(value)),
                });
            }
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).map(|value| value as u8);
    let pairs = digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?));
    pairs.collect()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 40 { text.to_owned() } else { text.chars().take(40).chain(['…']).collect() }
}

/// The name of a column's type as SQL writes it.
pub fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "boolean".into(),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint".into(),
        DataType::Int32 | DataType::UInt16 => "integer".into(),
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => "bigint".into(),
        DataType::Float16 | DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => {
            format!("decimal({precision},{scale})")
        }
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time".into(),
        DataType::Timestamp(_, None) => "timestamp".into(),
        DataType::Timestamp(_, Some(_)) => "timestamptz".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytea".into()
        }
        DataType::List(item) | DataType::LargeList(item) => format!("{}[]", sql_name(item.data_type())),
        _ => "text".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{Decimal128Type, Int64Type, TimeUnit};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, true),
            Field::new("fare", DataType::Decimal128(10, 2), true),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
            Field::new("raw", DataType::Binary, true),
            Field::new("on", DataType::Boolean, true),
        ]))
    }

    fn read_csv(text: &str) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        csv("f.csv", text.as_bytes(), &schema(), 2, b',', |batch, _| {
            batches.push(batch);
            Ok(())
        })?;
        Ok(batches)
    }

    #[test]
    fn csv_columns_are_matched_by_name_and_typed() {
        let batches =
            read_csv("fare,id,at,raw,on\n12.50,1,2026-11-01 08:00:00Z,\\x0aff,true\n,2,,,f\n1,3,,,\n").unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(batches[0].column_by_name("fare").unwrap().as_primitive::<Decimal128Type>().value(0), 1250);
        assert_eq!(batches[0].column_by_name("id").unwrap().as_primitive::<Int64Type>().values(), &[1, 2]);
        assert_eq!(batches[0].column_by_name("raw").unwrap().as_binary::<i32>().value(0), [0x0a, 0xff]);
        assert!(batches[0].column_by_name("fare").unwrap().is_null(1));
    }

    #[test]
    fn a_bad_value_names_file_line_and_column() {
        let text = |body: &str| read_csv(body).unwrap_err().to_string();
        assert_eq!(text("id,name\n1,\"a\nb\"\nx,c\n"), "f.csv, line 4, column id: 'x' is not a bigint");
        assert_eq!(text("id,name\n,c\n"), "f.csv, line 2, column id: is empty, but the column is NOT NULL");
        assert_eq!(text("id,name\n1,c,d\n"), "f.csv, line 2: 3 columns, want 2");
        assert!(text("id,colour\n").starts_with("f.csv, line 1: column colour: the table has no such column"));
        assert_eq!(text("id,raw\n1,zz\n"), "f.csv, line 2, column raw: 'zz' is not a bytea (write \\x0aff)");
    }

    #[test]
    fn arrays_are_read_as_postgres_or_json_writes_them() {
        let numbers = Field::new("n", DataType::new_list(DataType::Int64, true), true);
        let texts = StringArray::from(vec![Some("{1,NULL}"), Some("[2, null, \"3\"]"), None, Some("{}")]);
        let read = convert_column(&texts, &numbers).unwrap();
        let (read, items) = (read.as_list::<i32>(), read.as_list::<i32>().values().as_primitive::<Int64Type>());
        assert_eq!(items.iter().collect::<Vec<_>>(), [Some(1), None, Some(2), None, Some(3)]);
        assert_eq!((read.value_offsets(), read.is_null(2), read.is_null(3)), (&[0, 2, 5, 5, 5][..], true, false));
        for (bad, reason) in
            [("{x}", "'x' is not a bigint"), ("1", "'1' is no array: "), ("{{1}}", "'{{1}}' is no array: ")]
        {
            let bad = convert_column(&StringArray::from(vec![Some("{7}"), Some(bad)]), &numbers).unwrap_err();
            assert!(bad.row_idx == 1 && bad.reason.starts_with(reason), "{bad:?}");
        }
        assert_eq!(sql_name(numbers.data_type()), "bigint[]");
    }

    #[test]
    fn ndjson_takes_numbers_texts_and_absent_fields() {
        let mut rows = 0;
        let text = "{\"id\":1,\"fare\":12.5,\"name\":{\"a\":[1]}}\n\n{\"id\":\"2\"}\n";
        ndjson("f.json", text.as_bytes(), &schema(), 100, |batch, bytes| {
            rows += batch.num_rows();
            assert_eq!(bytes, text.len() as u64);
            assert_eq!(batch.column(1).as_string::<i32>().value(0), "{\"a\":[1]}");
            Ok(())
        })
        .unwrap();
        assert_eq!(rows, 2);
        let bad =
            |text: &str| ndjson("f.json", text.as_bytes(), &schema(), 100, |_, _| Ok(())).unwrap_err().to_string();
        assert!(
            bad("{\"id\":1}\n{\"id\":\n").starts_with("f.json, line 2, column "),
            "{}",
            bad("{\"id\":1}\n{\"id\":\n")
        );
        assert!(bad("{\"id\":1,\"x\":2}\n").starts_with("f.json, line 1, column x: the table has no such column"));
        assert_eq!(bad("{\"id\":true}\n"), "f.json, line 1, column id: 'true' is not a bigint");
    }
}
