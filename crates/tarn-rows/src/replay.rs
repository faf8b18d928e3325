//! What of the log is not in the engine or not in the lake? The way from a restart to serving.
//!
//! Entries after the installed cursor come in order per tablet. Those that the engine lost are written again. All of them mark their keys; at
//! the end a marked key is recent if the engine's row of it is newer than the installed cursor.

use tarn_types::{Effect, Effects, RowKind, SeqNo, StoredRow, key_tablet};

use crate::engine::Space;
use crate::error::{Error, Result};
use crate::recent::{Changes, Generation};
use crate::table::Table;
use crate::writer::Replay;

/// Keys of one engine call.
const READ_KEYS: usize = 1024;

impl Table {
    /// Takes an entry of the log at start, in order per tablet, beginning after the installed cursor (earlier ones are skipped).
    pub fn replay(&self, seqno: SeqNo, effects: &Effects) -> Result<()> {
        self.check_ours(effects.table(), effects.tablet())?;
        let mut writer = self.writer.lock();
        let Some(replay) = &mut writer.replay else {
            return Err(Error::Replayed { table: self.schema.name.clone() });
        };
        let tablet = effects.tablet();
        if seqno > self.applied(tablet) {
            self.write_entry(seqno, effects)?;
            let mut shared = self.shared.write();
            shared.before_write = None;
            shared.applied.set(tablet, seqno);
        }
        if seqno <= self.shared.read().installed.get(tablet) {
            return Ok(());
        }
        if self.schema.options.append_only {
            replay.appended.push((seqno, effects.clone()));
        } else {
            replay.marked.record(effects.iter().map(|effect| (effect.key, None)), None, &mut Changes::default());
        }
        Ok(())
    }

    /// Ends the replay: builds the recent rows, and serves. Once, also for a table without a log.
    pub fn finish_replay(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        let Some(replay) = writer.replay.take() else {
            return Err(Error::Replayed { table: self.schema.name.clone() });
        };
        let built = self.build_recent(&mut writer.active, &replay);
        if built.is_err() {
            writer.active = writer.active.successor();
            writer.replay = Some(replay);
        }
        let changes = built?;
        let now_ms = self.clock.now_ms();
        let mut shared = self.shared.write();
        let size_bytes = writer.active.size_bytes();
        shared.active.publish(&writer.active, &changes, size_bytes);
        shared.active_since_ms = (!writer.active.is_empty()).then_some(now_ms);
        shared.serving = true;
        Ok(())
    }

    fn build_recent(&self, active: &mut Generation, replay: &Replay) -> Result<Changes> {
        let installed = self.shared.read().installed.clone();
        let mut changes = Changes::default();
        for (seqno, effects) in &replay.appended {
            // A delivery may have been installed since the entry came.
            if *seqno > installed.get(effects.tablet()) {
                for Effect { key, cells } in effects.iter() {
                    active.push_row(key, cells.unwrap_or_default(), *seqno, &mut changes);
                }
            }
        }
        let mut keys = replay.keys();
        keys.sort_unstable();
        for some in keys.chunks(READ_KEYS) {
            let wanted: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
            let mut latest = Vec::with_capacity(some.len());
            for (key, row) in wanted.iter().zip(self.engine.multi_get(Space::Rows, &wanted)?) {
                // Rows above the installed cursor are never evicted.
                let Some(row) = row else { continue };
                let stored = StoredRow::parse(&row)?;
                if stored.seqno <= installed.get(key_tablet(key)?) {
                    continue;
                }
                let spot = (stored.kind == RowKind::Live)
                    .then(|| active.push_row(key, stored.cells, stored.seqno, &mut changes));
                latest.push((*key, spot));
            }
            active.record(latest.into_iter(), None, &mut changes);
        }
        Ok(changes)
    }
}
