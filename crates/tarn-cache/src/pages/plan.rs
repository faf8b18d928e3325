//! Which pages does a range need, and which requests bring the missing ones?

use std::ops::Range;

/// The pages that hold the bytes of `range`; none for an empty one.
pub(crate) fn pages_of(range: &Range<u64>, page_bytes: u64) -> Range<u32> {
    if range.start >= range.end {
        return 0..0;
    }
    (range.start / page_bytes) as u32..range.end.div_ceil(page_bytes) as u32
}

/// Groups of pages, each to be fetched in one request: neighbours of `missing` (sorted, each once) with at most
/// `gap_pages` present ones between them, and at most `max_pages` in a group. Half-open, in order, disjoint; the first
/// and last page of each is missing.
pub(crate) fn runs(missing: &[u32], gap_pages: u32, max_pages: u32) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = vec![];
    for &page in missing {
        match runs.last_mut() {
            Some(run) if page - run.end <= gap_pages && page - run.start < max_pages.max(1) => run.end = page + 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_needs_the_pages_it_touches() {
        assert_eq!(pages_of(&(0..10), 10), 0..1);
        assert_eq!(pages_of(&(9..11), 10), 0..2);
        assert_eq!(pages_of(&(10..20), 10), 1..2);
        assert_eq!(pages_of(&(15..15), 10), 0..0);
    }

    #[test]
    fn neighbours_come_in_one_request_up_to_the_gap_and_the_bound() {
        assert_eq!(runs(&[0, 1, 2, 4, 9], 0, 100), [0..3, 4..5, 9..10]);
        assert_eq!(runs(&[0, 1, 2, 4, 9], 1, 100), [0..5, 9..10]);
        assert_eq!(runs(&[0, 1, 2, 3, 4], 0, 2), [0..2, 2..4, 4..5]);
        assert_eq!(runs(&[], 0, 2), []);
    }

    proptest! {
        #[test]
        fn every_missing_page_is_fetched_once(pages in proptest::collection::btree_set(0u32..200, 0..60), gap in 0u32..5, max in 1u32..10) {
            let missing: Vec<u32> = pages.into_iter().collect();
            let runs = runs(&missing, gap, max);
            prop_assert!(missing.iter().all(|page| runs.iter().filter(|run| run.contains(page)).count() == 1));
            prop_assert!(runs.iter().all(|run| run.end - run.start <= max && missing.contains(&run.start) && missing.contains(&(run.end - 1))));
            prop_assert!(runs.windows(2).all(|w| w[0].end <= w[1].start));
        }
    }
}
