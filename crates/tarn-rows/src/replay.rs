//! What of the log is not in the engine or not in the lake? The way from a restart to serving.
//!
//! Entries after the installed position come in order per tablet. Those that the engine lost are written again. All of
//! them mark their keys; at the end a marked key is recent if the engine's row of it is newer than the installed
//! position, in the generation of the freeze after it. What entries come to is held against what the engine says it was
//! made of.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarn_types::{Audit, Effect, Entry, RowKind, SeqNo, StoredRow, TabletId};

use crate::engine::Space;
use crate::error::{Error, Result};
use crate::recent::{Generation, RowsView, ViewChanges, contains};
use crate::table::Table;
use crate::tablet::Tablet;
use crate::writer::{FrozenGeneration, Replay, TabletWriter};

/// Keys of one engine call.
const READ_KEYS: usize = 1024;

impl Table {
    /// Takes an entry of a tablet's log at start, in order per tablet, beginning after [`Table::replayed_up_to`]
    /// (earlier ones are skipped). A tablet that was split off comes after the one it comes from, and may come to be
    /// only here.
    ///
    /// Errors: [`Error::Diverged`] when the engine has other rows than its log.
    pub fn replay(&self, tablet: TabletId, seqno: SeqNo, entry: &Entry) -> Result<()> {
        let tablet = self.tablet(tablet)?;
        let mut writer = tablet.writer.lock();
        if writer.replay.is_none() {
            return Err(Error::Replayed { table: self.base.schema().name.clone() });
        }
        self.leave_to_descendants(&tablet, seqno, entry);
        if let Entry::Split(split) = entry {
            let audited = writer.auditor.with(seqno, entry);
            self.replay_split(&tablet, &mut writer, audited, split)?;
        }
        tablet.replay(&mut writer, seqno, entry)
    }

    /// What was another tablet's when it was written, and is not any more.
    fn leave_to_descendants(&self, of: &Tablet, seqno: SeqNo, entry: &Entry) {
        let tablets = self.tablets();
        for descendant in &tablets.all {
            let is_inherited = tablets.inherited(descendant, of.id).is_some_and(|upto| seqno <= upto);
            if !is_inherited || seqno <= descendant.shared.read().installed {
                continue;
            }
            let range = Arc::clone(&descendant.shared.read().range);
            if let Some(replay) = &mut descendant.writer.lock().replay {
                replay.mark(seqno, entry, self.base.append_only, &range);
            }
        }
    }

    /// Ends the replay: builds the recent rows, and serves. Once, also for a table without a log.
    pub fn finish_replay(&self) -> Result<()> {
        if self.check_serving().is_ok() {
            return Err(Error::Replayed { table: self.base.schema().name.clone() });
        }
        for tablet in &self.tablets().all {
            tablet.finish_replay()?;
        }
        self.base.serving.store(true, Ordering::Release);
        Ok(())
    }
}

impl Tablet {
    fn replay(&self, writer: &mut TabletWriter, seqno: SeqNo, entry: &Entry) -> Result<()> {
        let (applied, installed, range) = {
            let shared = self.shared.read();
            (shared.applied, shared.installed, Arc::clone(&shared.range))
        };
        if seqno > applied {
            self.write_again(writer, seqno, entry)?;
        }
        if seqno <= installed {
            return Ok(());
        }
        let known = writer.auditor.clone();
        let Some(replay) = &mut writer.replay else { return Ok(()) };
        replay.mark(seqno, entry, self.base.append_only, &range);
        replay.audited = replay.audited.with(seqno, entry);
        // What the engine says it was made of, since the last freeze and between the two before.
        for ours in [Some(replay.audited.now), replay.audited.before].into_iter().flatten() {
            let same_entries = |theirs: &Audit| (ours.after, ours.upto) == (theirs.after, theirs.upto);
            let theirs = [Some(known.now), known.before].into_iter().flatten().find(same_entries);
            if theirs.is_some_and(|theirs| theirs.digest != ours.digest) {
                return Err(Error::Diverged { tablet: self.id, after: ours.after, upto: ours.upto });
            }
        }
        Ok(())
    }

