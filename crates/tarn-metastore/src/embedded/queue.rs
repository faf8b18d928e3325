//! Which commits wait, and does somebody lead them (`commit.rs`)?

use std::collections::{BTreeMap, VecDeque};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use tarn_types::{FileId, TableId, Version};

use crate::codec::BlockMetadataOffsets;
use crate::log::Payload;
use crate::{Commit, Result};

/// Commits that wait, and whether somebody leads.
#[derive(Default)]
pub(super) struct CommitQueue {
    pub pending: Mutex<PendingCommits>,
    pub is_idle: Condvar,
}

#[derive(Default)]
pub(super) struct PendingCommits {
    pub waiting: VecDeque<PendingCommit>,
    pub is_led: bool,
}

impl CommitQueue {
    /// Waits until nobody leads, and so nobody holds the store on behalf of commits.
    pub fn wait_until_idle(&self) {
        let mut pending = self.pending.lock();
        while pending.is_led {
            self.is_idle.wait(&mut pending);
        }
    }
}

/// A commit, and who wants to know.
pub(super) struct PendingCommit {
    pub table: TableId,
    pub commit: Commit,
    /// Of all that the commit has block metadata of.
    pub block_metadata: BTreeMap<FileId, Vec<(Payload, BlockMetadataOffsets)>>,
    pub answer: oneshot::Sender<Result<Version>>,
}
