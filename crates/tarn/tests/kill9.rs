//! Is an acknowledged row there after kill -9, and each change in the lake exactly once? Laws 1 and 2, on the shipped
//! binary.
//!
//! A round: a server is started on the folder of the round before; clients write, split tablets and remember what was
//! acknowledged; the server dies, at a random acknowledgement or at a failpoint of delivery; it is started again and
//! everything is read back, on each access path, before and after a delivery. What was not acknowledged may have
//! happened or not, but wholly, and for good.
//!
//! `TARN_SEED` repeats a run, `TARN_SOAK_SECONDS` makes it long (`make soak`).

mod child;
mod foreign_keys;
mod requests;
mod uniques;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::child::ChildServer;

/// Places where a delivery or compaction may die. `:2` is the second time that the place is reached.
const FAILPOINTS: [&str; 8] = [
    "lake::after_write",
    "lake::before_commit",
    "lake::after_commit",
    "lake::after_stage",
    "lake::before_install",
    "lake::after_install",
    "lake::after_commit:2",
    "lake::before_install:3",
];

const N_WRITERS: i64 = 3;
/// Keys of one writer: few, so that rows are changed again and again across deliveries.
const N_KEYS: i64 = 200;
/// One statement in so many splits a tablet.
const SPLIT_EVERY: u32 = 60;
/// Places at which tablets are split, of each table: few, so that a long run does not end with thousands of tablets.
const N_SPLITS: i64 = 32;
/// Acknowledgements after which a round that waits for a failpoint gives up waiting and is killed.
const PATIENCE_ACKS: i64 = 4_000;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_delivered_twice() -> Result<()> {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    eprintln!("TARN_SEED={seed}");
    let soak =
        std::env::var("TARN_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(rounds(seed, soak)).with_context(|| format!("TARN_SEED={seed}"))
}

/// The harness itself: what it is there to find is planted, and must be found.
#[test]
fn a_planted_loss_change_or_double_is_noticed() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for (plant, complaint) in [
            ("SELECT 1", None),
            ("DELETE FROM t WHERE id = $row", Some("acknowledged was")),
            ("UPDATE t SET n = n + 1 WHERE id = $row", Some("acknowledged was")),
            ("INSERT INTO t VALUES (999999, 1, NULL)", Some("rows, want")),
            ("INSERT INTO events VALUES ($event, 0)", Some("is there twice")),
            ("INSERT INTO events VALUES (999999, 0)", Some("never acknowledged")),
        ] {
            let (folder, mut random) = (tempfile::tempdir()?, StdRng::seed_from_u64(7));
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            create_tables(&client).await?;
            let mut model = WriterModel::new(0);
            while model.n_acknowledged < 40 {
                model.step(&client, &mut random).await?;
            }
            let row = model.rows.keys().next().context("a row was acknowledged")?.to_string();
            let event = model.events.iter().next().context("an event was acknowledged")?.to_string();
            client.batch_execute(&plant.replace("$row", &row).replace("$event", &event)).await?;
            drop(server);
            let told = read_back(folder.path(), vec![model]).await.err().map(|error| format!("{error:#}"));
            let noticed = match (&told, complaint) {
                (Some(told), Some(complaint)) => told.contains(complaint),
                (told, complaint) => told.is_none() && complaint.is_none(),
            };
            ensure!(noticed, "{plant}: {told:?}, want {complaint:?}");
        }
        Ok(())
    })
}

/// A DROP that dies half-way is finished at the next start, or has not happened; a CREATE alike. Nothing else is
/// touched.
#[test]
fn a_drop_that_dies_at_any_step_is_finished_or_has_not_happened() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for (place, statement, want) in [
            ("drops::asked", "DROP TABLE gone", Some(100)),
            ("drops::dropped", "DROP TABLE gone", None),
            ("drops::noted", "DROP TABLE gone", None),
            ("drops::emptied", "DROP TABLE gone", None),
            ("drops::made", "CREATE TABLE made (k BIGINT PRIMARY KEY)", Some(100)),
        ] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            for table in ["gone", "kept"] {
                client.batch_execute(&format!("CREATE TABLE {table} (k BIGINT PRIMARY KEY)")).await?;
                let insert = format!("INSERT INTO {table} SELECT value FROM generate_series(1, 100) AS s(value)");
                client.batch_execute(&insert).await?;
            }
            client.batch_execute("CALL tarn.deliver('gone')").await?;
            server.stop()?;
            let server = after_death_at(folder.path(), place, statement).await?;
            let client = server.connect().await?;
            ensure!(one(&client, "SELECT count(*) FROM kept").await? == 100, "{place}");
            let gone = one(&client, "SELECT count(*) FROM gone").await.ok();
            ensure!(gone == want, "{place}: {gone:?}, want {want:?}");
            client.batch_execute("DROP TABLE IF EXISTS gone; DROP TABLE IF EXISTS made").await?;
            for table in ["gone", "made"] {
                client.batch_execute(&format!("CREATE TABLE {table} (k BIGINT PRIMARY KEY)")).await?;
                ensure!(one(&client, &format!("SELECT count(*) FROM {table}")).await? == 0, "{place}: {table}");
            }
            server.stop()?;
            start(folder.path(), None).await.context(place)?.stop()?;
        }
        Ok(())
    })
}

