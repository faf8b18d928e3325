//! How does a batch become an agreed entry, and take effect once?
//!
//! A replica is one tablet's place in its group. A group of one has nobody to ask, so an entry is agreed when the log
//! has it on disk; the way of a batch is the one it will have with more replicas:
//!
//! ```text
//! propose ─> resolve ─> log.submit ─> ticket (one flush for all who wait) ─> apply, in order ─> outcome
//! ```
//! A batch is decided before the log, against the tablet's rows and all that is under way, and the log holds what it
//! came to: an entry behind another of the same leader stands or falls with it, so nothing waits to be decided. What is
//! refused, or changes nothing, is in no log; it is answered when all that it was decided upon is durable and visible.
//!
//! Order of submit is order of index is order of apply. There is no thread: whoever returns from the log first takes
//! the tablet's apply lock and applies everything up to its own entry, so those behind find theirs applied.
//!
//! Why a proposal holds its thread, though the log would also call back ([`Ticket::on_durable`]) or give a future: the
//! thread that waits is the one that writes the frame, for all who wait, and then applies, which blocks as well (the
//! row engine). With calls, a committer's thread would write and a third would have to apply: two hand-overs more on
//! the way of every commit, and no thread fewer. Their number is bounded by the callers: a connection has one proposal
//! under way.
//!
//! Entries of several tablets that are to be seen together ([`propose_together`]) are in the log as one write, so they
//! are durable all or none. Each tablet's queue knows of its own that it is one of several ([`EntryGroup`]): who comes
//! to it brings the other tablets as far, locks all of them, and applies all. They were submitted while the queues of
//! all their tablets were locked, so of two such sets one is before the other in every tablet that both have: bringing
//! the other tablets as far only ever meets earlier ones.
//!
//! Locks, in the order they are taken: `applying`, then `queue` (of several replicas: by tablet), then the log's own.
//! The rows that a batch depends on are read before `queue` is taken; what was applied since is still there
//! ([`UnderWay`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tarn_raftlog::{Batch as LogBatch, GroupId, Index, RaftLog, Term, Ticket};
use tarn_rows::{BatchReads, EntryEffect, Outcome, Table, TabletEntry, UnderWay, apply_together};
use tarn_types::{Effects, EffectsBuilder, Entry, MutationBatch, NamedEffects, Request, SeqNo, TabletId};

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
///
/// A tablet that was split off takes its entries from where it was born: earlier ones are in the log of the one that
/// had its keys.
pub struct Replica {
    log: Arc<RaftLog>,
    table: Arc<Table>,
    tablet: TabletId,
    damaged_from: Option<SeqNo>,
    queue: Mutex<ReplicaQueue>,
    /// Held while entries are applied: one at a time, in order.
    applying: Mutex<()>,
    /// The last entry that is in effect.
    applied: AtomicU64,
}

/// What is submitted to the log and not yet applied, or was just now.
struct ReplicaQueue {
    next: SeqNo,
    /// Without gaps.
    under_way: UnderWay,
    /// Entries that are not applied and take effect with those of other tablets, ascending.
    together: VecDeque<(SeqNo, Arc<EntryGroup>)>,
    /// Of the newest entry.
    last: Option<Arc<Ticket>>,
}

/// A batch on its way. Dropped without waiting it still takes effect, with a later proposal or after a restart.
#[must_use = "a batch is agreed and in effect only when it has been waited for"]
pub struct PendingBatch<'a> {
    replica: &'a Replica,
    outcome: Outcome,
    /// The entry to wait for: its own, or the last one that it was decided upon. `None`: nothing is under way.
    after: Option<(SeqNo, Arc<Ticket>)>,
    /// Its own.
    seqno: Option<SeqNo>,
}

