use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use proptest::prelude::*;
use tarn_types::{FileId, Kind, ManualClock, Version};

use super::*;
use crate::contract::{
    Backend, FailingMetastore, Script, commit, describe, sample_block_metadata, sample_file, scratch, source,
};
use crate::{Embedded, MaintenanceReport, Memory, Probe, ProbeResult, token_hash};

fn memory() -> Backend {
    Arc::new(Memory::new(Arc::new(ManualClock::new(9))))
}

fn silent(_: &CopyStats) {}

#[tokio::test]
async fn a_copy_that_was_stopped_once_anywhere_is_whole_in_the_end() {
    let source = source().await;
    let expected = (describe(&*source).await, sums(&*source).await.unwrap());
    for lose_answer in [false, true] {
        for changes in 1.. {
            let to = memory();
            let stopping = FailingMetastore { inner: to.clone(), left: AtomicI64::new(changes), lose_answer };
            let stopped = copy(&*source, &stopping, &silent).await;
            if stopped.is_err() {
                copy(&*source, &*to, &silent).await.unwrap();
            }
            assert_eq!((describe(&*to).await, sums(&*to).await.unwrap()), expected, "stopped at change {changes}");
            if stopped.is_ok() {
                assert!(changes > 10, "{changes}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn the_source_may_live_on_while_it_is_copied_but_not_forget() {
    let source = source().await;
    let to = memory();
    // Stopped while the files of the table `a` are under way: its version is restored, but not whole.
    let stopping = FailingMetastore { inner: to.clone(), left: AtomicI64::new(4), lose_answer: false };
    copy(&*source, &stopping, &silent).await.unwrap_err();
    let table = source.tables().await.unwrap()[0].clone();
    let wider = Box::new(crate::contract::with_column(&table, "later"));
    source.define(Definition::Alter { from: table.clone(), to: wider }).await.unwrap();
    let version = source.version(table.id).await.unwrap();
    source.commit(table.id, commit(70, version.0)).await.unwrap();
    copy(&*source, &*to, &silent).await.unwrap();
    assert_eq!(sums(&*to).await.unwrap(), sums(&*source).await.unwrap());

    let late = memory();
    let stopping = FailingMetastore { inner: late.clone(), left: AtomicI64::new(4), lose_answer: false };
    copy(&*source, &stopping, &silent).await.unwrap_err();
    source.expire(table.id, Version(version.0 + 1)).await.unwrap();
    let error = copy(&*source, &*late, &silent).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[tokio::test]
async fn a_target_of_somebody_else_is_told_by_its_tables_and_commits() {
    let with = async |name: &str, commits: &[u128]| {
        let metastore = memory();
        let table = metastore.create_table(crate::contract::sample_schema(name)).await.unwrap().id;
        for (version, id) in (0..).zip(commits) {
            metastore.commit(table, commit(*id, version)).await.unwrap();
        }
        metastore
    };
    let from = with("t", &[1, 2, 3]).await;
    for (target, want) in [
        (with("u", &[1]).await, "the source has another table of its id"),
        (with("t", &[1, 7]).await, "it has commits that the source has not"),
        (with("t", &[1, 2, 3, 4]).await, "it has commits that the source has not"),
    ] {
        let before = describe(&*target).await;
        let error = copy(&*from, &*target, &silent).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains(want)), (Kind::Invalid, true), "{error}");
        assert_eq!(describe(&*target).await, before);
    }
    let target = with("t", &[1, 2]).await;
    copy(&*from, &*target, &silent).await.unwrap();
    assert_eq!(sums(&*target).await.unwrap(), sums(&*from).await.unwrap());
}

#[tokio::test]
async fn sums_tell_what_differs_and_not_what_keeps_it() {
    let of = async |change: fn(&mut Commit)| {
        let metastore = memory();
        let table = metastore.create_table(crate::contract::sample_schema("t")).await.unwrap().id;
        metastore.allocate_files(9).await.unwrap();
        let block_metadata =
            [(FileId(1), sample_block_metadata(&["a"])), (FileId(2), sample_block_metadata(&["b"]))].into();
        let add = vec![sample_file(FileId(1), 3), sample_file(FileId(2), 4)];
        let dead = [(FileId(1), [0, 2].into())].into();
        let mut commit = Commit { add, block_metadata, deletion_vectors: dead, ..commit(1, 0) };
        change(&mut commit);
        metastore.commit(table, commit).await.unwrap();
        sums(&*metastore).await.unwrap()[0].digest
    };
    let same = of(|_| {}).await;
    assert_eq!(of(|_| {}).await, same);
    let changes: [fn(&mut Commit); 8] = [
        |commit| commit.at_ms += 1,
        |commit| commit.add[1].path.push('x'),
        |commit| commit.add[1].checksums = None,
        |commit| commit.deletion_vectors = [(FileId(1), [0, 1].into())].into(),
        |commit| commit.deletion_vectors.clear(),
        |commit| drop(commit.block_metadata.remove(&FileId(2))),
        |commit| commit.block_metadata.get_mut(&FileId(2)).unwrap()[0].columns[1].1.data_page_offset += 1,
        |commit| commit.block_metadata.get_mut(&FileId(2)).unwrap()[0].bloom = None,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        assert_ne!(of(change).await, same, "change {at}");
    }
    // In a file of its own every list of rows is written in one way; in memory it may have come to be in several.
    let mut runs = roaring::RoaringBitmap::from_iter(0..5000);
    runs.optimize();
    let (mut as_runs, mut as_bits) = (vec![], vec![]);
    put_dead(&mut as_runs, Some(&runs));
    put_dead(&mut as_bits, Some(&roaring::RoaringBitmap::from_iter(0..5000)));
    assert_eq!(as_runs, as_bits);
}

/// Hours that are in packs, and one that is loose.
async fn packed(dir: &std::path::Path) -> Embedded {
    let (metastore, _) = Embedded::open(dir, Arc::new(ManualClock::new(9))).unwrap();
    let table = metastore.create_table(crate::contract::sample_schema("t")).await.unwrap().id;
    metastore.allocate_files(40).await.unwrap();
    for n in 1..=30 {
        let file = File { hour: n as i64 / 10, ..sample_file(FileId(n), 3) };
        let block_metadata = [(file.id, sample_block_metadata(&["a", "b"]))].into();
        metastore.commit(table, Commit { add: vec![file], block_metadata, ..commit(n.into(), n - 1) }).await.unwrap();
    }
    while metastore.maintain(1 << 20).await.unwrap().more {}
    metastore
}

#[tokio::test]
async fn damage_is_named() {
    let dir = scratch().unwrap();
    let metastore = packed(dir.path()).await;
    let sum = sums(&metastore).await.unwrap();
    assert_eq!((sum[0].files, sum[0].block_metadata), (30, 90));
    drop(metastore);
    let packs = walk(&dir.path().join("packs"));
    assert!(!packs.is_empty());
    for pack in packs {
        let whole = std::fs::read(&pack).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 9) {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            std::fs::write(&pack, damaged).unwrap();
            let (metastore, _) = Embedded::open(dir.path(), Arc::new(ManualClock::new(9))).unwrap();
            let error = sums(&metastore).await.unwrap_err();
            assert!(matches!(&error, Error::Corrupt { path, .. } if *path == pack), "byte {at}: {error}");
        }
        std::fs::write(&pack, whole).unwrap();
    }
    let (metastore, _) = Embedded::open(dir.path(), Arc::new(ManualClock::new(9))).unwrap();
    assert_eq!(sums(&metastore).await.unwrap(), sum);
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Forgets the last commit of every table when it is asked for whole versions.
struct ForgetfulMetastore(Backend);

#[async_trait::async_trait]
impl Metastore for ForgetfulMetastore {
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
        let whole = self.0.snapshot(table, at).await?;
        let gone = whole.files.iter().last().map(|file| file.id).filter(|_| at != VersionSelector::Oldest);
        let files = whole.files.changed([], &gone.into_iter().collect());
        Ok(Arc::new(TableVersion { files, ..(*whole).clone() }))
    }

    async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult> {
        self.0.probe(table, probe).await
    }

    async fn block_metadata(&self, table: TableId, wanted: BlockMetadataRequest) -> Result<crate::MetadataByColumn> {
        self.0.block_metadata(table, wanted).await
    }

    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>> {
        self.0.expire(table, keep).await
    }

    async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport> {
        self.0.maintain(budget_bytes).await
    }
}

#[tokio::test]
async fn versions_that_do_not_follow_from_their_commits_are_named() {
    let source = source().await;
    let error = sums(&ForgetfulMetastore(source)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("is not what its commits after version"), "{error}");
}

#[tokio::test]
async fn from_folder_to_folder_and_back_to_memory() {
    let (first, second) = (scratch().unwrap(), scratch().unwrap());
    let from = packed(first.path()).await;
    let (to, _) = Embedded::open(second.path(), Arc::new(ManualClock::new(9))).unwrap();
    copy(&from, &to, &silent).await.unwrap();
    to.maintain(1 << 20).await.unwrap();
    drop(to);
    let (to, _) = Embedded::open(second.path(), Arc::new(ManualClock::new(9))).unwrap();
    let back = memory();
    copy(&to, &*back, &silent).await.unwrap();
    assert_eq!(sums(&to).await.unwrap(), sums(&from).await.unwrap());
    assert_eq!(sums(&*back).await.unwrap(), sums(&from).await.unwrap());
    // Filters came along.
    let table = back.tables().await.unwrap()[0].id;
    let hours = hour_blocks(&back.snapshot(table, VersionSelector::Latest).await.unwrap().files);
    let probe = |word: &str| Probe { hours: hours.clone(), clauses: vec![vec![vec![token_hash(word)]]] };
    assert_eq!(back.probe(table, probe("a")).await.unwrap().kept.len(), 30);
    assert_eq!(back.probe(table, probe("nowhere")).await.unwrap(), to.probe(table, probe("nowhere")).await.unwrap());
}

#[tokio::test]
async fn a_script_is_copied_after_every_step() {
    let source = memory();
    let to = memory();
    for step in Script::steps() {
        if matches!(step, Script::Drop(_) | Script::Expire(_)) {
            continue;
        }
        let restoring = matches!(step, Script::Restore | Script::RestoreFiles(_));
        step.run(&*source).await;
        // A source that is itself being filled has nothing to follow on yet.
        if !restoring {
            copy(&*source, &*to, &silent).await.unwrap();
            assert_eq!(describe(&*to).await, describe(&*source).await);
        }
    }
}

proptest! {
    #[test]
    fn batches_have_every_file_once_and_keep_to_their_size(
        blocks in proptest::collection::vec((0..5usize, -2..3i64), 0..300),
        per_block in 1..2_000_000u64,
    ) {
        let file = |(n, (blocks, hour)): (u64, &(usize, i64))| {
            let block = sample_file(FileId(n), 1).blocks.remove(0);
            Arc::new(File { hour: *hour, blocks: vec![block; *blocks], ..sample_file(FileId(n), 0) })
        };
        let files: Vec<Arc<File>> = (1..).zip(&blocks).map(file).collect();
        let mut batches = Batches::new(files.iter());
        let (mut seen, mut most) = (vec![], FIRST_BLOCKS);
        while let Some(batch) = batches.next() {
            let n_blocks: u64 = batch.iter().map(|file| file.blocks.len() as u64).sum();
            prop_assert!(batch.len() == 1 || n_blocks <= most);
            seen.extend(batch.iter().map(|file| (file.hour, file.id)));
            batches.took(n_blocks * per_block);
            if n_blocks > 0 {
                most = (BATCH_BYTES / per_block).max(1);
            }
        }
        let mut expected: Vec<_> = files.iter().map(|file| (file.hour, file.id)).collect();
        expected.sort();
        prop_assert_eq!(seen, expected);
    }
}
