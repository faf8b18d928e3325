//! What does the row engine keep under a key? A stored row: a header, then cells by column id.
//!
//! ```text
//! stored row   version u8 = 1 | kind u8 | flags u8 | seqno u64 LE | expiry i64 LE (flag 1) | cells
//! cells        varint n | n × cell, ids never descending
//! cell         varint column id | flags u8 | timestamp i64 LE (flag 2) | expiry i64 LE (flag 4) | value
//! ```
//!
//! A cell's flags say how long its value is (bits 4–6), so cells can be merged, skipped and checked without a schema.
//! An id may come again for older versions of its cell, newest first: readers take the first. No writer makes
//! timestamps, cell expiries, cell tombstones or several versions yet; every reader passes over them rightly. Key
//! columns are not in the cells. `docs/formats/row.md` has every byte and an example.

use arrow::array::RecordBatch;

use crate::cell::{CELL_NULL, Cell, WIDTH_MASK, push_cell, value_bytes};
use crate::column_cells::ColumnReader;
use crate::error::{Error, Result};
use crate::ids::{ColumnId, SeqNo};
use crate::schema::{Column, TableSchema};
use crate::value::Value;
use crate::wire::{Reader, put_varint};

const VERSION: u8 = 1;
const HAS_EXPIRY: u8 = 1;
const HEADER_BYTES: usize = 11;

const CELL_TIMESTAMP: u8 = 2;
const CELL_EXPIRY: u8 = 4;
const CELL_TOMBSTONE: u8 = 8;
const CELL_UNKNOWN: u8 = 0x80;

/// Is a stored row there, or the mark that it was deleted?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// A row, whole.
    Live = 0,
    /// Deleted; no cells.
    Tombstone = 1,
}

/// A stored row, parsed as far as its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRow<'a> {
    /// Live or deleted.
    pub kind: RowKind,
    /// The commit position of the row.
    pub seqno: SeqNo,
    /// From when on it counts as deleted, in milliseconds since 1970-01-01 UTC.
    pub expires_ms: Option<i64>,
    /// Its cells; empty for a tombstone. Not checked here: decoding them does.
    pub cells: &'a [u8],
}

impl<'a> StoredRow<'a> {
    /// Reads what [`encode_stored`] wrote. Constant time.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new("row", bytes);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(reader.corrupt(format!("version {version}, want {VERSION}")));
        }
        let kind = match reader.u8()? {
            0 => RowKind::Live,
            1 => RowKind::Tombstone,
            other => return Err(reader.corrupt(format!("kind {other}"))),
        };
        let flags = reader.u8()?;
        if flags & !HAS_EXPIRY != 0 {
            return Err(reader.corrupt(format!("flags {flags:#04x}")));
        }
        let seqno = SeqNo(u64::from_le_bytes(reader.array()?));
        let expires_ms = if flags & HAS_EXPIRY != 0 { Some(i64::from_le_bytes(reader.array()?)) } else { None };
        let cells = reader.rest();
        if (kind == RowKind::Tombstone) != cells.is_empty() {
            return Err(reader.corrupt(format!("{kind:?} with {} bytes of cells", cells.len())));
        }
        Ok(Self { kind, seqno, expires_ms, cells })
    }

    /// Is it live at this time (milliseconds since 1970-01-01 UTC)?
    #[must_use]
    pub fn is_live(&self, now_ms: i64) -> bool {
        self.kind == RowKind::Live && self.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    }
}

/// Appends a stored row. A tombstone takes no cells, a live row takes some (of no columns, the byte 0).
pub fn encode_stored(out: &mut Vec<u8>, kind: RowKind, seqno: SeqNo, cells: &[u8], expires_ms: Option<i64>) {
    assert!((kind == RowKind::Tombstone) == cells.is_empty(), "a live row has cells, a tombstone none");
    out.reserve(HEADER_BYTES + 8 + cells.len());
    out.extend_from_slice(&[VERSION, kind as u8, if expires_ms.is_some() { HAS_EXPIRY } else { 0 }]);
    out.extend_from_slice(&seqno.0.to_le_bytes());
    if let Some(expires_ms) = expires_ms {
        out.extend_from_slice(&expires_ms.to_le_bytes());
    }
    out.extend_from_slice(cells);
}

