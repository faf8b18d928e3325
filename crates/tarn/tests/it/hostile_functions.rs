//! Functions whose values are much longer than their arguments, and joins that nobody waits for.

use futures::future::{Either, select};
use tarn_sql::error::state;

use crate::harness::{Server, cell, failure, rows};

/// The most memory that this process had, in bytes; 0 where nobody tells.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or_default() << 10
}

/// Each took 2 to 7 GB.
const GROWING: [&str; 16] = [
    "SELECT length(repeat('x', 2000000000))",
    "SELECT max(length(repeat('x', 1000000 + value::int))) FROM generate_series(1, 20000) AS s(value)",
    "SELECT length(lpad('a', 2147483647, 'b'))",
    "SELECT max(length(lpad(v, 2000000, 'y'))) FROM generate_series(1, 8192) AS s(value), (VALUES ('a')) AS t(v)",
    "SELECT cardinality(range(0, 300000000))",
    "SELECT cardinality(range(0, 5000000000))",
    "SELECT count(*) FROM (SELECT generate_series(1, 2000000000)) AS s",
    "SELECT cardinality(array_resize([1], 2000000000))",
    "SELECT cardinality(array_repeat(1, 1000000000))",
    "SELECT length(regexp_replace(repeat('a', 50000), 'a', repeat('b', 50000), 'g'))",
    "SELECT length(replace(repeat('a', 100000), 'a', repeat('b', 100000)))",
    "SELECT sum(length(repeat(value::text, 30000))) FROM generate_series(1, 100000) AS s(value)",
    "SELECT max(cardinality(range(0, 20000 + value))) FROM generate_series(1, 2000000) AS s(value)",
    // The same value for all rows of a batch.
    "SELECT count(x) FROM (SELECT array_resize(ARRAY[]::int[], 1000000, CASE WHEN value > 0 THEN -1 END) AS x FROM generate_series(1, 20000) AS s(value)) AS t",
    "SELECT max(length(s)) FROM (SELECT string_agg(value::text, ',') OVER (ORDER BY value) AS s FROM generate_series(1, 20000) AS s(value)) AS t",
    "SELECT max(cardinality(s)) FROM (SELECT array_agg(value) OVER (ORDER BY value) AS s FROM generate_series(1, 20000) AS s(value)) AS t",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_functions_allocate_is_bounded() {
    let server = Server::start_with(|settings| settings.sql.query_memory_bytes = 64 << 20).await;
    let client = server.client().await;
    let before = peak_bytes();
    for sql in GROWING {
        let (code, text) = failure(client.simple_query(sql).await);
        assert!([state::PROGRAM_LIMIT, state::OUT_OF_MEMORY].contains(&code.as_str()), "{sql}: {code} {text}");
    }
    // A constant is written out for each row of a batch: 8,192 times a megabyte.
    let beside = "SELECT sum(length(v || value::text)) FROM (SELECT repeat('x', 1000000) AS v, value FROM generate_series(1, 3000) AS s(value)) AS q";
    assert_eq!(cell(&client, beside).await, "3000010893");
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown < 1 << 30, "{} MB more than before", grown >> 20);
    // What is not long is as it was.
    assert_eq!(cell(&client, "SELECT length(repeat('ab', 1000000))").await, "2000000");
    assert_eq!(cell(&client, "SELECT cardinality(range(0, 100000, 2))").await, "50000");
    assert_eq!(
        cell(&client, "SELECT sum(length(lpad(value::text, 100, 'é'))) FROM generate_series(1, 50000) AS s(value)")
            .await,
        "5000000"
    );
    assert_eq!(cell(&client, "SELECT regexp_replace('aaa', 'a', 'b\\1', 'g')").await, "bbb");
    // A plan is dropped on its own threads, it may be after its answer was read; nothing stays reserved.
    let held = || server.running.sql.query().memory_used_bytes();
    while held() > 0 {
        tokio::task::yield_now().await;
    }
    let constant = "SELECT sum(length(repeat('0123456789', 30000))) FROM generate_series(1, 1000) AS s(value)";
    assert_eq!(cell(&client, constant).await, "300000000");
    while held() > 0 {
        tokio::task::yield_now().await;
    }
    let large = "SELECT sum(length(repeat('x', value::int * 100))) FROM generate_series(1, 400) AS s(value)";
    assert_eq!(cell(&client, large).await, "8020000");
}

