//! What did a transaction write into one table, that nobody else sees before COMMIT?
//!
//! By key, what came of all its writes: a whole row, or that it is gone; and what was there when the transaction first
//! wrote the key, which has to be there still when it commits. Rows of append-only tables have no keys of their own and
//! are kept as they came.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tarn_types::{BatchBuilder, MutationBatch, Op, SeqNo, TableSchema};

use crate::error::{Error, ErrorKind, Result};

/// The change number of a row that is not committed: later than all others. What builds on such a row is guarded by
/// what was there before it.
pub const OWN_SEQNO: SeqNo = SeqNo(i64::MAX as u64);

/// See the module. Cheap to clone where little was written.
#[derive(Debug, Clone)]
pub struct OwnWrites {
    schema: Arc<TableSchema>,
    rows: BTreeMap<Bytes, OwnRow>,
    /// Of an append-only table, in the order in which they came.
    appended: Vec<MutationBatch>,
    /// How many batches came, without those of rows that are only locked.
    n_changes: u64,
}

#[derive(Debug, Clone)]
struct OwnRow {
    expects: ExpectedRow,
    /// `None`: the row is gone.
    cells: Option<Bytes>,
    /// The number of the batch that changed it last; 0: it is only locked.
    changed: u64,
}

/// What has to be there when the transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedRow {
    Anything,
    Nothing,
    /// The row that this change wrote.
    Row(SeqNo),
}

impl OwnWrites {
    /// Of a transaction that wrote nothing into the table yet.
    #[must_use]
    pub fn new(schema: Arc<TableSchema>) -> OwnWrites {
        OwnWrites { schema, rows: BTreeMap::new(), appended: Vec::new(), n_changes: 0 }
    }

    /// The table as it was when the transaction first wrote it.
    #[must_use]
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// Takes whole rows and deletions, in order. A guard counts where the transaction did not write the key before.
    /// `Create` is of a key that was not there when somebody looked.
    ///
    /// # Errors
    /// `Internal` for an operation that depends on what is there: who asks for it has to look first.
    pub fn add(&mut self, batch: &MutationBatch) -> Result<()> {
        self.n_changes += 1;
        if self.schema.options.append_only {
            self.appended.push(batch.clone());
            return Ok(());
        }
        self.take(batch, Some(self.n_changes))
    }

    /// As [`OwnWrites::add`], of rows that are written as they are, so that nobody else changes them.
    ///
    /// # Errors
    /// As of [`OwnWrites::add`].
    pub fn lock(&mut self, batch: &MutationBatch) -> Result<()> {
        self.take(batch, None)
    }

    /// How many batches changed rows so far.
    #[must_use]
    pub fn n_changes(&self) -> u64 {
        self.n_changes
    }

    /// Whether a row was changed behind the first `n_changes` batches.
    #[must_use]
    pub fn is_changed_since(&self, key: &[u8], n_changes: u64) -> bool {
        self.rows.get(key).is_some_and(|row| row.changed > n_changes)
    }

    fn take(&mut self, batch: &MutationBatch, number: Option<u64>) -> Result<()> {
        for mutation in batch.iter() {
            let expects = match (mutation.op, mutation.guard) {
                (Op::Put | Op::Delete, Some(seqno)) => ExpectedRow::Row(seqno),
                (Op::Put | Op::Delete, None) => ExpectedRow::Anything,
                (Op::Create, _) => ExpectedRow::Nothing,
                (Op::Insert | Op::Patch, _) => {
                    let message = format!("{:?} of a transaction was not made a whole row", mutation.op);
                    return Err(Error::new(ErrorKind::Internal, message));
                }
            };
            let cells = (mutation.op != Op::Delete).then(|| batch.as_bytes().slice_ref(mutation.cells));
            match self.rows.get_mut(mutation.key) {
                Some(row) => {
                    row.cells = cells;
                    row.changed = number.unwrap_or(row.changed);
                }
                None => {
                    let key = batch.as_bytes().slice_ref(mutation.key);
                    self.rows.insert(key, OwnRow { expects, cells, changed: number.unwrap_or(0) });
                }
            }
        }
        Ok(())
    }

