//! Files that others write, as a table: attached, queried, followed, forgotten, never written to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::harness::{Server, cell, failure, rows};

const HOUR_US: i64 = 3_600_000_000;

/// Ten log lines of one hour; line 3 has no body.
fn logs(hour: i64, word: &str) -> RecordBatch {
    let times = (0..10).map(|row| hour * HOUR_US + row * 60_000_000);
    let body = (0..10).map(|row| (row != 3).then(|| format!("GET /{word}/line {row}")));
    RecordBatch::try_from_iter([
        ("ts", Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")) as ArrayRef),
        ("body", Arc::new(StringArray::from_iter(body))),
        ("status", Arc::new(Int32Array::from_iter_values((0..10).map(|row| 200 + row)))),
        ("trace", Arc::new(StringArray::from_iter_values((0..10).map(|row| format!("{word}-{row}"))))),
    ])
    .unwrap()
}

fn write(folder: &Path, name: &str, rows: &RecordBatch) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(5)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    // In one piece, as those who write archives should.
    let scratch = folder.join("_scratch");
    std::fs::write(&scratch, writer.into_inner().unwrap()).unwrap();
    std::fs::rename(scratch, path).unwrap();
}

/// Ten log lines in two blocks, for other tests.
pub fn write_logs(path: &Path) {
    write(path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap(), &logs(470_000, "word"));
}

/// Twenty-four files of one day, two blocks each.
fn archive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for hour in 0..24 {
        write(dir.path(), &file(hour), &logs(470_000 + hour, &format!("word{hour}")));
    }
    dir
}

fn file(hour: i64) -> String {
    format!("dt=2023-08-14/hr={hour:02}/part.parquet")
}

async fn attach(client: &Client, dir: &TempDir, options: &str) {
    client.batch_execute(&format!("ATTACH '{}' AS logs{options}", dir.path().display())).await.unwrap();
}

