//! The metastore in a folder: one commit log, one checkpoint, all of the state in memory.
//!
//! ```text
//! dir/lock                        held while open
//! dir/checkpoint-<seq>.tarn       the state after record <seq>
//! dir/log-<seq>.tarn              the records from <seq> on
//! ```
//!
//! Invariants: a record is in the log and synced before its effect is visible or answered; records are numbered without a
//! gap; only the very end of the log can be torn, and what is cut there was never answered (`log.rs` says how that is
//! known). After a failed sync nothing more is written: what is on the disk is not known then. What an older format wrote is
//! written anew when it is opened.
//!
//! Locks: `writer` orders changes and is held over the sync; `state` is held only to look or to apply, so readers never
//! wait for the disk. `writer` is taken before `state`.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};

use tarn_types::{Clock, FileId, TableId, TableSchema, Version};

use crate::check::Checked;
use crate::log::{self, Append, Log};
use crate::state::{Record, State};
use crate::wire::Malformed;
use crate::{
    At, Commit, CommitInfo, Definition, Details, Error, File, Metastore, Probe, Probed, Result, Stats, TableVersion,
    Upkeep, Wanted, codec, journal,
};

/// File ids are reserved on disk this many at a time; a restart skips what was reserved and not used.
const RESERVED_FILES: u64 = 1024;

/// The log is folded into a checkpoint once it has outgrown the former checkpoint and this many bytes: rewriting then costs
/// no more than appending did.
const MIN_LOG_BYTES: u64 = 4 << 20;

/// Upkeep folds the log from this part of that size on, so that a driven store does not do it while somebody commits.
const UPKEEP_SHARE: u64 = 8;

/// The embedded backend. Changes cost one `fdatasync` each, on a blocking thread of the tokio runtime that calls.
pub struct Embedded {
    inner: Arc<Inner>,
    clock: Arc<dyn Clock>,
}

/// What opening found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records read from the log, behind the checkpoint.
    pub records: u64,
    /// Bytes of one record that was being written when the process died, and was never answered.
    pub torn_bytes: u64,
}

struct Inner {
    dir: PathBuf,
    min_log_bytes: u64,
    state: RwLock<State>,
    writer: Mutex<Writer>,
    /// Held for its lock.
    _lock: fs::File,
}

struct Writer {
    log: Log,
    checkpoint_bytes: u64,
    /// The first id that is reserved on disk and not given out, and the first that is not reserved.
    files: std::ops::Range<u64>,
    stopped: bool,
}

impl Embedded {
    /// Opens or makes the metastore in `dir`. Blocks; reads everything.
    ///
    /// # Errors
    /// `Locked` when another process has it open; `Corrupt` names the file and the offset.
    pub fn open(dir: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<(Self, Recovery)> {
        Self::open_with(dir.as_ref(), clock, MIN_LOG_BYTES)
    }

    pub(crate) fn open_with(dir: &Path, clock: Arc<dyn Clock>, min_log_bytes: u64) -> Result<(Self, Recovery)> {
        fs::create_dir_all(dir).map_err(io_error("create", dir))?;
        let lock = lock(dir)?;
        let Recovered { state, log, checkpoint_bytes, format, recovery } = recover(dir)?;
        let next = state.next_file.0;
        let writer = Writer { log, checkpoint_bytes, files: next..next, stopped: false };
        let (state, writer) = (RwLock::new(state), Mutex::new(writer));
        let inner = Inner { dir: dir.to_owned(), min_log_bytes, state, writer, _lock: lock };
        if format < codec::FORMAT {
            inner.checkpoint(&mut inner.writer.lock())?;
        }
        Ok((Self { inner: Arc::new(inner), clock }, recovery))
    }

    /// Runs a change on a blocking thread: it waits for the disk. A caller that goes away does not stop it half way.
    async fn change<T: Send + 'static>(&self, change: impl FnOnce(&Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = self.inner.clone();
        match tokio::task::spawn_blocking(move || change(&inner)).await {
            Ok(result) => result,
            Err(stopped) => Err(Error::Indeterminate {
                action: "change",
                path: self.inner.dir.clone(),
                source: io::Error::other(stopped),
            }),
        }
    }
}

