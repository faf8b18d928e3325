//! What is asked of one tablet in one log entry?
//!
//! ```text
//! batch      version u8 = 1 | flags u8 = 0 | table u32 LE | tablet u32 LE | n u32 LE | n × mutation
//! mutation   op u8 (bit 7: guarded) | guard u64 LE (if guarded) | varint len, key | varint len, cells
//! ```
//!
//! One batch is one entry of the tablet's log, so all its mutations share one seqno and happen together or not at all.
//! They are applied in order: a later one sees the earlier ones. `docs/formats/mutation.md` has an example.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::ids::{SeqNo, TableId, TabletId};
use crate::key::{KEY_PREFIX_BYTES, Keys, encode_keys, key_tablet};
use crate::row::{Cells, check_cells, encode_cells_columnar};
use crate::schema::TableSchema;
use crate::wire::{Reader, put_varint};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 14;
const GUARDED: u8 = 0x80;

/// What to do with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Write the whole row, whether it is there or not.
    Put = 1,
    /// Write the whole row if its key is not there, else do nothing.
    Insert = 2,
    /// Change some cells of the row if it is there, else do nothing.
    Patch = 3,
    /// Delete the row if it is there.
    Delete = 4,
}

/// One mutation, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    /// What to do.
    pub op: Op,
    /// The engine key ([`crate::encode_key`]).
    pub key: &'a [u8],
    /// Do it only if the row is there with just this commit position; else the whole batch is a conflict.
    pub guard: Option<SeqNo>,
    /// All cells of the row (Put, Insert), the changed ones (Patch), or none (Delete).
    pub cells: &'a [u8],
}

/// Mutations of one tablet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MutationBatch {
    table: TableId,
    tablet: TabletId,
    n: usize,
    /// Invariant: well-formed, by making or by [`MutationBatch::from_bytes`].
    bytes: Bytes,
    columns: Option<Arc<RecordBatch>>,
}

impl MutationBatch {
    /// The table.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The tablet all keys are in.
    #[must_use]
    pub fn tablet(&self) -> TabletId {
        self.tablet
    }

    /// How many mutations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.n
    }

    /// No mutations?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The bytes of the log entry.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The mutations in order.
    pub fn iter(&self) -> impl Iterator<Item = Mutation<'_>> + '_ {
        let mut reader = Reader::new("mutation batch", &self.bytes[HEADER_BYTES..]);
        // By the invariant, reading ends only at the end.
        std::iter::from_fn(move || if reader.is_empty() { None } else { read_mutation(&mut reader).ok() })
    }

    /// The log entry.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Reads a log entry and checks it whole: header, every mutation, that every key is of the tablet, the frames of
    /// all cells. One pass, no copy.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new("mutation batch", &bytes);
        let [version, flags] = reader.array()?;
        if version != VERSION || flags != 0 {
            return Err(reader.corrupt(format!("version {version} flags {flags:#04x}, want version {VERSION}")));
        }
        let table = TableId(u32::from_le_bytes(reader.array()?));
        let tablet = TabletId(u32::from_le_bytes(reader.array()?));
        let n = u32::from_le_bytes(reader.array()?) as usize;
        for _ in 0..n {
            let mutation = read_mutation(&mut reader)?;
            check_mutation(&mutation, tablet)?;
        }
        reader.finish()?;
        Ok(Self { table, tablet, n, bytes, columns: None })
    }

    /// The rows as columns, in the storage schema: row i is mutation i. Only there when every mutation is an
    /// unguarded `Put` or `Insert` and the batch was made from columns; it is not in the bytes.
    #[must_use]
    pub fn columns(&self) -> Option<&RecordBatch> {
        self.columns.as_deref()
    }
}

