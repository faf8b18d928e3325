//! Law 4 for pruning: whatever is left out of a scan, by time, bounds and blooms, and whoever says where its columns
//! lie, the answer is the one that reading everything gives; and what is left out is not read.

use std::collections::BTreeMap;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use proptest::prelude::*;
use tarn_query::Options;
use tarn_types::{
    ColumnId, DataType, Indexing, KeyPart, Kind, TableId, TableOptions, TableSchema, TabletId, TokenColumns, Value,
};

use crate::block_metadata::KeptMetadata;
use crate::fixture::{Fixture, Row, column};

const WORDS: [&str; 8] = ["error", "Refused", "connection", "GET", "x_1", "zürich", "timeout", "42"];

/// `logs (id BIGINT, body TEXT, trace TEXT, n BIGINT, price NUMERIC(15, 2), at TIMESTAMPTZ, ratio DOUBLE, flag BOOLEAN,
/// note TEXT)`: the tokens of `body` and the values of `trace`, `n` and `price` are in the blooms.
pub fn schema() -> TableSchema {
    let mut columns = vec![
        column(1, "id", DataType::Int64),
        column(2, "body", DataType::Text),
        column(3, "trace", DataType::Text),
        column(4, "n", DataType::Int64),
        column(5, "price", DataType::Decimal { precision: 15, scale: 2 }),
        column(6, "at", DataType::TimestampTz),
        column(7, "ratio", DataType::Float64),
        column(8, "flag", DataType::Bool),
        column(9, "note", DataType::Text),
    ];
    columns[0].nullable = false;
    let indexing = Indexing {
        tokens: TokenColumns::Some(vec![ColumnId(2)]),
        bloom: vec![ColumnId(3), ColumnId(4), ColumnId(5)],
        ..Indexing::default()
    };
    TableSchema {
        id: TableId(1),
        name: "t".to_owned(),
        columns,
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions { indexing, ..TableOptions::default() },
    }
}

/// A row that its key and a number determine: words, NULLs, NaN and all.
pub fn row(id: i64, seed: u64) -> Row {
    let pick = |shift: u32, n: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % n;
    let or_null = |shift: u32, value: Value| if pick(shift, 6) == 0 { Value::Null } else { value };
    let words: Vec<&str> = (0..pick(5, 4)).map(|at| WORDS[pick(8 + 3 * at as u32, 8) as usize]).collect();
    let ratio = if pick(20, 9) == 0 { f64::NAN } else { pick(21, 100) as f64 / 8.0 - 4.0 };
    vec![
        Value::Int64(id),
        or_null(3, Value::Text(words.join("; "))),
        or_null(11, Value::Text(format!("t-{}", pick(12, 12)))),
        or_null(23, Value::Int64(pick(24, 40) as i64 - 10)),
        or_null(29, Value::Decimal(i128::from(pick(30, 300)) - 100)),
        or_null(35, Value::Timestamp(1_700_000_000_000_000 + id * 3_600_000_000 + pick(36, 60) as i64)),
        or_null(41, Value::Float64(ratio)),
        or_null(45, Value::Bool(pick(46, 2) == 0)),
        or_null(49, Value::Text("note ".repeat(pick(50, 5) as usize))),
    ]
}

#[derive(Debug, Clone)]
pub enum PruningOp {
    Put(i64, u64),
    Delete(i64),
    Deliver,
    Compact,
}

pub fn step() -> impl Strategy<Value = PruningOp> {
    prop_oneof![
        14 => (0..60i64, any::<u64>()).prop_map(|(id, seed)| PruningOp::Put(id, seed)),
        3 => (0..60i64).prop_map(PruningOp::Delete),
        3 => Just(PruningOp::Deliver),
        1 => Just(PruningOp::Compact),
    ]
}

fn words() -> impl Strategy<Value = String> {
    proptest::collection::vec(0..WORDS.len(), 0..3)
        .prop_map(|at| at.into_iter().map(|at| WORDS[at].to_uppercase()).collect::<Vec<_>>().join(" "))
}

