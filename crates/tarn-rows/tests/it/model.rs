//! hot ∪ lake equals a model at the snapshot's position, for any interleaving of writes, deliveries, compactions,
//! splits, evictions and crashes.

use proptest::prelude::*;
use tarn_types::Op;

use crate::world::{Ask, Disk, Guard, N_IDS, World};

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Ask>),
    /// From now on entries wait in the log.
    Lag(usize),
    Save,
    CheckSaved,
    Freeze,
    Commit,
    Install,
    Deliver,
    Compact,
    Split(i64),
    Evict(usize),
    Flush,
    Crash,
}

fn ask() -> impl Strategy<Value = Ask> {
    let op = prop_oneof![
        3 => Just(Op::Put),
        2 => Just(Op::Insert),
        2 => Just(Op::Create),
        3 => Just(Op::Patch),
        3 => Just(Op::Delete),
    ];
    let guard = prop_oneof![6 => Just(Guard::None), 2 => Just(Guard::Right), 1 => Just(Guard::Wrong)];
    (op, 0..N_IDS, any::<Option<i8>>(), proptest::option::of("[a-c]{0,3}"), guard)
        .prop_map(|(op, id, v, s, guard)| Ask { op, id, v: v.map(i64::from), s, guard })
}

/// Many plain rows at once: what a bulk load sends.
fn bulk() -> impl Strategy<Value = Vec<Ask>> {
    let row = (0..N_IDS, any::<i8>()).prop_map(|(id, v)| (id, Some(i64::from(v))));
    let op = prop_oneof![Just(Op::Put), Just(Op::Insert), Just(Op::Create)];
    (op, proptest::collection::vec(row, 8..20))
        .prop_map(|(op, rows)| rows.into_iter().map(|(id, v)| Ask { op, id, v, s: None, guard: Guard::None }).collect())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => proptest::collection::vec(ask(), 1..6).prop_map(Step::Write),
        3 => bulk().prop_map(Step::Write),
        3 => (0usize..4).prop_map(Step::Lag),
        4 => Just(Step::Save),
        2 => Just(Step::CheckSaved),
        3 => Just(Step::Freeze),
        3 => Just(Step::Commit),
        3 => Just(Step::Install),
        3 => Just(Step::Deliver),
        2 => Just(Step::Compact),
        1 => (0..N_IDS).prop_map(Step::Split),
        3 => (1usize..40).prop_map(Step::Evict),
        2 => Just(Step::Flush),
        2 => Just(Step::Crash),
    ]
}

fn run(mut world: World, steps: Vec<Step>) {
    for step in steps {
        world.clock.advance_ms(10);
        match step {
            Step::Write(asks) => world.write(&asks),
            Step::Lag(lag) => world.lag = lag,
            Step::Save => world.save(),
            Step::CheckSaved => world.check_saved(),
            Step::Freeze => world.freeze(),
            Step::Commit => world.commit(),
            Step::Install => world.install(),
            Step::Deliver => {
                world.install();
                world.freeze();
                world.commit();
                world.install();
            }
            Step::Compact => world.compact(),
            Step::Split(id) => world.split(id),
            Step::Evict(budget) => world.evict(budget),
            Step::Flush => world.table().flush().unwrap(),
            Step::Crash => world.crash(),
        }
        if world.is_even() {
            world.check_now();
        }
    }
    world.check_saved();
    world.crash();
    world.check_now();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_in_memory_is_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        run(World::new(Disk::Memory), steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_on_disk_is_the_model(steps in proptest::collection::vec(step(), 30..60)) {
        let dir = tempfile::tempdir().unwrap();
        run(World::new(Disk::Rocks(dir.path().to_owned())), steps);
    }
}
