//! May a commit follow on a version that its writer did not see? Pure, as `check.rs`, which asks here.
//!
//! A writer that read version *b* makes files of what it found there, and commits when others have made version *l*. It
//! may follow on *l* if what the two did is *disjoint*, which is told by the versions alone:
//!
//! | of the commit | has to be so in *l* | becomes |
//! |---|---|---|
//! | adds a file | ids are given out once | the same |
//! | removes a file | the file is there, with the dead rows that it had in *b*: the rows that live on are in the commit's files | the same |
//! | buries rows of a file | the file is there; none of the rows that it buries was buried since *b* | the dead rows of both |
//! | moves a tablet's cursor | that tablet stands where it stood in *b* | of each tablet, where whoever moved it put it |
//!
//! Everything else is a conflict: the writer reads *l* and begins anew. So it does not matter in which order disjoint
//! commits come in, but for the numbers of their versions: each makes of the rows what it makes of *b*. What comes in
//! is a commit like any other; it has the dead rows and the cursor of *l* in it, so whoever follows the versions one by
//! one (`tarn-lake`'s `repair`) needs not know that it was rebased.
//!
//! Deliveries and compactions alone. Files of an archive are told apart by what they are called, which is not looked at
//! here.

use roaring::RoaringBitmap;
use tarn_types::{Cursor, FileId, TableId};

use crate::{Commit, CommitKind, Error, Result, TableVersion};

/// Makes the commit one that follows on `latest`.
///
/// Errors: `Conflict` where it is not disjoint from what came behind `base`, or `base` is not of this table's past;
/// `InvalidCommit` for one that is neither a delivery nor a compaction; `CursorBehind` where it goes back behind
/// `base`.
pub fn rebase(table: TableId, base: &TableVersion, latest: &TableVersion, commit: &mut Commit) -> Result<()> {
    if !matches!(commit.kind, CommitKind::Delivery | CommitKind::Compaction) {
        let reason = "only deliveries and compactions can follow on what is disjoint from them";
        return Err(Error::InvalidCommit { table, reason });
    }
    let conflict = || Err(Error::Conflict { table, expected: base.version, current: latest.version });
    if base.version > latest.version {
        return conflict();
    }
    for file in &commit.remove {
        if latest.file(*file).is_none() || dead_rows(latest, *file) != dead_rows(base, *file) {
            return conflict();
        }
    }
    for (file, dead) in &mut commit.deletion_vectors {
        if commit.add.iter().any(|added| added.id == *file) {
            continue;
        }
        let (before, now) = (dead_rows(base, *file), dead_rows(latest, *file));
        let (ours, theirs) = (&*dead - &before, &now - &before);
        if latest.file(*file).is_none() || !ours.is_disjoint(&theirs) {
            return conflict();
        }
        *dead |= now;
    }
    if let Some(cursor) = &mut commit.cursor {
        if !cursor.covers(&base.cursor) {
            let (given, current) = (cursor.to_string(), base.cursor.to_string());
            return Err(Error::CursorBehind { table, given, current });
        }
        let moved = |to: &Cursor| {
            let moved = to.iter().filter(|(tablet, seqno)| *seqno != base.cursor.get(*tablet));
            moved.map(|(tablet, _)| tablet).collect::<Vec<_>>()
        };
        let theirs = moved(&latest.cursor);
        if moved(cursor).iter().any(|tablet| theirs.contains(tablet)) {
            return conflict();
        }
        cursor.merge(&latest.cursor);
    }
    Ok(())
}

fn dead_rows(version: &TableVersion, file: FileId) -> RoaringBitmap {
    version.deletion_vectors.get(&file).map_or_else(RoaringBitmap::new, |dead| (**dead).clone())
}

#[cfg(test)]
mod tests;
