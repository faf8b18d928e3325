//! Which tables and sequences has a session to itself?
//!
//! By name, all of them at one moment: what a transaction or a savepoint goes back to is the map that was there then.
//! Tables that are in no map any more are gone, with their rows. With them is what a transaction sees otherwise than
//! others do (`altered.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tarn_node::catalog::TableHandle;
use tarn_node::node::Node;
use tarn_node::sequences::Sequence;
use tarn_types::{TableId, TableSchema};

use crate::altered::AlteredTables;
use crate::error::{Result, SqlError, state};
use crate::names::OWN_SCHEMA;

/// Tables and sequences of one session; a client may forget to drop them.
const MAX_OWN: usize = 1_000;

/// The same, as the catalog shows it to session `pid`.
pub(crate) fn own_schema(pid: i32) -> String {
    format!("{OWN_SCHEMA}_{pid}")
}

/// What becomes of a table when a transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCommit {
    /// Nothing.
    Keep,
    /// It is empty.
    DeleteRows,
    /// It is dropped.
    Drop,
}

/// One table.
#[derive(Clone)]
pub(crate) struct OwnTable {
    /// How it is read and written.
    pub handle: Arc<TableHandle>,
    /// What becomes of it when a transaction commits.
    pub on_commit: OnCommit,
}

/// What a session has at some moment.
#[derive(Clone, Default)]
pub struct TemporaryObjects {
    tables: BTreeMap<String, OwnTable>,
    /// Their numbers are given once, whatever is undone.
    sequences: BTreeMap<String, Arc<Mutex<Sequence>>>,
    /// Tables of everybody's that the transaction altered.
    pub(crate) altered: AlteredTables,
}

/// What a session has now.
#[derive(Default)]
pub(crate) struct Temporary {
    /// Held for moments.
    now: Mutex<Arc<TemporaryObjects>>,
    /// Moves with it: plans that were made before are made anew.
    generation: AtomicU64,
}

/// The schema that its tables are in, as the catalog shows it.
#[derive(Clone)]
pub(crate) struct OwnSchema {
    /// `pg_temp_` and the session's number.
    pub name: String,
    /// Has the tables.
    pub temporary: Arc<Temporary>,
}

impl TemporaryObjects {
    /// Whether the rows that a transaction wrote into a table are there when it has committed.
    pub fn keeps(&self, table: TableId) -> bool {
        self.tables.values().any(|own| own.handle.schema().id == table && own.on_commit == OnCommit::Keep)
    }

    /// In the order of their names.
    pub fn sequences(&self) -> impl Iterator<Item = (&String, &Arc<Mutex<Sequence>>)> {
        self.sequences.iter()
    }

    /// With the views that read it.
    fn drop_table(&mut self, name: &str) {
        let readers = self.tables.values().filter(|own| reads_own(own.handle.schema(), name));
        let readers: Vec<String> = readers.map(|own| own.handle.schema().name.clone()).collect();
        self.tables.remove(name);
        readers.iter().for_each(|view| self.drop_table(view));
        let is_its =
            |sequence: &Mutex<Sequence>| sequence.lock().owner.as_ref().is_some_and(|owner| owner.table == name);
        self.sequences.retain(|_, sequence| !is_its(sequence));
    }
}

/// What the definition of a view calls a table, or view, of the session's own.
pub(crate) fn read_as(name: &str) -> String {
    format!("{OWN_SCHEMA}.{name}")
}

/// Whether it is a view that reads a table of the session's own.
fn reads_own(view: &TableSchema, name: &str) -> bool {
    view.options.view.as_ref().is_some_and(|view| view.reads.contains_key(&read_as(name)))
}

impl Temporary {
    /// What the session has at this moment; later changes are not seen in it.
    pub fn now(&self) -> Arc<TemporaryObjects> {
        Arc::clone(&self.now.lock())
    }

