//! The protocol tells the truth: about the transaction, about what was cancelled, about text, about what was prepared.

use std::sync::Arc;

use bytes::Bytes;
use futures::SinkExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::{Client, NoTls};

use crate::harness::{Server, cell, failure, rows};
use crate::raw::{RawClient, bind, execute, message, parse, query, sync};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_for_query_tells_the_transaction_after_the_statement_that_failed() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(&server).await;
    raw.ask(&query("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")).await;
    for (sql, want) in [
        ("BEGIN; SELECT 1/0", ["E22012", "ZE"]),
        ("SELECT 1", ["E25P02", "ZE"]),
        ("ROLLBACK; SELECT 1/0", ["E22012", "ZI"]),
        ("SELECT nope", ["E42703", "ZI"]),
        ("BEGIN; SELEC", ["E42601", "ZI"]),
        ("BEGIN; UPDATE t SET v = v + 1 WHERE k = 1", ["CUPDATE 1", "ZT"]),
    ] {
        let answers = raw.ask(&query(sql)).await;
        assert_eq!(answers[answers.len() - 2..], want, "{sql}");
    }
    let mut other = RawClient::connect(&server).await;
    other.ask(&query("UPDATE t SET v = 7 WHERE k = 1")).await;
    assert_eq!(raw.ask(&query("COMMIT")).await, ["E40001", "ZI"], "the transaction is over");
    assert_eq!(raw.ask(&query("INSERT INTO t VALUES (2, 2)")).await, ["CINSERT 0 1", "ZI"]);
    // The extended protocol: after Sync.
    let failing = [parse("", "SELECT 1/0"), bind("", ""), execute("", 0), sync()].concat();
    let answers = raw.ask(&failing).await;
    assert_eq!(answers[answers.len() - 2..], ["E22012", "ZI"]);
    raw.ask(&query("BEGIN")).await;
    let answers = raw.ask(&failing).await;
    assert_eq!(answers[answers.len() - 2..], ["E22012", "ZE"]);
}

async fn accounts(server: &Server, n_rows: usize) -> Client {
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int)").await.unwrap();
    let fill = format!("INSERT INTO t SELECT value::int, 0 FROM generate_series(1, {n_rows}) AS s(value)");
    client.batch_execute(&fill).await.unwrap();
    client
}

