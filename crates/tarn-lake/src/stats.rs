//! What does a written file's footer say of its row groups? The metastore's blocks, bounds and all.

use std::ops::Range;

use arrow::array::{Array, BooleanArray};
use arrow::datatypes::Schema;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::ParquetMetaData;

use tarn_metastore::{Block, ColumnStats};
use tarn_types::{ColumnId, DataType, TableSchema, Value};

use crate::Result;
use crate::error::{parquet_error, types_error};

/// A stretch of rows in which a float column has a NaN. Parquet's bounds leave NaN out, filters do not: such blocks
/// have no bounds for us.
pub(crate) struct NanSpan {
    pub column_idx: usize,
    /// Of the file.
    pub rows: Range<u64>,
}

/// How many arrays of some rows are NULL. Parquet counts the items that are not there, which is something else.
pub(crate) struct NullArrays {
    pub column_idx: usize,
    /// Of the file.
    pub first_row: u64,
    pub n_rows: u64,
}

/// Tables of at most this many columns keep the bounds of all of them in memory.
const INLINE_COLUMNS: usize = 32;

/// The columns whose bounds stay in the block, always in memory: all of a narrow table, of a wide one and of an archive
/// those that nearly every search asks for. The block metadata has all.
pub(crate) fn inline_columns(table: &TableSchema) -> impl Fn(ColumnId) -> bool + use<> {
    let archive = table.options.archive.as_ref();
    let all = archive.is_none() && table.columns.len() <= INLINE_COLUMNS;
    let mut some: Vec<_> = table.key_columns().map(|column| column.id).collect();
    some.extend(archive.and_then(|archive| archive.time_column));
    let partitioned_by = table.options.partition_column().and_then(|name| table.column(name));
    some.extend(partitioned_by.map(|(_, column)| column.id));
    move |column| all || some.contains(&column)
}

/// One block per row group, with the bounds of every column that has some: an array has none, but its NULLs are
/// counted. `schema` is that of the written rows, `null_arrays` are of stretches each of which lies in one row group.
pub(crate) fn blocks(
    path: &str,
    table: &TableSchema,
    schema: &Schema,
    metadata: &ParquetMetaData,
    nans: &[NanSpan],
    null_arrays: &[NullArrays],
) -> Result<Vec<Block>> {
    let mut first_row = 0;
    let mut blocks = Vec::with_capacity(metadata.num_row_groups());
    for (row_group, group) in (0..).zip(metadata.row_groups()) {
        let n_rows = group.num_rows() as u64;
        blocks.push(Block { row_group, first_row, n_rows, bytes: group.compressed_size() as u64, columns: Vec::new() });
        first_row += n_rows;
    }
    for (column_idx, (column, stored)) in table.columns.iter().zip(table.stored_names()).enumerate() {
        if matches!(column.data_type, DataType::Array(_)) {
            for (at, block) in blocks.iter_mut().enumerate() {
                let rows = block.first_row..block.first_row + block.n_rows;
                let here = |of: &&NullArrays| of.column_idx == column_idx && rows.contains(&of.first_row);
                let null_count = null_arrays.iter().filter(here).map(|of| of.n_rows).sum();
                let bytes = metadata.row_group(at).column(column_idx).compressed_size() as u64;
                let exact = null_count == block.n_rows;
                block.columns.push(ColumnStats { column: column.id, min: None, max: None, exact, null_count, bytes });
            }
            continue;
        }
        let read = || -> Result<_, parquet::errors::ParquetError> {
            let descriptor = metadata.file_metadata().schema_descr();
            let converter =
                StatisticsConverter::try_new(stored, schema, descriptor)?.with_missing_null_counts_as_zero(false);
            Ok((
                converter.row_group_mins(metadata.row_groups())?,
                converter.row_group_maxes(metadata.row_groups())?,
                converter.row_group_is_min_value_exact(metadata.row_groups())?,
                converter.row_group_is_max_value_exact(metadata.row_groups())?,
                converter.row_group_null_counts(metadata.row_groups())?,
            ))
        };
        let (mins, maxes, min_exact, max_exact, null_counts) =
            read().map_err(parquet_error("read the statistics of", path))?;
        for (at, block) in blocks.iter_mut().enumerate() {
            if null_counts.is_null(at) {
                continue; // Without it nothing else can be told.
            }
            let null_count = null_counts.value(at);
            let rows = block.first_row..block.first_row + block.n_rows;
            let has_nan = nans
                .iter()
                .any(|nan| nan.column_idx == column_idx && nan.rows.start < rows.end && rows.start < nan.rows.end);
            // What is a text in the file has the order of texts there.
            let has_bounds = !has_nan && !matches!(column.data_type, DataType::Interval | DataType::Inet);
            let bound = |array: &dyn Array| -> Result<Option<Value>> {
                if !has_bounds {
                    return Ok(None);
                }
                let bound = Value::from_arrow(array, at, &column.data_type);
                let bound = bound.map_err(types_error("read a column's bounds"))?;
                Ok(Some(bound).filter(|bound| !bound.is_null()))
            };
            let is_exact = |flags: &BooleanArray| flags.is_valid(at) && flags.value(at);
            block.columns.push(ColumnStats {
                column: column.id,
                min: bound(&mins)?,
                max: bound(&maxes)?,
                exact: null_count == block.n_rows || has_bounds && is_exact(&min_exact) && is_exact(&max_exact),
                null_count,
                bytes: metadata.row_group(at).column(column_idx).compressed_size() as u64,
            });
        }
    }
    Ok(blocks)
}
