//! Does maintenance change no answer, wherever it is stopped?

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::super::inner::CrashPoint;
use super::*;
use crate::contract::sample_schema;
use crate::{
    Block, BlockMetadata, BloomBuilder, ColumnChunk, ColumnStats, CommitKind, ExpectedVersion, Hash, Memory, token_hash,
};
use tarn_types::{ColumnId, Value};

const STEPS: [CrashPoint; 8] = [
    CrashPoint::Planned,
    CrashPoint::PackWritten,
    CrashPoint::PacksNamed,
    CrashPoint::PackDeleted,
    CrashPoint::LogPrepared,
    CrashPoint::LogTurned,
    CrashPoint::CheckpointWritten,
    CrashPoint::OldDeleted,
];

/// Packs on the disk are those that are named, once maintenance has deleted what was found when the folder was opened.
fn assert_no_rubbish(dir: &Path, metastore: &Embedded) {
    metastore.inner.delete_unnamed_packs().unwrap();
    let named: BTreeSet<PathBuf> = metastore.inner.held.read().places.packs().map(|pack| pack.path(dir)).collect();
    let there = files_in(dir).into_iter().map(|file| dir.join(file));
    let there: BTreeSet<PathBuf> = there.filter(|file| file.starts_with(dir.join("packs"))).collect();
    assert_eq!(there, named);
}

#[test]
fn a_process_that_dies_at_any_step_of_maintenance_lost_nothing() {
    let mut reached = BTreeSet::new();
    for step in STEPS {
        for n in 0..3 {
            let dir = scratch().unwrap();
            let mut metastore = open_with(dir.path(), READY).unwrap().0;
            for change in Script::steps() {
                runtime().block_on(change.run(&metastore));
                let before = describe(&metastore);
                *metastore.inner.stop_at.lock() = Some((step, n));
                let stopped = runtime().block_on(metastore.maintain(1 << 30));
                if stopped.is_err() {
                    reached.insert(format!("{step:?} {n}"));
                    // The process goes on, or another one opens what it left.
                    assert_eq!(describe(&metastore), before, "{step:?} {n}");
                    drop(metastore);
                    metastore = open_with(dir.path(), READY).unwrap().0;
                    assert_eq!(describe(&metastore), before, "{step:?} {n}, opened anew");
                    assert_no_rubbish(dir.path(), &metastore);
                }
                *metastore.inner.stop_at.lock() = None;
            }
            let before = describe(&metastore);
            while runtime().block_on(metastore.maintain(1)).unwrap().more {}
            assert_eq!(describe(&metastore), before);
            assert_no_rubbish(dir.path(), &metastore);
        }
    }
    assert!(STEPS.iter().all(|step| reached.contains(&format!("{step:?} 0"))), "{reached:?}");
}

/// Of four chunks.
const LONGEST_FILTER_BYTES: u64 = 4 * 32;

/// An hour, and of each block the size of its filter (2^n chunks, or none) and which keys and columns it has.
type AnyFile = (i64, Vec<(Option<u32>, u16)>);

/// What a life of a metastore may bring.
#[derive(Debug, Clone)]
enum MaintenanceOp {
    Add(Vec<AnyFile>),
    /// Every so many-th file, counted from some file on.
    Remove(usize, usize),
    Expire,
    Maintain(u64),
    Stop(usize, u32),
    Reopen,
    Drop,
}

fn any_op() -> impl Strategy<Value = MaintenanceOp> {
    let block = (proptest::option::weighted(0.8, 0..3u32), any::<u16>());
    let file = (0..3i64, proptest::collection::vec(block, 0..4));
    prop_oneof![
        6 => proptest::collection::vec(file, 1..4).prop_map(MaintenanceOp::Add),
        2 => (0..4usize, 1..4usize).prop_map(|(from, every)| MaintenanceOp::Remove(from, every)),
        2 => Just(MaintenanceOp::Expire),
        4 => (1..5_000u64).prop_map(MaintenanceOp::Maintain),
        2 => (0..STEPS.len(), 0..3u32).prop_map(|(step, n)| MaintenanceOp::Stop(step, n)),
        1 => Just(MaintenanceOp::Reopen),
        1 => Just(MaintenanceOp::Drop),
    ]
}

