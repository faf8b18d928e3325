//! What did the table hold at one position? Recent rows, which lake rows they hide, and the engine's rows: all of one
//! moment.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use bytes::Bytes;
use tarn_types::{Address, Cursor, RowKind, SeqNo, StoredRow, TableSchema, TabletId, Version, prefix_end};

use crate::engine::{EngineSnapshot, Space};
use crate::error::{Error, Result};
use crate::hide::{Bitmaps, ChangedKeys, VersionEpoch};
use crate::layout;
use crate::recent::RowsView;
use crate::row_scan::{KeyRange, RangeOfRows, RowScan, ScanRange};

/// Keys of one engine call.
const ADDRESSES_AT_ONCE: usize = 1024;

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The row: its cells (see [`tarn_types::decode_row`]) and the position that wrote it.
    Row {
        /// The encoded cells, without the key.
        cells: Bytes,
        /// The commit position of the row.
        seqno: SeqNo,
    },
    /// There is no such row.
    Absent,
    /// The row lies in the lake alone.
    InLake(Address),
}

/// One moment of a table. Cheap to make; holds back memory and the engine's old values while it lives.
pub struct HotSnapshot {
    schema: Arc<TableSchema>,
    /// In the order of their keys. Invariant: all stand at one version.
    tablets: Vec<TabletView>,
    position: Cursor,
    installed: Cursor,
    hidden: OnceLock<Arc<Bitmaps>>,
}

/// One tablet at that moment.
pub(crate) struct TabletView {
    pub(crate) range: Arc<Range<Vec<u8>>>,
    pub(crate) position: (TabletId, SeqNo),
    pub(crate) installed: (TabletId, SeqNo),
    pub(crate) epoch: Arc<VersionEpoch>,
    /// By generation, oldest first.
    pub(crate) recent: Vec<RowsView>,
    /// Of its keys; what it says of others is of another moment.
    pub(crate) engine: Arc<dyn EngineSnapshot>,
    pub(crate) evicted: bool,
}

impl HotSnapshot {
    pub(crate) fn new(schema: Arc<TableSchema>, tablets: Vec<TabletView>) -> Self {
        debug_assert!(tablets.windows(2).all(|pair| pair[0].epoch.version == pair[1].epoch.version));
        debug_assert!(tablets.iter().all(|tablet| tablet.installed.1 <= tablet.position.1));
        let position = tablets.iter().map(|tablet| tablet.position).collect();
        let installed = tablets.iter().map(|tablet| tablet.installed).collect();
        Self { schema, tablets, position, installed, hidden: OnceLock::new() }
    }

    /// The table.
    #[must_use]
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// Every change up to here is in the answer, and no other.
    #[must_use]
    pub fn position(&self) -> &Cursor {
        &self.position
    }

    /// The lake version to read beside the recent rows.
    #[must_use]
    pub fn version(&self) -> Version {
        self.tablets.first().map_or(Version(0), |tablet| tablet.epoch.version)
    }

    /// The position that [`HotSnapshot::version`] holds.
    #[must_use]
    pub fn delivered(&self) -> &Cursor {
        &self.installed
    }

    /// How many recent rows are alive.
    #[must_use]
    pub fn recent_rows(&self) -> u64 {
        self.recent_views().map(RowsView::n_live).sum()
    }

    fn recent_views(&self) -> impl Iterator<Item = &RowsView> {
        self.tablets.iter().flat_map(|tablet| &tablet.recent)
    }

    /// The live recent rows in the storage schema, projected, `__seqno` last when asked for; in no order, no batch
    /// empty. Rows that came one by one are decoded by the first reader and kept.
    pub fn recent(&self, projection: Option<&[usize]>, with_seqno: bool) -> Result<Vec<RecordBatch>> {
        let mut rows = Vec::new();
        for view in self.recent_views() {
            rows.extend(view.live_rows(&self.schema, projection, with_seqno)?);
        }
        Ok(rows)
    }

    /// The rows of [`HotSnapshot::version`]'s files that recent changes supersede or delete, exact for this position.
    /// Addresses are read once per changed key and version, by whoever asks first.
    pub fn hidden(&self) -> Result<Arc<Bitmaps>> {
        if let Some(hidden) = self.hidden.get() {
            return Ok(Arc::clone(hidden));
        }
        let hidden = self.tablets.iter().map(TabletView::hidden).collect::<Result<Vec<_>>>()?;
        Ok(Arc::clone(self.hidden.get_or_init(|| union(hidden))))
    }

    /// How many rows of the lake are hidden.
    pub fn hidden_rows(&self) -> Result<u64> {
        Ok(self.hidden()?.values().map(roaring::RoaringBitmap::len).sum())
    }

    /// A row by its engine key, at this position.
    pub fn get(&self, key: &[u8]) -> Result<Lookup> {
        keyed(&self.schema)?;
        let after = self.tablets.partition_point(|tablet| tablet.range.start.as_slice() <= key);
        let Some(tablet) = self.tablets.get(after.saturating_sub(1)) else { return Ok(Lookup::Absent) };
        lookup(tablet.engine.get(Space::Rows, key)?, || tablet.engine.get(Space::Addresses, key))
    }

