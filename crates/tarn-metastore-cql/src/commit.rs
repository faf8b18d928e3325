//! How does a commit become the next version, and what does a lost answer mean?
//!
//! Commits to a table that wait in this process go together, `k` of them:
//!
//! ```text
//! 1  check each against the cache as the ones before leave it                      (refused: only after a refresh)
//! 2  write their metadata and payloads behind seq N, under one new attempt          nobody finds them yet
//! 3  UPDATE head SET seq = N+k, tip = attempt IF seq = N AND tip = the one before  now they are there, all or none
//! ```
//!
//! When step 3 is not answered, the same statement is sent again: only one statement can follow on N, and it is ours
//! whichever of the two it was. "Still N" is no proof that nothing will happen, for the coordinator may still be
//! trying; the next statement's answer is one. After three rounds without an answer nobody knows, and that is what is
//! said.

use std::collections::HashMap;
use std::sync::Arc;

use scylla::errors::ExecutionError;
use tokio::sync::oneshot;
use uuid::Uuid;

use tarn_metastore::backend::{CommitCheck, check_commit};
use tarn_metastore::{BlockMetadata, BlockRef, Commit, CommitInfo, CommitKind, Error, Result, TableVersion};
use tarn_types::{FileId, TableId, Version};

use crate::CqlInner;
use crate::cache::LoggedCommit;
use crate::layout::Layout;
use crate::patience::RetryBudget;
use crate::requests::{Request, done};
use crate::session::Cas;
use crate::tables::{BUCKET, PART_BYTES};
use crate::wire::{BlockMeta, Metas, encode_commit};

/// Commits of one group at most.
const GROUP: usize = 256;

/// How often others may come first before we say that the store cannot keep up.
const LOSSES: usize = 1_000;

/// Bytes of block metadata of one group, unless one commit alone has more.
const GROUP_BYTES: usize = 16 << 20;

pub(crate) struct PendingCommit {
    commit: Commit,
    answer: oneshot::Sender<Result<Version>>,
}

/// Commits to one table that wait for their turn.
#[derive(Default)]
pub(crate) struct CommitQueue {
    waiting: Vec<PendingCommit>,
    is_led: bool,
}

/// Where the log ended when a group was checked.
struct Base {
    seq: i64,
    tip: Uuid,
    epoch: i32,
    restoring: bool,
    layout: Layout,
}

struct AcceptedCommit {
    at: usize,
    info: Arc<CommitInfo>,
    next: Arc<TableVersion>,
    block_metadata: Vec<(i64, FileId, Vec<BlockMetadata>)>,
    metas: Metas,
}

/// What a group came to, in the order of those who wait.
struct Checkup {
    base: Base,
    accepted: Vec<AcceptedCommit>,
    answers: Vec<Option<Result<Version>>>,
}

enum CommitDecision {
    Won,
    /// Another came first, or the table changed otherwise. With an error: unless the other built on ours.
    Lost(Option<ExecutionError>),
    Unsent(ExecutionError),
    Unknown(ExecutionError),
}

impl CqlInner {
    /// Waits in the table's queue, or leads it: those who wait are committed together. Durable when it answers. A
    /// caller that goes away does not stop what it began.
    pub async fn commit(self: &Arc<Self>, table: TableId, commit: Commit) -> Result<Version> {
        let (answer, answered) = oneshot::channel();
        let leads = {
            let mut queues = self.queues.lock();
            let queue = queues.entry(table).or_default();
            queue.waiting.push(PendingCommit { commit, answer });
            !std::mem::replace(&mut queue.is_led, true)
        };
        if leads {
            // A caller that goes away must not leave the others waiting.
            let inner = self.clone();
            self.runtime.spawn(async move { inner.lead(table).await });
        }
        answered.await.unwrap_or_else(|gone| Err(self.unknown("commit to", gone)))
    }

    /// The answer was lost: what was asked may have been done, or may be done yet.
    pub fn unknown(&self, action: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Indeterminate { action, place: self.store.address.clone(), source: source.into() }
    }

    async fn lead(&self, table: TableId) {
        let leading = CommitLeader { inner: self, table };
        loop {
            let group: Vec<_> = {
                let mut queues = self.queues.lock();
                let Some(queue) = queues.get_mut(&table) else { return };
                let mut n_bytes = 0;
                let fits = |of: &&PendingCommit| {
                    n_bytes += weight(&of.commit);
                    n_bytes <= GROUP_BYTES
                };
                let n = queue.waiting.iter().take(GROUP).take_while(fits).count().max(1).min(queue.waiting.len());
                let group = queue.waiting.drain(..n).collect();
                if n == 0 {
                    queues.remove(&table);
                    std::mem::forget(leading);
                    return;
                }
                group
            };
            let (commits, answers): (Vec<_>, Vec<_>) = group.into_iter().map(|of| (of.commit, of.answer)).unzip();
            for (answer, result) in answers.into_iter().zip(self.commit_group(table, &commits).await) {
                // Whoever went away does not want it.
                let _ = answer.send(result);
            }
        }
    }

