//! How do many commits share one transaction, and what if its answer is lost?
//!
//! ```text
//! commit ──> waiting ─┐                                                              ┌─> answered
//! commit ──> waiting ─┼─ leader of the table: lock its row, read what others did, ───┼─> answered
//! commit ──> waiting ─┘                       check, write, COMMIT                   └─> answered
//! ```
//!
//! Who finds nobody leading for the table leads, in a task of the runtime that the store was given: whoever goes away
//! takes nobody's commit along. Two flights make a transaction: one that ends with the answer what is new, one that
//! ends with COMMIT. While it is synced the next group gathers.
//!
//! The row's lock orders the commits of all processes. When the answer to COMMIT is lost, the group is simply tried
//! again: the lock is not to be had before the server has ended the first transaction, and then the commits are found
//! by their ids, or are not there. Unless somebody has expired the versions that they would have made: then nobody
//! knows.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use tarn_metastore::backend::{CommitCheck, check_commit, put_bitmap, put_commit, put_file};
use tarn_metastore::{BlockMetadata, Commit, CommitInfo, CommitKind, Error, Result, TableVersion};
use tarn_types::{FileId, TableId, Version};

use crate::PostgresInner;
use crate::bytes::seal;
use crate::layout::{Layout, Meta};
use crate::local_state::LocalState;
use crate::pool::{FlightStatement, Param, RequestFailure, change, params};
use crate::write::{NewBlock, block_metadata_bytes, write_steps};

/// Commits and their bytes of one group, beyond its first commit.
const MAX_GROUP: usize = 1024;
const MAX_GROUP_BYTES: usize = 8 << 20;

/// Commits that wait, of the tables that somebody leads for.
pub(crate) type Queues = HashMap<TableId, VecDeque<PendingCommit>>;

/// A commit, and who wants to know.
pub(crate) struct PendingCommit {
    commit: Commit,
    n_bytes: usize,
    answer: oneshot::Sender<Result<Version>>,
}

/// A commit that was checked.
struct AcceptedCommit {
    info: Arc<CommitInfo>,
    next: Arc<TableVersion>,
}

/// A group that was checked.
struct Checks {
    /// One for each commit, should the accepted ones become durable.
    answers: Vec<Result<Version>>,
    accepted: Vec<AcceptedCommit>,
    /// What makes them durable.
    steps: Vec<FlightStatement>,
}

impl PostgresInner {
    /// Waits in the table's queue, or leads it: those who wait share a transaction. Durable when it answers. A caller
    /// that goes away does not stop what it began.
    pub async fn commit(self: &Arc<Self>, table: TableId, commit: Commit) -> Result<Version> {
        let (answer, answered) = oneshot::channel();
        let waiting = PendingCommit { n_bytes: bytes_of(&commit), commit, answer };
        let is_led = {
            let mut queues = self.queues.lock();
            let is_led = queues.contains_key(&table);
            queues.entry(table).or_default().push_back(waiting);
            is_led
        };
        if !is_led {
            self.runtime.spawn(Leader { inner: self.clone(), table, has_led: false }.lead());
        }
        answered.await.unwrap_or_else(|source| Err(self.pool.unknown(Box::new(source))))
    }
}

/// Leads until nothing waits. When it is dropped before, those who wait are told that nobody knows.
struct Leader {
    inner: Arc<PostgresInner>,
    table: TableId,
    /// Others may lead by now.
    has_led: bool,
}

impl Leader {
    async fn lead(mut self) {
        while let Some(group) = self.next_group() {
            self.run(group).await;
        }
    }

    /// What waits, oldest first, as much as one group may have. `None`: nothing does, and nobody leads any more.
    fn next_group(&mut self) -> Option<Vec<PendingCommit>> {
        let mut queues = self.inner.queues.lock();
        let group = queues.get_mut(&self.table).map(take_group).unwrap_or_default();
        if group.is_empty() {
            queues.remove(&self.table);
            self.has_led = true;
            return None;
        }
        Some(group)
    }

