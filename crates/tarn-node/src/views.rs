//! How is a view made, changed and dropped, and who keeps what it reads from going away?
//!
//! A view is a table of the metastore that has a query in the place of rows: no tablets, no log, no files. So it has an
//! id like any table, on which rights and comments hang, and whoever copies or backs up the metastore has it, too. What
//! its query means is not known here.
//!
//! A view names the tables and views that it reads. While there is one that names a table, that table is not dropped:
//! whoever makes or drops either holds the catalog.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_metastore::{Definition, MetastoreExt};
use tarn_types::{DataType, Kind, TableId, TableSchema};

use crate::auth::{AuthAction, Principal, Privilege};
use crate::beside::check_name;
use crate::catalog::CatalogEntry;
use crate::drops::half_made;
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;

/// `WrongObject`: a table has the name of a view.
pub fn no_view(name: &str) -> Error {
    Error::new(ErrorKind::WrongObject, format!("\"{name}\" is not a view"))
        .with_hint("use DROP TABLE to remove a table")
}

impl Node {
    /// Makes a view, which is of who asks, or with `or_replace` gives the one of its name another query. True: there
    /// was none before.
    ///
    /// Errors: `Denied`, also for what it reads; `TableExists` without `or_replace`, `WrongObject` when a table has the
    /// name; `Definition` for a change that takes columns away, or gives them other names or types; `NoTable` when
    /// something that it reads is gone.
    pub async fn create_view(&self, who: &Principal, schema: TableSchema, or_replace: bool) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_make(who, &schema.name)?;
        if let Some(before) = self.catalog().view(&schema.name).filter(|_| or_replace) {
            self.may_own(who, &before)?;
        }
        self.check_reads(who, &schema)?;
        let name = schema.name.clone();
        check_name(&name)?;
        self.schemas().check_there(&name)?;
        let parts = self.parts();
        if self.catalog().is_index(&name) {
            return Err(Error::new(ErrorKind::TableExists, format!("relation \"{name}\" already exists"))
                .with_hint("an index is called so: choose another name"));
        }
        let made = match self.catalog().entry(&name) {
            None => parts.metastore.create_table(schema).await.map_err(|error| half_made(error.into()))?,
            Some(CatalogEntry::View(before)) if or_replace => {
                let to = replaced(&before, schema)?;
                if to == *before {
                    return Ok(false);
                }
                parts.metastore.define(Definition::Alter { from: Arc::clone(&before), to: Box::new(to) }).await?
            }
            Some(CatalogEntry::Table(_) | CatalogEntry::External(_)) if or_replace => return Err(no_view(&name)),
            Some(_) => {
                return Err(Error::new(ErrorKind::TableExists, format!("relation \"{name}\" already exists"))
                    .with_hint("CREATE OR REPLACE VIEW gives a view another query; or choose another name"));
            }
        };
        let is_new = self.catalog().insert_view(made);
        if is_new {
            self.own(who, &name).await?;
        }
        Ok(is_new)
    }

    /// Whether all that a view reads is there still, and its maker may read it.
    fn check_reads(&self, who: &Principal, schema: &TableSchema) -> Result<()> {
        for (name, id) in schema.options.view.iter().flat_map(|view| &view.reads) {
            let of = self.catalog().schema(name)?;
            if of.id != *id {
                return Err(Error::no_table(name).with_detail("it was dropped and made again meanwhile"));
            }
            self.may(who, &AuthAction::Rows { of: &of, privilege: Privilege::Select })?;
        }
        Ok(())
    }

    /// The caller holds the catalog.
    pub(crate) async fn forget_view(&self, schema: &TableSchema) -> Result<bool> {
        match self.parts().metastore.drop_table(&schema.name).await {
            // By an earlier DROP whose answer was lost, or by another server.
            Err(error) if error.kind() == Kind::NotFound => {}
            dropped => drop(dropped?),
        }
        self.catalog().remove(&schema.name);
        Ok(true)
    }

    /// Errors: `Depended`, naming a view that reads this table or view.
    pub(crate) fn check_unread(&self, schema: &TableSchema) -> Result<()> {
        check_unread(&[Arc::new(schema.clone())], &self.catalog().views())
    }
}

/// Whether nothing but `going` itself reads what is going.
///
/// Errors: `Depended`, naming what is read and by which views.
pub fn check_unread(going: &[Arc<TableSchema>], views: &[Arc<TableSchema>]) -> Result<()> {
    let ids: BTreeSet<TableId> = going.iter().map(|schema| schema.id).collect();
    let others = readers(&ids, views);
    if others.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = going.iter().map(|schema| format!("{} {}", schema.kind(), schema.name)).collect();
    let reads = |reader: &TableSchema| {
        let below = reader.options.view.iter().flat_map(|view| view.reads.keys());
        format!("view {} depends on {}", reader.name, below.cloned().collect::<Vec<_>>().join(", "))
    };
    let detail: Vec<String> = others.iter().rev().map(|reader| reads(reader)).collect();
    Err(Error::new(ErrorKind::Depended, format!("cannot drop {} because other objects depend on it", names.join(", ")))
        .with_detail(detail.join("; "))
        .with_hint("use DROP … CASCADE to drop the dependent objects too"))
}

/// The views, beside `ids`, that read one of `ids` or a view that does: each before what it reads, so that they can be
/// dropped in this order.
pub fn readers(ids: &BTreeSet<TableId>, views: &[Arc<TableSchema>]) -> Vec<Arc<TableSchema>> {
    let mut left: Vec<Arc<TableSchema>> = vec![];
    let mut reached = ids.clone();
    loop {
        let is_reached =
            |view: &&Arc<TableSchema>| !reached.contains(&view.id) && reads(view).any(|id| reached.contains(&id));
        let found: Vec<Arc<TableSchema>> = views.iter().filter(is_reached).cloned().collect();
        if found.is_empty() {
            break;
        }
        reached.extend(found.iter().map(|view| view.id));
        left.extend(found);
    }
    outermost_first(left)
}

