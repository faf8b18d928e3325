//! Where in the files do the columns of this scan lie? The metastore says it, many files at a time, so that no footer
//! is read.
//!
//! ```text
//! ColumnChunkLoader   the columns of one scan
//!   └─ Batch    up to 512 files; those that are not in the cache are asked for once, when the first of the batch is opened
//!        └─ File ──> Leaves::metadata ──> a Parquet reader, and the cache
//! ```
//!
//! Invariants: of one file, a scan sees either metadata from here or the file's footer, never both: pieces of a file
//! must agree on its columns. A file of which the metastore keeps no block metadata is read by its footer. A file that
//! has block metadata has it of every column that it holds of the table's: a column without any is not in the file
//! (`missing.rs` says what its rows have). The change of a row is in every file, but not in the block metadata of older
//! ones: whoever reads it reads their footers.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use tarn_cache::{ProjectedCache, ProjectedColumn, ProjectedKey, ProjectedMetadata, Projection};
use tarn_metastore::prune::PrunedFile;
use tarn_metastore::{BlockMetadataRequest, BlockRef, ColumnChunk, HourBlocks, Metastore};
use tarn_types::{FileId, Kind, SEQNO_ID, TableSchema};
use tokio::sync::{OnceCell, Semaphore};

use crate::page_index::PageIndexRanges;
use crate::projected::{NamedColumn, ProjectedLeaves};
use crate::{Error, Result};

/// Files of one request.
const BATCH_FILES: usize = 512;

/// Blocks times columns of one request, unless one file alone has more.
const BATCH_CHUNKS: usize = 64 << 10;

/// Requests of one scan on the way at once.
const CONCURRENCY: usize = 4;

/// What of a scan's files is read.
pub(crate) struct ScanColumns {
    /// At least one: a row group without columns has no place in its file.
    pub named: Vec<NamedColumn>,
    /// Which of them a filter looks at.
    pub in_filter: Vec<bool>,
}

impl ScanColumns {
    /// Whether a filter may ask for the bounds of the column's pages.
    fn has_bounds(&self, column: usize) -> bool {
        self.in_filter[column] && self.named[column].has_bounds()
    }

    fn projection(&self) -> Projection {
        let column = |(at, named): (usize, &NamedColumn)| ProjectedColumn {
            id: named.id,
            name: Arc::clone(&named.name),
            data_type: named.data_type,
            bounds: self.has_bounds(at),
        };
        Projection::new(self.named.iter().enumerate().map(column).collect())
    }
}

/// Metadata of the files of one scan.
pub(crate) struct ColumnChunkLoader {
    metastore: Arc<dyn Metastore>,
    cache: Arc<ProjectedCache>,
    table: Arc<TableSchema>,
    columns: ScanColumns,
    /// What the columns are to the cache.
    projection: Arc<Projection>,
    /// A file of which this much is read is asked for its page index. `None`: none is.
    index_from_bytes: Option<u64>,
    batches: Vec<Batch>,
    places: HashMap<FileId, (usize, usize)>,
    /// By the shapes of the scan's columns: most files have the same.
    leaves: Mutex<HashMap<Shapes, Arc<ProjectedLeaves>>>,
    gate: Semaphore,
    bytes_read: AtomicU64,
    cached_files: AtomicU64,
}

struct Batch {
    files: Vec<PrunedFile>,
    /// For each of the files what the metastore says of it; of those that were in the cache, nothing.
    chunks: OnceCell<Vec<OfFile>>,
    metadata: Vec<OnceCell<Option<Arc<ParquetMetaData>>>>,
}

/// Of the scan's columns, as [`ColumnChunk::shape`] has them; `None`: the file has no such column.
type Shapes = Vec<Option<Arc<str>>>;

/// By the scan's columns, then by the file's blocks that are read.
type OfFile = Vec<Vec<Option<ColumnChunk>>>;

