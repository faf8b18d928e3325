//! How are rows inserted beside those that are there? `ON CONFLICT (key) DO UPDATE`, and `DO NOTHING` where somebody asks which rows were new.
//!
//! 1. All rows of the statement are read and held against each other: of two rows of one key DO UPDATE is refused, and of DO NOTHING the
//!    first counts. Nothing is written by then.
//! 2. A chunk of them at a time, the rows of their keys are read, and what DO UPDATE makes of them is computed. One batch creates what is
//!    new and writes what is changed whole, guarded by the change that it was read at.
//! 3. Inside BEGIN that batch is held, and COMMIT holds it against what others did. Else who changes few rows waits for others that change them (`turns.rs`). A batch that is refused all the same, because somebody wrote one of its keys meanwhile, is read and computed anew, a bounded number of times.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, UInt32Array};
use datafusion::arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use futures::{StreamExt, TryStreamExt};
use tarn_node::auth::Privilege;
use tarn_node::catalog::TableHandle;
use tarn_node::tables::Row;
use tarn_node::threads::blocking;
use tarn_node::write::{Written, conflict};
use tarn_query::OnKey;
use tarn_query::dml::Dml;
use tarn_types::{
    BatchBuilder, MutationBatch, Op, RowDecoder, TableSchema, batch_from_columns, encode_cells, encode_cells_columnar,
    encode_key, encode_keys,
};

use super::compiled_rules::RowRules;
use super::gather::Gathered;
use super::in_parts::{MAX_BATCH_ROWS, MAX_CHANGE_BYTES, MAX_ROUNDS, change_numbers, partial};
use super::returning::{self, Answers};
use super::{PendingChanges, Session};
use crate::budget::Reservation;
use crate::encoding;
use crate::error::{Result, SqlError, state};
use crate::transaction::no_room;

/// Keys that are looked up before others have their turn on the thread.
const LOOK_UP: usize = 256;

/// A statement that inserts rows beside those that are there.
pub(super) struct Beside<'a> {
    pub dml: &'a Dml,
    pub handle: &'a Arc<TableHandle>,
    pub parameters: Option<ParamValues>,
    /// What becomes of rows whose key is there.
    pub on_key: OnKey,
    /// What is asked of the rows that are inserted or changed.
    pub returning: Option<&'a LogicalPlan>,
    /// Inside BEGIN.
    pub hold: bool,
}

/// What one round writes.
struct Round {
    batch: MutationBatch,
    /// The rows as they are written, in the order of those that were given; where somebody asks for them.
    rows: Option<RecordBatch>,
}

impl Session {
    /// Inserts what is new, and does what is asked about the others. Answers how many rows were inserted or changed, and what is asked of
    /// these.
    ///
    /// Errors: 21000 for two rows of one key; 40001 where others were first too often.
    pub(super) async fn insert_beside(&self, asked: Beside<'_>) -> Result<(u64, Option<Answers>)> {
        let rules = self.row_rules(asked.handle.schema()).await?;
        let rows = self.rows_apart(&asked).await?;
        // What is answered is written as one.
        let is_whole = asked.returning.is_some();
        let mut gathered = Gathered::new(if is_whole { usize::MAX } else { MAX_BATCH_ROWS });
        rows.batches.into_iter().for_each(|batch| gathered.push(batch));
        let (mut written, mut answers) = (0, None);
        while let Some(chunk) = next_chunk(&mut gathered, is_whole)? {
            let wrote = self.write_beside(&asked, &rules, &chunk).await;
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
        asked: &Beside<'_>,
        rules: &RowRules,
        chunk: &RecordBatch,
    ) -> Result<(u64, Option<Answers>)> {
        let Beside { dml, handle, returning, hold, .. } = *asked;
        // Of rows that are there too: so does PostgreSQL.
        let chunk = &rules.applied(chunk.clone())?;
        let keys = encode_keys(handle.schema(), chunk)?;
        // Who holds rows until COMMIT makes nobody wait.
        let _turn = if hold { Vec::new() } else { self.sql.turns.wait(keys.iter()).await };
        for _ in 0..MAX_ROUNDS {
            let round = self.round(asked, rules, chunk).await?;
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
                Written::Rows(n_rows) => return Ok((n_rows, answers)),
                // Somebody else was first.
                Written::Conflict | Written::Exists { .. } => {}
            }
        }
        Err(conflict(&handle.schema().name).into())
    }

    /// What becomes of rows now.
    async fn round(&self, asked: &Beside<'_>, rules: &RowRules, chunk: &RecordBatch) -> Result<Round> {
        let Beside { dml, handle, on_key, .. } = *asked;
        let is_asked = asked.returning.is_some();
        let schema = Arc::clone(handle.schema());
        if on_key == OnKey::ReplaceOnce {
            let (rows, chunk) = (is_asked.then(|| chunk.clone()), chunk.clone());
            let batch = blocking(move || Ok(batch_from_columns(&schema, &chunk, Op::Put)?));
            return Ok(Round { batch: batch.await?, rows });
        }
        let there = self.find_all(handle, chunk).await?;
        let is_there = |want: bool| {
            let places = there.iter().enumerate().filter(move |(_, row)| row.is_some() == want);
            UInt32Array::from_iter_values(places.map(|(place, _)| place as u32))
        };
        let (new_places, there_places) = (is_there(false), is_there(true));
        let changed = match on_key {
            OnKey::Change if !there_places.is_empty() => {
                let given = take_record_batch(chunk, &there_places)?;
                let there = old_rows(&schema, there.into_iter().flatten())?;
                let changed = self.query.changed(dml, &there, &given, asked.parameters.clone()).await?;
                changed.try_collect::<Vec<_>>().await?
            }
            _ => Vec::new(),
        };
        changed.iter().try_for_each(encoding::check_columns)?;
        let changed: Vec<RecordBatch> = changed.into_iter().map(|rows| rules.applied(rows)).collect::<Result<_>>()?;
        let new = take_record_batch(chunk, &new_places)?;
        let batch = {
            let (schema, new, changed) = (Arc::clone(&schema), new.clone(), changed.clone());
            blocking(move || Ok(mutations(&schema, &new, &changed))).await??
        };
        let rows = match is_asked {
            true => Some(in_order(&schema, chunk, &new, &changed)?),
            false => None,
        };
        Ok(Round { batch, rows })
    }

