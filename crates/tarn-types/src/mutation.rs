//! What is asked of a table, whole or not at all?
//!
//! ```text
//! batch      envelope (see envelope.rs) | table u32 LE | n u32 LE | n × mutation
//! mutation   op u8 (bit 7: guarded) | guard u64 LE (if guarded) | varint len, key | varint len, cells
//! ```
//!
//! One batch becomes one entry of one tablet's log, so all its mutations share one seqno and happen together or not at
//! all. They are decided in order: a later one sees the earlier ones. A batch whose keys lie in several tablets is cut
//! ([`MutationBatch::cut`]). `docs/formats/entry.md` has an example.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use bytes::Bytes;

use crate::envelope::{ENVELOPE_BYTES, EntryKind, put_envelope, read_envelope};
use crate::error::{Error, Result};
use crate::ids::{SeqNo, TableId, TabletId};
use crate::key::{TABLE_PREFIX_BYTES, encode_keys, table_prefix};
use crate::row::{check_cells, encode_cells_columnar};
use crate::schema::TableSchema;
use crate::tablet::TabletMap;
use crate::wire::{Reader, put_varint};

const HEADER_BYTES: usize = ENVELOPE_BYTES + 8;
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
    /// Write the whole row if its key is not there, else the whole batch is refused. Where keys are not unique it is
    /// written.
    Create = 5,
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
    /// All cells of the row (Put, Insert, Create), the changed ones (Patch), or none (Delete).
    pub cells: &'a [u8],
}

impl Mutation<'_> {
    /// Does it write its row whatever is there, so that there is nothing to decide?
    #[must_use]
    pub fn is_plain_row(&self) -> bool {
        self.op == Op::Put && self.guard.is_none()
    }
}

/// Mutations of one table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MutationBatch {
    table: TableId,
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

    /// Reads a log entry and checks it whole: envelope, every mutation, that every key is of the table, the frames of
    /// all cells. One pass, no copy.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        let mut reader = Reader::new("mutation batch", &bytes);
        let (kind, _) = read_envelope(&mut reader)?;
        if kind != EntryKind::Effects {
            return Err(reader.corrupt(format!("an entry of kind {kind:?}")));
        }
        let table = TableId(u32::from_le_bytes(reader.array()?));
        let n = u32::from_le_bytes(reader.array()?) as usize;
        for _ in 0..n {
            let mutation = read_mutation(&mut reader)?;
            check_mutation(&mutation, table)?;
        }
        reader.finish()?;
        Ok(Self { table, n, bytes, columns: None })
    }

    /// The rows as columns, in the storage schema: row i is mutation i. Only there when every mutation is an
    /// unguarded `Put`, `Insert` or `Create` and the batch was made from columns; it is not in the bytes.
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
        5 => Op::Create,
        other => return Err(reader.corrupt(format!("operation {other}"))),
    };
    let guard = if byte & GUARDED != 0 { Some(SeqNo(u64::from_le_bytes(reader.array()?))) } else { None };
    let key = reader.bytes()?;
    let cells = reader.bytes()?;
    Ok(Mutation { op, key, guard, cells })
}

fn check_mutation(mutation: &Mutation<'_>, table: TableId) -> Result<()> {
    let corrupt = |reason: String| Err(Error::corrupt("mutation batch", reason));
    if mutation.key.len() <= TABLE_PREFIX_BYTES || !mutation.key.starts_with(&table_prefix(table)) {
        return corrupt(format!("a key of {} bytes that is none of table {table}", mutation.key.len()));
    }
    match mutation.op {
        Op::Insert | Op::Create if mutation.guard.is_some() => corrupt("an insert with a guard".to_owned()),
        Op::Delete if mutation.cells.is_empty() => Ok(()),
        Op::Delete => corrupt("a delete with cells".to_owned()),
        _ => check_cells(mutation.cells),
    }
}

/// Makes a batch one mutation at a time. Keys must be of the table and cells well-formed, as this crate's encoders
/// make them; a key of another table panics.
pub struct BatchBuilder {
    table: TableId,
    n: u32,
    out: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch.
    #[must_use]
    pub fn new(schema: &TableSchema) -> Self {
        Self::with_capacity(schema.id, 256)
    }

