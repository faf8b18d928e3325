//! A table that is altered is what it was asked to be: behind a restart, in the lake, and for whoever reads or writes
//! it meanwhile.

use tokio_postgres::Client;

use crate::harness::{Server, cell, failure, rows};

/// Rows that were written before lie elsewhere after each.
const MOVES: [&str; 4] =
    ["SELECT 1", "DELIVER TABLE t; DELIVER TABLE keyless", "EVICT TABLE t", "COMPACT TABLE t; COMPACT TABLE keyless"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_keeps_its_rows_by_another_name() {
    let server = Server::start().await;
    let client = server.client().await;
    let setup = "CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t SELECT value, 'old' FROM generate_series(1, 100) AS s(value); \
                 CREATE VIEW w AS SELECT count(*) AS n, max(v) AS v FROM t; DELIVER TABLE t; INSERT INTO t VALUES (101, 'recent')";
    client.batch_execute(setup).await.unwrap();
    client.batch_execute("ALTER TABLE t RENAME TO u").await.unwrap();
    client.batch_execute("UPDATE u SET v = 'new' WHERE k <= 10; CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    let counted = "SELECT count(*), count(*) FILTER (WHERE v = 'new') FROM u";
    assert_eq!(rows(&client, counted).await, [["101", "10"]]);
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, counted).await, [["101", "10"]]);
    assert_eq!(cell(&client, "SELECT n FROM w").await, "101");
    client.batch_execute("DELIVER TABLE u; COMPACT TABLE u; INSERT INTO t VALUES (1); DELIVER TABLE t").await.unwrap();
    assert_eq!(rows(&client, counted).await, [["101", "10"]]);
    let lake = server.dir.path().join("lake");
    assert!(lake.join("t-1").is_dir() && !lake.join("u-1").exists(), "its files stay in one folder");
    client.batch_execute("DROP TABLE u CASCADE").await.unwrap();
    server.running.node.sweep_dropped().await;
    let server = server.restart().await;
    assert_eq!(cell(&server.client().await, "SELECT count(*) FROM t").await, "1");
    let left = std::fs::read_dir(lake.join("t-1"))
        .map_or(0, |hours| hours.filter(|hour| hour.as_ref().unwrap().path().read_dir().unwrap().count() > 0).count());
    assert_eq!(left, 0, "the files of a table that was renamed go with it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_back_after_a_restart() {
    let server = Server::start().await;
    let client = server.client().await;
    let setup = "CREATE TABLE t (k int PRIMARY KEY, v text NOT NULL, n int); INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2); DELIVER TABLE t; \
                 INSERT INTO t VALUES (3, 'c', 3)";
    client.batch_execute(setup).await.unwrap();
    let alter = "ALTER TABLE t ALTER v DROP NOT NULL, ALTER v SET DEFAULT 'z', ALTER n SET NOT NULL, ADD CONSTRAINT low CHECK (n < 10)";
    client.batch_execute(alter).await.unwrap();
    client.batch_execute("INSERT INTO t (k, n) VALUES (4, 4); INSERT INTO t VALUES (5, NULL, 5)").await.unwrap();
    let server = server.restart().await;
    let client = server.client().await;
    let all = "SELECT k, v, n FROM t ORDER BY k";
    let want = [["1", "a", "1"], ["2", "b", "2"], ["3", "c", "3"], ["4", "z", "4"], ["5", "∅", "5"]];
    assert_eq!(rows(&client, all).await, want);
    client.batch_execute("DELIVER TABLE t; COMPACT TABLE t; EVICT TABLE t").await.unwrap();
    assert_eq!(rows(&client, all).await, want);
    assert_eq!(failure(client.simple_query("UPDATE t SET n = NULL WHERE k = 1").await).0, "23502");
    assert_eq!(failure(client.simple_query("INSERT INTO t VALUES (6, 'x', 10)").await).0, "23514");
    let server = server.restart().await;
    assert_eq!(rows(&server.client().await, all).await, want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_came_is_there_after_a_restart() {
    let server = Server::start().await;
    let client = server.client().await;
    let setup = "CREATE TABLE t (k int PRIMARY KEY, v text); CREATE TABLE keyless (v text); INSERT INTO t VALUES (1, 'a'), (2, 'b'); \
                 INSERT INTO keyless VALUES ('a'); DELIVER TABLE t; DELIVER TABLE keyless; INSERT INTO t VALUES (3, 'c'); \
                 INSERT INTO keyless VALUES ('b')";
    client.batch_execute(setup).await.unwrap();
    client.batch_execute("ALTER TABLE t ADD COLUMN n int; ALTER TABLE keyless ADD n int").await.unwrap();
    client.batch_execute("UPDATE t SET n = k WHERE k >= 2; INSERT INTO keyless VALUES ('c', 3)").await.unwrap();
    let (all, keyless) = ("SELECT k, v, n FROM t ORDER BY k", "SELECT v, n FROM keyless ORDER BY v");
    let (want, of_keyless) =
        ([["1", "a", "∅"], ["2", "b", "2"], ["3", "c", "3"]], [["a", "∅"], ["b", "∅"], ["c", "3"]]);
    let server = server.restart().await;
    let client = server.client().await;
    for step in MOVES {
        client.batch_execute(step).await.unwrap();
        for path in ["auto", "lake"] {
            client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await.unwrap();
            assert_eq!(rows(&client, all).await, want, "{step}, {path}");
            assert_eq!(rows(&client, keyless).await, of_keyless, "{step}, {path}");
        }
        client.batch_execute("RESET ALL").await.unwrap();
    }
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, all).await, want);
    assert_eq!(rows(&client, keyless).await, of_keyless);
}

/// Rows that are recent, in the row engine, in files with and without block metadata, and rewritten: all by the names
/// of now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_keeps_its_values_by_another_name() {
    let server = Server::start().await;
    let client = server.client().await;
    let setup = "CREATE TABLE t (k bigserial PRIMARY KEY, a text, b text, n int); CREATE TABLE keyless (a text, b text); \
                 INSERT INTO t (a, b, n) VALUES ('a1', 'b1', 1), ('a2', 'b2', 2); INSERT INTO keyless VALUES ('a1', 'b1'), ('a2', 'b2'); \
                 CREATE VIEW w AS SELECT * FROM t; DELIVER TABLE t; DELIVER TABLE keyless; INSERT INTO t (a, b, n) VALUES ('a3', 'b3', 3)";
    client.batch_execute(setup).await.unwrap();
    let swap = |table: &str| {
        [("a", "x"), ("b", "a"), ("x", "b")]
            .map(|(from, to)| format!("ALTER TABLE {table} RENAME COLUMN {from} TO {to};"))
            .concat()
    };
    client.batch_execute(&swap("t")).await.unwrap();
    client.batch_execute(&swap("keyless")).await.unwrap();
    let more = "ALTER TABLE t RENAME k TO id; ALTER TABLE t RENAME n TO m; ALTER TABLE t ADD COLUMN n int; \
                INSERT INTO t (id, a, b, m, n) VALUES (4, 'b4', 'a4', 4, 44); INSERT INTO keyless (a, b) VALUES ('b3', 'a3')";
    client.batch_execute(more).await.unwrap();
    let all = "SELECT id, a, b, m, n FROM t ORDER BY id";
    let want = [
        ["1", "b1", "a1", "1", "∅"],
        ["2", "b2", "a2", "2", "∅"],
        ["3", "b3", "a3", "3", "∅"],
        ["4", "b4", "a4", "4", "44"],
    ];
    let keyless = "SELECT a, b FROM keyless ORDER BY a";
    let of_keyless = [["b1", "a1"], ["b2", "a2"], ["b3", "a3"]];
    let server = server.restart().await;
    let client = server.client().await;
    for step in MOVES.into_iter().chain(["UPDATE t SET m = m WHERE id = 2"]) {
        client.batch_execute(step).await.unwrap();
        for (path, pruning) in [("auto", "on"), ("lake", "on"), ("lake", "off")] {
            let settings = format!("SET tarn.access_path = '{path}'; SET tarn.pruning = '{pruning}'");
            client.batch_execute(&settings).await.unwrap();
            let at = format!("{step}, {path}, {pruning}");
            assert_eq!(rows(&client, all).await, want, "{at}");
            assert_eq!(rows(&client, keyless).await, of_keyless, "{at}");
            assert_eq!(rows(&client, "SELECT id, m FROM t WHERE a = 'b2' AND b = 'a2'").await, [["2", "2"]], "{at}");
            assert!(rows(&client, "SELECT id FROM t WHERE a = 'a2' OR n = 2").await.is_empty(), "{at}");
            assert_eq!(cell(&client, "SELECT max(b) FROM t").await, "a4", "{at}");
            assert_eq!(rows(&client, "SELECT k, a, b, n FROM w WHERE n = 2").await, [["2", "a2", "b2", "2"]], "{at}");
        }
        client.batch_execute("RESET ALL").await.unwrap();
        assert_eq!(rows(&client, "SELECT a, n FROM t WHERE id = 1").await, [["b1", "∅"]], "{step}");
    }
    client.batch_execute("INSERT INTO t (a) VALUES ('b5')").await.unwrap();
    client.batch_execute("DROP TABLE t CASCADE").await.unwrap();
    assert_eq!(failure(client.batch_execute("SELECT nextval('t_k_seq')").await).0, "42P01");
}