impl PendingBatch<'_> {
    /// The place the batch will have in its tablet; `None`: it changes nothing.
    #[must_use]
    pub fn seqno(&self) -> Option<SeqNo> {
        self.seqno
    }

    /// Returns when the batch, and all that it was decided upon, is durable and in effect: visible to every reader.
    ///
    /// # Errors
    /// `Indeterminate`: the flush failed (it may be there after a restart), or it is durable but not applied yet.
    /// `Unavailable` for a batch that changes nothing, if that is so of one that it was decided upon.
    pub fn wait(self) -> Result<(Option<SeqNo>, Outcome)> {
        let Self { replica, outcome, after, seqno } = self;
        if let Some((after, ticket)) = after {
            let done = ticket.wait().map_err(Error::log(replica.tablet)).and_then(|()| replica.apply_upto(after));
            done.map_err(|error| match seqno {
                Some(_) => error,
                None => Error::InDoubt { tablet: replica.tablet, source: Box::new(error) },
            })?;
        }
        if let Some(seqno) = seqno {
            let (table, tablet) = (&replica.table, replica.tablet.0);
            tracing::debug!(table = table.table_schema().id.0, tablet, seqno = seqno.0, "an entry is in effect");
        }
        Ok((seqno, outcome))
    }
}

impl Replica {
    /// The replica of one tablet. [`Replica::replay`] it, then [`Table::finish_replay`], before the first proposal; one
    /// that is born by a split while the table serves needs neither.
    ///
    /// # Errors
    /// `LogBehind`, `LogGone`: this is not the log the rows were written from.
    pub fn open(log: Arc<RaftLog>, table: Arc<Table>, tablet: TabletId) -> Result<Self> {
        let born = table.born(tablet).map_or(SeqNo::ZERO, |(_, at)| at);
        if SeqNo(log.last_index(group_of(tablet)).0) < born {
            let mut batch = log.batch();
            batch.purge(group_of(tablet), Index(born.0), TERM);
            // In the log before its first entry, which somebody waits for.
            log.submit(batch).map(drop).map_err(Error::log(tablet))?;
        }
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
            queue: Mutex::new(ReplicaQueue {
                next: last.next(),
                under_way: UnderWay::default(),
                together: VecDeque::new(),
                last: None,
            }),
            applying: Mutex::new(()),
            applied: AtomicU64::new(last.0),
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
                let entry = Entry::from_bytes(entry.payload);
                let entry = entry.map_err(|source| Error::Entry { tablet, seqno, source })?;
                self.table.replay(tablet, seqno, &entry).map_err(|source| Error::Replay { tablet, seqno, source })?;
                n_entries += 1;
            }
        }
        Ok(n_entries)
    }

    fn replay_from(&self) -> SeqNo {
        self.table.replayed_up_to(self.tablet).min(self.table.applied(self.tablet)).next()
    }

    /// Submits and waits: the batch is durable and in effect on return. Answers its place (`None`: it changes nothing)
    /// and what became of it.
    ///
    /// # Errors
    /// `Unavailable`: nothing happened (the log is full or read-only). `Indeterminate`: see [`PendingBatch::wait`].
    pub fn propose(&self, batch: MutationBatch) -> Result<(Option<SeqNo>, Outcome)> {
        self.submit(batch)?.wait()
    }

    /// Decides the batch and gives it its place in the tablet; nothing is durable yet. To write to several tablets with
    /// one flush, see [`propose_all`].
    pub fn submit(&self, batch: MutationBatch) -> Result<PendingBatch<'_>> {
        let mut pending = submit_batches(&[(self, batch)])?;
        Ok(pending.pop().expect("one pending batch for one submitted"))
    }

    /// Forgets log entries up to `upto`: what is durable in the rows, installed in the lake, and that no feed wants.
    /// What the rows still need is kept whatever is asked. Durable lazily; the space comes back with
    /// [`RaftLog::collect_garbage`].
    pub fn trim(&self, upto: SeqNo) -> Result<()> {
        let upto = upto.min(self.table.durable(self.tablet)).min(self.table.replayed_up_to(self.tablet));
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

    /// Returns when all that is under way now is durable and in effect.
    pub(crate) fn settle(&self) -> Result<()> {
        let after = {
            let queue = self.queue.lock();
            queue.under_way.last().zip(queue.last.clone())
        };
        let Some((after, ticket)) = after else { return Ok(()) };
        ticket.wait().map_err(Error::log(self.tablet))?;
        self.apply_upto(after)
    }

    /// Applies what is durable up to `seqno`. Where applying failed, the next caller goes on.
    fn apply_upto(&self, seqno: SeqNo) -> Result<()> {
        while !self.has_applied(seqno) {
            match self.apply_own(seqno)? {
                // Other tablets have to come as far: without this one's lock, for all are locked in one order.
                Some(together) => together.apply()?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Applies entries up to `seqno`, or to the next one that takes effect with those of other tablets, which is
    /// answered.
    fn apply_own(&self, seqno: SeqNo) -> Result<Option<Arc<EntryGroup>>> {
        let _one = self.applying.lock();
        loop {
            let (first, entry) = {
                let queue = self.queue.lock();
                let Some((first, entry)) = queue.under_way.first().filter(|(first, _)| *first <= seqno) else {
                    return Ok(None);
                };
                if let Some((at, together)) = queue.together.front().filter(|(at, _)| *at <= first) {
                    assert_eq!(*at, first, "an entry that takes effect with others was passed over");
                    return Ok(Some(Arc::clone(together)));
                }
                (first, entry.clone())
            };
            let applied = self.table.apply(self.tablet, first, &entry);
            applied.map_err(|source| Error::NotApplied { tablet: self.tablet, seqno: first, source })?;
            self.is_applied(first);
        }
    }

    /// Whether an entry is in effect.
    fn has_applied(&self, seqno: SeqNo) -> bool {
        self.applied.load(Ordering::Acquire) >= seqno.0
    }

    /// The oldest entry that is not applied.
    fn first_under_way(&self) -> Option<(SeqNo, Entry)> {
        self.queue.lock().under_way.first().map(|(first, entry)| (first, entry.clone()))
    }

    /// The oldest entry was applied; `applying` is locked.
    fn is_applied(&self, seqno: SeqNo) {
        self.applied.store(seqno.0, Ordering::Release);
        // Only now: whoever decides a batch meanwhile finds it here or there.
        let mut queue = self.queue.lock();
        queue.under_way.applied_first();
        while queue.together.front().is_some_and(|(at, _)| *at <= seqno) {
            queue.together.pop_front();
        }
    }
}

/// Commits batches to several tablets with one flush; answers in the order of `proposals`. All of them go to the log as
/// one write, so that with one log they are durable all or none; each is decided by itself ([`Outcome`]), behind those
/// before it.
///
/// # Errors
/// As [`Replica::propose`]. `Indeterminate` may be about some of the batches only.
pub fn propose_all(proposals: &[(&Replica, MutationBatch)]) -> Result<Vec<(Option<SeqNo>, Outcome)>> {
    wait_all(submit_batches(proposals)?)
}

/// Commits one batch of each tablet, all of them or none, and seen at one moment: by every reader all of them or none.
/// Answers what became of each, in the order of `proposals`; unless all were applied, none was, and what is said of
/// those that were not refused is what they would have come to.
///
/// # Errors
/// As [`propose_all`]; `Indeterminate` is about all of the batches. Panics when two are of one tablet.
pub fn propose_together(proposals: &[(Arc<Replica>, MutationBatch)]) -> Result<Vec<Outcome>> {
    propose_as_one(proposals, None)
}

/// As [`propose_together`], by a request whose outcome is kept with the first of the tablets, whose batch may be empty.
/// What is refused leaves nothing of the request.
///
/// # Errors
/// As [`propose_together`].
pub fn propose_named(proposals: &[(Arc<Replica>, MutationBatch)], request: Request) -> Result<Vec<Outcome>> {
    propose_as_one(proposals, Some(request))
}

fn propose_as_one(proposals: &[(Arc<Replica>, MutationBatch)], mut request: Option<Request>) -> Result<Vec<Outcome>> {
    let mut known = Vec::with_capacity(proposals.len());
    for (replica, batch) in proposals {
        let looked_up = replica.look_up(batch)?;
        known.push((
            &**replica,
            match request.take() {
                Some(request) => Proposal::Named(looked_up, request),
                None => Proposal::Batch(looked_up),
            },
        ));
    }
    let Some(mut turns) = ProposalTurns::decide(known)? else { return Ok(Vec::new()) };
    assert_eq!(turns.turns.len(), proposals.len(), "one batch a tablet");
    if !turns.are_all_applied() {
        return turns.refused();
    }
    let parts = turns.turns.iter().filter(|turn| !turn.entries.is_empty());
    let parts: Vec<(TabletId, SeqNo)> = parts.map(|turn| (turn.replica.tablet, turn.first)).collect();
    if parts.len() > 1 {
        let of = |tablet| proposals.iter().find(|(replica, _)| replica.tablet == tablet);
        let parts = parts.iter().filter_map(|(tablet, seqno)| Some((&of(*tablet)?.0, *seqno)));
        turns.are_one(&Arc::new(EntryGroup::new(parts)));
    }
    let done = wait_all(turns.submit()?)?;
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Commits entries that are no batches, as [`propose_all`] does. Answers their places.
pub(crate) fn propose_entries(entries: Vec<(&Replica, Entry)>) -> Result<Vec<SeqNo>> {
    let asked = entries.into_iter().map(|(replica, entry)| (replica, Proposal::Entry(entry))).collect();
    let done = wait_all(submit_all(asked)?)?;
    Ok(done.into_iter().filter_map(|(seqno, _)| seqno).collect())
}

fn wait_all(pending: Vec<PendingBatch<'_>>) -> Result<Vec<(Option<SeqNo>, Outcome)>> {
    let decided: Vec<Result<_>> = pending.into_iter().map(PendingBatch::wait).collect();
    decided.into_iter().collect()
}

fn submit_batches<'a>(proposals: &[(&'a Replica, MutationBatch)]) -> Result<Vec<PendingBatch<'a>>> {
    // The rows are read before anybody has to wait for it.
    let known = proposals.iter().map(|(replica, batch)| Ok((*replica, Proposal::Batch(replica.look_up(batch)?))));
    submit_all(known.collect::<Result<Vec<_>>>()?)
}

