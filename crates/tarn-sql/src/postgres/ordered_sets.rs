//! Which value stands at a place of ordered values, and which comes most often? `percentile_disc(0.5) WITHIN GROUP
//! (ORDER BY x)`, of one place or of several, `mode() WITHIN GROUP (ORDER BY x)`, and `percentile_cont` of several
//! places: each is a function of the array that `array_agg(x ORDER BY x)` collects, which bounds it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, take as taken};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{
    DataType as Sql, Expr, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName,
};

use super::averages::undefined;
use super::calls::{call, is_named, take};
use super::rowwise::Rows;
use crate::error::{SqlError, state};

/// As it is called, and the function of an array.
const DISCRETE: (&str, &str) = ("percentile_disc", "tarn_percentile_disc");
const MODE: (&str, &str) = ("mode", "tarn_mode");
const CONTINUOUS: (&str, &str) = ("percentile_cont", "tarn_percentile_cont");

/// An ordered-set aggregate becomes a function of an array.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    if function.within_group.len() != 1 {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    // There are no windows of them, and no distinct places.
    if function.over.is_some() || list.duplicate_treatment.is_some() {
        return;
    }
    let args: Vec<Expr> = list.args.iter_mut().filter_map(plain).map(take).collect();
    let is_array = |expr: &Expr| matches!(expr, Expr::Array(_) | Expr::Cast { data_type: Sql::Array(_), .. });
    let known = [(DISCRETE, 1), (MODE, 0), (CONTINUOUS, 1)];
    let known = known.into_iter().find(|((name, _), n_args)| is_named(&function.name, name) && args.len() == *n_args);
    let of = known.filter(|((name, _), _)| *name != CONTINUOUS.0 || args.first().is_some_and(is_array));
    let Some(((_, of), _)) = of else {
        // It stays what it was.
        list.args.iter_mut().filter_map(plain).zip(args).for_each(|(place, arg)| *place = arg);
        return;
    };
    let order = std::mem::take(&mut function.within_group);
    let value = FunctionArg::Unnamed(FunctionArgExpr::Expr(order[0].expr.clone()));
    function.args = FunctionArguments::List(FunctionArgumentList {
        duplicate_treatment: None,
        args: vec![value],
        clauses: vec![FunctionArgumentClause::OrderBy(order)],
    });
    function.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let collected = take(expr);
    *expr = call(of, std::iter::once(collected).chain(args).collect());
}

fn plain(arg: &mut FunctionArg) -> Option<&mut Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// The functions of arrays.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of =
        |what| Arc::new(ScalarUDF::from(OfOrdered { what, signature: Signature::user_defined(Volatility::Immutable) }));
    [What::Discrete, What::Mode, What::Continuous].into_iter().map(of).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Discrete,
    Mode,
    /// Of several places.
    Continuous,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfOrdered {
    what: What,
    signature: Signature,
}

