//! What holds on a real Cassandra? `TARN_TEST_CQL` names one (`scripts/services/cassandra start DIR` prints it);
//! without it these tests say so and pass.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::value::{CqlValue, Row};
use tokio::runtime::{Builder, Runtime};

use tarn_metastore::{Commit, Remote, Result};
use tarn_types::{ManualClock, TableId, Version};

use crate::remote::Target;
use crate::{Cql, CqlInner};

mod contract;
mod faults;
mod migration;

/// Of the drivers. Tests wait on runtimes of their own.
pub(crate) static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// A keyspace that goes with the test.
pub(crate) struct Keyspace {
    pub remote: Remote,
    name: String,
    session: Arc<Session>,
}

impl Keyspace {
    /// `None`: there is no Cassandra here.
    pub fn new() -> Option<Self> {
        static SESSION: LazyLock<Option<Arc<Session>>> = LazyLock::new(|| {
            let Ok(url) = std::env::var("TARN_TEST_CQL") else {
                eprintln!("TARN_TEST_CQL names no Cassandra: nothing is tested");
                return None;
            };
            let target = Target::parse(&Remote::new(url)).unwrap();
            let builder = SessionBuilder::new()
                .known_nodes(&target.nodes)
                .refresh_metadata_on_auto_schema_agreement(false)
                .fetch_schema_metadata(false);
            Some(Arc::new(RUNTIME.block_on(builder.build()).unwrap()))
        });
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let session = SESSION.clone()?;
        let url = std::env::var("TARN_TEST_CQL").unwrap();
        let base = url.split('?').next().unwrap().rsplit_once('/').unwrap().0;
        let name = format!("tarn_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Some(Self { remote: Remote::new(format!("{base}/{name}")), name, session })
    }

    pub async fn connect(&self) -> Cql {
        self.connect_with("").await.unwrap()
    }

    /// With settings behind the URL.
    pub async fn connect_with(&self, settings: &str) -> Result<Cql> {
        let remote = Remote::new(format!("{}{settings}", self.remote.url));
        Cql::connect(&remote, Arc::new(ManualClock::new(1_000)), RUNTIME.handle()).await
    }

    /// Of the first node.
    pub fn node(&self) -> SocketAddr {
        Target::parse(&self.remote).unwrap().nodes[0].parse().unwrap()
    }

    /// The same keyspace by another way.
    pub fn through(&self, way: SocketAddr, timeout_ms: u64) -> Remote {
        Remote { timeout_ms, ..Remote::new(format!("cql://{way}/{}", self.name)) }
    }
}

/// Runs on the drivers' runtime.
pub(crate) fn on_a_store(test: impl AsyncFnOnce(&Keyspace)) {
    if let Some(keyspace) = Keyspace::new() {
        RUNTIME.block_on(test(&keyspace));
    }
}

impl Cql {
    /// The same process under another name.
    pub fn clone_for_tests(&self) -> Self {
        Self { inner: self.inner.clone(), clock: self.clock.clone() }
    }

    pub(crate) fn of(inner: Arc<CqlInner>) -> Self {
        Self { inner, clock: Arc::new(ManualClock::new(1_000)) }
    }

    /// A commit that stops before its conditional write.
    pub(crate) async fn write_half(&self, table: TableId, commit: Commit) {
        self.inner.write_half(table, commit).await;
    }

    /// Expiring that stops before its conditional write.
    pub(crate) async fn fold_only(&self, table: TableId, keep: Version) {
        self.inner.fold(table, keep).await.unwrap();
    }
}

/// Bytes of one column that were changed, and what they were.
pub(crate) struct Damage {
    undo: Vec<(String, Vec<u8>)>,
    session: Arc<Session>,
}

impl Damage {
    pub async fn repair(&mut self) {
        for (update, bytes) in self.undo.drain(..) {
            self.session.query_unpaged(update, (bytes,)).await.unwrap();
        }
    }
}

impl Keyspace {
    async fn primary_key(&self, table: &str) -> Vec<String> {
        let columns = "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
        let rows = self.session.query_unpaged(columns, (&self.name, table)).await.unwrap().into_rows_result().unwrap();
        let rows = rows.rows::<(String, String)>().unwrap().map(|row| row.unwrap());
        rows.filter(|(_, kind)| ["partition_key", "clustering"].contains(&&kind[..])).map(|(name, _)| name).collect()
    }

    /// Flips a bit of a column in every row that has it.
    pub async fn damage(&self, table: &str, column: &str) -> Damage {
        let keys = self.primary_key(table).await;
        let place = format!("{}.{table}", self.name);
        let select = format!("SELECT {}, {column} FROM {place}", keys.join(", "));
        let rows = self.session.query_unpaged(select, ()).await.unwrap().into_rows_result().unwrap();
        let mut undo = Vec::new();
        for row in rows.rows::<Row>().unwrap().map(|row| row.unwrap()) {
            let Some(Some(CqlValue::Blob(bytes))) = row.columns.last().cloned() else { continue };
            let of_key = keys.iter().zip(&row.columns).map(|(name, value)| match value {
                Some(CqlValue::Int(n)) => format!("{name} = {n}"),
                Some(CqlValue::BigInt(n)) => format!("{name} = {n}"),
                Some(CqlValue::Uuid(uuid)) => format!("{name} = {uuid}"),
                other => panic!("{name} is {other:?}"),
            });
            let of_key: Vec<_> = of_key.collect();
            let update = format!("UPDATE {place} SET {column} = ? WHERE {}", of_key.join(" AND "));
            let mut damaged = bytes.clone();
            damaged[bytes.len() / 2] ^= 4;
            self.session.query_unpaged(update.clone(), (damaged,)).await.unwrap();
            undo.push((update, bytes));
        }
        assert!(!undo.is_empty(), "{table} is empty");
        Damage { undo, session: self.session.clone() }
    }

    /// Of every table but these: counting reads all that was deleted, too.
    pub async fn count_rows(&self, but: &[&str]) -> Vec<(String, i64)> {
        let tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let rows = self.session.query_unpaged(tables, (&self.name,)).await.unwrap().into_rows_result().unwrap();
        let mut counts = Vec::new();
        for (table,) in rows.rows::<(String,)>().unwrap().map(|row| row.unwrap()) {
            if !but.contains(&&table[..]) {
                let n_rows = self.count(&table, "").await;
                counts.push((table, n_rows));
            }
        }
        counts
    }

    pub async fn count(&self, from: &str, value: impl std::fmt::Display) -> i64 {
        let count = format!("SELECT count(*) FROM {}.{from}{value}", self.name);
        let row = self.session.query_unpaged(count, ()).await.unwrap().into_rows_result().unwrap();
        row.single_row::<(i64,)>().unwrap().0
    }

    /// Without preparing it: as an operator would.
    pub async fn run(&self, statement: &str) {
        self.session.query_unpaged(statement.replace("$", &self.name), ()).await.unwrap();
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        let (session, drop) = (self.session.clone(), format!("DROP KEYSPACE IF EXISTS {}", self.name));
        // Its tables would take memory of the server until the end.
        RUNTIME.spawn(async move { session.query_unpaged(drop, ()).await });
    }
}
