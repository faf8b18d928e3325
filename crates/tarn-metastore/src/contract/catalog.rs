//! What must hold of tables, their definitions and their ids, and of a copy that keeps them?

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use tarn_types::{
    Archive, Column, ColumnId, ColumnRules, DataType, FileId, Kind, Partitioning, TableId, TableOptions, TableSchema,
    TabletId, TokenColumns, Value, Version, View,
};

use super::samples::{Backend, append, commit, sample_schema, with_column};
use super::script::{Script, describe, everything};
use crate::{
    Alteration, BlockMetadata, Commit, CommitKind, Definition, Error, ExpectedVersion, File, Memory, MetastoreExt,
    VersionSelector, hour_blocks,
};

/// Ids of tables, columns and tablets are assigned, and those of a dropped table never come back.
pub async fn tables_get_ids_and_keep_them(metastore: Backend) {
    let mut schema = sample_schema("a");
    (schema.options.tablets, schema.options.partitioning) = (4, Partitioning::Hash);
    let a = metastore.create_table(schema).await.unwrap();
    let b = metastore.create_table(sample_schema("b")).await.unwrap();
    assert_eq!((a.id, a.first_tablet), (TableId(1), TabletId(1)));
    assert_eq!((b.id, b.first_tablet), (TableId(2), a.tablet_ids().end), "splits have ids of their table");
    assert_eq!(a.columns.iter().map(|column| column.id).collect::<Vec<_>>(), [ColumnId(1), ColumnId(2)]);
    assert_eq!(metastore.drop_table("b").await.unwrap().id, b.id);
    let c = metastore.create_table(sample_schema("b")).await.unwrap();
    assert_eq!((c.id, c.first_tablet), (TableId(3), b.tablet_ids().end), "ids of a dropped table come back");
    let tables = metastore.tables().await.unwrap();
    assert_eq!(tables.iter().map(|table| table.id).collect::<Vec<_>>(), [a.id, c.id]);
    assert_eq!(metastore.version(b.id).await.unwrap_err().kind(), Kind::NotFound);
    let empty = metastore.snapshot(c.id, VersionSelector::Latest).await.unwrap();
    assert_eq!((empty.version, empty.committed_ms, empty.live_rows()), (Version(0), 1_000, 0));
}

/// A second table of a name, and one that is not lawful, are refused.
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

/// Ranges of file ids that are asked for at the same time do not overlap.
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
    // Those of one client ascend, whatever it asks for.
    let mut last = 0;
    for n in [1, 5_000, 1, 3] {
        let first = metastore.allocate_files(n).await.unwrap().0;
        assert!(first > last, "{first} after {last}");
        last = first;
    }
}

