//! What do several statements write together, and what do they see meanwhile?
//!
//! What they wrote waits with whoever runs them ([`OwnWrites`]). [`TableService::commit_together`] takes the writes of
//! all tables in, all or none: one write of the log, and visible at one moment. A [`NodeSnapshot`] is what a
//! transaction keeps that wants to see the same rows in all its statements.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tarn_replica::{PartDecision, commit_named, commit_together};
use tarn_rows::{Lookup, Outcome, Table};
use tarn_types::{BatchBuilder, MutationBatch, TableId, TableSchema, decode_row};

use crate::auth::{Principal, Privilege};
use crate::catalog::{CatalogEntry, TableHandle, WayIn};
use crate::entries::are_there;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::{UncommittedWrites, settle_now};
use crate::own::OwnWrites;
use crate::parts::NodeParts;
use crate::requests::NamedRequest;
use crate::snapshot::{OpenTable, TableSnapshot};
use crate::tables::{Row, TableService};
use crate::threads::blocking;
use crate::write::{SubmittedWrite, Waiter, conflict};

/// How often a moment is looked for anew because a table was dropped meanwhile.
const MAX_TRIES: usize = 8;

/// What a transaction wrote into one table.
#[derive(Clone)]
pub struct TableWrites {
    /// The table, which must be the one that was written.
    pub table: Arc<TableHandle>,
    /// What the writes need.
    pub privileges: BTreeSet<Privilege>,
    /// The writes.
    pub own: Arc<OwnWrites>,
}

/// All tables of the node at one moment. Holds back what it stands on (files, old rows) while it lives.
pub struct NodeSnapshot(HashMap<TableId, TableSnapshot>);

impl TableService {
    /// Commits writes of different tables, all or none: durable together, and seen together by everybody. Answers how
    /// many rows were written and deleted. Waits for room first. Those of temporary tables follow, which nobody else
    /// reads or writes.
    ///
    /// Cost: one durable write, whatever the number of tables. Errors: as of [`TableService::write`]; `Conflict` when a
    /// row is not any more what the transaction read, `KeyExists` when somebody else inserted its key, `ForeignKey` for
    /// a row without its parent: nothing was written then. `Indeterminate` is about all of them.
    pub async fn commit_together(&self, who: &Principal, writes: Vec<TableWrites>, waiter: &dyn Waiter) -> Result<u64> {
        self.commit_as_one(who, writes, None, waiter).await
    }

    /// As [`TableService::commit_together`], by a request, whose outcome is there with the writes or not at all. It may
    /// write nothing. Who commits it has begun it ([`TableService::begin_request`]).
    ///
    /// Errors: as of [`TableService::commit_together`]; `WrongState` for a request whose table is temporary.
    pub async fn commit_request(
        &self,
        who: &Principal,
        writes: Vec<TableWrites>,
        named: NamedRequest,
        waiter: &dyn Waiter,
    ) -> Result<u64> {
        named.home.replicas()?;
        self.commit_as_one(who, writes, Some(named), waiter).await
    }

    async fn commit_as_one(
        &self,
        who: &Principal,
        writes: Vec<TableWrites>,
        named: Option<NamedRequest>,
        waiter: &dyn Waiter,
    ) -> Result<u64> {
        let mut asked: BTreeMap<TableId, (Arc<TableHandle>, MutationBatch)> = BTreeMap::new();
        let mut wrote = UncommittedWrites::default();
        for TableWrites { table, privileges, own } in writes {
            for privilege in privileges {
                self.may(who, table.schema(), privilege)?;
            }
            self.parts.wait_for_room(&table).await?;
            let batch = own.batch();
            wrote.own.insert(table.schema().id, own);
            if !batch.is_empty() {
                asked.insert(table.schema().id, (table, batch));
            }
        }
        if let Some(NamedRequest { home, .. }) = &named {
            let nothing = || (Arc::clone(home), BatchBuilder::new(home.schema()).finish());
            asked.entry(home.schema().id).or_insert_with(nothing);
        }
        self.parts.check_writable()?;
        let Some(submitted) = SubmittedWrite::by(waiter) else {
            return Err(Error::new(ErrorKind::Canceled, "whoever wanted the write went away"));
        };
        let span = tracing::debug_span!("commit", tables = asked.len());
        let began_us = self.parts.clock.monotonic_us();
        let asked: Vec<(Arc<TableHandle>, MutationBatch)> = asked.into_values().collect();
        let decided = {
            let (asked, parts) = (asked.clone(), Arc::clone(&self.parts));
            blocking(move || span.in_scope(|| propose(&parts, &asked, &wrote, named.as_ref()))).await?
        };
        self.parts.metrics.commit_seconds.observe_us(self.parts.clock.monotonic_us().saturating_sub(began_us));
        let (mut rows, mut exists) = (0, None);
        for PartDecision { of, outcome, .. } in decided {
            let table = asked[of].0.schema();
            match outcome {
                Outcome::Applied { .. } if table.options.is_index => {}
                Outcome::Applied { affected } => rows += affected,
                // Whoever tries again may find another row there, or none.
                Outcome::Conflict { .. } => return Err(conflict(&table.name)),
                Outcome::Exists { key } => {
                    let error = self.parts.of_constraint(Error::key_exists(table, key));
                    // The primary key speaks first.
                    exists = exists.filter(|_| table.options.is_index).or(Some(error));
                }
                Outcome::NeedsBase { .. } => {
                    return Err(Error::new(ErrorKind::Internal, "a transaction writes whole rows"));
                }
            }
        }
        if let Some(exists) = exists {
            return Err(exists);
        }
        submitted.decided(rows);
        self.parts.metrics.rows_written.inc_by(rows);
        Ok(rows)
    }

