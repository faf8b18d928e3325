//! What was acknowledged is there after a stop, and after a start that finds no goodbye.

use tarn_raftlog::RaftLog;

use crate::harness::{Server, cell, rows, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_back_after_a_stop() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int) WITH (tablets = 2); CREATE TABLE gone (k int PRIMARY KEY); DROP TABLE gone").await.unwrap();
    client.batch_execute("INSERT INTO t SELECT value, 1 FROM generate_series(1, 100)").await.unwrap();
    client
        .batch_execute("DELIVER TABLE t; UPDATE t SET v = 2 WHERE k <= 10; DELETE FROM t WHERE k > 90")
        .await
        .unwrap();
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, "SELECT count(*), sum(v) FROM t").await, [["90", "100"]]);
    assert_eq!(rows(&client, "SHOW TABLES").await, [["t"]]);
    client.batch_execute("CREATE TABLE gone (k int PRIMARY KEY)").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM gone").await, "0", "the name is free, the rows are gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_closes_the_log() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await.unwrap();
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let (_log, found) = RaftLog::open(tarn_raftlog::Options::new(dir.path().join("log"))).unwrap();
    assert_eq!((found.n_segments, found.n_scanned, found.torn_tail), (1, 0, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unflushed_folder_replays_its_log() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t SELECT value, 1 FROM generate_series(1, 100); DELETE FROM t WHERE k = 7").await.unwrap();
    // A copy of the folder as it is now: what a power loss would leave.
    let copy = tempfile::tempdir().unwrap();
    copy_folder(server.dir.path(), copy.path());
    let running = tarn::server::start(settings(copy.path())).await.unwrap();
    let copied = Server { running, dir: copy };
    let client = copied.client().await;
    assert_eq!(rows(&client, "SELECT count(*), sum(v) FROM t").await, [["99", "99"]]);
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*), sum(v) FROM t").await, [["99", "99"]]);
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
