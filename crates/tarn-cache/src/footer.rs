//! Is this file's footer already parsed?
//!
//! A footer is found by store, path, size and ETag, so a replaced object is a miss. The cache is bounded by the bytes
//! that the parsed footers take; the least recently used go first. Concurrent misses of one file fetch it once.
//!
//! Invariant: a footer that is handed out has no bounds of float columns. Parquet's leave NaN out, filters do not.
//!
//! Locks: `entries` guards the map and is never held across a fetch; `loading` has one lock per file being fetched,
//! held across that fetch by the one who does it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;
use parquet::arrow::async_reader::MetadataFetch;
use parquet::basic::{LogicalType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::schema::types::ColumnDescriptor;

use crate::lru::Lru;
use crate::{CacheStats, Error, Result};

/// How many bytes of a file's end are asked for in the first read: most footers with their page index fit.
const FIRST_READ_BYTES: usize = 256 << 10;

/// The lake's own store, as [`FooterKey`] numbers stores.
pub const LAKE_STORE: u64 = 0;

/// What identifies one immutable state of one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FooterKey {
    /// Which store the object is in, as the caller numbers them; [`LAKE_STORE`]: the lake's.
    pub store: u64,
    /// Object key.
    pub path: Path,
    /// Size of the whole object.
    pub size_bytes: u64,
    /// ETag, where the store gives one.
    pub etag: Option<String>,
}

/// Parsed footers with their page index, bounded by bytes. Shared by cloning the `Arc` around it.
#[derive(Debug)]
pub struct FooterCache {
    entries: Mutex<Lru<FooterKey, Arc<ParquetMetaData>>>,
    loading: Mutex<HashMap<FooterKey, Arc<futures::lock::Mutex<()>>>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl FooterCache {
    /// A cache that holds at most `max_bytes` of parsed footers. With 0 every lookup reads the store.
    pub fn new(max_bytes: usize) -> Self {
        FooterCache {
            entries: Mutex::new(Lru::new(max_bytes)),
            loading: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The footer of `key`, with its page index if the file has one.
    ///
    /// Cost: nothing on a hit; on a miss one or two reads of `store`, shared by everyone who asks meanwhile.
    /// Errors: [`Error::Footer`]; nothing is kept then.
    pub async fn get(&self, key: &FooterKey, store: &dyn ObjectStore) -> Result<Arc<ParquetMetaData>> {
        self.get_by(key, RangeFetch { path: &key.path, store }, Ok).await
    }

    /// As [`get`](Self::get), by somebody else's reads, and kept as `prepare` makes it. Whoever asks for `key` prepares
    /// it alike.
    ///
    /// Errors: [`Error::Footer`], also those of `prepare`.
    pub async fn get_by(
        &self,
        key: &FooterKey,
        from: impl MetadataFetch,
        prepare: impl FnOnce(ParquetMetaData) -> parquet::errors::Result<ParquetMetaData>,
    ) -> Result<Arc<ParquetMetaData>> {
        if let Some(footer) = self.lookup(key) {
            return Ok(footer);
        }
        let gate = Arc::clone(self.loading.lock().entry(key.clone()).or_default());
        let waiting = FetchWaiter { cache: self, key, gate };
        let _fetching = waiting.gate.lock().await;
        if let Some(footer) = self.lookup(key) {
            return Ok(footer);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let fetched = fetch(key, from, prepare).await;
        if let Ok(footer) = &fetched {
            self.insert(key, footer);
        }
        fetched
    }

    /// Drops the footers of `store` (of all, if `None`) whose file lies under `prefix` (anywhere, if `None`); how many.
    pub fn clear(&self, store: Option<u64>, prefix: Option<&Path>) -> u64 {
        let is_meant = |key: &FooterKey| {
            store.is_none_or(|store| key.store == store) && prefix.is_none_or(|prefix| key.path.prefix_matches(prefix))
        };
        self.entries.lock().retain(|key| !is_meant(key))
    }

    /// Counters and size.
    pub fn stats(&self) -> CacheStats {
        let entries = self.entries.lock();
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evicted: entries.evicted(),
            entries: entries.len() as u64,
            bytes: entries.bytes() as u64,
            max_bytes: entries.max_bytes() as u64,
        }
    }

    fn lookup(&self, key: &FooterKey) -> Option<Arc<ParquetMetaData>> {
        let footer = Arc::clone(self.entries.lock().get(key)?);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(footer)
    }

    fn insert(&self, key: &FooterKey, footer: &Arc<ParquetMetaData>) {
        let bytes = footer.memory_size();
        self.entries.lock().insert(key.clone(), Arc::clone(footer), bytes);
    }
}

/// One who fetches or waits. The last one, cancelled or not, takes the lock of the file away.
struct FetchWaiter<'a> {
    cache: &'a FooterCache,
    key: &'a FooterKey,
    gate: Arc<futures::lock::Mutex<()>>,
}

impl Drop for FetchWaiter<'_> {
    fn drop(&mut self) {
        let mut loading = self.cache.loading.lock();
        // Clones are only made under this lock: the map's and this one.
        if Arc::strong_count(&self.gate) <= 2 {
            loading.remove(self.key);
        }
    }
}

async fn fetch(
    key: &FooterKey,
    from: impl MetadataFetch,
    prepare: impl FnOnce(ParquetMetaData) -> parquet::errors::Result<ParquetMetaData>,
) -> Result<Arc<ParquetMetaData>> {
    ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Optional)
        .with_prefetch_hint(Some(FIRST_READ_BYTES))
        .load_and_finish(from, key.size_bytes)
        .await
        .and_then(without_float_bounds)
        .and_then(prepare)
        .map(Arc::new)
        .map_err(|source| Error::Footer { path: key.path.to_string(), source })
}

