//! What is three times a minute, and what does the clock show two hours before one? `interval '1 minute' * 3`,
//! `interval '1 month' / 2`, `time '01:00' - interval '2 hours'`, `time '10:00' - time '08:00'`, `date '2026-11-24' +
//! time '10:00'`, `date '2026-11-24' - 7`, and the days between two dates, which are an `integer`. A time of day beside
//! a timestamp or a number, and one that an interval is compared with, is an interval.
//!
//! The planner refuses most of these before rules see them, so they are planned here, as functions. Fractions of a
//! month are days of a month of 30, and fractions of a day hours, as in PostgreSQL; a time of day goes on at midnight.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Int32Array, IntervalMonthDayNanoArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Field, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit,
};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use tarn_query::datafusion;
use tarn_query::sqlparser::ast::BinaryOperator;
use tarn_types::{Span, is_infinite_day, is_infinite_us, midnight_us};

use super::calendar::DAY_US;
use super::calendar::DAYS;
use super::extract::intervals;
use super::times::at_midnight;
use super::times_of_text::{arrow_of, out_of_range, span_of};
use crate::error::{SqlError, state};

const DAYS_OF_MONTH: f64 = 30.0;
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

/// Plans the operators.
#[derive(Debug)]
pub(super) struct TimeOperators;

impl ExprPlanner for TimeOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let mut expr = expr;
        if expr.op == BinaryOperator::Minus {
            as_date(&mut expr.left, &expr.right, schema);
            as_date(&mut expr.right, &expr.left, schema);
        }
        let (Ok(mut left), Ok(mut right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        if is_since_midnight(&expr.op, &left, &right) {
            (expr.left, left) = (as_interval(expr.left), INTERVAL);
        } else if is_since_midnight(&expr.op, &right, &left) {
            (expr.right, right) = (as_interval(expr.right), INTERVAL);
        }
        if matches!(expr.op, BinaryOperator::Plus | BinaryOperator::Minus) {
            in_days(&mut expr.left, &left);
            in_days(&mut expr.right, &right);
        }
        // The rule of `times` does so, too, where a type is known later. But what casts a value to the type of its
        // column asks for its type here, and DataFusion would say that it is a date.
        match (&expr.op, OperandType::of(&left), OperandType::of(&right)) {
            (BinaryOperator::Plus | BinaryOperator::Minus, OperandType::Date, OperandType::Interval) => {
                at_midnight(&mut expr.left)
            }
            (BinaryOperator::Plus, OperandType::Interval, OperandType::Date) => at_midnight(&mut expr.right),
            _ => false,
        };
        if let (BinaryOperator::Plus, OperandType::Time, OperandType::Time) =
            (&expr.op, OperandType::of(&left), OperandType::of(&right))
        {
            let message = "operator is not unique: time without time zone + time without time zone";
            let hint = "one of them is an interval: cast it to one";
            return Err(SqlError::new(state::AMBIGUOUS_FUNCTION, message).with_hint(hint).into());
        }
        Ok(match IntervalOperation::of(&expr.op, OperandType::of(&left), OperandType::of(&right)) {
            Some((operation, is_swapped)) => {
                let mut sides = vec![expr.left, expr.right];
                if is_swapped {
                    sides.reverse();
                }
                PlannerResult::Planned(operation.of_sides(sides, is_swapped))
            }
            None => PlannerResult::Original(expr),
        })
    }
}

/// A parameter that a date is taken from, or that is taken from one, is a date if the client says nothing else.
fn as_date(side: &mut Expr, other: &Expr, schema: &DFSchema) {
    if let Expr::Placeholder(parameter) = side
        && parameter.field.is_none()
        && other.get_type(schema).is_ok_and(|of| of == DataType::Date32)
    {
        parameter.field = Some(Arc::new(Field::new("", DataType::Date32, true)));
    }
}

/// Makes what lies between two times an interval: its days are added as days, however long these are.
fn in_days(between: &mut Expr, of: &DataType) {
    if let DataType::Duration(_) = of {
        let of = std::mem::replace(between, Expr::Literal(ScalarValue::Null, None));
        *between = as_interval(of);
    }
}

fn as_interval(of: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(of), INTERVAL))
}

