//! How does a mutation get in? Room first, then the log, then the rows; the answer when it is durable and visible.
//!
//! All batches of one call are submitted before the first is waited for: one group commit. Where rows are held to
//! constraints, each batch is one commit with the entries of its rows (`entries.rs`), whatever tablets they are in. The
//! commit runs on a blocking thread and is not stopped half-way: a caller that goes away leaves it to finish.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use tarn_replica::{PartDecision, commit_together};
use tarn_rows::Outcome;
use tarn_types::{BatchBuilder, Mutation, MutationBatch, Op, TableId, batch_from_columns, encode_cells, patch_cells};

use crate::auth::Principal;
use crate::auth::access::Privilege;
use crate::catalog::{TableHandle, WayIn, altered};
use crate::entries::{BatchLookup, CommittedRows, WithEntries, touches};
use crate::error::{Error, ErrorKind, Result};
use crate::parts::NodeParts;
use crate::tables::{MAX_TRIES, TableService};
use crate::threads::blocking;

/// Who waits for a write. Before it is submitted they may go away; after that it happens, whatever they wish.
pub trait Waiter: Send + Sync {
    /// It is submitted now: until [`Waiter::decided`] it cannot be taken back. False: it is not wanted any more.
    fn submits(&self) -> bool;
    /// It is decided: so many rows were written.
    fn decided(&self, rows: u64);
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// So many rows were put, or were there to be changed or deleted.
    Rows(u64),
    /// A row was not as a guard says: nothing of the batch happened.
    Conflict,
    /// A row that was to be created is there: nothing of the batch happened.
    Exists {
        /// Its engine key.
        key: Vec<u8>,
    },
    /// Another row has values that no two rows may have: nothing of the batch happened.
    Taken {
        /// The index of the constraint.
        index: TableId,
        /// The engine key of its entry.
        key: Vec<u8>,
    },
}

/// What became of a batch with its entries.
enum SettledWrite {
    Written(WriteOutcome),
    /// What was read of its rows is not so any more.
    Again,
}

impl TableService {
    /// Commits batches, each by itself and whole in each tablet that its keys are in, and answers what became of each,
    /// in order. Waits for room first. A change of cells of a row that lies in the lake alone is read there and written
    /// whole.
    ///
    /// Errors: `Denied`; `Limit` when deliveries do not make room; `Canceled` when `waiter` went away; `Indeterminate`:
    /// some may be there.
    pub async fn write(
        &self,
        who: &Principal,
        table: &Arc<TableHandle>,
        privilege: Privilege,
        batches: Vec<MutationBatch>,
        waiter: &dyn Waiter,
    ) -> Result<Vec<WriteOutcome>> {
        self.may(who, table.schema(), privilege)?;
        self.check_alone(table)?;
        self.parts.wait_for_room(table).await?;
        if !table.schema().has_indexes() {
            return self.write_rows_alone(table, batches, waiter).await;
        }
        let mut written = Vec::with_capacity(batches.len());
        for batch in batches {
            written.push(match touches(table.schema(), &batch)? {
                true => self.write_with_entries(table, batch, waiter).await?,
                false => self.write_rows_alone(table, vec![batch], waiter).await?.swap_remove(0),
            });
        }
        Ok(written)
    }

    /// Whether what is written to a table may commit by itself: a table with foreign keys, or that others refer to, is
    /// written with [`TableService::commit_together`] alone.
    ///
    /// Errors: `Conflict`: it got one since the statement was planned.
    fn check_alone(&self, table: &TableHandle) -> Result<()> {
        match self.parts.edges.has(&self.parts.catalog, table.schema().id) {
            false => Ok(()),
            true => Err(altered(&table.schema().name)),
        }
    }

