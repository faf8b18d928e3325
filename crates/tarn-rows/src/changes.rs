//! What happened after this cursor? A table's change log over whoever keeps its tablets' entries.

use std::sync::Arc;

use tarn_feed::{Change, ChangeLog};
use tarn_types::{Cursor, Effects, SeqNo, TableSchema, TabletId};

/// The entries of a tablet's log: implemented by whoever has the log.
pub trait EntrySource: Send + Sync {
    /// Entries after `after`, ascending, without those that carry no effects; about `max_bytes` of them, at least one if there is one.
    /// [`tarn_feed::Error::Trimmed`] when they are gone.
    fn entries(&self, tablet: TabletId, after: SeqNo, max_bytes: usize) -> tarn_feed::Result<Vec<(SeqNo, Effects)>>;

    /// The last committed entry.
    fn head(&self, tablet: TabletId) -> SeqNo;
}

/// The changes of one table.
pub struct Changes {
    schema: Arc<TableSchema>,
    source: Arc<dyn EntrySource>,
}

impl Changes {
    /// Over the table's tablets.
    #[must_use]
    pub fn new(schema: Arc<TableSchema>, source: Arc<dyn EntrySource>) -> Self {
        Self { schema, source }
    }
}

impl ChangeLog for Changes {
    fn head(&self) -> Cursor {
        self.schema.tablets().map(|tablet| (tablet, self.source.head(tablet))).collect()
    }

    /// Every tablet gets an equal share of `max_bytes`, so that a busy one does not starve the others.
    fn read(&self, after: &Cursor, max_bytes: usize) -> tarn_feed::Result<Vec<Change>> {
        let share = (max_bytes / self.schema.options.tablets.max(1) as usize).max(1);
        let mut changes = Vec::new();
        for tablet in self.schema.tablets() {
            let at = after.get(tablet);
            if self.source.head(tablet) > at {
                let entries = self.source.entries(tablet, at, share)?;
                changes.extend(entries.into_iter().map(|(seqno, effects)| Change { tablet, seqno, effects }));
            }
        }
        Ok(changes)
    }
}
