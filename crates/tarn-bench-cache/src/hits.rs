//! How fast is a hit? Folder and memory beside sequential reads of one file, alternating, with the system's page cache
//! and without.
//!
//! One reader, one range after the other, on a worker of the runtime as in the server. `plain` reads into one buffer
//! that is used again: nothing can be faster. `plain_owned` reads into a new buffer each time, as whoever hands out
//! bytes must.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tarn_cache::{ObjectState, PageCache, PageOptions, PageStore, ReadRequest, Trust};
use tokio::runtime::Handle;

use crate::report::Report;

/// What is measured.
pub struct Sizes<'a> {
    pub bytes: u64,
    pub pages_kib: &'a [u64],
    pub reads_kib: &'a [u64],
    pub rounds: usize,
}

/// Of these the disk is asked too.
const COLD_READS_KIB: [u64; 2] = [1024, 8192];

/// A cache that has the whole object.
struct FilledCache {
    store: Arc<PageStore>,
    path: Path,
    state: ObjectState,
    bytes: u64,
}

/// Adds rates and ratios of each page size and size of a read.
pub async fn run(dir: &FsPath, sizes: &Sizes<'_>, report: &mut Report, progress: &impl Fn(&str)) -> Result<()> {
    let (bytes, rounds) = (sizes.bytes, sizes.rounds);
    let plain = dir.join("plain");
    write_plain(&plain, bytes)?;
    for &page_kib in sizes.pages_kib {
        progress(&format!("hits, pages of {page_kib} KiB"));
        let folder = dir.join(format!("pages{page_kib}"));
        let (disk, ram) = fill(&plain, &folder, bytes, page_kib << 10).await?;
        for &read_kib in sizes.reads_kib {
            let at = |name: &str| Rates::new(format!("{name}_page{page_kib}k_read{read_kib}k"));
            let (mut file, mut owned, mut from_folder) = (at("plain"), at("plain_owned"), at("folder"));
            let (mut memory, mut file_disk, mut folder_disk) = (at("memory"), at("plain_disk"), at("folder_disk"));
            read_plain(&plain, read_kib << 10)?; // into the system's page cache
            disk.read(read_kib << 10).await?;
            for _ in 0..rounds {
                file.add(bytes, || read_plain(&plain, read_kib << 10))?;
                from_folder.add_async(bytes, disk.read(read_kib << 10)).await?;
                owned.add(bytes, || read_owned(&plain, read_kib << 10))?;
                memory.add_async(bytes, ram.read(read_kib << 10)).await?;
            }
            if COLD_READS_KIB.contains(&read_kib) {
                for _ in 0..rounds {
                    drop_cached(std::slice::from_ref(&plain))?;
                    file_disk.add(bytes, || read_plain(&plain, read_kib << 10))?;
                    drop_cached(&files(&folder)?)?;
                    folder_disk.add_async(bytes, disk.read(read_kib << 10)).await?;
                }
                folder_disk.over(&file_disk, report);
            }
            from_folder.over(&file, report);
            from_folder.over(&owned, report);
            memory.over(&file, report);
            for rates in [file, owned, from_folder, memory, file_disk, folder_disk] {
                report.figure(rates.name, "GB/s", &rates.all);
            }
        }
        let stats = disk.store.cache().stats();
        ensure!(stats.damaged == 0 && stats.requests == 0, "not only hits: {stats:?}");
        drop(disk);
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

struct Rates {
    name: String,
    /// GB/s of each round.
    all: Vec<f64>,
    /// GB for each second of a processor.
    per_cpu_s: Vec<f64>,
}

impl Rates {
    fn new(name: String) -> Self {
        Rates { name, all: vec![], per_cpu_s: vec![] }
    }

    fn add(&mut self, bytes: u64, read: impl FnOnce() -> Result<()>) -> Result<()> {
        let (t, cpu) = (Instant::now(), cpu_s()?);
        read()?;
        self.note(bytes, t, cpu)
    }

    async fn add_async(&mut self, bytes: u64, read: impl Future<Output = Result<()>>) -> Result<()> {
        let (t, cpu) = (Instant::now(), cpu_s()?);
        read.await?;
        self.note(bytes, t, cpu)
    }

    fn note(&mut self, bytes: u64, t: Instant, cpu: f64) -> Result<()> {
        self.all.push(bytes as f64 / t.elapsed().as_secs_f64() / 1e9);
        self.per_cpu_s.push(bytes as f64 / (cpu_s()? - cpu) / 1e9);
        Ok(())
    }

    /// Round by round: both were measured in a row.
    fn over(&self, other: &Rates, report: &mut Report) {
        let ratios = |mine: &[f64], theirs: &[f64]| mine.iter().zip(theirs).map(|(m, t)| m / t).collect::<Vec<_>>();
        let name = other.name.split("_page").next().unwrap_or_default();
        report.figure(format!("{}_over_{name}", self.name), "ratio", &ratios(&self.all, &other.all));
        let per_cpu_s = ratios(&self.per_cpu_s, &other.per_cpu_s);
        report.figure(format!("{}_over_{name}_cpu", self.name), "ratio", &per_cpu_s);
    }
}

/// What this process has used of all processors.
fn cpu_s() -> Result<f64> {
    let used = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(used.user_time()) + seconds(used.system_time()))
}

impl FilledCache {
    /// The whole object in pieces of `read_bytes`, one after the other, on a worker of the runtime.
    async fn read(&self, read_bytes: u64) -> Result<()> {
        let (store, path, bytes) = (Arc::clone(&self.store), self.path.clone(), self.bytes);
        let ask = ReadRequest { state: Some(self.state.clone()), ..ReadRequest::default() };
        let all = tokio::spawn(async move {
            for range in pieces(bytes, read_bytes) {
                let n = range.end - range.start;
                let got = store.read_ranges(&path, std::slice::from_ref(&range), &ask).await?;
                ensure!(got[0].len() as u64 == n, "short");
            }
            Ok(())
        });
        all.await?
    }
}

/// One cache with the object in its folder alone, opened anew, and one with it in memory alone. The stores behind them
/// are gone.
async fn fill(plain: &FsPath, folder: &FsPath, bytes: u64, page_bytes: u64) -> Result<(FilledCache, FilledCache)> {
    let path = Path::from("object");
    let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    inner.put(&path, std::fs::read(plain)?.into()).await?;
    let state = ObjectState::of(&inner.head(&path).await?);
    ensure!(state.size_bytes == bytes, "the object has another size");
    let on_disk = PageOptions {
        page_bytes: page_bytes as u32,
        ram_bytes: 0,
        folder: Some(folder.to_owned()),
        disk_bytes: bytes * 2,
        waiting_bytes: bytes * 2,
        ..PageOptions::default()
    };
    let in_memory = PageOptions { ram_bytes: bytes * 2, folder: None, ..on_disk.clone() };
    let filled = |cache: PageCache| FilledCache {
        store: Arc::new(PageStore::new(Arc::clone(&inner), cache, "bench", Trust::WrittenOnce)),
        path: path.clone(),
        state: state.clone(),
        bytes,
    };
    let disk = filled(PageCache::open(on_disk.clone(), Handle::current())?);
    disk.read(8 << 20).await?;
    disk.store.cache().write_waiting();
    ensure!(disk.store.cache().held().disk_pages == bytes.div_ceil(page_bytes), "{:?}", disk.store.cache().held());
    drop(disk);
    let disk = filled(opened(&on_disk)?);
    let ram = filled(PageCache::open(in_memory, Handle::current())?);
    ram.read(8 << 20).await?;
    inner.delete(&path).await?;
    Ok((disk, ram))
}

/// The writer of the cache before may be about to let the folder go.
fn opened(options: &PageOptions) -> Result<PageCache> {
    let mut tries = 0..1000;
    loop {
        match PageCache::open(options.clone(), Handle::current()) {
            Ok(cache) => return Ok(cache),
            Err(_) if tries.next().is_some() => std::thread::sleep(std::time::Duration::from_millis(1)),
            Err(error) => return Err(error.into()),
        }
    }
}

fn pieces(bytes: u64, read_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    (0..bytes.div_ceil(read_bytes)).map(move |i| i * read_bytes..((i + 1) * read_bytes).min(bytes))
}

fn write_plain(path: &FsPath, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut block = Vec::with_capacity(1 << 20);
    for _ in 0..bytes >> 20 {
        block.clear();
        while block.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend(state.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(())
}

fn read_plain(path: &FsPath, read_bytes: u64) -> Result<()> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut buffer = vec![0u8; read_bytes as usize];
    for range in pieces(len, read_bytes) {
        file.read_exact_at(&mut buffer[..(range.end - range.start) as usize], range.start)?;
    }
    Ok(())
}

fn read_owned(path: &FsPath, read_bytes: u64) -> Result<()> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    for range in pieces(len, read_bytes) {
        let mut buffer = vec![0u8; (range.end - range.start) as usize];
        file.read_exact_at(&mut buffer, range.start)?;
        drop(std::hint::black_box(Bytes::from(buffer)));
    }
    Ok(())
}

fn drop_cached(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let file = File::open(path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

fn files(folder: &FsPath) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (vec![], vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}