    /// Whether rows with these engine keys are there, in the order of `keys`: now, wherever they lie. For whoever is
    /// about to insert them.
    ///
    /// Cost: one read of the row engine for all.
    /// Errors: `Denied`. Not for append-only tables, whose keys are not unique.
    pub async fn are_there(&self, who: &Principal, table: &Arc<TableHandle>, keys: Vec<Vec<u8>>) -> Result<Vec<bool>> {
        self.may(who, table.schema(), Privilege::Insert)?;
        are_there(table, keys).await
    }

    /// The row of an engine key as a snapshot shows it, wherever it lies.
    ///
    /// Cost: as of [`TableService::get`].
    /// Errors: `Denied`.
    pub async fn get_in(
        &self,
        who: &Principal,
        table: &TableSchema,
        snapshot: &TableSnapshot,
        key: &[u8],
    ) -> Result<Option<Row>> {
        self.may(who, table, Privilege::Select)?;
        let (values, seqno) = match snapshot.get(key)? {
            Lookup::Row { cells, seqno } => (decode_row(table, key, &cells)?, seqno),
            Lookup::Absent => return Ok(None),
            Lookup::InLake(address) => {
                // The snapshot keeps the files of its version.
                let lake = self.parts.lake_version(table, snapshot.version()).await?;
                let found = Box::pin(self.parts.fetch(table, &lake, &[address])).await?;
                let Some(values) = found.into_iter().next() else { return Ok(None) };
                (values, address.seqno)
            }
        };
        Ok(Some(Row { values, seqno }))
    }

    /// All tables, now. Whether somebody may read one is asked when they do.
    ///
    /// Cost: a few references a table; no IO.
    /// Errors: `Unavailable` while tables are dropped again and again.
    pub fn moment(&self) -> Result<NodeSnapshot> {
        let mut last = None;
        for _ in 0..MAX_TRIES {
            let entries = self.parts.catalog.entries();
            let (mut handles, mut seen) = (Vec::new(), HashMap::new());
            for entry in &entries {
                match entry {
                    CatalogEntry::Table(handle) => handles.push(handle),
                    CatalogEntry::External(external) => {
                        let now = external.seen();
                        seen.insert(now.schema.id, TableSnapshot::of_files(now.version()));
                    }
                    // It has no rows of its own.
                    CatalogEntry::View(_) => {}
                }
            }
            let tables: Vec<&Table> = handles.iter().map(|handle| handle.table.as_ref()).collect();
            match Table::snapshot_all(&tables) {
                Ok(snapshots) => {
                    let ids = handles.iter().map(|handle| handle.schema().id);
                    seen.extend(ids.zip(snapshots.into_iter().map(TableSnapshot::of_rows)));
                    return Ok(NodeSnapshot(seen));
                }
                // One of them was dropped just now.
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(Error::stopping, Error::from))
    }
}

impl NodeParts {
    /// `KeyExists` of an entry as one of the table that it is an entry of.
    pub(crate) fn of_constraint(&self, error: Error) -> Error {
        let Some(existing) = error.existing().filter(|existing| existing.table.options.is_index) else { return error };
        match self.catalog.table_of_index(existing.table.id) {
            Some((table, unique)) => Error::entry_exists(&table, unique, existing.key.clone()),
            // The table was dropped meanwhile.
            None => conflict(&existing.table.name),
        }
    }
}

impl NodeSnapshot {
    /// A table at that moment. `None`: it was made later.
    #[must_use]
    pub fn of(&self, table: &OpenTable) -> Option<TableSnapshot> {
        self.0.get(&table.schema().id).cloned()
    }
}

/// Commits on the calling thread, which waits for the disk. The tables ascend by their ids: temporary ones are the
/// last.
///
/// Errors: `ForeignKey`, before anything is written.
fn propose(
    parts: &NodeParts,
    asked: &[(Arc<TableHandle>, MutationBatch)],
    wrote: &UncommittedWrites,
    named: Option<&NamedRequest>,
) -> Result<Vec<PartDecision>> {
    let mut in_use = Vec::with_capacity(asked.len());
    for (table, _) in asked {
        in_use.push(table.enter()?);
    }
    // Only now: who has entered its gates knows all foreign keys of a table.
    let _held = settle_now(parts, wrote)?;
    let (mut logged, mut unlogged) = (Vec::new(), Vec::new());
    for (of, (table, batch)) in asked.iter().enumerate() {
        match &table.way_in {
            WayIn::Logged(replicas) => logged.push((of, (&**replicas, batch.clone()))),
            WayIn::Unlogged(table) => unlogged.push((of, table, batch.clone())),
        }
    }
    // The table that keeps the outcome of a request is the first.
    let home = named.map(|named| named.home.schema().id);
    logged.sort_by_key(|(of, _)| Some(asked[*of].0.schema().id) != home);
    let (places, logged): (Vec<usize>, Vec<_>) = logged.into_iter().unzip();
    let decided = match named {
        Some(named) => commit_named(&logged, &named.request),
        None => commit_together(&logged),
    };
    let decided = parts.latches.note(decided.map_err(Error::from))?;
    let mut decided: Vec<PartDecision> =
        decided.into_iter().map(|part| PartDecision { of: places[part.of], ..part }).collect();
    for (of, table, batch) in unlogged {
        if decided.iter().any(PartDecision::is_refused) {
            break;
        }
        decided.extend(table.propose(&[batch])?.into_iter().map(|part| PartDecision { of, ..part }));
    }
    tracing::debug!(parts = decided.len(), "committed");
    Ok(decided)
}
