//! Does a statement take the path that costs least, and does that path read no more than it needs? Before a statement
//! runs, nothing is read.

use tarn_types::{DataType, KeyPart};

use crate::fixture::{Fixture, HotRequest, row, schema};

/// Rows (a, b) for a of 0 to 8 and b of 0 to 10; those of a = 8 are in no file.
async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    let put = |a: i64| (0..10).for_each(|b| fixture.table.put(row(a, b, a * 10 + b)));
    (0..8).for_each(put);
    fixture.table.deliver().await;
    put(8);
    fixture.table.asked();
    fixture
}

async fn path(fixture: &Fixture, sql: &str) -> String {
    let plan = fixture.explain(sql).await;
    let (_, rest) = plan.split_once("access_path=").unwrap_or_else(|| panic!("{sql}\n{plan}"));
    rest.split(',').next().unwrap().to_owned()
}

const STATEMENTS: [(&str, &str); 7] = [
    ("SELECT n FROM t WHERE a = 3 AND b = 4", "point"),
    ("SELECT n FROM t WHERE a IN (3, 5, 8) AND b IN (4, 6)", "keys"),
    ("SELECT n FROM t WHERE a = 3", "range"),
    ("SELECT n FROM t WHERE a IN (3, 8) AND n > 2", "range"),
    ("SELECT n FROM t WHERE a = 3 AND b >= 7", "range"),
    ("SELECT n FROM t WHERE n > 20", "lake"),
    ("SELECT a, count(*) FROM t GROUP BY a", "lake"),
];

#[tokio::test]
async fn what_is_explained_reads_no_row() {
    let fixture = fixture().await;
    for (sql, taken) in STATEMENTS {
        assert_eq!(path(&fixture, sql).await, taken, "{sql}");
        fixture.rows(&format!("EXPLAIN {sql}")).await;
        assert_eq!(fixture.table.asked(), [], "{sql}");
        fixture.rows(sql).await;
        assert_ne!(fixture.table.asked(), [], "{sql}");
    }
    fixture.table.evict();
    fixture.store.take();
    let sql = "SELECT n FROM t WHERE a = 3 AND b = 4";
    fixture.rows(&format!("EXPLAIN {sql}")).await;
    assert!(fixture.table.asked().is_empty() && fixture.store.take().is_empty());
    assert_eq!(fixture.rows(sql).await, ["34"]);
    assert!(!fixture.store.take().is_empty());
}

#[tokio::test]
async fn a_list_of_keys_is_asked_for_at_once() {
    let fixture = fixture().await;
    let sql = "SELECT a, b, n FROM t WHERE a IN (3, 5, 8, 77, 3) AND b IN (4, 6)";
    let rows = ["3|4|34", "3|6|36", "5|4|54", "5|6|56", "8|4|84", "8|6|86"];
    assert_eq!(fixture.sorted(sql).await, rows);
    assert_eq!(fixture.table.asked(), [HotRequest::Keys(8)]);
    // Evicted rows are read from their file, by their addresses. Of more keys, all rows of so small a table cost less.
    fixture.table.evict();
    let few = "SELECT a, b, n FROM t WHERE a IN (3, 5, 8) AND b = 6";
    fixture.store.take();
    assert_eq!(fixture.sorted(few).await, ["3|6|36", "5|6|56", "8|6|86"]);
    assert_eq!(fixture.table.asked(), [HotRequest::Keys(3)]);
    assert!(!fixture.store.take().is_empty());
    let text = fixture.rows(&format!("EXPLAIN ANALYZE {few}")).await.join("\n");
    assert!(text.contains("KeysExec: keys=3") && text.contains("evicted_rows=2"), "{text}");
    assert_eq!(path(&fixture, sql).await, "lake");
    assert_eq!(fixture.sorted(sql).await, rows);
    // With `__seqno`, of a row in the engine and of one in a file.
    let sql = "SELECT __seqno, a FROM \"t$seqno\" WHERE a IN (5, 8) AND b = 0 ORDER BY a";
    assert_eq!(path(&fixture, sql).await, "keys");
    assert_eq!(fixture.rows(sql).await, ["51|5", "81|8"]);
}

