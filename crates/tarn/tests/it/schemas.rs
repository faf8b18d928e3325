//! Schemas: what clients are told of them, who may make what where, what prepared statements and settings mean, and
//! what survives.

use futures::{SinkExt, TryStreamExt};
use serde_json::json;
use tokio_postgres::NoTls;

use crate::harness::{Server, cell, failure, rows};
use crate::http::asked;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_at_startup_and_statements_that_were_prepared_before_it_changed() {
    let server = Server::start().await;
    let client = server.client().await;
    let made = "CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE a.t (k int PRIMARY KEY, v text); \
                CREATE TABLE b.t (k int PRIMARY KEY, v text); INSERT INTO a.t VALUES (1, 'a'); INSERT INTO b.t VALUES (1, 'b')";
    client.batch_execute(made).await.unwrap();
    let config = format!("host=127.0.0.1 port={} user=tarn options='-csearch_path=a,public'", server.running.pg.port());
    let (started, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(cell(&started, "SHOW search_path").await, "a,public");
    // A read by key, a query, a write and a statement of another kind, each prepared once.
    let read = started.prepare("SELECT v FROM t WHERE k = $1").await.unwrap();
    let all = started.prepare("SELECT max(v) FROM t").await.unwrap();
    let write = started.prepare("INSERT INTO t VALUES ($1, 'more')").await.unwrap();
    let empty = started.prepare("TRUNCATE t").await.unwrap();
    for path in ["a", "b"] {
        started.batch_execute(&format!("SET search_path = {path}, public")).await.unwrap();
        let of: Vec<String> = started.query(&read, &[&1]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(of, [path]);
        assert_eq!(started.query_one(&all, &[]).await.unwrap().get::<_, String>(0), path);
        assert_eq!(started.execute(&write, &[&2]).await.unwrap(), 1);
        let n_rows =
            [path, if path == "a" { "b" } else { "a" }].map(|schema| format!("SELECT count(*) FROM {schema}.t"));
        assert_eq!(cell(&client, &n_rows[0]).await, "2");
        started.execute(&empty, &[]).await.unwrap();
        assert_eq!(cell(&client, &n_rows[0]).await, "0");
        assert_eq!(cell(&client, &n_rows[1]).await, if path == "a" { "1" } else { "0" });
    }
    // A table that comes in front of another is found from then on.
    started.batch_execute("SET search_path = a, b; DROP TABLE a.t; INSERT INTO t VALUES (5, 'in b')").await.unwrap();
    assert_eq!(started.query(&read, &[&5]).await.unwrap().len(), 1);
    client.batch_execute("CREATE TABLE a.t (k int PRIMARY KEY, v text)").await.unwrap();
    assert_eq!(started.query(&read, &[&5]).await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_are_told_names_the_schema() {
    let server = Server::start().await;
    let client = server.client().await;
    let made = "CREATE SCHEMA s; CREATE TABLE s.t (k int PRIMARY KEY, v text); INSERT INTO s.t VALUES (1, 'x'); \
                CREATE TYPE s.mood AS ENUM ('ok'); CREATE TABLE s.m (m s.mood)";
    client.batch_execute(made).await.unwrap();
    let error = client.execute("INSERT INTO s.t VALUES (1, 'y')", &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.schema(), error.table(), error.constraint()), (Some("s"), Some("t"), Some("t_pkey")));
    let of = client.prepare("SELECT m FROM s.m").await.unwrap().columns()[0].type_().clone();
    assert_eq!((of.schema(), of.name()), ("s", "mood"));
    let sink = client.copy_in("COPY s.t (k, v) FROM STDIN").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    sink.send(bytes::Bytes::from_static(b"2\tcopied\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 1);
    let out = client.copy_out("COPY s.t TO STDOUT").await.unwrap();
    let out: Vec<bytes::Bytes> = out.try_collect().await.unwrap();
    assert_eq!(out.concat(), b"1\tx\n2\tcopied\n");
    assert_eq!(rows(&client, "CALL tarn.deliver('s.t')").await[0][0], "s.t");
    let told = rows(&client, "SELECT table_name, definition FROM tarn.tables WHERE table_name = 's.t'").await;
    assert!(told[0][1].starts_with("CREATE TABLE s.t ("), "{told:?}");
    assert_eq!(cell(&client, "SELECT count(*) FROM tarn.blocks WHERE table_name = 's.t'").await, "1");
    assert_eq!(rows(&client, "SHOW CREATE TABLE s.t").await[0][0], "s.t");
    assert!(rows(&client, "SHOW TABLES").await.contains(&vec!["s.t".to_owned()]));
    let metrics = server.running.sql.metrics_text();
    assert!(metrics.contains("tarn_delivery_lag_seconds{table=\"s.t\"}"), "{metrics}");
    // Nobody says a name as it is kept.
    let kept = client.batch_execute("SELECT * FROM \"\u{F8FC}s\u{F8FD}t\"").await;
    assert_eq!(failure(kept).0, "42602");
    let made = client.batch_execute("CREATE TABLE \"\u{F8FC}s\u{F8FD}u\" (a int)").await;
    assert_eq!(failure(made).0, "42602");

    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, "SELECT k, v FROM s.t ORDER BY k").await, [["1", "x"], ["2", "copied"]]);
    let number = "SELECT n.oid FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE relname = 'm'";
    let before = cell(&client, number).await;
    let other = server.client().await;
    assert_eq!(cell(&other, number).await, before, "in every session");
    client.batch_execute("DROP SCHEMA s CASCADE").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM tarn.tables").await, "0");
    // Called otherwise it is the same schema.
    client.batch_execute("CREATE SCHEMA r; CREATE TABLE r.m (m int)").await.unwrap();
    let before = cell(&client, number).await;
    client.batch_execute("ALTER SCHEMA r RENAME TO q").await.unwrap();
    assert_eq!(cell(&client, number).await, before);
    assert_eq!(cell(&client, "SELECT to_regclass('q.m') = 'q.m'::regclass AND to_regclass('r.m') IS NULL").await, "t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_a_schema_makes_what_is_in_it() {
    let server = Server::start().await;
    server.client().await.batch_execute("CREATE USER root SUPERUSER PASSWORD 'r00t'").await.unwrap();
    let root = server.client_as("root", "r00t").await.unwrap();
    let made = "CREATE USER bob PASSWORD 'b'; CREATE USER eve PASSWORD 'e'; CREATE SCHEMA AUTHORIZATION bob; \
                CREATE SCHEMA roots; CREATE TABLE roots.t (a int)";
    root.batch_execute(made).await.unwrap();
    let bob = server.client_as("bob", "b").await.unwrap();
    let eve = server.client_as("eve", "e").await.unwrap();
    // By his name alone: "$user" is the first of the path.
    bob.batch_execute("CREATE TABLE mine (k serial PRIMARY KEY); INSERT INTO mine DEFAULT VALUES").await.unwrap();
    assert_eq!(cell(&root, "SELECT k FROM bob.mine").await, "1");
    assert_eq!(cell(&bob, "SELECT current_schema()").await, "bob");
    let asked = "SELECT has_schema_privilege('bob', 'create'), has_schema_privilege('roots', 'create'), \
                 has_table_privilege('bob.mine', 'select')";
    assert_eq!(rows(&bob, asked).await, [["t", "f", "t"]]);
    for (who, denied) in [
        (&bob, "CREATE TABLE roots.u (a int)"),
        (&bob, "CREATE TABLE public.u (a int)"),
        (&bob, "CREATE SCHEMA more"),
        (&bob, "DROP SCHEMA roots CASCADE"),
        (&bob, "ALTER SCHEMA roots OWNER TO bob"),
        (&bob, "SELECT * FROM roots.t"),
        (&eve, "CREATE TABLE bob.u (a int)"),
        (&eve, "CREATE VIEW bob.v AS SELECT 1"),
        (&eve, "CREATE SEQUENCE bob.q"),
        (&eve, "CREATE TYPE bob.y AS ENUM ('a')"),
        (&eve, "DROP SCHEMA bob CASCADE"),
        (&eve, "SELECT * FROM bob.mine"),
    ] {
        assert_eq!(failure(who.batch_execute(denied).await).0, "42501", "{denied}");
    }
    bob.batch_execute("GRANT SELECT ON mine TO eve").await.unwrap();
    assert_eq!(cell(&eve, "SELECT k FROM bob.mine").await, "1");
    root.batch_execute("GRANT INSERT ON ALL TABLES IN SCHEMA bob TO eve").await.unwrap();
    eve.batch_execute("INSERT INTO bob.mine VALUES (5)").await.unwrap();
    assert_eq!(failure(eve.batch_execute("INSERT INTO roots.t VALUES (5)").await).0, "42501");
    assert_eq!(failure(root.batch_execute("DROP USER bob").await).0, "2BP01");
    root.batch_execute("ALTER SCHEMA bob OWNER TO eve; CREATE TABLE bob.roots (a int)").await.unwrap();
    eve.batch_execute("DROP SCHEMA bob CASCADE").await.unwrap();
    assert_eq!(cell(&root, "SELECT count(*) FROM pg_namespace WHERE nspname = 'bob'").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_a_key_and_one_over_http_name_tables_of_schemas() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE SCHEMA s; CREATE TABLE s.t (v int); CREATE TABLE t (v int)").await.unwrap();
    for path in ["s", "s, public"] {
        let path = format!("SET search_path = {path}");
        for statement in [&*path, "SET tarn.idempotency_key = 'one'", "INSERT INTO t VALUES (1)"] {
            client.batch_execute(statement).await.unwrap();
        }
        assert_eq!(rows(&client, "SELECT count(*), (SELECT count(*) FROM public.t) FROM s.t").await, [["1", "0"]]);
    }
    client.batch_execute("RESET search_path").await.unwrap();
    for definition in
        ["CREATE SCHEMA r", "DROP SCHEMA s CASCADE", "ALTER SCHEMA s RENAME TO r", "COMMENT ON SCHEMA s IS 'x'"]
    {
        client.batch_execute("SET tarn.idempotency_key = 'two'").await.unwrap();
        assert_eq!(failure(client.batch_execute(definition).await).0, "0A000", "{definition}");
    }
    client.batch_execute("RESET tarn.idempotency_key").await.unwrap();

    let host = server.running.http.unwrap();
    let headers = format!("host: {host}\r\ncontent-type: application/json\r\n");
    for sql in ["INSERT INTO s.t VALUES (2)", "SET search_path = s; INSERT INTO t VALUES (3)"] {
        let (status, told) = asked(&server, &headers, &json!({ "sql": sql }).to_string()).await;
        assert_eq!(status, 200, "{told}");
    }
    assert_eq!(cell(&client, "SELECT sum(v) FROM s.t").await, "6");
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "0");
}