/// A table that dies while it is altered is what it was, or what it was to be; so are those that change their names at
/// one moment.
#[test]
fn an_alteration_that_dies_at_any_step_has_happened_or_has_not() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let swap = "BEGIN; ALTER TABLE t RENAME TO old; ALTER TABLE fresh RENAME TO t; COMMIT";
        // Names that are free at COMMIT alone are given behind all else.
        let behind =
            "BEGIN; DROP TABLE IF EXISTS nothing; ALTER TABLE t RENAME TO old; ALTER TABLE fresh RENAME TO t; COMMIT";
        let add = "ALTER TABLE t ADD COLUMN n BIGINT";
        let key = "ALTER TABLE keyless ADD PRIMARY KEY (k)";
        let column = "ALTER TABLE t RENAME COLUMN k TO id";
        let valued = "ALTER TABLE t ADD COLUMN d TEXT NOT NULL DEFAULT 'older'";
        let retyped = "ALTER TABLE t ALTER s TYPE TEXT USING 'of ' || s";
        let dropped = "ALTER TABLE t DROP COLUMN s, DROP COLUMN v";
        for (place, statement, has_happened) in [
            ("renames::known_by_id", behind, false),
            ("renames::defined", behind, true),
            ("commit::shut", swap, false),
            ("commit::noted", swap, false),
            ("commit::defined", swap, true),
            ("commit::written", swap, true),
            ("alter::shut", add, false),
            ("alter::defined", add, true),
            ("lake::after_commit", add, false),
            ("lake::before_install", add, false),
            ("alter::shut", column, false),
            ("alter::defined", column, true),
            ("lake::after_commit", column, false),
            ("alter::shut", valued, false),
            ("alter::defined", valued, true),
            ("lake::before_install", valued, false),
            ("alter::shut", dropped, false),
            ("alter::defined", dropped, true),
            ("lake::after_commit", dropped, false),
            ("rekey::filled", retyped, false),
            ("rekey::defined", retyped, true),
            ("rekey::filled", key, false),
            ("rekey::defined", key, true),
            ("drops::dropped", key, true),
        ] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            for (table, n_rows) in [("t", 100), ("fresh", 50)] {
                let columns = "k BIGSERIAL PRIMARY KEY, v TEXT, s SERIAL";
                client.batch_execute(&format!("CREATE TABLE {table} ({columns})")).await?;
                let insert = format!("INSERT INTO {table} SELECT value FROM generate_series(1, {n_rows}) AS s(value)");
                client.batch_execute(&insert).await?;
            }
            client.batch_execute("CREATE VIEW reads AS SELECT k FROM t").await?;
            client.batch_execute("CREATE TABLE keyless AS SELECT k FROM t; CALL tarn.deliver('keyless')").await?;
            server.stop()?;
            let server = after_death_at(folder.path(), place, statement).await?;
            let client = server.connect().await?;
            let n_rows = one(&client, "SELECT count(*) FROM t").await?;
            let is_swap = [swap, behind].contains(&statement);
            ensure!(n_rows == if is_swap && has_happened { 50 } else { 100 }, "{place}: {n_rows}");
            ensure!(one(&client, "SELECT count(*) FROM reads").await? == 100, "{place}: the view reads another table");
            if is_swap {
                let left = if has_happened { ["old", "fresh"] } else { ["fresh", "old"] };
                ensure!(one(&client, &format!("SELECT count(*) FROM {}", left[0])).await.is_ok(), "{place}");
                ensure!(one(&client, &format!("SELECT count(*) FROM {}", left[1])).await.is_err(), "{place}");
                client.batch_execute("DROP TABLE t CASCADE").await?;
                let sequence = if has_happened { "fresh_k_seq" } else { "t_k_seq" };
                let gone = client.batch_execute(&format!("SELECT nextval('{sequence}')")).await;
                ensure!(gone.is_err(), "{place}: the sequence of a table goes with it");
            } else if statement == column {
                let of_column = one(&client, "SELECT count(id) FROM t").await;
                ensure!(of_column.is_ok() == has_happened, "{place}: {of_column:?}");
                client.batch_execute("INSERT INTO t VALUES (1000, 'x'); CALL tarn.deliver('t')").await?;
                ensure!(one(&client, "SELECT count(*) FROM reads WHERE k IS NOT NULL").await? == 101, "{place}");
                client.batch_execute("DROP TABLE t CASCADE").await?;
                let gone = client.batch_execute("SELECT nextval('t_k_seq')").await;
                ensure!(gone.is_err(), "{place}: the sequence of a table goes with it");
            } else if statement == valued {
                let of_column = one(&client, "SELECT count(*) FROM t WHERE d = 'older'").await;
                ensure!(of_column.as_ref().ok() == has_happened.then_some(&100), "{place}: {of_column:?}");
                client.batch_execute("INSERT INTO t (k) VALUES (1000); CALL tarn.deliver('t')").await?;
                ensure!(one(&client, "SELECT count(*) FROM t").await? == 101, "{place}");
            } else if statement == retyped {
                let of_column = one(&client, "SELECT count(*) FROM t WHERE s::text LIKE 'of %'").await?;
                ensure!(of_column == if has_happened { 100 } else { 0 }, "{place}: {of_column}");
                let tables = client.query("SELECT table_name FROM tarn.tables", &[]).await?.len();
                ensure!(tables == 3, "{place}: {tables} tables");
                client.batch_execute("INSERT INTO t (k) VALUES (1000); CALL tarn.deliver('t')").await?;
                ensure!(one(&client, "SELECT count(s) FROM t").await? == 101, "{place}: its default is there");
            } else if statement == dropped {
                let of_columns = one(&client, "SELECT count(s) + count(*) FILTER (WHERE v IS NULL) FROM t").await;
                ensure!(of_columns.is_err() == has_happened, "{place}: {of_columns:?}");
                let made = client.batch_execute("CREATE SEQUENCE t_s_seq").await;
                ensure!(made.is_ok() == has_happened, "{place}: a sequence goes with its column: {made:?}");
                client.batch_execute("INSERT INTO t (k) VALUES (1000); CALL tarn.deliver('t')").await?;
                ensure!(one(&client, "SELECT count(*) FROM t").await? == 101, "{place}");
            } else if statement == key {
                ensure!(one(&client, "SELECT count(*) FROM keyless").await? == 100, "{place}");
                let tables = client.query("SELECT table_name FROM tarn.tables", &[]).await?.len();
                ensure!(tables == 3, "{place}: {tables} tables");
                let twice = client.batch_execute("INSERT INTO keyless VALUES (1)").await;
                ensure!(twice.is_err() == has_happened, "{place}: {twice:?}");
            } else {
                let n = client.batch_execute("UPDATE t SET n = 1").await;
                ensure!(n.is_ok() == has_happened, "{place}: {n:?}");
                client.batch_execute("INSERT INTO t (k, v) VALUES (1000, 'x'); CALL tarn.deliver('t')").await?;
                ensure!(one(&client, "SELECT count(*) FROM t").await? == 101, "{place}");
            }
            server.stop()?;
            start(folder.path(), None).await.context(place)?.stop()?;
        }
        Ok(())
    })
}

