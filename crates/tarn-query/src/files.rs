//! Which rows of which files does a scan read, in which pieces, and what is known about them without reading?
//!
//! ```text
//! pruned blocks ──minus deletion vectors, hidden rows──> Piece … ──> FileGroup per partition
//! ```
//!
//! A piece is a run of blocks of one file, small enough that partitions can share the work of one large file. Every
//! piece carries the bounds of its own blocks, so that a top-k skips pieces as its threshold rises; of the columns that
//! are read, and only in tables that are not wide: DataFusion wants room for every column in each piece.
//!
//! Invariant: a row is in exactly one piece, unless pruned or dead.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use object_store::ObjectMeta;
use object_store::path::Path;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use roaring::RoaringBitmap;
use tarn_metastore::prune::PrunedFile;
use tarn_metastore::{Block, File};
use tarn_types::{FileId, TableSchema};

use crate::column_bounds::{ColumnBounds, OfBlock};
use crate::pruning::{PrunedBlocks, PruningCounts};
use crate::reader::{OfFile, Sums};
use crate::totals::TotalsByColumn;
use crate::{Error, Result};

/// A piece is split off only when it has this many rows: opening a file again costs as much as reading some thousand
/// rows.
const MIN_PIECE_ROWS: u64 = 100_000;

/// Pieces per partition of a scan: enough that the last ones end together.
const PIECES_PER_PARTITION: u64 = 4;

/// Pieces of tables with more columns carry no bounds: 2,000 pieces of 20,000 columns would take gigabytes.
const MAX_BOUNDED_COLUMNS: usize = 256;

/// What pruning and the dead rows leave of a table version.
pub(crate) struct LakeFiles {
    /// One group per partition; empty when nothing is left.
    pub groups: Vec<FileGroup>,
    /// Over all columns of the SQL schema, known of those that are read.
    pub statistics: Statistics,
    /// What was left out, and by what.
    pub counts: Counts,
}

/// For `EXPLAIN`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Before dead rows are looked at.
    pub pruning: PruningCounts,
    /// Files with a block that is read.
    pub files_kept: u64,
    /// Blocks of which something is read.
    pub blocks_kept: u64,
    /// Rows of kept blocks in deletion vectors.
    pub dead_rows: u64,
    /// Rows of kept blocks that recent rows supersede.
    pub hidden_rows: u64,
    /// Live rows of kept blocks.
    pub delivered_rows: u64,
}

/// One kept block with the number of its rows that are not read.
struct SelectedBlock<'a> {
    block: &'a Block,
    dead: u64,
}

/// Hidden rows by file, as a view gives them.
pub(crate) type HiddenRows = BTreeMap<FileId, RoaringBitmap>;

/// Dead rows by file, as a version has them.
pub(crate) type Vectors = HashMap<FileId, Arc<RoaringBitmap>>;

/// What is asked of the blocks that pruning left.
pub(crate) struct BlockCutter<'a> {
    /// Whose version is cut.
    pub table: &'a TableSchema,
    /// The SQL schema that statistics are for: the table's columns, perhaps with `__seqno` last.
    pub schema: &'a Schema,
    /// Positions of the table's columns whose bounds are of use, ascending.
    pub columns: &'a [usize],
    /// Those of them that the scan gives.
    pub given: &'a [usize],
    /// Of columns whose bounds not all blocks have.
    pub known: &'a TotalsByColumn,
    /// How many groups to make at most.
    pub partitions: usize,
    /// Whether each piece says its bounds.
    pub bounded: bool,
}

impl BlockCutter<'_> {
    /// Of a piece.
    fn bounds(&self) -> Option<Bounds<'_>> {
        (self.bounded && self.table.columns.len() <= MAX_BOUNDED_COLUMNS).then(|| Bounds::new(self))
    }
}

