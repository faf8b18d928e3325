//! Answers that DataFusion could get wrong if we told it the wrong thing: order, duplicates, positions, names.

use std::sync::Arc;

use datafusion::common::{ParamValues, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use futures::TryStreamExt;
use tarn_query::{Options, parser};
use tarn_types::{DataType, Kind, Value};

use crate::fixture::{Fixture, column, row, schema, to_text};

#[tokio::test]
async fn a_top_k_keeps_duplicates_of_its_last_value() {
    let fixture = Fixture::new().await;
    // 40 rows with 4 different prices, in two files and recent rows.
    for a in 0..40 {
        fixture.table.put(row(a, 0, a % 4));
        if a == 15 || a == 30 {
            fixture.table.deliver().await;
        }
    }
    for (direction, first) in [("ASC", 0), ("DESC", 3)] {
        let rows = fixture.rows(&format!("SELECT price, a FROM t ORDER BY price {direction} LIMIT 12")).await;
        let price = |n: i64| format!("{:.2}", (n * 25 - 1000) as f64 / 100.0);
        assert_eq!(rows.iter().filter(|r| r.starts_with(&price(first))).count(), 10, "{rows:?}");
        let mut keys: Vec<&str> = rows.iter().filter_map(|r| r.split('|').nth(1)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 12, "no row twice: {rows:?}");
    }
    let rows = fixture.rows("SELECT a, n FROM t WHERE n <> 1 ORDER BY a LIMIT 5").await;
    assert_eq!(rows, ["0|0", "2|2", "4|0", "6|2", "8|0"]);
    let rows = fixture.rows("SELECT n AS a FROM t WHERE n > 0 ORDER BY a LIMIT 2").await;
    assert_eq!(rows, ["1", "1"]);
    let all = fixture.rows("SELECT a FROM t ORDER BY a").await;
    assert_eq!(all, (0..40).map(|a| a.to_string()).collect::<Vec<_>>());
    let rows = fixture.rows("SELECT a FROM t ORDER BY a DESC LIMIT 5").await;
    assert_eq!(rows, ["39", "38", "37", "36", "35"]);
    let rows = fixture.rows("SELECT n FROM t ORDER BY n NULLS FIRST, a LIMIT 11").await;
    assert_eq!(rows.iter().filter(|r| *r == "NULL").count(), 10, "{rows:?}");
}

#[tokio::test]
async fn one_statement_sees_one_position_of_a_table() {
    let fixture = Fixture::new().await;
    (0..10).for_each(|a| fixture.table.put(row(a, 0, a)));
    let sql = "SELECT (SELECT count(*) FROM t) AS one, count(*) AS two FROM t AS x JOIN t AS y ON x.a = y.a";
    assert_eq!(fixture.one(sql).await, "10|10");
    let plan = fixture.session.plan(&fixture.session.parse("SELECT count(*) FROM t").unwrap()).await.unwrap();
    let count = || async {
        let batches = fixture.session.stream(plan.clone(), None).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
        to_text(&batches).remove(0)
    };
    assert_eq!(count().await, "10");
    // A plan that was made once reads the newest position each time it runs.
    fixture.table.put(row(77, 0, 1));
    assert_eq!(count().await, "11");
}

#[tokio::test]
async fn a_stream_keeps_its_position_while_others_write() {
    let fixture = Fixture::new().await;
    (0..20).for_each(|a| fixture.table.put(row(a, 0, a)));
    fixture.table.deliver().await;
    (0..5).for_each(|a| fixture.table.put(row(a, 0, a + 1)));
    let plan = fixture.session.plan(&fixture.session.parse("SELECT a FROM t").unwrap()).await.unwrap();
    let stream = fixture.session.stream(plan, None).await.unwrap();
    (0..20).for_each(|a| fixture.table.delete(&row(a, 0, 0)));
    fixture.table.deliver().await;
    fixture.table.put(row(500, 0, 0));
    let rows: usize = stream.try_collect::<Vec<_>>().await.unwrap().iter().map(|b| b.num_rows()).sum();
    assert_eq!(rows, 20);
}

#[tokio::test]
async fn parameters_are_bound_to_a_plan() {
    let fixture = Fixture::new().await;
    (0..10).for_each(|a| fixture.table.put(row(a, 1, a)));
    fixture.table.deliver().await;
    let plan =
        fixture.session.plan(&fixture.session.parse("SELECT a FROM t WHERE a > $1 AND b = $2").unwrap()).await.unwrap();
    let bound = ParamValues::from(vec![ScalarValue::Int64(Some(7)), ScalarValue::Int64(Some(1))]);
    let batches = fixture.session.stream(plan, Some(bound)).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    let mut rows = to_text(&batches);
    rows.sort();
    assert_eq!(rows, ["8", "9"]);
}

#[tokio::test]
async fn names_are_those_of_the_catalog() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.rows("SELECT tablet FROM tarn.tablets ORDER BY tablet").await, ["1", "2"]);
    let sql = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ('public', 'tarn') ORDER BY 1, 2";
    assert_eq!(fixture.rows(sql).await, ["public|t", "tarn|tablets"]);
    let columns = fixture
        .rows("SELECT column_name FROM information_schema.columns WHERE table_name = 't' ORDER BY ordinal_position")
        .await;
    assert_eq!(columns, ["a", "b", "n", "price", "name", "day"]);
    assert_eq!(fixture.one("SELECT count(*) FROM tarn.public.t").await, "0");
    assert!(fixture.session.collect("SELECT * FROM nothing").await.is_err());
    assert!(fixture.session.collect("SELECT __seqno FROM t").await.is_err());
}