/// A label that came, and of which the tables were not told yet, is theirs when the server starts again.
#[test]
fn a_type_that_dies_while_it_is_changed_is_told_to_its_tables() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for place in ["types::altered", "alter::shut", "alter::defined"] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            client.batch_execute("CREATE TYPE mood AS ENUM ('sad', 'happy')").await?;
            client
                .batch_execute("CREATE TABLE t (k int PRIMARY KEY, m mood); INSERT INTO t VALUES (1, 'happy')")
                .await?;
            server.stop()?;
            let change = "ALTER TYPE mood ADD VALUE 'ok' BEFORE 'happy'";
            let server = after_death_at(folder.path(), place, change).await?;
            let client = server.connect().await?;
            client.batch_execute("INSERT INTO t VALUES (2, 'ok'), (3, 'sad')").await.context(place)?;
            ensure!(one(&client, "SELECT count(*) FROM t WHERE m < 'happy'").await? == 2, "{place}");
            ensure!(client.batch_execute("ALTER TYPE mood ADD VALUE 'ok'").await.is_err(), "{place}: it is there");
            server.stop()?;
        }
        Ok(())
    })
}

/// A function is what it was or what it is to be, and the table of numbers goes on, whatever a server does that dies
/// behind the write.
#[test]
fn a_function_that_dies_while_it_is_changed_is_whole() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let made = "CREATE FUNCTION f(a bigint) RETURNS bigint LANGUAGE sql AS 'SELECT a + 1'";
        for (change, check, want) in [
            ("CREATE FUNCTION g() RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'", "SELECT f(1) + g()", 9),
            (
                "CREATE OR REPLACE FUNCTION f(a bigint) RETURNS bigint LANGUAGE sql AS 'SELECT a * 10'",
                "SELECT f(1)",
                10,
            ),
            ("ALTER FUNCTION f(bigint) RENAME TO g", "SELECT g(1)", 2),
            ("DROP FUNCTION f(bigint)", "SELECT count(*) FROM pg_proc WHERE proname = 'f'", 0),
        ] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            server.connect().await?.batch_execute(made).await?;
            server.stop()?;
            let server = after_death_at(folder.path(), "functions::written", change).await?;
            let client = server.connect().await?;
            ensure!(one(&client, check).await? == want, "{change}");
            client.batch_execute("CREATE FUNCTION h() RETURNS bigint RETURN 3::bigint").await?;
            let numbers = "SELECT count(*) - count(DISTINCT oid) FROM pg_proc WHERE proname IN ('f', 'g', 'h')";
            ensure!(one(&client, numbers).await? == 0, "{change}: a number is there twice");
            server.stop()?;
            start(folder.path(), None).await.context(change)?.stop()?;
        }
        Ok(())
    })
}

