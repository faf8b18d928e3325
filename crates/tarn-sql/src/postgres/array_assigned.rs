//! What does `UPDATE t SET tags[2] = 'x'` make of `tags`? The same array with another item at that place. One behind
//! the end is put there, with NULLs between; what would make an array begin elsewhere than at 1 is refused.
//!
//! The parser writes it as a call of the array, the value and the subscripts, as of a `jsonb`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MutableArrayData, make_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use tarn_query::parser::ASSIGNED;
use tarn_query::{datafusion, each_expression};
use tarn_types::DataType as Stored;

use super::kept_as_text::type_of_cast;
use crate::error::{SqlError, state};

/// NULLs that one assignment may put between.
const MAX_MADE: usize = 1_000_000;

/// A constant that is assigned was read as a `jsonb` before anybody knew the column's type: in an array it is an item
/// as it is written.
#[derive(Debug)]
pub(super) struct AssignedItems;

impl AnalyzerRule for AssignedItems {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |mut expr, schema| {
            let Expr::ScalarFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
            if call.func.name() != ASSIGNED || !call.args[0].get_type(schema)?.is_list() {
                return Ok(Transformed::no(expr));
            }
            let Some(Expr::ScalarFunction(read)) = call.args.get_mut(1) else { return Ok(Transformed::no(expr)) };
            if type_of_cast(read.func.name()) != Some(Stored::Jsonb) || read.args.len() != 1 {
                return Ok(Transformed::no(expr));
            }
            call.args[1] = read.args.swap_remove(0);
            Ok(Transformed::yes(expr))
        })
    }

    fn name(&self) -> &str {
        "assigned_items"
    }
}

/// The types of the arguments, if the first is an array of one dimension: the value is one of its items, and there is
/// one subscript.
pub(super) fn types(given: &[DataType]) -> Result<Option<Vec<DataType>>> {
    let [of @ DataType::List(item), _, steps @ ..] = given else { return Ok(None) };
    if steps.len() != 1 || item.data_type().is_list() {
        return Err(SqlError::unsupported(
            "an assignment to an item of an array of several dimensions",
            "give the whole array",
        )
        .into());
    }
    Ok(Some(vec![of.clone(), item.data_type().clone(), DataType::Int64]))
}

/// The arrays with the values at these places, in each row.
///
/// Errors: `22004` for a place that is NULL, `0A000` for one before the first item, and for one behind it in an array
/// that has none.
pub(super) fn with_items(arrays: &ArrayRef, values: &ArrayRef, places: &ArrayRef) -> Result<ArrayRef> {
    let lists = arrays.as_list::<i32>();
    let DataType::List(item) = arrays.data_type() else { return Ok(Arc::clone(arrays)) };
    let values = cast(values, item.data_type())?;
    let places = places.as_primitive::<Int64Type>();
    let (items, new) = (lists.values().to_data(), values.to_data());
    let mut all = MutableArrayData::new(vec![&items, &new], true, lists.values().len() + lists.len());
    let mut lengths = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        if places.is_null(row) {
            let message = "array subscript in assignment must not be null";
            return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message).into());
        }
        let ends = lists.value_offsets();
        let (first, last) = match lists.is_null(row) {
            true => (0, 0),
            false => (ends[row] as usize, ends[row + 1] as usize),
        };
        let n_items = last - first;
        let place = before(places.value(row), n_items)?;
        all.try_extend(0, first, first + place.min(n_items))?;
        if place > n_items {
            all.try_extend_nulls(place - n_items)?;
        }
        all.try_extend(1, row, row + 1)?;
        if place < n_items {
            all.try_extend(0, first + place + 1, last)?;
        }
        lengths.push(n_items.max(place + 1));
    }
    let items = make_array(all.freeze());
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, None)?))
}

/// How many items come before this place.
fn before(place: i64, n_items: usize) -> Result<usize, SqlError> {
    let first = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
    match first {
        Some(before) if before > n_items + MAX_MADE => {
            let message = format!("an array would have {} items more, the limit is {MAX_MADE}", before - n_items);
            Err(SqlError::new(state::PROGRAM_LIMIT, message).with_hint("a smaller subscript"))
        }
        Some(before) if before == 0 || n_items > 0 => Ok(before),
        _ => Err(SqlError::unsupported(
            format!("an array that begins at {place}"),
            "arrays begin at 1: give an array without items its first one, or the whole array",
        )),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array};
    use arrow::datatypes::Int32Type;

    use super::*;

    fn of(array: Option<Vec<Option<i32>>>, place: Option<i64>) -> Result<Vec<Option<i32>>> {
        let arrays: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([array]));
        let (values, places): (ArrayRef, ArrayRef) =
            (Arc::new(Int32Array::from(vec![9])), Arc::new(Int64Array::from(vec![place])));
        let array = with_items(&arrays, &values, &places)?;
        let array = array.as_list::<i32>().value(0);
        Ok(array.as_primitive::<Int32Type>().iter().collect())
    }

    /// What PostgreSQL 15 says, where its arrays begin at 1.
    #[test]
    fn an_item_is_another_and_arrays_begin_at_one() {
        let two = || Some(vec![Some(1), None]);
        assert_eq!(of(two(), Some(1)).unwrap(), [Some(9), None]);
        assert_eq!(of(two(), Some(2)).unwrap(), [Some(1), Some(9)]);
        assert_eq!(of(two(), Some(3)).unwrap(), [Some(1), None, Some(9)]);
        assert_eq!(of(two(), Some(5)).unwrap(), [Some(1), None, None, None, Some(9)]);
        assert_eq!(of(None, Some(1)).unwrap(), [Some(9)]);
        assert_eq!(of(Some(vec![]), Some(1)).unwrap(), [Some(9)]);
        for (array, place) in
            [(two(), Some(0)), (two(), Some(-1)), (None, Some(2)), (two(), Some(i64::MAX)), (two(), None)]
        {
            assert!(of(array, place).is_err(), "{place:?}");
        }
    }
}