/// What is to get its place in a tablet's log.
enum Proposal<'b> {
    Batch(BatchReads<'b>),
    /// A batch that has an entry whatever it comes to, unless it is refused.
    Named(BatchReads<'b>, Request),
    Entry(Entry),
}

fn submit_all<'a>(asked: Vec<(&'a Replica, Proposal<'_>)>) -> Result<Vec<PendingBatch<'a>>> {
    match ProposalTurns::decide(asked)? {
        Some(turns) => turns.submit(),
        None => Ok(Vec::new()),
    }
}

/// What one call asks, decided and not submitted; the queues of all its tablets are locked.
struct ProposalTurns<'a> {
    turns: Vec<ProposalTurn<'a>>,
    /// In the order in which they were asked: which turn, and what became of it.
    decided: Vec<(usize, BatchDecision)>,
}

impl<'a> ProposalTurns<'a> {
    /// `None`: nothing is asked.
    fn decide(asked: Vec<(&'a Replica, Proposal<'_>)>) -> Result<Option<Self>> {
        let Some((first, _)) = asked.first() else { return Ok(None) };
        let first: &'a Replica = first;
        if let Some((stranger, _)) = asked.iter().find(|(replica, _)| !Arc::ptr_eq(&replica.log, &first.log)) {
            return Err(Error::NotOurs { tablet: first.tablet, given: stranger.tablet });
        }
        // Everyone locks by tablet; what is asked of one tablet keeps the order it was given in.
        let mut asked: Vec<(usize, (&'a Replica, Proposal<'_>))> = asked.into_iter().enumerate().collect();
        asked.sort_by_key(|(_, (replica, _))| replica.tablet);
        let mut turns: Vec<ProposalTurn<'a>> = Vec::new();
        let mut decided = Vec::with_capacity(asked.len());
        for (place, (replica, asked)) in asked {
            if turns.last().is_none_or(|turn| turn.replica.tablet != replica.tablet) {
                turns.push(ProposalTurn::new(replica));
            }
            let of_turn = turns.len() - 1;
            decided.push((place, (of_turn, turns[of_turn].decide(asked)?)));
        }
        decided.sort_unstable_by_key(|(place, _)| *place);
        Ok(Some(Self { turns, decided: decided.into_iter().map(|(_, decided)| decided).collect() }))
    }

