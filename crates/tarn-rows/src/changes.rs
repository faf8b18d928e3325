//! What happened after this cursor? A table's change log over whoever keeps its tablets' entries.

use std::sync::Arc;

use tarn_feed::{Change, ChangeLog};
use tarn_types::{Cursor, Effects, SeqNo, TabletId};

use crate::table::Table;

/// The entries of a tablet's log: implemented by whoever has the log.
pub trait EntrySource: Send + Sync {
    /// Entries after `after`, ascending, without those that carry no effects; about `max_bytes` of them, at least one
    /// if there is one. [`tarn_feed::Error::Trimmed`] when they are gone.
    fn entries(&self, tablet: TabletId, after: SeqNo, max_bytes: usize) -> tarn_feed::Result<Vec<(SeqNo, Effects)>>;

    /// The last committed entry.
    fn head(&self, tablet: TabletId) -> SeqNo;
}

/// The changes of one table.
pub struct TableChanges {
    table: Arc<Table>,
    source: Arc<dyn EntrySource>,
}

impl TableChanges {
    /// Over the table's tablets.
    #[must_use]
    pub fn new(table: Arc<Table>, source: Arc<dyn EntrySource>) -> Self {
        Self { table, source }
    }
}

impl ChangeLog for TableChanges {
    fn head(&self) -> Cursor {
        self.table.tablet_map().ids().map(|tablet| (tablet, self.source.head(tablet))).collect()
    }

    /// Every tablet gets an equal share of `max_bytes`, so that a busy one does not starve the others. A tablet that
    /// was split off waits until its parent's entries before the split are read: so the changes of a key come in order.
    fn read(&self, after: &Cursor, max_bytes: usize) -> tarn_feed::Result<Vec<Change>> {
        let tablets = self.table.tablet_map();
        let share = (max_bytes / tablets.len()).max(1);
        let mut changes = Vec::new();
        for tablet in tablets.ids() {
            let at = match self.table.born(tablet) {
                Some((parent, born)) if after.get(tablet) < born && self.has_before(parent, after, born)? => continue,
                Some((_, born)) => after.get(tablet).max(born),
                None => after.get(tablet),
            };
            if self.source.head(tablet) > at {
                let entries = self.source.entries(tablet, at, share)?;
                changes.extend(entries.into_iter().map(|(seqno, effects)| Change { tablet, seqno, effects }));
            }
        }
        Ok(changes)
    }
}

impl TableChanges {
    /// Are there changes of `tablet` after the cursor and up to `upto`?
    fn has_before(&self, tablet: TabletId, after: &Cursor, upto: SeqNo) -> tarn_feed::Result<bool> {
        let at = after.get(tablet);
        if at >= upto {
            return Ok(false);
        }
        Ok(self.source.entries(tablet, at, 1)?.first().is_some_and(|(seqno, _)| *seqno <= upto))
    }
}
