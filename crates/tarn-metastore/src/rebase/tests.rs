//! Writers that read at some time and commit at another, in any order, against a table of which one commit after the
//! other is made.
//!
//! A delivery writes rows of one tablet: a file, the rows that they were before buried, the cursor. A compaction writes
//! the live rows of some files into one. Each is made of the version that its writer read. After each commit that comes
//! in, the live rows of the latest version must be what the deliveries that came in wrote, in the order in which they
//! did; each that is refused must have met another in a file's rows or a tablet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use roaring::RoaringBitmap;
use tarn_types::{FileId, SeqNo, TableId, TabletId};

use crate::check::{CommitBase, CommitCheck, check_commit};
use crate::contract::{commit, sample_file};
use crate::ids::Ids;
use crate::{Commit, CommitKind, Error, ExpectedVersion, Result, TableVersion};

const N_WRITERS: usize = 4;
const N_TABLETS: u32 = 3;
/// Of each tablet; few, so that rows are written again and again.
const N_KEYS: u64 = 4;

/// What is in the files: by row, a key and its value.
type RowValue = (u32, u64);
type FileRows = BTreeMap<FileId, Vec<(RowValue, u64)>>;

#[derive(Clone, Debug)]
enum WriterOp {
    Read { writer: usize },
    Deliver { writer: usize, tablet: u32, keys: BTreeSet<u64> },
    Compact { writer: usize, picks: Vec<u8> },
}

fn step() -> impl Strategy<Value = WriterOp> {
    let writer = || 0..N_WRITERS;
    let keys = proptest::collection::btree_set(0..N_KEYS, 1..4);
    prop_oneof![
        3 => writer().prop_map(|writer| WriterOp::Read { writer }),
        4 => (writer(), 1..=N_TABLETS, keys)
            .prop_map(|(writer, tablet, keys)| WriterOp::Deliver { writer, tablet, keys }),
        2 => (writer(), proptest::collection::vec(any::<u8>(), 1..4))
            .prop_map(|(writer, picks)| WriterOp::Compact { writer, picks }),
    ]
}

/// What a commit touched that came in.
struct CommitFootprint {
    version: u64,
    removed: BTreeSet<FileId>,
    buried: BTreeSet<(FileId, u32)>,
    tablet: Option<u32>,
}

