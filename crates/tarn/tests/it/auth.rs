//! Who may do what? Users, rights and logins, by every way in.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use futures::{SinkExt, TryStreamExt};
use serde_json::{Value, json};
use tarn_query::parser::CONNECTION_STACK_BYTES;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use crate::harness::{Server, cell, failure, rows, settings_with};

const DENIED: &str = "42501";

/// A server with the superuser `root`, whose password is `r00t`.
async fn server() -> Server {
    let server = Server::start().await;
    server.client().await.batch_execute("CREATE USER root SUPERUSER PASSWORD 'r00t'").await.unwrap();
    server
}

async fn as_user(server: &Server, user: &str, password: &str) -> Client {
    server.client_as(user, password).await.unwrap_or_else(|error| panic!("{user}: {error:?}"))
}

/// A request with a name and a password: status and body.
fn request(address: SocketAddr, method: &str, path: &str, login: Option<&str>, body: &str) -> (u16, String) {
    use base64::Engine as _;
    let mut socket = TcpStream::connect(address).unwrap();
    let login = login.map_or(String::new(), |login| {
        format!("authorization: Basic {}\r\n", base64::engine::general_purpose::STANDARD.encode(login))
    });
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n{login}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

async fn http(server: &Server, login: Option<&'static str>, sql: &str) -> (u16, Value) {
    let (address, body) = (server.running.http.unwrap(), json!({ "sql": sql }).to_string());
    let asked = tokio::task::spawn_blocking(move || request(address, "POST", "/v1/sql", login, &body));
    let (status, answer) = asked.await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_knows_the_password_is_let_in() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute("CREATE USER bob PASSWORD 'bób''s'; CREATE ROLE nobody PASSWORD 'x'; CREATE USER mute")
        .await
        .unwrap();
    let bob = as_user(&server, "bob", "bób's").await;
    assert_eq!(cell(&bob, "SELECT current_user").await, "bob");
    assert_eq!(cell(&bob, "SELECT session_user").await, "bob");
    assert_eq!(cell(&bob, "SHOW is_superuser").await, "off");
    assert_eq!(cell(&root, "SHOW is_superuser").await, "on");

    let mut told = BTreeMap::new();
    for (user, password) in
        [("root", "wrong"), ("bob", ""), ("eve", "x"), ("nobody", "x"), ("mute", ""), ("mute", "x"), ("BOB", "bób's")]
    {
        let (state, message) = failure(server.client_as(user, password).await);
        assert_eq!(state, "28P01", "{user}: {message}");
        told.insert(message.replace(user, "U"), user);
    }
    assert_eq!(told.len(), 1, "the reason can be told: {told:?}");
    // Without any password: the driver learns that one is wanted.
    let config = format!("host=127.0.0.1 port={} user=root", server.running.pg.port());
    assert!(tokio_postgres::connect(&config, NoTls).await.is_err());

    // A new password, hashed by the client as psql's \password does; by the user alone.
    let hashed = tarn_node::auth::password::Verifier::of_password("new");
    bob.batch_execute(&format!("ALTER USER \"bob\" PASSWORD '{hashed}'")).await.unwrap();
    assert_eq!(failure(server.client_as("bob", "bób's").await).0, "28P01");
    as_user(&server, "bob", "new").await;
    assert_eq!(failure(bob.batch_execute("ALTER USER bob SUPERUSER").await).0, DENIED);
    assert_eq!(failure(bob.batch_execute("ALTER USER root PASSWORD 'x'").await).0, DENIED);
    assert_eq!(cell(&bob, "SHOW password_encryption").await, "scram-sha-256");

    // Who may no longer log in may no longer do anything, connected or not.
    root.batch_execute("ALTER USER bob NOLOGIN").await.unwrap();
    assert_eq!(failure(bob.simple_query("SELECT 1").await).0, "28000");
    assert_eq!(failure(server.client_as("bob", "new").await).0, "28P01");
    // Nor is a new user of the same name the old one.
    root.batch_execute("DROP USER bob; CREATE USER bob PASSWORD 'new'").await.unwrap();
    assert_eq!(failure(bob.simple_query("SELECT 1").await).0, "28000");

    // All of it survives a restart.
    let server = server.restart().await;
    as_user(&server, "bob", "new").await;
    assert_eq!(failure(server.client_as("root", "x").await).0, "28P01");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_not_let_in_runs_nothing() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    let message = |kind: u8, body: &[u8]| {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    };
    let startup = {
        let body = [&196_608_u32.to_be_bytes()[..], b"user\0root\0database\0tarn\0\0"].concat();
        [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
    };
    let query = message(b'Q', b"DROP TABLE t\0");
    let md5 = message(b'p', b"md500112233445566778899aabbccddeeff\0");
    let wrong = message(b'p', b"SCRAM-SHA-256\0\0\0\0\x10n,,n=,r=abcdefgh");
    let proof = message(b'p', b"c=biws,r=abcdefgh,p=AAAA");
    for sent in [
        vec![query.clone()],
        vec![md5, query.clone()],
        vec![message(b'p', b"SCRAM-SHA-256-PLUS\0\0\0\0\x10n,,n=,r=abcdefgh"), query.clone()],
        vec![wrong.clone(), query.clone()],
        vec![wrong, proof.clone(), query.clone(), query.clone()],
        vec![proof, query],
    ] {
        let mut socket = tokio::net::TcpStream::connect(server.running.pg).await.unwrap();
        socket.write_all(&startup).await.unwrap();
        let mut answer = vec![0; 256];
        let n_read = socket.read(&mut answer).await.unwrap();
        answer.truncate(n_read);
        for bytes in sent {
            // The server may have hung up.
            let _ = socket.write_all(&bytes).await;
        }
        let _ = socket.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains("SCRAM-SHA-256\0"), "{answer:?}");
        assert!(!answer.contains("DROP") && !answer.contains("server_version"), "{answer:?}");
    }
    assert_eq!(cell(&root, "SELECT count(*) FROM t").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_user_can_rule_and_whoever_came_before_is_nobody() {
    let server = Server::start().await;
    let early = server.client().await;
    early.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    for no_ruler in ["CREATE USER a PASSWORD 'x'", "CREATE USER a SUPERUSER", "CREATE ROLE a SUPERUSER PASSWORD 'x'"] {
        assert_eq!(failure(early.batch_execute(no_ruler).await).0, "55006", "{no_ruler}");
    }
    early.batch_execute("CREATE USER a SUPERUSER PASSWORD 'x'").await.unwrap();
    assert_eq!(failure(early.simple_query("SELECT * FROM t").await).0, "28000");
    assert_eq!(failure(early.simple_query("SELECT 1").await).0, "28000");
    let a = as_user(&server, "a", "x").await;
    for last in ["DROP USER a", "ALTER USER a NOSUPERUSER", "ALTER USER a NOLOGIN", "ALTER USER a PASSWORD NULL"] {
        assert_eq!(failure(a.batch_execute(last).await).0, "55006", "{last}");
    }
    a.batch_execute("CREATE USER b SUPERUSER PASSWORD 'y'").await.unwrap();
    as_user(&server, "b", "y").await.batch_execute("DROP USER a").await.unwrap();
    assert_eq!(failure(a.simple_query("SELECT 1").await).0, "28000");
}

/// A statement, and what it takes: each is tried by somebody who has all but that.
struct Case {
    sql: &'static str,
    needs: &'static [&'static str],
}

const fn case(sql: &'static str, needs: &'static [&'static str]) -> Case {
    Case { sql, needs }
}

/// What may be read, by every shape of query that reads `t`; `u` is a table of one's own.
const READS: &[&str] = &[
    "SELECT v FROM t WHERE k = 1",
    "SELECT * FROM t",
    "SELECT count(*) FROM public.t AS x",
    "SELECT count(*) FROM tarn.public.t",
    "SELECT count(*) FROM \"t$seqno\"",
    "SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.k)",
    "SELECT 1 FROM u WHERE u.k IN (SELECT k FROM t)",
    "SELECT (SELECT max(v) FROM t)",
    "SELECT k FROM u UNION ALL SELECT k FROM t",
    "WITH x AS (SELECT * FROM t) SELECT * FROM x",
    "SELECT * FROM u JOIN t USING (k)",
    "SELECT * FROM (SELECT * FROM t) AS inner_one",
    "SELECT * FROM u, LATERAL (SELECT v FROM t WHERE t.k = u.k) AS l",
    "EXPLAIN SELECT * FROM t",
    "EXPLAIN ANALYZE SELECT * FROM t",
    "SHOW CREATE TABLE t",
    "SHOW COLUMNS FROM t",
    "DESCRIBE t",
];

const CASES: &[Case] = &[
    case("INSERT INTO t VALUES (7, 'x') ON CONFLICT DO NOTHING", &["INSERT"]),
    case("INSERT INTO t SELECT k + 100, v FROM u ON CONFLICT DO NOTHING", &["INSERT"]),
    case("UPSERT INTO t VALUES (7, 'x')", &["INSERT", "UPDATE"]),
    case("UPSERT INTO t SELECT k + 100, v FROM u", &["INSERT", "UPDATE"]),
    case("INSERT INTO t VALUES (7, 'x') ON CONFLICT (k) DO UPDATE SET v = excluded.v", &["INSERT", "UPDATE"]),
    case(
        "INSERT INTO t VALUES (7, 'x') ON CONFLICT (k) DO UPDATE SET v = excluded.v WHERE t.v > 'a'",
        &["INSERT", "UPDATE", "SELECT"],
    ),
    case("UPDATE t SET v = 'y' WHERE k = 1 RETURNING v", &["UPDATE", "SELECT"]),
    case("DELETE FROM t USING u WHERE t.k = u.k + 5000 RETURNING t.v", &["DELETE", "SELECT"]),
    case("UPDATE u SET v = t.v FROM t WHERE t.k = u.k", &["SELECT"]),
    case("UPDATE t SET v = 'y' WHERE k = 1", &["UPDATE", "SELECT"]),
    case("UPDATE t SET v = 'y' WHERE v = 'nothing'", &["UPDATE", "SELECT"]),
    case("DELETE FROM t WHERE k = 99", &["DELETE", "SELECT"]),
    case("DELETE FROM t WHERE v = 'nothing'", &["DELETE", "SELECT"]),
    case("INSERT INTO u SELECT k + 1000, v FROM t ON CONFLICT DO NOTHING", &["SELECT"]),
    case("UPDATE u SET v = 'z' WHERE k IN (SELECT k FROM t)", &["SELECT"]),
    case("DELETE FROM u WHERE k IN (SELECT k + 5000 FROM t)", &["SELECT"]),
];

/// Reads of `t` in places where not everything can be planned: whatever is said, they do not work.
const HIDDEN: &[&str] = &[
    "INSERT INTO u VALUES (50, (SELECT max(v) FROM t))",
    "UPDATE u SET v = (SELECT max(v) FROM t)",
    "CACHE TABLE u WHERE k IN (SELECT k FROM t)",
    "SELECT k FROM u ORDER BY (SELECT max(k) FROM t)",
    "SELECT k FROM u GROUP BY k HAVING k < (SELECT max(k) FROM t)",
    "WITH RECURSIVE r AS (SELECT k FROM t UNION ALL SELECT k + 1 FROM r WHERE k < 3) SELECT * FROM r",
    "SELECT CASE WHEN EXISTS (SELECT 1 FROM t) THEN 1 END",
    "SELECT * FROM u WHERE v = ANY (SELECT v FROM t)",
];

/// What is the owner's, or superusers'.
const NEVER: &[&str] = &[
    "DROP TABLE t",
    "DROP TABLE IF EXISTS u, t",
    "DELIVER TABLE t",
    "COMPACT TABLE t",
    "EVICT TABLE t",
    "FLUSH TABLE t",
    "CALL tarn.deliver('t')",
    "CALL tarn.compact('t')",
    "CALL tarn.evict('t')",
    "CALL tarn.attach('t')",
    "CACHE TABLE t",
    "GRANT SELECT ON t TO bob",
    "GRANT SELECT ON u, t TO bob",
    "REVOKE SELECT ON t FROM root",
    "ALTER TABLE t OWNER TO bob",
    "ALTER TABLE u OWNER TO root",
    "CREATE TABLE new (k int PRIMARY KEY)",
    "ATTACH '/tmp' AS a",
    "DETACH TABLE t",
    "DETACH TABLE IF EXISTS nothing",
    "SYSTEM DROP CACHE",
    "SYSTEM DROP CACHE FOR TABLE t",
    "CREATE USER c PASSWORD 'x'",
    "CREATE ROLE c",
    "ALTER USER root NOLOGIN",
    "ALTER USER bob SUPERUSER",
    "ALTER USER root PASSWORD 'mine'",
    "DROP USER root",
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO bob",
    "GRANT CREATE ON SCHEMA public TO bob",
    "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    "SET datafusion.execution.target_partitions = 7",
    "SELECT * FROM tarn.files",
    "SELECT count(*) FROM tarn.attachments",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM tarn.log_segments)",
    "SELECT * FROM tarn.metastore",
    "SELECT * FROM tarn.caches",
    "INSERT INTO u SELECT 5, table_name FROM tarn.tables",
    "UPDATE u SET k = k + 100 WHERE v IN (SELECT table_name FROM tarn.tables)",
    "SELECT rolname, rolpassword FROM pg_catalog.pg_authid",
];

/// One way to run a statement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum QueryInterface {
    Simple,
    Extended,
    Prepared,
    Http,
}

const FACES: [QueryInterface; 4] =
    [QueryInterface::Simple, QueryInterface::Extended, QueryInterface::Prepared, QueryInterface::Http];

/// The SQLSTATE a statement ends with; empty: none.
async fn outcome(server: &Server, bob: &Client, face: QueryInterface, sql: &str, n: usize) -> String {
    let state = |result: Result<(), Error>| match result {
        Ok(()) => String::new(),
        Err(error) => error.code().unwrap_or_else(|| panic!("{sql}: {error:?}")).code().to_owned(),
    };
    match face {
        QueryInterface::Simple => state(bob.batch_execute(sql).await),
        QueryInterface::Extended => state(bob.query(sql, &[]).await.map(drop)),
        QueryInterface::Prepared => {
            // SQL's PREPARE takes what can be planned; other statements have no such way.
            let prepared = bob.batch_execute(&format!("PREPARE p{n} AS {sql}")).await;
            let executed = match prepared {
                Ok(()) => state(bob.batch_execute(&format!("EXECUTE p{n}")).await),
                Err(_) => "0A000".to_owned(),
            };
            if executed == "0A000" { state(bob.batch_execute(sql).await) } else { executed }
        }
        QueryInterface::Http => {
            let (status, answer) = http(server, Some("bob:b"), sql).await;
            let code = answer["error"]["code"].as_str().unwrap_or("").to_owned();
            assert_eq!((status == 403, status == 200), (code == DENIED, code.is_empty()), "{sql}: {status} {answer}");
            code
        }
    }
}

#[test]
fn what_was_not_granted_is_denied_by_every_face() {
    // With the stacks that the server's own threads have.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).thread_stack_size(CONNECTION_STACK_BYTES).enable_all().build().unwrap();
    runtime.block_on(deny_by_every_face());
}

async fn deny_by_every_face() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute(
        "CREATE USER bob PASSWORD 'b'; CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'secret'); \
         CREATE TABLE u (k int PRIMARY KEY, v text); INSERT INTO u VALUES (1, 'own'); ALTER TABLE u OWNER TO bob",
    )
    .await
    .unwrap();
    let bob = as_user(&server, "bob", "b").await;
    let all = ["SELECT", "INSERT", "UPDATE", "DELETE"];
    let set = async |privileges: &[&str]| {
        root.batch_execute("REVOKE ALL ON t FROM bob").await.unwrap();
        if !privileges.is_empty() {
            root.batch_execute(&format!("GRANT {} ON t TO bob", privileges.join(", "))).await.unwrap();
        }
    };
    let mut n = 0;
    for face in FACES {
        // Nothing was granted: nothing works but what is one's own.
        set(&[]).await;
        for sql in READS.iter().chain(CASES.iter().map(|case| &case.sql)).chain(NEVER) {
            n += 1;
            assert_eq!(outcome(&server, &bob, face, sql, n).await, DENIED, "{face:?}: {sql}");
        }
        for sql in HIDDEN {
            n += 1;
            assert_ne!(outcome(&server, &bob, face, sql, n).await, "", "{face:?}: {sql}");
        }
        assert_eq!(outcome(&server, &bob, face, "SELECT v FROM u WHERE k = 1", 1_000_000 + n).await, "", "{face:?}");
        // Everything was granted, but what is owners' and superusers'.
        set(&all).await;
        for sql in NEVER {
            n += 1;
            assert_eq!(outcome(&server, &bob, face, sql, n).await, DENIED, "{face:?}: {sql}");
        }
        // Each needs each of its privileges, and no other.
        let reads = READS.iter().map(|sql| Case { sql, needs: &["SELECT"] });
        for Case { sql, needs } in reads.chain(CASES.iter().map(|case| Case { ..*case })) {
            for missing in needs {
                let others: Vec<&str> = all.into_iter().filter(|privilege| privilege != missing).collect();
                set(&others).await;
                n += 1;
                assert_eq!(outcome(&server, &bob, face, sql, n).await, DENIED, "{face:?}, no {missing}: {sql}");
            }
            set(needs).await;
            n += 1;
            assert_eq!(outcome(&server, &bob, face, sql, n).await, "", "{face:?}: {sql}");
        }
    }
    assert_eq!(cell(&root, "SELECT count(*) FROM t WHERE k = 1").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_and_cursors_ask_too() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute(
        "CREATE USER bob PASSWORD 'b'; CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'secret')",
    )
    .await
    .unwrap();
    let bob = as_user(&server, "bob", "b").await;
    let copy_in = async |text: &'static [u8]| -> Result<u64, Error> {
        let sink = bob.copy_in("COPY t FROM STDIN").await?;
        futures::pin_mut!(sink);
        sink.send(bytes::Bytes::from_static(text)).await?;
        sink.finish().await
    };
    let copy_out = async |sql: &'static str| -> Result<usize, Error> {
        let chunks: Vec<bytes::Bytes> = bob.copy_out(sql).await?.try_collect().await?;
        Ok(chunks.len())
    };
    let outs = ["COPY t TO STDOUT", "COPY t (v) TO STDOUT", "COPY (SELECT v FROM t) TO STDOUT"];
    let cursor = "BEGIN; DECLARE c CURSOR FOR SELECT v FROM t; FETCH ALL FROM c; COMMIT";

    assert_eq!(failure(copy_in(b"2\ttwo\n").await).0, DENIED);
    for sql in outs {
        assert_eq!(failure(copy_out(sql).await).0, DENIED, "{sql}");
    }
    assert_eq!(failure(bob.simple_query(cursor).await).0, DENIED);
    bob.batch_execute("ROLLBACK").await.unwrap();

    root.batch_execute("GRANT INSERT ON t TO bob").await.unwrap();
    assert_eq!(copy_in(b"2\ttwo\n").await.unwrap(), 1);
    assert_eq!(failure(copy_out(outs[0]).await).0, DENIED);
    root.batch_execute("GRANT SELECT ON t TO PUBLIC").await.unwrap();
    for sql in outs {
        assert!(copy_out(sql).await.unwrap() > 0, "{sql}");
    }
    let fetched = bob.simple_query(cursor).await.unwrap();
    assert_eq!(fetched.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count(), 2);

    // A held DROP is asked for again at COMMIT: the table that has the name now may be another's.
    root.batch_execute("CREATE TABLE mine (k int PRIMARY KEY); ALTER TABLE mine OWNER TO bob").await.unwrap();
    bob.batch_execute("BEGIN; DROP TABLE mine").await.unwrap();
    root.batch_execute("DROP TABLE mine; CREATE TABLE mine (k int PRIMARY KEY)").await.unwrap();
    assert_eq!(failure(bob.batch_execute("COMMIT").await).0, DENIED);
    assert_eq!(cell(&root, "SELECT count(*) FROM mine").await, "0");
    bob.batch_execute("DROP TABLE IF EXISTS nothing").await.unwrap();
    assert_eq!(failure(bob.batch_execute("DROP TABLE nothing").await).0, "42P01");

    // Inside a transaction a statement is asked for when it is run.
    root.batch_execute("REVOKE INSERT ON t FROM bob").await.unwrap();
    assert_eq!(failure(bob.batch_execute("BEGIN; INSERT INTO t VALUES (3, 'x')").await).0, DENIED);
    bob.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_prepared_before_a_revoke_is_denied_after_it() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute(
        "CREATE USER bob PASSWORD 'b'; CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x'); GRANT ALL ON t TO bob",
    )
    .await
    .unwrap();
    let bob = as_user(&server, "bob", "b").await;
    let keyed = bob.prepare("SELECT v FROM t WHERE k = $1").await.unwrap();
    let planned = bob.prepare("SELECT count(*) FROM t WHERE v = $1").await.unwrap();
    let write = bob.prepare("INSERT INTO t VALUES ($1, 'y')").await.unwrap();
    bob.batch_execute("PREPARE named AS SELECT count(*) FROM t").await.unwrap();
    assert_eq!(bob.query(&keyed, &[&1_i32]).await.unwrap().len(), 1);
    assert_eq!(bob.query(&planned, &[&"x"]).await.unwrap().len(), 1);
    assert_eq!(bob.execute(&write, &[&2_i32]).await.unwrap(), 1);
    bob.batch_execute("EXECUTE named").await.unwrap();

    root.batch_execute("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM bob").await.unwrap();
    assert_eq!(failure(bob.query(&keyed, &[&1_i32]).await).0, DENIED);
    assert_eq!(failure(bob.query(&planned, &[&"x"]).await).0, DENIED);
    assert_eq!(failure(bob.execute(&write, &[&3_i32]).await).0, DENIED);
    assert_eq!(failure(bob.batch_execute("EXECUTE named").await).0, DENIED);

    // Rights hang on the table, not on its name.
    root.batch_execute("GRANT ALL ON t TO bob; DROP TABLE t; CREATE TABLE t (k int PRIMARY KEY, v text)")
        .await
        .unwrap();
    assert_eq!(failure(bob.query(&keyed, &[&1_i32]).await).0, DENIED);
    assert_eq!(failure(bob.simple_query("SELECT * FROM t").await).0, DENIED);
    root.batch_execute("DROP USER bob").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_have_their_tables_and_see_their_own() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute("CREATE USER bob PASSWORD 'b'; CREATE USER eve PASSWORD 'e'; CREATE TABLE hidden (k int PRIMARY KEY); GRANT CREATE ON SCHEMA public TO bob")
        .await
        .unwrap();
    let (bob, eve) = (as_user(&server, "bob", "b").await, as_user(&server, "eve", "e").await);
    bob.batch_execute(
        "CREATE TABLE own (k int PRIMARY KEY); INSERT INTO own VALUES (1); DELIVER TABLE own; CALL tarn.compact('own')",
    )
    .await
    .unwrap();
    bob.batch_execute("BEGIN; CREATE TABLE held (k int PRIMARY KEY); COMMIT; INSERT INTO held VALUES (1)")
        .await
        .unwrap();
    bob.batch_execute("CREATE TABLE IF NOT EXISTS hidden (k int PRIMARY KEY)").await.unwrap();
    assert_eq!(failure(bob.simple_query("SELECT * FROM hidden").await).0, DENIED, "it is not his for that");
    assert_eq!(rows(&bob, "SELECT table_name FROM tarn.tables ORDER BY 1").await, [["held"], ["own"]]);
    assert_eq!(
        cell(&bob, "SELECT count(DISTINCT d.table_name) FROM tarn.deliveries AS d JOIN tarn.tables t ON t.table_name = d.table_name").await,
        "1"
    );
    assert_eq!(cell(&eve, "SELECT count(*) FROM tarn.tables").await, "0");
    assert_eq!(cell(&root, "SELECT count(*) FROM tarn.tables").await, "3");

    assert_eq!(failure(eve.simple_query("SELECT * FROM own").await).0, DENIED);
    bob.batch_execute("GRANT SELECT ON own TO eve").await.unwrap();
    assert_eq!(cell(&eve, "SELECT count(*) FROM own").await, "1");
    assert_eq!(failure(eve.batch_execute("GRANT SELECT ON own TO PUBLIC").await).0, DENIED);
    for (holder, what) in [("bob", "held, own"), ("eve", "own")] {
        let (state, message) = failure(root.batch_execute(&format!("DROP USER {holder}")).await);
        assert_eq!(state, "2BP01");
        assert!(message.contains(what), "{message}");
    }
    root.batch_execute("ALTER TABLE own OWNER TO eve").await.unwrap();
    assert_eq!(failure(bob.simple_query("SELECT * FROM own").await).0, DENIED);
    eve.batch_execute("DROP TABLE own").await.unwrap();
    bob.batch_execute("DROP TABLE held").await.unwrap();
    root.batch_execute("REVOKE CREATE ON SCHEMA public FROM bob; DROP USER bob, eve").await.unwrap();
    assert_eq!(failure(root.batch_execute("DROP USER bob").await).0, "42704");
    root.batch_execute("DROP USER IF EXISTS bob").await.unwrap();
    // What belongs to users is nobody's table, whoever asks.
    for version in 1..40 {
        for statement in ["DROP TABLE", "DETACH TABLE", "SELECT * FROM"] {
            let sql = format!("{statement} \"tarn-document://users/{version}\"");
            assert_eq!(failure(root.simple_query(&sql).await).0, "42P01", "{sql}");
        }
    }
    let next = root.batch_execute("CREATE TABLE \"tarn-document://users/99\" (k int PRIMARY KEY)").await;
    assert_eq!(failure(next).0, "22023");
    assert_eq!(rows(&root, "SHOW TABLES").await, [["hidden"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_becomes_another() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute("CREATE USER bob PASSWORD 'b'").await.unwrap();
    let bob = as_user(&server, "bob", "b").await;
    for sql in [
        "SET ROLE root",
        "SET SESSION AUTHORIZATION root",
        "SET session_authorization = 'root'",
        "SET is_superuser = 'on'",
        "SET role = 'root'",
    ] {
        let (state, message) = failure(bob.batch_execute(sql).await);
        assert!(["0A000", "42601"].contains(&state.as_str()), "{sql}: {state} {message}");
    }
    bob.batch_execute("SET ROLE NONE; SET SESSION AUTHORIZATION DEFAULT; RESET ALL").await.unwrap();
    bob.batch_execute("DISCARD ALL").await.unwrap();
    assert_eq!(cell(&bob, "SELECT current_user").await, "bob");
    assert_eq!(cell(&bob, "SHOW session_authorization").await, "bob");
    let shown = rows(&root, "SELECT rolname, rolsuper, rolcanlogin FROM pg_catalog.pg_roles ORDER BY 1").await;
    assert_eq!(shown, [["bob", "f", "t"], ["root", "t", "t"]]);
    // What a startup message says of settings is held to the same rules.
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(server.running.pg.port()).user("bob").password("b").options("-c is_superuser=on");
    assert_eq!(failure(config.connect(NoTls).await).0, "0A000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn has_table_privilege_says_what_was_granted() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute(
        "CREATE USER bob PASSWORD 'b'; CREATE USER eve PASSWORD 'e'; CREATE ROLE out; \
         CREATE TABLE t (k int PRIMARY KEY); CREATE TABLE \"Big\" (k int PRIMARY KEY); CREATE TABLE own (k int PRIMARY KEY); \
         ALTER TABLE own OWNER TO bob; GRANT SELECT ON \"Big\" TO PUBLIC; GRANT SELECT, INSERT ON t TO bob; \
         GRANT CREATE ON SCHEMA public TO bob",
    )
    .await
    .unwrap();
    let bob = as_user(&server, "bob", "b").await;
    let eve = as_user(&server, "eve", "e").await;
    for (sql, of_root, of_bob, of_eve) in [
        ("has_table_privilege('t', 'SELECT')", "t", "t", "f"),
        ("has_table_privilege('public.T', 'insert')", "t", "t", "f"),
        ("has_table_privilege('t', 'UPDATE')", "t", "f", "f"),
        ("has_table_privilege('t', 'update, select')", "t", "t", "f"),
        ("has_table_privilege('t', 'select with grant option')", "t", "f", "f"),
        ("has_table_privilege('own', 'delete with grant option')", "t", "t", "f"),
        ("has_table_privilege('\"Big\"', 'select')", "t", "t", "t"),
        ("has_table_privilege('public', '\"Big\"', 'select')", "t", "t", "t"),
        ("has_table_privilege('public', 't', 'select')", "f", "f", "f"),
        ("has_table_privilege('bob', 't', 'select')", "t", "t", "t"),
        ("has_table_privilege('eve', 't', 'select')", "f", "f", "f"),
        ("has_table_privilege('out', '\"Big\"', 'select')", "f", "f", "f"),
        ("has_table_privilege(current_user, 't', 'select')", "t", "t", "f"),
        ("has_table_privilege('t'::regclass, 'select')", "t", "t", "f"),
        ("has_table_privilege('pg_class', 'select')", "t", "t", "t"),
        ("has_table_privilege('pg_catalog.pg_authid', 'select')", "t", "f", "f"),
        ("has_table_privilege('tarn.files', 'select')", "t", "f", "f"),
        ("has_table_privilege('tarn.tables', 'select')", "t", "t", "t"),
        ("has_table_privilege(NULL, 'select')", "∅", "∅", "∅"),
        ("has_any_column_privilege('t', 'select')", "t", "t", "f"),
        ("has_schema_privilege('public', 'usage')", "t", "t", "t"),
        ("has_schema_privilege('public', 'create')", "t", "t", "f"),
        ("has_schema_privilege('eve', 'public', 'create')", "f", "f", "f"),
        ("has_database_privilege('tarn', 'connect')", "t", "t", "t"),
        ("has_database_privilege('out', 'tarn', 'connect')", "f", "f", "f"),
    ] {
        let asked = format!("SELECT {sql}");
        let answers = [cell(&root, &asked).await, cell(&bob, &asked).await, cell(&eve, &asked).await];
        assert_eq!(answers, [of_root, of_bob, of_eve], "{sql}");
    }
    let listed = "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                  WHERE n.nspname = 'public' AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1";
    assert_eq!(rows(&eve, listed).await, [["Big"], ["Big_pkey"]]);
    assert_eq!(rows(&bob, listed).await, ["Big", "Big_pkey", "own", "own_pkey", "t", "t_pkey"].map(|name| [name]));
    for (sql, state) in [
        ("has_table_privilege('nothing', 'select')", "42P01"),
        ("has_table_privilege('nobody', 't', 'select')", "42704"),
        ("has_table_privilege('t', 'look')", "22023"),
        ("has_table_privilege(1, 'select')", "0A000"),
        ("has_schema_privilege('nothing', 'usage')", "3F000"),
        ("has_schema_privilege('public', 'select')", "22023"),
        ("has_database_privilege('nothing', 'connect')", "3D000"),
    ] {
        let (failed, message) = failure(bob.batch_execute(&format!("SELECT {sql}")).await);
        assert_eq!(failed, state, "{sql}: {message}");
    }
    root.batch_execute("REVOKE SELECT ON t FROM bob").await.unwrap();
    assert_eq!(cell(&bob, "SELECT has_table_privilege('t', 'SELECT')").await, "f", "it holds at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_lists_users() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute("CREATE USER bob PASSWORD 'b'; CREATE ROLE out").await.unwrap();
    // What `\du` of psql 15 asks.
    let asked = "SELECT r.rolname, r.rolsuper, r.rolinherit, r.rolcreaterole, r.rolcreatedb, r.rolcanlogin, r.rolconnlimit, \
                 r.rolvaliduntil, ARRAY(SELECT b.rolname FROM pg_catalog.pg_auth_members m \
                 JOIN pg_catalog.pg_roles b ON (m.roleid = b.oid) WHERE m.member = r.oid) as memberof, r.rolreplication, \
                 r.rolbypassrls FROM pg_catalog.pg_roles r WHERE r.rolname !~ '^pg_' ORDER BY 1";
    let shown: Vec<[String; 4]> = rows(&root, asked)
        .await
        .into_iter()
        .map(|row| [row[0].clone(), row[1].clone(), row[5].clone(), row[8].clone()])
        .collect();
    assert_eq!(shown, [["bob", "f", "t", "{}"], ["out", "f", "f", "{}"], ["root", "t", "t", "{}"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_asks_for_the_same_users() {
    let server = server().await;
    let root = as_user(&server, "root", "r00t").await;
    root.batch_execute("CREATE USER bob PASSWORD 'b:c'; CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
    assert_eq!(http(&server, Some("root:r00t"), "SELECT count(*) FROM t").await.0, 200);
    let (_, answer) = http(&server, Some("bob:b:c"), "SELECT current_user").await;
    assert_eq!(answer["results"][0]["rows"], json!([["bob"]]));
    for login in [None, Some("root:wrong"), Some("eve:x"), Some("root"), Some(":"), Some("bob:b")] {
        let (status, answer) = http(&server, login, "SELECT 1").await;
        assert_eq!(status, 401, "{login:?}: {answer}");
        assert!(["28P01", "28000"].contains(&answer["error"]["code"].as_str().unwrap()), "{answer}");
    }
    let (status, answer) = http(&server, Some("bob:b:c"), "SELECT * FROM t").await;
    assert_eq!((status, &answer["error"]["code"]), (403, &json!(DENIED)));
    let address = server.running.http.unwrap();
    let get = async |path: &'static str| {
        tokio::task::spawn_blocking(move || request(address, "GET", path, None, "")).await.unwrap()
    };
    for open in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(open).await.0, 200, "{open}");
    }
    let challenge =
        tokio::task::spawn_blocking(move || request(address, "POST", "/v1/sql", None, "{}")).await.unwrap().1;
    assert!(challenge.to_lowercase().contains("www-authenticate: basic realm=\"tarn\""), "{challenge}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_loopback_a_server_without_users_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        |dir: &std::path::Path| settings_with(dir, |settings| settings.server.pg_listen = ([0, 0, 0, 0], 0).into());
    let refused = tarn::server::start(open(dir.path())).await.err().unwrap();
    assert_eq!(refused.state(), "55000");
    assert!(
        refused.hint().unwrap().contains("tarn user create") && refused.hint().unwrap().contains("insecure_no_users")
    );
    let http = settings_with(dir.path(), |settings| settings.server.http_listen = Some(([0, 0, 0, 0], 0).into()));
    assert_eq!(tarn::server::start(http).await.err().unwrap().state(), "55000");
    let mut by_name = open(dir.path());
    by_name.server.insecure_no_users = true;
    tarn::server::start(by_name).await.unwrap().stop().await.unwrap();

    // A password in the environment makes the first superuser, once.
    let running = tarn::server::start_with(open(dir.path()), Some("first".to_owned())).await.unwrap();
    let server = Server { running, dir };
    as_user(&server, "tarn", "first").await;
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let running = tarn::server::start_with(open(dir.path()), Some("second".to_owned())).await.unwrap();
    let server = Server { running, dir };
    as_user(&server, "tarn", "first").await;
    assert_eq!(failure(server.client_as("tarn", "second").await).0, "28P01");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_lie_below_the_roots_that_are_configured() {
    let archive = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let early = server.client().await;
    for never in ["/proc", "/sys/kernel", "/dev/shm"] {
        assert_eq!(failure(early.batch_execute(&format!("ATTACH '{never}' AS a")).await).0, DENIED, "{never}");
    }
    let own = format!("ATTACH '{}' AS a", server.dir.path().join("lake").display());
    assert_eq!(failure(early.batch_execute(&own).await).0, DENIED);
    early.batch_execute("CREATE USER root SUPERUSER PASSWORD 'r00t'").await.unwrap();
    let root = as_user(&server, "root", "r00t").await;
    let attach = format!("ATTACH '{}' AS a", archive.path().display());
    let (state, message) = failure(root.batch_execute(&attach).await);
    assert_eq!(state, DENIED);
    assert!(message.contains("attach_roots"), "{message}");
    let Server { running, dir } = server;
    running.stop().await.unwrap();
    let roots = archive.path().display().to_string();
    let running =
        tarn::server::start(settings_with(dir.path(), |settings| settings.node.attach_roots = roots)).await.unwrap();
    let server = Server { running, dir };
    let root = as_user(&server, "root", "r00t").await;
    let (state, message) = failure(root.batch_execute(&attach).await);
    assert_ne!(state, DENIED, "it is looked at, and is empty: {message}");
    assert_eq!(failure(root.batch_execute("ATTACH '/usr' AS a").await).0, DENIED);
}
