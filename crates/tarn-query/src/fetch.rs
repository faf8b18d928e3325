//! What is in this row of the lake? One row by its address: one footer (mostly cached) and the pages that hold it.

use futures::TryStreamExt;
use object_store::path::Path;
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection, RowSelector};
use tarn_cache::FooterKey;
use tarn_metastore::At;
use tarn_types::{Address, DataType, SEQNO_COLUMN, SeqNo, TableSchema, Value, Version};

use crate::engine::Engine;
use crate::reader::{LAKE, Sums};
use crate::snapshot::lake_at;
use crate::{Error, Result};

impl Engine {
    /// The row at `address`, which a view at lake version `version` gave: its values in column order and the change that wrote it.
    /// `None` when that version no longer has the file (the address is older than a compaction: take a new view).
    ///
    /// Cost: the pages of one row; a footer if it is not cached.
    /// Errors: `Corrupt` when the file has no such row, or the row is of another change than the address says.
    pub async fn fetch_row(
        &self,
        table: &TableSchema,
        version: Version,
        address: Address,
    ) -> Result<Option<(Vec<Value>, SeqNo)>> {
        let lake = lake_at(self.lake().metastore.as_ref(), table, At::Version(version)).await?;
        let Some(file) = lake.file(address.file) else { return Ok(None) };
        let corrupt = |what: String| Error::Corrupt { what: format!("row {} of {}: {what}", address.row, file.path) };
        let row = u64::from(address.row);
        let block = file.blocks.iter().find(|b| (b.first_row..b.first_row + b.n_rows).contains(&row));
        let block = block.ok_or_else(|| corrupt(format!("the file has {} rows", file.n_rows)))?;

        let path = Path::parse(&file.path).map_err(|e| corrupt(e.to_string()))?;
        let key = FooterKey { store: LAKE, path, size_bytes: file.size_bytes, etag: file.etag.clone() };
        let reader = self.lake().readers.open(key, Sums(file.checksums.clone()));
        let failed = |source| Error::of_file(&file.path, source);
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
        let batch = batches.first().filter(|b| b.num_rows() == 1).ok_or_else(|| corrupt("no row there".to_owned()))?;

        let cell = |name: &str, data_type: &DataType| {
            let column = batch.column_by_name(name);
            column
                .map(|column| Value::from_arrow(column.as_ref(), 0, data_type).map_err(Error::types(&table.name)))
                .transpose()
        };
        let seqno = match cell(SEQNO_COLUMN, &DataType::Int64)? {
            Some(Value::Int64(seqno)) => SeqNo(seqno as u64),
            _ => return Err(corrupt(format!("column {SEQNO_COLUMN} is missing"))),
        };
        if seqno != address.seqno {
            return Err(corrupt(format!("written by change {seqno}, the address says {}", address.seqno)));
        }
        let missing = |column: &tarn_types::Column| column.default.clone().unwrap_or(Value::Null);
        let values = table
            .columns
            .iter()
            .map(|column| Ok(cell(&column.name, &column.data_type)?.unwrap_or_else(|| missing(column))));
        Ok(Some((values.collect::<Result<Vec<_>>>()?, seqno)))
    }
}
