//! Does the planner know what the metastore knows of a scan's columns, is what it is told true, and what does asking
//! cost?

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use proptest::prelude::*;
use tarn_query::Options;
use tarn_types::Value;

use crate::block_metadata::KeptMetadata;
use crate::fixture::{Fixture, Row, row, schema};

const EVERYTHING: &str = "SELECT a, b, n, price, name, day FROM t";

async fn statistics(fixture: &Fixture, sql: &str) -> Arc<Statistics> {
    let plan = fixture.session.plan(&fixture.session.parse(sql).unwrap()).await.unwrap();
    let (physical, _) = fixture.session.physical(&plan).await.unwrap();
    StatisticsContext::new().compute(physical.as_ref(), &StatisticsArgs::new()).unwrap()
}

fn scalar(value: &Value) -> ScalarValue {
    match value {
        Value::Int64(v) => ScalarValue::Int64(Some(*v)),
        Value::Decimal(v) => ScalarValue::Decimal128(Some(*v), 15, 2),
        Value::Text(v) => ScalarValue::Utf8View(Some(v.clone())),
        Value::Date(v) => ScalarValue::Date32(Some(*v)),
        other => panic!("no column has {other:?}"),
    }
}

/// What is called exact is what the rows have, and what is not still bounds them.
fn check(told: &Statistics, truth: &[Row]) {
    assert_eq!(told.num_rows, Precision::Exact(truth.len()));
    for (idx, column) in told.column_statistics.iter().enumerate() {
        let mut values: Vec<&Value> = truth.iter().map(|row| &row[idx]).filter(|value| !value.is_null()).collect();
        values.sort_by(|x, y| x.cmp_same_type(y));
        if let Precision::Exact(nulls) = column.null_count {
            assert_eq!(nulls, truth.len() - values.len(), "NULLs of column {idx}");
        }
        let (least, greatest) = (values.first().map(|v| scalar(v)), values.last().map(|v| scalar(v)));
        match &column.min_value {
            Precision::Exact(min) => assert_eq!(Some(min), least.as_ref(), "column {idx}"),
            Precision::Inexact(min) => assert!(least.is_none_or(|least| *min <= least), "column {idx}"),
            Precision::Absent => {}
        }
        match &column.max_value {
            Precision::Exact(max) => assert_eq!(Some(max), greatest.as_ref(), "column {idx}"),
            Precision::Inexact(max) => assert!(greatest.is_none_or(|greatest| *max >= greatest), "column {idx}"),
            Precision::Absent => {}
        }
    }
}

#[derive(Debug, Clone)]
enum StatisticsOp {
    Put(i64, i64, i64),
    Delete(i64, i64),
    Deliver,
    Compact,
    Look,
}

fn step() -> impl Strategy<Value = StatisticsOp> {
    let key = || (0..6i64, 0..5i64);
    prop_oneof![
        12 => (key(), 0..60i64).prop_map(|((a, b), n)| StatisticsOp::Put(a, b, n)),
        3 => key().prop_map(|(a, b)| StatisticsOp::Delete(a, b)),
        3 => Just(StatisticsOp::Deliver),
        1 => Just(StatisticsOp::Compact),
        3 => Just(StatisticsOp::Look),
    ]
}

