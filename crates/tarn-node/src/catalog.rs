//! Which tables are open on this node?
//!
//! A [`TableHandle`] is one table's store, replicas and worker; an [`ExternalTable`] is a table that others write; a
//! view is its definition. The entries of an index are a table that only this crate finds. The [`Catalog`] finds all
//! three by name; its generation moves whenever one is made, dropped or changes its columns or its query, so that
//! prepared statements know when to be planned anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tarn_replica::Replicas;
use tarn_rows::{RecentBytes, Table};
use tarn_types::{Cursor, TableId, TableSchema, Unique, full_name};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::external_table::ExternalTable;
use crate::jobs::TableJob;
use crate::unlogged::UnloggedWriter;

/// One open table.
pub struct TableHandle {
    /// The table as it is defined, for as long as this handle is the one of the catalog.
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) table: Arc<Table>,
    pub(crate) way_in: WayIn,
    pub(crate) jobs: mpsc::Sender<TableJob>,
    /// Wakes the worker to look whether a delivery is due.
    pub(crate) kick: Notify,
    pub(crate) stop: CancellationToken,
    pub(crate) worker: Mutex<Option<JoinHandle<()>>>,
    /// What the log lost of it, if it was opened all the same: the table is read-only, and has no worker.
    pub(crate) damage: Option<String>,
    /// Why its rows do not get into the lake, while they do not. Held for a moment.
    pub(crate) stuck: Mutex<Option<DeliveryFailure>>,
    /// Writers hold it shared; whoever shuts it holds it alone. Handles of several names of one table have the same.
    pub(crate) gate: Arc<RwLock<Gate>>,
    /// The definition that a transaction altered which alone has this handle.
    pub(crate) altered_from: Option<Arc<TableSchema>>,
}

/// May a table be written through a handle?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Gate {
    #[default]
    Open,
    Dropped,
    /// It is defined otherwise by now, or will be: what was planned is to be planned anew.
    Altered,
}

/// How what is written to a table gets in.
pub(crate) enum WayIn {
    /// Through the log: one replica a tablet.
    Logged(Arc<Replicas>),
    /// Of a temporary table, which a crash may take.
    Unlogged(UnloggedWriter),
}

/// The last delivery of a table failed, and those before it since this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// Unix time of the first failure in a row.
    pub since_ms: i64,
    /// Of the last one.
    pub reason: String,
}

impl DeliveryFailure {
    /// As ISO 8601.
    pub fn since(&self) -> String {
        let since = chrono::DateTime::from_timestamp_millis(self.since_ms);
        since.map_or_else(|| self.since_ms.to_string(), |at| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
    }
}

/// Memory of undelivered rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UndeliveredBytes {
    /// Of tables whose delivery fails.
    pub stuck_bytes: u64,
    /// Of all others.
    pub bytes: u64,
}

impl UndeliveredBytes {
    /// Whether there is room for a writer, of a table whose delivery fails or of another. The former have half of the
    /// limit between them, however many they are; what they took before they began to fail counts no more than that
    /// against the others.
    pub fn has_room(self, limit_bytes: u64, is_stuck: bool) -> bool {
        let share_bytes = limit_bytes / 2;
        let has_room = self.bytes + self.stuck_bytes.min(share_bytes) < limit_bytes;
        if is_stuck { has_room && self.stuck_bytes < share_bytes } else { has_room }
    }

    /// Whether a table should be delivered before its time: half of the room is taken. What others cannot get rid of is
    /// no reason to write small files.
    pub fn is_pressed(self, limit_bytes: u64, is_stuck: bool) -> bool {
        if is_stuck {
            return (self.bytes + self.stuck_bytes) * 2 > limit_bytes;
        }
        self.bytes * 2 > limit_bytes - self.stuck_bytes.min(limit_bytes / 2)
    }
}

impl TableHandle {
    /// Whether something was written that is not delivered.
    pub fn has_recent_rows(&self) -> bool {
        self.table.pending().oldest_ms.is_some()
    }

    /// Why its rows do not get into the lake, if the last delivery failed.
    pub fn stuck(&self) -> Option<DeliveryFailure> {
        self.stuck.lock().clone()
    }

    /// The definition that statements with this handle go by.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// `WrongState` for a temporary table, which has no log.
    pub(crate) fn replicas(&self) -> Result<&Arc<Replicas>> {
        match &self.way_in {
            WayIn::Logged(replicas) => Ok(replicas),
            WayIn::Unlogged(_) => {
                let message = format!("table \"{}\" is temporary: it has no log and no lake files", self.schema().name);
                Err(Error::new(ErrorKind::WrongState, message))
            }
        }
    }

