//! What is asked of the log in one atomic step?
//!
//! A batch is built without the log's lock: payloads are copied (or, as [`Bytes`], only referenced) and checksummed
//! here, so that submitting it is a matter of moving pointers.

use bytes::{Bytes, BytesMut};

use crate::format::{Entries, entry_crc};
use crate::{GroupId, Index, Term};

/// Payloads shorter than this are copied together even when given as [`Bytes`]: a slice of their own costs more.
const OWN_PIECE_BYTES: usize = 4096;

/// Operations over any number of groups, applied in the order they were added, durable all or none.
///
/// Nothing is checked until [`crate::RaftLog::submit`].
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) ops: Vec<Op>,
}

#[derive(Debug)]
pub(crate) enum Op {
    Append(Append),
    TruncateAfter {
        group: u64,
        index: u64,
    },
    Purge {
        group: u64,
        upto: u64,
        term: u64,
    },
    State {
        group: u64,
        state: Bytes,
    },
    Put {
        group: u64,
        key: Bytes,
        value: Option<Bytes>,
    },
    Destroy {
        group: u64,
    },
    /// Garbage collection: write the group's record again, unchanged.
    Refresh {
        group: u64,
    },
}

#[derive(Debug)]
pub(crate) struct Append {
    pub entries: Entries,
    /// The payloads back to back, in pieces cut between entries.
    pub pieces: Vec<Bytes>,
    pub data_bytes: u64,
    /// Garbage collection: copies of the entries that lie in this segment, dropped if they no longer do.
    pub copied_from: Option<u64>,
}

impl Batch {
    /// Entries `first ..`, all of one term; entries of the group at and after `first` are replaced. Copies.
    pub fn append<'a>(
        &mut self,
        group: GroupId,
        term: Term,
        first: Index,
        entries: impl IntoIterator<Item = &'a [u8]>,
    ) -> &mut Self {
        let mut pieces = Pieces::new(group, first);
        for entry in entries {
            pieces.copy(term, entry);
        }
        self.push(pieces.finish(None))
    }

    /// As [`Batch::append`], but long payloads are not copied on their way to the disk and to readers.
    pub fn append_bytes(
        &mut self,
        group: GroupId,
        term: Term,
        first: Index,
        entries: impl IntoIterator<Item = Bytes>,
    ) -> &mut Self {
        let mut pieces = Pieces::new(group, first);
        for entry in entries {
            if entry.len() < OWN_PIECE_BYTES {
                pieces.copy(term, &entry);
            } else {
                pieces.share(term, entry);
            }
        }
        self.push(pieces.finish(None))
    }

    /// Drops the group's entries after `index`, which must not be below the purged floor.
    pub fn truncate_after(&mut self, group: GroupId, index: Index) -> &mut Self {
        self.ops.push(Op::TruncateAfter { group: group.0, index: index.0 });
        self
    }

    /// Drops the group's entries up to `upto`, whose term is kept. Beyond the last entry the log restarts empty after
    /// `upto` (a snapshot was installed). Need not be waited for: until it is durable, nothing it killed is deleted.
    pub fn purge(&mut self, group: GroupId, upto: Index, term: Term) -> &mut Self {
        self.ops.push(Op::Purge { group: group.0, upto: upto.0, term: term.0 });
        self
    }

    /// Replaces the group's hard state: opaque and small.
    pub fn state(&mut self, group: GroupId, state: &[u8]) -> &mut Self {
        self.ops.push(Op::State { group: group.0, state: Bytes::copy_from_slice(state) });
        self
    }

    /// A value beside the log; `None` removes it. For a handful of small pairs a group: all are written on each change.
    pub fn put(&mut self, group: GroupId, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        let (key, value) = (Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        self.ops.push(Op::Put { group: group.0, key, value });
        self
    }

    /// Forgets the group: entries, state and pairs. It may be begun anew.
    pub fn destroy(&mut self, group: GroupId) -> &mut Self {
        self.ops.push(Op::Destroy { group: group.0 });
        self
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(crate) fn copy_entries(
        &mut self,
        group: u64,
        first: u64,
        from: u64,
        entries: impl IntoIterator<Item = (u64, Bytes)>,
    ) {
        let mut pieces = Pieces::new(GroupId(group), Index(first));
        for (term, entry) in entries {
            pieces.copy(Term(term), &entry);
        }
        self.push(pieces.finish(Some(from)));
    }

    pub(crate) fn refresh(&mut self, group: u64) {
        self.ops.push(Op::Refresh { group });
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        let appends = self.ops.iter().filter_map(|op| if let Op::Append(a) = op { Some(a) } else { None });
        appends.map(|a| a.data_bytes).sum()
    }

    fn push(&mut self, append: Append) -> &mut Self {
        if !append.entries.table.is_empty() {
            self.ops.push(Op::Append(append));
        }
        self
    }
}

/// Collects payloads into few pieces.
struct Pieces {
    append: Append,
    open: BytesMut,
}

impl Pieces {
    fn new(group: GroupId, first: Index) -> Pieces {
        let entries = Entries { group: group.0, first: first.0, runs: Vec::new(), table: Vec::new(), rewrite: false };
        let append = Append { entries, pieces: Vec::new(), data_bytes: 0, copied_from: None };
        Pieces { append, open: BytesMut::new() }
    }

    fn copy(&mut self, term: Term, entry: &[u8]) {
        self.note(term, entry);
        self.open.extend_from_slice(entry);
    }

    fn share(&mut self, term: Term, entry: Bytes) {
        self.note(term, &entry);
        self.close();
        self.append.pieces.push(entry);
    }

    fn note(&mut self, term: Term, entry: &[u8]) {
        let entries = &mut self.append.entries;
        let index = entries.first.saturating_add(entries.table.len() as u64);
        // Lengths over 4 GiB are refused by `submit`, which counts `data_bytes`.
        entries.table.push((entry.len() as u32, entry_crc(entries.group, index, term.0, entry)));
        match entries.runs.last_mut() {
            Some((n, last)) if *last == term.0 => *n += 1,
            _ => entries.runs.push((1, term.0)),
        }
        self.append.data_bytes += entry.len() as u64;
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.append.pieces.push(self.open.split().freeze());
        }
    }

    fn finish(mut self, copied_from: Option<u64>) -> Append {
        self.close();
        self.append.entries.rewrite = copied_from.is_some();
        self.append.copied_from = copied_from;
        self.append
    }
}