/// Windows whose rows or values took gigabytes. `t` has 200,000 rows of 500 bytes, `u` one text of a megabyte beside
/// 3,000 short ones.
const LARGE_WINDOWS: [&str; 9] = [
    "SELECT count(x) FROM (SELECT last_value(v) OVER () AS x FROM t) AS s",
    "SELECT count(x), max(v) FROM (SELECT sum(k) OVER (ORDER BY k % 2) AS x, v FROM t) AS s",
    "SELECT count(x) FROM (SELECT max(v) OVER () AS x FROM u) AS s",
    "SELECT count(x) FROM (SELECT max(v) FILTER (WHERE k = 1) OVER () AS x FROM u) AS s",
    "SELECT count(x) FROM (SELECT max(v) OVER (ORDER BY k) AS x FROM u) AS s",
    "SELECT count(x) FROM (SELECT first_value(v) OVER (ORDER BY k) AS x FROM u) AS s",
    "SELECT count(x) FROM (SELECT string_agg(v, ',') OVER (PARTITION BY k % 2) AS x FROM u) AS s",
    "SELECT count(x) FROM (SELECT first_value(CASE WHEN k > 0 THEN range(0, 1000000) END) OVER (ORDER BY k % 2) AS x FROM u) AS s",
    "SELECT count(x) FROM (SELECT max(CASE WHEN k > 0 THEN repeat('x', 60000) END) OVER (ORDER BY k % 2) AS x FROM t) AS s",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_windows_hold_is_bounded() {
    let server = Server::start_with(|settings| settings.sql.query_memory_bytes = 128 << 20).await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text); CREATE TABLE u (k int PRIMARY KEY, v text)")
        .await
        .unwrap();
    for first in (1..200_000).step_by(50_000) {
        let insert = format!(
            "INSERT INTO t SELECT value, repeat('x', 500) || value::text FROM generate_series({first}, {}) AS s(value)",
            first + 49_999
        );
        client.batch_execute(&insert).await.unwrap();
    }
    client
        .batch_execute("INSERT INTO u SELECT value, CASE WHEN value = 1 THEN repeat('z', 1000000) ELSE 'y' END FROM generate_series(1, 3001) AS s(value); DELIVER TABLE t")
        .await
        .unwrap();
    let before = peak_bytes();
    for sql in LARGE_WINDOWS {
        let (code, text) = failure(client.simple_query(sql).await);
        assert_eq!(code, state::OUT_OF_MEMORY, "{sql}: {text}");
    }
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown < 1 << 30, "{} MB more than before", grown >> 20);
    // Rows that are out of a window are in it no more, and what fits is right: a batch of these and their values is 17
    // MB, and a window has a share beside others that might spill.
    let streamed = "SELECT count(*), max(n), min(x) FROM (SELECT row_number() OVER (ORDER BY k) AS n, lag(v) OVER (ORDER BY k) AS x FROM t) AS s";
    assert_eq!(rows(&client, streamed).await, [["200000", "200000", &format!("{}1", "x".repeat(500))]]);
    let grouped = "SELECT count(*), max(m) FROM (SELECT max(v) FILTER (WHERE v < 'z') OVER (PARTITION BY k % 10) AS m FROM u WHERE k > 1) AS s";
    assert_eq!(rows(&client, grouped).await, [["3000", "y"]]);
    while server.running.sql.query().memory_used_bytes() > 0 {
        tokio::task::yield_now().await;
    }
}

