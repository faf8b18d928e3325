//! What is kept near, and what does it do? Opens the layers of caches, puts them around stores, and tells of them.
//!
//! ```text
//!              ┌─ ListedStore ── attach passes list through it
//! store ── CachedStore (counts)
//!              └─ PageStore ──── queries read through it
//! ```
//!
//! A folder of this machine gets neither listings nor pages: the system keeps it near already (`cache_local` = on: it
//! does all the same).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Weak};

use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use tarn_cache::{
    CacheStats, CachedStore, FooterCache, FragmentCache, FragmentOptions, ListedStore, ListingOptions, ListingStats,
    PageCache, PageOptions, PageStore, ProjectedCache, ReadStore, StoreStats, Trust, Ttl,
};
use tarn_types::{Clock, TableId};
use tokio::runtime::Handle;

use crate::error::{Error, Result, chain};
use crate::settings::NodeSettings;
use crate::stores::StoreLocation;
use crate::threads::blocking;

const LOCAL: &str = "the files are on a local disk";

/// A layer that can be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Where columns lie, as the metastore said it.
    Metadata,
    /// Footers of Parquet files.
    Footers,
    /// Bytes of objects, in memory and in a folder.
    Pages,
    /// What leaves of plans gave, in memory and in a folder.
    Fragments,
    /// What lies in folders of archives.
    Listings,
}

impl Layer {
    /// In the order in which they are shown.
    pub const ALL: [Layer; 5] = [Layer::Metadata, Layer::Footers, Layer::Pages, Layer::Fragments, Layer::Listings];

    /// As settings and `tarn.caches` have it.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Metadata => "metadata",
            Layer::Footers => "footers",
            Layer::Pages => "pages",
            Layer::Fragments => "fragments",
            Layer::Listings => "listings",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often it is tried again to write what could not be written, and room is given back.
const RESUME_MS: i64 = 60_000;

/// All layers of a node.
pub struct Caches {
    /// For all who read files whole.
    pub footers: Arc<FooterCache>,
    /// For the query engine, which puts it together.
    pub metadata: Arc<ProjectedCache>,
    pages: PageCache,
    /// For the query engine, which knows what is in it.
    pub fragments: FragmentCache,
    /// Why pages, and why fragments, are not kept on disk although they should be.
    no_disk: [Option<String>; 2],
    listing: ListingOptions,
    listings_on: bool,
    is_local_cached: bool,
    /// When writing of pages, and of fragments, was last looked after.
    resumed_ms: Mutex<[Option<i64>; 2]>,
    given_back_ms: Mutex<Option<i64>>,
    clock: Arc<dyn Clock>,
    /// By the place's name. Stores that nobody has any more are forgotten when the next one comes.
    stores: Mutex<Vec<(String, WrappedStore)>>,
}

struct WrappedStore {
    counted: Weak<CachedStore>,
    listed: Option<Weak<ListedStore>>,
}

/// A store with its layers around it.
#[derive(Clone)]
pub struct CachingStore {
    /// For who writes and lists.
    pub store: Arc<dyn ObjectStore>,
    /// For queries.
    pub read: ReadStore,
    listed: Option<Arc<ListedStore>>,
}

impl CachingStore {
    /// The next listings are the store's own.
    pub fn forget_listings(&self) {
        if let Some(listed) = &self.listed {
            listed.clear(None);
        }
    }
}

/// What of the files of a table is meant.
#[derive(Debug, Clone)]
pub struct FilesOf {
    /// Whose files they are.
    pub table: TableId,
    /// As in [`tarn_cache::FooterKey`].
    pub store_id: u64,
    /// The place's name.
    pub store: String,
    /// Below which they lie in the store; `None`: anywhere.
    pub prefix: Option<Path>,
}

/// What was dropped, per layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropStats {
    /// By its name.
    pub layer: &'static str,
    /// Of it, in memory and on disk.
    pub entries: u64,
}

/// One layer in one place, as `tarn.caches` and `/metrics` show it. `None`: it has no such thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLayerStatus {
    /// By its name.
    pub layer: &'static str,
    /// `memory` or `disk`.
    pub place: &'static str,
    /// By the settings of the node.
    pub is_on: bool,
    /// That it has now.
    pub entries: u64,
    /// That these take.
    pub bytes: u64,
    /// That they may take.
    pub max_bytes: u64,
    /// Since the start.
    pub hits: u64,
    /// Since the start.
    pub misses: u64,
    /// Bytes that were not fetched.
    pub hit_bytes: Option<u64>,
    /// Entries that went to make room.
    pub evicted: u64,
    /// Not kept: too much was waiting to be written, or writing has stopped.
    pub dropped: Option<u64>,
    /// Entries whose checksum did not fit; each was a miss.
    pub damaged: Option<u64>,
    /// Why it keeps nothing, or no more.
    pub reason: Option<String>,
}

