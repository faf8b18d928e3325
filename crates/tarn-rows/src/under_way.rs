//! What will be there? The entries of a tablet that are in its log and not yet in its rows, and the last ones that are.
//!
//! Whoever decides a batch looks here: an entry that is behind another of the same log stands or falls with it. The
//! rows are read before the lock is taken by which batches get their place; what was applied between the two is still
//! here.

use std::collections::VecDeque;
use std::sync::OnceLock;

use bytes::Bytes;
use hashbrown::HashMap;
use tarn_types::{Effects, Entry, SeqNo, Split};

/// Longer entries are searched by an index, which is made when somebody looks for a key there.
const SCANNED: usize = 8;

/// Of applied entries so many are kept, and so many bytes: more than are applied while somebody reads a few rows.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 64 << 10;

/// Entries in order of the log. Guarded by whoever submits.
pub struct UnderWay {
    kept: usize,
    entries: VecDeque<SubmittedEntry>,
    /// Of them, the oldest, which are applied.
    n_applied: usize,
    applied_bytes: usize,
    /// Entries up to here are not here any more.
    forgotten: SeqNo,
}

struct SubmittedEntry {
    seqno: SeqNo,
    entry: Entry,
    /// What the last effect on each key is.
    index: OnceLock<HashMap<Bytes, Option<Bytes>>>,
}

/// What will be there at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpcomingRow {
    /// The entry that writes it.
    pub(crate) seqno: SeqNo,
    /// `None`: the row is gone.
    pub(crate) cells: Option<Bytes>,
}

impl Default for UnderWay {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

impl UnderWay {
    /// With so many applied entries at most. The default is right; tests take less.
    #[must_use]
    pub fn keeping(kept: usize) -> Self {
        Self { kept, entries: VecDeque::new(), n_applied: 0, applied_bytes: 0, forgotten: SeqNo::ZERO }
    }

    /// An entry was submitted, after those that are here.
    pub fn push(&mut self, seqno: SeqNo, entry: Entry) {
        self.entries.push_back(SubmittedEntry { seqno, entry, index: OnceLock::new() });
    }

    /// The oldest entry that is not applied.
    #[must_use]
    pub fn first(&self) -> Option<(SeqNo, &Entry)> {
        self.entries.get(self.n_applied).map(|submitted| (submitted.seqno, &submitted.entry))
    }

    /// The newest entry that is not applied.
    #[must_use]
    pub fn last(&self) -> Option<SeqNo> {
        self.entries.range(self.n_applied..).next_back().map(|entry| entry.seqno)
    }

    /// [`UnderWay::first`] is applied: visible to whoever reads the rows from now on.
    pub fn applied_first(&mut self) {
        let Some(entry) = self.entries.get(self.n_applied) else { return };
        self.applied_bytes += entry.size_bytes();
        self.n_applied += 1;
        while self.n_applied > self.kept || self.applied_bytes > KEPT_BYTES {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.n_applied -= 1;
            self.applied_bytes -= oldest.size_bytes();
            self.forgotten = oldest.seqno;
        }
    }

    /// Entries from `first` on were not submitted after all.
    pub fn take_back(&mut self, first: SeqNo) {
        while self.entries.back().is_some_and(|entry| entry.seqno >= first) {
            self.entries.pop_back();
        }
    }

    /// Where a split that is not applied ends the tablet.
    pub(crate) fn ends_at(&self) -> Option<&[u8]> {
        let splits = self.entries.range(self.n_applied..).filter_map(|submitted| match &submitted.entry {
            Entry::Split(Split { at, .. }) => Some(at.as_slice()),
            Entry::Effects(_) | Entry::Named(_) | Entry::Freeze(_) => None,
        });
        splits.min()
    }

    /// Up to which entry the rows have to be read, at least, for [`UnderWay::latest`] to tell the rest.
    pub(crate) fn forgotten(&self) -> SeqNo {
        self.forgotten
    }

    /// What entries after `since` make of `key`, if they change it.
    pub(crate) fn latest(&self, key: &[u8], since: SeqNo) -> Option<UpcomingRow> {
        let later = self.entries.iter().rev().take_while(|entry| entry.seqno > since);
        later.filter_map(|entry| entry.latest(key)).next()
    }
}

impl SubmittedEntry {
    fn size_bytes(&self) -> usize {
        self.entry.effects().map_or(0, Effects::size_bytes)
    }