    async fn commit_group(&self, table: TableId, commits: &[Commit]) -> Vec<Result<Version>> {
        let for_all = |error: &dyn Fn() -> Error| commits.iter().map(|_| Err(error())).collect::<Vec<_>>();
        let mut written: HashMap<Uuid, Layout> = HashMap::new();
        let mut knows_files = false;
        // Where the log ended when the first attempt was sent whose outcome nobody told.
        let mut doubt: Option<(i64, ExecutionError)> = None;
        let mut is_fresh = !self.cache.read().loaded.contains_key(&table);
        if is_fresh && let Err(error) = self.refresh(table).await {
            return shared(error, commits.len());
        }
        for _ in 0..LOSSES {
            let checkup = match self.check(table, commits) {
                Ok(checkup) => checkup,
                Err(error) if is_fresh => return shared(error, commits.len()),
                Err(_) => {
                    is_fresh = true;
                    match self.refresh(table).await {
                        Ok(()) => continue,
                        Err(error) => return shared(error, commits.len()),
                    }
                }
            };
            let Checkup { base, accepted, answers } = checkup;
            if answers.iter().any(|answer| matches!(answer, Some(Err(_)))) {
                let is_unallocated = |answer: &Option<_>| matches!(answer, Some(Err(Error::InvalidFile { .. })));
                let needs_catalog = !knows_files && answers.iter().any(is_unallocated);
                if needs_catalog || !is_fresh {
                    let catalog = if needs_catalog { self.refresh_catalog().await } else { Ok(()) };
                    (knows_files, is_fresh) = (knows_files || needs_catalog, true);
                    let refreshed = match catalog {
                        Ok(()) => self.refresh(table).await,
                        Err(error) => Err(error),
                    };
                    match refreshed {
                        Ok(()) => continue,
                        Err(error) => return shared(error, commits.len()),
                    }
                }
            }
            if accepted.is_empty() {
                return answers.into_iter().map(|answer| answer.expect("who is not accepted is answered")).collect();
            }
            if let Err(error) = base.layout.check_writes(self.known, &self.store.address) {
                return shared(error, commits.len());
            }
            let attempt = match self.new_attempt().await {
                Ok(attempt) => attempt,
                Err(error) => return shared(error, commits.len()),
            };
            if let Err(error) = self.write_group(table, &base, attempt, &accepted, &mut written).await {
                // A table may be gone that a step of a migration before needed.
                let is_known = self.refresh_catalog().await.is_ok();
                if !is_known || self.cache.read().catalog.layout.epoch <= base.layout.epoch {
                    return shared(error, commits.len());
                }
                is_fresh = true;
                match self.refresh(table).await {
                    Ok(()) => continue,
                    Err(error) => return shared(error, commits.len()),
                }
            }
            match self.decide(table, &base, attempt, &accepted).await {
                CommitDecision::Won => return self.publish(table, &base, attempt, accepted, answers),
                CommitDecision::Lost(lost_answer) => {
                    is_fresh = true;
                    doubt = doubt.or(lost_answer.map(|error| (base.seq, error)));
                    match (self.refresh(table).await, &doubt) {
                        (Err(error), None) => return shared(error, commits.len()),
                        (Err(_), Some((_, error))) => return for_all(&|| self.unknown("commit to", error.clone())),
                        // Ours may be in and forgotten again: its id would not be found.
                        (Ok(()), Some((seq, error))) if self.is_folded_beyond(table, *seq) => {
                            return for_all(&|| self.unknown("commit to", error.clone()));
                        }
                        // Its id is not there, so it is not.
                        (Ok(()), _) => doubt = None,
                    }
                }
                CommitDecision::Unsent(error) => return for_all(&|| self.store.unavailable(error.clone())),
                // What waits with them may rest on them.
                CommitDecision::Unknown(error) => return for_all(&|| self.unknown("commit to", error.clone())),
            }
        }
        for_all(&|| self.store.unavailable("others always came first"))
    }

    fn is_folded_beyond(&self, table: TableId, seq: i64) -> bool {
        self.cache.read().loaded.get(&table).is_none_or(|loaded| loaded.oldest_seq > seq)
    }

