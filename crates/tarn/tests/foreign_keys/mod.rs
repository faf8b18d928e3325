//! Is no row without its parent, whenever the server dies?
//!
//! Writers delete parents, give them other keys, and refer to them, all to the same few. After each death no row refers
//! to one that is not there, what was acknowledged is there, and parents and children find each other: a parent is kept
//! if, and only if, a row refers to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::child::ChildServer;
use crate::{after_death_at, one, server_is_gone, start};

const N_WRITERS: i64 = 3;
/// Rows of one writer, and parents of all: few, so that they meet.
const N_ROWS: i64 = 8;
const N_PARENTS: i64 = 10;

#[test]
fn no_row_is_without_its_parent_after_any_death() -> Result<()> {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    eprintln!("TARN_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(rounds(seed)).with_context(|| format!("TARN_SEED={seed}"))
}

/// A table that gets a foreign key, or loses one, and dies meanwhile has it whole or not at all, with the index by
/// which its rows are found.
#[test]
fn a_foreign_key_that_comes_or_goes_is_there_or_not_whoever_dies() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let create = "CREATE TABLE made (id bigint PRIMARY KEY, p bigint REFERENCES p, q text REFERENCES p (code))";
        let add = "ALTER TABLE c ADD CONSTRAINT one FOREIGN KEY (p) REFERENCES p ON DELETE CASCADE";
        let both = "BEGIN; UPDATE c SET p = 3 WHERE id = 1; INSERT INTO p VALUES (4, 'd'); \
                    ALTER TABLE c ADD CONSTRAINT one FOREIGN KEY (p) REFERENCES p ON DELETE CASCADE; \
                    INSERT INTO c VALUES (3, 4, 4); COMMIT";
        let end = "ALTER TABLE c DROP CONSTRAINT had";
        let drop = "DROP TABLE p CASCADE";
        for (place, statement, has_happened) in [
            ("drops::made", create, false),
            ("drops::made:2", create, false),
            ("drops::made:3", create, true),
            ("drops::made", add, false),
            ("commit::shut", add, false),
            ("commit::noted", add, false),
            ("commit::defined", add, true),
            ("commit::written", add, true),
            ("commit::shut", both, false),
            ("commit::noted", both, false),
            ("commit::defined", both, true),
            ("commit::written", both, true),
            ("alter::shut", end, false),
            ("alter::defined", end, true),
            ("drops::dropped", end, true),
            ("alter::shut", drop, false),
            // The other table is without its foreign key, and the parent is there.
            ("alter::defined", drop, true),
            ("parents::ended", drop, true),
            // First its index goes, then the parent.
            ("drops::dropped", drop, true),
            ("drops::asked:2", drop, true),
            ("drops::dropped:2", drop, true),
        ] {
            let folder = tempfile::tempdir()?;
            let server = start(folder.path(), None).await?;
            let client = server.connect().await?;
            let setup = "CREATE TABLE p (id bigint PRIMARY KEY, code text UNIQUE); INSERT INTO p VALUES (1, 'a'), (2, 'b'), (3, 'c'); \
                         CREATE TABLE c (id bigint PRIMARY KEY, p bigint, h bigint CONSTRAINT had REFERENCES p); \
                         INSERT INTO c VALUES (1, 1, 1), (2, 2, NULL)";
            client.batch_execute(setup).await?;
            server.stop()?;
            let server = after_death_at(folder.path(), place, statement).await?;
            let client = server.connect().await?;
            let told = || format!("{place}, {statement}");
            let has_parent = !(statement == drop && place == "drops::dropped:2");
            let has_one = has_happened && [add, both].contains(&statement);
            let has_had = !(has_happened && [end, drop].contains(&statement));
            for (values, is_refused) in [("(9, 99, NULL)", has_one), ("(9, NULL, 99)", has_had), ("(9, NULL, NULL)", false)] {
                let inserted = client.batch_execute(&format!("INSERT INTO c VALUES {values}")).await;
                ensure!(inserted.is_err() == is_refused, "{}: {values}: {inserted:?}", told());
                client.batch_execute("DELETE FROM c WHERE id = 9").await.with_context(told)?;
            }
            if statement == both {
                let sums = one(&client, "SELECT sum(p)::bigint * 100 + count(*) FROM c").await.with_context(told)?;
                ensure!(sums == if has_happened { 903 } else { 302 }, "{}: {sums}", told());
            }
            if has_parent {
                let deleted = client.batch_execute("BEGIN; DELETE FROM p WHERE id = 1; ROLLBACK").await;
                client.batch_execute("ROLLBACK").await?;
                // Where its only child goes along by the other foreign key, this one has nothing against it.
                let goes_along = has_one && statement == add;
                ensure!(deleted.is_err() == (has_had && !goes_along), "{}: {deleted:?}", told());
                client.batch_execute("BEGIN; DELETE FROM p WHERE id = 2").await.with_context(told)?;
                let left = one(&client, "SELECT count(*) FROM c WHERE id = 2").await.with_context(told)?;
                client.batch_execute("ROLLBACK").await?;
                ensure!(left == i64::from(!has_one), "{}: {left} rows of a parent that goes", told());
            }
            if statement == create {
                let found = one(&client, "SELECT count(*) FROM made").await;
                ensure!(found.is_ok() == has_happened, "{}: {found:?}", told());
            }
            if statement == create && has_happened {
                for (values, is_refused) in [("(1, 99, 'a')", true), ("(1, 1, 'z')", true), ("(1, 3, 'c')", false)] {
                    let inserted = client.batch_execute(&format!("INSERT INTO made VALUES {values}")).await;
                    ensure!(inserted.is_err() == is_refused, "{}: {values}: {inserted:?}", told());
                }
                let deleted = client.batch_execute("DELETE FROM p WHERE id = 3").await;
                ensure!(deleted.is_err(), "{}: a parent went", told());
            }
            // Nothing is left of what is no more: names of indexes are free.
            client.batch_execute("DROP TABLE IF EXISTS made; DROP TABLE IF EXISTS p CASCADE").await.with_context(told)?;
            for name in ["made_p_fkidx", "made_q_fkidx", "c_p_fkidx", "c_h_fkidx", "p_code_key"] {
                client.batch_execute(&format!("CREATE TABLE {name} (id bigint)")).await.with_context(told)?;
            }
            client.batch_execute("INSERT INTO c VALUES (9, 99, 99)").await.with_context(told)?;
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
    let options = "delivery = '30 ms', hot_retention = '1 ms'";
    let tables = format!(
        "CREATE TABLE p (id bigint PRIMARY KEY, code text UNIQUE, n bigint) WITH (partitioning = 'hash', tablets = 2, {options}); \
         CREATE TABLE kept (id bigint PRIMARY KEY, p bigint REFERENCES p DEFERRABLE INITIALLY DEFERRED, code text REFERENCES p (code)) WITH ({options}); \
         CREATE TABLE along (id bigserial PRIMARY KEY, p bigint NOT NULL REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE) WITH ({options}); \
         CREATE TABLE loose (id bigserial PRIMARY KEY, code text REFERENCES p (code) ON DELETE SET NULL ON UPDATE SET NULL) WITH ({options})"
    );
    server.connect().await?.batch_execute(&tables).await?;
    server.stop()?;
    let mut writers: Vec<ChildWriter> = (0..N_WRITERS).map(ChildWriter::new).collect();
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
    ensure!(acknowledged > refused && refused > 0, "nothing met");
    Ok(())
}

async fn write_until_death(
    server: ChildServer,
    writers: Vec<ChildWriter>,
    acks: i64,
    random: &mut StdRng,
) -> Result<Vec<ChildWriter>> {
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

/// What one writer knows of its own rows of `kept`: their parents. Nobody else takes these away.
struct ChildWriter {
    first: i64,
    rows: BTreeMap<i64, i64>,
    /// Of the statement that had no answer: the rows, if it took effect.
    doubt: Option<BTreeMap<i64, i64>>,
    n_acknowledged: u64,
    n_refused: u64,
}

impl ChildWriter {
    fn new(writer: i64) -> ChildWriter {
        ChildWriter { first: writer * N_ROWS, rows: BTreeMap::new(), doubt: None, n_acknowledged: 0, n_refused: 0 }
    }

    async fn step(&mut self, client: &Client, random: &mut StdRng) -> Result<()> {
        let (sql, after) = self.next(random);
        self.doubt = Some(after);
        let refusals = [
            SqlState::FOREIGN_KEY_VIOLATION,
            SqlState::UNIQUE_VIOLATION,
            // Others were first.
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        match client.batch_execute(&sql).await {
            Ok(()) => self.rows = self.doubt.take().unwrap_or_default(),
            Err(error) if error.code().is_some_and(|code| refusals.contains(code)) => {
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
    fn next(&self, random: &mut StdRng) -> (String, BTreeMap<i64, i64>) {
        let id = self.first + random.random_range(0..N_ROWS);
        let (p, other) = (random.random_range(0..N_PARENTS), random.random_range(0..N_PARENTS));
        let mut after = self.rows.clone();
        let sql = match random.random_range(0..12) {
            0 | 1 => format!("INSERT INTO p VALUES ({p}, 'c{p}', 0)"),
            2 => {
                after.insert(id, p);
                format!("UPSERT INTO kept VALUES ({id}, {p}, 'c{p}')")
            }
            3 => {
                after.entry(id).and_modify(|of| *of = p);
                format!("UPDATE kept SET p = {p}, code = NULL WHERE id + 0 = {id}")
            }
            4 => {
                after.remove(&id);
                format!("DELETE FROM kept WHERE id = {id}")
            }
            5 => format!("INSERT INTO along (p) VALUES ({p}), ({other})"),
            6 => format!("INSERT INTO loose (code) SELECT 'c{p}'"),
            7 => format!("DELETE FROM p WHERE id = {p}"),
            // The row comes before its parent.
            8 => {
                after.insert(id, p);
                let insert = format!(
                    "INSERT INTO kept VALUES ({id}, {p}, NULL) ON CONFLICT (id) DO UPDATE SET p = {p}, code = NULL"
                );
                format!("BEGIN; {insert}; INSERT INTO p VALUES ({p}, 'c{p}', 1) ON CONFLICT DO NOTHING; COMMIT")
            }
            9 => {
                after.retain(|_, of| *of != p);
                let own = format!("id >= {} AND id < {}", self.first, self.first + N_ROWS);
                format!("BEGIN; DELETE FROM kept WHERE p = {p} AND {own}; DELETE FROM p WHERE id + 0 = {p}; COMMIT")
            }
            10 => format!("UPDATE p SET id = {other}, code = 'c{other}' WHERE id = {p}"),
            _ => format!("UPDATE p SET n = n + 1 WHERE id = {p}"),
        };
        (sql, after)
    }

    /// Settles what was in doubt by what is there.
    fn check(&mut self, there: &BTreeMap<i64, i64>) -> Result<()> {
        let own: BTreeMap<i64, i64> =
            there.range(self.first..self.first + N_ROWS).map(|(id, parent)| (*id, *parent)).collect();
        if self.doubt.take().is_some_and(|doubt| doubt == own) {
            self.rows = own;
            return Ok(());
        }
        ensure!(self.rows == own, "{own:?}, acknowledged was {:?}", self.rows);
        Ok(())
    }
}

async fn read_back(folder: &Path, writers: &mut [ChildWriter]) -> Result<()> {
    let server = start(folder, None).await?;
    let client = server.connect().await?;
    for (child, same) in
        [("kept", "p.id = c.p"), ("kept", "p.code = c.code"), ("along", "p.id = c.p"), ("loose", "p.code = c.code")]
    {
        let column = if same.contains("code") { "code" } else { "p" };
        let orphans = format!(
            "SELECT count(*) FROM {child} c LEFT JOIN p ON {same} WHERE c.{column} IS NOT NULL AND p.id IS NULL"
        );
        let orphans = one(&client, &orphans).await?;
        ensure!(orphans == 0, "{orphans} rows of {child} have {column} and no parent");
    }
    let mut there = BTreeMap::new();
    for row in client.query("SELECT id, p FROM kept", &[]).await? {
        ensure!(there.insert(row.get(0), row.get(1)).is_none(), "a row is there twice");
    }
    for writer in writers {
        writer.check(&there)?;
    }
    let parents: BTreeSet<i64> = client.query("SELECT id FROM p", &[]).await?.iter().map(|row| row.get(0)).collect();
    let by_code = "SELECT DISTINCT p.id FROM kept JOIN p ON p.code = kept.code";
    let by_code: BTreeSet<i64> = client.query(by_code, &[]).await?.iter().map(|row| row.get(0)).collect();
    for p in 0..N_PARENTS {
        let inserted = client.batch_execute(&format!("BEGIN; INSERT INTO along (p) VALUES ({p}); ROLLBACK")).await;
        client.batch_execute("ROLLBACK").await?;
        ensure!(inserted.is_ok() == parents.contains(&p), "a row of parent {p} among {parents:?}: {inserted:?}");
        let is_kept = there.values().any(|of| *of == p) || by_code.contains(&p);
        let delete = format!("BEGIN; SET CONSTRAINTS ALL IMMEDIATE; DELETE FROM p WHERE id = {p}");
        let deleted = client.batch_execute(&delete).await;
        ensure!(deleted.is_err() == is_kept, "parent {p} goes: {deleted:?}; rows are {there:?}");
        if deleted.is_ok() {
            let left = format!(
                "SELECT (SELECT count(*) FROM along WHERE p = {p}) + (SELECT count(*) FROM loose WHERE code = 'c{p}')"
            );
            let left = one(&client, &left).await?;
            ensure!(left == 0, "{left} rows are left of parent {p}, which went");
        }
        client.batch_execute("ROLLBACK").await?;
    }
    server.kill();
    server.wait();
    Ok(())
}