    fn latest(&self, key: &[u8]) -> Option<UpcomingRow> {
        let effects = self.entry.effects()?;
        let bytes = effects.as_bytes();
        let owned = |cells: Option<&[u8]>| cells.map(|cells| bytes.slice_ref(cells));
        let found = if effects.len() <= SCANNED {
            effects.iter().filter(|effect| effect.key == key).last().map(|effect| owned(effect.cells))
        } else {
            let index = || effects.iter().map(|effect| (bytes.slice_ref(effect.key), owned(effect.cells)));
            self.index.get_or_init(|| index().collect()).get(key).cloned()
        };
        found.map(|cells| UpcomingRow { seqno: self.seqno, cells })
    }
}

#[cfg(test)]
mod tests {
    use tarn_types::{
        Column, ColumnId, DataType, EffectsBuilder, KeyPart, TableId, TableOptions, TableSchema, TabletId, Value,
        encode_cells, encode_key,
    };

    use super::*;

    fn schema() -> TableSchema {
        let column = |id, name: &str| Column {
            id: ColumnId(id),
            name: name.into(),
            data_type: DataType::Int64,
            nullable: false,
            default: None,
        };
        TableSchema {
            id: TableId(1),
            name: "t".into(),
            columns: vec![column(1, "id"), column(2, "v")],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        }
    }

    fn effects(schema: &TableSchema, rows: &[(i64, Option<i64>)]) -> Entry {
        let key = |id: i64| encode_key(schema, &[Value::Int64(id)]).unwrap();
        let mut builder = EffectsBuilder::new(schema);
        for (id, v) in rows {
            let cells = v.map(|v| encode_cells(schema, &[Value::Int64(*id), Value::Int64(v)]).unwrap());
            builder.push(&key(*id), cells.as_deref());
        }
        Entry::Effects(builder.finish(None))
    }

    #[test]
    fn the_newest_effect_on_a_key_is_found_in_short_and_in_long_entries() {
        let schema = schema();
        let key = |id: i64| encode_key(&schema, &[Value::Int64(id)]).unwrap();
        let mut under_way = UnderWay::default();
        let long: Vec<_> = (0..100).map(|id| (id, Some(1))).chain([(7, None), (8, Some(3))]).collect();
        under_way.push(SeqNo(5), effects(&schema, &long));
        under_way.push(SeqNo(6), effects(&schema, &[(9, Some(2)), (9, None), (10, Some(4))]));
        let at = |under_way: &UnderWay, id, since| {
            let found = under_way.latest(&key(id), SeqNo(since));
            found.map(|found| (found.seqno.0, found.cells.is_some()))
        };
        assert_eq!(at(&under_way, 6, 0), Some((5, true)));
        assert_eq!(at(&under_way, 6, 5), None, "whoever read the rows after that saw it there");
        assert_eq!(at(&under_way, 7, 4), Some((5, false)));
        assert_eq!(at(&under_way, 9, 0), Some((6, false)));
        assert_eq!(at(&under_way, 10, 5), Some((6, true)));
        assert_eq!(at(&under_way, 100, 0), None);
        under_way.take_back(SeqNo(6));
        assert_eq!((at(&under_way, 9, 0), under_way.last()), (Some((5, true)), Some(SeqNo(5))));
    }

    #[test]
    fn what_was_applied_lately_is_kept_and_the_rest_forgotten() {
        let schema = schema();
        let key = |id: i64| encode_key(&schema, &[Value::Int64(id)]).unwrap();
        let mut under_way = UnderWay::default();
        for seqno in 1..=100 {
            under_way.push(SeqNo(seqno), effects(&schema, &[(seqno as i64, Some(1))]));
        }
        (0..90).for_each(|_| under_way.applied_first());
        assert_eq!(under_way.first().map(|(seqno, _)| seqno), Some(SeqNo(91)));
        assert_eq!((under_way.forgotten(), under_way.last()), (SeqNo(90 - KEPT as u64), Some(SeqNo(100))));
        assert!(under_way.latest(&key(90), SeqNo(80)).is_some() && under_way.latest(&key(20), SeqNo(0)).is_none());
        let long: Vec<_> = (0..5000).map(|id| (id, Some(1))).collect();
        under_way.push(SeqNo(101), effects(&schema, &long));
        (0..11).for_each(|_| under_way.applied_first());
        assert_eq!((under_way.forgotten(), under_way.first().is_none()), (SeqNo(101), true), "a long one is not kept");
    }
}
