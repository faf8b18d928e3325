//! How are rows inserted beside those that are there? `ON CONFLICT (key) DO UPDATE`, and `DO NOTHING` where somebody
//! asks which rows were new.
//!
//! 1. All rows of the statement are read and held against each other: of two rows of one key DO UPDATE is refused.
//!    Nothing is written by then.
//! 2. A chunk of them at a time, the rows of their keys are read, and what DO UPDATE makes of them is computed. One
//!    batch creates what is new, of rows of one key the first, and writes what is changed whole, guarded by the change
//!    that it was read at. The key is that of the table, or the values of a unique constraint, whose entries say which
//!    row has them; where DO NOTHING names none, it is each of them.
//! 3. Inside BEGIN that batch is held, and COMMIT holds it against what others did. Else who changes few rows waits for
//!    others that change them (`turns.rs`). A batch that is refused all the same, because somebody wrote one of its
//!    keys meanwhile, is read and computed anew, a bounded number of times.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::UInt32Array;
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ParamValues;
use futures::{StreamExt, TryStreamExt};
use tarn_node::auth::Privilege;
use tarn_node::catalog::TableHandle;
use tarn_node::entries::Index;
use tarn_node::tables::Row;
use tarn_node::threads::blocking;
use tarn_node::write::{WriteOutcome, all_written, conflict, taken};
use tarn_query::dml::Dml;
use tarn_query::{Arbiter, OnKey};
use tarn_types::{
    BatchBuilder, MutationBatch, Op, RowDecoder, TableId, TableSchema, batch_from_columns, decode_row, encode_cells,
    encode_cells_columnar, encode_key, encode_keys, row_of_entry,
};

use super::compiled_rules::RowRules;
use super::gather::RowGatherer;
use super::in_parts::{MAX_BATCH_ROWS, MAX_CHANGE_BYTES, MAX_ROUNDS, change_numbers, partial};
use super::returning::{self, ReturnedRows, Returning};
use super::{PendingChanges, Session};
use crate::budget::Reservation;
use crate::encoding;
use crate::error::{Result, SqlError, state};
use crate::transaction::no_room;

/// Keys that are looked up before others have their turn on the thread.
const LOOK_UP: usize = 256;

/// A statement that inserts rows beside those that are there.
pub(super) struct ConflictInsert<'a> {
    /// The planned statement.
    pub dml: &'a Dml,
    /// Of the table that is written.
    pub handle: &'a Arc<TableHandle>,
    /// As the client bound them.
    pub parameters: Option<ParamValues>,
    /// What becomes of rows whose key is there.
    pub on_key: OnKey,
    /// What is asked of the rows that are inserted or changed.
    pub returning: Option<&'a Returning>,
    /// Inside BEGIN.
    pub hold: bool,
}

/// What one round writes.
struct InsertRound {
    batch: MutationBatch,
    /// The rows as they are written, in the order of those that were given; where somebody asks for them.
    rows: Option<RecordBatch>,
}

impl Session {
    /// Inserts what is new, and does what is asked about the others. Answers how many rows were inserted or changed,
    /// and what is asked of these.
    ///
    /// Errors: 21000 for two rows of one key; 23505 where DO UPDATE makes of a row what another is; 40001 where others
    /// were first too often.
    pub(super) async fn insert_beside(&self, asked: ConflictInsert<'_>) -> Result<(u64, Option<ReturnedRows>)> {
        let rules = self.row_rules(asked.handle.schema()).await?;
        let found_by = self.found_by(&asked)?;
        let rows = self.rows_apart(&asked, &found_by, &rules).await?;
        // What is answered is written as one.
        let is_whole = asked.returning.is_some();
        let mut gathered = RowGatherer::new(if is_whole { usize::MAX } else { MAX_BATCH_ROWS });
        rows.batches.into_iter().for_each(|batch| gathered.push(batch));
        let (mut written, mut answers) = (0, None);
        while let Some(chunk) = next_chunk(&mut gathered, is_whole)? {
            let wrote = self.write_beside(&asked, &found_by, &rules, &chunk).await;
            let (n_rows, answered) = wrote.map_err(|error| partial(error, written))?;
            written += n_rows;
            answers = answered;
        }
        if let (Some(returning), None) = (asked.returning, &answers) {
            answers = Some(self.answers(returning, None, asked.dml).await?);
        }
        Ok((written, answers))
    }

