//! One tablet on this node: from its log's entries to what readers see of it.
//!
//! ```text
//! apply ──> engine (rows + applied seqno, one batch) ──> recent rows ──> visible
//! ```
//!
//! Two locks, taken in this order. `writer` is held for a whole apply, an eviction step and an install: writes of a
//! tablet are serial, those of several go on beside each other. `shared` is what readers see; it is held for writing
//! only to publish what was prepared, so a snapshot waits for nobody's disk and for no bulk batch. While the engine is
//! being written, readers get an engine snapshot from just before (`PublishedState::before_write`), so that rows,
//! recent rows and position are of one moment.
//!
//! Entries of the log are effects, decided before they got there (`resolve.rs`): applying one reads nothing, so a
//! replay, or a replica that evicts at other times, ends in the same state.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, RwLock};
use tarn_types::{
    Audit, Clock, Effect, Effects, NamedEffects, RowKind, SeqNo, TableId, TableSchema, TabletId, Version, encode_stored,
};

use crate::audit::Auditor;
use crate::engine::{Engine, EngineSnapshot, Space, WriteBatch};
use crate::error::{Error, Result};
use crate::evictions::Evictions;
use crate::hide::VersionEpoch;
use crate::layout::{self, TabletOrigin};
use crate::recent::{Generation, RowsView, ViewChanges, contains};
use crate::recent_bytes::{RecentBytes, Reservation};
use crate::requests::{KEPT_ENTRIES, Requests};
use crate::writer::{FrozenGeneration, Replay, TabletWriter};

/// Sizes of the pieces that recent rows are kept in, and how long outcomes of requests are. The defaults are right;
/// tests take small ones.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// A columnar batch of at least this many rows becomes a piece as it is.
    pub min_bulk_rows: usize,
    /// Single rows are collected in pieces of this many.
    pub max_open_rows: usize,
    /// What a request came to is kept until so many entries of its tablet came after it.
    pub kept_requests: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { min_bulk_rows: 1024, max_open_rows: 4096, kept_requests: KEPT_ENTRIES }
    }
}

/// What the tablets of a table have in common.
pub(crate) struct Base {
    pub(crate) engine: Arc<dyn Engine>,
    /// Of the schema, whatever becomes of the rest of it.
    pub(crate) id: TableId,
    pub(crate) append_only: bool,
    /// Changes by [`crate::Table::alter`].
    schema: RwLock<Arc<TableSchema>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tuning: Tuning,
    /// Of the keys of recent rows: generations share it, so that a key is hashed once.
    pub(crate) hasher: DefaultHashBuilder,
    /// Of all tables of the node.
    pub(crate) recent_bytes: Arc<RecentBytes>,
    /// Is the log replayed, and the table not dropped?
    pub(crate) serving: AtomicBool,
}

impl Base {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        schema: Arc<TableSchema>,
        clock: Arc<dyn Clock>,
        tuning: Tuning,
        recent_bytes: Arc<RecentBytes>,
    ) -> Self {
        let (id, append_only) = (schema.id, schema.options.append_only);
        let (hasher, serving) = (DefaultHashBuilder::default(), AtomicBool::new(false));
        Self { engine, id, append_only, schema: RwLock::new(schema), clock, tuning, hasher, recent_bytes, serving }
    }

    /// The table as it is now.
    pub(crate) fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.schema.read())
    }

    pub(crate) fn set_schema(&self, schema: Arc<TableSchema>) {
        *self.schema.write() = schema;
    }
}

/// See the module.
pub(crate) struct Tablet {
    pub(crate) id: TabletId,
    pub(crate) base: Arc<Base>,
    pub(crate) born: Option<TabletOrigin>,
    pub(crate) writer: Mutex<TabletWriter>,
    pub(crate) shared: RwLock<PublishedState>,
    /// What the last completed flush covers.
    durable: AtomicU64,
}

