//! What was committed and not installed, and how is it made good?
//!
//! A crash, or any failure, between a commit and its installation leaves the metastore ahead of the addresses.
//! Everything that is needed is in the commit: the keys of the files it added, and for a delivery the keys of the rows
//! that died by it. Those of them that are in no added file were deleted, and lose their address.
//!
//! Invariant: versions are installed one by one, in order. The files and deletion vectors before the oldest uninstalled
//! commit must still be kept: expiring never goes beyond the installed version.

use std::collections::HashSet;
use std::sync::Arc;

use futures::TryStreamExt;
use roaring::RoaringBitmap;

use tarn_feed::{HotTable, PlacedRows, Stage};
use tarn_metastore::{CommitInfo, CommitKind, File, MetastoreExt, TableVersion, VersionSelector};
use tarn_types::{SEQNO_COLUMN, TableSchema, Version, encode_keys};

use crate::error::{parquet_error, types_error};
use crate::lake::metastore_error;
use crate::read::{in_order, live_rows, read_rows};
use crate::sort::key_columns;
use crate::stored::{called_by, in_files};
use crate::{Error, Lake, Result};

/// What had to be made good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairStats {
    /// Commits that were not installed.
    pub commits: u64,
    /// Addresses set.
    pub placed: u64,
    /// Keys that died, whether or not they came back in an added file.
    pub died: u64,
}

impl Lake {
    /// Installs what is committed and not installed. One look at the metastore when there is nothing. At start: after
    /// the log was replayed into the table, before the replay is finished.
    pub async fn repair(&self, hot: &Arc<dyn HotTable>) -> Result<RepairStats> {
        let table = hot.schema();
        let mut repaired = RepairStats::default();
        loop {
            let (installed, _) = hot.installed();
            let latest = self.metastore.version(table.id).await;
            let latest = latest.map_err(metastore_error("read the version", table.id))?;
            if installed == latest {
                return Ok(repaired);
            } else if installed > latest {
                return Err(Error::Ahead { table: table.id, installed, latest });
            }
            let commits = self.metastore.commits(table.id, installed).await;
            let commits = commits.map_err(metastore_error("read the commits", table.id))?;
            let Some(commit) = commits.first() else { return Ok(repaired) };
            self.repair_commit(hot, &table, installed, commit, &mut repaired).await?;
        }
    }

    async fn repair_commit(
        &self,
        hot: &Arc<dyn HotTable>,
        table: &TableSchema,
        installed: Version,
        commit: &CommitInfo,
        repaired: &mut RepairStats,
    ) -> Result<()> {
        let addressed = !table.options.append_only;
        let mut placed = Vec::new();
        for file in commit.added.iter().filter(|_| addressed) {
            placed.extend(self.place(table, file).await?);
        }
        tracing::debug!(table = %table.name, id = %table.id, version = %commit.version, "installs what was committed");
        repaired.commits += 1;
        repaired.placed += placed.iter().map(|placed: &PlacedRows| placed.keys.num_rows() as u64).sum::<u64>();
        let stage = match (&commit.cursor, commit.kind) {
            (Some(cursor), CommitKind::Delivery) => {
                let before = self.metastore.snapshot(table.id, VersionSelector::Version(installed)).await;
                let before = before.map_err(metastore_error("read the version before", table.id))?;
                let gone = if addressed { self.died(table, &before, commit).await? } else { Vec::new() };
                repaired.died += gone.len() as u64;
                Stage::repair(commit.version, cursor.clone(), placed, gone)
            }
            _ => Stage::compaction(commit.version, placed),
        };
        self.install(hot, stage).await
    }

    /// Where the rows of a file lie: its key columns, read back.
    async fn place(&self, table: &TableSchema, file: &File) -> Result<Vec<PlacedRows>> {
        let shown = placed_columns(table);
        let columns = in_files(table, &shown);
        let mut stream = live_rows(self.store.clone(), file, Some(&columns), None).await?;
        let (mut placed, mut first_row) = (Vec::new(), 0);
        while let Some(batch) = stream.try_next().await.map_err(parquet_error("read the keys of", &file.path))? {
            let keys = called_by(&in_order(&batch, &columns, file)?, &shown)?;
            let n_rows = keys.num_rows() as u32;
            placed.push(PlacedRows { file: file.id, keys, first_row });
            first_row += n_rows;
        }
        Ok(placed)
    }

    /// The keys, encoded, of the rows that are dead in the commit's version and were not before.
    async fn died(&self, table: &TableSchema, before: &TableVersion, commit: &CommitInfo) -> Result<Vec<Vec<u8>>> {
        let mut died = HashSet::new();
        for file in &before.files {
            let all = || RoaringBitmap::from_iter(0..file.n_rows as u32);
            let dead_after = match commit.deletion_vectors.get(&file.id) {
                Some(dead) => (**dead).clone(),
                None if commit.removed.contains(&file.id) => all(),
                None => continue,
            };
            let newly_dead = match before.deletion_vectors.get(&file.id) {
                Some(dead_before) => dead_after - &**dead_before,
                None => dead_after,
            };
            let rows: Vec<u32> = newly_dead.iter().collect();
            let shown = key_columns(table);
            let keys = read_rows(self.store.clone(), file, &rows, &in_files(table, &shown)).await?;
            let keys = encode_keys(table, &called_by(&keys, &shown)?).map_err(types_error("encode keys"))?;
            died.extend(keys.iter().map(|key| key.to_vec()));
        }
        Ok(died.into_iter().collect())
    }
}

/// The columns of a [`PlacedRows`].
fn placed_columns(table: &TableSchema) -> Vec<String> {
    key_columns(table).into_iter().chain([SEQNO_COLUMN.to_owned()]).collect()
}
