//! Columns of arrays: they go in and come out in every form, by statements and COPY, and stay what they are through
//! restarts, deliveries, compactions and evictions.

use bytes::Bytes;
use chrono::{DateTime, NaiveDate, Utc};
use futures::{SinkExt, TryStreamExt};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use crate::harness::{Server, cell, failure, rows};

const CREATE: &str = "CREATE TABLE t (k int PRIMARY KEY, tags text[], n int[] NOT NULL DEFAULT '{}', f float8[], b boolean[], l bigint[], d date[], \
     at timestamptz[], u uuid[], y bytea[], v varchar(5)[], j jsonb[])";

/// What a client binds and gets back.
#[derive(Debug, Clone, PartialEq)]
struct Arrays {
    tags: Option<Vec<Option<String>>>,
    n: Vec<Option<i32>>,
    f: Vec<f64>,
    b: Vec<Option<bool>>,
    l: Vec<i64>,
    d: Vec<Option<NaiveDate>>,
    at: Vec<DateTime<Utc>>,
    u: Vec<Option<Uuid>>,
    y: Vec<Vec<u8>>,
    v: Option<Vec<String>>,
    j: Vec<Option<serde_json::Value>>,
}

/// One of each kind; of every third row some are NULL, or empty.
fn arrays(k: i32) -> Arrays {
    let day = NaiveDate::from_ymd_opt(2026, 11, 1).unwrap();
    Arrays {
        tags: (k % 3 != 0)
            .then(|| vec![Some(format!("tag {k}")), None, Some("a,\"b\"\\{c}".to_owned()), Some(String::new())]),
        n: vec![Some(k), None, Some(-k), Some(i32::MIN)],
        f: vec![f64::from(k) / 4.0, f64::NEG_INFINITY],
        b: if k % 3 == 1 { vec![] } else { vec![Some(true), None, Some(false)] },
        l: (0..i64::from(k % 7)).map(|n| n * 1_000_000_007).collect(),
        d: vec![Some(day), None],
        at: vec![day.and_hms_micro_opt(8, 0, 0, k as u32).unwrap().and_utc()],
        u: vec![Some(Uuid::from_u128(k as u128)), None],
        y: vec![vec![0, 255, k as u8], vec![]],
        v: Some(vec!["äöü".to_owned(), k.to_string()]),
        j: vec![Some(serde_json::json!({"k": [k, null]})), None],
    }
}

impl Arrays {
    fn of(row: &Row) -> Arrays {
        Arrays {
            tags: row.get("tags"),
            n: row.get("n"),
            f: row.get("f"),
            b: row.get("b"),
            l: row.get("l"),
            d: row.get("d"),
            at: row.get("at"),
            u: row.get("u"),
            y: row.get("y"),
            v: row.get("v"),
            j: row.get("j"),
        }
    }

    fn parameters<'a>(&'a self, k: &'a i32) -> Vec<&'a (dyn ToSql + Sync)> {
        vec![k, &self.tags, &self.n, &self.f, &self.b, &self.l, &self.d, &self.at, &self.u, &self.y, &self.v, &self.j]
    }
}

