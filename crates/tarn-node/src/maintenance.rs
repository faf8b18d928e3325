//! What does the node look after every second? Room, healing, the log, the row engine's memory, the metastore.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarn_rows::Engine as _;

use crate::error::Result;
use crate::parts::NodeParts;
use crate::threads::blocking;

/// What the metastore may write of its packs and checkpoints in one turn.
const METASTORE_BUDGET_BYTES: u64 = 64 << 20;

/// Log bytes that one round of garbage collection may copy.
const GARBAGE_BUDGET_BYTES: u64 = 16 << 20;

/// The row engine is flushed at least this often while there are writes.
const FLUSH_INTERVAL_MS: i64 = 60_000;

impl NodeParts {
    /// Flushes the row engine; all tables take note.
    pub fn flush(&self) -> Result<()> {
        let _one = self.flushing.lock();
        let log_bytes = self.log.metrics().entry_bytes;
        let tables = self.catalog.all();
        let marks: Vec<_> = tables.iter().map(|handle| handle.table.begin_flush()).collect();
        self.engine.flush()?;
        for (handle, mark) in tables.iter().zip(marks) {
            handle.table.end_flush(mark);
        }
        self.flushed_log_bytes.store(log_bytes, Ordering::Release);
        Ok(())
    }

    /// One turn.
    pub(crate) async fn maintain(self: &Arc<Self>, flushed_ms: &mut i64) -> Result<()> {
        let unflushed = self.log.metrics().entry_bytes - self.flushed_log_bytes.load(Ordering::Acquire);
        let now_ms = self.clock.now_ms();
        let due = unflushed > 0 && now_ms.saturating_sub(*flushed_ms) >= FLUSH_INTERVAL_MS;
        let parts = Arc::clone(self);
        let flush = due || unflushed >= self.settings.log_flush_bytes;
        if flush {
            *flushed_ms = now_ms;
        }
        blocking(move || {
            // First: what follows may need the room.
            parts.caches.maintain();
            let healed = parts.heal();
            let flushed = if flush { parts.flush() } else { Ok(()) };
            let collected = parts.log.collect_garbage(GARBAGE_BUDGET_BYTES);
            // Here rather than by the next writer that ends a segment.
            let prepared = parts.log.prepare();
            parts.note_log(prepared.as_ref().map(|_| ()));
            // One part that fails keeps no other from its work.
            healed.and(flushed)?;
            collected?;
            Ok(prepared?)
        })
        .await
        .and(self.maintain_metastore().await)
    }

    async fn maintain_metastore(self: &Arc<Self>) -> Result<()> {
        self.sweep_dropped().await;
        let done = self.metastore.maintain(METASTORE_BUDGET_BYTES).await;
        self.note_metastore(done.as_ref().map(|_| ()));
        Ok(done.map(|_| ())?)
    }
}