/// A cancel that comes late finds the next statement: that is asked again.
async fn count(client: &Client, sql: &str) -> u64 {
    loop {
        match client.query_one(sql, &[]).await {
            Ok(row) => return row.get::<_, i64>(0) as u64,
            Err(error) => assert_eq!(failure::<()>(Err(error)).0, "57014"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_is_told_as_cancelled_did_nothing() {
    let server = Server::start().await;
    let client = accounts(&server, 1).await;
    client.batch_execute("SET statement_timeout = '1ms'").await.unwrap();
    let mut acknowledged = vec!["1".to_owned()];
    for k in 2..400 {
        match client.batch_execute(&format!("INSERT INTO t VALUES ({k}, 0)")).await {
            Ok(()) => acknowledged.push(k.to_string()),
            Err(error) => assert_eq!(failure::<()>(Err(error)).0, "57014"),
        }
    }
    client.batch_execute("RESET statement_timeout").await.unwrap();
    let there: Vec<String> = rows(&client, "SELECT k FROM t ORDER BY k").await.into_iter().flatten().collect();
    assert_eq!(there, acknowledged);

    // By a cancel request, of a statement of several batches, at any time.
    client
        .batch_execute("INSERT INTO t SELECT value::int, 0 FROM generate_series(1000, 60000) AS s(value)")
        .await
        .unwrap();
    let token = client.cancel_token();
    let mut random = StdRng::seed_from_u64(7);
    let mut value = 0;
    for _ in 0..20 {
        value += 1;
        let patience = random.random_range(0..300);
        let update = format!("UPDATE t SET v = {value} WHERE k >= 1000");
        let cancel = async {
            for _ in 0..patience {
                tokio::task::yield_now().await;
            }
            token.cancel_query(NoTls).await.unwrap();
        };
        let (updated, ()) = tokio::join!(client.batch_execute(&update), cancel);
        let changed = count(&client, &format!("SELECT count(*) FROM t WHERE v = {value}")).await;
        match updated {
            Ok(()) => assert_eq!(changed, 59_001),
            Err(error) => match failure::<()>(Err(error)) {
                (code, _) if code == "57014" => assert_eq!(changed, 0),
                (code, text) => {
                    assert_eq!(code, "40003");
                    assert!(changed > 0 && text.contains(&format!("{changed} rows")), "{changed}: {text}");
                }
            },
        }
    }
}

/// It waits for more data: there, too, the time limit is heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_cancelled_tells_what_stays() {
    let server = Server::start_with(|settings| settings.sql.copy_batch_rows = 100).await;
    let client = accounts(&server, 1).await;
    let lines: String = (10..1_010).map(|k| format!("{k}\t1\n")).collect();
    for data in [lines.repeat(300), "3\t3\n".to_owned()] {
        let mut raw = RawClient::connect(&server).await;
        raw.ask(&query("SET statement_timeout = '300ms'")).await;
        let copy = query("COPY t FROM STDIN WITH (on_conflict = replace)");
        raw.send(&[copy, message('d', data.as_bytes())].concat()).await;
        assert_eq!(raw.next().await.unwrap().kind, 'G');
        let answers = raw.until_ready().await;
        let (error, n_rows) = (&answers[0], cell(&client, "SELECT count(*) FROM t WHERE v > 0").await);
        match error.short().as_str() {
            "E57014" => assert_eq!(n_rows, "0"),
            code => {
                assert_eq!(code, "E40003");
                assert!(n_rows != "0" && error.field(b'D').contains("rows of this statement"), "{error:?}");
            }
        }
        assert_eq!(raw.ask(&query("RESET statement_timeout; SELECT 1")).await.last().unwrap(), "ZI");
        client.batch_execute("DELETE FROM t WHERE v > 0").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_row_of_a_copy_is_told_while_data_still_comes() {
    let server = Server::start_with(|settings| settings.sql.copy_batch_rows = 1_000).await;
    let client = accounts(&server, 0).await;
    let cases = [
        ("abc\t1", "22P02", "COPY t, line 2501, column k: \"abc\""),
        ("\\N\t1", "23502", "COPY t, line 2501, column k: null input"),
        ("9\t1\t2", "22P04", "COPY t, line 2501: \"9\t1\t2\""),
        ("9", "22P04", "COPY t, line 2501: \"9\""),
    ];
    for (line, state, place) in cases {
        let good: String = (0..2_500).map(|k| format!("{k}\t1\n")).collect();
        let rest: String = (0..200_000).map(|k| format!("{k}\t1\n")).collect();
        let data = format!("{good}{line}\n{rest}");
        let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap();
        futures::pin_mut!(sink);
        for chunk in data.as_bytes().chunks(8 << 10) {
            // The error may be heard before all is sent.
            if sink.send(Bytes::copy_from_slice(chunk)).await.is_err() {
                break;
            }
        }
        let (code, text) = failure(sink.finish().await);
        assert_eq!(code, state, "{text}");
        assert!(text.contains(place) && text.contains("2000 rows"), "{text}");
        assert_eq!(cell(&client, "SELECT count(*) FROM t").await, "2000", "the connection lives");
        client.batch_execute("DELETE FROM t").await.unwrap();
    }
    // The simple protocol: ReadyForQuery at once, what still comes is swallowed.
    let mut raw = RawClient::connect(&server).await;
    raw.send(&query("COPY t FROM STDIN")).await;
    assert_eq!(raw.next().await.unwrap().kind, 'G');
    raw.send(&message('d', &b"x\t1\n".repeat(100_000))).await;
    let answers: Vec<String> = raw.until_ready().await.iter().map(|message| message.short()).collect();
    assert_eq!(answers, ["E22P02", "ZI"]);
    let rest = [message('d', b"1\t1\n"), message('c', b""), query("SELECT 1")].concat();
    assert_eq!(raw.ask(&rest).await.last().unwrap(), "ZI");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_arrow_streams_are_errors() {
    use arrow::array::{Int32Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::ipc::writer::StreamWriter;

    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text)").await.unwrap();
    let schema =
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, false), Field::new("v", DataType::Utf8, true)]));
    let keys = Int32Array::from_iter_values(0..50);
    let texts: StringArray = (0..50).map(|k| (k % 3 > 0).then(|| format!("row {k}"))).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys), Arc::new(texts)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    writer.write(&batch).unwrap();
    let stream = writer.into_inner().unwrap();
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..150 {
        let mut broken = stream.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..broken.len());
            broken[at] = random.random();
        }
        broken.truncate(random.random_range(broken.len() / 2..=broken.len()));
        let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN WITH (FORMAT arrow)").await.unwrap();
        futures::pin_mut!(sink);
        sink.send(broken.into()).await.unwrap();
        if let Err(error) = sink.finish().await {
            let (code, text) = failure::<()>(Err(error));
            assert!(!code.starts_with("XX000"), "{code}: {text}");
        }
    }
    assert_eq!(cell(&client, "SELECT 1").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_find_a_connection_as_new() {
    let server = Server::start().await;
    for reset in ["DEALLOCATE ALL", "DISCARD ALL"] {
        let mut raw = RawClient::connect(&server).await;
        let prepare = [parse("s1", "SELECT 1"), parse("s2", ""), sync()].concat();
        assert_eq!(raw.ask(&prepare).await, ["1", "1", "ZI"]);
        assert_eq!(raw.ask(&prepare).await, ["E42P05", "ZI"]);
        assert_eq!(raw.ask(&query(reset)).await, [format!("C{reset}"), "ZI".to_owned()]);
        assert_eq!(raw.ask(&prepare).await, ["1", "1", "ZI"], "{reset}");
        let extended = [parse("", reset), bind("", ""), execute("", 0), sync()].concat();
        assert_eq!(raw.ask(&extended).await, ["1", "2", &format!("C{reset}"), "ZI"]);
        assert_eq!(raw.ask(&[bind("", "s1"), sync()].concat()).await, ["E26000", "ZI"], "{reset}");
    }
    let client = server.client().await;
    let before = cell(&client, "SHOW datafusion.execution.time_zone").await;
    for reset in ["RESET ALL", "DISCARD ALL", "RESET datafusion.execution.time_zone"] {
        client
            .batch_execute("SET datafusion.execution.time_zone = '+05:00'; SET application_name = 'x'")
            .await
            .unwrap();
        assert_ne!(cell(&client, "SHOW datafusion.execution.time_zone").await, before);
        client.batch_execute(reset).await.unwrap();
        assert_eq!(cell(&client, "SHOW datafusion.execution.time_zone").await, before, "{reset}");
    }

    client.batch_execute("SET application_name = 'x'; DISCARD PLANS; DISCARD TEMP").await.unwrap();
    assert_eq!(cell(&client, "SHOW application_name").await, "x", "only DISCARD ALL resets settings");
    assert_eq!(cell(&client, "SHOW session_authorization").await, "tester", "what was given at the start stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_application_name_is_cut() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute(&format!("SET application_name = '{}'", "n".repeat(100_000))).await.unwrap();
    assert_eq!(cell(&client, "SHOW application_name").await, "n".repeat(63));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn portals_run_once() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(&server).await;
    raw.ask(&query("CREATE TABLE t (k int PRIMARY KEY)")).await;
    let insert = [parse("", "INSERT INTO t VALUES (1)"), bind("", ""), execute("", 0), execute("", 0), sync()].concat();
    assert_eq!(raw.ask(&insert).await, ["1", "2", "CINSERT 0 1", "E55000", "ZI"]);
    let select = [parse("", "SELECT 1"), bind("", ""), execute("", 0), execute("", 0), sync()].concat();
    assert_eq!(raw.ask(&select).await, ["1", "2", "D", "CSELECT 1", "CSELECT 0", "ZI"]);
    let empty = [parse("", ""), bind("", ""), message('D', b"P\0"), execute("", 0), execute("", 0), sync()].concat();
    assert_eq!(raw.ask(&empty).await, ["1", "2", "n", "I", "I", "ZI"]);
    assert_eq!(raw.ask(&query(" ; ")).await, ["I", "ZI"]);
    // Named portals: two side by side, closed, described, and gone after Sync.
    let named = [
        parse("s", "SELECT value FROM generate_series(1, 3) AS s(value)"),
        bind("a", "s"),
        bind("b", "s"),
        execute("a", 2),
        execute("b", 1),
        execute("a", 2),
        message('D', b"Pb\0"),
        message('C', b"Pa\0"),
        execute("a", 1),
        sync(),
    ];
    let answers = raw.ask(&named.concat()).await;
    assert_eq!(answers, ["1", "2", "2", "D", "D", "s", "D", "s", "D", "CSELECT 1", "T", "3", "E34000", "ZI"]);
    assert_eq!(raw.ask(&[bind("a", "s"), bind("a", "s"), sync()].concat()).await, ["2", "E42P03", "ZI"]);
    assert_eq!(raw.ask(&[bind("a", "s"), sync()].concat()).await, ["2", "ZI"]);
    assert_eq!(raw.ask(&[execute("a", 0), sync()].concat()).await, ["E34000", "ZI"]);
    // Formats that do not fit the columns.
    let formats = message('B', b"\0s\0\0\0\0\0\0\x02\0\0\0\0");
    assert_eq!(raw.ask(&[formats, execute("", 0), sync()].concat()).await, ["E08P01", "ZI"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_is_none_is_refused() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(&server).await;
    raw.ask(&query("CREATE TABLE t (k int PRIMARY KEY, v text)")).await;
    let latin1 = b"INSERT INTO t VALUES (60, 'caf\xe9')\0";
    assert_eq!(raw.ask(&message('Q', latin1)).await, ["E22021", "ZI"]);
    let prepare = [b"\0".as_slice(), latin1, b"\0\0"].concat();
    assert_eq!(raw.ask(&[message('P', &prepare), sync()].concat()).await, ["E22021", "ZI"]);
    for value in [b"caf\xe9", b"caf\0"] {
        let mut body = b"\0\0\0\0\0\x01\0\0\0\x04".to_vec();
        body.extend_from_slice(value);
        body.extend_from_slice(b"\0\0");
        let bound = [parse("", "INSERT INTO t VALUES (1, $1)"), message('B', &body), execute("", 0), sync()].concat();
        let answers = raw.ask(&bound).await;
        assert_eq!(answers[answers.len() - 2..], ["E22021", "ZI"]);
    }
    for data in [&b"1\tcaf\xe9\n"[..], b"1\ta\\000b\n", b"1\ta\0b\n"] {
        raw.send(&query("COPY t FROM STDIN")).await;
        raw.next().await;
        let answers = raw.ask(&[message('d', data), message('c', b"")].concat()).await;
        assert_eq!(answers, ["E22021", "ZI"], "{data:?}");
    }
    for sql in [
        "INSERT INTO t VALUES (1, chr(0))",
        "INSERT INTO t SELECT 1, chr(value::int) FROM generate_series(0, 0) AS s(value)",
        "UPDATE t SET v = chr(0)",
    ] {
        let answers = raw.ask(&[query("UPSERT INTO t VALUES (0, 'x')"), query(sql)].concat()).await;
        assert_eq!(answers, ["CINSERT 0 1", "ZI"]);
        let answers: Vec<String> = raw.until_ready().await.iter().map(|message| message.short()).collect();
        assert_eq!(answers, ["E54000", "ZI"], "{sql}");
    }
    assert_eq!(raw.ask(&query("SELECT * FROM t WHERE k > 0")).await, ["T", "CSELECT 0", "ZI"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_messages_are_answered() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(&server).await;
    let wrong: [(char, &[u8], &str); 7] = [
        ('B', b"", "E08P01"),
        ('P', b"", "E08P01"),
        ('E', b"", "E08P01"),
        ('D', b"", "E08P01"),
        ('C', b"Q\0", "E08P01"),
        ('B', b"\0\0\0\0\0\x01\0\0\0\x50abc\0\0", "E08P01"),
        ('B', b"\0\0\xff\xff\0\x01", "E08P01"),
    ];
    for (kind, body, want) in wrong {
        // What follows is skipped until Sync.
        let bytes = [message(kind, body), parse("", "SELECT 1"), message(kind, body), sync()].concat();
        assert_eq!(raw.ask(&bytes).await, [want, "ZI"], "{kind} {body:?}");
    }
    assert_eq!(raw.ask(&message('Q', b"SELECT 1")).await, ["E08P01", "ZI"]);
    assert_eq!(raw.ask(&message('F', b"\0\0\0\x01\0\0\0\0\0\0")).await, ["E0A000", "ZI"]);
    for bytes in [&b"d\0\0\0\0"[..], b"p\0\0\0\x02", b"Q\xff\xff\xff\xff", b"!\0\0\0\x04"] {
        let mut raw = RawClient::connect(&server).await;
        raw.send(bytes).await;
        let last = raw.next().await.unwrap();
        assert_eq!((last.field(b'S').as_str(), last.short().as_str()), ("FATAL", "E08P01"));
        assert_eq!(raw.next().await, None);
    }
    let mut raw = RawClient::silent(&server).await;
    raw.send(b"\0\0\0\x06ab").await;
    assert_eq!(raw.next().await.unwrap().short(), "E08P01");
    let mut random = StdRng::seed_from_u64(2);
    for _ in 0..200 {
        let mut raw =
            if random.random() { RawClient::connect(&server).await } else { RawClient::silent(&server).await };
        let bytes: Vec<u8> = (0..random.random_range(1..200)).map(|_| random.random()).collect();
        raw.send(&bytes).await;
    }
    assert_eq!(RawClient::connect(&server).await.ask(&query("SELECT 1")).await, ["T", "D", "CSELECT 1", "ZI"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_gives_out_what_it_reads() {
    let server = Server::start().await;
    let client = server.client().await;
    client
        .batch_execute(
            "BEGIN; DECLARE c CURSOR FOR SELECT value FROM generate_series(1, 50000) AS s(value) ORDER BY value",
        )
        .await
        .unwrap();
    assert_eq!(rows(&client, "FETCH 2 FROM c").await, [["1"], ["2"]]);
    assert_eq!(rows(&client, "FETCH 0 FROM c").await, [["2"]]);
    assert_eq!(rows(&client, "FETCH 20000 FROM c").await.len(), 20_000);
    assert_eq!(rows(&client, "FETCH ALL FROM c").await.len(), 29_998);
    assert_eq!(rows(&client, "FETCH 1 FROM c").await.len(), 0);
    client.batch_execute("CLOSE c; COMMIT").await.unwrap();
}
