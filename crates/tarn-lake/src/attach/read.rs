//! What does a file of an archive hold? Its footer in one or two reads, and the columns whose keys are asked for.
//!
//! All reads are on the condition that the object is still the one that was listed. What is wrong with a file is said
//! of the file; what is wrong with the store ends the pass: what cannot be reached now would be taken for damaged for
//! ever.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::{BoxFuture, try_join_all};
use futures::{FutureExt, TryFutureExt, TryStreamExt};
use object_store::{GetOptions, GetRange, ObjectStore};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use tokio::runtime::Handle;
use tokio::task::JoinError;

use tarn_metastore::{Bloom, Checksums, Summing};
use tarn_types::TableSchema;

use super::columns::{ForeignFile, foreign};
use super::list::Object;
use crate::Error;
use crate::error::store_error;
use crate::format::BATCH_ROWS;
use crate::index::Indexer;

/// Bytes read at the end of a file in the hope that they hold the whole footer.
const TAIL_BYTES: u64 = 256 << 10;

/// A footer that claims more is no footer.
const MAX_FOOTER_BYTES: u64 = 1 << 30;

/// Length and magic.
const END_BYTES: u64 = 8;

/// Magic at both ends, a footer's length, and a footer of a byte.
const MIN_BYTES: u64 = 13;

/// Bytes of one read where the whole file is read.
const SUMMED_BYTES: u64 = 4 << 20;

/// How often a request is made before the store counts as away.
const TRIES: usize = 3;

/// A file as far as it could be read.
#[derive(Debug)]
pub(crate) enum Content {
    Rows(ForeignFile, Vec<Option<Bloom>>),
    /// Nothing of it can be in the table.
    Skipped {
        reason: String,
        /// It may be readable tomorrow without having changed.
        retry: bool,
    },
    /// It is not, or no longer, what was listed: the next look decides.
    Gone,
}

/// Why reading stopped.
enum ReadFailure {
    File(Content),
    Store(object_store::Error),
}

impl ReadFailure {
    fn skip(reason: impl Into<String>) -> Self {
        Self::File(Content::Skipped { reason: reason.into(), retry: false })
    }
}

impl From<object_store::Error> for ReadFailure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error::*;
        match error {
            NotFound { .. } | Precondition { .. } | NotModified { .. } => Self::File(Content::Gone),
            PermissionDenied { .. } | Unauthenticated { .. } => {
                Self::File(Content::Skipped { reason: "the store does not let us read it".to_owned(), retry: true })
            }
            other => Self::Store(other),
        }
    }
}

impl From<ParquetError> for ReadFailure {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(source) => match source.downcast::<object_store::Error>() {
                Ok(error) => (*error).into(),
                Err(other) => Self::skip(other.to_string()),
            },
            other => Self::skip(other.to_string()),
        }
    }
}

impl From<JoinError> for ReadFailure {
    fn from(error: JoinError) -> Self {
        match error.is_panic() {
            // What strange bytes can do to a decoder must not end the pass.
            true => Self::skip("its bytes are more than the Parquet reader can bear"),
            false => Self::Store(object_store::Error::JoinError { source: error }),
        }
    }
}

impl From<Error> for ReadFailure {
    fn from(error: Error) -> Self {
        Self::skip(error.to_string())
    }
}

/// One object, as it was listed.
pub(crate) struct ListedObject {
    store: Arc<dyn ObjectStore>,
    object: Object,
    bytes_read: AtomicU64,
}

impl ListedObject {
    /// Reads nothing yet.
    pub fn new(store: Arc<dyn ObjectStore>, object: Object) -> Arc<Self> {
        Arc::new(Self { store, object, bytes_read: AtomicU64::new(0) })
    }

