//! A server whose metastore is behind a network: it moves there with its data, and outlives its absence.
//!
//! `TARN_TEST_POSTGRES` and `TARN_TEST_CQL` name servers (`scripts/services`); of one that is not set nothing is
//! tested.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tarn::server::start;
use tarn_metastore::{Metastore, copy, sums};
use tarn_node::clock::SystemClock;
use tarn_node::metastores::{MetastoreLocation, open};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_postgres::NoTls;

use crate::harness::{Server, cell, failure, rows, settings, settings_with};
use crate::metastore::{ANSWERS, stopped_with_rows};

/// What was not seen by then never is.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// The URL that the variable has; says so when it has none.
fn named(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    if url.is_none() {
        // Not `eprintln!`: the harness would swallow it.
        let _ = writeln!(std::io::stderr(), "{variable} is not set: this test did not run");
    }
    url
}

/// A schema of its own, dropped by [`Schema::drop`].
struct Schema {
    server: String,
    name: String,
}

impl Schema {
    fn new(what: &str) -> Option<Schema> {
        let server = named("TARN_TEST_POSTGRES")?;
        Some(Schema { server, name: format!("tarn_test_{what}_{}", std::process::id()) })
    }

    fn url(&self) -> String {
        format!("{}?schema={}", self.server, self.name)
    }

    async fn drop(self) {
        let (client, connection) = tokio_postgres::connect(&self.server, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name)).await.unwrap();
    }
}

async fn opened(place: &str) -> Arc<dyn Metastore> {
    let place = MetastoreLocation::typed(place, &tarn::settings::NodeSettings::default());
    open(&place, Arc::new(SystemClock::default()), &Handle::current()).await.unwrap()
}

/// From its folder to `url`, on with it, and back.
async fn there_and_back(url: &str) {
    let (dir, answers) = stopped_with_rows().await;
    let meta = dir.path().join("meta");
    {
        let (from, to) = (opened(meta.to_str().unwrap()).await, opened(url).await);
        copy(&*from, &*to, &|_| {}).await.unwrap();
        assert_eq!(sums(&*to).await.unwrap(), sums(&*from).await.unwrap());
    }
    let remote =
        |dir: &tempfile::TempDir| settings_with(dir.path(), |settings| settings.node.metastore = url.to_owned());
    let running = start(remote(&dir)).await.unwrap();
    // Not by accident the one in the folder.
    std::fs::rename(&meta, dir.path().join("old")).unwrap();
    let server = Server { running, dir };
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT backend FROM tarn.metastore").await, tarn_node::metastores::shown(url));
    assert_eq!(rows(&client, ANSWERS).await, answers);
    client.batch_execute("SET tarn.access_path = 'lake'").await.unwrap();
    assert_eq!(rows(&client, ANSWERS).await, answers);
    client.batch_execute("UPDATE t SET v = 5 WHERE k = 20; DELIVER TABLE t; CALL tarn.compact('t')").await.unwrap();
    client
        .batch_execute("CREATE TABLE u (k int PRIMARY KEY); INSERT INTO u VALUES (1); DELIVER TABLE u")
        .await
        .unwrap();
    let answers = rows(&client, ANSWERS).await;
    let Server { running, dir } = server;
    running.stop().await.unwrap();

    let running = start(remote(&dir)).await.unwrap();
    let server = Server { running, dir };
    let client = server.client().await;
    assert_eq!(rows(&client, ANSWERS).await, answers);
    assert_eq!(cell(&client, "SELECT count(*) FROM u").await, "1");
    let Server { running, dir } = server;
    running.stop().await.unwrap();

    {
        let (from, to) = (opened(url).await, opened(meta.to_str().unwrap()).await);
        copy(&*from, &*to, &|_| {}).await.unwrap();
        assert_eq!(sums(&*to).await.unwrap(), sums(&*from).await.unwrap());
    }
    let server = Server { running: start(settings(dir.path())).await.unwrap(), dir };
    let client = server.client().await;
    client.batch_execute("SET tarn.access_path = 'lake'").await.unwrap();
    assert_eq!(rows(&client, ANSWERS).await, answers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metastore_moves_to_postgres_and_back() {
    let Some(schema) = Schema::new("move") else { return };
    there_and_back(&schema.url()).await;
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metastore_moves_to_cassandra_and_back() {
    let Some(url) = named("TARN_TEST_CQL") else { return };
    let (base, parameters) = url.split_once('?').map_or((url.as_str(), String::new()), |(b, p)| (b, format!("?{p}")));
    let (nodes, _) = base.rsplit_once('/').unwrap();
    there_and_back(&format!("{nodes}/tarn_test_move_{}{parameters}", std::process::id())).await;
}

/// A line to a server that can be cut.
struct Line {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    cut: Arc<Notify>,
}

impl Line {
    async fn to(server: String) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_cut, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (is_cut_now, cutting) = (Arc::clone(&is_cut), Arc::clone(&cut));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (is_cut, cut, server) = (Arc::clone(&is_cut_now), Arc::clone(&cutting), server.clone());
                tokio::spawn(async move {
                    let cut = cut.notified();
                    if is_cut.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(mut to) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut to) => {}
                        () = cut => {}
                    }
                });
            }
        });
        Line { address, is_cut, cut }
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
    }

    fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metastore_that_goes_away_is_named_and_comes_back() {
    let Some(schema) = Schema::new("away") else { return };
    let url = schema.url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let (user, place) = rest.split_once('@').map_or(("", rest), |(user, place)| (user, place));
    let (server, path) = place.split_once('/').unwrap();
    let line = Line::to(server.to_owned()).await;
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    let through = format!("{scheme}://{user}{}/{path}", line.address);
    let lake = tempfile::tempdir().unwrap();
    let server = Server::start_with(|settings| {
        settings.node.metastore = through;
        settings.node.metastore_timeout_ms = 2_000;
        settings.node.lake = Some(lake.path().display().to_string());
    });
    let server = server.await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int)").await.unwrap();
    client.batch_execute("INSERT INTO t SELECT value, 1 FROM generate_series(1, 50) AS s(value)").await.unwrap();
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    let archive = lake.path().join("t-1").display().to_string();
    client.batch_execute(&format!("ATTACH '{archive}' AS archive")).await.unwrap();
    line.cut();
    // Rows by key need no metastore.
    client.batch_execute("INSERT INTO t VALUES (51, 1); UPDATE t SET v = 2 WHERE k = 7").await.unwrap();
    assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 7").await, "2");
    for statement in ["DELIVER TABLE t", "CREATE TABLE u (k int PRIMARY KEY)"] {
        let (state, text) = failure(client.batch_execute(statement).await);
        assert_eq!(state, "08006", "{statement}: {text}");
        for part in [line.address.to_string().as_str(), "setting `metastore`", "metastore_timeout_ms"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    // A DROP that failed leaves a table that works, its worker, too; a DETACH an archive.
    for statement in ["DROP TABLE t", "DETACH TABLE archive"] {
        let (state, text) = failure(client.batch_execute(statement).await);
        assert_eq!(state, "08006", "{statement}: {text}");
    }
    client.batch_execute("UPDATE t SET v = 2 WHERE k = 7").await.unwrap();
    line.mend();
    client.batch_execute("DELIVER TABLE t; CREATE TABLE u (k int PRIMARY KEY)").await.unwrap();
    client.batch_execute("SET tarn.access_path = 'lake'").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*), sum(v) FROM t").await, [["51", "52"]]);
    client.batch_execute("CALL tarn.attach('archive'); DETACH TABLE archive").await.unwrap();
    client.batch_execute("DROP TABLE t; CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    let again = server.running.settings.clone();
    let Server { running, dir: _dir } = server;
    running.stop().await.unwrap();
    start(again).await.unwrap().stop().await.unwrap();
    schema.drop().await;
}

/// Emptied, and then there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_database_destroys_nothing() {
    let Some(schema) = Schema::new("emptied") else { return };
    let dir = tempfile::tempdir().unwrap();
    let remote = settings_with(dir.path(), |settings| settings.node.metastore = schema.url());
    let server = Server { running: start(remote.clone()).await.unwrap(), dir };
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await.unwrap();
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let (database, connection) = tokio_postgres::connect(&schema.server, NoTls).await.unwrap();
    tokio::spawn(connection);
    let name = &schema.name;
    database.batch_execute(&format!("ALTER SCHEMA {name} RENAME TO {name}_kept")).await.unwrap();
    let refused = start(remote.clone()).await.err().unwrap();
    assert_eq!(refused.state(), "55000", "{refused}");
    assert!(refused.message().contains("tables \"t\"") && refused.message().contains("does not list"), "{refused}");
    let put_back = format!("DROP SCHEMA {name} CASCADE; ALTER SCHEMA {name}_kept RENAME TO {name}");
    database.batch_execute(&put_back).await.unwrap();
    let server = Server { running: start(remote).await.unwrap(), dir };
    assert_eq!(cell(&server.client().await, "SELECT count(*) FROM t").await, "2");
    server.running.stop().await.unwrap();
    schema.drop().await;
}

