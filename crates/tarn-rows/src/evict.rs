//! Which rows may leave the row space? Live ones that the lake holds and that are old enough, and tombstones whose key
//! the lake has forgotten.
//!
//! How old a row is: see `evictions.rs`. An eviction is a delete in the engine and nothing else: it moves no position
//! and hides nothing. It is not logged: each replica evicts when it likes, and a crash may bring evicted rows back.
//! That does no harm, since what is in the log was decided before.

use bytes::Bytes;
use tarn_types::{Address, RowKind, SeqNo, StoredRow};

use crate::engine::{Space, WriteBatch};
use crate::error::{Error, Result};
use crate::evictions::Search;
use crate::layout;
use crate::table::Table;
use crate::tablet::Tablet;

/// Keys deleted per step, under the tablet's write lock.
const STEP_KEYS: usize = 512;

/// What [`Table::evict`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictReport {
    /// Rows looked at.
    pub examined: u64,
    /// Live rows that are in the lake alone now.
    pub rows: u64,
    /// Tombstones removed.
    pub tombstones: u64,
    /// The end of the table was reached; the next call begins anew.
    pub done: bool,
}

struct Candidate {
    key: Vec<u8>,
    seqno: SeqNo,
    kind: RowKind,
}

impl Table {
    /// Removes live rows delivered at or before `delivered_before_ms` (milliseconds since 1970) from the row space, and
    /// tombstones delivered at any time. Rows delivered before the table was opened count as old. Looks at about
    /// `budget` rows, then answers; the next call goes on, tablet by tablet. Writers of the tablet wait for one step of
    /// a few hundred keys at most. Not durable before the next flush, and need not be.
    pub fn evict(&self, delivered_before_ms: i64, budget: usize) -> Result<EvictReport> {
        self.pass(budget, |tablet, budget| {
            let old = tablet.writer.lock().evictions.delivered_before(delivered_before_ms);
            tablet.sweep(old, budget)
        })
    }

    /// [`Table::evict`] of tombstones alone: for tables whose rows stay hot for ever. Looks at the keys that deliveries
    /// deleted since the table was opened; once after that, at all rows.
    pub fn remove_tombstones(&self, budget: usize) -> Result<EvictReport> {
        self.pass(budget, |tablet, budget| tablet.remove_tombstones(budget))
    }

    /// Goes through the tablets, from where the last call got to.
    fn pass(&self, budget: usize, evict: impl Fn(&Tablet, usize) -> Result<EvictReport>) -> Result<EvictReport> {
        let tablets = self.tablets();
        let mut to_evict = self.to_evict.lock();
        if to_evict.is_empty() {
            to_evict.extend(tablets.map.ids());
        }
        let mut total = EvictReport::default();
        while let Some(id) = to_evict.last() {
            // One that is not here any more has nothing to evict.
            let of_one = match tablets.get(*id) {
                Some(tablet) => evict(tablet, budget.saturating_sub(total.examined as usize))?,
                None => EvictReport { done: true, ..EvictReport::default() },
            };
            total.examined += of_one.examined;
            total.rows += of_one.rows;
            total.tombstones += of_one.tombstones;
            if of_one.done {
                to_evict.pop();
            }
            if total.examined >= budget as u64 || !of_one.done {
                break;
            }
        }
        total.done = to_evict.is_empty();
        Ok(total)
    }
}

impl Tablet {
    fn remove_tombstones(&self, budget: usize) -> Result<EvictReport> {
        let (keys, search) = {
            let evictions = &mut self.writer.lock().evictions;
            let first = evictions.tombstones.len().saturating_sub(budget);
            (evictions.tombstones.split_off(first), evictions.search)
        };
        if keys.is_empty() {
            return match search {
                Search::Done => Ok(EvictReport { done: true, ..EvictReport::default() }),
                Search::Wanted | Search::Running => self.sweep(SeqNo::ZERO, budget),
            };
        }
        let removed = self.remove_known_tombstones(keys);
        let evictions = &mut self.writer.lock().evictions;
        if removed.is_err() {
            evictions.search = Search::Wanted;
        }
        let done = evictions.tombstones.is_empty() && evictions.search == Search::Done;
        Ok(EvictReport { done, ..removed? })
    }

