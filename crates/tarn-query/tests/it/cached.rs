//! Law 4 for the caches of files' metadata and of fragments: whatever becomes of files and columns between two queries,
//! who has the cache answers as who has none; and what was put together once is not asked for again.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use parking_lot::Mutex;
use proptest::prelude::*;
use roaring::RoaringBitmap;
use tarn_cache::{FooterCache, FragmentCache, FragmentOptions, ProjectedCache, ReadStore};
use tarn_metastore::{
    Commit, CommitKind, Definition, ExpectedVersion, File, Memory, Metastore, MetastoreExt, VersionSelector,
};
use tarn_query::{Engine, HotCatalog, HotSource, HotView, Options, Session};
use tarn_types::{
    Column, DataType, FileId, KeyPart, ManualClock, SeqNo, TableId, TableOptions, TableSchema, TabletId, Value, Version,
};
use uuid::Uuid;

use crate::block_metadata::KeptMetadata;
use crate::fixture::{Fixture, Row, column, row, to_text, write_file};
use crate::nothing_hot::{NoSystemTables, NothingHot, TypedReader};
use crate::pruning::number;
use crate::recording::{RecordingMetastore, RecordingStore};

/// A table without hot rows, whose columns and files change.
struct CachedTable {
    metastore: Arc<RecordingMetastore>,
    store: Arc<RecordingStore>,
    keep: KeptMetadata,
    now: Mutex<CurrentTable>,
}

#[derive(Clone)]
struct CurrentTable {
    schema: Arc<TableSchema>,
    version: Version,
    /// Rows and paths of its files.
    files: BTreeMap<FileId, (String, Vec<Row>)>,
    next_row: i64,
}

struct SharedTable(Arc<CachedTable>);

impl HotCatalog for SharedTable {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        vec![self.0.schema()]
    }

    fn table(&self, _: &str) -> Option<Arc<dyn HotSource>> {
        Some(Arc::clone(&self.0) as _)
    }
}

impl HotSource for CachedTable {
    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.now.lock().schema)
    }
}

impl crate::nothing_hot::CurrentSource for CachedTable {
    fn now(&self) -> Arc<dyn HotView> {
        Arc::new(NothingHot::at(self.now.lock().version))
    }
}

