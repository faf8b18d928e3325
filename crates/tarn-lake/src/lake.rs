//! What do deliveries, compactions and clean-ups share? The parts they work with, writing files, and committing with a
//! look before every second try.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use object_store::ObjectStore;
use parking_lot::Mutex;
use uuid::Uuid;

use tarn_feed::{HotTable, Stage};
use tarn_metastore::{Commit, ExpectedVersion, File, Metastore, VersionSelector};
use tarn_types::{Clock, FileId, Kind, TableId, TableSchema, Version};

use crate::flaws::Flaws;
use crate::names::MS_PER_HOUR;
use crate::upload::{channel, upload};
use crate::writer::{Spec, WrittenFiles, write};
use crate::{Error, Options, Result};

/// How often a commit whose answer was lost is sent again before the caller hears of it.
const COMMIT_TRIES: usize = 3;

/// Stops here when a test says so; nothing without the feature `failpoints`.
macro_rules! failpoint {
    ($name:literal) => {
        fail::fail_point!($name, |_| Err($crate::Error::Injected { at: $name }))
    };
}
pub(crate) use failpoint;

/// The lake of all tables. Cheap calls aside, methods run as long as their IO takes; CPU-bound parts run on blocking
/// threads of the calling tokio runtime. Deliveries and compactions of one table that overlap in time come in beside
/// each other if their files and rows are disjoint (`tarn_metastore::ExpectedVersion::Disjoint`); if not, one of them
/// fails with `Conflict` and nothing is harmed. Of one hot table they must not overlap at all: its driver sees to it.
pub struct Lake {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) metastore: Arc<dyn Metastore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Arc<Options>,
    /// Part of every file's name.
    instance: Uuid,
    /// The first ids of files that are being written and not yet committed; orphan removal keeps off.
    writing: Arc<Mutex<BTreeMap<FileId, TableId>>>,
    /// Files that are known not to be as they were written: compaction leaves them alone.
    pub(crate) flaws: Flaws,
}

/// While it lives, files from `first` on are not orphans.
pub(crate) struct Writing {
    all: Arc<Mutex<BTreeMap<FileId, TableId>>>,
    first: FileId,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.all.lock().remove(&self.first);
    }
}