/// Two batches are equal when their bytes are.
impl PartialEq for MutationBatch {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for MutationBatch {}

fn read_mutation<'a>(reader: &mut Reader<'a>) -> Result<Mutation<'a>> {
    let byte = reader.u8()?;
    let op = match byte & !GUARDED {
        1 => Op::Put,
        2 => Op::Insert,
        3 => Op::Patch,
        4 => Op::Delete,
        other => return Err(reader.corrupt(format!("operation {other}"))),
    };
    let guard = if byte & GUARDED != 0 { Some(SeqNo(u64::from_le_bytes(reader.array()?))) } else { None };
    let key = reader.bytes()?;
    let cells = reader.bytes()?;
    Ok(Mutation { op, key, guard, cells })
}

fn check_mutation(mutation: &Mutation<'_>, tablet: TabletId) -> Result<()> {
    let corrupt = |reason: String| Err(Error::corrupt("mutation batch", reason));
    if mutation.key.len() <= KEY_PREFIX_BYTES {
        return corrupt(format!("a key of {} bytes", mutation.key.len()));
    }
    let of = key_tablet(mutation.key)?;
    if of != tablet {
        return corrupt(format!("a key of tablet {of} in a batch of tablet {tablet}"));
    }
    match mutation.op {
        Op::Insert if mutation.guard.is_some() => corrupt("an insert with a guard".to_owned()),
        Op::Delete if mutation.cells.is_empty() => Ok(()),
        Op::Delete => corrupt("a delete with cells".to_owned()),
        _ => check_cells(mutation.cells),
    }
}

/// Makes a batch one mutation at a time. Keys must be of the tablet and cells well-formed, as this crate's encoders
/// make them; a key of another tablet panics.
pub struct BatchBuilder {
    table: TableId,
    tablet: TabletId,
    n: u32,
    out: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch.
    #[must_use]
    pub fn new(schema: &TableSchema, tablet: TabletId) -> Self {
        Self::with_capacity(schema, tablet, 256)
    }

    fn with_capacity(schema: &TableSchema, tablet: TabletId, capacity: usize) -> Self {
        let mut out = Vec::with_capacity(capacity);
        out.extend_from_slice(&[VERSION, 0]);
        out.extend_from_slice(&schema.id.0.to_le_bytes());
        out.extend_from_slice(&tablet.0.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        Self { table: schema.id, tablet, n: 0, out }
    }

    /// Adds a whole row.
    pub fn put(&mut self, key: &[u8], cells: &[u8], guard: Option<SeqNo>) {
        self.push(&Mutation { op: Op::Put, key, guard, cells });
    }

    /// Adds a whole row that gives way to one that is there.
    pub fn insert(&mut self, key: &[u8], cells: &[u8]) {
        self.push(&Mutation { op: Op::Insert, key, guard: None, cells });
    }

    /// Adds a change of some cells ([`crate::encode_patch`]).
    pub fn patch(&mut self, key: &[u8], cells: &[u8], guard: Option<SeqNo>) {
        self.push(&Mutation { op: Op::Patch, key, guard, cells });
    }

    /// Adds a deletion.
    pub fn delete(&mut self, key: &[u8], guard: Option<SeqNo>) {
        self.push(&Mutation { op: Op::Delete, key, guard, cells: &[] });
    }

    /// Adds any mutation.
    pub fn push(&mut self, mutation: &Mutation<'_>) {
        let Mutation { op, key, guard, cells } = *mutation;
        assert!(key.starts_with(&self.tablet.0.to_be_bytes()), "a key of another tablet than {}", self.tablet);
        assert!(self.n < u32::MAX, "a batch of more than u32::MAX mutations");
        self.n += 1;
        self.out.push(op as u8 | if guard.is_some() { GUARDED } else { 0 });
        if let Some(guard) = guard {
            self.out.extend_from_slice(&guard.0.to_le_bytes());
        }
        put_varint(&mut self.out, key.len() as u64);
        self.out.extend_from_slice(key);
        put_varint(&mut self.out, cells.len() as u64);
        self.out.extend_from_slice(cells);
    }

    /// How many mutations so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.n as usize
    }

