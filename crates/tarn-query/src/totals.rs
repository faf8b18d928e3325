//! What is known of whole columns of many files, when their blocks in memory do not tell?
//!
//! Blocks of wide tables and of external ones have the bounds of few columns in memory; the metastore has those of all.
//! What a statement names is asked for once, added up for each piece of a version's file list (up to 256 files, which
//! versions share), and kept for as long as a version has the piece.
//!
//! ```text
//! a statement   the pieces that have a file which pruning left ──> their totals, merged: at most 200 for 50,000 files
//! a version     new files make new pieces; those alone are asked for
//! the metastore a request for up to 65,536 blocks times columns that no statement before has named
//! ```
//!
//! Who joins waits for all of them; who reads all of one table asks for little, since its answer may be among it
//! (`min`, `count`); who reads some rows of one table takes what is kept.
//!
//! Invariant: a total covers every row of its piece, dead ones included, so its bounds hold for whatever pruning leaves
//! of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tarn_metastore::prune::PrunedFile;
use tarn_metastore::{
    Block, BlockMetadataRequest, BlockRef, ColumnChunk, ColumnStats, File, FileRun, HourBlocks, Metastore, TableVersion,
};
use tarn_types::{Column, ColumnId, DataType, Kind, TableSchema, Value, arrow_type};

use crate::column_bounds::{ColumnBounds, OfBlock, fixed_width};
use crate::{Error, Result};

/// Blocks times columns of one request, unless one piece alone has more.
const REQUEST_CHUNKS: usize = 64 << 10;

/// Blocks times columns that are asked for on the chance that they are the answer: about as long as opening one file
/// takes.
const FEW_CHUNKS: usize = 4 << 10;

/// Totals of so many columns of pieces are kept, about 300 bytes each; then all are forgotten.
const MAX_KEPT: usize = 64 << 10;

/// What is known of columns, by their positions in the table: over at least all rows of the files in question.
pub(crate) type TotalsByColumn = BTreeMap<usize, ColumnBounds>;

/// What a scan wants to know.
pub(crate) struct TotalsRequest<'a> {
    /// Whose columns they are.
    pub table: &'a TableSchema,
    /// Whose files they are.
    pub version: &'a TableVersion,
    /// That are left after pruning, ascending by id.
    pub files: &'a [PrunedFile],
    /// Positions of the table's columns.
    pub columns: &'a [usize],
    /// How much the metastore may be asked for what is not in memory.
    pub patience: Patience,
}

/// What knowing is worth to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It joins: the order of the joins, and which side of each is built, depend on it.
    Joins,
    /// It reads all rows of one table.
    Everything,
    /// It reads some rows of one table, perhaps few.
    Some,
}

impl Patience {
    /// Blocks times columns that it waits for.
    fn max_chunks(self) -> usize {
        match self {
            Patience::Joins => usize::MAX,
            Patience::Everything => FEW_CHUNKS,
            Patience::Some => 0,
        }
    }
}

/// Totals of columns, by piece. Bounded; shared by all statements.
#[derive(Default)]
pub(crate) struct Totals {
    kept: Mutex<TotalsCache>,
}

#[derive(Default)]
struct TotalsCache {
    /// By the piece's address, which is no other piece's for as long as there is the `Weak`.
    pieces: HashMap<usize, OfPiece>,
    n_totals: usize,
}

struct OfPiece {
    piece: Weak<Vec<Arc<File>>>,
    /// A column that was altered is another one.
    columns: HashMap<(ColumnId, DataType), Arc<ColumnBounds>>,
}

impl Totals {
    /// Of those of the columns whose bounds the blocks do not have, and the bytes that the metastore read for it. A
    /// column that would cost too much is missing. Cost: memory for what was asked before, else requests as the file's
    /// header says.
    pub(crate) async fn known(
        &self,
        metastore: &dyn Metastore,
        wish: &TotalsRequest<'_>,
    ) -> Result<(TotalsByColumn, u64)> {
        let columns: Vec<usize> = wish.columns.iter().copied().filter(|idx| wish.is_elsewhere(*idx)).collect();
        if columns.is_empty() {
            return Ok((TotalsByColumn::new(), 0));
        }
        let pieces = wish.pieces();
        let missing = self.missing(wish, &pieces, &columns);
        let mut bytes_read = 0;
        if missing.iter().map(n_chunks).sum::<usize>() <= wish.patience.max_chunks() {
            let mut rest = missing.as_slice();
            while let Some(first) = rest.first() {
                let mut so_far = n_chunks(first);
                let more = rest[1..].iter().take_while(|next| {
                    so_far += n_chunks(next);
                    so_far <= REQUEST_CHUNKS
                });
                let (now, later) = rest.split_at(1 + more.count());
                bytes_read += self.ask(metastore, wish.table, now).await?;
                rest = later;
            }
        }
        let known = columns.into_iter().filter_map(|idx| Some((idx, self.merged(&pieces, wish.column(idx))?)));
        Ok((known.collect(), bytes_read))
    }

