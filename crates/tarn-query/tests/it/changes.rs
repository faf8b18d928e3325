//! Which rows do UPDATE, DELETE and INSERT by query give to be written?

use datafusion::arrow::compute::concat_batches;
use datafusion::common::{ParamValues, ScalarValue};
use futures::TryStreamExt;
use tarn_query::dml::DmlKind;
use tarn_query::parser::statements;
use tarn_query::sqlparser::ast::Statement;
use tarn_query::{OnKey, Options};
use tarn_types::Value;

use crate::block_metadata::KeptMetadata;
use crate::fixture::{Fixture, row, to_text};

fn parse(sql: &str) -> Statement {
    statements(sql).unwrap().remove(0)
}

async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    (0..8).for_each(|a| fixture.table.put(row(a, 0, a)));
    fixture.table.deliver().await;
    fixture.table.put(row(3, 0, 30));
    fixture
}

async fn source(fixture: &Fixture, sql: &str, parameters: Option<ParamValues>) -> (DmlKind, Vec<String>, Vec<String>) {
    let dml = fixture.session.dml(&parse(sql), &fixture.table.schema).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let stream = fixture.session.dml_rows(&dml, parameters).await.unwrap();
    let columns = stream.schema().fields().iter().map(|f| f.name().clone()).collect();
    let batches: Vec<_> = stream.try_collect().await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let mut rows = to_text(&batches);
    rows.sort();
    (dml.kind, columns, rows)
}

#[tokio::test]
async fn delete_gives_keys_and_the_change_they_were_read_at() {
    let fixture = fixture().await;
    let (kind, columns, rows) = source(&fixture, "DELETE FROM t WHERE n >= 6 OR t.n = 30", None).await;
    assert_eq!((kind, columns), (DmlKind::Delete, vec!["a".to_owned(), "b".to_owned(), "__seqno".to_owned()]));
    assert_eq!(rows, ["3|0|9", "6|0|7", "7|0|8"]);
    let (_, _, rows) = source(&fixture, "DELETE FROM t AS x WHERE x.a IN (SELECT max(a) FROM t)", None).await;
    assert_eq!(rows, ["7|0|8"]);
    let bound = ParamValues::from(vec![ScalarValue::Int64(Some(5))]);
    let (_, _, rows) = source(&fixture, "DELETE FROM public.t WHERE n = $1", Some(bound)).await;
    assert_eq!(rows, ["5|0|6"]);
    let (_, _, rows) = source(&fixture, "DELETE FROM t", None).await;
    assert_eq!(rows.len(), 8);
}

#[tokio::test]
async fn update_gives_whole_rows_with_new_values() {
    let fixture = fixture().await;
    let (kind, columns, rows) =
        source(&fixture, "UPDATE t SET n = n + 100, name = 'new' WHERE a = 5 OR t.n = 30", None).await;
    assert_eq!(kind, DmlKind::Update);
    assert_eq!(columns, ["a", "b", "n", "price", "name", "day", "__seqno"]);
    assert_eq!(rows, ["3|0|130|-2.50|new|1994-09-22|9", "5|0|105|-8.75|new|1994-08-28|6"]);
    let bound = ParamValues::from(vec![ScalarValue::Decimal128(Some(999), 15, 2), ScalarValue::Int64(Some(6))]);
    let (_, _, rows) = source(&fixture, "UPDATE t SET price = $1, day = NULL WHERE a = $2", Some(bound)).await;
    assert_eq!(rows, ["6|0|6|9.99|name-006-xxxxxx|NULL|7".replace("|NULL|", "||")].map(|r| r.replace("||", "|NULL|")));
}

