//! How does a function that works row by row see its arguments? As columns of one length; what is constant in all is
//! computed once.

use arrow::array::{Array, ArrayRef};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

/// The arguments of a call.
pub(super) struct ArgumentRows {
    /// Each as long as the others.
    pub(super) columns: Vec<ArrayRef>,
    /// How long: one row if all arguments are constants.
    pub(super) n_rows: usize,
    is_scalar: bool,
}

impl ArgumentRows {
    pub(super) fn of(args: &ScalarFunctionArgs) -> Result<ArgumentRows> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(n_rows)).collect::<Result<Vec<_>>>()?;
        Ok(ArgumentRows { columns, n_rows, is_scalar })
    }

    /// The rows in which no argument is NULL; of the others, `None`.
    pub(super) fn there(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        let is_there = |row: &usize| self.columns.iter().all(|column| column.is_valid(*row));
        (0..self.n_rows).map(move |row| Some(row).filter(is_there))
    }

    /// A constant of constants.
    pub(super) fn answer(&self, values: ArrayRef) -> Result<ColumnarValue> {
        Ok(match self.is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
            false => ColumnarValue::Array(values),
        })
    }
}
