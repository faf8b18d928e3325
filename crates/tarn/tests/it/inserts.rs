//! What becomes of a key that is there: by prepared statements, by many at once, by COPY, and where the row lies in the
//! lake alone. Single statements and their answers are in `slt/insert.slt`.

use bytes::Bytes;
use futures::SinkExt;
use futures::future::join_all;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::harness::{Server, cell, failure, rows};

async fn copy_in(client: &Client, sql: &str, text: &str) -> Result<u64, Error> {
    let sink = client.copy_in::<_, Bytes>(sql).await?;
    futures::pin_mut!(sink);
    sink.send(Bytes::copy_from_slice(text.as_bytes())).await?;
    sink.finish().await
}

fn detail(error: &Error) -> (String, String) {
    let error = error.as_db_error().unwrap();
    (error.code().code().to_owned(), error.detail().unwrap_or("").to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_inserts_are_strict_and_upserts_are_not() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (k int, at timestamptz, n bigint, v text, PRIMARY KEY (k, at)); SET TIME ZONE 'Europe/Berlin'")
        .await
        .unwrap();
    let at = "'2026-11-01 08:00Z'";
    let insert = client.prepare(&format!("INSERT INTO t VALUES ($1, {at}, $2, $3)")).await.unwrap();
    let upsert = client.prepare(&format!("UPSERT INTO t VALUES ($1, {at}, $2, $3)")).await.unwrap();
    let add = "ON CONFLICT (k, at) DO UPDATE SET n = t.n + excluded.n + $4 WHERE t.v = $5 RETURNING n, v";
    let add = client.prepare(&format!("INSERT INTO t VALUES ($1, {at}, $2, $3) {add}")).await.unwrap();
    assert_eq!(client.execute(&insert, &[&1, &10_i64, &"one"]).await.unwrap(), 1);
    for stage in ["recent", "delivered"] {
        let (state, detail) = detail(&client.execute(&insert, &[&1, &11_i64, &"two"]).await.unwrap_err());
        assert_eq!(state, "23505", "{stage}");
        assert_eq!(detail, "Key (k, at)=(1, 2026-11-01 09:00:00+01) already exists.", "{stage}");
        client.batch_execute("CALL tarn.deliver('t')").await.unwrap();
    }
    assert_eq!(client.execute(&upsert, &[&1, &20_i64, &"three"]).await.unwrap(), 1);
    let added = client.query(&add, &[&1, &2_i64, &"x", &100_i64, &"three"]).await.unwrap();
    assert_eq!((added[0].get::<_, i64>(0), added[0].get::<_, &str>(1)), (122, "three"));
    assert!(client.query(&add, &[&1, &2_i64, &"x", &100_i64, &"other"]).await.unwrap().is_empty());
    let added = client.query(&add, &[&2, &2_i64, &"new", &100_i64, &"other"]).await.unwrap();
    assert_eq!((added[0].get::<_, i64>(0), added[0].get::<_, &str>(1)), (2, "new"));
    // The text of a statement may be run by PREPARE, too.
    client
        .batch_execute(
            "PREPARE p (int) AS UPSERT INTO t VALUES ($1, '2026-11-01', 7, 'p'); EXECUTE p (3); EXECUTE p (3)",
        )
        .await
        .unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t WHERE v = 'p'").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_each_counts_and_one_inserts() {
    const CLIENTS: usize = 8;
    const ROUNDS: i64 = 25;
    let server = Server::start().await;
    let clients = join_all((0..CLIENTS).map(|_| server.client())).await;
    let sql = "CREATE TABLE counters (id int PRIMARY KEY, n bigint) WITH (hot_retention = '1ms'); CREATE TABLE once (id bigint PRIMARY KEY, by int)";
    clients[0].batch_execute(sql).await.unwrap();
    let counting = clients.iter().enumerate().map(async |(by, client)| {
        let mut won = 0;
        for round in 0..ROUNDS {
            let add = "INSERT INTO counters VALUES (1, 1), (2, 10) ON CONFLICT (id) DO UPDATE SET n = counters.n + excluded.n";
            client.batch_execute(add).await.unwrap();
            match client.execute("INSERT INTO once VALUES ($1, $2)", &[&round, &(by as i32)]).await {
                Ok(_) => won += 1,
                Err(error) => assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{error}"),
            }
            if by == 0 && round % 5 == 0 {
                client.batch_execute("CALL tarn.deliver('counters'); CALL tarn.evict('counters')").await.unwrap();
            }
        }
        won
    });
    let won: i64 = join_all(counting).await.into_iter().sum();
    assert_eq!(won, ROUNDS);
    let all = (CLIENTS as i64 * ROUNDS).to_string();
    assert_eq!(rows(&clients[0], "SELECT n FROM counters ORDER BY id").await, [[all.clone()], [format!("{all}0")]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_says_what_becomes_of_keys_that_are_there() {
    let server = Server::start_with(|settings| settings.sql.copy_batch_rows = 3).await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (5, 'five')").await.unwrap();
    let error = copy_in(&client, "COPY t FROM STDIN", "1\ta\n2\tb\n3\tc\n4\td\n5\te\n6\tf\n").await.unwrap_err();
    let db = error.as_db_error().unwrap();
    assert_eq!((db.code().code(), db.where_()), ("23505", Some("COPY t, line 5")));
    assert_eq!((db.schema(), db.table(), db.constraint()), (Some("public"), Some("t"), Some("t_pkey")));
    assert_eq!(db.detail(), Some("Key (k)=(5) already exists; 3 rows before it are committed"));
    assert!(db.hint().unwrap().contains("on_conflict = skip"), "{:?}", db.hint());
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "4");
    // A quoted line end is a line; both lines of the same new key are named.
    let csv = "COPY t FROM STDIN WITH (FORMAT csv, HEADER, on_conflict = error)";
    let error = copy_in(&client, csv, "k,v\n7,\"two\nlines\"\n8,x\n7,y\n").await.unwrap_err();
    assert_eq!(error.as_db_error().unwrap().where_(), Some("COPY t, lines 2 and 5"));
    let text = "5\tagain\n9\tnine\n9\ttwice\n";
    assert_eq!(copy_in(&client, "COPY t FROM STDIN WITH (on_conflict = skip)", text).await.unwrap(), 1);
    let five = "SELECT v FROM t WHERE k IN (5, 9) ORDER BY k";
    assert_eq!(rows(&client, five).await, [["five"], ["nine"]]);
    assert_eq!(copy_in(&client, "COPY t FROM STDIN (ON_CONFLICT 'replace')", text).await.unwrap(), 3);
    assert_eq!(rows(&client, five).await, [["again"], ["twice"]]);
    for (sql, state) in [
        ("COPY t FROM STDIN (on_conflict = ignore)", "22023"),
        ("COPY t TO STDOUT (on_conflict = skip)", "22023"),
        ("COPY t FROM STDIN (on_conflict = skip, on_conflict = skip)", "42601"),
    ] {
        assert_eq!(failure(client.batch_execute(sql).await).0, state, "{sql}");
    }
    client.batch_execute("CREATE TABLE bag (v text)").await.unwrap();
    assert_eq!(copy_in(&client, "COPY bag FROM STDIN", "x\nx\n").await.unwrap(), 2);
    assert_eq!(failure(client.batch_execute("COPY bag FROM STDIN (on_conflict = skip)").await).0, "0A000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_a_transaction_keys_that_it_wrote_are_there() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    let sql = "CREATE TABLE t (k int PRIMARY KEY, n int) WITH (partitioning = 'hash', tablets = 3); INSERT INTO t VALUES (1, 1), (2, 2)";
    client.batch_execute(sql).await.unwrap();
    for refused in ["INSERT INTO t VALUES (1, 9)", "INSERT INTO t SELECT 3, 9", "INSERT INTO t VALUES (4, 1), (4, 2)"] {
        client.batch_execute("BEGIN; INSERT INTO t VALUES (3, 3); SAVEPOINT s").await.unwrap();
        let (state, detail) = detail(&client.batch_execute(refused).await.unwrap_err());
        assert!(state == "23505" && detail.starts_with("Key (k)=("), "{refused}: {state} {detail}");
        client.batch_execute("ROLLBACK TO s; UPSERT INTO t VALUES (3, 4); ROLLBACK").await.unwrap();
    }
    client.batch_execute("BEGIN; INSERT INTO t VALUES (3, 3); DELETE FROM t WHERE k = 2").await.unwrap();
    let add = "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30) ON CONFLICT (k) DO UPDATE SET n = t.n + excluded.n RETURNING k, n";
    assert_eq!(rows(&client, add).await, [["1", "11"], ["2", "20"], ["3", "33"]]);
    let keep = "INSERT INTO t VALUES (3, 0), (4, 40), (4, 41) ON CONFLICT DO NOTHING RETURNING k, n";
    assert_eq!(rows(&client, keep).await, [["4", "40"]]);
    assert_eq!(rows(&client, "UPDATE t SET n = -n WHERE k = 4 RETURNING n").await, [["-40"]]);
    assert_eq!(copy_in(&client, "COPY t FROM STDIN (on_conflict = skip)", "4\t0\n5\t50\n").await.unwrap(), 1);
    assert_eq!(copy_in(&client, "COPY t FROM STDIN (on_conflict = replace)", "5\t55\n").await.unwrap(), 1);
    assert_eq!(cell(&other, "SELECT sum(n) FROM t").await, "3");
    client.batch_execute("COMMIT").await.unwrap();
    let all = [["1", "11"], ["2", "20"], ["3", "33"], ["4", "-40"], ["5", "55"]];
    assert_eq!(rows(&other, "SELECT * FROM t ORDER BY k").await, all);
    // Somebody else was first: with a key, and with a row that was to be changed.
    client.batch_execute("BEGIN; INSERT INTO t VALUES (6, 1)").await.unwrap();
    other.batch_execute("INSERT INTO t VALUES (6, 2)").await.unwrap();
    let (state, detail) = detail(&client.batch_execute("COMMIT").await.unwrap_err());
    assert_eq!((state.as_str(), detail.as_str()), ("23505", "Key (k)=(6) already exists."));
    client.batch_execute("BEGIN; INSERT INTO t VALUES (6, 1) ON CONFLICT (k) DO UPDATE SET n = t.n + 1").await.unwrap();
    other.batch_execute("UPDATE t SET n = 7 WHERE k = 6").await.unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    // A copy that is refused fails the transaction.
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(failure(copy_in(&client, "COPY t FROM STDIN", "7\t7\n6\t6\n").await).0, "23505");
    assert_eq!(failure(client.batch_execute("SELECT 1").await).0, "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "6");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_is_refused_whole_whatever_tablets_its_keys_are_in() {
    let server = Server::start().await;
    let client = server.client().await;
    let sql = "CREATE TABLE t (k int PRIMARY KEY, n int) WITH (partitioning = 'hash', tablets = 8); INSERT INTO t VALUES (7, 7)";
    client.batch_execute(sql).await.unwrap();
    for sql in [
        "INSERT INTO t VALUES (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)",
        "INSERT INTO t SELECT x, 1 FROM generate_series(1, 100) AS s(x)",
        "INSERT INTO t SELECT x, 1 FROM generate_series(1, 100) AS s(x) RETURNING k",
    ] {
        assert_eq!(failure(client.simple_query(sql).await).0, "23505", "{sql}");
        assert_eq!(rows(&client, "SELECT * FROM t").await, [["7", "7"]], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_inserts_commit_in_parts_and_say_so() {
    let server = Server::start_with(|settings| settings.sql.copy_batch_rows = 100).await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, n int); INSERT INTO t VALUES (950, 1)").await.unwrap();
    let sql = "INSERT INTO t SELECT value, 0 FROM generate_series(1, 1000) AS s(value)";
    let (state, detail) = detail(&client.batch_execute(sql).await.unwrap_err());
    assert_eq!(state, "23505");
    let kept = cell(&client, "SELECT count(*) - 1 FROM t").await;
    assert_eq!(
        detail,
        format!(
            "Key (k)=(950) already exists; {kept} rows of this statement are committed already: large statements commit in batches"
        )
    );
    // Of a statement that changes what is there two rows of a key are found before anything is written.
    client.batch_execute("TRUNCATE t").await.unwrap();
    let sql = "INSERT INTO t SELECT value % 20000, 1 FROM generate_series(1, 20000) AS s(value) ON CONFLICT (k) DO UPDATE SET n = t.n + 1";
    assert_eq!(client.execute(sql, &[]).await.unwrap(), 20_000);
    assert_eq!(client.execute(sql, &[]).await.unwrap(), 20_000);
    assert_eq!(rows(&client, "SELECT count(*), min(n), max(n) FROM t").await, [["20000", "2", "2"]]);
    let twice = sql.replace("% 20000", "% 19999");
    assert_eq!(failure(client.batch_execute(&twice).await).0, "21000");
    assert_eq!(cell(&client, "SELECT max(n) FROM t").await, "2");
}
