//! What is asked of the object store? Every call passes through here and is counted; below the page cache it sees what
//! reaches the store.
//!
//! It forwards each method by itself (never through a default that is built on another), so that no
//! capability of the store below is lost: conditional reads, suffix ranges, multipart writes, create-only puts.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// Calls and bytes since the store was wrapped. A read of several ranges is one read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Read calls, heads included.
    pub reads: u64,
    /// Bytes promised to readers.
    pub read_bytes: u64,
    /// Objects written, multipart uploads included.
    pub writes: u64,
    /// Bytes written in one piece (a multipart upload's parts are not counted).
    pub written_bytes: u64,
    /// Listings begun.
    pub lists: u64,
}

/// An object store with the cache's counters around it. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct CachedStore {
    inner: Arc<dyn ObjectStore>,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    lists: AtomicU64,
}

impl CachedStore {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        CachedStore {
            inner,
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            lists: AtomicU64::new(0),
        }
    }

    /// Counters so far.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            lists: self.lists.load(Ordering::Relaxed),
        }
    }

    fn count_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CachedStore({})", self.inner)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for CachedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let bytes = payload.content_length() as u64;
        let put = self.inner.put_opts(location, payload, opts).await?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(put)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        let got = self.inner.get_opts(location, options).await?;
        self.count_read(if head { 0 } else { got.range.end - got.range.start });
        Ok(got)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.count_read(ranges.iter().map(|r| r.end - r.start).sum());
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::{ObjectStoreExt, PutMode};

    use super::*;

    #[tokio::test]
    async fn calls_pass_through_and_are_counted() {
        let store = CachedStore::new(Arc::new(InMemory::new()));
        let path = Path::from("a/b");
        store.put(&path, PutPayload::from_static(b"0123456789")).await.unwrap();
        assert_eq!(store.get_range(&path, 2..5).await.unwrap(), Bytes::from_static(b"234"));
        assert_eq!(
            store.get_ranges(&path, &[0..1, 9..10]).await.unwrap(),
            vec![Bytes::from_static(b"0"), Bytes::from_static(b"9")]
        );
        let create = PutOptions { mode: PutMode::Create, ..Default::default() };
        assert!(store.put_opts(&path, PutPayload::from_static(b"x"), create).await.is_err());
        let stats = store.stats();
        assert_eq!(stats, StoreStats { reads: 2, read_bytes: 5, writes: 1, written_bytes: 10, lists: 0 });
    }
}
