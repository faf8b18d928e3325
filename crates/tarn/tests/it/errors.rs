//! Bad input gets an error with a SQLSTATE, the thing and the remedy; the connection stays usable.

use tokio_postgres::error::ErrorPosition;

use crate::harness::{Server, cell, failure};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_have_their_sqlstate_and_name_the_thing() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int NOT NULL, w text)").await.unwrap();
    client.batch_execute("CREATE TABLE log (k int PRIMARY KEY, v int) WITH (append_only = true)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1, 1, 'x')").await.unwrap();
    let cases = [
        ("SELEC 1", "42601", "SELEC"),
        ("SELECT * FROM nowhere", "42P01", "nowhere"),
        ("SELECT nope FROM t", "42703", "nope"),
        ("SELECT nosuch(1)", "42883", "nosuch"),
        ("INSERT INTO nowhere VALUES (1)", "42P01", "nowhere"),
        ("INSERT INTO t VALUES (NULL, 1, 'x')", "23502", "k"),
        ("INSERT INTO t (k) VALUES (5)", "23502", "v"),
        ("INSERT INTO t VALUES ('abc', 1, 'x')", "22P02", "abc"),
        ("INSERT INTO t VALUES (99999999999, 1, 'x')", "22003", "column \"k\""),
        ("SELECT 1/0", "22012", "zero"),
        ("SELECT 'abc'::int", "22P02", "abc"),
        ("UPDATE t SET k = (SELECT 2)", "0A000", "key column"),
        ("UPDATE log SET v = 2", "0A000", "append"),
        ("DELETE FROM log WHERE k = 1", "0A000", "append"),
        ("INSERT INTO t VALUES (2, 1, 'x') RETURNING k / 0", "22012", "zero"),
        ("INSERT INTO t VALUES (2, 1, 'x') RETURNING (SELECT 1)", "0A000", "RETURNING"),
        ("INSERT INTO t VALUES (1, 2, 'y')", "23505", "t_pkey"),
        ("UPDATE t SET v = 2 RETURNING count(*)", "42803", "RETURNING"),
        ("SELECT $0::int", "42000", "$0"),
        ("SELECT k FROM t WHERE k = ANY($0::int[])", "42000", "$0"),
        ("CREATE TABLE t (k int PRIMARY KEY)", "42P07", "already exists"),
        ("CREATE TABLE u (k int, __v int)", "42939", "__"),
        ("CREATE TABLE u (k int PRIMARY KEY) WITH (colour = 'red')", "22023", "colour"),
        ("DROP TABLE nowhere", "42P01", "nowhere"),
        ("DELIVER TABLE nowhere", "42P01", "nowhere"),
        ("CALL tarn.nothing('t')", "42883", "tarn.deliver"),
        ("COPY t FROM '/etc/passwd'", "0A000", "STDIN"),
        ("SET nonsense = 1", "42704", "nonsense"),
        ("SET tarn.access_path = 'fast'", "22023", "access_path"),
        ("SAVEPOINT a", "25P01", "BEGIN first"),
        ("FETCH 1 FROM nowhere", "34000", "nowhere"),
        ("EXECUTE nowhere", "26000", "nowhere"),
        ("TRUNCATE log", "0A000", "append"),
        ("SELECT j FROM (SELECT '{}'::json AS j) s ORDER BY j", "42883", "text"),
        ("ALTER TABLE t DROP COLUMN k", "0A000", "DROP COLUMN"),
        ("INSERT INTO tarn.tables VALUES (1)", "42809", "public"),
    ];
    for (sql, state, part) in cases {
        let (code, text) = failure(client.simple_query(sql).await);
        assert_eq!(code, state, "{sql}: {text}");
        assert!(text.contains(part), "{sql}: {text}");
        let (code, text) = failure(match client.prepare(sql).await {
            Ok(statement) => client.execute(&statement, &[]).await.map(|_| ()),
            Err(error) => Err(error),
        });
        assert_eq!(code, state, "prepared {sql}: {text}");
    }
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "1");
}

