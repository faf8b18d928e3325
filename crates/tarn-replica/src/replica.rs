//! How does a batch become an agreed entry, and take effect once?
//!
//! A replica is one tablet's place in its group. A group of one has nobody to ask, so an entry is agreed when the log
//! has it on disk; the way of a batch is the one it will have with more replicas:
//!
//! ```text
//! propose ─> log.submit ─> ticket (one flush for all who wait) ─> apply, in order ─> outcome
//! ```
//! Order of submit is order of index is order of apply. There is no thread: whoever returns from the log first takes
//! the tablet's apply lock and applies everything up to its own entry, so those behind find their outcome ready.
//!
//! Why a proposal holds its thread, though the log would also call back ([`Ticket::on_durable`]) or give a future: the
//! thread that waits is the one that writes the frame, for all who wait, and then applies, which blocks as well (the row
//! engine). With calls, a committer's thread would write and a third would have to apply: two hand-overs more on the way
//! of every commit, and no thread fewer. Their number is bounded by the callers: a connection has one proposal under way.
//!
//! Locks, in the order they are taken: `applying`, then `queue` (of several replicas: by tablet), then the log's own.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use tarn_raftlog::{GroupId, Index, RaftLog, Term, Ticket};
use tarn_rows::tarn_feed::HotTable;
use tarn_rows::{Outcome, Table};
use tarn_types::{MutationBatch, SeqNo, TabletId};

use crate::error::{Error, Result};

/// There are no elections in a group of one.
const TERM: Term = Term(1);
/// Entries read at once when the log is replayed.
const REPLAY_BYTES: usize = 8 << 20;

/// The group that holds a tablet's entries.
#[must_use]
pub fn group_of(tablet: TabletId) -> GroupId {
    GroupId(u64::from(tablet.0))
}

/// One tablet of a table, in a group of one. Shared by all who write to it.
pub struct Replica {
    log: Arc<RaftLog>,
    table: Arc<Table>,
    tablet: TabletId,
    damaged_from: Option<SeqNo>,
    queue: Mutex<Queue>,
    /// Held while entries are applied: one at a time, in order.
    applying: Mutex<()>,
}

/// What is submitted to the log and not yet applied.
struct Queue {
    next: SeqNo,
    /// Ascending by seqno, without gaps.
    waiting: VecDeque<Submitted>,
}

#[derive(Clone)]
struct Submitted {
    seqno: SeqNo,
    batch: MutationBatch,
    outcome: Arc<OnceLock<Outcome>>,
}

/// A batch on its way. Dropped without waiting it still takes effect, with a later proposal or after a restart.
#[must_use = "a batch is agreed and in effect only when it has been waited for"]
pub struct Pending<'a> {
    replica: &'a Replica,
    seqno: SeqNo,
    outcome: Arc<OnceLock<Outcome>>,
    ticket: Arc<Ticket>,
}

impl Pending<'_> {
    /// The place the batch will have in its tablet.
    #[must_use]
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }

    /// Returns when the batch is durable and in effect: visible to every reader.
    ///
    /// # Errors
    /// `Indeterminate`: the flush failed (it may be there after a restart), or it is durable but not applied yet.
    pub fn wait(self) -> Result<(SeqNo, Outcome)> {
        self.ticket.wait().map_err(Error::log(self.replica.tablet))?;
        if let Some(outcome) = self.outcome.get() {
            return Ok((self.seqno, outcome.clone()));
        }
        self.replica.apply_upto(self.seqno)?;
        let outcome = self.outcome.get().expect("an entry that was applied has its outcome");
        Ok((self.seqno, outcome.clone()))
    }
}

