//! The metastore in a folder: one commit log, one checkpoint, packs; all but block metadata in memory.
//!
//! ```text
//! dir/lock                            held while open
//! dir/checkpoint-<seq>.tarn           the state after write <seq>
//! dir/log-<seq>.tarn                  the writes from <seq> on
//! dir/packs/<table>/<hour>-<n>.pack   metadata of many blocks
//! ```
//!
//! Invariants: a record is in the log and synced before its effect is visible or answered; writes are numbered without
//! a gap; only the very end of the log can be torn, and what is cut there was never answered (`log.rs` says how that is
//! known). After a failed sync nothing more is written until maintenance has cut off what was not answered and read
//! back from the disk what was (`StoreInner::mend`). What an older format wrote is written anew when it is opened.

mod commit;
mod inner;
mod journal;
mod maintenance;
mod places;
mod queue;
mod read;
mod recover;
mod store_state;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use tarn_types::{Clock, FileId, TableId, TableSchema, Version};

use self::commit::Leader;
use self::inner::{Limits, LogWriter, StopReason, StoreInner};
use self::journal::JournalChange;
use self::queue::PendingCommit;
use self::read::{OpenPacks, RequestedHour};
pub use self::recover::Recovery;
use crate::error::io_error;
use crate::log::{self, LogEntry, Payload, UnnumberedLog};
use crate::state::StateRecord;
use crate::{
    BlockMetadataRequest, Commit, CommitInfo, Definition, Error, File, HourBlocks, MaintenanceReport, MetadataByColumn,
    Metastore, Probe, ProbeResult, Result, TableVersion, VersionSelector, codec,
};

/// File ids are reserved on disk this many at a time; a restart skips what was reserved and not used.
const RESERVED_FILES: u64 = 1024;

/// Hours are shared out to so many threads, if there are enough blocks for each.
const READERS: usize = 4;
const READER_BLOCKS: usize = 4096;

/// Block metadata of more bytes is encoded on a blocking thread.
const INLINE_BYTES: usize = 256 << 10;

/// The embedded backend. Commits that wait for the disk together share one `fdatasync`, which a blocking thread of the
/// tokio runtime that calls waits for.
pub struct Embedded {
    inner: Arc<StoreInner>,
    clock: Arc<dyn Clock>,
}

impl Embedded {
    /// Opens or makes the metastore in `dir`. Blocks; reads the checkpoint and the log behind it, not the packs.
    ///
    /// # Errors
    /// `Locked` when another process has it open; `Corrupt` names the file and the offset.
    pub fn open(dir: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<(Self, Recovery)> {
        Self::open_with(dir.as_ref(), clock, Limits::default())
    }

    fn open_with(dir: &Path, clock: Arc<dyn Clock>, limits: Limits) -> Result<(Self, Recovery)> {
        fs::create_dir_all(dir).map_err(io_error("create", dir))?;
        let lock = lock(dir)?;
        let recover::RecoveredStore {
            held,
            log,
            older,
            checkpoint_seq,
            checkpoint_bytes,
            format,
            unnamed_packs,
            recovery,
        } = recover::recover(dir)?;
        let next = held.state.next_file.0;
        let inner = StoreInner {
            dir: dir.to_owned(),
            limits,
            held: RwLock::new(held),
            writer: Mutex::new(LogWriter {
                log,
                older,
                checkpoint_seq,
                checkpoint_bytes,
                stopped: None,
                is_failing: false,
            }),
            queue: Arc::default(),
            files: Mutex::new(next..next),
            chores: Mutex::default(),
            unnamed_packs: Mutex::new(unnamed_packs),
            doomed: Mutex::default(),
            open: OpenPacks::new(dir.to_owned()),
            #[cfg(test)]
            stop_at: Mutex::default(),
            _lock: lock,
        };
        if format < codec::FORMAT {
            inner.fold(&mut inner.writer.lock())?;
        }
        Ok((Self { inner: Arc::new(inner), clock }, recovery))
    }

    /// Reads all packs and holds them against their checksums. Answers the bytes read.
    ///
    /// # Errors
    /// `Corrupt` names the first damage.
    pub async fn verify(&self) -> Result<u64> {
        self.blocking(|inner| {
            let packs: Vec<_> = inner.held.read().places.packs().cloned().collect();
            packs.iter().try_fold(0, |n_bytes, file| {
                inner.open.open(file)?.verify()?;
                Ok(n_bytes + file.size_bytes)
            })
        })
        .await
    }

    /// Runs what waits for the disk on a blocking thread. A caller that goes away does not stop it half way.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&StoreInner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone();
        match spawn_blocking(move || work(&inner)).await {
            Ok(result) => result,
            Err(stopped) => Err(self.unknown(stopped)),
        }
    }

