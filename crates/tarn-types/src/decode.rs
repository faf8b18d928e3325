//! How do keys and cells become rows again: values for one, an Arrow batch for many?
//!
//! A column whose cell is absent was added after the row was written: it is what the column was added with
//! ([`TableSchema::missing`]), else NULL, whatever default the column has by now. Cells of columns the table does not
//! have any more are passed over.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Builder, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::cell::{Cell, typed_cell};
use crate::column_cells::ColumnWriter;
use crate::data_type::{DataType, arrow_field};
use crate::error::{Error, Result};
use crate::ids::SeqNo;
use crate::key::{KeyReader, decode_key, prefix_bytes};
use crate::row::CellReader;
use crate::schema::{TableSchema, seqno_field};
use crate::value::Value;

/// All columns of one row, in the table's order.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn decode_row(schema: &TableSchema, key: &[u8], cells: &[u8]) -> Result<Vec<Value>> {
    let missing = schema.columns.iter().map(|column| schema.missing(column.id).cloned().unwrap_or(Value::Null));
    let mut row: Vec<Value> = missing.collect();
    for (part, value) in schema.key.iter().zip(decode_key(schema, key)?) {
        row[part.column_idx] = value;
    }
    let mut reader = CellReader::new(cells)?;
    let (mut last, mut from) = (None, 0);
    while let Some(raw) = reader.next_cell()? {
        let newest = last.replace(raw.id) != Some(raw.id);
        // Ids mostly ascend with places: look on from the last one found.
        let is_it = |idx: &usize| schema.columns[*idx].id.0 == raw.id && !schema.is_key(*idx);
        let Some(idx) = (from..schema.columns.len()).chain(0..from).find(is_it) else { continue };
        from = idx;
        let data_type = &schema.columns[idx].data_type;
        let value = match raw.value {
            Some(bytes) => typed_cell(data_type, bytes)?.to_value(data_type),
            None => Some(Value::Null),
        };
        let value = value.ok_or_else(|| Error::corrupt("cells", "a text is not UTF-8"))?;
        if newest {
            row[idx] = value;
        }
    }
    reader.finish()?;
    Ok(row)
}

/// Collects rows into a batch of the storage schema: no [`Value`], no allocation per row.
///
/// Only the projected columns are decoded. A row that is corrupt spoils the batch: after an error of `push`, `finish`
/// gives an error too and the decoder is empty again.
pub struct RowDecoder {
    schema: SchemaRef,
    writers: Vec<ColumnWriter>,
    /// The batch's columns as places in `writers`; a column projected twice is built once.
    output: Vec<usize>,
    key: Vec<KeySlot>,
    /// Before the parts of a key.
    key_prefix_bytes: usize,
    /// Ascending by id.
    slots: Vec<ValueSlot>,
    seqnos: Option<Int64Builder>,
    n_rows: usize,
    spoiled: bool,
    scratch: Vec<u8>,
}

struct KeySlot {
    data_type: DataType,
    descending: bool,
    writer: Option<usize>,
}

struct ValueSlot {
    id: u32,
    data_type: DataType,
    writer: usize,
    /// Of a row without such a cell; `None`: NULL.
    missing: Option<Value>,
}

impl RowDecoder {
    /// A decoder of the columns at these places of the table, in this order (`None`: all), with
    /// [`crate::SEQNO_COLUMN`] behind when `with_seqno`. Panics when a place is beyond the table's columns.
    #[must_use]
    pub fn new(schema: &TableSchema, projection: Option<&[usize]>, with_seqno: bool) -> Self {
        let all: Vec<usize> = (0..schema.columns.len()).collect();
        let projection = projection.unwrap_or(&all);
        let mut distinct: Vec<usize> = Vec::new();
        let output = projection.iter().map(|idx| place_of(&mut distinct, *idx)).collect();
        let writer_of = |idx: usize| distinct.iter().position(|other| *other == idx);
        let mut key: Vec<KeySlot> = schema
            .key
            .iter()
            .map(|part| KeySlot {
                data_type: schema.columns[part.column_idx].data_type,
                descending: part.descending,
                writer: writer_of(part.column_idx),
            })
            .collect();
        let needed = key.iter().rposition(|slot| slot.writer.is_some()).map_or(0, |last| last + 1);
        key.truncate(needed);
        let mut slots: Vec<ValueSlot> = schema
            .value_columns()
            .filter_map(|idx| {
                let column = &schema.columns[idx];
                let missing = schema.missing(column.id).cloned();
                Some(ValueSlot { id: column.id.0, data_type: column.data_type, writer: writer_of(idx)?, missing })
            })
            .collect();
        slots.sort_by_key(|slot| slot.id);
        Self {
            schema: projected_schema(schema, projection, with_seqno),
            writers: distinct.iter().map(|idx| ColumnWriter::new(&schema.columns[*idx].data_type)).collect(),
            output,
            key,
            key_prefix_bytes: prefix_bytes(schema),
            slots,
            seqnos: with_seqno.then(Int64Builder::new),
            n_rows: 0,
            spoiled: false,
            scratch: Vec::new(),
        }
    }

