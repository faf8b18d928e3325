//! What has a range of keys? Whole rows, wherever they lie, some at a time: in the order of their keys or against it.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use tarn_metastore::compare;
use tarn_metastore::prune::{Operator, Predicate};
use tarn_rows::{HotSnapshot, KeyRange, RangeOfRows, ScannedRows};
use tarn_types::{DataType, Direction, SeqNo, TableSchema, Value, encode_key, prefix_end, table_prefix};

use crate::auth::{Principal, Privilege};
use crate::catalog::TableHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::tables::{Row, TableService};
use crate::threads::blocking;

/// Rows that one request looks at, at most: who asks for what few rows have is told how far it came.
const MAX_EXAMINED: usize = 8_192;

/// Rows that a filter may drop for each one that is wanted, before a response ends.
const EXAMINED_PER_ROW: usize = 16;

/// Rows that a request with a filter looks at, at least.
const MIN_EXAMINED: usize = 1_024;

/// Which rows, and what of them?
#[derive(Debug, Clone)]
pub struct ScanRequest {
    /// Of these engine keys.
    pub range: Range<Vec<u8>>,
    /// Which of them come first.
    pub direction: Direction,
    /// Rows of a response, at most; at least one.
    pub limit: usize,
    /// Positions of the columns that are wanted, in the order wanted. `None`: all.
    pub columns: Option<Vec<usize>>,
    /// What is true of every row that is wanted.
    pub filter: Vec<Predicate>,
}

impl ScanRequest {
    /// All columns of all rows of a table, the least key first, so many at a time.
    pub fn all(table: &TableSchema, limit: usize) -> ScanRequest {
        let start = table_prefix(table.id).to_vec();
        let end = prefix_end(&start).unwrap_or_default();
        ScanRequest { range: start..end, direction: Direction::Ascending, limit, columns: None, filter: vec![] }
    }
}

/// Some rows of a range.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanResponse {
    /// Their values are of the columns that were wanted.
    pub rows: Vec<Row>,
    /// The keys that were not looked at: the range to ask for next. `None`: that was all.
    pub rest: Option<Range<Vec<u8>>>,
}

impl TableService {
    /// The first rows of a range, all of one moment; what is asked of the rest is of a later one. They end at the
    /// limit, and before it after a few megabytes, some hundred evicted rows, or many rows that a filter dropped: a
    /// response with few rows, or none, need not be the last.
    ///
    /// Cost: a run of the row engine; where rows were evicted, all columns of theirs from the lake's files, too.
    /// Errors: `Denied`; `NoColumn`; `Invalid` for a limit of 0 or a filter that does not fit its column; `WrongObject`
    /// for append-only tables, whose rows have no keys of their own.
    pub async fn scan(&self, who: &Principal, table: &TableHandle, request: &ScanRequest) -> Result<ScanResponse> {
        let schema = table.schema();
        self.may(who, schema, Privilege::Select)?;
        let wanted = ResolvedScan::of(schema, request)?;
        let snapshot = table.table.snapshot()?;
        let (rows, asked) = (Arc::clone(&snapshot), wanted.asked(request));
        let batch = blocking(move || Ok(rows.scan(&asked)?.next().transpose()?)).await?;
        let Some(batch) = batch else { return Ok(ScanResponse { rows: vec![], rest: None }) };
        let evicted = self.evicted(schema, &snapshot, &batch).await?;
        wanted.response(request, &batch, evicted)
    }

    /// The rows of a batch that lie in the lake, in their order: all their columns.
    async fn evicted(&self, table: &TableSchema, at: &HotSnapshot, batch: &ScannedRows) -> Result<Vec<Vec<Value>>> {
        if batch.evicted.is_empty() {
            return Ok(vec![]);
        }
        let addresses: Vec<_> = batch.evicted.iter().map(|(_, address)| *address).collect();
        // The snapshot keeps the files of its version.
        let lake = self.parts.lake_version(table, at.version()).await?;
        Box::pin(self.parts.fetch(table, &lake, &addresses)).await
    }
}

/// What a request comes to for its table.
struct ResolvedScan<'a> {
    table: &'a TableSchema,
    /// Positions of columns that are given.
    given: Vec<usize>,
    /// Each condition, and the position of its column.
    filter: Vec<(usize, &'a Predicate)>,
    /// Positions of columns that are read, ascending.
    read: Vec<usize>,
}

