//! Files of an archive that are not as they should be: columns that no table can have, damage, files that change or go
//! while they are a table. The same answer whatever is asked, or an error that names the file.

use std::path::Path;
use std::sync::Arc;

use arrow::array::types::{Int64Type, IntervalDayTime};
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

/// By the block metadata that the metastore keeps where it does, and by the files' own footers.
const WAYS: [&str; 2] = ["auto", "off"];

async fn go(client: &Client, way: &str) {
    let pruning = if way == "off" { "off" } else { "on" };
    client.batch_execute(&format!("SET tarn.pruning = '{pruning}'")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_are_left_out_are_null_whatever_is_asked() {
    let (server, dir) = (Server::start().await, tempfile::tempdir().unwrap());
    let client = server.client().await;
    let put = |name: &str, columns| std::fs::write(dir.path().join(name), bytes(columns)).unwrap();
    put("a.parquet", vec![("ts", times(1)), ("body", texts("timeout")), ("x", numbers(1)), ("y", numbers(7))]);
    let twice = || vec![("body", texts("left timeout")), ("body", texts("right needle"))];
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), Some(2)])]);
    let mut columns = vec![("ts", times(2)), ("x", Arc::new(list) as ArrayRef), ("y", numbers(8))];
    columns.extend(twice());
    put("b.parquet", columns);
    let interval = IntervalDayTimeArray::from(vec![IntervalDayTime::new(1, 2)]);
    let structs = StructArray::try_from(vec![("x", numbers(3))]).unwrap();
    put(
        "c.parquet",
        vec![("ts", times(3)), ("x", Arc::new(interval)), ("y", Arc::new(structs)), ("body", texts("ok"))],
    );
    // Of which no column is left.
    put("d.parquet", twice());
    attach(&client, "odd", dir.path(), " WITH (tokens = 'body', bloom = 'x')").await;
    let notes: Vec<String> =
        rows(&client, "SELECT reason FROM tarn.attach_errors ORDER BY path").await.into_iter().flatten().collect();
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[0].contains("x (nested)") && notes[0].contains("body (the name comes twice)"), "{notes:?}");

    for way in WAYS {
        go(&client, way).await;
        for (sql, want) in [
            ("SELECT body FROM odd ORDER BY ts", "timeout,∅,ok,∅"),
            ("SELECT x FROM odd ORDER BY ts", "1,∅,∅,∅"),
            ("SELECT y FROM odd ORDER BY ts", "7,8,∅,∅"),
            ("SELECT body || '/' || coalesce(x, 0) FROM (SELECT * FROM odd) ORDER BY ts", "timeout/1,∅,ok/0,∅"),
            ("SELECT count(*) FROM odd", "4"),
            ("SELECT count(x) FROM odd", "1"),
            ("SELECT sum(x) FROM odd", "1"),
            ("SELECT sum(y) FROM odd WHERE x IS NULL", "8"),
            ("SELECT count(*) FROM odd WHERE x > 0", "1"),
            ("SELECT count(*) FROM odd WHERE x = 1", "1"),
            ("SELECT count(*) FROM odd WHERE x IS NULL", "3"),
            ("SELECT count(*) FROM odd WHERE y IS NULL", "2"),
            ("SELECT count(*) FROM odd WHERE body IS NULL", "2"),
            ("SELECT count(*) FROM odd WHERE body LIKE '%timeout%'", "1"),
            ("SELECT count(*) FROM odd WHERE matches(body, 'timeout')", "1"),
            ("SELECT count(*) FROM odd WHERE matches(body, 'needle')", "0"),
            ("SELECT count(*) FROM odd WHERE body LIKE '%needle%'", "0"),
        ] {
            let got: Vec<String> = rows(&client, sql).await.into_iter().flatten().collect();
            assert_eq!(got.join(","), want, "{way}: {sql}");
        }
    }
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
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changed_is_not_one_that_is_gone_or_damaged() {
    let (server, dir) = (Server::start().await, archive());
    let client = server.client().await;
    attach(&client, "logs", dir.path(), "").await;
    for way in WAYS {
        go(&client, way).await;
        let (state, message) = failure(client.simple_query("SELECT ts FROM logs WHERE n = 0 AND 1 / n = 1").await);
        assert_eq!(state, "22012", "what is wrong with the statement is no file's: {way}: {message}");
    }
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

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_to_a_folder_above_is_not_followed() {
    let (server, dir) = (Server::start().await, archive());
    let client = server.client().await;
    std::fs::create_dir(dir.path().join("below")).unwrap();
    std::fs::copy(dir.path().join("2.parquet"), dir.path().join("below/3.parquet")).unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("below/loop")).unwrap();
    std::os::unix::fs::symlink("self", dir.path().join("self")).unwrap();
    attach(&client, "logs", dir.path(), "").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM logs").await, [["4"]]);
}
