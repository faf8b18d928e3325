//! Is this page in the folder (docs/formats/page.md)? One file per page, one folder per state of an object:
//!
//! ```text
//! <folder>/lock                                   held by the process that uses the folder
//! <folder>/v1/<2 hex>/<32 hex: object id>/<8 hex: page>   docs/formats/page.md
//!                                        /<8 hex>.tmp      being written
//! ```
//!
//! Pages are written behind the readers' backs, by one blocking task at a time, without a sync: what a power cut damages, its checksum
//! shows. Nothing here is an error to a reader: what cannot be read is a miss, and a write that fails stops writing until [`Disk::resume`].
//!
//! Locks: `state` is never held across IO; `writing` is held by whoever changes files, one page at a time. `writing` before `state`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::format;
use super::key::{Object, PageKey};
use super::s3fifo::S3Fifo;
use super::stats::{Meter, PageStats};
use crate::{Error, Result};

/// What a file takes besides its bytes is rounded up to this.
const BLOCK_BYTES: u64 = 4096;
/// How much of a file is read to learn whose pages a folder holds.
const FIRST_READ_BYTES: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    page_bytes: u32,
    max_waiting_bytes: u64,
    runtime: Handle,
    meter: Meter,
    writing: Mutex<()>,
    state: Mutex<State>,
    _lock: fs::File,
}

#[derive(Debug)]
struct State {
    /// Pages whose files are whole, as far as is known.
    /// The value: what its file takes on disk.
    kept: S3Fifo<PageKey, u64>,
    /// Pages on their way to a file; readers are given these.
    waiting: HashMap<PageKey, (Arc<Object>, Bytes)>,
    /// Invariant: holds every key of `waiting` at least once.
    queue: VecDeque<PageKey>,
    waiting_bytes: u64,
    /// Whether a task is at work on the queue.
    draining: bool,
    stopped: Option<String>,
}

/// Where the disk has a page.
pub(crate) enum Place {
    /// Still in memory, on its way.
    Waiting(Bytes),
    /// In a file, which may turn out to be damaged.
    File,
}

/// What an earlier process left in a folder.
enum Left {
    Pages(Arc<Object>),
    /// Pages of another size.
    OtherPages,
    Foreign,
}

impl Disk {
    /// Opens or makes the folder and takes over the pages of an earlier process; what is not theirs is deleted. Returns the objects that
    /// have pages. Cost: lists all files, and reads the first bytes of one per object.
    ///
    /// Errors: [`Error::Folder`] when it cannot be used, or another process uses it.
    pub(crate) fn open(
        folder: &FsPath,
        page_bytes: u32,
        max_bytes: u64,
        max_waiting_bytes: u64,
        runtime: Handle,
        meter: Meter,
    ) -> Result<(Arc<Disk>, Vec<Arc<Object>>)> {
        let failed = |source| Error::Folder { folder: folder.to_owned(), source };
        let root = folder.join("v1");
        fs::create_dir_all(&root).map_err(failed)?;
        let lock =
            fs::File::options().create(true).truncate(false).write(true).open(folder.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|e| failed(e.into()))?;
        let disk = Disk {
            root,
            page_bytes,
            max_waiting_bytes,
            runtime,
            meter,
            writing: Mutex::new(()),
            state: Mutex::new(State {
                kept: S3Fifo::new(max_bytes),
                waiting: HashMap::new(),
                queue: VecDeque::new(),
                waiting_bytes: 0,
                draining: false,
                stopped: None,
            }),
            _lock: lock,
        };
        let objects = disk.recover().map_err(failed)?;
        Ok((Arc::new(disk), objects))
    }

    /// Where `key` is, which counts as a hit of its file.
    pub(crate) fn lookup(&self, key: &PageKey) -> Option<Place> {
        let mut state = self.state.lock();
        if let Some((_, page)) = state.waiting.get(key) {
            return Some(Place::Waiting(page.clone()));
        }
        state.kept.get(key).map(|_| Place::File)
    }

    /// Counts a hit of `key`'s file for a page that memory had: what is hot there stays on disk too.
    pub(crate) fn touch(&self, keys: &[PageKey]) {
        let mut state = self.state.lock();
        for key in keys {
            state.kept.get(key);
        }
    }

    /// Reads pages of `object`. A page that is `None` is not there any more: it was damaged or has been evicted. Blocks on the disk.
    pub(crate) fn read(&self, object: &Object, pages: &[u32]) -> Vec<(u32, Option<Bytes>)> {
        pages.iter().map(|&page| (page, self.read_one(object, page))).collect()
    }

