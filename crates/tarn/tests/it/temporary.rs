//! Temporary tables: what is in them is nobody else's, is written by COPY and by prepared statements, and nothing of it
//! is left.

use bytes::Bytes;
use futures::{SinkExt, TryStreamExt};
use std::pin::pin;

use crate::harness::{Server, cell, failure, rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sessions_have_tables_of_one_name_and_neither_leaves_anything() {
    let server = Server::start().await;
    let (one, other) = (server.client().await, server.client().await);
    let before = cell(&one, "SELECT count(*) FROM tarn.tables").await;
    for (client, n) in [(&one, 3), (&other, 5)] {
        client.batch_execute("CREATE TEMP TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
        client.batch_execute(&format!("INSERT INTO t SELECT i, 'x' FROM generate_series(1, {n}) s(i)")).await.unwrap();
    }
    assert_eq!(cell(&one, "SELECT count(*) FROM t").await, "3");
    assert_eq!(cell(&other, "SELECT count(*) FROM t").await, "5");
    assert_eq!(cell(&one, "SELECT count(*) FROM tarn.tables").await, before, "the node has none of them");
    assert_eq!(cell(&one, "SELECT count(*) FROM information_schema.tables WHERE table_name = 't'").await, "1");
    drop(other);
    let again = server.client().await;
    assert_eq!(failure(again.batch_execute("SELECT * FROM t").await).0, "42P01");
    assert_eq!(cell(&one, "SELECT count(*) FROM t").await, "3");
    drop(one);
    let server = server.restart().await;
    let client = server.client().await;
    assert_eq!(cell(&client, "SELECT count(*) FROM tarn.tables").await, before);
    assert_eq!(failure(client.batch_execute("SELECT * FROM t").await).0, "42P01");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_and_go_by_copy_and_by_prepared_statements() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.batch_execute("CREATE TEMP TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    {
        let mut sink = pin!(client.copy_in("COPY t FROM STDIN").await.unwrap());
        sink.send(Bytes::from_static(b"1\tone\n2\ttwo\n")).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 2);
    }
    let out = client.copy_out("COPY t TO STDOUT").await.unwrap();
    let out: Vec<Bytes> = out.try_collect().await.unwrap();
    let mut lines: Vec<String> = String::from_utf8(out.concat()).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["1\tone", "2\ttwo"]);
    // In a transaction, as clients do that load a stage and change a table by it.
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("CREATE TEMP TABLE stage (k int, v text) ON COMMIT DROP").await.unwrap();
    {
        let mut sink = pin!(transaction.copy_in("COPY stage FROM STDIN (FORMAT csv)").await.unwrap());
        sink.send(Bytes::from_static(b"2,zwei\n3,drei\n")).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 2);
    }
    let upserted = "INSERT INTO t SELECT * FROM stage ON CONFLICT (k) DO UPDATE SET v = excluded.v";
    assert_eq!(transaction.execute(upserted, &[]).await.unwrap(), 2);
    transaction.commit().await.unwrap();
    assert_eq!(rows(&client, "SELECT v FROM t ORDER BY k").await, [["one"], ["zwei"], ["drei"]]);
    assert_eq!(failure(client.batch_execute("SELECT * FROM stage").await).0, "42P01");
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    let find = client.prepare("SELECT v FROM t WHERE k = $1").await.unwrap();
    for k in 10..20_i32 {
        client.execute(&insert, &[&k, &k.to_string()]).await.unwrap();
        assert_eq!(client.query_one(&find, &[&k]).await.unwrap().get::<_, String>(0), k.to_string());
    }
    // The name means another table by now, and what was prepared follows it.
    client.batch_execute("DROP TABLE t; CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    client.execute(&insert, &[&1_i32, &"kept"]).await.unwrap();
    assert_eq!(rows(&server.client().await, "SELECT v FROM t").await, [["kept"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_so_many_and_all_have_so_much() {
    let server = Server::start_with(|settings| settings.node.temporary_bytes = 4 << 20).await;
    let client = server.client().await;
    let n_made = 1_000;
    for n in 0..n_made {
        client.batch_execute(&format!("CREATE TEMP TABLE t{n} (a int)")).await.unwrap();
    }
    let (state, message) = failure(client.batch_execute("CREATE TEMP TABLE one_more (a int)").await);
    assert!(state == "54000" && message.contains("has 1000 temporary tables"), "{state} {message}");
    client.batch_execute("DISCARD TEMP; CREATE TEMP TABLE t (a int, b text)").await.unwrap();
    let fill = "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) s(i)";
    let filled = async {
        for _ in 0..10 {
            client.batch_execute(fill).await?;
        }
        Ok::<(), tokio_postgres::Error>(())
    };
    let (state, message) = failure(filled.await);
    assert!(state == "53400" && message.contains("temporary tables take"), "{state} {message}");
    client.batch_execute("TRUNCATE t").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1, 'there is room again')").await.unwrap();
    assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "1");
}
