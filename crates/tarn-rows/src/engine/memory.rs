//! An engine that forgets: ordered maps with versions, for tests and for tables that need not survive.
//!
//! Each key has its values by the number of the write that made them, ascending. A reader at write *n* takes the last
//! one that is not above *n*. Values that no reader can reach are dropped when their key is written again.
//! [`MemoryEngine::crash`] answers with what a flush or an ingest made durable, exactly as an engine on disk would come
//! back.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_types::Direction;

use super::{Engine, EngineSnapshot, EngineStats, RowIter, Space, StagedFile, WriteBatch};
use crate::error::{Error, Result};
use crate::recent_bytes::{RecentBytes, Reservation};

/// Entries that a scan copies per lock.
const READ_AHEAD: usize = 256;

/// What a key takes beside its bytes, in its map and in its list of values: measured over a million short keys.
const KEY_BYTES: usize = 160;

/// What a value takes beside its bytes.
const VALUE_BYTES: usize = 80;

/// See the module.
#[derive(Default)]
pub struct MemoryEngine {
    inner: Arc<Mutex<MemoryInner>>,
}

#[derive(Default)]
struct MemoryInner {
    spaces: [BTreeMap<Bytes, Vec<VersionedValue>>; 3],
    /// The last write.
    now: u64,
    /// The last write that a flush covers.
    flushed: u64,
    /// Writes that readers stand at, with how many.
    readers: BTreeMap<u64, usize>,
    /// About what keys and values take.
    size_bytes: u64,
    /// Invariant: behind each write it is `size_bytes`.
    counted: Option<Reservation>,
}

struct VersionedValue {
    at: u64,
    /// Survives a crash although no flush covers it.
    ingested: bool,
    value: Option<Bytes>,
}

impl MemoryEngine {
    /// An empty engine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty engine whose memory is counted in `total`, beside whatever else is, until it is freed.
    #[must_use]
    pub fn counted_in(total: &Arc<RecentBytes>) -> Self {
        let counted = Some(Reservation::of(total));
        Self { inner: Arc::new(Mutex::new(MemoryInner { counted, ..MemoryInner::default() })) }
    }

    /// What would be there after a crash now: a new engine with what was flushed or ingested. This one goes on
    /// undisturbed.
    #[must_use]
    pub fn crash(&self) -> Self {
        let inner = self.inner.lock();
        let mut survivor = MemoryInner::default();
        for (space, keys) in survivor.spaces.iter_mut().zip(&inner.spaces) {
            for (key, values) in keys {
                let last = values.iter().rev().find(|v| v.ingested || v.at <= inner.flushed);
                if let Some(value) = last.and_then(|v| v.value.clone()) {
                    space.insert(key.clone(), vec![VersionedValue { at: 0, ingested: false, value: Some(value) }]);
                }
            }
        }
        Self { inner: Arc::new(Mutex::new(survivor)) }
    }
}

impl MemoryInner {
    fn get(&self, space: Space, key: &[u8], at: u64) -> Option<Bytes> {
        visible(self.spaces[space as usize].get(key)?, at)
    }

    fn set(&mut self, space: Space, key: &[u8], value: Option<&[u8]>, ingested: bool) {
        let at = self.now;
        // Readers, and a crash, can still ask for what stood at one of these.
        let keep: Vec<u64> = self.readers.keys().copied().chain([self.flushed]).collect();
        let values = self.spaces[space as usize].entry(Bytes::copy_from_slice(key)).or_default();
        let before = if values.is_empty() { 0 } else { size_of_entry(key, values) };
        let mut kept = Vec::with_capacity(values.len() + 1);
        for (i, old) in values.iter().enumerate() {
            let until = values.get(i + 1).map_or(at, |next| next.at);
            if old.ingested || keep.iter().any(|reader| old.at <= *reader && *reader < until) {
                kept.push(i);
            }
        }
        let mut i = 0;
        values.retain(|_| {
            i += 1;
            kept.contains(&(i - 1))
        });
        // Nearly every key has one value: room for four would be most of what it takes.
        values.reserve_exact(1);
        values.push(VersionedValue { at, ingested, value: value.map(Bytes::copy_from_slice) });
        self.size_bytes = (self.size_bytes + size_of_entry(key, values)).saturating_sub(before);
    }

