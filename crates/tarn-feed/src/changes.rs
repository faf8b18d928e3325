//! What happened after this cursor? The seam between whoever keeps the log and whoever reads it.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use tarn_types::{Cursor, Effects, SeqNo, TabletId};

use crate::error::{Error, Result};

/// One committed entry of a tablet's log: what one batch came to. Its rows share the seqno; what was refused is in no
/// log.
#[derive(Clone, Debug)]
pub struct Change {
    /// The tablet.
    pub tablet: TabletId,
    /// Its position in the tablet's log.
    pub seqno: SeqNo,
    /// What happened.
    pub effects: Effects,
}

/// The changes of one table.
pub trait ChangeLog: Send + Sync {
    /// The last committed position of every tablet.
    fn head(&self) -> Cursor;

    /// Changes after `after`, ascending and without a gap per tablet; between tablets there is no order. About
    /// `max_bytes` of batches, but at least one change if there is one: an empty answer means that `after` is the head.
    ///
    /// [`Error::Trimmed`] when the log no longer goes back that far.
    fn read(&self, after: &Cursor, max_bytes: usize) -> Result<Vec<Change>>;
}

/// A log in memory, for tests of readers.
#[derive(Default)]
pub struct MemoryLog {
    tablets: RwLock<BTreeMap<TabletId, BTreeMap<SeqNo, Effects>>>,
}

impl MemoryLog {
    /// Commits effects at the tablet's next position.
    pub fn append(&self, tablet: TabletId, effects: Effects) -> SeqNo {
        let mut tablets = self.tablets.write();
        let log = tablets.entry(tablet).or_default();
        let seqno = log.last_key_value().map_or(SeqNo::ZERO, |(last, _)| *last).next();
        log.insert(seqno, effects);
        seqno
    }

    /// Forgets the changes of a tablet up to and including `upto`.
    pub fn trim(&self, tablet: TabletId, upto: SeqNo) {
        if let Some(log) = self.tablets.write().get_mut(&tablet) {
            *log = log.split_off(&upto.next());
        }
    }
}

impl ChangeLog for MemoryLog {
    fn head(&self) -> Cursor {
        let tablets = self.tablets.read();
        tablets.iter().filter_map(|(tablet, log)| log.last_key_value().map(|(seqno, _)| (*tablet, *seqno))).collect()
    }

    fn read(&self, after: &Cursor, max_bytes: usize) -> Result<Vec<Change>> {
        let tablets = self.tablets.read();
        let mut changes = Vec::new();
        let mut n_bytes = 0;
        for (tablet, log) in tablets.iter() {
            let at = after.get(*tablet);
            if let Some((first, _)) = log.first_key_value()
                && *first > at.next()
            {
                return Err(Error::Trimmed { tablet: *tablet, after: at, first: *first });
            }
            for (seqno, effects) in log.range(at.next()..) {
                if n_bytes >= max_bytes && !changes.is_empty() {
                    return Ok(changes);
                }
                n_bytes += effects.size_bytes();
                changes.push(Change { tablet: *tablet, seqno: *seqno, effects: effects.clone() });
            }
        }
        Ok(changes)
    }
}
