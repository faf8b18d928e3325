//! How are the commits of a table kept, so that a copy of the list costs next to nothing?
//!
//! ```text
//! Commits ──> [piece, piece, …, piece]     each 256 commits, the last up to 256
//!                └──> [Arc<CommitInfo>, …]  shared by all copies of the list
//! ```
//!
//! A checkpoint is made of a copy, while others commit: copying 100,000 commits copies 400 pointers, and the next
//! commit copies the last piece once.
//!
//! Invariants: all pieces but the last are full; none is empty; of the first, `n_forgotten` commits are no longer in
//! the list.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::CommitInfo;

const PIECE_COMMITS: usize = 256;

/// Commits in the order of their versions. They come at the end and go at the front.
#[derive(Debug, Clone, Default)]
pub struct Commits {
    pieces: VecDeque<Arc<Vec<Arc<CommitInfo>>>>,
    n_forgotten: usize,
    n_commits: usize,
}

impl Commits {
    /// Commits in the list, those that were forgotten not counted.
    pub fn len(&self) -> usize {
        self.n_commits
    }

    /// The commit at this position, counted from the oldest in the list.
    pub fn get(&self, idx: usize) -> Option<&Arc<CommitInfo>> {
        let at = idx + self.n_forgotten;
        self.pieces.get(at / PIECE_COMMITS)?.get(at % PIECE_COMMITS)
    }

    /// The oldest in the list.
    pub fn front(&self) -> Option<&Arc<CommitInfo>> {
        self.get(0)
    }

    /// From the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CommitInfo>> {
        self.since(0)
    }

    /// All but the first so many.
    pub fn since(&self, idx: usize) -> impl Iterator<Item = &Arc<CommitInfo>> {
        let at = idx + self.n_forgotten;
        self.pieces.iter().skip(at / PIECE_COMMITS).flat_map(|piece| piece.iter()).skip(at % PIECE_COMMITS)
    }

    /// How many there are before the first that is not `before`: they come first.
    pub fn partition_point(&self, before: impl Fn(&CommitInfo) -> bool) -> usize {
        let (mut from, mut to) = (0, self.n_commits);
        while from < to {
            let middle = usize::midpoint(from, to);
            match self.get(middle).is_some_and(|commit| before(commit)) {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from
    }

    /// Adds the newest. Where copies share the last piece, that one is copied.
    pub fn push_back(&mut self, commit: Arc<CommitInfo>) {
        match self.pieces.back_mut() {
            Some(last) if last.len() < PIECE_COMMITS => Arc::make_mut(last).push(commit),
            _ => {
                let mut piece = Vec::with_capacity(PIECE_COMMITS);
                piece.push(commit);
                self.pieces.push_back(Arc::new(piece));
            }
        }
        self.n_commits += 1;
    }

    /// Forgets the oldest, and answers it.
    pub fn pop_front(&mut self) -> Option<Arc<CommitInfo>> {
        let first = self.front()?.clone();
        self.n_forgotten += 1;
        self.n_commits -= 1;
        if self.n_commits == 0 || self.n_forgotten == PIECE_COMMITS {
            self.pieces.pop_front();
            self.n_forgotten = 0;
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tarn_types::Version;
    use uuid::Uuid;

    use super::*;
    use crate::CommitKind;

    fn commit(version: u64) -> Arc<CommitInfo> {
        Arc::new(CommitInfo {
            id: Uuid::from_u128(version.into()),
            version: Version(version),
            added: vec![],
            removed: vec![],
            deletion_vectors: Default::default(),
            cursor: None,
            kind: CommitKind::Delivery,
            at_ms: version as i64 / 2,
        })
    }

    fn versions<'a>(commits: impl Iterator<Item = &'a Arc<CommitInfo>>) -> Vec<u64> {
        commits.map(|commit| commit.version.0).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn they_are_a_queue_and_copies_stay_what_they_were(steps in proptest::collection::vec((0..600u64, 0..700u64, any::<u16>()), 1..8)) {
            let (mut commits, mut model, mut next) = (Commits::default(), VecDeque::new(), 0);
            for (n_pushed, n_popped, pick) in steps {
                let before = (commits.clone(), model.clone());
                for _ in 0..n_pushed {
                    commits.push_back(commit(next));
                    model.push_back(next);
                    next += 1;
                }
                for _ in 0..n_popped {
                    prop_assert_eq!(commits.pop_front().map(|commit| commit.version.0), model.pop_front());
                }
                for (commits, model) in [(&commits, &model), (&before.0, &before.1)] {
                    prop_assert_eq!(commits.len(), model.len());
                    prop_assert_eq!(versions(commits.iter()), model.iter().copied().collect::<Vec<_>>());
                    let idx = usize::from(pick) % (model.len() + 2);
                    prop_assert_eq!(versions(commits.since(idx)), model.iter().skip(idx).copied().collect::<Vec<_>>());
                    prop_assert_eq!(commits.get(idx).map(|commit| commit.version.0), model.get(idx).copied());
                    let at_ms = i64::from(pick) % 700;
                    let found = commits.partition_point(|commit| commit.at_ms <= at_ms);
                    prop_assert_eq!(found, model.partition_point(|version| *version as i64 / 2 <= at_ms));
                }
            }
        }
    }

    #[test]
    fn a_copy_shares_all_but_the_last_piece() {
        let mut commits = Commits::default();
        (0..100_000).for_each(|version| commits.push_back(commit(version)));
        let copy = commits.clone();
        commits.push_back(commit(100_000));
        let shared = commits.pieces.iter().zip(&copy.pieces).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!((commits.pieces.len(), shared), (391, 390));
    }
}