    fn are_all_applied(&self) -> bool {
        self.decided.iter().all(|(_, decided)| matches!(decided.outcome, Outcome::Applied { .. }))
    }

    /// Their entries take effect together.
    fn are_one(&mut self, together: &Arc<EntryGroup>) {
        let turns = self.turns.iter_mut().filter(|turn| !turn.entries.is_empty());
        turns.for_each(|turn| turn.together = Some(Arc::clone(together)));
    }

    fn submit(mut self) -> Result<Vec<PendingBatch<'a>>> {
        let (log, tablet) = (&self.turns[0].replica.log, self.turns[0].replica.tablet);
        let mut log_batch = log.batch();
        self.turns.iter().for_each(|turn| turn.append_to(&mut log_batch));
        let ticket = match self.turns.iter().any(|turn| !turn.entries.is_empty()) {
            true => Some(Arc::new(log.submit(log_batch).map_err(Error::log(tablet))?)),
            false => None,
        };
        let pending = std::mem::take(&mut self.decided).into_iter().map(|(of_turn, decided)| {
            let turn = &self.turns[of_turn];
            let is_before = decided.after.is_some_and(|after| after < turn.first);
            let waits_for = if is_before { turn.queue.last.clone() } else { ticket.clone() };
            turn.pending(decided, waits_for)
        });
        let pending = pending.collect();
        self.turns.into_iter().for_each(|turn| turn.submitted(ticket.as_ref()));
        Ok(pending)
    }

    /// Nothing is submitted. What is refused is so because of what was there: it is said when that is durable.
    fn refused(self) -> Result<Vec<Outcome>> {
        let Self { turns, decided } = self;
        let mut outcomes = Vec::with_capacity(decided.len());
        let mut pending = Vec::new();
        for (of_turn, decided) in decided {
            outcomes.push(decided.outcome.clone());
            if !matches!(decided.outcome, Outcome::Applied { .. }) {
                let turn = &turns[of_turn];
                pending.push(turn.pending(decided, turn.queue.last.clone()));
            }
        }
        drop(turns);
        wait_all(pending)?;
        Ok(outcomes)
    }
}