/// Whether a time of day is the interval since midnight, by what it stands beside: a day's time, a number that it is
/// multiplied with, or an interval that it is compared with.
fn is_since_midnight(op: &BinaryOperator, of: &DataType, beside: &DataType) -> bool {
    use BinaryOperator::{Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Multiply, NotEq, Plus};
    let is_beside = match op {
        Plus | Minus => matches!(beside, DataType::Timestamp(..)),
        Multiply | Divide => matches!(OperandType::of(beside), OperandType::Integer | OperandType::Number),
        Eq | NotEq | Lt | LtEq | Gt | GtEq => OperandType::of(beside) == OperandType::Interval,
        _ => false,
    };
    is_beside && OperandType::of(of) == OperandType::Time
}

/// What stands beside an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperandType {
    Interval,
    Time,
    Date,
    Instant,
    Integer,
    Number,
    Other,
}

impl OperandType {
    fn of(data_type: &DataType) -> OperandType {
        match data_type {
            DataType::Interval(_) | DataType::Duration(_) => OperandType::Interval,
            DataType::Time32(_) | DataType::Time64(_) => OperandType::Time,
            DataType::Date32 => OperandType::Date,
            DataType::Timestamp(..) => OperandType::Instant,
            of if of.is_integer() => OperandType::Integer,
            of if of.is_numeric() => OperandType::Number,
            _ => OperandType::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntervalOperation {
    /// An interval, so many times.
    Times,
    Divided,
    /// A time of day, later by an interval.
    Later,
    Earlier,
    /// From one time of day to another.
    Between,
    /// A day's time of day.
    At,
    /// So many days after a date.
    DaysLater,
    DaysEarlier,
    /// From one date to another.
    DaysBetween,
}

impl IntervalOperation {
    /// And whether its sides come in the other order.
    fn of(op: &BinaryOperator, left: OperandType, right: OperandType) -> Option<(IntervalOperation, bool)> {
        use BinaryOperator::{Divide, Minus, Multiply, Plus};
        use OperandType::{Date, Integer, Interval, Number, Time};
        Some(match (op, left, right) {
            (Multiply, Interval, Integer | Number) => (IntervalOperation::Times, false),
            (Multiply, Integer | Number, Interval) => (IntervalOperation::Times, true),
            (Divide, Interval, Integer | Number) => (IntervalOperation::Divided, false),
            (Plus, Time, Interval) => (IntervalOperation::Later, false),
            (Plus, Interval, Time) => (IntervalOperation::Later, true),
            (Minus, Time, Interval) => (IntervalOperation::Earlier, false),
            (Minus, Time, Time) => (IntervalOperation::Between, false),
            (Plus, Date, Time) => (IntervalOperation::At, false),
            (Plus, Time, Date) => (IntervalOperation::At, true),
            (Plus, Date, Integer) => (IntervalOperation::DaysLater, false),
            (Plus, Integer, Date) => (IntervalOperation::DaysLater, true),
            (Minus, Date, Integer) => (IntervalOperation::DaysEarlier, false),
            (Minus, Date, Date) => (IntervalOperation::DaysBetween, false),
            _ => return None,
        })
    }

    fn of_sides(self, sides: Vec<Expr>, is_swapped: bool) -> Expr {
        let signature = Signature::any(2, Volatility::Immutable);
        let function = OfTimes { operation: self, is_swapped, signature };
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function.into()), sides))
    }

