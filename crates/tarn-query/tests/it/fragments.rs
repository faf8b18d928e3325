//! Law 4 for fragments: a statement gives the same rows whether what its leaves gave of files is used again or not,
//! whatever happened to the table and whatever was asked before. And what was given once is not read again.

use std::collections::BTreeSet;
use std::path::Path;

use futures::StreamExt;
use proptest::prelude::*;
use tarn_cache::{FragmentCache, FragmentOptions};
use tarn_query::Options;
use tarn_query::datafusion::physical_plan::collect;
use tarn_types::Value;
use tokio::runtime::Handle;

use crate::block_metadata::KeptMetadata;
use crate::fixture::{Fixture, to_text};
use crate::pruning::{PruningOp, condition, number, row, schema, step};

const EPOCH: &str = "TIMESTAMPTZ '2023-11-14 22:13:20Z'";

struct CachedFixture {
    fixture: Fixture,
    cache: FragmentCache,
}

impl CachedFixture {
    async fn new(keep: KeptMetadata) -> CachedFixture {
        CachedFixture::with(keep, 2).await
    }

    async fn with(keep: KeptMetadata, target_partitions: usize) -> CachedFixture {
        CachedFixture::with_options(keep, Options { target_partitions, ..Options::default() }).await
    }

    async fn with_options(keep: KeptMetadata, options: Options) -> CachedFixture {
        let cache = FragmentCache::open(FragmentOptions::default()).unwrap();
        let options = Options { fragments: Some(cache.clone()), ..options };
        let fixture = Fixture::keeping(schema(), options, keep).await;
        fixture.set("tarn.access_path", "lake").await;
        CachedFixture { fixture, cache }
    }

    /// Files of 16 rows each, in blocks of four: a row each hour.
    async fn files(n_files: i64) -> CachedFixture {
        CachedFixture::new(KeptMetadata::Bounds).await.filled(n_files).await
    }

    async fn filled(self, n_files: i64) -> CachedFixture {
        let cached = self;
        for id in 0..16 * n_files {
            let mut row = row(id, id as u64 * 77 + 5);
            row[5] = Value::Timestamp(1_700_000_000_000_000 + id * 3_600_000_000);
            cached.fixture.table.put(row);
            if id % 16 == 15 {
                cached.fixture.table.deliver().await;
            }
        }
        cached
    }

    /// Runs it, and says what became of its fragments: hits, misses, kept.
    async fn counts(&self, sql: &str) -> (u64, u64, u64) {
        let text = self.analyzed(sql).await;
        let sum = |name: &str| {
            let of_node = |line: &str| number(line, name);
            text.lines().filter(|line| line.contains("FragmentExec")).map(of_node).sum()
        };
        (sum("hits"), sum("misses"), sum("kept"))
    }

    async fn analyzed(&self, sql: &str) -> String {
        self.fixture.rows(&format!("EXPLAIN ANALYZE {sql}")).await.join("\n")
    }

    /// With and without, in any order.
    async fn agrees(&self, sql: &str) {
        self.fixture.set("tarn.cache.fragments", "off").await;
        let expected = self.fixture.sorted(sql).await;
        self.fixture.set("tarn.cache.fragments", "on").await;
        for time in 0..2 {
            assert_eq!(self.fixture.sorted(sql).await, expected, "{sql}, time {time}");
        }
    }

    fn files_read(&self) -> usize {
        self.fixture.store.take().into_iter().map(|(path, _)| path).collect::<BTreeSet<_>>().len()
    }
}

#[tokio::test]
async fn a_statement_comes_before_what_may_be_kept_of_it() {
    let sql = "SELECT id, note FROM t WHERE n % 2 = 0";
    for (memory_bytes, is_kept) in [(1 << 20, true), (64, false)] {
        let options = Options { memory_bytes, target_partitions: 2, ..Options::default() };
        let cached = CachedFixture::with_options(KeptMetadata::Bounds, options).await.filled(3).await;
        cached.agrees(sql).await;
        assert_eq!(cached.counts(sql).await, if is_kept { (3, 0, 0) } else { (0, 3, 0) }, "{memory_bytes}");
    }
}

