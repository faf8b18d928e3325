//! What a table's definition says of its columns, over the wire: COPY, parameters, sessions beside each other,
//! restarts.

use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::{Client, Error};

use crate::harness::{Server, cell, failure, rows};

async fn copy_in(client: &Client, sql: &str, data: &'static str) -> Result<u64, Error> {
    let sink = client.copy_in::<_, Bytes>(sql).await?;
    futures::pin_mut!(sink);
    sink.send(Bytes::from_static(data.as_bytes())).await?;
    sink.finish().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_fills_in_what_does_not_come_and_is_held_to_the_same_rules() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (id serial PRIMARY KEY, b int CHECK (b > 0), at timestamptz DEFAULT now(), v varchar(3), n int DEFAULT 7)",
        )
        .await
        .unwrap();
    assert_eq!(copy_in(&client, "COPY t (b, v) FROM STDIN", "1\tabc\n2\tab   \n").await.unwrap(), 2);
    assert_eq!(
        rows(&client, "SELECT id, b, v, n, at <= now() FROM t ORDER BY id").await,
        [["1", "1", "abc", "7", "t"], ["2", "2", "ab ", "7", "t"]]
    );
    let (state, message) = failure(copy_in(&client, "COPY t (b) FROM STDIN", "5\n-1\n").await);
    assert_eq!(state, "23514");
    assert!(message.starts_with("new row for relation \"t\" violates check constraint \"t_b_check\""), "{message}");
    let (state, message) = failure(copy_in(&client, "COPY t (v) FROM STDIN", "abcd\n").await);
    assert_eq!(state, "22001");
    assert!(message.starts_with("value too long for type character varying(3)"), "{message}");
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "2");
    // Inside BEGIN rows are held as they will be written.
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(copy_in(&client, "COPY t (b) FROM STDIN", "8\n").await.unwrap(), 1);
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(DISTINCT id) FROM t").await, "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_told_lengths_and_shown_blanks() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (v varchar(5), c char(4)); INSERT INTO t VALUES ('ab', 'cd')").await.unwrap();
    let statement = client.prepare("SELECT v, c, v || c AS both FROM t").await.unwrap();
    let told: Vec<_> =
        statement.columns().iter().map(|column| (column.type_().name(), column.type_modifier())).collect();
    assert_eq!(told, [("varchar", 9), ("bpchar", 8), ("text", -1)]);
    let row = client.query_one(&statement, &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, &str>(2)), ("ab", "cd  ", "abcd"));
    client.batch_execute("DELIVER TABLE t").await.unwrap();
    assert_eq!(rows(&client, "SELECT * FROM t WHERE c = 'cd'").await, [["ab", "cd  "]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_insert_gets_another_number_each_time() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute("CREATE TABLE t (id bigserial PRIMARY KEY, v varchar(3), u uuid DEFAULT gen_random_uuid())")
        .await
        .unwrap();
    let insert = client.prepare("INSERT INTO t (v) VALUES ($1) RETURNING id, u::text").await.unwrap();
    let mut uuids = vec![];
    for want in 1..=3_i64 {
        let row = client.query_one(&insert, &[&"a"]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), want);
        uuids.push(row.get::<_, String>(1));
    }
    uuids.dedup();
    assert_eq!(uuids.len(), 3);
    assert_eq!(rows(&client, "SELECT string_agg(u::text, ',' ORDER BY id) FROM t").await, [[uuids.join(",")]]);
    let (state, _) = failure(client.query_one(&insert, &[&"abcd"]).await);
    assert_eq!(state, "22001");
    // The number that it had is a gap.
    let default = client.prepare("INSERT INTO t VALUES (DEFAULT, $1), (DEFAULT, 'b') RETURNING id").await.unwrap();
    let given: Vec<i64> = client.query(&default, &[&"c"]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(given, [5, 6]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_share_a_sequence_and_each_has_its_own_last_number() {
    let server = Server::start().await;
    let (one, other) = (server.client().await, server.client().await);
    one.batch_execute("CREATE SEQUENCE s").await.unwrap();
    assert_eq!(cell(&one, "SELECT nextval('s')").await, "1");
    let (state, message) = failure(other.batch_execute("SELECT currval('s')").await);
    assert_eq!(state, "55000");
    assert!(message.starts_with("currval of sequence \"s\" is not yet defined in this session"), "{message}");
    let (state, message) = failure(other.batch_execute("SELECT lastval()").await);
    assert_eq!(state, "55000");
    assert!(message.starts_with("lastval is not yet defined in this session"), "{message}");
    assert_eq!(cell(&other, "SELECT nextval('s')").await, "2");
    assert_eq!(rows(&one, "SELECT currval('s'), lastval()").await, [["1", "1"]]);
    one.batch_execute("DISCARD SEQUENCES").await.unwrap();
    assert_eq!(failure(one.batch_execute("SELECT lastval()").await).0, "55000");
    // Taken is taken, whatever becomes of the transaction.
    one.batch_execute("BEGIN; SELECT nextval('s'); ROLLBACK").await.unwrap();
    assert_eq!(cell(&one, "SELECT nextval('s')").await, "4");
    let (state, _) = failure(one.batch_execute("BEGIN; CREATE SEQUENCE x").await);
    assert_eq!(state, "25001");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_and_numbers_are_back_after_a_restart() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2 START WITH 5), v varchar(2) DEFAULT upper('x'), CHECK (v <> 'no'), PRIMARY KEY (id));
             INSERT INTO t DEFAULT VALUES",
        )
        .await
        .unwrap();
    client.batch_execute("BEGIN; CREATE TABLE gone (id serial); ROLLBACK").await.unwrap();
    let shown = cell(&client, "SELECT definition FROM tarn.tables WHERE table_name = 't'").await;
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT definition FROM tarn.tables WHERE table_name = 't'").await, shown);
    assert_eq!(rows(&client, "SELECT * FROM t").await, [["5", "X"]]);
    // What was left of the block is a gap.
    assert_eq!(rows(&client, "INSERT INTO t DEFAULT VALUES RETURNING id, v").await, [["69", "X"]]);
    assert_eq!(failure(client.batch_execute("INSERT INTO t (v) VALUES ('no')").await).0, "23514");
    assert_eq!(
        cell(&client, "SELECT string_agg(sequence_name, ' ') FROM information_schema.sequences").await,
        "t_id_seq"
    );
    client.batch_execute("DROP TABLE t; CREATE TABLE t (id serial)").await.unwrap();
    assert_eq!(cell(&client, "INSERT INTO t DEFAULT VALUES RETURNING id").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tens_of_thousands_of_rows_get_numbers_of_their_own() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (id bigserial PRIMARY KEY, n int)").await.unwrap();
    client.batch_execute("INSERT INTO t (n) SELECT i FROM generate_series(1, 50000) AS g(i)").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*), count(DISTINCT id) FROM t").await, [["50000", "50000"]]);
}
