//! What does a folder hold that was left at any moment?
//!
//! The newest checkpoint, then every record behind it. Whatever the two do not name was not finished, or is not needed
//! any more; what they name must be there.
//!
//! Invariant: no pack is deleted here. A log that was cut short or exchanged names fewer packs than the right one, and
//! that is seen only when it is held against the rows: the first maintenance deletes what was left over.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::journal;
use super::places::{self, PackFile};
use super::store_state::{LoggedMetadata, StoreState};
use crate::checkpoint;
use crate::error::io_error;
use crate::log::{self, Frame, Log, LogFile, UnnumberedLog};
use crate::wire::Malformed;
use crate::{Error, Result, codec};

/// What opening found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records read from the log, behind the checkpoint.
    pub records: u64,
    /// Bytes of writes that were under way when the process died, and were never answered.
    pub torn_bytes: u64,
}

pub(super) struct RecoveredStore {
    pub held: StoreState,
    pub log: Log,
    /// Logs before it, ascending.
    pub older: Vec<Arc<LogFile>>,
    pub checkpoint_seq: u64,
    pub checkpoint_bytes: u64,
    /// The oldest that is still in use.
    pub format: u8,
    /// Packs that nothing names.
    pub unnamed_packs: Vec<PathBuf>,
    pub recovery: Recovery,
}

pub(super) fn recover(dir: &Path) -> Result<RecoveredStore> {
    let found = log::scan(dir)?;
    let mut recovery = Recovery::default();
    let (mut held, mut seq, mut checkpoint_bytes, mut format) = (StoreState::new(), 0, 0, codec::FORMAT);
    if let Some((path, at)) = &found.checkpoint {
        let checkpoint = checkpoint::read(path, *at)?;
        // Since format 2 the next log is there before the checkpoint is.
        if checkpoint.format >= 2 && found.logs.iter().all(|log| log.first_seq != at + 1) {
            return Err(corrupt(&log::path(dir, at + 1), 0, "the log behind the checkpoint is missing".to_owned()));
        }
        // A log that is not there: what a record behind the checkpoint made of its metadata decides whether it must be.
        let mut logs: BTreeMap<u64, Arc<LogFile>> = found.logs.iter().map(|log| (log.first_seq, log.clone())).collect();
        let mut log = |first_seq| {
            let missing = || Arc::new(LogFile::new(log::path(dir, first_seq), first_seq));
            logs.entry(first_seq).or_insert_with(missing).clone()
        };
        let decoded = journal::decode_state(&checkpoint.payload, checkpoint.format, &mut log);
        let (state, places) = decoded.map_err(|e| corrupt(path, log::HEADER_BYTES, e.0))?;
        held = StoreState { state, places };
        (seq, checkpoint_bytes, format) = (*at, checkpoint.payload.len() as u64, checkpoint.format);
    }
    let contents = log::read(&found.logs, seq, &mut |frame| {
        format = format.min(frame.format);
        recovery.records += 1;
        replay(&mut held, &frame)
    })?;
    held.state.settle();
    format = format.min(contents.format);
    if let Some(torn) = &contents.torn {
        log::cut(torn)?;
        recovery.torn_bytes = torn.size_bytes;
    }
    check_logs(&held, &found.logs)?;
    let unnamed_packs = unnamed_packs(dir, &held)?;
    let mut older = found.logs;
    let log = match older.pop() {
        Some(last) => Log::reopen(last, &contents)?,
        None => UnnumberedLog::create(dir, "open")?.install(1)?,
    };
    Ok(RecoveredStore { held, log, older, checkpoint_seq: seq, checkpoint_bytes, format, unnamed_packs, recovery })
}

/// A record with the block metadata in front of it.
fn replay(held: &mut StoreState, frame: &Frame<'_>) -> Result<()> {
    let path = frame.log.path();
    let at = |offset| move |reason: Malformed| corrupt(path, offset, reason.0);
    let change = journal::decode_change(frame.payload, frame.format).map_err(at(frame.offset))?;
    let mut brought = Vec::with_capacity(frame.block_metadata.len());
    for (offset, payload) in frame.block_metadata {
        let places = codec::locate_block_metadata(payload, frame.format).map_err(at(*offset))?;
        let (log, payload_bytes) = (frame.log.clone(), payload.len() as u32);
        brought.push(LoggedMetadata { log, offset: *offset, payload_bytes, at: places });
    }
    held.apply(change, brought).map_err(|reason| corrupt(path, frame.offset, reason))?;
    Ok(())
}

/// The logs that block metadata is read from are there.
fn check_logs(held: &StoreState, found: &[Arc<LogFile>]) -> Result<()> {
    let found: BTreeSet<u64> = found.iter().map(|log| log.first_seq).collect();
    let loose = held.places.hours().flat_map(|of_hour| of_hour.loose.values());
    match loose.map(|loose| &loose.log).find(|log| !found.contains(&log.first_seq)) {
        Some(log) => Err(corrupt(log.path(), 0, "the log is missing, and details are in it".to_owned())),
        None => Ok(()),
    }
}

/// The packs that nothing names. Misses those that are named.
fn unnamed_packs(dir: &Path, held: &StoreState) -> Result<Vec<PathBuf>> {
    let mut unnamed = Vec::new();
    let mut named: BTreeMap<PathBuf, &PackFile> = held.places.packs().map(|pack| (pack.path(dir), &**pack)).collect();
    let root = dir.join("packs");
    let folders = if root.is_dir() { list(&root)? } else { Vec::new() };
    for folder in folders {
        for path in list(&folder)? {
            let Some(pack) = named.remove(&path) else {
                unnamed.push(path);
                continue;
            };
            let size_bytes = fs::metadata(&path).map_err(io_error("read the size of", &path))?.len();
            if size_bytes != pack.size_bytes {
                let reason = format!("the pack has {size_bytes} bytes, {} were written", pack.size_bytes);
                return Err(corrupt(&path, 0, reason));
            }
        }
    }
    for pack in held.places.packs() {
        let folder = places::folder(dir, pack.table);
        if named.contains_key(&pack.path(dir)) {
            return Err(corrupt(&folder, 0, format!("pack {} of hour {} is missing", pack.number, pack.hour)));
        }
    }
    Ok(unnamed)
}

fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(io_error("list", dir))?;
    entries.map(|entry| Ok(entry.map_err(io_error("list", dir))?.path())).collect()
}

fn corrupt(path: &Path, offset: u64, reason: String) -> Error {
    Error::Corrupt { path: path.to_owned(), offset, reason }
}