    async fn run(&self, group: Vec<PendingCommit>) {
        let (commits, askers): (Vec<Commit>, Vec<_>) = group.into_iter().map(|of| (of.commit, of.answer)).unzip();
        let PostgresInner { pool, .. } = &*self.inner;
        let mut before = Version(0);
        let done: Result<Vec<Result<Version>>> =
            change!(pool, doubt => self.inner.try_commit(self.table, commits.clone(), &mut doubt, &mut before));
        // Whoever went away does not want the answer.
        match done {
            Ok(answers) => askers.into_iter().zip(answers).for_each(|(asker, answer)| drop(asker.send(answer))),
            Err(error) => {
                for asker in askers {
                    drop(asker.send(Err(again(&error))));
                }
            }
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // It panicked, or its runtime ended.
        if !self.has_led {
            drop(self.inner.queues.lock().remove(&self.table));
        }
    }
}

fn take_group(waiting: &mut VecDeque<PendingCommit>) -> Vec<PendingCommit> {
    let mut group = Vec::new();
    let mut n_bytes = 0;
    while let Some(next) = waiting.front() {
        n_bytes += next.n_bytes;
        if !group.is_empty() && (group.len() >= MAX_GROUP || n_bytes > MAX_GROUP_BYTES) {
            break;
        }
        group.extend(waiting.pop_front());
    }
    group
}

/// What a commit takes, about: block metadata and dead rows as they are stored, files as they are in memory.
fn bytes_of(commit: &Commit) -> usize {
    let block_metadata: usize = commit.block_metadata.values().flatten().map(block_metadata_bytes).sum();
    let dead: usize = commit.deletion_vectors.values().map(roaring::RoaringBitmap::serialized_size).sum();
    let blocks = commit.add.iter().flat_map(|file| &file.blocks);
    block_metadata + dead + blocks.map(|block| size_of_val(block) + size_of_val(&block.columns[..])).sum::<usize>()
}

/// The same error for another of those who wait.
fn again(error: &Error) -> Error {
    match error {
        Error::NoTableId { table } => Error::NoTableId { table: *table },
        Error::Unavailable { address, setting, source } => {
            Error::Unavailable { address: address.clone(), setting, source: source.to_string().into() }
        }
        Error::SchemaVersion { address, found, needed } => {
            Error::SchemaVersion { address: address.clone(), found: *found, needed: *needed }
        }
        Error::Damaged { address, what, reason } => {
            Error::Damaged { address: address.clone(), what: what.clone(), reason: reason.clone() }
        }
        Error::Indeterminate { action, place, source } => {
            Error::Indeterminate { action, place: place.clone(), source: source.to_string().into() }
        }
        other => {
            Error::Indeterminate { action: "change", place: "metastore".to_owned(), source: other.to_string().into() }
        }
    }
}

impl PostgresInner {
    /// `before`: the latest version when the group was last tried.
    async fn try_commit(
        &self,
        id: TableId,
        commits: Vec<Commit>,
        doubt: &mut bool,
        before: &mut Version,
    ) -> Result<Vec<Result<Version>>, RequestFailure> {
        let connection = self.pool.take_for_change(*doubt).await?;
        let known = self.held.read().known(id);
        let lock = "SELECT version FROM tables WHERE table_id = $1 FOR UPDATE";
        let answers = connection
            .flight(vec![
                FlightStatement::Plain("BEGIN"),
                // Before the row: a migration's next step waits for those who have read the phase.
                FlightStatement::Query(Meta::QUERY, vec![]),
                FlightStatement::Query(lock, params![i64::from(id.0)]),
                Self::tail_step(id, known),
            ])
            .await?;
        let ready = async {
            let meta = Meta::of(&answers[1])?;
            let layout = self.take_layout(&meta)?;
            self.refresh_locked(&connection, id, known, &answers[3]).await?;
            let held = self.held.read();
            let table = held.table(id)?;
            if *doubt && table.oldest.version > *before {
                let reason = format!("versions after {before}, which it may have made, are no longer kept");
                return Err(self.pool.unknown(reason.into()).into());
            }
            *before = table.latest().version;
            Ok::<_, RequestFailure>((meta, layout))
        };
        let (meta, layout) = match ready.await {
            Ok(ready) => ready,
            Err(failure @ (RequestFailure::Ours(_) | RequestFailure::Damaged { .. })) => {
                connection.roll_back().await;
                return Err(failure);
            }
            Err(failure) => return Err(failure),
        };
        let (Checks { answers, accepted, steps }, mut base_seq) = {
            {
                let mut held = self.held.write();
                held.state.next_file = FileId(meta.next_file.max(held.state.next_file.0));
            }
            // Nobody changes the table: its row is ours.
            let held = self.held.read();
            let checks = check_group(&held, id, commits, layout)?;
            (checks, held.known(id).map_or(0, |known| known.seen.base_seq))
        };
        if accepted.is_empty() {
            connection.roll_back().await;
            return Ok(answers);
        }
        connection.commit(steps, doubt).await?;
        let mut held = self.held.write();
        for AcceptedCommit { info, next } in accepted {
            if info.kind == CommitKind::Restore {
                base_seq += 1;
                held.restore(id, base_seq, info, next)?;
            } else {
                held.push(id, info, next)?;
            }
        }
        Ok(answers)
    }
}

/// One after the other, each against what those before it make.
fn check_group(held: &LocalState, id: TableId, commits: Vec<Commit>, layout: Layout) -> Result<Checks, RequestFailure> {
    let table = held.table(id)?;
    let mut latest = table.latest().clone();
    let mut ahead: HashMap<Uuid, Version> = HashMap::new();
    let (mut answers, mut accepted, mut writes) = (Vec::new(), Vec::new(), Writes::default());
    for commit in commits {
        if let Some(version) = ahead.get(&commit.id) {
            answers.push(Ok(*version));
            continue;
        }
        match check_commit(&table.standing(&latest, held.state.next_file), commit) {
            Ok(CommitCheck::Already(version)) => answers.push(Ok(version)),
            Ok(CommitCheck::New { next, info, block_metadata }) => {
                answers.push(Ok(info.version));
                if info.kind != CommitKind::Restore {
                    ahead.insert(info.id, info.version);
                }
                writes.add(&info, block_metadata);
                latest = next.clone();
                accepted.push(AcceptedCommit { info, next });
            }
            Err(error) => answers.push(Err(error)),
        }
    }
    Ok(Checks { answers, accepted, steps: writes.steps(id, latest.version, layout) })
}

/// Rows of a group.
#[derive(Default)]
struct Writes {
    versions: Vec<i64>,
    ids: Vec<Uuid>,
    payloads: Vec<Vec<u8>>,
    blocks: Vec<NewBlock>,
    /// Of restoring commits, which have no version of their own: files and dead rows of the oldest version.
    restored: Vec<Arc<CommitInfo>>,
}

impl Writes {
    fn add(&mut self, info: &Arc<CommitInfo>, block_metadata: std::collections::BTreeMap<FileId, Vec<BlockMetadata>>) {
        for file in &info.added {
            let blocks = block_metadata.get(&file.id).into_iter().flatten();
            self.blocks.extend(blocks.map(|of| NewBlock {
                hour: file.hour,
                file: file.id,
                block_metadata: of.clone(),
            }));
        }
        if info.kind == CommitKind::Restore {
            self.restored.push(info.clone());
            return;
        }
        let mut payload = Vec::new();
        put_commit(&mut payload, info);
        self.versions.push(info.version.0 as i64);
        self.ids.push(info.id);
        self.payloads.push(seal(payload));
    }

