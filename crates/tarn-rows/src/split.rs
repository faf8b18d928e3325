//! How does one tablet become two? Its range ends at a key, and a new tablet has the rest: no key is rewritten.
//!
//! A split is an entry of the parent's log, so every replica does it at the same place. It writes what the two tablets
//! are, with the applied position, in one batch. The recent rows so far are frozen as by a freeze, and both tablets
//! have the frozen generations: the same rows and index, each with the bitmaps of its own live rows. So nobody waits
//! for rows to be copied: the cost is one look at each recent key.
//!
//! The new tablet's own log begins behind the entry. What it has from before, and is not delivered, is in the parent's
//! log: until a delivery beyond the split is installed, that log is kept ([`Table::replayed_up_to`]), a restart takes
//! it from there, and the new tablet is not split again.

use std::ops::Range;
use std::sync::Arc;

use tarn_types::{SeqNo, Split, TabletId};

use crate::audit::Auditor;
use crate::engine::{Space, WriteBatch};
use crate::error::{Error, Result};
use crate::layout::{self, TabletOrigin, TabletRecord};
use crate::recent::{RowsView, contains};
use crate::table::{Table, Tablets};
use crate::tablet::{PublishedState, Tablet, TabletState};
use crate::writer::{FrozenGeneration, TabletWriter};

impl Table {
    /// What to propose, so that the table is split at `at`: the tablet whose log it belongs to, and the entry.
    ///
    /// Errors: [`Error::Unborn`] for a tablet whose own birth is not delivered; `Usage` when `at` is where a tablet
    /// begins or no key of the table, or when all ids of the table are taken.
    pub fn plan_split(&self, at: &[u8]) -> Result<(TabletId, Split)> {
        let (schema, tablets) = (&self.base.schema(), self.tablets());
        let ids = schema.tablet_ids();
        let new = TabletId(tablets.map.ids().max().map_or(ids.start.0, |last| last.0 + 1));
        if new >= ids.end {
            let reason = format!("table {} has {} tablets, the most there can be", schema.name, tablets.map.len());
            return Err(tarn_types::Error::usage(reason).into());
        }
        tablets.map.split(at, new)?;
        let parent = tablets.map.tablet_of(at);
        let tablet = self.tablet(parent)?;
        let is_born = tablet.born.is_none_or(|born| tablet.shared.read().installed >= born.at);
        if !is_born {
            return Err(Error::Unborn { table: schema.name.clone(), tablet: parent });
        }
        Ok((parent, Split { at: at.to_vec(), new }))
    }

    /// Applies a split. The parent's writer is locked.
    pub(crate) fn split(
        &self,
        parent: &Arc<Tablet>,
        writer: &mut TabletWriter,
        audited: &Auditor,
        split: &Split,
    ) -> Result<()> {
        let seqno = audited.now.upto;
        let (low, high) = self.parts_of(parent, split)?;
        // Prepared before anything is locked or written: nobody but a writer changes what is alive.
        let (low_rows, high_rows) = (self.rows_within(parent, writer, &low)?, self.rows_within(parent, writer, &high)?);
        let new = NewTablet { id: split.new, born: TabletOrigin { parent: parent.id, at: seqno } };
        self.write_split(parent, writer, audited, &new, (&low, &high))?;
        parent.rotate(writer, seqno);
        // Whoever reads holds `tablets`: nobody sees one without the other.
        let mut tablets = self.tablets.write();
        let mut shared = parent.shared.write();
        let child = new.serving(parent, writer, &shared, high, high_rows);
        shared.set_frozen(writer.frozen.len(), low_rows);
        shared.narrow(low);
        drop(shared);
        *tablets = Arc::new(tablets.with(split, child)?);
        Ok(())
    }

    /// What all generations show of a range.
    fn rows_within(&self, parent: &Tablet, writer: &TabletWriter, range: &EngineKeyRange) -> Result<RecentRows> {
        let (recent, at_freeze) = {
            let shared = parent.shared.read();
            (shared.recent.clone(), shared.at_freeze.clone())
        };
        let within = |views: &[RowsView]| -> Result<Vec<RowsView>> {
            let generations = writer.older().into_iter().chain([&writer.active]);
            generations.zip(views).map(|(of, view)| of.within(view, &self.base.schema(), range)).collect()
        };
        let at_freeze = match at_freeze {
            Some((upto, views)) => Some((upto, within(&views)?)),
            None => None,
        };
        Ok(RecentRows { recent: within(&recent)?, at_freeze })
    }

    /// A split that the engine lost, or has already, comes again from the log. The parent's writer is locked.
    pub(crate) fn replay_split(
        &self,
        parent: &Arc<Tablet>,
        writer: &mut TabletWriter,
        audited: Auditor,
        split: &Split,
    ) -> Result<()> {
        if self.tablets().get(split.new).is_some() {
            return Ok(());
        }
        let (low, high) = self.parts_of(parent, split)?;
        let seqno = audited.now.upto;
        let new = NewTablet { id: split.new, born: TabletOrigin { parent: parent.id, at: seqno } };
        self.write_split(parent, writer, &audited, &new, (&low, &high))?;
        writer.auditor = audited;
        let mut tablets = self.tablets.write();
        let mut shared = parent.shared.write();
        let child = new.replaying(parent, writer, &shared, high);
        shared.before_write = None;
        shared.applied = seqno;
        shared.narrow(low);
        drop(shared);
        *tablets = Arc::new(tablets.with(split, child)?);
        Ok(())
    }