    /// What the store gave of this file so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    async fn get(&self, range: Range<u64>) -> object_store::Result<Bytes> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.get_once(range.clone()).await {
                Err(object_store::Error::Generic { .. }) if tries < TRIES => {}
                done => return done,
            }
        }
    }

    async fn get_once(&self, range: Range<u64>) -> object_store::Result<Bytes> {
        let path = &self.object.path;
        let range_asked = Some(GetRange::Bounded(range.clone()));
        let options = GetOptions { range: range_asked, if_match: self.object.etag.clone(), ..GetOptions::default() };
        let bytes = self.store.get_opts(path, options).await?.bytes().await?;
        self.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if bytes.len() as u64 != range.end - range.start {
            let source = format!("{} bytes of {range:?}", bytes.len()).into();
            return Err(object_store::Error::Precondition { path: path.to_string(), source });
        }
        Ok(bytes)
    }
}

/// Reads what the table wants to know of a file. `Err`: the store is away.
pub(crate) async fn content(source: &Arc<ListedObject>, table: &Arc<TableSchema>) -> Result<Content, Error> {
    match rows(source, table).await {
        Ok((foreign, _)) if foreign.n_rows() == 0 => {
            Ok(Content::Skipped { reason: "it has no rows".to_owned(), retry: false })
        }
        Ok((foreign, blooms)) => Ok(Content::Rows(foreign, blooms)),
        Err(ReadFailure::File(content)) => Ok(content),
        Err(ReadFailure::Store(error)) => Err(store_error("read", &source.object.path)(error)),
    }
}

/// What the footer alone tells.
pub(crate) async fn columns(source: &Arc<ListedObject>) -> Result<Result<ForeignFile, String>, Error> {
    match footer(source).await {
        Ok((_, foreign)) => Ok(Ok(foreign)),
        Err(ReadFailure::File(Content::Skipped { reason, .. })) => Ok(Err(reason)),
        Err(ReadFailure::File(_)) => Ok(Err("it is gone".to_owned())),
        Err(ReadFailure::Store(error)) => Err(store_error("read", &source.object.path)(error)),
    }
}

async fn rows(
    source: &Arc<ListedObject>,
    table: &Arc<TableSchema>,
) -> Result<(ForeignFile, Vec<Option<Bloom>>), ReadFailure> {
    let (metadata, mut foreign) = footer(source).await?;
    if table.options.archive.as_ref().is_some_and(|archive| archive.checksums) {
        foreign.checksums = Some(Arc::new(checksums(source, &metadata).await?));
    }
    let named = foreign.columns.iter().filter_map(|column| Some((column.name.as_str(), column.data_type?)));
    let indexer = Indexer::new(table, named);
    let blooms = blooms(source, metadata, indexer, &foreign).await?;
    Ok((foreign, blooms))
}

async fn footer(source: &Arc<ListedObject>) -> Result<(Arc<ParquetMetaData>, ForeignFile), ReadFailure> {
    let size_bytes = source.object.size_bytes;
    if size_bytes < MIN_BYTES {
        return Err(ReadFailure::skip(match size_bytes {
            0 => "it is empty".to_owned(),
            n => format!("{n} bytes are no Parquet file"),
        }));
    }
    let tail = source.get(size_bytes.saturating_sub(TAIL_BYTES)..size_bytes).await?;
    let (tail, end) = tail.split_at(tail.len() - END_BYTES as usize);
    match &end[4..] {
        b"PAR1" => {}
        b"PARE" => return Err(ReadFailure::skip("it is encrypted")),
        _ => {
            return Err(ReadFailure::skip(
                "it does not end as a Parquet file does: it is cut short, or something else",
            ));
        }
    }
    let footer_bytes = u64::from(u32::from_le_bytes(end[..4].try_into().expect("four bytes")));
    if footer_bytes + END_BYTES > size_bytes || footer_bytes > MAX_FOOTER_BYTES {
        return Err(ReadFailure::skip(format!(
            "its footer would have {footer_bytes} bytes, the file has {size_bytes}"
        )));
    }
    let footer = match tail.len().checked_sub(footer_bytes as usize) {
        Some(start) => Bytes::copy_from_slice(&tail[start..]),
        None => {
            let footer_end = size_bytes - END_BYTES;
            source.get(footer_end - footer_bytes..footer_end).await?
        }
    };
    let decoded = tokio::task::spawn_blocking(move || -> Result<_, ReadFailure> {
        let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
        let foreign = foreign(&metadata, size_bytes).map_err(ReadFailure::skip)?;
        Ok((Arc::new(metadata), foreign))
    });
    decoded.await?
}

