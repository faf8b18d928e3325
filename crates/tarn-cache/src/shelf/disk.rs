//! Is this value in the folder? One file per value, one folder per group:
//!
//! ```text
//! <folder>/lock                             held by the process that uses the folder
//! <folder>/v1/<2 hex>/<32 hex: group>/<item>      docs/formats/page.md
//!                                    /<item>.tmp  being written
//! ```
//!
//! Values are written behind the readers' backs, by one blocking task at a time, without a sync: what a power cut damages, its checksum
//! shows. Nothing here is an error to a reader: what cannot be read is a miss, and a write that fails stops writing until [`Shelf::resume`].
//!
//! Locks: `state` is never held across IO; `writing` is held by whoever changes files, one value at a time. `writing` before `state`.

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
use super::judge::Judge;
use super::key::{ShelfKey, Shelfmark};
use crate::s3fifo::S3Fifo;
use crate::ttl::{Ttl, now_ms, oldest_ms};
use crate::{Error, Result};

/// One part in so many of a disk is left to others, but no more than [`MAX_RESERVED_BYTES`].
const RESERVED_PART: u64 = 20;
const MAX_RESERVED_BYTES: u64 = 1 << 30;

/// What a file takes is a multiple of this.
const BLOCK_BYTES: u64 = 4096;

/// Sizes and places of a shelf.
#[derive(Debug)]
pub(crate) struct ShelfOptions {
    pub folder: PathBuf,
    /// Room for files, whole blocks counted.
    pub max_bytes: u64,
    /// Memory for values that wait to be written.
    pub max_waiting_bytes: u64,
    pub runtime: Handle,
    pub ttl: Option<Ttl>,
}

/// Counters since the folder was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ShelfStats {
    pub written: u64,
    pub evicted: u64,
    pub evicted_bytes: u64,
    /// Not written, because too much was waiting to be.
    pub dropped: u64,
    /// Not written, because writing has stopped.
    pub not_written: u64,
    /// Files that were not what was written, or gone.
    pub damaged: u64,
    /// Files that were too old.
    pub expired: u64,
    pub write_failures: u64,
}

/// What a shelf holds now.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub files: u64,
    pub bytes: u64,
    pub waiting_bytes: u64,
    pub stopped: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Shelf<K> {
    pub(super) options: ShelfOptions,
    pub(super) root: PathBuf,
    pub(super) writing: Mutex<()>,
    pub(super) state: Mutex<State<K>>,
    pub(super) buffers: Arc<Buffers>,
    _lock: fs::File,
}

#[derive(Debug)]
pub(super) struct State<K> {
    /// Values whose files are whole, as far as is known.
    /// The value: what its file takes on disk.
    pub kept: S3Fifo<Shelfmark, u64>,
    /// Values on their way to a file; readers are given these.
    waiting: HashMap<Shelfmark, Waiting<K>>,
    /// Invariant: holds every key of `waiting` at least once.
    queue: VecDeque<Shelfmark>,
    waiting_bytes: u64,
    /// Whether a task is at work on the queue.
    draining: bool,
    stopped: Option<String>,
    pub stats: ShelfStats,
}

#[derive(Debug, Clone)]
struct Waiting<K> {
    key: K,
    value: Bytes,
    written_ms: i64,
}

impl<K: ShelfKey> Waiting<K> {
    fn memory_bytes(&self) -> u64 {
        self.key.memory_bytes() + self.value.len() as u64
    }
}

/// Where the shelf has a value.
#[derive(Debug)]
pub(crate) enum Place {
    /// Still in memory, on its way.
    Waiting(Bytes),
    /// In a file, which may turn out to be damaged.
    File,
}

/// What became of a value that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enqueued {
    /// It is there already, or another value of its mark is.
    Near,
    Waiting,
    Not,
}

