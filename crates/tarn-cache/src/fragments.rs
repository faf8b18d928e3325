//! What did a leaf of a plan give the last time? Bytes that the query room made, under keys that only it can read.
//!
//! A key holds everything that could make its value stale, so a lookup gives what the same work would give again, or nothing. Keys are
//! found by a hash and compared whole. Values are immutable: who puts a key a second time puts the same bytes.
//!
//! One lock guards memory, what is refused and the counters. It is never held across an await or IO.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::s3fifo::S3Fifo;
use crate::shelf::Slot;
use crate::ttl::{Ttl, now_ms, oldest_ms};
use crate::{Error, Result};

/// Memory of a fragment besides its key and value.
const ENTRY_BYTES: u64 = 256;
/// Keys that are remembered as not worth it.
const MAX_REFUSED: u64 = 16_384;

/// What a fragment is the answer to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// What is cleared together: a table.
    pub scope: Arc<str>,
    /// The whole question in one canonical form: compared, not only hashed.
    pub bytes: Bytes,
}

impl FragmentKey {
    fn slot(&self) -> Slot {
        let mut hash = Xxh3::new();
        for field in [self.scope.as_bytes(), &self.bytes] {
            hash.update(&(field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        Slot { group: group(&self.scope), item: hash.digest128() }
    }
}

fn group(scope: &str) -> u128 {
    xxh3_128(scope.as_bytes())
}

/// Sizes and places of a fragment cache.
#[derive(Debug, Clone)]
pub struct FragmentOptions {
    /// Memory for fragments, keys included. Default 64 MiB.
    pub ram_bytes: u64,
    /// Where fragments are kept on disk; `None`: nowhere. Default `None`.
    pub folder: Option<PathBuf>,
    /// Room on disk, whole file-system blocks counted. Default 2 GiB.
    pub disk_bytes: u64,
    /// Memory for fragments that wait to be written; more are not written. Default 32 MiB.
    pub waiting_bytes: u64,
    /// Where files are read and written: needed with a folder. Default `None`.
    pub runtime: Option<Handle>,
    /// How old a fragment may be. Default `None`: any age.
    pub ttl: Option<Ttl>,
}

impl Default for FragmentOptions {
    fn default() -> Self {
        FragmentOptions {
            ram_bytes: 64 << 20,
            folder: None,
            disk_bytes: 2 << 30,
            waiting_bytes: 32 << 20,
            runtime: None,
            ttl: None,
        }
    }
}

/// Counters since the cache was opened. Fragments unless the name says bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentStats {
    /// Found in memory.
    pub ram_hits: u64,
    /// Found on disk.
    pub disk_hits: u64,
    /// Found nowhere.
    pub misses: u64,
    /// Bytes found in memory.
    pub ram_bytes: u64,
    /// Bytes found on disk.
    pub disk_bytes: u64,
    /// Taken in: put, and not there before.
    pub kept: u64,
    /// Said to be not worth it.
    pub refused: u64,
    /// Left memory to make room.
    pub ram_evicted: u64,
    /// Left the disk to make room.
    pub disk_evicted: u64,
    /// Bytes that left the disk to make room.
    pub disk_evicted_bytes: u64,
    /// Too old when they were looked for: each was a miss.
    pub expired: u64,
    /// Written to disk.
    pub written: u64,
    /// Not written to disk, because too much was waiting to be.
    pub dropped: u64,
    /// Not written to disk, because writing has stopped.
    pub not_written: u64,
    /// Files that were not what was written, or gone: each was a miss.
    pub damaged: u64,
    /// Writes that failed. The first one stops writing.
    pub write_failures: u64,
}

/// What the fragment cache holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FragmentsHeld {
    /// Fragments in memory.
    pub ram_fragments: u64,
    /// Their memory, keys included.
    pub ram_bytes: u64,
    /// Fragments on disk.
    pub disk_fragments: u64,
    /// What their files take.
    pub disk_bytes: u64,
    /// Bytes that wait to be written.
    pub waiting_bytes: u64,
    /// Keys remembered as not worth it.
    pub refused_keys: u64,
    /// Why nothing is written to disk any more.
    pub stopped: Option<String>,
}

/// What [`FragmentCache::clear`] dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentsCleared {
    /// Fragments that left memory.
    pub ram_fragments: u64,
    /// Fragments that left the disk.
    pub disk_fragments: u64,
}

/// Fragments in memory and on disk, shared by cloning.
#[derive(Clone)]
pub struct FragmentCache(Arc<Inner>);

struct Inner {
    options: FragmentOptions,
    on: AtomicBool,
    state: Mutex<State>,
}

struct State {
    ram: S3Fifo<Slot, Kept>,
    refused: S3Fifo<Slot, ()>,
    stats: FragmentStats,
}

#[derive(Debug, Clone)]
struct Kept {
    key: FragmentKey,
    value: Bytes,
    written_ms: i64,
}

