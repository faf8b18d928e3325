//! Which value stands at a place of ordered values, and which comes most often? `percentile_disc(0.5) WITHIN GROUP
//! (ORDER BY x)`, of one place or of several, `mode() WITHIN GROUP (ORDER BY x)`, and `percentile_cont`, whose
//! weights DataFusion cuts to six digits: each is a function of the array that `array_agg(x ORDER BY x)` collects,
//! which bounds it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, IntervalMonthDayNanoArray, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, take as taken};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, IntervalMonthDayNano, IntervalUnit};
use arrow::row::{RowConverter, SortField};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName,
};
use tarn_types::Span;

use super::averages::undefined;
use super::calls::{call, is_named, take};
use super::extract::intervals;
use super::interval_operators::scaled;
use super::rowwise::ArgumentRows;
use super::times_of_text::{arrow_of, out_of_range, span_of};
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
    let known = [(DISCRETE, 1), (MODE, 0), (CONTINUOUS, 1)];
    let known = known.into_iter().find(|((name, _), n_args)| is_named(&function.name, name) && args.len() == *n_args);
    let Some(((_, of), _)) = known else {
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
    [OrderedSetFunction::Discrete, OrderedSetFunction::Mode, OrderedSetFunction::Continuous]
        .into_iter()
        .map(of)
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OrderedSetFunction {
    Discrete,
    Mode,
    Continuous,
}

/// Where a value lies among those of all rows: at one of them, at another, and how far it is on the way from the first
/// to the second.
type Place = (u32, u32, f64);

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfOrdered {
    what: OrderedSetFunction,
    signature: Signature,
}

impl OfOrdered {
    fn called(&self) -> &'static str {
        match self.what {
            OrderedSetFunction::Discrete => DISCRETE.0,
            OrderedSetFunction::Mode => MODE.0,
            OrderedSetFunction::Continuous => CONTINUOUS.0,
        }
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

impl ScalarUDFImpl for OfOrdered {
    fn name(&self) -> &str {
        match self.what {
            OrderedSetFunction::Discrete => DISCRETE.1,
            OrderedSetFunction::Mode => MODE.1,
            OrderedSetFunction::Continuous => CONTINUOUS.1,
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
            (OrderedSetFunction::Mode, Some(_), [_]) => Some(types.to_vec()),
            (OrderedSetFunction::Discrete, Some(_), [of, share]) if is_share(share) => {
                Some(vec![of.clone(), floats(share)])
            }
            (OrderedSetFunction::Continuous, Some(item), [_, share]) if item.is_numeric() && is_share(share) => {
                Some(vec![list_of(DataType::Float64), floats(share)])
            }
            (OrderedSetFunction::Continuous, Some(DataType::Interval(_) | DataType::Duration(_)), [of, share])
                if is_share(share) =>
            {
                Some(vec![of.clone(), floats(share)])
            }
            _ => None,
        };
        coerced.ok_or_else(|| undefined(self.called(), types).into())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let DataType::List(item) = &types[0] else { return Err(undefined(self.called(), types).into()) };
        let item = match (self.what, item.data_type()) {
            (OrderedSetFunction::Continuous, DataType::Duration(_)) => INTERVAL,
            (_, item) => item.clone(),
        };
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
        let rows = ArgumentRows::of(&args)?;
        let lists = rows.columns[0].as_list::<i32>();
        // Of several places a list, of one a value, in each row.
        let (mut places, mut ends, mut is_there) = (vec![], vec![0], vec![]);
        for row in rows.there() {
            let shares = row.and_then(|row| rows.columns.get(1).map(|shares| shares_of(shares, row))).transpose()?;
            let there = row.map(|row| there(lists, row));
            let of_each = |shares: Vec<Option<f64>>, of: &dyn Fn(f64) -> Option<Place>| {
                shares.into_iter().map(|share| share.and_then(of)).collect::<Vec<_>>()
            };
            // Nothing is at no place.
            let found = match (self.what, there.filter(|there| !there.is_empty()), shares) {
                (OrderedSetFunction::Mode, Some(there), _) => {
                    Some(vec![most_often(lists.values(), &there)?.map(|at| (at, at, 0.0))])
                }
                (OrderedSetFunction::Discrete, Some(there), Some(shares)) => {
                    Some(of_each(shares, &|share| discrete(&there, share)))
                }
                (OrderedSetFunction::Continuous, Some(there), Some(shares)) => {
                    Some(of_each(shares, &|share| continuous(&there, share)))
                }
                _ => None,
            };
            is_there.push(found.is_some());
            match (found, args.return_field.data_type().is_list()) {
                (Some(found), _) => places.extend(found),
                (None, true) => {}
                (None, false) => places.push(None),
            }
            ends.push(places.len() as i32);
        }
        let items = match self.what {
            OrderedSetFunction::Continuous => means(lists.values(), &places)?,
            _ => {
                let places = places.into_iter().map(|place: Option<Place>| place.map(|(at, _, _)| at));
                taken(lists.values(), &places.collect::<UInt32Array>(), None)?
            }
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
fn discrete(there: &[u32], share: f64) -> Option<Place> {
    let nth = (share * there.len() as f64).ceil().max(1.0) as usize;
    there.get(nth - 1).map(|at| (*at, *at, 0.0))
}

/// Between two values, by how near the place is to each.
fn continuous(there: &[u32], share: f64) -> Option<Place> {
    let place = share * there.len().checked_sub(1)? as f64;
    let at = |nth: f64| there.get(nth as usize).copied();
    Some((at(place.floor())?, at(place.ceil())?, place - place.floor()))
}

/// The values at places between two others.
fn means(values: &ArrayRef, places: &[Option<Place>]) -> Result<ArrayRef> {
    if matches!(values.data_type(), DataType::Interval(_) | DataType::Duration(_)) {
        let values = intervals(values)?;
        let of = |(low, high, share): Place| match low == high {
            true => Ok(values.value(low as usize)),
            false => between(values.value(low as usize), values.value(high as usize), share),
        };
        let all = places.iter().map(|place| place.map(of).transpose());
        return Ok(Arc::new(all.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?));
    }
    let values = cast(values, &DataType::Float64)?;
    let values = values.as_primitive::<Float64Type>();
    let of = |(low, high, share): Place| {
        let (from, to) = (values.value(low as usize), values.value(high as usize));
        // Two that are infinite have nothing between them.
        if low == high { from } else { from + share * (to - from) }
    };
    Ok(Arc::new(places.iter().map(|place| place.map(of)).collect::<Float64Array>()))
}

/// The first interval, and a share of what lies between it and the second.
fn between(
    low: IntervalMonthDayNano,
    high: IntervalMonthDayNano,
    share: f64,
) -> Result<IntervalMonthDayNano, SqlError> {
    let (low, high) = (span_of(low), span_of(high));
    let apart = || {
        let months = high.months.checked_sub(low.months)?;
        Some(Span { months, days: high.days.checked_sub(low.days)?, us: high.us.checked_sub(low.us)? })
    };
    let part = span_of(scaled(arrow_of(apart().ok_or_else(out_of_range)?)?, |of| of * share)?);
    let sum = || {
        let months = low.months.checked_add(part.months)?;
        Some(Span { months, days: low.days.checked_add(part.days)?, us: low.us.checked_add(part.us)? })
    };
    arrow_of(sum().ok_or_else(out_of_range)?)
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
        let at = |share: f64| discrete(&there, share).map(|(at, _, _)| at);
        assert_eq!([at(0.0), at(0.5), at(0.75), at(1.0)], [Some(0), Some(1), Some(3), Some(4)]);
        assert_eq!(discrete(&[], 0.5), None);
        let values: ArrayRef = Arc::new(Float64Array::from(vec![-5.0, 10.0, 0.0, 20.0, 31.0]));
        let places = [0.5, 0.75, 1.0].map(|share| continuous(&there, share));
        let means = means(&values, &places).unwrap();
        assert_eq!(means.as_primitive::<Float64Type>().values()[..], [15.0, 22.75, 31.0]);
        assert_eq!(continuous(&[], 0.75), None);
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn a_share_of_what_is_between_intervals_is_one() {
        let days = |days: i32| IntervalMonthDayNano::new(0, days, 0);
        assert_eq!(between(days(1), days(2), 0.25).unwrap(), IntervalMonthDayNano::new(0, 1, 21_600_000_000_000));
        assert!(between(days(i32::MIN), days(1), 0.5).is_err());
    }

    #[test]
    fn the_first_of_the_longest_runs_is_the_mode() {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 2, 3, 3]));
        assert_eq!(most_often(&values, &[0, 1, 2, 3, 4]).unwrap(), Some(1));
        assert_eq!(most_often(&values, &[0, 3, 4]).unwrap(), Some(3));
        assert_eq!(most_often(&values, &[]).unwrap(), None);
    }
}
