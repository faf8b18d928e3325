//! hot ∪ lake equals a model at the snapshot's position, for any interleaving of writes, deliveries, compactions,
//! splits, evictions and crashes.

use proptest::prelude::*;
use tarn_types::Op;

use crate::world::{Disk, MutationRequest, N_IDS, SeqNoGuard, TableHarness};

#[derive(Clone, Debug)]
enum TableOp {
    Write(Vec<MutationRequest>),
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

fn ask() -> impl Strategy<Value = MutationRequest> {
    let op = prop_oneof![
        3 => Just(Op::Put),
        2 => Just(Op::Insert),
        2 => Just(Op::Create),
        3 => Just(Op::Patch),
        3 => Just(Op::Delete),
    ];
    let guard = prop_oneof![6 => Just(SeqNoGuard::None), 2 => Just(SeqNoGuard::Right), 1 => Just(SeqNoGuard::Wrong)];
    (op, 0..N_IDS, any::<Option<i8>>(), proptest::option::of("[a-c]{0,3}"), guard)
        .prop_map(|(op, id, v, s, guard)| MutationRequest { op, id, v: v.map(i64::from), s, guard })
}

/// Many plain rows at once: what a bulk load sends.
fn bulk() -> impl Strategy<Value = Vec<MutationRequest>> {
    let row = (0..N_IDS, any::<i8>()).prop_map(|(id, v)| (id, Some(i64::from(v))));
    let op = prop_oneof![Just(Op::Put), Just(Op::Insert), Just(Op::Create)];
    (op, proptest::collection::vec(row, 8..20)).prop_map(|(op, rows)| {
        rows.into_iter().map(|(id, v)| MutationRequest { op, id, v, s: None, guard: SeqNoGuard::None }).collect()
    })
}

fn step() -> impl Strategy<Value = TableOp> {
    prop_oneof![
        12 => proptest::collection::vec(ask(), 1..6).prop_map(TableOp::Write),
        3 => bulk().prop_map(TableOp::Write),
        3 => (0usize..4).prop_map(TableOp::Lag),
        4 => Just(TableOp::Save),
        2 => Just(TableOp::CheckSaved),
        3 => Just(TableOp::Freeze),
        3 => Just(TableOp::Commit),
        3 => Just(TableOp::Install),
        3 => Just(TableOp::Deliver),
        2 => Just(TableOp::Compact),
        1 => (0..N_IDS).prop_map(TableOp::Split),
        3 => (1usize..40).prop_map(TableOp::Evict),
        2 => Just(TableOp::Flush),
        2 => Just(TableOp::Crash),
    ]
}

fn run(mut world: TableHarness, steps: Vec<TableOp>) {
    for step in steps {
        world.clock.advance_ms(10);
        match step {
            TableOp::Write(asks) => world.write(&asks),
            TableOp::Lag(lag) => world.lag = lag,
            TableOp::Save => world.save(),
            TableOp::CheckSaved => world.check_saved(),
            TableOp::Freeze => world.freeze(),
            TableOp::Commit => world.commit(),
            TableOp::Install => world.install(),
            TableOp::Deliver => {
                world.install();
                world.freeze();
                world.commit();
                world.install();
            }
            TableOp::Compact => world.compact(),
            TableOp::Split(id) => world.split(id),
            TableOp::Evict(budget) => world.evict(budget),
            TableOp::Flush => world.table().flush().unwrap(),
            TableOp::Crash => world.crash(),
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
        run(TableHarness::new(Disk::Memory), steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_on_disk_is_the_model(steps in proptest::collection::vec(step(), 30..60)) {
        let dir = tempfile::tempdir().unwrap();
        run(TableHarness::new(Disk::Rocks(dir.path().to_owned())), steps);
    }
}
