//! Foreign keys among many: no row is without its parent, whoever inserts, deletes, restarts or evicts; and what goes
//! along goes whole.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::SinkExt;

use crate::harness::{Server, cell, failure, rows};

const TABLES: &str = "CREATE TABLE p (id bigint PRIMARY KEY, code text UNIQUE, n bigint) WITH (hot_retention = '1ms'); \
    CREATE TABLE kept (id bigserial PRIMARY KEY, p bigint REFERENCES p, code text REFERENCES p (code)); \
    CREATE TABLE along (id bigserial PRIMARY KEY, p bigint NOT NULL REFERENCES p ON DELETE CASCADE); \
    CREATE TABLE loose (id bigserial PRIMARY KEY, p bigint REFERENCES p ON DELETE SET NULL)";

/// Rows without their parents.
const ORPHANS: &str = "SELECT (SELECT count(*) FROM kept LEFT JOIN p ON p.id = kept.p WHERE kept.p IS NOT NULL AND p.id IS NULL) \
    + (SELECT count(*) FROM kept LEFT JOIN p ON p.code = kept.code WHERE kept.code IS NOT NULL AND p.id IS NULL) \
    + (SELECT count(*) FROM along LEFT JOIN p ON p.id = along.p WHERE p.id IS NULL) \
    + (SELECT count(*) FROM loose LEFT JOIN p ON p.id = loose.p WHERE loose.p IS NOT NULL AND p.id IS NULL)";

async fn tables() -> (Server, tokio_postgres::Client) {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(TABLES).await.unwrap();
    (server, client)
}

/// What one of many does. `#` is a parent's number.
const STEPS: [&str; 12] = [
    "INSERT INTO p VALUES (#, 'c#', 0)",
    "INSERT INTO kept (p, code) VALUES (#, 'c#')",
    "INSERT INTO along (p) SELECT #",
    "INSERT INTO loose (p) VALUES (#)",
    "DELETE FROM p WHERE id = #",
    "BEGIN; INSERT INTO along (p) VALUES (#); INSERT INTO kept (code) VALUES ('c#'); COMMIT",
    "DELETE FROM kept WHERE p = # OR code = 'c#'",
    "DELETE FROM p WHERE id + 0 = # OR code = 'c#'",
    "UPDATE p SET n = n + 1 WHERE id = #",
    "BEGIN; DELETE FROM kept WHERE p = # OR code = 'c#'; DELETE FROM p WHERE id = #; COMMIT",
    "UPDATE p SET code = code || '' WHERE id = #",
    "UPSERT INTO p VALUES (#, 'c#', 1)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_is_without_its_parent_whoever_writes() {
    let (server, client) = tables().await;
    client.batch_execute("INSERT INTO p SELECT i, 'c' || i, 0 FROM generate_series(1, 6) AS s(i)").await.unwrap();
    let server = Arc::new(server);
    let mut writers = vec![];
    for writer in 0..6_usize {
        let server = Arc::clone(&server);
        writers.push(tokio::spawn(async move {
            let client = server.client().await;
            let (mut done, mut refused) = (0, 0);
            for step in 0..90 {
                let parent = 1 + (writer * 5 + step * 7) % 6;
                let statement = STEPS[(writer * 3 + step * 5) % STEPS.len()].replace('#', &parent.to_string());
                match client.batch_execute(&statement).await {
                    Ok(()) => done += 1,
                    Err(error) => {
                        let (state, text) = failure::<()>(Err(error));
                        assert!(["23503", "23505", "40001"].contains(&&*state), "{statement}: {state} {text}");
                        refused += 1;
                        client.batch_execute("ROLLBACK").await.unwrap();
                    }
                }
                if writer == 0 && step % 30 == 29 {
                    let tables = ["p", "kept", "along", "loose"];
                    for table in tables {
                        client.batch_execute(&format!("DELIVER TABLE {table}")).await.unwrap();
                    }
                    client.batch_execute("EVICT TABLE p").await.unwrap();
                }
            }
            (done, refused)
        }));
    }
    let (mut done, mut refused) = (0, 0);
    for writer in writers {
        let (its, not) = writer.await.unwrap();
        done += its;
        refused += not;
    }
    assert!(done > 100 && refused > 20, "{done} done, {refused} refused");
    assert_eq!(cell(&client, ORPHANS).await, "0");
    drop(client);
    let server = Arc::into_inner(server).unwrap().restart().await;
    let client = server.client().await;
    assert_eq!(cell(&client, ORPHANS).await, "0");
}