/// Cuts what pruning left into pieces. No IO.
pub(crate) fn lake_files(
    cut: &BlockCutter<'_>,
    vectors: &Vectors,
    hidden: &HiddenRows,
    pruned: &PrunedBlocks,
) -> Result<LakeFiles> {
    let row_groups = |kept: &PrunedFile| kept.row_groups.len() as u64;
    let mut counts = Counts {
        pruning: pruned.counts,
        files_kept: pruned.files.len() as u64,
        blocks_kept: pruned.files.iter().map(row_groups).sum(),
        ..Counts::default()
    };
    let kept_rows: u64 =
        pruned.files.iter().flat_map(|f| f.row_groups.iter().map(|rg| f.file.blocks[*rg as usize].n_rows)).sum();
    let piece_rows = (kept_rows / (cut.partitions as u64 * PIECES_PER_PARTITION)).max(MIN_PIECE_ROWS);

    let mut bounds = Bounds::new(cut);
    let mut pieces = vec![];
    for kept in &pruned.files {
        let file = kept.file.as_ref();
        let dead = dead_rows(vectors, hidden, file.id);
        let mut run: Vec<SelectedBlock<'_>> = vec![];
        let mut run_rows = 0;
        for row_group in &kept.row_groups {
            let block = &file.blocks[*row_group as usize];
            let rows = rows_of(block);
            let n_dead = dead.count(&rows);
            counts.dead_rows += dead.vector.map_or(0, |v| v.range_cardinality(rows.clone()));
            counts.hidden_rows += n_dead - dead.vector.map_or(0, |v| v.range_cardinality(rows.clone()));
            if n_dead == block.n_rows {
                continue;
            }
            counts.delivered_rows += block.n_rows - n_dead;
            bounds.add(block, n_dead);
            run.push(SelectedBlock { block, dead: n_dead });
            run_rows += block.n_rows;
            if run_rows >= piece_rows {
                pieces.push(piece(cut.bounds(), file, &dead, &run)?);
                run.clear();
                run_rows = 0;
            }
        }
        if !run.is_empty() {
            pieces.push(piece(cut.bounds(), file, &dead, &run)?);
        }
    }
    Ok(LakeFiles { groups: deal(pieces, cut.partitions), statistics: bounds.finish(cut.known), counts })
}

/// Some rows of `file`, of which its footer tells where they are. `None`: it does not have all of them.
pub(crate) fn rows_at(file: &File, wanted: &RoaringBitmap) -> Result<Option<PartitionedFile>> {
    let mut access = ParquetAccessPlan::new_none(file.blocks.len());
    let mut found = 0;
    for block in &file.blocks {
        let rows = rows_of(block);
        let n_wanted = wanted.range_cardinality(rows.clone());
        if n_wanted > 0 {
            found += n_wanted;
            access.set(block.row_group as usize, RowGroupAccess::Selection(these_rows(wanted, rows)));
        }
    }
    if found < wanted.len() {
        return Ok(None);
    }
    Ok(Some(partitioned(file)?.with_extension(access)))
}

fn rows_of(block: &Block) -> Range<u32> {
    block.first_row as u32..(block.first_row + block.n_rows) as u32
}

/// The rows of one file that are not read.
struct Dead<'a> {
    vector: Option<&'a RoaringBitmap>,
    /// Both together; borrowed when there is only one of them.
    all: std::borrow::Cow<'a, RoaringBitmap>,
}

fn dead_rows<'a>(vectors: &'a Vectors, hidden: &'a HiddenRows, file: FileId) -> Dead<'a> {
    use std::borrow::Cow;
    let vector = vectors.get(&file).map(Arc::as_ref);
    let all = match (vector, hidden.get(&file)) {
        (Some(vector), Some(hidden)) => Cow::Owned(vector | hidden),
        (Some(one), None) | (None, Some(one)) => Cow::Borrowed(one),
        (None, None) => Cow::Owned(RoaringBitmap::new()),
    };
    Dead { vector, all }
}

impl Dead<'_> {
    fn count(&self, rows: &Range<u32>) -> u64 {
        self.all.range_cardinality(rows.clone())
    }
}

/// Some blocks of a file, without bounds. `None`: no row of theirs is left.
pub(crate) fn blocks_of(
    vectors: &Vectors,
    hidden: &HiddenRows,
    file: &File,
    row_groups: &[u32],
) -> Result<Option<PartitionedFile>> {
    let dead = dead_rows(vectors, hidden, file.id);
    let blocks = row_groups.iter().filter_map(|row_group| file.blocks.get(*row_group as usize));
    let run = blocks.map(|block| SelectedBlock { block, dead: dead.count(&rows_of(block)) });
    let run: Vec<SelectedBlock<'_>> = run.filter(|kept| kept.dead < kept.block.n_rows).collect();
    if run.is_empty() {
        return Ok(None);
    }
    piece(None, file, &dead, &run).map(Some)
}

