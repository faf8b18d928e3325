//! What is known of a table that others write? Its definition as queries see it, where its files are, and how its
//! passes went.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::memory::InMemory;
use parking_lot::{Mutex, RwLock};
use tarn_cache::ReadStore;
use tarn_lake::attach::Progress;
use tarn_metastore::{Metastore, MetastoreExt};
use tarn_types::{Archive, TableId, TableSchema, Version};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::caches::{Caches, CachingStore};
use crate::error::{Error, ErrorKind, Result};
use crate::stores::StoreLocation;

/// An archive as a table of this node: Parquet that others write, attached read-only.
pub struct ExternalTable {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) location: StoreLocation,
    /// As the environment of this process has it; whether somebody answers there is another question.
    near: Result<CachingStore>,
    /// What queries see. Held for moments only.
    pub(crate) seen: RwLock<Arc<VersionedSchema>>,
    /// One pass at a time.
    pub(crate) passing: tokio::sync::Mutex<()>,
    pub(crate) standing: Mutex<PassStatus>,
    pub(crate) stop: CancellationToken,
    pub(crate) worker: Mutex<Option<JoinHandle<()>>>,
}

/// A definition, and the latest version for which it was right: another definition is another `VersionedSchema`, so
/// that a statement that was planned with this one reads what goes with it.
pub struct VersionedSchema {
    /// Its columns, types and options.
    pub schema: Arc<TableSchema>,
    pub(crate) version: AtomicU64,
}

impl VersionedSchema {
    /// The latest for which the definition is known to be right.
    pub fn version(&self) -> Version {
        Version(self.version.load(Ordering::Acquire))
    }
}

/// How the passes of this process went.
#[derive(Debug, Clone, Default)]
pub struct PassStatus {
    /// A pass is under way.
    pub is_running: bool,
    /// Of the running pass, else of the last.
    pub progress: Option<Progress>,
    /// What the passes before that did, all together.
    pub earlier: PassTotals,
    /// Unix time of the last pass' begin; `None`: there was none in this process.
    pub started_ms: Option<i64>,
    /// Unix time of the last pass' end.
    pub ended_ms: Option<i64>,
    /// Of the last pass, if it failed.
    pub last_error: Option<String>,
}

/// What passes did: whoever waits for one learns from two of these what came in meanwhile, however many passes there
/// were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassTotals {
    /// Files that came.
    pub attached: u64,
    /// Files that went.
    pub removed: u64,
    /// Of the files that came.
    pub rows: u64,
    /// From the archive.
    pub bytes_read: u64,
}

impl PassTotals {
    fn and(self, progress: &Progress) -> PassTotals {
        PassTotals {
            attached: self.attached + progress.attached,
            removed: self.removed + progress.removed,
            rows: self.rows + progress.rows,
            bytes_read: self.bytes_read + progress.bytes_read,
        }
    }
}

impl PassStatus {
    /// Of all passes of this process.
    pub fn done(&self) -> PassTotals {
        self.progress.as_ref().map_or(self.earlier, |progress| self.earlier.and(progress))
    }
}

impl ExternalTable {
    /// The table as the metastore has it. Looks at no file.
    pub async fn open(
        metastore: &dyn Metastore,
        caches: &Caches,
        schema: Arc<TableSchema>,
        stop: CancellationToken,
    ) -> Result<Arc<ExternalTable>> {
        let archive = archive_of(&schema)?;
        let location = StoreLocation::parse_for("open", &archive.url)?;
        let version = metastore.version(schema.id).await?;
        Ok(Arc::new(ExternalTable {
            id: schema.id,
            name: schema.name.clone(),
            near: location.open().map(|store| caches.around_external_table(&location, store)),
            location,
            seen: RwLock::new(Arc::new(VersionedSchema { schema, version: AtomicU64::new(version.0) })),
            passing: tokio::sync::Mutex::default(),
            standing: Mutex::default(),
            stop,
            worker: Mutex::default(),
        }))
    }

    /// As the catalog has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The definition that a statement that begins now goes by.
    pub fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.seen().schema)
    }

    /// What a statement that begins now sees.
    pub fn seen(&self) -> Arc<VersionedSchema> {
        Arc::clone(&self.seen.read())
    }

    /// Files of this archive have the same id, those of no other table do; never 0.
    pub fn store_id(&self) -> u64 {
        u64::from(self.id.0) + 1
    }

    /// Its store, through the caches.
    pub fn near(&self) -> Result<CachingStore> {
        self.near.clone()
    }

    /// How queries read its files. One that cannot be opened has nothing to read; [`ExternalTable::near`] says why.
    pub fn reads(&self) -> ReadStore {
        match &self.near {
            Ok(near) => near.read.clone(),
            Err(_) => ReadStore::plain(Arc::new(InMemory::new()), "it cannot be opened"),
        }
    }

    /// Where its files are.
    pub fn location(&self) -> &StoreLocation {
        &self.location
    }

    /// How its passes went so far; a copy.
    pub fn standing(&self) -> PassStatus {
        self.standing.lock().clone()
    }

    /// In one word: `running`, `failed`, `interrupted` (the first pass did not come to its end, and nobody is at it) or
    /// `attached`.
    pub fn state(&self) -> &'static str {
        let standing = self.standing.lock();
        let is_attached = self.seen().schema.options.archive.as_ref().is_some_and(|archive| archive.attached);
        match () {
            () if standing.is_running => "running",
            () if standing.last_error.is_some() => "failed",
            () if !is_attached => "interrupted",
            () => "attached",
        }
    }

    /// `ReadOnly`: who writes to it instead.
    pub fn read_only(&self) -> Error {
        let name = &self.name;
        Error::new(
            ErrorKind::ReadOnly,
            format!("table \"{name}\" is read-only: it is the archive {}, which others write", self.location),
        )
        .with_hint(format!(
            "write files there and CALL tarn.attach('{name}'), or CREATE TABLE another and INSERT INTO … SELECT * FROM {name}; \
             DETACH TABLE {name} forgets it, and deletes no file"
        ))
    }

    /// Ends its worker, and waits for a pass that runs to stop.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        let worker = self.worker.lock().take();
        if let Some(worker) = worker {
            let _ = worker.await;
        }
        let _none_runs = self.passing.lock().await;
    }
}

pub(crate) fn archive_of(schema: &TableSchema) -> Result<&Archive> {
    let error = || Error::new(ErrorKind::Internal, format!("table \"{}\" is no archive", schema.name));
    schema.options.archive.as_ref().ok_or_else(error)
}