pub fn questions() -> impl Strategy<Value = String> {
    let outputs = prop_oneof![
        Just("*"),
        Just("id"),
        Just("note, id"),
        Just("id AS x, n + 1 AS y, price * 2, lower(trace)"),
        Just("count(*), sum(n), min(at), max(note), avg(price)"),
        Just("count(ratio), sum(CASE WHEN flag THEN n ELSE 1 END), bool_or(flag)"),
        Just("sum(ratio), min(ratio), max(ratio)"),
        Just("count(DISTINCT trace)"),
    ];
    let grouped = prop_oneof![
        Just(("trace, count(*), max(at)", "trace")),
        Just(("flag, trace, sum(n) FILTER (WHERE n > 3), min(note)", "trace, flag")),
        Just(("n % 5, sum(price), count(ratio)", "n % 5")),
        Just(("ratio, count(*)", "ratio")),
        Just(("trace", "trace")),
    ];
    prop_oneof![
        5 => (outputs, condition()).prop_map(|(outputs, c)| format!("SELECT {outputs} FROM t WHERE {c}")),
        3 => (grouped.clone(), condition())
            .prop_map(|((outputs, by), c)| format!("SELECT {outputs} FROM t WHERE {c} GROUP BY {by}")),
        1 => grouped.prop_map(|(outputs, by)| format!("SELECT {outputs} FROM t GROUP BY {by}")),
        2 => (condition(), condition(), 0..60).prop_map(|(c, d, id)| format!(
            "SELECT x.id, y.trace FROM (SELECT * FROM t WHERE {c}) x JOIN (SELECT * FROM t WHERE {d} AND id < {id}) y \
             ON x.n = y.n"
        )),
        1 => (condition(), 0..60).prop_map(|(c, id)| format!(
            "SELECT y.trace, count(*), sum(x.n) FROM t x JOIN t y ON x.id = y.id WHERE x.id < {id} \
             AND y.id IN (SELECT id FROM t WHERE {c}) GROUP BY y.trace"
        )),
        1 => condition().prop_map(|c| format!("SELECT id FROM t WHERE {c} ORDER BY n, id LIMIT 4")),
        1 => (condition(), condition())
            .prop_map(|(c, d)| format!("SELECT id FROM t WHERE {c} UNION ALL SELECT n FROM t WHERE {d}")),
    ]
}

#[derive(Debug, Clone)]
enum Turn {
    Change(PruningOp),
    Ask(usize),
}