impl ColumnChunkLoader {
    /// Of files that are left after pruning, in the order in which they will be read. No IO.
    pub(crate) fn new(
        metastore: Arc<dyn Metastore>,
        cache: Arc<ProjectedCache>,
        table: Arc<TableSchema>,
        columns: ScanColumns,
        files: &[PrunedFile],
        index_from_bytes: Option<u64>,
    ) -> Self {
        let mut batches: Vec<Vec<PrunedFile>> = vec![];
        let mut places = HashMap::new();
        let mut n_chunks = 0;
        for file in files {
            let more = file.row_groups.len() * columns.named.len();
            match batches.last_mut() {
                Some(batch) if batch.len() < BATCH_FILES && n_chunks + more <= BATCH_CHUNKS => batch.push(file.clone()),
                _ => {
                    batches.push(vec![file.clone()]);
                    n_chunks = 0;
                }
            }
            n_chunks += more;
            let batch = batches.len() - 1;
            places.insert(file.file.id, (batch, batches[batch].len() - 1));
        }
        let batch = |files: Vec<PrunedFile>| Batch {
            metadata: files.iter().map(|_| OnceCell::new()).collect(),
            chunks: OnceCell::new(),
            files,
        };
        ColumnChunkLoader {
            metastore,
            cache,
            table,
            projection: Arc::new(columns.projection()),
            columns,
            index_from_bytes,
            batches: batches.into_iter().map(batch).collect(),
            places,
            leaves: Mutex::default(),
            gate: Semaphore::new(CONCURRENCY),
            bytes_read: AtomicU64::new(0),
            cached_files: AtomicU64::new(0),
        }
    }

    /// Bytes that the metastore read for this scan until now.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Files of which nobody was asked until now.
    pub(crate) fn cached_files(&self) -> u64 {
        self.cached_files.load(Ordering::Relaxed)
    }

    /// What a reader needs to know of a file; `None`: read its footer. Cost: the first file of a batch asks the
    /// metastore for all of it that the cache does not have. `reader` is of this file, for its page index.
    pub(crate) async fn metadata(
        &self,
        file: FileId,
        reader: &mut dyn AsyncFileReader,
    ) -> Result<Option<Arc<ParquetMetaData>>, ParquetError> {
        let Some((batch, at)) = self.places.get(&file) else { return Ok(None) };
        let batch = &self.batches[*batch];
        let chunks = batch.chunks.get_or_try_init(|| self.load(batch)).await;
        let chunks = chunks.map_err(|error: Error| ParquetError::External(Box::new(error)))?;
        let made = batch.metadata[*at].get_or_try_init(|| self.of_file(&batch.files[*at], &chunks[*at], reader));
        Ok(made.await?.clone())
    }

    fn key(&self, file: FileId) -> ProjectedKey {
        ProjectedKey { table: self.table.id, file, projection: Arc::clone(&self.projection) }
    }

    async fn load(&self, batch: &Batch) -> Result<Vec<OfFile>> {
        let failed = |source| Error::Blocks { table: self.table.name.clone(), source };
        let files = &batch.files;
        let n_columns = self.columns.named.len();
        let mut loaded: Vec<OfFile> =
            files.iter().map(|file| vec![vec![None; file.row_groups.len()]; n_columns]).collect();
        let mut order: Vec<usize> = vec![];
        for (at, PrunedFile { file, row_groups }) in files.iter().enumerate() {
            match self.cache.get(&self.key(file.id), row_groups, self.index_from_bytes) {
                // Nobody else sets it before the batch is loaded.
                Some(metadata) => drop(batch.metadata[at].set(Some(metadata))),
                None => order.push(at),
            }
        }
        self.cached_files.fetch_add((files.len() - order.len()) as u64, Ordering::Relaxed);
        if order.is_empty() {
            return Ok(loaded);
        }
        // Block metadata is kept by hour.
        order.sort_by_key(|at| (files[*at].file.hour, files[*at].file.id));
        let mut hours: Vec<HourBlocks> = vec![];
        let mut places = vec![];
        for at in order {
            let PrunedFile { file, row_groups } = &files[at];
            if hours.last().is_none_or(|last| last.hour != file.hour) {
                hours.push(HourBlocks { hour: file.hour, blocks: vec![] });
            }
            let Some(hour) = hours.last_mut() else { continue };
            hour.blocks.extend(row_groups.iter().map(|row_group| BlockRef { file: file.id, row_group: *row_group }));
            places.extend((0..row_groups.len()).map(|block| (at, block)));
        }
        let columns = Some(self.columns.named.iter().map(|named| named.id).collect());
        let wanted = BlockMetadataRequest { hours, columns, stats: false, chunks: true, blooms: false };
        // It is never closed; and were it, nothing would go wrong.
        let _turn = self.gate.acquire().await;
        let block_metadata = match self.metastore.block_metadata(self.table.id, wanted).await {
            // The table was dropped since the statement began. Its files are there until it ends, and footers say the
            // same.
            Err(error) if error.kind() == Kind::NotFound => return Ok(loaded),
            block_metadata => block_metadata.map_err(failed)?,
        };
        self.bytes_read.fetch_add(block_metadata.bytes_read, Ordering::Relaxed);
        for (column, known) in block_metadata.columns.into_iter().enumerate().take(n_columns) {
            for (block, chunk) in known.blocks.into_iter().zip(known.chunks) {
                if let Some((file, block)) = places.get(block as usize) {
                    loaded[*file][column][*block] = Some(chunk);
                }
            }
        }
        Ok(loaded)
    }

