//! What does a batch come to, given what is there and what is under way? Reads, decides, writes nothing.
//!
//! The leader of a tablet asks this before the log: so every batch is decided against all those before it, applied or
//! not, and the log holds what happened, not what was asked. In two steps: [`Table::look_up`] reads the rows, at any
//! time before; [`Table::resolve`] decides, under the lock by which the batch gets its place, with what was applied or
//! submitted since. A plain Put needs no reading. For everything else the key's state is read once for the whole batch,
//! in key order, and then followed through the batch, so that a later mutation sees an earlier one.

use arrow::array::BooleanArray;
use arrow::compute::filter_record_batch;
use bytes::Bytes;
use tarn_types::{
    Address, Effects, EffectsBuilder, MutationBatch, Op, RowKind, SeqNo, StoredRow, TabletId, patch_cells,
};

use crate::engine::{Engine, Space};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::under_way::{UnderWay, UpcomingRow};

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was applied.
    Applied {
        /// Puts, inserted rows, and patched or deleted rows that were there.
        affected: u64,
    },
    /// A guard failed, or the table cannot take such a mutation: nothing of the batch happened. Read again and propose
    /// anew.
    Conflict {
        /// The key whose guard failed.
        key: Vec<u8>,
    },
    /// A row that was to be created is there, in the rows or in the lake, or the batch creates it twice: nothing of the
    /// batch happened.
    Exists {
        /// The key of the row.
        key: Vec<u8>,
    },
    /// A patched row lies in the lake alone: nothing of the batch happened. Read it there, and propose a whole Put
    /// guarded with its seqno.
    NeedsBase {
        /// The key of the row.
        key: Vec<u8>,
    },
}

#[derive(Debug)]
enum RowState {
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

/// What is known of a batch before it gets its place.
#[derive(Debug)]
pub struct BatchReads<'a> {
    tablet: TabletId,
    batch: &'a MutationBatch,
    depends: BatchDependency<'a>,
}

