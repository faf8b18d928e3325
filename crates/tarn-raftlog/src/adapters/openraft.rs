//! How does openraft keep one group in this log?
//!
//! [`GroupLog`] is both its `RaftLogStorage` and its `RaftLogReader`; clones share the log. All of a group goes into
//! one lane of one log, so that a vote and the entries after it keep their order, and an append that is durable proves
//! that what was submitted before is.
//!
//! openraft counts entries from 0, this log from 1: entry `i` lies at `i + 1`. Stored are an entry's encoded form, as
//! state the vote, and two pairs: `purged`, whose id has the leader that a floor alone does not, and `committed`. The
//! encoding is the host's [`Codec`].
//!
//! **Who writes.** No task and no thread waits for the disk: openraft's callback is left with the log, which makes it,
//! in the order of the appends, when they are durable; a vote is a future. So a thread of the host's must be in
//! [`crate::Committer::run`], one for all groups of a log; without it appends are readable, but nobody is told, and
//! nothing becomes durable. Reads are made on the blocking threads of the host's runtime, because they may go to disk.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use tarn_raftlog::{GroupId, Options, RaftLog, adapters::openraft::GroupLog};
//! # openraft::declare_raft_types!(pub C: D = String, R = String, Node = openraft::EmptyNode);
//! let (log, _report) = RaftLog::open(Options::new("/var/lib/raft"))?;
//! let committer = log.committer();
//! let thread = std::thread::spawn(move || committer.run()); // ends when the log is closed or dropped
//! let log = Arc::new(log);
//! let store = GroupLog::<C>::new(Arc::clone(&log), GroupId(1)); // for Raft::new; as many groups as you like
//! # Ok::<(), tarn_raftlog::Error>(())
//! ```

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use ::openraft::entry::RaftEntry;
use ::openraft::impls::leader_id_adv::LeaderId;
use ::openraft::storage::{IOFlushed, RaftLogStorage};
use ::openraft::type_config::TypeConfigExt;
use ::openraft::type_config::alias::{CommittedLeaderIdOf, EntryOf, LogIdOf, VoteOf};
use ::openraft::{LogId, LogState, NodeId, OptionalSend, RaftLogReader, RaftTypeConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Batch, Error, ErrorKind, GroupId, Index, RaftLog, Term, Ticket};

const PURGED: &[u8] = b"purged";
const COMMITTED: &[u8] = b"committed";

/// A limited read stops after this much, but not before one entry.
const LIMITED_READ_BYTES: usize = 4 << 20;

/// How are entries, votes and log ids written? A choice for the life of a log.
pub trait Codec<C: RaftTypeConfig>: Send + Sync + 'static {
    /// The bytes of a value.
    fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>>;
    /// The value of `bytes`; of others an `InvalidData`.
    fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T>;
    /// The number of a leader's term, which the log keeps beside each entry: `leader.term` with both of openraft's
    /// leader ids.
    fn term(leader: &CommittedLeaderIdOf<C>) -> u64;
}

/// Readable, for openraft's default leader ids; large for binary payloads, which deserve a codec of the host's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl<C, N> Codec<C> for Json
where
    C: RaftTypeConfig<LeaderId = LeaderId<u64, N>>,
    N: NodeId,
{
    fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(value)?)
    }

    fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
        Ok(serde_json::from_slice(bytes)?)
    }

    fn term(leader: &CommittedLeaderIdOf<C>) -> u64 {
        leader.term
    }
}

/// One group of a log, for openraft.
pub struct GroupLog<C, K = Json> {
    log: Arc<RaftLog>,
    group: GroupId,
    _types: PhantomData<fn() -> (C, K)>,
}

impl<C, K> Clone for GroupLog<C, K> {
    fn clone(&self) -> Self {
        GroupLog { log: Arc::clone(&self.log), group: self.group, _types: PhantomData }
    }
}

impl<C, K> GroupLog<C, K>
where
    C: RaftTypeConfig,
    K: Codec<C>,
{
    /// The group need not exist yet. Needs a running [`crate::Committer`].
    pub fn new(log: Arc<RaftLog>, group: GroupId) -> GroupLog<C, K> {
        GroupLog { log, group, _types: PhantomData }
    }

    fn submit(&self, batch: Batch) -> io::Result<Ticket> {
        self.log.submit(batch).map_err(to_io)
    }

    fn pair<T: DeserializeOwned>(&self, key: &[u8]) -> io::Result<Option<T>> {
        self.log.get(self.group, key).map(|bytes| K::decode(&bytes)).transpose()
    }

    /// What the log holds of `range`, decoded; at least one entry if there is one.
    fn read(&self, range: &Range<u64>, max_bytes: usize) -> io::Result<Vec<EntryOf<C>>>
    where
        EntryOf<C>: DeserializeOwned,
    {
        loop {
            let first = self.log.first_index(self.group).max(Index(range.start));
            let end = self.log.last_index(self.group).next().min(Index(range.end));
            match self.log.entries(self.group, first..end.max(first), max_bytes) {
                Ok(entries) => return entries.iter().map(|entry| K::decode(&entry.payload)).collect(),
                // Purged or cut between the bounds and the read: the next bounds are further in.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(to_io(error)),
            }
        }
    }

    async fn read_elsewhere(&self, range: Range<u64>, max_bytes: usize) -> io::Result<Vec<EntryOf<C>>>
    where
        EntryOf<C>: DeserializeOwned,
    {
        let this = self.clone();
        C::spawn_blocking(move || this.read(&range, max_bytes)).await?
    }
}