/// A schema is there with what is in it, or with what is left of it, whichever step of its end the server dies at; it
/// is never gone before that.
#[test]
fn a_schema_that_dies_while_it_is_made_or_dropped_has_whole_tables() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for place in ["schemas::made", "schemas::dropping", "functions::written", "schemas::empty"] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            let schema = "CREATE SCHEMA s; CREATE TABLE s.t (k serial PRIMARY KEY, v text UNIQUE); \
                          INSERT INTO s.t (v) VALUES ('a'); CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (7); \
                          CREATE VIEW s.w AS SELECT v FROM s.t; CREATE TYPE s.mood AS ENUM ('ok'); \
                          CREATE FUNCTION s.f(a int) RETURNS int LANGUAGE sql AS 'SELECT a'";
            client.batch_execute(schema).await?;
            server.stop()?;
            let change = if place == "schemas::made" { "CREATE SCHEMA r" } else { "DROP SCHEMA s CASCADE" };
            let server = after_death_at(folder.path(), place, change).await?;
            let client = server.connect().await?;
            ensure!(one(&client, "SELECT k::bigint FROM t").await? == 7, "{place}: a table of public is as it was");
            let n_named = "SELECT count(*) FROM pg_namespace WHERE nspname";
            if place == "schemas::made" {
                ensure!(one(&client, &format!("{n_named} = 'r'")).await? == 1, "{place}");
                client.batch_execute("CREATE TABLE r.t (k int); DROP SCHEMA r CASCADE").await.context(place)?;
            }
            // No answer came: it is there, with what was not dropped, and goes now.
            ensure!(one(&client, &format!("{n_named} = 's'")).await? == 1, "{place}");
            client.batch_execute("CREATE TABLE s.more (k serial); DROP SCHEMA s CASCADE").await.context(place)?;
            ensure!(one(&client, &format!("{n_named} IN ('r', 's')")).await? == 0, "{place}");
            let left = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                        WHERE n.nspname NOT IN ('public', 'pg_catalog', 'information_schema', 'tarn')";
            ensure!(one(&client, left).await? == 0, "{place}: nothing is in a schema that is gone");
            ensure!(one(&client, "SELECT count(*) FROM pg_proc WHERE proname = 'f'").await? == 0, "{place}: nor a function");
            client.batch_execute(&schema.replace("CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (7);", "")).await?;
            ensure!(one(&client, "SELECT k::bigint FROM s.t WHERE v = 'a'").await? == 1, "{place}: all of it is new");
            server.stop()?;
        }
        for (place, has_happened) in [("schemas::made_anew", false), ("renames::defined", true), ("schemas::renamed", true)] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            let schema = "CREATE SCHEMA s; CREATE TABLE s.t (k int PRIMARY KEY, v text UNIQUE); INSERT INTO s.t VALUES (1, 'a'); \
                          CREATE VIEW w AS SELECT k FROM s.t";
            client.batch_execute(schema).await?;
            server.stop()?;
            let server = after_death_at(folder.path(), place, "ALTER SCHEMA s RENAME TO r").await?;
            let client = server.connect().await?;
            let (there, other) = if has_happened { ("r", "s") } else { ("s", "r") };
            ensure!(one(&client, &format!("SELECT k::bigint FROM {there}.t WHERE v = 'a'")).await? == 1, "{place}");
            ensure!(one(&client, "SELECT k::bigint FROM w").await? == 1, "{place}: the view reads it");
            client.batch_execute(&format!("DROP SCHEMA {other}; DROP SCHEMA {there} CASCADE")).await.context(place)?;
            server.stop()?;
        }
        Ok(())
    })
}

/// A transaction that alters a table and writes rows is there as a whole or not at all, whichever step of its COMMIT
/// the server dies at.
#[test]
fn a_commit_that_alters_tables_and_dies_at_any_step_is_whole_or_nothing() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let migration = "BEGIN; CREATE TABLE made (k BIGINT PRIMARY KEY, v TEXT); INSERT INTO made VALUES (1, 'before'); \
                         ALTER TABLE made ADD COLUMN n BIGINT; INSERT INTO made VALUES (2, 'behind', 2); \
                         UPDATE t SET v = 'moved' WHERE k <= 10; ALTER TABLE t RENAME COLUMN v TO w; ALTER TABLE t ADD COLUMN n BIGINT; \
                         UPDATE t SET n = k; ALTER TABLE t ALTER n SET NOT NULL; INSERT INTO t VALUES (101, 'new', 101); \
                         DELETE FROM t WHERE k = 100; UPDATE version SET number = '2'; COMMIT";
        for (place, has_happened) in [
            ("commit::shut", false),
            ("lake::after_commit", false),
            ("commit::noted", false),
            ("commit::defined", true),
            ("commit::written", true),
        ] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            let setup = "CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT); CREATE TABLE version (number TEXT PRIMARY KEY); \
                         INSERT INTO t SELECT value, 'old' FROM generate_series(1, 60) AS s(value); INSERT INTO version VALUES ('1')";
            client.batch_execute(setup).await?;
            client.batch_execute("CALL tarn.deliver('t')").await?;
            let more = "INSERT INTO t SELECT value, 'old' FROM generate_series(61, 100) AS s(value)";
            client.batch_execute(more).await?;
            server.stop()?;
            let mut server = after_death_at(folder.path(), place, migration).await?;
            // The second time nothing is left to be done, and nothing is done twice.
            for step in ["SELECT 1", "CALL tarn.deliver('t'); CALL tarn.evict('t')"] {
                let client = server.connect().await?;
                client.batch_execute(step).await?;
                ensure!(one(&client, "SELECT count(*) FROM t").await? == 100, "{place}, {step}");
                let version = one(&client, "SELECT number::bigint FROM version").await?;
                ensure!(version == if has_happened { 2 } else { 1 }, "{place}, {step}: version {version}");
                if has_happened {
                    let moved = one(&client, "SELECT count(*) FROM t WHERE w = 'moved' AND n = k AND k <= 10").await?;
                    let sum = one(&client, "SELECT sum(n)::bigint FROM t").await?;
                    ensure!((moved, sum) == (10, 5050 + 101 - 100), "{place}, {step}: {moved}, {sum}");
                    ensure!(one(&client, "SELECT sum(k * coalesce(n, 10))::bigint FROM made").await? == 14, "{place}");
                    ensure!(client.batch_execute("INSERT INTO t VALUES (0, 'x', NULL)").await.is_err(), "{place}");
                } else {
                    ensure!(one(&client, "SELECT count(*) FROM t WHERE v = 'old'").await? == 100, "{place}, {step}");
                    ensure!(client.batch_execute("SELECT n FROM t").await.is_err(), "{place}, {step}");
                    ensure!(one(&client, "SELECT count(*) FROM made").await? == 0, "{place}: what was made is empty");
                    ensure!(client.batch_execute("SELECT n FROM made").await.is_err(), "{place}, {step}");
                }
                server.stop()?;
                server = start(folder.path(), None).await.context(place)?;
            }
            let client = server.connect().await?;
            if !has_happened {
                client.batch_execute("DROP TABLE made").await?;
                client.batch_execute(migration).await.context(place)?;
            }
            ensure!(one(&client, "SELECT max(n) FROM t").await? == 101, "{place}");
            server.stop()?;
        }
        Ok(())
    })
}

