//! Which files are worth rewriting, and how, without losing a row or moving the cursor?
//!
//! Files in key order are merged into files in key order; dead rows are left behind; each row keeps its `__seqno`. The
//! protocol is that of a delivery: files, one commit, addresses. Small files are taken by size class once there are
//! enough of one class, so that a row is rewritten once per class and not once per delivery.
//!
//! Invariant: nothing is written of a file of which a byte that is read is not what was written. Such a file stays as
//! it is and is said once; the next call chooses among the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, SchemaRef};
use futures::TryStreamExt;
use roaring::RoaringBitmap;
use tokio::runtime::Handle;

use tarn_feed::{HotTable, Stage};
use tarn_metastore::{Commit, CommitKind, ExpectedVersion, File, TableVersion, VersionSelector};
use tarn_types::{FileId, TableSchema, Version};
use tracing::Instrument;

use crate::error::{arrow_error, parquet_error, types_error};
use crate::flaws::Flaw;
use crate::lake::{commit_id, failpoint, metastore_error};
use crate::merge::{MergeIterator, SortedBatches};
use crate::read::live_rows;
use crate::sort::KeyOrder;
use crate::stored::{called, of_type};
use crate::writer::Spec;
use crate::{Error, Lake, Options, Result};

/// Size classes grow by this factor from `CLASS_BYTES` on.
const CLASS_FACTOR: u64 = 4;
const CLASS_BYTES: u64 = 1 << 20;

/// A row in memory is taken to be so many times its size in a file.
const UNPACKED: u64 = 4;

/// What a compaction did.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionStats {
    /// That it made.
    pub version: Version,
    /// That it read, and that are not in the version any more.
    pub files_before: u64,
    /// That took their place.
    pub files_after: u64,
    /// Of the files that it read.
    pub bytes_before: u64,
    /// Of those that took their place.
    pub bytes_after: u64,
    /// Rows that live on.
    pub rows: u64,
    /// Dead rows that were left behind.
    pub dropped: u64,
    /// From its begin to its commit.
    pub ms: u64,
}

/// A file to rewrite, and its dead rows.
type CompactionInput = (Arc<File>, Option<Arc<RoaringBitmap>>);

impl Lake {
    /// Rewrites the files that are most worth it; `None` when none is. Call it until then.
    ///
    /// # Errors
    /// As [`Lake::deliver`]: call it again.
    pub async fn compact(&self, hot: &Arc<dyn HotTable>) -> Result<Option<CompactionStats>> {
        self.compact_with(hot, choose).await
    }

    /// Rewrites small files and files with any dead row, however few. Call it until `None`.
    pub async fn compact_fully(&self, hot: &Arc<dyn HotTable>) -> Result<Option<CompactionStats>> {
        self.compact_with(hot, choose_all).await
    }

    async fn compact_with(
        &self,
        hot: &Arc<dyn HotTable>,
        choose: fn(&TableVersion, &Options, &BTreeSet<FileId>) -> Vec<Arc<File>>,
    ) -> Result<Option<CompactionStats>> {
        let schema = hot.schema();
        let span = tracing::debug_span!("compaction", table = %schema.name, id = %schema.id);
        self.compact_chosen(hot, choose).instrument(span).await
    }

    async fn compact_chosen(
        &self,
        hot: &Arc<dyn HotTable>,
        choose: fn(&TableVersion, &Options, &BTreeSet<FileId>) -> Vec<Arc<File>>,
    ) -> Result<Option<CompactionStats>> {
        self.repair(hot).await?;
        let table = hot.schema();
        let before = self.metastore.snapshot(table.id, VersionSelector::Latest).await;
        let before = before.map_err(metastore_error("read the version", table.id))?;
        let damaged: BTreeSet<FileId> = self.flaws.of_table(table.id).iter().map(|flaw| flaw.file).collect();
        let inputs: Vec<CompactionInput> = choose(&before, &self.options, &damaged)
            .into_iter()
            .map(|file| (file.clone(), before.deletion_vectors.get(&file.id).cloned()))
            .collect();
        let rewritten = self.rewrite(hot, &before, &inputs).await;
        if let Err(error @ Error::Damaged { path, .. }) = &rewritten
            && let Some((file, _)) = inputs.iter().find(|(file, _)| file.path == *path)
        {
            self.flaws.add(Flaw { table: table.id, file: file.id, path: path.clone(), what: error.to_string() });
        }
        rewritten
    }