impl CachedTable {
    async fn new(keep: KeptMetadata) -> Arc<CachedTable> {
        let metastore = Arc::new(RecordingMetastore::new(Arc::new(Memory::new(Arc::new(ManualClock::default())))));
        let id = Column { nullable: false, ..column(1, "id", DataType::Int64) };
        let schema = TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: vec![id, column(2, "n", DataType::Int16), column(3, "body", DataType::Text)],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        };
        let schema = metastore.create_table(schema).await.unwrap();
        let store = Arc::new(RecordingStore::new(Arc::new(InMemory::new())));
        let now = CurrentTable { schema, version: Version(0), files: BTreeMap::new(), next_row: 0 };
        Arc::new(CachedTable { metastore, store, keep, now: Mutex::new(now) })
    }

    /// With fragments only where there is a cache of metadata.
    fn session(self: &Arc<Self>, metadata_bytes: usize, page_index_bytes: u64) -> (Arc<ProjectedCache>, Session) {
        let metadata = Arc::new(ProjectedCache::new(metadata_bytes));
        let fragments = (metadata_bytes > 0).then(|| FragmentCache::open(FragmentOptions::default()).unwrap());
        let engine = Engine::new(
            Options { metadata: Arc::clone(&metadata), page_index_bytes, fragments, ..Options::default() },
            Arc::clone(&self.metastore) as _,
            ReadStore::plain(Arc::clone(&self.store) as _, "in memory"),
            Arc::new(FooterCache::new(16 << 20)),
            Arc::new(SharedTable(Arc::clone(self))),
            Arc::new(NoSystemTables),
        );
        (metadata, engine.unwrap().session(TypedReader::<CachedTable>::all()))
    }

    /// Of the table as it is now, with no key that was there before.
    fn new_rows(&self, seed: u64) -> Vec<Row> {
        let mut now = self.now.lock();
        let n_rows = 1 + seed % 14;
        let first = now.next_row;
        now.next_row += n_rows as i64;
        let value = |column: &Column, id: i64| match column.data_type {
            _ if column.name == "id" => Value::Int64(id),
            _ if (id as u64 + seed).is_multiple_of(5) => Value::Null,
            DataType::Int16 => Value::Int16((id % 50) as i16),
            DataType::Int32 => Value::Int32((id % 50) as i32 + 100_000),
            DataType::Int64 => Value::Int64(id % 50 + (1 << 40)),
            _ => Value::Text(format!("{}-{}", column.name, (id as u64 + seed) % 9)),
        };
        (first..now.next_row).map(|id| now.schema.columns.iter().map(|column| value(column, id)).collect()).collect()
    }

    async fn file(&self, rows: &[Row]) -> (File, Vec<tarn_metastore::BlockMetadata>) {
        let id = self.metastore.allocate_files(1).await.unwrap();
        let rows: Vec<_> = rows.iter().map(|row| (row.clone(), SeqNo(1))).collect();
        write_file(&self.schema(), id, &rows, self.store.as_ref(), self.keep).await
    }

    async fn commit(
        &self,
        remove: Vec<FileId>,
        add: Option<(File, Vec<tarn_metastore::BlockMetadata>, Vec<Row>)>,
        dead: BTreeMap<FileId, RoaringBitmap>,
    ) {
        let (mut added, mut block_metadata, mut kept) = (vec![], BTreeMap::new(), None);
        if let Some((file, of_file, rows)) = add {
            kept = Some((file.id, (file.path.clone(), rows)));
            block_metadata.insert(file.id, of_file);
            added.push(file);
        }
        let (table, version) = (self.schema().id, self.now.lock().version);
        let commit = Commit {
            id: Uuid::new_v4(),
            expected: ExpectedVersion::At(version),
            add: added,
            block_metadata,
            remove: remove.clone(),
            deletion_vectors: dead,
            cursor: None,
            kind: CommitKind::Compaction,
            at_ms: 0,
        };
        let version = self.metastore.commit(table, commit).await.unwrap();
        let mut now = self.now.lock();
        now.version = version;
        remove.iter().for_each(|file| drop(now.files.remove(file)));
        now.files.extend(kept);
    }

    async fn alter(&self, change: impl FnOnce(&mut TableSchema)) {
        let from = self.schema();
        let mut to = (*from).clone();
        change(&mut to);
        let altered = self.metastore.define(Definition::Alter { from, to: Box::new(to) }).await.unwrap();
        self.now.lock().schema = altered;
    }

    fn nth(&self, n: usize) -> Option<(FileId, String, Vec<Row>)> {
        let now = self.now.lock();
        let (id, (path, rows)) = now.files.iter().nth(n % now.files.len().max(1))?;
        Some((*id, path.clone(), rows.clone()))
    }

    async fn run(&self, step: FileOp) {
        match step {
            FileOp::Add(seed) => {
                let rows = self.new_rows(seed);
                let (file, block_metadata) = self.file(&rows).await;
                self.commit(vec![], Some((file, block_metadata, rows)), BTreeMap::new()).await;
            }
            // Other rows under the path of a file that goes.
            FileOp::Replace(n, seed) => {
                let Some((id, path, _)) = self.nth(n) else { return };
                let rows = self.new_rows(seed);
                let (mut file, block_metadata) = self.file(&rows).await;
                let bytes = self.store.get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap();
                self.store.put(&Path::from(path.as_str()), PutPayload::from(bytes)).await.unwrap();
                file.path = path;
                self.commit(vec![id], Some((file, block_metadata, rows)), BTreeMap::new()).await;
            }
            FileOp::Kill(n, row) => {
                let Some((id, _, rows)) = self.nth(n) else { return };
                let lake = self.metastore.snapshot(self.schema().id, VersionSelector::Latest).await.unwrap();
                let mut dead = lake.deletion_vectors.get(&id).map_or_else(RoaringBitmap::new, |dead| (**dead).clone());
                dead.insert((row % rows.len()) as u32);
                self.commit(vec![], None, [(id, dead)].into()).await;
            }
            FileOp::Compact => {
                let Some(_) = self.nth(0) else { return };
                let (remove, rows): (Vec<_>, Vec<_>) = {
                    let now = self.now.lock();
                    (
                        now.files.keys().copied().collect(),
                        now.files.values().flat_map(|(_, rows)| rows.clone()).collect(),
                    )
                };
                let rows: Vec<Row> = rows.into_iter().map(|row| self.as_of_now(row)).collect();
                let (mut file, block_metadata) = self.file(&rows).await;
                file.sorted_by_key = false;
                self.commit(remove, Some((file, block_metadata, rows)), BTreeMap::new()).await;
            }
            FileOp::Widen => {
                self.alter(|to| {
                    to.columns[1].data_type = match to.columns[1].data_type {
                        DataType::Int16 => DataType::Int32,
                        _ => DataType::Int64,
                    };
                })
                .await;
            }
            FileOp::AddColumn => {
                let name = format!("c{}", self.schema().columns.len());
                self.alter(|to| to.columns.push(column(99, &name, DataType::Text))).await;
            }
        }
    }

    /// A row of an older definition in the types of the table as it is now.
    fn as_of_now(&self, row: Row) -> Row {
        let schema = self.schema();
        let given = row.into_iter().chain(std::iter::repeat(Value::Null));
        let widened = given.zip(&schema.columns).map(|(value, column)| match (value, column.data_type) {
            (Value::Int16(v), DataType::Int32) => Value::Int32(v.into()),
            (Value::Int16(v), DataType::Int64) => Value::Int64(v.into()),
            (Value::Int32(v), DataType::Int64) => Value::Int64(v.into()),
            (value, _) => value,
        });
        widened.collect()
    }
}

