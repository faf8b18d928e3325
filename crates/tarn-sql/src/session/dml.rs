//! How do the rows of a query become writes?
//!
//! `INSERT … SELECT` streams: every `copy_batch_rows` rows, or 16 MiB of them, are one commit (a smaller result is one
//! commit a tablet, all or nothing). `UPDATE` and `DELETE` read first, then write guarded mutations; rows that changed
//! meanwhile are read again and only they are written again, as Postgres' READ COMMITTED does, a bounded number of
//! times. Where `RETURNING` asks for the rows, or they are held to unique constraints, they are one write; so are those
//! that a statement locks to change them, which reads anew which they are if others were first. What an
//! `INSERT` does about keys that are there is in `conflicts.rs`, where it is more than one operation of the row store.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::compute::{concat_batches, filter_record_batch};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ParamValues;
use futures::StreamExt;
use tarn_node::auth::Privilege;
use tarn_node::catalog::TableHandle;
use tarn_node::threads::blocking;
use tarn_node::write::{WriteOutcome, conflict, taken};
use tarn_query::dml::{Dml, DmlKind};
use tarn_query::parser::RowLocks;
use tarn_query::{OnKey, RowKey};
use tarn_types::{
    BatchBuilder, MutationBatch, Op, TableSchema, batch_from_columns, encode_cells_columnar, encode_key, encode_keys,
};

use super::compiled_rules::RowRules;
use super::conflicts::{ConflictInsert, old_rows};
use super::gather::RowGatherer;
use super::in_parts::{MAX_BATCH_ROWS, MAX_CHANGE_BYTES, MAX_ROUNDS, change_numbers, partial};
use super::on_key::op_of;
use super::returning::{self, ReturnedRows, Returning};
use super::{Answer, PendingChanges, Session};
use crate::budget::Reservation;
use crate::encoding;
use crate::error::{Result, SqlError, state};
use crate::transaction::{OtherParts, no_room};

impl Session {
    pub(super) async fn dml(
        &self,
        dml: &Dml,
        command: &'static str,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        returning: Option<&Returning>,
    ) -> Result<Answer> {
        let (n_rows, answers) = self.dml_answers(dml, handle, parameters, returning).await?;
        Ok(match answers {
            Some(answers) => answers.answer(command).counted_by(self.backend.rows()),
            None => Answer::counted(command, n_rows),
        })
    }

    /// How many rows were written, and what is asked of them.
    pub(super) async fn dml_answers(
        &self,
        dml: &Dml,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        returning: Option<&Returning>,
    ) -> Result<(u64, Option<ReturnedRows>)> {
        let hold = self.must_hold_for(handle.schema())?;
        self.check_skips(dml)?;
        // What is written and what is answered of it.
        let _moment = self.query.begin_statement();
        Ok(match (dml.kind, returning) {
            (DmlKind::Insert { on_key: on_key @ (OnKey::Change | OnKey::ReplaceOnce) }, _)
            | (DmlKind::Insert { on_key: on_key @ OnKey::Keep }, Some(_)) => {
                self.insert_beside(ConflictInsert { dml, handle, parameters, on_key, returning, hold }).await?
            }
            (DmlKind::Insert { on_key: on_key @ OnKey::Keep }, None) if handle.schema().has_indexes() => {
                self.insert_beside(ConflictInsert { dml, handle, parameters, on_key, returning, hold }).await?
            }
            (DmlKind::Insert { on_key }, Some(returning)) => {
                self.insert_returning(dml, handle, parameters, returning, op_of(on_key), hold).await?
            }
            (DmlKind::Insert { on_key }, None) => {
                (self.insert_from(dml, handle, parameters, op_of(on_key), hold).await?, None)
            }
            (DmlKind::Update | DmlKind::Delete, _) => self.change(dml, handle, parameters, hold, returning).await?,
        })
    }

    /// Errors: `0A000` for who leaves out what others lock, and commits later: nobody sees until then what he took.
    fn check_skips(&self, dml: &Dml) -> Result<()> {
        let transaction = self.transaction.lock();
        match dml.locks {
            Some(RowLocks::Skips) if transaction.is_open() && transaction.implicit().is_none() => {
                Err(SqlError::unsupported(
                    "SKIP LOCKED inside BEGIN",
                    "send the statement by itself: nothing is locked for others to see before COMMIT",
                ))
            }
            _ => Ok(()),
        }
    }

