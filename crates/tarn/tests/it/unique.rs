//! UNIQUE among many: of several who insert one value at once, one wins; entries stay those of their rows, whoever
//! writes, restarts or rolls back.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::harness::{Server, cell, failure, rows};

async fn table() -> (Server, tokio_postgres::Client) {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE u (id bigserial PRIMARY KEY, email text UNIQUE, n bigint)").await.unwrap();
    (server, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_insert_one_value_one_wins() {
    let (server, client) = table().await;
    let server = Arc::new(server);
    let inserts = [
        "INSERT INTO u (email) VALUES ('$')",
        "INSERT INTO u (email) SELECT '$'",
        "BEGIN; INSERT INTO u (email) VALUES ('$'); COMMIT",
        "UPSERT INTO u (id, email) VALUES (1000000 + #, '$')",
    ];
    let mut writers = vec![];
    for writer in 0..8 {
        let server = Arc::clone(&server);
        writers.push(tokio::spawn(async move {
            let client = server.client().await;
            let mut won = 0;
            for value in 0..40 {
                let insert = inserts[(writer + value) % inserts.len()].replace('$', &format!("v{value}"));
                match client.batch_execute(&insert.replace('#', &(writer * 100 + value).to_string())).await {
                    Ok(()) => won += 1,
                    Err(error) => {
                        let (state, text) = failure::<()>(Err(error));
                        assert_eq!(state, "23505", "{insert}: {text}");
                        assert!(text.contains("u_email_key"), "{insert}: {text}");
                        client.batch_execute("ROLLBACK").await.unwrap();
                    }
                }
            }
            won
        }));
    }
    let mut won = 0;
    for writer in writers {
        won += writer.await.unwrap();
    }
    assert_eq!(won, 40);
    assert_eq!(cell(&client, "SELECT count(DISTINCT email) || ' of ' || count(*) FROM u").await, "40 of 40");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_of_one_value_are_one_row_and_lose_nothing() {
    let (server, client) = table().await;
    let server = Arc::new(server);
    let mut writers = vec![];
    for _ in 0..6 {
        let server = Arc::clone(&server);
        writers.push(tokio::spawn(async move {
            let client = server.client().await;
            let upsert = "INSERT INTO u (email, n) VALUES ('hot', 1) ON CONFLICT (email) DO UPDATE SET n = u.n + 1";
            for _ in 0..25 {
                client.batch_execute(upsert).await.unwrap();
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(rows(&client, "SELECT email, n FROM u").await, [["hot", "150"]]);
}

/// One moves its value away, another takes it: at no moment has it two rows, and what was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_moved_away_is_taken_once() {
    let (server, client) = table().await;
    client
        .batch_execute("INSERT INTO u (id, email) SELECT i, 'v' || i FROM generate_series(1, 8) AS s(i)")
        .await
        .unwrap();
    let server = Arc::new(server);
    let mut writers = vec![];
    for id in 1..=8_usize {
        let server = Arc::clone(&server);
        writers.push(tokio::spawn(async move {
            let client = server.client().await;
            for step in 0..60 {
                let value = (id * 7 + step * 3) % 12;
                let update = match step % 3 {
                    0 => format!("UPDATE u SET email = 'v{value}' WHERE id = {id}"),
                    1 => format!("UPDATE u SET email = 'v{value}', n = {step} WHERE id + 0 = {id}"),
                    _ => format!(
                        "BEGIN; DELETE FROM u WHERE id = {id}; INSERT INTO u VALUES ({id}, 'v{value}', 0); COMMIT"
                    ),
                };
                if let Err(error) = client.batch_execute(&update).await {
                    let (state, text) = failure::<()>(Err(error));
                    assert!(state == "23505" && text.contains("u_email_key"), "{update}: {state} {text}");
                    client.batch_execute("ROLLBACK").await.unwrap();
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let there: Vec<String> = rows(&client, "SELECT email FROM u ORDER BY id").await.into_iter().flatten().collect();
    let values: BTreeSet<&String> = there.iter().collect();
    assert_eq!((there.len(), values.len()), (8, 8), "{there:?}");
    check_entries(&client, &there).await;
}

/// Each value has an entry, and each other one of `v0` to `v11` has none.
async fn check_entries(client: &tokio_postgres::Client, there: &[String]) {
    for value in (0..12).map(|value| format!("v{value}")) {
        let insert = format!("BEGIN; INSERT INTO u (id, email) VALUES (999, '{value}'); ROLLBACK");
        let refused = client.batch_execute(&insert).await;
        assert_eq!(refused.is_err(), there.contains(&value), "{value} of {there:?}: {refused:?}");
        client.batch_execute("ROLLBACK").await.unwrap();
        let found = format!(
            "BEGIN; INSERT INTO u (id, email) VALUES (999, '{value}') ON CONFLICT (email) DO UPDATE SET n = -1; \
             SELECT email FROM u WHERE n = -1; ROLLBACK"
        );
        let found = rows(client, &found).await;
        let want: Vec<Vec<String>> = there.iter().filter(|of| **of == value).map(|of| vec![of.clone()]).collect();
        assert_eq!(found, want, "{value}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_held_to_what_others_committed() {
    let (server, client) = table().await;
    let other = server.client().await;
    client.batch_execute("BEGIN; INSERT INTO u (id, email) VALUES (1, 'a')").await.unwrap();
    other.batch_execute("INSERT INTO u (id, email) VALUES (2, 'a')").await.unwrap();
    let (state, text) = failure(client.batch_execute("COMMIT").await);
    assert_eq!(state, "23505", "{text}");
    assert!(text.contains("\"u_email_key\""), "{text}");
    assert_eq!(rows(&client, "SELECT id, email FROM u").await, [["2", "a"]]);

    // What a snapshot does not show is there all the same.
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM u").await.unwrap();
    other.batch_execute("INSERT INTO u (id, email) VALUES (3, 'b')").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM u").await, "1");
    let (state, text) = failure(client.batch_execute("INSERT INTO u (id, email) VALUES (4, 'b')").await);
    assert_eq!((state.as_str(), text.contains("u_email_key")), ("23505", true), "{text}");
    client.batch_execute("ROLLBACK").await.unwrap();

    // A row that changed meanwhile is no duplicate, but a conflict.
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE u SET email = 'c' WHERE id = 2").await.unwrap();
    other.batch_execute("UPDATE u SET email = 'd' WHERE id = 2").await.unwrap();
    assert_eq!(failure(client.batch_execute("COMMIT").await).0, "40001");
    other.batch_execute("INSERT INTO u (id, email) VALUES (5, 'c'), (6, 'a')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constraints_are_kept_by_loads_and_across_restarts() {
    use futures::SinkExt;
    let (server, client) = table().await;
    let load = |copy: &'static str, lines: &'static str| {
        let client = &client;
        async move {
            let mut sink = std::pin::pin!(client.copy_in(copy).await.unwrap());
            sink.send(bytes::Bytes::from_static(lines.as_bytes())).await.unwrap();
            sink.as_mut().finish().await
        }
    };
    let copy = "COPY u (id, email, n) FROM STDIN";
    assert_eq!(load(copy, "1\ta\t1\n2\t\\N\t1\n3\t\\N\t1\n").await.unwrap(), 3);
    let (state, text) = failure(load(copy, "4\tb\t1\n5\ta\t1\n").await);
    assert_eq!((state.as_str(), text.contains("u_email_key")), ("23505", true), "{text}");
    let skipping = "COPY u (id, email, n) FROM STDIN WITH (on_conflict = skip)";
    assert_eq!(load(skipping, "1\tz\t9\n6\ta\t9\n7\tc\t9\n8\tc\t9\n").await.unwrap(), 1);
    let replacing = "COPY u (id, email, n) FROM STDIN WITH (on_conflict = replace)";
    assert_eq!(load(replacing, "1\tc2\t9\n7\ta\t9\n").await.unwrap(), 2);
    let (state, text) = failure(load(replacing, "1\ta\t9\n").await);
    assert_eq!((state.as_str(), text.contains("u_email_key")), ("23505", true), "{text}");
    let want = [["1", "c2"], ["2", "NULL"], ["3", "NULL"], ["7", "a"]];
    let there = "SELECT id, coalesce(email, 'NULL') FROM u ORDER BY id";
    assert_eq!(rows(&client, there).await, want);
    client.batch_execute("CREATE TABLE gone (id int PRIMARY KEY, v text UNIQUE); DROP TABLE gone").await.unwrap();

    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, there).await, want);
    assert_eq!(failure(client.batch_execute("INSERT INTO u (id, email) VALUES (9, 'c2')").await).0, "23505");
    client.batch_execute("INSERT INTO u (id, email) VALUES (9, 'c'), (10, 'z')").await.unwrap();
    client.batch_execute("CREATE TABLE gone_v_key (id int)").await.unwrap();
}

/// A constraint comes while others write: from then on it holds, of what they wrote before as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_comes_while_others_write() {
    let (server, client) = table().await;
    client.batch_execute("CREATE TABLE w (id bigserial PRIMARY KEY, v int)").await.unwrap();
    let server = Arc::new(server);
    let mut writers = vec![];
    for writer in 0..4_usize {
        let server = Arc::clone(&server);
        writers.push(tokio::spawn(async move {
            let client = server.client().await;
            let mut n_refused = 0;
            for step in 0..150 {
                let insert = format!("INSERT INTO w (v) VALUES ({})", (writer * 31 + step * 17) % 40);
                if let Err(error) = client.batch_execute(&insert).await {
                    let (state, text) = failure::<()>(Err(error));
                    // Planned for the definition of before, or refused by that of now.
                    assert!(state == "40001" || (state == "23505" && text.contains("one_v")), "{state} {text}");
                    n_refused += 1;
                }
            }
            n_refused
        }));
    }
    let add = "ALTER TABLE w ADD CONSTRAINT one_v UNIQUE (v)";
    let rest =
        "DELETE FROM w USING (SELECT v, min(id) AS first FROM w GROUP BY v) AS x WHERE w.v = x.v AND w.id > x.first";
    loop {
        client.batch_execute(rest).await.unwrap();
        match client.batch_execute(add).await {
            Ok(()) => break,
            Err(error) => {
                let (state, text) = failure::<()>(Err(error));
                assert!(state == "23505" && text.contains("could not create unique index \"one_v\""), "{state} {text}");
            }
        }
    }
    let mut n_refused = 0;
    for writer in writers {
        n_refused += writer.await.unwrap();
    }
    assert_eq!(cell(&client, "SELECT count(*) = count(DISTINCT v) FROM w").await, "t", "{n_refused} refused");
    for row in rows(&client, "SELECT v FROM w").await {
        let taken = client.batch_execute(&format!("INSERT INTO w (v) VALUES ({})", row[0])).await;
        assert_eq!(failure(taken).0, "23505");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_adds_a_constraint_fails_if_others_wrote() {
    let (server, client) = table().await;
    let other = server.client().await;
    client
        .batch_execute("CREATE TABLE w (id int PRIMARY KEY, v int); INSERT INTO w VALUES (1, 1), (2, 2)")
        .await
        .unwrap();
    for (write, state) in [("INSERT INTO w VALUES (3, 2)", Some("40001")), ("SELECT 1", None)] {
        client.batch_execute("BEGIN; INSERT INTO w VALUES (4, 4); ALTER TABLE w ADD UNIQUE (v)").await.unwrap();
        other.batch_execute(write).await.unwrap();
        let committed = client.batch_execute("COMMIT").await;
        match state {
            Some(state) => assert_eq!(failure(committed).0, state),
            None => committed.unwrap(),
        }
        other.batch_execute("DELETE FROM w WHERE id = 3").await.unwrap();
    }
    assert_eq!(failure(other.batch_execute("INSERT INTO w VALUES (5, 4)").await).0, "23505");
    // What is undone is undone: its index, too.
    client
        .batch_execute("BEGIN; ALTER TABLE w DROP CONSTRAINT w_v_key; INSERT INTO w VALUES (5, 4); ROLLBACK")
        .await
        .unwrap();
    client
        .batch_execute("BEGIN; CREATE UNIQUE INDEX again ON w (v, id); ROLLBACK; CREATE UNIQUE INDEX again ON w (v)")
        .await
        .unwrap();
    assert_eq!(rows(&client, "SELECT id, v FROM w ORDER BY id").await, [["1", "1"], ["2", "2"], ["4", "4"]]);
    assert_eq!(failure(other.batch_execute("INSERT INTO w VALUES (5, 4)").await).0, "23505");
}
