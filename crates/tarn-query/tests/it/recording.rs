//! What was asked of the object store, and of the metastore? Both with everything passed through and written down.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use parking_lot::Mutex;
use tarn_metastore::{
    BlockMetadataRequest, Commit, CommitInfo, Definition, File, MaintenanceReport, MetadataByColumn, Metastore, Probe,
    ProbeResult, TableVersion, VersionSelector,
};
use tarn_types::{FileId, TableId, TableSchema, Version};

/// A store that remembers what was read.
#[derive(Debug)]
pub struct RecordingStore {
    inner: Arc<dyn ObjectStore>,
    reads: Mutex<Vec<(String, Range<u64>)>>,
}

impl RecordingStore {
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, reads: Mutex::default() }
    }

    /// Path and range of every read since the last call.
    pub fn take(&self) -> Vec<(String, Range<u64>)> {
        std::mem::take(&mut *self.reads.lock())
    }
}

impl fmt::Display for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordingStore({})", self.inner)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for RecordingStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let got = self.inner.get_opts(location, options).await?;
        self.reads.lock().push((location.to_string(), got.range.clone()));
        Ok(got)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.reads.lock().extend(ranges.iter().map(|range| (location.to_string(), range.clone())));
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

/// A metastore that remembers what blocks were asked for, and can be away.
pub struct RecordingMetastore {
    inner: Arc<dyn Metastore>,
    asked: Mutex<Vec<String>>,
    away: Mutex<bool>,
}

impl RecordingMetastore {
    pub fn new(inner: Arc<dyn Metastore>) -> Self {
        Self { inner, asked: Mutex::default(), away: Mutex::default() }
    }

    /// Every probe and every request for block metadata since the last call: what was wanted, and of how many blocks.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// From now on block metadata is not to be had, or is again.
    pub fn set_away(&self, away: bool) {
        *self.away.lock() = away;
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Metastore for RecordingMetastore {
    async fn tables(&self) -> tarn_metastore::Result<Vec<Arc<TableSchema>>> {
        self.inner.tables().await
    }

    async fn define(&self, definition: Definition) -> tarn_metastore::Result<Arc<TableSchema>> {
        self.inner.define(definition).await
    }

    async fn allocate_files(&self, n: u64) -> tarn_metastore::Result<FileId> {
        self.inner.allocate_files(n).await
    }

    async fn commit(&self, table: TableId, commit: Commit) -> tarn_metastore::Result<Version> {
        self.inner.commit(table, commit).await
    }

    async fn commits(&self, table: TableId, after: Version) -> tarn_metastore::Result<Vec<Arc<CommitInfo>>> {
        self.inner.commits(table, after).await
    }

    async fn snapshot(&self, table: TableId, at: VersionSelector) -> tarn_metastore::Result<Arc<TableVersion>> {
        self.inner.snapshot(table, at).await
    }

    async fn probe(&self, table: TableId, probe: Probe) -> tarn_metastore::Result<ProbeResult> {
        let n_blocks: usize = probe.hours.iter().map(|hour| hour.blocks.len()).sum();
        self.asked.lock().push(format!("probe {n_blocks}"));
        self.inner.probe(table, probe).await
    }

    async fn block_metadata(
        &self,
        table: TableId,
        wanted: BlockMetadataRequest,
    ) -> tarn_metastore::Result<MetadataByColumn> {
        let n_blocks: usize = wanted.hours.iter().map(|hour| hour.blocks.len()).sum();
        let n_columns = wanted.columns.as_ref().map_or(0, Vec::len);
        let what = if wanted.stats { "stats" } else { "chunks" };
        self.asked.lock().push(format!("{what} {n_blocks}x{n_columns}"));
        if *self.away.lock() {
            let address = "cql://10.0.0.1".to_owned();
            return Err(tarn_metastore::Error::Unavailable {
                address,
                setting: "metastore",
                source: "no answer".into(),
            });
        }
        self.inner.block_metadata(table, wanted).await
    }

    async fn expire(&self, table: TableId, keep: Version) -> tarn_metastore::Result<Vec<Arc<File>>> {
        self.inner.expire(table, keep).await
    }

    async fn maintain(&self, budget_bytes: u64) -> tarn_metastore::Result<MaintenanceReport> {
        self.inner.maintain(budget_bytes).await
    }
}