async fn check(client: &Client, n_rows: i32, when: &str) {
    let all = client.query("SELECT * FROM t ORDER BY k", &[]).await.unwrap();
    assert_eq!(all.len(), n_rows as usize, "{when}");
    for (k, row) in (1..).zip(&all) {
        assert_eq!(Arrays::of(row), arrays(k), "{when}, row {k}");
    }
    for k in [1, 2, 3, n_rows] {
        let one = client.query_one("SELECT * FROM t WHERE k = $1", &[&k]).await.unwrap();
        assert_eq!(Arrays::of(&one), arrays(k), "{when}, by its key {k}");
    }
    let found = |sql: &'static str| rows(client, sql);
    assert_eq!(found("SELECT k FROM t WHERE tags @> '{\"tag 7\"}'").await, [["7"]], "{when}");
    assert_eq!(found("SELECT k FROM t WHERE 'tag 8' = ANY (tags)").await, [["8"]], "{when}");
    assert_eq!(found("SELECT k FROM t WHERE n && ARRAY[5, -2] ORDER BY k").await, [["2"], ["5"]], "{when}");
    assert_eq!(found("SELECT k FROM t WHERE n = '{4,NULL,-4,-2147483648}'").await, [["4"]], "{when}");
    assert_eq!(found("SELECT k FROM t WHERE u[1] = '00000000-0000-0000-0000-000000000009'").await, [["9"]], "{when}");
    let n_null = (n_rows / 3).to_string();
    assert_eq!(cell(client, "SELECT count(*) FROM t WHERE tags IS NULL").await, n_null, "{when}");
    assert_eq!(cell(client, "SELECT count(*) - count(tags) FROM t").await, n_null, "{when}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrays_are_bound_and_survive_whatever_becomes_of_their_rows() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(CREATE).await.unwrap();
    let marks: Vec<String> = (1..=12).map(|n| format!("${n}")).collect();
    let insert = client.prepare(&format!("INSERT INTO t VALUES ({})", marks.join(", "))).await.unwrap();
    let types = [
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::INT4_ARRAY,
        Type::FLOAT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::INT8_ARRAY,
        Type::DATE_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::UUID_ARRAY,
        Type::BYTEA_ARRAY,
    ];
    assert_eq!(insert.params()[..10], types);
    for k in 1..=20 {
        client.execute(&insert, &arrays(k).parameters(&k)).await.unwrap();
    }
    check(&client, 20, "in the row engine").await;
    // A statement that is planned: its parameters are those of the columns.
    let planned = format!("INSERT INTO t VALUES ({}) RETURNING n", marks.join(", "));
    for k in 21..=30 {
        let row = client.query_one(&planned, &arrays(k).parameters(&k)).await.unwrap();
        assert_eq!(row.get::<_, Vec<Option<i32>>>(0), arrays(k).n);
    }
    check(&client, 30, "in the row engine").await;
    let server = server.restart().await;
    let client = server.client().await;
    check(&client, 30, "after a restart").await;
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    check(&client, 30, "delivered").await;
    client
        .batch_execute("UPDATE t SET n = n WHERE k < 9; DELIVER TABLE t; CALL tarn.compact('t'); EVICT TABLE t")
        .await
        .unwrap();
    check(&client, 30, "compacted and evicted").await;
    // A row of the lake is changed: what is not said stays.
    let changed = ["x".to_owned()];
    client.execute("UPDATE t SET tags = $1 WHERE k = $2", &[&changed.as_slice(), &7]).await.unwrap();
    let row = client.query_one("SELECT * FROM t WHERE k = 7", &[]).await.unwrap();
    let want = Arrays { tags: Some(vec![Some("x".to_owned())]), ..arrays(7) };
    assert_eq!(Arrays::of(&row), want);
    client.execute("UPDATE t SET tags = $1 WHERE k = $2", &[&arrays(7).tags, &7]).await.unwrap();
    let server = server.restart().await;
    check(&server.client().await, 30, "evicted, after a restart").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_beside_arrays_are_of_their_type() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, tags text[], n int[], u uuid[])").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1, '{a,b}', '{1,2}', '{00000000-0000-0000-0000-000000000001}'), (2, '{c}', '{3}', NULL)").await.unwrap();
    let id = Uuid::from_u128(1);
    let cases: [(&str, Type, &(dyn ToSql + Sync), i32); 9] = [
        ("tags @> $1", Type::TEXT_ARRAY, &["b"].as_slice(), 1),
        ("$1 <@ tags", Type::TEXT_ARRAY, &["c"].as_slice(), 2),
        ("tags && $1", Type::TEXT_ARRAY, &["c", "x"].as_slice(), 2),
        ("tags = $1", Type::TEXT_ARRAY, &["a", "b"].as_slice(), 1),
        ("n @> $1", Type::INT4_ARRAY, &[3].as_slice(), 2),
        ("n < $1", Type::INT4_ARRAY, &[2].as_slice(), 1),
        ("$1 = ANY (n)", Type::INT4, &3, 2),
        ("$1 = ANY (tags)", Type::TEXT, &"a", 1),
        ("$1 = ANY (u)", Type::UUID, &id, 1),
    ];
    for (condition, of, value, want) in cases {
        let asked = client.prepare(&format!("SELECT k FROM t WHERE {condition}")).await.unwrap();
        assert_eq!(asked.params(), [of], "{condition}");
        let found = client.query(&asked, &[value]).await.unwrap();
        assert_eq!(found.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [want], "{condition}");
    }
    client
        .execute("UPDATE t SET tags = array_append(tags, $1), n = n || $2 WHERE k = 1", &[&"z", &[9].as_slice()])
        .await
        .unwrap();
    assert_eq!(rows(&client, "SELECT tags, n FROM t WHERE k = 1").await, [["{a,b,z}", "{1,2,9}"]]);
    client.execute("UPDATE t SET tags[1] = $1::text WHERE k = 1", &[&"first"]).await.unwrap();
    assert_eq!(cell(&client, "SELECT tags FROM t WHERE k = 1").await, "{first,b,z}");
}

