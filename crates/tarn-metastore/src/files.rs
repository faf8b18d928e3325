//! How do the versions of a table share their files?
//!
//! ```text
//! Files ──> [group, group, …]                 ascending by id
//!              └──> [piece, piece, …]         up to 64 a group
//!                      └──> [Arc<File>, …]    up to 256 a piece; pieces and groups are shared by all versions that have exactly these
//! ```
//!
//! A commit makes new pieces, and new groups around them, where it adds and removes, and shares the others: the next
//! version of 500,000 files costs a piece, a group and 31 pointers.
//!
//! Invariants: files ascend by id through all pieces; no piece and no group is empty; `n_files` is their number. Small
//! neighbours in a group are put together when one of them is touched, and small groups alike, so there are never many
//! more than files need.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Index;
use std::slice;
use std::sync::Arc;

use tarn_types::FileId;

use crate::File;

const PIECE_FILES: usize = 256;

/// A piece with fewer is put together with its neighbour, if both fit into one.
const SMALL_PIECE_FILES: usize = PIECE_FILES / 4;

const GROUP_PIECES: usize = 64;

/// The same for groups.
const SMALL_GROUP_PIECES: usize = GROUP_PIECES / 4;

/// Files by id, at least one; never changed.
pub type FileRun = Arc<Vec<Arc<File>>>;

type FileRuns = Arc<Vec<FileRun>>;

/// Files of one version by id, in shared pieces.
#[derive(Clone, Default)]
pub struct Files {
    groups: Vec<FileRuns>,
    n_files: usize,
}

/// All files, ascending by id.
pub type Iter<'a> =
    std::iter::FlatMap<Pieces<'a>, slice::Iter<'a, Arc<File>>, fn(&'a FileRun) -> slice::Iter<'a, Arc<File>>>;

/// All pieces, ascending.
pub type Pieces<'a> = std::iter::FlatMap<
    slice::Iter<'a, FileRuns>,
    slice::Iter<'a, FileRun>,
    fn(&'a FileRuns) -> slice::Iter<'a, FileRun>,
>;

fn files_of(piece: &FileRun) -> slice::Iter<'_, Arc<File>> {
    piece.iter()
}

fn pieces_of(group: &FileRuns) -> slice::Iter<'_, FileRun> {
    group.iter()
}

impl Files {
    /// How many there are; counted as they come and go.
    pub fn len(&self) -> usize {
        self.n_files
    }

    /// Whether the version has no files.
    pub fn is_empty(&self) -> bool {
        self.n_files == 0
    }

    /// Ascending by id.
    pub fn iter(&self) -> Iter<'_> {
        self.pieces().flat_map(files_of)
    }

    /// The same files in the pieces in which versions share them, ascending: what is known of a piece holds wherever it
    /// is.
    pub fn pieces(&self) -> Pieces<'_> {
        self.groups.iter().flat_map(pieces_of)
    }

    /// Three binary searches.
    pub fn get(&self, id: FileId) -> Option<&Arc<File>> {
        let group = self.groups.get(self.groups.partition_point(|group| last(&group[group.len() - 1]) < id))?;
        let piece = group.get(group.partition_point(|piece| last(piece) < id))?;
        piece.binary_search_by_key(&id, |file| file.id).ok().map(|idx| &piece[idx])
    }

    /// The files after a change; one that is added takes the place of one with its id. Cost: the pieces and groups that
    /// it touches.
    pub fn changed(&self, add: impl IntoIterator<Item = Arc<File>>, remove: &BTreeSet<FileId>) -> Files {
        let mut add: Vec<_> = add.into_iter().collect();
        add.sort_by_key(|file| file.id);
        let is_behind = |last: FileId| add.first().is_none_or(|first| last < first.id);
        if self.last().is_none_or(|last| remove.is_empty() && is_behind(last)) {
            return self.appended(add);
        }
        let mut add = add.into_iter().peekable();
        let mut remove = remove.iter().copied().peekable();
        let mut groups = Groups::default();
        let mut n_files = self.n_files;
        for (idx, group) in self.groups.iter().enumerate() {
            // What lies between two groups or pieces goes to the first, what is behind all of them to the last.
            let bound = self.groups.get(idx + 1).map(|behind| behind[0][0].id);
            let is_here = |id: FileId| bound.is_none_or(|bound| id < bound);
            if !add.peek().is_some_and(|file| is_here(file.id)) && !remove.peek().is_some_and(|id| is_here(*id)) {
                groups.share(group);
                continue;
            }
            let mut next = Builder::default();
            for (idx, piece) in group.iter().enumerate() {
                let bound = group.get(idx + 1).map(|behind| behind[0].id).or(bound);
                let is_here = |id: FileId| bound.is_none_or(|bound| id < bound);
                let mut added = vec![];
                while let Some(file) = add.next_if(|file| is_here(file.id)) {
                    added.push(file);
                }
                let mut removed = BTreeSet::new();
                while let Some(id) = remove.next_if(|id| is_here(*id)) {
                    removed.insert(id);
                }
                match added.is_empty() && removed.is_empty() {
                    true => next.share(piece),
                    false => next.change(piece, added, &removed),
                }
            }
            n_files = n_files + count(&next.pieces) - count(group);
            groups.extend(next.pieces);
        }
        Files { groups: groups.groups, n_files }
    }

    fn last(&self) -> Option<FileId> {
        self.groups.last().map(|group| last(&group[group.len() - 1]))
    }

    /// With files behind all others, as most commits bring them: looks at nothing but the last piece.
    fn appended(&self, add: Vec<Arc<File>>) -> Files {
        let mut files = self.clone();
        files.n_files += add.len();
        let mut add = add.into_iter().peekable();
        while add.peek().is_some() {
            if files.groups.last().is_none_or(|group| group.len() == GROUP_PIECES && is_full(&group[GROUP_PIECES - 1]))
            {
                files.groups.push(FileRuns::default());
            }
            let group = Arc::make_mut(files.groups.last_mut().expect("there is one, or was added"));
            if group.last().is_none_or(is_full) {
                group.push(FileRun::default());
            }
            let piece = group.last_mut().expect("there is one, or was added");
            let mut next = Vec::with_capacity(PIECE_FILES);
            next.extend(piece.iter().cloned());
            next.extend(add.by_ref().take(PIECE_FILES - piece.len()));
            *piece = Arc::new(next);
        }
        files
    }
}

