//! A store that is far away: each request takes its time before the first byte, and all share one link.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How far away it is.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub latency: Duration,
    pub bytes_per_second: u64,
}

/// A store behind a link.
#[derive(Debug)]
pub struct Remote {
    inner: Arc<dyn ObjectStore>,
    link: Link,
    free_at: Mutex<Option<Instant>>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Remote {
    /// The link is free.
    pub fn new(inner: Arc<dyn ObjectStore>, link: Link) -> Self {
        Remote { inner, link, free_at: Mutex::default(), requests: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Requests and bytes since the last call.
    pub fn take(&self) -> (u64, u64) {
        (self.requests.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }

    async fn wait(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let first_byte = Instant::now() + self.link.latency;
        let mut free_at = self.free_at.lock().await;
        let start = free_at.map_or(first_byte, |free| free.max(first_byte));
        let end = start + Duration::from_secs_f64(bytes as f64 / self.link.bytes_per_second as f64);
        *free_at = Some(end);
        drop(free_at);
        tokio::time::sleep_until(end).await;
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Remote {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        let got = self.inner.get_opts(location, options).await?;
        self.wait(if head { 0 } else { got.range.end - got.range.start }).await;
        Ok(got)
    }

    /// As the S3 client does: ranges less than 1 MiB apart in one request.
    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let fetch = |range: Range<u64>| async move {
            let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
            self.get_opts(location, options).await?.bytes().await
        };
        object_store::coalesce_ranges(ranges, fetch, object_store::OBJECT_STORE_COALESCE_DEFAULT).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
