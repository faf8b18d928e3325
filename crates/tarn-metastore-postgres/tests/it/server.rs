//! A schema of its own for each test, on the server that the environment names; dropped with what was made in it.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tarn_metastore::contract::proxy::Proxy;
use tarn_metastore::{Remote, Result};
use tarn_metastore_postgres::Postgres;
use tarn_types::ManualClock;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls};

/// A server, a schema on it, and a runtime for its connections.
pub struct TestServer {
    config: Config,
    schema: String,
    runtime: Option<Runtime>,
}

static N_SCHEMAS: AtomicU32 = AtomicU32::new(0);

impl TestServer {
    /// `None`, and a line on stderr, when the environment names none.
    pub fn find() -> Option<Self> {
        let Ok(url) = std::env::var("TARN_TEST_POSTGRES") else {
            // Not `eprintln!`: the harness would swallow it.
            let _ = writeln!(
                std::io::stderr(),
                "TARN_TEST_POSTGRES is not set: this test did not run (scripts/services/postgres)"
            );
            return None;
        };
        let config: Config = url.parse().expect("TARN_TEST_POSTGRES is a Postgres URL");
        let schema = format!("tarn_test_{}_{}", std::process::id(), N_SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Some(Self { config, schema, runtime: Some(runtime) })
    }

    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap()
    }

    pub fn run<T>(&self, test: impl Future<Output = T>) -> T {
        self.runtime().block_on(test)
    }

    pub async fn address(&self) -> SocketAddr {
        let [Host::Tcp(host), ..] = self.config.get_hosts() else { panic!("TARN_TEST_POSTGRES names no TCP host") };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        tokio::net::lookup_host((host.as_str(), port)).await.unwrap().next().unwrap()
    }

    /// The store as reached at this address.
    pub fn remote_at(&self, address: SocketAddr) -> Remote {
        let password =
            self.config.get_password().map(|p| format!(":{}", String::from_utf8_lossy(p))).unwrap_or_default();
        let (user, database) = (self.config.get_user().unwrap(), self.config.get_dbname().unwrap_or("postgres"));
        Remote::new(format!("postgres://{user}{password}@{address}/{database}?schema={}", self.schema))
    }

    pub async fn remote(&self) -> Remote {
        self.remote_at(self.address().await)
    }

    pub async fn connect(&self, remote: &Remote) -> Result<Postgres> {
        Postgres::connect(remote, Arc::new(ManualClock::new(1_000)), self.runtime().handle()).await
    }

    /// A build that worked on these schemas.
    pub async fn connect_as(&self, remote: &Remote, schemas: std::ops::RangeInclusive<u32>) -> Result<Postgres> {
        let clock = Arc::new(ManualClock::new(1_000));
        Postgres::connect_as_build_of(remote, clock, self.runtime().handle(), schemas).await
    }

    pub async fn open(&self) -> Postgres {
        self.connect(&self.remote().await).await.unwrap()
    }

    /// A proxy before the server, and the store as reached through it.
    pub async fn proxied(&self) -> (Proxy, Remote) {
        let proxy = Proxy::start(self.address().await).await.unwrap();
        let remote = self.remote_at(proxy.address());
        (proxy, remote)
    }

    /// The server as its administrator sees it, in the test's schema.
    pub async fn admin(&self) -> Client {
        let (client, connection) = self.config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path = {}", self.schema)).await.unwrap();
        client
    }

    pub fn schema(&self) -> &str {
        &self.schema
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let dropped = runtime.block_on(async {
            let (client, connection) = self.config.connect(NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema)).await
        });
        runtime.shutdown_background();
        // A test that failed because the server went away says so itself.
        assert!(dropped.is_ok() || std::thread::panicking(), "drop {}: {dropped:?}", self.schema);
    }
}
