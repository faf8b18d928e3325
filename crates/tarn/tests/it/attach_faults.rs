//! Files of an archive that are not as they should be: columns that no table can have, damage, files that change or go while they are
//! a table. The same answer whatever is asked, or an error that names the file.

use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::harness::{Server, failure, rows};

fn bytes(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, of)| (name, of, true))).unwrap();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn times(at: i64) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(vec![at]).with_timezone("UTC"))
}

fn texts(text: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![text]))
}

fn numbers(n: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![n]))
}

async fn attach(client: &Client, name: &str, dir: &Path, options: &str) {
    client.batch_execute(&format!("ATTACH '{}' AS {name}{options}", dir.display())).await.unwrap();
}

/// By the details that the metastore keeps where it does, and by the files' own footers.
const WAYS: [&str; 2] = ["auto", "off"];

async fn go(client: &Client, way: &str) {
    let pruning = if way == "off" { "off" } else { "on" };
    client.batch_execute(&format!("SET tarn.pruning = '{pruning}'")).await.unwrap();
}

fn archive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..3 {
        let columns =
            vec![("ts", times(n)), ("body", texts("words of a line ".repeat(100).as_str())), ("n", numbers(n))];
        std::fs::write(dir.path().join(format!("{n}.parquet")), bytes(columns)).unwrap();
    }
    dir
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_is_named() {
    let (server, dir) = (Server::start().await, archive());
    let client = server.client().await;
    let path = dir.path().join("1.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4..100].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    attach(&client, "logs", dir.path(), "").await;
    for way in WAYS {
        go(&client, way).await;
        let (state, message) = failure(client.simple_query("SELECT ts, body FROM logs").await);
        assert_eq!(state, "XX001", "{way}: {message}");
        assert!(message.contains("read 1.parquet of table logs: "), "{way}: {message}");
        let (state, message) = failure(client.simple_query("SELECT ts FROM logs WHERE n = 0 AND 1 / n = 1").await);
        assert_eq!(state, "22012", "what is wrong with the statement is no file's: {way}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changed_is_not_one_that_is_gone_or_damaged() {
    let (server, dir) = (Server::start().await, archive());
    let client = server.client().await;
    attach(&client, "logs", dir.path(), "").await;
    let path = dir.path().join("1.parquet");
    // In place, and shorter: what is where a column was, or the footer, is something else, or nothing.
    std::fs::write(&path, bytes(vec![("n", numbers(7))])).unwrap();
    for way in WAYS {
        go(&client, way).await;
        for sql in
            ["SELECT ts, body FROM logs", "SELECT sum(n) FROM logs", "SELECT * FROM logs ORDER BY ts DESC LIMIT 2"]
        {
            let (state, message) = failure(client.simple_query(sql).await);
            assert_eq!(
                (state.as_str(), message.contains("1.parquet changed since")),
                ("55000", true),
                "{way}: {message}"
            );
        }
    }
    std::fs::remove_file(&path).unwrap();
    for way in WAYS {
        go(&client, way).await;
        let (state, message) = failure(client.simple_query("SELECT ts, body FROM logs").await);
        let says = message.contains("1.parquet is gone; CALL tarn.attach('logs')");
        assert_eq!((state.as_str(), says), ("55000", true), "{way}: {message}");
    }
    client.batch_execute("CALL tarn.attach('logs')").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(body) FROM logs").await, [["2"]]);
}
