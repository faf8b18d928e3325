//! Does a client that repeats each write after a death, by the same key, have each of them once, with the answer of the
//! first time?
//!
//! Writers whose every write adds to a sum or to a table without a key, so that a write that happened twice is seen,
//! and one that was lost, too. Nobody settles what was in doubt by looking: it is asked again, with its key. Now and
//! then one that was answered is asked again as well.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::SinkExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::child::ChildServer;
use crate::{one, server_is_gone, start};

const N_WRITERS: i64 = 3;
/// Rows of one writer.
const N_ROWS: i64 = 5;
/// Lines of one COPY.
const N_LINES: i64 = 40;

#[test]
fn what_is_repeated_after_a_death_is_there_once() -> Result<()> {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    eprintln!("TARN_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(rounds(seed, true)).with_context(|| format!("TARN_SEED={seed}"))
}

/// The harness itself: without keys what is repeated is there twice, and that is found.
#[test]
fn without_keys_it_is_there_twice() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let told = runtime.block_on(rounds(7, false)).err().map(|error| format!("{error:#}"));
    let is_double = |told: &String| told.contains("want") || told.contains("duplicate key");
    ensure!(told.as_ref().is_some_and(is_double), "{told:?}");
    Ok(())
}

async fn rounds(seed: u64, has_keys: bool) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir()?;
    let server = start(folder.path(), None).await?;
    let options = "partitioning = 'hash', tablets = 2, delivery = '30 ms', hot_retention = '1 ms'";
    let create = format!(
        "CREATE TABLE sums (id bigint PRIMARY KEY, n bigint NOT NULL, u bigint UNIQUE) WITH ({options}); \
         CREATE TABLE log (writer bigint, n bigint) WITH (append_only = true, delivery = '30 ms'); \
         CREATE TABLE ranges (id bigint PRIMARY KEY, n bigint) WITH (delivery = '30 ms'); \
         INSERT INTO sums SELECT value, 0, NULL FROM generate_series(0, {}) AS s(value)",
        N_WRITERS * N_ROWS - 1
    );
    server.connect().await?.batch_execute(&create).await?;
    server.stop()?;
    let mut writers: Vec<RequestWriter> = (0..N_WRITERS).map(|id| RequestWriter::new(id, has_keys)).collect();
    let places = ["lake::after_commit", "lake::before_install", "lake::after_install:2"];
    let deaths = places.iter().flat_map(|place| [Some(*place), None, None]);
    for (round, place) in deaths.enumerate() {
        let acks = if place.is_some() { 300 } else { random.random_range(1..120) };
        let told = || format!("round {round}, {place:?}, log in {}", folder.path().display());
        // It may die while it starts.
        if let Ok(server) = start(folder.path(), place).await {
            writers = write_until_death(server, writers, acks, &mut random).await.with_context(told)?;
        }
        if round % 3 == 2 {
            split(folder.path(), round as i64).await.with_context(told)?;
        }
        read_back(folder.path(), &mut writers).await.with_context(told)?;
    }
    let (n, again): (i64, i64) = writers.iter().fold((0, 0), |(n, again), of| (n + of.n_done, again + of.n_again));
    eprintln!("{n} writes, {again} of them asked for again");
    ensure!(n > 0 && again > 0, "nothing was repeated");
    Ok(())
}