/// One deletes a parent, the other inserts a child, at the same time and again and again: never do both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_parent_that_goes_and_a_child_that_comes_one_wins() {
    let (server, client) = tables().await;
    let other = server.client().await;
    let (mut went, mut came) = (0, 0);
    for round in 0..60 {
        client.batch_execute(&format!("INSERT INTO p VALUES ({round}, 'c{round}', 0)")).await.unwrap();
        if round % 3 == 0 {
            client.batch_execute("DELIVER TABLE p; EVICT TABLE p").await.unwrap();
        }
        let delete = format!("DELETE FROM p WHERE id = {round}");
        let insert = match round % 2 {
            0 => format!("INSERT INTO kept (p) VALUES ({round})"),
            _ => format!("BEGIN; INSERT INTO kept (code) VALUES ('c{round}'); COMMIT"),
        };
        let (deleted, inserted) = tokio::join!(client.batch_execute(&delete), other.batch_execute(&insert));
        assert!(deleted.is_err() || inserted.is_err(), "{round}: both");
        went += usize::from(deleted.is_ok());
        came += usize::from(inserted.is_ok());
        for refused in [deleted, inserted].into_iter().filter(|done| done.is_err()) {
            let (state, text) = failure(refused);
            assert!(["23503", "40001"].contains(&&*state), "{round}: {state} {text}");
        }
        other.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(cell(&client, ORPHANS).await, "0", "{round}");
    }
    assert_eq!(went + came, 60);
}

/// A parent that lies in the lake alone is one that is there, and its children are found wherever they lie.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_evicted_are_parents_and_children() {
    let (server, client) = tables().await;
    client
        .batch_execute(
            "INSERT INTO p SELECT i, 'c' || i, 0 FROM generate_series(1, 100) AS s(i); \
             INSERT INTO along (p) SELECT 1 + i % 50 FROM generate_series(1, 200) AS s(i); \
             INSERT INTO kept (p) SELECT 60; \
             DELIVER TABLE p; EVICT TABLE p; DELIVER TABLE along; EVICT TABLE along",
        )
        .await
        .unwrap();
    let server = {
        drop(client);
        server.restart().await
    };
    let client = server.client().await;
    client.batch_execute("INSERT INTO loose (p) VALUES (7); INSERT INTO kept (code) VALUES ('c70')").await.unwrap();
    let (state, text) = failure(client.batch_execute("INSERT INTO loose (p) VALUES (101)").await);
    assert!(state == "23503" && text.contains("loose_p_fkey"), "{state} {text}");
    for parent in [60, 70] {
        let (state, text) = failure(client.batch_execute(&format!("DELETE FROM p WHERE id = {parent}")).await);
        assert!(state == "23503", "{state} {text}");
    }
    client.batch_execute("DELETE FROM p WHERE id <= 10").await.unwrap();
    let want = "90 160 1";
    let found = "SELECT (SELECT count(*) FROM p) || ' ' || (SELECT count(*) FROM along) || ' ' || (SELECT count(*) FROM loose WHERE p IS NULL)";
    assert_eq!(cell(&client, found).await, want);
    assert_eq!(cell(&client, ORPHANS).await, "0");
}

/// A definition that comes while rows are written holds for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_that_comes_while_parents_go_holds() {
    let server = Arc::new(Server::start().await);
    let client = server.client().await;
    for round in 0..6 {
        client
            .batch_execute(&format!(
                "CREATE TABLE p{round} (id bigint PRIMARY KEY); CREATE TABLE c{round} (id bigint PRIMARY KEY, p bigint); \
                 INSERT INTO p{round} SELECT i FROM generate_series(1, 30) AS s(i); \
                 INSERT INTO c{round} SELECT i, i FROM generate_series(1, 10) AS s(i)"
            ))
            .await
            .unwrap();
        let writer = {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let client = server.client().await;
                for id in 1..=30 {
                    let statement = match id % 2 {
                        0 => format!("DELETE FROM p{round} WHERE id = {id}"),
                        _ => format!("INSERT INTO c{round} VALUES (100 + {id}, {id})"),
                    };
                    if let Err(error) = client.batch_execute(&statement).await {
                        let (state, text) = failure::<()>(Err(error));
                        assert!(["23503", "40001"].contains(&&*state), "{statement}: {state} {text}");
                    }
                }
            })
        };
        let added =
            client.batch_execute(&format!("ALTER TABLE c{round} ADD FOREIGN KEY (p) REFERENCES p{round}")).await;
        writer.await.unwrap();
        let orphans =
            format!("SELECT count(*) FROM c{round} LEFT JOIN p{round} ON p{round}.id = p WHERE p{round}.id IS NULL");
        match added {
            Ok(()) => assert_eq!(cell(&client, &orphans).await, "0", "{round}"),
            Err(error) => {
                let (state, text) = failure::<()>(Err(error));
                assert!(["23503", "40001"].contains(&&*state), "{state} {text}");
            }
        }
    }
}