/// The cells of a whole row: one value per column of the table, each of its column's type; those of key columns are
/// ignored.
///
/// # Errors
/// [`Error::Null`] (row 0) for NULL in a `NOT NULL` column, [`Error::Coerce`] for a value of another type,
/// [`Error::Usage`] for another number of values.
pub fn encode_cells(schema: &TableSchema, values: &[Value]) -> Result<Vec<u8>> {
    if values.len() != schema.columns.len() {
        let (given, want) = (values.len(), schema.columns.len());
        return Err(Error::usage(format!("{given} values for the {want} columns of {}", schema.name)));
    }
    let assigned: Vec<(usize, &Value)> = schema.value_columns().map(|idx| (idx, &values[idx])).collect();
    encode_assigned(schema, assigned)
}

/// The cells of a patch: what `UPDATE … SET` assigns, by place of the column, in any order.
///
/// # Errors
/// As [`encode_cells`]; [`Error::Usage`] for a key column, a column given twice or none such.
pub fn encode_patch(schema: &TableSchema, assigned: &[(usize, Value)]) -> Result<Vec<u8>> {
    for (i, (idx, _)) in assigned.iter().enumerate() {
        if *idx >= schema.columns.len() || schema.is_key(*idx) {
            return Err(Error::usage(format!("column {idx} of {} cannot be patched", schema.name)));
        }
        if assigned[..i].iter().any(|(other, _)| other == idx) {
            return Err(Error::usage(format!("column {} is assigned twice", schema.columns[*idx].name)));
        }
    }
    encode_assigned(schema, assigned.iter().map(|(idx, value)| (*idx, value)).collect())
}

fn encode_assigned(schema: &TableSchema, mut assigned: Vec<(usize, &Value)>) -> Result<Vec<u8>> {
    assigned.sort_by_key(|(idx, _)| schema.columns[*idx].id);
    let mut out = Vec::with_capacity(2 + 12 * assigned.len());
    put_varint(&mut out, assigned.len() as u64);
    for (idx, value) in assigned {
        let column = &schema.columns[idx];
        put_varint(&mut out, u64::from(column.id.0));
        match Cell::of(value, &column.data_type)? {
            Some(cell) => push_cell(&mut out, cell),
            None if column.nullable => out.push(CELL_NULL),
            None => return Err(Error::Null { column: column.name.clone(), row: 0 }),
        }
    }
    Ok(out)
}

/// The cells of the rows of a batch, in one allocation.
#[derive(Clone, Debug)]
pub struct EncodedCells {
    arena: Vec<u8>,
    /// Invariant: one more than there are rows, never descending, the last is the arena's length.
    offsets: Vec<usize>,
}

impl EncodedCells {
    /// How many rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// None at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cells of a row. Panics beyond the last.
    #[must_use]
    pub fn get(&self, row: usize) -> &[u8] {
        &self.arena[self.offsets[row]..self.offsets[row + 1]]
    }

    /// All rows in the order of the batch.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        self.offsets.windows(2).map(|ends| &self.arena[ends[0]..ends[1]])
    }

    /// The bytes of all rows together.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.arena.len()
    }
}

/// [`encode_cells`] for every row of a batch that has all value columns by name, in storage types (views and
/// dictionaries too). No allocation per row or cell.
///
/// # Errors
/// [`Error::Null`] names column and row, [`Error::MissingColumn`] and [`Error::Type`] the column.
pub fn encode_cells_columnar(schema: &TableSchema, batch: &RecordBatch) -> Result<EncodedCells> {
    let columns = schema_columns_by_id(schema)
        .into_iter()
        .map(|column| BatchColumn::new(schema, column, batch))
        .collect::<Result<Vec<_>>>()?;
    let mut count = Vec::new();
    put_varint(&mut count, columns.len() as u64);
    let n_rows = batch.num_rows();
    let mut arena = Vec::with_capacity(n_rows * (count.len() + 12 * columns.len()));
    let mut offsets = Vec::with_capacity(n_rows + 1);
    offsets.push(0);
    for row in 0..n_rows {
        arena.extend_from_slice(&count);
        for column in &columns {
            arena.extend_from_slice(&column.id);
            if column.reader.is_null(row) {
                arena.push(CELL_NULL);
            } else {
                push_cell(&mut arena, column.reader.cell(row));
            }
        }
        offsets.push(arena.len());
    }
    Ok(EncodedCells { arena, offsets })
}

fn schema_columns_by_id(schema: &TableSchema) -> Vec<&Column> {
    let mut columns: Vec<&Column> = schema.value_columns().map(|idx| &schema.columns[idx]).collect();
    columns.sort_by_key(|column| column.id);
    columns
}

struct BatchColumn {
    /// The column id as a varint.
    id: Vec<u8>,
    reader: ColumnReader,
}

