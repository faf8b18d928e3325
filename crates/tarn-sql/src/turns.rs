//! Who changes a row next, of many who first read it? One after the other, in the order in which they came.
//!
//! `ON CONFLICT DO UPDATE` reads a row, computes, and writes what it was read as. Without turns, of a hundred clients
//! that count in one row ninety-nine would read in vain each time, and some would give up. A turn is a courtesy between
//! the sessions of this node: what is right the guard of the write decides, so keys that share a turn by chance wait
//! for each other, and nothing else happens.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::{Mutex, MutexGuard};

/// Keys share so many turns.
const STRIPES: usize = 1024;

/// Who changes more rows at once does not wait: it is no counter.
const MAX_KEYS: usize = 64;

/// The turns of all keys.
#[derive(Debug)]
pub(crate) struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Turns {
        Turns((0..STRIPES).map(|_| Mutex::new(())).collect())
    }
}

impl Turns {
    /// Waits until it is one's turn with all of these engine keys; the turn ends when the answer is dropped. Of more
    /// than [`MAX_KEYS`] it answers nothing, at once.
    pub(crate) async fn wait<'a>(&'a self, keys: impl ExactSizeIterator<Item = &[u8]>) -> Vec<MutexGuard<'a, ()>> {
        if keys.len() > MAX_KEYS {
            return Vec::new();
        }
        // Everybody waits in this order, so nobody waits for each other.
        let stripes: BTreeSet<usize> = keys.map(stripe).collect();
        let mut turns = Vec::with_capacity(stripes.len());
        for stripe in stripes {
            turns.push(self.0[stripe].lock().await);
        }
        turns
    }
}

fn stripe(key: &[u8]) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() % STRIPES as u64) as usize
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn keys(ids: std::ops::Range<u32>) -> Vec<Vec<u8>> {
        ids.map(|id| id.to_be_bytes().to_vec()).collect()
    }

    #[test]
    fn a_turn_is_waited_for_and_ends() {
        let turns = Turns::default();
        let (one, many) = (keys(1..2), keys(0..100));
        let first = turns.wait(one.iter().map(Vec::as_slice)).now_or_never().unwrap();
        assert!(turns.wait(one.iter().map(Vec::as_slice)).now_or_never().is_none());
        assert!(turns.wait(many.iter().map(Vec::as_slice)).now_or_never().is_some_and(|turns| turns.is_empty()));
        drop(first);
        // Twice the same key is one turn.
        let twice = [&one[..], &one[..]].concat();
        assert_eq!(turns.wait(twice.iter().map(Vec::as_slice)).now_or_never().unwrap().len(), 1);
    }
}
