//! A store in memory that counts, waits at a gate and fails on command, and what the tests ask of caches.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::*;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tarn_cache::{PageCache, PageOptions, PageStore, Trust};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

pub const PAGE: u64 = 64;

/// What is remembered of the reads: per object and range, how often.
#[derive(Debug, Default)]
pub struct ReadLog {
    pub gets: HashMap<(Path, Range<u64>), usize>,
    pub heads: usize,
    pub lists: usize,
}

impl ReadLog {
    pub fn n_gets(&self) -> usize {
        self.gets.values().sum()
    }

    pub fn bytes(&self) -> u64 {
        self.gets.iter().map(|((_, range), n)| (range.end - range.start) * *n as u64).sum()
    }
}

/// `plain` is what is really there, without faults and uncounted.
#[derive(Debug)]
pub struct TestStore {
    pub plain: Arc<InMemory>,
    pub seen: Mutex<ReadLog>,
    /// Of a hundred calls, so many fail in some way.
    pub faults_percent: AtomicU32,
    /// Whether the store gives ETags.
    pub etags: AtomicBool,
    /// GETs, and PUTs that are done already, wait for a permit; closed by [`TestStore::gated`].
    gate: Semaphore,
    dice: Mutex<StdRng>,
}

impl TestStore {
    pub fn new() -> Arc<Self> {
        Self::with_gate(Semaphore::MAX_PERMITS, 0)
    }

    pub fn seeded(seed: u64) -> Arc<Self> {
        Self::with_gate(Semaphore::MAX_PERMITS, seed)
    }

    /// No GET and no PUT comes back before [`TestStore::open`].
    pub fn gated() -> Arc<Self> {
        Self::with_gate(0, 0)
    }

    fn with_gate(permits: usize, seed: u64) -> Arc<Self> {
        Arc::new(TestStore {
            plain: Arc::default(),
            seen: Mutex::default(),
            faults_percent: AtomicU32::new(0),
            etags: AtomicBool::new(true),
            gate: Semaphore::new(permits),
            dice: Mutex::new(StdRng::seed_from_u64(seed)),
        })
    }

    pub fn open(&self) {
        self.gate.add_permits(1_000_000);
    }

    pub async fn put_plain(&self, path: &str, bytes: Vec<u8>) {
        self.plain.put(&Path::from(path), bytes.into()).await.unwrap();
    }

    pub fn take_seen(&self) -> ReadLog {
        std::mem::take(&mut self.seen.lock())
    }

    fn fault(&self) -> bool {
        self.dice.lock().random_range(0..100) < self.faults_percent.load(Ordering::Relaxed)
    }

    fn without_etag(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if !self.etags.load(Ordering::Relaxed) {
            meta.e_tag = None;
        }
        meta
    }
}

fn storm() -> Error {
    Error::Generic { store: "test", source: "503 Slow Down".into() }
}

impl fmt::Display for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestStore")
    }
}

#[async_trait]
impl ObjectStore for TestStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let put = self.plain.put_opts(location, payload, opts).await?;
        self.gate.acquire().await.unwrap().forget();
        if self.fault() { Err(storm()) } else { Ok(put) } // timed out, but it happened
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.plain.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        if head {
            self.seen.lock().heads += 1;
        }
        if self.fault() {
            return Err(storm());
        }
        let mut got = self.plain.get_opts(location, options).await?;
        got.meta = self.without_etag(got.meta);
        if head {
            return Ok(got);
        }
        *self.seen.lock().gets.entry((location.clone(), got.range.clone())).or_default() += 1;
        self.gate.acquire().await.unwrap().forget();
        let fault = self.fault();
        let (meta, range, attributes) = (got.meta.clone(), got.range.clone(), got.attributes.clone());
        let bytes = got.bytes().await?;
        let pieces = match fault {
            false => bytes.chunks(37).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect::<Vec<_>>(),
            true => {
                let mut dice = self.dice.lock();
                let n = dice.random_range(0..=bytes.len());
                let mut pieces = vec![Ok(bytes.slice(..n))]; // short, and no error
                if dice.random() {
                    pieces.push(Err(storm())); // the connection broke
                }
                pieces
            }
        };
        Ok(GetResult { payload: GetResultPayload::Stream(stream::iter(pieces).boxed()), meta, range, attributes })
    }

    /// One by one: the default joins ranges, and panics where the joined one ends behind the object.
    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let mut got = vec![];
        for range in ranges {
            got.push(self.get_range(location, range.clone()).await?);
        }
        Ok(got)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.plain.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.seen.lock().lists += 1;
        self.plain.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.seen.lock().lists += 1;
        self.plain.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.plain.copy_opts(from, to, options).await
    }
}

/// Small pages in memory alone.
pub fn options() -> PageOptions {
    PageOptions {
        page_bytes: PAGE as u32,
        ram_bytes: 1 << 20,
        coalesce_gap_bytes: 0,
        max_request_bytes: 1 << 20,
        ..PageOptions::default()
    }
}

/// The same, and a folder; memory holds nothing, so that every hit is the disk's.
pub fn on_disk(folder: &std::path::Path) -> PageOptions {
    PageOptions { ram_bytes: 0, folder: Some(folder.to_owned()), disk_bytes: 8 << 20, ..options() }
}

pub fn cached(inner: &Arc<TestStore>, options: PageOptions, trust: Trust) -> PageStore {
    let cache = open(options);
    PageStore::new(Arc::clone(inner) as Arc<dyn ObjectStore>, cache, "test://store", trust)
}

/// Opens a cache, also right after the one before was dropped: its writer may be about to let the folder go.
pub fn open(options: PageOptions) -> PageCache {
    for _ in 0..1_000_000 {
        match PageCache::open(options.clone(), Handle::current()) {
            Err(_) => std::thread::yield_now(),
            Ok(cache) => return cache,
        }
    }
    panic!("the folder is not let go")
}

/// Bytes that differ from place to place and from seed to seed.
pub fn bytes(seed: u64, n: usize) -> Vec<u8> {
    let mut dice = StdRng::seed_from_u64(seed);
    (0..n).map(|_| dice.random()).collect()
}

/// Every file below `folder` that holds a page.
pub fn page_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut folders) = (vec![], vec![folder.join("v1")]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue }; // the writer has just deleted it
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}