#[tokio::test]
async fn nothing_writes_or_defines_through_the_engine() {
    let fixture = Fixture::new().await;
    for sql in [
        "CREATE EXTERNAL TABLE f STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO t VALUES (1, 1, 1, 1, 'x', NULL)",
        "COPY (SELECT 1) TO '/tmp/x.parquet'",
        "DROP TABLE t",
    ] {
        let error = match fixture.session.parse(sql) {
            Ok(statement) => fixture.session.plan(&statement).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), Kind::Invalid, "{sql}: {error}");
    }
}

#[tokio::test]
async fn errors_of_ours_come_out_as_they_went_in() {
    let fixture = Fixture::new().await;
    (0..10).for_each(|a| fixture.table.put(row(a, 0, a)));
    fixture.table.deliver().await;
    fixture.table.evict();
    fixture.set("tarn.access_path", "rows").await;
    let error = fixture.session.collect("SELECT count(*) FROM t").await.unwrap_err();
    assert!(matches!(&error, tarn_query::Error::AccessPath { path: "rows", .. }), "{error:?}");
    assert!(error.to_string().contains("SET tarn.access_path = 'auto'"), "{error}");
    // By key the row engine still answers.
    assert_eq!(fixture.one("SELECT n FROM t WHERE a = 5 AND b = 0").await, "5");
}

