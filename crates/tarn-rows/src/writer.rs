//! What do only the writers of a table need to know? It is guarded by the table's lock `writer`.

use tarn_types::{Cursor, Effects, SeqNo};

use crate::evictions::Evictions;
use crate::recent::{Generation, RowsView};

/// What only writers need.
pub(crate) struct Writer {
    pub(crate) active: Generation,
    pub(crate) frozen: Option<FrozenGeneration>,
    /// There until the log is replayed.
    pub(crate) replay: Option<Replay>,
    pub(crate) evictions: Evictions,
}

/// Rows that are being delivered.
pub(crate) struct FrozenGeneration {
    pub(crate) generation: Generation,
    pub(crate) cursor: Cursor,
    /// As it was at `cursor`: what is superseded later stays alive here.
    pub(crate) rows: RowsView,
}

/// What a replay remembers until it ends.
pub(crate) struct Replay {
    /// The keys that entries after the installed cursor name.
    pub(crate) marked: Generation,
    /// The entries themselves, of a table that only appends: its rows are nowhere else.
    pub(crate) appended: Vec<(SeqNo, Effects)>,
}

impl Replay {
    pub(crate) fn new(active: &Generation) -> Self {
        Self { marked: active.successor(), appended: Vec::new() }
    }

    /// All keys that were named.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.marked.deleted_keys()
    }
}
