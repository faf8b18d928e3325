//! Views and comments: whose rights they have, what survives, what prepared statements notice, and how large they may
//! become.

use tokio_postgres::Client;

use crate::harness::{Server, cell, failure, rows};

async fn denied(client: &Client, sql: &str, message: &str) {
    let (state, told) = failure(client.batch_execute(sql).await);
    assert_eq!((state.as_str(), told.contains(message)), ("42501", true), "{sql}: {told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_has_the_rights_of_its_owner_and_its_reader_those_on_the_view() {
    let server = Server::start().await;
    let first = server.client().await;
    first.batch_execute("CREATE TABLE early (a int); INSERT INTO early VALUES (7)").await.unwrap();
    first.batch_execute("CREATE USER root SUPERUSER PASSWORD 'x'").await.unwrap();
    let root = server.client_as("root", "x").await.unwrap();
    root.batch_execute(
        "CREATE USER ann PASSWORD 'x'; CREATE USER bob PASSWORD 'x'; GRANT CREATE ON SCHEMA public TO ann;
         CREATE TABLE secret (k int PRIMARY KEY, v text); INSERT INTO secret VALUES (1, 'a'), (2, 'b');
         CREATE VIEW part AS SELECT k FROM secret; CREATE VIEW one AS SELECT 1 AS a",
    )
    .await
    .unwrap();
    let (ann, bob) = (server.client_as("ann", "x").await.unwrap(), server.client_as("bob", "x").await.unwrap());
    denied(&bob, "SELECT * FROM part", "permission denied for view part").await;
    denied(&bob, "SELECT * FROM one", "permission denied for view one").await;
    denied(&bob, "SELECT (SELECT count(*) FROM part)", "permission denied for view part").await;
    denied(&bob, "DROP VIEW part", "must be owner of view part").await;
    denied(&bob, "CREATE VIEW own AS SELECT 1 AS a", "permission denied for schema public").await;
    root.batch_execute("GRANT SELECT ON part, one TO bob").await.unwrap();
    assert_eq!(rows(&bob, "SELECT * FROM part ORDER BY k").await, [["1"], ["2"]]);
    assert_eq!(rows(&bob, "SELECT k FROM part WHERE k = 2").await, [["2"]]);
    assert_eq!(cell(&bob, "SELECT a FROM one").await, "1");
    denied(&bob, "SELECT * FROM secret", "permission denied for table secret").await;
    denied(&bob, "SELECT * FROM part, secret", "permission denied for table secret").await;
    denied(&bob, "SELECT * FROM part WHERE k IN (SELECT k FROM secret)", "permission denied for table secret").await;
    denied(&bob, "CREATE OR REPLACE VIEW part AS SELECT k, v FROM secret", "").await;
    assert_eq!(cell(&bob, "SELECT has_table_privilege('part', 'select')").await, "t");
    assert_eq!(cell(&bob, "SELECT has_table_privilege('secret', 'select')").await, "f");

    // A view of a view: its owner must be allowed to read the inner one, and need not know what that reads.
    root.batch_execute("GRANT SELECT ON part TO ann").await.unwrap();
    ann.batch_execute("CREATE VIEW more AS SELECT k + 1 AS k FROM part").await.unwrap();
    denied(&bob, "SELECT * FROM more", "permission denied for view more").await;
    denied(&bob, "COMMENT ON VIEW more IS 'x'", "must be owner of view more").await;
    ann.batch_execute("GRANT SELECT ON more TO bob; COMMENT ON VIEW more IS 'x'").await.unwrap();
    assert_eq!(rows(&bob, "SELECT * FROM more ORDER BY k").await, [["2"], ["3"]]);
    let prepared = bob.prepare("SELECT count(*) FROM more").await.unwrap();
    root.batch_execute("REVOKE SELECT ON part FROM ann").await.unwrap();
    denied(&bob, "SELECT * FROM more", "permission denied for view part").await;
    assert_eq!(failure(bob.query(&prepared, &[]).await).0, "42501", "each run is asked for");
    // So does PostgreSQL: whoever reads a view reads as its owner, superusers too.
    denied(&root, "SELECT * FROM more", "permission denied for view part").await;
    denied(&ann, "CREATE VIEW direct AS SELECT * FROM secret", "permission denied for table secret").await;

    // Of tables that were made before there were users, and of the catalogs.
    root.batch_execute("CREATE VIEW of_early AS SELECT a FROM early; GRANT SELECT ON of_early TO bob").await.unwrap();
    assert_eq!(cell(&bob, "SELECT a FROM of_early").await, "7");
    root.batch_execute("CREATE VIEW running AS SELECT query FROM tarn.queries; GRANT SELECT ON running TO bob")
        .await
        .unwrap();
    denied(&bob, "SELECT * FROM running", "must be superuser").await;
    root.batch_execute("CREATE VIEW listed AS SELECT table_name FROM tarn.tables; GRANT SELECT ON listed TO bob")
        .await
        .unwrap();
    assert!(rows(&bob, "SELECT * FROM listed").await.is_empty(), "of system tables one sees one's own");
    assert_eq!(rows(&root, "SELECT * FROM listed ORDER BY 1").await, [["early"], ["secret"]]);

    // Rights go with the view.
    root.batch_execute("ALTER VIEW one OWNER TO ann").await.unwrap();
    ann.batch_execute("DROP VIEW one").await.unwrap();
    root.batch_execute("DROP VIEW part CASCADE; CREATE VIEW part AS SELECT k FROM secret").await.unwrap();
    denied(&bob, "SELECT * FROM part", "permission denied for view part").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_and_comments_are_back_after_a_start() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b');
             CREATE VIEW v AS SELECT k, v FROM t WHERE k > 1; CREATE VIEW w AS SELECT k FROM v; CREATE VIEW gone AS SELECT 1 AS a;
             COMMENT ON TABLE t IS 'of t'; COMMENT ON COLUMN v.k IS 'of k'; COMMENT ON VIEW gone IS 'x';
             CREATE OR REPLACE VIEW v AS SELECT k, v, 1 AS one FROM t; DROP VIEW gone",
        )
        .await
        .unwrap();
    let numbers = "SELECT oid FROM pg_class WHERE relname IN ('t', 'v', 'w') ORDER BY relname";
    let before = rows(&client, numbers).await;
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(rows(&client, "SELECT w.k, one FROM w JOIN v ON w.k = v.k ORDER BY 1").await, [["1", "1"], ["2", "1"]]);
    assert_eq!(cell(&client, "SELECT obj_description('t'::regclass, 'pg_class')").await, "of t");
    assert_eq!(cell(&client, "SELECT col_description('v'::regclass, 1)").await, "of k");
    assert_eq!(cell(&client, "SELECT count(*) FROM pg_description WHERE description = 'x'").await, "0");
    assert_eq!(rows(&client, numbers).await, before, "numbers of relations are the same in every session");
    assert_eq!(failure(client.batch_execute("DROP TABLE t").await).0, "2BP01");
    client.batch_execute("CREATE VIEW gone AS SELECT 2 AS a; DROP TABLE t CASCADE").await.unwrap();
    assert_eq!(
        rows(&client, "SELECT table_name FROM information_schema.views WHERE table_schema = 'public'").await,
        [["gone"]]
    );
    let server = server.restart().await;
    assert_eq!(cell(&server.client().await, "SELECT a FROM gone").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_notice_another_view() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1), (2); CREATE VIEW v AS SELECT k FROM t",
        )
        .await
        .unwrap();
    let count = client.prepare("SELECT count(*) FROM v WHERE k >= $1").await.unwrap();
    let all = client.prepare("SELECT * FROM v").await.unwrap();
    let counted = async |at_least: i32| client.query_one(&count, &[&at_least]).await.unwrap().get::<_, i64>(0);
    assert_eq!((counted(1).await, counted(2).await), (2, 1));
    client.batch_execute("CREATE OR REPLACE VIEW v AS SELECT k FROM t WHERE k = 1").await.unwrap();
    assert_eq!((counted(1).await, counted(2).await), (1, 0));
    assert_eq!(client.query(&all, &[]).await.unwrap().len(), 1);
    client.batch_execute("CREATE OR REPLACE VIEW v AS SELECT k, 1 AS one FROM t").await.unwrap();
    let (state, message) = failure(client.query(&all, &[]).await);
    assert_eq!(state, "0A000", "{message}");
    assert_eq!(counted(2).await, 1);
    client.batch_execute("DROP VIEW v").await.unwrap();
    assert_eq!(failure(client.query(&count, &[&1i32]).await).0, "42P01");
}

