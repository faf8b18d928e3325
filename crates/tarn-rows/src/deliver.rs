//! How do recent rows leave for the lake? Freeze, stage, install: the hot side of a delivery, and of a compaction.
//!
//! The order that makes it safe:
//! 1. A freeze is an entry of each tablet's log: every replica sets the same changes aside at the same place. What is
//!    before it is in frozen generations or installed, nothing after it is.
//! 2. The leader's frozen rows become files, and are committed. From here on the metastore is ahead of this table,
//!    which nobody sees: readers ask for the installed version.
//! 3. `stage` writes the addresses and the markers of all tablets into one file. A crash loses the file; repair makes
//!    it again.
//! 4. `install` flushes the engine, so that its rows are at least as new as the cursor, then ingests the file: one
//!    durable step moves addresses, version and cursor. Readers switch in the same lock.
//!
//! After 4 the frozen generations up to the cursor are gone; a key of them that was changed again is in a later one,
//! and its new address hides. Whoever did not deliver does 3 and 4 alone, from what is committed, as soon as it has
//! applied the cursor.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use tarn_feed::{DeliveryBacklog, FrozenRows, PlacedRows, Stage, StagedAddresses};
use tarn_types::{
    ADDRESS_BYTES, Address, Audit, Cursor, EncodedKeys, SEQNO_COLUMN, SeqNo, TableSchema, TabletId, Version,
    encode_keys,
};

use crate::engine::{Space, StagedFile};
use crate::error::{Error, Result};
use crate::hide::{ChangedKeys, VersionEpoch};
use crate::layout;
use crate::recent::RowsView;
use crate::snapshot::union;
use crate::table::{Table, Tablets};
use crate::tablet::{PublishedState, Tablet};
use crate::writer::TabletWriter;

/// Keys of one engine call.
const READ_KEYS: usize = 1024;

/// What [`StagedAddresses::payload`] carries.
struct StagedPayload {
    file: StagedFile,
    /// The version it was staged on.
    base: Version,
    /// The tablets it was staged for, and where each is afterwards.
    installed: Vec<(TabletId, SeqNo)>,
    has_placed: bool,
}

impl Table {
    /// How much waits for a delivery. Cheap.
    #[must_use]
    pub fn pending(&self) -> DeliveryBacklog {
        let append_only = self.base.append_only;
        let rows = |view: &RowsView| if append_only { view.n_live() } else { view.n_keys as u64 };
        let tablets = self.tablets.read();
        let shared = tablets.read();
        let views = || shared.iter().flat_map(|shared| &shared.recent);
        DeliveryBacklog {
            rows: views().map(rows).sum(),
            bytes: views().map(|view| view.size_bytes).sum(),
            oldest_ms: shared.iter().filter_map(|of| of.frozen_since_ms.or(of.active_since_ms)).min(),
        }
    }

    /// The lake version whose addresses are installed, and the position it holds: it names every tablet.
    #[must_use]
    pub fn installed(&self) -> (Version, Cursor) {
        let tablets = self.tablets.read();
        let shared = tablets.read();
        let version = shared.first().map_or(Version(0), |shared| shared.epoch.version);
        (version, tablets.all.iter().zip(&shared).map(|(tablet, shared)| (tablet.id, shared.installed)).collect())
    }

    /// The tablets to freeze before a delivery, and what the entry says: those whose changes are in no generation that
    /// could be delivered.
    #[must_use]
    pub fn to_freeze(&self) -> Vec<(TabletId, Option<Audit>)> {
        let wanted = |tablet: &Arc<Tablet>| {
            let writer = tablet.writer.lock();
            let is_left = || !writer.frozen.is_empty() && tablet.shared.read().at_freeze.is_none();
            (!writer.active.is_empty() || is_left()).then_some((tablet.id, writer.auditor.before))
        };
        self.tablets().all.iter().filter_map(wanted).collect()
    }