    /// An entry that the engine lost.
    fn write_again(&self, writer: &mut TabletWriter, seqno: SeqNo, entry: &Entry) -> Result<()> {
        let audited = writer.auditor.with(seqno, entry);
        match entry {
            Entry::Effects(effects) => self.write_effects(&audited, seqno, effects)?,
            Entry::Named(named) => writer.requests = self.write_named(writer, &audited, seqno, named)?,
            Entry::Freeze(audit) => {
                self.check_audit(&writer.auditor, audit.as_ref())?;
                writer.requests = self.write_freeze(writer, &audited)?;
            }
            // Written by `replay_split`.
            Entry::Split(_) => {}
        }
        writer.auditor = audited;
        let mut shared = self.shared.write();
        shared.before_write = None;
        shared.applied = seqno;
        Ok(())
    }

    fn finish_replay(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        let Some(replay) = writer.replay.take() else { return Ok(()) };
        let installed = self.shared.read().installed;
        // A delivery may have been installed since they came.
        let freezes: Vec<SeqNo> = replay.freezes.iter().copied().filter(|freeze| *freeze > installed).collect();
        let (generations, views) = match self.build_recent(&writer.active, &replay, installed, &freezes) {
            Ok(built) => built,
            Err(error) => {
                writer.replay = Some(replay);
                return Err(error);
            }
        };
        let now_ms = self.base.clock.now_ms();
        let mut shared = self.shared.write();
        for (n, generation) in generations.into_iter().enumerate() {
            match freezes.get(n) {
                Some(upto) => {
                    let after = n.checked_sub(1).map_or(installed, |before| freezes[before]);
                    let generation = Arc::new(generation.freeze());
                    writer.frozen.push_back(FrozenGeneration { generation, after, upto: *upto });
                }
                None => writer.active = generation,
            }
        }
        writer.frozen_upto = freezes.last().copied().unwrap_or(writer.frozen_upto.max(installed));
        shared.recent = views;
        shared.measure();
        shared.active_since_ms = (!writer.active.is_empty()).then_some(now_ms);
        shared.frozen_since_ms = (!writer.frozen.is_empty()).then_some(now_ms);
        Ok(())
    }

    /// A generation up to each freeze that is not installed, and the active one.
    fn build_recent(
        &self,
        empty: &Generation,
        replay: &Replay,
        installed: SeqNo,
        freezes: &[SeqNo],
    ) -> Result<(Vec<Generation>, Vec<RowsView>)> {
        let range = Arc::clone(&self.shared.read().range);
        let generation_of = |seqno: SeqNo| freezes.partition_point(|freeze| *freeze < seqno);
        let mut built: Vec<(Generation, ViewChanges)> =
            (0..=freezes.len()).map(|_| (empty.successor(), ViewChanges::default())).collect();
        for (seqno, effects) in &replay.appended {
            if *seqno > installed {
                let (generation, changes) = &mut built[generation_of(*seqno)];
                for Effect { key, cells } in effects.iter().filter(|effect| contains(&range, effect.key)) {
                    generation.push_row(key, cells.unwrap_or_default(), *seqno, changes);
                }
            }
        }
        let mut keys = replay.marked.deleted_keys(&range);
        keys.sort_unstable();
        for some in keys.chunks(READ_KEYS) {
            let wanted: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
            for (key, row) in wanted.iter().zip(self.base.engine.multi_get(Space::Rows, &wanted)?) {
                // Rows above the installed position are never evicted.
                let Some(row) = row else { continue };
                let stored = StoredRow::parse(&row)?;
                if stored.seqno <= installed {
                    continue;
                }
                let (generation, changes) = &mut built[generation_of(stored.seqno)];
                let spot = (stored.kind == RowKind::Live)
                    .then(|| generation.push_row(key, stored.cells, stored.seqno, changes));
                generation.record(std::iter::once((*key, spot)), &[], changes);
            }
        }
        let views = built.iter().map(|(generation, changes)| {
            let mut view = RowsView::of(generation);
            view.publish(generation, changes, generation.size_bytes());
            view
        });
        let views = views.collect();
        Ok((built.into_iter().map(|(generation, _)| generation).collect(), views))
    }
}