    /// Where the rows of keys lie in [`HotSnapshot::version`]'s files, whether the engine has them too or not: what a
    /// change of these keys would hide. In no order; nothing of keys that have none there. Keys cost least when they
    /// ascend.
    pub fn addresses<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<Vec<Address>> {
        keyed(&self.schema)?;
        let mut found = Vec::new();
        let mut wanted: Vec<&[u8]> = Vec::new();
        let mut of = 0;
        let mut keys = keys.peekable();
        while let Some(key) = keys.next() {
            let after = self.tablets.partition_point(|tablet| tablet.range.start.as_slice() <= key);
            let place = after.saturating_sub(1);
            if place != of {
                self.addresses_in(of, &mut wanted, &mut found)?;
                of = place;
            }
            wanted.push(key);
            if keys.peek().is_none() || wanted.len() >= ADDRESSES_AT_ONCE {
                self.addresses_in(of, &mut wanted, &mut found)?;
            }
        }
        Ok(found)
    }

    fn addresses_in(&self, place: usize, keys: &mut Vec<&[u8]>, found: &mut Vec<Address>) -> Result<()> {
        if let Some(tablet) = self.tablets.get(place).filter(|tablet| tablet.epoch.has_addresses) {
            for address in tablet.engine.multi_get(Space::Addresses, keys)?.into_iter().flatten() {
                found.push(Address::decode(&address)?);
            }
        }
        keys.clear();
        Ok(())
    }

    /// Does the row space hold every row, so that a scan names none that is only in the lake?
    #[must_use]
    pub fn rows_complete(&self) -> bool {
        !self.schema.options.append_only && !self.tablets.iter().any(|tablet| tablet.evicted)
    }

    /// The rows of a range of keys. Of those that were evicted, where they are.
    pub fn scan(&self, rows: &RangeOfRows) -> Result<RowScan> {
        keyed(&self.schema)?;
        let all = layout::table_range(self.schema.id);
        let range = match &rows.range {
            KeyRange::All => all,
            KeyRange::Prefix(prefix) => {
                let end = prefix_end(prefix).map_or_else(|| all.end.clone(), |end| end.min(all.end.clone()));
                prefix.clone().max(all.start)..end
            }
            KeyRange::Range(range) => range.start.clone().max(all.start)..range.end.clone().min(all.end),
        };
        Ok(RowScan::new(Arc::clone(&self.schema), self.parts(&range), rows.clone()))
    }

    /// What to read for a range: of neighbours that have one engine snapshot, and both evicted rows or none, one piece.
    fn parts(&self, range: &Range<Vec<u8>>) -> VecDeque<ScanRange> {
        let mut parts: VecDeque<ScanRange> = VecDeque::new();
        for tablet in &self.tablets {
            let start = tablet.range.start.as_slice().max(&range.start);
            let end = tablet.range.end.as_slice().min(&range.end);
            if start >= end {
                continue;
            }
            match parts.back_mut() {
                Some(last) if Arc::ptr_eq(&last.engine, &tablet.engine) && last.evicted == tablet.evicted => {
                    last.range.end = end.to_vec();
                }
                _ => parts.push_back(ScanRange {
                    engine: Arc::clone(&tablet.engine),
                    range: start.to_vec()..end.to_vec(),
                    evicted: tablet.evicted,
                }),
            }
        }
        parts
    }
}

impl TabletView {
    fn hidden(&self) -> Result<Arc<Bitmaps>> {
        self.epoch.hidden(&ChangedKeys::of(&self.recent), &*self.engine)
    }
}

/// All of them: files may hold rows of several tablets.
pub(crate) fn union(parts: Vec<Arc<Bitmaps>>) -> Arc<Bitmaps> {
    let mut parts = parts.into_iter().filter(|part| !part.is_empty());
    let Some(mut all) = parts.next() else { return Arc::default() };
    for part in parts {
        let all = Arc::make_mut(&mut all);
        for (file, rows) in part.iter() {
            *all.entry(*file).or_default() |= rows;
        }
    }
    all
}

pub(crate) fn keyed(schema: &TableSchema) -> Result<()> {
    if schema.options.append_only {
        return Err(Error::AppendOnly { table: schema.name.clone() });
    }
    Ok(())
}

/// What the two spaces say of a key.
pub(crate) fn lookup(row: Option<Bytes>, address: impl FnOnce() -> Result<Option<Bytes>>) -> Result<Lookup> {
    let Some(row) = row else {
        return Ok(match address()? {
            Some(bytes) => Lookup::InLake(Address::decode(&bytes)?),
            None => Lookup::Absent,
        });
    };
    let stored = StoredRow::parse(&row)?;
    Ok(match stored.kind {
        RowKind::Live => Lookup::Row { seqno: stored.seqno, cells: row.slice_ref(stored.cells) },
        RowKind::Tombstone => Lookup::Absent,
    })
}
