//! What do others see of a transaction that alters a table, and what becomes of both when they write it, too?

use crate::harness::{Server, cell, failure, rows};

const SETUP: &str = "CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b'); \
                     CREATE TABLE version (n int PRIMARY KEY, at int); INSERT INTO version VALUES (1, 0)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_see_it_when_it_commits_and_what_they_write_meanwhile_stays() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client.batch_execute(SETUP).await.unwrap();
    let named = other.prepare("SELECT * FROM t WHERE k = $1").await.unwrap();
    client.batch_execute("BEGIN; ALTER TABLE t ADD COLUMN n int; INSERT INTO t VALUES (3, 'c', 3)").await.unwrap();
    client.batch_execute("ALTER TABLE t RENAME COLUMN v TO w; UPDATE t SET n = 1 WHERE k = 1").await.unwrap();
    assert_eq!(rows(&other, "SELECT * FROM t ORDER BY k").await, [["1", "a"], ["2", "b"]]);
    let columns = "SELECT string_agg(column_name, ' ' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_name = 't'";
    assert_eq!((cell(&other, columns).await, cell(&client, columns).await), ("k v".into(), "k w n".into()));
    other.batch_execute("INSERT INTO t VALUES (4, 'd'); UPDATE t SET v = 'bb' WHERE k = 2").await.unwrap();
    let want = [["1", "a", "1"], ["2", "bb", "∅"], ["3", "c", "3"], ["4", "d", "∅"]];
    let all = "SELECT k, w, n FROM t ORDER BY k";
    for path in ["auto", "lake"] {
        client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await.unwrap();
        assert_eq!(rows(&client, all).await, want, "{path}");
    }
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(rows(&other, all).await, want);
    assert_eq!(failure(other.query(&named, &[&1]).await).0, "0A000", "a plan of other columns");
    let server = server.restart().await;
    let client = server.client().await;
    for step in ["SELECT 1", "DELIVER TABLE t", "EVICT TABLE t", "COMPACT TABLE t"] {
        client.batch_execute(step).await.unwrap();
        assert_eq!(rows(&client, all).await, want, "{step}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_were_looked_at_are_those_still_or_nothing_happens() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client.batch_execute(SETUP).await.unwrap();
    for (alter, wrong, state) in [
        ("ALTER v SET NOT NULL", "INSERT INTO t VALUES (10, NULL)", "23502"),
        ("ADD CONSTRAINT short CHECK (length(v) < 3)", "INSERT INTO t VALUES (11, 'long')", "23514"),
    ] {
        let begun = format!("BEGIN; INSERT INTO version VALUES (2, 0); ALTER TABLE t {alter}");
        client.batch_execute(&begun).await.unwrap();
        other.batch_execute("INSERT INTO t VALUES (9, 'x')").await.unwrap();
        let (refused, message) = failure(client.batch_execute("COMMIT").await);
        assert!(
            refused == "40001" && message.contains("written since its rows were looked at"),
            "{refused}: {message}"
        );
        assert_eq!(cell(&other, "SELECT count(*) FROM version").await, "1", "nothing of it is there");
        other.batch_execute("DELETE FROM t WHERE k > 8").await.unwrap();
        // Nobody writes: it commits, and holds.
        client.batch_execute(&begun).await.unwrap();
        client.batch_execute("COMMIT; DELETE FROM version WHERE n = 2").await.unwrap();
        assert_eq!(failure(other.batch_execute(wrong).await).0, state);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_alter_a_table_the_first_to_commit_wins() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client.batch_execute(SETUP).await.unwrap();
    client.batch_execute("BEGIN; ALTER TABLE t ADD COLUMN n int; INSERT INTO version VALUES (2, 0)").await.unwrap();
    other.batch_execute("BEGIN; ALTER TABLE t ADD COLUMN m int").await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(failure(other.batch_execute("SELECT m FROM t").await).0, "40001");
    other.batch_execute("ROLLBACK; BEGIN; ALTER TABLE t ADD COLUMN m int").await.unwrap();
    // By itself, and waits for nobody.
    client.batch_execute("ALTER TABLE t ADD COLUMN o int").await.unwrap();
    let (state, message) = failure(other.batch_execute("COMMIT").await);
    assert!(state == "40001" && message.contains("altered meanwhile"), "{state}: {message}");
    other.batch_execute("BEGIN; ALTER TABLE t RENAME TO u").await.unwrap();
    client.batch_execute("ALTER TABLE t RENAME TO w").await.unwrap();
    assert!(other.batch_execute("COMMIT").await.is_err());
    other.batch_execute("BEGIN; ALTER TABLE w ADD COLUMN m int; INSERT INTO version VALUES (3, 0)").await.unwrap();
    client.batch_execute("DROP TABLE w").await.unwrap();
    assert_eq!(failure(other.batch_execute("COMMIT").await).0, "42P01");
    assert_eq!(rows(&other, "SELECT n FROM version ORDER BY n").await, [["1"], ["2"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_wrote_by_the_old_definition_begins_again() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client.batch_execute(SETUP).await.unwrap();
    other.batch_execute("BEGIN; INSERT INTO t VALUES (7, NULL); INSERT INTO version VALUES (7, 0)").await.unwrap();
    client.batch_execute("BEGIN; ALTER TABLE t ALTER v SET NOT NULL, ADD COLUMN n int; COMMIT").await.unwrap();
    let (state, message) = failure(other.batch_execute("COMMIT").await);
    assert!(state == "40001" && message.contains("altered meanwhile"), "{state}: {message}");
    assert_eq!(cell(&other, "SELECT count(*) FROM t").await, "2");
    assert_eq!(cell(&other, "SELECT count(*) FROM version").await, "1");
    // A reader that began before goes on by what it saw.
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM version").await.unwrap();
    client.batch_execute("BEGIN; ALTER TABLE t ADD COLUMN m int; UPDATE version SET at = 1; COMMIT").await.unwrap();
    assert_eq!(cell(&other, "SELECT at FROM version").await, "0");
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cell(&other, "SELECT at FROM version").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_refused_alters_nothing() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client.batch_execute(SETUP).await.unwrap();
    let migration = "BEGIN; CREATE TABLE made (k int PRIMARY KEY); ALTER TABLE made ADD COLUMN n int; INSERT INTO made VALUES (1, 1); \
                     ALTER TABLE t ADD COLUMN n int; UPDATE t SET n = k; ALTER TABLE t RENAME TO u; UPDATE version SET at = at + 1 WHERE n = 1";
    for (meanwhile, state) in [
        ("UPDATE version SET at = 5", "40001"),
        ("UPDATE t SET v = 'other' WHERE k = 2", "40001"),
        ("CREATE TABLE u (k int)", "42P07"),
    ] {
        client.batch_execute(migration).await.unwrap();
        other.batch_execute(meanwhile).await.unwrap();
        assert_eq!(failure(client.batch_execute("COMMIT").await).0, state, "{meanwhile}");
        assert_eq!(failure(other.batch_execute("SELECT n FROM t").await).0, "42703", "{meanwhile}");
        assert_eq!(failure(other.batch_execute("TABLE made").await).0, "42P01", "{meanwhile}");
        other.batch_execute("UPDATE version SET at = 0; UPDATE t SET v = 'b' WHERE k = 2").await.unwrap();
        other.batch_execute("DROP TABLE IF EXISTS u").await.unwrap();
    }
    client.batch_execute(&format!("{migration}; COMMIT")).await.unwrap();
    assert_eq!(
        rows(&other, "SELECT u.k, u.n, at FROM u, version ORDER BY 1").await,
        [["1", "1", "1"], ["2", "2", "1"]]
    );
    // Who goes away in the middle has done nothing.
    let begun = "BEGIN; ALTER TABLE u ADD COLUMN x int; ALTER TABLE u RENAME TO t";
    client.batch_execute(begun).await.unwrap();
    drop(client);
    other.batch_execute("ALTER TABLE u ADD COLUMN x int").await.unwrap();
    // What somebody prepared is planned anew inside, and again when it is undone.
    let all = other.prepare("SELECT count(*) FROM u").await.unwrap();
    other.batch_execute("BEGIN; ALTER TABLE u ADD COLUMN y int; INSERT INTO u VALUES (3)").await.unwrap();
    assert_eq!(other.query_one(&all, &[]).await.unwrap().get::<_, i64>(0), 3);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(other.query_one(&all, &[]).await.unwrap().get::<_, i64>(0), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_its_owner_alters_a_table_in_a_transaction() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(SETUP).await.unwrap();
    client.batch_execute("CREATE USER root SUPERUSER PASSWORD 'secret'").await.unwrap();
    let root = server.client_as("root", "secret").await.unwrap();
    root.batch_execute(
        "CREATE USER ada PASSWORD 'secret'; GRANT SELECT, INSERT ON t TO ada; GRANT CREATE ON SCHEMA public TO ada",
    )
    .await
    .unwrap();
    let ada = server.client_as("ada", "secret").await.unwrap();
    for statement in ["ALTER TABLE t ADD COLUMN n int", "ALTER TABLE t RENAME TO u"] {
        ada.batch_execute("BEGIN; INSERT INTO t VALUES (5, 'e')").await.unwrap();
        assert_eq!(failure(ada.batch_execute(statement).await).0, "42501", "{statement}");
        ada.batch_execute("ROLLBACK").await.unwrap();
    }
    ada.batch_execute(
        "BEGIN; CREATE TABLE own (k int PRIMARY KEY); ALTER TABLE own ADD COLUMN n int; INSERT INTO own VALUES (1, 1)",
    )
    .await
    .unwrap();
    ada.batch_execute("ALTER TABLE own RENAME TO mine; SELECT * FROM mine; COMMIT; SELECT n FROM mine").await.unwrap();
}
