//! Was this request made before, and what came of it then?
//!
//! A tablet keeps the outcome of each request that an entry of its log names, for as many entries as [`KEPT_ENTRIES`]
//! says, then forgets it. It is written in the entry's own batch, so whatever a crash leaves has both or neither, and
//! the log brings both back. A split gives the new tablet the same outcomes.
//!
//! ```text
//! meta  'd' | origin | sequence | tablet -> the entry that it was, and its outcome      found by its name, whatever tablet has it
//!       'q' | tablet | seqno             -> origin, sequence                            the same by age: what is to be forgotten
//! ```
//!
//! What is too old is not answered, whether it is deleted already or not: how long an outcome is kept depends on the
//! log alone. Deleting is done by whoever writes an entry with a name, a few at a time, and by freezes.
//! `docs/formats/rows.md` has the bytes.

use std::sync::Arc;

use tarn_types::{Request, RequestId, SeqNo, StatementOutcome, TabletId};

use crate::engine::{Engine, EngineSnapshot, Space, WriteBatch};
use crate::error::Result;
use crate::layout;

/// An outcome is kept until so many entries of its tablet's log came after it.
pub const KEPT_ENTRIES: u64 = 1 << 20;

/// How many an entry with a name forgets at most: more than it adds.
const FORGOTTEN_BY_ENTRY: usize = 8;

/// How many a freeze forgets at most.
const FORGOTTEN_BY_FREEZE: usize = 4096;

/// What a request came to when it was made; `None`: it was not, or is forgotten. Of an entry that is not applied
/// nothing is known.
///
/// Cost: one short scan.
/// Errors: `Corrupt`.
pub fn first_outcome(engine: &dyn Engine, id: RequestId) -> Result<Option<Vec<StatementOutcome>>> {
    first_outcome_within(engine, id, KEPT_ENTRIES)
}

/// As [`first_outcome`], of tables that keep outcomes for `kept_entries`.
pub fn first_outcome_within(
    engine: &dyn Engine,
    id: RequestId,
    kept_entries: u64,
) -> Result<Option<Vec<StatementOutcome>>> {
    let snapshot = engine.snapshot();
    let mut found = snapshot.scan(Space::Meta, layout::outcomes_of(id));
    while let Some((key, value)) = found.next()? {
        let (seqno, statements) = layout::decode_outcome(key, value)?;
        let Some(tablet) = layout::tablet_of_outcome(key) else { continue };
        if applied(&*snapshot, tablet)?.is_some_and(|applied| is_kept(seqno, applied, kept_entries)) {
            return Ok(Some(statements));
        }
    }
    Ok(None)
}

fn is_kept(seqno: SeqNo, applied: SeqNo, kept_entries: u64) -> bool {
    applied.0.saturating_sub(seqno.0) <= kept_entries
}

fn applied(snapshot: &dyn EngineSnapshot, tablet: TabletId) -> Result<Option<SeqNo>> {
    let key = layout::applied_key(tablet);
    let applied = snapshot.get(Space::Meta, &key)?;
    applied.map(|bytes| Ok(layout::decode_applied(&key, &bytes)?.upto)).transpose()
}

/// What one tablet's writers know of the outcomes that it keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    tablet: TabletId,
    kept_entries: u64,
    /// There is none of an entry before this one.
    oldest: SeqNo,
}

impl Requests {
    /// Nobody looked yet what there is.
    pub(crate) fn new(tablet: TabletId, kept_entries: u64) -> Self {
        Self { tablet, kept_entries, oldest: SeqNo::ZERO }
    }

    /// What an entry writes beside its effects. Answers what is known when the batch is written.
    pub(crate) fn put(
        self,
        engine: &Arc<dyn Engine>,
        writes: &mut WriteBatch,
        seqno: SeqNo,
        request: &Request,
    ) -> Result<Self> {
        let known = self.forget(engine, writes, seqno, FORGOTTEN_BY_ENTRY)?;
        put(writes, self.tablet, seqno, request.id, &layout::encode_outcome(seqno, &request.statements));
        Ok(known)
    }

    /// What a freeze at `seqno` deletes.
    pub(crate) fn freeze(self, engine: &Arc<dyn Engine>, writes: &mut WriteBatch, seqno: SeqNo) -> Result<Self> {
        self.forget(engine, writes, seqno, FORGOTTEN_BY_FREEZE)
    }

    /// Deletes the oldest that are too old at `now`, at most so many.
    fn forget(self, engine: &Arc<dyn Engine>, writes: &mut WriteBatch, now: SeqNo, at_most: usize) -> Result<Self> {
        if is_kept(self.oldest, now, self.kept_entries) {
            return Ok(self);
        }
        let snapshot = engine.snapshot();
        let mut by_age = snapshot.scan(Space::Meta, layout::requests_of(self.tablet, self.oldest));
        let mut oldest = self.oldest;
        for _ in 0..at_most {
            let Some((key, value)) = by_age.next()? else { return Ok(Self { oldest: now, ..self }) };
            let (seqno, id) = layout::decode_by_age(key, value)?;
            oldest = seqno;
            if is_kept(seqno, now, self.kept_entries) {
                break;
            }
            writes.delete(Space::Meta, key);
            delete_outcome(&*snapshot, writes, self.tablet, seqno, id)?;
        }
        Ok(Self { oldest, ..self })
    }

    /// What a split gives the new tablet.
    pub(crate) fn give(self, engine: &Arc<dyn Engine>, writes: &mut WriteBatch, new: TabletId) -> Result<()> {
        let snapshot = engine.snapshot();
        let mut by_age = snapshot.scan(Space::Meta, layout::requests_of(self.tablet, self.oldest));
        while let Some((key, value)) = by_age.next()? {
            let (seqno, id) = layout::decode_by_age(key, value)?;
            let Some(outcome) = snapshot.get(Space::Meta, &layout::outcome_key(id, self.tablet))? else { continue };
            put(writes, new, seqno, id, &outcome);
        }
        Ok(())
    }
}

fn put(writes: &mut WriteBatch, tablet: TabletId, seqno: SeqNo, id: RequestId, outcome: &[u8]) {
    writes.put(Space::Meta, &layout::outcome_key(id, tablet), outcome);
    writes.put(Space::Meta, &layout::by_age_key(tablet, seqno), &layout::encode_by_age(id));
}

/// Unless the request was made again since, when it was forgotten.
fn delete_outcome(
    snapshot: &dyn EngineSnapshot,
    writes: &mut WriteBatch,
    tablet: TabletId,
    seqno: SeqNo,
    id: RequestId,
) -> Result<()> {
    let key = layout::outcome_key(id, tablet);
    let Some(outcome) = snapshot.get(Space::Meta, &key)? else { return Ok(()) };
    if layout::decode_outcome(&key, &outcome)?.0 == seqno {
        writes.delete(Space::Meta, &key);
    }
    Ok(())
}

/// Deletes all that a tablet keeps.
pub(crate) fn remove(snapshot: &dyn EngineSnapshot, writes: &mut WriteBatch, tablet: TabletId) -> Result<()> {
    let mut by_age = snapshot.scan(Space::Meta, layout::requests_of(tablet, SeqNo::ZERO));
    while let Some((key, value)) = by_age.next()? {
        let (_, id) = layout::decode_by_age(key, value)?;
        writes.delete(Space::Meta, key);
        writes.delete(Space::Meta, &layout::outcome_key(id, tablet));
    }
    Ok(())
}