    fn unknown(&self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        let place = self.inner.dir.display().to_string();
        Error::Indeterminate { action: "change", place, source: io::Error::other(source).into() }
    }

    /// Runs `read` over all hours, on a few threads if there is enough to do. Answers in the order of the hours.
    async fn shared_out<T: Send + 'static>(
        &self,
        table: TableId,
        hours: Vec<HourBlocks>,
        read: impl Fn(&StoreInner, &[RequestedHour]) -> Result<T> + Clone + Send + 'static,
    ) -> Result<Vec<T>> {
        let asked = self.inner.asked(table, hours)?;
        let n_blocks: usize = asked.iter().map(|of_hour| of_hour.blocks.len()).sum();
        let n_readers = (n_blocks / READER_BLOCKS).clamp(1, READERS);
        let mut readers = Vec::with_capacity(n_readers);
        let mut asked = asked.into_iter().peekable();
        while asked.peek().is_some() {
            let mut share = Vec::new();
            let mut n_taken = 0;
            while n_taken < n_blocks.div_ceil(n_readers)
                && let Some(of_hour) = asked.next()
            {
                n_taken += of_hour.blocks.len().max(1);
                share.push(of_hour);
            }
            let (inner, read) = (self.inner.clone(), read.clone());
            readers.push(spawn_blocking(move || read(&inner, &share)));
        }
        let mut parts = Vec::with_capacity(readers.len());
        for reader in readers {
            let stopped = |source| {
                let path = self.inner.dir.clone();
                Error::Io { action: "read", path, source: io::Error::other::<tokio::task::JoinError>(source) }
            };
            parts.push(reader.await.map_err(stopped)??);
        }
        Ok(parts)
    }
}

/// Waits for commits under way, if there are any: their callers went away. Then the folder can be opened anew.
impl Drop for Embedded {
    fn drop(&mut self) {
        self.inner.queue.wait_until_idle();
    }
}

impl StoreInner {
    /// Makes a change durable, then visible.
    fn write(&self, writer: &mut LogWriter, change: JournalChange) -> Result<()> {
        let entry = LogEntry { block_metadata: Vec::new(), record: Payload::new(journal::encode_change(&change)) };
        self.append(writer, &[entry]).map_err(|failed| failed.error(writer))?;
        let removed = self.held.write().apply(change, Vec::new());
        self.doomed.lock().extend(removed.expect("a record that was checked against the state applies to it"));
        self.bound_log(writer);
        Ok(())
    }

    /// Takes writes again after one that failed, if the disk works.
    fn mend(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        match writer.stopped {
            None if !writer.is_failing => return Ok(()),
            Some(StopReason::Died) => return Err(Error::Stopped { path: writer.log.path().to_owned() }),
            None | Some(StopReason::Unsynced) => {}
        }
        let next = writer.log.last_seq() + 1;
        if writer.log.file().first_seq == next {
            // Nothing is in it, and another empty one may have taken its name.
            writer.log = UnnumberedLog::create(&self.dir, "mend")?.install(next)?;
        } else {
            // It may have been this log's successor that could not be synced.
            let successor = log::path(&self.dir, next);
            match fs::remove_file(&successor) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error("delete", &successor)(e)),
                _ => log::sync_dir(&self.dir)?,
            }
            writer.log.mend()?;
        }
        (writer.stopped, writer.is_failing) = (None, false);
        Ok(())
    }

    fn define(&self, definition: Definition, now_ms: i64) -> Result<Arc<TableSchema>> {
        let mut writer = self.writer.lock();
        let (schema, record) = self.held.read().state.check_definition(definition, now_ms)?;
        record.map_or(Ok(()), |record| self.write(&mut writer, JournalChange::Record(record))).map(|()| schema)
    }

    /// `None`: more must be reserved first.
    fn reserved_files(&self, n: u64) -> Option<FileId> {
        let mut files = self.files.lock();
        (files.end - files.start >= n).then(|| {
            files.start += n;
            FileId(files.start - n)
        })
    }

    fn allocate_files(&self, n: u64) -> Result<FileId> {
        let mut writer = self.writer.lock();
        if let Some(first) = self.reserved_files(n) {
            return Ok(first);
        }
        // While this is written, others may take what is left of the former range; there are `n` more behind it.
        let end = self.files.lock().end + n.max(RESERVED_FILES);
        self.write(&mut writer, JournalChange::Record(StateRecord::Reserve { next_file: FileId(end) }))?;
        let mut files = self.files.lock();
        files.end = end;
        files.start += n;
        Ok(FileId(files.start - n))
    }

    fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        let mut writer = self.writer.lock();
        let Some((gone, record)) = self.held.read().state.check_expire(table, keep)? else { return Ok(Vec::new()) };
        self.write(&mut writer, JournalChange::Record(record)).map(|()| gone)
    }

    /// Where the block metadata of these hours is, as of now.
    fn asked(&self, table: TableId, hours: Vec<HourBlocks>) -> Result<Vec<RequestedHour>> {
        let held = self.held.read();
        held.state.table(table)?;
        let mut first = 0;
        let asked = hours.into_iter().map(|HourBlocks { hour, blocks }| {
            let here = first;
            first += blocks.len() as u32;
            RequestedHour { first: here, of_hour: held.places.hour(table, hour).cloned(), blocks }
        });
        Ok(asked.collect())
    }
}

