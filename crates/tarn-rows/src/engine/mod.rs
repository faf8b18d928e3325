//! Here is a key: give me the row. The seam to whatever keeps bytes in key order.
//!
//! An engine has three spaces of ordered keys. It has no log of its own: what was written is lost in a crash unless a
//! [`Engine::flush`] or [`Engine::ingest`] came after it. A flush is one consistent cut over all spaces, so the applied
//! seqno written in a batch always tells the truth about the rows beside it. An engine may flush by itself at any time,
//! also as one cut.

mod memory;
mod rocks;
mod watch;

use std::any::Any;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tarn_types::Direction;

use crate::error::Result;

pub use memory::MemoryEngine;
pub use rocks::{RocksEngine, RocksOptions};
pub use watch::{EngineFault, Remedy};

/// Which keys?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Engine key → stored row (live or tombstone).
    Rows,
    /// Engine key → address in the lake; one marker per table. Changed by [`Engine::ingest`] alone, except when a table
    /// is dropped.
    Addresses,
    /// Applied seqnos and flags.
    Meta,
}

impl Space {
    /// All of them; a space is the index of its place here.
    pub const ALL: [Space; 3] = [Space::Rows, Space::Addresses, Space::Meta];

    /// Its name on disk.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Addresses => "addresses",
            Self::Meta => "meta",
        }
    }
}

/// Ordered bytes with snapshots.
pub trait Engine: Send + Sync {
    /// Writes all of the batch or nothing, visible when it returns, durable after the next flush. The last write of a
    /// key wins.
    fn write(&self, batch: &WriteBatch) -> Result<()>;

    /// The newest value of a key.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// The newest values of keys, in their order. Cheapest when the keys ascend. Not one cut: a concurrent write may be
    /// seen in part.
    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>>;

    /// A view of everything written so far. Cheap; holds back the reclaiming of old values while it lives.
    fn snapshot(&self) -> Arc<dyn EngineSnapshot>;

    /// Writes entries beside the store, for [`Engine::ingest`]. Keys ascend strictly; None deletes.
    fn stage<'a>(
        &self,
        space: Space,
        entries: &mut dyn Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<StagedFile>;

    /// Takes staged files in, all or nothing, over what was written before; visible and durable when it returns,
    /// whatever else is not. The files are all of one space.
    fn ingest(&self, files: Vec<StagedFile>) -> Result<()>;

    /// Makes everything durable that was written before the call.
    fn flush(&self) -> Result<()>;

    /// Deletes a half-open range of keys; durable after the next flush.
    fn delete_range(&self, space: Space, range: Range<&[u8]>) -> Result<()>;

    /// About how many bytes of files a half-open range of keys takes. What was not flushed does not count; what was
    /// overwritten may.
    fn range_bytes(&self, space: Space, range: Range<&[u8]>) -> Result<u64>;

    /// A copy of the store at this moment (flushed), made of links where it can, in a folder that must not exist.
    fn checkpoint(&self, dir: &Path) -> Result<()>;

    /// What it holds and takes.
    fn stats(&self) -> Result<EngineStats>;
}

/// A view of an engine that later writes do not change.
pub trait EngineSnapshot: Send + Sync {
    /// The value of a key.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// The values of keys, in their order. Cheapest when the keys ascend.
    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>>;

    /// The entries of a half-open range.
    fn scan_in(&self, space: Space, range: Range<Vec<u8>>, direction: Direction) -> Box<dyn RowIter + '_>;

    /// The entries of a half-open range, ascending.
    fn scan(&self, space: Space, range: Range<Vec<u8>>) -> Box<dyn RowIter + '_> {
        self.scan_in(space, range, Direction::Ascending)
    }
}

/// A lending iterator: an entry lives until it advances, so that nothing is copied on the way.
pub trait RowIter: Send {
    /// Goes on to the next entry, at first to the first one. At the end it stays there.
    fn advance(&mut self) -> Result<()>;

    /// The entry it stands on: None before it first advanced, and at the end.
    fn entry(&self) -> Option<(&[u8], &[u8])>;

    /// The next entry, None at the end.
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.advance()?;
        Ok(self.entry())
    }
}

/// What an engine holds and takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Estimated live keys: rows, addresses, meta.
    pub n_keys: [u64; 3],
    /// Bytes in files, all spaces.
    pub disk_bytes: u64,
    /// Bytes in memory that a flush would write.
    pub memtable_bytes: u64,
    /// Bytes of cached blocks.
    pub cache_bytes: u64,
    /// Bytes waiting for compaction.
    pub compaction_pending_bytes: u64,
    /// Writes that waited because memtables were not flushed as fast as they were filled, since the engine was opened.
    pub n_memtable_waits: u64,
    /// How often the engine began to slow writes down since then: too much waits for a compaction.
    pub n_slowdowns: u64,
    /// How often it stopped them, for the same reason.
    pub n_stops: u64,
    /// Writes are stopped now.
    pub is_stopped: bool,
    /// What they are slowed down to now; 0: they are not.
    pub slowed_to_bytes_per_s: u64,
}

/// Writes that happen together.
#[derive(Default)]
pub struct WriteBatch {
    arena: Vec<u8>,
    ops: Vec<BatchOp>,
}

struct BatchOp {
    space: Space,
    start: usize,
    key_len: usize,
    /// None deletes.
    value_len: Option<usize>,
}

impl WriteBatch {
    /// An empty batch with room.
    #[must_use]
    pub fn with_capacity(n_ops: usize, n_bytes: usize) -> Self {
        Self { arena: Vec::with_capacity(n_bytes), ops: Vec::with_capacity(n_ops) }
    }

    /// Sets a key.
    pub fn put(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.put_with(space, key, |arena| arena.extend_from_slice(value));
    }

    /// Sets a key to what `write` appends.
    pub fn put_with(&mut self, space: Space, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let value_start = self.arena.len();
        write(&mut self.arena);
        let value_len = Some(self.arena.len() - value_start);
        self.ops.push(BatchOp { space, start, key_len: key.len(), value_len });
    }

    /// Deletes a key.
    pub fn delete(&mut self, space: Space, key: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        self.ops.push(BatchOp { space, start, key_len: key.len(), value_len: None });
    }

    /// The writes in order: None deletes.
    pub fn iter(&self) -> impl Iterator<Item = (Space, &[u8], Option<&[u8]>)> {
        self.ops.iter().map(|op| {
            let (key, rest) = self.arena[op.start..].split_at(op.key_len);
            (op.space, key, op.value_len.map(|len| &rest[..len]))
        })
    }

    /// How many writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Is there nothing to write?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The bytes of keys and values.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.arena.len()
    }
}

/// A file that waits for [`Engine::ingest`]; dropping it removes it.
pub struct StagedFile {
    space: Space,
    n_entries: u64,
    payload: Box<dyn Any + Send + Sync>,
}

impl StagedFile {
    /// How many keys it sets or deletes.
    #[must_use]
    pub fn n_entries(&self) -> u64 {
        self.n_entries
    }
}