/// Filters compare floats by `totalOrder`, where NaN is greater than any number: by bounds that are silent about it,
/// rows would be lost.
fn without_float_bounds(footer: ParquetMetaData) -> parquet::errors::Result<ParquetMetaData> {
    let leaves = footer.file_metadata().schema_descr().columns();
    let floats: Vec<bool> = leaves.iter().map(|leaf| is_float(leaf)).collect();
    if !floats.contains(&true) {
        return Ok(footer);
    }
    let mut builder = footer.into_builder();
    let mut groups = vec![];
    for group in builder.take_row_groups() {
        let mut group = group.into_builder();
        let columns = group.take_columns().into_iter().zip(&floats).map(|(column, is_float)| match is_float {
            true => column.into_builder().clear_statistics().build(),
            false => Ok(column),
        });
        let columns = columns.collect::<parquet::errors::Result<_>>()?;
        groups.push(group.set_column_metadata(columns).build()?);
    }
    let mut index = builder.take_column_index();
    for group in index.iter_mut().flatten() {
        let floats = group.iter_mut().zip(&floats).filter(|(_, is_float)| **is_float);
        floats.for_each(|(column, _)| *column = ColumnIndexMetaData::NONE);
    }
    Ok(builder.set_row_groups(groups).set_column_index(index).build())
}

fn is_float(leaf: &ColumnDescriptor) -> bool {
    matches!(leaf.physical_type(), Physical::FLOAT | Physical::DOUBLE)
        || matches!(leaf.logical_type_ref(), Some(LogicalType::Float16))
}

struct RangeFetch<'a> {
    path: &'a Path,
    store: &'a dyn ObjectStore,
}