    async fn of_file(
        &self,
        file: &PrunedFile,
        chunks: &OfFile,
        reader: &mut dyn AsyncFileReader,
    ) -> Result<Option<Arc<ParquetMetaData>>, ParquetError> {
        let known: Vec<usize> =
            (0..chunks.len()).filter(|column| chunks[*column].iter().any(Option::is_some)).collect();
        let knows = |column: usize| chunks[column].iter().any(Option::is_some);
        let lacks_change = (0..chunks.len()).any(|at| self.columns.named[at].id == SEQNO_ID && !knows(at));
        if known.is_empty() || lacks_change {
            return Ok(None);
        }
        let mut groups: Vec<(u32, Vec<&ColumnChunk>)> = vec![];
        for (block, row_group) in file.row_groups.iter().enumerate() {
            let columns: Option<Vec<&ColumnChunk>> =
                known.iter().map(|column| chunks[*column][block].as_ref()).collect();
            match columns {
                Some(columns) => groups.push((*row_group, columns)),
                None => return Ok(None),
            }
        }
        let leaves = self.leaves_of(&known, &groups)?;
        let metadata = leaves.metadata(&file.file, &groups)?;
        let bytes: u64 = groups.iter().flat_map(|(_, columns)| columns).map(|chunk| chunk.compressed_bytes).sum();
        let bounds: Vec<bool> = known.iter().map(|column| self.columns.has_bounds(*column)).collect();
        let indexed = self.index_from_bytes.is_some_and(|from| bytes >= from);
        let places = match indexed {
            true => PageIndexRanges::of(&groups, &bounds),
            false => None,
        };
        let metadata = match places {
            Some(places) => places.load(metadata, &groups, &bounds, reader).await?,
            None => metadata,
        };
        let metadata = Arc::new(metadata);
        let row_groups = file.row_groups.clone();
        let projected = ProjectedMetadata { metadata: Arc::clone(&metadata), row_groups, indexed };
        self.cache.insert(self.key(file.file.id), projected);
        Ok(Some(metadata))
    }

    fn leaves_of(
        &self,
        known: &[usize],
        groups: &[(u32, Vec<&ColumnChunk>)],
    ) -> Result<Arc<ProjectedLeaves>, ParquetError> {
        let (_, first) = &groups[0];
        let mut shapes = vec![None; self.columns.named.len()];
        known.iter().zip(first).for_each(|(column, chunk)| shapes[*column] = Some(Arc::clone(&chunk.shape)));
        if let Some(leaves) = self.leaves.lock().get(&shapes) {
            return Ok(Arc::clone(leaves));
        }
        let columns =
            known.iter().zip(first).map(|(column, chunk)| (&self.columns.named[*column], chunk.shape.as_ref()));
        let leaves = Arc::new(ProjectedLeaves::new(columns)?);
        self.leaves.lock().insert(shapes, Arc::clone(&leaves));
        Ok(leaves)
    }
}

impl fmt::Debug for ColumnChunkLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ChunkLoader({}, {} columns of {} files)",
            self.table.name,
            self.columns.named.len(),
            self.places.len()
        )
    }
}
