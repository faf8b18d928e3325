//! What must hold of every backend? One suite of functions over `&dyn Metastore`, run on each of them, and the samples that
//! tests of this crate share.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use proptest::prelude::*;
use roaring::RoaringBitmap;
use uuid::Uuid;

use tarn_types::{
    Column, ColumnId, Cursor, DataType, FileId, KeyPart, Kind, SeqNo, TableId, TableOptions, TableSchema, TabletId,
    Value, Version,
};

use crate::{At, Block, ColumnStats, Commit, CommitKind, Error, File, Metastore};

/// Runs the suite on what the expression makes: `(backend, something to keep alive)`.
macro_rules! suite {
    ($make:expr) => {
        $crate::contract::suite!(
            $make;
            tables_get_ids_and_keep_them,
            a_name_is_taken_once,
            commits_make_versions,
            the_expected_version_must_be_the_latest,
            a_lost_answer_is_found_by_id,
            one_id_is_one_commit_however_many_send_it,
            writers_side_by_side_lose_and_duplicate_nothing,
            unlawful_commits_change_nothing,
            old_versions_are_as_they_were,
            expiring_forgets_and_names_the_files,
            file_ids_are_unique,
        );
    };
    ($make:expr; $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            let (metastore, _keep) = $make();
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
            runtime.block_on($crate::contract::$name(std::sync::Arc::new(metastore)));
        })*
    };
}
pub(crate) use suite;

pub fn sample_schema(name: &str) -> TableSchema {
    let column = |id, name: &str, nullable| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        data_type: DataType::Float64,
        nullable,
        default: None,
    };
    TableSchema {
        id: TableId(0),
        name: name.to_owned(),
        columns: vec![column(0, "k", false), column(0, "v", true)],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(0),
        options: TableOptions::default(),
    }
}

/// One block, unless there are no rows.
pub fn sample_file(id: FileId, n_rows: u64) -> File {
    let stats = ColumnStats {
        column: ColumnId(1),
        min: Some(Value::Float64(0.1 + id.0 as f64)),
        max: None,
        exact: true,
        null_count: 1,
        bytes: 7,
    };
    let block = Block { row_group: 0, first_row: 0, n_rows, bytes: 9, columns: vec![stats] };
    File {
        id,
        path: format!("f{id}"),
        size_bytes: 10 * n_rows,
        n_rows,
        hour: -1,
        etag: Some("e".into()),
        blocks: if n_rows == 0 { vec![] } else { vec![block] },
        created_version: Version(0),
        sorted_by_key: true,
    }
}

pub fn any_value() -> impl Strategy<Value = Value> {
    let floats = prop_oneof![Just(f64::NAN), Just(-0.0), Just(f64::INFINITY), any::<f64>()];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i16>().prop_map(Value::Int16),
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        any::<f32>().prop_map(Value::Float32),
        floats.prop_map(Value::Float64),
        any::<i128>().prop_map(Value::Decimal),
        ".*".prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bytes),
        any::<i32>().prop_map(Value::Date),
        any::<i64>().prop_map(Value::Time),
        any::<i64>().prop_map(Value::Timestamp),
        ".*".prop_map(Value::Uuid),
        ".*".prop_map(Value::Json),
    ]
}

fn commit(id: u128, expected: u64) -> Commit {
    Commit {
        id: Uuid::from_u128(id),
        expected: Version(expected),
        add: vec![],
        remove: vec![],
        deletion_vectors: BTreeMap::new(),
        cursor: None,
        kind: CommitKind::Compaction,
        at_ms: 2_000 + expected as i64,
    }
}

fn cursor(seqno: u64) -> Option<Cursor> {
    Some([(TabletId(1), SeqNo(seqno))].into_iter().collect())
}

/// All that can be read, as text.
pub async fn describe(metastore: &dyn Metastore) -> String {
    let mut out = String::new();
    for table in metastore.tables().await.unwrap() {
        let (oldest, latest) = (
            metastore.snapshot(table.id, At::Oldest).await.unwrap().version,
            metastore.version(table.id).await.unwrap(),
        );
        writeln!(out, "{table:?} {oldest} {latest}").unwrap();
        for version in oldest.0..=latest.0 {
            let whole = metastore.snapshot(table.id, At::Version(Version(version))).await.unwrap();
            let dead: BTreeMap<_, _> = whole.deletion_vectors.iter().collect();
            let (cursor, at_ms) = (whole.cursor.to_string(), whole.committed_ms);
            writeln!(out, "{version} {cursor} {at_ms} {:?} {dead:?}", whole.files).unwrap();
        }
        writeln!(out, "{:?}", metastore.commits(table.id, oldest).await.unwrap()).unwrap();
    }
    out
}

