//! One table on this node: all its tablets, from the log's entries to what readers see.
//!
//! ```text
//! apply ──> engine (rows + applied seqno, one batch) ──> recent rows ──> visible
//! ```
//!
//! Two locks, taken in this order. `writer` is held for a whole apply, an eviction step and an install: writes of a table are serial.
//! `shared` is what readers see; it is held for writing only to publish what was prepared, so a snapshot waits for nobody's disk and for no
//! bulk batch. While the engine is being written, readers get an engine snapshot from just before (`Shared::before_write`), so that
//! rows, recent rows and position are of one moment.
//!
//! Entries of the log are effects, decided before they got there (`resolve.rs`): applying one reads nothing, so a replay, or a replica that
//! evicts at other times, ends in the same state.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, RwLock};
use tarn_types::{
    Clock, Cursor, Effect, Effects, RowKind, SeqNo, TableId, TableSchema, TabletId, Version, encode_stored,
};

use crate::engine::{Engine, EngineSnapshot, Space, WriteBatch};
use crate::error::{Error, Result};
use crate::evictions::Evictions;
use crate::hide::Reign;
use crate::layout;
use crate::recent::{Changes, Generation, RowsView};
use crate::snapshot::{HotSnapshot, Lookup, keyed, lookup};
use crate::whose::{self, Standing, standing};
use crate::writer::{Replay, Writer};

/// Sizes of the pieces that recent rows are kept in. The defaults are right; tests take small ones.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// A columnar batch of at least this many rows becomes a piece as it is.
    pub min_bulk_rows: usize,
    /// Single rows are collected in pieces of this many.
    pub max_open_rows: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { min_bulk_rows: 1024, max_open_rows: 4096 }
    }
}

/// See the module.
pub struct Table {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) clock: Arc<dyn Clock>,
    tuning: Tuning,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) shared: RwLock<Shared>,
    /// What the last completed flush covers.
    durable: Mutex<Cursor>,
}

/// What readers see.
pub(crate) struct Shared {
    pub(crate) applied: Cursor,
    pub(crate) installed: Cursor,
    pub(crate) reign: Arc<Reign>,
    /// Ended ones that snapshots may still stand in.
    pub(crate) ended_reigns: Vec<Weak<Reign>>,
    pub(crate) frozen: Option<RowsView>,
    pub(crate) active: RowsView,
    /// There while the engine is being written.
    pub(crate) before_write: Option<Arc<dyn EngineSnapshot>>,
    pub(crate) evicted: bool,
    /// Is the log replayed?
    pub(crate) serving: bool,
    /// When the active generation got its first change.
    pub(crate) active_since_ms: Option<i64>,
    pub(crate) frozen_since_ms: Option<i64>,
}

impl Table {
    /// Opens a table: reads what is installed and what each tablet has applied. Then [`Table::replay`] the entries after the installed cursor, install
    /// what a crash left undelivered ([`tarn_feed::Stage::repair`]), and [`Table::finish_replay`]: only then does it serve.
    pub fn open(engine: Arc<dyn Engine>, schema: Arc<TableSchema>, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open_tuned(engine, schema, clock, Tuning::default())
    }

    /// [`Table::open`] with other sizes.
    pub fn open_tuned(
        engine: Arc<dyn Engine>,
        schema: Arc<TableSchema>,
        clock: Arc<dyn Clock>,
        tuning: Tuning,
    ) -> Result<Self> {
        let Standing { installed: (version, installed), applied } = standing(&*engine, &schema)?;
        let evicted = engine.get(Space::Meta, &layout::evicted_key(schema.id))?.is_some();
        let has_addresses = {
            let snapshot = engine.snapshot();
            let mut addresses = snapshot.scan(Space::Addresses, layout::table_range(&schema));
            addresses.next()?.is_some()
        };
        let active = Generation::new(DefaultHashBuilder::default(), tuning.max_open_rows);
        let shared = Shared {
            applied: applied.clone(),
            installed: installed.clone(),
            reign: Arc::new(Reign::new(version, has_addresses)),
            ended_reigns: Vec::new(),
            frozen: None,
            active: RowsView::of(&active),
            before_write: None,
            evicted,
            serving: false,
            active_since_ms: None,
            frozen_since_ms: None,
        };
        let writer =
            Writer { replay: Some(Replay::new(&active)), active, frozen: None, evictions: Evictions::new(installed) };
        Ok(Self {
            engine,
            schema,
            clock,
            tuning,
            writer: Mutex::new(writer),
            shared: RwLock::new(shared),
            durable: Mutex::new(applied),
        })
    }

    /// The table.
    #[must_use]
    pub fn table_schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// The last entry that is in effect.
    #[must_use]
    pub fn applied(&self, tablet: TabletId) -> SeqNo {
        self.shared.read().applied.get(tablet)
    }

    /// [`Table::applied`] of all tablets, at one moment.
    #[must_use]
    pub fn applied_cursor(&self) -> Cursor {
        self.shared.read().applied.clone()
    }

