//! Which instant does a text mean, and how is an instant written? Expected values are those of PostgreSQL 15.

use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

use crate::harness::{Server, cell, failure, rows};
use crate::raw::RawClient;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, ts timestamp, d date, x text)";

/// `at` of a row, in UTC.
async fn utc(client: &Client, id: i32) -> String {
    cell(client, &format!("SELECT at AT TIME ZONE 'UTC' FROM t WHERE id = {id}")).await
}

async fn copy_in(client: &Client, sql: &str, data: &str) {
    let sink = client.copy_in::<_, Bytes>(sql).await.unwrap();
    let mut sink = std::pin::pin!(sink);
    sink.send(Bytes::from(data.to_owned())).await.unwrap();
    sink.close().await.unwrap();
}

async fn connect(server: &Server, with: impl FnOnce(&mut Config)) -> Result<Client, Error> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.running.pg.port()).user("tester").dbname("tarn");
    with(&mut config);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Ways to write one text into `at` of row 1, each by itself.
async fn write_by_every_path(client: &Client, text: &str) -> Vec<(String, String)> {
    let mut stored = vec![];
    for sql in [
        format!("UPSERT INTO t (id, at) VALUES (1, '{text}')"),
        format!("UPSERT INTO t (id, at) VALUES (1, timestamptz '{text}')"),
        format!("UPSERT INTO t (id, at) VALUES (1, '{text}'::timestamptz)"),
        format!("UPSERT INTO t (id, at) VALUES (0 + 1, '{text}'::timestamptz)"),
        format!("UPSERT INTO t (id, at) SELECT 1, timestamptz '{text}'"),
        format!("UPSERT INTO t (id, at) SELECT 1, '{text}'::timestamptz"),
        format!("UPSERT INTO t (id, at) SELECT 1, CAST('{text}' AS timestamp with time zone)"),
        format!("UPDATE t SET at = timestamptz '{text}' WHERE id = 1"),
        format!("UPDATE t SET at = '{text}' WHERE id = 1"),
        format!("UPDATE t SET at = timestamptz '{text}' WHERE id + 0 = 1"),
        format!("UPDATE t SET at = '{text}' WHERE id + 0 = 1"),
        format!("PREPARE p AS UPSERT INTO t (id, at) VALUES ($1, $2); EXECUTE p (1, '{text}'); DEALLOCATE p"),
    ] {
        client.batch_execute("UPSERT INTO t (id, at) VALUES (1, NULL)").await.unwrap();
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        stored.push((sql, utc(client, 1).await));
    }
    client.batch_execute("DELETE FROM t WHERE id = 1").await.unwrap();
    copy_in(client, "COPY t (id, at) FROM STDIN WITH (FORMAT csv)", &format!("1,{text}\n")).await;
    stored.push(("COPY".to_owned(), utc(client, 1).await));
    for sql in ["INSERT INTO t (id, at) VALUES (1, $1)", "INSERT INTO t (id, at) SELECT 1, $1::timestamptz"] {
        client.batch_execute("DELETE FROM t WHERE id = 1").await.unwrap();
        // Sent as text: the driver is told that it is one.
        let statement = client.prepare_typed(sql, &[Type::TEXT]).await.unwrap();
        client.execute(&statement, &[&text]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        stored.push((sql.to_owned(), utc(client, 1).await));
    }
    stored
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamptz_with_an_offset_is_that_instant_on_every_path() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(TABLE).await.unwrap();
    for (zone, text, instant) in [
        ("UTC", "2020-01-01 00:00:00+05", "2019-12-31 19:00:00"),
        ("UTC", "2020-01-01 00:00:00", "2020-01-01 00:00:00"),
        ("UTC", "9999-12-31 23:00:00-05:30", "10000-01-01 04:30:00"),
        ("Europe/Berlin", "2020-01-01 00:00:00+05", "2019-12-31 19:00:00"),
        ("Europe/Berlin", "2020-01-01 00:00:00", "2019-12-31 23:00:00"),
        ("Europe/Berlin", "2020-07-01", "2020-06-30 22:00:00"),
        // Left out, and twice.
        ("Europe/Berlin", "2020-03-29 02:30:00", "2020-03-29 01:30:00"),
        ("Europe/Berlin", "2020-10-25 02:30:00", "2020-10-25 01:30:00"),
        ("-7", "2020-01-01 00:00:00", "2020-01-01 07:00:00"),
        ("GMT-05:30", "2020-01-01 00:00:00", "2019-12-31 18:30:00"),
    ] {
        client.batch_execute(&format!("SET TIME ZONE '{zone}'")).await.unwrap();
        for (path, stored) in write_by_every_path(&client, text).await {
            assert_eq!(stored, instant, "{zone}: {path}");
        }
        // The row that is there is found, by whatever asks for it, and no other.
        client.batch_execute("UPSERT INTO t (id, at) VALUES (2, '2020-01-01 00:00:00.000001+00')").await.unwrap();
        for condition in [
            format!("at = timestamptz '{text}'"),
            format!("at = '{text}'"),
            format!("at = '{text}'::timestamptz"),
            format!("'{text}' = at"),
            format!("at IN ('{text}')"),
            format!("at IN (timestamptz '{text}')"),
            format!("at BETWEEN '{text}' AND timestamptz '{text}'"),
            format!("at >= timestamptz '{text}' AND at <= '{text}'"),
        ] {
            let found = rows(&client, &format!("SELECT id FROM t WHERE {condition}")).await;
            assert_eq!(found, [["1"]], "{zone}: {condition}");
        }
        let deleted = client.execute(&format!("DELETE FROM t WHERE at = timestamptz '{text}'"), &[]).await.unwrap();
        assert_eq!(deleted, 1, "{zone} {text}");
        assert_eq!(rows(&client, "SELECT id FROM t").await, [["2"]]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamptz_is_the_type_of_what_has_a_zone() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(TABLE).await.unwrap();
    for zone in ["UTC", "Asia/Kathmandu"] {
        client.batch_execute(&format!("SET TIME ZONE '{zone}'")).await.unwrap();
        for (expr, wanted) in [
            ("timestamptz '2020-01-01 00:00:00+05'", Type::TIMESTAMPTZ),
            ("'2020-01-01'::timestamptz", Type::TIMESTAMPTZ),
            ("now()", Type::TIMESTAMPTZ),
            ("current_timestamp", Type::TIMESTAMPTZ),
            ("to_timestamp(0)", Type::TIMESTAMPTZ),
            ("date_trunc('day', now())", Type::TIMESTAMPTZ),
            ("now() AT TIME ZONE 'UTC'", Type::TIMESTAMP),
            ("now()::timestamp AT TIME ZONE 'UTC'", Type::TIMESTAMPTZ),
            ("now()::timestamp", Type::TIMESTAMP),
            ("current_date", Type::DATE),
        ] {
            let statement = client.prepare(&format!("SELECT {expr} AS it")).await.unwrap();
            assert_eq!(*statement.columns()[0].type_(), wanted, "{expr}");
        }
    }
    assert_eq!(cell(&client, "SELECT timestamptz '2020-01-01 00:00:00+05'").await, "2020-01-01 00:45:00+05:45");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_take_the_sessions_time_zone() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(TABLE).await.unwrap();
    client
        .batch_execute("INSERT INTO t VALUES (1, '2020-06-30 22:30:00+00', '2020-07-01 00:00:00', '2020-07-01', '2020-07-01 00:00:00')")
        .await
        .unwrap();
    client.batch_execute("SET TIME ZONE 'Europe/Berlin'").await.unwrap();
    for (expr, wanted) in [
        ("at", "2020-07-01 00:30:00+02"),
        ("at::date", "2020-07-01"),
        ("at::timestamp", "2020-07-01 00:30:00"),
        ("at::time", "00:30:00"),
        ("ts::timestamptz", "2020-07-01 00:00:00+02"),
        ("d::timestamptz", "2020-07-01 00:00:00+02"),
        ("x::timestamptz", "2020-07-01 00:00:00+02"),
        ("date_trunc('day', at)", "2020-07-01 00:00:00+02"),
        ("date_trunc('day', CASE WHEN id = 1 THEN at ELSE now() END)", "2020-07-01 00:00:00+02"),
        ("extract(hour FROM at)", "0"),
        ("date_part('day', at)", "1"),
        ("at + interval '1 day'", "2020-07-02 00:30:00+02"),
        ("timestamptz '2020-03-28 12:00:00' + interval '1 day'", "2020-03-29 12:00:00+02"),
        ("at - ts", "00:30:00"),
        ("at > ts", "t"),
        ("at > d", "t"),
        ("at - interval '30 minutes' = ts", "t"),
        ("date_trunc('day', at) = d", "t"),
        ("at BETWEEN d AND ts + interval '1 hour'", "t"),
        ("at > x::timestamptz", "t"),
        ("coalesce(at, now())", "2020-07-01 00:30:00+02"),
        ("to_timestamp(0)", "1970-01-01 01:00:00+01"),
        ("to_timestamp(1.5)", "1970-01-01 01:00:01.5+01"),
        ("at AT TIME ZONE 'America/New_York'", "2020-06-30 18:30:00"),
        ("timezone('America/New_York', at)", "2020-06-30 18:30:00"),
        ("ts AT TIME ZONE 'America/New_York'", "2020-07-01 06:00:00+02"),
        ("at AT TIME ZONE '+05:00'", "2020-06-30 17:30:00"),
        ("at AT TIME ZONE 'UTC' AT TIME ZONE 'UTC' = at", "t"),
        ("now()::date = current_date", "t"),
        ("date_trunc('day', now()) = current_date", "t"),
        ("now()::time = current_time", "t"),
        ("extract(hour FROM now()) = extract(hour FROM now()::timestamp)", "t"),
    ] {
        assert_eq!(cell(&client, &format!("SELECT {expr} AS it FROM t WHERE id = 1")).await, wanted, "{expr}");
    }
    client.batch_execute("INSERT INTO t (id, at) SELECT 2, ts FROM t WHERE id = 1").await.unwrap();
    client.batch_execute("INSERT INTO t (id, ts, d) SELECT 3, at, at FROM t WHERE id = 1").await.unwrap();
    assert_eq!(utc(&client, 2).await, "2020-06-30 22:00:00");
    assert_eq!(rows(&client, "SELECT ts, d FROM t WHERE id = 3").await, [["2020-07-01 00:30:00", "2020-07-01"]]);
    let refused = "SELECT id FROM t WHERE at IN (SELECT ts FROM t)";
    let (state, message) = failure(client.batch_execute(refused).await);
    assert!(state == "0A000" && message.contains("timestamptz"), "{refused}: {state} {message}");
    let (state, message) = failure(client.batch_execute("SELECT now() AT TIME ZONE '+0530'").await);
    assert!(state == "22023" && message.contains("+0530"), "{state} {message}");

    // What was prepared before answers in the zone that is set now.
    let now_here = client.prepare("SELECT (timestamptz '2020-01-01 00:00:00+00')::timestamp::text").await.unwrap();
    client.batch_execute("SET TIME ZONE 'Asia/Tokyo'").await.unwrap();
    let shown: String = client.query_one(&now_here, &[]).await.unwrap().get(0);
    assert_eq!(shown.replace('T', " "), "2020-01-01 09:00:00");
    let copied: Vec<Bytes> = futures::TryStreamExt::try_collect(
        client.copy_out("COPY (SELECT at FROM t WHERE id = 1) TO STDOUT").await.unwrap(),
    )
    .await
    .unwrap();
    assert_eq!(copied.concat(), b"2020-07-01 07:30:00+09\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_time_zone_reaches_now_and_reset_takes_it_back() {
    let server = Server::start().await;
    let client = connect(&server, |config| {
        config.options("-c TimeZone=Asia/Tokyo");
    })
    .await
    .unwrap();
    let offset = async |client: &Client| {
        let now = cell(client, "SELECT now()").await;
        now[now.rfind(['+', '-']).unwrap()..].to_owned()
    };
    assert_eq!(offset(&client).await, "+09");
    for (set, name, shown) in [
        ("SET TIME ZONE 'Asia/Kathmandu'", "Asia/Kathmandu", "+05:45"),
        ("SET timezone = 'asia/kathmandu'", "Asia/Kathmandu", "+05:45"),
        ("SET timezone TO -7", "<-07>+07", "-07"),
        ("SET TIME ZONE 5.5", "<+05:30>-05:30", "+05:30"),
        ("SET SESSION TIME ZONE 'UTC'", "UTC", "+00"),
        ("SET datafusion.execution.time_zone = '-07:00'", "<-07>+07", "-07"),
    ] {
        for reset in [
            "RESET timezone",
            "RESET ALL",
            "DISCARD ALL",
            "SET TIME ZONE LOCAL",
            "SET TIME ZONE DEFAULT",
            "SET timezone = DEFAULT",
            "RESET datafusion.execution.time_zone",
        ] {
            client.batch_execute(set).await.unwrap();
            assert_eq!((cell(&client, "SHOW timezone").await.as_str(), offset(&client).await.as_str()), (name, shown));
            client.batch_execute(reset).await.unwrap();
            assert_eq!(cell(&client, "SHOW TIME ZONE").await, "Asia/Tokyo", "{reset}");
            assert_eq!(offset(&client).await, "+09", "{reset}");
        }
    }
    for (sql, state) in [
        ("SET TIME ZONE 'Mars/Phobos'", "22023"),
        ("SET TIME ZONE 'MSK'", "22023"),
        ("SET datafusion.execution.time_zone = 'nowhere'", "22023"),
    ] {
        let (failed, message) = failure(client.batch_execute(sql).await);
        assert_eq!(failed, state, "{sql}: {message}");
        assert_eq!(offset(&client).await, "+09", "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_of_the_startup_message_are_taken_or_refused() {
    let server = Server::start().await;
    let options = async |options: &'static str| {
        connect(&server, |config| {
            config.options(options);
        })
        .await
    };
    let client = options(
        r"-c statement_timeout=90s -cgeqo=off --application-name=a\ b --datafusion.execution.batch_size=512 -c tarn.pruning=off",
    )
    .await
    .unwrap();
    for again in ["SELECT 1", "SET statement_timeout = 5; RESET ALL", "SET tarn.pruning = on; RESET tarn.pruning"] {
        client.batch_execute(again).await.unwrap();
        for (name, value) in [
            ("statement_timeout", "90s"),
            ("geqo", "off"),
            ("application_name", "a b"),
            ("datafusion.execution.batch_size", "512"),
            ("tarn.pruning", "off"),
        ] {
            assert_eq!(cell(&client, &format!("SHOW {name}")).await, value, "{again}");
        }
    }
    for (given, state, part) in [
        ("-c nothing=1", "42704", "nothing"),
        ("--no-such-thing=1", "42704", "no_such_thing"),
        ("-c timezone=Mars", "22023", "TimeZone"),
        ("-c client_encoding=latin1", "22023", "client_encoding"),
        ("-c datestyle=roman", "22023", "DateStyle"),
        ("-c statement_timeout=soon", "22023", "statement_timeout"),
        ("-c is_superuser=on", "0A000", "on"),
        ("-c geqo", "42601", "geqo"),
        ("-d 5", "42601", "-d"),
        ("-c datafusion.runtime.memory_limit=1G", "22023", "datafusion.runtime.memory_limit"),
    ] {
        let (failed, message) = failure(options(given).await);
        assert!(failed == state && message.contains(part), "{given}: {failed} {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_of_the_startup_message_are_taken_or_refused() {
    let server = Server::start().await;
    // As JDBC, psql, asyncpg and others write them.
    let parameters = [
        ("client_encoding", "'utf-8'"),
        ("DateStyle", "ISO,DMY"),
        ("TimeZone", "GMT-05:30"),
        ("extra_float_digits", "2"),
        ("application_name", "driver"),
        ("statement_timeout", "1min"),
        ("search_path", "public"),
        ("replication", "false"),
    ];
    let answers = RawClient::introduced(&server, &parameters).await;
    assert_eq!(answers.last().map(|message| message.kind), Some('Z'));
    let told = |name: &str| {
        let wanted = format!("{name}\0");
        let of = answers.iter().filter(|message| message.kind == 'S').find(|m| m.body.starts_with(wanted.as_bytes()));
        of.map(|message| String::from_utf8_lossy(&message.body[wanted.len()..message.body.len() - 1]).into_owned())
    };
    assert_eq!(told("TimeZone").as_deref(), Some("GMT-05:30"));
    assert_eq!(told("DateStyle").as_deref(), Some("ISO, DMY"));
    assert_eq!(told("client_encoding").as_deref(), Some("UTF8"));
    assert_eq!(told("application_name").as_deref(), Some("driver"));
    for (name, value, state) in [
        ("TimeZone", "Mars", "22023"),
        ("client_encoding", "LATIN1", "22023"),
        ("no_such_parameter", "1", "42704"),
        ("replication", "database", "0A000"),
        ("statement_timeout", "soon", "22023"),
        ("DateStyle", "Roman", "22023"),
    ] {
        let answers = RawClient::introduced(&server, &[(name, value)]).await;
        let error = answers.last().unwrap();
        assert_eq!(
            (error.kind, error.field(b'C'), error.field(b'S')),
            ('E', state.to_owned(), "FATAL".to_owned()),
            "{name}"
        );
    }
}

/// A result that is still being read is in the zone in which it was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_statement_of_a_text_has_its_own_zone() {
    let server = Server::start().await;
    let client = server.client().await;
    let asked =
        "SELECT to_timestamp(0); SET TIME ZONE 'Asia/Tokyo'; SELECT to_timestamp(0); RESET ALL; SELECT to_timestamp(0)";
    let answers = client.simple_query(asked).await.unwrap();
    let cells: Vec<&str> = answers
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    assert_eq!(cells, ["1970-01-01 00:00:00+00", "1970-01-01 09:00:00+09", "1970-01-01 00:00:00+00"]);
}
