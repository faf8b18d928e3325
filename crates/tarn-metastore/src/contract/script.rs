//! What is a short life of a metastore with every kind of record in it, and what can be read of it?

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use roaring::RoaringBitmap;

use tarn_types::{FileId, TableId, TableSchema, TabletId, Version};

use super::samples::{commit, cursor, sample_block_metadata, sample_file, sample_schema, with_column};
use crate::{
    BlockMetadataRequest, Commit, CommitKind, Definition, ExpectedVersion, File, HourBlocks, Metastore, MetastoreExt,
    VersionSelector, hour_blocks,
};

/// A short life of a metastore with every kind of record in it.
pub enum Script {
    /// A table of this name, as [`sample_schema`] has it.
    Create(&'static str),
    /// A table by its name.
    Drop(&'static str),
    /// The first table gains a column.
    Alter,
    /// A table with ids of its own begins to be restored.
    Restore,
    /// Files come to the table that is being restored.
    RestoreFiles(Box<Commit>),
    /// They are all in.
    Restored,
    /// So many file ids.
    Allocate(u64),
    /// To the first table.
    Commit(Box<Commit>),
    /// Versions of the first table below this one.
    Expire(u64),
    /// A megabyte of maintenance.
    Maintain,
}

impl Script {
    /// The life, in its order; ids follow from it, so it is to run on an empty store.
    pub fn steps() -> Vec<Self> {
        let block_metadata = |file, keys: &[&str]| [(FileId(file), sample_block_metadata(keys))].into();
        let first = Commit {
            add: vec![sample_file(FileId(1), 5)],
            block_metadata: block_metadata(1, &["connection", "refused"]),
            cursor: cursor(3),
            ..commit(1, 0)
        };
        let dead = [(FileId(1), RoaringBitmap::from([0, 3]))].into();
        let second = Commit { add: vec![sample_file(FileId(2), 2)], deletion_vectors: dead, ..commit(2, 1) };
        let third = Commit { remove: vec![FileId(1)], ..commit(3, 2) };
        let skipped = File { note: Some("no Parquet".into()), ..sample_file(FileId(5), 0) };
        let attached = Commit {
            expected: ExpectedVersion::Latest,
            add: vec![sample_file(FileId(3), 1), skipped, sample_file(FileId(4), 2)],
            block_metadata: block_metadata(3, &["a"]).into_iter().chain(block_metadata(4, &["b"])).collect(),
            kind: CommitKind::Attach,
            ..commit(4, 0)
        };
        let restored = Commit {
            add: vec![File { created_version: Version(7), ..sample_file(FileId(6), 3) }],
            block_metadata: block_metadata(6, &["z"]),
            deletion_vectors: [(FileId(6), RoaringBitmap::from([2]))].into(),
            kind: CommitKind::Restore,
            ..commit(5, 9)
        };
        vec![
            Self::Create("a"),
            Self::Allocate(6),
            Self::Commit(Box::new(first)),
            Self::Commit(Box::new(second)),
            Self::Create("b"),
            Self::Maintain,
            Self::Commit(Box::new(third)),
            Self::Expire(2),
            Self::Drop("b"),
            Self::Commit(Box::new(attached)),
            Self::Alter,
            Self::Maintain,
            Self::Restore,
            Self::RestoreFiles(Box::new(restored)),
            Self::Restored,
        ]
    }

    /// Does this step; panics when it fails.
    pub async fn run(self, metastore: &dyn Metastore) {
        match self {
            Self::Create(name) => drop(metastore.create_table(sample_schema(name)).await.unwrap()),
            Self::Drop(name) => drop(metastore.drop_table(name).await.unwrap()),
            Self::Allocate(n) => drop(metastore.allocate_files(n).await.unwrap()),
            Self::Commit(commit) => drop(metastore.commit(TableId(1), *commit).await.unwrap()),
            Self::Expire(keep) => drop(metastore.expire(TableId(1), Version(keep)).await.unwrap()),
            Self::Maintain => drop(metastore.maintain(1 << 20).await.unwrap()),
            Self::Alter => {
                let from = metastore.tables().await.unwrap()[0].clone();
                let to = Box::new(with_column(&from, "added"));
                metastore.define(Definition::Alter { from, to }).await.unwrap();
            }
            Self::Restore => {
                let schema =
                    Arc::new(TableSchema { id: TableId(9), first_tablet: TabletId(900_000), ..sample_schema("r") });
                let (version, cursor) = (Version(9), cursor(8).unwrap());
                let restore = Definition::Restore { schema, version, cursor, committed_ms: 77 };
                metastore.define(restore).await.unwrap();
            }
            Self::RestoreFiles(commit) => drop(metastore.commit(TableId(9), *commit).await.unwrap()),
            Self::Restored => {
                metastore.define(Definition::Restored { table: TableId(9) }).await.unwrap();
            }
        }
    }
}

/// All that can be read, as text.
pub async fn describe(metastore: &dyn Metastore) -> String {
    let mut out = String::new();
    for table in metastore.tables().await.unwrap() {
        let (oldest, latest) = (
            metastore.snapshot(table.id, VersionSelector::Oldest).await.unwrap().version,
            metastore.version(table.id).await.unwrap(),
        );
        writeln!(out, "{table:?} {oldest} {latest}").unwrap();
        for version in oldest.0..=latest.0 {
            let whole = metastore.snapshot(table.id, VersionSelector::Version(Version(version))).await.unwrap();
            let dead: BTreeMap<_, _> = whole.deletion_vectors.iter().collect();
            let (cursor, at_ms) = (whole.cursor.to_string(), whole.committed_ms);
            writeln!(out, "{version} {cursor} {at_ms} {:?} {dead:?}", whole.files).unwrap();
            let block_metadata =
                metastore.block_metadata(table.id, everything(hour_blocks(&whole.files))).await.unwrap();
            writeln!(out, "{:?} {:?}", block_metadata.columns, block_metadata.blooms).unwrap();
        }
        writeln!(out, "{:?}", metastore.commits(table.id, oldest).await.unwrap()).unwrap();
    }
    out
}

/// All that is kept of these blocks.
pub fn everything(hours: Vec<HourBlocks>) -> BlockMetadataRequest {
    BlockMetadataRequest { hours, columns: None, stats: true, chunks: true, blooms: true }
}