impl Replica {
    /// The replica of one tablet. [`Replica::replay`] it, then [`Table::finish_replay`], before the first proposal.
    ///
    /// # Errors
    /// `LogBehind`, `LogGone`: this is not the log the rows were written from.
    pub fn open(log: Arc<RaftLog>, table: Arc<Table>, tablet: TabletId) -> Result<Self> {
        let last = SeqNo(log.last_index(group_of(tablet)).0);
        let applied = table.applied(tablet);
        let damaged_from = match log.check_group(group_of(tablet)) {
            Err(tarn_raftlog::Error::Damaged { from, .. }) => Some(SeqNo(from.0)),
            _ => None,
        };
        if applied > last && damaged_from.is_none() {
            return Err(Error::LogBehind { tablet, applied, last });
        }
        let replica = Self {
            queue: Mutex::new(Queue { next: last.next(), waiting: VecDeque::new() }),
            applying: Mutex::new(()),
            damaged_from,
            log,
            table,
            tablet,
        };
        let first = SeqNo(replica.log.first_index(group_of(tablet)).0);
        let needed = replica.replay_from();
        if first > needed {
            return Err(Error::LogGone { tablet, needed, first });
        }
        Ok(replica)
    }

    /// The tablet.
    #[must_use]
    pub fn tablet(&self) -> TabletId {
        self.tablet
    }

    /// The last agreed entry that is in effect.
    #[must_use]
    pub fn head(&self) -> SeqNo {
        self.table.applied(self.tablet)
    }

    /// From which entry on the log lost what was acknowledged, if it did and was opened all the same
    /// ([`tarn_raftlog::Recovery::Quarantine`]): replay stops before it, and proposals are refused as `Corrupt`.
    #[must_use]
    pub fn damaged_from(&self) -> Option<SeqNo> {
        self.damaged_from
    }

    /// Gives the table every entry it lost or needs to rebuild what is recent. Once, before the first proposal. Reads
    /// the log in order, some MiB at a time. Answers how many entries that were.
    pub fn replay(&self) -> Result<u64> {
        let (tablet, group) = (self.tablet, group_of(self.tablet));
        let mut at = self.replay_from().0;
        let whole = self.log.last_index(group).next();
        let end = self.damaged_from.map_or(whole, |from| whole.min(Index(from.0)));
        let mut n_entries = 0;
        while at < end.0 {
            for entry in self.log.entries(group, Index(at)..end, REPLAY_BYTES).map_err(Error::log(tablet))? {
                let seqno = SeqNo(entry.index.0);
                at = seqno.0 + 1;
                if entry.payload.is_empty() {
                    continue;
                }
                let batch = MutationBatch::from_bytes(entry.payload);
                let batch = batch.map_err(|source| Error::Entry { tablet, seqno, source })?;
                self.table.replay(seqno, &batch).map_err(|source| Error::Replay { tablet, seqno, source })?;
                n_entries += 1;
            }
        }
        Ok(n_entries)
    }

    fn replay_from(&self) -> SeqNo {
        let (_, installed) = self.table.installed();
        installed.get(self.tablet).min(self.table.applied(self.tablet)).next()
    }

    /// Submits and waits: the batch is durable and in effect on return. Answers its place and what became of it.
    ///
    /// # Errors
    /// `Unavailable`: nothing happened (the log is full or read-only). `Indeterminate`: see [`Pending::wait`].
    pub fn propose(&self, batch: MutationBatch) -> Result<(SeqNo, Outcome)> {
        self.submit(batch)?.wait()
    }

    /// Gives the batch its place in the tablet; nothing is durable yet. To write to several tablets with one flush,
    /// see [`propose_all`].
    pub fn submit(&self, batch: MutationBatch) -> Result<Pending<'_>> {
        let mut pending = submit_all(&[(self, batch)])?;
        Ok(pending.pop().expect("one pending batch for one submitted"))
    }

    /// Forgets log entries up to `upto`: what is durable in the rows, installed in the lake, and that no feed wants.
    /// What the rows still need is kept whatever is asked. Durable lazily; the space comes back with
    /// [`RaftLog::collect_garbage`].
    pub fn trim(&self, upto: SeqNo) -> Result<()> {
        let (_, installed) = self.table.installed();
        let upto = upto.min(self.table.durable(self.tablet)).min(installed.get(self.tablet));
        let group = group_of(self.tablet);
        if upto.0 < self.log.first_index(group).0 {
            return Ok(());
        }
        let term = self.log.term(group, Index(upto.0)).unwrap_or(TERM);
        let mut batch = self.log.batch();
        batch.purge(group, Index(upto.0), term);
        // Nobody waits: until it is durable, nothing is deleted.
        self.log.submit(batch).map(drop).map_err(Error::log(self.tablet))
    }

    /// Applies what is durable up to `seqno`. Where applying failed, the next caller goes on.
    fn apply_upto(&self, seqno: SeqNo) -> Result<()> {
        let _one = self.applying.lock();
        loop {
            let front = self.queue.lock().waiting.front().filter(|front| front.seqno <= seqno).cloned();
            let Some(Submitted { seqno, batch, outcome }) = front else { return Ok(()) };
            let applied = self.table.apply(seqno, &batch);
            let applied = applied.map_err(|source| Error::NotApplied { tablet: self.tablet, seqno, source })?;
            // Only the holder of `applying` sets outcomes, and each once.
            let _ = outcome.set(applied);
            self.queue.lock().waiting.pop_front();
        }
    }
}