    async fn write_beside(
        &self,
        asked: &ConflictInsert<'_>,
        found_by: &FoundBy,
        rules: &RowRules,
        chunk: &RecordBatch,
    ) -> Result<(u64, Option<ReturnedRows>)> {
        let ConflictInsert { dml, handle, returning, hold, .. } = *asked;
        let keys = found_by.keys(handle.schema(), chunk)?;
        // Who holds rows until COMMIT makes nobody wait.
        let _turn = match hold {
            true => Vec::new(),
            false => {
                let keys: Vec<&[u8]> = keys.iter().flatten().flatten().map(Vec::as_slice).collect();
                self.sql.turns.wait(keys.into_iter()).await
            }
        };
        let mut refused = conflict(&handle.schema().name);
        for _ in 0..MAX_ROUNDS {
            let Some(round) = self.round(asked, found_by, &keys, rules, chunk).await? else { continue };
            let answers = match returning {
                Some(returning) => Some(self.answers(returning, round.rows.as_ref(), dml).await?),
                None => None,
            };
            if round.batch.is_empty() {
                return Ok((0, answers));
            }
            let (privilege, batch) = (Privilege::Insert, round.batch);
            if hold {
                let held = PendingChanges { table: Arc::clone(handle), privilege, batches: vec![batch] };
                return Ok((self.hold(held).await?, answers));
            }
            let (who, tables) = (self.principal(), self.node.tables());
            match tables.write_whole(&who, handle, privilege, batch, &*self.interrupt).await? {
                WriteOutcome::Rows(n_rows) => return Ok((n_rows, answers)),
                // Somebody else was first.
                WriteOutcome::Conflict => refused = conflict(&handle.schema().name),
                WriteOutcome::Exists { .. } if found_by.key => refused = conflict(&handle.schema().name),
                // Or what DO UPDATE makes of a row is another's: of one that the next round finds by this key, or,
                // where it is so again and again, of a row of this statement.
                WriteOutcome::Taken { index, key } if found_by.is_by(index) && is_among(&keys, &key) => {
                    refused = taken(handle, index, key);
                }
                // What the statement does not find rows by: as of any other INSERT.
                refused => {
                    all_written(handle, &[refused]).map_err(|error| self.told(error))?;
                }
            }
        }
        Err(self.told(refused))
    }

    /// What becomes of rows now. `None`: rows moved while they were looked for.
    async fn round(
        &self,
        asked: &ConflictInsert<'_>,
        found_by: &FoundBy,
        keys: &[Vec<Option<Vec<u8>>>],
        rules: &RowRules,
        chunk: &RecordBatch,
    ) -> Result<Option<InsertRound>> {
        let ConflictInsert { dml, handle, on_key, .. } = *asked;
        let is_asked = asked.returning.is_some();
        let schema = Arc::clone(handle.schema());
        if on_key == OnKey::ReplaceOnce {
            let (rows, chunk) = (is_asked.then(|| chunk.clone()), chunk.clone());
            let batch = blocking(move || Ok(batch_from_columns(&schema, &chunk, Op::Put)?));
            return Ok(Some(InsertRound { batch: batch.await?, rows }));
        }
        let Some(there) = self.find_all(handle, found_by, keys, chunk.num_rows()).await? else { return Ok(None) };
        let places = ConflictRows::of(&there, keys);
        let mut written_keys: Vec<Option<Vec<u8>>> = vec![None; chunk.num_rows()];
        let row_keys = encode_keys(&schema, chunk)?;
        for place in &places.new {
            written_keys[*place as usize] = Some(row_keys.get(*place as usize).to_vec());
        }
        for (place, row) in there.iter().enumerate() {
            if let Some(row) = row {
                written_keys[place] = Some(key_of(&schema, row)?);
            }
        }
        let changed = match on_key {
            OnKey::Change if !places.there.is_empty() => {
                let given = take_record_batch(chunk, &UInt32Array::from(places.there))?;
                let there = old_rows(&schema, there.into_iter().flatten())?;
                let changed = self.query.changed(dml, &there, &given, asked.parameters.clone()).await?;
                changed.try_collect::<Vec<_>>().await?
            }
            _ => Vec::new(),
        };
        changed.iter().try_for_each(encoding::check_columns)?;
        let changed: Vec<RecordBatch> = changed.into_iter().map(|rows| rules.applied(rows)).collect::<Result<_>>()?;
        let new = take_record_batch(chunk, &UInt32Array::from(places.new))?;
        let batch = {
            let (schema, new, changed) = (Arc::clone(&schema), new.clone(), changed.clone());
            blocking(move || Ok(mutations(&schema, &new, &changed))).await??
        };
        let rows = match is_asked {
            true => Some(in_order(&schema, &written_keys, &new, &changed)?),
            false => None,
        };
        Ok(Some(InsertRound { batch, rows }))
    }

