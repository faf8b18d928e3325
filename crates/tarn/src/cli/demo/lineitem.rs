//! The demo's data and questions: TPC-H lineitem, made here as Arrow batches, and the five ad-hoc queries about it.

use anyhow::Result;
use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use tokio::sync::mpsc;
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

/// Small deliveries happen by size while loading; the long interval only keeps the stages of the tour apart.
pub const CREATE_TABLE: &str = "
CREATE TABLE lineitem (
  l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, l_linenumber integer NOT NULL,
  l_quantity decimal(15,2) NOT NULL, l_extendedprice decimal(15,2) NOT NULL, l_discount decimal(15,2) NOT NULL, l_tax decimal(15,2) NOT NULL,
  l_returnflag text NOT NULL, l_linestatus text NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL,
  l_shipinstruct text NOT NULL, l_shipmode text NOT NULL, l_comment text NOT NULL,
  PRIMARY KEY (l_orderkey, l_linenumber)
) WITH (delivery = '1 hour')";

/// What each is called, and its text.
pub const QUERIES: [(&str, &str); 5] = [
    ("count", "SELECT count(*) FROM lineitem"),
    ("key lookup", "SELECT * FROM lineitem WHERE l_orderkey = 1"),
    (
        "non-key lookup",
        "SELECT * FROM lineitem WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-02-01' AND l_discount < 0.03 AND l_quantity < 4",
    ),
    ("projection, top 1", "SELECT l_orderkey FROM lineitem ORDER BY l_orderkey LIMIT 1"),
    ("full row, top 1", "SELECT * FROM lineitem ORDER BY l_orderkey LIMIT 1"),
];

/// Rows of one batch on the wire.
const BATCH_ROWS: usize = 32_768;

/// A row's primary key.
pub struct LineKey {
    order: i64,
    line: i32,
}

impl LineKey {
    /// SQL for "this row or one before it".
    pub fn up_to(&self) -> String {
        format!("l_orderkey < {0} OR (l_orderkey = {0} AND l_linenumber <= {1})", self.order, self.line)
    }
}

/// The sixteen columns of lineitem.
pub fn schema() -> SchemaRef {
    LineItemArrow::schema_ref()
}

/// The rows in key order, made on a thread of their own, a few batches ahead of the reader.
pub fn generate(sf: f64) -> mpsc::Receiver<Result<RecordBatch>> {
    let (batches, receiver) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let rows = LineItemArrow::new(LineItemGenerator::new(sf, 1, 1)).with_batch_size(BATCH_ROWS);
        // A closed channel means that nobody wants the rest.
        let _ = rows.map(|batch| batches.blocking_send(batch.map_err(Into::into))).find(Result::is_err);
    });
    receiver
}

/// The key of one row of a generated batch.
pub fn key_at(batch: &RecordBatch, row_idx: usize) -> LineKey {
    let order = batch.column(0).as_primitive::<Int64Type>().value(row_idx);
    LineKey { order, line: batch.column(3).as_primitive::<Int32Type>().value(row_idx) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rows_come_in_key_order_and_a_bound_names_one() {
        let mut batches = generate(0.01);
        let mut last = (0, 0);
        let mut rows = 0;
        while let Some(batch) = batches.recv().await {
            let batch = batch.unwrap();
            for idx in 0..batch.num_rows() {
                let key = key_at(&batch, idx);
                assert!((key.order, key.line) > last);
                last = (key.order, key.line);
            }
            rows += batch.num_rows();
        }
        assert_eq!(rows, 60_175);
        assert_eq!(LineKey { order: 3, line: 2 }.up_to(), "l_orderkey < 3 OR (l_orderkey = 3 AND l_linenumber <= 2)");
    }
}
