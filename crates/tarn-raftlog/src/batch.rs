//! What is asked of the log in one atomic step?
//!
//! A batch is built without any of the log's locks: payloads are copied once (or, as [`Bytes`], only referenced),
//! checksummed, packed where that pays, and their records encoded, so that submitting it is a matter of moving
//! pointers.

use std::cell::Cell;
use std::ops::Range;

use bytes::Bytes;

use crate::cache::{Data, UnpackedBlock};
use crate::format::BATCH_HEAD;
use crate::record::{self, NewEntries, entry_crc};
use crate::{GroupId, Index, Term};

/// Payloads shorter than this are copied together even when given as [`Bytes`]: a slice of their own costs more.
const OWN_PIECE_BYTES: usize = 4096;

/// Operations over any number of groups, applied in the order they were added, durable all or none.
///
/// Nothing is checked until [`crate::RaftLog::submit`].
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) ops: Vec<BatchOp>,
    /// Room for the batch head, then the records of all appends.
    meta: Vec<u8>,
    /// (length, CRC) of all entries.
    table: Vec<(u32, u32)>,
    /// Copied payloads.
    arena: Vec<u8>,
    pack: bool,
}

#[derive(Debug)]
pub(crate) enum BatchOp {
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

impl BatchOp {
    /// The group that it changes; each operation has one.
    pub fn group(&self) -> u64 {
        match self {
            BatchOp::TruncateAfter { group, .. } | BatchOp::Purge { group, .. } | BatchOp::State { group, .. } => {
                *group
            }
            BatchOp::Put { group, .. } | BatchOp::Destroy { group } | BatchOp::Refresh { group } => *group,
            BatchOp::Append(append) => append.group,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Append {
    /// Whose entries they are.
    pub group: u64,
    /// The index of the first of them.
    pub first: u64,
    /// Its rows in the batch's table.
    pub table: Range<usize>,
    /// Its record in the batch's meta.
    pub meta: Range<usize>,
    runs: Runs,
    /// The payloads back to back, in pieces cut between entries.
    piece: PayloadPiece,
    more: Vec<PayloadPiece>,
    packed: Option<Bytes>,
    /// What the payloads take on disk.
    pub data_bytes: u64,
    /// Payload bytes.
    pub raw_bytes: u64,
    /// Garbage collection: copies of the entries that lie in this segment, dropped if they no longer do.
    pub copied_from: Option<u64>,
}

/// Room for a batch like the last one of this thread, within limits: most are alike, and growing step by step copies
/// all.
#[derive(Clone, Copy)]
struct Sizes {
    ops: usize,
    meta: usize,
    table: usize,
    arena: usize,
}

thread_local! {
    static LAST: Cell<Sizes> = const { Cell::new(Sizes { ops: 1, meta: 64, table: 1, arena: 0 }) };
}

impl Sizes {
    const MOST: Sizes = Sizes { ops: 256, meta: 16 << 10, table: 1024, arena: 128 << 10 };

    fn of(batch: &Batch) -> Sizes {
        Sizes {
            ops: batch.ops.len().min(Sizes::MOST.ops),
            // A few bytes more: varints grow, and the records of groups are put behind.
            meta: (batch.meta.len() + 64).min(Sizes::MOST.meta),
            table: batch.table.len().min(Sizes::MOST.table),
            arena: batch.arena.len().min(Sizes::MOST.arena),
        }
    }
}

/// (number of entries, term), in index order.
#[derive(Debug)]
enum Runs {
    One([(u64, u64); 1]),
    Many(Vec<(u64, u64)>),
}

#[derive(Debug, Clone)]
enum PayloadPiece {
    Copied(Range<usize>),
    Shared(Bytes),
}

impl Append {
    /// How many entries.
    pub fn n(&self) -> u64 {
        self.table.len() as u64
    }

    /// The index after the last.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.n())
    }

    /// (number of entries, term), in index order; neighbours differ in their term.
    pub fn runs(&self) -> &[(u64, u64)] {
        match &self.runs {
            Runs::One(run) => run,
            Runs::Many(runs) => runs,
        }
    }

    /// Whether the payloads are one LZ4 block.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    fn pieces(&self) -> impl Iterator<Item = &PayloadPiece> {
        std::iter::once(&self.piece).chain(&self.more)
    }
}

impl Batch {
    pub(crate) fn packing(pack: bool) -> Batch {
        let sizes = LAST.get();
        Batch {
            ops: Vec::with_capacity(sizes.ops),
            meta: Vec::with_capacity(sizes.meta),
            table: Vec::with_capacity(sizes.table),
            arena: Vec::with_capacity(sizes.arena),
            pack,
        }
    }

