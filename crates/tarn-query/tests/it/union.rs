//! Law 3 and law 4 for reads: whatever was put, deleted, delivered, compacted and evicted, every path gives what the
//! model has.

use proptest::prelude::*;
use tarn_types::Value;

use crate::fixture::{Fixture, Row, row, row_text};

#[derive(Debug, Clone)]
enum UnionOp {
    Put(i64, i64, i64),
    Delete(i64, i64),
    Deliver,
    Compact,
    Evict,
}

fn step() -> impl Strategy<Value = UnionOp> {
    let key = || (0..6i64, 0..5i64);
    prop_oneof![
        12 => (key(), 0..60i64).prop_map(|((a, b), n)| UnionOp::Put(a, b, n)),
        4 => key().prop_map(|(a, b)| UnionOp::Delete(a, b)),
        3 => Just(UnionOp::Deliver),
        1 => Just(UnionOp::Compact),
        1 => Just(UnionOp::Evict),
    ]
}

fn int(row: &Row, column: usize) -> Option<i64> {
    match row[column] {
        Value::Int64(v) => Some(v),
        _ => None,
    }
}

fn decimal(row: &Row) -> i128 {
    match row[3] {
        Value::Decimal(v) => v,
        _ => panic!("price"),
    }
}

/// Every question once, on the path that is set, against the model.
async fn check(fixture: &Fixture, path: &str) {
    let schema = &fixture.table.schema;
    let truth = fixture.table.truth();
    let wanted = |keep: &dyn Fn(&Row) -> bool| {
        let mut rows: Vec<String> = truth.iter().filter(|row| keep(row)).map(|row| row_text(schema, row)).collect();
        rows.sort();
        rows
    };
    let context = |question: &str| format!("{question} by path {path}");

    assert_eq!(fixture.sorted("SELECT * FROM t").await, wanted(&|_| true), "{}", context("everything"));
    assert_eq!(fixture.one("SELECT count(*) FROM t").await, truth.len().to_string(), "{}", context("count"));

    let shown = |v: Option<i64>| v.map_or("NULL".to_owned(), |v| v.to_string());
    let n = || truth.iter().filter_map(|row| int(row, 2));
    let bounds = format!("{}|{}|{}", shown(n().min()), shown(n().max()), n().count());
    assert_eq!(fixture.one("SELECT min(n), max(n), count(n) FROM t").await, bounds, "{}", context("bounds"));
    let a = || truth.iter().filter_map(|row| int(row, 0));
    let bounds = format!("{}|{}", shown(a().min()), shown(a().max()));
    assert_eq!(fixture.one("SELECT min(a), max(a) FROM t").await, bounds, "{}", context("bounds of the key"));

    let filtered = wanted(&|row| int(row, 2).is_some_and(|n| (10..40).contains(&n)) && decimal(row) < 0);
    let sql = "SELECT * FROM t WHERE n >= 10 AND n < 40 AND price < 0";
    assert_eq!(fixture.sorted(sql).await, filtered, "{}", context("filter"));
    let nulls = wanted(&|row| row[4].is_null());
    assert_eq!(fixture.sorted("SELECT * FROM t WHERE name IS NULL").await, nulls, "{}", context("is null"));
    let named = wanted(&|row| matches!(&row[4], Value::Text(name) if name.as_str() > "name-020"));
    assert_eq!(fixture.sorted("SELECT * FROM t WHERE name > 'name-020'").await, named, "{}", context("text"));

    for key in [(0, 0), (3, 2), (5, 4)] {
        let one = wanted(&|row| (int(row, 0), int(row, 1)) == (Some(key.0), Some(key.1)));
        let sql = format!("SELECT * FROM t WHERE b = {} AND a = {}", key.1, key.0);
        assert_eq!(fixture.rows(&sql).await, one, "{}", context(&sql));
    }
    let range = wanted(&|row| int(row, 0) == Some(2));
    assert_eq!(fixture.sorted("SELECT * FROM t WHERE a = 2").await, range, "{}", context("one partition key"));

    for (sql, a, b) in [
        ("a IN (0, 2, 3) AND b IN (1, 2)", vec![0, 2, 3], 1..3),
        ("a IN (5, 1, 1, 4)", vec![1, 4, 5], 0..5),
        ("a = 2 AND b > 1 AND b <= 3", vec![2], 2..4),
        ("(a = 3 OR a = 4) AND b < 2", vec![3, 4], 0..2),
        ("a = 1 AND b BETWEEN 4 AND 2", vec![1], 0..0),
    ] {
        let some =
            wanted(&|row| int(row, 0).is_some_and(|n| a.contains(&n)) && int(row, 1).is_some_and(|n| b.contains(&n)));
        assert_eq!(fixture.sorted(&format!("SELECT * FROM t WHERE {sql}")).await, some, "{}", context(sql));
    }
    for (direction, sign) in [("ASC", 1), ("DESC", -1)] {
        let mut of_one: Vec<i64> = truth.iter().filter(|r| int(r, 0) == Some(2)).filter_map(|r| int(r, 1)).collect();
        of_one.sort_by_key(|b| b * sign);
        let first: Vec<String> = of_one.iter().take(2).map(|b| b.to_string()).collect();
        let sql = format!("SELECT b FROM t WHERE a = 2 ORDER BY b {direction} LIMIT 2");
        assert_eq!(fixture.rows(&sql).await, first, "{}", context(&sql));
    }

    let mut order: Vec<(i128, i64, i64)> =
        truth.iter().map(|row| (decimal(row), int(row, 0).unwrap_or(0), int(row, 1).unwrap_or(0))).collect();
    order.sort();
    let top: Vec<String> = order.iter().take(4).map(|(_, a, b)| format!("{a}|{b}")).collect();
    assert_eq!(fixture.rows("SELECT a, b FROM t ORDER BY price, a, b LIMIT 4").await, top, "{}", context("top 4"));
    let mut keys: Vec<(i64, i64)> = order.iter().map(|(_, a, b)| (*a, *b)).collect();
    keys.sort();
    let first: Vec<String> = keys.iter().skip(2).take(5).map(|(a, b)| format!("{a}|{b}")).collect();
    let sql = "SELECT a, b FROM t ORDER BY a, b LIMIT 5 OFFSET 2";
    assert_eq!(fixture.rows(sql).await, first, "{}", context("first 5 by key"));
    let last: Vec<String> = keys.iter().rev().take(3).map(|(a, b)| format!("{a}|{b}")).collect();
    assert_eq!(
        fixture.rows("SELECT a, b FROM t ORDER BY a DESC, b DESC LIMIT 3").await,
        last,
        "{}",
        context("last 3 by key")
    );
}

