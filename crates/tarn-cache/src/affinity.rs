//! Which worker should read this part of a file, so that the next query finds it near?
//!
//! Rendezvous hashing: every worker has a score for every part, and the two highest are its first and second choice.
//! Who comes or goes moves only the parts that it takes or had; nothing is agreed on between workers. The part is a row
//! group, not a file: a few large files are everybody's work.
//!
//! A choice is a wish. A worker that has its share already is passed over for the second choice, and if both have
//! theirs, whoever has the least reads past its cache ([`bypass`](crate::ReadRequest::bypass)): nobody waits for a
//! cache, and no third worker's is filled with it.
//!
//! Sources: Thaler and Ravishankar, "A name-based mapping scheme for rendezvous" (1996); the share that bounds a
//! worker's load: Mirrokni and others, "Consistent hashing with bounded loads" (2016).

use xxhash_rust::xxh3::Xxh3;

/// A worker may have so many hundredths of the mean before it is passed over.
const SHARE_PERCENT: u64 = 125;

/// What one worker reads: a row group of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowGroupRead<'a> {
    /// Of the store that the file is in.
    pub store: &'a str,
    /// In that store.
    pub path: &'a str,
    /// Its position in the file.
    pub row_group: u32,
    /// What reading it costs: its bytes.
    pub bytes: u64,
}

/// Where a part is read: by which worker, an index into those that were handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Its first or second choice: what it reads, it keeps.
    Near(usize),
    /// Both have enough to do: this one reads past its cache.
    Bypass(usize),
}

impl Placement {
    /// Who reads it, near or past its cache.
    pub fn worker(self) -> usize {
        match self {
            Placement::Near(worker) | Placement::Bypass(worker) => worker,
        }
    }
}

/// The workers that should have `part` near: first and second choice, by index. Without workers none, with one only the
/// first.
///
/// The same for the same names, in whatever order they are. Cost: a hash for each worker.
pub fn choices<W: AsRef<str>>(workers: &[W], part: &RowGroupRead<'_>) -> [Option<usize>; 2] {
    let mut best: [Option<(u64, &str, usize)>; 2] = [None, None];
    for (idx, worker) in workers.iter().enumerate() {
        // Equal scores are told apart by the name.
        let scored = Some((score(worker.as_ref(), part), worker.as_ref(), idx));
        if scored > best[0] {
            best = [scored, best[0]];
        } else if scored > best[1] {
            best[1] = scored;
        }
    }
    best.map(|scored| scored.map(|(.., idx)| idx))
}

/// Who reads each of `parts`, in their order; `None` without workers. Of workers with equal loads the earlier one is
/// taken. `loads` is what each worker has to read already, in bytes.
///
/// No worker is given more than 125 % of the mean, by more than the last part that it takes. Cost: a hash for each
/// worker and part.
pub fn place<W: AsRef<str>>(workers: &[W], mut loads: Vec<u64>, parts: &[RowGroupRead<'_>]) -> Option<Vec<Placement>> {
    let n_workers = u64::try_from(workers.len()).ok().filter(|n| *n > 0)?;
    loads.resize(workers.len(), 0);
    let total = loads.iter().chain(parts.iter().map(|part| &part.bytes)).fold(0u64, |sum, n| sum.saturating_add(*n));
    let share = total.div_ceil(n_workers).saturating_mul(SHARE_PERCENT) / 100;
    let mut put = |part: &RowGroupRead<'_>| {
        let fits = |idx: &usize| loads[*idx] == 0 || loads[*idx].saturating_add(part.bytes) <= share;
        let near = choices(workers, part).into_iter().flatten().find(fits);
        let least = || (0..loads.len()).min_by_key(|idx| loads[*idx]);
        let placed = near.map(Placement::Near).or_else(|| least().map(Placement::Bypass))?;
        loads[placed.worker()] = loads[placed.worker()].saturating_add(part.bytes);
        Some(placed)
    };
    parts.iter().map(&mut put).collect()
}

