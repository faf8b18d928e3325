//! Which pages are near, and who fetches the others? Every missing page is fetched by one reader while the others wait
//! for it.
//!
//! A fetch ("flight") is a future that all who wait for it share: whoever is polled moves it on, so a reader that is
//! cancelled leaves the others nothing to repair, and when nobody waits any more the fetch ends too. Pages enter memory
//! and the disk's queue only whole.
//!
//! Locks, in this order: `flights`, `ram`, the disk's. None is held across an await.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, Shared, WeakShared};
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use tarn_metastore::Checksums;

use super::bytes::PageBytes;
use super::fetch::{Pages, again, fetch};
use super::format::{FiledPage, PageName};
use super::key::{Object, PageKey};
use super::objects::Objects;
use super::options::PageOptions;
use super::plan::runs;
use super::stats::{ClearStats, Meter, PageStats, PageUsage, PagesHeld};
use crate::Result;
use crate::disk_cache::{DiskCache, DiskCacheOptions, DiskKey, DiskUsage, FolderContent, Location, ReadAll};
use crate::s3fifo::S3Fifo;
use crate::ttl::{Ttl, now_ms, oldest_ms};

/// Requests of one read that are under way at once.
const REQUESTS_AT_ONCE: usize = 16;
/// Bytes that one task reads into one buffer. Allocators give larger ones back to the system each time, which costs
/// more than reading.
const MAX_READ_BYTES: u64 = 4 << 20;
/// What is read on the thread that asks, if it is in the system's page cache: 100 to 200 µs.
const MAX_INLINE_BYTES: u64 = 1 << 20;
/// How often a read looks again after a page on disk turned out to be damaged or evicted, before it fetches past the
/// disk.
const MAX_ROUNDS: usize = 4;

/// Pages of objects in memory and on disk, shared by cloning. Which store they came from is part of their key.
#[derive(Clone)]
pub struct PageCache(Arc<PageCacheInner>);

struct PageCacheInner {
    options: PageOptions,
    on: AtomicBool,
    stats: Arc<Mutex<PageStats>>,
    runtime: Handle,
    flights: Mutex<HashMap<PageKey, (u64, WeakShared<Flight>)>>,
    next_flight: AtomicU64,
    ttl: Option<Ttl>,
    /// Pages, and when they were fetched.
    ram: Mutex<S3Fifo<PageKey, (Bytes, i64)>>,
    disk: Option<Arc<DiskCache<FiledPage>>>,
    objects: Mutex<Objects>,
}

/// Where pages come from that are not near.
pub(crate) struct Origin<'a> {
    /// Is asked for what is not near.
    pub store: &'a Arc<dyn ObjectStore>,
    /// In the state that the store last named.
    pub object: &'a Arc<Object>,
    /// What the store gives must match them.
    pub checksums: Option<&'a Arc<Checksums>>,
}

