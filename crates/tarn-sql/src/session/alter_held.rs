//! What does `ALTER TABLE` do inside a transaction? The session sees the table otherwise from then on (`altered.rs`);
//! COMMIT defines it so for everybody, together with what the transaction writes.
//!
//! What a change demands of the rows (`SET NOT NULL`, `ADD CHECK`) is looked for when the statement runs, among those
//! of the transaction and those that are committed, and COMMIT is 40001 if somebody wrote the table since. So is the
//! index of a constraint that comes filled with both (`indexes.rs`). It is 40001, too, if somebody else altered the
//! table; a transaction that wrote it by the definition of before is 40001 at its own COMMIT, if it comes later.
//!
//! A key is not added inside a transaction: all rows would be written into another table, by another key.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tarn_node::alter_at_commit;
use tarn_node::catalog::CatalogEntry;
use tarn_node::jobs::Work;
use tarn_node::transaction::TableWrites;
use tarn_types::ForeignKey;

use super::Session;
use super::alter::AlteredDefinition;
use super::columns::as_they_will_be;
use super::execute::to_its_end;
use crate::alter_sql::{Alter, AlterAction, DropColumn};
use crate::altered::{AlteredHandle, AlteredTables, NameLookup};
use crate::error::{Result, SqlError, state};
use crate::seen_schemas::{REWRITES, with_views};
use crate::unique_rules::NOT_MADE;

/// Whether a table is to refer to another from now on, which is kept as it is meanwhile.
fn refers(child: &AlteredHandle, parent: &AlteredHandle) -> bool {
    let now = &child.handle.schema().options.rules.foreign_keys;
    now.iter().any(|key| key.parent == parent.from.id && !child.from.options.rules.foreign_keys.contains(key))
}

impl Session {
    /// The table as everybody sees it, and as the transaction does so far.
    ///
    /// Errors: as of [`Session::table`].
    fn altered_so_far(&self, name: &str) -> Result<AlteredHandle> {
        match self.temporary.called(name) {
            NameLookup::Altered(altered) => Ok(altered),
            NameLookup::AsCommitted | NameLookup::Nothing => {
                let handle = self.table(name)?;
                Ok(AlteredHandle { from: Arc::clone(handle.schema()), handle, looked_at: None })
            }
        }
    }

