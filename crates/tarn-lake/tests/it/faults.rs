//! A store and a metastore of which one chosen call fails: before it did anything, or after it did everything.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::*;
use parking_lot::Mutex;

use tarn_metastore::{
    BlockMetadataRequest, Commit, CommitInfo, Definition, File, MaintenanceReport, MetadataByColumn, Metastore, Probe,
    ProbeResult, TableVersion, VersionSelector,
};
use tarn_types::{FileId, TableId, TableSchema, Version};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FaultTime {
    /// The call does nothing and fails.
    Before,
    /// The call does its work, and the answer is lost.
    After,
}

/// Counts calls and fails the chosen one.
#[derive(Debug, Default)]
pub struct Faults {
    calls: AtomicU64,
    chosen: Mutex<Option<(u64, FaultTime)>>,
}

impl Faults {
    /// The `nth` call from now on fails.
    pub fn choose(&self, nth: u64, when: FaultTime) {
        *self.chosen.lock() = Some((self.calls.load(Ordering::SeqCst) + nth, when));
    }

    /// Nothing fails any more. Answers whether the chosen call did.
    pub fn clear(&self) -> bool {
        self.chosen.lock().take().is_none()
    }

    fn count(&self) -> Option<FaultTime> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        self.chosen.lock().take_if(|(nth, _)| *nth == call).map(|(_, when)| when)
    }
}

fn lost() -> Error {
    Error::Generic { store: "faulty", source: "injected".into() }
}

#[derive(Debug)]
pub struct FaultyStore {
    pub inner: Arc<dyn ObjectStore>,
    pub faults: Arc<Faults>,
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyStore({})", self.inner)
    }
}

impl FaultyStore {
    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        run(&self.faults, call).await
    }
}

async fn run<T>(faults: &Faults, call: impl Future<Output = Result<T>>) -> Result<T> {
    match faults.count() {
        None => call.await,
        Some(FaultTime::Before) => Err(lost()),
        Some(FaultTime::After) => call.await.and(Err(lost())),
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.call(self.inner.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(&self, location: &Path, o: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.call(self.inner.put_multipart_opts(location, o)).await?;
        Ok(Box::new(FaultyUpload { inner, faults: self.faults.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.call(self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.call(self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, faults) = (self.inner.clone(), self.faults.clone());
        locations
            .then(move |location| {
                let (inner, faults) = (inner.clone(), faults.clone());
                async move {
                    let location = location?;
                    run(&faults, async { inner.delete(&location).await }).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, faults, prefix) = (self.inner.clone(), self.faults.clone(), prefix.cloned());
        let listed = async move { run(&faults, async { Ok(inner.list(prefix.as_ref())) }).await };
        futures::stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    faults: Arc<Faults>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, faults) = (self.inner.put_part(data), self.faults.clone());
        Box::pin(async move { run(&faults, part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        run(&self.faults, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

type Hook = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

pub struct FaultyMetastore {
    pub inner: Arc<dyn Metastore>,
    pub faults: Arc<Faults>,
    /// Runs before each commit.
    pub before_commit: Mutex<Option<Arc<Hook>>>,
}

type MetastoreResult<T> = tarn_metastore::Result<T>;

impl FaultyMetastore {
    async fn call<T>(&self, call: impl Future<Output = MetastoreResult<T>>) -> MetastoreResult<T> {
        let lost = tarn_metastore::Error::Indeterminate {
            action: "call",
            place: "faulty".into(),
            source: std::io::Error::from(std::io::ErrorKind::TimedOut).into(),
        };
        match self.faults.count() {
            None => call.await,
            Some(FaultTime::Before) => Err(lost),
            Some(FaultTime::After) => call.await.and(Err(lost)),
        }
    }
}

#[async_trait]
impl Metastore for FaultyMetastore {
    async fn tables(&self) -> MetastoreResult<Vec<Arc<TableSchema>>> {
        self.call(self.inner.tables()).await
    }

    async fn define(&self, definition: Definition) -> MetastoreResult<Arc<TableSchema>> {
        self.call(self.inner.define(definition)).await
    }

    async fn allocate_files(&self, n: u64) -> MetastoreResult<FileId> {
        self.call(self.inner.allocate_files(n)).await
    }

    async fn commit(&self, table: TableId, commit: Commit) -> MetastoreResult<Version> {
        let hook = self.before_commit.lock().clone();
        if let Some(hook) = hook {
            hook().await;
        }
        self.call(self.inner.commit(table, commit)).await
    }

    async fn snapshot(&self, table: TableId, at: VersionSelector) -> MetastoreResult<Arc<TableVersion>> {
        self.call(self.inner.snapshot(table, at)).await
    }

    async fn commits(&self, table: TableId, after: Version) -> MetastoreResult<Vec<Arc<CommitInfo>>> {
        self.call(self.inner.commits(table, after)).await
    }

    async fn expire(&self, table: TableId, keep: Version) -> MetastoreResult<Vec<Arc<File>>> {
        self.call(self.inner.expire(table, keep)).await
    }

    async fn probe(&self, table: TableId, probe: Probe) -> MetastoreResult<ProbeResult> {
        self.call(self.inner.probe(table, probe)).await
    }

    async fn block_metadata(&self, table: TableId, wanted: BlockMetadataRequest) -> MetastoreResult<MetadataByColumn> {
        self.call(self.inner.block_metadata(table, wanted)).await
    }

    async fn maintain(&self, budget_bytes: u64) -> MetastoreResult<MaintenanceReport> {
        self.call(self.inner.maintain(budget_bytes)).await
    }
}
