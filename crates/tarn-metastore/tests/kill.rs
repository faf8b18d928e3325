//! Does a metastore whose process is killed, whatever it was at, open to all that it answered?

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tarn_metastore::{
    Block, BlockMetadata, BloomBuilder, Commit, CommitKind, Embedded, ExpectedVersion, File, Metastore, MetastoreExt,
    Probe, VersionSelector, hour_blocks, token_hash,
};
use tarn_types::{
    Column, ColumnId, DataType, FileId, KeyPart, ManualClock, TableId, TableOptions, TableSchema, TabletId, Version,
};
use uuid::Uuid;

const DIR: &str = "TARN_METASTORE_KILLED";

fn schema() -> TableSchema {
    let key =
        Column { id: ColumnId(0), name: "k".to_owned(), data_type: DataType::Int64, nullable: false, default: None };
    TableSchema {
        id: TableId(0),
        name: "t".to_owned(),
        columns: vec![key],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(0),
        options: TableOptions::default(),
    }
}

/// One block with one token, its number. Every fifth comes late, for an hour that is over.
fn append(file: FileId, number: u64) -> Commit {
    let hour = if number % 5 == 4 { number / 40 } else { number / 10 } as i64;
    let block = Block { row_group: 0, first_row: 0, n_rows: 1, bytes: 1, columns: vec![] };
    let added = File {
        id: file,
        path: number.to_string(),
        size_bytes: 1,
        n_rows: 1,
        hour,
        etag: None,
        blocks: vec![block],
        created_version: Version(0),
        sorted_by_key: true,
        note: None,
        checksums: None,
    };
    let mut bloom = BloomBuilder::new(64);
    bloom.insert(token_hash(&number.to_string()));
    let block_metadata = BlockMetadata { row_group: 0, columns: vec![], bloom: Some(bloom.finish()) };
    Commit {
        id: Uuid::from_u128(file.0.into()),
        expected: ExpectedVersion::Latest,
        add: vec![added],
        block_metadata: [(file, vec![block_metadata])].into(),
        remove: vec![],
        deletion_vectors: BTreeMap::new(),
        cursor: None,
        kind: CommitKind::Delivery,
        at_ms: 0,
    }
}

fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, Arc::new(ManualClock::new(0))).unwrap().0
}

/// Commits and keeps up until it is killed; says each commit that was answered.
async fn live(dir: &Path) {
    let metastore = Arc::new(open(dir));
    let table = match metastore.tables().await.unwrap().first() {
        Some(table) => table.id,
        None => metastore.create_table(schema()).await.unwrap().id,
    };
    let maintenance = metastore.clone();
    tokio::spawn(async move {
        loop {
            maintenance.maintain(1 << 20).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let before = metastore.version(table).await.unwrap().0;
    for number in before.. {
        let file = metastore.allocate_files(1).await.unwrap();
        let version = metastore.commit(table, append(file, number)).await.unwrap();
        println!("answered {}", version.0);
    }
}

#[test]
fn what_was_answered_is_there_after_a_kill_and_nothing_is_damaged() {
    if let Some(dir) = env::var_os(DIR) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        return runtime.block_on(live(Path::new(&dir)));
    }
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut n_packs = 0;
    for round in 0..8 {
        let name = "what_was_answered_is_there_after_a_kill_and_nothing_is_damaged";
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", name, "--nocapture"]).env(DIR, dir.path()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut answered = 0;
        let mut hear =
            |line: String| answered = line.strip_prefix("answered ").map_or(answered, |n| n.parse().unwrap());
        lines.by_ref().take(20 + round * 23).for_each(|line| hear(line.unwrap()));
        child.kill().unwrap();
        // What it said before it died.
        lines.map_while(Result::ok).filter(|line| line.ends_with(|last: char| last.is_ascii_digit())).for_each(hear);
        child.wait().unwrap();

        let metastore = open(dir.path());
        runtime.block_on(async {
            let table = metastore.tables().await.unwrap()[0].id;
            let latest = metastore.snapshot(table, VersionSelector::Latest).await.unwrap();
            assert!(latest.version.0 >= answered, "{} after {answered} were answered", latest.version);
            assert_eq!(latest.files.len() as u64, latest.version.0);
            metastore.verify().await.unwrap();
            let hours = hour_blocks(&latest.files);
            for number in (0..latest.version.0).step_by(7) {
                let clauses = vec![vec![vec![token_hash(&number.to_string())]]];
                let probed = metastore.probe(table, Probe { hours: hours.clone(), clauses }).await.unwrap();
                let files = hours.iter().flat_map(|of_hour| &of_hour.blocks).map(|block| block.file);
                let has = (0..).zip(files).filter(|(_, file)| latest.file(*file).unwrap().path == number.to_string());
                assert!(has.into_iter().all(|(at, _)| probed.kept.contains(at)), "block {number} is not found");
                assert_eq!(probed.without_bloom, 0);
            }
            n_packs = n_packs.max(metastore.stats().await.unwrap().packs);
        });
    }
    assert!(n_packs > 0, "packs were made");
}
