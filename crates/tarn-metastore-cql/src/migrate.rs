//! How does a store move to this build's tables while others read and write it?
//!
//! Step by step (`layout.rs`), each decided by one conditional write of the catalog and then fenced table by table,
//! each lawful to stop in and to do again. Version 1 keeps every chunk of a filter as a row of its own; version 2 as
//! rows of up to eight chunks. The partition key changes, so no `ALTER` does it.

use std::collections::BTreeMap;

use tokio::runtime::Handle;

use tarn_metastore::{BlockRef, Error, Remote, Result};
use tarn_types::TableId;

use crate::layout::{Layout, NEWEST, Phase};
use crate::session::Cas;
use crate::tables::{self, CATALOG};
use crate::wire::BlockMeta;
use crate::{Cql, CqlInner};

/// Filters that are copied together: 16 MiB at 8,192 chunks.
const TOGETHER: usize = 64;

/// How often others may come first.
const LOSSES: usize = 1_000;

/// How a store's tables are laid out. Versions only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SchemaVersion(pub u32);

impl Cql {
    /// Brings the tables to this build's version; others may read and write meanwhile, except that builds which do not
    /// know the new version cannot write any more once it has begun. Answers the version. `report` is told each step.
    /// To be called again if it stops: it goes on where it was.
    pub async fn migrate(remote: &Remote, runtime: &Handle, report: &(dyn Fn(&str) + Sync)) -> Result<SchemaVersion> {
        let inner = CqlInner::open_on(remote, runtime, NEWEST, NEWEST).await?;
        inner.migrate(report, None).await?;
        Ok(SchemaVersion(inner.cache.read().catalog.layout.schema))
    }
}

impl CqlInner {
    /// Until all is done, or `stop_after` is.
    pub(crate) async fn migrate(&self, report: &(dyn Fn(&str) + Sync), stop_after: Option<Phase>) -> Result<()> {
        loop {
            self.refresh_catalog().await?;
            let layout = self.cache.read().catalog.layout;
            if layout.schema >= NEWEST && layout.phase == Phase::None {
                // Who stopped between the last step and this left heads behind.
                self.fence_writers(layout.epoch).await?;
                return Ok(());
            }
            self.fence_writers(layout.epoch).await?;
            self.work(layout, report).await?;
            if stop_after == Some(layout.phase) {
                return Ok(());
            }
            self.step(layout).await?;
            let now = self.cache.read().catalog.layout;
            report(&format!("schema version {}, step {:?}, epoch {}", now.schema, now.phase.name(), now.epoch));
        }
    }

    /// What is to be done in a phase before the next may begin. May have been done before, in part or in full.
    async fn work(&self, layout: Layout, report: &(dyn Fn(&str) + Sync)) -> Result<()> {
        match layout.phase {
            Phase::None | Phase::Both | Phase::Switch => Ok(()),
            Phase::Expand => {
                let keyspace = self.keyspace().to_owned();
                let columns: Vec<(String,)> =
                    self.store.read_rows(&self.statements.columns_of, (&keyspace[..], "hours")).await?;
                let hours_have_width = columns.iter().any(|(name,)| name == "chunk_row_bytes");
                tables::expand(&self.store, hours_have_width).await
            }
            Phase::Backfill => self.backfill(report).await,
            Phase::Contract => tables::contract(&self.store).await,
        }
    }

    fn keyspace(&self) -> &str {
        self.store.address.rsplit_once('/').map_or("", |(_, keyspace)| keyspace)
    }

    /// The next phase, with the next epoch.
    async fn step(&self, from: Layout) -> Result<()> {
        let seq = self.cache.read().catalog.seq.unwrap_or_default();
        let phase = from.phase.next();
        let schema = if from.phase == Phase::Contract { NEWEST } else { from.schema } as i32;
        let values = (seq + 1, schema, NEWEST as i32, phase.name(), from.epoch + 1, CATALOG, seq);
        match self.store.compare_and_set(&self.statements.catalog_phase, values).await {
            // Whoever it was that made the step, the next look tells how far we are.
            Cas::Applied | Cas::Refused | Cas::Unknown(_) => self.refresh_catalog().await,
            Cas::Unsent(error) => Err(self.store.unavailable(error)),
        }
    }

    /// From here on no commit goes in whose rows were written before this epoch.
    async fn fence_writers(&self, epoch: i32) -> Result<()> {
        let tables: Vec<TableId> = self.cache.read().state.tables.keys().copied().collect();
        for table in tables {
            for _ in 0..LOSSES {
                let Some(head) = self.head(table).await? else {
                    self.make_head(table).await?;
                    continue;
                };
                if head.dropped || head.epoch >= epoch {
                    break;
                }
                let values = (epoch, table.0 as i32, head.epoch);
                match self.store.compare_and_set(&self.statements.head_epoch, values).await {
                    Cas::Applied => break,
                    Cas::Refused | Cas::Unknown(_) => {}
                    Cas::Unsent(error) => return Err(self.store.unavailable(error)),
                }
            }
        }
        Ok(())
    }

    /// Copies the filters of every block that is there now. Later ones are written to both.
    async fn backfill(&self, report: &(dyn Fn(&str) + Sync)) -> Result<()> {
        let tables: Vec<TableId> = self.cache.read().state.tables.keys().copied().collect();
        for table in tables {
            match self.refresh(table).await {
                Err(Error::NoTableId { .. }) => continue,
                other => other?,
            }
            let done: Vec<(i64,)> = self.store.read_rows(&self.statements.migrated, (table.0 as i32,)).await?;
            let mut hours: BTreeMap<i64, Vec<(BlockRef, BlockMeta)>> = BTreeMap::new();
            {
                let cache = self.cache.read();
                let files = cache.loaded.get(&table).into_iter().flat_map(|loaded| &loaded.files);
                for (file, meta) in files.filter(|(_, meta)| !done.contains(&(meta.hour,))) {
                    let blocks = meta.blocks.iter().filter(|block| block.n_chunks > 0);
                    let blocks = blocks.map(|block| (BlockRef { file: *file, row_group: block.row_group }, *block));
                    hours.entry(meta.hour).or_default().extend(blocks);
                }
            }
            for (hour, mut blocks) in hours {
                blocks.sort_unstable_by_key(|(block, _)| *block);
                while let Err(error) = self.copy_hour(table, hour, &blocks).await {
                    // Files may have gone meanwhile, and their rows with them.
                    let n_before = blocks.len();
                    if matches!(error, Error::Damaged { .. }) {
                        self.refresh(table).await?;
                        let cache = self.cache.read();
                        let of_table = cache.loaded.get(&table);
                        blocks.retain(|(block, _)| of_table.is_some_and(|loaded| loaded.block(hour, *block).is_some()));
                    }
                    if blocks.len() == n_before {
                        return Err(error);
                    }
                }
                self.store.write(&self.statements.migrated_put, (table.0 as i32, hour)).await?;
                report(&format!("table {table}, hour {hour}: {} filters copied", blocks.len()));
            }
        }
        Ok(())
    }

    /// One after the other: each part fills the connections on its own.
    async fn copy_hour(&self, table: TableId, hour: i64, blocks: &[(BlockRef, BlockMeta)]) -> Result<()> {
        for some in blocks.chunks(TOGETHER) {
            self.copy_blooms(table, hour, some, blocks.len() as u64).await?;
        }
        Ok(())
    }
}
