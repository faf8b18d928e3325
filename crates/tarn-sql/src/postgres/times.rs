//! What is a day, and what a second? `date + interval` is a `timestamp`, two times lie days and hours apart, seconds
//! have a fraction, and a month is as long as thirty days. DataFusion gives a `date`, and loses the hours; hours alone;
//! whole seconds; and takes months, days and hours for things that cannot be compared.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, ListArray};
use arrow::datatypes::{DataType, Decimal128Type, IntervalMonthDayNano, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, SortExpr, Volatility, WindowFrame, WindowFrameBound, WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use tarn_query::{datafusion, each_expression, each_node, zone_of};

use super::extract::{extracted, intervals};

/// The rule; it runs before types are made one.
#[derive(Debug)]
pub(super) struct Times {
    length: Arc<ScalarUDF>,
}

impl Times {
    pub(super) fn new() -> Times {
        Times { length: length_of_interval() }
    }

    fn rewritten(&self, expr: Expr, schema: &DFSchema, config: &ConfigOptions) -> Result<Transformed<Expr>> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
                let (mut left, mut right) = (left, right);
                let is_changed = match (left.get_type(schema), right.get_type(schema)) {
                    (Ok(DataType::Date32), Ok(DataType::Interval(_))) => at_midnight(&mut left),
                    (Ok(DataType::Interval(_)), Ok(DataType::Date32)) if op == Operator::Plus => {
                        at_midnight(&mut right)
                    }
                    // The planner would count nanoseconds, which end in 2262.
                    (Ok(DataType::Date32), Ok(MIDNIGHT)) if op == Operator::Minus => at_midnight(&mut left),
                    (Ok(MIDNIGHT), Ok(DataType::Date32)) if op == Operator::Minus => at_midnight(&mut right),
                    _ => false,
                };
                let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
                let (mut left, mut right) = (left, right);
                let is_date = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
                let is_changed = if is_interval(&left, schema) && is_interval(&right, schema) {
                    (*left, *right) = (self.call(&self.length, *left), self.call(&self.length, *right));
                    true
                } else {
                    (is_date(&left) && as_date(&mut right)) || (is_date(&right) && as_date(&mut left)) || {
                        let is_time = |expr: &Expr| matches!(expr.get_type(schema), Ok(MIDNIGHT));
                        // The planner would count nanoseconds, which end in 2262.
                        match (is_date(&left), is_date(&right)) {
                            (true, false) => is_time(&right) && at_midnight(&mut left),
                            (false, true) => is_time(&left) && at_midnight(&mut right),
                            _ => false,
                        }
                    }
                };
                let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            }
            Expr::Between(Between { expr, negated, mut low, mut high }) => {
                let is_date = matches!(expr.get_type(schema), Ok(DataType::Date32));
                let is_changed = is_date && (as_date(&mut low) | as_date(&mut high));
                let expr = Expr::Between(Between { expr, negated, low, high });
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            }
            // A day begins when the session's clocks show midnight.
            Expr::ScalarFunction(mut call)
                if call.func.name() == "date_trunc"
                    && matches!(call.args.get(1).map(|of| of.get_type(schema)), Some(Ok(DataType::Date32))) =>
            {
                let of = std::mem::replace(&mut call.args[1], Expr::Literal(ScalarValue::Null, None));
                let instant =
                    DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone_of(config).arrow_name())));
                call.args[1] = Expr::Cast(Cast::new(Box::new(of), instant));
                Ok(Transformed::yes(Expr::ScalarFunction(call)))
            }
            // Which type a frame's bounds have is asked before intervals are lengths. One that lies so far away would
            // be none of a length.
            Expr::WindowFunction(mut call) if !has_distances(&call.params.window_frame) => {
                let is_changed = by_lengths(&mut call.params.order_by, schema);
                let expr = Expr::WindowFunction(call);
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            }
            Expr::ScalarFunction(call) => Ok(match extracted(&call, schema)? {
                Some(field) => Transformed::yes(field),
                None => Transformed::no(Expr::ScalarFunction(call)),
            }),
            other => Ok(Transformed::no(other)),
        }
    }

    fn call(&self, function: &Arc<ScalarUDF>, of: Expr) -> Expr {
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![of]))
    }
}

impl AnalyzerRule for Times {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, |expr, schema| self.rewritten(expr, schema, config))
    }

    fn name(&self) -> &str {
        "postgres_times"
    }
}

/// Puts rows in the order of how long their intervals are. The rule runs when types are known.
#[derive(Debug)]
pub(super) struct SortedIntervals;

impl AnalyzerRule for SortedIntervals {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = each_node(plan, sorted)?.data;
        each_expression(plan, in_order)
    }

    fn name(&self) -> &str {
        "sorted_intervals"
    }
}

fn sorted(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Sort(mut sort) = plan else { return Ok(Transformed::no(plan)) };
    let is_changed = by_lengths(&mut sort.expr, sort.input.schema());
    let plan = LogicalPlan::Sort(sort);
    Ok(if is_changed { Transformed::yes(plan) } else { Transformed::no(plan) })
}

