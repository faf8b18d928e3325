//! Does openraft's own log-store suite pass, also when the log is closed and opened again between any two steps?
//!
//! And: a vote and an append that were reported durable are there after the power was cut.

#![cfg(feature = "openraft")]
#![allow(clippy::unwrap_used)]

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};

use futures::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, IOFlushed, LogState, RaftLogStorage, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{EntryOf, LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf};
use openraft::{
    EmptyNode, EntryPayload, OptionalSend, RaftLogReader, RaftSnapshotBuilder, RaftTypeConfig, StorageError, Vote,
};
use tarn_raftlog::adapters::openraft::GroupLog;
use tarn_raftlog::{ErrorKind, GroupId, MemoryDisk, Options, RaftLog};

openraft::declare_raft_types!(pub C: D = String, R = String, Node = EmptyNode);

type Log = GroupLog<C>;

fn open(disk: &MemoryDisk) -> tarn_raftlog::Result<Log> {
    let options = Options { segment_bytes: 64 << 10, cache_bytes: 1 << 10, ..Options::new("/log") };
    let (log, _) = RaftLog::open_on(Arc::new(disk.clone()), options)?;
    // Then the committer has nothing to make beside the tests' own steps, which a fault is meant for.
    log.prepare()?;
    let committer = log.committer();
    std::thread::spawn(move || committer.run());
    Ok(GroupLog::new(Arc::new(log), GroupId(3)))
}

/// The least state machine the suite accepts.
#[derive(Clone, Default)]
struct TestStateMachine(Arc<Mutex<AppliedState>>);

#[derive(Default)]
struct AppliedState {
    last: Option<LogIdOf<C>>,
    members: StoredMembershipOf<C>,
    snapshot: Option<SnapshotMetaOf<C>>,
}

impl RaftSnapshotBuilder<C> for TestStateMachine {
    type SnapshotData = Vec<u8>;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<C, Vec<u8>>> {
        let mut applied = self.0.lock().unwrap();
        let meta = SnapshotMetaOf::<C> { last_log_id: applied.last, last_membership: applied.members.clone() };
        applied.snapshot = Some(meta.clone());
        Ok(SnapshotOf::<C, Vec<u8>> { meta, snapshot: Vec::new() })
    }
}

impl RaftStateMachine<C> for TestStateMachine {
    type SnapshotData = Vec<u8>;
    type SnapshotBuilder = TestStateMachine;

