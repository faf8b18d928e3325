//! What did a batch come to? Whole rows and tombstones: what the log, the feed and every replica hold.
//!
//! The bytes are those of a [`MutationBatch`] whose mutations are all a `Put` or a `Delete` without a guard, so that a
//! batch of plain rows is its own effects and is not copied. `docs/formats/entry.md` has the layout.

use arrow::array::RecordBatch;
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::ids::TableId;
use crate::mutation::{BatchBuilder, Mutation, MutationBatch, Op};
use crate::schema::TableSchema;

/// What became of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The engine key.
    pub key: &'a [u8],
    /// All cells of the row that is there now; `None`: the row is gone.
    pub cells: Option<&'a [u8]>,
}

/// The effects of one batch, in order: of a key that comes twice the last counts. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effects(MutationBatch);

impl Effects {
    /// Reads a log entry and checks it whole, as [`MutationBatch::from_bytes`] does.
    ///
    /// # Errors
    /// [`Error::Corrupt`], also for mutations that are no effects.
    pub fn from_bytes(bytes: Bytes) -> Result<Self> {
        let batch = MutationBatch::from_bytes(bytes)?;
        if let Some(other) = batch.iter().find(|mutation| !is_effect(mutation)) {
            return Err(Error::corrupt("effects", format!("{:?} with guard {:?}", other.op, other.guard)));
        }
        Ok(Self(batch))
    }

    /// The batch as it is, if it needs no deciding: plain rows that are written whatever is there.
    #[must_use]
    pub fn of_rows(batch: &MutationBatch) -> Option<Self> {
        batch.iter().all(|mutation| mutation.is_plain_row()).then(|| Self(batch.clone()))
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.0.table()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of the log entry.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    /// The log entry.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        self.0.as_bytes()
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Effect<'_>> + '_ {
        self.0.iter().map(|Mutation { op, key, cells, .. }| Effect { key, cells: (op == Op::Put).then_some(cells) })
    }

    /// The rows as columns, in the storage schema: row i is effect i, none is a tombstone. Only there when the batch
    /// was made from columns; not in the bytes.
    #[must_use]
    pub fn columns(&self) -> Option<&RecordBatch> {
        self.0.columns()
    }
}

fn is_effect(mutation: &Mutation<'_>) -> bool {
    matches!(mutation.op, Op::Put | Op::Delete) && mutation.guard.is_none()
}

/// Makes effects one at a time, as [`BatchBuilder`] makes batches.
pub struct EffectsBuilder(BatchBuilder);

impl EffectsBuilder {
    /// None yet.
    #[must_use]
    pub fn new(schema: &TableSchema) -> Self {
        Self(BatchBuilder::new(schema))
    }

    /// The row of a key is this now; `None`: it is gone.
    pub fn push(&mut self, key: &[u8], cells: Option<&[u8]>) {
        match cells {
            Some(cells) => self.0.put(key, cells, None),
            None => self.0.delete(key, None),
        }
    }

    /// None so far?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The effects; `columns` are their rows, if there are columns of them and no tombstones.
    #[must_use]
    pub fn finish(self, columns: Option<RecordBatch>) -> Effects {
        Effects(self.0.finish_with(columns.map(std::sync::Arc::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::orders;
    use crate::{SeqNo, Value, encode_cells, encode_key};

    #[test]
    fn rows_are_their_own_effects_and_what_must_be_decided_is_none() {
        let schema = orders();
        let row = [Value::Int64(5), Value::Int32(-2), Value::Decimal(1999), Value::Text("hi".into()), Value::Null];
        let (key, cells) = (encode_key(&schema, &row[..2]).unwrap(), encode_cells(&schema, &row).unwrap());
        let batch = |push: &dyn Fn(&mut BatchBuilder)| {
            let mut builder = BatchBuilder::new(&schema);
            push(&mut builder);
            builder.finish()
        };
        let rows = batch(&|builder| builder.put(&key, &cells, None));
        let effects = Effects::of_rows(&rows).unwrap();
        assert_eq!(effects.as_bytes().as_ptr(), rows.as_bytes().as_ptr(), "nothing is copied");
        assert_eq!(effects.iter().collect::<Vec<_>>(), [Effect { key: &key, cells: Some(&cells) }]);

        let mut builder = EffectsBuilder::new(&schema);
        builder.push(&key, Some(&cells));
        builder.push(&key, None);
        let both = builder.finish(None);
        assert_eq!(Effects::from_bytes(both.as_bytes().clone()).unwrap(), both);
        assert_eq!(both.iter().map(|effect| effect.cells.is_some()).collect::<Vec<_>>(), [true, false]);

        let undecided: [&dyn Fn(&mut BatchBuilder); 4] = [
            &|builder| builder.insert(&key, &cells),
            &|builder| builder.put(&key, &cells, Some(SeqNo(1))),
            &|builder| builder.delete(&key, Some(SeqNo(1))),
            &|builder| builder.patch(&key, &cells, None),
        ];
        for push in undecided {
            let batch = batch(push);
            assert!(Effects::of_rows(&batch).is_none());
            assert!(Effects::from_bytes(batch.as_bytes().clone()).is_err(), "{batch:?}");
        }
    }
}
