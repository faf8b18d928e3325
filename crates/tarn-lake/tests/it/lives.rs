//! Random lives of a table: writes, deliveries, compactions, expiry, crashes and faults in any order. The lake equals
//! the model throughout.

use proptest::prelude::*;

use tarn_metastore::VersionSelector;

use crate::faults::FaultTime;
use crate::world::{LakeHarness, small};

#[derive(Debug, Clone)]
enum LifeOp {
    Put(u8, i64),
    Delete(u8, i64),
    Deliver,
    Compact,
    CompactFully,
    Expire,
    RemoveOrphans,
    Crash,
    StoreFault(u64, bool),
    MetastoreFault(u64, bool),
    Failpoint(usize),
}

fn step() -> impl Strategy<Value = LifeOp> {
    prop_oneof![
        12 => (0..3u8, 0..6i64).prop_map(|(device, at)| LifeOp::Put(device, at)),
        5 => (0..3u8, 0..6i64).prop_map(|(device, at)| LifeOp::Delete(device, at)),
        6 => Just(LifeOp::Deliver),
        2 => Just(LifeOp::Compact),
        2 => Just(LifeOp::CompactFully),
        1 => Just(LifeOp::Expire),
        1 => Just(LifeOp::RemoveOrphans),
        2 => Just(LifeOp::Crash),
        1 => (0..12u64, any::<bool>()).prop_map(|(nth, after)| LifeOp::StoreFault(nth, after)),
        1 => (0..6u64, any::<bool>()).prop_map(|(nth, after)| LifeOp::MetastoreFault(nth, after)),
        2 => (0..6usize).prop_map(LifeOp::Failpoint),
    ]
}

const FAILPOINTS: [&str; 6] = [
    "lake::after_write",
    "lake::before_commit",
    "lake::after_commit",
    "lake::after_stage",
    "lake::before_install",
    "lake::after_install",
];

async fn live(steps: Vec<LifeOp>) {
    let mut world = LakeHarness::new(small()).await;
    let when = |after| if after { FaultTime::After } else { FaultTime::Before };
    for step in steps {
        // Whatever fails was meant to; what must hold is looked at afterwards.
        match step {
            LifeOp::Put(device, at) => world.hot.put(&device.to_string(), at),
            LifeOp::Delete(device, at) => world.hot.delete(&device.to_string(), at),
            LifeOp::Deliver => drop(world.lake.deliver(&world.hot()).await),
            LifeOp::Compact => drop(world.lake.compact(&world.hot()).await),
            LifeOp::CompactFully => drop(world.lake.compact_fully(&world.hot()).await),
            LifeOp::Expire => {
                let pinned = tarn_feed::HotTable::installed(&*world.hot).0;
                drop(world.lake.expire(world.table.id, 0, pinned).await);
                world.clock.advance_ms(1);
            }
            LifeOp::RemoveOrphans => drop(world.lake.remove_orphans(&world.table, 0).await),
            LifeOp::Crash => {
                world.crash();
                // The next start tries again until it works.
                while world.lake.repair(&world.hot()).await.is_err() {}
                world.check().await;
            }
            LifeOp::StoreFault(nth, after) => world.store.faults.choose(nth, when(after)),
            LifeOp::MetastoreFault(nth, after) => world.metastore.faults.choose(nth, when(after)),
            LifeOp::Failpoint(place) => fail::cfg(FAILPOINTS[place], "1*return").unwrap(),
        }
        let oldest = world.metastore.inner.snapshot(world.table.id, VersionSelector::Oldest).await.unwrap().version;
        let latest = world.latest().await.version;
        for version in oldest.0.max(latest.0.saturating_sub(2))..=latest.0 {
            let at = VersionSelector::Version(tarn_types::Version(version));
            let version = world.metastore.inner.snapshot(world.table.id, at).await.unwrap();
            world.check_rows(&version).await;
        }
    }
    FAILPOINTS.iter().for_each(fail::remove);
    for _ in 0..4 {
        drop(world.lake.deliver(&world.hot()).await);
    }
    world.check().await;
    assert_eq!(world.latest().await.cursor.get(tarn_types::TabletId(1)).0, world.hot.head());
}

/// How many lives: `TARN_LIVES`, or few enough for every build.
fn config() -> ProptestConfig {
    let lives = std::env::var("TARN_LIVES").ok().and_then(|lives| lives.parse().ok());
    ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::with_cases(lives.unwrap_or(48)) }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn the_lake_equals_the_model_whatever_happens(steps in proptest::collection::vec(step(), 1..50)) {
        let _scenario = fail::FailScenario::setup();
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(live(steps));
    }
}