    async fn applied_state(&mut self) -> io::Result<(Option<LogIdOf<C>>, StoredMembershipOf<C>)> {
        let applied = self.0.lock().unwrap();
        Ok((applied.last, applied.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<C>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut applied = self.0.lock().unwrap();
            applied.last = Some(entry.log_id);
            if let EntryPayload::Membership(members) = entry.payload {
                applied.members = StoredMembershipOf::<C>::new(Some(entry.log_id), members);
            }
            if let Some(responder) = responder {
                responder.send(String::new());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> TestStateMachine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMetaOf<C>, _snapshot: Vec<u8>) -> io::Result<()> {
        let mut applied = self.0.lock().unwrap();
        applied.last = meta.last_log_id;
        applied.members = meta.last_membership.clone();
        applied.snapshot = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<C, Vec<u8>>>> {
        let meta = self.0.lock().unwrap().snapshot.clone();
        Ok(meta.map(|meta| SnapshotOf::<C, Vec<u8>> { meta, snapshot: Vec::new() }))
    }
}

struct FreshLog;

impl StoreBuilder<C, Log, TestStateMachine> for FreshLog {
    async fn build(&self) -> Result<((), Log, TestStateMachine), StorageError<C>> {
        Ok(((), open(&MemoryDisk::new(1)).unwrap(), TestStateMachine::default()))
    }
}

/// A log that is closed and opened again before each call.
#[derive(Clone)]
struct ReopenedLog {
    disk: MemoryDisk,
    log: Arc<Mutex<Option<Log>>>,
}

impl ReopenedLog {
    /// Closes the log with everything durable, and opens it.
    async fn log(&self) -> Log {
        let closed = self.log.lock().unwrap().take();
        drop(closed);
        loop {
            match open(&self.disk) {
                Ok(log) => {
                    *self.log.lock().unwrap() = Some(log.clone());
                    return log;
                }
                // The committer still writes what is wanted of the old one.
                Err(error) if error.kind() == ErrorKind::Unavailable => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl RaftLogReader<C> for ReopenedLog {
    async fn try_get_log_entries<B>(&mut self, range: B) -> io::Result<Vec<EntryOf<C>>>
    where
        B: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.log().await.try_get_log_entries(range).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<EntryOf<C>>> {
        self.log().await.limited_get_log_entries(start, end).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<C>>> {
        self.log().await.read_vote().await
    }
}

impl RaftLogStorage<C> for ReopenedLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        self.log().await.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> io::Result<()> {
        self.log().await.save_vote(vote).await
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> io::Result<()> {
        let mut log = self.log().await;
        log.save_committed(committed).await?;
        make_durable(&mut log).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<C>>> {
        self.log().await.read_committed().await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = EntryOf<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.log().await.append(entries, callback).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<C>>) -> io::Result<()> {
        let mut log = self.log().await;
        log.truncate_after(last_log_id).await?;
        make_durable(&mut log).await
    }

    async fn purge(&mut self, id: LogIdOf<C>) -> io::Result<()> {
        let mut log = self.log().await;
        log.purge(id).await?;
        make_durable(&mut log).await
    }
}

/// A vote is durable on return, and with it all that was submitted before.
async fn make_durable(log: &mut Log) -> io::Result<()> {
    let vote = log.read_vote().await?;
    match vote {
        Some(vote) => log.save_vote(&vote).await,
        None => append(log, Vec::new()).await,
    }
}

/// Appends and waits for the callback.
async fn append(log: &mut Log, entries: Vec<EntryOf<C>>) -> io::Result<()> {
    let (sender, receiver) = C::oneshot();
    log.append(entries, IOFlushed::signal(sender)).await?;
    receiver.await.unwrap()
}

struct ReopenedEachTime;

impl StoreBuilder<C, ReopenedLog, TestStateMachine> for ReopenedEachTime {
    async fn build(&self) -> Result<((), ReopenedLog, TestStateMachine), StorageError<C>> {
        let log = ReopenedLog { disk: MemoryDisk::new(1), log: Arc::new(Mutex::new(None)) };
        Ok(((), log, TestStateMachine::default()))
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

#[test]
fn openrafts_own_suite_passes() {
    run(async { Suite::test_all(FreshLog).await }).unwrap();
}

#[test]
fn openrafts_own_suite_passes_with_a_restart_before_each_step() {
    run(async { Suite::test_all(ReopenedEachTime).await }).unwrap();
}

fn entry(term: u64, index: u64) -> EntryOf<C> {
    use openraft::entry::RaftEntry;
    use openraft::vote::RaftLeaderId;
    let leader = <C as RaftTypeConfig>::LeaderId::new(term, 0).to_committed();
    EntryOf::<C>::new_normal(LogIdOf::<C>::new(leader, index), format!("entry {index} of term {term}"))
}

#[test]
fn what_was_reported_durable_survives_loss_of_power() {
    run(async {
        let disk = MemoryDisk::new(9);
        let mut log = open(&disk).unwrap();
        let vote = Vote::new(2, 1);
        log.save_vote(&vote).await.unwrap();
        append(&mut log, vec![entry(1, 0), entry(1, 1), entry(2, 2)]).await.unwrap();
        append(&mut log, vec![entry(2, 3)]).await.unwrap();
        drop(log);
        disk.cut_power();
        let mut log = open(&disk).unwrap();
        assert_eq!(log.read_vote().await.unwrap(), Some(vote));
        let entries = log.try_get_log_entries(..).await.unwrap();
        assert_eq!(entries, [entry(1, 0), entry(1, 1), entry(2, 2), entry(2, 3)]);
        let state = log.get_log_state().await.unwrap();
        assert_eq!((state.last_purged_log_id, state.last_log_id), (None, Some(entry(2, 3).log_id)));
    });
}

#[test]
fn many_appends_under_way_are_reported_in_their_order() {
    run(async {
        let mut log = open(&MemoryDisk::new(9)).unwrap();
        let mut reported = Vec::new();
        for i in 0..100 {
            let (sender, receiver) = C::oneshot();
            log.append(vec![entry(1, i)], IOFlushed::signal(sender)).await.unwrap();
            reported.push(receiver);
        }
        // The last is reported last: then all others are, and nobody has to be waited for.
        reported.pop().unwrap().await.unwrap().unwrap();
        for receiver in reported {
            let told = futures::FutureExt::now_or_never(receiver).expect("reported before a later one");
            told.unwrap().unwrap();
        }
    });
}

#[test]
fn a_failed_append_is_reported_to_the_callback() {
    run(async {
        let disk = MemoryDisk::new(9);
        let mut log = open(&disk).unwrap();
        disk.fail_in(0);
        assert!(append(&mut log, vec![entry(1, 0)]).await.is_err());
        assert!(log.save_vote(&Vote::new(2, 1)).await.is_err(), "the log is poisoned");
    });
}

#[test]
fn a_gap_after_entries_is_refused() {
    run(async {
        let mut log = open(&MemoryDisk::new(9)).unwrap();
        append(&mut log, vec![entry(1, 0)]).await.unwrap();
        let error = append(&mut log, vec![entry(1, 2)]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}
