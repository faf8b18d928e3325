//! How old are delivered rows, where does the next eviction go on, and which tombstones wait for it?
//!
//! A row's age is not stored; what is known is when each delivery of the tablet was installed: a row at or below its
//! cursor is at least that old. Deliveries before the last restart count as old.

use tarn_types::SeqNo;

/// Deliveries remembered with their time; older ones are merged.
const MAX_MARKS: usize = 1024;
/// Keys of tombstones remembered; if there are more, they are looked for instead.
const MAX_TOMBSTONES: usize = 1 << 20;

/// What the next eviction needs to know.
#[derive(Clone)]
pub(crate) struct Evictions {
    /// Installed positions with the time of their install, ascending.
    marks: Vec<(SeqNo, i64)>,
    /// Where to go on.
    pub(crate) next: Option<Vec<u8>>,
    /// Keys whose tombstones were installed since the tablet was opened.
    pub(crate) tombstones: Vec<Vec<u8>>,
    /// Whether the tablet must be searched for tombstones that nobody remembers.
    pub(crate) search: Search,
}

/// A search for tombstones rides on the passes over the tablet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// The next pass that begins is one.
    Wanted,
    /// The pass that is under way is one.
    Running,
    /// All are remembered.
    Done,
}

impl Evictions {
    pub(crate) fn new(installed: SeqNo) -> Self {
        Self { marks: vec![(installed, i64::MIN)], next: None, tombstones: Vec::new(), search: Search::Wanted }
    }

    /// Of a tablet that was split off: of the same age, and not searched yet.
    pub(crate) fn begun_anew(&self) -> Self {
        Self { next: None, search: Search::Wanted, ..self.clone() }
    }

    /// A delivery was installed that deleted these keys.
    pub(crate) fn delivered(&mut self, upto: SeqNo, now_ms: i64, deleted: Vec<Vec<u8>>) {
        if self.tombstones.len() + deleted.len() > MAX_TOMBSTONES {
            self.tombstones = Vec::new();
            self.search = Search::Wanted;
        } else {
            self.tombstones.extend(deleted);
        }
        self.marks.push((upto, now_ms));
        if self.marks.len() > MAX_MARKS {
            // Every second one goes: ages get coarser, and rows stay longer rather than shorter.
            let mut i = 0;
            self.marks.retain(|_| {
                i += 1;
                i % 2 == 0
            });
        }
    }

    /// What was delivered at or before `time_ms`.
    pub(crate) fn delivered_before(&self, time_ms: i64) -> SeqNo {
        let old = self.marks.iter().rev().find(|(_, at_ms)| *at_ms <= time_ms);
        old.map_or(SeqNo::ZERO, |(upto, _)| *upto)
    }
}
