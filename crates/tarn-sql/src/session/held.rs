//! How does a write wait for COMMIT, and how do the statements of a transaction find rows that it wrote?
//!
//! What depends on a key's being there is decided when the statement runs, by what the transaction wrote and by what is
//! committed: a row that is to be inserted is held as one whose key was not there, which has to be so still at COMMIT.
//! So are the entries of its unique constraints, which are held like rows of other tables.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tarn_node::auth::Principal;
use tarn_node::catalog::TableHandle;
use tarn_node::entries::{BatchLookup, Index, RowLookup, WithEntries};
use tarn_node::error::Error;
use tarn_node::own::{OWN_SEQNO, OwnWrites};
use tarn_node::requests::NamedRequest;
use tarn_node::snapshot::OpenTable;
use tarn_node::tables::{Row, TableService};
use tarn_node::threads::blocking;
use tarn_node::transaction::TableWrites;
use tarn_node::write::conflict;
use tarn_types::{BatchBuilder, Mutation, MutationBatch, Op, TableSchema, decode_row, row_of_entry};

use super::{PendingChanges, Session};
use crate::error::{Result, SqlError, state};
use crate::transaction::{HeldEffect, TransactionView};

impl Session {
    /// Before a write. True: hold it; false: commit it at once.
    ///
    /// Errors: `25006` where nothing may be written.
    pub(super) fn must_hold(&self) -> Result<bool> {
        let hold = self.transaction.lock().must_hold()?;
        if !hold && self.vars.lock().is_on("default_transaction_read_only") {
            return Err(SqlError::new(state::READ_ONLY_TRANSACTION, "cannot write in a read-only transaction")
                .with_hint("BEGIN READ WRITE, or SET default_transaction_read_only = off"));
        }
        Ok(hold)
    }

    /// Holds what a statement writes; answers how many rows that are.
    ///
    /// Errors: 23505 for a row to be created whose key is there; `54000`, `53200` for more than transactions may hold.
    pub(super) async fn hold(&self, changes: PendingChanges) -> Result<u64> {
        self.hold_as(changes, HeldEffect::Changes).await
    }

    /// As [`Session::hold`], of rows that are only locked, too.
    pub(super) async fn hold_as(&self, changes: PendingChanges, does: HeldEffect) -> Result<u64> {
        let PendingChanges { table, privilege, batches } = changes;
        self.transaction.lock().check_table(table.schema())?;
        let indexes = self.node.tables().indexes(table.schema())?;
        let mut n_rows = 0;
        for batch in batches {
            let held = match indexes.is_empty() {
                true => WithEntries::none(batch),
                false => self.with_entries(&table, indexes.clone(), batch, does).await?,
            };
            let WithEntries { rows, entries, read, .. } = held;
            if does == HeldEffect::Changes {
                self.check_other_parts(table.schema(), &rows)?;
            }
            let of_key = |key: Vec<u8>| match read.contains(&key) {
                // It was absent when it was looked for, and the statement did not ask for that.
                true => conflict(&table.schema().name),
                false => Error::key_exists(table.schema(), key),
            };
            let rows = self.decided(&table, rows, of_key).await?;
            // All is decided before the first is held: a statement that is refused left nothing.
            let mut changes = vec![(Arc::clone(&table), rows)];
            for (Index { unique, entries }, batch) in entries {
                let taken = Mutex::new(None);
                let of_key = |key: Vec<u8>| {
                    *taken.lock() = Some(key.clone());
                    Error::entry_exists(table.schema(), unique.clone(), key)
                };
                let decided = self.decided(&entries, batch.clone(), of_key).await;
                if let Some(key) = taken.into_inner()
                    && self.is_of_same_row(&entries, &batch, &key).await?
                {
                    return Err(conflict(&table.schema().name).into());
                }
                changes.push((entries, decided?));
            }
            n_rows += changes[0].1.len() as u64;
            for (table, batch) in changes {
                let changes = PendingChanges { table, privilege, batches: vec![batch] };
                let limit = self.sql.settings().transaction_bytes;
                self.transaction.lock().hold(changes, does, limit, self.sql.held())?;
            }
        }
        Ok(n_rows)
    }

    /// Whether an entry that is there is of the row whose entry a batch makes: somebody else wrote that row since the
    /// statement looked for it.
    async fn is_of_same_row(&self, entries: &Arc<TableHandle>, batch: &MutationBatch, key: &[u8]) -> Result<bool> {
        let there = self.node.tables().rows_to_follow(entries, &[key]).await?.pop().flatten();
        let (Some(there), Some(made)) = (there, batch.iter().find(|made| made.key == key && made.op != Op::Delete))
        else {
            return Ok(false);
        };
        Ok(row_of_entry(&there.values) == row_of_entry(&decode_row(entries.schema(), key, made.cells)?))
    }

