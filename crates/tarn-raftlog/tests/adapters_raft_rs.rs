//! Does a group of the log answer raft-rs as its own `MemStorage` does?
//!
//! First the cases of raft-rs' tests of `MemStorage`, then any sequence of appends, conflicts, compactions, snapshots
//! and restarts beside a `MemStorage`, then three nodes that elect, replicate, restart and catch up.

#![cfg(feature = "raft-rs")]
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use proptest::prelude::*;
use protobuf::Message as _;
use raft::eraftpb::{ConfState, Entry, HardState, Message, Snapshot};
use raft::storage::MemStorage;
use raft::{Config, Error, GetEntriesContext, RawNode, Storage, StorageError};
use tarn_raftlog::adapters::raft_rs::GroupStorage;
use tarn_raftlog::{Batch, GroupId, Index, MemoryDisk, Options, RaftLog, Term};

type Snapshots = fn(u64, u64) -> raft::Result<Snapshot>;
type Store = GroupStorage<Snapshots>;

const GROUP: GroupId = GroupId(7);

fn no_snapshot(_request_index: u64, _to: u64) -> raft::Result<Snapshot> {
    Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
}

fn open(disk: &MemoryDisk) -> Arc<RaftLog> {
    let options = Options { segment_bytes: 64 << 10, cache_bytes: 1 << 10, ..Options::new("/log") };
    Arc::new(RaftLog::open_on(Arc::new(disk.clone()), options).unwrap().0)
}

fn store(log: &Arc<RaftLog>) -> Store {
    GroupStorage::new(Arc::clone(log), GROUP, no_snapshot as Snapshots)
}

/// Commits what `fill` adds to a batch.
fn commit(log: &RaftLog, fill: impl FnOnce(&mut Batch) -> raft::Result<()>) {
    let mut batch = log.batch();
    fill(&mut batch).unwrap();
    log.commit(batch).unwrap();
}

fn entry(index: u64, term: u64) -> Entry {
    Entry { index, term, ..Entry::default() }
}

fn snapshot(index: u64, term: u64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.mut_metadata().index = index;
    snapshot.mut_metadata().term = term;
    snapshot.mut_metadata().set_conf_state(ConfState::from((vec![1, 2, 3], vec![])));
    snapshot
}

/// Entries 3, 4, … of the terms 3, 4, …, after a floor at 2.
fn from_three_to(last: u64) -> (Arc<RaftLog>, Store) {
    let log = open(&MemoryDisk::new(1));
    let store = store(&log);
    commit(&log, |batch| {
        batch.purge(GROUP, Index(2), Term(2));
        store.append(&(3..=last).map(|i| entry(i, i)).collect::<Vec<_>>(), batch)
    });
    (log, store)
}

fn entries(store: &impl Storage, low: u64, high: u64, max: u64) -> raft::Result<Vec<Entry>> {
    store.entries(low, high, max, GetEntriesContext::empty(false))
}

#[test]
fn terms() {
    let (_log, store) = from_three_to(5);
    assert_eq!(store.term(1), Err(Error::Store(StorageError::Compacted)));
    assert_eq!(store.term(2), Ok(2), "the term before the first entry is kept");
    assert_eq!([3, 4, 5].map(|i| store.term(i).unwrap()), [3, 4, 5]);
    assert_eq!(store.term(6), Err(Error::Store(StorageError::Unavailable)));
}

#[test]
fn entries_up_to_a_size() {
    let (_log, store) = from_three_to(6);
    let all: Vec<Entry> = (3..=6).map(|i| entry(i, i)).collect();
    let size = |n: usize| all[1..=n].iter().map(|e| u64::from(e.compute_size())).sum::<u64>();
    assert_eq!(entries(&store, 2, 6, u64::MAX), Err(Error::Store(StorageError::Compacted)));
    let cases = [
        (3, 4, u64::MAX, &all[..1]),
        (4, 5, u64::MAX, &all[1..2]),
        (4, 6, u64::MAX, &all[1..3]),
        (4, 7, u64::MAX, &all[1..4]),
        (4, 7, 0, &all[1..2]),
        (4, 7, size(2), &all[1..3]),
        (4, 7, size(2) + size(3) / 8, &all[1..3]),
        (4, 7, size(3) - 1, &all[1..3]),
        (4, 7, size(3), &all[1..4]),
    ];
    for (low, high, max, want) in cases {
        assert_eq!(entries(&store, low, high, max).unwrap(), want, "{low}..{high} in {max} bytes");
    }
    assert_eq!(store.entries(4, 7, None, GetEntriesContext::empty(true)).unwrap(), all[1..4]);
}