    async fn insert_from(
        &self,
        dml: &Dml,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        op: Op,
        hold: bool,
    ) -> Result<u64> {
        let mut stream = self.query.dml_rows(dml, parameters).await?;
        let rules = self.row_rules(handle.schema()).await?;
        let (mut gathered, mut written) = (RowGatherer::new(self.sql.settings().copy_batch_rows), 0);
        loop {
            let next = stream.next().await.transpose()?;
            let is_last = next.is_none();
            next.into_iter().for_each(|batch| gathered.push(batch));
            while let Some(rows) = gathered.take(is_last)? {
                let inserted = async {
                    encoding::check_columns(&rows)?;
                    self.insert_rows(handle, rules.applied(rows)?, op, hold).await
                };
                // What is held is not committed.
                let n_committed = if hold { 0 } else { written };
                written += inserted.await.map_err(|error| partial(error, n_committed))?;
            }
            if is_last {
                return Ok(written);
            }
        }
    }

    /// Writes or holds rows of the table's storage schema, which are as its definition makes them.
    pub(super) async fn insert_rows(
        &self,
        handle: &Arc<TableHandle>,
        rows: RecordBatch,
        op: Op,
        hold: bool,
    ) -> Result<u64> {
        if !hold {
            let who = self.principal();
            let written = self.node.tables().write_rows(&who, handle, rows, op, &*self.interrupt).await;
            return written.map_err(|error| self.told(error));
        }
        let batches = vec![batch_from_columns(handle.schema(), &rows, op)?];
        self.hold(PendingChanges { table: Arc::clone(handle), privilege: Privilege::Insert, batches }).await
    }

    async fn change(
        &self,
        dml: &Dml,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        hold: bool,
        returning: Option<&Returning>,
    ) -> Result<(u64, Option<ReturnedRows>)> {
        let privilege = if dml.kind == DmlKind::Delete { Privilege::Delete } else { Privilege::Update };
        let asked = self.asked(dml, handle, parameters, returning.is_some())?;
        if hold {
            let PreparedChanges { batches, reservation, rows } = self.read_changes(&asked, None, usize::MAX).await?;
            let answers = self.answers_of(returning, rows, dml).await?;
            // The transaction has one of its own.
            drop(reservation);
            let n_rows = self.hold(PendingChanges { table: Arc::clone(handle), privilege, batches }).await?;
            return Ok((n_rows, answers));
        }
        // Who counts in one row does not read it in vain, nor who takes the next rows of a table.
        let turn = if dml.locks.is_some() { Some(turn_of(handle)) } else { asked.row.key() };
        let _turn = self.sql.turns.wait(turn.into_iter()).await;
        // Rows of one statement may take each other's values.
        let is_whole = returning.is_some() || dml.locks.is_some() || handle.schema().has_indexes();
        let max_rows = if is_whole { usize::MAX } else { MAX_BATCH_ROWS };
        let mut written = 0;
        let mut again: Option<HashSet<Vec<u8>>> = None;
        for _ in 0..MAX_ROUNDS {
            let changes = self.read_changes(&asked, again.as_ref(), max_rows);
            let PreparedChanges { batches, reservation: _held, rows } = changes.await?;
            let answers = self.answers_of(returning, rows, dml).await?;
            let mut failed = HashSet::new();
            for batch in batches {
                // One by one: the entries of a tablet that were submitted behind a failing guard would be decided
                // already.
                let who = self.principal();
                let tables = self.node.tables();
                let wrote = tables.write_whole(&who, handle, privilege, batch.clone(), &*self.interrupt).await;
                match wrote.map_err(|error| partial(error.into(), written))? {
                    WriteOutcome::Rows(rows) => written += rows,
                    WriteOutcome::Taken { index, key } => {
                        return Err(partial(self.told(taken(handle, index, key)), written));
                    }
                    _ => failed.extend(batch.iter().map(|mutation| mutation.key.to_vec())),
                }
            }
            if failed.is_empty() {
                return Ok((written, answers));
            }
            // Where others were first, what it would have locked are other rows by now.
            again = dml.locks.is_none().then_some(failed);
        }
        Err(partial(conflict(&handle.schema().name).into(), written))
    }

