//! Is this value in the folder? One file per value, one folder per group:
//!
//! ```text
//! <folder>/lock                             held by the process that uses the folder
//! <folder>/v1/<2 hex>/<32 hex: group>/<item>      docs/formats/page.md
//!                                    /<item>.tmp  being written
//! ```
//!
//! Values are written behind the readers' backs, by one blocking task at a time, without a sync: what a power cut
//! damages, its checksum shows. Nothing here is an error to a reader: what cannot be read is a miss, and a write that
//! fails stops writing until [`DiskCache::resume`].
//!
//! Locks: `state` is never held across IO; `writing` is held by whoever changes files, one value at a time. `writing`
//! before `state`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::buffers::Buffers;
use super::format;
use super::judge::GroupValidator;
use super::key::{DiskKey, EntryId};
use crate::s3fifo::S3Fifo;
use crate::ttl::{Ttl, now_ms, oldest_ms};
use crate::{Error, Result};

/// One part in so many of a disk is left to others, but no more than [`MAX_RESERVED_BYTES`].
const RESERVED_PART: u64 = 20;
const MAX_RESERVED_BYTES: u64 = 1 << 30;

/// What a file takes is a multiple of this.
const BLOCK_BYTES: u64 = 4096;

/// Where a disk cache lies, and what it may take.
#[derive(Debug)]
pub(crate) struct DiskCacheOptions {
    /// Made if absent. What else lies in it is deleted.
    pub folder: PathBuf,
    /// Room for files, whole blocks counted.
    pub max_bytes: u64,
    /// Memory for values that wait to be written.
    pub max_waiting_bytes: u64,
    /// On which files are written.
    pub runtime: Handle,
    /// After which values are misses; `None`: they do not age.
    pub ttl: Option<Ttl>,
}

/// Counters since the folder was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskCacheStats {
    /// Values that came into the folder.
    pub written: u64,
    /// Values that went to make room.
    pub evicted: u64,
    /// Of their files, whole blocks counted.
    pub evicted_bytes: u64,
    /// Not written, because too much was waiting to be.
    pub dropped: u64,
    /// Not written, because writing has stopped.
    pub not_written: u64,
    /// Files that were not what was written, or gone.
    pub damaged: u64,
    /// Files that were too old.
    pub expired: u64,
    /// Files that could not be written: nothing more is written then, until the folder is tried again.
    pub write_failures: u64,
}

/// What a disk cache holds now.
#[derive(Debug, Default)]
pub(crate) struct DiskUsage {
    pub files: u64,
    /// Of the files, whole blocks counted.
    pub bytes: u64,
    /// Of values that are not written yet.
    pub waiting_bytes: u64,
    /// Why nothing is written now.
    pub stopped: Option<String>,
}

#[derive(Debug)]
pub(crate) struct DiskCache<K> {
    pub(super) options: DiskCacheOptions,
    pub(super) root: PathBuf,
    pub(super) writing: Mutex<()>,
    pub(super) state: Mutex<DiskCacheState<K>>,
    pub(super) buffers: Arc<Buffers>,
    _lock: fs::File,
}

#[derive(Debug)]
pub(super) struct DiskCacheState<K> {
    /// Values whose files are whole, as far as is known.
    /// The value: what its file takes on disk.
    pub kept: S3Fifo<EntryId, u64>,
    /// Values on their way to a file; readers are given these.
    waiting: HashMap<EntryId, PendingWrite<K>>,
    /// Invariant: holds every key of `waiting` at least once.
    queue: VecDeque<EntryId>,
    waiting_bytes: u64,
    /// Whether a task is at work on the queue.
    draining: bool,
    stopped: Option<String>,
    /// Counted as things happen.
    pub stats: DiskCacheStats,
}

#[derive(Debug, Clone)]
struct PendingWrite<K> {
    key: K,
    value: Bytes,
    written_ms: i64,
}

impl<K: DiskKey> PendingWrite<K> {
    fn memory_bytes(&self) -> u64 {
        self.key.memory_bytes() + self.value.len() as u64
    }
}

/// Where a value is found.
#[derive(Debug)]
pub(crate) enum Location {
    /// Still in memory, on its way.
    Waiting(Bytes),
    /// In a file, which may turn out to be damaged.
    File,
}

/// What became of a value that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnqueueResult {
    /// It is there already, or another value of the same id is.
    Near,
    Waiting,
    Not,
}