impl Caches {
    /// Opens the layers. A folder that cannot be used is no reason not to start: pages are kept in memory then, and it
    /// is said.
    ///
    /// Cost: lists the folder.
    pub async fn open(settings: &NodeSettings, clock: Arc<dyn Clock>, runtime: Handle) -> Result<Caches> {
        let ttl_ms = settings.cache_ttl_ms;
        let ttl = (ttl_ms > 0).then(|| Ttl { ttl_ms, clock: Arc::clone(&clock) });
        let pages = PageOptions {
            page_bytes: u32::try_from(settings.cache_page_bytes).unwrap_or(u32::MAX),
            ram_bytes: settings.cache_pages_ram_bytes,
            folder: (settings.cache_pages && settings.cache_pages_disk_bytes > 0)
                .then(|| settings.cache_location().join("pages")),
            disk_bytes: settings.cache_pages_disk_bytes,
            ..PageOptions::default()
        };
        let fragments = FragmentOptions {
            ram_bytes: settings.cache_fragments_ram_bytes,
            folder: (settings.cache_fragments && settings.cache_fragments_disk_bytes > 0)
                .then(|| settings.cache_location().join("fragments")),
            disk_bytes: settings.cache_fragments_disk_bytes,
            runtime: Some(runtime.clone()),
            ttl: ttl.clone(),
            ..FragmentOptions::default()
        };
        let started_ms = clock.now_ms();
        let opened = blocking(move || {
            let (folder, without) = (pages.folder.clone(), PageOptions { folder: None, ..pages.clone() });
            let open = |options| PageCache::open_with_ttl(options, runtime.clone(), ttl.clone());
            let (pages, no_pages) = on_disk(open, pages, folder, without)?;
            let (folder, without) = (fragments.folder.clone(), FragmentOptions { folder: None, ..fragments.clone() });
            let (fragments, no_fragments) = on_disk(FragmentCache::open, fragments, folder, without)?;
            Ok((pages, fragments, [no_pages, no_fragments]))
        });
        let (pages, fragments, no_disk) = opened.await?;
        pages.set_on(settings.cache_pages);
        fragments.set_on(settings.cache_fragments);
        tracing::info!(
            pages = pages.held().disk_pages,
            fragments = fragments.held().disk_fragments,
            ms = clock.now_ms() - started_ms,
            "caches opened"
        );
        Ok(Caches {
            footers: Arc::new(FooterCache::new(settings.footer_cache_bytes as usize)),
            metadata: Arc::new(ProjectedCache::new(settings.metastore_cache_bytes as usize)),
            pages,
            fragments,
            no_disk,
            listing: ListingOptions {
                max_bytes: settings.cache_listings_bytes as usize,
                ttl_ms: settings.cache_listings_ttl_ms.try_into().unwrap_or(i64::MAX),
                sealed_after_ms: settings.cache_sealed_after_ms.try_into().unwrap_or(i64::MAX),
                open: settings.cache_open.split_whitespace().map(str::to_owned).collect(),
            },
            listings_on: settings.cache_listings,
            is_local_cached: settings.cache_local,
            resumed_ms: Mutex::default(),
            given_back_ms: Mutex::default(),
            clock,
            stores: Mutex::default(),
        })
    }

    /// Around the lake's own store, in which no name is used twice.
    pub fn around_lake(&self, location: &StoreLocation, store: Arc<dyn ObjectStore>) -> CachingStore {
        let counted = Arc::new(CachedStore::new(store));
        self.remember(location, &counted, None);
        let read = self.read(location, Arc::clone(&counted) as _, Trust::WrittenOnce);
        CachingStore { store: counted, read, listed: None }
    }

