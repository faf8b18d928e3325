//! What lies in this directory? Listings of directories into which nothing comes any more, kept for a while.
//!
//! ```text
//! logs/              always listed: what is asked for itself is never answered from here
//! logs/dt=11-19/     sealed: nothing in it is younger than `sealed_after_ms`, no open pattern fits      <- kept, with all below it
//! logs/dt=11-21/     open: listed each time
//! ```
//!
//! A listing is the one thing here that no ETag proves: a file that arrives late in a sealed directory is seen when the
//! entry is older than `ttl_ms`. Whoever cannot have that names the directory open, or switches the layer off. What is
//! written or deleted through this store is seen at once.
//!
//! Bounded by bytes; the least recently used go first.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use futures::{TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use parking_lot::Mutex;
use tarn_types::Clock;

use crate::finally::DropGuard;

/// Memory of one listed object besides its names.
const OBJECT_BYTES: usize = size_of::<ObjectMeta>() + 16;

/// Which directories are sealed, and how much of them is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingOptions {
    /// Memory for listings. Default 64 MiB.
    pub max_bytes: usize,
    /// A listing is made anew when it is older. Default 1 day.
    pub ttl_ms: i64,
    /// A directory is sealed when the youngest object in or below it is older. Default 1 day.
    pub sealed_after_ms: i64,
    /// Directories that are always listed, and all that lie above and below them: their paths with `*` for any
    /// characters but `/`. Default none.
    pub open: Vec<String>,
}

impl Default for ListingOptions {
    fn default() -> Self {
        const DAY_MS: i64 = 24 * 60 * 60 * 1000;
        ListingOptions { max_bytes: 64 << 20, ttl_ms: DAY_MS, sealed_after_ms: DAY_MS, open: vec![] }
    }
}

/// Counters since the store was wrapped, and what is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListingStats {
    /// Directories answered from memory.
    pub hits: u64,
    /// LIST requests.
    pub lists: u64,
    /// Entries that were too old.
    pub expired: u64,
    /// Entries that left to make room.
    pub evicted: u64,
    /// Sealed directories held.
    pub entries: u64,
    /// Their memory.
    pub bytes: u64,
}

/// An object store whose recursive listings ([`ObjectStore::list`]) go through a cache. Everything else passes through.
pub struct ListedStore {
    inner: Arc<dyn ObjectStore>,
    shared: Arc<Listings>,
}

struct Listings {
    options: ListingOptions,
    clock: Arc<dyn Clock>,
    on: AtomicBool,
    state: Mutex<ListingState>,
}

#[derive(Default)]
struct ListingState {
    /// By the directory's path with a `/` behind it, so that all below a directory follow it.
    sealed: BTreeMap<String, ListingEntry>,
    by_use: BTreeMap<u64, String>,
    uses: u64,
    stats: ListingStats,
    /// Grows with each write: a listing that was begun before it is not kept.
    writes: u64,
}

struct ListingEntry {
    objects: Arc<[ObjectMeta]>,
    listed_ms: i64,
    bytes: usize,
    used: u64,
}

impl ListedStore {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>, options: ListingOptions, clock: Arc<dyn Clock>) -> Self {
        let shared = Listings { options, clock, on: AtomicBool::new(true), state: Mutex::default() };
        ListedStore { inner, shared: Arc::new(shared) }
    }

    /// Switches the layer. Off, every listing is the store's.
    pub fn set_on(&self, on: bool) {
        self.shared.on.store(on, Ordering::Relaxed);
    }

    /// Counters and size.
    pub fn stats(&self) -> ListingStats {
        self.shared.state.lock().stats
    }

    /// Drops the directories in, below and above `prefix` (all, if `None`), and returns how many.
    pub fn clear(&self, prefix: Option<&Path>) -> u64 {
        match prefix {
            Some(prefix) => self.shared.state.lock().forget(&folder(prefix)),
            None => self.shared.state.lock().forget(""),
        }
    }
}

/// `dir` with a `/` behind it; the root is empty.
fn folder(dir: &Path) -> String {
    if dir.as_ref().is_empty() { String::new() } else { format!("{dir}/") }
}

