//! Which rows of the lake do recent rows supersede? One list per installed version, extended as far as somebody asks.
//!
//! While a version is installed (its epoch) no address changes, so the address of a changed key can be looked up once
//! for all readers. Keys of a tablet have an order of first change within a epoch: the frozen generations', oldest
//! first, then the active one's. A snapshot that stands at key *n* wants the addresses of the keys before *n*. The list
//! holds (arrival, file, row) ascending by arrival, and the bitmaps of all of it; a snapshot behind the list's end gets
//! a copy of the bitmaps without the rest.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use roaring::RoaringBitmap;
use tarn_types::{Address, FileId, Version};

use crate::engine::{EngineSnapshot, Space};
use crate::error::Result;
use crate::recent::{KeyLog, RowsView, contains};

/// Dead rows by file.
pub(crate) type Bitmaps = BTreeMap<FileId, RoaringBitmap>;

/// Keys that are looked up at a time; then whoever waits for fewer may go on.
const STEP_KEYS: usize = 16 << 10;
/// Keys of one engine call.
const READ_KEYS: usize = 1024;

/// The time of one installed version of a tablet.
pub(crate) struct VersionEpoch {
    pub(crate) version: Version,
    /// The tablet's keys: a generation that a split left to two of them has others, too.
    range: Arc<Range<Vec<u8>>>,
    /// Does the table have any address? A fresh table skips all lookups.
    pub(crate) has_addresses: bool,
    /// Held while addresses are read: whoever waits would read the same.
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Keys before this arrival are resolved.
    upto: usize,
    /// Ascending by arrival; each place once, at the key's first arrival.
    places: Vec<(usize, FileId, u32)>,
    bitmaps: Arc<Bitmaps>,
}

/// The changed keys of a snapshot, in the epoch's order.
#[derive(Clone, Default)]
pub(crate) struct ChangedKeys {
    parts: Vec<(Arc<RwLock<KeyLog>>, usize)>,
}

impl ChangedKeys {
    /// Of generations, oldest first.
    pub(crate) fn of(views: &[RowsView]) -> Self {
        Self { parts: views.iter().map(|view| (Arc::clone(&view.keys), view.n_keys)).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|(_, n)| n).sum()
    }

    /// Copies keys from `from` on, at most `max`.
    fn copy(&self, from: usize, max: usize) -> Vec<(usize, Vec<u8>)> {
        let mut copied = Vec::new();
        let mut first = 0;
        for (keys, n) in &self.parts {
            let keys = keys.read();
            let wanted = from.max(first)..(from + max).min(first + n);
            copied.extend(wanted.map(|arrival| (arrival, keys.get(arrival - first).to_vec())));
            first += n;
        }
        copied
    }
}

impl VersionEpoch {
    pub(crate) fn new(version: Version, range: Arc<Range<Vec<u8>>>, has_addresses: bool) -> Self {
        Self { version, range, has_addresses, list: Mutex::default() }
    }

    /// How many different keys of the tablet generations have; of the only one, those of a tablet that was split off
    /// from it too.
    pub(crate) fn n_keys(&self, views: &[RowsView]) -> u64 {
        if let [only] = views {
            return only.n_keys as u64;
        }
        let keys = ChangedKeys::of(views);
        let mut different: Vec<Vec<u8>> = keys.copy(0, keys.len()).into_iter().map(|(_, key)| key).collect();
        different.retain(|key| contains(&self.range, key));
        different.sort_unstable();
        different.dedup();
        different.len() as u64
    }

    /// The rows of this version's files whose keys are in `keys`. `engine` is a snapshot taken in this epoch.
    pub(crate) fn hidden(&self, keys: &ChangedKeys, engine: &dyn EngineSnapshot) -> Result<Arc<Bitmaps>> {
        if !self.has_addresses {
            return Ok(Arc::default());
        }
        let n = keys.len();
        loop {
            let mut list = self.list.lock();
            if list.upto >= n {
                return Ok(list.before(n));
            }
            let upto = n.min(list.upto + STEP_KEYS);
            let mut copied = keys.copy(list.upto, upto - list.upto);
            copied.retain(|(_, key)| contains(&self.range, key));
            list.extend(upto, copied, engine)?;
            MutexGuard::unlock_fair(list);
        }
    }
}

impl List {
    /// With the keys that arrived before `upto`.
    fn extend(&mut self, upto: usize, mut keys: Vec<(usize, Vec<u8>)>, engine: &dyn EngineSnapshot) -> Result<()> {
        keys.sort_unstable_by(|a, b| a.1.cmp(&b.1));
        let mut found = Vec::new();
        for some in keys.chunks(READ_KEYS) {
            let wanted: Vec<&[u8]> = some.iter().map(|(_, key)| key.as_slice()).collect();
            let addresses = engine.multi_get(Space::Addresses, &wanted)?;
            for ((arrival, _), bytes) in some.iter().zip(addresses) {
                if let Some(bytes) = bytes {
                    found.push((*arrival, Address::decode(&bytes)?));
                }
            }
        }
        found.sort_unstable_by_key(|(arrival, _)| *arrival);
        let bitmaps = Arc::make_mut(&mut self.bitmaps);
        for (arrival, address) in found {
            // A key of the frozen generation that is changed again comes twice.
            if bitmaps.entry(address.file).or_default().insert(address.row) {
                self.places.push((arrival, address.file, address.row));
            }
        }
        self.upto = upto;
        Ok(())
    }

    fn before(&self, n: usize) -> Arc<Bitmaps> {
        let first_beyond = self.places.partition_point(|(arrival, _, _)| *arrival < n);
        let beyond = &self.places[first_beyond..];
        if beyond.is_empty() {
            return Arc::clone(&self.bitmaps);
        }
        let mut bitmaps = Bitmaps::clone(&self.bitmaps);
        for (_, file, row) in beyond {
            if let Some(bitmap) = bitmaps.get_mut(file) {
                bitmap.remove(*row);
            }
        }
        bitmaps.retain(|_, bitmap| !bitmap.is_empty());
        Arc::new(bitmaps)
    }
}
