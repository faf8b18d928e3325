//! How does a table that has rows get a unique constraint, or an index by which they are found?
//!
//! ```text
//! nobody writes the table ─> an empty index ─> an entry for each row ─> the definition that names it
//! ```
//!
//! Two rows of the same values are found by the entry of the second, which is there. Until the definition names the
//! index, it is nobody's: given up, it is dropped. Inside a transaction others go on writing, and COMMIT is 40001 if
//! they wrote the table; entries of rows that are committed are written at once, those of the transaction's own rows
//! wait for COMMIT like these.

use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{CreateIndex, ObjectName};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tarn_node::alter::TableAlteration;
use tarn_node::auth::Privilege;
use tarn_node::entries::Index;
use tarn_node::error::Error;
use tarn_node::own::OWN_SEQNO;
use tarn_node::threads::blocking;
use tarn_node::write::WriteOutcome;
use tarn_types::{
    BatchBuilder, ColumnId, MutationBatch, TableSchema, Unique, decode_row, encode_cells_columnar, encode_keys,
    full_name,
};

use super::create_as::written;
use super::execute::to_its_end;
use super::in_parts::change_numbers;
use super::rewrite::not_unique;
use super::{Answer, PendingChanges, Session};
use crate::alter_sql::{Alter, AlterAction, AlterStatement, RelationKind};
use crate::error::{Result, SqlError, state};
use crate::index_sql::{asked, index_name};
use crate::names::{check_name, fold, quote, table_name};
use crate::transaction::{CreatedId, CreatedObject, HeldEffect};
use crate::unique_rules::NOT_MADE;

/// Entries of rows that are committed, and of those that the transaction wrote itself.
struct Entries {
    committed: MutationBatch,
    own: MutationBatch,
}

impl Session {
    pub(super) fn create_index<'a>(&'a self, create: &'a CreateIndex) -> BoxFuture<'a, Result<Answer>> {
        // On the heap: it alters a table.
        async move {
            let said = asked(create)?;
            let name = table_name(&create.table_name)?;
            if create.concurrently {
                self.outside_transaction("CREATE INDEX CONCURRENTLY")?;
            }
            if let Some(index) = said.name.as_ref().map(fold)
                && self.is_relation(&full_name::beside(&name, &index))
            {
                return match create.if_not_exists {
                    true => Ok(Answer::done("CREATE INDEX")),
                    false => Err(already_exists(&index)),
                };
            }
            self.altered_by(&name, vec![AlterAction::AddUnique(said)]).await?;
            Ok(Answer::done("CREATE INDEX"))
        }
        .boxed()
    }

