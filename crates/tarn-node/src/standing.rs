//! What stands where? For those who look: how far tablets are, what the log and the lake hold.

use std::sync::Arc;

use tarn_feed::DeliveryBacklog;
use tarn_metastore::{CommitInfo, MetastoreExt, Stats, TableVersion, VersionSelector};
use tarn_raftlog::SegmentInfo;
use tarn_replica::group_of;
use tarn_types::{SeqNo, TableSchema, TabletId, Version};

use crate::auth::Principal;
use crate::caches::{DropStats, FilesOf, Layer};
use crate::catalog::{CatalogEntry, TableHandle};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::snapshot::OpenTable;
use crate::threads::blocking;

/// How far one tablet is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TabletStanding {
    /// The full name of its table.
    pub table: String,
    /// By its id, which is also that of its group in the log.
    pub tablet: TabletId,
    /// Visible.
    pub applied: SeqNo,
    /// In the row engine's files.
    pub durable: SeqNo,
    /// In the lake.
    pub delivered: SeqNo,
    /// The first entry that the log still has.
    pub log_first: SeqNo,
    /// Payloads of the entries that the log still has.
    pub log_bytes: u64,
}

/// A tablet that keeps the oldest segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBlocker {
    /// `None`: no open table has it.
    pub table: Option<String>,
    /// The log's group.
    pub tablet: u64,
    /// Its oldest entry in the log.
    pub first: SeqNo,
    /// Payloads that it keeps there.
    pub log_bytes: u64,
    /// The segment that cannot go before this tablet's entries do.
    pub oldest_segment: u64,
}

impl TableHandle {
    /// What is not delivered yet.
    pub fn pending(&self) -> DeliveryBacklog {
        self.table.pending()
    }

    fn installed(&self) -> Version {
        self.table.installed().0
    }
}

impl Node {
    /// All tablets of tables that are written here, by table.
    pub fn tablets(&self) -> Vec<TabletStanding> {
        let mut all = Vec::new();
        for handle in self.catalog().all() {
            let (_, delivered) = handle.table.installed();
            let map = handle.table.tablet_map();
            all.extend(map.ids().map(|tablet| TabletStanding {
                table: handle.schema().name.clone(),
                tablet,
                applied: handle.table.applied(tablet),
                durable: handle.table.durable(tablet),
                delivered: delivered.get(tablet),
                log_first: SeqNo(self.parts().log.first_index(group_of(tablet)).0),
                log_bytes: self.parts().log.log_bytes(group_of(tablet)),
            }));
        }
        all
    }

    /// The segments of the log, oldest first.
    pub fn log_segments(&self) -> Vec<SegmentInfo> {
        self.parts().log.segments()
    }

    /// Who keeps the oldest segment, the largest first: whom to ask when the log does not shrink.
    pub fn log_blockers(&self) -> Vec<LogBlocker> {
        let tables = self.catalog().all();
        let blockers = self.parts().log.gc_blockers().into_iter();
        let shown = blockers.map(|blocker| {
            let is_its = |tablet: TabletId| group_of(tablet) == blocker.group;
            let table = tables.iter().find(|handle| handle.table.tablet_map().ids().any(is_its));
            LogBlocker {
                table: table.map(|handle| handle.schema().name.clone()),
                tablet: blocker.group.0,
                first: SeqNo(blocker.first.0),
                log_bytes: blocker.log_bytes,
                oldest_segment: blocker.oldest_segment,
            }
        });
        shown.collect()
    }

    /// All tables by name, and the files that queries read now.
    pub async fn lakes(&self) -> Result<Vec<(Arc<TableSchema>, Arc<TableVersion>)>> {
        let mut lakes = Vec::new();
        for name in self.catalog().names() {
            let Some(opened) = self.tables().open(&name) else { continue };
            lakes.push((Arc::clone(opened.schema()), self.lake_of(&opened).await?));
        }
        Ok(lakes)
    }

    /// The files of a table that queries read now.
    pub async fn lake_of(&self, table: &OpenTable) -> Result<Arc<TableVersion>> {
        let version = match table {
            OpenTable::Table(handle) => handle.installed(),
            OpenTable::External(_, seen) => seen.version(),
        };
        Ok(self.metastore().snapshot(table.schema().id, VersionSelector::Version(version)).await?)
    }

    /// The commits of a table that are still kept, oldest first.
    pub async fn commits(&self, schema: &TableSchema) -> Result<Vec<Arc<CommitInfo>>> {
        let oldest = self.metastore().snapshot(schema.id, VersionSelector::Oldest).await?;
        Ok(self.metastore().commits(schema.id, oldest.version).await?)
    }

    /// What the metastore keeps, and how much that takes.
    pub async fn metastore_stats(&self) -> Result<Stats> {
        Ok(self.metastore().stats().await?)
    }

    /// Empties one layer of the caches, or all of them, of everything or of what belongs to one table; how many entries
    /// went, by layer. Files that are being read meanwhile may come back.
    ///
    /// Errors: `Denied`; `NoTable`, `WrongObject` for a view.
    pub async fn drop_caches(
        &self,
        who: &Principal,
        layer: Option<Layer>,
        table: Option<&str>,
    ) -> Result<Vec<DropStats>> {
        self.may_drop_caches(who)?;
        let of = table.map(|table| self.files_of(table)).transpose()?;
        let caches = Arc::clone(self.caches());
        blocking(move || Ok(caches.drop_layer(layer, of.as_ref()))).await
    }

    /// Where the files of a table are, as caches know them.
    fn files_of(&self, table: &str) -> Result<FilesOf> {
        if let Some(CatalogEntry::External(external)) = self.catalog().entry(table) {
            let (table, store) = (external.schema().id, external.location().to_string());
            return Ok(FilesOf { table, store_id: external.store_id(), store, prefix: None });
        }
        let schema = self.catalog().schema(table)?;
        if schema.is_view() {
            return Err(Error::is_view(table));
        }
        let (prefix, store) = (Some(tarn_lake::table_prefix(&schema)), self.lake_location().to_string());
        Ok(FilesOf { table: schema.id, store_id: tarn_cache::LAKE_STORE, store, prefix })
    }
}
