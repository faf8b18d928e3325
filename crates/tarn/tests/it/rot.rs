//! Bit rot in the lake, as clients see it: the right rows, or an error that names the file; never another row, nor a
//! row less.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::harness::{Server, cell, failure, rows, settings_with};

/// What is asked, by any way that reads files. Keys 1 to 300 were evicted: they are fetched by address.
const QUESTIONS: [&str; 8] = [
    "SELECT * FROM t ORDER BY k",
    "SELECT s FROM t ORDER BY k",
    "SELECT count(*), sum(n), min(s), max(d) FROM t",
    "SELECT count(*) FROM t",
    "SELECT * FROM t WHERE k = 7",
    "SELECT n, s FROM t WHERE k IN (3, 150, 299) ORDER BY k",
    "SELECT k FROM t WHERE s LIKE '%77%' ORDER BY k",
    "SELECT n % 7, count(*) FROM t WHERE k > 100 GROUP BY 1 ORDER BY 1",
];

/// Two files of three blocks of 50 rows.
async fn with_table(client: &Client) {
    let create = "CREATE TABLE t (k int PRIMARY KEY, n bigint, s text, d double precision)";
    client.batch_execute(create).await.unwrap();
    for from in [1, 151] {
        let insert = format!(
            "INSERT INTO t SELECT value, value * 1000003 % 7919, md5(CAST(value AS text)), value / 7.0 \
             FROM generate_series({from}, {}) AS s(value); DELIVER TABLE t",
            from + 149
        );
        client.batch_execute(&insert).await.unwrap();
    }
    client.batch_execute("CALL tarn.evict('t')").await.unwrap();
}

async fn answer(client: &Client, sql: &str) -> Result<Vec<String>, (String, String)> {
    match client.simple_query(sql).await {
        Ok(messages) => Ok(messages
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|idx| row.get(idx).unwrap_or("∅")).collect::<Vec<_>>().join("|"))
                }
                _ => None,
            })
            .collect()),
        Err(error) => Err(failure::<()>(Err(error))),
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1 << (at % 8);
    std::fs::write(path, bytes).unwrap();
}

async fn files(server: &Server, client: &Client) -> Vec<PathBuf> {
    let paths = rows(client, "SELECT path FROM tarn.files WHERE table_name = 't' ORDER BY file_id").await;
    paths.iter().map(|row| server.dir.path().join("lake").join(&row[0])).collect()
}

