//! How does a transaction define tables otherwise when it commits, so that its rows and its definitions are there
//! together or not at all?
//!
//! ```text
//! writers of the altered tables are kept out ─> [rows are delivered] ─> writers of all its tables wait ─> would its rows get in?
//!    ─> COMMITTING has the rows ─> metastore ─> catalog ─> log ─> COMMITTING is gone ─> writers go on
//! ```
//!
//! The metastore's change is the moment, for all tables and the views that read them. Before it, whatever dies or is
//! refused, nothing happened: that rows conflict is found out first, while nobody can write them. Behind it the rows
//! get in: nothing can refuse them any more, and if the process dies, the next start writes them from the file
//! (`committing.rs`). Rows first and definitions behind would be the other order; then a crash left rows in the log
//! with cells of columns that no definition has.
//!
//! | dies | the next start finds |
//! |---|---|
//! | before the file is there, or before the metastore changed | the old definitions; the file is dropped; nothing happened |
//! | behind the metastore's change | the new definitions, and the file: the rows are written, unless they are in the log |
//! | when the file is gone | what was committed |
//!
//! Writers that were planned for an old definition are refused (`Conflict`) and planned anew; those of other tables
//! wait for as long as the metastore and the log take. Readers go on: for the time of one write of the log they may see
//! the new definitions without the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockWriteGuard};
use tarn_metastore::Alteration;
use tarn_replica::{PartDecision, Replicas, commit_together};
use tarn_rows::Outcome;
use tarn_types::{BatchBuilder, Cursor, Mutation, MutationBatch, Op, TableId, TableSchema, decode_row, encode_cells};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

use crate::alter::keep_writers_out;
use crate::auth::{AuthAction, Principal};
use crate::beside::check_name;
use crate::catalog::{CatalogEntry, Gate, TableHandle, WayIn, altered};
use crate::committing::{CommitIntent, IntentFile, check};
use crate::edges::{Edge, Edges};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::{UncommittedWrites, settle};
use crate::node::Node;
use crate::threads::blocking;
use crate::transaction::TableWrites;
use crate::view_readers::{Rewrites, names_change, readers_of};
use crate::write::conflict;

/// A table that a transaction altered, or that others are to refer to from now on, which is as it was.
#[derive(Clone)]
pub struct AlteredTable {
    /// As it was when the transaction first altered it, which it has to be still.
    pub from: Arc<TableSchema>,
    /// As it is to be.
    pub to: Arc<TableSchema>,
    /// Where the table stood when its rows were looked at, if they have to be those still.
    pub looked_at: Option<Cursor>,
}

/// Tables that nobody writes until they are altered. Dropped before that, they are as they were.
struct ClosedTables {
    node: Arc<Node>,
    tables: Vec<(Arc<TableHandle>, AlteredTable)>,
    /// Others are there in their place, or it is not known what the metastore did.
    is_over: bool,
    _one: OwnedMutexGuard<()>,
}

/// What is done on one thread, which waits for the metastore and the disk.
struct AlterCommit {
    node: Arc<Node>,
    runtime: Handle,
    tables: Vec<(Arc<TableHandle>, AlteredTable)>,
    readers: Vec<Alteration>,
    wrote: UncommittedWrites,
    /// By table, in the order of their ids; of altered tables as they are to be.
    writes: Vec<(Arc<TableHandle>, MutationBatch)>,
}

/// What became of it.
enum AlterOutcome {
    Committed {
        rows: u64,
    },
    /// Nothing happened.
    Refused(Error),
    /// It may have happened, and is looked at when the node starts again: until then nobody writes its tables.
    Unknown(Error),
}

