//! A server and its metastore: a copy of it serves as well, another one is refused, and what it says of files is kept
//! near.

use std::path::Path;
use std::sync::Arc;

use tarn::server::start;
use tarn_metastore::Embedded;
use tarn_node::clock::SystemClock;

use crate::harness::{Server, cell, rows, settings};

pub const ANSWERS: &str = "SELECT count(*), sum(v), min(w), max(k) FROM t";

pub async fn stopped_with_rows() -> (tempfile::TempDir, Vec<Vec<String>>) {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int, w text) WITH (partitioning = 'hash', tablets = 2)")
        .await
        .unwrap();
    client
        .batch_execute("INSERT INTO t SELECT value, 1, 'w' || value FROM generate_series(1, 100) AS s(value)")
        .await
        .unwrap();
    client.batch_execute("DELIVER TABLE t; UPDATE t SET v = 2 WHERE k <= 10; DELIVER TABLE t").await.unwrap();
    client.batch_execute("DELETE FROM t WHERE k > 90; INSERT INTO t VALUES (1000, 7, 'a')").await.unwrap();
    let answers = rows(&client, ANSWERS).await;
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    (dir, answers)
}

fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, Arc::new(SystemClock::default())).unwrap().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_goes_on_with_a_copy_of_its_metastore() {
    let (dir, answers) = stopped_with_rows().await;
    let (meta, old) = (dir.path().join("meta"), dir.path().join("old"));
    std::fs::rename(&meta, &old).unwrap();
    tarn_metastore::copy(&open(&old), &open(&meta), &|_| {}).await.unwrap();
    std::fs::remove_dir_all(&old).unwrap();
    let server = Server { running: start(settings(dir.path())).await.unwrap(), dir };
    let client = server.client().await;
    assert_eq!(rows(&client, ANSWERS).await, answers);
    client.batch_execute("SET tarn.access_path = 'lake'").await.unwrap();
    assert_eq!(rows(&client, ANSWERS).await, answers);
    // Ids, versions and cursor are what the rows speak of.
    client
        .batch_execute("DELIVER TABLE t; CREATE TABLE u (k int PRIMARY KEY); DELETE FROM t WHERE k = 1000")
        .await
        .unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "90");
    let server = server.restart().await;
    assert_eq!(cell(&server.client().await, "SELECT count(*) FROM t").await, "90");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metastore_that_knows_nothing_of_the_rows_is_refused_and_they_stay() {
    let (dir, answers) = stopped_with_rows().await;
    let mark = dir.path().join("METASTORE");
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "embedded\n");
    let (meta, kept) = (dir.path().join("meta"), dir.path().join("kept"));
    std::fs::write(&mark, "postgres://tarn@elsewhere/db\n").unwrap();
    std::fs::rename(&meta, &kept).unwrap();
    let refused = start(settings(dir.path())).await.err().unwrap();
    assert_eq!(refused.state(), "55000");
    let text = format!("{} {}", refused.message(), refused.hint().unwrap_or_default());
    for part in ["2 tablets", "`embedded`", "postgres://tarn@elsewhere/db", "tarn metastore copy"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "postgres://tarn@elsewhere/db\n");
    // With all tables known it starts, wherever it was before.
    std::fs::remove_dir_all(&meta).unwrap();
    std::fs::rename(&kept, &meta).unwrap();
    let server = Server { running: start(settings(dir.path())).await.unwrap(), dir };
    assert_eq!(rows(&server.client().await, ANSWERS).await, answers);
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "embedded\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_metastore_a_folder_is_refused_and_the_rows_stay() {
    let (dir, answers) = stopped_with_rows().await;
    let [meta, kept, mark] = ["meta", "kept", "METASTORE"].map(|name| dir.path().join(name));
    std::fs::rename(&meta, &kept).unwrap();
    // Missing; empty, as a folder on which nothing is mounted; by a build that kept no mark.
    for step in 0..3 {
        match step {
            1 => std::fs::create_dir(&meta).unwrap(),
            2 => std::fs::remove_file(&mark).unwrap(),
            _ => {}
        }
        let refused = start(settings(dir.path())).await.err().unwrap_or_else(|| panic!("step {step} started"));
        assert_eq!(refused.state(), "55000", "{refused}");
        let text = format!("{} {}", refused.message(), refused.hint().unwrap_or_default());
        for part in [&*dir.path().display().to_string(), "put `meta` back", "To begin anew, move `log` and `rows` away"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!meta.is_dir() || meta.read_dir().unwrap().next().is_none(), "nothing was made there");
    }
    std::fs::remove_dir(&meta).unwrap();
    std::fs::rename(&kept, &meta).unwrap();
    let server = Server { running: start(settings(dir.path())).await.unwrap(), dir };
    assert_eq!(rows(&server.client().await, ANSWERS).await, answers);

    // What the error says of a new beginning.
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    for name in ["meta", "log", "rows", "lake"] {
        std::fs::remove_dir_all(dir.path().join(name)).unwrap();
    }
    let server = Server { running: start(settings(dir.path())).await.unwrap(), dir };
    assert!(rows(&server.client().await, "SHOW TABLES").await.is_empty());
    // A crash within the first start leaves a log of nothing.
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    std::fs::remove_dir_all(dir.path().join("meta")).unwrap();
    std::fs::remove_file(dir.path().join("METASTORE")).unwrap();
    start(settings(dir.path())).await.unwrap().stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_that_no_backend_has_is_named_without_its_password() {
    let dir = tempfile::tempdir().unwrap();
    let mut elsewhere = settings(dir.path());
    elsewhere.node.metastore = "mystore://me:secret@h/db".to_owned();
    let refused = start(elsewhere).await.err().unwrap();
    assert_eq!(refused.state(), "22023");
    assert!(refused.message().contains("setting `metastore`: `mystore://me@h/db`"), "{refused}");
    assert!(!refused.message().contains("secret"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_files_is_kept_and_counted() {
    let (dir, _) = stopped_with_rows().await;
    let server = Server { running: start(settings(dir.path())).await.unwrap(), dir };
    let client = server.client().await;
    client.batch_execute("SET tarn.access_path = 'lake'").await.unwrap();
    let figure = |name: &str| {
        let text = server.running.sql.metrics_text();
        let name = format!("tarn_cache_{name}{{layer=\"metadata\",");
        let line = text.lines().find(|line| line.starts_with(&name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    cell(&client, "SELECT sum(v) FROM t").await;
    let (hits, misses) = (figure("hits_total"), figure("misses_total"));
    assert!(hits == 0 && misses > 0 && figure("bytes") > 0);
    cell(&client, "SELECT sum(v) FROM t").await;
    assert_eq!((figure("hits_total"), figure("misses_total")), (misses, misses));
    // Changes of delivered rows read no footer.
    let footers = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("tarn_cache_misses_total{layer=\"footers\",")).unwrap();
        line.to_owned()
    };
    let before = footers(&server.running.sql.metrics_text());
    client.batch_execute("UPDATE t SET v = v + 1 WHERE w = 'w50'; DELETE FROM t WHERE w = 'w51'").await.unwrap();
    assert_eq!(footers(&server.running.sql.metrics_text()), before);
}
