//! One table on this node: the sum of its tablets here.
//!
//! What is asked of a key goes to the tablet that has it; a snapshot takes all tablets at one moment. The set of
//! tablets changes when one is split (`split.rs`). Locks, in the order they are taken: `tablets`, then those of the
//! tablets (`tablet.rs`), in the order of their keys.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tarn_types::{Audit, Clock, Cursor, Entry, SeqNo, TableId, TableSchema, TabletId, TabletMap, Version};

use crate::engine::{Engine, Space};
use crate::error::{Error, Result};
use crate::recent_bytes::RecentBytes;
use crate::snapshot::{HotSnapshot, Lookup, TabletView, keyed, lookup};
use crate::tablet::{Base, PublishedState, Tablet, Tuning};
use crate::whose;
use crate::writer::Replay;

/// See the module.
pub struct Table {
    pub(crate) base: Arc<Base>,
    pub(crate) tablets: RwLock<Arc<Tablets>>,
    /// The tablets that the pass of an eviction has still to look at.
    pub(crate) to_evict: Mutex<Vec<TabletId>>,
}

/// The tablets of a table at some time.
pub(crate) struct Tablets {
    pub(crate) map: Arc<TabletMap>,
    /// In the order of their keys.
    pub(crate) all: Vec<Arc<Tablet>>,
}

impl Tablets {
    pub(crate) fn get(&self, id: TabletId) -> Option<&Arc<Tablet>> {
        self.all.iter().find(|tablet| tablet.id == id)
    }

    /// Up to which entry the log of `of` has what a tablet had before it was split off from that one, or from one that
    /// was, and has not installed; `None`: nothing. A replica that is behind with installing may have to take it from
    /// there.
    ///
    /// Asked for each entry of a replay: of most tablets all is installed, and their parents are not looked for.
    pub(crate) fn inherited(&self, tablet: &Tablet, of: TabletId) -> Option<SeqNo> {
        let installed = tablet.shared.read().installed;
        let mut born = tablet.born.filter(|born| installed < born.at)?;
        while born.parent != of {
            born = self.get(born.parent)?.born?;
        }
        Some(born.at)
    }

    /// What readers see of all of them, at one moment, while the locks are held.
    pub(crate) fn read(&self) -> Vec<RwLockReadGuard<'_, PublishedState>> {
        self.all.iter().map(|tablet| tablet.shared.read()).collect()
    }
}

impl Table {
    /// Opens a table: reads what tablets it has, what is installed and what each has applied. Then [`Table::replay`]
    /// the entries after the installed cursor, install what a crash left undelivered, and [`Table::finish_replay`]:
    /// only then does it serve.
    pub fn open(engine: Arc<dyn Engine>, schema: Arc<TableSchema>, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open_tuned(engine, schema, clock, Tuning::default(), Arc::default())
    }

    /// [`Table::open`] with other sizes, and one of several tables whose recent rows are counted together.
    pub fn open_tuned(
        engine: Arc<dyn Engine>,
        schema: Arc<TableSchema>,
        clock: Arc<dyn Clock>,
        tuning: Tuning,
        recent_bytes: Arc<RecentBytes>,
    ) -> Result<Self> {
        whose::begin(&*engine, &schema)?;
        let opened = whose::open_tablets(&*engine, &schema)?;
        let map = TabletMap::of_ranges(schema.id, opened.iter().map(|of| (of.id, of.range.clone())))?;
        let base = Arc::new(Base::new(engine, schema, clock, tuning, recent_bytes));
        let mut by_id: BTreeMap<TabletId, Arc<Tablet>> =
            opened.into_iter().map(|of| (of.id, Arc::new(Tablet::open(Arc::clone(&base), of)))).collect();
        let all = map.ids().filter_map(|id| by_id.remove(&id)).collect();
        let tablets = Tablets { map: Arc::new(map), all };
        Ok(Self { base, tablets: RwLock::new(Arc::new(tablets)), to_evict: Mutex::default() })
    }

