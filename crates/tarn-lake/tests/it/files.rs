//! What is in the files: order, bounds, splitting, compaction, reads by address.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use tarn_lake::{Compression, Options, fetch_rows};
use tarn_metastore::CommitKind;
use tarn_types::{Address, Kind, SeqNo, Value, Version};

use crate::test_data::events;
use crate::world::{LakeHarness, small, to_events};

#[tokio::test]
async fn rows_come_sorted_into_files_that_end_at_row_groups() {
    let _scenario = fail::FailScenario::setup();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
        let world = LakeHarness::new(Options { compression, ..small() }).await;
        for at in [5, 3, 9, 1, 7] {
            world.hot.put("b", at);
            world.hot.put("a", -at);
        }
        let delivered = world.deliver().await;
        assert_eq!((delivered.rows, delivered.files, delivered.version), (10, 3, Version(1)));
        let version = world.latest().await;
        let rows: Vec<_> = version.files.iter().map(|file| (file.n_rows, file.blocks.len())).collect();
        assert_eq!(rows, [(4, 2), (4, 2), (2, 1)]);
        assert!(version.files[0].path.starts_with("events-1/hr=2100-01-01-00/1-0000"), "{}", version.files[0].path);
        assert!(world.lake.deliver(&world.hot()).await.unwrap().is_none(), "nothing waits");
        world.check().await;
    }
}

#[tokio::test]
async fn a_large_delivery_is_one_file_of_full_row_groups() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(Options { row_group_rows: 1000, page_rows: 100, ..Options::default() }).await;
    for at in 0..4_500 {
        world.hot.put(["x", "y", "z"][at as usize % 3], at * 7919 % 4_501);
    }
    world.deliver().await;
    let version = world.latest().await;
    let rows: Vec<_> = version.files[0].blocks.iter().map(|block| block.n_rows).collect();
    assert_eq!((version.files.len(), rows), (1, vec![1000, 1000, 1000, 1000, 500]));
    world.check().await;
}

#[tokio::test]
async fn what_changed_is_dead_in_its_old_file() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(Options::default()).await;
    for at in 0..10 {
        world.hot.put("a", at);
    }
    world.deliver().await;
    world.hot.put("a", 3);
    world.hot.delete("a", 4);
    world.hot.delete("a", 99);
    world.hot.put("a", 5);
    world.hot.delete("a", 5);
    let delivered = world.deliver().await;
    assert_eq!((delivered.rows, delivered.dead, delivered.files), (1, 3, 1));
    assert_eq!(world.latest().await.live_rows(), 8);
    world.check().await;
    // Deletions alone make a version without a file; a file without a living row leaves.
    (0..10).for_each(|at| world.hot.delete("a", at));
    let delivered = world.deliver().await;
    assert_eq!((delivered.rows, delivered.dead, delivered.files), (0, 8, 0));
    assert!(world.latest().await.files.is_empty());
    world.check().await;
}

#[tokio::test]
async fn compaction_keeps_every_row_and_its_seqno() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(Options { row_group_rows: 50, page_rows: 10, ..Options::default() }).await;
    for round in 0..5 {
        for at in 0..40 {
            world.hot.put(["a", "b"][at as usize % 2], at * 3 + round);
        }
        world.hot.delete("a", 6);
        world.deliver().await;
    }
    let before = world.latest().await;
    let cursor = before.cursor.clone();
    world.hot.put("a", 0); // Not delivered: no business of a compaction.
    let compacted = world.compact_fully().await.unwrap();
    assert_eq!((compacted.files_before, compacted.files_after), (5, 1));
    assert_eq!(compacted.rows, before.live_rows());
    world.check().await;
    let after = world.latest().await;
    assert_eq!((after.cursor.clone(), after.deletion_vectors.len()), (cursor, 0));
    let commits = tarn_metastore::Metastore::commits(&*world.metastore, world.table.id, before.version).await.unwrap();
    assert_eq!(commits[0].kind, CommitKind::Compaction);
    assert!(world.compact_fully().await.is_none(), "one clean file is as good as it gets");
    world.deliver().await;
    world.check().await;
}

#[tokio::test]
async fn compaction_by_policy_waits_for_enough_files_or_enough_dead_rows() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(Options { compact_files: 3, compact_dead: 0.5, ..Options::default() }).await;
    for round in 0..2 {
        (0..4).for_each(|at| world.hot.put("a", round * 10 + at));
        world.deliver().await;
        assert!(world.lake.compact(&world.hot()).await.unwrap().is_none());
    }
    world.hot.delete("a", 0);
    world.deliver().await;
    assert!(world.lake.compact(&world.hot()).await.unwrap().is_none(), "a quarter is dead");
    world.hot.delete("a", 1);
    world.deliver().await;
    let worn = world.lake.compact(&world.hot()).await.unwrap().unwrap();
    assert_eq!((worn.files_before, worn.rows, worn.dropped), (1, 2, 2));
    world.hot.put("b", 1);
    world.deliver().await;
    let full = world.lake.compact(&world.hot()).await.unwrap().unwrap();
    assert_eq!((full.files_before, full.files_after, full.rows), (3, 1, 7));
    world.check().await;
}