#[tokio::test]
async fn a_uuid_is_found_in_any_spelling_on_any_path() {
    let mut schema = schema();
    schema.columns[0] = column(1, "a", DataType::Uuid);
    schema.columns[0].nullable = false;
    let fixture = Fixture::with(schema).await;
    let uuid = |n: i64| Value::Uuid(format!("0a0b0c0d-0000-4000-8000-00000000000{n}"));
    for n in 0..9 {
        let mut row = row(0, 0, n);
        row[0] = uuid(n);
        fixture.table.put(row);
    }
    fixture.table.deliver().await;
    for path in ["auto", "lake", "rows"] {
        fixture.set("tarn.access_path", path).await;
        for condition in [
            "a = '0A0B0C0D-0000-4000-8000-000000000005' AND b = 0",
            "a = '0A0B0C0D-0000-4000-8000-000000000005'",
            "'0A0B0C0D-0000-4000-8000-000000000005' = a AND n > 0",
            "a IN ('0a0b0c0d-0000-4000-8000-000000000005', '0A0B0C0D-0000-4000-8000-00000000000F')",
            "a BETWEEN '0A0B0C0D-0000-4000-8000-000000000005' AND '0A0B0C0D-0000-4000-8000-000000000005'",
            "n IN (SELECT n FROM t WHERE a = '0A0B0C0D-0000-4000-8000-000000000005')",
        ] {
            assert_eq!(
                fixture.rows(&format!("SELECT n FROM t WHERE {condition}")).await,
                ["5"],
                "{condition} by {path}"
            );
        }
        assert!(fixture.rows("SELECT n FROM t WHERE a = 'no uuid' AND b = 0").await.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn a_time_is_found_in_any_spelling_on_any_path() {
    let mut schema = schema();
    schema.columns[0] = column(1, "a", DataType::TimestampTz);
    schema.columns[0].nullable = false;
    let fixture = Fixture::with(schema).await;
    for n in 0..9 {
        let mut row = row(0, 0, n);
        // 2026-11-01 00:00Z and each hour from there.
        row[0] = Value::Timestamp((1_793_491_200 + n * 3600) * 1_000_000);
        fixture.table.put(row);
    }
    fixture.table.deliver().await;
    for path in ["auto", "lake", "rows"] {
        fixture.set("tarn.access_path", path).await;
        for condition in [
            "a = '2026-11-01 05:00Z' AND b = 0",
            "a = '2026-11-01 05:00Z'",
            "'2026-11-01 07:00+02' = a AND n > 0",
            "a IN ('2026-11-01 05:00', '2027-01-01')",
            "a BETWEEN '2026-11-01 05:00Z' AND '2026-11-01T05:00:00.000000Z'",
            "a > '2026-11-01 04:59Z' AND a < timestamptz '2026-11-01 05:01Z'",
            "a = CAST('2026-11-01 05:00Z' AS timestamptz)",
        ] {
            assert_eq!(
                fixture.rows(&format!("SELECT n FROM t WHERE {condition}")).await,
                ["5"],
                "{condition} by {path}"
            );
        }
    }
}

#[tokio::test]
async fn a_time_of_day_is_found_in_any_spelling_on_any_path() {
    let mut schema = schema();
    schema.columns[0] = column(1, "a", DataType::Time);
    schema.columns[0].nullable = false;
    let fixture = Fixture::with(schema).await;
    for n in 0..9 {
        let mut row = row(0, n, n);
        row[0] = Value::Time(n * 600_000_000);
        fixture.table.put(row);
    }
    fixture.table.deliver().await;
    for path in ["auto", "lake", "rows"] {
        fixture.set("tarn.access_path", path).await;
        for condition in [
            "a = time '00:50:00'",
            "a = '00:50'",
            "a IN (time '00:50', '23:00')",
            "a BETWEEN '00:50' AND time '00:50:00.5'",
            "a > time '00:40' AND a < '01:00:00'",
        ] {
            let rows = fixture.rows(&format!("SELECT b FROM t WHERE {condition}")).await;
            assert_eq!(rows, ["5"], "{condition} by {path}");
        }
    }
}

#[tokio::test]
async fn a_decimal_beside_a_float_is_a_float_on_any_path() {
    let mut schema = schema();
    schema.columns[0] = column(1, "a", DataType::Float64);
    schema.columns[0].nullable = false;
    let fixture = Fixture::with(schema).await;
    for (n, a) in (0..).zip([f64::NEG_INFINITY, -0.5, 0.1, 0.1 + f64::EPSILON, 1e300, f64::NAN, f64::INFINITY]) {
        let mut row = row(0, n, n);
        row[0] = Value::Float64(a);
        fixture.table.put(row);
    }
    fixture.table.deliver().await;
    for path in ["auto", "lake", "rows"] {
        fixture.set("tarn.access_path", path).await;
        for (condition, want) in [
            ("a = 0.1", vec!["2"]),
            ("a > 0.1 AND a < 0.5", vec!["3"]),
            ("a IN (-0.5, 0.1)", vec!["1", "2"]),
            ("a BETWEEN -0.6 AND 0.1", vec!["1", "2"]),
            ("a >= 100.5", vec!["4", "5", "6"]),
            ("a + 1 < 0.6", vec!["0", "1"]),
            ("abs(a) = 0.5", vec!["1"]),
        ] {
            let rows = fixture.rows(&format!("SELECT b FROM t WHERE {condition} ORDER BY b")).await;
            assert_eq!(rows, want, "{condition} by {path}");
        }
    }
}

#[tokio::test]
async fn bytes_are_found_as_postgres_writes_them_on_any_path() {
    let mut schema = schema();
    schema.columns[0] = column(1, "a", DataType::Bytes);
    schema.columns[0].nullable = false;
    let fixture = Fixture::with(schema).await;
    for n in 0..9 {
        let mut row = row(0, 0, n);
        row[0] = Value::Bytes(vec![0, 0xff, n as u8]);
        fixture.table.put(row);
    }
    fixture.table.deliver().await;
    for path in ["auto", "lake", "rows"] {
        fixture.set("tarn.access_path", path).await;
        for condition in [
            r"a = '\x00ff05' AND b = 0",
            r"a = '\x00FF05'",
            r"'\000\377\005' = a AND n > 0",
            r"a IN ('\x00ff05', 'five')",
            r"a BETWEEN '\x00ff05' AND '\x00ff0500'",
            r"a = concat('\x00', 'ff05')::bytea",
            r"a::text = '\x00ff05'",
            r"a > '\x00ff04' AND a < '\x00ff06'",
            r"n IN (SELECT n FROM t WHERE a = '\x00ff05')",
        ] {
            let found = fixture.rows(&format!("SELECT n FROM t WHERE {condition}")).await;
            assert_eq!(found, ["5"], "{condition} by {path}");
        }
    }
    let error = fixture.session.collect(r"SELECT n FROM t WHERE a = '\xzz'").await.unwrap_err();
    assert!(error.to_string().contains("BYTEA"), "{error}");
}

#[tokio::test]
async fn memory_is_bounded_and_a_sort_spills() {
    let sql = "SELECT max(v) FROM (SELECT value * 7919 % 100003 AS v FROM generate_series(1, 60000) AS s(value) ORDER BY v DESC LIMIT 50000)";
    let small = Options { memory_bytes: 400_000, target_partitions: 1, ..Options::default() };
    let fixture = Fixture::with_options(schema(), small.clone()).await;
    let error = fixture.session.collect(sql).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");

    let dir = tempfile::tempdir().unwrap();
    let spilling = Options { memory_bytes: 4_000_000, spill_dir: Some(dir.path().to_owned()), ..small };
    let fixture = Fixture::with_options(schema(), spilling).await;
    assert_eq!(fixture.one(sql).await, "100002");
    assert_eq!(fixture.engine.memory_used_bytes(), 0);
}

#[tokio::test]
async fn small_batches_are_not_counted_as_large_as_what_they_were_cut_from() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memory_bytes: 8 << 20, target_partitions: 2, ..Options::default() };
    let spilling = Options { spill_dir: Some(dir.path().to_owned()), ..options.clone() };
    let (fixture, keeping) =
        (Fixture::with_options(schema(), spilling).await, Fixture::with_options(schema(), options).await);
    for n in 0..2_000 {
        fixture.table.put(row(n, 0, n));
        keeping.table.put(row(n, 0, n));
    }
    for rows in ["16", "100", "8192"] {
        fixture.set("datafusion.execution.batch_size", rows).await;
        keeping.set("datafusion.execution.batch_size", rows).await;
        for (sql, want) in [
            ("SELECT count(*) FROM t x JOIN t y ON x.a < y.a AND y.a < 3", "3"),
            ("SELECT count(*) FROM t x JOIN (SELECT * FROM t WHERE a < 3) y ON x.a <> y.a OR x.name <> y.name", "5997"),
            ("SELECT count(*) FROM t x, (SELECT * FROM t WHERE a < 3) y", "6000"),
            ("SELECT count(*) FROM (SELECT a, name, max(n) FROM t GROUP BY 1, 2) x, (VALUES (1), (2)) y", "4000"),
            ("SELECT sum(n) FROM (SELECT * FROM t ORDER BY name, a LIMIT 1900 OFFSET 1899) x", "152058"),
            ("SELECT count(*) FROM (SELECT name, rank() OVER (PARTITION BY b ORDER BY name) FROM t) x", "2000"),
            ("SELECT count(*) FROM t x FULL JOIN t y ON x.a = y.a AND x.name = y.name", "2400"),
        ] {
            assert_eq!(fixture.one(sql).await, want, "{sql} in batches of {rows}");
        }
        // What is really kept is counted.
        let long = "WITH l AS (SELECT a, repeat(name, 1000) AS r FROM t WHERE name IS NOT NULL) \
                    SELECT count(*) FROM l x JOIN l y ON x.a <> y.a AND x.r <> y.r";
        let error = keeping.session.collect(long).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "in batches of {rows}: {error}");
    }
    assert_eq!((fixture.engine.memory_used_bytes(), keeping.engine.memory_used_bytes()), (0, 0));
}