/// On what does it depend?
#[derive(Debug)]
enum BatchDependency<'a> {
    /// On nothing: plain rows, which are their own effects.
    Nothing(Effects),
    /// On nothing, but what is asked must be what such a table takes.
    AppendOnly,
    /// On the rows. Entries up to `since` were applied when they were read; `states` is by key.
    Rows { since: SeqNo, states: Vec<(&'a [u8], RowState)> },
}

impl RowState {
    fn seqno(&self) -> Option<SeqNo> {
        match self {
            Self::NotAsked | Self::Absent => None,
            Self::Live { seqno, .. } | Self::InLake { seqno } => Some(*seqno),
        }
    }
}

impl From<UpcomingRow> for RowState {
    fn from(UpcomingRow { seqno, cells }: UpcomingRow) -> Self {
        cells.map_or(Self::Absent, |cells| Self::Live { cells, seqno })
    }
}

impl Table {
    /// Reads what is there at the keys of a batch for `tablet`, where something depends on it. `since`: an entry of it
    /// that was applied before.
    ///
    /// Cost: one read of the engine for all keys that something is asked of; none for plain rows.
    pub fn look_up<'a>(&self, tablet: TabletId, batch: &'a MutationBatch, since: SeqNo) -> Result<BatchReads<'a>> {
        self.check_serving()?;
        if batch.table() != self.base.id {
            return Err(Error::NotOurs { table: self.base.schema().name.clone(), tablet });
        }
        let depends = match Effects::of_rows(batch) {
            Some(rows) => BatchDependency::Nothing(rows),
            None if self.base.append_only => BatchDependency::AppendOnly,
            None => BatchDependency::Rows { since, states: read_states(&*self.base.engine, batch)? },
        };
        Ok(BatchReads { tablet, batch, depends })
    }

    /// Decides a batch that would be entry `seqno` of its tablet, behind all those that are applied or in `under_way`.
    /// Answers what becomes of it, and what to log; `None`: nothing is changed, and nothing is logged.
    ///
    /// Cost: no read, unless so much was applied since [`Table::look_up`] that `under_way` does not tell it any more.
    /// Errors: [`Error::Elsewhere`] for keys that are another tablet's, or will be by a split that is under way: cut
    /// the batch anew.
    pub fn resolve(
        &self,
        seqno: SeqNo,
        known: BatchReads<'_>,
        under_way: &UnderWay,
    ) -> Result<(Outcome, Option<Effects>)> {
        let BatchReads { tablet, batch, depends } = known;
        self.check_range(tablet, batch, under_way)?;
        let (since, mut states) = match depends {
            BatchDependency::Nothing(rows) => {
                let affected = rows.len() as u64;
                return Ok((Outcome::Applied { affected }, Some(rows).filter(|rows| !rows.is_empty())));
            }
            BatchDependency::AppendOnly => return self.resolve_appended(batch),
            BatchDependency::Rows { since, .. } if since < under_way.forgotten() => {
                (under_way.forgotten(), read_states(&*self.base.engine, batch)?)
            }
            BatchDependency::Rows { since, states } => (since, states),
        };
        for (key, state) in &mut states {
            if let Some(coming) = under_way.latest(key, since) {
                *state = RowState::from(coming);
            }
        }
        let mut effects = EffectsBuilder::new(&self.base.schema());
        let (mut affected, mut had_effect) = (0, Vec::with_capacity(batch.len()));
        let mut next = 0;
        for mutation in batch.iter() {
            // Bulk data come in the order of their keys, or in long runs of it.
            let at = match states.get(next) {
                Some((key, _)) if *key == mutation.key => Ok(next),
                _ => states.binary_search_by_key(&mutation.key, |(key, _)| *key),
            };
            let at = at.expect("all keys of the batch are there");
            next = at + 1;
            let state = &mut states[at].1;
            if mutation.guard.is_some() && mutation.guard != state.seqno() {
                return Ok((Outcome::Conflict { key: mutation.key.to_vec() }, None));
            }
            let after = match (mutation.op, &*state) {
                (Op::Put, _) | (Op::Insert | Op::Create, RowState::Absent) => {
                    Some(Some(batch.as_bytes().slice_ref(mutation.cells)))
                }
                (Op::Create, _) => return Ok((Outcome::Exists { key: mutation.key.to_vec() }, None)),
                (Op::Insert, _) | (Op::Patch | Op::Delete, RowState::NotAsked | RowState::Absent) => None,
                (Op::Patch, RowState::Live { cells, .. }) => Some(Some(patch_cells(cells, mutation.cells)?.into())),
                (Op::Patch, RowState::InLake { .. }) => {
                    return Ok((Outcome::NeedsBase { key: mutation.key.to_vec() }, None));
                }
                (Op::Delete, _) => Some(None),
            };
            had_effect.push(after.is_some());
            let Some(after) = after else { continue };
            affected += 1;
            effects.push(mutation.key, after.as_deref());
            *state = after.map_or(RowState::Absent, |cells| RowState::Live { cells, seqno });
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

    /// No key of the batch is outside of its tablet, or will be.
    fn check_range(&self, tablet: TabletId, batch: &MutationBatch, under_way: &UnderWay) -> Result<()> {
        let tablets = self.tablets();
        let elsewhere = || Err(Error::Elsewhere { table: self.base.schema().name.clone(), tablet });
        let Some(range) = tablets.map.range(tablet) else { return elsewhere() };
        let ends_at = under_way.ends_at();
        // The whole table is one tablet, and stays so.
        if tablets.map.len() == 1 && ends_at.is_none() {
            return Ok(());
        }
        let end = ends_at.map_or(range.end, |at| at.min(range.end));
        let is_inside = batch.iter().all(|mutation| range.start <= mutation.key && mutation.key < end);
        if is_inside { Ok(()) } else { elsewhere() }
    }

    /// A table that only appends takes plain rows alone. Anything else is refused here only if a front door let it
    /// through.
    fn resolve_appended(&self, batch: &MutationBatch) -> Result<(Outcome, Option<Effects>)> {
        let mut effects = EffectsBuilder::new(&self.base.schema());
        for mutation in batch.iter() {
            if mutation.guard.is_some() || !matches!(mutation.op, Op::Put | Op::Insert | Op::Create) {
                return Ok((Outcome::Conflict { key: mutation.key.to_vec() }, None));
            }
            effects.push(mutation.key, Some(mutation.cells));
        }
        let outcome = Outcome::Applied { affected: batch.len() as u64 };
        Ok((outcome, (!effects.is_empty()).then(|| effects.finish(batch.columns().cloned()))))
    }
}

/// The states of all keys of a batch, in their order.
fn read_states<'a>(engine: &dyn Engine, batch: &'a MutationBatch) -> Result<Vec<(&'a [u8], RowState)>> {
    let mut asked: Vec<(&'a [u8], bool)> =
        batch.iter().map(|mutation| (mutation.key, !mutation.is_plain_row())).collect();
    asked.sort_unstable();
    // Of a key that comes twice the one that is asked for stays.
    asked.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        kept.1 |= is_same && next.1;
        is_same
    });
    let mut states: Vec<(&[u8], RowState)> = asked
        .iter()
        .map(|(key, is_asked)| (*key, if *is_asked { RowState::Absent } else { RowState::NotAsked }))
        .collect();
    let keys: Vec<&[u8]> = asked.iter().filter(|(_, is_asked)| *is_asked).map(|(key, _)| *key).collect();
    let mut rows = engine.multi_get(Space::Rows, &keys)?.into_iter();
    let mut elsewhere = Vec::new();
    for (at, (key, state)) in states.iter_mut().enumerate() {
        if matches!(state, RowState::NotAsked) {
            continue;
        }
        let Some(row) = rows.next().flatten() else {
            elsewhere.push((at, *key));
            continue;
        };
        let stored = StoredRow::parse(&row)?;
        if stored.kind == RowKind::Live {
            *state = RowState::Live { cells: row.slice_ref(stored.cells), seqno: stored.seqno };
        }
    }
    let keys: Vec<&[u8]> = elsewhere.iter().map(|(_, key)| *key).collect();
    for ((at, _), address) in elsewhere.iter().zip(engine.multi_get(Space::Addresses, &keys)?) {
        if let Some(bytes) = address {
            states[*at].1 = RowState::InLake { seqno: Address::decode(&bytes)?.seqno };
        }
    }
    Ok(states)
}