    fn remove_known_tombstones(&self, keys: Vec<Vec<u8>>) -> Result<EvictReport> {
        let delivered = self.shared.read().installed;
        let mut report = EvictReport { examined: keys.len() as u64, ..EvictReport::default() };
        for keys in keys.chunks(STEP_KEYS) {
            let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut candidates = Vec::with_capacity(keys.len());
            for (key, row) in keys.iter().zip(self.base.engine.multi_get(Space::Rows, &wanted)?) {
                let Some(row) = row else { continue };
                let StoredRow { kind, seqno, .. } = StoredRow::parse(&row)?;
                if kind == RowKind::Tombstone && seqno <= delivered {
                    candidates.push(Candidate { key: key.clone(), seqno, kind });
                }
            }
            self.evict_step(&candidates, &mut report)?;
        }
        Ok(report)
    }

    /// From where the last one ended: live rows up to `old`, and tombstones that are delivered.
    fn sweep(&self, old: SeqNo, budget: usize) -> Result<EvictReport> {
        let mut report = EvictReport::default();
        if self.base.append_only {
            return Ok(EvictReport { done: true, ..report });
        }
        let (delivered, range) = {
            let mut writer = self.writer.lock();
            if writer.replay.is_some() {
                return Err(Error::Replaying { table: self.base.schema().name.clone() });
            }
            let evictions = &mut writer.evictions;
            if evictions.next.is_none() && evictions.search == Search::Wanted {
                evictions.search = Search::Running;
            }
            let shared = self.shared.read();
            let from = evictions.next.clone().unwrap_or_else(|| shared.range.start.clone());
            (shared.installed, from..shared.range.end.clone())
        };
        let snapshot = self.base.engine.snapshot();
        let mut rows = snapshot.scan(Space::Rows, range);
        let mut candidates = Vec::new();
        let mut next = None;
        report.done = true;
        while let Some((key, value)) = rows.next()? {
            if report.examined >= budget as u64 {
                next = Some(key.to_vec());
                report.done = false;
                break;
            }
            report.examined += 1;
            let stored = StoredRow::parse(value)?;
            let limit = if stored.kind == RowKind::Live { old } else { delivered };
            if stored.seqno <= limit {
                candidates.push(Candidate { key: key.to_vec(), seqno: stored.seqno, kind: stored.kind });
            }
            if candidates.len() == STEP_KEYS {
                self.evict_step(&candidates, &mut report)?;
                candidates.clear();
            }
        }
        self.evict_step(&candidates, &mut report)?;
        let evictions = &mut self.writer.lock().evictions;
        evictions.next = next;
        if report.done && evictions.search == Search::Running {
            evictions.search = Search::Done;
        }
        Ok(report)
    }

    /// Deletes the candidates that are still what they were when they were found.
    fn evict_step(&self, candidates: &[Candidate], report: &mut EvictReport) -> Result<()> {
        if candidates.is_empty() {
            return Ok(());
        }
        let _writer = self.writer.lock();
        // What was split off since it was found is not this lock's to guard.
        let candidates: Vec<&Candidate> = candidates.iter().filter(|candidate| self.has(&candidate.key)).collect();
        let keys: Vec<&[u8]> = candidates.iter().map(|candidate| candidate.key.as_slice()).collect();
        let rows = self.base.engine.multi_get(Space::Rows, &keys)?;
        let addresses = self.base.engine.multi_get(Space::Addresses, &keys)?;
        let mut writes = WriteBatch::default();
        let (mut n_rows, mut n_tombstones) = (0, 0);
        for ((candidate, row), address) in candidates.iter().zip(&rows).zip(&addresses) {
            if !unchanged(candidate, row.as_ref())? {
                continue;
            }
            match (candidate.kind, address) {
                (RowKind::Live, Some(address)) if Address::decode(address)?.seqno == candidate.seqno => n_rows += 1,
                (RowKind::Tombstone, None) => n_tombstones += 1,
                // The lake does not have this row, or still has an older one: keep it.
                _ => continue,
            }
            writes.delete(Space::Rows, &candidate.key);
        }
        if writes.is_empty() {
            return Ok(());
        }
        if n_rows > 0 {
            // In the same batch: the flag is there after a crash exactly if an evicted row is missing.
            writes.put(Space::Meta, &layout::evicted_key(self.id), &layout::EVICTED);
        }
        self.hold_readers();
        let written = self.base.engine.write(&writes);
        let mut shared = self.shared.write();
        shared.before_write = None;
        written?;
        shared.evicted |= n_rows > 0;
        report.rows += n_rows;
        report.tombstones += n_tombstones;
        Ok(())
    }
}

fn unchanged(candidate: &Candidate, row: Option<&Bytes>) -> Result<bool> {
    let Some(row) = row else { return Ok(false) };
    let stored = StoredRow::parse(row)?;
    Ok(stored.seqno == candidate.seqno && stored.kind == candidate.kind)
}