/// Rows that were written before have what a column was added with, wherever they lie, and whatever its default is by
/// now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_comes_with_a_value_has_it_in_older_rows() {
    let server = Server::start().await;
    let client = server.client().await;
    let setup = "CREATE TABLE t (k int PRIMARY KEY, v text); CREATE TABLE keyless (v text); \
                 INSERT INTO t VALUES (1, 'a'), (2, 'b'); INSERT INTO keyless VALUES ('a'); DELIVER TABLE t; DELIVER TABLE keyless; \
                 INSERT INTO t VALUES (3, 'c'); INSERT INTO keyless VALUES ('b')";
    client.batch_execute(setup).await.unwrap();
    let alter = "ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 7, ADD w text DEFAULT 'old' || 'er'; \
                 ALTER TABLE t ALTER n DROP DEFAULT, ALTER w SET DEFAULT 'newer'; ALTER TABLE keyless ADD n int DEFAULT 5";
    client.batch_execute(alter).await.unwrap();
    let more = "INSERT INTO t (k, v, n) VALUES (4, 'd', 8); UPDATE t SET w = NULL WHERE k = 1; UPDATE t SET v = 'bb' WHERE k = 2; \
                INSERT INTO keyless VALUES ('c', 6)";
    client.batch_execute(more).await.unwrap();
    let all = "SELECT k, v, n, w FROM t ORDER BY k";
    let want = [["1", "a", "7", "∅"], ["2", "bb", "7", "older"], ["3", "c", "7", "older"], ["4", "d", "8", "newer"]];
    let answers = [
        ("SELECT v, n FROM keyless WHERE n = 5 ORDER BY v", vec![vec!["a", "5"], vec!["b", "5"]]),
        ("SELECT k FROM t WHERE w = 'older' AND n < 8 ORDER BY k", vec![vec!["2"], vec!["3"]]),
        ("SELECT k FROM t WHERE n <> 7", vec![vec!["4"]]),
        ("SELECT k FROM t WHERE w IS NULL", vec![vec!["1"]]),
        (
            "SELECT min(n), max(n), sum(n), count(w), min(w), max(w) FROM t",
            vec![vec!["7", "8", "29", "3", "newer", "older"]],
        ),
        ("SELECT n, count(*) FROM t GROUP BY n ORDER BY n", vec![vec!["7", "3"], vec!["8", "1"]]),
        ("SELECT w FROM t ORDER BY w DESC NULLS LAST, k LIMIT 1", vec![vec!["older"]]),
        ("SELECT count(*) FROM t x JOIN t y ON x.w = y.w", vec![vec!["5"]]),
        ("SELECT n, w FROM t WHERE k = 3", vec![vec!["7", "older"]]),
    ];
    let server = server.restart().await;
    let client = server.client().await;
    for step in MOVES.into_iter().chain(["UPDATE t SET v = v WHERE k = 3", "SELECT 1"]) {
        client.batch_execute(step).await.unwrap();
        for (path, pruning) in [("auto", "on"), ("lake", "on"), ("lake", "off")] {
            let settings = format!("SET tarn.access_path = '{path}'; SET tarn.pruning = '{pruning}'");
            client.batch_execute(&settings).await.unwrap();
            assert_eq!(rows(&client, all).await, want, "{step}, {path}, {pruning}");
            for (query, want) in &answers {
                assert_eq!(rows(&client, query).await, *want, "{query}: {step}, {path}, {pruning}");
            }
        }
        client.batch_execute("RESET ALL").await.unwrap();
    }
    let server = server.restart().await;
    assert_eq!(rows(&server.client().await, all).await, want);
}

