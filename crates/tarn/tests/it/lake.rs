//! Rows move from memory to the lake, are compacted, evicted, changed again; SQL sees the same table all the time.

use crate::harness::{Server, cell, rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_table_before_and_after_every_move() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (a int, b int, v text, PRIMARY KEY (a, b)) WITH (partitioning = 'hash', tablets = 3); INSERT INTO t SELECT value % 50, value, 'old' FROM generate_series(1, 1000) AS s(value)")
        .await
        .unwrap();
    let check = async |when: &str| {
        for path in ["auto", "lake"] {
            client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await.unwrap();
            let counted = rows(&client, "SELECT v, count(*) FROM t GROUP BY v ORDER BY v").await;
            assert_eq!(counted, [["new", "100"], ["old", "890"]], "{when}, {path}");
            assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "990", "{when}, {path}");
            assert_eq!(cell(&client, "SELECT v FROM t WHERE a = 7 AND b = 107").await, "new", "{when}, {path}");
            assert_eq!(
                rows(&client, "SELECT b FROM t WHERE a = 7 AND b BETWEEN 100 AND 210 ORDER BY b").await,
                [["107"], ["157"], ["207"]],
                "{when}, {path}"
            );
            assert!(rows(&client, "SELECT v FROM t WHERE a = 1 AND b = 901").await.is_empty(), "{when}, {path}");
        }
        client.batch_execute("SET tarn.access_path = 'auto'").await.unwrap();
    };
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    assert_eq!(client.execute("UPDATE t SET v = 'new' WHERE b > 100 AND b <= 200", &[]).await.unwrap(), 100);
    assert_eq!(client.execute("DELETE FROM t WHERE b > 900 AND b <= 910", &[]).await.unwrap(), 10);
    check("before delivery").await;
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    check("after delivery").await;
    client.batch_execute("COMPACT TABLE t").await.unwrap();
    check("after compaction").await;
    client.batch_execute("EVICT TABLE t").await.unwrap();
    check("after eviction").await;
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "990");
    // Evicted rows are changed and deleted by key.
    assert_eq!(client.execute("UPDATE t SET v = 'newer' WHERE a = 7 AND b = 107", &[]).await.unwrap(), 1);
    assert_eq!(client.execute("DELETE FROM t WHERE a = 8 AND b = 108", &[]).await.unwrap(), 1);
    assert_eq!(client.execute("INSERT INTO t VALUES (9, 109, 'x') ON CONFLICT DO NOTHING", &[]).await.unwrap(), 0);
    assert_eq!(cell(&client, "SELECT v FROM t WHERE a = 7 AND b = 107").await, "newer");
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "989");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append_only_tables_keep_every_row() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE log (k int PRIMARY KEY, v int) WITH (append_only = true)").await.unwrap();
    client.batch_execute("INSERT INTO log VALUES (1, 1), (1, 2)").await.unwrap();
    client.batch_execute("DELIVER TABLE log; INSERT INTO log VALUES (1, 3)").await.unwrap();
    assert_eq!(rows(&client, "SELECT v FROM log WHERE k = 1 ORDER BY v").await, [["1"], ["2"], ["3"]]);
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT sum(v) FROM log").await, "6");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_background_delivers_by_itself_and_writers_wait_for_room() {
    let server = Server::start_with(|settings| {
        settings.node.background = true;
        settings.node.background_interval_ms = 20;
        settings.node.recent_limit_bytes = 2 << 20;
        settings.sql.copy_batch_rows = 2_000;
    })
    .await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    // Several times the limit: without back-pressure it would all be in memory, without delivery it would never end.
    client
        .batch_execute("INSERT INTO t SELECT value, repeat('x', 200) FROM generate_series(1, 60000) AS s(value)")
        .await
        .unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "60000");
    assert!(server.running.node.metrics().deliveries.get() > 1);
    assert!(server.running.node.catalog().recent_bytes() < 4 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procedures_report_what_they_did() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await.unwrap();
    assert_eq!(rows(&client, "CALL tarn.deliver('t')").await, [["t", "2", "1", "1"]]);
    assert_eq!(rows(&client, "CALL tarn.deliver('t')").await, [["t", "0", "0", "1"]]);
    assert_eq!(rows(&client, "CALL tarn.evict('t')").await, [["t", "2", "0", "1"]]);
    let row = client.query_one("CALL tarn.flush('t')", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>("table_name"), "t");
}

/// Each reads the row in the lake and writes it whole, guarded; who comes too late finds it in the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_row_that_many_change_at_once_is_changed_by_all() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)").await.unwrap();
    client.batch_execute("CALL tarn.deliver('t')").await.unwrap();
    client.batch_execute("CALL tarn.evict('t')").await.unwrap();
    let mut others = Vec::new();
    for _ in 0..60 {
        others.push(server.client().await);
    }
    let updates = others
        .iter()
        .enumerate()
        .map(|(n, other)| async move { other.execute(&format!("UPDATE t SET v = {n} WHERE k = 1"), &[]).await });
    for updated in futures::future::join_all(updates).await {
        assert_eq!(updated.unwrap(), 1);
    }
}
