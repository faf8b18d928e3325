//! The metastore without a disk: for tests, simulation, and as the plainest reading of the contract.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use tarn_types::{Clock, FileId, TableId, TableSchema, Version};

use crate::check::Checked;
use crate::state::{Record, State};
use crate::{
    At, Commit, CommitInfo, Definition, Details, File, Metastore, Probe, Probed, Result, TableVersion, Upkeep, Wanted,
};

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
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
        Ok(self.state.lock().schemas())
    }

    async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
        let mut state = self.state.lock();
        let (schema, record) = state.check_definition(definition, self.clock.now_ms())?;
        record.into_iter().for_each(|record| apply(&mut state, record));
        Ok(schema)
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
            Checked::New { next, info, details } => {
                let version = info.version;
                apply(&mut state, Record::Commit { table, commit: info, details, next: Some(next) });
                Ok(version)
            }
        }
    }

    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        self.state.lock().table(table)?.commits_after(after)
    }

    async fn snapshot(&self, table: TableId, at: At) -> Result<Arc<TableVersion>> {
        self.state.lock().table(table)?.snapshot(at)
    }

    async fn probe(&self, table: TableId, probe: Probe) -> Result<Probed> {
        Ok(self.state.lock().table(table)?.probe(&probe))
    }

    async fn details(&self, table: TableId, wanted: Wanted) -> Result<Details> {
        Ok(self.state.lock().table(table)?.details(&wanted))
    }

    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        let mut state = self.state.lock();
        let Some((gone, record)) = state.check_expire(table, keep)? else { return Ok(Vec::new()) };
        apply(&mut state, record);
        Ok(gone)
    }

    async fn upkeep(&self, _budget_bytes: u64) -> Result<Upkeep> {
        Ok(Upkeep { stats: self.state.lock().stats(), ..Upkeep::default() })
    }
}

#[cfg(test)]
mod tests {
    use tarn_types::ManualClock;

    use super::*;

    crate::contract::suite!(|| (Memory::new(Arc::new(ManualClock::new(1_000))), ()));
}