async fn write_until_death(
    server: ChildServer,
    writers: Vec<RequestWriter>,
    acks: i64,
    random: &mut StdRng,
) -> Result<Vec<RequestWriter>> {
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

/// Tablets part while outcomes are kept.
async fn split(folder: &Path, at: i64) -> Result<()> {
    let server = start(folder, None).await?;
    let client = server.connect().await?;
    client.batch_execute("CALL tarn.deliver('ranges')").await?;
    client.batch_execute(&format!("CALL tarn.split('ranges', {})", at * 1_000 + 500)).await?;
    server.stop()
}

#[derive(Debug, Clone, Copy)]
enum Write {
    /// Adds one to a row.
    Add {
        id: i64,
    },
    /// To all rows of the writer.
    AddToAll,
    /// To a row whose unique value changes.
    Move {
        id: i64,
    },
    Log,
    /// A row in a table that is split.
    Range {
        id: i64,
    },
    /// A row, and a line of the log, as one.
    Both {
        id: i64,
    },
    Copy,
    /// No row has it: nothing is written, and that stays so.
    Nothing,
}

struct RequestWriter {
    id: i64,
    has_keys: bool,
    n_begun: i64,
    /// Without an answer.
    doubt: Option<(i64, Write)>,
    n_done: i64,
    n_again: i64,
    /// What all of them come to.
    sum: i64,
    n_lines: i64,
    n_ranges: i64,
}

impl RequestWriter {
    fn new(id: i64, has_keys: bool) -> RequestWriter {
        RequestWriter { id, has_keys, n_begun: 0, doubt: None, n_done: 0, n_again: 0, sum: 0, n_lines: 0, n_ranges: 0 }
    }

    async fn step(&mut self, client: &Client, random: &mut StdRng) -> Result<()> {
        let (n, write) = match self.doubt {
            Some(doubt) => {
                self.n_again += 1;
                doubt
            }
            None => {
                self.n_begun += 1;
                let id = self.id * N_ROWS + random.random_range(0..N_ROWS);
                let write = match random.random_range(0..8) {
                    0 => Write::Add { id },
                    1 => Write::AddToAll,
                    2 => Write::Move { id },
                    3 => Write::Log,
                    4 => {
                        Write::Range { id: random.random_range(0..4) * 1_000_000 + self.n_begun * N_WRITERS + self.id }
                    }
                    5 => Write::Both { id },
                    6 => Write::Copy,
                    _ => Write::Nothing,
                };
                (self.n_begun, write)
            }
        };
        self.doubt = Some((n, write));
        self.ask(client, n, write).await?;
        self.doubt = None;
        self.n_done += 1;
        match write {
            Write::Add { .. } | Write::Move { .. } => self.sum += 1,
            Write::AddToAll => self.sum += N_ROWS,
            Write::Log => self.n_lines += 1,
            Write::Range { .. } => self.n_ranges += 1,
            Write::Both { .. } => (self.sum, self.n_lines) = (self.sum + 1, self.n_lines + 1),
            Write::Copy => self.n_lines += N_LINES,
            Write::Nothing => {}
        }
        if random.random_range(0..8) == 0 {
            self.n_again += 1;
            self.ask(client, n, write).await.context("again")?;
        }
        Ok(())
    }

    async fn ask(&self, client: &Client, n: i64, write: Write) -> Result<()> {
        let who = self.id;
        if self.has_keys {
            client.batch_execute(&format!("SET tarn.idempotency_key = 'writer {who}, {n}'")).await?;
        }
        let first = who * N_ROWS;
        let (sql, want) = match write {
            Write::Add { id } => (format!("UPDATE sums SET n = n + 1 WHERE id = {id}"), vec![1]),
            Write::AddToAll => {
                let of = format!("id >= {first} AND id < {}", first + N_ROWS);
                (format!("UPDATE sums SET n = n + 1 WHERE {of}"), vec![N_ROWS as u64])
            }
            Write::Move { id } => {
                (format!("UPDATE sums SET n = n + 1, u = {} WHERE id = {id}", n * N_WRITERS + who), vec![1])
            }
            Write::Log => (format!("INSERT INTO log VALUES ({who}, {n})"), vec![1]),
            Write::Range { id } => (format!("INSERT INTO ranges VALUES ({id}, {who})"), vec![1]),
            Write::Both { id } => {
                let all = format!(
                    "BEGIN; UPDATE sums SET n = n + 1 WHERE id = {id}; INSERT INTO log VALUES ({who}, {n}); COMMIT"
                );
                (all, vec![1, 1])
            }
            Write::Nothing => ("UPDATE sums SET n = n + 1 WHERE id < 0".to_owned(), vec![0]),
            Write::Copy => {
                let sink = client.copy_in("COPY log FROM STDIN").await?;
                futures::pin_mut!(sink);
                for line in 0..N_LINES {
                    sink.send(Bytes::from(format!("{who}\t{}\n", -line))).await?;
                }
                let rows = sink.finish().await?;
                ensure!(rows == N_LINES as u64, "COPY answers {rows}, want {N_LINES}");
                return Ok(());
            }
        };
        let told = client.simple_query(&sql).await.with_context(|| sql.clone())?;
        let counts = told.iter().filter_map(|message| match message {
            SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
            _ => None,
        });
        let mut counts: Vec<u64> = counts.collect();
        if matches!(write, Write::Both { .. }) {
            counts = counts[1..3].to_vec();
        }
        ensure!(counts == want, "{sql} answers {counts:?}, want {want:?}");
        Ok(())
    }
}

/// Asks again for what is in doubt, and counts.
async fn read_back(folder: &Path, writers: &mut [RequestWriter]) -> Result<()> {
    let server = start(folder, None).await?;
    let client = server.connect().await?;
    let mut random = StdRng::seed_from_u64(0);
    for writer in writers {
        if writer.doubt.is_some() {
            writer.step(&client, &mut random).await?;
        }
        let id = writer.id;
        let of = format!("id >= {} AND id < {}", id * N_ROWS, (id + 1) * N_ROWS);
        for (sql, want) in [
            (format!("SELECT sum(n)::bigint FROM sums WHERE {of}"), writer.sum),
            (format!("SELECT count(*) FROM log WHERE writer = {id}"), writer.n_lines),
            (format!("SELECT count(*) FROM ranges WHERE n = {id}"), writer.n_ranges),
        ] {
            let found = one(&client, &sql).await?;
            ensure!(found == want, "{sql}: {found}, want {want}");
        }
    }
    server.stop()
}