#[test]
fn entries_beyond_the_last_panic_as_the_trait_says() {
    let (_log, store) = from_three_to(5);
    assert!(catch_unwind(AssertUnwindSafe(|| entries(&store, 4, 7, u64::MAX))).is_err());
}

#[test]
fn first_and_last_index() {
    let (log, store) = from_three_to(5);
    assert_eq!((store.first_index(), store.last_index()), (Ok(3), Ok(5)));
    commit(&log, |batch| store.append(&[entry(6, 5)], batch));
    assert_eq!(store.last_index(), Ok(6));
    commit(&log, |batch| store.compact(4, batch));
    assert_eq!(store.first_index(), Ok(4));
}

#[test]
fn an_uninitialized_group_is_truncated_at_zero() {
    let store = store(&open(&MemoryDisk::new(1)));
    assert_eq!((store.first_index(), store.last_index(), store.term(0)), (Ok(1), Ok(0), Ok(0)));
    assert!(!store.initial_state().unwrap().initialized());
}

#[test]
fn compaction() {
    for (index, first, term, len) in [(2, 3, 3, 3), (3, 3, 3, 3), (4, 4, 4, 2), (5, 5, 5, 1)] {
        let (log, store) = from_three_to(5);
        commit(&log, |batch| store.compact(index, batch));
        assert_eq!(store.first_index(), Ok(first));
        assert_eq!(entries(&store, first, first + 1, 1).unwrap()[0].term, term);
        assert_eq!(entries(&store, first, 6, 100).unwrap().len(), len);
    }
}

#[test]
fn compaction_to_nothing_keeps_the_last_term_and_beyond_the_end_is_refused() {
    let (log, store) = from_three_to(5);
    commit(&log, |batch| store.compact(6, batch));
    assert_eq!((store.first_index(), store.last_index(), store.term(5)), (Ok(6), Ok(5), Ok(5)));
    assert_eq!(store.compact(8, &mut log.batch()), Err(Error::Store(StorageError::Unavailable)));
}

#[test]
fn appending() {
    let list = |pairs: &[(u64, u64)]| pairs.iter().map(|&(index, term)| entry(index, term)).collect::<Vec<_>>();
    type Pairs = &'static [(u64, u64)];
    let cases: [(Pairs, Pairs); 5] = [
        (&[(3, 3), (4, 4), (5, 5)], &[(3, 3), (4, 4), (5, 5)]),
        (&[(3, 3), (4, 6), (5, 6)], &[(3, 3), (4, 6), (5, 6)]),
        (&[(3, 3), (4, 4), (5, 5), (6, 5)], &[(3, 3), (4, 4), (5, 5), (6, 5)]),
        (&[(4, 5)], &[(3, 3), (4, 5)]),
        (&[(6, 6)], &[(3, 3), (4, 4), (5, 5), (6, 6)]),
    ];
    for (added, want) in cases {
        let (log, store) = from_three_to(5);
        commit(&log, |batch| store.append(&list(added), batch));
        assert_eq!(entries(&store, 3, store.last_index().unwrap() + 1, u64::MAX).unwrap(), list(want));
    }
    let (log, store) = from_three_to(5);
    let mut batch = log.batch();
    store.append(&list(&[(2, 3), (3, 3), (4, 5)]), &mut batch).unwrap();
    assert!(log.submit(batch).is_err(), "what is compacted is not written again");
}