    /// What is frozen and not installed, with the rows of the lake that it supersedes. None: nothing is. The same again
    /// until it is installed or another freeze comes, whatever was written meanwhile (with `version` and `dead` moved
    /// on by compactions).
    pub fn frozen(&self) -> Result<Option<FrozenRows>> {
        self.check_serving()?;
        let schema = &self.base.schema();
        let mut cursor = Cursor::new();
        let mut parts: Vec<(Arc<VersionEpoch>, Vec<RowsView>)> = Vec::new();
        let (version, engine) = {
            let tablets = self.tablets.read();
            let shared = tablets.read();
            for (tablet, shared) in tablets.all.iter().zip(&shared) {
                let frozen = shared.at_freeze.clone();
                cursor.set(tablet.id, frozen.as_ref().map_or(shared.installed, |(upto, _)| *upto));
                parts.extend(frozen.map(|(_, views)| (Arc::clone(&shared.epoch), views)));
            }
            (shared.first().map_or(Version(0), |shared| shared.epoch.version), self.base.engine.snapshot())
        };
        if parts.is_empty() {
            return Ok(None);
        }
        let dead = parts.iter().map(|(epoch, views)| epoch.hidden(&ChangedKeys::of(views), &*engine));
        let dead = union(dead.collect::<Result<Vec<_>>>()?);
        let views = || parts.iter().flat_map(|(_, views)| views);
        let mut rows = Vec::new();
        for view in views() {
            rows.extend(view.live_rows(schema, None, true)?);
        }
        let n_rows = views().map(RowsView::n_live).sum();
        // A table that only appends has no keys here, and deletes none.
        let n_keys: u64 = parts.iter().map(|(epoch, views)| epoch.n_keys(views)).sum();
        Ok(Some(FrozenRows {
            table: Arc::clone(schema),
            cursor,
            version,
            rows,
            n_rows,
            dead: BTreeMap::clone(&dead),
            deleted_keys: n_keys.saturating_sub(n_rows),
        }))
    }

    /// Writes the addresses of a committed version beside the table. Nothing is visible yet; nothing is locked.
    pub fn stage(&self, stage: &Stage) -> Result<StagedAddresses> {
        let schema = &self.base.schema();
        let (base, before) = self.installed();
        if stage.version <= base {
            return Err(self.stale(stage.version, base, base));
        }
        let placed = if schema.options.append_only { Vec::new() } else { encode_placed(schema, &stage.placed)? };
        let tablets = self.tablets();
        // One that nothing is delivered of may be split off here later.
        if let Some(cursor) = &stage.cursor
            && let Some((unknown, _)) =
                cursor.iter().find(|(id, upto)| *upto > SeqNo::ZERO && tablets.get(*id).is_none())
        {
            let (table, cursor) = (schema.name.clone(), cursor.clone());
            return Err(Error::WrongCursor {
                table,
                cursor,
                want: format!("tablet {unknown} to be split off here, too"),
            });
        }
        let installed = tablets.after(&before, stage.cursor.as_ref());
        let gone = self.gone_keys(stage, &installed)?;
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

        let mut markers: Vec<_> = installed
            .iter()
            .map(|(tablet, at)| (layout::marker_key(schema.id, *tablet), layout::encode_marker(stage.version, *at)))
            .collect();
        markers.sort_unstable();
        let markers = markers.iter().map(|(key, marker)| (&key[..], Some(&marker[..])));
        let addresses = entries.iter().map(|(key, address)| (*key, address.as_ref().map(|bytes| &bytes[..])));
        let file = self.base.engine.stage(Space::Addresses, &mut markers.chain(addresses))?;
        let prepared = StagedPayload { file, base, installed, has_placed: n_addresses > 0 };
        Ok(StagedAddresses {
            version: stage.version,
            cursor: stage.cursor.clone(),
            n_addresses: n_addresses as u64,
            n_gone: n_gone as u64,
            payload: Box::new(prepared),
        })
    }

    /// The keys that lose their address: those of the candidates that have one.
    fn gone_keys(&self, stage: &Stage, installed: &[(TabletId, SeqNo)]) -> Result<Vec<Vec<u8>>> {
        if self.base.append_only {
            return Ok(Vec::new());
        }
        let mut candidates = match (&stage.gone, &stage.cursor) {
            (Some(keys), _) => keys.clone(),
            (None, None) => Vec::new(),
            (None, Some(_)) => self.frozen_deletes(installed),
        };
        candidates.sort_unstable();
        candidates.dedup();
        let mut gone = Vec::new();
        for some in candidates.chunks(READ_KEYS) {
            let wanted: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
            let addresses = self.base.engine.multi_get(Space::Addresses, &wanted)?;
            gone.extend(
                some.iter().zip(addresses).filter(|(_, address)| address.is_some()).map(|(key, _)| key.clone()),
            );
        }
        Ok(gone)
    }

    /// The keys that are deleted in the generations that a delivery takes.
    fn frozen_deletes(&self, installed: &[(TabletId, SeqNo)]) -> Vec<Vec<u8>> {
        let tablets = self.tablets();
        let mut deleted = Vec::new();
        for (id, upto) in installed {
            let Some(tablet) = tablets.get(*id) else { continue };
            let writer = tablet.writer.lock();
            let range = Arc::clone(&tablet.shared.read().range);
            for frozen in writer.frozen.iter().take_while(|frozen| frozen.upto <= *upto) {
                deleted.extend(frozen.generation.deleted_keys(&range));
            }
        }
        deleted
    }