/// What a fetch gives everybody who waits for it. A page is missing when its file on disk was no good.
type Flight = BoxFuture<'static, Result<Arc<Pages>, Arc<object_store::Error>>>;

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCache").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl PageCache {
    /// Opens the cache; pages that an earlier process left in the folder are taken over. Blocking work runs on
    /// `runtime`.
    ///
    /// Cost: lists the folder, and reads the first bytes of one file per object: call it from a thread that may block.
    /// Errors: [`crate::Error::Folder`] when the folder cannot be used, or another process uses it.
    pub fn open(options: PageOptions, runtime: Handle) -> Result<PageCache> {
        Self::open_with_ttl(options, runtime, None)
    }

    /// The same; a page that was fetched longer ago than `ttl` is fetched again. Nothing needs this to be right: it is
    /// for who may not keep bytes any longer.
    pub fn open_with_ttl(options: PageOptions, runtime: Handle, ttl: Option<Ttl>) -> Result<PageCache> {
        let mut objects = Objects::default();
        let disk = match &options.folder {
            None => None,
            Some(folder) => {
                let disk_cache = DiskCacheOptions {
                    folder: folder.clone(),
                    max_bytes: options.disk_bytes,
                    max_waiting_bytes: options.waiting_bytes,
                    runtime: runtime.clone(),
                    ttl: ttl.clone(),
                };
                Some(DiskCache::open(disk_cache, |id, key| {
                    let Some(key) = key() else { return FolderContent::Foreign };
                    let Some(name) = PageName::read(&key) else { return FolderContent::Foreign };
                    let Some(object) = name.object().filter(|object| object.id == id) else {
                        return FolderContent::Foreign;
                    };
                    if name.page_bytes != options.page_bytes {
                        return FolderContent::Useless;
                    }
                    let end = object.n_pages(options.page_bytes.into()).into();
                    objects.insert(Arc::new(object));
                    FolderContent::Values { end }
                })?)
            }
        };
        Ok(PageCache(Arc::new(PageCacheInner {
            on: AtomicBool::new(true),
            stats: Arc::default(),
            runtime,
            flights: Mutex::default(),
            next_flight: AtomicU64::new(0),
            ttl,
            ram: Mutex::new(S3Fifo::new(options.ram_bytes)),
            disk,
            objects: Mutex::new(objects),
            options,
        })))
    }

    /// Switches the whole layer; what it holds stays, and is right when it is switched on again.
    pub fn set_on(&self, on: bool) {
        self.0.on.store(on, Ordering::Relaxed);
    }

    /// Whether it is switched on.
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Counters since it was opened.
    pub fn stats(&self) -> PageStats {
        let mut stats = *self.0.stats.lock();
        if let Some(disk) = self.0.disk.as_ref().map(|disk| disk.stats()) {
            stats.disk_evicted = disk.evicted;
            stats.disk_evicted_bytes = disk.evicted_bytes;
            stats.written = disk.written;
            stats.dropped = disk.dropped;
            stats.damaged = disk.damaged;
            stats.expired += disk.expired;
            stats.write_failures = disk.write_failures;
            stats.refused = disk.not_written;
        }
        stats
    }

    /// What it holds now.
    pub fn held(&self) -> PagesHeld {
        let DiskUsage { files, bytes, waiting_bytes, stopped } =
            self.0.disk.as_ref().map(|disk| disk.held()).unwrap_or_default();
        let ram = self.0.ram.lock();
        PagesHeld {
            ram_pages: ram.len() as u64,
            ram_bytes: ram.bytes(),
            disk_pages: files,
            disk_bytes: bytes,
            waiting_bytes,
            stopped,
        }
    }

    /// Its sizes.
    pub fn options(&self) -> &PageOptions {
        &self.0.options
    }

    /// Writes what waits to be written. Blocks on the disk; for the end of a process, and for tests.
    pub fn write_waiting(&self) {
        if let Some(disk) = &self.0.disk {
            disk.drain();
        }
    }

    /// Deletes pages on disk, of at least `bytes` or all, and returns how many bytes they took: for when others need
    /// the disk ([`crate::shortage`]). Blocks on the disk.
    pub fn give_back(&self, bytes: u64) -> u64 {
        self.0.disk.as_ref().map_or(0, |disk| disk.give_back(bytes))
    }

    /// Writes to disk again after a failed write stopped it (see [`PagesHeld::stopped`]), until the next failure.
    pub fn resume_writing(&self) {
        if let Some(disk) = &self.0.disk {
            disk.resume();
        }
    }

    /// Drops the pages of `store` (of all, if `None`) whose object lies under `prefix` (anywhere, if `None`). Blocks on
    /// the disk. What is being fetched meanwhile is kept: it is younger than this call.
    pub fn clear(&self, store: Option<&str>, prefix: Option<&Path>) -> ClearStats {
        let of = |object: &Object| {
            store.is_none_or(|store| object.store.as_ref() == store)
                && prefix.is_none_or(|prefix| object.path == *prefix || object.path.prefix_matches(prefix))
        };
        let mut objects = self.0.objects.lock();
        let mut gone = HashSet::new();
        gone.extend(objects.by_id.values().filter(|object| of(object)).map(|object| object.id));
        let n_objects = gone.len() as u64;
        objects.remove(&gone);
        drop(objects);
        if store.is_none() && prefix.is_none() {
            gone.extend(self.0.live_objects()); // also what is not listed at this moment
        }

        let mut ram = self.0.ram.lock();
        let pages: Vec<PageKey> = ram.keys().filter(|key| gone.contains(&key.object)).copied().collect();
        pages.iter().for_each(|key| drop(ram.remove(key)));
        drop(ram);
        ClearStats {
            objects: n_objects,
            ram_pages: pages.len() as u64,
            disk_pages: self.0.disk.as_ref().map_or(0, |disk| disk.clear(|object| gone.contains(&object))),
        }
    }

    pub(crate) fn meter(&self, query: Option<PageUsage>) -> Meter {
        Meter::new(Arc::clone(&self.0.stats), query)
    }

    /// The object under the id of `object`, which is kept under it if there was none. `None`: another object has the
    /// same hash.
    pub(crate) fn intern(&self, object: Object) -> Option<Arc<Object>> {
        let mut objects = self.0.objects.lock();
        if let Some(known) = objects.by_id.get(&object.id).cloned() {
            return known.is_same(&object).then_some(known);
        }
        if objects.is_full() {
            drop(objects);
            let live = self.0.live_objects();
            objects = self.0.objects.lock();
            objects.retain(&live);
        }
        let object = Arc::new(object);
        objects.insert(Arc::clone(&object));
        Some(object)
    }

    /// How many writes there were: to be asked before the store is asked what is at a path.
    pub(crate) fn writes(&self) -> u64 {
        self.0.objects.lock().writes
    }

    /// The same as [`PageCache::intern`], of an object that the store said is at its path, asked after so many
    /// `writes`.
    pub(crate) fn found(&self, object: Object, writes: u64) -> Option<Arc<Object>> {
        let object = self.intern(object)?;
        let mut objects = self.0.objects.lock();
        if objects.writes == writes {
            objects.current.insert((Arc::clone(&object.store), object.path.clone()), object.id);
        }
        drop(objects);
        Some(object)
    }

    /// What the store last said is at `path`.
    pub(crate) fn current(&self, store: &Arc<str>, path: &Path) -> Option<Arc<Object>> {
        let objects = self.0.objects.lock();
        let id = objects.current.get(&(Arc::clone(store), path.clone()))?;
        objects.by_id.get(id).cloned()
    }

    /// The known state of `path` with this strong ETag.
    pub(crate) fn with_etag(&self, store: &Arc<str>, path: &Path, etag: &str) -> Option<Arc<Object>> {
        let objects = self.0.objects.lock();
        let ids = objects.by_path.get(&(Arc::clone(store), path.clone()))?;
        let mut known = ids.iter().rev().filter_map(|id| objects.by_id.get(id));
        known.find(|object| object.state.strong_etag() == Some(etag)).cloned()
    }

    /// What is at `path` may be another object now. The pages of the one before stay, under its own name.
    pub(crate) fn forget(&self, store: &Arc<str>, path: &Path) {
        let mut objects = self.0.objects.lock();
        objects.writes += 1;
        objects.current.remove(&(Arc::clone(store), path.clone()));
    }

    /// Pages `asked` (sorted, each once) of an object, from memory, from disk, or from where it is.
    ///
    /// Errors: those of the store; then no page of a failed request is kept.
    pub(crate) async fn read(
        &self,
        from: &Origin<'_>,
        asked: &[u32],
        meter: &Meter,
    ) -> object_store::Result<BTreeMap<u32, PageBytes>> {
        let mut have = BTreeMap::new();
        for round in 0.. {
            let missing: Vec<u32> = asked.iter().filter(|page| !have.contains_key(*page)).copied().collect();
            if missing.is_empty() {
                break;
            }
            let flights = self.look(from, &missing, round < MAX_ROUNDS, &mut have, meter);
            let mut landed = stream::iter(flights).buffer_unordered(REQUESTS_AT_ONCE);
            while let Some(pages) = landed.try_next().await.map_err(|error| again(&error))? {
                let wanted = pages.iter().filter(|(page, _)| missing.binary_search(page).is_ok());
                have.extend(wanted.map(|(page, bytes)| (*page, bytes.clone())));
            }
        }
        Ok(have)
    }

    /// Puts what memory has of `missing` into `have`, and returns the fetches that bring the rest: those of others, and
    /// new ones.
    fn look(
        &self,
        from: &Origin<'_>,
        missing: &[u32],
        use_disk: bool,
        have: &mut BTreeMap<u32, PageBytes>,
        meter: &Meter,
    ) -> Vec<Shared<Flight>> {
        let (inner, object) = (&self.0, from.object);
        let mut counts = PageStats::default();
        let (mut joined, mut joined_ids) = (vec![], HashSet::new());
        let (mut on_disk, mut absent, mut hot) = (vec![], vec![], vec![]);
        let oldest_ms = oldest_ms(&inner.ttl);
        let mut flights = inner.flights.lock();
        {
            let mut ram = inner.ram.lock();
            for &page in missing {
                let key = PageKey { object: object.id, page };
                let mut in_memory = ram.get(&key).cloned();
                if in_memory.as_ref().is_some_and(|(_, fetched_ms)| *fetched_ms < oldest_ms) {
                    counts.expired += 1;
                    ram.remove(&key);
                    in_memory = None;
                }
                if let Some((bytes, _)) = in_memory {
                    counts.ram_hits += 1;
                    counts.ram_bytes += bytes.len() as u64;
                    have.insert(page, bytes.into());
                    hot.push(inner.filed(object, page).entry_id());
                    continue;
                }
                if let Some((id, flight)) = flights.get(&key) {
                    if joined_ids.contains(id) {
                        counts.waited += 1;
                        continue;
                    }
                    if let Some(flight) = flight.upgrade() {
                        counts.waited += 1;
                        joined_ids.insert(*id);
                        joined.push(flight);
                        continue;
                    }
                }
                match inner.disk.as_ref().and_then(|disk| disk.lookup(&inner.filed(object, page))) {
                    Some(Location::Waiting(bytes)) => {
                        counts.ram_hits += 1;
                        counts.ram_bytes += bytes.len() as u64;
                        have.insert(page, bytes.into());
                    }
                    Some(Location::File) if use_disk => on_disk.push(page),
                    _ => absent.push(page),
                }
            }
        }
        if let Some(disk) = inner.disk.as_ref().filter(|_| !hot.is_empty()) {
            disk.touch(hot.into_iter());
        }
        counts.misses = absent.len() as u64;
        meter.add(counts);

        let page_bytes = u64::from(inner.options.page_bytes);
        let gap = (inner.options.coalesce_gap_bytes / page_bytes) as u32;
        let longest = (inner.options.max_request_bytes / page_bytes).clamp(1, u64::from(u32::MAX)) as u32;
        let longest_read = (MAX_READ_BYTES / page_bytes).clamp(1, u64::from(longest)) as u32;
        let mut started = vec![];
        for run in runs(&absent, gap, longest) {
            let flight = inner.next_flight.fetch_add(1, Ordering::Relaxed);
            let guard =
                FlightGuard { inner: Arc::clone(inner), object: object.id, pages: run.clone().collect(), flight };
            started.push((flight, run.clone().collect::<Vec<_>>(), self.remote(from, run, guard, meter)));
        }
        for run in runs(&on_disk, 0, longest_read) {
            let flight = inner.next_flight.fetch_add(1, Ordering::Relaxed);
            let pages: Vec<u32> = run.collect();
            let guard = FlightGuard { inner: Arc::clone(inner), object: object.id, pages: pages.clone(), flight };
            started.push((flight, pages.clone(), self.read_off_disk(object, pages, guard, meter)));
        }
        for (id, pages, future) in started {
            let shared = future.shared();
            if let Some(weak) = shared.downgrade() {
                for page in pages {
                    let key = PageKey { object: object.id, page };
                    // Where a run fills a gap with what another flight brings, that one stays the page's.
                    let theirs = flights.get(&key).is_some_and(|(id, _)| joined_ids.contains(id));
                    if !theirs {
                        flights.insert(key, (id, weak.clone()));
                    }
                }
            }
            joined.push(shared);
        }
        joined
    }

    fn remote(&self, from: &Origin<'_>, run: std::ops::Range<u32>, guard: FlightGuard, meter: &Meter) -> Flight {
        let (inner, store, object, meter) =
            (Arc::clone(&self.0), Arc::clone(from.store), Arc::clone(from.object), meter.clone());
        let checksums = from.checksums.cloned();
        async move {
            let page_bytes = u64::from(inner.options.page_bytes);
            let fetched = fetch(store.as_ref(), &object, run, page_bytes, checksums.as_deref(), &meter);
            let pages = fetched.await.map_err(Arc::new)?;
            inner.keep(&object, &pages, now_ms(&inner.ttl));
            if let Some(disk) = &inner.disk {
                for (page, bytes) in &pages {
                    disk.enqueue(inner.filed(&object, *page), bytes.alone());
                }
            }
            drop(guard);
            Ok(Arc::new(pages))
        }
        .boxed()
    }

    fn read_off_disk(&self, object: &Arc<Object>, run: Vec<u32>, guard: FlightGuard, meter: &Meter) -> Flight {
        let (inner, object, meter) = (Arc::clone(&self.0), Arc::clone(object), meter.clone());
        let runtime = inner.runtime.clone();
        async move {
            let pages = match inner.read_cached(&object, &run) {
                Some(pages) => pages,
                None => {
                    let (inner, object) = (Arc::clone(&inner), Arc::clone(&object));
                    let task = move || inner.read_run(&object, &run);
                    runtime.spawn_blocking(task).await.unwrap_or_default()
                }
            };
            meter.add(PageStats {
                disk_hits: pages.len() as u64,
                disk_bytes: pages.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
                ..PageStats::default()
            });
            drop(guard);
            Ok(Arc::new(pages))
        }
        .boxed()
    }
}

