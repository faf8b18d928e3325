//! `LISTEN` and `NOTIFY`: what is heard, when, and by whom.

use std::time::Duration;

use crate::harness::{Server, failure, rows};
use crate::raw::{RawClient, bind, execute, parse, query, sync};

/// The next message, which is a notification: its channel and payload.
async fn heard(raw: &mut RawClient) -> String {
    let message = raw.next().await.unwrap();
    assert_eq!(message.kind, 'A', "{message:?}");
    String::from_utf8_lossy(&message.body[4..]).trim_end_matches('\0').replace('\0', " ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_is_heard_when_it_commits() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    let mut raw = RawClient::connect(&server).await;
    assert_eq!(raw.ask(&query("LISTEN Jobs")).await, ["CLISTEN", "ZI"]);
    // A client that is idle hears it at once, when the others' transaction has committed.
    client.batch_execute("BEGIN; NOTIFY jobs, 'undone'").await.unwrap();
    client.batch_execute("ROLLBACK; NOTIFY other, 'x'").await.unwrap();
    client
        .batch_execute("BEGIN; INSERT INTO t VALUES (1); NOTIFY jobs, '1'; SAVEPOINT a; NOTIFY jobs, 'undone'")
        .await
        .unwrap();
    client
        .batch_execute("ROLLBACK TO a; SELECT pg_notify('jobs', k::text || '!') FROM t; NOTIFY jobs, '1'; COMMIT")
        .await
        .unwrap();
    assert_eq!((heard(&mut raw).await, heard(&mut raw).await), ("jobs 1".to_owned(), "jobs 1!".to_owned()));
    // What fails says nothing.
    assert_eq!(failure(client.batch_execute("NOTIFY jobs, 'undone'; SELECT 1 / 0").await).0, "22012");
    assert_eq!(
        failure(client.batch_execute("SELECT pg_notify('jobs', 'undone'), 1 / (k - 1) FROM t").await).0,
        "22012"
    );
    client.batch_execute("SELECT pg_notify('jobs', NULL)").await.unwrap();
    assert_eq!(heard(&mut raw).await.trim_end(), "jobs");
    // Its own comes before it is ready, by both protocols; in a transaction nothing is told.
    assert_eq!(raw.ask(&query("NOTIFY jobs, 'own'")).await, ["CNOTIFY", "A", "ZI"]);
    let piped = [parse("", "NOTIFY jobs"), bind("", ""), execute("", 0), sync()].concat();
    assert_eq!(raw.ask(&piped).await, ["1", "2", "CNOTIFY", "A", "ZI"]);
    assert_eq!(raw.ask(&query("BEGIN")).await, ["CBEGIN", "ZT"]);
    client.batch_execute("NOTIFY jobs, 'later'").await.unwrap();
    assert_eq!(raw.ask(&query("SELECT 1")).await, ["T", "D", "CSELECT 1", "ZT"]);
    assert_eq!(raw.ask(&query("COMMIT")).await, ["CCOMMIT", "A", "ZI"]);
    // LISTEN and UNLISTEN are of the transaction, too.
    assert_eq!(raw.ask(&query("BEGIN; UNLISTEN *; ROLLBACK")).await, ["CBEGIN", "CUNLISTEN", "CROLLBACK", "ZI"]);
    client.batch_execute("NOTIFY jobs, 'still'").await.unwrap();
    assert_eq!(heard(&mut raw).await, "jobs still");
    for ends in ["UNLISTEN jobs", "UNLISTEN *", "DISCARD ALL"] {
        raw.ask(&query("LISTEN jobs")).await;
        raw.ask(&query(ends)).await;
        client.batch_execute("NOTIFY jobs, 'x'").await.unwrap();
        assert_eq!(raw.ask(&query("SELECT 1")).await, ["T", "D", "CSELECT 1", "ZI"], "{ends}");
    }
    for (sql, state) in [
        (format!("NOTIFY jobs, '{}'", "x".repeat(8_000)), "22023"),
        ("SELECT pg_notify(NULL, 'x')".to_owned(), "22023"),
        ("SELECT pg_notify('', 'x')".to_owned(), "22023"),
    ] {
        assert_eq!(failure(client.batch_execute(&sql).await).0, state);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_stops_those_who_notify() {
    let server = Server::start().await;
    let client = server.client().await;
    let mut raw = RawClient::connect(&server).await;
    raw.ask(&query("LISTEN jobs")).await;
    raw.ask(&query("BEGIN")).await;
    let payload = "x".repeat(7_000);
    let mut n_sent = 0;
    while let Ok(()) = client.batch_execute(&format!("NOTIFY jobs, '{payload}'")).await {
        n_sent += 1;
        assert!(n_sent < 1_000);
    }
    assert_eq!(failure(client.batch_execute(&format!("NOTIFY jobs, '{payload}'")).await).0, "54000");
    let told = raw.ask(&query("COMMIT")).await;
    assert_eq!(told.iter().filter(|kind| *kind == "A").count(), n_sent);
    client.batch_execute("NOTIFY jobs").await.unwrap();
    assert_eq!(heard(&mut raw).await.trim_end(), "jobs");
    // A client that goes away listens no more.
    drop(raw);
    while !rows(&client, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COMMIT%'").await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.batch_execute("NOTIFY jobs").await.unwrap();
}
