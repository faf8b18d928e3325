//! Which tables are open on this node?
//!
//! A [`TableHandle`] is one table's store, replicas and worker. The [`Catalog`] finds it by name; its generation moves
//! whenever a table is made or dropped, so that prepared statements know when to be planned anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tarn_feed::HotTable;
use tarn_query::{HotCatalog, HotSource};
use tarn_replica::Replica;
use tarn_rows::Table;
use tarn_types::TableSchema;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{Result, SqlError, state};
use crate::hot::Source;
use crate::worker::Job;

/// One open table.
pub struct TableHandle {
    pub(crate) table: Arc<Table>,
    /// The same, as the lake sees it.
    pub(crate) hot: Arc<dyn HotTable>,
    /// One a tablet, in tablet order.
    pub(crate) replicas: Vec<Replica>,
    pub(crate) jobs: mpsc::Sender<Job>,
    /// Wakes the worker to look whether a delivery is due.
    pub(crate) kick: Notify,
    pub(crate) stop: CancellationToken,
    pub(crate) worker: Mutex<Option<JoinHandle<()>>>,
    /// What the log lost of it, if it was opened all the same: the table is read-only, and has no worker.
    pub(crate) damage: Option<String>,
    /// Writers hold it shared; dropping the table holds it alone and sets it.
    pub(crate) dropped: RwLock<bool>,
}

impl TableHandle {
    pub fn schema(&self) -> &Arc<TableSchema> {
        self.table.table_schema()
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// What the log lost of it, in one sentence.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// `XX001` for a table that lost something: what is left is shown, but not built upon.
    pub(crate) fn check_whole(&self) -> Result<()> {
        match &self.damage {
            None => Ok(()),
            Some(damage) => Err(SqlError::new(
                state::DATA_CORRUPTED,
                format!("table \"{}\" is read-only: {damage}", self.schema().name),
            )
            .with_hint("copy out what is left with COPY ... TO, DROP TABLE, and load it again")),
        }
    }
}

/// All open tables by name.
#[derive(Default)]
pub struct Catalog {
    tables: RwLock<BTreeMap<String, Arc<TableHandle>>>,
    generation: AtomicU64,
}

impl Catalog {
    pub fn get(&self, name: &str) -> Option<Arc<TableHandle>> {
        self.tables.read().get(name).cloned()
    }

    /// The table, or `42P01`.
    pub fn require(&self, name: &str) -> Result<Arc<TableHandle>> {
        self.get(name).ok_or_else(|| SqlError::undefined_table(name))
    }

    /// All tables by name.
    pub fn all(&self) -> Vec<Arc<TableHandle>> {
        self.tables.read().values().cloned().collect()
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn insert(&self, handle: Arc<TableHandle>) {
        self.tables.write().insert(handle.schema().name.clone(), handle);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self, name: &str) -> Option<Arc<TableHandle>> {
        let removed = self.tables.write().remove(name);
        self.generation.fetch_add(1, Ordering::AcqRel);
        removed
    }

    /// Memory of undelivered rows of all tables.
    pub fn recent_bytes(&self) -> u64 {
        self.tables.read().values().map(|handle| handle.table.recent_bytes()).sum()
    }
}

impl HotCatalog for Catalog {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.tables.read().values().map(|handle| Arc::clone(handle.schema())).collect()
    }

    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>> {
        self.get(name).map(|handle| Arc::new(Source(Arc::clone(&handle.table))) as Arc<dyn HotSource>)
    }
}