#[tokio::test]
async fn a_table_that_only_appends_keeps_its_duplicates_and_no_addresses() {
    let _scenario = fail::FailScenario::setup();
    let mut table = events();
    table.options.append_only = true;
    let mut world = LakeHarness::of(table, small()).await;
    for at in [1, 1, 2, 1] {
        world.hot.put("a", at);
    }
    world.deliver().await;
    world.hot.put("a", 1);
    fail::cfg("lake::after_commit", "1*return").unwrap();
    world.lake.deliver(&world.hot()).await.unwrap_err();
    world.crash();
    assert_eq!(world.lake.repair(&world.hot()).await.unwrap().commits, 1);
    world.check().await;
    while world.compact_fully().await.is_some() {
        world.check().await;
    }
    assert_eq!(world.latest().await.live_rows(), 5);
}

fn named(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|name| name.to_string()).collect()
}

#[tokio::test]
async fn rows_are_read_by_address_in_the_order_asked() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(Options { row_group_rows: 30, page_rows: 7, ..Options::default() }).await;
    (0..100).for_each(|at| world.hot.put("a", at * 37 % 100));
    world.deliver().await;
    let file = world.latest().await.files[0].clone();
    let all = world.rows_of(&file).await;
    let columns = named(&["device", "at", "reading", "note", "__seqno"]);
    for rows in [vec![0], vec![99, 0, 50, 50, 29, 30], (0..100).rev().collect(), vec![]] {
        let read: RecordBatch = world.lake.read_rows(&file, &rows, &columns).await.unwrap();
        let wanted: Vec<_> = rows.iter().map(|row| all[*row as usize].clone()).collect();
        assert_eq!(to_events(&read), wanted);
    }
    let some = world.lake.read_rows(&file, &[3, 1], &named(&["__seqno", "at"])).await.unwrap();
    assert_eq!(some.schema().field(0).name(), "__seqno");
    assert_eq!(some.column(1).as_primitive::<Int64Type>().values(), &[all[3].at, all[1].at]);
    assert_eq!(world.lake.read_rows(&file, &[100], &columns).await.unwrap_err().kind(), Kind::Invalid);
    assert_eq!(world.lake.read_rows(&file, &[1], &named(&["x"])).await.unwrap_err().kind(), Kind::Invalid);
}

#[tokio::test]
async fn an_object_that_is_not_the_committed_file_is_an_error() {
    use object_store::ObjectStoreExt;
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(small()).await;
    (0..8).for_each(|at| world.hot.put("a", at));
    world.deliver().await;
    let version = world.latest().await;
    let (file, other) = (version.files[0].clone(), version.files[1].clone());
    let path = |file: &tarn_metastore::File| Path::from(file.path.as_str());
    let columns = named(&["at"]);
    let wrong_rows = tarn_metastore::File { n_rows: 9, ..(*file).clone() };
    assert_eq!(world.lake.read_rows(&wrong_rows, &[0], &columns).await.unwrap_err().kind(), Kind::Corrupt);
    let whole = world.store.get(&path(&file)).await.unwrap().bytes().await.unwrap();
    world.store.put(&path(&file), whole.slice(..whole.len() - 20).into()).await.unwrap();
    assert!(world.lake.read_rows(&file, &[0], &columns).await.is_err());
    world.store.delete(&path(&other)).await.unwrap();
    assert!(world.lake.read_rows(&other, &[0], &columns).await.is_err());
}

#[tokio::test]
async fn a_row_is_fetched_by_its_address_and_no_other() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(small()).await;
    (0..6).for_each(|at| world.hot.put("a", at));
    world.deliver().await;
    let version = world.latest().await;
    let table = events();
    for file in &version.files {
        let bytes = world.store.inner.get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap();
        let reader = || std::io::Cursor::new(bytes.to_vec());
        let address = |row, seqno| Address { file: file.id, row, seqno };
        let fetch = async |row, seqno| {
            fetch_rows(reader(), &table, file, &[address(row, seqno)]).await.map(|mut rows| rows.remove(0))
        };
        for (row, event) in world.rows_of(file).await.into_iter().enumerate() {
            let seqno = SeqNo(event.seqno as u64);
            let values = fetch(row as u32, seqno).await.unwrap();
            assert_eq!(values[0], Value::Text(event.device.clone()), "{event:?}");
            let error = fetch(row as u32, SeqNo(seqno.0 + 1)).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        }
        let all = world.rows_of(file).await;
        let of = |row: usize| address(row as u32, SeqNo(all[row].seqno as u64));
        let several = [of(all.len() - 1), of(0), of(all.len() - 1)];
        let rows = fetch_rows(reader(), &table, file, &several).await.unwrap();
        assert_eq!(rows[1][0], Value::Text(all[0].device.clone()));
        assert_eq!((&rows[0], rows.len()), (&rows[2], 3), "in the order asked, and as often");
        assert_ne!(all.len() > 1, rows[0] == rows[1]);
        let error = fetch(file.n_rows as u32, SeqNo(1)).await.unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains(&file.path), "{error}");
    }
}