/// Commits batches to several tablets with one flush; answers in the order of `proposals`. All of them go to the log as
/// one write, so that with one log they are durable all or none; each is decided by itself ([`Outcome`]).
///
/// # Errors
/// As [`Replica::propose`]. `Indeterminate` may be about some of the batches only.
pub fn propose_all(proposals: &[(&Replica, MutationBatch)]) -> Result<Vec<(SeqNo, Outcome)>> {
    let pending = submit_all(proposals)?;
    let decided: Vec<Result<(SeqNo, Outcome)>> = pending.into_iter().map(Pending::wait).collect();
    decided.into_iter().collect()
}

fn submit_all<'a>(proposals: &[(&'a Replica, MutationBatch)]) -> Result<Vec<Pending<'a>>> {
    let Some(((first, _), rest)) = proposals.split_first() else { return Ok(Vec::new()) };
    let stranger = rest.iter().find(|(replica, _)| !Arc::ptr_eq(&replica.log, &first.log));
    let misled = proposals.iter().find(|(replica, batch)| !replica.owns(batch));
    if let Some((replica, batch)) = stranger.or(misled) {
        return Err(Error::NotOurs { tablet: replica.tablet, given: batch.tablet() });
    }
    // Everyone locks by tablet; batches of one tablet keep the order they were given in.
    let mut order: Vec<usize> = (0..proposals.len()).collect();
    order.sort_by_key(|&i| proposals[i].0.tablet);
    let mut queues: Vec<(TabletId, MutexGuard<'_, Queue>)> = Vec::new();
    let mut log_batch = first.log.batch();
    let mut submitted: Vec<Option<Submitted>> = vec![None; proposals.len()];
    let mut next = SeqNo::ZERO;
    for &i in &order {
        let (replica, batch) = &proposals[i];
        if queues.last().is_none_or(|(tablet, _)| *tablet != replica.tablet) {
            let queue = replica.queue.lock();
            next = queue.next;
            queues.push((replica.tablet, queue));
        }
        log_batch.append_bytes(group_of(replica.tablet), TERM, Index(next.0), [batch.as_bytes().clone()]);
        submitted[i] = Some(Submitted { seqno: next, batch: batch.clone(), outcome: Arc::default() });
        next = next.next();
    }
    let ticket = Arc::new(first.log.submit(log_batch).map_err(Error::log(first.tablet))?);

    for &i in &order {
        let tablet = proposals[i].0.tablet;
        let queue = queues.iter_mut().find(|(locked, _)| *locked == tablet);
        if let (Some((_, queue)), Some(submitted)) = (queue, &submitted[i]) {
            queue.next = submitted.seqno.next();
            queue.waiting.push_back(submitted.clone());
        }
    }
    let pending = proposals.iter().zip(submitted.into_iter().flatten()).map(|((replica, _), submitted)| Pending {
        replica,
        seqno: submitted.seqno,
        outcome: submitted.outcome,
        ticket: Arc::clone(&ticket),
    });
    Ok(pending.collect())
}

impl Replica {
    fn owns(&self, batch: &MutationBatch) -> bool {
        batch.tablet() == self.tablet && batch.table() == self.table.table_schema().id
    }
}