impl Node {
    /// Commits a transaction that altered tables: all of its writes and definitions, or nothing. Answers how many rows
    /// were written and deleted. Waits for room first. To be called where it is not given up half-way.
    ///
    /// Errors: as of [`TableService::commit_together`](crate::tables::TableService::commit_together); `Denied` for a
    /// table of another, also for one that a foreign key is to refer to; `Conflict` where
    /// somebody else altered one of the tables, or wrote one whose rows were looked at; `TableExists` for a name that
    /// is taken by now; `WrongState` for writes of append-only tables, of which a restart could not tell whether they
    /// are there. `Indeterminate`: what became of it is known when the node starts again; its tables take no writes
    /// until then.
    pub async fn commit_altering(
        self: &Arc<Self>,
        who: &Principal,
        mut tables: Vec<AlteredTable>,
        writes: Vec<TableWrites>,
        rewrites: Rewrites,
    ) -> Result<u64> {
        tables.sort_by_key(|table| table.from.id);
        self.may(who, &AuthAction::Session)?;
        for AlteredTable { from, to, .. } in &tables {
            self.may_own(who, from)?;
            self.may_move(who, &from.name, &to.name)?;
            self.may_refer(who, Some(from), to)?;
        }
        self.check_writes(who, &writes).await?;
        let mut shut =
            ClosedTables { node: Arc::clone(self), tables: vec![], is_over: false, _one: self.lock_catalog().await };
        self.check_open()?;
        for table in tables {
            shut.shut(table).await?;
        }
        fail::fail_point!("commit::shut");
        for (handle, table) in &shut.tables {
            if !table.to.stores_as(&table.from) {
                self.deliver_all(handle).await?;
            }
        }
        for (_, table) in &shut.tables {
            self.check_index_names(Some(&table.from), &table.to)?;
        }
        let changes: Vec<(&TableSchema, &TableSchema)> =
            shut.tables.iter().map(|(_, table)| (&*table.from, &*table.to)).collect();
        let readers = readers_of(&self.catalog().views(), &changes, rewrites)?;
        self.mark_owners(&shut.tables).await?;
        let own = writes.iter().map(|of_table| (of_table.table.schema().id, Arc::clone(&of_table.own)));
        let wrote = UncommittedWrites { own: own.collect(), keys: None };
        let writes = shut.writes(writes)?;
        shut.check_parents()?;
        let tables = shut.tables.clone();
        let moment = AlterCommit { node: Arc::clone(self), runtime: Handle::current(), tables, readers, wrote, writes };
        // Whatever becomes of the thread: only what was refused is as it was.
        shut.is_over = true;
        match blocking(move || Ok(moment.commit())).await? {
            AlterOutcome::Committed { rows } => {
                if shut
                    .tables
                    .iter()
                    .any(|(_, AlteredTable { from, to, .. })| from.name != to.name || names_change(from, to))
                {
                    self.sequences().forget_owners();
                }
                for (_, table) in &shut.tables {
                    self.forget_columns(&table.from, &table.to).await;
                    self.metrics().set_delivery_failing(&table.from.name, false);
                    self.drop_indexes_of(&table.from, Some(&table.to)).await;
                }
                self.metrics().rows_written.inc_by(rows);
                Ok(rows)
            }
            AlterOutcome::Refused(error) => {
                shut.is_over = false;
                Err(error)
            }
            AlterOutcome::Unknown(error) => {
                let hint = "the server must start again to know what became of the transaction; until then its tables \
                            take no writes";
                Err(Error::new(ErrorKind::Indeterminate, error.message().to_owned()).with_hint(hint))
            }
        }
    }

    async fn check_writes(&self, who: &Principal, writes: &[TableWrites]) -> Result<()> {
        for TableWrites { table, privileges, .. } in writes {
            for privilege in privileges {
                self.tables().may(who, table.schema(), *privilege)?;
            }
            if table.schema().options.append_only {
                let name = &table.schema().name;
                let message = format!("append-only table \"{name}\" is written in a transaction that alters a table");
                return Err(Error::new(ErrorKind::WrongState, message)
                    .with_hint("COMMIT between the two: what is appended cannot be told from what a crash left"));
            }
            // By the handle that has a worker.
            let served = self.catalog().all().into_iter().find(|handle| handle.schema().id == table.schema().id);
            self.parts().wait_for_room(served.as_ref().unwrap_or(table)).await?;
        }
        self.parts().check_writable()
    }

    /// What goes with tables and columns that are called otherwise knows them by their ids from now on.
    async fn mark_owners(&self, tables: &[(Arc<TableHandle>, AlteredTable)]) -> Result<()> {
        for (_, AlteredTable { from, to, .. }) in tables {
            self.know_columns(from, to).await?;
            if from.name != to.name {
                check_name(&to.name)?;
                if self.sequences().all().await?.iter().any(|(name, _)| *name == to.name) {
                    let message = format!("relation \"{}\" already exists", to.name);
                    return Err(Error::new(ErrorKind::TableExists, message)
                        .with_hint("tables, views and sequences share their names"));
                }
                self.sequences().know_by_id(&from.name, from.id).await?;
            }
        }
        Ok(())
    }
}

impl ClosedTables {
    /// Keeps writers out of one more table.
    async fn shut(&mut self, table: AlteredTable) -> Result<()> {
        let name = &table.from.name;
        let handle = self.node.catalog().require(name)?;
        if **handle.schema() != *table.from {
            return Err(altered(name));
        }
        handle.check_whole()?;
        self.tables.push((Arc::clone(&handle), table.clone()));
        keep_writers_out(&handle).await?;
        if table.looked_at.is_some_and(|position| position != handle.position()) {
            let message =
                format!("could not serialize access to table \"{name}\": it was written since its rows were looked at");
            return Err(Error::new(ErrorKind::Conflict, message).with_hint("run the transaction again"));
        }
        Ok(())
    }

