//! What if the disk lies, fills up, or loses power?
//!
//! A disk in memory that keeps, beside each file's bytes, what a power cut would leave of them. Deterministic: a
//! seed chooses the salts and, at [`MemoryDisk::cut_power`], the fate of each 512-byte sector written since the last
//! sync (old, new, or torn between), of each length change and of each name that was not yet synced.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};

const SECTOR: usize = 512;

/// Shared by all its clones and files.
#[derive(Clone)]
pub struct MemoryDisk {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    random: u64,
    files: Vec<FileState>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// Name changes since the last `sync_dir`, oldest first.
    name_changes: Vec<NameChange>,
    locked: BTreeSet<PathBuf>,
    /// Steps (writes, syncs, name changes) until everything fails, as if the plug was pulled in the middle of one.
    steps_left: Option<u64>,
    /// Steps until one write or sync fails with an I/O error.
    error_in: Option<u64>,
    off: bool,
    space_bytes: u64,
    n_steps: u64,
    n_syncs: u64,
}

#[derive(Clone)]
enum NameChange {
    Create(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Default)]
struct FileState {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

impl MemoryDisk {
    /// An empty disk without limits or faults.
    pub fn new(seed: u64) -> MemoryDisk {
        MemoryDisk {
            shared: Arc::new(Mutex::new(Shared {
                random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
                files: Vec::new(),
                names: BTreeMap::new(),
                durable_names: BTreeMap::new(),
                name_changes: Vec::new(),
                locked: BTreeSet::new(),
                steps_left: None,
                error_in: None,
                off: false,
                space_bytes: u64::MAX,
                n_steps: 0,
                n_syncs: 0,
            })),
        }
    }

    /// After `steps` more steps every call fails; the write under way is applied in part.
    pub fn pull_plug_in(&self, steps: u64) {
        self.shared.lock().steps_left = Some(steps);
    }

    /// After `steps` more steps one write or sync fails with an I/O error; what follows works again.
    pub fn fail_in(&self, steps: u64) {
        self.shared.lock().error_in = Some(steps);
    }

    /// Space for files; creating beyond it fails with `StorageFull`.
    pub fn set_space(&self, bytes: u64) {
        self.shared.lock().space_bytes = bytes;
    }

    /// Keeps what a power cut keeps: all that was synced, and of the rest what the seed decides. Open files of before
    /// must no longer be used; locks are gone.
    pub fn cut_power(&self) {
        let mut shared = self.shared.lock();
        let shared = &mut *shared;
        for change in std::mem::take(&mut shared.name_changes) {
            if next(&mut shared.random).is_multiple_of(2) {
                change.apply(&mut shared.durable_names);
            }
        }
        shared.names = shared.durable_names.clone();
        for file in &mut shared.files {
            file.cut(&mut shared.random);
        }
        shared.locked.clear();
        shared.steps_left = None;
        shared.error_in = None;
        shared.off = false;
    }

    /// What a killed process leaves: everything written, synced or not. Locks are gone.
    pub fn kill_process(&self) {
        let mut shared = self.shared.lock();
        shared.locked.clear();
        shared.steps_left = None;
        shared.error_in = None;
        shared.off = false;
    }

    /// A disk with the same files, all durable, that shares nothing with this one.
    pub fn fork(&self, seed: u64) -> MemoryDisk {
        let copy = MemoryDisk::new(seed);
        {
            let from = self.shared.lock();
            let mut to = copy.shared.lock();
            to.files = from
                .files
                .iter()
                .map(|f| FileState { bytes: f.bytes.clone(), durable: f.bytes.clone(), dirty: BTreeSet::new() })
                .collect();
            to.names = from.names.clone();
            to.durable_names = from.names.clone();
        }
        copy
    }

    /// The bytes of a file as a process would read them.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let shared = self.shared.lock();
        shared.names.get(path).map(|&id| shared.files[id].bytes.clone())
    }

    /// Replaces a file's bytes behind the log's back, durably.
    pub fn replace(&self, path: &Path, bytes: Vec<u8>) {
        let mut shared = self.shared.lock();
        if let Some(&id) = shared.names.get(path) {
            shared.files[id] = FileState { durable: bytes.clone(), bytes, dirty: BTreeSet::new() };
        }
    }

    /// All paths, sorted.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.shared.lock().names.keys().cloned().collect()
    }

    /// Writes, syncs and name changes so far.
    pub fn n_steps(&self) -> u64 {
        self.shared.lock().n_steps
    }

    /// Flushes of files so far.
    pub fn n_syncs(&self) -> u64 {
        self.shared.lock().n_syncs
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            NameChange::Create(path, id) => {
                names.insert(path, id);
            }
            NameChange::Rename(from, to) => {
                if let Some(id) = names.remove(&from) {
                    names.insert(to, id);
                }
            }
            NameChange::Remove(path) => {
                names.remove(&path);
            }
        }
    }
}

