//! Indexes among many: what an index finds is what a scan finds, whoever writes; and where nothing of an index changes
//! nothing of it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{Server, cell, failure, rows};

/// The rows of a condition by the index, whose name the plan says, and by a scan of all.
async fn both_ways(client: &tokio_postgres::Client, condition: &str) -> [Vec<Vec<String>>; 2] {
    let mut found = [vec![], vec![]];
    for (path, found) in ["index", "lake"].into_iter().zip(&mut found) {
        client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await.unwrap();
        *found = rows(client, &format!("SELECT id, coalesce(a, -1), b FROM t WHERE {condition} ORDER BY id")).await;
    }
    client.batch_execute("RESET tarn.access_path").await.unwrap();
    found
}

async fn path(client: &tokio_postgres::Client, query: &str) -> String {
    rows(client, &format!("EXPLAIN {query}")).await.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_index_finds_is_what_a_scan_finds_whoever_writes() {
    let server = Server::start().await;
    let client = server.client().await;
    let create = "CREATE TABLE t (id int PRIMARY KEY, a int, b text NOT NULL, c int) WITH (delivery = '50 ms', hot_retention = '1 ms')";
    client.batch_execute(create).await.unwrap();
    client
        .batch_execute("INSERT INTO t SELECT i, i % 7, 'b' || i % 5, 0 FROM generate_series(1, 60) AS s(i)")
        .await
        .unwrap();
    client.batch_execute("CREATE INDEX ON t (a); CREATE INDEX t_b ON t (b DESC, a NULLS FIRST)").await.unwrap();
    let (server, is_over) = (Arc::new(server), Arc::new(AtomicBool::new(false)));
    let mut writers = vec![];
    for writer in 0..3_usize {
        let server = Arc::clone(&server);
        writers.push(tokio::spawn(async move {
            let client = server.client().await;
            for step in 0..60 {
                let (id, other) = (1 + (writer * 17 + step * 7) % 60, 1 + (writer * 5 + step * 11) % 60);
                let (a, b) = ((step + writer) % 7, (step * 3 + writer) % 5);
                let write = match step % 8 {
                    0 => format!("UPDATE t SET a = {a} WHERE id = {id}"),
                    1 => format!("UPDATE t SET a = NULL, b = 'b{b}' WHERE id IN ({id}, {other})"),
                    2 => format!("UPDATE t SET c = c + 1 WHERE a = {a}"),
                    3 => format!("BEGIN; DELETE FROM t WHERE id = {id}; INSERT INTO t VALUES ({id}, {a}, 'b{b}', 1); COMMIT"),
                    4 => format!("UPSERT INTO t VALUES ({id}, {a}, 'b{b}', 2)"),
                    5 => format!("BEGIN; UPDATE t SET a = {a} WHERE id = {id}; SAVEPOINT s; UPDATE t SET b = 'x' WHERE id = {other}; ROLLBACK TO s; COMMIT"),
                    6 => format!("INSERT INTO t VALUES ({id}, {a}, 'b{b}', 3) ON CONFLICT (id) DO UPDATE SET b = excluded.b"),
                    _ => format!("DELETE FROM t WHERE b = 'b{b}' AND a = {a} AND id = {id}"),
                };
                if let Err(error) = client.batch_execute(&write).await {
                    let (state, text) = failure::<()>(Err(error));
                    assert!(state == "40001" || state == "23505", "{write}: {state} {text}");
                    client.batch_execute("ROLLBACK").await.unwrap();
                }
            }
        }));
    }
    let reader = {
        let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
        tokio::spawn(async move {
            let client = server.client().await;
            let mut n_rows = 0;
            for round in 0.. {
                if is_over.load(Ordering::SeqCst) && round > 20 {
                    break;
                }
                // Both at one moment.
                client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
                let condition = match round % 4 {
                    0 => format!("a = {}", round % 7),
                    1 => "a IS NULL".to_owned(),
                    2 => format!("b = 'b{}' AND a > 2", round % 5),
                    _ => format!("a IN ({}, {}, 100)", round % 7, (round + 3) % 7),
                };
                let [by_index, by_scan] = both_ways(&client, &condition).await;
                assert_eq!(by_index, by_scan, "{condition}");
                n_rows += by_scan.len();
                client.batch_execute("COMMIT").await.unwrap();
            }
            n_rows
        })
    };
    for writer in writers {
        writer.await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    assert!(reader.await.unwrap() > 0, "nothing was found");
    // Each row has one entry, and there is no other.
    client.batch_execute("SET tarn.access_path = 'index'").await.unwrap();
    let n = cell(&client, "SELECT count(*) FROM t WHERE id >= 0").await;
    let of = |condition| format!("SELECT id FROM t WHERE {condition}");
    let told = path(&client, &of("b >= ''")).await;
    assert!(told.contains(&format!("t_b has entries of {n} rows")), "{n}: {told}");
    let n_null = cell(&client, "SELECT count(*) FROM t WHERE a IS NULL AND id >= 0").await;
    let told = path(&client, &of("a IS NULL")).await;
    assert!(told.contains(&format!("t_a_idx has entries of {n_null} row")), "{n_null}: {told}");
}

/// An index comes while others write: it has the rows of before and of afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_comes_while_others_write() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (id bigserial PRIMARY KEY, a int, b text NOT NULL DEFAULT 'b')")
        .await
        .unwrap();
    let server = Arc::new(server);
    let mut writers = vec![];
    for writer in 0..3_usize {
        let server = Arc::clone(&server);
        writers.push(tokio::spawn(async move {
            let client = server.client().await;
            let mut n = 0;
            for step in 0..100 {
                let write = match step % 3 {
                    0 => format!("UPDATE t SET a = {} WHERE id = {}", step % 9, 1 + (writer * 31 + step) % 50),
                    _ => format!("INSERT INTO t (a) VALUES ({})", (writer + step) % 9),
                };
                match client.batch_execute(&write).await {
                    Ok(()) => n += usize::from(step % 3 != 0),
                    // Planned for the definition of before.
                    Err(error) => assert_eq!(failure::<()>(Err(error)).0, "40001"),
                }
            }
            n
        }));
    }
    for turn in 0..6 {
        client.batch_execute("CREATE INDEX CONCURRENTLY t_a ON t (a)").await.unwrap();
        if turn < 5 {
            client.batch_execute("DROP INDEX t_a").await.unwrap();
        }
    }
    let mut n = 0;
    for writer in writers {
        n += writer.await.unwrap();
    }
    for a in 0..9 {
        let [by_index, by_scan] = both_ways(&client, &format!("a = {a}")).await;
        assert_eq!(by_index, by_scan, "{a}");
        n -= by_scan.len();
    }
    assert_eq!(n, 0, "rows are missing");
}

/// A transaction sees its own rows by an index, and what others committed by its level.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_finds_its_own_rows_by_an_index() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client
        .batch_execute(
            "CREATE TABLE t (id int PRIMARY KEY, a int, b text NOT NULL); CREATE INDEX t_a ON t (a); \
             INSERT INTO t VALUES (1, 10, 'x'), (2, 10, 'y'), (3, 20, 'z')",
        )
        .await
        .unwrap();
    let ids = async |client: &tokio_postgres::Client, a: i32| {
        cell(client, &format!("SELECT string_agg(id::text, ' ' ORDER BY id) FROM t WHERE a = {a}")).await
    };
    client.batch_execute("SET tarn.access_path = 'index'").await.unwrap();
    for (level, of_other) in [("READ COMMITTED", "1 4 5"), ("REPEATABLE READ", "1 4")] {
        client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM t")).await.unwrap();
        client
            .batch_execute("UPDATE t SET a = 20 WHERE id = 2; INSERT INTO t VALUES (4, 10, 'own'); DELETE FROM t WHERE a = 20 AND id = 3")
            .await
            .unwrap();
        assert_eq!((ids(&client, 10).await, ids(&client, 20).await), ("1 4".to_owned(), "2".to_owned()), "{level}");
        other.batch_execute("INSERT INTO t VALUES (5, 10, 'theirs')").await.unwrap();
        assert_eq!(ids(&client, 10).await, of_other, "{level}");
        client.batch_execute("SAVEPOINT s; UPDATE t SET a = 30 WHERE a = 10; ROLLBACK TO s").await.unwrap();
        assert_eq!(ids(&client, 10).await, of_other, "{level}");
        assert!(path(&client, "SELECT id FROM t WHERE a = 10").await.contains("access_path=index"), "{level}");
        client.batch_execute("ROLLBACK").await.unwrap();
        other.batch_execute("DELETE FROM t WHERE id = 5").await.unwrap();
        assert_eq!((ids(&client, 10).await, ids(&client, 20).await), ("1 2".to_owned(), "3".to_owned()));
    }
    // An index that the transaction makes itself lacks what others write meanwhile: it is not asked before COMMIT.
    client.batch_execute("BEGIN; INSERT INTO t VALUES (6, 60, 'own'); CREATE INDEX t_b ON t (b)").await.unwrap();
    other.batch_execute("INSERT INTO t VALUES (7, 60, 'theirs')").await.unwrap();
    assert_eq!(rows(&client, "SELECT id FROM t WHERE b IN ('own', 'theirs') ORDER BY id").await, [["6"], ["7"]]);
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    client
        .batch_execute("BEGIN; INSERT INTO t VALUES (6, 60, 'own'); CREATE INDEX t_b ON t (b); COMMIT")
        .await
        .unwrap();
    assert_eq!(rows(&client, "SELECT id FROM t WHERE b IN ('own', 'theirs') ORDER BY id").await, [["6"], ["7"]]);
    assert!(path(&client, "SELECT id FROM t WHERE b = 'own'").await.contains("t_b has entries of 1 row"));
}

/// What is in the lake alone is found by its entries, which stay in the row engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_were_evicted_are_found_by_an_index() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text NOT NULL); CREATE INDEX t_a ON t (a)")
        .await
        .unwrap();
    client.batch_execute("INSERT INTO t SELECT i, i % 100, 'b' FROM generate_series(1, 2000) AS s(i)").await.unwrap();
    let look = async |client: &tokio_postgres::Client, n: usize| {
        let [by_index, by_scan] = both_ways(client, "a = 7").await;
        assert_eq!(by_index, by_scan);
        assert_eq!(by_scan.len(), n);
    };
    look(&client, 20).await;
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    client.batch_execute("CALL tarn.evict('t')").await.unwrap();
    look(&client, 20).await;
    client.batch_execute("UPDATE t SET a = 7 WHERE id = 8; DELETE FROM t WHERE id IN (7, 107)").await.unwrap();
    look(&client, 19).await;
    let server = server.restart().await;
    let client = server.client().await;
    look(&client, 19).await;
    client.batch_execute("SET tarn.access_path = 'index'").await.unwrap();
    assert!(path(&client, "SELECT id FROM t WHERE a = 7").await.contains("t_a has entries of 19 rows"));
}
