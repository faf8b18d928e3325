//! How do recent rows leave for the lake? Freeze, stage, install: the hot side of a delivery, and of a compaction.
//!
//! The order that makes it safe:
//! 1. `freeze` moves the active generation aside under both locks: every change up to the cursor is in it or installed, none after.
//! 2. The files are committed. From here on the metastore is ahead of this table, which nobody sees: readers ask for the installed version.
//! 3. `stage` writes the addresses and the marker into one file. A crash loses the file; repair makes it again.
//! 4. `install` flushes the engine, so that its rows are at least as new as the cursor, then ingests the file: one durable step
//!    moves addresses, version and cursor. Readers switch in the same lock.
//!
//! After 4 a frozen key is recent no more; if it was changed again it is in the active generation, and its new address hides.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use roaring::RoaringBitmap;
use tarn_feed::{Frozen, HotTable, Pending, Placed, Stage, Staged};
use tarn_types::{
    ADDRESS_BYTES, Address, Cursor, FileId, Keys, SEQNO_COLUMN, SeqNo, TableSchema, Version, encode_keys,
};

use crate::engine::{Space, StagedFile};
use crate::error::{Error, Result};
use crate::hide::{ChangedKeys, Reign};
use crate::layout;
use crate::recent::RowsView;
use crate::table::Table;
use crate::writer::FrozenGeneration;

/// Keys of one engine call.
const READ_KEYS: usize = 1024;

/// What [`Staged::payload`] carries.
struct Prepared {
    file: StagedFile,
    /// The version it was staged on.
    base: Version,
    /// The installed cursor afterwards.
    cursor: Cursor,
    has_placed: bool,
}

impl Table {
    fn freeze_rows(&self) -> Result<Option<Frozen>> {
        let (rows, cursor, installed, engine) = {
            let mut writer = self.writer.lock();
            if writer.replay.is_some() {
                return Err(Error::Replaying { table: self.schema.name.clone() });
            }
            let mut shared = self.shared.write();
            if writer.frozen.is_none() {
                if writer.active.is_empty() {
                    return Ok(None);
                }
                let next = writer.active.successor();
                let view = std::mem::replace(&mut shared.active, RowsView::of(&next));
                let mut generation = std::mem::replace(&mut writer.active, next);
                generation.close_open();
                writer.frozen =
                    Some(FrozenGeneration { generation, cursor: shared.applied.clone(), rows: view.clone() });
                shared.frozen = Some(view);
                shared.frozen_since_ms = shared.active_since_ms.take();
            }
            let Some(frozen) = &writer.frozen else {
                return Ok(None);
            };
            (frozen.rows.clone(), frozen.cursor.clone(), Arc::clone(&shared.reign), self.engine.snapshot())
        };
        let dead = installed.hidden(&ChangedKeys::of(Some(&rows), None), &*engine)?;
        let n_rows = rows.n_live();
        // A table that only appends has no keys here, and deletes none.
        let deleted_keys = (rows.n_keys as u64).saturating_sub(n_rows);
        Ok(Some(Frozen {
            table: Arc::clone(&self.schema),
            cursor,
            version: installed.version,
            rows: rows.live_rows(&self.schema, None, true)?,
            n_rows,
            dead: BTreeMap::clone(&dead),
            deleted_keys,
        }))
    }

    fn stage_addresses(&self, stage: &Stage) -> Result<Staged> {
        let (base, installed) = self.installed();
        if stage.version <= base {
            return Err(self.stale(stage.version, base, base));
        }
        let placed =
            if self.schema.options.append_only { Vec::new() } else { encode_placed(&self.schema, &stage.placed)? };
        let gone = self.gone_keys(stage)?;
        let mut entries: Vec<(&[u8], Option<[u8; ADDRESS_BYTES]>)> = Vec::new();
        for (file, keys, seqnos) in &placed {
            for (i, key) in keys.iter().enumerate() {
                let row = file.first_row + i as u32;
                entries.push((key, Some(Address { file: file.file, row, seqno: seqnos[i] }.encode())));
            }
        }
        let n_addresses = entries.len();
        entries.extend(gone.iter().map(|key| (key.as_slice(), None)));
        // Placed before gone, so that it wins.
        entries.sort_unstable_by(|a, b| a.0.cmp(b.0).then(b.1.is_some().cmp(&a.1.is_some())));
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[1].1.is_some()) {
            return Err(Error::corrupt("place", twice[0].0, "the key is in the added files twice"));
        }
        entries.dedup_by(|later, earlier| later.0 == earlier.0);
        let n_gone = entries.len() - n_addresses;

