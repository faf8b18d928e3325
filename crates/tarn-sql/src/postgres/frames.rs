//! What is the sum of floats over a frame that moves? That of the values in it, added up anew for each row, as in
//! PostgreSQL. DataFusion takes off the sum what leaves the frame, which loses digits: of `1e20` and 1, when `1e20` has
//! left, 0 is left.
//!
//! So are averages and variances of floats. Sums of exact numbers lose nothing, and stay as they are.

use std::collections::VecDeque;
use std::fmt;

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use crate::error::{SqlError, state};

/// What the values of a frame come to, in their order.
type FrameResult<T> = Box<dyn Fn(&mut dyn Iterator<Item = T>) -> Result<ScalarValue> + Send + Sync>;

/// An aggregate of the values of a frame. It keeps them, so it takes 16 bytes or more for each row of the frame, and as
/// long for each row as the frame is.
pub(super) struct OfFrame<T: ArrowPrimitiveType> {
    /// Of each row; the window takes off as many rows as it says, NULLs among them.
    values: VecDeque<Option<T::Native>>,
    /// The values of its argument.
    read: fn(&ArrayRef) -> Result<PrimitiveArray<T>>,
    finish: FrameResult<T::Native>,
}

impl<T: ArrowPrimitiveType> OfFrame<T> {
    /// Of what `finish` makes of what `read` gives.
    pub(super) fn of(
        read: fn(&ArrayRef) -> Result<PrimitiveArray<T>>,
        finish: impl Fn(&mut dyn Iterator<Item = T::Native>) -> Result<ScalarValue> + Send + Sync + 'static,
    ) -> OfFrame<T> {
        OfFrame { values: VecDeque::new(), read, finish: Box::new(finish) }
    }
}

impl OfFrame<Float64Type> {
    /// Of what `finish` makes of floats, as that type.
    pub(super) fn new(
        told: DataType,
        finish: impl Fn(&mut dyn Iterator<Item = f64>) -> Result<Option<f64>> + Send + Sync + 'static,
    ) -> OfFrame<Float64Type> {
        let floats = |values: &ArrayRef| Ok(cast(values, &DataType::Float64)?.as_primitive().clone());
        OfFrame::of(floats, move |values| ScalarValue::Float64(finish(values)?).cast_to(&told))
    }
}

impl<T: ArrowPrimitiveType> fmt::Debug for OfFrame<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfFrame").field("n_values", &self.values.len()).finish_non_exhaustive()
    }
}

impl<T: ArrowPrimitiveType> Accumulator for OfFrame<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend((self.read)(&values[0])?.iter());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        (self.finish)(&mut self.values.iter().flatten().copied())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<Option<T::Native>>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        exec_err!("a frame is in one place")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        exec_err!("a frame is in one place")
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.drain(..values[0].len().min(self.values.len()));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

/// The sum. `None`: there is no value.
///
/// Errors: `22003` for a sum of finite values that is not.
pub(super) fn sum_of(values: &mut dyn Iterator<Item = f64>) -> Result<Option<f64>> {
    Ok(added(values)?.map(|(sum, _)| sum))
}

/// The average. `None`: there is no value.
///
/// Errors: as of [`sum_of`].
pub(super) fn mean_of(values: &mut dyn Iterator<Item = f64>) -> Result<Option<f64>> {
    Ok(added(values)?.map(|(sum, n)| sum / n as f64))
}

fn added(values: &mut dyn Iterator<Item = f64>) -> Result<Option<(f64, usize)>> {
    let mut all: Option<(f64, usize)> = None;
    for value in values {
        let (sum, n) = all.unwrap_or_default();
        let next = sum + value;
        if next.is_infinite() && !sum.is_infinite() && !value.is_infinite() {
            return Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, "value out of range: overflow").into());
        }
        all = Some((next, n + 1));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Float64Array;

    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn what_left_a_frame_leaves_nothing_behind() {
        let floats = |values: &[Option<f64>]| -> Vec<ArrayRef> { vec![Arc::new(Float64Array::from(values.to_vec()))] };
        let mut sums = OfFrame::new(DataType::Float64, sum_of);
        assert_eq!(sums.evaluate().unwrap(), ScalarValue::Float64(None));
        sums.update_batch(&floats(&[Some(1e20), None, Some(1.0)])).unwrap();
        sums.retract_batch(&floats(&[Some(1e20), None])).unwrap();
        assert_eq!(sums.evaluate().unwrap(), ScalarValue::Float64(Some(1.0)));
        let mut means = OfFrame::new(DataType::Float32, mean_of);
        means.update_batch(&floats(&[Some(1.0), None, Some(2.0)])).unwrap();
        assert_eq!(means.evaluate().unwrap(), ScalarValue::Float32(Some(1.5)));
        means.update_batch(&floats(&[Some(f64::MAX), Some(f64::MAX)])).unwrap();
        assert!(means.evaluate().is_err());
    }
}