fn is_named(error: &(String, String), file: &Path) -> bool {
    error.0 == "XX001" && error.1.contains(file.file_name().unwrap().to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_of_a_lake_file_never_becomes_an_answer() {
    for cache_local in [false, true] {
        let server = Server::start_with(|settings| {
            settings.node.lake_row_group_rows = 50;
            settings.node.cache_local = cache_local;
        })
        .await;
        let client = server.client().await;
        with_table(&client).await;
        let file = files(&server, &client).await[1].clone();
        let whole = std::fs::read(&file).unwrap();
        let mut truth = BTreeMap::new();
        for sql in QUESTIONS {
            truth.insert(sql, answer(&client, sql).await.unwrap());
        }
        let paths = ["auto", "lake"];
        let (mut refused, mut answered) = (0, 0);
        // Magic, dictionaries, pages, page index and footer: files are small, so that steps meet all of them.
        let step = whole.len() / 23;
        for (nth, at) in (0..whole.len()).step_by(step).chain([whole.len() - 1]).enumerate() {
            flip(&file, at);
            let pages = if nth % 2 == 0 { "on" } else { "off" };
            let set =
                format!("SYSTEM DROP CACHE; SET tarn.cache.pages = {pages}; SET tarn.access_path = {}", paths[nth % 2]);
            client.batch_execute(&set).await.unwrap();
            for sql in QUESTIONS {
                match answer(&client, sql).await {
                    Ok(rows) => {
                        assert_eq!(rows, truth[sql], "byte {at}: {sql}");
                        answered += 1;
                    }
                    Err(error) => {
                        assert!(is_named(&error, &file), "byte {at}: {sql}: {error:?}");
                        refused += 1;
                    }
                }
            }
            // What changes rows reads them, too.
            client.batch_execute("SET tarn.access_path = auto").await.unwrap();
            for sql in ["UPDATE t SET n = n WHERE k = 200", "DELETE FROM t WHERE s = 'no such text'"] {
                if let Err(error) = answer(&client, sql).await {
                    assert!(is_named(&error, &file), "byte {at}: {sql}: {error:?}");
                }
            }
            std::fs::write(&file, &whole).unwrap();
            for sql in QUESTIONS {
                assert_eq!(answer(&client, sql).await.as_ref(), Ok(&truth[sql]), "byte {at} is right again: {sql}");
            }
        }
        assert!(refused > 20 && answered > 20, "{refused} refused, {answered} answered");
        server.running.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_blocks_of_a_damaged_file_are_answered_from() {
    let server = Server::start_with(|settings| {
        settings.node.lake_row_group_rows = 50;
        settings.node.cache_local = true;
    })
    .await;
    let client = server.client().await;
    with_table(&client).await;
    let file = files(&server, &client).await[1].clone();
    let blocks =
        rows(&client, "SELECT key_min FROM tarn.blocks WHERE table_name = 't' ORDER BY file_id, row_group").await;
    assert_eq!(blocks.len(), 6, "{blocks:?}");
    client.batch_execute("SET tarn.access_path = 'lake'; SYSTEM DROP CACHE").await.unwrap();
    // In the first block of the second file.
    flip(&file, 30);
    let error = answer(&client, "SELECT sum(n) FROM t WHERE k BETWEEN 151 AND 200").await.unwrap_err();
    assert!(is_named(&error, &file), "{error:?}");
    assert!(error.1.contains("(block 0, columns k, n, s, d, __seqno)"), "{error:?}");
    for range in ["1 AND 150", "201 AND 250", "251 AND 300"] {
        let count = format!("SELECT count(n) FROM t WHERE k BETWEEN {range}");
        assert!(["150", "50"].contains(&cell(&client, &count).await.as_str()), "{range}");
    }
    server.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_does_not_make_rot_permanent() {
    let server = Server::start().await;
    let client = server.client().await;
    with_table(&client).await;
    let before = files(&server, &client).await;
    let truth = answer(&client, QUESTIONS[0]).await.unwrap();
    flip(&before[0], 1000);
    for _ in 0..2 {
        let error = answer(&client, "CALL tarn.compact('t')").await.unwrap_err();
        assert!(is_named(&error, &before[0]), "{error:?}");
        assert_eq!(files(&server, &client).await, before, "the table is as it was");
    }
    let damage = cell(&client, "SELECT damage FROM tarn.files WHERE damage IS NOT NULL").await;
    assert!(damage.contains("is damaged: bytes "), "{damage}");
    flip(&before[0], 1000);
    client.batch_execute("CALL tarn.compact('t')").await.unwrap();
    assert_eq!(files(&server, &client).await.len(), 1);
    assert_eq!(answer(&client, QUESTIONS[0]).await.unwrap(), truth);
    assert_eq!(cell(&client, "SELECT count(*) FROM tarn.files WHERE checksums AND damage IS NULL").await, "1");
    server.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scrub_finds_what_nobody_asks_for() {
    let dir = tempfile::tempdir().unwrap();
    let settings = |interval_ms| {
        settings_with(dir.path(), |settings| {
            settings.node.background = true;
            settings.node.background_interval_ms = 3_600_000;
            settings.node.scrub_bytes_per_s = 1 << 30;
            settings.node.scrub_interval_ms = interval_ms;
        })
    };
    let server =
        Server { running: tarn::server::start(settings(3_600_000)).await.unwrap(), dir: tempfile::tempdir().unwrap() };
    let client = server.client().await;
    with_table(&client).await;
    let path = cell(&client, "SELECT max(path) FROM tarn.files").await;
    server.running.stop().await.unwrap();
    flip(&dir.path().join("lake").join(&path), 500);

    let running = tarn::server::start(settings(1)).await.unwrap();
    let server = Server { running, dir: tempfile::tempdir().unwrap() };
    let client = server.client().await;
    let mut found = vec![];
    while found.is_empty() {
        found = rows(&client, "SELECT path, damage FROM tarn.files WHERE damage IS NOT NULL").await;
        tokio::task::yield_now().await;
    }
    assert!(found.len() == 1 && found[0][0] == path && found[0][1].contains(&path), "{found:?}");
    server.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_others_are_held_against_checksums_where_that_was_asked() {
    let (server, dir) = (Server::start().await, tempfile::tempdir().unwrap());
    let client = server.client().await;
    let file = dir.path().join("part.parquet");
    crate::attach::write_logs(&file);
    let attach = format!("ATTACH '{}' AS logs WITH (checksums = true)", dir.path().display());
    client.batch_execute(&attach).await.unwrap();
    assert_eq!(cell(&client, "SELECT checksums FROM tarn.files").await, "t");
    assert!(cell(&client, "SELECT definition FROM tarn.tables").await.ends_with("checksums = true)"));
    let questions =
        ["SELECT * FROM logs ORDER BY ts", "SELECT sum(status) FROM logs", "SELECT body FROM logs WHERE status > 206"];
    let mut truth = vec![];
    for sql in questions {
        truth.push(answer(&client, sql).await.unwrap());
    }
    let (whole, modified) = (std::fs::read(&file).unwrap(), std::fs::metadata(&file).unwrap().modified().unwrap());
    // In place, and as old as it was: nothing but its bytes tells.
    let write = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
    };
    let mut refused = 0;
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        damaged[at] ^= 16;
        write(&damaged);
        client.batch_execute("SYSTEM DROP CACHE").await.unwrap();
        for (sql, truth) in questions.iter().zip(&truth) {
            match answer(&client, sql).await {
                Ok(rows) => assert_eq!(rows, *truth, "byte {at}: {sql}"),
                Err(error) => {
                    assert!(is_named(&error, &file), "byte {at}: {sql}: {error:?}");
                    refused += 1;
                }
            }
        }
    }
    // Where columns lie the metastore says: what is wrong with the footer of a file of others is met by nobody.
    assert!(refused > 10, "{refused}");
    write(&whole);
    for (sql, truth) in questions.iter().zip(&truth) {
        assert_eq!(answer(&client, sql).await.as_ref(), Ok(truth), "{sql}");
    }
    server.running.stop().await.unwrap();
}
