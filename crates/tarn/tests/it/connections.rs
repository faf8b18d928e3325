//! Connections cannot stop the server: silent ones, vanished ones, hoarding ones.

use std::time::Duration;

use bytes::Bytes;
use futures::SinkExt;
use tokio::io::AsyncReadExt;
use tokio_postgres::{Client, Error, NoTls};

use crate::harness::{Server, cell, failure};
use crate::raw::{RawClient, message, parse, query, sync};

/// Long enough for any machine; what waits so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_keep_nobody_out() {
    let server = Server::start_with(|settings| settings.server.max_connections = 2).await;
    let mut silent = Vec::new();
    for n in 0..200 {
        let mut raw = RawClient::silent(&server).await;
        // Some ask for encryption first, some begin to introduce themselves.
        match n % 3 {
            0 => raw.send(b"\0\0\0\x08\x04\xd2\x16\x2f").await,
            1 => raw.send(b"\0\0\0\x40\0\x03").await,
            _ => {}
        }
        silent.push(raw);
        if n % 50 == 49 {
            let client = server.client().await;
            assert_eq!(cell(&client, "SELECT 1").await, "1");
        }
    }
    // Who waited longest was shown out.
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, silent[1].socket.read_to_end(&mut rest)).await.unwrap().unwrap();
}

/// As far as anybody comes without a password.
async fn half_logged_in(server: &Server) -> RawClient {
    let mut raw = RawClient::silent(server).await;
    let parameters = b"\0\x03\0\0user\0root\0database\0tarn\0\0";
    raw.send(&[&(parameters.len() as u32 + 4).to_be_bytes()[..], parameters].concat()).await;
    assert_eq!(raw.next().await.unwrap().kind, 'R', "it is asked for SCRAM");
    raw.send(&message('p', b"SCRAM-SHA-256\0\0\0\0\x10n,,n=,r=abcdefgh")).await;
    let challenge = raw.next().await.unwrap();
    assert!(challenge.kind == 'R' && challenge.body.windows(10).any(|part| part == b"r=abcdefgh"), "{challenge:?}");
    raw
}

