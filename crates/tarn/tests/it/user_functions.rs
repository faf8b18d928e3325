//! Functions that users write in SQL: what survives, whose they are, with whose rights they read, and what plans that
//! were made know of them.

use crate::harness::{Server, cell, failure, rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_are_back_after_a_start() {
    let server = Server::start().await;
    let client = server.client().await;
    let made = "CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b');
                CREATE FUNCTION v_of(n int DEFAULT 1) RETURNS text LANGUAGE sql STABLE AS 'SELECT v FROM t WHERE k = n';
                CREATE VIEW vs AS SELECT k, v_of(k) AS v FROM t";
    client.batch_execute(made).await.unwrap();
    client
        .batch_execute("COMMENT ON FUNCTION v_of(int) IS 'a text'; CREATE FUNCTION gone() RETURNS int RETURN 1")
        .await
        .unwrap();
    client.batch_execute("DROP FUNCTION gone()").await.unwrap();
    let number = cell(&client, "SELECT oid FROM pg_proc WHERE proname = 'v_of'").await;
    let definition = cell(&client, "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'v_of'").await;
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT oid FROM pg_proc WHERE proname = 'v_of'").await, number);
    assert_eq!(cell(&client, "SELECT v_of() || v_of(2)").await, "ab");
    assert_eq!(rows(&client, "SELECT v FROM vs ORDER BY k").await, [["a"], ["b"]]);
    assert_eq!(
        cell(&client, "SELECT obj_description(oid, 'pg_proc') FROM pg_proc WHERE proname = 'v_of'").await,
        "a text"
    );
    assert_eq!(failure(client.batch_execute("SELECT gone()").await).0, "42883");
    assert_eq!(failure(client.batch_execute("DROP FUNCTION v_of(int)").await).0, "2BP01");
    // What the catalog says makes it again.
    client.batch_execute("DROP VIEW vs; DROP FUNCTION v_of(int)").await.unwrap();
    client.batch_execute(&definition).await.unwrap();
    assert_eq!(cell(&client, "SELECT v_of() || v_of(2)").await, "ab");
    assert_eq!(cell(&client, "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'v_of'").await, definition);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_was_prepared_knows_what_a_function_is_by_now() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client.batch_execute("CREATE FUNCTION f(a int) RETURNS int LANGUAGE sql AS 'SELECT a + 1'").await.unwrap();
    let called = client.prepare("SELECT f($1), f(x) FROM (VALUES (10)) AS v(x)").await.unwrap();
    assert_eq!(called.params()[0].name(), "int4");
    let both = |row: tokio_postgres::Row| (row.get::<_, i32>(0), row.get::<_, i32>(1));
    assert_eq!(both(client.query_one(&called, &[&1]).await.unwrap()), (2, 11));
    other
        .batch_execute("CREATE OR REPLACE FUNCTION f(a int) RETURNS int LANGUAGE sql AS 'SELECT a * 2'")
        .await
        .unwrap();
    assert_eq!(both(client.query_one(&called, &[&3]).await.unwrap()), (6, 20));
    other.batch_execute("DROP FUNCTION f(int)").await.unwrap();
    assert_eq!(failure(client.query_one(&called, &[&3]).await.map(drop)).0, "42883");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_belongs_to_who_made_it_and_reads_with_the_rights_of_who_calls_it() {
    let server = Server::start().await;
    let first = server.client().await;
    first.batch_execute("CREATE USER root SUPERUSER PASSWORD 'r'").await.unwrap();
    let root = server.client_as("root", "r").await.unwrap();
    let users = "CREATE USER ann PASSWORD 'a'; CREATE USER bob PASSWORD 'b'; GRANT CREATE ON SCHEMA public TO ann";
    root.batch_execute(users).await.unwrap();
    let ann = server.client_as("ann", "a").await.unwrap();
    let bob = server.client_as("bob", "b").await.unwrap();
    ann.batch_execute("CREATE TABLE secret (n int PRIMARY KEY); INSERT INTO secret VALUES (42)").await.unwrap();
    ann.batch_execute("CREATE FUNCTION told() RETURNS int LANGUAGE sql AS 'SELECT n FROM secret'").await.unwrap();
    ann.batch_execute("CREATE FUNCTION plain(a int) RETURNS int RETURN a + 1").await.unwrap();
    for denied in [
        "CREATE FUNCTION x() RETURNS int RETURN 1",
        "CREATE OR REPLACE FUNCTION told() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "ALTER FUNCTION told() RENAME TO x",
        "DROP FUNCTION told()",
        "COMMENT ON FUNCTION told() IS 'x'",
        "SELECT told()",
        "SELECT * FROM told() AS t",
    ] {
        assert_eq!(failure(bob.batch_execute(denied).await).0, "42501", "{denied}");
    }
    assert_eq!(cell(&bob, "SELECT plain(1)").await, "2");
    assert_eq!(cell(&ann, "SELECT told()").await, "42");
    root.batch_execute("GRANT SELECT ON secret TO bob").await.unwrap();
    assert_eq!(cell(&bob, "SELECT told()").await, "42");
    root.batch_execute("ALTER FUNCTION told() OWNER TO bob").await.unwrap();
    assert_eq!(failure(ann.batch_execute("DROP FUNCTION told()").await).0, "42501");
    bob.batch_execute("DROP FUNCTION told()").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_cannot_be_put_in_their_places_are_refused() {
    let server = Server::start().await;
    let client = server.client().await;
    let made = "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1), (2); CREATE SEQUENCE s";
    for statement in made.split("; ") {
        client.batch_execute(statement).await.unwrap();
    }
    for statement in [
        "CREATE FUNCTION doubled(a float8) RETURNS float8 RETURN a + a",
        "CREATE FUNCTION once(a float8) RETURNS float8 RETURN a + 1",
        "CREATE FUNCTION one_of(a float8) RETURNS int LANGUAGE sql AS 'SELECT k FROM t WHERE k >= a ORDER BY k'",
        "CREATE FUNCTION next_one() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s'')'",
        "CREATE FUNCTION next_of_t() RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''s'') FROM t'",
        "CREATE FUNCTION a_row(a int, OUT b int, OUT c int) LANGUAGE sql AS 'SELECT a, a'",
        "CREATE FUNCTION loops(a int) RETURNS int RETURN a",
        "CREATE OR REPLACE FUNCTION loops(a int) RETURNS int LANGUAGE sql AS 'SELECT loops(a)'",
    ] {
        let done = client.batch_execute(statement).await;
        // One that calls itself is found out when it is made.
        assert!(done.is_ok() || statement.contains("SELECT loops"), "{statement}: {done:?}");
    }
    for refused in
        ["SELECT doubled(random())", "SELECT one_of(random())", "SELECT next_of_t() FROM t", "SELECT a_row(1)"]
    {
        assert_eq!(failure(client.batch_execute(refused).await).0, "0A000", "{refused}");
    }
    assert_eq!(cell(&client, "SELECT once(random()) > 0").await, "t");
    assert_eq!(rows(&client, "SELECT next_one() FROM t ORDER BY 1").await, [["1"], ["2"]]);
    assert_eq!(cell(&client, "SELECT next_of_t()").await, "3");
    // Names double with each of them: the statement ends, not the server.
    client.batch_execute("CREATE FUNCTION d0(a int) RETURNS int RETURN a + a").await.unwrap();
    for at in 1..20 {
        let before = at - 1;
        let made =
            format!("CREATE FUNCTION d{at}(a int) RETURNS int LANGUAGE sql AS 'SELECT d{before}(a) + d{before}(a)'");
        match client.batch_execute(&made).await {
            Ok(()) => {}
            refused => {
                assert_eq!(failure(refused).0, "54000", "{made}");
                break;
            }
        }
        assert!(at < 19, "2 to the 19 parts were planned");
    }
}
