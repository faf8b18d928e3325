//! How do the rows of a query become writes?
//!
//! `INSERT … SELECT` streams: every `copy_batch_rows` rows, or 16 MiB of them, are one commit (a smaller result is one
//! commit a tablet, all or nothing). `UPDATE` and `DELETE` read first, then write guarded mutations; rows that changed meanwhile are read again and
//! only they are written again, as Postgres' READ COMMITTED does, a bounded number of times.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ParamValues;
use futures::StreamExt;
use tarn_node::auth::Privilege;
use tarn_node::catalog::TableHandle;
use tarn_node::threads::blocking;
use tarn_node::write::{Written, conflict};
use tarn_query::dml::{Dml, DmlKind};
use tarn_types::{BatchBuilder, MutationBatch, Op, SeqNo, batch_from_columns, encode_cells_columnar, encode_keys};

use super::gather::Gathered;
use super::{Answer, PendingChanges, Session};
use crate::budget::Reservation;
use crate::encoding;
use crate::error::{Result, SqlError, state};
use crate::transaction::no_room;

/// How often rows that changed while they were read are read again.
const MAX_ROUNDS: usize = 10;

/// Mutations of one log entry of an UPDATE or DELETE.
const MAX_BATCH_ROWS: usize = 16_384;

/// Bytes of mutations one UPDATE or DELETE may gather before it writes.
const MAX_CHANGE_BYTES: usize = 512 << 20;

impl Session {
    pub(super) async fn dml(
        &self,
        dml: &Dml,
        command: &'static str,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
    ) -> Result<Answer> {
        let hold = self.must_hold()?;
        let rows = match dml.kind {
            DmlKind::Insert { on_conflict_do_nothing } => {
                let op = if on_conflict_do_nothing { Op::Insert } else { Op::Put };
                self.insert_from(dml, handle, parameters, op, hold).await?
            }
            DmlKind::Update | DmlKind::Delete => self.change(dml, handle, parameters, hold).await?,
        };
        Ok(Answer::counted(command, rows))
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
        let (mut gathered, mut written) = (Gathered::new(self.sql.settings().copy_batch_rows), 0);
        loop {
            let next = stream.next().await.transpose()?;
            let is_last = next.is_none();
            next.into_iter().for_each(|batch| gathered.push(batch));
            while let Some(rows) = gathered.take(is_last)? {
                written += self.insert_rows(handle, rows, op, hold).await.map_err(|error| partial(error, written))?;
            }
            if is_last {
                return Ok(written);
            }
        }
    }

    /// Writes or holds rows of the table's storage schema.
    pub(super) async fn insert_rows(
        &self,
        handle: &Arc<TableHandle>,
        rows: RecordBatch,
        op: Op,
        hold: bool,
    ) -> Result<u64> {
        encoding::check_columns(&rows)?;
        if !hold {
            let who = self.principal();
            return Ok(self.node.tables().write_rows(&who, handle, rows, op, &*self.interrupt).await?);
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
    ) -> Result<u64> {
        let privilege = if dml.kind == DmlKind::Delete { Privilege::Delete } else { Privilege::Update };
        if hold {
            let Changed { batches, reservation } = self.read_changes(dml, handle, parameters, None, usize::MAX).await?;
            // The transaction has one of its own.
            drop(reservation);
            return self.hold(PendingChanges { table: Arc::clone(handle), privilege, batches }).await;
        }
        let mut written = 0;
        let mut again: Option<HashSet<Vec<u8>>> = None;
        for _ in 0..MAX_ROUNDS {
            let Changed { batches, reservation: _held } =
                self.read_changes(dml, handle, parameters.clone(), again.as_ref(), MAX_BATCH_ROWS).await?;
            let mut failed = HashSet::new();
            for batch in batches {
                // One by one: the entries of a tablet that were submitted behind a failing guard would be decided already.
                let who = self.principal();
                let tables = self.node.tables();
                let wrote = tables.write_whole(&who, handle, privilege, batch.clone(), &*self.interrupt).await;
                match wrote.map_err(|error| partial(error.into(), written))? {
                    Written::Rows(rows) => written += rows,
                    _ => failed.extend(batch.iter().map(|mutation| mutation.key.to_vec())),
                }
            }
            if failed.is_empty() {
                return Ok(written);
            }
            again = Some(failed);
        }
        Err(partial(conflict(&handle.schema().name).into(), written))
    }

    /// The guarded mutations of an UPDATE or DELETE, at most `max_rows` a batch; with `only`, of these keys alone.
    async fn read_changes(
        &self,
        dml: &Dml,
        handle: &Arc<TableHandle>,
        parameters: Option<ParamValues>,
        only: Option<&HashSet<Vec<u8>>>,
        max_rows: usize,
    ) -> Result<Changed> {
        let mut stream = self.query.dml_rows(dml, parameters).await?;
        let budget = self.sql.held();
        let mut changes = Changes {
            kind: dml.kind,
            max_rows,
            open: BatchBuilder::new(handle.schema()),
            done: Vec::new(),
            size_bytes: 0,
            reservation: budget.reservation(),
        };
        while let Some(batch) = stream.next().await.transpose()? {
            let (table, only) = (Arc::clone(handle), only.cloned());
            changes = blocking(move || Ok(changes.add(&table, &batch, only.as_ref()).map(|()| changes))).await??;
            if !changes.is_held() {
                return Err(no_room(budget));
            }
        }
        Ok(changes.finish())
    }
}

/// Says how much of a statement that failed is written already.
fn partial(error: SqlError, written: u64) -> SqlError {
    if written == 0 {
        return error;
    }
    error.with_detail(format!(
        "{written} rows of this statement are committed already: large statements commit in batches"
    ))
}

struct Changes {
    kind: DmlKind,
    max_rows: usize,
    open: BatchBuilder,
    done: Vec<MutationBatch>,
    size_bytes: usize,
    /// Of what all statements and transactions together may hold back.
    reservation: Reservation,
}

impl Changes {
    fn add(&mut self, handle: &TableHandle, batch: &RecordBatch, only: Option<&HashSet<Vec<u8>>>) -> Result<()> {
        let schema = handle.schema();
        encoding::check_columns(batch)?;
        let keys = encode_keys(schema, batch)?;
        let cells = match self.kind {
            DmlKind::Delete => None,
            _ => Some(encode_cells_columnar(schema, batch)?),
        };
        let seqnos =
            batch.columns().last().and_then(|column| column.as_primitive_opt::<Int64Type>()).ok_or_else(|| {
                SqlError::new(state::INTERNAL, "the last column of rows to change is their change number")
            })?;
        for row in 0..batch.num_rows() {
            let key = keys.get(row);
            if only.is_some_and(|only| !only.contains(key)) {
                continue;
            }
            let guard = Some(SeqNo(seqnos.value(row) as u64));
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
        Ok(())
    }

    /// Counts what was gathered; false if that is too much.
    fn is_held(&mut self) -> bool {
        self.reservation.resize((self.size_bytes + self.open.size_bytes()) as u64)
    }

    fn finish(mut self) -> Changed {
        self.done.extend(Some(self.open).filter(|open| !open.is_empty()).map(BatchBuilder::finish));
        Changed { batches: self.done, reservation: self.reservation }
    }
}

/// What an UPDATE or DELETE is about to write.
struct Changed {
    batches: Vec<MutationBatch>,
    /// Of the batches, for as long as they are held.
    reservation: Reservation,
}
