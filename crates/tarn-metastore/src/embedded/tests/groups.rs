//! Do commits that share a sync stay what each of them is alone?

use std::collections::BTreeMap;

use uuid::Uuid;

use super::*;
use crate::contract::{sample_block_metadata, sample_file, sample_schema};
use crate::{CommitKind, ExpectedVersion};

fn append(n: u64, expected: ExpectedVersion) -> Commit {
    let file = FileId(n);
    Commit {
        id: Uuid::from_u128(n.into()),
        expected,
        add: vec![sample_file(file, 3)],
        block_metadata: [(file, sample_block_metadata(&["a", "b"]))].into(),
        remove: vec![],
        deletion_vectors: BTreeMap::new(),
        cursor: None,
        kind: CommitKind::Delivery,
        at_ms: n as i64,
    }
}

type CommitReceiver = oneshot::Receiver<Result<Version>>;

/// A store with a table, and file ids to give out.
fn with_table(dir: &Path) -> (Embedded, TableId) {
    let metastore = open(dir).unwrap().0;
    let table = runtime().block_on(metastore.create_table(sample_schema("t"))).unwrap().id;
    runtime().block_on(metastore.allocate_files(100)).unwrap();
    (metastore, table)
}

/// All of them wait before anybody leads.
fn submit(metastore: &Embedded, table: TableId, commits: Vec<Commit>) -> (Leader, Vec<CommitReceiver>) {
    let mut leader = None;
    let answers = commits.into_iter().map(|commit| {
        let (answer, answered) = oneshot::channel();
        let block_metadata = commit::encode_block_metadata(table, &commit);
        let leads = Leader::submit(&metastore.inner, PendingCommit { table, commit, block_metadata, answer });
        assert_eq!(leads.is_some(), leader.is_none(), "one leads");
        leader = leader.take().or(leads);
        answered
    });
    let answers = answers.collect();
    (leader.unwrap(), answers)
}

fn answers(answers: Vec<CommitReceiver>) -> Vec<Result<Version>> {
    answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect()
}

#[test]
fn what_waits_together_is_one_write_and_each_is_checked_after_those_before_it() {
    let dir = scratch().unwrap();
    let (metastore, table) = with_table(dir.path());
    let before = metastore.inner.writer.lock().log.last_seq();
    let commits = vec![
        append(1, ExpectedVersion::At(Version(0))),
        append(2, ExpectedVersion::At(Version(0))),
        append(3, ExpectedVersion::Latest),
        append(1, ExpectedVersion::At(Version(0))),
        append(4, ExpectedVersion::At(Version(2))),
        append(900_000, ExpectedVersion::Latest),
        Commit {
            id: Uuid::from_u128(77),
            remove: vec![FileId(3)],
            add: vec![],
            block_metadata: BTreeMap::new(),
            ..append(5, ExpectedVersion::At(Version(3)))
        },
    ];
    let (leader, waiting) = submit(&metastore, table, commits);
    assert_eq!(runtime().block_on(metastore.version(table)).unwrap(), Version(0));
    leader.run();
    let got = answers(waiting);
    assert_eq!(*got[0].as_ref().unwrap(), Version(1));
    assert!(matches!(got[1], Err(Error::Conflict { current: Version(1), .. })), "{:?}", got[1]);
    assert_eq!(*got[2].as_ref().unwrap(), Version(2));
    assert_eq!(*got[3].as_ref().unwrap(), Version(1), "the same commit, in the same group");
    assert_eq!(*got[4].as_ref().unwrap(), Version(3));
    assert!(matches!(got[5], Err(Error::InvalidFile { .. })), "{:?}", got[5]);
    assert_eq!(*got[6].as_ref().unwrap(), Version(4));
    assert_eq!(metastore.inner.writer.lock().log.last_seq(), before + 1, "one write");
    let held = describe(&metastore);
    drop(metastore);
    assert_eq!(describe(&open(dir.path()).unwrap().0), held);
}

#[test]
fn a_write_of_many_torn_anywhere_leaves_the_first_of_them() {
    let dir = scratch().unwrap();
    let (metastore, table) = with_table(dir.path());
    let mut held = vec![describe(&metastore)];
    let start = metastore.inner.writer.lock().log.size_bytes() + HEADER;
    let (leader, waiting) = submit(&metastore, table, (1..5).map(|n| append(n, ExpectedVersion::Latest)).collect());
    leader.run();
    assert!(answers(waiting).iter().all(Result::is_ok));
    drop(metastore);
    let path = last_log(dir.path());
    let (name, whole) = (path.file_name().unwrap(), fs::read(&path).unwrap());
    // What one after the other would have held.
    let other = scratch().unwrap();
    let (one_by_one, table) = with_table(other.path());
    for n in 1..5 {
        runtime().block_on(one_by_one.commit(table, append(n, ExpectedVersion::Latest))).unwrap();
        held.push(describe(&one_by_one));
    }
    let mut seen = 0;
    for len in start as usize..=whole.len() {
        let copied = scratch().unwrap();
        fs::write(copied.path().join(name), &whole[..len]).unwrap();
        let now = describe(&open(copied.path()).unwrap().0);
        let at = held.iter().position(|held| *held == now);
        let at = at.unwrap_or_else(|| panic!("cut at {len}: it holds what it never held"));
        assert!(at == seen || at == seen + 1, "cut at {len}: {at} commits after {seen}");
        seen = at;
    }
    assert_eq!(seen, 4);
    // With the seal behind it the write was answered: damage in any of its records is damage.
    for at in start as usize..whole.len() - SEAL as usize {
        let copied = scratch().unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(copied.path().join(name), bytes).unwrap();
        let opened = open(copied.path()).map(|_| ());
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "byte {at}: {opened:?}");
    }
    // Without it, pages may have reached the disk in any order: a record that is damaged ends the log.
    for at in start as usize..whole.len() - SEAL as usize {
        let copied = scratch().unwrap();
        let mut bytes = whole[..whole.len() - SEAL as usize].to_vec();
        bytes[at] ^= 4;
        fs::write(copied.path().join(name), bytes).unwrap();
        let now = describe(&open(copied.path()).unwrap().0);
        assert!(held[..4].contains(&now), "byte {at}");
    }
}

#[test]
fn writers_side_by_side_share_syncs() {
    let dir = scratch().unwrap();
    let (metastore, table) = with_table(dir.path());
    let metastore = Arc::new(metastore);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let writers: Vec<_> = (0..8u64)
            .map(|writer| {
                let metastore = metastore.clone();
                tokio::spawn(async move {
                    for n in 0..12 {
                        metastore.commit(table, append(1 + writer * 12 + n, ExpectedVersion::Latest)).await.unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
    assert_eq!(runtime.block_on(metastore.version(table)).unwrap(), Version(96));
    let held = describe(&metastore);
    let last_seq = metastore.inner.writer.lock().log.last_seq();
    assert!(last_seq <= 2 + 96, "{last_seq} writes");
    drop(metastore);
    let (metastore, recovery) = open(dir.path()).unwrap();
    assert_eq!((describe(&metastore), recovery.records), (held, 98));
}

#[test]
fn who_waits_for_a_leader_that_never_came_is_told_so() {
    let dir = scratch().unwrap();
    let (metastore, table) = with_table(dir.path());
    let (leader, mut waiting) = submit(&metastore, table, vec![append(1, ExpectedVersion::Latest)]);
    drop(leader);
    assert!(matches!(waiting[0].try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    // The next one leads.
    assert_eq!(runtime().block_on(metastore.commit(table, append(2, ExpectedVersion::Latest))).unwrap(), Version(1));
}
