//! The metastore without a disk: for tests, simulation, and as the plainest reading of the contract.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use tarn_types::{Clock, FileId, TableId, TableSchema, Version};

use crate::state::{Checked, Record, State};
use crate::{At, Commit, CommitInfo, File, Metastore, Result, Stats, TableVersion};

/// Forgets everything when dropped.
pub struct Memory {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

impl Memory {
    /// Empty. The clock dates the creation of tables.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::new(State::new()), clock }
    }
}

fn apply(state: &mut State, record: Record) {
    state.apply(record).expect("a record that was checked against the state applies to it");
}

#[async_trait]
impl Metastore for Memory {
    async fn create_table(&self, schema: TableSchema) -> Result<Arc<TableSchema>> {
        let mut state = self.state.lock();
        let (schema, record) = state.check_create(schema, self.clock.now_ms())?;
        apply(&mut state, record);
        Ok(schema)
    }

    async fn drop_table(&self, name: &str) -> Result<Arc<TableSchema>> {
        let mut state = self.state.lock();
        let (schema, record) = state.check_drop(name)?;
        apply(&mut state, record);
        Ok(schema)
    }

    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
        Ok(self.state.lock().schemas())
    }

    async fn allocate_files(&self, n: u64) -> Result<FileId> {
        let mut state = self.state.lock();
        let first = state.next_file;
        state.next_file = FileId(first.0 + n);
        Ok(first)
    }

    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
        let mut state = self.state.lock();
        match state.check_commit(table, commit)? {
            Checked::Already(version) => Ok(version),
            Checked::New(version, record) => {
                apply(&mut state, record);
                Ok(version)
            }
        }
    }

    async fn version(&self, table: TableId) -> Result<Version> {
        Ok(self.state.lock().table(table)?.latest().version)
    }

    async fn snapshot(&self, table: TableId, at: At) -> Result<Arc<TableVersion>> {
        self.state.lock().table(table)?.snapshot(at)
    }

    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        self.state.lock().table(table)?.commits_after(after)
    }

    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        let mut state = self.state.lock();
        let Some((gone, record)) = state.check_expire(table, keep)? else { return Ok(Vec::new()) };
        apply(&mut state, record);
        Ok(gone)
    }

    async fn stats(&self) -> Result<Stats> {
        Ok(self.state.lock().stats())
    }
}

#[cfg(test)]
mod tests {
    use tarn_types::ManualClock;

    use super::*;

    crate::contract::suite!(|| (Memory::new(Arc::new(ManualClock::new(1_000))), ()));
}