    /// `CASCADE` says nothing: nothing depends on an index that is no constraint's.
    pub(super) fn drop_indexes<'a>(
        &'a self,
        names: &'a [ObjectName],
        if_exists: bool,
    ) -> BoxFuture<'a, Result<Answer>> {
        async move {
            let (mut of, mut actions): (Option<Arc<TableSchema>>, Vec<AlterAction>) = (None, vec![]);
            for name in names {
                let name = index_name(name)?;
                let Some((table, is_constraint)) = self.table_of_index(&name) else {
                    if if_exists {
                        continue;
                    }
                    self.node.schemas().check_there(&name)?;
                    let message = format!("index \"{}\" does not exist", full_name::bare(&name));
                    return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
                };
                if is_constraint {
                    let (table, constraint) = (&table.name, full_name::bare(&name));
                    let message = format!(
                        "cannot drop index {name} because constraint {constraint} on table {table} requires it"
                    );
                    return Err(SqlError::new(state::DEPENDENT_OBJECTS, message)
                        .with_hint(format!("You can drop constraint {constraint} on table {table} instead.")));
                }
                // One definition is one moment.
                if of.as_ref().is_some_and(|other| other.id != table.id) {
                    return Err(SqlError::unsupported(
                        "DROP INDEX of several tables at once",
                        "DROP INDEX one after the other",
                    ));
                }
                of = Some(table);
                actions.push(AlterAction::DropIndex { name: full_name::bare(&name).to_owned() });
            }
            if let Some(table) = of {
                self.altered_by(&table.name, actions).await?;
            }
            Ok(Answer::done("DROP INDEX"))
        }
        .boxed()
    }

    /// `ALTER INDEX … RENAME TO`. The constraint that an index is of is called otherwise with it.
    ///
    /// Errors: `42P01` for an index that is not there; `42P07` for a name that is taken.
    pub(super) fn rename_index<'a>(
        &'a self,
        name: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Answer>> {
        async move {
            let name = index_name(name)?;
            if to.0.len() > 1 {
                return Err(SqlError::new(state::SYNTAX_ERROR, "syntax error at or near \".\""));
            }
            let to = index_name(to)?;
            check_name("relation", &to)?;
            let Some((table, _)) = self.table_of_index(&name) else {
                let message = format!("relation \"{name}\" does not exist");
                return Err(SqlError::new(state::UNDEFINED_TABLE, message));
            };
            let index = full_name::bare(&name);
            let sequences = self.node.sequences().all().await?;
            let full = full_name::beside(&table.name, &to);
            if self.is_relation(&full) || sequences.iter().any(|(other, _)| *other == full) {
                return Err(already_exists(&to));
            }
            self.altered_by(&table.name, vec![AlterAction::RenameIndex { name: index.to_owned(), to }]).await?;
            Ok(Answer::done("ALTER INDEX"))
        }
        .boxed()
    }

    /// The table whose index has this full name, as the session sees it, and whether it is that of a constraint.
    fn table_of_index(&self, index: &str) -> Option<(Arc<TableSchema>, bool)> {
        self.temporary.public(self.node.catalog()).into_iter().find_map(|table| {
            let is_it =
                |unique: &&Unique| !unique.of_foreign_key && full_name::beside(&table.name, &unique.name) == index;
            let unique = table.options.rules.uniques.iter().find(is_it);
            let (schema, name) = full_name::split(index);
            let is_key = full_name::schema_of(&table.name) == schema && table.is_key_named(name);
            let is_constraint = unique.map(|unique| !unique.by_index).or(is_key.then_some(true))?;
            Some((table, is_constraint))
        })
    }

    /// Whether a table, view or index is called so, as the session sees them.
    fn is_relation(&self, name: &str) -> bool {
        self.table_of_index(name).is_some() || self.temporary.entry(self.node.catalog(), name).is_some()
    }

    async fn altered_by(&self, table: &str, actions: Vec<AlterAction>) -> Result<()> {
        if let Some(there) = self.temporary.entry(self.node.catalog(), table) {
            self.node.may_own(&self.principal(), &there.schema())?;
        }
        let change = AlterStatement::Actions(actions);
        let alter = Alter { kind: RelationKind::Table, name: table.to_owned(), if_exists: false, change };
        self.alter(&alter).await.map(drop)
    }

    /// The table as it is to be, with the indexes that are still to be made: filled with the rows of the table as it
    /// is.
    ///
    /// Errors: `23505` for rows of the same values; `0A000` for a column that comes with a value.
    pub(super) fn with_indexes<'a>(
        &'a self,
        altering: TableAlteration,
        table: &'a Arc<TableSchema>,
        to: TableSchema,
        added: &'a [ColumnId],
    ) -> BoxFuture<'a, Result<(TableAlteration, TableSchema)>> {
        self.made_indexes(altering, table, to, added).boxed()
    }

    async fn made_indexes(
        &self,
        mut altering: TableAlteration,
        table: &Arc<TableSchema>,
        mut to: TableSchema,
        added: &[ColumnId],
    ) -> Result<(TableAlteration, TableSchema)> {
        for at in not_made(&to) {
            let has_rows = has_entries(&to, at, added)?;
            let of = to.clone();
            let made = to_its_end(async move {
                let index = altering.make_index(&of, at).await?;
                Ok::<_, SqlError>((index, altering))
            });
            let index;
            (index, altering) = made.await?;
            if has_rows {
                self.fill_index(table, &index).await?;
            }
            to.options.rules.uniques[at].index = index.unique.index;
        }
        Ok((altering, to))
    }

    /// As [`Session::with_indexes`], of a table that is filled beside one: its columns have ids of its own, in the
    /// places of those of `to`.
    pub(super) async fn with_indexes_beside(
        &self,
        mut altering: TableAlteration,
        beside: &Arc<TableSchema>,
        mut to: TableSchema,
    ) -> Result<(TableAlteration, TableSchema)> {
        let id_of = |id: ColumnId| {
            let at = to.columns.iter().position(|column| column.id == id);
            at.and_then(|at| beside.columns.get(at)).map_or(id, |column| column.id)
        };
        let mut of_beside = (**beside).clone();
        of_beside.options.rules.uniques.clone_from(&to.options.rules.uniques);
        let ids = of_beside.options.rules.uniques.iter_mut().flat_map(|unique| &mut unique.columns);
        ids.for_each(|id| *id = id_of(*id));
        let made;
        (altering, made) = self.with_indexes(altering, beside, of_beside, &[]).await?;
        for (unique, made) in to.options.rules.uniques.iter_mut().zip(made.options.rules.uniques) {
            unique.index = made.index;
        }
        Ok((altering, to))
    }

    /// As [`Session::with_indexes`], inside a transaction, which drops them when it is undone.
    pub(super) async fn with_indexes_held(
        &self,
        table: &Arc<TableSchema>,
        mut to: TableSchema,
        added: &[ColumnId],
    ) -> Result<TableSchema> {
        for at in not_made(&to) {
            let has_rows = has_entries(&to, at, added)?;
            let (node, who, of) = (Arc::clone(&self.node), self.principal(), to.clone());
            let index: Index =
                to_its_end(async move { Ok::<_, SqlError>(node.make_index_beside(&who, &of, at).await?) }).await?;
            self.transaction
                .lock()
                .made(CreatedObject { name: String::new(), what: CreatedId::Index(index.unique.index) });
            if has_rows {
                self.fill_index(table, &index).await?;
            }
            to.options.rules.uniques[at].index = index.unique.index;
        }
        Ok(to)
    }

    /// Writes the entries of all rows of a table, as the statement sees them.
    async fn fill_index(&self, table: &Arc<TableSchema>, index: &Index) -> Result<()> {
        let twice = |key: Vec<u8>| {
            let error = Error::entry_exists(table, index.unique.clone(), key);
            not_unique(self.told(error), &index.unique.name)
        };
        let all = written(&format!("DELETE FROM {} RETURNING *", quote(&table.name)))?;
        let dml = self.query.dml(&all, table).await?;
        let mut rows = self.query.dml_rows(&dml, None).await?;
        let mut own = vec![];
        while let Some(batch) = rows.next().await.transpose()? {
            let (table, index_of_rows) = (Arc::clone(table), index.clone());
            let entries = blocking(move || Ok(entries(&table, &index_of_rows, &batch))).await??;
            own.push(entries.own);
            if entries.committed.is_empty() {
                continue;
            }
            let (who, tables) = (self.principal(), self.node.tables());
            let wrote =
                tables.write_whole(&who, &index.entries, Privilege::Insert, entries.committed, &*self.interrupt);
            match wrote.await? {
                WriteOutcome::Rows(_) => {}
                WriteOutcome::Exists { key } | WriteOutcome::Taken { key, .. } => return Err(twice(key)),
                WriteOutcome::Conflict => {
                    return Err(SqlError::new(state::INTERNAL, "an index that nobody else writes was written"));
                }
            }
        }
        let exists = |key: Vec<u8>| Error::entry_exists(table, index.unique.clone(), key);
        for batch in own.into_iter().filter(|batch| !batch.is_empty()) {
            let batch = self.decided(&index.entries, batch, exists).await;
            let batches = vec![batch.map_err(|error| not_unique(error, &index.unique.name))?];
            let changes = PendingChanges { table: Arc::clone(&index.entries), privilege: Privilege::Insert, batches };
            let limit = self.sql.settings().transaction_bytes;
            self.transaction.lock().hold(changes, HeldEffect::Changes, limit, self.sql.held())?;
        }
        Ok(())
    }
}