#[tokio::test]
async fn who_changes_rows_reads_no_footer_of_a_file_that_tells_of_their_changes() {
    for (keep, footers) in [(KeptMetadata::Metadata, false), (KeptMetadata::SomeMetadata, true)] {
        let options = Options { page_index_bytes: u64::MAX, ..Options::default() };
        let fixture = Fixture::keeping(crate::fixture::schema(), options, keep).await;
        for a in 0..12 {
            fixture.table.put(row(a, 0, a));
            if a % 3 == 2 {
                fixture.table.deliver().await;
            }
        }
        for sql in ["DELETE FROM t WHERE n >= 6", "UPDATE t SET n = n + 100 WHERE n = 5 OR n > 9", "DELETE FROM t"] {
            fixture.set("tarn.pruning", "off").await;
            let (_, _, expected) = source(&fixture, sql, None).await;
            fixture.set("tarn.pruning", "on").await;
            fixture.store.take();
            let (_, _, rows) = source(&fixture, sql, None).await;
            assert_eq!(rows, expected, "{sql}");
        }
        // Pages lie before the footer, which the cache of footers has from above.
        let text = fixture.rows("EXPLAIN ANALYZE SELECT a, __seqno FROM \"t$seqno\"").await.join("\n");
        assert_eq!(text.contains("footers=0"), !footers, "{text}");
    }
}

#[tokio::test]
async fn insert_gives_rows_that_fit_the_table() {
    let fixture = fixture().await;
    let (kind, columns, rows) = source(
        &fixture,
        "INSERT INTO t (a, b, price, day) SELECT a + 100, b, price * 2, '2020-02-02' FROM t WHERE a < 2",
        None,
    )
    .await;
    assert_eq!(kind, DmlKind::Insert { on_key: OnKey::Refuse });
    assert_eq!(columns, ["a", "b", "n", "price", "name", "day"]);
    assert_eq!(rows, ["100|0|NULL|-20.00|NULL|2020-02-02", "101|0|NULL|-19.50|NULL|2020-02-02"]);
    let sql = "INSERT INTO t VALUES (1 + 1, 2, NULL, 1.5, upper('x'), DATE '2020-01-01') ON CONFLICT DO NOTHING";
    let (kind, _, rows) = source(&fixture, sql, None).await;
    assert_eq!(kind, DmlKind::Insert { on_key: OnKey::Keep });
    assert_eq!(rows, ["2|2|NULL|1.50|X|2020-01-01"]);
}

#[tokio::test]
async fn a_row_that_is_there_is_changed_beside_the_one_that_was_to_be_inserted() {
    let fixture = fixture().await;
    let rows = async |sql: &str| {
        let dml = fixture.session.dml(&parse(sql), &fixture.table.schema).await.unwrap();
        let rows: Vec<_> = fixture.session.dml_rows(&dml, None).await.unwrap().try_collect().await.unwrap();
        concat_batches(&rows[0].schema(), &rows).unwrap()
    };
    // In the order of those that are given.
    let there = [rows("UPDATE t SET n = n WHERE a = 5").await, rows("UPDATE t SET n = n WHERE a = 6").await];
    let there = concat_batches(&there[0].schema(), &there).unwrap();
    let given = rows("INSERT INTO t VALUES (5, 0, 50, 5, 'five', NULL), (6, 0, 60, 6, 'six', NULL)").await;
    let changed = async |conflict: &str, parameters: Option<ParamValues>| {
        let sql = format!("INSERT INTO t AS old (a, b) VALUES (1, 1) ON CONFLICT (a, b) DO UPDATE {conflict}");
        let dml =
            fixture.session.dml(&parse(&sql), &fixture.table.schema).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        let changed = fixture.session.changed(&dml, &there, &given, parameters).await.unwrap();
        let mut rows = to_text(&changed.try_collect::<Vec<_>>().await.unwrap());
        rows.sort();
        rows
    };
    assert_eq!(
        changed("SET n = old.n + excluded.n, name = EXCLUDED.name, day = DEFAULT, a = excluded.a", None).await,
        ["5|0|55|-8.75|five|NULL|6", "6|0|66|-8.50|six|NULL|7"]
    );
    assert_eq!(
        changed(
            "SET (n, price) = (excluded.n, 1) WHERE old.n < $1",
            Some(ParamValues::from(vec![ScalarValue::Int64(Some(6))]))
        )
        .await,
        ["5|0|50|1.00|name-005-xxxxx|1994-08-28|6"]
    );
    // A subquery reads the table itself.
    let newest = changed("SET n = (SELECT max(t.n) FROM t) + excluded.n, day = NULL WHERE excluded.n = 60", None).await;
    assert_eq!(newest, ["6|0|90|-8.50|name-006-xxxxxx|NULL|7"]);
}