fn key(n: u16) -> Hash {
    token_hash(&format!("key {n}"))
}

/// Keys and columns by the bits of `which`.
fn block_metadata(row_group: u32, log_chunks: Option<u32>, which: u16) -> BlockMetadata {
    let bloom = log_chunks.map(|log_chunks| {
        let mut builder = BloomBuilder::new(1 << log_chunks);
        (0..16).filter(|n| which >> n & 1 == 1).for_each(|n| builder.insert(key(n)));
        builder.finish()
    });
    let column = |n: u32| {
        let (min, max) = (Some(Value::Int64(which.into())), Some(Value::Text(format!("{which} {n}"))));
        let stats = ColumnStats { column: ColumnId(n), min, max, exact: true, null_count: 1, bytes: 2 };
        (
            stats,
            ColumnChunk { shape: format!("shape {}", n % 2).into(), n_values: u64::from(n), ..ColumnChunk::default() },
        )
    };
    BlockMetadata { row_group, columns: (0..4).filter(|n| which >> n & 1 == 1).map(column).collect(), bloom }
}

fn change(id: u128, expected: ExpectedVersion) -> Commit {
    Commit {
        id: Uuid::from_u128(id),
        expected,
        add: vec![],
        block_metadata: BTreeMap::new(),
        remove: vec![],
        deletion_vectors: BTreeMap::new(),
        cursor: None,
        kind: CommitKind::Delivery,
        at_ms: 0,
    }
}

/// All that both answer, at every version that is kept.
async fn assert_same(ours: &Embedded, model: &Memory, table: TableId) {
    assert_eq!(contract::describe(ours).await, contract::describe(model).await);
    let oldest = model.snapshot(table, VersionSelector::Oldest).await.unwrap();
    let latest = model.snapshot(table, VersionSelector::Latest).await.unwrap();
    for version in [oldest, latest] {
        let hours = hour_blocks(&version.files);
        for n in 0..17 {
            let clauses = [vec![vec![key(n)], vec![key(n / 2), key(n + 1)]], vec![vec![key(n / 3)], vec![]]];
            let clauses = clauses[..1 + usize::from(n % 2)].to_vec();
            let probe = Probe { hours: hours.clone(), clauses };
            let (ours, theirs) = (ours.probe(table, probe.clone()).await, model.probe(table, probe).await);
            let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
            assert_eq!((&ours.kept, ours.without_bloom), (&theirs.kept, theirs.without_bloom));
        }
        // Some blocks, some columns, one of them twice.
        let hours: Vec<_> = hours
            .into_iter()
            .map(|of| HourBlocks { blocks: of.blocks.into_iter().step_by(2).collect(), ..of })
            .collect();
        let columns = Some([3, 0, 9, 3].map(ColumnId).to_vec());
        let wanted = BlockMetadataRequest { hours, columns, stats: true, chunks: false, blooms: true };
        let (ours, theirs) = (
            ours.block_metadata(table, wanted.clone()).await.unwrap(),
            model.block_metadata(table, wanted).await.unwrap(),
        );
        assert_eq!((ours.columns, ours.blooms), (theirs.columns, theirs.blooms));
    }
}

