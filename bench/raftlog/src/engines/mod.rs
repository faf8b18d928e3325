//! What must a log store do to take part?
//!
//! - [`tarn`]: our log.
//! - [`raft_engine`]: TiKV's log engine.
//! - [`rocksdb`]: RocksDB as TiKV's raftdb.
//!
//! Badger takes part through a Go program that runs the same jobs.

pub mod raft_engine;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod tarn;

use std::ops::Range;

use anyhow::{Result, bail};
use bytes::Bytes;

use raft_engine::Variant;
use tarn_raftlog::Compression;

use crate::job::{EngineName, Job};

/// Every entry has this term.
pub const TERM: u64 = 5;

/// One entry to append, and entries of its group that end with it.
#[derive(Debug, Clone)]
pub struct Append {
    pub group: u64,
    pub index: u64,
    pub payload: Bytes,
    /// Entries to truncate in the same commit: from the first that lives, end excluded.
    pub truncate: Option<Range<u64>>,
}

/// A log store under measurement. All calls come from many threads; no group has two writers.
pub trait Engine: Send + Sync {
    /// Appends in one atomic batch. Durable on return if the job says `sync`.
    fn commit(&self, appends: &[Append]) -> Result<()>;
    /// As `commit`, but durable only after [`Engine::flush`].
    fn load(&self, appends: &[Append]) -> Result<()>;
    /// Makes everything durable.
    fn flush(&self) -> Result<()>;
    /// Index of the group's last entry, 0 if there is none.
    fn last_index(&self, group: u64) -> Result<u64>;
    /// The term of an entry.
    fn term(&self, group: u64, index: u64) -> Result<u64>;
    /// Bytes of the entries in `range`, which is the whole log of the group.
    fn log_bytes(&self, group: u64, range: Range<u64>) -> Result<u64>;
    /// Payloads of `range`, in order.
    fn read(&self, group: u64, range: Range<u64>) -> Result<Vec<Bytes>>;
    /// What the host is asked to call now and then, for space.
    fn maintain(&self) -> Result<()>;
    /// Flushes to the device so far, where the engine says it.
    fn syncs(&self) -> Option<u64>;
}

/// An open engine, and what opening it said about lost entries, if it said anything.
pub struct OpenedEngine {
    pub engine: Box<dyn Engine>,
    pub reported: Option<String>,
}

/// Opens the job's engine in the job's folder.
pub fn open(job: &Job) -> Result<OpenedEngine> {
    std::fs::create_dir_all(&job.dir)?;
    match job.engine {
        EngineName::Tarn => tarn::open(job, Compression::None),
        EngineName::TarnLz4 => tarn::open(job, Compression::Lz4),
        EngineName::RaftEngine => raft_engine::open(job, Variant::AsTikv),
        EngineName::RaftEnginePrefilled => raft_engine::open(job, Variant::Prefilled),
        EngineName::RaftEnginePlain => raft_engine::open(job, Variant::Plain),
        #[cfg(feature = "rocksdb")]
        EngineName::Rocksdb => rocksdb::open(job),
        #[cfg(not(feature = "rocksdb"))]
        EngineName::Rocksdb => bail!("built without RocksDB"),
        EngineName::Badger => bail!("badger runs in its own program"),
    }
}