impl MetadataFetch for RangeFetch<'_> {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        let (path, store) = (self.path, self.store);
        async move { store.get_range(path, range).await.map_err(|e| ParquetError::External(Box::new(e))) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use object_store::PutPayload;
    use object_store::memory::InMemory;
    use parquet::data_type::{DoubleType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use tarn_types::Kind;

    use super::*;

    async fn put(store: &InMemory, path: &str, n_rows: i64) -> FooterKey {
        let schema = Arc::new(parse_message_type("message t { REQUIRED INT64 a; }").unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::default())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&(0..n_rows).collect::<Vec<_>>(), None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        let bytes = writer.into_inner().unwrap();
        let path = Path::from(path);
        let size_bytes = bytes.len() as u64;
        let put = store.put(&path, PutPayload::from(bytes)).await.unwrap();
        FooterKey { store: 0, path, size_bytes, etag: put.e_tag }
    }

    #[tokio::test]
    async fn a_second_lookup_is_a_hit_and_has_the_page_index() {
        let store = InMemory::new();
        let key = put(&store, "a.parquet", 10).await;
        let cache = FooterCache::new(1 << 20);
        let first = cache.get(&key, &store).await.unwrap();
        let second = cache.get(&key, &store).await.unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert!(first.offset_index().is_some());
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.entries), (1, 1, 1));
        assert_eq!(stats.bytes, first.memory_size() as u64);
    }

    #[tokio::test]
    async fn floats_have_no_bounds() {
        let store = InMemory::new();
        let schema = Arc::new(parse_message_type("message t { REQUIRED INT64 a; REQUIRED DOUBLE b; }").unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::default())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&[1, 2], None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&[1.0, f64::NAN], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        let bytes = writer.into_inner().unwrap();
        let (path, size_bytes) = (Path::from("floats"), bytes.len() as u64);
        store.put(&path, PutPayload::from(bytes)).await.unwrap();
        let key = FooterKey { store: 0, path, size_bytes, etag: None };
        let footer = FooterCache::new(1 << 20).get(&key, &store).await.unwrap();
        let (integers, floats) = (footer.row_group(0).column(0), footer.row_group(0).column(1));
        assert!(integers.statistics().is_some() && floats.statistics().is_none());
        let index = &footer.column_index().unwrap()[0];
        assert!(!matches!(index[0], ColumnIndexMetaData::NONE) && matches!(index[1], ColumnIndexMetaData::NONE));
        assert!(footer.offset_index().is_some());
    }

    #[tokio::test]
    async fn a_replaced_object_is_a_miss() {
        let store = InMemory::new();
        let cache = FooterCache::new(1 << 20);
        let old = put(&store, "a.parquet", 10).await;
        assert_eq!(cache.get(&old, &store).await.unwrap().file_metadata().num_rows(), 10);
        let new = put(&store, "a.parquet", 10_000).await;
        assert_eq!(cache.get(&new, &store).await.unwrap().file_metadata().num_rows(), 10_000);
    }

    #[tokio::test]
    async fn the_same_path_in_two_stores_is_two_footers() {
        let (lake, archive) = (InMemory::new(), InMemory::new());
        let cache = FooterCache::new(1 << 20);
        let in_lake = put(&lake, "a.parquet", 10).await;
        let in_archive = FooterKey { store: 1, ..put(&archive, "a.parquet", 20).await };
        assert_eq!(cache.get(&in_lake, &lake).await.unwrap().file_metadata().num_rows(), 10);
        assert_eq!(cache.get(&in_archive, &archive).await.unwrap().file_metadata().num_rows(), 20);
    }

    #[tokio::test]
    async fn bytes_stay_under_the_bound_and_the_least_recently_used_goes_first() {
        let store = InMemory::new();
        let keys = [put(&store, "a", 5).await, put(&store, "b", 5).await, put(&store, "c", 5).await];
        let one = FooterCache::new(usize::MAX).get(&keys[0], &store).await.unwrap().memory_size();
        let cache = FooterCache::new(one * 2 + one / 2);
        cache.get(&keys[0], &store).await.unwrap();
        cache.get(&keys[1], &store).await.unwrap();
        cache.get(&keys[0], &store).await.unwrap(); // b is now the oldest
        cache.get(&keys[2], &store).await.unwrap();
        assert_eq!(cache.stats().entries, 2);
        assert!(cache.stats().bytes <= (one * 2 + one / 2) as u64);
        let misses = cache.stats().misses;
        cache.get(&keys[0], &store).await.unwrap();
        assert_eq!(cache.stats().misses, misses);
        cache.get(&keys[1], &store).await.unwrap();
        assert_eq!(cache.stats().misses, misses + 1);
    }

    #[tokio::test]
    async fn concurrent_misses_read_the_file_once() {
        let store = InMemory::new();
        let key = put(&store, "a", 5).await;
        let cache = FooterCache::new(1 << 20);
        let all = futures::future::join_all((0..8).map(|_| cache.get(&key, &store))).await;
        assert!(all.iter().all(|r| r.is_ok()));
        assert_eq!(cache.stats().misses, 1);
    }

    #[tokio::test]
    async fn a_cancelled_lookup_leaves_nothing() {
        let store = InMemory::new();
        let key = put(&store, "a", 5).await;
        let cache = FooterCache::new(1 << 20);
        let gate = Arc::<futures::lock::Mutex<()>>::default();
        let fetching = gate.lock().await;
        cache.loading.lock().insert(key.clone(), Arc::clone(&gate));
        let mut cancelled = Box::pin(cache.get(&key, &store));
        assert!(futures::poll!(&mut cancelled).is_pending());
        let mut waiting = Box::pin(cache.get(&key, &store));
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(cancelled);
        assert_eq!(cache.loading.lock().len(), 1, "somebody waits");
        drop(fetching);
        drop(gate);
        waiting.await.unwrap();
        assert!(cache.loading.lock().is_empty());
    }

    #[tokio::test]
    async fn bytes_that_are_no_footer_are_named_and_not_kept() {
        let store = InMemory::new();
        let path = Path::from("broken.parquet");
        store.put(&path, PutPayload::from_static(b"not a parquet file at all")).await.unwrap();
        let key = FooterKey { store: 0, path, size_bytes: 25, etag: None };
        let cache = FooterCache::new(1 << 20);
        let error = cache.get(&key, &store).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("broken.parquet"), "{error}");
        assert_eq!(cache.stats().entries, 0);
        let missing = FooterKey { store: 0, path: Path::from("none"), size_bytes: 100, etag: None };
        assert_eq!(cache.get(&missing, &store).await.unwrap_err().kind(), Kind::NotFound);
    }
}
