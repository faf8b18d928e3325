//! How do the recent rows of a table get into the lake?
//!
//! 1. Whatever an earlier attempt committed and did not install is installed (`repair.rs`).
//! 2. The recent rows are frozen: rows, cursor, and which rows of the lake they supersede.
//! 3. They are sorted and written to new files.
//! 4. One commit: files, deletion vectors, cursor. A file whose last row died leaves the table. What others committed
//!    meanwhile is no conflict if it is of other files, rows and tablets.
//! 5. The new addresses are staged and installed; behind what others committed, by `repair.rs`.
//!
//! A failure before 4 leaves orphans and nothing else; one in 4 is looked into; one after 4 is repaired by the next
//! call or at the next start. The frozen rows stay the same until they are installed, so no row is delivered twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use roaring::RoaringBitmap;

use tarn_feed::{FrozenRows, HotTable, Stage};
use tarn_metastore::{Commit, CommitKind, ExpectedVersion, TableVersion, VersionSelector};
use tarn_types::{Cursor, FileId, TableId, Version};
use tracing::Instrument;

use crate::lake::{commit_id, failpoint, hot_error, metastore_error};
use crate::sort::SortedBatches;
use crate::writer::{Spec, size_bytes};
use crate::{Error, Lake, Result};

/// What a delivery moved.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryStats {
    /// That it made, and that is installed.
    pub version: Version,
    /// Up to where changes are in the lake now.
    pub cursor: Cursor,
    /// Rows written.
    pub rows: u64,
    /// Keys that are deleted at `cursor` and were changed since the delivery before.
    pub deleted_keys: u64,
    /// Written.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Rows of earlier files that died.
    pub dead: u64,
    /// From its begin to its end, waiting included.
    pub ms: u64,
}

impl Lake {
    /// Delivers what waits; `None` when nothing does. The rows are durable in the lake, and the table knows, when it
    /// returns `Ok`.
    ///
    /// # Errors
    /// Whatever the error, call it again later: it goes on from where this one got to.
    pub async fn deliver(&self, hot: &Arc<dyn HotTable>) -> Result<Option<DeliveryStats>> {
        let schema = hot.schema();
        let span = tracing::debug_span!("delivery", table = %schema.name, id = %schema.id);
        self.deliver_pending(hot).instrument(span).await
    }

    async fn deliver_pending(&self, hot: &Arc<dyn HotTable>) -> Result<Option<DeliveryStats>> {
        let started_us = self.clock.monotonic_us();
        self.repair(hot).await?;
        let freezer = hot.clone();
        let frozen = tokio::task::spawn_blocking(move || freezer.freeze()).await?;
        let Some(frozen) = frozen.map_err(hot_error("freeze", hot.schema().id))? else { return Ok(None) };
        let mut delivered = self.deliver_frozen(hot, frozen).await?;
        delivered.ms = self.clock.monotonic_us().saturating_sub(started_us) / 1000;
        Ok(Some(delivered))
    }

    async fn deliver_frozen(&self, hot: &Arc<dyn HotTable>, frozen: FrozenRows) -> Result<DeliveryStats> {
        let FrozenRows { table, cursor, version: expected, rows, dead, deleted_keys, .. } = frozen;
        tracing::debug!(version = %expected, %cursor, "frozen");
        let before = self.metastore.snapshot(table.id, VersionSelector::Latest).await;
        let before = before.map_err(metastore_error("read the version", table.id))?;
        if before.version != expected {
            return Err(Error::Behind { table: table.id, expected, current: before.version });
        }

        let n_rows: u64 = rows.iter().map(|batch| batch.num_rows() as u64).sum();
        let row_bytes = rows.iter().map(size_bytes).sum::<usize>() / (n_rows.max(1) as usize);
        let mut spec = Spec::new(table.clone(), &self.options, n_rows, row_bytes, self.hour());
        let _writing = self.allocate(&mut spec).await?;
        let id = commit_id(&table, spec.first_file);
        let (sorted_table, batch_rows) = (table.clone(), spec.batch_rows);
        let written = self.write_files(spec, move || SortedBatches::new(&sorted_table, rows, batch_rows)).await?;
        failpoint!("lake::after_write");

        let mut delivered = DeliveryStats {
            version: expected,
            cursor: cursor.clone(),
            rows: written.files.iter().map(|file| file.n_rows).sum(),
            deleted_keys,
            files: written.files.len() as u64,
            bytes: written.files.iter().map(|file| file.size_bytes).sum(),
            dead: 0,
            ms: 0,
        };
        let mut commit = Commit {
            id,
            expected: ExpectedVersion::Disjoint(before.clone()),
            add: written.files,
            block_metadata: written.block_metadata,
            remove: Vec::new(),
            deletion_vectors: BTreeMap::new(),
            cursor: Some(cursor.clone()),
            kind: CommitKind::Delivery,
            at_ms: self.clock.now_ms(),
        };
        delivered.dead = bury(&mut commit, &before, table.id, dead)?;
        failpoint!("lake::before_commit");
        delivered.version = self.commit(table.id, commit).await?;
        failpoint!("lake::after_commit");
        let stage = Stage::delivery(delivered.version, cursor, written.placed);
        self.install_behind(hot, expected, delivered.version, stage).await?;
        Ok(delivered)
    }
}

/// Adds the newly dead rows to the commit; answers how many they are.
fn bury(
    commit: &mut Commit,
    before: &TableVersion,
    table: TableId,
    dead: BTreeMap<FileId, RoaringBitmap>,
) -> Result<u64> {
    let mut newly_dead = 0;
    for (id, mut rows) in dead {
        let file = before.file(id).ok_or(Error::NoFile { table, file: id, version: before.version })?;
        let dead_before = before.deletion_vectors.get(&id);
        if let Some(dead_before) = dead_before {
            rows |= &**dead_before;
        }
        let added = rows.len() - dead_before.map_or(0, |dead| dead.len());
        newly_dead += added;
        if rows.len() == file.n_rows {
            commit.remove.push(id);
        } else if added > 0 {
            commit.deletion_vectors.insert(id, rows);
        }
    }
    Ok(newly_dead)
}
