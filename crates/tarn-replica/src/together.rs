//! Which entries of several tablets take effect at one moment?
//!
//! They are in the log as one write, so they are durable all or none. Each tablet's queue knows of its own that it is one of several: who comes to it
//! brings the other tablets as far, locks all of them, and applies all ([`apply_together`]). Entries that belong together were submitted while the
//! queues of all their tablets were locked, so of two such sets one is before the other in every tablet that both have: bringing the
//! other tablets as far only ever meets earlier ones.

use std::sync::{Arc, Weak};

use tarn_rows::{TabletEntry, apply_together};
use tarn_types::{Entry, SeqNo};

use crate::error::{Error, Result};
use crate::replica::Replica;

/// Entries of different tablets.
pub(crate) struct Together {
    /// In the order of tablets. A replica whose table was dropped is gone, and with it who would see its entry.
    parts: Vec<(Weak<Replica>, SeqNo)>,
}

impl Together {
    pub(crate) fn new<'a>(parts: impl Iterator<Item = (&'a Arc<Replica>, SeqNo)>) -> Self {
        Self { parts: parts.map(|(replica, seqno)| (Arc::downgrade(replica), seqno)).collect() }
    }

    /// Applies all of them, and what is before them, which is durable when they are. Where applying failed, the next caller goes on.
    pub(crate) fn apply(&self) -> Result<()> {
        let parts: Vec<(Arc<Replica>, SeqNo)> =
            self.parts.iter().filter_map(|(replica, seqno)| Some((replica.upgrade()?, *seqno))).collect();
        for (replica, seqno) in &parts {
            replica.apply_upto(SeqNo(seqno.0.saturating_sub(1)))?;
        }
        let _locked: Vec<_> = parts.iter().map(|(replica, _)| replica.applying.lock()).collect();
        // Somebody else came first: then all are applied.
        if parts.iter().all(|(replica, seqno)| replica.has_applied(*seqno)) {
            return Ok(());
        }
        let mut entries = Vec::with_capacity(parts.len());
        for (replica, seqno) in &parts {
            match replica.first_under_way() {
                Some((first, Entry::Effects(effects))) if first == *seqno => entries.push(effects),
                other => panic!("entry {seqno} of tablet {} is not the next one: {other:?}", replica.tablet()),
            }
        }
        let of_parts = parts.iter().zip(&entries).map(|((replica, seqno), effects)| TabletEntry {
            table: &replica.table,
            tablet: replica.tablet(),
            seqno: *seqno,
            effects,
        });
        let of_parts: Vec<TabletEntry<'_>> = of_parts.collect();
        let (tablet, seqno) = (of_parts[0].tablet, of_parts[0].seqno);
        apply_together(&of_parts).map_err(|source| Error::NotApplied { tablet, seqno, source })?;
        parts.iter().for_each(|(replica, seqno)| replica.is_applied(*seqno));
        Ok(())
    }
}