/// Each view reads the one before it twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_of_views_end() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE VIEW v0 AS SELECT 1 AS a").await.unwrap();
    let mut refused = None;
    for n in 1..40 {
        let made = client.batch_execute(&format!("CREATE VIEW v{n} AS SELECT a FROM v{}", n - 1)).await;
        if made.is_err() {
            refused = Some((n, failure(made)));
            break;
        }
    }
    let (depth, (state, message)) = refused.unwrap();
    assert_eq!((depth, state.as_str(), message.contains("32 views deep")), (32, "54000", true), "{message}");
    assert_eq!(cell(&client, "SELECT a FROM v31").await, "1");
    client.batch_execute("CREATE VIEW w0 AS SELECT 1 AS a").await.unwrap();
    let mut refused = None;
    for n in 1..32 {
        let below = n - 1;
        let twice = format!("CREATE VIEW w{n} AS SELECT a FROM w{below} UNION ALL SELECT a FROM w{below}");
        let made = client.batch_execute(&twice).await;
        if made.is_err() {
            refused = Some((n, failure(made)));
            break;
        }
    }
    let (n, (state, message)) = refused.unwrap();
    assert_eq!((state.as_str(), message.contains("20000 steps")), ("54000", true), "{message}");
    assert!(n > 8, "{n}");
    assert_eq!(cell(&client, "SELECT count(*) FROM w6").await, "64");
    assert_eq!(cell(&client, "SELECT 1").await, "1");
}

/// All tables of a statement are seen at one moment, whether it names them or a view does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_is_planned_as_the_tables_below_it() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 1000) AS s(i);
             CREATE VIEW v AS SELECT k, v * 2 AS twice FROM t",
        )
        .await
        .unwrap();
    let plan = rows(&client, "EXPLAIN SELECT twice FROM v WHERE k = 7").await;
    let plan: Vec<String> = plan.into_iter().flatten().collect();
    let plan = plan.join("\n");
    assert!(plan.contains("path=point") || plan.contains("point"), "a key is looked up: {plan}");
    assert!(!plan.contains("tarn_view"), "marks are gone: {plan}");
    assert_eq!(cell(&client, "SELECT twice FROM v WHERE k = 7").await, "14");
    let both = "SELECT count(*) FROM t JOIN v USING (k) WHERE v.twice <> t.v * 2";
    assert_eq!(cell(&client, both).await, "0");
    client.batch_execute("DELIVER TABLE t; SET tarn.access_path = 'lake'").await.unwrap();
    assert_eq!(cell(&client, "SELECT sum(twice) FROM v").await, "1001000");
    client.batch_execute("RESET ALL").await.unwrap();
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT * FROM v ORDER BY k").await.unwrap();
    assert_eq!(rows(&client, "FETCH 2 FROM c").await, [["1", "2"], ["2", "4"]]);
    client.batch_execute("ROLLBACK").await.unwrap();
}
