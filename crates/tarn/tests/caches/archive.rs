//! An archive in S3: its sealed directories are listed once, and a file that was written over is never half old, half
//! new.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use tokio_postgres::Client;

use crate::child::ChildServer;
use crate::files::{Archive, ROWS};
use crate::s3::Buckets;
use crate::{figure, reads_and_lists, rows};

/// Waits until `sql` answers `want`.
async fn until(client: &Client, sql: &str, want: impl Fn(i64) -> bool) -> Result<()> {
    for _ in 0..600 {
        let found = rows(client, sql).await?[0][0].parse()?;
        if want(found) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("{sql}: it never came")
}

fn make_old(path: &Path) -> Result<()> {
    let old = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    Ok(std::fs::File::options().write(true).open(path)?.set_modified(old)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_directories_are_listed_once_and_by_hand() -> Result<()> {
    let (folder, root) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut archive = Archive::new(&root.path().join("bucket/logs"));
    for hour in 0..6 {
        let path = format!("dt=2026-01-01/hr={hour:02}/a.parquet");
        archive.put(&path, hour)?;
        make_old(&archive.root.join(&path))?;
    }
    let buckets = Buckets::serve(root.path()).await?;
    let server = ChildServer::start(folder.path(), &[], &buckets.variables()).await?;
    let client = server.connect().await?;
    client.batch_execute("ATTACH 's3://bucket/logs' AS logs WITH (follow = '1s')").await?;
    until(&client, "SELECT hits FROM tarn.caches WHERE layer = 'listings'", |hits| hits > 0).await?;

    // Somebody follows, and lists no sealed directory.
    archive.put("dt=2026-01-02/hr=00/a.parquet", 7)?;
    let count = "SELECT count(*) FROM logs";
    until(&client, count, |n| n == 7 * ROWS).await?;
    let lists = buckets.take().into_iter().filter(|(_, path)| path.contains("list-type=2")).count();
    ensure!(lists > 0);
    let hits = figure(&client, "hits", "listings", "memory").await?;

    // A late file in a sealed directory is seen by who asks for it.
    archive.put("dt=2026-01-01/hr=03/late.parquet", 8)?;
    make_old(&archive.root.join("dt=2026-01-01/hr=03/late.parquet"))?;
    until(&client, "SELECT hits FROM tarn.caches WHERE layer = 'listings'", |now| now > hits).await?;
    client.batch_execute("CALL tarn.attach('logs')").await?;
    until(&client, count, |n| n == 8 * ROWS).await?;
    archive.check(&client, "logs").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_written_over_is_the_old_one_or_an_error_and_then_the_new_one() -> Result<()> {
    let (folder, root) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut archive = Archive::new(&root.path().join("bucket/logs"));
    (0..3).try_for_each(|n| archive.put(&format!("{n}.parquet"), n))?;
    let buckets = Buckets::serve(root.path()).await?;
    let server = ChildServer::start(folder.path(), &["--background", "false"], &buckets.variables()).await?;
    let client = server.connect().await?;
    client.batch_execute("ATTACH 's3://bucket/logs' AS logs").await?;
    let sums = "SELECT n, count(*), count(body) FROM logs GROUP BY n ORDER BY n";
    let attached = rows(&client, sums).await?;
    buckets.take();
    ensure!(rows(&client, sums).await? == attached && reads_and_lists(&buckets.take()) == (0, 0));

    archive.put("1.parquet", 100)?;
    ensure!(rows(&client, sums).await? == attached, "as it was attached: its pages are near");
    client.batch_execute("SET tarn.cache.pages = off; SET tarn.cache.footers = off").await?;
    client.batch_execute("SET tarn.cache.fragments = off").await?;
    let gone = client.simple_query(sums).await.unwrap_err();
    ensure!(gone.as_db_error().unwrap().code().code() == "55000", "{gone:?}");
    client.batch_execute("RESET ALL; SYSTEM DROP CACHE; CALL tarn.attach('logs')").await?;
    for _ in 0..2 {
        archive.check(&client, "logs").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_query_took_of_a_file_is_kept_until_that_file_is_another() -> Result<()> {
    let (folder, root) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut archive = Archive::new(&root.path().join("bucket/logs"));
    (0..4).try_for_each(|n| archive.put(&format!("{n}.parquet"), n))?;
    let buckets = Buckets::serve(root.path()).await?;
    let server = ChildServer::start(folder.path(), &["--background", "false"], &buckets.variables()).await?;
    let client = server.connect().await?;
    client.batch_execute("ATTACH 's3://bucket/logs' AS logs WITH (tokens = 'body')").await?;
    client.batch_execute("SET tarn.cache.pages = off; SET tarn.cache.footers = off").await?;
    let sums = "SELECT n, count(*), min(body) FROM logs WHERE n >= 0 GROUP BY n ORDER BY n";
    let word = "SELECT n, body FROM logs WHERE matches(body, 'r7') AND n < 100 ORDER BY n";
    let taken = [rows(&client, sums).await?, rows(&client, word).await?];
    ensure!(taken[0].len() == 4 && taken[1].len() == 4, "{taken:?}");
    buckets.take();
    ensure!([rows(&client, sums).await?, rows(&client, word).await?] == taken);
    ensure!(reads_and_lists(&buckets.take()) == (0, 0), "nothing else is near");

    // One file is written over, one comes, one goes.
    archive.put("1.parquet", 50)?;
    archive.put("7.parquet", 7)?;
    archive.remove("3.parquet")?;
    client.batch_execute("CALL tarn.attach('logs')").await?;
    archive.check(&client, "logs").await?;
    buckets.take();
    let now = [rows(&client, sums).await?, rows(&client, word).await?];
    ensure!(reads_and_lists(&buckets.take()).0 > 0, "the new files are read");
    client.batch_execute("SET tarn.cache.fragments = off").await?;
    ensure!([rows(&client, sums).await?, rows(&client, word).await?] == now);
    ensure!(now[0].iter().map(|row| row[0].as_str()).eq(["0", "2", "7", "50"]), "{now:?}");
    ensure!(now[1].len() == 4 && now != taken, "{now:?}");
    Ok(())
}
