//! Nothing is deleted that a kept version, a reader or a writer still needs; what nobody needs goes.

use std::sync::Arc;

use futures::future::BoxFuture;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use tarn_types::Version;

use crate::world::{LakeHarness, small};

const HOUR_MS: i64 = 3_600_000;

#[tokio::test]
async fn versions_are_forgotten_once_superseded_for_long_enough() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(small()).await;
    (0..4).for_each(|at| world.hot.put("a", at));
    world.deliver().await; // 1 at 0 h
    world.clock.advance_ms(HOUR_MS);
    world.hot.delete("a", 1);
    world.deliver().await; // 2 at 1 h
    world.clock.advance_ms(HOUR_MS);
    world.compact_fully().await.unwrap(); // 3 at 2 h: another file
    assert_eq!(world.objects().await.len(), 2);
    let expire = |retention_h: i64, pinned| {
        let (lake, table) = (world.lake.clone(), world.table.id);
        async move { lake.expire(table, (retention_h * HOUR_MS) as u64, Version(pinned)).await.unwrap() }
    };
    let none = expire(2, 3).await;
    assert_eq!((none.oldest, none.files), (Version(0), 0), "0 was superseded two hours ago, not more");
    world.clock.advance_ms(HOUR_MS / 2);
    let first = expire(1, 1).await;
    assert_eq!((first.oldest, first.files), (Version(1), 0), "1 is pinned");
    let second = expire(1, 3).await;
    assert_eq!((second.oldest, second.files), (Version(2), 0), "2 was superseded half an hour ago");
    world.clock.advance_ms(HOUR_MS);
    let third = expire(1, 3).await;
    assert_eq!((third.oldest, third.files), (Version(3), 1), "what 3 replaced goes");
    assert_eq!(world.objects().await.len(), 1);
    world.check().await;
    world.clock.advance_ms(10 * HOUR_MS);
    assert_eq!(expire(1, 3).await.oldest, Version(3), "the latest stays, however old");
    world.check().await;
}

#[tokio::test]
async fn orphans_go_and_nothing_else() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(small()).await;
    (0..4).for_each(|at| world.hot.put("a", at));
    world.deliver().await;
    world.hot.delete("a", 1);
    world.deliver().await;
    world.compact_fully().await.unwrap();
    let needed = world.objects().await.len();
    world.hot.put("b", 1);
    fail::cfg("lake::after_write", "1*return").unwrap();
    world.lake.deliver(&world.hot()).await.unwrap_err();
    let foreign = Path::from("events-1/README");
    world.store.inner.put(&foreign, "mine".into()).await.unwrap();
    world.store.inner.put(&Path::from("events-12/hr=x/y.parquet"), "other".into()).await.unwrap();
    assert_eq!(world.objects().await.len(), needed + 3);

    let a_century_ms = 100 * 366 * 24 * HOUR_MS as u64;
    let young = world.lake.remove_orphans(&world.table, a_century_ms).await.unwrap();
    assert_eq!((young.files, young.foreign), (0, 1), "younger than the grace");
    let old = world.lake.remove_orphans(&world.table, 0).await.unwrap();
    assert_eq!((old.files, old.foreign), (1, 1));
    assert_eq!(world.objects().await.len(), needed + 2);
    world.deliver().await;
    world.check().await;
}

#[tokio::test]
async fn files_that_are_being_written_are_not_orphans() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(small()).await;
    (0..8).for_each(|at| world.hot.put("a", at));
    let (lake, table) = (world.lake.clone(), world.table.clone());
    let hook = move || -> BoxFuture<'static, ()> {
        let (lake, table) = (lake.clone(), table.clone());
        Box::pin(async move {
            let orphans = lake.remove_orphans(&table, 0).await.unwrap();
            assert_eq!(orphans.files, 0, "written, and about to be committed");
        })
    };
    *world.metastore.before_commit.lock() = Some(Arc::new(Box::new(hook)));
    world.deliver().await;
    world.hot.delete("a", 1);
    world.deliver().await;
    world.compact_fully().await.unwrap();
    world.check().await;
}

#[tokio::test]
async fn a_dropped_table_leaves_nothing() {
    let _scenario = fail::FailScenario::setup();
    let world = LakeHarness::new(small()).await;
    (0..4).for_each(|at| world.hot.put("a", at));
    world.deliver().await;
    let other = Path::from("events-12/hr=x/y.parquet");
    world.store.inner.put(&other, "other".into()).await.unwrap();
    assert_eq!(world.lake.remove_table(&world.table).await.unwrap().files, 1);
    assert_eq!(world.objects().await, [other.to_string()]);
}