    fn asked<'a>(
        &self,
        dml: &'a Dml,
        handle: &'a Arc<TableHandle>,
        parameters: Option<ParamValues>,
        keeps_rows: bool,
    ) -> Result<DmlExecution<'a>> {
        let is_planned = self.is_forced() || self.transaction.lock().is_in_parts();
        let key = if is_planned { RowKey::Planned } else { dml.row_key(parameters.as_ref()) };
        let row = match key {
            RowKey::Of(key) => RowsOf::Key(encode_key(handle.schema(), &key)?),
            RowKey::Nobody => RowsOf::Nobody,
            RowKey::Planned => RowsOf::Plan,
        };
        Ok(DmlExecution { dml, handle, parameters, keeps_rows, row })
    }

    /// What is asked of rows that are about to be written, if anything is.
    pub(super) async fn answers_of(
        &self,
        returning: Option<&Returning>,
        rows: Option<Vec<RecordBatch>>,
        dml: &Dml,
    ) -> Result<Option<ReturnedRows>> {
        let (Some(returning), Some(rows)) = (returning, rows) else { return Ok(None) };
        let rows = rows.first().map(|first| concat_batches(&first.schema(), &rows)).transpose()?;
        Ok(Some(self.answers(returning, rows.as_ref(), dml).await?))
    }

    /// The deletions of a `DELETE` whose rows are whole, and these rows.
    pub(super) async fn read_whole(
        &self,
        dml: &Dml,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
    ) -> Result<(Vec<MutationBatch>, Vec<RecordBatch>)> {
        let asked = self.asked(dml, handle, parameters, true)?;
        let changed = self.read_changes(&asked, None, usize::MAX).await?;
        Ok((changed.batches, changed.rows.unwrap_or_default()))
    }

    /// The guarded mutations of an UPDATE or DELETE, at most `max_rows` a batch; with `only`, of these keys alone.
    async fn read_changes(
        &self,
        asked: &DmlExecution<'_>,
        only: Option<&HashSet<Vec<u8>>>,
        max_rows: usize,
    ) -> Result<PreparedChanges> {
        let DmlExecution { dml, handle, .. } = *asked;
        let rules = match dml.kind {
            DmlKind::Update => self.row_rules(handle.schema()).await?,
            DmlKind::Insert { .. } | DmlKind::Delete => RowRules::none(handle.schema()),
        };
        let budget = self.sql.held();
        let mut changes = ChangeBuilder {
            kind: dml.kind,
            max_rows,
            open: BatchBuilder::new(handle.schema()),
            done: Vec::new(),
            size_bytes: 0,
            seen: dml.may_repeat.then(HashSet::new),
            others: self.transaction.lock().other_parts(handle.schema().id),
            rows: asked.keeps_rows.then(Vec::new),
            rows_bytes: 0,
            reservation: budget.reservation(),
        };
        if let Some(row) = self.changed_row(asked).await? {
            changes.add(handle, &rules.applied(row)?, None)?;
            return if changes.is_held() { Ok(changes.finish()) } else { Err(no_room(budget)) };
        }
        let mut stream = self.query.dml_rows(dml, asked.parameters.clone()).await?;
        while let Some(batch) = stream.next().await.transpose()? {
            let batch = rules.applied(batch)?;
            let (table, only) = (Arc::clone(handle), only.cloned());
            changes = blocking(move || Ok(changes.add(&table, &batch, only.as_ref()).map(|()| changes))).await??;
            if !changes.is_held() {
                return Err(no_room(budget));
            }
        }
        Ok(changes.finish())
    }

    /// The row that is changed, as it is written, where it is one that is found by its key; no row where none is
    /// there, or it does not meet the condition. `None`: the plan answers.
    async fn changed_row(&self, asked: &DmlExecution<'_>) -> Result<Option<RecordBatch>> {
        let row = match &asked.row {
            RowsOf::Key(key) => self.find(asked.handle, key).await?,
            RowsOf::Nobody => None,
            RowsOf::Plan => return Ok(None),
        };
        let there = old_rows(asked.handle.schema(), row.into_iter())?;
        let changed = self.query.changed_row(asked.dml, &there, asked.parameters.as_ref()).await?;
        if changed.is_some() {
            self.node.metrics().keyed_statements.inc();
        }
        Ok(changed)
    }
}

/// By what those wait for each other who take the next rows of a table.
pub(super) fn turn_of(handle: &TableHandle) -> &[u8] {
    handle.schema().name.as_bytes()
}

