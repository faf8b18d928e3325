//! What if the disk lies, fills up, or loses power?
//!
//! A disk in memory that keeps, beside each file's bytes, what a power cut would leave of them. Deterministic: a
//! seed chooses the salts and, at [`MemoryDisk::cut_power`], the fate of each 512-byte sector written since the last
//! sync (old, new, or torn between), of each length change and of each name that was not yet synced. Writes can be held
//! in flight, so that a test chooses which of two ends first, or cuts the power while neither has.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile};

const SECTOR: usize = 512;

/// Shared by all its clones and files.
#[derive(Clone)]
pub struct MemoryDisk {
    shared: Arc<Mutex<DiskState>>,
    /// Signalled when a write is held or its fate is decided.
    changed: Arc<Condvar>,
}

struct DiskState {
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
    holding: bool,
    /// Durable writes in flight, oldest first.
    held: Vec<HeldWrite>,
    n_held: u64,
    /// Files opened before the last power cut are of no use.
    generation: u64,
}

struct HeldWrite {
    id: u64,
    file: usize,
    bytes: Vec<u8>,
    offset: usize,
    /// `true`: it goes through, `false`: it fails.
    fate: Option<bool>,
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
            shared: Arc::new(Mutex::new(DiskState {
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
                holding: false,
                held: Vec::new(),
                n_held: 0,
                generation: 0,
            })),
            changed: Arc::default(),
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

    /// From now on durable writes stay in flight until [`MemoryDisk::release`]; `false` lets go of those that are.
    pub fn hold_writes(&self, hold: bool) {
        let mut shared = self.shared.lock();
        shared.holding = hold;
        if !hold {
            shared.held.iter_mut().for_each(|held| held.fate = held.fate.or(Some(true)));
            self.changed.notify_all();
        }
    }

    /// Blocks until so many writes are held.
    pub fn wait_held(&self, n: usize) {
        let mut shared = self.shared.lock();
        while shared.held.iter().filter(|held| held.fate.is_none()).count() < n {
            self.changed.wait(&mut shared);
        }
    }

    /// Ends the `nth` oldest of the held writes.
    pub fn release(&self, nth: usize) {
        let mut shared = self.shared.lock();
        if let Some(held) = shared.held.iter_mut().filter(|held| held.fate.is_none()).nth(nth) {
            held.fate = Some(true);
        }
        self.changed.notify_all();
    }

    /// Keeps what a power cut keeps: all that was synced, and of the rest, writes in flight too, what the seed decides.
    /// Files opened before fail from now on; locks are gone.
    pub fn cut_power(&self) {
        let mut shared = self.shared.lock();
        let shared = &mut *shared;
        shared.holding = false;
        for held in shared.held.iter_mut().filter(|held| held.fate.is_none()) {
            held.fate = Some(false);
            shared.files[held.file].write(&held.bytes, held.offset);
        }
        self.changed.notify_all();
        shared.generation += 1;
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
        shared.generation += 1;
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

impl DiskState {
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
        Ok(Arc::new(MemoryFile { disk: self.clone(), id, generation: shared.generation }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let shared = self.shared.lock();
        shared.alive()?;
        match shared.names.get(path) {
            Some(&id) => Ok(Arc::new(MemoryFile { disk: self.clone(), id, generation: shared.generation })),
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
    generation: u64,
}

impl MemoryFile {
    fn lock(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let shared = self.disk.shared.lock();
        shared.alive()?;
        match shared.generation == self.generation {
            true => Ok(shared),
            false => Err(io::Error::other("the file was opened before the power was cut")),
        }
    }

    /// One step that writes, whole or, when the plug is pulled during it, in part.
    fn write(&self, shared: &mut DiskState, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut keep = bytes.len();
        if !shared.step()? {
            keep = next(&mut shared.random) as usize % (bytes.len() + 1);
        }
        shared.files[self.id].write(&bytes[..keep], offset as usize);
        shared.alive()
    }

    /// Stays in flight while the disk holds writes.
    fn hold<'a>(
        &'a self,
        mut shared: MutexGuard<'a, DiskState>,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<MutexGuard<'a, DiskState>> {
        if !shared.holding {
            return Ok(shared);
        }
        let id = shared.n_held;
        shared.n_held += 1;
        shared.held.push(HeldWrite { id, file: self.id, bytes: bytes.to_vec(), offset: offset as usize, fate: None });
        self.disk.changed.notify_all();
        loop {
            let at = shared.held.iter().position(|held| held.id == id);
            let at = at.expect("only its writer takes a held write out");
            match shared.held[at].fate {
                None => self.disk.changed.wait(&mut shared),
                Some(passes) => {
                    shared.held.remove(at);
                    return if passes {
                        Ok(shared)
                    } else {
                        Err(io::Error::other("the power was cut during this write"))
                    };
                }
            }
        }
    }
}

impl DiskFile for MemoryFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.lock()?.files[self.id].bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let shared = self.lock()?;
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

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write(&mut *self.lock()?, bytes, offset)
    }

    fn write_durable(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut shared = self.hold(self.lock()?, bytes, offset)?;
        let shared = &mut *shared;
        self.write(shared, bytes, offset)?;
        if !shared.step()? {
            return shared.alive();
        }
        shared.n_syncs += 1;
        // Only these bytes: a write forced through to the medium says nothing of others.
        let (file, start, end) = (&mut shared.files[self.id], offset as usize, offset as usize + bytes.len());
        if file.durable.len() < end {
            file.durable.resize(end, 0);
        }
        file.durable[start..end].copy_from_slice(bytes);
        file.dirty.retain(|&sector| sector * SECTOR < start || (sector + 1) * SECTOR > end);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut shared = self.lock()?;
        if shared.step()? {
            shared.files[self.id].bytes.resize(len as usize, 0);
        }
        shared.alive()
    }

    fn sync(&self) -> io::Result<()> {
        let mut shared = self.lock()?;
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
