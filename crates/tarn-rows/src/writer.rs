//! What do only the writers of a tablet need to know? It is guarded by the tablet's lock `writer`.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tarn_types::{Effects, Entry, SeqNo};

use crate::audit::Auditor;
use crate::evictions::Evictions;
use crate::recent::{Generation, ViewChanges, contains};
use crate::requests::Requests;

/// What only writers need.
pub(crate) struct TabletWriter {
    pub(crate) active: Generation,
    /// The freeze before the first entry of `active`.
    pub(crate) frozen_upto: SeqNo,
    /// Not installed yet, oldest first.
    pub(crate) frozen: VecDeque<FrozenGeneration>,
    /// There until the log is replayed.
    pub(crate) replay: Option<Replay>,
    pub(crate) evictions: Evictions,
    pub(crate) auditor: Auditor,
    pub(crate) requests: Requests,
}

/// What changed between two freezes. Shared by the two tablets of a split.
pub(crate) struct FrozenGeneration {
    pub(crate) generation: Arc<Generation>,
    /// The freeze before its first entry.
    pub(crate) after: SeqNo,
    /// The freeze after its last entry.
    pub(crate) upto: SeqNo,
}

/// What a replay remembers until it ends.
pub(crate) struct Replay {
    /// The keys that entries after the installed position name.
    pub(crate) marked: Generation,
    /// The entries themselves, of a table that only appends: its rows are nowhere else.
    pub(crate) appended: Vec<(SeqNo, Effects)>,
    /// The freezes after the installed position, ascending.
    pub(crate) freezes: Vec<SeqNo>,
    /// What the tablet's own log comes to, from the installed position on: to be held against what the rows say.
    pub(crate) audited: Auditor,
}

impl TabletWriter {
    /// The frozen generations, oldest first.
    pub(crate) fn older(&self) -> Vec<&Generation> {
        self.frozen.iter().map(|frozen| &*frozen.generation).collect()
    }
}

impl Replay {
    pub(crate) fn new(active: &Generation, begins_after: SeqNo) -> Self {
        Self {
            marked: active.successor(),
            appended: Vec::new(),
            freezes: Vec::new(),
            audited: Auditor::new(begins_after),
        }
    }

    /// An entry after the installed position: what of it is in `range` is recent.
    pub(crate) fn mark(&mut self, seqno: SeqNo, entry: &Entry, append_only: bool, range: &Range<Vec<u8>>) {
        match entry.effects() {
            Some(effects) if append_only => self.appended.push((seqno, effects.clone())),
            Some(effects) => {
                let ours = effects.iter().map(|effect| effect.key).filter(|key| contains(range, key));
                self.marked.record(ours.map(|key| (key, None)), &[], &mut ViewChanges::default());
            }
            // A freeze, or a split.
            None => self.freezes.push(seqno),
        }
    }

    /// What another tablet remembers of `range`, which was its own.
    pub(crate) fn take_from(&mut self, other: &Self, range: &Range<Vec<u8>>) {
        let keys = other.marked.deleted_keys(range);
        self.marked.record(keys.iter().map(|key| (key.as_slice(), None)), &[], &mut ViewChanges::default());
        self.appended.clone_from(&other.appended);
        self.freezes.clone_from(&other.freezes);
    }
}