impl PageCacheInner {
    fn filed(&self, object: &Arc<Object>, page: u32) -> FiledPage {
        FiledPage { object: Arc::clone(object), page, page_bytes: self.options.page_bytes }
    }

    /// The pages of a short `run`, if no disk must be waited for.
    fn read_cached(&self, object: &Arc<Object>, run: &[u32]) -> Option<Pages> {
        if run.len() as u64 * u64::from(self.options.page_bytes) > MAX_INLINE_BYTES {
            return None;
        }
        let keys: Vec<_> = run.iter().map(|&page| self.filed(object, page)).collect();
        let read = self.disk.as_ref()?.read_cached(&keys)?;
        Some(self.taken_in(object, run, read))
    }

    /// The pages of `run` that the folder has. Blocks on the disk.
    fn read_run(&self, object: &Arc<Object>, run: &[u32]) -> Pages {
        let Some(disk) = &self.disk else { return vec![] };
        let keys: Vec<_> = run.iter().map(|&page| self.filed(object, page)).collect();
        self.taken_in(object, run, disk.read_all(&keys))
    }

    /// What was read of `run`; memory may keep it.
    fn taken_in(&self, object: &Arc<Object>, run: &[u32], read: ReadAll) -> Pages {
        let (mut pages, mut fetched_ms) = (vec![], i64::MAX);
        for (page, found) in run.iter().zip(read.values) {
            let Some((part, written_ms)) = found else { continue };
            pages.push((*page, PageBytes::part_of(&read.buffer, part)));
            fetched_ms = fetched_ms.min(written_ms);
        }
        self.keep(object, &pages, fetched_ms);
        pages
    }