impl<'a> ResolvedScan<'a> {
    fn of(table: &'a TableSchema, request: &'a ScanRequest) -> Result<ResolvedScan<'a>> {
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        if request.limit == 0 {
            return invalid(format!("a scan of table \"{}\" asks for 0 rows at a time", table.name));
        }
        if table.options.append_only {
            let message = format!("table \"{}\" is append-only: its rows have no keys of their own", table.name);
            return Err(Error::new(ErrorKind::WrongObject, message).with_hint("read it with SELECT"));
        }
        let n_columns = table.columns.len();
        let given = request.columns.clone().unwrap_or_else(|| (0..n_columns).collect());
        if let Some(beyond) = given.iter().find(|at| **at >= n_columns) {
            return Err(Error::no_column(&table.name, &format!("number {beyond}")));
        }
        let mut filter = vec![];
        for predicate in &request.filter {
            let at = table.columns.iter().position(|column| column.id == predicate.column);
            let at = at.ok_or_else(|| Error::no_column(&table.name, &format!("id {}", predicate.column)))?;
            let column = &table.columns[at];
            if !fits(predicate, &column.data_type) {
                return invalid(format!(
                    "a filter of column \"{}\" does not fit its type, {}",
                    column.name, column.data_type
                ));
            }
            filter.push((at, predicate));
        }
        // Where a response ends behind a row that the filter let through, the next one begins at its key.
        let keys = table.key.iter().map(|part| part.column_idx).filter(|_| !filter.is_empty());
        let read: BTreeSet<usize> = given.iter().copied().chain(filter.iter().map(|(at, _)| *at)).chain(keys).collect();
        Ok(ResolvedScan { table, given, filter, read: read.into_iter().collect() })
    }

    fn asked(&self, request: &ScanRequest) -> RangeOfRows {
        let batch_rows = match self.filter.is_empty() {
            true => request.limit,
            false => request.limit.saturating_mul(EXAMINED_PER_ROW).max(MIN_EXAMINED),
        };
        RangeOfRows {
            range: KeyRange::Range(request.range.clone()),
            direction: request.direction,
            projection: Some(self.read.clone()),
            with_seqno: true,
            batch_rows: batch_rows.min(MAX_EXAMINED),
        }
    }

    fn response(&self, request: &ScanRequest, batch: &ScannedRows, evicted: Vec<Vec<Value>>) -> Result<ScanResponse> {
        let rest = |key: &[u8]| match request.direction {
            Direction::Ascending => [key, &[0]].concat()..request.range.end.clone(),
            Direction::Descending => request.range.start.clone()..key.to_vec(),
        };
        let mut rows = vec![];
        let mut evicted = batch.evicted.iter().zip(evicted).peekable();
        let n_rows = batch.rows.num_rows() + batch.evicted.len();
        let mut next_hot = 0;
        for place in 0..n_rows {
            let row = match evicted.next_if(|((at, _), _)| *at == place) {
                Some(((_, address), values)) => Row { values, seqno: address.seqno },
                None => {
                    next_hot += 1;
                    self.decoded(batch, next_hot - 1)?
                }
            };
            if !self.filter.iter().all(|(at, predicate)| predicate.keeps(&row.values[*at])) {
                continue;
            }
            if rows.len() + 1 == request.limit && place + 1 < n_rows {
                let key = self.key(&row)?;
                rows.push(self.given(row));
                return Ok(ScanResponse { rows, rest: Some(rest(&key)) });
            }
            rows.push(self.given(row));
        }
        Ok(ScanResponse { rows, rest: batch.last_key.as_deref().map(rest) })
    }

    /// A row of the engine: a value for each column of the table, NULL for those that are not read.
    fn decoded(&self, batch: &ScannedRows, row: usize) -> Result<Row> {
        let mut values = vec![Value::Null; self.table.columns.len()];
        for (array, at) in batch.rows.columns().iter().zip(&self.read) {
            values[*at] = Value::from_arrow(array.as_ref(), row, &self.table.columns[*at].data_type)?;
        }
        let seqno = batch.rows.columns().last().map(|array| Value::from_arrow(array.as_ref(), row, &DataType::Int64));
        match seqno.transpose()? {
            Some(Value::Int64(seqno)) => Ok(Row { values, seqno: SeqNo(seqno as u64) }),
            _ => Err(Error::new(ErrorKind::Internal, "a row was read without its change")),
        }
    }

    fn key(&self, row: &Row) -> Result<Vec<u8>> {
        let parts: Vec<Value> = self.table.key.iter().map(|part| row.values[part.column_idx].clone()).collect();
        Ok(encode_key(self.table, &parts)?)
    }

    fn given(&self, Row { values, seqno }: Row) -> Row {
        Row { values: self.given.iter().map(|at| values[*at].clone()).collect(), seqno }
    }
}

/// Whether its values may be compared with those of a column, and are as many as its operator takes.
fn fits(predicate: &Predicate, data_type: &DataType) -> bool {
    let takes = match predicate.op {
        Operator::IsNull | Operator::IsNotNull => 0..=0,
        Operator::In => 0..=usize::MAX,
        Operator::Eq | Operator::Lt | Operator::Le | Operator::Gt | Operator::Ge => 1..=1,
    };
    // A value that is another one in the column's type says nothing about the column.
    let is_of_type = |value: &Value| {
        let same = value.clone().coerce(data_type).ok().and_then(|coerced| compare(&coerced, value));
        value.is_null() || same == Some(Ordering::Equal)
    };
    takes.contains(&predicate.values.len()) && predicate.values.iter().all(is_of_type)
}
