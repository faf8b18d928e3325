//! Which item is `a[0]`, and which `a[-1]`? None: arrays begin at 1, and what is not there is NULL. DataFusion counts
//! negative ones from the end. A slice holds the items that are there: `a[-1:2]` the first two, `a[2:-1]` none.
//!
//! Subscripts that stand behind each other are of one array of several dimensions, which is one of arrays: `a[1][2]` is
//! an item of two, `a[1]` none of it. If one of them is a slice, all are: `a[1:2][2]` is `a[1:2][1:2]`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, GetFieldAccess, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;

use super::averages::undefined;
use super::rowwise::ArgumentRows;
use crate::error::{SqlError, state};
use crate::nested::MAX_DIMENSIONS;

/// Plans subscripts.
#[derive(Debug)]
pub(super) struct Subscripts;

impl ExprPlanner for Subscripts {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        // Of `array_agg(x ORDER BY y)`, too, of whose items the engine would make an aggregate of its own.
        let is_array = matches!(access.expr.get_type(schema), Ok(DataType::List(_) | DataType::LargeList(_)));
        let before = before(&access.expr);
        let RawFieldAccessExpr { expr, field_access } = access;
        let is_one = |step: &Expr| matches!(step, Expr::Literal(ScalarValue::Int64(Some(1)), _));
        let is_name = |key: &Expr| key.get_type(schema).is_ok_and(|of| of.is_string());
        let (what, args) = match (field_access, before) {
            // The next dimension.
            (GetFieldAccess::ListIndex { key }, Some((SubscriptFunction::Item, mut args))) if !is_name(&key) => {
                args.push(*key);
                (SubscriptFunction::Item, args)
            }
            // Beside a slice, `n` is `1:n`.
            (GetFieldAccess::ListIndex { key }, Some((SubscriptFunction::Slice, mut args))) if !is_name(&key) => {
                args.extend([first(), *key]);
                (SubscriptFunction::Slice, args)
            }
            (GetFieldAccess::ListRange { start, stop, stride }, Some((what, mut args))) if is_one(&stride) => {
                if what == SubscriptFunction::Item {
                    let rest = args.split_off(1);
                    args.extend(rest.into_iter().flat_map(|to| [first(), to]));
                }
                args.extend([*start, *stop]);
                (SubscriptFunction::Slice, args)
            }
            (GetFieldAccess::ListIndex { key }, _) if is_array => (SubscriptFunction::Item, vec![expr, *key]),
            (GetFieldAccess::ListRange { start, stop, stride }, _) if is_array && is_one(&stride) => {
                (SubscriptFunction::Slice, vec![expr, *start, *stop])
            }
            (field_access, _) => return Ok(PlannerResult::Original(RawFieldAccessExpr { expr, field_access })),
        };
        let n_dimensions = if what == SubscriptFunction::Slice { args.len() / 2 } else { args.len() - 1 };
        if n_dimensions > MAX_DIMENSIONS {
            let message =
                format!("number of array dimensions ({n_dimensions}) exceeds the maximum allowed ({MAX_DIMENSIONS})");
            return Err(SqlError::new(state::PROGRAM_LIMIT, message).into());
        }
        let function = Subscript { what, signature: Signature::user_defined(Volatility::Immutable) };
        let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// The subscripts that this one stands behind.
fn before(expr: &Expr) -> Option<(SubscriptFunction, Vec<Expr>)> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let of = call.func.inner().downcast_ref::<Subscript>()?;
    Some((of.what, call.args.clone()))
}

fn first() -> Expr {
    Expr::Literal(ScalarValue::Int64(Some(1)), None)
}

