//! `tarn check lake`: is every byte of the lake what was written? Reads all files of the latest versions, changes
//! nothing.

use std::collections::HashSet;
use std::fs::{File as OsFile, TryLockError};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use futures::TryStreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use tarn::settings::NodeSettings;
use tarn_lake::{Lake, Options};
use tarn_metastore::{Metastore, VersionSelector};
use tarn_node::clock::SystemClock;
use tarn_node::metastores::MetastoreLocation;
use tarn_node::stores;
use tarn_types::Clock;

use super::client::runtime;
use super::config::SettingFlags;
use super::metastore;
use super::output::grouped;

/// What is read between two looks at the pace.
const STRETCH_BYTES: u64 = 16 << 20;

/// The lake: every byte of every file that the tables have
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn check lake                                   the lake of ./tarn-data
  tarn check lake --data-dir /data --table events
  tarn check lake --config tarn.toml --pace 100MB

Reads each file whole and holds it against its size and its checksums, which the metastore keeps. Prints one line for each damage: \
the file, the bytes, and the blocks and columns that lie there. Files that no table has are counted; a server removes them when \
they are old enough. Files of archives are somebody else's, and are not read.

Put back a copy of a damaged file under its name, and what was damaged can be read again.")]
pub struct CheckLake {
    #[command(flatten)]
    flags: SettingFlags,
    /// Only this table; may be given several times
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// Bytes a second that are read at most, such as 100MB
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| tarn_types::settings::bytes(text))]
    pace: Option<u64>,
}

impl CheckLake {
    /// Fails when a file is damaged, after all of them were named.
    pub fn run(self) -> Result<()> {
        let settings = self.flags.layers()?.settings().node.clone();
        runtime()?.block_on(self.check(&settings))
    }