fn already_exists(name: &str) -> SqlError {
    SqlError::new(state::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

/// The places of constraints whose indexes are still to be made.
fn not_made(table: &TableSchema) -> Vec<usize> {
    let uniques = table.options.rules.uniques.iter().enumerate();
    uniques.filter(|(_, unique)| unique.index == NOT_MADE).map(|(at, _)| at).collect()
}

/// Whether rows that are there may have entries: none has one where a column comes with them, which is NULL in all of
/// them.
///
/// Errors: `0A000` for a column that comes with a value.
fn has_entries(to: &TableSchema, at: usize, added: &[ColumnId]) -> Result<bool> {
    let come = to.options.rules.uniques[at].columns.iter().filter(|id| added.contains(id));
    let mut has_entries = true;
    for id in come {
        if to.missing(*id).is_some() {
            let column = to.column_by_id(*id).map_or("", |column| column.name.as_str());
            return Err(SqlError::unsupported(
                format!(
                    "ALTER TABLE … ADD COLUMN \"{column}\" … UNIQUE or REFERENCES with a DEFAULT, which all rows would have"
                ),
                "ADD COLUMN without it, UPDATE, and ADD the constraint then",
            ));
        }
        has_entries = false;
    }
    Ok(has_entries)
}

/// The entries of rows, which are whole and have their change numbers.
fn entries(table: &TableSchema, index: &Index, rows: &RecordBatch) -> Result<Entries> {
    let schema = index.entries.schema();
    let (keys, cells) = (encode_keys(table, rows)?, encode_cells_columnar(table, rows)?);
    let read_at = change_numbers(rows)?;
    let (mut committed, mut own) = (BatchBuilder::new(schema), BatchBuilder::new(schema));
    for (row, key) in keys.iter().enumerate() {
        let values = decode_row(table, key, cells.get(row))?;
        let Some(entry) = index.entry(table, &values, key)? else { continue };
        index.push(if read_at.of(row) == OWN_SEQNO { &mut own } else { &mut committed }, &entry, key)?;
    }
    Ok(Entries { committed: committed.finish(), own: own.finish() })
}