    fn read_one(&self, object: &Object, page: u32) -> Option<Bytes> {
        let key = PageKey { object: object.id, page };
        let page_len = object.page_len(page, u64::from(self.page_bytes)) as usize;
        let expected = format::header_len(object) + page_len;
        let read = || -> io::Result<Bytes> {
            let mut file = fs::File::open(self.path(&key))?;
            if file.metadata()?.len() != expected as u64 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut buffer = Vec::with_capacity(expected);
            file.read_to_end(&mut buffer)?;
            Ok(Bytes::from(buffer))
        };
        let payload = read().ok().and_then(|file| format::read_page(file, object, page, self.page_bytes));
        if payload.is_none() {
            let _writing = self.writing.lock();
            let was_listed = self.state.lock().kept.remove(&key).is_some();
            if was_listed {
                self.meter.add(PageStats { damaged: 1, ..PageStats::default() });
                let _ = fs::remove_file(self.path(&key));
            }
        }
        payload
    }

    /// Has pages written, soon. What does not fit into the queue is dropped and counted.
    pub(crate) fn enqueue(self: &Arc<Self>, object: &Arc<Object>, pages: &[(u32, Bytes)]) {
        let mut counts = PageStats::default();
        let mut state = self.state.lock();
        for (page, bytes) in pages {
            let key = PageKey { object: object.id, page: *page };
            let is_near = state.kept.contains(&key) || state.waiting.contains_key(&key);
            if is_near || !state.kept.fits(weight(format::header_len(object) + bytes.len())) {
                continue;
            }
            if state.stopped.is_some() {
                counts.refused += 1;
            } else if state.waiting_bytes + bytes.len() as u64 > self.max_waiting_bytes {
                counts.dropped += 1;
            } else {
                state.waiting_bytes += bytes.len() as u64;
                state.waiting.insert(key, (Arc::clone(object), bytes.clone()));
                state.queue.push_back(key);
            }
        }
        let start = !state.queue.is_empty() && !std::mem::replace(&mut state.draining, true);
        drop(state);
        if start {
            let disk = Arc::clone(self);
            self.runtime.spawn_blocking(move || disk.drain());
        }
        self.meter.add(counts);
    }

    /// Writes until nothing waits. Blocks on the disk.
    pub(crate) fn drain(&self) {
        loop {
            let _writing = self.writing.lock();
            let next = {
                let mut state = self.state.lock();
                let next = loop {
                    let Some(key) = state.queue.pop_front() else { break None };
                    if let Some((object, bytes)) = state.waiting.get(&key) {
                        break Some((key, Arc::clone(object), bytes.clone()));
                    }
                };
                if next.is_none() {
                    state.draining = false;
                }
                next
            };
            let Some((key, object, bytes)) = next else { return };
            self.write(key, &object, &bytes);
        }
    }

    /// Writes one page and lists it; makes room first. The caller holds `writing`.
    fn write(&self, key: PageKey, object: &Object, bytes: &Bytes) {
        let weight = weight(format::header_len(object) + bytes.len());
        let mut evicted = vec![];
        self.state.lock().kept.make_room(weight, &mut evicted);
        self.forget_files(evicted.iter().map(|(key, _)| *key));
        self.meter.add(PageStats {
            disk_evicted: evicted.len() as u64,
            disk_evicted_bytes: evicted.iter().map(|(_, bytes)| bytes).sum(),
            ..PageStats::default()
        });

        let header = format::header(object, key.page, self.page_bytes, bytes);
        let written = header.map_or(Ok(false), |header| self.write_file(&key, &header, bytes).map(|()| true));
        let mut state = self.state.lock();
        if let Some((_, bytes)) = state.waiting.remove(&key) {
            state.waiting_bytes -= bytes.len() as u64;
        }
        match written {
            Ok(true) => {
                // There is room: nobody else fills it.
                state.kept.insert(key, weight, weight, &mut evicted);
                self.meter.add(PageStats { written: 1, ..PageStats::default() });
            }
            Ok(false) => {}
            Err(error) => {
                state.stopped = Some(format!("write {}: {error}", self.path(&key).display()));
                let refused = state.waiting.len() as u64;
                state.waiting.clear();
                state.queue.clear();
                state.waiting_bytes = 0;
                self.meter.add(PageStats { write_failures: 1, refused, ..PageStats::default() });
            }
        }
    }

