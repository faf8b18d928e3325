//! Which rows of a row set are alive? A bitmap that snapshots share and writers copy when they must.

use arrow::array::BooleanArray;
use arrow::buffer::{BooleanBuffer, Buffer};

#[derive(Clone, Debug, Default)]
pub(crate) struct LiveBitmap {
    words: Vec<u64>,
    len: usize,
    n_live: usize,
}

impl LiveBitmap {
    /// `len` rows, all alive.
    pub(crate) fn all(len: usize) -> Self {
        let mut words = vec![u64::MAX; len.div_ceil(64)];
        if let Some(last) = words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last = (1 << (len % 64)) - 1;
        }
        Self { words, len, n_live: len }
    }

    /// One more row, alive.
    pub(crate) fn push(&mut self) {
        if self.len.is_multiple_of(64) {
            self.words.push(0);
        }
        self.words[self.len / 64] |= 1 << (self.len % 64);
        self.len += 1;
        self.n_live += 1;
    }

    /// The row is dead; it may have been before.
    pub(crate) fn clear(&mut self, row: usize) {
        let bit = 1 << (row % 64);
        let word = &mut self.words[row / 64];
        self.n_live -= usize::from(*word & bit != 0);
        *word &= !bit;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn n_live(&self) -> usize {
        self.n_live
    }

    /// A filter for the row set's rows.
    pub(crate) fn mask(&self) -> BooleanArray {
        let words: Vec<u64> = self.words.iter().map(|word| word.to_le()).collect();
        BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(words), 0, self.len), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_and_masks_like_a_vector(start in 0usize..200, pushes in 0usize..200, dead: Vec<u16>) {
            let mut live = LiveBitmap::all(start);
            let mut model = vec![true; start];
            (0..pushes).for_each(|_| live.push());
            model.resize(start + pushes, true);
            for row in dead {
                if !model.is_empty() {
                    let row = usize::from(row) % model.len();
                    live.clear(row);
                    model[row] = false;
                }
            }
            prop_assert_eq!(live.len(), model.len());
            prop_assert_eq!(live.n_live(), model.iter().filter(|alive| **alive).count());
            let mask: Vec<bool> = live.mask().iter().map(|bit| bit == Some(true)).collect();
            prop_assert_eq!(mask, model);
        }
    }
}