    /// The rows that are there at the keys of these as the statement sees them, wherever they lie. `None`: one moved
    /// meanwhile.
    async fn find_all(
        &self,
        handle: &Arc<TableHandle>,
        found_by: &FoundBy,
        keys: &[Vec<Option<Vec<u8>>>],
        n_rows: usize,
    ) -> Result<Option<Vec<Option<Row>>>> {
        let mut there: Vec<Option<Row>> = (0..n_rows).map(|_| None).collect();
        let (of_key, of_indexes) = keys.split_at(usize::from(found_by.key));
        for of_rows in of_key {
            let asked: Vec<&[u8]> = of_rows.iter().flatten().map(Vec::as_slice).collect();
            there = self.find_keys(handle, &asked).await?;
        }
        for (index, of_rows) in found_by.indexes.iter().zip(of_indexes) {
            let open = |place: &usize| there[*place].is_none() && of_rows[*place].is_some();
            let places: Vec<usize> = (0..n_rows).filter(open).collect();
            let asked: Vec<&[u8]> = places.iter().filter_map(|place| of_rows[*place].as_deref()).collect();
            let entries = self.find_keys(&index.entries, &asked).await?;
            let found = places
                .iter()
                .zip(&entries)
                .filter_map(|(place, entry)| Some((*place, row_of_entry(&entry.as_ref()?.values)?)));
            let (places, row_keys): (Vec<usize>, Vec<&[u8]>) = found.unzip();
            for (place, row) in places.into_iter().zip(self.find_keys(handle, &row_keys).await?) {
                // The entry was read a moment before.
                let key = row.as_ref().map(|row| index.key(handle.schema(), &row.values)).transpose()?.flatten();
                if key != of_rows[place] {
                    return Ok(None);
                }
                there[place] = row;
            }
        }
        Ok(Some(there))
    }

    /// The rows of these keys as the statement sees them.
    async fn find_keys(&self, handle: &Arc<TableHandle>, keys: &[&[u8]]) -> Result<Vec<Option<Row>>> {
        let mut there = Vec::with_capacity(keys.len());
        if !self.transaction.lock().sees_committed() {
            for key in keys {
                there.push(self.find(handle, key).await?);
            }
            return Ok(there);
        }
        let who = self.principal();
        for keys in keys.chunks(LOOK_UP) {
            there.extend(self.node.tables().multi_get(&who, handle, keys).await?);
            tokio::task::yield_now().await;
        }
        Ok(there)
    }