    /// The last entry that a crash cannot take back. The engine may have flushed more by itself.
    #[must_use]
    pub fn durable(&self, tablet: TabletId) -> SeqNo {
        self.durable.lock().get(tablet)
    }

    /// Applies a committed entry; visible when it returns, durable in the log alone. Entries of a tablet come in order. An error leaves the
    /// tablet where it was.
    pub fn apply(&self, seqno: SeqNo, effects: &Effects) -> Result<()> {
        self.check_ours(effects.table(), effects.tablet())?;
        let mut writer = self.writer.lock();
        if writer.replay.is_some() {
            return Err(Error::Replaying { table: self.schema.name.clone() });
        }
        let applied = self.applied(effects.tablet());
        if seqno <= applied {
            return Err(Error::OutOfOrder { tablet: effects.tablet(), applied, seqno });
        }
        self.write_entry(seqno, effects)?;
        self.publish_entry(&mut writer, seqno, effects);
        Ok(())
    }

    pub(crate) fn check_ours(&self, table: TableId, tablet: TabletId) -> Result<()> {
        let first = self.schema.first_tablet.0;
        let tablets = first..first + self.schema.options.tablets;
        if table != self.schema.id || !tablets.contains(&tablet.0) {
            return Err(Error::NotOurs { table: self.schema.name.clone(), tablet });
        }
        Ok(())
    }

    /// Writes an entry to the engine, its applied seqno in the same batch. The writer's lock is held; readers go on seeing the moment before until
    /// somebody publishes.
    pub(crate) fn write_entry(&self, seqno: SeqNo, effects: &Effects) -> Result<()> {
        let mut writes = WriteBatch::with_capacity(effects.len() + 1, effects.size_bytes() + effects.len() * 32 + 32);
        if !self.schema.options.append_only {
            for effect in effects.iter() {
                let (kind, cells) = effect.cells.map_or((RowKind::Tombstone, &[][..]), |cells| (RowKind::Live, cells));
                writes.put_with(Space::Rows, effect.key, |out| encode_stored(out, kind, seqno, cells, None));
            }
        }
        writes.put(Space::Meta, &layout::applied_key(effects.tablet()), &layout::encode_applied(seqno));
        self.hold_readers();
        if let Err(error) = self.engine.write(&writes) {
            self.shared.write().before_write = None;
            return Err(error);
        }
        Ok(())
    }

    /// From here until the next publication readers see the engine as it is now.
    pub(crate) fn hold_readers(&self) {
        let snapshot = self.engine.snapshot();
        self.shared.write().before_write = Some(snapshot);
    }

    /// Puts a written entry into the recent rows and shows it to readers.
    fn publish_entry(&self, writer: &mut Writer, seqno: SeqNo, effects: &Effects) {
        let mut changes = Changes::default();
        let Writer { active, frozen, .. } = &mut *writer;
        let frozen = frozen.as_ref().map(|frozen| &frozen.generation);
        self.record(active, frozen, seqno, effects, &mut changes);
        let size_bytes = active.size_bytes();
        let now_ms = self.clock.now_ms();
        let mut shared = self.shared.write();
        shared.before_write = None;
        shared.applied.set(effects.tablet(), seqno);
        shared.active.publish(active, &changes, size_bytes);
        if let Some(view) = &mut shared.frozen {
            view.clear(&changes.dead_frozen);
        }
        if !active.is_empty() {
            shared.active_since_ms.get_or_insert(now_ms);
        }
    }

    fn record(
        &self,
        active: &mut Generation,
        frozen: Option<&Generation>,
        seqno: SeqNo,
        effects: &Effects,
        changes: &mut Changes,
    ) {
        let keyed = !self.schema.options.append_only;
        if let Some(columns) = effects.columns().filter(|_| effects.len() >= self.tuning.min_bulk_rows) {
            let base = active.push_bulk(columns, seqno, changes);
            if keyed {
                active.reserve(effects.len());
                let latest = effects.iter().enumerate().map(|(row, effect)| (effect.key, Some(base.offset(row))));
                active.record(latest, frozen, changes);
            }
            return;
        }
        let mut latest = Vec::with_capacity(effects.len());
        for Effect { key, cells } in effects.iter() {
            latest.push((key, cells.map(|cells| active.push_row(key, cells, seqno, changes))));
        }
        if keyed {
            active.record(latest.into_iter(), frozen, changes);
        }
    }

    /// A view of this moment. Cost: two references per chunk of recent rows, one engine snapshot.
    pub fn snapshot(&self) -> Result<Arc<HotSnapshot>> {
        self.view(&self.shared.read())
    }

