//! How does a table get another key, or rows of another shape? They are written into another table, which takes its
//! place.
//!
//! ```text
//! writers are kept out ─> a table beside it ─> rows are copied ─> metastore: both names, and what views read, at one moment ─> the old one is dropped
//! ```
//!
//! The table beside has a name that no user can give. After a crash it is either not in place yet, or it is the old one
//! that has this name: what is called so when a node starts is dropped. Rights and comments are said of the new table
//! before it takes the place.

use std::sync::Arc;

use tarn_metastore::Alteration;
use tarn_types::{ColumnId, TableId, TableSchema};

use crate::alter::TableAlteration;
use crate::beside::{beside, is_beside};
use crate::catalog::{CatalogEntry, TableHandle};
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;
use crate::renames::end_worker;

impl TableAlteration {
    /// Makes an empty table beside this one, with the same rights. Answers its name. Dropped with what it is beside of,
    /// unless it takes its place.
    ///
    /// Errors: as of CREATE TABLE.
    pub async fn make_beside(&mut self, to: TableSchema) -> Result<String> {
        let name = beside(self.schema().id);
        self.node().drop_alone(&name, true).await?;
        self.begin_beside();
        let mut to = TableSchema { name: name.clone(), ..to };
        // Its files are in a folder of their own.
        to.options.made_as = None;
        self.node().create_alone(to).await?;
        let (from, made) = (self.schema().id, self.node().catalog().schema(&name)?.id);
        self.node().users().copy_rights(from, made).await?;
        Ok(name)
    }

    /// The table beside takes the place, with the rules of `to`, after which it was made; the old one is dropped. What
    /// is said of columns of the old one is said of those that have their ids in `to`.
    ///
    /// Errors: as of [`TableAlteration::finish`]; the metastore's; the old table is as it was then.
    pub async fn take_place(mut self, to: &TableSchema) -> Result<()> {
        let node = Arc::clone(self.node());
        let old = Arc::clone(self.schema());
        node.may_refer(self.who(), Some(&old), to)?;
        let name = beside(old.id);
        let handle = node.catalog().require(&name)?;
        let made = Arc::clone(handle.schema());
        let ids = |id: ColumnId| {
            let place = to.columns.iter().position(|column| column.id == id);
            place.and_then(|place| made.columns.get(place)).map(|column| column.id)
        };
        node.comments().copy(&old, &made, &ids).await?;
        node.sequences().know_by_name(&old.name, old.id).await?;
        let rules = to.options.rules.clone();
        let mut to = made.renamed(&old.name);
        to.options.rules = rules;
        to.options.rules.ids_mut().for_each(|id| *id = ids(*id).unwrap_or(*id));
        to.validate().map_err(|source| Error::new(ErrorKind::Definition, source.to_string()))?;
        node.check_index_names(Some(&old), &to)?;
        let gone = old.renamed(&name);
        let mut changes = vec![
            Alteration { from: Arc::clone(&old), to: Box::new(gone.clone()) },
            Alteration { from: Arc::clone(&made), to: Box::new(to.clone()) },
        ];
        let readers: Vec<Alteration> =
            node.catalog().views().into_iter().filter_map(|view| reads_instead(view, old.id, made.id)).collect();
        changes.extend(readers.iter().cloned());
        end_worker(&handle).await;
        fail::fail_point!("rekey::filled");
        if let Err(error) = node.define_all(changes).await {
            node.catalog().insert(node.served_anew(&handle, handle.replicas()?, made, Arc::clone(&handle.gate)));
            if error.kind() == ErrorKind::Indeterminate {
                self.end_indexes();
                self.end_beside();
                self.stay_shut();
            }
            return Err(error);
        }
        fail::fail_point!("rekey::defined");
        let mut there: Vec<CatalogEntry> =
            readers.into_iter().map(|change| CatalogEntry::View(Arc::new(*change.to))).collect();
        for (handle, schema) in [(&handle, to), (self.handle(), gone)] {
            there.push(CatalogEntry::Table(served(&node, handle, schema)?));
        }
        self.end_beside();
        self.end_indexes();
        self.stay_shut();
        node.catalog().replace(&[old.name.clone(), name.clone()], there);
        node.metrics().set_delivery_failing(&old.name, false);
        // It is in nobody's way, and goes when the node starts again, if it does not now.
        if let Err(error) = node.drop_alone(&name, true).await {
            tracing::warn!(table = %old.name, %error, "what the table was before it was altered is left until the next start");
        }
        Ok(())
    }
}

fn served(node: &Node, handle: &TableHandle, schema: TableSchema) -> Result<Arc<TableHandle>> {
    let schema = Arc::new(schema);
    handle.table.alter(Arc::clone(&schema))?;
    Ok(node.served_anew(handle, handle.replicas()?, schema, Arc::clone(&handle.gate)))
}

/// The view, if it reads one table, to read the other, which has its name.
fn reads_instead(from: Arc<TableSchema>, old: TableId, new: TableId) -> Option<Alteration> {
    let mut to = (*from).clone();
    let reads = &mut to.options.view.as_mut()?.reads;
    reads.values_mut().filter(|id| **id == old).for_each(|id| *id = new);
    (to != *from).then(|| Alteration { from, to: Box::new(to) })
}

impl Node {
    /// When the node starts: drops what a crash left beside tables.
    pub(crate) async fn drop_all_beside(&self) {
        for name in self.catalog().names().into_iter().filter(|name| is_beside(name)) {
            let _one = self.lock_catalog().await;
            if let Err(error) = self.drop_alone(&name, true).await {
                tracing::warn!(%name, %error, "what a change of a table left is left until the next start");
            }
        }
    }
}
