//! `SELECT … FOR UPDATE`: what was computed of a row is never written over what somebody else made of it meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::Client;

use crate::harness::{Server, cell, failure};

async fn two(server: &Server) -> (Client, Client) {
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20)")
        .await
        .unwrap();
    (client, server.client().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_is_lost_without_it_and_not_with_it() {
    let server = Server::start().await;
    let (client, other) = two(&server).await;
    for (locks, is_lost) in [
        ("", true),
        ("FOR UPDATE", false),
        ("FOR NO KEY UPDATE NOWAIT", false),
        ("FOR SHARE", false),
        ("FOR KEY SHARE", false),
    ] {
        for condition in ["k = 1", "v >= 0 AND k < 2 ORDER BY v LIMIT 1"] {
            client.batch_execute("UPDATE t SET v = 10").await.unwrap();
            client.batch_execute("BEGIN").await.unwrap();
            let read: i32 = cell(&client, &format!("SELECT v FROM t WHERE {condition} {locks}")).await.parse().unwrap();
            other.batch_execute("UPDATE t SET v = v + 100 WHERE k = 1").await.unwrap();
            client.batch_execute(&format!("UPDATE t SET v = {} WHERE k = 1", read + 1)).await.unwrap();
            let ended = client.batch_execute("COMMIT").await;
            if is_lost {
                ended.unwrap();
                assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 1").await, "11", "as in PostgreSQL");
            } else {
                assert_eq!(failure(ended).0, "40001", "{locks} {condition}");
                assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 1").await, "110", "{locks} {condition}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_only_locked_counts_too() {
    let server = Server::start().await;
    let (client, other) = two(&server).await;
    for change in ["UPDATE t SET v = 5 WHERE k = 1", "DELETE FROM t WHERE k = 1", "UPSERT INTO t VALUES (1, 7)"] {
        client.batch_execute("UPSERT INTO t VALUES (1, 10)").await.unwrap();
        client
            .batch_execute("BEGIN; SELECT * FROM t WHERE k = 1 FOR UPDATE; UPDATE t SET v = 21 WHERE k = 2")
            .await
            .unwrap();
        other.batch_execute(change).await.unwrap();
        assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001", "{change}");
        assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 2").await, "20", "{change}");
    }
    client.batch_execute("UPSERT INTO t VALUES (1, 10)").await.unwrap();
    // Of two that lock the same row, the second to commit begins again: it did not see what the first did.
    for session in [&client, &other] {
        session.batch_execute("BEGIN; SELECT * FROM t WHERE k = 1 FOR UPDATE").await.unwrap();
    }
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(failure(other.batch_execute("COMMIT").await).0, "40001");
    // What is undone locks nothing: a savepoint, a rollback, a statement by itself.
    client.batch_execute("BEGIN; SAVEPOINT a; SELECT * FROM t FOR UPDATE; ROLLBACK TO a").await.unwrap();
    other.batch_execute("SELECT * FROM t FOR UPDATE; UPDATE t SET v = 9 WHERE k = 1").await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    // Rows that the transaction wrote, and those that it deletes afterwards.
    client.batch_execute("BEGIN; INSERT INTO t VALUES (3, 1); SELECT * FROM t WHERE k = 3 FOR UPDATE").await.unwrap();
    client.batch_execute("UPDATE t SET v = v + 1 WHERE k = 3; SELECT * FROM t WHERE k = 2 FOR UPDATE").await.unwrap();
    client.batch_execute("DELETE FROM t WHERE k = 2; COMMIT").await.unwrap();
    assert_eq!(cell(&client, "SELECT sum(v) FROM t").await, "11");
    // Rows of a table that has no key, and those that are in the lake.
    client.batch_execute("CREATE TABLE n (a int); INSERT INTO n VALUES (1), (1)").await.unwrap();
    client.batch_execute("CALL tarn.deliver('n'); CALL tarn.evict('n')").await.unwrap();
    client.batch_execute("BEGIN; SELECT * FROM n FOR UPDATE").await.unwrap();
    other.batch_execute("UPDATE n SET a = 2").await.unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    client.batch_execute("BEGIN; SELECT * FROM n FOR UPDATE; COMMIT").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM n WHERE a = 2").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counters_that_are_read_and_written_back_count_every_one() {
    let server = Server::start().await;
    let (client, _) = two(&server).await;
    let counted = Arc::new(AtomicU64::new(0));
    let mut writers = vec![];
    for _ in 0..4 {
        let (mut writer, counted) = (server.client().await, Arc::clone(&counted));
        writers.push(tokio::spawn(async move {
            for _ in 0..40 {
                let transaction = writer.transaction().await.unwrap();
                let row = transaction.query_one("SELECT v FROM t WHERE k = $1 FOR UPDATE", &[&1i32]).await.unwrap();
                let next = row.get::<_, i32>(0) + 1;
                transaction.execute("UPDATE t SET v = $1 WHERE k = 1", &[&next]).await.unwrap();
                match transaction.commit().await {
                    Ok(()) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => assert_eq!(error.code().map(|code| code.code()), Some("40001")),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let counted = counted.load(Ordering::Relaxed);
    assert!(counted > 0);
    assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 1").await, (10 + counted).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_table_is_locked_and_not_the_one_that_it_hides() {
    let server = Server::start().await;
    let (client, other) = two(&server).await;
    client
        .batch_execute("CREATE TEMP TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 70), (9, 90)")
        .await
        .unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 1 FOR UPDATE").await, "70");
    other.batch_execute("UPDATE t SET v = 11 WHERE k = 1").await.unwrap();
    client.batch_execute("UPDATE t SET v = v + 1; COMMIT").await.unwrap();
    assert_eq!(cell(&client, "SELECT sum(v) FROM t").await, "162");
    assert_eq!(cell(&other, "SELECT v FROM t WHERE k = 1").await, "11");
    assert_eq!(cell(&other, "SELECT count(*) FROM t WHERE k = 9").await, "0");
    let hidden = failure(client.batch_execute("SELECT * FROM public.t FOR UPDATE").await);
    assert_eq!(hidden.0, "0A000", "{}", hidden.1);
    client.batch_execute("DROP TABLE t").await.unwrap();
    assert_eq!(cell(&client, "SELECT v FROM public.t WHERE k = 1 FOR UPDATE").await, "11");
}
