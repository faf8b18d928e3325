//! Which entries of a table's indexes does a batch write, beside its rows?
//!
//! ```text
//! batch ─> the rows that it changes are read ─> rows, guarded by what was read ─┬─> one commit of all of these tables
//!                                               entries that go, then that come ┘
//! ```
//!
//! An entry is written if, and only if, its row is: in one batch of the log, in which every row that is there already
//! is guarded by the change that it was read at. So the entry of a row is always that of its values, and an entry that
//! goes needs no guard of its own. One that comes may not be there: that is what the constraint is. Entries that go are
//! before those that come, so rows may exchange their values. Where values may repeat each row has an entry of its own,
//! which nobody else writes: it is put without a look at what is there.
//!
//! Whoever commits asks this: the door for what commits at once (`write.rs`), a session for what it holds until COMMIT,
//! which sees rows and entries of its own.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_rows::Lookup;
use tarn_types::{
    BatchBuilder, ColumnId, Mutation, MutationBatch, Op, SeqNo, TableSchema, Unique, Value, cell_ids, decode_row,
    encode_cells, entry_cells, entry_key, patch_cells,
};

use crate::catalog::{TableHandle, altered};
use crate::error::{Error, ErrorKind, Result};
use crate::parts::NodeParts;
use crate::tables::{Row, TableService};
use crate::threads::blocking;

/// A constraint of a table, or an index by which its rows are found, and its entries.
#[derive(Clone)]
pub struct Index {
    /// Which columns, in which order, and whether values may repeat.
    pub unique: Unique,
    /// The table that has them, of which only this node knows.
    pub entries: Arc<TableHandle>,
}

/// What is there, as whoever writes sees it.
pub trait RowLookup: Sync {
    /// The rows of engine keys, in their order.
    fn rows<'a>(&'a self, keys: &'a [&'a [u8]]) -> BoxFuture<'a, Result<Vec<Option<Row>>>>;
    /// Whether there are entries of these keys, in their order.
    fn are_there<'a>(&'a self, index: &'a Index, keys: Vec<Vec<u8>>) -> BoxFuture<'a, Result<Vec<bool>>>;
}

/// A batch, and what is there of its rows.
pub struct BatchLookup {
    table: Arc<TableSchema>,
    indexes: Vec<Index>,
    batch: MutationBatch,
    rows: HashMap<Vec<u8>, Row>,
    /// Of each index, entries that rows would have which give way to others.
    taken: Vec<HashSet<Vec<u8>>>,
}

/// What is to be committed together.
pub struct WithEntries {
    /// Nothing depends on what is there any more, but for guards, and rows that are to be created.
    pub rows: MutationBatch,
    /// Of indexes that have any.
    pub entries: Vec<(Index, MutationBatch)>,
    /// Rows that are guarded because they were read here, not because the batch said so.
    pub read: HashSet<Vec<u8>>,
    /// Whether rows are left out whose values are there.
    pub(crate) gives_way: bool,
}

impl WithEntries {
    /// Of a table without constraints beside its key.
    #[must_use]
    pub fn none(rows: MutationBatch) -> WithEntries {
        WithEntries { rows, entries: vec![], read: HashSet::new(), gives_way: false }
    }
}

impl TableService {
    /// The constraints of a table beside its primary key, and its other indexes.
    ///
    /// Errors: `Conflict` for a definition that is older than the table's; `Corrupt` where the entries of an index are
    /// not here: rows that nobody holds to it are not written.
    pub fn indexes(&self, table: &TableSchema) -> Result<Vec<Index>> {
        let of = |unique: &Unique| match self.parts.catalog.index(unique.index) {
            Some(entries) => Ok(Index { unique: unique.clone(), entries }),
            // It was dropped since somebody read the definition.
            None if self.parts.catalog.table_of_index(unique.index).is_none() => Err(altered(&table.name)),
            None => {
                let message =
                    format!("table \"{}\": the entries of index \"{}\" are not here", table.name, unique.name);
                Err(Error::new(ErrorKind::Corrupt, message)
                    .with_hint("copy out the rows with COPY ... TO, DROP TABLE, and load it again"))
            }
        };
        table.options.rules.uniques.iter().map(of).collect()
    }
}