async fn rounds(seed: u64, soak: Option<Duration>) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir()?;
    let started = Instant::now();
    let mut models: Vec<WriterModel> = (0..N_WRITERS).map(WriterModel::new).collect();
    let mut round = 0;
    let mut n_deaths = 0;
    loop {
        let ends: Vec<RoundEnd> = if round == 0 || soak.is_some() {
            let places = FAILPOINTS.iter().map(|place| RoundEnd::Failpoint(place));
            places.flat_map(|place| [place, RoundEnd::Acks(random.random_range(1..400))]).collect()
        } else {
            break;
        };
        for end in ends {
            round += 1;
            models = live_and_die(folder.path(), models, end, round, &mut random, &mut n_deaths)
                .await
                .with_context(|| format!("round {round}, {end:?}, log in {}", folder.path().display()))?;
        }
        if soak.is_some_and(|soak| started.elapsed() >= soak) {
            break;
        }
    }
    let n_tablets = n_tablets(folder.path()).await?;
    ensure!(n_tablets.iter().all(|n| *n > 2), "no tablet was split: there are {n_tablets:?}");
    let acknowledged: u64 = models.iter().map(|model| model.n_acknowledged).sum();
    eprintln!(
        "{round} rounds, {n_deaths} of them ended at their failpoint, {acknowledged} statements acknowledged, {n_tablets:?} tablets"
    );
    ensure!(n_deaths > 0, "no failpoint was reached: is the server built with failpoints?");
    Ok(())
}

/// How many each table has.
async fn n_tablets(folder: &Path) -> Result<[i64; 2]> {
    let server = start(folder, None).await?;
    let client = server.connect().await?;
    let count =
        async |table| one(&client, &format!("SELECT count(*) FROM tarn.tablets WHERE table_name = '{table}'")).await;
    let n_tablets = [count("t").await?, count("events").await?];
    server.stop()?;
    Ok(n_tablets)
}

/// What ends a round.
#[derive(Debug, Clone, Copy)]
enum RoundEnd {
    Failpoint(&'static str),
    Acks(i64),
}

async fn live_and_die(
    folder: &Path,
    models: Vec<WriterModel>,
    end: RoundEnd,
    round: u64,
    random: &mut StdRng,
    n_deaths: &mut u64,
) -> Result<Vec<WriterModel>> {
    let (place, patience) = match end {
        RoundEnd::Failpoint(place) => (Some(place), PATIENCE_ACKS),
        RoundEnd::Acks(acks) => (None, acks),
    };
    // A failpoint can strike while starting (repair installs, too): then this is simply a shorter round.
    match start(folder, place).await {
        Err(error) if place.is_none() => Err(error),
        Err(_) => {
            *n_deaths += 1;
            return read_back(folder, models).await;
        }
        Ok(server) => {
            if round == 1 {
                let client = server.connect().await?;
                create_tables(&client).await?;
            }
            let (models, reached) = write_until_death(server, models, patience, random).await?;
            *n_deaths += u64::from(reached && place.is_some());
            read_back(folder, models).await
        }
    }
}

async fn create_tables(client: &Client) -> Result<()> {
    let options = "partitioning = 'hash', tablets = 2, delivery = '30 ms'";
    client
        .batch_execute(&format!(
            "CREATE TABLE t (id bigint NOT NULL, n bigint NOT NULL, note text, PRIMARY KEY (id)) WITH ({options})"
        ))
        .await?;
    client
        .batch_execute(&format!(
            "CREATE TABLE events (id bigint NOT NULL, n bigint, PRIMARY KEY (id)) WITH ({options}, append_only = true)"
        ))
        .await?;
    Ok(())
}

/// Every writer works until its connection breaks; the one that takes the last of `patience` kills the server.
/// Says whether the server died by itself.
async fn write_until_death(
    server: ChildServer,
    models: Vec<WriterModel>,
    patience: i64,
    random: &mut StdRng,
) -> Result<(Vec<WriterModel>, bool)> {
    let server = Arc::new(server);
    let left = Arc::new(AtomicI64::new(patience));
    let mut writers = Vec::new();
    for mut model in models {
        let (server, left, mut random) = (server.clone(), left.clone(), StdRng::seed_from_u64(random.random()));
        writers.push(tokio::spawn(async move {
            let Ok(client) = server.connect().await else { return Ok(model) };
            loop {
                match model.step(&client, &mut random).await {
                    Ok(()) => {}
                    Err(error) if server_is_gone(&error, &client) => return Ok(model),
                    Err(error) => return Err(error),
                }
                if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    server.kill();
                }
            }
        }));
    }
    let mut models = Vec::new();
    for writer in writers {
        models.push(writer.await??);
    }
    let reached = left.load(Ordering::SeqCst) > 0;
    server.wait();
    Ok((models, reached))
}

