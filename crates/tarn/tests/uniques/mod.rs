//! Are the entries of a unique constraint, and of an index, those of the rows, whenever the server dies?
//!
//! Writers of different rows take values from each other. After each death every value is looked for: it is refused if,
//! and only if, a row has it, and it leads to that row. Of the index, whose values may repeat, every row has one entry,
//! and there is no other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::child::ChildServer;
use crate::{after_death_at, one, server_is_gone, start};

const N_WRITERS: i64 = 3;
/// Rows of one writer, and values of all: few, so that they meet.
const N_ROWS: i64 = 8;
const N_VALUES: i64 = 20;

#[test]
fn entries_are_those_of_their_rows_after_every_death() -> Result<()> {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    eprintln!("TARN_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(rounds(seed)).with_context(|| format!("TARN_SEED={seed}"))
}

/// What a CREATE or DROP that dies leaves of indexes is nobody's: it is gone, and its name is free.
#[test]
fn indexes_are_there_with_their_table_or_not_at_all() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let create = "CREATE TABLE made (id bigint PRIMARY KEY, v bigint UNIQUE, w bigint UNIQUE)";
        for (place, statement, is_there) in [
            ("drops::made", create, false),
            ("drops::made:2", create, false),
            ("drops::made:3", create, true),
            ("drops::asked", "DROP TABLE gone", true),
            ("drops::dropped", "DROP TABLE gone", false),
            ("drops::dropped:2", "DROP TABLE gone", false),
            ("drops::emptied:3", "DROP TABLE gone", false),
        ] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            for table in ["gone", "kept"] {
                let columns = "id bigint PRIMARY KEY, v bigint UNIQUE, w bigint UNIQUE";
                client.batch_execute(&format!("CREATE TABLE {table} ({columns})")).await?;
                client.batch_execute(&format!("INSERT INTO {table} VALUES (1, 10, 100), (2, 20, 200)")).await?;
            }
            server.stop()?;
            let server = after_death_at(folder.path(), place, statement).await?;
            let client = server.connect().await?;
            let table = if statement == create { "made" } else { "gone" };
            let found = one(&client, &format!("SELECT count(*) FROM {table}")).await;
            ensure!(found.is_ok() == is_there, "{place}: {found:?}");
            let mut tables = vec!["kept"];
            if is_there {
                client.batch_execute(&format!("UPSERT INTO {table} VALUES (1, 10, 100), (2, 20, 200)")).await?;
                tables.push(table);
            }
            for table in tables {
                for (insert, is_taken) in [("(3, 20, 300)", true), ("(3, 30, 200)", true), ("(3, 30, 300)", false)] {
                    let inserted = client.batch_execute(&format!("INSERT INTO {table} VALUES {insert}")).await;
                    ensure!(inserted.is_err() == is_taken, "{place}: {insert} into {table}: {inserted:?}");
                }
            }
            client.batch_execute("DROP TABLE IF EXISTS gone; DROP TABLE IF EXISTS made").await.context(place)?;
            for name in ["gone_v_key", "gone_w_key", "made_v_key", "made_w_key"] {
                client.batch_execute(&format!("CREATE TABLE {name} (id bigint)")).await.context(place)?;
            }
            server.stop()?;
            start(folder.path(), None).await.context(place)?.stop()?;
        }
        Ok(())
    })
}