    /// What the parent keeps, and what the new one gets.
    fn parts_of(&self, parent: &Tablet, split: &Split) -> Result<(EngineKeyRange, EngineKeyRange)> {
        self.tablets().map.split(&split.at, split.new)?;
        let range = Arc::clone(&parent.shared.read().range);
        if !contains(&range, &split.at) {
            return Err(Error::Elsewhere { table: self.base.schema().name.clone(), tablet: parent.id });
        }
        Ok((range.start.clone()..split.at.clone(), split.at.clone()..range.end.clone()))
    }

    /// What the two are, with the position of the split, in one batch.
    fn write_split(
        &self,
        parent: &Tablet,
        writer: &TabletWriter,
        audited: &Auditor,
        new: &NewTablet,
        (low, high): (&EngineKeyRange, &EngineKeyRange),
    ) -> Result<()> {
        let (table, at) = (self.base.id, new.born.at);
        let mut writes = WriteBatch::default();
        for (id, range, born) in [(parent.id, low, parent.born), (new.id, high, Some(new.born))] {
            let record = TabletRecord { range: range.clone(), born };
            writes.put(Space::Meta, &layout::tablet_key(table, id), &layout::encode_tablet(&record));
        }
        // A request that is made again may come by either of the two.
        writer.requests.give(&self.base.engine, &mut writes, new.id)?;
        let applied = layout::encode_applied(&Auditor::new(at).now);
        writes.put(Space::Meta, &layout::applied_key(new.id), &applied);
        {
            let shared = parent.shared.read();
            let marker = layout::encode_marker(shared.epoch.version, shared.installed);
            writes.put(Space::Addresses, &layout::marker_key(table, new.id), &marker);
            if shared.evicted {
                writes.put(Space::Meta, &layout::evicted_key(new.id), &layout::EVICTED);
            }
        }
        parent.write(audited, writes)
    }
}

/// Engine keys, half-open.
type EngineKeyRange = Range<Vec<u8>>;

/// The part of a tablet's recent rows that is in one range.
struct RecentRows {
    /// By generation, oldest first.
    recent: Vec<RowsView>,
    /// A delivery that is under way goes on with what it took.
    at_freeze: Option<(SeqNo, Vec<RowsView>)>,
}

struct NewTablet {
    id: TabletId,
    born: TabletOrigin,
}

impl NewTablet {
    /// Of a tablet that serves and was frozen just now; `rows` are what it had of `range`.
    fn serving(
        self,
        parent: &Tablet,
        writer: &TabletWriter,
        shared: &PublishedState,
        range: EngineKeyRange,
        rows: RecentRows,
    ) -> Arc<Tablet> {
        let mut child = self.open(parent, writer, shared, range);
        let own = child.writer.get_mut();
        own.replay = None;
        let frozen = writer.frozen.iter();
        own.frozen = frozen.map(|of| FrozenGeneration { generation: Arc::clone(&of.generation), ..*of }).collect();
        let shown = child.shared.get_mut();
        shown.set_frozen(writer.frozen.len(), rows);
        shown.frozen_since_ms = shared.frozen_since_ms;
        Arc::new(child)
    }

    /// Of a tablet that replays its log.
    fn replaying(
        self,
        parent: &Tablet,
        writer: &TabletWriter,
        shared: &PublishedState,
        range: EngineKeyRange,
    ) -> Arc<Tablet> {
        let mut child = self.open(parent, writer, shared, range.clone());
        if let (Some(own), Some(parents)) = (&mut child.writer.get_mut().replay, &writer.replay) {
            own.take_from(parents, &range);
            own.freezes.push(self.born.at);
        }
        Arc::new(child)
    }

    /// As a restart would find it.
    fn open(&self, parent: &Tablet, writer: &TabletWriter, shared: &PublishedState, range: EngineKeyRange) -> Tablet {
        let opened = TabletState {
            id: self.id,
            range,
            born: Some(self.born),
            version: shared.epoch.version,
            installed: shared.installed,
            applied: Auditor::new(self.born.at).now,
            before: None,
            evicted: shared.evicted,
            has_addresses: shared.epoch.has_addresses,
        };
        let mut child = Tablet::open(Arc::clone(&parent.base), opened);
        child.writer.get_mut().evictions = writer.evictions.begun_anew();
        child
    }
}

impl PublishedState {
    /// The frozen generations, of which there are `n`, show `rows`.
    fn set_frozen(&mut self, n: usize, rows: RecentRows) {
        let RecentRows { mut recent, at_freeze } = rows;
        recent.truncate(n);
        recent.extend(self.recent.pop());
        (self.recent, self.at_freeze) = (recent, at_freeze);
        self.measure();
    }

    /// From now on there is only what is in `range`.
    fn narrow(&mut self, range: Range<Vec<u8>>) {
        self.range = Arc::new(range);
        // A list that is filled may have keys of the other tablet.
        self.begin_epoch(self.epoch.version, self.epoch.has_addresses);
    }
}

impl Tablets {
    fn with(&self, split: &Split, child: Arc<Tablet>) -> Result<Self> {
        let map = self.map.split(&split.at, split.new)?;
        let mut all = self.all.clone();
        let place = map.ids().position(|id| id == split.new).unwrap_or(all.len());
        all.insert(place, child);
        Ok(Self { map: Arc::new(map), all })
    }
}
