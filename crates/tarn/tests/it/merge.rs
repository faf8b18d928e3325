//! What does MERGE promise beside others: by many at once, in transactions, by prepared statements, and by whose right?
//! Single statements and their answers are in `slt/merge.slt`.

use futures::future::join_all;
use tokio_postgres::error::SqlState;

use crate::harness::{Server, cell, failure, rows};

const ADD: &str = "MERGE INTO counters AS c USING (VALUES (1, 1), (2, 10)) AS x(id, n) ON c.id = x.id
    WHEN MATCHED THEN UPDATE SET n = c.n + x.n WHEN NOT MATCHED THEN INSERT VALUES (x.id, x.n)";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_each_counts_or_is_told() {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 15;
    let server = Server::start().await;
    let clients = join_all((0..CLIENTS).map(|_| server.client())).await;
    let sql = "CREATE TABLE counters (id int PRIMARY KEY, n bigint) WITH (partitioning = 'hash', tablets = 3, hot_retention = '1ms')";
    clients[0].batch_execute(sql).await.unwrap();
    let merging = clients.iter().enumerate().map(async |(by, client)| {
        let mut n_done = 0;
        for round in 0..ROUNDS {
            match client.execute(ADD, &[]).await {
                Ok(2) => n_done += 1,
                Ok(other) => panic!("{other} rows"),
                // Another one inserted first, or was first too often: nothing is written then.
                Err(error) => assert!(
                    [Some(&SqlState::UNIQUE_VIOLATION), Some(&SqlState::T_R_SERIALIZATION_FAILURE)]
                        .contains(&error.code()),
                    "{error}"
                ),
            }
            if by == 0 && round % 5 == 0 {
                client.batch_execute("CALL tarn.deliver('counters'); CALL tarn.evict('counters')").await.unwrap();
            }
        }
        n_done
    });
    let n_done: i64 = join_all(merging).await.into_iter().sum();
    assert!(n_done > 0);
    let want = [[n_done.to_string()], [(10 * n_done).to_string()]];
    assert_eq!(rows(&clients[0], "SELECT n FROM counters ORDER BY id").await, want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_transactions_it_is_held_and_looked_at_again_at_commit() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    let sql = "CREATE TABLE counters (id int PRIMARY KEY, n bigint); INSERT INTO counters VALUES (1, 100)";
    client.batch_execute(sql).await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute(ADD).await.unwrap();
    client.batch_execute(ADD).await.unwrap();
    assert_eq!(rows(&client, "SELECT n FROM counters ORDER BY id").await, [["102"], ["20"]]);
    assert_eq!(rows(&other, "SELECT n FROM counters ORDER BY id").await, [["100"]]);
    other.batch_execute("UPDATE counters SET n = 0").await.unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    assert_eq!(rows(&other, "SELECT id, n FROM counters").await, [["1", "0"]]);
    client.batch_execute(&format!("BEGIN; {ADD}; SAVEPOINT s; {ADD}; ROLLBACK TO s; COMMIT")).await.unwrap();
    assert_eq!(rows(&other, "SELECT n FROM counters ORDER BY id").await, [["1"], ["10"]]);
    let read_only = format!("BEGIN READ ONLY; {ADD}");
    assert_eq!(failure(client.batch_execute(&read_only).await).0, "25006");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_it_takes_parameters_everywhere() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v text, n int)").await.unwrap();
    let sql = "MERGE INTO t USING (SELECT $1::bigint AS id, $2::text AS v) AS s ON t.id = s.id
        WHEN MATCHED AND t.n > $3 THEN DELETE WHEN MATCHED THEN UPDATE SET v = t.v || s.v, n = n + $4
        WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v, $4)";
    let merge = client.prepare(sql).await.unwrap();
    assert!(merge.columns().is_empty());
    for (want, n_rows) in [(vec![["a", "2"]], 1), (vec![["aa", "4"]], 1), (vec![], 1), (vec![["a", "2"]], 1)] {
        assert_eq!(client.execute(&merge, &[&7_i64, &"a", &3, &2]).await.unwrap(), n_rows);
        assert_eq!(rows(&client, "SELECT v, n FROM t").await, want);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_action_needs_its_right() {
    let server = Server::start().await;
    server.client().await.batch_execute("CREATE USER root SUPERUSER PASSWORD 'x'").await.unwrap();
    let root = server.client_as("root", "x").await.unwrap();
    root.batch_execute(
        "CREATE USER ann PASSWORD 'x'; CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1);
         CREATE TABLE s (id int); INSERT INTO s VALUES (1), (2); GRANT SELECT ON t TO ann; GRANT SELECT ON s TO ann",
    )
    .await
    .unwrap();
    let ann = server.client_as("ann", "x").await.unwrap();
    let merge = "MERGE INTO t USING s ON t.id = s.id";
    let denied = async |sql: &str| {
        let (state, told) = failure(ann.batch_execute(sql).await);
        assert_eq!((state.as_str(), told.contains("permission denied for table")), ("42501", true), "{sql}: {told}");
    };
    for (right, clause) in [
        ("UPDATE", "WHEN MATCHED THEN UPDATE SET n = 2"),
        ("INSERT", "WHEN NOT MATCHED THEN INSERT VALUES (s.id, 0)"),
        ("DELETE", "WHEN MATCHED THEN DELETE"),
    ] {
        denied(&format!("{merge} {clause}")).await;
        root.batch_execute(&format!("GRANT {right} ON t TO ann")).await.unwrap();
        ann.batch_execute(&format!("{merge} {clause}")).await.unwrap();
    }
    root.batch_execute("REVOKE SELECT ON s FROM ann").await.unwrap();
    denied(&format!("{merge} WHEN MATCHED THEN DO NOTHING")).await;
    assert_eq!(cell(&root, "SELECT count(*) FROM t").await, "0");
    let system = "MERGE INTO t USING tarn.tables ON false WHEN NOT MATCHED THEN INSERT VALUES (9, 9)";
    assert_eq!(failure(ann.batch_execute(system).await).0, "42501");
    // What it vacuums, too, is its own.
    assert_eq!(failure(ann.batch_execute("VACUUM t").await).0, "42501");
    ann.batch_execute("VACUUM").await.unwrap();
}
