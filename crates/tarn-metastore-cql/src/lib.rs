//! How does a metastore live in Cassandra or ScyllaDB?
//!
//! As the article that Tarn's archives follow has it: filters cut into chunks, each a row in a partition of its hour
//! and chunk, so that a search reads of each block the 32 bytes that matter; column metadata likewise by hour and
//! column. Around that, what makes it a metastore: a log of commits for each table, whose end moves by compare-and-set
//! (`commit.rs`), and a cache of versions that follows it (`refresh.rs`). The tables are in `tables.rs`;
//! docs/metastore.md says how to choose and run one.
//!
//! ```no_run
//! # async fn example() -> tarn_metastore::Result<()> {
//! use std::sync::Arc;
//! use tarn_metastore::{Metastore, Remote};
//! use tarn_metastore_cql::Cql;
//!
//! let remote = Remote::new("cql://127.0.0.1:9042/tarn");
//! let clock = Arc::new(tarn_types::ManualClock::new(0));
//! let metastore = Cql::connect(&remote, clock, &tokio::runtime::Handle::current()).await?;
//! assert!(metastore.tables().await?.is_empty());
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod patience;
mod remote;
mod requests;
mod session;
mod tables;
mod wire;

mod cache;
mod layout;
mod refresh;

mod catalog;
mod commit;
mod rows;

mod maintenance;
mod read;

mod migrate;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use scylla::statement::Consistency;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use tarn_metastore::{
    BlockMetadataRequest, Commit, CommitInfo, Definition, Error, File, MaintenanceReport, MetadataByColumn, Metastore,
    Probe, ProbeResult, Remote, Result, TableVersion, VersionSelector,
};
use tarn_types::{Clock, FileId, TableId, TableSchema, Version};

use crate::cache::Cache;
use crate::commit::CommitQueue;
use crate::layout::{NEWEST, Phase};
use crate::refresh::Gate;
use crate::remote::Target;
use crate::session::{Cas, Store};
use crate::tables::{CATALOG, Statements};

pub use crate::migrate::SchemaVersion;

/// The backend on Cassandra 5 or ScyllaDB. Many processes may use one store; each keeps the versions of the tables that
/// it was asked for in memory.
pub struct Cql {
    inner: Arc<CqlInner>,
    clock: Arc<dyn Clock>,
}

struct CqlInner {
    store: Store,
    statements: Statements,
    runtime: Handle,
    /// The newest schema version that is understood. Older in tests.
    known: u32,
    /// Chunks of a filter's row, if the URL says so.
    row_chunks: Option<u32>,
    cache: RwLock<Cache>,
    catalog_gate: Gate,
    gates: Mutex<HashMap<TableId, Arc<Gate>>>,
    queues: Mutex<HashMap<TableId, CommitQueue>>,
    /// File ids that are reserved and not given out.
    files: Mutex<Range<u64>>,
    /// Held by the one who reserves more.
    reserving: tokio::sync::Mutex<()>,
    /// A number that no other process has.
    process: OnceCell<FileId>,
    attempts: AtomicU64,
    /// Of hours, in chunks. They never change.
    widths: Mutex<HashMap<(TableId, i64), u32>>,
    /// Up to where the logs of tables were deleted by this process.
    trimmed: Mutex<HashMap<TableId, i64>>,
    /// Dropped tables whose metadata is in the garbage.
    dropped: Mutex<HashSet<TableId>>,
}

impl Cql {
    /// Connects, and makes keyspace and tables where there are none. `runtime` drives the connections; the clock dates
    /// the creation of tables.
    ///
    /// # Errors
    /// `Address` when the URL cannot be understood, `Unavailable` when nobody answers, `SchemaVersion` when the tables
    /// are older or newer than this build's.
    pub async fn connect(remote: &Remote, clock: Arc<dyn Clock>, runtime: &Handle) -> Result<Self> {
        let inner = CqlInner::open_on(remote, runtime, NEWEST, NEWEST).await?;
        let layout = inner.cache.read().catalog.layout;
        // While it is being migrated by a build like this one, it can be used.
        if layout.schema < NEWEST && layout.phase == Phase::None {
            let address = inner.store.address.clone();
            return Err(Error::SchemaVersion { address, found: layout.schema, needed: NEWEST });
        }
        Ok(Self { inner, clock })
    }

    /// For messages: where the store is, without user and password.
    pub fn address(&self) -> &str {
        &self.inner.store.address
    }

    /// In which version of the tables the store is.
    pub fn schema_version(&self) -> SchemaVersion {
        SchemaVersion(self.inner.cache.read().catalog.layout.schema)
    }

    /// How wide rows of filters are, in bytes, and in how many hours (of those that this process has looked at).
    pub fn row_widths(&self) -> Vec<(u32, u64)> {
        let mut widths = std::collections::BTreeMap::new();
        for width in self.inner.widths.lock().values() {
            *widths.entry(width * tarn_metastore::CHUNK_BYTES as u32).or_default() += 1;
        }
        widths.into_iter().collect()
    }
}

