//! Which blocks of a table version can hold the answer?
//!
//! ```text
//! all blocks ──time──> ──bounds in memory──> ──blooms, in the metastore──> ──other bounds, from its metadata──> pruned
//! ```
//!
//! Each step sees what the one before left, and is left out when there is nothing to ask: at most two requests, however
//! many files.
//!
//! Invariant: a block with a live row for which all filters are true is kept.

use std::collections::{BTreeSet, HashSet};

use tarn_metastore::prune::{Predicate, PrunedFile, may_match, prune};
use tarn_metastore::{AllOf, Block, BlockMetadataRequest, BlockRef, HourBlocks, Metastore, Probe, TableVersion};
use tarn_types::{ColumnId, DataType, TableSchema};

use crate::{Error, Result};

/// What the filters of a scan say of whole blocks.
#[derive(Debug, Default)]
pub(crate) struct Question {
    /// By bounds.
    pub predicates: Vec<Predicate>,
    /// By blooms.
    pub clauses: Vec<Vec<AllOf>>,
}

/// The blocks that are left, and by what the others were pruned.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrunedBlocks {
    /// In the version's order.
    pub files: Vec<PrunedFile>,
    /// What was left out, and by what.
    pub counts: PruningCounts,
}

/// For `EXPLAIN`. Blocks without a live row are neither kept nor pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PruningCounts {
    /// Of the version.
    pub files_total: u64,
    /// Of all its files.
    pub blocks_total: u64,
    /// By bounds of a date or a timestamp.
    pub time: u64,
    /// By other bounds.
    pub statistics: u64,
    /// Left out because no filter of theirs has what is looked for.
    pub bloom: u64,
    /// Read by the metastore for this.
    pub metastore_bytes: u64,
}

/// Asks the metastore, where memory does not tell.
pub(crate) async fn prune_blocks(
    metastore: &dyn Metastore,
    table: &TableSchema,
    version: &TableVersion,
    question: &Question,
) -> Result<PrunedBlocks> {
    let (time, other): (Vec<_>, Vec<_>) =
        question.predicates.iter().cloned().partition(|predicate| is_time(table, predicate.column));
    let pruned = prune(version, &time);
    let mut counts = PruningCounts {
        files_total: pruned.counts.files_total,
        blocks_total: pruned.counts.blocks_total,
        time: pruned.counts.blocks_live - pruned.counts.blocks_kept,
        ..PruningCounts::default()
    };
    let mut files = pruned.files;
    counts.statistics += retain(&mut files, |block, _| other.iter().all(|predicate| may_match(block, predicate)));

    let failed = |source| Error::Blocks { table: table.name.clone(), source };
    if !question.clauses.is_empty() && !files.is_empty() {
        let (hours, positions) = by_hour(&files, |_| true);
        let probe = Probe { hours, clauses: question.clauses.clone() };
        let probed = metastore.probe(table.id, probe).await.map_err(failed)?;
        counts.metastore_bytes += probed.bytes_read;
        let kept: HashSet<u32> = probed.kept.iter().filter_map(|at| positions.get(at as usize).copied()).collect();
        counts.bloom += retain(&mut files, |_, position| kept.contains(&position));
    }

    let asked: BTreeSet<ColumnId> = question.predicates.iter().map(|predicate| predicate.column).collect();
    let unknown = |block: &Block| asked.iter().any(|column| block.column(*column).is_none());
    let (hours, positions) = by_hour(&files, unknown);
    if !hours.is_empty() {
        let known_to_all = |column: &ColumnId| {
            files.iter().all(|kept| kept.row_groups.iter().all(|rg| block(kept, *rg).column(*column).is_some()))
        };
        let columns = asked.iter().copied().filter(|column| !known_to_all(column)).collect();
        let wanted = BlockMetadataRequest { hours, columns: Some(columns), stats: true, chunks: false, blooms: false };
        let block_metadata = metastore.block_metadata(table.id, wanted).await.map_err(failed)?;
        counts.metastore_bytes += block_metadata.bytes_read;
        let rows: Vec<u64> = files
            .iter()
            .flat_map(|kept| kept.row_groups.iter().map(|row_group| block(kept, *row_group).n_rows))
            .collect();
        let mut by_time = HashSet::new();
        let mut by_bounds = HashSet::new();
        for known in block_metadata.columns {
            let predicates: Vec<&Predicate> =
                question.predicates.iter().filter(|predicate| predicate.column == known.column).collect();
            let out = if is_time(table, known.column) { &mut by_time } else { &mut by_bounds };
            for (at, stats) in known.blocks.iter().zip(known.stats) {
                let Some(position) = positions.get(*at as usize).copied() else { continue };
                let n_rows = rows[position as usize];
                let block = Block { row_group: 0, first_row: 0, n_rows, bytes: 0, columns: vec![stats] };
                if !predicates.iter().all(|predicate| may_match(&block, predicate)) {
                    out.insert(position);
                }
            }
        }
        counts.time += by_time.len() as u64;
        counts.statistics += by_bounds.difference(&by_time).count() as u64;
        retain(&mut files, |_, position| !by_time.contains(&position) && !by_bounds.contains(&position));
    }
    Ok(PrunedBlocks { files, counts })
}

fn is_time(table: &TableSchema, column: ColumnId) -> bool {
    let data_type = table.columns.iter().find(|known| known.id == column).map(|known| known.data_type);
    matches!(data_type, Some(DataType::Date | DataType::Timestamp | DataType::TimestampTz))
}

fn block(kept: &PrunedFile, row_group: u32) -> &Block {
    &kept.file.blocks[row_group as usize]
}

/// Drops the blocks that are not to be kept; answers how many. Positions count the blocks of all files as they are when
/// it is called.
fn retain(files: &mut Vec<PrunedFile>, keep: impl Fn(&Block, u32) -> bool) -> u64 {
    let (mut position, mut dropped) = (0, 0);
    for PrunedFile { file, row_groups } in files.iter_mut() {
        let before = row_groups.len();
        row_groups.retain(|row_group| {
            position += 1;
            keep(&file.blocks[*row_group as usize], position - 1)
        });
        dropped += (before - row_groups.len()) as u64;
    }
    files.retain(|kept| !kept.row_groups.is_empty());
    dropped
}

/// Blocks as the metastore is asked for them, and of each its position among all blocks of `files`.
fn by_hour(files: &[PrunedFile], which: impl Fn(&Block) -> bool) -> (Vec<HourBlocks>, Vec<u32>) {
    let mut blocks: Vec<(i64, BlockRef, u32)> = vec![];
    let mut position = 0;
    for kept in files {
        for row_group in &kept.row_groups {
            if which(block(kept, *row_group)) {
                let reference = BlockRef { file: kept.file.id, row_group: *row_group };
                blocks.push((kept.file.hour, reference, position));
            }
            position += 1;
        }
    }
    blocks.sort_unstable();
    let mut hours: Vec<HourBlocks> = vec![];
    for (hour, block, _) in &blocks {
        match hours.last_mut() {
            Some(last) if last.hour == *hour => last.blocks.push(*block),
            _ => hours.push(HourBlocks { hour: *hour, blocks: vec![*block] }),
        }
    }
    (hours, blocks.into_iter().map(|(_, _, position)| position).collect())
}