/// A definition may gain columns and wider types, by whoever saw it last, and nothing else of it may differ.
pub async fn alter_adds_and_widens_only(metastore: Backend) {
    let mut schema = sample_schema("t");
    schema.columns[1].data_type = DataType::Int32;
    let table = metastore.create_table(schema).await.unwrap();
    let alter = |from: &Arc<TableSchema>, to: TableSchema| {
        metastore.define(Definition::Alter { from: from.clone(), to: Box::new(to) })
    };
    let mut wider = with_column(&table, "w");
    wider.columns[1].data_type = DataType::Int64;
    wider.columns[2].data_type = DataType::Text;
    wider.options.indexing.tokens = TokenColumns::Some(vec![wider.columns[2].id]);
    wider.columns[2].id = ColumnId(77);
    wider.options.indexing.tokens = TokenColumns::Some(vec![ColumnId(77)]);
    let altered = alter(&table, wider.clone()).await.unwrap();
    assert_eq!((altered.id, altered.columns[2].id), (table.id, ColumnId(3)));
    assert_eq!(altered.columns[1].data_type, DataType::Int64);
    assert_eq!(altered.options.indexing.tokens, TokenColumns::Some(vec![ColumnId(3)]), "options follow the ids");
    assert_eq!(metastore.tables().await.unwrap(), std::slice::from_ref(&altered));
    assert_eq!(alter(&table, wider).await.unwrap(), altered, "a lost answer: it is so already");
    let late = alter(&table, with_column(&table, "late")).await.unwrap_err();
    assert_eq!(late.kind(), Kind::Conflict, "{late}");

    // Where its rows are is said once, and stays, also in a copy.
    let mut housed = (*altered).clone();
    housed.options.home = Some(Uuid::from_u128(7));
    let altered = alter(&altered, housed).await.unwrap();
    assert_eq!(altered.options.home, Some(Uuid::from_u128(7)));
    assert_eq!(metastore.tables().await.unwrap(), std::slice::from_ref(&altered));

    type Change = fn(&mut TableSchema);
    let unlawful: [(&str, Change); 13] = [
        ("moves house", |s| s.options.home = Some(Uuid::from_u128(8))),
        ("loses house", |s| s.options.home = None),
        ("drops", |s| drop(s.columns.pop())),
        ("narrows", |s| s.columns[1].data_type = DataType::Int16),
        ("renames", |s| s.columns[1].name = "x".into()),
        ("a nullable key", |s| s.columns[0].nullable = true),
        ("a default of another type", |s| s.columns[1].default = Some(Value::Text("1".into()))),
        ("moves", |s| s.columns.swap(0, 1)),
        ("a name of documents", |s| s.name = "tarn-document://t/1".into()),
        ("tablets", |s| (s.options.tablets, s.options.partitioning) = (2, Partitioning::Hash)),
        ("partitioning", |s| s.options.partitioning = Partitioning::Hash),
        ("index of nothing", |s| s.options.indexing.bloom = vec![ColumnId(42)]),
        ("index of what is in no filter", |s| s.options.indexing.bloom = vec![ColumnId(2)]),
    ];
    for (name, change) in unlawful {
        let mut to = (*altered).clone();
        change(&mut to);
        let error = alter(&altered, to).await.expect_err(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
    }
    let mut twice = with_column(&altered, "w");
    twice.columns[3].id = ColumnId(9);
    assert_eq!(alter(&altered, twice).await.unwrap_err().kind(), Kind::Invalid, "a name that is taken");
    assert_eq!(metastore.tables().await.unwrap(), std::slice::from_ref(&altered));
    let nowhere = Arc::new(TableSchema { id: TableId(50), ..(*altered).clone() });
    assert_eq!(alter(&nowhere, (*nowhere).clone()).await.unwrap_err().kind(), Kind::NotFound);
}

/// A column may come with the value that older rows have, and go; its id is not given to another one.
pub async fn columns_come_with_a_value_and_go_for_good(metastore: Backend) {
    let before = metastore.create_table(with_column(&Arc::new(sample_schema("t")), "w")).await.unwrap();
    let alter = |from: &Arc<TableSchema>, to: TableSchema| {
        metastore.define(Definition::Alter { from: from.clone(), to: Box::new(to) })
    };
    let last = before.columns.len() - 1;
    let gone = before.columns[last].clone();
    let narrower = alter(&before, before.with_column_dropped(last)).await.unwrap();
    assert_eq!(narrower.columns.len(), last);
    let column = Column { id: narrower.next_column_id(), name: "w".into(), nullable: false, ..gone.clone() };
    let missing = Some(Value::Int64(7));
    let column = Column { data_type: DataType::Int64, default: Some(Value::Int64(8)), ..column };
    let wider = narrower.with_column_added(column, ColumnRules { missing: missing.clone(), ..ColumnRules::default() });
    let wider = alter(&narrower, wider).await.unwrap();
    let id = wider.columns[last].id;
    assert!(id > gone.id, "ids are never used again");
    assert_eq!((wider.missing(id), wider.stored_names()[last]), (missing.as_ref(), format!("__{id}").as_str()));
    assert_eq!(metastore.tables().await.unwrap(), std::slice::from_ref(&wider));

    type Change<'a> = &'a dyn Fn(&mut TableSchema);
    let unlawful: [(&str, Change<'_>); 5] = [
        ("comes back", &|s| s.options.rules.dropped.clear()),
        ("another value in older rows", &|s| s.options.rules.entry(id).missing = Some(Value::Int64(8))),
        ("no value in older rows", &|s| s.options.rules.entry(id).missing = None),
        ("a value in older rows of one that was there", &|s| {
            s.options.rules.entry(s.columns[1].id).missing = Some(Value::Int64(1));
        }),
        ("the key is dropped", &|s| *s = s.with_column_dropped(0)),
    ];
    for (name, change) in unlawful {
        let mut to = (*wider).clone();
        change(&mut to);
        let error = alter(&wider, to).await.expect_err(name);
        assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
    }
}

/// Whether a column may be NULL, its default and its rules may change.
pub async fn what_is_said_of_columns_changes(metastore: Backend) {
    let before = metastore.create_table(sample_schema("t")).await.unwrap();
    let mut to = (*before).clone();
    to.columns[1].nullable = !to.columns[1].nullable;
    to.columns[1].default = None;
    to.options.rules.entry(to.columns[1].id).default = Some("now()".into());
    let altered = Definition::Alter { from: before, to: Box::new(to.clone()) };
    assert_eq!(*metastore.define(altered).await.unwrap(), to);
    assert_eq!(*metastore.tables().await.unwrap()[0], to);
}

/// Tables exchange their names at one moment; a change that was made already is answered again, and one that cannot be
/// makes none.
pub async fn names_change_together_or_not_at_all(metastore: Backend) {
    let (a, b) = (sample_schema("a"), sample_schema("b"));
    let (a, b) = (metastore.create_table(a).await.unwrap(), metastore.create_table(b).await.unwrap());
    let to =
        |from: &Arc<TableSchema>, name: &str| Alteration { from: Arc::clone(from), to: Box::new(from.renamed(name)) };
    let names = async || {
        let tables = metastore.tables().await.unwrap();
        tables.iter().map(|table| (table.id, table.name.clone())).collect::<Vec<_>>()
    };
    let named = |one: &str, other: &str| vec![(a.id, one.to_owned()), (b.id, other.to_owned())];
    // Each takes the name of the other.
    let swap = Definition::AlterAll(vec![to(&a, "b"), to(&b, "a")]);
    assert_eq!(metastore.define(swap.clone()).await.unwrap().name, "b");
    assert_eq!(names().await, named("b", "a"));
    assert_eq!(metastore.define(swap).await.unwrap().id, a.id, "a lost answer: it is so already");
    assert_eq!(metastore.tables().await.unwrap()[0].made_as(), "a", "its files stay where they are");
    let half = Definition::AlterAll(vec![to(&a, "b"), to(&b, "c")]);
    assert_eq!(metastore.define(half).await.unwrap_err().kind(), Kind::Conflict);
    let now = metastore.tables().await.unwrap();
    let taken = metastore.define(Definition::AlterAll(vec![to(&now[0], "c"), to(&now[1], "c")])).await.unwrap_err();
    assert!(matches!(&taken, Error::TableExists { name } if name == "c"), "{taken}");
    let alone = Definition::Alter { from: now[0].clone(), to: to(&now[0], "a").to };
    assert!(matches!(metastore.define(alone).await.unwrap_err(), Error::TableExists { .. }));
    let moves =
        Alteration { to: Box::new(TableSchema { name: "c".into(), ..(*now[0]).clone() }), from: now[1].clone() };
    for unlawful in [vec![], vec![to(&now[0], "c"), to(&now[0], "d")], vec![moves]] {
        let refused = metastore.define(Definition::AlterAll(unlawful)).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
    }
    assert_eq!(names().await, named("b", "a"));
    let alone = Definition::Alter { from: now[0].clone(), to: to(&now[0], "c").to };
    metastore.define(alone).await.unwrap();
    assert_eq!(names().await, named("c", "a"));
    metastore.create_table(sample_schema("b")).await.unwrap();
    assert_eq!(metastore.drop_table("a").await.unwrap().id, b.id);
}

/// A table over files that others write takes no tablets, and how it is followed may change.
pub async fn an_archive_is_a_table_without_a_key(metastore: Backend) {
    let mut schema = TableSchema { key: vec![], n_partition_key: 0, ..sample_schema("logs") };
    schema.columns[1].data_type = DataType::Timestamp;
    let time_column = Some(schema.columns[1].id);
    let archive = Archive { url: "s3://logs/app".into(), time_column, ..Archive::default() };
    schema.options = TableOptions { tablets: 0, archive: Some(archive), ..TableOptions::default() };
    let logs = metastore.create_table(schema).await.unwrap();
    assert_eq!(logs.options.archive.as_ref().unwrap().time_column, Some(ColumnId(2)));
    let next = metastore.create_table(sample_schema("t")).await.unwrap();
    assert_eq!(next.first_tablet, logs.first_tablet, "an archive takes no tablets");
    let mut followed = (*logs).clone();
    let archive = followed.options.archive.as_mut().unwrap();
    (archive.follow_ms, archive.attached) = (Some(60_000), true);
    let alter = Definition::Alter { from: logs.clone(), to: Box::new(followed.clone()) };
    assert_eq!(*metastore.define(alter).await.unwrap(), followed);
    followed.options.archive.as_mut().unwrap().url = "s3://elsewhere".into();
    let moved = Definition::Alter { from: metastore.tables().await.unwrap()[0].clone(), to: Box::new(followed) };
    assert_eq!(metastore.define(moved).await.unwrap_err().kind(), Kind::Invalid);
    let file = metastore.allocate_files(1).await.unwrap();
    let attach = Commit { kind: CommitKind::Attach, ..append(1, file) };
    assert_eq!(metastore.commit(logs.id, attach).await.unwrap(), Version(1));
    assert_eq!(metastore.drop_table("logs").await.unwrap().id, logs.id);
}

/// A view takes no tablets, and its query and columns may change together.
pub async fn a_view_is_a_query_in_the_place_of_rows(metastore: Backend) {
    let sample = sample_schema("v");
    let columns = sample.columns.iter().map(|column| column.name.clone()).collect();
    let view = View { query: "SELECT * FROM t".into(), columns, reads: [("t".to_owned(), TableId(7))].into() };
    let options = TableOptions { tablets: 0, view: Some(view), ..TableOptions::default() };
    let v = metastore.create_table(TableSchema { key: vec![], n_partition_key: 0, options, ..sample }).await.unwrap();
    let t = metastore.create_table(sample_schema("t")).await.unwrap();
    assert_eq!(t.first_tablet, v.first_tablet, "a view takes no tablets");
    let alter = |from: &Arc<TableSchema>, to: TableSchema| Definition::Alter { from: from.clone(), to: Box::new(to) };
    let mut other = with_column(&v, "more");
    let query = other.options.view.as_mut().unwrap();
    (query.query, query.reads) = ("SELECT *, 1 AS more FROM u".into(), [("u".to_owned(), TableId(8))].into());
    query.columns.push("more".into());
    let other = metastore.define(alter(&v, other)).await.unwrap();
    assert_eq!(other.options.view.as_ref().unwrap().columns.len(), v.columns.len() + 1);
    assert!(metastore.tables().await.unwrap().contains(&other));
    type Change = fn(&mut TableSchema);
    let unlawful: [(&str, Change); 2] =
        [("no query", |s| s.options.view.as_mut().unwrap().query.clear()), ("a table", |s| s.options.view = None)];
    for (name, change) in unlawful {
        let mut to = (*other).clone();
        change(&mut to);
        assert_eq!(metastore.define(alter(&other, to)).await.expect_err(name).kind(), Kind::Invalid, "{name}");
    }
    assert_eq!(metastore.drop_table("v").await.unwrap().id, v.id);
}

/// A store that was restored from another one answers what that one does, and gives out none of its ids.
pub async fn restore_equals_the_source(metastore: Backend) {
    let source: Backend = Arc::new(Memory::new(Arc::new(tarn_types::ManualClock::new(500))));
    for step in Script::steps() {
        step.run(&*source).await;
    }
    // Ids come along: nobody gets those of the source again.
    let next = source.allocate_files(1).await.unwrap();
    metastore.allocate_files(next.0).await.unwrap();
    for schema in source.tables().await.unwrap() {
        let table = schema.id;
        let oldest = source.snapshot(table, VersionSelector::Oldest).await.unwrap();
        let restore = Definition::Restore {
            schema: schema.clone(),
            version: oldest.version,
            cursor: oldest.cursor.clone(),
            committed_ms: oldest.committed_ms,
        };
        assert_eq!(metastore.define(restore.clone()).await.unwrap(), schema);
        let too_early = metastore.commit(table, commit(77, oldest.version.0)).await.unwrap_err();
        assert_eq!(too_early.kind(), Kind::Invalid, "{too_early}");
        for file in &oldest.files {
            let dead = oldest.deletion_vectors.get(&file.id).map(|dead| (file.id, (**dead).clone()));
            let part = Commit {
                add: vec![(**file).clone()],
                block_metadata: block_metadata_of(&source, table, file).await,
                deletion_vectors: dead.into_iter().collect(),
                kind: CommitKind::Restore,
                ..commit(1_000 + u128::from(file.id.0), oldest.version.0)
            };
            // Stopped and begun anew: what is there is passed over.
            assert_eq!(metastore.commit(table, part.clone()).await.unwrap(), oldest.version);
            assert_eq!(metastore.define(restore.clone()).await.unwrap(), schema);
            assert_eq!(metastore.commit(table, part).await.unwrap(), oldest.version);
        }
        for _ in 0..2 {
            metastore.define(Definition::Restored { table }).await.unwrap();
        }
        let again = metastore.define(restore).await.unwrap_err();
        assert_eq!(again.kind(), Kind::Invalid, "{again}");
        for info in source.commits(table, oldest.version).await.unwrap() {
            let mut block_metadata = BTreeMap::new();
            for file in &info.added {
                block_metadata.extend(block_metadata_of(&source, table, file).await);
            }
            let same = Commit {
                id: info.id,
                expected: ExpectedVersion::At(Version(info.version.0 - 1)),
                add: info.added.iter().map(|file| (**file).clone()).collect(),
                block_metadata,
                remove: info.removed.clone(),
                deletion_vectors: info.deletion_vectors.iter().map(|(id, dead)| (*id, (**dead).clone())).collect(),
                cursor: info.cursor.clone(),
                kind: info.kind,
                at_ms: info.at_ms,
            };
            assert_eq!(metastore.commit(table, same).await.unwrap(), info.version);
        }
    }
    assert_eq!(describe(&*metastore).await, describe(&*source).await);
    let late = Commit { kind: CommitKind::Restore, ..commit(78, 4) };
    assert_eq!(metastore.commit(TableId(1), late).await.unwrap_err().kind(), Kind::Invalid);
    assert!(metastore.create_table(sample_schema("next")).await.unwrap().id > TableId(9));
}

async fn block_metadata_of(source: &Backend, table: TableId, file: &Arc<File>) -> BTreeMap<FileId, Vec<BlockMetadata>> {
    let hours = hour_blocks([file]);
    let blocks: Vec<_> = hours.iter().flat_map(|of_hour| of_hour.blocks.clone()).collect();
    let found = source.block_metadata(table, everything(hours)).await.unwrap();
    let mut block_metadata: BTreeMap<u32, BlockMetadata> = BTreeMap::new();
    let empty = |row_group| BlockMetadata { row_group, columns: vec![], bloom: None };
    for column in found.columns {
        for ((at, stats), chunk) in column.blocks.iter().zip(column.stats).zip(column.chunks) {
            let row_group = blocks[*at as usize].row_group;
            block_metadata.entry(row_group).or_insert_with(|| empty(row_group)).columns.push((stats, chunk));
        }
    }
    for (at, bloom) in found.blooms {
        let row_group = blocks[at as usize].row_group;
        block_metadata.entry(row_group).or_insert_with(|| empty(row_group)).bloom = Some(bloom);
    }
    [(file.id, block_metadata.into_values().collect())].into()
}