/// Each is a text of gigabytes, of which no function makes more than a part that it may.
fn growing_together() -> Vec<String> {
    let each = |n: usize, part: fn(usize) -> String| (0..n).map(part).collect::<Vec<_>>().join(", ");
    let doubled = each(30, |n| format!("c{} AS (SELECT x || x AS x FROM c{n})", n + 1));
    vec![
        format!("WITH c0 AS (SELECT 'abcdefghij' AS x), {doubled} SELECT length(x) FROM c30"),
        format!(
            "WITH c0 AS (SELECT value::text AS x FROM generate_series(1, 9) AS s(value)), {doubled} SELECT max(length(x)) FROM c30"
        ),
        format!("SELECT length(concat({}))", each(300, |_| "repeat('x', 10000000)".to_owned())),
        format!("SELECT length(concat({}))", each(10_000, |_| "repeat('x', 200000)".to_owned())),
        format!("SELECT count(*) FROM (VALUES {}) AS s (x)", each(10_000, |_| "(repeat('x', 200000))".to_owned())),
        format!("SELECT {}", each(1_000, |n| format!("repeat('x', 2000000) AS c{n}"))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_constants_and_concatenations_allocate_is_bounded() {
    let server = Server::start_with(|settings| settings.sql.query_memory_bytes = 64 << 20).await;
    let client = server.client().await;
    let before = peak_bytes();
    for sql in growing_together() {
        let (code, text) = failure(client.simple_query(&sql).await);
        assert!([state::PROGRAM_LIMIT, state::OUT_OF_MEMORY].contains(&code.as_str()), "{sql:.80}: {code} {text}");
    }
    let grown = peak_bytes().saturating_sub(before);
    // Of all tests that run beside it.
    assert!(grown < 3 << 29, "{} MB more than before", grown >> 20);
    // What constants took is given back with their statement.
    for _ in 0..20 {
        assert_eq!(cell(&client, "SELECT length(repeat('ab', 2000000) || 'c')").await, "4000001");
    }
    assert_eq!(cell(&client, "SELECT 'a' || 1 || NULL").await, "∅");
    // What stands above is planned as with any operator: a union of what is never NULL, and grouping sets by name.
    client
        .simple_query("CREATE TABLE names (k text PRIMARY KEY); INSERT INTO names VALUES ('a'), ('b')")
        .await
        .unwrap();
    for (sql, want) in [
        ("SELECT k || 'x' FROM names UNION SELECT k || 'y' FROM names ORDER BY 1", vec!["ax", "ay", "bx", "by"]),
        (
            "SELECT s FROM (SELECT k || 'x' AS s FROM names UNION ALL SELECT k || 'x' FROM names) AS u GROUP BY s ORDER BY s",
            vec!["ax", "bx"],
        ),
        ("SELECT k || 'x', count(*) FROM names GROUP BY ROLLUP (k || 'x') ORDER BY 1", vec!["ax", "bx", "∅"]),
        ("SELECT k || 'x' FROM names GROUP BY GROUPING SETS ((k || 'x'), ()) ORDER BY 1", vec!["ax", "bx", "∅"]),
        ("SELECT (k || 'x') || k FROM names GROUP BY (k || 'x') || k ORDER BY (k || 'x') || k", vec!["axa", "bxb"]),
    ] {
        let first: Vec<String> = rows(&client, sql).await.into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(first, want, "{sql}");
    }
    assert_eq!(cell(&client, "SELECT max(v || '-' || v) FROM (VALUES ('a'), ('b'), (NULL)) AS s (v)").await, "b-b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_nobody_waits_for_stops() {
    for sql in [
        "SELECT count(*) FROM generate_series(1, 100000) AS a(x), generate_series(1, 100000) AS b(y) WHERE x < y",
        "SELECT count(*) FROM generate_series(1, 100000) AS a(x), generate_series(1, 100000) AS b(y) WHERE x + y < 0",
    ] {
        // A server of its own: what is held is held by this statement. A cancel that comes before its statement is
        // forgotten.
        let server = Server::start().await;
        let client = server.client().await;
        let held = || server.running.sql.query().memory_used_bytes();
        let cancel = client.cancel_token();
        let running = Box::pin(client.simple_query(sql));
        let started = Box::pin(async {
            while held() == 0 {
                tokio::task::yield_now().await
            }
        });
        let Either::Right(((), running)) = select(running, started).await else { panic!("{sql} ended") };
        cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
        assert_eq!(failure(running.await).0, state::QUERY_CANCELED, "{sql}");
        // As long as it runs it holds the side that it collected.
        while held() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// A view of one text keeps the page that it was read from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sort_of_few_rows_holds_those_rows_and_not_their_pages() {
    let server = Server::start_with(|settings| settings.sql.query_memory_bytes = 16 << 20).await;
    let client = server.client().await;
    client.simple_query("CREATE TABLE t (id int primary key, g int, v text)").await.unwrap();
    let text = (0..6).map(|n| format!("md5(concat(value::text, '{n}'))")).collect::<Vec<_>>().join(", ");
    for from in (0..120_000).step_by(20_000) {
        let rows = format!("SELECT value::int, (value % 400)::int, concat({text})");
        let insert = format!("INSERT INTO t {rows} FROM generate_series({from}, {}) AS s(value)", from + 19_999);
        client.simple_query(&insert).await.unwrap();
    }
    client.simple_query("CALL tarn.deliver('t')").await.unwrap();
    for fragments in ["on", "off"] {
        client.simple_query(&format!("SET tarn.cache.fragments = '{fragments}'")).await.unwrap();
        // 300 rows of 20 MB.
        assert_eq!(rows(&client, "SELECT id, v FROM t WHERE g = 7 ORDER BY v").await.len(), 300, "{fragments}");
    }
}

fn chain_of_joins(n: usize) -> String {
    let joins = (1..n).map(|n| format!(" JOIN w t{n} ON t{n}.id = t{}.id", n - 1)).collect::<String>();
    format!("EXPLAIN SELECT count(*) FROM w t0{joins}")
}

/// A thousand of three columns took 1.4 GB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_of_many_tables_are_counted() {
    let server = Server::start_with(|settings| settings.sql.query_memory_bytes = 64 << 20).await;
    let client = server.client().await;
    client.simple_query("CREATE TABLE w (id int PRIMARY KEY, a int, v text)").await.unwrap();
    assert!(!rows(&client, &chain_of_joins(100)).await.is_empty());
    let before = peak_bytes();
    for n in [400, 2_000] {
        let (code, text) = failure(client.simple_query(&chain_of_joins(n)).await);
        assert_eq!(code, state::PROGRAM_LIMIT, "{n}: {text}");
    }
    let windows: Vec<_> = (0..2_000).map(|n| format!("sum(a) OVER (ORDER BY a + {n})")).collect();
    let (code, text) = failure(client.simple_query(&format!("SELECT {} FROM w", windows.join(", "))).await);
    assert_eq!(code, state::PROGRAM_LIMIT, "{text}");
    // What is computed of a long constant is called after it.
    let long = "x".repeat(2 << 20);
    let (code, text) = failure(client.simple_query(&format!("EXPLAIN SELECT length('{long}' || v) FROM w")).await);
    assert_eq!(code, state::PROGRAM_LIMIT, "{text:.200}");
    let grown = peak_bytes().saturating_sub(before);
    // Of all tests that run beside it.
    assert!(grown < 512 << 20, "{} MB more than before", grown >> 20);
    // Two of these do not fit beside each other: what one took is given back.
    let one = chain_of_joins(180);
    for _ in 0..3 {
        assert!(!rows(&client, &one).await.is_empty());
        while server.running.sql.query().memory_used_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
