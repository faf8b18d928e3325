//! Where do the bytes of a page lie? In memory of their own, or beside their neighbours, where one task read several
//! into one buffer: a range over such pages is handed out without a copy.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::plan::pages_of;

/// A page's bytes: a part of `whole`, or all of it.
#[derive(Debug, Clone)]
pub(crate) struct PageBytes {
    whole: Bytes,
    part: Range<usize>,
}

impl From<Bytes> for PageBytes {
    fn from(whole: Bytes) -> Self {
        PageBytes { part: 0..whole.len(), whole }
    }
}

impl PageBytes {
    pub(crate) fn part_of(whole: &Bytes, part: Range<usize>) -> Self {
        PageBytes { whole: whole.clone(), part }
    }

    pub(crate) fn len(&self) -> usize {
        self.part.len()
    }

    /// Whether it shares its memory with nothing.
    pub(crate) fn is_alone(&self) -> bool {
        self.part.len() == self.whole.len()
    }

    /// The page in memory of its own: one that stays does not keep its neighbours.
    pub(crate) fn alone(&self) -> Bytes {
        match self.is_alone() {
            true => self.whole.clone(),
            false => Bytes::copy_from_slice(&self.whole[self.part.clone()]),
        }
    }

    fn slice(&self, within: Range<usize>) -> Bytes {
        self.whole.slice(self.part.start + within.start..self.part.start + within.end)
    }

    /// Whether `next` goes on where this ends.
    fn is_before(&self, next: &PageBytes) -> bool {
        self.whole.as_ptr() == next.whole.as_ptr() && self.part.end == next.part.start
    }
}

/// What `pages` have of `range`, in order: as few pieces as can be had without a copy.
pub(crate) fn pieces(pages: &BTreeMap<u32, PageBytes>, range: &Range<u64>, page_bytes: u64) -> Vec<Bytes> {
    let mut runs: Vec<(u64, PageBytes)> = vec![];
    for (&page, bytes) in pages.range(pages_of(range, page_bytes)) {
        match runs.last_mut() {
            Some((_, run)) if run.is_before(bytes) => run.part.end = bytes.part.end,
            _ => runs.push((u64::from(page) * page_bytes, bytes.clone())),
        }
    }
    let cut = runs.iter().map(|(first, run)| {
        let from = range.start.saturating_sub(*first) as usize;
        let to = ((range.end - first) as usize).min(run.len());
        // A few bytes that live long would keep a whole page in memory.
        match (to - from) * 2 < run.len().min(page_bytes as usize) {
            true => Bytes::copy_from_slice(&run.slice(from..to)),
            false => run.slice(from..to),
        }
    });
    cut.collect()
}

/// The pieces of `range` as one.
pub(crate) fn joined(mut pieces: Vec<Bytes>, range: &Range<u64>) -> Bytes {
    if pieces.len() <= 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity((range.end - range.start) as usize);
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pages of 10 bytes of an object of `len`; `cuts` says behind which pages a new buffer begins.
    fn pages(object: &Bytes, cuts: &[bool]) -> BTreeMap<u32, PageBytes> {
        let mut all = BTreeMap::new();
        let (mut first, n_pages) = (0, object.len().div_ceil(10));
        for page in 0..n_pages {
            if cuts[page % cuts.len()] || page + 1 == n_pages {
                let run = Bytes::copy_from_slice(&object[first * 10..object.len().min(page * 10 + 10)]);
                for in_run in first..=page {
                    let from = (in_run - first) * 10;
                    let part = from..run.len().min(from + 10);
                    all.insert(in_run as u32, PageBytes::part_of(&run, part));
                }
                first = page + 1;
            }
        }
        all
    }

    #[test]
    fn pages_of_one_buffer_are_one_piece() {
        let object = Bytes::from((0..100).collect::<Vec<u8>>());
        let all = pages(&object, &[false]);
        let whole = pieces(&all, &(5..95), 10);
        assert_eq!((whole.len(), &whole[0][..]), (1, &object[5..95]));
        assert_eq!(whole[0].as_ptr(), all[&0].whole[5..].as_ptr(), "no copy");
        assert_ne!(pieces(&all, &(5..8), 10)[0].as_ptr(), all[&0].whole[5..].as_ptr(), "a few bytes are copied");
        let apart = pages(&object, &[true]);
        assert_eq!(pieces(&apart, &(5..95), 10).len(), 10);
        assert_eq!(all[&3].alone(), apart[&3].alone());
    }

    proptest! {
        #[test]
        fn a_range_is_the_objects(len in 1usize..200, from in 0usize..200, to in 0usize..200, cuts in proptest::collection::vec(any::<bool>(), 1..8)) {
            let object = Bytes::from((0..len).map(|i| i as u8).collect::<Vec<_>>());
            let (from, to) = (from.min(len) as u64, to.min(len) as u64);
            let range = from.min(to)..from.max(to);
            let got = joined(pieces(&pages(&object, &cuts), &range, 10), &range);
            prop_assert_eq!(&got[..], &object[range.start as usize..range.end as usize]);
        }
    }
}
