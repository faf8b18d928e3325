//! Which item is `a[0]`, and which `a[-1]`? None: arrays begin at 1, and what is not there is NULL. DataFusion counts negative ones from the
//! end. A slice holds the items that are there: `a[-1:2]` the first two, `a[2:-1]` none.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array};
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
use super::rowwise::Rows;

/// Plans subscripts.
#[derive(Debug)]
pub(super) struct Subscripts;

impl ExprPlanner for Subscripts {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        // That of an `array_agg` is planned as an aggregate.
        let is_array = !matches!(access.expr, Expr::AggregateFunction(_))
            && matches!(access.expr.get_type(schema), Ok(DataType::List(_) | DataType::LargeList(_)));
        let RawFieldAccessExpr { expr, field_access } = access;
        let is_one = |step: &Expr| matches!(step, Expr::Literal(ScalarValue::Int64(Some(1)), _));
        let (what, args) = match field_access {
            GetFieldAccess::ListIndex { key } if is_array => (What::Item, vec![expr, *key]),
            GetFieldAccess::ListRange { start, stop, stride } if is_array && is_one(&stride) => {
                (What::Slice, vec![expr, *start, *stop])
            }
            field_access => return Ok(PlannerResult::Original(RawFieldAccessExpr { expr, field_access })),
        };
        let function = Subscript { what, signature: Signature::user_defined(Volatility::Immutable) };
        let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Item,
    Slice,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Subscript {
    what: What,
    signature: Signature,
}

impl ScalarUDFImpl for Subscript {
    fn name(&self) -> &str {
        match self.what {
            What::Item => "array_item",
            What::Slice => "array_slice",
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
        match (self.what, &types[0]) {
            (What::Item, DataType::List(item)) => Ok(item.data_type().clone()),
            (_, of) => Ok(of.clone()),
        }
    }

    /// What stands beside the type of an item says that it is a `uuid`.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let of = args.arg_fields[0].as_ref();
        Ok(Arc::new(match (self.what, of.data_type()) {
            (What::Item, DataType::List(item)) => item.as_ref().clone().with_name(self.name()).with_nullable(true),
            _ => Field::new(self.name(), of.data_type().clone(), true).with_metadata(of.metadata().clone()),
        }))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = Rows::of(&args)?;
        let arrays = rows.columns[0].as_list::<i32>();
        let subscript = |idx: usize, row: usize| rows.columns[idx].as_primitive::<Int64Type>().value(row);
        let ends = arrays.value_offsets();
        let bounds = |row: usize| (ends[row] as u64, (ends[row + 1] - ends[row]) as i64);
        let answer: ArrayRef = match self.what {
            What::Item => {
                let place = |row: usize| {
                    let ((first, n_items), at) = (bounds(row), subscript(1, row));
                    (1..=n_items).contains(&at).then(|| first + (at - 1).cast_unsigned())
                };
                let places = rows.there().map(|row| row.and_then(place)).collect::<UInt64Array>();
                take(arrays.values(), &places, None)?
            }
            What::Slice => {
                let (mut places, mut lengths) = (vec![], Vec::with_capacity(rows.n_rows));
                for row in rows.there() {
                    let before = places.len();
                    if let Some(row) = row {
                        let (first, n_items) = bounds(row);
                        let (from, to) = (subscript(1, row).max(1), subscript(2, row).min(n_items));
                        places.extend((from..=to).map(|at| first + (at - 1).cast_unsigned()));
                    }
                    lengths.push(places.len() - before);
                }
                let DataType::List(item) = arrays.data_type() else { return Err(undefined(self.name(), &[]).into()) };
                let items = take(arrays.values(), &UInt64Array::from(places), None)?;
                let nulls: NullBuffer = rows.there().map(|row| row.is_some()).collect();
                let ends = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::try_new(Arc::clone(item), ends, items, Some(nulls))?)
            }
        };
        rows.answer(answer)
    }
}