    /// Errors: `21000` for a row that another part of the statement wrote. UPDATE and DELETE pass over it.
    fn check_other_parts(&self, schema: &TableSchema, rows: &MutationBatch) -> Result<()> {
        let Some(others) = self.transaction.lock().other_parts(schema.id) else { return Ok(()) };
        let replaces = |mutation: &Mutation<'_>| matches!(mutation.op, Op::Put | Op::Delete | Op::Patch);
        match rows.iter().any(|mutation| replaces(&mutation) && others.changed(mutation.key)) {
            false => Ok(()),
            true => {
                let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                Err(SqlError::new(state::CARDINALITY, message).with_hint(
                    "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
                ))
            }
        }
    }

    /// A batch with what it does to the entries of indexes, by what the transaction sees of its rows.
    ///
    /// Errors: `40001` for a row that somebody else changed since the statement read it.
    async fn with_entries(
        &self,
        table: &Arc<TableHandle>,
        indexes: Vec<Index>,
        batch: MutationBatch,
        does: HeldEffect,
    ) -> Result<WithEntries> {
        let (who, mut seen) = (self.principal(), self.transaction.lock().sees(&self.node)?);
        let who = match does {
            HeldEffect::Changes | HeldEffect::Locks => Some(&who),
            // Their parents are gone now, whatever the transaction sees of others.
            HeldEffect::Follows => {
                seen.moment = None;
                None
            }
        };
        let sees = TransactionReader { tables: self.node.tables(), who, table, seen: &seen };
        let known = BatchLookup::read(table.schema(), indexes, batch, &sees).await?;
        let held = blocking(move || known.with_entries()).await?;
        held.ok_or_else(|| conflict(&table.schema().name).into())
    }

    /// A batch in which nothing depends on what is there any more. `exists` says what it means that a key is there.
    pub(super) async fn decided(
        &self,
        table: &Arc<TableHandle>,
        batch: MutationBatch,
        exists: impl Fn(Vec<u8>) -> Error,
    ) -> Result<MutationBatch> {
        let schema = table.schema();
        let depends = |mutation: &Mutation<'_>| matches!(mutation.op, Op::Insert | Op::Create);
        if schema.options.append_only || !batch.iter().any(|mutation| depends(&mutation)) {
            return Ok(batch);
        }
        let own = self.transaction.lock().sees(&self.node)?.own.remove(&schema.id);
        let is_own = |key: &[u8]| own.as_deref().and_then(|own| own.get(key)).map(|row| row.is_some());
        let asked = batch.iter().filter(|mutation| depends(mutation) && is_own(mutation.key).is_none());
        let asked: Vec<Vec<u8>> = asked.map(|mutation| mutation.key.to_vec()).collect();
        let found = self.node.tables().are_there(&self.principal(), table, asked.clone()).await?;
        let mut there: HashMap<Vec<u8>, bool> = asked.into_iter().zip(found).collect();
        let mut decided = BatchBuilder::new(schema);
        for mutation in batch.iter() {
            let is_there = there.get(mutation.key).copied().or_else(|| is_own(mutation.key)).unwrap_or(false);
            match mutation.op {
                Op::Insert if is_there => continue,
                Op::Create if is_there => {
                    return Err(self.told(exists(mutation.key.to_vec())));
                }
                Op::Insert | Op::Create => decided.create(mutation.key, mutation.cells),
                _ => decided.push(&mutation),
            }
            there.insert(mutation.key.to_vec(), mutation.op != Op::Delete);
        }
        Ok(decided.finish())
    }

    /// The row of a key as the statement sees it.
    pub(super) async fn find(&self, table: &Arc<TableHandle>, key: &[u8]) -> Result<Option<Row>> {
        if !self.transaction.lock().sees_committed() {
            return Box::pin(self.find_in_transaction(table, key)).await;
        }
        Ok(self.node.tables().get(&self.principal(), table, key).await?)
    }

    async fn find_in_transaction(&self, table: &Arc<TableHandle>, key: &[u8]) -> Result<Option<Row>> {
        let (schema, who) = (table.schema(), self.principal());
        let seen = {
            let mut transaction = self.transaction.lock();
            transaction.check_table(schema)?;
            transaction.sees(&self.node)?
        };
        let own: Option<&OwnWrites> = seen.own.get(&schema.id).map(|own| &**own);
        if let Some(row) = own.and_then(|own| own.get(key)) {
            let Some(cells) = row else { return Ok(None) };
            return Ok(Some(Row { values: decode_row(schema, key, cells)?, seqno: OWN_SEQNO }));
        }
        let opened = OpenTable::Table(Arc::clone(table));
        let tables = self.node.tables();
        match seen.moment.and_then(|moment| moment.of(&opened)) {
            Some(snapshot) => Ok(tables.get_in(&who, schema, &snapshot, key).await?),
            None => Ok(tables.get(&who, table, key).await?),
        }
    }