/// The index by which children are found is another one again and again, while parents go and children come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_are_found_whichever_index_leads_to_them() {
    let (server, client) = tables().await;
    let server = Arc::new(server);
    client.batch_execute("INSERT INTO p SELECT i, 'c' || i, 0 FROM generate_series(1, 3) AS s(i)").await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = vec![];
    for writer in 0..3_usize {
        let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
        writers.push(tokio::spawn(async move {
            let client = server.client().await;
            let mut done = 0;
            for step in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let steps = [
                    "INSERT INTO kept (p) VALUES (#)",
                    "DELETE FROM p WHERE id = #",
                    "INSERT INTO along (p) VALUES (#)",
                    "DELETE FROM kept WHERE p = #",
                    "UPSERT INTO p VALUES (#, 'c#', 0)",
                ];
                let parent = 1 + (writer + step * 7) % 3;
                let statement = steps[(writer * 3 + step) % steps.len()].replace('#', &parent.to_string());
                match client.batch_execute(&statement).await {
                    Ok(()) => done += 1,
                    Err(error) => {
                        let (state, text) = failure::<()>(Err(error));
                        assert!(["23503", "40001"].contains(&&*state), "{statement}: {state} {text}");
                    }
                }
            }
            done
        }));
    }
    for _ in 0..12 {
        for table in ["kept", "along"] {
            client.batch_execute(&format!("CREATE INDEX {table}_ix ON {table} (p)")).await.unwrap();
        }
        for table in ["along", "kept"] {
            client.batch_execute(&format!("DROP INDEX {table}_ix")).await.unwrap();
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let mut done = 0;
    for writer in writers {
        done += writer.await.unwrap();
    }
    assert!(done > 20, "{done} done");
    assert_eq!(cell(&client, ORPHANS).await, "0");
}

/// A COPY is held to foreign keys as a whole, and leaves nothing where one row has no parent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_whole_or_nothing() {
    let (_server, client) = tables().await;
    client.batch_execute("INSERT INTO p VALUES (1, 'a', 0), (2, 'b', 0)").await.unwrap();
    let copy = async |data: &[u8]| {
        let sink = client.copy_in::<_, Bytes>("COPY kept (p, code) FROM STDIN").await?;
        let mut sink = pin!(sink);
        sink.send(Bytes::copy_from_slice(data)).await?;
        sink.finish().await
    };
    assert_eq!(copy(b"1\ta\n2\tb\n\\N\t\\N\n").await.unwrap(), 3);
    let (state, text) = failure(copy(b"1\ta\n3\t\\N\n").await);
    assert!(state == "23503" && text.contains("kept_p_fkey"), "{state} {text}");
    assert_eq!(cell(&client, "SELECT count(*) FROM kept").await, "3");
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(copy(b"2\tb\n").await.unwrap(), 1);
    let (state, text) = failure(copy(b"\\N\tc\n").await);
    assert!(state == "23503" && text.contains("kept_code_fkey"), "{state} {text}");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM kept").await, "3");
}

/// A user who may write the child and not the parent, or the other way round, is held to the key all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_go_along_whoever_may_delete_them() {
    let (server, client) = tables().await;
    client.batch_execute("CREATE USER root SUPERUSER PASSWORD 'root'").await.unwrap();
    let client = server.client_as("root", "root").await.unwrap();
    client
        .batch_execute(
            "CREATE USER clerk PASSWORD 'pw'; GRANT SELECT, DELETE ON p TO clerk; GRANT INSERT ON along TO clerk; \
             INSERT INTO p VALUES (1, 'a', 0), (2, 'b', 0); INSERT INTO along (p) VALUES (1), (2)",
        )
        .await
        .unwrap();
    let clerk = server.client_as("clerk", "pw").await.unwrap();
    clerk.batch_execute("DELETE FROM p WHERE id = 1").await.unwrap();
    let (state, _) = failure(clerk.batch_execute("DELETE FROM along").await);
    assert_eq!(state, "42501");
    assert_eq!(rows(&client, "SELECT p FROM along").await, [["2"]]);
    let (state, _) =
        failure(clerk.batch_execute("CREATE TABLE mine (id bigint PRIMARY KEY, p bigint REFERENCES p)").await);
    assert_eq!(state, "42501");
}
