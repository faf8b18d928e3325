//! What is sent in one message, and by the extended protocol until Sync, takes effect together or not at all.

use tokio_postgres::Client;

use crate::harness::{Server, cell, failure, rows};
use crate::raw::{RawClient, bind, execute, message, parse, query, sync};

async fn table(server: &Server) -> Client {
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10)").await.unwrap();
    client
}

async fn keys(client: &Client) -> String {
    rows(client, "SELECT k FROM t ORDER BY k").await.concat().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_of_one_message_are_one_transaction() {
    let server = Server::start().await;
    let client = table(&server).await;
    for (message, state, then) in [
        ("INSERT INTO t VALUES (2, 0); INSERT INTO t VALUES (1, 0)", "23505", "1"),
        ("INSERT INTO t VALUES (2, 0); SELECT 1 / 0; INSERT INTO t VALUES (3, 0)", "22012", "1"),
        ("INSERT INTO t VALUES (2, 0); SELECT nonsense", "42703", "1"),
        // COMMIT and ROLLBACK end what is before them; the rest is one again.
        ("INSERT INTO t VALUES (2, 0); COMMIT; INSERT INTO t VALUES (3, 0); SELECT 1 / 0", "22012", "1 2"),
        ("INSERT INTO t VALUES (4, 0); ROLLBACK; INSERT INTO t VALUES (5, 0); COMMIT; SELECT 1 / 0", "22012", "1 2 5"),
        ("BEGIN; INSERT INTO t VALUES (6, 0); COMMIT; INSERT INTO t VALUES (7, 0); SELECT 1 / 0", "22012", "1 2 5 6"),
        // What nobody began has no savepoints, and no chain.
        ("INSERT INTO t VALUES (8, 0); SAVEPOINT a", "25P01", "1 2 5 6"),
        ("INSERT INTO t VALUES (8, 0); COMMIT AND CHAIN", "25P01", "1 2 5 6"),
        ("INSERT INTO t VALUES (8, 0); DISCARD ALL", "25001", "1 2 5 6"),
        ("CREATE TABLE u (a int); INSERT INTO u VALUES (1); SELECT 1 / 0", "22012", "1 2 5 6"),
    ] {
        assert_eq!(failure(client.batch_execute(message).await).0, state, "{message}");
        assert_eq!(keys(&client).await, then, "{message}");
    }
    assert_eq!(failure(client.batch_execute("SELECT * FROM u").await).0, "42P01", "it went with the rest");
    // BEGIN takes what is before it into its transaction.
    client.batch_execute("INSERT INTO t VALUES (10, 0); BEGIN; INSERT INTO t VALUES (11, 0)").await.unwrap();
    assert_eq!(cell(&server.client().await, "SELECT count(*) FROM t WHERE k >= 10").await, "0");
    client.batch_execute("ROLLBACK; INSERT INTO t VALUES (12, 0)").await.unwrap();
    assert_eq!(keys(&client).await, "1 2 5 6 12");
    // Statements see those before them.
    let seen = "INSERT INTO t VALUES (20, 1); UPDATE t SET v = v + 1 WHERE k = 20; SELECT v FROM t WHERE k = 20";
    assert_eq!(rows(&client, seen).await, [["2"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_held_back_ends_what_is_before_it() {
    let server = Server::start().await;
    let client = table(&server).await;
    for script in [
        "CREATE SEQUENCE s; CREATE TABLE a (n int DEFAULT nextval('s')); INSERT INTO a DEFAULT VALUES; TABLE a",
        "DROP TABLE a; CREATE TABLE a (x text); INSERT INTO a VALUES ('x'); CALL tarn.deliver('a'); TABLE a",
        "CREATE VIEW w AS SELECT x FROM a; CREATE OR REPLACE VIEW w AS SELECT x, 1 AS y FROM a; SELECT y FROM w",
        "COMMENT ON TABLE a IS 'x'; DROP VIEW w; CREATE VIEW w AS SELECT x FROM a; TRUNCATE a RESTART IDENTITY; TABLE w",
    ] {
        client.batch_execute(script).await.unwrap_or_else(|error| panic!("{script}: {error:?}"));
    }
    // It stays, and so does what was before it; what comes behind does not.
    let error = client
        .batch_execute("INSERT INTO t VALUES (2, 0); CREATE SEQUENCE z; INSERT INTO t VALUES (3, 0); SELECT 1 / 0");
    assert_eq!(failure(error.await).0, "22012");
    assert_eq!(keys(&client).await, "1 2");
    assert_eq!(cell(&client, "SELECT nextval('z')").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_statement_may_be_as_large_as_one_alone() {
    let server = Server::start_with(|settings| settings.sql.transaction_bytes = 64 << 10).await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); CREATE TABLE u (k int)").await.unwrap();
    let large = "INSERT INTO t SELECT x, x FROM generate_series(1, 50000) AS s(x)";
    client.batch_execute(&format!("SET statement_timeout = '1min'; {large}")).await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "50000");
    let (state, message) =
        failure(client.batch_execute(&format!("INSERT INTO u VALUES (1); UPSERT{}", &large[6..])).await);
    assert_eq!(state, "54000", "{message}");
    assert_eq!(cell(&client, "SELECT count(*) FROM u").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chains_go_on_as_they_were() {
    let server = Server::start().await;
    let client = table(&server).await;
    assert_eq!(failure(client.batch_execute("COMMIT AND CHAIN").await).0, "25P01");
    assert_eq!(failure(client.batch_execute("ROLLBACK AND CHAIN").await).0, "25P01");
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO t VALUES (2, 0)").await.unwrap();
    client.batch_execute("COMMIT AND CHAIN").await.unwrap();
    assert_eq!(cell(&client, "SHOW transaction_isolation").await, "repeatable read");
    client.batch_execute("INSERT INTO t VALUES (3, 0); ROLLBACK AND CHAIN").await.unwrap();
    assert_eq!(cell(&client, "SHOW transaction_isolation").await, "repeatable read");
    client.batch_execute("COMMIT AND NO CHAIN").await.unwrap();
    assert_eq!(failure(client.batch_execute("SAVEPOINT a").await).0, "25P01");
    assert_eq!(keys(&client).await, "1 2");
    // A failed one is rolled back, and the next begins as it did.
    client.batch_execute("BEGIN READ ONLY").await.unwrap();
    assert_eq!(failure(client.batch_execute("SELECT 1 / 0").await).0, "22012");
    client.batch_execute("COMMIT AND CHAIN").await.unwrap();
    assert_eq!(failure(client.batch_execute("DELETE FROM t").await).0, "25006");
    client.batch_execute("ABORT AND CHAIN; ABORT").await.unwrap();
}

fn run(sql: &str) -> Vec<u8> {
    [parse("", sql), bind("", ""), execute("", 0)].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_is_one_transaction_until_sync() {
    let server = Server::start().await;
    let client = table(&server).await;
    let mut raw = RawClient::connect(&server).await;
    let (one, again) = (run("INSERT INTO t VALUES (2, 0)"), run("INSERT INTO t VALUES (1, 0)"));
    let answers = raw.ask(&[&one[..], &again, &one, &sync()].concat()).await;
    assert_eq!(answers, ["1", "2", "CINSERT 0 1", "1", "2", "E23505", "ZI"]);
    assert_eq!(keys(&client).await, "1");
    // Each Sync ends one.
    let answers = raw.ask(&[&one[..], &sync()].concat()).await;
    assert_eq!(answers, ["1", "2", "CINSERT 0 1", "ZI"]);
    assert_eq!(keys(&client).await, "1 2");
    // Nobody else sees it before Sync, also where the server cannot know what follows.
    raw.send(&[&run("INSERT INTO t VALUES (3, 0)")[..], &message('H', b"")].concat()).await;
    assert_eq!(
        [raw.next().await.unwrap().kind, raw.next().await.unwrap().kind, raw.next().await.unwrap().kind],
        ['1', '2', 'C']
    );
    assert_eq!(keys(&client).await, "1 2");
    assert_eq!(raw.ask(&sync()).await, ["ZI"]);
    assert_eq!(keys(&client).await, "1 2 3");
    // COMMIT in it ends what is before it; BEGIN takes it along.
    let fails = run("SELECT 1 / 0");
    let four = run("INSERT INTO t VALUES (4, 0)");
    raw.ask(&[&four[..], &run("COMMIT"), &run("INSERT INTO t VALUES (5, 0)"), &fails, &sync()].concat()).await;
    assert_eq!(keys(&client).await, "1 2 3 4");
    let answers = raw.ask(&[&run("INSERT INTO t VALUES (6, 0)")[..], &run("BEGIN"), &sync()].concat()).await;
    assert_eq!(answers.last().unwrap(), "ZT");
    assert_eq!(raw.ask(&query("ROLLBACK")).await, ["CROLLBACK", "ZI"]);
    // A simple query ends it, too.
    let answers = raw.ask(&[&run("INSERT INTO t VALUES (7, 0)")[..], &query("SELECT 1 / 0")].concat()).await;
    assert_eq!(answers.last().unwrap(), "ZI");
    assert_eq!(keys(&client).await, "1 2 3 4");
    // What commits at Sync may fail there: that is answered before it is ready.
    raw.send(&[&run("UPDATE t SET v = 1 WHERE k = 4")[..], &run("SELECT 1"), &message('H', b"")].concat()).await;
    while raw.next().await.unwrap().short() != "CSELECT 1" {}
    client.batch_execute("UPDATE t SET v = 2 WHERE k = 4").await.unwrap();
    assert_eq!(raw.ask(&sync()).await, ["E40001", "ZI"]);
    assert_eq!(raw.ask(&[run("SELECT v FROM t WHERE k = 4"), sync()].concat()).await.last().unwrap(), "ZI");
    assert_eq!(cell(&client, "SELECT v FROM t WHERE k = 4").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_behind_other_statements_is_a_part_of_them() {
    let server = Server::start().await;
    let client = table(&server).await;
    let mut raw = RawClient::connect(&server).await;
    for (data, state, then) in [("2\t0\n1\t0\n", "E23505", "1"), ("2\t0\n3\t0\n", "CCOPY 2", "1 2 3 9")] {
        raw.send(&query("INSERT INTO t VALUES (9, 0); COPY t FROM STDIN")).await;
        let asked = [raw.next().await.unwrap().short(), raw.next().await.unwrap().kind.to_string()];
        assert_eq!(asked, ["CINSERT 0 1", "G"]);
        let ended = raw.ask(&[message('d', data.as_bytes()), message('c', b"")].concat()).await;
        assert_eq!(ended, [state, "ZI"]);
        assert_eq!(keys(&client).await, then);
    }
}