    /// The rows that are there at the keys of these as the statement sees them, wherever they lie.
    async fn find_all(&self, handle: &Arc<TableHandle>, rows: &RecordBatch) -> Result<Vec<Option<Row>>> {
        let keys = encode_keys(handle.schema(), rows)?;
        let keys: Vec<&[u8]> = keys.iter().collect();
        if !self.transaction.lock().sees_committed() {
            let mut there = Vec::with_capacity(keys.len());
            for key in keys {
                there.push(self.find(handle, key).await?);
            }
            return Ok(there);
        }
        let who = self.principal();
        let mut there = Vec::with_capacity(keys.len());
        for keys in keys.chunks(LOOK_UP) {
            there.extend(self.node.tables().multi_get(&who, handle, keys).await?);
            tokio::task::yield_now().await;
        }
        Ok(there)
    }

    /// All rows that the statement gives, no two of one key.
    async fn rows_apart(&self, asked: &Beside<'_>) -> Result<Apart> {
        let mut stream = self.query.dml_rows(asked.dml, asked.parameters.clone()).await?;
        let budget = self.sql.held();
        let mut apart = Apart {
            keeps_first: asked.on_key == OnKey::Keep,
            max_bytes: if asked.returning.is_some() { returning::MAX_BYTES } else { MAX_CHANGE_BYTES },
            batches: Vec::new(),
            keys: HashSet::new(),
            n_bytes: 0,
            reservation: budget.reservation(),
        };
        while let Some(batch) = stream.next().await.transpose()? {
            let table = Arc::clone(asked.handle.schema());
            apart = blocking(move || Ok(apart.add(&table, batch).map(|()| apart))).await??;
            if !apart.reservation.resize(apart.n_bytes as u64) {
                return Err(no_room(budget));
            }
        }
        Ok(apart)
    }
}

/// Rows of different keys.
struct Apart {
    /// Of two rows of one key, the second is left out; else it is an error.
    keeps_first: bool,
    max_bytes: usize,
    batches: Vec<RecordBatch>,
    keys: HashSet<Vec<u8>>,
    n_bytes: usize,
    /// Of what all statements and transactions together may hold back.
    reservation: Reservation,
}

impl Apart {
    fn add(&mut self, table: &TableSchema, batch: RecordBatch) -> Result<()> {
        encoding::check_columns(&batch)?;
        let keys = encode_keys(table, &batch)?;
        self.n_bytes += batch.get_array_memory_size() + keys.size_bytes();
        if self.n_bytes > self.max_bytes {
            let message = format!("the statement inserts more than {} MiB of rows at once", self.max_bytes >> 20);
            return Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("insert in parts; nothing is written"));
        }
        let is_first: Vec<bool> = keys.iter().map(|key| self.keys.insert(key.to_vec())).collect();
        if is_first.iter().all(|is_first| *is_first) {
            self.batches.push(batch);
        } else if self.keeps_first {
            self.batches.push(filter_record_batch(&batch, &BooleanArray::from(is_first))?);
        } else {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new(state::CARDINALITY, message)
                .with_hint("two of the rows have the same key: insert them one after the other"));
        }
        Ok(())
    }
}

/// The rows of the next write; all that are left when they are written as one.
fn next_chunk(gathered: &mut Gathered, is_whole: bool) -> Result<Option<RecordBatch>> {
    Ok(if is_whole { gathered.take_all()? } else { gathered.take(true)? })
}

/// Rows as they were read, with their change numbers.
fn old_rows(schema: &Arc<TableSchema>, rows: impl Iterator<Item = Row>) -> Result<RecordBatch> {
    let mut decoder = RowDecoder::new(schema, None, true);
    for Row { values, seqno } in rows {
        let key: Vec<_> = schema.key.iter().map(|part| values[part.column_idx].clone()).collect();
        decoder.push(&encode_key(schema, &key)?, &encode_cells(schema, &values)?, seqno)?;
    }
    Ok(decoder.finish()?)
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

/// The rows that are written, in the order in which those of their keys were given.
fn in_order(
    schema: &TableSchema,
    given: &RecordBatch,
    new: &RecordBatch,
    changed: &[RecordBatch],
) -> Result<RecordBatch> {
    let without_seqno = changed.iter().map(|rows| rows.project(&(0..schema.columns.len()).collect::<Vec<_>>()));
    let rows = std::iter::once(Ok(new.clone())).chain(without_seqno).collect::<std::result::Result<Vec<_>, _>>()?;
    let rows = concat_batches(&given.schema(), &rows)?;
    let (written, given) = (encode_keys(schema, &rows)?, encode_keys(schema, given)?);
    let places: std::collections::HashMap<&[u8], u32> = written.iter().zip(0..).collect();
    let places = given.iter().filter_map(|key| places.get(key).copied());
    Ok(take_record_batch(&rows, &UInt32Array::from_iter_values(places))?)
}
