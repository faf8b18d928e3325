//! Statements of one row are computed without a plan. What they write, answer and refuse is what their plans do: the
//! same statements are run on two tables, of which one is asked in a way that needs a plan.

use futures::future::join_all;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::harness::{Server, cell, rows};

const COLUMNS: &str = "k int, b boolean, s smallint, i int, l bigint, r real, d double precision, n numeric(10,2), m numeric, \
    t text, c varchar(5), h char(4), y bytea, da date, ti time, ts timestamp, tz timestamptz, iv interval, u uuid, \
    j jsonb, a int[], x text[], ip inet";

/// What a statement came to: the rows that it answers and how many it changed, or why it failed.
async fn outcome(client: &Client, sql: &str) -> Result<Vec<String>, String> {
    match client.simple_query(sql).await {
        Ok(messages) => Ok(messages
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|at| row.get(at).unwrap_or("∅").to_owned()).collect::<Vec<_>>().join("|"))
                }
                SimpleQueryMessage::CommandComplete(n_rows) => Some(format!("{n_rows} rows")),
                _ => None,
            })
            .collect()),
        Err(error) => {
            let error = error.as_db_error().expect("the server's own error");
            // Of whichever table.
            let message = error.message().replace("fast", "it").replace("slow", "it");
            Err(format!("{} {message}", error.code().code()))
        }
    }
}

/// Two tables of one content, and the keyed statements so far.
async fn two_tables(server: &Server, client: &Client) {
    for table in ["fast", "slow"] {
        let rows = "(1, true, 2, 3, 4, 1.5, 2.5, 7.25, 1.5, 'text', 'abc', 'ab', '\\x01ff', '2026-11-01', '08:09', \
            '2026-11-01 08:09', '2026-11-01 08:09Z', '1 mon 2 days', '12345678-1234-5678-1234-567812345678', \
            '{\"a\": [1, 2]}', '{1,2,3}', '{x,NULL}', '10.0.0.1'), (3, false, -2, -3, -4, 'NaN', 'Infinity', -7.25, -1.5, '', '', \
            '', '', '1999-12-31', '00:00', '1999-12-31', '1999-12-31Z', '-1 day', NULL, '[]', '{}', '{}', '::1/64')";
        let make = format!("CREATE TABLE {table} ({COLUMNS}, PRIMARY KEY (k)); INSERT INTO {table} VALUES {rows}");
        client.batch_execute(&format!("{make}; INSERT INTO {table} (k) VALUES (2)")).await.unwrap();
    }
    assert_eq!(server.running.node.metrics().keyed_statements.get(), 4);
}

async fn same(client: &Client, fast: &str, slow: &str) {
    assert_eq!(outcome(client, fast).await, outcome(client, slow).await, "{fast}");
    let [of_fast, of_slow] = ["fast", "slow"].map(|table| format!("SELECT * FROM {table} ORDER BY k"));
    assert_eq!(rows(client, &of_fast).await, rows(client, &of_slow).await, "{fast}");
}

