//! BEGIN … COMMIT holds one write; ROLLBACK keeps nothing; what cannot be held honestly is refused.

use crate::harness::{Server, cell, failure, rows};

async fn table() -> (Server, tokio_postgres::Client) {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20)")
        .await
        .unwrap();
    (server, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_keeps_nothing_and_commit_keeps_all() {
    let (server, client) = table().await;
    let other = server.client().await;
    for write in [
        "INSERT INTO t VALUES (3, 30)",
        "UPDATE t SET v = 0",
        "UPDATE t SET v = 0 WHERE k = 1",
        "DELETE FROM t",
        "DELETE FROM t WHERE k = 1",
    ] {
        client.batch_execute("BEGIN").await.unwrap();
        client.batch_execute(write).await.unwrap();
        assert_eq!(cell(&other, "SELECT sum(v) FROM t").await, "30", "{write} is not seen before COMMIT");
        client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(cell(&client, "SELECT sum(v) FROM t").await, "30", "{write} was rolled back");
    }
    client.batch_execute("BEGIN; UPDATE t SET v = v + 1; COMMIT").await.unwrap();
    assert_eq!(rows(&client, "SELECT v FROM t ORDER BY k").await, [["11"], ["21"]]);
    client
        .batch_execute("BEGIN; INSERT INTO t VALUES (3, 30); INSERT INTO t VALUES (4, 40), (3, 31); COMMIT")
        .await
        .unwrap();
    assert_eq!(rows(&client, "SELECT v FROM t ORDER BY k").await, [["11"], ["21"], ["31"], ["40"]]);
    client.batch_execute("BEGIN; CREATE TABLE u (k int PRIMARY KEY); ROLLBACK").await.unwrap();
    assert_eq!(failure(client.batch_execute("SELECT * FROM u").await).0, "42P01");
    client.batch_execute("BEGIN; CREATE TABLE u (k int PRIMARY KEY); COMMIT; SELECT * FROM u").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_made_and_filled_in_one_transaction() {
    let (server, client) = table().await;
    client.batch_execute("BEGIN; CREATE TABLE a (x int); INSERT INTO a VALUES (1), (1); COMMIT").await.unwrap();
    client.batch_execute("BEGIN; CREATE TABLE b AS SELECT x + 1 AS y FROM a; COMMIT").await.unwrap();
    assert_eq!(rows(&client, "SELECT y FROM b").await, [["2"], ["2"]]);
    // What is undone drops them; those that were there before stay.
    let undone = "BEGIN; CREATE TABLE IF NOT EXISTS a (z int); CREATE TABLE c (x int); INSERT INTO c VALUES (1)";
    for (end, state) in
        [("ROLLBACK", None), ("SELECT 1 / 0", Some("22012")), ("INSERT INTO t VALUES (9, 9)", Some("0A000"))]
    {
        client.batch_execute(undone).await.unwrap();
        let ended = client.batch_execute(end).await;
        if let Some(state) = state {
            assert_eq!(failure(ended).0, state);
            client.batch_execute("COMMIT").await.unwrap();
        }
        assert_eq!(failure(client.batch_execute("SELECT * FROM c").await).0, "42P01", "{end}");
        assert_eq!(cell(&client, "SELECT count(*) FROM a").await, "2");
    }
    let parts = "BEGIN; CREATE TABLE c (x int); SAVEPOINT s; DROP TABLE c; ROLLBACK TO s; CREATE TABLE d (x int); \
                 INSERT INTO d VALUES (1); ROLLBACK TO s; INSERT INTO c VALUES (7); COMMIT";
    client.batch_execute(parts).await.unwrap();
    assert_eq!(rows(&client, "SELECT x FROM c").await, [["7"]]);
    assert_eq!(failure(client.batch_execute("SELECT * FROM d").await).0, "42P01");
    client
        .batch_execute("BEGIN; CREATE TABLE d (x int); DROP TABLE d; CREATE TABLE d (y int); COMMIT; TABLE d")
        .await
        .unwrap();
    // A client that goes away has rolled back.
    let other = server.client().await;
    other.batch_execute("BEGIN; CREATE TABLE e (x int)").await.unwrap();
    drop(other);
    while rows(&client, "SHOW TABLES").await.contains(&vec!["e".to_owned()]) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_inside_a_transaction_are_exact() {
    let (_server, mut client) = table().await;
    let transaction = client.transaction().await.unwrap();
    assert_eq!(transaction.execute("UPDATE t SET v = 5 WHERE v >= 10", &[]).await.unwrap(), 2);
    transaction.commit().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    assert_eq!(transaction.execute("DELETE FROM t WHERE k = $1", &[&7i32]).await.unwrap(), 0);
    assert_eq!(transaction.execute("DELETE FROM t WHERE k = $1", &[&1i32]).await.unwrap(), 1);
    transaction.commit().await.unwrap();
    assert_eq!(rows(&client, "SELECT k, v FROM t").await, [["2", "5"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_held_is_refused_with_the_remedy() {
    let (_server, client) = table().await;
    for (statements, part) in [
        (["INSERT INTO t VALUES (9, 9)", "UPDATE t SET v = 1"], "one writing statement"),
        (["UPDATE t SET v = 1", "DELETE FROM t WHERE k = 1"], "one writing statement"),
        (["INSERT INTO t VALUES (9, 9)", "SELECT * FROM t"], "COMMIT first"),
        (["SELECT 1", "INSERT INTO t VALUES (1, 1) ON CONFLICT DO NOTHING"], "autocommit"),
    ] {
        client.batch_execute("BEGIN").await.unwrap();
        client.batch_execute(statements[0]).await.unwrap();
        let (code, text) = failure(client.batch_execute(statements[1]).await);
        assert_eq!(code, "0A000", "{statements:?}");
        assert!(text.contains(part), "{text}");
        assert_eq!(failure(client.batch_execute("SELECT 1").await).0, "25P02");
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "2", "a failed transaction keeps nothing");
    }
    client.batch_execute("BEGIN READ ONLY").await.unwrap();
    assert_eq!(failure(client.batch_execute("INSERT INTO t VALUES (9, 9)").await).0, "25006");
    client.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_changed_before_commit_fails_the_transaction() {
    let (server, client) = table().await;
    let other = server.client().await;
    client.batch_execute("BEGIN; UPDATE t SET v = v + 1 WHERE k = 1").await.unwrap();
    other.batch_execute("UPDATE t SET v = 100 WHERE k = 1").await.unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 1").await, "100");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_read_then_write_updates_lose_nothing() {
    let (server, client) = table().await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = server.client().await;
        tasks.push(tokio::spawn(async move {
            let mut done = 0;
            for _ in 0..10 {
                done += client.execute("UPDATE t SET v = v + 1 WHERE v > 0", &[]).await.unwrap_or(0);
            }
            done
        }));
    }
    let mut written = 0;
    for task in tasks {
        written += task.await.unwrap();
    }
    let sum: u64 = cell(&client, "SELECT sum(v) FROM t").await.parse().unwrap();
    assert!(written > 0 && sum >= 30 + written, "{written} counted, sum {sum}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cursors_read_piece_by_piece() {
    let (_server, client) = table().await;
    assert_eq!(failure(client.batch_execute("DECLARE c CURSOR FOR SELECT 1").await).0, "25P01");
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT k FROM t ORDER BY k").await.unwrap();
    assert_eq!(rows(&client, "FETCH 1 FROM c").await, [["1"]]);
    assert_eq!(rows(&client, "FETCH FORWARD 5 FROM c").await, [["2"]]);
    assert!(rows(&client, "FETCH 1 FROM c").await.is_empty());
    client.batch_execute("CLOSE c; COMMIT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_keeps_what_was_written_before() {
    let (_server, client) = table().await;
    let all = "SELECT k, v FROM t WHERE k > 2 ORDER BY k";
    // An error is undone as far as the savepoint, more than once; the youngest of a name is meant.
    client
        .batch_execute(
            "BEGIN; INSERT INTO t VALUES (3, 30); SAVEPOINT a; INSERT INTO t VALUES (4, 40); SAVEPOINT \"A\"",
        )
        .await
        .unwrap();
    client.batch_execute("INSERT INTO t VALUES (5, 50); SAVEPOINT a; INSERT INTO t VALUES (6, 60)").await.unwrap();
    for _ in 0..2 {
        assert_eq!(failure(client.batch_execute("INSERT INTO t VALUES (7, 'x')").await).0, "22P02");
        assert_eq!(failure(client.batch_execute("SELECT 1").await).0, "25P02");
        client.batch_execute("ROLLBACK TO a").await.unwrap();
    }
    client
        .batch_execute("RELEASE SAVEPOINT a; ROLLBACK TO SAVEPOINT \"A\"; INSERT INTO t VALUES (8, 80); COMMIT")
        .await
        .unwrap();
    assert_eq!(rows(&client, all).await, [["3", "30"], ["4", "40"], ["8", "80"]]);

    // Nothing was held: everything is as after BEGIN, and a second kind of write is taken.
    client.batch_execute("BEGIN READ WRITE; SAVEPOINT s; INSERT INTO t VALUES (9, 90)").await.unwrap();
    client.batch_execute("ROLLBACK TO s; UPDATE t SET v = 0 WHERE k = 8; COMMIT").await.unwrap();
    assert_eq!(rows(&client, all).await, [["3", "30"], ["4", "40"], ["8", "0"]]);

    // Cursors since then are closed, those before are not.
    client
        .batch_execute("BEGIN; DECLARE a CURSOR FOR SELECT k FROM t; SAVEPOINT s; DECLARE b CURSOR FOR SELECT k FROM t")
        .await
        .unwrap();
    assert_eq!(failure(client.batch_execute("SELECT 1 / 0").await).0, "22012");
    client.batch_execute("ROLLBACK TO s; FETCH 1 FROM a").await.unwrap();
    assert_eq!(failure(client.batch_execute("FETCH 1 FROM b").await).0, "34000");
    client.batch_execute("ROLLBACK").await.unwrap();

    client.batch_execute("BEGIN; SAVEPOINT s; RELEASE s").await.unwrap();
    assert_eq!(failure(client.batch_execute("ROLLBACK TO s").await).0, "3B001");
    // A savepoint that was released cannot bring the transaction back.
    assert_eq!(failure(client.batch_execute("ROLLBACK TO s").await).0, "3B001");
    client.batch_execute("COMMIT").await.unwrap();
    for outside in ["SAVEPOINT s", "RELEASE s", "ROLLBACK TO s"] {
        assert_eq!(failure(client.batch_execute(outside).await).0, "25P01", "{outside}");
    }
}