    fn check(&self, table: TableId, commits: &[Commit]) -> Result<Checkup> {
        let cache = self.cache.read();
        let of = cache.state.table(table)?;
        let loaded = cache.loaded.get(&table).ok_or(Error::NoTableId { table })?;
        let base = Base {
            seq: loaded.seq,
            tip: loaded.tip,
            epoch: loaded.epoch,
            restoring: of.restoring,
            layout: cache.catalog.layout,
        };
        let mut latest = of.latest().clone();
        let mut ahead: HashMap<Uuid, Version> = HashMap::new();
        let (mut accepted, mut answers) = (Vec::new(), Vec::with_capacity(commits.len()));
        for (at, commit) in commits.iter().enumerate() {
            if let Some(version) = ahead.get(&commit.id) {
                answers.push(Some(Ok(*version)));
                continue;
            }
            let checked = check_commit(&of.standing(&latest, cache.state.next_file), commit.clone());
            answers.push(match checked {
                Err(error) => Some(Err(error)),
                Ok(CommitCheck::Already(version)) => Some(Ok(version)),
                Ok(CommitCheck::New { next, info, block_metadata }) => {
                    if info.kind != CommitKind::Restore {
                        ahead.insert(info.id, info.version);
                    }
                    latest = next.clone();
                    let hours: HashMap<FileId, i64> = info.added.iter().map(|file| (file.id, file.hour)).collect();
                    let block_metadata: Vec<_> =
                        block_metadata.into_iter().map(|(file, of)| (hours[&file], file, of)).collect();
                    let metas = |of: &[BlockMetadata]| of.iter().map(BlockMeta::of).collect();
                    let metas = block_metadata.iter().map(|(_, file, of)| (*file, metas(of))).collect();
                    accepted.push(AcceptedCommit { at, info, next, block_metadata, metas });
                    None
                }
            });
        }
        Ok(Checkup { base, accepted, answers })
    }

    /// Nothing of it is visible.
    async fn write_group(
        &self,
        table: TableId,
        base: &Base,
        attempt: Uuid,
        accepted: &[AcceptedCommit],
        written: &mut HashMap<Uuid, Layout>,
    ) -> Result<()> {
        let mut rows = Vec::new();
        for (seq, of) in (base.seq + 1..).zip(accepted) {
            let payload = encode_commit(&of.info, &of.metas);
            let prev = if seq == base.seq + 1 { base.tip } else { attempt };
            let n_parts = payload.len().div_ceil(PART_BYTES) as i32;
            for (part, bytes) in (0..).zip(payload.chunks(PART_BYTES)) {
                rows.push((table.0 as i32, seq.div_euclid(BUCKET), seq, attempt, part, n_parts, prev, bytes.to_vec()));
            }
        }
        // Small ones of one bucket go together: it is one partition.
        type Row = (i32, i64, i64, Uuid, i32, i32, Uuid, Vec<u8>);
        let mut batches: Vec<Vec<Row>> = Vec::new();
        let mut n_bytes = 0;
        for row in rows {
            let row: Row = row;
            let is_next = batches.last().is_some_and(|last: &Vec<Row>| last[0].1 == row.1);
            let fits = is_next && n_bytes + row.7.len() <= 32 << 10;
            n_bytes = if fits { n_bytes } else { 0 } + row.7.len() + 64;
            match batches.last_mut() {
                Some(last) if fits => last.push(row),
                _ => batches.push(vec![row]),
            }
        }
        let mut requests: Vec<Request<'_, ()>> = Vec::with_capacity(batches.len());
        for rows in batches {
            requests.push(Box::pin(self.store.write_rows(&self.statements.log_put, rows)));
        }
        // Payloads first: they name the block metadata, so that those of an attempt that came to nothing can be found.
        done(self.store.concurrency, requests).await?;

        let is_written =
            |of: &AcceptedCommit| written.get(&of.info.id).is_some_and(|at| at.writes() == base.layout.writes());
        let mut hours: HashMap<i64, Vec<(BlockRef, &BlockMetadata)>> = HashMap::new();
        for of in accepted.iter().filter(|of| !is_written(of)) {
            for (hour, file, blocks) in &of.block_metadata {
                let refs = blocks.iter().map(|of| (BlockRef { file: *file, row_group: of.row_group }, of));
                hours.entry(*hour).or_default().extend(refs);
            }
        }
        for (hour, blocks) in hours {
            self.write_block_metadata(table, hour, base.layout.writes(), &blocks).await?;
        }
        written.extend(accepted.iter().map(|of| (of.info.id, base.layout)));
        Ok(())
    }

    #[cfg(test)]
    pub async fn write_half(&self, table: TableId, commit: Commit) {
        let Checkup { base, accepted, .. } = self.check(table, &[commit]).expect("a lawful commit");
        let attempt = self.new_attempt().await.expect("ids");
        self.write_group(table, &base, attempt, &accepted, &mut HashMap::new()).await.expect("it is reached");
    }