/// Name and number of each `name=number` or `name=number/number` of the scan's line.
async fn scanned(client: &Client, sql: &str) -> BTreeMap<String, String> {
    let plan = rows(client, &format!("EXPLAIN ANALYZE {sql}")).await;
    let text = plan.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join("\n");
    let line = text.lines().find(|line| line.contains("TarnScan")).unwrap_or_else(|| panic!("{text}")).to_owned();
    let parts = line.split([',', ' ', '[', ']']).filter_map(|part| part.split_once('='));
    parts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn paths(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(paths(&path)),
            false => found.push(path.display().to_string()),
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_is_a_table() {
    let (server, dir) = (Server::start().await, archive());
    let client = server.client().await;
    let with = " WITH (hour_from = 'dt=…/hr=…', tokens = 'body', bloom = 'trace', bloom_chunks = 64)";
    attach(&client, &dir, with).await;

    assert_eq!(rows(&client, "SELECT count(*), count(body), sum(status) FROM logs").await, [["240", "216", "49080"]]);
    let standing = "SELECT state, listed, known, reading, attached, skipped, removed, rows_attached, version, files, rows, last_error FROM tarn.attachments";
    assert_eq!(
        rows(&client, standing).await,
        [["attached", "24", "0", "0", "24", "0", "0", "240", "1", "24", "240", "∅"]]
    );
    assert_eq!(cell(&client, "SELECT url FROM tarn.attachments").await, dir.path().display().to_string());
    assert!(rows(&client, "SELECT * FROM tarn.attach_errors").await.is_empty());
    assert_eq!(rows(&client, "CALL tarn.attach('logs')").await, [["logs", "0", "0", "1"]], "nothing is new");
    let standing = "SELECT state, listed, known, attached, bytes_read, files FROM tarn.attachments";
    assert_eq!(rows(&client, standing).await, [["attached", "24", "24", "0", "0", "24"]]);

    // What the catalogs say.
    assert_eq!(rows(&client, "SHOW TABLES").await, [["logs"]]);
    let columns = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'logs' ORDER BY ordinal_position";
    assert_eq!(
        rows(&client, columns).await.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(),
        ["ts", "body", "status", "trace"]
    );
    let described = rows(&client, "SHOW COLUMNS FROM logs").await;
    assert_eq!(described[0], ["ts", "TIMESTAMP WITH TIME ZONE", "YES", "", ""]);
    assert_eq!(
        cell(&client, "SELECT count(*) FROM pg_catalog.pg_class WHERE relname = 'logs' AND relkind = 'r'").await,
        "1"
    );
    let created = rows(&client, "SHOW CREATE TABLE logs").await.remove(0).remove(1);
    let want = format!(
        "ATTACH '{}' AS logs WITH (hour_from = 'dt=…/hr=…', time_column = 'ts', tokens = 'body', bloom = 'trace', bloom_chunks = 64)",
        dir.path().display()
    );
    assert_eq!(created, want);
    let table = "SELECT tablets, primary_key, recent_rows, lake_rows, lake_files, definition FROM tarn.tables";
    assert_eq!(rows(&client, table).await, [["0", "", "0", "240", "24", want.as_str()]]);
    let files = "SELECT count(*), min(path), min(hour)::text, sum(n_blocks) FROM tarn.files WHERE table_name = 'logs'";
    assert_eq!(rows(&client, files).await, [["24", file(0).as_str(), "2023-08-14 00:00:00+00", "48"]]);
    assert_eq!(cell(&client, "SELECT kind FROM tarn.deliveries").await, "attach");
    let kept = rows(&client, "SELECT backend, tables, files, blocks, bloom_bytes > 0 FROM tarn.metastore").await;
    assert_eq!(kept, [["embedded", "1", "24", "48", "t"]]);

    // A statement that attaches it again says the same.
    client.batch_execute(&format!("DETACH TABLE logs; {created}")).await.unwrap();
    assert_eq!(rows(&client, "SHOW CREATE TABLE logs").await[0][1], want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_cannot_answer_are_not_read() {
    let (server, dir) = (Server::start().await, archive());
    let client = server.client().await;
    attach(&client, &dir, " WITH (tokens = 'body', bloom = 'trace')").await;
    for (condition, counts, files, pruned) in [
        ("matches(body, 'word7 get')", "9", "1/24", "pruned_bloom"),
        ("matches(body, 'word7 post')", "0", "0/24", "pruned_bloom"),
        ("body = 'GET /word7/line 2'", "1", "1/24", "pruned_bloom"),
        ("trace = 'word9-4'", "1", "1/24", "pruned_bloom"),
        ("trace IN ('word9-4', 'word3-9')", "2", "2/24", "pruned_bloom"),
        ("ts >= '1970-01-01' AND ts < to_timestamp(1692000000) + INTERVAL '5 minutes'", "5", "1/24", "pruned_time"),
        ("status > 204", "120", "24/24", "pruned_statistics"),
    ] {
        let sql = format!("SELECT count(*) FROM logs WHERE {condition}");
        assert_eq!(cell(&client, &sql).await, counts, "{condition}");
        let scan = scanned(&client, &sql.replace("count(*)", "*")).await;
        assert_eq!(scan.get("files").map(String::as_str), Some(files), "{condition}: {scan:?}");
        assert_ne!(scan.get(pruned).map(String::as_str), Some("0"), "{condition}: {scan:?}");
        assert_ne!(scan.get("footers").map(String::as_str).unwrap_or("0"), "24", "no footer is read: {scan:?}");
        client.batch_execute("SET tarn.pruning = 'off'").await.unwrap();
        assert_eq!(cell(&client, &sql).await, counts, "{condition}, without pruning");
        client.batch_execute("SET tarn.pruning = 'on'").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_told() {
    let (server, dir) = (Server::start().await, archive());
    let whole = std::fs::read(dir.path().join(file(0))).unwrap();
    for (name, bytes) in
        [("empty", &b""[..]), ("short", &whole[..whole.len() - 100]), ("text", b"this is no Parquet file")]
    {
        std::fs::write(dir.path().join(format!("{name}.parquet")), bytes).unwrap();
    }
    let nested = StructArray::from(vec![(
        Arc::new(arrow::datatypes::Field::new("x", arrow::datatypes::DataType::Int32, true)),
        Arc::new(Int32Array::from(vec![1])) as ArrayRef,
    )]);
    let partly = RecordBatch::try_from_iter([
        ("status", Arc::new(Int32Array::from(vec![7])) as ArrayRef),
        ("more", Arc::new(nested)),
    ]);
    write(dir.path(), "partly.parquet", &partly.unwrap());
    let other = RecordBatch::try_from_iter([("status", Arc::new(BooleanArray::from(vec![true])) as ArrayRef)]);
    write(dir.path(), "z.parquet", &other.unwrap());

    let client = server.client().await;
    attach(&client, &dir, "").await;
    assert_eq!(rows(&client, "SELECT count(*), count(ts) FROM logs").await, [["241", "240"]]);
    let errors = rows(
        &client,
        "SELECT path, is_skipped, reason FROM tarn.attach_errors WHERE table_name = 'logs' ORDER BY path",
    )
    .await;
    let told: Vec<(&str, &str)> = errors.iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
    assert_eq!(
        told,
        [
            ("empty.parquet", "t"),
            ("partly.parquet", "f"),
            ("short.parquet", "t"),
            ("text.parquet", "t"),
            ("z.parquet", "t")
        ]
    );
    assert_eq!(errors[0][2], "it is empty");
    assert!(errors[1][2].contains("more"), "{errors:?}");
    assert_eq!(errors[4][2], "column status is BOOLEAN here and INTEGER in the table, and no type is both");
    assert_eq!(cell(&client, "SELECT skipped FROM tarn.attachments").await, "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_takes_in_what_is_new_wider_changed_or_gone() {
    let (server, dir) = (Server::start().await, archive());
    let client = server.client().await;
    attach(&client, &dir, "").await;
    let prepared = client.prepare("SELECT count(*), sum(status)::bigint FROM logs WHERE status > $1").await.unwrap();
    let of = async |more_than: i32| {
        let row = client.query_one(&prepared, &[&more_than]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    assert_eq!(of(208).await, (24, 24 * 209));

    // A wider type and another column; rows of files before have no value there.
    let wider = RecordBatch::try_from_iter([
        ("status", Arc::new(Int64Array::from(vec![5_000_000_000, 1])) as ArrayRef),
        ("region", Arc::new(StringArray::from(vec![Some("eu"), None]))),
    ]);
    write(dir.path(), "dt=2023-08-15/hr=00/wider.parquet", &wider.unwrap());
    assert_eq!(of(208).await, (24, 24 * 209), "until a pass");
    assert_eq!(rows(&client, "CALL tarn.attach('logs')").await, [["logs", "2", "1", "2"]]);
    let row =
        client.query_one("SELECT count(*), sum(status)::bigint FROM logs WHERE status > $1", &[&208i64]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (25, 24 * 209 + 5_000_000_000));
    assert_eq!(of(208).await.0, 25, "what was prepared before sees it as well");
    assert_eq!(
        rows(&client, "SELECT region, count(*) FROM logs GROUP BY region ORDER BY region").await,
        [["eu", "1"], ["∅", "241"]]
    );
    client.batch_execute("SET tarn.as_of_version = '1'").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM logs").await, "240");
    client.batch_execute("SET tarn.as_of_version = 'latest'").await.unwrap();

    // A file written over is not read as another one: it is an error until the next pass.
    write(dir.path(), &file(3), &logs(480_000, "other"));
    let (state, message) = failure(client.simple_query("SELECT count(body) FROM logs").await);
    assert_eq!(state, "55000", "{message}");
    assert!(message.contains("CALL tarn.attach('logs')") && message.contains("hr=03"), "{message}");
    std::fs::remove_file(dir.path().join(file(5))).unwrap();
    assert_eq!(rows(&client, "CALL tarn.attach('logs')").await, [["logs", "10", "1", "3"]]);
    let standing = "SELECT listed, known, attached, removed, files, rows FROM tarn.attachments";
    assert_eq!(rows(&client, standing).await, [["24", "23", "1", "1", "24", "232"]]);
    // Whoever waits for a pass learns what came in, also when another pass was made since.
    let totals =
        "SELECT total_attached, total_removed, total_rows, total_bytes_read > 0, attached FROM tarn.attachments";
    assert_eq!(rows(&client, totals).await, [["26", "1", "252", "t", "1"]]);
    client.batch_execute("CALL tarn.attach('logs')").await.unwrap();
    assert_eq!(rows(&client, totals).await, [["26", "1", "252", "t", "0"]]);
    assert_eq!(cell(&client, "SELECT count(*) FROM logs WHERE matches(body, 'other')").await, "9");
    assert_eq!(cell(&client, "SELECT count(*) FROM logs WHERE matches(body, 'word3')").await, "0");
    assert_eq!(cell(&client, "SELECT count(*) FROM logs WHERE matches(body, 'word5')").await, "0");

    // All the same after a start.
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, "SELECT count(*), count(region) FROM logs").await, [["232", "1"]]);
    let standing = "SELECT state, listed, files, rows FROM tarn.attachments";
    assert_eq!(rows(&client, standing).await, [["attached", "∅", "24", "232"]]);
    assert_eq!(rows(&client, "CALL tarn.attach('logs')").await, [["logs", "0", "0", "3"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_in_the_columns_that_were_described_or_not_at_all() {
    let (server, dir) = (Server::start().await, tempfile::tempdir().unwrap());
    let client = server.client().await;
    let narrow = [("k", Arc::new(Int32Array::from(vec![1])) as ArrayRef), ("j", Arc::new(Int32Array::from(vec![7])))];
    write(dir.path(), "a.parquet", &RecordBatch::try_from_iter(narrow).unwrap());
    attach(&client, &dir, "").await;
    let wider = client.prepare("SELECT j FROM logs WHERE k = $1 ORDER BY 1").await.unwrap();
    let more = client.prepare("SELECT * FROM logs WHERE k = $1").await.unwrap();
    let same = client.prepare("SELECT k FROM logs WHERE k = $1").await.unwrap();
    client.batch_execute("PREPARE p AS SELECT j FROM logs").await.unwrap();
    assert_eq!(client.query_one(&wider, &[&1i32]).await.unwrap().get::<_, i32>(0), 7);
    assert_eq!(client.query_one(&more, &[&1i32]).await.unwrap().len(), 2);

    let wide = [
        ("k", Arc::new(Int32Array::from(vec![1])) as ArrayRef),
        ("j", Arc::new(Int64Array::from(vec![1 << 40]))),
        ("x", Arc::new(StringArray::from(vec!["new"]))),
    ];
    write(dir.path(), "b.parquet", &RecordBatch::try_from_iter(wide).unwrap());
    client.batch_execute("CALL tarn.attach('logs')").await.unwrap();
    for statement in [&wider, &more] {
        let (state, message) = failure(client.query(statement, &[&1i32]).await);
        assert_eq!(state, "0A000", "{message}");
        assert!(message.starts_with("cached plan must not change result type"), "{message}");
    }
    assert_eq!(failure(client.batch_execute("EXECUTE p").await).0, "0A000");
    assert_eq!(client.query(&same, &[&1i32]).await.unwrap().len(), 2, "its columns are what they were");
    let again = client.prepare("SELECT j FROM logs WHERE k = $1 ORDER BY 1").await.unwrap();
    let found = client.query(&again, &[&1i32]).await.unwrap();
    assert_eq!(found.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [7, 1 << 40]);

    // Nor of a table that is another one now.
    client.batch_execute("CREATE TABLE own (k int PRIMARY KEY, v int); INSERT INTO own VALUES (1, 2)").await.unwrap();
    let keyed = client.prepare("SELECT v FROM own WHERE k = $1").await.unwrap();
    assert_eq!(client.query_one(&keyed, &[&1i32]).await.unwrap().get::<_, i32>(0), 2);
    client.batch_execute("DROP TABLE own; CREATE TABLE own (k int PRIMARY KEY, v text)").await.unwrap();
    assert_eq!(failure(client.query(&keyed, &[&1i32]).await).0, "0A000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_is_followed() {
    let server = Server::start_with(|settings| settings.node.background = true).await;
    let dir = archive();
    let client = server.client().await;
    attach(&client, &dir, " WITH (follow = '1s')").await;
    let becomes = async |sql: &str, want: &str| {
        let seen = async {
            while cell(&client, sql).await != want {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), seen)
            .await
            .unwrap_or_else(|_| panic!("{sql}: {want}"));
    };
    becomes("SELECT count(*) FROM logs", "240").await;
    write(dir.path(), "dt=2023-08-15/hr=00/new.parquet", &logs(470_024, "new"));
    becomes("SELECT count(*) FROM logs", "250").await;
    std::fs::remove_file(dir.path().join(file(0))).unwrap();
    becomes("SELECT files FROM tarn.attachments", "24").await;
    assert_eq!(cell(&client, "SELECT follow_ms FROM tarn.attachments").await, "1000");

    // A folder that is away is no empty one.
    let away = dir.path().with_extension("away");
    std::fs::rename(dir.path(), &away).unwrap();
    becomes("SELECT state FROM tarn.attachments", "failed").await;
    assert_eq!(cell(&client, "SELECT files FROM tarn.attachments").await, "24");
    std::fs::rename(&away, dir.path()).unwrap();
    becomes("SELECT state FROM tarn.attachments", "attached").await;
    assert_eq!(cell(&client, "SELECT count(*) FROM logs").await, "240");

    // Also by a server that was started again.
    let Server { running, dir: data } = server;
    running.stop().await.unwrap();
    write(dir.path(), "dt=2023-08-15/hr=01/new.parquet", &logs(470_025, "new"));
    let settings = crate::harness::settings_with(data.path(), |settings| settings.node.background = true);
    let server = Server { running: tarn::server::start(settings).await.unwrap(), dir: data };
    let client = server.client().await;
    let seen = async {
        while cell(&client, "SELECT count(*) FROM logs").await != "250" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), seen).await.unwrap();
    client.batch_execute("DETACH TABLE logs").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_writes_to_an_archive() {
    let (server, dir) = (Server::start().await, archive());
    let client = server.client().await;
    let before = paths(dir.path());
    attach(&client, &dir, "").await;
    client.batch_execute("CREATE TABLE own (k int PRIMARY KEY)").await.unwrap();
    for statement in [
        "INSERT INTO logs (status) VALUES (1)",
        "INSERT INTO logs SELECT * FROM logs",
        "UPDATE logs SET status = 1",
        "DELETE FROM logs",
        "DELETE FROM logs WHERE status = 1",
        "COPY logs FROM STDIN",
        "DELIVER TABLE logs",
        "COMPACT TABLE logs",
        "CALL tarn.compact('logs')",
    ] {
        let (state, message) = failure(client.batch_execute(statement).await);
        assert_eq!(state, "25006", "{statement}: {message}");
        assert!(message.contains("CALL tarn.attach('logs')") && message.contains("DETACH TABLE logs"), "{message}");
    }
    for (statement, want) in [
        (format!("ATTACH '{}' AS logs", dir.path().display()), "42P07"),
        (format!("ATTACH '{}' AS own", dir.path().display()), "42P07"),
        (format!("ATTACH '{}' AS x WITH (tokens = 'bodi')", dir.path().display()), "42703"),
        (format!("ATTACH '{}' AS x WITH (bloom = 'status', colour = 1)", dir.path().display()), "22023"),
        (format!("ATTACH '{}' AS x WITH (hour_from = 'hour')", dir.path().display()), "22023"),
        (format!("ATTACH '{}' AS x WITH (hour_from = 'day=…/hour=…')", dir.path().display()), "22023"),
        (format!("ATTACH '{}' AS x", dir.path().join("nothing").display()), "58030"),
        (format!("ATTACH '{}' AS x", dir.path().join(file(0)).display()), "58030"),
        (format!("ATTACH '{}' AS x", server.dir.path().display()), "42501"),
        ("ATTACH 'hdfs://bucket/x' AS x".to_owned(), "22023"),
        ("CREATE TABLE logs (k int PRIMARY KEY)".to_owned(), "42P07"),
        ("DETACH TABLE own".to_owned(), "42809"),
        ("DETACH TABLE nothing".to_owned(), "42P01"),
        ("CALL tarn.attach('own')".to_owned(), "42809"),
        ("CALL tarn.attach('nothing')".to_owned(), "42P01"),
        (format!("BEGIN; ATTACH '{}' AS x", dir.path().display()), "25001"),
    ] {
        let (state, message) = failure(client.batch_execute(&statement).await);
        assert_eq!(state, want, "{statement}: {message}");
    }
    client.batch_execute("ROLLBACK; DETACH TABLE IF EXISTS nothing").await.unwrap();
    assert_eq!(rows(&client, "SHOW TABLES").await, [["logs"], ["own"]]);

    client.batch_execute("DETACH TABLE logs").await.unwrap();
    assert_eq!(failure(client.simple_query("SELECT 1 FROM logs").await).0, "42P01");
    assert_eq!(paths(dir.path()), before, "the files are where they were");
    attach(&client, &dir, "").await;
    client.batch_execute("DROP TABLE logs").await.unwrap();
    assert_eq!(paths(dir.path()), before);
    assert!(rows(&client, "SELECT * FROM tarn.attachments").await.is_empty());
    let server = server.restart().await;
    assert_eq!(rows(&server.client().await, "SHOW TABLES").await, [["own"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_written_here_have_blooms_too() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (k int PRIMARY KEY, body text, trace bigint) WITH (tokens = 'body', bloom = 'trace', bloom_chunks = 64);
             INSERT INTO t SELECT value, 'even word' || value, value * 7919 FROM generate_series(1, 500) AS s(value) WHERE value % 2 = 0; DELIVER TABLE t;
             INSERT INTO t SELECT value, 'odd word' || value, value * 7919 FROM generate_series(1, 500) AS s(value) WHERE value % 2 = 1; DELIVER TABLE t",
        )
        .await
        .unwrap();
    for (condition, count) in
        [("matches(body, 'word44')", "1"), ("matches(body, 'word44 odd')", "0"), ("trace = 7919 * 45", "1")]
    {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        assert_eq!(cell(&client, &sql).await, count, "{condition}");
        let scan = scanned(&client, &sql.replace("count(*)", "*")).await;
        assert_ne!(scan.get("pruned_bloom").map(String::as_str), Some("0"), "{condition}: {scan:?}");
    }
    let created = rows(&client, "SHOW CREATE TABLE t").await.remove(0).remove(1);
    assert!(created.ends_with("tokens = 'body', bloom = 'trace', bloom_chunks = 64)"), "{created}");
    let server = server.restart().await;
    assert_eq!(rows(&server.client().await, "SHOW CREATE TABLE t").await[0][1], created);
}
