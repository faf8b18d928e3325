//! Which tables are open on this node?
//!
//! A [`TableHandle`] is one table's store, replicas and worker; an [`Attachment`] is a table that others write. The [`Catalog`] finds
//! both by name; its generation moves whenever a table is made, dropped or changes its columns, so that prepared statements know when
//! to be planned anew.

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

use crate::attachments::Attachment;
use crate::error::{Result, SqlError, state};
use crate::hot::{ArchiveSource, Source};
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
    tables: RwLock<BTreeMap<String, Entry>>,
    generation: AtomicU64,
}

/// What a name stands for.
#[derive(Clone)]
enum Entry {
    Table(Arc<TableHandle>),
    Archive(Arc<Attachment>),
}

impl Entry {
    fn schema(&self) -> Arc<TableSchema> {
        match self {
            Entry::Table(handle) => Arc::clone(handle.schema()),
            Entry::Archive(attachment) => attachment.schema(),
        }
    }
}

impl Catalog {
    fn entry(&self, name: &str) -> Option<Entry> {
        self.tables.read().get(name).cloned()
    }

    /// A table that is written here.
    pub fn get(&self, name: &str) -> Option<Arc<TableHandle>> {
        match self.entry(name)? {
            Entry::Table(handle) => Some(handle),
            Entry::Archive(_) => None,
        }
    }

    /// A table to write to or work on; `42P01` when there is none, `25006` when others write it.
    pub fn require(&self, name: &str) -> Result<Arc<TableHandle>> {
        match self.entry(name) {
            Some(Entry::Table(handle)) => Ok(handle),
            Some(Entry::Archive(attachment)) => Err(attachment.read_only()),
            None => Err(SqlError::undefined_table(name)),
        }
    }

    /// A table that others write.
    pub fn archive(&self, name: &str) -> Option<Arc<Attachment>> {
        match self.entry(name)? {
            Entry::Table(_) => None,
            Entry::Archive(attachment) => Some(attachment),
        }
    }

    /// The definition of any table, or `42P01`.
    pub fn schema(&self, name: &str) -> Result<Arc<TableSchema>> {
        self.entry(name).map(|entry| entry.schema()).ok_or_else(|| SqlError::undefined_table(name))
    }

    pub fn contains(&self, name: &str) -> bool {
        self.tables.read().contains_key(name)
    }

    /// The names of all tables, in order.
    pub fn names(&self) -> Vec<String> {
        self.tables.read().keys().cloned().collect()
    }

    /// All tables that are written here, by name.
    pub fn all(&self) -> Vec<Arc<TableHandle>> {
        let tables = self.tables.read();
        tables
            .values()
            .filter_map(|entry| if let Entry::Table(handle) = entry { Some(handle.clone()) } else { None })
            .collect()
    }

    /// All tables that others write, by name.
    pub fn archives(&self) -> Vec<Arc<Attachment>> {
        let tables = self.tables.read();
        tables
            .values()
            .filter_map(|entry| if let Entry::Archive(of) = entry { Some(of.clone()) } else { None })
            .collect()
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn insert(&self, handle: Arc<TableHandle>) {
        self.tables.write().insert(handle.schema().name.clone(), Entry::Table(handle));
        self.changed();
    }

    pub(crate) fn insert_archive(&self, attachment: Arc<Attachment>) {
        self.tables.write().insert(attachment.name().to_owned(), Entry::Archive(attachment));
        self.changed();
    }

    pub(crate) fn remove(&self, name: &str) {
        self.tables.write().remove(name);
        self.changed();
    }

    /// What was planned is to be planned anew.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Memory of undelivered rows of all tables.
    pub fn recent_bytes(&self) -> u64 {
        let bytes = |entry: &Entry| if let Entry::Table(handle) = entry { handle.table.recent_bytes() } else { 0 };
        self.tables.read().values().map(bytes).sum()
    }
}

impl HotCatalog for Catalog {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.tables.read().values().map(Entry::schema).collect()
    }

    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>> {
        Some(match self.entry(name)? {
            Entry::Table(handle) => Arc::new(Source(Arc::clone(&handle.table))),
            Entry::Archive(attachment) => Arc::new(ArchiveSource::new(attachment)),
        })
    }
}