/// What readers see.
pub(crate) struct PublishedState {
    /// The tablet's keys.
    pub(crate) range: Arc<Range<Vec<u8>>>,
    pub(crate) applied: SeqNo,
    pub(crate) installed: SeqNo,
    pub(crate) epoch: Arc<VersionEpoch>,
    /// Ended ones that snapshots may still stand in.
    pub(crate) ended_epochs: Vec<Weak<VersionEpoch>>,
    /// Of the frozen generations, oldest first, then of the active one.
    pub(crate) recent: Vec<RowsView>,
    /// Invariant: what `recent` takes ([`PublishedState::measure`]).
    pub(crate) reservation: Reservation,
    /// As the frozen ones were at the newest freeze, and that freeze: what a delivery takes. None: nothing is frozen,
    /// or a restart has lost which rows were superseded since.
    pub(crate) at_freeze: Option<(SeqNo, Vec<RowsView>)>,
    /// There while the engine is being written.
    pub(crate) before_write: Option<Arc<dyn EngineSnapshot>>,
    pub(crate) evicted: bool,
    /// When the active generation got its first change.
    pub(crate) active_since_ms: Option<i64>,
    pub(crate) frozen_since_ms: Option<i64>,
}

/// What the engine says of a tablet that is opened.
pub(crate) struct TabletState {
    pub(crate) id: TabletId,
    pub(crate) range: Range<Vec<u8>>,
    pub(crate) born: Option<TabletOrigin>,
    pub(crate) version: Version,
    pub(crate) installed: SeqNo,
    pub(crate) applied: Audit,
    pub(crate) before: Option<Audit>,
    pub(crate) evicted: bool,
    pub(crate) has_addresses: bool,
}

impl Tablet {
    /// A tablet that has to replay its log.
    pub(crate) fn open(base: Arc<Base>, of: TabletState) -> Self {
        let active = Generation::new(base.hasher.clone(), base.tuning.max_open_rows);
        let range = Arc::new(of.range);
        let shared = PublishedState {
            applied: of.applied.upto,
            installed: of.installed,
            epoch: Arc::new(VersionEpoch::new(of.version, Arc::clone(&range), of.has_addresses)),
            range,
            ended_epochs: Vec::new(),
            recent: vec![RowsView::of(&active)],
            reservation: Reservation::of(&base.recent_bytes),
            at_freeze: None,
            before_write: None,
            evicted: of.evicted,
            active_since_ms: None,
            frozen_since_ms: None,
        };
        let writer = TabletWriter {
            replay: Some(Replay::new(&active, of.born.map_or(of.installed, |born| born.at.max(of.installed)))),
            active,
            frozen_upto: of.applied.after,
            frozen: VecDeque::new(),
            evictions: Evictions::new(of.installed),
            auditor: Auditor { now: of.applied, before: of.before },
            requests: Requests::new(of.id, base.tuning.kept_requests),
        };
        let durable = AtomicU64::new(shared.applied.0);
        Self { id: of.id, base, born: of.born, writer: Mutex::new(writer), shared: RwLock::new(shared), durable }
    }

    pub(crate) fn applied(&self) -> SeqNo {
        self.shared.read().applied
    }

    pub(crate) fn durable(&self) -> SeqNo {
        SeqNo(self.durable.load(Ordering::Acquire))
    }

    /// The engine was flushed after `upto` was applied.
    pub(crate) fn flushed(&self, upto: SeqNo) {
        self.durable.fetch_max(upto.0, Ordering::AcqRel);
    }

    /// Is the entry the next one to come? The writer's lock is held.
    pub(crate) fn check_order(&self, writer: &TabletWriter, seqno: SeqNo) -> Result<()> {
        if writer.replay.is_some() {
            return Err(Error::Replaying { table: self.base.schema().name.clone() });
        }
        let applied = self.applied();
        if seqno <= applied {
            return Err(Error::OutOfOrder { tablet: self.id, applied, seqno });
        }
        Ok(())
    }

    /// Writes effects to the engine, the applied position in the same batch. The writer's lock is held; readers go on
    /// seeing the moment before until somebody publishes.
    pub(crate) fn write_effects(&self, audited: &Auditor, seqno: SeqNo, effects: &Effects) -> Result<()> {
        let mut writes = WriteBatch::with_capacity(effects.len() + 1, effects.size_bytes() + effects.len() * 32 + 64);
        self.put_effects(&mut writes, seqno, effects)?;
        self.write(audited, writes)
    }