async fn run(steps: Vec<UnionOp>) {
    let fixture = Fixture::new().await;
    let table = &fixture.table;
    let mut all_hot = true;
    for step in steps {
        match step {
            UnionOp::Put(a, b, n) => table.put(row(a, b, n)),
            UnionOp::Delete(a, b) => table.delete(&row(a, b, 0)),
            UnionOp::Deliver => table.deliver().await,
            UnionOp::Compact => table.compact().await,
            UnionOp::Evict => {
                table.evict();
                all_hot = false;
            }
        }
    }
    for path in ["auto", "lake"] {
        fixture.set("tarn.access_path", path).await;
        check(&fixture, path).await;
    }
    if all_hot {
        fixture.set("tarn.access_path", "rows").await;
        check(&fixture, "rows").await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_path_gives_what_the_model_has(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}

#[tokio::test]
async fn as_of_reads_the_lake_alone_at_a_version() {
    let fixture = Fixture::new().await;
    let table = &fixture.table;
    (0..10).for_each(|a| table.put(row(a, 0, a)));
    table.deliver().await;
    (0..3).for_each(|a| table.delete(&row(a, 0, 0)));
    table.deliver().await;
    table.put(row(50, 0, 1));

    assert_eq!(fixture.one("SELECT count(*) FROM t").await, "8");
    fixture.set("tarn.as_of_version", "1").await;
    assert_eq!(fixture.one("SELECT count(*), max(a) FROM t").await, "10|9");
    assert_eq!(fixture.one("SELECT n FROM t WHERE a = 2 AND b = 0").await, "2");
    fixture.set("tarn.as_of_version", "2").await;
    assert_eq!(fixture.one("SELECT count(*), min(a) FROM t").await, "7|3");
    fixture.set("tarn.as_of_version", "latest").await;
    assert_eq!(fixture.one("SELECT count(*) FROM t").await, "8");
    fixture.set("tarn.as_of_time", "2030-01-01 00:00:00Z").await;
    assert_eq!(fixture.one("SELECT count(*) FROM t").await, "7");
    fixture.set("tarn.as_of_version", "99").await;
    let error = fixture.session.collect("SELECT count(*) FROM t").await.unwrap_err();
    assert!(error.to_string().contains("99"), "{error}");
}

#[tokio::test]
async fn an_empty_table_answers() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.one("SELECT count(*), max(n) FROM t").await, "0|NULL");
    assert!(fixture.rows("SELECT * FROM t ORDER BY a LIMIT 3").await.is_empty());
    // Everything delivered is deleted again: only dead rows are left.
    (0..9).for_each(|a| fixture.table.put(row(a, 0, a)));
    fixture.table.deliver().await;
    (0..9).for_each(|a| fixture.table.delete(&row(a, 0, a)));
    check(&fixture, "auto, hidden").await;
    fixture.table.deliver().await;
    check(&fixture, "auto, dead").await;
}

#[tokio::test]
async fn append_only_tables_are_a_bag_of_recent_and_delivered_rows() {
    let mut schema = crate::fixture::schema();
    schema.options.append_only = true;
    let fixture = Fixture::with(schema).await;
    (0..20).for_each(|a| fixture.table.put(row(a, 0, a)));
    fixture.table.deliver().await;
    (20..25).for_each(|a| fixture.table.put(row(a, 0, a)));
    assert_eq!(fixture.one("SELECT count(*), sum(a) FROM t").await, "25|300");
    assert_eq!(fixture.one("SELECT count(*) FROM t WHERE a = 3 AND b = 0").await, "1");
    fixture.set("tarn.access_path", "rows").await;
    let error = fixture.session.collect("SELECT * FROM t").await.unwrap_err().to_string();
    assert!(error.contains("append-only") && error.contains("SET tarn.access_path"), "{error}");
}
