//! Which row of this generation is a key's latest? The writer's index, and the view of its rows that readers clone.
//!
//! The writer works in two steps, so that readers never wait for a big batch: [`Generation::record`] under the apply
//! lock finds out which rows a change supersedes, [`RowsView::publish`] under the table's short lock makes it visible.

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::RwLock;
use tarn_types::{SeqNo, TableSchema, encode_keys};

use super::{KeyLog, LiveBitmap, RowSet, RowSetView};
use crate::error::Result;

/// A row of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    set: u32,
    row: u32,
}

/// The slot of a key that is deleted.
const NOWHERE: Spot = Spot { set: u32::MAX, row: u32::MAX };

struct Slot {
    hash: u64,
    spot: Spot,
}

/// The writer's side of a generation.
pub(crate) struct Generation {
    keys: Arc<RwLock<KeyLog>>,
    index: HashTable<u32>,
    /// By arrival.
    slots: Vec<Slot>,
    hasher: DefaultHashBuilder,
    /// The row set that takes single rows, its place and how many it has.
    open: Option<(u32, Arc<RowSet>, usize)>,
    /// How many it takes.
    max_open_rows: usize,
    n_sets: u32,
    set_bytes: usize,
}

/// What a batch changes in the views, collected before anybody sees it.
#[derive(Default)]
pub(crate) struct ViewChanges {
    /// Rows added to a row set; one whose place is the end of the list is new.
    added: Vec<(u32, Arc<RowSet>, usize)>,
    dead: Vec<Spot>,
    /// Rows of frozen generations that are superseded, by the generation's place.
    pub(crate) dead_frozen: Vec<(usize, Spot)>,
}

impl Generation {
    /// An empty generation whose single rows go into sets of `max_open_rows`. Keys hash with `hasher`, the same for all
    /// generations of a table, so that a key is hashed once.
    pub(crate) fn new(hasher: DefaultHashBuilder, max_open_rows: usize) -> Self {
        Self {
            keys: Arc::default(),
            index: HashTable::new(),
            slots: Vec::new(),
            hasher,
            open: None,
            max_open_rows,
            n_sets: 0,
            set_bytes: 0,
        }
    }

    /// Distinct keys that were changed.
    pub(crate) fn n_keys(&self) -> usize {
        self.slots.len()
    }

    /// Has nothing changed?
    pub(crate) fn is_empty(&self) -> bool {
        self.n_sets == 0 && self.slots.is_empty()
    }

    /// Memory of keys, index and rows.
    pub(crate) fn size_bytes(&self) -> u64 {
        let slots = self.slots.capacity() * size_of::<Slot>();
        (self.keys.read().size_bytes() + slots + self.index.allocation_size() + self.set_bytes) as u64
    }

    pub(crate) fn keys(&self) -> &Arc<RwLock<KeyLog>> {
        &self.keys
    }

    /// An empty generation of the same table.
    pub(crate) fn successor(&self) -> Self {
        Self::new(self.hasher.clone(), self.max_open_rows)
    }

    /// Makes room for `n` more keys.
    pub(crate) fn reserve(&mut self, n: usize) {
        let slots = &self.slots;
        self.index.reserve(n, |arrival| slots[*arrival as usize].hash);
    }

    /// Appends a single row; answers with its place.
    pub(crate) fn push_row(&mut self, key: &[u8], cells: &[u8], seqno: SeqNo, changes: &mut ViewChanges) -> Spot {
        if self.open.as_ref().is_none_or(|(_, _, n)| *n >= self.max_open_rows) {
            self.close_open();
            self.open = Some((self.n_sets, Arc::new(RowSet::open()), 0));
            self.n_sets += 1;
        }
        let (place, set, n) = self.open.as_mut().expect("a set was opened above");
        set.push(key, cells, seqno);
        let spot = Spot { set: *place, row: *n as u32 };
        *n += 1;
        self.set_bytes += RowSet::row_bytes(key, cells);
        match changes.added.last_mut() {
            Some((last, _, added)) if *last == *place => *added += 1,
            _ => changes.added.push((*place, Arc::clone(set), 1)),
        }
        spot
    }

    /// Adds a bulk batch as a row set; answers with the place of its first row.
    pub(crate) fn push_bulk(&mut self, rows: &RecordBatch, seqno: SeqNo, changes: &mut ViewChanges) -> Spot {
        let place = self.n_sets;
        self.n_sets += 1;
        let bytes = rows.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
        self.set_bytes += bytes.sum::<usize>() + rows.num_rows() / 8;
        changes.added.push((place, Arc::new(RowSet::bulk(rows.clone(), seqno)), rows.num_rows()));
        Spot { set: place, row: 0 }
    }

    /// Says where the rows of keys are now (None: deleted), in the order of the changes, and finds what that supersedes
    /// here and in `frozen`, the older generations, oldest first.
    pub(crate) fn record<'k>(
        &mut self,
        latest: impl Iterator<Item = (&'k [u8], Option<Spot>)>,
        frozen: &[&Generation],
        changes: &mut ViewChanges,
    ) {
        let mut keys = self.keys.write();
        let older: Vec<_> = frozen.iter().map(|frozen| (*frozen, frozen.keys.read())).collect();
        for (key, spot) in latest {
            let hash = self.hasher.hash_one(key);
            let spot = spot.unwrap_or(NOWHERE);
            let same = |arrival: &u32| self.slots[*arrival as usize].hash == hash && keys.get(*arrival as usize) == key;
            if let Some(arrival) = self.index.find(hash, same) {
                let before = std::mem::replace(&mut self.slots[*arrival as usize].spot, spot);
                if before != NOWHERE {
                    changes.dead.push(before);
                }
                continue;
            }
            let slots = &self.slots;
            let arrival = u32::try_from(slots.len()).expect("back-pressure keeps a generation far below 2^32 keys");
            self.index.insert_unique(hash, arrival, |other| slots[*other as usize].hash);
            self.slots.push(Slot { hash, spot });
            keys.push(key);
            // The newest that has the key: in those before it the row is dead already.
            let newest = older
                .iter()
                .enumerate()
                .rev()
                .find_map(|(place, (frozen, keys))| Some((place, frozen.find(hash, key, keys)?)));
            changes.dead_frozen.extend(newest.filter(|(_, before)| *before != NOWHERE));
        }
    }