    async fn decide(&self, table: TableId, base: &Base, attempt: Uuid, accepted: &[AcceptedCommit]) -> CommitDecision {
        let seq = base.seq + accepted.len() as i64;
        let version = accepted.last().map_or(0, |last| last.info.version.0 as i64);
        let values = (seq, version, attempt, table.0 as i32, base.seq, base.tip, base.epoch, base.restoring);
        let mut patience = RetryBudget::new(self.store.timeout);
        let mut lost_answer = None;
        loop {
            let (is_refused, error) = match self.store.compare_and_set(&self.statements.head_commit, values).await {
                Cas::Applied => return CommitDecision::Won,
                Cas::Refused if lost_answer.is_none() => return CommitDecision::Lost(None),
                Cas::Unsent(error) if lost_answer.is_none() => return CommitDecision::Unsent(error),
                // The head moved, or will not take ours any more: by ours, or by another's. Reading it tells.
                Cas::Refused => (true, None),
                Cas::Unsent(error) | Cas::Unknown(error) => (false, Some(error)),
            };
            lost_answer = error.or(lost_answer);
            let head = self.head(table).await;
            match &head {
                Ok(Some(head)) if (head.seq, head.tip) == (seq, attempt) => return CommitDecision::Won,
                Ok(Some(head)) if (head.seq, head.tip) != (base.seq, base.tip) => {
                    return CommitDecision::Lost(lost_answer);
                }
                Ok(_) if is_refused => return CommitDecision::Lost(lost_answer),
                _ => {}
            }
            if !patience.again(head.is_ok()).await {
                return CommitDecision::Unknown(lost_answer.unwrap_or(ExecutionError::EmptyPlan));
            }
        }
    }

    /// Makes what is in the store visible here.
    fn publish(
        &self,
        table: TableId,
        base: &Base,
        attempt: Uuid,
        accepted: Vec<AcceptedCommit>,
        mut answers: Vec<Option<Result<Version>>>,
    ) -> Vec<Result<Version>> {
        let mut logged = Vec::with_capacity(accepted.len());
        for (seq, AcceptedCommit { at, info, next, metas, .. }) in (base.seq + 1..).zip(accepted) {
            answers[at] = Some(Ok(info.version));
            logged.push(LoggedCommit { seq, attempt, info, metas, next: Some(next) });
        }
        let mut cache = self.cache.write();
        // Somebody else may have read them already, or dropped the table.
        if cache.state.tables.contains_key(&table) && cache.loaded.contains_key(&table) {
            let _ = cache.append(table, logged);
        }
        answers.into_iter().map(|answer| answer.expect("all are accepted or answered")).collect()
    }

    /// A number that no attempt ever had: of this process among all, and of the attempt in it.
    async fn new_attempt(&self) -> Result<Uuid> {
        let process = self.process.get_or_try_init(|| self.reserve_files(1)).await?;
        let n = self.attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Uuid::from_u64_pair(process.0, n))
    }

    /// A number that no other change of any definition has.
    pub async fn new_revision(&self) -> Result<Uuid> {
        self.new_attempt().await
    }
}

/// Who leads, until nobody waits. When it ends otherwise, those who wait are told that nobody knows, and the next
/// commit leads anew.
struct CommitLeader<'a> {
    inner: &'a CqlInner,
    table: TableId,
}

impl Drop for CommitLeader<'_> {
    fn drop(&mut self) {
        self.inner.queues.lock().remove(&self.table);
    }
}

/// What the block metadata of a commit takes, about.
fn weight(commit: &Commit) -> usize {
    let of_block =
        |of: &BlockMetadata| of.bloom.as_ref().map_or(0, |bloom| bloom.bits().len()) + 100 * of.columns.len();
    commit.block_metadata.values().flatten().map(of_block).sum()
}

/// One error for all who waited together.
fn shared(error: Error, n: usize) -> Vec<Result<Version>> {
    let mut errors = Vec::with_capacity(n);
    for _ in 1..n {
        errors.push(Err(copy(&error)));
    }
    errors.push(Err(error));
    errors.reverse();
    errors
}

fn copy(error: &Error) -> Error {
    match error {
        Error::NoTableId { table } => Error::NoTableId { table: *table },
        Error::Damaged { address, what, reason } => {
            Error::Damaged { address: address.clone(), what: what.clone(), reason: reason.clone() }
        }
        Error::SchemaVersion { address, found, needed } => {
            Error::SchemaVersion { address: address.clone(), found: *found, needed: *needed }
        }
        Error::Unavailable { address, setting, source } => {
            Error::Unavailable { address: address.clone(), setting, source: source.to_string().into() }
        }
        other => Error::Unavailable { address: String::new(), setting: "metastore", source: other.to_string().into() },
    }
}