#[derive(Debug, Clone)]
enum FileOp {
    Add(u64),
    Replace(usize, u64),
    Kill(usize, usize),
    Compact,
    Widen,
    AddColumn,
}

fn step() -> impl Strategy<Value = FileOp> {
    prop_oneof![
        4 => (0..1000u64).prop_map(FileOp::Add),
        3 => (0..8usize, 0..1000u64).prop_map(|(n, seed)| FileOp::Replace(n, seed)),
        2 => (0..8usize, 0..20usize).prop_map(|(n, row)| FileOp::Kill(n, row)),
        1 => Just(FileOp::Compact),
        1 => Just(FileOp::Widen),
        1 => Just(FileOp::AddColumn),
    ]
}

const QUESTIONS: [&str; 8] = [
    "SELECT * FROM t",
    "SELECT n FROM t WHERE n > 20",
    "SELECT n, body FROM t WHERE n > 20",
    "SELECT body, id FROM t WHERE id < 20 OR id > 40",
    "SELECT * FROM t ORDER BY id LIMIT 3",
    "SELECT body FROM t WHERE n < 100040 ORDER BY id DESC LIMIT 2",
    "SELECT count(*), sum(n), max(body) FROM t WHERE body > 'body-3'",
    "SELECT count(*) FROM t WHERE n IS NULL",
];