    fn write_file(&self, key: &PageKey, header: &[u8], bytes: &[u8]) -> io::Result<()> {
        let path = self.path(key);
        let temporary = path.with_extension("tmp");
        let attempt = || -> io::Result<()> {
            let mut file = match fs::File::create(&temporary) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(self.folder(key.object))?;
                    fs::File::create(&temporary)?
                }
                file => file?,
            };
            file.write_all(header)?;
            file.write_all(bytes)?;
            fs::rename(&temporary, &path)
        };
        attempt().inspect_err(|_| drop(fs::remove_file(&temporary)))
    }

    /// Deletes files that are listed no more, and folders that are empty then.
    fn forget_files(&self, keys: impl Iterator<Item = PageKey>) {
        for key in keys {
            let _ = fs::remove_file(self.path(&key));
            let _ = fs::remove_dir(self.folder(key.object)); // fails while it has pages
        }
    }

    /// Drops all pages of `objects`, waiting ones included. Returns how many had files. Blocks on the disk.
    pub(crate) fn clear(&self, objects: &HashSet<u128>) -> u64 {
        let _writing = self.writing.lock();
        let mut state = self.state.lock();
        let gone: Vec<PageKey> = state.kept.keys().filter(|key| objects.contains(&key.object)).copied().collect();
        for key in &gone {
            state.kept.remove(key);
        }
        state.waiting.retain(|key, _| !objects.contains(&key.object));
        state.waiting_bytes = state.waiting.values().map(|(_, bytes)| bytes.len() as u64).sum();
        drop(state);
        let n = gone.len() as u64;
        self.forget_files(gone.into_iter());
        n
    }

    /// Writes again after a failure, until the next one.
    pub(crate) fn resume(&self) {
        self.state.lock().stopped = None;
    }

    /// Ids of the objects that have pages here, into `live`.
    pub(crate) fn objects(&self, live: &mut HashSet<u128>) {
        let state = self.state.lock();
        live.extend(state.kept.keys().map(|key| key.object));
        live.extend(state.waiting.keys().map(|key| key.object));
    }

    /// Pages, bytes, bytes that wait, and why writing stopped.
    pub(crate) fn held(&self) -> (u64, u64, u64, Option<String>) {
        let state = self.state.lock();
        (state.kept.len() as u64, state.kept.bytes(), state.waiting_bytes, state.stopped.clone())
    }

    fn folder(&self, object: u128) -> PathBuf {
        let name = format!("{object:032x}");
        self.root.join(&name[..2]).join(name)
    }

    fn path(&self, key: &PageKey) -> PathBuf {
        self.folder(key.object).join(format!("{:08x}", key.page))
    }

    /// Lists what an earlier process left. Whole folders that make no sense are deleted; the pages' own checksums are tested when read.
    fn recover(&self) -> io::Result<Vec<Arc<Object>>> {
        let mut objects = vec![];
        for shard in fs::read_dir(&self.root)? {
            let shard = shard?.path();
            let Ok(folders) = fs::read_dir(&shard) else {
                self.delete_foreign(&shard);
                continue;
            };
            for folder in folders {
                let folder = folder?.path();
                match self.recover_object(&folder) {
                    Left::Pages(object) => objects.push(object),
                    Left::OtherPages => drop(fs::remove_dir_all(&folder)),
                    Left::Foreign => self.delete_foreign(&folder),
                }
            }
        }
        Ok(objects)
    }

    fn recover_object(&self, folder: &FsPath) -> Left {
        let Ok(files) = fs::read_dir(folder) else { return Left::Foreign };
        let mut pages = vec![];
        for path in files.filter_map(|file| Some(file.ok()?.path())) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match u32::from_str_radix(name, 16) {
                Ok(page) if format!("{page:08x}") == name => pages.push((page, path)),
                _ => self.delete_foreign(&path),
            }
        }
        let Some(header) = pages.iter().find_map(|(_, path)| self.readable_header(path)) else { return Left::Foreign };
        let object = header.object;
        if self.folder(object.id) != folder {
            return Left::Foreign;
        }
        if header.page_bytes != self.page_bytes {
            return Left::OtherPages;
        }
        let n_pages = object.n_pages(u64::from(self.page_bytes));
        let mut state = self.state.lock();
        for (page, path) in pages {
            let len = format::header_len(&object) + object.page_len(page, u64::from(self.page_bytes)) as usize;
            let key = PageKey { object: object.id, page };
            if u64::from(page) >= n_pages || !state.kept.insert_kept(key, weight(len), weight(len)) {
                let _ = fs::remove_file(path);
            }
        }
        Left::Pages(Arc::new(object))
    }

    fn readable_header(&self, path: &FsPath) -> Option<format::Header> {
        let mut start = vec![];
        let mut file = fs::File::open(path).ok()?;
        (&mut file).take(FIRST_READ_BYTES).read_to_end(&mut start).ok()?;
        if format::read_header(&start).is_none() {
            file.take(4 * u64::from(u16::MAX)).read_to_end(&mut start).ok()?; // its names are long
        }
        format::read_header(&start)
    }

    fn delete_foreign(&self, path: &FsPath) {
        let is_temporary = path.extension().is_some_and(|e| e == "tmp");
        if !is_temporary {
            self.meter.add(PageStats { damaged: 1, ..PageStats::default() });
        }
        let _ = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
    }
}

/// Bytes that a file of `len` takes.
fn weight(len: usize) -> u64 {
    (len as u64).div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}
