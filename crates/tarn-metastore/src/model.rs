//! What does a table's lake consist of at one version?
//!
//! ```text
//! TableVersion  version, cursor ──> File ──> Block (one row group) ──> ColumnStats
//!                                     └──> deletion vector (dead rows of that file at this version)
//! ```
//!
//! Invariant: a file never changes once committed; only its deletion vector grows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use roaring::RoaringBitmap;
use uuid::Uuid;

use tarn_types::{Cursor, FileId, TableId, TableSchema, Version};

use crate::{BlockMetadata, File, Files};

/// All of a table's lake at one version. Immutable; shared. Versions share what they have in common: cloning costs a
/// pointer for every 256 files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableVersion {
    /// One more with every commit; a new table is at 0.
    pub version: Version,
    /// Changes up to here are in these files, later ones are not.
    pub cursor: Cursor,
    /// By id, hence in the order of creation.
    pub files: Files,
    /// Dead rows; a file without an entry has none.
    pub deletion_vectors: Arc<HashMap<FileId, Arc<RoaringBitmap>>>,
    /// Unix time; never decreases from version to version.
    pub committed_ms: i64,
}

impl TableVersion {
    /// A file of this version by its id.
    pub fn file(&self, id: FileId) -> Option<&Arc<File>> {
        self.files.get(id)
    }

    /// Rows that are not dead. Arithmetic on metadata.
    pub fn live_rows(&self) -> u64 {
        self.files.iter().map(|file| file.n_rows - self.dead_rows(file.id)).sum()
    }

    /// How many rows of a file are dead at this version; 0 for files that it does not have.
    pub fn dead_rows(&self, file: FileId) -> u64 {
        self.deletion_vectors.get(&file).map_or(0, |dead| dead.len())
    }

    /// Of all files, dead rows and all.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }
}

/// Why a commit was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitKind {
    /// Changes became files: the cursor moves.
    Delivery,
    /// The same rows in other files: the cursor stays.
    Compaction,
    /// Foreign files came, changed or went.
    Attach,
    /// Files of a version that [`Definition::Restore`] opened: the version does not move, and files that are there
    /// already are passed over. Is in no history.
    Restore,
}

impl CommitKind {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            CommitKind::Delivery => "delivery",
            CommitKind::Compaction => "compaction",
            CommitKind::Attach => "attach",
            CommitKind::Restore => "restore",
        }
    }
}

/// Which version a commit follows on.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpectedVersion {
    /// Exactly this one, else `Conflict`.
    At(Version),
    /// This one, which its writer read, or a later one, if all that came between touched other files, rows and tablets:
    /// the store rebases, by the rule of `rebase.rs`, else `Conflict`. Of deliveries and compactions.
    Disjoint(Arc<TableVersion>),
    /// Whatever is latest when it goes in: the store rebases. Lawful only for commits that add files and do nothing
    /// else.
    Latest,
}

/// A change of a table's lake, all of it or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// Chosen by the writer. A commit with an id that is already in gets the first one's answer.
    pub id: Uuid,
    /// The version that this commit supersedes.
    pub expected: ExpectedVersion,
    /// New files; their ids must have been given out. In any order.
    pub add: Vec<File>,
    /// Of added files, by file, ascending by row group; a block without an entry has no bloom and no column metadata.
    /// Durable with the commit.
    pub block_metadata: BTreeMap<FileId, Vec<BlockMetadata>>,
    /// Files that the next version does not have. Older versions keep them until they expire.
    pub remove: Vec<FileId>,
    /// Whole new vector per file; a file keeps its vector when it is not named.
    pub deletion_vectors: BTreeMap<FileId, RoaringBitmap>,
    /// The new cursor; `None` leaves it.
    pub cursor: Option<Cursor>,
    /// For readers of the history; only [`CommitKind::Restore`] has rules of its own.
    pub kind: CommitKind,
    /// Unix time by the writer's clock.
    pub at_ms: i64,
}