    /// Commits what a transaction held, of all tables or of none.
    pub(super) async fn commit_held(&self, writes: Vec<TableWrites>) -> Result<()> {
        match writes.is_empty() {
            true => Ok(()),
            false => self.commit_held_as(writes, None).await,
        }
    }

    /// As [`Session::commit_held`], by a request, which may have written nothing.
    pub(super) async fn commit_held_as(&self, writes: Vec<TableWrites>, request: Option<NamedRequest>) -> Result<()> {
        let is_named = |schema: &TableSchema| !schema.id.is_temporary() && !schema.options.is_index;
        for of_table in writes.iter().filter(|of_table| is_named(of_table.table.schema())) {
            let schema = of_table.table.schema();
            let there = self.node.catalog().require(&schema.name)?;
            if there.schema().id != schema.id {
                return Err(SqlError::undefined_table(&schema.name)
                    .with_detail("it was dropped and made again during the transaction"));
            }
        }
        let who = self.principal();
        let tables = self.node.tables();
        let committed = match request {
            Some(request) => tables.commit_request(&who, writes, request, &*self.interrupt).await,
            None => tables.commit_together(&who, writes, &*self.interrupt).await,
        };
        committed.map(drop).map_err(|error| {
            let error = self.told(error);
            match error.state() {
                state::SERIALIZATION_FAILURE => error.with_hint("nothing was written: run the transaction again"),
                _ => error,
            }
        })
    }
}

/// What a transaction sees of a table and its entries.
struct TransactionReader<'a> {
    tables: &'a TableService,
    /// `None`: nobody is asked for his rights.
    who: Option<&'a Principal>,
    table: &'a Arc<TableHandle>,
    seen: &'a TransactionView,
}

impl TransactionReader<'_> {
    fn own(&self, table: &TableHandle) -> Option<&OwnWrites> {
        self.seen.own.get(&table.schema().id).map(|own| &**own)
    }

    async fn rows_of(&self, keys: &[&[u8]]) -> tarn_node::error::Result<Vec<Option<Row>>> {
        let own = self.own(self.table);
        let moment = self.seen.moment.as_ref().and_then(|moment| moment.of(&OpenTable::Table(Arc::clone(self.table))));
        let moment = self.who.zip(moment);
        let mut rows: Vec<Option<Row>> = Vec::with_capacity(keys.len());
        let (mut asked, mut places) = (vec![], vec![]);
        for (place, key) in keys.iter().enumerate() {
            rows.push(match (own.and_then(|own| own.get(key)), &moment) {
                (Some(Some(cells)), _) => {
                    let values = decode_row(self.table.schema(), key, cells)?;
                    Some(Row { values, seqno: OWN_SEQNO })
                }
                (Some(None), _) => None,
                (None, Some((who, moment))) => self.tables.get_in(who, self.table.schema(), moment, key).await?,
                (None, None) => {
                    asked.push(*key);
                    places.push(place);
                    None
                }
            });
        }
        if !asked.is_empty() {
            let found = match self.who {
                Some(who) => self.tables.multi_get(who, self.table, &asked).await?,
                None => self.tables.rows_to_follow(self.table, &asked).await?,
            };
            places.into_iter().zip(found).for_each(|(place, row)| rows[place] = row);
        }
        Ok(rows)
    }

    async fn entries_of(&self, index: &Index, keys: Vec<Vec<u8>>) -> tarn_node::error::Result<Vec<bool>> {
        // What others committed meanwhile counts, whatever the transaction sees of it: as in PostgreSQL.
        let mut there = self.tables.entries_there(index, keys.clone()).await?;
        if let Some(own) = self.own(&index.entries) {
            for (key, is_there) in keys.iter().zip(&mut there) {
                *is_there = own.get(key).map_or(*is_there, |entry| entry.is_some());
            }
        }
        Ok(there)
    }
}

impl RowLookup for TransactionReader<'_> {
    fn rows<'a>(&'a self, keys: &'a [&'a [u8]]) -> BoxFuture<'a, tarn_node::error::Result<Vec<Option<Row>>>> {
        self.rows_of(keys).boxed()
    }

    fn are_there<'a>(
        &'a self,
        index: &'a Index,
        keys: Vec<Vec<u8>>,
    ) -> BoxFuture<'a, tarn_node::error::Result<Vec<bool>>> {
        self.entries_of(index, keys).boxed()
    }
}