    /// Entries `first ..`, all of one term; entries of the group at and after `first` are replaced. Copies.
    pub fn append<'a>(
        &mut self,
        group: GroupId,
        term: Term,
        first: Index,
        entries: impl IntoIterator<Item = &'a [u8]>,
    ) -> &mut Self {
        let mut building = AppendBuilder::new(self, group, first);
        for entry in entries {
            building.copy(self, term, entry);
        }
        building.finish(self, None);
        self
    }

    /// As [`Batch::append`], but long payloads are not copied on their way to readers.
    pub fn append_bytes(
        &mut self,
        group: GroupId,
        term: Term,
        first: Index,
        entries: impl IntoIterator<Item = Bytes>,
    ) -> &mut Self {
        let mut building = AppendBuilder::new(self, group, first);
        for entry in entries {
            if entry.len() < OWN_PIECE_BYTES {
                building.copy(self, term, &entry);
            } else {
                building.share(self, term, entry);
            }
        }
        building.finish(self, None);
        self
    }

    /// Drops the group's entries after `index`, which must not be below the purged floor.
    pub fn truncate_after(&mut self, group: GroupId, index: Index) -> &mut Self {
        self.ops.push(BatchOp::TruncateAfter { group: group.0, index: index.0 });
        self
    }

    /// Drops the group's entries up to `upto`, whose term is kept. Beyond the last entry the log restarts empty after
    /// `upto` (a snapshot was installed). Need not be waited for: until it is durable, nothing it killed is deleted.
    pub fn purge(&mut self, group: GroupId, upto: Index, term: Term) -> &mut Self {
        self.ops.push(BatchOp::Purge { group: group.0, upto: upto.0, term: term.0 });
        self
    }

    /// Replaces the group's hard state: opaque and small.
    pub fn state(&mut self, group: GroupId, state: &[u8]) -> &mut Self {
        self.ops.push(BatchOp::State { group: group.0, state: Bytes::copy_from_slice(state) });
        self
    }

    /// A value beside the log; `None` removes it. For a handful of small pairs a group: all are written on each change.
    pub fn put(&mut self, group: GroupId, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        let (key, value) = (Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        self.ops.push(BatchOp::Put { group: group.0, key, value });
        self
    }

    /// Forgets the group: entries, state and pairs. It may be begun anew.
    pub fn destroy(&mut self, group: GroupId) -> &mut Self {
        self.ops.push(BatchOp::Destroy { group: group.0 });
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
        let mut building = AppendBuilder::new(self, GroupId(group), Index(first));
        for (term, entry) in entries {
            building.copy(self, Term(term), &entry);
        }
        building.finish(self, Some(from));
    }

    pub(crate) fn refresh(&mut self, group: u64) {
        self.ops.push(BatchOp::Refresh { group });
    }

    /// What the appends take on disk.
    pub(crate) fn data_bytes(&self) -> u64 {
        let appends = self.ops.iter().filter_map(|op| if let BatchOp::Append(a) = op { Some(a) } else { None });
        appends.map(|a| a.data_bytes).sum()
    }

    /// No more is added: what `submit` works on, however often it has to begin again.
    pub(crate) fn finish(self) -> FinishedBatch {
        LAST.set(Sizes::of(&self));
        let Batch { ops, meta, table, mut arena, .. } = self;
        if arena.capacity() - arena.len() > arena.len() / 8 {
            // It stays in memory for a while.
            arena.shrink_to_fit();
        }
        let crc = crc32c::crc32c(meta.get(BATCH_HEAD..).unwrap_or_default());
        let mut groups: Vec<u64> = ops.iter().map(BatchOp::group).collect();
        if !groups.is_sorted() {
            groups.sort_unstable();
        }
        groups.dedup();
        FinishedBatch { ops, meta, crc, table, arena: arena.into(), groups }
    }
}

/// A batch that only waits for its place.
pub(crate) struct FinishedBatch {
    /// In the order in which they were added.
    pub ops: Vec<BatchOp>,
    /// Room for the batch head, then the records of all appends.
    meta: Vec<u8>,
    /// CRC32C of those records.
    crc: u32,
    table: Vec<(u32, u32)>,
    arena: Bytes,
    /// Ascending, each once.
    pub groups: Vec<u64>,
}

impl FinishedBatch {
    /// (length, CRC) of an append's entries.
    pub fn rows(&self, append: &Append) -> &[(u32, u32)] {
        &self.table[append.table.clone()]
    }