    async fn check(&self, settings: &NodeSettings) -> Result<()> {
        let _stopped = must_be_stopped(&settings.data_dir)?;
        let place = MetastoreLocation::of(settings)?;
        let (metastore, _scratch) = metastore::open_twin(&place).await?;
        let lake_location =
            stores::StoreLocation::parse_for("check the lake in", &settings.lake_location()).map_err(as_told)?;
        lake_location.check().await.map_err(as_told)?;
        let store = lake_location.open().map_err(as_told)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let lake = Lake::new(
            Arc::clone(&store),
            Arc::clone(&metastore),
            Arc::clone(&clock),
            Options::default(),
            uuid::Uuid::new_v4(),
        );
        let mut tables = metastore.tables().await?;
        tables.retain(|table| table.has_rows());
        if let Some(unknown) = self.table.iter().find(|name| !tables.iter().any(|table| table.name == **name)) {
            bail!("there is no table \"{unknown}\" with files in the lake");
        }
        let mut found = LakeCheckTotals::default();
        let mut bar = None;
        for table in tables.iter().filter(|table| self.table.is_empty() || self.table.contains(&table.name)) {
            let version = metastore.snapshot(table.id, VersionSelector::Latest).await?;
            let bar = bar.get_or_insert_with(|| progress(0));
            bar.inc_length(version.size_bytes());
            for file in &version.files {
                found.files += 1;
                found.unchecked += u64::from(file.checksums.is_none());
                let (mut from, flaws_before) = (0, found.flaws);
                loop {
                    let started_us = clock.monotonic_us();
                    let stretch = lake.check_stretch(file, from, STRETCH_BYTES).await?;
                    for flaw in &stretch.flaws {
                        bar.suspend(|| say!("{flaw}"))?;
                    }
                    found.flaws += stretch.flaws.len() as u64;
                    found.bytes += stretch.bytes;
                    bar.inc(stretch.end - from);
                    from = stretch.end;
                    self.keep_pace(stretch.bytes, clock.monotonic_us() - started_us).await;
                    if from >= file.size_bytes {
                        break;
                    }
                }
                found.damaged_files += u64::from(found.flaws > flaws_before);
            }
            let (orphans, bytes) = unknown_objects(metastore.as_ref(), store.as_ref(), table).await?;
            found.orphans += orphans;
            found.orphan_bytes += bytes;
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        found.tell(&lake_location.to_string())
    }

    async fn keep_pace(&self, bytes: u64, took_us: u64) {
        let Some(pace) = self.pace.filter(|pace| *pace > 0) else { return };
        let want_us = bytes.saturating_mul(1_000_000) / pace;
        tokio::time::sleep(Duration::from_micros(want_us.saturating_sub(took_us))).await;
    }
}

#[derive(Debug, Default)]
struct LakeCheckTotals {
    files: u64,
    bytes: u64,
    unchecked: u64,
    flaws: u64,
    damaged_files: u64,
    orphans: u64,
    orphan_bytes: u64,
}

impl LakeCheckTotals {
    fn tell(&self, lake: &str) -> Result<()> {
        let [files, bytes, orphans, orphan_bytes] =
            [self.files, self.bytes, self.orphans, self.orphan_bytes].map(grouped);
        say!("{lake}: {files} files, {bytes} bytes read")?;
        if self.orphans > 0 {
            say!("{orphans} objects of {orphan_bytes} bytes that no version has; a server removes them in time")?;
        }
        if self.unchecked > 0 {
            say!("{} files have no checksums: only their sizes were looked at", grouped(self.unchecked))?;
        }
        ensure!(
            self.flaws == 0,
            "{} damaged places in {} files; `tarn check lake --help` says what can be done",
            self.flaws,
            self.damaged_files
        );
        say!("sound")?;
        Ok(())
    }
}

/// Keeps a server from starting while it lives.
fn must_be_stopped(data_dir: &Path) -> Result<Option<OsFile>> {
    ensure!(data_dir.is_dir(), "{} is not a folder: --data-dir names the server's", data_dir.display());
    let path = data_dir.join("LOCK");
    if !path.exists() {
        return Ok(None);
    }
    let file = OsFile::open(&path).with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            bail!("a server has the data folder {} open: stop it first", data_dir.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}

/// Objects below the table's folder that no kept version has.
async fn unknown_objects(
    metastore: &dyn Metastore,
    store: &dyn object_store::ObjectStore,
    table: &tarn_types::TableSchema,
) -> Result<(u64, u64)> {
    let oldest = metastore.snapshot(table.id, VersionSelector::Oldest).await?;
    let commits = metastore.commits(table.id, oldest.version).await?;
    let kept = oldest.files.iter().chain(commits.iter().flat_map(|commit| &commit.added));
    let kept: HashSet<&str> = kept.map(|file| file.path.as_str()).collect();
    let listed: Vec<_> = store.list(Some(&tarn_lake::table_prefix(table))).try_collect().await?;
    let unknown = listed.iter().filter(|object| !kept.contains(object.location.as_ref()));
    Ok(unknown.fold((0, 0), |(n, bytes), object| (n + 1, bytes + object.size)))
}

fn progress(n_bytes: u64) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(n_bytes) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("reading {bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, eta {eta}");
    bar.set_style(style.expect("the template parses"));
    bar
}

fn as_told(error: tarn_node::error::Error) -> anyhow::Error {
    match error.hint() {
        Some(hint) => anyhow!("{}; {hint}", error.message()),
        None => anyhow!("{}", error.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(settings: &NodeSettings, table: &[&str]) -> Result<()> {
        let table = table.iter().map(|name| (*name).to_owned()).collect();
        CheckLake { flags: SettingFlags::default(), table, pace: None }.check(settings).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn damage_is_found_in_the_lake_of_a_stopped_server() {
        let dir = tempfile::tempdir().unwrap();
        let settings = NodeSettings { data_dir: dir.path().to_owned(), background: false, ..NodeSettings::default() };
        let mut served = tarn::settings::Settings { node: settings.clone(), ..Default::default() };
        (served.server.pg_listen, served.server.http_listen) = (([127, 0, 0, 1], 0).into(), None);
        let running = tarn::server::start(served).await.unwrap();
        let config = format!("host=127.0.0.1 port={} user=tester dbname=tarn", running.pg.port());
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
        let driven = tokio::spawn(connection);
        for name in ["a", "b"] {
            let make = format!(
                "CREATE TABLE {name} (k int PRIMARY KEY, v text); INSERT INTO {name} VALUES (1, 'x'); DELIVER TABLE {name}"
            );
            client.batch_execute(&make).await.unwrap();
        }
        let found = client.simple_query("SELECT path FROM tarn.files WHERE table_name = 'b'").await.unwrap();
        let path = found.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        let path = dir.path().join("lake").join(path.unwrap());
        let refused = check(&settings, &[]).await.unwrap_err().to_string();
        assert!(refused.contains("open: stop it first"), "{refused}");
        drop(client);
        driven.await.unwrap().unwrap();
        running.stop().await.unwrap();

        check(&settings, &[]).await.unwrap();
        let refused = check(&settings, &["c"]).await.unwrap_err().to_string();
        assert_eq!(refused, "there is no table \"c\" with files in the lake");
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[40] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        check(&settings, &["a"]).await.unwrap();
        for table in [&[][..], &["a", "b"]] {
            let refused = check(&settings, table).await.unwrap_err().to_string();
            assert!(refused.starts_with("1 damaged places in 1 files"), "{refused}");
        }
        std::fs::write(&path, whole).unwrap();
        check(&settings, &[]).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(check(&settings, &["b"]).await.is_err());
    }
}
