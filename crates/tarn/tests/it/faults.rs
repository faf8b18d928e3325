//! What a client gets while the row engine's disk fails. Whole servers below injected errors: `tests/io_faults.rs`.

use crate::harness::{Server, cell, failure};

/// Each refused statement was in the log all the same, and in effect after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_cannot_be_applied_is_refused_before_the_log() {
    let server = Server::start_with(|settings| settings.node.background = true).await;
    let client = server.client().await;
    let node = &server.running.node;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)").await.unwrap();
    assert_eq!(node.not_ready(), Vec::<String>::new());
    let entries = || {
        let text = node.metrics_text();
        let line = text.lines().find(|line| line.starts_with("tarn_log_entries_total")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };

    // No file can be made there now.
    let rows = server.dir.path().join("rows");
    std::fs::rename(rows.join("db"), rows.join("away")).unwrap();
    let (state, told) = failure(client.batch_execute("FLUSH TABLE t").await);
    assert_eq!(state, "58030", "{told}");
    let before = entries();
    for write in ["INSERT INTO t VALUES (2, 2)", "UPDATE t SET v = v + 1 WHERE k = 1", "DELETE FROM t"] {
        let (state, told) = failure(client.batch_execute(write).await);
        assert_eq!(state, "58030", "{write}: {told}");
        assert!(told.contains("nothing was written") && told.contains("by itself"), "{told}");
    }
    assert!((entries() - before).abs() < 0.5, "the log took {} entries", entries() - before);
    let reasons = node.not_ready();
    assert!(reasons.iter().any(|reason| reason.starts_with("row engine: ")), "{reasons:?}");
    assert!(node.metrics_text().contains("tarn_engine_faulty 1"));
    assert_eq!(cell(&client, "SELECT v FROM t").await, "1", "reads go on");

    std::fs::rename(rows.join("away"), rows.join("db")).unwrap();
    while !node.not_ready().is_empty() {
        tokio::task::yield_now().await;
    }
    client.batch_execute("INSERT INTO t VALUES (2, 2); FLUSH TABLE t").await.unwrap();
    let text = node.metrics_text();
    assert!(text.contains("tarn_engine_faulty 0") && !text.contains("tarn_heals_total 0"), "{text}");
    let server = server.restart().await;
    assert_eq!(cell(&server.client().await, "SELECT sum(v) FROM t").await, "3");
}
