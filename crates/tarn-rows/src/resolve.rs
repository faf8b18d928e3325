//! What does a batch do, given what is there? Reads, decides, writes nothing.
//!
//! A plain Put needs no reading. For everything else the key's present state is read once for the whole batch, in key order,
//! and then followed through the batch, so that a later mutation sees an earlier one.

use std::borrow::Cow;
use std::collections::HashMap;

use tarn_types::{Address, Mutation, MutationBatch, Op, RowKind, SeqNo, StoredRow, patch_cells};

use crate::engine::{Engine, Space};
use crate::error::Result;

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was applied.
    Applied {
        /// Puts, inserted rows, and patched or deleted rows that were there.
        affected: u64,
    },
    /// A guard failed, or the table cannot take such a mutation: nothing of the batch happened. Read again and propose anew.
    Conflict {
        /// The key whose guard failed.
        key: Vec<u8>,
    },
    /// A patched row lies in the lake alone: nothing of the batch happened. Read it there, and propose a whole Put guarded with its seqno.
    NeedsBase {
        /// The key of the row.
        key: Vec<u8>,
    },
}

/// What one mutation does.
pub(crate) enum Effect<'a> {
    /// The row is this now.
    Put(Cow<'a, [u8]>),
    /// The row is gone; it was there before.
    Delete,
    /// Nothing: there was no such row, or there was one already.
    Nothing,
}

/// What a batch does: one effect per mutation, or a refusal and none.
pub(crate) struct Resolved<'a> {
    pub(crate) outcome: Outcome,
    pub(crate) effects: Vec<Effect<'a>>,
}

enum State<'a> {
    Absent,
    Live { cells: Cow<'a, [u8]>, seqno: SeqNo },
    InLake { seqno: SeqNo },
}

impl State<'_> {
    fn seqno(&self) -> Option<SeqNo> {
        match self {
            Self::Absent => None,
            Self::Live { seqno, .. } | Self::InLake { seqno } => Some(*seqno),
        }
    }
}

/// Decides the batch against the engine's newest state, which must not change meanwhile.
pub(crate) fn resolve<'a>(engine: &dyn Engine, seqno: SeqNo, batch: &'a MutationBatch) -> Result<Resolved<'a>> {
    let mut effects = Vec::with_capacity(batch.len());
    if batch.iter().all(|mutation| is_plain_put(&mutation)) {
        effects.extend(batch.iter().map(|mutation| Effect::Put(Cow::Borrowed(mutation.cells))));
        return Ok(Resolved { outcome: Outcome::Applied { affected: effects.len() as u64 }, effects });
    }
    let mut states = read_states(engine, batch)?;
    let mut affected = 0;
    for mutation in batch.iter() {
        let state = states.entry(mutation.key).or_insert(State::Absent);
        if mutation.guard.is_some() && mutation.guard != state.seqno() {
            return Ok(refused(Outcome::Conflict { key: mutation.key.to_vec() }));
        }
        let effect = match (mutation.op, &*state) {
            (Op::Put, _) | (Op::Insert, State::Absent) => Effect::Put(Cow::Borrowed(mutation.cells)),
            (Op::Insert, _) | (Op::Patch | Op::Delete, State::Absent) => Effect::Nothing,
            (Op::Patch, State::Live { cells, .. }) => Effect::Put(Cow::Owned(patch_cells(cells, mutation.cells)?)),
            (Op::Patch, State::InLake { .. }) => {
                return Ok(refused(Outcome::NeedsBase { key: mutation.key.to_vec() }));
            }
            (Op::Delete, _) => Effect::Delete,
        };
        match &effect {
            Effect::Put(cells) => *state = State::Live { cells: cells.clone(), seqno },
            Effect::Delete => *state = State::Absent,
            Effect::Nothing => {}
        }
        affected += u64::from(!matches!(effect, Effect::Nothing));
        effects.push(effect);
    }
    Ok(Resolved { outcome: Outcome::Applied { affected }, effects })
}

/// Can a table that only appends take this?
pub(crate) fn appends(op: Op) -> bool {
    matches!(op, Op::Put | Op::Insert)
}

/// A table that only appends takes plain rows alone. Anything else is refused here only if a front door let it into the log.
pub(crate) fn append_only(batch: &MutationBatch) -> Resolved<'_> {
    let foreign = batch.iter().find(|mutation| mutation.guard.is_some() || !appends(mutation.op));
    match foreign {
        Some(mutation) => Resolved { outcome: Outcome::Conflict { key: mutation.key.to_vec() }, effects: Vec::new() },
        None => {
            let effects: Vec<Effect<'_>> = batch.iter().map(|m| Effect::Put(m.cells.into())).collect();
            Resolved { outcome: Outcome::Applied { affected: effects.len() as u64 }, effects }
        }
    }
}

fn is_plain_put(mutation: &Mutation<'_>) -> bool {
    mutation.op == Op::Put && mutation.guard.is_none()
}

fn refused<'a>(outcome: Outcome) -> Resolved<'a> {
    Resolved { outcome, effects: Vec::new() }
}

/// The states of all keys whose mutations depend on them; what is not in the map and not written before is absent or not asked for.
fn read_states<'a>(engine: &dyn Engine, batch: &'a MutationBatch) -> Result<HashMap<&'a [u8], State<'a>>> {
    let asked = batch.iter().filter(|mutation| !is_plain_put(mutation));
    let mut keys: Vec<&'a [u8]> = asked.map(|mutation| mutation.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let rows = engine.multi_get(Space::Rows, &keys)?;
    let mut states = HashMap::with_capacity(keys.len());
    let mut elsewhere = Vec::new();
    for (key, row) in keys.into_iter().zip(rows) {
        let Some(row) = row else {
            elsewhere.push(key);
            continue;
        };
        let stored = StoredRow::parse(&row)?;
        if stored.kind == RowKind::Live {
            states.insert(key, State::Live { cells: Cow::Owned(stored.cells.to_vec()), seqno: stored.seqno });
        }
    }
    let addresses = engine.multi_get(Space::Addresses, &elsewhere)?;
    for (key, address) in elsewhere.into_iter().zip(addresses) {
        if let Some(bytes) = address {
            states.insert(key, State::InLake { seqno: Address::decode(&bytes)?.seqno });
        }
    }
    Ok(states)
}