    /// Views of several tables, all of one moment, in the order of `tables`: what one shows was published before what none shows.
    pub fn snapshot_all(tables: &[&Table]) -> Result<Vec<Arc<HotSnapshot>>> {
        // Nothing is published while all are locked. Each once, and everybody in the same order: a lock that is wanted by a writer is
        // not given to another reader.
        let by_id: BTreeMap<TableId, &Table> = tables.iter().map(|table| (table.schema.id, *table)).collect();
        let locked: Vec<_> = by_id.values().map(|table| table.shared.read()).collect();
        let views = by_id.iter().zip(&locked).map(|((id, table), shared)| Ok((*id, table.view(shared)?)));
        let views = views.collect::<Result<BTreeMap<_, _>>>()?;
        Ok(tables.iter().map(|table| Arc::clone(&views[&table.schema.id])).collect())
    }

    /// The table as `shared`, its own, shows it.
    fn view(&self, shared: &Shared) -> Result<Arc<HotSnapshot>> {
        if !shared.serving {
            return Err(Error::Replaying { table: self.schema.name.clone() });
        }
        let engine = shared.before_write.clone().unwrap_or_else(|| self.engine.snapshot());
        Ok(Arc::new(HotSnapshot {
            schema: Arc::clone(&self.schema),
            position: shared.applied.clone(),
            installed: shared.installed.clone(),
            reign: Arc::clone(&shared.reign),
            frozen: shared.frozen.clone(),
            active: shared.active.clone(),
            engine,
            evicted: shared.evicted,
            hidden: std::sync::OnceLock::new(),
        }))
    }

    /// The oldest lake version that is installed or that a snapshot stands at: what must not be forgotten.
    #[must_use]
    pub fn oldest_version_in_use(&self) -> Version {
        let shared = self.shared.read();
        let ended = shared.ended_reigns.iter().filter_map(Weak::upgrade).map(|reign| reign.version);
        ended.fold(shared.reign.version, Version::min)
    }

    /// Looks up what recent rows hide, so that the next query finds it done: for a background task, now and then. Every changed key costs
    /// one read once; nothing is read twice.
    pub fn look_up_hidden(&self) -> Result<()> {
        self.snapshot()?.hidden().map(drop)
    }

    /// A row by its engine key, now, without a snapshot: as of some moment between call and return.
    pub fn get(&self, key: &[u8]) -> Result<Lookup> {
        keyed(&self.schema)?;
        if !self.shared.read().serving {
            return Err(Error::Replaying { table: self.schema.name.clone() });
        }
        // Row first: whatever happens before the address is read, the answer was true at one of the two moments.
        lookup(self.engine.get(Space::Rows, key)?, || self.engine.get(Space::Addresses, key))
    }

    /// Rows by their engine keys, in the order of `keys`, each as [`Table::get`] would find it.
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Lookup>> {
        keyed(&self.schema)?;
        if !self.shared.read().serving {
            return Err(Error::Replaying { table: self.schema.name.clone() });
        }
        let rows = self.engine.multi_get(Space::Rows, keys)?;
        let missing = keys.iter().zip(&rows).filter(|(_, row)| row.is_none()).map(|(key, _)| *key);
        let missing: Vec<&[u8]> = missing.collect();
        let mut addresses = self.engine.multi_get(Space::Addresses, &missing)?.into_iter();
        rows.into_iter().map(|row| lookup(row, || Ok(addresses.next().flatten()))).collect()
    }

    /// The memory that recent rows take, their index included: what back-pressure looks at.
    #[must_use]
    pub fn recent_bytes(&self) -> u64 {
        let shared = self.shared.read();
        shared.active.size_bytes + shared.frozen.as_ref().map_or(0, |view| view.size_bytes)
    }

    /// Makes everything applied so far durable. All tables of the engine are written out by it, but only this one takes note:
    /// for several tables use [`Table::begin_flush`].
    pub fn flush(&self) -> Result<()> {
        let flush = self.begin_flush();
        self.engine.flush()?;
        self.end_flush(flush);
        Ok(())
    }

    /// Before one [`Engine::flush`] for several tables, ask each of them; after it, [`Table::end_flush`].
    #[must_use]
    pub fn begin_flush(&self) -> FlushMark {
        FlushMark { applied: self.applied_cursor() }
    }

    /// The engine was flushed after the mark was taken.
    pub fn end_flush(&self, mark: FlushMark) {
        self.durable.lock().merge(&mark.applied);
    }

    /// Deletes everything the engine holds of the table, durable once the engine is flushed. The table serves nobody any more.
    pub fn drop_data(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.shared.write().serving = false;
        writer.replay = Some(Replay::new(&writer.active));
        let first = self.schema.first_tablet;
        whose::remove(&*self.engine, self.schema.id, first..TabletId(first.0 + self.schema.options.tablets))
    }

    /// Does anybody still hold a snapshot of it? What those stand on must stay, also when the table was dropped.
    #[must_use]
    pub fn is_read(&self) -> bool {
        let shared = self.shared.read();
        Arc::strong_count(&shared.reign) > 1 || shared.ended_reigns.iter().any(|reign| reign.strong_count() > 0)
    }
}

/// What a flush will cover.
#[derive(Debug)]
pub struct FlushMark {
    applied: Cursor,
}
