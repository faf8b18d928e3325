//! What does a table hold for a transaction that wrote into it? The snapshot of a statement, with the transaction's own
//! rows instead of those of the same keys.
//!
//! Its own rows count as recent ones: they are hidden in files and among the recent rows of others, and given out
//! beside them. A range of keys is read piece by piece, between the keys that the transaction wrote.
//!
//! A transaction that altered the table sees other columns than the snapshot has. Cells go by the ids of columns, so
//! rows of either definition are read by the other; batches are put together anew, of the columns that both have and of
//! what a column has in rows that were there before it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use roaring::RoaringBitmap;
use tarn_rows::{HotSnapshot, KeyRange, Lookup, RangeOfRows, RowScan, ScannedRows};
use tarn_types::{Direction, FileId, RowDecoder, TableSchema, encode_keys, prefix_end, projected_schema, table_prefix};

use crate::catalog::altered;
use crate::error::Result;
use crate::own::{OWN_SEQNO, OwnWrites};

/// So many keys are looked up to know which recent rows they can be; of more, the keys of all recent rows are looked
/// at.
const LOOKED_UP: usize = 1024;

/// One moment of a table for one transaction.
pub(crate) struct OwnView {
    rows: Arc<HotSnapshot>,
    own: Arc<OwnWrites>,
    /// The table as the transaction sees it.
    schema: Arc<TableSchema>,
    /// The columns of that, read from `rows`. `None`: both have the same.
    shape: Option<Arc<ColumnMapping>>,
    n_recent: OnceLock<u64>,
}

impl OwnView {
    pub(crate) fn new(rows: Arc<HotSnapshot>, own: Arc<OwnWrites>, schema: Arc<TableSchema>) -> OwnView {
        let is_same = schema.has_columns_of(rows.schema());
        let shape = (!is_same).then(|| Arc::new(ColumnMapping::new(rows.schema(), &schema)));
        OwnView { rows, own, schema, shape, n_recent: OnceLock::new() }
    }

    /// Without the transaction's writes.
    pub(crate) fn rows(&self) -> &Arc<HotSnapshot> {
        &self.rows
    }

    pub(crate) fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    pub(crate) fn recent_rows(&self) -> Result<u64> {
        if let Some(known) = self.n_recent.get() {
            return Ok(*known);
        }
        let of_others: usize = self.of_others(&[], false)?.iter().map(RecordBatch::num_rows).sum();
        Ok(*self.n_recent.get_or_init(|| of_others as u64 + self.own.n_live()))
    }

    pub(crate) fn recent(&self, projection: Option<&[usize]>, with_seqno: bool) -> Result<Vec<RecordBatch>> {
        let all: Vec<usize> = (0..self.schema().columns.len()).collect();
        let mut batches = self.of_others(projection.unwrap_or(&all), with_seqno)?;
        let mut decoder = RowDecoder::new(self.schema(), projection, with_seqno);
        for (key, cells) in self.own.live() {
            decoder.push(key, cells, OWN_SEQNO)?;
        }
        if !decoder.is_empty() {
            batches.push(decoder.finish()?);
        }
        Ok(batches)
    }

    /// Recent rows whose keys the transaction did not write.
    fn of_others(&self, projection: &[usize], with_seqno: bool) -> Result<Vec<RecordBatch>> {
        let Some(shape) = &self.shape else { return self.of_others_as_they_are(projection, with_seqno) };
        let batches = self.of_others_as_they_are(&shape.read(projection), with_seqno)?;
        batches.into_iter().map(|batch| shape.shown(&batch, projection, with_seqno)).collect()
    }

    /// The same, with columns of the snapshot's definition.
    fn of_others_as_they_are(&self, projection: &[usize], with_seqno: bool) -> Result<Vec<RecordBatch>> {
        let changes = self.changes_of_own_keys()?;
        if changes.as_ref().is_some_and(HashSet::is_empty) {
            return Ok(self.rows.recent(Some(projection), with_seqno)?);
        }
        let mut read = projection.to_vec();
        let key = self.rows.schema().key.iter().map(|part| part.column_idx);
        read.extend(key.filter(|column| !projection.contains(column)));
        // A column that is asked for twice is read twice.
        let wanted: Vec<usize> = (0..projection.len()).chain(with_seqno.then_some(read.len())).collect();
        let mut kept = Vec::new();
        for batch in self.rows.recent(Some(&read), true)? {
            let is_kept = self.is_of_others(&batch, changes.as_ref())?;
            let batch = filter_record_batch(&batch, &is_kept).and_then(|batch| batch.project(&wanted));
            let batch = batch.map_err(arrow_error("leave out rows of a transaction"))?;
            if batch.num_rows() > 0 {
                kept.push(batch);
            }
        }
        Ok(kept)
    }