    /// All actions, or none.
    pub(super) fn alter_later<'a>(&'a self, alter: &'a Alter, actions: &'a [AlterAction]) -> BoxFuture<'a, Result<()>> {
        // On the heap, as what it runs of other statements stands on a deep stack; so are the others of this file.
        self.altered_later(alter, actions).boxed()
    }

    async fn altered_later(&self, alter: &Alter, actions: &[AlterAction]) -> Result<()> {
        let name = &alter.name;
        self.transaction.lock().check_there(name)?;
        if alter.if_exists && self.temporary.entry(self.node.catalog(), name).is_none() {
            return Ok(());
        }
        self.check_now()?;
        let mut altered = self.altered_so_far(name)?;
        let before = Arc::clone(altered.handle.schema());
        self.node.may_own(&self.principal(), &before)?;
        if actions.iter().any(|action| matches!(action, AlterAction::AddPrimaryKey { .. })) {
            return Err(SqlError::unsupported(
                format!(
                    "ALTER TABLE {name} ADD PRIMARY KEY inside a transaction, which writes all rows into another table"
                ),
                "say the key in CREATE TABLE, or run ALTER TABLE … ADD PRIMARY KEY by itself, outside of BEGIN … COMMIT",
            ));
        }
        let AlteredDefinition { to, added, dropped, anew, looks, .. } = self.changed(&before, actions).await?;
        if !anew.is_empty() {
            return Err(SqlError::unsupported(
                format!("ALTER TABLE {name} inside a transaction, for which all rows are written into another table"),
                "run it by itself, outside of BEGIN … COMMIT",
            ));
        }
        if dropped
            .iter()
            .any(|of| before.column(&of.column).is_some_and(|(_, of)| altered.from.column_by_id(of.id).is_none()))
        {
            return Err(SqlError::unsupported(
                "ALTER TABLE … DROP COLUMN of a column that the same transaction added",
                "COMMIT first",
            ));
        }
        // What depends on them knows them by the names that everybody does.
        let by_their_names =
            |of: &DropColumn| DropColumn { column: self.temporary.committed_names(name, &of.column).1, ..of.clone() };
        let dropped: Vec<DropColumn> = dropped.iter().map(by_their_names).collect();
        self.check_dropped(&altered.from, &dropped).await?;
        self.check_references(&before, &to, false)?;
        if to == *before {
            return Ok(());
        }
        // Most of the rows are in the lake by then, so that others are kept out for a moment only; and what is
        // delivered now moves the table no more once it was looked at.
        let has_new_indexes = to.options.rules.uniques.iter().any(|unique| unique.index == NOT_MADE);
        let is_due = !to.stores_as(&altered.from) || !looks.is_empty() || has_new_indexes;
        if is_due && altered.looked_at.is_none() && altered.handle.has_recent_rows() {
            self.admin(Work::Deliver, &altered.from.name).await?;
        }
        if (!looks.is_empty() || has_new_indexes) && altered.looked_at.is_none() {
            // Before the first look: what comes between the two counts.
            altered.looked_at = Some(altered.handle.position());
        }
        let come: Vec<ForeignKey> = to.options.rules.foreign_keys.clone();
        let come: Vec<ForeignKey> =
            come.into_iter().filter(|key| !before.options.rules.foreign_keys.contains(key)).collect();
        // Their rows are looked at, too, and have to be those still.
        let mut parents = vec![];
        for key in come.iter().filter(|key| key.parent_of(before.id) != before.id) {
            parents.push(self.parent_looked_at(key).await?);
        }
        let rows = as_they_will_be(&to, &added, &anew);
        for look in looks {
            self.look(&rows, look).await?;
        }
        for key in &come {
            self.look_for_parents(&to, key, &rows).await?;
        }
        let to = self.with_indexes_held(&before, to, &added).await?;
        for parent in parents {
            self.see(parent).await?;
        }
        self.see(AlteredHandle { handle: altered.handle.seen_as(Arc::new(to))?, ..altered }).await
    }

    /// Calls a table otherwise. False: that is not for it, and COMMIT renames behind all else.
    ///
    /// Errors: `42P01`, `42P07`; `2BP01` for a view that cannot follow.
    pub(super) fn rename_later<'a>(&'a self, name: &'a str, to: &'a str) -> BoxFuture<'a, Result<bool>> {
        self.renamed_later(name, to).boxed()
    }

    async fn renamed_later(&self, name: &str, to: &str) -> Result<bool> {
        let catalog = self.node.catalog();
        let is_table = matches!(self.temporary.entry(catalog, name), Some(CatalogEntry::Table(_)));
        // Names that are free at COMMIT alone are given behind what frees them.
        if !is_table || self.transaction.lock().changes_names() {
            return Ok(false);
        }
        let sequences = self.node.sequences().all().await?;
        if self.temporary.entry(catalog, to).is_some() || sequences.iter().any(|(other, _)| other == to) {
            return Err(super::sequences::taken(to));
        }
        let altered = self.altered_so_far(name)?;
        self.node.may_own(&self.principal(), altered.handle.schema())?;
        let called = Arc::new(altered.handle.schema().renamed(to));
        self.see(AlteredHandle { handle: altered.handle.seen_as(called)?, ..altered }).await?;
        Ok(true)
    }

    /// The session sees a table otherwise from now on.
    ///
    /// Errors: `2BP01` for a view that cannot follow.
    async fn see(&self, altered: AlteredHandle) -> Result<()> {
        let mut tables = self.temporary.now().altered.clone();
        tables.insert(altered);
        let views = self.node.catalog().views();
        if !views.is_empty() {
            tables = self.query.compute(async move { Ok(with_views(tables, views)) }).await??;
        }
        self.temporary.alter(tables);
        Ok(())
    }

    /// Commits what a transaction held, with the tables that it altered: all of it or nothing.
    pub(super) fn commit_altered<'a>(
        &'a self,
        altered: &'a AlteredTables,
        writes: Vec<TableWrites>,
    ) -> BoxFuture<'a, Result<()>> {
        self.committed_altered(altered, writes).boxed()
    }

    async fn committed_altered(&self, altered: &AlteredTables, writes: Vec<TableWrites>) -> Result<()> {
        let of = |altered: &AlteredHandle| alter_at_commit::AlteredTable {
            from: Arc::clone(&altered.from),
            to: Arc::clone(altered.handle.schema()),
            looked_at: altered.looked_at.clone(),
        };
        // One that is as it was again.
        let is_altered = |altered: &&AlteredHandle| altered.from != *altered.handle.schema();
        let is_other = |table: &&AlteredHandle| is_altered(table) || altered.iter().any(|child| refers(child, table));
        let tables: Vec<alter_at_commit::AlteredTable> = altered.iter().filter(is_other).map(of).collect();
        if tables.is_empty() {
            let by_its_name = |of_table: TableWrites| match altered.get(of_table.table.schema().id) {
                Some(altered) => {
                    Ok(TableWrites { table: self.node.catalog().require(&altered.from.name)?, ..of_table })
                }
                None => Ok(of_table),
            };
            return self.commit_held(writes.into_iter().map(by_its_name).collect::<Result<_>>()?).await;
        }
        let who = self.principal();
        let node = Arc::clone(&self.node);
        let committing =
            to_its_end(async move { Ok::<_, SqlError>(node.commit_altering(&who, tables, writes, REWRITES).await) });
        let committed = self.interrupt.submit(committing, |rows| *rows.as_ref().unwrap_or(&0)).await?;
        committed.map(drop).map_err(|error| {
            let error = self.told(error);
            match error.state() {
                state::SERIALIZATION_FAILURE => error.with_hint("nothing was written: run the transaction again"),
                _ => error,
            }
        })
    }

    /// A table that others are to refer to when the transaction commits.
    async fn parent_looked_at(&self, key: &ForeignKey) -> Result<AlteredHandle> {
        let now = self.temporary.now();
        let altered = match now.altered.get(key.parent) {
            Some(altered) => altered.clone(),
            None => {
                let handle = self.node.tables().handle(key.parent);
                let handle = handle.ok_or_else(|| SqlError::undefined_table(&key.name))?;
                AlteredHandle { from: Arc::clone(handle.schema()), handle, looked_at: None }
            }
        };
        if altered.looked_at.is_some() {
            return Ok(altered);
        }
        if altered.handle.has_recent_rows() {
            self.admin(Work::Deliver, &altered.from.name).await?;
        }
        let position = altered.handle.position();
        Ok(AlteredHandle { looked_at: Some(position), ..altered })
    }

    /// Before a table is made inside or outside of a transaction.
    ///
    /// Errors: `0A000` for a name that the transaction takes from another table, which everybody else finds by it until
    /// COMMIT; `42P07` for one that it gives.
    pub(super) fn check_free(&self, name: &str) -> Result<()> {
        match self.temporary.called(name) {
            NameLookup::AsCommitted => Ok(()),
            NameLookup::Altered(altered) if altered.from.name == name => Ok(()),
            NameLookup::Altered(_) => Err(super::sequences::taken(name)),
            NameLookup::Nothing => Err(super::utility::made_anew(name)),
        }
    }
}