impl OfOrdered {
    fn called(&self) -> &'static str {
        match self.what {
            What::Discrete => DISCRETE.0,
            What::Mode => MODE.0,
            What::Continuous => CONTINUOUS.0,
        }
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

impl ScalarUDFImpl for OfOrdered {
    fn name(&self) -> &str {
        match self.what {
            What::Discrete => DISCRETE.1,
            What::Mode => MODE.1,
            What::Continuous => CONTINUOUS.1,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let of = match types.first() {
            Some(DataType::List(item)) => Some(item.data_type()),
            _ => None,
        };
        let floats = |of: &DataType| match of {
            DataType::List(_) => list_of(DataType::Float64),
            _ => DataType::Float64,
        };
        let is_share = |of: &DataType| match of {
            DataType::List(item) => item.data_type().is_numeric(),
            of => of.is_numeric() || of.is_null() || of.is_string(),
        };
        let coerced = match (self.what, of, types) {
            (What::Mode, Some(_), [_]) => Some(types.to_vec()),
            (What::Discrete, Some(_), [of, share]) if is_share(share) => Some(vec![of.clone(), floats(share)]),
            (What::Continuous, Some(item), [_, share]) if item.is_numeric() && is_share(share) => {
                Some(vec![list_of(DataType::Float64), floats(share)])
            }
            _ => None,
        };
        coerced.ok_or_else(|| undefined(self.called(), types).into())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let DataType::List(item) = &types[0] else { return Err(undefined(self.called(), types).into()) };
        let item = item.data_type().clone();
        Ok(if types.get(1).is_some_and(DataType::is_list) { list_of(item) } else { item })
    }

    /// Of one place, what is said of an item of the array is said of it.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let of = Field::new(self.name(), self.return_type(&types)?, true);
        Ok(Arc::new(match &types[0] {
            DataType::List(item) if !of.data_type().is_list() => of.with_metadata(item.metadata().clone()),
            _ => of,
        }))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = Rows::of(&args)?;
        let lists = rows.columns[0].as_list::<i32>();
        // Of several places a list, of one a value, in each row.
        let (mut places, mut ends, mut is_there) = (vec![], vec![0], vec![]);
        let mut means = vec![];
        for row in rows.there() {
            let shares = row.and_then(|row| rows.columns.get(1).map(|shares| shares_of(shares, row))).transpose()?;
            let row = row.map(|row| (row, there(lists, row)));
            let found = match (self.what, &row, shares) {
                (_, None, _) => None,
                (What::Mode, Some((_, there)), _) => Some(vec![most_often(lists.values(), there)?]),
                (What::Discrete, Some((_, there)), Some(shares)) => {
                    Some(shares.iter().map(|share| share.and_then(|share| discrete(there, share))).collect())
                }
                (What::Continuous, Some((_, there)), Some(shares)) => {
                    let floats = cast(lists.values(), &DataType::Float64)?;
                    let floats = floats.as_primitive::<Float64Type>();
                    means.extend(shares.iter().map(|share| share.and_then(|share| continuous(floats, there, share))));
                    Some(vec![None; shares.len()])
                }
                _ => None,
            };
            // Nothing is at no place.
            let found = found.filter(|_| row.as_ref().is_some_and(|(_, there)| !there.is_empty()));
            is_there.push(found.is_some());
            match (found, args.return_field.data_type().is_list()) {
                (Some(found), _) => places.extend(found),
                (None, true) => {}
                (None, false) => places.push(None),
            }
            ends.push(places.len() as i32);
        }
        let items = match self.what {
            What::Continuous => Arc::new(Float64Array::from(means)) as ArrayRef,
            _ => taken(lists.values(), &UInt32Array::from(places), None)?,
        };
        let answer: ArrayRef = match args.return_field.data_type() {
            DataType::List(item) => {
                let nulls = Some(arrow::buffer::NullBuffer::from(is_there));
                Arc::new(ListArray::try_new(Arc::clone(item), OffsetBuffer::new(ends.into()), items, nulls)?)
            }
            _ => items,
        };
        rows.answer(answer)
    }
}

/// The items of a row that are no NULLs, by where they are.
fn there(lists: &ListArray, row: usize) -> Vec<u32> {
    let (first, behind) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
    (first..behind).map(i32::cast_unsigned).filter(|at| lists.values().is_valid(*at as usize)).collect()
}

/// The places that a row asks for, of which none may be outside of 0 to 1.
fn shares_of(shares: &ArrayRef, row: usize) -> Result<Vec<Option<f64>>, SqlError> {
    let of_list = shares.as_list_opt::<i32>().map(|lists| lists.value(row));
    let shares: Vec<Option<f64>> = match &of_list {
        Some(shares) => shares.as_primitive::<Float64Type>().iter().collect(),
        None => vec![Some(shares.as_primitive::<Float64Type>().value(row))],
    };
    match shares.iter().flatten().find(|share| !(0.0..=1.0).contains(*share)) {
        None => Ok(shares),
        Some(share) => {
            let message = format!("percentile value {share} is not between 0 and 1");
            Err(SqlError::new(state::NUMERIC_OUT_OF_RANGE, message))
        }
    }
}

/// The first value at or behind which that share of all is.
fn discrete(there: &[u32], share: f64) -> Option<u32> {
    let nth = (share * there.len() as f64).ceil().max(1.0) as usize;
    there.get(nth - 1).copied()
}

/// Between two values, by how near the place is to each.
fn continuous(values: &Float64Array, there: &[u32], share: f64) -> Option<f64> {
    let place = share * there.len().checked_sub(1)? as f64;
    let (first, second) = (place.floor(), place.ceil());
    let at = |nth: f64| there.get(nth as usize).map(|at| values.value(*at as usize));
    let (low, high) = (at(first)?, at(second)?);
    Some(if first == second { low } else { low + (place - first) * (high - low) })
}

/// The value of the longest run of equal ones; of equally long runs the first.
fn most_often(values: &ArrayRef, there: &[u32]) -> Result<Option<u32>> {
    let own = taken(values, &UInt32Array::from(there.to_vec()), None)?;
    let converter = RowConverter::new(vec![SortField::new(own.data_type().clone())])?;
    let rows = converter.convert_columns(&[own])?;
    let (mut best, mut run): ((usize, usize), (usize, usize)) = ((0, 0), (0, 0));
    for nth in 0..there.len() {
        run = if nth > 0 && rows.row(nth) == rows.row(run.0) { (run.0, run.1 + 1) } else { (nth, 1) };
        if run.1 > best.1 {
            best = run;
        }
    }
    Ok(there.get(best.0).copied())
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;

    use super::*;

    #[test]
    fn places_are_found() {
        let there = [0, 1, 3, 4];
        assert_eq!([discrete(&there, 0.0), discrete(&there, 0.5), discrete(&there, 0.75)], [Some(0), Some(1), Some(3)]);
        assert_eq!((discrete(&there, 1.0), discrete(&[], 0.5)), (Some(4), None));
        let values = Float64Array::from(vec![-5.0, 10.0, 0.0, 20.0, 31.0]);
        assert_eq!(continuous(&values, &there, 0.5), Some(15.0));
        assert_eq!(continuous(&values, &there, 0.75), Some(22.75));
        assert_eq!(continuous(&values, &[], 0.75), None);
    }

    #[test]
    fn the_first_of_the_longest_runs_is_the_mode() {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 2, 3, 3]));
        assert_eq!(most_often(&values, &[0, 1, 2, 3, 4]).unwrap(), Some(1));
        assert_eq!(most_often(&values, &[0, 3, 4]).unwrap(), Some(3));
        assert_eq!(most_often(&values, &[]).unwrap(), None);
    }
}
