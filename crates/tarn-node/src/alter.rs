//! How is a table defined otherwise while it is read and written?
//!
//! ```text
//! worker ends ─> writers are kept out ─> [rows are delivered, and looked at] ─> metastore ─> rows, catalog ─> writers, worker
//! ```
//!
//! The metastore's change is the moment: before it, whatever dies, the table is as it was, and behind it as it is to
//! be. Readers go on all the time, with what was there when they began. Writers that were planned for the old
//! definition are refused (`Conflict`), and planned anew.
//!
//! Where rows have other columns, or other columns may be NULL, all of them are in the lake first: recent rows, and
//! entries of the log that a restart would replay, are as they were written. No row is written anew: who reads rows and
//! files that were stored before gives each column that came since its value in them ([`TableSchema::missing`]), and
//! passes over those that went.

use std::sync::Arc;

use tarn_feed::HotTable;
use tarn_metastore::Alteration;
use tarn_replica::Replicas;
use tarn_types::{ColumnId, TableId, TableSchema};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

use crate::auth::Principal;
use crate::catalog::{CatalogEntry, Gate, TableHandle};
use crate::entries::Index;
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;
use crate::renames::end_worker;
use crate::threads::blocking;
use crate::view_readers::{Rewrites, names_change, readers_of};

/// Deliveries until nothing waits: what was frozen by a failed one, then the rest.
const MAX_DELIVERIES: usize = 3;

/// A table that nobody writes until it is altered. Dropped before that, it is as it was.
pub struct TableAlteration {
    node: Arc<Node>,
    who: Principal,
    handle: Arc<TableHandle>,
    replicas: Arc<Replicas>,
    /// Nothing is left to be done.
    is_over: bool,
    /// Whether there is a table beside it (`rekey.rs`), which goes if it is given up.
    has_beside: bool,
    /// Indexes that it does not name yet, which go then, too.
    indexes: Vec<TableId>,
    _one: OwnedMutexGuard<()>,
}

impl Node {
    /// Keeps writers out of a table; those that write it now are waited for. To be called where it is not given up
    /// half-way.
    ///
    /// Errors: `NoTable`, `Denied`, `ReadOnly` for an archive, `WrongObject` for a view, `Corrupt` for a table that
    /// lost rows.
    pub async fn begin_alter(self: &Arc<Self>, who: &Principal, table: &str) -> Result<TableAlteration> {
        let one = self.lock_catalog().await;
        self.check_open()?;
        self.may_own_named(who, table)?;
        let handle = self.catalog().require(table)?;
        handle.check_whole()?;
        let (node, who, replicas) = (Arc::clone(self), who.clone(), Arc::clone(handle.replicas()?));
        let altering = TableAlteration {
            node,
            who,
            handle,
            replicas,
            is_over: false,
            has_beside: false,
            indexes: vec![],
            _one: one,
        };
        keep_writers_out(&altering.handle).await?;
        Ok(altering)
    }

    /// All rows of a table that nobody writes into the lake.
    pub(crate) async fn deliver_all(&self, handle: &TableHandle) -> Result<()> {
        for _ in 0..MAX_DELIVERIES {
            if is_delivered(handle) {
                return Ok(());
            }
            let (parts, replicas) = (Arc::clone(self.parts()), Arc::clone(handle.replicas()?));
            let hot: Arc<dyn HotTable> = replicas;
            self.in_background(async move { Ok(parts.lake.deliver(&hot).await?) }).await?;
        }
        match is_delivered(handle) {
            true => Ok(()),
            false => {
                let message = format!("rows of table \"{}\" are not in the lake yet", handle.schema().name);
                Err(Error::new(ErrorKind::Conflict, message).with_hint("try again"))
            }
        }
    }

    /// Before columns are called otherwise, or go: what goes with them knows them by their ids from then on, and is
    /// gone with those that go from the same moment on.
    pub(crate) async fn know_columns(&self, before: &TableSchema, after: &TableSchema) -> Result<()> {
        let known: Vec<ColumnId> = match names_change(before, after) {
            true => before.columns.iter().map(|column| column.id).collect(),
            false => gone(before, after),
        };
        match known.is_empty() {
            true => Ok(()),
            false => self.sequences().know_columns(before, &known).await,
        }
    }

    /// Behind it: what was taken of sequences of columns that went, and what was said of these, is only in the way.
    pub(crate) async fn forget_columns(&self, before: &TableSchema, after: &TableSchema) {
        let gone = gone(before, after);
        self.sequences().forget_columns(before, &gone);
        let said = self.comments().of(after.id);
        for id in gone.iter().filter(|id| said.column(**id).is_some()) {
            if let Err(error) = self.comments().say(after, Some(*id), None).await {
                tracing::warn!(table = %after.name, %error, "what was said of a column that was dropped is left");
            }
        }
    }
}

/// Nobody writes through this handle any more; those who write now are waited for.
pub(crate) async fn keep_writers_out(handle: &TableHandle) -> Result<()> {
    end_worker(handle).await;
    let gate = Arc::clone(&handle.gate);
    blocking(move || {
        *gate.write() = Gate::Altered;
        Ok(())
    })
    .await
}

