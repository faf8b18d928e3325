//! Does the plan say what it does, and does it do no more than it must?

use tarn_types::{DataType, Value};

use crate::fixture::{Fixture, column, row, schema};

async fn mixed() -> Fixture {
    let fixture = Fixture::new().await;
    (0..40).for_each(|a| fixture.table.put(row(a, 0, a)));
    fixture.table.deliver().await;
    (0..3).for_each(|a| fixture.table.delete(&row(a, 0, 0)));
    fixture.table.deliver().await;
    (29..31).chain(40..45).for_each(|a| fixture.table.put(row(a, 0, a)));
    fixture
}

#[tokio::test]
async fn the_lake_path_gives_its_counts() {
    let fixture = mixed().await;
    let plan = fixture.explain("SELECT * FROM t WHERE n > 20").await;
    for part in [
        "access_path=lake",
        "version=2",
        "files=1/1",
        "blocks=5/10",
        "recent_rows=7",
        "dead_rows=0",
        "hidden_rows=2",
        "delivered_rows=18",
    ] {
        assert!(plan.contains(part), "{part} in\n{plan}");
    }
    let plan = fixture.explain("SELECT * FROM t").await;
    for part in [
        "blocks=10/10",
        "dead_rows=3",
        "hidden_rows=2",
        "delivered_rows=35",
        "why=\"no equality on a: columns cost less than rows\"",
        "point: not every key column has a value; range: no equality on a; rows: only if tarn.access_path",
    ] {
        assert!(plan.contains(part), "{part} in\n{plan}");
    }
}