/// What one call asks of one tablet, whose queue is locked. Dropped before it is submitted, it is forgotten.
struct ProposalTurn<'a> {
    replica: &'a Replica,
    queue: MutexGuard<'a, ReplicaQueue>,
    /// The place of its first entry.
    first: SeqNo,
    entries: Vec<Entry>,
    /// With which entries of other tablets its only one takes effect.
    together: Option<Arc<EntryGroup>>,
}

struct BatchDecision {
    outcome: Outcome,
    seqno: Option<SeqNo>,
    /// The newest entry that it is, or was decided upon.
    after: Option<SeqNo>,
}

impl<'a> ProposalTurn<'a> {
    fn new(replica: &'a Replica) -> Self {
        let queue = replica.queue.lock();
        Self { replica, first: queue.next, queue, entries: Vec::new(), together: None }
    }

    /// The place of the next entry.
    fn next(&self) -> SeqNo {
        SeqNo(self.first.0 + self.entries.len() as u64)
    }

    fn decide(&mut self, asked: Proposal<'_>) -> Result<BatchDecision> {
        let next = self.next();
        let (outcome, entry) = match asked {
            Proposal::Entry(entry) => (Outcome::Applied { affected: 0 }, Some(entry)),
            Proposal::Batch(known) => {
                let (outcome, effects) = self.resolve(next, known)?;
                (outcome, effects.map(Entry::Effects))
            }
            Proposal::Named(known, request) => {
                let (outcome, effects) = self.resolve(next, known)?;
                let none = || EffectsBuilder::new(&self.replica.table.table_schema()).finish(None);
                let named = || NamedEffects::new(request, effects.unwrap_or_else(none));
                let is_applied = matches!(outcome, Outcome::Applied { .. });
                (outcome, is_applied.then(|| Entry::Named(Arc::new(named()))))
            }
        };
        let seqno = entry.map(|entry| {
            self.queue.under_way.push(next, entry.clone());
            self.entries.push(entry);
            next
        });
        Ok(BatchDecision { outcome, seqno, after: self.queue.under_way.last() })
    }

