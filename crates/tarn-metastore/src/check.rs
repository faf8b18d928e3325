//! Is this commit lawful, and which version does it make? Pure: no IO, no clock, no state; every backend asks here.
//!
//! A backend hands over how its table stands, makes what it gets back durable, then visible. Several commits that wait
//! together are checked one after the other, each against what the one before it would make.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_types::{FileId, TableId, Version};

use crate::ids::Ids;
use crate::rebase::rebase;
use crate::{BlockMetadata, Commit, CommitInfo, CommitKind, Error, ExpectedVersion, File, Result, TableVersion};

/// A table as a commit finds it.
pub struct CommitBase<'a> {
    /// For errors to name.
    pub table: TableId,
    /// The version that the commit follows on, or is rebased to.
    pub latest: &'a Arc<TableVersion>,
    /// The commits that are in.
    pub ids: &'a Ids,
    /// Ids below are given out.
    pub next_file: FileId,
    /// Its files are still being copied from elsewhere.
    pub restoring: bool,
}

/// What a checked commit turned out to be.
pub enum CommitCheck {
    /// The same commit is already in, or a restoring one has nothing that is not.
    Already(Version),
    /// It is lawful, and makes a new version.
    New {
        /// The table's next latest version, once `info` is durable.
        next: Arc<TableVersion>,
        /// The commit as it is to be logged: with its version, and files with the version that created them.
        info: Arc<CommitInfo>,
        /// Of files in `info.added` alone.
        block_metadata: BTreeMap<FileId, Vec<BlockMetadata>>,
    },
}

/// What this commit makes of the table.
pub fn check_commit(standing: &CommitBase<'_>, mut commit: Commit) -> Result<CommitCheck> {
    let CommitBase { table, latest, ids, restoring, .. } = *standing;
    if let Some(version) = ids.get(&commit.id) {
        return Ok(CommitCheck::Already(*version));
    }
    match commit.expected.clone() {
        ExpectedVersion::At(expected) if expected != latest.version => {
            return Err(Error::Conflict { table, expected, current: latest.version });
        }
        ExpectedVersion::Latest if !is_append(&commit) => {
            let reason = "only one that adds files and does nothing else can follow on whatever is latest";
            return Err(Error::InvalidCommit { table, reason });
        }
        ExpectedVersion::Disjoint(base) if base.version != latest.version => rebase(table, &base, latest, &mut commit)?,
        ExpectedVersion::At(_) | ExpectedVersion::Latest | ExpectedVersion::Disjoint(_) => {}
    }
    let is_restore = commit.kind == CommitKind::Restore;
    if is_restore != restoring {
        let reason = if restoring { "its files are still being restored" } else { "it is not being restored" };
        return Err(Error::InvalidCommit { table, reason });
    }
    if is_restore {
        if !commit.remove.is_empty() || commit.cursor.is_some() {
            return Err(Error::InvalidCommit { table, reason: "restoring adds files and their dead rows only" });
        }
        // A retry, or an overlap: what is there already and the same is fine.
        commit.add.retain(|file| latest.file(file.id).is_none_or(|there| **there != *file));
        let added: BTreeSet<FileId> = commit.add.iter().map(|file| file.id).collect();
        commit.block_metadata.retain(|file, _| added.contains(file) || latest.file(*file).is_none());
        commit
            .deletion_vectors
            .retain(|file, dead| latest.deletion_vectors.get(file).is_none_or(|there| **there != *dead));
        if commit.add.is_empty() && commit.deletion_vectors.is_empty() {
            return Ok(CommitCheck::Already(latest.version));
        }
    }
    commit.block_metadata.retain(|_, block_metadata| !block_metadata.is_empty());
    check_files(standing, &commit)?;
    if let Some(cursor) = &commit.cursor
        && !cursor.covers(&latest.cursor)
    {
        let (given, current) = (cursor.to_string(), latest.cursor.to_string());
        return Err(Error::CursorBehind { table, given, current });
    }
    let (version, at_ms) = match is_restore {
        true => (latest.version, latest.committed_ms),
        false => (latest.version.next(), commit.at_ms.max(latest.committed_ms)),
    };
    let created = |file: &File| if is_restore { file.created_version } else { version };
    let added = commit.add.into_iter().map(|file| Arc::new(File { created_version: created(&file), ..file })).collect();
    let info = Arc::new(CommitInfo {
        id: commit.id,
        version,
        added,
        removed: commit.remove,
        deletion_vectors: commit.deletion_vectors.into_iter().map(|(id, dead)| (id, Arc::new(dead))).collect(),
        cursor: commit.cursor,
        kind: commit.kind,
        at_ms,
    });
    Ok(CommitCheck::New { next: Arc::new(advance(latest, &info)), info, block_metadata: commit.block_metadata })
}