    /// Batches that change no entries.
    async fn write_rows_alone(
        &self,
        table: &Arc<TableHandle>,
        batches: Vec<MutationBatch>,
        waiter: &dyn Waiter,
    ) -> Result<Vec<WriteOutcome>> {
        let mut written = vec![WriteOutcome::Rows(0); batches.len()];
        for PartDecision { of, part, outcome } in self.commit(table, waiter, batches).await? {
            let of_part = match outcome {
                Outcome::Applied { affected } => WriteOutcome::Rows(affected),
                Outcome::Conflict { .. } => WriteOutcome::Conflict,
                Outcome::Exists { key } => WriteOutcome::Exists { key },
                Outcome::NeedsBase { .. } => self.write_with_bases(table, &part, waiter).await?,
            };
            written[of] = std::mem::replace(&mut written[of], WriteOutcome::Rows(0)).and(of_part);
        }
        Ok(written)
    }

    /// Encodes rows (storage schema, all columns) and commits them whole, as [`TableService::write_whole`] does.
    /// Answers how many were written; with `Op::Insert`, how many did not exist. Waits for room first.
    ///
    /// Errors: as [`TableService::write`]; `Conflict`; with `Op::Create`, `KeyExists`.
    pub async fn write_rows(
        &self,
        who: &Principal,
        table: &Arc<TableHandle>,
        rows: RecordBatch,
        op: Op,
        waiter: &dyn Waiter,
    ) -> Result<u64> {
        self.may(who, table.schema(), Privilege::Insert)?;
        self.check_alone(table)?;
        self.parts.wait_for_room(table).await?;
        let schema = Arc::clone(table.schema());
        let batch = blocking(move || Ok(batch_from_columns(&schema, &rows, op)?)).await?;
        if table.schema().has_indexes() {
            return all_written(table, &[self.write_with_entries(table, batch, waiter).await?]);
        }
        let decided = self.commit_whole(table, waiter, batch).await?;
        match decided.into_iter().map(|decided| decided.outcome).reduce(join) {
            None => Ok(0),
            Some(Outcome::Applied { affected }) => Ok(affected),
            Some(Outcome::Exists { key }) => Err(Error::key_exists(table.schema(), key)),
            Some(_) => Err(conflict(&table.schema().name)),
        }
    }

    /// As [`TableService::write`] of one batch, which is committed whole, whatever tablets its keys are in: for
    /// statements of SQL. A load does better tablet by tablet.
    ///
    /// Errors: as [`TableService::write`]; `Internal` for a change of cells, which may need a row that lies in the lake
    /// alone.
    pub async fn write_whole(
        &self,
        who: &Principal,
        table: &Arc<TableHandle>,
        privilege: Privilege,
        batch: MutationBatch,
        waiter: &dyn Waiter,
    ) -> Result<WriteOutcome> {
        self.may(who, table.schema(), privilege)?;
        self.check_alone(table)?;
        self.parts.wait_for_room(table).await?;
        if table.schema().has_indexes() && touches(table.schema(), &batch)? {
            return self.write_with_entries(table, batch, waiter).await;
        }
        let mut written = WriteOutcome::Rows(0);
        for PartDecision { outcome, .. } in self.commit_whole(table, waiter, batch).await? {
            written = written.and(match outcome {
                Outcome::Applied { affected } => WriteOutcome::Rows(affected),
                Outcome::Conflict { .. } => WriteOutcome::Conflict,
                Outcome::Exists { key } => WriteOutcome::Exists { key },
                Outcome::NeedsBase { .. } => {
                    let message = "a change of cells was to be written whole";
                    return Err(Error::new(ErrorKind::Internal, message));
                }
            });
        }
        Ok(written)
    }

    /// One batch and the entries of its rows, as one commit. Where rows are not any more what was read of them, all is
    /// read anew.
    async fn write_with_entries(
        &self,
        table: &Arc<TableHandle>,
        batch: MutationBatch,
        waiter: &dyn Waiter,
    ) -> Result<WriteOutcome> {
        let indexes = self.indexes(table.schema())?;
        for _ in 0..MAX_TRIES {
            let committed = CommittedRows { parts: &self.parts, table };
            let known = BatchLookup::read(table.schema(), indexes.clone(), batch.clone(), &committed).await?;
            let settled = self.committed(table, waiter, move |table| table.propose_with_entries(known));
            match settled.await? {
                SettledWrite::Written(written) => return Ok(written),
                SettledWrite::Again => {}
            }
        }
        Ok(WriteOutcome::Conflict)
    }