/// One thread serves all connections here: the join computes elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_statement_can_be_cancelled_and_timed_out() {
    let server = Server::start().await;
    let client = server.client().await;
    // It never yields: the cancel must be heard all the same.
    let stubborn = "SELECT count(*) FROM generate_series(1, 20000) a(value), generate_series(1, 20000) b(value) WHERE a.value + b.value = -1";
    let token = client.cancel_token();
    let running = client.simple_query(stubborn);
    let cancel = async {
        // The statement may not have begun: a cancel that finds nothing is no error, so ask until it ends.
        loop {
            token.cancel_query(tokio_postgres::NoTls).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let result = tokio::select! {
        result = running => result,
        () = cancel => unreachable!(),
    };
    assert_eq!(failure(result).0, "57014");

    client.batch_execute("SET statement_timeout = '20ms'").await.unwrap();
    let endless = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000) AS s(value)";
    let (code, text) = failure(client.simple_query(endless).await);
    assert_eq!(code, "57014");
    assert!(text.contains("timeout"), "{text}");
    client.batch_execute("RESET statement_timeout").await.unwrap();
    assert_eq!(cell(&client, "SELECT 1").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_connections_are_refused_by_name() {
    let server = Server::start_with(|settings| settings.server.max_connections = 1).await;
    let first = server.client().await;
    let config = format!("host=127.0.0.1 port={} user=tester", server.running.pg.port());
    let (code, text) = failure(tokio_postgres::connect(&config, tokio_postgres::NoTls).await.map(|_| ()));
    assert_eq!(code, "53300");
    assert!(text.contains("max_connections"), "{text}");
    drop(first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_has_one_server() {
    let server = Server::start().await;
    let error = tarn_node::node::Node::open(crate::harness::settings(server.dir.path()).node).await.err().unwrap();
    assert_eq!(error.kind(), tarn_node::error::ErrorKind::InUse);
    assert!(error.message().contains("in use by another"), "{error}");
}

/// Where PostgreSQL 15 puts psql's caret in the same statements, unless it is said otherwise; nowhere, where a name
/// stands twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_say_where_in_the_text_they_are() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, city text)").await.unwrap();
    let cases = [
        ("selec 1", Some(1)),
        ("select 1 from", Some(14)),
        ("select 1 from ;", Some(15)),
        ("select 1;; selec 2", Some(12)),
        ("select (1", Some(10)),
        ("select 'é' from t whre k = 1", Some(24)),
        // PostgreSQL has it at `valus`, which here could be an alias.
        ("insert into t valus (1)", Some(22)),
        ("select\n  colour\nfrom t", Some(10)),
        ("select 'é', colour from t", Some(13)),
        ("select t.colour from t", Some(8)),
        ("select k, count(*) from t group by colour", Some(36)),
        ("select * from t a join t b on a.k = b.k where k = 1", None),
        ("select * from public.nothing", Some(15)),
        ("insert into nothing values (1)", Some(13)),
        ("update nothing set a = 1", Some(8)),
        ("delete from nothing", Some(13)),
        ("select abs(1), nofunc(city) from t", Some(16)),
        ("select colour from t where colour = 1", None),
        ("drop table nothing", None),
    ];
    for (sql, position) in cases {
        let error = client.simple_query(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        let is = error.position().map(|position| match position {
            ErrorPosition::Original(position) => *position,
            ErrorPosition::Internal { .. } => panic!("{sql}: of another text"),
        });
        assert_eq!(is, position, "{sql}: {error}");
    }
    // The text of EXECUTE is not the one that is wrong.
    client
        .batch_execute(
            "CREATE TABLE u (a int, b int); PREPARE p AS SELECT b FROM u; DROP TABLE u; CREATE TABLE u (a int)",
        )
        .await
        .unwrap();
    let error = client.simple_query("EXECUTE p").await.unwrap_err();
    assert!(error.as_db_error().unwrap().position().is_none(), "{error}");
}
