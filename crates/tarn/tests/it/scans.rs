//! Who asks the door for a range of keys gets its rows, some at a time, wherever they lie: all of them, each once, in
//! the order asked.

use std::ops::Range;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tarn_metastore::prune::{Operator, Predicate};
use tarn_node::auth::Principal;
use tarn_node::catalog::TableHandle;
use tarn_node::error::ErrorKind;
use tarn_node::scan::{ScanRequest, ScanResponse};
use tarn_types::{Direction, TableSchema, Value, encode_key, encode_partition_prefix, prefix_end};

use crate::harness::Server;

/// Rows (a, b) for a of 1 to 3 and b of 1 to 40: some in the row engine, some evicted, some deleted, in two tablets.
async fn filled(kind: &str) -> (Server, Arc<TableHandle>) {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(&format!(
            "CREATE TABLE t (v text, b bigint, a int, PRIMARY KEY (a, b DESC)) WITH ({kind}, hot_retention = '0 seconds');
             INSERT INTO t SELECT 'v' || b.value % 7, b.value, a.value
               FROM generate_series(1, 3) a (value), generate_series(1, 40) b (value);
             CALL tarn.deliver('t'); CALL tarn.evict('t');
             UPDATE t SET v = 'new' WHERE b % 5 = 0;
             DELETE FROM t WHERE b % 9 = 0"
        ))
        .await
        .unwrap();
    let table = server.running.node.catalog().require("t").unwrap();
    (server, table)
}

/// (a, b, v) of all rows, in the order of the key within a partition.
fn model() -> Vec<(i32, i64, String)> {
    let rows = (1..=3).flat_map(|a| (1..=40).rev().map(move |b| (a, b)));
    let v = |b: i64| if b % 5 == 0 { "new".to_owned() } else { format!("v{}", b % 7) };
    rows.filter(|(_, b)| b % 9 != 0).map(|(a, b)| (a, b, v(b))).collect()
}

fn partition(table: &TableSchema, a: i32) -> Range<Vec<u8>> {
    let start = encode_partition_prefix(table, &[Value::Int32(a)]).unwrap();
    let end = prefix_end(&start).unwrap();
    start..end
}