/// A short life of a metastore with every kind of record in it.
pub enum Script {
    Create(&'static str),
    Drop(&'static str),
    Allocate(u64),
    Commit(Box<Commit>),
    Expire(u64),
}

impl Script {
    pub fn steps() -> Vec<Self> {
        let first = Commit { add: vec![sample_file(FileId(1), 5)], cursor: cursor(3), ..commit(1, 0) };
        let dead = [(FileId(1), RoaringBitmap::from([0, 3]))].into();
        let second = Commit { add: vec![sample_file(FileId(2), 2)], deletion_vectors: dead, ..commit(2, 1) };
        let third = Commit { remove: vec![FileId(1)], ..commit(3, 2) };
        vec![
            Self::Create("a"),
            Self::Allocate(2),
            Self::Commit(Box::new(first)),
            Self::Commit(Box::new(second)),
            Self::Create("b"),
            Self::Commit(Box::new(third)),
            Self::Expire(2),
            Self::Drop("b"),
        ]
    }

    pub async fn run(self, metastore: &dyn Metastore) {
        match self {
            Self::Create(name) => drop(metastore.create_table(sample_schema(name)).await.unwrap()),
            Self::Drop(name) => drop(metastore.drop_table(name).await.unwrap()),
            Self::Allocate(n) => drop(metastore.allocate_files(n).await.unwrap()),
            Self::Commit(commit) => drop(metastore.commit(TableId(1), *commit).await.unwrap()),
            Self::Expire(keep) => drop(metastore.expire(TableId(1), Version(keep)).await.unwrap()),
        }
    }
}

type Backend = Arc<dyn Metastore>;

async fn with_files(metastore: &Backend, n: u64) -> (TableId, FileId) {
    let table = metastore.create_table(sample_schema("t")).await.unwrap().id;
    (table, metastore.allocate_files(n).await.unwrap())
}

pub async fn tables_get_ids_and_keep_them(metastore: Backend) {
    let mut schema = sample_schema("a");
    schema.options.tablets = 4;
    let a = metastore.create_table(schema).await.unwrap();
    let b = metastore.create_table(sample_schema("b")).await.unwrap();
    assert_eq!((a.id, a.first_tablet), (TableId(1), TabletId(1)));
    assert_eq!((b.id, b.first_tablet), (TableId(2), TabletId(5)));
    assert_eq!(a.columns.iter().map(|column| column.id).collect::<Vec<_>>(), [ColumnId(1), ColumnId(2)]);
    assert_eq!(metastore.drop_table("b").await.unwrap().id, b.id);
    let c = metastore.create_table(sample_schema("b")).await.unwrap();
    assert_eq!((c.id, c.first_tablet), (TableId(3), TabletId(6)), "ids of a dropped table come back");
    let tables = metastore.tables().await.unwrap();
    assert_eq!(tables.iter().map(|table| table.id).collect::<Vec<_>>(), [a.id, c.id]);
    assert_eq!(metastore.version(b.id).await.unwrap_err().kind(), Kind::NotFound);
    let empty = metastore.snapshot(c.id, At::Latest).await.unwrap();
    assert_eq!((empty.version, empty.committed_ms, empty.live_rows()), (Version(0), 1_000, 0));
}

pub async fn a_name_is_taken_once(metastore: Backend) {
    metastore.create_table(sample_schema("a")).await.unwrap();
    let again = metastore.create_table(sample_schema("a")).await.unwrap_err();
    assert!(matches!(&again, Error::TableExists { name } if name == "a"));
    assert!(matches!(metastore.drop_table("x").await.unwrap_err(), Error::NoTable { .. }));
    let keyless = TableSchema { key: vec![], ..sample_schema("c") };
    assert_eq!(metastore.create_table(keyless).await.unwrap_err().kind(), Kind::Invalid);
    assert_eq!(metastore.tables().await.unwrap().len(), 1);
    assert_eq!(metastore.stats().await.unwrap().tables, 1);
}

pub async fn commits_make_versions(metastore: Backend) {
    let (table, first) = with_files(&metastore, 2).await;
    let (a, b) = (first, FileId(first.0 + 1));
    let dead: BTreeMap<_, _> = [(a, RoaringBitmap::from([1, 2]))].into();
    let delivery = Commit {
        add: vec![sample_file(b, 7), sample_file(a, 5)],
        deletion_vectors: dead.clone(),
        cursor: cursor(9),
        kind: CommitKind::Delivery,
        ..commit(1, 0)
    };
    assert_eq!(metastore.commit(table, delivery).await.unwrap(), Version(1));
    let version = metastore.snapshot(table, At::Latest).await.unwrap();
    assert_eq!(version.files.iter().map(|file| file.id).collect::<Vec<_>>(), [a, b]);
    assert_eq!((version.live_rows(), version.dead_rows(a), version.size_bytes()), (10, 2, 120));
    assert_eq!(version.file(b).unwrap().created_version, Version(1));
    assert_eq!((version.cursor.get(TabletId(1)), version.committed_ms), (SeqNo(9), 2_000));

    let rewrite = Commit { remove: vec![a], at_ms: 5, ..commit(2, 1) };
    assert_eq!(metastore.commit(table, rewrite).await.unwrap(), Version(2));
    let version = metastore.snapshot(table, At::Latest).await.unwrap();
    assert_eq!((version.files.len(), version.deletion_vectors.len(), version.live_rows()), (1, 0, 7));
    assert_eq!(version.cursor.get(TabletId(1)), SeqNo(9), "no cursor in the commit leaves the cursor");
    assert_eq!(version.committed_ms, 2_000, "time does not run backwards from version to version");

    let commits = metastore.commits(table, Version(0)).await.unwrap();
    assert_eq!(commits.iter().map(|commit| commit.version).collect::<Vec<_>>(), [Version(1), Version(2)]);
    assert_eq!(commits[0].id, Uuid::from_u128(1));
    assert_eq!(*commits[0].deletion_vectors[&a], dead[&a]);
    assert_eq!((&commits[1].removed[..], commits[1].kind), (&[a][..], CommitKind::Compaction));
    assert_eq!(metastore.commits(table, Version(2)).await.unwrap().len(), 0);
    assert_eq!(metastore.commits(table, Version(3)).await.unwrap_err().kind(), Kind::NotFound);
    let stats = metastore.stats().await.unwrap();
    assert_eq!((stats.files, stats.blocks, stats.commits), (1, 1, 2));
}

pub async fn the_expected_version_must_be_the_latest(metastore: Backend) {
    let (table, _) = with_files(&metastore, 1).await;
    metastore.commit(table, commit(1, 0)).await.unwrap();
    for wrong in [0, 2] {
        let error = metastore.commit(table, commit(2, wrong)).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { current: Version(1), .. }), "{error}");
    }
    assert_eq!(metastore.version(table).await.unwrap(), Version(1));
    assert_eq!(metastore.commit(TableId(99), commit(3, 0)).await.unwrap_err().kind(), Kind::NotFound);
}

