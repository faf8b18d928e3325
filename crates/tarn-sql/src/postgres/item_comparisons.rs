//! What is `4 < ALL ('{5,NULL}'::int[])`, or `4 > ANY ('{NULL,5}'::int[])`? NULL: nobody knows of one item. DataFusion
//! asks for the least and the greatest item, which know nothing of NULLs. And `1.24 = ANY (prices)`, of a
//! `numeric(10,2)[]`, has no types together for it.
//!
//! So comparisons with the items of an array are written as calls: `= ANY` and `<> ALL` of the function that looks for
//! a value (`in_array`), the others of one that compares with one item after the other.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, make_comparator};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};
use tarn_types::{DataType as Stored, Enumerated};

use super::calls::{call, take};
use super::common_types::TypeClass;
use super::in_array::{self, no_operator, of_one_type};
use super::rowwise::ArgumentRows;
use super::times::lengths;
use crate::error::SqlError;

/// `tarn_items('> any', array, value)`.
pub(crate) const ITEM_COMPARISON: &str = "tarn_items";

/// Writes comparisons with the items of arrays as calls.
pub(super) fn rewrite(expr: &mut Expr) {
    let (left, op, right, is_all) = match expr {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, false),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, true),
        _ => return,
    };
    let Some(symbol) = symbol(op) else { return };
    if matches!(right.as_ref(), Expr::Subquery(_)) {
        return;
    }
    let is_not_in = is_all && *op == BinaryOperator::NotEq;
    let is_in = is_not_in || (!is_all && *op == BinaryOperator::Eq);
    let (value, array) = (take(left), take(right));
    let compared = match is_in {
        true => call(in_array::NAME, vec![array, value]),
        false => {
            let how = format!("{symbol} {}", if is_all { ALL } else { ANY });
            let how = Expr::Value(Value::SingleQuotedString(how).with_empty_span());
            call(ITEM_COMPARISON, vec![how, array, value])
        }
    };
    *expr = match is_not_in {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(compared) },
        false => compared,
    };
}

fn symbol(op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::Eq => "=",
        BinaryOperator::NotEq => "<>",
        BinaryOperator::Lt => "<",
        BinaryOperator::LtEq => "<=",
        BinaryOperator::Gt => ">",
        BinaryOperator::GtEq => ">=",
        _ => return None,
    })
}

const ALL: &str = "all";
const ANY: &str = "any";

/// The function.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(OfItems { signature: Signature::user_defined(Volatility::Immutable) }.into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfItems {
    signature: Signature,
}

impl ScalarUDFImpl for OfItems {
    fn name(&self) -> &str {
        ITEM_COMPARISON
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [how, array, value] = types else { return exec_err!("{ITEM_COMPARISON} takes an array and a value") };
        if array.is_null() {
            return Ok(types.to_vec());
        }
        let Some([array, value]) = of_one_type(array, value) else {
            return Err(no_operator("=", array, value).into());
        };
        Ok(vec![how.clone(), array, value])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let is_other = |of: &Field| {
            Enumerated::of(of).is_some()
                || matches!(TypeClass::of(of), Some(TypeClass::KeptAsText(Stored::Json | Stored::Jsonb)))
                || matches!(of.data_type(), DataType::List(item) if Enumerated::of(item).is_some())
        };
        if args.arg_fields.iter().any(|of| is_other(of)) {
            return Err(SqlError::unsupported(
                "<, <=, > and >= ANY and ALL of the items of such an array are not supported",
                "EXISTS (SELECT FROM unnest(items) x WHERE a < x)",
            )
            .into());
        }
        Ok(Arc::new(Field::new(self.name(), DataType::Boolean, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(how), ..] = &args.args[..] else {
            return exec_err!("{ITEM_COMPARISON} is of an operator");
        };
        let Some((op, of)) = how.try_as_str().flatten().and_then(|how| how.split_once(' ')) else {
            return exec_err!("{ITEM_COMPARISON} is of an operator");
        };
        let holds = holds(op)?;
        let rows = ArgumentRows::of(&args)?;
        rows.answer(Arc::new(compared(&rows.columns[1], &rows.columns[2], holds, of == ALL)?))
    }
}

fn holds(op: &str) -> Result<fn(Ordering) -> bool> {
    Ok(match op {
        "=" => Ordering::is_eq,
        "<>" => Ordering::is_ne,
        "<" => Ordering::is_lt,
        "<=" => Ordering::is_le,
        ">" => Ordering::is_gt,
        ">=" => Ordering::is_ge,
        other => return exec_err!("items are not compared by {other}"),
    })
}

/// Of each row, whether it holds of its value and all items, or one of them.
fn compared(arrays: &ArrayRef, values: &ArrayRef, holds: fn(Ordering) -> bool, is_all: bool) -> Result<BooleanArray> {
    let item = match arrays.data_type() {
        DataType::List(item) => Arc::clone(item),
        _ => return Ok(BooleanArray::new_null(arrays.len())),
    };
    let lists = cast(arrays, &DataType::LargeList(item))?;
    let lists = lists.as_list::<i64>();
    let (items, values) = (ordered(lists.values())?, ordered(values)?);
    let (no_items, no_values) = (items.logical_nulls(), values.logical_nulls());
    let options = SortOptions { descending: false, nulls_first: false };
    let compare = make_comparator(&values, &items, options)?;
    let offsets = lists.value_offsets();
    let of_row = |row: usize| {
        if lists.is_null(row) {
            return None;
        }
        let places = offsets[row] as usize..offsets[row + 1] as usize;
        if places.is_empty() {
            return Some(is_all);
        }
        if no_values.as_ref().is_some_and(|none| none.is_null(row)) {
            return None;
        }
        let mut is_known = true;
        for at in places {
            if no_items.as_ref().is_some_and(|none| none.is_null(at)) {
                is_known = false;
            } else if holds(compare(row, at)) != is_all {
                return Some(!is_all);
            }
        }
        is_known.then_some(is_all)
    };
    Ok((0..arrays.len()).map(of_row).collect())
}

/// What values are compared by: intervals by how long they are, floats as PostgreSQL does, with one zero and one NaN.
fn ordered(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        DataType::Interval(_) => lengths(values)?,
        DataType::Float32 => {
            let one = |x: f32| if x.is_nan() { f32::NAN } else { x + 0.0 };
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(one))
        }
        DataType::Float64 => {
            let one = |x: f64| if x.is_nan() { f64::NAN } else { x + 0.0 };
            Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(one))
        }
        _ => Arc::clone(values),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, ListArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn of_an_item_that_is_null_nobody_knows() {
        let arrays = [Some(vec![Some(3), None]), Some(vec![Some(5), None]), Some(vec![]), Some(vec![Some(1)]), None];
        let arrays: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(arrays));
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(4), Some(4), None, None, Some(1)]));
        let any = compared(&arrays, &values, Ordering::is_gt, false).unwrap();
        assert_eq!(any, BooleanArray::from(vec![Some(true), None, Some(false), None, None]));
        let all = compared(&arrays, &values, Ordering::is_gt, true).unwrap();
        assert_eq!(all, BooleanArray::from(vec![None, Some(false), Some(true), None, None]));
    }
}
