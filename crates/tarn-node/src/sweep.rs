//! How does what is left of dropped tables go? Rows and logs at once, files when nobody reads them any more, and then
//! the note of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_raftlog::GroupId;
use tarn_rows::Engine;
use tarn_types::TabletId;

use crate::caches::FilesOf;
use crate::dropped::DroppedTable;
use crate::error::{Result, chain};
use crate::ledger::{LedgerContent, LedgerEntry};
use crate::parts::NodeParts;
use crate::threads::blocking;
use crate::together::OrphanedData;

/// Files that could not be deleted are tried again after so long.
const RETRY_MS: i64 = 60_000;

impl NodeParts {
    /// Changes the ledger, off the executor.
    pub(crate) async fn note(&self, change: impl FnOnce(&mut LedgerContent) + Send + 'static) -> Result<()> {
        let ledger = Arc::clone(&self.ledger);
        blocking(move || ledger.change(change)).await
    }

    /// At start: removes rows and log of what the ledger has as dropped, and of tablets that the operator gave up.
    /// Files are left to [`NodeParts::sweep_dropped`]: the lake may be far away.
    pub(crate) fn finish_drops(&self, abandoned: &OrphanedData) -> Result<()> {
        if !abandoned.tablets.is_empty() {
            tarn_rows::remove_tables(&*self.engine, &abandoned.tables)?;
            self.destroy_logs(|tablet| abandoned.tablets.contains(&tablet))?;
        }
        let dropped = self.ledger.kept().dropped;
        for entry in &dropped {
            tracing::info!(table = %entry.name, id = %entry.id, "a drop that was cut short is finished");
        }
        self.purge(&dropped)?;
        let left = dropped.into_iter().map(|entry| DroppedTable {
            entry,
            table: None,
            is_purged: true,
            not_before_ms: i64::MIN,
        });
        self.drops.left.lock().extend(left);
        Ok(())
    }

    /// Removes rows and logs of dropped tables, durably. To do it twice is no error. Cost: one flush of the row engine,
    /// however many.
    fn purge(&self, entries: &[LedgerEntry]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            tarn_rows::remove(&*self.engine, entry.id)?;
        }
        self.engine.flush()?;
        self.destroy_logs(|tablet| entries.iter().any(|entry| entry.has(tablet)))
    }

    fn destroy_logs(&self, is_gone: impl Fn(TabletId) -> bool) -> Result<()> {
        let groups = self.log.groups().into_iter();
        let there: Vec<GroupId> = groups.filter(|group| is_gone(TabletId(group.0 as u32))).collect();
        if there.is_empty() {
            return Ok(());
        }
        let mut batch = self.log.batch();
        for group in there {
            batch.destroy(group);
        }
        Ok(self.log.commit(batch)?)
    }

    /// Removes what is left of dropped tables that nobody reads any more: rows and log if they are still there, files,
    /// and then the note in the ledger. What fails stays, is said in the server's log, and is tried again by a later
    /// call.
    pub async fn sweep_dropped(self: &Arc<Self>) {
        let _one = self.drops.sweeping.lock().await;
        let now_ms = self.clock.now_ms();
        let is_due = |left: &DroppedTable| left.not_before_ms <= now_ms;
        let mut due: Vec<DroppedTable> = self.drops.left.lock().iter().filter(|left| is_due(left)).cloned().collect();
        let entries: Vec<LedgerEntry> =
            due.iter().filter(|left| !left.is_purged).map(|left| left.entry.clone()).collect();
        let parts = Arc::clone(self);
        if let Err(error) = blocking(move || parts.purge(&entries)).await {
            tracing::warn!("rows of dropped tables stay: {error}");
            let unpurged = due.extract_if(.., |left| !left.is_purged);
            unpurged.for_each(|left| self.keep_left(left, now_ms));
        }
        let mut removed = BTreeSet::new();
        for mut left in due {
            left.is_purged = true;
            if left.table.as_ref().is_some_and(|table| table.is_read()) {
                left.not_before_ms = i64::MIN;
                self.put_left(left);
            } else if self.remove_files(&left.entry).await {
                removed.insert(left.entry.id);
                self.put_left(left);
            } else {
                self.keep_left(left, now_ms);
            }
        }
        if removed.is_empty() {
            return;
        }
        let gone = removed.clone();
        // Without the note they are looked for again, in vain.
        if self.note(move |kept| kept.dropped.retain(|entry| !gone.contains(&entry.id))).await.is_ok() {
            self.drops.left.lock().retain(|left| !removed.contains(&left.entry.id));
        }
    }

    fn keep_left(&self, mut left: DroppedTable, now_ms: i64) {
        left.not_before_ms = now_ms.saturating_add(RETRY_MS);
        self.put_left(left);
    }

    fn put_left(&self, left: DroppedTable) {
        if let Some(known) = self.drops.left.lock().iter_mut().find(|known| known.entry.id == left.entry.id) {
            *known = left;
        }
    }

    /// Removes the lake files of a dropped table, and what is kept near of them. False: some could not be deleted.
    async fn remove_files(&self, entry: &LedgerEntry) -> bool {
        let prefix = tarn_lake::table_folder(&entry.name, entry.id);
        let removed = self.lake.remove_folder(&prefix).await;
        if let Err(error) = &removed {
            tracing::warn!(table = %entry.name, lake = %self.lake_location, %prefix, "files of the dropped table stay: {}", chain(error));
        }
        let of = FilesOf { table: entry.id, store_id: 0, store: self.lake_location.to_string(), prefix: Some(prefix) };
        let caches = Arc::clone(&self.caches);
        let dropped = blocking(move || Ok(caches.drop_layer(None, Some(&of)))).await;
        if let Err(error) = dropped {
            tracing::warn!(table = %entry.name, "what is near of the dropped table stays: {error}");
        }
        removed.is_ok()
    }
}