    fn with_capacity(table: TableId, capacity: usize) -> Self {
        let mut out = Vec::with_capacity(capacity);
        put_envelope(&mut out, EntryKind::Effects);
        out.extend_from_slice(&table.0.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        Self { table, n: 0, out }
    }

    /// Adds a whole row.
    pub fn put(&mut self, key: &[u8], cells: &[u8], guard: Option<SeqNo>) {
        self.push(&Mutation { op: Op::Put, key, guard, cells });
    }

    /// Adds a whole row that gives way to one that is there.
    pub fn insert(&mut self, key: &[u8], cells: &[u8]) {
        self.push(&Mutation { op: Op::Insert, key, guard: None, cells });
    }

    /// Adds a whole row whose key may not be there: if it is, nothing of the batch happens.
    pub fn create(&mut self, key: &[u8], cells: &[u8]) {
        self.push(&Mutation { op: Op::Create, key, guard: None, cells });
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
        assert!(key.starts_with(&table_prefix(self.table)), "a key of another table than {}", self.table);
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
        let Self { table, n, out } = self;
        MutationBatch { table, n: n as usize, bytes: Bytes::from(out), columns }
    }
}

/// Turns rows into a batch, in their order. The columns go along ([`MutationBatch::columns`]), not copied.
///
/// `rows` has all columns of the table in storage types, as [`crate::conform`] makes them; `op` is `Put`, `Insert` or
/// `Create`.
///
/// # Errors
/// [`Error::Null`] names column and row of a NULL that may not be; [`Error::MissingColumn`], [`Error::Type`];
/// [`Error::Usage`] for another operation.
pub fn batch_from_columns(schema: &TableSchema, rows: &RecordBatch, op: Op) -> Result<MutationBatch> {
    if !matches!(op, Op::Put | Op::Insert | Op::Create) {
        return Err(Error::usage(format!("{op:?} from columns: only whole rows come in columns")));
    }
    let keys = encode_keys(schema, rows)?;
    let cells = encode_cells_columnar(schema, rows)?;
    let rows = storage_order(schema, rows)?;
    let size = keys.size_bytes() + cells.size_bytes() + 8 * keys.len();
    let mut out = BatchBuilder::with_capacity(schema.id, HEADER_BYTES + size);
    for (row, key) in keys.iter().enumerate() {
        out.push(&Mutation { op, key, guard: None, cells: cells.get(row) });
    }
    Ok(out.finish_with(Some(Arc::new(rows))))
}

impl MutationBatch {
    /// One batch for each tablet that its keys are in, in the order of tablets; inside of each, mutations keep their
    /// order. A batch of one tablet comes back as it is.
    ///
    /// # Errors
    /// [`Error::Arrow`] when columns cannot be taken apart.
    pub fn cut(self, tablets: &TabletMap) -> Result<Vec<(TabletId, Self)>> {
        let Some(first) = self.iter().next() else { return Ok(Vec::new()) };
        let first = tablets.tablet_of(first.key);
        if tablets.len() == 1 || self.iter().all(|mutation| tablets.tablet_of(mutation.key) == first) {
            return Ok(vec![(first, self)]);
        }
        let mut parts: BTreeMap<TabletId, (BatchBuilder, Vec<u32>)> = BTreeMap::new();
        for (place, mutation) in (0..).zip(self.iter()) {
            let part = parts.entry(tablets.tablet_of(mutation.key));
            let (builder, places) = part.or_insert_with(|| (BatchBuilder::with_capacity(self.table, 256), Vec::new()));
            builder.push(&mutation);
            places.push(place);
        }
        let cut = parts.into_iter().map(|(tablet, (builder, places))| {
            let places = UInt32Array::from(places);
            let taken = self.columns.as_ref().map(|columns| take_record_batch(columns, &places));
            let columns = taken.transpose().map_err(Error::arrow("cut rows by tablet"))?;
            Ok((tablet, builder.finish_with(columns.map(Arc::new))))
        });
        cut.collect()
    }
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

#[cfg(test)]
mod tests;
