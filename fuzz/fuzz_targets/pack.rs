//! Any bytes over a pack: it is refused, or verifies and answers; nothing panics, and what verifies answers as it did.
//!
//! The pack is one that was written, because random bytes do not find a checksum; the input goes anywhere over it.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use tarn_metastore::{
    Block, BlockMetadata, BlockMetadataRequest, BloomBuilder, ColumnChunk, ColumnStats, Commit, CommitKind, Embedded,
    ExpectedVersion, File, Metastore, MetastoreExt, Probe, VersionSelector, hour_blocks, token_hash,
};
use tarn_types::{
    Column, ColumnId, DataType, KeyPart, ManualClock, TableId, TableOptions, TableSchema, TabletId, Value, Version,
};

struct Base {
    dir: tempfile::TempDir,
    pack: PathBuf,
    bytes: Vec<u8>,
    runtime: tokio::runtime::Runtime,
}

fn open(dir: &std::path::Path) -> Result<Embedded, tarn_metastore::Error> {
    Embedded::open(dir, Arc::new(ManualClock::new(0))).map(|(metastore, _)| metastore)
}

/// A store with one pack of a few blocks, in an hour that is over.
async fn fill(metastore: &Embedded) {
    let column =
        Column { id: ColumnId(0), name: "k".to_owned(), data_type: DataType::Int64, nullable: false, default: None };
    let schema = TableSchema {
        id: TableId(0),
        name: "t".to_owned(),
        columns: vec![column],
        key: vec![KeyPart { column_idx: 0, descending: false }],
        n_partition_key: 1,
        first_tablet: TabletId(0),
        options: TableOptions::default(),
    };
    let table = metastore.create_table(schema).await.expect("a new store").id;
    for (number, hour) in [(0u32, 1), (1, 1), (2, 1), (3, 2)] {
        let file = metastore.allocate_files(1).await.expect("ids");
        let mut bloom = BloomBuilder::new(4);
        bloom.insert(token_hash("a"));
        let stats = ColumnStats {
            column: ColumnId(1),
            min: Some(Value::Int64(3)),
            max: None,
            exact: true,
            null_count: number.into(),
            bytes: 9,
        };
        let chunk = ColumnChunk { shape: "optional int64 c".into(), n_values: 7, ..ColumnChunk::default() };
        let block_metadata = BlockMetadata { row_group: 0, columns: vec![(stats, chunk)], bloom: Some(bloom.finish()) };
        let added = File {
            id: file,
            path: number.to_string(),
            size_bytes: 1,
            n_rows: 1,
            hour,
            etag: None,
            blocks: vec![Block { row_group: 0, first_row: 0, n_rows: 1, bytes: 1, columns: vec![] }],
            created_version: Version(0),
            sorted_by_key: true,
            note: None,
            checksums: None,
        };
        let commit = Commit {
            id: uuid::Uuid::from_u128(file.0.into()),
            expected: ExpectedVersion::Latest,
            add: vec![added],
            block_metadata: [(file, vec![block_metadata])].into(),
            remove: vec![],
            deletion_vectors: BTreeMap::new(),
            cursor: None,
            kind: CommitKind::Delivery,
            at_ms: 0,
        };
        metastore.commit(table, commit).await.expect("a commit");
    }
    while metastore.maintain(1 << 20).await.expect("upkeep").more {}
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let metastore = open(dir.path()).expect("a new store");
        runtime.block_on(fill(&metastore));
        let mut packs = fs::read_dir(dir.path().join("packs/1")).expect("packs");
        let pack = packs.next().expect("a pack").expect("its name").path();
        Base { dir, bytes: fs::read(&pack).expect("its bytes"), pack, runtime }
    })
}

/// Everything there is, if all of it can be read.
async fn read(metastore: &Embedded) -> Result<String, tarn_metastore::Error> {
    let table = metastore.tables().await?[0].id;
    let hours = hour_blocks(&metastore.snapshot(table, VersionSelector::Latest).await?.files);
    let clauses = vec![vec![vec![token_hash("a"), token_hash("b")]]];
    let probed = metastore.probe(table, Probe { hours: hours.clone(), clauses }).await;
    let block_metadata = metastore
        .block_metadata(table, BlockMetadataRequest { hours, columns: None, stats: true, chunks: true, blooms: true })
        .await;
    metastore.verify().await?;
    Ok(format!("{:?} {:?}", probed?, block_metadata?))
}

fuzz_target!(|input: (u16, &[u8])| {
    let Base { dir, pack, bytes, runtime } = base();
    static WHOLE: OnceLock<String> = OnceLock::new();
    let whole = WHOLE.get_or_init(|| {
        runtime.block_on(async { read(&open(dir.path()).expect("it opens")).await.expect("it is whole") })
    });
    let (at, over) = input;
    let mut damaged = bytes.clone();
    let start = usize::from(at) % damaged.len();
    let n = over.len().min(damaged.len() - start);
    damaged[start..start + n].copy_from_slice(&over[..n]);
    fs::write(pack, &damaged).expect("a write");
    if let Ok(metastore) = open(dir.path())
        && let Ok(now) = runtime.block_on(read(&metastore))
    {
        assert_eq!(&now, whole);
    }
});
