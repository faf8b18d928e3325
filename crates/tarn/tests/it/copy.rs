//! Bulk data in and out: every format, both protocols, errors that say where.

use std::sync::Arc;

use arrow::array::{AsArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{SinkExt, TryStreamExt};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use crate::harness::{Server, cell, failure, rows};

async fn table() -> (Server, Client) {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text, n numeric(10,2))").await.unwrap();
    (server, client)
}

async fn copy_in(client: &Client, sql: &str, data: &[u8]) -> Result<u64, Error> {
    let sink = client.copy_in::<_, Bytes>(sql).await?;
    futures::pin_mut!(sink);
    for chunk in data.chunks(1000) {
        sink.send(Bytes::copy_from_slice(chunk)).await?;
    }
    sink.finish().await
}

async fn copy_out(client: &Client, sql: &str) -> Vec<u8> {
    let stream = client.copy_out(sql).await.unwrap();
    let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
    chunks.concat()
}

fn arrow(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

fn batch(keys: impl Iterator<Item = Option<i32>>) -> RecordBatch {
    let keys: Int32Array = keys.collect();
    let texts: StringArray = (0..keys.len()).map(|idx| (idx % 3 != 0).then(|| format!("row {idx}"))).collect();
    let schema = Schema::new(vec![Field::new("k", DataType::Int32, true), Field::new("v", DataType::Utf8, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(keys), Arc::new(texts)]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csv_and_text_in_and_out() {
    let (_server, client) = table().await;
    let csv = "k,v,n\n1,plain,1.50\n2,\"with, comma\",\n3,,2.25\n4,\"\",0\n";
    assert_eq!(copy_in(&client, "COPY t FROM STDIN WITH (FORMAT csv, HEADER true)", csv.as_bytes()).await.unwrap(), 4);
    assert_eq!(
        rows(&client, "SELECT * FROM t ORDER BY k").await,
        [["1", "plain", "1.50"], ["2", "with, comma", "∅"], ["3", "∅", "2.25"], ["4", "", "0.00"]]
    );
    let out = copy_out(&client, "COPY (SELECT * FROM t ORDER BY k) TO STDOUT WITH (FORMAT csv, HEADER true)").await;
    assert_eq!(String::from_utf8(out).unwrap(), "k,v,n\n1,plain,1.50\n2,\"with, comma\",\n3,,2.25\n4,\"\",0.00\n");
    let text = copy_out(&client, "COPY (SELECT k, v FROM t ORDER BY k) TO STDOUT").await;
    assert_eq!(String::from_utf8(text.clone()).unwrap(), "1\tplain\n2\twith, comma\n3\t\\N\n4\t\n");
    client.batch_execute("DELETE FROM t").await.unwrap();
    assert_eq!(copy_in(&client, "COPY t (k, v) FROM STDIN", &text).await.unwrap(), 4);
    assert_eq!(cell(&client, "SELECT count(v) FROM t").await, "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrow_in_and_out() {
    let (_server, client) = table().await;
    let data = arrow(&[batch((0..1500).map(Some)), batch((1500..4000).map(Some))]);
    assert_eq!(copy_in(&client, "COPY t FROM STDIN WITH (FORMAT arrow)", &data).await.unwrap(), 4000);
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "4000");
    let out = copy_out(&client, "COPY (SELECT k FROM t WHERE k < 100) TO STDOUT WITH (FORMAT arrow)").await;
    let batches: Vec<RecordBatch> =
        StreamReader::try_new(out.as_slice(), None).unwrap().collect::<Result<_, _>>().unwrap();
    let mut keys: Vec<i32> =
        batches.iter().flat_map(|b| b.column(0).as_primitive::<Int32Type>().values().to_vec()).collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..100).collect::<Vec<_>>());
    let empty = copy_out(&client, "COPY (SELECT * FROM t LIMIT 0) TO STDOUT WITH (FORMAT arrow)").await;
    let schema = StreamReader::try_new(empty.as_slice(), None).unwrap().schema();
    assert_eq!(schema.fields().len(), 3);
    assert!(!schema.field(0).is_nullable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_row_fails_its_batch_and_says_what_stays() {
    let server = Server::start_with(|settings| settings.sql.copy_batch_rows = 100).await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text, n numeric(10,2))").await.unwrap();
    let mut csv: String = (1..=250).map(|k| format!("{k},x,1\n")).collect();
    csv.push_str("oops,x,1\n");
    let (code, text) = failure(copy_in(&client, "COPY t FROM STDIN WITH (FORMAT csv)", csv.as_bytes()).await);
    assert_eq!(code, "22P02");
    assert!(text.contains("line 251, column k") && text.contains("oops") && text.contains("200 rows"), "{text}");
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "200");

    client.batch_execute("DELETE FROM t").await.unwrap();
    let data = arrow(&[batch((0..100).map(Some)), batch((100..200).map(|k| (k != 150).then_some(k)))]);
    let (code, text) = failure(copy_in(&client, "COPY t FROM STDIN WITH (FORMAT arrow)", &data).await);
    assert_eq!(code, "23502");
    assert!(text.contains("column k") && text.contains("100 rows"), "{text}");
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "100");

    assert_eq!(
        failure(copy_in(&client, "COPY t FROM STDIN WITH (FORMAT arrow)", b"no arrow at all, just text").await).0,
        "22P04"
    );
    assert_eq!(failure(copy_in(&client, "COPY t FROM STDIN WITH (FORMAT parquet)", b"").await).0, "0A000");
    assert_eq!(failure(copy_in(&client, "COPY t (k, nope) FROM STDIN", b"").await).0, "42703");
    assert_eq!(cell(&client, "SELECT 1").await, "1", "the connection stays usable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_copy_writes_nothing_more() {
    let (_server, client) = table().await;
    {
        let sink = client.copy_in::<_, Bytes>("COPY t (k) FROM STDIN").await.unwrap();
        futures::pin_mut!(sink);
        sink.send(Bytes::from_static(b"1\n2\n")).await.unwrap();
        // Dropped without finish: the client sends CopyFail.
    }
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_inside_begin_is_held() {
    let (_server, client) = table().await;
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(copy_in(&client, "COPY t (k) FROM STDIN", b"1\n2\n").await.unwrap(), 2);
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "0");
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(copy_in(&client, "COPY t (k) FROM STDIN", b"1\n2\n").await.unwrap(), 2);
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "2");
}

const PGCOPY: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Rows in the binary format; a cell without bytes is NULL.
fn binary(rows: &[&[Option<&[u8]>]]) -> Vec<u8> {
    let mut out = BytesMut::from(PGCOPY);
    for row in rows {
        out.put_i16(row.len() as i16);
        for cell in *row {
            out.put_i32(cell.map_or(-1, |cell| cell.len() as i32));
            out.put_slice(cell.unwrap_or_default());
        }
    }
    out.put_i16(-1);
    out.to_vec()
}

/// Another implementation of the format writes and reads; the server's own output comes in again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_in_and_out_of_every_type() {
    let server = Server::start().await;
    let client = server.client().await;
    let columns = "(k int PRIMARY KEY, b boolean, s smallint, l bigint, r real, d double precision, n numeric(12, 3), t text, y bytea, \
        da date, ti time, ts timestamp, tz timestamptz, u uuid, j json)";
    client.batch_execute(&format!("CREATE TABLE a {columns}; CREATE TABLE c {columns}")).await.unwrap();
    let values = "(1, true, -7, -9223372036854775808, 1.5, -2.25e300, -123456789.125, 'ünïcödé', '\\x00ff', '1969-07-20', '23:59:59.123456', \
        '2026-02-28 12:30:01.000005', '1901-01-01 00:00Z', '12345678-1234-5678-1234-567812345678', '{\"a\": [1, null]}')";
    client.batch_execute(&format!("INSERT INTO a VALUES {values}; INSERT INTO a (k) VALUES (2)")).await.unwrap();
    let out = copy_out(&client, "COPY (SELECT * FROM a ORDER BY k) TO STDOUT (FORMAT binary)").await;
    assert!(out.starts_with(PGCOPY) && out.ends_with(&[0xff, 0xff]));
    assert_eq!(copy_in(&client, "COPY c FROM STDIN BINARY", &out).await.unwrap(), 2);
    assert_eq!(rows(&client, "SELECT * FROM c ORDER BY k").await, rows(&client, "SELECT * FROM a ORDER BY k").await);
    assert_eq!(copy_out(&client, "COPY c TO STDOUT WITH BINARY").await, out);
    let empty = copy_out(&client, "COPY (SELECT * FROM a WHERE k > 9) TO STDOUT (FORMAT binary)").await;
    assert_eq!(empty, [PGCOPY, &[0xff, 0xff]].concat());

    let sink = client.copy_in("COPY a (k, t, u, d) FROM STDIN (FORMAT binary)").await.unwrap();
    let types = [Type::INT4, Type::TEXT, Type::UUID, Type::FLOAT8];
    let mut writer = std::pin::pin!(BinaryCopyInWriter::new(sink, &types));
    for k in 10..5_010_i32 {
        let (text, id) = ((k % 3 != 0).then(|| format!("row {k}")), uuid::Uuid::from_u128(k as u128));
        let row: [&(dyn ToSql + Sync); 4] = [&k, &text, &id, &(f64::from(k) / 4.0)];
        writer.as_mut().write(&row).await.unwrap();
    }
    assert_eq!(writer.finish().await.unwrap(), 5_000);
    let stream = client.copy_out("COPY (SELECT k, t, u, d FROM a WHERE k >= 10 ORDER BY k) TO STDOUT (FORMAT binary)");
    let read: Vec<_> = BinaryCopyOutStream::new(stream.await.unwrap(), &types).try_collect().await.unwrap();
    assert_eq!(read.len(), 5_000);
    for (row, k) in read.iter().zip(10..) {
        assert_eq!(row.get::<i32>(0), k);
        assert_eq!(row.get::<Option<&str>>(1), (k % 3 != 0).then(|| format!("row {k}")).as_deref());
        assert_eq!(row.get::<uuid::Uuid>(2), uuid::Uuid::from_u128(k as u128));
        assert_eq!(row.get::<f64>(3), f64::from(k) / 4.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_binary_row_says_where_it_is() {
    let server = Server::start_with(|settings| settings.sql.copy_batch_rows = 100).await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text, n numeric(4,2))").await.unwrap();
    let key = |k: i32| k.to_be_bytes();
    let keys: Vec<[u8; 4]> = (1..=250).map(key).collect();
    let good: Vec<[Option<&[u8]>; 3]> = keys.iter().map(|k| [Some(&k[..]), Some(&b"x"[..]), None]).collect();
    let nan = [0, 0, 0, 0, 0xc0, 0, 0, 0];
    let large = [0, 1, 0, 0, 0, 0, 0, 0, 0, 100];
    type Cells<'a> = &'a [Option<&'a [u8]>];
    let cases: [(Cells<'_>, &str, &str); 6] = [
        (&[Some(&[0, 1]), None, None], "22P03", "line 251, column k"),
        (&[None, None, None], "23502", "line 251, column k"),
        (&[Some(&[0, 0, 1, 0]), Some(b"caf\xe9"), None], "22021", "line 251, column v"),
        (&[Some(&[0, 0, 1, 0]), None, Some(&nan)], "22P03", "line 251, column n"),
        (&[Some(&[0, 0, 1, 0]), None, Some(&large)], "22003", "line 251, column n"),
        (&[Some(&[0, 0, 1, 0]), None], "22P04", "line 251"),
    ];
    for (bad, want, place) in cases {
        client.batch_execute("DELETE FROM t").await.unwrap();
        let all: Vec<&[Option<&[u8]>]> = good.iter().map(|row| &row[..]).chain([bad]).collect();
        let (code, text) = failure(copy_in(&client, "COPY t FROM STDIN (FORMAT binary)", &binary(&all)).await);
        assert_eq!(code, want, "{text}");
        assert!(text.contains(place) && text.contains("200 rows"), "{text}");
        assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "200");
    }
    client.batch_execute("DELETE FROM t").await.unwrap();
    let whole = binary(&good.iter().map(|row| &row[..]).collect::<Vec<_>>());
    for (data, place) in
        [(&whole[..whole.len() - 5], "line 250"), (b"1\tx\t1\n", "signature"), (&whole[..15], "missing length")]
    {
        let (code, text) = failure(copy_in(&client, "COPY t FROM STDIN (FORMAT binary)", data).await);
        assert!(code == "22P04" && text.contains(place), "{code} {text}");
    }
    client.batch_execute("DELETE FROM t").await.unwrap();
    // pgx sends no mark of the end.
    assert_eq!(copy_in(&client, "COPY t FROM STDIN (FORMAT binary)", &whole[..whole.len() - 2]).await.unwrap(), 250);
    for refused in ["(FORMAT binary, HEADER)", "(FORMAT binary, DELIMITER ',')", "(FORMAT binary, NULL 'x')"] {
        let sql = format!("COPY t FROM STDIN {refused}");
        assert_eq!(failure(copy_in(&client, &sql, b"").await).0, "42601", "{refused}");
    }
}
