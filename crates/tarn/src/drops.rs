//! How is a table made and dropped, so that a failure half-way leaves either a table that works or none?
//!
//! ```text
//! CREATE   ledger: creating ─> metastore ─> ledger: tables ─> opened                          any failure: undone
//! DROP     ledger: dropping ─> metastore ─> ledger: dropped ─> worker ends, rows, log ─┐      a failure before the metastore: as it was
//!                                                     nobody reads it any more ─> files ─> ledger: nothing
//! ```
//!
//! A table works until the metastore has dropped it: its worker runs, its rows can be read and written. From then on it is gone, whoever
//! dies: what the ledger has as dropped is removed, now or at the next start. Readers that began before read to their end: rows are
//! theirs by a snapshot of the engine, files stay until the last of them has ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_metastore::{MetastoreExt, is_document};
use tarn_raftlog::GroupId;
use tarn_rows::{Engine, Table};
use tarn_types::{Kind, TableSchema, TabletId};

use crate::caches::FilesOf;
use crate::catalog::TableHandle;
use crate::error::{Result, SqlError, state};
use crate::ledger::{Entry, Kept};
use crate::node::{Node, Parts};
use crate::write::blocking;

/// Files that could not be deleted are tried again after so long.
const RETRY_MS: i64 = 60_000;

/// Dropped tables of which something is left.
#[derive(Default)]
pub struct Drops {
    left: Mutex<Vec<Left>>,
    /// One at a time.
    sweeping: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Left {
    entry: Entry,
    /// It was open when it was dropped: somebody may still read it.
    table: Option<Arc<Table>>,
    /// Rows and log are gone.
    is_purged: bool,
    /// What was in the way the last time, not to be tried again before this time.
    not_before_ms: i64,
}

impl Node {
    /// Makes a table. False: it was there already and `if_not_exists` was said.
    pub async fn create_table(&self, mut schema: TableSchema, if_not_exists: bool) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        let name = schema.name.clone();
        if self.catalog().contains(&name) {
            if if_not_exists {
                return Ok(false);
            }
            return Err(SqlError::new(state::DUPLICATE_TABLE, format!("table \"{name}\" already exists"))
                .with_hint("use CREATE TABLE IF NOT EXISTS, or DROP TABLE it first"));
        }
        let parts = self.parts();
        schema.options.home = Some(parts.ledger.kept().folder);
        let creating = name.clone();
        parts.note(move |kept| kept.creating.push(creating)).await?;
        let schema = match parts.metastore.create_table(schema).await {
            Ok(schema) => schema,
            Err(error) => {
                // It may be made there all the same: then the next start finds it, empty, and takes it in.
                if error.kind() != Kind::Indeterminate {
                    // One of them: an earlier CREATE of that name may still be in doubt. A note too many does no harm.
                    let forget = move |kept: &mut Kept| {
                        let at = kept.creating.iter().position(|other| *other == name);
                        at.map(|at| kept.creating.remove(at));
                    };
                    let _ = parts.note(forget).await;
                }
                return Err(half_made(error.into()));
            }
        };
        fail::fail_point!("drops::made");
        match self.take_in(&schema).await {
            Ok(handle) => {
                self.catalog().insert(handle);
                self.metrics().tables.inc();
                Ok(true)
            }
            Err(error) => Err(self.undo_create(&schema, error).await),
        }
    }

    /// Of a table that the metastore has made.
    async fn take_in(&self, schema: &Arc<TableSchema>) -> Result<Arc<TableHandle>> {
        let (entry, id) = (Entry::of(schema), schema.id);
        self.parts().note(move |kept| kept.add(entry)).await?;
        self.parts().drops.left.lock().retain(|left| left.entry.id != id);
        let opened = self.open_table(Arc::clone(schema)).await?;
        Ok(opened.expect("the log can have lost nothing of a new table"))
    }