    /// What the transaction made of a key: `None`, nothing; `Some(None)`, the row is gone.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        self.rows.get(key).map(|row| row.cells.as_ref())
    }

    /// The keys it wrote, ascending.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.rows.keys().map(|key| &**key)
    }

    /// Whether it wrote a key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.rows.contains_key(key)
    }

    /// What it made of the keys of a half-open range, ascending.
    pub(crate) fn range<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
    ) -> impl DoubleEndedIterator<Item = (&'a Bytes, Option<&'a Bytes>)> {
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        let within = (start < end).then(|| self.rows.range::<[u8], _>(bounds));
        within.into_iter().flatten().map(|(key, row)| (key, row.cells.as_ref()))
    }

    /// All rows that it wrote and did not delete again: key and cells.
    pub(crate) fn live(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let rows = self.rows.iter().filter_map(|(key, row)| Some((&**key, &**row.cells.as_ref()?)));
        rows.chain(self.appended.iter().flat_map(MutationBatch::iter).map(|mutation| (mutation.key, mutation.cells)))
    }

    /// How many those are.
    pub(crate) fn n_live(&self) -> u64 {
        let appended: usize = self.appended.iter().map(MutationBatch::len).sum();
        (self.rows.values().filter(|row| row.cells.is_some()).count() + appended) as u64
    }

    /// What is to be committed: each key once, with what has to be there.
    #[must_use]
    pub fn batch(&self) -> MutationBatch {
        let mut batch = BatchBuilder::new(&self.schema);
        for (key, row) in &self.rows {
            let guard = match row.expects {
                ExpectedRow::Row(seqno) => Some(seqno),
                ExpectedRow::Anything | ExpectedRow::Nothing => None,
            };
            match (&row.cells, row.expects) {
                (Some(cells), ExpectedRow::Nothing) => batch.create(key, cells),
                (Some(cells), _) => batch.put(key, cells, guard),
                // It came and went.
                (None, ExpectedRow::Nothing) => {}
                (None, _) => batch.delete(key, guard),
            }
        }
        self.appended.iter().flat_map(MutationBatch::iter).for_each(|mutation| batch.push(&mutation));
        batch.finish()
    }
}

#[cfg(test)]
mod tests {
    use tarn_types::{
        Column, ColumnId, DataType, KeyPart, Mutation, TableId, TableOptions, TabletId, Value, encode_cells, encode_key,
    };

    use super::*;

    fn schema() -> Arc<TableSchema> {
        let column = |id, name: &str| Column {
            id: ColumnId(id),
            name: name.into(),
            data_type: DataType::Int64,
            nullable: false,
            default: None,
        };
        Arc::new(TableSchema {
            id: TableId(1),
            name: "t".into(),
            columns: vec![column(1, "id"), column(2, "v")],
            key: vec![KeyPart { column_idx: 0, descending: false }],
            n_partition_key: 1,
            first_tablet: TabletId(1),
            options: TableOptions::default(),
        })
    }

    #[test]
    fn of_a_key_the_first_guard_and_the_last_row_are_committed() {
        let schema = schema();
        let key = |id: i64| encode_key(&schema, &[Value::Int64(id)]).unwrap();
        let cells = |id: i64, v: i64| encode_cells(&schema, &[Value::Int64(id), Value::Int64(v)]).unwrap();
        let mut own = OwnWrites::new(Arc::clone(&schema));
        let mut add = |ops: &dyn Fn(&mut BatchBuilder)| {
            let mut batch = BatchBuilder::new(&schema);
            ops(&mut batch);
            own.add(&batch.finish()).unwrap();
        };
        add(&|batch| {
            batch.put(&key(1), &cells(1, 10), Some(SeqNo(7)));
            batch.delete(&key(2), Some(SeqNo(8)));
            batch.create(&key(3), &cells(3, 30));
            batch.create(&key(4), &cells(4, 40));
            batch.put(&key(5), &cells(5, 50), None);
        });
        add(&|batch| {
            batch.put(&key(1), &cells(1, 11), Some(OWN_SEQNO));
            batch.create(&key(2), &cells(2, 21));
            batch.delete(&key(3), Some(OWN_SEQNO));
            batch.delete(&key(5), Some(OWN_SEQNO));
        });
        let committed = own.batch();
        let committed: Vec<Mutation<'_>> = committed.iter().collect();
        let (one, two, four, five) = (key(1), key(2), key(4), key(5));
        let (of_one, of_two, of_four) = (cells(1, 11), cells(2, 21), cells(4, 40));
        let expected = [
            Mutation { op: Op::Put, key: &one, guard: Some(SeqNo(7)), cells: &of_one },
            Mutation { op: Op::Put, key: &two, guard: Some(SeqNo(8)), cells: &of_two },
            Mutation { op: Op::Create, key: &four, guard: None, cells: &of_four },
            Mutation { op: Op::Delete, key: &five, guard: None, cells: &[] },
        ];
        assert_eq!(committed, expected, "what came and went is in no log");
        assert_eq!(own.get(&key(3)), Some(None));
        assert_eq!(own.get(&key(6)), None);
        assert_eq!((own.keys().len(), own.n_live()), (5, 3));

        let mut batch = BatchBuilder::new(&schema);
        batch.put(&key(1), &cells(1, 11), Some(OWN_SEQNO));
        batch.put(&key(9), &cells(9, 90), Some(SeqNo(9)));
        own.lock(&batch.finish()).unwrap();
        assert_eq!(own.n_changes(), 2);
        let since = |n| [1, 4, 9].map(|id| own.is_changed_since(&key(id), n));
        assert_eq!([since(0), since(1), since(2)], [[true, true, false], [true, false, false], [false; 3]]);
    }
}