fn run(ops: Vec<MaintenanceOp>, limits: Limits) {
    let dir = scratch().unwrap();
    let mut ours = open_with(dir.path(), limits).unwrap().0;
    let model = Memory::new(Arc::new(ManualClock::new(1_000)));
    let runtime = runtime();
    runtime.block_on(async {
        let mut table = TableId(1);
        ours.create_table(sample_schema("t")).await.unwrap();
        model.create_table(sample_schema("t")).await.unwrap();
        for (id, op) in (1..).zip(ops) {
            let latest = model.snapshot(table, VersionSelector::Latest).await.unwrap();
            match op {
                MaintenanceOp::Add(files) => {
                    let first = ours.allocate_files(files.len() as u64).await.unwrap();
                    model.allocate_files(2_000).await.unwrap();
                    let mut change = change(id, ExpectedVersion::Latest);
                    for (file, (hour, blocks)) in (first.0..).map(FileId).zip(files) {
                        let block = |row_group| Block {
                            row_group,
                            first_row: row_group.into(),
                            n_rows: 1,
                            bytes: 1,
                            columns: vec![],
                        };
                        let n = blocks.len() as u32;
                        let sample = contract::sample_file(file, n.into());
                        change.add.push(File { hour, blocks: (0..n).map(block).collect(), ..sample });
                        // Some blocks have no metadata at all.
                        let with = (0..).zip(blocks).filter(|(_, (_, which))| which % 5 > 0);
                        let with =
                            with.map(|(row_group, (log_chunks, which))| block_metadata(row_group, log_chunks, which));
                        change.block_metadata.insert(file, with.collect());
                    }
                    ours.commit(table, change.clone()).await.unwrap();
                    model.commit(table, change).await.unwrap();
                }
                MaintenanceOp::Remove(from, every) => {
                    let remove = latest.files.iter().map(|file| file.id).skip(from).step_by(every).collect();
                    let change = Commit { remove, ..change(id, ExpectedVersion::At(latest.version)) };
                    ours.commit(table, change.clone()).await.unwrap();
                    model.commit(table, change).await.unwrap();
                }
                MaintenanceOp::Expire => {
                    let gone = ours.expire(table, latest.version).await.unwrap();
                    assert_eq!(gone, model.expire(table, latest.version).await.unwrap());
                }
                MaintenanceOp::Maintain(budget_bytes) => drop(ours.maintain(budget_bytes).await.unwrap()),
                MaintenanceOp::Stop(step, n) => {
                    *ours.inner.stop_at.lock() = Some((STEPS[step], n));
                    if ours.maintain(1 << 30).await.is_err() {
                        drop(ours);
                        ours = open_with(dir.path(), limits).unwrap().0;
                        assert_no_rubbish(dir.path(), &ours);
                    }
                    *ours.inner.stop_at.lock() = None;
                }
                MaintenanceOp::Reopen => {
                    drop(ours);
                    ours = open_with(dir.path(), limits).unwrap().0;
                    assert_no_rubbish(dir.path(), &ours);
                }
                MaintenanceOp::Drop => {
                    ours.drop_table("t").await.unwrap();
                    model.drop_table("t").await.unwrap();
                    table = ours.create_table(sample_schema("t")).await.unwrap().id;
                    assert_eq!(model.create_table(sample_schema("t")).await.unwrap().id, table);
                }
            }
            assert_same(&ours, &model, table).await;
        }
        while ours.maintain(1 << 30).await.unwrap().more {}
        assert_same(&ours, &model, table).await;
        assert_no_rubbish(dir.path(), &ours);
        // Nothing is kept of what is gone, but where more of a pack is alive than gone: at most one block for each that
        // is alive, and only the one that is gone may have a filter.
        let (ours, model) = (ours.stats().await.unwrap(), model.stats().await.unwrap());
        let gone_bytes = model.blocks * LONGEST_FILTER_BYTES;
        assert!(
            ours.bloom_bytes >= model.bloom_bytes && ours.bloom_bytes <= model.bloom_bytes + gone_bytes,
            "{ours:?} {model:?}"
        );
        assert!(ours.column_bytes >= model.column_bytes, "{ours:?} {model:?}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_answers_as_the_memory_does(ops in proptest::collection::vec(any_op(), 1..16), eager: bool, loose_blocks in 1..5usize, merged_packs in 2..4usize) {
        let limits = if eager { EAGER } else { READY };
        run(ops, Limits { loose_blocks, loose_bytes: 300, merged_packs, ..limits });
    }
}
