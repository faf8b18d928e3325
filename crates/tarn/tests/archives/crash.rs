//! kill -9 while an archive is attached, or taken in anew: what is committed is not read again, and nothing is there
//! twice.
//!
//! `TARN_SEED` repeats a run, `TARN_SOAK_SECONDS` makes it long.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::NoTls;

use crate::child::ChildServer;
use crate::files::{Archive, number, rows};

const PLACES: [&str; 6] = [
    "attach::after_read",
    "attach::before_commit",
    "attach::after_commit",
    "attach::after_read:3",
    "attach::before_commit:2",
    "attach::after_commit:2",
];

/// More than two batches.
const N_FILES: i64 = 160;

/// What ends a pass.
#[derive(Debug, Clone, Copy)]
enum PassEnd {
    Failpoint(&'static str),
    /// When so many files were read or committed.
    Files(u64),
}

#[test]
fn a_pass_that_is_killed_is_gone_on_with() -> Result<()> {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    eprintln!("TARN_SEED={seed}");
    let soak =
        std::env::var("TARN_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(rounds(seed, soak.unwrap_or_default())).with_context(|| format!("TARN_SEED={seed}"))
}

async fn rounds(seed: u64, soak: Duration) -> Result<()> {
    let (mut random, started) = (StdRng::seed_from_u64(seed), Instant::now());
    let folder = tempfile::tempdir()?;
    let mut n_deaths = 0;
    for round in 0.. {
        if round >= PLACES.len() as i64 && started.elapsed() >= soak {
            break;
        }
        let place = PLACES[round as usize % PLACES.len()];
        let random_end = |random: &mut StdRng| PassEnd::Files(random.random_range(0..N_FILES as u64));
        // One dies attaching, the other taking in changes; and the other way round.
        let ends = match round % 2 {
            0 => [PassEnd::Failpoint(place), random_end(&mut random)],
            _ => [random_end(&mut random), PassEnd::Failpoint(place)],
        };
        live(folder.path(), round, ends, &mut random, &mut n_deaths)
            .await
            .with_context(|| format!("round {round}, {ends:?}"))?;
    }
    ensure!(n_deaths >= PLACES.len(), "only {n_deaths} passes died");
    Ok(())
}

async fn live(
    folder: &std::path::Path,
    round: i64,
    ends: [PassEnd; 2],
    random: &mut StdRng,
    n_deaths: &mut usize,
) -> Result<()> {
    let (archive_folder, table) = (tempfile::tempdir()?, format!("logs_{round}"));
    let mut archive = Archive::new(archive_folder.path());
    for n in 0..N_FILES {
        archive.put(&format!("hr={:02}/{n:04}.parquet", n / 10), n)?;
    }
    let attach = format!("ATTACH '{}' AS {table} WITH (tokens = 'body', concurrency = 2)", archive.root.display());
    *n_deaths += usize::from(die(folder, &table, &attach, ends[0]).await?);

    // The server goes on by itself with a first pass.
    let server = start(folder, None).await?;
    let client = server.connect().await?;
    if !exists(&client, &table).await? {
        client.batch_execute(&attach).await?;
    }
    let before = number(&client, &of(&table, "version")).await?;
    let ends_well = async {
        while rows(&client, &of(&table, "state")).await? != [["attached"]] {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(120), ends_well).await.context("it is not gone on with")??;
    let read = number(&client, &of(&table, "coalesce(known, 0) + coalesce(attached, 0)")).await?;
    ensure!(read == 0 || read == N_FILES as u64, "{read} files, from version {before} on");
    archive.check(&client, &table).await.context("attached")?;
    server.kill();
    server.wait();

    for _ in 0..40 {
        let path = archive.files.keys().nth(random.random_range(0..archive.files.len())).context("a file")?.clone();
        match random.random_range(0..3) {
            0 => archive.remove(&path)?,
            1 => archive.put(&path, random.random_range(1_000..2_000))?,
            _ => archive.put(&format!("new/{path}"), random.random_range(2_000..3_000))?,
        }
    }
    let call = format!("CALL tarn.attach('{table}')");
    *n_deaths += usize::from(die(folder, &table, &call, ends[1]).await?);
    let server = start(folder, None).await?;
    let client = server.connect().await?;
    client.batch_execute(&call).await?;
    archive.check(&client, &table).await.context("taken in")?;
    client.batch_execute(&call).await?;
    ensure!(number(&client, &of(&table, "bytes_read")).await? == 0, "what is known is read again");
    let n_files = archive.files.len();
    client.batch_execute(&format!("DETACH TABLE {table}")).await?;
    ensure!(files_below(&archive.root) == n_files, "detaching removed files");
    Ok(())
}

fn of(table: &str, what: &str) -> String {
    format!("SELECT {what} FROM tarn.attachments WHERE table_name = '{table}'")
}

async fn exists(client: &tokio_postgres::Client, table: &str) -> Result<bool> {
    Ok(!rows(client, &of(table, "1")).await?.is_empty())
}

fn files_below(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

async fn start(folder: &std::path::Path, abort_at: Option<&str>) -> Result<ChildServer> {
    let abort_at: Vec<_> = abort_at.map(|place| ("TARN_ABORT_AT", place)).into_iter().collect();
    ChildServer::start(folder, &["--background-interval-ms", "10"], &abort_at).await
}

/// Runs `sql` on a server that dies meanwhile. False: it came to its end before.
async fn die(folder: &std::path::Path, table: &str, sql: &str, end: PassEnd) -> Result<bool> {
    let place = if let PassEnd::Failpoint(place) = end { Some(place) } else { None };
    let server = start(folder, place).await?;
    let (client, watching) = (server.connect().await?, server.connect().await?);
    let (run, so_far) = (client.batch_execute(sql), of(table, "reading + attached"));
    tokio::pin!(run);
    let is_over = loop {
        tokio::select! {
            biased;
            done = &mut run => break done,
            at = number(&watching, &so_far) => {
                if let (PassEnd::Files(n), Ok(at)) = (end, at)
                    && at >= n
                    && exists(&watching, table).await.unwrap_or(false)
                {
                    server.kill();
                }
            }
        }
    };
    let died = match is_over {
        Ok(()) => false,
        Err(error) if error.as_db_error().is_some() => bail!("{sql}: {error:?}"),
        Err(_) => true,
    };
    server.kill();
    server.wait();
    Ok(died)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_pass_keeps_what_it_has() -> Result<()> {
    let (folder, archive_folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut archive = Archive::new(archive_folder.path());
    for n in 0..400 {
        archive.put(&format!("{n:04}.parquet"), n)?;
    }
    let server = ChildServer::start(folder.path(), &[], &[]).await?;
    let (client, watching) = (server.connect().await?, server.connect().await?);
    let attach = format!("ATTACH '{}' AS logs WITH (tokens = 'body', concurrency = 1)", archive.root.display());
    let cancel = client.cancel_token();
    let (run, so_far) = (client.batch_execute(&attach), of("logs", "attached"));
    tokio::pin!(run);
    let error = loop {
        tokio::select! {
            biased;
            done = &mut run => break done.unwrap_err(),
            at = number(&watching, &so_far) => if at? > 0 {
                cancel.cancel_query(NoTls).await?;
            }
        }
    };
    ensure!(error.code().map(|code| code.code()) == Some("40003"), "a part of it is there: {error:?}");
    // It ends at its next wait.
    while rows(&watching, &of("logs", "state")).await? == [["running"]] {}
    let standing = rows(&watching, &of("logs", "state, files, rows, last_error")).await?.remove(0);
    let files: u64 = standing[1].parse()?;
    ensure!(standing[0] == "interrupted" && files > 0 && files < 400 && standing[3] == "∅", "{standing:?}");
    ensure!(number(&watching, "SELECT count(*) FROM logs").await? == files * 50, "{standing:?}");
    client.batch_execute("CALL tarn.attach('logs')").await?;
    let standing = rows(&watching, &of("logs", "state, known, attached")).await?.remove(0);
    ensure!(
        standing[0] == "attached" && standing[1] == files.to_string(),
        "what is committed is not read again: {standing:?}"
    );
    archive.check(&client, "logs").await
}
