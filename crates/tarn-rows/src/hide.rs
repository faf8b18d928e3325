//! Which rows of the lake do recent rows supersede? One list per installed version, extended as far as somebody asks.
//!
//! While a version is installed (its reign) no address changes, so the address of a changed key can be looked up once for all readers. Keys have
//! an order of first change within a reign: the frozen generation's, then the active one's. A snapshot that stands at key *n* wants
//! the addresses of the keys before *n*. The list holds (arrival, file, row) ascending by arrival, and the bitmaps of all of it; a
//! snapshot behind the list's end gets a copy of the bitmaps without the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use roaring::RoaringBitmap;
use tarn_types::{Address, FileId, Version};

use crate::engine::{EngineSnapshot, Space};
use crate::error::Result;
use crate::recent::{KeyLog, RowsView};

/// Dead rows by file.
pub(crate) type Bitmaps = BTreeMap<FileId, RoaringBitmap>;

/// Keys that are looked up at a time; then whoever waits for fewer may go on.
const STEP_KEYS: usize = 16 << 10;
/// Keys of one engine call.
const READ_KEYS: usize = 1024;

/// The time of one installed version.
pub(crate) struct Reign {
    pub(crate) version: Version,
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

/// The changed keys of a snapshot, in the reign's order.
#[derive(Clone, Default)]
pub(crate) struct ChangedKeys {
    parts: Vec<(Arc<RwLock<KeyLog>>, usize)>,
}

impl ChangedKeys {
    pub(crate) fn of(frozen: Option<&RowsView>, active: Option<&RowsView>) -> Self {
        let parts = frozen.into_iter().chain(active).map(|view| (Arc::clone(&view.keys), view.n_keys));
        Self { parts: parts.collect() }
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

impl Reign {
    pub(crate) fn new(version: Version, has_addresses: bool) -> Self {
        Self { version, has_addresses, list: Mutex::default() }
    }

    /// The rows of this version's files whose keys are in `keys`. `engine` is a snapshot taken in this reign.
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
            let copied = keys.copy(list.upto, STEP_KEYS.min(n - list.upto));
            list.extend(copied, engine)?;
            MutexGuard::unlock_fair(list);
        }
    }
}

impl List {
    fn extend(&mut self, mut keys: Vec<(usize, Vec<u8>)>, engine: &dyn EngineSnapshot) -> Result<()> {
        let upto = self.upto + keys.len();
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
