//! Into which bucket does a value fall, by a list of their lower bounds? `width_bucket(5, ARRAY[1, 3, 10])` is 2: how
//! many of the bounds, which are in ascending order, are not above it.

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, make_comparator};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Float64Type};
use datafusion::error::Result;
use tarn_query::datafusion;

use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};

/// The types of a value and a list that can be held against each other. `None`: these cannot.
pub(super) fn coerced(types: &[DataType]) -> Option<Vec<DataType>> {
    let [of, DataType::List(item)] = types else { return None };
    let item = item.data_type();
    let common = match (of, item) {
        (_, DataType::Null) => of.clone(),
        _ if of.is_floating() && item.is_numeric() || item.is_floating() && of.is_numeric() => DataType::Float64,
        _ if of.is_integer() && item.is_integer() => DataType::Int64,
        _ if of.is_numeric() && item.is_numeric() => {
            let scale = |of: &DataType| if let DataType::Decimal128(_, scale) = of { *scale } else { 0 };
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale(of).max(scale(item)))
        }
        _ if of.is_string() && item.is_string() => DataType::Utf8,
        _ if of == item && !of.is_nested() => of.clone(),
        _ => return None,
    };
    Some(vec![common.clone(), DataType::new_list(common, true)])
}

/// The buckets of rows of two columns of such types.
///
/// Errors: `22004` for a bound that is NULL.
pub(super) fn buckets(rows: &ArgumentRows) -> Result<Int32Array> {
    let lists = rows.columns[1].as_list::<i32>();
    let (values, bounds) = (without_signs(&rows.columns[0])?, without_signs(lists.values())?);
    let compare = make_comparator(&values, &bounds, SortOptions::default())?;
    let bucket = |row: usize| -> Result<i32> {
        let range = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
        if range.clone().any(|at| bounds.is_null(at)) {
            let message = "thresholds array must not contain NULLs";
            return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message)
                .with_hint("array_remove(list, NULL)")
                .into());
        }
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low.midpoint(high);
            if compare(row, middle).is_lt() { high = middle } else { low = middle + 1 }
        }
        Ok((low - range.start) as i32)
    };
    rows.there().map(|row| row.map(bucket).transpose()).collect()
}

/// Of zeros and NaNs there is one each.
fn without_signs(values: &ArrayRef) -> Result<ArrayRef> {
    let Some(floats) = values.as_primitive_opt::<Float64Type>() else { return Ok(values.clone()) };
    let plain = |of: f64| if of.is_nan() { f64::NAN } else { of + 0.0 };
    Ok(cast(&floats.unary::<_, Float64Type>(plain), &DataType::Float64)?)
}
