//! Which payloads need no disk?
//!
//! The newest batches, as they lie in the log: a payload is found by its place in a segment, so nothing here knows of
//! groups, and purging or overwriting costs nothing. What is not yet durable is always here (it may be nowhere else):
//! a batch is put in before its groups' locks are let go. What is durable leaves oldest first, when the budget is
//! exceeded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::index::Loc;

/// What the appends of a batch put on disk, in order.
#[derive(Debug, Default)]
pub struct Data {
    parts: Vec<CachedBlock>,
    bytes: u64,
    opened_bytes: u64,
}

#[derive(Debug)]
struct CachedBlock {
    /// Where it starts in the data.
    at: u64,
    disk: Bytes,
    open: Option<UnpackedBlock>,
}

/// What a packed block holds: entries `first ..` of these lengths, back to back, in pieces cut between entries.
#[derive(Debug)]
pub struct UnpackedBlock {
    /// The index of the first.
    pub first: u64,
    /// Their lengths, in index order.
    pub lens: Box<[u32]>,
    /// In index order, several in a piece; no entry is in two.
    pub payloads: Vec<Bytes>,
}

impl UnpackedBlock {
    fn payload(&self, index: u64) -> Option<Bytes> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        let len = *self.lens.get(at)? as usize;
        let mut start = self.lens[..at].iter().map(|&len| len as usize).sum::<usize>();
        for piece in &self.payloads {
            if start + len <= piece.len() {
                return Some(piece.slice(start..start + len));
            }
            start = start.checked_sub(piece.len())?;
        }
        None
    }
}

impl Data {
    /// Adds a part behind the others.
    pub fn push(&mut self, disk: Bytes, open: Option<UnpackedBlock>) {
        let at = self.bytes;
        self.bytes += disk.len() as u64;
        self.opened_bytes += open.as_ref().map_or(0, |open| open.payloads.iter().map(|piece| piece.len() as u64).sum());
        self.parts.push(CachedBlock { at, disk, open });
    }

    /// In the order of the disk.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.parts.iter().map(|part| &part.disk)
    }

    /// The payload of entry `index`, which lies at `at`.
    fn payload(&self, at: u64, index: u64, loc: &Loc) -> Option<Bytes> {
        let part = &self.parts[self.parts.partition_point(|part| part.at <= at).checked_sub(1)?];
        if loc.is_packed() {
            return part.open.as_ref().and_then(|open| open.payload(index));
        }
        let start = (at - part.at) as usize;
        let end = start + loc.len() as usize;
        (end <= part.disk.len()).then(|| part.disk.slice(start..end))
    }
}

/// A batch in the log: its segment, where its data starts there, its lsn.
struct Recent {
    segment: u64,
    offset: u64,
    lsn: u64,
    data: Arc<Data>,
}

impl Recent {
    fn cost(&self) -> u64 {
        self.data.bytes + self.data.opened_bytes + BATCH_BYTES
    }
}

/// What a batch costs beside its bytes.
const BATCH_BYTES: u64 = 128;

/// The newest batches, in the order of the log.
#[derive(Default)]
pub struct Cache {
    recent: RwLock<VecDeque<Recent>>,
    bytes: AtomicU64,
}

impl Cache {
    /// What all of it takes, batches that are not durable yet included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Puts in a batch, which others with higher numbers may have overtaken on their way here.
    pub fn put(&self, segment: u64, offset: u64, lsn: u64, data: Arc<Data>) {
        if data.parts.is_empty() {
            return;
        }
        let new = Recent { segment, offset, lsn, data };
        self.bytes.fetch_add(new.cost(), Ordering::Relaxed);
        let mut recent = self.recent.write();
        let behind = recent.iter().rev().take_while(|other| other.lsn > lsn).count();
        let at = recent.len() - behind;
        recent.insert(at, new);
    }

    /// Drops the oldest that are durable, while there is more than the budget.
    pub fn shrink(&self, budget_bytes: u64, durable_lsn: u64) {
        if self.bytes() <= budget_bytes {
            return;
        }
        let mut gone = Vec::new();
        let mut recent = self.recent.write();
        while self.bytes() > budget_bytes
            && let Some(oldest) = recent.pop_front_if(|oldest| oldest.lsn <= durable_lsn)
        {
            self.bytes.fetch_sub(oldest.cost(), Ordering::Relaxed);
            gone.push(oldest);
        }
        // Payloads are given back to the allocator without the lock.
        drop(recent);
        drop(gone);
    }

    /// Looks at what is there now; nothing comes in or leaves while it is held.
    pub fn read(&self) -> CacheReader<'_> {
        CacheReader { recent: self.recent.read() }
    }
}

/// A look at what is cached.
pub struct CacheReader<'a> {
    recent: RwLockReadGuard<'a, VecDeque<Recent>>,
}

impl CacheReader<'_> {
    /// The payload of entry `index`, which lies at `loc` in `segment`.
    pub fn payload(&self, segment: u64, index: u64, loc: &Loc) -> Option<Bytes> {
        let offset = u64::from(loc.offset);
        let after = self.recent.partition_point(|batch| (batch.segment, batch.offset) <= (segment, offset));
        let batch = &self.recent[after.checked_sub(1)?];
        let at = (batch.segment == segment).then(|| offset - batch.offset)?;
        batch.data.payload(at, index, loc)
    }
}