    fn symbol(self) -> &'static str {
        match self {
            IntervalOperation::Times => "*",
            IntervalOperation::Divided => "/",
            IntervalOperation::Later | IntervalOperation::At | IntervalOperation::DaysLater => "+",
            IntervalOperation::Earlier
            | IntervalOperation::Between
            | IntervalOperation::DaysEarlier
            | IntervalOperation::DaysBetween => "-",
        }
    }

    fn sides(self) -> [DataType; 2] {
        match self {
            IntervalOperation::Times | IntervalOperation::Divided => [INTERVAL, DataType::Float64],
            IntervalOperation::Later | IntervalOperation::Earlier => [TIME, INTERVAL],
            IntervalOperation::Between => [TIME, TIME],
            IntervalOperation::At => [DataType::Date32, TIME],
            IntervalOperation::DaysLater | IntervalOperation::DaysEarlier => [DataType::Date32, DataType::Int64],
            IntervalOperation::DaysBetween => [DataType::Date32, DataType::Date32],
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfTimes {
    operation: IntervalOperation,
    is_swapped: bool,
    signature: Signature,
}

impl ScalarUDFImpl for OfTimes {
    fn name(&self) -> &str {
        self.operation.symbol()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.operation {
            IntervalOperation::Times | IntervalOperation::Divided | IntervalOperation::Between => INTERVAL,
            IntervalOperation::Later | IntervalOperation::Earlier => TIME,
            IntervalOperation::At => DataType::Timestamp(TimeUnit::Microsecond, None),
            IntervalOperation::DaysLater | IntervalOperation::DaysEarlier => DataType::Date32,
            IntervalOperation::DaysBetween => DataType::Int32,
        })
    }

    /// As the operator is.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [left, right] = args else { return exec_err!("an operator has two sides") };
        let (left, right) = if self.is_swapped { (right, left) } else { (left, right) };
        Ok(format!("{} {} {}", left.schema_name(), self.operation.symbol(), right.schema_name()))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = &args.args[..] else { return exec_err!("an operator has two sides") };
        let is_scalar = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let n_rows = if is_scalar { 1 } else { args.number_rows };
        let [left_type, right_type] = self.operation.sides();
        let (left, right) = (left.to_array(n_rows)?, right.to_array(n_rows)?);
        let (left, right) = (to_type(&left, &left_type)?, to_type(&right, &right_type)?);
        let is_there = |row: &usize| left.is_valid(*row) && right.is_valid(*row);
        let rows = || (0..n_rows).map(|row| Some(row).filter(is_there));
        let interval = |of: &ArrayRef, row: usize| of.as_primitive::<IntervalMonthDayNanoType>().value(row);
        let time = |of: &ArrayRef, row: usize| of.as_primitive::<Time64MicrosecondType>().value(row);
        let day = |row: usize| left.as_primitive::<Date32Type>().value(row);
        let operation = self.operation;
        let answer: ArrayRef = match operation {
            IntervalOperation::Times | IntervalOperation::Divided => {
                let factor = |row: usize| right.as_primitive::<Float64Type>().value(row);
                let of = |row: usize| match operation {
                    IntervalOperation::Times => scaled(interval(&left, row), |part| part * factor(row)),
                    _ if factor(row) == 0.0 => Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero")),
                    _ => scaled(interval(&left, row), |part| part / factor(row)),
                };
                let all = rows().map(|row| row.map(of).transpose());
                Arc::new(all.collect::<Result<IntervalMonthDayNanoArray, SqlError>>()?)
            }
            IntervalOperation::Later | IntervalOperation::Earlier => {
                let of = |row: usize| {
                    let by = interval(&right, row).nanoseconds / 1_000 % DAY_US;
                    let by = if operation == IntervalOperation::Later { by } else { -by };
                    (time(&left, row) + by).rem_euclid(DAY_US)
                };
                Arc::new(rows().map(|row| row.map(of)).collect::<Time64MicrosecondArray>())
            }
            IntervalOperation::Between => {
                let of = |row: usize| IntervalMonthDayNano::new(0, 0, (time(&left, row) - time(&right, row)) * 1_000);
                Arc::new(rows().map(|row| row.map(of)).collect::<IntervalMonthDayNanoArray>())
            }
            IntervalOperation::At => {
                let out = || SqlError::new(state::DATETIME_OVERFLOW, "timestamp out of range");
                let of = |row: usize| {
                    let at = |midnight: i64| match is_infinite_us(midnight) {
                        true => Some(midnight),
                        false => midnight.checked_add(time(&right, row)).filter(|us| !is_infinite_us(*us)),
                    };
                    midnight_us(day(row)).and_then(at).ok_or_else(out)
                };
                let all = rows().map(|row| row.map(of).transpose());
                Arc::new(all.collect::<Result<TimestampMicrosecondArray, SqlError>>()?)
            }
            IntervalOperation::DaysLater | IntervalOperation::DaysEarlier => {
                let out = || SqlError::new(state::DATETIME_OVERFLOW, "date out of range");
                let of = |row: usize| {
                    if is_infinite_day(day(row)) {
                        return Ok(day(row));
                    }
                    let days = right.as_primitive::<Int64Type>().value(row);
                    let by = if operation == IntervalOperation::DaysLater { Some(days) } else { days.checked_neg() };
                    let day = by.and_then(|by| i64::from(day(row)).checked_add(by));
                    day.filter(|day| DAYS.contains(day)).and_then(|day| i32::try_from(day).ok()).ok_or_else(out)
                };
                let all = rows().map(|row| row.map(of).transpose());
                Arc::new(all.collect::<Result<Date32Array, SqlError>>()?)
            }
            IntervalOperation::DaysBetween => {
                // What does not fit lies further apart than the calendar is long.
                let of = |row: usize| {
                    let from = right.as_primitive::<Date32Type>().value(row);
                    match is_infinite_day(from) || is_infinite_day(day(row)) {
                        true => Err(SqlError::new(state::DATETIME_OVERFLOW, "cannot subtract infinite dates")),
                        false => Ok(day(row).wrapping_sub(from)),
                    }
                };
                let all = rows().map(|row| row.map(of).transpose());
                Arc::new(all.collect::<Result<Int32Array, SqlError>>()?)
            }
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&answer, 0)?),
            false => ColumnarValue::Array(answer),
        })
    }
}

