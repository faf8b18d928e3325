//! What do functions make of `infinity` and `-infinity`? Arrow and chrono take them for times beyond their calendars,
//! and fail. So they are taken out before something is computed of a column, and put back where they stay what they
//! are: `date_trunc('day', 'infinity')`.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::zip::zip;
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Date32Type, TimeUnit, TimestampMicrosecondType};
use datafusion::error::Result;
use tarn_query::datafusion;
use tarn_types::{is_infinite_day, is_infinite_us};

/// Which dates or timestamps are infinite. `None`: none is, or they are of another type.
pub(super) fn infinite(values: &dyn Array) -> Option<BooleanArray> {
    match values.data_type() {
        DataType::Date32 => of::<Date32Type>(values, is_infinite_day),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(values, is_infinite_us),
        _ => None,
    }
}

fn of<T: ArrowPrimitiveType>(values: &dyn Array, is_infinite: impl Fn(T::Native) -> bool) -> Option<BooleanArray> {
    let values = values.as_primitive::<T>();
    if !values.values().iter().any(|value| is_infinite(*value)) {
        return None;
    }
    let infinite =
        BooleanBuffer::collect_bool(values.len(), |row| values.is_valid(row) && is_infinite(values.value(row)));
    // Behind a NULL there may be any number.
    (infinite.count_set_bits() > 0).then(|| BooleanArray::new(infinite, None))
}

/// The column with NULL in the place of infinite values, and which these are.
pub(super) fn finite(values: &ArrayRef) -> Result<(ArrayRef, Option<BooleanArray>)> {
    Ok(match infinite(values) {
        None => (ArrayRef::clone(values), None),
        Some(infinite) => (nullif(values, &infinite)?, Some(infinite)),
    })
}

/// What is computed of a column whose infinite values stay as they are.
pub(super) fn of_finite(values: &ArrayRef, compute: impl FnOnce(&ArrayRef) -> Result<ArrayRef>) -> Result<ArrayRef> {
    let (finite, infinite) = finite(values)?;
    let computed = compute(&finite)?;
    match infinite {
        None => Ok(computed),
        Some(infinite) => Ok(zip(&infinite, values, &computed)?),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, TimestampNanosecondArray};

    use super::*;

    #[test]
    fn what_is_infinite_comes_back() {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(i32::MIN), None, Some(1), Some(i32::MAX)]));
        let later = of_finite(&days, |finite| {
            assert_eq!(finite.null_count(), 3);
            let later = finite.as_primitive::<Date32Type>().unary::<_, Date32Type>(|day| day.wrapping_add(1));
            Ok(Arc::new(later))
        });
        let want = Date32Array::from(vec![Some(i32::MIN), None, Some(2), Some(i32::MAX)]);
        assert_eq!(later.unwrap().as_primitive::<Date32Type>(), &want);
        assert!(infinite(&TimestampNanosecondArray::from(vec![i64::MAX])).is_none());
    }
}
