//! Values of every type go in and come out, in text and in binary.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use serde_json::json;
use uuid::Uuid;

use crate::harness::{Server, failure, rows};

const CREATE: &str = "CREATE TABLE every (id int PRIMARY KEY, b boolean, s smallint, i integer, l bigint, r real, d double precision, \
     n numeric(20,4), t text, y bytea, da date, ti time, ts timestamp, tz timestamptz, u uuid, j json)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_round_trips_in_binary_and_text() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(CREATE).await.unwrap();
    let insert = client
        .prepare("INSERT INTO every VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::numeric(20,4), $9, $10, $11, $12, $13, $14, $15, $16)")
        .await;
    // A cast makes it no keyed statement; the plain form is one. Both must do.
    drop(insert);
    let insert = client
        .prepare("INSERT INTO every (id, b, s, i, l, r, d, t, y, da, ti, ts, tz, u, j) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)")
        .await
        .unwrap();
    let day = NaiveDate::from_ymd_opt(2024, 2, 29).unwrap();
    let time = NaiveTime::from_hms_micro_opt(23, 59, 58, 123_456).unwrap();
    let stamp: NaiveDateTime = day.and_time(time);
    let zoned: DateTime<Utc> = stamp.and_utc();
    let id = Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
    let json = json!({"a": [1, null, "ä"]});
    let bytes: &[u8] = &[0, 1, 255];
    client
        .execute(
            &insert,
            &[
                &1i32,
                &true,
                &-7i16,
                &i32::MIN,
                &i64::MAX,
                &1.5f32,
                &-2.25e100f64,
                &"naïve ☃",
                &bytes,
                &day,
                &time,
                &stamp,
                &zoned,
                &id,
                &json,
            ],
        )
        .await
        .unwrap();
    client.batch_execute("INSERT INTO every (id) VALUES (2)").await.unwrap();

    let check = |row: &tokio_postgres::Row| {
        assert!(row.get::<_, bool>("b"));
        assert_eq!(row.get::<_, i16>("s"), -7);
        assert_eq!(row.get::<_, i32>("i"), i32::MIN);
        assert_eq!(row.get::<_, i64>("l"), i64::MAX);
        assert_eq!(row.get::<_, f32>("r"), 1.5);
        assert_eq!(row.get::<_, f64>("d"), -2.25e100);
        assert_eq!(row.get::<_, &str>("t"), "naïve ☃");
        assert_eq!(row.get::<_, &[u8]>("y"), bytes);
        assert_eq!(row.get::<_, NaiveDate>("da"), day);
        assert_eq!(row.get::<_, NaiveTime>("ti"), time);
        assert_eq!(row.get::<_, NaiveDateTime>("ts"), stamp);
        assert_eq!(row.get::<_, DateTime<Utc>>("tz"), zoned);
        assert_eq!(row.get::<_, Uuid>("u"), id);
        assert_eq!(row.get::<_, serde_json::Value>("j"), json);
    };
    let columns = "b, s, i, l, r, d, t, y, da, ti, ts, tz, u, j";
    // By key, by scan of recent rows, and from the lake.
    check(&client.query_one(&format!("SELECT {columns} FROM every WHERE id = $1"), &[&1i32]).await.unwrap());
    check(&client.query_one(&format!("SELECT {columns} FROM every WHERE b"), &[]).await.unwrap());
    client.batch_execute("DELIVER TABLE every").await.unwrap();
    check(&client.query_one(&format!("SELECT {columns} FROM every WHERE b"), &[]).await.unwrap());
    client.batch_execute("EVICT TABLE every").await.unwrap();
    check(&client.query_one(&format!("SELECT {columns} FROM every WHERE id = $1"), &[&1i32]).await.unwrap());

    let text = rows(&client, &format!("SELECT {columns}, n FROM every ORDER BY id")).await;
    assert_eq!(
        text[0],
        [
            "t",
            "-7",
            "-2147483648",
            "9223372036854775807",
            "1.5",
            "-2.25e+100",
            "naïve ☃",
            "\\x0001ff",
            "2024-02-29",
            "23:59:58.123456",
            "2024-02-29 23:59:58.123456",
            "2024-02-29 23:59:58.123456+00",
            "12345678-9abc-def0-1234-56789abcdef0",
            "{\"a\":[1,null,\"ä\"]}",
            "∅"
        ]
    );
    assert!(text[1].iter().all(|cell| cell == "∅"), "{:?}", text[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_can_be_a_key_and_a_condition() {
    let server = Server::start().await;
    let client = server.client().await;
    let cases = [
        ("smallint", "'-3'"),
        ("integer", "7"),
        ("bigint", "-9000000000"),
        ("double precision", "1.5"),
        ("numeric(10,2)", "-12.50"),
        ("text", "'a''b'"),
        ("bytea", "'\\x00ff'"),
        ("date", "'2020-01-31'"),
        ("time", "'01:02:03'"),
        ("timestamp", "'2020-01-31 01:02:03'"),
        ("timestamptz", "'2020-01-31 01:02:03+02'"),
        ("uuid", "'12345678-9abc-def0-1234-56789abcdef0'"),
        ("boolean", "true"),
    ];
    for (idx, (sql_type, literal)) in cases.iter().enumerate() {
        let table = format!("k{idx}");
        client.batch_execute(&format!("CREATE TABLE {table} (k {sql_type} PRIMARY KEY, v int)")).await.unwrap();
        client.batch_execute(&format!("INSERT INTO {table} VALUES ({literal}, 1)")).await.unwrap();
        // The planner takes '\\x00ff' for four characters: only keyed statements read it as bytes.
        let paths: &[&str] = if *sql_type == "bytea" { &["auto"] } else { &["auto", "rows", "lake"] };
        for path in paths {
            client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await.unwrap();
            let found = rows(&client, &format!("SELECT v FROM {table} WHERE k = {literal}")).await;
            assert_eq!(found, [["1"]], "{sql_type} by {path}");
        }
        client.batch_execute("SET tarn.access_path = 'auto'").await.unwrap();
        let updated = client.execute(&format!("UPDATE {table} SET v = 2 WHERE k = {literal}"), &[]).await.unwrap();
        assert_eq!(updated, 1, "{sql_type}");
        assert_eq!(
            client.execute(&format!("DELETE FROM {table} WHERE k = {literal}"), &[]).await.unwrap(),
            1,
            "{sql_type}"
        );
        assert_eq!(rows(&client, &format!("SELECT count(*) FROM {table}")).await, [["0"]], "{sql_type}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_queries_have_postgres_types() {
    let server = Server::start().await;
    let client = server.client().await;
    let row = client.query_one("SELECT 1 AS a, 1.5::numeric(10,2) AS b, 'x' AS c, true AS d, NULL AS e, ARRAY[1,2] AS f, count(*) AS g FROM (VALUES (1)) t(x)", &[]).await.unwrap();
    let types: Vec<&str> = row.columns().iter().map(|c| c.type_().name()).collect();
    assert_eq!(types, ["int4", "numeric", "text", "bool", "text", "_int4", "int8"]);
    assert_eq!(row.get::<_, Vec<i32>>("f"), [1, 2]);
    let echoed: i32 = client.query_one("SELECT $1::int", &[&42i32]).await.unwrap().get::<_, i32>(0);
    assert_eq!(echoed, 42);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_written_by_a_planned_statement_are_those_a_keyed_one_writes() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE b (id int PRIMARY KEY, y bytea)").await.unwrap();
    for (id, sql) in [
        r"INSERT INTO b VALUES (0, '\x00ff')",
        r"INSERT INTO b VALUES (1, concat('\x00', 'ff')::bytea)",
        r"INSERT INTO b SELECT 2, '\x00ff'",
        r"INSERT INTO b VALUES (3, '\x00ff'), (1 + 3, '\000\377')",
    ]
    .iter()
    .enumerate()
    {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{id}: {error:?}"));
    }
    client.batch_execute(r"INSERT INTO b VALUES (5, ''); UPDATE b SET y = '\x00ff' WHERE id >= 5").await.unwrap();
    let found = client.query(r"SELECT id FROM b WHERE y = '\x00ff' ORDER BY id", &[]).await.unwrap();
    assert_eq!(found.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let error = client.batch_execute(r"SELECT 1 FROM b WHERE y = '\xzz' AND id > 0").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22P02", "{error:?}");
}

/// They were shown as 0 and as 1970, because what did not fit became NULL under a mask that did not know it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_the_wire_has_no_room_for_are_errors() {
    let server = Server::start().await;
    let client = server.client().await;
    for statement in [
        "SELECT 12345678901234567890123456789012345678901 AS n",
        "SELECT arrow_cast(9223372036854775807, 'Timestamp(Second, None)') AS n",
    ] {
        let text = client.simple_query(statement).await.unwrap_err();
        assert_eq!(text.code().unwrap().code(), "22003", "{statement}: {text:?}");
        assert!(text.as_db_error().unwrap().message().contains("\"n\""), "{text:?}");
        let binary = client.query(statement, &[]).await.unwrap_err();
        assert_eq!(binary.code().map(|code| code.code()), Some("22003"), "{statement}: {binary:?}");
    }
    assert_eq!(rows(&client, "SELECT 1").await, [["1"]]);
}

/// What PostgreSQL 16 answers to the same, but for the numbers that have no room in the decimals of drivers: those
/// panicked a library.
const NESTED: [(&str, &str); 14] = [
    ("ARRAY[1, NULL, 3]", "{1,NULL,3}"),
    ("ARRAY['a b', '', 'null', 'x\"y']", r#"{"a b","","null","x\"y"}"#),
    ("ARRAY[]::int[]", "{}"),
    ("ARRAY[99999999999999999999999999999999999999::numeric(38,0), 1]", "{99999999999999999999999999999999999999,1}"),
    ("ARRAY[-0.00000000000000000000000000000000000001::numeric(38,38)]", "{-0.00000000000000000000000000000000000001}"),
    ("ARRAY[1.5::float8, 'NaN']", "{1.5,NaN}"),
    ("ARRAY[timestamp '2024-02-29 01:02:03.4', NULL]", r#"{"2024-02-29 01:02:03.4",NULL}"#),
    ("ARRAY[date '2024-02-29']", "{2024-02-29}"),
    ("ARRAY['\\x00ff'::bytea]", r#"{"\\x00ff"}"#),
    ("ARRAY[true, false]", "{t,f}"),
    ("ROW(1, NULL, 'a b', ARRAY[1, 2])", r#"(1,,"a b","{1,2}")"#),
    (
        "ROW(99999999999999999999999999999999999999::numeric(38,0), ROW('x', ''))",
        r#"(99999999999999999999999999999999999999,"(x,"""")")"#,
    ),
    ("INTERVAL '14 months' + INTERVAL '-3 days' + INTERVAL '4.5 hours'", "1 year 2 mons -3 days +04:30:00"),
    ("INTERVAL '-1 second'", "-00:00:01"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrays_rows_and_intervals_go_out_whatever_is_in_them() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE w (k int PRIMARY KEY); INSERT INTO w VALUES (1), (2), (3)").await.unwrap();
    for (expr, want) in NESTED {
        assert_eq!(rows(&client, &format!("SELECT {expr}")).await, [[want]], "{expr}");
        // The middle of a batch, with NULL beside it.
        let sql = format!("SELECT CASE WHEN k > 1 THEN {expr} END FROM w ORDER BY k OFFSET 1 LIMIT 2");
        assert_eq!(rows(&client, &sql).await, [[want], [want]], "{expr}");
        // In binary: it has a form, and the connection lives.
        client.query(&format!("SELECT {expr}"), &[]).await.unwrap_or_else(|error| panic!("{expr}: {error:?}"));
    }
    // Each level doubles the quotes of those below.
    let nested = format!("SELECT {}'a b'{}", "ROW(".repeat(100), ")".repeat(100));
    assert_eq!(failure(client.simple_query(&nested).await).0, "54000");
    let row = client
        .query_one("SELECT ARRAY[1, NULL, 3], ARRAY['a', 'b c'], ARRAY[]::bigint[], ARRAY[1.5::float8], ARRAY[date '2024-02-29']", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, Vec<Option<i32>>>(0), [Some(1), None, Some(3)]);
    assert_eq!(row.get::<_, Vec<String>>(1), ["a", "b c"]);
    assert_eq!(row.get::<_, Vec<i64>>(2), Vec::<i64>::new());
    assert_eq!(row.get::<_, Vec<f64>>(3), [1.5]);
    assert_eq!(row.get::<_, Vec<NaiveDate>>(4), [NaiveDate::from_ymd_opt(2024, 2, 29).unwrap()]);
}