async fn answer(session: &Session, sql: &str) -> Vec<String> {
    let mut rows = to_text(&session.collect(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}")));
    rows.sort();
    rows
}

async fn law_4(keep: KeptMetadata, cache_bytes: usize, page_index_bytes: u64, steps: Vec<(FileOp, Vec<usize>)>) {
    let table = CachedTable::new(keep).await;
    let (metadata, with) = table.session(cache_bytes, page_index_bytes);
    let (_, without) = table.session(0, page_index_bytes);
    for session in [&with, &without] {
        session.collect("SET tarn.access_path = 'lake'").await.unwrap();
    }
    for (step, asked) in steps {
        table.run(step).await;
        for sql in asked.into_iter().map(|at| QUESTIONS[at]) {
            let expected = answer(&without, sql).await;
            assert_eq!(answer(&with, sql).await, expected, "{sql}");
            assert_eq!(answer(&with, sql).await, expected, "{sql}, again");
        }
    }
    assert!(metadata.stats().bytes <= cache_bytes as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_without_the_cache(
        keep in prop_oneof![Just(KeptMetadata::Metadata), Just(KeptMetadata::SomeMetadata)],
        cache_bytes in prop_oneof![Just(1 << 20), Just(12 << 10)],
        page_index_bytes in prop_oneof![Just(0), Just(u64::MAX)],
        steps in proptest::collection::vec((step(), proptest::collection::vec(0..QUESTIONS.len(), 0..4)), 4..16),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(law_4(keep, cache_bytes, page_index_bytes, steps));
    }
}

/// What is said of the plan that was used.
async fn analyzed(session: &Session, sql: &str) -> String {
    to_text(&session.collect(&format!("EXPLAIN ANALYZE {sql}")).await.unwrap()).join("\n")
}

#[tokio::test]
async fn a_new_column_does_not_matter_to_fragments_and_another_type_does() {
    let table = CachedTable::new(KeptMetadata::Metadata).await;
    let (_, session) = table.session(1 << 20, 0);
    for seed in [13, 27] {
        table.run(FileOp::Add(seed)).await;
    }
    let question = "SELECT count(*), sum(n), max(body) FROM t WHERE body > 'body-3'";
    assert_eq!(number(&analyzed(&session, question).await, "kept"), 2);
    table.run(FileOp::AddColumn).await;
    assert_eq!(number(&analyzed(&session, question).await, "hits"), 2);
    // The new column is NULL in the rows of these files.
    let of_new = "SELECT count(*) FROM t WHERE c3 IS NULL";
    let expected = answer(&session, of_new).await;
    assert_eq!((answer(&session, of_new).await, number(&analyzed(&session, of_new).await, "hits")), (expected, 2));
    table.run(FileOp::Widen).await;
    let text = analyzed(&session, question).await;
    assert_eq!((number(&text, "hits"), number(&text, "misses")), (0, 2), "{text}");
}

async fn delivered(metadata: &Arc<ProjectedCache>) -> Fixture {
    let options = Options { metadata: Arc::clone(metadata), page_index_bytes: 0, ..Options::default() };
    let fixture = Fixture::keeping(crate::fixture::schema(), options, KeptMetadata::Metadata).await;
    for a in 0..40 {
        fixture.table.put(row(a, 0, a));
        if a % 20 == 19 {
            fixture.table.deliver().await;
        }
    }
    fixture.set("tarn.access_path", "lake").await;
    fixture.metastore.take();
    fixture.store.take();
    fixture
}

#[tokio::test]
async fn what_was_asked_for_once_is_not_asked_for_again() {
    let metadata = Arc::new(ProjectedCache::new(1 << 20));
    let (with, without) = (delivered(&metadata).await, delivered(&Arc::new(ProjectedCache::new(0))).await);
    let mut reads = vec![];
    for fixture in [&with, &without] {
        for sql in ["SELECT name FROM t WHERE a > 7", "SELECT * FROM t ORDER BY a LIMIT 1"] {
            let first = (fixture.sorted(sql).await, fixture.store.take().len(), fixture.metastore.take().len());
            let again = (fixture.sorted(sql).await, fixture.store.take().len(), fixture.metastore.take().len());
            assert_eq!((&first.0, first.2), (&again.0, 1), "{sql}");
            reads.push((first.1, again.1, again.2));
        }
    }
    for ((first, again, asked), (_, always, each)) in reads[..2].iter().zip(&reads[2..]) {
        assert_eq!((*asked, *each, first), (0, 1, always));
        assert!(again < first, "page indexes of two files are kept, too: {again} and {first} reads");
    }
    let stats = metadata.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (4, 4, 4));
    let text = with.rows("EXPLAIN ANALYZE SELECT name FROM t WHERE a > 7").await.join("\n");
    assert!(text.contains("cached_files=2") && text.contains("metastore_bytes=0"), "{text}");
    // Other blocks of the same files: the cache tells of all of them.
    with.rows("SELECT name FROM t WHERE a > 30").await;
    assert!(with.metastore.take().is_empty());
}

#[tokio::test]
async fn a_limit_reads_pages_and_not_blocks() {
    let fixture = delivered(&Arc::new(ProjectedCache::new(1 << 20))).await;
    let columns = "name, price, day";
    fixture.rows(&format!("SELECT {columns} FROM t")).await;
    let size = |reads: Vec<(String, std::ops::Range<u64>)>| -> u64 { reads.iter().map(|(_, r)| r.end - r.start).sum() };
    let all = size(fixture.store.take());
    let limited = format!("SELECT {columns} FROM t ORDER BY a LIMIT 1");
    fixture.rows(&limited).await;
    fixture.store.take();
    assert_eq!(fixture.rows(&limited).await, ["name-000-|-10.00|1994-08-23"]);
    let read = size(fixture.store.take());
    assert!(read < all / 2, "{read} of {all} bytes for one row");
}