fn is_append(commit: &Commit) -> bool {
    commit.remove.is_empty() && commit.deletion_vectors.is_empty() && commit.cursor.is_none()
}

fn check_files(standing: &CommitBase<'_>, commit: &Commit) -> Result<()> {
    let CommitBase { table, latest, next_file, .. } = *standing;
    let invalid = |file, reason| Err(Error::InvalidFile { table, file, reason });
    let mut added = BTreeMap::new();
    for file in &commit.add {
        let blocks: u64 = file.blocks.iter().map(|block| block.n_rows).sum();
        if added.insert(file.id, file).is_some() {
            return invalid(file.id, "is added twice");
        } else if latest.file(file.id).is_some() {
            return invalid(file.id, "is in the table already");
        } else if file.id >= next_file {
            return invalid(file.id, "has an id that was never allocated");
        } else if blocks != file.n_rows {
            return invalid(file.id, "has blocks that do not add up to its rows");
        } else if !file.blocks.is_sorted_by(|a, b| a.row_group < b.row_group) {
            return invalid(file.id, "has blocks that are not in row-group order");
        } else if file.checksums.as_ref().is_some_and(|sums| sums.size_bytes() != file.size_bytes) {
            return invalid(file.id, "has checksums of a file of another size");
        }
    }
    for (file, block_metadata) in &commit.block_metadata {
        let Some(added) = added.get(file) else { return invalid(*file, "has details but is not added") };
        let of_block = |of: &BlockMetadata| added.blocks.binary_search_by_key(&of.row_group, |b| b.row_group).is_ok();
        if !block_metadata.iter().all(of_block) {
            return invalid(*file, "has details of a block that is not there");
        } else if !block_metadata.is_sorted_by(|a, b| a.row_group < b.row_group) {
            return invalid(*file, "has details that are not in row-group order");
        } else if !block_metadata.iter().all(|of| of.columns.is_sorted_by(|(a, _), (b, _)| a.column < b.column)) {
            return invalid(*file, "has column metadata that is not in column order");
        }
    }
    let mut removed = BTreeSet::new();
    for file in &commit.remove {
        if latest.file(*file).is_none() {
            return invalid(*file, "is removed but not in the table");
        } else if !removed.insert(*file) {
            return invalid(*file, "is removed twice");
        }
    }
    for (file, dead) in &commit.deletion_vectors {
        let known = latest.file(*file).filter(|_| !removed.contains(file)).map(|file| file.n_rows);
        let Some(n_rows) = known.or_else(|| added.get(file).map(|file| file.n_rows)) else {
            return invalid(*file, "has dead rows but is not in the new version");
        };
        if dead.max().is_some_and(|row| u64::from(row) >= n_rows) {
            return invalid(*file, "has dead rows beyond its end");
        } else if latest.deletion_vectors.get(file).is_some_and(|before| !before.is_subset(dead)) {
            return invalid(*file, "has rows that would come back to life");
        }
    }
    Ok(())
}