pub async fn a_lost_answer_is_found_by_id(metastore: Backend) {
    let (table, file) = with_files(&metastore, 1).await;
    let lost = Commit { add: vec![sample_file(file, 3)], ..commit(7, 0) };
    metastore.commit(table, lost.clone()).await.unwrap();
    assert_eq!(metastore.commit(table, lost.clone()).await.unwrap(), Version(1));
    metastore.commit(table, commit(8, 1)).await.unwrap();
    assert_eq!(metastore.commit(table, lost).await.unwrap(), Version(1), "also behind a later commit");
    assert!(metastore.commits(table, Version(0)).await.unwrap().iter().any(|info| info.id == Uuid::from_u128(7)));
    let version = metastore.snapshot(table, At::Latest).await.unwrap();
    assert_eq!((version.version, version.files.len()), (Version(2), 1));
}

pub async fn one_id_is_one_commit_however_many_send_it(metastore: Backend) {
    let (table, file) = with_files(&metastore, 1).await;
    let same = Commit { add: vec![sample_file(file, 3)], ..commit(7, 0) };
    let sent: Vec<_> = (0..16)
        .map(|_| {
            let (metastore, same) = (metastore.clone(), same.clone());
            tokio::spawn(async move { metastore.commit(table, same).await })
        })
        .collect();
    for answer in sent {
        assert_eq!(answer.await.unwrap().unwrap(), Version(1));
    }
    assert_eq!(metastore.version(table).await.unwrap(), Version(1));
}

