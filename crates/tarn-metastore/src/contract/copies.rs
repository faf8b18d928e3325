//! What must hold of a copy, wherever it was stopped on its way?

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;

use tarn_types::{FileId, Kind, ManualClock, TableId, TableSchema, Version};

use super::samples::{Backend, append, commit, cursor, sample_block_metadata, sample_file, sample_schema, with_column};
use super::script::{Script, describe};
use crate::{
    BlockMetadataRequest, Commit, CommitInfo, CopyStats, Definition, Error, File, MaintenanceReport, Memory,
    MetadataByColumn, Metastore, MetastoreExt, Probe, ProbeResult, Result, TableVersion, VersionSelector, copy, extent,
    sums,
};

/// With every kind of record, and an hour of several batches.
pub async fn source() -> Backend {
    let source: Backend = Arc::new(Memory::new(Arc::new(ManualClock::new(500))));
    for step in Script::steps() {
        step.run(&*source).await;
    }
    let table = source.create_table(sample_schema("many")).await.unwrap().id;
    let first = source.allocate_files(150).await.unwrap();
    let files = |range: std::ops::Range<u64>| {
        let file = |n| File { hour: n as i64 % 3, ..sample_file(FileId(first.0 + n), 2) };
        let add: Vec<File> = range.map(file).collect();
        let block_metadata =
            add.iter().filter(|file| file.id.0 % 5 > 0).map(|file| (file.id, sample_block_metadata(&["x"])));
        (add.clone(), block_metadata.collect())
    };
    let (add, block_metadata) = files(0..140);
    let dead = add.iter().step_by(7).map(|file| (file.id, [1].into())).collect();
    source.commit(table, Commit { add, block_metadata, deletion_vectors: dead, ..commit(50, 0) }).await.unwrap();
    source.expire(table, Version(1)).await.unwrap();
    let (add, block_metadata) = files(140..150);
    let second = Commit { add, block_metadata, remove: vec![first], cursor: cursor(4), ..commit(51, 1) };
    source.commit(table, second).await.unwrap();
    source
}

fn silent(_: &CopyStats) {}

/// Both read the same, by answers and by checksums; what the source did since is followed up, and a target with a table
/// of its own is refused.
pub async fn a_copy_equals_its_source(metastore: Backend) {
    let source = source().await;
    let all = extent(&*source).await.unwrap();
    assert_eq!((all.tables, all.versions), (3, 6), "{all:?}");
    let last = std::sync::Mutex::new(CopyStats::default());
    let report = |now: &CopyStats| {
        let mut last = last.lock().unwrap();
        assert!(now.files >= last.files && now.versions >= last.versions);
        *last = *now;
    };
    let copied = copy(&*source, &*metastore, &report).await.unwrap();
    assert_eq!(copied, *last.lock().unwrap());
    assert_eq!(CopyStats { bytes: 0, ..copied }, all);
    assert!(copied.bytes > 0);
    assert_eq!(describe(&*metastore).await, describe(&*source).await);
    let of_source = sums(&*source).await.unwrap();
    assert_eq!(sums(&*metastore).await.unwrap(), of_source);
    let many = &of_source[2];
    assert_eq!((many.table.as_str(), many.versions, many.files, many.blocks), ("many", 2, 150, 150));
    assert_eq!((many.n_rows, many.block_metadata), (150 * 2 - 2 - 19, 120 * 3));
    assert!(metastore.allocate_files(1).await.unwrap() > FileId(156), "ids of the source come along");

    // The source lives on; what came since is sent after.
    let table = TableId(1);
    let file = source.allocate_files(1).await.unwrap();
    source.commit(table, append(60, file)).await.unwrap();
    let from = source.tables().await.unwrap()[0].clone();
    let to = Box::new(with_column(&from, "later"));
    source.define(Definition::Alter { from, to }).await.unwrap();
    source.create_table(sample_schema("new")).await.unwrap();
    assert_ne!(sums(&*source).await.unwrap(), of_source);
    let again = copy(&*source, &*metastore, &silent).await.unwrap();
    assert_eq!(CopyStats { bytes: 0, ..again }, extent(&*source).await.unwrap());
    assert_eq!(sums(&*metastore).await.unwrap(), sums(&*source).await.unwrap());

    let mine = metastore.create_table(sample_schema("mine")).await.unwrap();
    let error = copy(&*source, &*metastore, &silent).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains(&mine.name), "{error}");
}

/// Stopped before and after every change that it makes, and begun anew each time.
pub async fn a_stopped_copy_goes_on(metastore: Backend) {
    let source = source().await;
    let mut n_stops = 0;
    for changes in 1.. {
        let stopping =
            FailingMetastore { inner: metastore.clone(), left: AtomicI64::new(changes), lose_answer: changes % 2 == 0 };
        match copy(&*source, &stopping, &silent).await {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
        }
        n_stops += 1;
    }
    assert!(n_stops > 5, "{n_stops}");
    assert_eq!(describe(&*metastore).await, describe(&*source).await);
    assert_eq!(sums(&*metastore).await.unwrap(), sums(&*source).await.unwrap());
}

/// Fails when so many changes were made.
pub struct FailingMetastore {
    /// The backend that makes the changes.
    pub inner: Backend,
    /// Changes that are still let through.
    pub left: AtomicI64,
    /// Whether the last change is made, and only its answer is lost.
    pub lose_answer: bool,
}

impl FailingMetastore {
    fn stopped() -> Error {
        Error::Unavailable { address: "test".into(), setting: "metastore", source: "stopped".into() }
    }

    async fn change<T>(&self, change: impl Future<Output = Result<T>>) -> Result<T> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            left if left > 1 => change.await,
            left if left == 1 && self.lose_answer => {
                change.await?;
                Err(Self::stopped())
            }
            _ => Err(Self::stopped()),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Metastore for FailingMetastore {
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
        self.inner.tables().await
    }

    async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
        self.change(self.inner.define(definition)).await
    }

    async fn allocate_files(&self, n: u64) -> Result<FileId> {
        self.change(self.inner.allocate_files(n)).await
    }

    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
        self.change(self.inner.commit(table, commit)).await
    }

    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        self.inner.commits(table, after).await
    }

    async fn snapshot(&self, table: TableId, at: VersionSelector) -> Result<Arc<TableVersion>> {
        self.inner.snapshot(table, at).await
    }

    async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult> {
        self.inner.probe(table, probe).await
    }

    async fn block_metadata(&self, table: TableId, wanted: BlockMetadataRequest) -> Result<MetadataByColumn> {
        self.inner.block_metadata(table, wanted).await
    }

    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        self.inner.expire(table, keep).await
    }

    async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport> {
        self.inner.maintain(budget_bytes).await
    }
}