    /// The table as it is now.
    #[must_use]
    pub fn table_schema(&self) -> Arc<TableSchema> {
        self.base.schema()
    }

    /// The table is defined so from now on. Its id, its key and whether it only appends stay; whoever holds a snapshot
    /// keeps what he had. Where rows are others afterwards, in their columns or in what may be NULL, nothing may wait
    /// for a delivery: recent rows are as they were written. The caller keeps writers out. Nothing is durable here: the
    /// metastore knows.
    ///
    /// # Errors
    /// [`Error::Undelivered`].
    pub fn alter(&self, schema: Arc<TableSchema>) -> Result<()> {
        let before = self.base.schema();
        let key = |of: &TableSchema| {
            of.key.iter().map(|part| (of.columns[part.column_idx].id, part.descending)).collect::<Vec<_>>()
        };
        assert!(
            schema.id == before.id
                && schema.options.append_only == before.options.append_only
                && key(&schema) == key(&before),
            "table {} is altered to another one",
            before.name
        );
        let pending = self.pending();
        if pending.oldest_ms.is_some() && !schema.stores_as(&before) {
            return Err(Error::Undelivered { table: before.name.clone() });
        }
        self.base.set_schema(schema);
        Ok(())
    }

    pub(crate) fn tablets(&self) -> Arc<Tablets> {
        Arc::clone(&self.tablets.read())
    }

    pub(crate) fn tablet(&self, id: TabletId) -> Result<Arc<Tablet>> {
        let tablet = self.tablets.read().get(id).cloned();
        tablet.ok_or_else(|| Error::NotOurs { table: self.base.schema().name.clone(), tablet: id })
    }

    /// The tablets and the keys that each has, now.
    #[must_use]
    pub fn tablet_map(&self) -> Arc<TabletMap> {
        Arc::clone(&self.tablets.read().map)
    }

    /// The tablet that one was split off from, and the entry that did; what came before it is in that one's log.
    /// `None`: the table began with it.
    #[must_use]
    pub fn born(&self, tablet: TabletId) -> Option<(TabletId, SeqNo)> {
        let born = self.tablets.read().get(tablet)?.born?;
        Some((born.parent, born.at))
    }

    /// The last entry that is in effect; zero for a tablet that is not here.
    #[must_use]
    pub fn applied(&self, tablet: TabletId) -> SeqNo {
        self.tablets.read().get(tablet).map_or(SeqNo::ZERO, |tablet| tablet.applied())
    }

    /// [`Table::applied`] of all tablets, at one moment.
    #[must_use]
    pub fn applied_cursor(&self) -> Cursor {
        let tablets = self.tablets.read();
        let shared = tablets.read();
        tablets.all.iter().zip(&shared).map(|(tablet, shared)| (tablet.id, shared.applied)).collect()
    }

    /// The last entry that a crash cannot take back. The engine may have flushed more by itself.
    #[must_use]
    pub fn durable(&self, tablet: TabletId) -> SeqNo {
        self.tablets.read().get(tablet).map_or(SeqNo::ZERO, |tablet| tablet.durable())
    }

    /// Up to which entry a tablet's log is in no replay: it is installed, and so is what tablets that were split off
    /// had before. The log of a tablet that was itself split off begins with that.
    #[must_use]
    pub fn replayed_up_to(&self, tablet: TabletId) -> SeqNo {
        let tablets = self.tablets.read();
        let Some(own) = tablets.get(tablet) else { return SeqNo::ZERO };
        let descendants = tablets.all.iter().filter_map(|descendant| {
            let upto = tablets.inherited(descendant, tablet)?;
            let installed = descendant.shared.read().installed;
            (installed < upto).then_some(installed)
        });
        let needed = descendants.fold(own.shared.read().installed, SeqNo::min);
        needed.max(own.born.map_or(SeqNo::ZERO, |born| born.at))
    }