impl<K: DiskKey> DiskCache<K> {
    /// Opens or makes the folder and takes over what an earlier process left. What `judge` does not know is deleted: it
    /// is asked for each group, and handed what reads the key of one of its files. Cost: lists all files and asks for
    /// their sizes.
    ///
    /// Errors: [`Error::Folder`] when it cannot be used, or another process uses it.
    pub(crate) fn open(options: DiskCacheOptions, mut judge: impl GroupValidator) -> Result<Arc<Self>> {
        let failed = |source| Error::Folder { folder: options.folder.clone(), source };
        let root = options.folder.join("v1");
        make_folder(&root).map_err(failed)?;
        let lock = fs::File::options().create(true).truncate(false).write(true).open(options.folder.join("lock"));
        let lock = lock.map_err(failed)?;
        lock.try_lock().map_err(|e| failed(e.into()))?;
        let state = DiskCacheState {
            kept: S3Fifo::new(options.max_bytes),
            waiting: HashMap::new(),
            queue: VecDeque::new(),
            waiting_bytes: 0,
            draining: false,
            stopped: None,
            stats: DiskCacheStats::default(),
        };
        let folder = options.folder.clone();
        let (writing, state, buffers) = (Mutex::new(()), Mutex::new(state), Arc::default());
        let disk_cache = DiskCache { options, root, writing, state, buffers, _lock: lock };
        disk_cache.recover(&mut judge).map_err(|source| Error::Folder { folder, source })?;
        Ok(Arc::new(disk_cache))
    }

    /// Where `key` is, which counts as a hit of its file.
    pub(crate) fn lookup(&self, key: &K) -> Option<Location> {
        let entry = key.entry_id();
        let mut state = self.state.lock();
        if let Some(waiting) = state.waiting.get(&entry) {
            let is_it = waiting.key == *key && waiting.written_ms >= oldest_ms(&self.options.ttl);
            return is_it.then(|| Location::Waiting(waiting.value.clone()));
        }
        state.kept.get(&entry).map(|_| Location::File)
    }

    /// Counts a hit of files whose values memory had: what is hot there stays on disk too.
    pub(crate) fn touch(&self, entries: impl Iterator<Item = EntryId>) {
        let mut state = self.state.lock();
        for entry in entries {
            state.kept.get(&entry);
        }
    }

    /// Has a value written, soon. What does not fit into the queue is dropped and counted.
    pub(crate) fn enqueue(self: &Arc<Self>, key: K, value: Bytes) -> EnqueueResult {
        let entry = key.entry_id();
        let written_ms = now_ms(&self.options.ttl);
        let mut state = self.state.lock();
        if state.kept.contains(&entry) || state.waiting.contains_key(&entry) {
            return EnqueueResult::Near;
        }
        if !state.kept.fits(weight_of(&key, &value)) {
            return EnqueueResult::Not;
        }
        if state.stopped.is_some() {
            state.stats.not_written += 1;
            return EnqueueResult::Not;
        }
        let waiting = PendingWrite { key, value, written_ms };
        if state.waiting_bytes + waiting.memory_bytes() > self.options.max_waiting_bytes {
            state.stats.dropped += 1;
            return EnqueueResult::Not;
        }
        state.waiting_bytes += waiting.memory_bytes();
        state.waiting.insert(entry, waiting);
        state.queue.push_back(entry);
        let start = !std::mem::replace(&mut state.draining, true);
        drop(state);
        if start {
            let disk_cache = Arc::clone(self);
            self.options.runtime.spawn_blocking(move || disk_cache.drain());
        }
        EnqueueResult::Waiting
    }

    /// Writes until nothing waits. Blocks on the disk.
    pub(crate) fn drain(&self) {
        loop {
            let _writing = self.writing.lock();
            let next = {
                let mut state = self.state.lock();
                let next = loop {
                    let Some(entry) = state.queue.pop_front() else { break None };
                    if let Some(waiting) = state.waiting.get(&entry) {
                        break Some((entry, waiting.clone()));
                    }
                };
                if next.is_none() {
                    state.draining = false;
                }
                next
            };
            let Some((entry, waiting)) = next else { return };
            self.write(entry, &waiting);
        }
    }

    /// Writes one value and lists it; makes room first. The caller holds `writing`.
    fn write(&self, entry: EntryId, waiting: &PendingWrite<K>) {
        let weight = weight_of(&waiting.key, &waiting.value);
        let mut evicted = vec![];
        let mut state = self.state.lock();
        state.kept.make_room(weight, &mut evicted);
        state.stats.evicted += evicted.len() as u64;
        state.stats.evicted_bytes += evicted.iter().map(|(_, bytes)| bytes).sum::<u64>();
        drop(state);
        self.forget_files(evicted.iter().map(|(entry, _)| *entry));

        let encoded = waiting.key.encode();
        let header =
            encoded.and_then(|key| format::header(K::MAGIC, K::ALIGN, &key, waiting.written_ms, &waiting.value));
        let written =
            header.map_or(Ok(false), |header| self.write_file(&entry, &header, &waiting.value).map(|()| true));
        let mut state = self.state.lock();
        if let Some(done) = state.waiting.remove(&entry) {
            state.waiting_bytes -= done.memory_bytes();
        }
        match written {
            Ok(true) => {
                // There is room: nobody else fills it.
                state.kept.insert(entry, weight, weight, &mut evicted);
                state.stats.written += 1;
            }
            Ok(false) => {}
            Err(error) => {
                state.stopped = Some(format!("write {}: {error}", self.path(&entry).display()));
                state.stats.write_failures += 1;
                state.stats.not_written += state.waiting.len() as u64;
                state.waiting.clear();
                state.queue.clear();
                state.waiting_bytes = 0;
            }
        }
    }

