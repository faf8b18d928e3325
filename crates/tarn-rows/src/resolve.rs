//! What does a batch come to, given what is there and what is under way? Reads, decides, writes nothing.
//!
//! The leader of a tablet asks this before the log: so every batch is decided against all those before it, applied or not, and the log
//! holds what happened, not what was asked. In two steps: [`Table::look_up`] reads the rows, at any time before; [`Table::resolve`] decides,
//! under the lock by which the batch gets its place, with what was applied or submitted since. A plain Put needs no reading. For everything
//! else the key's state is read once for the whole batch, in key order, and then followed through the batch, so that a later mutation sees
//! an earlier one.

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use bytes::Bytes;
use tarn_types::{
    Address, Effects, EffectsBuilder, Mutation, MutationBatch, Op, RowKind, SeqNo, StoredRow, patch_cells,
};

use crate::engine::{Engine, Space};
use crate::error::Result;
use crate::table::Table;
use crate::under_way::{Coming, UnderWay};

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

#[derive(Debug)]
enum State {
    /// Nothing depends on it.
    NotAsked,
    Absent,
    Live {
        cells: Bytes,
        seqno: SeqNo,
    },
    InLake {
        seqno: SeqNo,
    },
}

/// What the rows said of the keys of a batch.
#[derive(Debug)]
pub struct Known<'a> {
    batch: &'a MutationBatch,
    /// Entries up to here were applied when the rows were read.
    since: SeqNo,
    /// By key. None, if nothing depends on what is there.
    states: Vec<(&'a [u8], State)>,
}

impl State {
    fn seqno(&self) -> Option<SeqNo> {
        match self {
            Self::NotAsked | Self::Absent => None,
            Self::Live { seqno, .. } | Self::InLake { seqno } => Some(*seqno),
        }
    }
}

impl From<Coming> for State {
    fn from(Coming { seqno, cells }: Coming) -> Self {
        cells.map_or(Self::Absent, |cells| Self::Live { cells, seqno })
    }
}