impl CqlInner {
    /// As `open`, on the runtime that is handed over.
    async fn open_on(remote: &Remote, runtime: &Handle, known: u32, made: u32) -> Result<Arc<Self>> {
        let (of, on) = (remote.clone(), runtime.clone());
        let opened = runtime.spawn(async move { Self::open(&of, &on, known, made).await }).await;
        match opened {
            Ok(inner) => inner.map(Arc::new),
            Err(stopped) => {
                let (address, setting) = (remote.shown(), "metastore");
                Err(Error::Unavailable { address, setting, source: Box::new(stopped) })
            }
        }
    }

    /// `made`: the version of the tables, where there are none yet.
    async fn open(remote: &Remote, runtime: &Handle, known: u32, made: u32) -> Result<Self> {
        let target = Target::parse(remote)?;
        let store = Store::connect(remote, &target).await?;
        let statements = Statements::new();
        let keyspace = &target.keyspace[..];
        let there: Option<(HashMap<String, String>,)> = store.read_row(&statements.keyspace, (keyspace,)).await?;
        if there.is_none() {
            let (place, copies) = (target.datacenter.as_deref().unwrap_or("replication_factor"), target.replication);
            let replication = format!("{{'class': 'NetworkTopologyStrategy', '{place}': {copies}}}");
            store.define(&format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}")).await?;
        }
        let there: Option<(HashMap<String, String>,)> = store.read_row(&statements.keyspace, (keyspace,)).await?;
        let replication = there.map(|(replication,)| replication).unwrap_or_default();
        if target.consistency == Consistency::LocalQuorum && !is_of_one_datacenter(&replication) {
            let reason = "consistency=local_quorum, but copies may be in several datacenters: each would decide alone";
            return Err(Error::Address { reason: format!("{}: {reason}", remote.shown()) });
        }
        store.use_keyspace(keyspace).await?;
        let tables: Vec<(String,)> = store.read_rows(&statements.tables, (keyspace,)).await?;
        if !tables.iter().any(|(name,)| name == "catalog") {
            tables::create(&store, made).await?;
            store.refresh_metadata().await?;
        }
        let inner = Self {
            store,
            statements,
            runtime: runtime.clone(),
            known,
            row_chunks: target.row_chunks,
            cache: RwLock::default(),
            catalog_gate: Gate::default(),
            gates: Mutex::default(),
            queues: Mutex::default(),
            files: Mutex::new(0..0),
            reserving: tokio::sync::Mutex::default(),
            process: OnceCell::new(),
            attempts: AtomicU64::new(0),
            widths: Mutex::default(),
            trimmed: Mutex::default(),
            dropped: Mutex::default(),
        };
        match inner.store.compare_and_set(&inner.statements.catalog_init, (made as i32, CATALOG)).await {
            Cas::Applied | Cas::Refused => {}
            Cas::Unsent(error) | Cas::Unknown(error) => return Err(inner.store.unavailable(error)),
        }
        inner.refresh_catalog().await?;
        Ok(inner)
    }
}

/// Of a keyspace: its class, and copies by datacenter.
fn is_of_one_datacenter(replication: &HashMap<String, String>) -> bool {
    let by_datacenter = replication.get("class").is_some_and(|class| class.ends_with("NetworkTopologyStrategy"));
    by_datacenter && replication.len() == 2
}

impl Cql {
    /// On the runtime that was handed over, whatever the caller's is; to its end, even when the caller goes away.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<CqlInner>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let ended = self.inner.runtime.spawn(work(self.inner.clone())).await;
        ended.unwrap_or_else(|stopped| Err(self.inner.unknown("ask", stopped)))
    }
}

#[async_trait]
impl Metastore for Cql {
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
        self.run(|inner| async move {
            inner.refresh_catalog().await?;
            Ok(inner.cache.read().state.schemas())
        })
        .await
    }

    async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
        let now_ms = self.clock.now_ms();
        self.run(|inner| async move { inner.define(definition, now_ms).await }).await
    }

    async fn allocate_files(&self, n: u64) -> Result<FileId> {
        self.run(|inner| async move { inner.allocate_files(n).await }).await
    }

    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
        self.inner.commit(table, commit).await
    }

    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        self.run(move |inner| async move {
            inner.refresh(table).await?;
            inner.cache.read().state.table(table)?.commits_after(after)
        })
        .await
    }

    async fn snapshot(&self, table: TableId, at: VersionSelector) -> Result<Arc<TableVersion>> {
        self.run(move |inner| async move {
            inner.refresh(table).await?;
            inner.cache.read().state.table(table)?.snapshot(at)
        })
        .await
    }

    async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult> {
        self.run(move |inner| async move { inner.probe(table, probe).await }).await
    }

    async fn block_metadata(&self, table: TableId, wanted: BlockMetadataRequest) -> Result<MetadataByColumn> {
        self.run(move |inner| async move { inner.block_metadata(table, wanted).await }).await
    }

    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        self.run(move |inner| async move { inner.expire(table, keep).await }).await
    }

    async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport> {
        self.run(move |inner| async move { inner.maintain(budget_bytes).await }).await
    }
}

#[cfg(test)]
mod tests;