/// How deep the conditions of a plan's filters are.
fn deepest_condition(plan: &Arc<dyn ExecutionPlan>) -> usize {
    fn depth(expr: &Arc<dyn PhysicalExpr>) -> usize {
        1 + expr.children().into_iter().map(depth).max().unwrap_or(0)
    }
    let here = plan.downcast_ref::<FilterExec>().map_or(0, |filter| depth(filter.predicate()));
    plan.children().into_iter().map(deepest_condition).fold(here, usize::max)
}

#[test]
fn conditions_of_hundreds_of_terms_are_not_hundreds_of_levels_deep() {
    // As much as the threads that plan have.
    let planning = std::thread::Builder::new().stack_size(parser::STACK_BYTES).spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(conditions_of_hundreds_of_terms());
    });
    planning.unwrap().join().unwrap();
}

async fn conditions_of_hundreds_of_terms() {
    let fixture = Fixture::new().await;
    for n in 0..20 {
        fixture.table.put(row(n, 0, n));
        if n == 10 {
            fixture.table.deliver().await;
        }
    }
    let joined = |term: &dyn Fn(i64) -> String, word: &str| (0..400).map(term).collect::<Vec<_>>().join(word);
    for (condition, want) in [
        (joined(&|n| format!("n + {n} <> b"), " AND "), "16"),
        (joined(&|n| format!("n + {n} = b + 5"), " OR "), "5"),
        (joined(&|n| format!("n <> {n} + 10"), " AND "), "9"),
        (joined(&|n| format!("(n = {n} AND a = {})", n + n % 2), " OR "), "9"),
        (joined(&|n| format!("(n <> {n} OR a <> {})", n + n % 2), " AND "), "10"),
        (format!("NOT ({})", joined(&|n| format!("n + {n} = b"), " OR ")), "16"),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let about = &sql[..80];
        assert_eq!(fixture.one(&sql).await, want, "{about}");
        let plan = fixture.session.plan(&fixture.session.parse(&sql).unwrap()).await.unwrap();
        let (physical, _) = fixture.session.physical(&plan).await.unwrap();
        let deepest = deepest_condition(&physical);
        assert!(deepest < 40, "{about}: {deepest}");
    }
}