    /// One more with every change: whoever kept a plan compares it.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// As it was.
    pub fn restore(&self, own: Arc<TemporaryObjects>) {
        let mut now = self.now.lock();
        if !Arc::ptr_eq(&now, &own) {
            *now = own;
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Changes what there is; what a transaction goes back to stays.
    pub fn change<T>(&self, change: impl FnOnce(&mut TemporaryObjects) -> T) -> T {
        let mut now = self.now.lock();
        // What a transaction goes back to stays.
        let changed = change(Arc::make_mut(&mut now));
        self.generation.fetch_add(1, Ordering::AcqRel);
        changed
    }

    /// Tables or views; sequences are not counted.
    pub fn has_tables(&self) -> bool {
        !self.now.lock().tables.is_empty()
    }

    /// By name, without a schema.
    pub fn table(&self, name: &str) -> Option<Arc<TableHandle>> {
        self.now.lock().tables.get(name).map(|own| Arc::clone(&own.handle))
    }

    /// By name, without a schema.
    pub fn sequence(&self, name: &str) -> Option<Arc<Mutex<Sequence>>> {
        self.now.lock().sequences.get(name).cloned()
    }

    /// The definitions of its tables, by name.
    pub fn schemas(&self) -> Vec<Arc<TableSchema>> {
        self.now.lock().tables.values().map(|own| Arc::clone(own.handle.schema())).collect()
    }

    /// The session's own views that read one of these: tables and views of everybody's by their ids, its own by their
    /// names. In no order.
    pub fn readers(&self, ids: &[TableId], own: &[String]) -> Vec<Arc<TableSchema>> {
        let mut found: Vec<Arc<TableSchema>> = vec![];
        let views: Vec<Arc<TableSchema>> = self.schemas().into_iter().filter(|schema| schema.is_view()).collect();
        loop {
            let n_before = found.len();
            for view in &views {
                let reads_found = found.iter().any(|other| reads_own(view, &other.name));
                let reads = view.options.view.iter().flat_map(|view| view.reads.values()).any(|id| ids.contains(id));
                let is_one = reads || reads_found || own.iter().any(|name| reads_own(view, name));
                if is_one && !own.contains(&view.name) && !found.iter().any(|other| other.name == view.name) {
                    found.push(Arc::clone(view));
                }
            }
            if found.len() == n_before {
                return found;
            }
        }
    }

    /// A table that is new, and the sequences of its columns.
    ///
    /// Errors: `54000` for more than a session may have.
    pub fn insert(&self, table: OwnTable, sequences: Vec<(String, Sequence)>) -> Result<()> {
        let n_own = {
            let now = self.now.lock();
            now.tables.len() + now.sequences.len()
        };
        if n_own + sequences.len() >= MAX_OWN {
            let message = format!("this session has {n_own} temporary tables and sequences, the limit is {MAX_OWN}");
            return Err(SqlError::new(state::PROGRAM_LIMIT, message)
                .with_hint("DROP TABLE those that are not needed, or DISCARD TEMP"));
        }
        self.change(|own| {
            own.tables.insert(table.handle.schema().name.clone(), table);
            own.sequences.extend(sequences.into_iter().map(|(name, of)| (name, Arc::new(Mutex::new(of)))));
        });
        Ok(())
    }

    /// Drops a table with the sequences of its columns, if it is there.
    pub fn drop_table(&self, name: &str) {
        self.change(|own| own.drop_table(name));
    }

    /// Drops all.
    pub fn clear(&self) {
        let altered = self.now().altered.clone();
        self.restore(Arc::new(TemporaryObjects { altered, ..TemporaryObjects::default() }));
    }

    /// Puts an empty table of the same definition in the place of one.
    pub fn truncate(&self, node: &Node, name: &str) -> Result<()> {
        let Some(table) = self.table(name) else { return Ok(()) };
        let handle = node.temporary_table(table.schema().as_ref().clone())?;
        self.change(|own| own.tables.get_mut(name).map(|own| own.handle = handle));
        Ok(())
    }

    /// Begins the sequences of a table's columns anew.
    pub fn restart_of_table(&self, name: &str) {
        for sequence in self.now.lock().sequences.values() {
            let mut sequence = sequence.lock();
            if sequence.owner.as_ref().is_some_and(|owner| owner.table == name) {
                (sequence.last, sequence.is_called) = (sequence.start, false);
            }
        }
    }

    /// What `ON COMMIT` says of its tables, behind a transaction that committed.
    pub fn commit(&self, node: &Node) -> Result<()> {
        let concerned = |own: &(&String, &OwnTable)| match own.1.on_commit {
            OnCommit::Keep => false,
            OnCommit::Drop => true,
            OnCommit::DeleteRows => own.1.handle.has_recent_rows(),
        };
        let now = self.now();
        for (name, own) in now.tables.iter().filter(|(_, own)| !own.handle.schema().is_view()).filter(concerned) {
            match own.on_commit {
                OnCommit::Drop => self.drop_table(name),
                _ => self.truncate(node, name)?,
            }
        }
        Ok(())
    }
}
