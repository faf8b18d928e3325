//! Some recent rows, as Arrow columns: a bulk batch as it came, or single rows that are decoded when somebody reads
//! them.
//!
//! Single rows are kept encoded in an arena. A reader decodes what is new since the last reader and leaves the columns
//! behind; when the row set is closed and read to its end, the arena goes. Rows are only ever appended, so a reader
//! that knows a length sees the same rows below it for ever; whether they are alive is in the bitmap beside
//! ([`RowSetView`]).

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use parking_lot::Mutex;
use tarn_types::{RowDecoder, SeqNo, TableSchema};

use super::LiveBitmap;
use crate::error::{Error, Result};

/// More pieces than this are made one.
const MAX_PIECES: usize = 8;

pub(crate) struct RowSet {
    /// Held for appending and copying, never while decoding.
    body: Mutex<Body>,
}

enum Body {
    /// Single rows. `pieces` hold the first `n_decoded` of them, with their seqnos.
    Encoded { rows: EncodedRows, pieces: Vec<RecordBatch>, n_decoded: usize, closed: bool },
    /// All rows of a closed row set, with their seqnos.
    Decoded(RecordBatch),
    /// A bulk batch: the table's columns, one seqno for all.
    Bulk { rows: RecordBatch, seqno: SeqNo },
}

#[derive(Clone, Default)]
struct EncodedRows {
    arena: Vec<u8>,
    entries: Vec<RowEntry>,
}

#[derive(Clone, Copy)]
struct RowEntry {
    start: usize,
    key_len: u32,
    cells_len: u32,
    seqno: SeqNo,
}

impl EncodedRows {
    fn get(&self, row: usize) -> (&[u8], &[u8], SeqNo) {
        let entry = self.entries[row];
        let (key, rest) = self.arena[entry.start..].split_at(entry.key_len as usize);
        (key, &rest[..entry.cells_len as usize], entry.seqno)
    }

    /// The rows from `start` up to `end`.
    fn slice(&self, start: usize, end: usize) -> Self {
        let base = self.entries.get(start).map_or(0, |entry| entry.start);
        let stop = self.entries.get(end).map_or(self.arena.len(), |entry| entry.start);
        let moved = self.entries[start..end].iter().map(|entry| RowEntry { start: entry.start - base, ..*entry });
        Self { arena: self.arena[base..stop].to_vec(), entries: moved.collect() }
    }

    fn decode(&self, schema: &TableSchema) -> Result<RecordBatch> {
        let mut decoder = RowDecoder::new(schema, None, true);
        for row in 0..self.entries.len() {
            let (key, cells, seqno) = self.get(row);
            decoder.push(key, cells, seqno)?;
        }
        Ok(decoder.finish()?)
    }
}

impl Body {
    /// Makes many pieces one, and drops the arena when nothing will be decoded any more.
    fn join(&mut self, schema: &TableSchema) -> Result<()> {
        let Self::Encoded { rows, pieces, n_decoded, closed } = self else {
            return Ok(());
        };
        let complete = *closed && *n_decoded == rows.entries.len();
        if complete || pieces.len() > MAX_PIECES {
            let whole =
                concat_batches(&schema.arrow_with_seqno(), pieces.iter()).map_err(Error::arrow("join recent rows"))?;
            *pieces = vec![whole.clone()];
            if complete {
                *self = Self::Decoded(whole);
            }
        }
        Ok(())
    }
}

impl RowSet {
    /// For single rows.
    pub(crate) fn open() -> Self {
        let body = Body::Encoded { rows: EncodedRows::default(), pieces: Vec::new(), n_decoded: 0, closed: false };
        Self { body: Mutex::new(body) }
    }

    /// A bulk batch in the table's storage schema.
    pub(crate) fn bulk(rows: RecordBatch, seqno: SeqNo) -> Self {
        Self { body: Mutex::new(Body::Bulk { rows, seqno }) }
    }

    /// Appends a row to an open row set.
    pub(crate) fn push(&self, key: &[u8], cells: &[u8], seqno: SeqNo) {
        let mut body = self.body.lock();
        let Body::Encoded { rows, closed: false, .. } = &mut *body else {
            unreachable!("rows are appended to open sets only");
        };
        let entry =
            RowEntry { start: rows.arena.len(), key_len: key.len() as u32, cells_len: cells.len() as u32, seqno };
        rows.arena.extend_from_slice(key);
        rows.arena.extend_from_slice(cells);
        rows.entries.push(entry);
    }

    /// No more rows will come.
    pub(crate) fn close(&self) {
        if let Body::Encoded { closed, .. } = &mut *self.body.lock() {
            *closed = true;
        }
    }

    /// The bytes that a row takes in an open row set.
    pub(crate) fn row_bytes(key: &[u8], cells: &[u8]) -> usize {
        key.len() + cells.len() + size_of::<RowEntry>()
    }