async fn copy_in(client: &Client, sql: &str, data: &[u8]) -> Result<u64, Error> {
    let sink = client.copy_in::<_, Bytes>(sql).await?;
    futures::pin_mut!(sink);
    for chunk in data.chunks(777) {
        sink.send(Bytes::copy_from_slice(chunk)).await?;
    }
    sink.finish().await
}

async fn copy_out(client: &Client, sql: &str) -> Vec<u8> {
    let chunks: Vec<Bytes> = client.copy_out(sql).await.unwrap().try_collect().await.unwrap();
    chunks.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_copied_out_is_copied_in_again() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(CREATE).await.unwrap();
    let marks: Vec<String> = (1..=12).map(|n| format!("${n}")).collect();
    let insert = client.prepare(&format!("INSERT INTO t VALUES ({})", marks.join(", "))).await.unwrap();
    for k in 1..=20 {
        client.execute(&insert, &arrays(k).parameters(&k)).await.unwrap();
    }
    for format in ["text", "csv", "binary", "arrow"] {
        let data =
            copy_out(&client, &format!("COPY (SELECT * FROM t ORDER BY k) TO STDOUT WITH (FORMAT {format})")).await;
        client.batch_execute("DELETE FROM t").await.unwrap();
        let n_rows = copy_in(&client, &format!("COPY t FROM STDIN WITH (FORMAT {format})"), &data).await;
        assert_eq!(n_rows.unwrap(), 20, "{format}");
        check(&client, 20, format).await;
    }
    for (line, state) in [
        ("30\t{a\t{}", "22P02"),
        ("30\t{a}\t{x}", "22P02"),
        ("30\t{a}\t\\N", "23502"),
        ("30\t{{a},{b}}\t{}", "0A000"),
        ("30\t{a}\t[0:1]={1,2}", "0A000"),
    ] {
        let refused = copy_in(&client, "COPY t (k, tags, n) FROM STDIN", line.as_bytes()).await;
        let (code, message) = failure(refused);
        assert_eq!(code, state, "{line}: {message}");
    }
    assert_eq!(failure(copy_in(&client, "COPY t (k, v) FROM STDIN", b"30\t{abcdef}").await).0, "22001");
    assert_eq!(copy_in(&client, "COPY t (k, v) FROM STDIN", b"30\t{abcde,\"f    \"}").await.unwrap(), 1);
    assert_eq!(rows(&client, "SELECT v, n FROM t WHERE k = 30").await, [["{abcde,\"f    \"}", "{}"]]);
}