    /// Where the groups of operations, asked for in order, stand in `groups`.
    pub fn places(&self) -> GroupLookup<'_> {
        GroupLookup { groups: &self.groups, at: 0 }
    }

    /// The appends that take part, in order.
    fn appends(&self, left_out: &[usize]) -> impl Iterator<Item = &Append> {
        let taken = self.ops.iter().enumerate().filter(|(i, _)| left_out.binary_search(i).is_err());
        taken.filter_map(|(_, op)| if let BatchOp::Append(append) = op { Some(append) } else { None })
    }

    /// Room for the batch head, then the records of the appends that take part, with some room behind; and the CRC32C
    /// of those records.
    pub fn meta(&self, left_out: &[usize]) -> (Vec<u8>, u32) {
        if left_out.is_empty() {
            let mut meta = Vec::with_capacity(self.meta.len().max(BATCH_HEAD) + 64);
            meta.extend_from_slice(&self.meta);
            meta.resize(meta.len().max(BATCH_HEAD), 0);
            return (meta, self.crc);
        }
        let mut meta = vec![0; BATCH_HEAD];
        self.appends(left_out).for_each(|append| meta.extend_from_slice(&self.meta[append.meta.clone()]));
        let crc = crc32c::crc32c(&meta[BATCH_HEAD..]);
        (meta, crc)
    }

    /// What the appends that take part put on disk, in order; neighbours in memory are one piece.
    pub fn data(&self, left_out: &[usize]) -> Data {
        let mut data = Data::default();
        let mut open = 0..0;
        let close = |data: &mut Data, open: &mut Range<usize>, next: Range<usize>| {
            if open.start < open.end {
                data.push(self.arena.slice(open.clone()), None);
            }
            *open = next;
        };
        for append in self.appends(left_out) {
            if let Some(block) = &append.packed {
                close(&mut data, &mut open, 0..0);
                let payloads = append.pieces().map(|piece| match piece {
                    PayloadPiece::Copied(range) => self.arena.slice(range.clone()),
                    PayloadPiece::Shared(bytes) => bytes.clone(),
                });
                let payloads = payloads.collect();
                let lens = self.rows(append).iter().map(|&(len, _)| len).collect();
                data.push(block.clone(), Some(UnpackedBlock { first: append.first, lens, payloads }));
                continue;
            }
            for piece in append.pieces() {
                match piece {
                    PayloadPiece::Copied(range) if range.start == open.end && open.start < open.end => {
                        open.end = range.end
                    }
                    PayloadPiece::Copied(range) => close(&mut data, &mut open, range.clone()),
                    PayloadPiece::Shared(bytes) => {
                        close(&mut data, &mut open, 0..0);
                        data.push(bytes.clone(), None);
                    }
                }
            }
        }
        close(&mut data, &mut open, 0..0);
        data
    }
}

/// Finds the places of groups, quickest where they ascend.
pub(crate) struct GroupLookup<'a> {
    groups: &'a [u64],
    at: usize,
}

impl GroupLookup<'_> {
    /// The place of a group that the batch has; panics for another one.
    pub fn of(&mut self, group: u64) -> usize {
        let ahead = self.groups[self.at..].iter().take(2).position(|&next| next == group);
        self.at = match ahead {
            Some(steps) => self.at + steps,
            None => self.groups.binary_search(&group).expect("a batch knows all its groups"),
        };
        self.at
    }
}

/// One append under way.
struct AppendBuilder {
    group: u64,
    first: u64,
    table: usize,
    /// Start of the copied payloads that are not yet a piece.
    open: usize,
    pieces: Vec<PayloadPiece>,
    runs: Runs,
    raw_bytes: u64,
}