    /// All rows that the statement gives, no two of one key.
    async fn rows_apart(
        &self,
        asked: &ConflictInsert<'_>,
        found_by: &FoundBy,
        rules: &RowRules,
    ) -> Result<DistinctRows> {
        let mut stream = self.query.dml_rows(asked.dml, asked.parameters.clone()).await?;
        let budget = self.sql.held();
        let mut apart = DistinctRows {
            keeps_all: asked.on_key == OnKey::Keep,
            max_bytes: if asked.returning.is_some() { returning::MAX_BYTES } else { MAX_CHANGE_BYTES },
            batches: Vec::new(),
            keys: HashSet::new(),
            n_bytes: 0,
            reservation: budget.reservation(),
        };
        while let Some(batch) = stream.next().await.transpose()? {
            let (table, found_by) = (Arc::clone(asked.handle.schema()), found_by.clone());
            encoding::check_columns(&batch)?;
            // Of rows that are there, too: so does PostgreSQL.
            let batch = rules.applied(batch)?;
            apart = blocking(move || Ok(apart.add(&table, &found_by, batch).map(|()| apart))).await??;
            if !apart.reservation.resize(apart.n_bytes as u64) {
                return Err(no_room(budget));
            }
        }
        Ok(apart)
    }
}

/// By what rows that are there are found.
#[derive(Clone)]
struct FoundBy {
    /// By the primary key.
    key: bool,
    /// By the values of these constraints.
    indexes: Vec<Index>,
}

impl Session {
    fn found_by(&self, asked: &ConflictInsert<'_>) -> Result<FoundBy> {
        let table = asked.handle.schema();
        let mut indexes = self.node.tables().indexes(table)?;
        let key = match asked.dml.arbiter {
            Arbiter::Key => {
                indexes.clear();
                true
            }
            Arbiter::Unique(at) => {
                indexes = indexes.into_iter().skip(at).take(1).collect();
                false
            }
            Arbiter::Any => {
                indexes.retain(|index| !index.unique.repeats);
                !table.is_keyless()
            }
        };
        Ok(FoundBy { key, indexes })
    }
}

impl FoundBy {
    fn is_by(&self, index: TableId) -> bool {
        self.indexes.iter().any(|of| of.unique.index == index)
    }

    /// The keys of rows, of each that they are found by: the primary key first. A row that has NULL there has none.
    fn keys(&self, table: &TableSchema, rows: &RecordBatch) -> Result<Vec<Vec<Option<Vec<u8>>>>> {
        let row_keys = encode_keys(table, rows)?;
        let mut keys = vec![];
        if self.key {
            keys.push(row_keys.iter().map(|key| Some(key.to_vec())).collect());
        }
        if self.indexes.is_empty() {
            return Ok(keys);
        }
        let cells = encode_cells_columnar(table, rows)?;
        let mut of_indexes: Vec<Vec<Option<Vec<u8>>>> = vec![Vec::with_capacity(row_keys.len()); self.indexes.len()];
        for (row, key) in row_keys.iter().enumerate() {
            let values = decode_row(table, key, cells.get(row))?;
            for (index, of_index) in self.indexes.iter().zip(&mut of_indexes) {
                of_index.push(index.key(table, &values)?);
            }
        }
        keys.extend(of_indexes);
        Ok(keys)
    }
}

/// What becomes of which of the rows that are given.
struct ConflictRows {
    /// They are created.
    new: Vec<u32>,
    /// There is a row.
    there: Vec<u32>,
}

impl ConflictRows {
    /// Of rows that are not there, the first of each key is new.
    fn of(there: &[Option<Row>], keys: &[Vec<Option<Vec<u8>>>]) -> ConflictRows {
        let mut places = ConflictRows { new: vec![], there: vec![] };
        let mut met: Vec<HashSet<&[u8]>> = vec![HashSet::new(); keys.len()];
        for (place, row) in there.iter().enumerate() {
            let own = || keys.iter().map(|keys| keys[place].as_deref());
            if row.is_some() {
                places.there.push(place as u32);
            } else if met.iter().zip(own()).all(|(met, key)| key.is_none_or(|key| !met.contains(key))) {
                met.iter_mut().zip(own()).for_each(|(met, key)| met.extend(key));
                places.new.push(place as u32);
            }
        }
        places
    }
}