impl BatchColumn {
    fn new(schema: &TableSchema, column: &Column, batch: &RecordBatch) -> Result<Self> {
        let array = batch
            .column_by_name(&column.name)
            .ok_or_else(|| Error::MissingColumn { table: schema.name.clone(), column: column.name.clone() })?;
        let reader = ColumnReader::new(array, column)?;
        if !column.nullable
            && let Some(row) = reader.first_null()
        {
            return Err(Error::Null { column: column.name.clone(), row });
        }
        let mut id = Vec::new();
        put_varint(&mut id, u64::from(column.id.0));
        Ok(Self { id, reader })
    }
}

/// Lays a patch over cells: by column id, the patch wins and takes all versions of its cell's place.
///
/// # Errors
/// [`Error::Corrupt`] when either is no cells.
pub fn patch_cells(base: &[u8], patch: &[u8]) -> Result<Vec<u8>> {
    let (mut base_cells, mut patch_cells) = (CellReader::new(base)?, CellReader::new(patch)?);
    let mut n = 0;
    let mut merged = Vec::with_capacity(base.len() + patch.len());
    let (mut old, mut new) = (base_cells.next_cell()?, patch_cells.next_cell()?);
    loop {
        let taken = match (old, new) {
            (None, None) => break,
            (Some(kept), None) => {
                old = base_cells.next_cell()?;
                kept
            }
            (Some(kept), Some(patch)) if kept.id < patch.id => {
                old = base_cells.next_cell()?;
                kept
            }
            (_, Some(patch)) => {
                new = patch_cells.next_cell()?;
                while old.is_some_and(|old| old.id == patch.id) {
                    old = base_cells.next_cell()?;
                }
                patch
            }
        };
        merged.extend_from_slice(taken.raw);
        n += 1;
    }
    base_cells.finish()?;
    patch_cells.finish()?;
    let mut out = Vec::with_capacity(merged.len() + 3);
    put_varint(&mut out, n);
    out.extend_from_slice(&merged);
    Ok(out)
}

/// The columns that cells are of, ascending.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn cell_ids(cells: &[u8]) -> Result<Vec<ColumnId>> {
    let mut reader = CellReader::new(cells)?;
    let mut ids = Vec::new();
    while let Some(cell) = reader.next_cell()? {
        ids.push(ColumnId(cell.id));
    }
    Ok(ids)
}

/// Are these well-formed cells? Looks at every cell's frame, not at its type.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn check_cells(cells: &[u8]) -> Result<()> {
    let mut reader = CellReader::new(cells)?;
    while reader.next_cell()?.is_some() {}
    reader.finish()
}

/// One cell as it lies there.
#[derive(Clone, Copy)]
pub(crate) struct RawCell<'a> {
    pub(crate) id: u32,
    /// `None` is NULL, or deleted.
    pub(crate) value: Option<&'a [u8]>,
    /// Everything from the id to the end of the value.
    raw: &'a [u8],
}

/// Reads cells one after the other, and checks their frames and their order.
pub(crate) struct CellReader<'a> {
    reader: Reader<'a>,
    left: u64,
    last_id: u32,
}

impl<'a> CellReader<'a> {
    pub(crate) fn new(cells: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new("cells", cells);
        let left = reader.varint()?;
        Ok(Self { reader, left, last_id: 0 })
    }

    #[inline]
    pub(crate) fn next_cell(&mut self) -> Result<Option<RawCell<'a>>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let start = self.reader.rest();
        let id = self.reader.varint_u32()?;
        if id < self.last_id {
            return Err(self.reader.corrupt(format!("column id {id} behind {}", self.last_id)));
        }
        self.last_id = id;
        let flags = self.reader.u8()?;
        let value = if flags & !WIDTH_MASK == 0 {
            Some(value_bytes(&mut self.reader, flags)?)
        } else {
            self.flagged_value(flags)?
        };
        let raw = &start[..start.len() - self.reader.rest().len()];
        Ok(Some(RawCell { id, value, raw }))
    }

    fn flagged_value(&mut self, flags: u8) -> Result<Option<&'a [u8]>> {
        if flags & CELL_UNKNOWN != 0 {
            return Err(self.reader.corrupt(format!("cell flags {flags:#04x}")));
        }
        if flags & CELL_TIMESTAMP != 0 {
            self.reader.take(8)?;
        }
        if flags & CELL_EXPIRY != 0 {
            self.reader.take(8)?;
        }
        if flags & (CELL_NULL | CELL_TOMBSTONE) == 0 {
            return value_bytes(&mut self.reader, flags).map(Some);
        }
        if flags & WIDTH_MASK != 0 {
            return Err(self.reader.corrupt(format!("cell flags {flags:#04x}")));
        }
        Ok(None)
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.reader.finish()
    }
}

#[cfg(test)]
mod tests;