    /// What was made of the entries between the last two freezes: what the next one tells the other replicas.
    #[must_use]
    pub fn audit(&self, tablet: TabletId) -> Option<Audit> {
        let tablet = self.tablet(tablet).ok()?;
        let writer = tablet.writer.lock();
        writer.auditor.before
    }

    /// Applies a committed entry; visible when it returns, durable in the log alone. Entries of a tablet come in order;
    /// those of several are applied beside each other. An error leaves the tablet where it was.
    ///
    /// Errors: [`Error::OutOfOrder`]; `Corrupt` for an entry with a key of another tablet; the engine's.
    pub fn apply(&self, tablet: TabletId, seqno: SeqNo, entry: &Entry) -> Result<()> {
        let tablet = self.tablet(tablet)?;
        let mut writer = tablet.writer.lock();
        tablet.check_order(&writer, seqno)?;
        let audited = writer.auditor.with(seqno, entry);
        match entry {
            Entry::Effects(effects) => {
                tablet.write_effects(&audited, seqno, effects)?;
                tablet.publish(&mut writer, seqno, effects);
            }
            Entry::Named(named) => {
                writer.requests = tablet.write_named(&writer, &audited, seqno, named)?;
                tablet.publish(&mut writer, seqno, named.effects());
            }
            Entry::Freeze(audit) => {
                tablet.check_audit(&writer.auditor, audit.as_ref())?;
                writer.requests = tablet.write_freeze(&writer, &audited)?;
                tablet.rotate(&mut writer, seqno);
            }
            Entry::Split(split) => self.split(&tablet, &mut writer, &audited, split)?,
        }
        writer.auditor = audited;
        Ok(())
    }

    fn check_keyed(&self) -> Result<()> {
        match self.base.append_only {
            true => keyed(&self.base.schema()),
            false => Ok(()),
        }
    }

