//! The hot side of a table in its plainest form: a log of changes, what of it is recent, and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use tarn_feed::{DeliveryBacklog, FrozenRows, HotTable, PlacedRows, Stage, StagedAddresses};
use tarn_types::{Cursor, FileId, SEQNO_COLUMN, SeqNo, TableSchema, TabletId, Version, encode_keys};

use crate::test_data::{Event, batch};

/// (device, at)
pub type DeviceKey = (String, i64);

type EventMap = BTreeMap<DeviceKey, Option<Event>>;

#[derive(Default)]
struct HotState {
    /// Every change ever: its number is its place, from 1.
    log: Vec<(DeviceKey, Option<Event>)>,
    frozen: Option<(u64, EventMap)>,
    /// Changes up to here are frozen or delivered.
    frozen_upto: u64,
    addresses: BTreeMap<DeviceKey, (FileId, u32)>,
    version: Version,
    cursor: u64,
    fail_stage: bool,
    fail_install: bool,
}

pub struct Hot {
    pub table: Arc<TableSchema>,
    state: Mutex<HotState>,
}

fn cursor(seqno: u64) -> Cursor {
    [(TabletId(1), SeqNo(seqno))].into_iter().collect()
}

fn refused() -> tarn_feed::Error {
    tarn_feed::Error::BadName { name: "injected".into() }
}

impl Hot {
    pub fn new(table: Arc<TableSchema>) -> Self {
        Self { table, state: Mutex::default() }
    }

    pub fn put(&self, device: &str, at: i64) {
        let mut state = self.state.lock();
        let event = crate::test_data::event(device, at, state.log.len() as i64 + 1);
        state.log.push(((device.to_owned(), at), Some(event)));
    }

    pub fn delete(&self, device: &str, at: i64) {
        self.state.lock().log.push(((device.to_owned(), at), None));
    }

    /// What memory held is gone; log, addresses and their marker are not.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        state.frozen = None;
        state.frozen_upto = state.cursor;
    }

    pub fn fail_next_stage(&self) {
        self.state.lock().fail_stage = true;
    }

    pub fn fail_next_install(&self) {
        self.state.lock().fail_install = true;
    }

    pub fn addresses(&self) -> BTreeMap<DeviceKey, (FileId, u32)> {
        self.state.lock().addresses.clone()
    }

    /// The rows that live after so many changes. A table that only appends keeps them all.
    pub fn model(&self, upto: u64) -> Vec<Event> {
        let state = self.state.lock();
        let changes = &state.log[..upto as usize];
        let mut rows: Vec<Event> = if self.table.options.append_only {
            changes.iter().filter_map(|(_, event)| event.clone()).collect()
        } else {
            let last: EventMap = changes.iter().cloned().collect();
            last.into_values().flatten().collect()
        };
        rows.sort_by_key(|event| event.seqno);
        rows
    }

    pub fn head(&self) -> u64 {
        self.state.lock().log.len() as u64
    }
}

impl HotState {
    fn changes(&self, after: u64, upto: u64) -> EventMap {
        self.log[after as usize..upto as usize].iter().cloned().collect()
    }

    fn dead(&self, changes: &EventMap) -> BTreeMap<FileId, RoaringBitmap> {
        let mut dead: BTreeMap<FileId, RoaringBitmap> = BTreeMap::new();
        for (file, row) in changes.keys().filter_map(|key| self.addresses.get(key)) {
            dead.entry(*file).or_default().insert(*row);
        }
        dead
    }
}

struct AddressBatch {
    base: Version,
    addresses: Vec<(DeviceKey, (FileId, u32))>,
    gone: Vec<DeviceKey>,
}

impl HotTable for Hot {
    fn schema(&self) -> Arc<TableSchema> {
        self.table.clone()
    }

    fn pending(&self) -> DeliveryBacklog {
        let state = self.state.lock();
        DeliveryBacklog { rows: state.log.len() as u64 - state.cursor, bytes: 0, oldest_ms: None }
    }

    fn installed(&self) -> (Version, Cursor) {
        let state = self.state.lock();
        (state.version, cursor(state.cursor))
    }