/// Rows of different keys.
struct DistinctRows {
    /// Two rows may have one key; else it is an error.
    keeps_all: bool,
    max_bytes: usize,
    batches: Vec<RecordBatch>,
    keys: HashSet<Vec<u8>>,
    n_bytes: usize,
    /// Of what all statements and transactions together may hold back.
    reservation: Reservation,
}

impl DistinctRows {
    fn add(&mut self, table: &TableSchema, found_by: &FoundBy, batch: RecordBatch) -> Result<()> {
        let keys = if self.keeps_all { vec![] } else { found_by.keys(table, &batch)? };
        let of_keys: usize = keys.iter().flatten().flatten().map(Vec::len).sum();
        self.n_bytes += batch.get_array_memory_size() + of_keys;
        if self.n_bytes > self.max_bytes {
            let message = format!("the statement inserts more than {} MiB of rows at once", self.max_bytes >> 20);
            return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("insert in parts; nothing is written"));
        }
        // DO UPDATE finds rows by one key.
        if !keys.into_iter().flatten().flatten().all(|key| self.keys.insert(key)) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new(state::CARDINALITY, message)
                .with_hint("two of the rows have the same key: insert them one after the other"));
        }
        self.batches.push(batch);
        Ok(())
    }
}

/// Whether rows are looked for by this key.
fn is_among(keys: &[Vec<Option<Vec<u8>>>], key: &[u8]) -> bool {
    keys.iter().flatten().flatten().any(|of| of == key)
}

/// The rows of the next write; all that are left when they are written as one.
fn next_chunk(gathered: &mut RowGatherer, is_whole: bool) -> Result<Option<RecordBatch>> {
    Ok(if is_whole { gathered.take_all()? } else { gathered.take(true)? })
}

/// Rows as they were read, with their change numbers.
pub(super) fn old_rows(schema: &Arc<TableSchema>, rows: impl Iterator<Item = Row>) -> Result<RecordBatch> {
    let mut decoder = RowDecoder::new(schema, None, true);
    for row in rows {
        decoder.push(&key_of(schema, &row)?, &encode_cells(schema, &row.values)?, row.seqno)?;
    }
    Ok(decoder.finish()?)
}

fn key_of(schema: &TableSchema, row: &Row) -> Result<Vec<u8>> {
    let key: Vec<_> = schema.key.iter().map(|part| row.values[part.column_idx].clone()).collect();
    Ok(encode_key(schema, &key)?)
}

/// New rows are created, changed ones replace what they were read as.
fn mutations(schema: &TableSchema, new: &RecordBatch, changed: &[RecordBatch]) -> Result<MutationBatch> {
    let mut batch = BatchBuilder::new(schema);
    let (keys, cells) = (encode_keys(schema, new)?, encode_cells_columnar(schema, new)?);
    keys.iter().enumerate().for_each(|(row, key)| batch.create(key, cells.get(row)));
    for changed in changed {
        let (keys, cells) = (encode_keys(schema, changed)?, encode_cells_columnar(schema, changed)?);
        let seqnos = change_numbers(changed)?;
        keys.iter().enumerate().for_each(|(row, key)| batch.put(key, cells.get(row), Some(seqnos.of(row))));
    }
    Ok(batch.finish())
}

/// The rows that are written, in the order in which they were given, of which these are the keys of what is there then.
fn in_order(
    schema: &TableSchema,
    keys: &[Option<Vec<u8>>],
    new: &RecordBatch,
    changed: &[RecordBatch],
) -> Result<RecordBatch> {
    let without_seqno = changed.iter().map(|rows| rows.project(&(0..schema.columns.len()).collect::<Vec<_>>()));
    let rows = std::iter::once(Ok(new.clone())).chain(without_seqno).collect::<std::result::Result<Vec<_>, _>>()?;
    let rows = concat_batches(&new.schema(), &rows)?;
    let written = encode_keys(schema, &rows)?;
    let places: std::collections::HashMap<&[u8], u32> = written.iter().zip(0..).collect();
    let places = keys.iter().flatten().filter_map(|key| places.get(key.as_slice()).copied());
    Ok(take_record_batch(&rows, &UInt32Array::from_iter_values(places))?)
}