impl FileState {
    fn cut(&mut self, random: &mut u64) {
        if self.bytes.len() != self.durable.len() && next(random).is_multiple_of(2) {
            self.durable.resize(self.bytes.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            let start = sector * SECTOR;
            let end = (start + SECTOR).min(self.bytes.len()).min(self.durable.len());
            if start >= end {
                continue;
            }
            let kept = match next(random) % 8 {
                0..=2 => 0,
                3..=6 => end - start,
                _ => next(random) as usize % (end - start),
            };
            self.durable[start..start + kept].copy_from_slice(&self.bytes[start..start + kept]);
        }
        self.bytes = self.durable.clone();
    }

    fn write(&mut self, data: &[u8], offset: usize) {
        let end = offset + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(data);
        if !data.is_empty() {
            self.dirty.extend(offset / SECTOR..=(end - 1) / SECTOR);
        }
    }
}

/// xorshift64*: enough to choose fates.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
}

impl Shared {
    fn alive(&self) -> io::Result<()> {
        if self.off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Counts one step. `Ok(false)`: the plug is pulled during this step.
    fn step(&mut self) -> io::Result<bool> {
        self.alive()?;
        self.n_steps += 1;
        if let Some(left) = &mut self.error_in {
            if *left == 0 {
                self.error_in = None;
                return Err(io::Error::other("injected I/O error"));
            }
            *left -= 1;
        }
        if let Some(left) = &mut self.steps_left {
            if *left == 0 {
                self.off = true;
                return Ok(false);
            }
            *left -= 1;
        }
        Ok(true)
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let survives = self.step()?;
        if survives || next(&mut self.random).is_multiple_of(2) {
            change.clone().apply(&mut self.names);
            self.name_changes.push(change);
        }
        self.alive()
    }

    fn used(&self) -> u64 {
        self.names.values().map(|&id| self.files[id].bytes.len() as u64).sum()
    }
}

impl Disk for MemoryDisk {
    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        self.shared.lock().alive()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let shared = self.shared.lock();
        shared.alive()?;
        let inside = shared.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_string())).collect())
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut shared = self.shared.lock();
        if shared.used() + len > shared.space_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let id = shared.files.len();
        shared.files.push(FileState { bytes: vec![0; len as usize], ..FileState::default() });
        shared.change_name(NameChange::Create(path.to_path_buf(), id))?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), id }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let shared = self.shared.lock();
        shared.alive()?;
        match shared.names.get(path) {
            Some(&id) => Ok(Arc::new(MemoryFile { disk: self.clone(), id })),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.lock().change_name(NameChange::Rename(from.to_path_buf(), to.to_path_buf()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.shared.lock().change_name(NameChange::Remove(path.to_path_buf()))
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut shared = self.shared.lock();
        if !shared.step()? {
            return shared.alive();
        }
        shared.name_changes.clear();
        shared.durable_names = shared.names.clone();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let mut shared = self.shared.lock();
        shared.alive()?;
        if !shared.locked.insert(path.to_path_buf()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryLock { disk: self.clone(), path: path.to_path_buf() })))
    }

    fn salt(&self) -> u64 {
        let mut shared = self.shared.lock();
        next(&mut shared.random) << 8 ^ next(&mut shared.random)
    }
}

struct MemoryLock {
    disk: MemoryDisk,
    path: PathBuf,
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.disk.shared.lock().locked.remove(&self.path);
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    id: usize,
}

impl MemoryFile {
    fn sync(&self) -> io::Result<()> {
        let mut shared = self.disk.shared.lock();
        if !shared.step()? {
            return shared.alive();
        }
        shared.n_syncs += 1;
        let file = &mut shared.files[self.id];
        if file.durable.len() != file.bytes.len() {
            file.durable = file.bytes.clone();
        }
        for sector in std::mem::take(&mut file.dirty) {
            let start = (sector * SECTOR).min(file.bytes.len());
            let end = (start + SECTOR).min(file.bytes.len());
            file.durable[start..end].copy_from_slice(&file.bytes[start..end]);
        }
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn size_bytes(&self) -> io::Result<u64> {
        let shared = self.disk.shared.lock();
        shared.alive()?;
        Ok(shared.files[self.id].bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let shared = self.disk.shared.lock();
        shared.alive()?;
        let bytes = &shared.files[self.id].bytes;
        let start = offset as usize;
        match bytes.get(start..start.saturating_add(buf.len())) {
            Some(from) => {
                buf.copy_from_slice(from);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, slices: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut shared = self.disk.shared.lock();
        let mut data: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let survives = shared.step()?;
        if !survives {
            let keep = next(&mut shared.random) as usize % (data.len() + 1);
            data.truncate(keep);
        }
        shared.files[self.id].write(&data, offset as usize);
        shared.alive()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut shared = self.disk.shared.lock();
        if shared.step()? {
            shared.files[self.id].bytes.resize(len as usize, 0);
        }
        shared.alive()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }
}
