//! Which objects does nobody need any more, and how are they deleted without taking one that somebody does?
//!
//! Two phases. A commit removes a file from the latest version; versions are forgotten ([`Lake::expire`]) only once
//! they have been superseded for a retention, so that readers which started before have ended, and only then is the
//! file deleted. What nobody ever committed, or a crash left behind, is an orphan: old enough, in no kept version, and
//! not being written ([`Lake::remove_orphans`]).
//!
//! Invariant: nothing of an archive is ever deleted. Its files are somebody else's, and their paths are below its own
//! folder, where a lake's file may have the same: an archive's versions are forgotten, and no more.

use std::collections::HashSet;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use tarn_metastore::VersionSelector;
use tarn_types::{TableId, TableSchema, Version};

use crate::error::store_error;
use crate::lake::metastore_error;
use crate::names::{file_id, table_prefix};
use crate::{Lake, Result};

/// Files of a dropped table that are deleted at the same time.
const DELETED_AT_ONCE: usize = 16;

/// What expiring deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryStats {
    /// The oldest version that is kept.
    pub oldest: Version,
    /// Files that were deleted.
    pub files: u64,
    /// Of these files.
    pub bytes: u64,
}

/// What orphan removal deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Files that were deleted.
    pub files: u64,
    /// Of these files.
    pub bytes: u64,
    /// Objects below the table's folder that are not lake files by name. They are left alone.
    pub foreign: u64,
}

impl Lake {
    /// Forgets the versions that were superseded more than `retention_ms` ago, and deletes the files that only they
    /// had. `pinned` is never forgotten, nor anything after it: the oldest version that is installed or still read.
    ///
    /// # Errors
    /// Once versions are forgotten, a file that cannot be deleted is left to [`Lake::remove_orphans`].
    pub async fn expire(&self, table: TableId, retention_ms: u64, pinned: Version) -> Result<ExpiryStats> {
        let error = || metastore_error("expire versions", table);
        let oldest = self.metastore.snapshot(table, VersionSelector::Oldest).await.map_err(error())?.version;
        let commits = self.metastore.commits(table, oldest).await.map_err(error())?;
        let superseded_before = self.clock.now_ms().saturating_sub_unsigned(retention_ms);
        // A commit supersedes the version before it, and is the version that takes its place.
        let expired = commits.iter().take_while(|commit| commit.at_ms < superseded_before && commit.version <= pinned);
        let keep = expired.last().map_or(oldest, |commit| commit.version);
        let mut done = ExpiryStats { oldest: keep, ..ExpiryStats::default() };
        let tables = self.metastore.tables().await.map_err(error())?;
        // A table that was dropped meanwhile may have been an archive, too.
        let is_ours = tables.iter().any(|schema| schema.id == table && schema.has_rows());
        let unneeded = self.metastore.expire(table, keep).await.map_err(error())?;
        for file in unneeded.into_iter().filter(|_| is_ours) {
            self.delete(&Path::parse(&file.path).map_err(|e| store_error("delete", &file.path)(e.into()))?).await?;
            done.files += 1;
            done.bytes += file.size_bytes;
        }
        Ok(done)
    }

    /// Deletes files that no kept version has and nobody is writing, when they are older than `grace_ms`. Files that
    /// another process writes are told by their age alone: the grace must be longer than any delivery.
    pub async fn remove_orphans(&self, table: &TableSchema, grace_ms: u64) -> Result<Orphans> {
        if !table.has_rows() {
            return Ok(Orphans::default());
        }
        let prefix = table_prefix(table);
        let listed = self.store.list(Some(&prefix));
        let listed: Vec<_> = listed.try_collect().await.map_err(store_error("list", &prefix))?;
        // In this order: a file that was written when it was listed is being written still, or committed by now.
        let being_written = self.oldest_being_written(table.id);
        let kept = self.kept_files(table.id).await?;
        let oldest_ms = self.clock.now_ms().saturating_sub_unsigned(grace_ms);
        let mut orphans = Orphans::default();
        for object in listed {
            let Some(id) = file_id(&object.location) else {
                orphans.foreign += 1;
                continue;
            };
            let is_needed = kept.contains(object.location.as_ref()) || being_written.is_some_and(|first| id >= first);
            if is_needed || object.last_modified.timestamp_millis() > oldest_ms {
                continue;
            }
            self.delete(&object.location).await?;
            orphans.files += 1;
            orphans.bytes += object.size;
        }
        Ok(orphans)
    }

    /// Deletes all files of a table that was dropped. The caller has seen to it that nobody reads them.
    pub async fn remove_table(&self, table: &TableSchema) -> Result<Orphans> {
        if table.options.archive.is_some() {
            return Ok(Orphans::default());
        }
        self.remove_folder(&table_prefix(table)).await
    }

    /// The same, by the folder that [`crate::table_folder`] names.
    pub async fn remove_folder(&self, prefix: &Path) -> Result<Orphans> {
        let listed = self.store.list(Some(prefix)).map_err(|error| store_error("list", prefix)(error));
        let delete = |object: ObjectMeta| async move { self.delete(&object.location).await.map(|()| object.size) };
        let deleted = listed.map_ok(delete);
        let count =
            |sum: Orphans, bytes| async move { Ok(Orphans { files: sum.files + 1, bytes: sum.bytes + bytes, ..sum }) };
        deleted.try_buffer_unordered(DELETED_AT_ONCE).try_fold(Orphans::default(), count).await
    }

    /// The paths of all files of all kept versions.
    async fn kept_files(&self, table: TableId) -> Result<HashSet<String>> {
        let error = || metastore_error("read the kept versions", table);
        let oldest = self.metastore.snapshot(table, VersionSelector::Oldest).await.map_err(error())?;
        let commits = self.metastore.commits(table, oldest.version).await.map_err(error())?;
        let files = oldest.files.iter().chain(commits.iter().flat_map(|commit| &commit.added));
        Ok(files.map(|file| file.path.clone()).collect())
    }

    /// One that is gone already is fine.
    async fn delete(&self, path: &Path) -> Result<()> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(store_error("delete", path)(error)),
        }
    }
}
