//! `tarn metastore`: copy a metastore into another, check one, bring one up to date.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use tarn::settings::{Layers, NodeSettings};
use tarn_metastore::{CopyStats, Error, Metastore, MetastoreExt, Stats, TableSum};
use tarn_node::clock::SystemClock;
use tarn_node::metastores::{self, MetastoreLocation};
use tarn_types::Kind;
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::client::runtime;
use super::output::{grouped, table};

/// Partitions of more bytes than this are warned of: at twice that much, nodes suffer.
const LARGE_PARTITION_BYTES: u64 = 50 << 20;

/// What the target of a copy may write of its packs in one turn.
const MAINTENANCE_BYTES: u64 = 64 << 20;

/// Copy a metastore, check one, or bring one up to date
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn metastore copy --from ./tarn-data/meta --to postgres://tarn@db/tarn
  tarn metastore check ./tarn-data/meta
  tarn metastore migrate cql://c1,c2/tarn

A metastore is a folder, or the URL of a database as in the setting `metastore`. TARN_METASTORE_TIMEOUT_MS, \
TARN_METASTORE_CONCURRENCY and TARN_METASTORE_HEDGE_MS say how it is asked. Stop the servers that write to it first.")]
pub struct MetastoreCommand {
    #[command(subcommand)]
    what: MetastoreAction,
}

#[derive(Subcommand)]
enum MetastoreAction {
    /// Copy tables, versions, commits and details, ids and all; goes on where an earlier copy stopped
    #[command(after_help = "\
The target must be empty, or hold what an earlier copy of the same metastore left. Afterwards both are read again and compared. \
Then start the server with `metastore` set to the target, and the same data folder and lake: no file of the lake is touched.")]
    Copy {
        /// Folder or URL to read from
        #[arg(long, value_name = "DIR|URL")]
        from: String,
        /// Folder or URL to write to
        #[arg(long, value_name = "DIR|URL")]
        to: String,
        /// Do not read both again at the end
        #[arg(long)]
        unchecked: bool,
    },
    /// Read everything and name what is damaged: counts, checksums, sizes; changes nothing
    Check {
        /// Folder or URL
        #[arg(value_name = "DIR|URL")]
        place: String,
    },
    /// Bring the tables of a database to the layout of this build, while servers use them
    Migrate {
        /// URL, as in the setting `metastore`
        #[arg(value_name = "URL")]
        place: String,
    },
}

impl MetastoreCommand {
    /// Copies, checks or migrates; the servers that write to it are to be stopped.
    pub fn run(self) -> Result<()> {
        let settings = settings()?;
        let typed = |text: &str| MetastoreLocation::typed(text, &settings);
        runtime()?.block_on(async {
            match &self.what {
                MetastoreAction::Copy { from, to, unchecked } => copy(&typed(from), &typed(to), !unchecked).await,
                MetastoreAction::Check { place } => check(&typed(place)).await,
                MetastoreAction::Migrate { place } => migrate(&typed(place)).await,
            }
        })
    }
}

/// Those of the environment: how a server is asked.
fn settings() -> Result<NodeSettings> {
    let mut layers = Layers::default();
    layers.environment(std::env::vars())?;
    Ok(layers.settings().node.clone())
}

async fn open(location: &MetastoreLocation) -> Result<Arc<dyn Metastore>> {
    let opened = metastores::open(location, Arc::new(SystemClock::default()), &Handle::current()).await;
    opened.map_err(|error| {
        let remedy =
            if matches!(error, Error::Locked { .. }) { ": stop the server that has it open first" } else { "" };
        anyhow::Error::new(error).context(format!("open the metastore {}{remedy}", location.shown()))
    })
}

/// A folder that holds a metastore; the data folder around one is a slip.
fn must_hold_a_metastore(dir: &Path) -> Result<()> {
    ensure!(dir.is_dir(), "{} is not a folder", dir.display());
    let inner = dir.join("meta");
    if !holds_one(dir) && holds_one(&inner) {
        bail!("{} is the data folder: take {}", dir.display(), inner.display());
    }
    ensure!(holds_one(dir), "there is no metastore in {}", dir.display());
    Ok(())
}