fn server_is_gone(error: &anyhow::Error, client: &Client) -> bool {
    let server_spoke = error
        .chain()
        .any(|cause| cause.downcast_ref::<tokio_postgres::Error>().is_some_and(|e| e.as_db_error().is_some()));
    let is_protocol = error.chain().any(|cause| cause.is::<tokio_postgres::Error>());
    is_protocol && !server_spoke || client.is_closed()
}

/// Waits until it is ready. With `abort_at` it dies at that failpoint, perhaps before it is ready: an error.
async fn start(folder: &Path, abort_at: Option<&str>) -> Result<ChildServer> {
    let abort_at: Vec<_> = abort_at.map(|place| ("TARN_ABORT_AT", place)).into_iter().collect();
    ChildServer::start(folder, &["--background-interval-ms", "10", "--log-segment-bytes", "1MiB"], &abort_at).await
}

/// Starts the server without failpoints and compares everything with the models, on each path, before and after a
/// delivery. A server of what one leaves that dies at a step of a statement.
async fn after_death_at(folder: &Path, place: &str, statement: &str) -> Result<ChildServer> {
    let server = start(folder, Some(place)).await?;
    let client = server.connect().await?;
    ensure!(client.batch_execute(statement).await.is_err(), "{place} was not reached");
    server.wait();
    start(folder, None).await.with_context(|| place.to_owned())
}

async fn read_back(folder: &Path, mut models: Vec<WriterModel>) -> Result<Vec<WriterModel>> {
    let server = start(folder, None).await?;
    let client = server.connect().await?;
    for (idx, path) in ["auto", "lake", "rows"].into_iter().enumerate() {
        client.batch_execute(&format!("SET tarn.access_path = '{path}'")).await?;
        let rows = match read_table(&client).await {
            Err(_) if path == "rows" => continue, // not offered while rows are evicted
            rows => rows.with_context(|| format!("read t on {path}"))?,
        };
        for model in &mut models {
            // The first reading settles what was in doubt; from then on it must stay.
            model.check(&rows, idx == 0).with_context(|| format!("t on {path}"))?;
        }
        let total: usize = models.iter().map(|model| model.rows.len()).sum();
        ensure!(rows.len() == total, "t on {path} has {} rows, want {total}", rows.len());
        let count = one(&client, "SELECT count(*) FROM t").await?;
        ensure!(count == total as i64, "count(*) on {path} is {count}, want {total}");
    }
    client.batch_execute("SET tarn.access_path = 'auto'").await?;
    check_keys(&client, &models).await?;
    check_events(&client, &mut models).await.context("events")?;
    for table in ["t", "events"] {
        client.batch_execute(&format!("CALL tarn.deliver('{table}')")).await?;
    }
    let rows = read_table(&client).await?;
    for model in &mut models {
        model.check(&rows, false).context("t after a delivery")?;
    }
    ensure!(one(&client, "SELECT count(*) FROM t").await? == rows.len() as i64, "count(*) differs after a delivery");
    check_events(&client, &mut models).await.context("events after a delivery")?;
    server.kill();
    server.wait();
    Ok(models)
}

async fn read_table(client: &Client) -> Result<BTreeMap<i64, NoteRow>> {
    let mut rows = BTreeMap::new();
    for row in client.query("SELECT id, n, note FROM t", &[]).await? {
        let id: i64 = row.get(0);
        ensure!(rows.insert(id, NoteRow { n: row.get(1), note: row.get(2) }).is_none(), "key {id} is there twice");
    }
    Ok(rows)
}

/// A few keys of each writer by the prepared key path.
async fn check_keys(client: &Client, models: &[WriterModel]) -> Result<()> {
    let statement = client.prepare("SELECT n, note FROM t WHERE id = $1").await?;
    for model in models {
        for id in (0..N_KEYS).step_by(17).map(|key| model.writer * N_KEYS + key) {
            let found = client.query(&statement, &[&id]).await?;
            let found: Vec<NoteRow> = found.iter().map(|row| NoteRow { n: row.get(0), note: row.get(1) }).collect();
            let want: Vec<NoteRow> = model.rows.get(&id).cloned().into_iter().collect();
            ensure!(found == want, "key {id} by key is {found:?}, want {want:?}");
        }
    }
    Ok(())
}

