//! How is a table made and dropped, so that a failure half-way leaves either a table that works or none?
//!
//! ```text
//! CREATE   ledger: creating ─> metastore ─> ledger: tables ─> opened                          any failure: undone
//! DROP     ledger: dropping ─> metastore ─> ledger: dropped ─> worker ends, rows, log ─┐      a failure before the metastore: as it was
//!                                                     nobody reads it any more ─> files ─> ledger: nothing
//! ```
//!
//! A table works until the metastore has dropped it: its worker runs, its rows can be read and written. From then on it
//! is gone, whoever dies: what the ledger has as dropped is removed, now or at the next start. Readers that began
//! before read to their end: rows are theirs by a snapshot of the engine, files stay until the last of them has ended.

use std::sync::Arc;

use tarn_metastore::{MetastoreExt, is_document};
use tarn_types::{Kind, TableSchema};

use crate::auth::Principal;
use crate::beside::check_name;
use crate::catalog::{Gate, TableHandle};
use crate::dropped::DroppedTable;
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{LedgerContent, LedgerEntry};
use crate::node::Node;
use crate::threads::blocking;

/// A name that is taken in the metastore and by no table here.
pub(crate) fn half_made(error: Error) -> Error {
    if error.kind() != ErrorKind::TableExists {
        return error;
    }
    error.with_hint("an earlier CREATE TABLE or ATTACH stopped half-way: DROP TABLE it, then make it again")
}