/// Everything in and below `dir`, whose own directory is listed unless it is kept and `may_answer`.
fn walk(
    inner: Arc<dyn ObjectStore>,
    shared: Arc<Listings>,
    dir: Path,
    may_answer: bool,
) -> BoxFuture<'static, Result<BoxStream<'static, Result<ObjectMeta>>>> {
    async move {
        let name = folder(&dir);
        if let Some(objects) = may_answer.then(|| shared.sealed(&name)).flatten() {
            return Ok(stream::iter((0..objects.len()).map(move |i| Ok(objects[i].clone()))).boxed());
        }
        let prefix = (!name.is_empty()).then_some(&dir);
        if !shared.has_below(&name) {
            let writes = shared.begin();
            let listed: Vec<ObjectMeta> = inner.list(prefix).try_collect().await?;
            shared.keep(&name, may_answer, &listed, writes);
            return Ok(stream::iter(listed.into_iter().map(Ok)).boxed());
        }
        shared.begin();
        let ListResult { objects, common_prefixes, .. } = inner.list_with_delimiter(prefix).await?;
        let below =
            stream::iter(common_prefixes).then(move |child| walk(Arc::clone(&inner), Arc::clone(&shared), child, true));
        Ok(stream::iter(objects.into_iter().map(Ok)).chain(below.try_flatten()).boxed())
    }
    .boxed()
}

impl Listings {
    /// What is kept of the directory `name`, unless it is too old.
    fn sealed(&self, name: &str) -> Option<Arc<[ObjectMeta]>> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        let age_ms = now_ms - state.sealed.get(name)?.listed_ms;
        if !(0..=self.options.ttl_ms).contains(&age_ms) {
            state.remove(name);
            state.stats.expired += 1;
            return None;
        }
        state.stats.hits += 1;
        state.uses += 1;
        let ListingState { sealed, by_use, uses, .. } = &mut *state;
        let entry = sealed.get_mut(name)?;
        by_use.remove(&entry.used);
        by_use.insert(*uses, name.to_owned());
        entry.used = *uses;
        Some(Arc::clone(&entry.objects))
    }

    fn has_below(&self, name: &str) -> bool {
        let state = self.state.lock();
        state
            .sealed
            .range(name.to_owned()..)
            .find(|(key, _)| *key != name)
            .is_some_and(|(key, _)| key.starts_with(name))
    }

    fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.stats.lists += 1;
        state.writes
    }

    /// Keeps the sealed directories among those of `listed`, which is everything below `name`: the uppermost ones,
    /// `name` itself only if it may.
    fn keep(&self, name: &str, itself: bool, listed: &[ObjectMeta], writes: u64) {
        let now_ms = self.clock.now_ms();
        // Of every directory below: the youngest object in it or deeper.
        let mut youngest: BTreeMap<&str, i64> = BTreeMap::new();
        for object in listed {
            let path = object.location.as_ref();
            for (at, _) in path.match_indices('/').filter(|(at, _)| at + usize::from(itself) >= name.len()) {
                let dir = youngest.entry(&path[..=at]).or_insert(i64::MIN);
                *dir = (*dir).max(object.last_modified.timestamp_millis());
            }
        }
        let is_old = |ms: i64| now_ms.saturating_sub(ms) > self.options.sealed_after_ms;
        let mut kept: BTreeMap<&str, Vec<ObjectMeta>> = BTreeMap::new();
        for (dir, ms) in &youngest {
            let above = kept.last_key_value().is_some_and(|(upper, _)| dir.starts_with(upper));
            if !above && is_old(*ms) && !self.is_open(dir) {
                kept.insert(dir, vec![]);
            }
        }
        for object in listed {
            let path = object.location.as_ref();
            if let Some((_, objects)) = kept.range_mut(..=path).next_back().filter(|(dir, _)| path.starts_with(**dir)) {
                objects.push(object.clone());
            }
        }
        let mut state = self.state.lock();
        if state.writes == writes {
            for (dir, objects) in kept {
                state.insert(dir, objects, now_ms, self.options.max_bytes);
            }
        }
    }

    /// Whether an open pattern fits `dir` (with a `/` behind it), or a directory above it or, as far as `dir` says,
    /// below it.
    fn is_open(&self, dir: &str) -> bool {
        let dir: Vec<&str> = dir.trim_end_matches('/').split('/').collect();
        self.options.open.iter().any(|pattern| {
            let pattern = pattern.trim_matches('/').split('/');
            pattern.zip(&dir).all(|(pattern, name)| fits(pattern, name))
        })
    }
}

/// Whether `name` is `pattern`, in which each `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(first) else { return false };
    (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| fits(rest, &name[at..]))
}

