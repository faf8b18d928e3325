//! What may a statement say, and what can none of them do? Each test is named after what broke.

use std::future::Future;

use tarn_query::parser::CONNECTION_STACK_BYTES;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::harness::{Server, cell, failure, rows};

/// Runs with connections on threads like those of `tarn serve`.
fn served(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).thread_stack_size(CONNECTION_STACK_BYTES).enable_all().build().unwrap();
    runtime.block_on(test);
    runtime.shutdown_background();
}

async fn run(client: &Client, sql: &str) -> u64 {
    let mut changed = 0;
    for message in client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql:.200}: {error:?}")) {
        if let tokio_postgres::SimpleQueryMessage::CommandComplete(n) = message {
            changed = n;
        }
    }
    changed
}

async fn state(client: &Client, sql: &str) -> String {
    failure(client.simple_query(sql).await).0
}

/// The rows in order, their cells joined.
async fn sorted(client: &Client, sql: &str) -> Vec<String> {
    let mut sorted: Vec<String> = rows(client, sql).await.into_iter().map(|row| row.join("|")).collect();
    sorted.sort();
    sorted
}

#[test]
fn a_literal_of_a_delete_is_not_read_as_sql() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        run(&client, "CREATE TABLE dq (id int primary key, v text)").await;
        run(&client, r"INSERT INTO dq VALUES (1,'a''b'),(2,'a''''b'),(3,'x'),(4,'y'),(-2,'a\''b')").await;
        assert_eq!(run(&client, r"DELETE FROM dq WHERE v = 'x\'' OR true --'").await, 0);
        assert_eq!(run(&client, "DELETE FROM dq WHERE v = 'a''''b'").await, 1);
        assert_eq!(sorted(&client, "SELECT id FROM dq").await, ["-2", "1", "3", "4"]);
        assert_eq!(run(&client, r"DELETE FROM dq WHERE v = 'a\''b' AND id + 0 = - 2").await, 1);
        assert_eq!(run(&client, "DELETE FROM dq WHERE id + 0 = - -3").await, 1);
        assert_eq!(sorted(&client, "SELECT id FROM dq").await, ["1", "4"]);
        run(&client, r#"CREATE TABLE kk (id int primary key, "a""b" int)"#).await;
        run(&client, "INSERT INTO kk VALUES (1, 1), (2, 2)").await;
        assert_eq!(run(&client, r#"DELETE FROM kk WHERE "a""b" = 1"#).await, 1);
        assert_eq!(run(&client, r#"DELETE FROM kk AS "x""y" WHERE "x""y"."a""b" = 2"#).await, 1);
    });
}

#[test]
fn is_distinct_from_ends_where_it_ends() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        run(&client, "CREATE TABLE pr (id int primary key, b boolean)").await;
        run(&client, "INSERT INTO pr VALUES (1,true),(2,false),(3,NULL),(4,true)").await;
        assert_eq!(sorted(&client, "SELECT id FROM pr WHERE b IS DISTINCT FROM true AND id = 2").await, ["2"]);
        assert_eq!(run(&client, "UPDATE pr SET b = true WHERE b IS DISTINCT FROM false AND id + 0 = 4").await, 1);
        assert_eq!(run(&client, "DELETE FROM pr WHERE b IS DISTINCT FROM true AND id + 0 = 3").await, 1);
        assert_eq!(sorted(&client, "SELECT id FROM pr").await, ["1", "2", "4"]);
    });
}

#[test]
fn a_delete_with_a_limit_deletes_nothing() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        run(&client, "CREATE TABLE dl (k bigint primary key, v int)").await;
        run(&client, "INSERT INTO dl SELECT value, 1 FROM generate_series(1, 10) AS s(value)").await;
        for sql in [
            "DELETE FROM dl WHERE v = 1 LIMIT 1",
            "DELETE FROM dl WHERE k = 1 LIMIT 1",
            "DELETE FROM dl ORDER BY k LIMIT 2",
            "DELETE FROM dl LIMIT 1",
            "DELETE dl FROM dl WHERE v = 1",
            "UPDATE dl SET v = 2 LIMIT 1",
            "UPDATE dl SET v = 2 WHERE k = 1 ORDER BY k",
            "SELECT * FROM dl FOR UPDATE SKIP LOCKED",
            "SELECT * FROM dl TABLESAMPLE SYSTEM (1)",
            "SELECT * FROM (SELECT 1 AS a INTO other) AS x",
        ] {
            let state = state(&client, sql).await;
            assert!(state == "0A000" || state == "42601", "{sql}: {state}");
        }
        assert_eq!(cell(&client, "SELECT count(*) FROM dl WHERE v = 1").await, "10");
        assert_eq!(sorted(&client, "SELECT k FROM dl ORDER BY k FETCH FIRST 2 ROWS ONLY").await, ["1", "2"]);
    });
}