#[async_trait]
impl Metastore for Embedded {
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
        Ok(self.inner.held.read().state.schemas())
    }

    async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
        let now_ms = self.clock.now_ms();
        self.blocking(move |inner| inner.define(definition, now_ms)).await
    }

    async fn allocate_files(&self, n: u64) -> Result<FileId> {
        match self.inner.reserved_files(n) {
            Some(first) => Ok(first),
            None => self.blocking(move |inner| inner.allocate_files(n)).await,
        }
    }

    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
        let bloom_bytes = |of: &crate::BlockMetadata| of.bloom.as_ref().map_or(0, |bloom| bloom.bits().len());
        let of_blocks = commit.block_metadata.values().flatten();
        let n_bytes: usize = of_blocks.map(|of| bloom_bytes(of) + 64 * of.columns.len()).sum();
        let (commit, block_metadata) = if n_bytes <= INLINE_BYTES {
            let block_metadata = commit::encode_block_metadata(table, &commit);
            (commit, block_metadata)
        } else {
            let encode = move || {
                let block_metadata = commit::encode_block_metadata(table, &commit);
                (commit, block_metadata)
            };
            spawn_blocking(encode).await.map_err(|stopped| self.unknown(stopped))?
        };
        let (answer, answered) = oneshot::channel();
        if let Some(leader) = Leader::submit(&self.inner, PendingCommit { table, commit, block_metadata, answer }) {
            spawn_blocking(move || leader.run());
        }
        answered.await.unwrap_or_else(|gone| Err(self.unknown(gone)))
    }

    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        self.inner.held.read().state.table(table)?.commits_after(after)
    }

    async fn snapshot(&self, table: TableId, at: VersionSelector) -> Result<Arc<TableVersion>> {
        self.inner.held.read().state.table(table)?.snapshot(at)
    }

    async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult> {
        let Probe { hours, clauses } = probe;
        let clauses = Arc::new(clauses);
        let read = move |inner: &StoreInner, asked: &[RequestedHour]| {
            let mut probed = ProbeResult::default();
            asked.iter().try_for_each(|of_hour| inner.open.probe(of_hour, &clauses, &mut probed))?;
            Ok(probed)
        };
        let parts = self.shared_out(table, hours, read).await?;
        Ok(parts.into_iter().fold(ProbeResult::default(), |all, part| ProbeResult {
            kept: all.kept | part.kept,
            without_bloom: all.without_bloom + part.without_bloom,
            bytes_read: all.bytes_read + part.bytes_read,
        }))
    }

    async fn block_metadata(&self, table: TableId, mut wanted: BlockMetadataRequest) -> Result<MetadataByColumn> {
        let hours = std::mem::take(&mut wanted.hours);
        let wanted = Arc::new(wanted);
        let of_part = wanted.clone();
        let parts = self.shared_out(table, hours, move |inner, asked| inner.open.collect(asked, &of_part)).await?;
        Ok(read::finish(parts, &wanted))
    }

    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        self.blocking(move |inner| inner.expire(table, keep)).await
    }

    async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport> {
        self.blocking(move |inner| inner.maintain(budget_bytes)).await
    }
}

/// The lock goes with the process, however it ends.
fn lock(dir: &Path) -> Result<fs::File> {
    let path = dir.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Error::Locked { path }),
        Err(fs::TryLockError::Error(source)) => Err(io_error("lock", &path)(source)),
    }
}

#[cfg(test)]
mod tests;