    fn write_file(&self, entry: &EntryId, header: &[u8], value: &[u8]) -> io::Result<()> {
        leave_room(&self.options.folder)?;
        let path = self.path(entry);
        let temporary = path.with_extension("tmp");
        let attempt = || -> io::Result<()> {
            let mut file = match make_file(&temporary) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    make_folder(&self.folder(entry.group))?;
                    make_file(&temporary)?
                }
                file => file?,
            };
            file.write_all(header)?;
            file.write_all(value)?;
            fs::rename(&temporary, &path)
        };
        attempt().inspect_err(|_| drop(fs::remove_file(&temporary)))
    }

    /// Deletes files that are listed no more, and folders that are empty then.
    pub(super) fn forget_files(&self, entries: impl Iterator<Item = EntryId>) {
        for entry in entries {
            let _ = fs::remove_file(self.path(&entry));
            let _ = fs::remove_dir(self.folder(entry.group)); // fails while it has files
        }
    }

    /// Drops all values whose group `is_gone`, waiting ones included. Returns how many had files. Blocks on the disk.
    pub(crate) fn clear(&self, is_gone: impl Fn(u128) -> bool) -> u64 {
        let _writing = self.writing.lock();
        let mut state = self.state.lock();
        let gone: Vec<EntryId> = state.kept.keys().filter(|entry| is_gone(entry.group)).copied().collect();
        for entry in &gone {
            state.kept.remove(entry);
        }
        state.waiting.retain(|entry, _| !is_gone(entry.group));
        state.waiting_bytes = state.waiting.values().map(PendingWrite::memory_bytes).sum();
        drop(state);
        let n = gone.len() as u64;
        self.forget_files(gone.into_iter());
        n
    }

    /// Deletes files of at least `bytes`, or all, those first that would go first anyway. Returns how many bytes they
    /// took. Blocks on the disk.
    pub(crate) fn give_back(&self, bytes: u64) -> u64 {
        let _writing = self.writing.lock();
        let mut evicted = vec![];
        let mut state = self.state.lock();
        let most = state.kept.bytes().saturating_sub(bytes);
        state.kept.shrink_to(most, &mut evicted);
        let given = evicted.iter().map(|(_, bytes)| bytes).sum();
        state.stats.evicted += evicted.len() as u64;
        state.stats.evicted_bytes += given;
        drop(state);
        self.forget_files(evicted.into_iter().map(|(entry, _)| entry));
        given
    }

    /// Writes again after a failure, until the next one.
    pub(crate) fn resume(&self) {
        self.state.lock().stopped = None;
    }

    /// Groups that have values here, into `live`.
    pub(crate) fn groups(&self, live: &mut HashSet<u128>) {
        let state = self.state.lock();
        live.extend(state.kept.keys().map(|entry| entry.group));
        live.extend(state.waiting.keys().map(|entry| entry.group));
    }

    pub(crate) fn stats(&self) -> DiskCacheStats {
        self.state.lock().stats
    }

    pub(crate) fn held(&self) -> DiskUsage {
        let state = self.state.lock();
        DiskUsage {
            files: state.kept.len() as u64,
            bytes: state.kept.bytes(),
            waiting_bytes: state.waiting_bytes,
            stopped: state.stopped.clone(),
        }
    }

    pub(super) fn folder(&self, group: u128) -> PathBuf {
        let name = format!("{group:032x}");
        self.root.join(&name[..2]).join(name)
    }

    pub(super) fn path(&self, entry: &EntryId) -> PathBuf {
        self.folder(entry.group).join(format!("{:0width$x}", entry.item, width = K::ITEM_DIGITS))
    }
}

/// Makes a folder for its owner alone: what a table's readers may see, a stranger on this machine may not.
fn make_folder(path: &FsPath) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn make_file(path: &FsPath) -> io::Result<fs::File> {
    fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(path)
}

pub(super) fn header_len<K: DiskKey>(key: &K) -> usize {
    format::header_len(key.encoded_len(), K::ALIGN)
}

fn weight_of<K: DiskKey>(key: &K, value: &Bytes) -> u64 {
    weight((header_len(key) + value.len()) as u64)
}

/// Bytes that a file of `len` takes.
pub(super) fn weight(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Errors: too little of the disk is free. It is left to those who cannot do without, such as a log beside the cache.
fn leave_room(folder: &FsPath) -> io::Result<()> {
    match shortage(folder)? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::StorageFull, "the rest of the disk is left to others")),
    }
}

/// How many bytes of the disk that has `folder` a cache should give back: 0, as long as there is free what is left to
/// others (a twentieth, at most 1 GiB); else what is missing of that and an eighth more, so that what comes next finds
/// room.
pub fn shortage(folder: &FsPath) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    let (reserve, free) = (reserve(bytes(disk.f_blocks)), bytes(disk.f_bavail));
    Ok(if free >= reserve { 0 } else { reserve + reserve / 8 - free })
}

/// What is left to others of a disk of `disk_bytes`.
fn reserve(disk_bytes: u64) -> u64 {
    (disk_bytes / RESERVED_PART).min(MAX_RESERVED_BYTES)
}