    pub(crate) fn check_serving(&self) -> Result<()> {
        if self.base.serving.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Error::Replaying { table: self.base.schema().name.clone() })
    }

    /// A view of this moment. Cost: two references per row set of recent rows, one engine snapshot.
    pub fn snapshot(&self) -> Result<Arc<HotSnapshot>> {
        let tablets = self.tablets.read();
        let shared = tablets.read();
        self.view(&tablets, &shared)
    }

    /// Views of several tables, all of one moment, in the order of `tables`: what one shows was published before what
    /// none shows.
    pub fn snapshot_all(tables: &[&Table]) -> Result<Vec<Arc<HotSnapshot>>> {
        // Nothing is published while all are locked. Each once, and everybody in the same order: a lock that is wanted
        // by a writer is not given to another reader.
        let by_id: BTreeMap<TableId, &Table> = tables.iter().map(|table| (table.base.id, *table)).collect();
        let tablets: Vec<_> = by_id.values().map(|table| table.tablets.read()).collect();
        let locked: Vec<_> = tablets.iter().map(|tablets| tablets.read()).collect();
        let views = by_id.iter().zip(tablets.iter().zip(&locked));
        let views = views.map(|((id, table), (tablets, shared))| Ok((*id, table.view(tablets, shared)?)));
        let views = views.collect::<Result<BTreeMap<_, _>>>()?;
        Ok(tables.iter().map(|table| Arc::clone(&views[&table.base.id])).collect())
    }

    /// The table as `shared`, that of its tablets, shows it.
    fn view(&self, tablets: &Tablets, shared: &[RwLockReadGuard<'_, PublishedState>]) -> Result<Arc<HotSnapshot>> {
        self.check_serving()?;
        let mut now = None;
        let views = tablets.all.iter().zip(shared).map(|(tablet, shared)| {
            let engine = shared.before_write.clone();
            let engine = engine.unwrap_or_else(|| Arc::clone(now.get_or_insert_with(|| self.base.engine.snapshot())));
            TabletView {
                range: Arc::clone(&shared.range),
                position: (tablet.id, shared.applied),
                installed: (tablet.id, shared.installed),
                epoch: Arc::clone(&shared.epoch),
                recent: shared.recent.clone(),
                engine,
                evicted: shared.evicted,
            }
        });
        Ok(Arc::new(HotSnapshot::new(self.base.schema(), views.collect())))
    }

    /// The oldest lake version that is installed or that a snapshot stands at: what must not be forgotten.
    #[must_use]
    pub fn oldest_version_in_use(&self) -> Version {
        let tablets = self.tablets.read();
        let shared = tablets.read();
        let in_use = shared.iter().flat_map(|shared| {
            let ended = shared.ended_epochs.iter().filter_map(Weak::upgrade).map(|epoch| epoch.version);
            ended.chain([shared.epoch.version])
        });
        in_use.min().unwrap_or_default()
    }

    /// Looks up what recent rows hide, so that the next query finds it done: for a background task, now and then. Every
    /// changed key costs one read once; nothing is read twice.
    pub fn look_up_hidden(&self) -> Result<()> {
        self.snapshot()?.hidden().map(drop)
    }

    /// A row by its engine key, now, without a snapshot: as of some moment between call and return.
    pub fn get(&self, key: &[u8]) -> Result<Lookup> {
        self.check_keyed()?;
        self.check_serving()?;
        // Row first: whatever happens before the address is read, the answer was true at one of the two moments.
        lookup(self.base.engine.get(Space::Rows, key)?, || self.base.engine.get(Space::Addresses, key))
    }

    /// Rows by their engine keys, in the order of `keys`, each as [`Table::get`] would find it.
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Lookup>> {
        self.check_keyed()?;
        self.check_serving()?;
        let rows = self.base.engine.multi_get(Space::Rows, keys)?;
        let missing = keys.iter().zip(&rows).filter(|(_, row)| row.is_none()).map(|(key, _)| *key);
        let missing: Vec<&[u8]> = missing.collect();
        let mut addresses = self.base.engine.multi_get(Space::Addresses, &missing)?.into_iter();
        rows.into_iter().map(|row| lookup(row, || Ok(addresses.next().flatten()))).collect()
    }

    /// The memory that recent rows take, their index included: what back-pressure looks at.
    #[must_use]
    pub fn recent_bytes(&self) -> u64 {
        self.tablets.read().all.iter().map(|tablet| tablet.recent_bytes()).sum()
    }

    /// Makes everything applied so far durable. All tables of the engine are written out by it, but only this one takes
    /// note: for several tables use [`Table::begin_flush`].
    pub fn flush(&self) -> Result<()> {
        let flush = self.begin_flush();
        self.base.engine.flush()?;
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
        let tablets = self.tablets();
        for (id, applied) in mark.applied.iter() {
            if let Some(tablet) = tablets.get(id) {
                tablet.flushed(applied);
            }
        }
    }

    /// Deletes everything the engine holds of the table, durable once the engine is flushed. The table serves nobody
    /// any more.
    pub fn drop_data(&self) -> Result<()> {
        self.base.serving.store(false, Ordering::Release);
        for tablet in &self.tablets().all {
            let mut writer = tablet.writer.lock();
            writer.replay = Some(Replay::new(&writer.active, SeqNo::ZERO));
        }
        whose::remove(&*self.base.engine, self.base.id)
    }

    /// Does anybody still hold a snapshot of it? What those stand on must stay, also when the table was dropped.
    #[must_use]
    pub fn is_read(&self) -> bool {
        let tablets = self.tablets.read();
        let shared = tablets.read();
        shared.iter().any(|shared| {
            let is_held = shared.ended_epochs.iter().any(|epoch| epoch.strong_count() > 0);
            Arc::strong_count(&shared.epoch) > 1 || is_held
        })
    }
}

/// What a flush will cover.
#[derive(Debug)]
pub struct FlushMark {
    applied: Cursor,
}
