//! What does the open store hold, and under which locks?
//!
//! Locks: `writer` orders changes and is held over the sync; `held` is held only to look or to apply, so readers never
//! wait for the disk; `chores` is held by the one who does maintenance. They are taken in the order `chores`, `writer`,
//! `held`; the queue, `files` and `doomed` are held for a moment, and nothing is taken under them but `writer` and
//! `held` under `files`.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::places::PackFile;
use super::queue::CommitQueue;
use super::read::OpenPacks;
use super::store_state::StoreState;
use crate::log::{Log, LogFile};

/// Shared by all who call, and who leads their commits.
pub(super) struct StoreInner {
    pub dir: PathBuf,
    pub limits: Limits,
    pub held: RwLock<StoreState>,
    pub writer: Mutex<LogWriter>,
    pub queue: Arc<CommitQueue>,
    /// The first id that is reserved on disk and not given out, and the first that is not reserved.
    pub files: Mutex<Range<u64>>,
    /// Packs that are to be deleted.
    pub chores: Mutex<Vec<Arc<PackFile>>>,
    /// Packs that nothing named when the folder was opened, until the first maintenance deletes them.
    pub unnamed_packs: Mutex<Vec<PathBuf>>,
    /// Packs that are to be deleted, not yet seen by maintenance.
    pub doomed: Mutex<Vec<Arc<PackFile>>>,
    /// Packs that are read from.
    pub open: OpenPacks,
    #[cfg(test)]
    pub stop_at: Mutex<Option<(CrashPoint, u32)>>,
    /// Held for its lock.
    pub _lock: fs::File,
}

pub(super) struct LogWriter {
    pub log: Log,
    /// Logs before it, ascending, that are not deleted yet.
    pub older: Vec<Arc<LogFile>>,
    pub checkpoint_seq: u64,
    pub checkpoint_bytes: u64,
    pub stopped: Option<StopReason>,
    /// The last write failed, and is not there. The next one may work.
    pub is_failing: bool,
}

/// Why nothing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// A sync failed: what the disk has is not known, until it is looked.
    Unsynced,
    /// A thread died while it changed what is held: only opening the store anew makes memory and disk one.
    Died,
}

/// When there is something to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The log is folded into a checkpoint once its records have outgrown the former checkpoint and this many bytes; or
    /// it as a whole, which opening reads, four times that and this many.
    pub log_bytes: u64,
    pub block_metadata_bytes: u64,
    /// How many times that size the log may have when nobody calls `maintain`.
    pub patience: u64,
    /// So many loose blocks of an hour become a pack, or so many bytes.
    pub loose_blocks: usize,
    pub loose_bytes: u64,
    /// So many packs of an hour become one.
    pub merged_packs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            log_bytes: 4 << 20,
            block_metadata_bytes: 16 << 20,
            patience: 8,
            loose_blocks: 64,
            loose_bytes: 16 << 20,
            merged_packs: 32,
        }
    }
}

/// Places where a test ends the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CrashPoint {
    Planned,
    PackWritten,
    PacksNamed,
    PackDeleted,
    LogPrepared,
    LogTurned,
    CheckpointWritten,
    OldDeleted,
}