    /// What the log lost of it, in one sentence.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// The same table for a transaction that sees it otherwise: with another definition, and without a worker. Its rows
    /// are written by whoever commits the transaction.
    ///
    /// Errors: `WrongState` for a temporary table.
    pub fn seen_as(&self, schema: Arc<TableSchema>) -> Result<Arc<TableHandle>> {
        Ok(Arc::new(TableHandle {
            schema,
            table: Arc::clone(&self.table),
            way_in: WayIn::Logged(Arc::clone(self.replicas()?)),
            jobs: self.jobs.clone(),
            kick: Notify::new(),
            stop: self.stop.clone(),
            worker: Mutex::new(None),
            damage: self.damage.clone(),
            stuck: Mutex::new(self.stuck()),
            gate: Arc::clone(&self.gate),
            altered_from: Some(Arc::clone(self.altered_from.as_ref().unwrap_or(&self.schema))),
        }))
    }

    /// The last change of each tablet that is in effect: rows, and what its log has of deliveries and splits.
    pub fn position(&self) -> Cursor {
        self.table.applied_cursor()
    }

    /// Before a write, which goes on while what this answers is held.
    ///
    /// Errors: `NoTable` for one that was dropped; `Conflict` for one that was altered, or an index that was dropped;
    /// `Corrupt`.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, Gate>> {
        let gate = self.gate.read();
        match *gate {
            Gate::Open => self.check_whole().map(|()| gate),
            Gate::Dropped => Err(self.dropped()),
            Gate::Altered => Err(altered(&self.schema.name)),
        }
    }

    /// What to say to who comes for it behind its end. Whoever writes the entries of an index was planned when his
    /// table had it, which has others now.
    pub(crate) fn dropped(&self) -> Error {
        match self.schema.options.is_index {
            true => Error::new(ErrorKind::Conflict, "an index of the table was dropped meanwhile")
                .with_hint("run the statement or transaction again"),
            false => Error::no_table(&self.schema.name),
        }
    }

    /// `Corrupt` for a table that lost something: what is left is shown, but not built upon.
    pub(crate) fn check_whole(&self) -> Result<()> {
        match &self.damage {
            None => Ok(()),
            Some(damage) => {
                Err(Error::new(ErrorKind::Corrupt, format!("table \"{}\" is read-only: {damage}", self.schema().name))
                    .with_hint("copy out what is left with COPY ... TO, DROP TABLE, and load it again"))
            }
        }
    }
}

/// `Conflict`: the definition changed after a statement was planned.
pub(crate) fn altered(table: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("table \"{table}\" was altered meanwhile"))
        .with_hint("run the statement or transaction again")
}

/// All open tables by name.
#[derive(Default)]
pub struct Catalog {
    tables: RwLock<BTreeMap<String, CatalogEntry>>,
    /// The entries of indexes: nobody finds them by a name.
    indexes: RwLock<BTreeMap<TableId, Arc<TableHandle>>>,
    /// Those whose delivery fails, by name.
    stuck: RwLock<BTreeMap<String, Arc<TableHandle>>>,
    /// What the recent rows of all take.
    recent_rows: Arc<RecentBytes>,
    generation: AtomicU64,
}

/// What a name stands for: a table, by who writes it, or a view.
#[derive(Clone)]
pub enum CatalogEntry {
    /// Written here: rows by key, a log, a lake.
    Table(Arc<TableHandle>),
    /// Files that others write.
    External(Arc<ExternalTable>),
    /// A query.
    View(Arc<TableSchema>),
}

impl CatalogEntry {
    /// A table to write to or work on; as of [`Catalog::require`].
    pub fn require(self) -> Result<Arc<TableHandle>> {
        match self {
            CatalogEntry::Table(handle) => Ok(handle),
            CatalogEntry::External(external) => Err(external.read_only()),
            CatalogEntry::View(view) => Err(Error::is_view(&view.name)),
        }
    }

    /// Its definition.
    pub fn schema(&self) -> Arc<TableSchema> {
        match self {
            CatalogEntry::Table(handle) => Arc::clone(handle.schema()),
            CatalogEntry::External(external) => external.schema(),
            CatalogEntry::View(view) => Arc::clone(view),
        }
    }
}

impl Catalog {
    /// Whatever is called so.
    pub fn entry(&self, name: &str) -> Option<CatalogEntry> {
        self.tables.read().get(name).cloned()
    }

    /// A table that is written here.
    pub fn get(&self, name: &str) -> Option<Arc<TableHandle>> {
        match self.entry(name)? {
            CatalogEntry::Table(handle) => Some(handle),
            CatalogEntry::External(_) | CatalogEntry::View(_) => None,
        }
    }

