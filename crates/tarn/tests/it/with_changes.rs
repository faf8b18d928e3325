//! What does a WITH that changes rows promise beside others: by many at once, by prepared statements, in messages of
//! several statements, by whose right? Single statements and their answers are in `slt/with_changes.slt`.

use futures::future::join_all;

use crate::harness::{Server, failure, rows};

const TABLES: &str = "CREATE TABLE jobs (id int PRIMARY KEY, v text) WITH (partitioning = 'hash', tablets = 3);
    CREATE TABLE done (id int PRIMARY KEY, v text, taker int)";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_that_many_move_at_once_are_moved_once() {
    const CLIENTS: usize = 5;
    const JOBS: i32 = 60;
    let server = Server::start().await;
    let clients = join_all((0..CLIENTS).map(|_| server.client())).await;
    clients[0].batch_execute(TABLES).await.unwrap();
    let fill = format!("INSERT INTO jobs SELECT i, 'job ' || i FROM generate_series(1, {JOBS}) AS s(i)");
    clients[0].batch_execute(&fill).await.unwrap();
    let taking = clients.iter().enumerate().map(async |(by, client)| {
        let taker = i32::try_from(by).unwrap();
        let sql = "WITH taken AS (DELETE FROM jobs WHERE id IN (SELECT id FROM jobs ORDER BY (id + $1) % 7 LIMIT 3) RETURNING *)
            INSERT INTO done SELECT id, v, $1 FROM taken RETURNING id";
        let statement = client.prepare(sql).await.unwrap();
        let mut n_taken = 0;
        loop {
            match client.query(&statement, &[&taker]).await {
                Ok(taken) if taken.is_empty() => break n_taken,
                Ok(taken) => n_taken += taken.len(),
                // Others were first, too often or with the very rows: nothing of it is written then.
                Err(error) => {
                    let code = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
                    assert!(["40001", "23505"].contains(&code.as_str()), "{error}");
                }
            }
        }
    });
    let n_taken: usize = join_all(taking).await.into_iter().sum();
    assert_eq!(n_taken, JOBS as usize);
    let left = rows(
        &clients[0],
        "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM done), (SELECT count(*) FROM done WHERE v = 'job ' || id)",
    );
    assert_eq!(left.await, [["0", "60", "60"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_a_part_of_its_transaction_and_message() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client.batch_execute(TABLES).await.unwrap();
    client.batch_execute("INSERT INTO jobs VALUES (1, 'a'), (2, 'b')").await.unwrap();
    let take = "WITH taken AS (DELETE FROM jobs WHERE id = 1 RETURNING *) INSERT INTO done SELECT *, 0 FROM taken";
    // Of one message all happens or nothing.
    let failed = failure(client.batch_execute(&format!("{take}; SELECT 1 / 0")).await);
    assert_eq!(failed.0, "22012");
    assert_eq!(rows(&other, "SELECT count(*) FROM jobs").await, [["2"]]);
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs").await.unwrap();
    other.batch_execute("INSERT INTO jobs VALUES (3, 'c')").await.unwrap();
    client.batch_execute(take).await.unwrap();
    let all = "WITH taken AS (DELETE FROM jobs RETURNING *), put AS (INSERT INTO done SELECT *, 1 FROM taken RETURNING id) SELECT id FROM put";
    assert_eq!(rows(&client, all).await, [["2"]], "what others committed since is not seen");
    assert_eq!(rows(&other, "SELECT count(*) FROM jobs").await, [["3"]]);
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(rows(&other, "SELECT id FROM jobs").await, [["3"]]);
    // Somebody else's change of a row that a transaction changed is told at COMMIT.
    client.batch_execute("BEGIN; WITH a AS (UPDATE jobs SET v = 'mine' RETURNING *) SELECT * FROM a").await.unwrap();
    other.batch_execute("UPDATE jobs SET v = 'theirs'").await.unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    assert_eq!(rows(&other, "SELECT v FROM jobs").await, [["theirs"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_part_needs_its_own_right() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(TABLES).await.unwrap();
    client.batch_execute("INSERT INTO jobs VALUES (1, 'a')").await.unwrap();
    client.batch_execute("CREATE USER boss SUPERUSER PASSWORD 'pw'").await.unwrap();
    let boss = server.client_as("boss", "pw").await.unwrap();
    boss.batch_execute(
        "CREATE USER bob PASSWORD 'pw'; GRANT SELECT, INSERT ON done TO bob; GRANT SELECT ON jobs TO bob",
    )
    .await
    .unwrap();
    let bob = server.client_as("bob", "pw").await.unwrap();
    let take = "WITH taken AS (DELETE FROM jobs RETURNING *) INSERT INTO done SELECT *, 0 FROM taken";
    assert_eq!(failure(bob.batch_execute(take).await).0, "42501");
    boss.batch_execute("GRANT DELETE ON jobs TO bob; REVOKE INSERT ON done FROM bob").await.unwrap();
    assert_eq!(failure(bob.batch_execute(take).await).0, "42501");
    boss.batch_execute("GRANT INSERT ON done TO bob").await.unwrap();
    bob.batch_execute(take).await.unwrap();
    assert_eq!(rows(&boss, "SELECT id, taker FROM done").await, [["1", "0"]]);
}