    /// Around a store that others write.
    pub fn around_external_table(&self, location: &StoreLocation, store: Arc<dyn ObjectStore>) -> CachingStore {
        let counted = Arc::new(CachedStore::new(store));
        let read = self.read(location, Arc::clone(&counted) as _, Trust::Checked);
        let is_listed = self.listings_on && self.is_cached(location);
        let listed = is_listed.then(|| {
            let (listing, clock) = (self.listing.clone(), Arc::clone(&self.clock));
            Arc::new(ListedStore::new(Arc::clone(&counted) as _, listing, clock))
        });
        self.remember(location, &counted, listed.as_ref());
        let store = listed.clone().map_or(counted as Arc<dyn ObjectStore>, |listed| listed);
        CachingStore { store, read, listed }
    }

    fn is_cached(&self, location: &StoreLocation) -> bool {
        self.is_local_cached || !matches!(location, StoreLocation::Folder(_))
    }

    fn read(&self, location: &StoreLocation, store: Arc<dyn ObjectStore>, trust: Trust) -> ReadStore {
        let options = self.pages.options();
        match () {
            () if !self.is_cached(location) => ReadStore::plain(store, LOCAL),
            () if !self.pages.is_on() => ReadStore::plain(store, "cache_pages is off"),
            () if options.ram_bytes == 0 && options.folder.is_none() => {
                ReadStore::plain(store, "there is no room for pages")
            }
            () => ReadStore::paged(Arc::new(PageStore::new(store, self.pages.clone(), &location.to_string(), trust))),
        }
    }

    fn remember(&self, location: &StoreLocation, counted: &Arc<CachedStore>, listed: Option<&Arc<ListedStore>>) {
        let mut stores = self.stores.lock();
        stores.retain(|(_, wrapped)| wrapped.counted.strong_count() > 0);
        let wrapped = WrappedStore { counted: Arc::downgrade(counted), listed: listed.map(Arc::downgrade) };
        stores.push((location.to_string(), wrapped));
    }

    /// Calls and bytes that reached the stores, by the name of their place.
    pub fn store_stats(&self) -> BTreeMap<String, StoreStats> {
        let mut by_name = BTreeMap::<String, StoreStats>::new();
        for (name, wrapped) in self.stores.lock().iter() {
            let Some(counted) = wrapped.counted.upgrade() else { continue };
            let StoreStats { reads, read_bytes, writes, written_bytes, lists } = counted.stats();
            let sum = by_name.entry(name.clone()).or_default();
            sum.reads += reads;
            sum.read_bytes += read_bytes;
            sum.writes += writes;
            sum.written_bytes += written_bytes;
            sum.lists += lists;
        }
        by_name
    }

    /// Empties one layer, or all of them, of everything or of what belongs to one table. Blocks on the disk.
    ///
    /// Files that are being read meanwhile may come back into it.
    pub(crate) fn drop_layer(&self, layer: Option<Layer>, of: Option<&FilesOf>) -> Vec<DropStats> {
        let wants = |which| layer.is_none_or(|layer| layer == which);
        let mut dropped = vec![];
        if wants(Layer::Metadata) {
            let entries = self.metadata.clear(of.map(|of| of.table));
            dropped.push(DropStats { layer: Layer::Metadata.name(), entries });
        }
        if wants(Layer::Footers) {
            let entries = self.footers.clear(of.map(|of| of.store_id), of.and_then(|of| of.prefix.as_ref()));
            dropped.push(DropStats { layer: Layer::Footers.name(), entries });
        }
        if wants(Layer::Pages) {
            let cleared = self.pages.clear(of.map(|of| of.store.as_str()), of.and_then(|of| of.prefix.as_ref()));
            dropped.push(DropStats { layer: Layer::Pages.name(), entries: cleared.ram_pages + cleared.disk_pages });
        }
        if wants(Layer::Fragments) {
            let scope = of.map(|of| of.table.0.to_string());
            let cleared = self.fragments.clear(scope.as_deref());
            let entries = cleared.ram_fragments + cleared.disk_fragments;
            dropped.push(DropStats { layer: Layer::Fragments.name(), entries });
        }
        if wants(Layer::Listings) {
            let listed = self.listed(of.map(|of| of.store.as_str()));
            let entries = listed.iter().map(|listed| listed.clear(None)).sum();
            dropped.push(DropStats { layer: Layer::Listings.name(), entries });
        }
        dropped
    }

    fn listed(&self, name: Option<&str>) -> Vec<Arc<ListedStore>> {
        let stores = self.stores.lock();
        let meant = stores.iter().filter(|(of, _)| name.is_none_or(|name| of == name));
        meant.filter_map(|(_, wrapped)| wrapped.listed.as_ref()?.upgrade()).collect()
    }