fn term() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => words().prop_map(|words| format!("matches(body, '{words}')")),
        1 => words().prop_map(|words| format!("matches(note, '{words} note')")),
        2 => words().prop_map(|words| format!("body = '{}'", words.to_lowercase())),
        2 => (0..14).prop_map(|t| format!("trace = 't-{t}'")),
        1 => (0..14, 0..14).prop_map(|(a, b)| format!("trace IN ('t-{a}', 't-{b}', 'none')")),
        2 => (-12..32).prop_map(|n| format!("n = {n}")),
        1 => (-12..32, -12..32, -12..32, -12..32).prop_map(|(a, b, c, d)| format!("n IN ({a}, {b}, {c}, {d})")),
        1 => (-12..32).prop_map(|n| format!("n >= {n}")),
        1 => (-100..200i32).prop_map(|cents| format!("price = {}.{:02}", cents / 100, (cents % 100).abs())),
        1 => (0..60).prop_map(|h| format!("at >= TIMESTAMPTZ '2023-11-14 22:13:20Z' + INTERVAL '{h} hours'")),
        1 => (0..60).prop_map(|h| format!("at < TIMESTAMPTZ '2023-11-14 22:13:20Z' + INTERVAL '{h} hours'")),
        1 => (-5..10).prop_map(|r| format!("ratio > {r}")),
        1 => Just("ratio = 'NaN'::double precision".to_owned()),
        1 => Just("flag".to_owned()),
        1 => Just("trace IS NULL".to_owned()),
        1 => (0..60).prop_map(|id| format!("id < {id}")),
        1 => words().prop_map(|words| format!("NOT matches(body, '{words}')")),
    ]
}

pub fn condition() -> impl Strategy<Value = String> {
    term().prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 2..4).prop_map(|terms| format!("({})", terms.join(" OR "))),
            proptest::collection::vec(inner, 2..4).prop_map(|terms| format!("({})", terms.join(" AND "))),
        ]
    })
}

impl PruningOp {
    pub async fn run(&self, fixture: &Fixture) {
        match self {
            PruningOp::Put(id, seed) => fixture.table.put(row(*id, *seed)),
            PruningOp::Delete(id) => fixture.table.delete(&row(*id, 0)),
            PruningOp::Deliver => fixture.table.deliver().await,
            PruningOp::Compact => fixture.table.compact().await,
        }
    }
}

async fn built(keep: KeptMetadata, page_index_bytes: u64, steps: &[PruningOp]) -> Fixture {
    let options = Options { page_index_bytes, ..Options::default() };
    let fixture = Fixture::keeping(schema(), options, keep).await;
    for step in steps {
        step.run(&fixture).await;
    }
    fixture.set("tarn.access_path", "lake").await;
    fixture
}