fn piece(
    mut bounds: Option<Bounds<'_>>,
    file: &File,
    dead: &Dead<'_>,
    run: &[SelectedBlock<'_>],
) -> Result<PartitionedFile> {
    let mut access = ParquetAccessPlan::new_none(file.blocks.len());
    for SelectedBlock { block, dead: n_dead } in run {
        bounds.iter_mut().for_each(|bounds| bounds.add(block, *n_dead));
        let how = if *n_dead == 0 {
            RowGroupAccess::Scan
        } else {
            RowGroupAccess::Selection(live_rows(&dead.all, rows_of(block)))
        };
        access.set(block.row_group as usize, how);
    }
    let mut piece = partitioned(file)?.with_extension(access).with_extension(OfFile(file.id));
    if let Some(bounds) = bounds {
        let schema = bounds.cut.schema;
        let mut statistics = bounds.finish(&TotalsByColumn::new());
        keep_columns_with_metadata(&mut statistics, schema);
        piece = piece.with_statistics(Arc::new(statistics));
    }
    Ok(piece)
}

/// When the statistics of a piece say that all values of a column are equal, or all NULL, DataFusion puts a literal in
/// the column's place. That literal lacks the metadata of the column's field, so functions would take a `jsonb` for a
/// text. DataFusion does it only if the number of NULLs is exact, so here that number becomes inexact. The bounds stay
/// exact: DataFusion skips pieces by exact bounds alone.
fn keep_columns_with_metadata(statistics: &mut Statistics, schema: &Schema) {
    let n_rows = statistics.num_rows;
    for (column, field) in statistics.column_statistics.iter_mut().zip(schema.fields()) {
        let all_equal = column.min_value.get_value().is_some() && column.min_value == column.max_value;
        let all_null = column.null_count == n_rows;
        if !field.metadata().is_empty() && (all_equal || all_null) {
            column.null_count = column.null_count.to_inexact();
        }
    }
}

fn partitioned(file: &File) -> Result<PartitionedFile> {
    let location = Path::parse(&file.path)
        .map_err(|_| Error::Corrupt { what: format!("path {} of file {} is no object key", file.path, file.id) })?;
    let meta = ObjectMeta {
        location,
        last_modified: Default::default(),
        size: file.size_bytes,
        e_tag: file.etag.clone(),
        version: None,
    };
    Ok(PartitionedFile::new_from_meta(meta).with_extension(Sums(file.checksums.clone())))
}

/// Everything in `rows` that is in `wanted`.
fn these_rows(wanted: &RoaringBitmap, rows: Range<u32>) -> RowSelection {
    let mut runs: Vec<(bool, u64)> = vec![];
    let mut next = rows.start;
    for row in wanted.range(rows.clone()) {
        runs.extend([(true, u64::from(row - next)), (false, 1)]);
        next = row + 1;
    }
    runs.push((true, u64::from(rows.end - next)));
    selection(runs)
}

/// Everything in `rows` that is not in `dead`.
fn live_rows(dead: &RoaringBitmap, rows: Range<u32>) -> RowSelection {
    let mut runs: Vec<(bool, u64)> = vec![];
    let mut next = rows.start;
    for row in dead.range(rows.clone()) {
        if row > next {
            runs.push((false, u64::from(row - next)));
        }
        match runs.last_mut() {
            Some((true, n)) if row == next => *n += 1,
            _ => runs.push((true, 1)),
        }
        next = row + 1;
    }
    if next < rows.end {
        runs.push((false, u64::from(rows.end - next)));
    }
    selection(runs)
}

/// From runs of (skipped, rows).
fn selection(runs: impl IntoIterator<Item = (bool, u64)>) -> RowSelection {
    let selectors = runs.into_iter().filter(|(_, n)| *n > 0);
    RowSelection::from(selectors.map(|(skip, n)| RowSelector { row_count: n as usize, skip }).collect::<Vec<_>>())
}

/// Deals pieces round, so that neighbours in key order are read at the same time and each partition has its share.
fn deal(pieces: Vec<PartitionedFile>, partitions: usize) -> Vec<FileGroup> {
    let n_groups = partitions.min(pieces.len());
    let mut groups: Vec<Vec<PartitionedFile>> = (0..n_groups).map(|_| vec![]).collect();
    for (idx, piece) in pieces.into_iter().enumerate() {
        groups[idx % n_groups].push(piece);
    }
    groups.into_iter().map(FileGroup::new).collect()
}

/// Bounds of the columns that are read over blocks.
struct Bounds<'a> {
    cut: &'a BlockCutter<'a>,
    live: u64,
    columns: Vec<ColumnBounds>,
}

impl<'a> Bounds<'a> {
    fn new(cut: &'a BlockCutter<'a>) -> Self {
        Bounds { cut, live: 0, columns: vec![ColumnBounds::new(); cut.columns.len()] }
    }

