//! Where is what is known of a group, and who may look at it now?
//!
//! Groups are spread over shards, each under a lock of its own, so that readers of one group meet the writers of few
//! others. A batch locks the shards of all its groups, in ascending order, while it is checked, placed and applied: it
//! is seen whole or not at all. Shard locks are taken before the lane's, never after.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::{Mutex, MutexGuard};

use crate::index::Group;

/// Locks, not threads: a batch over 32 groups shall still leave most of them free.
const SHARDS: usize = 128;

pub type Shard = HashMap<u64, Group, BuildHasherDefault<IdHasher>>;

pub struct Shards {
    shards: Vec<Mutex<Shard>>,
}

/// Group ids are the host's own numbers: mixing their bits is enough.
#[derive(Default)]
pub struct IdHasher(u64);

fn mix(id: u64) -> u64 {
    let id = (id ^ (id >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    id ^ (id >> 29)
}

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = mix(self.0 ^ u64::from(byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix(id);
    }
}

fn shard_of(group: u64) -> usize {
    (mix(group) >> 40) as usize % SHARDS
}

impl Shards {
    pub fn new(groups: impl IntoIterator<Item = (u64, Group)>) -> Shards {
        let mut shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
        for (id, group) in groups {
            shards[shard_of(id)].insert(id, group);
        }
        Shards { shards: shards.into_iter().map(Mutex::new).collect() }
    }

    /// The shard of one group.
    pub fn lock(&self, group: u64) -> MutexGuard<'_, Shard> {
        self.shards[shard_of(group)].lock()
    }

    /// The shards of all these groups.
    pub fn lock_all(&self, groups: &[u64]) -> Guards<'_> {
        if let [group] = groups {
            let shard = shard_of(*group);
            return Guards { guards: vec![(shard, self.shards[shard].lock())] };
        }
        let mut wanted: Vec<usize> = groups.iter().map(|&group| shard_of(group)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        Guards { guards: wanted.into_iter().map(|shard| (shard, self.shards[shard].lock())).collect() }
    }

    /// All shards, one after another.
    pub fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(Mutex::lock)
    }
}

pub struct Guards<'a> {
    /// Ascending by shard.
    guards: Vec<(usize, MutexGuard<'a, Shard>)>,
}

impl Guards<'_> {
    fn at(&self, group: u64) -> usize {
        let shard = shard_of(group);
        let found = self.guards.binary_search_by_key(&shard, |(shard, _)| *shard);
        found.expect("a batch locks the shards of all its groups")
    }

    pub fn get(&self, group: u64) -> Option<&Group> {
        self.guards[self.at(group)].1.get(&group)
    }

    /// The group, made if absent.
    pub fn entry(&mut self, group: u64) -> &mut Group {
        let at = self.at(group);
        self.guards[at].1.entry(group).or_default()
    }
}