/// Reads the whole file.
async fn checksums(source: &Arc<ListedObject>, metadata: &ParquetMetaData) -> Result<Checksums, ReadFailure> {
    let mut summing = Summing::default();
    cuts(metadata).into_iter().for_each(|cut| summing.cut(cut));
    let mut at = 0;
    while at < source.object.size_bytes {
        let end = source.object.size_bytes.min(at + SUMMED_BYTES);
        summing.feed(&source.get(at..end).await?);
        at = end;
    }
    Ok(summing.finish())
}

/// Where row groups begin, and where the last of them ends and what a footer refers to begins. None, if they lie among
/// each other: then damage of one may be taken for that of another.
fn cuts(metadata: &ParquetMetaData) -> Vec<u64> {
    let columns = || metadata.row_groups().iter().flat_map(|group| group.columns());
    let start = |column: &ColumnChunkMetaData| {
        u64::try_from(column.dictionary_page_offset().unwrap_or(column.data_page_offset())).unwrap_or(u64::MAX)
    };
    let end = |column: &ColumnChunkMetaData| {
        start(column).saturating_add(u64::try_from(column.compressed_size()).unwrap_or(u64::MAX))
    };
    let data_end = columns().map(end).max();
    let index = columns().flat_map(|column| [column.offset_index_offset(), column.column_index_offset()]).flatten();
    let tail_start = data_end.into_iter().chain(index.filter_map(|offset| u64::try_from(offset).ok())).min();
    let first = |group: &RowGroupMetaData| group.columns().iter().map(start).min();
    let mut cuts: Vec<u64> = metadata.row_groups().iter().filter_map(first).collect();
    let is_apart = cuts.last().copied() < tail_start && data_end == tail_start && cuts.is_sorted_by(|a, b| a < b);
    cuts.extend(tail_start);
    if is_apart { cuts } else { Vec::new() }
}

/// Reads the key columns, row group by row group, on a blocking thread.
async fn blooms(
    source: &Arc<ListedObject>,
    metadata: Arc<ParquetMetaData>,
    mut indexer: Indexer,
    foreign: &ForeignFile,
) -> Result<Vec<Option<Bloom>>, ReadFailure> {
    let n_groups = foreign.groups.len();
    let leaves: Vec<usize> = indexer
        .columns()
        .filter_map(|name| foreign.columns.iter().find(|column| column.name == name))
        .map(|column| column.leaf_idx)
        .collect();
    if leaves.is_empty() {
        (0..n_groups).for_each(|_| indexer.end_row_group());
        return Ok(indexer.finish());
    }
    let (runtime, source) = (Handle::current(), source.clone());
    let read = tokio::task::spawn_blocking(move || -> Result<_, ReadFailure> {
        let mask = ProjectionMask::leaves(metadata.file_metadata().schema_descr(), leaves);
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let arrow = ArrowReaderMetadata::try_new(metadata, options)?;
        for group in 0..n_groups {
            let reader = ArchiveReader { source: source.clone(), metadata: arrow.metadata().clone() };
            let builder = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, arrow.clone());
            let builder = builder.with_row_groups(vec![group]).with_projection(mask.clone());
            let mut stream = builder.with_batch_size(BATCH_ROWS).build()?;
            while let Some(rows) = runtime.block_on(stream.try_next())? {
                indexer.add(&rows)?;
            }
            indexer.end_row_group();
        }
        Ok(indexer.finish())
    });
    read.await?
}

/// What the Parquet reader asks for bytes.
struct ArchiveReader {
    source: Arc<ListedObject>,
    metadata: Arc<ParquetMetaData>,
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for ArchiveReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        self.source.get(range).map_err(external).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        let source = self.source.clone();
        async move { try_join_all(ranges.into_iter().map(|range| source.get(range))).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move { Ok(self.metadata.clone()) }.boxed()
    }
}