    /// As [`Tablet::write_effects`], with what came of the request that they are. Answers what is known of requests
    /// then.
    pub(crate) fn write_named(
        &self,
        writer: &TabletWriter,
        audited: &Auditor,
        seqno: SeqNo,
        named: &NamedEffects,
    ) -> Result<Requests> {
        let mut writes = WriteBatch::default();
        self.put_effects(&mut writes, seqno, named.effects())?;
        let known = writer.requests.put(&self.base.engine, &mut writes, seqno, named.request())?;
        self.write(audited, writes)?;
        Ok(known)
    }

    /// What effects make of the rows of the engine.
    ///
    /// Errors: [`Error::Corrupt`] for a key that is not the tablet's: its leader decides behind all splits, and wrote
    /// no such entry.
    pub(crate) fn put_effects(&self, writes: &mut WriteBatch, seqno: SeqNo, effects: &Effects) -> Result<()> {
        let range = Arc::clone(&self.shared.read().range);
        if let Some(stranger) = effects.iter().find(|effect| !contains(&range, effect.key)) {
            let reason = format!("entry {seqno} is of tablet {}, and the key is not", self.id);
            return Err(Error::corrupt("log entry", stranger.key, reason));
        }
        if self.base.append_only {
            return Ok(());
        }
        for effect in effects.iter() {
            let (kind, cells) = effect.cells.map_or((RowKind::Tombstone, &[][..]), |cells| (RowKind::Live, cells));
            writes.put_with(Space::Rows, effect.key, |out| encode_stored(out, kind, seqno, cells, None));
        }
        Ok(())
    }

    /// The position that `audited` stands at, to be written with what was applied up to there.
    pub(crate) fn put_position(&self, writes: &mut WriteBatch, audited: &Auditor) {
        writes.put(Space::Meta, &layout::applied_key(self.id), &layout::encode_applied(&audited.now));
    }

    /// Has the leader made the same of earlier entries?
    pub(crate) fn check_audit(&self, ours: &Auditor, theirs: Option<&Audit>) -> Result<()> {
        match theirs.filter(|theirs| !ours.agrees(theirs)) {
            Some(theirs) => Err(Error::Diverged { tablet: self.id, after: theirs.after, upto: theirs.upto }),
            None => Ok(()),
        }
    }

    /// Remembers a freeze in the engine. Answers what is known of requests then.
    pub(crate) fn write_freeze(&self, writer: &TabletWriter, audited: &Auditor) -> Result<Requests> {
        let mut writes = WriteBatch::default();
        if let Some(before) = &audited.before {
            writes.put(Space::Meta, &layout::audit_key(self.id), &layout::encode_applied(before));
        }
        let known = writer.requests.freeze(&self.base.engine, &mut writes, audited.now.upto)?;
        self.write(audited, writes)?;
        Ok(known)
    }

    /// Writes to the engine, with the position that `audited` stands at.
    pub(crate) fn write(&self, audited: &Auditor, mut writes: WriteBatch) -> Result<()> {
        self.put_position(&mut writes, audited);
        self.hold_readers();
        if let Err(error) = self.base.engine.write(&writes) {
            self.shared.write().before_write = None;
            return Err(error);
        }
        Ok(())
    }

    /// From here until the next publication readers see the engine as it is now.
    pub(crate) fn hold_readers(&self) {
        let snapshot = self.base.engine.snapshot();
        self.shared.write().before_write = Some(snapshot);
    }

    /// Puts a written entry into the recent rows and shows it to readers.
    pub(crate) fn publish(&self, writer: &mut TabletWriter, seqno: SeqNo, effects: &Effects) {
        let changes = self.prepare(writer, seqno, effects);
        let (size_bytes, now_ms) = (writer.active.size_bytes(), self.base.clock.now_ms());
        self.shared.write().show(&writer.active, seqno, &changes, size_bytes, now_ms);
    }

    /// Puts a written entry into the recent rows, where no reader sees it yet ([`PublishedState::show`]).
    pub(crate) fn prepare(&self, writer: &mut TabletWriter, seqno: SeqNo, effects: &Effects) -> ViewChanges {
        let mut changes = ViewChanges::default();
        let TabletWriter { active, frozen, .. } = &mut *writer;
        let older: Vec<&Generation> = frozen.iter().map(|frozen| &*frozen.generation).collect();
        self.record(active, &older, seqno, effects, &mut changes);
        changes
    }