    /// None so far?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The bytes of the log entry so far.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.out.len()
    }

    /// The batch.
    #[must_use]
    pub fn finish(self) -> MutationBatch {
        self.finish_with(None)
    }

    pub(crate) fn finish_with(mut self, columns: Option<Arc<RecordBatch>>) -> MutationBatch {
        self.out[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&self.n.to_le_bytes());
        let Self { table, tablet, n, out } = self;
        MutationBatch { table, tablet, n: n as usize, bytes: Bytes::from(out), columns }
    }
}

/// Turns rows into one batch per tablet they fall into, in tablet order; inside a tablet the rows keep their order. The
/// columns go along ([`MutationBatch::columns`]); of a table with one tablet they are not copied.
///
/// `rows` has all columns of the table in storage types, as [`crate::conform`] makes them; `op` is `Put` or `Insert`.
///
/// # Errors
/// [`Error::Null`] names column and row of a NULL that may not be; [`Error::MissingColumn`], [`Error::Type`];
/// [`Error::Usage`] for another operation.
pub fn batches_from_columns(schema: &TableSchema, rows: &RecordBatch, op: Op) -> Result<Vec<MutationBatch>> {
    if !matches!(op, Op::Put | Op::Insert) {
        return Err(Error::usage(format!("{op:?} from columns: only whole rows come in columns")));
    }
    let keys = encode_keys(schema, rows)?;
    let cells = encode_cells_columnar(schema, rows)?;
    let n_rows = rows.num_rows();
    if n_rows == 0 {
        return Ok(Vec::new());
    }
    let rows = storage_order(schema, rows)?;
    if schema.options.tablets == 1 {
        return Ok(vec![batch_of(schema, &keys, &cells, op, 0..n_rows, rows)]);
    }
    let mut of_tablet: BTreeMap<TabletId, Vec<u32>> = BTreeMap::new();
    for row in 0..n_rows {
        of_tablet.entry(keys.tablet(row)).or_default().push(row as u32);
    }
    let batch = |indices: Vec<u32>| {
        let places = indices.iter().map(|row| *row as usize);
        let columns = take_record_batch(&rows, &UInt32Array::from(indices.clone()))
            .map_err(Error::arrow("split rows by tablet"))?;
        Ok(batch_of(schema, &keys, &cells, op, places, columns))
    };
    of_tablet.into_values().map(batch).collect()
}

/// The table's columns in the table's order, in their storage types.
fn storage_order(schema: &TableSchema, rows: &RecordBatch) -> Result<RecordBatch> {
    let storage = schema.arrow();
    let columns = storage.fields().iter().map(|field| {
        let array = rows
            .column_by_name(field.name())
            .ok_or_else(|| Error::MissingColumn { table: schema.name.clone(), column: field.name().clone() })?;
        if array.data_type() == field.data_type() {
            return Ok(array.clone());
        }
        arrow::compute::cast(array, field.data_type()).map_err(Error::arrow("cast a column to its storage type"))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(storage, columns).map_err(Error::arrow("build a batch"))
}

/// `places` are not empty, and all of one tablet.
fn batch_of(
    schema: &TableSchema,
    keys: &Keys,
    cells: &Cells,
    op: Op,
    places: impl ExactSizeIterator<Item = usize> + Clone,
    columns: RecordBatch,
) -> MutationBatch {
    let size: usize = places.clone().map(|row| keys.get(row).len() + cells.get(row).len() + 8).sum();
    let tablet = places.clone().next().map_or(schema.first_tablet, |row| keys.tablet(row));
    let mut out = BatchBuilder::with_capacity(schema, tablet, HEADER_BYTES + size);
    for row in places {
        out.push(&Mutation { op, key: keys.get(row), guard: None, cells: cells.get(row) });
    }
    out.finish_with(Some(Arc::new(columns)))
}

#[cfg(test)]
mod tests;
