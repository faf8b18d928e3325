//! How do many commits share one sync?
//!
//! ```text
//! commit ──> pending ─┐                     ┌─> answered
//! commit ──> pending ─┼─ leader: check, write, sync, publish ─┼─> answered
//! commit ──> pending ─┘                     └─> answered
//! ```
//!
//! Who finds nobody leading leads: takes all that waits, writes it in one go, and goes on until nothing waits. It does
//! so on a blocking thread of the caller's runtime; this crate has none of its own. While one group is synced the next
//! one gathers, so a group is as large as there are writers, and no commit waits for more than two syncs.
//!
//! Invariants: commits of a group are checked one after the other, each against what those before it make; nothing of a
//! group is visible or answered before all of it is durable. A group whose write failed did not happen, or nobody
//! knows, for all of it alike.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use tarn_types::{FileId, TableId, Version};

use super::inner::{LogWriter, StopReason, StoreInner};
use super::journal::JournalChange;
use super::queue::{CommitQueue, PendingCommit};
use super::store_state::{LoggedMetadata, StoreState};
use crate::check::{CommitCheck, check_commit};
use crate::codec::{self, BlockMetadataOffsets};
use crate::log::{Append, LogEntry, Payload};
use crate::record::encode_commit;
use crate::state::StateRecord;
use crate::{Commit, CommitInfo, CommitKind, Error, Result, TableVersion};

/// Commits and bytes of block metadata of one group, beyond its first commit.
const MAX_GROUP: usize = 1024;
const MAX_GROUP_BYTES: usize = 8 << 20;

/// Block metadata as it will stand in the log. Cost: a copy and a checksum of every bloom; no lock.
pub(super) fn encode_block_metadata(
    table: TableId,
    commit: &Commit,
) -> BTreeMap<FileId, Vec<(Payload, BlockMetadataOffsets)>> {
    let files = commit.add.iter().filter_map(|file| Some((file, commit.block_metadata.get(&file.id)?)));
    let of_file = |(file, block_metadata): (&crate::File, &Vec<_>)| {
        let payloads = block_metadata.iter().map(|of_block| {
            let bytes = codec::encode_block_metadata(table, file.hour, file.id, of_block);
            let places = codec::locate_block_metadata(&bytes, codec::FORMAT).expect("these bytes were made just now");
            (Payload::new(bytes), places)
        });
        (file.id, payloads.collect())
    };
    files.map(of_file).collect()
}

/// Leads until nothing waits. When it is dropped before (its runtime ended, or it panicked), those who wait are told
/// that nobody knows.
pub(super) struct Leader {
    /// `None`: it has led.
    inner: Option<Arc<StoreInner>>,
    queue: Arc<CommitQueue>,
}

impl Leader {
    /// A leader, if the commit needs one.
    pub fn submit(inner: &Arc<StoreInner>, waiting: PendingCommit) -> Option<Self> {
        let queue = inner.queue.clone();
        let is_led = {
            let mut pending = queue.pending.lock();
            pending.waiting.push_back(waiting);
            std::mem::replace(&mut pending.is_led, true)
        };
        (!is_led).then(|| Self { inner: Some(inner.clone()), queue })
    }

    /// Commits group by group, until nothing waits; blocks on the disk.
    pub fn run(mut self) {
        while let Some(group) = self.next_group() {
            self.inner.as_ref().expect("it leads as long as something waits").commit_group(group);
        }
    }

    /// What waits, oldest first, as much as one group may have. `None`: nothing does, and nobody leads any more.
    fn next_group(&mut self) -> Option<Vec<PendingCommit>> {
        let mut pending = self.queue.pending.lock();
        let mut group = Vec::new();
        let mut n_bytes = 0;
        while let Some(waiting) = pending.waiting.front() {
            n_bytes += waiting.block_metadata.values().flatten().map(|(payload, _)| payload.bytes.len()).sum::<usize>();
            if !group.is_empty() && (group.len() >= MAX_GROUP || n_bytes > MAX_GROUP_BYTES) {
                break;
            }
            group.extend(pending.waiting.pop_front());
        }
        if group.is_empty() {
            // In this order: who waits until nobody leads may open the folder anew.
            self.inner = None;
            pending.is_led = false;
            self.queue.is_idle.notify_all();
            return None;
        }
        Some(group)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if std::thread::panicking() {
            inner.writer.lock().stopped = Some(StopReason::Died);
        }
        drop(inner);
        let mut pending = self.queue.pending.lock();
        pending.is_led = false;
        let waiting = std::mem::take(&mut pending.waiting);
        self.queue.is_idle.notify_all();
        drop(pending);
        drop(waiting);
    }
}

/// A commit that was checked.
struct AcceptedCommit {
    table: TableId,
    info: Arc<CommitInfo>,
    next: Arc<TableVersion>,
    block_metadata: Vec<(u32, BlockMetadataOffsets)>,
    answer: oneshot::Sender<Result<Version>>,
}

/// A table as it will be after the commits of the group so far.
struct PendingTable {
    latest: Arc<TableVersion>,
    ids: HashMap<Uuid, Version>,
}

/// Why nothing was written, or nobody knows.
pub(super) enum CommitFailure {
    Undone(io::Error),
    Unknown(io::Error),
    Stopped,
}

