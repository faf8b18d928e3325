//! Which rows do UPDATE, DELETE and INSERT by query give to be written?

use datafusion::common::{ParamValues, ScalarValue};
use futures::TryStreamExt;
use tarn_query::Options;
use tarn_query::dml::DmlKind;
use tarn_query::parser::statements;
use tarn_query::sqlparser::ast::Statement;

use crate::block_metadata::Keep;
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
    for (keep, footers) in [(Keep::Metadata, false), (Keep::SomeMetadata, true)] {
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
    assert_eq!(kind, DmlKind::Insert { on_conflict_do_nothing: false });
    assert_eq!(columns, ["a", "b", "n", "price", "name", "day"]);
    assert_eq!(rows, ["100|0|NULL|-20.00|NULL|2020-02-02", "101|0|NULL|-19.50|NULL|2020-02-02"]);
    let sql = "INSERT INTO t VALUES (1 + 1, 2, NULL, 1.5, upper('x'), DATE '2020-01-01') ON CONFLICT DO NOTHING";
    let (kind, _, rows) = source(&fixture, sql, None).await;
    assert_eq!(kind, DmlKind::Insert { on_conflict_do_nothing: true });
    assert_eq!(rows, ["2|2|NULL|1.50|X|2020-01-01"]);
}

#[tokio::test]
async fn what_tarn_does_not_have_is_refused_with_a_remedy() {
    let fixture = fixture().await;
    for (sql, part) in [
        ("UPDATE t SET a = 1 WHERE n = 3", "key column a"),
        ("UPDATE t SET nothing = 1", "no column nothing"),
        ("UPDATE t SET n = 1 RETURNING n", "RETURNING"),
        ("DELETE FROM t USING t AS u WHERE t.a = u.b", "USING"),
        ("INSERT INTO t VALUES (1, 1, 1, 1, 'x', NULL) ON CONFLICT (a, b) DO UPDATE SET n = 1", "DO UPDATE"),
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