/// A table that gets a constraint, or loses one, and dies meanwhile has it whole or not at all.
#[test]
fn a_constraint_that_comes_or_goes_is_there_or_not_whoever_dies() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let add = "ALTER TABLE t ADD CONSTRAINT one UNIQUE (v)";
        let end = "ALTER TABLE t DROP CONSTRAINT had";
        let index = "CREATE INDEX other ON t (v, n)";
        let no_index = "DROP INDEX had_too";
        let both = "BEGIN; UPDATE t SET v = 300 WHERE id = 1; ALTER TABLE t ADD CONSTRAINT one UNIQUE (v); \
                    ALTER TABLE t DROP CONSTRAINT had; INSERT INTO t VALUES (4, 40, 2); COMMIT";
        let anew = "ALTER TABLE t ALTER n TYPE bigint USING n + 100";
        for (place, statement, has_happened) in [
            ("drops::made", add, false),
            ("alter::shut", add, false),
            ("alter::defined", add, true),
            ("drops::made", index, false),
            ("alter::shut", index, false),
            ("alter::defined", index, true),
            ("alter::shut", no_index, false),
            ("alter::defined", no_index, true),
            ("drops::dropped", no_index, true),
            ("alter::shut", end, false),
            ("alter::defined", end, true),
            ("drops::dropped", end, true),
            ("drops::made", both, false),
            ("commit::shut", both, false),
            ("commit::noted", both, false),
            ("commit::defined", both, true),
            ("commit::written", both, true),
            ("drops::dropped", both, true),
            ("rekey::filled", anew, false),
            ("rekey::defined", anew, true),
        ] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            client
                .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, v bigint, n int CONSTRAINT had UNIQUE)")
                .await?;
            client.batch_execute("INSERT INTO t VALUES (1, 10, 1), (2, 20, 2), (3, NULL, NULL)").await?;
            client.batch_execute("CREATE INDEX had_too ON t (n)").await?;
            server.stop()?;
            let server = after_death_at(folder.path(), place, statement).await?;
            let client = server.connect().await?;
            let told = || format!("{place}, {statement}");
            let has_one = has_happened && [add, both].contains(&statement);
            let has_had = !(has_happened && [end, both].contains(&statement));
            let n = if has_happened && statement == anew { 102 } else { 2 };
            for (values, is_taken) in [("(9, 20, 900)".to_owned(), has_one), (format!("(9, 900, {n})"), has_had)] {
                let inserted = client.batch_execute(&format!("INSERT INTO t VALUES {values}")).await;
                ensure!(inserted.is_err() == is_taken, "{}: {values}: {inserted:?}", told());
                client.batch_execute("DELETE FROM t WHERE id = 9").await.with_context(told)?;
            }
            if statement == both {
                let sum = one(&client, "SELECT sum(v)::bigint FROM t").await.with_context(told)?;
                ensure!(sum == if has_happened { 360 } else { 30 }, "{}: {sum}", told());
                let taken = client.batch_execute("INSERT INTO t VALUES (9, 300, 9)").await;
                ensure!(taken.is_err() == has_happened, "{}: {taken:?}", told());
            }
            client.batch_execute("SET tarn.access_path = 'index'").await?;
            let has_index = has_happened && statement == index;
            let has_too = !(has_happened && statement == no_index);
            for (name, condition, is_there) in [("other", "v IS NULL", has_index), ("had_too", "n IS NULL", has_too)] {
                let found =
                    client.query(&format!("SELECT id FROM t WHERE {condition}"), &[]).await.with_context(told)?;
                ensure!(found.len() == 1 && found[0].get::<_, i64>(0) == 3, "{}: {condition}: {found:?}", told());
                let plan = explained(&client, &format!("SELECT id FROM t WHERE {condition}")).await?;
                let has = plan.contains(&format!("{name} has entries of 1 row"));
                ensure!(has == is_there, "{}: {condition}: {plan}", told());
            }
            client.batch_execute("RESET tarn.access_path; DROP INDEX IF EXISTS other").await.with_context(told)?;
            client.batch_execute("DROP INDEX IF EXISTS had_too").await.with_context(told)?;
            for name in ["other", "had_too"] {
                client.batch_execute(&format!("CREATE TABLE {name} (id bigint)")).await.with_context(told)?;
            }
            for name in ["one", "had"] {
                // In messages of their own: its name is free when the first is committed.
                client
                    .batch_execute(&format!("ALTER TABLE t DROP CONSTRAINT IF EXISTS {name}"))
                    .await
                    .with_context(told)?;
                client.batch_execute(&format!("CREATE TABLE {name} (id bigint)")).await.with_context(told)?;
            }
            server.stop()?;
            start(folder.path(), None).await.with_context(told)?.stop()?;
        }
        Ok(())
    })
}

async fn rounds(seed: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir()?;
    let server = start(folder.path(), None).await?;
    let options = "partitioning = 'hash', tablets = 2, delivery = '30 ms', hot_retention = '1 ms'";
    let create = format!("CREATE TABLE u (id bigint PRIMARY KEY, v bigint UNIQUE, n bigint NOT NULL) WITH ({options})");
    let client = server.connect().await?;
    client.batch_execute(&create).await?;
    client.batch_execute("CREATE INDEX u_v ON u (v DESC); CREATE INDEX u_n ON u (n, v)").await?;
    server.stop()?;
    let mut writers: Vec<UniqueWriter> = (0..N_WRITERS).map(UniqueWriter::new).collect();
    let places = ["lake::after_write", "lake::after_commit", "lake::before_install", "lake::after_install:2"];
    let deaths = places.iter().flat_map(|place| [Some(*place), None, None]);
    for (round, place) in deaths.enumerate() {
        let acks = if place.is_some() { 2_000 } else { random.random_range(1..500) };
        let told = || format!("round {round}, {place:?}, log in {}", folder.path().display());
        // It may die while it starts.
        if let Ok(server) = start(folder.path(), place).await {
            writers = write_until_death(server, writers, acks, &mut random).await.with_context(told)?;
        }
        read_back(folder.path(), &mut writers).await.with_context(told)?;
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.n_acknowledged).sum();
    let refused: u64 = writers.iter().map(|writer| writer.n_refused).sum();
    eprintln!("{acknowledged} statements acknowledged, {refused} of them refused");
    ensure!(acknowledged > 0 && refused > 0, "nothing met");
    Ok(())
}

