//! Which files make up a table at a version, and how does the next version come to be?
//!
//! The seam between those who move rows into the lake, those who read it, and the store that remembers. Every backend
//! passes the same contract suite (`contract.rs`).

use std::sync::Arc;

use async_trait::async_trait;

use tarn_types::{FileId, TableId, TableSchema, Version};

use crate::{At, Commit, CommitInfo, File, Result, Stats, TableVersion};

/// Tables, their versions, and the commits between them.
///
/// What a method changed is durable when it returns `Ok`. `Conflict` and `Invalid` mean that nothing happened;
/// `Indeterminate` means that it may have: look before trying again. Commits of one table are serial.
#[async_trait]
pub trait Metastore: Send + Sync {
    /// Makes a table at version 0, without files. Assigns the ids of table, columns and tablets (the given ones are ignored)
    /// and answers the table as it now is.
    async fn create_table(&self, schema: TableSchema) -> Result<Arc<TableSchema>>;

    /// Forgets a table and all its versions; its files become orphans, its ids are never used again. Answers the table.
    async fn drop_table(&self, name: &str) -> Result<Arc<TableSchema>>;

    /// All tables, by id.
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>>;

    /// The first of `n` consecutive file ids that nobody has had or will get.
    async fn allocate_files(&self, n: u64) -> Result<FileId>;

    /// Makes the next version, if the table is at `commit.expected`; else `Conflict`. A commit whose id is already in
    /// answers the version that it made then, and changes nothing.
    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version>;

    /// The latest version. No IO in the embedded backend.
    async fn version(&self, table: TableId) -> Result<Version>;

    /// The table's files at a version. Shared, not copied; cheap for the latest few versions.
    async fn snapshot(&self, table: TableId, at: At) -> Result<Arc<TableVersion>>;

    /// The commits after a version, oldest first; `NotFound` when some of them are no longer kept.
    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>>;

    /// Forgets the versions before `keep`. Answers the files that no kept version needs: they may be deleted now, and by
    /// nobody but orphan removal should the caller die first.
    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>>;

    async fn stats(&self) -> Result<Stats>;
}