#[tokio::test]
async fn words_are_found_as_they_are_kept() {
    let fixture = Fixture::new().await;
    for (sql, answer) in [
        ("SELECT matches('Connection refused: 10.0.0.1', 'refused CONNECTION')", "true"),
        ("SELECT matches('Connection refused', 'connect')", "false"),
        ("SELECT matches(NULL, 'a')", "NULL"),
        ("SELECT matches('a', NULL)", "NULL"),
        ("SELECT matches('', ' - ')", "true"),
        ("SELECT tarn_tokens('GET /v1 get')", "[get, v1]"),
        ("SELECT tarn_tokens('')", "[]"),
        ("SELECT tarn_tokens(NULL)", "NULL"),
        (
            "SELECT count(*) FROM (VALUES (NULL, 'a'), ('b a', 'a'), ('b', 'a'), ('a', 'b')) v(x, y) WHERE matches(x, y)",
            "1",
        ),
        ("SELECT count(*) FROM (VALUES (NULL), ('b A'), ('a')) v(x) WHERE matches(x, 'a')", "2"),
        ("SELECT count(*) FROM (VALUES (NULL), ('b A'), ('a')) v(x) WHERE matches('a c', x)", "1"),
    ] {
        assert_eq!(fixture.one(sql).await, answer, "{sql}");
    }
}
