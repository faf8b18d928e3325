//! The data: TPC-H lineitem, made once into an Arrow file before any clock runs, then streamed from it.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use arrow::array::{ArrayRef, Decimal128Array, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

/// Lineitem with its key, as the benchmark declares it.
pub const CREATE_TABLE: &str = "
CREATE TABLE lineitem (
  l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, l_linenumber integer NOT NULL,
  l_quantity decimal(15,2) NOT NULL, l_extendedprice decimal(15,2) NOT NULL, l_discount decimal(15,2) NOT NULL, l_tax decimal(15,2) NOT NULL,
  l_returnflag text NOT NULL, l_linestatus text NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL,
  l_shipinstruct text NOT NULL, l_shipmode text NOT NULL, l_comment text NOT NULL,
  PRIMARY KEY (l_orderkey, l_linenumber)
)";

const BATCH_ROWS: usize = 32_768;

/// The rows in an Arrow file.
pub struct LineItem {
    path: PathBuf,
    pub n_rows: u64,
}

impl LineItem {
    /// Makes the file. About 8 s and 1 GB for each unit of the scale factor.
    pub fn make(sf: f64, folder: &Path) -> Result<LineItem> {
        let path = folder.join("lineitem.arrow");
        let mut writer = FileWriter::try_new(File::create(&path)?, &Self::schema())?;
        let mut n_rows = 0;
        for batch in LineItemArrow::new(LineItemGenerator::new(sf, 1, 1)).with_batch_size(BATCH_ROWS) {
            let batch = batch?;
            n_rows += batch.num_rows() as u64;
            writer.write(&batch)?;
        }
        writer.finish()?;
        Ok(LineItem { path, n_rows })
    }

    /// The sixteen columns of lineitem.
    pub fn schema() -> SchemaRef {
        LineItemArrow::schema_ref()
    }

    /// All rows, in key order.
    pub fn batches(&self) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
        let reader = FileReader::try_new(BufReader::with_capacity(4 << 20, File::open(&self.path)?), None)?;
        Ok(reader.map(|batch| batch.map_err(Into::into)))
    }

    /// `n` rows spread evenly over all of them, their discount changed.
    pub fn changed(&self, n: u64) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
        let n_rows = self.n_rows;
        let (mut n_taken, mut batch_begin) = (0, 0);
        Ok(self.batches()?.map(move |batch| {
            let batch = batch?;
            let batch_end = batch_begin + batch.num_rows() as u64;
            let mut rows = Vec::new();
            while n_taken < n && n_taken * n_rows / n < batch_end {
                rows.push((n_taken * n_rows / n - batch_begin) as u32);
                n_taken += 1;
            }
            batch_begin = batch_end;
            let rows = UInt32Array::from(rows);
            let taken = take_record_batch(&batch, &rows)?;
            let mut columns: Vec<ArrayRef> = taken.columns().to_vec();
            let discounts = Decimal128Array::from(vec![1_i128; rows.len()]).with_precision_and_scale(15, 2)?;
            columns[6] = Arc::new(discounts);
            Ok(RecordBatch::try_new(taken.schema(), columns)?)
        }))
    }
}

/// Writes all rows as one Parquet file.
pub fn write_parquet(sf: f64, path: &Path) -> Result<()> {
    let mut writer = ArrowWriter::try_new(File::create(path)?, LineItem::schema(), None)?;
    for batch in LineItemArrow::new(LineItemGenerator::new(sf, 1, 1)).with_batch_size(BATCH_ROWS) {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_rows_are_spread_evenly() {
        let folder = tempfile::tempdir().unwrap();
        let data = LineItem::make(0.01, folder.path()).unwrap();
        assert_eq!(data.n_rows, 60_175);
        let rows: usize = data.changed(1000).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, 1000);
    }
}