pub async fn writers_side_by_side_lose_and_duplicate_nothing(metastore: Backend) {
    const WRITERS: u64 = 32;
    const COMMITS: u64 = 4;
    let table = metastore.create_table(sample_schema("t")).await.unwrap().id;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let metastore = metastore.clone();
            tokio::spawn(async move {
                let mut mine = vec![];
                for n in 0..COMMITS {
                    let file = metastore.allocate_files(1).await.unwrap();
                    let id = u128::from(writer * COMMITS + n + 1);
                    loop {
                        let expected = metastore.version(table).await.unwrap();
                        let change = Commit { add: vec![sample_file(file, 1)], ..commit(id, expected.0) };
                        match metastore.commit(table, change).await {
                            Ok(version) => break mine.push((version, file)),
                            Err(error) => assert_eq!(error.kind(), Kind::Conflict),
                        }
                    }
                }
                mine
            })
        })
        .collect();
    let mut answered = vec![];
    for writer in writers {
        answered.extend(writer.await.unwrap());
    }
    answered.sort();
    let versions: Vec<_> = answered.iter().map(|(version, _)| version.0).collect();
    assert_eq!(versions, (1..=WRITERS * COMMITS).collect::<Vec<_>>(), "every version has one writer");
    let commits = metastore.commits(table, Version(0)).await.unwrap();
    let logged: Vec<_> = commits.iter().map(|commit| (commit.version, commit.added[0].id)).collect();
    assert_eq!(logged, answered);
    let mut files: Vec<_> = answered.iter().map(|(_, file)| *file).collect();
    files.sort();
    let version = metastore.snapshot(table, At::Latest).await.unwrap();
    assert_eq!(version.files.iter().map(|file| file.id).collect::<Vec<_>>(), files);
}