/// What another server changed was seen after a restart only: who was dropped there went on here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_another_server_changes_are_known_without_a_restart() {
    let Some(schema) = Schema::new("users") else { return };
    let here = Server::start_with(|settings| settings.node.metastore = schema.url()).await;
    let there = Server::start_with(|settings| settings.node.metastore = schema.url()).await;
    let early = there.client().await;
    here.client().await.batch_execute("CREATE USER root SUPERUSER PASSWORD 'x'").await.unwrap();
    let connect = |server: &Server, login: &'static str| {
        let config = format!("host=127.0.0.1 port={} dbname=tarn {login}", server.running.pg.port());
        async move {
            let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, tokio_postgres::Error>(client)
        }
    };
    let root = connect(&here, "user=root password=x").await.unwrap();
    root.batch_execute("CREATE USER bob PASSWORD 'b'").await.unwrap();
    let (mut bob, began) = (None, std::time::Instant::now());
    while bob.is_none() {
        assert!(began.elapsed() < PATIENCE, "bob is not known there");
        // Until then everybody is let in there, without being anybody.
        if connect(&there, "user=bob password=wrong").await.is_err() {
            bob = Some(connect(&there, "user=bob password=b").await.unwrap());
        }
    }
    let bob = bob.unwrap();
    assert_eq!(failure(early.batch_execute("SELECT 1").await).0, "28000", "who came before there were users");
    root.batch_execute("DROP USER bob").await.unwrap();
    let began = std::time::Instant::now();
    let refused = loop {
        assert!(began.elapsed() < PATIENCE, "who was dropped goes on");
        match bob.batch_execute("SELECT 1").await {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) => break failure::<()>(Err(error)),
        }
    };
    assert_eq!(refused.0, "28000", "{refused:?}");
    assert_eq!(failure(connect(&there, "user=bob password=b").await).0, "28P01");
    for server in [here, there] {
        server.running.stop().await.unwrap();
    }
    schema.drop().await;
}
