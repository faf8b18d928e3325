//! How are the tables of entries made and dropped, by which a table's constraints are kept?
//!
//! ```text
//! CREATE   indexes ─> table, which names them                       a crash between: indexes that no table names
//! ALTER    index ─> its entries ─> the table's definition           the same
//! DROP     table, or its definition ─> the indexes that it named    the same
//! ```
//!
//! An index that no table names is nobody's: it goes when the node starts. A table that names one which is not here is
//! not written (`entries.rs`).

use std::collections::HashSet;
use std::sync::Arc;

use tarn_types::{TableId, TableSchema, Unique, full_name, index_table};

use crate::auth::{AuthAction, Principal};
use crate::beside::{check_name, of_index};
use crate::entries::Index;
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;

impl Node {
    /// Makes a table and the indexes of its constraints. The caller holds the catalog, and knows that the table's name
    /// is free.
    pub(crate) async fn create_with_indexes(&self, mut schema: TableSchema) -> Result<()> {
        if !schema.has_indexes() {
            return self.create_alone(schema).await;
        }
        self.check_index_names(None, &schema)?;
        let mut made = vec![];
        for at in 0..schema.options.rules.uniques.len() {
            match self.make_index(&schema, at).await {
                Ok(index) => {
                    schema.options.rules.uniques[at].index = index.unique.index;
                    made.push(index.unique.index);
                }
                Err(error) => return Err(self.without_indexes(&made, error).await),
            }
        }
        match self.create_alone(schema).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.without_indexes(&made, error).await),
        }
    }

    /// Whether the names of constraints that are new are free. The caller holds the catalog.
    ///
    /// Errors: `TableExists`, `ReservedName`.
    pub(crate) fn check_index_names(&self, before: Option<&TableSchema>, table: &TableSchema) -> Result<()> {
        let was = |unique: &&Unique| {
            before.is_some_and(|before| before.options.rules.uniques.iter().any(|was| was.name == unique.name))
        };
        for unique in table.options.rules.uniques.iter().filter(|unique| !was(unique)) {
            check_name(&unique.name)?;
            let name = full_name::beside(&table.name, &unique.name);
            if name == table.name || self.catalog().contains(&name) {
                return Err(Error::new(ErrorKind::TableExists, format!("relation \"{}\" already exists", unique.name))
                    .with_hint("indexes share the names of tables: call it otherwise"));
            }
        }
        Ok(())
    }

    /// Makes the empty index of a constraint, which no table names yet. The caller holds the catalog.
    pub(crate) async fn make_index(&self, table: &TableSchema, at: usize) -> Result<Index> {
        let mut unique = table.options.rules.uniques[at].clone();
        let index = index_table(table, &unique)?;
        let name = of_index(&unique.name);
        self.create_alone(TableSchema { name: name.clone(), ..index }).await?;
        let made = self.catalog().indexes().into_iter().find(|index| index.schema().name == name);
        let entries = made.ok_or_else(|| Error::new(ErrorKind::Internal, "an index that was made is not there"))?;
        unique.index = entries.schema().id;
        Ok(Index { unique, entries })
    }

    /// As it says, for a table that a transaction alters: until it commits, no table names the index.
    ///
    /// Errors: `Denied`; as of CREATE TABLE.
    pub async fn make_index_beside(&self, who: &Principal, table: &TableSchema, at: usize) -> Result<Index> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_own(who, table)?;
        self.make_index(table, at).await
    }

    /// Drops an index, unless a table names it. It may be one that somebody is about to name: whoever made it drops it
    /// as [`Principal::Node`].
    ///
    /// Errors: `Denied`.
    pub async fn drop_unnamed_index(&self, who: &Principal, index: TableId) -> Result<()> {
        self.may(who, &AuthAction::Server { what: "drop indexes that no table names" })?;
        self.drop_if_unnamed(index).await;
        Ok(())
    }

    pub(crate) async fn drop_if_unnamed(&self, index: TableId) {
        let _one = self.lock_catalog().await;
        if self.check_open().is_ok() && self.catalog().table_of_index(index).is_none() {
            self.drop_index(index).await;
        }
    }

    /// Drops indexes of a table that was not made, unless it may be there all the same. Answers the error to tell.
    async fn without_indexes(&self, made: &[TableId], error: Error) -> Error {
        let named = self.named_indexes().await;
        let is_unnamed = named.is_ok_and(|named| made.iter().all(|index| !named.contains(index)));
        if error.kind() == ErrorKind::Indeterminate || !is_unnamed {
            return error;
        }
        for index in made {
            self.drop_index(*index).await;
        }
        error
    }

    /// The indexes that tables name.
    async fn named_indexes(&self) -> Result<HashSet<TableId>> {
        let tables = self.metastore().tables().await?;
        Ok(tables.iter().flat_map(|table| &table.options.rules.uniques).map(|unique| unique.index).collect())
    }

    /// Drops the indexes of a table that is no more, or is defined without them. The caller holds the catalog. What is
    /// left of them goes when the node starts.
    pub(crate) async fn drop_indexes_of(&self, before: &TableSchema, now: Option<&TableSchema>) {
        let is_kept = |index: TableId| {
            now.is_some_and(|now| now.options.rules.uniques.iter().any(|unique| unique.index == index))
        };
        for unique in before.options.rules.uniques.iter().filter(|unique| !is_kept(unique.index)) {
            self.drop_index(unique.index).await;
        }
    }

    async fn drop_index(&self, index: TableId) {
        let Some(entries) = self.catalog().index(index) else { return };
        let schema = Arc::clone(entries.schema());
        if let Err(error) = self.drop_rows(Some(&entries), &schema).await {
            tracing::warn!(index = %schema.name, %error, "an index that no table has any more is left until the next start");
        }
    }

    /// When the node starts: drops indexes that no table names, which a crash left.
    ///
    /// Errors: the metastore's.
    pub(crate) async fn drop_unnamed_indexes(&self) -> Result<()> {
        let indexes = self.catalog().indexes();
        if indexes.is_empty() {
            return Ok(());
        }
        let named = self.named_indexes().await?;
        let _one = self.lock_catalog().await;
        for index in indexes.iter().map(|index| index.schema()).filter(|index| !named.contains(&index.id)) {
            tracing::info!(index = %index.name, "an index that no table has is dropped");
            self.drop_index(index.id).await;
        }
        Ok(())
    }
}