fn holds_one(dir: &Path) -> bool {
    let names = dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().ends_with(".tarn"))
}

/// A folder that is new, empty, or holds a metastore: nothing else gets files of one among its own.
fn must_be_free(dir: &Path) -> Result<()> {
    let entries = match dir.read_dir() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("read the folder {}", dir.display()))?,
    };
    // Left by one who was stopped before anything was written.
    let is_other = |name: &std::ffi::OsStr| name != "lock";
    if holds_one(dir) || !entries.flatten().any(|entry| is_other(&entry.file_name())) {
        return Ok(());
    }
    if holds_one(&dir.join("meta")) {
        bail!("{} is the data folder of a server: take a new folder, or an empty one", dir.display());
    }
    bail!("{} holds other things and no metastore: take a new folder, or an empty one", dir.display())
}

/// The path without links, `..` and the like, also of a folder that is not there yet.
fn canonical(dir: &Path) -> Result<PathBuf> {
    let (mut there, mut missing) = (std::path::absolute(dir)?, Vec::new());
    loop {
        match there.canonicalize() {
            Ok(found) => return Ok(missing.iter().rev().fold(found, |path, name| path.join(name))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let name = there.file_name().map(|name| name.to_owned());
                missing.push(name.ok_or(error).with_context(|| format!("find {}", dir.display()))?);
                there.pop();
            }
            Err(error) => return Err(error).with_context(|| format!("find {}", dir.display())),
        }
    }
}

fn must_be_apart(from: &Path, to: &Path) -> Result<()> {
    let (source, target) = (canonical(from)?, canonical(to)?);
    ensure!(source != target, "--from and --to are the same folder");
    ensure!(!target.starts_with(&source), "{} is inside {}: take a folder elsewhere", to.display(), from.display());
    ensure!(!source.starts_with(&target), "{} is inside {}: take a folder elsewhere", from.display(), to.display());
    Ok(())
}

async fn copy(from: &MetastoreLocation, to: &MetastoreLocation, checked: bool) -> Result<()> {
    ensure!(from != to, "--from and --to are the same");
    if let MetastoreLocation::Folder(dir) = from {
        must_hold_a_metastore(dir)?;
    }
    if let (MetastoreLocation::Folder(from), MetastoreLocation::Folder(to)) = (from, to) {
        must_be_apart(from, to)?;
    }
    if let MetastoreLocation::Folder(dir) = to {
        must_be_free(dir)?;
    }
    let (source, target) = (open(from).await?, open(to).await?);
    let all = tarn_metastore::extent(source.as_ref()).await.with_context(|| from.shown())?;
    let bar = progress(&all)?;
    let report = |copied: &CopyStats| {
        bar.set_position(copied.files + copied.versions);
        bar.set_message(format!("{} of {} tables", copied.tables, all.tables));
    };
    let copied = tarn_metastore::copy(source.as_ref(), target.as_ref(), &report).await;
    let copied = copied.map_err(|error| {
        let what_now = match error.kind() {
            Kind::Invalid => "the target holds what is not of this source: take an empty one",
            Kind::NotFound => "the source forgot what the copy was begun with: empty the target and begin anew",
            _ => "started again, it goes on",
        };
        anyhow::Error::new(error).context(format!("copy {} to {}; {what_now}", from.shown(), to.shown()))
    })?;
    bar.set_message("putting details together");
    while target.maintain(MAINTENANCE_BYTES).await?.more {}
    bar.finish_and_clear();
    let [tables, versions, files, blocks] = [copied.tables, copied.versions, copied.files, copied.blocks].map(grouped);
    say!("{tables} tables, {versions} versions, {files} files, {blocks} blocks")?;
    if !checked {
        return Ok(());
    }
    let of_source = tarn_metastore::sums(source.as_ref()).await.with_context(|| from.shown())?;
    let of_target = tarn_metastore::sums(target.as_ref()).await.with_context(|| to.shown())?;
    print(&of_target)?;
    let differs = of_source.iter().zip(&of_target).find(|(source, target)| source != target);
    if let Some((source, _)) = differs {
        bail!("table {} is not the same in both: was it written to meanwhile? start the copy again", source.table);
    }
    ensure!(of_source.len() == of_target.len(), "the source has {} tables now: start the copy again", of_source.len());
    say!("both are the same")?;
    Ok(())
}