impl CommitFailure {
    /// For each of those who waited.
    pub fn error(&self, writer: &LogWriter) -> Error {
        let (action, path) = ("append to", writer.log.path().to_owned());
        let copy = |source: &io::Error| io::Error::new(source.kind(), source.to_string());
        match self {
            Self::Undone(source) => Error::Io { action, path, source: copy(source) },
            Self::Unknown(source) => {
                Error::Indeterminate { action, place: path.display().to_string(), source: copy(source).into() }
            }
            Self::Stopped => Error::Stopped { path },
        }
    }
}

impl StoreInner {
    fn commit_group(&self, group: Vec<PendingCommit>) {
        let mut writer = self.writer.lock();
        let mut ahead = HashMap::new();
        let (mut entries, mut accepted, mut others) = (Vec::new(), Vec::new(), Vec::new());
        {
            // Only who has the writer changes what is held.
            let held = self.held.read();
            for waiting in group {
                let PendingCommit { table, commit, block_metadata, answer } = waiting;
                match check(&held, &mut ahead, table, commit) {
                    Ok(CommitCheck::New { next, info, block_metadata: lawful }) => {
                        let (entry, block_metadata) =
                            entry(table, &info, block_metadata, &lawful.into_keys().collect::<Vec<_>>());
                        entries.push(entry);
                        accepted.push(AcceptedCommit { table, info, next, block_metadata, answer });
                    }
                    Ok(CommitCheck::Already(version)) => others.push((answer, Ok(version))),
                    Err(error) => others.push((answer, Err(error))),
                }
            }
        }
        let written = if entries.is_empty() { Ok(Vec::new()) } else { self.append(&mut writer, &entries) };
        // Whoever went away does not want the answer.
        match written {
            Ok(offsets) => {
                let answers = self.publish(&writer, accepted, offsets);
                for (answer, result) in answers.into_iter().chain(others) {
                    let _ = answer.send(result);
                }
                self.bound_log(&mut writer);
            }
            Err(failed) => {
                // What came first may not be there now: an answer that rests on it would be wrong.
                for answer in accepted.into_iter().map(|of| of.answer).chain(others.into_iter().map(|(of, _)| of)) {
                    let _ = answer.send(Err(failed.error(&writer)));
                }
            }
        }
    }

    /// Makes visible what is durable.
    fn publish(
        &self,
        writer: &LogWriter,
        accepted: Vec<AcceptedCommit>,
        offsets: Vec<u64>,
    ) -> Vec<(oneshot::Sender<Result<Version>>, Result<Version>)> {
        let mut offsets = offsets.into_iter();
        let mut held = self.held.write();
        let mut answers = Vec::with_capacity(accepted.len());
        for AcceptedCommit { table, info, next, block_metadata, answer } in accepted {
            let version = info.version;
            let brought = block_metadata.into_iter().zip(&mut offsets).map(|((payload_bytes, at), offset)| {
                LoggedMetadata { log: writer.log.file().clone(), offset, payload_bytes, at }
            });
            let change = JournalChange::Record(StateRecord::Commit { table, commit: info, next: Some(next) });
            held.apply(change, brought.collect()).expect("a record that was checked against the state applies to it");
            answers.push((answer, Ok(version)));
        }
        answers
    }

    /// Makes records durable. Answers where their metadata is.
    pub(super) fn append(&self, writer: &mut LogWriter, entries: &[LogEntry]) -> Result<Vec<u64>, CommitFailure> {
        if writer.stopped.is_some() {
            return Err(CommitFailure::Stopped);
        }
        match writer.log.append(entries) {
            Append::Done(offsets) => {
                writer.is_failing = false;
                Ok(offsets)
            }
            Append::Undone(source) => {
                writer.is_failing |= source.kind() != io::ErrorKind::FileTooLarge;
                Err(CommitFailure::Undone(source))
            }
            Append::Unknown(source) => {
                writer.stopped = Some(StopReason::Unsynced);
                Err(CommitFailure::Unknown(source))
            }
        }
    }
}

/// Against the table as the commits before it in the group leave it.
fn check(
    held: &StoreState,
    ahead: &mut HashMap<TableId, PendingTable>,
    id: TableId,
    commit: Commit,
) -> Result<CommitCheck> {
    let table = held.state.table(id)?;
    let before = ahead.get(&id);
    if let Some(version) = before.and_then(|ahead| ahead.ids.get(&commit.id)) {
        return Ok(CommitCheck::Already(*version));
    }
    let latest = before.map_or(table.latest(), |ahead| &ahead.latest);
    let checked = check_commit(&table.standing(latest, held.state.next_file), commit)?;
    if let CommitCheck::New { next, info, .. } = &checked {
        let ahead = ahead.entry(id).or_insert_with(|| PendingTable { latest: next.clone(), ids: HashMap::new() });
        ahead.latest = next.clone();
        if info.kind != CommitKind::Restore {
            ahead.ids.insert(info.id, info.version);
        }
    }
    Ok(checked)
}

/// The record behind the block metadata of these files.
fn entry(
    table: TableId,
    info: &CommitInfo,
    mut block_metadata: BTreeMap<FileId, Vec<(Payload, BlockMetadataOffsets)>>,
    files: &[FileId],
) -> (LogEntry, Vec<(u32, BlockMetadataOffsets)>) {
    let of_files = files.iter().filter_map(|file| block_metadata.remove(file)).flatten();
    let (payloads, places): (Vec<_>, Vec<_>) = of_files
        .map(|(payload, places)| {
            let n_bytes = payload.bytes.len() as u32;
            (payload, (n_bytes, places))
        })
        .unzip();
    let record = Payload::new(encode_commit(table, info));
    (LogEntry { block_metadata: payloads, record }, places)
}