    /// Pieces, each with the columns of which nothing is kept.
    fn missing<'a>(
        &self,
        wish: &TotalsRequest<'_>,
        pieces: &[&'a FileRun],
        columns: &[usize],
    ) -> Vec<(&'a FileRun, Vec<usize>)> {
        let kept = self.kept.lock();
        let of_piece = |piece: &&'a FileRun| {
            let is_missing = |idx: &usize| kept.get(piece, wish.column(*idx)).is_none();
            (*piece, columns.iter().copied().filter(is_missing).collect::<Vec<_>>())
        };
        pieces.iter().map(of_piece).filter(|(_, missing)| !missing.is_empty()).collect()
    }

    /// `None`: it is not kept of every piece.
    fn merged(&self, pieces: &[&FileRun], column: &Column) -> Option<ColumnBounds> {
        let kept = self.kept.lock();
        let mut merged = ColumnBounds::new();
        for piece in pieces {
            merged.merge(kept.get(piece, column)?);
        }
        Some(merged)
    }

    /// Asks for columns of pieces, and keeps what they come to; how many bytes the metastore read.
    async fn ask(
        &self,
        metastore: &dyn Metastore,
        table: &TableSchema,
        pieces: &[(&FileRun, Vec<usize>)],
    ) -> Result<u64> {
        let asked: BTreeSet<usize> = pieces.iter().flat_map(|(_, columns)| columns.iter().copied()).collect();
        let asked: Vec<&Column> = asked.into_iter().map(|idx| &table.columns[idx]).collect();
        let blocks = Blocks::of(pieces.iter().map(|(piece, _)| *piece));
        let wanted = BlockMetadataRequest {
            hours: blocks.hours(),
            columns: Some(asked.iter().map(|column| column.id).collect()),
            stats: true,
            // What texts take is told by their chunks alone.
            chunks: asked.iter().any(|column| fixed_width(&arrow_type(&column.data_type)).is_none()),
            blooms: false,
        };
        let block_metadata = match metastore.block_metadata(table.id, wanted).await {
            // The table was dropped since the statement began, which goes on without.
            Err(error) if error.kind() == Kind::NotFound => return Ok(0),
            block_metadata => block_metadata.map_err(|source| Error::Blocks { table: table.name.clone(), source })?,
        };
        let mut has_block_metadata = vec![false; blocks.sorted.len()];
        for of_column in &block_metadata.columns {
            for at in &of_column.blocks {
                if let Some(has_block_metadata) = has_block_metadata.get_mut(*at as usize) {
                    *has_block_metadata = true;
                }
            }
        }
        let mut totals: Vec<Vec<(&Column, ColumnBounds)>> = pieces.iter().map(|_| vec![]).collect();
        for (column, of_column) in asked.iter().zip(&block_metadata.columns) {
            let mut told: Vec<Option<(&ColumnStats, Option<&ColumnChunk>)>> = vec![None; blocks.sorted.len()];
            for (n, (at, stats)) in of_column.blocks.iter().zip(&of_column.stats).enumerate() {
                if let Some(told) = told.get_mut(*at as usize) {
                    *told = Some((stats, of_column.chunks.get(n)));
                }
            }
            let mut of_pieces = vec![ColumnBounds::new(); pieces.len()];
            for ((place, told), has_block_metadata) in blocks.sorted.iter().zip(told).zip(&has_block_metadata) {
                let missing = has_block_metadata.then(|| table.missing(column.id));
                of_pieces[place.piece].add_block(column, place.block, told, missing);
            }
            of_pieces.into_iter().zip(&mut totals).for_each(|(bounds, totals)| totals.push((column, bounds)));
        }
        let mut kept = self.kept.lock();
        for ((piece, _), totals) in pieces.iter().zip(totals) {
            kept.insert(piece, totals);
        }
        Ok(block_metadata.bytes_read)
    }
}

