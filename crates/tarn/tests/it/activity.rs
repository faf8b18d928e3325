//! Who is there, what do they run, and how is it stopped? `pg_stat_activity`, `tarn.queries`, `pg_cancel_backend` and
//! `pg_terminate_backend`.

use std::time::Duration;

use futures::TryStreamExt;
use tokio_postgres::{Client, NoTls};

use crate::harness::{Server, cell, failure, rows, settings};

const ENDLESS: &str = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000) AS s(value)";

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

async fn pid(client: &Client) -> String {
    cell(client, "SELECT pg_backend_pid()").await
}

/// Asks until the only cell of the answer is `wanted`; a statement has no cell until the client is there.
async fn until(watcher: &Client, sql: &str, wanted: &str) {
    let asking = async {
        while rows(watcher, sql).await != [[wanted]] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{sql}: never {wanted}"));
}

async fn connect(server: &Server, config: &str) -> Client {
    let config = format!("host=127.0.0.1 port={} dbname=tarn {config}", server.running.pg.port());
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_runs_is_seen_and_cancelled_by_its_number() {
    let server = Server::start().await;
    let busy = connect(&server, "user=ada application_name=report").await;
    let watcher = server.client().await;
    let pid = pid(&busy).await;
    let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}");
    until(&watcher, &state, "idle").await;
    // Run again and again, as monitors do: it says what is, not what was when it was prepared.
    let prepared = watcher.prepare(&state).await.unwrap();
    let mut seen = vec![watcher.query_one(&prepared, &[]).await.unwrap().get::<_, String>(0)];

    let running = busy.simple_query(ENDLESS);
    let cancelled = async {
        until(&watcher, &format!("{state} AND query LIKE 'SELECT sum(%'"), "active").await;
        seen.push(watcher.query_one(&prepared, &[]).await.unwrap().get(0));
        let who = "SELECT usename, application_name, client_addr, datname, wait_event, query_start >= backend_start";
        let who = rows(&watcher, &format!("{who} FROM pg_catalog.pg_stat_activity WHERE pid = {pid}")).await;
        assert_eq!(who, [["ada", "report", "127.0.0.1", "tarn", "∅", "t"]]);
        let queries = format!("SELECT user_name, state, way, rows, query FROM tarn.queries WHERE pid = {pid}");
        assert_eq!(rows(&watcher, &queries).await, [["ada", "running", "query", "0", ENDLESS]]);
        assert_eq!(cell(&watcher, &format!("SELECT pg_cancel_backend({pid})")).await, "t");
    };
    let (ended, ()) = tokio::join!(running, cancelled);
    assert_eq!(failure(ended).0, "57014");
    assert_eq!(seen, ["idle", "active"]);
    until(&watcher, &state, "idle").await;
    assert_eq!(cell(&busy, "SELECT 1").await, "1", "the connection goes on");
    assert_eq!(cell(&watcher, "SELECT pg_cancel_backend(2000000000)").await, "f");
    assert_eq!(cell(&watcher, "SELECT pg_cancel_backend(NULL)").await, "∅");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_and_rows_given_out_are_seen() {
    let server = Server::start().await;
    let (client, watcher) = (server.client().await, server.client().await);
    let pid = pid(&client).await;
    let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}");
    client.batch_execute("BEGIN").await.unwrap();
    until(&watcher, &state, "idle in transaction").await;
    let since = format!("SELECT xact_start <= state_change FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(cell(&watcher, &since).await, "t");
    client.batch_execute("SELECT 1 / 0").await.unwrap_err();
    until(&watcher, &state, "idle in transaction (aborted)").await;
    client.batch_execute("ROLLBACK").await.unwrap();
    until(&watcher, &format!("{state} AND xact_start IS NULL AND query = 'ROLLBACK'"), "idle").await;

    let copy = "COPY (SELECT value FROM generate_series(1, 1000000000000) AS s(value)) TO STDOUT";
    let mut data = Box::pin(client.copy_out(copy).await.unwrap());
    data.try_next().await.unwrap().unwrap();
    let given = "SELECT way FROM tarn.queries WHERE rows > 0 AND elapsed_ms >= 0";
    until(&watcher, &format!("{given} AND pid = {pid}"), "copy").await;
    assert_eq!(cell(&watcher, &format!("SELECT pg_cancel_backend({pid})")).await, "t");
    drop((data, client));
    until(&watcher, &format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"), "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_ended_by_its_number() {
    let server = Server::start().await;
    let watcher = server.client().await;
    for statement in [Some(ENDLESS), None] {
        let client = server.client().await;
        let pid = pid(&client).await;
        let end = async {
            let state = if statement.is_some() { "active" } else { "idle" };
            until(&watcher, &format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}"), state).await;
            assert_eq!(cell(&watcher, &format!("SELECT pg_terminate_backend({pid})")).await, "t");
        };
        match statement {
            Some(statement) => {
                let (ended, ()) = tokio::join!(client.simple_query(statement), end);
                assert_eq!(failure(ended).0, "57P01");
            }
            None => end.await,
        }
        until(&watcher, &format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"), "0").await;
        client.simple_query("SELECT 1").await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_no_superuser_sees_and_stops_what_is_their_own() {
    let server = Server::start().await;
    server.client().await.batch_execute("CREATE USER root SUPERUSER PASSWORD 'x'").await.unwrap();
    let root = connect(&server, "user=root password=x").await;
    root.batch_execute("CREATE USER ada PASSWORD 'x'; CREATE USER bob PASSWORD 'x'").await.unwrap();
    let of_root = pid(&root).await;
    let shown = format!("SELECT query FROM pg_stat_activity WHERE pid = {of_root}");
    root.batch_execute("ALTER USER bob PASSWORD 'secret'").await.unwrap();
    until(&connect(&server, "user=root password=x").await, &shown, "(a statement with a password)").await;

    let ada = connect(&server, "user=ada password=x").await;
    assert_eq!(cell(&ada, &shown).await, "<insufficient privilege>");
    let times = format!("SELECT usename, state, query_start, client_addr FROM pg_stat_activity WHERE pid = {of_root}");
    assert_eq!(rows(&ada, &times).await, [["root", "∅", "∅", "∅"]]);
    assert_eq!(failure(ada.simple_query("SELECT * FROM tarn.queries").await).0, "42501");
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        assert_eq!(failure(ada.simple_query(&format!("SELECT {function}({of_root})")).await).0, "42501");
    }
    // Of the same user, on another connection.
    let busy = connect(&server, "user=ada password=x").await;
    let pid = pid(&busy).await;
    let end = async {
        until(&ada, &format!("SELECT state FROM pg_stat_activity WHERE pid = {pid} AND query <> ''"), "active").await;
        let all = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND";
        assert_eq!(cell(&ada, &format!("{all} usename = current_user AND state = 'active'")).await, "1");
    };
    let (ended, ()) = tokio::join!(busy.simple_query(ENDLESS), end);
    assert_eq!(failure(ended).0, "57014");
    assert_eq!(cell(&root, &format!("SELECT pg_terminate_backend({pid})")).await, "t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_and_the_lag_of_delivery_are_in_the_metrics() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1, 1)").await.unwrap();
    client.batch_execute("INSERT INTO t SELECT value, 2 FROM generate_series(2, 9) AS s(value)").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "9");
    assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 1").await, "1");
    let value = |name: &str| {
        let text = server.running.sql.metrics_text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is missing:\n{text}")).parse::<f64>().unwrap()
    };
    let statements = |way: &str| value(&format!("tarn_statement_seconds_count{{way=\"{way}\"}}"));
    let counted = async {
        // The last one is counted when its answer is out.
        while statements("keyed") < 2.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.unwrap();
    assert_eq!(["keyed", "query", "write", "other", "copy"].map(statements), [2.0, 1.0, 1.0, 1.0, 0.0]);
    assert_eq!(value("tarn_commit_seconds_count"), 2.0);
    assert!(value("tarn_commit_seconds_sum") > 0.0 && value("tarn_engine_memtable_bytes") > 0.0);
    let lag = || value("tarn_delivery_lag_seconds{table=\"t\"}");
    let behind = async {
        while lag() == 0.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, behind).await.unwrap();
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    assert_eq!((lag(), value("tarn_delivery_seconds_count")), (0.0, 1.0));
    client.batch_execute("DROP TABLE t").await.unwrap();
    assert!(!server.running.sql.metrics_text().contains("tarn_delivery_lag_seconds{"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_waits_for_room_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    (settings.node.recent_limit_bytes, settings.node.write_wait_ms) = (1, 1);
    let server = Server { running: tarn::server::start(settings).await.unwrap(), dir };
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    let mut refused = None;
    // What is there already is what is in the way.
    for k in 0..3 {
        refused = client.batch_execute(&format!("INSERT INTO t VALUES ({k})")).await.err();
    }
    assert_eq!(failure(Err::<(), _>(refused.unwrap())).0, "53400");
    let n_waits = server.running.node.metrics().write_waits.get();
    assert!(n_waits > 0);
    let metrics = server.running.sql.metrics_text();
    assert!(metrics.contains(&format!("tarn_write_wait_seconds_count {n_waits}\n")), "{metrics}");
}