    /// Takes back what a CREATE or ATTACH did that could not go on. Answers the error to tell.
    pub(crate) async fn undo_create(&self, schema: &TableSchema, error: SqlError) -> SqlError {
        let (name, id) = (&schema.name, schema.id);
        let undone = if schema.options.archive.is_some() {
            self.parts().metastore.drop_table(name).await.map(drop).map_err(SqlError::from)
        } else {
            self.drop_in_metastore(schema).await
        };
        if let Err(failed) = undone {
            return error
                .with_detail(format!("table \"{name}\" is half made: {}", failed.message()))
                .with_hint(format!("DROP TABLE {name}, then make it again"));
        }
        let forget = move |kept: &mut Kept| {
            kept.finish_drop(id);
            kept.dropped.retain(|entry| entry.id != id);
        };
        if let Err(failed) = self.parts().note(forget).await {
            // It is noted that it was to be dropped: the next start finishes that.
            tracing::warn!(table = %name, "what is left of a table that was not made stays until the next start: {failed}");
        }
        error
    }

    /// Forgets a table, its rows, its log and its files. False: there was none and `if_exists` was said.
    ///
    /// Errors: before the metastore has dropped it, the table is as it was. `40003`: whether it did is not known; the table works, and
    /// dropping it again finds out.
    pub async fn drop_table(&self, name: &str, if_exists: bool) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        if let Some(attachment) = self.catalog().archive(name) {
            return self.forget_archive(&attachment).await;
        }
        let handle = self.catalog().get(name);
        let schema = match &handle {
            Some(handle) => Arc::clone(handle.schema()),
            None => match self.unserved(name).await? {
                Some(schema) => schema,
                None if if_exists => return Ok(false),
                None => return Err(SqlError::undefined_table(name)),
            },
        };
        if schema.options.archive.is_some() {
            self.parts().metastore.drop_table(name).await?;
            return Ok(true);
        }
        self.drop_in_metastore(&schema).await?;
        fail::fail_point!("drops::dropped");
        // Not cancelled from here on: a connection that goes away must not leave half a drop.
        self.catalog().remove(name);
        if let Some(handle) = &handle {
            self.metrics().tables.dec();
            self.metrics().set_delivery_failing(name, false);
            handle.stop.cancel();
            let worker = handle.worker.lock().take();
            if let Some(worker) = worker {
                let _ = worker.await;
            }
        }
        let id = schema.id;
        self.parts().note(move |kept| kept.finish_drop(id)).await?;
        fail::fail_point!("drops::noted");
        self.parts().drops.left.lock().push(Left {
            entry: Entry::of(&schema),
            table: handle.as_ref().map(|handle| Arc::clone(&handle.table)),
            is_purged: false,
            not_before_ms: i64::MIN,
        });
        if let Some(handle) = handle {
            blocking(move || {
                *handle.dropped.write() = true;
                Ok(handle.table.drop_data()?)
            })
            .await?;
        }
        fail::fail_point!("drops::emptied");
        self.parts().sweep_dropped().await;
        Ok(true)
    }

    /// Errors: there is no such table, served or not.
    pub async fn check_droppable(&self, name: &str) -> Result<()> {
        if self.catalog().contains(name) || self.unserved(name).await?.is_some() {
            return Ok(());
        }
        Err(SqlError::undefined_table(name))
    }

    /// A table or archive that the metastore has and that is not open here: too damaged, or left half-made.
    async fn unserved(&self, name: &str) -> Result<Option<Arc<TableSchema>>> {
        let tables = self.parts().metastore.tables().await?;
        Ok(tables.into_iter().find(|schema| schema.name == name && !is_document(schema)))
    }

    async fn drop_in_metastore(&self, schema: &TableSchema) -> Result<()> {
        let parts = self.parts();
        let (entry, id) = (Entry::of(schema), schema.id);
        parts.note(move |kept| kept.begin_drop(&entry)).await?;
        fail::fail_point!("drops::asked");
        let Err(error) = parts.metastore.drop_table(&schema.name).await else { return Ok(()) };
        match error.kind() {
            // By an earlier DROP whose answer was lost, or by another server.
            Kind::NotFound => Ok(()),
            Kind::Indeterminate => match parts.metastore.tables().await {
                Ok(tables) if tables.iter().all(|table| table.id != id) => Ok(()),
                // It stays noted: if it happens after all, the next start finishes it.
                _ => Err(SqlError::from(error).with_hint("the table works as before; DROP TABLE again finds out")),
            },
            _ => {
                parts.note(move |kept| kept.end_drop(id)).await?;
                Err(error.into())
            }
        }
    }

    /// Removes what is left of dropped tables that nobody reads any more.
    pub async fn sweep_dropped(&self) {
        self.parts().sweep_dropped().await;
    }
}