    /// The schema of the batches.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many rows since the last `finish`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.n_rows
    }

    /// No rows since the last `finish`?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n_rows == 0
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn push(&mut self, key: &[u8], cells: &[u8], seqno: SeqNo) -> Result<()> {
        self.push_key_columns(key)
            .and_then(|()| self.push_value_columns(cells))
            .inspect_err(|_| self.spoiled = true)?;
        self.push_seqno(seqno);
        Ok(())
    }

    /// Adds a row of which only key columns (and the seqno) are projected: there are no cells at hand.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; [`Error::Usage`] when a value column is projected.
    pub fn push_key(&mut self, key: &[u8], seqno: SeqNo) -> Result<()> {
        if !self.slots.is_empty() {
            return Err(Error::usage("value columns are projected, and the row has only a key"));
        }
        self.push_key_columns(key).inspect_err(|_| self.spoiled = true)?;
        self.push_seqno(seqno);
        Ok(())
    }

    fn push_seqno(&mut self, seqno: SeqNo) {
        if let Some(seqnos) = &mut self.seqnos {
            seqnos.append_value(seqno.0 as i64);
        }
        self.n_rows += 1;
    }

    fn push_key_columns(&mut self, key: &[u8]) -> Result<()> {
        if self.key.is_empty() {
            return Ok(());
        }
        let mut reader = KeyReader::new(self.key_prefix_bytes, key)?;
        for slot in &self.key {
            let cell = reader.part(&slot.data_type, slot.descending, &mut self.scratch)?;
            if let Some(writer) = slot.writer {
                push_cell(&mut self.writers[writer], cell, "key", &slot.data_type)?;
            }
        }
        Ok(())
    }

    /// Cells and slots are both ascending by id: one walk over both.
    fn push_value_columns(&mut self, cells: &[u8]) -> Result<()> {
        let mut reader = CellReader::new(cells)?;
        let mut slots = self.slots.iter().peekable();
        while slots.peek().is_some() {
            let Some(raw) = reader.next_cell()? else { break };
            while let Some(slot) = slots.next_if(|slot| slot.id < raw.id) {
                push_missing(&mut self.writers[slot.writer], slot)?;
            }
            let Some(slot) = slots.next_if(|slot| slot.id == raw.id) else { continue };
            let writer = &mut self.writers[slot.writer];
            match raw.value {
                Some(bytes) => push_cell(writer, typed_cell(&slot.data_type, bytes)?, "cells", &slot.data_type)?,
                None => writer.push_null(),
            }
        }
        for slot in slots {
            push_missing(&mut self.writers[slot.writer], slot)?;
        }
        Ok(())
    }

    /// The batch of all rows since the last call; the decoder is empty afterwards and can go on.
    ///
    /// # Errors
    /// [`Error::Corrupt`] after a `push` that failed; [`Error::Arrow`] for NULL in a `NOT NULL` column.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let built: Vec<ArrayRef> = self.writers.iter_mut().map(ColumnWriter::finish).collect();
        let seqnos = self.seqnos.as_mut().map(|seqnos| Arc::new(seqnos.finish()) as ArrayRef);
        let n_rows = std::mem::take(&mut self.n_rows);
        if std::mem::take(&mut self.spoiled) {
            return Err(Error::corrupt("row", "a row of this batch could not be decoded"));
        }
        let columns = self.output.iter().map(|idx| built[*idx].clone()).chain(seqnos).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(Error::arrow("build a batch"))
    }
}

fn place_of(distinct: &mut Vec<usize>, idx: usize) -> usize {
    distinct.iter().position(|other| *other == idx).unwrap_or_else(|| {
        distinct.push(idx);
        distinct.len() - 1
    })
}

/// The storage schema of some columns of a table, in the order given, with [`crate::SEQNO_COLUMN`] behind when asked
/// for. Panics when a place is beyond the table's columns.
#[must_use]
pub fn projected_schema(schema: &TableSchema, projection: &[usize], with_seqno: bool) -> SchemaRef {
    let field = |idx: &usize| {
        let column = &schema.columns[*idx];
        arrow_field(&column.name, &column.data_type, column.nullable)
    };
    let fields: Vec<Field> = projection.iter().map(field).chain(with_seqno.then(seqno_field)).collect();
    Arc::new(Schema::new(fields))
}

#[inline]
fn push_missing(writer: &mut ColumnWriter, slot: &ValueSlot) -> Result<()> {
    match slot.missing.as_ref().map(|value| Cell::of(value, &slot.data_type)).transpose()?.flatten() {
        Some(cell) => push_cell(writer, cell, "cells", &slot.data_type),
        None => {
            writer.push_null();
            Ok(())
        }
    }
}

#[inline]
fn push_cell(writer: &mut ColumnWriter, cell: Cell<'_>, what: &'static str, data_type: &DataType) -> Result<()> {
    if writer.push(cell) { Ok(()) } else { Err(Error::corrupt(what, format!("a value is no {data_type}"))) }
}

#[cfg(test)]
mod tests;