    /// Every layer as it is now.
    pub fn standings(&self) -> Vec<CacheLayerStatus> {
        let mut all = vec![in_memory("metadata", self.metadata.stats()), in_memory("footers", self.footers.stats())];
        all.extend(self.pages_standing());
        all.extend(self.fragments_standing());
        all.push(self.listings_standing());
        all
    }

    fn pages_standing(&self) -> [CacheLayerStatus; 2] {
        let (stats, held, options) = (self.pages.stats(), self.pages.held(), self.pages.options());
        let tiers = Tiers {
            layer: Layer::Pages,
            is_on: self.pages.is_on(),
            entries: [held.ram_pages, held.disk_pages],
            bytes: [held.ram_bytes, held.disk_bytes],
            max_bytes: [options.ram_bytes, options.folder.as_ref().map_or(0, |_| options.disk_bytes)],
            has_disk: options.folder.is_some(),
            hits: [stats.ram_hits, stats.disk_hits],
            misses: stats.misses,
            hit_bytes: [stats.ram_bytes, stats.disk_bytes],
            evicted: [stats.ram_evicted, stats.disk_evicted],
            dropped: stats.dropped + stats.refused,
            damaged: stats.damaged,
            stopped: held.stopped.or_else(|| self.no_disk[0].clone()),
        };
        tiers.standings()
    }

    fn fragments_standing(&self) -> [CacheLayerStatus; 2] {
        let (stats, held, options) = (self.fragments.stats(), self.fragments.held(), self.fragments.options());
        let tiers = Tiers {
            layer: Layer::Fragments,
            is_on: self.fragments.is_on(),
            entries: [held.ram_fragments, held.disk_fragments],
            bytes: [held.ram_bytes, held.disk_bytes],
            max_bytes: [options.ram_bytes, options.folder.as_ref().map_or(0, |_| options.disk_bytes)],
            has_disk: options.folder.is_some(),
            hits: [stats.ram_hits, stats.disk_hits],
            misses: stats.misses,
            hit_bytes: [stats.ram_bytes, stats.disk_bytes],
            evicted: [stats.ram_evicted, stats.disk_evicted],
            dropped: stats.dropped + stats.not_written,
            damaged: stats.damaged,
            stopped: held.stopped.or_else(|| self.no_disk[1].clone()),
        };
        tiers.standings()
    }

    fn listings_standing(&self) -> CacheLayerStatus {
        let mut sum = ListingStats::default();
        for ListingStats { hits, lists, expired, evicted, entries, bytes } in
            self.listed(None).iter().map(|listed| listed.stats())
        {
            sum.hits += hits;
            sum.lists += lists;
            sum.expired += expired;
            sum.evicted += evicted;
            sum.entries += entries;
            sum.bytes += bytes;
        }
        CacheLayerStatus {
            layer: "listings",
            place: "memory",
            is_on: self.listings_on,
            entries: sum.entries,
            bytes: sum.bytes,
            max_bytes: self.listing.max_bytes as u64,
            hits: sum.hits,
            misses: sum.lists,
            hit_bytes: None,
            evicted: sum.evicted,
            dropped: None,
            damaged: None,
            reason: (!self.listings_on).then(|| "cache_listings is off".to_owned()),
        }
    }

    /// Pages that found no room, or had to go to make some.
    pub fn lost_pages(&self) -> u64 {
        let stats = self.pages.stats();
        let evicted = match self.pages.options().folder {
            Some(_) => stats.disk_evicted,
            None => stats.ram_evicted,
        };
        evicted + stats.dropped + stats.refused
    }

    /// Gives back what others need of the disk. Tries again, once a minute, to write to disk what had stopped being
    /// written, if there is room. Blocks on the disk.
    pub fn maintain(&self) {
        let (pages, fragments) = (self.pages.options(), self.fragments.options());
        let stopped = [
            (self.pages.held().stopped, pages.folder.as_deref()),
            (self.fragments.held().stopped, fragments.folder.as_deref()),
        ];
        let now_ms = self.clock.now_ms();
        if let Some(folder) = pages.folder.as_deref().or(fragments.folder.as_deref()) {
            self.give_back(folder, now_ms);
        }
        let mut resumed = self.resumed_ms.lock();
        for (at, (reason, folder)) in stopped.into_iter().enumerate() {
            let Some(reason) = reason else { continue };
            if resumed[at].is_some_and(|ms| now_ms.saturating_sub(ms) < RESUME_MS) {
                continue;
            }
            resumed[at] = Some(now_ms);
            if folder.is_none_or(|folder| shortage(folder) > 0) {
                tracing::warn!("not written to disk any more, until there is room: {reason}");
                continue;
            }
            tracing::warn!("writing to disk had stopped, and is tried again: {reason}");
            match at {
                0 => self.pages.resume_writing(),
                _ => self.fragments.resume_writing(),
            }
        }
    }