    /// Behind a write.
    fn count(&mut self) {
        if let Some(counted) = &mut self.counted {
            counted.set(self.size_bytes);
        }
    }
}

fn size_of_entry(key: &[u8], values: &[VersionedValue]) -> u64 {
    let values = values.iter().map(|of| of.value.as_ref().map_or(0, Bytes::len) + VALUE_BYTES);
    (key.len() + KEY_BYTES + values.sum::<usize>()) as u64
}

fn visible(values: &[VersionedValue], at: u64) -> Option<Bytes> {
    values.iter().rev().find(|v| v.at <= at)?.value.clone()
}

impl Engine for MemoryEngine {
    fn write(&self, batch: &WriteBatch) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.now += 1;
        for (space, key, value) in batch.iter() {
            inner.set(space, key, value, false);
        }
        inner.count();
        Ok(())
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.inner.lock().get(space, key, u64::MAX))
    }

    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let inner = self.inner.lock();
        Ok(keys.iter().map(|key| inner.get(space, key, u64::MAX)).collect())
    }

    fn snapshot(&self) -> Arc<dyn EngineSnapshot> {
        let mut inner = self.inner.lock();
        let at = inner.now;
        *inner.readers.entry(at).or_default() += 1;
        Arc::new(MemorySnapshot { inner: Arc::clone(&self.inner), at })
    }

    fn stage<'a>(
        &self,
        space: Space,
        entries: &mut dyn Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<StagedFile> {
        let staged: Vec<(Vec<u8>, Option<Vec<u8>>)> =
            entries.map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect();
        if let Some(pair) = staged.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(Error::corrupt("order of staged keys", &pair[1].0, "keys must ascend"));
        }
        Ok(StagedFile { space, n_entries: staged.len() as u64, payload: Box::new(staged) })
    }

    fn ingest(&self, files: Vec<StagedFile>) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.now += 1;
        for file in files {
            let entries = file.payload.downcast::<Vec<(Vec<u8>, Option<Vec<u8>>)>>();
            let entries =
                entries.map_err(|_| Error::Unsupported { engine: "memory", operation: "ingest a foreign file" })?;
            for (key, value) in entries.iter() {
                inner.set(file.space, key, value.as_deref(), true);
            }
        }
        inner.count();
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.flushed = inner.now;
        Ok(())
    }

    fn delete_range(&self, space: Space, range: Range<&[u8]>) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.now += 1;
        let bounds = (Bound::Included(range.start), Bound::Excluded(range.end));
        let keys: Vec<Bytes> =
            inner.spaces[space as usize].range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
        for key in keys {
            inner.set(space, &key, None, false);
        }
        inner.count();
        Ok(())
    }

    fn range_bytes(&self, space: Space, range: Range<&[u8]>) -> Result<u64> {
        let inner = self.inner.lock();
        let within = (Bound::Included(range.start), Bound::Excluded(range.end));
        let keys = inner.spaces[space as usize].range::<[u8], _>(within);
        let sizes = keys.filter_map(|(key, values)| Some((key.len() + visible(values, inner.flushed)?.len()) as u64));
        Ok(sizes.sum())
    }

    fn checkpoint(&self, _dir: &Path) -> Result<()> {
        Err(Error::Unsupported { engine: "memory", operation: "write a checkpoint" })
    }

    fn stats(&self) -> Result<EngineStats> {
        let inner = self.inner.lock();
        let mut stats = EngineStats::default();
        for (i, space) in inner.spaces.iter().enumerate() {
            for (key, values) in space {
                if let Some(value) = visible(values, u64::MAX) {
                    stats.n_keys[i] += 1;
                    stats.memtable_bytes += (key.len() + value.len()) as u64;
                }
            }
        }
        Ok(stats)
    }
}

