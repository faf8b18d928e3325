//! A table of 20,000 columns: ten of them cost what ten cost.

use tarn_query::Options;
use tarn_types::{DataType, KeyPart, TableId, TableOptions, TableSchema, TabletId, Value};

use crate::block_metadata::KeptMetadata;
use crate::fixture::{Fixture, column};

const N_COLUMNS: u32 = 20_000;

#[tokio::test]
async fn ten_of_20_000_columns_are_ten_records() {
    let mut columns = vec![column(1, "id", DataType::Int64)];
    columns[0].nullable = false;
    columns.extend((2..=N_COLUMNS).map(|id| column(id, &format!("c{id}"), DataType::Int64)));
    let schema = TableSchema {
        id: TableId(1),
        name: "t".to_owned(),
        columns,
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(1),
        options: TableOptions::default(),
    };
    let fixture = Fixture::keeping(schema, Options::default(), KeptMetadata::Metadata).await;
    for id in 0..2 {
        fixture.table.put((0..N_COLUMNS).map(|column| Value::Int64(i64::from(column) + id)).collect());
    }
    fixture.table.deliver().await;
    fixture.set("tarn.access_path", "lake").await;
    fixture.metastore.take();
    fixture.store.take();
    let sql = "SELECT id, c11, c20000, c300, c301, c302, c303, c7000 FROM t WHERE c19999 > 19998 AND c5 < 100";
    assert_eq!(fixture.rows(sql).await, ["1|11|20000|300|301|302|303|7000"]);
    assert_eq!(fixture.metastore.take(), ["stats 1x2", "chunks 1x10"]);
    let read: u64 = fixture.store.take().into_iter().map(|(_, range)| range.end - range.start).sum();
    assert!(read < 10_000, "{read} bytes of ten columns");
}
