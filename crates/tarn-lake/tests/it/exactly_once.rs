//! One call fails, or the process dies at one place: then it is tried again, or started again, and the lake holds each
//! row exactly once. Every call and every place is taken in turn.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tarn_lake::Result;
use tarn_types::FileId;

use crate::faults::FaultTime;
use crate::world::{LakeHarness, small};

const FAILPOINTS: [&str; 6] = [
    "lake::after_write",
    "lake::before_commit",
    "lake::after_commit",
    "lake::after_stage",
    "lake::before_install",
    "lake::after_install",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    Deliver,
    Compact,
}

impl Move {
    async fn run(self, world: &LakeHarness) -> Result<()> {
        match self {
            Self::Deliver => world.lake.deliver(&world.hot()).await.map(drop),
            Self::Compact => world.lake.compact_fully(&world.hot()).await.map(drop),
        }
    }
}

/// Two deliveries old, with changes of every sort waiting.
async fn world() -> LakeHarness {
    let world = LakeHarness::new(small()).await;
    (0..7).for_each(|at| world.hot.put("a", at * 5 % 7));
    world.deliver().await;
    world.hot.put("b", 1);
    world.hot.delete("a", 0);
    world.deliver().await;
    world.hot.put("a", 1);
    world.hot.delete("a", 2);
    world.hot.delete("a", 3);
    (0..6).for_each(|at| world.hot.put("c", at));
    world.check().await;
    world
}

/// Fails once, then works. Answers whether the call that was to fail came at all.
async fn recovers(mut world: LakeHarness, how: Move, crash: bool, what: &str) -> bool {
    let failed = how.run(&world).await;
    let came = [world.store.faults.clear(), world.metastore.faults.clear()] == [true, true];
    if crash {
        world.crash();
        if let Err(error) = world.lake.repair(&world.hot()).await {
            panic!("{what}: repair: {error}");
        }
        world.check().await;
    }
    // More is written before the next attempt; it must not slip into the failed one.
    world.hot.put("a", 1);
    world.hot.put("d", 1);
    for again in 0..3 {
        match Move::Deliver.run(&world).await {
            Ok(()) => {}
            Err(error) => panic!("{what} (first: {failed:?}), again {again}: {error}"),
        }
    }
    world.check().await;
    assert_eq!(world.latest().await.cursor.to_string(), format!("{{1@{}}}", world.hot.head()), "{what}");
    Move::Compact.run(&world).await.unwrap();
    world.check().await;
    // What the failure left behind goes; what is needed stays.
    world.lake.remove_orphans(&world.table, 0).await.unwrap();
    world.check().await;
    let (mut kept, mut objects) = (world.metastore_paths().await, world.objects().await);
    kept.sort();
    objects.sort();
    assert_eq!(objects, kept, "{what}");
    came
}

#[tokio::test]
async fn at_every_failpoint() {
    let _scenario = fail::FailScenario::setup();
    for place in FAILPOINTS {
        for (how, crash) in cases() {
            let world = world().await;
            fail::cfg(place, "1*return").unwrap();
            recovers(world, how, crash, &format!("{place}, {how:?}, crash {crash}")).await;
            fail::remove(place);
        }
    }
}

fn cases() -> [(Move, bool); 4] {
    [(Move::Deliver, false), (Move::Deliver, true), (Move::Compact, false), (Move::Compact, true)]
}

