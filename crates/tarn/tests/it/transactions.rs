//! BEGIN … COMMIT: statements see what the transaction wrote, nobody else does; COMMIT writes all tables or none;
//! ROLLBACK keeps nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
        .batch_execute("BEGIN; INSERT INTO t VALUES (3, 30); UPSERT INTO t VALUES (4, 40), (3, 31); COMMIT")
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
    for (end, state) in [("ROLLBACK", None), ("SELECT 1 / 0", Some("22012"))] {
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
async fn statements_see_what_the_transaction_wrote_and_nobody_else_does() {
    let (server, client) = table().await;
    let other = server.client().await;
    client.batch_execute("CREATE TABLE u (k int PRIMARY KEY, name text); CREATE TABLE l (x int)").await.unwrap();
    client
        .batch_execute("INSERT INTO t SELECT x, x FROM generate_series(3, 500) s(x); CALL tarn.deliver('t')")
        .await
        .unwrap();
    client
        .batch_execute("BEGIN; UPDATE t SET v = -v WHERE k <= 2; INSERT INTO u VALUES (1, 'one'), (600, 'six')")
        .await
        .unwrap();
    client.batch_execute("INSERT INTO t VALUES (600, 6); DELETE FROM t WHERE k BETWEEN 100 AND 199").await.unwrap();
    client
        .batch_execute("UPDATE t SET v = v + 1 WHERE k = 600; UPDATE t SET v = 7 WHERE k = 600 AND v = 7")
        .await
        .unwrap();
    client
        .batch_execute("INSERT INTO l VALUES (1), (1); DELETE FROM t WHERE k = 500; DELETE FROM t WHERE k = 500")
        .await
        .unwrap();
    assert_eq!(rows(&client, "SELECT v FROM t WHERE k = 600").await, [["7"]], "by key");
    assert!(rows(&client, "SELECT v FROM t WHERE k = 150").await.is_empty());
    assert_eq!(rows(&client, "SELECT k, v FROM t WHERE k IN (1, 150, 600, 601)").await, [["1", "-10"], ["600", "7"]]);
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "400");
    assert_eq!(cell(&client, "SELECT sum(x) FROM l").await, "2");
    let joined = "SELECT t.k, name, v FROM t JOIN u USING (k) ORDER BY 1";
    assert_eq!(rows(&client, joined).await, [["1", "one", "-10"], ["600", "six", "7"]]);
    for path in ["auto", "lake", "rows"] {
        client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await.unwrap();
        assert_eq!(
            rows(&client, "SELECT k FROM t ORDER BY k DESC LIMIT 3").await,
            [["600"], ["499"], ["498"]],
            "{path}"
        );
        assert_eq!(rows(&client, "SELECT k FROM t WHERE k > 98 ORDER BY k LIMIT 2").await, [["99"], ["200"]], "{path}");
        assert_eq!(rows(&client, "SELECT min(v), count(*) FROM t").await, [["-20", "400"]], "{path}");
    }
    client.batch_execute("SET tarn.access_path = 'auto'").await.unwrap();
    // A result that is open shows what was there when it was asked for.
    client.batch_execute("DECLARE c CURSOR FOR SELECT count(*) FROM u; DELETE FROM u").await.unwrap();
    assert_eq!(rows(&client, "FETCH 1 FROM c").await, [["2"]]);
    client
        .batch_execute("INSERT INTO u SELECT k, 'again' FROM u; INSERT INTO u SELECT k, 'all' FROM t WHERE k < 3")
        .await
        .unwrap();
    assert_eq!(rows(&client, "SELECT k, name FROM u ORDER BY k").await, [["1", "all"], ["2", "all"]]);

    assert_eq!(rows(&other, "SELECT count(*), sum(v) FILTER (WHERE k < 3) FROM t").await, [["500", "30"]]);
    assert_eq!(cell(&other, "SELECT (SELECT count(*) FROM u) + (SELECT count(*) FROM l)").await, "0");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(rows(&other, "SELECT count(*), sum(v) FILTER (WHERE k < 3) FROM t").await, [["400", "-30"]]);
    assert_eq!(cell(&other, "SELECT (SELECT count(*) FROM u) + (SELECT count(*) FROM l)").await, "4");
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, "SELECT count(*), sum(v) FILTER (WHERE k < 3) FROM t").await, [["400", "-30"]]);
    assert_eq!(cell(&client, "SELECT (SELECT count(*) FROM u) + (SELECT count(*) FROM l)").await, "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_commit_together_or_not_at_all() {
    let (server, client) = table().await;
    let other = server.client().await;
    client.batch_execute("CREATE TABLE u (k int PRIMARY KEY, v int); INSERT INTO u VALUES (1, 1)").await.unwrap();
    client
        .batch_execute("BEGIN; UPDATE t SET v = 0; INSERT INTO u VALUES (2, 2); UPDATE u SET v = 9 WHERE k = 1")
        .await
        .unwrap();
    other.batch_execute("UPDATE u SET v = 5 WHERE k = 1").await.unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    assert_eq!(cell(&client, "SELECT sum(v) FROM t").await, "30", "nothing of it was written");
    assert_eq!(rows(&client, "SELECT k, v FROM u").await, [["1", "5"]]);
    // Somebody else was first with a key that was free.
    client
        .batch_execute("BEGIN; UPDATE t SET v = 0; INSERT INTO u VALUES (3, 3) ON CONFLICT DO NOTHING")
        .await
        .unwrap();
    other.batch_execute("INSERT INTO u VALUES (3, 4) ON CONFLICT DO NOTHING").await.unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "23505");
    assert_eq!(cell(&client, "SELECT sum(v) FROM t").await, "30");
    // What came and went is no conflict.
    client
        .batch_execute("BEGIN; INSERT INTO u VALUES (7, 7) ON CONFLICT DO NOTHING; DELETE FROM u WHERE k = 7")
        .await
        .unwrap();
    other.batch_execute("INSERT INTO u VALUES (7, 8)").await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cell(&client, "SELECT v FROM u WHERE k = 7").await, "8");
    client.batch_execute("BEGIN; DELETE FROM t WHERE k = 1; DROP TABLE u").await.unwrap();
    assert_eq!(failure(client.batch_execute("SELECT * FROM u").await).0, "42P01");
    client
        .batch_execute("ROLLBACK; SELECT * FROM u; BEGIN; DELETE FROM t WHERE k = 1; DROP TABLE u; COMMIT")
        .await
        .unwrap();
    assert_eq!(failure(client.batch_execute("SELECT * FROM u").await).0, "42P01");
    assert_eq!(rows(&client, "SELECT k FROM t").await, [["2"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolation_is_kept_or_refused() {
    let (server, client) = table().await;
    let other = server.client().await;
    let sum = "SELECT sum(v) FROM t";
    let of_key = "SELECT v FROM t WHERE k = 1";
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    assert_eq!(cell(&client, "SHOW transaction_isolation").await, "repeatable read");
    assert_eq!(cell(&client, sum).await, "30");
    other.batch_execute("UPDATE t SET v = v + 100; CALL tarn.deliver('t'); CALL tarn.evict('t')").await.unwrap();
    assert_eq!((cell(&client, sum).await, cell(&client, of_key).await), ("30".into(), "10".into()));
    client.batch_execute("UPDATE t SET v = 11 WHERE k = 1").await.unwrap();
    assert_eq!((cell(&client, sum).await, cell(&client, of_key).await), ("31".into(), "11".into()));
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    assert_eq!(cell(&client, sum).await, "230");

    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(cell(&client, sum).await, "230");
    other.batch_execute("UPDATE t SET v = v - 100").await.unwrap();
    assert_eq!((cell(&client, sum).await, cell(&client, of_key).await), ("30".into(), "10".into()));
    let late = client.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(failure(late).0, "25001");
    client.batch_execute("ROLLBACK").await.unwrap();

    for refused in [
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET default_transaction_isolation = 'serializable'",
    ] {
        assert_eq!(failure(client.batch_execute(refused).await).0, "0A000", "{refused}");
    }
    client.batch_execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(cell(&client, "SHOW transaction_isolation").await, "repeatable read");
    client.batch_execute("COMMIT; RESET ALL; BEGIN READ ONLY").await.unwrap();
    assert_eq!(failure(client.batch_execute("INSERT INTO t VALUES (9, 9)").await).0, "25006");
    client.batch_execute("ROLLBACK; CREATE SEQUENCE s; SET default_transaction_read_only = on").await.unwrap();
    for write in ["SELECT nextval('s')", "SELECT setval('s', 7)"] {
        assert_eq!(failure(client.batch_execute(write).await).0, "25006", "{write}");
    }
    for write in ["INSERT INTO t VALUES (9, 9)", "DELETE FROM t", "CREATE TABLE z (a int)", "BEGIN; UPDATE t SET v = 1"]
    {
        assert_eq!(failure(client.batch_execute(write).await).0, "25006", "{write}");
    }
    client.batch_execute("ROLLBACK; BEGIN READ WRITE; INSERT INTO t VALUES (9, 9); COMMIT").await.unwrap();
}

/// A message of several statements is a transaction, also where the last of them commits by itself.
#[tokio::test]
async fn what_local_sets_in_a_message_ends_with_it() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY); SET work_mem = '2MB'").await.unwrap();
    client.batch_execute("SET LOCAL work_mem = '3MB'; INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(cell(&client, "SHOW work_mem").await, "2MB");
    client.batch_execute("SET work_mem = '4MB'").await.unwrap();
    client.batch_execute("BEGIN; ROLLBACK").await.unwrap();
    assert_eq!(cell(&client, "SHOW work_mem").await, "4MB");
    client.batch_execute("SET work_mem = '5MB'; INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(cell(&client, "SHOW work_mem").await, "5MB");
}

/// Money goes from one table to another; whoever looks sees all of it, also after the server starts again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_between_tables_are_seen_whole() {
    const CLIENTS: i64 = 4;
    const TRANSFERS: i64 = 25;
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE a (k int PRIMARY KEY, v int) WITH (partitioning = 'hash', tablets = 4); CREATE TABLE b (k int PRIMARY KEY, v int); \
             INSERT INTO a SELECT x, 100 FROM generate_series(1, 20) s(x); INSERT INTO b SELECT x, 100 FROM generate_series(1, 20) s(x)",
        )
        .await
        .unwrap();
    let all = "SELECT (SELECT sum(v) FROM a) + (SELECT sum(v) FROM b)";
    let mut tasks = Vec::new();
    for of in 0..CLIENTS {
        let client = server.client().await;
        tasks.push(tokio::spawn(async move {
            let mut n_retried = 0;
            for n in 0..TRANSFERS {
                let (from, to, amount) = ((of * 7 + n * 3) % 20 + 1, (of * 5 + n * 11) % 20 + 1, n % 9 + 1);
                let transfer = format!(
                    "BEGIN; UPDATE a SET v = v - {amount} WHERE k = {from}; UPDATE b SET v = v + {amount} WHERE k = {to}; \
                     UPDATE a SET v = v + 1 WHERE k = 20; UPDATE a SET v = v - 1 WHERE k = 20; COMMIT"
                );
                while let Err(error) = client.batch_execute(&transfer).await {
                    assert_eq!(failure::<()>(Err(error)).0, "40001");
                    client.batch_execute("ROLLBACK").await.unwrap();
                    n_retried += 1;
                }
            }
            n_retried
        }));
    }
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (client, done) = (server.client().await, Arc::clone(&done));
        tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(cell(&client, all).await, "4000");
            }
        })
    };
    for task in tasks {
        task.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    reader.await.unwrap();
    let moved: i64 = CLIENTS * (0..TRANSFERS).map(|n| n % 9 + 1).sum::<i64>();
    assert_eq!(cell(&client, "SELECT sum(v) FROM b").await, (2000 + moved).to_string());
    let server = server.restart().await;
    assert_eq!(cell(&server.client().await, all).await, "4000");
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
