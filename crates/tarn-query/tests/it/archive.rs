//! A table whose files somebody else wrote: they are read from their own store, and only as they were when they were
//! attached.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use tarn_cache::{FooterCache, ReadStore};
use tarn_metastore::{Commit, CommitKind, ExpectedVersion, Memory, Metastore, MetastoreExt};
use tarn_query::{Engine, FileStore, HotCatalog, HotSource, HotView, Options, Session};
use tarn_types::{
    Archive, ColumnId, DataType, FileId, Indexing, Kind, ManualClock, SeqNo, TableId, TableOptions, TableSchema,
    TabletId, TokenColumns, Value, Version,
};
use uuid::Uuid;

use crate::block_metadata::KeptMetadata;
use crate::fixture::{column, to_text, write_file};
use crate::nothing_hot::{CurrentSource, NoSystemTables, NothingHot, TypedReader};
use crate::recording::RecordingStore;

/// No rows but those of the files.
struct AttachedTable {
    schema: Arc<TableSchema>,
    store: Arc<RecordingStore>,
    version: Version,
}

/// The table itself.
struct AttachedSource(Arc<AttachedTable>);

impl HotSource for AttachedSource {
    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.0.schema)
    }

    fn files(&self) -> FileStore {
        FileStore::External { store: ReadStore::plain(Arc::clone(&self.0.store) as _, "in memory"), id: 7 }
    }
}

impl CurrentSource for AttachedSource {
    fn now(&self) -> Arc<dyn HotView> {
        Arc::new(NothingHot::at(self.0.version))
    }
}

struct OneTable(Arc<AttachedTable>);

impl HotCatalog for OneTable {
    fn tables(&self) -> Vec<Arc<TableSchema>> {
        vec![Arc::clone(&self.0.schema)]
    }

    fn table(&self, name: &str) -> Option<Arc<dyn HotSource>> {
        (name == self.0.schema.name).then(|| Arc::new(AttachedSource(Arc::clone(&self.0))) as _)
    }
}

fn schema() -> TableSchema {
    TableSchema {
        id: TableId(1),
        name: "logs".to_owned(),
        columns: vec![column(1, "at", DataType::Timestamp), column(2, "body", DataType::Text)],
        key: vec![],
        n_partition_key: 0,
        first_tablet: TabletId(1),
        options: TableOptions {
            tablets: 0,
            indexing: Indexing { tokens: TokenColumns::Some(vec![ColumnId(2)]), ..Indexing::default() },
            archive: Some(Archive { url: "s3://archive/logs".to_owned(), ..Archive::default() }),
            ..TableOptions::default()
        },
    }
}

/// 20 files of 8 rows; every fourth file has no block metadata.
async fn attached() -> (Arc<AttachedTable>, Session, Vec<String>) {
    let metastore: Arc<dyn Metastore> = Arc::new(Memory::new(Arc::new(ManualClock::default())));
    let store = Arc::new(RecordingStore::new(Arc::new(InMemory::new())));
    let schema = metastore.create_table(schema()).await.unwrap();
    let first = metastore.allocate_files(20).await.unwrap();
    let (mut add, mut block_metadata, mut paths) = (vec![], BTreeMap::new(), vec![]);
    for n in 0..20 {
        let id = FileId(first.0 + n);
        let row = |at: u64| {
            let body = if at == 5 { format!("the only{n} one") } else { "GET / 200".to_owned() };
            (vec![Value::Timestamp((n * 8 + at) as i64 * 1_000_000), Value::Text(body)], SeqNo(0))
        };
        let rows: Vec<_> = (0..8).map(row).collect();
        let (mut file, of_file) = write_file(&schema, id, &rows, store.as_ref(), KeptMetadata::SomeMetadata).await;
        file.sorted_by_key = false;
        file.etag = store.head(&Path::from(file.path.as_str())).await.unwrap().e_tag;
        paths.push(file.path.clone());
        if !of_file.is_empty() {
            block_metadata.insert(id, of_file);
        }
        add.push(file);
    }
    let commit = Commit {
        id: Uuid::new_v4(),
        expected: ExpectedVersion::Latest,
        add,
        block_metadata,
        remove: vec![],
        deletion_vectors: BTreeMap::new(),
        cursor: None,
        kind: CommitKind::Attach,
        at_ms: 0,
    };
    let version = metastore.commit(schema.id, commit).await.unwrap();
    let attached = Arc::new(AttachedTable { schema, store, version });
    let engine = Engine::new(
        Options::default(),
        metastore,
        ReadStore::plain(Arc::new(InMemory::new()), "in memory"),
        Arc::new(FooterCache::new(1 << 20)),
        Arc::new(OneTable(Arc::clone(&attached))),
        Arc::new(NoSystemTables),
    );
    attached.store.take();
    (attached, engine.unwrap().session(TypedReader::<AttachedSource>::all()), paths)
}

#[tokio::test]
async fn files_are_read_from_the_archive() {
    let (attached, session, paths) = attached().await;
    let rows = async |sql: &str| to_text(&session.collect(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}")));
    assert_eq!(rows("SELECT count(*), max(at) FROM logs").await, ["160|1970-01-01T00:02:39"]);
    attached.store.take();
    assert_eq!(rows("SELECT body FROM logs WHERE matches(body, 'ONLY7')").await, ["the only7 one"]);
    let opened: std::collections::BTreeSet<_> = attached.store.take().into_iter().map(|(path, _)| path).collect();
    assert!(opened.contains(&paths[7]) && opened.len() < 20, "{opened:?}");
    assert_eq!(rows("SELECT count(body) FROM logs WHERE at >= '1970-01-01 00:02:00'").await, ["40"]);
    let plan = rows("EXPLAIN SELECT body FROM logs WHERE body LIKE 'GET%'").await.join("\n");
    assert!(plan.contains("16 groups"), "files of an archive are read side by side: {plan}");
}

#[tokio::test]
async fn a_file_that_changed_gives_an_error_and_no_rows() {
    let (attached, session, paths) = attached().await;
    let path = Path::from(paths[7].as_str());
    let bytes = attached.store.get(&path).await.unwrap().bytes().await.unwrap();
    attached.store.put(&path, PutPayload::from(bytes)).await.unwrap();
    let error = session.collect("SELECT body FROM logs WHERE matches(body, 'only7')").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&paths[7]) && text.contains("CALL tarn.attach('logs')"), "{text}");
    attached.store.delete(&path).await.unwrap();
    let error = session.collect("SELECT body FROM logs").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error:?}");
}