#[tokio::test]
async fn at_every_call_of_the_store() {
    let _scenario = fail::FailScenario::setup();
    for (how, crash) in cases() {
        for when in [FaultTime::Before, FaultTime::After] {
            for nth in 0.. {
                let world = world().await;
                world.store.faults.choose(nth, when);
                let what = format!("store call {nth} {when:?}, {how:?}, crash {crash}");
                if !recovers(world, how, crash, &what).await {
                    assert!(nth >= 4, "{what}: so few calls");
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn at_every_call_of_the_metastore() {
    let _scenario = fail::FailScenario::setup();
    for (how, crash) in cases() {
        for when in [FaultTime::Before, FaultTime::After] {
            for nth in 0.. {
                let world = world().await;
                world.metastore.faults.choose(nth, when);
                let what = format!("metastore call {nth} {when:?}, {how:?}, crash {crash}");
                if !recovers(world, how, crash, &what).await {
                    assert!(nth >= 4, "{what}: so few calls");
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn when_the_hot_side_refuses() {
    let _scenario = fail::FailScenario::setup();
    for (how, crash) in cases() {
        let world_ = world().await;
        world_.hot.fail_next_stage();
        recovers(world_, how, crash, &format!("stage, {how:?}, crash {crash}")).await;
        let world_ = world().await;
        world_.hot.fail_next_install();
        recovers(world_, how, crash, &format!("install, {how:?}, crash {crash}")).await;
    }
}

#[tokio::test]
async fn a_lost_answer_of_a_commit_is_found_without_a_second_one() {
    let _scenario = fail::FailScenario::setup();
    let world = world().await;
    // The calls of a delivery: version (repair), snapshot, allocate, commit.
    let before = world.latest().await.version;
    world.metastore.faults.choose(3, FaultTime::After);
    let delivered = world.deliver().await;
    assert!(world.metastore.faults.clear());
    assert_eq!(delivered.version, before.next());
    assert_eq!(world.latest().await.version, before.next());
    world.check().await;
}

/// What a second lake worker, against the rules, commits in the middle of a delivery: it buries these rows.
fn commits_between(world: &LakeHarness, dead: BTreeMap<FileId, RoaringBitmap>) {
    let (metastore, table) = (world.metastore.inner.clone(), world.table.id);
    let hook = move || -> futures::future::BoxFuture<'static, ()> {
        let (metastore, dead) = (metastore.clone(), dead.clone());
        Box::pin(async move {
            let expected = tarn_metastore::MetastoreExt::version(&*metastore, table).await.unwrap();
            let commit = tarn_metastore::Commit {
                id: uuid::Uuid::from_u128(99),
                expected: tarn_metastore::ExpectedVersion::At(expected),
                add: vec![],
                block_metadata: Default::default(),
                remove: vec![],
                deletion_vectors: dead,
                cursor: None,
                kind: tarn_metastore::CommitKind::Compaction,
                at_ms: 0,
            };
            metastore.commit(table, commit).await.unwrap();
        })
    };
    *world.metastore.before_commit.lock() = Some(std::sync::Arc::new(Box::new(hook)));
}

#[tokio::test]
async fn a_committer_of_other_rows_is_no_conflict() {
    let _scenario = fail::FailScenario::setup();
    for how in [Move::Deliver, Move::Compact] {
        for crash in [false, true] {
            let mut world = world().await;
            let before = world.latest().await.version;
            commits_between(&world, BTreeMap::new());
            if crash {
                fail::cfg("lake::after_commit", "1*return").unwrap();
            }
            assert_eq!(how.run(&world).await.is_err(), crash);
            fail::remove("lake::after_commit");
            *world.metastore.before_commit.lock() = None;
            assert_eq!(world.latest().await.version, before.next().next(), "{how:?}");
            if crash {
                world.crash();
                world.lake.repair(&world.hot()).await.unwrap();
            }
            world.check().await;
            world.hot.put("d", 1);
            world.deliver().await;
            world.check().await;
        }
    }
}

#[tokio::test]
async fn a_committer_of_the_same_rows_makes_a_conflict_and_no_harm() {
    let _scenario = fail::FailScenario::setup();
    let world = world().await;
    // The delivery supersedes that row, too.
    let (file, row) = world.hot.addresses()[&("a".to_owned(), 1)];
    let mut dead =
        world.latest().await.deletion_vectors.get(&file).map_or_else(RoaringBitmap::new, |dead| (**dead).clone());
    dead.insert(row);
    commits_between(&world, [(file, dead)].into());
    let error = world.lake.deliver(&world.hot()).await.unwrap_err();
    assert_eq!(error.kind(), tarn_types::Kind::Conflict);
    *world.metastore.before_commit.lock() = None;
    world.deliver().await;
    world.check().await;
}

impl LakeHarness {
    /// The paths of all files of all kept versions.
    async fn metastore_paths(&self) -> Vec<String> {
        use tarn_metastore::{Metastore, VersionSelector};
        let metastore = &self.metastore.inner;
        let oldest = metastore.snapshot(self.table.id, VersionSelector::Oldest).await.unwrap();
        let commits = Metastore::commits(&**metastore, self.table.id, oldest.version).await.unwrap();
        let added = commits.iter().flat_map(|commit| &commit.added);
        oldest.files.iter().chain(added).map(|file| file.path.clone()).collect()
    }
}
