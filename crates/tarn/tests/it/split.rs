//! A table is split while it is written and read: nobody loses, misses or sees a row twice, and the lake has them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Server, cell, failure, rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_split_while_it_is_written() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v bigint)").await.unwrap();
    client.batch_execute("INSERT INTO t SELECT value, 0 FROM generate_series(1, 2000) AS s(value)").await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (writer, done) = (server.client().await, Arc::clone(&done));
        tokio::spawn(async move {
            let mut n = 0;
            while !done.load(Ordering::Acquire) {
                assert_eq!(writer.execute("UPDATE t SET v = v + 1", &[]).await.unwrap(), 2000);
                n += 1;
            }
            n
        })
    };
    let whole = async |when: &str| {
        let seen = rows(&client, "SELECT count(*), count(DISTINCT k), min(k), max(k) FROM t").await;
        assert_eq!(seen, [["2000", "2000", "1", "2000"]], "{when}");
    };
    for at in [1500, 500, 1000] {
        // What the tablet to be parted came with must be in the lake.
        client.batch_execute("CALL tarn.deliver('t')").await.unwrap();
        client.batch_execute(&format!("CALL tarn.split('t', {at})")).await.unwrap();
        whole("after a split").await;
    }
    client.batch_execute("CALL tarn.deliver('t'); CALL tarn.compact('t')").await.unwrap();
    whole("after a delivery").await;
    done.store(true, Ordering::Release);
    let n = writer.await.unwrap().to_string();
    let wanted = rows(&client, "SELECT min(v), max(v) FROM t").await;
    assert_eq!(wanted, [[n.clone(), n.clone()]], "no update is lost");
    assert_eq!(cell(&client, "SELECT count(*) FROM tarn.tablets WHERE table_name = 't'").await, "4");
    for k in [1, 499, 500, 999, 1000, 1499, 1500, 2000] {
        assert_eq!(cell(&client, &format!("SELECT v FROM t WHERE k = {k}")).await, n);
    }

    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, "SELECT count(*), min(v), max(v) FROM t").await, [["2000".to_owned(), n.clone(), n]]);
    assert_eq!(cell(&client, "SELECT count(*) FROM tarn.tablets WHERE table_name = 't'").await, "4");
    client.batch_execute("DELETE FROM t WHERE k > 1400; CALL tarn.deliver('t'); CALL tarn.evict('t')").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*), max(k) FROM t").await, [["1400", "1400"]]);
    assert_eq!(rows(&client, "SELECT k FROM t WHERE k BETWEEN 998 AND 1001 ORDER BY k").await.len(), 4);
    client.batch_execute("DROP TABLE t").await.unwrap();
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v bigint)").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_that_cannot_be_is_refused_with_its_remedy() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE r (a int, b int, v text, PRIMARY KEY (a, b))").await.unwrap();
    client
        .batch_execute("CREATE TABLE h (k text PRIMARY KEY) WITH (partitioning = 'hash', tablets = 2)")
        .await
        .unwrap();
    client.batch_execute("INSERT INTO r SELECT value, 1, 'x' FROM generate_series(1, 100) AS s(value)").await.unwrap();
    client.batch_execute("INSERT INTO h SELECT value::text FROM generate_series(1, 100) AS s(value)").await.unwrap();
    for (statement, state, part) in [
        ("CALL tarn.split('r')", "42601", "where the new tablet begins"),
        ("CALL tarn.split('r', 5, 6)", "42P16", "its partition key (a)"),
        ("CALL tarn.split('r', 'five')", "22P02", "five"),
        ("CALL tarn.split('h', 'k')", "22P02", "no token"),
        ("CALL tarn.split('nowhere', 5)", "42P01", "nowhere"),
    ] {
        let (found, text) = failure(client.batch_execute(statement).await);
        assert_eq!(found, state, "{statement}: {text}");
        assert!(text.contains(part), "{statement}: {text}");
    }
    client.batch_execute("CALL tarn.split('r', 50); CALL tarn.split('h', 0)").await.unwrap_err();
    client.batch_execute("CALL tarn.split('h', 4611686018427387904)").await.unwrap();
    let (_, again) = failure(client.batch_execute("CALL tarn.split('r', 50)").await);
    assert!(again.contains("on both sides"), "{again}");
    let (_, unborn) = failure(client.batch_execute("CALL tarn.split('r', 70)").await);
    assert!(unborn.contains("CALL tarn.deliver"), "{unborn}");
    client.batch_execute("CALL tarn.deliver('r'); CALL tarn.split('r', 70)").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*), sum(a) FROM r").await, [["100", "5050"]]);
    assert_eq!(cell(&client, "SELECT count(*) FROM h").await, "100");
    assert_eq!(
        rows(&client, "SELECT table_name, count(*) FROM tarn.tablets GROUP BY 1 ORDER BY 1").await,
        [["h", "3"], ["r", "3"]]
    );
    let (_, text) = failure(client.batch_execute("CREATE TABLE n (k int PRIMARY KEY) WITH (tablets = 4)").await);
    assert!(text.contains("partitioning = 'hash'"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_grows_gets_tablets() {
    let server = Server::start_with(|settings| {
        settings.node.background = true;
        settings.node.background_interval_ms = 20;
        settings.node.tablet_split_bytes = 100_000;
    })
    .await;
    let client = server.client().await;
    let create = "CREATE TABLE t (k int PRIMARY KEY, v text) WITH (delivery = '50ms')";
    client.batch_execute(create).await.unwrap();
    let n_tablets = async || cell(&client, "SELECT count(*) FROM tarn.tablets WHERE table_name = 't'").await;
    let mut n = 0;
    while n_tablets().await.parse::<u32>().unwrap() < 4 {
        let insert =
            format!("INSERT INTO t SELECT value, md5(value::text) FROM generate_series({n}, {}) AS s(value)", n + 999);
        client.batch_execute(&insert).await.unwrap();
        n += 1000;
    }
    let seen = rows(&client, "SELECT count(*), count(DISTINCT k), max(k) FROM t").await;
    assert_eq!(seen, [[n.to_string(), n.to_string(), (n - 1).to_string()]]);
    for k in [0, n / 4, n / 2, n - 1] {
        assert_eq!(cell(&client, &format!("SELECT v = md5(k::text) FROM t WHERE k = {k}")).await, "t");
    }
}