impl ListingState {
    fn insert(&mut self, dir: &str, objects: Vec<ObjectMeta>, listed_ms: i64, max_bytes: usize) {
        let names = |o: &ObjectMeta| o.location.as_ref().len() + o.e_tag.as_ref().map_or(0, String::len);
        let bytes = 2 * dir.len() + objects.iter().map(|o| OBJECT_BYTES + names(o)).sum::<usize>();
        self.remove(dir);
        if bytes > max_bytes {
            return;
        }
        while self.stats.bytes as usize + bytes > max_bytes {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.remove(&oldest);
            self.stats.evicted += 1;
        }
        self.uses += 1;
        self.by_use.insert(self.uses, dir.to_owned());
        self.sealed.insert(dir.to_owned(), ListingEntry { objects: objects.into(), listed_ms, bytes, used: self.uses });
        self.stats.entries += 1;
        self.stats.bytes += bytes as u64;
    }

    fn remove(&mut self, dir: &str) {
        if let Some(entry) = self.sealed.remove(dir) {
            self.by_use.remove(&entry.used);
            self.stats.entries -= 1;
            self.stats.bytes -= entry.bytes as u64;
        }
    }

    /// Drops the directories below `name` and those that contain it.
    fn forget(&mut self, name: &str) -> u64 {
        self.writes += 1;
        let below = self.sealed.range(name.to_owned()..).map(|(key, _)| key).take_while(|key| key.starts_with(name));
        let above =
            name.match_indices('/').filter_map(|(at, _)| self.sealed.get_key_value(&name[..=at]).map(|(key, _)| key));
        let mut gone: Vec<String> = below.chain(above).cloned().collect();
        gone.dedup();
        let before = self.stats.entries;
        gone.iter().for_each(|dir| self.remove(dir));
        before - self.stats.entries
    }
}

impl fmt::Debug for ListedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListedStore")
            .field("inner", &self.inner)
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ListedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListedStore({})", self.inner)
    }
}

impl ListedStore {
    fn written(&self, location: &Path) {
        self.shared.state.lock().forget(location.as_ref());
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for ListedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let _written = DropGuard(|| self.written(location)); // also after an error: it may have happened
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(Upload { upload, shared: Arc::clone(&self.shared), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (before, after) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let forget = |shared: &Listings, location: &Result<Path>| {
            if let Ok(location) = location {
                shared.state.lock().forget(location.as_ref());
            }
        };
        let asked = locations.inspect(move |location| forget(&before, location)).boxed();
        self.inner.delete_stream(asked).inspect(move |location| forget(&after, location)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if !self.shared.on.load(Ordering::Relaxed) {
            return self.inner.list(prefix);
        }
        let dir = prefix.cloned().unwrap_or_default();
        walk(Arc::clone(&self.inner), Arc::clone(&self.shared), dir, false).try_flatten_stream().boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _written = DropGuard(|| self.written(to));
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let _written = DropGuard(|| [from, to].iter().for_each(|path| self.written(path)));
        self.inner.rename_opts(from, to, options).await
    }
}

/// Forgets the listings that an upload makes old, when it ends.
struct Upload {
    upload: Box<dyn MultipartUpload>,
    shared: Arc<Listings>,
    location: Path,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({})", self.location)
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> object_store::UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (shared, location) = (&self.shared, &self.location);
        let _written = DropGuard(|| {
            shared.state.lock().forget(location.as_ref());
        });
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_fits_any_characters() {
        assert!(fits("dt=*", "dt=2026-11-21") && fits("*", "") && fits("a*c*e", "abcde") && fits("abc", "abc"));
        assert!(!fits("dt=*", "hr=1") && !fits("a*c", "abcd") && !fits("abc", "abcd"));
    }

    #[test]
    fn a_pattern_opens_what_is_above_and_below_it_too() {
        let options = ListingOptions { open: vec!["logs/*/live".into()], ..ListingOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(tarn_types::clock::ManualClock::new(0));
        let shared = Listings { options, clock, on: AtomicBool::new(true), state: Mutex::default() };
        assert!(["logs/", "logs/a/", "logs/a/live/", "logs/a/live/x/"].iter().all(|dir| shared.is_open(dir)));
        assert!(["other/", "logs/a/done/"].iter().all(|dir| !shared.is_open(dir)));
    }
}