#[test]
fn a_column_with_pg_in_its_name_keeps_subqueries() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        run(&client, "CREATE TABLE photo (id int primary key, jpg_url text)").await;
        run(&client, "CREATE TABLE vote (id int primary key, photo int, stars int)").await;
        run(&client, "INSERT INTO photo VALUES (1, 'a'), (2, 'b')").await;
        run(&client, "INSERT INTO vote VALUES (1, 1, 5), (2, 2, 4)").await;
        let best =
            "SELECT p.id, p.jpg_url, (SELECT max(v.stars) FROM vote v WHERE v.photo = p.id) AS best FROM photo p";
        assert_eq!(sorted(&client, best).await, ["1|a|5", "2|b|4"]);
        let beside =
            "SELECT p.id, current_schema(), (SELECT max(v.stars) FROM vote v WHERE v.photo = p.id) FROM photo p";
        assert_eq!(sorted(&client, beside).await, ["1|public|5", "2|public|4"]);
        assert!(client.simple_query("SELECT (SELECT stars FROM vote) AS s, 'pg_' AS x").await.is_err());
        let one = "SELECT (SELECT stars FROM vote WHERE id = $1), 'pg_' AS x";
        let statement = client.prepare_typed(one, &[Type::INT4]).await.unwrap();
        assert_eq!(client.query_one(&statement, &[&2_i32]).await.unwrap().get::<_, i32>(0), 4);
    });
}

#[test]
fn operators_before_a_minus_are_operators() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        assert_eq!(cell(&client, "SELECT 1 WHERE 1>-1 AND 1<>-1 AND 1>=-1 AND 10%-3=1").await, "1");
        assert_eq!(cell(&client, "SELECT 'a'||-1").await, "a-1");
    });
}

#[test]
fn columns_may_share_a_name() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        run(&client, "CREATE TABLE t (id int primary key, a int, b text)").await;
        run(&client, "INSERT INTO t VALUES (1, 10, 'x')").await;
        for (sql, names, values) in [
            ("SELECT a, a::text FROM t", ["a", "a"], "10|10"),
            ("SELECT a AS x, id AS x FROM t", ["x", "x"], "10|1"),
            ("SELECT a, a FROM t WHERE id = 1", ["a", "a"], "10|10"),
            ("SELECT a, a + 0 AS a FROM t ORDER BY id", ["a", "a"], "10|10"),
            ("SELECT x.* FROM (SELECT id, id::text FROM t) x", ["id", "id"], "1|1"),
            ("SELECT a, a FROM t UNION ALL SELECT a, id FROM t LIMIT 0", ["a", "a"], ""),
        ] {
            let statement = client.prepare(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            let told: Vec<&str> = statement.columns().iter().map(|column| column.name()).collect();
            assert_eq!(told, names, "{sql}");
            assert_eq!(sorted(&client, sql).await.join(","), values, "{sql}");
        }
        assert_eq!(run(&client, "INSERT INTO t (id, a) SELECT a + 20, a + 20::bigint FROM t").await, 1);
        assert_eq!(sorted(&client, "SELECT id, a FROM t").await, ["1|10", "30|30"]);
        assert_eq!(sorted(&client, "SELECT *, a FROM t WHERE id = 1").await, ["1|10|x|10"]);
    });
}

#[test]
fn quoted_names_of_prepared_statements_keep_their_case() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        run(&client, r#"PREPARE "Foo" AS SELECT 7"#).await;
        assert_eq!(cell(&client, r#"EXECUTE "Foo""#).await, "7");
        assert!(cell(&client, "SELECT -2^2").await.starts_with('4'));
    });
}

fn joined(part: impl Fn(usize) -> String, with: &str, n: usize) -> String {
    (0..n).map(part).collect::<Vec<_>>().join(with)
}

#[test]
fn thousands_of_conditions_are_answered() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        // A minute is for ever: then this fails, and does not hang.
        run(&client, "SET statement_timeout = '60s'").await;
        run(&client, "CREATE TABLE t (id bigint primary key, a bigint)").await;
        run(&client, &format!("INSERT INTO t VALUES {}", joined(|i| format!("({i}, {i})"), ", ", 5_000))).await;
        assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "5000");
        let either = joined(|i| format!("a = {i}"), " OR ", 2_000);
        let all = joined(|i| format!("a <> {i}"), " AND ", 500);
        assert_eq!(cell(&client, &format!("SELECT count(*) FROM t WHERE {either}")).await, "2000");
        assert_eq!(cell(&client, &format!("SELECT count(*) FROM t WHERE {all}")).await, "4500");
        let keyed = format!("SELECT a FROM t WHERE {}", joined(|_| "id = 7".to_owned(), " AND ", 500));
        assert_eq!(sorted(&client, &keyed).await, ["7"]);
        let statement = client.prepare(&format!("SELECT count(*) FROM t WHERE {either} OR a = $1")).await.unwrap();
        assert_eq!(client.query_one(&statement, &[&4_999_i64]).await.unwrap().get::<_, i64>(0), 2_001);
        assert_eq!(run(&client, &format!("UPDATE t SET a = a + 0 WHERE {either}")).await, 2_000);
        assert_eq!(run(&client, &format!("DELETE FROM t WHERE {either}")).await, 2_000);
        assert_eq!(run(&client, &format!("DELETE FROM t WHERE {all} AND id < 2001")).await, 1);
        let unions = joined(|i| format!("SELECT {i} AS n"), " UNION ALL ", 1_000);
        assert_eq!(cell(&client, &format!("SELECT count(*) FROM ({unions}) u")).await, "1000");
        let list = joined(|i| i.to_string(), ", ", 20_000);
        assert_eq!(cell(&client, &format!("SELECT count(*) FROM t WHERE a IN ({list})")).await, "2999");
    });
}