    /// Nobody writes the parents of foreign keys that come, whose rows were looked at: else one of them may be gone by
    /// now.
    fn check_parents(&self) -> Result<()> {
        for (_, AlteredTable { from, to, .. }) in &self.tables {
            let come =
                to.options.rules.foreign_keys.iter().filter(|key| !from.options.rules.foreign_keys.contains(key));
            for key in come {
                let parent = key.parent_of(to.id);
                if !self.tables.iter().any(|(_, table)| table.to.id == parent) {
                    let message =
                        format!("the parent of foreign key \"{}\" of table \"{}\" was not kept", key.name, to.name);
                    return Err(Error::new(ErrorKind::Internal, message));
                }
            }
        }
        Ok(())
    }

    /// What is written into each table, by the handle that is the table's now.
    fn writes(&self, writes: Vec<TableWrites>) -> Result<Vec<(Arc<TableHandle>, MutationBatch)>> {
        let mut asked: BTreeMap<TableId, (Arc<TableHandle>, MutationBatch)> = BTreeMap::new();
        for TableWrites { table, own, .. } in writes {
            let schema = table.schema();
            let batch = own.batch();
            let is_altered = self.tables.iter().find(|(_, altered)| altered.from.id == schema.id);
            let (handle, batch) = match is_altered {
                Some((handle, AlteredTable { to, .. })) => (Arc::clone(handle), as_it_is_to_be(to, &batch)?),
                None => (table, batch),
            };
            if !batch.is_empty() {
                asked.insert(handle.schema().id, (handle, batch));
            }
        }
        Ok(asked.into_values().collect())
    }
}

impl Drop for ClosedTables {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let opened = self.tables.iter().filter_map(|(handle, _)| {
            let (schema, replicas) = (Arc::clone(handle.schema()), handle.replicas().ok()?);
            Some(CatalogEntry::Table(self.node.served_anew(handle, replicas, schema, Arc::default())))
        });
        let opened = opened.collect();
        self.node.catalog().replace(&[], opened);
    }
}

/// Rows that were written by an older definition, or by the one that is to be, by that.
///
/// Errors: `Conflict` for a NULL where none may be: who altered the table looked for those.
fn as_it_is_to_be(to: &TableSchema, batch: &MutationBatch) -> Result<MutationBatch> {
    let mut written = BatchBuilder::new(to);
    for mutation in batch.iter() {
        if mutation.op == Op::Delete {
            written.push(&mutation);
            continue;
        }
        let values = decode_row(to, mutation.key, mutation.cells)?;
        let cells = encode_cells(to, &values).map_err(|_| altered(&to.name))?;
        written.push(&Mutation { cells: &cells, ..mutation });
    }
    Ok(written.finish())
}

impl AlterCommit {
    fn commit(self) -> AlterOutcome {
        let is_altered = |handle: &TableHandle| self.tables.iter().any(|(_, of)| of.from.id == handle.schema().id);
        let gates: Vec<Arc<RwLock<Gate>>> = self.tables.iter().map(|_| Arc::default()).collect();
        let mut waiting: Vec<RwLockWriteGuard<'_, Gate>> = vec![];
        for (handle, _) in self.writes.iter().filter(|(handle, _)| !is_altered(handle)) {
            // In the order of ids, as all who hold several.
            let gate = handle.gate.write();
            let refused = match *gate {
                Gate::Open => handle.check_whole().err(),
                Gate::Dropped => Some(handle.dropped()),
                Gate::Altered => Some(altered(&handle.schema().name)),
            };
            if let Some(error) = refused {
                return AlterOutcome::Refused(error);
            }
            waiting.push(gate);
        }
        for (handle, batch) in &self.writes {
            if let Err(error) = check(handle.schema(), &handle.table, batch) {
                return AlterOutcome::Refused(self.node.parts().of_constraint(error));
            }
        }
        let mut tables = self.node.catalog().schemas();
        tables.retain(|table| self.tables.iter().all(|(_, altered)| altered.from.id != table.id));
        tables.extend(self.tables.iter().map(|(_, altered)| Arc::clone(&altered.to)));
        let edges = Edges::of(&tables);
        if let Err(error) = self.check_references(&edges) {
            return AlterOutcome::Refused(error);
        }
        let _held = match settle(self.node.parts(), &edges, &self.wrote) {
            Ok(held) => held,
            Err(error) => return AlterOutcome::Refused(error),
        };
        let noted = match self.note() {
            Ok(noted) => noted,
            Err(error) => return AlterOutcome::Refused(error),
        };
        fail::fail_point!("commit::noted");
        // One that is only kept as it is, as others are to refer to it, is defined as it was.
        let is_other = |of: &&AlteredTable| of.from != of.to;
        let mut changes: Vec<Alteration> =
            self.tables.iter().map(|(_, of)| of).filter(is_other).map(AlteredTable::alteration).collect();
        changes.extend(self.readers.iter().cloned());
        if let Err(error) = self.runtime.block_on(self.node.define_all(changes)) {
            if error.kind() != ErrorKind::Indeterminate {
                if let Some(Err(left)) = noted.map(IntentFile::forget) {
                    // The next start finds that the metastore has another definition, and drops it.
                    tracing::warn!(error = %left, "what a transaction noted before it was refused is left until the next start");
                }
                return AlterOutcome::Refused(error);
            }
            waiting.iter_mut().for_each(|gate| **gate = Gate::Altered);
            return AlterOutcome::Unknown(error);
        }
        fail::fail_point!("commit::defined");
        let mut opening: Vec<RwLockWriteGuard<'_, Gate>> = gates.iter().map(|gate| gate.write()).collect();
        let written = self.show(&gates).and_then(|()| self.write()).and_then(|rows| {
            fail::fail_point!("commit::written");
            noted.map_or(Ok(()), IntentFile::forget).map(|()| rows)
        });
        written.map_or_else(
            |error| {
                waiting.iter_mut().chain(&mut opening).for_each(|gate| **gate = Gate::Altered);
                AlterOutcome::Unknown(error)
            },
            |rows| AlterOutcome::Committed { rows },
        )
    }