impl Inner {
    /// Makes the record durable, then visible.
    fn write(&self, writer: &mut Writer, record: Record) -> Result<()> {
        if writer.stopped {
            return Err(Error::Stopped { path: writer.log.path().to_owned() });
        }
        match writer.log.append(&Self::encode_details(&record), &journal::encode_record(&record)) {
            Append::Done => {}
            Append::Undone(source) => return Err(io_error("append to", writer.log.path())(source)),
            Append::Unknown(source) => {
                writer.stopped = true;
                return Err(Error::Indeterminate { action: "append to", path: writer.log.path().to_owned(), source });
            }
        }
        self.state.write().apply(record).expect("a record that was checked against the state applies to it");
        if writer.log.size_bytes() > self.due_bytes(writer) {
            // The change is durable whether this works or not; if not, the log grows on and the next change tries again.
            let _ = self.checkpoint(writer);
        }
        Ok(())
    }

    /// The size from which on the log is folded.
    fn due_bytes(&self, writer: &Writer) -> u64 {
        self.min_log_bytes.max(writer.checkpoint_bytes)
    }

    /// One payload for each block of a commit that has details.
    fn encode_details(record: &Record) -> Vec<Vec<u8>> {
        let Record::Commit { table, commit, details, .. } = record else { return Vec::new() };
        let mut payloads = Vec::new();
        for file in &commit.added {
            let blocks = details.get(&file.id).into_iter().flatten();
            payloads.extend(blocks.map(|of_block| codec::encode_details(*table, file.hour, file.id, of_block)));
        }
        payloads
    }

    /// Folds the log into a checkpoint. Each step leaves a folder that opens to the same state: first the checkpoint is there
    /// beside the old log, then a new log behind both, then the old ones are deleted.
    fn checkpoint(&self, writer: &mut Writer) -> Result<()> {
        let seq = writer.log.last_seq();
        writer.checkpoint_bytes = log::write_checkpoint(&self.dir, seq, &journal::encode_state(&self.state.read()))?;
        writer.log = Log::create(&self.dir, seq + 1)?;
        log::remove_before(&self.dir, seq, writer.log.path())
    }

    fn allocate_files(&self, n: u64) -> Result<FileId> {
        let mut writer = self.writer.lock();
        if writer.files.end - writer.files.start < n {
            let end = writer.files.start + n.max(RESERVED_FILES);
            self.write(&mut writer, Record::Reserve { next_file: FileId(end) })?;
            writer.files.end = end;
        }
        let first = writer.files.start;
        writer.files.start += n;
        Ok(FileId(first))
    }

    fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
        let mut writer = self.writer.lock();
        let checked = self.state.read().check_commit(table, commit)?;
        match checked {
            Checked::Already(version) => Ok(version),
            Checked::New { next, info, details } => {
                let version = info.version;
                let record = Record::Commit { table, commit: info, details, next: Some(next) };
                self.write(&mut writer, record).map(|()| version)
            }
        }
    }

    fn upkeep(&self, budget_bytes: u64) -> Result<Upkeep> {
        let mut writer = self.writer.lock();
        let mut done = Upkeep::default();
        let is_due = writer.log.size_bytes() > self.due_bytes(&writer) / UPKEEP_SHARE;
        if budget_bytes > 0 && is_due && !writer.stopped {
            self.checkpoint(&mut writer)?;
            done.bytes_written = writer.checkpoint_bytes;
        }
        let stats = self.state.read().stats();
        done.stats = Stats { log_bytes: writer.log.size_bytes(), checkpoint_bytes: writer.checkpoint_bytes, ..stats };
        Ok(done)
    }
}