/// Whether a batch may change values of which there are entries.
pub(crate) fn touches(table: &TableSchema, batch: &MutationBatch) -> Result<bool> {
    let is_held = |id: &ColumnId| table.options.rules.uniques.iter().any(|unique| unique.columns.contains(id));
    for mutation in batch.iter() {
        if mutation.op != Op::Patch || cell_ids(mutation.cells)?.iter().any(is_held) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a mutation is of a row that was not there before it, or is refused.
fn is_of_new_row(table: &TableSchema, mutation: &Mutation<'_>) -> bool {
    // A row without a key of its own is written plain once, with a number that nobody else has.
    mutation.op == Op::Create || (table.is_keyless() && mutation.is_plain_row())
}

/// A row on its way through a batch.
struct TrackedRow<'a> {
    key: &'a [u8],
    was: Option<&'a Row>,
    is: Option<Vec<Value>>,
    is_written: bool,
}

/// What a mutation has to say of the row that it is of.
enum RowPrecondition {
    /// The row is another.
    Fails,
    Says(Option<SeqNo>),
    /// The batch did not say it.
    Read(Option<SeqNo>),
}

impl TrackedRow<'_> {
    fn guard(&self, mutation: &Mutation<'_>) -> RowPrecondition {
        match (mutation.guard, self.was) {
            // What the batch wrote itself has no number yet.
            (Some(_), _) if self.is_written => RowPrecondition::Fails,
            (None, _) if self.is_written => RowPrecondition::Says(None),
            (Some(guard), Some(was)) if was.seqno == guard => RowPrecondition::Says(Some(guard)),
            (Some(_), _) => RowPrecondition::Fails,
            (None, was) => RowPrecondition::Read(was.map(|was| was.seqno)),
        }
    }
}

impl BatchLookup {
    /// Reads what a batch depends on.
    ///
    /// Cost: one read of all rows that it changes or may meet, and of rows that give way one of each index.
    pub async fn read(
        table: &Arc<TableSchema>,
        indexes: Vec<Index>,
        batch: MutationBatch,
        reads: &dyn RowLookup,
    ) -> Result<BatchLookup> {
        let asked: BTreeSet<&[u8]> =
            batch.iter().filter(|mutation| !is_of_new_row(table, mutation)).map(|mutation| mutation.key).collect();
        let asked: Vec<&[u8]> = asked.into_iter().collect();
        let found = if asked.is_empty() { vec![] } else { reads.rows(&asked).await? };
        let rows = asked.into_iter().zip(found).filter_map(|(key, row)| Some((key.to_vec(), row?))).collect();
        let mut taken = Vec::with_capacity(indexes.len());
        for index in &indexes {
            let mut keys = vec![];
            let gives_way = |mutation: &Mutation<'_>| mutation.op == Op::Insert && !index.unique.repeats;
            for mutation in batch.iter().filter(gives_way) {
                let values = decode_row(table, mutation.key, mutation.cells)?;
                keys.extend(index.key(table, &values)?);
            }
            let there = if keys.is_empty() { vec![] } else { reads.are_there(index, keys.clone()).await? };
            taken.push(keys.into_iter().zip(there).filter_map(|(key, is_there)| is_there.then_some(key)).collect());
        }
        Ok(BatchLookup { table: Arc::clone(table), indexes, batch, rows, taken })
    }

    /// The rows with their entries. `None`: a guard of the batch does not hold.
    ///
    /// Errors: bytes that are no row. Cost: all rows are decoded; no IO.
    pub fn with_entries(self) -> Result<Option<WithEntries>> {
        let BatchLookup { table, indexes, batch, rows: known, mut taken } = self;
        let mut rows = BatchBuilder::new(&table);
        let (mut read, mut gives_way, mut is_as_it_was) = (HashSet::new(), false, true);
        let mut followed: Vec<TrackedRow<'_>> = vec![];
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        for mutation in batch.iter() {
            let key = mutation.key;
            let at = *places.entry(key).or_insert(followed.len());
            if at == followed.len() {
                let was = known.get(key);
                followed.push(TrackedRow { key, was, is: was.map(|was| was.values.clone()), is_written: false });
            }
            let row = &mut followed[at];
            if is_of_new_row(&table, &mutation) {
                rows.push(&mutation);
                row.is = Some(decode_row(&table, key, mutation.cells)?);
                row.is_written = true;
                continue;
            }
            is_as_it_was = false;
            let guard = match row.guard(&mutation) {
                RowPrecondition::Fails => return Ok(None),
                RowPrecondition::Says(guard) => guard,
                RowPrecondition::Read(guard) => {
                    read.insert(key.to_vec());
                    guard
                }
            };
            let (cells, after) = match (mutation.op, &row.is) {
                (Op::Delete | Op::Patch, None) | (Op::Insert, Some(_)) => continue,
                (Op::Delete, Some(_)) => (None, None),
                (Op::Patch, Some(is)) => {
                    let cells = patch_cells(&encode_cells(&table, is)?, mutation.cells)?;
                    let values = decode_row(&table, key, &cells)?;
                    (Some(cells), Some(values))
                }
                (Op::Put | Op::Insert | Op::Create, _) => {
                    (Some(mutation.cells.to_vec()), Some(decode_row(&table, key, mutation.cells)?))
                }
            };
            if let (Op::Insert, Some(values)) = (mutation.op, &after) {
                gives_way = true;
                let mut keys = Vec::with_capacity(indexes.len());
                for index in &indexes {
                    keys.push(index.key(&table, values)?);
                }
                let is_taken = |(keys, key): (&HashSet<Vec<u8>>, &Option<Vec<u8>>)| {
                    key.as_ref().is_some_and(|key| keys.contains(key))
                };
                if taken.iter().zip(&keys).any(is_taken) {
                    continue;
                }
                taken.iter_mut().zip(keys).for_each(|(taken, key)| taken.extend(key));
            }
            match &cells {
                None => rows.delete(key, guard),
                // It has to be as absent as it was when it was read.
                Some(cells) if row.is.is_none() && !row.is_written => rows.create(key, cells),
                Some(cells) => rows.put(key, cells, guard),
            }
            row.is = after;
            row.is_written = true;
        }
        let rows = if is_as_it_was { batch.clone() } else { rows.finish() };
        let mut entries = vec![];
        for index in indexes {
            let of_index = index.entries_of(&table, &followed)?;
            if !of_index.is_empty() {
                entries.push((index, of_index));
            }
        }
        Ok(Some(WithEntries { rows, entries, read, gives_way }))
    }
}

