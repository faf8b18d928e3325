//! What does the full name of a table mean to a session, and what is there? The same as to everybody, but for the
//! tables that its transaction altered. Whoever looks for a table by name on behalf of a session, or lists them, asks
//! here and not the node's catalog.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_node::catalog::{Catalog, CatalogEntry};
use tarn_node::error::Error;
use tarn_node::view_readers::{Rewrites, reader_of};
use tarn_types::{TableId, TableSchema, full_name};

use crate::altered::{AlteredHandle, AlteredTables, NameLookup};
use crate::error::Result;
use crate::temporary::Temporary;
use crate::{view_columns, view_rename};

/// How texts of views are written anew.
pub(crate) const REWRITES: Rewrites = Rewrites { names: view_rename::rewrite, columns: view_columns::rewrite };

/// The tables, with the views that read them by their names of now. To be called where there is room on the stack:
/// texts are parsed.
///
/// Errors: `2BP01` for a view of which the text cannot be written for that.
pub(crate) fn with_views(mut tables: AlteredTables, views: Vec<Arc<TableSchema>>) -> Result<AlteredTables> {
    let mut seen = vec![];
    for view in views {
        if let Some(now) = reader_of(&view, &tables.changes(), REWRITES)? {
            seen.push((view, Arc::new(now)));
        }
    }
    tables.set_views(seen);
    Ok(tables)
}

impl Temporary {
    /// What a name means that is no temporary table's.
    pub fn called(&self, name: &str) -> NameLookup {
        let now = self.now();
        if now.altered.is_empty() { NameLookup::AsCommitted } else { now.altered.called(name) }
    }

    /// Whether tables are altered.
    pub fn has_altered(&self) -> bool {
        !self.now().altered.is_empty()
    }

    /// Whether tables are called otherwise than everybody calls them.
    pub fn has_renamed(&self) -> bool {
        self.now().altered.iter().any(|altered| altered.from.name != altered.handle.schema().name)
    }

    /// Whatever is called so in schema `public`, as the session sees it.
    pub fn entry(&self, catalog: &Catalog, name: &str) -> Option<CatalogEntry> {
        match self.called(name) {
            NameLookup::Altered(altered) => Some(CatalogEntry::Table(altered.handle)),
            NameLookup::Nothing => None,
            NameLookup::AsCommitted => match catalog.entry(name)? {
                CatalogEntry::View(view) if self.has_altered() => {
                    Some(CatalogEntry::View(self.now().altered.view(view)))
                }
                entry => Some(entry),
            },
        }
    }

    /// The definition of a table or view of schema `public`, as the session sees it; an error when there is none.
    pub fn schema(&self, catalog: &Catalog, name: &str) -> Result<Arc<TableSchema>> {
        let entry = self.entry(catalog, name);
        entry.map(|entry| entry.schema()).ok_or_else(|| Error::no_table(name).into())
    }

    /// The definition of a view, as the session sees it.
    pub fn view(&self, catalog: &Catalog, name: &str) -> Option<Arc<TableSchema>> {
        match self.entry(catalog, name)? {
            CatalogEntry::View(view) => Some(view),
            CatalogEntry::Table(_) | CatalogEntry::External(_) => None,
        }
    }

    /// The definitions of all tables and views of schema `public`, by name.
    pub fn public(&self, catalog: &Catalog) -> Vec<Arc<TableSchema>> {
        let now = self.now();
        let mut schemas = catalog.schemas();
        if now.altered.is_empty() {
            return schemas;
        }
        for schema in &mut schemas {
            *schema = match now.altered.get(schema.id) {
                Some(altered) => Arc::clone(altered.handle.schema()),
                None if schema.is_view() => now.altered.view(Arc::clone(schema)),
                None => continue,
            };
        }
        schemas.sort_by(|one, other| one.name.cmp(&other.name));
        schemas
    }

    /// Whether an index is called so, by its full name: it is in the schema of its table.
    pub fn has_index(&self, catalog: &Catalog, full: &str) -> bool {
        let is_its = |table: &TableSchema| {
            let (schema, name) = full_name::split(full);
            let mut uniques = table.options.rules.uniques.iter();
            full_name::schema_of(&table.name) == schema
                && (table.is_key_named(name) || uniques.any(|unique| unique.name == name))
        };
        self.public(catalog).iter().any(|table| is_its(table))
    }

    /// The names of all of these.
    pub fn public_names(&self, catalog: &Catalog) -> BTreeSet<String> {
        match self.has_altered() {
            false => catalog.names().into_iter().collect(),
            true => self.public(catalog).iter().map(|schema| schema.name.clone()).collect(),
        }
    }

    /// What everybody calls a table and one of its columns, which the session calls so.
    pub fn committed_names(&self, table: &str, column: &str) -> (String, String) {
        let NameLookup::Altered(AlteredHandle { from, handle, .. }) = self.called(table) else {
            return (table.to_owned(), column.to_owned());
        };
        let id = handle.schema().column(column).map(|(_, column)| column.id);
        let before = id.and_then(|id| from.column_by_id(id)).map(|column| column.name.clone());
        (from.name.clone(), before.unwrap_or_else(|| column.to_owned()))
    }

    /// The session sees tables otherwise from now on.
    pub fn alter(&self, tables: AlteredTables) {
        self.change(|own| own.altered = tables);
    }

    /// The session sees a table as everybody does.
    pub fn forget_altered(&self, id: TableId) {
        if self.now().altered.get(id).is_some() {
            self.change(|own| own.altered.remove(id));
        }
    }

    /// All tables are as everybody sees them, behind COMMIT.
    pub fn altered_committed(&self) {
        if self.has_altered() {
            self.change(|own| own.altered = AlteredTables::default());
        }
    }
}
