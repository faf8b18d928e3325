//! Which pages hold the rows that are read? The page index of the columns and row groups of one scan, and of no others.
//!
//! A Parquet reader asks for the index of all columns at once, in one span of the file; among 20,000 columns that is
//! megabytes. Here each column's part is asked for by its place, which the metastore keeps, and what lies between them
//! is not read.
//!
//! Invariant: metadata has either the places of all pages that are read, or of none.

use std::ops::Range;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parquet::arrow::async_reader::{AsyncFileReader, MetadataFetch};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    OffsetIndexBuilder, PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader,
    RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use tarn_metastore::ColumnChunk;

/// An index of more bytes is not read: decoding it takes longer than what it spares.
const MAX_INDEX_BYTES: u64 = 4 << 20;

/// The parts lie within so many bytes, whose places are kept in memory while they are decoded.
const MAX_SPAN_BYTES: u64 = 64 << 20;

/// Where the index of the columns that are read lies.
pub(crate) struct PageIndexRanges {
    /// Ascending and apart.
    ranges: Vec<Range<u64>>,
}

impl PageIndexRanges {
    /// `None`: the file has no index of some column, or it is too large to be worth its reading. `chunks` are those of
    /// the row groups that are read; `bounds` says of which columns the bounds of pages are wanted, not only their
    /// places.
    pub(crate) fn of(chunks: &[(u32, Vec<&ColumnChunk>)], bounds: &[bool]) -> Option<Self> {
        let mut ranges = vec![];
        for (_, columns) in chunks {
            for (chunk, wants_bounds) in columns.iter().zip(bounds) {
                ranges.push(range(chunk.offset_index)?);
                ranges.extend(range(chunk.column_index).filter(|_| *wants_bounds));
            }
        }
        ranges.sort_by_key(|range| range.start);
        ranges.dedup();
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let span = ranges.last()?.end - ranges.first()?.start;
        let apart = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        (apart && bytes <= MAX_INDEX_BYTES && span <= MAX_SPAN_BYTES).then_some(PageIndexRanges { ranges })
    }

    /// Reads the index and puts it into `metadata`.
    pub(crate) async fn load(
        &self,
        metadata: ParquetMetaData,
        chunks: &[(u32, Vec<&ColumnChunk>)],
        bounds: &[bool],
        reader: &mut dyn AsyncFileReader,
    ) -> Result<ParquetMetaData> {
        // The decoder wants an index of every row group: it sees only those that are read.
        let read = chunks.iter().map(|(row_group, chunks)| {
            let group = metadata.row_group(*row_group as usize);
            placed(group, chunks, bounds)
        });
        let read =
            ParquetMetaData::new(metadata.file_metadata().clone(), read.collect::<Result<Vec<RowGroupMetaData>>>()?);
        let mut indexed =
            ParquetMetaDataReader::new_with_metadata(read).with_page_index_policy(PageIndexPolicy::Optional);
        indexed.load_page_index(Sparse { ranges: &self.ranges, reader }).await?;
        let indexed = indexed.finish()?;
        let Some(offsets) = indexed.offset_index() else { return Ok(metadata) };

        let n_columns = bounds.len();
        let unread = || (0..n_columns).map(|_| OffsetIndexBuilder::new().build()).collect::<Vec<_>>();
        let mut offset_index: Vec<_> = (0..metadata.num_row_groups()).map(|_| unread()).collect();
        let mut column_index = vec![vec![ColumnIndexMetaData::NONE; n_columns]; metadata.num_row_groups()];
        for (at, (row_group, _)) in chunks.iter().enumerate() {
            offset_index[*row_group as usize] = offsets[at].clone();
            if let Some(columns) = indexed.column_index() {
                column_index[*row_group as usize] = columns[at].clone();
            }
        }
        Ok(ParquetMetaDataBuilder::new_from_metadata(metadata)
            .set_offset_index(Some(offset_index))
            .set_column_index(Some(column_index))
            .build())
    }
}

fn range((start, bytes): (u64, u32)) -> Option<Range<u64>> {
    (bytes > 0).then_some(start..start.checked_add(u64::from(bytes))?)
}

/// The row group with the places of its index.
fn placed(group: &RowGroupMetaData, chunks: &[&ColumnChunk], bounds: &[bool]) -> Result<RowGroupMetaData> {
    let mut builder = group.clone().into_builder();
    let columns = builder.take_columns().into_iter().zip(chunks).zip(bounds).map(|((column, chunk), wants_bounds)| {
        let (offset, bytes) = chunk.offset_index;
        let column = column
            .into_builder()
            .set_offset_index_offset(Some(offset as i64))
            .set_offset_index_length(Some(bytes as i32));
        match chunk.column_index {
            (offset, bytes) if bytes > 0 && *wants_bounds => {
                column.set_column_index_offset(Some(offset as i64)).set_column_index_length(Some(bytes as i32)).build()
            }
            _ => column.build(),
        }
    });
    builder.set_column_metadata(columns.collect::<Result<_>>()?).build()
}

/// Answers the span that a decoder asks for from the parts that it will look at; between them are zeros.
struct Sparse<'a> {
    ranges: &'a [Range<u64>],
    reader: &'a mut dyn AsyncFileReader,
}

impl MetadataFetch for Sparse<'_> {
    fn fetch(&mut self, span: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            let parts = self.reader.get_byte_ranges(self.ranges.to_vec()).await?;
            if let ([whole], [part]) = (self.ranges, parts.as_slice())
                && *whole == span
            {
                return Ok(part.clone());
            }
            let mut bytes = vec![0; (span.end - span.start) as usize];
            for (range, part) in self.ranges.iter().zip(&parts) {
                let at = range.start.checked_sub(span.start).map(|at| at as usize);
                let place = at.and_then(|at| bytes.get_mut(at..at + part.len()));
                let place = place
                    .ok_or_else(|| ParquetError::General(format!("page index at {range:?} is not within {span:?}")))?;
                place.copy_from_slice(part);
            }
            Ok(bytes.into())
        }
        .boxed()
    }
}