#[tokio::test]
async fn a_range_of_a_partition_is_read_alone_and_in_order() {
    let fixture = fixture().await;
    for (condition, n_rows) in [
        ("a = 3", 10),
        ("a = 3 AND b >= 7", 3),
        ("a = 3 AND b > 7 AND b < 9", 1),
        ("a = 3 AND b BETWEEN 2 AND 4 AND n <> 0", 3),
        ("a = 3 AND b < 2 AND b > 5", 0),
    ] {
        fixture.rows(&format!("SELECT n FROM t WHERE {condition}")).await;
        assert_eq!(fixture.table.asked(), [HotRequest::Rows(n_rows)], "{condition}");
    }
    let plan = fixture.explain("SELECT b, n FROM t WHERE a = 3 AND b > 2 ORDER BY b LIMIT 2").await;
    assert!(!plan.contains("SortExec") && plan.contains("output_ordering=[b@"), "{plan}");
    assert_eq!(fixture.rows("SELECT b FROM t WHERE a = 3 AND b > 2 ORDER BY b LIMIT 2").await, ["3", "4"]);
    let plan = fixture.explain("SELECT b, n FROM t WHERE a = 3 ORDER BY a, b").await;
    assert!(!plan.contains("SortExec"), "{plan}");
    let plan = fixture.explain("SELECT b, n FROM t WHERE a IN (3, 4) ORDER BY b LIMIT 2").await;
    assert!(plan.contains("SortExec"), "of two partitions the rows of one come behind the other's: {plan}");
}

/// A key whose clustering column descends: the newest come first.
#[tokio::test]
async fn the_latest_rows_of_a_descending_key_are_the_first() {
    let mut schema = schema();
    schema.key[1].descending = true;
    schema.key.push(KeyPart { column_idx: 5, descending: false });
    schema.columns[5].nullable = false;
    assert_eq!(schema.columns[5].data_type, DataType::Date);
    let fixture = Fixture::with(schema).await;
    for b in 0..20 {
        fixture.table.put(row(1, b, b));
        fixture.table.put(row(1, b, b + 100));
    }
    let sql = "SELECT b, day FROM t WHERE a = 1 AND b < 12 ORDER BY b DESC, day LIMIT 3";
    let plan = fixture.explain(sql).await;
    assert!(!plan.contains("SortExec") && plan.contains("access_path=range"), "{plan}");
    assert!(!plan.contains("RepartitionExec"), "each partition would wait for its first rows: {plan}");
    fixture.table.asked();
    assert_eq!(fixture.rows(sql).await, ["11|1994-09-03", "11|1994-12-12", "10|1994-09-02"]);
    assert_eq!(fixture.table.asked(), [HotRequest::Rows(3)]);
}

