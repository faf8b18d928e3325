//! Where is what is known of a group, and who may look at it now?
//!
//! Each group has a lock of its own: a batch holds those of all its groups, taken in ascending order, while it is
//! checked, placed and applied, so it is seen whole or not at all, and batches of other groups pass beside it. The
//! table from ids to groups is spread over shards, whose locks are held only for a look; never while a batch holds
//! groups. Groups' locks are taken before the lane's, never after.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::index::Group;

const SHARDS: usize = 64;

/// A group under its lock.
pub struct GroupCell {
    group: Mutex<GroupEntry>,
}

#[derive(Default)]
struct GroupEntry {
    group: Group,
    /// It left the table: who finds this looks again.
    gone: bool,
}

type Shard = HashMap<u64, Arc<GroupCell>, BuildHasherDefault<IdHasher>>;

/// All groups, by id.
pub struct Shards {
    shards: Vec<RwLock<Shard>>,
}

/// Group ids are the host's own numbers: mixing their bits is enough.
#[derive(Default)]
pub struct IdHasher(u64);

/// Spreads ids that are close together over all bits.
pub fn mix(id: u64) -> u64 {
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
    /// These groups, and room for others.
    pub fn new(groups: impl IntoIterator<Item = (u64, Group)>) -> Shards {
        let mut shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::default()).collect();
        for (id, group) in groups {
            shards[shard_of(id)]
                .insert(id, Arc::new(GroupCell { group: Mutex::new(GroupEntry { group, gone: false }) }));
        }
        Shards { shards: shards.into_iter().map(RwLock::new).collect() }
    }

    fn find(&self, group: u64) -> Option<Arc<GroupCell>> {
        self.shards[shard_of(group)].read().get(&group).cloned()
    }

    /// A look at one group, if it was ever heard of.
    pub fn with<T>(&self, group: u64, look: impl FnOnce(&mut Group) -> T) -> Option<T> {
        let cell = self.find(group)?;
        let mut held = cell.group.lock();
        (!held.gone).then(|| look(&mut held.group))
    }

    /// These groups, made if absent; to be locked by [`lock_all`].
    pub fn cells(&self, groups: &[u64]) -> Vec<Arc<GroupCell>> {
        let make = |&group: &u64| {
            self.find(group).unwrap_or_else(|| {
                let mut shard = self.shards[shard_of(group)].write();
                Arc::clone(shard.entry(group).or_insert_with(|| Arc::new(GroupCell { group: Mutex::default() })))
            })
        };
        groups.iter().map(make).collect()
    }

    /// All groups, in no order, each under its lock.
    pub fn for_each(&self, mut look: impl FnMut(u64, &Group)) {
        for shard in &self.shards {
            shard.read().iter().for_each(|(&id, cell)| look(id, &cell.group.lock().group));
        }
    }

    /// Drops the groups that `goes` chooses.
    pub fn forget(&self, mut goes: impl FnMut(&Group) -> bool) {
        for shard in &self.shards {
            shard.write().retain(|_, cell| {
                let mut held = cell.group.lock();
                held.gone = goes(&held.group);
                !held.gone
            });
        }
    }

    /// Memory of the tables, beside what the groups hold.
    pub fn table_bytes(&self) -> u64 {
        let entry = size_of::<(u64, Arc<GroupCell>)>();
        self.shards
            .iter()
            .map(|shard| {
                let shard = shard.read();
                shard.capacity() * entry + shard.len() * size_of::<GroupCell>()
            })
            .sum::<usize>() as u64
    }
}

/// Locks groups that were found in ascending order of their ids. `None`: one of them left the table since.
pub fn lock_all(cells: &[Arc<GroupCell>]) -> Option<Guards<'_>> {
    let guards: Vec<_> = cells.iter().map(|cell| cell.group.lock()).collect();
    (!guards.iter().any(|held| held.gone)).then_some(Guards { guards })
}

/// The groups of a batch, locked; each has its place in the batch's ascending list of groups.
pub struct Guards<'a> {
    guards: Vec<MutexGuard<'a, GroupEntry>>,
}

impl Guards<'_> {
    /// The group at this place among the batch's groups.
    pub fn get(&self, place: usize) -> &Group {
        &self.guards[place].group
    }

    /// In the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.guards.iter().map(|held| &held.group)
    }

    /// As [`Guards::get`], to be changed.
    pub fn get_mut(&mut self, place: usize) -> &mut Group {
        &mut self.guards[place].group
    }
}