/// Each held a place of `max_connections` until `authentication_timeout_ms`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_begin_to_log_in_keep_nobody_out() {
    let server = Server::start_with(|settings| {
        settings.server.max_connections = 2;
        settings.pg.authentication_timeout_ms = 600_000;
    })
    .await;
    server.client().await.batch_execute("CREATE USER root SUPERUSER PASSWORD 'x'").await.unwrap();
    let config = format!("host=127.0.0.1 port={} user=root password=x dbname=tarn", server.running.pg.port());
    let connect = || async {
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(connection);
        Ok::<Client, Error>(client)
    };
    let mut half = Vec::new();
    for n in 0..200 {
        half.push(half_logged_in(&server).await);
        if n % 50 == 49 {
            let client = connect().await.unwrap();
            assert_eq!(cell(&client, "SELECT 1").await, "1");
        }
    }
    // Who waited longest was shown out.
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, half[0].socket.read_to_end(&mut rest)).await.unwrap().unwrap();

    // Those who are in stay, whoever begins; one too many hears it when the password is proved.
    let mut seated: Vec<Client> = Vec::new();
    let come_in = async {
        // The places of those above become free as they are noticed to be gone.
        while seated.len() < 2 {
            match connect().await {
                Ok(client) => seated.push(client),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, come_in).await.expect("two places");
    for _ in 0..150 {
        half.push(half_logged_in(&server).await);
    }
    assert_eq!(failure(connect().await).0, "53300");
    let wrong = config.replace("password=x", "password=y");
    assert_eq!(failure(tokio_postgres::connect(&wrong, NoTls).await.map(|_| ())).0, "28P01", "strangers learn nothing");
    // A statement is cancelled all the same.
    let cancel = seated[0].cancel_token();
    let endless = seated[0].batch_execute("SELECT sum(value % 7) FROM generate_series(1, 1000000000000) AS s(value)");
    let until_cancelled = async {
        loop {
            // One that comes before the statement runs cancels nothing.
            let _ = cancel.cancel_query(NoTls).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = endless => assert_eq!(failure(ended).0, "57014"),
        () = until_cancelled => {}
        () = tokio::time::sleep(PATIENCE) => panic!("it was not cancelled"),
    }
    assert_eq!(cell(&seated[1], "SELECT 1").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_introduce_himself_is_shown_out() {
    let server = Server::start_with(|settings| settings.pg.authentication_timeout_ms = 50).await;
    let mut raw = RawClient::silent(&server).await;
    raw.send(b"\0\0\0\x40\0\x03").await;
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, raw.socket.read_to_end(&mut rest)).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_vanish_take_their_statements_along() {
    let server = Server::start_with(|settings| settings.server.max_connections = 3).await;
    for _ in 0..3 {
        let mut raw = RawClient::connect(&server).await;
        raw.send(&query("SELECT sum(value % 7) FROM generate_series(1, 1000000000000) AS s(value)")).await;
    }
    let config = format!("host=127.0.0.1 port={} user=tester", server.running.pg.port());
    let come_in = async {
        while tokio_postgres::connect(&config, NoTls).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, come_in).await.expect("their places are free");
}

/// With four threads for blocking work, eight COPYs that wait would hold all of them.
#[test]
fn copies_that_wait_hold_no_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = Server::start().await;
        let client = server.client().await;
        client.batch_execute("CREATE TABLE t (k int PRIMARY KEY)").await.unwrap();
        let mut waiting = Vec::new();
        for key in 10..18 {
            let mut raw = RawClient::connect(&server).await;
            let row = format!("{key}\n");
            raw.send(&[query("COPY t FROM STDIN"), message('d', row.as_bytes())].concat()).await;
            assert_eq!(raw.next().await.unwrap().kind, 'G');
            waiting.push(raw);
        }
        let insert = client.batch_execute("INSERT INTO t VALUES (2)");
        tokio::time::timeout(PATIENCE, insert).await.expect("it is not kept waiting").unwrap();
        for raw in &mut waiting {
            assert_eq!(raw.ask(&message('c', b"")).await, ["CCOPY 1", "ZI"]);
        }
    });
}

/// One batch of 400 rows of 100 KB would be 40 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wide_rows_are_committed_by_bytes() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    let wide = "w".repeat(100_000);
    let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap();
    futures::pin_mut!(sink);
    for k in 0..400 {
        sink.send(format!("{k}\t{wide}\n").into()).await.unwrap();
    }
    sink.send("oops\n".into()).await.unwrap();
    let (code, text) = failure(sink.finish().await);
    assert_eq!(code, "22P04");
    // All that could be committed before the bad line is: batches of 16 MiB.
    assert!(text.contains("336 rows"), "{text}");
    assert_eq!(cell(&client, "SELECT count(*) FROM t WHERE length(v) = 100000").await, "336");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_messages_are_refused_and_the_connection_lives() {
    let server = Server::start_with(|settings| settings.pg.message_bytes = 1 << 20).await;
    let mut raw = RawClient::connect(&server).await;
    let long = "x".repeat(2 << 20);
    assert_eq!(raw.ask(&query(&format!("SELECT '{long}'"))).await, ["E54000", "ZI"]);
    let extended = [parse("", &format!("SELECT '{long}'")), sync()].concat();
    assert_eq!(raw.ask(&extended).await, ["E54000", "ZI"]);
    raw.ask(&query("CREATE TABLE t (k int PRIMARY KEY, v text)")).await;
    // The data of a COPY has no such limit.
    raw.send(&query("COPY t FROM STDIN")).await;
    raw.next().await;
    let data = [message('d', format!("1\t{long}\n").as_bytes()), message('c', b"")].concat();
    assert_eq!(raw.ask(&data).await, ["CCOPY 1", "ZI"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_connection_may_keep_is_bounded() {
    let server = Server::start_with(|settings| {
        settings.sql.prepared_statements_limit = 5;
        settings.sql.transactions_bytes = 100_000;
    })
    .await;
    let mut raw = RawClient::connect(&server).await;
    for n in 0..5 {
        raw.ask(&[parse(&format!("s{n}"), "SELECT 1"), sync()].concat()).await;
    }
    assert_eq!(raw.ask(&[parse("s5", "SELECT 1"), sync()].concat()).await, ["E53400", "ZI"]);
    assert_eq!(raw.ask(&[message('C', b"Ss0\0"), parse("s5", "SELECT 1"), sync()].concat()).await, ["3", "1", "ZI"]);
    let client = server.client().await;
    for n in 0..5 {
        client.batch_execute(&format!("PREPARE s{n} AS SELECT 1")).await.unwrap();
    }
    assert_eq!(failure(client.batch_execute("PREPARE s5 AS SELECT 1").await).0, "53400");

    // All transactions together.
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    let hold = "BEGIN; INSERT INTO t SELECT value::int, repeat('x', 600) FROM generate_series(1, 100) AS s(value)";
    client.batch_execute(hold).await.unwrap();
    let other = server.client().await;
    let (code, text) = failure(other.batch_execute(hold).await);
    assert_eq!(code, "53200");
    assert!(text.contains("transactions_bytes"), "{text}");
    client.batch_execute("COMMIT").await.unwrap();
    other.batch_execute("ROLLBACK").await.unwrap();
    other.batch_execute(&hold.replace("(1, 100)", "(101, 200)")).await.unwrap();
}