impl ColumnBounds {
    /// A block, by what it has in memory, else by its metadata. Where a file has block metadata of other columns and
    /// none of this one, it lacks the column: then `missing` is what its rows have in it.
    fn add_block(
        &mut self,
        column: &Column,
        block: &Block,
        told: Option<(&ColumnStats, Option<&ColumnChunk>)>,
        missing: Option<Option<&Value>>,
    ) {
        let inline = block.column(column.id);
        let n_rows = block.n_rows;
        let (stats, counted, stored_bytes) = match (inline, told) {
            (Some(stats), told) => (stats, true, stored(stats, told)),
            // A file of somebody else that does not say how many NULLs there are is taken to have one.
            (None, Some((stats, _))) => (stats, stats.exact || stats.null_count != 1, stored(stats, told)),
            (None, None) if missing == Some(None) => return self.add_nulls(n_rows),
            (None, None) => {
                if let Some(Some(value)) = missing {
                    return self.add_value(&column.data_type, value, n_rows);
                }
                let nothing = OfBlock { n_rows, dead: 0, stats: None, counted: false, stored_bytes: 0 };
                return self.add(&column.data_type, &nothing);
            }
        };
        self.add(&column.data_type, &OfBlock { n_rows, dead: 0, stats: Some(stats), counted, stored_bytes });
    }
}

/// Before compression, where that is known.
fn stored(stats: &ColumnStats, told: Option<(&ColumnStats, Option<&ColumnChunk>)>) -> u64 {
    let chunk = told.and_then(|(_, chunk)| chunk);
    chunk.map_or(stats.bytes, |chunk| chunk.uncompressed_bytes)
}

impl TotalsCache {
    fn get(&self, piece: &FileRun, column: &Column) -> Option<&Arc<ColumnBounds>> {
        self.pieces.get(&address(piece))?.columns.get(&(column.id, column.data_type))
    }

    fn insert(&mut self, piece: &FileRun, totals: Vec<(&Column, ColumnBounds)>) {
        if self.n_totals + totals.len() > MAX_KEPT {
            self.pieces.retain(|_, kept| kept.piece.strong_count() > 0);
            self.n_totals = self.pieces.values().map(|kept| kept.columns.len()).sum();
        }
        if self.n_totals + totals.len() > MAX_KEPT {
            *self = TotalsCache::default();
        }
        let new = || OfPiece { piece: Arc::downgrade(piece), columns: HashMap::new() };
        let of_piece = self.pieces.entry(address(piece)).or_insert_with(new);
        let before = of_piece.columns.len();
        let totals = totals.into_iter().map(|(column, bounds)| ((column.id, column.data_type), Arc::new(bounds)));
        of_piece.columns.extend(totals);
        self.n_totals += of_piece.columns.len() - before;
    }
}

fn address(piece: &FileRun) -> usize {
    Arc::as_ptr(piece) as usize
}

/// Blocks times columns.
fn n_chunks((piece, columns): &(&FileRun, Vec<usize>)) -> usize {
    piece.iter().map(|file| file.blocks.len()).sum::<usize>() * columns.len()
}

impl<'a> TotalsRequest<'a> {
    fn column(&self, idx: usize) -> &'a Column {
        &self.table.columns[idx]
    }

    /// Whether a block does not have the column's bounds in memory.
    fn is_elsewhere(&self, idx: usize) -> bool {
        let id = self.column(idx).id;
        let lacks = |kept: &PrunedFile| {
            kept.row_groups.iter().any(|row_group| kept.file.blocks[*row_group as usize].column(id).is_none())
        };
        self.files.iter().any(lacks)
    }

    /// That have a file which is left.
    fn pieces(&self) -> Vec<&'a FileRun> {
        let has_one = |piece: &&FileRun| {
            let (first, last) = (piece[0].id, piece[piece.len() - 1].id);
            let at = self.files.partition_point(|kept| kept.file.id < first);
            self.files.get(at).is_some_and(|kept| kept.file.id <= last)
        };
        self.version.files.pieces().filter(has_one).collect()
    }
}

/// The blocks of some pieces as the metastore is asked for them.
struct Blocks<'a> {
    /// By hour and place.
    sorted: Vec<PlacedBlock<'a>>,
}