async fn all_rows(server: &Server, table: &TableHandle, mut request: ScanRequest) -> Vec<Vec<Value>> {
    let mut rows = vec![];
    loop {
        let response = server.running.node.tables().scan(&Principal::Nobody, table, &request).await.unwrap();
        assert!(response.rows.len() <= request.limit);
        assert!(response.rows.iter().all(|row| row.seqno.0 > 0));
        rows.extend(response.rows.into_iter().map(|row| row.values));
        match response.rest {
            Some(rest) => request.range = rest,
            None => return rows,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_looked_up_at_once() {
    for kind in ["partitioning = 'range'", "partitioning = 'hash', tablets = 2"] {
        let (server, table) = filled(kind).await;
        let rows = model();
        let mut random = StdRng::seed_from_u64(14);
        for round in 0..40 {
            // Some twice, some that are not there.
            let asked: Vec<(i32, i64)> = (0..random.random_range(0..30))
                .map(|_| (random.random_range(0..=4), random.random_range(-1..=42)))
                .collect();
            let key = |(a, b)| encode_key(table.schema(), &[Value::Int32(a), Value::Int64(b)]).unwrap();
            let keys: Vec<_> = asked.iter().copied().map(key).collect();
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            let found = server.running.node.tables().multi_get(&Principal::Nobody, &table, &keys).await.unwrap();
            let found: Vec<_> = found.into_iter().map(|row| row.map(|row| row.values)).collect();
            let wanted = asked.iter().map(|asked| {
                let row = rows.iter().find(|row| (row.0, row.1) == *asked)?;
                Some(vec![Value::Text(row.2.clone()), Value::Int64(row.1), Value::Int32(row.0)])
            });
            assert_eq!(found, wanted.collect::<Vec<_>>(), "round {round}, {kind}: {asked:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_are_given_some_rows_at_a_time() {
    for kind in ["partitioning = 'range'", "partitioning = 'hash', tablets = 2"] {
        let (server, table) = filled(kind).await;
        let schema = table.schema();
        let column = |name: &str| schema.column(name).unwrap().1.id;
        let mut random = StdRng::seed_from_u64(14);
        for round in 0..60 {
            let a = random.random_range(1..=3);
            let mut wanted: Vec<_> = model().into_iter().filter(|row| row.0 == a).collect();
            let mut request = ScanRequest::all(schema, random.random_range(1..50));
            request.range = partition(schema, a);
            if random.random_bool(0.5) {
                request.direction = Direction::Descending;
                wanted.reverse();
            }
            if random.random_bool(0.5) {
                let bound = random.random_range(0..42);
                request.filter.push(Predicate {
                    column: column("b"),
                    op: Operator::Ge,
                    values: vec![Value::Int64(bound)],
                });
                wanted.retain(|row| row.1 >= bound);
            }
            if random.random_bool(0.3) {
                let values = ["new", "v3"].map(|v| Value::Text(v.into())).to_vec();
                request.filter.push(Predicate { column: column("v"), op: Operator::In, values });
                wanted.retain(|row| row.2 == "new" || row.2 == "v3");
            }
            let found = if random.random_bool(0.5) {
                request.columns = Some(vec![1, 0]);
                all_rows(&server, &table, request.clone()).await
            } else {
                let rows = all_rows(&server, &table, request.clone()).await;
                assert!(rows.iter().all(|row| row[2] == Value::Int32(a)));
                rows.into_iter().map(|row| vec![row[1].clone(), row[0].clone()]).collect()
            };
            let wanted: Vec<_> = wanted.into_iter().map(|(_, b, v)| vec![Value::Int64(b), Value::Text(v)]).collect();
            assert_eq!(found, wanted, "round {round}, {kind}: {request:?}");
        }
        let mut all = all_rows(&server, &table, ScanRequest::all(schema, 7)).await;
        all.sort_by(|x, y| x[2].cmp_same_type(&y[2]).then(y[1].cmp_same_type(&x[1])));
        let wanted = model().into_iter().map(|(a, b, v)| vec![Value::Text(v), Value::Int64(b), Value::Int32(a)]);
        assert_eq!(all, wanted.collect::<Vec<_>>(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_scanned_is_told() {
    let (server, table) = filled("partitioning = 'range'").await;
    let (schema, tables) = (table.schema(), server.running.node.tables());
    let all = || ScanRequest::all(schema, 10);
    let id = schema.column("b").unwrap().1.id;
    let filter = |op, values| vec![Predicate { column: id, op, values }];
    for (request, kind) in [
        (ScanRequest { limit: 0, ..all() }, ErrorKind::Invalid),
        (ScanRequest { columns: Some(vec![0, 3]), ..all() }, ErrorKind::NoColumn),
        (ScanRequest { filter: filter(Operator::Eq, vec![Value::Text("x".into())]), ..all() }, ErrorKind::Invalid),
        (ScanRequest { filter: filter(Operator::Lt, vec![]), ..all() }, ErrorKind::Invalid),
    ] {
        let error = tables.scan(&Principal::Nobody, &table, &request).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let nothing = ScanRequest { range: partition(schema, 9), ..all() };
    let response = tables.scan(&Principal::Nobody, &table, &nothing).await.unwrap();
    assert_eq!(response, ScanResponse { rows: vec![], rest: None });

    let client = server.client().await;
    client.batch_execute("CREATE TABLE l (k int PRIMARY KEY) WITH (append_only = true)").await.unwrap();
    let log = server.running.node.catalog().require("l").unwrap();
    let error = tables.scan(&Principal::Nobody, &log, &ScanRequest::all(log.schema(), 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongObject, "{error}");
    client.batch_execute("CREATE USER root SUPERUSER LOGIN PASSWORD 'r'").await.unwrap();
    let error = tables.scan(&Principal::Nobody, &table, &all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAllowedIn, "{error}");
}