    /// A table to write to or work on; `NoTable` when there is none, `ReadOnly` when others write it, `WrongObject` for
    /// a view.
    pub fn require(&self, name: &str) -> Result<Arc<TableHandle>> {
        self.entry(name).ok_or_else(|| Error::no_table(name))?.require()
    }

    /// A table that others write.
    pub fn external_table(&self, name: &str) -> Option<Arc<ExternalTable>> {
        match self.entry(name)? {
            CatalogEntry::Table(_) | CatalogEntry::View(_) => None,
            CatalogEntry::External(external) => Some(external),
        }
    }

    /// The definition of a view.
    pub fn view(&self, name: &str) -> Option<Arc<TableSchema>> {
        match self.entry(name)? {
            CatalogEntry::Table(_) | CatalogEntry::External(_) => None,
            CatalogEntry::View(view) => Some(view),
        }
    }

    /// All views, by name.
    pub fn views(&self) -> Vec<Arc<TableSchema>> {
        self.schemas().into_iter().filter(|schema| schema.is_view()).collect()
    }

    /// The definition of any table or view, or `NoTable`.
    pub fn schema(&self, name: &str) -> Result<Arc<TableSchema>> {
        self.entry(name).map(|entry| entry.schema()).ok_or_else(|| Error::no_table(name))
    }

    /// The definitions of all tables and views, by name.
    pub fn schemas(&self) -> Vec<Arc<TableSchema>> {
        self.tables.read().values().map(CatalogEntry::schema).collect()
    }

    /// Whether a name is taken: by a table, a view or an index.
    pub fn contains(&self, name: &str) -> bool {
        self.tables.read().contains_key(name) || self.is_index(name)
    }

    /// Whether an index is called so: it is in the schema of its table.
    pub fn is_index(&self, name: &str) -> bool {
        let tables = self.tables.read();
        let is_its = |entry: &CatalogEntry| match entry {
            CatalogEntry::Table(handle) => {
                let (schema, index) = full_name::split(name);
                let table = handle.schema();
                let is_beside = full_name::schema_of(&table.name) == schema;
                is_beside && table.options.rules.uniques.iter().any(|unique| unique.name == index)
            }
            CatalogEntry::External(_) | CatalogEntry::View(_) => false,
        };
        tables.values().any(is_its)
    }

    /// The table with this id, which is probably called so.
    pub(crate) fn by_id(&self, id: TableId, name: &str) -> Option<Arc<TableHandle>> {
        let is_it = |handle: &Arc<TableHandle>| handle.schema().id == id;
        self.get(name).filter(is_it).or_else(|| {
            let tables = self.tables.read();
            let mut handles = tables.values().filter_map(|entry| match entry {
                CatalogEntry::Table(handle) => Some(handle),
                CatalogEntry::External(_) | CatalogEntry::View(_) => None,
            });
            handles.find(|handle| is_it(handle)).cloned()
        })
    }

    /// The entries of an index.
    pub(crate) fn index(&self, id: TableId) -> Option<Arc<TableHandle>> {
        self.indexes.read().get(&id).cloned()
    }

    /// The entries of all indexes.
    pub(crate) fn indexes(&self) -> Vec<Arc<TableHandle>> {
        self.indexes.read().values().cloned().collect()
    }

    /// The table whose constraint is kept by these entries, and the constraint.
    pub(crate) fn table_of_index(&self, id: TableId) -> Option<(Arc<TableSchema>, Unique)> {
        let tables = self.schemas().into_iter();
        tables.filter(|table| table.has_indexes()).find_map(|table| {
            let unique = table.options.rules.uniques.iter().find(|unique| unique.index == id)?.clone();
            Some((table, unique))
        })
    }

    /// The names of all tables and views, in order.
    pub fn names(&self) -> Vec<String> {
        self.tables.read().keys().cloned().collect()
    }

    /// All tables that are written here, by name, and behind them the entries of indexes.
    pub fn all(&self) -> Vec<Arc<TableHandle>> {
        let handle =
            |entry: &CatalogEntry| if let CatalogEntry::Table(handle) = entry { Some(handle.clone()) } else { None };
        let mut all: Vec<_> = self.tables.read().values().filter_map(handle).collect();
        all.extend(self.indexes());
        all
    }

    /// Whatever there is, by name, and behind it the entries of indexes.
    pub(crate) fn entries(&self) -> Vec<CatalogEntry> {
        let mut entries: Vec<CatalogEntry> = self.tables.read().values().cloned().collect();
        entries.extend(self.indexes().into_iter().map(CatalogEntry::Table));
        entries
    }

    /// All tables that others write, by name.
    pub fn external_tables(&self) -> Vec<Arc<ExternalTable>> {
        let tables = self.tables.read();
        tables
            .values()
            .filter_map(|entry| if let CatalogEntry::External(of) = entry { Some(of.clone()) } else { None })
            .collect()
    }