    async fn commit(
        &self,
        table: &Arc<TableHandle>,
        waiter: &dyn Waiter,
        batches: Vec<MutationBatch>,
    ) -> Result<Vec<PartDecision>> {
        self.committed(table, waiter, move |table| table.propose(&batches).map(counted)).await
    }

    async fn commit_whole(
        &self,
        table: &Arc<TableHandle>,
        waiter: &dyn Waiter,
        batch: MutationBatch,
    ) -> Result<Vec<PartDecision>> {
        self.committed(table, waiter, move |table| table.propose_whole(batch).map(counted)).await
    }

    /// What `propose` did, which says how many rows it wrote.
    async fn committed<T: Send + 'static>(
        &self,
        table: &Arc<TableHandle>,
        waiter: &dyn Waiter,
        propose: impl FnOnce(&TableHandle) -> Result<(T, u64)> + Send + 'static,
    ) -> Result<T> {
        self.parts.check_writable()?;
        let Some(submitted) = SubmittedWrite::by(waiter) else {
            return Err(Error::new(ErrorKind::Canceled, "whoever wanted the write went away"));
        };
        let span = tracing::debug_span!("commit", table = %table.schema().name, id = %table.schema().id);
        let began_us = self.parts.clock.monotonic_us();
        let table = Arc::clone(table);
        let (decided, rows) = blocking(move || span.in_scope(|| propose(&table))).await?;
        self.parts.metrics.commit_seconds.observe_us(self.parts.clock.monotonic_us().saturating_sub(began_us));
        submitted.decided(rows);
        self.parts.metrics.rows_written.inc_by(rows);
        Ok(decided)
    }

    /// A batch that was refused because a row lies in the lake alone, with whole rows instead.
    async fn write_with_bases(
        &self,
        table: &Arc<TableHandle>,
        batch: &MutationBatch,
        waiter: &dyn Waiter,
    ) -> Result<WriteOutcome> {
        for _ in 0..MAX_TRIES {
            let (whole, read) = self.parts.with_bases(table, batch).await?;
            let asked = [whole, batch.clone()];
            for asked in asked {
                let decided = self.commit(table, waiter, vec![asked]).await?;
                match decided.into_iter().map(|decided| decided.outcome).reduce(join) {
                    Some(Outcome::Applied { affected }) => return Ok(WriteOutcome::Rows(affected)),
                    // The guard is not the caller's: the row changed after it was read here, so it is no longer in the
                    // lake alone, and what was asked can be decided as it is. Reading it again could go on as long as
                    // others write it.
                    Some(Outcome::Conflict { key }) if read.contains(&key) => {}
                    Some(Outcome::Conflict { .. }) => return Ok(WriteOutcome::Conflict),
                    Some(Outcome::Exists { key }) => return Ok(WriteOutcome::Exists { key }),
                    _ => break,
                }
            }
        }
        Err(conflict(&table.schema().name))
    }
}

/// What somebody waits for and has submitted. Dropped before it is decided, it wrote nothing.
pub struct SubmittedWrite<'a> {
    waiter: &'a dyn Waiter,
    rows: u64,
}

impl<'a> SubmittedWrite<'a> {
    /// `None`: it is not wanted any more.
    pub fn by(waiter: &'a dyn Waiter) -> Option<SubmittedWrite<'a>> {
        waiter.submits().then_some(SubmittedWrite { waiter, rows: 0 })
    }

    /// So many rows were written.
    pub fn decided(mut self, rows: u64) {
        self.rows = rows;
    }
}

impl Drop for SubmittedWrite<'_> {
    fn drop(&mut self) {
        self.waiter.decided(self.rows);
    }
}

