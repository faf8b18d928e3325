//! Are `DateStyle` and its kin obeyed wherever a client's text becomes a value and a value a text, and is `infinity` so
//! on every path? Expected values are those of PostgreSQL 15.

use std::time::SystemTime;

use bytes::Bytes;
use chrono::NaiveDate;
use futures::{SinkExt, TryStreamExt};
use tokio_postgres::types::{Date, Timestamp, Type};
use tokio_postgres::{Client, Config, NoTls};

use crate::harness::{Server, cell, rows};

async fn connect(server: &Server, options: &str) -> Client {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.running.pg.port()).user("tester").dbname("tarn").options(options);
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn copy_in(client: &Client, sql: &str, data: &[u8]) {
    let sink = client.copy_in::<_, Bytes>(sql).await.unwrap();
    let mut sink = std::pin::pin!(sink);
    sink.send(Bytes::from(data.to_owned())).await.unwrap();
    sink.close().await.unwrap();
}

async fn copy_out(client: &Client, sql: &str) -> Vec<u8> {
    let chunks: Vec<Bytes> = client.copy_out(sql).await.unwrap().try_collect().await.unwrap();
    chunks.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dates_are_read_and_shown_in_their_style_on_every_path() {
    let server = Server::start().await;
    let client = connect(&server, "-c datestyle=German -c bytea_output=escape -c extra_float_digits=0").await;
    assert_eq!(cell(&client, "SHOW DateStyle").await, "German, DMY");
    client.batch_execute("CREATE TABLE t (d date PRIMARY KEY DEFAULT '1.2.2026', b bytea, f float8)").await.unwrap();
    for sql in [
        "INSERT INTO t VALUES ('2.11.2026', 'a', 0.1)",
        "INSERT INTO t VALUES (date '3.11.2026', 'b', 0.2)",
        "INSERT INTO t (d) SELECT '4.11.2026'::date",
        "INSERT INTO t (b) VALUES ('c')",
        "UPDATE t SET b = 'd' WHERE d = '4.11.2026'",
        "UPDATE t SET f = 0.1::float8 + 0.2::float8 WHERE d + 0 = '4.11.2026'",
        "PREPARE p (date) AS DELETE FROM t WHERE d = $1; EXECUTE p ('3.11.2026')",
    ] {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    copy_in(&client, "COPY t FROM STDIN", b"5.11.2026\t\\\\001\t1\n").await;
    // A parameter that is sent as a text.
    let inserted = client.prepare_typed("INSERT INTO t (d) SELECT $1::date", &[Type::TEXT]).await.unwrap();
    client.execute(&inserted, &[&"6.11.2026"]).await.unwrap();
    let want = ["01.02.2026 c ∅", "02.11.2026 a 0.1", "04.11.2026 d 0.3", "05.11.2026 \\001 1", "06.11.2026 ∅ ∅"];
    let shown: Vec<String> =
        rows(&client, "SELECT * FROM t ORDER BY d").await.into_iter().map(|row| row.join(" ")).collect();
    assert_eq!(shown, want);
    let copied =
        copy_out(&client, "COPY (SELECT d, b, f FROM t WHERE d < '5.11.2026' ORDER BY d) TO STDOUT (FORMAT csv)");
    assert_eq!(String::from_utf8_lossy(&copied.await), "01.02.2026,c,\n02.11.2026,a,0.1\n04.11.2026,d,0.3\n");
    // RESET goes back to what the client came with.
    client.batch_execute("SET DateStyle = 'ISO, YMD'; RESET DateStyle").await.unwrap();
    assert_eq!(cell(&client, "SELECT min(d) FROM t").await, "01.02.2026");
    // Binary values have no style.
    client.batch_execute("SET TIME ZONE 'Europe/Berlin'").await.unwrap();
    let now: SystemTime = client.query_one("SELECT now()", &[]).await.unwrap().get(0);
    assert!(now <= SystemTime::now());
    assert!(client.simple_query("SELECT now()").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn infinity_is_the_same_in_texts_and_in_binary() {
    let server = Server::start().await;
    let client = connect(&server, "").await;
    client.batch_execute("CREATE TABLE t (at timestamptz PRIMARY KEY, ts timestamp, d date)").await.unwrap();
    let insert = "INSERT INTO t VALUES ($1, $2, $3)";
    let ends: [(Timestamp<SystemTime>, Timestamp<SystemTime>, Date<NaiveDate>); 2] = [
        (Timestamp::PosInfinity, Timestamp::PosInfinity, Date::PosInfinity),
        (Timestamp::NegInfinity, Timestamp::NegInfinity, Date::NegInfinity),
    ];
    for (at, ts, d) in &ends {
        client.execute(insert, &[at, ts, d]).await.unwrap();
    }
    let both = async |when: &str| {
        let shown = rows(&client, "SELECT * FROM t ORDER BY at").await;
        assert_eq!(shown, [["-infinity"; 3], ["infinity"; 3]], "{when}");
        let answered = client.query("SELECT at, ts, d FROM t ORDER BY ts DESC", &[]).await.unwrap();
        for (row, (at, ts, d)) in answered.iter().zip(&ends) {
            assert_eq!((&row.get::<_, Timestamp<SystemTime>>(0), &row.get::<_, Timestamp<SystemTime>>(1)), (at, ts));
            assert_eq!(&row.get::<_, Date<NaiveDate>>(2), d, "{when}");
        }
        let row = client.query_one("SELECT d FROM t WHERE at = $1", &[&ends[1].0]).await.unwrap();
        assert_eq!(row.get::<_, Date<NaiveDate>>(0), Date::NegInfinity, "{when}");
    };
    both("in memory").await;
    client.batch_execute("CALL tarn.deliver('t')").await.unwrap();
    both("in the lake").await;
    for format in ["text", "binary", "csv"] {
        let data = copy_out(&client, &format!("COPY t TO STDOUT (FORMAT {format})")).await;
        client.batch_execute("DELETE FROM t").await.unwrap();
        copy_in(&client, &format!("COPY t FROM STDIN (FORMAT {format})"), &data).await;
        both(format).await;
    }
}