impl<K: ShelfKey> Shelf<K> {
    /// Opens or makes the folder and takes over what an earlier process left. What `judge` does not know is deleted: it is asked for each
    /// group, and handed what reads the key of one of its files. Cost: lists all files and asks for their sizes.
    ///
    /// Errors: [`Error::Folder`] when it cannot be used, or another process uses it.
    pub(crate) fn open(options: ShelfOptions, mut judge: impl Judge) -> Result<Arc<Self>> {
        let failed = |source| Error::Folder { folder: options.folder.clone(), source };
        let root = options.folder.join("v1");
        make_folder(&root).map_err(failed)?;
        let lock = fs::File::options().create(true).truncate(false).write(true).open(options.folder.join("lock"));
        let lock = lock.map_err(failed)?;
        lock.try_lock().map_err(|e| failed(e.into()))?;
        let state = State {
            kept: S3Fifo::new(options.max_bytes),
            waiting: HashMap::new(),
            queue: VecDeque::new(),
            waiting_bytes: 0,
            draining: false,
            stopped: None,
            stats: ShelfStats::default(),
        };
        let folder = options.folder.clone();
        let (writing, state, buffers) = (Mutex::new(()), Mutex::new(state), Arc::default());
        let shelf = Shelf { options, root, writing, state, buffers, _lock: lock };
        shelf.recover(&mut judge).map_err(|source| Error::Folder { folder, source })?;
        Ok(Arc::new(shelf))
    }

    /// Where `key` is, which counts as a hit of its file.
    pub(crate) fn lookup(&self, key: &K) -> Option<Place> {
        let mark = key.mark();
        let mut state = self.state.lock();
        if let Some(waiting) = state.waiting.get(&mark) {
            let is_it = waiting.key == *key && waiting.written_ms >= oldest_ms(&self.options.ttl);
            return is_it.then(|| Place::Waiting(waiting.value.clone()));
        }
        state.kept.get(&mark).map(|_| Place::File)
    }

    /// Counts a hit of files whose values memory had: what is hot there stays on disk too.
    pub(crate) fn touch(&self, marks: impl Iterator<Item = Shelfmark>) {
        let mut state = self.state.lock();
        for mark in marks {
            state.kept.get(&mark);
        }
    }

    /// Has a value written, soon. What does not fit into the queue is dropped and counted.
    pub(crate) fn enqueue(self: &Arc<Self>, key: K, value: Bytes) -> Enqueued {
        let mark = key.mark();
        let written_ms = now_ms(&self.options.ttl);
        let mut state = self.state.lock();
        if state.kept.contains(&mark) || state.waiting.contains_key(&mark) {
            return Enqueued::Near;
        }
        if !state.kept.fits(weight_of(&key, &value)) {
            return Enqueued::Not;
        }
        if state.stopped.is_some() {
            state.stats.not_written += 1;
            return Enqueued::Not;
        }
        let waiting = Waiting { key, value, written_ms };
        if state.waiting_bytes + waiting.memory_bytes() > self.options.max_waiting_bytes {
            state.stats.dropped += 1;
            return Enqueued::Not;
        }
        state.waiting_bytes += waiting.memory_bytes();
        state.waiting.insert(mark, waiting);
        state.queue.push_back(mark);
        let start = !std::mem::replace(&mut state.draining, true);
        drop(state);
        if start {
            let shelf = Arc::clone(self);
            self.options.runtime.spawn_blocking(move || shelf.drain());
        }
        Enqueued::Waiting
    }

    /// Writes until nothing waits. Blocks on the disk.
    pub(crate) fn drain(&self) {
        loop {
            let _writing = self.writing.lock();
            let next = {
                let mut state = self.state.lock();
                let next = loop {
                    let Some(mark) = state.queue.pop_front() else { break None };
                    if let Some(waiting) = state.waiting.get(&mark) {
                        break Some((mark, waiting.clone()));
                    }
                };
                if next.is_none() {
                    state.draining = false;
                }
                next
            };
            let Some((mark, waiting)) = next else { return };
            self.write(mark, &waiting);
        }
    }

