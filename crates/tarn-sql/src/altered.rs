//! Which tables does a transaction see otherwise than everybody? Those that it altered: by their new names, with their
//! new columns, until it commits.
//!
//! They are a part of what a session has to itself (`temporary.rs`): what undoes the transaction, or goes back to a
//! savepoint, goes back to the ones that there were. Nothing of them is in the catalog, the metastore or the log before
//! COMMIT, which defines all of them and writes the transaction's rows as one (`tarn_node::alter_at_commit`).

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_node::catalog::TableHandle;
use tarn_types::{Cursor, TableId, TableSchema};

/// One table.
#[derive(Clone)]
pub(crate) struct AlteredHandle {
    /// As everybody sees it.
    pub from: Arc<TableSchema>,
    /// As the transaction does.
    pub handle: Arc<TableHandle>,
    /// Where the table stood when its rows were first looked at, if COMMIT relies on what they were.
    pub looked_at: Option<Cursor>,
}

/// What a name means.
pub(crate) enum NameLookup {
    /// The same as to everybody.
    AsCommitted,
    /// A table that the transaction altered.
    Altered(AlteredHandle),
    /// Nothing any more: the transaction calls it otherwise.
    Nothing,
}

/// All of them.
#[derive(Clone, Default)]
pub(crate) struct AlteredTables {
    tables: BTreeMap<TableId, AlteredHandle>,
    /// Views that read them, as everybody sees each, and by the names that it reads now.
    views: Vec<(Arc<TableSchema>, Arc<TableSchema>)>,
}

impl AlteredTables {
    /// Then names mean what they mean for everybody.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// `None`: the transaction did not alter this table.
    pub fn get(&self, id: TableId) -> Option<&AlteredHandle> {
        self.tables.get(&id)
    }

    /// By id.
    pub fn iter(&self) -> impl Iterator<Item = &AlteredHandle> {
        self.tables.values()
    }

    /// Takes the place of what was known of that table.
    pub fn insert(&mut self, altered: AlteredHandle) {
        self.tables.insert(altered.from.id, altered);
    }

    /// It is seen as everybody sees it again, or as dropped.
    pub fn remove(&mut self, id: TableId) {
        self.tables.remove(&id);
    }

    /// What a name means.
    pub fn called(&self, name: &str) -> NameLookup {
        if let Some(altered) = self.iter().find(|altered| altered.handle.schema().name == name) {
            return NameLookup::Altered(altered.clone());
        }
        match self.iter().any(|altered| altered.from.name == name) {
            true => NameLookup::Nothing,
            false => NameLookup::AsCommitted,
        }
    }

    /// Views, as everybody sees each, and by the names that it reads now.
    pub fn set_views(&mut self, views: Vec<(Arc<TableSchema>, Arc<TableSchema>)>) {
        self.views = views;
    }

    /// A view, by the names that it reads now.
    pub fn view(&self, view: Arc<TableSchema>) -> Arc<TableSchema> {
        let found = self.views.iter().find(|(committed, _)| Arc::ptr_eq(committed, &view));
        found.map_or(view, |(_, seen)| Arc::clone(seen))
    }

    /// Each as everybody sees it, and as the transaction does.
    pub fn changes(&self) -> Vec<(&TableSchema, &TableSchema)> {
        self.iter().map(|altered| (&*altered.from, &**altered.handle.schema())).collect()
    }
}