    fn resolve(&self, next: SeqNo, known: BatchReads<'_>) -> Result<(Outcome, Option<Effects>)> {
        let resolved = self.replica.table.resolve(next, known, &self.queue.under_way);
        resolved.map_err(Error::not_decided(self.replica.tablet))
    }

    fn pending(&self, decided: BatchDecision, waits_for: Option<Arc<Ticket>>) -> PendingBatch<'a> {
        let BatchDecision { outcome, seqno, after } = decided;
        PendingBatch { replica: self.replica, outcome, after: after.zip(waits_for), seqno }
    }

    fn append_to(&self, log_batch: &mut LogBatch) {
        let entries = self.entries.iter().map(Entry::to_bytes);
        if !self.entries.is_empty() {
            log_batch.append_bytes(group_of(self.replica.tablet), TERM, Index(self.first.0), entries);
        }
    }

    /// They are in the log, in this order.
    fn submitted(mut self, ticket: Option<&Arc<Ticket>>) {
        if !self.entries.is_empty() {
            let first = self.first;
            self.queue.next = self.next();
            self.queue.last = ticket.cloned();
            let together = self.together.take().map(|together| (first, together));
            self.queue.together.extend(together);
        }
    }
}

impl Drop for ProposalTurn<'_> {
    fn drop(&mut self) {
        let first = self.queue.next;
        self.queue.under_way.take_back(first);
    }
}

impl Replica {
    fn look_up<'b>(&self, batch: &'b MutationBatch) -> Result<BatchReads<'b>> {
        let since = SeqNo(self.applied.load(Ordering::Acquire));
        self.table.look_up(self.tablet, batch, since).map_err(Error::not_decided(self.tablet))
    }
}

/// Entries of different tablets.
struct EntryGroup {
    /// In the order of tablets. A replica whose table was dropped is gone, and with it who would see its entry.
    parts: Vec<(Weak<Replica>, SeqNo)>,
}

impl EntryGroup {
    fn new<'a>(parts: impl Iterator<Item = (&'a Arc<Replica>, SeqNo)>) -> Self {
        Self { parts: parts.map(|(replica, seqno)| (Arc::downgrade(replica), seqno)).collect() }
    }

    /// Applies all of them, and what is before them, which is durable when they are. Where applying failed, the next
    /// caller goes on.
    fn apply(&self) -> Result<()> {
        let parts: Vec<(Arc<Replica>, SeqNo)> =
            self.parts.iter().filter_map(|(replica, seqno)| Some((replica.upgrade()?, *seqno))).collect();
        for (replica, seqno) in &parts {
            replica.apply_upto(SeqNo(seqno.0.saturating_sub(1)))?;
        }
        let _locked: Vec<_> = parts.iter().map(|(replica, _)| replica.applying.lock()).collect();
        // Somebody else came first: then all are applied.
        if parts.iter().all(|(replica, seqno)| replica.has_applied(*seqno)) {
            return Ok(());
        }
        let mut entries = Vec::with_capacity(parts.len());
        for (replica, seqno) in &parts {
            match replica.first_under_way() {
                Some((first, entry)) if first == *seqno => entries.push(entry),
                other => panic!("entry {seqno} of tablet {} is not the next one: {other:?}", replica.tablet()),
            }
        }
        let of_parts = parts.iter().zip(&entries).map(|((replica, seqno), entry)| TabletEntry {
            table: &replica.table,
            tablet: replica.tablet(),
            seqno: *seqno,
            does: EntryEffect::of(entry).expect("entries that take effect together change rows"),
        });
        let of_parts: Vec<TabletEntry<'_>> = of_parts.collect();
        let (tablet, seqno) = (of_parts[0].tablet, of_parts[0].seqno);
        apply_together(&of_parts).map_err(|source| Error::NotApplied { tablet, seqno, source })?;
        parts.iter().for_each(|(replica, seqno)| replica.is_applied(*seqno));
        Ok(())
    }
}