impl Lake {
    /// `instance` must be fresh for every process: files of two processes never have one name.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        metastore: Arc<dyn Metastore>,
        clock: Arc<dyn Clock>,
        options: Options,
        instance: Uuid,
    ) -> Self {
        Self {
            store,
            metastore,
            clock,
            options: Arc::new(options),
            instance,
            writing: Arc::default(),
            flaws: Flaws::default(),
        }
    }

    /// With which its files are written.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Rows of a lake file by address, in the order of `rows`, with `columns` (by the names that the file has) in their
    /// order. Reads the footer and the pages that hold the rows.
    pub async fn read_rows(&self, file: &File, rows: &[u32], columns: &[String]) -> Result<RecordBatch> {
        crate::read::read_rows(self.store.clone(), file, rows, columns).await
    }

    pub(crate) fn hour(&self) -> i64 {
        self.clock.now_ms().div_euclid(MS_PER_HOUR)
    }

    /// The oldest file id of the table that may belong to files being written.
    pub(crate) fn oldest_being_written(&self, table: TableId) -> Option<FileId> {
        self.writing.lock().iter().find(|(_, of)| **of == table).map(|(first, _)| *first)
    }

    /// Gives the spec its file ids, at least one: the first of them names the commit.
    pub(crate) async fn allocate(&self, spec: &mut Spec) -> Result<Writing> {
        let table = spec.table.id;
        let first = self.metastore.allocate_files(spec.n_files).await;
        let first = first.map_err(metastore_error("allocate files", table))?;
        (spec.first_file, spec.instance) = (first, self.instance);
        self.writing.lock().insert(first, table);
        Ok(Writing { all: self.writing.clone(), first })
    }

    /// Encodes on a blocking thread and uploads as it goes. All files are in the store when it returns.
    pub(crate) async fn write_files<I>(
        &self,
        spec: Spec,
        batches: impl FnOnce() -> Result<I> + Send + 'static,
    ) -> Result<WrittenFiles>
    where
        I: Iterator<Item = Result<RecordBatch>>,
    {
        let (sender, receiver) = channel();
        let encode = tokio::task::spawn_blocking(move || write(&spec, batches()?, sender));
        let (etags, written) = tokio::join!(upload(self.store.clone(), self.options.part_bytes, receiver), encode);
        // When the upload failed the encoder did, too, and only says that the pipe broke.
        let (etags, mut written) = (etags?, written??);
        for (file, etag) in written.files.iter_mut().zip(etags) {
            file.etag = etag;
        }
        Ok(written)
    }

    /// As [`commit`].
    pub(crate) async fn commit(&self, table: TableId, change: Commit) -> Result<Version> {
        let (kind, follows) = (change.kind, follows(&change.expected));
        let version = commit(&*self.metastore, table, change).await?;
        if let Some(before) = follows {
            assert!(version > before, "version regression of table {table}: {before} → {version}");
        }
        tracing::debug!(%version, kind = kind.name(), "committed");
        Ok(version)
    }

    /// Installs what was committed as `version` over `before`: `stage` has it, unless others committed in between,
    /// whose versions come first.
    pub(crate) async fn install_behind(
        &self,
        hot: &Arc<dyn HotTable>,
        before: Version,
        version: Version,
        stage: Stage,
    ) -> Result<()> {
        if version == before.next() {
            return self.install(hot, stage).await;
        }
        tracing::debug!(%before, %version, "rebased");
        self.repair(hot).await.map(drop)
    }

    /// Installs a committed version's addresses. Blocking work leaves the executor.
    pub(crate) async fn install(&self, hot: &Arc<dyn HotTable>, stage: Stage) -> Result<()> {
        let (table, version) = (hot.schema().id, stage.version);
        let stager = hot.clone();
        let staged = tokio::task::spawn_blocking(move || stager.stage(stage)).await?;
        let staged = staged.map_err(hot_error("stage the addresses of", table))?;
        failpoint!("lake::after_stage");
        failpoint!("lake::before_install");
        let installer = hot.clone();
        let installed = tokio::task::spawn_blocking(move || installer.install(staged)).await?;
        installed.map_err(hot_error("install the addresses of", table))?;
        failpoint!("lake::after_install");
        tracing::debug!(%version, "installed");
        Ok(())
    }
}

/// Commits, once. A lost answer is looked for before the same commit is sent again.
pub(crate) async fn commit(metastore: &dyn Metastore, table: TableId, commit: Commit) -> Result<Version> {
    let mut tries = 0;
    loop {
        let lost = match metastore.commit(table, commit.clone()).await {
            Ok(version) => return Ok(version),
            Err(error) if error.kind() != Kind::Indeterminate => {
                return Err(metastore_error("commit files", table)(error));
            }
            Err(lost) => lost,
        };
        let after = match follows(&commit.expected) {
            Some(version) => version,
            None => {
                let oldest = metastore.snapshot(table, VersionSelector::Oldest).await;
                oldest.map_err(metastore_error("look for a commit", table))?.version
            }
        };
        let commits = metastore.commits(table, after).await;
        let commits = commits.map_err(metastore_error("look for a commit", table))?;
        if let Some(found) = commits.iter().find(|info| info.id == commit.id) {
            return Ok(found.version);
        }
        tries += 1;
        if tries == COMMIT_TRIES {
            return Err(metastore_error("commit files", table)(lost));
        }
    }
}

/// The version that a commit comes after, if it says so.
fn follows(expected: &ExpectedVersion) -> Option<Version> {
    match expected {
        ExpectedVersion::At(version) => Some(*version),
        ExpectedVersion::Disjoint(base) => Some(base.version),
        ExpectedVersion::Latest => None,
    }
}

/// An id that no other commit has: file ids are given out once.
pub(crate) fn commit_id(table: &TableSchema, first_file: FileId) -> Uuid {
    Uuid::from_u64_pair(table.id.0.into(), first_file.0)
}

pub(crate) fn metastore_error(action: &'static str, table: TableId) -> impl FnOnce(tarn_metastore::Error) -> Error {
    move |source| Error::Metastore { action, table, source }
}

pub(crate) fn hot_error(action: &'static str, table: TableId) -> impl FnOnce(tarn_feed::Error) -> Error {
    move |source| Error::Hot { action, table, source }
}