    /// The changes that wrote what is there at the transaction's keys. `None`: it wrote too many keys to look for each.
    fn changes_of_own_keys(&self) -> Result<Option<HashSet<i64>>> {
        if self.own.keys().len() > LOOKED_UP {
            return Ok(None);
        }
        let mut changes = HashSet::new();
        for key in self.own.keys() {
            if let Lookup::Row { seqno, .. } = self.rows.get(key)? {
                changes.insert(seqno.0 as i64);
            }
        }
        Ok(Some(changes))
    }

    /// Which rows, of the key columns and with `__seqno` last, have keys that the transaction did not write.
    fn is_of_others(&self, batch: &RecordBatch, changes: Option<&HashSet<i64>>) -> Result<BooleanArray> {
        let seqnos = batch.columns().last().and_then(|column| column.as_primitive_opt::<Int64Type>());
        let may_be_own = |row: usize| match (changes, seqnos) {
            (Some(changes), Some(seqnos)) => changes.contains(&seqnos.value(row)),
            _ => true,
        };
        let suspects: BooleanArray = (0..batch.num_rows()).map(|row| Some(may_be_own(row))).collect();
        if suspects.true_count() == 0 {
            return Ok(BooleanArray::from(vec![true; batch.num_rows()]));
        }
        let suspicious = filter_record_batch(batch, &suspects);
        let suspicious = suspicious.map_err(arrow_error("look for rows of a transaction"))?;
        let keys = encode_keys(self.rows.schema(), &suspicious)?;
        let mut at = 0;
        let is_kept = suspects.iter().map(|is_suspect| {
            if is_suspect != Some(true) {
                return Some(true);
            }
            at += 1;
            Some(!self.own.has(keys.get(at - 1)))
        });
        Ok(is_kept.collect())
    }

    pub(crate) fn hidden(&self) -> Result<Arc<BTreeMap<FileId, RoaringBitmap>>> {
        let mut hidden = self.rows.hidden()?;
        let addresses = match self.own.keys().len() {
            0 => Vec::new(),
            _ => self.rows.addresses(self.own.keys())?,
        };
        if !addresses.is_empty() {
            let hidden = Arc::make_mut(&mut hidden);
            for address in addresses {
                hidden.entry(address.file).or_default().insert(address.row);
            }
        }
        Ok(hidden)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Lookup> {
        match self.own.get(key) {
            Some(Some(cells)) => Ok(Lookup::Row { cells: cells.clone(), seqno: OWN_SEQNO }),
            Some(None) => Ok(Lookup::Absent),
            None => Ok(self.rows.get(key)?),
        }
    }

    /// As [`HotSnapshot::scan`], but for `last_key`, which is not told.
    pub(crate) fn scan(&self, wanted: &RangeOfRows) -> OwnScan {
        let table = table_prefix(self.schema().id).to_vec();
        let end_of = |prefix: &[u8]| prefix_end(prefix).unwrap_or_default();
        let (start, end) = match &wanted.range {
            KeyRange::All => (table.clone(), end_of(&table)),
            KeyRange::Prefix(prefix) => (prefix.clone(), end_of(prefix)),
            KeyRange::Range(range) => (range.start.clone(), range.end.clone()),
        };
        let mut steps = VecDeque::new();
        let mut from = start.clone();
        for (key, cells) in self.own.range(&start, &end) {
            steps.push_back(RangeStep::Others(from..key.to_vec()));
            steps.extend(cells.map(|cells| RangeStep::Own(key.clone(), cells.clone())));
            from = [key, &[0][..]].concat();
        }
        steps.push_back(RangeStep::Others(from..end));
        OwnScan {
            rows: Arc::clone(&self.rows),
            schema: Arc::clone(self.schema()),
            shape: self.shape.clone(),
            wanted: wanted.clone(),
            steps,
            reading: None,
            is_done: false,
        }
    }

    pub(crate) fn rows_complete(&self) -> bool {
        self.rows.rows_complete()
    }
}

/// Where the columns of one definition are among those of another, by their ids.
struct ColumnMapping {
    to: Arc<TableSchema>,
    /// Of each column of `to`, its place; `None`: rows that are there do not have it.
    places: Vec<Option<usize>>,
}

impl ColumnMapping {
    fn new(from: &TableSchema, to: &Arc<TableSchema>) -> ColumnMapping {
        let place = |id| from.columns.iter().position(|column| column.id == id);
        ColumnMapping { to: Arc::clone(to), places: to.columns.iter().map(|column| place(column.id)).collect() }
    }

    /// What is read for columns of `to`.
    fn read(&self, projection: &[usize]) -> Vec<usize> {
        projection.iter().filter_map(|column| self.places[*column]).collect()
    }