    fn steps(self, id: TableId, latest: Version, layout: Layout) -> Vec<FlightStatement> {
        let table = i64::from(id.0);
        let mut steps = write_steps(id, &self.blocks, layout);
        if !self.ids.is_empty() {
            let insert = "INSERT INTO commits (table_id, version, id, payload)
                SELECT $1, * FROM unnest($2::int8[], $3::uuid[], $4::bytea[])";
            steps.push(FlightStatement::Query(insert, params![table, self.versions, self.ids, self.payloads]));
        }
        if !self.restored.is_empty() {
            steps.extend(file_steps(id, self.restored.iter().flat_map(|info| &info.added)));
            let dead = self.restored.iter().flat_map(|info| &info.deletion_vectors);
            steps.push(dead_step(id, dead.map(|(file, dead)| (*file, dead))));
            let count = "UPDATE tables SET base_seq = base_seq + $2 WHERE table_id = $1";
            steps.push(FlightStatement::Query(count, params![table, self.restored.len() as i64]));
        }
        let update = "UPDATE tables SET version = $2 WHERE table_id = $1";
        steps.push(FlightStatement::Query(update, params![table, latest.0 as i64]));
        steps
    }
}

/// Makes files part of the oldest version.
pub(crate) fn file_steps<'a>(
    id: TableId,
    files: impl Iterator<Item = &'a Arc<tarn_metastore::File>>,
) -> Vec<FlightStatement> {
    let rows: Vec<(i64, Vec<u8>)> = files
        .map(|file| {
            let mut out = Vec::new();
            put_file(&mut out, file);
            (file.id.0 as i64, seal(out))
        })
        .collect();
    let insert = "INSERT INTO files (table_id, file_id, file) SELECT $1, * FROM unnest($2::int8[], $3::bytea[])";
    let batch = |rows: &[(i64, Vec<u8>)]| -> Vec<Param> {
        let (ids, files): (Vec<i64>, Vec<Vec<u8>>) = rows.iter().cloned().unzip();
        params![i64::from(id.0), ids, files]
    };
    rows.chunks(10_000).map(|rows| FlightStatement::Query(insert, batch(rows))).collect()
}

