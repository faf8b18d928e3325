//! Which files make up a table at a version, and how does the next version come to be? Which of their blocks can hold
//! the answer?
//!
//! The seam between those who move rows into the lake, those who read it, and the store that remembers. Every backend
//! passes the same contract suite (`contract.rs`). Ten methods; what can be said through them is in [`MetastoreExt`].

use std::sync::Arc;

use async_trait::async_trait;

use tarn_types::{FileId, TableId, TableSchema, Version};

use crate::define::DOCUMENT_SCHEME;
use crate::{
    BlockMetadataRequest, Commit, CommitInfo, Definition, Error, File, MaintenanceReport, MetadataByColumn, Probe,
    ProbeResult, Result, Stats, TableVersion, VersionSelector,
};

/// Tables, their versions, the commits between them, and the metadata of their blocks.
///
/// What a method changed is durable when it returns `Ok`. `Conflict` and `Invalid` mean that nothing happened;
/// `Indeterminate` means that it may have: look before trying again. Commits of one table are serial.
#[async_trait]
pub trait Metastore: Send + Sync {
    /// All tables, by id.
    async fn tables(&self) -> Result<Vec<Arc<TableSchema>>>;

    /// Changes the catalog. Answers the table as it now is, or as it was when it is dropped.
    async fn define(&self, definition: Definition) -> Result<Arc<TableSchema>>;

    /// The first of `n` consecutive file ids that nobody has had or will get.
    async fn allocate_files(&self, n: u64) -> Result<FileId>;

    /// Makes the next version, if the table is where `commit.expected` says; else `Conflict`. A commit whose id is
    /// already in answers the version that it made then, and changes nothing.
    async fn commit(&self, table: TableId, commit: Commit) -> Result<Version>;

    /// The commits after a version, oldest first; `NotFound` when some of them are no longer kept.
    async fn commits(&self, table: TableId, after: Version) -> Result<Vec<Arc<CommitInfo>>>;

    /// The table's files at a version. Shared, not copied; cheap for the latest few versions. No IO in the embedded
    /// backend.
    async fn snapshot(&self, table: TableId, at: VersionSelector) -> Result<Arc<TableVersion>>;

    /// Which of the given blocks may hold the keys, tested where the blooms are: the answer is a bit a block. Blocks
    /// without a bloom, or unknown ones, are kept. Cost: 32 bytes read per block and key, keys of an alternative only
    /// as long as it holds.
    async fn probe(&self, table: TableId, probe: Probe) -> Result<ProbeResult>;

    /// Bounds, places in the file and blooms of the given blocks, column by column. Blocks and columns that are not
    /// known are missing. Cost: what is wanted, and no more.
    async fn block_metadata(&self, table: TableId, wanted: BlockMetadataRequest) -> Result<MetadataByColumn>;

    /// Forgets the versions before `keep`. Answers the files that no kept version needs: they may be deleted now, and
    /// by nobody but orphan removal should the caller die first. Their block metadata goes, too.
    async fn expire(&self, table: TableId, keep: Version) -> Result<Vec<Arc<File>>>;

    /// Does some of the work that keeps the store small and quick, for about so many bytes written, and says how things
    /// stand. The caller decides when; answers are the same before and after. With a budget of 0 it does nothing and
    /// only looks.
    async fn maintain(&self, budget_bytes: u64) -> Result<MaintenanceReport>;
}

/// Conveniences over any backend.
#[async_trait]
pub trait MetastoreExt: Metastore {
    /// Makes a table at version 0, without files. Assigns the ids of table, columns and tablets (the given ones are
    /// ignored) and answers the table as it now is.
    async fn create_table(&self, schema: TableSchema) -> Result<Arc<TableSchema>> {
        if schema.name.starts_with(DOCUMENT_SCHEME) {
            let reason = "names that begin so are those of documents".to_owned();
            return Err(Error::InvalidChange { name: schema.name, reason });
        }
        self.define(Definition::Create(Box::new(schema))).await
    }

    /// Forgets a table and all its versions; its files become orphans, its ids are never used again. Answers the table.
    async fn drop_table(&self, name: &str) -> Result<Arc<TableSchema>> {
        self.define(Definition::Drop { name: name.to_owned() }).await
    }

    /// The latest version.
    async fn version(&self, table: TableId) -> Result<Version> {
        Ok(self.snapshot(table, VersionSelector::Latest).await?.version)
    }

    /// How much there is. Does no maintenance.
    async fn stats(&self) -> Result<Stats> {
        Ok(self.maintain(0).await?.stats)
    }
}

impl<M: Metastore + ?Sized> MetastoreExt for M {}