async fn write_until_death(
    server: ChildServer,
    writers: Vec<UniqueWriter>,
    acks: i64,
    random: &mut StdRng,
) -> Result<Vec<UniqueWriter>> {
    let (server, left) = (Arc::new(server), Arc::new(AtomicI64::new(acks)));
    let mut running = vec![];
    for mut writer in writers {
        let (server, left, mut random) = (server.clone(), left.clone(), StdRng::seed_from_u64(random.random()));
        running.push(tokio::spawn(async move {
            let Ok(client) = server.connect().await else { return Ok(writer) };
            loop {
                match writer.step(&client, &mut random).await {
                    Ok(()) => {}
                    Err(error) if server_is_gone(&error, &client) => return Ok(writer),
                    Err(error) => return Err(error),
                }
                if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    server.kill();
                }
            }
        }));
    }
    let mut writers = vec![];
    for writer in running {
        writers.push(writer.await??);
    }
    server.wait();
    Ok(writers)
}

/// What a row has: its value and its number.
type UniqueRow = (Option<i64>, i64);

/// What one writer knows of its own rows.
struct UniqueWriter {
    first: i64,
    rows: BTreeMap<i64, UniqueRow>,
    /// Of the statement that had no answer: the rows, if it took effect.
    doubt: Option<BTreeMap<i64, UniqueRow>>,
    n: i64,
    n_acknowledged: u64,
    n_refused: u64,
}

impl UniqueWriter {
    fn new(writer: i64) -> UniqueWriter {
        let rows = BTreeMap::new();
        UniqueWriter { first: writer * N_ROWS, rows, doubt: None, n: 0, n_acknowledged: 0, n_refused: 0 }
    }

    async fn step(&mut self, client: &Client, random: &mut StdRng) -> Result<()> {
        self.n += 1;
        let (sql, after) = self.next(random);
        self.doubt = Some(after);
        match client.batch_execute(&sql).await {
            Ok(()) => self.rows = self.doubt.take().unwrap_or_default(),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                self.doubt = None;
                self.n_refused += 1;
                client.batch_execute("ROLLBACK").await?;
            }
            Err(error) => return Err(error).context(sql),
        }
        self.n_acknowledged += 1;
        Ok(())
    }

    /// A statement, and the rows if it takes effect.
    fn next(&self, random: &mut StdRng) -> (String, BTreeMap<i64, UniqueRow>) {
        let (id, n) = (self.first + random.random_range(0..N_ROWS), self.n);
        let other = self.first + random.random_range(0..N_ROWS);
        let value = Some(random.random_range(0..N_VALUES)).filter(|_| random.random_range(0..8) > 0);
        let shown = |value: Option<i64>| value.map_or_else(|| "NULL::bigint".to_owned(), |value| value.to_string());
        let mut after = self.rows.clone();
        let sql = match random.random_range(0..8) {
            0 => {
                after.insert(id, (value, n));
                format!("UPSERT INTO u VALUES ({id}, {}, {n})", shown(value))
            }
            1 if !self.rows.contains_key(&id) => {
                after.insert(id, (value, n));
                format!("INSERT INTO u VALUES ({id}, {}, {n})", shown(value))
            }
            2 => {
                after.entry(id).and_modify(|row| *row = (value, n));
                format!("UPDATE u SET v = {}, n = {n} WHERE id = {id}", shown(value))
            }
            3 => {
                after.entry(id).and_modify(|row| *row = (value, n));
                format!("UPDATE u SET v = {}, n = {n} WHERE id + 0 = {id}", shown(value))
            }
            4 => {
                after.entry(id).and_modify(|row| row.1 = n);
                format!("UPDATE u SET n = {n} WHERE id = {id}")
            }
            5 => {
                after.remove(&id);
                format!("DELETE FROM u WHERE id = {id}")
            }
            // Two rows exchange what they have.
            6 if id != other && self.rows.contains_key(&id) && self.rows.contains_key(&other) => {
                let (one, two) = (self.rows[&id].0, self.rows[&other].0);
                after.insert(id, (two, n));
                after.insert(other, (one, n));
                let (one, two) = (shown(one), shown(two));
                let exchanged = format!("CASE id WHEN {id} THEN {two} ELSE {one} END");
                format!("UPDATE u SET n = {n}, v = {exchanged} WHERE id IN ({id}, {other})")
            }
            _ => {
                after.remove(&other);
                after.insert(id, (value, n));
                let insert = format!("INSERT INTO u VALUES ({id}, {}, {n})", shown(value));
                format!("BEGIN; DELETE FROM u WHERE id IN ({id}, {other}); {insert}; COMMIT")
            }
        };
        (sql, after)
    }

    /// Settles what was in doubt by what is there.
    fn check(&mut self, there: &BTreeMap<i64, UniqueRow>) -> Result<()> {
        let ids = self.first..self.first + N_ROWS;
        let own: BTreeMap<i64, UniqueRow> = there.range(ids).map(|(id, row)| (*id, *row)).collect();
        if self.doubt.take().is_some_and(|doubt| doubt == own) {
            self.rows = own;
            return Ok(());
        }
        ensure!(self.rows == own, "{own:?}, acknowledged was {:?}", self.rows);
        Ok(())
    }
}