    /// Puts pages into memory that were fetched then, or later. Those beside their neighbours are copied: while there
    /// is room, or when they are asked for a second time.
    fn keep(&self, object: &Arc<Object>, pages: &Pages, fetched_ms: i64) {
        // It may have been cleared meanwhile: whoever has pages is known, so that the next call finds them.
        let mut objects = self.objects.lock();
        if !objects.by_id.contains_key(&object.id) {
            objects.insert(Arc::clone(object));
        }
        drop(objects);
        let key = |page: u32| PageKey { object: object.id, page };
        let mut ram = self.ram.lock();
        let (mut wanted, mut wanted_bytes) = (vec![], 0);
        for (page, bytes) in pages {
            let (key, weight) = (key(*page), bytes.len() as u64);
            if ram.contains(&key) || !ram.fits(weight) {
                continue;
            }
            if bytes.is_alone() || ram.has_room(wanted_bytes + weight) || ram.is_ghost(&key) {
                wanted.push((*page, bytes));
                wanted_bytes += weight;
            } else {
                ram.remember(key, weight);
            }
        }
        drop(ram);
        let copies: Vec<(u32, Bytes)> = wanted.into_iter().map(|(page, bytes)| (page, bytes.alone())).collect();
        let mut evicted = vec![];
        let mut ram = self.ram.lock();
        for (page, bytes) in copies {
            let weight = bytes.len() as u64;
            if !ram.contains(&key(page)) {
                ram.insert(key(page), (bytes, fetched_ms), weight, &mut evicted);
            }
        }
        drop(ram);
        self.stats.lock().ram_evicted += evicted.len() as u64;
    }

    fn live_objects(&self) -> HashSet<u128> {
        let mut live: HashSet<u128> = self.flights.lock().keys().map(|key| key.object).collect();
        live.extend(self.ram.lock().keys().map(|key| key.object));
        if let Some(disk) = &self.disk {
            disk.groups(&mut live);
        }
        live
    }
}

/// Takes a flight off the list when it has landed, or when nobody waits for it any more.
struct FlightGuard {
    inner: Arc<PageCacheInner>,
    object: u128,
    pages: Vec<u32>,
    flight: u64,
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        let mut flights = self.inner.flights.lock();
        for &page in &self.pages {
            let key = PageKey { object: self.object, page };
            if flights.get(&key).is_some_and(|(flight, _)| *flight == self.flight) {
                flights.remove(&key);
            }
        }
    }
}