/// A name that is taken in the metastore and by no table here.
pub(crate) fn half_made(error: SqlError) -> SqlError {
    if error.state() != state::DUPLICATE_TABLE {
        return error;
    }
    error.with_hint("an earlier CREATE TABLE or ATTACH stopped half-way: DROP TABLE it, then make it again")
}

impl Parts {
    /// Changes the ledger, off the executor.
    pub(crate) async fn note(&self, change: impl FnOnce(&mut Kept) + Send + 'static) -> Result<()> {
        let ledger = Arc::clone(&self.ledger);
        blocking(move || ledger.change(change)).await
    }

    /// At start: removes rows and log of what the ledger has as dropped, and of tablets that the operator gave up. Files are left to
    /// [`Parts::sweep_dropped`]: the lake may be far away.
    pub(crate) fn finish_drops(&self, abandoned: &BTreeSet<TabletId>) -> Result<()> {
        if !abandoned.is_empty() {
            tarn_rows::remove_tablets(&*self.engine, abandoned)?;
            self.destroy_logs(|tablet| abandoned.contains(&tablet))?;
        }
        let dropped = self.ledger.kept().dropped;
        for entry in &dropped {
            tracing::info!(table = %entry.name, id = %entry.id, "a drop that was cut short is finished");
        }
        self.purge(&dropped)?;
        let left =
            dropped.into_iter().map(|entry| Left { entry, table: None, is_purged: true, not_before_ms: i64::MIN });
        self.drops.left.lock().extend(left);
        Ok(())
    }

    /// Removes rows and logs of dropped tables, durably. To do it twice is no error. Cost: one flush of the row engine, however many.
    fn purge(&self, entries: &[Entry]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            tarn_rows::remove(&*self.engine, entry.id, entry.tablets())?;
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

    /// Removes what is left of dropped tables that nobody reads any more: rows and log if they are still there, files, and then the
    /// note in the ledger. What fails stays, is said in the server's log, and is tried again by a later call.
    pub async fn sweep_dropped(self: &Arc<Self>) {
        let _one = self.drops.sweeping.lock().await;
        let now_ms = self.clock.now_ms();
        let is_due = |left: &Left| left.not_before_ms <= now_ms;
        let mut due: Vec<Left> = self.drops.left.lock().iter().filter(|left| is_due(left)).cloned().collect();
        let entries: Vec<Entry> = due.iter().filter(|left| !left.is_purged).map(|left| left.entry.clone()).collect();
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

    fn keep_left(&self, mut left: Left, now_ms: i64) {
        left.not_before_ms = now_ms.saturating_add(RETRY_MS);
        self.put_left(left);
    }

    fn put_left(&self, left: Left) {
        if let Some(known) = self.drops.left.lock().iter_mut().find(|known| known.entry.id == left.entry.id) {
            *known = left;
        }
    }

    /// Removes the lake files of a dropped table, and what is kept near of them. False: some could not be deleted.
    async fn remove_files(&self, entry: &Entry) -> bool {
        let prefix = tarn_lake::table_folder(&entry.name, entry.id);
        let removed = self.lake.remove_folder(&prefix).await;
        if let Err(error) = &removed {
            tracing::warn!(table = %entry.name, lake = %self.lake_place, %prefix, "files of the dropped table stay: {}", crate::stores::chain(error));
        }
        let of = FilesOf { table: entry.id, store_id: 0, store: self.lake_place.to_string(), prefix: Some(prefix) };
        let caches = Arc::clone(&self.caches);
        let dropped = blocking(move || Ok(caches.drop_layer(None, Some(&of)))).await;
        if let Err(error) = dropped {
            tracing::warn!(table = %entry.name, "what is near of the dropped table stays: {error}");
        }
        removed.is_ok()
    }
}