    /// Whether the keys stay that others refer to: a foreign key may have come since the transaction looked, whose
    /// parent it altered.
    ///
    /// Errors: `Conflict`.
    fn check_references(&self, edges: &Edges) -> Result<()> {
        let before = self.node.parts().edges.now(self.node.catalog());
        let is_altered = |table: &TableSchema| self.tables.iter().any(|(_, of)| of.to.id == table.id);
        let is_kept = |edge: &Edge| {
            let is_it = |now: &Edge| now.child.id == edge.child.id && now.key.name == edge.key.name;
            edges.to(edge.parent.id).any(|now| is_it(now) && now.referenced.keys == edge.referenced.keys)
        };
        let mut of_others = before.all.iter().filter(|edge| is_altered(&edge.parent) && !is_altered(&edge.child));
        match of_others.find(|edge| !is_kept(edge)) {
            None => Ok(()),
            Some(edge) => Err(altered(&edge.parent.name)),
        }
    }

    /// `None`: there are no rows that a crash could take.
    fn note(&self) -> Result<Option<IntentFile>> {
        let logged = self.writes.iter().filter(|(handle, _)| !handle.schema().id.is_temporary());
        let batches: Vec<MutationBatch> = logged.map(|(_, batch)| batch.clone()).collect();
        // One whose definition tells whether the transaction is committed.
        let first = self.tables.iter().find(|(_, of)| of.from != of.to);
        let Some((_, first)) = first.filter(|_| !batches.is_empty()) else { return Ok(None) };
        CommitIntent::new(&first.to, batches).note(&self.node.settings().data_dir).map(Some)
    }

    /// Puts the tables and views into the catalog as they are now, by handles with these gates.
    fn show(&self, gates: &[Arc<RwLock<Gate>>]) -> Result<()> {
        let mut there: Vec<CatalogEntry> =
            self.readers.iter().map(|change| CatalogEntry::View(Arc::new((*change.to).clone()))).collect();
        for ((handle, of), gate) in self.tables.iter().zip(gates) {
            handle.table.alter(Arc::clone(&of.to))?;
            let served = self.node.served_anew(handle, handle.replicas()?, Arc::clone(&of.to), Arc::clone(gate));
            there.push(CatalogEntry::Table(served));
        }
        let gone: Vec<String> = self.tables.iter().map(|(_, of)| of.from.name.clone()).collect();
        self.node.catalog().replace(&gone, there);
        Ok(())
    }

    /// Writes the rows, of tables that are in the log as one, then those of temporary ones.
    fn write(&self) -> Result<u64> {
        let (mut logged, mut unlogged): (Vec<(&Replicas, MutationBatch)>, Vec<_>) = (vec![], vec![]);
        for (handle, batch) in &self.writes {
            match &handle.way_in {
                WayIn::Logged(replicas) => logged.push((&**replicas, batch.clone())),
                WayIn::Unlogged(table) => unlogged.push((table, batch.clone())),
            }
        }
        let mut decided: Vec<PartDecision> = if logged.is_empty() { vec![] } else { commit_together(&logged)? };
        for (table, batch) in unlogged {
            decided.extend(table.propose(&[batch])?);
        }
        let mut rows = 0;
        for PartDecision { outcome, .. } in decided {
            match outcome {
                Outcome::Applied { affected } => rows += affected,
                _ => return Err(conflict("that nobody could write")),
            }
        }
        Ok(rows)
    }
}

impl AlteredTable {
    fn alteration(&self) -> Alteration {
        Alteration { from: Arc::clone(&self.from), to: Box::new((*self.to).clone()) }
    }
}