    /// Switches the table to the staged version, atomically for readers and for a crash, durable when it returns.
    /// Snapshots taken before stay exact.
    ///
    /// Errors: [`Error::Stale`] when another version was installed since, or a tablet was split: stage again.
    /// [`Error::WrongCursor`] for one that the tablets have not applied yet.
    pub fn install(&self, staged: StagedAddresses) -> Result<()> {
        let foreign = || Error::Unsupported { engine: "table", operation: "install what it did not stage" };
        let prepared = staged.payload.downcast::<StagedPayload>().map_err(|_| foreign())?;
        let StagedPayload { file, base, installed, has_placed } = *prepared;
        // Invariant: the installed cursor is never ahead of what the engine holds after a crash.
        self.flush()?;
        let now_ms = self.base.clock.now_ms();
        let tablets = self.tablets();
        let mut writers: Vec<_> = tablets.all.iter().map(|tablet| tablet.writer.lock()).collect();
        // Splits hold a writer's lock: from here on there is none.
        let is_same = self.tablets().all.iter().map(|tablet| tablet.id).eq(installed.iter().map(|(tablet, _)| *tablet));
        let mut shared: Vec<_> = tablets.all.iter().map(|tablet| tablet.shared.write()).collect();
        let current = shared.first().map_or(Version(0), |shared| shared.epoch.version);
        if current != base || !is_same {
            return Err(self.stale(staged.version, base, current));
        }
        for ((writer, shared), (tablet, upto)) in writers.iter().zip(&shared).zip(&installed) {
            check_freeze(writer, shared, *upto).map_err(|want| Error::WrongCursor {
                table: self.base.schema().name.clone(),
                cursor: installed.iter().copied().collect(),
                want: format!("of tablet {tablet} {want}"),
            })?;
        }
        self.base.engine.ingest(vec![file])?;
        for ((writer, shared), (_, upto)) in writers.iter_mut().zip(&mut shared).zip(&installed) {
            let has_addresses = shared.epoch.has_addresses || has_placed;
            shared.begin_epoch(staged.version, has_addresses);
            if *upto > shared.installed {
                let deleted = shared.forget(writer, *upto);
                writer.evictions.delivered(*upto, now_ms, deleted);
            }
        }
        Ok(())
    }

    fn stale(&self, staged: Version, base: Version, installed: Version) -> Error {
        Error::Stale { table: self.base.schema().name.clone(), staged, base, installed }
    }
}

impl Tablets {
    /// Where each tablet is when a delivery up to `cursor` is installed.
    fn after(&self, before: &Cursor, cursor: Option<&Cursor>) -> Vec<(TabletId, SeqNo)> {
        let after = self.all.iter().map(|tablet| {
            let delivered = cursor.map_or(SeqNo::ZERO, |cursor| self.delivered(tablet, cursor));
            (tablet.id, delivered.max(before.get(tablet.id)))
        });
        after.collect()
    }

    /// One that the cursor does not name was split off after it: what its parent had is delivered of it, too.
    fn delivered(&self, tablet: &Tablet, cursor: &Cursor) -> SeqNo {
        let of_parent = || {
            let born = tablet.born?;
            Some(self.delivered(self.get(born.parent)?, cursor).min(born.at))
        };
        cursor.named(tablet.id).or_else(of_parent).unwrap_or_default()
    }
}

/// Are all changes up to `upto`, and no others, in generations that can be forgotten? Else what it should be.
fn check_freeze(writer: &TabletWriter, shared: &PublishedState, upto: SeqNo) -> Result<(), String> {
    if upto > shared.applied {
        return Err(format!("at most {}, which is applied", shared.applied));
    }
    // What is not replayed to its end is sorted into generations later.
    if upto <= shared.installed || writer.replay.is_some() {
        return Ok(());
    }
    let later = writer.frozen.iter().find(|frozen| frozen.upto > upto);
    let begins_after = later.map_or(writer.frozen_upto, |frozen| frozen.after);
    if begins_after >= upto || (later.is_none() && writer.active.is_empty()) {
        return Ok(());
    }
    Err(format!("{begins_after}, where it was frozen"))
}

impl PublishedState {
    /// What is delivered up to `upto` is recent no more. Answers the keys that were deleted.
    fn forget(&mut self, writer: &mut TabletWriter, upto: SeqNo) -> Vec<Vec<u8>> {
        self.installed = upto;
        let n = writer.frozen.iter().take_while(|frozen| frozen.upto <= upto).count();
        let deleted = writer.frozen.drain(..n).flat_map(|frozen| frozen.generation.deleted_keys(&self.range)).collect();
        self.recent.drain(..n);
        self.measure();
        self.at_freeze =
            self.at_freeze.take().filter(|(at, _)| *at > upto).map(|(at, views)| (at, views[n..].to_vec()));
        if writer.frozen.is_empty() {
            self.frozen_since_ms = None;
        }
        deleted
    }
}

type PlacedKeys<'a> = (&'a PlacedRows, EncodedKeys, Vec<SeqNo>);

fn encode_placed<'a>(schema: &TableSchema, placed: &'a [PlacedRows]) -> Result<Vec<PlacedKeys<'a>>> {
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
