//! Which fragments are near? Memory in front of a folder.
//!
//! One lock guards memory, what is refused and the counters; it is never held across an await or IO. The folder has its
//! own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::key::{FragmentKey, group};
use super::stats::{FragmentStats, FragmentsCleared, FragmentsHeld};
use crate::disk_cache::{
    DiskCache, DiskCacheOptions, DiskKey, DiskUsage, EnqueueResult, EntryId, FolderContent, Location,
};
use crate::s3fifo::S3Fifo;
use crate::ttl::{Ttl, now_ms, oldest_ms};
use crate::{Error, Result};

/// Keys that are remembered as not worth it.
const MAX_REFUSED: u64 = 16_384;

/// Sizes and places of a fragment cache.
#[derive(Debug, Clone)]
pub struct FragmentOptions {
    /// Memory for fragments, keys included. Default 64 MiB.
    pub ram_bytes: u64,
    /// Where fragments are kept on disk; `None`: nowhere. Default `None`.
    pub folder: Option<PathBuf>,
    /// Room on disk, whole file-system blocks counted. Default 2 GiB.
    pub disk_bytes: u64,
    /// Memory for fragments that wait to be written, keys included; more are not written. Default 32 MiB.
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

/// Fragments in memory and on disk, shared by cloning.
#[derive(Clone)]
pub struct FragmentCache(Arc<FragmentCacheInner>);

struct FragmentCacheInner {
    options: FragmentOptions,
    on: AtomicBool,
    state: Mutex<FragmentCacheState>,
    disk: Option<(Arc<DiskCache<FragmentKey>>, Handle)>,
}

struct FragmentCacheState {
    ram: S3Fifo<EntryId, CachedFragment>,
    refused: S3Fifo<EntryId, ()>,
    stats: FragmentStats,
    /// Grows with each [`FragmentCache::clear`]: what was read from disk before one is not put into memory after it.
    clears: u64,
}

#[derive(Debug)]
struct CachedFragment {
    key: FragmentKey,
    value: Bytes,
    written_ms: i64,
}

/// What the folder has.
enum DiskLookup {
    Waiting(Bytes),
    /// Value and time of writing.
    Read(Bytes, i64),
}

impl fmt::Debug for FragmentCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FragmentCache").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl FragmentCache {
    /// Opens the cache. With a folder, fragments that an earlier process left there are taken over.
    ///
    /// Cost: with a folder, lists it: call it from a thread that may block. Errors: [`Error::Folder`] when the folder
    /// cannot be used, another process uses it, or there is no runtime for its files.
    pub fn open(options: FragmentOptions) -> Result<FragmentCache> {
        let disk = match &options.folder {
            None => None,
            Some(folder) => {
                let source =
                    std::io::Error::new(std::io::ErrorKind::InvalidInput, "no runtime reads and writes its files");
                let failed = || Error::Folder { folder: folder.clone(), source };
                let runtime = options.runtime.clone().ok_or_else(failed)?;
                let disk_cache = DiskCacheOptions {
                    folder: folder.clone(),
                    max_bytes: options.disk_bytes,
                    max_waiting_bytes: options.waiting_bytes,
                    runtime: runtime.clone(),
                    ttl: options.ttl.clone(),
                };
                Some((DiskCache::open(disk_cache, |_, _| FolderContent::Values { end: u128::MAX })?, runtime))
            }
        };
        let state = FragmentCacheState {
            ram: S3Fifo::new(options.ram_bytes),
            refused: S3Fifo::new(MAX_REFUSED),
            stats: FragmentStats::default(),
            clears: 0,
        };
        Ok(FragmentCache(Arc::new(FragmentCacheInner {
            on: AtomicBool::new(true),
            state: Mutex::new(state),
            disk,
            options,
        })))
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
        let entry = key.entry_id();
        let clears = {
            let mut state = self.0.state.lock();
            if let Some(value) = state.in_memory(entry, key, oldest_ms(&self.0.options.ttl)) {
                state.found_in_memory(&value);
                drop(state);
                if let Some((disk, _)) = &self.0.disk {
                    disk.touch([entry].into_iter());
                }
                return Some(value);
            }
            state.clears
        };
        let found = self.off_disk(key).await;
        let mut state = self.0.state.lock();
        match found {
            None => {
                state.stats.misses += 1;
                None
            }
            Some(DiskLookup::Waiting(value)) => {
                state.found_in_memory(&value);
                Some(value)
            }
            Some(DiskLookup::Read(value, written_ms)) => {
                state.stats.disk_hits += 1;
                state.stats.disk_bytes += value.len() as u64;
                if state.clears == clears {
                    state.keep(entry, CachedFragment { key: key.clone(), value: value.clone(), written_ms });
                }
                Some(value)
            }
        }
    }

    async fn off_disk(&self, key: &FragmentKey) -> Option<DiskLookup> {
        let (disk, runtime) = self.0.disk.as_ref()?;
        match disk.lookup(key)? {
            Location::Waiting(value) => Some(DiskLookup::Waiting(value)),
            Location::File => {
                let (disk, key) = (Arc::clone(disk), key.clone());
                let read = runtime.spawn_blocking(move || disk.read(&key)).await.ok()??;
                Some(DiskLookup::Read(read.0, read.1))
            }
        }
    }

    /// Keeps `value`, which should own its memory: a slice keeps the whole it is of. Returns at once; it is in the
    /// folder some time later. What is there already stays; what is larger than all the room there is, is not kept.
    pub fn put(&self, key: FragmentKey, value: Bytes) {
        if !self.is_on() {
            return;
        }
        let entry = key.entry_id();
        let disk = self.0.disk.as_ref();
        let on_disk = disk.map_or(EnqueueResult::Not, |(disk, _)| disk.enqueue(key.clone(), value.clone()));
        let kept = CachedFragment { key, value, written_ms: now_ms(&self.0.options.ttl) };
        let mut state = self.0.state.lock();
        if state.in_memory(entry, &kept.key, oldest_ms(&self.0.options.ttl)).is_none() {
            let in_memory = state.keep(entry, kept);
            state.stats.kept +=
                u64::from(on_disk != EnqueueResult::Near && (in_memory || on_disk == EnqueueResult::Waiting));
        }
    }

