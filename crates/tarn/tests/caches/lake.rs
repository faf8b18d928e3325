//! One lake in S3: cold, warm, switched off, damaged, after a restart; and what is said of it.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tokio_postgres::Client;

use crate::child::ChildServer;
use crate::s3::{Buckets, S3Fault};
use crate::{figure, reads_and_lists, rows};

const LAKE: [&str; 2] = ["--lake", "s3://bucket/tables"];
const MANUAL: [&str; 2] = ["--background", "false"];
/// Fragments would answer before pages are asked.
const SESSION: &str = "SET tarn.access_path = 'lake'; SET tarn.cache.fragments = off";
const SUM: &str = "SELECT g, count(*), sum(v), min(s), max(s) FROM t GROUP BY g ORDER BY g";

struct LakeServer {
    folder: tempfile::TempDir,
    root: tempfile::TempDir,
    buckets: Buckets,
}

impl LakeServer {
    async fn new() -> Result<LakeServer> {
        let (folder, root) = (tempfile::tempdir()?, tempfile::tempdir()?);
        std::fs::create_dir(root.path().join("bucket"))?;
        let buckets = Buckets::serve(root.path()).await?;
        Ok(LakeServer { folder, root, buckets })
    }

    async fn start(&self, more: &[&str]) -> Result<(ChildServer, Client)> {
        let arguments: Vec<&str> = LAKE.iter().chain(&MANUAL).chain(more).copied().collect();
        let server = ChildServer::start(self.folder.path(), &arguments, &self.buckets.variables()).await?;
        let client = server.connect().await?;
        client.batch_execute(SESSION).await?;
        Ok((server, client))
    }

    /// With a table of `n_files` files.
    async fn with_table(&self, client: &Client, n_files: u32) -> Result<()> {
        client.batch_execute("CREATE TABLE t (k int PRIMARY KEY, g int, v bigint, s text)").await?;
        for n in 0..n_files {
            let (from, to) = (n * 1000, n * 1000 + 999);
            client
                .batch_execute(&format!(
                    "INSERT INTO t SELECT value, value % 7, value * 3, repeat('text ' || value, 4) FROM generate_series({from}, {to}) AS s(value); DELIVER TABLE t"
                ))
                .await?;
        }
        Ok(())
    }

    fn pages(&self) -> PathBuf {
        self.folder.path().join("data/cache/pages")
    }
}

