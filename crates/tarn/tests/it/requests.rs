//! A request that is made again by its key has its first outcome, and writes nothing: over the wire, whatever happens
//! in between.

use std::time::Duration;

use bytes::Bytes;
use futures::SinkExt;
use serde_json::json;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::harness::{Server, cell, failure};
use crate::http::asked;

async fn name(client: &Client, key: &str) {
    client.batch_execute(&format!("SET tarn.idempotency_key = '{key}'")).await.unwrap();
}

/// The counts of command tags.
async fn counts(client: &Client, sql: &str) -> Result<Vec<u64>, Error> {
    let told = client.simple_query(sql).await?;
    let count = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
        _ => None,
    };
    Ok(told.iter().filter_map(count).collect())
}

async fn copy(client: &Client, sql: &str, lines: &[&'static str]) -> Result<u64, Error> {
    let sink = client.copy_in(sql).await?;
    futures::pin_mut!(sink);
    for line in lines {
        sink.send(Bytes::from(*line)).await?;
    }
    sink.finish().await
}

async fn table(server: &Server) -> Client {
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v bigint UNIQUE); INSERT INTO t VALUES (1, 10), (2, 20)")
        .await
        .unwrap();
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_has_its_first_outcome_whoever_asks_again_and_when() {
    let mut server = Server::start().await;
    let client = table(&server).await;
    for (key, sql, rows) in [
        ("insert", "INSERT INTO t VALUES (3, 30), (4, 40)", 2),
        ("keyed", "UPDATE t SET v = v + 1 WHERE id = 1", 1),
        ("update", "UPDATE t SET v = v + 100 WHERE id < 3", 2),
        ("nothing", "UPDATE t SET v = 0 WHERE id = 77", 0),
        ("delete", "DELETE FROM t WHERE id = 4", 1),
        ("skip", "INSERT INTO t VALUES (1, 0), (5, 50) ON CONFLICT DO NOTHING", 1),
        ("moved", "UPDATE t SET id = id + 1000 WHERE id = 5", 1),
        (
            "merge",
            "MERGE INTO t USING (VALUES (2, 7)) AS s (id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = t.v + s.v",
            1,
        ),
    ] {
        for again in 0..3 {
            name(&client, key).await;
            assert_eq!(counts(&client, sql).await.unwrap(), [rows], "{sql}, {again}");
        }
    }
    let all = "SELECT string_agg(id || ':' || v, ' ' ORDER BY id) FROM t";
    let want = "1:111 2:127 3:30 1005:50";
    assert_eq!(cell(&client, all).await, want);

    // The key was taken: the next one is a statement like any other.
    assert_eq!(cell(&client, "SHOW tarn.idempotency_key").await, "");
    assert_eq!(counts(&client, "UPDATE t SET v = v + 1 WHERE id = 3").await.unwrap(), [1]);
    // What a refused statement took is taken, too.
    name(&client, "taken").await;
    let (state, _) = failure(client.batch_execute("INSERT INTO t VALUES (3, 3)").await);
    assert_eq!(state, "23505");
    assert_eq!(counts(&client, "DELETE FROM t WHERE id = 3").await.unwrap(), [1]);
    name(&client, "taken").await;
    assert_eq!(counts(&client, "INSERT INTO t VALUES (3, 31)").await.unwrap(), [1], "nothing was kept of it");

    // By parameters, and by somebody else who has the same name, behind a restart and a split.
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    name(&client, "prepared").await;
    assert_eq!(client.execute(&insert, &[&6_i64, &60_i64]).await.unwrap(), 1);
    drop(client);
    server = server.restart().await;
    let client = server.client().await;
    client.batch_execute("CALL tarn.deliver('t'); CALL tarn.split('t', 4)").await.unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    for value in [60_i64, 61] {
        name(&client, "prepared").await;
        let told = client.execute(&insert, &[&6_i64, &value]).await;
        match value {
            60 => assert_eq!(told.unwrap(), 1),
            _ => {
                let (state, text) = failure(told);
                assert_eq!(state, "22023");
                assert!(text.contains("tarn.idempotency_key 'prepared' names a request that was made"), "{text}");
            }
        }
    }
    name(&client, "insert").await;
    assert_eq!(counts(&client, "INSERT INTO t VALUES (3, 30), (4, 40)").await.unwrap(), [2]);
    // Another table, the same key: it is another statement.
    client.batch_execute("CREATE TABLE other (id bigint PRIMARY KEY)").await.unwrap();
    name(&client, "insert").await;
    assert_eq!(failure(client.batch_execute("INSERT INTO other VALUES (1)").await).0, "22023");
    assert_eq!(cell(&client, "SELECT count(*) FROM other").await, "0");
    assert_eq!(cell(&client, all).await, "1:111 2:127 3:31 6:60 1005:50");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_has_its_first_outcome() {
    let server = Server::start().await;
    let client = table(&server).await;
    client.batch_execute("CREATE TABLE log (n bigint) WITH (append_only = true)").await.unwrap();
    let transfer = "BEGIN; SELECT v FROM t WHERE id = 1 FOR UPDATE; UPDATE t SET v = v - 1 WHERE id = 1; SAVEPOINT s; \
                    UPDATE t SET v = v + 1 WHERE id = 2; RELEASE s; INSERT INTO log VALUES (1), (2); COMMIT";
    for _ in 0..3 {
        name(&client, "transfer").await;
        assert_eq!(counts(&client, transfer).await.unwrap(), [0, 1, 1, 0, 1, 0, 2, 0]);
        assert_eq!(cell(&client, "SELECT sum(v * id) FROM t").await, (9 + 42).to_string());
        assert_eq!(cell(&client, "SELECT count(*) FROM log").await, "2");
    }
    // Other statements, fewer, and more.
    for (other, at) in [
        ("BEGIN; UPDATE t SET v = v - 2 WHERE id = 1", "another statement"),
        ("BEGIN; UPDATE t SET v = v - 1 WHERE id = 1; COMMIT", "fewer statements"),
        ("UPDATE t SET v = v - 1 WHERE id = 1", "fewer statements"),
        (
            "BEGIN; UPDATE t SET v = v - 1 WHERE id = 1; UPDATE t SET v = v + 1 WHERE id = 2; INSERT INTO log VALUES (1), (2); \
             INSERT INTO log VALUES (3)",
            "another statement",
        ),
    ] {
        name(&client, "transfer").await;
        let (state, text) = failure(client.batch_execute(other).await);
        assert_eq!(state, "22023", "{other}");
        assert!(text.contains(at), "{text}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    assert_eq!(cell(&client, "SELECT sum(v * id) FROM t").await, (9 + 42).to_string());

    // A transaction that is rolled back was not made, and one of statements that nobody said BEGIN before is one, too.
    name(&client, "message").await;
    client.batch_execute("BEGIN; INSERT INTO log VALUES (7); ROLLBACK").await.unwrap();
    for _ in 0..2 {
        name(&client, "message").await;
        let told = counts(&client, "INSERT INTO log VALUES (7); UPDATE t SET v = v + 1 WHERE id = 2").await.unwrap();
        assert_eq!(told, [1, 1]);
    }
    assert_eq!(cell(&client, "SELECT count(*) FROM log").await, "3");
    assert_eq!(cell(&client, "SELECT v FROM t WHERE id = 2").await, "22");

    // Going back to a savepoint goes back to nothing that is kept.
    for _ in 0..2 {
        name(&client, "savepoint").await;
        client.batch_execute("BEGIN; INSERT INTO log VALUES (8); SAVEPOINT s").await.unwrap();
        let told = client.batch_execute("INSERT INTO t VALUES (1, 1)").await;
        assert!(["23505", "22023"].contains(&&*failure(told).0), "it is refused, for one reason or the other");
        client.batch_execute("ROLLBACK TO s; INSERT INTO log VALUES (9); COMMIT").await.unwrap();
    }
    assert_eq!(cell(&client, "SELECT sum(n) FROM log").await, (1 + 2 + 7 + 8 + 9).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_has_its_first_outcome() {
    let server = Server::start().await;
    let client = table(&server).await;
    // However the data are cut.
    for lines in [&["7\t70\n8\t80\n"][..], &["7\t", "70\n8\t80\n"], &["7\t70\n8\t80", "\n"]] {
        name(&client, "copied").await;
        assert_eq!(copy(&client, "COPY t FROM STDIN", lines).await.unwrap(), 2);
    }
    name(&client, "copied").await;
    assert_eq!(failure(copy(&client, "COPY t FROM STDIN", &["7\t70\n9\t90\n"]).await).0, "22023");
    // One that fails leaves nothing, not even its first rows, and its key is free.
    name(&client, "failed").await;
    assert_eq!(failure(copy(&client, "COPY t FROM STDIN", &["9\t90\n", "x\t1\n"]).await).0, "22P02");
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "4");
    name(&client, "failed").await;
    assert_eq!(copy(&client, "COPY t FROM STDIN", &["9\t90\n"]).await.unwrap(), 1);
    for _ in 0..2 {
        name(&client, "skipped").await;
        let told = copy(&client, "COPY t FROM STDIN WITH (on_conflict = skip)", &["9\t91\n10\t100\n"]).await;
        assert_eq!(told.unwrap(), 1);
    }
    // In a transaction it is one of its statements.
    for _ in 0..2 {
        name(&client, "both").await;
        client.batch_execute("BEGIN; UPDATE t SET v = v + 1 WHERE id = 1").await.unwrap();
        assert_eq!(copy(&client, "COPY t FROM STDIN", &["11\t110\n"]).await.unwrap(), 1);
        client.batch_execute("COMMIT").await.unwrap();
    }
    assert_eq!(cell(&client, "SELECT count(*) || ' ' || sum(v) FROM t").await, "7 481");
}

/// The first connection is gone, or slow, and its request is under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_while_it_is_being_made_waits_for_it() {
    let server = Server::start().await;
    let first = table(&server).await;
    for ends in ["COMMIT", "ROLLBACK"] {
        name(&first, ends).await;
        first.batch_execute("BEGIN; UPDATE t SET v = v + 1 WHERE id = 1").await.unwrap();
        let again = server.client().await;
        name(&again, ends).await;
        let asked = tokio::spawn(async move { counts(&again, "UPDATE t SET v = v + 1 WHERE id = 1").await });
        tokio::time::timeout(Duration::from_millis(50), async {
            while !asked.is_finished() {
                tokio::task::yield_now().await
            }
        })
        .await
        .unwrap_err();
        first.batch_execute(ends).await.unwrap();
        assert_eq!(asked.await.unwrap().unwrap(), [1]);
    }
    assert_eq!(cell(&first, "SELECT v FROM t WHERE id = 1").await, "12");
    // Who does not want to wait does not have to.
    name(&first, "slow").await;
    first.batch_execute("BEGIN; DELETE FROM t WHERE id = 1").await.unwrap();
    let again = server.client().await;
    name(&again, "slow").await;
    again.batch_execute("SET statement_timeout = '20ms'").await.unwrap();
    assert_eq!(failure(again.batch_execute("DELETE FROM t WHERE id = 1").await).0, "57014");
    drop(first);
    again.batch_execute("RESET statement_timeout").await.unwrap();
    name(&again, "slow").await;
    assert_eq!(counts(&again, "DELETE FROM t WHERE id = 1").await.unwrap(), [1], "who left had not committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_the_header_is_the_key() {
    let server = Server::start().await;
    let client = table(&server).await;
    let ask = async |key: &str, sql: &str| {
        let host = server.running.http.unwrap();
        let headers = format!("host: {host}\r\ncontent-type: application/json\r\n{key}");
        asked(&server, &headers, &json!({ "sql": sql }).to_string()).await
    };
    let add = "UPDATE t SET v = v + 1 WHERE id = 1";
    for key in ["Idempotency-Key: \"a\"\r\n", "idempotency-key: a\r\n", "Idempotency-Key:  a \r\n"] {
        let (status, told) = ask(key, add).await;
        assert_eq!((status, &told["results"][0]["command"]), (200, &json!("UPDATE 1")), "{told}");
    }
    assert_eq!(cell(&client, "SELECT v FROM t WHERE id = 1").await, "11");
    let both = format!("BEGIN; {add}; {add}; COMMIT");
    for _ in 0..2 {
        assert_eq!(ask("Idempotency-Key: b\r\n", &both).await.0, 200);
    }
    assert_eq!(cell(&client, "SELECT v FROM t WHERE id = 1").await, "13");
    for (key, sql, state) in [
        ("Idempotency-Key: a\r\n", "DELETE FROM t", "22023"),
        ("Idempotency-Key: \r\n", add, "22023"),
        ("Idempotency-Key: c\r\nIdempotency-Key: d\r\n", add, "22023"),
        ("Idempotency-Key: c\r\n", &*format!("{add}; {add}"), "0A000"),
        ("Idempotency-Key: c\r\n", &*format!("BEGIN; {add}; COMMIT; {add}; COMMIT"), "0A000"),
    ] {
        let (status, told) = ask(key, sql).await;
        assert_eq!((status, &told["error"]["code"]), (400, &json!(state)), "{key}{sql}");
    }
    assert_eq!(cell(&client, "SELECT v FROM t WHERE id = 1").await, "13");
    assert_eq!(ask("", add).await.0, 200);
}
