//! What does an open log hold, and under which locks?
//!
//! Locks, in the order they are taken: `collecting`, `writing`, `making`, tables of groups, groups (ascending), the
//! lane, then leaves (cache, buffers, calls).

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use crate::buffer::Buffers;
use crate::cache::Cache;
use crate::calls::CallbackQueue;
use crate::disk::Disk;
use crate::head::FormatFile;
use crate::lane::Lane;
use crate::options::Options;
use crate::segment::{Ident, Preparation};
use crate::shards::Shards;

/// An open log.
pub(crate) struct OpenLog {
    pub disk: Arc<dyn Disk>,
    pub options: Options,
    pub ident: Ident,
    pub head: FormatFile,
    pub groups: Shards,
    pub lane: Mutex<Lane>,
    /// Held by who writes a frame, where frames are not flushed.
    pub writing: Mutex<()>,
    /// Everything up to here is durable.
    pub durable_lsn: AtomicU64,
    pub cache: Cache,
    pub buffers: Buffers,
    /// Callers to be told that their batches are durable.
    pub calls: CallbackQueue,
    pub making: Mutex<SegmentPreparation>,
    /// One collector at a time, and none beside who closes the log.
    pub collecting: Mutex<()>,
    /// What is counted without the lane's lock.
    pub tally: Tally,
    pub _lock: Box<dyn Any + Send + Sync>,
}

/// Counters that are counted outside the lane.
#[derive(Default)]
pub(crate) struct Tally {
    /// Frames, their padding, and seals.
    pub written_bytes: AtomicU64,
    /// Zeros, ahead of frames.
    pub filled_bytes: AtomicU64,
    /// Space reserved for files that are being made.
    pub preparing_bytes: AtomicU64,
    /// Payloads that the collector copied.
    pub rewritten_bytes: AtomicU64,
    pub cache_hits: AtomicU64,
    pub cache_misses: AtomicU64,
    pub recovery_ns: AtomicU64,
}

/// What is being made. Its lock is taken before the lane's.
#[derive(Default)]
pub struct SegmentPreparation {
    /// A new file that is filled step by step.
    pub preparation: Option<Preparation>,
    /// Names given to files so far.
    pub next_slot: u64,
    /// The last attempt failed: not tried again before something was freed, unless a batch needs it.
    pub failed: bool,
}

impl SegmentPreparation {
    /// Nothing is under way; `next_slot` is above all names in the folder.
    pub fn new(next_slot: u64) -> SegmentPreparation {
        SegmentPreparation { next_slot, ..SegmentPreparation::default() }
    }
}