    async fn rewrite(
        &self,
        hot: &Arc<dyn HotTable>,
        before: &Arc<TableVersion>,
        inputs: &[CompactionInput],
    ) -> Result<Option<CompactionStats>> {
        let started_us = self.clock.monotonic_us();
        let table = hot.schema();
        let sum = |of: fn(&File) -> u64| inputs.iter().map(|(file, _)| of(file)).sum::<u64>();
        let (bytes_before, rows_before) = (sum(|file| file.size_bytes), sum(|file| file.n_rows));
        let dropped: u64 = inputs.iter().filter_map(|(_, dead)| dead.as_ref()).map(|dead| dead.len()).sum();
        let Some(hour) = inputs.iter().map(|(file, _)| file.hour).max() else { return Ok(None) };

        let row_bytes = (bytes_before * UNPACKED / rows_before.max(1)) as usize;
        let mut spec = Spec::new(table.clone(), &self.options, rows_before - dropped, row_bytes, hour);
        let _writing = self.allocate(&mut spec).await?;
        tracing::debug!(version = %before.version, files = inputs.len(), rows = rows_before, dropped, "chosen");
        let id = commit_id(&table, spec.first_file);
        let (order, batch_rows) = (KeyOrder::new(&table)?, spec.batch_rows);
        let mut sources = Vec::with_capacity(inputs.len());
        for (file, dead) in inputs {
            sources.push(self.source(&table, file, dead.as_deref()).await?);
        }
        let written = self.write_files(spec, move || MergeIterator::new(order, sources, batch_rows)).await?;
        failpoint!("lake::after_write");

        let mut compacted = CompactionStats {
            version: before.version,
            files_before: inputs.len() as u64,
            files_after: written.files.len() as u64,
            bytes_before,
            bytes_after: written.files.iter().map(|file| file.size_bytes).sum(),
            rows: written.files.iter().map(|file| file.n_rows).sum(),
            dropped,
            ms: 0,
        };
        assert_eq!(compacted.rows, rows_before - dropped, "a compaction keeps every live row");
        let commit = Commit {
            id,
            expected: ExpectedVersion::Disjoint(before.clone()),
            add: written.files,
            block_metadata: written.block_metadata,
            remove: inputs.iter().map(|(file, _)| file.id).collect(),
            deletion_vectors: BTreeMap::new(),
            cursor: None,
            kind: CommitKind::Compaction,
            at_ms: self.clock.now_ms(),
        };
        failpoint!("lake::before_commit");
        compacted.version = self.commit(table.id, commit).await?;
        failpoint!("lake::after_commit");
        let stage = Stage::compaction(compacted.version, written.placed);
        self.install_behind(hot, before.version, compacted.version, stage).await?;
        compacted.ms = self.clock.monotonic_us().saturating_sub(started_us) / 1000;
        Ok(Some(compacted))
    }

    /// The live rows of a file as rows of the table, for a blocking thread.
    async fn source(
        &self,
        table: &TableSchema,
        file: &Arc<File>,
        dead: Option<&RoaringBitmap>,
    ) -> Result<SortedBatches> {
        let mut stream = live_rows(self.store.clone(), file, None, dead).await?;
        let (runtime, file) = (Handle::current(), file.clone());
        let (in_files, schema) = (table.arrow_in_files(), table.arrow_with_seqno());
        let table = table.clone();
        Ok(Box::new(move || -> Result<Option<RecordBatch>> {
            let batch = runtime.block_on(stream.try_next()).map_err(parquet_error("read", &file.path))?;
            batch.map(|batch| called(&as_defined(&table, &in_files, &batch, &file)?, &schema)).transpose()
        }))
    }
}