/// `{t}` is the table, `{k}` the condition of the key.
fn of(template: &str, table: &str, key: &str) -> String {
    template.replace("{t}", table).replace("{k}", key)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_by_key_are_what_their_plans_are() {
    let server = Server::start().await;
    let client = server.client().await;
    two_tables(&server, &client).await;
    let sets = [
        "i = i + 1",
        "i = i + 1, l = l - i, s = s * 2::smallint",
        "i = 2147483647 + i",
        "s = i",
        "s = 100000",
        "l = i / 0",
        "l = 7 / i, d = 7 / 2.0",
        "d = sqrt(d), r = r / 3",
        "n = n * 1.005",
        "n = n * 10000000000",
        "n = round(n, 1), m = round(m, 0)",
        "n = n + i, m = m / 3",
        "m = coalesce(m, 0) + 0.125",
        "t = t || 'x' || i",
        "t = upper(t) || n",
        "c = c || 'toolong'",
        "c = substring(c || 'toolong', 1, 5)",
        "h = h || 'x', t = h || 'x'",
        "y = y || '\\x00'::bytea",
        "da = da + 1, ts = ts + interval '1 month', tz = tz + iv",
        "da = 'tomorrow'::date - 1, ti = ti + interval '25 hours'",
        "iv = iv * 2 + interval '1 hour'",
        "tz = ts, ts = tz",
        "tz = date_trunc('hour', tz) AT TIME ZONE 'Europe/Berlin'",
        "u = '00000000-0000-0000-0000-000000000001'",
        "u = t",
        "j = j || '{\"b\": 1}', t = j->>'a'",
        "j = jsonb_set(j, '{a}', to_jsonb(i))",
        "a = a || i, x = array_append(x, t)",
        "a[2] = 7",
        "ip = ip + 1, t = host(ip)",
        "b = NOT b, i = CASE WHEN b THEN i ELSE -i END",
        "b = i > 2 AND t LIKE 't%'",
        "b = t",
        "i = DEFAULT, t = NULL",
        "i = (SELECT count(*) FROM {t})",
        "(i, t) = (i * 2, 'pair')",
        "k = 1",
        "k = 5",
        "nothing = 1",
        "i = nothing + 1",
        "t = repeat(t, 3), i = length(t)",
        "t = to_char(tz, 'YYYY-MM-DD HH24:MI'), l = extract(epoch FROM ts)",
        "t = current_date::text, l = extract(year FROM now())",
        "i = greatest(i, l, 5), l = least(i, s)",
        "i = sum(i)",
        "t = format('%s-%s', i, t)",
        "i = i % 2, l = abs(l), d = power(d, 2)",
    ];
    // Every row that there is, and one that there is not.
    for set in sets {
        for key in [1, 3, 2, 9] {
            let template = format!("UPDATE {{t}} SET {set} WHERE {{k}}");
            let (fast, slow) = (format!("k = {key}"), format!("k + 0 = {key}"));
            same(&client, &of(&template, "fast", &fast), &of(&template, "slow", &slow)).await;
        }
    }
    // Nearly all of them, whatever became of them: what is no expression of one row is planned.
    let by_key = server.running.node.metrics().keyed_statements.get() - 4;
    assert!(by_key > 130, "{by_key} of {}", sets.len() * 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_changes_by_key_are_what_their_plans_are() {
    let server = Server::start().await;
    let client = server.client().await;
    two_tables(&server, &client).await;
    let statements: [(&str, &str, &[&str]); 20] = [
        ("int, int", "UPDATE {t} SET i = i + $2, l = $2 WHERE {k}", &["1, 5", "1, 2147483647", "1, NULL", "NULL, 1"]),
        ("int, text", "UPDATE {t} SET c = $2, t = $2 WHERE {k} RETURNING *", &["1, 'a'", "3, 'toolong'", "2, NULL"]),
        ("int, numeric", "UPDATE {t} SET n = n * $2 WHERE {k}", &["1, 1.005", "1, 99999999999", "3, 0.1"]),
        ("int, numeric", "UPDATE {t} SET n = n + round($2, 1) WHERE {k}", &["1, 1.25", "1, -1.25", "3, 1"]),
        ("int, int", "UPDATE {t} SET n = round(n * 1.234, $2) WHERE {k}", &["1, 1", "1, 0", "3, 2"]),
        ("int, text", "UPDATE {t} SET t = t || $2 WHERE {k} AND t <> $2 RETURNING t", &["1, 'a'", "1, 'a'", "2, 'b'"]),
        ("int, int", "UPDATE {t} SET i = i / (i - $2) WHERE {k} AND i <> $2", &["1, 3", "1, 4", "3, -3"]),
        ("int, jsonb", "UPDATE {t} SET j = j || $2 WHERE {k} RETURNING j->'a'", &["1, '{\"a\": 1}'", "3, '[1]'"]),
        ("int, int[]", "UPDATE {t} SET a = a || $2 WHERE {k} RETURNING a[1]", &["1, '{4}'", "2, '{1}'"]),
        ("int, uuid", "UPDATE {t} SET u = $2 WHERE {k}", &["1, '00000000-0000-0000-0000-000000000001'"]),
        ("int, timestamptz", "UPDATE {t} SET tz = $2 WHERE {k}", &["1, '2026-11-01 23:30Z'"]),
        ("int, interval", "UPDATE {t} SET ts = ts + $2, iv = iv - $2 WHERE {k}", &["1, '1 mon'", "3, '-25:00'"]),
        ("int, inet", "UPDATE {t} SET ip = $2 WHERE {k} RETURNING host(ip)", &["1, '10.0.0.2/8'"]),
        ("int, bytea", "UPDATE {t} SET y = y || $2 WHERE {k} RETURNING length(y)", &["1, '\\x0102'"]),
        ("int, text", "UPDATE {t} SET i = CASE WHEN t = $2 THEN 1 ELSE i END WHERE {k}", &["1, 'text'", "3, ''"]),
        (
            "int",
            "UPDATE {t} SET tz = date_trunc('day', now()), i = i + 1 WHERE {k} RETURNING i, tz < now()",
            &["1", "1"],
        ),
        ("int", "UPDATE {t} SET i = i + 1 WHERE {k} RETURNING k, i, n / 3, upper(t), now() - now()", &["1", "2", "9"]),
        ("int", "UPDATE {t} SET i = 0 WHERE {k} RETURNING 1 / i", &["1"]),
        ("int, int", "DELETE FROM {t} WHERE {k} AND i = $2", &["1, 77", "3, NULL"]),
        ("int", "DELETE FROM {t} WHERE {k} RETURNING *", &["1", "1", "2", "NULL"]),
    ];
    for (types, statement, executions) in statements {
        let prepare = |name: &str, key: &str| format!("PREPARE {name} ({types}) AS {}", of(statement, name, key));
        client.batch_execute(&prepare("fast", "k = $1")).await.unwrap();
        client
            .batch_execute(&prepare("slow", "k + 0 = $1"))
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        for given in executions {
            same(&client, &format!("EXECUTE fast ({given})"), &format!("EXECUTE slow ({given})")).await;
        }
        // Inside a transaction, of a row that it wrote itself.
        let more = executions[0].split_once(',').map_or(String::new(), |(_, more)| format!(",{more}"));
        let mut outcomes = vec![];
        for table in ["fast", "slow"] {
            client.batch_execute(&format!("BEGIN; INSERT INTO {table} (k, i) VALUES (7, 1)")).await.unwrap();
            let changed = outcome(&client, &format!("EXECUTE {table} (7{more})")).await;
            let there = outcome(&client, &format!("SELECT * FROM {table} WHERE k = 7")).await;
            client.batch_execute("ROLLBACK").await.unwrap();
            outcomes.push((changed, there));
        }
        assert_eq!(outcomes[0], outcomes[1], "{statement}");
        client.batch_execute("DEALLOCATE ALL").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_inserted_are_computed_the_same_way_alone_and_among_others() {
    let server = Server::start().await;
    let client = server.client().await;
    for table in ["fast", "slow"] {
        let columns = "id serial PRIMARY KEY, at timestamptz DEFAULT now(), n numeric(10,2) DEFAULT 1.5 * 2, t varchar(5) \
            DEFAULT upper('abc'), g int GENERATED ALWAYS AS (id * 2) STORED, j jsonb, a int[], u uuid, CHECK (n < 100)";
        client.batch_execute(&format!("CREATE TABLE {table} ({columns})")).await.unwrap();
    }
    let rows_of = [
        "INSERT INTO {t} (t) VALUES ('x') RETURNING id, n, t, g, at = now()",
        "INSERT INTO {t} (n) VALUES (1 + 1.005) RETURNING n",
        "INSERT INTO {t} (n) VALUES (100) RETURNING n",
        "INSERT INTO {t} (n) VALUES (1 / 0)",
        "INSERT INTO {t} (t) VALUES ('too' || 'long')",
        "INSERT INTO {t} (t) VALUES (DEFAULT) RETURNING t",
        "INSERT INTO {t} (t, j, a) VALUES (NULL, '{\"a\": 1}', ARRAY[1, NULL, 3]) RETURNING j->>'a', a[3], id",
        "INSERT INTO {t} (j, u) VALUES ('[]'::jsonb || '[1]', '00000000-0000-0000-0000-000000000001'::uuid) RETURNING j, u, g",
        "INSERT INTO {t} (id) VALUES (1)",
        "INSERT INTO {t} (id, n) VALUES (1, 7) ON CONFLICT (id) DO UPDATE SET n = {t}.n + excluded.n RETURNING id, n, g",
        "INSERT INTO {t} (id, n) VALUES (1, 99) ON CONFLICT (id) DO UPDATE SET n = {t}.n + excluded.n",
        "INSERT INTO {t} (id, n) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n WHERE {t}.n > 1000 RETURNING n",
        "INSERT INTO {t} (id, t) VALUES (1, 'y') ON CONFLICT (id) DO UPDATE SET t = excluded.t || {t}.t || excluded.t",
        "INSERT INTO {t} (id, t) VALUES (1, 'y') ON CONFLICT (id) DO NOTHING RETURNING id",
        "INSERT INTO {t} (id, t) VALUES (90, 'y') ON CONFLICT (id) DO UPDATE SET t = (SELECT 'q') RETURNING t",
        "INSERT INTO {t} (id, t) VALUES (90, 'y') ON CONFLICT (id) DO UPDATE SET t = (SELECT 'q') RETURNING t",
        "INSERT INTO {t} DEFAULT VALUES RETURNING n, t, g",
    ];
    for statement in rows_of {
        // Of rows that a query gives nothing is compiled.
        let slow = statement.replace("{t}", "slow");
        let slow = match slow.split_once("VALUES (") {
            Some((into, rest)) if !rest.starts_with("DEFAULT") => {
                let end =
                    rest.find(" RETURNING").into_iter().chain(rest.find(" ON CONFLICT")).min().unwrap_or(rest.len());
                let (row, behind) = rest.split_at(end);
                format!("{into}SELECT {} WHERE 1 = 1{behind}", row.trim_end_matches(')'))
            }
            _ => slow,
        };
        assert_eq!(outcome(&client, &statement.replace("{t}", "fast")).await, outcome(&client, &slow).await, "{slow}");
        let of = |table: &str| format!("SELECT id, n, t, g, j, a, u FROM {table} ORDER BY id");
        assert_eq!(rows(&client, &of("fast")).await, rows(&client, &of("slow")).await, "{slow}");
    }
    // What is one statement's is not the next one's.
    client.batch_execute("PREPARE p (text) AS INSERT INTO fast (t) VALUES ($1) RETURNING id, at").await.unwrap();
    let first = rows(&client, "EXECUTE p ('a')").await;
    let second = rows(&client, "EXECUTE p ('b')").await;
    assert_ne!((&first[0][0], &first[0][1]), (&second[0][0], &second[0][1]));
    assert_ne!(first[0][1], second[0][1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_count_in_one_row() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)").await.unwrap();
    let counters = (0..8).map(|_| async {
        let client = server.client().await;
        let count = client.prepare("UPDATE t SET n = n + $1 WHERE k = 1").await.unwrap();
        for _ in 0..50 {
            assert_eq!(client.execute(&count, &[&1]).await.unwrap(), 1);
        }
    });
    join_all(counters).await;
    assert_eq!(cell(&client, "SELECT n FROM t").await, "400");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_compiled_once_is_right_for_every_execution() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, n int, q int, a int, b int)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1, 1, 10, 0, 0)").await.unwrap();
    // Columns of one name of two tables, beside what is computed once for several.
    let change = "a = (t.n + excluded.n) * 2, b = (t.n + excluded.n) * 3, q = t.q + excluded.q";
    client
        .batch_execute(&format!("INSERT INTO t VALUES (1, 2, 5) ON CONFLICT (k) DO UPDATE SET {change}"))
        .await
        .unwrap();
    assert_eq!(rows(&client, "SELECT * FROM t").await, [["1", "1", "15", "6", "9"]]);
    // A parameter of a wider type than what it is put into.
    client.batch_execute("CREATE TABLE wide (id bigint PRIMARY KEY, s int)").await.unwrap();
    let upsert = "INSERT INTO wide VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET s = $1";
    client.batch_execute(&format!("PREPARE p AS {upsert}")).await.unwrap();
    assert_eq!(outcome(&client, "EXECUTE p (7)").await, Ok(vec!["1 rows".to_owned()]));
    assert_eq!(outcome(&client, "EXECUTE p (7)").await, Ok(vec!["1 rows".to_owned()]));
    assert_eq!(outcome(&client, "EXECUTE p (3000000000)").await, Ok(vec!["1 rows".to_owned()]));
    let too_much = outcome(&client, "EXECUTE p (3000000000)").await.unwrap_err();
    assert!(too_much.starts_with("22003"), "{too_much}");
    // Other parts of a statement read what was there when it began, and pass over what another one changed.
    let mut outcomes = vec![];
    for key in ["k = 1", "k + 0 = 1"] {
        client.batch_execute("UPDATE t SET a = 1, b = 0 WHERE k = 1").await.unwrap();
        let parts = format!(
            "UPDATE t SET a = 0 WHERE {key} RETURNING a) UPDATE t SET b = 10 / t.a WHERE {key} AND EXISTS (SELECT FROM x)"
        );
        let first = outcome(&client, &format!("WITH x AS ({parts}")).await;
        let parts = format!("UPDATE t SET a = a + 1 WHERE {key}) UPDATE t SET b = 10 / a WHERE {key} RETURNING a, b");
        let second = outcome(&client, &format!("WITH x AS ({parts}")).await;
        outcomes.push((first, second, rows(&client, "SELECT * FROM t").await));
    }
    assert_eq!(outcomes[0], outcomes[1]);
    // Of no row nothing is called.
    client.batch_execute("CREATE SEQUENCE s").await.unwrap();
    let none = "UPDATE t SET a = a + 1 WHERE k = 9 RETURNING nextval('s')";
    assert_eq!(outcome(&client, none).await, Ok(vec!["0 rows".to_owned()]));
    assert_eq!(cell(&client, "SELECT nextval('s')").await, "1");
    // The settings of the session, and the statement's own time.
    client.batch_execute("CREATE TABLE at (k int PRIMARY KEY, at timestamptz, t text, d date)").await.unwrap();
    client.batch_execute("INSERT INTO at (k) VALUES (1)").await.unwrap();
    let set = "UPDATE at SET at = now(), t = '2026-11-01 12:00'::timestamptz::text, d = current_date WHERE k = $1 AND now() > '2020-01-01' RETURNING t, at = now()";
    client.batch_execute(&format!("PREPARE at (int) AS {set}")).await.unwrap();
    let told = |zone: &str| vec![format!("2026-11-01 12:00:00{zone}|t"), "1 rows".to_owned()];
    assert_eq!(outcome(&client, "EXECUTE at (1)").await, Ok(told("+00")));
    let first = cell(&client, "SELECT at FROM at").await;
    client.batch_execute("SET TIME ZONE 'Asia/Tokyo'").await.unwrap();
    assert_eq!(outcome(&client, "EXECUTE at (1)").await, Ok(told("+09")));
    client.batch_execute("SET TIME ZONE 'UTC'").await.unwrap();
    assert_ne!(cell(&client, "SELECT at FROM at").await, first);
    // In a transaction it is that one's.
    let begun = ["BEGIN", "EXECUTE at (1)", "SELECT pg_sleep(0.01)"];
    for statement in begun {
        client.simple_query(statement).await.unwrap();
    }
    assert_eq!(cell(&client, "SELECT at = now() FROM at").await, "t");
    client.batch_execute("COMMIT").await.unwrap();
}