    /// Remembers that the value of `key` is too large, or not worth it. The oldest of many are forgotten.
    pub fn refuse(&self, key: &FragmentKey) {
        let mut state = self.0.state.lock();
        state.stats.refused += 1;
        state.refused.insert(key.entry_id(), (), 1, &mut vec![]);
    }

    /// Whether [`FragmentCache::refuse`] was told so, and it is not forgotten.
    pub fn is_refused(&self, key: &FragmentKey) -> bool {
        self.0.state.lock().refused.get(&key.entry_id()).is_some()
    }

    /// Drops the fragments of `scope` (all, if `None`), and what was refused of it. Blocks on the disk.
    pub fn clear(&self, scope: Option<&str>) -> FragmentsCleared {
        let group = scope.map(group);
        let mut state = self.0.state.lock();
        state.clears += 1;
        remove_group(&mut state.refused, group);
        let ram_fragments = remove_group(&mut state.ram, group);
        drop(state);
        let is_gone = |found| group.is_none_or(|group| group == found);
        FragmentsCleared {
            ram_fragments,
            disk_fragments: self.0.disk.as_ref().map_or(0, |(disk, _)| disk.clear(is_gone)),
        }
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
        let mut stats = self.0.state.lock().stats;
        if let Some(disk) = self.0.disk.as_ref().map(|(disk, _)| disk.stats()) {
            stats.disk_evicted = disk.evicted;
            stats.disk_evicted_bytes = disk.evicted_bytes;
            stats.expired += disk.expired;
            stats.written = disk.written;
            stats.dropped = disk.dropped;
            stats.not_written = disk.not_written;
            stats.damaged = disk.damaged;
            stats.write_failures = disk.write_failures;
        }
        stats
    }

    /// What it holds now.
    pub fn held(&self) -> FragmentsHeld {
        let DiskUsage { files, bytes, waiting_bytes, stopped } =
            self.0.disk.as_ref().map(|(disk, _)| disk.held()).unwrap_or_default();
        let state = self.0.state.lock();
        FragmentsHeld {
            ram_fragments: state.ram.len() as u64,
            ram_bytes: state.ram.bytes(),
            disk_fragments: files,
            disk_bytes: bytes,
            waiting_bytes,
            refused_keys: state.refused.len() as u64,
            stopped,
        }
    }

    /// Writes what waits to be written. Blocks on the disk; for the end of a process, and for tests.
    pub fn write_waiting(&self) {
        if let Some((disk, _)) = &self.0.disk {
            disk.drain();
        }
    }

    /// Deletes fragments on disk, of at least `bytes` or all, and returns how many bytes they took: for when others
    /// need the disk ([`crate::shortage`]). Blocks on the disk.
    pub fn give_back(&self, bytes: u64) -> u64 {
        self.0.disk.as_ref().map_or(0, |(disk, _)| disk.give_back(bytes))
    }

    /// Writes to disk again after a failed write stopped it (see [`FragmentsHeld::stopped`]), until the next failure.
    pub fn resume_writing(&self) {
        if let Some((disk, _)) = &self.0.disk {
            disk.resume();
        }
    }
}

impl FragmentCacheState {
    fn found_in_memory(&mut self, value: &Bytes) {
        self.stats.ram_hits += 1;
        self.stats.ram_bytes += value.len() as u64;
    }

    fn in_memory(&mut self, entry: EntryId, key: &FragmentKey, oldest_ms: i64) -> Option<Bytes> {
        let kept = self.ram.get(&entry).filter(|kept| kept.key == *key)?;
        if kept.written_ms >= oldest_ms {
            return Some(kept.value.clone());
        }
        self.ram.remove(&entry);
        self.stats.expired += 1;
        None
    }

    /// Puts it into memory. `false`: there is not so much room.
    fn keep(&mut self, entry: EntryId, kept: CachedFragment) -> bool {
        let mut evicted = vec![];
        let bytes = kept.key.memory_bytes() + kept.value.len() as u64;
        let fits = self.ram.insert(entry, kept, bytes, &mut evicted);
        self.stats.ram_evicted += evicted.len() as u64;
        fits
    }
}

fn remove_group<V>(from: &mut S3Fifo<EntryId, V>, group: Option<u128>) -> u64 {
    let is_in = |entry: &&EntryId| group.is_none_or(|group| entry.group == group);
    let gone: Vec<EntryId> = from.keys().filter(is_in).copied().collect();
    gone.iter().for_each(|entry| drop(from.remove(entry)));
    gone.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &'static str) -> FragmentKey {
        FragmentKey { scope: "t".into(), bytes: Bytes::from_static(bytes.as_bytes()) }
    }

    #[tokio::test]
    async fn two_keys_with_one_hash_are_told_apart_in_memory() {
        let cache = FragmentCache::open(FragmentOptions::default()).unwrap();
        let (mine, theirs) = (key("a"), key("b"));
        let kept = CachedFragment { key: theirs, value: Bytes::from_static(b"theirs"), written_ms: 0 };
        cache.0.state.lock().keep(mine.entry_id(), kept);
        assert_eq!(cache.get(&mine).await, None);
        cache.put(mine.clone(), Bytes::from_static(b"mine"));
        assert_eq!(cache.get(&mine).await.unwrap(), "mine");
    }
}