type CheckFn = fn(&CommitBase<'_>, Commit) -> Result<CommitCheck>;

struct RebaseHarness {
    check: CheckFn,
    latest: Arc<TableVersion>,
    /// What each writer read.
    read: Vec<Arc<TableVersion>>,
    ids: Ids,
    rows: FileRows,
    /// One after the other.
    model: BTreeMap<RowValue, u64>,
    history: Vec<CommitFootprint>,
    next: u64,
    n_rebased: usize,
    n_refused: usize,
}

impl RebaseHarness {
    fn new(check: CheckFn) -> RebaseHarness {
        let latest = Arc::new(TableVersion::default());
        RebaseHarness {
            check,
            read: vec![latest.clone(); N_WRITERS],
            latest,
            ids: Ids::new(),
            rows: FileRows::new(),
            model: BTreeMap::new(),
            history: vec![],
            next: 1,
            n_rebased: 0,
            n_refused: 0,
        }
    }

    fn live<'a>(&'a self, version: &'a TableVersion) -> impl Iterator<Item = (FileId, u32, RowValue, u64)> + 'a {
        version.files.iter().flat_map(move |file| {
            let dead = version.deletion_vectors.get(&file.id);
            let rows = self.rows[&file.id].iter().enumerate();
            let rows = rows.map(|(at, (key, value))| (file.id, at as u32, *key, *value));
            rows.filter(move |(_, at, ..)| dead.is_none_or(|dead| !dead.contains(*at)))
        })
    }

    fn step(&mut self, step: &WriterOp) -> Result<(), String> {
        match step {
            WriterOp::Read { writer } => {
                self.read[*writer] = self.latest.clone();
                Ok(())
            }
            WriterOp::Deliver { writer, tablet, keys } => self.deliver(*writer, *tablet, keys),
            WriterOp::Compact { writer, picks } => self.compact(*writer, picks),
        }
    }

    fn deliver(&mut self, writer: usize, tablet: u32, keys: &BTreeSet<u64>) -> Result<(), String> {
        let base = self.read[writer].clone();
        let written: Vec<(RowValue, u64)> = keys.iter().map(|key| ((tablet, *key), self.next)).collect();
        let mut dead: BTreeMap<FileId, RoaringBitmap> = BTreeMap::new();
        let mut buried = BTreeSet::new();
        for (file, at, key, _) in self.live(&base) {
            if written.iter().any(|(other, _)| *other == key) {
                let before =
                    || base.deletion_vectors.get(&file).map_or_else(RoaringBitmap::new, |dead| (**dead).clone());
                dead.entry(file).or_insert_with(before).insert(at);
                buried.insert((file, at));
            }
        }
        // As deliveries do: a file of which nothing lives is removed.
        let is_whole = |file: &FileId, dead: &RoaringBitmap| dead.len() == self.rows[file].len() as u64;
        let removed: BTreeSet<FileId> =
            dead.iter().filter(|(file, dead)| is_whole(file, dead)).map(|(file, _)| *file).collect();
        dead.retain(|file, _| !removed.contains(file));
        let mut cursor = base.cursor.clone();
        cursor.set(TabletId(tablet), SeqNo(self.next));
        let change = Commit {
            remove: removed.iter().copied().collect(),
            deletion_vectors: dead,
            cursor: Some(cursor),
            kind: CommitKind::Delivery,
            ..commit(0, 0)
        };
        let touched = CommitFootprint { version: 0, removed, buried, tablet: Some(tablet) };
        if self.commit(&base, change, written.clone(), touched)? {
            self.model.extend(written);
        }
        self.compare()
    }

    fn compact(&mut self, writer: usize, picks: &[u8]) -> Result<(), String> {
        let base = self.read[writer].clone();
        let there: Vec<FileId> = base.files.iter().map(|file| file.id).collect();
        let picked = picks.iter().filter_map(|pick| there.get(usize::from(*pick) % there.len().max(1)).copied());
        let removed: BTreeSet<FileId> = picked.collect();
        let written: Vec<(RowValue, u64)> = self
            .live(&base)
            .filter(|(file, ..)| removed.contains(file))
            .map(|(_, _, key, value)| (key, value))
            .collect();
        let change = Commit { remove: removed.iter().copied().collect(), kind: CommitKind::Compaction, ..commit(0, 0) };
        self.commit(
            &base,
            change,
            written,
            CommitFootprint { version: 0, removed, buried: BTreeSet::new(), tablet: None },
        )?;
        self.compare()
    }

    /// Whether it came in.
    fn commit(
        &mut self,
        base: &Arc<TableVersion>,
        change: Commit,
        written: Vec<(RowValue, u64)>,
        mut touched: CommitFootprint,
    ) -> Result<bool, String> {
        let file = FileId(self.next);
        let add = if written.is_empty() { vec![] } else { vec![sample_file(file, written.len() as u64)] };
        let id = commit(u128::from(self.next), 0).id;
        let change = Commit { id, expected: ExpectedVersion::Disjoint(base.clone()), add, ..change };
        self.next += 1;
        let standing = CommitBase {
            table: TableId(1),
            latest: &self.latest,
            ids: &self.ids,
            next_file: FileId(self.next),
            restoring: false,
        };
        let between = self.history.iter().filter(|other| other.version > base.version.0);
        let meets = between.filter(|other| touched.meets(other)).map(|other| other.version).collect::<Vec<_>>();
        match (self.check)(&standing, change) {
            Ok(CommitCheck::New { next, info, .. }) => {
                if !meets.is_empty() {
                    return Err(format!("commit {id} of version {} came in over {meets:?}", base.version));
                }
                self.n_rebased += usize::from(base.version != self.latest.version);
                touched.version = info.version.0;
                self.ids.insert(info.id, info.version);
                self.history.push(touched);
                self.rows.insert(file, written);
                self.latest = next;
                Ok(true)
            }
            Ok(CommitCheck::Already(version)) => Err(format!("commit {id} is in version {version} already")),
            Err(Error::Conflict { .. }) if !meets.is_empty() => {
                self.n_refused += 1;
                Ok(false)
            }
            Err(error) => Err(format!("commit {id} of version {} met nobody: {error}", base.version)),
        }
    }

    fn compare(&self) -> Result<(), String> {
        let mut found = BTreeMap::new();
        for (file, at, key, value) in self.live(&self.latest) {
            if let Some(other) = found.insert(key, value) {
                return Err(format!("row {key:?} is there as {other} and, in row {at} of file {file}, as {value}"));
            }
        }
        match found == self.model {
            true => Ok(()),
            false => Err(format!("{found:?} at version {}, want {:?}", self.latest.version, self.model)),
        }
    }
}

impl CommitFootprint {
    /// Two commits of which one has to be made anew.
    fn meets(&self, other: &CommitFootprint) -> bool {
        let in_files =
            |of: &CommitFootprint, removed: &BTreeSet<FileId>| of.buried.iter().any(|(file, _)| removed.contains(file));
        !self.removed.is_disjoint(&other.removed)
            || in_files(self, &other.removed)
            || in_files(other, &self.removed)
            || !self.buried.is_disjoint(&other.buried)
            || (self.tablet.is_some() && self.tablet == other.tablet)
    }
}

fn run(check: CheckFn, steps: &[WriterOp]) -> Result<(usize, usize), String> {
    let mut world = RebaseHarness::new(check);
    for step in steps {
        world.step(step).map_err(|told| format!("{step:?}: {told}"))?;
    }
    Ok((world.n_rebased, world.n_refused))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn disjoint_commits_come_in_in_any_order_and_others_are_refused(steps in proptest::collection::vec(step(), 1..80)) {
        run(check_commit, &steps).map_err(TestCaseError::fail)?;
    }
}

/// Each way to be careless is found.
#[test]
fn planted_faults_are_found() {
    let samples = |n: usize| {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let steps = proptest::collection::vec(step(), 80);
        (0..n).map(move |_| crate::contract::draw(&mut runner, &steps)).collect::<Vec<_>>()
    };
    let plants: [(&str, CheckFn); 4] = [
        ("whatever came between", |standing, commit| {
            check_commit(standing, Commit { expected: ExpectedVersion::At(standing.latest.version), ..commit })
        }),
        ("the cursor of the latest is lost", |standing, commit| {
            let cursor = commit.cursor.clone();
            Ok(match check_commit(standing, commit)? {
                CommitCheck::New { next, info, block_metadata } => {
                    let mut next = (*next).clone();
                    next.cursor = cursor.unwrap_or(next.cursor);
                    CommitCheck::New { next: Arc::new(next), info, block_metadata }
                }
                already => already,
            })
        }),
        ("rows that died since live again in other files", |standing, mut commit| {
            // As if they had died in the version that was read.
            if let ExpectedVersion::Disjoint(base) = &commit.expected {
                let base =
                    TableVersion { deletion_vectors: standing.latest.deletion_vectors.clone(), ..(**base).clone() };
                commit.expected = ExpectedVersion::Disjoint(Arc::new(base));
            }
            check_commit(standing, commit)
        }),
        ("everything is refused", |standing, commit| match &commit.expected {
            ExpectedVersion::Disjoint(base) => {
                let expected = ExpectedVersion::At(base.version);
                check_commit(standing, Commit { expected, ..commit })
            }
            _ => check_commit(standing, commit),
        }),
    ];
    for (plant, check) in plants {
        assert!(samples(200).iter().any(|steps| run(check, steps).is_err()), "not found: {plant}");
    }
    let (mut n_rebased, mut n_refused) = (0, 0);
    for steps in samples(200) {
        let (rebased, refused) = run(check_commit, &steps).unwrap();
        (n_rebased, n_refused) = (n_rebased + rebased, n_refused + refused);
    }
    assert!(n_rebased > 500 && n_refused > 500, "{n_rebased} rebased, {n_refused} refused");
}