/// The latest of a key that ascends: its range is read from its end.
#[tokio::test]
async fn a_range_is_read_backwards_when_that_is_wanted() {
    let fixture = fixture().await;
    for (sql, rows, asked) in [
        ("SELECT b FROM t WHERE a = 3 ORDER BY b DESC LIMIT 2", ["9", "8"], 2),
        ("SELECT b FROM t WHERE a = 3 AND b < 7 ORDER BY b DESC LIMIT 2", ["6", "5"], 2),
        ("SELECT b FROM t WHERE a = 3 ORDER BY a, b DESC LIMIT 1 OFFSET 1", ["8", ""], 2),
        ("SELECT b FROM t WHERE a = 3 AND n < 38 ORDER BY b DESC LIMIT 2", ["7", "6"], 2),
        ("SELECT b + 100 FROM (SELECT * FROM t WHERE a = 3 AND b < 2) ORDER BY b DESC LIMIT 9", ["101", "100"], 2),
    ] {
        let plan = fixture.explain(sql).await;
        assert!(!plan.contains("SortExec") && plan.contains("reverse=true"), "{sql}\n{plan}");
        fixture.table.asked();
        let rows: Vec<&str> = rows.into_iter().filter(|row| !row.is_empty()).collect();
        assert_eq!(fixture.rows(sql).await, rows, "{sql}");
        assert_eq!(fixture.table.asked(), [HotRequest::Rows(asked)], "{sql}");
    }
    // Another column by the name of the key's.
    fixture.table.asked();
    fixture.rows("SELECT n AS b FROM t WHERE a = 3 ORDER BY b LIMIT 3").await;
    assert_eq!(fixture.table.asked(), [HotRequest::Rows(10)]);
    // The rows below are the first ones, which the order above does not change.
    let sql = "SELECT b FROM (SELECT b FROM t WHERE a = 3 ORDER BY b LIMIT 2) ORDER BY b DESC";
    assert_eq!(fixture.rows(sql).await, ["1", "0"]);
    for (sql, rows) in [
        ("SELECT b FROM t WHERE a IN (3, 4) ORDER BY b DESC LIMIT 2", ["9", "9"]),
        ("SELECT b FROM t WHERE a = 3 ORDER BY n DESC NULLS LAST LIMIT 2", ["9", "7"]),
    ] {
        assert!(fixture.explain(sql).await.contains("SortExec"), "{sql}");
        assert_eq!(fixture.rows(sql).await, rows, "{sql}");
    }
}

/// Rows of a partition in the engine, in the lake alone, and deleted: each in its place.
#[tokio::test]
async fn evicted_rows_of_a_range_come_in_their_places() {
    let fixture = fixture().await;
    fixture.table.evict();
    (0..10).step_by(3).for_each(|b| fixture.table.put(row(3, b, b + 1_000)));
    fixture.table.delete(&row(3, 4, 34));
    fixture.table.asked();
    fixture.store.take();
    let sql = "SELECT b, n, __seqno > 0 FROM \"t$seqno\" WHERE a = 3 ORDER BY b LIMIT 3";
    assert_eq!(path(&fixture, sql).await, "range");
    assert_eq!(fixture.rows(sql).await, ["0|1000|true", "1|NULL|true", "2|32|true"]);
    assert!(!fixture.store.take().is_empty());
    let sql = "SELECT b, n FROM t WHERE a = 3 AND b < 9 ORDER BY b DESC LIMIT 2 OFFSET 1";
    assert_eq!(path(&fixture, sql).await, "range");
    assert_eq!(fixture.rows(sql).await, ["7|37", "6|1006"]);
    let text = fixture.rows(&format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    assert!(text.contains("reverse=true") && text.contains("evicted_rows=2"), "{text}");
    // Nobody knows how many addresses it takes to find three.
    let sql = "SELECT b FROM t WHERE a = 3 AND n > 30 ORDER BY b LIMIT 3";
    assert_eq!((path(&fixture, sql).await.as_str(), fixture.rows(sql).await.len()), ("lake", 3));
}

#[tokio::test]
async fn an_eviction_elsewhere_closes_no_range() {
    let fixture = fixture().await;
    fixture.table.evict();
    fixture.table.asked();
    // No block of the lake has these keys.
    for sql in ["SELECT n FROM t WHERE a = 8", "SELECT n FROM t WHERE a IN (8, 9)"] {
        assert_eq!(path(&fixture, sql).await, "range", "{sql}");
        assert_eq!(fixture.rows(sql).await.len(), 10);
    }
    // All rows of a partition that lie in files cost less than each by its address.
    let plan = fixture.explain("SELECT n FROM t WHERE a = 3").await;
    assert!(plan.contains("access_path=lake") && plan.contains("one partition key, but rows were evicted"), "{plan}");
    assert_eq!(fixture.rows("SELECT n FROM t WHERE a = 3 AND b < 5").await.len(), 5);
}