pub async fn unlawful_commits_change_nothing(metastore: Backend) {
    let (table, first) = with_files(&metastore, 3).await;
    let (a, b, never) = (first, FileId(first.0 + 1), FileId(first.0 + 1_000_000));
    let dead = |file, rows: &[u32]| [(file, rows.iter().copied().collect::<RoaringBitmap>())].into();
    let good =
        Commit { add: vec![sample_file(a, 3)], cursor: cursor(5), deletion_vectors: dead(a, &[1]), ..commit(1, 0) };
    metastore.commit(table, good).await.unwrap();
    let before = describe(&*metastore).await;
    let unlawful = [
        ("twice", Commit { add: vec![sample_file(b, 1), sample_file(b, 1)], ..commit(2, 1) }),
        ("there already", Commit { add: vec![sample_file(a, 3)], ..commit(2, 1) }),
        ("never allocated", Commit { add: vec![sample_file(never, 3)], ..commit(2, 1) }),
        ("blocks", Commit { add: vec![File { n_rows: 4, ..sample_file(b, 3) }], ..commit(2, 1) }),
        ("removes a stranger", Commit { remove: vec![b], ..commit(2, 1) }),
        ("removes twice", Commit { remove: vec![a, a], ..commit(2, 1) }),
        ("dead in a stranger", Commit { deletion_vectors: dead(b, &[0]), ..commit(2, 1) }),
        ("dead in a removed", Commit { remove: vec![a], deletion_vectors: dead(a, &[0, 1]), ..commit(2, 1) }),
        ("dead beyond the end", Commit { deletion_vectors: dead(a, &[1, 3]), ..commit(2, 1) }),
        ("back to life", Commit { deletion_vectors: dead(a, &[0]), ..commit(2, 1) }),
        ("cursor back", Commit { cursor: cursor(4), ..commit(2, 1) }),
    ];
    for (name, commit) in unlawful {
        let error = metastore.commit(table, commit).await.expect_err(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
    }
    assert_eq!(describe(&*metastore).await, before);
}

pub async fn old_versions_are_as_they_were(metastore: Backend) {
    let (table, first) = with_files(&metastore, 20).await;
    let mut seen = vec![metastore.snapshot(table, At::Latest).await.unwrap()];
    for n in 0..20 {
        let file = FileId(first.0 + n);
        let remove = if n % 3 == 2 { vec![FileId(first.0 + n - 1)] } else { vec![] };
        let deletion_vectors = if n % 5 == 0 { [(file, RoaringBitmap::from([1]))].into() } else { BTreeMap::new() };
        let change =
            Commit { add: vec![sample_file(file, 3)], remove, deletion_vectors, ..commit(1 + u128::from(n), n) };
        metastore.commit(table, Commit { at_ms: 10_000 + 10 * n as i64, ..change }).await.unwrap();
        seen.push(metastore.snapshot(table, At::Latest).await.unwrap());
    }
    for version in seen.iter().chain(seen.iter().rev()) {
        assert_eq!(*metastore.snapshot(table, At::Version(version.version)).await.unwrap(), **version);
        assert_eq!(*metastore.snapshot(table, At::Time(version.committed_ms)).await.unwrap(), **version);
        assert_eq!(*metastore.snapshot(table, At::Time(version.committed_ms + 9)).await.unwrap(), **version);
    }
    assert_eq!(metastore.snapshot(table, At::Oldest).await.unwrap().version, Version(0));
    assert_eq!(metastore.snapshot(table, At::Time(999)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(metastore.snapshot(table, At::Version(Version(21))).await.unwrap_err().kind(), Kind::NotFound);
}

pub async fn expiring_forgets_and_names_the_files(metastore: Backend) {
    let (table, a) = with_files(&metastore, 3).await;
    let (b, c) = (FileId(a.0 + 1), FileId(a.0 + 2));
    metastore.commit(table, Commit { add: vec![sample_file(a, 1)], ..commit(1, 0) }).await.unwrap();
    metastore.commit(table, Commit { add: vec![sample_file(b, 1)], remove: vec![a], ..commit(2, 1) }).await.unwrap();
    metastore.commit(table, Commit { add: vec![sample_file(c, 1)], remove: vec![b], ..commit(3, 2) }).await.unwrap();
    let latest = metastore.snapshot(table, At::Latest).await.unwrap();
    assert!(metastore.expire(table, Version(0)).await.unwrap().is_empty());
    let gone = metastore.expire(table, Version(2)).await.unwrap();
    assert_eq!(gone.iter().map(|file| file.id).collect::<Vec<_>>(), [a]);
    assert!(metastore.expire(table, Version(2)).await.unwrap().is_empty(), "named once");
    assert_eq!(metastore.snapshot(table, At::Oldest).await.unwrap().version, Version(2));
    assert_eq!(metastore.snapshot(table, At::Version(Version(1))).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(metastore.snapshot(table, At::Time(2_000)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(metastore.commits(table, Version(1)).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(metastore.commits(table, Version(2)).await.unwrap().len(), 1);
    let gone = metastore.expire(table, Version(3)).await.unwrap();
    assert_eq!(gone.iter().map(|file| file.id).collect::<Vec<_>>(), [b]);
    assert_eq!(*metastore.snapshot(table, At::Latest).await.unwrap(), *latest);
    assert_eq!(metastore.expire(table, Version(4)).await.unwrap_err().kind(), Kind::Invalid);
    metastore.commit(table, Commit { remove: vec![c], ..commit(4, 3) }).await.unwrap();
    assert_eq!(metastore.expire(table, Version(4)).await.unwrap()[0].id, c);
}

pub async fn file_ids_are_unique(metastore: Backend) {
    let asked: Vec<_> = (1..40)
        .map(|n| {
            let metastore = metastore.clone();
            tokio::spawn(async move { (metastore.allocate_files(n * 7).await.unwrap().0, n * 7) })
        })
        .collect();
    let mut ranges = vec![];
    for answer in asked {
        ranges.push(answer.await.unwrap());
    }
    ranges.sort();
    assert!(ranges[0].0 >= 1);
    for pair in ranges.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
    }
}
