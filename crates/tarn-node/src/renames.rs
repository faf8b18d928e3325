//! How is a table or view called otherwise, so that whatever depends on it goes on, and a crash leaves the old names or
//! the new ones?
//!
//! ```text
//! sequences of its columns know it by its id ─> metastore: names, and the queries of views, at one moment ─> catalog
//! ```
//!
//! Rights, comments, rows and the log go by ids, lake files by the name that the table was made with
//! ([`TableSchema::made_as`]). Views name what they read in their texts, which are written anew by whoever reads SQL.
//! Several renames are one change: a table that takes the place of another does so for everybody at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_metastore::{Alteration, Definition};
use tarn_types::{Kind, TableId, TableSchema};

use crate::auth::Principal;
use crate::beside::check_name;
use crate::catalog::{CatalogEntry, TableHandle};
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;

/// One table or view, by its name when those before it are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// What it is called before.
    pub from: String,
    /// What it is called then; full names, with their schema.
    pub to: String,
}

/// The query of a view when what it reads is called otherwise: old names, and what each is called now.
pub type Rewrite = fn(&TableSchema, &BTreeMap<String, String>) -> Result<String>;

/// Who answers a metastore that lost its answer, so often.
const TRIES: usize = 5;

impl Node {
    /// Calls tables and views otherwise, all at one moment or none.
    ///
    /// Errors: `NoTable`; `Denied`; `TableExists` for a name that is taken by then; `ReadOnly` for an archive; those of
    /// `rewrite`.
    pub async fn rename(&self, who: &Principal, renames: &[Rename], rewrite: Rewrite) -> Result<()> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        self.may_rename(who, renames)?;
        self.rename_alone(renames, rewrite).await
    }

    /// The same; the caller holds the catalog.
    pub(crate) async fn rename_alone(&self, renames: &[Rename], rewrite: Rewrite) -> Result<()> {
        let names = self.names_after(renames).await?;
        let changes = self.renamed(&names, rewrite)?;
        if changes.is_empty() {
            return Ok(());
        }
        for Alteration { from, .. } in &changes {
            self.sequences().know_by_id(&from.name, from.id).await?;
        }
        fail::fail_point!("renames::known_by_id");
        let handles: Vec<Arc<TableHandle>> =
            changes.iter().filter_map(|change| self.catalog().get(&change.from.name)).collect();
        for handle in &handles {
            end_worker(handle).await;
        }
        let defined = self.define_all(changes.clone()).await;
        fail::fail_point!("renames::defined");
        let there = changes.iter().map(|Alteration { from, to }| {
            let schema = if defined.is_ok() { Arc::new((**to).clone()) } else { Arc::clone(from) };
            match handles.iter().find(|handle| handle.schema().id == schema.id) {
                None => Ok(CatalogEntry::View(schema)),
                Some(handle) => {
                    handle.table.alter(Arc::clone(&schema))?;
                    // What was planned with the other name may go on: it is the same table.
                    let gate = Arc::clone(&handle.gate);
                    Ok(CatalogEntry::Table(self.served_anew(handle, handle.replicas()?, schema, gate)))
                }
            }
        });
        let there = there.collect::<Result<Vec<CatalogEntry>>>()?;
        let gone: Vec<String> = changes.iter().map(|change| change.from.name.clone()).collect();
        self.catalog().replace(&gone, there);
        gone.iter().for_each(|name| self.metrics().set_delivery_failing(name, false));
        self.sequences().forget_owners();
        defined
    }

    /// What each table and view that is renamed is called in the end.
    async fn names_after(&self, renames: &[Rename]) -> Result<BTreeMap<TableId, String>> {
        let mut by_name: BTreeMap<String, TableId> =
            self.catalog().schemas().iter().map(|schema| (schema.name.clone(), schema.id)).collect();
        let sequences = self.sequences().all().await?;
        let mut names = BTreeMap::new();
        for Rename { from, to } in renames {
            check_name(to)?;
            self.schemas().check_there(to)?;
            let id = by_name.remove(from).ok_or_else(|| Error::no_table(from))?;
            if by_name.contains_key(to)
                || self.catalog().is_index(to)
                || from == to
                || sequences.iter().any(|(name, _)| name == to)
            {
                return Err(Error::new(ErrorKind::TableExists, format!("relation \"{to}\" already exists")).with_hint(
                    "tables, views and sequences share their names: choose another, or rename that one first",
                ));
            }
            by_name.insert(to.clone(), id);
            names.insert(id, to.clone());
        }
        Ok(names)
    }

    /// The tables and views of these names, and the views that read them.
    fn renamed(&self, names: &BTreeMap<TableId, String>, rewrite: Rewrite) -> Result<Vec<Alteration>> {
        let mut changes = vec![];
        let schemas = self.catalog().schemas();
        let before: BTreeMap<TableId, &str> = schemas.iter().map(|schema| (schema.id, schema.name.as_str())).collect();
        for from in &schemas {
            if let Some(external) = self.catalog().external_table(&from.name).filter(|_| names.contains_key(&from.id)) {
                let hint = "DETACH TABLE it, and ATTACH it by the other name";
                return Err(external.read_only().with_hint(hint));
            }
            let mut to = names.get(&from.id).map_or_else(|| (**from).clone(), |name| from.renamed(name));
            if let Some(view) = &mut to.options.view {
                let now = |id: &TableId| names.get(id).filter(|name| before.get(id).is_some_and(|was| was != name));
                let read: BTreeMap<String, String> =
                    view.reads.iter().filter_map(|(name, id)| Some((name.clone(), now(id)?.clone()))).collect();
                if !read.is_empty() {
                    view.query = rewrite(from, &read)?;
                    let reads = std::mem::take(&mut view.reads).into_iter();
                    view.reads = reads.map(|(name, id)| (read.get(&name).cloned().unwrap_or(name), id)).collect();
                }
            }
            if to != **from {
                if let Some(handle) = self.catalog().get(&from.name) {
                    handle.check_whole()?;
                }
                changes.push(Alteration { from: Arc::clone(from), to: Box::new(to) });
            }
        }
        Ok(changes)
    }

    /// One change of the metastore. An answer that is lost is asked for again.
    pub(crate) async fn define_all(&self, changes: Vec<Alteration>) -> Result<()> {
        let mut last = None;
        for _ in 0..TRIES {
            match self.parts().metastore.define(Definition::AlterAll(changes.clone())).await {
                Ok(_) => return Ok(()),
                // It is so already, or it is done now.
                Err(error) if error.kind() == Kind::Indeterminate => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.map_or_else(Error::stopping, |error| {
            Error::from(error).with_hint("the metastore does not answer: the server must start again to know the names")
        }))
    }
}

/// Ends the background work of a table; whatever it began is taken up by the next worker.
pub(crate) async fn end_worker(handle: &TableHandle) {
    handle.stop.cancel();
    let worker = handle.worker.lock().take();
    if let Some(worker) = worker {
        let _ = worker.await;
    }
}