#[async_trait]
impl Metastore for Embedded {
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
        Ok(self.inner.state.read().schemas())
    }

    async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
        let now_ms = self.clock.now_ms();
        self.change(move |inner| {
            let mut writer = inner.writer.lock();
            let (schema, record) = inner.state.read().check_definition(definition, now_ms)?;
            record.map_or(Ok(()), |record| inner.write(&mut writer, record)).map(|()| schema)
        })
        .await
    }

    async fn allocate_files(&self, n: u64) -> Result<FileId> {
        self.change(move |inner| inner.allocate_files(n)).await
    }

    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
        self.change(move |inner| inner.commit(table, commit)).await
    }

    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
        self.inner.state.read().table(table)?.commits_after(after)
    }

    async fn snapshot(&self, table: TableId, at: At) -> Result<Arc<TableVersion>> {
        self.inner.state.read().table(table)?.snapshot(at)
    }

    async fn probe(&self, table: TableId, probe: Probe) -> Result<Probed> {
        self.change(move |inner| Ok(inner.state.read().table(table)?.probe(&probe))).await
    }

    async fn details(&self, table: TableId, wanted: Wanted) -> Result<Details> {
        self.change(move |inner| Ok(inner.state.read().table(table)?.details(&wanted))).await
    }

    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        self.change(move |inner| {
            let mut writer = inner.writer.lock();
            let Some((gone, record)) = inner.state.read().check_expire(table, keep)? else { return Ok(Vec::new()) };
            inner.write(&mut writer, record).map(|()| gone)
        })
        .await
    }

    async fn upkeep(&self, budget_bytes: u64) -> Result<Upkeep> {
        self.change(move |inner| inner.upkeep(budget_bytes)).await
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

struct Recovered {
    state: State,
    log: Log,
    checkpoint_bytes: u64,
    /// The oldest that is still in use.
    format: u8,
    recovery: Recovery,
}

/// The newest checkpoint and every record behind it.
fn recover(dir: &Path) -> Result<Recovered> {
    let found = log::scan(dir)?;
    let mut recovery = Recovery::default();
    let (mut state, mut seq, mut checkpoint_bytes, mut format) = (State::new(), 0, 0, codec::FORMAT);
    if let Some((path, at)) = &found.checkpoint {
        let checkpoint = log::read_checkpoint(path, *at)?;
        let decoded = journal::decode_state(&checkpoint.payload, checkpoint.format);
        state = decoded.map_err(|e| corrupt(path, log::HEADER_BYTES, e.0))?;
        (seq, checkpoint_bytes, format) = (*at, checkpoint.payload.len() as u64, checkpoint.format);
    }
    let read = log::read(&found.logs, seq)?;
    format = format.min(read.format);
    for frame in read.frames {
        let record = read_record(&frame)?;
        state.apply(record).map_err(|reason| corrupt(&frame.path, frame.offset, reason))?;
        recovery.records += 1;
    }
    if let Some(torn) = &read.torn {
        log::cut(torn)?;
        recovery.torn_bytes = torn.size_bytes;
    }
    let log = match found.logs.last() {
        Some((path, _)) => Log::reopen(path, read.last_seq, read.end)?,
        None => Log::create(dir, 1)?,
    };
    Ok(Recovered { state, log, checkpoint_bytes, format, recovery })
}

/// A record with the details in front of it.
fn read_record(frame: &log::Frame) -> Result<Record> {
    let at = |offset| move |reason: Malformed| corrupt(&frame.path, offset, reason.0);
    let mut record = journal::decode_record(&frame.payload, frame.format).map_err(at(frame.offset))?;
    for (offset, payload) in &frame.details {
        let of_block = codec::decode_details(payload, frame.format).map_err(at(*offset))?;
        match &mut record {
            Record::Commit { table, commit, details, .. }
                if *table == of_block.table
                    && commit.added.iter().any(|file| (file.id, file.hour) == (of_block.file, of_block.hour)) =>
            {
                details.entry(of_block.file).or_default().push(of_block.details);
            }
            _ => {
                return Err(corrupt(
                    &frame.path,
                    *offset,
                    "details of a block that the record behind them does not add".to_owned(),
                ));
            }
        }
    }
    Ok(record)
}

fn corrupt(path: &Path, offset: u64, reason: String) -> Error {
    Error::Corrupt { path: path.to_owned(), offset, reason }
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use tarn_types::ManualClock;

    use super::*;
    use crate::contract::{self, Script};
    use crate::{Error, MetastoreExt};

    /// In memory where there is such a place: these tests open thousands of folders, and every opening syncs.
    fn scratch() -> io::Result<TempDir> {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
    }

    fn open(dir: &Path) -> Result<(Embedded, Recovery)> {
        Embedded::open_with(dir, Arc::new(ManualClock::new(1_000)), MIN_LOG_BYTES)
    }

    contract::suite!(|| {
        let dir = scratch().unwrap();
        let metastore = open(dir.path()).unwrap().0;
        (metastore, dir)
    });

    /// Checkpoints after almost every change.
    mod with_checkpoints {
        use super::*;

        contract::suite!(|| {
            let dir = scratch().unwrap();
            let metastore = Embedded::open_with(dir.path(), Arc::new(ManualClock::new(1_000)), 300).unwrap().0;
            (metastore, dir)
        });
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    /// A folder after each step of a script, and what the metastore held then.
    fn run_script(min_log_bytes: u64) -> (TempDir, Vec<String>, Vec<u64>) {
        let dir = scratch().unwrap();
        let clock = Arc::new(ManualClock::new(1_000));
        let (metastore, _) = Embedded::open_with(dir.path(), clock, min_log_bytes).unwrap();
        let mut held = vec![runtime().block_on(contract::describe(&metastore))];
        let mut ends = vec![HEADER];
        for step in Script::steps() {
            runtime().block_on(step.run(&metastore));
            held.push(runtime().block_on(contract::describe(&metastore)));
            ends.push(metastore.inner.writer.lock().log.size_bytes() + HEADER);
        }
        (dir, held, ends)
    }

    const HEADER: u64 = log::HEADER_BYTES;

    fn copy(dir: &Path) -> TempDir {
        let copy = scratch().unwrap();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
        copy
    }

    fn only_log(dir: &Path) -> PathBuf {
        log::scan(dir).unwrap().logs.pop().unwrap().0
    }

    #[test]
    fn everything_is_there_after_reopening_with_and_without_checkpoints() {
        for min_log_bytes in [0, 200, 700, MIN_LOG_BYTES] {
            let (dir, held, _) = run_script(min_log_bytes);
            let (metastore, recovery) = open(dir.path()).unwrap();
            assert_eq!(&runtime().block_on(contract::describe(&metastore)), held.last().unwrap());
            assert_eq!(recovery.torn_bytes, 0);
            let logs = log::scan(dir.path()).unwrap().logs.len();
            assert_eq!(logs, 1, "old logs are gone");
        }
    }

    #[test]
    fn a_log_cut_at_any_byte_opens_to_what_was_answered_before() {
        let (dir, held, ends) = run_script(MIN_LOG_BYTES);
        let name = only_log(dir.path()).file_name().unwrap().to_owned();
        let whole = fs::read(only_log(dir.path())).unwrap();
        let seal = 17;
        for len in 0..=whole.len() {
            let copied = scratch().unwrap();
            fs::write(copied.path().join(&name), &whole[..len]).unwrap();
            // A step is in once its record is whole, whether or not its seal is.
            let steps = ends.iter().rposition(|end| *end == HEADER || *end - seal <= len as u64).unwrap_or(0);
            let (metastore, _) = open(copied.path()).unwrap();
            assert_eq!(runtime().block_on(contract::describe(&metastore)), held[steps], "cut at byte {len}");
            if len % 16 != 0 {
                continue;
            }
            // It goes on from there: what is written next is there after another start.
            runtime().block_on(metastore.create_table(contract::sample_schema("later"))).unwrap();
            let now = runtime().block_on(contract::describe(&metastore));
            drop(metastore);
            assert_eq!(runtime().block_on(contract::describe(&open(copied.path()).unwrap().0)), now);
        }
    }

    #[test]
    fn a_flipped_byte_anywhere_is_detected_or_harmless() {
        for min_log_bytes in [700, MIN_LOG_BYTES] {
            let (dir, held, _) = run_script(min_log_bytes);
            let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            for name in names.iter().filter(|name| name.to_string_lossy().ends_with(".tarn")) {
                let whole = fs::read(dir.path().join(name)).unwrap();
                for at in 0..whole.len() {
                    let copied = copy(dir.path());
                    let mut bytes = whole.clone();
                    bytes[at] ^= 0x20;
                    fs::write(copied.path().join(name), &bytes).unwrap();
                    match open(copied.path()) {
                        Err(Error::Corrupt { path, offset, .. }) => {
                            assert_eq!(path, copied.path().join(name));
                            assert!(offset <= at as u64, "byte {at}, reported at {offset}");
                        }
                        Err(error) => panic!("byte {at}: {error}"),
                        // A seal says nothing that is not known without it.
                        Ok((metastore, _)) => {
                            let now = runtime().block_on(contract::describe(&metastore));
                            assert_eq!(&now, held.last().unwrap(), "byte {at} of {name:?} changed the answer unseen");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_missing_file_is_detected() {
        let (dir, ..) = run_script(700);
        for entry in fs::read_dir(dir.path()).unwrap() {
            let name = entry.unwrap().file_name();
            if name.to_string_lossy().ends_with(".tarn") {
                let copied = copy(dir.path());
                fs::remove_file(copied.path().join(&name)).unwrap();
                let error = open(copied.path()).map(|_| ()).unwrap_err();
                assert!(matches!(error, Error::Corrupt { .. }), "without {name:?}: {error}");
            }
        }
    }

    #[test]
    fn a_seal_that_was_lost_with_the_power_is_no_corruption() {
        let (dir, held, ends) = run_script(MIN_LOG_BYTES);
        let path = only_log(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        for end in &ends[1..] {
            bytes[*end as usize - 17..*end as usize].fill(0);
        }
        fs::write(&path, bytes).unwrap();
        assert_eq!(&runtime().block_on(contract::describe(&open(dir.path()).unwrap().0)), held.last().unwrap());
    }

    #[test]
    fn a_write_whose_pages_came_in_another_order_is_torn_unless_it_was_answered() {
        let (dir, held, ends) = run_script(MIN_LOG_BYTES);
        let whole = fs::read(only_log(dir.path())).unwrap();
        let name = only_log(dir.path()).file_name().unwrap().to_owned();
        let seal = 17;
        // The first frame of a write that has another valid one behind it is lost.
        let writes = ends.windows(2).map(|pair| (pair[0] as usize, pair[1] as usize)).zip(&held);
        let with_details = writes.filter(|((start, end), _)| start < end && whole[start + 16] == 4);
        let mut n_writes = 0;
        for ((start, end), before) in with_details {
            n_writes += 1;
            let opened = |end: usize| {
                let copied = scratch().unwrap();
                let mut bytes = whole[..end].to_vec();
                bytes[start..start + 30].fill(0);
                fs::write(copied.path().join(&name), bytes).unwrap();
                open(copied.path()).map(|(metastore, _)| runtime().block_on(contract::describe(&metastore)))
            };
            assert_eq!(&opened(end - seal).unwrap(), before, "never answered");
            let error = opened(end).unwrap_err();
            assert!(matches!(error, Error::Corrupt { offset, .. } if offset == start as u64), "{error}");
        }
        assert_eq!(n_writes, 3);
    }

    #[test]
    fn a_checkpoint_that_was_not_finished_is_ignored() {
        let (dir, held, _) = run_script(700);
        fs::write(dir.path().join("checkpoint-00000000000000000099.tmp"), b"half").unwrap();
        assert_eq!(&runtime().block_on(contract::describe(&open(dir.path()).unwrap().0)), held.last().unwrap());
    }

    #[test]
    fn a_newer_format_is_named() {
        let (dir, ..) = run_script(MIN_LOG_BYTES);
        let path = only_log(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = codec::FORMAT + 1;
        let crc = crc32c::crc32c(&bytes[..12]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        let error = open(dir.path()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("format version 3"), "{error}");
    }

    #[test]
    fn a_second_process_is_refused() {
        let dir = scratch().unwrap();
        let first = open(dir.path()).unwrap();
        assert!(matches!(open(dir.path()), Err(Error::Locked { .. })));
        drop(first);
        assert!(open(dir.path()).is_ok());
    }

    #[test]
    fn file_ids_are_never_given_out_twice() {
        let dir = scratch().unwrap();
        let mut next = FileId(0);
        for n in [1, 5, 2_000, 1] {
            let (metastore, _) = open(dir.path()).unwrap();
            let first = runtime().block_on(metastore.allocate_files(n)).unwrap();
            assert!(first > next, "{first} after {next}");
            next = FileId(first.0 + n - 1);
        }
    }
}