/// Rows of a file that was written when the table may have had other columns, or others that may be NULL. By the names
/// in files, which `schema` has in the table's order. What the table has not any more is left behind.
fn as_defined(table: &TableSchema, schema: &SchemaRef, batch: &RecordBatch, file: &File) -> Result<RecordBatch> {
    if batch.schema() == *schema {
        return Ok(batch.clone());
    }
    let column = |(idx, field): (usize, &FieldRef)| match batch.column_by_name(field.name()) {
        Some(column) => Ok(Arc::clone(column)),
        None if idx < table.columns.len() => {
            let missing = table.missing_column(idx, batch.num_rows());
            of_type(&missing.map_err(types_error("fill in a column that came later"))?, field.data_type())
        }
        None => Err(Error::NoColumn { path: file.path.clone(), column: field.name().clone() }),
    };
    let columns = schema.fields().iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(arrow_error("read rows as defined"))
}

/// Files with many dead rows, or those of the smallest size class that is full. None of them is in `damaged`.
fn choose(version: &TableVersion, options: &Options, damaged: &BTreeSet<FileId>) -> Vec<Arc<File>> {
    let dead_share = |file: &File| version.dead_rows(file.id) as f64 / file.n_rows.max(1) as f64;
    let worn = sorted_files(version, damaged).filter(|file| dead_share(file) >= options.compact_dead);
    let worn = bounded(worn, options);
    if !worn.is_empty() {
        return worn;
    }
    let mut classes: BTreeMap<u32, Vec<&Arc<File>>> = BTreeMap::new();
    for file in sorted_files(version, damaged).filter(|file| is_small(file, options)) {
        let class = (file.size_bytes / CLASS_BYTES).max(1).ilog(CLASS_FACTOR);
        classes.entry(class).or_default().push(file);
    }
    let full = classes.into_values().find(|files| files.len() >= options.compact_files.max(2));
    several(bounded(full.into_iter().flatten(), options))
}

/// Every file that a rewrite could better. None of them is in `damaged`.
fn choose_all(version: &TableVersion, options: &Options, damaged: &BTreeSet<FileId>) -> Vec<Arc<File>> {
    let worn = sorted_files(version, damaged).filter(|file| version.dead_rows(file.id) > 0);
    let worn: Vec<_> = bounded(worn, options);
    let small =
        sorted_files(version, damaged).filter(|file| is_small(file, options) && version.dead_rows(file.id) == 0);
    match worn.is_empty() {
        true => several(bounded(small, options)),
        // Small ones come along as far as there is room.
        false => bounded(worn.iter().chain(small), options),
    }
}

fn sorted_files<'a>(version: &'a TableVersion, damaged: &'a BTreeSet<FileId>) -> impl Iterator<Item = &'a Arc<File>> {
    version.files.iter().filter(|file| file.sorted_by_key && !damaged.contains(&file.id))
}

fn is_small(file: &File, options: &Options) -> bool {
    file.size_bytes < options.target_file_bytes / 2 && file.n_rows <= options.target_file_rows / 2
}

/// One clean file alone is as good as it gets.
fn several(files: Vec<Arc<File>>) -> Vec<Arc<File>> {
    if files.len() > 1 { files } else { Vec::new() }
}

/// As many as may be merged at once, but at least one however large.
fn bounded<'a>(files: impl Iterator<Item = &'a Arc<File>>, options: &Options) -> Vec<Arc<File>> {
    let mut rows = 0;
    let mut chosen = Vec::new();
    for file in files.take(options.compact_fan_in.max(2)) {
        rows += file.n_rows;
        if rows > options.compact_rows && !chosen.is_empty() {
            break;
        }
        chosen.push(file.clone());
    }
    chosen
}