impl Index {
    /// The entry by which rows of these values are held to the constraint. `None`: they are held to nothing.
    ///
    /// Errors: values of another table.
    pub fn key(&self, table: &TableSchema, values: &[Value]) -> Result<Option<Vec<u8>>> {
        if self.unique.repeats { Ok(None) } else { self.entry(table, values, &[]) }
    }

    /// The entry that a row has, if it has one.
    ///
    /// Errors: values of another table.
    pub fn entry(&self, table: &TableSchema, values: &[Value], row_key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(entry_key(table, &self.unique, self.entries.schema(), values, row_key)?)
    }

    /// The entry of a row comes: of a constraint it may not be there.
    ///
    /// Errors: bytes that are no cells.
    pub fn push(&self, entries: &mut BatchBuilder, entry: &[u8], row_key: &[u8]) -> Result<()> {
        let cells = entry_cells(self.entries.schema(), row_key)?;
        match self.unique.repeats {
            false => entries.create(entry, &cells),
            true => entries.put(entry, &cells, None),
        }
        Ok(())
    }

    fn entries_of(&self, table: &TableSchema, followed: &[TrackedRow<'_>]) -> Result<MutationBatch> {
        let schema = self.entries.schema();
        let mut entries = BatchBuilder::new(schema);
        let mut come = vec![];
        for row in followed.iter().filter(|row| row.is_written) {
            let before = row.was.map(|was| self.entry(table, &was.values, row.key)).transpose()?.flatten();
            let after = row.is.as_ref().map(|is| self.entry(table, is, row.key)).transpose()?.flatten();
            if before == after {
                continue;
            }
            if let Some(before) = before {
                entries.delete(&before, None);
            }
            come.extend(after.map(|after| (after, row.key)));
        }
        for (entry, row_key) in come {
            self.push(&mut entries, &entry, row_key)?;
        }
        Ok(entries.finish())
    }
}

/// What is committed, now.
pub(crate) struct CommittedRows<'a> {
    pub parts: &'a NodeParts,
    pub table: &'a TableHandle,
}

impl RowLookup for CommittedRows<'_> {
    fn rows<'a>(&'a self, keys: &'a [&'a [u8]]) -> BoxFuture<'a, Result<Vec<Option<Row>>>> {
        self.parts.rows(self.table, keys).boxed()
    }

    fn are_there<'a>(&'a self, index: &'a Index, keys: Vec<Vec<u8>>) -> BoxFuture<'a, Result<Vec<bool>>> {
        are_there(&index.entries, keys).boxed()
    }
}

/// Whether rows of these engine keys are there, now and wherever they lie.
pub(crate) async fn are_there(table: &Arc<TableHandle>, keys: Vec<Vec<u8>>) -> Result<Vec<bool>> {
    let table = Arc::clone(table);
    blocking(move || {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = table.table.multi_get(&keys)?;
        Ok(found.into_iter().map(|found| found != Lookup::Absent).collect())
    })
    .await
}