fn progress(all: &CopyStats) -> Result<ProgressBar> {
    let length = all.files + all.versions;
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(length) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("copying {bar:40} {percent:>3} % {msg} eta {eta}")?);
    Ok(bar)
}

/// Also what `tarn check metastore` does.
pub async fn check(location: &MetastoreLocation) -> Result<()> {
    let MetastoreLocation::Folder(dir) = location else { return check_opened(location).await };
    must_hold_a_metastore(dir)?;
    let scratch = twin(dir)?;
    let checked = check_opened(&MetastoreLocation::Folder(scratch.path().to_owned())).await;
    // The folder itself is damaged, not only its twin.
    let inside = scratch.path().display().to_string();
    checked.map_err(|error| anyhow!("{}", format!("{error:#}").replace(&inside, &dir.display().to_string())))
}

/// A metastore to read from. One in a folder is opened beside it, so that nothing of it changes; the folder goes with
/// the second part.
pub async fn open_twin(location: &MetastoreLocation) -> Result<(Arc<dyn Metastore>, Option<TempDir>)> {
    let MetastoreLocation::Folder(dir) = location else { return Ok((open(location).await?, None)) };
    must_hold_a_metastore(dir)?;
    let scratch = twin(dir)?;
    let opened = open(&MetastoreLocation::Folder(scratch.path().to_owned())).await;
    let inside = scratch.path().display().to_string();
    let opened =
        opened.map_err(|error| anyhow!("{}", format!("{error:#}").replace(&inside, &dir.display().to_string())));
    Ok((opened?, Some(scratch)))
}

async fn check_opened(location: &MetastoreLocation) -> Result<()> {
    let metastore = open(location).await?;
    let sums = tarn_metastore::sums(metastore.as_ref()).await.with_context(|| location.shown())?;
    print(&sums)?;
    for line in describe(&metastore.stats().await?) {
        say!("{line}")?;
    }
    say!("sound")?;
    Ok(())
}

/// The same folder once more: opening one cuts a torn end off and sweeps it. Its large files are not copied where that
/// can be helped, because they are never written to again.
fn twin(dir: &Path) -> Result<TempDir> {
    let beside = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = tempfile::tempdir_in(beside).or_else(|_| tempfile::tempdir()).context("make a temporary folder")?;
    link(dir, scratch.path())?;
    Ok(scratch)
}

fn link(from: &Path, to: &Path) -> Result<()> {
    for entry in from.read_dir()? {
        let path = entry?.path();
        let Some(name) = path.file_name().filter(|name| *name != "lock") else { continue };
        let twin = to.join(name);
        if path.is_dir() {
            std::fs::create_dir(&twin)?;
            link(&path, &twin)?;
        } else {
            let immutable = path.extension().is_some_and(|extension| extension == "pack");
            if !immutable || std::fs::hard_link(&path, &twin).is_err() {
                std::fs::copy(&path, &twin).with_context(|| format!("read {}", path.display()))?;
            }
        }
    }
    Ok(())
}

fn print(sums: &[TableSum]) -> Result<()> {
    let header = ["table", "versions", "files", "blocks", "live rows", "details", "checksum"].map(str::to_owned);
    let row = |sum: &TableSum| {
        let TableSum { table, versions, files, blocks, n_rows, block_metadata, digest } = sum;
        let counts = [versions, files, blocks, n_rows, block_metadata].map(|n| Some(grouped(*n)));
        std::iter::once(Some(table.clone())).chain(counts).chain([Some(format!("{digest:016x}"))]).collect()
    };
    say!("{}", table(&header, &sums.iter().map(row).collect::<Vec<_>>()))?;
    Ok(())
}