/// A commit as it went in.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitInfo {
    /// The one that its writer chose.
    pub id: Uuid,
    /// The version that it made.
    pub version: Version,
    /// In the order in which the writer gave them, with the version that created them.
    pub added: Vec<Arc<File>>,
    /// By id.
    pub removed: Vec<FileId>,
    /// The whole new vector of each file that it changed.
    pub deletion_vectors: BTreeMap<FileId, Arc<RoaringBitmap>>,
    /// The table's new cursor, if it moved.
    pub cursor: Option<Cursor>,
    /// Why it was made.
    pub kind: CommitKind,
    /// Unix time; not before that of the commit before it, whatever the writer's clock says.
    pub at_ms: i64,
}

/// A change of the catalog.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "what is said of each names its fields")]
pub enum Definition {
    /// A new table at version 0, without files. The ids of table, columns and tablets are assigned, the given ones only
    /// say which columns the options mean.
    Create(Box<TableSchema>),
    /// Forgets the table, its versions and block metadata; its files become orphans, its ids are never used again.
    Drop { name: String },
    /// Columns may come at the end, if they can be NULL and have no default, and types may widen
    /// ([`tarn_types::DataType::widens_to`]); whether a column may be NULL, its default and what is said of rows may
    /// change, what is indexed for later blocks, how often an archive is looked at, the query of a view, and the name,
    /// if it is free. Nothing else may differ. `Conflict` when the table is not at `from`, unless it is at `to`
    /// already. The ids of new columns are assigned.
    Alter { from: Arc<TableSchema>, to: Box<TableSchema> },
    /// Several tables at one moment, all or none: each as [`Definition::Alter`] has it, and names are free that others
    /// of them give up. New columns have the ids that follow on the last. Answers the first. `Conflict` unless all are
    /// at their `from`, or all at their `to` already.
    AlterAll(Vec<Alteration>),
    /// A table as another metastore had it, ids and all, at this version, without its files: they come by commits of
    /// kind [`CommitKind::Restore`], and until [`Definition::Restored`] there are no others. Tables are restored
    /// ascending by id. Lawful only where the ids are free, or when the same table is being restored already.
    Restore { schema: Arc<TableSchema>, version: Version, cursor: Cursor, committed_ms: i64 },
    /// The files of the restored version are all in. Nothing happens when the table is not being restored.
    Restored { table: TableId },
}

/// One table of [`Definition::AlterAll`].
#[derive(Debug, Clone, PartialEq)]
pub struct Alteration {
    /// The definition that the change was made for.
    pub from: Arc<TableSchema>,
    /// What it is to be.
    pub to: Box<TableSchema>,
}

/// Which version of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionSelector {
    /// The newest that is in when the question is answered.
    Latest,
    /// The oldest that is kept.
    Oldest,
    /// By its number.
    Version(Version),
    /// The newest that was committed at or before this Unix time.
    Time(i64),
}

/// How much the metastore holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Documents among them, each of which is kept as one.
    pub tables: u64,
    /// Files of latest versions.
    pub files: u64,
    /// Of these files.
    pub blocks: u64,
    /// Commits kept for `AS OF` and for retries.
    pub commits: u64,
    /// Bytes of the commit log since the last checkpoint; 0 without a disk.
    pub log_bytes: u64,
    /// Of the newest checkpoint; 0 where there is none.
    pub checkpoint_bytes: u64,
    /// Blooms and column metadata of the blocks of kept versions, as they are stored.
    pub bloom_bytes: u64,
    /// As `bloom_bytes`: of column metadata.
    pub column_bytes: u64,
    /// Files, or rows, that have the metadata of many blocks (embedded, Postgres).
    pub packs: u64,
    /// Blocks with metadata that are not in a pack yet (embedded, Postgres), or not applied (CQL).
    pub loose_blocks: u64,
    /// The largest partition, estimated (CQL).
    pub largest_partition_bytes: u64,
}

/// What [`crate::Metastore::maintain`] did, and how things stand. With a budget of 0 it does nothing and only looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaintenanceReport {
    /// As things stand when the call returns.
    pub stats: Stats,
    /// By this call.
    pub bytes_written: u64,
    /// By this call.
    pub packs_made: u64,
    /// By this call: their content is in others, or is needed no more.
    pub packs_removed: u64,
    /// There is more to do at once.
    pub more: bool,
}