impl Node {
    /// Makes a table, which is of who asks. False: it was there already and `if_not_exists` was said.
    ///
    /// Errors: `Denied`, also for a table of another that it refers to.
    pub async fn create_table(&self, who: &Principal, schema: TableSchema, if_not_exists: bool) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        let name = schema.name.clone();
        check_name(&name)?;
        self.may_make(who, &name)?;
        self.schemas().check_there(&name)?;
        if self.catalog().contains(&name) {
            if if_not_exists {
                return Ok(false);
            }
            return Err(Error::new(ErrorKind::TableExists, format!("table \"{name}\" already exists"))
                .with_hint("use CREATE TABLE IF NOT EXISTS, or DROP TABLE it first"));
        }
        self.may_refer(who, None, &schema)?;
        {
            let _kept = self.keep_parents(&schema).await?;
            self.create_with_indexes(schema).await?;
        }
        self.own(who, &name).await?;
        Ok(true)
    }

    /// Makes a table's or view's maker its owner.
    pub(crate) async fn own(&self, who: &Principal, name: &str) -> Result<()> {
        let Some(owner) = who.name() else { return Ok(()) };
        self.users().own(name, owner).await.map_err(|error| {
            let message = format!("table \"{name}\" was made, but not who owns it: {}", error.message());
            Error::new(error.kind(), message).with_hint(format!("a superuser can ALTER TABLE {name} OWNER TO {owner}"))
        })
    }

    /// The caller holds the catalog, and knows that the name is free.
    pub(crate) async fn create_alone(&self, mut schema: TableSchema) -> Result<()> {
        let (name, parts) = (schema.name.clone(), self.parts());
        schema.options.home = Some(parts.ledger.kept().folder);
        let creating = name.clone();
        parts.note(move |kept| kept.creating.push(creating)).await?;
        let schema = match parts.metastore.create_table(schema).await {
            Ok(schema) => schema,
            Err(error) => {
                // It may be made there all the same: then the next start finds it, empty, and takes it in.
                if error.kind() != Kind::Indeterminate {
                    // One of them: an earlier CREATE of that name may still be in doubt. A note too many does no harm.
                    let forget = move |kept: &mut LedgerContent| {
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
                if !handle.schema().options.is_index {
                    self.metrics().tables.inc();
                }
                self.catalog().insert(handle);
                Ok(())
            }
            Err(error) => Err(self.undo_create(&schema, error).await),
        }
    }

    /// Of a table that the metastore has made.
    async fn take_in(&self, schema: &Arc<TableSchema>) -> Result<Arc<TableHandle>> {
        let (entry, id) = (LedgerEntry::of(schema), schema.id);
        self.parts().note(move |kept| kept.add(entry)).await?;
        self.parts().drops.left.lock().retain(|left| left.entry.id != id);
        let opened = self.open_table(Arc::clone(schema)).await?;
        Ok(opened.expect("the log can have lost nothing of a new table"))
    }

    /// Takes back what a CREATE or ATTACH did that could not go on. Answers the error to tell.
    pub(crate) async fn undo_create(&self, schema: &TableSchema, error: Error) -> Error {
        let (name, id) = (&schema.name, schema.id);
        let undone = if schema.options.archive.is_some() {
            self.parts().metastore.drop_table(name).await.map(drop).map_err(Error::from)
        } else {
            self.drop_in_metastore(schema).await
        };
        if let Err(failed) = undone {
            return error
                .with_detail(format!("table \"{name}\" is half made: {}", failed.message()))
                .with_hint(format!("DROP TABLE {name}, then make it again"));
        }
        let forget = move |kept: &mut LedgerContent| {
            kept.finish_drop(id);
            kept.dropped.retain(|entry| entry.id != id);
        };
        if let Err(failed) = self.parts().note(forget).await {
            // It is noted that it was to be dropped: the next start finishes that.
            tracing::warn!(table = %name, "what is left of a table that was not made stays until the next start: {failed}");
        }
        error
    }

    /// Forgets a table, its rows, its log and its files; or a view. False: there was none and `if_exists` was said.
    ///
    /// Errors: `Denied`; `Depended` while a view reads it, or another table refers to it. Before the metastore has
    /// dropped it, the table is as it was. `Indeterminate`: whether it did is not known; the table works, and dropping
    /// it again finds out.
    pub async fn drop_table(&self, who: &Principal, name: &str, if_exists: bool) -> Result<bool> {
        let _one = self.lock_catalog().await;
        self.check_open()?;
        match self.may_own_named(who, name) {
            Err(absent) if if_exists && absent.kind() == ErrorKind::NoTable => return Ok(false),
            asked => asked?,
        }
        self.drop_alone(name, if_exists).await
    }

    /// The caller holds the catalog.
    pub(crate) async fn drop_alone(&self, name: &str, if_exists: bool) -> Result<bool> {
        if let Some(view) = self.catalog().view(name) {
            self.check_unread(&view)?;
            return self.forget_view(&view).await;
        }
        if let Some(external) = self.catalog().external_table(name) {
            self.check_unread(&external.schema())?;
            return self.forget_external_table(&external).await;
        }
        let handle = self.catalog().get(name);
        let schema = match &handle {
            Some(handle) => Arc::clone(handle.schema()),
            None => match self.unserved(name).await? {
                Some(schema) => schema,
                None if if_exists => return Ok(false),
                None => return Err(Error::no_table(name)),
            },
        };
        self.check_unread(&schema)?;
        self.check_unreferenced(&schema)?;
        if !schema.has_rows() {
            self.parts().metastore.drop_table(name).await?;
            return Ok(true);
        }
        self.drop_rows(handle.as_ref(), &schema).await?;
        self.drop_indexes_of(&schema, None).await;
        Ok(true)
    }

    /// A table that has rows, or the entries of an index. The caller holds the catalog. `handle`: unless it is not
    /// served.
    pub(crate) async fn drop_rows(&self, handle: Option<&Arc<TableHandle>>, schema: &Arc<TableSchema>) -> Result<()> {
        let name = &schema.name;
        self.drop_in_metastore(schema).await?;
        fail::fail_point!("drops::dropped");
        // Not cancelled from here on: a connection that goes away must not leave half a drop.
        self.catalog().remove(name);
        if let Some(handle) = handle {
            if !schema.options.is_index {
                self.metrics().tables.dec();
            }
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
        self.parts().drops.left.lock().push(DroppedTable {
            entry: LedgerEntry::of(schema),
            table: handle.map(|handle| Arc::clone(&handle.table)),
            is_purged: false,
            not_before_ms: i64::MIN,
        });
        if let Some(handle) = handle.cloned() {
            blocking(move || {
                *handle.gate.write() = Gate::Dropped;
                Ok(handle.table.drop_data()?)
            })
            .await?;
        }
        fail::fail_point!("drops::emptied");
        // They are in nobody's way: the next table of this name calls its own otherwise.
        if let Err(error) = self.sequences().drop_of_table(name, id).await {
            tracing::warn!(table = %name, %error, "sequences of a table that was dropped are left: DROP SEQUENCE them");
        }
        self.parts().sweep_dropped().await;
        Ok(())
    }

    /// Errors: `Denied`; there is no such table, served or not.
    pub async fn check_droppable(&self, who: &Principal, name: &str) -> Result<()> {
        self.may_own_named(who, name)?;
        if self.catalog().entry(name).is_some() || self.unserved(name).await?.is_some() {
            return Ok(());
        }
        Err(Error::no_table(name))
    }

    /// A table or archive that the metastore has and that is not open here: too damaged, or left half-made.
    async fn unserved(&self, name: &str) -> Result<Option<Arc<TableSchema>>> {
        let tables = self.parts().metastore.tables().await?;
        Ok(tables.into_iter().find(|schema| schema.name == name && !is_document(schema) && !schema.options.is_index))
    }

    async fn drop_in_metastore(&self, schema: &TableSchema) -> Result<()> {
        let parts = self.parts();
        let (entry, id) = (LedgerEntry::of(schema), schema.id);
        parts.note(move |kept| kept.begin_drop(&entry)).await?;
        fail::fail_point!("drops::asked");
        let Err(error) = parts.metastore.drop_table(&schema.name).await else { return Ok(()) };
        match error.kind() {
            // By an earlier DROP whose answer was lost, or by another server.
            Kind::NotFound => Ok(()),
            Kind::Indeterminate => match parts.metastore.tables().await {
                Ok(tables) if tables.iter().all(|table| table.id != id) => Ok(()),
                // It stays noted: if it happens after all, the next start finishes it.
                _ => Err(Error::from(error).with_hint("the table works as before; DROP TABLE again finds out")),
            },
            _ => {
                parts.note(move |kept| kept.end_drop(id)).await?;
                Err(error.into())
            }
        }
    }

    /// Removes what is left of dropped tables that nobody reads any more, as the node does by itself, too: so nobody is
    /// asked who he is.
    pub async fn sweep_dropped(&self) {
        self.parts().sweep_dropped().await;
    }
}
