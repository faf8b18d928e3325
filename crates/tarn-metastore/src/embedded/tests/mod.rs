//! Does the embedded backend keep the contract, however eagerly it packs and folds?

mod damage;
mod groups;
mod maintenance;
mod mend;

use std::path::PathBuf;

use tempfile::TempDir;

use tarn_types::ManualClock;

use super::*;
use crate::contract::{self, Script, scratch};
use crate::{MetastoreExt, hour_blocks, log};

/// Does at once, and over and over, what is seldom due.
const EAGER: Limits =
    Limits { log_bytes: 300, block_metadata_bytes: 600, patience: 1, loose_blocks: 1, loose_bytes: 1, merged_packs: 2 };

/// Packs and folds only when it is asked to; then all there is.
const READY: Limits = Limits { log_bytes: 1, block_metadata_bytes: 1, patience: u64::MAX / (1 << 40), ..EAGER };

const HEADER: u64 = log::HEADER_BYTES;
const SEAL: u64 = 17;

fn open_with(dir: &Path, limits: Limits) -> Result<(Embedded, Recovery)> {
    Embedded::open_with(dir, Arc::new(ManualClock::new(1_000)), limits)
}

fn open(dir: &Path) -> Result<(Embedded, Recovery)> {
    open_with(dir, Limits::default())
}

fn made() -> (Embedded, TempDir) {
    let dir = scratch().unwrap();
    (open(dir.path()).unwrap().0, dir)
}

contract::suite!(made);
contract::suite!(made; a_probe_equals_sbbf);

/// Folds after almost every change.
mod eager {
    use super::*;

    contract::suite!(|| {
        let dir = scratch().unwrap();
        let metastore = open_with(dir.path(), EAGER).unwrap().0;
        (metastore, dir)
    });
}

/// Packs before anything is read, so that nothing is read from where it was written first.
mod packed {
    use super::*;

    struct PackedEmbedded(Embedded);

    impl PackedEmbedded {
        async fn pack(&self) -> Result<()> {
            while self.0.maintain(1 << 30).await?.more {}
            Ok(())
        }
    }

    #[async_trait]
    #[deny(clippy::missing_trait_methods)]
    impl Metastore for PackedEmbedded {
        async fn tables(&self) -> Result<Vec<Arc<TableSchema>>> {
            self.0.tables().await
        }

        async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>> {
            self.0.define(definition).await
        }

        async fn allocate_files(&self, n: u64) -> Result<FileId> {
            self.0.allocate_files(n).await
        }

        async fn commit(&self, table: TableId, commit: Commit) -> Result<Version> {
            self.0.commit(table, commit).await
        }

        async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>> {
            self.0.commits(table, after).await
        }

        async fn snapshot(&self, table: TableId, at: VersionSelector) -> Result<Arc<TableVersion>> {
            self.0.snapshot(table, at).await
        }

        async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult> {
            self.pack().await?;
            self.0.probe(table, probe).await
        }

        async fn block_metadata(&self, table: TableId, wanted: BlockMetadataRequest) -> Result<MetadataByColumn> {
            self.pack().await?;
            self.0.block_metadata(table, wanted).await
        }

        async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
            self.0.expire(table, keep).await
        }

        async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport> {
            self.0.maintain(budget_bytes).await
        }
    }

    contract::suite!(|| {
        let dir = scratch().unwrap();
        let metastore = PackedEmbedded(open_with(dir.path(), EAGER).unwrap().0);
        (metastore, dir)
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn describe(metastore: &Embedded) -> String {
    runtime().block_on(contract::describe(metastore))
}

/// Reads all block metadata of all versions.
async fn read_all(metastore: &Embedded) -> Result<()> {
    for table in metastore.tables().await? {
        let oldest = metastore.snapshot(table.id, VersionSelector::Oldest).await?.version;
        for version in oldest.0..=metastore.version(table.id).await?.0 {
            let files = metastore.snapshot(table.id, VersionSelector::Version(Version(version))).await?.files.clone();
            let hours = hour_blocks(&files);
            let wanted = BlockMetadataRequest { hours, columns: None, stats: true, chunks: true, blooms: true };
            metastore.block_metadata(table.id, wanted).await?;
        }
    }
    Ok(())
}

/// A folder after a script, what the metastore held after each step, and where the log ended then.
fn run_script(limits: Limits) -> (TempDir, Vec<String>, Vec<u64>) {
    let dir = scratch().unwrap();
    let (metastore, _) = open_with(dir.path(), limits).unwrap();
    let mut held = vec![describe(&metastore)];
    let mut ends = vec![HEADER];
    for step in Script::steps() {
        runtime().block_on(step.run(&metastore));
        held.push(describe(&metastore));
        ends.push(metastore.inner.writer.lock().log.size_bytes() + HEADER);
    }
    (dir, held, ends)
}

/// All files in the folder and those below it, relative to it.
fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path.strip_prefix(dir).unwrap().to_owned()),
            }
        }
    }
    files.sort();
    files
}

fn copy(dir: &Path) -> TempDir {
    let copy = scratch().unwrap();
    for file in files_in(dir) {
        let to = copy.path().join(&file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(dir.join(file), to).unwrap();
    }
    copy
}

fn last_log(dir: &Path) -> PathBuf {
    log::scan(dir).unwrap().logs.pop().unwrap().path().to_owned()
}

#[test]
fn everything_is_there_after_reopening_with_and_without_checkpoints() {
    let some = |log_bytes| Limits { log_bytes, patience: 1, ..Limits::default() };
    for limits in [EAGER, READY, some(0), some(200), some(700), Limits::default()] {
        let (dir, held, _) = run_script(limits);
        for limits in [Limits::default(), limits] {
            let (metastore, recovery) = open_with(dir.path(), limits).unwrap();
            assert_eq!(&describe(&metastore), held.last().unwrap());
            assert_eq!(recovery.torn_bytes, 0);
        }
        let (metastore, _) = open_with(dir.path(), READY).unwrap();
        while runtime().block_on(metastore.maintain(1)).unwrap().more {}
        assert_eq!(&describe(&metastore), held.last().unwrap());
        assert_eq!(log::scan(dir.path()).unwrap().logs.len(), 1, "old logs are gone");
    }
}

#[test]
fn a_second_process_is_refused() {
    let dir = scratch().unwrap();
    let first = open(dir.path()).unwrap();
    assert!(matches!(open(dir.path()), Err(Error::Locked { .. })));
    drop(first);
    assert!(open(dir.path()).is_ok());
}

#[test]
fn file_ids_are_never_given_out_twice() {
    let dir = scratch().unwrap();
    let mut next = FileId(0);
    for n in [1, 5, 2_000, 1] {
        let (metastore, _) = open(dir.path()).unwrap();
        let first = runtime().block_on(metastore.allocate_files(n)).unwrap();
        assert!(first > next, "{first} after {next}");
        next = FileId(first.0 + n - 1);
    }
}
