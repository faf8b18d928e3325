//! Which files are known not to be as they were written?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_types::{FileId, TableId};

/// A file that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Whose file it is.
    pub table: TableId,
    /// By the id that versions have.
    pub file: FileId,
    /// In the lake's store, or below the archive's root.
    pub path: String,
    /// What is wrong, with the path.
    pub what: String,
}

/// Files that are known not to be as they were written: reads of them fail where they are damaged, and compaction
/// leaves them alone. Shared by cloning.
#[derive(Debug, Clone, Default)]
pub struct Flaws(Arc<Mutex<BTreeMap<(TableId, FileId), Flaw>>>);

impl Flaws {
    /// Of all tables, by table and file.
    pub fn all(&self) -> Vec<Flaw> {
        self.0.lock().values().cloned().collect()
    }

    /// Of one table, by file.
    pub fn of_table(&self, table: TableId) -> Vec<Flaw> {
        self.0.lock().range((table, FileId(0))..=(table, FileId(u64::MAX))).map(|(_, flaw)| flaw.clone()).collect()
    }

    /// Of one file; `None`: nothing is known to be wrong with it.
    pub fn of(&self, table: TableId, file: FileId) -> Option<Flaw> {
        self.0.lock().get(&(table, file)).cloned()
    }

    /// Answers the flaw, if the file was not known to have any.
    pub(crate) fn add(&self, flaw: Flaw) -> Option<Flaw> {
        let before = self.0.lock().insert((flaw.table, flaw.file), flaw.clone());
        before.is_none().then_some(flaw)
    }

    pub(crate) fn keep_only(&self, flawed: &BTreeSet<(TableId, FileId)>) {
        self.0.lock().retain(|at, _| flawed.contains(at));
    }

    pub(crate) fn remove(&self, table: TableId, file: FileId) {
        self.0.lock().remove(&(table, file));
    }
}