impl<C, K> RaftLogReader<C> for GroupLog<C, K>
where
    C: RaftTypeConfig,
    K: Codec<C>,
    EntryOf<C>: DeserializeOwned,
    VoteOf<C>: DeserializeOwned,
{
    async fn try_get_log_entries<B>(&mut self, range: B) -> io::Result<Vec<EntryOf<C>>>
    where
        B: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.read_elsewhere(shifted(&range), usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<EntryOf<C>>> {
        self.read_elsewhere(shifted(&(start..end)), LIMITED_READ_BYTES).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<C>>> {
        self.log.state(self.group).map(|bytes| K::decode(&bytes)).transpose()
    }
}

impl<C, K> RaftLogStorage<C> for GroupLog<C, K>
where
    C: RaftTypeConfig,
    K: Codec<C>,
    EntryOf<C>: Serialize + DeserializeOwned,
    VoteOf<C>: Serialize + DeserializeOwned,
    LogIdOf<C>: Serialize + DeserializeOwned,
{
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        let last_purged_log_id: Option<LogIdOf<C>> = self.pair(PURGED)?;
        let last = self.log.last_index(self.group);
        let entries = self.read_elsewhere(last.0..last.0 + 1, usize::MAX).await?;
        let last_log_id = entries.last().map(log_id::<C>);
        Ok(LogState { last_log_id: last_log_id.or(last_purged_log_id.clone()), last_purged_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> io::Result<()> {
        let mut batch = self.log.batch();
        batch.state(self.group, &K::encode(vote)?);
        self.submit(batch)?.await.map_err(to_io)
    }

    /// Durable with whatever is appended next: losing it costs a replay from the older position.
    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> io::Result<()> {
        let mut batch = self.log.batch();
        let encoded = committed.map(|id| K::encode(&id)).transpose()?;
        batch.put(self.group, COMMITTED, encoded.as_deref());
        let _rides_along = self.submit(batch)?;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<C>>> {
        self.pair(COMMITTED)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = EntryOf<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut batch = self.log.batch();
        let mut is_first = true;
        for entry in entries {
            let (leader, index) = entry.log_id_parts();
            let (term, index) = (Term(K::term(leader)), Index(index + 1));
            let last = self.log.last_index(self.group);
            // An empty log may begin anywhere: its first entries came in a snapshot. Later gaps are refused by the log.
            if is_first && index > last.next() && last < self.log.first_index(self.group) {
                batch.purge(self.group, Index(index.0 - 1), Term(0));
            }
            is_first = false;
            batch.append(self.group, term, index, [K::encode(&entry)?.as_slice()]);
        }
        // The entries are readable now; openraft's callback only sends, so it may be made by whoever writes.
        self.submit(batch)?.on_durable(move |durable| callback.io_completed(durable.map_err(to_io)));
        Ok(())
    }

    /// In order before all that is appended after it, and durable with it.
    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<C>>) -> io::Result<()> {
        let floor = self.log.first_index(self.group).0 - 1;
        let keep = last_log_id.map_or(0, |id| id.index + 1);
        let mut batch = self.log.batch();
        batch.truncate_after(self.group, Index(keep.max(floor)));
        let _rides_along = self.submit(batch)?;
        Ok(())
    }

    /// Durable with whatever is appended next: losing it brings purged entries back, which is no harm.
    async fn purge(&mut self, id: LogIdOf<C>) -> io::Result<()> {
        let mut batch = self.log.batch();
        let term = Term(K::term(id.committed_leader_id()));
        batch.purge(self.group, Index(id.index + 1), term).put(self.group, PURGED, Some(&K::encode(&id)?));
        let _rides_along = self.submit(batch)?;
        Ok(())
    }
}

/// openraft's range in this log's indexes.
fn shifted(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => u64::MAX,
    };
    start.saturating_add(1)..end.saturating_add(1)
}

fn log_id<C: RaftTypeConfig>(entry: &EntryOf<C>) -> LogIdOf<C> {
    let (leader, index) = entry.log_id_parts();
    LogId::new(leader.clone(), index)
}

fn to_io(error: Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::Invalid => io::ErrorKind::InvalidInput,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::Corrupt => io::ErrorKind::InvalidData,
        ErrorKind::Unavailable | ErrorKind::Indeterminate => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