#[tokio::test]
async fn explain_statements_show_the_path_and_its_metrics() {
    let fixture = mixed().await;
    let text = fixture.rows("EXPLAIN SELECT * FROM t WHERE a = 1 AND b = 0").await.join("\n");
    assert!(text.contains("access_path=point") && text.contains("full key"), "{text}");
    let text = fixture.rows("EXPLAIN ANALYZE SELECT sum(n) FROM t WHERE n > 20").await.join("\n");
    for part in ["access_path=lake", "blocks_kept=5", "blocks_total=10", "delivered_rows=18", "recent_rows=7"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[tokio::test]
async fn each_path_says_why() {
    let fixture = mixed().await;
    let plan = fixture.explain("SELECT * FROM t WHERE a = 7").await;
    assert!(plan.contains("access_path=range") && plan.contains("one partition key"), "{plan}");
    fixture.set("tarn.access_path", "lake").await;
    let plan = fixture.explain("SELECT * FROM t WHERE a = 7 AND b = 0").await;
    assert!(
        plan.contains("access_path=lake")
            && plan.contains("forced by tarn.access_path")
            && plan.contains("blocks=1/10"),
        "{plan}"
    );
    fixture.set("tarn.access_path", "rows").await;
    let plan = fixture.explain("SELECT count(*) FROM t").await;
    assert!(plan.contains("access_path=rows") && plan.contains("forced by tarn.access_path"), "{plan}");
    fixture.set("tarn.access_path", "auto").await;
    fixture.table.evict();
    let plan = fixture.explain("SELECT * FROM t WHERE a = 7").await;
    assert!(plan.contains("access_path=lake") && plan.contains("rows were evicted"), "{plan}");
    let plan = fixture.explain("SELECT * FROM t WHERE a = 7 AND b = 0").await;
    assert!(plan.contains("access_path=point") && plan.contains("by its address"), "{plan}");
}

#[tokio::test]
async fn counts_and_bounds_come_from_metadata() {
    let fixture = mixed().await;
    // Dead rows 0–2 are the smallest of their block, so their bound is not exact: only the largest is.
    for sql in ["SELECT count(*) FROM t", "SELECT count(*), max(a) FROM t", "SELECT max(price), max(day) FROM t"] {
        let plan = fixture.explain(sql).await;
        assert!(!plan.contains("TarnScan") && plan.contains("PlaceholderRowExec"), "{sql}\n{plan}");
    }
    for sql in ["SELECT min(a) FROM t", "SELECT count(*) FROM t WHERE n > 3", "SELECT max(name) FROM t"] {
        let plan = fixture.explain(sql).await;
        assert!(plan.contains("TarnScan"), "{sql}\n{plan}");
    }
    assert_eq!(fixture.one("SELECT count(*), max(a), min(a) FROM t").await, "42|44|3");
}

#[tokio::test]
async fn filters_thresholds_and_orders_reach_the_files() {
    let fixture = mixed().await;
    let plan = fixture.explain("SELECT a FROM t WHERE price < 3 ORDER BY n LIMIT 2").await;
    let parquet = plan.lines().find(|line| line.contains("DataSourceExec")).unwrap();
    for part in ["predicate=price", "DynamicFilter", "sort_order_for_reorder=[n"] {
        assert!(parquet.contains(part), "{part} in\n{plan}");
    }
    // Only columns that are asked for leave the file scan; the filter's own column stays inside.
    let plan = fixture.explain("SELECT a, name FROM t WHERE n = 20").await;
    let parquet = plan.lines().find(|line| line.contains("DataSourceExec")).unwrap();
    assert!(parquet.contains("projection=[a, name]"), "{plan}");
    // Nothing filters twice: the one filter left is that of the recent rows.
    assert!(plan.contains("read=filter columns first"), "{plan}");
    assert_eq!(plan.matches("FilterExec").count(), 1, "{plan}");
    // A filter that leaves much is applied above.
    let plan = fixture.explain("SELECT * FROM t WHERE price < 30").await;
    assert!(plan.contains("read=all columns"), "{plan}");
    assert_eq!(plan.matches("FilterExec").count(), 2, "{plan}");
    fixture.set("datafusion.execution.parquet.pushdown_filters", "true").await;
    let plan = fixture.explain("SELECT * FROM t WHERE price < 30").await;
    assert_eq!(plan.matches("FilterExec").count(), 1, "{plan}");
}

#[tokio::test]
async fn times_prune_however_they_are_written() {
    let mut schema = schema();
    schema.columns.push(column(7, "at", DataType::Timestamp));
    schema.columns.push(column(8, "at_tz", DataType::TimestampTz));
    let fixture = Fixture::with(schema).await;
    let first = 1_700_000_000_000_000; // 2023-11-14 22:13:20
    for a in 0..40 {
        let at = Value::Timestamp(first + a * 86_400_000_000);
        fixture.table.put([row(a, 0, a), vec![at.clone(), at]].concat());
    }
    fixture.table.deliver().await;
    for condition in [
        "at >= '2023-12-20 22:13:20'",
        "at >= TIMESTAMP '2023-12-20 22:13:20'",
        "at >= DATE '2023-12-20'",
        "at_tz >= '2023-12-20 22:13:20Z'",
        "at_tz >= TIMESTAMP '2023-12-20 22:13:20'",
        "at_tz >= TIMESTAMPTZ '2023-12-20 22:13:20+00'",
        "at_tz > TIMESTAMPTZ '2023-12-24 00:00:00Z' - INTERVAL '4 days'",
        "at BETWEEN '2023-12-20 22:13:20' AND '2024-12-31'",
        "day >= DATE '1970-01-01' + 9036",
        "n + 0 >= 36 AND n >= 36",
    ] {
        let plan = fixture.explain(&format!("SELECT * FROM t WHERE {condition}")).await;
        assert!(plan.contains("blocks=1/10"), "{condition}\n{plan}");
    }
}

#[tokio::test]
async fn settings_are_shown() {
    let fixture = mixed().await;
    fixture.set("tarn.access_path", "lake").await;
    assert_eq!(fixture.rows("SHOW tarn.access_path").await, ["tarn.access_path|lake"]);
    assert!(
        fixture
            .session
            .collect("SET tarn.access_path = 'fast'")
            .await
            .unwrap_err()
            .to_string()
            .contains("auto, rows, lake or index")
    );
    assert!(fixture.session.collect("SET tarn.speed = 'fast'").await.unwrap_err().to_string().contains("access_path"));
    assert_eq!(fixture.one("SELECT round(1.26, 1), abs(-3)").await, "1.3|3");
}

#[tokio::test]
async fn an_order_by_the_key_sorts_only_recent_rows() {
    let fixture = mixed().await;
    for sql in ["SELECT * FROM t ORDER BY a LIMIT 2", "SELECT b, a FROM t WHERE n > 5 ORDER BY a, b LIMIT 2"] {
        let plan = fixture.explain(sql).await;
        assert_eq!(plan.matches("SortExec").count(), 1, "{plan}");
        let parquet = plan.lines().find(|line| line.contains("DataSourceExec")).unwrap();
        assert!(parquet.contains("limit=2") && parquet.contains("output_ordering=[a"), "{plan}");
    }
    fixture.table.deliver().await;
    let plan = fixture.explain("SELECT * FROM t ORDER BY a LIMIT 2").await;
    assert!(!plan.contains("SortExec"), "{plan}");
    // Neither another direction nor another column by the same name is the key's order.
    for sql in [
        "SELECT * FROM t ORDER BY a DESC LIMIT 2",
        "SELECT n AS a FROM t ORDER BY a LIMIT 2",
        "SELECT * FROM t ORDER BY b LIMIT 2",
    ] {
        let plan = fixture.explain(sql).await;
        assert!(plan.contains("SortExec"), "{sql}\n{plan}");
    }
}
