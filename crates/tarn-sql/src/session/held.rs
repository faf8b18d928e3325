//! How does a write wait for COMMIT, and how do the statements of a transaction find rows that it wrote?
//!
//! What depends on a key's being there is decided when the statement runs, by what the transaction wrote and by what is committed: a row that
//! is to be inserted is held as one whose key was not there, which has to be so still at COMMIT.

use std::collections::HashMap;
use std::sync::Arc;

use tarn_node::catalog::TableHandle;
use tarn_node::own::{OWN_SEQNO, OwnWrites};
use tarn_node::snapshot::Opened;
use tarn_node::tables::Row;
use tarn_node::transaction::TableWrites;
use tarn_types::{BatchBuilder, Mutation, MutationBatch, Op, decode_row};

use super::{PendingChanges, Session};
use crate::error::{Result, SqlError, state};

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
        let PendingChanges { table, privilege, batches } = changes;
        self.transaction.lock().check_table(table.schema())?;
        let mut n_rows = 0;
        for batch in batches {
            let batch = self.decided(&table, batch).await?;
            n_rows += batch.len() as u64;
            let changes = PendingChanges { table: Arc::clone(&table), privilege, batches: vec![batch] };
            self.transaction.lock().hold(changes, self.sql.settings().transaction_bytes, self.sql.held())?;
        }
        Ok(n_rows)
    }

    /// A batch in which nothing depends on what is there any more.
    async fn decided(&self, table: &Arc<TableHandle>, batch: MutationBatch) -> Result<MutationBatch> {
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
                    return Err(self.told(tarn_node::error::Error::key_exists(schema, mutation.key.to_vec())));
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
        let opened = Opened::Table(Arc::clone(table));
        let tables = self.node.tables();
        match seen.moment.and_then(|moment| moment.of(&opened)) {
            Some(snapshot) => Ok(tables.get_in(&who, schema, &snapshot, key).await?),
            None => Ok(tables.get(&who, table, key).await?),
        }
    }

    /// Commits what a transaction held, of all tables or of none.
    pub(super) async fn commit_held(&self, writes: Vec<TableWrites>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        for of_table in writes.iter().filter(|of_table| !of_table.table.schema().id.is_temporary()) {
            let schema = of_table.table.schema();
            let there = self.node.catalog().require(&schema.name)?;
            if there.schema().id != schema.id {
                return Err(SqlError::undefined_table(&schema.name)
                    .with_detail("it was dropped and made again during the transaction"));
            }
        }
        let who = self.principal();
        let committed = self.node.tables().commit_together(&who, writes, &*self.interrupt).await;
        committed.map(drop).map_err(|error| {
            let error = self.told(error);
            match error.state() {
                state::SERIALIZATION_FAILURE => error.with_hint("nothing was written: run the transaction again"),
                _ => error,
            }
        })
    }
}
