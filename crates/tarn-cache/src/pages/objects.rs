//! Which objects are known, and which state of each did the store last name?

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use object_store::path::Path;

use super::key::Object;

/// Objects known beyond this, whose pages are all gone, are forgotten.
const MIN_OBJECTS: usize = 1024;

#[derive(Default)]
pub(super) struct Objects {
    /// All states that are known, those that others took the place of among them.
    pub by_id: HashMap<u128, Arc<Object>>,
    /// Every known state of what lies or lay at a path, the youngest last.
    pub by_path: HashMap<(Arc<str>, Path), Vec<u128>>,
    /// The state that the store last said a path has, unless something was written there since.
    pub current: HashMap<(Arc<str>, Path), u128>,
    forget_at: usize,
    /// Grows with each [`PageCache::forget`]: what the store said before one may be old after it.
    pub writes: u64,
}

impl Objects {
    /// Whether those without pages should be forgotten before one more is known.
    pub fn is_full(&self) -> bool {
        self.by_id.len() >= self.forget_at.max(MIN_OBJECTS)
    }

    /// Forgets those that are not `live`.
    pub fn retain(&mut self, live: &HashSet<u128>) {
        let gone = self.by_id.keys().filter(|id| !live.contains(id)).copied().collect();
        self.remove(&gone);
        self.forget_at = self.by_id.len() * 2;
    }

    /// Notes a state as its path's youngest, unless it is known.
    pub fn insert(&mut self, object: Arc<Object>) {
        if self.by_id.insert(object.id, Arc::clone(&object)).is_none() {
            self.by_path.entry((Arc::clone(&object.store), object.path.clone())).or_default().push(object.id);
        }
    }

    /// Forgets states of which no page is kept.
    pub fn remove(&mut self, gone: &HashSet<u128>) {
        for object in gone.iter().filter_map(|id| self.by_id.remove(id)) {
            let place = (Arc::clone(&object.store), object.path.clone());
            if let Some(ids) = self.by_path.get_mut(&place) {
                ids.retain(|id| *id != object.id);
                if ids.is_empty() {
                    self.by_path.remove(&place);
                }
            }
            if self.current.get(&place) == Some(&object.id) {
                self.current.remove(&place);
            }
        }
    }
}