struct PlacedBlock<'a> {
    hour: i64,
    reference: BlockRef,
    piece: usize,
    block: &'a Block,
}

impl<'a> Blocks<'a> {
    fn of(pieces: impl Iterator<Item = &'a FileRun>) -> Self {
        let mut sorted: Vec<PlacedBlock<'a>> = vec![];
        for (piece, files) in pieces.enumerate() {
            for file in files.iter() {
                sorted.extend(file.blocks.iter().map(|block| {
                    let reference = BlockRef { file: file.id, row_group: block.row_group };
                    PlacedBlock { hour: file.hour, reference, piece, block }
                }));
            }
        }
        sorted.sort_unstable_by_key(|place| (place.hour, place.reference));
        Blocks { sorted }
    }

    fn hours(&self) -> Vec<HourBlocks> {
        let same = self.sorted.chunk_by(|a, b| a.hour == b.hour);
        same.map(|of_hour| HourBlocks {
            hour: of_hour[0].hour,
            blocks: of_hour.iter().map(|place| place.reference).collect(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::datatypes::DataType as ArrowType;
    use datafusion::common::stats::Precision;
    use datafusion::scalar::ScalarValue;
    use tarn_metastore::prune::prune;
    use tarn_metastore::{BlockMetadata, Commit, CommitKind, ExpectedVersion, Memory, MetastoreExt, VersionSelector};
    use tarn_types::{Archive, FileId, ManualClock, TableId, TableOptions, TabletId, Value, Version};
    use uuid::Uuid;

    use super::*;

    /// An archive of two numbers.
    fn schema() -> TableSchema {
        let column = |id, name: &str| Column {
            id: ColumnId(id),
            name: name.to_owned(),
            data_type: DataType::Int64,
            nullable: true,
            default: None,
        };
        let archive = Archive { url: "s3://archive/t".to_owned(), ..Archive::default() };
        TableSchema {
            id: TableId(1),
            name: "t".to_owned(),
            columns: vec![column(1, "a"), column(2, "b")],
            key: vec![],
            n_partition_key: 0,
            first_tablet: TabletId(1),
            options: TableOptions { tablets: 0, archive: Some(archive), ..TableOptions::default() },
        }
    }

    fn stats(column: u32, min: u64, max: u64) -> ColumnStats {
        let value = |value: u64| Some(Value::Int64(value as i64));
        ColumnStats {
            column: ColumnId(column),
            min: value(min),
            max: value(max),
            exact: true,
            null_count: 0,
            bytes: 80,
        }
    }

    /// File `n` has two blocks of ten rows; `a` lies between its number and a hundred more; half of the files lack `b`.
    async fn commit(
        metastore: &Memory,
        table: TableId,
        from: Version,
        files: std::ops::Range<u64>,
    ) -> Arc<TableVersion> {
        let mut block_metadata = BTreeMap::new();
        let add = files.map(|n| {
            let block = |row_group: u32| Block {
                row_group,
                first_row: u64::from(row_group) * 10,
                n_rows: 10,
                bytes: 100,
                columns: vec![],
            };
            let of_block = |row_group| {
                let mut columns = vec![(stats(1, n, n + 100), ColumnChunk::default())];
                columns.extend((n % 2 == 0).then(|| (stats(2, 5, 5), ColumnChunk::default())));
                BlockMetadata { row_group, columns, bloom: None }
            };
            block_metadata.insert(FileId(n), vec![of_block(0), of_block(1)]);
            File {
                id: FileId(n),
                path: format!("{n}.parquet"),
                size_bytes: 1000,
                n_rows: 20,
                hour: (n % 3) as i64,
                etag: None,
                blocks: vec![block(0), block(1)],
                created_version: Version(0),
                sorted_by_key: false,
                note: None,
                checksums: None,
            }
        });
        let commit = Commit {
            id: Uuid::new_v4(),
            expected: ExpectedVersion::At(from),
            add: add.collect(),
            block_metadata,
            remove: vec![],
            deletion_vectors: BTreeMap::new(),
            cursor: None,
            kind: CommitKind::Attach,
            at_ms: 0,
        };
        let version = metastore.commit(table, commit).await.unwrap();
        metastore.snapshot(table, VersionSelector::Version(version)).await.unwrap()
    }

    async fn known(
        totals: &Totals,
        metastore: &Memory,
        table: &TableSchema,
        version: &TableVersion,
        (files, patience): (&[PrunedFile], Patience),
    ) -> (TotalsByColumn, u64) {
        totals.known(metastore, &TotalsRequest { table, version, files, columns: &[0, 1], patience }).await.unwrap()
    }

    #[tokio::test]
    async fn a_statement_that_joins_waits_for_many_blocks_and_the_next_for_those_of_changed_pieces() {
        let metastore = Memory::new(Arc::new(ManualClock::default()));
        let table = metastore.create_table(schema()).await.unwrap();
        let first = metastore.allocate_files(2_000).await.unwrap().0;
        let version = commit(&metastore, table.id, Version(0), first..first + 1_500).await;
        let totals = Totals::default();
        let all = prune(&version, &[]).files;
        let (of_all, bytes_read) = known(&totals, &metastore, &table, &version, (&all, Patience::Everything)).await;
        assert_eq!((of_all.len(), bytes_read), (0, 0), "6,000 records are too many to plan a scan");
        let (of_all, bytes_read) = known(&totals, &metastore, &table, &version, (&all, Patience::Joins)).await;
        assert!(bytes_read > 0);
        let a = of_all[&0].clone().finish(30_000, &ArrowType::Int64);
        assert_eq!(a.min_value, Precision::Exact(ScalarValue::Int64(Some(first as i64))));
        assert_eq!(a.max_value, Precision::Exact(ScalarValue::Int64(Some((first + 1_599) as i64))));
        assert_eq!((of_all[&0].rows, a.null_count), (30_000, Precision::Exact(0)));
        let b = of_all[&1].clone().finish(30_000, &ArrowType::Int64);
        assert_eq!(b.null_count, Precision::Exact(15_000), "files that lack the column have NULLs");
        let (again, none) = known(&totals, &metastore, &table, &version, (&all, Patience::Some)).await;
        assert_eq!((again.len(), none), (2, 0), "what is kept is there for everybody");

        let next = commit(&metastore, table.id, version.version, first + 1_500..first + 1_510).await;
        let all = prune(&next, &[]).files;
        let (of_all, of_one) = known(&totals, &metastore, &table, &next, (&all, Patience::Everything)).await;
        assert!(of_one > 0 && of_one < bytes_read / 4, "{of_one} bytes after {bytes_read}: one piece changed");
        let a = of_all[&0].clone().finish(30_200, &ArrowType::Int64);
        assert_eq!(a.max_value, Precision::Exact(ScalarValue::Int64(Some((first + 1_609) as i64))));
    }

    #[tokio::test]
    async fn pieces_without_a_file_that_is_left_are_not_asked_for() {
        let metastore = Memory::new(Arc::new(ManualClock::default()));
        let table = metastore.create_table(schema()).await.unwrap();
        let first = metastore.allocate_files(2_000).await.unwrap().0;
        let version = commit(&metastore, table.id, Version(0), first..first + 1_500).await;
        let totals = Totals::default();
        let all = prune(&version, &[]).files;
        let (few, few_read) = known(&totals, &metastore, &table, &version, (&all[700..705], Patience::Joins)).await;
        assert!(few[&0].rows <= 256 * 20, "{} rows of one piece", few[&0].rows);
        let some = few[&0].clone().of_some(100).finish(100, &ArrowType::Int64);
        assert_eq!(some.min_value.is_exact(), Some(false), "its other files widen the bounds");
        let (_, rest_read) = known(&totals, &metastore, &table, &version, (&all, Patience::Joins)).await;
        assert!(few_read > 0 && rest_read > few_read * 3, "{few_read}, then {rest_read}");
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_with_its_pieces() {
        let mut kept = TotalsCache::default();
        let column = schema().columns.remove(0);
        let piece: FileRun = Arc::new(vec![]);
        kept.insert(&piece, vec![(&column, ColumnBounds::new())]);
        assert!(kept.get(&piece, &column).is_some());
        for _ in 0..MAX_KEPT + 10 {
            kept.insert(&Arc::new(vec![]), vec![(&column, ColumnBounds::new())]);
            assert!(kept.n_totals <= MAX_KEPT);
        }
        assert!(kept.get(&piece, &column).is_some(), "pieces of no version go first");
        assert!(kept.pieces.len() < MAX_KEPT / 2, "{} pieces", kept.pieces.len());
        let wider = Column { data_type: DataType::Float64, ..column };
        assert!(kept.get(&piece, &wider).is_none(), "an altered column");
    }
}