    fn find(&self, hash: u64, key: &[u8], keys: &KeyLog) -> Option<Spot> {
        let same = |arrival: &u32| self.slots[*arrival as usize].hash == hash && keys.get(*arrival as usize) == key;
        let arrival = self.index.find(hash, same)?;
        Some(self.slots[*arrival as usize].spot)
    }

    /// The keys in `range` that are deleted, in no order.
    pub(crate) fn deleted_keys(&self, range: &Range<Vec<u8>>) -> Vec<Vec<u8>> {
        let keys = self.keys.read();
        let deleted = self.slots.iter().enumerate().filter(|(_, slot)| slot.spot == NOWHERE);
        let deleted = deleted.map(|(arrival, _)| keys.get(arrival)).filter(|key| contains(range, key));
        deleted.map(<[u8]>::to_vec).collect()
    }

    /// Its row set that takes single rows is closed: nothing is added to it any more.
    pub(crate) fn freeze(mut self) -> Self {
        self.close_open();
        self
    }

    /// What `view`, one of this generation, shows of `range`, with its share of the memory. Of a table that only
    /// appends there is no index: its rows are asked.
    pub(crate) fn within(&self, view: &RowsView, schema: &TableSchema, range: &Range<Vec<u8>>) -> Result<RowsView> {
        let mut within = view.clone();
        let share = |within: &RowsView| match view.n_live() {
            0 => view.size_bytes / 2,
            n_live => (u128::from(view.size_bytes) * u128::from(within.n_live()) / u128::from(n_live)) as u64,
        };
        if !schema.options.append_only {
            let keys = self.keys.read();
            let elsewhere = self.slots.iter().enumerate().filter(|(_, slot)| slot.spot != NOWHERE);
            let elsewhere = elsewhere.filter(|(arrival, _)| !contains(range, keys.get(*arrival)));
            within.clear(&elsewhere.map(|(_, slot)| slot.spot).collect::<Vec<_>>());
            within.size_bytes = share(&within);
            return Ok(within);
        }
        for (place, view) in view.sets.iter().enumerate() {
            let mut row = 0;
            for piece in view.set.whole(schema, view.live.len())? {
                for key in encode_keys(schema, &piece)?.iter() {
                    if !contains(range, key) {
                        within.clear(&[Spot { set: place as u32, row }]);
                    }
                    row += 1;
                }
            }
        }
        within.size_bytes = share(&within);
        Ok(within)
    }

    /// No more single rows go into the row set that took them.
    fn close_open(&mut self) {
        if let Some((_, set, _)) = self.open.take() {
            set.close();
        }
    }
}

/// Is a key in a half-open range?
pub(crate) fn contains(range: &Range<Vec<u8>>, key: &[u8]) -> bool {
    range.start.as_slice() <= key && key < range.end.as_slice()
}

impl Spot {
    /// The row `n` rows after this one, in the same row set.
    pub(crate) fn offset(self, n: usize) -> Self {
        Self { set: self.set, row: self.row + n as u32 }
    }
}

/// What readers see of a generation. A clone is a snapshot: two references per row set.
#[derive(Clone, Default)]
pub(crate) struct RowsView {
    pub(crate) keys: Arc<RwLock<KeyLog>>,
    /// How many of the keys are visible.
    pub(crate) n_keys: usize,
    sets: Vec<RowSetView>,
    /// Memory, of the writer's side too.
    pub(crate) size_bytes: u64,
}

impl RowsView {
    pub(crate) fn of(generation: &Generation) -> Self {
        Self { keys: Arc::clone(generation.keys()), ..Self::default() }
    }

    /// Makes recorded changes visible.
    pub(crate) fn publish(&mut self, generation: &Generation, changes: &ViewChanges, size_bytes: u64) {
        for (place, set, n_added) in &changes.added {
            if *place as usize == self.sets.len() {
                self.sets.push(RowSetView { set: Arc::clone(set), live: Arc::new(LiveBitmap::all(*n_added)) });
                continue;
            }
            let live = Arc::make_mut(&mut self.sets[*place as usize].live);
            (0..*n_added).for_each(|_| live.push());
        }
        self.clear(&changes.dead);
        self.n_keys = generation.n_keys();
        self.size_bytes = size_bytes;
    }

    /// These rows are dead.
    pub(crate) fn clear(&mut self, dead: &[Spot]) {
        for spot in dead {
            Arc::make_mut(&mut self.sets[spot.set as usize].live).clear(spot.row as usize);
        }
    }

    /// How many rows are alive.
    pub(crate) fn n_live(&self) -> u64 {
        self.sets.iter().map(|view| view.live.n_live() as u64).sum()
    }

    /// The live rows, in the order they came, set by set; no batch is empty.
    pub(crate) fn live_rows(
        &self,
        schema: &TableSchema,
        projection: Option<&[usize]>,
        with_seqno: bool,
    ) -> Result<Vec<RecordBatch>> {
        let mut found = Vec::with_capacity(self.sets.len());
        for view in &self.sets {
            found.extend(view.live_rows(schema, projection, with_seqno)?);
        }
        Ok(found)
    }
}
