//! The metastore in PostgreSQL: for several servers on one, and where a Postgres is run already.
//!
//! ```text
//! commit   lock the table's row ─> read what others did ─> check ─> write ─> COMMIT      one transaction for all that wait
//! search   rows of packs: chunk c of all blocks of an hour is one row of 32 bytes a block; bits are tested here
//! maintain loose blocks ─> packs ─> larger packs; what is gone is deleted
//! ```
//!
//! Every process keeps the tables in memory, as the embedded backend does, and asks the server what is new before each
//! answer that must be current. What is lawful is checked by the same code; the server decides who comes first, and
//! keeps the bytes. It needs no extension and no rights beyond those in its own schema. Connections are not encrypted
//! yet.
//!
//! It must never know Parquet, DataFusion, or who asks; tokio-postgres has its room here.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bytes;
mod pool;
mod remote;

mod layout;
mod migrate;
mod schema;

mod catalog;
mod commit;
mod expire;
mod local_state;
mod refresh;
mod write;

mod block_metadata;
mod directory;
mod first;
mod probe;
mod search;

mod maintenance;
mod pack;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use tarn_metastore::{
    BlockMetadataRequest, Commit, CommitInfo, Definition, File, MaintenanceReport, MetadataByColumn, Metastore, Probe,
    ProbeResult, Remote, Result, TableVersion, VersionSelector,
};
use tarn_types::{Clock, FileId, TableId, TableSchema, Version};

use self::commit::Queues;
use self::directory::Slots;
use self::layout::{Layout, Meta, SchemaRange};
use self::local_state::LocalState;
use self::pool::{Pool, RequestFailure};
use self::remote::Target;

/// What this build works on: a store that is older must be migrated, at least begun to be.
const KNOWS: SchemaRange = SchemaRange { oldest: schema::NEWEST, newest: schema::NEWEST };

/// A metastore in PostgreSQL 13 or later. All of its work runs on the runtime that it was given: a caller that goes
/// away stops nothing half-way.
///
/// Errors: `Unavailable` when the server is away or slow (nothing happened; it goes on when the server is back),
/// `Indeterminate` when it went away in the middle of a change and did not come back in time, `Corrupt` when what is
/// stored is not what was written.
pub struct Postgres {
    inner: Arc<PostgresInner>,
}

struct PostgresInner {
    pool: Pool,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    knows: SchemaRange,
    /// As last seen: block metadata is read by it. A change looks again.
    layout: Mutex<Layout>,
    held: RwLock<LocalState>,
    queues: Mutex<Queues>,
    slots: Mutex<Slots>,
    /// File ids that were reserved and not given out.
    files: tokio::sync::Mutex<Range<u64>>,
}

impl Postgres {
    /// Connects, and makes the tables in an empty schema. `runtime` needs its timer and IO; the clock dates the
    /// creation of tables.
    ///
    /// # Errors
    /// `SchemaVersion` for a store that an older or a newer build made, `Unavailable`, `Address`.
    pub async fn connect(remote: &Remote, clock: Arc<dyn Clock>, runtime: &Handle) -> Result<Self> {
        Self::connect_knowing(remote, clock, runtime, KNOWS, schema::NEWEST).await
    }

    /// As a build that worked on schemas `oldest` to `newest`, and makes `newest` in an empty schema: for the tests of
    /// migrations.
    #[doc(hidden)]
    pub async fn connect_as_build_of(
        remote: &Remote,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
        schemas: std::ops::RangeInclusive<u32>,
    ) -> Result<Self> {
        let knows = SchemaRange { oldest: *schemas.start(), newest: *schemas.end() };
        Self::connect_knowing(remote, clock, runtime, knows, knows.oldest).await
    }

    async fn connect_knowing(
        remote: &Remote,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
        knows: SchemaRange,
        makes: u32,
    ) -> Result<Self> {
        let pool = Pool::new(Target::parse(remote)?, runtime.clone());
        let inner = Arc::new(PostgresInner {
            pool,
            clock,
            runtime: runtime.clone(),
            knows,
            layout: Mutex::new(Layout::SECOND),
            held: RwLock::new(LocalState::new()),
            queues: Mutex::default(),
            slots: Mutex::default(),
            files: tokio::sync::Mutex::new(0..0),
        });
        let store = Self { inner };
        store
            .run(move |inner| async move {
                let connection = inner.pool.take().await?;
                schema::ensure(&connection, inner.pool.schema(), makes).await?;
                connection.give_back();
                inner.look_again().await
            })
            .await?;
        Ok(store)
    }

    /// Runs to its end, whoever waits.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<PostgresInner>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RequestFailure>> + Send + 'static,
    {
        let running = self.inner.runtime.spawn(work(self.inner.clone()));
        let done = running.await.unwrap_or_else(|e| Err(self.inner.pool.unknown(Box::new(e)).into()));
        done.map_err(|failure| self.inner.pool.error(failure))
    }
}

impl PostgresInner {
    /// Takes note of where block metadata is now.
    fn take_layout(&self, meta: &Meta) -> Result<Layout, RequestFailure> {
        let layout = meta.layout(self.knows, self.pool.address())?;
        *self.layout.lock() = layout;
        Ok(layout)
    }
}

#[async_trait]
impl Metastore for Postgres {
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
        self.run(|inner| async move { inner.tables().await }).await
    }

    async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
        self.run(|inner| async move { Ok(inner.define(definition).await?) }).await
    }

    async fn allocate_files(&self, n: u64) -> Result<FileId> {
        self.run(move |inner| async move { Ok(inner.allocate_files(n).await?) }).await
    }

    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
        self.run(move |inner| async move { Ok(inner.commit(table, commit).await?) }).await
    }

    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        self.run(move |inner| async move {
            inner.refresh(table).await?;
            Ok(inner.held.read().table(table)?.commits_after(after)?)
        })
        .await
    }

    async fn snapshot(&self, table: TableId, at: VersionSelector) -> Result<Arc<TableVersion>> {
        self.run(move |inner| async move {
            inner.refresh(table).await?;
            Ok(inner.held.read().table(table)?.snapshot(at)?)
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
        self.run(move |inner| async move { Ok(inner.expire(table, keep).await?) }).await
    }

    async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport> {
        self.run(move |inner| async move { inner.maintain(budget_bytes).await }).await
    }
}
