//! How does raft-rs read a group of this log, and how is a `Ready` written to it?
//!
//! raft-rs only reads through [`raft::Storage`]; its host writes. Here both sides: [`GroupStorage`] answers the reads,
//! and its other methods add to a [`Batch`] what a host must persist, so that the host commits many groups at once:
//!
//! ```text
//! let mut ready = node.ready();
//! storage.persist_ready(&ready, &mut batch)?;      // for each group
//! let ticket = log.submit(batch)?;                 // once
//! ticket.wait()?; node.on_persist_ready(number);   // entries() sees them since submit
//! ```
//!
//! Stored are raft-rs' own bytes: an entry's payload is its protobuf, whose size is what `max_size` counts; the group's
//! state is the protobuf of the hard state; the pair `conf_state` that of the configuration. Snapshots are the host's:
//! a function hands them out.

use std::sync::Arc;

use ::raft::eraftpb::{ConfState, Entry, HardState, Snapshot, SnapshotMetadata};
use ::raft::{Error, GetEntriesContext, RaftState, Ready, Result, Storage, StorageError};
use protobuf::Message;

use crate::{Batch, ErrorKind, GroupId, Index, RaftLog, Term};

const CONF_STATE: &[u8] = b"conf_state";

/// One group of a log as raft-rs' storage. `S` hands out snapshots: `(request_index, to)` as in [`Storage::snapshot`].
pub struct GroupStorage<S> {
    log: Arc<RaftLog>,
    group: GroupId,
    snapshots: S,
}

impl<S> GroupStorage<S>
where
    S: Fn(u64, u64) -> Result<Snapshot>,
{
    /// The group need not exist yet: it is then a storage truncated at 0.
    pub fn new(log: Arc<RaftLog>, group: GroupId, snapshots: S) -> GroupStorage<S> {
        GroupStorage { log, group, snapshots }
    }

    /// All that a `Ready` asks to be durable: its snapshot's position, entries, hard state.
    ///
    /// # Errors
    /// `SnapshotOutOfDate` as [`GroupStorage::apply_snapshot`].
    pub fn persist_ready(&self, ready: &Ready, batch: &mut Batch) -> Result<()> {
        if !ready.snapshot().is_empty() {
            self.apply_snapshot(ready.snapshot().get_metadata(), batch)?;
        }
        self.append(ready.entries(), batch)?;
        if let Some(state) = ready.hs() {
            self.set_hard_state(state, batch)?;
        }
        Ok(())
    }

    /// Entries with ascending indexes; those of the group from the first of them on are replaced.
    ///
    /// # Errors
    /// Only if an entry cannot be encoded. A gap or a purged index is refused when the batch is submitted.
    pub fn append(&self, entries: &[Entry], batch: &mut Batch) -> Result<()> {
        for run in entries.chunk_by(|a, b| a.term == b.term) {
            let encoded = run.iter().map(|entry| Ok(entry.write_to_bytes()?)).collect::<Result<Vec<_>>>()?;
            batch.append(self.group, Term(run[0].term), Index(run[0].index), encoded.iter().map(Vec::as_slice));
        }
        Ok(())
    }

    /// Replaces the hard state.
    ///
    /// # Errors
    /// Only if it cannot be encoded.
    pub fn set_hard_state(&self, state: &HardState, batch: &mut Batch) -> Result<()> {
        batch.state(self.group, &state.write_to_bytes()?);
        Ok(())
    }

    /// Replaces the configuration.
    ///
    /// # Errors
    /// Only if it cannot be encoded.
    pub fn set_conf_state(&self, state: &ConfState, batch: &mut Batch) -> Result<()> {
        batch.put(self.group, CONF_STATE, Some(&state.write_to_bytes()?));
        Ok(())
    }

    /// The log restarts, empty, after an installed snapshot, whose configuration replaces ours; the hard state follows.
    ///
    /// # Errors
    /// `SnapshotOutOfDate` if the log was compacted up to it or further.
    pub fn apply_snapshot(&self, snapshot: &SnapshotMetadata, batch: &mut Batch) -> Result<()> {
        let index = Index(snapshot.index);
        if self.log.first_index(self.group) > index {
            return Err(Error::Store(StorageError::SnapshotOutOfDate));
        }
        batch.truncate_after(self.group, index).purge(self.group, index, Term(snapshot.term));
        let mut state = self.hard_state()?;
        state.term = state.term.max(snapshot.term);
        state.commit = snapshot.index;
        self.set_hard_state(&state, batch)?;
        self.set_conf_state(snapshot.get_conf_state(), batch)
    }

    /// Drops the entries below `index`, which becomes the first. The term before it is kept. Not later than the last
    /// index plus one.
    ///
    /// # Errors
    /// `Unavailable` if `index` is beyond that.
    pub fn compact(&self, index: u64, batch: &mut Batch) -> Result<()> {
        if index > self.first_index()? {
            batch.purge(self.group, Index(index - 1), Term(self.term(index - 1)?));
        }
        Ok(())
    }

    /// The hard state as it was last submitted.
    ///
    /// # Errors
    /// If other bytes than ours are stored there.
    pub fn hard_state(&self) -> Result<HardState> {
        let state = self.log.state(self.group);
        Ok(state.map(|bytes| HardState::parse_from_bytes(&bytes)).transpose()?.unwrap_or_default())
    }

    /// The configuration as it was last submitted.
    ///
    /// # Errors
    /// If other bytes than ours are stored there.
    pub fn conf_state(&self) -> Result<ConfState> {
        let state = self.log.get(self.group, CONF_STATE);
        Ok(state.map(|bytes| ConfState::parse_from_bytes(&bytes)).transpose()?.unwrap_or_default())
    }
}

impl<S> Storage for GroupStorage<S>
where
    S: Fn(u64, u64) -> Result<Snapshot>,
{
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState { hard_state: self.hard_state()?, conf_state: self.conf_state()? })
    }

    /// Read at once, from memory where they are recent, never asynchronously.
    fn entries(&self, low: u64, high: u64, max: impl Into<Option<u64>>, _: GetEntriesContext) -> Result<Vec<Entry>> {
        let last = self.log.last_index(self.group);
        assert!(high <= last.0 + 1, "raft asks for entries up to {high}, the log ends at {last}");
        let max_bytes = max.into().and_then(|max| usize::try_from(max).ok()).unwrap_or(usize::MAX);
        let entries =
            self.log.entries(self.group, Index(low)..Index(high), max_bytes).map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::Store(StorageError::Compacted),
                _ => Error::Store(StorageError::Other(Box::new(error))),
            })?;
        entries.into_iter().map(|entry| Ok(Entry::parse_from_carllerche_bytes(&entry.payload)?)).collect()
    }

    fn term(&self, index: u64) -> Result<u64> {
        if let Some(term) = self.log.term(self.group, Index(index)) {
            return Ok(term.0);
        }
        let first = self.log.first_index(self.group).0;
        match index {
            0 if first == 1 => Ok(0),
            _ if index < first => Err(Error::Store(StorageError::Compacted)),
            _ => Err(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.log.first_index(self.group).0)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.log.last_index(self.group).0)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        (self.snapshots)(request_index, to)
    }
}