/// Every acknowledged event is there once; one in doubt once or not at all; no other.
async fn check_events(client: &Client, models: &mut [WriterModel]) -> Result<()> {
    let mut found = BTreeSet::new();
    for row in client.query("SELECT id FROM events", &[]).await? {
        let id: i64 = row.get(0);
        ensure!(found.insert(id), "event {id} is there twice");
    }
    ensure!(
        one(client, "SELECT count(*) FROM events").await? == found.len() as i64,
        "count(*) of events differs from its rows"
    );
    for model in models.iter_mut() {
        for id in std::mem::take(&mut model.doubtful_events) {
            if found.contains(&id) {
                model.events.insert(id);
            }
        }
    }
    let want: BTreeSet<i64> = models.iter().flat_map(|model| model.events.iter().copied()).collect();
    let lost: Vec<&i64> = want.difference(&found).take(5).collect();
    let strange: Vec<&i64> = found.difference(&want).take(5).collect();
    ensure!(lost.is_empty() && strange.is_empty(), "lost {lost:?}, never acknowledged {strange:?}");
    Ok(())
}

async fn one(client: &Client, sql: &str) -> Result<i64> {
    Ok(client.query_one(sql, &[]).await.with_context(|| sql.to_owned())?.get(0))
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NoteRow {
    n: i64,
    note: Option<String>,
}

/// What one writer knows of its own keys. Invariant: at most one statement is in doubt, and none outside a crash.
struct WriterModel {
    writer: i64,
    rows: BTreeMap<i64, NoteRow>,
    /// Keys of the statement without an answer, each with its row if that statement took effect.
    doubt: BTreeMap<i64, Option<NoteRow>>,
    events: BTreeSet<i64>,
    doubtful_events: BTreeSet<i64>,
    next_event: i64,
    n_acknowledged: u64,
}

impl WriterModel {
    fn new(writer: i64) -> WriterModel {
        WriterModel {
            writer,
            rows: BTreeMap::new(),
            doubt: BTreeMap::new(),
            events: BTreeSet::new(),
            doubtful_events: BTreeSet::new(),
            next_event: 0,
            n_acknowledged: 0,
        }
    }

    /// One random statement. Its effect is in doubt until it is answered; the answer's count must be exact.
    async fn step(&mut self, client: &Client, random: &mut StdRng) -> Result<()> {
        if random.random_ratio(1, SPLIT_EVERY) {
            return split(client, random).await;
        }
        let id = self.writer * N_KEYS + random.random_range(0..N_KEYS);
        let n = random.random_range(0..1_000_000);
        let existing = self.rows.get(&id).cloned();
        let (sql, effect, want) = match random.random_range(0..12) {
            0..=2 => {
                let row = NoteRow { n, note: Some(format!("note {n}")) };
                (format!("UPSERT INTO t VALUES ({id}, {n}, 'note {n}')"), vec![(id, Some(row))], 1)
            }
            3 => {
                let ids: BTreeSet<i64> =
                    (0..5).map(|_| self.writer * N_KEYS + random.random_range(0..N_KEYS)).collect();
                let values: Vec<String> = ids.iter().map(|id| format!("({id}, {n}, NULL)")).collect();
                let effect: Vec<_> = ids.iter().map(|id| (*id, Some(NoteRow { n, note: None }))).collect();
                (format!("UPSERT INTO t VALUES {}", values.join(", ")), effect, ids.len() as u64)
            }
            4 | 5 => {
                let effect =
                    existing.iter().map(|row| (id, Some(NoteRow { n: row.n + 1, note: row.note.clone() }))).collect();
                (format!("UPDATE t SET n = n + 1 WHERE id = {id}"), effect, u64::from(existing.is_some()))
            }
            6 => {
                let effect = existing
                    .iter()
                    .map(|row| (id, Some(NoteRow { n: row.n, note: Some(format!("set {n}")) })))
                    .collect();
                (format!("UPDATE t SET note = 'set {n}' WHERE id = {id}"), effect, u64::from(existing.is_some()))
            }
            7 => (format!("DELETE FROM t WHERE id = {id}"), vec![(id, None)], u64::from(existing.is_some())),
            8 => {
                let effect = if existing.is_some() { vec![] } else { vec![(id, Some(NoteRow { n, note: None }))] };
                let want = effect.len() as u64;
                (format!("INSERT INTO t VALUES ({id}, {n}, NULL) ON CONFLICT DO NOTHING"), effect, want)
            }
            9 if existing.is_some() => {
                return refused(client, &format!("INSERT INTO t VALUES ({id}, {n}, NULL)")).await;
            }
            9 => (format!("INSERT INTO t VALUES ({id}, {n}, NULL)"), vec![(id, Some(NoteRow { n, note: None }))], 1),
            10 => {
                let row = existing.map_or(NoteRow { n, note: None }, |row| NoteRow { n: row.n + n, note: row.note });
                let sql = format!(
                    "INSERT INTO t AS old VALUES ({id}, {n}, NULL) ON CONFLICT (id) DO UPDATE SET n = old.n + excluded.n"
                );
                (sql, vec![(id, Some(row))], 1)
            }
            _ => return self.event(client).await,
        };
        self.doubt = effect.into_iter().collect();
        let affected = affected(client, &sql).await?;
        ensure!(affected == want, "{sql}: {affected} rows, want {want}");
        for (id, row) in std::mem::take(&mut self.doubt) {
            self.set(id, row);
        }
        self.n_acknowledged += 1;
        Ok(())
    }

    async fn event(&mut self, client: &Client) -> Result<()> {
        let ids: Vec<i64> = (0..3).map(|idx| self.next_event + idx * N_WRITERS).map(|id| id + self.writer).collect();
        self.next_event += 3 * N_WRITERS;
        let values: Vec<String> = ids.iter().map(|id| format!("({id}, {id})")).collect();
        self.doubtful_events = ids.iter().copied().collect();
        let affected = affected(client, &format!("INSERT INTO events VALUES {}", values.join(", "))).await?;
        ensure!(affected == 3, "{affected} events, want 3");
        self.events.append(&mut self.doubtful_events);
        self.n_acknowledged += 1;
        Ok(())
    }

    fn set(&mut self, id: i64, row: Option<NoteRow>) {
        match row {
            Some(row) => self.rows.insert(id, row),
            None => self.rows.remove(&id),
        };
    }

    /// Compares this writer's keys. With `settle`, a doubtful key may be as before or as the unanswered statement left
    /// it.
    fn check(&mut self, found: &BTreeMap<i64, NoteRow>, settle: bool) -> Result<()> {
        let doubt = if settle { std::mem::take(&mut self.doubt) } else { BTreeMap::new() };
        for id in self.writer * N_KEYS..(self.writer + 1) * N_KEYS {
            let (is, was) = (found.get(&id), self.rows.get(&id));
            if is == was {
                continue;
            }
            match doubt.get(&id) {
                Some(maybe) if maybe.as_ref() == is => self.set(id, is.cloned()),
                _ => bail!("key {id} is {is:?}, acknowledged was {was:?}, in doubt {:?}", doubt.get(&id)),
            }
        }
        Ok(())
    }
}

/// Splits a tablet somewhere while others write it, which changes no row. Refused are a place where a tablet begins
/// already, and a tablet that is not delivered since it was split off itself.
async fn split(client: &Client, random: &mut StdRng) -> Result<()> {
    let table = ["t", "events"][random.random_range(0..2)];
    // Of 64 bits, the middle of them being 0.
    let token = (random.random_range(1..N_SPLITS) - N_SPLITS / 2) * (i64::MAX / N_SPLITS * 2);
    let sql = format!("CALL tarn.split('{table}', '{token}')");
    let Err(error) = client.batch_execute(&sql).await else { return Ok(()) };
    match error.code() {
        Some(&SqlState::INVALID_PARAMETER_VALUE | &SqlState::T_R_SERIALIZATION_FAILURE) => Ok(()),
        _ => Err(error).context(sql),
    }
}

/// A key that is there is not inserted twice.
async fn refused(client: &Client, sql: &str) -> Result<()> {
    let error = client.simple_query(sql).await.err().with_context(|| format!("{sql}: was taken"))?;
    match error.code() {
        Some(&SqlState::UNIQUE_VIOLATION) => Ok(()),
        _ => Err(error).with_context(|| sql.to_owned()),
    }
}

async fn affected(client: &Client, sql: &str) -> Result<u64> {
    let messages = client.simple_query(sql).await.with_context(|| sql.to_owned())?;
    let rows =
        messages.iter().map(|message| if let SimpleQueryMessage::CommandComplete(rows) = message { *rows } else { 0 });
    Ok(rows.sum())
}

/// The numbers of sequences are taken in blocks before they are given: what is killed leaves gaps, and nothing twice.
#[test]
fn no_number_of_a_sequence_is_given_twice() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let mut given: BTreeSet<i64> = BTreeSet::new();
        for round in 0..4 {
            let server = start(folder.path(), None).await?;
            if round == 0 {
                server.connect().await?.batch_execute("CREATE TABLE numbered (id serial PRIMARY KEY, n int)").await?;
            }
            // Two clients, each of which is in the middle of something when the server dies.
            let (one, other) = (server.connect().await?, server.connect().await?);
            let kill_after = 40 + 23 * round;
            let numbers = |client: Client, n: usize| async move {
                let mut given = Vec::new();
                while given.len() < n {
                    let row = match given.len() % 2 {
                        0 => client.query_one("INSERT INTO numbered (n) VALUES (1) RETURNING id::bigint", &[]).await,
                        _ => client.query_one("SELECT nextval('numbered_id_seq')", &[]).await,
                    };
                    // The server is gone.
                    let Ok(row) = row else { break };
                    given.push(row.get::<_, i64>(0));
                }
                given
            };
            let other = tokio::spawn(numbers(other, usize::MAX));
            let mut taken = numbers(one, kill_after).await;
            ensure!(taken.len() == kill_after, "the server died by itself");
            server.kill();
            taken.extend(other.await?);
            for number in taken {
                ensure!(given.insert(number), "{number} was given twice, in round {round}");
            }
        }
        // Most of what was taken was given.
        let (n, last) = (given.len() as i64, given.last().copied().unwrap_or_default());
        ensure!(last < n + 4 * 3 * 8_192, "{last} is the last of {n} numbers");
        Ok(())
    })
}
