//! Cursors: which way they go, how long they live, what they keep.

use crate::harness::{Server, cell, failure, rows};
use crate::raw::{RawClient, query};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_cursors_outlive_their_transaction_if_it_commits() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    client.batch_execute("INSERT INTO t SELECT x FROM generate_series(1, 10) AS s(x)").await.unwrap();
    client
        .batch_execute(
            "BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT k FROM t ORDER BY k; DECLARE c CURSOR FOR SELECT 1; FETCH 2 h; COMMIT",
        )
        .await
        .unwrap();
    assert_eq!(failure(client.batch_execute("FETCH c").await).0, "34000");
    // What others do meanwhile is not seen.
    client.batch_execute("DELETE FROM t").await.unwrap();
    assert_eq!(rows(&client, "FETCH 2 FROM h").await, [["3"], ["4"]]);
    // An error in another transaction does not end it.
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(failure(client.batch_execute("SELECT 1 / 0").await).0, "22012");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(rows(&client, "FETCH RELATIVE 2 h").await, [["6"]]);
    assert_eq!(rows(&client, "FETCH LAST h").await, [["10"]]);
    client.batch_execute("CLOSE h").await.unwrap();
    assert_eq!(failure(client.batch_execute("FETCH h").await).0, "34000");
    // One whose transaction does not commit is gone.
    client.batch_execute("BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT 1; ROLLBACK").await.unwrap();
    assert_eq!(failure(client.batch_execute("FETCH h").await).0, "34000");
    // What goes wrong while it is read fails the COMMIT, and nothing is written.
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
    client
        .batch_execute("DECLARE h CURSOR WITH HOLD FOR SELECT 1 / (x - 90000) FROM generate_series(1, 100000) AS s(x)")
        .await
        .unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "22012");
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "0");
    client.batch_execute("DECLARE h CURSOR WITH HOLD FOR SELECT 1; DISCARD ALL").await.unwrap_err();
    client.batch_execute("DECLARE h CURSOR WITH HOLD FOR SELECT 1").await.unwrap();
    assert_eq!(cell(&client, "SELECT name FROM pg_cursors").await, "h");
    client.batch_execute("DISCARD ALL").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM pg_cursors").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_to_go_back_to_are_kept_on_disk() {
    let server = Server::start().await;
    let client = server.client().await;
    let wide = "SELECT x, repeat('x', 1000) FROM generate_series(1, 20000) AS s(x)";
    client
        .batch_execute(&format!("BEGIN; DECLARE c SCROLL CURSOR FOR {wide}; DECLARE d CURSOR FOR {wide}"))
        .await
        .unwrap();
    assert_eq!(rows(&client, "FETCH ALL c").await.len(), 20_000);
    for (step, want) in [("PRIOR", "20000"), ("FIRST", "1"), ("ABSOLUTE 12345", "12345"), ("ABSOLUTE -2", "19999")] {
        assert_eq!(rows(&client, &format!("FETCH {step} c")).await[0][0], want, "{step}");
    }
    assert_eq!(rows(&client, "FETCH BACKWARD ALL c").await.len(), 19_998);
    // Nobody said that this one goes back: it does while it has given out little.
    assert_eq!(rows(&client, "FETCH NEXT d").await.len(), 1);
    assert_eq!(rows(&client, "FETCH 15000 d").await.len(), 15_000);
    let (state, message) = failure(client.batch_execute("FETCH PRIOR d").await);
    assert_eq!(state, "55000");
    assert!(message.contains("cursor can only scan forward") && message.contains("SCROLL"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_cursor_gives_binary_rows() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(&server).await;
    raw.ask(&query("BEGIN; DECLARE c BINARY CURSOR FOR SELECT 65 AS a, 'x' AS b; DECLARE d CURSOR FOR SELECT 65 AS a"))
        .await;
    raw.send(&query("FETCH c; FETCH d")).await;
    let rows: Vec<Vec<u8>> =
        raw.until_ready().await.into_iter().filter(|message| message.kind == 'D').map(|message| message.body).collect();
    assert_eq!(rows, [&b"\0\x02\0\0\0\x04\0\0\0\x41\0\0\0\x01x"[..], &b"\0\x01\0\0\0\x0265"[..]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_takes_parameters() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let transaction = client.transaction().await.unwrap();
    let declared = "DECLARE c CURSOR FOR SELECT x FROM generate_series(1, 9) AS s(x) WHERE x > $1 ORDER BY x";
    transaction.execute(declared, &[&6i32]).await.unwrap();
    let fetched = transaction.query("FETCH ALL FROM c", &[]).await.unwrap();
    assert_eq!(fetched.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [7, 8, 9]);
}
