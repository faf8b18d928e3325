//! How does a table come to be referred to, and how does it end?
//!
//! A definition that names a parent comes while nobody writes that: who writes it later has another handle than before,
//! and knows the foreign key. So no row goes that was looked at, and no write that began before is still on its way.
//! What is referred to is not dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_types::{TableId, TableSchema, referenced};

use crate::alter::{TableAlteration, keep_writers_out};
use crate::auth::{AuthAction, Principal};
use crate::catalog::{CatalogEntry, TableHandle, altered};
use crate::edges::Edges;
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;
use crate::view_readers::Rewrites;

/// Parents that nobody writes. When this goes they are as they were, by other handles.
pub(crate) struct LockedParents<'a> {
    node: &'a Node,
    parents: Vec<Arc<TableHandle>>,
}

impl Drop for LockedParents<'_> {
    fn drop(&mut self) {
        let opened = self.parents.iter().filter_map(|handle| {
            let (schema, replicas) = (Arc::clone(handle.schema()), handle.replicas().ok()?);
            Some(CatalogEntry::Table(self.node.served_anew(handle, replicas, schema, Arc::default())))
        });
        let opened = opened.collect();
        self.node.catalog().replace(&[], opened);
    }
}

impl Node {
    /// Keeps writers out of the tables that a new one refers to. The caller holds the catalog.
    ///
    /// Errors: `Conflict` for a parent that was dropped or altered since the statement was planned.
    pub(crate) async fn keep_parents(&self, child: &TableSchema) -> Result<LockedParents<'_>> {
        let mut kept = LockedParents { node: self, parents: vec![] };
        // In the order of ids, as all who keep several.
        let keys = child.options.rules.foreign_keys.iter();
        let parents: BTreeSet<TableId> = keys.map(|key| key.parent).filter(|id| *id != TableId(0)).collect();
        for id in parents {
            let handle = self.catalog().by_id(id, "").ok_or_else(|| altered(&child.name))?;
            let mut its = child.options.rules.foreign_keys.iter().filter(|key| key.parent == id);
            if its.any(|key| referenced(handle.schema(), &key.parent_columns).is_none()) {
                return Err(altered(&handle.schema().name));
            }
            handle.check_whole()?;
            kept.parents.push(Arc::clone(&handle));
            keep_writers_out(&handle).await?;
        }
        Ok(kept)
    }

    /// Whether no other table refers to one that is to go. The caller holds the catalog.
    ///
    /// Errors: `Depended`.
    pub(crate) fn check_unreferenced(&self, table: &TableSchema) -> Result<()> {
        let edges = self.parts().edges.now(self.catalog());
        check_unreferenced(&edges, &[table.id].into(), table)
    }

    /// Before tables go: ends the foreign keys by which other tables refer to them, whosever these are, also those that
    /// go, too. One child after the other: a crash between leaves the tables, some of them without foreign keys.
    ///
    /// Errors: `Denied` for a table that is another's and is to go; as of ALTER TABLE.
    pub async fn end_references(
        self: &Arc<Self>,
        who: &Principal,
        going: &BTreeSet<TableId>,
        rewrites: Rewrites,
    ) -> Result<()> {
        self.may(who, &AuthAction::Session)?;
        let schemas = self.catalog().schemas();
        schemas.iter().filter(|of| going.contains(&of.id)).try_for_each(|of| self.may_own(who, of))?;
        self.end_references_to(going, rewrites).await
    }

    /// The same, for who was asked whether these may go.
    pub(crate) async fn end_references_to(
        self: &Arc<Self>,
        going: &BTreeSet<TableId>,
        rewrites: Rewrites,
    ) -> Result<()> {
        let mut ended: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let edges = self.parts().edges.now(self.catalog());
        for edge in edges.all.iter().filter(|edge| going.contains(&edge.parent.id) && edge.child.id != edge.parent.id) {
            ended.entry(&edge.child.name).or_default().push(&edge.key.name);
        }
        for (child, keys) in ended {
            let altering: TableAlteration = self.begin_alter(&Principal::Node, child).await?;
            let mut to = (**altering.schema()).clone();
            to.options.rules.foreign_keys.retain(|key| !keys.contains(&key.name.as_str()));
            to.options.rules.forget_unneeded();
            altering.finish(to, rewrites).await?;
            fail::fail_point!("parents::ended");
        }
        Ok(())
    }
}

/// Whether no table but those that go with it refers to one.
///
/// Errors: `Depended`.
pub fn check_unreferenced(edges: &Edges, going: &BTreeSet<TableId>, table: &TableSchema) -> Result<()> {
    let others = edges.to(table.id).filter(|edge| !going.contains(&edge.child.id));
    let detail: Vec<String> = others
        .map(|edge| {
            format!("constraint {} on table {} depends on table {}", edge.key.name, edge.child.name, table.name)
        })
        .collect();
    if detail.is_empty() {
        return Ok(());
    }
    let message = format!("cannot drop table {} because other objects depend on it", table.name);
    Err(Error::new(ErrorKind::Depended, message)
        .with_detail(detail.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too."))
}
