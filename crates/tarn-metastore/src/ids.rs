//! Which commits are in?
//!
//! In shares, so that growing moves a few thousand entries and not all of them while commits wait.

use std::collections::HashMap;

use uuid::Uuid;

use tarn_types::Version;

const SHARES: usize = 256;

/// The version of each commit that is kept, by its id.
#[derive(Debug, Clone)]
pub struct Ids {
    shares: Vec<HashMap<Uuid, Version>>,
}

impl Ids {
    /// No commit is in.
    pub fn new() -> Self {
        Self { shares: vec![HashMap::new(); SHARES] }
    }

    /// The version that the commit with this id made, if it is kept.
    pub fn get(&self, id: &Uuid) -> Option<&Version> {
        self.shares[share(id)].get(id)
    }

    /// Notes a commit that went in.
    pub fn insert(&mut self, id: Uuid, version: Version) {
        self.shares[share(&id)].insert(id, version);
    }

    /// Forgets a commit with its version: sent again, it would be a new one.
    pub fn remove(&mut self, id: &Uuid) {
        self.shares[share(id)].remove(id);
    }
}

/// Ids are often counted up, or begin with the time.
fn share(id: &Uuid) -> usize {
    id.as_bytes().iter().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte))) % SHARES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_is_found_and_what_is_out_is_not() {
        let mut ids = Ids::new();
        let id = |n: u64| Uuid::from_u128(u128::from(n));
        (0..5_000).for_each(|n| ids.insert(id(n), Version(n)));
        (0..5_000).step_by(3).for_each(|n| ids.remove(&id(n)));
        for n in 0..6_000u64 {
            let expected = (n < 5_000 && !n.is_multiple_of(3)).then_some(Version(n));
            assert_eq!(ids.get(&id(n)).copied(), expected);
        }
        let largest = ids.shares.iter().map(HashMap::len).max().unwrap();
        assert!(largest < 5_000 / SHARES * 3, "{largest} in one share");
    }
}