#[test]
fn nested_calls_are_planned() {
    served(async {
        let server = Server::start().await;
        let client = server.client().await;
        run(&client, "SET statement_timeout = '60s'").await;
        run(&client, "CREATE TABLE t (id int primary key, a int)").await;
        run(&client, "INSERT INTO t VALUES (1, -5)").await;
        let nested = |call: &str, inside: &str, n: usize| format!("{}{inside}{}", call.repeat(n), ")".repeat(n));
        assert_eq!(cell(&client, &format!("SELECT {} FROM t", nested("abs(", "a", 60))).await, "5");
        let replaced = format!("{}'a'{}", "replace(".repeat(20), ", 'b', 'c')".repeat(20));
        assert_eq!(cell(&client, &format!("SELECT {replaced} FROM t")).await, "a");
        // Each call by another name than the function's own doubled the work: 20 took nine seconds, 40 all memory there
        // is.
        let rows = format!("SELECT count(x) FROM (SELECT {}) AS s (x)", nested("row(", "1", 60));
        assert_eq!(cell(&client, &rows).await, "1");
        let reversed = format!("SELECT cardinality({})", nested("list_reverse(", "[1, 2]", 60));
        assert_eq!(cell(&client, &reversed).await, "2");
        assert_eq!(cell(&client, "SELECT char_length('abc')").await, "3");
    });
}

#[test]
fn no_depth_or_size_of_a_statement_ends_or_hangs_the_server() {
    served(async {
        let server = Server::start_with(|settings| settings.sql.statement_bytes = 1 << 20).await;
        let (client, other) = (server.client().await, server.client().await);
        run(&client, "CREATE TABLE t (a int primary key)").await;
        run(&client, "SET statement_timeout = '2s'").await;
        let around = |before: &str, inside: &str, after: &str, n: usize| {
            format!("{}{inside}{}", before.repeat(n), after.repeat(n))
        };
        for n in [60, 300, 4_000, 40_000] {
            for sql in [
                format!("SELECT {}", joined(|_| "1".into(), "+", n)),
                format!("SELECT {} FROM FROM", joined(|_| "1".into(), "+", n)),
                format!("SELECT {} FROM t", joined(|_| "a".into(), "||", n)),
                format!("SELECT a{} FROM t", "::int".repeat(n)),
                format!("SELECT a{} FROM t", " IS NULL".repeat(n)),
                format!("SELECT now(){}", " AT TIME ZONE 'UTC'".repeat(n)),
                format!("SELECT {}", around("(", "1", ")", n)),
                format!("SELECT {} FROM t", around("abs(", "a", ")", n)),
                format!("SELECT {} FROM t", around("coalesce(", "a", ", 1)", n)),
                format!("SELECT {}", around("1 IN (abs(", "1", "))", n)),
                around("SELECT (", "SELECT 1", ")", n),
                format!("DELETE FROM t WHERE {}", joined(|_| "a+1".into(), "-", n)),
                format!("PREPARE p AS SELECT {}", joined(|_| "1".into(), "*", n)),
                format!("COPY (SELECT {}) TO STDOUT", joined(|_| "1".into(), "+", n)),
                format!("UPDATE t SET a = {}", joined(|_| "1".into(), "+", n)),
                joined(|_| "SELECT 1".into(), " EXCEPT ", n),
                format!("WITH {} SELECT 1", joined(|i| format!("x{i} AS (SELECT 1 FROM t)"), ", ", n)),
                "((SELECT * FROM ".repeat(n),
                ";".repeat(n),
            ] {
                // An answer, or a refusal: the connection goes on.
                let _ = client.simple_query(&sql).await;
                assert!(!client.is_closed(), "{sql:.100}");
            }
            assert_eq!(cell(&other, "SELECT 1").await, "1");
            assert_eq!(sorted(&other, "SELECT a FROM t WHERE a = 1").await, Vec::<String>::new());
        }
        let doubled = (1..40).map(|i| format!("x{i} AS (SELECT x.* FROM x{} x, x{} y)", i - 1, i - 1));
        let doubled = doubled.collect::<Vec<_>>().join(", ");
        let doubled = format!("WITH x0 AS (SELECT 1 AS a), {doubled} SELECT * FROM x39");
        assert_eq!(state(&client, &doubled).await, "54000");
        assert_eq!(state(&client, &format!("SELECT '{}'", "x".repeat(2 << 20))).await, "54000");
        let deep = format!("SELECT {}", joined(|_| "1".into(), "+", 4_000));
        let (state, told) = failure(client.simple_query(&deep).await);
        assert!(state == "54000" && told.contains("256"), "{state} {told}");
    });
}
