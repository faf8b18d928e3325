//! What is in these rows of the lake? Rows by their addresses: one footer of each file, and the pages that hold them.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::AsyncFileReader;
use tarn_metastore::File;
use tarn_types::{Address, Column, DataType, SEQNO_COLUMN, SeqNo, TableSchema, Value};

use crate::error::{parquet_error, types_error};
use crate::{Error, Result};

/// The rows at addresses in `file`, which `reader` reads: the values of each in column order, in the order of
/// `addresses`.
///
/// Cost: the pages of these rows, and what the reader's footer costs.
/// Errors: `Corrupt` when the file has no such row, or a row is of another change than its address says.
pub async fn fetch_rows(
    reader: impl AsyncFileReader + Unpin + 'static,
    table: &TableSchema,
    file: &File,
    addresses: &[Address],
) -> Result<Vec<Vec<Value>>> {
    let failed = |source| parquet_error("read", &file.path)(source);
    let mut wanted: Vec<&Address> = addresses.iter().collect();
    wanted.sort_unstable_by_key(|address| address.row);
    wanted.dedup_by_key(|address| address.row);
    if let Some(beyond) = wanted.last().filter(|last| u64::from(last.row) >= file.n_rows) {
        return Err(mismatch(file, beyond, format!("the file has {} rows", file.n_rows)));
    }
    let (row_groups, selection) = places(file, &wanted);
    if let Some(lost) = wanted.first().filter(|_| selection.row_count() != wanted.len()) {
        return Err(mismatch(file, lost, "its blocks do not cover the file".to_owned()));
    }
    let stream = ParquetRecordBatchStreamBuilder::new_with_options(reader, ArrowReaderOptions::new())
        .await
        .map_err(failed)?
        .with_row_groups(row_groups)
        .with_row_selection(selection)
        .build()
        .map_err(failed)?;
    let batches: Vec<RecordBatch> = stream.try_collect().await.map_err(failed)?;
    let found = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    let names = table.stored_names();
    let mut rows = BTreeMap::new();
    for (address, (batch, row)) in wanted.iter().zip(found) {
        rows.insert(address.row, values((table, &names), file, address, batch, row)?);
    }
    let row = |address: &Address| {
        rows.get(&address.row).cloned().ok_or_else(|| mismatch(file, address, "no row there".to_owned()))
    };
    addresses.iter().map(row).collect()
}

fn mismatch(file: &File, address: &Address, what: String) -> Error {
    Error::Address { path: file.path.clone(), row: address.row, what }
}

/// The row groups that have these rows, which ascend, and which of their rows they are.
fn places(file: &File, wanted: &[&Address]) -> (Vec<usize>, RowSelection) {
    let (mut row_groups, mut ranges, mut before) = (vec![], vec![], 0);
    for block in &file.blocks {
        let rows = block.first_row..block.first_row + block.n_rows;
        let from = wanted.partition_point(|address| u64::from(address.row) < rows.start);
        let to = wanted.partition_point(|address| u64::from(address.row) < rows.end);
        if from < to {
            row_groups.push(block.row_group as usize);
            let places = wanted[from..to].iter().map(|of| before + (u64::from(of.row) - rows.start) as usize);
            ranges.extend(places.map(|place| place..place + 1));
            before += block.n_rows as usize;
        }
    }
    (row_groups, RowSelection::from_consecutive_ranges(ranges.into_iter(), before))
}

/// A row that was read, if it is the one that the address means. With the table go the names that files have.
fn values(
    (table, names): (&TableSchema, &[&str]),
    file: &File,
    address: &Address,
    batch: &RecordBatch,
    row: usize,
) -> Result<Vec<Value>> {
    let cell = |name: &str, data_type: &DataType| {
        let column = batch.column_by_name(name);
        column
            .map(|column| Value::from_arrow(column.as_ref(), row, data_type).map_err(types_error("read a row")))
            .transpose()
    };
    let seqno = match cell(SEQNO_COLUMN, &DataType::Int64)? {
        Some(Value::Int64(seqno)) => SeqNo(seqno as u64),
        _ => return Err(mismatch(file, address, format!("column {SEQNO_COLUMN} is missing"))),
    };
    if seqno != address.seqno {
        let what = format!("written by change {seqno}, the address says {}", address.seqno);
        return Err(mismatch(file, address, what));
    }
    // A column that came after the file was written.
    let missing = |column: &Column| table.missing(column.id).cloned().unwrap_or(Value::Null);
    let value =
        |(column, name): (&Column, &&str)| Ok(cell(name, &column.data_type)?.unwrap_or_else(|| missing(column)));
    let values = table.columns.iter().zip(names).map(value);
    values.collect()
}