/// An UPDATE or DELETE that runs.
struct DmlExecution<'a> {
    dml: &'a Dml,
    handle: &'a Arc<TableHandle>,
    parameters: Option<ParamValues>,
    /// Whether the rows are wanted, too: as they are written or were deleted.
    keeps_rows: bool,
    row: RowsOf,
}

/// Where the rows are found that a statement changes.
enum RowsOf {
    /// There is at most one: by its engine key.
    Key(Vec<u8>),
    /// There are none.
    Nobody,
    /// Its plan gives them.
    Plan,
}

impl RowsOf {
    fn key(&self) -> Option<&[u8]> {
        match self {
            RowsOf::Key(key) => Some(key),
            RowsOf::Nobody | RowsOf::Plan => None,
        }
    }
}

struct ChangeBuilder {
    kind: DmlKind,
    max_rows: usize,
    open: BatchBuilder,
    done: Vec<MutationBatch>,
    size_bytes: usize,
    /// Keys of rows that were met, where one may be met again.
    seen: Option<HashSet<Vec<u8>>>,
    /// What other parts of the statement changed.
    others: Option<OtherParts>,
    /// The rows without their change numbers, where somebody asks for them.
    rows: Option<Vec<RecordBatch>>,
    rows_bytes: usize,
    /// Of what all statements and transactions together may hold back.
    reservation: Reservation,
}

impl ChangeBuilder {
    fn add(&mut self, handle: &TableHandle, batch: &RecordBatch, only: Option<&HashSet<Vec<u8>>>) -> Result<()> {
        let schema = handle.schema();
        encoding::check_columns(batch)?;
        let keys = encode_keys(schema, batch)?;
        let cells = match self.kind {
            DmlKind::Delete => None,
            _ => Some(encode_cells_columnar(schema, batch)?),
        };
        let seqnos = change_numbers(batch)?;
        let mut taken = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let key = keys.get(row);
            let is_others = self.others.as_ref().is_some_and(|others| others.changed(key));
            let is_wanted = !is_others && only.is_none_or(|only| only.contains(key));
            taken.push(is_wanted && self.seen.as_mut().is_none_or(|seen| seen.insert(key.to_vec())));
            if !taken[row] {
                continue;
            }
            let guard = Some(seqnos.of(row));
            match &cells {
                Some(cells) => self.open.put(key, cells.get(row), guard),
                None => self.open.delete(key, guard),
            }
            if self.open.len() >= self.max_rows {
                let full = std::mem::replace(&mut self.open, BatchBuilder::new(schema)).finish();
                self.size_bytes += full.size_bytes();
                self.done.push(full);
            }
        }
        if self.size_bytes + self.open.size_bytes() > MAX_CHANGE_BYTES {
            return Err(SqlError::new(
                state::PROGRAM_LIMIT,
                format!("the statement changes more than {MAX_CHANGE_BYTES} bytes of rows"),
            )
            .with_hint("split it by a range of the key"));
        }
        self.keep(schema, batch, taken)
    }

    /// Keeps the rows of a batch that are taken, if somebody asks for them.
    fn keep(&mut self, schema: &TableSchema, batch: &RecordBatch, taken: Vec<bool>) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let columns: Vec<usize> = (0..schema.columns.len()).collect();
        let kept = filter_record_batch(&batch.project(&columns)?, &BooleanArray::from(taken))?;
        self.rows_bytes += kept.get_array_memory_size();
        rows.push(kept);
        match self.rows_bytes > returning::MAX_BYTES {
            true => Err(returning::too_much()),
            false => Ok(()),
        }
    }

    /// Counts what was gathered; false if that is too much.
    fn is_held(&mut self) -> bool {
        self.reservation.resize((self.size_bytes + self.open.size_bytes() + self.rows_bytes) as u64)
    }

    fn finish(mut self) -> PreparedChanges {
        self.done.extend(Some(self.open).filter(|open| !open.is_empty()).map(BatchBuilder::finish));
        PreparedChanges { batches: self.done, rows: self.rows, reservation: self.reservation }
    }
}

/// What an UPDATE or DELETE is about to write.
struct PreparedChanges {
    batches: Vec<MutationBatch>,
    rows: Option<Vec<RecordBatch>>,
    /// Of the batches, for as long as they are held.
    reservation: Reservation,
}