#[tokio::test]
async fn rows_are_changed_beside_other_tables() {
    let fixture = fixture().await;
    let sql = "UPDATE t SET n = u.n * 10 FROM t AS u WHERE t.a = u.a + 1 AND u.a >= 5";
    let (_, columns, rows) = source(&fixture, sql, None).await;
    assert_eq!(columns, ["a", "b", "n", "price", "name", "day", "__seqno"]);
    assert_eq!(rows.iter().map(|row| &row[..7]).collect::<Vec<_>>(), ["6|0|50|", "7|0|60|"]);
    let sql = "DELETE FROM t AS x USING t AS u JOIN t AS v ON u.a = v.a WHERE x.a = v.a AND u.n > 6";
    let (_, columns, rows) = source(&fixture, sql, None).await;
    assert_eq!((columns.len(), rows), (3, vec!["3|0|9".to_owned(), "7|0|8".to_owned()]));
    let (_, columns, _) = source(&fixture, "DELETE FROM t RETURNING n", None).await;
    assert_eq!(columns, ["a", "b", "n", "price", "name", "day", "__seqno"]);
}

#[tokio::test]
async fn a_default_that_is_named_is_the_columns() {
    let mut schema = crate::fixture::schema();
    schema.columns[2].default = Some(Value::Int64(-7));
    schema.columns[4].default = Some(Value::Text("it's".into()));
    let fixture = Fixture::with(schema).await;
    let sql = "INSERT INTO t (a, n, b, name) VALUES (1, DEFAULT, 1 + 1, 'x'), (2, 5, 2, default)";
    let (_, _, rows) = source(&fixture, sql, None).await;
    assert_eq!(rows, ["1|2|-7|NULL|x|NULL", "2|2|5|NULL|it's|NULL"]);
}

#[tokio::test]
async fn what_tarn_does_not_have_is_refused_with_a_remedy() {
    let fixture = fixture().await;
    for (sql, part) in [
        ("UPDATE t SET a = 1 WHERE n = 3", "key column a"),
        ("UPDATE t SET nothing = 1", "no column nothing"),
        ("UPDATE t SET (n, price) = (SELECT 1, 2)", "list of columns"),
        ("INSERT INTO t VALUES (1, 1, 1, 1, 'x', NULL) ON CONFLICT (a, b) DO UPDATE SET a = 1", "key column a"),
        ("INSERT INTO t VALUES (1, 1, 1, 1, 'x', NULL) ON CONFLICT (a, b) DO UPDATE SET n = n + 1", "Ambiguous"),
        ("INSERT INTO t VALUES (1, 1, 1, 1, 'x', NULL) ON DUPLICATE KEY UPDATE n = 1", "ON DUPLICATE KEY UPDATE"),
    ] {
        let error = fixture.session.dml(&parse(sql), &fixture.table.schema).await.unwrap_err().to_string();
        assert!(error.contains(part), "{sql}: {error}");
    }
    let mut schema = crate::fixture::schema();
    schema.options.append_only = true;
    let fixture = Fixture::with(schema).await;
    for sql in
        ["UPDATE t SET n = 1", "DELETE FROM t", "INSERT INTO t VALUES (1, 1, 1, 1, 'x', NULL) ON CONFLICT DO NOTHING"]
    {
        let error = fixture.session.dml(&parse(sql), &fixture.table.schema).await.unwrap_err().to_string();
        assert!(error.contains("append-only table t"), "{sql}: {error}");
    }
}