/// What an array has items of, and how many dimensions.
fn innermost(of: &FieldRef) -> (FieldRef, usize) {
    let (mut item, mut n_dimensions) = (Arc::clone(of), 0);
    while let DataType::List(inner) = item.data_type() {
        (item, n_dimensions) = (Arc::clone(inner), n_dimensions + 1);
    }
    (item, n_dimensions)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SubscriptFunction {
    Item,
    Slice,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Subscript {
    what: SubscriptFunction,
    signature: Signature,
}

impl ScalarUDFImpl for Subscript {
    fn name(&self) -> &str {
        match self.what {
            SubscriptFunction::Item => "array_item",
            SubscriptFunction::Slice => "array_slice",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Subscripts are integers, or texts that are written out.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [DataType::List(item) | DataType::LargeList(item), subscripts @ ..] = types else {
            return Err(undefined(self.name(), types).into());
        };
        if !subscripts.iter().all(|of| of.is_integer() || of.is_null() || of.is_string()) {
            return Err(undefined(self.name(), types).into());
        }
        let mut coerced = vec![DataType::List(Arc::clone(item))];
        coerced.resize(types.len(), DataType::Int64);
        Ok(coerced)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let of = Arc::new(Field::new("", types[0].clone(), true));
        Ok(match self.what {
            SubscriptFunction::Item => innermost(&of).0.data_type().clone(),
            SubscriptFunction::Slice => types[0].clone(),
        })
    }

    /// What stands beside the type of an item says that it is a `uuid`.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = &args.arg_fields[0];
        let field = match self.what {
            SubscriptFunction::Item => innermost(of).0.as_ref().clone().with_name(self.name()).with_nullable(true),
            SubscriptFunction::Slice => {
                Field::new(self.name(), of.data_type().clone(), true).with_metadata(of.metadata().clone())
            }
        };
        Ok(Arc::new(field))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = ArgumentRows::of(&args)?;
        let (item, n_dimensions) = innermost(&args.arg_fields[0]);
        let answer = match self.what {
            // As many subscripts as dimensions, or there is no such item.
            SubscriptFunction::Item if rows.columns.len() - 1 != n_dimensions => {
                new_null_array(item.data_type(), rows.n_rows)
            }
            SubscriptFunction::Item => items(&rows)?,
            SubscriptFunction::Slice => slices(&rows, n_dimensions)?,
        };
        rows.answer(answer)
    }
}

fn subscript(rows: &ArgumentRows, idx: usize, row: usize) -> i64 {
    rows.columns[idx].as_primitive::<Int64Type>().value(row)
}

fn items(rows: &ArgumentRows) -> Result<ArrayRef> {
    let mut values = &rows.columns[0];
    let mut places: Vec<Option<usize>> = rows.there().collect();
    for idx in 1..rows.columns.len() {
        let lists = values.as_list::<i32>();
        let ends = lists.value_offsets();
        for (row, place) in places.iter_mut().enumerate() {
            *place = place.filter(|at| lists.is_valid(*at)).and_then(|at| {
                let (from, to) = (ends[at] as usize, ends[at + 1] as usize);
                let nth = usize::try_from(subscript(rows, idx, row)).ok()?.checked_sub(1)?;
                Some(from.checked_add(nth)?).filter(|place| *place < to)
            });
        }
        values = lists.values();
    }
    let places = places.into_iter().map(|place| place.map(|place| place as u64)).collect::<UInt64Array>();
    Ok(take(values, &places, None)?)
}

/// Dimensions behind the last subscript are whole. Where one has nothing, or an array has fewer dimensions than there
/// are subscripts, nothing is left.
fn slices(rows: &ArgumentRows, n_dimensions: usize) -> Result<ArrayRef> {
    let bounds: Vec<Option<Vec<(i64, i64)>>> =
        rows.there().map(|row| row.map(|row| bounds_of(rows, row, n_dimensions))).collect();
    // The row of each list that is kept, and its place.
    let mut kept: Vec<(usize, usize)> = (0..rows.n_rows).map(|row| (row, row)).collect();
    let mut values = Arc::clone(&rows.columns[0]);
    let mut levels: Vec<(FieldRef, Vec<usize>)> = vec![];
    for dimension in 0..n_dimensions {
        let lists = values.as_list::<i32>();
        let DataType::List(item) = lists.data_type() else { return Err(undefined("array_slice", &[]).into()) };
        let (mut inner, mut lengths) = (vec![], Vec::with_capacity(kept.len()));
        for (row, at) in kept {
            let (begin, end) = (i64::from(lists.value_offsets()[at]), i64::from(lists.value_offsets()[at + 1]));
            let before = inner.len();
            if let Some((from, to)) = bounds[row].as_ref().and_then(|bounds| bounds.get(dimension)) {
                inner.extend((*from..=(*to).min(end - begin)).map(|nth| (row, (begin + nth - 1) as usize)));
            }
            lengths.push(inner.len() - before);
        }
        levels.push((Arc::clone(item), lengths));
        (kept, values) = (inner, Arc::clone(lists.values()));
    }
    let places = kept.iter().map(|(_, place)| Some(*place as u64)).collect::<UInt64Array>();
    let mut sliced = take(&values, &places, None)?;
    for (nth, (item, lengths)) in levels.into_iter().enumerate().rev() {
        let nulls = (nth == 0).then(|| bounds.iter().map(Option::is_some).collect::<NullBuffer>());
        sliced = Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), sliced, nulls)?);
    }
    Ok(sliced)
}

/// The first and the last item of each dimension; none at all if one has none.
fn bounds_of(rows: &ArgumentRows, row: usize, n_dimensions: usize) -> Vec<(i64, i64)> {
    let n_subscripts = (rows.columns.len() - 1) / 2;
    if n_subscripts > n_dimensions {
        return vec![];
    }
    let (mut values, mut at) = (&rows.columns[0], row);
    let mut bounds = Vec::with_capacity(n_dimensions);
    for dimension in 0..n_dimensions {
        let lists = values.as_list::<i32>();
        let n_items = if lists.is_valid(at) { i64::from(lists.value_length(at)) } else { 0 };
        let (from, to) = match dimension < n_subscripts {
            true => {
                let bound = |nth: usize| subscript(rows, 1 + 2 * dimension + nth, row);
                (bound(0).max(1), bound(1).min(n_items))
            }
            false => (1, n_items),
        };
        if from > to {
            return vec![];
        }
        bounds.push((from, to));
        (at, values) = (lists.value_offsets()[at] as usize, lists.values());
    }
    bounds
}