/// Files below, deepest ones included.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return vec![] };
    entries
        .flatten()
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files(&path),
            path => vec![path],
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_table_asks_the_store_nothing() -> Result<()> {
    let world = LakeServer::new().await?;
    let (server, client) = world.start(&[]).await?;
    world.with_table(&client, 3).await?;
    ensure!(rows(&client, "SELECT path FROM tarn.files").await?.len() == 3);
    ensure!(world.root.path().join("bucket/tables/_tarn/owner").exists());

    client.batch_execute("SYSTEM DROP CACHE").await?;
    world.buckets.take();
    let cold = rows(&client, SUM).await?;
    let (reads, lists) = reads_and_lists(&world.buckets.take());
    ensure!(reads >= 3 && lists == 0, "{reads} reads, {lists} lists");
    let warm = rows(&client, SUM).await?;
    let seen = world.buckets.take();
    ensure!(warm == cold && seen.is_empty(), "{seen:?}");
    ensure!(figure(&client, "hits", "pages", "memory").await? > 0);
    ensure!(figure(&client, "hits", "metadata", "memory").await? > 0);

    // Which of it a scan used, and why not.
    let explained = |rows: Vec<Vec<String>>| rows.concat().join("\n");
    let said = explained(rows(&client, &format!("EXPLAIN ANALYZE {SUM}")).await?);
    ensure!(
        said.contains("pages=on") && said.contains("store_requests=0") && said.contains("pages_fetched=0"),
        "{said}"
    );
    client.batch_execute("SET tarn.cache.pages = off").await?;
    let said = explained(rows(&client, &format!("EXPLAIN ANALYZE {SUM}")).await?);
    ensure!(said.contains("pages=not_used: tarn.cache.pages is off"), "{said}");
    world.buckets.take();
    ensure!(rows(&client, SUM).await? == cold);
    ensure!(reads_and_lists(&world.buckets.take()).0 >= 3, "it went past the pages");
    client.batch_execute("RESET ALL").await?;
    client.batch_execute(SESSION).await?;
    ensure!(rows(&client, SUM).await? == cold && world.buckets.take().is_empty());

    // What leaves of the plan gave is kept as well.
    client.batch_execute("SET tarn.cache.fragments = on").await?;
    ensure!(rows(&client, SUM).await? == cold);
    ensure!(figure(&client, "entries", "fragments", "memory").await? > 0);
    let hits = figure(&client, "hits", "fragments", "memory").await?;
    ensure!(rows(&client, SUM).await? == cold);
    ensure!(figure(&client, "hits", "fragments", "memory").await? > hits);
    client.batch_execute(SESSION).await?;
    world.buckets.take();

    // One layer, one table.
    client.batch_execute("CREATE TABLE u (k int PRIMARY KEY); INSERT INTO u VALUES (1), (2); DELIVER TABLE u").await?;
    rows(&client, "SELECT sum(k) FROM u").await?;
    let dropped = rows(&client, "SYSTEM DROP CACHE PAGES FOR TABLE u").await?;
    ensure!(dropped.len() == 1 && dropped[0][0] == "pages" && dropped[0][1] != "0", "{dropped:?}");
    world.buckets.take();
    ensure!(rows(&client, SUM).await? == cold && world.buckets.take().is_empty(), "the other table's are there");
    let all = rows(&client, "SYSTEM DROP CACHE").await?;
    let layers: Vec<&str> = all.iter().map(|row| row[0].as_str()).collect();
    ensure!(
        ["metadata", "footers", "pages", "fragments", "listings"].iter().all(|layer| layers.contains(layer)),
        "{all:?}"
    );
    ensure!(figure(&client, "entries", "pages", "memory").await? == 0);
    ensure!(figure(&client, "entries", "pages", "disk").await? == 0);

    // A bucket that was restored has other ETags: it is the same lake.
    for file in files(&world.root.path().join("bucket/tables")) {
        std::fs::File::options().write(true).open(file)?.set_modified(std::time::SystemTime::now())?;
    }
    ensure!(rows(&client, SUM).await? == cold);
    client.batch_execute("SYSTEM DROP CACHE").await?;

    // Pages by hand, all of them or some.
    let warmed = rows(&client, "CACHE TABLE t").await?;
    let last = warmed.last().unwrap();
    ensure!(last[1] == "100" && last[2] == "3" && last[3] != "0" && last[5] == "∅", "{warmed:?}");
    world.buckets.take();
    ensure!(rows(&client, SUM).await? == cold && world.buckets.take().is_empty());
    let again = rows(&client, "CACHE TABLE t WHERE k >= 2000").await?;
    ensure!(again.last().unwrap()[2] == "1" && world.buckets.take().is_empty(), "{again:?}");
    let error = client.batch_execute("CACHE TABLE nothing").await.unwrap_err();
    ensure!(error.as_db_error().unwrap().code().code() == "42P01", "{error:?}");
    // A table that goes leaves nothing behind, or what it leaves is said and no error.
    client.batch_execute("DROP TABLE u").await?;
    ensure!(files(&world.root.path().join("bucket/tables")).len() == 4, "three files and the owner");
    world.buckets.break_by(|| Some(S3Fault::Busy));
    client.batch_execute("DROP TABLE t").await?;
    world.buckets.heal();
    ensure!(rows(&client, "SELECT count(*) FROM tarn.tables").await? == [["0"]]);
    ensure!(figure(&client, "entries", "pages", "memory").await? == 0);

    // The files of tables are where they were.
    client.batch_execute("CREATE TABLE v (k int PRIMARY KEY)").await?;
    drop(client);
    server.stop()?;
    let moved =
        ChildServer::start(world.folder.path(), &["--lake", "s3://bucket/elsewhere"], &world.buckets.variables()).await;
    let refused = moved.err().unwrap().to_string();
    ensure!(refused.contains("s3://bucket/tables") && refused.contains("s3://bucket/elsewhere"), "{refused}");
    let (_server, client) = world.start(&["--cache-pages", "false"]).await?;
    client.batch_execute("INSERT INTO v VALUES (1), (2); DELIVER TABLE v").await?;
    let said = explained(rows(&client, "EXPLAIN SELECT sum(k) FROM v").await?);
    ensure!(said.contains("pages=not_used: cache_pages is off"), "{said}");
    let warmed = rows(&client, "CACHE TABLE v WHERE k = 1").await?;
    ensure!(warmed.last().unwrap()[5].contains("cache_pages is off"), "{warmed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_survive_a_restart_and_damage() -> Result<()> {
    let world = LakeServer::new().await?;
    let (server, client) = world.start(&[]).await?;
    world.with_table(&client, 4).await?;
    let right = rows(&client, SUM).await?;
    rows(&client, "CACHE TABLE t").await?;
    client.batch_execute("SELECT 1").await?;
    drop(client);
    server.stop()?;

    let on_disk = files(&world.pages());
    ensure!(on_disk.len() >= 4, "{on_disk:?}");
    let (server, client) = world.start(&[]).await?;
    world.buckets.take();
    ensure!(rows(&client, SUM).await? == right);
    let seen = world.buckets.take();
    ensure!(reads_and_lists(&seen).0 == 0, "{seen:?}");
    ensure!(figure(&client, "hits", "pages", "disk").await? > 0);
    drop(client);
    server.stop()?;

    // A flipped bit, a cut file, a file that is gone: each is fetched again and counted.
    let mut pages: Vec<PathBuf> =
        files(&world.pages()).into_iter().filter(|path| path.metadata().is_ok_and(|m| m.len() > 8192)).collect();
    pages.sort();
    for (at, path) in pages.iter().enumerate() {
        let mut bytes = std::fs::read(path)?;
        match at % 3 {
            0 => {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x10;
                std::fs::write(path, bytes)?;
            }
            1 => std::fs::write(path, &bytes[..bytes.len() / 2])?,
            _ => {}
        }
    }
    let (server, client) = world.start(&[]).await?;
    for gone in pages.iter().skip(2).step_by(3) {
        std::fs::remove_file(gone)?;
    }
    ensure!(rows(&client, SUM).await? == right);
    ensure!(rows(&client, SUM).await? == right);
    let (damaged, n_pages) = (figure(&client, "damaged", "pages", "disk").await?, pages.len() as i64);
    ensure!(damaged > 0, "{damaged} of {n_pages}");
    drop(server);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lake_belongs_to_one_data_folder_and_must_answer() -> Result<()> {
    let world = LakeServer::new().await?;
    let (server, client) = world.start(&[]).await?;
    world.with_table(&client, 1).await?;
    drop(server);

    let other = tempfile::tempdir()?;
    let refused = ChildServer::start(other.path(), &LAKE, &world.buckets.variables()).await.err().unwrap().to_string();
    ensure!(refused.contains("belongs to another data folder") && refused.contains("_tarn/owner"), "{refused}");
    let refused =
        ChildServer::start(other.path(), &["--lake", "s3://bucket/elsewhere"], &[]).await.err().unwrap().to_string();
    ensure!(refused.contains("AWS_ACCESS_KEY_ID"), "{refused}");
    let refused = ChildServer::start(other.path(), &["--lake", "hdfs://bucket"], &[]).await.err().unwrap().to_string();
    ensure!(refused.contains("there is no store for hdfs://"), "{refused}");

    // Reads by key go on without the store; those of files say what is wrong.
    let (_server, client) = world.start(&["--cache-pages-disk-bytes", "0"]).await?;
    client.batch_execute("SYSTEM DROP CACHE").await?;
    world.buckets.break_by(|| Some(S3Fault::Busy));
    client.batch_execute("SET tarn.access_path = 'auto'").await?;
    ensure!(rows(&client, "SELECT v FROM t WHERE k = 7").await? == [["21"]]);
    client.batch_execute("INSERT INTO t VALUES (-1, 0, 0, '')").await?;
    client.batch_execute("SET tarn.access_path = 'lake'; SET statement_timeout = '60s'").await?;
    let error = client.simple_query(SUM).await.unwrap_err();
    ensure!(error.as_db_error().is_some(), "{error:?}");
    world.buckets.heal();
    ensure!(rows(&client, "SELECT count(v) FROM t").await? == [["1001"]]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_fetch_a_page_once() -> Result<()> {
    let world = LakeServer::new().await?;
    let (_server, client) = world.start(&["--cache-page-bytes", "1MiB"]).await?;
    world.with_table(&client, 8).await?;
    let right = rows(&client, SUM).await?;
    client.batch_execute("SYSTEM DROP CACHE").await?;
    world.buckets.take();
    let before = figure(&client, "misses", "pages", "disk").await?;
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let reader = _server.connect().await?;
        running.spawn(async move {
            reader.batch_execute(SESSION).await?;
            rows(&reader, SUM).await
        });
    }
    while let Some(answer) = running.join_next().await {
        ensure!(answer?? == right);
    }
    // A file is smaller than a page.
    ensure!(figure(&client, "misses", "pages", "disk").await? - before == 8);
    let (reads, _) = reads_and_lists(&world.buckets.take());
    ensure!(reads == 8, "{reads} reads of 8 files");
    Ok(())
}
