//! What is in this row of the lake? One row by its address: one footer and the pages that hold it.

use futures::TryStreamExt;
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection, RowSelector};
use parquet::arrow::async_reader::AsyncFileReader;
use tarn_metastore::File;
use tarn_types::{Address, DataType, SEQNO_COLUMN, SeqNo, TableSchema, Value};

use crate::error::{parquet_error, types_error};
use crate::{Error, Result};

/// The row at `address` in `file`, which `reader` reads: its values in column order.
///
/// Cost: the pages of one row, and what the reader's footer costs.
/// Errors: `Corrupt` when the file has no such row, or the row is of another change than the address says.
pub async fn fetch_row(
    reader: impl AsyncFileReader + Unpin + 'static,
    table: &TableSchema,
    file: &File,
    address: Address,
) -> Result<Vec<Value>> {
    let mismatch = |what: String| Error::Address { path: file.path.clone(), row: address.row, what };
    let failed = |source| parquet_error("read", &file.path)(source);
    let row = u64::from(address.row);
    let block = file.blocks.iter().find(|b| (b.first_row..b.first_row + b.n_rows).contains(&row));
    let block = block.ok_or_else(|| mismatch(format!("the file has {} rows", file.n_rows)))?;
    let before = (row - block.first_row) as usize;
    let stream = ParquetRecordBatchStreamBuilder::new_with_options(reader, ArrowReaderOptions::new())
        .await
        .map_err(failed)?
        .with_row_groups(vec![block.row_group as usize])
        .with_row_selection(RowSelection::from(vec![RowSelector::skip(before), RowSelector::select(1)]))
        .with_batch_size(1)
        .build()
        .map_err(failed)?;
    let batches: Vec<_> = stream.try_collect().await.map_err(failed)?;
    let batch = batches.first().filter(|b| b.num_rows() == 1).ok_or_else(|| mismatch("no row there".to_owned()))?;

    let cell = |name: &str, data_type: &DataType| {
        let column = batch.column_by_name(name);
        column
            .map(|column| Value::from_arrow(column.as_ref(), 0, data_type).map_err(types_error("read a row")))
            .transpose()
    };
    let seqno = match cell(SEQNO_COLUMN, &DataType::Int64)? {
        Some(Value::Int64(seqno)) => SeqNo(seqno as u64),
        _ => return Err(mismatch(format!("column {SEQNO_COLUMN} is missing"))),
    };
    if seqno != address.seqno {
        return Err(mismatch(format!("written by change {seqno}, the address says {}", address.seqno)));
    }
    let missing = |column: &tarn_types::Column| column.default.clone().unwrap_or(Value::Null);
    let values = table
        .columns
        .iter()
        .map(|column| Ok(cell(&column.name, &column.data_type)?.unwrap_or_else(|| missing(column))));
    values.collect()
}