impl AppendBuilder {
    fn new(batch: &mut Batch, group: GroupId, first: Index) -> AppendBuilder {
        if batch.meta.is_empty() {
            batch.meta.resize(BATCH_HEAD, 0);
        }
        AppendBuilder {
            group: group.0,
            first: first.0,
            table: batch.table.len(),
            open: batch.arena.len(),
            pieces: Vec::new(),
            runs: Runs::One([(0, 0)]),
            raw_bytes: 0,
        }
    }

    fn copy(&mut self, batch: &mut Batch, term: Term, entry: &[u8]) {
        self.note(batch, term, entry);
        batch.arena.extend_from_slice(entry);
    }

    fn share(&mut self, batch: &mut Batch, term: Term, entry: Bytes) {
        self.note(batch, term, &entry);
        self.close(batch);
        self.pieces.push(PayloadPiece::Shared(entry));
    }

    fn note(&mut self, batch: &mut Batch, term: Term, entry: &[u8]) {
        let index = self.first.saturating_add((batch.table.len() - self.table) as u64);
        // Lengths over 4 GiB are refused by `submit`, which counts the bytes.
        batch.table.push((entry.len() as u32, entry_crc(self.group, index, term.0, entry)));
        self.raw_bytes += entry.len() as u64;
        match &mut self.runs {
            Runs::One([(n, last)]) if *n == 0 || *last == term.0 => (*n, *last) = (*n + 1, term.0),
            Runs::One([run]) => self.runs = Runs::Many(vec![*run, (1, term.0)]),
            Runs::Many(runs) => match runs.last_mut() {
                Some((n, last)) if *last == term.0 => *n += 1,
                _ => runs.push((1, term.0)),
            },
        }
    }

    fn close(&mut self, batch: &Batch) {
        if self.open < batch.arena.len() {
            self.pieces.push(PayloadPiece::Copied(self.open..batch.arena.len()));
        }
        self.open = batch.arena.len();
    }

    fn finish(mut self, batch: &mut Batch, copied_from: Option<u64>) {
        // The usual append is one piece; it needs no list.
        let mut last = PayloadPiece::Copied(self.open..batch.arena.len());
        if !self.pieces.is_empty() {
            self.close(batch);
            last = self.pieces.remove(0);
        }
        let table = self.table..batch.table.len();
        if table.is_empty() {
            return;
        }
        let packed = if batch.pack { self.pack(batch, &last) } else { None };
        let start = batch.meta.len();
        let mut append = Append {
            group: self.group,
            first: self.first,
            table,
            meta: start..start,
            runs: self.runs,
            piece: last,
            more: self.pieces,
            data_bytes: packed.as_ref().map_or(self.raw_bytes, |block| block.len() as u64),
            packed,
            raw_bytes: self.raw_bytes,
            copied_from,
        };
        record::encode_entries(
            &mut batch.meta,
            &NewEntries {
                group: append.group,
                first: append.first,
                runs: append.runs(),
                table: &batch.table[append.table.clone()],
                rewrite: copied_from.is_some(),
                block: append.packed.as_deref(),
            },
        );
        append.meta.end = batch.meta.len();
        batch.ops.push(BatchOp::Append(append));
    }

    fn pack(&self, batch: &Batch, first: &PayloadPiece) -> Option<Bytes> {
        if self.raw_bytes < record::PACK_BYTES as u64 {
            return None;
        }
        fn bytes<'a>(batch: &'a Batch, piece: &'a PayloadPiece) -> &'a [u8] {
            match piece {
                PayloadPiece::Copied(range) => &batch.arena[range.clone()],
                PayloadPiece::Shared(bytes) => bytes,
            }
        }
        let rows = &batch.table[self.table..];
        let block = if self.pieces.is_empty() {
            record::pack(self.first, rows, bytes(batch, first))
        } else {
            let pieces = std::iter::once(first).chain(&self.pieces);
            let all: Vec<u8> = pieces.flat_map(|piece| bytes(batch, piece)).copied().collect();
            record::pack(self.first, rows, &all)
        };
        block.map(Bytes::from)
    }
}
