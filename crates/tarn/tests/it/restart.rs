//! What was acknowledged is there after a stop, and after a start that finds no goodbye.

use tarn::settings::LogRecovery;
use tarn_raftlog::RaftLog;

use crate::harness::{Server, cell, failure, rows, settings, settings_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_back_after_a_stop() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int) WITH (partitioning = 'hash', tablets = 2); CREATE TABLE gone (k int PRIMARY KEY); DROP TABLE gone").await.unwrap();
    client.batch_execute("INSERT INTO t SELECT value, 1 FROM generate_series(1, 100) AS s(value)").await.unwrap();
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
async fn a_damaged_log_is_refused_or_opened_by_choice() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE hurt (k int PRIMARY KEY); CREATE TABLE whole (k int PRIMARY KEY)")
        .await
        .unwrap();
    for k in 1..=4 {
        client.batch_execute(&format!("INSERT INTO hurt VALUES ({k})")).await.unwrap();
        client.batch_execute(&format!("INSERT INTO whole VALUES ({k})")).await.unwrap();
    }
    let copy = tempfile::tempdir().unwrap();
    copy_folder(server.dir.path(), copy.path());
    // The third row of one table: each statement was a frame, each frame is a block, and two blocks come before them.
    let segment = copy.path().join("log/0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let third = 8192 + 4 * 4096;
    assert_eq!(bytes[third..third + 4], *b"TFRM");
    bytes[third + 70] ^= 1;
    std::fs::write(&segment, bytes).unwrap();

    let refused = tarn::server::start(settings(copy.path())).await.err().unwrap();
    assert_eq!(refused.state(), "XX001", "{refused}");
    assert!(refused.message().contains(&format!("{} at byte {third}", segment.display())), "{refused}");
    assert!(refused.hint().unwrap().contains("log_recovery = 'quarantine'"), "{:?}", refused.hint());

    let chosen = settings_with(copy.path(), |settings| settings.node.log_recovery = LogRecovery::Quarantine);
    let opened = Server { running: tarn::server::start(chosen).await.unwrap(), dir: copy };
    let client = opened.client().await;
    let damage = "SELECT table_name, damage FROM tarn.tables ORDER BY table_name";
    let lost =
        |tablet: u32, from: u32| format!("the log lost what was acknowledged of tablet {tablet}, from entry {from} on");
    assert_eq!(rows(&client, damage).await, [["hurt".to_owned(), lost(1, 3)], ["whole".to_owned(), lost(4097, 5)]]);
    assert_eq!(rows(&client, "SELECT count(*), max(k) FROM hurt").await, [["2", "2"]]);
    assert_eq!(cell(&client, "SELECT count(*) FROM whole").await, "4");
    for statement in ["INSERT INTO whole VALUES (9)", "DELETE FROM hurt WHERE k = 1", "DELIVER TABLE hurt"] {
        let (state, message) = failure(client.batch_execute(statement).await);
        assert_eq!(state, "XX001", "{statement}: {message}");
        assert!(message.contains("is read-only: the log lost"), "{statement}: {message}");
    }
    client
        .batch_execute("DROP TABLE hurt; CREATE TABLE hurt (k int PRIMARY KEY); INSERT INTO hurt VALUES (3)")
        .await
        .unwrap();

    // It is known from now on, and no reason to refuse any more.
    let opened = opened.restart().await;
    let client = opened.client().await;
    assert_eq!(rows(&client, damage).await, [["hurt".to_owned(), "∅".to_owned()], ["whole".to_owned(), lost(4097, 5)]]);
    assert_eq!(cell(&client, "SELECT k FROM hurt").await, "3");
    assert_eq!(cell(&client, "SELECT count(*) FROM whole").await, "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_only_replay_finds_is_refused_or_lived_with_too() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY); CREATE TABLE other (k int PRIMARY KEY)").await.unwrap();
    for k in 1..=3 {
        client.batch_execute(&format!("INSERT INTO t VALUES ({k})")).await.unwrap();
    }
    client.batch_execute("INSERT INTO other VALUES (1)").await.unwrap();
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    // Of a segment that is sealed only the seal is read when the log is opened.
    let segment = dir.path().join("log/0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let second = 8192 + 4096;
    let last_byte = second + bytes[second..second + 4096].iter().rposition(|&byte| byte != 0).unwrap();
    bytes[last_byte] ^= 1;
    std::fs::write(&segment, bytes).unwrap();

    let refused = tarn::server::start(settings(dir.path())).await.err().unwrap();
    assert_eq!(refused.state(), "XX001", "{refused}");
    assert!(refused.message().starts_with("open table \"t\": "), "{refused}");
    assert!(refused.message().contains(&segment.display().to_string()), "{refused}");
    assert!(refused.hint().unwrap().contains("log_recovery = 'quarantine'"), "{:?}", refused.hint());

    let chosen = settings_with(dir.path(), |settings| settings.node.log_recovery = LogRecovery::Quarantine);
    let opened = Server { running: tarn::server::start(chosen).await.unwrap(), dir };
    let client = opened.client().await;
    let damage = "SELECT table_name FROM tarn.tables WHERE damage IS NOT NULL";
    assert_eq!(rows(&client, damage).await, [["t"]]);
    let (state, message) = failure(client.batch_execute("INSERT INTO t VALUES (4)").await);
    assert_eq!(state, "XX001", "{message}");
    assert_eq!(cell(&client, "SELECT k FROM t WHERE k = 1").await, "1");
    client.batch_execute("INSERT INTO other VALUES (2)").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM other").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_whose_log_is_gone_is_refused_or_can_be_dropped() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TABLE other (k int PRIMARY KEY)",
        )
        .await
        .unwrap();
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();

    let refused = tarn::server::start(settings(dir.path())).await.err().unwrap();
    assert_eq!(refused.state(), "55000", "{refused}");
    assert!(refused.message().contains("has tables \"t\", \"other\", and nothing of `log` is there"), "{refused}");
    assert!(refused.hint().unwrap().contains("log_recovery = 'quarantine'"), "{:?}", refused.hint());

    let chosen = settings_with(dir.path(), |settings| settings.node.log_recovery = LogRecovery::Quarantine);
    let opened = Server { running: tarn::server::start(chosen).await.unwrap(), dir };
    let client = opened.client().await;
    assert_eq!(rows(&client, "SHOW TABLES").await, [["other"]]);
    client
        .batch_execute(
            "INSERT INTO other VALUES (1); DROP TABLE t; CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (2)",
        )
        .await
        .unwrap();
    assert_eq!(failure(client.batch_execute("DROP TABLE nothing").await).0, "42P01");
    let opened = opened.restart().await;
    let client = opened.client().await;
    assert_eq!(cell(&client, "SELECT k FROM t").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unflushed_folder_replays_its_log() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t SELECT value, 1 FROM generate_series(1, 100) AS s(value); DELETE FROM t WHERE k = 7").await.unwrap();
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

/// They are opened several at a time, and their workers stop all at once, wherever they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_tables_than_are_opened_at_once_are_back_after_a_stop() {
    const N_TABLES: usize = 40;
    let server = Server::start_with(|settings| {
        settings.node.background = true;
        settings.node.background_interval_ms = 5;
    })
    .await;
    let client = server.client().await;
    for n in 0..N_TABLES {
        let create = format!("CREATE TABLE t{n:02} (k int PRIMARY KEY) WITH (delivery = '5 ms')");
        client.batch_execute(&format!("{create}; INSERT INTO t{n:02} VALUES ({n})")).await.unwrap();
    }
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let running = tarn::server::start(settings(dir.path())).await.unwrap();
    let server = Server { running, dir };
    let client = server.client().await;
    for n in 0..N_TABLES {
        assert_eq!(cell(&client, &format!("SELECT k FROM t{n:02}")).await, n.to_string());
    }
}
