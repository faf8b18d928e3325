//! How is a table defined otherwise while it is read and written?
//!
//! ```text
//! worker ends ─> writers are kept out ─> [rows are delivered, and looked at] ─> metastore ─> rows, catalog ─> writers, worker
//! ```
//!
//! The metastore's change is the moment: before it, whatever dies, the table is as it was, and behind it as it is to be. Readers go on all the
//! time, with what was there when they began. Writers that were planned for the old definition are refused (`Conflict`), and planned anew.
//!
//! Where rows have other columns, or other columns may be NULL, all of them are in the lake first: recent rows, and entries of the log that
//! a restart would replay, are as they were written. No row is written anew: who reads rows and files that were stored before gives each column
//! that came since its value in them ([`TableSchema::missing`]), and passes over those that went.

use std::sync::Arc;

use tarn_feed::HotTable;
use tarn_metastore::Alteration;
use tarn_replica::Replicas;
use tarn_types::{Column, ColumnId, TableSchema};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

use crate::catalog::{Entry, Gate, TableHandle};
use crate::error::{Error, ErrorKind, Result};
use crate::node::Node;
use crate::renames::end_worker;
use crate::threads::blocking;

/// Deliveries until nothing waits: what was frozen by a failed one, then the rest.
const MAX_DELIVERIES: usize = 3;

/// The query of a view when the table that it reads (before, after) has other names for its columns; `None`: it stays as it is.
pub type Rewrite = fn(&TableSchema, &TableSchema, &TableSchema) -> Result<Option<String>>;

/// A table that nobody writes until it is altered. Dropped before that, it is as it was.
pub struct Altering {
    node: Arc<Node>,
    handle: Arc<TableHandle>,
    replicas: Arc<Replicas>,
    /// Nothing is left to be done.
    is_over: bool,
    /// Whether there is a table beside it (`rekey.rs`), which goes if it is given up.
    has_beside: bool,
    _one: OwnedMutexGuard<()>,
}

impl Node {
    /// Keeps writers out of a table; those that write it now are waited for. To be called where it is not given up half-way.
    ///
    /// Errors: `NoTable`, `ReadOnly` for an archive, `WrongObject` for a view, `Corrupt` for a table that lost rows.
    pub async fn begin_alter(self: &Arc<Self>, table: &str) -> Result<Altering> {
        let one = self.lock_catalog().await;
        self.check_open()?;
        let handle = self.catalog().require(table)?;
        handle.check_whole()?;
        end_worker(&handle).await;
        let (node, replicas) = (Arc::clone(self), Arc::clone(handle.replicas()?));
        let altering = Altering { node, handle, replicas, is_over: false, has_beside: false, _one: one };
        let gate = Arc::clone(&altering.handle.gate);
        blocking(move || {
            *gate.write() = Gate::Altered;
            Ok(())
        })
        .await?;
        Ok(altering)
    }
}

impl Node {
    /// Nobody sees what is said of columns that are gone: it is only in the way.
    pub(crate) async fn forget_comments(&self, table: &TableSchema, gone: &[ColumnId]) {
        let said = self.comments().of(table.id);
        for id in gone.iter().filter(|id| said.column(**id).is_some()) {
            if let Err(error) = self.comments().say(table, Some(*id), None).await {
                tracing::warn!(table = %table.name, %error, "what was said of a column that was dropped is left");
            }
        }
    }
}