    /// The first `n_rows` rows in pieces, projected to `projection` of the table's columns, `__seqno` last when asked
    /// for.
    fn columns(
        &self,
        schema: &TableSchema,
        n_rows: usize,
        projection: Option<&[usize]>,
        with_seqno: bool,
    ) -> Result<Vec<RecordBatch>> {
        let pieces = self.pieces(schema, n_rows)?;
        let n_columns = schema.columns.len();
        let mut wanted: Vec<usize> = projection.map_or_else(|| (0..n_columns).collect(), <[usize]>::to_vec);
        if with_seqno {
            wanted.push(n_columns);
        }
        let project = |piece: RowBatch| piece.project(schema, &wanted);
        pieces.into_iter().map(project).collect()
    }

    /// The first `n_rows` rows in pieces, all columns of the table.
    pub(crate) fn whole(&self, schema: &TableSchema, n_rows: usize) -> Result<Vec<RecordBatch>> {
        self.columns(schema, n_rows, None, false)
    }

    fn pieces(&self, schema: &TableSchema, n_rows: usize) -> Result<Vec<RowBatch>> {
        let mut body = self.body.lock();
        body.join(schema)?;
        let (undecoded, from) = match &*body {
            Body::Bulk { rows, seqno } => {
                return Ok(vec![RowBatch { rows: rows.slice(0, n_rows), seqno: Some(*seqno) }]);
            }
            Body::Decoded(rows) => return Ok(vec![RowBatch { rows: rows.slice(0, n_rows), seqno: None }]),
            Body::Encoded { pieces, n_decoded, .. } if *n_decoded >= n_rows => return Ok(cut(pieces, n_rows)),
            Body::Encoded { rows, n_decoded, .. } => (rows.slice(*n_decoded, n_rows), *n_decoded),
        };
        drop(body);
        let decoded = undecoded.decode(schema)?;
        let mut body = self.body.lock();
        // Another reader may have been faster; then this one's work is lost, and nothing else.
        if let Body::Encoded { pieces, n_decoded, .. } = &mut *body
            && *n_decoded == from
        {
            pieces.push(decoded);
            *n_decoded = n_rows;
        }
        drop(body);
        self.pieces(schema, n_rows)
    }
}

/// Rows with their seqnos: a last column, or one for all.
struct RowBatch {
    rows: RecordBatch,
    seqno: Option<SeqNo>,
}

impl RowBatch {
    fn project(self, schema: &TableSchema, wanted: &[usize]) -> Result<RecordBatch> {
        let context = "project recent rows";
        let seqno_idx = schema.columns.len();
        let rows = match self.seqno {
            Some(seqno) if wanted.contains(&seqno_idx) => {
                let mut columns = self.rows.columns().to_vec();
                let seqnos: ArrayRef = Arc::new(Int64Array::from_value(seqno.0 as i64, self.rows.num_rows()));
                columns.push(seqnos);
                RecordBatch::try_new(schema.arrow_with_seqno(), columns).map_err(Error::arrow(context))?
            }
            _ => self.rows,
        };
        rows.project(wanted).map_err(Error::arrow(context))
    }
}

/// The first `n_rows` rows of decoded pieces.
fn cut(pieces: &[RecordBatch], n_rows: usize) -> Vec<RowBatch> {
    let mut left = n_rows;
    let mut found = Vec::new();
    for piece in pieces {
        let n = left.min(piece.num_rows());
        if n > 0 {
            found.push(RowBatch { rows: piece.slice(0, n), seqno: None });
        }
        left -= n;
    }
    found
}

/// A row set up to some row, with which of its rows are alive.
#[derive(Clone)]
pub(crate) struct RowSetView {
    pub(crate) set: Arc<RowSet>,
    pub(crate) live: Arc<LiveBitmap>,
}

impl RowSetView {
    /// The live rows, none of the batches empty.
    pub(crate) fn live_rows(
        &self,
        schema: &TableSchema,
        projection: Option<&[usize]>,
        with_seqno: bool,
    ) -> Result<Vec<RecordBatch>> {
        if self.live.n_live() == 0 {
            return Ok(Vec::new());
        }
        let pieces = self.set.columns(schema, self.live.len(), projection, with_seqno)?;
        if self.live.n_live() == self.live.len() {
            return Ok(pieces);
        }
        let mask = self.live.mask();
        let mut first = 0;
        let mut found = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let alive = mask.slice(first, piece.num_rows());
            first += piece.num_rows();
            let filtered = filter_record_batch(&piece, &alive).map_err(Error::arrow("filter recent rows"))?;
            if filtered.num_rows() > 0 {
                found.push(filtered);
            }
        }
        Ok(found)
    }
}