    fn freeze(&self) -> tarn_feed::Result<Option<FrozenRows>> {
        let mut state = self.state.lock();
        let head = state.log.len() as u64;
        if state.frozen.is_none() && head > state.cursor {
            let changes = state.changes(state.cursor, head);
            state.frozen = Some((head, changes));
            state.frozen_upto = head;
        }
        let Some((upto, changes)) = &state.frozen else { return Ok(None) };
        let rows: Vec<Event> = if self.table.options.append_only {
            state.log[state.cursor as usize..*upto as usize].iter().filter_map(|(_, event)| event.clone()).collect()
        } else {
            changes.values().flatten().cloned().collect()
        };
        // In the order they were written: not that of keys.
        let mut rows = rows;
        rows.sort_by_key(|event| event.seqno);
        Ok(Some(FrozenRows {
            table: self.table.clone(),
            cursor: cursor(*upto),
            version: state.version,
            n_rows: rows.len() as u64,
            rows: rows.chunks(3).map(|rows| batch(&self.table, rows)).collect(),
            dead: if self.table.options.append_only { BTreeMap::new() } else { state.dead(changes) },
            deleted_keys: changes.values().filter(|event| event.is_none()).count() as u64,
        }))
    }

    fn stage(&self, stage: Stage) -> tarn_feed::Result<StagedAddresses> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.fail_stage) {
            return Err(refused());
        }
        assert_eq!(stage.version, state.version.next(), "versions are installed one by one");
        assert!(!self.table.options.append_only || stage.placed.is_empty(), "no addresses where none are kept");
        let addresses: Vec<_> = stage.placed.iter().flat_map(placed_keys).collect();
        let unique: BTreeSet<_> = addresses.iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(unique.len(), addresses.len(), "a key is placed twice");
        let gone = match (&stage.gone, &stage.cursor, &state.frozen) {
            (Some(gone), ..) => {
                // They come encoded; these are the keys that they can be.
                let gone: BTreeSet<&[u8]> = gone.iter().map(Vec::as_slice).collect();
                let known: Vec<DeviceKey> = state.addresses.keys().cloned().collect();
                known.into_iter().filter(|key| gone.contains(&*self.encode(key))).collect()
            }
            (None, Some(_), Some((_, changes))) => {
                changes.iter().filter(|(_, event)| event.is_none()).map(|(key, _)| key.clone()).collect()
            }
            (None, Some(_), None) => panic!("a delivery without anything frozen names the keys that are gone"),
            (None, None, _) => Vec::new(),
        };
        let gone = gone.into_iter().filter(|key| !unique.contains(key)).collect::<Vec<_>>();
        Ok(StagedAddresses {
            version: stage.version,
            cursor: stage.cursor,
            n_addresses: addresses.len() as u64,
            n_gone: gone.len() as u64,
            payload: Box::new(AddressBatch { base: state.version, addresses, gone }),
        })
    }

    fn install(&self, staged: StagedAddresses) -> tarn_feed::Result<()> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.fail_install) {
            return Err(refused());
        }
        let prepared = staged.payload.downcast::<AddressBatch>().unwrap();
        assert_eq!(prepared.base, state.version);
        for key in prepared.gone {
            state.addresses.remove(&key);
        }
        state.addresses.extend(prepared.addresses);
        state.version = staged.version;
        if let Some(cursor) = staged.cursor {
            let upto = cursor.get(TabletId(1)).0;
            assert!(state.frozen.as_ref().is_none_or(|(frozen, _)| *frozen == upto), "another cursor than the frozen");
            state.cursor = upto;
            state.frozen = None;
        }
        Ok(())
    }
}

impl Hot {
    fn encode(&self, (device, at): &DeviceKey) -> Vec<u8> {
        let row = batch(&self.table, &[crate::test_data::event(device, *at, 0)]);
        encode_keys(&self.table, &row).unwrap().get(0).to_vec()
    }
}

fn placed_keys(placed: &PlacedRows) -> Vec<(DeviceKey, (FileId, u32))> {
    let device = placed.keys.column_by_name("device").unwrap().as_string::<i32>();
    let at = placed.keys.column_by_name("at").unwrap().as_primitive::<Int64Type>();
    assert_eq!(placed.keys.column_by_name(SEQNO_COLUMN).unwrap().null_count(), 0);
    (0..placed.keys.num_rows())
        .map(|row| {
            let key = (device.value(row).to_owned(), at.value(row));
            (key, (placed.file, placed.first_row + row as u32))
        })
        .collect()
}
