//! An archive becomes a table, once, whatever happens on the way, and the table follows it.

use std::sync::Arc;

use arrow::array::*;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;

use tarn_lake::attach::Progress;
use tarn_metastore::{CommitKind, MetastoreExt, Probe, hour_blocks, token_hash, value_hash};
use tarn_types::{Archive, DataType, Kind, TableId, Value, Version};

use crate::archive::{ArchiveHarness, ids, parquet, paths};
use crate::faults::FaultTime;

const HOUR_US: i64 = 3_600_000_000;

/// Four log lines, half an hour apart, from an hour on.
pub fn logs(hour: i64, words: &str) -> RecordBatch {
    let times = (0..4).map(|row| hour * HOUR_US + row * HOUR_US / 2);
    let body = (0..4).map(|row| (row != 3).then(|| format!("{words} line {row}")));
    RecordBatch::try_from_iter([
        ("ts", Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")) as ArrayRef),
        ("body", Arc::new(StringArray::from_iter(body))),
        ("status", Arc::new(Int32Array::from_iter_values((0..4).map(|row| 200 + row)))),
    ])
    .unwrap()
}

fn hourly() -> Archive {
    Archive { hour_from: Some("dt=…/hr=…".into()), ..Archive::default() }
}

async fn world_of(n_files: i64) -> ArchiveHarness {
    let world = ArchiveHarness::new();
    for n in 0..n_files {
        world.put(&format!("dt=2023-08-14/hr=08/{n:04}.parquet"), parquet(&logs(470_000, &format!("w{n}")), 3)).await;
    }
    world
}

#[tokio::test]
async fn an_archive_becomes_a_table() {
    let _scenario = fail::FailScenario::setup();
    let mut world = world_of(150).await;
    world.put("dt=2023-08-14/hr=08/_tmp.parquet", "half").await;
    world.remove("dt=2023-08-14/hr=08/_tmp.parquet").await;
    let surveyed = world.create(hourly(), &[("tokens", "body"), ("bloom", "status"), ("bloom_chunks", "64")]).await;
    let columns: Vec<_> = surveyed.schema.columns.iter().map(|c| format!("{} {}", c.name, c.data_type)).collect();
    assert_eq!(columns, ["ts TIMESTAMP WITH TIME ZONE", "body TEXT", "status INTEGER"]);
    assert_eq!((surveyed.listed, surveyed.looked_at), (150, 32));
    assert!(surveyed.skipped.is_empty() && surveyed.notes.is_empty());

    let heard = Mutex::new(vec![]);
    let hear = |progress: &Progress| heard.lock().push(*progress);
    // A server runs it on a thread of its choice.
    fn sendable<T: Send>(future: T) -> T {
        future
    }
    let progress = sendable(world.attach.pass(world.table, &hear)).await.unwrap();
    assert_eq!((progress.listed, progress.known, progress.attached, progress.skipped), (150, 0, 150, 0));
    assert_eq!((progress.rows, progress.version, progress.reading), (600, Version(3), 0));
    let heard = heard.into_inner();
    assert!(heard.len() > 150 && heard[0].listed == 150 && heard[0].attached == 0);
    assert!(heard.windows(2).all(|pair| pair[0].attached <= pair[1].attached && pair[0].version <= pair[1].version));
    world.check().await;
    let version = world.latest().await;
    assert!(version.files.iter().all(|file| file.hour == 470_000 && file.blocks.len() == 2 && !file.sorted_by_key));
    let commits = world.metastore.inner.commits(world.table, Version(0)).await.unwrap();
    assert!(commits.iter().all(|commit| commit.kind == CommitKind::Attach));

    let reads = world.store.reads.lock().len();
    let again = world.pass().await;
    assert_eq!((again.known, again.attached, again.bytes_read, again.version), (150, 0, 0, Version(3)));
    assert_eq!(world.store.reads.lock().len(), reads, "what is known is not read again");

    let status = world.schema().await.columns[2].clone();
    let ok = value_hash(status.id, &DataType::Int32, &Value::Int32(203)).unwrap();
    let clauses = vec![vec![vec![token_hash("w7"), token_hash("line")]], vec![vec![ok]]];
    let probe = Probe { hours: hour_blocks(&version.files), clauses };
    let kept = world.metastore.inner.probe(world.table, probe).await.unwrap().kept;
    assert!(kept.len() < 10, "a rare word is in few blocks: {kept:?}");
}

#[tokio::test]
async fn a_pass_that_dies_is_gone_on_with() {
    let _scenario = fail::FailScenario::setup();
    for point in ["attach::after_read", "attach::before_commit", "attach::after_commit"] {
        for nth in 0..3 {
            let mut world = world_of(150).await;
            world.create(hourly(), &[]).await;
            fail::cfg(point, &format!("{nth}*off->1*return->off")).unwrap();
            let error = world.attach.pass(world.table, &|_| {}).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Unavailable);
            fail::remove(point);
            let committed = world.latest().await.files.len();
            let done = nth + usize::from(point == "attach::after_commit");
            assert_eq!(committed, (done * 64).min(150), "{point} {nth}");
            world.store.reads.lock().clear();
            let progress = world.pass().await;
            assert_eq!((progress.known, progress.attached), (committed as u64, 150 - committed as u64));
            assert_eq!(world.store.reads.lock().len(), 150 - committed, "what is committed is not read again");
            world.check().await;
        }
    }
}