/// One of its name that comes afterwards is another column, wherever rows lie that had the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_was_dropped_is_not_read_again() {
    let server = Server::start().await;
    let client = server.client().await;
    let setup = "CREATE TABLE t (k int PRIMARY KEY, a int, b text); INSERT INTO t VALUES (1, 11, 'x'), (2, 22, 'y'); DELIVER TABLE t; \
                 INSERT INTO t VALUES (3, 33, 'z'); ALTER TABLE t DROP COLUMN a; INSERT INTO t VALUES (4, 'w'); \
                 ALTER TABLE t ADD COLUMN a int DEFAULT 5; INSERT INTO t VALUES (5, 'v', 55)";
    client.batch_execute(setup).await.unwrap();
    let all = "SELECT k, a, b FROM t ORDER BY k";
    let want = [["1", "5", "x"], ["2", "5", "y"], ["3", "5", "z"], ["4", "5", "w"], ["5", "55", "v"]];
    let server = server.restart().await;
    let client = server.client().await;
    for step in MOVES.into_iter().filter(|step| !step.contains("keyless")).chain(["DELIVER TABLE t", "COMPACT TABLE t"])
    {
        client.batch_execute(step).await.unwrap();
        for (path, pruning) in [("auto", "on"), ("lake", "on"), ("lake", "off")] {
            let settings = format!("SET tarn.access_path = '{path}'; SET tarn.pruning = '{pruning}'");
            client.batch_execute(&settings).await.unwrap();
            let at = format!("{step}, {path}, {pruning}");
            assert_eq!(rows(&client, all).await, want, "{at}");
            assert!(rows(&client, "SELECT k FROM t WHERE a IN (11, 22, 33)").await.is_empty(), "{at}");
            assert_eq!(rows(&client, "SELECT min(a), max(a) FROM t").await, [["5", "55"]], "{at}");
        }
        client.batch_execute("RESET ALL").await.unwrap();
    }
    let server = server.restart().await;
    assert_eq!(rows(&server.client().await, all).await, want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_of_a_column_that_is_dropped_are_told_and_others_go_on() {
    let asked = AskedOfColumn {
        inserts: "INSERT INTO t (k, n) VALUES ($1, 0)",
        holds: "INSERT INTO t VALUES (3, 'held', 3)",
        alters: "ALTER TABLE t DROP v, ADD w int NOT NULL DEFAULT 9",
    };
    let (_server, client) = asked.while_it_changes().await;
    assert_eq!(rows(&client, "SELECT k, n, w FROM t ORDER BY k").await, [["1", "7", "9"], ["2", "0", "9"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_name_a_column_are_planned_anew_or_told_that_it_is_gone() {
    let asked = AskedOfColumn {
        inserts: "INSERT INTO t VALUES ($1, 'p', 0)",
        holds: "INSERT INTO t (k, v) VALUES (3, 'held')",
        alters: "ALTER TABLE t RENAME v TO w",
    };
    let (_server, client) = asked.while_it_changes().await;
    assert_eq!(rows(&client, "SELECT k, w FROM t ORDER BY k").await, [["1", "a"], ["2", "p"]]);
}

/// What is prepared, read and held of a table of which column `v` goes, or its name.
struct AskedOfColumn {
    /// Does not name it.
    inserts: &'static str,
    /// In a transaction that was written before.
    holds: &'static str,
    alters: &'static str,
}

impl AskedOfColumn {
    /// The table as it is afterwards.
    async fn while_it_changes(&self) -> (Server, Client) {
        let server = Server::start().await;
        let (client, other) = (server.client().await, server.client().await);
        let setup = "CREATE TABLE t (k int PRIMARY KEY, v text NOT NULL, n int); INSERT INTO t VALUES (1, 'a', 7)";
        client.batch_execute(setup).await.unwrap();
        let named = other.prepare("SELECT v FROM t WHERE k = $1").await.unwrap();
        let unnamed = other.prepare("SELECT n FROM t WHERE k = $1").await.unwrap();
        let insert = other.prepare(self.inserts).await.unwrap();
        let reader = server.client().await;
        reader.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT v FROM t").await.unwrap();
        let held = server.client().await;
        held.batch_execute(&format!("BEGIN; {}", self.holds)).await.unwrap();
        client.batch_execute(self.alters).await.unwrap();
        assert_eq!(failure(other.query(&named, &[&1]).await).0, "42703");
        assert_eq!(other.query_one(&unnamed, &[&1]).await.unwrap().get::<_, i32>(0), 7);
        other.execute(&insert, &[&2]).await.unwrap();
        assert_eq!(rows(&reader, "FETCH ALL FROM c").await, [["a"]], "a cursor reads what was there");
        reader.batch_execute("COMMIT").await.unwrap();
        assert_eq!(failure(held.batch_execute("COMMIT").await).0, "40001");
        (server, client)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_and_writes_meanwhile_goes_on_or_is_told() {
    let server = Server::start().await;
    let (client, other) = (server.client().await, server.client().await);
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text NOT NULL)").await.unwrap();
    client.batch_execute("INSERT INTO t SELECT value, 'v' FROM generate_series(1, 30000) AS s(value)").await.unwrap();
    let (insert, select) = (
        other.prepare("INSERT INTO t VALUES ($1, 'p')").await.unwrap(),
        other.prepare("SELECT v FROM t WHERE k = $1").await.unwrap(),
    );
    let reader = server.client().await;
    reader.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT k, v FROM t").await.unwrap();
    assert_eq!(rows(&reader, "FETCH 10 FROM c").await.len(), 10);
    let held = server.client().await;
    held.batch_execute("BEGIN; INSERT INTO t VALUES (40000, 'held')").await.unwrap();
    client.batch_execute("ALTER TABLE t ALTER v DROP NOT NULL").await.unwrap();
    // Prepared statements are planned anew.
    other.execute(&insert, &[&50_000]).await.unwrap();
    assert_eq!(other.query_one(&select, &[&50_000]).await.unwrap().get::<_, String>(0), "p");
    assert_eq!(rows(&reader, "FETCH ALL FROM c").await.len(), 29_990, "a cursor reads what was there");
    reader.batch_execute("COMMIT").await.unwrap();
    let refused = failure(held.batch_execute("COMMIT").await);
    assert_eq!(refused.0, "40001", "{}", refused.1);
    client.batch_execute("ALTER TABLE t RENAME TO u").await.unwrap();
    assert_eq!(failure(other.execute(&insert, &[&50_001]).await).0, "42P01");
    assert_eq!(cell(&client, "SELECT count(*) FROM u").await, "30001");
}

/// Writers are refused while the table is altered, and for no longer; nothing that was acknowledged is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_beside_alterations_lose_nothing() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    let writing = (0..3).map(|writer| {
        let connecting = server.client();
        async move {
            let client = connecting.await;
            let (mut n_written, mut n_refused) = (0, 0);
            for k in 0..200 {
                match client.batch_execute(&format!("INSERT INTO t (k, v) VALUES ({}, 'x')", writer * 1000 + k)).await {
                    Ok(()) => n_written += 1,
                    Err(error) => {
                        assert_eq!(failure(Err::<(), _>(error)).0, "40001");
                        n_refused += 1;
                    }
                }
            }
            (n_written, n_refused)
        }
    });
    let altering = async {
        for action in
            ["SET NOT NULL", "DROP NOT NULL", "SET DEFAULT 'y'", "SET NOT NULL", "DROP DEFAULT", "DROP NOT NULL"]
        {
            client.batch_execute(&format!("ALTER TABLE t ALTER v {action}")).await.unwrap();
        }
    };
    let (written, ()) = futures::future::join(futures::future::join_all(writing), altering).await;
    let n_written: usize = written.iter().map(|(n_written, _)| n_written).sum();
    assert!(n_written > 0);
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, n_written.to_string());
    let server = server.restart().await;
    assert_eq!(cell(&server.client().await, "SELECT count(*) FROM t").await, n_written.to_string());
}
