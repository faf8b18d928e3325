//! What does the log say of statements? The slow ones, and with `log = debug` what each wrote. The
//! shipped binary, whose log is a file.

use std::path::Path;

use crate::child::ChildServer;

fn lines(folder: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(folder.join("server.log")).unwrap();
    log.lines().map(str::to_owned).collect()
}

fn the_one<'a>(lines: &'a [String], words: &[&str]) -> &'a str {
    let mut found = lines.iter().filter(|line| words.iter().all(|word| line.contains(word)));
    match (found.next(), found.next()) {
        (Some(line), None) => line,
        (first, second) => panic!("{words:?}: {first:?} and {second:?} in\n{}", lines.join("\n")),
    }
}

/// The number behind `name=`.
fn number(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(name).unwrap_or_else(|| panic!("{name} in {line}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name} in {line}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_statements_are_logged_without_their_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let server = ChildServer::start(folder.path(), &["--slow-statement-ms", "1"], &[]).await.unwrap();
    let client = server.connect().await.unwrap();
    client.batch_execute("CREATE TABLE t (k bigint PRIMARY KEY, v text)").await.unwrap();
    let insert = "INSERT INTO t SELECT value + $1::bigint, 'hidden\nline' FROM generate_series(1, 20000) AS s(value)";
    let insert = client.prepare_typed(insert, &[tokio_postgres::types::Type::INT8]).await.unwrap();
    assert_eq!(client.execute(&insert, &[&1_234_567_i64]).await.unwrap(), 20_000);
    drop(client);
    server.stop().unwrap();
    let lines = lines(folder.path());
    let slow = the_one(&lines, &["tarn::slow", "INSERT INTO t SELECT", "rows=20000"]);
    assert!(number(slow, "duration_ms=") >= 1 && number(slow, "pid=") > 0 && number(slow, "statement=") > 0, "{slow}");
    assert!(slow.contains("user=tarn") && slow.contains(r"hidden\nline") && !slow.contains("1234567"), "{slow}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_and_a_delivery_say_whose_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = ChildServer::start(folder.path(), &["--log", "debug"], &[]).await.unwrap();
    let client = server.connect().await.unwrap();
    client.batch_execute("CREATE TABLE t (k bigint PRIMARY KEY)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1), (2)").await.unwrap();
    client.batch_execute("BEGIN; INSERT INTO t VALUES (3); COMMIT").await.unwrap();
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    client.batch_execute("SELECT count(*) FROM t").await.unwrap();
    drop(client);
    server.stop().unwrap();
    let lines = lines(folder.path());
    let committed = the_one(&lines, &["statement{pid=", "commit{table=t id=", "committed parts=", "rows=2"]);
    assert!(number(committed, "statement=") > 0, "{committed}");
    let id = number(committed, "commit{table=t id=");
    // The entries of a commit, by their place in their tablet: of a statement and of a transaction.
    let entry = the_one(&lines, &["statement{pid=", "commit{table=t id=", "an entry is in effect"]);
    let other = the_one(&lines, &["statement{pid=", "commit{tables=1}", "an entry is in effect"]);
    for line in [entry, other] {
        assert_eq!(number(line, " table="), id, "{line}");
    }
    assert_eq!(number(entry, "tablet="), number(other, "tablet="), "{entry}\n{other}");
    assert_eq!(number(entry, "seqno=") + 1, number(other, "seqno="), "{entry}\n{other}");
    let delivered = the_one(&lines, &["delivery{table=t id=", "installed", "version="]);
    let version = number(delivered, "version=");
    the_one(&lines, &["delivery{table=t id=", "committed", &format!("version={version}"), "kind=\"delivery\""]);
    let scan = the_one(&lines, &["statement{pid=", "query", "scan", "table=\"t\"", &format!("version={version}")]);
    assert_eq!(number(scan, " id="), id, "{scan}");
}
