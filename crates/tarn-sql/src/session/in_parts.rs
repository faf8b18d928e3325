//! A statement that changes many rows: how much of it is one write, how often is that tried, and what stays when it
//! fails half-way?

use datafusion::arrow::array::{AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::record_batch::RecordBatch;
use tarn_types::SeqNo;

use crate::error::{Result, SqlError, state};

/// How often rows that changed while they were read are read again.
pub(super) const MAX_ROUNDS: usize = 10;

/// Mutations of one log entry of an UPDATE or DELETE.
pub(super) const MAX_BATCH_ROWS: usize = 16_384;

/// Bytes of mutations one UPDATE or DELETE may gather before it writes.
pub(super) const MAX_CHANGE_BYTES: usize = 512 << 20;

/// Says how much of a statement that failed is written already.
pub(super) fn partial(error: SqlError, written: u64) -> SqlError {
    if written == 0 {
        return error;
    }
    let committed =
        format!("{written} rows of this statement are committed already: large statements commit in batches");
    let told = match error.detail() {
        Some(detail) => format!("{}; {committed}", detail.trim_end_matches('.')),
        None => committed,
    };
    error.with_detail(told)
}

/// The change that each row was read at.
pub(super) struct ChangeNumbers<'a>(&'a PrimitiveArray<Int64Type>);

impl ChangeNumbers<'_> {
    pub(super) fn of(&self, row: usize) -> SeqNo {
        SeqNo(self.0.value(row) as u64)
    }
}

/// Of rows that are to be changed, the last column.
pub(super) fn change_numbers(rows: &RecordBatch) -> Result<ChangeNumbers<'_>> {
    let last = rows.columns().last().and_then(|column| column.as_primitive_opt::<Int64Type>());
    last.map(ChangeNumbers)
        .ok_or_else(|| SqlError::new(state::INTERNAL, "the last column of rows to change is their change number"))
}