#[test]
fn snapshots() {
    let log = open(&MemoryDisk::new(1));
    let store = store(&log);
    commit(&log, |batch| store.apply_snapshot(snapshot(4, 4).get_metadata(), batch));
    assert_eq!((store.first_index(), store.last_index(), store.term(4)), (Ok(5), Ok(4), Ok(4)));
    let state = store.initial_state().unwrap();
    assert_eq!((state.hard_state.commit, state.hard_state.term, state.conf_state.voters), (4, 4, vec![1, 2, 3]));
    let late = store.apply_snapshot(snapshot(3, 3).get_metadata(), &mut log.batch());
    assert_eq!(late, Err(Error::Store(StorageError::SnapshotOutOfDate)));
    assert_eq!(store.snapshot(1, 2), Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable)));
    let handed_out = GroupStorage::new(log, GROUP, |index, to| Ok(snapshot(index, to)));
    assert_eq!(handed_out.snapshot(9, 2), Ok(snapshot(9, 2)));
}

#[derive(Debug, Clone)]
enum RaftOp {
    /// Append `n` entries of the newest term from `back` before the end.
    Append {
        back: u64,
        n: u64,
        bytes: usize,
        newer: bool,
    },
    Compact {
        back: u64,
    },
    Snapshot {
        ahead: u64,
    },
    Restart,
}