/// Whole new vectors of the oldest version.
pub(crate) fn dead_step<'a>(
    id: TableId,
    dead: impl Iterator<Item = (FileId, &'a Arc<roaring::RoaringBitmap>)>,
) -> FlightStatement {
    let (ids, vectors): (Vec<i64>, Vec<Vec<u8>>) = dead
        .map(|(file, dead)| {
            let mut out = Vec::new();
            put_bitmap(&mut out, dead);
            (file.0 as i64, seal(out))
        })
        .unzip();
    let upsert = "INSERT INTO dead_rows (table_id, file_id, bits) SELECT $1, * FROM unnest($2::int8[], $3::bytea[])
        ON CONFLICT (table_id, file_id) DO UPDATE SET bits = excluded.bits";
    FlightStatement::Query(upsert, params![i64::from(id.0), ids, vectors])
}

#[cfg(test)]
mod tests {
    use tarn_metastore::contract::{append, sample_block_metadata};
    use tarn_types::Value;

    use super::*;

    #[test]
    fn a_group_is_bounded_by_all_bytes_of_its_commits() {
        let waiting = |id, bound_bytes| {
            let file = FileId(id);
            let mut block_metadata = sample_block_metadata(&[]);
            block_metadata[0].columns[0].0.min = Some(Value::Text("m".repeat(bound_bytes)));
            let commit = Commit { block_metadata: [(file, block_metadata)].into(), ..append(id.into(), file) };
            PendingCommit { n_bytes: bytes_of(&commit), commit, answer: oneshot::channel().0 }
        };
        let sizes = |bound_bytes: &[usize]| {
            let mut queue: VecDeque<PendingCommit> = (1..).zip(bound_bytes).map(|(id, n)| waiting(id, *n)).collect();
            std::iter::from_fn(|| Some(take_group(&mut queue).len()).filter(|n| *n > 0)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[3 << 20; 5]), [2, 2, 1]);
        assert_eq!(sizes(&[20 << 20, 1, 1]), [1, 2], "one that is larger goes alone");
        assert_eq!(sizes(&[1; 1_500]), [1_024, 476]);
    }
}