impl NodeParts {
    /// The batch with whole rows for changes of cells, each guarded by the change it was read at; and the keys that got
    /// such a guard.
    async fn with_bases(
        &self,
        table: &TableHandle,
        batch: &MutationBatch,
    ) -> Result<(MutationBatch, HashSet<Vec<u8>>)> {
        let schema = table.schema();
        let mut whole = BatchBuilder::new(schema);
        let (mut seen, mut guarded) = (HashSet::new(), HashSet::new());
        let theirs: HashSet<&[u8]> =
            batch.iter().filter(|mutation| mutation.guard.is_some()).map(|mutation| mutation.key).collect();
        for mutation in batch.iter() {
            // What a batch did to a row before is its base; an Insert did nothing to one that is there.
            let is_first = mutation.op == Op::Insert || seen.insert(mutation.key);
            let base = match mutation.op {
                Op::Patch if is_first => self.row(table, mutation.key).await?,
                _ => None,
            };
            let Some(base) = base else {
                whole.push(&mutation);
                continue;
            };
            let cells = patch_cells(&encode_cells(schema, &base.values)?, mutation.cells)?;
            if !theirs.contains(mutation.key) {
                guarded.insert(mutation.key.to_vec());
            }
            let guard = mutation.guard.or(Some(base.seqno));
            whole.push(&Mutation { op: Op::Put, key: mutation.key, guard, cells: &cells });
        }
        Ok((whole.finish(), guarded))
    }
}

impl TableHandle {
    /// Commits on the calling thread, which waits for the disk.
    pub(crate) fn propose(&self, batches: &[MutationBatch]) -> Result<Vec<PartDecision>> {
        match &self.way_in {
            WayIn::Logged(replicas) => self.proposed(|| Ok(replicas.propose(batches)?)),
            WayIn::Unlogged(unlogged) => self.proposed(|| unlogged.propose(batches)),
        }
    }

    /// As [`TableHandle::propose`], of one batch whole.
    fn propose_whole(&self, batch: MutationBatch) -> Result<Vec<PartDecision>> {
        match &self.way_in {
            WayIn::Logged(replicas) => self.proposed(|| Ok(commit_together(&[(&**replicas, batch)])?)),
            WayIn::Unlogged(unlogged) => self.proposed(|| unlogged.propose(&[batch])),
        }
    }

    /// Rows and their entries: all of them, or none.
    fn propose_with_entries(&self, known: BatchLookup) -> Result<(SettledWrite, u64)> {
        let Some(asked) = known.with_entries()? else { return Ok((SettledWrite::Written(WriteOutcome::Conflict), 0)) };
        let mut in_use: Vec<&TableHandle> = asked.entries.iter().map(|(index, _)| &*index.entries).collect();
        in_use.push(self);
        // In the order of ids, as all who hold several.
        in_use.sort_by_key(|handle| handle.schema().id);
        let _in_use = in_use.into_iter().map(TableHandle::enter).collect::<Result<Vec<_>>>()?;
        let mut batches = vec![(&**self.replicas()?, asked.rows.clone())];
        for (index, batch) in &asked.entries {
            batches.push((&**index.entries.replicas()?, batch.clone()));
        }
        let decided = commit_together(&batches)?;
        tracing::debug!(parts = decided.len(), "committed");
        asked.settled(decided)
    }

    fn proposed(&self, propose: impl FnOnce() -> Result<Vec<PartDecision>>) -> Result<Vec<PartDecision>> {
        let _in_use = self.enter()?;
        let decided = propose()?;
        tracing::debug!(parts = decided.len(), rows = applied(&decided), "committed");
        Ok(decided)
    }
}