/// Tables and views, each before what it reads.
pub fn outermost_first(mut left: Vec<Arc<TableSchema>>) -> Vec<Arc<TableSchema>> {
    let mut ordered = vec![];
    while !left.is_empty() {
        let is_outermost = |view: &TableSchema| !left.iter().any(|other| reads(other).any(|id| id == view.id));
        let (mut outermost, inner): (Vec<_>, Vec<_>) = left.clone().into_iter().partition(|view| is_outermost(view));
        left = inner;
        // Views read what was there before them: there is always one that none of the others reads.
        if outermost.is_empty() {
            outermost = std::mem::take(&mut left);
        }
        ordered.append(&mut outermost);
    }
    ordered
}

fn reads(view: &TableSchema) -> impl Iterator<Item = TableId> + '_ {
    view.options.view.iter().flat_map(|view| view.reads.values().copied())
}

/// The view with another query: its columns stay, and others may come behind them.
///
/// Errors: `Definition` for columns that go, or are called otherwise or of another type.
pub fn replaced(before: &TableSchema, mut after: TableSchema) -> Result<TableSchema> {
    let refused = |what: String, hint: &str| Err(Error::new(ErrorKind::Definition, what).with_hint(hint));
    if after.columns.len() < before.columns.len() {
        return refused("cannot drop columns from view".to_owned(), "DROP VIEW it first, and make it anew");
    }
    for (old, new) in before.columns.iter().zip(&mut after.columns) {
        let name = &old.name;
        if *name != new.name {
            let what = format!("cannot change name of view column \"{name}\" to \"{}\"", new.name);
            return refused(what, "new columns come behind; or DROP VIEW it first");
        }
        if old.data_type != new.data_type {
            let lower = |of: DataType| of.to_string().to_lowercase();
            let (from, to) = (lower(old.data_type), lower(new.data_type));
            let what = format!("cannot change data type of view column \"{name}\" from {from} to {to}");
            return refused(what, "cast it in the query; or DROP VIEW it first");
        }
        new.id = old.id;
    }
    Ok(TableSchema { id: before.id, first_tablet: before.first_tablet, ..after })
}

#[cfg(test)]
mod tests {
    use tarn_types::{Column, ColumnId, TableOptions, TabletId, View};

    use super::*;

    /// A table, or a view of others.
    fn relation(id: u32, name: &str, reads: &[&Arc<TableSchema>]) -> Arc<TableSchema> {
        let data_type = DataType::Int32;
        let column = Column { id: ColumnId(1), name: "a".into(), data_type, nullable: true, default: None };
        let reads = reads.iter().map(|of| (of.name.clone(), of.id)).collect::<std::collections::BTreeMap<_, _>>();
        let view = View { query: "SELECT".into(), columns: vec!["a".into()], reads };
        let options = TableOptions { view: (!view.reads.is_empty()).then_some(view), ..TableOptions::default() };
        let (id, name, key) = (TableId(id), name.to_owned(), vec![]);
        let first_tablet = TabletId(0);
        Arc::new(TableSchema { id, name, columns: vec![column], key, n_partition_key: 0, first_tablet, options })
    }

    #[test]
    fn what_is_read_by_a_view_does_not_go_alone() {
        let t = relation(1, "t", &[]);
        let v = relation(2, "v", &[&t]);
        let w = relation(3, "w", &[&v, &t]);
        let views = [Arc::clone(&v), Arc::clone(&w)];
        let names = |ids: &[u32]| {
            let found = readers(&ids.iter().copied().map(TableId).collect(), &views);
            found.iter().map(|view| view.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[1]), ["w", "v"], "the outer one first");
        assert_eq!(names(&[2]), ["w"]);
        assert_eq!(names(&[1, 2]), ["w"]);
        assert!(names(&[3]).is_empty());
        let refused = check_unread(&[Arc::clone(&t)], &views).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Depended);
        assert_eq!(refused.message(), "cannot drop table t because other objects depend on it");
        assert_eq!(refused.detail(), Some("view v depends on t; view w depends on t, v"));
        check_unread(&[t, v, w], &views).unwrap();
    }

    #[test]
    fn a_circle_ends() {
        let t = relation(1, "t", &[]);
        let v = relation(2, "v", &[&relation(3, "w", &[])]);
        let w = relation(3, "w", &[&v, &t]);
        assert_eq!(readers(&[TableId(1)].into(), &[v, w]).len(), 2);
    }

    #[test]
    fn another_query_may_add_columns_and_no_more() {
        let v = relation(2, "v", &[&relation(1, "t", &[])]);
        let with = |change: fn(&mut TableSchema)| {
            let mut after = (*v).clone();
            change(&mut after);
            replaced(&v, after).map_err(|error| error.message().to_owned())
        };
        let more = |schema: &mut TableSchema| {
            schema.columns.push(Column { id: ColumnId(0), name: "b".into(), ..schema.columns[0].clone() });
        };
        assert_eq!(with(more).unwrap().columns.len(), 2);
        assert_eq!(with(|schema| schema.columns.clear()).unwrap_err(), "cannot drop columns from view");
        let renamed = with(|schema| schema.columns[0].name = "b".into()).unwrap_err();
        assert_eq!(renamed, "cannot change name of view column \"a\" to \"b\"");
        let other = with(|schema| schema.columns[0].data_type = DataType::Text).unwrap_err();
        assert!(other.starts_with("cannot change data type of view column \"a\" from"), "{other}");
    }
}