fn score(worker: &str, part: &RowGroupRead<'_>) -> u64 {
    let mut hash = Xxh3::new();
    for name in [worker, part.store, part.path] {
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
    }
    hash.update(&part.row_group.to_le_bytes());
    hash.digest()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|idx| format!("worker-{idx}:7000")).collect()
    }

    fn parts(paths: &[String], n_row_groups: u32) -> Vec<RowGroupRead<'_>> {
        let of = |path| {
            (0..n_row_groups).map(move |row_group| RowGroupRead { store: "s3://lake", path, row_group, bytes: 100 })
        };
        paths.iter().flat_map(|path| of(path)).collect()
    }

    fn paths(n: usize) -> Vec<String> {
        (0..n).map(|idx| format!("logs/dt=2026-11-22/{idx}.parquet")).collect()
    }

    #[test]
    fn who_leaves_moves_only_its_own_parts_and_to_their_second_choice() {
        let (all, paths) = (names(8), paths(500));
        let left: Vec<String> = all.iter().filter(|name| **name != all[3]).cloned().collect();
        let mut moved = 0;
        for part in parts(&paths, 4) {
            let [first, second] = choices(&all, &part).map(|idx| &all[idx.unwrap()]);
            let now = &left[choices(&left, &part)[0].unwrap()];
            assert_ne!(first, second);
            match *first == all[3] {
                true => assert_eq!((now, moved += 1), (second, ())),
                false => assert_eq!(now, first),
            }
        }
        assert!((150..350).contains(&moved), "an eighth of 2,000: {moved}");
    }

    #[test]
    fn one_large_file_is_everybodys_work() {
        let (workers, paths) = (names(8), paths(1));
        let parts = parts(&paths, 64);
        let placed = place(&workers, vec![], &parts).unwrap();
        for worker in 0..8 {
            let n = placed.iter().filter(|placed| placed.worker() == worker).count();
            assert!((1..=10).contains(&n), "worker {worker} reads {n} of 64");
        }
    }

    #[test]
    fn hardly_anything_is_read_past_the_caches() {
        let (workers, paths) = (names(10), paths(1000));
        let parts = parts(&paths, 2);
        let placed = place(&workers, vec![], &parts).unwrap();
        let bypassed = placed.iter().filter(|placed| matches!(placed, Placement::Bypass(_))).count();
        assert!(bypassed <= 20, "{bypassed} of 2,000");
        let first =
            parts.iter().zip(&placed).filter(|(part, placed)| choices(&workers, part)[0] == Some(placed.worker()));
        assert!(first.count() > 1_900);
    }

    #[test]
    fn a_worker_that_is_busy_is_passed_over() {
        let (workers, paths) = (names(4), paths(50));
        let parts = parts(&paths, 1);
        let placed = place(&workers, vec![0, 1_000_000, 0, 0], &parts).unwrap();
        assert!(placed.iter().all(|placed| placed.worker() != 1));
        let was_second = |part: &RowGroupRead<'_>, placed: &Placement| {
            let [first, second] = choices(&workers, part);
            first == Some(1) && *placed == Placement::Near(second.unwrap())
        };
        assert!(parts.iter().zip(&placed).any(|(part, placed)| was_second(part, placed)));
    }

    #[test]
    fn none_and_one() {
        let paths = paths(3);
        let parts = parts(&paths, 1);
        assert_eq!(place(&names(0), vec![], &parts), None);
        assert_eq!(choices(&names(0), &parts[0]), [None, None]);
        assert_eq!(choices(&names(1), &parts[0]), [Some(0), None]);
        assert_eq!(place(&names(1), vec![], &parts), Some(vec![Placement::Near(0); 3]));
        assert_eq!(place(&names(2), vec![], &[]), Some(vec![]));
    }

    proptest! {
        #[test]
        fn the_order_of_workers_says_nothing(n in 1usize..12, turn in 0usize..12, row_group: u32, path in "[a-z/]{0,20}") {
            let part = RowGroupRead { store: "s3://lake", path: &path, row_group, bytes: 1 };
            let workers = names(n);
            let mut turned = workers.clone();
            turned.rotate_left(turn % n);
            let named = |workers: &[String]| choices(workers, &part).map(|idx| idx.map(|idx| workers[idx].clone()));
            prop_assert_eq!(named(&workers), named(&turned));
        }

        #[test]
        fn no_worker_has_more_than_its_share(n in 1usize..12, sizes in proptest::collection::vec(0u64..1_000, 0..100)) {
            let workers = names(n);
            let part = |(row_group, bytes): (usize, &u64)| {
                let row_group = row_group as u32;
                RowGroupRead { store: "", path: "a", row_group, bytes: *bytes }
            };
            let parts: Vec<RowGroupRead<'_>> = sizes.iter().enumerate().map(part).collect();
            let placed = place(&workers, vec![], &parts).unwrap();
            prop_assert_eq!(placed.len(), parts.len());
            let largest = sizes.iter().max().copied().unwrap_or(0);
            let share = sizes.iter().sum::<u64>().div_ceil(n as u64) * SHARE_PERCENT / 100;
            for worker in 0..n {
                let load: u64 = placed.iter().zip(&parts).filter(|(p, _)| p.worker() == worker).map(|(_, part)| part.bytes).sum();
                prop_assert!(load <= share.max(largest) + largest, "{load} of {share}");
            }
        }
    }
}