async fn law_4(keep: KeptMetadata, page_index_bytes: u64, steps: Vec<PruningOp>, conditions: Vec<String>) {
    let fixture = built(keep, page_index_bytes, &steps).await;
    for condition in conditions {
        for sql in [
            format!("SELECT * FROM t WHERE {condition}"),
            format!("SELECT count(*) FROM t WHERE {condition}"),
            format!("SELECT id, note FROM t WHERE {condition} ORDER BY n, id LIMIT 5"),
            format!("SELECT id FROM t WHERE {condition} ORDER BY id LIMIT 3"),
            format!("SELECT min(price), max(at), count(note) FROM t WHERE {condition}"),
        ] {
            fixture.set("tarn.pruning", "on").await;
            let pruned = fixture.sorted(&sql).await;
            fixture.set("tarn.pruning", "off").await;
            assert_eq!(pruned, fixture.sorted(&sql).await, "{sql}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_a_scan_of_everything(
        keep in prop_oneof![Just(KeptMetadata::Bounds), Just(KeptMetadata::Metadata), Just(KeptMetadata::SomeMetadata)],
        page_index_bytes in prop_oneof![Just(0), Just(u64::MAX)],
        steps in proptest::collection::vec(step(), 10..90),
        conditions in proptest::collection::vec(condition(), 4..7),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(law_4(keep, page_index_bytes, steps, conditions));
    }
}

/// 48 rows in three files, four rows a block; every hour a row, and in each file one word that no other row has.
async fn logs(page_index_bytes: u64) -> Fixture {
    let options = Options { page_index_bytes, ..Options::default() };
    let fixture = Fixture::keeping(schema(), options, KeptMetadata::Metadata).await;
    for id in 0..48 {
        let mut row = row(id, id as u64 * 77 + 5);
        row[1] = Value::Text(if id % 16 == 7 { format!("found needle{id} here") } else { "GET / 200".to_owned() });
        row[2] = Value::Text(format!("trace-{id}"));
        row[5] = Value::Timestamp(1_700_000_000_000_000 + id * 3_600_000_000);
        row[8] = Value::Text("plain note ".repeat(id as usize % 3));
        fixture.table.put(row);
        if id % 16 == 15 {
            fixture.table.deliver().await;
        }
    }
    fixture.set("tarn.access_path", "lake").await;
    fixture
}

pub fn number(text: &str, name: &str) -> u64 {
    let rest = text.split(&format!("{name}=")).nth(1).unwrap_or_else(|| panic!("{name} in\n{text}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[tokio::test]
async fn explain_says_what_pruned_the_blocks() {
    let fixture = logs(u64::MAX).await;
    let plan = fixture.explain("SELECT id FROM t WHERE at < TIMESTAMPTZ '2023-11-15 06:13:20Z'").await;
    for part in ["blocks=2/12", "files=1/3", "pruned_time=10", "pruned_statistics=0", "pruned_bloom=0"] {
        assert!(plan.contains(part), "{part} in\n{plan}");
    }
    assert!(number(&plan, "metastore_bytes") > 0, "bounds of at are in the details: {plan}");
    let plan = fixture.explain("SELECT at FROM t WHERE id >= 40").await;
    for part in ["blocks=2/12", "pruned_time=0", "pruned_statistics=10", "pruned_bloom=0", "metastore_bytes=0"] {
        assert!(plan.contains(part), "{part} in\n{plan}");
    }
    let plan = fixture.explain("SELECT at FROM t WHERE id < 24 AND matches(body, 'Needle7 FOUND')").await;
    assert!(plan.contains("pruned_statistics=6") && plan.contains("read=filter columns first"), "{plan}");
    let kept = number(&plan, "blocks");
    assert_eq!(number(&plan, "pruned_bloom"), 6 - kept, "{plan}");
    assert!((1..3).contains(&kept), "two chunks a block tell most of them apart: {plan}");

    let text = fixture.rows("EXPLAIN ANALYZE SELECT at FROM t WHERE matches(body, 'needle7')").await.join("\n");
    for part in ["footers=0", "pruned_bloom=", "false_positive_files=", "metastore_bytes="] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    fixture.set("tarn.pruning", "off").await;
    let plan = fixture.explain("SELECT at FROM t WHERE id >= 40 AND matches(body, 'needle7')").await;
    assert!(plan.contains("blocks=12/12") && plan.contains("metastore_bytes=0"), "{plan}");
    let text = fixture.rows("EXPLAIN ANALYZE SELECT at FROM t WHERE id >= 40").await.join("\n");
    assert_eq!(number(&text, "footers"), 3, "{text}");
}

#[tokio::test]
async fn files_that_were_opened_for_nothing_are_counted() {
    let fixture = logs(u64::MAX).await;
    // Every block has both words of it, no row has.
    let text = fixture.rows("EXPLAIN ANALYZE SELECT at FROM t WHERE matches(body, 'get here')").await.join("\n");
    assert_eq!(number(&text, "blocks_kept") > 0, number(&text, "false_positive_files") > 0, "{text}");
    let found = fixture.rows("EXPLAIN ANALYZE SELECT at FROM t WHERE matches(body, 'get')").await.join("\n");
    assert_eq!(number(&found, "false_positive_files"), 0, "{found}");
    let plain = fixture.rows("EXPLAIN ANALYZE SELECT at FROM t WHERE id > 3").await.join("\n");
    assert!(!plain.contains("false_positive_files"), "{plain}");
}

#[tokio::test]
async fn a_stage_with_nothing_to_ask_is_left_out() {
    let fixture = logs(u64::MAX).await;
    fixture.metastore.take();
    for (condition, asked) in [
        ("id >= 44", vec!["chunks 1x2"]),
        ("id > 1000", vec![]),
        ("id >= 44 AND n + 1 > 0", vec!["chunks 1x3"]),
        ("id >= 40 AND at > '2023-11-16 20:13:20Z'", vec!["stats 2x1", "chunks 1x3"]),
        ("id > 1000 AND at > '2023-11-16 20:13:20Z' AND matches(body, 'get')", vec![]),
        ("id >= 44 AND matches(body, 'get')", vec!["probe 1", "chunks 1x3"]),
        ("id >= 40 AND trace = 'trace-99' AND matches(body, 'nowhere')", vec!["probe 2"]),
    ] {
        fixture.rows(&format!("SELECT note FROM t WHERE {condition}")).await;
        assert_eq!(fixture.metastore.take(), asked, "{condition}");
    }
    fixture.rows("SELECT note, body FROM t").await;
    assert_eq!(fixture.metastore.take(), ["stats 12x2", "chunks 12x2"], "the planner's; and three files are one batch");
    fixture.set("tarn.pruning", "off").await;
    fixture.rows("SELECT note FROM t WHERE id >= 44 AND matches(body, 'get')").await;
    assert!(fixture.metastore.take().is_empty());
}

/// Of each file: where its last page ends, and where its footer starts.
async fn ends(fixture: &Fixture) -> BTreeMap<String, (u64, u64)> {
    let mut ends = BTreeMap::new();
    let paths: Vec<String> = {
        let id = fixture.table.schema.id;
        use tarn_metastore::{Metastore, VersionSelector};
        let lake = fixture.metastore.snapshot(id, VersionSelector::Latest).await.unwrap();
        lake.files.iter().map(|file| file.path.clone()).collect()
    };
    for path in paths {
        let bytes = fixture.store.get(&Path::from(path.as_str())).await.unwrap().bytes().await.unwrap();
        let footer = parquet::file::metadata::ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
        let chunks = footer.row_groups().iter().flat_map(|group| group.columns());
        let last_page = chunks.map(|chunk| chunk.byte_range()).map(|(start, bytes)| start + bytes).max().unwrap();
        let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap());
        ends.insert(path, (last_page, bytes.len() as u64 - 8 - u64::from(length)));
    }
    fixture.store.take();
    ends
}

const QUESTIONS: [&str; 7] = [
    "SELECT * FROM t",
    "SELECT id, trace FROM t WHERE n > 3",
    "SELECT count(*) FROM t WHERE matches(body, 'needle7')",
    "SELECT note FROM t WHERE trace = 'trace-20'",
    "SELECT id FROM t ORDER BY price LIMIT 4",
    "SELECT 1 FROM t",
    "SELECT price, ratio, flag FROM t WHERE at > TIMESTAMPTZ '2023-11-15 06:13:20Z' AND note LIKE 'plain%'",
];

#[tokio::test]
async fn no_footer_is_read() {
    let fixture = logs(u64::MAX).await;
    fixture.table.delete(&row(3, 0));
    fixture.table.deliver().await;
    let ends = ends(&fixture).await;
    for sql in QUESTIONS {
        fixture.rows(sql).await;
        let reads = fixture.store.take();
        assert!(!reads.is_empty() || sql == "SELECT 1 FROM t", "{sql}");
        for (path, range) in reads {
            assert!(range.end <= ends[&path].0, "{sql} read {range:?} of {path}, whose pages end at {}", ends[&path].0);
        }
    }
}

#[tokio::test]
async fn of_the_page_index_only_the_columns_that_are_read_are() {
    let (with, without) = (logs(0).await, logs(u64::MAX).await);
    for fixture in [&with, &without] {
        fixture.table.delete(&row(3, 0));
        fixture.table.deliver().await;
    }
    let ends = ends(&with).await;
    let mut index_bytes = BTreeMap::new();
    for sql in QUESTIONS {
        assert_eq!(with.sorted(sql).await, without.sorted(sql).await, "{sql}");
        for (path, range) in with.store.take() {
            let (last_page, footer) = ends[&path];
            assert!(range.end <= footer, "{sql} read {range:?} of {path}, whose footer is at {footer}");
            if range.start >= last_page {
                *index_bytes.entry(sql).or_insert(0) += range.end - range.start;
            }
        }
    }
    let all: u64 = ends.values().map(|(last_page, footer)| footer - last_page).sum();
    assert!((1..all / 2).contains(&index_bytes[QUESTIONS[1]]), "{index_bytes:?} of {all}");
}

#[tokio::test]
async fn a_metastore_that_is_away_is_named_and_comes_back() {
    let fixture = logs(u64::MAX).await;
    fixture.metastore.set_away(true);
    for sql in ["SELECT id FROM t WHERE at > '2023-11-16 20:13:20Z'", "SELECT sum(n) FROM t"] {
        let error = fixture.session.collect(sql).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
        let text = format!("{error}");
        assert!(text.contains("blocks of t") && text.contains("cql://10.0.0.1"), "{text}");
    }
    fixture.metastore.set_away(false);
    assert_eq!(fixture.one("SELECT count(n) > 3 FROM t").await, "true");
}