    /// What was deleted may take a while to be free: once in [`RESUME_MS`] is enough.
    fn give_back(&self, folder: &FilePath, now_ms: i64) {
        let short = tarn_cache::shortage(folder).unwrap_or(0);
        let mut given_ms = self.given_back_ms.lock();
        if short == 0 || given_ms.is_some_and(|ms| now_ms.saturating_sub(ms) < RESUME_MS) {
            return;
        }
        *given_ms = Some(now_ms);
        let pages = self.pages.give_back(short);
        let given = pages + if short > pages { self.fragments.give_back(short - pages) } else { 0 };
        tracing::warn!("the disk of {} is nearly full: {given} bytes of caches were given back", folder.display());
    }

    /// Writes what waits to be written. Blocks on the disk.
    pub fn close(&self) {
        self.pages.write_waiting();
        self.fragments.write_waiting();
    }
}

/// What is missing of the disk's part that is left to others; as much as can be, when it does not say.
fn shortage(folder: &FilePath) -> u64 {
    tarn_cache::shortage(folder).unwrap_or(u64::MAX)
}

/// A layer in memory in front of a folder: figures of both, memory first.
struct Tiers {
    layer: Layer,
    is_on: bool,
    has_disk: bool,
    entries: [u64; 2],
    bytes: [u64; 2],
    max_bytes: [u64; 2],
    hits: [u64; 2],
    /// Of both.
    misses: u64,
    hit_bytes: [u64; 2],
    evicted: [u64; 2],
    dropped: u64,
    damaged: u64,
    /// Why nothing is written to disk.
    stopped: Option<String>,
}

impl Tiers {
    fn standings(self) -> [CacheLayerStatus; 2] {
        let layer = self.layer.name();
        let off = (!self.is_on).then(|| format!("cache_{layer} is off"));
        let of = |at: usize, place| CacheLayerStatus {
            layer,
            place,
            is_on: self.is_on,
            entries: self.entries[at],
            bytes: self.bytes[at],
            max_bytes: self.max_bytes[at],
            hits: self.hits[at],
            misses: self.misses,
            hit_bytes: Some(self.hit_bytes[at]),
            evicted: self.evicted[at],
            dropped: None,
            damaged: None,
            reason: off.clone(),
        };
        let memory = CacheLayerStatus {
            is_on: self.is_on && self.max_bytes[0] > 0,
            // What memory does not have, the disk may.
            misses: self.hits[1] + self.misses,
            ..of(0, "memory")
        };
        let disk = CacheLayerStatus {
            is_on: self.is_on && self.has_disk,
            dropped: Some(self.dropped),
            damaged: Some(self.damaged),
            reason: off.clone().or_else(|| self.stopped.clone()),
            ..of(1, "disk")
        };
        [memory, disk]
    }
}

fn in_memory(layer: &'static str, stats: CacheStats) -> CacheLayerStatus {
    let CacheStats { hits, misses, evicted, entries, bytes, max_bytes } = stats;
    CacheLayerStatus {
        layer,
        place: "memory",
        is_on: max_bytes > 0,
        entries,
        bytes,
        max_bytes,
        hits,
        misses,
        hit_bytes: None,
        evicted,
        dropped: None,
        damaged: None,
        reason: (max_bytes == 0).then(|| "its size is 0".to_owned()),
    }
}

/// The cache as it was asked for or, if its folder cannot be used, without one, and why.
fn on_disk<O, C>(
    open: impl Fn(O) -> tarn_cache::Result<C>,
    options: O,
    folder: Option<PathBuf>,
    without: O,
) -> Result<(C, Option<String>)> {
    let failed = |error: tarn_cache::Error| Error::of_kind(error.kind(), chain(&error));
    let error = match (open(options), folder) {
        (Err(error), Some(_)) => chain(&error),
        (opened, _) => return Ok((opened.map_err(failed)?, None)),
    };
    tracing::warn!("kept in memory only: {error}");
    Ok((open(without).map_err(failed)?, Some(error)))
}
