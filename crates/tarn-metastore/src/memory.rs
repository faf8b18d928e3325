//! The metastore without a disk: for tests, simulation, and as the plainest reading of the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use tarn_types::{Clock, FileId, TableId, TableSchema, Version};

use crate::check::CommitCheck;
use crate::state::{State, StateRecord};
use crate::{
    BlockMetadata, BlockMetadataRequest, BlockRef, Commit, CommitInfo, Definition, File, MaintenanceReport,
    MetadataByColumn, Metastore, Probe, ProbeResult, Result, Stats, TableVersion, VersionSelector, block_metadata,
    codec, probe,
};

/// Forgets everything when dropped.
pub struct Memory {
    held: Mutex<MemoryState>,
    clock: Arc<dyn Clock>,
}

struct MemoryState {
    state: State,
    /// Of files of kept versions.
    block_metadata: BTreeMap<TableId, BTreeMap<FileId, FileMetadata>>,
}

/// What is kept of the blocks of one file.
struct FileMetadata {
    hour: i64,
    /// Ascending by row group.
    blocks: Vec<BlockMetadata>,
}

impl Memory {
    /// Empty. The clock dates the creation of tables.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { held: Mutex::new(MemoryState { state: State::default(), block_metadata: BTreeMap::new() }), clock }
    }
}

impl MemoryState {
    fn apply(&mut self, record: StateRecord) {
        match &record {
            StateRecord::Drop { table } => drop(self.block_metadata.remove(table)),
            StateRecord::Expire { table, keep } => {
                let gone = self.state.table(*table).expect("it was checked").gone_before(*keep);
                let block_metadata = self.block_metadata.entry(*table).or_default();
                gone.iter().for_each(|file| drop(block_metadata.remove(&file.id)));
            }
            _ => {}
        }
        self.state.apply(record).expect("a record that was checked against the state applies to it");
    }

    fn block(&self, table: TableId, hour: i64, block: BlockRef) -> Option<&BlockMetadata> {
        let of_file = self.block_metadata.get(&table)?.get(&block.file).filter(|of_file| of_file.hour == hour)?;
        let idx = of_file.blocks.binary_search_by_key(&block.row_group, |of_block| of_block.row_group).ok()?;
        Some(&of_file.blocks[idx])
    }

    fn stats(&self) -> Stats {
        let blocks =
            || self.block_metadata.values().flat_map(|files| files.values()).flat_map(|of_file| &of_file.blocks);
        let blooms = blocks().filter_map(|block| block.bloom.as_ref());
        Stats {
            bloom_bytes: blooms.map(|bloom| bloom.bits().len() as u64).sum(),
            column_bytes: blocks().flat_map(|block| &block.columns).map(codec::column_bytes).sum(),
            loose_blocks: blocks().count() as u64,
            ..self.state.stats()
        }
    }
}

#[async_trait]
impl Metastore for Memory {
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
        Ok(self.held.lock().state.schemas())
    }

    async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
        let mut held = self.held.lock();
        let (schema, record) = held.state.check_definition(definition, self.clock.now_ms())?;
        record.into_iter().for_each(|record| held.apply(record));
        Ok(schema)
    }

    async fn allocate_files(&self, n: u64) -> Result<FileId> {
        let mut held = self.held.lock();
        let first = held.state.next_file;
        held.state.next_file = FileId(first.0 + n);
        Ok(first)
    }

    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
        let mut held = self.held.lock();
        match held.state.check_commit(table, commit)? {
            CommitCheck::Already(version) => Ok(version),
            CommitCheck::New { next, info, block_metadata } => {
                let version = info.version;
                for (id, blocks) in block_metadata {
                    let file = info.added.iter().find(|file| file.id == id).expect("details are of added files");
                    let of_file = FileMetadata { hour: file.hour, blocks };
                    held.block_metadata.entry(table).or_default().insert(id, of_file);
                }
                held.apply(StateRecord::Commit { table, commit: info, next: Some(next) });
                Ok(version)
            }
        }
    }

    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        self.held.lock().state.table(table)?.commits_after(after)
    }

    async fn snapshot(&self, table: TableId, at: VersionSelector) -> Result<Arc<TableVersion>> {
        self.held.lock().state.table(table)?.snapshot(at)
    }

    async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult> {
        let held = self.held.lock();
        held.state.table(table)?;
        Ok(probe::answer(&probe, |hour, block| held.block(table, hour, block)?.bloom.as_ref()))
    }

    async fn block_metadata(&self, table: TableId, wanted: BlockMetadataRequest) -> Result<MetadataByColumn> {
        let held = self.held.lock();
        held.state.table(table)?;
        Ok(block_metadata::collect(&wanted, |hour, block| held.block(table, hour, block), codec::column_bytes))
    }

    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        let mut held = self.held.lock();
        let Some((gone, record)) = held.state.check_expire(table, keep)? else { return Ok(Vec::new()) };
        held.apply(record);
        Ok(gone)
    }

    async fn maintain(&self, _budget_bytes: u64) -> Result<MaintenanceReport> {
        Ok(MaintenanceReport { stats: self.held.lock().stats(), ..MaintenanceReport::default() })
    }
}

#[cfg(test)]
mod tests {
    use tarn_types::ManualClock;

    use super::*;

    fn memory() -> (Memory, ()) {
        (Memory::new(Arc::new(ManualClock::new(1_000))), ())
    }

    crate::contract::suite!(memory);
    crate::contract::suite!(memory; a_probe_equals_sbbf);
}