fn step() -> impl Strategy<Value = RaftOp> {
    prop_oneof![
        6 => (0..4u64, 1..5u64, 0..3000usize, any::<bool>())
            .prop_map(|(back, n, bytes, newer)| RaftOp::Append { back, n, bytes, newer }),
        2 => (0..6u64).prop_map(|back| RaftOp::Compact { back }),
        1 => (0..4u64).prop_map(|ahead| RaftOp::Snapshot { ahead }),
        1 => Just(RaftOp::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_sequence_of_steps_answers_as_mem_storage(steps in prop::collection::vec(step(), 1..40), max in 0..6000u64) {
        let disk = MemoryDisk::new(3);
        let (mut log, memory, mut term) = (open(&disk), MemStorage::new(), 1);
        for step in steps {
            let store = store(&log);
            let (first, last) = (store.first_index().unwrap(), store.last_index().unwrap());
            match step {
                RaftOp::Append { back, n, bytes, newer } => {
                    term += u64::from(newer);
                    let start = (last + 1).saturating_sub(back).max(first);
                    let added: Vec<Entry> = (start..start + n)
                        .map(|index| Entry { data: vec![index as u8; bytes].into(), ..entry(index, term) })
                        .collect();
                    commit(&log, |batch| store.append(&added, batch));
                    memory.wl().append(&added).unwrap();
                }
                // MemStorage cannot be compacted to nothing.
                RaftOp::Compact { .. } if last < first => {}
                RaftOp::Compact { back } => {
                    let index = last.saturating_sub(back).max(1);
                    commit(&log, |batch| store.compact(index, batch));
                    memory.wl().compact(index).unwrap();
                }
                RaftOp::Snapshot { ahead } => {
                    let installed = snapshot(last + ahead, term);
                    let mut batch = log.batch();
                    let ours = store.apply_snapshot(installed.get_metadata(), &mut batch);
                    prop_assert_eq!(&ours, &memory.wl().apply_snapshot(installed));
                    if ours.is_ok() {
                        log.commit(batch).unwrap();
                    }
                }
                RaftOp::Restart => {
                    drop((store, log));
                    disk.kill_process();
                    log = open(&disk);
                }
            }
            same(&self::store(&log), &memory, max)?;
        }
    }
}

fn same(store: &Store, memory: &MemStorage, max: u64) -> Result<(), TestCaseError> {
    let (first, last) = (memory.first_index().unwrap(), memory.last_index().unwrap());
    prop_assert_eq!((store.first_index().unwrap(), store.last_index().unwrap()), (first, last));
    for index in first..last + 3 {
        prop_assert_eq!(store.term(index), memory.term(index), "term of {}", index);
    }
    // Before the first entry MemStorage knows the term of its last snapshot only; the trait wants that of the entry
    // before the first.
    prop_assert!(store.term(first - 1).is_ok(), "term before {}", first);
    for index in 0..first - 1 {
        prop_assert_eq!(store.term(index), Err(Error::Store(StorageError::Compacted)), "term of {}", index);
    }
    for low in first..=last {
        prop_assert_eq!(entries(store, low, last + 1, max), entries(memory, low, last + 1, max));
    }
    let (ours, theirs) = (store.initial_state().unwrap(), memory.initial_state().unwrap());
    prop_assert_eq!(ours.conf_state, theirs.conf_state);
    prop_assert_eq!(ours.hard_state.commit, theirs.hard_state.commit);
    Ok(())
}

struct RaftNode {
    disk: MemoryDisk,
    log: Arc<RaftLog>,
    raw: RawNode<Store>,
    applied: Vec<Vec<u8>>,
}

impl RaftNode {
    fn start(id: u64, disk: MemoryDisk, applied: Vec<Vec<u8>>) -> RaftNode {
        let log = open(&disk);
        let config = Config { id, applied: applied.len() as u64, ..Config::default() };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, store(&log), &logger).unwrap();
        RaftNode { disk, log, raw, applied }
    }

    /// Persists and applies one `Ready`; returns what is to be sent.
    fn handle_ready(&mut self) -> Vec<Message> {
        if !self.raw.has_ready() {
            return Vec::new();
        }
        let mut ready = self.raw.ready();
        let mut messages = ready.take_messages();
        commit(&self.log, |batch| self.raw.store().persist_ready(&ready, batch));
        let mut committed = ready.take_committed_entries();
        messages.extend(ready.take_persisted_messages());
        let mut light = self.raw.advance(ready);
        messages.extend(light.take_messages());
        committed.extend(light.take_committed_entries());
        if let Some(commit_index) = light.commit_index() {
            let mut state = self.raw.store().hard_state().unwrap();
            state.commit = commit_index;
            commit(&self.log, |batch| self.raw.store().set_hard_state(&state, batch));
        }
        self.applied.extend(committed.into_iter().map(|entry| entry.data.to_vec()));
        self.raw.advance_apply();
        messages
    }
}

/// Hands messages round until nobody has anything to say; `absent` hears nothing.
fn settle(nodes: &mut [RaftNode], absent: Option<u64>) {
    let mut network: VecDeque<Message> = VecDeque::new();
    loop {
        let sent: Vec<Message> = nodes.iter_mut().flat_map(RaftNode::handle_ready).collect();
        network.extend(sent);
        if network.is_empty() {
            return;
        }
        while let Some(message) = network.pop_front() {
            if Some(message.to) != absent && Some(message.from) != absent {
                // A node that cannot use a message says so; raft goes on.
                let _ = nodes[message.to as usize - 1].raw.step(message);
            }
        }
    }
}

#[test]
fn three_nodes_replicate_restart_and_catch_up() {
    let mut nodes: Vec<RaftNode> = (1..=3)
        .map(|id| {
            let disk = MemoryDisk::new(id);
            let log = open(&disk);
            commit(&log, |batch| store(&log).set_conf_state(&ConfState::from((vec![1, 2, 3], vec![])), batch));
            drop(log);
            RaftNode::start(id, disk, Vec::new())
        })
        .collect();
    nodes[0].raw.campaign().unwrap();
    settle(&mut nodes, None);
    for i in 0..50u8 {
        nodes[0].raw.propose(vec![], vec![i; 100]).unwrap();
        // Node 3 is away for the middle part.
        settle(&mut nodes, (20..40).contains(&i).then_some(3));
    }
    assert_eq!(nodes[0].applied.len(), 51, "the leader's own entry and fifty");

    // All die and come back with what they had made durable; another leads.
    let mut nodes: Vec<RaftNode> = nodes
        .into_iter()
        .zip(1..)
        .map(|(RaftNode { disk, log, raw, applied }, id)| {
            drop((raw, log));
            disk.kill_process();
            RaftNode::start(id, disk, applied)
        })
        .collect();
    nodes[1].raw.campaign().unwrap();
    settle(&mut nodes, None);
    nodes[1].raw.propose(vec![], b"after".to_vec()).unwrap();
    settle(&mut nodes, None);
    for _ in 0..2 {
        nodes[1].raw.ping();
        settle(&mut nodes, None);
    }
    let first = nodes[0].applied.clone();
    assert_eq!(first.len(), 53);
    assert!(nodes.iter().all(|node| node.applied == first), "every node applied the same");
    let hard_states: Vec<HardState> = nodes.iter().map(|node| node.raw.store().hard_state().unwrap()).collect();
    assert!(hard_states.iter().all(|state| state.term == hard_states[0].term && state.commit == 53), "{hard_states:?}");
}