/// The same of the rows of an aggregate and of a window.
fn in_order(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_changed = match &mut expr {
        // Of DISTINCT, what is ordered by has to be the argument.
        Expr::AggregateFunction(call) if !call.params.distinct => by_lengths(&mut call.params.order_by, schema),
        Expr::WindowFunction(call) => by_lengths(&mut call.params.order_by, schema),
        _ => false,
    };
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

fn has_distances(frame: &WindowFrame) -> bool {
    let is_distance = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => !by.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    frame.units == WindowFrameUnits::Range && (is_distance(&frame.start_bound) || is_distance(&frame.end_bound))
}

fn by_lengths(order: &mut [SortExpr], schema: &DFSchema) -> bool {
    let mut is_changed = false;
    for by in order {
        if is_interval(&by.expr, schema) {
            let of = std::mem::replace(&mut by.expr, Expr::Literal(ScalarValue::Null, None));
            by.expr = Expr::ScalarFunction(ScalarFunction::new_udf(length_of_interval(), vec![of]));
            is_changed = true;
        }
    }
    is_changed
}

pub(super) fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| holds_intervals(&of))
}

/// Whether values are intervals, or arrays of them.
pub(super) fn holds_intervals(of: &DataType) -> bool {
    match of {
        DataType::Interval(_) | DataType::Duration(_) => true,
        DataType::List(items) => matches!(items.data_type(), DataType::Interval(_)),
        _ => false,
    }
}

const MIDNIGHT: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Makes a date the time at which it begins. It always does.
pub(super) fn at_midnight(date: &mut Expr) -> bool {
    let of = std::mem::replace(date, Expr::Literal(ScalarValue::Null, None));
    *date = Expr::Cast(Cast::new(Box::new(of), MIDNIGHT));
    true
}

/// Beside a date, a date that whole days were added to may stay one: so blocks are left out by it. Whether it was made
/// a time before.
fn as_date(expr: &mut Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right }) = expr else { return false };
    let date = match (left.as_mut(), right.as_ref()) {
        (Expr::Cast(cast), Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _))
            if *cast.field.data_type() == MIDNIGHT && interval.nanoseconds == 0 =>
        {
            std::mem::replace(cast.expr.as_mut(), Expr::Literal(ScalarValue::Null, None))
        }
        _ => return false,
    };
    // What was a time when it was written stays one.
    if !matches!(&date, Expr::Literal(ScalarValue::Date32(_), _))
        && !matches!(&date, Expr::Cast(cast) if *cast.field.data_type() == DataType::Date32)
        && !matches!(&date, Expr::Column(_))
    {
        if let Expr::Cast(cast) = left.as_mut() {
            *cast.expr = date;
        }
        return false;
    }
    **left = date;
    true
}

pub(super) fn length_of_interval() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(OfTime { signature: Signature::any(1, Volatility::Immutable) }))
}

/// What an interval's length is kept in.
const LENGTH: DataType = DataType::Decimal128(38, 0);

/// How long an interval is, in microseconds: months have thirty days of 24 hours.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfTime {
    signature: Signature,
}

impl ScalarUDFImpl for OfTime {
    fn name(&self) -> &str {
        "length_of_interval"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match types {
            [DataType::List(items)] => DataType::List(Arc::new(items.as_ref().clone().with_data_type(LENGTH))),
            _ => LENGTH,
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [of] = &args.args[..] else { return exec_err!("{} is of one value", self.name()) };
        let (values, is_scalar) = match of {
            ColumnarValue::Array(values) => (Arc::clone(values), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let answer = lengths(&values)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?),
            false => ColumnarValue::Array(answer),
        })
    }
}

/// How long intervals are, as numbers; of arrays, how long their items are.
pub(super) fn lengths(values: &ArrayRef) -> Result<ArrayRef> {
    if let Some(lists) = values.as_list_opt::<i32>() {
        let (field, offsets, items, nulls) = lists.clone().into_parts();
        let field = Arc::new(field.as_ref().clone().with_data_type(LENGTH));
        return Ok(Arc::new(ListArray::new(field, offsets, lengths(&items)?, nulls)));
    }
    let lengths: Decimal128Array = intervals(values)?.unary::<_, Decimal128Type>(length);
    Ok(Arc::new(lengths.with_precision_and_scale(38, 0)?))
}

/// How long an interval is, in microseconds.
pub(super) fn length(of: IntervalMonthDayNano) -> i128 {
    const DAY_US: i128 = 86_400_000_000;
    (i128::from(of.months) * 30 + i128::from(of.days)) * DAY_US + i128::from(of.nanoseconds / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_thirty_days_and_days_24_hours() {
        let of = |months, days, seconds: i64| length(IntervalMonthDayNano::new(months, days, seconds * 1_000_000_000));
        assert_eq!(of(1, 0, 0), of(0, 30, 0));
        assert_eq!(of(0, 1, 0), of(0, 0, 86_400));
        assert_eq!(of(1, -29, -86_400), 0);
        assert!(of(0, 0, 86_399) < of(0, 1, 0));
    }
}
