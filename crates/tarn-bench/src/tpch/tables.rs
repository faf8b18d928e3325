//! TPC-H's eight tables: as they are declared, and their rows, made while they are read.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use anyhow::{Result, bail, ensure};
use arrow::array::RecordBatchReader;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow, SupplierArrow,
};

const BATCH_ROWS: usize = 32_768;

/// Nobody follows the feed here: the log of what is delivered needs no room.
const FEED_RETENTION: &str = "10 seconds";

/// Batches that are made ahead of who takes them.
const AHEAD: usize = 4;

type Reader = Box<dyn RecordBatchReader + Send>;

/// One table, as it is declared and made.
pub struct TpchTable {
    pub name: &'static str,
    key: &'static str,
    /// The two tables of facts that grow by inserts alone are declared so.
    append_only: bool,
    rows: fn(f64) -> Reader,
}

/// In an order in which they may be loaded.
pub const TABLES: [TpchTable; 8] = [
    keyed("region", "r_regionkey", |sf| Box::new(RegionArrow::new(RegionGenerator::new(sf, 1, 1)))),
    keyed("nation", "n_nationkey", |sf| Box::new(NationArrow::new(NationGenerator::new(sf, 1, 1)))),
    keyed("supplier", "s_suppkey", |sf| Box::new(SupplierArrow::new(SupplierGenerator::new(sf, 1, 1)))),
    keyed("customer", "c_custkey", |sf| Box::new(CustomerArrow::new(CustomerGenerator::new(sf, 1, 1)))),
    keyed("part", "p_partkey", |sf| Box::new(PartArrow::new(PartGenerator::new(sf, 1, 1)))),
    keyed("partsupp", "ps_partkey, ps_suppkey", |sf| {
        Box::new(PartSuppArrow::new(PartSuppGenerator::new(sf, 1, 1)).with_batch_size(BATCH_ROWS))
    }),
    facts("orders", "o_orderkey", |sf| {
        Box::new(OrderArrow::new(OrderGenerator::new(sf, 1, 1)).with_batch_size(BATCH_ROWS))
    }),
    facts("lineitem", "l_orderkey, l_linenumber", |sf| {
        Box::new(LineItemArrow::new(LineItemGenerator::new(sf, 1, 1)).with_batch_size(BATCH_ROWS))
    }),
];

const fn keyed(name: &'static str, key: &'static str, rows: fn(f64) -> Reader) -> TpchTable {
    TpchTable { name, key, append_only: false, rows }
}

const fn facts(name: &'static str, key: &'static str, rows: fn(f64) -> Reader) -> TpchTable {
    TpchTable { name, key, append_only: true, rows }
}

impl TpchTable {
    /// `CREATE TABLE`, with the types and names of the generator's columns.
    pub fn declaration(&self) -> Result<String> {
        let mut columns = Vec::new();
        for field in self.schema().fields() {
            let sql = match field.data_type() {
                DataType::Int64 => "bigint".to_owned(),
                DataType::Int32 => "integer".to_owned(),
                DataType::Date32 => "date".to_owned(),
                DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
                DataType::Utf8View => "text".to_owned(),
                other => bail!("{}.{} is {other}: no type of SQL is known for it", self.name, field.name()),
            };
            columns.push(format!("{} {sql} NOT NULL", field.name()));
        }
        let facts = if self.append_only { ", append_only = true" } else { "" };
        let (columns, with) = (columns.join(", "), format!("feed_retention = '{FEED_RETENTION}'{facts}"));
        Ok(format!("CREATE TABLE {} ({columns}, PRIMARY KEY ({})) WITH ({with})", self.name, self.key))
    }

    /// Its columns.
    pub fn schema(&self) -> SchemaRef {
        (self.rows)(0.001).schema()
    }

    /// All rows in key order, made by a thread of their own a few batches ahead.
    pub fn batches(&self, sf: f64) -> impl Iterator<Item = Result<RecordBatch>> + use<> {
        let (sender, receiver) = sync_channel(AHEAD);
        let rows = self.rows;
        std::thread::spawn(move || {
            // Who no longer takes rows wants no more of them.
            let _ = rows(sf).try_for_each(|batch| sender.send(batch.map_err(Into::into)));
        });
        receiver.into_iter()
    }

    /// All rows as a Parquet file of its own, which Tarn has not seen.
    pub fn write_parquet(&self, sf: f64, path: &Path) -> Result<u64> {
        let mut writer = ArrowWriter::try_new(File::create(path)?, self.schema(), None)?;
        for batch in (self.rows)(sf) {
            writer.write(&batch?)?;
        }
        let n_rows = writer.close()?.file_metadata().num_rows();
        ensure!(n_rows > 0, "{} has no rows at scale factor {sf}", self.name);
        Ok(n_rows as u64)
    }
}

/// Rows of all tables, about: for progress.
pub fn rows_about(sf: f64) -> u64 {
    (8_661_245.0 * sf) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_declared_with_the_types_of_their_rows() {
        let supplier = TABLES.iter().find(|table| table.name == "supplier").unwrap();
        assert_eq!(
            supplier.declaration().unwrap(),
            "CREATE TABLE supplier (s_suppkey bigint NOT NULL, s_name text NOT NULL, s_address text NOT NULL, s_nationkey bigint NOT NULL, \
             s_phone text NOT NULL, s_acctbal decimal(15,2) NOT NULL, s_comment text NOT NULL, PRIMARY KEY (s_suppkey)) \
             WITH (feed_retention = '10 seconds')"
        );
        assert!(TABLES.iter().all(|table| table.declaration().is_ok()));
    }

    #[test]
    fn rows_are_as_many_as_the_scale_factor_says() {
        let rows = |name| -> usize {
            let table = TABLES.iter().find(|table| table.name == name).unwrap();
            table.batches(0.01).map(|batch| batch.unwrap().num_rows()).sum()
        };
        assert_eq!((rows("nation"), rows("customer"), rows("partsupp"), rows("lineitem")), (25, 1_500, 8_000, 60_175));
    }
}