/// What lies between two times is days and hours.
fn to_type(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Duration(_) => Ok(Arc::new(intervals(values)?)),
        _ => Ok(cast(values, to)?),
    }
}

/// An interval each of whose parts is scaled. What is a fraction of a month goes to days, and of a day to hours.
pub(super) fn scaled(
    interval: IntervalMonthDayNano,
    scale: impl Fn(f64) -> f64,
) -> Result<IntervalMonthDayNano, SqlError> {
    const DAY_SECONDS: f64 = 86_400.0;
    // Sums of floats are right to a microsecond.
    let to_us = |value: f64| (value * 1e6).round_ties_even() / 1e6;
    let whole = |value: f64| match value.is_finite() && value.abs() < 2_147_483_648.0 {
        true => Ok(value as i32),
        false => Err(out_of_range()),
    };
    let Span { months, days, us } = span_of(interval);
    let (exact_months, exact_days) = (scale(f64::from(months)), scale(f64::from(days)));
    let (months, mut days) = (whole(exact_months)?, whole(exact_days)?);
    let more_days = to_us((exact_months - f64::from(months)) * DAYS_OF_MONTH);
    let rest = exact_days - f64::from(days) + more_days - more_days.trunc();
    let mut seconds = to_us(rest * DAY_SECONDS);
    if seconds.abs() >= DAY_SECONDS {
        let whole_days = (seconds / DAY_SECONDS).trunc();
        days = days.checked_add(whole_days as i32).ok_or_else(out_of_range)?;
        seconds -= whole_days * DAY_SECONDS;
    }
    days = days.checked_add(whole(more_days)?).ok_or_else(out_of_range)?;
    let us = (scale(us as f64) + seconds * 1e6).round_ties_even();
    if !us.is_finite() || us.abs() >= 9.2e18 {
        return Err(out_of_range());
    }
    arrow_of(Span { months, days, us: us as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 says.
    #[test]
    fn fractions_go_to_the_smaller_units() {
        let of = |months, days, us: i64| IntervalMonthDayNano::new(months, days, us * 1_000);
        let times = |interval, factor: f64| scaled(interval, |part| part * factor).unwrap();
        assert_eq!(times(of(1, 0, 0), 0.5), of(0, 15, 0));
        assert_eq!(times(of(0, 0, 60_000_000), 3.0), of(0, 0, 180_000_000));
        assert_eq!(times(of(41, 12, 1_296_000_000_000), 0.3), of(12, 12, 440_640_000_000));
        assert_eq!(times(of(0, 1, 0), 0.1), of(0, 0, 8_640_000_000));
        assert_eq!(scaled(of(12, 0, 0), |part| part / 5.0).unwrap(), of(2, 12, 0));
        assert!(scaled(of(i32::MAX, 0, 0), |part| part * 2.0).is_err());
    }
}
