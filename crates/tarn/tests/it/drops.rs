//! A DROP takes nothing from who reads, a name never stops a delivery, and a table that cannot be delivered leaves room
//! for the others.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use crate::harness::{Server, cell, failure, rows, settings, settings_with};

fn files_below(dir: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let count = |entry: std::fs::DirEntry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 };
    entries.map(|entry| count(entry.unwrap())).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_reads_to_its_end_though_its_table_is_dropped() {
    let server = Server::start_with(|settings| settings.node.lake_row_group_rows = 5_000).await;
    let (reader, other) = (server.client().await, server.client().await);
    reader.batch_execute("CREATE TABLE t (k int PRIMARY KEY, w text)").await.unwrap();
    for part in 0..4 {
        let insert = format!(
            "INSERT INTO t SELECT value + {part} * 20000, 'w' || value FROM generate_series(1, 20000) AS s(value)"
        );
        reader.batch_execute(&insert).await.unwrap();
        reader.batch_execute("DELIVER TABLE t").await.unwrap();
    }
    reader.batch_execute("INSERT INTO t VALUES (100000, 'recent')").await.unwrap();
    reader.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT k FROM t").await.unwrap();
    let mut n = rows(&reader, "FETCH 10 FROM c").await.len();
    let lake = server.dir.path().join("lake/t-1");
    let n_files = files_below(&lake);
    assert!(n_files >= 4);
    other.batch_execute("DROP TABLE t; CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(cell(&other, "SELECT count(*) FROM t").await, "1");
    server.running.node.sweep_dropped().await;
    assert_eq!(files_below(&lake), n_files, "somebody reads them");
    loop {
        let fetched = rows(&reader, "FETCH 7000 FROM c").await.len();
        n += fetched;
        if fetched == 0 {
            break;
        }
    }
    assert_eq!(n, 80_001);
    reader.batch_execute("COMMIT").await.unwrap();
    // The stream's task ends by itself, which is not told to anybody.
    for _ in 0..100_000 {
        server.running.node.sweep_dropped().await;
        if files_below(&lake) == 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(files_below(&lake), 0, "nobody reads them any more");
    let server = server.restart().await;
    assert_eq!(cell(&server.client().await, "SELECT count(*) FROM t").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_dropped_table_go_after_a_restart_when_its_reader_ended_with_the_server() {
    let server = Server::start().await;
    let (reader, other) = (server.client().await, server.client().await);
    reader.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    reader
        .batch_execute("INSERT INTO t SELECT value FROM generate_series(1, 60000) AS s(value); DELIVER TABLE t")
        .await
        .unwrap();
    reader.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT k FROM t; FETCH 1 FROM c").await.unwrap();
    other.batch_execute("DROP TABLE t").await.unwrap();
    let lake = server.dir.path().join("lake/t-1");
    assert!(files_below(&lake) > 0);
    let server = server.restart().await;
    server.running.node.sweep_dropped().await;
    assert_eq!(files_below(&lake), 0);
    drop(reader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_cannot_be_noted_leaves_a_name_that_can_be_dropped() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE other (k int PRIMARY KEY); INSERT INTO other VALUES (1)").await.unwrap();
    // Once it is begun, the ledger cannot be written any more. Tables of other tests come by here, too.
    let [ledger, in_its_way] = ["LEDGER", "LEDGER.new"].map(|name| server.dir.path().join(name));
    let making = in_its_way.clone();
    let get_in_its_way = move || {
        let is_begun =
            String::from_utf8_lossy(&std::fs::read(&ledger).unwrap_or_default()).contains("\"creating\":[\"t\"]");
        if is_begun {
            let _ = std::fs::create_dir(&making);
        }
    };
    fail::cfg_callback("drops::made", get_in_its_way).unwrap();
    let (state, text) = failure(client.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await);
    fail::remove("drops::made");
    assert_eq!(state, "58030", "{text}");
    for part in ["LEDGER", "is half made", "DROP TABLE t"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    std::fs::remove_dir(&in_its_way).unwrap();
    let (state, text) = failure(client.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await);
    assert!(state == "42P07" && text.contains("stopped half-way"), "{text}");
    client.batch_execute("DROP TABLE t; CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (2)").await.unwrap();
    let server = server.restart().await;
    assert_eq!(rows(&server.client().await, "SELECT * FROM other, t").await, [["1", "2"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_gone_from_the_metastore_behind_its_back_is_refused_not_removed() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1)").await.unwrap();
    let drop = tarn_metastore::Definition::Drop { name: "t".to_owned() };
    server.running.node.metastore().define(drop).await.unwrap();
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let refused = tarn::server::start(settings(dir.path())).await.err().unwrap();
    assert!(refused.message().contains("tables \"t\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_too_long_is_refused_and_one_of_63_bytes_is_delivered() {
    let server = Server::start().await;
    let client = server.client().await;
    let long = "c".repeat(300);
    for statement in [
        format!("CREATE TABLE \"{long}\" (k int PRIMARY KEY)"),
        format!("CREATE TABLE t (k int PRIMARY KEY, \"{long}\" int)"),
        format!("CREATE TABLE \"{}\" (k int PRIMARY KEY)", "é".repeat(32)),
        format!("ATTACH '/nowhere' AS \"{long}\""),
    ] {
        let (state, text) = failure(client.batch_execute(&statement).await);
        assert_eq!(state, "42622", "{text}");
        assert!(text.contains("63 is the most"), "{text}");
    }
    let names = [
        "c".repeat(63),
        "é".repeat(31),
        "\u{1F600}".repeat(15),
        "..".to_owned(),
        "a/b%2f\\:*?".to_owned(),
        "T".to_owned(),
        "t".to_owned(),
    ];
    for (idx, name) in names.iter().enumerate() {
        client.batch_execute(&format!("CREATE TABLE \"{name}\" (\"{name}\" int PRIMARY KEY)")).await.unwrap();
        client
            .batch_execute(&format!("INSERT INTO \"{name}\" VALUES ({idx}); DELIVER TABLE \"{name}\""))
            .await
            .unwrap();
    }
    let server = server.restart().await;
    let client = server.client().await;
    for (idx, name) in names.iter().enumerate() {
        assert_eq!(cell(&client, &format!("SELECT \"{name}\" FROM \"{name}\"")).await, idx.to_string());
        client.batch_execute(&format!("DROP TABLE \"{name}\"")).await.unwrap();
    }
    assert_eq!(files_below(&server.dir.path().join("lake")), 0);
}

async fn readyz(server: &Server) -> String {
    let address = server.running.http.unwrap();
    let ask = move || {
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        write!(socket, "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_cannot_be_delivered_leaves_room_for_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let small = settings_with(dir.path(), |settings| {
        settings.node.recent_limit_bytes = 1 << 20;
        settings.node.write_wait_ms = 5_000;
        settings.node.background = true;
        settings.node.background_interval_ms = 20;
    });
    let server = Server { running: tarn::server::start(small).await.unwrap(), dir };
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE bad (k int PRIMARY KEY, w text); CREATE TABLE good (k int PRIMARY KEY, w text)")
        .await
        .unwrap();
    // A file where its folder should be.
    let in_its_way = server.dir.path().join("lake/bad-1");
    std::fs::write(&in_its_way, b"").unwrap();
    let insert = |table: &str, n: usize| {
        format!(
            "INSERT INTO {table} SELECT value + {n} * 1000, repeat('w', 100) FROM generate_series(1, 500) AS s(value)"
        )
    };
    let mut n = 0;
    let (state, text) = loop {
        n += 1;
        assert!(n < 1000, "it was never refused");
        let done = client.batch_execute(&insert("bad", n)).await;
        if done.is_err() {
            break failure(done);
        }
    };
    assert_eq!(state, "53400", "{text}");
    for part in ["table \"bad\" cannot be delivered since", "bad-1", "half of the limit", "other tables are written"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Several times the limit.
    for n in 0..40 {
        let mut tries = 0;
        // A busy machine may not deliver them within the time that a write waits; some time later it has.
        while let Err(error) = client.batch_execute(&insert("good", n)).await {
            tries += 1;
            assert!(tries < 10, "{error:?}");
        }
    }
    assert_eq!(cell(&client, "SELECT count(*) FROM good").await, "20000");
    let answer = readyz(&server).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("degraded: table \"bad\" is not delivered since"), "{answer}");
    let metrics = server.running.sql.metrics_text();
    assert!(metrics.contains("tarn_delivery_failing{table=\"bad\"} 1"), "{metrics}");
    std::fs::remove_file(&in_its_way).unwrap();
    client.batch_execute("CALL tarn.deliver('bad')").await.unwrap();
    client.batch_execute(&insert("bad", n)).await.unwrap();
    assert!(!server.running.sql.metrics_text().contains("tarn_delivery_failing{"));
    assert!(!readyz(&server).await.contains("degraded"));
    server.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_delivery_names_its_cause() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1)").await.unwrap();
    std::fs::write(server.dir.path().join("lake/t-1"), b"").unwrap();
    let (state, text) = failure(client.batch_execute("CALL tarn.deliver('t')").await);
    assert_eq!(state, "58030", "{text}");
    assert!(text.contains("t-1") && text.contains("irectory"), "the cause in {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_folder_is_for_its_user_alone() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let mode = || std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777;
    tarn::server::start(settings(&dir)).await.unwrap().stop().await.unwrap();
    assert_eq!(mode(), 0o700);
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    tarn::server::start(settings(&dir)).await.unwrap().stop().await.unwrap();
    assert_eq!(mode(), 0o700, "one that was open is narrowed");
}