    fn record(
        &self,
        active: &mut Generation,
        older: &[&Generation],
        seqno: SeqNo,
        effects: &Effects,
        changes: &mut ViewChanges,
    ) {
        let keyed = !self.base.append_only;
        if let Some(columns) = effects.columns().filter(|_| effects.len() >= self.base.tuning.min_bulk_rows) {
            let base = active.push_bulk(columns, seqno, changes);
            if keyed {
                active.reserve(effects.len());
                let latest = effects.iter().enumerate().map(|(row, effect)| (effect.key, Some(base.offset(row))));
                active.record(latest, older, changes);
            }
            return;
        }
        let mut latest = Vec::with_capacity(effects.len());
        for Effect { key, cells } in effects.iter() {
            latest.push((key, cells.map(|cells| active.push_row(key, cells, seqno, changes))));
        }
        if keyed {
            active.record(latest.into_iter(), older, changes);
        }
    }

    /// The active generation is frozen at `upto`, which is applied; another one begins.
    pub(crate) fn rotate(&self, writer: &mut TabletWriter, upto: SeqNo) {
        let after = std::mem::replace(&mut writer.frozen_upto, upto);
        let is_new = !writer.active.is_empty();
        let mut shared = self.shared.write();
        shared.before_write = None;
        shared.applied = upto;
        if is_new {
            let next = writer.active.successor();
            shared.recent.push(RowsView::of(&next));
            let frozen = std::mem::replace(&mut writer.active, next).freeze();
            writer.frozen.push_back(FrozenGeneration { generation: Arc::new(frozen), after, upto });
            let since_ms = shared.active_since_ms.take();
            shared.frozen_since_ms = shared.frozen_since_ms.or(since_ms);
        }
        // What was rebuilt after a restart becomes whole here: what is superseded from now on is known.
        let frozen = shared.recent[..shared.recent.len() - 1].to_vec();
        shared.at_freeze = (!frozen.is_empty()).then_some((upto, frozen));
        shared.measure();
    }

    /// The memory that recent rows take, their index included.
    pub(crate) fn recent_bytes(&self) -> u64 {
        let shared = self.shared.read();
        debug_assert_eq!(
            shared.reservation.bytes(),
            shared.recent_bytes(),
            "a change of the recent rows was not measured"
        );
        shared.reservation.bytes()
    }

    /// Is a key the tablet's?
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        contains(&self.shared.read().range, key)
    }
}

impl PublishedState {
    /// Shows readers an entry that was put into the active generation.
    pub(crate) fn show(
        &mut self,
        active: &Generation,
        seqno: SeqNo,
        changes: &ViewChanges,
        size_bytes: u64,
        now_ms: i64,
    ) {
        self.before_write = None;
        self.applied = seqno;
        if let Some((newest, older)) = self.recent.split_last_mut() {
            newest.publish(active, changes, size_bytes);
            for (place, spot) in &changes.dead_frozen {
                older[*place].clear(&[*spot]);
            }
        }
        self.measure();
        if !active.is_empty() {
            self.active_since_ms.get_or_insert(now_ms);
        }
    }

    /// After each change of `recent`: what it takes is what is counted.
    pub(crate) fn measure(&mut self) {
        self.reservation.set(self.recent_bytes());
    }

    fn recent_bytes(&self) -> u64 {
        self.recent.iter().map(|view| view.size_bytes).sum()
    }

    /// Another lake version is installed, or another range is the tablet's: what rows hide is found anew. Snapshots
    /// keep what they took.
    pub(crate) fn begin_epoch(&mut self, version: Version, has_addresses: bool) {
        let epoch = Arc::new(VersionEpoch::new(version, Arc::clone(&self.range), has_addresses));
        let ended = std::mem::replace(&mut self.epoch, epoch);
        self.ended_epochs.retain(|epoch| epoch.strong_count() > 0);
        self.ended_epochs.push(Arc::downgrade(&ended));
    }
}