/// Whether the indexes have an entry of every row, and no other; and lead to the rows.
async fn check_indexes(client: &Client, there: &BTreeMap<i64, UniqueRow>) -> Result<()> {
    client.batch_execute("SET tarn.access_path = 'index'").await?;
    let ids = |is_asked: &dyn Fn(&UniqueRow) -> bool| -> Vec<i64> {
        there.iter().filter(|(_, row)| is_asked(row)).map(|(id, _)| *id).collect()
    };
    let mut asked = vec![
        ("u_v", "v IS NULL".to_owned(), ids(&|row| row.0.is_none())),
        ("u_v", "v >= 0".to_owned(), ids(&|row| row.0.is_some())),
        ("u_n", "n >= 0".to_owned(), ids(&|_| true)),
    ];
    let numbers: BTreeSet<i64> = there.values().map(|row| row.1).collect();
    asked.extend(numbers.into_iter().map(|n| ("u_n", format!("n = {n}"), ids(&|row| row.1 == n))));
    for (index, condition, want) in asked {
        let query = format!("SELECT id FROM u WHERE {condition} ORDER BY id");
        let found: Vec<i64> = client.query(&query, &[]).await?.iter().map(|row| row.get(0)).collect();
        ensure!(found == want, "{condition}: {found:?}, there are {want:?}");
        let rows = if want.len() == 1 { "1 row".to_owned() } else { format!("{} rows", want.len()) };
        let (plan, told) = (explained(client, &query).await?, format!("{index} has entries of {rows}"));
        ensure!(plan.contains(&told), "{condition}: {told} is not in {plan}");
    }
    client.batch_execute("RESET tarn.access_path").await?;
    Ok(())
}

async fn explained(client: &Client, query: &str) -> Result<String> {
    let lines = client.query(&format!("EXPLAIN {query}"), &[]).await?;
    Ok(lines.iter().map(|line| line.get::<_, String>(line.len() - 1)).collect::<Vec<_>>().join("\n"))
}

async fn read_back(folder: &Path, writers: &mut [UniqueWriter]) -> Result<()> {
    let server = start(folder, None).await?;
    let client = server.connect().await?;
    let mut there = BTreeMap::new();
    for row in client.query("SELECT id, v, n FROM u", &[]).await? {
        let id: i64 = row.get(0);
        ensure!(there.insert(id, (row.get(1), row.get(2))).is_none(), "row {id} is there twice");
    }
    for writer in writers {
        writer.check(&there)?;
    }
    let mut of_values: BTreeMap<i64, i64> = BTreeMap::new();
    for (id, (value, _)) in &there {
        if let Some(value) = value
            && let Some(other) = of_values.insert(*value, *id)
        {
            bail!("rows {other} and {id} have value {value}");
        }
    }
    check_indexes(&client, &there).await?;
    for value in 0..N_VALUES {
        let want = of_values.get(&value).copied();
        let inserted = client.batch_execute(&format!("BEGIN; INSERT INTO u VALUES (-1, {value}, 0); ROLLBACK")).await;
        client.batch_execute("ROLLBACK").await?;
        ensure!(inserted.is_err() == want.is_some(), "value {value} of row {want:?}: {inserted:?}");
        client.batch_execute("BEGIN").await?;
        let upsert = "INSERT INTO u VALUES (-1, $1, 0) ON CONFLICT (v) DO UPDATE SET n = u.n RETURNING id";
        let found: i64 = client.query_one(upsert, &[&value]).await?.get(0);
        client.batch_execute("ROLLBACK").await?;
        ensure!(found == want.unwrap_or(-1), "value {value} of row {want:?} leads to {found}");
    }
    server.kill();
    server.wait();
    Ok(())
}