impl fmt::Debug for FragmentCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FragmentCache").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl FragmentCache {
    /// Opens the cache. With a folder, fragments that an earlier process left there are taken over.
    ///
    /// Cost: with a folder, lists it: call it from a thread that may block.
    /// Errors: [`Error::Folder`] when the folder cannot be used, another process uses it, or there is no runtime for its files.
    pub fn open(options: FragmentOptions) -> Result<FragmentCache> {
        if let Some(folder) = &options.folder {
            let source = std::io::ErrorKind::Unsupported.into();
            return Err(Error::Folder { folder: folder.clone(), source });
        }
        let state = State {
            ram: S3Fifo::new(options.ram_bytes),
            refused: S3Fifo::new(MAX_REFUSED),
            stats: FragmentStats::default(),
        };
        Ok(FragmentCache(Arc::new(Inner { on: AtomicBool::new(true), state: Mutex::new(state), options })))
    }

    /// Its sizes.
    pub fn options(&self) -> &FragmentOptions {
        &self.0.options
    }

    /// The value of `key`, if it is near. Off, nothing is.
    ///
    /// Cost: a lock and no copy from memory; from disk one file on a blocking thread.
    pub async fn get(&self, key: &FragmentKey) -> Option<Bytes> {
        if !self.is_on() {
            return None;
        }
        let slot = key.slot();
        let mut state = self.0.state.lock();
        if let Some(value) = state.in_memory(slot, key, oldest_ms(&self.0.options.ttl)) {
            state.stats.ram_hits += 1;
            state.stats.ram_bytes += value.len() as u64;
            return Some(value);
        }
        state.stats.misses += 1;
        None
    }

    /// Keeps `value`, which should own its memory: a slice keeps the whole it is of. Returns at once; it is in the folder some time later.
    /// What is there already stays; what is larger than all the room there is, is not kept.
    pub fn put(&self, key: FragmentKey, value: Bytes) {
        if !self.is_on() {
            return;
        }
        let slot = key.slot();
        let kept = Kept { key, value, written_ms: now_ms(&self.0.options.ttl) };
        let mut state = self.0.state.lock();
        if state.in_memory(slot, &kept.key, oldest_ms(&self.0.options.ttl)).is_none() && state.keep(slot, kept) {
            state.stats.kept += 1;
        }
    }

    /// Remembers that the value of `key` is too large, or not worth it. The oldest of many are forgotten.
    pub fn refuse(&self, key: &FragmentKey) {
        let mut state = self.0.state.lock();
        state.stats.refused += 1;
        state.refused.insert(key.slot(), (), 1, &mut vec![]);
    }

    /// Whether [`FragmentCache::refuse`] was told so, and it is not forgotten.
    pub fn is_refused(&self, key: &FragmentKey) -> bool {
        self.0.state.lock().refused.get(&key.slot()).is_some()
    }

    /// Drops the fragments of `scope` (all, if `None`), and what was refused of it. Blocks on the disk.
    pub fn clear(&self, scope: Option<&str>) -> FragmentsCleared {
        let group = scope.map(group);
        let mut state = self.0.state.lock();
        remove_group(&mut state.refused, group);
        FragmentsCleared { ram_fragments: remove_group(&mut state.ram, group), disk_fragments: 0 }
    }

    /// Switches the layer; what it holds stays, and is right when it is switched on again.
    pub fn set_on(&self, on: bool) {
        self.0.on.store(on, Ordering::Relaxed);
    }

    /// Whether it is switched on.
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Counters since it was opened.
    pub fn stats(&self) -> FragmentStats {
        self.0.state.lock().stats
    }

    /// What it holds now.
    pub fn held(&self) -> FragmentsHeld {
        let state = self.0.state.lock();
        FragmentsHeld {
            ram_fragments: state.ram.len() as u64,
            ram_bytes: state.ram.bytes(),
            refused_keys: state.refused.len() as u64,
            ..FragmentsHeld::default()
        }
    }

    /// Writes what waits to be written. Blocks on the disk; for the end of a process, and for tests.
    pub fn write_waiting(&self) {}

    /// Writes to disk again after a failed write stopped it (see [`FragmentsHeld::stopped`]), until the next failure.
    pub fn resume_writing(&self) {}
}

impl State {
    fn in_memory(&mut self, slot: Slot, key: &FragmentKey, oldest_ms: i64) -> Option<Bytes> {
        let kept = self.ram.get(&slot).filter(|kept| kept.key == *key)?;
        if kept.written_ms >= oldest_ms {
            return Some(kept.value.clone());
        }
        self.ram.remove(&slot);
        self.stats.expired += 1;
        None
    }

    /// Puts it into memory. `false`: there is not so much room.
    fn keep(&mut self, slot: Slot, kept: Kept) -> bool {
        let mut evicted = vec![];
        let bytes = ENTRY_BYTES + kept.key.scope.len() as u64 + kept.key.bytes.len() as u64 + kept.value.len() as u64;
        let fits = self.ram.insert(slot, kept, bytes, &mut evicted);
        self.stats.ram_evicted += evicted.len() as u64;
        fits
    }
}

fn remove_group<V>(from: &mut S3Fifo<Slot, V>, group: Option<u128>) -> u64 {
    let is_in = |slot: &&Slot| group.is_none_or(|group| slot.group == group);
    let gone: Vec<Slot> = from.keys().filter(is_in).copied().collect();
    gone.iter().for_each(|slot| drop(from.remove(slot)));
    gone.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(scope: &str, bytes: &str) -> FragmentKey {
        FragmentKey { scope: scope.into(), bytes: Bytes::copy_from_slice(bytes.as_bytes()) }
    }

    #[tokio::test]
    async fn two_keys_with_one_hash_are_told_apart() {
        let cache = FragmentCache::open(FragmentOptions::default()).unwrap();
        let (mine, theirs) = (key("t", "a"), key("t", "b"));
        let kept = Kept { key: theirs, value: Bytes::from_static(b"theirs"), written_ms: 0 };
        cache.0.state.lock().keep(mine.slot(), kept);
        assert_eq!(cache.get(&mine).await, None);
        cache.put(mine.clone(), Bytes::from_static(b"mine"));
        assert_eq!(cache.get(&mine).await.unwrap(), "mine");
    }

    #[test]
    fn where_scope_ends_and_question_begins_is_part_of_the_hash() {
        assert_ne!(key("ab", "c").slot().item, key("a", "bc").slot().item);
        assert_eq!(key("a", "b").slot().group, key("a", "c").slot().group);
    }
}