struct MemorySnapshot {
    inner: Arc<Mutex<MemoryInner>>,
    at: u64,
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        let mut inner = self.inner.lock();
        if let Some(n) = inner.readers.get_mut(&self.at) {
            *n -= 1;
            if *n == 0 {
                inner.readers.remove(&self.at);
            }
        }
    }
}

impl EngineSnapshot for MemorySnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.inner.lock().get(space, key, self.at))
    }

    fn multi_get(&self, space: Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let inner = self.inner.lock();
        Ok(keys.iter().map(|key| inner.get(space, key, self.at)).collect())
    }

    fn scan_in(&self, space: Space, range: Range<Vec<u8>>, direction: Direction) -> Box<dyn RowIter + '_> {
        Box::new(MemoryScan {
            snapshot: self,
            space,
            left: (Bound::Included(range.start), Bound::Excluded(range.end)),
            direction,
            ahead: Vec::new(),
            at: None,
        })
    }
}

/// Copies a few entries per lock, so that a scan that is held open blocks nobody.
struct MemoryScan<'a> {
    snapshot: &'a MemorySnapshot,
    space: Space,
    /// Keys that were not looked at.
    left: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    direction: Direction,
    ahead: Vec<(Bytes, Bytes)>,
    /// Which entry of those it stands on, once it advanced.
    at: Option<usize>,
}

impl MemoryScan<'_> {
    fn fill(&mut self) {
        self.ahead.clear();
        let (Bound::Included(from) | Bound::Excluded(from), Bound::Included(end) | Bound::Excluded(end)) = &self.left
        else {
            return;
        };
        if from >= end {
            return;
        }
        let inner = self.snapshot.inner.lock();
        let bounds = (self.left.0.as_ref().map(Vec::as_slice), self.left.1.as_ref().map(Vec::as_slice));
        let range = inner.spaces[self.space as usize].range::<[u8], _>(bounds);
        let of_now =
            |(key, values): (&Bytes, &Vec<VersionedValue>)| Some((key.clone(), visible(values, self.snapshot.at)?));
        match self.direction {
            Direction::Ascending => self.ahead.extend(range.filter_map(of_now).take(READ_AHEAD)),
            Direction::Descending => self.ahead.extend(range.rev().filter_map(of_now).take(READ_AHEAD)),
        }
        if let Some((last, _)) = self.ahead.last() {
            let seen = Bound::Excluded(last.to_vec());
            match self.direction {
                Direction::Ascending => self.left.0 = seen,
                Direction::Descending => self.left.1 = seen,
            }
        }
    }
}

impl RowIter for MemoryScan<'_> {
    fn advance(&mut self) -> Result<()> {
        let next = self.at.map_or(0, |at| at + 1);
        let is_ahead = next < self.ahead.len();
        if !is_ahead {
            self.fill();
        }
        self.at = Some(if is_ahead { next } else { 0 });
        Ok(())
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.ahead.get(self.at?).map(|(key, value)| (&key[..], &value[..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_takes_is_counted_until_it_is_freed() {
        let total = Arc::<RecentBytes>::default();
        let engine = MemoryEngine::counted_in(&total);
        let mut writes = WriteBatch::default();
        writes.put(Space::Rows, b"key", &[0; 1_000]);
        engine.write(&writes).unwrap();
        let once = total.get();
        assert!((1_000..2_000).contains(&once), "{once}");
        engine.write(&writes).unwrap();
        assert_eq!(total.get(), once, "nobody can read the value before");
        let reader = engine.snapshot();
        engine.write(&writes).unwrap();
        assert!(total.get() > once + 1_000, "{} after {once}", total.get());
        drop(reader);
        engine.write(&writes).unwrap();
        assert_eq!(total.get(), once);
        drop(engine);
        assert_eq!(total.get(), 0);
    }
}