impl WithEntries {
    /// What became of it, and how many rows were written.
    fn settled(&self, decided: Vec<PartDecision>) -> Result<(SettledWrite, u64)> {
        let (mut rows, mut refused) = (0, None);
        for PartDecision { of, outcome, .. } in decided {
            let index = of.checked_sub(1).and_then(|of| self.entries.get(of)).map(|(index, _)| index);
            let was_read = |key: &Vec<u8>| index.is_none() && self.read.contains(key);
            match (outcome, index) {
                (Outcome::Applied { affected }, None) => rows += affected,
                (Outcome::Applied { .. }, Some(_)) => {}
                (Outcome::Conflict { key } | Outcome::Exists { key }, _) if was_read(&key) => {
                    return Ok((SettledWrite::Again, 0));
                }
                (Outcome::Exists { .. }, Some(_)) if self.gives_way => return Ok((SettledWrite::Again, 0)),
                (Outcome::Conflict { .. }, _) => refused = Some(WriteOutcome::Conflict),
                // A row that was changed meanwhile speaks first, then the primary key.
                (Outcome::Exists { key }, None) => {
                    refused = refused.filter(is_conflict).or(Some(WriteOutcome::Exists { key }))
                }
                (Outcome::Exists { key }, Some(index)) => {
                    refused = refused.or(Some(WriteOutcome::Taken { index: index.unique.index, key }));
                }
                (Outcome::NeedsBase { .. }, _) => {
                    return Err(Error::new(
                        ErrorKind::Internal,
                        "a change of cells was to be written with its entries",
                    ));
                }
            }
        }
        Ok((SettledWrite::Written(refused.unwrap_or(WriteOutcome::Rows(rows))), rows))
    }
}

fn is_conflict(written: &WriteOutcome) -> bool {
    *written == WriteOutcome::Conflict
}

impl WriteOutcome {
    fn and(self, other: WriteOutcome) -> WriteOutcome {
        match (self, other) {
            (WriteOutcome::Rows(one), WriteOutcome::Rows(other)) => WriteOutcome::Rows(one + other),
            (WriteOutcome::Rows(_), refused) | (refused, _) => refused,
        }
    }
}

/// What became of a batch of which a split made two parts: one that is refused speaks for both.
fn join(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Applied { affected: one }, Outcome::Applied { affected: other }) => {
            Outcome::Applied { affected: one + other }
        }
        (Outcome::Applied { .. }, refused) | (refused, _) => refused,
    }
}

/// What was decided, and how many rows were written.
fn counted(decided: Vec<PartDecision>) -> (Vec<PartDecision>, u64) {
    let rows = applied(&decided);
    (decided, rows)
}

/// Rows written in all, whatever became of the rest.
fn applied(decided: &[PartDecision]) -> u64 {
    let affected =
        |decided: &PartDecision| if let Outcome::Applied { affected } = decided.outcome { affected } else { 0 };
    decided.iter().map(affected).sum()
}

/// Rows written in all; a conflict is `Conflict`, a key that is there `KeyExists`.
pub fn all_written(table: &TableHandle, written: &[WriteOutcome]) -> Result<u64> {
    let rows = written.iter().map(|written| match written {
        WriteOutcome::Rows(rows) => Ok(*rows),
        WriteOutcome::Conflict => Err(conflict(&table.schema().name)),
        WriteOutcome::Exists { key } => Err(Error::key_exists(table.schema(), key.clone())),
        WriteOutcome::Taken { index, key } => Err(taken(table, *index, key.clone())),
    });
    rows.sum()
}

/// `KeyExists`: another row of the table has the values of this entry.
pub fn taken(table: &TableHandle, index: TableId, key: Vec<u8>) -> Error {
    match table.schema().options.rules.uniques.iter().find(|unique| unique.index == index) {
        Some(unique) => Error::entry_exists(table.schema(), unique.clone(), key),
        None => altered(&table.schema().name),
    }
}

/// `Conflict`: somebody changed a row between reading and writing it.
pub fn conflict(table: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("could not serialize access to table \"{table}\": a row changed meanwhile"))
        .with_hint("run the statement or transaction again")
}

/// Makes one batch of mutations that came as several, keeping their order.
pub fn merge(handle: &TableHandle, batches: &[MutationBatch]) -> MutationBatch {
    if let [only] = batches {
        return only.clone();
    }
    let mut merged = BatchBuilder::new(handle.schema());
    for mutation in batches.iter().flat_map(MutationBatch::iter) {
        merged.push(&mutation);
    }
    merged.finish()
}
