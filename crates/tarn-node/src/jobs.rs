//! What can be asked of the background work of a table, and what does it answer?

use tokio::sync::oneshot;

use crate::error::Result;

/// Jobs waiting for one table.
pub const MAX_JOBS: usize = 64;

/// Background work of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Recent rows → lake files.
    Deliver,
    /// Small lake files → large ones.
    Compact,
    /// Delivered rows leave the row engine; their addresses stay.
    Evict,
    /// The row engine's memory → disk.
    Flush,
}

/// Work asked for, and where to report it.
pub struct TableJob {
    /// What is to be done.
    pub work: Work,
    /// Told once; whoever asked may have gone away.
    pub done: oneshot::Sender<Result<JobReport>>,
}

/// What a job did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobReport {
    /// Rows delivered, rewritten or evicted.
    pub rows: u64,
    /// Files written.
    pub files: u64,
    /// Lake version afterwards.
    pub version: u64,
}
