//! Who holds a key of a parent while he commits? (`foreign.rs`)
//!
//! Held for the time of a commit, never while a client is waited for: behind the gates of its tables, and by everybody
//! in the same order, so that nobody waits for himself. After a crash nobody commits, and none is held.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tarn_types::TableId;

use crate::error::{ErrorKind, Result};

/// Latches that there are: two keys that share one wait for each other, and no more.
const LATCHES: usize = 1_024;

/// See the module.
pub(crate) struct Latches {
    all: Vec<RwLock<()>>,
    /// A commit that held some is in the log, and perhaps not in effect.
    in_doubt: AtomicBool,
}

/// Held until it goes.
pub(crate) enum LatchGuard<'a> {
    Shared { _held: RwLockReadGuard<'a, ()> },
    Alone { _held: RwLockWriteGuard<'a, ()> },
}

impl Default for Latches {
    fn default() -> Self {
        Latches { all: (0..LATCHES).map(|_| RwLock::default()).collect(), in_doubt: AtomicBool::new(false) }
    }
}

impl Latches {
    /// The latch of a key of a table.
    pub(crate) fn place(table: TableId, key: &[u8]) -> usize {
        let mut hasher = DefaultHasher::new();
        (table.0, key).hash(&mut hasher);
        (hasher.finish() % LATCHES as u64) as usize
    }

    /// Waits for latches, and whether each is wanted alone.
    pub(crate) fn hold(&self, wanted: BTreeMap<usize, bool>) -> Vec<LatchGuard<'_>> {
        let held = wanted.into_iter().map(|(place, is_alone)| match is_alone {
            true => LatchGuard::Alone { _held: self.all[place].write() },
            false => LatchGuard::Shared { _held: self.all[place].read() },
        });
        held.collect()
    }

    /// Whether a commit that held some may be in the log and not in effect.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// What a commit came to that held some.
    pub(crate) fn note<T>(&self, done: Result<T>) -> Result<T> {
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate) {
            self.in_doubt.store(true, Ordering::Release);
        }
        done
    }
}