    /// One more each time what a name means may have changed: whoever kept a plan compares it.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn insert(&self, handle: Arc<TableHandle>) {
        let name = handle.schema().name.clone();
        match handle.schema().options.is_index {
            true => drop(self.indexes.write().insert(handle.schema().id, handle)),
            false => {
                let mut tables = self.tables.write();
                tables.insert(name, CatalogEntry::Table(handle));
                // Before anybody finds it: who does knows its foreign keys, too.
                self.changed();
                return;
            }
        }
        self.changed();
    }

    pub(crate) fn insert_external(&self, external: Arc<ExternalTable>) {
        self.tables.write().insert(external.name().to_owned(), CatalogEntry::External(external));
        self.changed();
    }

    /// True: there was none of its name.
    pub(crate) fn insert_view(&self, view: Arc<TableSchema>) -> bool {
        let before = self.tables.write().insert(view.name.clone(), CatalogEntry::View(view));
        self.changed();
        before.is_none()
    }

    pub(crate) fn remove(&self, name: &str) {
        self.tables.write().remove(name);
        self.indexes.write().retain(|_, handle| handle.schema().name != name);
        self.stuck.write().remove(name);
        self.changed();
    }

    /// Takes these names away and puts tables and views in by theirs, at one moment.
    pub(crate) fn replace(&self, gone: &[String], there: Vec<CatalogEntry>) {
        {
            let mut tables = self.tables.write();
            gone.iter().for_each(|name| drop(tables.remove(name)));
            tables.extend(there.into_iter().map(|entry| (entry.schema().name.clone(), entry)));
            self.changed();
        }
        let mut stuck = self.stuck.write();
        gone.iter().for_each(|name| drop(stuck.remove(name)));
    }

    /// What was planned is to be planned anew.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Memory of undelivered rows of all tables.
    pub fn recent_bytes(&self) -> u64 {
        self.recent_rows.get()
    }

    /// The same, by whether their delivery fails. Cost: the tables of which that is so are asked, the others are not.
    pub fn recent(&self) -> UndeliveredBytes {
        let stuck_bytes = self.stuck.read().values().map(|handle| handle.table.recent_bytes()).sum();
        UndeliveredBytes { stuck_bytes, bytes: self.recent_bytes().saturating_sub(stuck_bytes) }
    }

    /// Where tables that are opened count their recent rows.
    pub(crate) fn recent_rows(&self) -> &Arc<RecentBytes> {
        &self.recent_rows
    }

    /// A delivery of a table failed, or went well.
    pub(crate) fn note_delivery(&self, handle: &Arc<TableHandle>, failed: Option<DeliveryFailure>) {
        let (tables, indexes) = (self.tables.read(), self.indexes.read());
        let name = &handle.schema().name;
        let ours = match tables.get(name) {
            Some(CatalogEntry::Table(ours)) => Some(ours),
            _ => indexes.get(&handle.schema().id),
        };
        // Not one that was dropped meanwhile, nor another of its name.
        if ours.is_some_and(|ours| Arc::ptr_eq(ours, handle)) {
            let mut stuck = self.stuck.write();
            match &failed {
                Some(_) => stuck.insert(name.clone(), Arc::clone(handle)),
                None => stuck.remove(name),
            };
        }
        *handle.stuck.lock() = failed;
    }

    /// Tables whose delivery fails, by name, and why.
    pub fn stuck(&self) -> Vec<(String, DeliveryFailure)> {
        let all = self.stuck.read();
        all.iter().filter_map(|(name, handle)| Some((name.clone(), handle.stuck()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_whose_delivery_fails_leave_room_for_the_others() {
        let room = |stuck_bytes, bytes| {
            let recent = UndeliveredBytes { stuck_bytes, bytes };
            (recent.has_room(100, true), recent.has_room(100, false))
        };
        assert_eq!(room(0, 0), (true, true));
        assert_eq!(room(49, 0), (true, true));
        assert_eq!(room(50, 0), (false, true), "one of them, or several together");
        assert_eq!(room(99, 49), (false, true), "what was there before it began to fail");
        assert_eq!(room(99, 50), (false, false));
        assert_eq!(room(10, 90), (false, false), "the others fill it up, and are delivered");
        assert_eq!(room(0, 99), (true, true));
        let pressed = |stuck_bytes, bytes| UndeliveredBytes { stuck_bytes, bytes }.is_pressed(100, false);
        assert!(!pressed(0, 50) && pressed(0, 51));
        assert!(!pressed(90, 25) && pressed(90, 26));
    }
}