impl TableAlteration {
    /// The table as it is.
    pub fn schema(&self) -> &Arc<TableSchema> {
        self.handle.schema()
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Who alters it.
    pub(crate) fn who(&self) -> &Principal {
        &self.who
    }

    pub(crate) fn handle(&self) -> &Arc<TableHandle> {
        &self.handle
    }

    /// There is a table beside it from now on.
    pub(crate) fn begin_beside(&mut self) {
        self.has_beside = true;
    }

    /// There is none any more, or nothing is to be done about it.
    pub(crate) fn end_beside(&mut self) {
        self.has_beside = false;
    }

    /// Makes the empty index of a constraint of the table as it is to be, or of the one beside it.
    ///
    /// Errors: as of CREATE TABLE.
    pub async fn make_index(&mut self, to: &TableSchema, at: usize) -> Result<Index> {
        let index = self.node.make_index(to, at).await?;
        self.indexes.push(index.unique.index);
        Ok(index)
    }

    /// The table names its indexes, or it is not known whether it does.
    pub(crate) fn end_indexes(&mut self) {
        self.indexes.clear();
    }

    /// Nobody writes through the handle any more: another one is there, or it is not known what the metastore did.
    pub(crate) fn stay_shut(&mut self) {
        self.is_over = true;
    }

    /// All rows into the lake. Little is left to do if that was done just before writers were kept out.
    pub async fn deliver(&self) -> Result<()> {
        self.node.deliver_all(&self.handle).await
    }

    /// Defines the table so, durably, and lets writers in. Where columns are called otherwise, views that read it have
    /// other texts from the same moment on, which `rewrites` makes.
    ///
    /// Errors: `Denied` for a table of another that it is to refer to; `Conflict` for rows that are not delivered and
    /// would be others. Where it is not known what the metastore
    /// did, the table takes no writes until the server starts again. Those of `rewrites`.
    pub async fn finish(mut self, to: TableSchema, rewrites: Rewrites) -> Result<()> {
        let from = Arc::clone(self.schema());
        if to == *from {
            return Ok(());
        }
        self.node.may_refer(&self.who, Some(&from), &to)?;
        if !is_delivered(&self.handle) && !to.stores_as(&from) {
            return Err(tarn_rows::Error::Undelivered { table: from.name.clone() }.into());
        }
        self.node.check_index_names(Some(&from), &to)?;
        let readers = readers_of(&self.node.catalog().views(), &[(&from, &to)], rewrites)?;
        self.node.know_columns(&from, &to).await?;
        fail::fail_point!("alter::shut");
        let mut changes = vec![Alteration { from: Arc::clone(&from), to: Box::new(to.clone()) }];
        changes.extend(readers.iter().cloned());
        let defined = self.node.define_all(changes).await;
        if let Err(error) = &defined {
            self.is_over = error.kind() == ErrorKind::Indeterminate;
            if self.is_over {
                self.end_indexes();
            }
        }
        defined?;
        self.end_indexes();
        fail::fail_point!("alter::defined");
        let schema = Arc::new(to);
        self.handle.table.alter(Arc::clone(&schema))?;
        let views = readers.into_iter().map(|change| CatalogEntry::View(Arc::new(*change.to)));
        self.open(Arc::clone(&schema), views.collect());
        if names_change(&from, &schema) {
            self.node.sequences().forget_owners();
        }
        self.node.forget_columns(&from, &schema).await;
        self.node.drop_indexes_of(&from, Some(&schema)).await;
        Ok(())
    }

    /// Lets writers in. The table and these views are in the catalog at one moment.
    fn open(&mut self, schema: Arc<TableSchema>, mut there: Vec<CatalogEntry>) {
        self.is_over = true;
        let opened = self.node.served_anew(&self.handle, &self.replicas, schema, Arc::default());
        there.push(CatalogEntry::Table(opened));
        self.node.catalog().replace(&[], there);
    }
}

/// Whether all rows of a table are in the lake.
fn is_delivered(handle: &TableHandle) -> bool {
    handle.table.pending().oldest_ms.is_none()
}

/// Columns that are dropped.
fn gone(before: &TableSchema, after: &TableSchema) -> Vec<ColumnId> {
    before.columns.iter().map(|column| column.id).filter(|id| after.column_by_id(*id).is_none()).collect()
}

impl Drop for TableAlteration {
    fn drop(&mut self) {
        if !self.is_over {
            self.open(Arc::clone(self.handle.schema()), vec![]);
        }
        let (has_beside, indexes) = (self.has_beside, std::mem::take(&mut self.indexes));
        if (has_beside || !indexes.is_empty())
            && let Ok(runtime) = Handle::try_current()
        {
            // Behind this one, which has the catalog still.
            let node = Arc::clone(&self.node);
            runtime.spawn(async move {
                if has_beside {
                    node.drop_all_beside().await;
                }
                for index in indexes {
                    node.drop_if_unnamed(index).await;
                }
            });
        }
    }
}
