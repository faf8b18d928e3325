//! How are rows of lake files read back: all that live, or some by their address?
//!
//! Through the store alone; who wants footers or pages cached hands in a store that does. Every byte is held against
//! its checksum (`checked.rs`).

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use futures::TryStreamExt;
use object_store::ObjectStore;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::ParquetRecordBatchStream;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use roaring::RoaringBitmap;

use tarn_metastore::File;

use crate::checked::CheckedReader;
use crate::error::{arrow_error, parquet_error};
use crate::format::{BATCH_ROWS, FORMAT_KEY, FORMAT_VERSION};
use crate::{Error, Result};

type Stream = ParquetRecordBatchStream<CheckedReader>;

/// The rows of `selected`, in file order. Columns come in file order, too.
async fn open(
    store: Arc<dyn ObjectStore>,
    file: &File,
    columns: Option<&[String]>,
    selected: Option<RowSelection>,
) -> Result<Stream> {
    let reader = CheckedReader::new(store, file)?;
    let options = ArrowReaderOptions::new().with_offset_index_policy(PageIndexPolicy::Optional);
    let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options).await;
    let mut builder = builder.map_err(parquet_error("read", &file.path))?.with_batch_size(BATCH_ROWS);
    check(file, builder.metadata())?;
    if let Some(columns) = columns {
        let mut roots = Vec::with_capacity(columns.len());
        for column in columns {
            let idx = builder.schema().index_of(column);
            roots.push(idx.map_err(|_| Error::NoColumn { path: file.path.clone(), column: column.clone() })?);
        }
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        builder = builder.with_projection(mask);
    }
    if let Some(selected) = selected {
        builder = builder.with_row_selection(selected);
    }
    builder.build().map_err(parquet_error("read", &file.path))
}

/// Is it the file that was committed, in a format we know?
fn check(file: &File, metadata: &ParquetMetaData) -> Result<()> {
    let metadata = metadata.file_metadata();
    let wrong = |reason: String| Err(parquet_error("read", &file.path)(ParquetError::General(reason)));
    let entries = metadata.key_value_metadata().into_iter().flatten();
    let format = entries.filter(|entry| entry.key == FORMAT_KEY).find_map(|entry| entry.value.as_deref());
    match format {
        Some(FORMAT_VERSION) => {}
        Some(other) => return wrong(format!("format {other} is not known, this build reads {FORMAT_VERSION}")),
        None => return wrong(format!("it has no {FORMAT_KEY}: Tarn did not write it")),
    }
    if metadata.num_rows() as u64 != file.n_rows {
        return wrong(format!("it has {} rows, {} were committed", metadata.num_rows(), file.n_rows));
    }
    Ok(())
}

/// The rows of a file that are not dead. One row group is in memory at a time.
pub(crate) async fn live_rows(
    store: Arc<dyn ObjectStore>,
    file: &File,
    columns: Option<&[String]>,
    dead: Option<&RoaringBitmap>,
) -> Result<Stream> {
    let live = dead.map(|dead| {
        let mut ranges = Vec::new();
        let mut at = 0;
        for row in dead {
            if row as usize > at {
                ranges.push(at..row as usize);
            }
            at = row as usize + 1;
        }
        if at < file.n_rows as usize {
            ranges.push(at..file.n_rows as usize);
        }
        RowSelection::from_consecutive_ranges(ranges.into_iter(), file.n_rows as usize)
    });
    open(store, file, columns, live).await
}

/// Some rows, in the order of `rows` (which may repeat), with `columns` in their order.
pub(crate) async fn read_rows(
    store: Arc<dyn ObjectStore>,
    file: &File,
    rows: &[u32],
    columns: &[String],
) -> Result<RecordBatch> {
    if let Some(row) = rows.iter().find(|row| u64::from(**row) >= file.n_rows) {
        return Err(Error::NoRow { path: file.path.clone(), row: *row, n_rows: file.n_rows });
    }
    let wanted: RoaringBitmap = rows.iter().copied().collect();
    let ranges = wanted.iter().map(|row| row as usize..row as usize + 1);
    let selection = RowSelection::from_consecutive_ranges(ranges, file.n_rows as usize);
    let stream = open(store, file, Some(columns), Some(selection)).await?;
    let schema = stream.schema().clone();
    let batches: Vec<RecordBatch> = stream.try_collect().await.map_err(parquet_error("read", &file.path))?;
    let found = concat_batches(&schema, &batches).map_err(arrow_error("put rows together"))?;
    let places: UInt32Array = rows.iter().map(|row| wanted.rank(*row) as u32 - 1).collect();
    let found = take_record_batch(&found, &places).map_err(arrow_error("put rows in order"))?;
    in_order(&found, columns, file)
}

/// The columns in the order of their names in `columns`.
pub(crate) fn in_order(batch: &RecordBatch, columns: &[String], file: &File) -> Result<RecordBatch> {
    let mut order = Vec::with_capacity(columns.len());
    for column in columns {
        let idx = batch.schema().index_of(column);
        order.push(idx.map_err(|_| Error::NoColumn { path: file.path.clone(), column: column.clone() })?);
    }
    batch.project(&order).map_err(arrow_error("put columns in order"))
}