    fn add(&mut self, block: &Block, dead: u64) {
        self.live += block.n_rows - dead;
        for (idx, bounds) in self.cut.columns.iter().zip(&mut self.columns) {
            let column = &self.cut.table.columns[*idx];
            let stats = block.column(column.id);
            let stored_bytes = stats.map_or(0, |stats| stats.bytes);
            bounds.add(&column.data_type, &OfBlock { n_rows: block.n_rows, dead, stats, counted: true, stored_bytes });
        }
    }

    /// Of a column of which the blocks do not tell, what is `known` of all blocks of their files, and perhaps of more.
    fn finish(self, known: &TotalsByColumn) -> Statistics {
        let BlockCutter { schema, columns: read, given, .. } = self.cut;
        let mut columns = vec![ColumnStatistics::new_unknown(); schema.fields().len()];
        for (idx, bounds) in read.iter().zip(self.columns) {
            let bounds = match known.get(idx) {
                Some(all) => all.clone().of_some(self.live),
                None => bounds,
            };
            columns[*idx] = bounds.finish(self.live, schema.field(*idx).data_type());
        }
        // What is read for a filter alone is not in the rows that the scan gives.
        let given_bytes = given.iter().map(|idx| columns[*idx].byte_size.get_value().copied().unwrap_or_default());
        Statistics {
            num_rows: Precision::Exact(self.live as usize),
            total_byte_size: Precision::Inexact(given_bytes.sum()),
            column_statistics: columns,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::scalar::ScalarValue;

    use super::*;

    #[test]
    fn of_a_constant_column_with_metadata_the_number_of_nulls_is_not_exact() {
        let text = |text: &str| Precision::Exact(ScalarValue::from(text));
        let unknown = ColumnStatistics::new_unknown;
        let bounds = |min, max, nulls| {
            let (min_value, max_value) = (text(min), text(max));
            ColumnStatistics { min_value, max_value, null_count: Precision::Exact(nulls), ..unknown() }
        };
        let columns = [
            bounds("a", "a", 0),
            bounds("a", "b", 0),
            ColumnStatistics { null_count: Precision::Exact(3), ..unknown() },
            ColumnStatistics { null_count: Precision::Exact(0), ..unknown() },
        ];
        let null_counts = |field: &Field| {
            let schema = Schema::new(vec![field.clone(); columns.len()]);
            let (num_rows, total_byte_size) = (Precision::Exact(3), Precision::Absent);
            let column_statistics = columns.to_vec();
            let mut statistics = Statistics { num_rows, total_byte_size, column_statistics };
            keep_columns_with_metadata(&mut statistics, &schema);
            for (kept, column) in statistics.column_statistics.iter().zip(&columns) {
                assert_eq!((&kept.min_value, &kept.max_value), (&column.min_value, &column.max_value));
            }
            statistics.column_statistics.iter().map(|column| column.null_count).collect::<Vec<_>>()
        };
        let exact = Precision::<usize>::Exact;
        let plain = Field::new("c", DataType::Utf8, true);
        assert_eq!(null_counts(&plain), [exact(0), exact(0), exact(3), exact(0)]);
        let told = plain.with_metadata([("tarn.type".to_owned(), "jsonb".to_owned())].into());
        assert_eq!(null_counts(&told), [Precision::Inexact(0), exact(0), Precision::Inexact(3), exact(0)]);
    }

    #[test]
    fn selections_leave_out_the_dead_and_cover_every_row() {
        let dead: RoaringBitmap = [3, 10, 11, 12, 15, 19, 40].into_iter().collect();
        let selectors: Vec<RowSelector> = live_rows(&dead, 10..20).into();
        let runs: Vec<(bool, usize)> = selectors.iter().map(|s| (s.skip, s.row_count)).collect();
        assert_eq!(runs, [(true, 3), (false, 2), (true, 1), (false, 3), (true, 1)]);
        assert_eq!(live_rows(&dead, 20..40).row_count(), 20);
    }

    #[test]
    fn selections_of_some_rows_skip_all_others() {
        let wanted: RoaringBitmap = [3, 10, 12, 13, 19, 40].into_iter().collect();
        let selection = these_rows(&wanted, 10..20);
        let runs: Vec<(bool, usize)> = selection.iter().map(|s| (s.skip, s.row_count)).collect();
        assert_eq!(runs, [(false, 1), (true, 1), (false, 2), (true, 5), (false, 1)]);
        assert_eq!(these_rows(&wanted, 20..30).row_count(), 0);
    }
}
