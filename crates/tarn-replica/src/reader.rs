//! Which changes of a table are in its log? The feed's way back to them.

use std::sync::Arc;

use tarn_raftlog::{Index, RaftLog};
use tarn_rows::{EntrySource, FeedError as Error, FeedResult as Result, Table};
use tarn_types::{Effects, Entry, SeqNo, TabletId};

use crate::error::kind_of;
use crate::replica::group_of;

/// The log of a table's tablets, up to what is agreed and in effect. Recent entries come from memory.
pub struct LogReader {
    log: Arc<RaftLog>,
    table: Arc<Table>,
}

impl LogReader {
    /// Over the table's tablets in this log.
    #[must_use]
    pub fn new(log: Arc<RaftLog>, table: Arc<Table>) -> Self {
        Self { log, table }
    }

    fn trimmed(&self, tablet: TabletId, after: SeqNo) -> Error {
        Error::Trimmed { tablet, after, first: SeqNo(self.log.first_index(group_of(tablet)).0) }
    }
}

impl EntrySource for LogReader {
    fn entries(&self, tablet: TabletId, after: SeqNo, max_bytes: usize) -> Result<Vec<(SeqNo, Effects)>> {
        let head = self.head(tablet);
        let mut at = after.next();
        // Entries without effects are skipped, so one read may yield none though there are more.
        while at <= head {
            let range = Index(at.0)..Index(head.0).next();
            let entries = match self.log.entries(group_of(tablet), range, max_bytes) {
                Ok(entries) => entries,
                Err(tarn_raftlog::Error::Purged { .. }) => return Err(self.trimmed(tablet, after)),
                Err(source) => return Err(Error::source(kind_of(&source), source)),
            };
            at = entries.last().map_or(head.next(), |entry| SeqNo(entry.index.0 + 1));
            let mut changes = Vec::with_capacity(entries.len());
            for entry in entries.into_iter().filter(|entry| !entry.payload.is_empty()) {
                let seqno = SeqNo(entry.index.0);
                let entry = Entry::from_bytes(entry.payload);
                let entry = entry.map_err(|source| Error::source(source.kind(), source))?;
                // A request that changed nothing is in the log for its name alone.
                if let Some(effects) = entry.effects().filter(|effects| !effects.is_empty()) {
                    changes.push((seqno, effects.clone()));
                }
            }
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
        Ok(Vec::new())
    }

    fn head(&self, tablet: TabletId) -> SeqNo {
        self.table.applied(tablet)
    }
}
