//! A metastore that was cut short, emptied, exchanged, or is an older copy: the start is refused, and costs nothing.
//! With the right one put back every acknowledged row is there. The same of a log and of rows.

use std::path::{Path, PathBuf};

use tarn::server::start;
use tarn::settings::Settings;
use tarn_sql::error::SqlError;
use tempfile::TempDir;

use crate::harness::{Server, cell, rows, settings, settings_with};

const TABLES: [&str; 5] = ["a", "b", "c", "d", "e"];

async fn stop(server: Server) -> TempDir {
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    dir
}

async fn restart(dir: TempDir) -> Server {
    Server { running: start(settings(dir.path())).await.unwrap(), dir }
}

async fn refused(settings: Settings) -> SqlError {
    match start(settings).await {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

/// Tables with rows in the lake and in the row engine, and one with rows in the log alone.
async fn fill(client: &tokio_postgres::Client) {
    for table in TABLES {
        let make = format!(
            "CREATE TABLE {table} (k int PRIMARY KEY, v int, w text) WITH (partitioning = 'hash', tablets = 2)"
        );
        client.batch_execute(&make).await.unwrap();
        let insert =
            format!("INSERT INTO {table} SELECT value, 1, 'w' || value FROM generate_series(1, 100) AS s(value)");
        client.batch_execute(&insert).await.unwrap();
    }
    for table in &TABLES[..3] {
        client.batch_execute(&format!("DELIVER TABLE {table}; UPDATE {table} SET v = 2 WHERE k <= 10")).await.unwrap();
    }
    client.batch_execute("DELIVER TABLE a; DELETE FROM a WHERE k > 90").await.unwrap();
}

async fn answers(server: &Server) -> Vec<Vec<String>> {
    let client = server.client().await;
    let mut answers = Vec::new();
    for path in ["auto", "lake", "rows"] {
        client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await.unwrap();
        for table in TABLES {
            answers.extend(rows(&client, &format!("SELECT count(*), sum(v), min(w), max(k) FROM {table}")).await);
        }
    }
    answers
}

async fn filled() -> (TempDir, Vec<Vec<String>>) {
    let server = Server::start().await;
    fill(&server.client().await).await;
    let answers = answers(&server).await;
    (stop(server).await, answers)
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Puts a folder in the place of another; answers where that is now.
fn exchange(dir: &Path, name: &str, with: &Path) -> PathBuf {
    let kept = dir.join(format!("{name}.kept"));
    std::fs::rename(dir.join(name), &kept).unwrap();
    copy_folder(with, &dir.join(name));
    kept
}

fn put_back(dir: &Path, name: &str) {
    let _ = std::fs::remove_dir_all(dir.join(name));
    std::fs::rename(dir.join(format!("{name}.kept")), dir.join(name)).unwrap();
}

fn told(error: &SqlError) -> String {
    format!("{} | {}", error.message(), error.hint().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metastore_cut_short_destroys_nothing() {
    let (dir, before) = filled().await;
    let log = dir.path().join("meta/log-00000000000000000001.tarn");
    let whole = std::fs::read(&log).unwrap();
    assert!(whole.len() > 2000, "{} bytes", whole.len());
    for len in [0, 10, 16, 17, 300, 700, 1200, 2000, whole.len() * 3 / 4] {
        std::fs::write(&log, &whole[..len]).unwrap();
        let error = refused(settings(dir.path())).await;
        assert!(["55000", "XX001"].contains(&error.state()), "cut to {len}: {error}");
        assert!(told(&error).contains("nothing was changed"), "cut to {len}: {}", told(&error));
        std::fs::write(&log, &whole).unwrap();
    }
    let server = restart(dir).await;
    assert_eq!(answers(&server).await, before);
    // It goes on.
    let client = server.client().await;
    client.batch_execute("DELIVER TABLE e; DROP TABLE b; CREATE TABLE b (k int PRIMARY KEY)").await.unwrap();
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT count(*) FROM b").await, "0");
    assert_eq!(cell(&client, "SELECT count(*) FROM e").await, "100");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_metastore_destroys_nothing() {
    let (dir, _) = filled().await;
    let old = dir.path().join("old");
    copy_folder(&dir.path().join("meta"), &old);
    let server = restart(dir).await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE z (k int PRIMARY KEY)").await.unwrap();
    client.batch_execute("INSERT INTO z SELECT value FROM generate_series(1, 5000) AS s(value)").await.unwrap();
    let before = answers(&server).await;
    let dir = stop(server).await;
    exchange(dir.path(), "meta", &old);
    let text = told(&refused(settings(dir.path())).await);
    for part in ["tables \"z\"", "does not list them", "nothing was changed", "--abandon-tablets 20481"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // A ledger that is lost, too: the log tells.
    std::fs::rename(dir.path().join("LEDGER"), dir.path().join("LEDGER.kept")).unwrap();
    let text = told(&refused(settings(dir.path())).await);
    assert!(text.contains("1 tablets that are no table's (20481)"), "{text}");
    std::fs::rename(dir.path().join("LEDGER.kept"), dir.path().join("LEDGER")).unwrap();
    put_back(dir.path(), "meta");
    let server = restart(dir).await;
    assert_eq!(answers(&server).await, before);
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT count(*) FROM z").await, "5000");

    // One that lists what was dropped since, and one that is behind in versions alone.
    client.batch_execute("DROP TABLE z; DROP TABLE d").await.unwrap();
    let dir = stop(server).await;
    exchange(dir.path(), "meta", &old);
    let text = told(&refused(settings(dir.path())).await);
    assert!(text.contains("lists the table \"d\"") && text.contains("it was dropped"), "{text}");
    put_back(dir.path(), "meta");
    std::fs::remove_dir_all(&old).unwrap();
    copy_folder(&dir.path().join("meta"), &old);
    let server = restart(dir).await;
    server.client().await.batch_execute("UPDATE c SET v = 9 WHERE k = 1; DELIVER TABLE c").await.unwrap();
    let dir = stop(server).await;
    exchange(dir.path(), "meta", &old);
    let text = told(&refused(settings(dir.path())).await);
    assert!(text.starts_with("open table \"c\": ") && text.contains("nothing was changed"), "{text}");
    put_back(dir.path(), "meta");
    let server = restart(dir).await;
    assert_eq!(cell(&server.client().await, "SELECT v FROM c WHERE k = 1").await, "9");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metastore_of_another_folder_destroys_nothing() {
    // The same tables, made in the same order: all ids are alike.
    let ((dir, before), (other, other_before)) = (filled().await, filled().await);
    exchange(dir.path(), "meta", &other.path().join("meta"));
    let text = told(&refused(settings(dir.path())).await);
    assert!(text.contains("is another data folder's") && text.contains("\"a\""), "{text}");
    put_back(dir.path(), "meta");
    exchange(dir.path(), "rows", &other.path().join("rows"));
    let text = told(&refused(settings(dir.path())).await);
    assert!(text.contains("rows belongs to the data folder with the id"), "{text}");
    put_back(dir.path(), "rows");
    assert_eq!(answers(&restart(dir).await).await, before);
    // Alone in a new folder.
    let new = tempfile::tempdir().unwrap();
    copy_folder(&other.path().join("meta"), &new.path().join("meta"));
    let text = told(&refused(settings(new.path())).await);
    assert!(text.contains("has neither log nor rows"), "{text}");
    assert_eq!(answers(&restart(other).await).await, other_before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_log_or_rows_and_their_absence_are_told() {
    let (dir, _) = filled().await;
    let old = dir.path().join("old");
    for name in ["log", "rows"] {
        copy_folder(&dir.path().join(name), &old.join(name));
    }
    let server = restart(dir).await;
    let client = server.client().await;
    client.batch_execute("INSERT INTO e VALUES (1000, 1, 'new'); DELIVER TABLE e").await.unwrap();
    let before = answers(&server).await;
    let dir = stop(server).await;
    exchange(dir.path(), "log", &old.join("log"));
    let text = told(&refused(settings(dir.path())).await);
    assert!(text.starts_with("open table \"e\": ") && text.contains("its log ends at"), "{text}");
    // Nor do both of them go with a lake that has more.
    exchange(dir.path(), "rows", &old.join("rows"));
    let text = told(&refused(settings(dir.path())).await);
    assert!(text.contains("is delivered up to") && text.contains("its log ends at"), "{text}");
    put_back(dir.path(), "log");
    put_back(dir.path(), "rows");
    for name in ["log", "rows"] {
        let (from, kept) = (dir.path().join(name), dir.path().join("kept"));
        std::fs::rename(&from, &kept).unwrap();
        let text = told(&refused(settings(dir.path())).await);
        assert!(
            text.contains(&format!("nothing of `{name}` is there")) && text.contains(&format!("put `{name}` back")),
            "{text}"
        );
        assert!(!from.exists(), "nothing was made there");
        std::fs::rename(&kept, &from).unwrap();
    }
    assert_eq!(answers(&restart(dir).await).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_table_has_can_be_given_up_by_name() {
    let (dir, before) = filled().await;
    let old = dir.path().join("old");
    copy_folder(&dir.path().join("meta"), &old);
    let server = restart(dir).await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE z (k int PRIMARY KEY); INSERT INTO z VALUES (1); DELIVER TABLE z")
        .await
        .unwrap();
    let dir = stop(server).await;
    std::fs::remove_dir_all(dir.path().join("meta")).unwrap();
    std::fs::rename(&old, dir.path().join("meta")).unwrap();
    let abandoning =
        |tablets: &str| settings_with(dir.path(), |settings| settings.node.abandon_tablets = tablets.to_owned());
    let text = told(&refused(abandoning("1-20480")).await);
    assert!(text.contains("--abandon-tablets 20481"), "{text}");
    start(abandoning("20481")).await.unwrap().stop().await.unwrap();
    let server = restart(dir).await;
    assert_eq!(answers(&server).await, before);
    let client = server.client().await;
    // It gets the same id again.
    client.batch_execute("CREATE TABLE z (k int PRIMARY KEY)").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM z").await, "0");
    client.batch_execute("INSERT INTO z VALUES (2); DELIVER TABLE z").await.unwrap();
    assert_eq!(cell(&client, "SELECT k FROM z").await, "2");
    server.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_an_older_build_gets_its_ledger() {
    let (dir, before) = filled().await;
    std::fs::remove_file(dir.path().join("LEDGER")).unwrap();
    let server = restart(dir).await;
    assert_eq!(answers(&server).await, before);
    assert!(server.dir.path().join("LEDGER").is_file());
    server.client().await.batch_execute("DROP TABLE b").await.unwrap();
    let dir = stop(server).await;
    // Damage is named, and nothing else is done.
    let ledger = dir.path().join("LEDGER");
    let mut bytes = std::fs::read(&ledger).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&ledger, bytes).unwrap();
    let error = refused(settings(dir.path())).await;
    assert_eq!(error.state(), "XX001");
    assert!(error.message().contains(&ledger.display().to_string()), "{error}");
}
