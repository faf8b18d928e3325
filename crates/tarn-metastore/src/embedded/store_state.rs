//! What does the embedded backend know without reading?

use std::sync::Arc;

use super::journal::JournalChange;
use super::places::{BlockMetadataIndex, LooseMetadata, PackFile};
use crate::codec::BlockMetadataOffsets;
use crate::log::LogFile;
use crate::state::{State, StateRecord};

/// Tables and versions, and where the metadata of their blocks is.
#[derive(Debug)]
pub(super) struct StoreState {
    pub state: State,
    pub places: BlockMetadataIndex,
}

/// Block metadata in the log that a record brings.
pub(super) struct LoggedMetadata {
    pub log: Arc<LogFile>,
    /// Of the frame.
    pub offset: u64,
    pub payload_bytes: u32,
    pub at: BlockMetadataOffsets,
}

impl StoreState {
    /// A store without tables.
    pub fn new() -> Self {
        Self { state: State::default(), places: BlockMetadataIndex::default() }
    }

    /// Answers the packs that nothing names any more.
    pub fn apply(&mut self, change: JournalChange, brought: Vec<LoggedMetadata>) -> Result<Vec<Arc<PackFile>>, String> {
        let record = match change {
            JournalChange::Record(record) => record,
            JournalChange::Packed(packed) => {
                if !brought.is_empty() {
                    return Err("details in front of a record that has none".to_owned());
                }
                return self.places.install(&packed);
            }
        };
        let mut removed = Vec::new();
        match &record {
            StateRecord::Drop { table } => removed = self.places.drop_table(*table),
            StateRecord::Expire { table, keep } => {
                if let Some(of_table) = self.state.tables.get(table) {
                    self.places.forget(*table, &of_table.gone_before(*keep));
                }
            }
            _ => {}
        }
        self.add(&record, brought)?;
        self.state.apply(record).map(|()| removed)
    }

    fn add(&mut self, record: &StateRecord, brought: Vec<LoggedMetadata>) -> Result<(), String> {
        for LoggedMetadata { log, offset, payload_bytes, at } in brought {
            let BlockMetadataOffsets { table, hour, block, n_chunks, bloom_at, columns_at, column_bytes } = at;
            let is_added = matches!(record, StateRecord::Commit { table: of, commit, .. } if *of == table
                && commit.added.iter().any(|file| file.id == block.file && file.hour == hour));
            if !is_added {
                return Err(format!("details of file {}, which is not added", block.file));
            }
            let is_checked = true.into();
            let loose =
                LooseMetadata { log, offset, payload_bytes, n_chunks, bloom_at, columns_at, column_bytes, is_checked };
            self.places.add_loose(table, hour, block, loose);
        }
        Ok(())
    }
}