    /// The columns of `to`, of a batch of what was read for them.
    ///
    /// Errors: `Conflict` for a NULL that is not allowed any more: who altered the table looked, and it came since.
    fn shown(&self, batch: &RecordBatch, projection: &[usize], with_seqno: bool) -> Result<RecordBatch> {
        let mut read = batch.columns().iter();
        let column = |column: &usize| -> Result<Option<ArrayRef>> {
            match self.places[*column] {
                Some(_) => Ok(read.next().cloned()),
                // Rows without it may have NULL that is not allowed any more, as above.
                None => Ok(self.to.missing_column(*column, batch.num_rows()).ok()),
            }
        };
        let columns = projection.iter().map(column).collect::<Result<Option<Vec<ArrayRef>>>>()?;
        let columns = columns.into_iter().flatten().chain(batch.columns().last().filter(|_| with_seqno).cloned());
        let schema = projected_schema(&self.to, projection, with_seqno);
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let shown = RecordBatch::try_new_with_options(schema, columns.collect(), &options);
        shown.map_err(|_| altered(&self.to.name))
    }
}

/// A part of a range of keys.
enum RangeStep {
    /// Keys that the transaction did not write.
    Others(std::ops::Range<Vec<u8>>),
    /// A row of its own.
    Own(Bytes, Bytes),
}

/// The batches of a scan.
pub(crate) struct OwnScan {
    rows: Arc<HotSnapshot>,
    schema: Arc<TableSchema>,
    shape: Option<Arc<ColumnMapping>>,
    wanted: RangeOfRows,
    /// Not begun yet, ascending.
    steps: VecDeque<RangeStep>,
    reading: Option<RowScan>,
    is_done: bool,
}

impl OwnScan {
    fn next_step(&mut self) -> Option<RangeStep> {
        match self.wanted.direction {
            Direction::Ascending => self.steps.pop_front(),
            Direction::Descending => self.steps.pop_back(),
        }
    }

    /// The columns that are wanted, of the transaction's definition.
    fn projection(&self) -> Vec<usize> {
        self.wanted.projection.clone().unwrap_or_else(|| (0..self.schema.columns.len()).collect())
    }

    /// Rows of others, as the transaction sees them.
    fn shown(&self, read: ScannedRows) -> Result<ScannedRows> {
        let rows = match &self.shape {
            Some(shape) => shape.shown(&read.rows, &self.projection(), self.wanted.with_seqno)?,
            None => read.rows,
        };
        Ok(ScannedRows { rows, last_key: None, evicted: read.evicted })
    }

    /// The next batch: of others, or of own rows that lie side by side.
    fn read(&mut self) -> Result<Option<ScannedRows>> {
        let mut own = RowDecoder::new(&self.schema, self.wanted.projection.as_deref(), self.wanted.with_seqno);
        loop {
            if let Some(reading) = &mut self.reading {
                if let Some(batch) = reading.next() {
                    return Ok(Some(self.shown(batch?)?));
                }
                self.reading = None;
            }
            if own.len() >= self.wanted.batch_rows.max(1) {
                return Ok(Some(scanned(own.finish()?)));
            }
            match self.next_step() {
                Some(RangeStep::Own(key, cells)) => own.push(&key, &cells, OWN_SEQNO)?,
                Some(RangeStep::Others(range)) if range.start >= range.end => {}
                Some(RangeStep::Others(range)) => {
                    let mut wanted = RangeOfRows { range: KeyRange::Range(range.clone()), ..self.wanted.clone() };
                    if let Some(shape) = &self.shape {
                        wanted.projection = Some(shape.read(&self.projection()));
                    }
                    let mut others = self.rows.scan(&wanted)?;
                    match others.next() {
                        None => {}
                        // Own rows come before these.
                        Some(first) if !own.is_empty() => {
                            self.reading = Some(others);
                            let first = self.shown(first?)?;
                            return Ok(Some(before(scanned(own.finish()?), first)?));
                        }
                        Some(first) => {
                            self.reading = Some(others);
                            return Ok(Some(self.shown(first?)?));
                        }
                    }
                }
                None if own.is_empty() => return Ok(None),
                None => return Ok(Some(scanned(own.finish()?))),
            }
        }
    }
}

fn arrow_error(context: &'static str) -> impl FnOnce(ArrowError) -> tarn_types::Error {
    move |source| tarn_types::Error::Arrow { context, source }
}

fn scanned(rows: RecordBatch) -> ScannedRows {
    ScannedRows { rows, evicted: Vec::new(), last_key: None }
}

/// Own rows, and those of others behind them, as one batch.
fn before(own: ScannedRows, others: ScannedRows) -> Result<ScannedRows> {
    let n_own = own.rows.num_rows();
    let rows = arrow::compute::concat_batches(&own.rows.schema(), [&own.rows, &others.rows]);
    let rows = rows.map_err(arrow_error("put rows of a transaction before others"))?;
    let evicted = others.evicted.into_iter().map(|(place, address)| (place + n_own, address)).collect();
    Ok(ScannedRows { rows, evicted, last_key: None })
}

impl Iterator for OwnScan {
    type Item = Result<ScannedRows>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let batch = self.read();
        self.is_done = !matches!(batch, Ok(Some(_)));
        batch.transpose()
    }
}