/// The version after a commit that follows on `base`. Cost: the pieces of files that it touches, and the vectors if it
/// has any.
pub fn advance(base: &TableVersion, commit: &CommitInfo) -> TableVersion {
    let removed: BTreeSet<FileId> = commit.removed.iter().copied().collect();
    let mut deletion_vectors = base.deletion_vectors.clone();
    let dead = || commit.deletion_vectors.iter().filter(|(_, dead)| !dead.is_empty());
    if dead().next().is_some() || removed.iter().any(|file| deletion_vectors.contains_key(file)) {
        let vectors = Arc::make_mut(&mut deletion_vectors);
        vectors.extend(dead().map(|(file, dead)| (*file, dead.clone())));
        vectors.retain(|file, _| !removed.contains(file));
    }
    TableVersion {
        version: commit.version,
        cursor: commit.cursor.as_ref().unwrap_or(&base.cursor).clone(),
        files: base.files.changed(commit.added.iter().cloned(), &removed),
        deletion_vectors,
        committed_ms: commit.at_ms,
    }
}

/// The version after commits that follow on `base` one after the other: as `advance` for each, at the cost of one.
pub fn advance_all<'a>(base: &TableVersion, commits: impl IntoIterator<Item = &'a Arc<CommitInfo>>) -> TableVersion {
    let mut next = base.clone();
    let (mut added, mut removed) = (BTreeMap::new(), BTreeSet::new());
    for commit in commits {
        let dead = || commit.deletion_vectors.iter().filter(|(_, dead)| !dead.is_empty());
        if dead().next().is_some() || commit.removed.iter().any(|file| next.deletion_vectors.contains_key(file)) {
            let vectors = Arc::make_mut(&mut next.deletion_vectors);
            vectors.extend(dead().map(|(file, dead)| (*file, dead.clone())));
            commit.removed.iter().for_each(|file| drop(vectors.remove(file)));
        }
        for file in &commit.removed {
            added.remove(file);
            removed.insert(*file);
        }
        for file in &commit.added {
            removed.remove(&file.id);
            added.insert(file.id, file.clone());
        }
        (next.version, next.committed_ms) = (commit.version, commit.at_ms);
        next.cursor = commit.cursor.as_ref().unwrap_or(&next.cursor).clone();
    }
    next.files = base.files.changed(added.into_values(), &removed);
    next
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::{commit, sample_file};

    proptest! {
        #[test]
        fn many_commits_at_once_make_what_they_make_one_by_one(
            steps in proptest::collection::vec((0..600usize, proptest::collection::vec(any::<u16>(), 0..8)), 1..12),
        ) {
            let base = TableVersion::default();
            let (mut one_by_one, mut commits, mut next_file) = (base.clone(), Vec::new(), 1);
            for (version, (n_added, picks)) in (1..).zip(steps) {
                let add = (next_file..).take(n_added).map(|id| Arc::new(sample_file(FileId(id), 3))).collect();
                next_file += n_added as u64;
                let there: Vec<_> = one_by_one.files.iter().map(|file| file.id).collect();
                let picked: BTreeSet<FileId> =
                    picks.iter().filter_map(|pick| there.get(usize::from(*pick) % there.len().max(1)).copied()).collect();
                let (removed, dead): (Vec<_>, Vec<_>) = picked.into_iter().partition(|file| file.0 % 3 > 0);
                let commit = Arc::new(CommitInfo {
                    id: commit(version.into(), 0).id,
                    version: Version(version),
                    added: add,
                    removed,
                    deletion_vectors: dead.into_iter().map(|file| (file, Arc::new([1].into()))).collect(),
                    cursor: None,
                    kind: CommitKind::Compaction,
                    at_ms: version as i64,
                });
                one_by_one = advance(&one_by_one, &commit);
                commits.push(commit);
                prop_assert_eq!(&advance_all(&base, &commits), &one_by_one);
                let half = advance_all(&base, &commits[..commits.len() / 2]);
                prop_assert_eq!(&advance_all(&half, &commits[commits.len() / 2..]), &one_by_one);
            }
        }
    }
}