async fn run(keep: KeptMetadata, steps: Vec<StatisticsOp>) {
    let fixture = Fixture::keeping(schema(), Options::default(), keep).await;
    fixture.set("tarn.access_path", "lake").await;
    let table = &fixture.table;
    for step in steps.into_iter().chain([StatisticsOp::Look, StatisticsOp::Deliver, StatisticsOp::Look]) {
        match step {
            StatisticsOp::Put(a, b, n) => table.put(row(a, b, n)),
            StatisticsOp::Delete(a, b) => table.delete(&row(a, b, 0)),
            StatisticsOp::Deliver => table.deliver().await,
            StatisticsOp::Compact => table.compact().await,
            StatisticsOp::Look => {
                check(statistics(&fixture, EVERYTHING).await.as_ref(), &table.truth());
                let some: Vec<Row> = table
                    .truth()
                    .into_iter()
                    .filter(|row| matches!(row[5], Value::Date(day) if day >= 9_030))
                    .collect();
                let told = statistics(&fixture, &format!("{EVERYTHING} WHERE day >= DATE '1994-09-22'")).await;
                let rows = told.num_rows.get_value().copied().unwrap_or_default();
                assert!(told.num_rows.is_exact() != Some(true) || rows == some.len(), "{:?}", told.num_rows);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_said_of_a_scan_is_true_of_its_rows(
        keep in prop_oneof![Just(KeptMetadata::Bounds), Just(KeptMetadata::Metadata), Just(KeptMetadata::SomeMetadata)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run(keep, steps));
    }
}

/// 12 rows in three blocks, of whose columns only the first has its bounds in memory.
async fn delivered() -> Fixture {
    let fixture = Fixture::keeping(schema(), Options::default(), KeptMetadata::Metadata).await;
    fixture.set("tarn.access_path", "lake").await;
    (0..12).for_each(|n| fixture.table.put(row(n, 0, n)));
    fixture.table.deliver().await;
    fixture.metastore.take();
    fixture.store.take();
    fixture
}

#[tokio::test]
async fn columns_whose_bounds_are_in_the_block_metadata_have_exact_statistics() {
    let fixture = delivered().await;
    let told = statistics(&fixture, EVERYTHING).await;
    for (idx, column) in told.column_statistics.iter().enumerate() {
        assert_eq!(column.null_count.is_exact(), Some(true), "column {idx}");
        assert_eq!(column.min_value.is_exact(), Some(true), "column {idx}");
        assert_eq!(column.max_value.is_exact(), Some(true), "column {idx}");
    }
    assert_eq!(told.column_statistics[5].max_value, Precision::Exact(ScalarValue::Date32(Some(9_011))));
    let sql = "SELECT min(day), max(price), count(n), min(name) FROM t";
    assert_eq!(fixture.rows(sql).await, ["1994-08-23|-7.25|10|name-000-"]);
    assert_eq!(fixture.store.take(), [], "no file is read for that");
}

#[tokio::test]
async fn a_column_is_asked_for_once_a_piece() {
    let fixture = delivered().await;
    fixture.explain("SELECT n, day FROM t").await;
    assert_eq!(fixture.metastore.take(), ["stats 3x2"]);
    fixture.explain("SELECT price FROM t WHERE a > 1").await;
    assert_eq!(fixture.metastore.take(), [""; 0], "who reads some rows of one table does not wait for it");
    fixture.explain("SELECT n, price FROM t").await;
    assert_eq!(fixture.metastore.take(), ["stats 3x1"], "of the new column alone");
    fixture.explain("SELECT x.name FROM t x JOIN t y ON x.a = y.b WHERE x.a > 1").await;
    assert_eq!(
        fixture.metastore.take(),
        ["stats 3x1"; 2],
        "name for one scan, b for the other; both filters are in memory"
    );
    fixture.table.put(row(100, 0, 9));
    fixture.explain("SELECT n, price FROM t").await;
    assert_eq!(fixture.metastore.take(), [""; 0], "recent rows change no file");
    fixture.table.deliver().await;
    fixture.metastore.take();
    fixture.explain("SELECT n, price FROM t").await;
    assert_eq!(fixture.metastore.take(), ["stats 4x2"], "the piece has a file more");
    fixture.set("tarn.cache.metadata", "off").await;
    fixture.explain("SELECT n FROM t").await;
    fixture.explain("SELECT n FROM t").await;
    assert_eq!(fixture.metastore.take(), ["stats 4x1"; 2], "nothing is kept where nothing may be");
}

#[tokio::test]
async fn sizes_are_those_of_the_rows_in_memory() {
    let fixture = delivered().await;
    let bytes = async |sql| statistics(&fixture, sql).await.total_byte_size;
    assert_eq!(bytes("SELECT n, day FROM t").await.get_value(), Some(&(12 * (8 + 4))));
    let with_text = *bytes("SELECT n, name FROM t").await.get_value().unwrap();
    assert!((12 * (8 + 16)..12 * (8 + 16) + 2_000).contains(&with_text), "{with_text}");
}