async fn law_4(keep: KeptMetadata, partitions: usize, questions: Vec<String>, turns: Vec<Turn>) {
    let cached = CachedFixture::with(keep, partitions).await;
    for turn in turns {
        match turn {
            Turn::Change(step) => step.run(&cached.fixture).await,
            Turn::Ask(at) => cached.agrees(&questions[at % questions.len()]).await,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_without_fragments(
        keep in prop_oneof![Just(KeptMetadata::Bounds), Just(KeptMetadata::Metadata), Just(KeptMetadata::SomeMetadata)],
        partitions in 1..4usize,
        questions in proptest::collection::vec(questions(), 3..6),
        first in proptest::collection::vec(step(), 20..60),
        turns in proptest::collection::vec(
            prop_oneof![3 => step().prop_map(Turn::Change), 2 => any::<usize>().prop_map(Turn::Ask)], 5..40),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let turns = first.into_iter().map(Turn::Change).chain(turns).collect();
        runtime.block_on(law_4(keep, partitions, questions, turns));
    }
}

#[tokio::test]
async fn a_wider_range_reads_only_what_the_narrow_one_did_not() {
    let cached = CachedFixture::files(5).await;
    let sum = |from: i64, to: i64| format!("SELECT sum(n), count(*) FROM t WHERE id >= {from} AND id < {to}");
    assert_eq!(cached.counts(&sum(16, 64)).await, (0, 3, 3));
    cached.files_read();
    assert_eq!(cached.counts(&sum(0, 80)).await, (3, 2, 2));
    assert_eq!(cached.files_read(), 2);
    // Of a file that lies across the end, the part is another one.
    assert_eq!(cached.counts(&sum(3, 64)).await, (3, 1, 1));
    assert_eq!(cached.counts(&sum(0, 80)).await, (5, 0, 0));
    assert_eq!(cached.files_read(), 1);
    cached.agrees(&sum(3, 70)).await;
}

#[tokio::test]
async fn a_moving_window_reads_only_the_file_across_its_start() {
    let cached = CachedFixture::files(5).await;
    let since =
        |hour: i64| format!("SELECT trace, sum(n) FROM t WHERE at > {EPOCH} + INTERVAL '{hour} hours' GROUP BY trace");
    assert_eq!(cached.counts(&since(20)).await, (0, 4, 4));
    for hour in 21..31 {
        cached.files_read();
        assert_eq!(cached.counts(&since(hour)).await, (3, 1, 1), "{hour}");
        assert_eq!(cached.files_read(), 1);
        cached.agrees(&since(hour)).await;
    }
}

#[tokio::test]
async fn a_condition_that_all_rows_meet_does_not_matter() {
    let cached = CachedFixture::files(3).await;
    assert_eq!(cached.counts("SELECT sum(n) FROM t").await, (0, 3, 3));
    for loose in [
        "at > now() - INTERVAL '36500 days'",
        "id < 1000 AND id >= 0",
        "id IS NOT NULL AND id <> 77",
        "at BETWEEN TIMESTAMPTZ '2001-01-01' AND TIMESTAMPTZ '2101-01-01'",
        "id NOT IN (100, 200)",
    ] {
        assert_eq!(cached.counts(&format!("SELECT sum(n) FROM t WHERE {loose}")).await, (3, 0, 0), "{loose}");
    }
    for close in ["n < 1000", "ratio < 1000", "id < 47"] {
        let (hits, misses, _) = cached.counts(&format!("SELECT sum(n) FROM t WHERE {close}")).await;
        assert!(misses > 0 && hits + misses == 3, "{close}: {hits}, {misses}");
    }
}

#[tokio::test]
async fn names_and_the_order_of_columns_and_conditions_do_not_matter() {
    let cached = CachedFixture::files(3).await;
    cached.counts("SELECT id, note, n + 2 AS m FROM t WHERE n > 3 AND trace <> 't-3'").await;
    for same in [
        "SELECT 2 + n AS k, x.note AS a, x.id FROM t x WHERE 't-3' <> trace AND 3 < n",
        "SELECT note, id, m FROM (SELECT note, id, n + 2 AS m, trace AS r FROM t WHERE n > 3) WHERE r <> 't-3'",
        "SELECT note, id, n + 2 FROM t WHERE n > 3 AND trace <> 't-3' AND n > 3 AND id > -5",
    ] {
        assert_eq!(cached.counts(same).await, (3, 0, 0), "{same}");
        cached.agrees(same).await;
    }
    let first = "SELECT trace, flag, sum(n), count(*) FROM t WHERE n IN (1, 2, 3, 4) GROUP BY trace, flag";
    let (_, asked, _) = cached.counts(first).await;
    let same = "SELECT count(*) AS c, flag, sum(n) AS s, trace FROM t WHERE n IN (4, 3, 2, 1, 1) GROUP BY flag, trace";
    assert!(asked > 1);
    assert_eq!(cached.counts(same).await, (asked, 0, 0));
    cached.agrees(same).await;
}

#[tokio::test]
async fn dead_rows_make_another_file_and_hidden_ones_none() {
    let cached = CachedFixture::files(3).await;
    let question = "SELECT count(*), sum(n) FROM t WHERE trace <> 't-3'";
    assert_eq!(cached.counts(question).await, (0, 3, 3));
    cached.fixture.table.delete(&row(20, 0));
    let text = cached.analyzed(question).await;
    assert!(text.contains("fragments=2, left_out=1 recent changes"), "{text}");
    assert_eq!(cached.counts(question).await, (2, 0, 0));
    cached.agrees(question).await;
    cached.fixture.table.deliver().await;
    assert_eq!(cached.counts(question).await, (2, 1, 1));
    assert_eq!(cached.counts(question).await, (3, 0, 0));
    cached.agrees(question).await;
    for id in [0, 21, 40] {
        cached.fixture.table.put(row(id, 3));
    }
    let text = cached.analyzed(question).await;
    assert!(text.contains("fragments_not_used=\"3 recent changes\""), "{text}");
    cached.fixture.table.compact().await;
    cached.agrees(question).await;
}

#[tokio::test]
async fn both_sides_of_a_join_are_fragments() {
    let cached = CachedFixture::files(3).await;
    let join = "SELECT x.id, y.note FROM t x JOIN t y ON x.n = y.n WHERE x.trace = 't-2' AND y.flag AND y.ratio > 1";
    for _ in 0..2 {
        cached.agrees(join).await;
    }
    let (hits, misses, _) = cached.counts(join).await;
    assert!(hits == 6 && misses == 0, "{hits}, {misses}: {}", cached.analyzed(join).await);
    cached.files_read();
    cached.fixture.rows(join).await;
    assert_eq!(cached.files_read(), 0);
}

#[tokio::test]
async fn a_filter_of_a_join_leaves_nothing_in_what_is_kept() {
    let cached = CachedFixture::files(3).await;
    // Of the probe side, the join needs two rows.
    let join = "SELECT x.id, y.note FROM (SELECT * FROM t WHERE id IN (5, 6)) x JOIN (SELECT * FROM t WHERE ratio > -3) y \
                ON x.id = y.id";
    let first = cached.analyzed(join).await;
    assert!(first.contains("first seen under a filter of a join"), "{first}");
    for _ in 0..3 {
        cached.fixture.rows(join).await;
    }
    cached.agrees("SELECT note, id FROM t WHERE ratio > -3").await;
    assert_eq!(cached.counts("SELECT note, id FROM t WHERE ratio > -3").await, (3, 0, 0), "shared with the join");
    // The least value so far spares reading files with greater ones.
    for _ in 0..2 {
        cached.agrees("SELECT min(id) FROM t WHERE n > -100").await;
        cached.agrees("SELECT max(id) FROM t WHERE n > -100").await;
    }
}

#[tokio::test]
async fn what_is_no_fragment_says_why() {
    let cached = CachedFixture::files(2).await;
    for (sql, why) in [
        ("SELECT id FROM t WHERE n > 3 LIMIT 2", "a limit"),
        ("SELECT id FROM t WHERE n > 3 ORDER BY n LIMIT 2", "a limit"),
        ("SELECT * FROM t", "nothing is left out"),
        ("SELECT id FROM t WHERE n > random() * 5", "random()"),
        ("SELECT sum(ratio) FROM t WHERE n > 3", "the order of rows matters to sum(t.ratio)"),
        ("SELECT avg(n) FROM t WHERE n > 3", "the order of rows matters to avg(t.n)"),
        ("SELECT y.id, sum(x.ratio) FROM t x JOIN t y ON x.id = y.id WHERE x.n > 3 GROUP BY y.id", "the order of rows"),
        ("SELECT array_agg(id) FROM t WHERE n > 3", "the order of rows matters to array_agg"),
        ("SELECT count(*) FROM t GROUP BY ratio", "a group by a float"),
        ("SELECT id FROM t WHERE n > 3 ORDER BY id", ""),
    ] {
        cached.agrees(sql).await;
        let plan = cached.fixture.explain(sql).await;
        let said = plan.split("fragments_not_used=").nth(1).unwrap_or_default();
        assert!(said.contains(why), "{why} in\n{plan}");
        cached.agrees(sql).await;
    }
    cached.fixture.set("tarn.cache.fragments", "off").await;
    let plan = cached.fixture.explain("SELECT sum(n) FROM t").await;
    assert!(plan.contains("fragments_not_used=\"tarn.cache.fragments is off\""), "{plan}");
    cached.fixture.set("tarn.cache.fragments", "on").await;
    cached.fixture.set("tarn.pruning", "off").await;
    let plan = cached.fixture.explain("SELECT sum(n) FROM t").await;
    assert!(plan.contains("fragments_not_used=\"tarn.pruning is off\""), "{plan}");
    cached.fixture.set("tarn.pruning", "on").await;
    cached.cache.set_on(false);
    let plan = cached.fixture.explain("SELECT sum(n) FROM t").await;
    assert!(plan.contains("fragments_not_used=\"the cache of fragments is off\""), "{plan}");
}

#[tokio::test]
async fn a_stream_that_is_dropped_keeps_nothing() {
    let cached = CachedFixture::files(3).await;
    let sql = "SELECT id, note FROM t WHERE n > -100";
    let mut stream = cached.fixture.session.sql(sql).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert!(first.num_rows() > 0);
    drop(stream);
    // Those that ended before may be there, and are whole.
    cached.agrees(sql).await;
    let before = cached.cache.stats().kept;
    let stream =
        cached.fixture.session.sql("SELECT trace, count(*) FROM t WHERE n > -100 GROUP BY trace").await.unwrap();
    drop(stream);
    assert_eq!(cached.cache.stats().kept, before);
}

#[tokio::test]
async fn what_is_too_large_is_not_tried_again() {
    let cached = CachedFixture::new(KeptMetadata::Bounds).await;
    for id in 0..60 {
        let mut row = row(id, 7);
        row[8] = Value::Text(format!("{id}").repeat(1000));
        cached.fixture.table.put(row);
    }
    cached.fixture.table.deliver().await;
    let sql = "SELECT note FROM t WHERE n > -100";
    let first = cached.analyzed(sql).await;
    let line = first.lines().find(|line| line.contains("FragmentExec")).unwrap();
    assert_eq!((number(line, "refused"), number(line, "kept")), (1, 0), "{first}");
    let again = cached.analyzed(sql).await;
    assert!(again.contains("fragments_not_used=\"1 too large\""), "{again}");
    cached.agrees(sql).await;
}

#[tokio::test]
async fn a_plan_gives_all_rows_each_time_it_runs() {
    let cached = CachedFixture::files(3).await;
    let session = &cached.fixture.session;
    let plan = session.plan(&session.parse("SELECT id FROM t WHERE n > -100").unwrap()).await.unwrap();
    let (physical, state) = session.physical(&plan).await.unwrap();
    let mut answers = vec![];
    for _ in 0..3 {
        let batches = collect(physical.clone(), state.task_ctx()).await.unwrap();
        let mut rows = to_text(&batches);
        rows.sort();
        answers.push(rows);
    }
    assert!(!answers[0].is_empty() && answers[0] == answers[1] && answers[0] == answers[2], "{answers:?}");
}

#[tokio::test]
async fn hits_read_no_file_and_ask_no_metastore() {
    let cached = CachedFixture::files(4).await;
    let sql = "SELECT trace, sum(price), count(*) FROM t WHERE n > 0 GROUP BY trace";
    let expected = cached.fixture.sorted(sql).await;
    cached.fixture.store.take();
    cached.fixture.metastore.take();
    assert_eq!(cached.fixture.sorted(sql).await, expected);
    assert!(cached.fixture.store.take().is_empty() && cached.fixture.metastore.take().is_empty());
    cached.cache.clear(Some(&cached.fixture.table.schema.id.0.to_string()));
    assert_eq!(cached.counts(sql).await, (0, 4, 4));
}

#[tokio::test]
async fn filters_that_the_scan_applies_are_conditions() {
    let cached = CachedFixture::files(3).await;
    let sql = |n: i64| format!("SELECT id, note FROM t WHERE n > {n} AND trace <> 't-3'");
    cached.fixture.set("datafusion.execution.parquet.pushdown_filters", "true").await;
    let plan = cached.fixture.explain(&sql(3)).await;
    assert!(plan.contains("FragmentExec") && !plan.contains("FilterExec"), "{plan}");
    for n in [3, 5, -3] {
        cached.agrees(&sql(n)).await;
    }
    cached.fixture.set("datafusion.execution.parquet.pushdown_filters", "false").await;
    assert_eq!(cached.counts(&sql(5)).await, (3, 0, 0), "wherever the filter is");
    cached.agrees(&sql(5)).await;
}

/// A filter that a node above pushed down to spare blocks is no condition of what the leaf gives.
#[tokio::test]
async fn a_filter_from_above_an_aggregate_does_not_narrow_what_is_kept() {
    let cached = CachedFixture::files(4).await;
    let inner = "SELECT id, flag, count(*) AS c FROM t GROUP BY id, flag";
    let outer =
        format!("SELECT id, flag, sum(c) FROM ({inner}) q GROUP BY GROUPING SETS ((id, flag), (id)) HAVING id > 40");
    let semi = "SELECT x.id FROM (SELECT id, flag FROM t WHERE n < 100) x WHERE x.id IN (SELECT id FROM t WHERE n < 100 AND id > 40)";
    cached.agrees(&outer).await;
    cached.agrees(semi).await;
    for sql in [inner, "SELECT id, flag FROM t WHERE n < 100", "SELECT id FROM t WHERE n < 100"] {
        cached.agrees(sql).await;
    }
}

/// Recent rows make a union below the scan's node, into which projections move.
#[tokio::test]
async fn a_node_below_the_union_is_part_of_the_leaf_or_there_is_none() {
    let cached = CachedFixture::files(2).await;
    cached.fixture.table.put(row(1_000, 3));
    cached.fixture.set("datafusion.execution.parquet.pushdown_filters", "true").await;
    for sql in [
        "SELECT tarn_tokens(l), length(l) + id + n FROM (SELECT lower(note) l, id, n FROM t WHERE flag) q",
        "SELECT length(l) + id + n, l || 'x' FROM (SELECT lower(note) l, id, n FROM t WHERE flag) q",
        "SELECT upper(note), id % 3 FROM t WHERE n > 2 AND flag",
    ] {
        cached.agrees(sql).await;
    }
}

#[tokio::test]
async fn where_the_order_of_rows_matters_above_there_is_no_fragment() {
    let cached = CachedFixture::files(2).await;
    for sql in [
        "SELECT sum(ratio) OVER (PARTITION BY trace) FROM t WHERE n > 3",
        "SELECT sum(DISTINCT ratio), sum(DISTINCT n) FROM t WHERE n > 3",
    ] {
        let plan = cached.fixture.explain(sql).await;
        assert!(plan.contains("the order of rows matters") && !plan.contains("FragmentExec"), "{plan}");
        cached.agrees(sql).await;
    }
}

/// On disk alone.
async fn in_folder(folder: &Path) -> FragmentCache {
    let options = FragmentOptions {
        ram_bytes: 0,
        folder: Some(folder.to_owned()),
        runtime: Some(Handle::current()),
        ..FragmentOptions::default()
    };
    // Tasks of the last statement may hold the cache before this one a little longer than its answer took.
    for _ in 0..1_000 {
        match FragmentCache::open(options.clone()) {
            Err(tarn_cache::Error::Folder { source, .. }) if source.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("somebody keeps the folder");
}

impl CachedFixture {
    async fn restarted(self, folder: &Path) -> CachedFixture {
        let CachedFixture { fixture, cache } = self;
        drop(cache);
        let fixture = fixture.restarted(Options::default());
        let cache = in_folder(folder).await;
        let fixture = fixture.restarted(Options { fragments: Some(cache.clone()), ..Options::default() });
        fixture.set("tarn.access_path", "lake").await;
        CachedFixture { fixture, cache }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_outlive_the_process_and_damage_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let cached = CachedFixture::files(4).await.restarted(folder.path()).await;
    let sql = "SELECT trace, sum(price), max(note) FROM t WHERE n > 0 GROUP BY trace";
    let expected = cached.fixture.sorted(sql).await;
    cached.cache.write_waiting();
    let cached = cached.restarted(folder.path()).await;
    cached.fixture.store.take();
    assert_eq!(cached.fixture.sorted(sql).await, expected);
    assert_eq!((cached.files_read(), cached.cache.stats().disk_hits), (0, 4));
    let mut damaged = 0;
    let mut folders = vec![folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut bytes = std::fs::read(&path).unwrap();
            // Far from the front, where the key is.
            if let Some(at) = bytes.len().checked_sub(200) {
                bytes[at] ^= 1;
                std::fs::write(&path, bytes).unwrap();
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, 4);
    assert_eq!(cached.fixture.sorted(sql).await, expected);
    assert_eq!(cached.files_read(), 4);
    cached.cache.write_waiting();
    assert_eq!(cached.counts(sql).await, (4, 0, 0), "written again");
    assert_eq!(cached.fixture.sorted(sql).await, expected);
}