/// How much there is, and what is too much.
fn describe(stats: &Stats) -> Vec<String> {
    let mut lines = vec![format!(
        "blooms {}, columns {}, {} packs, {} loose blocks, log {}, checkpoint {}",
        HumanBytes(stats.bloom_bytes),
        HumanBytes(stats.column_bytes),
        grouped(stats.packs),
        grouped(stats.loose_blocks),
        HumanBytes(stats.log_bytes),
        HumanBytes(stats.checkpoint_bytes)
    )];
    if stats.largest_partition_bytes > 0 {
        let large =
            if stats.largest_partition_bytes > LARGE_PARTITION_BYTES { ": too many blocks an hour" } else { "" };
        lines.push(format!("largest partition about {}{large}", HumanBytes(stats.largest_partition_bytes)));
    }
    lines
}

async fn migrate(location: &MetastoreLocation) -> Result<()> {
    if let MetastoreLocation::Folder(dir) = location {
        must_hold_a_metastore(dir)?;
    }
    let report = |step: &str| {
        // Nobody has to listen.
        let _ = say!("{step}");
    };
    let migrated = metastores::migrate(location, &Handle::current(), &report).await;
    migrated.with_context(|| format!("migrate {}; started again, it goes on", location.shown()))?;
    if let MetastoreLocation::Server(remote) = location {
        say!("{} is up to date", remote.shown())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tarn_metastore::{Commit, CommitKind, Embedded, ExpectedVersion, File, MetastoreExt, VersionSelector};
    use tarn_types::{Column, ColumnId, DataType, KeyPart, TableId, TableOptions, TableSchema, TabletId, Version};

    use super::*;

    async fn filled(dir: &Path) {
        let (metastore, _) = Embedded::open(dir, Arc::new(SystemClock::default())).unwrap();
        let key =
            Column { id: ColumnId(1), name: "k".into(), data_type: DataType::Int64, nullable: false, default: None };
        for name in ["a", "b"] {
            let schema = TableSchema {
                id: TableId(0),
                name: name.into(),
                columns: vec![key.clone()],
                key: vec![KeyPart { column_idx: 0, descending: false }],
                n_partition_key: 1,
                first_tablet: TabletId(0),
                options: TableOptions::default(),
            };
            let table = metastore.create_table(schema).await.unwrap().id;
            for version in 0..3 {
                let file = File {
                    id: metastore.allocate_files(1).await.unwrap(),
                    path: format!("{name}/{version}"),
                    size_bytes: 100,
                    n_rows: 0,
                    hour: version,
                    etag: None,
                    blocks: vec![],
                    created_version: Version(0),
                    sorted_by_key: true,
                    note: None,
                    checksums: None,
                };
                let commit = Commit {
                    id: uuid::Uuid::new_v4(),
                    expected: ExpectedVersion::Latest,
                    add: vec![file],
                    block_metadata: Default::default(),
                    remove: vec![],
                    deletion_vectors: Default::default(),
                    cursor: None,
                    kind: CommitKind::Attach,
                    at_ms: 1_000,
                };
                metastore.commit(table, commit).await.unwrap();
            }
        }
    }

    fn folder(path: PathBuf) -> MetastoreLocation {
        MetastoreLocation::Folder(path)
    }

    #[tokio::test]
    async fn from_folder_to_folder() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| folder(dir.path().join(name));
        let error = copy(&place("data"), &place("copy"), true).await.unwrap_err().to_string();
        assert!(error.ends_with("data is not a folder"), "{error}");
        filled(&dir.path().join("data/meta")).await;
        let error = copy(&place("data"), &place("copy"), true).await.unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("is the data folder: take {}", dir.path().join("data/meta").display())),
            "{error}"
        );
        for _ in 0..2 {
            copy(&place("data/meta"), &place("copy"), true).await.unwrap();
        }
        check(&place("copy")).await.unwrap();
        let (copied, _) = Embedded::open(dir.path().join("copy"), Arc::new(SystemClock::default())).unwrap();
        let tables = copied.tables().await.unwrap();
        assert_eq!(tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(copied.snapshot(tables[1].id, VersionSelector::Latest).await.unwrap().files.len(), 3);
        let error = check(&place("copy")).await;
        error.expect("its twin is not locked");
        let error = copy(&place("data/meta"), &place("copy"), true).await.unwrap_err();
        let told = format!("{error:#}");
        assert!(told.contains("held by another process") && told.contains("stop the server"), "{told}");
        drop(copied);
        let error = copy(&place("copy"), &place("copy"), true).await.unwrap_err().to_string();
        assert_eq!(error, "--from and --to are the same");
        // A target of somebody else.
        filled(&dir.path().join("other")).await;
        let (other, _) = Embedded::open(dir.path().join("other"), Arc::new(SystemClock::default())).unwrap();
        other.drop_table("a").await.unwrap();
        drop(other);
        let error = copy(&place("other"), &place("copy"), true).await.unwrap_err();
        let told = format!("{error:#}");
        assert!(told.contains("the source has no such table") && told.contains("take an empty one"), "{told}");
        assert!(!told.contains("it goes on"), "{told}");
    }

    #[tokio::test]
    async fn a_copy_goes_nowhere_but_to_a_new_folder_or_a_metastore() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let meta = at("data/meta");
        filled(&meta).await;
        std::os::unix::fs::symlink(&meta, at("link")).unwrap();
        for name in ["photos", "empty", "stopped"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("photos/1.jpg"), "x").unwrap();
        std::fs::write(at("stopped/lock"), "").unwrap();
        for (to, want) in [
            ("photos", "holds other things and no metastore"),
            ("photos/1.jpg", "read the folder"),
            ("data", "is inside"),
            ("data/meta/copy/deep", "is inside"),
            ("photos/../data/meta/copy", "is inside"),
            ("link", "are the same folder"),
            ("data/../data/meta", "are the same folder"),
            ("link/copy", "is inside"),
        ] {
            let error = copy(&folder(meta.clone()), &folder(at(to)), true).await.unwrap_err();
            assert!(format!("{error:#}").contains(want), "{to}: {error:#}");
        }
        assert_eq!(at("photos").read_dir().unwrap().count(), 1);
        filled(&at("other/meta")).await;
        let error = copy(&folder(meta.clone()), &folder(at("other")), true).await.unwrap_err();
        assert!(format!("{error:#}").contains("is the data folder of a server"), "{error:#}");
        // Tables of the same ids and names, and yet another store.
        let error = copy(&folder(meta.clone()), &folder(at("other/meta")), true).await.unwrap_err();
        let told = format!("{error:#}");
        assert!(told.contains("the source has not") && told.contains("take an empty one"), "{told}");
        for to in ["empty", "stopped", "new/deep"] {
            copy(&folder(meta.clone()), &folder(at(to)), true).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_folder_without_a_metastore_is_not_migrated() {
        let dir = tempfile::tempdir().unwrap();
        let error = migrate(&folder(dir.path().join("nope"))).await.unwrap_err();
        assert!(error.to_string().ends_with("nope is not a folder"), "{error}");
        filled(&dir.path().join("meta")).await;
        migrate(&folder(dir.path().join("meta"))).await.unwrap();
    }

    #[tokio::test]
    async fn a_check_names_damage_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let meta = dir.path().join("meta");
        filled(&meta).await;
        let bytes = |meta: &Path| {
            let entries = meta.read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
            let mut files: Vec<_> = entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
            files.sort();
            files
        };
        let before = bytes(&meta);
        check(&folder(meta.clone())).await.unwrap();
        assert_eq!(bytes(&meta), before);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing is left beside it");
        let (log, whole) = before.iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        std::fs::write(log, damaged).unwrap();
        let error = format!("{:#}", check(&folder(meta)).await.unwrap_err());
        assert!(error.contains(&format!("{} at byte", log.display())), "{error}");
    }

    #[tokio::test]
    async fn urls_that_no_backend_has_are_named_without_their_password() {
        let settings = NodeSettings::default();
        let location = MetastoreLocation::typed("mystore://me:secret@h/db", &settings);
        for error in [check(&location).await, migrate(&location).await] {
            let error = format!("{:#}", error.unwrap_err());
            assert!(error.contains("mystore://me@h/db") && !error.contains("secret"), "{error}");
        }
    }
}
