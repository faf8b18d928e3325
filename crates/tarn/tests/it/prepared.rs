//! Prepared statements: described, bound, run many times, planned anew when a table changes, fetched in portions.

use bytes::BytesMut;
use futures::{StreamExt, TryStreamExt};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::harness::{Server, cell, failure, rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_know_their_parameters_and_columns() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (k bigint PRIMARY KEY, n numeric(10,2), u uuid, at timestamptz)")
        .await
        .unwrap();
    let cases: [(&str, &[Type], usize); 15] = [
        ("SELECT * FROM t WHERE k = $1", &[Type::INT8], 4),
        ("SELECT u FROM t WHERE at > $1 AND u = $2", &[Type::TIMESTAMPTZ, Type::UUID], 1),
        ("INSERT INTO t VALUES ($1, $2, $3, $4)", &[Type::INT8, Type::NUMERIC, Type::UUID, Type::TIMESTAMPTZ], 0),
        ("UPDATE t SET at = $1 WHERE k = $2", &[Type::TIMESTAMPTZ, Type::INT8], 0),
        ("DELETE FROM t WHERE k = $1", &[Type::INT8], 0),
        ("SELECT $1", &[Type::TEXT], 1),
        ("SELECT k FROM t ORDER BY k LIMIT $1 OFFSET $2", &[Type::INT8, Type::INT8], 1),
        ("SELECT k FROM t WHERE k = ANY($1) AND at = ANY ($2)", &[Type::INT8_ARRAY, Type::TIMESTAMPTZ_ARRAY], 1),
        ("SELECT * FROM unnest($1::int[]) AS u(x)", &[Type::INT4_ARRAY], 1),
        ("SELECT * FROM unnest($1::text[], $2::int[]) AS u(x, y)", &[Type::TEXT_ARRAY, Type::INT4_ARRAY], 2),
        ("SELECT k FROM t WHERE u = ANY($1) OR n = ANY($2)", &[Type::UUID_ARRAY, Type::NUMERIC_ARRAY], 1),
        ("SELECT k FROM t WHERE u = ANY($1::uuid[])", &[Type::UUID_ARRAY], 1),
        ("SELECT typname FROM pg_type WHERE oid = ANY($1::oid[])", &[Type::OID_ARRAY], 1),
        ("SELECT $1::uuid, $2::json", &[Type::UUID, Type::JSON], 2),
        (
            "INSERT INTO t VALUES ($1, $2, $3::uuid, $4) RETURNING u, k",
            &[Type::INT8, Type::NUMERIC, Type::UUID, Type::TIMESTAMPTZ],
            2,
        ),
    ];
    for (sql, parameters, n_columns) in cases {
        let statement = client.prepare(sql).await.unwrap();
        assert_eq!(statement.params(), parameters, "{sql}");
        assert_eq!(statement.columns().len(), n_columns, "{sql}");
    }
    let typed = client.prepare_typed("SELECT $1 AS x", &[Type::INT4]).await.unwrap();
    assert_eq!(typed.columns()[0].type_(), &Type::INT4);
    assert_eq!(client.query_one(&typed, &[&5i32]).await.unwrap().get::<_, i32>(0), 5);
    let typed = client.prepare_typed("SELECT $1 AS x", &[Type::INT4_ARRAY]).await.unwrap();
    assert_eq!(typed.columns()[0].type_(), &Type::INT4_ARRAY);
    let (given, none) = (vec![Some(1_i32), None], None::<Vec<i32>>);
    assert_eq!(client.query_one(&typed, &[&given]).await.unwrap().get::<_, Vec<Option<i32>>>(0), given);
    assert_eq!(client.query_one(&typed, &[&none]).await.unwrap().get::<_, Option<Vec<i32>>>(0), none);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrays_of_every_type_are_bound_and_answered() {
    let server = Server::start().await;
    let client = server.client().await;
    let columns = "b boolean, s smallint, i int, l bigint, r real, d double precision, n numeric(10,2), t text, y bytea, \
        da date, ti time, ts timestamp, tz timestamptz, u uuid";
    client.batch_execute(&format!("CREATE TABLE t (k int PRIMARY KEY, {columns})")).await.unwrap();
    let values = "true, 2, 3, 4, 1.5, 2.5, 7.25, 'x, \"y', '\\x01', '2026-11-01', '08:09', '2026-11-01 08:09', '2026-11-01 08:09Z', \
        '12345678-1234-5678-1234-567812345678'";
    client.batch_execute(&format!("INSERT INTO t VALUES (1, {values}); INSERT INTO t (k) VALUES (2)")).await.unwrap();
    for column in ["b", "s", "i", "l", "r", "d", "n", "t", "y", "da", "ti", "ts", "tz", "u"] {
        // What the server writes it reads: in text, and in the binary form with its type.
        let sql = format!("SELECT array_agg({column} ORDER BY k) FROM t");
        let text = cell(&client, &sql).await;
        let found = format!("SELECT k FROM t WHERE {column} = ANY('{}')", text.replace('\'', "''"));
        // A boolean is not compared with texts.
        if column != "b" {
            assert_eq!(rows(&client, &found).await, [["1"]], "{column}: {text}");
        }
        // Of a uuid it is told as an array of texts.
        if column == "u" {
            continue;
        }
        let statement = client.prepare(&format!("SELECT k FROM t WHERE {column} = ANY($1)")).await.unwrap();
        let array = client.query_one(&sql, &[]).await.unwrap();
        let bytes = SentArray(array.get::<_, ReceivedArray>(0).0);
        let found = client.query(&statement, &[&bytes]).await.unwrap_or_else(|error| panic!("{column}: {error:?}"));
        assert_eq!(found.len(), 1, "{column}");
    }
    let ids = vec![uuid::Uuid::from_u128(7), uuid::Uuid::from_u128(8)];
    let given =
        client.query_one("SELECT $1::uuid[], count(*) FROM unnest($1::uuid[]) AS u(id)", &[&ids]).await.unwrap();
    assert_eq!((given.get::<_, Vec<uuid::Uuid>>(0), given.get::<_, i64>(1)), (ids, 2));
    assert_eq!(failure(client.query("SELECT '{x}'::uuid[]", &[]).await).0, "22P02");
    let pairs = "SELECT x, y FROM unnest($1::text[], $2::int[]) AS u(x, y)";
    let pairs = client.query(pairs, &[&vec![Some("a"), None], &vec![1, 2]]).await.unwrap();
    let pairs: Vec<(Option<&str>, i32)> = pairs.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(pairs, [(Some("a"), 1), (None, 2)]);
    for (literal, shown) in [("{1,null}", "{1,NULL}"), ("{}", "{}"), (" { 1 , 2 } ", "{1,2}")] {
        assert_eq!(cell(&client, &format!("SELECT '{literal}'::int[]")).await, shown);
    }
    for (literal, want) in [("{1", "22P02"), ("{a}", "22P02"), ("{{1},{2,3}}", "22P02"), ("[0:1]={1,2}", "0A000")] {
        assert_eq!(failure(client.query(&format!("SELECT '{literal}'::int[]"), &[]).await).0, want, "{literal}");
    }
    let of_type = "SELECT typname FROM pg_type WHERE oid = ANY($1::oid[]) ORDER BY 1";
    let named = client.query(of_type, &[&vec![23_u32, 16]]).await.unwrap();
    assert_eq!(named.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["bool", "int4"]);
}

/// The bytes of an array of any type, as they came and as they are sent.
struct ReceivedArray(Vec<u8>);
#[derive(Debug)]
struct SentArray(Vec<u8>);

impl<'a> FromSql<'a> for ReceivedArray {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<ReceivedArray, Box<dyn std::error::Error + Sync + Send>> {
        Ok(ReceivedArray(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for SentArray {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_runs_many_times_and_survives_a_new_table() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    let select = client.prepare("SELECT v FROM t WHERE k = $1").await.unwrap();
    let scan = client.prepare("SELECT count(*) FROM t WHERE v <> $1").await.unwrap();
    let update = client.prepare("UPDATE t SET v = $2 WHERE k = $1").await.unwrap();
    let delete = client.prepare("DELETE FROM t WHERE k = $1").await.unwrap();
    for round in 0..2 {
        for k in 0..20i32 {
            assert_eq!(client.execute(&insert, &[&k, &format!("v{k}")]).await.unwrap(), 1, "round {round}");
            assert_eq!(client.query_one(&select, &[&k]).await.unwrap().get::<_, &str>(0), format!("v{k}"));
        }
        assert_eq!(client.query_one(&scan, &[&"v3"]).await.unwrap().get::<_, i64>(0), 19);
        assert_eq!(client.execute(&update, &[&7i32, &"seven"]).await.unwrap(), 1);
        assert_eq!(client.execute(&update, &[&700i32, &"seven"]).await.unwrap(), 0);
        assert_eq!(client.execute(&delete, &[&8i32]).await.unwrap(), 1);
        assert!(client.query_opt(&select, &[&8i32]).await.unwrap().is_none());
        assert!(client.query_opt(&select, &[&None::<i32>]).await.unwrap().is_none());
        client.batch_execute("DROP TABLE t; CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    }
    client.batch_execute("DROP TABLE t").await.unwrap();
    assert_eq!(failure(client.query(&select, &[&1i32]).await).0, "42P01");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn portals_are_fetched_in_portions() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t SELECT * FROM generate_series(1, 1000) AS s(value)",
        )
        .await
        .unwrap();
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT k FROM t ORDER BY k", &[]).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let part = transaction.query_portal(&portal, 300).await.unwrap();
        assert!(part.len() <= 300);
        if part.is_empty() {
            break;
        }
        seen.extend(part.iter().map(|row| row.get::<_, i32>(0)));
    }
    assert_eq!(seen, (1..=1000).collect::<Vec<_>>());
    transaction.commit().await.unwrap();

    let stream = client.query_raw("SELECT k FROM t", Vec::<i32>::new()).await.unwrap();
    let all: Vec<_> = stream.map_ok(|row| row.get::<_, i32>(0)).collect::<Vec<_>>().await;
    assert_eq!(all.len(), 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_prepare_execute_deallocate() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 2)").await.unwrap();
    client.batch_execute("PREPARE p AS SELECT v FROM t WHERE k = $1").await.unwrap();
    assert_eq!(cell(&client, "EXECUTE p(1)").await, "2");
    assert!(rows(&client, "EXECUTE p(2)").await.is_empty());
    assert_eq!(failure(client.batch_execute("PREPARE p AS SELECT 1").await).0, "42P05");
    client.batch_execute("DEALLOCATE p").await.unwrap();
    assert_eq!(failure(client.batch_execute("EXECUTE p(1)").await).0, "26000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyed_statements_need_no_plan() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int)").await.unwrap();
    let before = server.running.node.metrics().keyed_statements.get();
    client.batch_execute("INSERT INTO t VALUES (1, 2); SELECT v FROM t WHERE k = 1; UPDATE t SET v = 3 WHERE k = 1; DELETE FROM t WHERE k = 1").await.unwrap();
    assert_eq!(server.running.node.metrics().keyed_statements.get() - before, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_arrays_and_uuids_are_bound() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k bigint PRIMARY KEY, u uuid, v text DEFAULT 'none')").await.unwrap();
    let id = uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let insert =
        client.prepare("INSERT INTO t (k, u) VALUES ($1, $2::uuid) RETURNING *, k * 2 AS twice").await.unwrap();
    for k in 1..=9_i64 {
        let row = client.query_one(&insert, &[&k, &id]).await.unwrap();
        assert_eq!((row.get::<_, i64>("k"), row.get::<_, uuid::Uuid>("u")), (k, id));
        assert_eq!((row.get::<_, &str>("v"), row.get::<_, i64>("twice")), ("none", k * 2));
    }
    let page = client.query("SELECT k FROM t ORDER BY k LIMIT $1 OFFSET $2", &[&2_i64, &3_i64]).await.unwrap();
    assert_eq!(page.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [4, 5]);
    let chosen = client.query("SELECT k FROM t WHERE k = ANY($1) ORDER BY 1", &[&vec![7_i64, 2, 99]]).await.unwrap();
    assert_eq!(chosen.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [2, 7]);
    let none = client.query("SELECT k FROM t WHERE k = ANY($1)", &[&Vec::<i64>::new()]).await.unwrap();
    assert!(none.is_empty());
    assert_eq!(client.query("SELECT k FROM t WHERE u = $1::uuid", &[&id]).await.unwrap().len(), 9);
    client.batch_execute("PREPARE p AS SELECT count(*) FROM t WHERE k = ANY($1)").await.unwrap();
    assert_eq!(rows(&client, "EXECUTE p ('{1,NULL,3}')").await, [["2"]]);
    assert_eq!(rows(&client, "EXECUTE p (ARRAY[1, 2 + 1])").await, [["2"]]);
    client.batch_execute("PREPARE q (bigint, text) AS SELECT k, v || $2 FROM t WHERE k = $1").await.unwrap();
    assert_eq!(rows(&client, "EXECUTE q (3 * 2, upper('x') || '!')").await, [["6", "noneX!"]]);
    assert_eq!(failure(client.batch_execute("EXECUTE q (1 / 0, 'x')").await).0, "22012");
    assert_eq!(failure(client.batch_execute("EXECUTE q ((SELECT 1), 'x')").await).0, "0A000");
    // What is returned is computed before it is written, and held inside BEGIN.
    assert_eq!(failure(client.query("INSERT INTO t (k) VALUES (10) RETURNING 1 / (k - 10)", &[]).await).0, "22012");
    // Rows of many batches are one write: those before the one that is refused are not there either.
    let many =
        "INSERT INTO t (k) SELECT CASE WHEN i < 30000 THEN i END FROM generate_series(100, 30000) AS s(i) RETURNING k";
    assert_eq!(failure(client.query(many, &[]).await).0, "23502");
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "9");
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(rows(&client, "INSERT INTO t (k) VALUES (11), (12) RETURNING k").await, [["11"], ["12"]]);
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(
        rows(&client, "INSERT INTO t (k) VALUES (1) ON CONFLICT DO NOTHING RETURNING k").await,
        Vec::<Vec<String>>::new()
    );
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "9");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_are_waited_for_and_end_with_their_owner() {
    let server = Server::start().await;
    let (one, two) = (server.client().await, server.client().await);
    assert_eq!(cell(&one, "SELECT pg_try_advisory_lock(7)").await, "t");
    assert_eq!(cell(&two, "SELECT pg_try_advisory_lock(7)").await, "f");
    assert_eq!(cell(&two, "SELECT pg_try_advisory_xact_lock(7, 7)").await, "t");
    // That was of a transaction of its own, which has ended.
    assert_eq!(cell(&one, "SELECT pg_try_advisory_xact_lock(7, 7)").await, "t");
    one.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(8)").await.unwrap();
    assert_eq!(cell(&two, "SELECT pg_try_advisory_lock_shared(8)").await, "f");
    one.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cell(&two, "SELECT pg_try_advisory_lock_shared(8)").await, "t");
    two.batch_execute("SET statement_timeout = '50ms'").await.unwrap();
    assert_eq!(failure(two.batch_execute("SELECT pg_advisory_lock(7)").await).0, "57014");
    two.batch_execute("RESET statement_timeout").await.unwrap();
    let waits = async { two.batch_execute("SELECT pg_advisory_lock(7)").await.unwrap() };
    // It waits until the session that has it is gone.
    let ends = async {
        tokio::task::yield_now().await;
        drop(one);
    };
    tokio::join!(waits, ends);
    assert_eq!(cell(&two, "SELECT pg_advisory_unlock(7)").await, "t");
    assert_eq!(cell(&two, "SELECT pg_advisory_unlock(7)").await, "f");
}