#[tokio::test]
async fn whatever_call_fails_no_file_is_there_twice() {
    let _scenario = fail::FailScenario::setup();
    for when in [FaultTime::Before, FaultTime::After] {
        for nth in 0.. {
            let mut world = world_of(3).await;
            world.create(hourly(), &[]).await;
            let wide =
                RecordBatch::try_from_iter([("status", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
            world.put("z.parquet", parquet(&wide, 10)).await;
            world.metastore.faults.choose(nth, when);
            let mut tries = 0;
            while world.attach.pass(world.table, &|_| {}).await.is_err() {
                tries += 1;
                assert!(tries < 3);
            }
            let struck = world.metastore.faults.clear();
            world.check().await;
            assert_eq!(world.latest().await.files.len(), 4);
            assert_eq!(world.schema().await.columns[2].data_type, DataType::Int64);
            if !struck {
                break;
            }
        }
    }
}

#[tokio::test]
async fn the_table_follows_the_archive() {
    let _scenario = fail::FailScenario::setup();
    let mut world = world_of(5).await;
    world.create(hourly(), &[("tokens", "all")]).await;
    world.pass().await;
    let before = ids(&*world.latest().await);
    let name = |n: i64| format!("dt=2023-08-14/hr=08/{n:04}.parquet");
    world.put(&name(9), parquet(&logs(470_001, "new"), 10)).await;
    world.put(&name(1), parquet(&logs(470_002, "other"), 10)).await;
    world.remove(&name(3)).await;
    let progress = world.pass().await;
    assert_eq!((progress.listed, progress.known, progress.attached, progress.removed), (5, 3, 2, 1));
    assert_eq!(progress.version, Version(2), "all of it is one version");
    world.check().await;
    let after = ids(&*world.latest().await);
    assert_eq!(after[..3], [before[0], before[2], before[4]]);
    // The version before is as it was.
    let old = world
        .metastore
        .inner
        .snapshot(world.table, tarn_metastore::VersionSelector::Version(Version(1)))
        .await
        .unwrap();
    assert_eq!(ids(&old), before);

    for n in [0, 1, 2, 4, 9] {
        world.remove(&name(n)).await;
    }
    let progress = world.pass().await;
    assert_eq!((progress.listed, progress.removed, progress.version), (0, 5, Version(3)));
    world.check().await;
    assert_eq!(world.pass().await.version, Version(3), "nothing new is no version");
}

#[tokio::test]
async fn two_passes_at_once_attach_a_file_once() {
    let _scenario = fail::FailScenario::setup();
    let mut world = world_of(130).await;
    world.create(hourly(), &[]).await;
    let (one, other) = tokio::join!(world.attach.pass(world.table, &|_| {}), world.attach.pass(world.table, &|_| {}));
    let attached = [&one, &other].into_iter().flatten().map(|progress| progress.attached).sum::<u64>();
    assert_eq!(attached, 130, "{one:?} {other:?}");
    world.pass().await;
    world.check().await;
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_looked_at_comes_with_the_next_pass() {
    let _scenario = fail::FailScenario::setup();
    let mut world = world_of(3).await;
    world.create(hourly(), &[]).await;
    let path = "dt=2023-08-14/hr=08/0001.parquet";
    world.store.overwritten.lock().insert(path.into(), parquet(&logs(470_000, "overwritten"), 10));
    let progress = world.pass().await;
    assert_eq!((progress.attached, progress.skipped), (2, 0));
    assert_eq!(world.pass().await.attached, 1);
    world.check().await;
}

#[tokio::test]
async fn a_store_that_is_away_ends_the_pass_and_loses_nothing() {
    let _scenario = fail::FailScenario::setup();
    let mut world = world_of(5).await;
    world.create(hourly(), &[]).await;
    world.store.away.lock().insert("dt=2023-08-14/hr=08/0002.parquet".into());
    let error = world.attach.pass(world.table, &|_| {}).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("0002.parquet"), "{error}");
    assert_eq!(world.latest().await.files.len(), 2, "what came before it is in");
    world.store.away.lock().clear();
    assert_eq!(world.pass().await.attached, 3);
    world.check().await;
}

#[tokio::test]
async fn a_file_that_may_not_be_read_is_tried_again_and_makes_no_versions() {
    let _scenario = fail::FailScenario::setup();
    let mut world = world_of(2).await;
    world.create(hourly(), &[]).await;
    let path = "dt=2023-08-14/hr=08/0001.parquet";
    world.store.denied.lock().insert(path.into());
    assert_eq!(world.pass().await.skipped, 1);
    assert_eq!(world.note(path).await, "the store does not let us read it");
    let again = world.pass().await;
    assert_eq!((again.skipped, again.version), (1, Version(1)));
    world.store.denied.lock().clear();
    assert_eq!(world.pass().await.attached, 1);
    world.check().await;
}

#[tokio::test]
async fn nothing_that_deletes_objects_touches_an_archive() {
    let _scenario = fail::FailScenario::setup();
    let mut world = ArchiveHarness::new();
    // The archive is a folder of a lake, and its files are named as ours: nothing but the table's kind protects them.
    let path = "logs-1/hr=2023-08-14-08/1-00000000-0000-0000-0000-000000000001.parquet";
    world.put(path, parquet(&logs(470_000, "mine"), 10)).await;
    world.create(Archive::default(), &[]).await;
    assert_eq!(world.table, TableId(1));
    world.pass().await;
    let shared = Arc::new(InMemory::new());
    shared.put(&Path::from(path), "somebody's".into()).await.unwrap();
    let lake = world.as_lake(shared.clone());
    world.put("x.parquet", parquet(&logs(470_000, "mine"), 10)).await;
    world.remove(path).await;
    world.pass().await;
    world.clock.advance_ms(1000);
    let expired = lake.expire(world.table, 0, Version(u64::MAX)).await.unwrap();
    assert_eq!((expired.files, expired.oldest), (0, Version(2)), "versions are forgotten");
    let schema = world.schema().await;
    assert_eq!(lake.remove_orphans(&schema, 0).await.unwrap().files, 0);
    assert_eq!(lake.remove_table(&schema).await.unwrap().files, 0);
    // The same through a store that would panic.
    let lake = world.as_lake(world.store.clone());
    world.remove("x.parquet").await;
    world.pass().await;
    world.clock.advance_ms(1000);
    lake.expire(world.table, 0, Version(u64::MAX)).await.unwrap();
    world.metastore.inner.drop_table("logs").await.unwrap();
    lake.remove_table(&schema).await.unwrap();
    assert_eq!(paths(&*shared as &dyn ObjectStore).await, [path]);
}

#[tokio::test]
async fn only_archives_are_attached() {
    let _scenario = fail::FailScenario::setup();
    let world = ArchiveHarness::new();
    let native = world.metastore.inner.create_table(crate::test_data::events()).await.unwrap();
    assert_eq!(world.attach.pass(native.id, &|_| {}).await.unwrap_err().kind(), Kind::Invalid);
    assert_eq!(world.attach.pass(TableId(9), &|_| {}).await.unwrap_err().kind(), Kind::NotFound);
    let error = world.survey(Archive::default()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert_eq!(error.to_string(), "nothing to attach at mem://archive: no file there ends in .parquet");
    world.put("a.parquet", "no").await;
    let error = world.survey(Archive::default()).await.unwrap_err().to_string();
    assert!(error.ends_with("of 1 files, a.parquet: 2 bytes are no Parquet file"), "{error}");
    let unclear = Archive { hour_from: Some("hour".into()), ..Archive::default() };
    assert_eq!(world.survey(unclear).await.unwrap_err().kind(), Kind::Invalid);
    let error = world.survey(hourly()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(
        error.to_string(),
        "hour_from \"dt=…/hr=…\" finds no date in the path of any of 1 files, such as a.parquet"
    );
    // Files beside those with an hour are dated by their rows.
    world.put("dt=2023-08-14/hr=08/b.parquet", parquet(&logs(470_000, "w"), 3)).await;
    world.survey(hourly()).await.unwrap();
}

#[tokio::test]
async fn an_archive_on_the_local_disk() {
    let _scenario = fail::FailScenario::setup();
    let folder = tempfile::tempdir().unwrap();
    let mut world = ArchiveHarness::new();
    let store = object_store::local::LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    world.attach.store = Arc::new(store);
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("dt=2023-08-14/hr=08")).unwrap();
    for n in 0..3 {
        let bytes = parquet(&logs(470_000, "local"), 10);
        std::fs::write(path(&format!("dt=2023-08-14/hr=08/{n}.parquet")), bytes).unwrap();
    }
    world.create(hourly(), &[("tokens", "body")]).await;
    assert_eq!(world.pass().await.attached, 3);
    assert_eq!(world.pass().await.known, 3);
    std::fs::write(path("dt=2023-08-14/hr=08/1.parquet"), parquet(&logs(470_000, "other words"), 10)).unwrap();
    std::fs::remove_file(path("dt=2023-08-14/hr=08/2.parquet")).unwrap();
    let progress = world.pass().await;
    assert_eq!((progress.known, progress.attached, progress.removed), (1, 1, 1));
    assert_eq!(world.latest().await.live_rows(), 8);
}