        let cursor = stage.cursor.clone().unwrap_or(installed);
        let marker_key = layout::marker_key(self.schema.id);
        let marker = layout::encode_marker(stage.version, &cursor);
        let marker = std::iter::once((&marker_key[..], Some(&marker[..])));
        let addresses = entries.iter().map(|(key, address)| (*key, address.as_ref().map(|bytes| &bytes[..])));
        let file = self.engine.stage(Space::Addresses, &mut marker.chain(addresses))?;
        let prepared = Prepared { file, base, cursor, has_placed: n_addresses > 0 };
        Ok(Staged {
            version: stage.version,
            cursor: stage.cursor.clone(),
            n_addresses: n_addresses as u64,
            n_gone: n_gone as u64,
            payload: Box::new(prepared),
        })
    }

    /// The keys that lose their address: those of the candidates that have one, and in a repair, whose row the version has
    /// declared dead.
    fn gone_keys(&self, stage: &Stage) -> Result<Vec<Vec<u8>>> {
        if self.schema.options.append_only {
            return Ok(Vec::new());
        }
        let mut candidates = match (&stage.gone, &stage.cursor) {
            (Some(keys), _) => keys.clone(),
            (None, None) => Vec::new(),
            (None, Some(_)) => {
                let writer = self.writer.lock();
                match (&writer.frozen, &writer.replay) {
                    (Some(frozen), _) => frozen.generation.deleted_keys(),
                    (None, Some(replay)) => replay.keys(),
                    (None, None) => Vec::new(),
                }
            }
        };
        candidates.sort_unstable();
        candidates.dedup();
        let mut gone = Vec::new();
        for some in candidates.chunks(READ_KEYS) {
            let wanted: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
            for (key, bytes) in some.iter().zip(self.engine.multi_get(Space::Addresses, &wanted)?) {
                let Some(bytes) = bytes else { continue };
                if stage.dead.as_ref().is_none_or(|dead| is_dead(dead, &bytes)) {
                    gone.push(key.clone());
                }
            }
        }
        Ok(gone)
    }

    fn install_staged(&self, staged: Staged) -> Result<()> {
        let foreign = || Error::Unsupported { engine: "table", operation: "install what it did not stage" };
        let prepared = staged.payload.downcast::<Prepared>().map_err(|_| foreign())?;
        let Prepared { file, base, cursor, has_placed } = *prepared;
        // Invariant: the installed cursor is never ahead of what the engine holds after a crash.
        self.flush()?;
        let now_ms = self.clock.now_ms();
        let mut writer = self.writer.lock();
        let mut shared = self.shared.write();
        if shared.reign.version != base {
            return Err(self.stale(staged.version, base, shared.reign.version));
        }
        if let Some(delivered) = &staged.cursor {
            let wrong =
                |want: String| Error::WrongCursor { table: self.schema.name.clone(), cursor: delivered.clone(), want };
            match (&writer.frozen, writer.replay.is_some()) {
                (Some(frozen), _) if frozen.cursor == *delivered => {}
                (Some(frozen), _) => return Err(wrong(format!("the frozen {}", frozen.cursor))),
                (None, false) => return Err(wrong("something frozen".to_owned())),
                (None, true) if !shared.applied.covers(delivered) => {
                    return Err(wrong(format!("at most the replayed {}", shared.applied)));
                }
                (None, true) => {}
            }
        }
        self.engine.ingest(vec![file])?;
        let has_addresses = shared.reign.has_addresses || has_placed;
        let ended = std::mem::replace(&mut shared.reign, Arc::new(Reign::new(staged.version, has_addresses)));
        shared.ended_reigns.retain(|reign| reign.strong_count() > 0);
        shared.ended_reigns.push(Arc::downgrade(&ended));
        if staged.cursor.is_some() {
            let deleted = writer.frozen.take().map(|frozen| frozen.generation.deleted_keys()).unwrap_or_default();
            writer.evictions.delivered(cursor.clone(), now_ms, deleted);
            shared.frozen = None;
            shared.frozen_since_ms = None;
            shared.installed = cursor;
        }
        Ok(())
    }

    fn stale(&self, staged: Version, base: Version, installed: Version) -> Error {
        Error::Stale { table: self.schema.name.clone(), staged, base, installed }
    }
}

fn is_dead(dead: &BTreeMap<FileId, RoaringBitmap>, address: &[u8]) -> bool {
    // An address that cannot be read is kept: whoever reads the row will name it.
    Address::decode(address).is_ok_and(|at| dead.get(&at.file).is_some_and(|rows| rows.contains(at.row)))
}

type PlacedKeys<'a> = (&'a Placed, Keys, Vec<SeqNo>);

fn encode_placed<'a>(schema: &TableSchema, placed: &'a [Placed]) -> Result<Vec<PlacedKeys<'a>>> {
    placed.iter().map(|placed| Ok((placed, encode_keys(schema, &placed.keys)?, seqnos(&placed.keys)?))).collect()
}

fn seqnos(rows: &RecordBatch) -> Result<Vec<SeqNo>> {
    let column = rows.column_by_name(SEQNO_COLUMN);
    let numbers =
        column.and_then(|column| column.as_primitive_opt::<Int64Type>()).filter(|column| column.null_count() == 0);
    let Some(numbers) = numbers else {
        return Err(Error::corrupt("seqno column", SEQNO_COLUMN.as_bytes(), "missing, of another type, or with NULL"));
    };
    Ok(numbers.values().iter().map(|seqno| SeqNo(*seqno as u64)).collect())
}

impl HotTable for Table {
    fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.schema)
    }

    fn pending(&self) -> Pending {
        let shared = self.shared.read();
        let rows = |view: &RowsView| if self.schema.options.append_only { view.n_live() } else { view.n_keys as u64 };
        let views = || shared.frozen.iter().chain([&shared.active]);
        Pending {
            rows: views().map(rows).sum(),
            bytes: views().map(|view| view.size_bytes).sum(),
            oldest_ms: shared.frozen_since_ms.or(shared.active_since_ms),
        }
    }

    fn installed(&self) -> (Version, Cursor) {
        let shared = self.shared.read();
        (shared.reign.version, shared.installed.clone())
    }

    fn freeze(&self) -> tarn_feed::Result<Option<Frozen>> {
        Ok(self.freeze_rows()?)
    }

    fn stage(&self, stage: Stage) -> tarn_feed::Result<Staged> {
        Ok(self.stage_addresses(&stage)?)
    }

    fn install(&self, staged: Staged) -> tarn_feed::Result<()> {
        Ok(self.install_staged(staged)?)
    }
}