    /// Writes one value and lists it; makes room first. The caller holds `writing`.
    fn write(&self, mark: Shelfmark, waiting: &Waiting<K>) {
        let weight = weight_of(&waiting.key, &waiting.value);
        let mut evicted = vec![];
        let mut state = self.state.lock();
        state.kept.make_room(weight, &mut evicted);
        state.stats.evicted += evicted.len() as u64;
        state.stats.evicted_bytes += evicted.iter().map(|(_, bytes)| bytes).sum::<u64>();
        drop(state);
        self.forget_files(evicted.iter().map(|(mark, _)| *mark));

        let encoded = waiting.key.encode();
        let header =
            encoded.and_then(|key| format::header(K::MAGIC, K::ALIGN, &key, waiting.written_ms, &waiting.value));
        let written = header.map_or(Ok(false), |header| self.write_file(&mark, &header, &waiting.value).map(|()| true));
        let mut state = self.state.lock();
        if let Some(done) = state.waiting.remove(&mark) {
            state.waiting_bytes -= done.memory_bytes();
        }
        match written {
            Ok(true) => {
                // There is room: nobody else fills it.
                state.kept.insert(mark, weight, weight, &mut evicted);
                state.stats.written += 1;
            }
            Ok(false) => {}
            Err(error) => {
                state.stopped = Some(format!("write {}: {error}", self.path(&mark).display()));
                state.stats.write_failures += 1;
                state.stats.not_written += state.waiting.len() as u64;
                state.waiting.clear();
                state.queue.clear();
                state.waiting_bytes = 0;
            }
        }
    }

    fn write_file(&self, mark: &Shelfmark, header: &[u8], value: &[u8]) -> io::Result<()> {
        leave_room(&self.options.folder)?;
        let path = self.path(mark);
        let temporary = path.with_extension("tmp");
        let attempt = || -> io::Result<()> {
            let mut file = match make_file(&temporary) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    make_folder(&self.folder(mark.group))?;
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
    pub(super) fn forget_files(&self, marks: impl Iterator<Item = Shelfmark>) {
        for mark in marks {
            let _ = fs::remove_file(self.path(&mark));
            let _ = fs::remove_dir(self.folder(mark.group)); // fails while it has files
        }
    }

    /// Drops all values whose group `is_gone`, waiting ones included. Returns how many had files. Blocks on the disk.
    pub(crate) fn clear(&self, is_gone: impl Fn(u128) -> bool) -> u64 {
        let _writing = self.writing.lock();
        let mut state = self.state.lock();
        let gone: Vec<Shelfmark> = state.kept.keys().filter(|mark| is_gone(mark.group)).copied().collect();
        for mark in &gone {
            state.kept.remove(mark);
        }
        state.waiting.retain(|mark, _| !is_gone(mark.group));
        state.waiting_bytes = state.waiting.values().map(Waiting::memory_bytes).sum();
        drop(state);
        let n = gone.len() as u64;
        self.forget_files(gone.into_iter());
        n
    }

    /// Deletes files of at least `bytes`, or all, those first that would go first anyway. Returns how many bytes they took. Blocks on the disk.
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
        self.forget_files(evicted.into_iter().map(|(mark, _)| mark));
        given
    }

    /// Writes again after a failure, until the next one.
    pub(crate) fn resume(&self) {
        self.state.lock().stopped = None;
    }

    /// Groups that have values here, into `live`.
    pub(crate) fn groups(&self, live: &mut HashSet<u128>) {
        let state = self.state.lock();
        live.extend(state.kept.keys().map(|mark| mark.group));
        live.extend(state.waiting.keys().map(|mark| mark.group));
    }

    pub(crate) fn stats(&self) -> ShelfStats {
        self.state.lock().stats
    }

    pub(crate) fn held(&self) -> Held {
        let state = self.state.lock();
        Held {
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

    pub(super) fn path(&self, mark: &Shelfmark) -> PathBuf {
        self.folder(mark.group).join(format!("{:0width$x}", mark.item, width = K::ITEM_DIGITS))
    }
}

/// Makes a folder for its owner alone: what a table's readers may see, a stranger on this machine may not.
fn make_folder(path: &FsPath) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn make_file(path: &FsPath) -> io::Result<fs::File> {
    fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(path)
}

pub(super) fn header_len<K: ShelfKey>(key: &K) -> usize {
    format::header_len(key.encoded_len(), K::ALIGN)
}

fn weight_of<K: ShelfKey>(key: &K, value: &Bytes) -> u64 {
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

/// How many bytes of the disk that has `folder` a cache should give back: 0, as long as there is free what is left to others (a twentieth, at
/// most 1 GiB); else what is missing of that and an eighth more, so that what comes next finds room.
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