impl Altering {
    /// The table as it is.
    pub fn schema(&self) -> &Arc<TableSchema> {
        self.handle.schema()
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
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

    /// Nobody writes through the handle any more: another one is there, or it is not known what the metastore did.
    pub(crate) fn stay_shut(&mut self) {
        self.is_over = true;
    }

    /// All rows into the lake. Little is left to do if that was done just before writers were kept out.
    pub async fn deliver(&self) -> Result<()> {
        for _ in 0..MAX_DELIVERIES {
            if self.is_delivered() {
                return Ok(());
            }
            let parts = Arc::clone(self.node.parts());
            let hot: Arc<dyn HotTable> = self.replicas.clone();
            let delivering = async move { Ok(parts.lake.deliver(&hot).await?) };
            self.node.in_background(delivering).await?;
        }
        match self.is_delivered() {
            true => Ok(()),
            false => Err(not_delivered(&self.handle)),
        }
    }

    fn is_delivered(&self) -> bool {
        is_delivered(&self.handle)
    }

    /// Defines the table so, durably, and lets writers in. Where columns are called otherwise, views that read it have other texts from the
    /// same moment on, which `rewrite` makes.
    ///
    /// Errors: `Conflict` for rows that are not delivered and would be others. Where it is not known what the metastore did, the table takes
    /// no writes until the server starts again. Those of `rewrite`.
    pub async fn finish(mut self, to: TableSchema, rewrite: Rewrite) -> Result<()> {
        let from = Arc::clone(self.schema());
        if to == *from {
            return Ok(());
        }
        if !self.is_delivered() && !to.stores_as(&from) {
            return Err(tarn_rows::Error::Undelivered { table: from.name.clone() }.into());
        }
        let names_change = names_change(&from, &to);
        let gone = gone(&from, &to);
        let mut readers = vec![];
        if names_change {
            readers = self.readers_of(&to, rewrite)?;
            let all: Vec<ColumnId> = from.columns.iter().map(|column| column.id).collect();
            self.node.sequences().know_columns(&from, &all).await?;
        } else if !gone.is_empty() {
            // Sequences go with their columns: those of one that is gone are, from the same moment on.
            self.node.sequences().know_columns(&from, &gone).await?;
        }
        fail::fail_point!("alter::shut");
        let mut changes = vec![Alteration { from: Arc::clone(&from), to: Box::new(to.clone()) }];
        changes.extend(readers.iter().cloned());
        let defined = self.node.define_all(changes).await;
        if let Err(error) = &defined {
            self.is_over = error.kind() == ErrorKind::Indeterminate;
        }
        defined?;
        fail::fail_point!("alter::defined");
        let schema = Arc::new(to);
        self.handle.table.alter(Arc::clone(&schema))?;
        let views = readers.into_iter().map(|change| Entry::View(Arc::new(*change.to)));
        self.open(Arc::clone(&schema), views.collect());
        if names_change {
            self.node.sequences().forget_owners();
        }
        self.node.sequences().forget_columns(&from, &gone);
        self.node.forget_comments(&schema, &gone).await;
        Ok(())
    }

    /// Views whose texts are others when the table is defined so.
    fn readers_of(&self, to: &TableSchema, rewrite: Rewrite) -> Result<Vec<Alteration>> {
        let mut readers = vec![];
        for view in self.node.catalog().views() {
            let mut now = (*view).clone();
            let Some(of) = now.options.view.as_mut().filter(|of| of.reads.values().any(|id| *id == to.id)) else {
                continue;
            };
            if let Some(query) = rewrite(&view, self.schema(), to)? {
                of.query = query;
                readers.push(Alteration { from: view, to: Box::new(now) });
            }
        }
        Ok(readers)
    }

    /// Lets writers in. The table and these views are in the catalog at one moment.
    fn open(&mut self, schema: Arc<TableSchema>, mut there: Vec<Entry>) {
        self.is_over = true;
        let opened = self.node.served_anew(&self.handle, &self.replicas, schema, Arc::default());
        there.push(Entry::Table(opened));
        self.node.catalog().replace(&[], there);
    }
}

/// Whether columns are called otherwise.
pub(crate) fn names_change(before: &TableSchema, after: &TableSchema) -> bool {
    let is_called_otherwise = |column: &Column| before.column_by_id(column.id).is_some_and(|of| of.name != column.name);
    after.columns.iter().any(is_called_otherwise)
}

/// Whether all rows of a table are in the lake.
pub(crate) fn is_delivered(handle: &TableHandle) -> bool {
    handle.table.pending().oldest_ms.is_none()
}

pub(crate) fn not_delivered(handle: &TableHandle) -> Error {
    let message = format!("rows of table \"{}\" are not in the lake yet", handle.schema().name);
    Error::new(ErrorKind::Conflict, message).with_hint("try again")
}

/// Columns that are dropped.
pub(crate) fn gone(before: &TableSchema, after: &TableSchema) -> Vec<ColumnId> {
    before.columns.iter().map(|column| column.id).filter(|id| after.column_by_id(*id).is_none()).collect()
}

impl Drop for Altering {
    fn drop(&mut self) {
        if !self.is_over {
            self.open(Arc::clone(self.handle.schema()), vec![]);
        }
        if self.has_beside
            && let Ok(runtime) = Handle::try_current()
        {
            // Behind this one, which has the catalog still.
            let node = Arc::clone(&self.node);
            runtime.spawn(async move { node.drop_all_beside().await });
        }
    }
}