fn is_full(piece: &FileRun) -> bool {
    piece.len() == PIECE_FILES
}

fn count(pieces: &[FileRun]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

fn last(piece: &FileRun) -> FileId {
    piece[piece.len() - 1].id
}

#[derive(Default)]
struct Groups {
    groups: Vec<FileRuns>,
}

impl Groups {
    /// Takes a group as it is, or puts it together with a small one before it.
    fn share(&mut self, group: &FileRuns) {
        match self.groups.last_mut() {
            Some(before)
                if before.len().min(group.len()) < SMALL_GROUP_PIECES && before.len() + group.len() <= GROUP_PIECES =>
            {
                let mut both = Builder { pieces: std::mem::take(Arc::make_mut(before)) };
                group.iter().for_each(|piece| both.share(piece));
                *before = Arc::new(both.pieces);
            }
            _ => self.groups.push(group.clone()),
        }
    }

    /// Takes pieces that were made anew.
    fn extend(&mut self, mut pieces: Vec<FileRun>) {
        while !pieces.is_empty() {
            let behind = pieces.split_off(pieces.len().min(GROUP_PIECES));
            self.share(&Arc::new(std::mem::replace(&mut pieces, behind)));
        }
    }
}

#[derive(Default)]
struct Builder {
    pieces: Vec<FileRun>,
}

impl Builder {
    /// Takes a piece as it is, or puts it together with a small one before it.
    fn share(&mut self, piece: &FileRun) {
        match self.pieces.last_mut() {
            Some(before)
                if before.len().min(piece.len()) < SMALL_PIECE_FILES && before.len() + piece.len() <= PIECE_FILES =>
            {
                Arc::make_mut(before).extend(piece.iter().cloned());
            }
            _ => self.pieces.push(piece.clone()),
        }
    }

    fn change(&mut self, piece: &FileRun, added: Vec<Arc<File>>, removed: &BTreeSet<FileId>) {
        // Behind the others, as new files are: a full piece stays shared.
        if removed.is_empty() && added[0].id > last(piece) {
            self.share(piece);
            return self.fill(added);
        }
        let replaced: BTreeSet<FileId> = added.iter().map(|file| file.id).collect();
        let kept = piece.iter().filter(|file| !removed.contains(&file.id) && !replaced.contains(&file.id)).cloned();
        let mut files: Vec<_> = kept.chain(added.into_iter().filter(|file| !removed.contains(&file.id))).collect();
        files.sort_by_key(|file| file.id);
        let n_pieces = files.len().div_ceil(PIECE_FILES).max(1);
        let each = files.len().div_ceil(n_pieces).max(1);
        for files in files.chunks(each) {
            self.share(&Arc::new(files.to_vec()));
        }
    }

    /// Adds files behind all others, and fills the last piece first.
    fn fill(&mut self, files: impl IntoIterator<Item = Arc<File>>) {
        for file in files {
            match self.pieces.last_mut() {
                Some(piece) if piece.len() < PIECE_FILES => Arc::make_mut(piece).push(file),
                _ => self.pieces.push(Arc::new(vec![file])),
            }
        }
    }
}

impl FromIterator<Arc<File>> for Files {
    fn from_iter<I: IntoIterator<Item = Arc<File>>>(files: I) -> Self {
        Files::default().changed(files, &BTreeSet::new())
    }
}

impl<'a> IntoIterator for &'a Files {
    type Item = &'a Arc<File>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// By position. Cost: the pieces before it.
impl Index<usize> for Files {
    type Output = Arc<File>;

    fn index(&self, idx: usize) -> &Arc<File> {
        let mut left = idx;
        for piece in self.pieces() {
            match piece.get(left) {
                Some(file) => return file,
                None => left -= piece.len(),
            }
        }
        panic!("file {idx} of {}", self.n_files)
    }
}

/// The same files, however they are cut into pieces.
impl PartialEq for Files {
    fn eq(&self, other: &Self) -> bool {
        self.n_files == other.n_files && self.iter().zip(other).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::contract::sample_file;

    fn file(id: u64, n_rows: u64) -> Arc<File> {
        Arc::new(sample_file(FileId(id), n_rows))
    }

    fn check(files: &Files, model: &BTreeMap<FileId, Arc<File>>) {
        assert!(files.iter().map(|file| file.id).eq(model.keys().copied()));
        assert!(files.iter().zip(model.values()).all(|(a, b)| Arc::ptr_eq(a, b)));
        assert_eq!((files.len(), files.is_empty()), (model.len(), model.is_empty()));
        assert!(files.pieces().all(|piece| (1..=PIECE_FILES).contains(&piece.len())));
        assert!(files.groups.iter().all(|group| (1..=GROUP_PIECES).contains(&group.len())));
        for pair in files.groups.iter().flat_map(|group| group.windows(2)) {
            let (a, b) = (pair[0].len(), pair[1].len());
            assert!(a.min(b) >= SMALL_PIECE_FILES || a + b > PIECE_FILES, "pieces of {a} and {b} are one");
        }
        for pair in files.groups.windows(2) {
            let (a, b) = (pair[0].len(), pair[1].len());
            assert!(a.min(b) >= SMALL_GROUP_PIECES || a + b > GROUP_PIECES, "groups of {a} and {b} are one");
        }
        for (idx, (id, file)) in model.iter().enumerate().step_by(17) {
            assert!(Arc::ptr_eq(files.get(*id).unwrap(), file));
            assert!(Arc::ptr_eq(&files[idx], file));
        }
        assert_eq!(*files, model.values().cloned().collect::<Files>());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn they_are_a_sorted_map(
            n_files in prop_oneof![Just(0u64), 0..20_000u64],
            changes in vec((vec(0u64..1500, 0..300), btree_set(0u64..1500, 0..200), any::<bool>()), 1..20),
        ) {
            // Some changes are close together, others spread over all of them.
            let stretch = |id: u64| if id.is_multiple_of(2) { id } else { id * (1 + n_files / 1500) };
            let mut model: BTreeMap<_, _> = (0..n_files).map(|id| (FileId(id), file(id, 1))).collect();
            let mut files: Files = model.values().cloned().collect();
            let mut next = 100_000;
            for (add, remove, at_the_end) in changes {
                let remove: BTreeSet<FileId> = remove.into_iter().map(stretch).map(FileId).collect();
                let ids: BTreeSet<u64> = add.into_iter().map(stretch).collect();
                let add: Vec<_> = match at_the_end {
                    true => (0..ids.len() as u64).map(|n| file(next + n, 1)).collect(),
                    false => ids.iter().map(|id| file(*id, 1)).filter(|file| !remove.contains(&file.id)).collect(),
                };
                next += if at_the_end { ids.len() as u64 } else { 0 };
                let before = (files.clone(), model.clone());
                model.retain(|id, _| !remove.contains(id));
                model.extend(add.iter().rev().map(|file| (file.id, file.clone())));
                files = files.changed(add, &remove);
                check(&files, &model);
                check(&before.0, &before.1);
                prop_assert!(files.get(FileId(next)).is_none());
            }
        }
    }

    #[test]
    fn a_change_shares_all_but_the_pieces_it_touches() {
        let files: Files = (0..100_000).map(|id| file(id, 1)).collect();
        assert_eq!((files.pieces().count(), files.groups.len()), (391, 7));
        let more = files.changed([file(100_000, 1)], &[FileId(12_345)].into());
        let shared = more.pieces().filter(|piece| files.pieces().any(|other| Arc::ptr_eq(piece, other)));
        assert_eq!((more.len(), shared.count()), (100_000, 389));
        let shared = more.groups.iter().filter(|group| files.groups.iter().any(|other| Arc::ptr_eq(group, other)));
        assert_eq!(shared.count(), 5);
    }

    #[test]
    fn removing_most_leaves_few_pieces() {
        let mut files: Files = (0..20_000).map(|id| file(id, 1)).collect();
        for start in (0..20_000).step_by(100) {
            files = files.changed([], &(start..start + 99).map(FileId).collect());
        }
        assert_eq!(files.len(), 200);
        assert!(files.pieces().count() <= 4, "{} pieces for 200 files", files.pieces().count());
    }
}