impl Table {
    /// Reads what is there at the keys of a batch, where something depends on it. `since`: an entry that was applied before.
    ///
    /// Cost: one read of the engine for all keys that something is asked of; none for plain rows.
    pub fn look_up<'a>(&self, batch: &'a MutationBatch, since: SeqNo) -> Result<Known<'a>> {
        self.check_ours(batch.table(), batch.tablet())?;
        let is_plain = self.schema.options.append_only || batch.iter().all(|mutation| is_plain_put(&mutation));
        let states = if is_plain { Vec::new() } else { read_states(&*self.engine, batch)? };
        Ok(Known { batch, since, states })
    }

    /// Decides a batch that would be entry `seqno` of its tablet, behind all those that are applied or in `under_way`. Answers what becomes
    /// of it, and what to log; `None`: nothing is changed, and nothing is logged.
    ///
    /// Cost: no read, unless so much was applied since [`Table::look_up`] that `under_way` does not tell it any more.
    pub fn resolve(&self, seqno: SeqNo, known: Known<'_>, under_way: &UnderWay) -> Result<(Outcome, Option<Effects>)> {
        let Known { batch, since, mut states } = known;
        if let Some(rows) = Effects::of_rows(batch) {
            let affected = rows.len() as u64;
            return Ok((Outcome::Applied { affected }, Some(rows).filter(|rows| !rows.is_empty())));
        }
        if self.schema.options.append_only {
            return self.resolve_appended(batch);
        }
        let since = match since < under_way.forgotten() {
            true => {
                states = read_states(&*self.engine, batch)?;
                under_way.forgotten()
            }
            false => since,
        };
        for (key, state) in &mut states {
            if let Some(coming) = under_way.latest(key, since) {
                *state = State::from(coming);
            }
        }
        let mut effects = EffectsBuilder::new(&self.schema, batch.tablet());
        let (mut affected, mut had_effect) = (0, Vec::with_capacity(batch.len()));
        for mutation in batch.iter() {
            let at = states.binary_search_by_key(&mutation.key, |(key, _)| *key);
            let state = &mut states[at.expect("all keys of the batch are there")].1;
            if mutation.guard.is_some() && mutation.guard != state.seqno() {
                return Ok((Outcome::Conflict { key: mutation.key.to_vec() }, None));
            }
            let after = match (mutation.op, &*state) {
                (Op::Put, _) | (Op::Insert, State::Absent) => Some(Some(batch.as_bytes().slice_ref(mutation.cells))),
                (Op::Insert, _) | (Op::Patch | Op::Delete, State::NotAsked | State::Absent) => None,
                (Op::Patch, State::Live { cells, .. }) => Some(Some(patch_cells(cells, mutation.cells)?.into())),
                (Op::Patch, State::InLake { .. }) => {
                    return Ok((Outcome::NeedsBase { key: mutation.key.to_vec() }, None));
                }
                (Op::Delete, _) => Some(None),
            };
            had_effect.push(after.is_some());
            let Some(after) = after else { continue };
            affected += 1;
            effects.push(mutation.key, after.as_deref());
            *state = after.map_or(State::Absent, |cells| State::Live { cells, seqno });
        }
        let outcome = Outcome::Applied { affected };
        if effects.is_empty() {
            return Ok((outcome, None));
        }
        // Batches of columns have nothing but rows. Without columns these go in one by one.
        let columns = batch.columns().and_then(|columns| match affected == batch.len() as u64 {
            true => Some(columns.clone()),
            false => filter_record_batch(columns, &BooleanArray::from(had_effect)).ok(),
        });
        Ok((outcome, Some(effects.finish(columns))))
    }

    /// A table that only appends takes plain rows alone. Anything else is refused here only if a front door let it through.
    fn resolve_appended(&self, batch: &MutationBatch) -> Result<(Outcome, Option<Effects>)> {
        let mut effects = EffectsBuilder::new(&self.schema, batch.tablet());
        for mutation in batch.iter() {
            if mutation.guard.is_some() || !matches!(mutation.op, Op::Put | Op::Insert) {
                return Ok((Outcome::Conflict { key: mutation.key.to_vec() }, None));
            }
            effects.push(mutation.key, Some(mutation.cells));
        }
        let outcome = Outcome::Applied { affected: batch.len() as u64 };
        Ok((outcome, (!effects.is_empty()).then(|| effects.finish(batch.columns().cloned()))))
    }
}

fn is_plain_put(mutation: &Mutation<'_>) -> bool {
    mutation.op == Op::Put && mutation.guard.is_none()
}

/// The states of all keys of a batch, in their order.
fn read_states<'a>(engine: &dyn Engine, batch: &'a MutationBatch) -> Result<Vec<(&'a [u8], State)>> {
    let mut asked: Vec<(&'a [u8], bool)> =
        batch.iter().map(|mutation| (mutation.key, !is_plain_put(&mutation))).collect();
    asked.sort_unstable();
    // Of a key that comes twice the one that is asked for stays.
    asked.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        kept.1 |= is_same && next.1;
        is_same
    });
    let mut states: Vec<(&[u8], State)> =
        asked.iter().map(|(key, is_asked)| (*key, if *is_asked { State::Absent } else { State::NotAsked })).collect();
    let keys: Vec<&[u8]> = asked.iter().filter(|(_, is_asked)| *is_asked).map(|(key, _)| *key).collect();
    let mut rows = engine.multi_get(Space::Rows, &keys)?.into_iter();
    let mut elsewhere = Vec::new();
    for (at, (key, state)) in states.iter_mut().enumerate() {
        if matches!(state, State::NotAsked) {
            continue;
        }
        let Some(row) = rows.next().flatten() else {
            elsewhere.push((at, *key));
            continue;
        };
        let stored = StoredRow::parse(&row)?;
        if stored.kind == RowKind::Live {
            *state = State::Live { cells: row.slice_ref(stored.cells), seqno: stored.seqno };
        }
    }
    let keys: Vec<&[u8]> = elsewhere.iter().map(|(_, key)| *key).collect();
    for ((at, _), address) in elsewhere.iter().zip(engine.multi_get(Space::Addresses, &keys)?) {
        if let Some(bytes) = address {
            states[*at].1 = State::InLake { seqno: Address::decode(&bytes)?.seqno };
        }
    }
    Ok(states)
}
